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
#[derive(Debug)]
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
        for part in parts(micro.panels()) {
            let (wide, narrow) = (rows(&part, f), rows(&part, d));
            let (hidden, active) = (&mut cache.hidden[wide.clone()], &mut cache.active[wide]);
            self.input.forward(
                Panels::new(&x[narrow.clone()], d),
                PanelsMut::new(hidden, f),
                products,
            );
            match &self.norm {
                Some(norm) => {
                    let moments = &mut cache.moments[part];
                    norm_gelu(&parameters[norm.clone()], hidden, active, moments);
                }
                None => plain_gelu(hidden, active),
            }
            let branch = PanelsMut::new(&mut branch[narrow], d);
            self.output.forward(Panels::new(active, f), branch, products);
        }
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
        let all = micro.panels() * f;
        let (dactive, rest) = scratch.split_at_mut(all);
        let dhidden = &mut rest[..all];
        for part in parts(micro.panels()) {
            let (wide, narrow) = (rows(&part, f), rows(&part, d));
            let (dactive, dhidden) = (&mut dactive[wide.clone()], &mut dhidden[wide.clone()]);
            let dbranch = Panels::new(&dbranch[narrow.clone()], d);
            self.output.backward_input(dbranch, PanelsMut::new(dactive, f), false, products);
            match &self.norm {
                Some(norm) => norm_gelu_backward(
                    &parameters[norm.clone()],
                    &cache.hidden[wide],
                    &cache.moments[part],
                    dactive,
                    dhidden,
                    &mut gradient[norm.clone()],
                ),
                None => plain_gelu_backward(&cache.hidden[wide], dactive, dhidden),
            }
            let dx = PanelsMut::new(&mut dx[narrow], d);
            self.input.backward_input(Panels::new(dhidden, f), dx, true, products);
        }
        let (dbranch, active) = (Panels::new(dbranch, d), Panels::new(&cache.active[..all], f));
        self.output.backward_parameters(active, dbranch, gradient, products);
        let (x, dhidden) = (Panels::new(x, d), Panels::new(dhidden, f));
        self.input.backward_parameters(x, dhidden, gradient, products);
    }
}

/// Panels that go through the block together, so that their hidden values are still in cache
/// for the next kernel.
const TOGETHER: usize = 4;

/// The panels of each part.
fn parts(panels: usize) -> impl Iterator<Item = Range<usize>> {
    (0..panels).step_by(TOGETHER).map(move |first| first..panels.min(first + TOGETHER))
}

/// The rows of some panels of this width.
fn rows(panels: &Range<usize>, width: usize) -> Range<usize> {
    panels.start * width..panels.end * width
}
