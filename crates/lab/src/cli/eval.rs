//! `nap eval`: scores a trained model on fresh sequences.

use std::path::PathBuf;
use std::process::ExitCode;

use nap_engine::task::Task;
use serde_json::{Map, Value};

use crate::error::bad;
use crate::output::{print, print_line};
use crate::record::number;
use crate::run_dir::read_checkpoint;

/// Score a trained model on fresh sequences.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap eval runs/mode-nap-d32-lr0.000729-s0            at the validation length
  nap eval runs/mode-nap-d32-lr0.000729-s0 --seq 1024 at another
  nap eval run/last.safetensors --json                a checkpoint by its file, as JSON")]
pub struct Args {
    /// Run directory, or a checkpoint file
    checkpoint: PathBuf,
    /// Length of the sequences [default: the run's validation length]
    #[arg(long, value_name = "N")]
    seq: Option<usize>,
    /// Number of batches
    #[arg(long, default_value_t = 32)]
    batches: usize,
    /// Seed of the sequences
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The last epoch's weights instead of the best validation epoch's
    #[arg(long)]
    last: bool,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If the checkpoint cannot be used, or not at this length.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (path, trained) = read_checkpoint(&args.checkpoint, args.last)?;
    let length = args.seq.unwrap_or_else(|| trained.config.validation_length());
    let measured = trained
        .evaluate(length, args.batches, args.seed)
        .map_err(|error| bad(format!("{}: {error}", path.display())))?;
    let cases = Task::new(&trained.config.task).cases();
    if args.json {
        let mut map = Map::new();
        map.insert("checkpoint".to_owned(), path.display().to_string().into());
        map.insert("epoch".to_owned(), trained.epoch.into());
        map.insert("length".to_owned(), length.into());
        map.insert("batches".to_owned(), args.batches.into());
        map.insert("seed".to_owned(), args.seed.into());
        map.insert("loss".to_owned(), number(measured.loss));
        map.insert("accuracy".to_owned(), number(measured.accuracy));
        for (case, &accuracy) in cases.iter().zip(&measured.cases) {
            map.insert(format!("case_{}", case.name), number(accuracy));
        }
        print_line(Value::Object(map).to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!(
        "{} on {}, trained for {} epochs; {} sequences of length {length}\n\
         loss {:.4}  accuracy {:.4}\n",
        trained.config.model.name,
        trained.config.task.name.as_str(),
        trained.epoch,
        args.batches * trained.config.train.batch,
        measured.loss,
        measured.accuracy
    );
    for (case, accuracy) in cases.iter().zip(&measured.cases) {
        text += &format!("  {:<24} {accuracy:.4}  {}\n", case.name, case.meaning);
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}
