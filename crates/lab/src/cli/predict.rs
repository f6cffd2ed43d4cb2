//! `nap predict`: answers of a model of one's own data, line by line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use nap_engine::config::TaskName;
use nap_engine::data::Names;
use nap_engine::task::argmax_first;
use nap_engine::train::{Predictor, Trained};
use serde_json::{Map, Value, json};

use crate::data::names::Encoder;
use crate::data::records::{Record, Records, Tokenize};
use crate::error::bad;
use crate::output::Closed;
use crate::record::number;
use crate::run_dir::read_checkpoint;

/// Answer sequences with a model of your own data.
///
/// Reads JSON lines or CSV as in training (docs/data.md), labels aside, and writes one JSON line
/// per sequence: its label, and its probability on request. Any number of sequences takes the
/// same memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap predict runs/mine < in.jsonl > out.jsonl
  nap predict runs/mine in.csv --probabilities
  echo '{\"tokens\": [3, 1, 2]}' | nap predict runs/mine")]
pub struct Args {
    /// Run directory, or a checkpoint file
    checkpoint: PathBuf,
    /// What to read [default: standard input]
    input: Option<PathBuf>,
    /// The probability of each class, or of each position
    #[arg(long)]
    probabilities: bool,
    /// The last epoch's weights instead of the best validation epoch's
    #[arg(long)]
    last: bool,
}

/// Answered together: this many sequences, or fewer of so many tokens in all.
const MOST_SEQUENCES: usize = 1024;
const MOST_TOKENS: usize = 1 << 20;

/// Runs the command.
///
/// # Errors
/// On input that cannot be used; the lines before it are answered.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (path, trained) = read_checkpoint(&args.checkpoint, args.last)?;
    let (Some(names), Some(data)) = (&trained.names, &trained.config.task.data) else {
        let task = trained.config.task.name.as_str();
        let place = path.display();
        return Err(bad(format!("{place} is a model of {task}: expected one of your own data")));
    };
    let tokenize = data.tokenize.as_deref().map(Tokenize::find).transpose()?;
    let mut records = match &args.input {
        Some(path) if path != Path::new("-") => Records::open(path, tokenize)?,
        _ => Records::read(Box::new(io::stdin()), "standard input", tokenize)?,
    };
    let mut answers = Answers {
        args,
        names,
        task: trained.config.task.name,
        predictor: Predictor::new(&trained),
        sequences: Vec::new(),
        tokens: 0,
        out: io::stdout().lock(),
    };
    let mut encoder = Encoder::of(trained.config.task.name, names);
    loop {
        let ids = next(&mut records, &trained, &mut encoder);
        match ids {
            Ok(Some(ids)) => answers.push(ids)?,
            // The lines before are answered either way.
            end => {
                answers.flush()?;
                return end.map(|_| ExitCode::SUCCESS);
            }
        }
    }
}

/// The token ids of the next record.
fn next(
    records: &mut Records,
    trained: &Trained,
    encoder: &mut Encoder,
) -> anyhow::Result<Option<Vec<u32>>> {
    let Some(record) = records.read_record()? else { return Ok(None) };
    let Record { line, .. } = record;
    let ids = encoder.tokens(&record).map_err(|what| records.wrong(line, what))?;
    trained.check_length(ids.len()).map_err(|error| records.wrong(line, error))?;
    Ok(Some(ids))
}

struct Answers<'a> {
    args: &'a Args,
    names: &'a Names,
    task: TaskName,
    predictor: Predictor<'a>,
    sequences: Vec<Vec<u32>>,
    tokens: usize,
    out: io::StdoutLock<'static>,
}

impl Answers<'_> {
    fn push(&mut self, ids: Vec<u32>) -> anyhow::Result<()> {
        self.tokens += ids.len();
        self.sequences.push(ids);
        if self.sequences.len() == MOST_SEQUENCES || self.tokens >= MOST_TOKENS {
            self.flush()?;
        }
        Ok(())
    }

    /// Answers what has come together.
    fn flush(&mut self) -> anyhow::Result<()> {
        let answers =
            self.predictor.answer(&self.sequences).map_err(|error| bad(error.to_string()))?;
        let lines: String = answers.iter().map(|answers| self.line(answers)).collect();
        self.sequences.clear();
        self.tokens = 0;
        match self.out.write_all(lines.as_bytes()).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
            result => result.context("cannot write to standard output"),
        }
    }

    fn line(&self, answers: &[Vec<f32>]) -> String {
        let given = answers.iter().map(|probabilities| {
            let class = argmax_first(probabilities);
            self.names.labels.get(class).map_or_else(|| json!(class), |label| json!(label))
        });
        let probabilities = answers.iter().map(|probabilities| {
            let values = probabilities.iter().map(|&p| number(f64::from(p)));
            match self.task {
                TaskName::Point => Value::Array(values.collect()),
                _ => {
                    let names = self.names.labels.iter().map(ToString::to_string);
                    Value::Object(names.zip(values).collect())
                }
            }
        });
        let one_or_all = |mut values: Vec<Value>| match self.task {
            TaskName::Tag => Value::Array(values),
            _ => values.pop().unwrap_or_default(),
        };
        let mut object = Map::new();
        object.insert("label".to_owned(), one_or_all(given.collect()));
        if self.args.probabilities {
            object.insert("probabilities".to_owned(), one_or_all(probabilities.collect()));
        }
        Value::Object(object).to_string() + "\n"
    }
}
