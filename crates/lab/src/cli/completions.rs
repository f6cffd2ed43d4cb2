//! `nap completions`: completion scripts.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::output::print;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap completions bash > ~/.local/share/bash-completion/completions/nap
  nap completions zsh > \"${fpath[1]}/_nap\"
  nap completions fish > ~/.config/fish/completions/nap.fish")]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
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
