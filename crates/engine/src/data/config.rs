//! What of one's own data fixes the model and the run.

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, Masking, RunConfig, TaskConfig, TaskName};
use crate::kernels::aggregate;

/// Where something lies: not part of what a run is, so any two are equal.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place(pub String);

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Data of one's own: where they lie and how they are read, and what was found in them. The
/// second part, and with it a run, depends on their content alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// The training file.
    pub train: Place,
    /// The validation file; without one, `fraction` of the training file is kept for validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<Place>,
    /// The share of the training file that is kept for validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// How texts become tokens, where the file has texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenize: Option<String>,
    /// A hash of tokens and labels in their order; empty while nobody has looked.
    #[serde(default)]
    pub digest: String,
    /// Number of different tokens, `<unk>` included.
    #[serde(default)]
    pub vocab: usize,
    /// Number of classes; 0 for positions.
    #[serde(default)]
    pub classes: usize,
    /// Number of sequences that are trained on.
    #[serde(default)]
    pub sequences: usize,
    /// Number of sequences of the validation.
    #[serde(default)]
    pub validation: usize,
    /// Tokens of the sequences that are trained on.
    #[serde(default)]
    pub tokens: u64,
    /// Length of the shortest sequence.
    #[serde(default)]
    pub shortest: usize,
    /// Length of the longest.
    #[serde(default)]
    pub longest: usize,
}

impl DataConfig {
    /// Checks what was found.
    ///
    /// # Errors
    /// The first value that cannot be.
    pub fn validate(&self, task: TaskName) -> Result<(), ConfigError> {
        let wrong = |value: String, expected: &str| {
            Err(ConfigError::new("task.data", value, expected.to_owned()))
        };
        if self.digest.is_empty() {
            return wrong(format!("{:?}", self.train.0), "the data to have been read");
        }
        if self.fraction.is_some_and(|fraction| !(fraction > 0.0 && fraction < 1.0)) {
            let fraction = self.fraction.unwrap_or_default();
            return wrong(format!("fraction {fraction}"), "a fraction between 0 and 1");
        }
        let counts = self.sequences.min(self.validation).min(self.shortest);
        let most = self.sequences.max(self.validation);
        if counts == 0 || most > u32::MAX as usize || self.tokens < self.sequences as u64 {
            let [n, v] = [self.sequences, self.validation];
            return wrong(
                format!("{n} and {v} sequences"),
                "sequences to train on and to validate on, none of them empty",
            );
        }
        if self.shortest > self.longest || self.longest > 1 << 20 {
            let lengths = format!("lengths {} to {}", self.shortest, self.longest);
            return wrong(lengths, "sequences of up to 1048576 tokens");
        }
        if !(2..=1 << 20).contains(&self.vocab) {
            return wrong(format!("{} tokens", self.vocab), "2 to 1048576, <unk> included");
        }
        let classes = self.classes;
        match task {
            TaskName::Point if classes != 0 => {
                wrong(format!("{classes} classes"), "none: the task is to point at a position")
            }
            TaskName::Point => Ok(()),
            _ if !(2..=1 << 20).contains(&classes) => {
                wrong(format!("{classes} classes"), "2 to 1048576 different labels")
            }
            _ => Ok(()),
        }
    }
}

/// What the loss of each class is multiplied by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassWeights {
    /// n / (C n_c) for a class with n_c of the n answers that are trained on: every class weighs
    /// the same in all, and the mean weight of an answer is 1.
    Balanced,
}

impl RunConfig {
    /// For data of one's own: NAP that classifies, d = 64, learning rate 0.3^6. `task.data` and
    /// what follows from it are still to be set, see [`RunConfig::follow_data`].
    pub fn own_data() -> Self {
        let mut config = Self::paper();
        config.model.dim = 64;
        config.task.name = TaskName::Classify;
        config.train.learning_rate = 0.000_729; // 0.3^6
        config
    }

    /// Sets what follows from the data: vocabulary, longest sequence and steps per epoch.
    pub fn follow_data(&mut self) {
        if let Some(data) = &self.task.data {
            (self.task.vocab, self.task.length) = (data.vocab, data.longest);
            self.train.steps_per_epoch = data.sequences.div_ceil(self.train.batch.max(1));
        }
    }

    /// Checks what depends on the data and on other keys.
    pub(crate) fn validate_with(&self, data: &DataConfig) -> Result<(), ConfigError> {
        let steps = data.sequences.div_ceil(self.train.batch);
        if self.train.steps_per_epoch != steps {
            let expected = format!(
                "{steps}, one pass over {} sequences in batches of {}",
                data.sequences, self.train.batch
            );
            let key = "train.steps_per_epoch";
            return Err(ConfigError::new(key, self.train.steps_per_epoch, expected));
        }
        if self.train.class_weights.is_some() && self.task.name == TaskName::Point {
            let expected = "none: positions are no classes";
            return Err(ConfigError::new("train.class_weights", "balanced", expected));
        }
        let even = data.shortest == data.longest && data.longest == self.task.length;
        if self.model.aggregator == aggregate::WEIGHTED && !even {
            let expected = format!(
                "another: weighted takes one length only, the data has {} to {}",
                data.shortest, data.longest
            );
            return Err(ConfigError::new("model.aggregator", &self.model.aggregator, expected));
        }
        if self.model.masking == Masking::Reference && data.shortest < data.longest {
            let expected = "clean: padding must not affect results";
            return Err(ConfigError::new("model.masking", "reference", expected));
        }
        Ok(())
    }
}

impl TaskConfig {
    /// Checks a task on data of one's own.
    pub(crate) fn validate_own(&self) -> Result<(), ConfigError> {
        let Some(data) = &self.data else {
            let expected = "task.data as well (--data FILE): this task takes data of one's own";
            return Err(ConfigError::new("task.name", self.name.as_str(), expected));
        };
        data.validate(self.name)?;
        if self.vocab != data.vocab {
            let expected = format!("{}, the data's number of tokens", data.vocab);
            return Err(ConfigError::new("task.vocab", self.vocab, expected));
        }
        if self.length < data.longest {
            let expected = format!("at least {}, the data's longest sequence", data.longest);
            return Err(ConfigError::new("task.length", self.length, expected));
        }
        if self.case_bias != 0 {
            let expected = "0: own data has no cases";
            return Err(ConfigError::new("task.case_bias", self.case_bias, expected));
        }
        Ok(())
    }
}
