//! One layer: aggregation block and feed-forward block, each with its skip connection.

use super::aggregation::{self, Aggregation, Attention, Pool};
use super::architecture::{Architecture, Block};
use super::feed_forward::{self, FeedForward};
use super::micro::Micro;
use super::skip::{self, Skip};
use crate::config::Precision;
use crate::kernels::aggregate::{self, Kind};
use crate::kernels::dense::{self, Dense};
use crate::kernels::dropout::Site;
use crate::panel::{Buffer, Lanes};
use crate::real::Real;

/// A layer, with the places of its parameters.
pub struct Layer<T: Real> {
    aggregation: Aggregation<T>,
    skip1: Skip,
    feed_forward: FeedForward<T>,
    skip2: Skip,
}

/// What the backward pass needs of one layer.
#[derive(Debug, Default)]
pub struct Cache<T> {
    aggregation: aggregation::Cache<T>,
    skip1: skip::Cache<T>,
    /// The stream between the two blocks, `[panels][d]`.
    mid: Buffer<T>,
    feed_forward: feed_forward::Cache<T>,
    skip2: skip::Cache<T>,
}

/// Buffers shared by all layers.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    aggregation: aggregation::Scratch<T>,
    /// `[panels][d]`
    dbranch: Buffer<T>,
    /// `[2][panels][max(d, f)]`
    wide: Buffer<T>,
    products: dense::Scratch<T>,
}

impl<T: Real> Layer<T> {
    /// Layer `index` of a model.
    pub fn new(architecture: &Architecture, index: usize, precision: Precision) -> Self {
        let at = |name: &str| architecture.range(&format!("layer.{index}.{name}"));
        let place = |name: &str| architecture.find_range(&format!("layer.{index}.{name}"));
        let aggregation = match &architecture.block {
            Block::Attention {
                rule, heads, epsilon, scale, centre, rescale, gelu, form, ..
            } => {
                let Some(Kind::Attention(rule)) = aggregate::find(rule) else {
                    unreachable!("the architecture's rule comes from the registry")
                };
                Aggregation::Attention(Box::new(Attention {
                    rule,
                    layer: index,
                    heads: *heads,
                    dim: architecture.dim,
                    projections: Dense::new(
                        architecture.dim,
                        &["query", "key", "value"].map(|name| at(&format!("attention.{name}"))),
                        precision,
                    ),
                    mix: Dense::new(architecture.dim, &[at("attention.mix")], precision),
                    gain: place("attention.gain"),
                    bias: place("attention.bias"),
                    hidden_norm: place("attention.hidden_norm"),
                    gelu: *gelu,
                    epsilon: T::of(*epsilon),
                    scale: T::of(*scale),
                    centre: *centre,
                    rescale: *rescale,
                    form: *form,
                    masking: architecture.masking,
                }))
            }
            Block::Pooling(name) => {
                let Some(Kind::Pooling(pooling)) = aggregate::find(name) else {
                    unreachable!("the architecture's pooling comes from the registry")
                };
                Aggregation::Pooling(Pool { pooling, masking: architecture.masking })
            }
            Block::Weighted => Aggregation::Weighted(at("pool")),
        };
        let skip = |norm: &str, site, per_sequence| Skip {
            placement: architecture.norm_placement,
            norm: at(norm),
            dim: architecture.dim,
            site,
            per_sequence,
        };
        let pooling = matches!(aggregation, Aggregation::Pooling(_));
        Self {
            aggregation,
            skip1: skip("norm1", Site::Aggregation { layer: index }, pooling),
            feed_forward: FeedForward {
                dim: architecture.dim,
                hidden: architecture.feed_forward,
                input: Dense::new(architecture.dim, &[at("ff.in")], precision),
                norm: place("ff.hidden_norm"),
                output: Dense::new(architecture.feed_forward, &[at("ff.out")], precision),
            },
            skip2: skip("norm2", Site::FeedForward { layer: index }, false),
        }
    }

    /// Takes over the parameters' values. Call it whenever they have changed.
    pub fn pack(&mut self, parameters: &[T]) {
        self.aggregation.pack(parameters);
        self.feed_forward.input.pack(parameters);
        self.feed_forward.output.pack(parameters);
    }

    /// Buffers for micro-batches of `panels` at most.
    pub fn cache(&self, panels: usize) -> Cache<T> {
        let d = self.skip1.dim;
        Cache {
            aggregation: self.aggregation.cache(d, panels),
            skip1: skip::Cache::new(panels, &self.skip1),
            mid: Buffer::new(panels * d),
            feed_forward: feed_forward::Cache::new(panels, &self.feed_forward),
            skip2: skip::Cache::new(panels, &self.skip2),
        }
    }

    /// Buffers for micro-batches of `panels` and sequences of `length` at most.
    pub fn scratch(&self, panels: usize, length: usize, precision: Precision) -> Scratch<T> {
        let d = self.skip1.dim;
        let widest = d.max(self.feed_forward.hidden);
        Scratch {
            aggregation: self.aggregation.scratch(d, panels, length),
            dbranch: Buffer::new(panels * d),
            wide: Buffer::new(2 * panels * widest),
            products: dense::Scratch::new(widest.max(3 * d), panels, precision),
        }
    }

    /// Writes the stream `out: [panels][d]` after this layer from `x` before it.
    pub fn forward(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        x: &mut [Lanes<T>],
        out: &mut [Lanes<T>],
        cache: &mut Cache<T>,
        scratch: &mut Scratch<T>,
    ) {
        let Cache { aggregation, skip1, mid, feed_forward, skip2 } = cache;
        let mid = &mut mid[..x.len()];
        let Scratch { aggregation: buffers, wide, products, .. } = scratch;
        let branch = &mut skip1.branch[..self.skip1.rows(micro)];
        self.aggregation.forward(parameters, micro, x, branch, aggregation, buffers, products);
        self.skip1.forward(parameters, micro, x, mid, skip1, wide);
        let branch = &mut skip2.branch[..mid.len()];
        self.feed_forward.forward(parameters, micro, mid, branch, feed_forward, products);
        self.skip2.forward(parameters, micro, mid, out, skip2, wide);
    }

    /// Turns `stream`, the gradient after this layer, into the gradient before it.
    pub fn backward(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        x: &[Lanes<T>],
        stream: &mut [Lanes<T>],
        cache: &Cache<T>,
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        let Cache { aggregation, skip1, mid, feed_forward, skip2 } = cache;
        let Scratch { aggregation: buffers, dbranch, wide, products } = scratch;
        let mid = &mid[..x.len()];
        self.skip2.backward(parameters, micro, stream, dbranch, skip2, gradient, wide);
        self.feed_forward.backward(
            parameters,
            micro,
            mid,
            &dbranch[..mid.len()],
            stream,
            feed_forward,
            gradient,
            wide,
            products,
        );
        self.skip1.backward(parameters, micro, stream, dbranch, skip1, gradient, wide);
        let rows = self.skip1.rows(micro);
        self.aggregation.backward(
            parameters,
            micro,
            x,
            &skip1.branch[..rows],
            &dbranch[..rows],
            stream,
            aggregation,
            gradient,
            buffers,
            products,
        );
    }
}
