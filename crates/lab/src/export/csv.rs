//! `runs.csv` and `epochs.csv`.

use std::io::{BufWriter, Write};
use std::path::Path;

use super::table::{self, Table, Values};
use crate::files::write_with;
use crate::sweep::record::RunRecord;

/// Runs whose epochs are held in memory at a time.
pub const CHUNK: usize = 1000;

/// Writes `runs.csv`, one row per run, and `epochs.csv`, one row per run and epoch. Numbers are
/// written so that they read back the same; a missing value is empty.
///
/// # Errors
/// If a file cannot be written; an earlier one stays as it is.
pub fn write(directory: &Path, records: &[&RunRecord]) -> anyhow::Result<()> {
    let figures = table::figures(records);
    file(&directory.join("runs.csv"), std::iter::once(table::runs(records)))?;
    let chunks = records.chunks(CHUNK).map(|records| table::epochs(records, &figures));
    file(&directory.join("epochs.csv"), chunks)
}

/// A file of tables with the same columns.
fn file(path: &Path, tables: impl Iterator<Item = Table>) -> anyhow::Result<()> {
    let written: Result<(), csv::Error> = write_with(path, |file| {
        let mut writer = csv::Writer::from_writer(BufWriter::new(file));
        for (part, table) in tables.enumerate() {
            if part == 0 {
                writer.write_record(table.columns.iter().map(|column| &column.name))?;
            }
            for row in 0..table.rows() {
                for column in &table.columns {
                    writer.write_field(cell(&column.values, row))?;
                }
                writer.write_record(None::<&[u8]>)?;
            }
        }
        writer.flush()?;
        writer.into_inner().map_err(|error| error.into_error())?.flush()?;
        Ok(())
    });
    written.map_err(|error| anyhow::anyhow!("cannot write {}: {error}", path.display()))
}

fn cell(values: &Values, row: usize) -> String {
    match values {
        Values::Text(values) => values[row].clone(),
        Values::Whole(values) => values[row].map(|x| x.to_string()),
        Values::Number(values) => values[row].map(|x| x.to_string()),
        Values::Flag(values) => values[row].map(|x| x.to_string()),
    }
    .unwrap_or_default()
}
