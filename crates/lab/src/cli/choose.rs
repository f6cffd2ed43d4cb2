//! `nap choose`: which model suits a task.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::json;

use super::sweep::{continuation, mode, parse_time, reader_may_leave};
use super::train::name_of;
use super::{RunOptions, signals, workers};
use crate::choose::verdict::{Verdict, verdict};
use crate::choose::{Board, MODELS, Plan, RATES, Stage, budget, text};
use crate::error::bad;
use crate::escape::quoted;
use crate::files::write_atomically;
use crate::output::{note, print, print_line};
use crate::resolve;
use crate::sweep::directory::SweepDir;
use crate::sweep::execute;
use crate::sweep::grid::{Grid, PlannedRun};
use crate::sweep::plan::estimate;
use crate::sweep::runner::{self, Settings};
use crate::sweep::view::{View, bytes, duration};

/// Find out which model suits a task, within a time.
#[derive(Debug, clap::Args)]
#[command(mut_arg("config", |argument| argument
    .value_name("DATA")
    .help("Data of your own (docs/data.md), or a configuration file (.toml)")))]
#[command(mut_arg("model", |argument| argument
    .value_name("NAMES")
    .help("Models, two at least [default: nap,mte,bert,sum,max]")))]
#[command(mut_arg("lr", |argument| argument
    .value_name("RATES")
    .help("Learning rates of 0.3^1 ... 0.3^10, as 0.3^3..0.3^8 (the default) or 0.3^3,0.3^5")))]
#[command(mut_arg("epochs", |argument| argument.help("The most epochs of a run")))]
#[command(mut_arg("seed", |argument| argument.help("The first seed; the others follow it")))]
#[command(after_help = "\
Examples:
  nap choose my.jsonl --time 30m                data of your own (docs/data.md)
  nap choose my.csv --task tag --valid other.csv --model nap,mte
  nap choose --task mode --time 5m              five models, six learning rates, fresh seeds
  nap choose --task cases --model nap,mte,non --lr 0.3^5..0.3^7
  nap choose my.toml --time 2h --out sweeps/mine
  nap choose --task mode --time 5m --json       the verdict as one JSON object
The same command goes on after an interruption, and shows the verdict again once all is done.")]
pub struct Args {
    #[command(flatten)]
    options: RunOptions,
    /// About how long it may take, as 30m or 2h; it stops then
    #[arg(long, default_value = "30m", value_parser = parse_time)]
    time: Duration,
    /// Directory of the results, a sweep's [default: sweeps/choose-TASK; with data its name after the task]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Models trained at the same time [default: one per core that is allotted]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
    /// Print the verdict as one JSON object, and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Print nothing but the verdict
    #[arg(long)]
    quiet: bool,
}

/// Where the plan is stored.
const PLAN: &str = "choose.json";

/// Where the configuration to train is stored.
const CHOSEN: &str = "chosen.toml";

/// Runs the command.
///
/// # Errors
/// On input that cannot be used, and if results cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    reader_may_leave(choose(args))
}

fn choose(mut args: Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let stop = signals::stop_flag()?;
    let (models, rates) = args.options.take_models_and_rates();
    args.options.file_as_data()?;
    let base = args.options.resolve()?;
    let place = PathBuf::from("sweeps").join(format!("choose-{}", name_of(&base.task)));
    let path = args.out.clone().unwrap_or(place);
    let asked =
        Plan::new(base, models.as_deref().unwrap_or(MODELS), rates.as_deref().unwrap_or(RATES))?;
    let jobs = workers::number(args.jobs);
    let plan = match stored(&path)? {
        // The same, wherever the data are now.
        Some(plan) if plan.asks_the_same(&asked) => Plan { base: asked.base, ..plan },
        Some(_) => {
            return Err(bad(format!(
                "{} holds a choice with other settings: expected a new --out",
                path.display()
            )));
        }
        None => {
            let plan = sized(asked, &args, jobs)?;
            // The sweep comes first: a directory is made whole or refused.
            SweepDir::create(&path, &plan.spec(false)?)?;
            write_atomically(&path.join(PLAN), &serde_json::to_vec_pretty(&plan)?)?;
            plan
        }
    };
    let grid = plan.grid()?;
    let dir = SweepDir::create(&path, &plan.spec(false)?)?;
    let chooser = Chooser { args: &args, plan: &plan, grid: &grid, dir: &dir, jobs, stop, started };
    chooser.run()
}

/// The plan of an earlier call.
fn stored(path: &Path) -> anyhow::Result<Option<Plan>> {
    let file = path.join(PLAN);
    let place = file.display();
    match std::fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(bad(format!("cannot read {place}: {error}"))),
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(plan) => Ok(Some(plan)),
            Err(error) => Err(bad(format!("{place}: {error}: expected a plan of nap choose"))),
        },
    }
}

/// The free memory, which must do for each of these runs.
fn enough_memory(runs: &[&PlannedRun]) -> anyhow::Result<u64> {
    let memory = workers::free_memory();
    match runs.iter().find(|run| run.cost.memory_bytes > memory) {
        None => Ok(memory),
        Some(run) => Err(bad(format!(
            "{} needs {} of memory, {} are free: expected a smaller model or batch",
            run.config.model.name,
            bytes(run.cost.memory_bytes),
            bytes(memory)
        ))),
    }
}

/// The plan with as much as the time allows on this machine.
fn sized(mut plan: Plan, args: &Args, jobs: usize) -> anyhow::Result<Plan> {
    let grid = plan.grid()?;
    // A run takes as long at one learning rate as at another.
    let one_of = |model| grid.runs.iter().find(|run| run.model == model);
    let runs: Vec<&PlannedRun> = (0..plan.models.len()).filter_map(one_of).collect();
    let memory = enough_memory(&runs)?;
    let measure = (args.time / 20).min(Duration::from_secs(2));
    let measured = estimate(&runs, jobs, memory, measure);
    let budget = args.time.saturating_sub(measured.took).as_secs_f64();
    let (rates, epochs) = (plan.rates.len(), plan.base.train.epochs);
    let size = budget::size(&measured.seconds, rates, epochs, jobs, budget).map_err(|needed| {
        let least = budget::least_fresh(plan.models.len());
        let runs: usize = budget::runs(rates, least).iter().sum::<usize>() * plan.models.len();
        // Something to spare: speeds vary.
        let needed = Duration::from_secs_f64(1.2 * needed + measured.took.as_secs_f64());
        let needed = Duration::from_secs(needed.as_secs() + 1);
        bad(format!(
            "--time {}: too short for {runs} runs of one epoch: expected {} or more, fewer \
                 models (--model), fewer learning rates (--lr) or a smaller model",
            humantime::format_duration(args.time),
            humantime::format_duration(needed)
        ))
    })?;
    (plan.epochs, plan.fresh) = (size.epochs, size.fresh);
    if size.epochs < epochs && !args.json {
        note(format!(
            "note: the time allows {} of {epochs} epochs: what learns slowly is at a \
             disadvantage\n",
            size.epochs
        ));
    }
    if !args.json && !args.quiet {
        print_line(format!(
            "{} models, {rates} learning rates, {} epochs, {} fresh seeds: about {} on {jobs} cores",
            plan.models.len(),
            size.epochs,
            size.fresh,
            duration(Duration::from_secs_f64(size.seconds)),
        ))?;
    }
    Ok(plan)
}

struct Chooser<'a> {
    args: &'a Args,
    plan: &'a Plan,
    grid: &'a Grid,
    dir: &'a SweepDir,
    jobs: usize,
    stop: Arc<AtomicBool>,
    started: Instant,
}

impl Chooser<'_> {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let mut failed = 0;
        for stage in Stage::ALL {
            let (left, failures) = self.compute(stage)?;
            failed += failures;
            if left > 0 {
                note(continuation());
                return Ok(ExitCode::from(1));
            }
        }
        let journal = self.dir.journal()?;
        let board = Board { plan: self.plan, grid: self.grid, journal: &journal };
        let Some(verdict) = verdict(&board) else {
            let why = journal.runs.values().find_map(|record| record.reason.as_deref());
            anyhow::bail!("no two models to compare: {}", why.unwrap_or("their runs failed"));
        };
        self.show(&board, &verdict)?;
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// Computes what a stage lacks: how many runs are left, and how many failed.
    fn compute(&self, stage: Stage) -> anyhow::Result<(usize, usize)> {
        let journal = self.dir.journal()?;
        let board = Board { plan: self.plan, grid: self.grid, journal: &journal };
        let all = board.runs(stage);
        let runs: Vec<_> = all.iter().copied().filter(|run| board.record(run).is_none()).collect();
        let quiet = self.args.quiet || self.args.json;
        if !quiet {
            let done = all.len() - runs.len();
            print_line(format!("{}: {} runs, {done} done", stage.name(), all.len()))?;
        }
        if runs.is_empty() {
            return Ok((0, 0));
        }
        let settings = Settings {
            jobs: self.jobs,
            memory: enough_memory(&runs)?,
            fail_fast: false,
            time: Some(self.args.time.saturating_sub(self.started.elapsed())),
            checkpoint_every: Duration::from_secs(60),
            keep_checkpoints: false,
        };
        let mut view = View::new(mode(quiet), self.grid, &runs, &journal, self.jobs);
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
        Ok((totals.left, totals.failed))
    }

    /// Prints the verdict, and stores the configuration to train.
    fn show(&self, board: &Board, verdict: &Verdict) -> anyhow::Result<()> {
        let taken = &verdict.rules[verdict.take];
        let runs = board.runs(Stage::Judge);
        let config = runs.iter().find(|run| run.config.model.name == taken.model);
        let file = self.dir.path().join(CHOSEN);
        if let Some(run) = config {
            let mut config = run.config.clone();
            config.train.seed = self.plan.base.train.seed;
            write_atomically(&file, resolve::to_toml(&config)?.as_bytes())?;
        }
        let command = format!("nap train {}", quoted(&file.display().to_string()));
        let sentence = text::sentence(verdict);
        let notes = text::notes(verdict, self.plan);
        if self.args.json {
            let object = json!({
                "directory": self.dir.path().display().to_string(),
                "epochs": self.plan.epochs,
                "fresh_seeds": self.plan.fresh,
                "rules": verdict.rules,
                "pairs": verdict.pairs,
                "take": taken.model,
                "learning_rate": taken.learning_rate,
                "sentence": sentence,
                "notes": notes,
                "command": command,
            });
            return print_line(object.to_string());
        }
        let notes: String = notes.iter().map(|text| format!("note: {text}\n")).collect();
        print(format!(
            "\nvalidation accuracy after {} epochs, {} fresh seeds:\n\n{}\n{notes}{sentence}\n\
             Train it: {command}\n",
            self.plan.epochs,
            self.plan.fresh,
            text::table(verdict),
        ))
    }
}
