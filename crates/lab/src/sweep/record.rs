//! What is kept of a run: one line of the journal.

use indexmap::IndexMap;
use nap_engine::config::RunConfig;
use nap_engine::task::Task;
use nap_engine::train::{EpochRecord, NUMERICS_VERSION};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::identity::RunId;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Every epoch is done; a diverged run finishes too.
    Finished,
    /// It could not be computed; `reason` says why.
    Failed,
}

/// A run that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its identity.
    pub id: RunId,
    /// How it ended.
    pub status: Status,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The engine's numerics version.
    pub numerics: u32,
    /// Arithmetic of the matrix products.
    pub precision: String,
    /// The instruction set that the bits belong to.
    pub isa: String,
    /// The program's version.
    pub version: String,
    /// The commit it was built from.
    pub commit: String,
    /// The run.
    pub config: RunConfig,
    /// The epoch at whose end the parameters had become NaN.
    pub diverged_at: Option<usize>,
    /// Every figure of every epoch.
    pub epochs: Epochs,
    /// What depends on the clock and the machine.
    pub wall: Wall,
}

/// What depends on the clock and the machine, and on how often the run was interrupted.
#[derive(Debug, Clone, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Wall {
    /// When it ended, UTC.
    pub finished: String,
    /// Machine.
    pub host: String,
    /// Seconds since it was last begun or resumed.
    pub seconds: f64,
    /// Training steps per second in that time, evaluations not counted; 0 if there were none.
    pub steps_per_s: f64,
}

/// Figures of the epochs by name (as in `nap train --json`), one value per epoch; NaN for a
/// loss that is not finite and for a case that did not occur.
#[derive(Debug, Clone, Default)]
pub struct Epochs(pub IndexMap<String, Vec<f64>>);

impl RunRecord {
    /// The record of a run whose epochs are all done.
    pub fn finished(id: RunId, config: &RunConfig, history: &[EpochRecord], wall: Wall) -> Self {
        let diverged = history.iter().find(|epoch| epoch.diverged);
        Self {
            diverged_at: diverged.map(|epoch| epoch.epoch),
            epochs: Epochs::of(config, history),
            ..Self::new(id, config, Status::Finished, wall)
        }
    }

    /// The record of a run that could not be computed.
    pub fn failed(id: RunId, config: &RunConfig, reason: String, wall: Wall) -> Self {
        Self { reason: Some(reason), ..Self::new(id, config, Status::Failed, wall) }
    }

    fn new(id: RunId, config: &RunConfig, status: Status, wall: Wall) -> Self {
        Self {
            id,
            status,
            reason: None,
            numerics: NUMERICS_VERSION,
            precision: config.train.precision.name().to_owned(),
            isa: nap_engine::train::isa(config).to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("NAP_COMMIT").to_owned(),
            config: config.clone(),
            diverged_at: None,
            epochs: Epochs::default(),
            wall,
        }
    }

    /// Whether it says the same, clock, machine and program build aside.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.status == other.status
            && self.reason == other.reason
            && self.diverged_at == other.diverged_at
            && self.epochs == other.epochs
    }

    /// The largest value of a figure and the first epoch that has it.
    pub fn best(&self, figure: &str) -> Option<(f64, usize)> {
        let values = self.epochs.0.get(figure)?;
        let mut best: Option<(f64, usize)> = None;
        for (epoch, &value) in values.iter().enumerate() {
            if !value.is_nan() && best.is_none_or(|(most, _)| value > most) {
                best = Some((value, epoch + 1));
            }
        }
        best
    }

    /// As a line, its end included.
    pub fn to_line(&self) -> String {
        let json =
            serde_json::to_string(self).unwrap_or_else(|_| unreachable!("plain values serialise"));
        json + "\n"
    }
}

impl Epochs {
    fn of(config: &RunConfig, history: &[EpochRecord]) -> Self {
        let mut columns = IndexMap::new();
        let mut put = |name: String, values: Vec<f64>| columns.insert(name, values);
        put("train_loss".to_owned(), history.iter().map(|e| e.train_loss).collect());
        put("train_accuracy".to_owned(), history.iter().map(|e| e.train_accuracy).collect());
        put("val_loss".to_owned(), history.iter().map(|e| e.validation.loss).collect());
        put("val_accuracy".to_owned(), history.iter().map(|e| e.validation.accuracy).collect());
        let macro_f1 = history.iter().map(|e| e.validation.macro_f1);
        if let Some(values) = macro_f1.collect::<Option<Vec<_>>>().filter(|v| !v.is_empty()) {
            put("val_macro_f1".to_owned(), values);
        }
        for (i, case) in Task::new(&config.task).cases().iter().enumerate() {
            let name = case.name;
            put(format!("train_case_{name}"), history.iter().map(|e| e.train_cases[i]).collect());
            let validation = history.iter().map(|e| e.validation.cases[i]);
            put(format!("val_case_{name}"), validation.collect());
        }
        Self(columns)
    }

    /// Number of epochs.
    pub fn len(&self) -> usize {
        self.0.values().next().map_or(0, Vec::len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PartialEq for Epochs {
    /// Equal to the bit; NaN equals NaN.
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &[f64], b: &[f64]| {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| a == b || (!a.is_finite() && !b.is_finite()))
        };
        self.0.len() == other.0.len()
            && (self.0.iter()).all(|(name, a)| other.0.get(name).is_some_and(|b| same(a, b)))
    }
}

impl Serialize for Epochs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Column<'a>(&'a [f64]);
        impl Serialize for Column<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.iter().map(|x| x.is_finite().then_some(*x)))
            }
        }
        serializer.collect_map(self.0.iter().map(|(name, values)| (name, Column(values))))
    }
}

impl<'de> Deserialize<'de> for Epochs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Figure(f64);
        impl<'de> Deserialize<'de> for Figure {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self(Option::deserialize(deserializer)?.unwrap_or(f64::NAN)))
            }
        }
        let columns = IndexMap::<String, Vec<Figure>>::deserialize(deserializer)?;
        let plain = |values: Vec<Figure>| values.into_iter().map(|x| x.0).collect::<Vec<_>>();
        let columns = columns.into_iter().map(|(name, values)| (name, plain(values)));
        let epochs = Self(columns.collect());
        let lengths = epochs.0.values().map(Vec::len);
        if lengths.clone().max() != lengths.min() {
            return Err(serde::de::Error::custom("its figures have different numbers of epochs"));
        }
        Ok(epochs)
    }
}
