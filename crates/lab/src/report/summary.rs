//! The table that compares the models of a panel.

use std::fmt::Write as _;

use super::panel::{ModelGrid, Panel, Source};
use crate::escape::escape;

/// Accuracies that a cell's worst seed has to exceed.
pub const LEVELS: [f64; 3] = [0.5, 0.95, 0.99];

/// A share of the cells, with the ends of its interval where the runs are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// From 0 to 1.
    pub value: f64,
    /// 95 % bootstrap interval over the seeds.
    pub interval: Option<(f64, f64)>,
}

/// A model's figures in validation.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Share of the cells whose worst seed exceeds each of [`LEVELS`].
    pub robust: Vec<Share>,
    /// Decades of learning rate.
    pub decades: Option<f64>,
    /// The cell with the best mean: its place on the axis and among the rates, and the mean.
    pub best: Option<(usize, usize, f64)>,
    /// Steps until the mean of the best cell exceeds 90 %.
    pub steps: Option<f64>,
    /// Milliseconds per training step in the best cell.
    pub step_ms: Option<f64>,
}

impl Summary {
    /// Of a grid.
    pub fn of(panel: &Panel, grid: &ModelGrid) -> Self {
        let columns = panel.xs.len();
        let known = grid.cells.iter().enumerate();
        let known: Vec<_> = known
            .filter_map(|(i, cell)| Some((i, cell.as_ref()?)))
            .filter(|(_, cell)| !cell.splits[1].best[1].is_nan())
            .collect();
        let share = |level: f64| {
            let above = known.iter().filter(|(_, cell)| cell.splits[1].best[0] > level).count();
            Share { value: above as f64 / known.len().max(1) as f64, interval: None }
        };
        let mean = |cell: &crate::report::panel::CellValues| cell.splits[1].best[1];
        let best = known.iter().rev().max_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)));
        Self {
            robust: LEVELS.map(share).to_vec(),
            best: best.map(|(i, cell)| (i % columns, i / columns, mean(cell))),
            ..Self::default()
        }
    }
}

/// The table of a panel, the `i`-th of a page. It can be read without scripts.
pub fn html(panel: &Panel, i: usize) -> String {
    let heads = [
        "Model",
        "Robust area, worst seed &gt; 50 %",
        "&gt; 95 %",
        "&gt; 99 %",
        "Usable decades of rate",
        "Best mean",
        "at",
        "Steps to 90 %",
        "ms a step",
    ];
    let mut text =
        format!("<div class=\"wide\" data-sweep=\"{i}\"><table class=\"models\">\n<thead><tr>");
    for head in heads {
        let _ = write!(text, "<th scope=\"col\"><button type=\"button\">{head}</button></th>");
    }
    text += "</tr></thead>\n<tbody>\n";
    for grid in &panel.grids {
        let model = &panel.models[grid.model];
        let summary = Summary::of(panel, grid);
        let source = grid.source.name();
        let _ = write!(
            text,
            "<tr class=\"{source}\"><th scope=\"row\" data-sort=\"{0}\">{0}<small>{source}</small></th>",
            escape(&model.label)
        );
        for share in &summary.robust {
            let _ = write!(text, "<td data-sort=\"{:.4}\">{}</td>", share.value, bar(share));
        }
        let number = |value: Option<f64>, digits: usize| match value {
            Some(x) => format!("<td data-sort=\"{x:.6}\">{x:.digits$}</td>"),
            None => "<td data-sort=\"\">–</td>".to_owned(),
        };
        text += &number(summary.decades, 1);
        text += &number(summary.best.map(|(_, _, mean)| 100.0 * mean), 1);
        let at = summary.best.map_or("<td data-sort=\"\">–</td>".to_owned(), |(x, rate, _)| {
            let (x, rate) = (&panel.xs[x], &panel.rates[rate]);
            let label = format!("{} {}, rate {}", panel.axis.0, x.label, rate.label);
            format!("<td data-sort=\"{}\">{}</td>", x.number.unwrap_or(0.0), escape(&label))
        });
        text += &at;
        text += &number(summary.steps, 0);
        text += &number(summary.step_ms, 1);
        text += "</tr>\n";
    }
    let note = match panel.grids.iter().any(|grid| grid.source == Source::Ours) {
        true => {
            "Validation accuracy. Robust area: share of the settings whose worst seed exceeds a level."
        }
        false => "Validation accuracy.",
    };
    let _ = write!(text, "</tbody></table><p class=\"note\">{note}</p></div>\n");
    text
}

/// A share in figures and as a bar with its interval.
fn bar(share: &Share) -> String {
    let width = 72.0 * share.value;
    let interval = share.interval.map_or(String::new(), |(low, high)| {
        format!("<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"6\" y2=\"6\" stroke=\"var(--ink)\" stroke-width=\"1.5\"/>", 72.0 * low + 1.0, 72.0 * high + 1.0)
    });
    let range = share.interval.map_or(String::new(), |(low, high)| {
        format!(" <small>{:.0}–{:.0}</small>", 100.0 * low, 100.0 * high)
    });
    format!(
        "{:.0} %{range}<svg viewBox=\"0 0 74 12\" aria-hidden=\"true\"><rect x=\"1\" y=\"2\" width=\"72\" height=\"8\" fill=\"var(--grid)\"/><rect x=\"1\" y=\"2\" width=\"{width:.1}\" height=\"8\" fill=\"var(--soft)\" opacity=\"0.55\"/>{interval}</svg>",
        100.0 * share.value
    )
}
