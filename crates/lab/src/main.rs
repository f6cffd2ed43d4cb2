//! The program `nap`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nap::cli::main()
}
