//! Max pooling: `out_c = max_j x_jc` over the unmasked tokens.
//!
//! Where several tokens share the maximum, the gradient is divided equally among them, as
//! TensorFlow's `reduce_max` does. NaN wins over every number, so that a diverged model shows.

use super::{Info, Pooling, kept_rows};
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

    fn reference_mask(&self) -> (T, T) {
        (T::one(), T::of(-1e9))
    }
}
