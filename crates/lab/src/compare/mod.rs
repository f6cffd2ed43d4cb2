//! Comparison of results: with the published grids, and with other results.
//!
//! Cells are compared that have the same configuration, the seed aside. Both sides are aggregated
//! alike: the largest over the epochs of that epoch's minimum, mean and maximum over the seeds.
//! Each grid gets a verdict, and so has the whole: see [`Verdict`]. The statistics are those of
//! [`crate::statistics`]; docs/compare.md has them in formulas.

pub mod headline;
mod published;
mod results;
mod sample;
pub mod table;
pub mod text;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::grids::{Counts, Grid, Results};
use crate::statistics::aggregate::Aggregate;
use crate::statistics::bootstrap::Interval;
use crate::statistics::robustness::{THRESHOLDS, robust_area};
use headline::Headline;
pub use published::with_published;
pub use results::with_results;

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// There is no difference that matters, and one would have been noticed.
    Agree,
    /// No difference was found, but the runs are too few to notice one that matters.
    Undecided,
    /// The sides differ beyond the stated level, by more than what does not matter.
    Disagree,
}

impl Verdict {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::Undecided => "undecided",
            Self::Disagree => "disagree",
        }
    }
}

/// How to compare.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// `val_accuracy` or `train_accuracy`.
    pub figure: &'static str,
    /// The largest p-value, corrected for the number of tests, that counts as a difference.
    pub level: f64,
    /// The smallest difference of accuracies that matters.
    pub margin: f64,
}

/// A comparison.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The whole: disagree if any grid does, agree if all do.
    pub verdict: Verdict,
    /// What is compared.
    pub figure: &'static str,
    /// See [`Options`].
    pub level: f64,
    /// See [`Options`].
    pub margin: f64,
    /// One side.
    pub ours: Source,
    /// The other.
    pub theirs: Source,
    /// Grids that both sides have cells of.
    pub grids: Vec<GridComparison>,
    /// Grids of the first side without a counterpart, and why.
    pub not_compared: Vec<NotCompared>,
    /// The paper's headline figures, where the other side is the published one.
    pub headlines: Vec<Headline>,
    /// What a user should know.
    pub notes: Vec<String>,
}

/// Where results come from.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Source {
    /// What it is called.
    pub name: String,
    /// Runs that finished or failed.
    pub runs: usize,
    /// Program versions.
    pub versions: BTreeSet<String>,
    /// Numerics versions.
    pub numerics: BTreeSet<u32>,
    /// Instruction sets.
    pub isas: BTreeSet<String>,
}

impl Source {
    fn of(name: &str, results: &Results) -> Self {
        let runs = &results.runs;
        Self {
            name: name.to_owned(),
            runs: runs.len(),
            versions: runs.iter().map(|run| run.version.clone()).collect(),
            numerics: runs.iter().map(|run| run.numerics).collect(),
            isas: runs.iter().map(|run| run.isa.clone()).collect(),
        }
    }
}

/// A grid that is left out.
#[derive(Debug, Clone, Serialize)]
pub struct NotCompared {
    /// Its model and setting.
    pub grid: String,
    /// Why.
    pub reason: String,
}

/// A grid on both sides.
#[derive(Debug, Serialize)]
pub struct GridComparison {
    /// The model.
    pub model: String,
    /// Everything else that its runs have in common.
    pub setting: String,
    /// Short name of the axis.
    pub axis: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// Why, in words.
    pub reason: String,
    /// Cells that both sides have runs of.
    pub compared: usize,
    /// Cells that one side and the other have runs of.
    pub cells_of_each: [usize; 2],
    /// Runs of one side.
    pub counts: Counts,
    /// The fewest and the most runs of a compared cell, of one side and the other.
    pub seeds: [[usize; 2]; 2],
    /// Mean over the cells of the difference of their means, ours minus theirs.
    pub difference: f64,
    /// Its bootstrap interval over the seeds that are known.
    pub interval: Option<Interval>,
    /// Mean over the cells of the absolute difference of their means.
    pub absolute_difference: f64,
    /// What that is expected to be if both sides come from one distribution.
    pub expected_absolute_difference: Option<f64>,
    /// Spearman's correlation of the cells' means.
    pub rank_correlation: Option<f64>,
    /// Share of the compared cells whose worst seed exceeds each threshold.
    pub robust_areas: Vec<Area>,
    /// Of the comparison with published ranges.
    pub outside: Option<Outside>,
    /// Runs that are the same on both sides, to the bit.
    pub same_runs: usize,
    /// p-value of the grid's test.
    pub p: f64,
    /// The same, corrected for the number of grids.
    pub adjusted_p: f64,
    /// The least p-value that so many runs can have.
    pub least_p: f64,
    /// The cells.
    pub cells: Vec<CellComparison>,
}

/// Runs outside the published range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outside {
    /// Runs compared.
    pub runs: usize,
    /// Those whose last epoch lies outside the published range of that epoch.
    pub last_epoch: usize,
    /// Those whose best epoch lies outside the range of the published aggregates.
    pub best_epoch: usize,
    /// Expected if both sides come from one distribution.
    pub expected: f64,
    /// The least number that would have been a difference; none if no number would.
    pub noticeable: Option<usize>,
}

/// A robust area.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Area {
    /// What the worst seed must exceed.
    pub threshold: f64,
    /// Of one side.
    pub ours: f64,
    /// Its bootstrap interval over the seeds.
    pub ours_interval: Option<Interval>,
    /// Of the other.
    pub theirs: f64,
    /// Its bootstrap interval, where the runs are known.
    pub theirs_interval: Option<Interval>,
}

/// A cell on both sides.
#[derive(Debug, Serialize)]
pub struct CellComparison {
    /// Value of the axis.
    pub x: String,
    /// Learning rate.
    pub learning_rate: String,
    /// One side.
    pub ours: Aggregate,
    /// The other.
    pub theirs: Aggregate,
    /// Runs of one side that diverged.
    pub diverged: usize,
    /// Difference of the means, ours minus theirs.
    pub difference: f64,
    /// Its bootstrap interval over the seeds that are known.
    pub interval: Option<Interval>,
    /// p-value of the cell's test.
    pub p: f64,
    /// The same, corrected for the number of cells of the grid (Benjamini and Hochberg).
    pub adjusted_p: f64,
    /// The cell's verdict.
    pub verdict: Verdict,
}

impl GridComparison {
    /// Whether a difference that matters is excluded: the interval of the mean difference lies
    /// within the margin, and so does what the seeds do not explain of the absolute difference.
    fn within(&self, margin: f64) -> bool {
        lies_within(self.interval, self.difference, margin) && self.unexplained() <= margin
    }

    /// The absolute difference beyond that which is expected of seeds alone.
    fn unexplained(&self) -> f64 {
        self.absolute_difference - self.expected_absolute_difference.unwrap_or(0.0)
    }

    /// The number of cells of a verdict.
    pub fn cells_that(&self, verdict: Verdict) -> usize {
        self.cells.iter().filter(|cell| cell.verdict == verdict).count()
    }
}

/// Whether an interval (where there is none, the value itself) lies within the margin.
fn lies_within(interval: Option<Interval>, value: f64, margin: f64) -> bool {
    let Interval { low, high } = interval.unwrap_or(Interval { low: value, high: value });
    low >= -margin && high <= margin
}

/// The verdict on everything.
fn overall(grids: &[GridComparison]) -> Verdict {
    grids.iter().map(|grid| grid.verdict).max().unwrap_or(Verdict::Undecided)
}

/// The cells of a grid that have runs with this figure.
fn measured(results: &Results, grid: &Grid, figure: &str) -> usize {
    grid.cells.values().filter(|cell| results.aggregate(cell, figure).is_some()).count()
}

/// Fewest and most.
fn range(counts: impl Iterator<Item = usize> + Clone) -> [usize; 2] {
    [counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0)]
}

/// The mean of the values that are known; NaN of none.
fn known_mean(values: impl Iterator<Item = f64>) -> f64 {
    let known = values.filter(|x| !x.is_nan());
    let (sum, count) = known.fold((0.0, 0usize), |(sum, count), x| (sum + x, count + 1));
    sum / count as f64
}

/// Robust areas of both sides from the worst seeds of their cells, with intervals.
fn areas(
    worst: &[Vec<f64>; 2],
    intervals: &[[Option<Interval>; THRESHOLDS.len()]; 2],
) -> Vec<Area> {
    let area = |(i, &threshold): (usize, &f64)| {
        let of = |side: usize| robust_area(worst[side].iter().copied(), threshold);
        let [ours_interval, theirs_interval] = [intervals[0][i], intervals[1][i]];
        Area { threshold, ours: of(0), ours_interval, theirs: of(1), theirs_interval }
    };
    THRESHOLDS.iter().enumerate().map(area).collect()
}
