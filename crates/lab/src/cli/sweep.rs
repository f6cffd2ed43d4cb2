//! `nap sweep` and `nap retry`: compute the runs of a grid.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::{signals, workers};
use crate::error::bad;
use crate::escape::quoted;
use crate::output::{Closed, note, print, print_line};
use crate::sweep::directory::SweepDir;
use crate::sweep::execute;
use crate::sweep::grid::{Grid, PlannedRun};
use crate::sweep::journal::Journal;
use crate::sweep::presets::presets;
use crate::sweep::record::Status;
use crate::sweep::runner::{self, Settings, Totals};
use crate::sweep::schedule::{Order, Shard, arrange};
use crate::sweep::spec::Restrictions;
use crate::sweep::view::{Mode, View, bytes, duration};

/// Train every model of a grid; the same command continues after any interruption.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap sweep list                                the paper's sweeps
  nap sweep mode-dim --x 8..32 --seeds 2        part of one
  nap sweep mode-dim --x 8..32 --seeds 5        three more seeds of the same
  nap sweep my.toml --out results --jobs 8      a sweep file (docs/sweeps.md)
  nap sweep mode-dim --time 2h                  stops after two hours; go on with the same command
  nap sweep mode-dim --shard 3/64               the third of 64 shares, in one common directory")]
pub struct SweepArgs {
    /// `list`, a name of the list, or a sweep file (TOML)
    sweep: String,
    #[command(flatten)]
    restrictions: Restrictions,
    /// Directory of the results [default: sweeps/NAME]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Share i of n, as 3/64 [default: all; in a Slurm array, the task's share]
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    #[command(flatten)]
    execution: Execution,
}

/// Compute runs again that failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap retry sweeps/mode-dim --failed")]
pub struct RetryArgs {
    /// Directory of a sweep
    directory: PathBuf,
    /// The runs that failed
    #[arg(long, required = true)]
    failed: bool,
    #[command(flatten)]
    execution: Execution,
}

/// How runs are computed.
#[derive(Debug, clap::Args)]
pub struct Execution {
    /// Models trained at the same time [default: one per core that is allotted]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
    /// Order of the runs
    #[arg(long, value_enum, default_value_t)]
    order: Order,
    /// Most memory of the runs under way together, as 8GiB [default: 80 % of what is free or allotted]
    #[arg(long, value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Stop after this time, as 2h or 90m
    #[arg(long, value_parser = parse_time)]
    pub(super) time: Option<Duration>,
    /// Stop at the first run that fails
    #[arg(long)]
    fail_fast: bool,
    /// How often a run under way is stored
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    checkpoint_every: Duration,
    /// Keep the best and the last weights of every run, in the folder `models`
    #[arg(long)]
    keep_checkpoints: bool,
    /// Print nothing but notes and errors
    #[arg(long)]
    pub(super) quiet: bool,
}

/// `nap sweep`.
///
/// # Errors
/// On input that cannot be used, and if results cannot be written.
pub fn sweep(args: SweepArgs) -> anyhow::Result<ExitCode> {
    if args.sweep == "list" { list() } else { reader_may_leave(compute(args)) }
}

fn compute(args: SweepArgs) -> anyhow::Result<ExitCode> {
    let stop = signals::stop_flag()?;
    let spec = args.restrictions.resolve(&args.sweep)?;
    let shard = match args.shard {
        Some(shard) => Some(shard),
        None => Shard::from_slurm(|name| std::env::var(name).ok()).map_err(bad)?,
    };
    let path = args.out.unwrap_or_else(|| PathBuf::from("sweeps").join(&spec.name));
    let grid = Grid::new(&spec)?;
    let dir = SweepDir::create(&path, &spec)?;
    compute_share(&dir, &grid, shard, &args.execution, stop)
}

/// Computes what is missing of a sweep, or of a share of it, in its directory.
pub(super) fn compute_share(
    dir: &SweepDir,
    grid: &Grid,
    shard: Option<Shard>,
    execution: &Execution,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let journal = dir.journal()?;
    if let Err(error) = dir.tidy(&journal) {
        note(format!("note: cannot tidy {}: {error}\n", dir.checkpoints_path().display()));
    }
    grid.notes.iter().chain(&journal.notes).for_each(|text| note(format!("note: {text}\n")));
    let all: Vec<_> = grid.runs.iter().collect();
    let mine = shard.map_or_else(|| all.clone(), |shard| shard.of(&all));
    let known = |run: &&&PlannedRun| !journal.runs.contains_key(&run.id);
    let to_do: Vec<_> = mine.iter().filter(known).copied().collect();
    let failed = mine.iter().filter(|run| {
        journal.runs.get(&run.id).is_some_and(|record| record.status == Status::Failed)
    });
    let sweep = Sweep { dir, grid, journal: &journal, execution, stop };
    if !execution.quiet {
        let share = shard.map_or(String::new(), |shard| format!("share {shard}: "));
        print_line(format!(
            "sweep {} in {}: {share}{} runs, {} done, {} to do on {} cores",
            grid.spec.name,
            dir.path().display(),
            mine.len(),
            mine.len() - to_do.len(),
            to_do.len(),
            workers::number(execution.jobs),
        ))?;
    }
    sweep.compute(to_do, failed.count())
}

/// `nap retry`.
///
/// # Errors
/// On input that cannot be used, and if results cannot be written.
pub fn retry(args: RetryArgs) -> anyhow::Result<ExitCode> {
    reader_may_leave(compute_again(args))
}

fn compute_again(mut args: RetryArgs) -> anyhow::Result<ExitCode> {
    let stop = signals::stop_flag()?;
    let started = Instant::now();
    let time = args.execution.time;
    let dir = SweepDir::open(&args.directory)?;
    let journal = dir.journal()?;
    // Grids may have runs in common.
    let mut tried = HashSet::new();
    let mut code = ExitCode::SUCCESS;
    for grid in dir.grids()? {
        args.execution.time = time.map(|time| time.saturating_sub(started.elapsed()));
        let failed = |run: &&PlannedRun| {
            journal.runs.get(&run.id).is_some_and(|record| record.status == Status::Failed)
        };
        let to_do: Vec<_> =
            grid.runs.iter().filter(failed).filter(|run| tried.insert(run.id)).collect();
        if !args.execution.quiet {
            print_line(format!("sweep {}: {} runs failed", grid.spec.name, to_do.len()))?;
        }
        let (grid, journal, stop) = (&grid, &journal, Arc::clone(&stop));
        let sweep = Sweep { dir: &dir, grid, journal, execution: &args.execution, stop };
        let one = sweep.compute(to_do, 0)?;
        if one != ExitCode::SUCCESS {
            code = one;
        }
    }
    Ok(code)
}

/// A reader of standard output who has left wants no more, but whether the sweep is done is
/// unknown.
pub(super) fn reader_may_leave(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match result {
        Err(error) if error.is::<Closed>() => Ok(ExitCode::from(1)),
        result => result,
    }
}

/// `nap sweep list`.
fn list() -> anyhow::Result<ExitCode> {
    let mut text = String::from(
        "The paper's sweeps: learning rates 0.3^1 ... 0.3^10 against one other parameter, 5 seeds.\n\
         Models: nap, non, mte, bert, sum and max unless --models names others.\n\n",
    );
    for preset in presets() {
        text += &format!("{:20} {}\n", preset.spec.name, preset.summary);
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

struct Sweep<'a> {
    dir: &'a SweepDir,
    grid: &'a Grid,
    journal: &'a Journal,
    execution: &'a Execution,
    stop: Arc<AtomicBool>,
}

impl Sweep<'_> {
    /// Computes these runs and says what came of it.
    fn compute(&self, to_do: Vec<&PlannedRun>, failed_before: usize) -> anyhow::Result<ExitCode> {
        let settings = self.execution.settings();
        let fits = |run: &&PlannedRun| run.cost.memory_bytes <= settings.memory;
        let (runs, too_large): (Vec<_>, Vec<_>) = to_do.into_iter().partition(fits);
        let runs = arrange(runs, self.execution.order, settings.jobs);
        let mode = self.execution.mode();
        let mut view = View::new(mode, self.grid, &runs, self.journal, settings.jobs);
        let computed = runner::compute(
            self.dir,
            &runs,
            &settings,
            &self.stop,
            &execute::train,
            &mut |event| view.event(event),
        );
        view.finish();
        let totals = computed.inspect_err(|_| note(continuation()))?;
        let place = quoted(&self.dir.path().display().to_string());
        let failed = totals.failed + failed_before;
        if failed > 0 {
            note(format!(
                "{failed} runs failed; compute them again with: nap retry {place} --failed\n"
            ));
        }
        if !too_large.is_empty() {
            note(format!(
                "{} runs need more memory than the limit of {} (--memory) and were left\n",
                too_large.len(),
                bytes(settings.memory)
            ));
        }
        if totals.left > 0 {
            note(continuation());
        }
        if !self.execution.quiet && !runs.is_empty() {
            print(summary(&totals, settings.jobs))?;
        }
        let in_time = settings.time.is_some_and(|time| totals.elapsed >= time);
        let good = failed == 0 && too_large.is_empty() && (totals.left == 0 || in_time);
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

impl Execution {
    fn settings(&self) -> Settings {
        Settings {
            jobs: workers::number(self.jobs),
            memory: self.memory.unwrap_or_else(workers::free_memory),
            fail_fast: self.fail_fast,
            time: self.time,
            checkpoint_every: self.checkpoint_every,
            keep_checkpoints: self.keep_checkpoints,
        }
    }

    fn mode(&self) -> Mode {
        mode(self.quiet)
    }
}

/// How runs are shown.
pub(super) fn mode(quiet: bool) -> Mode {
    let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    if quiet {
        Mode::Quiet
    } else if terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
        Mode::Live
    } else {
        Mode::Lines
    }
}

/// What to do to go on.
pub(super) fn continuation() -> String {
    let arguments = std::env::args_os().skip(1);
    let arguments: Vec<_> = arguments.map(|argument| quoted(&argument.to_string_lossy())).collect();
    format!("stopped; continue with: nap {}\n", arguments.join(" "))
}

/// What was done, and what the cores' time went into.
fn summary(totals: &Totals, jobs: usize) -> String {
    let cores = totals.elapsed.as_secs_f64() * jobs as f64;
    let share = |time: Duration| 100.0 * time.as_secs_f64() / cores.max(1e-9);
    let times = &totals.times;
    let rest = times.setup + times.compute + times.store;
    format!(
        "{} runs finished, {} failed, {} left, in {}; core time: training and evaluation {:.1} %, \
         setting up {:.1} %, storing {:.1} %, waiting {:.1} %\n",
        totals.finished,
        totals.failed,
        totals.left,
        duration(totals.elapsed),
        share(times.compute),
        share(times.setup),
        share(times.store),
        (100.0 - share(rest)).max(0.0),
    )
}

/// A time that lets something happen.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("expected more than no time".to_owned()) } else { Ok(time) }
}

/// Bytes, as in 8GiB, 500MB or 1000000.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let expected = || "expected a size such as 8GiB or 500MB".to_owned();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(expected()),
    };
    let bytes = number.parse::<f64>().map_err(|_| expected())? * factor;
    if (1.0..1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(expected()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("8GiB"), Ok(8 << 30));
        assert_eq!(parse_bytes("1.5 MB"), Ok(1_500_000));
        assert_eq!(parse_bytes("1000"), Ok(1000));
        for wrong in ["", "GiB", "1 parsec", "-1", "0", "1e9"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
