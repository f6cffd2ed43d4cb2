//! `nap config`: the resolved configuration as TOML, every key explained.

use std::process::ExitCode;

use nap_engine::config::RunConfig;
use toml::{Table, Value};

use super::RunOptions;
use crate::output::print;

/// Print a resolved configuration as TOML, every key explained.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap config                              the preset `quickstart`
  nap config --preset paper > paper.toml  a file to start from
  nap config paper.toml --model bert      what a file and options come to")]
pub struct Args {
    #[command(flatten)]
    options: RunOptions,
}

/// What each key means: its unit, what it may be.
const COMMENTS: [(&str, &str); 39] = [
    ("model.name", "nap, nap-l2, non, mte, bert, sum, max, mean or weighted; sets the keys below"),
    (
        "model.aggregator",
        "normalized, normalized-l2, no-norm, softmax, sum, max, mean or weighted (nap models)",
    ),
    ("model.dim", "width d of a token's vector"),
    ("model.layers", "number of layers"),
    ("model.heads", "attention heads; divides dim"),
    ("model.feed_forward", "hidden width; auto: 4 dim for attention, 6 dim + 1 for poolings"),
    (
        "model.norm_placement",
        "before-skip: x + LN(block(x)), with inner norms; after-skip: LN(x + block(x))",
    ),
    ("model.attention_gelu", "GELU between the aggregated heads and the mixing projection"),
    ("model.gain", "learned gain per head: true, false, or auto (as the rule has it)"),
    ("model.bias", "learned bias per head: true, false, or auto (as the rule has it)"),
    (
        "model.epsilon",
        "added to the deviation or norm of a row of logits; auto: 1e-3, or 1e-6 for l2",
    ),
    (
        "model.logit_scale",
        "none: z = q.k; sqrt: z = q.k / sqrt(d / heads); auto: as the rule has it",
    ),
    ("model.centre", "normalized-l2 only: subtract a row's mean before dividing by its norm"),
    ("model.form", "quadratic, linear (exact; normalized and no-norm only), or auto (the cheaper)"),
    ("model.positions", "none, learned, sinusoidal, or auto: learned, but none for mode"),
    (
        "model.masking",
        "clean, or reference (as the authors' program treats masked tokens); only data of one's own \
         have masks",
    ),
    ("model.dropout", "rate in [0, 1): on embeddings, attention weights, each block's output"),
    ("model.init_factor", "initial weights have deviation 0.02 times this, cut at two deviations"),
    (
        "task.name",
        "cases, mode or lg, or with data of one's own classify, point or tag (nap tasks)",
    ),
    ("task.readout", "per-token or first-token; for cases only"),
    ("task.vocab", "number of different tokens; at least 65 for cases and lg"),
    ("task.length", "training length, in tokens"),
    (
        "task.validation_length",
        "auto: half the training length for cases and lg, twice it for mode",
    ),
    (
        "task.data",
        "data of one's own: a file, or train = and valid = or fraction =, tokenize = (docs/data.md)",
    ),
    ("task.case_bias", "cases and lg: b > 0 makes the argmin case more frequent, b < 0 less"),
    ("train.seed", "of initial weights, data and dropout"),
    ("train.batch", "sequences per step"),
    ("train.epochs", "number of epochs"),
    ("train.steps_per_epoch", "optimiser steps per epoch"),
    ("train.learning_rate", "of the first step, then linear to 0; a number or \"0.3^6\""),
    ("train.warmup", "linear warm-up over the first tenth of all steps"),
    ("train.clip", "clip each variable's gradient to norm 1"),
    ("train.precision", "f32; bf16 (dense layers' products of 8 significant bits); bf16x3 (16)"),
    ("train.l2", "this times the sum of squares of the weight matrices is added to the loss"),
    ("train.validation_batches", "fresh batches scored at the end of each epoch"),
    (
        "train.case_sequences",
        "size of the equalised sets on which cases are tracked; a multiple of 6",
    ),
    ("train.patience", "end after this many epochs without a better validation accuracy"),
    (
        "train.class_weights",
        "data of one's own: balanced multiplies the loss by n / (C n_class), C classes occurring",
    ),
    ("preset", "quickstart, paper or own-data: what a file starts from (first line of the file)"),
];

/// Runs the command.
///
/// # Errors
/// If the configuration cannot be used.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    print(explained(&args.options.resolve()?)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The configuration as TOML with a comment per key.
fn explained(config: &RunConfig) -> anyhow::Result<String> {
    let mut text = String::from("# Every key of a run. `nap train FILE` runs this one.\n");
    for (section, keys) in Table::try_from(config)? {
        text.push_str(&format!("\n[{section}]\n"));
        if let Value::Table(keys) = keys {
            for (key, value) in keys {
                let name = format!("{section}.{key}");
                if let Some((_, comment)) = COMMENTS.iter().find(|(known, _)| *known == name) {
                    text.push_str(&format!("# {comment}\n"));
                }
                text.push_str(&format!("{key} = {value}\n"));
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::Layers;

    #[test]
    fn every_key_is_explained_and_the_text_resolves_to_the_same_run() {
        let mut config = RunConfig::paper();
        config.train.l2 = 0.5;
        let text = explained(&config).unwrap();
        for (section, keys) in Table::try_from(&config).unwrap() {
            for key in keys.as_table().unwrap().keys() {
                let name = format!("{section}.{key}");
                assert!(COMMENTS.iter().any(|(known, _)| *known == name), "no comment on {name}");
            }
        }
        let mut layers = Layers::from_preset("quickstart").unwrap();
        layers.add(toml::from_str(&text).unwrap(), "printed").unwrap();
        assert_eq!(layers.finish().unwrap(), config);
    }
}
