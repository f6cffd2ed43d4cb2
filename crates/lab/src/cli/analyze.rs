//! `nap analyze`: the paper's arguments, measured.

mod hull;
mod init;

use std::process::ExitCode;

use crate::error::bad;

/// What is measured.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// What aggregation does to scale, and how much of a token is other tokens, before training
    Init(Box<init::Args>),
    /// A target outside the hull of the values: NAP reaches it, softmax does not
    Hull(hull::Args),
}

/// Runs the command.
///
/// # Errors
/// On input that cannot be used.
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Init(args) => init::run(&args),
        Command::Hull(args) => hull::run(&args),
    }
}

/// A number within a range.
fn within<T: PartialOrd + std::fmt::Display>(
    option: &str,
    value: T,
    least: T,
    most: T,
) -> anyhow::Result<T> {
    if value >= least && value <= most {
        return Ok(value);
    }
    Err(bad(format!("{option} {value}: expected between {least} and {most}")))
}
