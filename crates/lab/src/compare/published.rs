//! With the published grids, of which the range and the mean of five seeds are known.

use nap_engine::model::family;

use crate::grids::{Cell, Grid, Level, Results};
use crate::published;
use crate::statistics::bootstrap::{DRAWS, Draws};
use crate::statistics::robustness::{THRESHOLDS, robust_area};
use crate::statistics::{bootstrap, multiple, outside, rank};

use super::sample::{Sample, seeds, weights};
use super::{
    CellComparison, Comparison, GridComparison, NotCompared, Options, Outside, Source, Verdict,
    areas, headline, known_mean, lies_within, mean, measured, overall, range,
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
    sample: Sample<'a>,
}

/// A grid but for its verdict, in which the number of grids takes part, and the distribution of
/// its number of runs outside; or why it has no counterpart.
fn compare(
    results: &Results,
    grid: &Grid,
    options: &Options,
) -> Result<(GridComparison, Vec<f64>), String> {
    let figure = options.figure;
    let all = seeds(results, grid.cells.values());
    let mut pairs = Vec::new();
    for (&(x, rate), cell) in &grid.cells {
        let Some(published) = grid.published(cell) else { continue };
        let sample = Sample::of(results, cell, figure, &all);
        if !sample.is_empty() {
            pairs.push(Pair { place: (&grid.xs[x], &grid.rates[rate]), cell, published, sample });
        }
    }
    if pairs.is_empty() {
        return Err(why_none(results, grid, figure));
    }
    let every = vec![1.0; all.len()];
    let ours: Vec<f64> = pairs.iter().map(|pair| pair.sample.mean(&every)).collect();
    let of = |pair: &Pair| pair.published.aggregate(figure);
    let theirs: Vec<f64> = pairs.iter().map(|p| of(p).map_or(f64::NAN, |a| a.mean)).collect();
    let worst: Vec<f64> = pairs.iter().map(|pair| pair.sample.worst(&every)).collect();
    let their_worst: Vec<f64> = pairs.iter().map(|p| of(p).map_or(f64::NAN, |a| a.min)).collect();
    let drawn = draw(&pairs, &theirs, all.len());
    let mut robust_areas = areas(&worst, &their_worst);
    for (area, values) in robust_areas.iter_mut().zip(drawn.areas) {
        area.ours_interval = bootstrap::of(values);
    }
    let counts: Vec<[usize; 2]> = pairs.iter().map(|pair| count_outside(pair, figure)).collect();
    let distributions: Vec<Vec<f64>> = pairs
        .iter()
        .map(|pair| outside::distribution(pair.sample.len(), pair.published.runs as usize))
        .collect();
    let total = outside::sum(distributions.iter().map(Vec::as_slice));
    let outside = Outside {
        runs: pairs.iter().map(|pair| pair.sample.len()).sum(),
        last_epoch: counts.iter().map(|[last, _]| last).sum(),
        best_epoch: counts.iter().map(|[_, best]| best).sum(),
        expected: total.iter().enumerate().map(|(k, p)| k as f64 * p).sum(),
        noticeable: None,
    };
    let p: Vec<f64> =
        distributions.iter().zip(&counts).map(|(d, &[last, _])| outside::tail(d, last)).collect();
    let adjusted = multiple::benjamini_hochberg(&p);
    let intervals = drawn.cells.into_iter().map(bootstrap::of);
    let mut cells = Vec::new();
    for (i, (pair, interval)) in pairs.iter().zip(intervals).enumerate() {
        let (Some(aggregate), Some(published)) =
            (results.aggregate(pair.cell, figure), pair.published.aggregate(figure))
        else {
            continue;
        };
        let difference = aggregate.mean - published.mean;
        let least = distributions[i].last().copied().unwrap_or(1.0);
        let within = lies_within(interval, difference, options.margin);
        let verdict = match adjusted[i] <= options.level {
            true if !within => Verdict::Disagree,
            false if !within || least > options.level => Verdict::Undecided,
            _ => Verdict::Agree,
        };
        cells.push(CellComparison {
            x: pair.place.0.label.clone(),
            learning_rate: pair.place.1.label.clone(),
            ours: aggregate,
            theirs: published,
            diverged: results.counts(pair.cell).diverged,
            difference,
            interval,
            p: p[i],
            adjusted_p: adjusted[i],
            verdict,
        });
    }
    let differences = || ours.iter().zip(&theirs).map(|(a, b)| a - b);
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
        seeds: [
            range(pairs.iter().map(|pair| pair.sample.len())),
            range(pairs.iter().map(|pair| pair.published.runs as usize)),
        ],
        difference: mean(differences()),
        interval: bootstrap::of(drawn.differences),
        absolute_difference: mean(differences().map(f64::abs)),
        expected_absolute_difference: drawn.expected,
        rank_correlation: rank::spearman(&ours, &theirs),
        robust_areas,
        p: outside::tail(&total, outside.last_epoch),
        adjusted_p: f64::NAN,
        least_p: outside::tail(&total, outside.runs),
        outside: Some(outside),
        same_runs: 0,
        cells,
    };
    Ok((comparison, total))
}

/// How many runs of a cell lie outside the published range: in the last epoch, where every run
/// counts with one value, and by their best epochs.
fn count_outside(pair: &Pair, figure: &str) -> [usize; 2] {
    // The published values have four decimals.
    let rounded = |x: f64| (x * 1e4).round() / 1e4;
    let outside = |x: f64, min: f64, max: f64| {
        let x = rounded(x);
        usize::from(x < rounded(min) || x > rounded(max))
    };
    let mut counts = [0; 2];
    let band = pair.published.curves().and_then(|curves| curves.figure(figure));
    if let Some(band) = band
        && let (Some(min), Some(max)) = (band.min.last(), band.max.last())
    {
        let last = pair.sample.curves().filter_map(|curve| curve.get(band.min.len() - 1));
        counts[0] = last.map(|&x| outside(x, *min, *max)).sum();
    }
    if let Some(range) = pair.published.aggregate(figure) {
        let best = pair.sample.curves().map(|curve| curve.iter().copied().fold(f64::NAN, f64::max));
        counts[1] = best.map(|x| outside(x, range.min, range.max)).sum();
    }
    counts
}

/// Figures of samples of our seeds; the published side stays as it is.
#[derive(Default)]
struct Drawn {
    /// Difference of the means by cell and sample.
    cells: Vec<Vec<f64>>,
    /// Its mean over the cells, by sample.
    differences: Vec<f64>,
    /// Robust area by threshold and sample.
    areas: [Vec<f64>; THRESHOLDS.len()],
    /// The mean absolute difference between a sample of as many seeds as we have and one of as
    /// many as the published side has, both drawn from ours.
    expected: Option<f64>,
}

fn draw(pairs: &[Pair], theirs: &[f64], seeds: usize) -> Drawn {
    let mut drawn = Drawn { cells: vec![Vec::new(); pairs.len()], ..Drawn::default() };
    if seeds < 2 {
        return drawn;
    }
    let their_seeds = pairs.iter().map(|pair| pair.published.runs).max().unwrap_or(1) as usize;
    let mut ours = Draws::new(seeds, seeds, 0);
    let mut others = Draws::new(seeds, their_seeds, 1);
    let mut apart = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let ours = weights(seeds, ours.draw());
        let others = weights(seeds, others.draw());
        let means: Vec<f64> = pairs.iter().map(|pair| pair.sample.mean(&ours)).collect();
        for ((values, mean), published) in drawn.cells.iter_mut().zip(&means).zip(theirs) {
            values.push(mean - published);
        }
        drawn.differences.push(known_mean(means.iter().zip(theirs).map(|(a, b)| a - b)));
        let noise = pairs.iter().zip(&means).map(|(p, mean)| (p.sample.mean(&others) - mean).abs());
        apart.push(known_mean(noise));
        let worst: Vec<f64> = pairs.iter().map(|pair| pair.sample.worst(&ours)).collect();
        for (values, threshold) in drawn.areas.iter_mut().zip(THRESHOLDS) {
            let known = worst.iter().copied().filter(|x| !x.is_nan());
            values.push(robust_area(known, threshold));
        }
    }
    drawn.expected = Some(known_mean(apart.into_iter())).filter(|x| !x.is_nan());
    drawn
}

/// Why a grid has no published cell with runs.
fn why_none(results: &Results, grid: &Grid, figure: &str) -> String {
    let setting = &grid.setting;
    let published = grid.cells.values().any(|cell| grid.published(cell).is_some());
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
