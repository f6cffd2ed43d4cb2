//! Records become grids: by axis, never mixed, with what is missing.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use nap::grids::{Grid, Results};
use nap::sweep::identity::RunId;
use support::results::{failed, grid, journal, record, sweep};
use tempfile::tempdir;

const SWEEP: &str = "
    models = ['nap', 'max']
    seeds = 3
    task = { name = 'mode' }
    [axes]
    dim = [8, 16]
    lr = ['0.3^5', '0.3^6']
";

fn read(paths: &[&Path]) -> Results {
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
    Results::read(&paths).unwrap()
}

fn labels(grid: &Grid) -> (String, Vec<&str>, Vec<&str>) {
    (
        format!("{} {}", grid.setting.model, grid.setting.panel_label()),
        grid.xs.iter().map(|level| level.label.as_str()).collect(),
        grid.rates.iter().map(|level| level.label.as_str()).collect(),
    )
}

#[test]
fn a_sweep_is_a_grid_per_model_with_what_is_missing() {
    let dir = tempdir().unwrap();
    sweep(dir.path(), SWEEP, |run| {
        let seed = run.config.train.seed;
        match (run.config.model.name.as_str(), run.config.model.dim, seed) {
            ("max", ..) => None,
            ("nap", 16, 1) => Some(failed(&run.config)),
            ("nap", 16, 2) => None,
            _ => Some(record(&run.config, &[0.1 * seed as f64, 0.5, 0.2])),
        }
    });
    let results = read(&[dir.path()]);
    assert_eq!(results.grids.len(), 2);
    let nap = &results.grids[0];
    let (label, xs, rates) = labels(nap);
    assert_eq!(label, "nap mode by dim");
    assert_eq!((xs, rates), (vec!["8", "16"], vec!["0.3^5", "0.3^6"]));
    let cell = &nap.cells[&(0, 1)];
    let seeds: Vec<_> = cell.runs.iter().map(|&at| results.runs[at].config.train.seed).collect();
    assert_eq!(seeds, [0, 1, 2]);
    let aggregate = results.aggregate(cell, "val_accuracy").unwrap();
    assert_eq!((aggregate.min, aggregate.mean, aggregate.max), (0.5, 0.5, 0.5));
    let first = results.aggregate_at(cell, "val_accuracy", 1).unwrap();
    assert_eq!((first.min, first.max, first.runs), (0.0, 0.2, 3));
    assert!(results.aggregate_at(cell, "val_accuracy", 4).is_none());
    assert!(results.aggregate_at(cell, "val_accuracy", 0).is_none());
    assert_eq!(results.band(cell, "val_accuracy").max, [0.2, 0.5, 0.2]);
    let counts = results.grid_counts(nap);
    assert_eq!((counts.finished, counts.failed, counts.missing), (2 * 3 + 2, 2, 2));
    assert_eq!(results.grid_counts(&results.grids[1]).missing, 12);
    // The cells of the paper's settings have published counterparts.
    assert_eq!(nap.published(cell).unwrap().x, 8);
    assert_eq!(nap.published_grid().unwrap().cells.len(), 80);
}

#[test]
fn journals_alone_are_grouped_by_what_varies() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("all.jsonl");
    let mut records = Vec::new();
    let layers = SWEEP.replace("dim = [8, 16]", "layers = [1, 2, 4]");
    let vocab = SWEEP.replace(
        "dim = [8, 16]",
        "vocab = { values = [2, 4], with = { 'train.steps_per_epoch' = [25, 50] } }",
    );
    let dims = SWEEP.replace("[8, 16]", "[64, 128]");
    for text in [&dims, &layers, &vocab] {
        records.extend(grid(text).runs.iter().map(|run| record(&run.config, &[0.5])));
    }
    journal(&path, &records);
    let results = read(&[&path]);
    let labels: Vec<_> = results.grids.iter().map(labels).collect();
    let labels: Vec<_> = labels.iter().map(|(a, b, _)| (a.as_str(), b.join(" "))).collect();
    let expected = [
        ("nap mode by dim", "64 128"),
        ("max mode by dim", "64 128"),
        ("nap mode by layers", "1 2 4"),
        ("max mode by layers", "1 2 4"),
        ("nap mode by vocab", "2 4"),
        ("max mode by vocab", "2 4"),
    ];
    assert_eq!(labels, expected.map(|(a, b)| (a, b.to_owned())));
    assert!(results.grids.iter().all(|grid| grid.cells.values().all(|c| c.runs.len() == 3)));
    // The same as the sweeps themselves say.
    let sweeps = [dims.as_str(), layers.as_str(), vocab.as_str()].map(|text| {
        let place = dir.path().join(RunId::of(&grid(text).runs[0].config).to_string());
        sweep(&place, text, |run| Some(record(&run.config, &[0.5])));
        place
    });
    let planned = read(&sweeps.each_ref().map(PathBuf::as_path));
    let summary = |results: &Results| {
        let of = |grid: &Grid| (grid.setting.clone(), grid.cells.len());
        results.grids.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(summary(&planned), summary(&results));
    // One run goes where its published cell is.
    journal(&path, &records[..1]);
    assert_eq!(read(&[&path]).grids[0].setting.axis, "model.dim");
}

#[test]
fn settings_and_versions_are_never_mixed() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    sweep(&a, SWEEP, |run| Some(record(&run.config, &[0.5])));
    let short = SWEEP.replace("[axes]", "train = { epochs = 3 }\n[axes]");
    sweep(&b, &short, |run| Some(record(&run.config, &[0.6])));
    let older = dir.path().join("older.jsonl");
    let runs = grid(SWEEP).runs;
    let old = runs.iter().map(|run| {
        let mut record = record(&run.config, &[0.7]);
        (record.numerics, record.id) = (0, RunId::of_version(&run.config, 0));
        record
    });
    journal(&older, &old.collect::<Vec<_>>());
    let results = read(&[&a, &b, &older]);
    let found: Vec<_> = results.grids.iter().map(|grid| labels(grid).0).collect();
    assert_eq!(
        found,
        [
            "nap mode by dim",
            "max mode by dim",
            "nap mode by dim, train.epochs=3",
            "max mode by dim, train.epochs=3",
            "nap mode by dim, numerics 0",
            "max mode by dim, numerics 0",
        ]
    );
    assert!(results.grids.iter().all(|grid| grid.cells.values().all(|c| c.runs.len() == 3)));
    assert!(results.notes.iter().any(|note| note.contains("numerics version 0")));
    // Other settings have no published counterpart; another version has.
    let published = |at: usize| results.grids[at].published_grid().is_some();
    assert_eq!([0, 2, 4].map(published), [true, false, true]);
    // The same runs twice are the same runs; where they differ, it is said.
    let twice = read(&[&a, &a]);
    assert_eq!((twice.runs.len(), twice.notes.len()), (24, 0));
    let c = dir.path().join("c");
    sweep(&c, SWEEP, |run| Some(record(&run.config, &[0.4])));
    let differing = read(&[&a, &c]);
    assert_eq!(differing.runs.len(), 24);
    assert!(differing.notes[0].starts_with("24 runs have other records"), "{:?}", differing.notes);
}

#[test]
fn models_of_a_newer_version_are_kept() {
    let dir = tempdir().unwrap();
    let mut config = grid(SWEEP).runs[0].config.clone();
    config.model.name = "nap-9".to_owned();
    journal(&dir.path().join("new.jsonl"), &[record(&config, &[0.5])]);
    let results = read(&[dir.path()]);
    assert_eq!(results.grids[0].setting.model, "nap-9");
    assert!(results.grids[0].published_grid().is_none());
    // A sweep that plans it.
    let sweep_dir = dir.path().join("sweep");
    sweep(&sweep_dir, SWEEP, |run| Some(record(&run.config, &[0.5])));
    let file = fs::read_dir(&sweep_dir).unwrap().map(|e| e.unwrap().path());
    let file = file.into_iter().find(|path| path.extension().is_some()).unwrap();
    let text = fs::read_to_string(&file).unwrap().replace("\"max\"", "\"nap-9\"");
    fs::write(&file, text).unwrap();
    let results = read(&[&sweep_dir]);
    assert_eq!(results.grids.len(), 2);
    assert!(results.notes.iter().any(|note| note.contains("nap-9")), "{:?}", results.notes);
}

#[test]
fn nothing_to_read_is_one_line() {
    let dir = tempdir().unwrap();
    let error = |path: &Path| Results::read(&[path.to_owned()]).unwrap_err().to_string();
    assert!(error(dir.path()).contains("holds no sweep"));
    assert!(error(&dir.path().join("none")).contains("none"));
    sweep(dir.path(), SWEEP, |_| None);
    assert!(error(dir.path()).contains("no run has ended"), "{}", error(dir.path()));
}
