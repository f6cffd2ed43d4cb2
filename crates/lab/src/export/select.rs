//! A selection of runs, as in `model=nap,dim=8,lr=0.3^5`.

use toml::Table;

use crate::error::bad;
use crate::resolve::flatten;
use crate::resolve::{self, Layers};
use crate::sweep::axis::{AxisValue, full_key};
use crate::sweep::record::RunRecord;

/// Conditions on the configuration, all of which must hold.
#[derive(Debug, Clone)]
pub struct Selection {
    /// As it was written.
    pub text: String,
    conditions: Vec<(String, AxisValue)>,
}

impl Selection {
    /// Reads `key=value,...`; keys are those of `nap config`, or short as in sweep files.
    ///
    /// # Errors
    /// If a key does not exist.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let base = Table::try_from(Layers::from_preset("paper")?.finish()?)?;
        let condition = |part: &str| {
            let (key, value) = part.split_once('=').ok_or("expected key=value,...".to_owned())?;
            let key = match key.trim() {
                "model" | "model.name" => "model.name".to_owned(),
                "task" | "task.name" => "task.name".to_owned(),
                "seed" | "train.seed" => "train.seed".to_owned(),
                key => full_key(key, &base)?,
            };
            let value = AxisValue::new(&key, resolve::value(value.trim()));
            Ok((key, value))
        };
        let conditions = text.split(',').map(condition).collect::<Result<_, String>>();
        let conditions = conditions.map_err(|error| bad(format!("--select {text}: {error}")))?;
        Ok(Self { text: text.to_owned(), conditions })
    }

    /// Whether a run is one of the selection.
    pub fn has(&self, record: &RunRecord) -> bool {
        let config = flatten(&record.config);
        self.conditions.iter().all(|(key, wanted)| match config.get(key) {
            Some(serde_json::Value::String(text)) => *text == wanted.label,
            Some(value) => match (value.as_f64(), wanted.number) {
                // Learning rates are rounded to f32; whole numbers are exact.
                (Some(a), Some(b)) if b.fract() != 0.0 => (a / b - 1.0).abs() < 1e-6,
                (Some(a), Some(b)) => a == b,
                _ => format!("{value}") == wanted.label,
            },
            None => false,
        })
    }
}
