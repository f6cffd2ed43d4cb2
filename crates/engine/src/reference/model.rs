//! The whole model: embedding, layers, read-out, loss, and the gradient of all of it.
//!
//! ```text
//! x_0   = embedding[token] + position
//! BeforeSkip:  mid = x + LN1(block(x)),    out = mid + LN2( GELU(LN_ff(mid W_1 + b_1)) W_2 + b_2 )
//! AfterSkip:   mid = LN1(x + block(x)),    out = LN2( mid + GELU(mid W_1 + b_1) W_2 + b_2 )
//! logits = read-out of the last layer's tokens
//! loss   = cross entropy + l2 * sum of squares of the weight matrices
//! ```
//!
//! Only keys, pooled tokens and the read-out's positions are masked: masked tokens still have a
//! stream of their own, which the authors' poolings alter ([`Masking::Reference`], under which
//! the positions of masked tokens have logits, too).

use super::block::{self, BlockTrace, Context};
use super::{Dropout, Gradient, Keep, Parameters, ops};
use crate::config::{Masking, NormPlacement, Positions, Readout};
use crate::kernels::dropout::Site;
use crate::model::architecture::{Architecture, Block};
use crate::real::Real;
use crate::task::Batch;

/// What the forward pass of a layer leaves. Shapes are `[sequences, length, d]`.
#[derive(Debug, Clone)]
pub struct LayerTrace<T> {
    /// The layer's input (with masked tokens altered, where the masking does that).
    pub x: Vec<T>,
    /// The aggregation block.
    pub block: BlockTrace<T>,
    /// The aggregation branch: what is added to `x`, after LN1 where that sits before the skip.
    pub aggregated: Vec<T>,
    /// What LN1 is given, after the skip: AfterSkip only.
    skip1: Vec<T>,
    /// The residual stream between the blocks.
    pub mid: Vec<T>,
    /// The feed-forward block's first dense layer, `[sequences, length, f]`.
    hidden: Vec<T>,
    /// What GELU is given.
    normed: Vec<T>,
    /// GELU's value.
    activated: Vec<T>,
    /// The feed-forward block's second dense layer.
    pub ff_out: Vec<T>,
    /// What LN2 is given, after the skip: AfterSkip only.
    skip2: Vec<T>,
    /// The layer's output.
    pub out: Vec<T>,
}

/// Everything the forward pass computes.
#[derive(Debug, Clone)]
pub struct Trace<T> {
    /// Token embeddings with positions, before dropout, `[sequences, length, d]`.
    pub embedded: Vec<T>,
    /// One per layer.
    pub layers: Vec<LayerTrace<T>>,
    /// `[sequences, length]`, `[sequences, length, length]`, `[sequences, classes]` or
    /// `[sequences, length, classes]`.
    pub logits: Vec<T>,
}

/// A batch's loss and gradient.
#[derive(Debug, Clone)]
pub struct Evaluation<T> {
    /// Everything the forward pass computes.
    pub trace: Trace<T>,
    /// Mean cross entropy.
    pub task_loss: T,
    /// The penalty.
    pub l2_loss: T,
    /// Share of right answers.
    pub accuracy: f64,
    /// Gradient of the sum of both losses, in the order of the parameters.
    pub gradient: Vec<T>,
    /// Squared norm of the gradient at the embedding's output, where equal tokens are not yet
    /// summed: what clipping goes by.
    pub embedding_norm2: T,
}

/// Forward and backward pass of a batch.
///
/// # Panics
/// If the parameters or the batch do not fit the architecture.
pub fn evaluate<T: Real>(
    architecture: &Architecture,
    parameters: &[T],
    batch: &Batch,
    l2: f64,
    keep: Option<Keep>,
) -> Evaluation<T> {
    let context = context(architecture, parameters, batch, keep);
    let trace = forward_pass(&context);
    let mut gradient = Gradient::zeros(context.parameters);
    let embedding_norm2 = backward_pass(&context, &trace, &mut gradient);
    let mut gradient = gradient.values;
    let mut squares = T::zero();
    for parameter in architecture.parameters.iter().filter(|p| p.regularised) {
        for i in parameter.range() {
            squares += parameters[i] * parameters[i];
            gradient[i] += T::of(2.0 * l2) * parameters[i];
        }
    }
    Evaluation {
        task_loss: ops::cross_entropy(&trace.logits, &batch.targets, batch.weights.as_deref()),
        l2_loss: T::of(l2) * squares,
        accuracy: ops::accuracy(&trace.logits, &batch.targets, batch.weights.as_deref()),
        trace,
        gradient,
        embedding_norm2,
    }
}

/// Forward pass of a batch, whose targets are not looked at.
///
/// # Panics
/// If the parameters or the batch do not fit the architecture.
pub fn forward<T: Real>(
    architecture: &Architecture,
    parameters: &[T],
    batch: &Batch,
    keep: Option<Keep>,
) -> Trace<T> {
    forward_pass(&context(architecture, parameters, batch, keep))
}

/// An estimate of the bytes [`forward`] leaves of a batch, and [`token_gradient`] as much again.
pub fn trace_bytes<T: Real>(architecture: &Architecture, sequences: usize, length: usize) -> u64 {
    let attention = match architecture.block {
        Block::Attention { heads, .. } => 2 * heads * length + 7 * architecture.dim,
        Block::Pooling(_) | Block::Weighted => architecture.dim,
    };
    let token = attention + 8 * architecture.dim + 3 * architecture.feed_forward;
    let values = sequences as u64 * length as u64 * token as u64 * architecture.layers as u64;
    values * size_of::<T>() as u64
}

/// What a gradient `dout` of the last layer's tokens becomes at the embedding's output, both
/// `[sequences, length, d]`, without dropout; `trace` is [`forward`]'s on the same batch.
///
/// # Panics
/// If the parts do not belong together.
pub fn token_gradient<T: Real>(
    architecture: &Architecture,
    parameters: &[T],
    batch: &Batch,
    trace: &Trace<T>,
    dout: Vec<T>,
) -> Vec<T> {
    assert_eq!(dout.len(), trace.embedded.len(), "one gradient per token and dimension");
    let context = context(architecture, parameters, batch, None);
    layers_backward(&context, trace, dout, &mut Gradient::zeros(context.parameters))
}

fn context<'a, T: Real>(
    architecture: &'a Architecture,
    values: &'a [T],
    batch: &'a Batch,
    keep: Option<Keep<'a>>,
) -> Context<'a, T> {
    assert_eq!(values.len(), architecture.parameter_count(), "number of parameters");
    Context {
        parameters: Parameters { architecture, values },
        batch,
        dropout: Dropout { rate: architecture.dropout, keep },
    }
}

fn forward_pass<T: Real>(context: &Context<T>) -> Trace<T> {
    let embedded = embed(context);
    let mut x = embedded.clone();
    context.dropout.apply(Site::Embedding, &mut x);
    let mut layers = Vec::new();
    for layer in 0..context.parameters.architecture.layers {
        layers.push(layer_forward(context, layer, x));
        x = layers[layer].out.clone();
    }
    Trace { embedded, layers, logits: read_out(context, &x) }
}

/// Returns the squared norm of the embedding's gradient, token by token.
fn backward_pass<T: Real>(context: &Context<T>, trace: &Trace<T>, gradient: &mut Gradient<T>) -> T {
    let Batch { targets, weights, .. } = context.batch;
    let dlogits = ops::cross_entropy_backward(&trace.logits, targets, weights.as_deref());
    let last = trace.layers.last().map_or(&trace.embedded, |layer| &layer.out);
    let dx = read_out_backward(context, last, &dlogits, gradient);
    let dx = layers_backward(context, trace, dx, gradient);
    embed_backward(context, &dx, gradient);
    dx.iter().map(|&dx| dx * dx).sum()
}

/// From the last layer's tokens back to the embedding's output.
fn layers_backward<T: Real>(
    context: &Context<T>,
    trace: &Trace<T>,
    mut dx: Vec<T>,
    gradient: &mut Gradient<T>,
) -> Vec<T> {
    for (layer, trace) in trace.layers.iter().enumerate().rev() {
        dx = layer_backward(context, layer, trace, dx, gradient);
    }
    context.dropout.apply(Site::Embedding, &mut dx);
    dx
}

fn embed<T: Real>(context: &Context<T>) -> Vec<T> {
    let architecture = context.parameters.architecture;
    let (d, n) = (architecture.dim, context.batch.length);
    let table = context.parameters.get("embedding.weight");
    let positions: Vec<T> = match architecture.positions {
        Positions::None => vec![T::zero(); n * d],
        Positions::Learned => context.parameters.get("position_embedding.weight")[..n * d].to_vec(),
        Positions::Sinusoidal => {
            architecture.sinusoids(n).iter().map(|&x| T::of(f64::from(x))).collect()
        }
    };
    let mut x = Vec::with_capacity(context.batch.tokens.len() * d);
    for (i, &token) in context.batch.tokens.iter().enumerate() {
        for c in 0..d {
            x.push(table[token as usize * d + c] + positions[i % n * d + c]);
        }
    }
    x
}

fn embed_backward<T: Real>(context: &Context<T>, dx: &[T], gradient: &mut Gradient<T>) {
    let architecture = context.parameters.architecture;
    let (d, n) = (architecture.dim, context.batch.length);
    let mut table = vec![T::zero(); architecture.vocab * d];
    let mut positions = vec![T::zero(); architecture.max_length.max(n) * d];
    for (i, &token) in context.batch.tokens.iter().enumerate() {
        ops::add(&mut table[token as usize * d..][..d], &dx[i * d..][..d]);
        ops::add(&mut positions[i % n * d..][..d], &dx[i * d..][..d]);
    }
    gradient.add("embedding.weight", &table);
    if architecture.positions == Positions::Learned {
        gradient.add("position_embedding.weight", &positions);
    }
}

/// What becomes of masked tokens' own stream before a pooling: factor and shift.
fn reference_mask<T: Real>(context: &Context<T>) -> Option<(T, T)> {
    let pooling = context.pooling()?;
    let reference = context.parameters.architecture.masking == Masking::Reference;
    reference.then(|| pooling.reference_mask())
}

/// Turns each x of the masked tokens of `x: [sequences, length, d]` into `factor x + shift`.
fn alter_masked<T: Real>(context: &Context<T>, x: &mut [T], factor: T, shift: T) {
    if let Some(mask) = &context.batch.mask {
        for (token, row) in x.chunks_exact_mut(context.parameters.architecture.dim).enumerate() {
            if !mask[token] {
                row.iter_mut().for_each(|x| *x = factor * *x + shift);
            }
        }
    }
}

/// A pooling's `[sequences, d]` given to every token; other blocks' output as it is.
fn spread<T: Real>(context: &Context<T>, rows: &[T]) -> Vec<T> {
    if context.pooling().is_none() {
        return rows.to_vec();
    }
    let rows = rows.chunks_exact(context.parameters.architecture.dim);
    rows.flat_map(|row| row.repeat(context.batch.length)).collect()
}

/// Backward of [`spread`]: the sum over a sequence's tokens.
fn spread_backward<T: Real>(context: &Context<T>, dx: Vec<T>) -> Vec<T> {
    if context.pooling().is_none() {
        return dx;
    }
    let (d, n) = (context.parameters.architecture.dim, context.batch.length);
    let mut sums = vec![T::zero(); dx.len() / n];
    for (token, row) in dx.chunks_exact(d).enumerate() {
        ops::add(&mut sums[token / n * d..][..d], row);
    }
    sums
}

fn layer_forward<T: Real>(context: &Context<T>, layer: usize, mut x: Vec<T>) -> LayerTrace<T> {
    let (parameters, dropout) = (context.parameters, context.dropout);
    let at = |name: &str| format!("layer.{layer}.{name}");
    let before_skip = parameters.architecture.norm_placement == NormPlacement::BeforeSkip;
    if let Some((factor, shift)) = reference_mask(context) {
        alter_masked(context, &mut x, factor, shift);
    }

    let block = block::forward(context, layer, &x);
    let mut added = block.out.clone();
    if before_skip {
        added = parameters.norm(&at("norm1"), &added);
    }
    dropout.apply(Site::Aggregation { layer }, &mut added);
    let aggregated = spread(context, &added);
    let mut skip1 = x.clone();
    ops::add(&mut skip1, &aggregated);
    let mid = if before_skip { skip1.clone() } else { parameters.norm(&at("norm1"), &skip1) };

    let hidden = parameters.dense(&at("ff.in"), &mid);
    let normed =
        if before_skip { parameters.norm(&at("ff.hidden_norm"), &hidden) } else { hidden.clone() };
    let activated: Vec<T> = normed.iter().map(|&x| ops::gelu(x)).collect();
    let ff_out = parameters.dense(&at("ff.out"), &activated);
    let mut added = ff_out.clone();
    if before_skip {
        added = parameters.norm(&at("norm2"), &added);
    }
    dropout.apply(Site::FeedForward { layer }, &mut added);
    let mut skip2 = mid.clone();
    ops::add(&mut skip2, &added);
    let out = if before_skip { skip2.clone() } else { parameters.norm(&at("norm2"), &skip2) };
    LayerTrace { x, block, aggregated, skip1, mid, hidden, normed, activated, ff_out, skip2, out }
}

fn layer_backward<T: Real>(
    context: &Context<T>,
    layer: usize,
    trace: &LayerTrace<T>,
    dout: Vec<T>,
    gradient: &mut Gradient<T>,
) -> Vec<T> {
    let dropout = context.dropout;
    let at = |name: &str| format!("layer.{layer}.{name}");
    let before_skip = context.parameters.architecture.norm_placement == NormPlacement::BeforeSkip;

    let dskip = if before_skip { dout } else { gradient.norm(&at("norm2"), &trace.skip2, &dout) };
    let mut dadded = dskip.clone();
    dropout.apply(Site::FeedForward { layer }, &mut dadded);
    if before_skip {
        dadded = gradient.norm(&at("norm2"), &trace.ff_out, &dadded);
    }
    let mut dhidden = gradient.dense(&at("ff.out"), &trace.activated, &dadded);
    for (dy, &x) in dhidden.iter_mut().zip(&trace.normed) {
        *dy *= ops::gelu_derivative(x);
    }
    if before_skip {
        dhidden = gradient.norm(&at("ff.hidden_norm"), &trace.hidden, &dhidden);
    }
    let mut dmid = gradient.dense(&at("ff.in"), &trace.mid, &dhidden);
    ops::add(&mut dmid, &dskip);

    let mut dx = if before_skip { dmid } else { gradient.norm(&at("norm1"), &trace.skip1, &dmid) };
    let mut dadded = spread_backward(context, dx.clone());
    dropout.apply(Site::Aggregation { layer }, &mut dadded);
    if before_skip {
        dadded = gradient.norm(&at("norm1"), &trace.block.out, &dadded);
    }
    let dblock = block::backward(context, layer, &trace.x, &trace.block, &dadded, gradient);
    ops::add(&mut dx, &dblock);
    if let Some((factor, _)) = reference_mask(context) {
        alter_masked(context, &mut dx, factor, T::zero());
    }
    dx
}

/// The tokens the read-out looks at, and how many of its columns count.
fn read_out_shape<T: Real>(context: &Context<T>) -> (Vec<usize>, usize) {
    let (n, tokens) = (context.batch.length, context.batch.tokens.len());
    let first = (0..tokens).step_by(n).collect();
    match context.parameters.architecture.readout {
        Readout::PerToken => ((0..tokens).collect(), 1),
        Readout::FirstTokenPosition => (first, n),
        Readout::EachTokenPosition => ((0..tokens).collect(), n),
        Readout::FirstTokenClass => (first, context.parameters.architecture.classes),
        Readout::EachTokenClass => ((0..tokens).collect(), context.parameters.architecture.classes),
    }
}

fn read_out<T: Real>(context: &Context<T>, x: &[T]) -> Vec<T> {
    let architecture = context.parameters.architecture;
    let (tokens, columns) = read_out_shape(context);
    let y = context.parameters.dense("head", x);
    let row = |&token: &usize| &y[token * architecture.readout_width()..][..columns];
    let mut logits: Vec<T> = tokens.iter().flat_map(row).copied().collect();
    if let Some(mask) = masked_positions(context) {
        let logits = logits.iter_mut().zip(mask).filter(|(_, keep)| !**keep);
        logits.for_each(|(logit, _)| *logit = T::neg_infinity());
    }
    logits
}

/// Which tokens have a logit of their own, where not all of them do.
fn masked_positions<'a, T: Real>(context: &Context<'a, T>) -> Option<&'a Vec<bool>> {
    let architecture = context.parameters.architecture;
    let masks = architecture.readout == Readout::PerToken && architecture.masking == Masking::Clean;
    context.batch.mask.as_ref().filter(|_| masks)
}

fn read_out_backward<T: Real>(
    context: &Context<T>,
    x: &[T],
    dlogits: &[T],
    gradient: &mut Gradient<T>,
) -> Vec<T> {
    let width = context.parameters.architecture.readout_width();
    let (tokens, columns) = read_out_shape(context);
    let mut dy = vec![T::zero(); context.batch.tokens.len() * width];
    for (token, dlogits) in tokens.iter().zip(dlogits.chunks_exact(columns)) {
        dy[token * width..][..columns].copy_from_slice(dlogits);
    }
    gradient.dense("head", x, &dy)
}
