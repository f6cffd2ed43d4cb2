//! Sum pooling: `out = sum_j x_j` over the unmasked tokens.

use super::{Info, Pooling, kept_rows};
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

    fn reference_mask(&self) -> (T, T) {
        (T::zero(), T::zero())
    }
}
