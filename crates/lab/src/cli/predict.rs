//! `nap predict`: answers of a model of one's own data, line by line.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use nap_engine::config::TaskName;
use nap_engine::data::Label;
use nap_engine::train::{Answers, Predictor, Trained};

use crate::data::names::Encoder;
use crate::data::records::{Record, Records, Tokenize};
use crate::error::bad;
use crate::output::Closed;
use crate::run_dir::read_checkpoint;

/// Answer sequences with a model of your own data.
///
/// Reads JSON lines or CSV as in training (docs/data.md), labels aside, and writes one JSON line
/// per sequence: its label, and its probability on request. A line is answered as soon as no other
/// one waits to be read; any number of sequences takes the same memory.
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

/// Answered together: this many sequences, or fewer of so many tokens and probabilities in all.
const MOST_SEQUENCES: usize = 1024;
const MOST_NUMBERS: usize = 1 << 20;

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
    let records = match &args.input {
        Some(path) if path != Path::new("-") => Records::open(path, tokenize)?,
        _ => Records::read(Box::new(io::stdin()), "standard input", tokenize)?,
    };
    let mut records = records.without_labels();
    let mut lines = Lines {
        probabilities: args.probabilities,
        task: trained.config.task.name,
        classes: names.labels.iter().map(serde_json::to_string).collect::<Result<_, _>>()?,
        keys: names.labels.iter().map(key).collect::<Result<_, _>>()?,
        predictor: Predictor::new(&trained),
        sequences: Vec::new(),
        numbers: 0,
        out: BufWriter::new(io::stdout().lock()),
    };
    let mut encoder = Encoder::of(trained.config.task.name, names);
    loop {
        match next(&mut records, &trained, &mut encoder) {
            Ok(Some(ids)) => lines.push(ids)?,
            // The lines before are answered either way.
            end => {
                lines.flush()?;
                return end.map(|_| ExitCode::SUCCESS);
            }
        }
        // Whoever writes may wait for the answers.
        if !records.is_ready() {
            lines.flush()?;
        }
    }
}

/// A class as the key of an object, with its colon.
fn key(label: &Label) -> serde_json::Result<String> {
    Ok(serde_json::to_string(&label.to_string())? + ":")
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

/// From sequences to lines of JSON.
struct Lines<'a> {
    probabilities: bool,
    task: TaskName,
    /// The classes' names as JSON; none for positions.
    classes: Vec<String>,
    /// The same as keys.
    keys: Vec<String>,
    predictor: Predictor<'a>,
    sequences: Vec<Vec<u32>>,
    /// Tokens of these, and probabilities to come.
    numbers: usize,
    out: BufWriter<io::StdoutLock<'static>>,
}

impl Lines<'_> {
    fn push(&mut self, ids: Vec<u32>) -> anyhow::Result<()> {
        let probabilities = match (self.probabilities, self.task) {
            (true, TaskName::Tag) => ids.len() * self.classes.len(),
            (true, TaskName::Classify) => self.classes.len(),
            _ => 0,
        };
        self.numbers += ids.len() + probabilities;
        self.sequences.push(ids);
        if self.sequences.len() == MOST_SEQUENCES || self.numbers >= MOST_NUMBERS {
            self.flush()?;
        }
        Ok(())
    }

    /// Answers what has come together.
    fn flush(&mut self) -> anyhow::Result<()> {
        let answers = self.predictor.answer(&self.sequences, self.probabilities);
        let answers = answers.map_err(|error| bad(error.to_string()))?;
        self.sequences.clear();
        self.numbers = 0;
        let written = answers.iter().try_for_each(|answers| self.line(answers));
        match written.and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
            result => result.context("cannot write to standard output"),
        }
    }

    fn line(&mut self, answers: &Answers) -> io::Result<()> {
        let (out, classes, keys) = (&mut self.out, &self.classes, &self.keys);
        // One per token, or one.
        let outer = if self.task == TaskName::Tag { ["[", "]"] } else { ["", ""] };
        out.write_all(b"{\"label\":")?;
        list(out, outer, &answers.given, |out, &given| match classes.get(given as usize) {
            Some(class) => out.write_all(class.as_bytes()),
            None => write!(out, "{given}"),
        })?;
        if self.probabilities {
            out.write_all(b",\"probabilities\":")?;
            let width = answers.probabilities.len() / answers.given.len();
            let rows = answers.probabilities.chunks_exact(width);
            list(out, outer, rows, |out, row| {
                let brackets = if keys.is_empty() { ["[", "]"] } else { ["{", "}"] };
                list(out, brackets, row.iter().enumerate(), |out, (class, &p)| {
                    if let Some(key) = keys.get(class) {
                        out.write_all(key.as_bytes())?;
                    }
                    // A NaN becomes null.
                    Ok(serde_json::to_writer(out, &f64::from(p))?)
                })
            })?;
        }
        out.write_all(b"}\n")
    }
}

/// Writes items with commas between them, between brackets.
fn list<W: Write, T>(
    out: &mut W,
    [open, close]: [&str; 2],
    items: impl IntoIterator<Item = T>,
    item: impl Fn(&mut W, T) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(open.as_bytes())?;
    for (i, value) in items.into_iter().enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        item(out, value)?;
    }
    out.write_all(close.as_bytes())
}
