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

    /// [`AttentionRule::weights`] of several queries, `z, w: [rows, n]`. Override it with a
    /// vectorised form.
    fn weights_tile(&self, row: &Row<T>, n: usize, z: &[T], w: &mut [T]) {
        weights_by_row(self, row, n, z, w);
    }

    /// [`AttentionRule::backward`] of several queries, `z, w, dw, dz: [rows, n]`, where `w` are
    /// the weights; returns the sums of the gradients of gain and bias. Override it with a
    /// vectorised form.
    fn backward_tile(
        &self,
        row: &Row<T>,
        n: usize,
        z: &[T],
        _w: &[T],
        dw: &[T],
        dz: &mut [T],
    ) -> (T, T) {
        backward_by_row(self, row, n, z, dw, dz)
    }
}

/// What [`AttentionRule::weights_tile`] does unless overridden; for overrides to fall back on.
fn weights_by_row<T: Real, R: AttentionRule<T> + ?Sized>(
    rule: &R,
    row: &Row<T>,
    n: usize,
    z: &[T],
    w: &mut [T],
) {
    for (z, w) in z.chunks_exact(n).zip(w.chunks_exact_mut(n)) {
        rule.weights(row, z, w);
    }
}

/// What [`AttentionRule::backward_tile`] does unless overridden.
fn backward_by_row<T: Real, R: AttentionRule<T> + ?Sized>(
    rule: &R,
    row: &Row<T>,
    n: usize,
    z: &[T],
    dw: &[T],
    dz: &mut [T],
) -> (T, T) {
    let mut total = (T::zero(), T::zero());
    let rows = z.chunks_exact(n).zip(dw.chunks_exact(n)).zip(dz.chunks_exact_mut(n));
    for ((z, dw), dz) in rows {
        let (dgain, dbias) = rule.backward(row, z, dw, dz);
        total = (total.0 + dgain, total.1 + dbias);
    }
    total
}

/// One head of one sequence: queries, keys and values `[length, width]` whose rows start
/// `stride` apart.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a, T> {
    /// Queries.
    pub q: &'a [T],
    /// Keys.
    pub k: &'a [T],
    /// Values.
    pub v: &'a [T],
    /// Number of tokens n.
    pub length: usize,
    /// Width d_h of the head.
    pub width: usize,
    /// Distance between rows.
    pub stride: usize,
    /// z = scale * q.k
    pub scale: T,
    /// Mask, gain, bias and epsilon.
    pub row: Row<'a, T>,
}

impl<T: Real> Head<'_, T> {
    /// The number of unmasked keys, at least 1.
    fn count(&self) -> T {
        T::of(self.row.count(self.length).max(1) as f64)
    }
}

/// One vector per sequence from its tokens, without parameters.
pub trait Pooling<T: Real>: Send + Sync {
    /// Name, equation and source.
    fn info(&self) -> Info;

    /// Pools the tokens `x: [n, d]` that `mask` keeps into `out: [d]`.
    fn forward(&self, x: &[T], mask: Option<&[bool]>, out: &mut [T]);

    /// Adds to `dx: [n, d]` the gradient that `dout: [d]` sends back; `x` and `out` are those
    /// of the forward pass.
    fn backward(&self, x: &[T], mask: Option<&[bool]>, out: &[T], dout: &[T], dx: &mut [T]);

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
