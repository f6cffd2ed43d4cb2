//! The aggregation block: attention, pooling, or a learned mixing matrix.
//!
//! ```text
//! attention:  branch = act([LN] concat_h(rule(Q_h K_h^T) V_h) [/ sqrt(n)]) W + b
//! pooling:    branch = pool over the sequence of x                 one vector per sequence
//! weighted:   branch_i = sum_j x_j W_ji + b_i                      positions j, i
//! ```
//!
//! `weighted` works at one length only and takes no notice of masks.

use std::ops::Range;

use super::micro::Micro;
use crate::arch::{Out, matmul_rows, matmul_tn};
use crate::config::{AttentionForm, Auto, Masking};
use crate::kernels::aggregate::linear::{self, Linear};
use crate::kernels::aggregate::{AttentionRule, Head, HeadGradient, Pooling, Row, quadratic};
use crate::kernels::dense::{self, Dense};
use crate::kernels::dropout::Site;
use crate::kernels::norm_gelu::{
    Moments, norm, norm_backward, norm_gelu, norm_gelu_backward, plain_gelu, plain_gelu_backward,
};
use crate::panel::{Buffer, LANES, Lanes, Panels, PanelsMut, panels};
use crate::profile::{Part, time};
use crate::real::Real;

/// The aggregation block of a layer.
pub enum Aggregation<T: Real> {
    Attention(Box<Attention<T>>),
    Pooling(Pool<T>),
    /// The mixing matrix `[N, N]` and its bias.
    Weighted(Range<usize>),
}

/// Pooling over the sequence.
pub struct Pool<T: Real> {
    pub pooling: &'static dyn Pooling<T>,
    pub masking: Masking,
}

/// Attention between its four projections.
pub struct Attention<T: Real> {
    pub rule: &'static dyn AttentionRule<T>,
    pub layer: usize,
    pub dim: usize,
    pub heads: usize,
    /// Query, key and value projections.
    pub projections: Dense<T>,
    pub mix: Dense<T>,
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
    /// Queries, keys, values, `[panels][3 d]`.
    projected: Buffer<T>,
    /// Concatenated heads, `[panels][d]`.
    heads: Buffer<T>,
    moments: Vec<Moments<T>>,
    /// After norm and GELU, if either is there, `[panels][d]`.
    active: Buffer<T>,
}

/// Buffers shared by all layers.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    linear: linear::Scratch<T>,
    quadratic: quadratic::Scratch<T>,
    dprojected: Buffer<T>,
    dheads: Buffer<T>,
    dactive: Buffer<T>,
    /// A pooled vector and its gradient, `[2, d]`.
    pooled: Vec<T>,
    /// The mixing matrix in blocks of 16 columns, `[blocks][N][16]`.
    weight: Buffer<T>,
}

impl<T: Real> Aggregation<T> {
    /// Takes over the parameters' values.
    pub fn pack(&mut self, parameters: &[T]) {
        if let Aggregation::Attention(block) = self {
            block.projections.pack(parameters);
            block.mix.pack(parameters);
        }
    }

    /// Buffers for micro-batches of `panels` at most.
    pub fn cache(&self, dim: usize, panels: usize) -> Cache<T> {
        let Aggregation::Attention(_) = self else { return Cache::default() };
        Cache {
            projected: Buffer::new(panels * 3 * dim),
            heads: Buffer::new(panels * dim),
            moments: vec![[[T::zero(); LANES]; 2]; panels],
            active: Buffer::new(panels * dim),
        }
    }

    /// Buffers for micro-batches of `count` panels and sequences of `length` at most.
    pub fn scratch(&self, dim: usize, count: usize, length: usize) -> Scratch<T> {
        let attention = match self {
            Aggregation::Attention(attention) => attention,
            Aggregation::Pooling(_) => {
                return Scratch { pooled: vec![T::zero(); 2 * dim], ..Scratch::default() };
            }
            Aggregation::Weighted(_) => {
                let weight = Buffer::new(panels(length) * panels(length) * LANES);
                return Scratch { weight, ..Scratch::default() };
            }
        };
        Scratch {
            linear: linear::Scratch::new(length, dim / attention.heads),
            quadratic: quadratic::Scratch::new(length),
            dprojected: Buffer::new(count * 3 * dim),
            dheads: Buffer::new(count * dim),
            dactive: Buffer::new(count * dim),
            ..Scratch::default()
        }
    }

    /// Writes `branch`. `x: [panels][d]` changes only under [`Masking::Reference`], where
    /// pooling alters masked tokens.
    pub fn forward(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        x: &mut [Lanes<T>],
        branch: &mut [Lanes<T>],
        cache: &mut Cache<T>,
        scratch: &mut Scratch<T>,
        products: &mut dense::Scratch<T>,
    ) {
        match self {
            Aggregation::Attention(block) => {
                block.forward(parameters, micro, x, branch, cache, scratch, products);
            }
            Aggregation::Pooling(block) => block.forward(micro, x, branch, &mut scratch.pooled),
            Aggregation::Weighted(range) => {
                let (n, each) = (micro.length, x.len() / micro.sequences);
                let d = each / micro.panels_each();
                assert_eq!(range.len(), n * n + n, "weighted works at one length only");
                let (weight, bias) = parameters[range.clone()].split_at(n * n);
                let weight = blocks(weight, n, n, 1, &mut scratch.weight);
                for (x, out) in x.chunks_exact(each).zip(branch.chunks_exact_mut(each)) {
                    let out_panels = Out::panels(PanelsMut::new(out, d));
                    let x = Panels::new(x, d);
                    time(Part::AttentionProducts, || matmul_rows(x, weight, out_panels, false));
                    for (out, bias) in out.chunks_exact_mut(d).zip(bias.chunks(LANES)) {
                        for row in out {
                            row.iter_mut().zip(bias).for_each(|(out, &bias)| *out += bias);
                        }
                    }
                }
            }
        }
    }

    /// Adds to `dx` the gradient that `dbranch` sends back.
    pub fn backward(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        x: &[Lanes<T>],
        branch: &[Lanes<T>],
        dbranch: &[Lanes<T>],
        dx: &mut [Lanes<T>],
        cache: &Cache<T>,
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
        products: &mut dense::Scratch<T>,
    ) {
        match self {
            Aggregation::Attention(block) => {
                block.backward(
                    parameters, micro, x, dbranch, dx, cache, gradient, scratch, products,
                );
            }
            Aggregation::Pooling(block) => {
                block.backward(micro, x, branch, dbranch, dx, &mut scratch.pooled);
            }
            Aggregation::Weighted(range) => {
                let (n, each) = (micro.length, x.len() / micro.sequences);
                let d = each / micro.panels_each();
                assert_eq!(range.len(), n * n + n, "weighted works at one length only");
                let weight = blocks(&parameters[range.clone()], n, 1, n, &mut scratch.weight);
                let (dweight, dbias) = gradient[range.clone()].split_at_mut(n * n);
                for s in 0..micro.sequences {
                    let at = s * each..(s + 1) * each;
                    let dout = Panels::new(&dbranch[at.clone()], d);
                    for (t, dbias) in dbias.iter_mut().enumerate() {
                        let rows = dout.panel(t / LANES);
                        *dbias += rows.iter().map(|row| row[t % LANES]).sum();
                    }
                    let x = Panels::new(&x[at.clone()], d);
                    let dx = Out::panels(PanelsMut::new(&mut dx[at], d));
                    time(Part::AttentionProducts, || {
                        matmul_tn(x, dout, Out::matrix(dweight, n, n, n), true);
                        matmul_rows(dout, weight, dx, true);
                    });
                }
            }
        }
    }
}

/// The matrix whose element (j, i) is `w[j * row_stride + i * column_stride]`, `[n, n]`, in
/// blocks of 16 columns, padded with 0 to whole panels both ways.
fn blocks<'a, T: Real>(
    w: &[T],
    n: usize,
    row_stride: usize,
    column_stride: usize,
    out: &'a mut Buffer<T>,
) -> &'a [Lanes<T>] {
    let padded = panels(n) * LANES;
    for (index, row) in out.iter_mut().enumerate().take(panels(n) * padded) {
        let (block, j) = (index / padded, index % padded);
        for (lane, out) in row.iter_mut().enumerate() {
            let i = block * LANES + lane;
            let inside = i < n && j < n;
            *out = if inside { w[j * row_stride + i * column_stride] } else { T::zero() };
        }
    }
    &out[..panels(n) * padded]
}

impl<T: Real> Pool<T> {
    fn forward(
        &self,
        micro: &Micro<T>,
        x: &mut [Lanes<T>],
        branch: &mut [Lanes<T>],
        pooled: &mut [T],
    ) {
        let d = pooled.len() / 2;
        // Lanes without a sequence must not keep what an earlier micro-batch left.
        let last = branch.len() - d;
        branch[last..].fill([T::zero(); LANES]);
        for (s, x) in x.chunks_exact_mut(micro.panels_each() * d).enumerate() {
            if self.masking == Masking::Reference {
                let (factor, shift) = self.pooling.reference_mask();
                micro.alter_masked(s, x, factor, shift);
            }
            let (keep, out) = (micro.keep(s), &mut pooled[..d]);
            time(Part::Pooling, || self.pooling.pool(x, keep, out));
            let branch = &mut branch[s / LANES * d..][..d];
            branch.iter_mut().zip(&*pooled).for_each(|(row, &x)| row[s % LANES] = x);
        }
    }

    fn backward(
        &self,
        micro: &Micro<T>,
        x: &[Lanes<T>],
        branch: &[Lanes<T>],
        dbranch: &[Lanes<T>],
        dx: &mut [Lanes<T>],
        pooled: &mut [T],
    ) {
        let d = pooled.len() / 2;
        let (out, dout) = pooled.split_at_mut(d);
        for (s, dx) in dx.chunks_exact_mut(micro.panels_each() * d).enumerate() {
            for i in 0..d {
                let row = s / LANES * d + i;
                (out[i], dout[i]) = (branch[row][s % LANES], dbranch[row][s % LANES]);
            }
            let x = &x[s * dx.len()..][..dx.len()];
            let keep = micro.keep(s);
            time(Part::Pooling, || self.pooling.pool_backward(x, keep, out, dout, dx));
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
        micro: &Micro<T>,
        x: &[Lanes<T>],
        branch: &mut [Lanes<T>],
        cache: &mut Cache<T>,
        scratch: &mut Scratch<T>,
        products: &mut dense::Scratch<T>,
    ) {
        let (rows, d) = (x.len(), self.dim);
        let Cache { projected, heads, moments, active } = cache;
        let (projected, heads) = (&mut projected[..3 * rows], &mut heads[..rows]);
        let out = PanelsMut::new(projected, 3 * d);
        self.projections.forward(Panels::new(x, d), out, products);
        for s in 0..micro.sequences {
            let place = s * micro.panels_each()..(s + 1) * micro.panels_each();
            for h in 0..self.heads {
                let head = self.head(parameters, micro, projected, s, h);
                let out = PanelsMut::new(heads, d).panels(place.clone()).rows(self.rows(h));
                match self.linear_form(&head, micro) {
                    Some(form) => form.forward(&head, out, &mut scratch.linear),
                    None => {
                        let mask = micro.dropout_mask(s, self.site(h));
                        quadratic::forward(self.rule, &head, mask, out, &mut scratch.quadratic);
                    }
                }
            }
            self.rescale(micro, s, &mut heads[place.start * d..place.end * d]);
        }
        let active = &mut active[..rows];
        match (&self.hidden_norm, self.gelu) {
            (Some(range), true) => norm_gelu(&parameters[range.clone()], heads, active, moments),
            (Some(range), false) => norm(&parameters[range.clone()], heads, active, moments),
            (None, true) => plain_gelu(heads, active),
            (None, false) => {}
        }
        let active = if self.plain() { heads } else { active };
        self.mix.forward(Panels::new(active, d), PanelsMut::new(branch, d), products);
    }

    fn backward(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        x: &[Lanes<T>],
        dbranch: &[Lanes<T>],
        dx: &mut [Lanes<T>],
        cache: &Cache<T>,
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
        products: &mut dense::Scratch<T>,
    ) {
        let (rows, d) = (x.len(), self.dim);
        let (heads, active) = (&cache.heads[..rows], &cache.active[..rows]);
        let Scratch { dheads, dactive, .. } = scratch;
        let (dheads, dactive) = (&mut dheads[..rows], &mut dactive[..rows]);
        let dbranch = Panels::new(dbranch, d);
        let (mixed, dmixed) =
            if self.plain() { (heads, &mut *dheads) } else { (active, &mut *dactive) };
        self.mix.backward_input(dbranch, PanelsMut::new(dmixed, d), false, products);
        self.mix.backward_parameters(Panels::new(mixed, d), dbranch, gradient, products);
        match (&self.hidden_norm, self.gelu) {
            (Some(range), gelu) => {
                let backward = if gelu { norm_gelu_backward } else { norm_backward };
                let gradient = &mut gradient[range.clone()];
                let moments = &cache.moments;
                backward(&parameters[range.clone()], heads, moments, dactive, dheads, gradient);
            }
            (None, true) => plain_gelu_backward(heads, dactive, dheads),
            (None, false) => {}
        }
        for s in 0..micro.sequences {
            let place = s * micro.panels_each() * d..(s + 1) * micro.panels_each() * d;
            self.rescale(micro, s, &mut scratch.dheads[place]);
            for h in 0..self.heads {
                let (dgain, dbias) = self.head_backward(parameters, micro, cache, s, h, scratch);
                if let Some(range) = &self.gain {
                    gradient[range.start + h] += dgain;
                }
                if let Some(range) = &self.bias {
                    gradient[range.start + h] += dbias;
                }
            }
        }
        let dprojected = Panels::new(&scratch.dprojected[..3 * rows], 3 * d);
        self.projections.backward_input(dprojected, PanelsMut::new(dx, d), true, products);
        self.projections.backward_parameters(Panels::new(x, d), dprojected, gradient, products);
    }

    /// From `scratch.dheads` to `scratch.dprojected`, for one head of one sequence.
    fn head_backward(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        cache: &Cache<T>,
        s: usize,
        h: usize,
        scratch: &mut Scratch<T>,
    ) -> (T, T) {
        let (d, each) = (self.dim, micro.panels_each());
        let head = self.head(parameters, micro, &cache.projected, s, h);
        let Scratch { linear, quadratic, dprojected, dheads, .. } = scratch;
        let dheads = Panels::new(&dheads[s * each * d..][..each * d], d).rows(self.rows(h));
        let place = &mut dprojected[s * each * 3 * d..][..each * 3 * d];
        let rows = self.rows(h);
        let gradient = HeadGradient {
            panels: PanelsMut::new(place, 3 * d),
            rows: [0, d, 2 * d].map(|first| first + rows.start..first + rows.end),
        };
        match self.linear_form(&head, micro) {
            Some(form) => form.backward(&head, dheads, gradient, linear),
            None => {
                let mask = micro.dropout_mask(s, self.site(h));
                quadratic::backward(self.rule, &head, mask, dheads, gradient, quadratic)
            }
        }
    }

    /// The features of head `h`.
    fn rows(&self, h: usize) -> Range<usize> {
        let width = self.dim / self.heads;
        h * width..(h + 1) * width
    }

    fn head<'a>(
        &self,
        parameters: &[T],
        micro: &Micro<'a, T>,
        projected: &'a [Lanes<T>],
        s: usize,
        h: usize,
    ) -> Head<'a, T> {
        let (d, each) = (self.dim, micro.panels_each());
        let projected = Panels::new(&projected[s * each * 3 * d..][..each * 3 * d], 3 * d);
        let part = |index: usize| projected.rows(index * d..(index + 1) * d).rows(self.rows(h));
        let per_head = |range: &Option<Range<usize>>, default| {
            range.as_ref().map_or(default, |range| parameters[range.start + h])
        };
        Head {
            q: part(0),
            k: part(1),
            v: part(2),
            keep: micro.keep(s),
            length: micro.length,
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
    fn linear_form(&self, head: &Head<T>, micro: &Micro<T>) -> Option<Linear> {
        let form = self.rule.linear().filter(|_| micro.dropout.is_none())?;
        let wanted = match self.form {
            Auto::Value(form) => form,
            // Both cost the same operations at n = 2 d_h, but the linear form has no
            // pointwise work on n x n values.
            Auto::Auto if head.length >= 2 * head.width() => AttentionForm::Linear,
            Auto::Auto => AttentionForm::Quadratic,
        };
        (wanted == AttentionForm::Linear).then_some(form)
    }

    /// Whether the mix takes the concatenated heads as they are.
    fn plain(&self) -> bool {
        self.hidden_norm.is_none() && !self.gelu
    }

    fn site(&self, head: usize) -> Site {
        Site::Attention { layer: self.layer, head }
    }

    /// NON: divides a sequence's aggregate (or its gradient) by the root of its length.
    fn rescale(&self, micro: &Micro<T>, s: usize, x: &mut [Lanes<T>]) {
        if self.rescale {
            let n = match (self.masking, micro.mask(s)) {
                (Masking::Clean, Some(mask)) => mask.iter().filter(|&&keep| keep).count().max(1),
                _ => micro.length,
            };
            let factor = T::one() / T::of(n as f64).sqrt();
            x.as_flattened_mut().iter_mut().for_each(|x| *x *= factor);
        }
    }
}
