//! The paper's maps: a grid cell's seeds in one colour.

use std::collections::HashMap;

use super::grid::{Grid, PlannedRun};
use super::record::{RunRecord, Status};
use crate::plot::colour::of_accuracies;
use crate::statistics::aggregate::Aggregate;

/// The figure that maps show.
pub const FIGURE: &str = "val_accuracy";

/// The state of a grid's cells.
pub struct Map<'a> {
    grid: &'a Grid,
    /// Axis across and axis down.
    axes: [Option<usize>; 2],
    cells: HashMap<(usize, Vec<usize>), Cell>,
}

#[derive(Default)]
struct Cell {
    curves: Vec<Vec<f64>>,
    failed: bool,
}

/// One model's map, and one for each combination of further axes.
struct Panel {
    title: String,
    model: usize,
    place: Vec<usize>,
}

impl<'a> Map<'a> {
    /// A map without results.
    pub fn new(grid: &'a Grid) -> Self {
        let axes = [grid.spec.x_index(), grid.spec.rate_index()];
        Self { grid, axes, cells: HashMap::new() }
    }

    /// Adds a run that ended.
    pub fn add(&mut self, run: &PlannedRun, record: &RunRecord) {
        let cell = self.cells.entry((run.model, run.place.clone())).or_default();
        match (record.status, record.epochs.0.get(FIGURE)) {
            (Status::Finished, Some(curve)) => cell.curves.push(curve.clone()),
            _ => cell.failed = true,
        }
    }

    /// A model's cell at a place of the grid.
    pub fn aggregate(&self, model: usize, place: &[usize]) -> Option<Aggregate> {
        let cell = self.cells.get(&(model, place.to_vec()))?;
        Aggregate::of(&cell.curves.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// The best cell of a model by its mean, and its label.
    pub fn best(&self, model: usize) -> Option<(Aggregate, String)> {
        let places = self.cells.keys().filter(|(of, _)| *of == model);
        let mut all: Vec<_> =
            places.filter_map(|(_, place)| Some((self.aggregate(model, place)?, place))).collect();
        all.sort_by(|(a, x), (b, y)| b.mean.total_cmp(&a.mean).then(x.cmp(y)));
        let (aggregate, place) = all.first()?;
        let axes = self.grid.spec.axes.iter().zip(place.iter());
        let label = axes.map(|(axis, &at)| format!("{} {}", axis.name(), axis.values[at].label));
        Some((*aggregate, label.collect::<Vec<_>>().join(" ")))
    }

    /// The maps as lines of at most `width` columns, models side by side: in colours (red, green
    /// and blue are the worst, the mean and the best seed), else the mean in tenths.
    pub fn lines(&self, width: usize, colours: bool) -> Vec<String> {
        let axes = &self.grid.spec.axes;
        let count = |axis: Option<usize>| axis.map_or(1, |axis| axes[axis].values.len());
        let [across, down] = self.axes;
        let [columns, rows] = self.axes.map(count);
        let row_label = |row: usize| down.map_or("", |axis| &axes[axis].values[row].label);
        let margin = (0..rows).map(|row| row_label(row).len()).max().unwrap_or(0);
        let panels = self.panels();
        let panel_width = panels.iter().map(|p| p.title.len()).max().unwrap_or(0).max(2 * columns);
        let beside = (width.saturating_sub(margin + 1) / (panel_width + 2)).max(1);
        let mut lines = Vec::new();
        for group in panels.chunks(beside) {
            let mut title = " ".repeat(margin + 1);
            group.iter().for_each(|p| title += &format!("{:panel_width$}  ", p.title));
            lines.push(title.trim_end().to_owned());
            for row in 0..rows {
                let mut line = format!("{:>margin$} ", row_label(row));
                for panel in group {
                    for column in 0..columns {
                        let mut place = panel.place.clone();
                        for (axis, at) in [(across, column), (down, row)] {
                            axis.into_iter().for_each(|axis| place[axis] = at);
                        }
                        line += &self.cell_text(panel.model, place, colours);
                    }
                    line += &" ".repeat(panel_width - 2 * columns + 2);
                }
                lines.push(line.trim_end().to_owned());
            }
        }
        if let Some(axis) = across.map(|axis| &axes[axis]) {
            let ends = [axis.values.first(), axis.values.last()].map(|value| match value {
                Some(value) => value.label.as_str(),
                None => "",
            });
            let down = if down.is_some() { ", down: learning rate" } else { "" };
            lines.push(format!("across: {} {} to {}{down}", axis.name(), ends[0], ends[1]));
        }
        lines
    }

    fn cell_text(&self, model: usize, place: Vec<usize>, colours: bool) -> String {
        let failed = self.cells.get(&(model, place.clone())).is_some_and(|cell| cell.failed);
        match self.aggregate(model, &place) {
            Some(aggregate) if colours => {
                let Aggregate { min, mean, max, .. } = aggregate;
                let [r, g, b] = of_accuracies([min, mean, max]).unwrap_or_default();
                let mark = if failed { "x " } else { "  " };
                format!("\x1b[48;2;{r};{g};{b}m{mark}\x1b[0m")
            }
            Some(aggregate) => format!(" {}", (aggregate.mean * 10.0).clamp(0.0, 9.0) as u8),
            None if failed => " x".to_owned(),
            None => " .".to_owned(),
        }
    }

    fn panels(&self) -> Vec<Panel> {
        let spec = &self.grid.spec;
        let further: Vec<_> =
            (0..spec.axes.len()).filter(|axis| !self.axes.contains(&Some(*axis))).collect();
        let mut places = vec![(String::new(), vec![0; spec.axes.len()])];
        for &axis in &further {
            let (name, values) = (spec.axes[axis].name(), &spec.axes[axis].values);
            let extend = |(title, place): &(String, Vec<usize>)| {
                let (title, place) = (title.clone(), place.clone());
                values.iter().enumerate().map(move |(at, value)| {
                    let mut place = place.clone();
                    place[axis] = at;
                    (format!("{title} {name} {}", value.label), place)
                })
            };
            places = places.iter().flat_map(extend).collect();
        }
        let models = spec.models.iter().enumerate();
        let panels = models.flat_map(|(model, name)| {
            places.iter().map(move |(title, place)| Panel {
                title: format!("{name}{title}"),
                model,
                place: place.clone(),
            })
        });
        panels.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::record::Wall;
    use crate::sweep::spec::SweepSpec;

    fn record(run: &PlannedRun, curve: Vec<f64>) -> RunRecord {
        let wall =
            Wall { finished: String::new(), host: String::new(), seconds: 0.0, steps_per_s: 0.0 };
        let mut record = RunRecord::failed(run.id, &run.config, String::new(), wall);
        if !curve.is_empty() {
            (record.status, record.reason) = (Status::Finished, None);
            record.epochs.0.insert(FIGURE.to_owned(), curve);
        }
        record
    }

    #[test]
    fn the_map_shows_what_there_is() {
        let text = "models = ['nap', 'max']\nseeds = 1\n[axes]\ndim = [8, 16]\nlr = ['0.3^1', '0.3^2']\n'model.gain' = [true, false]";
        let spec = SweepSpec::parse(text, "mine", "mine").unwrap();
        let grid = Grid::new(&spec).unwrap();
        let mut map = Map::new(&grid);
        map.add(&grid.runs[0], &record(&grid.runs[0], vec![0.3, 0.52]));
        map.add(&grid.runs[2], &record(&grid.runs[2], Vec::new()));
        let lines = map.lines(100, false);
        assert_eq!(
            lines[0],
            "      nap gain true   nap gain false  max gain true   max gain false"
                .replace("gain", "model.gain")
        );
        assert!(
            lines[1].starts_with("0.3^1  5 .") && lines[2].starts_with("0.3^2  x ."),
            "{lines:?}"
        );
        assert_eq!(lines.last().unwrap(), "across: dim 8 to 16, down: learning rate");
        assert_eq!(map.lines(30, false).len(), 4 * 3 + 1);
        assert!(map.lines(100, true)[1].contains("\x1b[48;2;133;133;133m"));
        assert_eq!(map.best(0).unwrap().1, "dim 8 lr 0.3^1 model.gain true");
        assert!(map.best(1).is_none());
    }
}
