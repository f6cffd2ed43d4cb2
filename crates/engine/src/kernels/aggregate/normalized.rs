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
use super::{AttentionRule, Backward, Defaults, Info, Row, Weights};
use crate::arch::{Kernel, Vector, run};
use crate::kernels::lanes::sum_rows;
use crate::panel::Lanes;
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

    fn weights_tile(&self, row: &Row<T>, z: &[Lanes<T>], w: &mut [Lanes<T>]) {
        run(TileWeights(Weights { row, z, w }));
    }

    fn backward_tile(
        &self,
        row: &Row<T>,
        z: &[Lanes<T>],
        w: &[Lanes<T>],
        dw: &mut [Lanes<T>],
    ) -> [Lanes<T>; 2] {
        run(TileBackward(Backward { row, z, w, dw }))
    }
}

/// Mean and variance over unmasked keys of each query's logits, and n.
#[inline(always)]
fn tile_statistics<T: Real, V: Vector<T>>(
    token: V::Token,
    row: &Row<T>,
    z: &[Lanes<T>],
) -> (V, V, V) {
    // A sequence without a key left has weights and gradients of 0.
    let count = V::splat(token, T::of(row.count(z.len()).max(1) as f64));
    let mean = sum_rows(
        token,
        z.len(),
        #[inline(always)]
        |j| row.if_kept(token, j, V::load(token, &z[j])),
    ) / count;
    let squares = sum_rows(
        token,
        z.len(),
        #[inline(always)]
        |j| {
            let centred = V::load(token, &z[j]) - mean;
            row.if_kept(token, j, centred * centred)
        },
    );
    (mean, squares / count, count)
}

struct TileWeights<'a, T>(Weights<'a, T>);

impl<T: Real> Kernel<T> for TileWeights<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let Weights { row, z, w } = self.0;
        let splat = |x| V::splat(token, x);
        let (mean, variance, _) = tile_statistics::<T, V>(token, row, z);
        let factor = splat(row.gain) / (variance.sqrt() + splat(row.epsilon));
        let bias = splat(row.bias);
        for (j, (z, w)) in z.iter().zip(w).enumerate() {
            let weight = (V::load(token, z) - mean).mul_add(factor, bias);
            row.if_kept(token, j, weight).store(w);
        }
    }
}

struct TileBackward<'a, T>(Backward<'a, T>);

impl<T: Real> Kernel<T> for TileBackward<'_, T> {
    type Output = [Lanes<T>; 2];

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) -> [Lanes<T>; 2] {
        let Backward { row, z, dw, .. } = self.0;
        let (splat, zero) = (|x| V::splat(token, x), V::splat(token, T::zero()));
        let (mean, variance, count) = tile_statistics::<T, V>(token, row, z);
        let std = variance.sqrt();
        let scale = splat(T::one()) / (std + splat(row.epsilon));
        let dbias = sum_rows(
            token,
            z.len(),
            #[inline(always)]
            |j| row.if_kept(token, j, V::load(token, &dw[j])),
        );
        let dot = sum_rows(
            token,
            z.len(),
            #[inline(always)]
            |j| row.if_kept(token, j, V::load(token, &dw[j]) * (V::load(token, &z[j]) - mean)),
        );
        let dgain = dot * scale;
        let slope = std.if_greater(zero, -(dgain / (count * std)), zero);
        let (shift, factor) = (dbias / count, scale * splat(row.gain));
        for (j, (z, dw)) in z.iter().zip(dw).enumerate() {
            let change = V::load(token, dw) - shift;
            let dz = (V::load(token, z) - mean).mul_add(slope, change) * factor;
            row.if_kept(token, j, dz).store(dw);
        }
        [dgain.lanes(), dbias.lanes()]
    }
}
