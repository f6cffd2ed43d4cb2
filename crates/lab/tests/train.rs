//! Training from the command line: what is printed, what is written, determinism, resuming.

mod support;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nap_engine::arch::{Isa, isa};
use serde_json::Value;
use support::{TINY, assert_same, contents, nap, refused, run};
use tempfile::tempdir;

fn train(directory: &Path, out: &str, options: &[&str]) -> Command {
    let mut command = nap(directory);
    command.arg("train").args(TINY).args(options).args(["--out", out]);
    command
}

fn records(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn json_is_one_record_per_epoch_with_every_tracked_case() {
    let dir = tempdir().unwrap();
    let tasks: [(&str, &[&str]); 3] = [
        (
            "cases",
            &[
                "argmin",
                "argmin_at_first",
                "first",
                "first_argmin_at_first",
                "first_argmax_at_first",
                "argmax",
                "argmax_at_first",
            ],
        ),
        ("lg", &["local", "global"]),
        ("mode", &[]),
    ];
    for (task, cases) in tasks {
        let output = run(&mut train(dir.path(), task, &["--task", task, "--json"]), 0);
        let records = records(&output.stdout);
        assert_eq!(records.len(), 3);
        for (epoch, record) in records.iter().enumerate() {
            assert_eq!(record["epoch"], epoch + 1);
            let figures =
                ["train_loss", "train_accuracy", "val_loss", "val_accuracy", "steps_per_s"];
            for key in figures {
                assert!(record[key].is_number(), "{key}: {record}");
            }
            assert_eq!(record["diverged"], false);
            for case in cases {
                for set in ["train", "val"] {
                    let value = record.get(format!("{set}_case_{case}"));
                    let value = value.unwrap_or_else(|| panic!("{set} {case}: {record}"));
                    assert!(value.is_null() || (0.0..=1.0).contains(&value.as_f64().unwrap()));
                }
            }
            assert_eq!(record.as_object().unwrap().len(), 7 + 2 * cases.len());
        }
        let written = fs::read(dir.path().join(task).join("metrics.jsonl")).unwrap();
        assert_eq!(written, output.stdout);
    }
}

#[test]
fn what_will_run_is_said_before_and_the_summary_after() {
    let dir = tempdir().unwrap();
    let output = run(&mut train(dir.path(), "run", &["--model", "bert"]), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    let position = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(position("bert on mode: d 8, 2 layers") < position("epoch   1/3"));
    assert!(position("warm-up, clipping") < position("epoch   3/3"));
    assert!(position("epoch   3/3") < position("this run, one seed"));
    let quiet = run(&mut train(dir.path(), "quiet", &["--quiet"]), 0);
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty());
}

#[test]
fn the_stored_configuration_reruns_the_run() {
    let dir = tempdir().unwrap();
    run(&mut train(dir.path(), "a", &["--model", "nap-l2", "--lr", "0.3^4"]), 0);
    let mut again = nap(dir.path());
    run(again.args(["train", "a/config.toml", "--out", "b"]), 0);
    assert_same(&dir.path().join("a"), &dir.path().join("b"));
}

#[test]
fn the_same_seed_gives_the_same_files_whatever_the_threads() {
    let dir = tempdir().unwrap();
    let models = ["nap", "mte", "max", "weighted"];
    for model in models {
        let options = ["--model", model, "--task", "cases", "--dropout", "0.1"];
        run(train(dir.path(), &format!("{model}-1"), &options).env("RAYON_NUM_THREADS", "1"), 0);
        run(train(dir.path(), &format!("{model}-2"), &options).env("RAYON_NUM_THREADS", "2"), 0);
        assert_same(&dir.path().join(format!("{model}-1")), &dir.path().join(format!("{model}-2")));
    }
    run(&mut train(dir.path(), "other", &["--task", "cases", "--seed", "1"]), 0);
    let weights = |run: &str| fs::read(dir.path().join(run).join("last.safetensors")).unwrap();
    assert_ne!(weights("other"), weights("nap-1"));
}

#[test]
fn a_diverged_run_is_a_result() {
    let dir = tempdir().unwrap();
    let options = ["--lr", "1e30", "--epochs", "200", "--json"];
    let output = run(&mut train(dir.path(), "run", &options), 0);
    let records = records(&output.stdout);
    assert_eq!(records.len(), 200);
    let last = records.last().unwrap();
    assert_eq!(last["diverged"], true);
    assert!(last["train_loss"].is_null() && last["val_loss"].is_null());
    // It answers index 0, which is right for some sequences.
    assert!((0.0..1.0).contains(&last["val_accuracy"].as_f64().unwrap()));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("diverged"), "{stderr}");
    let mut eval = nap(dir.path());
    let output = run(eval.args(["eval", "run", "--last", "--json"]), 0);
    assert!(records_of(&output.stdout)["loss"].is_null());
}

fn records_of(text: &[u8]) -> Value {
    records(text).remove(0)
}

/// A run long enough to be stopped.
const LONGER: [&str; 8] =
    ["--epochs", "12", "--steps-per-epoch", "40", "--task", "cases", "--dropout", "0.2"];

/// Starts the run, or goes on with it, and kills it after a while; says whether it ended before.
#[cfg(unix)]
fn kill_after(directory: &Path, out: &str, wait: Duration, signal: &str) -> Option<i32> {
    let started = directory.join(out).join("config.toml").exists();
    let mut command = train(directory, out, &LONGER);
    if started {
        command.arg("--resume");
    }
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nap starts");
    std::thread::sleep(wait);
    let pid = child.id().to_string();
    Command::new("kill").args([signal, &pid]).status().expect("kill runs");
    child.wait().expect("nap ends").code()
}

#[test]
#[cfg(unix)]
fn killed_anywhere_and_resumed_ends_with_the_same_bits() {
    let dir = tempdir().unwrap();
    run(&mut train(dir.path(), "whole", &LONGER), 0);
    for (out, signal) in [("killed", "-KILL"), ("terminated", "-TERM")] {
        for attempt in 0..40u64 {
            // Different moments: during start, training, evaluation and writing.
            let wait = Duration::from_millis(5 + 37 * attempt % 150);
            match kill_after(dir.path(), out, wait, signal) {
                Some(0) => break,
                // SIGTERM stops at the next step, or before the handler stands.
                Some(code) => assert_eq!((code, signal), (1, "-TERM")),
                None => {}
            }
        }
        // Once more to the end, or over the finished run: a killed write's leftovers go too.
        run(train(dir.path(), out, &LONGER).arg("--resume"), 0);
        assert_same(&dir.path().join("whole"), &dir.path().join(out));
    }
}

#[test]
#[cfg(unix)]
fn a_stopped_run_says_how_to_go_on() {
    let dir = tempdir().unwrap();
    let mut child = train(dir.path(), "a run", &LONGER)
        .args(["--epochs", "100000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !dir.path().join("a run/last.safetensors").exists() {
        assert_eq!(child.try_wait().unwrap(), None, "nap ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(text, "stopped; continue with: nap train --resume --out 'a run'\n");
}

#[test]
#[cfg(unix)]
fn a_full_disk_leaves_what_was_finished() {
    let dir = tempdir().unwrap();
    let nap = env!("CARGO_BIN_EXE_nap");
    let tiny = TINY.join(" ");
    // The limit (in KiB) lets the configuration through, then the best weights, then all but a
    // later, longer metrics file.
    for limit in [1, 20, 45] {
        let out = format!("run{limit}");
        let script = format!(
            "trap '' XFSZ; ulimit -f {limit}; exec {nap} train {tiny} --epochs 2000 --out {out}"
        );
        let output =
            Command::new("bash").current_dir(dir.path()).args(["-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0], format!("stopped; continue with: nap train --resume --out {out}"));
        assert!(lines[1].starts_with("error: cannot write ") && lines[1].contains(&out), "{text}");
        // Nothing half-written: what is there can be read, and the run goes on from it.
        let path = dir.path().join(&out);
        for entry in fs::read_dir(&path).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.starts_with(".nap-"), "{name} was left behind");
            if name.ends_with("safetensors") {
                run(support::nap(dir.path()).arg("show").arg(path.join(name)), 0);
            }
        }
    }
}

#[test]
fn a_finished_run_of_another_instruction_set_is_left_as_it_is() {
    // Where there is only the portable path, such a run cannot be made.
    if isa() == Isa::Portable {
        return;
    }
    let dir = tempdir().unwrap();
    run(train(dir.path(), "out", &[]).env("NAP_ISA", "portable"), 0);
    let before = contents(&dir.path().join("out"));
    for options in [&["--resume"][..], &[]] {
        let line = refused(&mut train(dir.path(), "out", options));
        assert!(line.contains("finished with portable"), "{line}");
    }
    assert_eq!(before, contents(&dir.path().join("out")));
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let dir = tempdir().unwrap();
    let nap = env!("CARGO_BIN_EXE_nap");
    for command in ["models", "tasks", "config", "completions bash", "--help"] {
        let script = format!("set -o pipefail; {nap} {command} | head -1");
        let output =
            Command::new("bash").current_dir(dir.path()).args(["-c", &script]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{command}: {output:?}");
    }
}

#[test]
fn a_reader_who_leaves_a_training_run_learns_how_to_go_on() {
    let dir = tempdir().unwrap();
    let (nap, tiny) = (env!("CARGO_BIN_EXE_nap"), TINY.join(" "));
    let script = format!(
        "{nap} train {tiny} --epochs 2000 --json --out run | head -1; exit ${{PIPESTATUS[0]}}"
    );
    let output =
        Command::new("bash").current_dir(dir.path()).args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.ends_with("stopped; continue with: nap train --resume --out run\n"), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn nobody_to_tell_is_no_panic() {
    let dir = tempdir().unwrap();
    let nap = env!("CARGO_BIN_EXE_nap");
    for (arguments, code) in [("train --task foo", 2), ("train --colour", 2)] {
        let script = format!("{nap} {arguments} 2>/dev/full");
        let status =
            Command::new("bash").current_dir(dir.path()).args(["-c", &script]).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments}");
    }
}

#[test]
#[cfg(unix)]
fn a_directory_belongs_to_one_process() {
    let dir = tempdir().unwrap();
    let mut first = train(dir.path(), "run", &["--epochs", "100000", "--quiet"]).spawn().unwrap();
    while !dir.path().join("run/last.safetensors").exists() {
        assert_eq!(first.try_wait().unwrap(), None, "nap ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let line = support::refused(nap(dir.path()).args(["train", "--resume", "--out", "run"]));
    assert!(line.contains("another process"), "{line}");
    let other = ["--epochs", "100000", "--patience", "3"];
    let line = support::refused(&mut train(dir.path(), "run", &other));
    assert!(line.contains("another process"), "{line}");
    first.kill().unwrap();
    first.wait().unwrap();
    let line = support::refused(&mut train(dir.path(), "run", &other));
    assert!(line.contains("another run (train.patience is null, not 3)"), "{line}");
}

#[test]
#[cfg(unix)]
fn an_evaluation_can_be_stopped() {
    let dir = tempdir().unwrap();
    let options = ["--set", "train.validation_batches=1000000", "--quiet"];
    let mut child = train(dir.path(), "run", &options).spawn().unwrap();
    while !dir.path().join("run/config.toml").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Time for the steps, which come to milliseconds; if they took longer they are what stops.
    std::thread::sleep(Duration::from_millis(300));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(dir.path().join("run/last.safetensors").exists());
}

#[test]
fn lost_and_surplus_records_are_put_right() {
    let dir = tempdir().unwrap();
    run(&mut train(dir.path(), "run", &[]), 0);
    let path = dir.path().join("run/metrics.jsonl");
    let whole = support::contents(&dir.path().join("run"));
    let resume = || {
        run(nap(dir.path()).args(["train", "--resume", "--out", "run", "--quiet"]), 0);
        assert_eq!(support::contents(&dir.path().join("run")), whole);
    };
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{{\"epoch\": 4}}\n")).unwrap();
    resume();
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    resume();
    fs::remove_file(&path).unwrap();
    resume();
}

#[test]
fn a_checkpoint_is_shown_and_scored() {
    let dir = tempdir().unwrap();
    run(&mut train(dir.path(), "run", &["--task", "cases"]), 0);
    let output = run(nap(dir.path()).args(["show", "run"]), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["name = \"cases\"", "layer.1.attention.query.weight", "8 x 8", "total"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let eval = |options: &[&str]| {
        let output = run(nap(dir.path()).args(["eval", "run", "--json"]).args(options), 0);
        records_of(&output.stdout)
    };
    let first = eval(&[]);
    assert_eq!(first, eval(&[]), "the same seed, the same sequences");
    assert_ne!(first["loss"], eval(&["--seed", "1"])["loss"]);
    assert_eq!(first["length"], 4);
    assert_eq!(eval(&["--seq", "8"])["length"], 8);
    assert!(first["case_argmin"].is_number());
}
