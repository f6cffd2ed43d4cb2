//! A block's skip connection with its LayerNorm and dropout.
//!
//! ```text
//! before the skip:  out = x + drop(LN(branch))
//! after the skip:   out = LN(x + drop(branch))
//! ```
//!
//! A pooling's branch has one vector per sequence, added to each of its tokens; its panels have
//! sequences for lanes.

use std::ops::Range;

use super::micro::Micro;
use crate::arch::{Kernel, Vector, run};
use crate::config::NormPlacement;
use crate::kernels::dropout::Site;
use crate::kernels::lanes::sum_rows;
use crate::kernels::norm_gelu::{Moments, add, norm, norm_add, norm_backward};
use crate::panel::{Buffer, LANES, Lanes, panels};
use crate::real::Real;

/// A skip connection.
#[derive(Debug)]
pub struct Skip {
    pub placement: NormPlacement,
    /// gamma and beta.
    pub norm: Range<usize>,
    pub dim: usize,
    pub site: Site,
    /// Whether the branch has one vector per sequence.
    pub per_sequence: bool,
}

/// What the backward pass needs.
#[derive(Debug, Default)]
pub struct Cache<T> {
    /// The branch's output, `[panels][d]`, of tokens or sequences.
    pub branch: Buffer<T>,
    /// After the skip: x + drop(branch), `[panels][d]`.
    sum: Buffer<T>,
    moments: Vec<Moments<T>>,
}

impl<T: Real> Cache<T> {
    pub fn new(panels: usize, skip: &Skip) -> Self {
        let sum = match skip.placement {
            NormPlacement::BeforeSkip => 0,
            NormPlacement::AfterSkip => panels * skip.dim,
        };
        Self {
            branch: Buffer::new(panels * skip.dim),
            sum: Buffer::new(sum),
            moments: vec![[[T::zero(); LANES]; 2]; panels],
        }
    }
}

impl Skip {
    /// Rows of the branch in a micro-batch.
    pub fn rows<T: Real>(&self, micro: &Micro<T>) -> usize {
        let panels = if self.per_sequence { panels(micro.sequences) } else { micro.panels() };
        panels * self.dim
    }

    fn drop<T: Real>(&self, micro: &Micro<T>, x: &mut [Lanes<T>]) {
        if self.per_sequence {
            micro.drop_sequences(self.site, x, self.dim);
        } else {
            micro.drop(self.site, x, self.dim);
        }
    }

    /// Writes `out: [panels][d]` from the stream `x` and the branch in the cache.
    pub fn forward<T: Real>(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        x: &[Lanes<T>],
        out: &mut [Lanes<T>],
        cache: &mut Cache<T>,
        scratch: &mut [Lanes<T>],
    ) {
        let Cache { branch, sum, moments } = cache;
        let branch = &branch[..self.rows(micro)];
        let y = &mut scratch[..branch.len()];
        let gamma_beta = &parameters[self.norm.clone()];
        match self.placement {
            NormPlacement::BeforeSkip if !self.per_sequence && micro.dropout.is_none() => {
                norm_add(gamma_beta, branch, x, out, moments);
            }
            NormPlacement::BeforeSkip => {
                norm(gamma_beta, branch, y, moments);
                self.drop(micro, y);
                self.spread(micro, x, y, out);
            }
            NormPlacement::AfterSkip => {
                let sum = &mut sum[..x.len()];
                if micro.dropout.is_none() {
                    self.spread(micro, x, branch, sum);
                } else {
                    // The branch stays as it is: a pooling's backward pass compares with it.
                    y.copy_from_slice(branch);
                    self.drop(micro, y);
                    self.spread(micro, x, y, sum);
                }
                norm(gamma_beta, sum, out, moments);
            }
        }
    }

    /// Turns `stream`, the gradient of the output, into that of `x` by way of the skip, and
    /// overwrites `dbranch`.
    pub fn backward<T: Real>(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        stream: &mut [Lanes<T>],
        dbranch: &mut [Lanes<T>],
        cache: &Cache<T>,
        gradient: &mut [T],
        scratch: &mut [Lanes<T>],
    ) {
        let rows = self.rows(micro);
        let gamma_beta = &parameters[self.norm.clone()];
        let gradient = &mut gradient[self.norm.clone()];
        let branch = &cache.branch[..rows];
        let dbranch = &mut dbranch[..rows];
        match self.placement {
            NormPlacement::BeforeSkip if !self.per_sequence && micro.dropout.is_none() => {
                norm_backward(gamma_beta, branch, &cache.moments, stream, dbranch, gradient);
            }
            NormPlacement::BeforeSkip => {
                let dy = &mut scratch[..rows];
                self.gather(micro, stream, dy);
                self.drop(micro, dy);
                norm_backward(gamma_beta, branch, &cache.moments, dy, dbranch, gradient);
            }
            NormPlacement::AfterSkip if !self.per_sequence => {
                let sum = &cache.sum[..stream.len()];
                norm_backward(gamma_beta, sum, &cache.moments, stream, dbranch, gradient);
                stream.copy_from_slice(dbranch);
                self.drop(micro, dbranch);
            }
            NormPlacement::AfterSkip => {
                let sum = &cache.sum[..stream.len()];
                let dsum = &mut scratch[..stream.len()];
                norm_backward(gamma_beta, sum, &cache.moments, stream, dsum, gradient);
                stream.copy_from_slice(dsum);
                self.gather(micro, stream, dbranch);
                self.drop(micro, dbranch);
            }
        }
    }

    /// Writes `out = x + branch`, the branch going to the tokens it belongs to.
    fn spread<T: Real>(
        &self,
        micro: &Micro<T>,
        x: &[Lanes<T>],
        branch: &[Lanes<T>],
        out: &mut [Lanes<T>],
    ) {
        if !self.per_sequence {
            return add(x, branch, out);
        }
        out.copy_from_slice(x);
        let d = self.dim;
        for (s, out) in out.chunks_exact_mut(micro.panels_each() * d).enumerate() {
            let branch = &branch[s / LANES * d..][..d];
            for out in out.chunks_exact_mut(d) {
                for (out, branch) in out.iter_mut().zip(branch) {
                    out.iter_mut().for_each(|out| *out += branch[s % LANES]);
                }
            }
        }
    }

    /// The transpose of [`Skip::spread`]: sums the gradients of the tokens of a sequence.
    fn gather<T: Real>(&self, micro: &Micro<T>, stream: &[Lanes<T>], branch: &mut [Lanes<T>]) {
        if !self.per_sequence {
            return branch.copy_from_slice(stream);
        }
        let (d, each) = (self.dim, micro.panels_each());
        branch.fill([T::zero(); LANES]);
        for (s, x) in stream.chunks_exact(each * d).enumerate() {
            run(Gather { x, lane: s % LANES, branch: &mut branch[s / LANES * d..][..d] });
        }
    }
}

/// Writes the sums over the tokens of one sequence, `x: [panels][d]`, to a lane.
struct Gather<'a, T> {
    x: &'a [Lanes<T>],
    lane: usize,
    branch: &'a mut [Lanes<T>],
}

impl<T: Real> Kernel<T> for Gather<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let d = self.branch.len();
        for (i, branch) in self.branch.iter_mut().enumerate() {
            let sums = sum_rows(
                token,
                self.x.len() / d,
                #[inline(always)]
                |p| V::load(token, &self.x[p * d + i]),
            );
            branch[self.lane] = sums.total();
        }
    }
}
