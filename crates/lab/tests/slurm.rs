//! Sweeps on a real Slurm: `.ci/slurm cargo test -p nap --features slurm-tests --test slurm`.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use support::sweep::{assert_same_results, journal_lines};
use support::{nap, run};
use tempfile::tempdir;

/// About half a minute on two cores: long enough to be cancelled in the middle.
const SWEEP: [&str; 13] = [
    "mode-dim",
    "--models",
    "nap,sum",
    "--x",
    "8",
    "--lr",
    "0.3^5..0.3^6",
    "--seeds",
    "3",
    "--set",
    "train.epochs=4",
    "--set",
    "train.steps_per_epoch=60",
];

fn submit(directory: &Path, array: &str) -> String {
    let mut command = nap(directory);
    command.args(["slurm", "submit"]).args(SWEEP);
    command.args(["--out", "cluster", "--array", array, "--time", "10"]);
    let output = run(&mut command, 0);
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

fn job(text: &str) -> &str {
    let id = text.strip_prefix("job ").and_then(|rest| rest.split(':').next());
    id.unwrap_or_else(|| panic!("no job id: {text}"))
}

fn queue() -> String {
    let output = Command::new("squeue").arg("--noheader").output().expect("squeue runs");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(300), "{what} takes too long: {}", queue());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_cancelled_and_resubmitted_array_gives_what_a_local_run_gives() {
    let dir = tempdir().unwrap();
    let cluster = dir.path().join("cluster");
    let mut local = nap(dir.path());
    run(local.arg("sweep").args(SWEEP).args(["--out", "local", "--jobs", "2"]), 0);

    let first = submit(dir.path(), "4");
    let status = run(nap(dir.path()).args(["slurm", "status", "cluster"]), 0);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.contains("jobs submitted: 1; tasks in the queue: ") && status.contains(job(&first)),
        "{status}"
    );
    wait_until("the first record", || !journal_lines(&cluster).is_empty());
    assert!(Command::new("scancel").arg(job(&first)).status().unwrap().success());
    wait_until("cancelling", || queue().is_empty());
    let before = journal_lines(&cluster);
    assert!(before.len() < 12, "the sweep ended before it was cancelled");
    // The signal reached nap: the runs under way were stored, and it said so.
    let stored = std::fs::read_dir(cluster.join("checkpoints")).unwrap().count();
    assert!(stored > 0, "no checkpoint");
    let logs = std::fs::read_dir(cluster.join("slurm")).unwrap();
    let logs = logs.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    assert!(logs.into_iter().any(|log| log.contains("stopped; continue with: nap sweep")));

    // More tasks than this cluster's MaxArraySize of 6 allows, and than there are runs.
    let second = submit(dir.path(), "64");
    assert!(second.contains("at most 5 tasks (MaxArraySize)"), "{second}");
    assert!(second.contains("in 5 array tasks"), "{second}");
    wait_until("the second job", || queue().is_empty());
    let after = journal_lines(&cluster);
    assert_eq!(after.len(), 12, "runs were lost or ran twice");
    assert!(before.iter().all(|line| after.contains(line)), "a record was rewritten");
    assert_same_results(&dir.path().join("local"), &cluster);

    let third = submit(dir.path(), "4");
    assert!(third.contains("nothing to submit"), "{third}");
}
