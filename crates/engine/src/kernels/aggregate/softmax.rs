//! Softmax, the probability cage: weights are positive and sum to 1.
//!
//! ```text
//! p_j = exp(z_j - max z) / sum_i exp(z_i - max z)        (0 where masked),    z = q.k / sqrt(d_h)
//! w_j = g p_j + b                                        g = 1, b = 0 unless asked for
//! ```
//!
//! If every key is masked, none is: the authors' program subtracts 1e9 from masked logits,
//! which leaves the weights finite.

use super::{AttentionRule, Backward, Defaults, Info, Row, Weights};
use crate::arch::{Kernel, Vector, run};
use crate::kernels::lanes::{max_rows, sum_rows};
use crate::panel::Lanes;
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

    fn weights_tile(&self, row: &Row<T>, z: &[Lanes<T>], w: &mut [Lanes<T>]) {
        let row = &unmask_if_empty(row, z.len());
        run(TileWeights(Weights { row, z, w }));
    }

    fn backward_tile(
        &self,
        row: &Row<T>,
        z: &[Lanes<T>],
        w: &[Lanes<T>],
        dw: &mut [Lanes<T>],
    ) -> [Lanes<T>; 2] {
        let row = &unmask_if_empty(row, z.len());
        run(TileBackward(Backward { row, z, w, dw }))
    }
}

/// If every key is masked, none is.
fn unmask_if_empty<'a, T: Real>(row: &Row<'a, T>, n: usize) -> Row<'a, T> {
    let mask = row.mask.filter(|_| row.count(n) > 0);
    Row { mask, ..*row }
}

/// The largest unmasked logit of each query.
#[inline(always)]
fn tile_max<T: Real, V: Vector<T>>(token: V::Token, row: &Row<T>, z: &[Lanes<T>]) -> V {
    let none = V::splat(token, T::neg_infinity());
    max_rows(
        token,
        z.len(),
        #[inline(always)]
        |j| if row.keeps(j) { V::load(token, &z[j]) } else { none },
    )
}

struct TileWeights<'a, T>(Weights<'a, T>);

impl<T: Real> Kernel<T> for TileWeights<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let Weights { row, z, w } = self.0;
        let max = tile_max::<T, V>(token, row, z);
        let mut sum = V::splat(token, T::zero());
        for (j, (z, w)) in z.iter().zip(&mut *w).enumerate() {
            let weight = row.if_kept(token, j, (V::load(token, z) - max).exp());
            sum = sum + weight;
            weight.store(w);
        }
        let (factor, bias) = (V::splat(token, row.gain) / sum, V::splat(token, row.bias));
        for (j, w) in w.iter_mut().enumerate() {
            row.if_kept(token, j, V::load(token, w).mul_add(factor, bias)).store(w);
        }
    }
}

struct TileBackward<'a, T>(Backward<'a, T>);

impl<T: Real> Kernel<T> for TileBackward<'_, T> {
    type Output = [Lanes<T>; 2];

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) -> [Lanes<T>; 2] {
        let Backward { row, z, w, dw } = self.0;
        let (gain, zero) = (V::splat(token, row.gain), V::splat(token, T::zero()));
        // With a gain or bias the weights are not the probabilities, which the derivative needs.
        let plain = row.gain == T::one() && row.bias == T::zero();
        let (mut max, mut factor) = (zero, zero);
        if !plain {
            max = tile_max(token, row, z);
            let sum = sum_rows(
                token,
                z.len(),
                #[inline(always)]
                |j| row.if_kept(token, j, (V::load(token, &z[j]) - max).exp()),
            );
            factor = V::splat(token, T::one()) / sum;
        }
        let (mut dbias, mut dgain) = (zero, zero);
        for (j, dw) in dw.iter().enumerate() {
            let (dw, p) =
                (V::load(token, dw), probability(token, plain, &z[j], &w[j], max, factor));
            dbias = dbias + row.if_kept(token, j, dw);
            dgain = dgain + row.if_kept(token, j, dw * p);
        }
        for (j, dw) in dw.iter_mut().enumerate() {
            let p = probability(token, plain, &z[j], &w[j], max, factor);
            let dz = p * ((V::load(token, dw) - dgain) * gain);
            row.if_kept(token, j, dz).store(dw);
        }
        [dgain.lanes(), dbias.lanes()]
    }
}

/// The probability behind a weight, which it is itself if `plain`.
#[inline(always)]
fn probability<T: Real, V: Vector<T>>(
    token: V::Token,
    plain: bool,
    z: &Lanes<T>,
    w: &Lanes<T>,
    max: V,
    factor: V,
) -> V {
    if plain { V::load(token, w) } else { (V::load(token, z) - max).exp() * factor }
}
