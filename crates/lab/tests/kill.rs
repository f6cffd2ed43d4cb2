//! A sweep that is killed at random moments ends with the results of an undisturbed one.
//!
//! `NAP_KILLS=50 cargo test -p nap --test kill` kills it 50 times for each number of jobs.
#![cfg(unix)]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::sweep::{assert_no_run_twice, assert_same_results, ids, journal_lines};
use support::{nap, run};
use tempfile::tempdir;

/// Runs of a fraction of a second with many checkpoints, so that kills hit every kind of write.
/// A checkpoint after every step is what makes progress certain.
const SWEEP: [&str; 22] = [
    "sweep",
    "cases-dim",
    "--models",
    "nap,max",
    "--x",
    "8",
    "--lr",
    "0.3^1,0.3^5",
    "--set",
    "task.length=16",
    "--set",
    "train.epochs=3",
    "--set",
    "train.steps_per_epoch=40",
    "--set",
    "train.validation_batches=2",
    "--set",
    "train.case_sequences=60",
    "--set",
    "model.dropout=0.1",
    "--checkpoint-every",
    "0s",
];

/// Random enough for moments, and the same in every run of the test.
struct Moments(u64);

impl Moments {
    fn next(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// More kills need more runs to hit.
fn seeds(kills: u64) -> u64 {
    (kills / 2).max(4)
}

fn sweep(directory: &Path, jobs: &str, kills: u64) -> Command {
    let mut command = nap(directory);
    command.args(SWEEP).args(["--seeds", &seeds(kills).to_string()]);
    command.args(["--out", "out", "--jobs", jobs]);
    command
}

fn killed_again_and_again(reference: &Path, jobs: &str, kills: u64) {
    let dir = tempdir().unwrap();
    let out = dir.path().join("out");
    let mut moments = Moments(kills + jobs.len() as u64);
    let mut landed = 0;
    for kill in 0..kills {
        let before = journal_lines(&out);
        let mut child = sweep(dir.path(), jobs, kills)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nap starts");
        // Some before anything is written, most in the middle of runs.
        std::thread::sleep(Duration::from_millis(moments.next(if kill % 4 == 0 {
            60
        } else {
            450
        })));
        // SIGKILL.
        child.kill().expect("nap can be killed");
        landed += u64::from(child.wait().expect("nap ends").code().is_none());
        let after = journal_lines(&out);
        assert!(before.iter().all(|line| after.contains(line)), "a finished run was lost");
        assert_no_run_twice(&out);
    }
    assert!(landed * 2 >= kills, "only {landed} of {kills} kills hit a sweep");
    let before = journal_lines(&out);
    run(&mut sweep(dir.path(), jobs, kills), 0);
    let after = journal_lines(&out);
    assert!(before.iter().all(|line| after.contains(line)), "a finished run was lost");
    assert_eq!(ids(&out).len() as u64, 4 * seeds(kills), "a run is missing");
    assert_no_run_twice(&out);
    assert_same_results(reference, &out);
    let left: Vec<_> = std::fs::read_dir(out.join("checkpoints")).unwrap().collect();
    assert!(left.is_empty(), "checkpoints stayed behind: {left:?}");
}

#[test]
fn killed_sweeps_end_with_the_results_of_an_undisturbed_one() {
    let kills = std::env::var("NAP_KILLS").map_or(10, |kills| kills.parse().expect("a number"));
    let dir = tempdir().unwrap();
    run(&mut sweep(dir.path(), "2", kills), 0);
    let reference = dir.path().join("out");
    for jobs in ["1", "2", "4"] {
        killed_again_and_again(&reference, jobs, kills);
    }
}
