//! Attention by its n x n weights, a few rows at a time, for every rule.
//!
//! ```text
//! Z = scale Q K^T,   W = rule(Z) row by row,   out = drop(W) V
//! dV = drop(W)^T dout,  dW = drop(dout V^T),  dZ = rule'(dW),  dQ = scale dZ K,  dK = scale dZ^T Q
//! ```
//!
//! The backward pass computes the weights again instead of storing them, so memory stays at a
//! few rows of n at any length.

use super::{AttentionRule, Head};
use crate::arch::{Mat, MatMut, Write, matmul};
use crate::kernels::dropout::Mask;
use crate::real::Real;

/// Values in a tile of weights: small enough that the four tiles stay in a level-2 cache.
const TILE: usize = 16 * 1024;

/// Rows of weights computed at a time.
fn tile_rows(n: usize) -> usize {
    (TILE / n.max(1)).clamp(1, n.max(1))
}

/// Buffers for one tile, reused by all.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    logits: Vec<T>,
    weights: Vec<T>,
    dweights: Vec<T>,
    dlogits: Vec<T>,
}

impl<T: Real> Scratch<T> {
    /// Room for sequences of up to `n` tokens.
    pub fn new(n: usize) -> Self {
        let zeros = || vec![T::zero(); TILE.max(n).min(n * n)];
        Self { logits: zeros(), weights: zeros(), dweights: zeros(), dlogits: zeros() }
    }
}

/// Writes the head's aggregate `out: [n, d_h]`, rows `head.stride` apart.
pub fn forward<T: Real>(
    rule: &dyn AttentionRule<T>,
    head: &Head<T>,
    mut dropout: Option<Mask>,
    out: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let (n, dh, stride) = (head.length, head.width, head.stride);
    let values = Mat::new(head.v, n, dh, stride);
    for start in (0..n).step_by(tile_rows(n)) {
        let rows = tile_rows(n).min(n - start);
        weigh(rule, head, start, rows, scratch);
        let weights = &mut scratch.weights[..rows * n];
        if let Some(dropout) = &mut dropout {
            dropout.apply(weights);
        }
        let out = MatMut::new(&mut out[start * stride..], rows, dh, stride);
        matmul(out, Write::Set, T::one(), Mat::dense(weights, rows, n), values);
    }
}

/// Overwrites the gradients of the head's queries, keys and values from that of its aggregate
/// (all `[n, d_h]`, rows `head.stride` apart); returns those of gain and bias.
pub fn backward<T: Real>(
    rule: &dyn AttentionRule<T>,
    head: &Head<T>,
    mut dropout: Option<(Mask, Mask)>,
    dout: &[T],
    [dq, dk, dv]: [&mut [T]; 3],
    scratch: &mut Scratch<T>,
) -> (T, T) {
    let (n, dh, stride) = (head.length, head.width, head.stride);
    let mat = |x| Mat::new(x, n, dh, stride);
    let (mut dgain, mut dbias) = (T::zero(), T::zero());
    for start in (0..n).step_by(tile_rows(n)) {
        let rows = tile_rows(n).min(n - start);
        let write = if start == 0 { Write::Set } else { Write::Add };
        weigh(rule, head, start, rows, scratch);
        let area = rows * n;
        let (logits, weights) = (&scratch.logits[..area], &mut scratch.weights[..area]);
        let (dweights, dlogits) = (&mut scratch.dweights[..area], &mut scratch.dlogits[..area]);
        let dout = Mat::new(&dout[start * stride..], rows, dh, stride);
        matmul(MatMut::dense(dweights, rows, n), Write::Set, T::one(), dout, mat(head.v).t());
        if let Some((for_gradient, _)) = &mut dropout {
            for_gradient.apply(dweights);
        }
        // The rule wants the weights as they were before dropout.
        let (dg, db) = rule.backward_tile(&head.row, n, logits, weights, dweights, dlogits);
        dgain += dg;
        dbias += db;
        if let Some((_, for_weights)) = &mut dropout {
            for_weights.apply(weights);
        }
        let dv = MatMut::new(dv, n, dh, stride);
        matmul(dv, write, T::one(), Mat::dense(weights, rows, n).t(), dout);
        let dz = Mat::dense(dlogits, rows, n);
        let dq = MatMut::new(&mut dq[start * stride..], rows, dh, stride);
        matmul(dq, Write::Set, head.scale, dz, mat(head.k));
        let q = Mat::new(&head.q[start * stride..], rows, dh, stride);
        matmul(MatMut::new(dk, n, dh, stride), write, head.scale, dz.t(), q);
    }
    (dgain, dbias)
}

/// Fills the tile's logits and weights.
fn weigh<T: Real>(
    rule: &dyn AttentionRule<T>,
    head: &Head<T>,
    start: usize,
    rows: usize,
    scratch: &mut Scratch<T>,
) {
    let (n, dh, stride) = (head.length, head.width, head.stride);
    let logits = &mut scratch.logits[..rows * n];
    let q = Mat::new(&head.q[start * stride..], rows, dh, stride);
    let k = Mat::new(head.k, n, dh, stride);
    matmul(MatMut::dense(logits, rows, n), Write::Set, head.scale, q, k.t());
    rule.weights_tile(&head.row, n, logits, &mut scratch.weights[..rows * n]);
}
