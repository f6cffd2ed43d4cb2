//! Kernels on token-major data: the tests' numbers to panels and back.

use nap_engine::kernels::aggregate::linear::{self, Linear};
use nap_engine::kernels::aggregate::{AttentionRule, Head, HeadGradient, Row, quadratic};
use nap_engine::kernels::dropout::Mask;
use nap_engine::panel::{LANES, Lanes, Panels, PanelsMut, panels};
use nap_engine::real::Real;

/// Panels of one sequence `x: [n, d]`; padded lanes copy the first token.
pub fn to_panels<T: Real>(x: &[T], d: usize) -> Vec<Lanes<T>> {
    let mut out = vec![[T::zero(); LANES]; panels(x.len() / d) * d];
    let n = x.len() / d;
    for (index, row) in out.iter_mut().enumerate() {
        let (p, i) = (index / d, index % d);
        for (lane, to) in row.iter_mut().enumerate() {
            let t = p * LANES + lane;
            *to = x[if t < n { t } else { 0 } * d + i];
        }
    }
    out
}

/// Panels of a gradient: padded lanes are 0.
pub fn to_gradient<T: Real>(x: &[T], d: usize) -> Vec<Lanes<T>> {
    let n = x.len() / d;
    let mut out = to_panels(x, d);
    for (index, row) in out.iter_mut().enumerate() {
        let first = index / d * LANES;
        row[n.saturating_sub(first).min(LANES)..].fill(T::zero());
    }
    out
}

/// The tokens `[n, d]` of one sequence's panels.
pub fn from_panels<T: Real>(x: &[Lanes<T>], d: usize, n: usize) -> Vec<T> {
    let at = |index: usize| x[index / d / LANES * d + index % d][index / d % LANES];
    (0..n * d).map(at).collect()
}

/// 1 for the tokens that take part, a row per panel.
pub fn keep<T: Real>(mask: Option<&[bool]>, n: usize) -> Vec<Lanes<T>> {
    let kept = |t: usize| t < n && mask.is_none_or(|mask| mask[t]);
    let row = |p: usize| std::array::from_fn(|lane| T::of(f64::from(kept(p * LANES + lane))));
    (0..panels(n)).map(row).collect()
}

/// One head, token-major.
pub struct OneHead<'a, T: Real> {
    pub rule: &'static dyn AttentionRule<T>,
    /// The linear-time form, or the quadratic one.
    pub form: Option<Linear>,
    pub n: usize,
    pub width: usize,
    pub scale: T,
    pub row: Row<'a, T>,
}

impl<T: Real> OneHead<'_, T> {
    /// The aggregate `[n, width]`.
    pub fn forward(&self, qkv: [&[T]; 3], dropout: Option<Mask>) -> Vec<T> {
        let mut out = vec![[T::zero(); LANES]; panels(self.n) * self.width];
        self.with(qkv, |head| {
            let out = PanelsMut::new(&mut out, self.width);
            match self.form {
                Some(form) => {
                    form.forward(head, out, &mut linear::Scratch::new(self.n, self.width));
                }
                None => {
                    let scratch = &mut quadratic::Scratch::new(self.n);
                    quadratic::forward(self.rule, head, dropout, out, scratch);
                }
            }
        });
        from_panels(&out, self.width, self.n)
    }

    /// The gradients of queries, keys, values `[n, width]`, of gain and bias. Also checks that
    /// padded lanes get none.
    pub fn backward(
        &self,
        qkv: [&[T]; 3],
        dout: &[T],
        dropout: Option<Mask>,
    ) -> ([Vec<T>; 3], [T; 2]) {
        let (n, w) = (self.n, self.width);
        let dout = to_gradient(dout, w);
        let mut all = vec![[T::one(); LANES]; panels(n) * 3 * w];
        let (dgain, dbias) = self.with(qkv, |head| {
            let rows = [0..w, w..2 * w, 2 * w..3 * w];
            let gradient = HeadGradient { panels: PanelsMut::new(&mut all, 3 * w), rows };
            let dout = Panels::new(&dout, w);
            match self.form {
                Some(form) => form.backward(head, dout, gradient, &mut linear::Scratch::new(n, w)),
                None => {
                    let scratch = &mut quadratic::Scratch::new(n);
                    quadratic::backward(self.rule, head, dropout, dout, gradient, scratch)
                }
            }
        });
        let wide = from_panels(&all, 3 * w, n);
        let mut padded = to_gradient(&wide, 3 * w);
        padded.iter_mut().zip(&all).for_each(|(p, all)| {
            p.iter_mut().zip(all).for_each(|(p, all)| *p -= *all);
        });
        assert!(padded.as_flattened().iter().all(|&x| x == T::zero()), "padding has a gradient");
        let part = |i: usize| wide.chunks_exact(3 * w).flat_map(move |t| t[i * w..][..w].to_vec());
        ([0, 1, 2].map(|i| part(i).collect()), [dgain, dbias])
    }

    fn with<R>(&self, qkv: [&[T]; 3], run: impl FnOnce(&Head<T>) -> R) -> R {
        let [q, k, v] = qkv.map(|x| to_panels(x, self.width));
        let [q, k, v] = [&q, &k, &v].map(|x| Panels::new(x, self.width));
        let keep = keep(self.row.mask, self.n);
        let (length, scale, row) = (self.n, self.scale, self.row);
        run(&Head { q, k, v, keep: &keep, length, scale, row })
    }
}

/// Runs a tile kernel on rows of logits `[rows, n]`, 16 queries at a time: `tile` gets
/// `[n][16]` of each input and output. Outputs come back as `[rows, n]`.
pub fn by_tiles<T: Real, const I: usize, const O: usize>(
    inputs: [&[T]; I],
    n: usize,
    mut tile: impl FnMut([&[Lanes<T>]; I], &mut [Vec<Lanes<T>>; O], usize),
) -> [Vec<T>; O] {
    let rows = inputs[0].len() / n;
    let mut outputs = std::array::from_fn(|_| vec![T::zero(); rows * n]);
    for first in (0..rows).step_by(LANES) {
        let count = LANES.min(rows - first);
        let tiles = inputs.map(|x| {
            let key = |j: usize| {
                std::array::from_fn(|lane| {
                    if lane < count { x[(first + lane) * n + j] } else { T::zero() }
                })
            };
            (0..n).map(key).collect::<Vec<Lanes<T>>>()
        });
        let mut results: [Vec<Lanes<T>>; O] = std::array::from_fn(|_| vec![[T::zero(); LANES]; n]);
        tile(std::array::from_fn(|i| &tiles[i][..]), &mut results, count);
        for (output, result) in outputs.iter_mut().zip(&results) {
            for (j, row) in result.iter().enumerate() {
                for lane in 0..count {
                    output[(first + lane) * n + j] = row[lane];
                }
            }
        }
    }
    outputs
}
