//! `nap eval`: scores a trained model on fresh sequences, or on data of one's own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nap_engine::data::{Examples, Names};
use nap_engine::task::Task;
use nap_engine::train::{Evaluation, Trained};
use serde_json::{Map, Value, json};

use crate::data::{self, records::Tokenize};
use crate::error::bad;
use crate::output::{print, print_line};
use crate::record::number;
use crate::run_dir::read_checkpoint;

/// Score a trained model on fresh sequences, or on data of your own.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap eval runs/first                           the best epoch, at the validation length
  nap eval runs/first --seq 512                 on longer sequences
  nap eval runs/first --last --json             the last epoch, as one JSON object
  nap eval runs/first/best.safetensors --seed 1 on other data
  nap eval runs/mine --data test.jsonl          a model of your own data, on other data")]
pub struct Args {
    /// Run directory, or a checkpoint file
    checkpoint: PathBuf,
    /// Data of your own, for a model of such data
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seq", "batches", "seed"])]
    data: Option<PathBuf>,
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
    if let Some(names) = &trained.names {
        return own(&args, &path, &trained, names);
    }
    if let Some(data) = &args.data {
        let (task, data) = (trained.config.task.name.as_str(), data.display());
        return Err(bad(format!(
            "--data {data}: {} is a model of {task}, which makes its own sequences",
            path.display()
        )));
    }
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

/// Scores a model of one's own data.
fn own(args: &Args, path: &Path, trained: &Trained, names: &Names) -> anyhow::Result<ExitCode> {
    let place = path.display();
    let (Some(file), Some(data)) = (&args.data, &trained.config.task.data) else {
        return Err(bad(format!("{place} is a model of your own data: expected --data FILE")));
    };
    let tokenize = data.tokenize.as_deref().map(Tokenize::find).transpose()?;
    let examples = data::encode(file, tokenize, trained.config.task.name, names)?;
    let scores = trained
        .evaluate_on(&examples)
        .map_err(|error| bad(format!("{}: {place}: {error}", file.display())))?;
    if args.json {
        let mut map = Map::new();
        let mut put = |key: &str, value| map.insert(key.to_owned(), value);
        put("checkpoint", json!(place.to_string()));
        put("epoch", json!(trained.epoch));
        put("data", json!(file.display().to_string()));
        put("sequences", json!(examples.len()));
        put("loss", number(scores.loss));
        put("accuracy", number(scores.accuracy));
        if let Some(macro_f1) = scores.macro_f1 {
            put("macro_f1", number(macro_f1));
        }
        print_line(Value::Object(map).to_string())?;
    } else {
        let f1 = scores.macro_f1.map_or(String::new(), |f1| format!("macro-F1  {f1:.4}\n"));
        print(format!(
            "{place}: {} on {}, epoch {} of {}\n{} sequences of {}\n\n\
             loss      {:.4}\naccuracy  {:.4}\n{f1}",
            trained.config.model.name,
            trained.config.task.name.as_str(),
            trained.epoch,
            trained.config.train.epochs,
            examples.len(),
            file.display(),
            scores.loss,
            scores.accuracy,
        ))?;
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
