//! The runs of one side, and figures of samples of its seeds.

use crate::grids::{Cell, Results};
use crate::statistics::bootstrap::{self, DRAWS, Draws, Interval};
use crate::statistics::robustness::{THRESHOLDS, robust_area};

use super::known_mean;

/// The runs of a cell: accuracies by run and epoch. Parts of them are described by a weight for
/// each seed: how often the seed was drawn, or 0 and 1 for a relabelling.
pub struct Sample<'a> {
    /// Index of the run's seed among all seeds of its side, and its accuracies.
    runs: Vec<(usize, &'a [f64])>,
    epochs: usize,
}

impl<'a> Sample<'a> {
    fn new(runs: Vec<(usize, &'a [f64])>) -> Self {
        let epochs = runs.iter().map(|(_, curve)| curve.len()).min().unwrap_or(0);
        Self { runs, epochs }
    }

    /// The runs of a cell that have the figure; `seeds` are all seeds of the side, in order.
    pub fn of(results: &'a Results, cell: &Cell, figure: &str, seeds: &[u64]) -> Self {
        let runs = cell.runs.iter().filter_map(|&at| {
            let run = &results.runs[at];
            let seed = seeds.binary_search(&run.config.train.seed).ok()?;
            Some((seed, run.epochs.0.get(figure)?.as_slice()))
        });
        Self::new(runs.collect())
    }

    /// Both samples as one, the seeds of the second counted on from `offset`.
    pub fn joined(&self, other: &Self, offset: usize) -> Self {
        let second = other.runs.iter().map(|(seed, curve)| (seed + offset, *curve));
        Self::new(self.runs.iter().copied().chain(second).collect())
    }

    /// The same with a seed of its own for each run, 0, 1, ...
    pub fn numbered(&self) -> Self {
        Self::new(self.curves().enumerate().collect())
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// The accuracies of each run.
    pub fn curves(&self) -> impl Iterator<Item = &'a [f64]> {
        self.runs.iter().map(|(_, curve)| *curve)
    }

    /// The largest over the epochs of the weighted mean; NaN if all weights are 0.
    pub fn mean(&self, weights: &[f64]) -> f64 {
        let total: f64 = self.runs.iter().map(|(seed, _)| weights[*seed]).sum();
        if total == 0.0 {
            return f64::NAN;
        }
        let at = |epoch: usize| {
            self.runs.iter().map(|(seed, curve)| weights[*seed] * curve[epoch]).sum::<f64>()
        };
        (0..self.epochs).map(at).fold(f64::NEG_INFINITY, f64::max) / total
    }

    /// The largest over the epochs of the least value with a weight; NaN if all weights are 0.
    pub fn worst(&self, weights: &[f64]) -> f64 {
        let some = || self.runs.iter().filter(|(seed, _)| weights[*seed] > 0.0);
        if some().next().is_none() {
            return f64::NAN;
        }
        let at = |epoch: usize| some().map(|(_, c)| c[epoch]).fold(f64::INFINITY, f64::min);
        (0..self.epochs).map(at).fold(f64::NEG_INFINITY, f64::max)
    }
}

/// The compared cells of one side.
pub struct Side<'a> {
    /// Their runs.
    pub samples: Vec<Sample<'a>>,
    /// Number of different seeds.
    pub seeds: usize,
}

impl<'a> Side<'a> {
    /// These cells; `seeds` as for [`Sample::of`].
    pub fn of<'b>(
        results: &'a Results,
        cells: impl Iterator<Item = &'b Cell>,
        figure: &str,
        seeds: &[u64],
    ) -> Self {
        let samples = cells.map(|cell| Sample::of(results, cell, figure, seeds)).collect();
        Self { samples, seeds: seeds.len() }
    }

    /// The weights of all seeds alike.
    pub fn every(&self) -> Vec<f64> {
        vec![1.0; self.seeds]
    }

    /// Weights of bootstrap samples of `count` seeds; none of a single seed, which has no spread.
    pub fn draws(&self, count: usize, site: u64) -> Vec<Vec<f64>> {
        if self.seeds < 2 {
            return Vec::new();
        }
        let mut draws = Draws::new(self.seeds, count, site);
        let mut weights = || {
            let mut weights = vec![0.0; self.seeds];
            draws.draw().iter().for_each(|&pick| weights[pick] += 1.0);
            weights
        };
        (0..DRAWS).map(|_| weights()).collect()
    }

    /// The mean of each cell.
    pub fn means(&self, weights: &[f64]) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.mean(weights)).collect()
    }

    /// The worst seed of each cell.
    pub fn worst(&self, weights: &[f64]) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.worst(weights)).collect()
    }

    /// Intervals of the robust areas.
    pub fn area_intervals(&self, draws: &[Vec<f64>]) -> [Option<Interval>; THRESHOLDS.len()] {
        let worst: Vec<Vec<f64>> = draws.iter().map(|weights| self.worst(weights)).collect();
        THRESHOLDS.map(|threshold| {
            let known = |cells: &Vec<f64>| {
                robust_area(cells.iter().copied().filter(|x| !x.is_nan()), threshold)
            };
            bootstrap::of(worst.iter().map(known).collect())
        })
    }
}

/// Intervals of the mean difference over all cells, and of each cell's, from the differences by
/// sample and cell.
pub fn difference_intervals(draws: &[Vec<f64>]) -> (Option<Interval>, Vec<Option<Interval>>) {
    let cells = draws.first().map_or(0, Vec::len);
    let all = draws.iter().map(|cells| known_mean(cells.iter().copied())).collect();
    let cell = |at: usize| bootstrap::of(draws.iter().map(|cells| cells[at]).collect());
    (bootstrap::of(all), (0..cells).map(cell).collect())
}

/// a - b, cell by cell.
pub fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// The seeds of cells, in order.
pub fn seeds<'a>(results: &Results, cells: impl Iterator<Item = &'a Cell>) -> Vec<u64> {
    let all = cells.flat_map(|cell| &cell.runs).map(|&at| results.runs[at].config.train.seed);
    let mut seeds: Vec<u64> = all.collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds
}
