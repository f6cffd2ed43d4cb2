//! `nap reproduce`: parts of the paper, run and judged.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nap_engine::train::NUMERICS_VERSION;
use serde_json::json;

use super::sweep::{Execution, compute_share, continuation};
use super::{report, signals, workers};
use crate::error::bad;
use crate::grids;
use crate::output::{note, print, print_line};
use crate::reproduce::claims::{self, Claim, Finding};
use crate::reproduce::{ALL, Figure, QUICK, figures, find};
use crate::sweep::directory::SweepDir;
use crate::sweep::grid::{Grid, PlannedRun};
use crate::sweep::journal::Journal;
use crate::sweep::plan::estimate;
use crate::sweep::record::Status;
use crate::sweep::spec::SweepSpec;
use crate::sweep::view::duration;

/// Run parts of the paper, and say which of its claims the runs bear out.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every run is one of the paper's, with its settings: what is finished counts for every part that
has it, and the same command goes on after any interruption.

Examples:
  nap reproduce                                 six models on a few cells, in minutes
  nap reproduce --list                          every part: runs, operations, time on this machine
  nap reproduce mode-dim --seeds 3 --time 2h    go on with the same command
  nap reproduce mode-dim --with results         takes over finished runs that somebody passed on
  nap reproduce all --jobs 32")]
pub struct Args {
    /// Parts of the paper, by the names of --list, or `all` [default: quick]
    figures: Vec<String>,
    /// The part that takes minutes, as without any name
    #[arg(long, conflicts_with = "figures")]
    quick: bool,
    /// List the parts and what they take on this machine
    #[arg(long, conflicts_with_all = ["figures", "quick"])]
    list: bool,
    /// The first N seeds of every cell [default: the paper's five; quick: one]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    seeds: Option<u16>,
    /// Arithmetic of the matrix products: f32, bf16 or bf16x3
    #[arg(long, default_value = "f32")]
    precision: String,
    /// Directory of the results, a sweep's directory for each of the paper's sweeps
    #[arg(long, default_value = "reproduction")]
    out: PathBuf,
    /// Finished runs to take over: directories or files of records; repeatable
    #[arg(long, value_name = "PATH")]
    with: Vec<PathBuf>,
    /// Print the claims as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    execution: Execution,
}

/// Runs the command.
///
/// # Errors
/// On input that cannot be used, and if results cannot be written.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    if args.list {
        return list(&args);
    }
    if args.figures.is_empty() {
        args.figures.push(QUICK.to_owned());
    }
    let parts = parts(&args)?;
    let known = passed_on(&args.with)?;
    let stop = signals::stop_flag()?;
    let started = Instant::now();
    let (time, mut code) = (args.execution.time, ExitCode::SUCCESS);
    // Only the claims go to standard output then.
    args.execution.quiet |= args.json;
    let mut places: Vec<PathBuf> = Vec::new();
    for (begun, grid) in parts.iter().enumerate() {
        let left = time.map(|time| time.saturating_sub(started.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            note(format!("the time is up: {} sweeps were not begun\n", parts.len() - begun));
            break;
        }
        let path = args.out.join(&grid.spec.name);
        let dir = SweepDir::create(&path, &grid.spec)?;
        take_over(&dir, grid, &known)?;
        if !places.contains(&path) {
            places.push(path);
        }
        args.execution.time = left;
        let one = compute_share(&dir, grid, None, &args.execution, stop.clone())?;
        if stop.load(Ordering::Relaxed) {
            let left = parts.len() - begun - 1;
            if left > 0 && one == ExitCode::SUCCESS {
                note(continuation());
                return Ok(ExitCode::from(1));
            }
            return Ok(one);
        }
        if one != ExitCode::SUCCESS {
            code = one;
        }
    }
    conclude(&args, &places)?;
    Ok(code)
}

/// The page and the claims.
fn conclude(args: &Args, places: &[PathBuf]) -> anyhow::Result<()> {
    note("the claims that need no training: a few seconds, beyond --time\n");
    let mut all = claims::of_analysis();
    let mut page = None;
    let ended = |path: &PathBuf| {
        grids::read(path)
            .is_ok_and(|journal| !(journal.runs.is_empty() && journal.others.is_empty()))
    };
    let places: Vec<PathBuf> = places.iter().filter(|path| ended(path)).cloned().collect();
    if !places.is_empty() {
        let out = args.out.join("report.html");
        let results = report::write(&places, false, &out, args.json)?;
        all.extend(claims::of_results(&results));
        page = Some(out);
    } else {
        note("no run has ended: nothing can be said of claims about trained models\n");
    }
    if args.json {
        let page = page.map(|page| page.display().to_string());
        return print_line(json!({ "report": page, "claims": all }).to_string());
    }
    print(text(&all))
}

fn text(claims: &[Claim]) -> String {
    let mut text = String::from("\nThe paper's claims\n");
    for claim in claims {
        text += &format!(
            "  {:9}  {}\n             {}\n",
            claim.finding.as_str(),
            claim.claim,
            claim.numbers
        );
    }
    let count = |finding: Finding| claims.iter().filter(|claim| claim.finding == finding).count();
    text += &format!(
        "{} confirmed, {} not, {} undecided\n",
        count(Finding::Confirmed),
        count(Finding::Not),
        count(Finding::Undecided)
    );
    text
}

/// The grids of the parts that were asked for, those of the same sweep one after the other.
fn parts(args: &Args) -> anyhow::Result<Vec<Grid>> {
    let mut specs: Vec<SweepSpec> = Vec::new();
    for figure in find(&args.figures)? {
        for spec in &figure.sweeps {
            let spec = restricted(spec, args)?;
            if !specs.contains(&spec) {
                specs.push(spec);
            }
        }
    }
    specs.iter().map(Grid::new).collect()
}

/// A sweep with the seeds and the precision that were asked for.
fn restricted(spec: &SweepSpec, args: &Args) -> anyhow::Result<SweepSpec> {
    let mut spec = spec.clone();
    if let Some(seeds) = args.seeds {
        spec.seeds = (0..u64::from(seeds)).collect();
    }
    if args.precision != "f32" {
        let precision = toml::Value::from(args.precision.as_str());
        crate::resolve::insert(&mut spec.fixed, "train.precision", precision)
            .map_err(|error| bad(format!("--precision {}: {error}", args.precision)))?;
    }
    Ok(spec)
}

/// Records that somebody passed on.
fn passed_on(paths: &[PathBuf]) -> anyhow::Result<Journal> {
    let mut journal = Journal::default();
    for path in paths {
        let part = grids::read(path)?;
        if part.runs.is_empty() {
            let why = part.notes.first().map_or(String::new(), |note| format!(" ({note})"));
            return Err(bad(format!(
                "--with {}: no records of numerics version {NUMERICS_VERSION}{why}: expected what \
                 nap export --records writes, or a directory of results",
                path.display()
            )));
        }
        part.notes.iter().for_each(|text| note(format!("note: {text}\n")));
        journal.merge(part);
    }
    Ok(journal)
}

/// Takes over what this grid lacks and others have finished.
fn take_over(dir: &SweepDir, grid: &Grid, known: &Journal) -> anyhow::Result<()> {
    if known.runs.is_empty() {
        return Ok(());
    }
    let here = dir.journal()?;
    let is_finished = |run: &&PlannedRun| {
        here.runs.get(&run.id).is_some_and(|record| record.status == Status::Finished)
    };
    let lacking = grid.runs.iter().filter(|run| !is_finished(run));
    let found = lacking.filter_map(|run| known.runs.get(&run.id));
    let finished: Vec<_> = found.filter(|record| record.status == Status::Finished).collect();
    if dir.take_over(&finished)? > 0 {
        note(format!("{}: {} finished runs taken over\n", dir.path().display(), finished.len()));
    }
    Ok(())
}

/// How long to measure this machine's speed.
const CALIBRATION: Duration = Duration::from_secs(3);

/// `nap reproduce --list`.
fn list(args: &Args) -> anyhow::Result<ExitCode> {
    let jobs = workers::number(None);
    let slowness = slowness(jobs)?;
    print(format!(
        "Parts of the paper, and about the time they take here on {jobs} cores, without what is \
         done in {}.\nA sweep gives maps, learning curves and robustness curves.\n\n\
         {:18} {:>6} {:>6}  {:>12}  {:>11}  shows\n",
        args.out.display(),
        "name",
        "runs",
        "done",
        "operations",
        "time here"
    ))?;
    let mut total = Totals::default();
    for figure in figures() {
        let part = totals(figure, args, slowness)?;
        print(part.line(&figure.name, jobs, &figure.shows))?;
        if ![QUICK, "headline"].contains(&figure.name.as_str()) {
            total.runs += part.runs;
            total.done += part.done;
            total.flops += part.flops;
            total.seconds += part.seconds;
        }
    }
    print(total.line(ALL, jobs, "every sweep"))?;
    print(
        "\nWithout training: nap analyze init (untrained models), nap analyze hull (what softmax \
         cannot reach).\nnap plan NAME measures each size of a sweep.\n",
    )?;
    Ok(ExitCode::SUCCESS)
}

/// How much longer than nominally runs take here, by those of the quick part.
fn slowness(jobs: usize) -> anyhow::Result<f64> {
    let mut runs = Vec::new();
    for spec in find(&[QUICK.to_owned()])?.iter().flat_map(|figure| &figure.sweeps) {
        runs.extend(Grid::new(spec)?.runs);
    }
    let runs: Vec<&PlannedRun> = runs.iter().collect();
    let seconds = estimate(&runs, jobs, workers::free_memory(), CALIBRATION).seconds;
    let nominal: f64 = runs.iter().map(|run| run.nominal_seconds()).sum();
    Ok(seconds.iter().sum::<f64>() / nominal)
}

#[derive(Default)]
struct Totals {
    runs: usize,
    done: usize,
    flops: f64,
    seconds: f64,
}

impl Totals {
    fn line(&self, name: &str, jobs: usize, shows: &str) -> String {
        let time = duration(Duration::from_secs_f64((self.seconds / jobs as f64).min(1e15)));
        format!(
            "{name:18} {:>6} {:>6}  {:>12}  {time:>11}  {shows}\n",
            self.runs,
            self.done,
            super::plan::flops(self.flops)
        )
    }
}

fn totals(figure: &Figure, args: &Args, slowness: f64) -> anyhow::Result<Totals> {
    let mut totals = Totals::default();
    for spec in &figure.sweeps {
        let mut spec = restricted(spec, args)?;
        let journal = SweepDir::at(&place(&args.out, &spec)).journal()?;
        // A run takes as long with any seed and learning rate: one of each will do.
        let mut repeated = 1;
        if journal.runs.is_empty() {
            repeated = spec.seeds.len();
            spec.seeds.truncate(1);
            if let Some(rate) = spec.rate_index() {
                repeated *= spec.axes[rate].values.len();
                spec.axes[rate].values.truncate(1);
            }
        }
        let grid = Grid::new(&spec)?;
        let to_do = grid.runs.iter().filter(|run| !journal.runs.contains_key(&run.id));
        totals.runs += repeated * grid.runs.len();
        totals.done += grid.runs.len();
        for run in to_do {
            totals.done -= 1;
            totals.flops += repeated as f64 * run.cost.flops();
            totals.seconds += repeated as f64 * slowness * run.nominal_seconds();
        }
    }
    Ok(totals)
}

fn place(out: &Path, spec: &SweepSpec) -> PathBuf {
    out.join(&spec.name)
}
