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
use crate::arch::vectorize;
use crate::config::{Positions, Precision};
use crate::kernels::cross_entropy::{self, Score};
use crate::kernels::dense;
use crate::kernels::dropout::{Dropout, Site};
use crate::kernels::embedding;
use crate::panel::{Buffer, LANES, Lanes, panels};
use crate::profile::{Part, time};
use crate::real::Real;
use crate::task::Batch;

/// Bytes of f32 activations a micro-batch may take: what a 2 MiB level-2 cache leaves beside
/// weights. A fixed figure, not the machine's: it decides the order of summation.
const ACTIVATION_BYTES: usize = 3 << 19;

/// The most sequences in a micro-batch.
const MOST_SEQUENCES: usize = 64;

/// Parts of a batch whose gradients are computed apart and then added in order, so that threads
/// can share the work and the bits do not depend on their number.
const GROUPS: usize = 4;

/// A model, without parameter values.
pub struct Model<T: Real> {
    architecture: Architecture,
    network: Network<T>,
    /// One per thread.
    workspaces: Vec<Workspace<T>>,
    /// Gradients of groups but the first: one buffer, or with threads one for each.
    partial: Vec<Vec<T>>,
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

impl std::ops::AddAssign for Pass {
    fn add_assign(&mut self, other: Self) {
        self.score += other.score;
        self.embedding_square += other.embedding_square;
    }
}

/// The layers with their packed weights: what a pass reads.
struct Network<T: Real> {
    dim: usize,
    /// The longest sequence the workspace has room for.
    length: usize,
    precision: Precision,
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
    products: dense::Scratch<T>,
}

impl<T: Real> Model<T> {
    /// A model with buffers for sequences up to `length`.
    pub fn new(architecture: Architecture, length: usize, precision: Precision) -> Self {
        let layers: Vec<_> = (0..architecture.layers)
            .map(|index| Layer::new(&architecture, index, precision))
            .collect();
        let network = Network {
            dim: architecture.dim,
            length,
            precision,
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
            readout: Readout::new(&architecture, precision),
        };
        let workspaces = vec![network.workspace(most_panels(&architecture, length))];
        let partial = vec![vec![T::zero(); architecture.parameter_count()]];
        Self { architecture, network, workspaces, partial }
    }

    /// The same model on up to this many threads; more than [`Model::most_threads`] are not
    /// used. Results are the same to the bit.
    pub fn with_threads(mut self, threads: usize) -> Self {
        let threads = threads.clamp(1, Self::most_threads());
        let panels = most_panels(&self.architecture, self.network.length);
        self.workspaces.resize_with(threads, || self.network.workspace(panels));
        let partial = if threads == 1 { 1 } else { GROUPS - 1 };
        let parameters = self.architecture.parameter_count();
        self.partial.resize_with(partial, || vec![T::zero(); parameters]);
        self
    }

    /// The most threads a model can use.
    pub fn most_threads() -> usize {
        GROUPS
    }

    /// An estimate of the bytes [`Model::new`] allocates.
    pub fn workspace_bytes(architecture: &Architecture, length: usize) -> u64 {
        let panels = most_panels(architecture, length);
        let answers = Readout::<T>::answer_panels(architecture.readout, panels, MOST_SEQUENCES);
        let width = architecture.readout_width();
        let classes = Readout::<T>::most_classes(architecture.readout, width, length);
        let logits = answers as u64 * classes as u64;
        // Logits and their transpose; weights packed both ways, and the gradient of a group.
        let tokens = panels as u64 * token_bytes(architecture) as u64;
        LANES as u64 * (tokens + 8 * logits) + 12 * architecture.parameter_count() as u64
    }

    /// Function and parameter list.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Adds the gradient of the batch's loss, the mean over the answers that count, to `gradient`
    /// (L2 penalty aside) and scores the batch.
    ///
    /// # Panics
    /// If the batch is empty or longer than the buffers, or a token is beyond the vocabulary.
    pub fn loss_and_gradient(
        &mut self,
        parameters: &[T],
        batch: &Batch,
        dropout: Option<Dropout>,
        gradient: &mut [T],
    ) -> Pass {
        assert!(batch.sequences() > 0, "a batch without sequences");
        self.network.pack(parameters);
        let factor = T::one() / T::of(batch.answers() as f64);
        let groups = self.groups(batch);
        let Self { network, workspaces, partial, .. } = self;
        let run = |workspace: &mut Workspace<T>, group: usize, gradient: &mut [T]| {
            network.gradient(
                parameters,
                batch,
                dropout,
                factor,
                &groups[group],
                gradient,
                workspace,
            )
        };
        let add = |gradient: &mut [T], partial: &[T]| {
            vectorize(
                #[inline(always)]
                || gradient.iter_mut().zip(partial).for_each(|(g, &partial)| *g += partial),
            );
        };
        let used = groups.iter().filter(|group| !group.is_empty()).count();
        if workspaces.len() == 1 || used == 1 {
            let mut pass = run(&mut workspaces[0], 0, gradient);
            for group in 1..used {
                partial[0].fill(T::zero());
                pass += run(&mut workspaces[0], group, &mut partial[0]);
                add(gradient, &partial[0]);
            }
            return pass;
        }
        let mut passes = [Pass::default(); GROUPS];
        {
            let buffers =
                std::iter::once(&mut *gradient).chain(partial.iter_mut().map(|partial| {
                    partial.fill(T::zero());
                    &mut partial[..]
                }));
            let mut jobs: Vec<_> = buffers.zip(&mut passes).enumerate().take(used).collect();
            let share = jobs.len().div_ceil(workspaces.len());
            std::thread::scope(|scope| {
                let mut shares = jobs.chunks_mut(share).zip(workspaces).map(|(jobs, workspace)| {
                    || {
                        for (group, (gradient, pass)) in jobs {
                            **pass = run(workspace, *group, gradient);
                        }
                    }
                });
                let own = shares.next();
                shares.for_each(|share| {
                    scope.spawn(share);
                });
                own.into_iter().for_each(|share| share());
            });
        }
        partial[..used - 1].iter().for_each(|partial| add(gradient, partial));
        let mut pass = passes[0];
        passes[1..used].iter().for_each(|other| pass += *other);
        pass
    }

    /// Scores a batch and writes the answer of each row of logits (each target's).
    ///
    /// # Panics
    /// As [`Model::loss_and_gradient`].
    pub fn answers(&mut self, parameters: &[T], batch: &Batch, answers: &mut Vec<u32>) -> Score {
        assert!(batch.sequences() > 0, "a batch without sequences");
        answers.resize(batch.targets.len(), 0);
        self.network.pack(parameters);
        let each = batch.targets.len() / batch.sequences();
        let groups = self.groups(batch);
        let Self { network, workspaces, .. } = self;
        let run = |workspace: &mut Workspace<T>, sequences: &Sequences, answers: &mut [u32]| {
            let (first, mut total) = (sequences.range.start * each, Score::default());
            network.forward_each(parameters, batch, sequences, workspace, |micro, logits| {
                total += network.readout.score(micro, batch, logits, |logits, targets, rows| {
                    let answers = &mut answers[rows.start - first..rows.end - first];
                    time(Part::Loss, || cross_entropy::answers(logits, targets, answers))
                });
            });
            total
        };
        let mut scores = [Score::default(); GROUPS];
        let mut rest = &mut answers[..];
        let mut jobs = groups.iter().zip(&mut scores).map(|(sequences, score)| {
            let (own, others) =
                std::mem::take(&mut rest).split_at_mut(sequences.range.len() * each);
            rest = others;
            (sequences, score, own)
        });
        if workspaces.len() == 1 {
            jobs.for_each(|(sequences, score, answers)| {
                *score = run(&mut workspaces[0], sequences, answers);
            });
        } else {
            let share = GROUPS.div_ceil(workspaces.len());
            std::thread::scope(|scope| {
                for workspace in workspaces {
                    let jobs: Vec<_> = jobs.by_ref().take(share).collect();
                    scope.spawn(|| {
                        for (sequences, score, answers) in jobs {
                            *score = run(workspace, sequences, answers);
                        }
                    });
                }
            });
        }
        let mut total = Score::default();
        scores.iter().for_each(|score| total += *score);
        total
    }

    /// The logits of a batch: `[rows, classes]` with a row per target.
    ///
    /// # Panics
    /// As [`Model::loss_and_gradient`].
    pub fn logits(&mut self, parameters: &[T], batch: &Batch, out: &mut Vec<T>) {
        out.clear();
        self.network.pack(parameters);
        let groups = self.groups(batch);
        let Self { network, workspaces, .. } = self;
        for sequences in &groups {
            network.forward_each(
                parameters,
                batch,
                sequences,
                &mut workspaces[0],
                |micro, logits| {
                    network.readout.score(micro, batch, logits, |logits, targets, _| {
                        for lane in 0..targets.classes.len() {
                            out.extend(logits.iter().map(|row| row[lane]));
                        }
                        Score::default()
                    });
                },
            );
        }
    }

    /// The sequences of each group, whole micro-batches.
    fn groups(&self, batch: &Batch) -> [Sequences; GROUPS] {
        let (n, room) = (batch.length, self.network.length);
        assert!(n <= room, "sequences of {n} exceed the buffers for {room}");
        let (most, total) = (micro_sequences(&self.architecture, n), batch.sequences());
        let micro_batches = total.div_ceil(most);
        // With fewer micro-batches than groups the last groups are empty.
        let used = GROUPS.min(micro_batches.max(1));
        let place = |group: usize| total.min(group.min(used) * micro_batches / used * most);
        std::array::from_fn(|group| Sequences { range: place(group)..place(group + 1), most })
    }
}

/// Sequences of a batch that go through the model a few at a time.
struct Sequences {
    range: Range<usize>,
    /// How many at a time.
    most: usize,
}

impl Sequences {
    fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The sequences of each micro-batch.
    fn micro_batches(&self) -> impl Iterator<Item = Range<usize>> {
        let Self { range, most } = self;
        range.clone().step_by(*most).map(move |first| first..range.end.min(first + most))
    }
}

impl<T: Real> Network<T> {
    fn workspace(&self, panels: usize) -> Workspace<T> {
        let d = self.dim;
        let scratch =
            self.layers.first().map(|layer| layer.scratch(panels, self.length, self.precision));
        Workspace {
            keep: Buffer::new(panels),
            streams: (0..=self.layers.len()).map(|_| Buffer::new(panels * d)).collect(),
            caches: self.layers.iter().map(|layer| layer.cache(panels)).collect(),
            scratch: scratch.unwrap_or_default(),
            dstream: Buffer::new(panels * d),
            read: Buffer::new(panels * d),
            dread: Buffer::new(panels * d),
            logits: Buffer::new(self.readout.logit_rows(panels, MOST_SEQUENCES, self.length)),
            products: self.readout.products(panels, MOST_SEQUENCES, self.precision),
        }
    }

    /// Takes over the parameters' values.
    fn pack(&mut self, parameters: &[T]) {
        self.layers.iter_mut().for_each(|layer| layer.pack(parameters));
        self.readout.pack(parameters);
    }

    /// Adds the gradient of some sequences and scores them.
    fn gradient(
        &self,
        parameters: &[T],
        batch: &Batch,
        dropout: Option<Dropout>,
        factor: T,
        sequences: &Sequences,
        gradient: &mut [T],
        workspace: &mut Workspace<T>,
    ) -> Pass {
        let mut pass = Pass::default();
        let mut keep = std::mem::take(&mut workspace.keep);
        for range in sequences.micro_batches() {
            let micro = Micro::new(batch, range.start, range.len(), dropout, &mut keep);
            self.forward(parameters, &micro, workspace);
            pass.score +=
                self.readout.score(&micro, batch, &mut workspace.logits, |logits, targets, _| {
                    let loss = || cross_entropy::loss_and_gradient(logits, targets, factor);
                    time(Part::Loss, loss)
                });
            pass.embedding_square += self.backward(parameters, &micro, gradient, workspace);
        }
        workspace.keep = keep;
        pass
    }

    /// Calls `with` with the logits of each micro-batch.
    fn forward_each(
        &self,
        parameters: &[T],
        batch: &Batch,
        sequences: &Sequences,
        workspace: &mut Workspace<T>,
        mut with: impl FnMut(&Micro<T>, &mut [Lanes<T>]),
    ) {
        let mut keep = std::mem::take(&mut workspace.keep);
        for range in sequences.micro_batches() {
            let micro = Micro::new(batch, range.start, range.len(), None, &mut keep);
            self.forward(parameters, &micro, workspace);
            with(&micro, &mut workspace.logits);
        }
        workspace.keep = keep;
    }

    /// Fills the caches and logits.
    fn forward(&self, parameters: &[T], micro: &Micro<T>, workspace: &mut Workspace<T>) {
        let d = self.dim;
        let (rows, each) = (micro.panels() * d, micro.panels_each() * d);
        let positions = match &self.learned_positions {
            Some(range) => Some(&parameters[range.clone()]),
            None => Some(&self.sinusoids[..]).filter(|table| !table.is_empty()),
        };
        let Workspace { streams, caches, scratch, read, logits, products, .. } = workspace;
        let x = &mut streams[0][..rows];
        let table = &parameters[self.embedding.clone()];
        for (ids, x) in micro.ids.chunks_exact(micro.length).zip(x.chunks_exact_mut(each)) {
            time(Part::Embedding, || embedding::forward(table, positions, ids, d, x));
        }
        micro.drop(Site::Embedding, x, d);
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = streams.split_at_mut(index + 1);
            let (x, out) = (&mut before[index][..rows], &mut after[0][..rows]);
            layer.forward(parameters, micro, x, out, &mut caches[index], scratch);
        }
        self.readout.forward(micro, &streams[self.layers.len()][..rows], read, logits, products);
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
        let Workspace { streams, caches, scratch, dstream, read, dread, logits, products, .. } =
            workspace;
        let stream = &mut dstream[..rows];
        let last = &streams[self.layers.len()][..rows];
        self.readout.backward(micro, last, stream, gradient, [read, dread, logits], products);
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
            let dpositions = dpositions.as_deref_mut();
            time(Part::Embedding, || embedding::backward(ids, d, dx, dtable, dpositions));
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
