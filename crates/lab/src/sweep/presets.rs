//! The paper's sweeps (Richter & Wattenhofer 2020, and the program its authors published):
//! the learning rates 0.3^1 ... 0.3^10 against one other parameter, five seeds, six models.

use std::sync::OnceLock;

use super::spec::SweepSpec;

/// The models of the paper's figures.
pub const MODELS: [&str; 6] = ["nap", "non", "mte", "bert", "sum", "max"];

/// Learning rates of every sweep.
const LEARNING_RATES: &str = "lr = { base = 0.3, min = 1, range = 10 }";

/// The tasks: prefix of the sweeps' names, what it is, its settings.
const TASKS: [(&str, &str, &str); 4] = [
    ("mode", "the most frequent token", "name = 'mode'"),
    ("cases", "case distinction, read from each token", "name = 'cases'"),
    (
        "cases-first",
        "case distinction, read from the first token",
        "name = 'cases'\nreadout = 'first-token'",
    ),
    ("lg", "local against global", "name = 'lg'"),
];

/// What a sweep varies: name, what it is, the axis in a sweep file.
const AXES: [(&str, &str, &str); 10] = [
    ("dim", "width 8 ... 1024", "dim = { base = 2, min = 3, range = 8 }"),
    ("layers", "layers 1 ... 64", "layers = { base = 2, min = 0, range = 7 }"),
    ("heads", "heads 1 ... 128; attention models", "heads = { base = 2, min = 0, range = 8 }"),
    ("seq", "training length 4 ... 512", "seq = { base = 2, min = 2, range = 8 }"),
    (
        "batch",
        "batch 1 ... 128, 3200 sequences per epoch",
        "batch = { base = 2, min = 0, range = 8, with = { 'train.steps_per_epoch' = \
         [3200, 1600, 800, 400, 200, 100, 50, 25] } }",
    ),
    (
        "vocab",
        "vocabulary 2 ... 256, 100 vocab / 8 steps per epoch",
        "vocab = { base = 2, min = 1, range = 8, with = { 'train.steps_per_epoch' = \
         [25, 50, 100, 200, 400, 800, 1600, 3200] } }",
    ),
    (
        "init",
        "initial deviation 0.02 times 4^-3 ... 4^4",
        "init = { base = 4, min = -3, range = 8 }",
    ),
    ("bias", "case bias -3 ... 4", "bias = { min = -3, range = 8 }"),
    (
        "dropout",
        "dropout 0 ... 0.5 (the paper names no values; these are ours)",
        "dropout = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]",
    ),
    (
        "l2",
        "L2 penalty 1e-7 ... 1e-2 (the paper names no values; these are ours)",
        "l2 = { base = 10, min = -7, range = 6 }",
    ),
];

/// A sweep of the paper.
#[derive(Debug, Clone)]
pub struct Preset {
    /// What it varies, on which task.
    pub summary: String,
    /// The sweep.
    pub spec: SweepSpec,
}

/// Every sweep of the paper, by task and axis.
pub fn presets() -> &'static [Preset] {
    static PRESETS: OnceLock<Vec<Preset>> = OnceLock::new();
    PRESETS.get_or_init(|| {
        let all = TASKS.iter().flat_map(|task| AXES.iter().map(move |axis| (task, axis)));
        all.filter(|(task, axis)| match axis.0 {
            "vocab" => task.0 == "mode",
            "bias" => task.0 != "mode",
            _ => true,
        })
        .map(|((task, meaning, settings), (axis, values, line))| {
            let attention = |model: &&str| !["sum", "max"].contains(model);
            let models: Vec<_> =
                MODELS.into_iter().filter(|m| *axis != "heads" || attention(m)).collect();
            let text = format!(
                "models = {models:?}\nseeds = 5\n[task]\n{settings}\n[axes]\n{line}\n{LEARNING_RATES}"
            );
            let spec = SweepSpec::parse(&text, &format!("{task}-{axis}"), "preset")
                .unwrap_or_else(|error| unreachable!("preset {task}-{axis}: {error}"));
            Preset { summary: format!("{meaning}: {values}"), spec }
        })
        .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::grid::Grid;

    #[test]
    fn every_preset_is_a_grid() {
        for preset in presets() {
            let mut spec = preset.spec.clone();
            spec.seeds.truncate(1);
            let grid = Grid::new(&spec).unwrap();
            let models = spec.models.len();
            let cells: usize = spec.axes.iter().map(|axis| axis.values.len()).product();
            assert_eq!((grid.runs.len(), grid.notes.len()), (models * cells, 0), "{}", spec.name);
        }
        assert_eq!(presets().len(), 4 * 8 + 1 + 3);
    }

    #[test]
    fn vocabulary_and_batch_take_their_steps_along() {
        let grid = |name: &str| {
            let preset = presets().iter().find(|preset| preset.spec.name == name).unwrap();
            Grid::new(&preset.spec).unwrap()
        };
        for run in grid("mode-vocab").runs {
            assert_eq!(run.config.train.steps_per_epoch, 100 * run.config.task.vocab / 8);
        }
        for run in grid("cases-first-batch").runs {
            assert_eq!(run.config.train.steps_per_epoch * run.config.train.batch, 3200);
        }
    }
}
