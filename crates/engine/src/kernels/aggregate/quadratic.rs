//! Attention by its n x n weights, 16 queries at a time, for every rule.
//!
//! ```text
//! Z = scale Q K^T,   W = rule(Z) row by row,   out = drop(W) V
//! dV = drop(W)^T dout,  dW = drop(dout V^T),  dZ = rule'(dW),  dQ = scale dZ K,  dK = scale dZ^T Q
//! ```
//!
//! A tile of weights is `[n keys][16 queries]`, so a rule's statistics run down its rows. The
//! backward pass computes the weights again instead of storing them: memory is a few tiles at
//! any length.

use super::{AttentionRule, Head, HeadGradient};
use crate::arch::{Out, Transposed, matmul_nt, matmul_rows, matmul_tn, vectorize};
use crate::kernels::dropout::Mask;
use crate::panel::{Buffer, LANES, Lanes, Panels, PanelsMut, panels};
use crate::profile::{Part, time};
use crate::real::Real;

/// Buffers for one tile, reused by all: `[keys, padded][16]`.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    logits: Buffer<T>,
    weights: Buffer<T>,
    dweights: Buffer<T>,
    /// Factors of dropout.
    factors: Buffer<T>,
    transposed: Transposed<T>,
}

impl<T: Real> Scratch<T> {
    /// Room for sequences of up to `n` tokens.
    pub fn new(n: usize) -> Self {
        let rows = || Buffer::new(panels(n) * LANES);
        Self {
            logits: rows(),
            weights: rows(),
            dweights: rows(),
            factors: rows(),
            transposed: Transposed::new(panels(n) * LANES, 1),
        }
    }
}

/// Writes the head's aggregate `out: [d_h]` per token.
pub fn forward<T: Real>(
    rule: &dyn AttentionRule<T>,
    head: &Head<T>,
    mut dropout: Option<Mask>,
    mut out: PanelsMut<T>,
    scratch: &mut Scratch<T>,
) {
    for p in 0..head.q.count() {
        weigh(rule, head, p, scratch);
        if let Some(mask) = &mut dropout {
            draw(mask, head, p, &mut scratch.factors);
            multiply(&mut scratch.weights[..head.length], &scratch.factors);
        }
        let out = Out::panels(out.reborrow().panels(p..p + 1));
        let weights = tile(&scratch.weights, head);
        time(Part::AttentionProducts, || matmul_rows(head.v, weights, out, false));
    }
}

/// Overwrites the gradients of the head's queries, keys and values from that of its aggregate
/// (all `[d_h]` per token, 0 in padded lanes); returns those of gain and bias.
pub fn backward<T: Real>(
    rule: &dyn AttentionRule<T>,
    head: &Head<T>,
    mut dropout: Option<Mask>,
    dout: Panels<T>,
    mut gradient: HeadGradient<T>,
    scratch: &mut Scratch<T>,
) -> (T, T) {
    let n = head.length;
    let (mut dgain, mut dbias) = (T::zero(), T::zero());
    for p in 0..head.q.count() {
        let add = p > 0;
        let (q, dout) = (head.q.panels(p..p + 1), dout.panels(p..p + 1));
        weigh(rule, head, p, scratch);
        let Scratch { logits, weights, dweights, factors, transposed } = scratch;
        let keys = Out::matrix(dweights.as_flattened_mut(), n, LANES, LANES);
        time(Part::AttentionProducts, || matmul_tn(head.v, dout, keys, false));
        if let Some(mask) = &mut dropout {
            draw(mask, head, p, factors);
            multiply(&mut dweights[..n], factors);
        }
        // The rule wants the weights as they were before dropout.
        let (z, w, dw) = (&logits[..n], &weights[..n], &mut dweights[..n]);
        let [dg, db] = time(Part::AttentionPointwise, || rule.backward_tile(&head.row, z, w, dw));
        dgain += dg.into_iter().sum::<T>();
        dbias += db.into_iter().sum::<T>();
        if dropout.is_some() {
            multiply(&mut weights[..n], factors);
        }
        if head.scale != T::one() {
            scale(&mut dweights[..n], head.scale);
        }
        let (weights, dlogits) = (Panels::new(&weights[..n], n), Panels::new(&dweights[..n], n));
        let weights = time(Part::Transposition, || transposed.set(weights));
        time(Part::AttentionProducts, || {
            matmul_nt(dout, weights, Out::panels(gradient.v()), add);
            let dq = Out::panels(gradient.q().panels(p..p + 1));
            matmul_rows(head.k, tile(dweights, head), dq, false);
        });
        let dlogits = time(Part::Transposition, || transposed.set(dlogits));
        time(Part::AttentionProducts, || {
            matmul_nt(q, dlogits, Out::panels(gradient.k()), add);
        });
    }
    (dgain, dbias)
}

/// A tile with its padding.
fn tile<'a, T: Real>(buffer: &'a Buffer<T>, head: &Head<T>) -> &'a [Lanes<T>] {
    &buffer[..panels(head.length) * LANES]
}

/// Fills the logits and weights of the queries of panel `p`, padding with weights of 0.
fn weigh<T: Real>(rule: &dyn AttentionRule<T>, head: &Head<T>, p: usize, scratch: &mut Scratch<T>) {
    let n = head.length;
    let padded = panels(n) * LANES;
    let Scratch { logits, weights, dweights, .. } = scratch;
    let keys = Out::matrix(logits.as_flattened_mut(), n, LANES, LANES);
    let q = head.q.panels(p..p + 1);
    time(Part::AttentionProducts, || matmul_tn(head.k, q, keys, false));
    if head.scale != T::one() {
        scale(&mut logits[..n], head.scale);
    }
    let (z, w) = (&logits[..n], &mut weights[..n]);
    time(Part::AttentionPointwise, || rule.weights_tile(&head.row, z, w));
    weights[n..padded].fill([T::zero(); LANES]);
    dweights[n..padded].fill([T::zero(); LANES]);
}

/// Draws the dropout of a tile; the mask's elements are in the order of `[n, n]`.
fn draw<T: Real>(mask: &mut Mask, head: &Head<T>, p: usize, factors: &mut Buffer<T>) {
    let queries = LANES.min(head.length - p * LANES);
    mask.draw(&mut factors[..head.length], queries);
}

/// Multiplies a tile by dropout's factors; a dropped NaN or infinity is 0.
fn multiply<T: Real>(x: &mut [Lanes<T>], factors: &[Lanes<T>]) {
    vectorize(
        #[inline(always)]
        || {
            for (x, &factor) in x.as_flattened_mut().iter_mut().zip(factors.as_flattened()) {
                *x = if factor == T::zero() { factor } else { *x * factor };
            }
        },
    );
}

fn scale<T: Real>(x: &mut [Lanes<T>], factor: T) {
    vectorize(
        #[inline(always)]
        || {
            for x in x.as_flattened_mut() {
                *x *= factor;
            }
        },
    );
}
