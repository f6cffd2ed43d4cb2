//! The keys of `[train]`.

use serde::{Deserialize, Serialize};

use super::{ClassWeights, ConfigError, range};

/// Arithmetic of the products of dense layers. Sums, weights, the optimiser, norms, attention
/// between its projections and the loss are f32 in either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// Operands as they are.
    #[default]
    F32,
    /// Operands rounded to bf16: 8 significant bits.
    Bf16,
    /// Each product as three of bf16: about 16 significant bits.
    Bf16x3,
}

impl Precision {
    /// The name, as configurations and records spell it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::Bf16x3 => "bf16x3",
        }
    }
}

/// How a model is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Names the random streams of initialisation, data and dropout.
    pub seed: u64,
    /// Sequences per step.
    pub batch: usize,
    /// Epochs.
    pub epochs: usize,
    /// Steps per epoch.
    pub steps_per_epoch: usize,
    /// Learning rate of the first step; decays linearly to 0.
    pub learning_rate: f64,
    /// Linear warm-up over the first tenth of all steps.
    pub warmup: bool,
    /// Clips each variable's gradient to norm 1.
    pub clip: bool,
    /// L2 penalty: this times the sum of squares of the weight matrices is added to the loss.
    pub l2: f64,
    /// Arithmetic of the dense layers' products. Older records, which do not name it, used f32.
    #[serde(default)]
    pub precision: Precision,
    /// Batches of the validation at the end of each epoch.
    pub validation_batches: usize,
    /// Sequences of the equalised sets on which cases are tracked; a multiple of the cases.
    pub case_sequences: usize,
    /// Ends the run after this many epochs without a better validation accuracy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
    /// What the loss of each class is multiplied by, with data of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
}

impl TrainConfig {
    /// Checks the training settings.
    ///
    /// # Errors
    /// The first key that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // TOML integers are signed.
        if self.seed > i64::MAX as u64 {
            return Err(ConfigError::new("train.seed", self.seed, format!("at most {}", i64::MAX)));
        }
        range("train.batch", self.batch, 1, 1 << 20)?;
        range("train.epochs", self.epochs, 1, 1 << 20)?;
        range("train.steps_per_epoch", self.steps_per_epoch, 1, 1 << 24)?;
        range("train.validation_batches", self.validation_batches, 1, 1 << 20)?;
        range("train.case_sequences", self.case_sequences, 6, 1 << 20)?;
        if !self.case_sequences.is_multiple_of(6) {
            let expected = "a multiple of 6, so that the cases have equal shares";
            return Err(ConfigError::new("train.case_sequences", self.case_sequences, expected));
        }
        if let Some(patience) = self.patience {
            range("train.patience", patience, 1, 1 << 20)?;
        }
        let rate = self.learning_rate as f32;
        if !(rate > 0.0 && rate.is_finite()) {
            let expected = "a number > 0, such as 0.002 or \"0.3^6\"";
            return Err(ConfigError::new("train.learning_rate", self.learning_rate, expected));
        }
        if !(self.l2 >= 0.0 && self.l2.is_finite()) {
            return Err(ConfigError::new("train.l2", self.l2, "a number >= 0"));
        }
        Ok(())
    }

    /// The number of optimiser steps of the whole run.
    pub fn total_steps(&self) -> u64 {
        self.epochs as u64 * self.steps_per_epoch as u64
    }
}
