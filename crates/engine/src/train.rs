//! The training loop, evaluation and checkpoints.

use crate::config::{ConfigError, RunConfig};
use crate::model::architecture::Architecture;

/// What one optimiser step measured, before its update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Mean loss of the batch, L2 penalty included.
    pub loss: f64,
    /// Share of right answers.
    pub accuracy: f64,
}

/// What a model scores on data it is not trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Mean loss, L2 penalty included; NaN for a diverged model.
    pub loss: f64,
    /// Share of right answers.
    pub accuracy: f64,
    /// Accuracy per tracked case on the equalised set, in the order of
    /// [`crate::task::Task::cases`]; NaN where the set holds no sequence of that case.
    pub cases: Vec<f64>,
}

/// What an epoch measured.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochRecord {
    /// Counts from 1.
    pub epoch: usize,
    /// Mean loss over the epoch's batches, each before its update.
    pub train_loss: f64,
    /// Mean accuracy over the epoch's batches, each before its update.
    pub train_accuracy: f64,
    /// Accuracy per tracked case at the training length, after the epoch.
    pub train_cases: Vec<f64>,
    /// On fresh batches at the validation length, after the epoch.
    pub validation: Evaluation,
    /// Whether the parameters had become NaN.
    pub diverged: bool,
}

/// Why a checkpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CheckpointError(String);

/// A training run, executed one optimiser step at a time.
pub struct Trainer {
    config: RunConfig,
}

impl Trainer {
    /// Prepares a run: draws the initial weights, allocates the workspace.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn new(config: RunConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }

    /// Continues the run that [`Trainer::checkpoint`] wrote, bit for bit.
    ///
    /// # Errors
    /// If the bytes are not a resumable checkpoint.
    pub fn resume(_bytes: &[u8]) -> Result<Self, CheckpointError> {
        todo!()
    }

    /// The run's configuration.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The model's function and parameter list.
    pub fn architecture(&self) -> &Architecture {
        todo!()
    }

    /// The instruction set this run's bits belong to.
    pub fn isa(&self) -> &'static str {
        todo!()
    }

    /// Epochs finished, evaluation included.
    pub fn epochs_done(&self) -> usize {
        todo!()
    }

    /// Optimiser steps done in the current epoch.
    pub fn steps_done(&self) -> usize {
        todo!()
    }

    /// Whether every epoch is finished.
    pub fn finished(&self) -> bool {
        todo!()
    }

    /// Whether the parameters have become NaN. From then on steps and evaluations only score
    /// what a diverged model answers, index 0.
    pub fn diverged(&self) -> bool {
        todo!()
    }

    /// One optimiser step. Call [`Trainer::finish_epoch`] after `train.steps_per_epoch` of them.
    pub fn step(&mut self) -> Step {
        todo!()
    }

    /// Evaluates the model and closes the epoch.
    pub fn finish_epoch(&mut self) -> &EpochRecord {
        todo!()
    }

    /// The epochs so far.
    pub fn history(&self) -> &[EpochRecord] {
        todo!()
    }

    /// Whether the last finished epoch has the best validation accuracy so far (first of equals).
    pub fn last_epoch_is_best(&self) -> bool {
        todo!()
    }

    /// The resumable state as a safetensors file: weights, moments, position in the run,
    /// history, configuration. Works between any two steps.
    pub fn checkpoint(&self) -> Vec<u8> {
        todo!()
    }

    /// The weights alone as a safetensors file with configuration, epoch and history.
    pub fn weights(&self) -> Vec<u8> {
        todo!()
    }
}

/// A trained model, read from either kind of checkpoint.
pub struct Trained {
    /// The run it comes from.
    pub config: RunConfig,
    /// Function and parameter list.
    pub architecture: Architecture,
    /// The flat parameter buffer.
    pub parameters: Vec<f32>,
    /// Epochs it was trained for.
    pub epoch: usize,
    /// What those epochs measured.
    pub history: Vec<EpochRecord>,
    /// The instruction set that trained it.
    pub isa: String,
    /// The engine version that trained it.
    pub version: String,
}

impl Trained {
    /// Reads a checkpoint.
    ///
    /// # Errors
    /// If the bytes are truncated, foreign or inconsistent.
    pub fn read(_bytes: &[u8]) -> Result<Self, CheckpointError> {
        todo!()
    }

    /// Scores the model on `batches` fresh batches (drawn with `seed`) of sequences of this
    /// length, and its tracked cases on an equalised set.
    ///
    /// # Errors
    /// If the model cannot read sequences of this length.
    pub fn evaluate(
        &self,
        _length: usize,
        _batches: usize,
        _seed: u64,
    ) -> Result<Evaluation, ConfigError> {
        todo!()
    }
}
