//! `nap reproduce`: what is passed on is not computed again, and claims follow the runs.

mod support;

use std::fs;
use std::path::Path;

use nap::published;
use nap::reproduce;
use nap::sweep::grid::Grid;
use nap::sweep::record::RunRecord;
use nap_engine::config::RunConfig;
use serde_json::Value;
use support::results::{journal, record};
use support::{nap, refused, run};
use tempfile::tempdir;

/// A run as accurate as the mean of its published cell.
fn as_published(config: &RunConfig) -> RunRecord {
    let cell = published::cell(config);
    let accuracy = cell.map_or(0.28, |cell| cell.mean("val_accuracy").unwrap());
    record(config, &vec![accuracy; config.train.epochs])
}

/// The runs of the quick part, as if somebody had passed them on.
fn quick(file: &Path) -> usize {
    let figure = reproduce::find(&["quick".to_owned()]).unwrap()[0];
    let grids = figure.sweeps.iter().map(|spec| Grid::new(spec).unwrap());
    let records: Vec<_> =
        grids.flat_map(|grid| grid.runs).map(|run| as_published(&run.config)).collect();
    journal(file, &records);
    records.len()
}

fn claims(directory: &Path, arguments: &[&str]) -> Vec<(String, String)> {
    let output = run(nap(directory).arg("reproduce").args(arguments).arg("--json"), 0);
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |claim: &Value, key: &str| claim[key].as_str().unwrap().to_owned();
    let claims = object["claims"].as_array().unwrap().iter();
    claims.map(|claim| (text(claim, "claim"), text(claim, "finding"))).collect()
}

#[test]
fn runs_that_are_passed_on_are_taken_over_and_judged() {
    let dir = tempdir().unwrap();
    let runs = quick(&dir.path().join("passed-on.jsonl"));
    run(nap(dir.path()).args(["export", "passed-on.jsonl", "-o", "results", "--records"]), 0);
    let claims = claims(dir.path(), &["--with", "results"]);
    let finding = |part: &str| {
        let found = claims.iter().find(|(claim, _)| claim.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {claims:?}")).1.as_str()
    };
    assert_eq!(finding("max pooling fails"), "confirmed");
    assert_eq!(finding("sum pooling fails"), "confirmed");
    assert_eq!(finding("cannot leave the hull"), "confirmed");
    // One cell is too few for a claim about a grid.
    assert_eq!(finding("mode by dim: NAP learns in more of the grid than BERT"), "undecided");
    let place = dir.path().join("reproduction");
    assert!(fs::read_to_string(place.join("report.html")).unwrap().contains("<html"));
    let lines = || -> usize {
        let sweeps = ["mode-dim", "cases-first-dim"].map(|name| place.join(name).join("journal"));
        let files = sweeps.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap().lines().count()).sum()
    };
    assert_eq!(lines(), runs);
    // A file without compression holds the same. Nothing is left to do, nor taken over twice.
    let again = run(nap(dir.path()).args(["reproduce", "quick", "--with", "passed-on.jsonl"]), 0);
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(said.contains("6 runs, 6 done, 0 to do"), "{said}");
    assert!(said.contains("confirmed  mode by dim: max pooling fails"), "{said}");
    assert_eq!(lines(), runs);
}

#[test]
fn time_that_is_up_leaves_runs_to_go_on_with() {
    let dir = tempdir().unwrap();
    let claims = claims(dir.path(), &["--time", "1s", "--jobs", "1"]);
    assert!(claims.iter().all(|(claim, _)| !claim.contains("pooling fails")), "{claims:?}");
    let checkpoints = dir.path().join("reproduction/mode-dim/checkpoints");
    assert_eq!(fs::read_dir(checkpoints).unwrap().count(), 1);
}

#[test]
fn wrong_parts_and_places_are_refused() {
    let dir = tempdir().unwrap();
    let refusal = |arguments: &[&str]| refused(nap(dir.path()).arg("reproduce").args(arguments));
    assert!(refusal(&["mode-dmi"]).contains("did you mean mode-dim?"));
    assert!(refusal(&["--precision", "f16"]).contains("f32"));
    assert!(refusal(&["--with", "nothing"]).contains("nothing"));
    assert!(refusal(&["--seeds", "0"]).contains("--seeds"));
    fs::write(dir.path().join("file"), "x").unwrap();
    assert!(refusal(&["--out", "file"]).contains("file"));
    assert!(refusal(&["--with", "file"]).contains("no records"));
    assert!(!dir.path().join("reproduction").exists(), "nothing was begun");
}

#[test]
fn records_are_computed_again() {
    let dir = tempdir().unwrap();
    let sweep = "
        models = ['nap', 'max']
        seeds = 2
        task = { name = 'mode', length = 16 }
        train = { epochs = 2, steps_per_epoch = 5, validation_batches = 1 }
        [axes]
        dim = [8]
        lr = [0.01]
    ";
    fs::write(dir.path().join("small.toml"), sweep).unwrap();
    run(nap(dir.path()).args(["sweep", "small.toml", "--out", "small", "--quiet"]), 0);
    run(nap(dir.path()).args(["export", "small", "-o", ".", "--records"]), 0);
    let said = |path: &str, code: i32| {
        let output = run(nap(dir.path()).args(["check", path, "--runs", "9"]), code);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(said("runs.jsonl.gz", 0).contains("4 of 4 runs are the same to the bit"));
    // One that was changed is found out.
    let journal = fs::read_dir(dir.path().join("small/journal")).unwrap().next().unwrap().unwrap();
    let lines = fs::read_to_string(journal.path()).unwrap();
    let (first, rest) = lines.split_once("\"train_loss\":[").unwrap();
    fs::write(dir.path().join("changed.jsonl"), format!("{first}\"train_loss\":[1{rest}")).unwrap();
    let changed = said("changed.jsonl", 1);
    assert!(changed.contains("epoch 1, train_loss: recorded 1"), "{changed}");
    assert!(refused(nap(dir.path()).args(["check", "nothing"])).contains("nothing"));
}
