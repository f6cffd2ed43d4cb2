//! Checkpoints: safetensors files whose metadata carry the run.
//!
//! Parameters go by their names; a resumable checkpoint also has `adam.first.NAME` and
//! `adam.second.NAME`. The metadata has one key, `nap`, a JSON object with the configuration,
//! the position in the run and the history, and with data of one's own what token ids and classes
//! stand for. Nothing in it depends on the clock, so the same
//! run writes the same bytes.

use std::collections::HashMap;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use super::cost::memory_bytes;
use super::evaluate::{Evaluator, Sequences};
use super::{EpochRecord, Evaluation, MOST_BYTES, NUMERICS_VERSION, Trainer};
use crate::config::{ConfigError, Positions, RunConfig};
use crate::data::{self, Data, Examples, Names};
use crate::kernels::aggregate;
use crate::model::Model;
use crate::model::architecture::Architecture;
use crate::random::Purpose;
use crate::task::{Batch, Task};

/// Why a checkpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CheckpointError(String);

const METADATA_KEY: &str = "nap";

/// What the metadata say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Metadata {
    version: String,
    numerics: u32,
    isa: String,
    config: RunConfig,
    steps: u64,
    /// Sums of the current epoch as bits: exact, NaN included.
    epoch_loss: u64,
    epoch_accuracy: u64,
    diverged: bool,
    history: Vec<EpochRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    names: Option<Names>,
}

impl Trainer {
    /// The resumable state as a safetensors file: weights, moments, position in the run,
    /// history, configuration. Works between any two steps.
    pub fn checkpoint(&self) -> Vec<u8> {
        let adam = [("adam.first.", &self.adam.first), ("adam.second.", &self.adam.second)];
        self.serialize(&[("", &self.parameters), adam[0], adam[1]])
    }

    /// The weights alone as a safetensors file with configuration, epoch and history.
    pub fn weights(&self) -> Vec<u8> {
        self.serialize(&[("", &self.parameters)])
    }

    fn serialize(&self, buffers: &[(&str, &Vec<f32>)]) -> Vec<u8> {
        let metadata = Metadata {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            numerics: NUMERICS_VERSION,
            isa: self.isa().to_owned(),
            config: self.config.clone(),
            steps: self.steps,
            epoch_loss: self.epoch_loss.to_bits(),
            epoch_accuracy: self.epoch_accuracy.to_bits(),
            diverged: self.diverged,
            history: self.history.clone(),
            names: self.own.as_ref().map(|own| (*own.data.names).clone()),
        };
        // safetensors is little-endian; so is every machine this is built for so far, and
        // `bytemuck` would be wrong elsewhere.
        const { assert!(cfg!(target_endian = "little")) };
        let mut tensors = Vec::new();
        for (prefix, buffer) in buffers {
            for parameter in &self.architecture().parameters {
                let bytes = bytemuck::cast_slice(&buffer[parameter.range()]);
                let view = TensorView::new(Dtype::F32, parameter.shape.clone(), bytes)
                    .unwrap_or_else(|_| unreachable!("shape and length agree"));
                tensors.push((format!("{prefix}{}", parameter.name), view));
            }
        }
        let json = serde_json::to_string(&metadata)
            .unwrap_or_else(|_| unreachable!("plain values serialise"));
        let metadata = HashMap::from([(METADATA_KEY.to_owned(), json)]);
        safetensors::serialize(tensors, Some(metadata))
            .unwrap_or_else(|_| unreachable!("names are distinct"))
    }

    /// Continues the run that [`Trainer::checkpoint`] wrote, bit for bit if the instruction set
    /// is the same.
    ///
    /// # Errors
    /// If the bytes are not a resumable checkpoint of these numerics.
    pub fn resume(bytes: &[u8]) -> Result<Self, CheckpointError> {
        Self::resume_with_data(bytes, None)
    }

    /// [`Trainer::resume`], with the data that the checkpoint's `task.data` describes.
    ///
    /// # Errors
    /// As [`Trainer::resume`], and if the data are not the run's.
    pub fn resume_with_data(bytes: &[u8], data: Option<Data>) -> Result<Self, CheckpointError> {
        let (metadata, tensors) = open(bytes)?;
        if let (Some(names), Some(data)) = (&metadata.names, &data)
            && names != &*data.names
        {
            return Err(CheckpointError("its tokens and classes are not the data's".to_owned()));
        }
        if metadata.numerics != NUMERICS_VERSION {
            return Err(CheckpointError(format!(
                "written by numerics version {}, this program has {NUMERICS_VERSION}: \
                 start the run again",
                metadata.numerics
            )));
        }
        let architecture = checked_architecture(&metadata, &tensors)?;
        let train = &metadata.config.train;
        let closed = metadata.history.len() as u64 * train.steps_per_epoch as u64;
        let epochs_fit = metadata.history.len() <= train.epochs;
        let open_steps = metadata.steps.checked_sub(closed);
        if !(epochs_fit && open_steps.is_some_and(|s| s <= train.steps_per_epoch as u64)) {
            return Err(CheckpointError("its position in the run is impossible".to_owned()));
        }
        let buffer = |prefix| read(&tensors, &architecture, prefix);
        let parameters = buffer("")?;
        let (first, second) = (buffer("adam.first.")?, buffer("adam.second.")?);
        // Last, because the trainer makes room for sequences as long as the configuration says,
        // however small the file is.
        let mut trainer = Trainer::with_data(metadata.config, data).map_err(invalid)?;
        trainer.parameters = parameters;
        (trainer.adam.first, trainer.adam.second) = (first, second);
        trainer.steps = metadata.steps;
        trainer.epoch_loss = f64::from_bits(metadata.epoch_loss);
        trainer.epoch_accuracy = f64::from_bits(metadata.epoch_accuracy);
        trainer.diverged = metadata.diverged;
        trainer.history = metadata.history;
        Ok(trainer)
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
    /// The numerics version that trained it.
    pub numerics: u32,
    /// What token ids and classes stand for, with data of one's own.
    pub names: Option<Names>,
    diverged: bool,
    task: Task,
}

impl Trained {
    /// Reads a checkpoint.
    ///
    /// # Errors
    /// If the bytes are truncated, foreign or inconsistent.
    pub fn read(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let (metadata, tensors) = open(bytes)?;
        let architecture = checked_architecture(&metadata, &tensors)?;
        Ok(Self {
            parameters: read(&tensors, &architecture, "")?,
            architecture,
            epoch: metadata.history.len(),
            history: metadata.history,
            isa: metadata.isa,
            names: metadata.names,
            version: metadata.version,
            numerics: metadata.numerics,
            diverged: metadata.diverged,
            task: Task::new(&metadata.config.task),
            config: metadata.config,
        })
    }

    /// Scores the model on `batches` fresh batches (drawn with `seed`) of sequences of this
    /// length, and its tracked cases on an equalised set.
    ///
    /// # Errors
    /// If the model cannot read sequences of this length.
    pub fn evaluate(
        &self,
        length: usize,
        batches: usize,
        seed: u64,
    ) -> Result<Evaluation, ConfigError> {
        if self.config.task.name.is_own() {
            let (name, expected) = (self.config.task.name.as_str(), "data to score it on");
            return Err(ConfigError::new("task.name", name, expected));
        }
        self.check_length(length)?;
        if batches == 0 {
            return Err(ConfigError::new("batches", batches, "at least 1"));
        }
        let train = &self.config.train;
        let mut model = self.model(length)?;
        let mut batch = Batch::default();
        let mut evaluator = self.evaluator(&mut model, &mut batch, seed);
        let on = Sequences { purpose: Purpose::Evaluation, length };
        let fresh = evaluator.fresh(on, 0, batches, train.batch);
        // The step after the last fresh batch keys the equalised set.
        let cases = evaluator.cases(on, batches, train.case_sequences);
        let (Some((loss, accuracy)), Some(cases)) = (fresh, cases) else {
            unreachable!("nothing stops this evaluation");
        };
        Ok(Evaluation { loss, accuracy, cases, macro_f1: None })
    }

    /// Scores the model on examples of one's own, encoded with its [`Trained::names`].
    ///
    /// # Errors
    /// If the model makes its own sequences, if there are no examples, or some that it cannot
    /// read.
    pub fn evaluate_on(&self, examples: &dyn Examples) -> Result<Evaluation, ConfigError> {
        if !self.config.task.name.is_own() {
            let (name, expected) = (self.config.task.name.as_str(), "no data: it makes its own");
            return Err(ConfigError::new("task.name", name, expected));
        }
        let order = data::by_length(examples);
        let Some(&last) = order.last() else {
            return Err(ConfigError::new("examples", 0, "at least 1"));
        };
        let mut model = self.model(examples.length(last as usize))?;
        let mut batch = Batch::default();
        let mut evaluator = self.evaluator(&mut model, &mut batch, 0);
        let measured = evaluator.examples(examples, &order, self.config.train.batch);
        Ok(measured.unwrap_or_else(|| unreachable!("nothing stops this evaluation")))
    }

    /// Whether its run is over.
    pub fn finished(&self) -> bool {
        super::finished(&self.config, &self.history)
    }

    /// The model, with room for sequences of this length.
    pub(super) fn model(&self, length: usize) -> Result<Model<f32>, ConfigError> {
        self.check_length(length)?;
        let train = &self.config.train;
        if memory_bytes(&self.architecture, train.batch, length) > MOST_BYTES {
            let expected = format!("a shorter one: it needs over {} GiB", MOST_BYTES >> 30);
            return Err(ConfigError::new("sequence length", length, expected));
        }
        Ok(Model::new(self.architecture.clone(), length, train.precision))
    }

    fn evaluator<'a>(
        &'a self,
        model: &'a mut Model<f32>,
        batch: &'a mut Batch,
        seed: u64,
    ) -> Evaluator<'a> {
        Evaluator {
            task: &self.task,
            model,
            parameters: &self.parameters,
            diverged: self.diverged,
            l2: self.config.train.l2,
            seed,
            batch,
            stop: &|| false,
        }
    }

    /// Whether the model can read sequences of this length.
    ///
    /// # Errors
    /// If it cannot: what it can.
    pub fn check_length(&self, length: usize) -> Result<(), ConfigError> {
        let architecture = &self.architecture;
        let most = architecture.max_length;
        let bounded =
            architecture.positions == Positions::Learned || architecture.readout.is_position();
        let expected = if length == 0 || length > 1 << 20 {
            "between 1 and 1048576".to_owned()
        } else if self.config.model.aggregator == aggregate::WEIGHTED && length != most {
            format!("{most}: the weighted aggregator works at its training length only")
        } else if bounded && length > most {
            format!("at most {most}, the number of positions this model has")
        } else {
            return Ok(());
        };
        Err(ConfigError::new("sequence length", length, expected))
    }
}

fn open(bytes: &[u8]) -> Result<(Metadata, SafeTensors<'_>), CheckpointError> {
    let broken = |error| CheckpointError(format!("not a whole safetensors file ({error})"));
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
    let tensors = SafeTensors::deserialize(bytes).map_err(broken)?;
    let json =
        header.metadata().as_ref().and_then(|metadata| metadata.get(METADATA_KEY)).ok_or_else(
            || CheckpointError("a safetensors file, but not written by nap".to_owned()),
        )?;
    let metadata: Metadata = serde_json::from_str(json)
        .map_err(|error| CheckpointError(format!("its metadata cannot be read: {error}")))?;
    let found = (metadata.names.as_ref()).map(|names| (names.tokens.len(), names.labels.len()));
    if found != metadata.config.task.data.as_ref().map(|data| (data.vocab, data.classes)) {
        let message = "the names of its tokens and classes are not those of its configuration";
        return Err(CheckpointError(message.to_owned()));
    }
    Ok((metadata, tensors))
}

fn invalid(error: ConfigError) -> CheckpointError {
    CheckpointError(format!("its configuration is invalid: {error}"))
}

/// The model, after a look at whether the history can be its own and the file can hold it: a
/// tampered configuration must not make us allocate more parameters than the file has.
fn checked_architecture(
    metadata: &Metadata,
    tensors: &SafeTensors,
) -> Result<Architecture, CheckpointError> {
    let config = &metadata.config;
    config.validate().map_err(invalid)?;
    let cases = Task::new(&config.task).cases().len();
    let fits = |(index, epoch): (usize, &EpochRecord)| {
        epoch.epoch == index + 1
            && epoch.train_cases.len() == cases
            && epoch.validation.cases.len() == cases
    };
    if !metadata.history.iter().enumerate().all(fits) {
        return Err(CheckpointError("its history is not one of its task".to_owned()));
    }
    let architecture = Architecture::new(&config.model, &config.task).map_err(invalid)?;
    let held: usize = tensors.iter().map(|(_, tensor)| tensor.data().len() / 4).sum();
    let count = architecture.parameter_count();
    if held < count {
        let message = format!("it holds {held} values, its configuration needs {count}");
        return Err(CheckpointError(message));
    }
    Ok(architecture)
}

fn read(
    tensors: &SafeTensors,
    architecture: &Architecture,
    prefix: &str,
) -> Result<Vec<f32>, CheckpointError> {
    let mut buffer = vec![0.0; architecture.parameter_count()];
    for parameter in &architecture.parameters {
        let name = format!("{prefix}{}", parameter.name);
        let tensor = tensors.tensor(&name).map_err(|_| {
            let hint = if prefix.is_empty() { "" } else { " (only `last` can be resumed)" };
            CheckpointError(format!("it has no tensor {name}{hint}"))
        })?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != parameter.shape {
            return Err(CheckpointError(format!(
                "tensor {name} is {:?} {:?}, expected F32 {:?}",
                tensor.dtype(),
                tensor.shape(),
                parameter.shape
            )));
        }
        let values = buffer[parameter.range()].iter_mut();
        for (value, bytes) in values.zip(tensor.data().as_chunks::<4>().0) {
            *value = f32::from_le_bytes(*bytes);
        }
    }
    Ok(buffer)
}

/// JSON has no NaN: null stands for every value that is not finite.
pub(super) mod nan_as_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(x: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        x.is_finite().then_some(*x).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
    }
}

/// The same for a list.
pub(super) mod nans_as_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(x: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        let values: Vec<_> = x.iter().map(|x| x.is_finite().then_some(*x)).collect();
        values.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let values = Vec::<Option<f64>>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|x| x.unwrap_or(f64::NAN)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TaskName;

    /// A run of one epoch, finished.
    fn tiny(task: TaskName) -> Trainer {
        let mut config = RunConfig::quickstart();
        (config.task.name, config.task.length, config.task.vocab) = (task, 4, 65);
        (config.model.dim, config.model.layers, config.model.heads) = (4, 1, 2);
        (config.train.epochs, config.train.steps_per_epoch, config.train.batch) = (1, 1, 2);
        (config.train.validation_batches, config.train.case_sequences) = (1, 6);
        let mut trainer = Trainer::new(config).unwrap();
        trainer.step();
        trainer.finish_epoch();
        trainer
    }

    #[test]
    fn a_history_of_another_task_or_order_is_refused() {
        let changes: [fn(&mut EpochRecord); 4] = [
            |epoch| epoch.train_cases.truncate(1),
            |epoch| epoch.validation.cases.truncate(1),
            |epoch| epoch.validation.cases.push(1.0),
            |epoch| epoch.epoch = 2,
        ];
        for change in changes {
            let mut trainer = tiny(TaskName::Cases);
            assert!(Trainer::resume(&trainer.checkpoint()).is_ok());
            change(&mut trainer.history[0]);
            let bytes = trainer.checkpoint();
            for error in [Trained::read(&bytes).err(), Trainer::resume(&bytes).err()] {
                assert!(error.unwrap().to_string().contains("history"));
            }
        }
    }

    #[test]
    fn what_is_missing_is_found_before_room_is_made_for_the_run() {
        let mut trainer = tiny(TaskName::Mode);
        // More than the limit: the trainer would say so.
        (trainer.config.task.length, trainer.config.train.batch) = (1 << 20, 1 << 20);
        let error = |bytes: &[u8]| Trainer::resume(bytes).err().unwrap().to_string();
        assert!(error(&trainer.checkpoint()).contains("GiB"));
        assert!(error(&trainer.weights()).contains("adam.first"));
    }
}
