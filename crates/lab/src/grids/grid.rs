//! A grid: what its runs have in common, and its cells.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Sum;

use nap_engine::config::{CasesReadout, Precision, RunConfig, TaskName};
use nap_engine::model::family::{self, FAMILIES};
use serde_json::{Map, Value};

use crate::published;
use crate::resolve::flatten;
use crate::sweep::axis::{LEARNING_RATE, SHORT_NAMES, rate_label};
use crate::sweep::identity::RunId;
use crate::sweep::record::RunRecord;

/// What all runs of a grid have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Task.
    pub task: TaskName,
    /// Read-out, where the task has several.
    pub readout: Option<CasesReadout>,
    /// Model, by name; names that this version does not know are kept.
    pub model: String,
    /// The key that varies beside the learning rate, as in `model.dim`.
    pub axis: String,
    /// Numerics version.
    pub numerics: u32,
    /// Arithmetic of the matrix products.
    pub precision: String,
    /// Every other key whose value is not the paper's default of this task and model.
    pub others: Vec<(String, Value)>,
}

impl Setting {
    /// The setting of a run in a grid over `axis`, and a text that tells settings apart. The keys
    /// `along` vary with the axis.
    pub(super) fn new(
        config: &RunConfig,
        keys: &Map<String, Value>,
        (numerics, precision): (u32, &str),
        axis: &str,
        along: &[String],
    ) -> (Self, String) {
        let task = config.task.name;
        let readout = (task == TaskName::Cases).then_some(config.task.readout);
        let defaults = flatten(&defaults(config));
        let varies = |key: &str| {
            [axis, LEARNING_RATE, "train.seed"].contains(&key)
                || along.iter().any(|other| other == key)
                || (key == STEPS && steps_follow(config, axis))
                || (key == "task.readout" && readout.is_none())
        };
        let fixed: Map<String, Value> = keys
            .iter()
            .filter(|(key, _)| !varies(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let names = ["model.name", "task.name", "task.readout", "train.precision"];
        let other = |(key, value): &(&String, &Value)| {
            !names.contains(&key.as_str()) && defaults.get(key.as_str()) != Some(*value)
        };
        let others = fixed.iter().filter(other).map(|(k, v)| (k.clone(), v.clone())).collect();
        let text = format!("{axis} {numerics} {precision} {}", Value::Object(fixed));
        let model = config.model.name.clone();
        let precision = precision.to_owned();
        (Self { task, readout, model, axis: axis.to_owned(), numerics, precision, others }, text)
    }

    /// The task and its read-out, as in `cases first-token`.
    pub fn task_label(&self) -> String {
        let readout = match self.readout {
            Some(CasesReadout::FirstToken) => " first-token",
            Some(CasesReadout::PerToken) => " per-token",
            None => "",
        };
        format!("{}{readout}", self.task.as_str())
    }

    /// The axis, by its short name if it has one.
    pub fn axis_name(&self) -> &str {
        let known = SHORT_NAMES.iter().find(|(_, key)| *key == self.axis);
        known.map_or(&self.axis, |(short, _)| short)
    }

    /// The other settings, as in `train.epochs=3 model.gain=false`; empty for the paper's.
    pub fn others_label(&self) -> String {
        let others = self.others.iter().map(|(key, value)| match value {
            Value::String(text) => format!("{key}={text}"),
            other => format!("{key}={other}"),
        });
        others.collect::<Vec<_>>().join(" ")
    }

    /// All of it but the model: grids that are drawn side by side agree in it.
    pub fn panel_label(&self) -> String {
        let mut label = format!("{} by {}", self.task_label(), self.axis_name());
        if self.numerics != nap_engine::train::NUMERICS_VERSION {
            label += &format!(", numerics {}", self.numerics);
        }
        if self.precision != Precision::F32.name() {
            label += &format!(", {}", self.precision);
        }
        if !self.others.is_empty() {
            label += &format!(", {}", self.others_label());
        }
        label
    }

    pub(super) fn order(&self) -> impl Ord + use<> {
        let axis = SHORT_NAMES.iter().position(|(_, key)| *key == self.axis);
        let model = FAMILIES.iter().position(|family| family.name == self.model);
        (
            (self.task as usize, self.readout.map(|readout| std::cmp::Reverse(readout as usize))),
            (axis.unwrap_or(usize::MAX), self.axis.clone()),
            (std::cmp::Reverse(self.numerics), self.precision != Precision::F32.name()),
            (self.precision.clone(), self.others_label()),
            (model.unwrap_or(usize::MAX), self.model.clone()),
        )
    }
}

const STEPS: &str = "train.steps_per_epoch";

/// Whether the steps per epoch are those that the paper's sweep over this axis has.
fn steps_follow(config: &RunConfig, axis: &str) -> bool {
    let steps = config.train.steps_per_epoch;
    match axis {
        "task.vocab" => steps == 100 * config.task.vocab / 8,
        "train.batch" => steps * config.train.batch == 3200,
        _ => false,
    }
}

/// The paper's defaults for the task and the model of a run.
fn defaults(config: &RunConfig) -> RunConfig {
    let mut defaults = RunConfig::paper();
    defaults.task.name = config.task.name;
    defaults.task.vocab = config.task.name.default_vocab();
    if let Some(family) = family::find(&config.model.name) {
        family.apply(&mut defaults);
    }
    if config.task.data.is_some() {
        defaults.task.data.clone_from(&config.task.data);
        defaults.train.batch = config.train.batch;
        defaults.follow_data();
    }
    defaults
}

/// A value on an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// As tables and pictures show it.
    pub label: String,
    /// The value, if it is a number.
    pub number: Option<f64>,
}

impl Level {
    pub(super) fn of(keys: &Map<String, Value>, key: &str) -> Self {
        let value = keys.get(key).unwrap_or(&Value::Null);
        let number = value.as_f64();
        let label = match (value, number) {
            (_, Some(rate)) if key == LEARNING_RATE => rate_label(rate),
            (Value::String(text), _) => text.clone(),
            (_, Some(x)) => x.to_string(),
            (other, None) => other.to_string(),
        };
        Self { label, number }
    }
}

impl Eq for Level {}

impl Ord for Level {
    fn cmp(&self, other: &Self) -> Ordering {
        let number = |level: &Self| level.number.unwrap_or(f64::INFINITY);
        number(self).total_cmp(&number(other)).then_with(|| self.label.cmp(&other.label))
    }
}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The runs that differ in their seed alone.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Their configuration, with seed 0.
    pub config: RunConfig,
    /// The configuration's digest, the same for every seed and numerics version.
    pub point: RunId,
    /// Those that finished, diverged ones included: indices into [`Results::runs`], by seed.
    ///
    /// [`Results::runs`]: super::Results::runs
    pub runs: Vec<usize>,
    /// Those that failed, likewise.
    pub failed: Vec<usize>,
    /// Seeds of those that a sweep planned and that have not ended.
    pub missing: Vec<u64>,
}

impl Cell {
    pub(super) fn new(config: &RunConfig, point: RunId) -> Self {
        let mut config = config.clone();
        config.train.seed = 0;
        Self { config, point, runs: Vec::new(), failed: Vec::new(), missing: Vec::new() }
    }
}

/// How runs ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Finished, diverged ones included.
    pub finished: usize,
    /// Of these, those whose parameters became NaN.
    pub diverged: usize,
    /// Failed.
    pub failed: usize,
    /// Planned, and not ended.
    pub missing: usize,
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |a, b| Self {
            finished: a.finished + b.finished,
            diverged: a.diverged + b.diverged,
            failed: a.failed + b.failed,
            missing: a.missing + b.missing,
        })
    }
}

/// A grid of one model.
#[derive(Debug, Clone)]
pub struct Grid {
    /// What its runs have in common.
    pub setting: Setting,
    /// Values of the axis, in increasing order.
    pub xs: Vec<Level>,
    /// Learning rates, the largest first, as the paper draws them from the top.
    pub rates: Vec<Level>,
    /// The cells by their place in `xs` and `rates`; places where nothing ran or was planned
    /// have none.
    pub cells: BTreeMap<(usize, usize), Cell>,
}

impl Grid {
    pub(super) fn new(
        setting: Setting,
        cells: BTreeMap<(Level, Level), Cell>,
        runs: &[RunRecord],
    ) -> Self {
        let distinct = |of: fn(&(Level, Level)) -> &Level| {
            let mut levels: Vec<Level> = cells.keys().map(|place| of(place).clone()).collect();
            levels.sort();
            levels.dedup();
            levels
        };
        let xs = distinct(|(x, _)| x);
        let mut rates = distinct(|(_, rate)| rate);
        rates.reverse();
        // Both come from the levels themselves.
        let at = |levels: &[Level], level| levels.iter().position(|l| *l == level).unwrap_or(0);
        let place = |((x, rate), mut cell): ((Level, Level), Cell)| {
            cell.runs.sort_by_key(|&run| runs[run].config.train.seed);
            cell.failed.sort_by_key(|&run| runs[run].config.train.seed);
            cell.missing.sort_unstable();
            ((at(&xs, x), at(&rates, rate)), cell)
        };
        let cells = cells.into_iter().map(place).collect();
        Self { setting, xs, rates, cells }
    }

    /// The published cell of the same configuration as a cell of this grid; of several the one
    /// of a sweep over the same axis.
    pub fn published(&self, cell: &Cell) -> Option<&'static published::Cell> {
        let cells = published::cells_of(&cell.config);
        let same = cells.iter().find(|cell| cell.sweep == self.setting.axis_name());
        same.or(cells.first()).copied()
    }

    /// The published grid of the same task, axis and model, if the settings are the paper's.
    pub fn published_grid(&self) -> Option<&'static published::Grid> {
        let cell = self.cells.values().find_map(|cell| self.published(cell))?;
        published::grids().iter().find(|grid| grid.has(cell))
    }
}
