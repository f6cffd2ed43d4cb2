//! ReLU attention: weights that are not negative and need not sum to 1.
//!
//! ```text
//! w_j = g max(z_j, 0) / n + b        (0 where masked),    z = q.k / sqrt(d_h)
//! ```
//!
//! n is the number of unmasked keys; g = 1 and b = 0 unless asked for. The derivative at z = 0
//! is taken as 0.

use super::{AttentionRule, Defaults, Info, Row};
use crate::arch::vectorize;
use crate::panel::{LANES, Lanes};
use crate::real::Real;

pub(super) struct Relu;

/// max(z, 0). NaN stays NaN, so that a diverged model shows.
#[inline(always)]
fn relu<T: Real>(z: T) -> T {
    if z < T::zero() { T::zero() } else { z }
}

/// 1 / n. A sequence without a key left has weights and gradients of 0.
fn share<T: Real>(row: &Row<T>, n: usize) -> T {
    T::one() / T::of(row.count(n).max(1) as f64)
}

impl<T: Real> AttentionRule<T> for Relu {
    fn info(&self) -> Info {
        Info {
            name: "relu",
            equation: "w = max(z, 0) / n,  z = q.k / sqrt(d_h)",
            source: "Wortsman et al. 2023 (arXiv 2309.08586)",
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
        let share = share(row, z.len());
        for j in 0..z.len() {
            w[j] = if row.keeps(j) { row.gain * relu(z[j]) * share + row.bias } else { T::zero() };
        }
    }

    fn backward(&self, row: &Row<T>, z: &[T], dw: &[T], dz: &mut [T]) -> (T, T) {
        let share = share(row, z.len());
        let (mut dgain, mut dbias) = (T::zero(), T::zero());
        for j in 0..z.len() {
            let passes = row.keeps(j) && z[j] > T::zero();
            dz[j] = if passes { row.gain * share * dw[j] } else { T::zero() };
            if row.keeps(j) {
                dgain += dw[j] * relu(z[j]) * share;
                dbias += dw[j];
            }
        }
        (dgain, dbias)
    }

    fn weights_tile(&self, row: &Row<T>, z: &[Lanes<T>], w: &mut [Lanes<T>]) {
        let factor = row.gain * share(row, z.len());
        vectorize(
            #[inline(always)]
            || {
                for (j, (z, w)) in z.iter().zip(w).enumerate() {
                    for lane in 0..LANES {
                        let weight = relu(z[lane]) * factor + row.bias;
                        w[lane] = if row.keeps(j) { weight } else { T::zero() };
                    }
                }
            },
        );
    }

    fn backward_tile(
        &self,
        row: &Row<T>,
        z: &[Lanes<T>],
        _w: &[Lanes<T>],
        dw: &mut [Lanes<T>],
    ) -> [Lanes<T>; 2] {
        let share = share(row, z.len());
        let factor = row.gain * share;
        let mut totals = [[T::zero(); LANES]; 2];
        vectorize(
            #[inline(always)]
            || {
                for (j, (z, dw)) in z.iter().zip(dw).enumerate() {
                    for lane in 0..LANES {
                        let up = if row.keeps(j) { dw[lane] } else { T::zero() };
                        totals[0][lane] += up * relu(z[lane]) * share;
                        totals[1][lane] += up;
                        dw[lane] = if z[lane] > T::zero() { up * factor } else { T::zero() };
                    }
                }
            },
        );
        totals
    }
}
