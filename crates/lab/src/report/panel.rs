//! What one picture shows: the grids of one sweep, all models side by side.

use nap_engine::model::family::FAMILIES;

use super::command::command;
use super::words::{about, axis_title, heading, label, slug, task_words};
use crate::grids::{Cell, Grid, Level, Results};
use crate::published::{self, Band};

/// Training and validation, in the order in which splits are stored.
pub const SPLITS: [&str; 2] = ["train", "val"];

/// Index of validation in [`SPLITS`].
pub const VALIDATION: usize = 1;

/// The cases whose accuracies make the red, green and blue of a map of cases.
const CASES: [&str; 3] = ["argmin", "first", "argmax"];

/// Whose measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Runs of this program.
    Ours,
    /// The paper's authors'.
    Published,
}

impl Source {
    /// As pages and pictures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Published => "published",
        }
    }
}

/// A column of pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// As `--model` takes it.
    pub name: String,
    /// As the paper writes it.
    pub label: String,
}

/// The grids of one task, axis and settings.
#[derive(Debug, Clone)]
pub struct Panel {
    /// For file names.
    pub slug: String,
    /// Short, as in `mode by dim`.
    pub name: String,
    /// In words.
    pub title: String,
    /// What was trained and measured, in a sentence or two.
    pub lead: String,
    /// The axis across: its short name, and in words.
    pub axis: (String, String),
    /// Its values.
    pub xs: Vec<Level>,
    /// Learning rates, downwards.
    pub rates: Vec<Level>,
    /// The models, in columns.
    pub models: Vec<Model>,
    /// A grid or two of each model: ours, then the published one.
    pub grids: Vec<ModelGrid>,
}

/// A model's cells from one source.
#[derive(Debug, Clone)]
pub struct ModelGrid {
    /// Index in [`Panel::models`].
    pub model: usize,
    /// Whose measurements.
    pub source: Source,
    /// The most seeds of a cell, planned or run.
    pub seeds: usize,
    /// The most epochs of a run.
    pub epochs: usize,
    /// The settings that all cells share, in words.
    pub about: String,
    /// By learning rate, then by value of the axis; none where nothing ran or was planned.
    pub cells: Vec<Option<CellValues>>,
}

/// The figures of a cell.
#[derive(Debug, Clone, Default)]
pub struct CellValues {
    /// Seeds of the runs that finished; empty for published cells, whose seeds are not known.
    pub seeds: Vec<u64>,
    /// How many of these diverged.
    pub diverged: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Runs that were planned and have not ended.
    pub missing: usize,
    /// Steps of an epoch, if the configuration is known.
    pub steps_per_epoch: Option<usize>,
    /// Milliseconds per training step of each run whose speed is known.
    pub step_ms: Vec<f64>,
    /// What runs it again, if this program can.
    pub command: Option<String>,
    /// Training and validation.
    pub splits: [SplitValues; 2],
}

/// The accuracies of a cell in training or in validation. NaN where there is none.
#[derive(Debug, Clone)]
pub struct SplitValues {
    /// The paper's aggregate over the seeds: minimum, mean, maximum.
    pub best: [f64; 3],
    /// The best epoch of the mean accuracy in the argmin, first and argmax case.
    pub best_cases: [f64; 3],
    /// Minimum, mean and maximum over the seeds by epoch.
    pub band: Band,
    /// Mean accuracy in the three cases by epoch; empty if not known.
    pub cases: Vec<[f64; 3]>,
    /// Each seed's accuracies by epoch, in the order of the cell's seeds.
    pub runs: Vec<Vec<f64>>,
}

impl Default for SplitValues {
    fn default() -> Self {
        let none = [f64::NAN; 3];
        let (band, cases, runs) = (Band::default(), Vec::new(), Vec::new());
        Self { best: none, best_cases: none, band, cases, runs }
    }
}

impl SplitValues {
    /// Minimum, mean and maximum over the seeds, at an epoch from 1 or each at its best.
    pub fn seeds_at(&self, epoch: Option<usize>) -> [f64; 3] {
        let Some(epoch) = epoch else { return self.best };
        let value = |values: &[f64]| values.get(epoch - 1).copied().unwrap_or(f64::NAN);
        [value(&self.band.min), value(&self.band.mean), value(&self.band.max)]
    }

    /// Mean accuracy in the argmin, first and argmax case, likewise.
    pub fn cases_at(&self, epoch: Option<usize>) -> [f64; 3] {
        let Some(epoch) = epoch else { return self.best_cases };
        self.cases.get(epoch - 1).copied().unwrap_or([f64::NAN; 3])
    }
}

impl Panel {
    /// A model's grid.
    pub fn grid(&self, model: usize, source: Source) -> Option<&ModelGrid> {
        self.grids.iter().find(|grid| grid.model == model && grid.source == source)
    }

    /// Whether any cell has accuracies of the three cases.
    pub fn has_cases(&self) -> bool {
        let cells = self.grids.iter().flat_map(|grid| grid.cells.iter().flatten());
        let mut splits = cells.flat_map(|cell| &cell.splits);
        splits.any(|split| split.best_cases.iter().any(|x| !x.is_nan()))
    }

    /// The most epochs of any run.
    pub fn epochs(&self) -> usize {
        self.grids.iter().map(|grid| grid.epochs).max().unwrap_or(0)
    }

    /// Index of a cell by its places on the axis and among the learning rates.
    pub fn index(&self, x: usize, rate: usize) -> usize {
        rate * self.xs.len() + x
    }
}

/// The panels of results, each grid with the published one beside it where there is one.
pub fn of_results(results: &Results) -> Vec<Panel> {
    let mut groups: Vec<Vec<&Grid>> = Vec::new();
    for grid in &results.grids {
        let label = grid.setting.panel_label();
        match groups.iter_mut().find(|group| group[0].setting.panel_label() == label) {
            Some(group) => group.push(grid),
            None => groups.push(vec![grid]),
        }
    }
    let mut panels: Vec<_> = groups.iter().map(|group| own_panel(results, group)).collect();
    for i in 0..panels.len() {
        let same = panels[..i].iter().filter(|panel| panel.slug == panels[i].slug).count();
        if same > 0 {
            panels[i].slug += &format!("-{}", same + 1);
        }
    }
    panels
}

fn own_panel(results: &Results, group: &[&Grid]) -> Panel {
    let setting = &group[0].setting;
    let union = |of: fn(&Grid) -> &Vec<Level>| {
        let mut levels: Vec<Level> = group.iter().flat_map(|grid| of(grid).clone()).collect();
        levels.sort();
        levels.dedup();
        levels
    };
    let xs = union(|grid| &grid.xs);
    let mut rates = union(|grid| &grid.rates);
    rates.reverse();
    let (mut models, mut grids) = (Vec::<Model>::new(), Vec::new());
    for grid in group {
        let model = models.len();
        let name = grid.setting.model.clone();
        let same = models.iter().filter(|other| other.name == name).count();
        let again = if same > 0 { format!(" ({})", same + 1) } else { String::new() };
        models.push(Model { label: label(&name) + &again, name });
        let mut cells = vec![None; xs.len() * rates.len()];
        for ((x, rate), cell) in &grid.cells {
            let x = xs.iter().position(|level| *level == grid.xs[*x]);
            let rate = rates.iter().position(|level| *level == grid.rates[*rate]);
            if let (Some(x), Some(rate)) = (x, rate) {
                cells[rate * xs.len() + x] = Some(own_cell(results, cell));
            }
        }
        let config = grid.cells.values().next().map(|cell| &cell.config);
        let about = config.map_or_else(String::new, |config| about(config, &setting.axis));
        grids.push(model_grid(model, Source::Ours, about, cells));
        if let Some(published) = grid.published_grid() {
            grids.push(published_cells(model, published, &xs, &rates));
        }
    }
    let config = group[0].cells.values().next().map(|cell| &cell.config);
    let (name, axis) = (setting.panel_label(), axis_title(setting.axis_name()));
    let task = task_words(setting.task.as_str());
    let mut lead = format!("{}.", task.1);
    if let Some(config) = config.filter(|_| setting.axis != "task.length") {
        let (n, validation) = (config.task.length, config.validation_length());
        lead += &format!(" Trained on sequences of {n} tokens, validated on {validation}.");
    }
    let others = setting.others_label();
    if !others.is_empty() {
        lead += &format!(" Other than in the paper: {others}.");
    }
    let counts = group.iter().map(|grid| results.grid_counts(grid)).sum::<crate::grids::Counts>();
    lead += &format!(" {} run{}", counts.finished, if counts.finished == 1 { "" } else { "s" });
    for (n, what) in
        [(counts.diverged, "diverged"), (counts.failed, "failed"), (counts.missing, "to come")]
    {
        if n > 0 {
            lead += &format!(", {n} {what}");
        }
    }
    lead.push('.');
    Panel {
        slug: slug(&setting.task_label(), setting.axis_name()),
        title: format!("{}: {axis} against learning rate", heading(task.0, &setting.task_label())),
        name,
        lead,
        axis: (setting.axis_name().to_owned(), axis),
        xs,
        rates,
        models,
        grids,
    }
}

fn own_cell(results: &Results, cell: &Cell) -> CellValues {
    let counts = results.counts(cell);
    let seeds: Vec<u64> =
        cell.runs.iter().map(|&run| results.runs[run].config.train.seed).collect();
    let known: Vec<u64> = seeds
        .iter()
        .copied()
        .chain(cell.failed.iter().map(|&run| results.runs[run].config.train.seed))
        .chain(cell.missing.iter().copied())
        .collect();
    let splits = SPLITS.map(|split| {
        let figure = format!("{split}_accuracy");
        let best = results.aggregate(cell, &figure);
        let cases = CASES.map(|case| format!("{split}_case_{case}"));
        let means = cases.clone().map(|case| results.band(cell, &case).mean);
        let epochs = means.iter().map(Vec::len).min().unwrap_or(0);
        SplitValues {
            best: best.map_or([f64::NAN; 3], |a| [a.min, a.mean, a.max]),
            best_cases: cases
                .map(|case| results.aggregate(cell, &case).map_or(f64::NAN, |a| a.mean)),
            band: results.band(cell, &figure),
            cases: (0..epochs).map(|epoch| std::array::from_fn(|i| means[i][epoch])).collect(),
            runs: results.curves(cell, &figure).into_iter().map(<[f64]>::to_vec).collect(),
        }
    });
    let speeds = cell.runs.iter().map(|&run| results.runs[run].wall.steps_per_s);
    CellValues {
        command: command(&cell.config, &known),
        steps_per_epoch: Some(cell.config.train.steps_per_epoch),
        step_ms: speeds.filter(|&speed| speed > 0.0).map(|speed| 1e3 / speed).collect(),
        seeds,
        diverged: counts.diverged,
        failed: counts.failed,
        missing: counts.missing,
        splits,
    }
}

fn model_grid(
    model: usize,
    source: Source,
    about: String,
    cells: Vec<Option<CellValues>>,
) -> ModelGrid {
    let known = || cells.iter().flatten();
    let seeds = known().map(|cell| cell.seeds.len() + cell.failed + cell.missing).max();
    let epochs = known().flat_map(|cell| cell.splits.iter().map(|split| split.band.mean.len()));
    let (seeds, epochs) = (seeds.unwrap_or(0), epochs.max().unwrap_or(0));
    ModelGrid { model, source, seeds, epochs, about, cells }
}

/// The panels of everything that is published.
pub fn of_published() -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for grid in published::grids() {
        let name = format!("{} by {}", grid.task, grid.sweep);
        let at = panels.iter().position(|panel| panel.name == name).unwrap_or_else(|| {
            panels.push(published_panel(grid, name));
            panels.len() - 1
        });
        let panel = &mut panels[at];
        let name = grid.model.to_lowercase();
        panel.models.push(Model { label: label(&name), name });
        let cells = published_cells(panel.models.len() - 1, grid, &panel.xs, &panel.rates);
        panel.grids.push(cells);
    }
    panels.iter_mut().for_each(in_order);
    panels
}

/// Puts a panel's models in the order of `nap models`.
fn in_order(panel: &mut Panel) {
    let rank = |model: &Model| FAMILIES.iter().position(|family| family.name == model.name);
    let rank = |model: usize| rank(&panel.models[model]).unwrap_or(FAMILIES.len());
    let mut order: Vec<usize> = (0..panel.models.len()).collect();
    order.sort_by_key(|&model| rank(model));
    panel.models = order.iter().map(|&model| panel.models[model].clone()).collect();
    for grid in &mut panel.grids {
        grid.model = order.iter().position(|&model| model == grid.model).unwrap_or(grid.model);
    }
    panel.grids.sort_by_key(|grid| grid.model);
}

fn published_panel(grid: &published::Grid, name: String) -> Panel {
    let mut xs: Vec<usize> = grid.cells.iter().map(|cell| cell.x).collect();
    xs.sort_unstable();
    xs.dedup();
    let mut exponents: Vec<i32> = grid.cells.iter().map(|cell| cell.lr_exponent).collect();
    exponents.sort_unstable();
    exponents.dedup();
    let level = |label: String, number| Level { label, number: Some(number) };
    let axis = axis_title(&grid.sweep);
    let task = task_words(&grid.task);
    let readout = match grid.readout.as_str() {
        "per-token" => ", read from each token",
        "first-token" => ", read from the first token",
        _ => "",
    };
    Panel {
        slug: slug(&grid.task, &grid.sweep),
        name,
        title: format!("{}: {axis} against learning rate", task.0),
        lead: format!(
            "{}{readout}. Measured by the paper’s authors, {} seeds a setting.",
            task.1,
            grid.cells.first().map_or(0, |cell| cell.runs)
        ),
        axis: (grid.sweep.clone(), axis),
        xs: xs.into_iter().map(|x| level(x.to_string(), x as f64)).collect(),
        rates: exponents
            .into_iter()
            .map(|k| level(format!("0.3^{k}"), (0.3f64.powi(k) as f32).into()))
            .collect(),
        models: Vec::new(),
        grids: Vec::new(),
    }
}

/// The published cells at the places of a panel.
fn published_cells(
    model: usize,
    grid: &published::Grid,
    xs: &[Level],
    rates: &[Level],
) -> ModelGrid {
    let mut cells = vec![None; xs.len() * rates.len()];
    let mut seeds = 0;
    for cell in &grid.cells {
        let x = xs.iter().position(|level| level.number == Some(cell.x as f64));
        let rate = format!("0.3^{}", cell.lr_exponent);
        let rate = rates.iter().position(|level| level.label == rate);
        if let (Some(x), Some(rate)) = (x, rate) {
            cells[rate * xs.len() + x] = Some(published_cell(cell));
            seeds = seeds.max(cell.runs as usize);
        }
    }
    let about = "Measured by the paper’s authors".to_owned();
    ModelGrid { seeds, ..model_grid(model, Source::Published, about, cells) }
}

fn published_cell(cell: &published::Cell) -> CellValues {
    let splits = SPLITS.map(|split| {
        let figure = format!("{split}_accuracy");
        let best = cell.aggregate(&figure);
        let band = cell.curves().and_then(|curves| curves.figure(&figure)).cloned();
        let case = |case| cell.mean(&format!("{split}_case_{case}")).unwrap_or(f64::NAN);
        SplitValues {
            best: best.map_or([f64::NAN; 3], |a| [a.min, a.mean, a.max]),
            best_cases: CASES.map(case),
            band: band.unwrap_or_default(),
            ..SplitValues::default()
        }
    });
    let seeds: Vec<u64> = (0..u64::from(cell.runs)).collect();
    let config = cell.config();
    CellValues {
        command: config.as_ref().and_then(|config| command(config, &seeds)),
        steps_per_epoch: config.map(|config| config.train.steps_per_epoch),
        splits,
        ..CellValues::default()
    }
}
