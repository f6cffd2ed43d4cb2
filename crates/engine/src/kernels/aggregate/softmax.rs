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
use crate::arch::vectorize;
use crate::kernels::lanes::{max, sum, sum2};
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

    fn weights_tile(&self, row: &Row<T>, n: usize, z: &[T], w: &mut [T]) {
        if row.mask.is_some() {
            return super::weights_by_row(self, row, n, z, w);
        }
        vectorize(
            #[inline(always)]
            || {
                for (z, w) in z.chunks_exact(n).zip(w.chunks_exact_mut(n)) {
                    let (z, w) = (&z[..n], &mut w[..n]);
                    let max = max(z);
                    for j in 0..n {
                        w[j] = (z[j] - max).exp_fast();
                    }
                    let factor = row.gain / sum(w, |w| w);
                    for j in 0..n {
                        w[j] = w[j] * factor + row.bias;
                    }
                }
            },
        );
    }

    fn backward_tile(
        &self,
        row: &Row<T>,
        n: usize,
        z: &[T],
        w: &[T],
        dw: &[T],
        dz: &mut [T],
    ) -> (T, T) {
        // With a gain the weights are not the probabilities, which the derivative needs.
        if row.mask.is_some() || row.gain != T::one() || row.bias != T::zero() {
            return super::backward_by_row(self, row, n, z, dw, dz);
        }
        let (mut dgain, mut dbias) = (T::zero(), T::zero());
        vectorize(
            #[inline(always)]
            || {
                let rows = w.chunks_exact(n).zip(dw.chunks_exact(n)).zip(dz.chunks_exact_mut(n));
                for ((p, dw), dz) in rows {
                    let (p, dw, dz) = (&p[..n], &dw[..n], &mut dz[..n]);
                    let dot = sum2(dw, p, |dw, p| dw * p);
                    dgain += dot;
                    dbias += sum(dw, |dw| dw);
                    for j in 0..n {
                        dz[j] = p[j] * (dw[j] - dot);
                    }
                }
            },
        );
        (dgain, dbias)
    }
}
