//! What a run will take, from its configuration alone.

use crate::config::{ConfigError, RunConfig};
use crate::model::Model;
use crate::model::architecture::Architecture;
use crate::task::Task;

/// What a run will take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Operations of all training steps (see [`Architecture::forward_flops`]).
    pub training_flops: f64,
    /// Operations of the evaluations after each epoch.
    pub evaluation_flops: f64,
    /// Tokens times layers of all training steps: what pointwise work grows with.
    pub training_tokens: f64,
    /// Tokens times layers of the evaluations.
    pub evaluation_tokens: f64,
    /// Number of parameters.
    pub parameters: usize,
    /// An estimate of the memory it takes, in bytes.
    pub memory_bytes: u64,
}

impl Cost {
    /// The cost of a run.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn of(config: &RunConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let architecture = Architecture::new(&config.model, &config.task)?;
        let (train, short, long) = (&config.train, config.validation_length(), config.task.length);
        let longest = long.max(short);
        // Own sequences are of any length: costs are those of the mean.
        let mean = config.task.data.as_ref().map(|data| data.tokens as usize / data.sequences);
        let (short, long) = mean.map_or((short, long), |mean| (mean.max(1), mean.max(1)));
        let cases =
            if Task::new(&config.task).cases().is_empty() { 0 } else { train.case_sequences };
        // Sequences of an epoch: trained on, and scored at either length.
        let data = config.task.data.as_ref();
        let trained =
            data.map_or((train.batch * train.steps_per_epoch) as f64, |data| data.sequences as f64);
        let scored = data.map_or(train.batch * train.validation_batches, |data| data.validation);
        let scored_short = (scored + cases) as f64;
        let scored_long = cases as f64;
        let [epochs, layers] = [train.epochs, config.model.layers].map(|count| count as f64);
        let dropout = config.model.dropout > 0.0;
        let forward = |length| architecture.forward_flops(length, false);
        Ok(Self {
            training_flops: epochs * trained * 3.0 * architecture.forward_flops(long, dropout),
            evaluation_flops: epochs
                * (scored_short * forward(short) + scored_long * forward(long)),
            training_tokens: epochs * layers * trained * long as f64,
            evaluation_tokens: epochs
                * layers
                * (scored_short * short as f64 + scored_long * long as f64),
            parameters: architecture.parameter_count(),
            memory_bytes: memory_bytes(&architecture, train.batch, longest),
        })
    }

    /// Operations in all.
    pub fn flops(&self) -> f64 {
        self.training_flops + self.evaluation_flops
    }
}

/// An estimate of the memory a run takes: parameters, gradient and moments, a checkpoint being
/// written or read, activations, and a batch's tokens and targets.
pub(super) fn memory_bytes(architecture: &Architecture, batch: usize, longest: usize) -> u64 {
    let parameters = (16 + 16) * architecture.parameter_count() as u64;
    let batch = 8 * batch as u64 * longest as u64;
    let workspace = Model::<f32>::workspace_bytes(architecture, longest);
    parameters.saturating_add(batch).saturating_add(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluation_counts_fresh_batches_and_both_equalised_sets() {
        let config = RunConfig::paper();
        let cost = Cost::of(&config).unwrap();
        let architecture = Architecture::new(&config.model, &config.task).unwrap();
        let [long, short] = [128, 64].map(|length| architecture.forward_flops(length, false));
        assert_eq!(cost.training_flops, 32.0 * 3200.0 * 3.0 * long);
        assert_eq!(cost.evaluation_flops, 32.0 * (4024.0 * short + 3000.0 * long));
        // Evaluation is without dropout, in the linear form.
        let mut dropout = config.clone();
        dropout.model.dropout = 0.1;
        let dropped = Cost::of(&dropout).unwrap();
        assert_eq!(dropped.evaluation_flops, cost.evaluation_flops);
        assert!(dropped.training_flops > cost.training_flops);
        let mode = Cost::of(&RunConfig::quickstart()).unwrap();
        assert_eq!(mode.evaluation_tokens, 32.0 * 2.0 * 1024.0 * 256.0, "mode has no cases");
    }

    #[test]
    fn what_cannot_run_has_no_cost() {
        let mut config = RunConfig::paper();
        config.model.heads = 3;
        assert_eq!(Cost::of(&config).unwrap_err().key, "model.heads");
        let mut config = RunConfig::paper();
        config.task.case_bias = i32::MIN;
        assert_eq!(Cost::of(&config).unwrap_err().key, "task.case_bias");
    }
}
