//! NAP-L2, the paper's text as commonly summarised: each row is divided by its Euclidean norm.
//!
//! ```text
//! w_j = g c_j / (|c| + eps) + b        (0 where masked)
//! c_j = z_j,  or  z_j - mean(z)  with centring;    z = q.k / sqrt(d_h)
//! ```
//!
//! An all-zero row has weight b, and the derivative of the norm is taken as 0 there.
//! With centring this is the standardised form times a factor 1/sqrt(n), epsilon aside.

use super::{AttentionRule, Backward, Defaults, Info, Row, Weights};
use crate::arch::{Kernel, Vector, run};
use crate::kernels::lanes::sum_rows;
use crate::panel::Lanes;
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

/// [`statistics`] of each query's logits.
#[inline(always)]
fn tile_statistics<T: Real, V: Vector<T>>(token: V::Token, row: &Row<T>, z: &[Lanes<T>]) -> (V, V) {
    let shift = if row.centre {
        // A sequence without a key left has weights and gradients of 0.
        let count = V::splat(token, T::of(row.count(z.len()).max(1) as f64));
        sum_rows(
            token,
            z.len(),
            #[inline(always)]
            |j| row.if_kept(token, j, V::load(token, &z[j])),
        ) / count
    } else {
        V::splat(token, T::zero())
    };
    let squares = sum_rows(
        token,
        z.len(),
        #[inline(always)]
        |j| {
            let centred = V::load(token, &z[j]) - shift;
            row.if_kept(token, j, centred * centred)
        },
    );
    (shift, squares.sqrt())
}

struct TileWeights<'a, T>(Weights<'a, T>);

impl<T: Real> Kernel<T> for TileWeights<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let Weights { row, z, w } = self.0;
        let splat = |x| V::splat(token, x);
        let (shift, norm) = tile_statistics::<T, V>(token, row, z);
        let factor = splat(row.gain) / (norm + splat(row.epsilon));
        let bias = splat(row.bias);
        for (j, (z, w)) in z.iter().zip(w).enumerate() {
            let weight = (V::load(token, z) - shift).mul_add(factor, bias);
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
        let (shift, norm) = tile_statistics::<T, V>(token, row, z);
        let scale = splat(T::one()) / (norm + splat(row.epsilon));
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
            |j| row.if_kept(token, j, V::load(token, &dw[j]) * (V::load(token, &z[j]) - shift)),
        );
        let dgain = dot * scale;
        let slope = norm.if_greater(zero, -(dgain / norm), zero);
        let count = T::of(row.count(z.len()).max(1) as f64);
        let mean = if row.centre { dbias / splat(count) } else { zero };
        let factor = scale * splat(row.gain);
        for (j, (z, dw)) in z.iter().zip(dw).enumerate() {
            let change = V::load(token, dw) - mean;
            let dz = (V::load(token, z) - shift).mul_add(slope, change) * factor;
            row.if_kept(token, j, dz).store(dw);
        }
        [dgain.lanes(), dbias.lanes()]
    }
}
