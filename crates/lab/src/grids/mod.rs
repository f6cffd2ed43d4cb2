//! Results as grids: what reports and comparisons are made of.
//!
//! Records of any number of sweeps, runs and journals (as [`read`] takes them)
//! become [`Results`]: the runs, and the [`Grid`]s that they fill. A grid belongs to one task,
//! one model, one swept key (the *axis*) and one learning-rate axis; everything else in the
//! configuration, the numerics version and the precision are the same in all of its runs. Runs
//! that differ in anything else are in other grids. A cell holds the runs that differ in nothing
//! but their seed.
//!
//! The axis is that of the sweep which planned a run; runs that no sweep planned (`nap train`,
//! journals alone) are grouped by the key that varies among them.

mod grid;
mod infer;
mod read;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use nap_engine::config::RunConfig;
use nap_engine::train::NUMERICS_VERSION;

use crate::error::bad;
use crate::export;
use crate::published;
use crate::resolve::flatten;
use crate::statistics::aggregate::Aggregate;
use crate::sweep::axis::{Axis, LEARNING_RATE};
use crate::sweep::directory::SweepDir;
use crate::sweep::identity::RunId;
use crate::sweep::journal::Journal;
use crate::sweep::record::{RunRecord, Status};
use crate::sweep::spec::SweepSpec;
pub use grid::{Cell, Counts, Grid, Level, Setting};
pub use read::read;

/// The axis of grids that have none beside the learning rate.
const DEFAULT_AXIS: &str = "model.dim";

/// Runs, and the grids that they fill.
#[derive(Debug, Default)]
pub struct Results {
    /// Every run that ended, in the order of exports.
    pub runs: Vec<RunRecord>,
    /// The grids: by task, axis, other settings, and model in the order of `nap models`.
    pub grids: Vec<Grid>,
    /// What a user should know.
    pub notes: Vec<String>,
}

/// Where a run or a planned run belongs: the swept key, and the keys that go along with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Membership {
    axis: String,
    along: Vec<String>,
}

impl Membership {
    fn of(spec: &SweepSpec) -> Self {
        let usable = |axis: &&Axis| {
            ![LEARNING_RATE, "task.name", "task.readout"].contains(&axis.key.as_str())
        };
        let x = spec.axes.iter().find(usable);
        let rate = spec.axes.iter().find(|axis| axis.key == LEARNING_RATE);
        let firsts = x.into_iter().chain(rate).filter_map(|axis| axis.values.first());
        let along = firsts.flat_map(|value| value.with.iter().map(|(key, _)| key.clone()));
        let axis = x.map_or(DEFAULT_AXIS, |axis| &axis.key).to_owned();
        Self { axis, along: along.collect() }
    }
}

impl Results {
    /// Reads sweep directories, directories of finished runs, directories and files of journals.
    ///
    /// # Errors
    /// If one cannot be read, or no run has ended in any.
    pub fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut journal = Journal::default();
        let mut planned = Vec::new();
        let mut said = 0;
        for path in paths {
            let part = read(path)?;
            said += part.differing().len();
            journal.merge(part);
            let specs = SweepDir::at(path);
            if path.is_dir() && SweepDir::open(path).is_ok() {
                match specs.grids() {
                    Ok(grids) => planned.extend(grids),
                    // A model or a key of a newer version: its runs can still be grouped.
                    Err(error) => journal
                        .notes
                        .push(format!("{error:#}: what was planned there is not known")),
                }
            }
        }
        if journal.differing().len() > said {
            journal.notes.push(format!(
                "{} runs have other records in one place than in another: the first by \
                 instruction set and content is taken",
                journal.differing().len() - said
            ));
        }
        let none = journal.runs.is_empty() && journal.others.is_empty();
        if none {
            let why = journal.notes.first().map_or(String::new(), |note| format!(" ({note})"));
            let places: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            return Err(bad(format!("no run has ended in {}{why}", places.join(", "))));
        }
        let planned = planned.iter().flat_map(|grid| {
            let member = Membership::of(&grid.spec);
            grid.runs.iter().map(move |run| (member.clone(), &run.config))
        });
        Ok(Self::new(journal, &planned.collect::<Vec<_>>()))
    }

    /// Of records alone.
    pub fn of(journal: Journal) -> Self {
        Self::new(journal, &[])
    }

    fn new(mut journal: Journal, planned: &[(Membership, &RunConfig)]) -> Self {
        let mut notes = std::mem::take(&mut journal.notes);
        let mut known = HashSet::new();
        notes.retain(|note| known.insert(note.clone()));
        // That of the missing runs, too.
        let numerics = match journal.runs.is_empty() {
            true => journal.others.values().map(|run| run.numerics).max().unwrap_or_default(),
            false => NUMERICS_VERSION,
        };
        let mut runs = Vec::with_capacity(journal.runs.len() + journal.others.len());
        for mut records in [journal.runs, journal.others] {
            let order: Vec<RunId> = export::in_order(&records).iter().map(|run| run.id).collect();
            runs.extend(order.iter().filter_map(|id| records.remove(id)));
        }
        let mut builder = Builder::default();
        let index: HashMap<RunId, usize> =
            runs.iter().enumerate().map(|(at, run)| (run.id, at)).collect();
        let versions: BTreeSet<u32> =
            runs.iter().map(|run| run.numerics).chain([numerics]).collect();
        let mut placed = vec![false; runs.len()];
        for (member, config) in planned {
            for &version in &versions {
                match index.get(&RunId::of_version(config, version)) {
                    Some(&at) => {
                        placed[at] = true;
                        builder.add(&runs[at], at, member);
                    }
                    None if version == numerics => builder.add_missing(config, numerics, member),
                    None => {}
                }
            }
        }
        let free: Vec<usize> = (0..runs.len()).filter(|&at| !placed[at]).collect();
        for (at, member) in infer::memberships(&runs, &free) {
            builder.add(&runs[at], at, &member);
        }
        Self { grids: builder.finish(&runs), runs, notes }
    }

    /// The values of a figure by epoch, one list per run of the cell that has it, diverged runs
    /// included.
    pub fn curves(&self, cell: &Cell, figure: &str) -> Vec<&[f64]> {
        let runs = cell.runs.iter().map(|&at| &self.runs[at]);
        runs.filter_map(|run| run.epochs.0.get(figure).map(Vec::as_slice)).collect()
    }

    /// The paper's aggregate: the largest over the epochs of that epoch's minimum, mean and
    /// maximum over the seeds.
    pub fn aggregate(&self, cell: &Cell, figure: &str) -> Option<Aggregate> {
        Aggregate::of(&self.curves(cell, figure))
    }

    /// Minimum, mean and maximum over the seeds at an epoch, counted from 1.
    pub fn aggregate_at(&self, cell: &Cell, figure: &str, epoch: usize) -> Option<Aggregate> {
        let curves = self.curves(cell, figure);
        let one: Option<Vec<&[f64]>> =
            curves.iter().map(|curve| curve.get(epoch.checked_sub(1)?..epoch)).collect();
        Aggregate::of(&one?)
    }

    /// Minimum, mean and maximum over the seeds at every epoch.
    pub fn band(&self, cell: &Cell, figure: &str) -> published::Band {
        let curves = self.curves(cell, figure);
        let epochs = curves.iter().map(|curve| curve.len()).min().unwrap_or(0);
        let mut band = published::Band::default();
        for epoch in 1..=epochs {
            let at = self.aggregate_at(cell, figure, epoch);
            let value = |of: fn(&Aggregate) -> f64| at.as_ref().map_or(f64::NAN, of);
            band.min.push(value(|a| a.min));
            band.mean.push(value(|a| a.mean));
            band.max.push(value(|a| a.max));
        }
        band
    }

    /// How many runs of a cell ended how.
    pub fn counts(&self, cell: &Cell) -> Counts {
        let diverged = cell.runs.iter().filter(|&&at| self.runs[at].diverged_at.is_some()).count();
        Counts {
            finished: cell.runs.len(),
            diverged,
            failed: cell.failed.len(),
            missing: cell.missing.len(),
        }
    }

    /// The same of a whole grid.
    pub fn grid_counts(&self, grid: &Grid) -> Counts {
        grid.cells.values().map(|cell| self.counts(cell)).sum()
    }
}

/// Grids under construction.
#[derive(Default)]
struct Builder {
    /// By setting; several where runs of one setting and place differ in what goes along.
    grids: BTreeMap<String, Vec<Draft>>,
}

struct Draft {
    setting: Setting,
    cells: BTreeMap<(Level, Level), Cell>,
}

impl Builder {
    fn add(&mut self, run: &RunRecord, at: usize, member: &Membership) {
        let version = (run.numerics, run.precision.as_str());
        let cell = self.cell(&run.config, version, member);
        let list = if run.status == Status::Finished { &mut cell.runs } else { &mut cell.failed };
        if !list.contains(&at) {
            list.push(at);
        }
    }

    fn add_missing(&mut self, config: &RunConfig, numerics: u32, member: &Membership) {
        let seed = config.train.seed;
        let cell = self.cell(config, (numerics, config.train.precision.name()), member);
        if !cell.missing.contains(&seed) {
            cell.missing.push(seed);
        }
    }

    fn cell(&mut self, config: &RunConfig, version: (u32, &str), member: &Membership) -> &mut Cell {
        let keys = flatten(config);
        let place = (Level::of(&keys, &member.axis), Level::of(&keys, LEARNING_RATE));
        let (setting, key) = Setting::new(config, &keys, version, &member.axis, &member.along);
        let drafts = self.grids.entry(key).or_default();
        let point = published::point(config);
        // A place has one configuration.
        let fits = |draft: &Draft| draft.cells.get(&place).is_none_or(|cell| cell.point == point);
        let at = drafts.iter().position(fits).unwrap_or_else(|| {
            drafts.push(Draft { setting, cells: BTreeMap::new() });
            drafts.len() - 1
        });
        drafts[at].cells.entry(place).or_insert_with(|| Cell::new(config, point))
    }

    fn finish(self, runs: &[RunRecord]) -> Vec<Grid> {
        let drafts = self.grids.into_values().flatten();
        let mut grids: Vec<Grid> =
            drafts.map(|draft| Grid::new(draft.setting, draft.cells, runs)).collect();
        grids.sort_by_key(|grid| grid.setting.order());
        grids
    }
}

/// The paths as one name, for headings.
pub fn name_of(paths: &[PathBuf]) -> String {
    let name = |path: &PathBuf| Path::display(path).to_string();
    paths.iter().map(name).collect::<Vec<_>>().join(", ")
}
