//! The training loop, evaluation and checkpoints.
//!
//! A [`Trainer`] executes a run one optimiser step at a time, on the caller's thread unless
//! [`Trainer::with_threads`] asks for more. What it
//! computes depends on the configuration alone, on one instruction set to the bit: stopping,
//! checkpointing and resuming change nothing.

mod checkpoint;
mod cost;
mod evaluate;
mod predict;

use serde::{Deserialize, Serialize};

pub use checkpoint::{CheckpointError, Trained};
pub use cost::Cost;
pub use predict::{Answers, Predictor};

use crate::arch;
use crate::config::{ConfigError, Precision, RunConfig};
use crate::data::{self, Data};
use crate::kernels::dropout::Dropout;
use crate::kernels::square;
use crate::model::Model;
use crate::model::architecture::{Architecture, Init};
use crate::optim::{Adam, clip, learning_rate};
use crate::profile::{Part, time};
use crate::random::{Purpose, Stream};
use crate::real::Real;
use crate::task::{Batch, Task};
use cost::memory_bytes;
use evaluate::{Evaluator, Sequences};

/// Changes whenever the same configuration and seed would give other numbers.
pub const NUMERICS_VERSION: u32 = 2;

/// The most memory a run may take, as a guard against typing errors.
const MOST_BYTES: u64 = 1 << 38;

/// What one optimiser step measured, before its update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Mean loss of the batch, L2 penalty included.
    pub loss: f64,
    /// Share of right answers.
    pub accuracy: f64,
}

/// What a model scores on data it is not trained on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Mean loss, L2 penalty included; NaN for a diverged model.
    #[serde(with = "checkpoint::nan_as_null")]
    pub loss: f64,
    /// Share of right answers.
    pub accuracy: f64,
    /// Accuracy per tracked case on the equalised set, in the order of
    /// [`crate::task::Task::cases`]; NaN where the set holds no sequence of that case.
    #[serde(with = "checkpoint::nans_as_null")]
    pub cases: Vec<f64>,
    /// Macro-F1 (see [`crate::data::ClassScore`]), for classes of one's own data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macro_f1: Option<f64>,
}

/// What an epoch measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Counts from 1.
    pub epoch: usize,
    /// Mean loss over the epoch's batches, each before its update. (With data of one's own, a
    /// batch counts as much as it has sequences, in this and the next figure.)
    #[serde(with = "checkpoint::nan_as_null")]
    pub train_loss: f64,
    /// Mean accuracy over the epoch's batches, each before its update.
    pub train_accuracy: f64,
    /// Accuracy per tracked case at the training length, after the epoch.
    #[serde(with = "checkpoint::nans_as_null")]
    pub train_cases: Vec<f64>,
    /// On fresh batches at the validation length, or on the data's validation part, after the
    /// epoch.
    pub validation: Evaluation,
    /// Whether the parameters had become NaN.
    pub diverged: bool,
}

/// A training run, executed one optimiser step at a time.
pub struct Trainer {
    config: RunConfig,
    task: Task,
    model: Model<f32>,
    parameters: Vec<f32>,
    adam: Adam<f32>,
    /// Optimiser steps done in the whole run.
    steps: u64,
    /// Sums over the steps of the current epoch.
    epoch_loss: f64,
    epoch_accuracy: f64,
    diverged: bool,
    history: Vec<EpochRecord>,
    gradient: Vec<f32>,
    batch: Batch,
    own: Option<Own>,
}

/// What a run on data of one's own goes through.
struct Own {
    data: Data,
    /// Weights of the classes, where they differ.
    weights: Option<Vec<f32>>,
    /// The validation examples by length.
    validation: Vec<u32>,
    /// The batches of an epoch.
    batches: Option<(usize, Vec<Vec<u32>>)>,
}

impl Own {
    fn new(config: &RunConfig, data: Data) -> Result<Self, ConfigError> {
        let Some(found) = &config.task.data else {
            let name = config.task.name.as_str();
            return Err(ConfigError::new("task.name", name, "a task on data of one's own"));
        };
        let seen = [data.train.len(), data.validation.len(), data.names.tokens.len()];
        let labels = data.names.labels.len();
        if seen != [found.sequences, found.validation, found.vocab] || labels != found.classes {
            let value = format!("{} and {} sequences", seen[0], seen[1]);
            let expected = format!("the data of {} that the run began with", found.train.0);
            return Err(ConfigError::new("task.data", value, expected));
        }
        let balanced = config.train.class_weights.is_some();
        Ok(Self {
            weights: balanced.then(|| data::balanced(&*data.train, found.classes)),
            validation: data::by_length(&*data.validation),
            batches: None,
            data,
        })
    }

    fn fill(&mut self, config: &RunConfig, epoch: usize, step: usize, batch: &mut Batch) {
        let train = &config.train;
        let examples = &*self.data.train;
        if self.batches.as_ref().is_none_or(|(made, _)| *made != epoch) {
            let batches = data::epoch(examples, train.seed, epoch as u64, train.batch);
            self.batches = Some((epoch, batches));
        }
        let Some((_, batches)) = &self.batches else { unreachable!("made above") };
        data::fill(config.task.name, examples, &batches[step], self.weights.as_deref(), batch);
    }
}

impl Trainer {
    /// Prepares a run: draws the initial weights, allocates the workspace.
    ///
    /// # Errors
    /// If the configuration cannot be used, or needs data of one's own.
    pub fn new(config: RunConfig) -> Result<Self, ConfigError> {
        Self::with_data(config, None)
    }

    /// [`Trainer::new`], with the data that `task.data` describes.
    ///
    /// # Errors
    /// If the configuration cannot be used, or the data are not its own.
    pub fn with_data(config: RunConfig, data: Option<Data>) -> Result<Self, ConfigError> {
        config.validate()?;
        if config.task.name.is_own() && data.is_none() {
            let expected = "a task that makes its own sequences: there are no data here";
            return Err(ConfigError::new("task.name", config.task.name.as_str(), expected));
        }
        let architecture = Architecture::new(&config.model, &config.task)?;
        let longest = config.task.length.max(config.validation_length());
        let bytes = memory_bytes(&architecture, config.train.batch, longest);
        if bytes > MOST_BYTES {
            let expected = format!(
                "a smaller model: this one needs {} GiB, more than the limit of {} GiB",
                bytes >> 30,
                MOST_BYTES >> 30
            );
            return Err(ConfigError::new("model.dim", config.model.dim, expected));
        }
        let own = data.map(|data| Own::new(&config, data)).transpose()?;
        let parameters = initial_parameters(&architecture, config.train.seed);
        let n = parameters.len();
        Ok(Self {
            task: Task::new(&config.task),
            model: Model::new(architecture, longest, config.train.precision),
            parameters,
            adam: Adam::new(n),
            steps: 0,
            epoch_loss: 0.0,
            epoch_accuracy: 0.0,
            diverged: false,
            history: Vec::new(),
            gradient: vec![0.0; n],
            batch: Batch::default(),
            own,
            config,
        })
    }

    /// The same run on up to this many threads, with the same bits. One is best for sweeps,
    /// which train a model per core; more are for one big model.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.model = self.model.with_threads(threads);
        self
    }

    /// The most threads a run can use.
    pub fn most_threads() -> usize {
        Model::<f32>::most_threads()
    }

    /// The run's configuration.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The model's function and parameter list.
    pub fn architecture(&self) -> &Architecture {
        self.model.architecture()
    }

    /// The flat parameter buffer.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// The instruction set this run's bits belong to.
    pub fn isa(&self) -> &'static str {
        isa(&self.config)
    }

    /// Epochs finished, evaluation included.
    pub fn epochs_done(&self) -> usize {
        self.history.len()
    }

    /// Optimiser steps done in the current epoch.
    pub fn steps_done(&self) -> usize {
        let closed = self.history.len() as u64 * self.config.train.steps_per_epoch as u64;
        // An epoch has at most 2^24 steps.
        (self.steps - closed) as usize
    }

    /// Whether every epoch is finished, or `train.patience` is over.
    pub fn finished(&self) -> bool {
        finished(&self.config, &self.history)
    }

    /// Whether the parameters have become NaN. From then on steps and evaluations only score
    /// what a diverged model answers, index 0.
    pub fn diverged(&self) -> bool {
        self.diverged
    }

    /// The epochs so far.
    pub fn history(&self) -> &[EpochRecord] {
        &self.history
    }

    /// Whether the last finished epoch has the best validation accuracy so far (the first of
    /// equals).
    pub fn last_epoch_is_best(&self) -> bool {
        let Some((last, earlier)) = self.history.split_last() else { return false };
        earlier.iter().all(|e| e.validation.accuracy < last.validation.accuracy)
    }

    /// One optimiser step. Call [`Trainer::finish_epoch`] after `train.steps_per_epoch` of them.
    pub fn step(&mut self) -> Step {
        let train = &self.config.train;
        let (seed, length) = (train.seed, self.config.task.length);
        let (size, step) = (train.batch, self.steps);
        let (epoch, in_epoch) = (self.history.len(), self.steps_done());
        let batch = &mut self.batch;
        time(Part::Data, || match &mut self.own {
            Some(own) => own.fill(&self.config, epoch, in_epoch, batch),
            None => self.task.fill(seed, Purpose::Training, step, size, length, batch),
        });
        let share = self.batch.sequences() as f64 / size as f64;
        let measured = if self.diverged {
            Step { loss: f64::NAN, accuracy: self.batch.accuracy_of_zero() }
        } else {
            self.update()
        };
        self.epoch_loss += measured.loss * share;
        self.epoch_accuracy += measured.accuracy * share;
        self.steps += 1;
        measured
    }

    fn update(&mut self) -> Step {
        let train = &self.config.train;
        let rate = self.config.model.dropout;
        let dropout = (rate > 0.0).then_some(Dropout { rate, seed: train.seed, step: self.steps });
        self.gradient.fill(0.0);
        let pass = self.model.loss_and_gradient(
            &self.parameters,
            &self.batch,
            dropout,
            &mut self.gradient,
        );
        let architecture = self.model.architecture();
        let penalty =
            add_penalty(architecture, &self.parameters, train.l2, Some(&mut self.gradient));
        if train.clip {
            clip(architecture, &mut self.gradient, pass.embedding_square);
        }
        let rate =
            learning_rate(train.learning_rate, self.steps, train.total_steps(), train.warmup);
        time(Part::Optimiser, || {
            self.adam.update(&mut self.parameters, &self.gradient, rate, self.steps);
        });
        let loss = pass.score.loss / pass.score.rows as f64 + penalty;
        if !loss.is_finite() {
            self.diverged = self.is_lost();
        }
        Step { loss, accuracy: pass.score.correct as f64 / pass.score.rows as f64 }
    }

    /// Whether every logit will be NaN from now on: a bias of the read-out that is NaN stays
    /// NaN under Adam, and makes its logit NaN whatever the input.
    fn is_lost(&self) -> bool {
        let bias = self.architecture().parameter("head.bias");
        bias.is_some_and(|bias| self.parameters[bias.range()].iter().all(|b| b.is_nan()))
    }

    /// Mean loss and accuracy on fresh sequences of the validation length, other ones than those
    /// of the epochs; changes nothing. With data of one's own, on all of its validation part.
    pub fn validate(&mut self, batches: usize) -> (f64, f64) {
        let train = &self.config.train;
        let on =
            Sequences { purpose: Purpose::Evaluation, length: self.config.validation_length() };
        let mut evaluator = Evaluator {
            task: &self.task,
            model: &mut self.model,
            parameters: &self.parameters,
            diverged: self.diverged,
            l2: train.l2,
            seed: train.seed,
            batch: &mut self.batch,
            stop: &|| false,
        };
        let measured = match &self.own {
            Some(own) => {
                let measured =
                    evaluator.examples(&*own.data.validation, &own.validation, train.batch);
                measured.map(|measured| (measured.loss, measured.accuracy))
            }
            None => evaluator.fresh(on, 0, batches, train.batch),
        };
        measured.unwrap_or_else(|| unreachable!("nothing stops this evaluation"))
    }

    /// Evaluates the model and closes the epoch.
    ///
    /// # Panics
    /// If steps of the epoch remain.
    pub fn finish_epoch(&mut self) -> &EpochRecord {
        self.finish_epoch_unless(&|| false)
            .unwrap_or_else(|| unreachable!("nothing stops this evaluation"))
    }

    /// [`Trainer::finish_epoch`], given up without a trace if `stop` says so between two of its
    /// batches: the epoch then stays open, to be finished later.
    ///
    /// # Panics
    /// If steps of the epoch remain.
    pub fn finish_epoch_unless(&mut self, stop: &dyn Fn() -> bool) -> Option<&EpochRecord> {
        let train = &self.config.train;
        assert_eq!(self.steps_done(), train.steps_per_epoch, "steps of the epoch remain");
        let epoch = self.history.len();
        let short = self.config.validation_length();
        let mut evaluator = Evaluator {
            task: &self.task,
            model: &mut self.model,
            parameters: &self.parameters,
            diverged: self.diverged,
            l2: train.l2,
            seed: train.seed,
            batch: &mut self.batch,
            stop,
        };
        let (train_cases, validation, steps) = if let Some(own) = &self.own {
            let validation = &*own.data.validation;
            let measured = evaluator.examples(validation, &own.validation, train.batch)?;
            (Vec::new(), measured, own.data.train.len() as f64 / train.batch as f64)
        } else {
            let batches = train.validation_batches;
            let fresh = Sequences { purpose: Purpose::Validation, length: short };
            let (loss, accuracy) = evaluator.fresh(fresh, epoch * batches, batches, train.batch)?;
            let mut cases = |purpose, length| {
                evaluator.cases(Sequences { purpose, length }, epoch, train.case_sequences)
            };
            let train_cases = cases(Purpose::CasesTraining, self.config.task.length)?;
            let cases = cases(Purpose::CasesValidation, short)?;
            let measured = Evaluation { loss, accuracy, cases, macro_f1: None };
            (train_cases, measured, train.steps_per_epoch as f64)
        };
        self.history.push(EpochRecord {
            epoch: epoch + 1,
            train_loss: self.epoch_loss / steps,
            train_accuracy: self.epoch_accuracy / steps,
            train_cases,
            validation,
            diverged: self.diverged,
        });
        (self.epoch_loss, self.epoch_accuracy) = (0.0, 0.0);
        self.history.last()
    }
}

/// Whether a run with this history is over: every epoch is finished, or for `train.patience`
/// epochs none had a better validation accuracy than the best.
pub fn finished(config: &RunConfig, history: &[EpochRecord]) -> bool {
    let best = history
        .iter()
        .enumerate()
        .rev()
        .max_by(|(_, a), (_, b)| a.validation.accuracy.total_cmp(&b.validation.accuracy));
    let waited = best.map_or(0, |(epoch, _)| history.len() - 1 - epoch);
    history.len() == config.train.epochs
        || config.train.patience.is_some_and(|patience| waited >= patience)
}

/// The instruction set this machine runs a configuration on, as records name it.
pub fn isa(config: &RunConfig) -> &'static str {
    match config.train.precision {
        Precision::Bf16 | Precision::Bf16x3 if arch::has_tiles() => "amx",
        _ => arch::isa().name(),
    }
}

/// Draws the initial value of every parameter: parameter i from the stream
/// (seed, Initialisation, i, 0).
pub fn initial_parameters(architecture: &Architecture, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; architecture.parameter_count()];
    for (index, parameter) in architecture.parameters.iter().enumerate() {
        let values = &mut values[parameter.range()];
        match parameter.init {
            Init::Constant(value) => values.fill(value as f32),
            Init::TruncatedNormal(deviation) => {
                let mut stream = Stream::new(seed, Purpose::Initialisation, index as u64, 0);
                values.iter_mut().for_each(|v| *v = stream.truncated_normal(deviation) as f32);
            }
        }
    }
    values
}

/// The L2 penalty `l2 sum w^2` over the regularised parameters; adds its gradient `2 l2 w`.
pub fn add_penalty<T: Real>(
    architecture: &Architecture,
    parameters: &[T],
    l2: f64,
    mut gradient: Option<&mut [T]>,
) -> f64 {
    if l2 == 0.0 {
        return 0.0;
    }
    let mut total = 0.0;
    for parameter in architecture.parameters.iter().filter(|p| p.regularised) {
        let values = &parameters[parameter.range()];
        total += square(values);
        if let Some(gradient) = gradient.as_deref_mut() {
            let factor = T::of(2.0 * l2);
            for (g, &w) in gradient[parameter.range()].iter_mut().zip(values) {
                *g += factor * w;
            }
        }
    }
    l2 * total
}
