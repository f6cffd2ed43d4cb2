//! Reading results, wherever they are.

use std::path::Path;

use nap_engine::train::{NUMERICS_VERSION, Trained};

use crate::error::bad;
use crate::run_dir::{LAST, RunDir, State};
use crate::sweep::directory::SweepDir;
use crate::sweep::identity::RunId;
use crate::sweep::journal::{Journal, is_journal};
use crate::sweep::record::{RunRecord, Wall};

/// The records of a sweep's directory, of a run's directory that has finished, of a directory of
/// journal files, or of a file of journal lines, compressed by gzip or not.
///
/// # Errors
/// If there are none.
pub fn read(path: &Path) -> anyhow::Result<Journal> {
    if path.is_file() {
        return Journal::read_one(path);
    }
    let last = path.join(LAST);
    if last.is_file() {
        return read_run(path, &last);
    }
    let sweep = SweepDir::open(path);
    if sweep.is_err() && holds_journals(path) {
        return Journal::read(path);
    }
    sweep?.journal()
}

fn holds_journals(path: &Path) -> bool {
    let mut entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    entries.any(|entry| is_journal(&entry.path()))
}

/// The record of a directory of `nap train`.
fn read_run(path: &Path, last: &Path) -> anyhow::Result<Journal> {
    let place = last.display();
    let bytes =
        std::fs::read(last).map_err(|error| bad(format!("cannot read {place}: {error}")))?;
    let trained = Trained::read(&bytes).map_err(|error| bad(format!("{place}: {error}")))?;
    let mut journal = Journal::default();
    let finished = trained.finished();
    match RunDir::new(path.to_owned()).state()? {
        State::Run(config) if finished && *config == trained.config => {
            let wall = Wall {
                finished: String::new(),
                host: String::new(),
                seconds: 0.0,
                steps_per_s: 0.0,
            };
            let id = RunId::of_version(&trained.config, trained.numerics);
            let record = RunRecord::finished(id, &trained.config, &trained.history, wall);
            let (isa, version, numerics) = (trained.isa, trained.version, trained.numerics);
            let commit = "unknown".to_owned();
            journal.add(RunRecord { isa, version, commit, numerics, ..record });
            if numerics != NUMERICS_VERSION {
                journal.notes.push(format!(
                    "{place}: its numerics are of version {numerics}, this program has \
                     {NUMERICS_VERSION}: kept apart"
                ));
            }
        }
        _ => journal.notes.push(format!("{}: its run has not finished", path.display())),
    }
    Ok(journal)
}
