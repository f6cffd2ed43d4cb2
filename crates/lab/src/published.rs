//! The published results of single grid cells.
//!
//! `data/cells.csv` holds measurements by the paper's authors (O. Richter, R. Wattenhofer,
//! arXiv 2005.09561): per cell of their sweeps the minimum, mean and maximum over five seeds of
//! training and validation accuracy, each at the best epoch of that aggregate.

use nap_engine::config::{CasesReadout, RunConfig, TaskName};
use nap_engine::model::family;
use serde::Deserialize;

const CELLS: &str = include_str!("../data/cells.csv");

/// A published grid cell.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Cell {
    task: String,
    readout: String,
    /// What the grid varies beside the learning rate.
    pub sweep: String,
    model: String,
    x: usize,
    learning_rate: f64,
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
}

/// The published cell of the same grid point as this run, if there is one: the run is the
/// paper's default but for the learning rate, the seed and one sweep's axis.
pub fn cell(config: &RunConfig) -> Option<Cell> {
    cells().find(|cell| {
        grid_point(cell).is_some_and(|mut point| {
            point.train.seed = config.train.seed;
            point == *config
        })
    })
}

fn cells() -> impl Iterator<Item = Cell> {
    csv::Reader::from_reader(CELLS.as_bytes()).into_deserialize().filter_map(Result::ok)
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
    if config.task.name == TaskName::Mode {
        config.task.vocab = 10;
    }
    family::find(&cell.model.to_lowercase())?.apply(&mut config);
    match cell.sweep.as_str() {
        "dim" => config.model.dim = cell.x,
        "layers" => config.model.layers = cell.x,
        "vocab" => {
            config.task.vocab = cell.x;
            config.train.steps_per_epoch = 100 * cell.x / 8;
        }
        _ => return None,
    }
    // The csv rounds; runs hold the rate's f32 value as its shortest decimal.
    let exponents = (1..=10).map(|k| (0.3f64.powi(k) as f32).to_string().parse());
    let near = |rate: &f64| (rate / cell.learning_rate - 1.0).abs() < 1e-3;
    config.train.learning_rate = exponents.filter_map(Result::ok).find(near)?;
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_read_and_those_of_known_tasks_are_grid_points() {
        assert_eq!(cells().count(), CELLS.lines().count() - 1);
        let known = cells().filter(|cell| grid_point(cell).is_some()).count();
        let expected = cells().filter(|c| ["cases", "mode"].contains(&c.task.as_str())).count();
        assert_eq!(known, expected);
        for config in cells().filter_map(|cell| grid_point(&cell)) {
            config.validate().unwrap();
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
