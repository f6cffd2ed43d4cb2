//! Results that no engine computed: records with curves that a test chooses.

use std::fs;
use std::path::Path;

use nap::sweep::directory::SweepDir;
use nap::sweep::grid::{Grid, PlannedRun};
use nap::sweep::identity::RunId;
use nap::sweep::record::{RunRecord, Wall};
use nap::sweep::spec::SweepSpec;
use nap_engine::config::RunConfig;
use nap_engine::task::Task;
use nap_engine::train::{EpochRecord, Evaluation};

fn wall() -> Wall {
    Wall {
        finished: "2026-01-01T00:00:00Z".to_owned(),
        host: "generated".to_owned(),
        seconds: 1.0,
        steps_per_s: 100.0,
    }
}

/// A finished run by its validation accuracies, which are those of its cases, too; the training
/// accuracies are half of them.
pub fn record(config: &RunConfig, accuracies: &[f64]) -> RunRecord {
    let cases = Task::new(&config.task).cases().len();
    let epoch = |(at, &accuracy): (usize, &f64)| EpochRecord {
        epoch: at + 1,
        train_loss: 1.0,
        train_accuracy: accuracy / 2.0,
        train_cases: vec![accuracy / 2.0; cases],
        validation: Evaluation {
            loss: 1.0,
            accuracy,
            cases: vec![accuracy; cases],
            macro_f1: None,
        },
        diverged: false,
    };
    let history: Vec<_> = accuracies.iter().enumerate().map(epoch).collect();
    RunRecord::finished(RunId::of(config), config, &history, wall())
}

/// A run that failed.
pub fn failed(config: &RunConfig) -> RunRecord {
    RunRecord::failed(RunId::of(config), config, "a test".to_owned(), wall())
}

/// The grid of a sweep file's text.
pub fn grid(text: &str) -> Grid {
    Grid::new(&SweepSpec::parse(text, "test", "test").expect("a sweep")).expect("a grid")
}

/// Writes a sweep's directory with the records that a test makes of its planned runs.
pub fn sweep(directory: &Path, text: &str, record: impl Fn(&PlannedRun) -> Option<RunRecord>) {
    let grid = grid(text);
    let dir = SweepDir::create(directory, &grid.spec).expect("a directory");
    let records: Vec<_> = grid.runs.iter().filter_map(record).collect();
    journal(&dir.journal_path().join("test.jsonl"), &records);
}

/// Writes a journal's file.
pub fn journal(path: &Path, records: &[RunRecord]) {
    let lines: String = records.iter().map(RunRecord::to_line).collect();
    fs::write(path, lines).expect("a file");
}
