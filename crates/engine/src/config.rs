//! What a run is: plain values that serialise to TOML and JSON, validated once.

use serde::{Deserialize, Serialize};

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
                vocab: 100,
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
        config.task.vocab = 10;
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

/// Where a block's LayerNorm sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// `x + LN(block(x))`, with a LayerNorm inside each block before its GELU.
    BeforeSkip,
    /// `LN(x + block(x))`, no inner LayerNorms (BERT).
    AfterSkip,
}

/// What tells a model where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// No positions: the model treats a sequence as a set.
    None,
    /// A learned vector per position.
    Learned,
    /// Fixed sinusoids in the authors' form.
    Sinusoidal,
}

/// How masked tokens are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Masking {
    /// Masked tokens take no part in any aggregate or count, and nothing else changes.
    Clean,
    /// As the authors' program: pooling sets masked tokens' own stream to 0 (sum, mean) or takes
    /// 1e9 off it (max), and NON divides by the root of the full length.
    Reference,
}

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

/// What logits are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogitScale {
    /// z = q.k
    None,
    /// z = q.k / sqrt(d_h)
    Sqrt,
}

/// Which form of a rule computes the aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionForm {
    /// The n x n weights, row by row.
    Quadratic,
    /// The exact linear-time form, for the rules that have one (needs attention dropout 0).
    Linear,
}

/// A model: layout x aggregator x options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// What the model is called in tables; see [`crate::model::family`].
    pub name: String,
    /// An attention rule or pooling of [`crate::kernels::aggregate`].
    pub aggregator: String,
    /// Width d of a token's vector.
    pub dim: usize,
    /// Number of layers L.
    pub layers: usize,
    /// Attention heads; divides `dim`. Ignored by poolings.
    pub heads: usize,
    /// Hidden width of the feed-forward block: 4d for attention, 6d + 1 for poolings
    /// (which matches the parameter count).
    pub feed_forward: Auto<usize>,
    /// Where a block's LayerNorm sits.
    pub norm_placement: NormPlacement,
    /// GELU between the aggregated heads and the mixing projection.
    pub attention_gelu: bool,
    /// A learned gain per head.
    pub gain: Auto<bool>,
    /// A learned bias per head.
    pub bias: Auto<bool>,
    /// Added to the deviation (or norm) a row of logits is divided by.
    pub epsilon: Auto<f64>,
    /// What logits are multiplied by.
    pub logit_scale: Auto<LogitScale>,
    /// NAP-L2 only: subtract the row's mean before dividing by its norm.
    pub centre: bool,
    /// Quadratic or linear-time attention.
    pub form: Auto<AttentionForm>,
    /// Positions: learned, or none for mode.
    pub positions: Auto<Positions>,
    /// How masked tokens are left out, where a batch has a mask.
    pub masking: Masking,
    /// Dropout rate: on the embeddings, on attention weights, on each block's output.
    pub dropout: f64,
    /// The initial deviation of weights is 0.02 times this.
    pub init_factor: f64,
}

impl ModelConfig {
    /// Checks the model's own values.
    ///
    /// # Errors
    /// The first key that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if crate::model::family::find(&self.name).is_none() {
            let known: Vec<_> = crate::model::family::FAMILIES.iter().map(|f| f.name).collect();
            let known = format!("one of {}", known.join(", "));
            return Err(ConfigError::new("model.name", &self.name, known));
        }
        let kind = aggregate::find::<f32>(&self.aggregator).ok_or_else(|| {
            let known = format!("one of {}", aggregate::names().join(", "));
            ConfigError::new("model.aggregator", &self.aggregator, known)
        })?;
        range("model.dim", self.dim, 1, 65_536)?;
        range("model.layers", self.layers, 1, 1024)?;
        range("model.heads", self.heads, 1, 65_536)?;
        if let Auto::Value(width) = self.feed_forward {
            range("model.feed_forward", width, 1, 1 << 20)?;
        }
        let attention = matches!(kind, aggregate::Kind::Attention(_));
        if attention && !self.dim.is_multiple_of(self.heads) {
            let expected = format!("a divisor of model.dim = {}", self.dim);
            return Err(ConfigError::new("model.heads", self.heads, expected));
        }
        if let Auto::Value(epsilon) = self.epsilon
            && !(epsilon >= 0.0 && epsilon.is_finite())
        {
            return Err(ConfigError::new("model.epsilon", epsilon, "a number >= 0"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ConfigError::new("model.dropout", self.dropout, "a rate in [0, 1)"));
        }
        if !(self.init_factor > 0.0 && self.init_factor.is_finite()) {
            return Err(ConfigError::new("model.init_factor", self.init_factor, "a number > 0"));
        }
        if self.form == Auto::Value(AttentionForm::Linear) {
            if !attention || !aggregate::has_linear_form(&self.aggregator) {
                return Err(ConfigError::new(
                    "model.form",
                    "linear",
                    format!("quadratic or auto: {} has no linear-time form", self.aggregator),
                ));
            }
            if self.dropout > 0.0 {
                return Err(ConfigError::new(
                    "model.form",
                    "linear",
                    "quadratic or auto: attention dropout needs the weights",
                ));
            }
        }
        Ok(())
    }

    /// The positions this model uses on this task.
    pub fn positions(&self, task: &TaskConfig) -> Positions {
        self.positions.unwrap_or_else(|| match task.name {
            TaskName::Mode => Positions::None,
            _ => Positions::Learned,
        })
    }
}

/// The tasks: the paper's, which make their own sequences, and those on data of one's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskName {
    /// argmin-first-argmax, the case distinction task.
    Cases,
    /// The most frequent token.
    Mode,
    /// Local vs global.
    Lg,
    /// Own data: a class per sequence.
    Classify,
    /// Own data: a position per sequence.
    Point,
    /// Own data: a class per token.
    Tag,
}

impl TaskName {
    /// The paper's tasks.
    pub const PAPER: [TaskName; 3] = [TaskName::Cases, TaskName::Mode, TaskName::Lg];

    /// The tasks on data of one's own.
    pub const OWN: [TaskName; 3] = [TaskName::Classify, TaskName::Point, TaskName::Tag];

    /// Every task.
    pub const ALL: [TaskName; 6] = [
        TaskName::Cases,
        TaskName::Mode,
        TaskName::Lg,
        TaskName::Classify,
        TaskName::Point,
        TaskName::Tag,
    ];

    /// Whether it takes data of one's own.
    pub fn is_own(self) -> bool {
        Self::OWN.contains(&self)
    }

    /// The name, as configurations spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskName::Cases => "cases",
            TaskName::Mode => "mode",
            TaskName::Lg => "lg",
            TaskName::Classify => "classify",
            TaskName::Point => "point",
            TaskName::Tag => "tag",
        }
    }
}

/// How the cases task is read out (the other tasks have one read-out each).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CasesReadout {
    /// One logit per token, softmax over positions.
    PerToken,
    /// The first token's vector gives a logit per position.
    FirstToken,
}

/// How logits are read from the last layer's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readout {
    /// One logit per token: `[batch, length]`. With [`Masking::Clean`] masked tokens have none.
    PerToken,
    /// A logit per position from the first token: `[batch, length]`, cut from the maximal length.
    FirstTokenPosition,
    /// A logit per position from each token: `[batch, length, length]`, cut likewise.
    EachTokenPosition,
    /// A logit per class from the first token: `[batch, classes]`.
    FirstTokenClass,
    /// A logit per class from each token: `[batch, length, classes]`.
    EachTokenClass,
}

impl Readout {
    /// Whether it gives logits of classes rather than of positions.
    pub fn is_class(self) -> bool {
        matches!(self, Readout::FirstTokenClass | Readout::EachTokenClass)
    }

    /// Whether each token gives an answer of its own.
    pub fn is_each_token(self) -> bool {
        matches!(self, Readout::EachTokenPosition | Readout::EachTokenClass)
    }

    /// Whether the read-out's width is the maximal length.
    pub fn is_position(self) -> bool {
        matches!(self, Readout::FirstTokenPosition | Readout::EachTokenPosition)
    }
}

/// The task and its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// Which task.
    pub name: TaskName,
    /// How `cases` is read out; the other tasks ignore it.
    pub readout: CasesReadout,
    /// Number of different tokens V; drawn uniformly, or those of the data.
    pub vocab: usize,
    /// Training length N; with data of one's own, that of the longest sequence.
    pub length: usize,
    /// Validation length: half of N for cases and lg, twice for mode.
    pub validation_length: Auto<usize>,
    /// cases and lg: b > 0 adds token 64, b < 0 removes it, see [`crate::task`].
    pub case_bias: i32,
    /// classify, point and tag: the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataConfig>,
}

impl TaskConfig {
    /// Checks the task's own values.
    ///
    /// # Errors
    /// The first key that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        range("task.length", self.length, 1, 1 << 20)?;
        if let Auto::Value(length) = self.validation_length {
            range("task.validation_length", length, 1, 1 << 20)?;
        }
        if self.name.is_own() {
            return self.validate_own();
        }
        if self.data.is_some() {
            let expected = "classify, point or tag: this task makes its own sequences";
            return Err(ConfigError::new("task.name", self.name.as_str(), expected));
        }
        let smallest = if self.name == TaskName::Mode { 2 } else { 65 };
        if self.vocab < smallest || self.vocab > 1 << 20 {
            let expected = match self.name {
                TaskName::Mode => format!("between 2 and {}", 1 << 20),
                _ => format!("between 65 and {} (token 64 decides the case)", 1 << 20),
            };
            return Err(ConfigError::new("task.vocab", self.vocab, expected));
        }
        if !(-64..=64).contains(&self.case_bias) {
            return Err(ConfigError::new("task.case_bias", self.case_bias, "between -64 and 64"));
        }
        if self.name == TaskName::Mode && self.case_bias != 0 {
            let expected = "0: mode has no cases";
            return Err(ConfigError::new("task.case_bias", self.case_bias, expected));
        }
        Ok(())
    }

    /// Number of classes of the read-outs that have classes: the data's, or the tokens.
    pub fn classes(&self) -> usize {
        self.data.as_ref().map_or(self.vocab, |data| data.classes)
    }

    /// How logits are read out.
    pub fn readout(&self) -> Readout {
        match (self.name, self.readout) {
            (TaskName::Cases, CasesReadout::PerToken) => Readout::PerToken,
            (TaskName::Cases, CasesReadout::FirstToken) => Readout::FirstTokenPosition,
            (TaskName::Mode | TaskName::Classify, _) => Readout::FirstTokenClass,
            (TaskName::Lg, _) => Readout::EachTokenPosition,
            (TaskName::Point, _) => Readout::PerToken,
            (TaskName::Tag, _) => Readout::EachTokenClass,
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

fn range(key: &'static str, value: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::new(key, value, format!("between {least} and {most}")))
    }
}
