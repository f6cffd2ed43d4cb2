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

use crate::error::unwritable;
use crate::files::write_atomically;
use crate::sweep::identity::RunId;
use crate::sweep::record::RunRecord;

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
