//! The aggregation block: how a layer's tokens `x: [sequences, length, d]` are mixed.
//!
//! ```text
//! attention   q, k, v = x W_q + b_q, x W_k + b_k, x W_v + b_v         columns split into heads
//!             z_ij = scale q_i.k_j,   w_i = rule(z_i),   a_i = sum_j dropout(w_ij) v_j
//!             a = LN(concatenated heads)  or  a / sqrt(n)  or neither
//!             out = GELU(a) W_o + b_o                                 GELU optional
//! pooling     out = one vector per sequence                           [sequences, d]
//! weighted    out_t = sum_s x_s W_st + b_t                            over positions
//! ```
//!
//! n counts unmasked keys; with [`Masking::Reference`] it is the full length, as in the
//! authors' program.

use super::{Dropout, Gradient, Parameters, ops};
use crate::config::Masking;
use crate::kernels::aggregate::{self, AttentionRule, Kind, Pooling, Row};
use crate::kernels::dropout::Site;
use crate::model::architecture::Block;
use crate::real::Real;
use crate::task::Batch;

/// What every layer's block is told.
#[derive(Clone, Copy)]
pub struct Context<'a, T> {
    /// The model.
    pub parameters: Parameters<'a, T>,
    /// The sequences, for their shape and mask.
    pub batch: &'a Batch,
    /// What is dropped.
    pub dropout: Dropout<'a>,
}

impl<'a, T: Real> Context<'a, T> {
    /// The mask of one sequence.
    pub fn mask(&self, sequence: usize) -> Option<&'a [bool]> {
        let n = self.batch.length;
        self.batch.mask.as_ref().map(|mask| &mask[sequence * n..(sequence + 1) * n])
    }

    /// The pooling, where the model is one.
    pub fn pooling(&self) -> Option<&'static dyn Pooling<T>> {
        match &self.parameters.architecture.block {
            Block::Pooling(name) => match aggregate::find::<T>(name) {
                Some(Kind::Pooling(pooling)) => Some(pooling),
                _ => panic!("no pooling is called {name}"),
            },
            _ => None,
        }
    }

    fn rule(&self) -> (&'static dyn AttentionRule<T>, &'a Block) {
        match &self.parameters.architecture.block {
            block @ Block::Attention { rule, .. } => match aggregate::find::<T>(rule) {
                Some(Kind::Attention(rule)) => (rule, block),
                _ => panic!("no attention rule is called {rule}"),
            },
            _ => panic!("not an attention model"),
        }
    }

    /// What a rule is told of one query.
    fn row(&self, layer: usize, head: usize, sequence: usize) -> Row<'a, T> {
        let &Block::Attention { epsilon, centre, .. } = self.rule().1 else { unreachable!() };
        let learned = |name: &str, otherwise: T| {
            let values = self.parameters.find(&format!("layer.{layer}.attention.{name}"));
            values.map_or(otherwise, |values| values[head])
        };
        Row {
            mask: self.mask(sequence),
            gain: learned("gain", T::one()),
            bias: learned("bias", T::zero()),
            epsilon: T::of(epsilon),
            centre,
        }
    }

    /// 1 / sqrt(n) of a sequence.
    fn rescale(&self, sequence: usize) -> T {
        let n = match (self.parameters.architecture.masking, self.mask(sequence)) {
            (Masking::Clean, Some(mask)) => mask.iter().filter(|&&keep| keep).count().max(1),
            _ => self.batch.length,
        };
        T::one() / T::of(n as f64).sqrt()
    }
}

/// What the forward pass of a block leaves.
#[derive(Debug, Clone, Default)]
pub struct BlockTrace<T> {
    /// `[sequences, length, d]`, or `[sequences, d]` of a pooling.
    pub out: Vec<T>,
    /// Logits that enter the rule, `[sequences, heads, queries, keys]`; empty without attention.
    pub logits: Vec<T>,
    /// Weights before dropout, likewise.
    pub weights: Vec<T>,
    query: Vec<T>,
    key: Vec<T>,
    value: Vec<T>,
    /// The concatenated heads (rescaled), before the inner LayerNorm.
    heads: Vec<T>,
    /// What GELU is given.
    normed: Vec<T>,
    /// What the mixing projection is given.
    activated: Vec<T>,
}

/// Forward.
pub fn forward<T: Real>(context: &Context<T>, layer: usize, x: &[T]) -> BlockTrace<T> {
    match context.parameters.architecture.block {
        Block::Attention { .. } => attention(context, layer, x),
        Block::Pooling(_) => BlockTrace { out: pool(context, x), ..BlockTrace::default() },
        Block::Weighted => BlockTrace { out: weighted(context, layer, x), ..BlockTrace::default() },
    }
}

/// Backward: adds the parameters' gradients, returns that of `x`.
pub fn backward<T: Real>(
    context: &Context<T>,
    layer: usize,
    x: &[T],
    trace: &BlockTrace<T>,
    dout: &[T],
    gradient: &mut Gradient<T>,
) -> Vec<T> {
    match context.parameters.architecture.block {
        Block::Attention { .. } => attention_backward(context, layer, x, trace, dout, gradient),
        Block::Pooling(_) => pool_backward(context, x, trace, dout),
        Block::Weighted => weighted_backward(context, layer, x, dout, gradient),
    }
}

fn attention<T: Real>(context: &Context<T>, layer: usize, x: &[T]) -> BlockTrace<T> {
    let (rule, block) = context.rule();
    let &Block::Attention { heads, scale, hidden_norm, rescale, gelu, .. } = block else {
        unreachable!()
    };
    let (d, n) = (context.parameters.architecture.dim, context.batch.length);
    let (width, sequences) = (d / heads, context.batch.sequences());
    let project = |name| context.parameters.dense(&format!("layer.{layer}.attention.{name}"), x);
    let (query, key, value) = (project("query"), project("key"), project("value"));

    let mut logits = vec![T::zero(); sequences * heads * n * n];
    let mut weights = logits.clone();
    let mut concatenated = vec![T::zero(); x.len()];
    for s in 0..sequences {
        let factor = if rescale { context.rescale(s) } else { T::one() };
        for head in 0..heads {
            let row = context.row(layer, head, s);
            let columns = |token| columns(s * n + token, d, head, width);
            for i in 0..n {
                let at = ((s * heads + head) * n + i) * n;
                let (z, w) = (&mut logits[at..at + n], &mut weights[at..at + n]);
                for j in 0..n {
                    z[j] = T::of(scale) * ops::dot(&query[columns(i)], &key[columns(j)]);
                }
                rule.weights(&row, z, w);
                for j in 0..n {
                    let index = (s * n + i) * n + j;
                    let drop: T = context.dropout.factor(attention_site(layer, head), index);
                    let weight = factor * drop * w[j];
                    let (a, v) = (&mut concatenated[columns(i)], &value[columns(j)]);
                    for c in 0..width {
                        a[c] += weight * v[c];
                    }
                }
            }
        }
    }

    let normed = if hidden_norm {
        context.parameters.norm(&format!("layer.{layer}.attention.hidden_norm"), &concatenated)
    } else {
        concatenated.clone()
    };
    let mut activated = normed.clone();
    if gelu {
        activated.iter_mut().for_each(|x| *x = ops::gelu(*x));
    }
    let out = context.parameters.dense(&format!("layer.{layer}.attention.mix"), &activated);
    BlockTrace { out, logits, weights, query, key, value, heads: concatenated, normed, activated }
}

fn attention_backward<T: Real>(
    context: &Context<T>,
    layer: usize,
    x: &[T],
    trace: &BlockTrace<T>,
    dout: &[T],
    gradient: &mut Gradient<T>,
) -> Vec<T> {
    let (rule, block) = context.rule();
    let &Block::Attention { heads, scale, hidden_norm, rescale, gelu, .. } = block else {
        unreachable!()
    };
    let (d, n) = (context.parameters.architecture.dim, context.batch.length);
    let width = d / heads;
    let at = |name: &str| format!("layer.{layer}.attention.{name}");

    let mut dheads = gradient.dense(&at("mix"), &trace.activated, dout);
    if gelu {
        for (dy, &x) in dheads.iter_mut().zip(&trace.normed) {
            *dy *= ops::gelu_derivative(x);
        }
    }
    if hidden_norm {
        dheads = gradient.norm(&at("hidden_norm"), &trace.heads, &dheads);
    }

    let (mut dquery, mut dkey) = (vec![T::zero(); x.len()], vec![T::zero(); x.len()]);
    let mut dvalue = vec![T::zero(); x.len()];
    let (mut dgain, mut dbias) = (vec![T::zero(); heads], vec![T::zero(); heads]);
    for s in 0..context.batch.sequences() {
        let factor = if rescale { context.rescale(s) } else { T::one() };
        for head in 0..heads {
            let row = context.row(layer, head, s);
            let columns = |token| columns(s * n + token, d, head, width);
            for i in 0..n {
                let da = &dheads[columns(i)];
                let start = ((s * heads + head) * n + i) * n;
                let z = &trace.logits[start..start + n];
                let w = &trace.weights[start..start + n];
                let (mut dw, mut dz) = (vec![T::zero(); n], vec![T::zero(); n]);
                for j in 0..n {
                    let index = (s * n + i) * n + j;
                    let drop: T = context.dropout.factor(attention_site(layer, head), index);
                    let (v, dv) = (&trace.value[columns(j)], &mut dvalue[columns(j)]);
                    for c in 0..width {
                        let da = factor * drop * da[c];
                        dw[j] += da * v[c];
                        dv[c] += da * w[j];
                    }
                }
                let (gain, bias) = rule.backward(&row, z, &dw, &mut dz);
                dgain[head] += gain;
                dbias[head] += bias;
                for j in 0..n {
                    let (q, dq) = (&trace.query[columns(i)], &mut dquery[columns(i)]);
                    let (k, dk) = (&trace.key[columns(j)], &mut dkey[columns(j)]);
                    let dz = T::of(scale) * dz[j];
                    for c in 0..width {
                        dq[c] += dz * k[c];
                        dk[c] += dz * q[c];
                    }
                }
            }
        }
    }
    gradient.add(&at("gain"), &dgain);
    gradient.add(&at("bias"), &dbias);
    let mut dx = gradient.dense(&at("query"), x, &dquery);
    ops::add(&mut dx, &gradient.dense(&at("key"), x, &dkey));
    ops::add(&mut dx, &gradient.dense(&at("value"), x, &dvalue));
    dx
}

/// Where a head's columns of a token lie in `[tokens, d]`.
fn columns(token: usize, d: usize, head: usize, width: usize) -> std::ops::Range<usize> {
    let start = token * d + head * width;
    start..start + width
}

fn attention_site(layer: usize, head: usize) -> Site {
    Site::Attention { layer, head }
}

fn pool<T: Real>(context: &Context<T>, x: &[T]) -> Vec<T> {
    let (d, n) = (context.parameters.architecture.dim, context.batch.length);
    let pooling = context.pooling().expect("a pooling");
    let mut out = vec![T::zero(); context.batch.sequences() * d];
    for (s, (x, out)) in x.chunks_exact(n * d).zip(out.chunks_exact_mut(d)).enumerate() {
        pooling.forward(x, context.mask(s), out);
    }
    out
}

fn pool_backward<T: Real>(
    context: &Context<T>,
    x: &[T],
    trace: &BlockTrace<T>,
    dout: &[T],
) -> Vec<T> {
    let (d, n) = (context.parameters.architecture.dim, context.batch.length);
    let pooling = context.pooling().expect("a pooling");
    let mut dx = vec![T::zero(); x.len()];
    for s in 0..context.batch.sequences() {
        let (tokens, pooled) = (s * n * d..(s + 1) * n * d, s * d..(s + 1) * d);
        let (out, dout) = (&trace.out[pooled.clone()], &dout[pooled]);
        pooling.backward(&x[tokens.clone()], context.mask(s), out, dout, &mut dx[tokens]);
    }
    dx
}

/// Calls `each(token of s, token of t, index of W_st)` for the pairs of unmasked s and any t.
fn position_pairs<T: Real>(context: &Context<T>, mut each: impl FnMut(usize, usize, usize)) {
    let n = context.batch.length;
    let longest = context.parameters.architecture.max_length;
    assert_eq!(n, longest, "the weighted aggregator works at one length only");
    for sequence in 0..context.batch.sequences() {
        let mask = context.mask(sequence);
        for s in (0..n).filter(|&s| mask.is_none_or(|mask| mask[s])) {
            for t in 0..n {
                each(sequence * n + s, sequence * n + t, s * n + t);
            }
        }
    }
}

fn weighted<T: Real>(context: &Context<T>, layer: usize, x: &[T]) -> Vec<T> {
    let d = context.parameters.architecture.dim;
    let weight = context.parameters.get(&format!("layer.{layer}.pool.weight"));
    let bias = context.parameters.get(&format!("layer.{layer}.pool.bias"));
    let mut out: Vec<T> = (0..x.len()).map(|i| bias[i / d % context.batch.length]).collect();
    position_pairs(context, |from, to, w| {
        for c in 0..d {
            out[to * d + c] += x[from * d + c] * weight[w];
        }
    });
    out
}

fn weighted_backward<T: Real>(
    context: &Context<T>,
    layer: usize,
    x: &[T],
    dout: &[T],
    gradient: &mut Gradient<T>,
) -> Vec<T> {
    let (d, n) = (context.parameters.architecture.dim, context.batch.length);
    let weight = context.parameters.get(&format!("layer.{layer}.pool.weight"));
    let (mut dx, mut dweight) = (vec![T::zero(); x.len()], vec![T::zero(); weight.len()]);
    let mut dbias = vec![T::zero(); n];
    for (i, &dout) in dout.iter().enumerate() {
        dbias[i / d % n] += dout;
    }
    position_pairs(context, |from, to, w| {
        for c in 0..d {
            dx[from * d + c] += dout[to * d + c] * weight[w];
            dweight[w] += dout[to * d + c] * x[from * d + c];
        }
    });
    gradient.add(&format!("layer.{layer}.pool.weight"), &dweight);
    gradient.add(&format!("layer.{layer}.pool.bias"), &dbias);
    dx
}
