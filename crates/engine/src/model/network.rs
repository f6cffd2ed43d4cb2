//! The whole model, a few sequences at a time.
//!
//! Nothing in these models mixes sequences, so a batch is cut into micro-batches that go forward
//! and backward through all layers while their activations stay in cache; gradients accumulate.
//! The size of a micro-batch depends on the model's shape alone, so the bits do not depend on
//! the machine.

use std::ops::Range;

use super::architecture::Architecture;
use super::layer::{self, Layer};
use super::micro::Micro;
use super::readout::Readout;
use crate::arch::Transposed;
use crate::config::Positions;
use crate::kernels::cross_entropy::{self, Score};
use crate::kernels::dropout::{Dropout, Site};
use crate::kernels::embedding;
use crate::panel::{Buffer, LANES, Lanes, panels};
use crate::real::Real;
use crate::task::Batch;

/// Bytes of f32 activations a micro-batch may take: what a 2 MiB level-2 cache leaves beside
/// weights. A fixed figure, not the machine's: it decides the order of summation.
const ACTIVATION_BYTES: usize = 3 << 19;

/// The most sequences in a micro-batch.
const MOST_SEQUENCES: usize = 64;

/// A model, without parameter values.
pub struct Model<T: Real> {
    architecture: Architecture,
    network: Network<T>,
    workspace: Workspace<T>,
}

/// What a training step's gradient pass found, besides the gradient.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pass {
    /// The batch's score.
    pub score: Score,
    /// Sum of squares of the gradient at the embedding's output, before equal tokens are
    /// summed: what the authors' clipping of the embedding uses.
    pub embedding_square: f64,
}

/// The layers with their packed weights: what a pass reads.
struct Network<T: Real> {
    dim: usize,
    /// The longest sequence the workspace has room for.
    length: usize,
    layers: Vec<Layer<T>>,
    embedding: Range<usize>,
    learned_positions: Option<Range<usize>>,
    /// Sinusoids, `[>= length, d]`, if the model uses them.
    sinusoids: Vec<T>,
    readout: Readout<T>,
}

/// Activations and gradients of one micro-batch: what a pass writes.
struct Workspace<T> {
    keep: Buffer<T>,
    /// The stream before each layer and after the last, `[panels][d]` each.
    streams: Vec<Buffer<T>>,
    caches: Vec<layer::Cache<T>>,
    scratch: layer::Scratch<T>,
    dstream: Buffer<T>,
    /// The tokens read out, `[panels][d]`, or their logits where each has one.
    read: Buffer<T>,
    dread: Buffer<T>,
    /// `[panels of answers][classes]`
    logits: Buffer<T>,
    transposed: Transposed<T>,
}

impl<T: Real> Model<T> {
    /// A model with buffers for sequences up to `length`.
    pub fn new(architecture: Architecture, length: usize) -> Self {
        let layers: Vec<_> =
            (0..architecture.layers).map(|index| Layer::new(&architecture, index)).collect();
        let network = Network {
            dim: architecture.dim,
            length,
            layers,
            embedding: architecture.range("embedding"),
            learned_positions: architecture.find_range("position_embedding"),
            sinusoids: match architecture.positions {
                Positions::Sinusoidal => {
                    let values = architecture.sinusoids(length);
                    values.into_iter().map(|x| T::of(f64::from(x))).collect()
                }
                Positions::None | Positions::Learned => Vec::new(),
            },
            readout: Readout::new(&architecture),
        };
        let workspace = network.workspace(most_panels(&architecture, length));
        Self { architecture, network, workspace }
    }

    /// An estimate of the bytes [`Model::new`] allocates.
    pub fn workspace_bytes(architecture: &Architecture, length: usize) -> u64 {
        let logits = match architecture.readout {
            crate::config::Readout::EachTokenPosition => length,
            _ => 1,
        };
        let per_token = token_bytes(architecture) + 4 * logits;
        let packed = 8 * architecture.parameter_count() as u64;
        packed + (most_panels(architecture, length) * LANES) as u64 * per_token as u64
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
        self.network.pack(parameters);
        let mut pass = Pass::default();
        let factor = T::one() / T::of(batch.targets.len() as f64);
        let Workspace { keep, .. } = &mut self.workspace;
        let mut keep = std::mem::take(keep);
        for range in self.micro_batches(batch) {
            let micro = Micro::new(batch, range.start, range.len(), dropout, &mut keep);
            let workspace = &mut self.workspace;
            self.network.forward(parameters, &micro, workspace);
            let score = |logits: &mut [Lanes<T>], targets: &[u32], _: Range<usize>| -> Score {
                cross_entropy::loss_and_gradient(logits, targets, factor)
            };
            pass.score += self.network.readout.score(&micro, batch, &mut workspace.logits, score);
            pass.embedding_square += self.network.backward(parameters, &micro, gradient, workspace);
        }
        self.workspace.keep = keep;
        pass
    }

    /// Scores a batch and writes the answer of each row of logits (each target's).
    ///
    /// # Panics
    /// As [`Model::loss_and_gradient`].
    pub fn answers(&mut self, parameters: &[T], batch: &Batch, answers: &mut Vec<u32>) -> Score {
        answers.resize(batch.targets.len(), 0);
        let mut total = Score::default();
        self.each_micro_batch(parameters, batch, |readout, micro, logits| {
            total += readout.score(micro, batch, logits, |logits, targets, rows| {
                cross_entropy::answers(logits, targets, &mut answers[rows])
            });
        });
        total
    }

    /// The logits of a batch: `[rows, classes]` with a row per target.
    ///
    /// # Panics
    /// As [`Model::loss_and_gradient`].
    pub fn logits(&mut self, parameters: &[T], batch: &Batch, out: &mut Vec<T>) {
        out.clear();
        self.each_micro_batch(parameters, batch, |readout, micro, logits| {
            readout.score(micro, batch, logits, |logits, targets, _| {
                for lane in 0..targets.len() {
                    out.extend(logits.iter().map(|row| row[lane]));
                }
                Score::default()
            });
        });
    }

    /// Calls `with` with the logits of each micro-batch.
    fn each_micro_batch(
        &mut self,
        parameters: &[T],
        batch: &Batch,
        mut with: impl FnMut(&Readout<T>, &Micro<T>, &mut [Lanes<T>]),
    ) {
        self.network.pack(parameters);
        let mut keep = std::mem::take(&mut self.workspace.keep);
        for range in self.micro_batches(batch) {
            let micro = Micro::new(batch, range.start, range.len(), None, &mut keep);
            self.network.forward(parameters, &micro, &mut self.workspace);
            with(&self.network.readout, &micro, &mut self.workspace.logits);
        }
        self.workspace.keep = keep;
    }

    /// The sequences of each micro-batch.
    fn micro_batches(&self, batch: &Batch) -> impl Iterator<Item = Range<usize>> + use<T> {
        let (n, room) = (batch.length, self.network.length);
        assert!(n <= room, "sequences of {n} exceed the buffers for {room}");
        let (most, total) = (micro_sequences(&self.architecture, n), batch.sequences());
        (0..total).step_by(most).map(move |first| first..total.min(first + most))
    }
}

impl<T: Real> Network<T> {
    fn workspace(&self, panels: usize) -> Workspace<T> {
        let d = self.dim;
        let scratch = self.layers.first().map(|layer| layer.scratch(panels, self.length));
        Workspace {
            keep: Buffer::new(panels),
            streams: (0..=self.layers.len()).map(|_| Buffer::new(panels * d)).collect(),
            caches: self.layers.iter().map(|layer| layer.cache(panels)).collect(),
            scratch: scratch.unwrap_or_default(),
            dstream: Buffer::new(panels * d),
            read: Buffer::new(panels * d),
            dread: Buffer::new(panels * d),
            logits: Buffer::new(self.readout.logit_rows(panels, self.length)),
            transposed: Transposed::new(self.readout.width(), panels),
        }
    }

    /// Takes over the parameters' values.
    fn pack(&mut self, parameters: &[T]) {
        self.layers.iter_mut().for_each(|layer| layer.pack(parameters));
        self.readout.pack(parameters);
    }

    /// Fills the caches and logits.
    fn forward(&self, parameters: &[T], micro: &Micro<T>, workspace: &mut Workspace<T>) {
        let d = self.dim;
        let (rows, each) = (micro.panels() * d, micro.panels_each() * d);
        let positions = match &self.learned_positions {
            Some(range) => Some(&parameters[range.clone()]),
            None => Some(&self.sinusoids[..]).filter(|table| !table.is_empty()),
        };
        let Workspace { streams, caches, scratch, read, logits, .. } = workspace;
        let x = &mut streams[0][..rows];
        let table = &parameters[self.embedding.clone()];
        for (ids, x) in micro.ids.chunks_exact(micro.length).zip(x.chunks_exact_mut(each)) {
            embedding::forward(table, positions, ids, d, x);
        }
        micro.drop(Site::Embedding, x, d);
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = streams.split_at_mut(index + 1);
            let (x, out) = (&mut before[index][..rows], &mut after[0][..rows]);
            layer.forward(parameters, micro, x, out, &mut caches[index], scratch);
        }
        self.readout.forward(micro, &streams[self.layers.len()][..rows], read, logits);
    }

    /// From the logits' gradient to the parameters'; returns the square of the gradient at the
    /// embedding's output.
    fn backward(
        &self,
        parameters: &[T],
        micro: &Micro<T>,
        gradient: &mut [T],
        workspace: &mut Workspace<T>,
    ) -> f64 {
        let d = self.dim;
        let (rows, each) = (micro.panels() * d, micro.panels_each() * d);
        let Workspace {
            streams, caches, scratch, dstream, read, dread, logits, transposed, ..
        } = workspace;
        let stream = &mut dstream[..rows];
        let last = &streams[self.layers.len()][..rows];
        self.readout.backward(micro, last, stream, gradient, [read, dread, logits], transposed);
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let (x, cache) = (&streams[index][..rows], &caches[index]);
            layer.backward(parameters, micro, x, stream, cache, gradient, scratch);
        }
        micro.drop(Site::Embedding, stream, d);
        let square = crate::kernels::square(stream.as_flattened());
        let (dtable, mut dpositions) = match &self.learned_positions {
            // The positions follow the token table in the flat buffer.
            Some(positions) => {
                let (table, rest) = gradient.split_at_mut(positions.start);
                (&mut table[self.embedding.clone()], Some(&mut rest[..positions.len()]))
            }
            None => (&mut gradient[self.embedding.clone()], None),
        };
        for (ids, dx) in micro.ids.chunks_exact(micro.length).zip(stream.chunks_exact(each)) {
            embedding::backward(ids, d, dx, dtable, dpositions.as_deref_mut());
        }
        square
    }
}

/// Bytes of f32 activations per token.
fn token_bytes(architecture: &Architecture) -> usize {
    let (d, f) = (architecture.dim, architecture.feed_forward);
    4 * (architecture.layers * (10 * d + 2 * f) + 6 * d + 2 * f)
}

/// Sequences of length `n` that go through the model together.
fn micro_sequences(architecture: &Architecture, n: usize) -> usize {
    let bytes = token_bytes(architecture) * panels(n) * LANES;
    (ACTIVATION_BYTES / bytes).clamp(1, MOST_SEQUENCES)
}

/// The most panels in a micro-batch of sequences up to `length`.
fn most_panels(architecture: &Architecture, length: usize) -> usize {
    let each = panels(length);
    let fit = ACTIVATION_BYTES / (token_bytes(architecture) * LANES);
    fit.min(MOST_SEQUENCES * each).max(each)
}
