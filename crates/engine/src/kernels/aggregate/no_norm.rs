//! NON ("no norm"): the logits are the weights.
//!
//! ```text
//! w_j = g z_j + b        (0 where masked),    z = q.k / sqrt(d_h)
//! ```
//!
//! g = 1 and b = 0 unless asked for. The aggregated vector is divided by sqrt(n), which takes
//! the place of the inner LayerNorm.

use super::linear::Linear;
use super::{AttentionRule, Defaults, Info, Row};
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
}
