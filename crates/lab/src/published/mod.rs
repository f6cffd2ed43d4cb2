//! The paper's published results: its grids, cell by cell and epoch by epoch.
//!
//! `data/cells.csv` and `data/curves.csv.gz` hold measurements by the paper's authors (O. Richter,
//! R. Wattenhofer, arXiv 2005.09561): per cell of their sweeps the minimum, mean and maximum over
//! five seeds of training and validation accuracy, in the one at the best epoch of that
//! aggregate, in the other at every epoch.

mod curves;

use std::collections::HashMap;
use std::sync::OnceLock;

use nap_engine::config::{CasesReadout, Precision, RunConfig, TaskName};
use nap_engine::model::family;
use serde::Deserialize;

use crate::statistics::aggregate::Aggregate;
use crate::sweep::identity::RunId;
pub use curves::{Band, Curves};

const CELLS: &str = include_str!("../../data/cells.csv");

/// A published grid cell.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Cell {
    /// Task, as the authors name it.
    pub task: String,
    /// Read-out, likewise.
    pub readout: String,
    /// What the grid varies beside the learning rate.
    pub sweep: String,
    /// Model, as the authors write it: NAP, BERT, max.
    pub model: String,
    /// The varied parameter's value.
    pub x: usize,
    /// The learning rate is 0.3 to this power.
    pub lr_exponent: i32,
    /// The learning rate, rounded.
    pub learning_rate: f64,
    /// Number of seeds.
    pub runs: u32,
    /// Training accuracy: the best epoch of the minimum over seeds.
    pub train_min: f64,
    /// The best epoch of the mean.
    pub train_mean: f64,
    /// The best epoch of the maximum.
    pub train_max: f64,
    /// Validation accuracy, likewise.
    pub val_min: f64,
    /// The best epoch of the mean.
    pub val_mean: f64,
    /// The best epoch of the maximum.
    pub val_max: f64,
    train_case_argmin: Option<f64>,
    train_case_first: Option<f64>,
    train_case_argmax: Option<f64>,
    val_case_argmin: Option<f64>,
    val_case_first: Option<f64>,
    val_case_argmax: Option<f64>,
}

impl Cell {
    /// Minimum, mean and maximum over the seeds of `train_accuracy` or `val_accuracy`.
    pub fn aggregate(&self, figure: &str) -> Option<Aggregate> {
        let (min, mean, max) = match figure {
            "train_accuracy" => (self.train_min, self.train_mean, self.train_max),
            "val_accuracy" => (self.val_min, self.val_mean, self.val_max),
            _ => return None,
        };
        Some(Aggregate { min, mean, max, runs: self.runs as usize })
    }

    /// The mean over the seeds of an accuracy, `train_case_argmin` and its like included.
    pub fn mean(&self, figure: &str) -> Option<f64> {
        match figure {
            "train_case_argmin" => self.train_case_argmin,
            "train_case_first" => self.train_case_first,
            "train_case_argmax" => self.train_case_argmax,
            "val_case_argmin" => self.val_case_argmin,
            "val_case_first" => self.val_case_first,
            "val_case_argmax" => self.val_case_argmax,
            _ => self.aggregate(figure).map(|aggregate| aggregate.mean),
        }
    }

    /// The cell epoch by epoch.
    pub fn curves(&self) -> Option<&'static Curves> {
        curves::of(self)
    }

    /// The model, as `--model` takes it.
    pub fn model_name(&self) -> String {
        self.model.to_lowercase()
    }

    /// The run that the cell is about, with seed 0; none for tasks that are not part of the
    /// program.
    pub fn config(&self) -> Option<RunConfig> {
        grid_point(self)
    }
}

/// A published grid: the cells of one task, sweep and model.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Task, as the authors name it.
    pub task: String,
    /// Read-out, likewise.
    pub readout: String,
    /// What it varies beside the learning rate.
    pub sweep: String,
    /// Model, as the authors write it.
    pub model: String,
    /// By `x`, then by learning rate, the largest first.
    pub cells: Vec<&'static Cell>,
}

impl Grid {
    /// Whether a cell is one of this grid's.
    pub fn has(&self, cell: &Cell) -> bool {
        (&self.task, &self.readout, &self.sweep, &self.model)
            == (&cell.task, &cell.readout, &cell.sweep, &cell.model)
    }
}

/// Every published cell.
pub fn cells() -> &'static [Cell] {
    static CELLS_READ: OnceLock<Vec<Cell>> = OnceLock::new();
    CELLS_READ.get_or_init(|| {
        csv::Reader::from_reader(CELLS.as_bytes())
            .into_deserialize()
            .collect::<Result<_, _>>()
            .unwrap_or_else(|error| unreachable!("the program's own data: {error}"))
    })
}

/// Every published grid.
pub fn grids() -> &'static [Grid] {
    static GRIDS: OnceLock<Vec<Grid>> = OnceLock::new();
    GRIDS.get_or_init(|| {
        let mut grids: Vec<Grid> = Vec::new();
        for cell in cells() {
            match grids.iter_mut().find(|grid| grid.has(cell)) {
                Some(grid) => grid.cells.push(cell),
                None => grids.push(Grid {
                    task: cell.task.clone(),
                    readout: cell.readout.clone(),
                    sweep: cell.sweep.clone(),
                    model: cell.model.clone(),
                    cells: vec![cell],
                }),
            }
        }
        grids.iter_mut().for_each(|grid| grid.cells.sort_by_key(|c| (c.x, c.lr_exponent)));
        grids
    })
}

/// The published cells of the same grid point as this run, one per sweep that it is part of:
/// the run is the paper's default but for the learning rate, the seed and one sweep's axis.
pub fn cells_of(config: &RunConfig) -> &'static [&'static Cell] {
    static INDEX: OnceLock<HashMap<RunId, Vec<&'static Cell>>> = OnceLock::new();
    let index = INDEX.get_or_init(|| {
        let mut index: HashMap<_, Vec<_>> = HashMap::new();
        for cell in cells() {
            if let Some(config) = grid_point(cell) {
                index.entry(point(&config)).or_default().push(cell);
            }
        }
        index
    });
    index.get(&point(config)).map_or(&[], Vec::as_slice)
}

/// The first of [`cells_of`].
pub fn cell(config: &RunConfig) -> Option<&'static Cell> {
    cells_of(config).first().copied()
}

/// What the runs of one cell have in common, whatever their seed, precision and numerics version.
pub fn point(config: &RunConfig) -> RunId {
    let mut config = config.clone();
    (config.train.seed, config.train.precision) = (0, Precision::F32);
    RunId::of_version(&config, 0)
}

/// The run that a cell is about; none for tasks and sweeps that are not part of the program.
fn grid_point(cell: &Cell) -> Option<RunConfig> {
    let mut config = RunConfig::paper();
    (config.task.name, config.task.readout) = match (cell.task.as_str(), cell.readout.as_str()) {
        ("cases", "first-token") => (TaskName::Cases, CasesReadout::FirstToken),
        ("cases", "per-token") => (TaskName::Cases, CasesReadout::PerToken),
        ("mode", "first-token") => (TaskName::Mode, config.task.readout),
        _ => return None,
    };
    config.task.vocab = config.task.name.default_vocab();
    family::find(&cell.model_name())?.apply(&mut config);
    match cell.sweep.as_str() {
        "dim" => config.model.dim = cell.x,
        "layers" => config.model.layers = cell.x,
        "vocab" => {
            config.task.vocab = cell.x;
            config.train.steps_per_epoch = 100 * cell.x / 8;
        }
        _ => return None,
    }
    let rate = toml::Value::String(format!("0.3^{}", cell.lr_exponent));
    config.train.learning_rate = crate::resolve::learning_rate(&rate).ok()?;
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_read_and_those_of_known_tasks_are_grid_points() {
        assert_eq!(cells().len(), CELLS.lines().count() - 1);
        let known = cells().iter().filter(|cell| grid_point(cell).is_some()).count();
        let expected =
            cells().iter().filter(|c| ["cases", "mode"].contains(&c.task.as_str())).count();
        assert_eq!(known, expected);
        for cell in cells() {
            let Some(config) = grid_point(cell) else { continue };
            config.validate().unwrap();
            // The csv rounds the rate.
            assert!((config.train.learning_rate / cell.learning_rate - 1.0).abs() < 1e-3);
            assert!(cells_of(&config).contains(&cell));
        }
    }

    #[test]
    fn a_run_finds_its_cell() {
        let cell = cell(&RunConfig::quickstart()).unwrap();
        assert_eq!((cell.sweep.as_str(), cell.x, cell.model.as_str()), ("dim", 32, "NAP"));
        assert_eq!((cell.val_min, cell.val_mean, cell.val_max), (0.9336, 0.9389, 0.9580));
    }

    #[test]
    fn models_have_their_own_cells() {
        let published = |model| {
            let mut config = RunConfig::quickstart();
            family::find(model).unwrap().apply(&mut config);
            cell(&config).map(|cell| (cell.val_mean * 1e3).round() / 1e3)
        };
        let means = [0.939, 0.671, 0.451, 0.290, 0.947, 0.124];
        for (model, mean) in ["nap", "mte", "bert", "non", "sum", "max"].into_iter().zip(means) {
            assert_eq!(published(model), Some(mean), "{model}");
        }
        for model in ["nap-l2", "mean", "weighted"] {
            assert_eq!(published(model), None, "{model}");
        }
    }

    #[test]
    fn sweeps_over_layers_and_vocabularies() {
        let mut config = RunConfig::paper();
        config.task.readout = CasesReadout::FirstToken;
        assert_eq!(cell(&config).unwrap().sweep, "dim");
        config.model.layers = 4;
        assert_eq!(cell(&config), None, "layers are published for BERT only");
        family::find("bert").unwrap().apply(&mut config);
        assert_eq!(cell(&config).unwrap().sweep, "layers");
        let mut config = RunConfig::quickstart();
        config.model.dim = 128;
        for (vocab, steps) in [(2, 25), (256, 3200)] {
            (config.task.vocab, config.train.steps_per_epoch) = (vocab, 100);
            assert_eq!(cell(&config), None);
            config.train.steps_per_epoch = steps;
            assert_eq!(cell(&config).unwrap().sweep, "vocab");
        }
    }

    #[test]
    fn the_seed_is_free_and_nothing_else_is() {
        let mut config = RunConfig::quickstart();
        config.train.seed = 7;
        assert!(cell(&config).is_some());
        config.train.batch = 16;
        assert_eq!(cell(&config), None);
        // Per-token cases has no published grid.
        assert_eq!(cell(&RunConfig::paper()), None);
    }
}
