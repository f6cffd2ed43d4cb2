//! The table that compares the models of a panel, in validation.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::panel::{CellValues, ModelGrid, Panel, Source, VALIDATION};
use crate::escape::escape;
use crate::plot::svg::raised;
use crate::statistics::bootstrap::{self, Interval};
use crate::statistics::robustness::{THRESHOLDS, robust_area, usable_decades};

/// What a worst seed has to exceed for its learning rate to be usable.
const USABLE: f64 = THRESHOLDS[0];

/// The mean accuracy that is waited for.
const LEARNT: f64 = 0.9;

/// A model's figures.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Cells with results.
    pub cells: usize,
    /// Share of these whose worst seed exceeds each of [`THRESHOLDS`], with a bootstrap interval
    /// over the seeds where the runs are known.
    pub robust: Vec<(f64, Option<Interval>)>,
    /// Decades of learning rate whose worst seed exceeds 50 %, mean over the axis.
    pub decades: f64,
    /// The cell with the best mean: its place on the axis and among the rates, and the mean.
    pub best: Option<(usize, usize, f64)>,
    /// Training steps until that cell's mean is at least 90 %.
    pub steps: Option<usize>,
    /// Milliseconds per training step in that cell, the median of its runs.
    pub step_ms: Option<f64>,
}

impl Summary {
    /// Of a grid.
    pub fn of(panel: &Panel, grid: &ModelGrid) -> Self {
        let known: Vec<(usize, &CellValues)> = (grid.cells.iter().enumerate())
            .filter_map(|(i, cell)| Some((i, cell.as_ref()?)))
            .filter(|(_, cell)| !mean(cell).is_nan())
            .collect();
        let intervals = intervals(&known);
        let worst = || known.iter().map(|(_, cell)| cell.splits[VALIDATION].best[0]);
        let robust = THRESHOLDS.into_iter().zip(intervals);
        let robust = robust.map(|(level, interval)| (robust_area(worst(), level), interval));
        let columns = panel.xs.len();
        let decades = (0..columns).filter_map(|x| {
            let rates = known.iter().filter(|(i, _)| i % columns == x);
            let rates = rates.filter_map(|(i, cell)| {
                Some((panel.rates[i / columns].number?, cell.splits[VALIDATION].best[0]))
            });
            let rates: Vec<_> = rates.collect();
            (!rates.is_empty()).then(|| usable_decades(&rates, USABLE))
        });
        let decades: Vec<f64> = decades.collect();
        // The first of equals.
        let best = known.iter().rev().max_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)));
        let steps = best.and_then(|(_, cell)| {
            let means = &cell.splits[VALIDATION].band.mean;
            Some((1 + means.iter().position(|&mean| mean >= LEARNT)?) * cell.steps_per_epoch?)
        });
        Self {
            cells: known.len(),
            robust: robust.collect(),
            decades: decades.iter().sum::<f64>() / decades.len() as f64,
            best: best.map(|(i, cell)| (i % columns, i / columns, mean(cell))),
            steps,
            step_ms: best.and_then(|(_, cell)| median(&cell.step_ms)),
        }
    }
}

fn mean(cell: &CellValues) -> f64 {
    cell.splits[VALIDATION].best[1]
}

fn median(values: &[f64]) -> Option<f64> {
    let middle = bootstrap::quantile(values, 0.5);
    (!middle.is_nan()).then_some(middle)
}

/// The robust areas' intervals: seeds are drawn for the whole grid, since cells are paired by seed.
fn intervals(known: &[(usize, &CellValues)]) -> [Option<Interval>; 3] {
    let seeds: BTreeSet<u64> = known.iter().flat_map(|(_, cell)| cell.seeds.clone()).collect();
    let seeds: Vec<u64> = seeds.into_iter().collect();
    if seeds.len() < 2 || known.iter().any(|(_, cell)| cell.seeds.is_empty()) {
        return [None; 3];
    }
    let mut draws = bootstrap::Draws::new(seeds.len(), seeds.len(), 0);
    let mut values: [Vec<f64>; 3] = Default::default();
    for _ in 0..bootstrap::DRAWS {
        let drawn: BTreeSet<u64> = draws.draw().iter().map(|&pick| seeds[pick]).collect();
        let worst: Vec<f64> = known.iter().filter_map(|(_, cell)| worst(cell, &drawn)).collect();
        for (values, level) in values.iter_mut().zip(THRESHOLDS) {
            values.push(robust_area(worst.iter().copied(), level));
        }
    }
    values.map(bootstrap::of)
}

/// The largest over the epochs of the least accuracy of these seeds; none if none of them ran.
fn worst(cell: &CellValues, drawn: &BTreeSet<u64>) -> Option<f64> {
    let runs = cell.seeds.iter().zip(&cell.splits[VALIDATION].runs);
    let runs: Vec<_> = runs.filter(|(seed, _)| drawn.contains(seed)).map(|(_, run)| run).collect();
    let epochs = runs.iter().map(|run| run.len()).min()?;
    let least = |epoch: usize| runs.iter().map(|run| run[epoch]).fold(f64::INFINITY, f64::min);
    (0..epochs).map(least).reduce(f64::max)
}

/// The table of a panel, the `i`-th of a page. It can be read without scripts.
pub fn html(panel: &Panel, i: usize) -> String {
    const HEADS: [&str; 9] = [
        "Model",
        "Robust area, worst seed &gt; 50 %",
        "&gt; 95 %",
        "&gt; 99 %",
        "Usable decades of rate",
        "Best mean, %",
        "at",
        "Steps to 90 %",
        "ms a step",
    ];
    let title = escape(&panel.name);
    let mut text = format!(
        "<div class=\"wide\" data-sweep=\"{i}\" tabindex=\"0\" role=\"group\" aria-label=\"{title}\">\n\
         <table class=\"models\">\n<thead><tr>"
    );
    for head in HEADS {
        let _ = write!(text, "<th scope=\"col\"><button type=\"button\">{head}</button></th>");
    }
    text += "</tr></thead>\n<tbody>\n";
    panel.grids.iter().for_each(|grid| text += &row(panel, grid));
    let interval = match panel.grids.iter().any(|grid| grid.source == Source::Ours) {
        true => ", with the 95 % bootstrap interval over the seeds where the runs are known",
        false => "",
    };
    let _ = writeln!(
        text,
        "</tbody></table></div>\n<p class=\"note\" data-sweep=\"{i}\">Validation. Robust \
         area: share of the settings with results whose worst seed exceeds the level{interval}. \
         Usable decades: of learning rate, worst seed &gt; 50 %, mean over {}. Steps and time: in \
         the best cell.</p>",
        escape(&panel.axis.1)
    );
    text
}

fn row(panel: &Panel, grid: &ModelGrid) -> String {
    let summary = Summary::of(panel, grid);
    let (source, label) = (grid.source.name(), escape(&panel.models[grid.model].label));
    let partly = match summary.cells {
        n if n < grid.cells.len() => format!(", {n} of {} cells", grid.cells.len()),
        _ => String::new(),
    };
    let mut text = format!(
        "<tr class=\"{source}\"><th scope=\"row\" data-sort=\"{label}\">{label}\
         <small>{source}{partly}</small></th>"
    );
    let number = |value: Option<f64>, digits: usize| match value.filter(|x| !x.is_nan()) {
        Some(x) => format!("<td data-sort=\"{x:.6}\">{x:.digits$}</td>"),
        None => "<td data-sort=\"\">–</td>".to_owned(),
    };
    for (share, interval) in &summary.robust {
        text += &match share.is_nan() {
            true => number(None, 0),
            false => format!("<td data-sort=\"{share:.6}\">{}</td>", bar(*share, *interval)),
        };
    }
    text += &number(Some(summary.decades), 1);
    text += &number(summary.best.map(|(_, _, mean)| 100.0 * mean), 1);
    text += &match summary.best {
        None => number(None, 0),
        Some((x, rate, _)) => {
            let (x, rate) = (&panel.xs[x], &panel.rates[rate]);
            let place = format!("{} {}, {}", panel.axis.0, x.label, rate.label);
            format!(
                "<td data-sort=\"{}\">{}</td>",
                x.number.unwrap_or(0.0),
                escape(&raised(&place))
            )
        }
    };
    text += &number(summary.steps.map(|steps| steps as f64), 0);
    text += &number(summary.step_ms, 1);
    text + "</tr>\n"
}

/// A share in figures and as a bar, with its interval.
fn bar(share: f64, interval: Option<Interval>) -> String {
    let at = |x: f64| 1.0 + 72.0 * x;
    let (range, line) = interval.map_or_else(Default::default, |Interval { low, high }| {
        let range = format!(" <small>{:.0}–{:.0}</small>", 100.0 * low, 100.0 * high);
        let (from, to) = (at(low), at(high));
        (
            range,
            format!(
                "<path class=\"interval\" d=\"M{from:.1} 3v6M{to:.1} 3v6M{from:.1} 6H{to:.1}\"/>"
            ),
        )
    });
    format!(
        "{:.0}{range}<svg viewBox=\"0 0 74 12\" aria-hidden=\"true\"><rect class=\"all\" x=\"1\" \
         y=\"2\" width=\"72\" height=\"8\"/><rect class=\"part\" x=\"1\" y=\"2\" width=\"{:.1}\" \
         height=\"8\"/>{line}</svg>",
        100.0 * share,
        72.0 * share
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grids::Level;
    use crate::published::Band;
    use crate::report::panel::{Model, SplitValues};

    /// Two seeds' accuracies in two epochs.
    fn cell(runs: [[f64; 2]; 2], best: [f64; 3]) -> CellValues {
        let mean = (0..2).map(|epoch| (runs[0][epoch] + runs[1][epoch]) / 2.0).collect();
        let validation = SplitValues {
            best,
            band: Band { mean, ..Band::default() },
            runs: runs.map(Vec::from).to_vec(),
            ..SplitValues::default()
        };
        CellValues {
            seeds: vec![0, 1],
            steps_per_epoch: Some(100),
            step_ms: vec![10.0, 30.0],
            splits: [SplitValues::default(), validation],
            ..CellValues::default()
        }
    }

    /// One value of the axis, three learning rates, of which the last has no results.
    fn panel() -> Panel {
        let level = |x: f64| Level { label: x.to_string(), number: Some(x) };
        let learns = cell([[0.2, 0.96], [0.3, 0.97]], [0.96, 0.965, 0.97]);
        let wavers = cell([[0.9, 0.4], [0.1, 0.45]], [0.4, 0.5, 0.9]);
        let text = String::new;
        Panel {
            slug: text(),
            name: "mode by dim".to_owned(),
            title: text(),
            lead: text(),
            axis: ("dim".to_owned(), "width d".to_owned()),
            xs: vec![level(8.0)],
            rates: vec![level(0.1), level(0.01), level(0.001)],
            models: vec![Model { name: "nap".to_owned(), label: "NAP".to_owned() }],
            grids: vec![ModelGrid {
                model: 0,
                source: Source::Ours,
                seeds: 2,
                epochs: 2,
                about: text(),
                cells: vec![Some(learns), Some(wavers), None],
            }],
        }
    }

    #[test]
    fn figures_are_those_computed_by_hand() {
        let panel = panel();
        let summary = Summary::of(&panel, &panel.grids[0]);
        assert_eq!((summary.cells, summary.best), (2, Some((0, 0, 0.965))));
        // Seed 0 alone, a quarter of the draws, passes 50 % in both cells; other draws in one.
        let interval = |low, high| Some(Interval { low, high });
        let expected =
            [(0.5, interval(0.5, 1.0)), (0.5, interval(0.5, 0.5)), (0.0, interval(0.0, 0.0))];
        assert_eq!(summary.robust, expected);
        assert!((summary.decades - 1.0).abs() < 1e-12);
        assert_eq!((summary.steps, summary.step_ms), (Some(200), Some(20.0)));
        let row = row(&panel, &panel.grids[0]);
        assert!(row.contains("ours, 2 of 3 cells") && row.contains("50 <small>50–100</small>"));
    }

    #[test]
    fn what_is_not_known_is_no_figure() {
        let mut panel = panel();
        panel.grids[0].cells = vec![None, None, None];
        let summary = Summary::of(&panel, &panel.grids[0]);
        assert_eq!((summary.cells, summary.best, summary.steps), (0, None, None));
        assert!(
            summary.robust.iter().all(|(share, interval)| share.is_nan() && interval.is_none())
        );
        assert_eq!(row(&panel, &panel.grids[0]).matches("<td data-sort=\"\">–</td>").count(), 8);
    }
}
