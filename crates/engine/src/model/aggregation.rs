//! The aggregation block: attention, pooling, or a learned mixing matrix.
//!
//! ```text
//! attention:  branch = act([LN] concat_h(rule(Q_h K_h^T) V_h) [/ sqrt(n)]) W + b
//! pooling:    branch = pool over the sequence of x                 one row per sequence
//! weighted:   branch_i = sum_j x_j W_ji + b_i                      positions j, i
//! ```
//!
//! `weighted` works at one length only and takes no notice of masks.

use std::ops::Range;

use super::network::Micro;
use crate::arch::{Mat, MatMut, Write, matmul};
use crate::config::{AttentionForm, Auto, Masking};
use crate::kernels::aggregate::linear::{self, Linear};
use crate::kernels::aggregate::{AttentionRule, Head, Pooling, Row, quadratic};
use crate::kernels::dense::Dense;
use crate::kernels::dropout::Site;
use crate::kernels::norm_gelu::{
    Moments, norm, norm_backward, norm_gelu, norm_gelu_backward, plain_gelu, plain_gelu_backward,
};
use crate::real::Real;

/// The aggregation block of a layer.
#[derive(Clone)]
pub enum Aggregation<T: Real> {
    Attention(Attention<T>),
    Pooling(Pool<T>),
    /// The mixing matrix `[N, N]` and its bias.
    Weighted(Range<usize>),
}

/// Pooling over the sequence.
#[derive(Clone)]
pub struct Pool<T: Real> {
    pub pooling: &'static dyn Pooling<T>,
    pub masking: Masking,
}

/// Attention between its four projections.
#[derive(Clone)]
pub struct Attention<T: Real> {
    pub rule: &'static dyn AttentionRule<T>,
    pub layer: usize,
    pub heads: usize,
    /// Query, key and value projections.
    pub projections: [Range<usize>; 3],
    pub mix: Range<usize>,
    pub gain: Option<Range<usize>>,
    pub bias: Option<Range<usize>>,
    pub hidden_norm: Option<Range<usize>>,
    pub gelu: bool,
    pub epsilon: T,
    pub scale: T,
    pub centre: bool,
    pub rescale: bool,
    pub form: Auto<AttentionForm>,
    pub masking: Masking,
}

/// What the backward pass needs.
#[derive(Debug, Default)]
pub struct Cache<T> {
    /// Queries, keys, values, `[tokens, d]` each.
    projected: [Vec<T>; 3],
    /// Concatenated heads, `[tokens, d]`.
    heads: Vec<T>,
    moments: Vec<Moments<T>>,
    /// After norm and GELU, `[tokens, d]`.
    active: Vec<T>,
}

/// Buffers shared by all layers.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    linear: linear::Scratch<T>,
    quadratic: quadratic::Scratch<T>,
    dprojected: [Vec<T>; 3],
    dheads: Vec<T>,
    dactive: Vec<T>,
}

impl<T: Real> Aggregation<T> {
    /// Buffers for micro-batches of `tokens` at most.
    pub fn cache(&self, dim: usize, tokens: usize) -> Cache<T> {
        let Aggregation::Attention(_) = self else { return Cache::default() };
        let zeros = || vec![T::zero(); tokens * dim];
        Cache {
            projected: [zeros(), zeros(), zeros()],
            heads: zeros(),
            moments: vec![[T::zero(); 2]; tokens],
            active: zeros(),
        }
    }

    /// Buffers for micro-batches of `tokens` and sequences of `length` at most.
    pub fn scratch(&self, dim: usize, tokens: usize, length: usize) -> Scratch<T> {
        let Aggregation::Attention(attention) = self else { return Scratch::default() };
        let zeros = || vec![T::zero(); tokens * dim];
        Scratch {
            linear: linear::Scratch::new(length, dim / attention.heads),
            quadratic: quadratic::Scratch::new(length),
            dprojected: [zeros(), zeros(), zeros()],
            dheads: zeros(),
            dactive: zeros(),
        }
    }

    /// Writes `branch`. `x: [tokens, d]` changes only under [`Masking::Reference`], where
    /// pooling alters masked tokens.
    pub fn forward(
        &self,
        parameters: &[T],
        micro: &Micro,
        x: &mut [T],
        branch: &mut [T],
        cache: &mut Cache<T>,
        scratch: &mut Scratch<T>,
    ) {
        match self {
            Aggregation::Attention(block) => {
                block.forward(parameters, micro, x, branch, cache, scratch);
            }
            Aggregation::Pooling(block) => block.forward(micro, x, branch),
            Aggregation::Weighted(range) => {
                let (n, d) = (micro.length, x.len() / micro.tokens());
                let (weight, bias) = parameters[range.clone()].split_at(n * n);
                let weight = Mat::dense(weight, n, n).t();
                for (s, out) in branch.chunks_exact_mut(n * d).take(micro.sequences).enumerate() {
                    for (out, &bias) in out.chunks_exact_mut(d).zip(bias) {
                        out.fill(bias);
                    }
                    let x = Mat::dense(&x[s * n * d..][..n * d], n, d);
                    matmul(MatMut::dense(out, n, d), Write::Add, T::one(), weight, x);
                }
            }
        }
    }

    /// Adds to `dx` the gradient that `dbranch` sends back.
    pub fn backward(
        &self,
        parameters: &[T],
        micro: &Micro,
        x: &[T],
        branch: &[T],
        dbranch: &[T],
        dx: &mut [T],
        cache: &Cache<T>,
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        match self {
            Aggregation::Attention(block) => {
                block.backward(parameters, micro, x, dbranch, dx, cache, gradient, scratch);
            }
            Aggregation::Pooling(block) => block.backward(micro, x, branch, dbranch, dx),
            Aggregation::Weighted(range) => {
                let (n, d) = (micro.length, x.len() / micro.tokens());
                let weight = Mat::dense(&parameters[range.clone()], n, n);
                let (dweight, dbias) = gradient[range.clone()].split_at_mut(n * n);
                for s in 0..micro.sequences {
                    let at = s * n * d..(s + 1) * n * d;
                    let (dout, x) = (&dbranch[at.clone()], Mat::dense(&x[at.clone()], n, d));
                    for (dbias, dout) in dbias.iter_mut().zip(dout.chunks_exact(d)) {
                        *dbias += dout.iter().copied().sum();
                    }
                    let dout = Mat::dense(dout, n, d);
                    matmul(MatMut::dense(dweight, n, n), Write::Add, T::one(), x, dout.t());
                    let dx = &mut dx[at];
                    matmul(MatMut::dense(dx, n, d), Write::Add, T::one(), weight, dout);
                }
            }
        }
    }
}

impl<T: Real> Pool<T> {
    fn forward(&self, micro: &Micro, x: &mut [T], branch: &mut [T]) {
        let d = x.len() / micro.tokens();
        let rows = x.chunks_exact_mut(micro.length * d).zip(branch.chunks_exact_mut(d));
        for (s, (x, out)) in rows.enumerate() {
            if self.masking == Masking::Reference {
                let (factor, shift) = self.pooling.reference_mask();
                micro.alter_masked(s, x, factor, shift);
            }
            self.pooling.forward(x, micro.mask(s), out);
        }
    }

    fn backward(&self, micro: &Micro, x: &[T], branch: &[T], dbranch: &[T], dx: &mut [T]) {
        let d = x.len() / micro.tokens();
        for (s, dx) in dx.chunks_exact_mut(micro.length * d).enumerate() {
            let (x, mask) = (&x[s * micro.length * d..][..micro.length * d], micro.mask(s));
            let row = s * d..(s + 1) * d;
            self.pooling.backward(x, mask, &branch[row.clone()], &dbranch[row], dx);
            if self.masking == Masking::Reference {
                let (factor, _) = self.pooling.reference_mask();
                micro.alter_masked(s, dx, factor, T::zero());
            }
        }
    }
}

impl<T: Real> Attention<T> {
    fn forward(
        &self,
        parameters: &[T],
        micro: &Micro,
        x: &[T],
        branch: &mut [T],
        cache: &mut Cache<T>,
        scratch: &mut Scratch<T>,
    ) {
        let (area, d) = (x.len(), x.len() / micro.tokens());
        let dense = Dense { input: d, output: d };
        for (range, out) in self.projections.iter().zip(&mut cache.projected) {
            dense.forward(&parameters[range.clone()], x, &mut out[..area]);
        }
        let heads = &mut cache.heads[..area];
        for s in 0..micro.sequences {
            for h in 0..self.heads {
                let head = self.head(parameters, micro, &cache.projected, d, s, h);
                let out = &mut heads[s * micro.length * d + h * head.width..];
                match self.linear_form(&head, micro) {
                    Some(form) => form.forward(&head, out, &mut scratch.linear),
                    None => {
                        let mask = micro.dropout_mask(s, self.site(h));
                        quadratic::forward(self.rule, &head, mask, out, &mut scratch.quadratic);
                    }
                }
            }
            self.rescale(micro, s, &mut heads[s * micro.length * d..][..micro.length * d]);
        }
        let active = &mut cache.active[..area];
        match (&self.hidden_norm, self.gelu) {
            (Some(range), true) => {
                norm_gelu(&parameters[range.clone()], heads, active, &mut cache.moments);
            }
            (Some(range), false) => {
                norm(&parameters[range.clone()], heads, active, &mut cache.moments);
            }
            (None, true) => plain_gelu(heads, active),
            (None, false) => active.copy_from_slice(heads),
        }
        dense.forward(&parameters[self.mix.clone()], active, &mut branch[..area]);
    }

    fn backward(
        &self,
        parameters: &[T],
        micro: &Micro,
        x: &[T],
        dbranch: &[T],
        dx: &mut [T],
        cache: &Cache<T>,
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        let (area, d) = (x.len(), x.len() / micro.tokens());
        let dense = Dense { input: d, output: d };
        let (heads, active) = (&cache.heads[..area], &cache.active[..area]);
        let Scratch { dheads, dactive, .. } = scratch;
        let (dheads, dactive) = (&mut dheads[..area], &mut dactive[..area]);
        let mix = &parameters[self.mix.clone()];
        let dmix = &mut gradient[self.mix.clone()];
        dense.backward(mix, active, &dbranch[..area], dactive, Write::Set, dmix);
        match (&self.hidden_norm, self.gelu) {
            (Some(range), gelu) => {
                let backward = if gelu { norm_gelu_backward } else { norm_backward };
                let gradient = &mut gradient[range.clone()];
                let moments = &cache.moments;
                backward(&parameters[range.clone()], heads, moments, dactive, dheads, gradient);
            }
            (None, true) => plain_gelu_backward(heads, dactive, dheads),
            (None, false) => dheads.copy_from_slice(dactive),
        }
        for s in 0..micro.sequences {
            let at = s * micro.length * d;
            self.rescale(micro, s, &mut scratch.dheads[at..][..micro.length * d]);
            for h in 0..self.heads {
                let (dgain, dbias) = self.head_backward(parameters, micro, cache, d, s, h, scratch);
                if let Some(range) = &self.gain {
                    gradient[range.start + h] += dgain;
                }
                if let Some(range) = &self.bias {
                    gradient[range.start + h] += dbias;
                }
            }
        }
        for (range, dy) in self.projections.iter().zip(&scratch.dprojected) {
            let (weight, dweight) = (&parameters[range.clone()], &mut gradient[range.clone()]);
            dense.backward(weight, x, &dy[..area], dx, Write::Add, dweight);
        }
    }

    /// From `scratch.dheads` to `scratch.dprojected`, for one head of one sequence.
    fn head_backward(
        &self,
        parameters: &[T],
        micro: &Micro,
        cache: &Cache<T>,
        d: usize,
        s: usize,
        h: usize,
        scratch: &mut Scratch<T>,
    ) -> (T, T) {
        let head = self.head(parameters, micro, &cache.projected, d, s, h);
        let at = s * micro.length * d + h * head.width;
        let Scratch { linear, quadratic, dprojected: [dq, dk, dv], dheads, .. } = scratch;
        let dqkv = [&mut dq[at..], &mut dk[at..], &mut dv[at..]];
        match self.linear_form(&head, micro) {
            Some(form) => form.backward(&head, &dheads[at..], dqkv, linear),
            None => {
                let mask = || micro.dropout_mask(s, self.site(h));
                let masks = mask().zip(mask());
                quadratic::backward(self.rule, &head, masks, &dheads[at..], dqkv, quadratic)
            }
        }
    }

    fn head<'a>(
        &self,
        parameters: &[T],
        micro: &Micro<'a>,
        [q, k, v]: &'a [Vec<T>; 3],
        d: usize,
        s: usize,
        h: usize,
    ) -> Head<'a, T> {
        let width = d / self.heads;
        let at = s * micro.length * d + h * width;
        let per_head = |range: &Option<Range<usize>>, default| {
            range.as_ref().map_or(default, |range| parameters[range.start + h])
        };
        Head {
            q: &q[at..],
            k: &k[at..],
            v: &v[at..],
            length: micro.length,
            width,
            stride: d,
            scale: self.scale,
            row: Row {
                mask: micro.mask(s),
                gain: per_head(&self.gain, T::one()),
                bias: per_head(&self.bias, T::zero()),
                epsilon: self.epsilon,
                centre: self.centre,
            },
        }
    }

    /// The linear-time form, where the rule has it and it is forced or cheaper.
    fn linear_form(&self, head: &Head<T>, micro: &Micro) -> Option<Linear> {
        let form = self.rule.linear().filter(|_| micro.dropout.is_none())?;
        let wanted = match self.form {
            Auto::Value(form) => form,
            // Both cost the same operations at n = 2 d_h, but the linear form has no
            // pointwise work on n x n values.
            Auto::Auto if head.length >= 2 * head.width => AttentionForm::Linear,
            Auto::Auto => AttentionForm::Quadratic,
        };
        (wanted == AttentionForm::Linear).then_some(form)
    }

    fn site(&self, head: usize) -> Site {
        Site::Attention { layer: self.layer, head }
    }

    /// NON: divides a sequence's aggregate (or its gradient) by the root of its length.
    fn rescale(&self, micro: &Micro, s: usize, x: &mut [T]) {
        if self.rescale {
            let n = match (self.masking, micro.mask(s)) {
                (Masking::Clean, Some(mask)) => mask.iter().filter(|&&keep| keep).count().max(1),
                _ => micro.length,
            };
            let factor = T::one() / T::of(n as f64).sqrt();
            x.iter_mut().for_each(|x| *x *= factor);
        }
    }
}
