//! Read-out: from the last layer's tokens to logits.
//!
//! | read-out | logits of an answer |
//! |---|---|
//! | per token | `x_t . w + b` for each token t of the sequence; minus infinity for masked ones |
//! | first token | `W^T x_0 + b`, positions cut to the sequence |
//! | each token | `W^T x_t + b` for each token's own answer, positions cut to the sequence |
//!
//! Logits are `[panels of answers][classes]`: the lanes are sequences, or for *each token* tokens.
//! Under [`Masking::Reference`] masked tokens have logits like the others.

use std::ops::Range;

use super::architecture::Architecture;
use super::micro::Micro;
use crate::config::{self, Masking, Precision};
use crate::kernels::cross_entropy::{Score, Targets};
use crate::kernels::dense::{self, Dense};
use crate::panel::{LANES, Lanes, Panels, PanelsMut, panels};
use crate::real::Real;
use crate::task::Batch;

/// A read-out with its layer.
#[derive(Debug)]
pub struct Readout<T> {
    kind: config::Readout,
    dense: Dense<T>,
    dim: usize,
    /// Whether masked tokens have no logits of their own.
    masks: bool,
}

impl<T: Real> Readout<T> {
    /// The read-out of a model.
    pub fn new(architecture: &Architecture, precision: Precision) -> Self {
        let dense = Dense::new(architecture.dim, &[architecture.range("head")], precision);
        let masks = architecture.masking == Masking::Clean;
        Self { kind: architecture.readout, dense, dim: architecture.dim, masks }
    }

    /// Takes over the parameters' values.
    pub fn pack(&mut self, parameters: &[T]) {
        self.dense.pack(parameters);
    }

    /// Outputs of the layer.
    pub fn width(&self) -> usize {
        self.dense.output()
    }

    /// Panels of answers that micro-batches of `panels` can have, `sequences` at most.
    pub fn answer_panels(kind: config::Readout, panels: usize, sequences: usize) -> usize {
        if kind.is_each_token() { panels } else { sequences.min(panels).div_ceil(LANES) }
    }

    /// The most classes of an answer of sequences up to `length`.
    pub fn most_classes(kind: config::Readout, width: usize, length: usize) -> usize {
        if kind.is_class() { width } else { width.max(length) }
    }

    /// Rows of logits that micro-batches of `panels` and `sequences`, up to `length` long, can
    /// have.
    pub fn logit_rows(&self, panels: usize, sequences: usize, length: usize) -> usize {
        let classes = Self::most_classes(self.kind, self.width(), length);
        Self::answer_panels(self.kind, panels, sequences) * classes
    }

    /// Buffers for its products.
    pub fn products(
        &self,
        panels: usize,
        sequences: usize,
        precision: Precision,
    ) -> dense::Scratch<T> {
        match self.kind {
            config::Readout::PerToken => dense::Scratch::new(self.dim, panels, precision),
            _ => {
                let answers = Self::answer_panels(self.kind, panels, sequences);
                dense::Scratch::new(self.width().max(self.dim), answers, precision)
            }
        }
    }

    /// Classes of an answer of a sequence of n tokens.
    fn classes(&self, n: usize) -> usize {
        if self.kind.is_class() { self.width() } else { n }
    }

    /// Fills `logits` from the stream `x: [panels][d]`; `read` has room for as much.
    pub fn forward(
        &self,
        micro: &Micro<T>,
        x: &[Lanes<T>],
        read: &mut [Lanes<T>],
        logits: &mut [Lanes<T>],
        products: &mut dense::Scratch<T>,
    ) {
        let (d, classes) = (self.dim, self.classes(micro.length));
        let answers = panels(micro.sequences);
        match self.kind {
            config::Readout::PerToken => {
                let y = &mut read[..micro.panels()];
                self.dense.forward(Panels::new(x, d), PanelsMut::new(y, 1), products);
                each_logit(micro, |s, t, place| {
                    let logit = y[s * micro.panels_each() + t / LANES][t % LANES];
                    let masked = self.masks && micro.mask(s).is_some_and(|mask| !mask[t]);
                    logits[place][s % LANES] = if masked { T::neg_infinity() } else { logit };
                });
            }
            config::Readout::FirstTokenPosition | config::Readout::FirstTokenClass => {
                let read = &mut read[..answers * d];
                // Lanes without a sequence must not keep what an earlier micro-batch left.
                read[(answers - 1) * d..].fill([T::zero(); LANES]);
                for s in 0..micro.sequences {
                    let first = &x[s * micro.panels_each() * d..][..d];
                    let read = read[s / LANES * d..].iter_mut();
                    read.zip(first).for_each(|(read, first)| read[s % LANES] = first[0]);
                }
                let logits = PanelsMut::new(&mut logits[..answers * classes], classes);
                self.dense.forward(Panels::new(read, d), logits, products);
            }
            config::Readout::EachTokenPosition | config::Readout::EachTokenClass => {
                let logits = PanelsMut::new(&mut logits[..micro.panels() * classes], classes);
                self.dense.forward(Panels::new(x, d), logits, products);
            }
        }
    }

    /// Calls `score` with each panel's logits, the targets of its answers and their places in
    /// the batch, and adds up the scores.
    pub fn score(
        &self,
        micro: &Micro<T>,
        batch: &Batch,
        logits: &mut [Lanes<T>],
        mut score: impl FnMut(&mut [Lanes<T>], Targets, Range<usize>) -> Score,
    ) -> Score {
        // Answers that share panels: a sequence's tokens, or all sequences.
        let each_token = self.kind.is_each_token();
        let (groups, answers) =
            if each_token { (micro.sequences, micro.length) } else { (1, micro.sequences) };
        let first = if each_token { micro.first * micro.length } else { micro.first };
        let classes = self.classes(micro.length);
        let mut total = Score::default();
        let mut logits = logits.chunks_exact_mut(classes);
        for group in 0..groups {
            let end = first + (group + 1) * answers;
            for start in (first + group * answers..end).step_by(LANES) {
                let rows = start..end.min(start + LANES);
                let Some(logits) = logits.next() else { unreachable!("one panel per 16 answers") };
                let targets = Targets {
                    classes: &batch.targets[rows.clone()],
                    weights: batch.weights.as_ref().map(|weights| &weights[rows.clone()]),
                };
                total += score(logits, targets, rows);
            }
        }
        total
    }

    /// Overwrites the stream's gradient from the logits', adds to the parameters'.
    pub fn backward(
        &self,
        micro: &Micro<T>,
        x: &[Lanes<T>],
        stream: &mut [Lanes<T>],
        gradient: &mut [T],
        [read, dread, logits]: [&mut [Lanes<T>]; 3],
        products: &mut dense::Scratch<T>,
    ) {
        let (d, classes) = (self.dim, self.classes(micro.length));
        let answers = panels(micro.sequences);
        let (x, dx) = (Panels::new(x, d), PanelsMut::new(stream, d));
        match self.kind {
            config::Readout::PerToken => {
                let dy = &mut dread[..micro.panels()];
                dy.fill([T::zero(); LANES]);
                each_logit(micro, |s, t, place| {
                    // The exponential of minus infinity is not 0 here, only very small.
                    if self.masks && micro.mask(s).is_some_and(|mask| !mask[t]) {
                        return;
                    }
                    dy[s * micro.panels_each() + t / LANES][t % LANES] = logits[place][s % LANES];
                });
                let dy = Panels::new(dy, 1);
                self.dense.backward_input(dy, dx, false, products);
                self.dense.backward_parameters(x, dy, gradient, products);
            }
            config::Readout::FirstTokenPosition | config::Readout::FirstTokenClass => {
                let dlogits = Panels::new(&logits[..answers * classes], classes);
                let (read, dread) = (&read[..answers * d], &mut dread[..answers * d]);
                self.dense.backward_input(dlogits, PanelsMut::new(dread, d), false, products);
                self.dense.backward_parameters(Panels::new(read, d), dlogits, gradient, products);
                stream.fill([T::zero(); LANES]);
                for s in 0..micro.sequences {
                    let first = stream[s * micro.panels_each() * d..].iter_mut();
                    let dread = &dread[s / LANES * d..][..d];
                    first.zip(dread).for_each(|(first, dread)| first[0] = dread[s % LANES]);
                }
            }
            config::Readout::EachTokenPosition | config::Readout::EachTokenClass => {
                let dlogits = Panels::new(&logits[..micro.panels() * classes], classes);
                self.dense.backward_input(dlogits, dx, false, products);
                self.dense.backward_parameters(x, dlogits, gradient, products);
            }
        }
    }
}

/// Calls `with(s, t, row)` for each token t of each sequence s, whose per-token logit is in this
/// row.
fn each_logit<T: Real>(micro: &Micro<T>, mut with: impl FnMut(usize, usize, usize)) {
    for s in 0..micro.sequences {
        for t in 0..micro.length {
            with(s, t, s / LANES * micro.length + t);
        }
    }
}
