//! From a sweep to the list of its runs.

use std::collections::HashMap;

use nap_engine::config::{ConfigError, RunConfig};
use nap_engine::train::Cost;
use toml::Value;

use super::axis::{AxisValue, LEARNING_RATE};
use super::identity::RunId;
use super::spec::SweepSpec;
use crate::error::bad;
use crate::resolve::{self, Layers};

/// The most runs of a grid.
const MOST_RUNS: usize = 1_000_000;

/// A run of a grid.
#[derive(Debug, Clone)]
pub struct PlannedRun {
    /// Its identity.
    pub id: RunId,
    /// All of it.
    pub config: RunConfig,
    /// Index of its model in the sweep's list.
    pub model: usize,
    /// Index of its value on each axis.
    pub place: Vec<usize>,
    /// What it will take.
    pub cost: Cost,
}

impl PlannedRun {
    /// Seconds on a nominal core: what runs are ordered and shared out by, the same everywhere.
    pub fn nominal_seconds(&self) -> f64 {
        let (training, evaluation) = nominal_seconds(&self.config, &self.cost);
        training + evaluation
    }

    /// What tells it from its neighbours, as in `nap dim 8 lr 0.3^5 seed 0`.
    pub fn label(&self, spec: &SweepSpec) -> String {
        let mut text = spec.models[self.model].clone();
        for (axis, &at) in spec.axes.iter().zip(&self.place) {
            text += &format!(" {} {}", axis.name(), axis.values[at].label);
        }
        text + &format!(" seed {}", self.config.train.seed)
    }
}

/// Seconds of training and of evaluation on a nominal core: 67 GFLOP/s in matrix products;
/// pointwise work per token and layer that grows with the width, and a constant; a third of that
/// without the backward pass.
pub fn nominal_seconds(config: &RunConfig, cost: &Cost) -> (f64, f64) {
    let per_token = 5.5e-7 + 4.5e-8 * config.model.dim as f64;
    (
        cost.training_flops / 67e9 + cost.training_tokens * per_token,
        cost.evaluation_flops / 67e9 + cost.evaluation_tokens * per_token / 3.0,
    )
}

/// A sweep and its runs.
#[derive(Debug, Clone)]
pub struct Grid {
    /// The sweep.
    pub spec: SweepSpec,
    /// Its runs: by model, then by the axes in their order, then by seed.
    pub runs: Vec<PlannedRun>,
    /// What a user should know.
    pub notes: Vec<String>,
}

/// A point that cannot be used.
struct Invalid {
    model: usize,
    place: Vec<usize>,
    error: ConfigError,
}

impl Grid {
    /// Expands a sweep.
    ///
    /// # Errors
    /// If a value cannot be used. A combination of valid values that cannot be used is left out
    /// with a note: heads that do not divide the width, a switch that one model does not have.
    pub fn new(spec: &SweepSpec) -> anyhow::Result<Self> {
        let counts: Vec<_> = spec.axes.iter().map(|axis| axis.values.len()).collect();
        let points = counts.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let total = points
            .and_then(|points| points.checked_mul(spec.models.len()))
            .and_then(|cells| cells.checked_mul(spec.seeds.len()))
            .filter(|&total| total <= MOST_RUNS)
            .ok_or_else(|| bad(format!("{}: more than {MOST_RUNS} runs", spec.name)))?;
        let mut runs: Vec<PlannedRun> = Vec::with_capacity(total);
        let mut invalid: Vec<Invalid> = Vec::new();
        let mut valid: Vec<Vec<bool>> = counts.iter().map(|&n| vec![false; n]).collect();
        for model in 0..spec.models.len() {
            let mut points = Points { spec, model, resolved: HashMap::new() };
            for place in Places::new(&counts) {
                match points.resolve(&place)? {
                    Err(error) => invalid.push(Invalid { model, place, error }),
                    Ok((config, cost)) => {
                        valid.iter_mut().zip(&place).for_each(|(valid, &at)| valid[at] = true);
                        for &seed in &spec.seeds {
                            let mut config = config.clone();
                            config.train.seed = seed;
                            let id = RunId::of(&config);
                            runs.push(PlannedRun { id, config, model, place: place.clone(), cost });
                        }
                    }
                }
            }
        }
        let notes = explain(spec, &invalid, &valid)?;
        if runs.is_empty() {
            let why = notes.first().map_or(String::new(), |note| format!(": {note}"));
            return Err(bad(format!("sweep {}: the grid is empty{why}", spec.name)));
        }
        let mut known = HashMap::new();
        for run in &runs {
            if let Some(other) = known.insert(run.id, run) {
                let (a, b) = (other.label(spec), run.label(spec));
                return Err(bad(format!("sweep {}: {a} is the same run as {b}", spec.name)));
            }
        }
        Ok(Self { spec: spec.clone(), runs, notes })
    }
}

/// The points of one model.
struct Points<'a> {
    spec: &'a SweepSpec,
    model: usize,
    /// By place, that of the learning rate aside: it changes nothing else.
    resolved: HashMap<Vec<usize>, Result<(RunConfig, Cost), ConfigError>>,
}

impl Points<'_> {
    /// The configuration at a point, seed aside, and its cost.
    fn resolve(
        &mut self,
        place: &[usize],
    ) -> anyhow::Result<Result<(RunConfig, Cost), ConfigError>> {
        let mut key = place.to_vec();
        let mut rate = None;
        for ((axis, &at), key) in self.spec.axes.iter().zip(place).zip(&mut key) {
            let AxisValue { value, with, .. } = &axis.values[at];
            if axis.key == LEARNING_RATE && with.is_empty() {
                let place = format!("sweep {}, axis {}", self.spec.name, axis.name());
                let parsed = resolve::learning_rate(value);
                rate = Some(parsed.map_err(|error| bad(format!("{place}: {error}")))?);
                *key = 0;
            }
        }
        let mut resolved = match self.resolved.get(&key) {
            Some(resolved) => resolved.clone(),
            None => {
                let config = configuration(self.spec, self.model, place)?;
                let resolved = Cost::of(&config).map(|cost| (config, cost));
                self.resolved.entry(key).or_insert(resolved).clone()
            }
        };
        if let (Ok((config, _)), Some(rate)) = (&mut resolved, rate) {
            config.train.learning_rate = rate;
        }
        Ok(resolved)
    }
}

/// The configuration at a point, seed aside, not validated.
fn configuration(spec: &SweepSpec, model: usize, place: &[usize]) -> anyhow::Result<RunConfig> {
    let mut layers = Layers::from_preset(&spec.preset)?;
    // One layer, so that naming a task or a model does not undo the other keys.
    let mut layer = spec.fixed.clone();
    let mut set =
        |key: &str, value: &Value| resolve::insert(&mut layer, key, value.clone()).map_err(bad);
    set("model.name", &Value::String(spec.models[model].clone()))?;
    for (axis, &at) in spec.axes.iter().zip(place) {
        let AxisValue { value, with, .. } = &axis.values[at];
        set(&axis.key, value)?;
        with.iter().try_for_each(|(key, value)| set(key, value))?;
    }
    layers.add(layer, &format!("sweep {}", spec.name))?;
    Ok(layers.config().clone())
}

/// Notes on the points that are left out; an error where a value itself is wrong.
fn explain(
    spec: &SweepSpec,
    invalid: &[Invalid],
    valid: &[Vec<bool>],
) -> anyhow::Result<Vec<String>> {
    let mut notes: Vec<(String, usize)> = Vec::new();
    for Invalid { model, place, error } in invalid {
        let axis = spec.axes.iter().position(|axis| axis.key == error.key);
        let usable = axis.is_some_and(|axis| valid[axis][place[axis]]);
        // Which heads divide which width is a matter of the whole grid.
        let heads =
            axis.is_some() && error.key == "model.heads" && error.expected.contains("divisor");
        if !(usable || heads) {
            return Err(bad(format!("sweep {}: {}: {error}", spec.name, spec.models[*model])));
        }
        let note = format!("{} {error}", spec.models[*model]);
        match notes.iter_mut().find(|(known, _)| *known == note) {
            Some((_, count)) => *count += 1,
            None => notes.push((note, 1)),
        }
    }
    let describe = |(note, count): (String, usize)| {
        let plural = if count == 1 { "" } else { "s" };
        format!("left out {count} point{plural} of the grid: {note}")
    };
    Ok(notes.into_iter().map(describe).collect())
}

/// Every combination of indices, the last one fastest.
struct Places<'a> {
    counts: &'a [usize],
    next: Option<Vec<usize>>,
}

impl<'a> Places<'a> {
    fn new(counts: &'a [usize]) -> Self {
        let some = counts.iter().all(|&n| n > 0);
        Self { counts, next: some.then(|| vec![0; counts.len()]) }
    }
}

impl Iterator for Places<'_> {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let current = self.next.take()?;
        let mut following = current.clone();
        for (at, &count) in following.iter_mut().zip(self.counts).rev() {
            *at += 1;
            if *at < count {
                self.next = Some(following);
                break;
            }
            *at = 0;
        }
        Some(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::spec::Restrictions;
    use std::collections::HashSet;

    fn grid(text: &str) -> anyhow::Result<Grid> {
        Grid::new(&SweepSpec::parse(text, "mine", "mine.toml")?)
    }

    #[test]
    fn every_run_once_and_cells_are_paired_by_seed() {
        let grid = Grid::new(&Restrictions::default().resolve("mode-dim").unwrap()).unwrap();
        assert_eq!(grid.runs.len(), 6 * 8 * 10 * 5);
        assert_eq!(grid.runs.iter().map(|run| run.id).collect::<HashSet<_>>().len(), 2400);
        let first = &grid.runs[0];
        assert_eq!(first.label(&grid.spec), "nap dim 8 lr 0.3^1 seed 0");
        assert_eq!(first.config.train.learning_rate, 0.3);
        assert_eq!(grid.runs[7].label(&grid.spec), "nap dim 8 lr 0.3^2 seed 2");
        let bert = grid.runs.iter().find(|run| run.config.model.name == "bert").unwrap();
        assert!(bert.config.train.warmup && bert.config.task.vocab == 10);
    }

    #[test]
    fn a_run_is_the_one_that_train_resolves() {
        let grid =
            grid("models = ['bert']\nseeds = [3]\n[task]\nname = 'mode'\n[axes]\nlr = ['0.3^6']");
        let mut layers = Layers::from_preset("paper").unwrap();
        let options = "model.name = 'bert'\ntask.name = 'mode'\ntrain.learning_rate = 0.000729\ntrain.seed = 3";
        layers.add(toml::from_str(options).unwrap(), "here").unwrap();
        assert_eq!(grid.unwrap().runs[0].config, layers.finish().unwrap());
    }

    #[test]
    fn what_goes_with_a_learning_rate_or_beside_a_task_is_kept() {
        let with = grid(
            "seeds = 1\n[axes]\nlr = { values = [0.1, 0.01], with = { 'train.epochs' = [1, 3] } }",
        );
        let with = with.unwrap().runs;
        assert_eq!([with[0].config.train.epochs, with[1].config.train.epochs], [1, 3]);
        assert!(with[1].cost.training_flops > 2.9 * with[0].cost.training_flops);
        assert_eq!(with[1].config.train.learning_rate, 0.01);
        let tasks =
            grid("seeds = 1\n[axes]\n'task.vocab' = [70, 80]\n'task.name' = ['cases', 'lg']");
        let vocabs: Vec<_> = tasks.unwrap().runs.iter().map(|run| run.config.task.vocab).collect();
        assert_eq!(vocabs, [70, 70, 80, 80]);
        let same = grid("[axes]\n'model.init_factor' = [1, 1.0000000000000001]\ndim = [8]");
        assert!(same.unwrap_err().to_string().contains("twice"));
        let same = grid("models = ['max']\n[axes]\n'train.learning_rate' = [0.1, 0.100000001]");
        assert!(same.unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn combinations_that_cannot_be_are_left_out_and_values_refused() {
        let heads = grid("[model]\ndim = 8\n[axes]\nheads = [1, 3, 8, 16]").unwrap();
        assert_eq!((heads.runs.len(), heads.notes.len()), (2 * 5, 2));
        assert!(heads.notes[0].contains("model.heads = 3: a divisor of model.dim = 8"));
        let poolings = grid("models = ['max', 'nap']\n[axes]\n'model.form' = ['auto', 'linear']");
        let poolings = poolings.unwrap();
        assert_eq!((poolings.runs.len(), poolings.notes.len()), (3 * 5, 1));
        let error = |text: &str| grid(text).unwrap_err().to_string();
        assert!(error("[model]\nheads = 3\n[axes]\ndim = [8, 9]").contains("model.heads = 3"));
        assert!(error("[axes]\ndim = [8, 0]").contains("model.dim = 0"));
        assert!(error("[axes]\nheads = [3]").contains("empty"));
        assert!(error("[axes]\ndim = ['wide']").contains("sweep mine: model.dim = \"wide\""));
        assert!(error("[axes]\nlr = ['0.3^x']").contains("learning rate"));
        assert!(
            error("models = ['max']\n[axes]\n'model.form' = ['linear']").contains("model.form")
        );
        assert!(error("[task]\nnam = 'mode'\n[axes]\ndim = [8]").contains("did you mean"));
        let many = "axes = { dim = { min = 1, range = 9999 }, batch = { min = 1, range = 9999 } }";
        assert!(error(many).contains("1000000 runs"));
    }
}
