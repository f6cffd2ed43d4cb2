//! What the program's tests share.

#![allow(dead_code, reason = "each test binary uses its own part")]

#[cfg(any(feature = "browser-tests", feature = "large-tests"))]
pub mod browser;
pub mod results;
pub mod sweep;

use std::path::Path;
use std::process::{Command, Output};

/// The program, in a directory.
pub fn nap(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nap"));
    command.current_dir(directory);
    command
}

/// A run that takes a fraction of a second.
pub const TINY: [&str; 14] = [
    "--dim",
    "8",
    "--seq",
    "8",
    "--epochs",
    "3",
    "--steps-per-epoch",
    "5",
    "--batch",
    "4",
    "--set",
    "train.validation_batches=2",
    "--set",
    "train.case_sequences=12",
];

/// Runs to the end; panics unless the exit code is as expected.
#[track_caller]
pub fn run(command: &mut Command, code: i32) -> Output {
    let output = command.output().expect("nap runs");
    assert_eq!(
        output.status.code(),
        Some(code),
        "{command:?}\nstdout: {}\nstderr: {}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The one line on standard error that bad input gets.
#[track_caller]
pub fn refused(command: &mut Command) -> String {
    let output = run(command, 2);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(text.lines().count(), 1, "{command:?}: {text}");
    assert!(text.starts_with("error: ") && !text.contains("panicked"), "{command:?}: {text}");
    text
}

/// A run directory's files, wall-clock figures removed from the metrics.
#[track_caller]
pub fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a run directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let mut bytes = std::fs::read(&path).expect("a file");
        if name == "metrics.jsonl" {
            let lines = String::from_utf8(bytes).expect("UTF-8");
            let mut kept = String::new();
            for line in lines.lines() {
                let mut record: serde_json::Map<_, _> = serde_json::from_str(line).expect("JSON");
                assert!(record.remove("steps_per_s").is_some(), "{line}");
                kept += &serde_json::Value::Object(record).to_string();
                kept.push('\n');
            }
            bytes = kept.into_bytes();
        }
        files.push((name, bytes));
    }
    files.sort();
    files
}

/// Asserts that two run directories hold the same, wall-clock figures aside.
#[track_caller]
pub fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (contents(a), contents(b));
    let names = |files: &[(String, Vec<u8>)]| {
        files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&a), names(&b));
    for ((name, a), (_, b)) in a.iter().zip(&b) {
        assert!(a == b, "{name} differs");
    }
}
