//! With other results, of which every run is known.

use std::collections::{BTreeSet, HashMap};

use crate::grids::{Cell, Grid, Level, Results};
use crate::statistics::bootstrap::{self, DRAWS, Draws};
use crate::statistics::robustness::{THRESHOLDS, robust_area};
use crate::statistics::{multiple, permutation, rank};
use crate::sweep::identity::RunId;

use super::sample::{Sample, seeds, weights};
use super::{
    CellComparison, Comparison, GridComparison, NotCompared, Options, Source, Verdict, areas,
    known_mean, lies_within, mean, measured, overall, range,
};

/// A version's cells by configuration: the grid and the cell.
type Index<'a> = HashMap<(u32, &'a str, RunId), (usize, &'a Cell)>;

/// One side or the other: its name and what it holds.
pub type Side<'a> = (&'a str, &'a Results);

/// Compares two results, cell by cell of the same configuration.
pub fn with_results(ours: Side, theirs: Side, options: &Options) -> Comparison {
    let index = index(theirs.1);
    let mut not_compared = Vec::new();
    let mut matched: Vec<(&Grid, Vec<Match>)> = Vec::new();
    for grid in &ours.1.grids {
        let pairs = matches(ours.1, theirs.1, grid, &index, options.figure);
        if pairs.is_empty() {
            let reason = match measured(ours.1, grid, options.figure) {
                0 => "no run of it has finished",
                _ => "the other side has no finished run of these configurations",
            };
            let grid = format!("{} {}", grid.setting.model, grid.setting.panel_label());
            not_compared.push(NotCompared { grid, reason: reason.to_owned() });
        } else {
            matched.push((grid, pairs));
        }
    }
    // All grids are relabelled together: a seed is one draw, whatever was made of it.
    let pairs = || matched.iter().flat_map(|(_, pairs)| pairs);
    let our_seeds = seeds(ours.1, pairs().map(|pair| pair.ours));
    let their_seeds = seeds(theirs.1, pairs().map(|pair| pair.theirs));
    let compared: Vec<_> = matched
        .iter()
        .map(|(grid, pairs)| {
            let sides = [(ours.1, our_seeds.as_slice()), (theirs.1, their_seeds.as_slice())];
            compare(sides, grid, pairs, options)
        })
        .collect();
    let (mut grids, statistics): (Vec<_>, Vec<_>) = compared.into_iter().unzip();
    for (grid, adjusted) in grids.iter_mut().zip(permutation::adjusted_p(&statistics)) {
        grid.adjusted_p = adjusted;
        judge(grid, options);
    }
    let notes = [ours, theirs].into_iter().flat_map(|(name, results)| {
        results.notes.iter().map(move |note| format!("{name}: {note}"))
    });
    Comparison {
        verdict: overall(&grids),
        figure: options.figure,
        level: options.level,
        margin: options.margin,
        ours: Source::of(ours.0, ours.1),
        theirs: Source::of(theirs.0, theirs.1),
        grids,
        not_compared,
        headlines: Vec::new(),
        notes: notes.collect(),
    }
}

/// A cell of both sides.
struct Match<'a> {
    place: (&'a Level, &'a Level),
    ours: &'a Cell,
    theirs: &'a Cell,
    their_grid: usize,
}

fn index(results: &Results) -> Index<'_> {
    let mut index = Index::new();
    for (at, grid) in results.grids.iter().enumerate() {
        let version = (grid.setting.numerics, grid.setting.precision.as_str());
        for cell in grid.cells.values() {
            // A cell at the crossing of two sweeps is in two grids, with the same runs.
            let entry = index.entry((version.0, version.1, cell.point)).or_insert((at, cell));
            if entry.1.runs.len() < cell.runs.len() {
                *entry = (at, cell);
            }
        }
    }
    index
}

/// The cells that both sides have, those of the other side of the same version if it has any,
/// else of its latest.
fn matches<'a>(
    ours: &Results,
    theirs: &'a Results,
    grid: &'a Grid,
    index: &Index<'a>,
    figure: &str,
) -> Vec<Match<'a>> {
    let own = (grid.setting.numerics, grid.setting.precision.as_str());
    let all = theirs.grids.iter().map(|g| (g.setting.numerics, g.setting.precision.as_str()));
    let mut versions: Vec<_> = all.collect::<BTreeSet<_>>().into_iter().collect();
    versions.sort_by_key(|version| (*version != own, std::cmp::Reverse(*version)));
    let with = |version: (u32, &'a str)| -> Vec<Match<'a>> {
        let pairs = grid.cells.iter().filter_map(|(&(x, rate), cell)| {
            let &(their_grid, other) = index.get(&(version.0, version.1, cell.point))?;
            ours.aggregate(cell, figure)?;
            theirs.aggregate(other, figure)?;
            let place = (&grid.xs[x], &grid.rates[rate]);
            Some(Match { place, ours: cell, theirs: other, their_grid })
        });
        pairs.collect()
    };
    versions.into_iter().map(with).find(|pairs| !pairs.is_empty()).unwrap_or_default()
}

/// A grid but for its verdict, and its statistic for every relabelling.
fn compare(
    [ours, theirs]: [(&Results, &[u64]); 2],
    grid: &Grid,
    pairs: &[Match],
    options: &Options,
) -> (GridComparison, Vec<f64>) {
    let figure = options.figure;
    let our_samples: Vec<Sample> =
        pairs.iter().map(|pair| Sample::of(ours.0, pair.ours, figure, ours.1)).collect();
    let their_samples: Vec<Sample> =
        pairs.iter().map(|pair| Sample::of(theirs.0, pair.theirs, figure, theirs.1)).collect();
    let counts = [ours.1.len(), theirs.1.len()];
    let every = counts.map(|n| vec![1.0; n]);
    let means = |samples: &[Sample], weights: &[f64]| -> Vec<f64> {
        samples.iter().map(|sample| sample.mean(weights)).collect()
    };
    let worst = |samples: &[Sample], weights: &[f64]| -> Vec<f64> {
        samples.iter().map(|sample| sample.worst(weights)).collect()
    };
    let (a, b) = (means(&our_samples, &every[0]), means(&their_samples, &every[1]));
    let differences = || a.iter().zip(&b).map(|(a, b)| a - b);

    // Bootstrap over the seeds of each side.
    let mut drawn_cells = vec![Vec::new(); pairs.len()];
    let mut drawn = Vec::new();
    let mut drawn_areas = [const { [const { Vec::new() }; THRESHOLDS.len()] }; 2];
    if counts.iter().all(|&n| n > 1) {
        let mut draws = [Draws::new(counts[0], counts[0], 0), Draws::new(counts[1], counts[1], 1)];
        for _ in 0..DRAWS {
            let [first, second] = &mut draws;
            let (first, second) =
                (weights(counts[0], first.draw()), weights(counts[1], second.draw()));
            let (a, b) = (means(&our_samples, &first), means(&their_samples, &second));
            for (values, (a, b)) in drawn_cells.iter_mut().zip(a.iter().zip(&b)) {
                values.push(a - b);
            }
            drawn.push(known_mean(a.iter().zip(&b).map(|(a, b)| a - b)));
            let sides = [worst(&our_samples, &first), worst(&their_samples, &second)];
            for (areas, worst) in drawn_areas.iter_mut().zip(sides) {
                for (values, threshold) in areas.iter_mut().zip(THRESHOLDS) {
                    let known = worst.iter().copied().filter(|x| !x.is_nan());
                    values.push(robust_area(known, threshold));
                }
            }
        }
    }
    let mut robust_areas =
        areas(&worst(&our_samples, &every[0]), &worst(&their_samples, &every[1]));
    let [of_ours, of_theirs] = drawn_areas;
    for ((area, ours), theirs) in robust_areas.iter_mut().zip(of_ours).zip(of_theirs) {
        area.ours_interval = bootstrap::of(ours);
        area.theirs_interval = bootstrap::of(theirs);
    }

    // Relabellings of all seeds at once, and of each cell's runs.
    let joined: Vec<Sample> = our_samples
        .iter()
        .zip(&their_samples)
        .map(|(ours, theirs)| ours.joined(theirs, counts[0]))
        .collect();
    let mut statistics = Vec::new();
    permutation::relabellings(counts[0], counts[1], |first| {
        let apart = joined.iter().map(|sample| apart(sample, first));
        statistics.push(known_mean(apart));
    });
    let p: Vec<f64> =
        joined.iter().zip(&our_samples).map(|(all, ours)| cell_p(all, ours.len())).collect();
    let adjusted = multiple::benjamini_hochberg(&p);

    let mut cells = Vec::new();
    let mut same_runs = 0;
    for (i, (pair, values)) in pairs.iter().zip(drawn_cells).enumerate() {
        same_runs += same(ours.0, pair.ours, theirs.0, pair.theirs);
        let (Some(of_ours), Some(of_theirs)) =
            (ours.0.aggregate(pair.ours, figure), theirs.0.aggregate(pair.theirs, figure))
        else {
            continue;
        };
        let sizes = [our_samples[i].len(), their_samples[i].len()];
        let interval = bootstrap::of(values).filter(|_| sizes.iter().all(|&n| n > 1));
        let difference = of_ours.mean - of_theirs.mean;
        let within = interval.is_some() && lies_within(interval, difference, options.margin);
        let powerless = permutation::least_p(sizes[0], sizes[1]) > options.level;
        let verdict = match adjusted[i] <= options.level {
            true if !within => Verdict::Disagree,
            false if !within || powerless => Verdict::Undecided,
            _ => Verdict::Agree,
        };
        cells.push(CellComparison {
            x: pair.place.0.label.clone(),
            learning_rate: pair.place.1.label.clone(),
            ours: of_ours,
            theirs: of_theirs,
            diverged: ours.0.counts(pair.ours).diverged,
            difference,
            interval,
            p: p[i],
            adjusted_p: adjusted[i],
            verdict,
        });
    }
    let their_grids: BTreeSet<usize> = pairs.iter().map(|pair| pair.their_grid).collect();
    let their_cells = their_grids.iter().map(|&at| measured(theirs.0, &theirs.0.grids[at], figure));
    // The seeds that this grid has.
    let sizes = [
        seeds(ours.0, pairs.iter().map(|pair| pair.ours)).len(),
        seeds(theirs.0, pairs.iter().map(|pair| pair.theirs)).len(),
    ];
    let known: Vec<f64> = statistics.iter().copied().filter(|x| !x.is_nan()).collect();
    let comparison = GridComparison {
        model: grid.setting.model.clone(),
        setting: grid.setting.panel_label(),
        axis: grid.setting.axis_name().to_owned(),
        verdict: Verdict::Undecided,
        reason: String::new(),
        compared: pairs.len(),
        cells_of_each: [measured(ours.0, grid, figure), their_cells.sum()],
        counts: ours.0.grid_counts(grid),
        seeds: [
            range(our_samples.iter().map(Sample::len)),
            range(their_samples.iter().map(Sample::len)),
        ],
        difference: mean(differences()),
        interval: bootstrap::of(drawn),
        absolute_difference: mean(differences().map(f64::abs)),
        expected_absolute_difference: Some(mean(known.iter().copied())),
        rank_correlation: rank::spearman(&a, &b),
        robust_areas,
        outside: None,
        same_runs,
        p: permutation::p_value(&statistics),
        adjusted_p: f64::NAN,
        least_p: permutation::least_p(sizes[0], sizes[1]),
        cells,
    };
    (comparison, statistics)
}

/// The absolute difference of the means of two groups of a cell's runs; NaN if one is empty.
fn apart(sample: &Sample, first: &[bool]) -> f64 {
    let group = |side: bool| -> Vec<f64> {
        first.iter().map(|&first| if first == side { 1.0 } else { 0.0 }).collect()
    };
    (sample.mean(&group(true)) - sample.mean(&group(false))).abs()
}

/// The permutation test of one cell, of which `ours` runs come first.
fn cell_p(all: &Sample, ours: usize) -> f64 {
    let runs = all.numbered();
    let mut statistics = Vec::new();
    permutation::relabellings(ours, runs.len() - ours, |first| {
        statistics.push(apart(&runs, first));
    });
    permutation::p_value(&statistics)
}

/// Runs that are the same on both sides.
fn same(ours: &Results, cell: &Cell, theirs: &Results, other: &Cell) -> usize {
    let is_same = |&&at: &&usize| {
        let run = &ours.runs[at];
        let mut others = other.runs.iter().map(|&at| &theirs.runs[at]);
        others
            .any(|other| other.config.train.seed == run.config.train.seed && other.agrees_with(run))
    };
    cell.runs.iter().filter(is_same).count()
}

fn judge(grid: &mut GridComparison, options: &Options) {
    let runs: usize = grid.cells.iter().map(|cell| cell.ours.runs).sum();
    let found = format!(
        "mean absolute difference {:.3}, {:.3} expected of seeds alone",
        grid.absolute_difference,
        grid.expected_absolute_difference.unwrap_or(f64::NAN)
    );
    let within = grid.interval.is_some() && grid.within(options.margin);
    (grid.verdict, grid.reason) = if grid.same_runs == runs && grid.absolute_difference == 0.0 {
        (Verdict::Agree, format!("the same {runs} runs, to the bit"))
    } else if grid.adjusted_p <= options.level && within {
        (Verdict::Agree, format!("{found}: more than chance, but less than matters"))
    } else if grid.adjusted_p <= options.level {
        (Verdict::Disagree, found)
    } else if grid.least_p > options.level {
        let least = format!("with so few seeds no difference has p below {:.2}", grid.least_p);
        (Verdict::Undecided, format!("{found}; {least}"))
    } else if !within {
        let wide = "a difference that matters is not excluded";
        (Verdict::Undecided, format!("{found}; {wide}"))
    } else {
        (Verdict::Agree, found)
    };
}
