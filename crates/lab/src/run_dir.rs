//! A run's directory: what is in it, and how it survives being killed at any moment.
//!
//! | file | what |
//! |---|---|
//! | `config.toml` | the resolved configuration; `nap train config.toml` reruns it |
//! | `metrics.jsonl` | one JSON record per finished epoch |
//! | `best.safetensors` | the weights of the best validation epoch so far |
//! | `last.safetensors` | the resumable state |
//!
//! Every file is written beside its place, flushed to disk and renamed. `last` is written after
//! the others: whatever they hold beyond it, the resumed run writes again, to the same bits.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::Context;
use nap_engine::config::RunConfig;
use nap_engine::task::Task;
use nap_engine::train::{EpochRecord, Trained, Trainer, finished};
use serde_json::Value;

use crate::data;
use crate::error::bad;
use crate::escape::quoted;
use crate::files::{TEMPORARY, remove_beginning_with, write_atomically};
use crate::record;
use crate::resolve::{self, Layers};

/// The resumable state.
pub const LAST: &str = "last.safetensors";
/// The best weights.
pub const BEST: &str = "best.safetensors";
const CONFIG: &str = "config.toml";
const METRICS: &str = "metrics.jsonl";

/// A run's directory.
#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
}

/// What a directory holds.
#[derive(Debug)]
pub enum State {
    /// Nothing yet.
    Empty,
    /// A run of this configuration, which may have a checkpoint.
    Run(Box<RunConfig>),
}

impl RunDir {
    /// The directory at a path, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The command that continues the run.
    pub fn resume_command(&self) -> String {
        format!("nap train --resume --out {}", quoted(&self.path.display().to_string()))
    }

    /// What is there.
    ///
    /// # Errors
    /// If it is not a directory, or holds something other than a run.
    pub fn state(&self) -> anyhow::Result<State> {
        let place = self.path.display();
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(State::Empty),
            Err(error) => return Err(bad(format!("output directory {place}: {error}"))),
        };
        let config = self.path.join(CONFIG);
        if config.exists() {
            let layers = Layers::from_file(&config, None, false)?;
            return Ok(State::Run(Box::new(layers.finish()?)));
        }
        // A file that a killed write left behind is nobody's.
        let temporary = |name: &str| name.starts_with(TEMPORARY);
        let others = entries.filter_map(Result::ok);
        let others = others.filter(|entry| !entry.file_name().to_str().is_some_and(temporary));
        match others.count() {
            0 => Ok(State::Empty),
            n => Err(bad(format!(
                "output directory {place} holds {n} files and no run: expected an empty or new one"
            ))),
        }
    }

    /// Claims the directory for this process, if there is one, for as long as the file that is
    /// returned. What is read after that stays true.
    ///
    /// # Errors
    /// If another process is at work there.
    pub fn claim(&self) -> anyhow::Result<Option<File>> {
        let Ok(directory) = File::open(&self.path) else { return Ok(None) };
        match directory.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let place = self.path.display();
                Err(bad(format!("another process is at work in output directory {place}")))
            }
            // Where directories cannot be locked, nothing is claimed.
            _ => Ok(Some(directory)),
        }
    }

    /// Creates the directory and claims it.
    ///
    /// # Errors
    /// If that cannot be done, or another process was faster.
    pub fn create(&self) -> anyhow::Result<Option<File>> {
        fs::create_dir_all(&self.path).map_err(|error| self.unwritable(&error))?;
        let claim = self.claim()?;
        match self.state()? {
            State::Empty => Ok(claim),
            State::Run(_) => Err(bad(format!(
                "another process has put a run into output directory {}",
                self.path.display()
            ))),
        }
    }

    /// Stores the configuration, and removes what a killed process left behind.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn begin(&self, config: &RunConfig) -> anyhow::Result<()> {
        remove_beginning_with(&self.path, TEMPORARY).map_err(|error| self.unwritable(&error))?;
        let text = resolve::to_toml(config)?;
        self.write(CONFIG, text.as_bytes()).map_err(|error| self.unwritable(error.root_cause()))
    }

    fn unwritable(&self, error: &dyn std::fmt::Display) -> anyhow::Error {
        bad(format!("cannot write to output directory {}: {error}", self.path.display()))
    }

    /// Makes the stored records those of the trainer's finished epochs, no more and no fewer.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn align(&self, records: &[String], trainer: &Trainer) -> anyhow::Result<()> {
        let stored = fs::read_to_string(self.path.join(METRICS)).unwrap_or_default();
        if trainer.epochs_done() > 0 && stored != lines(records) {
            self.write(METRICS, lines(records).as_bytes())?;
        }
        Ok(())
    }

    /// The run's trainer: from its checkpoint if it has one of this instruction set, and the
    /// records of its finished epochs; a note where the run starts again.
    ///
    /// # Errors
    /// If the checkpoint cannot be used, belongs to another run, or holds the end of this one on
    /// another instruction set.
    pub fn trainer(
        &self,
        config: &RunConfig,
    ) -> anyhow::Result<(Trainer, Vec<String>, Option<String>)> {
        let last = self.path.join(LAST);
        let fresh = || data::trainer(config);
        let bytes = match fs::read(&last) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((fresh()?, Vec::new(), None));
            }
            Err(error) => return Err(bad(format!("cannot read {}: {error}", last.display()))),
        };
        let unusable = |error| {
            let place = last.display();
            bad(format!("cannot resume from {place}: {error}: remove it to start the run again"))
        };
        let trained = Trained::read(&bytes).map_err(unusable)?;
        if trained.config != *config {
            let place = last.display();
            return Err(bad(format!("{place} belongs to another run than the {CONFIG} beside it")));
        }
        let isa = nap_engine::train::isa(&trained.config);
        if trained.isa != isa && finished(&trained.config, &trained.history) {
            return Err(bad(format!(
                "{} already holds this run, finished with {}, and this machine has {isa}: \
                 nap show it, or give a new --out",
                self.path.display(),
                trained.isa
            )));
        }
        if trained.isa != isa {
            let note = format!(
                "the checkpoint was computed with {}, this machine has {isa}: starting again",
                trained.isa
            );
            return Ok((fresh()?, Vec::new(), Some(note)));
        }
        let trainer = data::resume(config, &bytes)?.map_err(unusable)?;
        let records = self.records(&trainer);
        Ok((trainer, records, None))
    }

    /// The records of the trainer's finished epochs, as lines; one that was lost is made again
    /// from the history, without its speed.
    fn records(&self, trainer: &Trainer) -> Vec<String> {
        let text = fs::read_to_string(self.path.join(METRICS)).unwrap_or_default();
        let mut stored = text.lines();
        let cases = Task::new(&trainer.config().task).cases();
        let of_epoch = |line: &&str, epoch: usize| {
            let record = serde_json::from_str::<Value>(line);
            record.is_ok_and(|record| record["epoch"] == epoch)
        };
        let line = |epoch: &EpochRecord| match stored.next().filter(|l| of_epoch(l, epoch.epoch)) {
            Some(line) => line.to_owned(),
            None => Value::Object(record::epoch(epoch, cases, f64::NAN)).to_string(),
        };
        trainer.history().iter().map(line).collect()
    }

    /// Stores a finished epoch.
    ///
    /// # Errors
    /// If a file cannot be written; the earlier ones stay as they are.
    pub fn save_epoch(&self, trainer: &Trainer, records: &[String]) -> anyhow::Result<()> {
        if trainer.last_epoch_is_best() {
            self.write(BEST, &trainer.weights())?;
        }
        self.write(METRICS, lines(records).as_bytes())?;
        self.save_state(trainer)
    }

    /// Stores the resumable state, between any two steps.
    ///
    /// # Errors
    /// If it cannot be written; the earlier one stays as it is.
    pub fn save_state(&self, trainer: &Trainer) -> anyhow::Result<()> {
        self.write(LAST, &trainer.checkpoint())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.path.join(name);
        write_atomically(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn lines(records: &[String]) -> String {
    records.iter().map(|line| format!("{line}\n")).collect()
}

/// A checkpoint named directly or by its run directory, and its bytes.
///
/// # Errors
/// If there is none to read.
pub fn read_checkpoint(path: &Path, last: bool) -> anyhow::Result<(PathBuf, Trained)> {
    let file = if path.is_dir() { path.join(if last { LAST } else { BEST }) } else { path.into() };
    let place = file.display();
    if file.exists() && !file.is_file() {
        return Err(bad(format!("checkpoint {place} is not a file")));
    }
    let bytes = fs::read(&file).map_err(|error| {
        let hint =
            if path.is_dir() { "; expected a run directory with a finished epoch" } else { "" };
        bad(format!("cannot read checkpoint {place}: {error}{hint}"))
    })?;
    let trained =
        Trained::read(&bytes).map_err(|error| bad(format!("checkpoint {place}: {error}")))?;
    Ok((file, trained))
}
