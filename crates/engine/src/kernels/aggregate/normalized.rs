//! NAP, as the authors' program computes it: each row of logits is standardised.
//!
//! ```text
//! w_j = g (z_j - mean(z)) / (std(z) + eps) + b        (0 where masked)
//! ```
//!
//! mean and the population deviation run over unmasked keys. Logits are not divided by
//! sqrt(d_h), and eps is added to the deviation (not inside the root): at the paper's initial
//! weights the deviation is far below the default eps of 1e-3, so both matter. The derivative
//! of the deviation is taken as 0 where the deviation is 0.

use super::linear::Linear;
use super::{AttentionRule, Defaults, Info, Row};
use crate::arch::vectorize;
use crate::kernels::lanes::{sum, sum2};
use crate::real::Real;

pub(super) struct Normalized;

/// Mean and population deviation of the unmasked logits.
fn statistics<T: Real>(row: &Row<T>, z: &[T]) -> (T, T) {
    let n = T::of(row.count(z.len()) as f64);
    let kept = || z.iter().enumerate().filter(|&(j, _)| row.keeps(j)).map(|(_, &z)| z);
    let mean = kept().sum::<T>() / n;
    let variance = kept().map(|z| (z - mean) * (z - mean)).sum::<T>() / n;
    (mean, variance.sqrt())
}

#[inline(always)]
fn unmasked_statistics<T: Real>(z: &[T]) -> (T, T) {
    let n = T::of(z.len() as f64);
    let mean = sum(z, |z| z) / n;
    let variance = sum(z, |z| (z - mean) * (z - mean)) / n;
    (mean, variance.sqrt())
}

impl<T: Real> AttentionRule<T> for Normalized {
    fn info(&self) -> Info {
        Info {
            name: "normalized",
            equation: "w = g (z - mean z) / (std z + eps) + b,  z = q.k",
            source: "Richter & Wattenhofer 2020 (arXiv 2005.09561), authors' program",
        }
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            gain: true,
            bias: true,
            epsilon: 1e-3,
            scaled: false,
            hidden_norm: true,
            rescale: false,
        }
    }

    fn linear(&self) -> Option<Linear> {
        Some(Linear::Standardised)
    }

    fn weights(&self, row: &Row<T>, z: &[T], w: &mut [T]) {
        let (mean, std) = statistics(row, z);
        for j in 0..z.len() {
            w[j] = if row.keeps(j) {
                row.gain * (z[j] - mean) / (std + row.epsilon) + row.bias
            } else {
                T::zero()
            };
        }
    }

    fn backward(&self, row: &Row<T>, z: &[T], dw: &[T], dz: &mut [T]) -> (T, T) {
        let (mean, std) = statistics(row, z);
        let n = T::of(row.count(z.len()) as f64);
        let scale = T::one() / (std + row.epsilon);
        let (mut dgain, mut dbias, mut dot) = (T::zero(), T::zero(), T::zero());
        for j in (0..z.len()).filter(|&j| row.keeps(j)) {
            dgain += dw[j] * (z[j] - mean) * scale;
            dbias += dw[j];
            dot += dw[j] * (z[j] - mean);
        }
        // d std / d z_j = (z_j - mean) / (n std), and 0 for a constant row.
        let through_std = if std > T::zero() { dot * scale / (n * std) } else { T::zero() };
        for j in 0..z.len() {
            dz[j] = if row.keeps(j) {
                row.gain * scale * (dw[j] - dbias / n - (z[j] - mean) * through_std)
            } else {
                T::zero()
            };
        }
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
                    let (mean, std) = unmasked_statistics(z);
                    let factor = row.gain / (std + row.epsilon);
                    for j in 0..n {
                        w[j] = (z[j] - mean) * factor + row.bias;
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
        _w: &[T],
        dw: &[T],
        dz: &mut [T],
    ) -> (T, T) {
        if row.mask.is_some() {
            return super::backward_by_row(self, row, n, z, dw, dz);
        }
        let count = T::of(n as f64);
        let (mut dgain, mut dbias) = (T::zero(), T::zero());
        vectorize(
            #[inline(always)]
            || {
                let rows = z.chunks_exact(n).zip(dw.chunks_exact(n)).zip(dz.chunks_exact_mut(n));
                for ((z, dw), dz) in rows {
                    let (z, dw, dz) = (&z[..n], &dw[..n], &mut dz[..n]);
                    let (mean, std) = unmasked_statistics(z);
                    let scale = T::one() / (std + row.epsilon);
                    let total = sum(dw, |dw| dw);
                    let dot = sum2(dw, z, |dw, z| dw * (z - mean));
                    dgain += dot * scale;
                    dbias += total;
                    let through =
                        if std > T::zero() { dot * scale / (count * std) } else { T::zero() };
                    let (factor, shift) = (row.gain * scale, total / count);
                    for j in 0..n {
                        dz[j] = factor * (dw[j] - shift - (z[j] - mean) * through);
                    }
                }
            },
        );
        (dgain, dbias)
    }
}
