//! The feed-forward block.
//!
//! ```text
//! branch = GELU([LN] (x W1 + b1)) W2 + b2        d -> f -> d
//! ```
//!
//! The inner LayerNorm exists in the layout with norms before the skip.

use std::ops::Range;

use super::network::Micro;
use crate::arch::Write;
use crate::kernels::dense::Dense;
use crate::kernels::norm_gelu::{
    Moments, norm_gelu, norm_gelu_backward, plain_gelu, plain_gelu_backward,
};
use crate::real::Real;

/// A feed-forward block.
#[derive(Debug, Clone)]
pub struct FeedForward {
    pub dim: usize,
    pub hidden: usize,
    pub input: Range<usize>,
    pub norm: Option<Range<usize>>,
    pub output: Range<usize>,
}

/// What the backward pass needs.
#[derive(Debug, Default)]
pub struct Cache<T> {
    /// x W1 + b1, `[tokens, f]`.
    hidden: Vec<T>,
    moments: Vec<Moments<T>>,
    /// After norm and GELU, `[tokens, f]`.
    active: Vec<T>,
}

impl<T: Real> Cache<T> {
    pub fn new(tokens: usize, block: &FeedForward) -> Self {
        let zeros = || vec![T::zero(); tokens * block.hidden];
        Self { hidden: zeros(), moments: vec![[T::zero(); 2]; tokens], active: zeros() }
    }
}

impl FeedForward {
    /// Writes `branch: [tokens, d]`.
    pub fn forward<T: Real>(
        &self,
        parameters: &[T],
        micro: &Micro,
        x: &[T],
        branch: &mut [T],
        cache: &mut Cache<T>,
    ) {
        let area = micro.tokens() * self.hidden;
        let (hidden, active) = (&mut cache.hidden[..area], &mut cache.active[..area]);
        let first = Dense { input: self.dim, output: self.hidden };
        first.forward(&parameters[self.input.clone()], x, hidden);
        match &self.norm {
            Some(norm) => {
                norm_gelu(&parameters[norm.clone()], hidden, active, &mut cache.moments);
            }
            None => plain_gelu(hidden, active),
        }
        let second = Dense { input: self.hidden, output: self.dim };
        second.forward(&parameters[self.output.clone()], active, branch);
    }

    /// Adds to `dx` the gradient that `dbranch` sends back; `scratch` holds `[2, tokens, f]`.
    pub fn backward<T: Real>(
        &self,
        parameters: &[T],
        micro: &Micro,
        x: &[T],
        dbranch: &[T],
        dx: &mut [T],
        cache: &Cache<T>,
        gradient: &mut [T],
        scratch: &mut [T],
    ) {
        let area = micro.tokens() * self.hidden;
        let (hidden, active) = (&cache.hidden[..area], &cache.active[..area]);
        let (dactive, rest) = scratch.split_at_mut(area);
        let dhidden = &mut rest[..area];
        let second = Dense { input: self.hidden, output: self.dim };
        second.backward(
            &parameters[self.output.clone()],
            active,
            dbranch,
            dactive,
            Write::Set,
            &mut gradient[self.output.clone()],
        );
        match &self.norm {
            Some(norm) => norm_gelu_backward(
                &parameters[norm.clone()],
                hidden,
                &cache.moments,
                dactive,
                dhidden,
                &mut gradient[norm.clone()],
            ),
            None => plain_gelu_backward(hidden, dactive, dhidden),
        }
        let first = Dense { input: self.dim, output: self.hidden };
        first.backward(
            &parameters[self.input.clone()],
            x,
            dhidden,
            dx,
            Write::Add,
            &mut gradient[self.input.clone()],
        );
    }
}
