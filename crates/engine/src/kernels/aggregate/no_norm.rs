//! NON ("no norm"): the logits are the weights.
//!
//! ```text
//! w_j = g z_j + b        (0 where masked),    z = q.k / sqrt(d_h)
//! ```
//!
//! g = 1 and b = 0 unless asked for. The aggregated vector is divided by sqrt(n), which takes
//! the place of the inner LayerNorm.

use super::linear::Linear;
use super::{AttentionRule, Backward, Defaults, Info, Row, Weights};
use crate::arch::{Kernel, Vector, run};
use crate::kernels::lanes::sum_rows;
use crate::panel::Lanes;
use crate::real::Real;

pub(super) struct NoNorm;

impl<T: Real> AttentionRule<T> for NoNorm {
    fn info(&self) -> Info {
        Info {
            name: "no-norm",
            equation: "w = z,  z = q.k / sqrt(d_h); the aggregated vector is divided by sqrt(n)",
            source: "Richter & Wattenhofer 2020 (arXiv 2005.09561), ablation NON",
        }
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            gain: false,
            bias: false,
            epsilon: 0.0,
            scaled: true,
            hidden_norm: false,
            rescale: true,
        }
    }

    fn linear(&self) -> Option<Linear> {
        Some(Linear::Plain)
    }

    fn weights(&self, row: &Row<T>, z: &[T], w: &mut [T]) {
        for j in 0..z.len() {
            w[j] = if row.keeps(j) { row.gain * z[j] + row.bias } else { T::zero() };
        }
    }

    fn backward(&self, row: &Row<T>, z: &[T], dw: &[T], dz: &mut [T]) -> (T, T) {
        let (mut dgain, mut dbias) = (T::zero(), T::zero());
        for j in 0..z.len() {
            dz[j] = if row.keeps(j) { row.gain * dw[j] } else { T::zero() };
            if row.keeps(j) {
                dgain += dw[j] * z[j];
                dbias += dw[j];
            }
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

struct TileWeights<'a, T>(Weights<'a, T>);

impl<T: Real> Kernel<T> for TileWeights<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let Weights { row, z, w } = self.0;
        let (gain, bias) = (V::splat(token, row.gain), V::splat(token, row.bias));
        for (j, (z, w)) in z.iter().zip(w).enumerate() {
            row.if_kept(token, j, V::load(token, z).mul_add(gain, bias)).store(w);
        }
    }
}

struct TileBackward<'a, T>(Backward<'a, T>);

impl<T: Real> Kernel<T> for TileBackward<'_, T> {
    type Output = [Lanes<T>; 2];

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) -> [Lanes<T>; 2] {
        let Backward { row, z, dw, .. } = self.0;
        let dbias = sum_rows(
            token,
            z.len(),
            #[inline(always)]
            |j| row.if_kept(token, j, V::load(token, &dw[j])),
        );
        let dgain = sum_rows(
            token,
            z.len(),
            #[inline(always)]
            |j| row.if_kept(token, j, V::load(token, &dw[j]) * V::load(token, &z[j])),
        );
        let gain = V::splat(token, row.gain);
        for (j, dw) in dw.iter_mut().enumerate() {
            row.if_kept(token, j, V::load(token, dw) * gain).store(dw);
        }
        [dgain.lanes(), dbias.lanes()]
    }
}
