//! A comparison in a terminal of 80 columns.

use super::{CellComparison, Comparison, GridComparison, Verdict};
use crate::statistics::aggregate::Aggregate;
use crate::statistics::bootstrap::Interval;

/// Cells that are shown of each grid.
const MOST_CELLS: usize = 3;

/// Everything a reader needs to judge.
pub fn text(comparison: &Comparison) -> String {
    let ours = &comparison.ours;
    let mut text = wrapped("ours:   ", &format!("{} ({} runs)", ours.name, ours.runs));
    text += &match comparison.theirs.runs {
        0 => "theirs: published by the paper's authors (arXiv 2005.09561), five seeds\n".to_owned(),
        runs => wrapped("theirs: ", &format!("{} ({runs} runs)", comparison.theirs.name)),
    };
    let figure = if comparison.figure == "val_accuracy" { "validation" } else { "training" };
    text +=
        &format!("{figure} accuracy, both sides: of each cell the best epoch of the seeds' mean\n");
    let mut settings: Vec<&str> = Vec::new();
    for grid in &comparison.grids {
        if !settings.contains(&grid.setting.as_str()) {
            settings.push(&grid.setting);
        }
    }
    for setting in settings {
        let of = |grid: &&GridComparison| grid.setting == setting;
        let grids: Vec<_> = comparison.grids.iter().filter(of).collect();
        text += &format!("\n{}", wrapped("", setting));
        text += &differences(&grids);
        text += &areas(&grids);
        text += &unfinished(&grids);
        for grid in &grids {
            text += &wrapped(&format!("{}: {}: ", grid.model, grid.verdict.as_str()), &grid.reason);
            text += &farthest(grid);
        }
    }
    text += &headlines(comparison);
    if !comparison.not_compared.is_empty() {
        text += "\nnot compared\n";
        for left in &comparison.not_compared {
            text += &wrapped("  ", &format!("{}: {}", left.grid, left.reason));
        }
    }
    let count = |verdict| comparison.grids.iter().filter(|grid| grid.verdict == verdict).count();
    let tests = comparison.grids.len();
    text += "\n";
    text += &wrapped(
        "",
        &format!(
            "{}: {} of {tests} grids agree, {} undecided, {} disagree (level {} for all grids \
             together; differences up to {} do not matter)",
            comparison.verdict.as_str(),
            count(Verdict::Agree),
            count(Verdict::Undecided),
            count(Verdict::Disagree),
            comparison.level,
            comparison.margin
        ),
    );
    text
}

fn differences(grids: &[&GridComparison]) -> String {
    let published = grids.iter().any(|grid| grid.outside.is_some());
    let last = if published { "outside" } else { "differ" };
    let mut text = format!(
        "  {:9} {:>7} {:>5} {:>6} {:>15} {:>5} {:>5} {last:>8} {:>7}\n",
        "model", "cells", "seeds", "diff", "interval", "|diff|", "rank", "p"
    );
    for grid in grids {
        let last = match grid.outside {
            Some(outside) => format!("{}/{}", outside.last_epoch, outside.runs),
            None => format!("{}/{}", grid.cells_that(Verdict::Disagree), grid.compared),
        };
        text += &format!(
            "  {:9} {:>7} {:>5} {:>+6.3} {:>15} {:>6.3} {:>5} {last:>8} {:>7}\n",
            grid.model,
            format!("{}/{}", grid.compared, grid.cells_of_each[1]),
            seeds(grid),
            grid.difference,
            interval(grid.interval),
            grid.absolute_difference,
            grid.rank_correlation.map_or("-".to_owned(), |rank| format!("{rank:.2}")),
            probability(grid.adjusted_p),
        );
    }
    text
}

fn areas(grids: &[&GridComparison]) -> String {
    let mut text =
        "  robust area, ours [interval] theirs: cells whose worst seed exceeds\n".to_owned();
    text += &format!("  {:9} {:>21} {:>21} {:>21}\n", "", "50 %", "95 %", "99 %");
    for grid in grids {
        text += &format!("  {:9}", grid.model);
        for area in &grid.robust_areas {
            let spread = area
                .ours_interval
                .map_or(String::new(), |i| format!("[{:.2},{:.2}] ", i.low, i.high));
            text += &format!(" {:>21}", format!("{:.2} {spread}{:.2}", area.ours, area.theirs));
        }
        text.push('\n');
    }
    text
}

/// What is missing, where anything is.
fn unfinished(grids: &[&GridComparison]) -> String {
    let mut text = String::new();
    for grid in grids {
        let counts = &grid.counts;
        let all = [
            (counts.diverged, "diverged"),
            (counts.failed, "failed"),
            (counts.missing, "not yet run"),
        ];
        let some: Vec<_> =
            all.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        if !some.is_empty() {
            let finished = counts.finished;
            text += &format!("  {}: {finished} runs finished; {}\n", grid.model, some.join(", "));
        }
    }
    text
}

/// The cells that are farthest apart, those that differ first.
fn farthest(grid: &GridComparison) -> String {
    let mut cells: Vec<&CellComparison> = grid.cells.iter().collect();
    let key = |cell: &CellComparison| (cell.verdict == Verdict::Disagree, cell.difference.abs());
    cells.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    let mut text = String::new();
    for cell in cells.iter().take(MOST_CELLS).filter(|cell| cell.difference.abs() > 0.005) {
        let side = |a: &Aggregate| format!("{:.3} ({:.3}-{:.3})", a.mean, a.min, a.max);
        let (ours, theirs) = (side(&cell.ours), side(&cell.theirs));
        let place = format!("{} {} lr {}", grid.axis, cell.x, cell.learning_rate);
        let verdict = cell.verdict.as_str();
        text += &wrapped("    ", &format!("{place}: {ours} vs {theirs} {verdict}"));
    }
    text
}

fn headlines(comparison: &Comparison) -> String {
    let with_ours = comparison.headlines.iter().any(|headline| headline.ours.is_some());
    if !with_ours {
        return String::new();
    }
    let mut text = "\nheadline figures of the paper, in percent\n".to_owned();
    let mut figure = "";
    for headline in comparison.headlines.iter().filter(|headline| headline.ours.is_some()) {
        if figure != headline.figure {
            figure = headline.figure;
            text += &format!("  {figure}\n");
            text += &wrapped("    ", headline.rule);
            text += &format!(
                "    {:6} {:>7} {:>10} {:>6}  {}\n",
                "model", "paper", "its cells", "ours", "at"
            );
        }
        let percent = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.1}"));
        let value = |pick: &Option<super::headline::Pick>| pick.as_ref().map(|p| 100.0 * p.value);
        let Some(ours) = &headline.ours else { continue };
        text += &format!(
            "    {:6} {:>7} {:>10} {:>6}  {} lr {}, {} seeds; {} of {} cells run\n",
            headline.model,
            percent(headline.stated),
            percent(value(&headline.published)),
            percent(value(&headline.ours)),
            ours.x,
            ours.learning_rate,
            ours.runs,
            headline.coverage[0],
            headline.coverage[1]
        );
    }
    text
}

fn seeds(grid: &GridComparison) -> String {
    let [least, most] = grid.seeds[0];
    if least == most { least.to_string() } else { format!("{least}-{most}") }
}

fn interval(interval: Option<Interval>) -> String {
    interval.map_or("-".to_owned(), |i| format!("{:+.3},{:+.3}", i.low, i.high))
}

fn probability(p: f64) -> String {
    if p < 1e-3 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

/// Words in lines of 80 columns, behind a prefix.
fn wrapped(prefix: &str, words: &str) -> String {
    let mut text = String::new();
    let mut line = prefix.to_owned();
    let indent = " ".repeat(2 + prefix.len() - prefix.trim_start().len());
    let mut empty = true;
    for word in words.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > 80 {
            text += &format!("{}\n", line.trim_end());
            line = indent.clone();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    text + &format!("{}\n", line.trim_end())
}
