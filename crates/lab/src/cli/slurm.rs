//! `nap slurm`: sweeps on a Slurm cluster.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use super::status;
use crate::error::unwritable;
use crate::escape::quoted;
use crate::files::write_atomically;
use crate::output::{note, print_line};
use crate::sweep::directory::SweepDir;
use crate::sweep::grid::Grid;
use crate::sweep::slurm::{self, Job};
use crate::sweep::spec::Restrictions;

/// Compute a sweep on a Slurm cluster.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Write a job script and submit it as an array; submit again to continue
    Submit(Box<SubmitArgs>),
    /// Show the queue and how far the sweep is
    Status(StatusArgs),
}

/// Arguments of `nap slurm submit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap slurm submit mode-dim --array 64 --time 04:00:00
  nap slurm submit my.toml --out /shared/my --array 200 --time 1-00 --sbatch-arg=--partition=long
  nap slurm submit mode-dim --array 64 --time 04:00:00 --dry-run   writes the script only")]
pub struct SubmitArgs {
    /// A name of `nap sweep list`, or a sweep file (TOML)
    sweep: String,
    #[command(flatten)]
    restrictions: Restrictions,
    /// Directory of the results, seen by every node [default: sweeps/NAME]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Number of array tasks
    #[arg(long, value_name = "TASKS", value_parser = clap::value_parser!(u32).range(1..))]
    array: u32,
    /// Time limit of a task, in Slurm's notation
    #[arg(long)]
    time: String,
    /// Cores of a task, one model each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    cpus: u16,
    /// A further option of sbatch, as --sbatch-arg=--partition=long; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch_arg: Vec<String>,
    /// Only write the script
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `nap slurm status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Directory of a sweep
    directory: PathBuf,
}

/// The jobs that were submitted, a line each.
const JOBS: &str = "jobs.txt";

/// Runs the command.
///
/// # Errors
/// On input that cannot be used, and if Slurm refuses.
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Submit(args) => submit(*args),
        Command::Status(args) => show(&args.directory),
    }
}

fn submit(args: SubmitArgs) -> anyhow::Result<ExitCode> {
    slurm::seconds(&args.time)?;
    let spec = args.restrictions.resolve(&args.sweep)?;
    let grid = Grid::new(&spec)?;
    let path = args.out.unwrap_or_else(|| PathBuf::from("sweeps").join(&spec.name));
    let journal = SweepDir::at(&path).journal()?;
    grid.notes.iter().chain(&journal.notes).for_each(|text| note(format!("note: {text}\n")));
    let left = grid.runs.iter().filter(|run| !journal.runs.contains_key(&run.id)).count();
    if left == 0 {
        print_line(format!("nothing to submit: all {} runs have ended", grid.runs.len()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let absolute = |path: &Path| {
        std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))
    };
    let out = absolute(&path)?;
    let job = Job {
        name: spec.name.clone(),
        sweep: SweepDir::at(&out).spec_path(&spec),
        out: out.clone(),
        program: std::env::current_exe().context("cannot find this program's path")?,
        tasks: tasks(args.array as usize, grid.runs.len()),
        time: args.time,
        cpus: args.cpus,
        options: args.sbatch_arg,
    };
    let folder = out.join("slurm");
    let script = folder.join(format!("{}.sbatch", spec.file_stem()));
    let text = job.script()?;
    SweepDir::create(&path, &spec)?;
    std::fs::create_dir_all(&folder)
        .and_then(|()| write_atomically(&script, text.as_bytes()))
        .map_err(|error| unwritable(&script, &error))?;
    if args.dry_run {
        let script = quoted(&script.display().to_string());
        print_line(format!("{left} runs to do; submit with: sbatch {script}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let id = slurm::submit(&script)?;
    let mut jobs = std::fs::OpenOptions::new().create(true).append(true).open(folder.join(JOBS))?;
    jobs.write_all(format!("{id}\n").as_bytes())?;
    print_line(format!(
        "job {id}: {left} runs in {} array tasks; see nap slurm status {}",
        job.tasks,
        quoted(&path.display().to_string())
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// As many array tasks as are asked for, as the cluster takes, and as there are runs.
fn tasks(wanted: usize, runs: usize) -> usize {
    let mut tasks = wanted;
    if let Some(most) = slurm::most_tasks().filter(|&most| most > 0 && most < tasks) {
        note(format!("note: this cluster takes arrays of at most {most} tasks (MaxArraySize)\n"));
        tasks = most;
    }
    if runs < tasks {
        note(format!("note: {runs} array tasks are enough for {runs} runs\n"));
        tasks = runs;
    }
    tasks
}

fn show(path: &Path) -> anyhow::Result<ExitCode> {
    let dir = SweepDir::open(path)?;
    let text = std::fs::read_to_string(dir.path().join("slurm").join(JOBS)).unwrap_or_default();
    let numeric = |id: &&str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
    let jobs: Vec<_> = text.lines().map(str::trim).filter(numeric).map(str::to_owned).collect();
    let queue = slurm::queue(&jobs)?;
    print_line(format!("jobs submitted: {}; tasks in the queue: {}", jobs.len(), queue.len()))?;
    for [id, state, time, place] in queue {
        print_line(format!("  {id:14} {state:12} {time:>12}  {place}"))?;
    }
    print_line("")?;
    status::run(&status::Args { directory: path.to_owned(), json: false })
}
