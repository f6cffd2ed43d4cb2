//! A comparison as CSV: one row per cell.

use super::{CellComparison, Comparison, GridComparison};
use crate::statistics::bootstrap::Interval;

const COLUMNS: [&str; 25] = [
    "setting",
    "model",
    "axis",
    "x",
    "learning_rate",
    "ours_runs",
    "ours_min",
    "ours_mean",
    "ours_max",
    "ours_diverged",
    "theirs_runs",
    "theirs_min",
    "theirs_mean",
    "theirs_max",
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "adjusted_p",
    "verdict",
    "grid_difference",
    "grid_absolute_difference",
    "grid_p",
    "grid_adjusted_p",
    "grid_verdict",
];

/// The cells of every grid, each with the figures of its grid; a missing value is empty.
///
/// # Errors
/// None in practice: it is written to memory.
pub fn csv(comparison: &Comparison) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for grid in &comparison.grids {
        for cell in &grid.cells {
            writer.write_record(row(grid, cell))?;
        }
    }
    Ok(String::from_utf8(writer.into_inner().map_err(|error| error.into_error())?)?)
}

fn row(grid: &GridComparison, cell: &CellComparison) -> [String; COLUMNS.len()] {
    let number = |x: f64| if x.is_finite() { x.to_string() } else { String::new() };
    let end = |of: fn(Interval) -> f64| cell.interval.map_or(String::new(), |i| number(of(i)));
    [
        grid.setting.clone(),
        grid.model.clone(),
        grid.axis.clone(),
        cell.x.clone(),
        cell.learning_rate.clone(),
        cell.ours.runs.to_string(),
        number(cell.ours.min),
        number(cell.ours.mean),
        number(cell.ours.max),
        cell.diverged.to_string(),
        cell.theirs.runs.to_string(),
        number(cell.theirs.min),
        number(cell.theirs.mean),
        number(cell.theirs.max),
        number(cell.difference),
        end(|i| i.low),
        end(|i| i.high),
        number(cell.p),
        number(cell.adjusted_p),
        cell.verdict.as_str().to_owned(),
        number(grid.difference),
        number(grid.absolute_difference),
        number(grid.p),
        number(grid.adjusted_p),
        grid.verdict.as_str().to_owned(),
    ]
}
