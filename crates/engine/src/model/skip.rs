//! A block's skip connection with its LayerNorm and dropout.
//!
//! ```text
//! before the skip:  out = x + drop(LN(branch))
//! after the skip:   out = LN(x + drop(branch))
//! ```
//!
//! A pooling's branch has one row per sequence, added to each of its tokens.

use std::ops::Range;

use super::network::Micro;
use crate::config::NormPlacement;
use crate::kernels::dropout::Site;
use crate::kernels::norm_gelu::{Moments, add, norm, norm_backward};
use crate::real::Real;

/// A skip connection.
#[derive(Debug, Clone)]
pub struct Skip {
    pub placement: NormPlacement,
    /// gamma and beta.
    pub norm: Range<usize>,
    pub dim: usize,
    pub site: Site,
    /// Whether the branch has one row per sequence.
    pub per_sequence: bool,
}

/// What the backward pass needs.
#[derive(Debug, Default)]
pub struct Cache<T> {
    /// The branch's output, `[tokens, d]` or `[sequences, d]`.
    pub branch: Vec<T>,
    /// After the skip: x + drop(branch), `[tokens, d]`.
    sum: Vec<T>,
    moments: Vec<Moments<T>>,
}

impl<T: Real> Cache<T> {
    pub fn new(tokens: usize, skip: &Skip) -> Self {
        let sum = match skip.placement {
            NormPlacement::BeforeSkip => 0,
            NormPlacement::AfterSkip => tokens * skip.dim,
        };
        Self {
            branch: vec![T::zero(); tokens * skip.dim],
            sum: vec![T::zero(); sum],
            moments: vec![[T::zero(); 2]; tokens],
        }
    }
}

impl Skip {
    /// Rows of the branch in a micro-batch.
    pub fn rows(&self, micro: &Micro) -> usize {
        if self.per_sequence { micro.sequences } else { micro.tokens() }
    }

    /// Tokens that share a row of the branch.
    fn share(&self, micro: &Micro) -> usize {
        if self.per_sequence { micro.length } else { 1 }
    }

    /// Writes `out: [tokens, d]` from the stream `x` and the branch in the cache.
    pub fn forward<T: Real>(
        &self,
        parameters: &[T],
        micro: &Micro,
        x: &[T],
        out: &mut [T],
        cache: &mut Cache<T>,
        scratch: &mut [T],
    ) {
        let (d, rows) = (self.dim, self.rows(micro));
        let width = self.share(micro) * d;
        let gamma_beta = &parameters[self.norm.clone()];
        let branch = &cache.branch[..rows * d];
        match self.placement {
            NormPlacement::BeforeSkip => {
                let y = &mut scratch[..rows * d];
                norm(gamma_beta, branch, y, &mut cache.moments);
                micro.drop(self.site, y);
                out.copy_from_slice(x);
                spread(out, y, d, width);
            }
            NormPlacement::AfterSkip => {
                // The branch stays as it is: a pooling's backward pass compares with it.
                let y = &mut scratch[..rows * d];
                y.copy_from_slice(branch);
                micro.drop(self.site, y);
                let sum = &mut cache.sum[..x.len()];
                sum.copy_from_slice(x);
                spread(sum, y, d, width);
                norm(gamma_beta, sum, out, &mut cache.moments);
            }
        }
    }

    /// Turns `stream`, the gradient of the output, into that of `x` by way of the skip, and
    /// overwrites `dbranch`.
    pub fn backward<T: Real>(
        &self,
        parameters: &[T],
        micro: &Micro,
        stream: &mut [T],
        dbranch: &mut [T],
        cache: &Cache<T>,
        gradient: &mut [T],
        scratch: &mut [T],
    ) {
        let (d, rows) = (self.dim, self.rows(micro));
        let width = self.share(micro) * d;
        let gamma_beta = &parameters[self.norm.clone()];
        let gradient = &mut gradient[self.norm.clone()];
        let branch = &cache.branch[..rows * d];
        let dbranch = &mut dbranch[..rows * d];
        match self.placement {
            NormPlacement::BeforeSkip => {
                let dy = &mut scratch[..rows * d];
                gather(stream, dy, d, width);
                micro.drop(self.site, dy);
                norm_backward(gamma_beta, branch, &cache.moments, dy, dbranch, gradient);
            }
            NormPlacement::AfterSkip => {
                let dsum = &mut scratch[..stream.len()];
                let sum = &cache.sum[..stream.len()];
                norm_backward(gamma_beta, sum, &cache.moments, stream, dsum, gradient);
                stream.copy_from_slice(dsum);
                gather(stream, dbranch, d, width);
                micro.drop(self.site, dbranch);
            }
        }
    }
}

/// Adds each row of `branch: [rows, d]` to the tokens of `width / d` that share it.
fn spread<T: Real>(x: &mut [T], branch: &[T], d: usize, width: usize) {
    if width == d {
        return add(x, branch);
    }
    for (x, row) in x.chunks_exact_mut(width).zip(branch.chunks_exact(d)) {
        x.chunks_exact_mut(d).for_each(|x| add(x, row));
    }
}

/// The transpose of [`spread`]: sums the gradients of the tokens that share a row.
fn gather<T: Real>(stream: &[T], branch: &mut [T], d: usize, width: usize) {
    if width == d {
        return branch.copy_from_slice(stream);
    }
    branch.fill(T::zero());
    for (x, row) in stream.chunks_exact(width).zip(branch.chunks_exact_mut(d)) {
        x.chunks_exact(d).for_each(|x| add(row, x));
    }
}
