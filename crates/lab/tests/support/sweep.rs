//! What the tests of sweeps share.

use std::collections::BTreeSet;
use std::path::Path;

use super::{nap, run};

/// The whole lines of a sweep's journal.
pub fn journal_lines(directory: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let Ok(files) = std::fs::read_dir(directory.join("journal")) else { return lines };
    for file in files {
        let path = file.expect("an entry").path();
        // A sweep that starts makes files to see whether it can, and removes them.
        if path.extension().is_none_or(|end| end != "jsonl") {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a journal");
        lines.extend(text.split_inclusive('\n').filter(|l| l.ends_with('\n')).map(str::to_owned));
    }
    lines
}

/// The journal's ids, with repetitions.
pub fn ids(directory: &Path) -> Vec<String> {
    let id = |line: String| {
        let record: serde_json::Value = serde_json::from_str(&line).expect("a record");
        record["id"].as_str().expect("an id").to_owned()
    };
    journal_lines(directory).into_iter().map(id).collect()
}

/// An exported CSV file without its wall-clock columns.
#[track_caller]
pub fn csv_without_wall(path: &Path) -> Vec<Vec<String>> {
    let mut reader = csv::Reader::from_path(path).expect("a csv file");
    let header = reader.headers().expect("a header").clone();
    let kept: Vec<_> = (0..header.len()).filter(|&i| !header[i].starts_with("wall_")).collect();
    let pick = |row: &csv::StringRecord| kept.iter().map(|&i| row[i].to_owned()).collect();
    let mut rows: Vec<Vec<String>> = vec![pick(&header)];
    rows.extend(reader.records().map(|row| pick(&row.expect("a row"))));
    rows
}

/// Asserts that two sweeps have the same results to the bit, wall-clock figures aside.
#[track_caller]
pub fn assert_same_results(a: &Path, b: &Path) {
    let exported = |directory: &Path| {
        let out = directory.join("export");
        let mut command = nap(directory);
        run(command.args(["export", ".", "--csv", "-o"]).arg(&out), 0);
        ["runs.csv", "epochs.csv"].map(|name| csv_without_wall(&out.join(name)))
    };
    let (a, b) = (exported(a), exported(b));
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a.len(), b.len(), "another number of rows");
        for (a, b) in a.iter().zip(b) {
            assert_eq!(a, b);
        }
    }
}

/// Asserts that no run has two records.
#[track_caller]
pub fn assert_no_run_twice(directory: &Path) {
    let ids = ids(directory);
    let distinct: BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), distinct.len(), "a run was computed twice: {ids:?}");
}
