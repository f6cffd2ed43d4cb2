//! Results for other programs: tables of runs and epochs, TensorBoard's event files, and the
//! records themselves in one file.
//!
//! Rows come in a canonical order and, but for the columns whose names begin with `wall_`, depend
//! on the runs alone: two exports of runs of the same program on the same instruction set are
//! equal to the byte.

pub mod csv;
pub mod parquet;
pub mod select;
pub mod table;
pub mod tensorboard;

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use flate2::{Compression, GzBuilder};
use nap_engine::train::{NUMERICS_VERSION, Trained};

use crate::error::{bad, unwritable};
use crate::files::write_atomically;
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

/// Writes records as they are, one JSON line each, compressed by gzip: `runs.jsonl.gz`, which
/// every command reads that reads results.
///
/// # Errors
/// If the file cannot be written.
pub fn write_records(directory: &Path, records: &[&RunRecord]) -> anyhow::Result<()> {
    let path = directory.join("runs.jsonl.gz");
    // Without a time of its own, so that equal records make equal files.
    let compress = || {
        let mut file = GzBuilder::new().write(Vec::new(), Compression::best());
        for record in records {
            file.write_all(record.to_line().as_bytes())?;
        }
        write_atomically(&path, &file.finish()?)
    };
    compress().map_err(|error| unwritable(&path, &error))
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

/// The records in the canonical order: by task, model, the configuration's keys, and seed.
pub fn in_order(runs: &HashMap<RunId, RunRecord>) -> Vec<&RunRecord> {
    let mut records: Vec<_> = runs.values().collect();
    records.sort_by(|a, b| order(a, b));
    records
}

fn order(a: &RunRecord, b: &RunRecord) -> std::cmp::Ordering {
    let whole = |r: &RunRecord| {
        let (model, task, train) = (&r.config.model, &r.config.task, &r.config.train);
        [
            task.name as usize,
            task.readout as usize,
            position(&model.name),
            model.dim,
            model.layers,
            model.heads,
            task.length,
            task.vocab,
            train.batch,
            // From -64.
            (task.case_bias + 64) as usize,
        ]
    };
    let real = |r: &RunRecord| {
        let (model, train) = (&r.config.model, &r.config.train);
        [model.init_factor, model.dropout, train.l2, -train.learning_rate]
    };
    let reals = real(a).into_iter().zip(real(b)).map(|(a, b)| a.total_cmp(&b));
    let reals = reals.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then);
    let seeds = a.config.train.seed.cmp(&b.config.train.seed);
    whole(a).cmp(&whole(b)).then(reals).then(seeds).then(a.id.cmp(&b.id))
}

fn position(model: &str) -> usize {
    let families = &nap_engine::model::family::FAMILIES;
    families.iter().position(|family| family.name == model).unwrap_or(families.len())
}
