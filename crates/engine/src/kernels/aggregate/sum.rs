//! Sum pooling: `out = sum_j x_j` over the unmasked tokens.

use super::{Info, Pooling, kept, kept_rows};
use crate::arch::{Kernel, Vector, run};
use crate::kernels::lanes::sum_rows;
use crate::panel::Lanes;
use crate::real::Real;

pub(super) struct Sum;

impl<T: Real> Pooling<T> for Sum {
    fn info(&self) -> Info {
        Info {
            name: "sum",
            equation: "out = sum_j x_j",
            source: "Zaheer et al. 2017, Deep Sets (arXiv 1703.06114)",
        }
    }

    fn forward(&self, x: &[T], mask: Option<&[bool]>, out: &mut [T]) {
        out.fill(T::zero());
        for (_, row) in kept_rows(x, mask, out.len()) {
            for (out, &x) in out.iter_mut().zip(row) {
                *out += x;
            }
        }
    }

    fn backward(&self, _x: &[T], mask: Option<&[bool]>, out: &[T], dout: &[T], dx: &mut [T]) {
        let d = out.len();
        for (j, dx) in dx.chunks_exact_mut(d).enumerate() {
            if mask.is_none_or(|m| m[j]) {
                for (dx, &dout) in dx.iter_mut().zip(dout) {
                    *dx += dout;
                }
            }
        }
    }

    fn pool(&self, x: &[Lanes<T>], keep: &[Lanes<T>], out: &mut [T]) {
        run(Pool { x, keep, out });
    }

    fn pool_backward(
        &self,
        _x: &[Lanes<T>],
        keep: &[Lanes<T>],
        _out: &[T],
        dout: &[T],
        dx: &mut [Lanes<T>],
    ) {
        spread(T::one(), keep, dout, dx);
    }

    fn reference_mask(&self) -> (T, T) {
        (T::zero(), T::zero())
    }
}

struct Pool<'a, T> {
    x: &'a [Lanes<T>],
    keep: &'a [Lanes<T>],
    out: &'a mut [T],
}

impl<T: Real> Kernel<T> for Pool<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let Self { x, keep, out } = self;
        let d = out.len();
        for (i, out) in out.iter_mut().enumerate() {
            let sums = sum_rows(
                token,
                keep.len(),
                #[inline(always)]
                |p| kept(token, V::load(token, &x[p * d + i]), &keep[p], T::zero()),
            );
            *out = sums.total();
        }
    }
}

/// Adds `factor dout: [d]` to the kept tokens of `dx: [panels][d]`.
pub(super) fn spread<T: Real>(factor: T, keep: &[Lanes<T>], dout: &[T], dx: &mut [Lanes<T>]) {
    run(Spread { factor, keep, dout, dx });
}

struct Spread<'a, T> {
    factor: T,
    keep: &'a [Lanes<T>],
    dout: &'a [T],
    dx: &'a mut [Lanes<T>],
}

impl<T: Real> Kernel<T> for Spread<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        for (dx, keep) in self.dx.chunks_exact_mut(self.dout.len()).zip(self.keep) {
            for (dx, &dout) in dx.iter_mut().zip(self.dout) {
                let share = kept(token, V::splat(token, self.factor * dout), keep, T::zero());
                (V::load(token, dx) + share).store(dx);
            }
        }
    }
}
