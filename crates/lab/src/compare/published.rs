//! With the published grids, of which the range and the mean of five seeds are known.

use nap_engine::model::family;

use crate::grids::{Cell, Grid, Level, Results};
use crate::published;
use crate::statistics::aggregate::Aggregate;
use crate::statistics::robustness::THRESHOLDS;
use crate::statistics::{multiple, outside, rank};

use super::sample::{Sample, Side, difference_intervals, differences, seeds};
use super::{
    CellComparison, Comparison, GridComparison, NotCompared, Options, Outside, Source, Verdict,
    areas, headline, known_mean, lies_within, measured, overall, range,
};

/// A test must be able to notice if this share of the runs lies outside the published range:
/// twice what is expected of five.
const NOTICEABLE: f64 = 2.0 / 3.0;

/// Compares results with the published grids.
pub fn with_published(name: &str, results: &Results, options: &Options) -> Comparison {
    let (mut compared, mut not_compared) = (Vec::new(), Vec::new());
    for grid in &results.grids {
        match compare(results, grid, options) {
            Ok(comparison) => compared.push(comparison),
            Err(reason) => not_compared.push(NotCompared {
                grid: format!("{} {}", grid.setting.model, grid.setting.panel_label()),
                reason,
            }),
        }
    }
    let p: Vec<f64> = compared.iter().map(|(grid, _)| grid.p).collect();
    let adjusted = multiple::holm(&p);
    // What one of so many tests must reach.
    let single = options.level / compared.len() as f64;
    let judged = compared.into_iter().zip(adjusted).map(|((mut grid, distribution), adjusted)| {
        grid.adjusted_p = adjusted;
        judge(&mut grid, &distribution, options, single);
        grid
    });
    let grids: Vec<_> = judged.collect();
    Comparison {
        verdict: overall(&grids),
        figure: options.figure,
        level: options.level,
        margin: options.margin,
        ours: Source::of(name, results),
        theirs: Source { name: "published".to_owned(), ..Source::default() },
        grids,
        not_compared,
        headlines: headline::all(Some(results)),
        notes: results.notes.clone(),
    }
}

/// The verdict on a grid, whose number of runs outside has this distribution.
fn judge(grid: &mut GridComparison, distribution: &[f64], options: &Options, single: f64) {
    let Some(outside) = &mut grid.outside else { return };
    outside.noticeable = outside::critical(distribution, single);
    let found = format!(
        "{} of {} runs lie outside the published range, {:.1} expected",
        outside.last_epoch, outside.runs, outside.expected
    );
    let needed = outside.noticeable.map(|least| least as f64 / outside.runs as f64);
    let within = grid.within(options.margin);
    let differences = format!(
        "mean difference {:+.3}, absolute {:.3}",
        grid.difference, grid.absolute_difference
    );
    (grid.verdict, grid.reason) = match needed {
        _ if grid.adjusted_p <= options.level && within => {
            let small = "more than chance, but smaller differences than matter";
            (Verdict::Agree, format!("{found}: {small} ({differences})"))
        }
        _ if grid.adjusted_p <= options.level => {
            (Verdict::Disagree, format!("{found}; {differences}"))
        }
        None => {
            (Verdict::Undecided, format!("{found}; too few runs for any number to be a difference"))
        }
        Some(share) if share > NOTICEABLE => {
            let least = format!("only {:.0} % or more would be a difference", 100.0 * share);
            (Verdict::Undecided, format!("{found}; {least}"))
        }
        Some(_) if !within => {
            let wide = "a difference that matters is not excluded";
            (Verdict::Undecided, format!("{found}; {differences}: {wide}"))
        }
        Some(_) => (Verdict::Agree, found),
    };
}

/// A cell of both sides.
struct Pair<'a> {
    place: (&'a Level, &'a Level),
    cell: &'a Cell,
    published: &'static published::Cell,
}

/// The published cell of a sweep over the same axis.
fn counterpart(grid: &Grid, cell: &Cell) -> Option<&'static published::Cell> {
    grid.published(cell).filter(|cell| cell.sweep == grid.setting.axis_name())
}

/// A grid but for its verdict, in which the number of grids takes part, and the distribution of
/// its number of runs outside; or why it has no counterpart.
fn compare(
    results: &Results,
    grid: &Grid,
    options: &Options,
) -> Result<(GridComparison, Vec<f64>), String> {
    let figure = options.figure;
    let pairs: Vec<Pair> = grid
        .cells
        .iter()
        .filter_map(|(&(x, rate), cell)| {
            results.aggregate(cell, figure)?;
            let place = (&grid.xs[x], &grid.rates[rate]);
            Some(Pair { place, cell, published: counterpart(grid, cell)? })
        })
        .collect();
    if pairs.is_empty() {
        return Err(why_none(results, grid, figure));
    }
    let seeds = seeds(results, pairs.iter().map(|pair| pair.cell));
    let side = Side::of(results, pairs.iter().map(|pair| pair.cell), figure, &seeds);
    let theirs: Vec<Aggregate> =
        pairs.iter().filter_map(|pair| pair.published.aggregate(figure)).collect();
    let their_means: Vec<f64> = theirs.iter().map(|aggregate| aggregate.mean).collect();
    let their_worst = theirs.iter().map(|aggregate| aggregate.min).collect();
    let means = side.means(&side.every());
    let difference = differences(&means, &their_means);
    let draws = side.draws(side.seeds, 0);
    let drawn: Vec<_> = draws.iter().map(|weights| side.means(weights)).collect();
    let (interval, cell_intervals) = difference_intervals(
        &drawn.iter().map(|means| differences(means, &their_means)).collect::<Vec<_>>(),
    );
    let five = range(theirs.iter().map(|aggregate| aggregate.runs));
    let (outside, distributions, counts) = outside_of(&pairs, &side, figure);
    let total = outside::sum(distributions.iter().map(Vec::as_slice));
    let p: Vec<f64> =
        distributions.iter().zip(&counts).map(|(d, &last)| outside::tail(d, last)).collect();
    let adjusted = multiple::benjamini_hochberg(&p);
    let mut cells = Vec::new();
    for (at, pair) in pairs.iter().enumerate() {
        let Some(ours) = results.aggregate(pair.cell, figure) else { continue };
        let interval = cell_intervals.get(at).copied().flatten().filter(|_| ours.runs > 1);
        let within = lies_within(interval, difference[at], options.margin);
        let powerless = distributions[at].last().is_none_or(|&least| least > options.level);
        let verdict = match adjusted[at] <= options.level {
            true if !within => Verdict::Disagree,
            false if !within || powerless => Verdict::Undecided,
            _ => Verdict::Agree,
        };
        cells.push(CellComparison {
            x: pair.place.0.label.clone(),
            learning_rate: pair.place.1.label.clone(),
            ours,
            theirs: theirs[at],
            diverged: results.counts(pair.cell).diverged,
            difference: difference[at],
            interval,
            p: p[at],
            adjusted_p: adjusted[at],
            verdict,
        });
    }
    let comparison = GridComparison {
        model: grid.setting.model.clone(),
        setting: grid.setting.panel_label(),
        axis: grid.setting.axis_name().to_owned(),
        verdict: Verdict::Undecided,
        reason: String::new(),
        compared: pairs.len(),
        cells_of_each: [
            measured(results, grid, figure),
            grid.published_grid().map_or(0, |grid| grid.cells.len()),
        ],
        counts: results.grid_counts(grid),
        seeds: [range(side.samples.iter().map(Sample::len)), five],
        difference: known_mean(difference.iter().copied()),
        interval,
        absolute_difference: known_mean(difference.iter().map(|x| x.abs())),
        expected_absolute_difference: expected(&side, &drawn, five[1]),
        rank_correlation: rank::spearman(&means, &their_means),
        robust_areas: areas(
            &[side.worst(&side.every()), their_worst],
            &[side.area_intervals(&draws), [None; THRESHOLDS.len()]],
        ),
        p: outside::tail(&total, outside.last_epoch),
        adjusted_p: f64::NAN,
        least_p: outside::tail(&total, outside.runs),
        outside: Some(outside),
        same_runs: 0,
        cells,
    };
    Ok((comparison, total))
}

/// Runs outside the published ranges: over all cells; and by cell the distribution of their
/// number, and the number itself.
fn outside_of(pairs: &[Pair], side: &Side, figure: &str) -> (Outside, Vec<Vec<f64>>, Vec<usize>) {
    let cells = || pairs.iter().map(|pair| pair.published).zip(&side.samples);
    let counts: Vec<[usize; 3]> =
        cells().map(|(published, sample)| count_outside(published, sample, figure)).collect();
    let known = || counts.iter().map(|[runs, ..]| *runs).zip(cells());
    let distributions: Vec<Vec<f64>> = known()
        .map(|(runs, (published, _))| outside::distribution(runs, published.runs as usize))
        .collect();
    let expected = |(runs, (published, _)): (usize, (&published::Cell, _))| {
        2.0 * runs as f64 / f64::from(published.runs + 1)
    };
    let outside = Outside {
        runs: counts.iter().map(|[runs, ..]| runs).sum(),
        last_epoch: counts.iter().map(|[_, last, _]| last).sum(),
        best_epoch: counts.iter().map(|[.., best]| best).sum(),
        expected: known().map(expected).sum(),
        noticeable: None,
    };
    (outside, distributions, counts.into_iter().map(|[_, last, _]| last).collect())
}

/// How many runs of a cell have the last epoch of the published ones, how many of these lie
/// outside the published range of that epoch, and how many lie outside by their best epochs.
fn count_outside(published: &published::Cell, sample: &Sample, figure: &str) -> [usize; 3] {
    // The published values have four decimals: half a unit of the last is inside.
    let half = 0.5e-4 + 1e-9;
    let outside = |x: f64, min: f64, max: f64| usize::from(x < min - half || x > max + half);
    let mut counts = [0; 3];
    let band = published.curves().and_then(|curves| curves.figure(figure));
    if let Some(band) = band
        && let (Some(min), Some(max)) = (band.min.last(), band.max.last())
    {
        for &x in sample.curves().filter_map(|curve| curve.get(band.min.len() - 1)) {
            counts[0] += 1;
            counts[1] += outside(x, *min, *max);
        }
    }
    if let Some(range) = published.aggregate(figure) {
        let best = sample.curves().map(|curve| curve.iter().copied().fold(f64::NAN, f64::max));
        counts[2] = best.map(|x| outside(x, range.min, range.max)).sum();
    }
    counts
}

/// The mean absolute difference between samples of as many seeds as we have and samples of as
/// many as the published side has, both drawn from ours.
fn expected(side: &Side, drawn: &[Vec<f64>], theirs: usize) -> Option<f64> {
    let others = side.draws(theirs, 1);
    let apart = drawn.iter().zip(&others).map(|(means, weights)| {
        let differences = differences(means, &side.means(weights));
        known_mean(differences.into_iter().map(f64::abs))
    });
    Some(known_mean(apart)).filter(|x| !x.is_nan())
}

/// Why a grid has no published cell with runs.
fn why_none(results: &Results, grid: &Grid, figure: &str) -> String {
    let setting = &grid.setting;
    let published = grid.cells.values().any(|cell| counterpart(grid, cell).is_some());
    let others = setting.others_label();
    if published || measured(results, grid, figure) == 0 {
        "no run of it has finished".to_owned()
    } else if family::find(&setting.model).is_none() {
        format!("model {} is not known to this version", setting.model)
    } else if !others.is_empty() {
        format!("other settings than the paper's: {others}")
    } else {
        "no grid of this task, axis and model was published".to_owned()
    }
}
