//! NAP-L2, the paper's text as commonly summarised: each row is divided by its Euclidean norm.
//!
//! ```text
//! w_j = g c_j / (|c| + eps) + b        (0 where masked)
//! c_j = z_j,  or  z_j - mean(z)  with centring;    z = q.k / sqrt(d_h)
//! ```
//!
//! An all-zero row has weight b, and the derivative of the norm is taken as 0 there.
//! With centring this is the standardised form times a factor 1/sqrt(n), epsilon aside.

use super::{AttentionRule, Defaults, Info, Row};
use crate::arch::vectorize;
use crate::kernels::lanes::{sum, sum2};
use crate::real::Real;

pub(super) struct NormalizedL2;

/// The shift that centring subtracts (0 without it) and the norm of the shifted, unmasked row.
fn statistics<T: Real>(row: &Row<T>, z: &[T]) -> (T, T) {
    let kept = || z.iter().enumerate().filter(|&(j, _)| row.keeps(j)).map(|(_, &z)| z);
    let n = T::of(row.count(z.len()) as f64);
    let shift = if row.centre { kept().sum::<T>() / n } else { T::zero() };
    let norm = kept().map(|z| (z - shift) * (z - shift)).sum::<T>().sqrt();
    (shift, norm)
}

#[inline(always)]
fn unmasked_statistics<T: Real>(row: &Row<T>, z: &[T]) -> (T, T) {
    let n = T::of(z.len() as f64);
    let shift = if row.centre { sum(z, |z| z) / n } else { T::zero() };
    (shift, sum(z, |z| (z - shift) * (z - shift)).sqrt())
}

impl<T: Real> AttentionRule<T> for NormalizedL2 {
    fn info(&self) -> Info {
        Info {
            name: "normalized-l2",
            equation: "w = g c / (|c| + eps) + b,  c = z or z - mean z,  z = q.k / sqrt(d_h)",
            source: "Richter & Wattenhofer 2020 (arXiv 2005.09561), the paper's text",
        }
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            gain: false,
            bias: true,
            epsilon: 1e-6,
            scaled: true,
            hidden_norm: true,
            rescale: false,
        }
    }

    fn weights(&self, row: &Row<T>, z: &[T], w: &mut [T]) {
        let (shift, norm) = statistics(row, z);
        for j in 0..z.len() {
            w[j] = if row.keeps(j) {
                row.gain * (z[j] - shift) / (norm + row.epsilon) + row.bias
            } else {
                T::zero()
            };
        }
    }

    fn backward(&self, row: &Row<T>, z: &[T], dw: &[T], dz: &mut [T]) -> (T, T) {
        let (shift, norm) = statistics(row, z);
        let n = T::of(row.count(z.len()) as f64);
        let scale = T::one() / (norm + row.epsilon);
        let (mut dgain, mut dbias, mut dot) = (T::zero(), T::zero(), T::zero());
        for j in (0..z.len()).filter(|&j| row.keeps(j)) {
            dgain += dw[j] * (z[j] - shift) * scale;
            dbias += dw[j];
            dot += dw[j] * (z[j] - shift);
        }
        // d |c| / d c_j = c_j / |c|, and 0 for a zero row; centring removes the mean gradient.
        let through_norm = if norm > T::zero() { dot * scale / norm } else { T::zero() };
        let mean = if row.centre { dbias / n } else { T::zero() };
        for j in 0..z.len() {
            dz[j] = if row.keeps(j) {
                row.gain * scale * (dw[j] - mean - (z[j] - shift) * through_norm)
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
                    let (shift, norm) = unmasked_statistics(row, z);
                    let factor = row.gain / (norm + row.epsilon);
                    for j in 0..n {
                        w[j] = (z[j] - shift) * factor + row.bias;
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
        let (mut dgain, mut dbias) = (T::zero(), T::zero());
        vectorize(
            #[inline(always)]
            || {
                let rows = z.chunks_exact(n).zip(dw.chunks_exact(n)).zip(dz.chunks_exact_mut(n));
                for ((z, dw), dz) in rows {
                    let (z, dw, dz) = (&z[..n], &dw[..n], &mut dz[..n]);
                    let (shift, norm) = unmasked_statistics(row, z);
                    let scale = T::one() / (norm + row.epsilon);
                    let total = sum(dw, |dw| dw);
                    let dot = sum2(dw, z, |dw, z| dw * (z - shift));
                    dgain += dot * scale;
                    dbias += total;
                    let through = if norm > T::zero() { dot * scale / norm } else { T::zero() };
                    let mean = if row.centre { total / T::of(n as f64) } else { T::zero() };
                    for j in 0..n {
                        dz[j] = row.gain * scale * (dw[j] - mean - (z[j] - shift) * through);
                    }
                }
            },
        );
        (dgain, dbias)
    }
}
