//! Robustness curves: the best mean accuracies of all cells of a grid, the largest first.

use super::svg::{Anchor, INK, RULE, SOFT, Svg};
use super::{Split, colour};
use crate::report::panel::{ModelGrid, Panel, Source};
use crate::statistics::robustness::robustness_curve;

const PLOT: (f64, f64) = (440.0, 300.0);
const CORNER: (f64, f64) = (48.0, 64.0);

/// The curve of a grid.
fn sorted(grid: &ModelGrid, split: Split) -> Vec<f64> {
    let cells = grid.cells.iter().flatten();
    robustness_curve(cells.map(|cell| cell.splits[split as usize].best[1]))
}

/// The curves of a panel; none if no grid has two cells.
pub fn draw(panel: &Panel, split: Split) -> Option<Svg> {
    let lines = panel.grids.iter().map(|grid| (grid, sorted(grid, split)));
    let mut lines: Vec<_> = lines.filter(|(_, means)| means.len() > 1).collect();
    if lines.is_empty() {
        return None;
    }
    let average = |means: &[f64]| means.iter().sum::<f64>() / means.len() as f64;
    lines.sort_by(|(_, a), (_, b)| average(b).total_cmp(&average(a)));
    let both = lines.iter().any(|(grid, _)| grid.source != lines[0].0.source);
    let height = (CORNER.1 + PLOT.1 + 52.0).max(CORNER.1 + 20.0 + 18.0 * lines.len() as f64);
    let mut svg = Svg::new(720.0, height);
    let at =
        |share: f64, value: f64| (CORNER.0 + PLOT.0 * share, CORNER.1 + PLOT.1 * (1.0 - value));
    svg.strong((16.0, 24.0), &panel.title, 15.0, INK);
    let what = format!(
        "{} accuracy (mean over the seeds, best epoch) of all settings, sorted",
        split.title()
    );
    svg.text((16.0, 42.0), &what, 12.0, SOFT, Anchor::Start);
    for step in 0..=4 {
        let share = f64::from(step) / 4.0;
        svg.line(at(0.0, share), at(1.0, share), if step == 0 { "#c4c4be" } else { RULE }, 1.0);
        let (x, y) = at(0.0, share);
        svg.text((x - 8.0, y + 4.0), &format!("{}", 25 * step), 10.5, SOFT, Anchor::End);
        let (x, y) = at(share, 0.0);
        svg.text((x, y + 16.0), &format!("{}%", 25 * step), 10.5, SOFT, Anchor::Middle);
    }
    let (x, y) = at(0.0, 0.0);
    svg.text((x, y + 34.0), "share of settings →", 10.5, SOFT, Anchor::Start);
    let (legend, top) = (CORNER.0 + PLOT.0 + 28.0, CORNER.1 + 8.0);
    svg.text((704.0, top), "average of all settings", 10.5, SOFT, Anchor::End);
    for (i, (grid, means)) in lines.iter().enumerate() {
        let model = &panel.models[grid.model];
        let dashed = both && grid.source == Source::Published;
        let dash = if dashed { " stroke-dasharray=\"5 3\"" } else { "" };
        let paint = colour::of_model(&model.name, grid.model);
        let style = format!("fill=\"none\" stroke=\"{paint}\" stroke-width=\"1.8\"{dash}");
        let last = (means.len() - 1) as f64;
        let points: Vec<_> =
            means.iter().enumerate().map(|(i, &value)| at(i as f64 / last, value)).collect();
        svg.path(&points, false, &style);
        let y = top + 20.0 + 18.0 * i as f64;
        svg.path(&[(legend, y - 4.0), (legend + 20.0, y - 4.0)], false, &style);
        svg.strong((legend + 28.0, y), &model.label, 12.0, INK);
        let from = legend + 34.0 + 8.0 * model.label.len() as f64;
        svg.text((from, y), grid.source.name(), 10.5, SOFT, Anchor::Start);
        let text = format!("{:.1}", 100.0 * average(means));
        svg.text((704.0, y), &text, 12.0, INK, Anchor::End);
    }
    Some(svg)
}
