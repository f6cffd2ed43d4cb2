//! The keys of `[task]`.

use serde::{Deserialize, Serialize};

use super::{Auto, ConfigError, DataConfig, range};

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

    /// The paper's number of different tokens.
    pub fn default_vocab(self) -> usize {
        if self == TaskName::Mode { 10 } else { 100 }
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
    /// One logit per token: `[batch, length]`. With [`Masking::Clean`](super::Masking::Clean) masked tokens have none.
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
