//! Aggregators: how the tokens of a sequence become the vector that is added to each token.
//!
//! An attention rule maps a query's row of logits `z` to a row of weights `w`; the aggregated
//! vector is `sum_j w_j v_j`. To add one, write a file here with a unit struct that implements
//! [`AttentionRule`] and add one line to [`attention_rules`]; it can then be trained, swept,
//! compared and plotted. A pooling (no queries or keys) implements [`Pooling`] and is listed in
//! [`poolings`].

pub mod linear;
mod max;
mod mean;
mod no_norm;
mod normalized;
mod normalized_l2;
pub mod quadratic;
mod softmax;
mod sum;

use std::ops::Range;

use crate::arch::Vector;
use crate::panel::{LANES, Lanes, Panels, PanelsMut};
use crate::real::Real;

/// Every attention rule: the registry.
pub fn attention_rules<T: Real>() -> Vec<&'static dyn AttentionRule<T>> {
    vec![&normalized::Normalized, &normalized_l2::NormalizedL2, &no_norm::NoNorm, &softmax::Softmax]
}

/// Every pooling: the registry.
pub fn poolings<T: Real>() -> Vec<&'static dyn Pooling<T>> {
    vec![&sum::Sum, &max::Max, &mean::Mean]
}

/// The learned `N x N` mixing matrix over positions (a dense layer along the sequence axis).
/// Not an attention rule and not a pooling: it has parameters of its own and works at one
/// length only.
pub const WEIGHTED: &str = "weighted";

/// How an aggregator is called, what it computes and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Stable name, as configurations spell it.
    pub name: &'static str,
    /// The equation, in plain text.
    pub equation: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

/// The names of all aggregators, attention rules first.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = attention_rules::<f32>().iter().map(|r| r.info().name).collect();
    names.extend(poolings::<f32>().iter().map(|p| p.info().name));
    names.push(WEIGHTED);
    names
}

/// An aggregator, found by name.
#[derive(Clone, Copy)]
pub enum Kind<T: Real> {
    /// Weights from queries and keys.
    Attention(&'static dyn AttentionRule<T>),
    /// One vector per sequence, given to every token.
    Pooling(&'static dyn Pooling<T>),
    /// A learned mixing matrix over positions.
    Weighted,
}

/// Finds an aggregator by its name.
pub fn find<T: Real>(name: &str) -> Option<Kind<T>> {
    if name == WEIGHTED {
        return Some(Kind::Weighted);
    }
    let rule = attention_rules::<T>().into_iter().find(|r| r.info().name == name);
    let pooling = || poolings::<T>().into_iter().find(|p| p.info().name == name);
    rule.map(Kind::Attention).or_else(|| pooling().map(Kind::Pooling))
}

/// Whether the attention rule of this name has an exact linear-time form.
pub fn has_linear_form(name: &str) -> bool {
    matches!(find::<f32>(name), Some(Kind::Attention(rule)) if rule.linear().is_some())
}

/// What a rule needs to know to treat one row of logits.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a, T> {
    /// `true` for the keys that take part; `None` if all do.
    pub mask: Option<&'a [bool]>,
    /// The head's gain g (1 where the model has none).
    pub gain: T,
    /// The head's bias b (0 where the model has none).
    pub bias: T,
    /// Added to the deviation or norm the row is divided by.
    pub epsilon: T,
    /// NAP-L2: whether the mean is subtracted first.
    pub centre: bool,
}

impl<T: Real> Row<'_, T> {
    /// Whether key `j` takes part.
    #[inline]
    pub fn keeps(&self, j: usize) -> bool {
        self.mask.is_none_or(|m| m[j])
    }

    /// `x` for a key that takes part, else 0.
    #[inline(always)]
    fn if_kept<V: Vector<T>>(&self, token: V::Token, j: usize, x: V) -> V {
        if self.keeps(j) { x } else { V::splat(token, T::zero()) }
    }

    /// The number of keys that take part, of `n`.
    pub fn count(&self, n: usize) -> usize {
        self.mask.map_or(n, |m| m.iter().filter(|&&keep| keep).count())
    }
}

/// Defaults of a rule that configurations may override.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    /// Whether each head learns a gain.
    pub gain: bool,
    /// Whether each head learns a bias.
    pub bias: bool,
    /// Added to the deviation or norm.
    pub epsilon: f64,
    /// Whether logits are divided by sqrt(d_h).
    pub scaled: bool,
    /// Whether LayerNorm follows the concatenated heads in the inner-norm layout.
    pub hidden_norm: bool,
    /// Whether the aggregated vector is divided by sqrt(n) instead (NON).
    pub rescale: bool,
}

/// The weights of a tile, as a kernel: `z, w: [n][16]`.
struct Weights<'a, T> {
    row: &'a Row<'a, T>,
    z: &'a [Lanes<T>],
    w: &'a mut [Lanes<T>],
}

/// The backward pass of a tile, as a kernel: `z, w, dw: [n][16]`; dw becomes dz.
struct Backward<'a, T> {
    row: &'a Row<'a, T>,
    z: &'a [Lanes<T>],
    w: &'a [Lanes<T>],
    dw: &'a mut [Lanes<T>],
}

/// A map from a query's row of logits to a row of weights.
///
/// The two required methods are the naive reference: plain loops that read like the equation.
/// The engine's vectorised forms live beside them in the rule's file and are tested against
/// them.
pub trait AttentionRule<T: Real>: Send + Sync {
    /// Name, equation and source.
    fn info(&self) -> Info;

    /// What configurations get unless they say otherwise.
    fn defaults(&self) -> Defaults;

    /// The exact linear-time form of this rule, if it has one.
    fn linear(&self) -> Option<linear::Linear> {
        None
    }

    /// Writes the weights `w` of one query's logits `z`. Masked keys get weight 0.
    fn weights(&self, row: &Row<T>, z: &[T], w: &mut [T]);

    /// Given the logits and the gradient `dw` of the weights, writes the gradient `dz` of the
    /// logits (0 for masked keys) and returns the gradients of gain and bias.
    fn backward(&self, row: &Row<T>, z: &[T], dw: &[T], dz: &mut [T]) -> (T, T);

    /// [`AttentionRule::weights`] of 16 queries side by side, `z, w: [n][16]`. Override it with
    /// a vectorised form.
    fn weights_tile(&self, row: &Row<T>, z: &[Lanes<T>], w: &mut [Lanes<T>]) {
        let (mut z_lane, mut w_lane) = (vec![T::zero(); z.len()], vec![T::zero(); z.len()]);
        for lane in 0..LANES {
            z_lane.iter_mut().zip(z).for_each(|(to, z)| *to = z[lane]);
            self.weights(row, &z_lane, &mut w_lane);
            w.iter_mut().zip(&w_lane).for_each(|(w, &from)| w[lane] = from);
        }
    }

    /// [`AttentionRule::backward`] of 16 queries side by side: turns `dw: [n][16]` into the
    /// gradient of the logits in place, where `w` are the weights; returns the gradients of gain
    /// and bias per query. Override it with a vectorised form.
    fn backward_tile(
        &self,
        row: &Row<T>,
        z: &[Lanes<T>],
        _w: &[Lanes<T>],
        dw: &mut [Lanes<T>],
    ) -> [Lanes<T>; 2] {
        let zeros = || vec![T::zero(); z.len()];
        let (mut z_lane, mut dw_lane, mut dz_lane) = (zeros(), zeros(), zeros());
        let mut totals = [[T::zero(); LANES]; 2];
        for lane in 0..LANES {
            z_lane.iter_mut().zip(z).for_each(|(to, z)| *to = z[lane]);
            dw_lane.iter_mut().zip(&*dw).for_each(|(to, dw)| *to = dw[lane]);
            let (dgain, dbias) = self.backward(row, &z_lane, &dw_lane, &mut dz_lane);
            (totals[0][lane], totals[1][lane]) = (dgain, dbias);
            dw.iter_mut().zip(&dz_lane).for_each(|(dw, &from)| dw[lane] = from);
        }
        totals
    }
}

/// One head of one sequence: queries, keys and values `[width]` per token, in panels.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a, T> {
    /// Queries.
    pub q: Panels<'a, T>,
    /// Keys.
    pub k: Panels<'a, T>,
    /// Values.
    pub v: Panels<'a, T>,
    /// 1 for the tokens that take part, 0 for masked and padded ones; a row per panel.
    pub keep: &'a [Lanes<T>],
    /// Number of tokens n.
    pub length: usize,
    /// z = scale * q.k
    pub scale: T,
    /// Mask, gain, bias and epsilon.
    pub row: Row<'a, T>,
}

impl<T: Real> Head<'_, T> {
    /// Width d_h.
    pub fn width(&self) -> usize {
        self.q.height()
    }

    /// The number of unmasked keys, at least 1.
    fn count(&self) -> T {
        T::of(self.row.count(self.length).max(1) as f64)
    }
}

/// Where the gradients of a head's queries, keys and values go: rows of the same panels.
#[derive(Debug)]
pub struct HeadGradient<'a, T> {
    /// The panels.
    pub panels: PanelsMut<'a, T>,
    /// Their rows of queries, keys and values.
    pub rows: [Range<usize>; 3],
}

impl<T> HeadGradient<'_, T> {
    /// The queries' gradient.
    pub fn q(&mut self) -> PanelsMut<'_, T> {
        self.panels.reborrow().rows(self.rows[0].clone())
    }

    /// The keys' gradient.
    pub fn k(&mut self) -> PanelsMut<'_, T> {
        self.panels.reborrow().rows(self.rows[1].clone())
    }

    /// The values' gradient.
    pub fn v(&mut self) -> PanelsMut<'_, T> {
        self.panels.reborrow().rows(self.rows[2].clone())
    }
}

/// x where `keep` is not 0, else `other`.
#[inline(always)]
fn kept<T: Real, V: Vector<T>>(token: V::Token, x: V, keep: &Lanes<T>, other: T) -> V {
    V::load(token, keep).if_equal(V::splat(token, T::zero()), V::splat(token, other), x)
}

/// One vector per sequence from its tokens, without parameters.
///
/// The first two methods are the naive reference, on token-major data; the others are the
/// engine's, on panels.
pub trait Pooling<T: Real>: Send + Sync {
    /// Name, equation and source.
    fn info(&self) -> Info;

    /// Pools the tokens `x: [n, d]` that `mask` keeps into `out: [d]`.
    fn forward(&self, x: &[T], mask: Option<&[bool]>, out: &mut [T]);

    /// Adds to `dx: [n, d]` the gradient that `dout: [d]` sends back; `x` and `out` are those
    /// of the forward pass.
    fn backward(&self, x: &[T], mask: Option<&[bool]>, out: &[T], dout: &[T], dx: &mut [T]);

    /// [`Pooling::forward`] on panels: `x: [panels][d]`, `keep: [panels]` as in [`Head::keep`].
    fn pool(&self, x: &[Lanes<T>], keep: &[Lanes<T>], out: &mut [T]);

    /// [`Pooling::backward`] on panels.
    fn pool_backward(
        &self,
        x: &[Lanes<T>],
        keep: &[Lanes<T>],
        out: &[T],
        dout: &[T],
        dx: &mut [Lanes<T>],
    );

    /// What [`Masking::Reference`](crate::config::Masking) makes of a masked token's own stream
    /// before pooling: each x becomes `factor * x + shift`, for this (factor, shift).
    fn reference_mask(&self) -> (T, T);
}

/// The rows of `x: [n, d]` that the mask keeps, with their positions.
pub(crate) fn kept_rows<'a, T>(
    x: &'a [T],
    mask: Option<&'a [bool]>,
    d: usize,
) -> impl Iterator<Item = (usize, &'a [T])> {
    x.chunks_exact(d).enumerate().filter(move |(j, _)| mask.is_none_or(|m| m[*j]))
}
