//! With other results, of which every run is known.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use crate::grids::{Cell, Grid, Level, Results};
use crate::statistics::aggregate::Aggregate;
use crate::statistics::{multiple, permutation, rank};
use crate::sweep::identity::RunId;

use super::sample::{Sample, Side, difference_intervals, differences, seeds};
use super::{
    CellComparison, Comparison, GridComparison, NotCompared, Options, Source, Verdict, areas,
    known_mean, lies_within, measured, overall, range,
};

/// Compares two results, each with its name, cell by cell of the same configuration.
pub fn with_results(
    ours: (&str, &Results),
    theirs: (&str, &Results),
    options: &Options,
) -> Comparison {
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
    let mut grids = Vec::new();
    let mut statistics = Vec::new();
    for (grid, pairs) in &matched {
        let sides = [
            Side::of(ours.1, pairs.iter().map(|pair| pair.ours), options.figure, &our_seeds),
            Side::of(theirs.1, pairs.iter().map(|pair| pair.theirs), options.figure, &their_seeds),
        ];
        statistics.push(relabelled(&sides));
        grids.push(compare([ours.1, theirs.1], grid, pairs, &sides, options));
    }
    let adjusted = permutation::adjusted_p(&statistics);
    for ((grid, statistics), adjusted) in grids.iter_mut().zip(&statistics).zip(adjusted) {
        (grid.p, grid.adjusted_p) = (permutation::p_value(statistics), adjusted);
        grid.expected_absolute_difference = Some(known_mean(statistics.iter().copied()));
        judge(grid, options);
    }
    let notes = [ours, theirs].into_iter().flat_map(|(name, results)| {
        results.notes.iter().map(move |note| format!("{name}: {note}"))
    });
    let versions = matched.iter().filter_map(|(grid, pairs)| {
        let [own, other] = [&grid.setting, &theirs.1.grids[pairs.first()?.their_grid].setting]
            .map(|setting| format!("{}, numerics version {}", setting.precision, setting.numerics));
        let (model, panel) = (&grid.setting.model, grid.setting.panel_label());
        (own != other).then(|| format!("{model} {panel}: ours are {own}, theirs {other}"))
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
        notes: notes.chain(versions).collect(),
    }
}

/// A cell of both sides.
struct Match<'a> {
    place: (&'a Level, &'a Level),
    ours: &'a Cell,
    theirs: &'a Cell,
    their_grid: usize,
}

/// A version's cells by configuration: the grid and the cell.
type Index<'a> = HashMap<(u32, &'a str, RunId), (usize, &'a Cell)>;

fn index(results: &Results) -> Index<'_> {
    let mut index = Index::new();
    for (at, grid) in results.grids.iter().enumerate() {
        let (numerics, precision) = (grid.setting.numerics, grid.setting.precision.as_str());
        for cell in grid.cells.values() {
            // A cell at the crossing of two sweeps is in two grids, with the same runs.
            let entry = index.entry((numerics, precision, cell.point)).or_insert((at, cell));
            if entry.1.runs.len() < cell.runs.len() {
                *entry = (at, cell);
            }
        }
    }
    index
}

/// The cells that both sides have runs of: those of the other side of the same version, if it has
/// any, else of its latest.
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
    versions.sort_by_key(|version| (*version != own, Reverse(*version)));
    let of_version = |(numerics, precision): (u32, &'a str)| -> Vec<Match<'a>> {
        let pairs = grid.cells.iter().filter_map(|(&(x, rate), cell)| {
            let &(their_grid, other) = index.get(&(numerics, precision, cell.point))?;
            ours.aggregate(cell, figure)?;
            theirs.aggregate(other, figure)?;
            let place = (&grid.xs[x], &grid.rates[rate]);
            Some(Match { place, ours: cell, theirs: other, their_grid })
        });
        pairs.collect()
    };
    versions.into_iter().map(of_version).find(|pairs| !pairs.is_empty()).unwrap_or_default()
}

/// A grid but for its test and its verdict, in which the other grids take part.
fn compare(
    [ours, theirs]: [&Results; 2],
    grid: &Grid,
    pairs: &[Match],
    sides: &[Side; 2],
    options: &Options,
) -> GridComparison {
    let figure = options.figure;
    let means = sides.each_ref().map(|side| side.means(&side.every()));
    let worst = sides.each_ref().map(|side| side.worst(&side.every()));
    let difference = differences(&means[0], &means[1]);
    let draws = [0, 1].map(|side| sides[side].draws(sides[side].seeds, side as u64));
    let drawn = draws[0].iter().zip(&draws[1]);
    let drawn: Vec<_> =
        drawn.map(|(a, b)| differences(&sides[0].means(a), &sides[1].means(b))).collect();
    let (interval, cell_intervals) = difference_intervals(&drawn);
    let intervals = [0, 1].map(|side| sides[side].area_intervals(&draws[side]));
    let p: Vec<f64> = (0..pairs.len()).map(|at| cell_p(sides, at)).collect();
    let adjusted = multiple::benjamini_hochberg(&p);
    let mut cells = Vec::new();
    for (at, pair) in pairs.iter().enumerate() {
        let aggregates = (ours.aggregate(pair.ours, figure), theirs.aggregate(pair.theirs, figure));
        let (Some(of_ours), Some(of_theirs)) = aggregates else { continue };
        let mut cell = CellComparison {
            x: pair.place.0.label.clone(),
            learning_rate: pair.place.1.label.clone(),
            ours: of_ours,
            theirs: of_theirs,
            diverged: ours.counts(pair.ours).diverged,
            difference: difference[at],
            interval: cell_intervals.get(at).copied().flatten(),
            p: p[at],
            adjusted_p: adjusted[at],
            verdict: Verdict::Undecided,
        };
        cell.verdict = judge_cell(&mut cell, options);
        cells.push(cell);
    }
    let their_grids: BTreeSet<usize> = pairs.iter().map(|pair| pair.their_grid).collect();
    let their_cells = their_grids.iter().map(|&at| measured(theirs, &theirs.grids[at], figure));
    let our_seeds = seeds(ours, pairs.iter().map(|pair| pair.ours)).len();
    let their_seeds = seeds(theirs, pairs.iter().map(|pair| pair.theirs)).len();
    GridComparison {
        model: grid.setting.model.clone(),
        setting: grid.setting.panel_label(),
        axis: grid.setting.axis_name().to_owned(),
        verdict: Verdict::Undecided,
        reason: String::new(),
        compared: pairs.len(),
        cells_of_each: [measured(ours, grid, figure), their_cells.sum()],
        counts: ours.grid_counts(grid),
        seeds: sides.each_ref().map(|side| range(side.samples.iter().map(Sample::len))),
        difference: known_mean(difference.iter().copied()),
        interval,
        absolute_difference: known_mean(difference.iter().map(|x| x.abs())),
        expected_absolute_difference: None,
        rank_correlation: rank::spearman(&means[0], &means[1]),
        robust_areas: areas(&worst, &intervals),
        outside: None,
        same_runs: pairs.iter().map(|pair| same([ours, theirs], pair)).sum(),
        p: f64::NAN,
        adjusted_p: f64::NAN,
        least_p: permutation::least_p(our_seeds, their_seeds),
        cells,
    }
}

/// The mean over the cells of the absolute difference of the means, for every relabelling of the
/// seeds of both sides.
fn relabelled([ours, theirs]: &[Side; 2]) -> Vec<f64> {
    let samples = ours.samples.iter().zip(&theirs.samples);
    let joined: Vec<_> = samples.map(|(a, b)| a.joined(b, ours.seeds)).collect();
    let mut statistics = Vec::new();
    permutation::relabellings(ours.seeds, theirs.seeds, |first| {
        statistics.push(known_mean(joined.iter().map(|sample| apart(sample, first))));
    });
    statistics
}

/// The permutation test of the runs of one cell.
fn cell_p([ours, theirs]: &[Side; 2], at: usize) -> f64 {
    let (ours, theirs) = (&ours.samples[at], &theirs.samples[at]);
    let runs = ours.joined(theirs, 0).numbered();
    let mut statistics = Vec::new();
    permutation::relabellings(ours.len(), theirs.len(), |first| {
        statistics.push(apart(&runs, first));
    });
    permutation::p_value(&statistics)
}

/// The absolute difference of the means of two groups of a cell's runs; NaN if one is empty.
fn apart(sample: &Sample, first: &[bool]) -> f64 {
    let group = |side: bool| -> Vec<f64> {
        first.iter().map(|&first| if first == side { 1.0 } else { 0.0 }).collect()
    };
    (sample.mean(&group(true)) - sample.mean(&group(false))).abs()
}

/// Runs that are the same on both sides.
fn same([ours, theirs]: [&Results; 2], pair: &Match) -> usize {
    let is_same = |&&at: &&usize| {
        let run = &ours.runs[at];
        let mut others = pair.theirs.runs.iter().map(|&at| &theirs.runs[at]);
        others
            .any(|other| other.config.train.seed == run.config.train.seed && other.agrees_with(run))
    };
    pair.ours.runs.iter().filter(is_same).count()
}

fn judge_cell(cell: &mut CellComparison, options: &Options) -> Verdict {
    let [ours, theirs] = [cell.ours, cell.theirs].map(|Aggregate { runs, .. }| runs);
    // The seeds of the grid have a spread, but not the only run of a cell.
    cell.interval = cell.interval.filter(|_| ours > 1 && theirs > 1);
    let within =
        cell.interval.is_some() && lies_within(cell.interval, cell.difference, options.margin);
    let powerless = permutation::least_p(ours, theirs) > options.level;
    match cell.adjusted_p <= options.level {
        true if !within => Verdict::Disagree,
        false if !within || powerless => Verdict::Undecided,
        _ => Verdict::Agree,
    }
}

fn judge(grid: &mut GridComparison, options: &Options) {
    let runs: usize = grid.cells.iter().map(|cell| cell.ours.runs).sum();
    let expected = grid.expected_absolute_difference.unwrap_or(f64::NAN);
    let found = format!(
        "mean absolute difference {:.3}, {expected:.3} expected of seeds alone",
        grid.absolute_difference,
    );
    let within = grid.interval.is_some() && grid.within(options.margin);
    let identical = grid.same_runs == runs && grid.absolute_difference == 0.0;
    (grid.verdict, grid.reason) = if identical {
        (Verdict::Agree, format!("the same {runs} runs, to the bit"))
    } else if grid.adjusted_p <= options.level && within {
        (Verdict::Agree, format!("{found}: more than chance, but less than matters"))
    } else if grid.adjusted_p <= options.level {
        (Verdict::Disagree, found)
    } else if grid.least_p > options.level {
        let least = format!("with so few seeds no difference has p below {:.2}", grid.least_p);
        (Verdict::Undecided, format!("{found}; {least}"))
    } else if !within {
        (Verdict::Undecided, format!("{found}; a difference that matters is not excluded"))
    } else {
        (Verdict::Agree, found)
    };
}
