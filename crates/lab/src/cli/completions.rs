//! `nap completions`.

use std::process::ExitCode;

use crate::output::print;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  nap completions bash > ~/.local/share/bash-completion/completions/nap")]
pub struct Args {
    shell: clap_complete::Shell,
}

/// Runs the command.
///
/// # Errors
/// If standard output cannot be written.
pub fn run(args: Args, command: &mut clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "nap", &mut script);
    print(String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
