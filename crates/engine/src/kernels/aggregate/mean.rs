//! Mean pooling: `out = (1/n) sum_j x_j` over the n unmasked tokens (0 if there are none).
//!
//! Not in the paper; the length-independent relative of its sum pooling.

use super::sum::{Sum, spread};
use super::{Info, Pooling, kept_rows};
use crate::panel::Lanes;
use crate::real::Real;

pub(super) struct Mean;

/// 1/n, or 0 without tokens.
fn factor<T: Real>(x: &[T], mask: Option<&[bool]>, d: usize) -> T {
    match kept_rows(x, mask, d).count() {
        0 => T::zero(),
        n => T::one() / T::of(n as f64),
    }
}

/// [`factor`] on panels.
fn share<T: Real>(keep: &[Lanes<T>]) -> T {
    let n: T = keep.as_flattened().iter().copied().sum();
    if n == T::zero() { n } else { T::one() / n }
}

impl<T: Real> Pooling<T> for Mean {
    fn info(&self) -> Info {
        Info {
            name: "mean",
            equation: "out = (1/n) sum_j x_j",
            source: "this project, for completeness",
        }
    }

    fn forward(&self, x: &[T], mask: Option<&[bool]>, out: &mut [T]) {
        Sum.forward(x, mask, out);
        let factor = factor(x, mask, out.len());
        out.iter_mut().for_each(|out| *out *= factor);
    }

    fn backward(&self, x: &[T], mask: Option<&[bool]>, out: &[T], dout: &[T], dx: &mut [T]) {
        let d = out.len();
        let factor = factor(x, mask, d);
        for (j, dx) in dx.chunks_exact_mut(d).enumerate() {
            if mask.is_none_or(|m| m[j]) {
                for (dx, &dout) in dx.iter_mut().zip(dout) {
                    *dx += factor * dout;
                }
            }
        }
    }

    fn pool(&self, x: &[Lanes<T>], keep: &[Lanes<T>], out: &mut [T]) {
        Sum.pool(x, keep, out);
        let factor = share(keep);
        out.iter_mut().for_each(|out| *out *= factor);
    }

    fn pool_backward(
        &self,
        _x: &[Lanes<T>],
        keep: &[Lanes<T>],
        _out: &[T],
        dout: &[T],
        dx: &mut [Lanes<T>],
    ) {
        spread(share(keep), keep, dout, dx);
    }

    fn reference_mask(&self) -> (T, T) {
        (T::zero(), T::zero())
    }
}
