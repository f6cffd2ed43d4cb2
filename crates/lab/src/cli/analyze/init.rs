//! `nap analyze init`: what models do before they are trained.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nap_engine::config::RunConfig;
use nap_engine::model::family::FAMILIES;
use serde_json::{Value, json};

use super::within;
use crate::analyze::models::{self, Untrained};
use crate::analyze::vectors::{self, Moments, Random};
use crate::chart::{Axis, Chart, Series};
use crate::cli::RunOptions;
use crate::error::{bad, unwritable};
use crate::files::write_atomically;
use crate::output::{note, print, print_line, short};
use crate::parallel;
use crate::record::number;

/// What aggregation does to scale, and how much of a token is other tokens, before training.
///
/// First, random queries, keys and values: norm and deviation of the aggregated vector by
/// sequence length. Then every model at its initial weights: the aggregation branch against the
/// skip branch, layer by layer, and the share of a token's gradient that reaches other tokens.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Here --model and --seq take lists; the preset is `paper` unless one is named.

Examples:
  nap analyze init -o pictures                       everything, as tables and SVG files
  nap analyze init --model nap,bert --seq 16,128     two models at two lengths
  nap analyze init --dim 1024 --set model.init_factor=4 --csv > init.csv
  nap analyze init run.toml --json                   the models of a configuration of your own")]
pub struct Args {
    #[command(flatten)]
    options: RunOptions,
    /// Lengths of the random sequences
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096"
    )]
    lengths: Vec<usize>,
    /// Number of random sequences
    #[arg(long, value_name = "N", default_value_t = 256)]
    draws: usize,
    /// Width of the random vectors
    #[arg(long, value_name = "N", default_value_t = 32)]
    width: usize,
    /// Print a CSV table
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write plots (SVG) into this directory
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Lengths of the models' sequences: attention costs their square.
const MODEL_LENGTHS: [&str; 6] = ["1", "4", "16", "64", "256", "1024"];

/// Everything that was measured.
struct Measured {
    random: Random,
    lengths: Vec<usize>,
    aggregators: Vec<&'static str>,
    /// `[aggregator][length]`
    moments: Vec<Vec<Moments>>,
    models: Vec<String>,
    model_lengths: Vec<usize>,
    /// `[model][length]`
    untrained: Vec<Vec<Untrained>>,
}

/// Runs the command.
///
/// # Errors
/// On input that cannot be used.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let configs = configurations(args)?;
    let base = &configs[0][0];
    for &length in &args.lengths {
        within("--lengths", length, 1, 1 << 20)?;
    }
    within("--width", args.width, 1, 1 << 16)?;
    within("--draws", args.draws, 1, 1 << 20)?;
    if let Some(out) = &args.out {
        fs::create_dir_all(out)
            .map_err(|error| bad(format!("cannot write to {}: {error}", out.display())))?;
    }
    let random = Random { width: args.width, draws: args.draws, seed: base.train.seed };
    let aggregators = vectors::aggregators();
    let moments = vectors::measure(random, &aggregators, &args.lengths);
    let per_model = configs[0].len();
    // The largest first, so that no core is left with it at the end.
    let count = configs.len() * per_model;
    let place = |i: usize| (i % configs.len(), per_model - 1 - i / configs.len());
    let mut results: Vec<_> = parallel::map(count, |i| {
        let (model, length) = place(i);
        (place(i), models::look(&configs[model][length]))
    });
    results.sort_by_key(|(place, _)| *place);
    let mut untrained = vec![Vec::new(); configs.len()];
    for ((model, _), result) in results {
        untrained[model].push(result.map_err(|error| bad(error.to_string()))?);
    }
    let measured = Measured {
        random,
        lengths: args.lengths.clone(),
        aggregators,
        moments,
        models: configs.iter().map(|of_model| of_model[0].model.name.clone()).collect(),
        model_lengths: configs[0].iter().map(|config| config.task.length).collect(),
        untrained,
    };
    if args.json {
        print_line(measured.json(base).to_string())?;
    } else if args.csv {
        print(measured.csv())?;
    } else {
        print(measured.text(base))?;
    }
    if let Some(out) = &args.out {
        measured.plot(out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A configuration per model and length, checked.
fn configurations(args: &Args) -> anyhow::Result<Vec<Vec<RunConfig>>> {
    let (models, lengths) = args.options.lists();
    let models = models.unwrap_or_else(|| FAMILIES.map(|family| family.name.to_owned()).to_vec());
    let lengths = lengths.unwrap_or_else(|| MODEL_LENGTHS.map(str::to_owned).to_vec());
    let configuration = |model: &String, length: &String| {
        let config = args.options.with(model, length, "paper").resolve()?;
        match config.task.name.is_own() {
            false => Ok(config),
            true => {
                Err(bad("analyze init draws sequences itself: expected --task cases, mode or lg"))
            }
        }
    };
    models
        .iter()
        .map(|model| lengths.iter().map(|length| configuration(model, length)).collect())
        .collect()
}

/// The first and the last layer.
fn ends(layers: usize) -> Vec<usize> {
    if layers == 1 { vec![0] } else { vec![0, layers - 1] }
}

impl Measured {
    fn layers(&self) -> usize {
        self.untrained[0][0].ratios.len()
    }

    fn text(&self, base: &RunConfig) -> String {
        let Random { width, draws, seed } = self.random;
        let mut text = format!(
            "Random vectors: {draws} sequences, queries, keys and values of {width} N(0, 1) \
             entries, seed {seed}\n\nnorm of the aggregated vector / sqrt({width})\n"
        );
        let names: Vec<_> = self.aggregators.iter().map(|&name| name.to_owned()).collect();
        text += &table(&names, &self.lengths, |a, n| self.moments[a][n].norm);
        text += "\ndeviation of its entries\n";
        text += &table(&names, &self.lengths, |a, n| self.moments[a][n].deviation);
        let model = &base.model;
        text += &format!(
            "\nModels at their initial weights: d = {}, {} layers, {} heads, task {}, seed {seed}\n",
            model.dim,
            model.layers,
            model.heads,
            base.task.name.as_str()
        );
        for layer in ends(self.layers()) {
            text += &format!("\naggregation branch / skip branch, layer {layer}\n");
            text += &table(&self.models, &self.model_lengths, |model, n| {
                self.untrained[model][n].ratios[layer]
            });
        }
        text += "\nshare of a token's gradient that reaches other tokens\n";
        text + &table(&self.models, &self.model_lengths, |m, n| self.untrained[m][n].others)
    }

    /// Measure, name, layer, length, value.
    fn rows(&self) -> Vec<(&'static str, &str, Option<usize>, usize, f64)> {
        let mut rows = Vec::new();
        for (name, of_name) in self.aggregators.iter().zip(&self.moments) {
            for (&n, m) in self.lengths.iter().zip(of_name) {
                for (measure, value) in
                    [("norm", m.norm), ("mean", m.mean), ("deviation", m.deviation)]
                {
                    rows.push((measure, *name, None, n, value));
                }
            }
        }
        for (name, of_name) in self.models.iter().zip(&self.untrained) {
            for (&n, untrained) in self.model_lengths.iter().zip(of_name) {
                for (layer, &ratio) in untrained.ratios.iter().enumerate() {
                    rows.push(("branch_ratio", name, Some(layer), n, ratio));
                }
                rows.push(("others_share", name, None, n, untrained.others));
            }
        }
        rows
    }

    fn csv(&self) -> String {
        let line = |(measure, name, layer, length, value): (_, &str, Option<usize>, usize, f64)| {
            let layer = layer.map(|layer| layer.to_string()).unwrap_or_default();
            format!("{measure},{name},{layer},{length},{value}\n")
        };
        let head = "measure,name,layer,length,value\n".to_owned();
        self.rows().into_iter().map(line).fold(head, |text, line| text + &line)
    }

    fn json(&self, base: &RunConfig) -> Value {
        let list = |values: Vec<f64>| values.into_iter().map(number).collect::<Vec<_>>();
        let aggregator = |(name, m): (&&str, &Vec<Moments>)| {
            json!({
                "name": name,
                "norm": list(m.iter().map(|m| m.norm).collect()),
                "mean": list(m.iter().map(|m| m.mean).collect()),
                "deviation": list(m.iter().map(|m| m.deviation).collect()),
            })
        };
        let model = |(name, of_name): (&String, &Vec<Untrained>)| {
            let ratios = of_name.iter().map(|u| list(u.ratios.clone())).collect::<Vec<_>>();
            let others = list(of_name.iter().map(|u| u.others).collect());
            json!({ "name": name, "branch_ratio": ratios, "others_share": others })
        };
        json!({
            "seed": self.random.seed,
            "vectors": {
                "width": self.random.width,
                "draws": self.random.draws,
                "lengths": self.lengths,
                "aggregators":
                    self.aggregators.iter().zip(&self.moments).map(aggregator).collect::<Vec<_>>(),
            },
            "models": {
                "task": base.task.name,
                "dim": base.model.dim,
                "layers": base.model.layers,
                "heads": base.model.heads,
                "lengths": self.model_lengths,
                "models": self.models.iter().zip(&self.untrained).map(model).collect::<Vec<_>>(),
            },
        })
    }

    fn plot(&self, out: &Path) -> anyhow::Result<()> {
        let lengths = Axis { label: "sequence length n", log: Some(2.0) };
        let log = |label| Axis { label, log: Some(10.0) };
        let write = |name: String, title: &str, y: Axis, series: Vec<Series>| {
            let path = out.join(name);
            let svg = Chart { title, x: lengths, y, series }.svg();
            write_atomically(&path, svg.as_bytes()).map_err(|error| unwritable(&path, &error))?;
            note(format!("wrote {}\n", path.display()));
            anyhow::Ok(())
        };
        let line = |name: &str, lengths: &[usize], values: Vec<f64>| Series {
            name: name.to_owned(),
            points: lengths.iter().map(|&n| n as f64).zip(values).collect(),
        };
        let vectors = |of: fn(&Moments) -> f64| {
            let all = self.aggregators.iter().zip(&self.moments);
            all.map(|(name, m)| line(name, &self.lengths, m.iter().map(of).collect())).collect()
        };
        let models = |of: &dyn Fn(&Untrained) -> f64| {
            let all = self.models.iter().zip(&self.untrained);
            let series = |(name, u): (&String, &Vec<Untrained>)| {
                line(name, &self.model_lengths, u.iter().map(of).collect())
            };
            all.map(series).collect::<Vec<_>>()
        };
        write(
            "aggregate-norm.svg".to_owned(),
            "Aggregated vector of random q, k, v: norm",
            log("norm / sqrt(d)"),
            vectors(|m| m.norm),
        )?;
        write(
            "aggregate-deviation.svg".to_owned(),
            "Aggregated vector of random q, k, v: deviation",
            log("deviation of entries"),
            vectors(|m| m.deviation),
        )?;
        for layer in ends(self.layers()) {
            write(
                format!("branch-ratio-{layer}.svg"),
                &format!("Untrained models: aggregation against skip, layer {layer}"),
                log("aggregation branch / skip branch"),
                models(&|u| u.ratios[layer]),
            )?;
        }
        write(
            "others-share.svg".to_owned(),
            "Untrained models: a token's gradient that reaches others",
            Axis { label: "share of other tokens", log: None },
            models(&|u| u.others),
        )
    }
}

/// Lengths down, names across.
fn table(names: &[String], lengths: &[usize], value: impl Fn(usize, usize) -> f64) -> String {
    let width = |name: &String| name.len().max(8);
    let mut text = format!("{:>9}", "length");
    names.iter().for_each(|name| text += &format!("  {name:>0$}", width(name)));
    text.push('\n');
    for (row, length) in lengths.iter().enumerate() {
        text += &format!("{length:>9}");
        for (column, name) in names.iter().enumerate() {
            text += &format!("  {:>1$}", short(value(column, row)), width(name));
        }
        text.push('\n');
    }
    text
}
