//! What a run is: plain values that serialise to TOML and JSON, validated once.

mod model;
mod task;
mod train;

use serde::{Deserialize, Serialize};

pub use self::model::{AttentionForm, LogitScale, Masking, ModelConfig, NormPlacement, Positions};
pub use self::task::{CasesReadout, Readout, TaskConfig, TaskName};
pub use self::train::{Precision, TrainConfig};
pub use crate::data::{ClassWeights, DataConfig, Place};
use crate::kernels::aggregate;

/// A value in a configuration that cannot be used: where, what, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: {expected}")]
pub struct ConfigError {
    /// The key, as in `model.heads`.
    pub key: &'static str,
    /// The offending value as text.
    pub value: String,
    /// What would be right.
    pub expected: String,
}

impl ConfigError {
    /// A complaint about `key`.
    pub fn new(key: &'static str, value: impl ToString, expected: impl Into<String>) -> Self {
        Self { key, value: value.to_string(), expected: expected.into() }
    }
}

/// Either a value, or `"auto"`: derived from the other settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Auto<T> {
    /// Derived.
    #[default]
    Auto,
    /// As given.
    Value(T),
}

impl<T> Auto<T> {
    /// The value, or what `derive` makes of the other settings.
    pub fn unwrap_or_else(self, derive: impl FnOnce() -> T) -> T {
        match self {
            Auto::Auto => derive(),
            Auto::Value(value) => value,
        }
    }
}

impl<T: Serialize> Serialize for Auto<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Auto::Auto => serializer.serialize_str("auto"),
            Auto::Value(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Auto<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw<T> {
            Value(T),
            Text(String),
        }
        match Raw::<T>::deserialize(deserializer) {
            Ok(Raw::Value(value)) => Ok(Auto::Value(value)),
            Ok(Raw::Text(text)) if text == "auto" => Ok(Auto::Auto),
            _ => Err(serde::de::Error::custom("expected \"auto\" or a value of the right kind")),
        }
    }
}

/// One training run, completely described.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The model.
    pub model: ModelConfig,
    /// The task it learns.
    pub task: TaskConfig,
    /// How it is trained.
    pub train: TrainConfig,
}

impl RunConfig {
    /// The paper's defaults: NAP on `cases`, d = 128, learning rate 0.3^7.
    pub fn paper() -> Self {
        Self {
            model: ModelConfig {
                name: "nap".to_owned(),
                aggregator: "normalized".to_owned(),
                dim: 128,
                layers: 2,
                heads: 4,
                feed_forward: Auto::Auto,
                norm_placement: NormPlacement::BeforeSkip,
                attention_gelu: true,
                gain: Auto::Auto,
                bias: Auto::Auto,
                epsilon: Auto::Auto,
                logit_scale: Auto::Auto,
                centre: false,
                form: Auto::Auto,
                positions: Auto::Auto,
                masking: Masking::Clean,
                dropout: 0.0,
                init_factor: 1.0,
            },
            task: TaskConfig {
                name: TaskName::Cases,
                readout: CasesReadout::PerToken,
                vocab: TaskName::Cases.default_vocab(),
                length: 128,
                validation_length: Auto::Auto,
                case_bias: 0,
                data: None,
            },
            train: TrainConfig {
                seed: 0,
                batch: 32,
                epochs: 32,
                steps_per_epoch: 100,
                learning_rate: 0.000_218_7, // 0.3^7
                warmup: false,
                clip: false,
                l2: 0.0,
                precision: Precision::F32,
                validation_batches: 32,
                case_sequences: 3000,
                patience: None,
                class_weights: None,
            },
        }
    }

    /// A first run: NAP on `mode` with d = 32 and learning rate 0.3^6, a published cell of the
    /// grid that takes a minute or two.
    pub fn quickstart() -> Self {
        let mut config = Self::paper();
        config.model.dim = 32;
        config.task.name = TaskName::Mode;
        config.task.vocab = TaskName::Mode.default_vocab();
        config.train.learning_rate = 0.000_729; // 0.3^6
        config
    }

    /// Checks every value and every combination.
    ///
    /// # Errors
    /// The first key that cannot be used, with what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.model.validate()?;
        self.task.validate()?;
        self.train.validate()?;
        self.validate_together()
    }

    fn validate_together(&self) -> Result<(), ConfigError> {
        match &self.task.data {
            Some(data) => self.validate_with(data)?,
            None if self.train.class_weights.is_some() => {
                let expected = "none: only data of one's own has rare classes";
                return Err(ConfigError::new("train.class_weights", "balanced", expected));
            }
            None => {}
        }
        let validation = self.validation_length();
        let positions = self.model.positions(&self.task);
        if positions == Positions::Learned && validation > self.task.length {
            return Err(ConfigError::new(
                "task.validation_length",
                validation,
                format!("at most the training length {} with learned positions", self.task.length),
            ));
        }
        if self.model.aggregator == aggregate::WEIGHTED && validation != self.task.length {
            return Err(ConfigError::new(
                "task.validation_length",
                validation,
                format!("the weighted aggregator works at length {} only", self.task.length),
            ));
        }
        if self.task.readout().is_position() && validation > self.task.length {
            return Err(ConfigError::new(
                "task.validation_length",
                validation,
                format!("at most {}: the read-out has one logit per position", self.task.length),
            ));
        }
        Ok(())
    }

    /// The length of validation sequences; for data of one's own, the longest that the model has
    /// positions for. Else as given, else half the training length for cases
    /// and lg (never below 1) and twice it for mode; the training length for `weighted`.
    pub fn validation_length(&self) -> usize {
        if self.task.name.is_own() {
            return self.task.length;
        }
        self.task.validation_length.unwrap_or_else(|| {
            if self.model.aggregator == aggregate::WEIGHTED {
                self.task.length
            } else if self.task.name == TaskName::Mode {
                self.task.length * 2
            } else {
                (self.task.length / 2).max(1)
            }
        })
    }
}

/// Whether a whole number lies between two others, both included.
fn range(key: &'static str, value: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::new(key, value, format!("between {least} and {most}")))
    }
}
