//! Commands and their arguments.

mod analyze;
mod bench;
mod check;
mod choose;
mod compare;
mod completions;
mod config;
mod eval;
mod export;
mod inspect;
mod list;
mod options;
mod plan;
mod plot;
mod predict;
mod progress;
mod report;
mod reproduce;
mod show;
mod signals;
mod slurm;
mod status;
mod sweep;
mod train;
mod workers;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use nap_engine::arch::{Isa, isa};

use crate::error::{BadInput, bad};
use crate::output::{Closed, note};
pub use options::RunOptions;

/// Normalized attention pooling (NAP), softmax transformers and pooling on the tasks of Richter
/// and Wattenhofer 2020.
#[derive(Debug, Parser)]
#[command(
    name = "nap",
    version,
    arg_required_else_help = true,
    args_override_self = true,
    after_help = EXAMPLES
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nap train                               NAP learns `mode`, in a minute or two
  nap train --model bert --seed 1         the same with a softmax transformer
  nap train --data my.jsonl --task classify   data of your own
  nap eval runs/mode-nap-d32-lr0.000729-s0 --seq 512
  nap sweep mode-dim --x 8..32 --seeds 2  part of the paper's sweep over widths, resumable
  nap report sweeps/mode-dim              maps and curves in one page, beside the published
  nap config --preset paper               every setting of the paper's defaults, explained";

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model and write a run directory
    Train(Box<train::Args>),
    /// Find out which model suits a task, within a time
    Choose(Box<choose::Args>),
    /// Train every model of a grid, resumably
    Sweep(Box<sweep::SweepArgs>),
    /// Show what a sweep will take on this machine, and what of it is done
    Plan(plan::Args),
    /// Show how far a sweep is, also while it runs
    Status(status::Args),
    /// Compute runs of a sweep again that failed
    Retry(Box<sweep::RetryArgs>),
    /// Compute a sweep on a Slurm cluster
    #[command(subcommand)]
    Slurm(slurm::Command),
    /// Run parts of the paper, and say which of its claims the runs bear out
    Reproduce(Box<reproduce::Args>),
    /// Make one interactive page of results
    Report(report::Args),
    /// Write pictures of results as SVG and PNG files
    Plot(plot::Args),
    /// Compare results with the published ones, or with other results
    Compare(compare::Args),
    /// Compute recorded runs again and compare them with their records, to the bit
    Check(check::Args),
    /// Write results as CSV, Parquet or TensorBoard event files
    Export(export::Args),
    /// Score a trained model on fresh sequences, or on data of your own
    Eval(eval::Args),
    /// Answer sequences with a model of your own data
    Predict(predict::Args),
    /// Measure the paper's arguments: scale at initialisation, and the hull that softmax keeps to
    #[command(subcommand)]
    Analyze(analyze::Command),
    /// Show what a trained model looks at: attention maps, its answer, what each head does
    Inspect(inspect::Args),
    /// Measure how fast this machine takes a training step, beside its peak
    Bench(Box<bench::Args>),
    /// List the models and aggregators: equations, sources, switches
    #[command(after_help = list::MODELS_EXAMPLES)]
    Models,
    /// List the tasks: rules, read-outs, tracked cases
    #[command(after_help = list::TASKS_EXAMPLES)]
    Tasks,
    /// Show a checkpoint: configuration, results, parameters
    Show(show::Args),
    /// Print a resolved configuration as TOML, every key explained
    Config(Box<config::Args>),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

/// Runs the program on the process's arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let result = known_instruction_set().and_then(|()| run(cli.command));
    result.unwrap_or_else(|error| {
        if error.is::<Closed>() {
            return ExitCode::SUCCESS;
        }
        // One line, whatever the causes contain.
        let line = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
        note(format!("error: {line}\n"));
        ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Train(args) => train::run(*args),
        Command::Choose(args) => choose::run(*args),
        Command::Sweep(args) => sweep::sweep(*args),
        Command::Status(args) => status::run(&args),
        Command::Retry(args) => sweep::retry(*args),
        Command::Reproduce(args) => reproduce::run(*args),
        Command::Report(args) => report::run(&args),
        Command::Plot(args) => plot::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Slurm(command) => slurm::run(command),
        Command::Eval(args) => eval::run(args),
        Command::Predict(args) => predict::run(&args),
        Command::Analyze(command) => analyze::run(command),
        Command::Inspect(args) => inspect::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Models => list::models(),
        Command::Tasks => list::tasks(),
        Command::Show(args) => show::run(args),
        Command::Config(args) => config::run(*args),
        Command::Completions(args) => completions::run(args, &mut Cli::command()),
    }
}

/// `NAP_ISA`, if it is set, must name a path this machine has: the engine passes over others.
fn known_instruction_set() -> anyhow::Result<()> {
    match std::env::var_os("NAP_ISA") {
        Some(name) if name != isa().name() => {
            let known = [Isa::Portable, Isa::Avx2, Isa::Avx512].map(Isa::name).join(", ");
            let (name, best) = (name.display(), isa().name());
            Err(bad(format!("NAP_ISA={name}: expected one of {known}; this machine has {best}")))
        }
        _ => Ok(()),
    }
}

/// Help goes to standard output; a wrong argument becomes one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr()
        || error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    {
        // A closed pipe is no reason to complain.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    let text = error.to_string();
    let paragraphs = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let parts: Vec<_> = paragraphs.map(str::trim).filter(|line| !line.is_empty()).collect();
    note(format!("{}\n", parts.join(" ")));
    ExitCode::from(2)
}
