//! `nap show`: what a checkpoint holds.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::output::print;
use crate::resolve;
use crate::run_dir::read_checkpoint;

/// Show a checkpoint: configuration, results, parameters.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap show runs/mode-nap-d32-lr0.000729-s0
  nap show run/last.safetensors")]
pub struct Args {
    /// Run directory, or a checkpoint file
    checkpoint: PathBuf,
    /// The last epoch's weights instead of the best validation epoch's
    #[arg(long)]
    last: bool,
}

/// Runs the command.
///
/// # Errors
/// If the checkpoint cannot be used.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (path, trained) = read_checkpoint(&args.checkpoint, args.last)?;
    let mut text = format!(
        "# {}\n# {} epochs, written by version {} on {}\n",
        path.display(),
        trained.epoch,
        trained.version,
        trained.isa
    );
    if let Some(last) = trained.history.last() {
        text += &format!(
            "# training accuracy {:.4}, validation accuracy {:.4}{}\n",
            last.train_accuracy,
            last.validation.accuracy,
            if last.diverged { ", diverged" } else { "" }
        );
    }
    text += &format!("\n{}\n", resolve::to_toml(&trained.config)?);
    text += &format!(
        "{:<40} {:>14} {:>10} {:>11} {:>11}\n",
        "parameter", "shape", "values", "mean", "std"
    );
    for parameter in &trained.architecture.parameters {
        let values = &trained.parameters[parameter.range()];
        let n = values.len() as f64;
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let square = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
        let shape: Vec<_> = parameter.shape.iter().map(usize::to_string).collect();
        text += &format!(
            "{:<40} {:>14} {:>10} {mean:>11.3e} {:>11.3e}\n",
            parameter.name,
            shape.join(" x "),
            values.len(),
            square.sqrt()
        );
    }
    text += &format!("{:<40} {:>14} {:>10}\n", "total", "", trained.parameters.len());
    print(text)?;
    Ok(ExitCode::SUCCESS)
}
