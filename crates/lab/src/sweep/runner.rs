//! Computes runs: workers that each train one model at a time and record how it ended.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::directory::SweepDir;
use super::execute::{Context, Execute, Executed, Times, wall};
use super::grid::PlannedRun;
use super::journal::Writer;
use super::record::{RunRecord, Status};

/// How runs are computed.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Number of workers, one model each.
    pub jobs: usize,
    /// Runs under way together take no more memory, in bytes.
    pub memory: u64,
    /// Stop at the first run that fails.
    pub fail_fast: bool,
    /// Stop when this is over.
    pub time: Option<Duration>,
    /// A run under way is stored this often.
    pub checkpoint_every: Duration,
    /// Keep the best and the last weights of every run.
    pub keep_checkpoints: bool,
}

/// What happens while runs are computed. `run` is an index of the list of runs.
#[derive(Debug)]
pub enum Event {
    /// A worker begins or resumes a run.
    #[allow(missing_docs, reason = "the names say it")]
    Started { worker: usize, run: usize, epochs_done: usize },
    /// A worker has finished an epoch.
    #[allow(missing_docs, reason = "the names say it")]
    Epoch { worker: usize, epochs_done: usize },
    /// A run has ended and is recorded.
    #[allow(missing_docs, reason = "the names say it")]
    Ended { worker: usize, run: usize, record: Box<RunRecord> },
    /// A worker has put its run aside, to be resumed.
    #[allow(missing_docs, reason = "the names say it")]
    Stopped { worker: usize },
    /// Something that a user should know.
    Note(String),
    /// Time has passed.
    Tick,
}

/// What came of the runs.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Runs that finished.
    pub finished: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Runs that were not begun or not ended when it stopped.
    pub left: usize,
    /// Seconds of the cores.
    pub times: Times,
    /// Seconds in all, by the clock.
    pub elapsed: Duration,
}

/// Computes the runs in their order, until all have ended, `stop` is set, or the time is over.
/// Each must fit into the memory.
///
/// # Errors
/// If a record cannot be written, or what `on_event` returns. What was recorded stays whole.
pub fn compute(
    dir: &SweepDir,
    runs: &[&PlannedRun],
    settings: &Settings,
    stop: &AtomicBool,
    execute: &Execute,
    on_event: &mut dyn FnMut(Event) -> anyhow::Result<()>,
) -> anyhow::Result<Totals> {
    let started = Instant::now();
    let mut totals = Totals::default();
    // Not the signals' own flag: a first signal must not look like a second.
    let halt = AtomicBool::new(false);
    let waiting = Mutex::new(((0..runs.len()).collect(), settings.memory));
    let queue = Queue { runs, halt: &halt, waiting, freed: Condvar::new() };
    catch_worker_panics();
    let (sender, receiver) = mpsc::channel();
    let mut shown = Ok(());
    let worked = std::thread::scope(|scope| {
        let start = |worker: usize| {
            let (sender, queue) = (sender.clone(), &queue);
            let work = move || {
                let worked = work(worker, dir, settings, queue, execute, &sender);
                if worked.is_err() {
                    queue.halt.store(true, Ordering::Relaxed);
                }
                worked
            };
            std::thread::Builder::new().name(format!("{WORKER}{worker}")).spawn_scoped(scope, work)
        };
        let workers: Vec<_> = (0..settings.jobs).map(start).collect();
        drop(sender);
        let unstarted = workers.iter().any(Result::is_err);
        loop {
            let over = settings.time.is_some_and(|time| started.elapsed() >= time);
            let failed = settings.fail_fast && totals.failed > 0;
            if unstarted || over || failed || shown.is_err() || stop.load(Ordering::Relaxed) {
                halt.store(true, Ordering::Relaxed);
            }
            let event = match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => Event::Tick,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if let Event::Ended { record, .. } = &event {
                match record.status {
                    Status::Finished => totals.finished += 1,
                    Status::Failed => totals.failed += 1,
                }
            }
            if shown.is_ok() {
                shown = on_event(event);
            }
        }
        workers.into_iter().map(join).collect::<Vec<_>>()
    });
    for times in worked {
        totals.times.add(times?);
    }
    totals.elapsed = started.elapsed();
    totals.left = runs.len() - totals.finished - totals.failed;
    shown.map(|()| totals)
}

/// What a worker comes to in the end.
fn join(
    worker: std::io::Result<std::thread::ScopedJoinHandle<'_, anyhow::Result<Times>>>,
) -> anyhow::Result<Times> {
    let worker = worker.context("cannot start a worker")?;
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The runs that wait for a worker, and the memory that is free.
struct Queue<'a> {
    runs: &'a [&'a PlannedRun],
    halt: &'a AtomicBool,
    waiting: Mutex<(VecDeque<usize>, u64)>,
    freed: Condvar,
}

impl Queue<'_> {
    /// The next run that the free memory has room for; none when all are taken or it is time to
    /// stop.
    fn take(&self) -> Option<usize> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (runs, memory) = &mut *waiting;
            if runs.is_empty() || self.halt.load(Ordering::Relaxed) {
                return None;
            }
            let bytes = |run: usize| self.runs[run].cost.memory_bytes;
            if let Some(at) = runs.iter().position(|&run| bytes(run) <= *memory) {
                let run = runs.remove(at)?;
                *memory -= bytes(run);
                return Some(run);
            }
            let wait = self.freed.wait_timeout(waiting, Duration::from_millis(250));
            waiting = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives a run's memory back.
    fn free(&self, run: usize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.1 += self.runs[run].cost.memory_bytes;
        self.freed.notify_all();
    }
}

/// One worker: takes runs until there are none. An error means that records cannot be stored.
fn work(
    worker: usize,
    dir: &SweepDir,
    settings: &Settings,
    queue: &Queue,
    execute: &Execute,
    events: &Sender<Event>,
) -> anyhow::Result<Times> {
    let host = host();
    let mut journal =
        Writer::new(&dir.journal_path(), &format!("{host}-{}-{worker}", std::process::id()));
    let mut times = Times::default();
    while let Some(run) = queue.take() {
        let planned = queue.runs[run];
        let halt = queue.halt;
        let started = Instant::now();
        let mut context =
            Context { dir, settings, halt, events, worker, run, times: Times::default() };
        let executed = catch_unwind(AssertUnwindSafe(|| execute(planned, &mut context)));
        queue.free(run);
        let failed = |reason: String| {
            let wall = wall(&host, started.elapsed(), 0, Duration::ZERO);
            Box::new(RunRecord::failed(planned.id, &planned.config, reason, wall))
        };
        let record = match executed {
            Ok(Ok(Executed::Finished(record))) => record,
            Ok(Ok(Executed::Stopped)) => {
                context.send(Event::Stopped { worker });
                times.add(context.times);
                continue;
            }
            Ok(Ok(Executed::Unstorable(error))) => return Err(error),
            Ok(Err(error)) => failed(format!("{error:#}")),
            Err(_) => failed(format!("panic: {}", LAST_PANIC.take())),
        };
        let storing = Instant::now();
        journal.append(&record).with_context(|| {
            format!("cannot store a record in {}", dir.journal_path().display())
        })?;
        // A checkpoint that stays behind is removed by the next process.
        let _ = dir.remove_checkpoint(planned.id);
        context.times.store += storing.elapsed();
        times.add(context.times);
        context.send(Event::Ended { worker, run, record });
    }
    Ok(times)
}

/// The machine's name, as a file name may have it.
pub(super) fn host() -> String {
    let name = sysinfo::System::host_name().unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-.".contains(*c);
    let name: String = name.chars().filter(plain).take(64).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

/// How the names of worker threads begin.
const WORKER: &str = "nap-worker-";

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A panic of a worker is a run's reason to fail, not a message on the terminal.
fn catch_worker_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name().is_some_and(|name| name.starts_with(WORKER)) {
                let payload = info.payload();
                let text = payload.downcast_ref::<&str>().copied();
                let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                let message = text.unwrap_or("unknown");
                let place = info.location().map(|place| format!(" at {place}"));
                LAST_PANIC.set(format!("{message}{}", place.unwrap_or_default()));
            } else {
                default(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::grid::Grid;
    use crate::sweep::spec::SweepSpec;
    use std::sync::atomic::AtomicUsize;

    const SWEEP: &str = "seeds = 6\n[axes]\ndim = [8, 16]";

    fn settings(jobs: usize) -> Settings {
        Settings {
            jobs,
            memory: u64::MAX,
            fail_fast: false,
            time: None,
            checkpoint_every: Duration::from_secs(60),
            keep_checkpoints: false,
        }
    }

    /// Runs the grid with a stand-in for training; the totals and what the journal then holds.
    fn compute_with(
        settings: &Settings,
        execute: &Execute,
    ) -> (Totals, crate::sweep::journal::Journal) {
        let spec = SweepSpec::parse(SWEEP, "mine", "mine").unwrap();
        let grid = Grid::new(&spec).unwrap();
        let runs: Vec<_> = grid.runs.iter().collect();
        let place = tempfile::tempdir().unwrap();
        let dir = SweepDir::create(place.path(), &spec).unwrap();
        let stop = AtomicBool::new(false);
        let totals = compute(&dir, &runs, settings, &stop, execute, &mut |_| Ok(())).unwrap();
        (totals, dir.journal().unwrap())
    }

    fn finished(run: &PlannedRun) -> anyhow::Result<Executed> {
        let wall = wall("here", Duration::ZERO, 0, Duration::ZERO);
        let record = RunRecord::finished(run.id, &run.config, &[], wall);
        Ok(Executed::Finished(Box::new(record)))
    }

    #[test]
    fn a_failing_run_is_recorded_with_its_reason_and_the_others_go_on() {
        let execute = |run: &PlannedRun, _: &mut Context| match run.config.train.seed {
            1 => panic!("seed {}", run.config.train.seed),
            2 => anyhow::bail!("no luck"),
            _ => finished(run),
        };
        let (totals, journal) = compute_with(&settings(3), &execute);
        assert_eq!((totals.finished, totals.failed, totals.left), (8, 4, 0));
        assert_eq!(journal.runs.len(), 12);
        for record in journal.runs.values() {
            let reason = record.reason.as_deref().unwrap_or_default();
            match record.config.train.seed {
                1 => assert!(reason.starts_with("panic: seed 1 at "), "{reason}"),
                2 => assert_eq!(reason, "no luck"),
                _ => assert_eq!(record.status, Status::Finished),
            }
        }
    }

    #[test]
    fn fail_fast_stops_at_the_first_failure() {
        let execute = |run: &PlannedRun, context: &mut Context| {
            if run.config.train.seed == 0 {
                anyhow::bail!("no luck");
            }
            // As training does, until it is told to stop.
            while !context.halted() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(Executed::Stopped)
        };
        let (totals, journal) =
            compute_with(&Settings { fail_fast: true, ..settings(2) }, &execute);
        assert!(totals.failed >= 1 && totals.finished == 0 && totals.left >= 10, "{totals:?}");
        assert_eq!(journal.runs.len(), totals.failed);
    }

    #[test]
    fn runs_under_way_stay_within_the_memory() {
        let spec = SweepSpec::parse(SWEEP, "mine", "mine").unwrap();
        let grid = Grid::new(&spec).unwrap();
        let bytes = |dim: usize| {
            let run = grid.runs.iter().find(|run| run.config.model.dim == dim);
            run.unwrap().cost.memory_bytes
        };
        let (small, large) = (bytes(8), bytes(16));
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let execute = |run: &PlannedRun, _: &mut Context| {
            let bytes = run.cost.memory_bytes as usize;
            most.fetch_max(now.fetch_add(bytes, Ordering::SeqCst) + bytes, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            now.fetch_sub(bytes, Ordering::SeqCst);
            finished(run)
        };
        let (totals, _) =
            compute_with(&Settings { memory: small + large, ..settings(4) }, &execute);
        assert_eq!(totals.finished, 12);
        assert!(most.load(Ordering::SeqCst) as u64 <= small + large);
    }

    #[test]
    fn time_is_up_when_it_is_up() {
        let execute = |_: &PlannedRun, context: &mut Context| {
            while !context.halted() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(Executed::Stopped)
        };
        let time = Some(Duration::from_millis(20));
        let (totals, journal) = compute_with(&Settings { time, ..settings(2) }, &execute);
        assert_eq!((totals.left, journal.runs.len()), (12, 0));
    }
}
