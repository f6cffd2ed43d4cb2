//! One run: from its checkpoint or its beginning to its record.

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use nap_engine::train::{Trained, Trainer};

use super::directory::SweepDir;
use super::grid::PlannedRun;
use super::record::{RunRecord, Wall};
use super::runner::{Event, Settings, host};
use crate::data;
use crate::files::write_atomically;

/// How long the workers did what.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// Initial weights and buffers, or reading a checkpoint.
    pub setup: Duration,
    /// Training and evaluation.
    pub compute: Duration,
    /// Writing records and checkpoints.
    pub store: Duration,
}

impl Times {
    pub(super) fn add(&mut self, other: Self) {
        self.setup += other.setup;
        self.compute += other.compute;
        self.store += other.store;
    }
}

/// How a run was left.
pub enum Executed {
    /// Every epoch is done.
    Finished(Box<RunRecord>),
    /// It was put aside.
    Stopped,
    /// It was put aside, because what it should keep cannot be stored.
    Unstorable(anyhow::Error),
}

/// What a run's execution may use.
pub struct Context<'a> {
    pub(super) dir: &'a SweepDir,
    pub(super) settings: &'a Settings,
    pub(super) halt: &'a AtomicBool,
    pub(super) events: &'a Sender<Event>,
    pub(super) worker: usize,
    pub(super) run: usize,
    pub(super) times: Times,
}

impl Context<'_> {
    pub(super) fn send(&self, event: Event) {
        // The receiver outlives the workers.
        let _ = self.events.send(event);
    }

    /// Whether it is time to put the run aside.
    pub(super) fn halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }
}

/// Executes a run; an error is the reason why it failed.
pub type Execute<'a> = dyn Fn(&PlannedRun, &mut Context) -> anyhow::Result<Executed> + Sync + 'a;

/// Trains a run from its checkpoint or its beginning.
///
/// # Errors
/// If its configuration cannot be computed.
pub fn train(planned: &PlannedRun, context: &mut Context) -> anyhow::Result<Executed> {
    let started = Instant::now();
    let mut trainer = begin(planned, context)?;
    context.times.setup += started.elapsed();
    let (worker, run) = (context.worker, context.run);
    context.send(Event::Started { worker, run, epochs_done: trainer.epochs_done() });
    let per_epoch = trainer.config().train.steps_per_epoch;
    let (mut steps, mut stepping) = (0, Duration::ZERO);
    let mut stored = Instant::now();
    while !trainer.finished() {
        while trainer.steps_done() < per_epoch {
            let begun = Instant::now();
            trainer.step();
            stepping += begun.elapsed();
            steps += 1;
            if context.halted() || stored.elapsed() >= context.settings.checkpoint_every {
                save(planned, &trainer, context);
                stored = Instant::now();
            }
            if context.halted() {
                context.times.compute += stepping;
                return Ok(Executed::Stopped);
            }
        }
        let begun = Instant::now();
        let finished = trainer.finish_epoch_unless(&|| context.halted()).is_some();
        context.times.compute += begun.elapsed();
        if !finished {
            save(planned, &trainer, context);
            context.times.compute += stepping;
            return Ok(Executed::Stopped);
        }
        context.send(Event::Epoch { worker, epochs_done: trainer.epochs_done() });
        if context.settings.keep_checkpoints
            && let Err(error) = keep(planned, &trainer, context)
        {
            save(planned, &trainer, context);
            return Ok(Executed::Unstorable(error));
        }
    }
    context.times.compute += stepping;
    let wall = wall(&host(), started.elapsed(), steps, stepping);
    let record = RunRecord::finished(planned.id, trainer.config(), trainer.history(), wall);
    Ok(Executed::Finished(Box::new(record)))
}

/// The trainer, from a checkpoint that fits or from the beginning.
fn begin(planned: &PlannedRun, context: &Context) -> anyhow::Result<Trainer> {
    let path = context.dir.checkpoint_path(planned.id);
    let resumed = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.to_string())),
        Ok(bytes) => Some(resume(planned, &bytes, context)?),
    };
    match resumed {
        None => {}
        Some(Ok(trainer)) => return Ok(trainer),
        Some(Err(reason)) => {
            context.send(Event::Note(format!("{}: {reason}: the run starts again", path.display())))
        }
    }
    data::trainer(&planned.config)
}

fn resume(
    planned: &PlannedRun,
    bytes: &[u8],
    context: &Context,
) -> anyhow::Result<Result<Trainer, String>> {
    let trained = match Trained::read(bytes) {
        Ok(trained) => trained,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if trained.config != planned.config {
        return Ok(Err("it belongs to another run".to_owned()));
    }
    let best = context.dir.model_path(planned.id, "best");
    if context.settings.keep_checkpoints && trained.epoch > 0 && !best.exists() {
        return Ok(Err("its best weights were not kept".to_owned()));
    }
    let isa = nap_engine::train::isa(&trained.config);
    if trained.isa != isa {
        let isas = format!("it was computed with {}, this machine has {isa}", trained.isa);
        return Ok(Err(isas));
    }
    // Both at once would take more memory than the run itself.
    drop(trained);
    Ok(data::resume(&planned.config, bytes)?.map_err(|error| error.to_string()))
}

/// Stores the state of a run under way. Where that fails the run goes on: its record matters.
fn save(planned: &PlannedRun, trainer: &Trainer, context: &mut Context) {
    let storing = Instant::now();
    let path = context.dir.checkpoint_path(planned.id);
    if let Err(error) = write_atomically(&path, &trainer.checkpoint()) {
        context.send(Event::Note(format!("cannot write {}: {error}", path.display())));
    }
    context.times.store += storing.elapsed();
}

/// Keeps the best and the last weights.
fn keep(planned: &PlannedRun, trainer: &Trainer, context: &Context) -> anyhow::Result<()> {
    let write = |kind: &str, bytes: &[u8]| {
        let path = context.dir.model_path(planned.id, kind);
        fs::create_dir_all(context.dir.models_path())
            .and_then(|()| write_atomically(&path, bytes))
            .with_context(|| format!("cannot write {}", path.display()))
    };
    if trainer.last_epoch_is_best() {
        write("best", &trainer.weights())?;
    }
    if trainer.finished() { write("last", &trainer.checkpoint()) } else { Ok(()) }
}

/// Where and how fast a run was computed, and when it ended.
pub(super) fn wall(host: &str, elapsed: Duration, steps: usize, stepping: Duration) -> Wall {
    let round = |x: f64| (x * 1000.0).round() / 1000.0;
    let speed = if steps == 0 { 0.0 } else { steps as f64 / stepping.as_secs_f64().max(1e-9) };
    Wall {
        finished: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        host: host.to_owned(),
        seconds: round(elapsed.as_secs_f64()),
        steps_per_s: round(speed),
    }
}
