//! `nap train`: runs one training and writes its directory.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nap_engine::config::{DataConfig, RunConfig, TaskConfig, TaskName};
use nap_engine::task::Task;
use nap_engine::train::{EpochRecord, Trainer};
use serde_json::{Map, Value};

use super::progress::Progress;
use super::{RunOptions, signals};
use crate::error::bad;
use crate::output::{Closed, note, print, print_line};
use crate::published;
use crate::record;
use crate::run_dir::{RunDir, State};

/// Train a model and write a run directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap train                                     NAP learns `mode`, d = 32, in a minute or two
  nap train --task cases --model mte --lr 0.3^7 a softmax model on case distinction, d = 32
  nap train --preset paper                      the paper's defaults: cases, d = 128
  nap train my.toml --seed 3 --out runs/mine    a file, an option on top, a directory
  nap train --preset paper --dim 512 --threads 2 a big model on two cores
  nap train --data my.jsonl --task classify     data of your own (docs/data.md)
  nap train --resume --out runs/mine            continue a run that was stopped
  nap train --json > epochs.jsonl               one JSON record per epoch")]
pub struct Args {
    #[command(flatten)]
    options: RunOptions,
    /// Run directory [default: runs/TASK-MODEL-dDIM-lrRATE-sSEED; with data its name after the task]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Continue the run in the run directory
    #[arg(long)]
    resume: bool,
    /// One JSON record per epoch on standard output; everything else on standard error
    #[arg(long)]
    json: bool,
    /// Print nothing but errors (and JSON, with --json)
    #[arg(long)]
    quiet: bool,
    /// Threads that share each step, up to 4; the results are the same. For big models
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=Trainer::most_threads() as u64))]
    threads: u64,
}

/// A long epoch is checkpointed this often.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(60);

/// Runs the command.
///
/// # Errors
/// On input that cannot be used, and if results cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // First of all, so that no write is cut short.
    let stop = signals::stop_flag()?;
    let (config, dir, claim) = plan(&args)?;
    // The trainer comes before the directory, so that a bad configuration leaves none behind.
    let (trainer, records, restart) = dir.trainer(&config)?;
    let _claim = match claim {
        None if !args.resume => dir.create()?,
        claim => claim,
    };
    dir.begin(&config)?;
    dir.align(&records, &trainer)?;
    let say = |text: String| match (args.quiet, args.json) {
        (true, _) => Ok(()),
        (false, true) => {
            note(text);
            Ok(())
        }
        (false, false) => print(text),
    };
    say(describe(&trainer, &dir))?;
    if let Some(restart) = restart {
        say(format!("note: {restart}\n"))?;
    }
    let started = Instant::now();
    let trainer = trainer.with_threads(args.threads as usize);
    let mut run = Run { args: &args, dir: &dir, trainer, records, stop };
    match run.train() {
        Ok(true) => {
            say(summary(&run.trainer, started.elapsed()))?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(false) => {
            note(format!("stopped; continue with: {}\n", dir.resume_command()));
            Ok(ExitCode::from(1))
        }
        Err(error) => {
            note(format!("stopped; continue with: {}\n", dir.resume_command()));
            // A reader who has left wants no more, but the run is not done.
            if error.is::<Closed>() { Ok(ExitCode::from(1)) } else { Err(error) }
        }
    }
}

/// Which run, and where, and the claim to the directory if there is one; refuses a directory that
/// this run must not touch.
fn plan(args: &Args) -> anyhow::Result<(RunConfig, RunDir, Option<File>)> {
    if args.resume && args.options.is_empty() {
        let path = args.out.clone().ok_or_else(|| {
            bad("--resume needs --out DIR, or the options of the run that is to continue")
        })?;
        let dir = RunDir::new(path);
        let claim = dir.claim()?;
        return match dir.state()? {
            State::Run(config) => Ok((*config, dir, claim)),
            State::Empty => {
                Err(bad(format!("nothing to resume: {} holds no run", dir.path().display())))
            }
        };
    }
    let config = args.options.resolve()?;
    let dir = RunDir::new(args.out.clone().unwrap_or_else(|| default_path(&config)));
    let place = dir.path().display();
    let claim = dir.claim()?;
    match dir.state()? {
        State::Empty if args.resume => Err(bad(format!("nothing to resume: {place} holds no run"))),
        State::Empty => Ok((config, dir, claim)),
        State::Run(stored) if *stored != config => Err(bad(format!(
            "{place} is the output directory of another run ({}): expected a new --out",
            differences(&stored, &config)
        ))),
        State::Run(_) if args.resume => Ok((config, dir, claim)),
        State::Run(_) => {
            let finished = dir.trainer(&config)?.0.finished();
            let (what, hint) = match finished {
                true => ("already holds this run, finished", "nap show it, or give a new --out"),
                false => ("already holds this run, unfinished", "add --resume to continue it"),
            };
            Err(bad(format!("{place} {what}: {hint}")))
        }
    }
}

/// The keys in which two configurations differ, the first three of them.
fn differences(stored: &RunConfig, wanted: &RunConfig) -> String {
    let (Ok(Value::Object(stored)), Ok(Value::Object(wanted))) =
        (serde_json::to_value(stored), serde_json::to_value(wanted))
    else {
        return String::new();
    };
    let mut found = Vec::new();
    for (section, keys) in &stored {
        // Keys that only one of them has are null in the other.
        let sections = [keys, &wanted[section]].into_iter().filter_map(Value::as_object);
        for key in sections.flat_map(Map::keys).collect::<BTreeSet<_>>() {
            let (value, other) = (&keys[key], &wanted[section][key]);
            let key = format!("{section}.{key}");
            if value == other {
                continue;
            }
            // Other data: the file says it, or the digest; all else follows.
            if value.is_object() || other.is_object() {
                let parts = ["train", "valid", "digest"];
                let part = parts.into_iter().find(|&part| value[part] != other[part]);
                let part = part.unwrap_or("fraction");
                let [value, other] = [value, other].map(|data| match &data[part] {
                    Value::Null => "none".to_owned(),
                    value => value.to_string(),
                });
                found.insert(0, format!("{key}.{part} is {value}, not {other}"));
            } else {
                found.push(format!("{key} is {value}, not {other}"));
            }
        }
    }
    let more = found.len().saturating_sub(3);
    found.truncate(3);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    found.join(", ") + &rest
}

fn default_path(config: &RunConfig) -> PathBuf {
    let (model, train) = (&config.model, &config.train);
    let (task, rate) = (name_of(&config.task), train.learning_rate);
    let name = format!("{task}-{}-d{}-lr{rate}-s{}", model.name, model.dim, train.seed);
    PathBuf::from("runs").join(name)
}

/// The task, with the name of its data.
pub(super) fn name_of(task: &TaskConfig) -> String {
    let data = task.data.as_ref().and_then(|data| Path::new(&data.train.0).file_name()?.to_str());
    let stem = data.and_then(|name| name.split('.').find(|part| !part.is_empty()));
    [Some(task.name.as_str()), stem].into_iter().flatten().collect::<Vec<_>>().join("-")
}

struct Run<'a> {
    args: &'a Args,
    dir: &'a RunDir,
    trainer: Trainer,
    records: Vec<String>,
    stop: Arc<AtomicBool>,
}

impl Run<'_> {
    /// Trains until the end, or until told to stop; says which.
    fn train(&mut self) -> anyhow::Result<bool> {
        let Args { json, quiet, .. } = *self.args;
        let progress = Progress::new(&self.trainer, !json && !quiet, !json && !quiet);
        let cases = Task::new(&self.trainer.config().task).cases();
        let per_epoch = self.trainer.config().train.steps_per_epoch;
        let mut saved = Instant::now();
        while !self.trainer.finished() {
            let (started, first) = (Instant::now(), self.trainer.steps_done());
            while self.trainer.steps_done() < per_epoch {
                if self.stop.load(Ordering::Relaxed) {
                    progress.finish();
                    self.dir.save_state(&self.trainer)?;
                    return Ok(false);
                }
                let step = self.trainer.step();
                progress.step(self.trainer.epochs_done(), step);
                if saved.elapsed() > CHECKPOINT_EVERY {
                    self.dir.save_state(&self.trainer)?;
                    saved = Instant::now();
                }
            }
            let steps = (per_epoch - first) as f64;
            let steps_per_s = steps / started.elapsed().as_secs_f64().max(1e-9);
            let stop = || self.stop.load(Ordering::Relaxed);
            let Some(measured) = self.trainer.finish_epoch_unless(&stop).cloned() else {
                progress.finish();
                self.dir.save_state(&self.trainer)?;
                return Ok(false);
            };
            let line = Value::Object(record::epoch(&measured, cases, steps_per_s)).to_string();
            self.records.push(line);
            self.dir.save_epoch(&self.trainer, &self.records)?;
            saved = Instant::now();
            if json && let Some(line) = self.records.last() {
                print_line(line)?;
            }
            progress.epoch(&measured, steps_per_s)?;
        }
        progress.finish();
        Ok(true)
    }
}

/// What will run.
fn describe(trainer: &Trainer, dir: &RunDir) -> String {
    let config = trainer.config();
    let (model, task, train) = (&config.model, &config.task, &config.train);
    let data = match &task.data {
        Some(data) => describe_data(data, train.batch),
        None => {
            let readout = match task.name {
                TaskName::Cases => format!(", {:?}", task.readout()),
                _ => String::new(),
            };
            let (length, vocab, batch) = (task.length, task.vocab, train.batch);
            let validation = config.validation_length();
            format!(
                "{length} tokens of {vocab}, batches of {batch}, validation at length \
                 {validation}{readout}"
            )
        }
    };
    let patience =
        train.patience.map_or(String::new(), |patience| format!(", patience {patience}"));
    let balanced = if train.class_weights.is_some() { ", balanced classes" } else { "" };
    let mut text = format!(
        "{} on {}: d {}, {} layers, {} heads, {} parameters\n\
         data: {data}\n\
         training: {} epochs of {} steps{patience}, learning rate {}{}{}{balanced}, seed {}, {}\n\
         results: {}\n",
        model.name,
        task.name.as_str(),
        model.dim,
        model.layers,
        model.heads,
        trainer.architecture().parameter_count(),
        train.epochs,
        train.steps_per_epoch,
        train.learning_rate,
        if train.warmup { ", warm-up" } else { "" },
        if train.clip { ", clipping" } else { "" },
        train.seed,
        trainer.isa(),
        dir.path().display(),
    );
    if trainer.epochs_done() > 0 || trainer.steps_done() > 0 {
        text += &format!(
            "resuming after {} epochs and {} steps\n",
            trainer.epochs_done(),
            trainer.steps_done()
        );
    }
    text
}

fn describe_data(data: &DataConfig, batch: usize) -> String {
    let lengths = match data.shortest == data.longest {
        true => data.longest.to_string(),
        false => format!("{} to {}", data.shortest, data.longest),
    };
    let classes = match data.classes {
        0 => String::new(),
        classes => format!(", {classes} classes"),
    };
    format!(
        "{} sequences of {lengths} tokens, {} different ones{classes}, batches of {batch}, {} \
         sequences for validation",
        data.sequences,
        data.vocab - 1,
        data.validation
    )
}

/// What came out, beside the published figures of the same grid cell.
fn summary(trainer: &Trainer, elapsed: Duration) -> String {
    let best = |value: fn(&EpochRecord) -> f64| {
        let history = trainer.history().iter();
        history.fold((0, f64::NEG_INFINITY), |best, record| {
            if value(record) > best.1 { (record.epoch, value(record)) } else { best }
        })
    };
    let (val_epoch, val) = best(|record| record.validation.accuracy);
    let (train_epoch, train) = best(|record| record.train_accuracy);
    let mut text = format!("done in {:.0} s\n", elapsed.as_secs_f64());
    if trainer.diverged() {
        text += "the model diverged: its answers are always index 0\n";
    }
    let (epochs, all) = (trainer.epochs_done(), trainer.config().train.epochs);
    if epochs < all {
        text += &format!("ended after {epochs} of {all} epochs: patience was over\n");
    }
    let best = val_epoch.checked_sub(1).and_then(|epoch| trainer.history().get(epoch));
    let f1 = best.and_then(|epoch| epoch.validation.macro_f1);
    let f1 = f1.map_or(String::new(), |f1| format!(", macro-F1 {f1:.4}"));
    text += &format!(
        "this run, one seed at its best epoch:  validation {val:.4}{f1} (epoch {val_epoch}), \
         training {train:.4} (epoch {train_epoch})\n"
    );
    if let Some(cell) = published::cell(trainer.config()) {
        text += &format!(
            "published, best epoch over {} seeds:   validation {:.4} mean ({:.4} to {:.4}), \
             training {:.4} mean ({:.4} to {:.4})\n",
            cell.runs,
            cell.val_mean,
            cell.val_min,
            cell.val_max,
            cell.train_mean,
            cell.train_min,
            cell.train_max
        );
    }
    text
}
