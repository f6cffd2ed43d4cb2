//! The whole model, a few sequences at a time.
//!
//! Nothing in these models mixes sequences, so a batch is cut into micro-batches that go forward
//! and backward through all layers while their activations stay in cache; gradients accumulate.
//! The size of a micro-batch depends on the model's shape alone, so the bits do not depend on
//! the machine.

use std::ops::Range;

use super::architecture::Architecture;
use super::layer::{self, Layer};
use crate::arch::{Mat, MatMut, Write};
use crate::config::{Positions, Readout};
use crate::kernels::cross_entropy::{self, Score};
use crate::kernels::dense::Dense;
use crate::kernels::dropout::{Dropout, Mask, Site};
use crate::kernels::embedding;
use crate::real::Real;
use crate::task::Batch;

/// Bytes of f32 activations a micro-batch may take: what a 2 MiB level-2 cache leaves beside
/// weights. A fixed figure, not the machine's: it decides the order of summation.
const ACTIVATION_BYTES: usize = 3 << 19;

/// The most sequences in a micro-batch.
const MOST_SEQUENCES: usize = 64;

/// A few sequences of one length.
#[derive(Debug, Clone, Copy)]
pub struct Micro<'a> {
    /// Token ids, `[sequences, length]`.
    pub ids: &'a [u32],
    /// Number of sequences.
    pub sequences: usize,
    /// Length n of each.
    pub length: usize,
    /// Tokens that take part, `[sequences, length]`.
    mask: Option<&'a [bool]>,
    /// Dropout, when training with it.
    pub dropout: Option<Dropout>,
    /// Place of the first sequence in the batch.
    first: usize,
}

impl<'a> Micro<'a> {
    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.sequences * self.length
    }

    /// The mask of sequence `s`.
    pub fn mask(&self, s: usize) -> Option<&'a [bool]> {
        self.mask.map(|mask| &mask[s * self.length..(s + 1) * self.length])
    }

    /// The dropout mask of sequence `s` at a site.
    pub fn dropout_mask(&self, s: usize, site: Site) -> Option<Mask> {
        self.dropout.map(|dropout| dropout.mask((self.first + s) as u64, site))
    }

    /// Applies dropout to `x: [sequences, ...]`.
    pub fn drop<T: Real>(&self, site: Site, x: &mut [T]) {
        if self.dropout.is_some() {
            let size = x.len() / self.sequences;
            for (s, x) in x.chunks_exact_mut(size).enumerate() {
                if let Some(mut mask) = self.dropout_mask(s, site) {
                    mask.apply(x);
                }
            }
        }
    }

    /// Turns each x of the masked tokens of sequence `s`, `x: [length, d]`, into
    /// `factor x + shift`.
    pub fn alter_masked<T: Real>(&self, s: usize, x: &mut [T], factor: T, shift: T) {
        if let Some(mask) = self.mask(s) {
            let d = x.len() / self.length;
            for (x, _) in x.chunks_exact_mut(d).zip(mask).filter(|(_, keep)| !**keep) {
                x.iter_mut().for_each(|x| *x = factor * *x + shift);
            }
        }
    }
}

/// A model, without parameter values.
pub struct Model<T: Real> {
    architecture: Architecture,
    layers: Vec<Layer<T>>,
    embedding: Range<usize>,
    learned_positions: Option<Range<usize>>,
    head: Range<usize>,
    /// Sinusoids, `[>= length, d]`, if the model uses them.
    sinusoids: Vec<T>,
    /// The longest sequence the buffers have room for.
    length: usize,
    /// The stream before each layer and after the last, `[tokens, d]` each.
    streams: Vec<Vec<T>>,
    caches: Vec<layer::Cache<T>>,
    scratch: layer::Scratch<T>,
    dstream: Vec<T>,
    logits: Vec<T>,
}

/// What a training step's gradient pass found, besides the gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pass {
    /// The batch's score.
    pub score: Score,
    /// Sum of squares of the gradient at the embedding's output, before equal tokens are
    /// summed: what the authors' clipping of the embedding uses.
    pub embedding_square: f64,
}

impl<T: Real> Model<T> {
    /// A model with buffers for sequences up to `length`.
    pub fn new(architecture: Architecture, length: usize) -> Self {
        let layers: Vec<_> =
            (0..architecture.layers).map(|index| Layer::new(&architecture, index)).collect();
        let d = architecture.dim;
        let tokens = most_tokens(&architecture, length);
        let scratch = layers
            .first()
            .map_or_else(layer::Scratch::default, |layer| layer.scratch(tokens, length));
        let sinusoids = architecture.sinusoids(length);
        let logits = tokens * Self::logits_per_token(&architecture, length);
        Self {
            embedding: architecture.range("embedding"),
            learned_positions: architecture.find_range("position_embedding"),
            head: architecture.range("head"),
            sinusoids: sinusoids.into_iter().map(|x| T::of(f64::from(x))).collect(),
            length,
            streams: vec![vec![T::zero(); tokens * d]; layers.len() + 1],
            caches: layers.iter().map(|layer| layer.cache(tokens)).collect(),
            scratch,
            dstream: vec![T::zero(); tokens * d],
            logits: vec![T::zero(); logits],
            layers,
            architecture,
        }
    }

    /// An upper bound, to size a buffer.
    fn logits_per_token(architecture: &Architecture, length: usize) -> usize {
        match architecture.readout {
            Readout::PerToken => 1,
            Readout::FirstTokenPosition | Readout::EachTokenPosition => length,
            Readout::FirstTokenClass => architecture.vocab,
        }
    }

    /// An estimate of the bytes of activations [`Model::new`] allocates.
    pub fn workspace_bytes(architecture: &Architecture, length: usize) -> u64 {
        let per_token =
            token_bytes(architecture) + 4 * Self::logits_per_token(architecture, length);
        most_tokens(architecture, length) as u64 * per_token as u64
    }

    /// Function and parameter list.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Adds the gradient of the mean loss over the batch to `gradient` (L2 penalty aside) and
    /// scores the batch.
    ///
    /// # Panics
    /// If the batch is longer than the buffers, or a token is beyond the vocabulary.
    pub fn loss_and_gradient(
        &mut self,
        parameters: &[T],
        batch: &Batch,
        dropout: Option<Dropout>,
        gradient: &mut [T],
    ) -> Pass {
        let mut pass = Pass { score: Score::default(), embedding_square: 0.0 };
        let factor = T::one() / T::of(batch.targets.len() as f64);
        for micro in self.micro_batches(batch, dropout) {
            let (classes, count) = self.forward(parameters, &micro);
            let targets = targets(batch, &micro);
            let logits = &mut self.logits[..count];
            pass.score += cross_entropy::loss_and_gradient(logits, classes, targets, factor);
            pass.embedding_square += self.backward(parameters, &micro, gradient);
        }
        pass
    }

    /// Scores a batch and writes the answer of each row of logits (each target's).
    ///
    /// # Panics
    /// As [`Model::loss_and_gradient`].
    pub fn answers(&mut self, parameters: &[T], batch: &Batch, answers: &mut Vec<u32>) -> Score {
        answers.resize(batch.targets.len(), 0);
        let mut score = Score::default();
        for micro in self.micro_batches(batch, None) {
            let (classes, count) = self.forward(parameters, &micro);
            let rows = rows(batch, &micro);
            let targets = &batch.targets[rows.clone()];
            let logits = &self.logits[..count];
            score += cross_entropy::answers(logits, classes, targets, &mut answers[rows]);
        }
        score
    }

    /// The logits of a batch: `[rows, classes]` with a row per target.
    ///
    /// # Panics
    /// As [`Model::loss_and_gradient`].
    pub fn logits(&mut self, parameters: &[T], batch: &Batch, logits: &mut Vec<T>) {
        logits.clear();
        for micro in self.micro_batches(batch, None) {
            let (_, count) = self.forward(parameters, &micro);
            logits.extend_from_slice(&self.logits[..count]);
        }
    }

    fn micro_batches<'a>(
        &self,
        batch: &'a Batch,
        dropout: Option<Dropout>,
    ) -> impl Iterator<Item = Micro<'a>> + use<'a, T> {
        let n = batch.length;
        assert!(n <= self.length, "sequences of {n} exceed the buffers for {}", self.length);
        let most = micro_sequences(&self.architecture, n);
        let total = batch.sequences();
        (0..total).step_by(most).map(move |first| {
            let sequences = most.min(total - first);
            let range = first * n..(first + sequences) * n;
            Micro {
                ids: &batch.tokens[range.clone()],
                sequences,
                length: n,
                mask: batch.mask.as_ref().map(|mask| &mask[range]),
                dropout,
                first,
            }
        })
    }

    /// Fills the caches and logits; returns the number of classes and of logits.
    fn forward(&mut self, parameters: &[T], micro: &Micro) -> (usize, usize) {
        let (d, tokens) = (self.architecture.dim, micro.tokens());
        let area = tokens * d;
        let positions = match (&self.learned_positions, self.architecture.positions) {
            (Some(range), _) => Some(&parameters[range.clone()]),
            (None, Positions::Sinusoidal) => Some(&self.sinusoids[..]),
            (None, _) => None,
        };
        let x = &mut self.streams[0][..area];
        let table = &parameters[self.embedding.clone()];
        embedding::forward(table, positions, micro.ids, micro.length, x);
        micro.drop(Site::Embedding, x);
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.streams.split_at_mut(index + 1);
            let (x, out) = (&mut before[index][..area], &mut after[0][..area]);
            layer.forward(parameters, micro, x, out, &mut self.caches[index], &mut self.scratch);
        }
        let (dense, columns) = self.readout(micro);
        let x = read(&self.streams[self.layers.len()], micro, d, self.first_token_only());
        let rows = if self.first_token_only() { micro.sequences } else { tokens };
        let logits = &mut self.logits[..rows * columns];
        dense.forward_strided(&parameters[self.head.clone()], x, logits, columns);
        // Per token, a sequence's logits together are one row.
        let classes =
            if self.architecture.readout == Readout::PerToken { micro.length } else { columns };
        (classes, rows * columns)
    }

    /// From the logits' gradient to the parameters'; returns the square of the gradient at the
    /// embedding's output.
    fn backward(&mut self, parameters: &[T], micro: &Micro, gradient: &mut [T]) -> f64 {
        let (d, tokens, n) = (self.architecture.dim, micro.tokens(), micro.length);
        let area = tokens * d;
        let (dense, columns) = self.readout(micro);
        let first_only = self.first_token_only();
        let x = read(&self.streams[self.layers.len()], micro, d, first_only);
        let stream = &mut self.dstream[..area];
        let (rows, dx) = if first_only {
            stream.fill(T::zero());
            (micro.sequences, MatMut::new(stream, micro.sequences, d, n * d))
        } else {
            (tokens, MatMut::dense(stream, tokens, d))
        };
        let dy = &self.logits[..rows * columns];
        let head = self.head.clone();
        let dhead = &mut gradient[head.clone()];
        dense.backward_strided(&parameters[head], x, dy, dx, Write::Set, dhead, columns);

        for (index, layer) in self.layers.iter().enumerate().rev() {
            let (x, cache) = (&self.streams[index][..area], &self.caches[index]);
            layer.backward(parameters, micro, x, stream, cache, gradient, &mut self.scratch);
        }
        micro.drop(Site::Embedding, stream);
        let square = crate::kernels::square(stream);
        let (dtable, dpositions) = match &self.learned_positions {
            // The positions follow the token table in the flat buffer.
            Some(positions) => {
                let (table, rest) = gradient.split_at_mut(positions.start);
                (&mut table[self.embedding.clone()], Some(&mut rest[..positions.len()]))
            }
            None => (&mut gradient[self.embedding.clone()], None),
        };
        embedding::backward(micro.ids, n, stream, dtable, dpositions);
        square
    }

    fn first_token_only(&self) -> bool {
        matches!(self.architecture.readout, Readout::FirstTokenPosition | Readout::FirstTokenClass)
    }

    /// The read-out layer and how many of its outputs sequences of this length use.
    fn readout(&self, micro: &Micro) -> (Dense, usize) {
        let output = self.architecture.readout_width();
        let used = if self.architecture.readout.is_position() { micro.length } else { output };
        (Dense { input: self.architecture.dim, output }, used)
    }
}

/// The tokens that are read out.
fn read<'a, T>(stream: &'a [T], micro: &Micro, d: usize, first_only: bool) -> Mat<'a, T> {
    if first_only {
        Mat::new(stream, micro.sequences, d, micro.length * d)
    } else {
        Mat::dense(stream, micro.tokens(), d)
    }
}

/// The rows of logits of a micro-batch within the batch: one per target.
fn rows(batch: &Batch, micro: &Micro) -> Range<usize> {
    let per_sequence = batch.targets.len() / batch.sequences();
    micro.first * per_sequence..(micro.first + micro.sequences) * per_sequence
}

fn targets<'a>(batch: &'a Batch, micro: &Micro) -> &'a [u32] {
    &batch.targets[rows(batch, micro)]
}

/// Bytes of f32 activations per token.
fn token_bytes(architecture: &Architecture) -> usize {
    let (d, f) = (architecture.dim, architecture.feed_forward);
    4 * (architecture.layers * (10 * d + 2 * f) + 6 * d + 2 * f)
}

/// Sequences of length `n` that go through the model together.
fn micro_sequences(architecture: &Architecture, n: usize) -> usize {
    (ACTIVATION_BYTES / (token_bytes(architecture) * n)).clamp(1, MOST_SEQUENCES)
}

/// The most tokens in a micro-batch of sequences up to `length`.
fn most_tokens(architecture: &Architecture, length: usize) -> usize {
    (ACTIVATION_BYTES / token_bytes(architecture)).min(MOST_SEQUENCES * length).max(length)
}
