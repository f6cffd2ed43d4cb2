//! The paper's headline figures, by the rules that made them.

use nap_engine::config::{CasesReadout, TaskName};
use serde::Serialize;

use crate::grids::{Grid, Results};
use crate::published;
use crate::statistics::aggregate::Aggregate;

/// A headline figure of one model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Headline {
    /// What it is.
    pub figure: &'static str,
    /// The rule that picks it.
    pub rule: &'static str,
    /// The model.
    pub model: &'static str,
    /// As the paper states it, in percent.
    pub stated: Option<f64>,
    /// From the published cells.
    pub published: Option<Pick>,
    /// From our runs of the paper's settings.
    pub ours: Option<Pick>,
    /// Cells of ours that could be picked, and of how many.
    pub coverage: [usize; 2],
}

/// The cell that a rule picks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pick {
    /// Value of the axis.
    pub x: String,
    /// Learning rate.
    pub learning_rate: String,
    /// The figure: a mean accuracy.
    pub value: f64,
    /// The same of the worst seed.
    pub min: f64,
    /// Of the best seed.
    pub max: f64,
    /// Number of seeds.
    pub runs: usize,
}

struct Rule {
    figure: &'static str,
    rule: &'static str,
    task: TaskName,
    sweep: &'static str,
    /// The value of the axis, if it is given.
    x: Option<usize>,
    by: &'static str,
    shown: &'static str,
    /// Learning rates times values of the axis.
    cells: usize,
    models: [Option<f64>; 5],
}

/// The models of the paper's headline figures.
const MODELS: [&str; 5] = ["nap", "bert", "mte", "max", "sum"];

const RULES: [Rule; 3] = [
    Rule {
        figure: "case distinction, first-token, N = 128",
        rule: "dim sweep; the cell of the best mean validation accuracy; that accuracy",
        task: TaskName::Cases,
        sweep: "dim",
        x: None,
        by: "val_accuracy",
        shown: "val_accuracy",
        cells: 80,
        models: [Some(93.8), Some(71.5), Some(57.7), Some(90.9), Some(29.1)],
    },
    Rule {
        figure: "mode, vocabulary 256, training",
        rule: "vocab sweep; the learning rate of the best mean training accuracy; that accuracy",
        task: TaskName::Mode,
        sweep: "vocab",
        x: Some(256),
        by: "train_accuracy",
        shown: "train_accuracy",
        cells: 10,
        models: [Some(84.6), Some(74.4), Some(64.9), Some(3.1), None],
    },
    Rule {
        figure: "mode, vocabulary 256, validation (N = 256)",
        rule: "the same cell; its mean validation accuracy",
        task: TaskName::Mode,
        sweep: "vocab",
        x: Some(256),
        by: "train_accuracy",
        shown: "val_accuracy",
        cells: 10,
        models: [Some(64.3), None, None, Some(2.1), None],
    },
];

/// A cell that a rule may pick: its place, and a figure's aggregate.
struct Candidate {
    x: String,
    learning_rate: String,
    by: Aggregate,
    shown: Aggregate,
}

/// Every headline figure, those of the paper's models that any side has.
pub fn all(results: Option<&Results>) -> Vec<Headline> {
    let mut all = Vec::new();
    for rule in &RULES {
        for (model, stated) in MODELS.into_iter().zip(rule.models) {
            let published = pick(published_candidates(rule, model));
            let ours = results.map_or_else(Vec::new, |results| candidates(rule, model, results));
            let coverage = [ours.len(), rule.cells];
            let ours = pick(ours);
            if stated.is_some() || published.is_some() || ours.is_some() {
                let (figure, rule) = (rule.figure, rule.rule);
                all.push(Headline { figure, rule, model, stated, published, ours, coverage });
            }
        }
    }
    all
}

/// The first of the best.
fn pick(candidates: Vec<Candidate>) -> Option<Pick> {
    let best = candidates
        .into_iter()
        .reduce(|best, other| if other.by.mean > best.by.mean { other } else { best })?;
    let Candidate { x, learning_rate, shown, .. } = best;
    let Aggregate { min, mean: value, max, runs } = shown;
    Some(Pick { x, learning_rate, value, min, max, runs })
}

fn published_candidates(rule: &Rule, model: &str) -> Vec<Candidate> {
    let grid = published::grids().iter().find(|grid| {
        (grid.task.as_str(), grid.sweep.as_str()) == (rule.task.as_str(), rule.sweep)
            && grid.readout == "first-token"
            && grid.model.to_lowercase() == model
    });
    let cells = grid.map_or(&[][..], |grid| &grid.cells);
    let candidate = |cell: &&&published::Cell| {
        Some(Candidate {
            x: cell.x.to_string(),
            learning_rate: format!("0.3^{}", cell.lr_exponent),
            by: cell.aggregate(rule.by)?,
            shown: cell.aggregate(rule.shown)?,
        })
    };
    let fits = |cell: &&&published::Cell| rule.x.is_none_or(|x| cell.x == x);
    cells.iter().filter(fits).filter_map(|cell| candidate(&cell)).collect()
}

/// Of our grid of the paper's settings, that of the latest numerics version.
fn candidates(rule: &Rule, model: &str, results: &Results) -> Vec<Candidate> {
    let fits = |grid: &&Grid| {
        let setting = &grid.setting;
        setting.task == rule.task
            && setting.readout.is_none_or(|readout| readout == CasesReadout::FirstToken)
            && setting.axis_name() == rule.sweep
            && setting.model == model
            && setting.others.is_empty()
    };
    let Some(grid) = results.grids.iter().find(fits) else { return Vec::new() };
    let candidate = |(&(x, rate), cell): (&(usize, usize), &_)| {
        let level = &grid.xs[x];
        if rule.x.is_some_and(|x| level.number != Some(x as f64)) {
            return None;
        }
        Some(Candidate {
            x: level.label.clone(),
            learning_rate: grid.rates[rate].label.clone(),
            by: results.aggregate(cell, rule.by)?,
            shown: results.aggregate(cell, rule.shown)?,
        })
    };
    grid.cells.iter().filter_map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_cells_give_the_papers_figures() {
        let all = all(None);
        let mut without = Vec::new();
        for headline in &all {
            let Some(stated) = headline.stated else { continue };
            match &headline.published {
                Some(pick) => {
                    assert_eq!((pick.value * 1e3).round() / 10.0, stated, "{headline:?}");
                    assert_eq!(pick.runs, 5);
                }
                None => without.push((headline.figure, headline.model)),
            }
        }
        // The one that has no published grid.
        assert_eq!(without, [("case distinction, first-token, N = 128", "mte")]);
        assert_eq!(all.iter().filter(|headline| headline.stated.is_some()).count(), 11);
        let nap = all[0].published.as_ref().unwrap();
        assert_eq!((nap.x.as_str(), nap.learning_rate.as_str()), ("512", "0.3^7"));
    }
}
