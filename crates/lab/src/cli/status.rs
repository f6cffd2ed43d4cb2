//! `nap status`: how far a sweep is, also while it runs.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::output::{note, print, print_line};
use crate::sweep::directory::SweepDir;
use crate::sweep::grid::Grid;
use crate::sweep::journal::Journal;
use crate::sweep::map::Map;
use crate::sweep::record::Status;

/// Show how far a sweep is, also while it runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap status sweeps/mode-dim
  nap status sweeps/mode-dim --json")]
pub struct Args {
    /// Directory of a sweep
    pub directory: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Counts of runs.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    runs: usize,
    finished: usize,
    diverged: usize,
    failed: usize,
    /// Not ended, with a checkpoint.
    begun: usize,
}

impl Counts {
    fn to_json(self) -> Value {
        json!({
            "runs": self.runs,
            "finished": self.finished,
            "diverged": self.diverged,
            "failed": self.failed,
            "begun": self.begun,
            "left": self.runs - self.finished - self.failed,
        })
    }
}

/// Runs the command.
///
/// # Errors
/// If there is no sweep, or it cannot be read.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let dir = SweepDir::open(&args.directory)?;
    let grids = dir.grids()?;
    let journal = dir.journal()?;
    let begun: HashSet<_> = dir.checkpoints()?.into_iter().collect();
    journal.notes.iter().for_each(|text| note(format!("note: {text}\n")));
    let known: HashSet<_> = grids.iter().flat_map(|grid| &grid.runs).map(|run| run.id).collect();
    let foreign = journal.runs.keys().filter(|id| !known.contains(id)).count();
    let mut all = Vec::new();
    for grid in &grids {
        let mut counts = vec![Counts::default(); grid.spec.models.len()];
        for run in &grid.runs {
            let count = &mut counts[run.model];
            count.runs += 1;
            match journal.runs.get(&run.id) {
                None => count.begun += usize::from(begun.contains(&run.id)),
                Some(record) if record.status == Status::Failed => count.failed += 1,
                Some(record) => {
                    count.finished += 1;
                    count.diverged += usize::from(record.diverged_at.is_some());
                }
            }
        }
        all.push(counts);
    }
    if args.json {
        let sweeps = grids.iter().zip(&all).map(|(grid, counts)| {
            let models = grid.spec.models.iter().zip(counts);
            let models = models.map(|(name, counts)| (name.clone(), counts.to_json()));
            json!({
                "name": grid.spec.name,
                "total": total(counts).to_json(),
                "models": models.collect::<serde_json::Map<_, _>>(),
            })
        });
        let sweeps: Vec<_> = sweeps.collect();
        print_line(json!({ "sweeps": sweeps, "foreign_records": foreign }).to_string())?;
    } else {
        for (grid, counts) in grids.iter().zip(&all) {
            print(table(grid, counts, &journal))?;
        }
        if foreign > 0 {
            print_line(format!("{foreign} more records belong to no sweep of this directory"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn total(counts: &[Counts]) -> Counts {
    counts.iter().fold(Counts::default(), |sum, c| Counts {
        runs: sum.runs + c.runs,
        finished: sum.finished + c.finished,
        diverged: sum.diverged + c.diverged,
        failed: sum.failed + c.failed,
        begun: sum.begun + c.begun,
    })
}

fn table(grid: &Grid, counts: &[Counts], journal: &Journal) -> String {
    let mut map = Map::new(grid);
    for run in &grid.runs {
        journal.runs.get(&run.id).into_iter().for_each(|record| map.add(run, record));
    }
    let all = total(counts);
    let mut text = format!(
        "sweep {}: {} of {} runs finished, {} failed, {} begun\n\n",
        grid.spec.name, all.finished, all.runs, all.failed, all.begun
    );
    text +=
        "model      runs  finished  diverged  failed  begun  best cell, mean validation accuracy\n";
    for (model, (name, c)) in grid.spec.models.iter().zip(counts).enumerate() {
        let best = map.best(model).map_or_else(String::new, |(aggregate, place)| {
            format!("{:.4} of {} at {place}", aggregate.mean, aggregate.runs)
        });
        let line = format!(
            "{name:9} {:>5} {:>9} {:>9} {:>7} {:>6}  {best}",
            c.runs, c.finished, c.diverged, c.failed, c.begun
        );
        text += line.trim_end();
        text.push('\n');
    }
    let terminal = std::io::stdout().is_terminal();
    let width = if terminal { usize::from(console::Term::stdout().size().1) } else { 100 };
    let colours = terminal && console::colors_enabled();
    text.push('\n');
    for line in map.lines(width, colours) {
        text += &line;
        text.push('\n');
    }
    text += if colours {
        "red: worst seed, green: mean, blue: best seed\n\n"
    } else {
        "digits: mean over the seeds in tenths; . nothing yet, x failed\n\n"
    };
    text
}
