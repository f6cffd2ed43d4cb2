//! `nap inspect`: what a trained model looks at.

mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nap_engine::data::Names;
use nap_engine::random::Purpose;
use nap_engine::reference;
use nap_engine::task::{Batch, Task};
use nap_engine::train::Trained;
use serde_json::{Value, json};

use crate::data::names::Encoder;
use crate::data::records::{Record, Records, Tokenize, words};
use crate::error::{bad, unwritable};
use crate::files::write_atomically;
use crate::inspect::page;
use crate::inspect::roles::{Role, Roles, marks};
use crate::inspect::{self, Example, Kind, Map, Shown};
use crate::output::{note, print, print_line};
use crate::parallel;
use crate::record::number;
use crate::run_dir::read_checkpoint;

/// Show what a trained model looks at: attention maps, its answer, what each head does.
///
/// Maps and answer are those of one sequence: yours (--input) or one of a sample (--sample). What
/// heads do is averaged over the whole sample, in which the task's cases have equal shares.
/// Layers and heads count from 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap inspect runs/first                              the first sequence of the sample
  nap inspect runs/first -o inspect.html              every map in a page, to hover over
  nap inspect runs/first --input 3,64,17,99,5,3       a sequence of your own
  nap inspect runs/first --sample 7 --layer 1 --head 0
  nap inspect runs/mine --data test.jsonl             a model of your own data, a sample of a file
  nap inspect runs/first/last.safetensors --queries first --json")]
pub struct Args {
    /// Run directory, or a checkpoint file
    checkpoint: PathBuf,
    /// A sequence of your own: token ids, or the tokens that a model of your own data has
    #[arg(long, value_name = "ID,...", conflicts_with = "sample")]
    input: Option<String>,
    /// Data whose first sequences are the sample, for a model of your own data
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seq", "seed"])]
    data: Option<PathBuf>,
    /// Which sequence of the sample to show [default: 0]
    #[arg(long, value_name = "I", num_args = 0..=1, default_missing_value = "0")]
    sample: Option<usize>,
    /// Sequences in the sample
    #[arg(long, value_name = "N", default_value_t = 30)]
    sequences: usize,
    /// Length of the sample's sequences [default: that of --input, else of training]
    #[arg(long, value_name = "N")]
    seq: Option<usize>,
    /// Names the sample
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// This layer's maps only
    #[arg(long, value_name = "L")]
    layer: Option<usize>,
    /// This head's maps only
    #[arg(long, value_name = "H")]
    head: Option<usize>,
    /// Whose weights what heads do is averaged over
    #[arg(long, value_enum, default_value_t = Queries::All)]
    queries: Queries,
    /// The last epoch's weights instead of the best validation epoch's
    #[arg(long)]
    last: bool,
    /// Print one JSON object, weights included
    #[arg(long)]
    json: bool,
    /// Write an HTML page that needs nothing else
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Queries that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Queries {
    /// Every token's
    All,
    /// The first token's, which alone is read out by some tasks
    First,
}

/// The most memory all workers together may take.
const MOST_BYTES: u64 = 4 << 30;

/// Runs the command.
///
/// # Errors
/// On input that cannot be used.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (path, trained) = read_checkpoint(&args.checkpoint, args.last)?;
    if !(1..=100_000).contains(&args.sequences) {
        let wrong = args.sequences;
        return Err(bad(format!("--sequences {wrong}: expected between 1 and 100000")));
    }
    let task = Task::new(&trained.config.task);
    let chosen = args.sample.unwrap_or(0);
    let (sample, input) = match &trained.names {
        Some(names) => own_sample(args, &path, &trained, names)?,
        None => generated_sample(args, &path, &trained)?,
    };
    if chosen >= sample.len() && input.is_none() {
        let last = sample.len() - 1;
        return Err(bad(format!("--sample {chosen}: expected between 0 and {last}")));
    }
    let kind = Kind::of(&trained.architecture.block);
    let (shown, origin) = match &input {
        Some(input) => (input, "as given".to_owned()),
        None => (&sample[chosen], format!("number {chosen} of the sample")),
    };
    let tokens = shown.tokens.as_slice();
    let mut seen = inspect::look(&trained, shown);
    choose(args, &mut seen.maps)?;
    if let Some(out) = &args.out {
        page::check_size(&seen.maps).map_err(|error| bad(format!("{}: {error}", out.display())))?;
    }
    let shown = Shown {
        path: &path,
        tokens,
        origin,
        marks: marks(&task, tokens),
        kind,
        roles: roles(args, &trained, &sample),
        sample: format!(
            "{}, {}",
            describe(args, &sample),
            match args.queries {
                Queries::All => "all queries",
                Queries::First => "the first token's query",
            }
        ),
        seen,
        trained: &trained,
    };
    if args.json {
        print_line(json(&shown).to_string())?;
    } else {
        print(text::text(&shown))?;
    }
    if let Some(out) = &args.out {
        write_atomically(out, page::html(&shown).as_bytes())
            .map_err(|error| unwritable(out, &error))?;
        note(format!("wrote {}\n", out.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Fresh sequences, and the one that was given.
fn generated_sample(
    args: &Args,
    path: &Path,
    trained: &Trained,
) -> anyhow::Result<(Vec<Example>, Option<Example>)> {
    if let Some(data) = &args.data {
        return Err(bad(format!(
            "--data {}: {} is a model of a task that makes its own sequences",
            data.display(),
            path.display()
        )));
    }
    let task = Task::new(&trained.config.task);
    let input = args.input.as_ref().map(|text| tokens(text, trained)).transpose()?;
    let length =
        args.seq.or_else(|| input.as_ref().map(Vec::len)).unwrap_or(trained.config.task.length);
    for length in [Some(length), input.as_ref().map(Vec::len)].into_iter().flatten() {
        check_length(path, trained, length)?;
    }
    let mut batch = Batch::default();
    let mut set = task.equalised(args.seed, Purpose::Analysis, 0, args.sequences, length);
    set.fill(args.sequences, &mut batch);
    let sample = batch.tokens.chunks_exact(length).map(|tokens| Example::of(&task, tokens));
    Ok((sample.collect(), input.map(|tokens| Example::of(&task, &tokens))))
}

/// The first sequences of a file, and the one that was given, which is the sample without a file.
fn own_sample(
    args: &Args,
    path: &Path,
    trained: &Trained,
    names: &Names,
) -> anyhow::Result<(Vec<Example>, Option<Example>)> {
    let task = &trained.config.task;
    let mut encoder = Encoder::of(task.name, names);
    let tokenize = task.data.as_ref().and_then(|data| data.tokenize.as_deref());
    let tokenize = tokenize.map(Tokenize::find).transpose()?;
    let input = match &args.input {
        None => None,
        Some(text) => {
            let tokens = match tokenize {
                Some(tokenize) => tokenize.tokens(text),
                None => words(&text.replace(',', " ")),
            };
            let record = Record { line: 1, untyped: true, tokens, answer: None };
            let tokens = encoder.tokens(&record).map_err(bad)?;
            if tokens.is_empty() {
                return Err(bad("--input: no tokens: expected tokens such as those of the data"));
            }
            check_length(path, trained, tokens.len())?;
            Some(Example { tokens, targets: None })
        }
    };
    let mut sample = Vec::new();
    match (&args.data, &input) {
        (None, None) => {
            return Err(bad(format!(
                "{} is a model of your own data: expected --data FILE or --input TOKENS",
                path.display()
            )));
        }
        (None, Some(input)) => sample.push(input.clone()),
        (Some(file), _) => {
            let mut records = Records::open(file, tokenize)?;
            while let Some(record) = records.read_record()? {
                let wrong = |what| records.wrong(record.line, what);
                let tokens = encoder.tokens(&record).map_err(wrong)?;
                check_length(path, trained, tokens.len())
                    .map_err(|error| records.wrong(record.line, error))?;
                let targets = record.answer.is_some().then(|| encoder.targets(&record));
                sample.push(Example { tokens, targets: targets.transpose().map_err(wrong)? });
                if sample.len() == args.sequences {
                    break;
                }
            }
        }
    }
    if sample.is_empty() {
        let file = args.data.as_deref().unwrap_or(Path::new("--data"));
        return Err(bad(format!("{}: no sequences: the file is empty", file.display())));
    }
    Ok((sample, input))
}

/// Which sequences the sample has, in words.
fn describe(args: &Args, sample: &[Example]) -> String {
    let count = sample.len();
    let lengths = || sample.iter().map(|example| example.tokens.len());
    let [least, most] = [lengths().min(), lengths().max()].map(Option::unwrap_or_default);
    let lengths = if least == most { most.to_string() } else { format!("{least} to {most}") };
    match &args.data {
        Some(file) => format!("{count} sequences of length {lengths} of {}", file.display()),
        None if count == 1 && args.input.is_some() => "the sequence alone".to_owned(),
        None => format!("{count} sequences of length {lengths}, seed {}", args.seed),
    }
}

fn tokens(text: &str, trained: &Trained) -> anyhow::Result<Vec<u32>> {
    let vocab = trained.config.task.vocab;
    let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
    let token = |part: &str| {
        let token = part.parse::<u32>().ok().filter(|&token| (token as usize) < vocab);
        token.ok_or_else(|| {
            bad(format!("--input: token {part}: expected a whole number from 0 to {}", vocab - 1))
        })
    };
    let tokens = parts.map(token).collect::<anyhow::Result<Vec<_>>>()?;
    if tokens.is_empty() {
        return Err(bad("--input: no tokens: expected token ids such as 3,64,17".to_owned()));
    }
    Ok(tokens)
}

fn check_length(path: &Path, trained: &Trained, length: usize) -> anyhow::Result<()> {
    trained.check_length(length).map_err(|error| bad(format!("{}: {error}", path.display())))?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let bytes = reference::trace_bytes::<f32>(&trained.architecture, 1, length);
    if bytes.saturating_mul(workers) > MOST_BYTES {
        return Err(bad(format!(
            "{}: sequence length = {length}: expected a shorter one: its maps need {} GiB",
            path.display(),
            (bytes.saturating_mul(workers) >> 30) + 1
        )));
    }
    Ok(())
}

/// Keeps the maps of the layer and head that were asked for.
fn choose(args: &Args, maps: &mut Vec<Map>) -> anyhow::Result<()> {
    let layers = maps.iter().map(|map| map.layer).max().unwrap_or(0);
    let heads = maps.iter().map(|map| map.head).max().unwrap_or(0);
    for (option, asked, last) in [("--layer", args.layer, layers), ("--head", args.head, heads)] {
        if let Some(asked) = asked.filter(|&asked| asked > last) {
            let expected = match last {
                0 => "expected 0: this model has one".to_owned(),
                _ => format!("expected between 0 and {last}"),
            };
            return Err(bad(format!("{option} {asked}: {expected}")));
        }
    }
    maps.retain(|map| {
        args.layer.is_none_or(|layer| layer == map.layer)
            && args.head.is_none_or(|head| head == map.head)
    });
    Ok(())
}

fn roles(args: &Args, trained: &Trained, sample: &[Example]) -> Vec<Role> {
    let task = Task::new(&trained.config.task);
    let kind = Kind::of(&trained.architecture.block);
    let mut roles = Roles::new(kind, args.queries == Queries::First);
    // A few at a time, because a map per sequence and head is a lot.
    for some in sample.chunks(16) {
        for (example, seen) in
            some.iter().zip(parallel::map(some.len(), |i| inspect::look(trained, &some[i])))
        {
            roles.add(&marks(&task, &example.tokens), &seen.maps);
        }
    }
    roles.roles()
}

fn json(shown: &Shown) -> Value {
    let name = |class: u32| shown.label(class).map_or_else(|| json!(class), |label| json!(label));
    let answer = |answer: &inspect::Answer| {
        json!({
            "given": name(answer.given),
            "right": answer.right.map(name),
            "probability": number(answer.probability),
        })
    };
    let role = |role: &Role| {
        let on = role.on.iter().map(|&(name, weight)| (name.to_owned(), number(weight)));
        json!({
            "layer": role.layer,
            "head": role.head,
            "mean_weight_on": on.collect::<serde_json::Map<_, _>>(),
            "own": number(role.own),
            "mean": number(role.mean),
            "root_mean_square": number(role.size),
            "negative_share": number(role.negative),
            "entropy": number(role.entropy),
        })
    };
    let map = |map: &Map| {
        let row = |i| map.row(i).iter().map(|&w| number(f64::from(w))).collect::<Vec<_>>();
        json!({
            "layer": map.layer,
            "head": map.head,
            "weights": (0..map.rows).map(row).collect::<Vec<_>>(),
        })
    };
    let marks = shown.marks.iter().map(|mark| (mark.name.to_owned(), json!(mark.positions)));
    let config = &shown.trained.config;
    json!({
        "checkpoint": shown.path.display().to_string(),
        "epoch": shown.trained.epoch,
        "model": config.model.name,
        "task": config.task.name,
        "tokens": match &shown.trained.names {
            Some(_) => json!(shown.tokens.iter().map(|&id| shown.token(id)).collect::<Vec<_>>()),
            None => json!(shown.tokens),
        },
        "marks": marks.collect::<serde_json::Map<_, _>>(),
        "answers": shown.seen.answers.iter().map(answer).collect::<Vec<_>>(),
        "shown": shown.kind.label(),
        "sample": shown.sample,
        "heads": shown.roles.iter().map(role).collect::<Vec<_>>(),
        "maps": shown.seen.maps.iter().map(map).collect::<Vec<_>>(),
    })
}
