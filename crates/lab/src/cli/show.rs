//! `nap show`: what a checkpoint is.

use std::path::PathBuf;
use std::process::ExitCode;

use nap_engine::task::Task;
use nap_engine::train::Trained;

use crate::output::print;
use crate::resolve;
use crate::run_dir::read_checkpoint;

/// Show a checkpoint: configuration, results, parameters.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap show runs/first                    the best epoch of a run
  nap show runs/first --last             the last one
  nap show runs/first/best.safetensors   a file")]
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
/// On input that cannot be used.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (path, trained) = read_checkpoint(&args.checkpoint, args.last)?;
    let config = resolve::to_toml(&trained.config)?;
    let text = format!(
        "# {}\n# epoch {} of {}, written by version {} on {}\n\n{config}\n{}\n{}",
        path.display(),
        trained.epoch,
        trained.config.train.epochs,
        trained.version.escape_debug(),
        trained.isa.escape_debug(),
        results(&trained),
        parameters(&trained),
    );
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// What the last epoch measured.
fn results(trained: &Trained) -> String {
    let Some(last) = trained.history.last() else {
        return "No epoch is finished.\n".to_owned();
    };
    let epoch = format!("epoch {}", last.epoch);
    let mut text = format!("{epoch:26} {:>7} {:>11}\n", "train", "validation");
    let mut line = |name: &str, train: f64, validation: f64| {
        text += &format!("  {name:24} {train:>7.4} {validation:>11.4}\n");
    };
    line("loss", last.train_loss, last.validation.loss);
    line("accuracy", last.train_accuracy, last.validation.accuracy);
    let cases = Task::new(&trained.config.task).cases();
    for ((case, &train), &validation) in
        cases.iter().zip(&last.train_cases).zip(&last.validation.cases)
    {
        line(case.name, train, validation);
    }
    if let Some(macro_f1) = last.validation.macro_f1 {
        text += &format!("  {:24} {:>7} {macro_f1:>11.4}\n", "macro-F1", "");
    }
    if last.diverged {
        text += "  diverged: the parameters have become NaN\n";
    }
    text
}

/// Name, shape, count, mean and deviation of each parameter.
fn parameters(trained: &Trained) -> String {
    let list = &trained.architecture.parameters;
    let width = list.iter().map(|p| p.name.len()).max().unwrap_or(0).max(9);
    let mut text = format!(
        "{:width$}  {:>12} {:>10} {:>11} {:>11}\n",
        "parameter", "shape", "count", "mean", "std"
    );
    for parameter in list {
        let shape: Vec<_> = parameter.shape.iter().map(usize::to_string).collect();
        let (mean, deviation) = moments(&trained.parameters[parameter.range()]);
        text += &format!(
            "{:width$}  {:>12} {:>10} {mean:>11.6} {deviation:>11.6}\n",
            parameter.name,
            shape.join(" x "),
            parameter.len(),
        );
    }
    text + &format!("{:width$}  {:>12} {:>10}\n", "total", "", trained.parameters.len())
}

/// Mean and population deviation.
fn moments(values: &[f32]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let square = |&x: &f32| (f64::from(x) - mean).powi(2);
    (mean, (values.iter().map(square).sum::<f64>() / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::moments;

    #[test]
    fn deviations_are_of_the_population() {
        assert_eq!(moments(&[1.0, 3.0]), (2.0, 1.0));
        assert!(moments(&[f32::NAN]).0.is_nan());
    }
}
