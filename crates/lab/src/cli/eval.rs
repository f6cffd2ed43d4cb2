//! `nap eval`: scores a trained model on fresh sequences.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nap_engine::task::Task;
use nap_engine::train::{Evaluation, Trained};
use serde_json::{Map, Value, json};

use crate::error::bad;
use crate::output::{print, print_line};
use crate::record::number;
use crate::run_dir::read_checkpoint;

/// Score a trained model on fresh sequences.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap eval runs/first                           the best epoch, at the validation length
  nap eval runs/first --seq 512                 on longer sequences
  nap eval runs/first --last --json             the last epoch, as one JSON object
  nap eval runs/first/best.safetensors --seed 1 on other data")]
pub struct Args {
    /// Run directory, or a checkpoint file
    checkpoint: PathBuf,
    /// Length of the sequences [default: the run's validation length]
    #[arg(long, value_name = "N")]
    seq: Option<usize>,
    /// Batches, of the run's batch size
    #[arg(long, value_name = "N", default_value_t = 32)]
    batches: usize,
    /// Names the data; it is never the data of training or validation
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The last epoch's weights instead of the best validation epoch's
    #[arg(long)]
    last: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// On input that cannot be used.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (path, trained) = read_checkpoint(&args.checkpoint, args.last)?;
    let length = args.seq.unwrap_or_else(|| trained.config.validation_length());
    let scores = trained
        .evaluate(length, args.batches, args.seed)
        .map_err(|error| bad(format!("{}: {error}", path.display())))?;
    if args.json {
        print_line(Value::Object(record(&args, &path, length, &trained, &scores)).to_string())?;
    } else {
        print(table(&args, &path, length, &trained, &scores))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn record(
    args: &Args,
    path: &Path,
    length: usize,
    trained: &Trained,
    scores: &Evaluation,
) -> Map<String, Value> {
    let mut map = Map::new();
    let mut put = |key: &str, value| map.insert(key.to_owned(), value);
    put("checkpoint", json!(path.display().to_string()));
    put("epoch", json!(trained.epoch));
    put("length", json!(length));
    put("batches", json!(args.batches));
    put("seed", json!(args.seed));
    put("loss", number(scores.loss));
    put("accuracy", number(scores.accuracy));
    for (case, &accuracy) in Task::new(&trained.config.task).cases().iter().zip(&scores.cases) {
        put(&format!("case_{}", case.name), number(accuracy));
    }
    map
}

fn table(
    args: &Args,
    path: &Path,
    length: usize,
    trained: &Trained,
    scores: &Evaluation,
) -> String {
    let config = &trained.config;
    let mut text = format!(
        "{}: {} on {}, epoch {} of {}\n{} batches of {} sequences of length {length}, seed {}\n\n",
        path.display(),
        config.model.name,
        config.task.name.as_str(),
        trained.epoch,
        config.train.epochs,
        args.batches,
        config.train.batch,
        args.seed,
    );
    text += &format!("loss      {:.4}\naccuracy  {:.4}\n", scores.loss, scores.accuracy);
    let cases = Task::new(&config.task).cases();
    if !cases.is_empty() {
        text +=
            &format!("\nper case, {} sequences with equal shares:\n", config.train.case_sequences);
    }
    for (case, accuracy) in cases.iter().zip(&scores.cases) {
        let score = if accuracy.is_nan() { "none".to_owned() } else { format!("{accuracy:.4}") };
        let indent = if case.main { "" } else { "  " };
        text += &format!("{:24} {score:6}  {}\n", format!("{indent}{}", case.name), case.meaning);
    }
    text
}
