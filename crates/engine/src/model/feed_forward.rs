//! The feed-forward block.
//!
//! ```text
//! branch = GELU([LN] (x W1 + b1)) W2 + b2        d -> f -> d
//! ```
//!
//! The inner LayerNorm exists in the layout with norms before the skip.

use std::ops::Range;

use super::micro::Micro;
use crate::kernels::dense::{self, Dense};
use crate::kernels::norm_gelu::{
    Moments, norm_gelu, norm_gelu_backward, plain_gelu, plain_gelu_backward,
};
use crate::panel::{Buffer, LANES, Lanes, Panels, PanelsMut};
use crate::real::Real;

/// A feed-forward block.
#[derive(Debug, Clone)]
pub struct FeedForward<T> {
    pub dim: usize,
    pub hidden: usize,
    pub input: Dense<T>,
    pub norm: Option<Range<usize>>,
    pub output: Dense<T>,
}

/// What the backward pass needs.
#[derive(Debug, Default)]
pub struct Cache<T> {
    /// x W1 + b1, `[panels][f]`.
    hidden: Buffer<T>,
    moments: Vec<Moments<T>>,
    /// After norm and GELU, `[panels][f]`.
    active: Buffer<T>,
}

impl<T: Real> Cache<T> {
    pub fn new(panels: usize, block: &FeedForward<T>) -> Self {
        let rows = || Buffer::new(panels * block.hidden);
        Self { hidden: rows(), moments: vec![[[T::zero(); LANES]; 2]; panels], active: rows() }
    }
}

impl<T: Real> FeedForward<T> {
    /// Writes `branch: [panels][d]`.
    pub fn forward(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        x: &[Lanes<T>],
        branch: &mut [Lanes<T>],
        cache: &mut Cache<T>,
        products: &mut dense::Scratch<T>,
    ) {
        let (d, f) = (self.dim, self.hidden);
        let rows = micro.panels() * f;
        let (hidden, active) = (&mut cache.hidden[..rows], &mut cache.active[..rows]);
        self.input.forward(Panels::new(x, d), PanelsMut::new(hidden, f), products);
        match &self.norm {
            Some(norm) => {
                norm_gelu(&parameters[norm.clone()], hidden, active, &mut cache.moments);
            }
            None => plain_gelu(hidden, active),
        }
        self.output.forward(Panels::new(active, f), PanelsMut::new(branch, d), products);
    }

    /// Adds to `dx` the gradient that `dbranch` sends back; `scratch` holds `[2][panels][f]`.
    pub fn backward(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        x: &[Lanes<T>],
        dbranch: &[Lanes<T>],
        dx: &mut [Lanes<T>],
        cache: &Cache<T>,
        gradient: &mut [T],
        scratch: &mut [Lanes<T>],
        products: &mut dense::Scratch<T>,
    ) {
        let (d, f) = (self.dim, self.hidden);
        let rows = micro.panels() * f;
        let (hidden, active) = (&cache.hidden[..rows], &cache.active[..rows]);
        let (dactive, rest) = scratch.split_at_mut(rows);
        let dhidden = &mut rest[..rows];
        let dbranch = Panels::new(dbranch, d);
        self.output.backward_input(dbranch, PanelsMut::new(dactive, f), false, products);
        self.output.backward_parameters(Panels::new(active, f), dbranch, gradient, products);
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
        let dhidden = Panels::new(dhidden, f);
        self.input.backward_input(dhidden, PanelsMut::new(dx, d), true, products);
        self.input.backward_parameters(Panels::new(x, d), dhidden, gradient, products);
    }
}
