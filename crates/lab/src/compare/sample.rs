//! The runs of one side of a cell, and figures of parts of them.

use crate::grids::{Cell, Results};

/// Accuracies by run and epoch. Parts of the runs are described by a weight for each seed: how
/// often the seed was drawn, or 0 and 1 for a relabelling.
pub struct Sample<'a> {
    /// Index of the run's seed among all seeds of its side, and its accuracies.
    runs: Vec<(usize, &'a [f64])>,
    epochs: usize,
}

impl<'a> Sample<'a> {
    /// The runs of a cell that have the figure; `seeds` are all seeds of the side, in order.
    pub fn of(results: &'a Results, cell: &Cell, figure: &str, seeds: &[u64]) -> Self {
        let runs = cell.runs.iter().filter_map(|&at| {
            let run = &results.runs[at];
            let seed = seeds.binary_search(&run.config.train.seed).ok()?;
            Some((seed, run.epochs.0.get(figure)?.as_slice()))
        });
        let runs: Vec<_> = runs.collect();
        let epochs = runs.iter().map(|(_, curve)| curve.len()).min().unwrap_or(0);
        Self { runs, epochs }
    }

    /// Both samples as one, the seeds of the second counted on from `offset`.
    pub fn joined(&self, other: &Self, offset: usize) -> Self {
        let second = other.runs.iter().map(|(seed, curve)| (seed + offset, *curve));
        let epochs = self.epochs.min(other.epochs);
        Self { runs: self.runs.iter().copied().chain(second).collect(), epochs }
    }

    /// The same with a seed of its own for each run, 0, 1, ...
    pub fn numbered(&self) -> Self {
        let runs = self.runs.iter().enumerate().map(|(i, (_, curve))| (i, *curve));
        Self { runs: runs.collect(), epochs: self.epochs }
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is nothing to aggregate.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() || self.epochs == 0
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

/// The seeds of a side's cells, in order.
pub fn seeds<'a>(results: &Results, cells: impl Iterator<Item = &'a Cell>) -> Vec<u64> {
    let all = cells.flat_map(|cell| &cell.runs).map(|&at| results.runs[at].config.train.seed);
    let mut seeds: Vec<u64> = all.collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds
}

/// How often each of `n` seeds was drawn.
pub fn weights(n: usize, picks: &[usize]) -> Vec<f64> {
    let mut weights = vec![0.0; n];
    picks.iter().for_each(|&pick| weights[pick] += 1.0);
    weights
}
