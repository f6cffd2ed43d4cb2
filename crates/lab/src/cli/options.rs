//! The options that describe a run, shared by `train`, `bench` and `config`.

use std::path::PathBuf;

use toml::{Table, Value};

use crate::data::records::Tokenize;
use crate::error::bad;
use crate::resolve::{self, Layers};
use nap_engine::config::RunConfig;

/// Which run: a preset, then a file, then options.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RunOptions {
    /// Configuration file (TOML); starts from the preset `paper` unless it names another
    pub config: Option<PathBuf>,
    /// Where to start from: quickstart, paper or own-data [default: own-data with data, else paper with a file and in `bench`, else quickstart]
    #[arg(long)]
    preset: Option<String>,
    /// Task: cases, mode or lg; with --data classify, point or tag
    #[arg(long)]
    task: Option<String>,
    /// Data of your own: a file of JSON lines or CSV to train on (docs/data.md)
    #[arg(long, value_name = "FILE")]
    data: Option<String>,
    /// Data to validate on
    #[arg(long, value_name = "FILE")]
    valid: Option<String>,
    /// Share of the data that is kept to validate on, without --valid [default: 0.1]
    #[arg(long, value_name = "SHARE", conflicts_with = "valid")]
    valid_fraction: Option<f64>,
    /// How texts of the data become tokens
    #[arg(long)]
    tokenize: Option<Tokenize>,
    /// Read-out of `cases`: per-token or first-token
    #[arg(long)]
    readout: Option<String>,
    /// Model: nap, nap-l2, non, mte, bert, sum, max, mean or weighted
    #[arg(long)]
    model: Option<String>,
    /// Width d of a token's vector
    #[arg(long)]
    dim: Option<String>,
    /// Layers
    #[arg(long)]
    layers: Option<String>,
    /// Attention heads; a divisor of the width
    #[arg(long)]
    heads: Option<String>,
    /// Training length of the sequences
    #[arg(long, value_name = "N")]
    seq: Option<String>,
    /// Number of different tokens
    #[arg(long)]
    vocab: Option<String>,
    /// Sequences per step
    #[arg(long)]
    batch: Option<String>,
    /// Epochs
    #[arg(long)]
    epochs: Option<String>,
    /// Steps per epoch
    #[arg(long, value_name = "N")]
    steps_per_epoch: Option<String>,
    /// Learning rate of the first step, as 0.3^6 or 2e-3
    #[arg(long, allow_hyphen_values = true)]
    lr: Option<String>,
    /// Seed of initial weights, data and dropout
    #[arg(long)]
    seed: Option<String>,
    /// Dropout rate
    #[arg(long)]
    dropout: Option<String>,
    /// End after this many epochs without a better validation accuracy
    #[arg(long, value_name = "EPOCHS")]
    patience: Option<String>,
    /// What the loss of each class of the data is multiplied by: balanced
    #[arg(long, value_name = "NAME")]
    class_weights: Option<String>,
    /// L2 penalty
    #[arg(long)]
    l2: Option<String>,
    /// Arithmetic of dense layers' products: f32, bf16 or bf16x3
    #[arg(long)]
    precision: Option<String>,
    /// Case bias of cases and lg
    #[arg(long, allow_hyphen_values = true)]
    case_bias: Option<String>,
    /// Any key of `nap config`, as in --set model.attention_gelu=false; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl RunOptions {
    /// Whether anything at all was asked for.
    pub fn is_empty(&self) -> bool {
        self.config.is_none() && self.preset.is_none() && self.assignments().is_empty()
    }

    /// Resolves the layers to one configuration; without file and preset, on top of `quickstart`.
    ///
    /// # Errors
    /// The first thing that cannot be used.
    pub fn resolve(&self) -> anyhow::Result<RunConfig> {
        self.resolve_from("quickstart")
    }

    /// [`RunOptions::resolve`] on top of this preset.
    ///
    /// # Errors
    /// As [`RunOptions::resolve`].
    pub fn resolve_from(&self, preset: &str) -> anyhow::Result<RunConfig> {
        let preset = if self.data.is_some() { resolve::OWN } else { preset };
        let of_data = [
            ("--valid", self.valid.is_some()),
            ("--valid-fraction", self.valid_fraction.is_some()),
            ("--tokenize", self.tokenize.is_some()),
        ];
        if let (None, Some((option, _))) = (&self.data, of_data.iter().find(|(_, set)| *set)) {
            return Err(bad(format!("{option}: expected --data FILE as well")));
        }
        let mut layers = match &self.config {
            Some(path) => Layers::from_file(path, self.preset.as_deref(), self.data.is_some())?,
            None => Layers::from_preset(self.preset.as_deref().unwrap_or(preset))?,
        };
        // One layer for all options, so that `--dim 64 --model bert` and the other order agree.
        let mut options = Table::new();
        for (key, value, option) in self.assignments() {
            resolve::insert(&mut options, &key, value)
                .map_err(|error| bad(format!("{option}: {error}")))?;
        }
        layers.add(options, "the options")?;
        layers.finish()
    }

    /// Takes a file that is no configuration, by its name, as the data.
    ///
    /// # Errors
    /// If other data are named too.
    pub fn file_as_data(&mut self) -> anyhow::Result<()> {
        let is_data = |path: &mut PathBuf| path.extension().is_none_or(|end| end != "toml");
        let Some(file) = self.config.take_if(is_data) else { return Ok(()) };
        let file = file.display().to_string();
        match self.data.replace(file.clone()) {
            Some(other) => Err(bad(format!("{file} and --data {other}: expected one of both"))),
            None => Ok(()),
        }
    }

    /// Takes out the models and the learning rates, where several make sense.
    pub fn take_models_and_rates(&mut self) -> (Option<String>, Option<String>) {
        (self.model.take(), self.lr.take())
    }

    /// The comma-separated models and training lengths that were asked for, where several make
    /// sense.
    pub fn lists(&self) -> (Option<Vec<String>>, Option<Vec<String>>) {
        let list = |text: &Option<String>| {
            let parts = text.as_ref()?.split(',').map(|part| part.trim().to_owned());
            Some(parts.collect::<Vec<_>>())
        };
        (list(&self.model), list(&self.seq))
    }

    /// The same options for this model and training length, starting from this preset unless
    /// they say otherwise.
    pub fn with(&self, model: &str, length: &str, preset: &str) -> Self {
        let mut options = self.clone();
        options.model = Some(model.to_owned());
        options.seq = Some(length.to_owned());
        options.preset.get_or_insert_with(|| preset.to_owned());
        options
    }

    /// Key, value and the option that says so, in the order in which later ones win.
    fn assignments(&self) -> Vec<(String, Value, String)> {
        let plain = [
            ("task.name", "--task", &self.task),
            ("task.readout", "--readout", &self.readout),
            ("train.patience", "--patience", &self.patience),
            ("train.class_weights", "--class-weights", &self.class_weights),
            ("model.name", "--model", &self.model),
            ("model.dim", "--dim", &self.dim),
            ("model.layers", "--layers", &self.layers),
            ("model.heads", "--heads", &self.heads),
            ("task.length", "--seq", &self.seq),
            ("task.vocab", "--vocab", &self.vocab),
            ("train.batch", "--batch", &self.batch),
            ("train.epochs", "--epochs", &self.epochs),
            ("train.steps_per_epoch", "--steps-per-epoch", &self.steps_per_epoch),
            ("train.learning_rate", "--lr", &self.lr),
            ("train.seed", "--seed", &self.seed),
            ("model.dropout", "--dropout", &self.dropout),
            ("train.l2", "--l2", &self.l2),
            ("train.precision", "--precision", &self.precision),
            ("task.case_bias", "--case-bias", &self.case_bias),
        ];
        let mut all = Vec::new();
        if let Some(path) = &self.data {
            let mut data = Table::new();
            data.insert("train".to_owned(), path.as_str().into());
            let valid = self.valid.as_deref().map(Value::from);
            let fraction = self.valid_fraction.map(Value::from);
            let tokenize = self.tokenize.map(|tokenize| tokenize.name().into());
            let others = [("valid", valid), ("fraction", fraction), ("tokenize", tokenize)];
            for (key, value) in others {
                data.extend(value.map(|value| (key.to_owned(), value)));
            }
            all.push(("task.data".to_owned(), Value::Table(data), format!("--data {path}")));
        }
        for (key, option, value) in plain {
            if let Some(text) = value {
                all.push((key.to_owned(), resolve::value(text), format!("{option} {text}")));
            }
        }
        for text in &self.set {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            let value = resolve::value(value.trim());
            all.push((key.trim().to_owned(), value, format!("--set {text}")));
        }
        all
    }
}
