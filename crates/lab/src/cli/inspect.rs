//! `nap inspect`: what a trained model looks at.

mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nap_engine::random::Purpose;
use nap_engine::reference;
use nap_engine::task::{Batch, Task};
use nap_engine::train::Trained;
use serde_json::{Value, json};

use crate::error::bad;
use crate::files::write_atomically;
use crate::inspect::page;
use crate::inspect::roles::{Role, Roles, marks};
use crate::inspect::{self, Kind, Map, Shown};
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
  nap inspect runs/first/last.safetensors --queries first --json")]
pub struct Args {
    /// Run directory, or a checkpoint file
    checkpoint: PathBuf,
    /// Token ids of a sequence of your own
    #[arg(long, value_name = "ID,...", conflicts_with = "sample")]
    input: Option<String>,
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
    let input = args.input.as_ref().map(|text| tokens(text, &trained)).transpose()?;
    let length =
        args.seq.or_else(|| input.as_ref().map(Vec::len)).unwrap_or(trained.config.task.length);
    for length in [Some(length), input.as_ref().map(Vec::len)].into_iter().flatten() {
        check_length(&path, &trained, length)?;
    }
    if !(1..=100_000).contains(&args.sequences) {
        let wrong = args.sequences;
        return Err(bad(format!("--sequences {wrong}: expected between 1 and 100000")));
    }
    let chosen = args.sample.unwrap_or(0);
    if chosen >= args.sequences {
        let last = args.sequences - 1;
        return Err(bad(format!("--sample {chosen}: expected between 0 and {last}")));
    }
    let kind = Kind::of(&trained.architecture.block);
    let sample = sample(&trained, length, args);
    let task = Task::new(&trained.config.task);
    let (tokens, origin) = match &input {
        Some(tokens) => (tokens.as_slice(), "as given".to_owned()),
        None => (&sample[chosen * length..][..length], format!("number {chosen} of the sample")),
    };
    let mut seen = inspect::look(&trained, tokens);
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
        roles: roles(args, &trained, &sample, length),
        sample: format!(
            "{} sequences of length {length}, seed {}, {}",
            args.sequences,
            args.seed,
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
            .map_err(|error| bad(format!("cannot write {}: {error}", out.display())))?;
        note(format!("wrote {}\n", out.display()));
    }
    Ok(ExitCode::SUCCESS)
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

/// The tokens of the sample, `[sequences, length]`.
fn sample(trained: &Trained, length: usize, args: &Args) -> Vec<u32> {
    let task = Task::new(&trained.config.task);
    let mut batch = Batch::default();
    let mut set = task.equalised(args.seed, Purpose::Analysis, 0, args.sequences, length);
    set.fill(args.sequences, &mut batch);
    batch.tokens
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

fn roles(args: &Args, trained: &Trained, sample: &[u32], length: usize) -> Vec<Role> {
    let task = Task::new(&trained.config.task);
    let kind = Kind::of(&trained.architecture.block);
    let mut roles = Roles::new(kind, args.queries == Queries::First);
    // A few at a time, because a map per sequence and head is a lot.
    let sequences: Vec<_> = sample.chunks_exact(length).collect();
    for some in sequences.chunks(16) {
        for (tokens, seen) in
            some.iter().zip(parallel::map(some.len(), |i| inspect::look(trained, some[i])))
        {
            roles.add(&marks(&task, tokens), &seen.maps);
        }
    }
    roles.roles()
}

fn json(shown: &Shown) -> Value {
    let answer = |answer: &inspect::Answer| {
        json!({
            "given": answer.given,
            "right": answer.right,
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
        "tokens": shown.tokens,
        "marks": marks.collect::<serde_json::Map<_, _>>(),
        "answers": shown.seen.answers.iter().map(answer).collect::<Vec<_>>(),
        "shown": shown.kind.label(),
        "sample": shown.sample,
        "heads": shown.roles.iter().map(role).collect::<Vec<_>>(),
        "maps": shown.seen.maps.iter().map(map).collect::<Vec<_>>(),
    })
}
