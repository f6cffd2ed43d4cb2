//! Max pooling: `out_c = max_j x_jc` over the unmasked tokens.
//!
//! Where several tokens share the maximum, the gradient is divided equally among them, as
//! TensorFlow's `reduce_max` does. NaN wins over every number, so that a diverged model shows.

use super::{Info, Pooling, kept, kept_rows};
use crate::arch::{Kernel, Vector, run};
use crate::panel::Lanes;
use crate::real::Real;

pub(super) struct Max;

impl<T: Real> Pooling<T> for Max {
    fn info(&self) -> Info {
        Info {
            name: "max",
            equation: "out = max_j x_j, elementwise",
            source: "Qi et al. 2017, PointNet (arXiv 1612.00593)",
        }
    }

    fn forward(&self, x: &[T], mask: Option<&[bool]>, out: &mut [T]) {
        // Without any token left: 0, so that the result stays finite.
        let empty = kept_rows(x, mask, out.len()).next().is_none();
        out.fill(if empty { T::zero() } else { T::neg_infinity() });
        for (_, row) in kept_rows(x, mask, out.len()) {
            for (out, &x) in out.iter_mut().zip(row) {
                if x > *out || x.is_nan() {
                    *out = x;
                }
            }
        }
    }

    fn backward(&self, x: &[T], mask: Option<&[bool]>, out: &[T], dout: &[T], dx: &mut [T]) {
        let d = out.len();
        for c in 0..d {
            let ties = kept_rows(x, mask, d).filter(|(_, row)| row[c] == out[c]).count();
            let share = dout[c] / T::of(ties.max(1) as f64);
            for (j, row) in kept_rows(x, mask, d) {
                if row[c] == out[c] {
                    dx[j * d + c] += share;
                }
            }
        }
    }

    fn pool(&self, x: &[Lanes<T>], keep: &[Lanes<T>], out: &mut [T]) {
        run(Pool { x, keep, out: &mut *out });
        if keep.as_flattened().iter().all(|&keep| keep == T::zero()) {
            out.fill(T::zero());
        }
    }

    fn pool_backward(
        &self,
        x: &[Lanes<T>],
        keep: &[Lanes<T>],
        out: &[T],
        dout: &[T],
        dx: &mut [Lanes<T>],
    ) {
        run(PoolBackward { x, keep, out, dout, dx });
    }

    fn reference_mask(&self) -> (T, T) {
        (T::one(), T::of(-1e9))
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
            let mut max = V::splat(token, T::neg_infinity());
            for (p, keep) in keep.iter().enumerate() {
                let x = kept(token, V::load(token, &x[p * d + i]), keep, T::neg_infinity());
                // x unless max is larger or NaN, so that NaN wins.
                max = max.if_equal(max, max.if_greater(x, max, x), max);
            }
            let larger = |max: T, x: T| if x > max || x.is_nan() { x } else { max };
            *out = max.lanes().into_iter().fold(T::neg_infinity(), larger);
        }
    }
}

struct PoolBackward<'a, T> {
    x: &'a [Lanes<T>],
    keep: &'a [Lanes<T>],
    out: &'a [T],
    dout: &'a [T],
    dx: &'a mut [Lanes<T>],
}

impl<T: Real> Kernel<T> for PoolBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let Self { x, keep, out, dout, dx } = self;
        let d = out.len();
        for i in 0..d {
            let (max, zero) = (V::splat(token, out[i]), V::splat(token, T::zero()));
            // How many tokens have the maximum.
            let mut ties = zero;
            for (p, keep) in keep.iter().enumerate() {
                let one = kept(token, V::splat(token, T::one()), keep, T::zero());
                ties = ties + V::load(token, &x[p * d + i]).if_equal(max, one, zero);
            }
            let share = V::splat(token, dout[i] / ties.total().max(T::one()));
            for (p, keep) in keep.iter().enumerate() {
                let share = kept(token, share, keep, T::zero());
                let (x, dx) = (V::load(token, &x[p * d + i]), &mut dx[p * d + i]);
                (V::load(token, dx) + x.if_equal(max, share, zero)).store(dx);
            }
        }
    }
}
