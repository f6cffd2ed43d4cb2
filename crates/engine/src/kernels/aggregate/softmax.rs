//! Softmax, the probability cage: weights are positive and sum to 1.
//!
//! ```text
//! p_j = exp(z_j - max z) / sum_i exp(z_i - max z)        (0 where masked),    z = q.k / sqrt(d_h)
//! w_j = g p_j + b                                        g = 1, b = 0 unless asked for
//! ```
//!
//! If every key is masked, none is: the authors' program subtracts 1e9 from masked logits,
//! which leaves the weights finite.

use super::{AttentionRule, Defaults, Info, Row};
use crate::real::Real;

pub(super) struct Softmax;

/// Calls `each(j, p_j)` for the keys that take part.
fn probabilities<T: Real>(row: &Row<T>, z: &[T], mut each: impl FnMut(usize, T)) {
    let all = row.count(z.len()) == 0;
    let kept = || (0..z.len()).filter(|&j| all || row.keeps(j));
    let max = kept().map(|j| z[j]).fold(T::neg_infinity(), T::max);
    let total: T = kept().map(|j| (z[j] - max).exp()).sum();
    for j in kept() {
        each(j, (z[j] - max).exp() / total);
    }
}

impl<T: Real> AttentionRule<T> for Softmax {
    fn info(&self) -> Info {
        Info {
            name: "softmax",
            equation: "w = exp(z) / sum exp(z),  z = q.k / sqrt(d_h)",
            source: "Vaswani et al. 2017 (arXiv 1706.03762); models MTE and BERT",
        }
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            gain: false,
            bias: false,
            epsilon: 0.0,
            scaled: true,
            hidden_norm: true,
            rescale: false,
        }
    }

    fn weights(&self, row: &Row<T>, z: &[T], w: &mut [T]) {
        w.fill(T::zero());
        probabilities(row, z, |j, p| w[j] = row.gain * p + row.bias);
    }

    fn backward(&self, row: &Row<T>, z: &[T], dw: &[T], dz: &mut [T]) -> (T, T) {
        let (mut dgain, mut dbias) = (T::zero(), T::zero());
        dz.fill(T::zero());
        probabilities(row, z, |j, p| {
            dgain += dw[j] * p;
            dbias += dw[j];
        });
        probabilities(row, z, |j, p| dz[j] = row.gain * p * (dw[j] - dgain));
        (dgain, dbias)
    }
}
