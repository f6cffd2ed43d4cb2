//! Data of one's own: from files to what the engine trains on.
//!
//! | file | what |
//! |---|---|
//! | [`records`] | JSON lines and CSV, plain or gzip, record by record |
//! | [`fields`] | what of a JSON object matters |
//! | [`names`] | tokens and classes, and their numbers |
//! | [`encoded`] | the numbers in a temporary file |
//! | here | training and validation part, and what a configuration says of them |

pub mod encoded;
pub mod fields;
pub mod names;
pub mod records;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use nap_engine::config::{DataConfig, Place, RunConfig, TaskName};
use nap_engine::data::{Data, Names};
use nap_engine::random::{Purpose, Stream};
use nap_engine::train::{CheckpointError, Trainer};
use sha2::Digest;

use crate::error::bad;
use encoded::{Part, Which, Writer};
use names::Encoder;
use records::{Records, Tokenize};

/// The share that is kept for validation unless the configuration says otherwise.
pub const FRACTION: f64 = 0.1;

/// Data that were read.
#[derive(Clone)]
struct Known {
    /// The question, as far as it decides the answer.
    asked: (TaskName, String, Option<String>, Option<f64>, Option<String>),
    found: DataConfig,
    data: Data,
}

/// How many data the process keeps.
const KEPT: usize = 4;

/// What this process has read last: every run of a sweep asks for the same data, and a pipe can
/// be read only once.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// Reads the files and says what is in them.
///
/// # Errors
/// If they cannot be used.
pub fn look(task: TaskName, data: &DataConfig) -> anyhow::Result<DataConfig> {
    Ok(known(task, data)?.found)
}

/// The data of a run; none for tasks that make their own sequences.
///
/// # Errors
/// If they cannot be used, or are no longer what they were when the run was configured.
pub fn open(config: &RunConfig) -> anyhow::Result<Option<Data>> {
    let Some(data) = &config.task.data else { return Ok(None) };
    let known = known(config.task.name, data)?;
    if known.found != *data {
        let files = data.valid.iter().fold(data.train.0.clone(), |a, b| format!("{a} and {}", b.0));
        return Err(bad(format!(
            "{files}: not the data of this run any more: expected those with the digest {}, \
             found {}",
            data.digest, known.found.digest
        )));
    }
    Ok(Some(known.data))
}

/// The trainer of a run, with its data.
///
/// # Errors
/// If the configuration or its data cannot be used.
pub fn trainer(config: &RunConfig) -> anyhow::Result<Trainer> {
    let data = open(config)?;
    Trainer::with_data(config.clone(), data).map_err(|error| bad(error.to_string()))
}

/// The trainer that continues from a checkpoint of this run.
///
/// # Errors
/// If its data cannot be used; within, if the checkpoint cannot.
pub fn resume(
    config: &RunConfig,
    bytes: &[u8],
) -> anyhow::Result<Result<Trainer, CheckpointError>> {
    Ok(Trainer::resume_with_data(bytes, open(config)?))
}

fn known(task: TaskName, data: &DataConfig) -> anyhow::Result<Known> {
    // As in the answer, which is what later questions hold.
    let valid = data.valid.as_ref().map(|place| absolute(place).0);
    let fraction = data.fraction.or(valid.is_none().then_some(FRACTION));
    let asked = (task, absolute(&data.train).0, valid, fraction, data.tokenize.clone());
    // Whoever asks meanwhile waits for the same answer.
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.iter().find(|known| known.asked == asked) {
        return Ok(known.clone());
    }
    let (found, data) = read(task, data)?;
    let known = Known { asked, found, data };
    if all.len() == KEPT {
        all.remove(0);
    }
    all.push(known.clone());
    Ok(known)
}

/// A place as seen from everywhere.
fn absolute(place: &Place) -> Place {
    let path = std::path::absolute(&place.0);
    Place(path.map_or_else(|_| place.0.clone(), |path| path.display().to_string()))
}

fn read(task: TaskName, data: &DataConfig) -> anyhow::Result<(DataConfig, Data)> {
    if !task.is_own() {
        let known = TaskName::OWN.map(TaskName::as_str).join(", ");
        let task = task.as_str();
        return Err(bad(format!("task {task} makes its own sequences: expected one of {known}")));
    }
    if let Some(fraction) = data.fraction
        && (data.valid.is_some() || !(fraction > 0.0 && fraction < 1.0))
    {
        return Err(bad(match data.valid {
            Some(_) => {
                "a validation file and a validation fraction: expected one of both".to_owned()
            }
            None => format!("validation fraction {fraction}: expected a number between 0 and 1"),
        }));
    }
    let tokenize = data.tokenize.as_deref().map(Tokenize::find).transpose()?;
    let train_place = &data.train.0;
    let mut encoder = Encoder::collecting(task);
    let mut writer = Writer::new()?;
    let mut texts = append(Path::new(train_place), tokenize, &mut encoder, &mut writer)?;
    let count = writer.count();
    if let Some(valid) = &data.valid {
        encoder.close();
        texts |= append(Path::new(&valid.0), tokenize, &mut encoder, &mut writer)?;
    }
    if let (Some(tokenize), false) = (tokenize, texts) {
        let name = tokenize.name();
        return Err(bad(format!(
            "{train_place}: tokens and no text: expected no --tokenize {name}"
        )));
    }
    let total = writer.count();
    let (names, tokens, classes) = encoder.names();
    if let (Some(_), [label]) = (&classes, &names.labels[..]) {
        return Err(bad(format!(
            "{train_place}: every label is {label}: expected two different ones at least"
        )));
    }
    let (file, mut hash) = writer.finish(tokens, classes)?;
    hash.update(serde_json::to_vec(&names)?);
    hash.update((count as u64).to_le_bytes());
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let file = Arc::new(file);
    let fraction = data.valid.is_none().then(|| data.fraction.unwrap_or(FRACTION));
    let (train, validation) = match fraction {
        None => (Which::Range(0..count), Which::Range(count..total)),
        Some(fraction) => split(count, fraction).ok_or_else(|| {
            bad(format!("{train_place}: one sequence: expected two at least, one to validate on"))
        })?,
    };
    let [train, validation] =
        [train, validation].map(|which| Part { file: Arc::clone(&file), which });
    let lengths = || file.lengths().iter().map(|&length| length as usize);
    let [sequences, validated] = [&train, &validation].map(nap_engine::data::Examples::len);
    let found = DataConfig {
        train: absolute(&data.train),
        valid: data.valid.as_ref().map(absolute),
        fraction,
        tokenize: data.tokenize.clone(),
        digest,
        vocab: names.tokens.len(),
        classes: names.labels.len(),
        sequences,
        validation: validated,
        tokens: train.tokens(),
        shortest: lengths().min().unwrap_or(0),
        longest: lengths().max().unwrap_or(0),
    };
    let data =
        Data { train: Arc::new(train), validation: Arc::new(validation), names: Arc::new(names) };
    Ok((found, data))
}

/// Encodes a file's records; says whether there are texts that became tokens.
fn append(
    path: &Path,
    tokenize: Option<Tokenize>,
    encoder: &mut Encoder,
    writer: &mut Writer,
) -> anyhow::Result<bool> {
    let mut records = Records::open(path, tokenize)?;
    let before = writer.count();
    while let Some(record) = records.read_record()? {
        let wrong = |what| records.wrong(record.line, what);
        let (tokens, targets) =
            (encoder.tokens(&record).map_err(wrong)?, encoder.targets(&record).map_err(wrong)?);
        if writer.count() == u32::MAX as usize {
            return Err(wrong("more than 4294967295 sequences".to_owned()));
        }
        writer.push(&tokens, &targets)?;
    }
    if writer.count() == before {
        return Err(bad(format!("{}: no sequences in it", records.place())));
    }
    Ok(records.had_texts())
}

/// The examples of a file, encoded with the names of a model.
///
/// # Errors
/// If the file cannot be used, or has labels that the model does not know.
pub fn encode(
    path: &Path,
    tokenize: Option<Tokenize>,
    task: TaskName,
    names: &Names,
) -> anyhow::Result<Part> {
    let mut writer = Writer::new()?;
    append(path, tokenize, &mut Encoder::of(task, names), &mut writer)?;
    let count = writer.count();
    let classes = (task != TaskName::Point).then(|| (0..names.labels.len() as u32).collect());
    let (file, _) = writer.finish((0..names.tokens.len() as u32).collect(), classes)?;
    Ok(Part { file: Arc::new(file), which: Which::Range(0..count) })
}

/// Which of so many examples are trained on and which are validated on: a share as near to the
/// fraction as can be, one at least, chosen by the stream of (0, Split, 0, 0). None if there are
/// too few.
fn split(count: usize, fraction: f64) -> Option<(Which, Which)> {
    let kept = ((count as f64 * fraction).round() as usize).clamp(1, count.max(2) - 1);
    if count < 2 {
        return None;
    }
    let mut stream = Stream::new(0, Purpose::Split, 0, 0);
    let mut order: Vec<u32> = (0..count as u32).collect();
    for place in 0..kept {
        order.swap(place, place + stream.below((count - place) as u32) as usize);
    }
    let train = &mut order.split_off(kept);
    train.sort_unstable();
    order.sort_unstable();
    Some((Which::These(std::mem::take(train)), Which::These(order)))
}
