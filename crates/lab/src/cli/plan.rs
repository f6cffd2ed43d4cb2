//! `nap plan`: what a sweep will take, and what of it is done.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::workers;
use crate::output::{note, print, print_line};
use crate::sweep::directory::SweepDir;
use crate::sweep::grid::{Grid, PlannedRun};
use crate::sweep::plan::{Estimate, estimate};
use crate::sweep::spec::Restrictions;
use crate::sweep::view::{bytes, duration};

/// Show what a sweep will take on this machine, and what of it is done.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap plan mode-dim                             runs, operations, time, memory, disk
  nap plan mode-dim --x 8..64 --seeds 3 --jobs 8
  nap plan my.toml --out results --json")]
pub struct Args {
    /// A name of `nap sweep list`, or a sweep file (TOML)
    sweep: String,
    #[command(flatten)]
    restrictions: Restrictions,
    /// Directory of the results [default: sweeps/NAME]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Models trained at the same time [default: one per core that is allotted]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
    /// How long to measure this machine's speed
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    calibrate: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A part of the sweep.
#[derive(Debug, Clone, Default)]
struct Part {
    name: String,
    runs: usize,
    done: usize,
    flops: f64,
    seconds: f64,
    memory: u64,
}

impl Part {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds a run that is done, or will take so many seconds.
    fn add(&mut self, run: &PlannedRun, seconds: Option<f64>) {
        self.runs += 1;
        self.memory = self.memory.max(run.cost.memory_bytes);
        match seconds {
            None => self.done += 1,
            Some(seconds) => {
                self.flops += run.cost.flops();
                self.seconds += seconds;
            }
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "runs": self.runs,
            "done": self.done,
            "flops_to_do": self.flops,
            "core_seconds_to_do": self.seconds,
            "memory_bytes_per_run": self.memory,
        })
    }
}

/// What the whole will take.
struct Totals {
    all: Part,
    jobs: usize,
    /// By the clock.
    seconds: f64,
    memory: u64,
    record_bytes: u64,
    checkpoint_bytes: u64,
}

/// Runs the command.
///
/// # Errors
/// On input that cannot be used.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let spec = args.restrictions.resolve(&args.sweep)?;
    let grid = Grid::new(&spec)?;
    let path = args.out.clone().unwrap_or_else(|| PathBuf::from("sweeps").join(&spec.name));
    let journal = SweepDir::at(&path).journal()?;
    grid.notes.iter().chain(&journal.notes).for_each(|text| note(format!("note: {text}\n")));
    let jobs = workers::number(args.jobs);
    let to_do: Vec<_> =
        grid.runs.iter().filter(|run| !journal.runs.contains_key(&run.id)).collect();
    let estimate = estimate(&to_do, jobs, workers::free_memory(), args.calibrate);
    let mut seconds = estimate.seconds.iter().copied();
    let mut all = Part::new(spec.name.as_str());
    let mut models: Vec<_> = spec.models.iter().map(Part::new).collect();
    let x = spec.x_index();
    let columns = x.map_or(&[][..], |x| &spec.axes[x].values);
    let mut columns: Vec<_> = columns.iter().map(|value| Part::new(&value.label)).collect();
    for run in &grid.runs {
        let done = journal.runs.contains_key(&run.id);
        let seconds = if done { None } else { seconds.next() };
        all.add(run, seconds);
        models[run.model].add(run, seconds);
        x.into_iter().for_each(|x| columns[run.place[x]].add(run, seconds));
    }
    let totals = totals(all, jobs, &to_do, &estimate);
    if args.json {
        let parts = |parts: &[Part]| parts.iter().map(Part::to_json).collect::<Vec<_>>();
        let mut object = totals.all.to_json();
        object["directory"] = json!(path.display().to_string());
        object["jobs"] = json!(jobs);
        object["seconds_to_do"] = json!(totals.seconds);
        object["memory_bytes"] = json!(totals.memory);
        object["record_bytes"] = json!(totals.record_bytes);
        object["checkpoint_bytes"] = json!(totals.checkpoint_bytes);
        object["models"] = json!(parts(&models));
        object["columns"] = json!(parts(&columns));
        print_line(object.to_string())?;
    } else {
        print(text(&totals, &estimate, &path.display().to_string()))?;
        print(format!("\n{}", table("model", &models)))?;
        if let Some(x) = x {
            print(format!("\n{}", table(spec.axes[x].name(), &columns)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn totals(all: Part, jobs: usize, to_do: &[&PlannedRun], estimate: &Estimate) -> Totals {
    let longest = estimate.seconds.iter().copied().fold(0.0, f64::max);
    let largest = |of: &dyn Fn(&PlannedRun) -> u64| {
        let mut sizes: Vec<_> = to_do.iter().map(|run| of(run)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.into_iter().take(jobs).sum::<u64>()
    };
    let record = |run: &PlannedRun| {
        let cases = nap_engine::task::Task::new(&run.config.task).cases().len();
        1200 + 18 * (4 + 2 * cases as u64) * run.config.train.epochs as u64
    };
    Totals {
        jobs,
        seconds: (all.seconds / jobs as f64).max(longest),
        memory: largest(&|run| run.cost.memory_bytes),
        record_bytes: to_do.iter().map(|run| record(run)).sum(),
        // Weights and the optimiser's two moments; the new file is there before the old one goes.
        checkpoint_bytes: largest(&|run| 2 * 12 * run.cost.parameters as u64),
        all,
    }
}

fn text(totals: &Totals, estimate: &Estimate, place: &str) -> String {
    let all = &totals.all;
    let mut text = format!(
        "sweep {} in {place}: {} runs, {} done, {} to do\n",
        all.name,
        all.runs,
        all.done,
        all.runs - all.done
    );
    if all.runs > all.done {
        text += &format!(
            "time    about {} on {} cores ({} of core time; less where runs diverge)\n",
            time(totals.seconds),
            totals.jobs,
            time(all.seconds),
        );
        text += &format!(
            "        from {} of {} sizes measured in {:.1} s\n",
            estimate.measured,
            estimate.shapes,
            estimate.took.as_secs_f64()
        );
        text += &format!("work    {}\n", flops(all.flops));
        text += &format!("memory  about {} at once\n", bytes(totals.memory));
        text += &format!(
            "disk    about {} of records, at most {} of checkpoints while it runs\n",
            bytes(totals.record_bytes),
            bytes(totals.checkpoint_bytes)
        );
    }
    text
}

fn time(seconds: f64) -> String {
    duration(Duration::from_secs_f64(seconds.clamp(0.0, 1e15)))
}

fn table(name: &str, parts: &[Part]) -> String {
    let mut text =
        format!("{name:8}   runs   done  to do  {:>14}  core time  memory per run\n", "work");
    for part in parts {
        text += &format!(
            "{:8} {:>6} {:>6} {:>6}  {:>14}  {:>9}  {:>10}\n",
            part.name,
            part.runs,
            part.done,
            part.runs - part.done,
            flops(part.flops),
            time(part.seconds),
            bytes(part.memory)
        );
    }
    text
}

/// Operations in a fitting unit.
pub(super) fn flops(count: f64) -> String {
    let units = [(1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP")];
    let (size, unit) = units.into_iter().find(|(size, _)| count >= *size).unwrap_or((1e6, "MFLOP"));
    format!("{:.1} {unit}", count / size)
}
