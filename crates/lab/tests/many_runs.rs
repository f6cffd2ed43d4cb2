//! Twenty thousand recorded runs: every reader counts them right, in little memory.
//!
//! Times are measured, not tested: `cargo test -p nap --test many_runs -- --nocapture`, and
//! docs/performance.md has them.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nap::sweep::directory::SweepDir;
use nap::sweep::grid::Grid;
use nap::sweep::record::{RunRecord, Wall};
use nap::sweep::spec::SweepSpec;
use nap_engine::train::{EpochRecord, Evaluation};
use support::nap;
use tempfile::tempdir;

const SWEEP: &str = "
    name = 'many'
    models = ['nap', 'mte']
    seeds = 100
    [task]
    name = 'mode'
    [train]
    epochs = 4
    [axes]
    dim = [8, 12, 16, 20, 24, 28, 32, 36, 40, 44]
    lr = { base = 0.3, min = 1, range = 10 }
";

/// Records every run but the last hundred, in a file per 500 runs.
fn generate(directory: &Path, grid: &Grid) {
    let dir = SweepDir::create(directory, &grid.spec).unwrap();
    let runs = &grid.runs[..grid.runs.len() - 100];
    for (file, runs) in runs.chunks(500).enumerate() {
        let mut lines = String::new();
        for run in runs {
            let x = (run.config.train.seed as f64 + 1.0) / 101.0;
            let epoch = |epoch: usize| EpochRecord {
                epoch,
                train_loss: 1.0 / x,
                train_accuracy: x / 3.0,
                train_cases: Vec::new(),
                validation: Evaluation {
                    loss: x / 7.0,
                    accuracy: x,
                    cases: Vec::new(),
                    macro_f1: None,
                },
                diverged: false,
            };
            let history: Vec<_> = (1..=4).map(epoch).collect();
            let wall = Wall {
                finished: "2026-01-01T00:00:00Z".to_owned(),
                host: "generated".to_owned(),
                seconds: 1.0,
                steps_per_s: 100.0,
            };
            lines += &RunRecord::finished(run.id, &run.config, &history, wall).to_line();
        }
        fs::write(dir.journal_path().join(format!("{file}.jsonl")), lines).unwrap();
    }
}

/// Runs to the end; the output, and the most memory it held, in MB, where the system tells.
fn measured(command: &mut Command) -> (String, Option<u64>) {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().expect("nap starts");
    let status = format!("/proc/{}/status", child.id());
    let mut most = None;
    while child.try_wait().expect("nap ends").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
        most = kilobytes.map(|kb: u64| kb / 1000).max(most);
        std::thread::sleep(Duration::from_millis(2));
    }
    let took = started.elapsed();
    let output = child.wait_with_output().expect("nap ends");
    assert!(output.status.success());
    println!("{command:?}: {:.2} s, {most:?} MB", took.as_secs_f64());
    (String::from_utf8(output.stdout).unwrap(), most)
}

#[test]
fn twenty_thousand_runs() {
    let dir = tempdir().unwrap();
    let spec = SweepSpec::parse(SWEEP, "many", "many").unwrap();
    fs::write(dir.path().join("many.toml"), SWEEP).unwrap();
    let grid = Grid::new(&spec).unwrap();
    assert_eq!(grid.runs.len(), 20_000);
    generate(&dir.path().join("many"), &grid);
    let commands: [(&[&str], &str); 4] = [
        (&["status", "many"], "sweep many: 19900 of 20000 runs finished"),
        (&["plan", "many.toml", "--out", "many"], "20000 runs, 19900 done, 100 to do"),
        (&["export", "many", "-o", "out", "--csv"], "19900 runs that ended, in out"),
        (&["compare", "many", "many/journal"], "agree: 2 of 2 grids agree"),
    ];
    for (arguments, expected) in commands {
        let (said, most) = measured(nap(dir.path()).args(arguments));
        assert!(said.contains(expected), "{said}");
        assert!(most.is_none_or(|most| most < 500), "{arguments:?} took {most:?} MB");
    }
    let rows =
        |name: &str| fs::read_to_string(dir.path().join("out").join(name)).unwrap().lines().count();
    assert_eq!((rows("runs.csv"), rows("epochs.csv")), (19_901, 4 * 19_900 + 1));
}
