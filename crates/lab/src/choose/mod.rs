//! Which rule suits a task: a fixed plan of runs, sized to fit a time, and what follows from them.
//!
//! | stage | runs | decides |
//! |---|---|---|
//! | search | every rule at every learning rate, one seed | each rule's two best learning rates |
//! | refine | those, two more seeds | each rule's learning rate, by the mean of its three seeds |
//! | judge | each rule at that rate, fresh seeds | the rule, see [`verdict`] |
//!
//! What picks does not judge: a learning rate that was lucky with its seeds is not lucky with
//! fresh ones. For the same reason the figure is the validation accuracy of the *last* epoch,
//! which nothing picks, and the number of runs is fixed before the first one, see [`budget`].

pub mod budget;
pub mod text;
pub mod verdict;

use nap_engine::config::RunConfig;
use nap_engine::model::family;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::error::bad;
use crate::resolve;
use crate::sweep::axis::Axis;
use crate::sweep::grid::{Grid, PlannedRun};
use crate::sweep::journal::Journal;
use crate::sweep::map::FIGURE;
use crate::sweep::record::{RunRecord, Status};
use crate::sweep::spec::SweepSpec;

/// The rules that are compared unless others are named.
pub const MODELS: &str = "nap,mte,bert,sum,max";

/// The learning rates that are searched unless others are named.
pub const RATES: &str = "0.3^3..0.3^8";

/// Learning rates of a rule that get more than one seed.
const FINALISTS: usize = 2;

/// Seeds of the search, and more ones of the refinement.
const SEARCH: usize = 1;
const REFINE: usize = 2;

/// What is to be computed, all of it; stored before the first run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The run as it was asked for; model, learning rate, seed and epochs vary.
    pub base: RunConfig,
    /// The rules, by the names of models.
    pub models: Vec<String>,
    /// The learning rates, as they were written.
    pub rates: Vec<String>,
    /// Epochs of every run.
    pub epochs: usize,
    /// Number of fresh seeds.
    pub fresh: usize,
}

/// A part of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Every learning rate, one seed.
    Search,
    /// The best learning rates, more seeds.
    Refine,
    /// The best learning rate, fresh seeds.
    Judge,
}

impl Stage {
    /// In their order.
    pub const ALL: [Stage; 3] = [Stage::Search, Stage::Refine, Stage::Judge];

    /// What it is for.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Search => "search: every learning rate",
            Stage::Refine => "refine: the best learning rates",
            Stage::Judge => "judge: fresh seeds",
        }
    }
}

impl Plan {
    /// A plan of no size yet. `models` are names as in `nap,mte`, `rates` as in `0.3^3..0.3^8`.
    ///
    /// # Errors
    /// If that cannot be compared.
    pub fn new(base: RunConfig, models: &str, rates: &str) -> anyhow::Result<Self> {
        let models: Vec<String> = models.split(',').map(|name| name.trim().to_owned()).collect();
        if models.len() < 2 {
            return Err(bad(format!("--model {}: expected two at least", models.join(","))));
        }
        let mut plain = base.clone();
        family::find(&base.model.name).into_iter().for_each(|family| family.apply(&mut plain));
        if plain != base {
            return Err(bad(
                "nap choose compares models as they are: expected no aggregator, layout, gain, \
                 bias, warm-up or clipping of one's own (compare those by nap sweep)",
            ));
        }
        if base.train.seed > u64::from(u32::MAX) {
            let seed = base.train.seed;
            return Err(bad(format!("--seed {seed}: expected at most {}", u32::MAX)));
        }
        let described = toml::from_str::<Table>("lr = { base = 0.3, min = 1, range = 10 }")?;
        let mut axis = Axis::read("lr", &described["lr"], &Table::try_from(&base)?).map_err(bad)?;
        axis.restrict(rates).map_err(|error| bad(format!("--lr {error}")))?;
        let rates = axis.values.iter().map(|value| value.label.clone()).collect();
        let epochs = base.train.epochs;
        Ok(Self { base, models, rates, epochs, fresh: 0 })
    }

    /// Whether it is the same question, whatever its size.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        let sized = Self { epochs: self.epochs, fresh: self.fresh, ..other.clone() };
        *self == sized
    }

    /// As a sweep over all learning rates, of the search's seed alone or of all seeds.
    ///
    /// # Errors
    /// If a model does not exist.
    pub fn spec(&self, all_seeds: bool) -> anyhow::Result<SweepSpec> {
        let mut table = Table::try_from(&self.base)?;
        // What models bring along, and what the sweep varies.
        for (section, keys) in [
            (
                "model",
                &[
                    "name",
                    "aggregator",
                    "norm_placement",
                    "attention_gelu",
                    "feed_forward",
                    "gain",
                    "bias",
                    "epsilon",
                    "logit_scale",
                    "form",
                    "centre",
                ][..],
            ),
            ("train", &["seed", "learning_rate", "warmup", "clip"]),
        ] {
            if let Some(Value::Table(section)) = table.get_mut(section) {
                keys.iter().for_each(|key| drop(section.remove(*key)));
            }
        }
        if let Some(data) = &self.base.task.data {
            for key in resolve::FOLLOWING {
                // Room for longer sequences than the data has does not follow from them.
                if key == resolve::LENGTH && self.base.task.length > data.longest {
                    continue;
                }
                let Some((section, key)) = key.split_once('.') else { continue };
                table.get_mut(section).and_then(Value::as_table_mut).map(|keys| keys.remove(key));
            }
        }
        resolve::insert(&mut table, "train.epochs", Value::Integer(self.epochs as i64))
            .map_err(bad)?;
        let first = self.base.train.seed;
        let count = if all_seeds { SEARCH + REFINE + self.fresh } else { SEARCH };
        let seeds = (0..count as u64).map(|i| Value::Integer((first + i) as i64)).collect();
        let strings = |list: &[String]| list.iter().map(|x| Value::from(x.as_str())).collect();
        let axes = Table::from_iter([("lr".to_owned(), Value::Array(strings(&self.rates)))]);
        table.insert("models".to_owned(), Value::Array(strings(&self.models)));
        table.insert("seeds".to_owned(), Value::Array(seeds));
        table.insert("axes".to_owned(), Value::Table(axes));
        SweepSpec::parse(&toml::to_string(&table)?, "choose", "nap choose")
    }

    /// What the runs of the three stages need of each other.
    ///
    /// # Errors
    /// If a configuration cannot be used.
    pub fn grid(&self) -> anyhow::Result<Grid> {
        let grid = Grid::new(&self.spec(true)?)?;
        match grid.notes.first() {
            // No rule may lack a part of the comparison.
            Some(note) => Err(bad(format!("nap choose: {note}"))),
            None => Ok(grid),
        }
    }
}

/// A plan's grid with the results so far.
pub struct Board<'a> {
    /// What is computed.
    pub plan: &'a Plan,
    /// Every rule at every learning rate with every seed, of which the stages need a part.
    pub grid: &'a Grid,
    /// The results.
    pub journal: &'a Journal,
}

impl<'a> Board<'a> {
    /// The runs of a stage; those of the later ones depend on the results of the earlier.
    pub fn runs(&self, stage: Stage) -> Vec<&'a PlannedRun> {
        let mut runs = Vec::new();
        for model in 0..self.plan.models.len() {
            let rates = match stage {
                Stage::Search => (0..self.plan.rates.len()).collect(),
                Stage::Refine => self.finalists(model),
                Stage::Judge => self.rate(model).into_iter().collect(),
            };
            // One finalist is the winner.
            if stage != Stage::Refine || rates.len() > 1 {
                runs.extend(rates.iter().flat_map(|&rate| self.cell(model, rate, stage)));
            }
        }
        runs
    }

    /// The learning rates that get more seeds, best first.
    fn finalists(&self, model: usize) -> Vec<usize> {
        let mut rates = self.ranked(model, 0..self.plan.rates.len(), &[Stage::Search]);
        rates.truncate(FINALISTS);
        rates
    }

    /// The rule's learning rate: none if no run of the search has finished.
    pub fn rate(&self, model: usize) -> Option<usize> {
        let finalists = self.finalists(model);
        let stages = [Stage::Search, Stage::Refine];
        self.ranked(model, finalists.into_iter(), &stages).first().copied()
    }

    /// Learning rates by their mean, the largest first; of equals the one that came first.
    fn ranked(
        &self,
        model: usize,
        rates: impl Iterator<Item = usize>,
        stages: &[Stage],
    ) -> Vec<usize> {
        let mean = |rate: usize| {
            let of = |&stage: &Stage| self.accuracies(model, rate, stage);
            let values: Vec<f64> = stages.iter().flat_map(of).collect();
            (rate, values.iter().sum::<f64>() / values.len() as f64)
        };
        let mut means: Vec<_> = rates.map(mean).filter(|(_, mean)| !mean.is_nan()).collect();
        means.sort_by(|a, b| b.1.total_cmp(&a.1));
        means.into_iter().map(|(rate, _)| rate).collect()
    }

    /// The planned runs of a rule at a learning rate.
    fn cell(&self, model: usize, rate: usize, stage: Stage) -> Vec<&'a PlannedRun> {
        let first = self.plan.base.train.seed;
        let seeds = match stage {
            Stage::Search => 0..SEARCH,
            Stage::Refine => SEARCH..SEARCH + REFINE,
            Stage::Judge => SEARCH + REFINE..SEARCH + REFINE + self.plan.fresh,
        };
        let seeds = first + seeds.start as u64..first + seeds.end as u64;
        let here = |run: &&PlannedRun| {
            run.model == model && run.place == [rate] && seeds.contains(&run.config.train.seed)
        };
        self.grid.runs.iter().filter(here).collect()
    }

    /// The record of a run that has finished.
    pub fn record(&self, run: &PlannedRun) -> Option<&'a RunRecord> {
        self.journal.runs.get(&run.id).filter(|record| record.status == Status::Finished)
    }

    /// The finished runs of a rule at a learning rate, in the order of their seeds.
    pub fn records(&self, model: usize, rate: usize, stage: Stage) -> Vec<&'a RunRecord> {
        self.cell(model, rate, stage).into_iter().filter_map(|run| self.record(run)).collect()
    }

    /// Their accuracies.
    fn accuracies(&self, model: usize, rate: usize, stage: Stage) -> Vec<f64> {
        self.records(model, rate, stage).into_iter().filter_map(|r| last(r, FIGURE)).collect()
    }
}

/// A figure's value after the last epoch.
fn last(record: &RunRecord, figure: &str) -> Option<f64> {
    record.epochs.0.get(figure)?.last().copied().filter(|x| !x.is_nan())
}
