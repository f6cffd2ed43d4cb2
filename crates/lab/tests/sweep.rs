//! Sweeps from the command line: what runs, what is kept, what interruptions and damage do.

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use support::sweep::{
    assert_no_run_twice, assert_same_results, csv_without_wall, ids, journal_lines,
};
use support::{nap, refused, run};
use tempfile::tempdir;

/// Runs of a few hundredths of a second.
const SMALL: [&str; 8] = [
    "--set",
    "task.length=8",
    "--set",
    "train.epochs=2",
    "--set",
    "train.steps_per_epoch=4",
    "--set",
    "train.validation_batches=1",
];

fn sweep(directory: &Path, options: &[&str]) -> Command {
    let mut command = nap(directory);
    command.args(["sweep", "mode-dim"]).args(options).args(SMALL);
    command
}

/// Eight runs: two models, two widths, two seeds.
const EIGHT: [&str; 10] =
    ["--models", "nap,sum", "--x", "8,16", "--lr", "0.3^5", "--seeds", "2", "--out", "out"];

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn status(directory: &Path, sweep: &str) -> Value {
    let output = run(nap(directory).args(["status", sweep, "--json"]), 0);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_line_of_the_documentation_works_as_it_stands() {
    let dir = tempdir().unwrap();
    let line = "sweep mode-dim --models nap,sum --x 8,16 --lr 0.3^5..0.3^6 --seeds 2 \
                --set train.epochs=3 --set train.steps_per_epoch=20 --out DIR --jobs 2";
    let output = run(nap(dir.path()).args(line.split_whitespace()), 0);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("sweep mode-dim in DIR: 16 runs, 0 done, 16 to do on 2 cores"));
    assert!(
        stdout.contains("[16/16] ") && stdout.contains("nap dim 16 lr 0.3^6 seed 1: validation")
    );
    assert!(stdout.contains("16 runs finished, 0 failed, 0 left"));
    assert!(stdout.contains("core time: training and evaluation 9"), "{stdout}");
    let status = status(dir.path(), "DIR");
    let total = &status["sweeps"][0]["total"];
    assert_eq!((&total["runs"], &total["finished"]), (&Value::from(16), &Value::from(16)));
    let table = text(&run(nap(dir.path()).args(["status", "DIR"]), 0));
    assert!(table.contains("sweep mode-dim: 16 of 16 runs finished"), "{table}");
    assert!(table.contains("across: dim 8 to 16, down: learning rate"), "{table}");
    run(nap(dir.path()).args(["export", "DIR", "-o", "OUT", "--csv"]), 0);
    assert_eq!(csv_without_wall(&dir.path().join("OUT/runs.csv")).len(), 1 + 16);
    assert_eq!(csv_without_wall(&dir.path().join("OUT/epochs.csv")).len(), 1 + 16 * 3);
}

#[test]
fn a_run_of_a_sweep_is_the_run_of_train() {
    let dir = tempdir().unwrap();
    run(
        &mut sweep(
            dir.path(),
            &["--models", "bert", "--x", "8", "--lr", "0.3^5", "--seeds", "1", "--out", "out"],
        ),
        0,
    );
    let mut train = nap(dir.path());
    train.args(["train", "--preset", "paper", "--task", "mode", "--model", "bert", "--dim", "8"]);
    run(train.args(["--lr", "0.3^5", "--out", "single", "--quiet"]).args(SMALL), 0);
    for (from, to) in [("out", "a"), ("single", "b")] {
        run(nap(dir.path()).args(["export", from, "-o", to, "--csv"]), 0);
    }
    let epochs = |out: &str| csv_without_wall(&dir.path().join(out).join("epochs.csv"));
    assert_eq!(epochs("a"), epochs("b"));
    assert_eq!(epochs("a").len(), 3);
    let runs = |out: &str| {
        let mut rows = csv_without_wall(&dir.path().join(out).join("runs.csv"));
        let commit = rows[0].iter().position(|name| name == "commit").unwrap();
        rows.iter_mut().for_each(|row| row[commit].clear());
        rows
    };
    assert_eq!(runs("a"), runs("b"));
}

#[test]
fn extending_computes_only_what_is_missing_and_the_order_changes_nothing() {
    let dir = tempdir().unwrap();
    let first = ["--models", "nap", "--x", "8", "--lr", "0.3^5", "--seeds", "2", "--out", "out"];
    run(&mut sweep(dir.path(), &first), 0);
    let before = journal_lines(&dir.path().join("out"));
    assert_eq!(before.len(), 2);
    // More seeds, values and models; then the part again.
    let wide = ["--models", "nap,sum", "--x", "8,16", "--lr", "0.3^5,0.3^6", "--seeds", "3"];
    let all = [&wide[..], &["--out", "out", "--jobs", "2"]].concat();
    let output = text(&run(&mut sweep(dir.path(), &all), 0));
    assert!(output.contains("24 runs, 2 done, 22 to do"), "{output}");
    let output = text(&run(&mut sweep(dir.path(), &first), 0));
    assert!(output.contains("2 runs, 2 done, 0 to do"), "{output}");
    let after = journal_lines(&dir.path().join("out"));
    assert!(before.iter().all(|line| after.contains(line)) && after.len() == 24);
    assert_no_run_twice(&dir.path().join("out"));
    // The whole is one grid; its part is not listed again.
    assert_eq!(status(dir.path(), "out")["sweeps"].as_array().unwrap().len(), 1);
    for (order, jobs) in [("cheapest", "1"), ("round-robin", "4")] {
        let out = format!("{order}-{jobs}");
        let options = [&wide[..], &["--order", order, "--jobs", jobs, "--out", &out]].concat();
        run(&mut sweep(dir.path(), &options), 0);
        assert_same_results(&dir.path().join("out"), &dir.path().join(&out));
    }
}

#[test]
fn a_sweep_file_with_three_axes() {
    let dir = tempdir().unwrap();
    let file = "models = ['nap', 'max']\nseeds = 1\n[task]\nname = 'cases'\nlength = 8\n[train]\nepochs = 1\n\
                steps_per_epoch = 2\ncase_sequences = 12\n[axes]\nheads = [1, 3, 8]\n\
                'train.patience' = [2]\n\
                lr = { base = 0.3, min = 4, range = 2 }\n'model.gain' = [true, false]\n[model]\ndim = 8";
    fs::write(dir.path().join("mine.toml"), file).unwrap();
    let output = text(&run(nap(dir.path()).args(["sweep", "mine.toml", "--jobs", "2"]), 0));
    // Heads do not matter to max pooling, but are part of its configuration.
    assert!(output.contains("sweep mine in sweeps/mine: 20 runs"), "{output}");
    let note =
        "note: left out 4 points of the grid: nap model.heads = 3: a divisor of model.dim = 8";
    assert!(output.contains(note), "{output}");
    let table = text(&run(nap(dir.path()).args(["status", "sweeps/mine"]), 0));
    assert!(table.contains("nap train.patience 2 model.gain true"), "{table}");
    // The stored file is a sweep file: it continues the sweep.
    let stored = fs::read_dir(dir.path().join("sweeps/mine")).unwrap();
    let stored = stored.map(|entry| entry.unwrap().path());
    let stored = stored.into_iter().find(|path| path.is_file()).unwrap();
    let mut again = nap(dir.path());
    let again = again.arg("sweep").arg(stored).args(["--out", "sweeps/mine"]);
    assert!(text(&run(again, 0)).contains("20 runs, 20 done, 0 to do"));
}

#[test]
fn bad_sweeps_get_one_line_and_leave_nothing_behind() {
    let dir = tempdir().unwrap();
    let files = [
        ("[axes]\ndimm = [8]", "bad.toml: unknown key dimm (did you mean dim?)"),
        ("[axes]\ndim = []", "the grid would be empty"),
        ("[axes]", "one axis at least"),
        ("[axes]\ndim = [8, 0]", "model.dim = 0"),
        ("[model]\nheads = 3\n[axes]\nlr = [0.1]", "model.heads = 3"),
        (
            "[axes]\nheads = [3]",
            "the grid is empty: left out 1 point of the grid: nap model.heads = 3",
        ),
        ("[axes]\ndim = [8]\ndim = [16]", "bad.toml, line 3"),
        ("[axes]\ndim = [8]\n'model.dim' = [16]", "two axes set model.dim"),
        ("[axes]\ndim = { base = 0, min = 1, range = 3 }", "base = 0"),
        ("[axes]\ndim = { base = 2, min = -1, range = 3 }", "model.dim takes whole numbers"),
        ("models = ['nap', 'napp']\n[axes]\ndim = [8]", "did you mean nap?"),
        ("seeds = 0\n[axes]\ndim = [8]", "seeds = 0"),
        ("axes = 3", "axes = 3"),
        ("[axes]\nlr = ['fast']", "learning rate"),
        ("name = '../x'\n[axes]\ndim = [8]", "name = \"../x\""),
    ];
    for (text, expected) in files {
        fs::write(dir.path().join("bad.toml"), text).unwrap();
        for command in ["sweep", "plan"] {
            let line = refused(nap(dir.path()).args([command, "bad.toml"]));
            assert!(line.contains(expected), "{text}: {line}");
        }
    }
    fs::write(dir.path().join("bad.toml"), [0xff, 0xfe]).unwrap();
    refused(nap(dir.path()).args(["sweep", "bad.toml"]));
    let options: [(&[&str], &str); 16] = [
        (&["sweep", "mode-dimm"], "did you mean mode-dim?"),
        (&["sweep", "none.toml"], "cannot read none.toml"),
        (&["sweep", "mode-dim", "--x", "24"], "dim has the values 8, 16"),
        (&["sweep", "mode-dim", "--lr", "0.5"], "lr has the values 0.3^1"),
        (&["sweep", "mode-dim", "--seeds", "many"], "--seeds many"),
        (&["sweep", "mode-dim", "--set", "model.dim=8"], "set by axis dim"),
        (&["sweep", "mode-dim", "--set", "model.head=8"], "unknown key model.head"),
        (&["sweep", "mode-dim", "--jobs", "0"], "--jobs"),
        (&["sweep", "mode-dim", "--time", "soon"], "--time"),
        (&["sweep", "mode-dim", "--memory", "lots"], "8GiB"),
        (&["sweep", "mode-dim", "--shard", "0/4"], "3/64"),
        (
            &["sweep", "mode-dim", "--out", "/proc/nap-sweep"],
            "output directory /proc/nap-sweep, journal: ",
        ),
        (&["status", "none"], "none holds no sweep"),
        (&["retry", "none", "--failed"], "none holds no sweep"),
        (&["export", "none", "-o", "out", "--csv"], "none holds no sweep"),
        (&["slurm", "submit", "mode-dim", "--array", "4", "--time", "4h"], "04:00:00"),
    ];
    for (arguments, expected) in options {
        let line = refused(nap(dir.path()).args(arguments));
        assert!(line.contains(expected), "{arguments:?}: {line}");
    }
    let mut array = nap(dir.path());
    array.env("SLURM_ARRAY_TASK_ID", "x").args(["sweep", "mode-dim"]);
    assert!(refused(&mut array).contains("SLURM_ARRAY_TASK_ID=x"));
    fs::remove_file(dir.path().join("bad.toml")).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
    // A directory with something else in it is left as it is.
    fs::write(dir.path().join("thesis.tex"), "text").unwrap();
    let line = refused(nap(dir.path()).args(["sweep", "mode-dim", "--out", "."]));
    assert!(line.contains("holds 1 files and no sweep"), "{line}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
#[cfg(unix)]
fn a_directory_that_cannot_be_written_is_refused_before_anything_runs() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempdir().unwrap();
    run(&mut sweep(dir.path(), &EIGHT), 0);
    let journal = dir.path().join("out/journal");
    let before = journal_lines(&dir.path().join("out"));
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write everywhere: there is nothing to refuse then.
    let root = fs::write(journal.join("probe"), "").is_ok();
    if !root {
        let line = refused(&mut sweep(dir.path(), &EIGHT));
        assert!(line.contains("cannot write to output directory out"), "{line}");
    }
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o755)).unwrap();
    let _ = fs::remove_file(journal.join("probe"));
    assert_eq!(journal_lines(&dir.path().join("out")), before);
    // A file in its place cannot be written by anybody.
    fs::remove_dir_all(&journal).unwrap();
    fs::write(&journal, "").unwrap();
    let line = refused(&mut sweep(dir.path(), &EIGHT));
    assert!(line.contains("cannot write to output directory out"), "{line}");
}

#[test]
#[cfg(unix)]
fn a_full_disk_stops_the_sweep_and_loses_nothing() {
    let dir = tempdir().unwrap();
    run(&mut sweep(dir.path(), &[&EIGHT[..8], &["--out", "whole"]].concat()), 0);
    // Room for about three records of 1.1 kB in a file: the limit counts blocks of 512 or 1024.
    let mut limited = Command::new("sh");
    limited.current_dir(dir.path()).arg("-c").arg("ulimit -f 4; exec \"$@\"").arg("sh");
    limited.arg(env!("CARGO_BIN_EXE_nap")).args(["sweep", "mode-dim"]).args(EIGHT).args(SMALL);
    let output = run(limited.args(["--jobs", "1"]), 1);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("cannot store a record in out/journal: File too large"), "{stderr}");
    assert!(stderr.contains("continue with: nap sweep mode-dim"), "{stderr}");
    let kept = ids(&dir.path().join("out"));
    assert!(!kept.is_empty() && kept.len() < 8, "{kept:?}");
    let output = run(&mut sweep(dir.path(), &EIGHT), 0);
    assert!(output.stderr.is_empty(), "a torn line was left: {}", text(&output));
    assert_no_run_twice(&dir.path().join("out"));
    assert_same_results(&dir.path().join("whole"), &dir.path().join("out"));
}

#[test]
fn damaged_journals_are_reported_and_what_is_whole_is_kept() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("out");
    run(&mut sweep(dir.path(), &[&EIGHT[..], &["--jobs", "1"]].concat()), 0);
    run(&mut sweep(dir.path(), &[&EIGHT[..8], &["--out", "whole"]].concat()), 0);
    let file = fs::read_dir(out.join("journal")).unwrap().next().unwrap().unwrap().path();
    let lines = journal_lines(&out);
    // A line of garbage in the middle, a torn last line, an empty file, another sweep's journal.
    let torn = &lines[7][..lines[7].len() / 2];
    let text_now =
        format!("{}not a record\u{0}\n{}{torn}", lines[..4].concat(), lines[4..7].concat());
    fs::write(&file, text_now).unwrap();
    fs::write(out.join("journal/empty.jsonl"), "").unwrap();
    fs::create_dir(out.join("journal/folder.jsonl")).unwrap();
    let mut other = nap(dir.path());
    other.args([
        "sweep", "mode-dim", "--models", "mte", "--x", "8", "--lr", "0.3^1", "--seeds", "1",
    ]);
    run(other.args(SMALL).args(["--out", "other"]), 0);
    let foreign = journal_lines(&dir.path().join("other")).concat();
    fs::write(out.join("journal/other.jsonl"), &foreign).unwrap();
    // A compressed file that was not copied to its end.
    let mut short = GzEncoder::new(Vec::new(), Compression::fast());
    short.write_all(lines[..4].concat().as_bytes()).unwrap();
    let short = short.finish().unwrap();
    fs::write(out.join("journal/short.jsonl.gz"), &short[..short.len() - 9]).unwrap();
    // An older numerics version is never mixed in.
    let older = lines[0].replace("\"numerics\":2", "\"numerics\":0").replace("0.", "0.9");
    fs::write(out.join("journal/older.jsonl"), older).unwrap();
    // A clock that was set back, or forward, decides nothing.
    let year = lines[1].find("\"finished\":\"").unwrap() + 12;
    let late = format!("{}2099{}", &lines[1][..year], &lines[1][year + 4..]);
    fs::write(out.join("journal/late.jsonl"), late).unwrap();

    let output = text(&run(&mut sweep(dir.path(), &EIGHT), 0));
    for note in [
        "line 5: not a record",
        "line 9: cut short",
        "empty.jsonl: empty",
        "folder.jsonl: not a file: ignored",
        "only what comes before is read",
        "1 records of numerics version 0 are kept apart",
        "8 runs, 7 done, 1 to do",
    ] {
        assert!(output.contains(note), "{note}: {output}");
    }
    // A damaged sweep file is refused by readers, and made again by the sweep.
    let stored = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let stored = stored.into_iter().find(|path| path.is_file()).unwrap();
    fs::write(&stored, "[").unwrap();
    let line = refused(nap(dir.path()).args(["status", "out"]));
    assert!(line.contains("sweep-mode-dim-") && line.contains("remove that file"), "{line}");
    run(&mut sweep(dir.path(), &EIGHT), 0);
    let shown = text(&run(nap(dir.path()).args(["status", "out"]), 0));
    assert!(shown.contains("1 more records belong to no sweep of this directory"), "{shown}");
    fs::remove_file(out.join("journal/other.jsonl")).unwrap();
    assert_same_results(&dir.path().join("whole"), &out);
}

#[test]
fn records_that_differ_are_reported_and_every_reader_takes_the_same() {
    let dir = tempdir().unwrap();
    let one = ["--models", "sum", "--x", "8", "--lr", "0.3^5", "--seeds", "1", "--out", "out"];
    run(&mut sweep(dir.path(), &one), 0);
    let journal = dir.path().join("out/journal");
    let line = journal_lines(&dir.path().join("out")).concat();
    let at = line.find("\"val_accuracy\":[").unwrap() + 16;
    let other = format!("{}0.999,{}", &line[..at], &line[line[at..].find(',').unwrap() + at + 1..]);
    let other = other.replace("\"isa\":\"", "\"isa\":\"z");
    let export = |out: &str| {
        let output = run(nap(dir.path()).args(["export", "out", "-o", out, "--csv"]), 0);
        (text(&output), csv_without_wall(&dir.path().join(out).join("runs.csv")))
    };
    let (_, before) = export("a");
    for name in ["0.jsonl", "zz.jsonl"] {
        fs::write(journal.join(name), &other).unwrap();
        let (said, after) = export("b");
        assert!(said.contains("records that differ"), "{said}");
        assert_eq!(before, after);
        fs::remove_file(journal.join(name)).unwrap();
    }
}

#[test]
fn two_processes_in_one_directory() {
    let dir = tempdir().unwrap();
    run(&mut sweep(dir.path(), &[&EIGHT[..8], &["--out", "whole"]].concat()), 0);
    // Different shares: each run once. The same share by mistake: twice, to the same bits.
    for (out, shards, records) in [("out", ["1/2", "2/2"], 8), ("same", ["1/1", "1/1"], 8)] {
        let options = [&EIGHT[..8], &["--out", out, "--checkpoint-every", "0s"]].concat();
        let children = shards.map(|shard| {
            let mut command = sweep(dir.path(), &options);
            command.args(["--shard", shard]).stdout(Stdio::null());
            command.stderr(Stdio::piped()).spawn().expect("nap starts")
        });
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", text(&output));
        }
        let out = dir.path().join(out);
        let found = ids(&out);
        assert!(found.len() >= records, "{found:?}");
        if shards[0] != shards[1] {
            assert_no_run_twice(&out);
        }
        assert_same_results(&dir.path().join("whole"), &out);
        assert_eq!(fs::read_dir(out.join("checkpoints")).unwrap().count(), 0);
    }
}

#[test]
fn slurm_array_tasks_take_their_share() {
    let dir = tempdir().unwrap();
    for task in ["3", "4", "5"] {
        let mut command = sweep(dir.path(), &EIGHT);
        for (name, value) in
            [("TASK_ID", task), ("TASK_MIN", "3"), ("TASK_MAX", "5"), ("TASK_COUNT", "3")]
        {
            command.env(format!("SLURM_ARRAY_{name}"), value);
        }
        command.env("SLURM_CPUS_PER_TASK", "1");
        let output = text(&run(&mut command, 0));
        assert!(output.contains("to do on 1 cores"), "{output}");
    }
    assert_eq!(ids(&dir.path().join("out")).len(), 8);
    assert_no_run_twice(&dir.path().join("out"));
    // Whatever Slurm this machine may have.
    let mut submit = nap(dir.path());
    submit.env("PATH", "");
    submit.args(["slurm", "submit", "mode-dim", "--array", "9", "--time", "1-0", "--dry-run"]);
    let output = text(&run(submit.args(["--cpus", "4", "--seeds", "1"]), 0));
    let script = output.split("sbatch ").nth(1).unwrap().trim();
    let script = fs::read_to_string(script).unwrap();
    assert!(script.contains("#SBATCH --array=1-9\n#SBATCH --time=1-0\n#SBATCH --cpus-per-task=4"));
}

/// Starts a sweep of long runs, sends a signal after a while, and gives its exit code and words.
#[cfg(unix)]
fn interrupted(directory: &Path, signal: &str) -> (Option<i32>, String) {
    let mut command = nap(directory);
    command.args(["sweep", "mode-dim", "--models", "nap", "--x", "8", "--lr", "0.3^5,0.3^6"]);
    command.args(["--seeds", "1", "--set", "train.epochs=2", "--out", "out", "--jobs", "2"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
    let output = child.wait_with_output().unwrap();
    (output.status.code(), text(&output))
}

#[test]
#[cfg(unix)]
fn signals_put_the_runs_aside_and_the_same_command_goes_on() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("out");
    for signal in ["-TERM", "-INT"] {
        let (code, said) = interrupted(dir.path(), signal);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("stopped; continue with: nap sweep mode-dim --models nap"), "{said}");
        assert_eq!(fs::read_dir(out.join("checkpoints")).unwrap().count(), 2);
        assert_eq!(status(dir.path(), "out")["sweeps"][0]["total"]["begun"], 2);
    }
    // A damaged checkpoint starts again, the other goes on.
    let damaged = fs::read_dir(out.join("checkpoints")).unwrap().next().unwrap().unwrap().path();
    fs::write(damaged, "not a checkpoint").unwrap();
    let mut command = nap(dir.path());
    command.args(["sweep", "mode-dim", "--models", "nap", "--x", "8", "--lr", "0.3^5,0.3^6"]);
    command.args(["--seeds", "1", "--set", "train.epochs=2", "--out"]);
    let said = text(&run(command.arg("out"), 0));
    assert!(said.contains("the run starts again"), "{said}");
    let mut command = nap(dir.path());
    command.args(["sweep", "mode-dim", "--models", "nap", "--x", "8", "--lr", "0.3^5,0.3^6"]);
    command.args(["--seeds", "1", "--set", "train.epochs=2", "--out"]);
    run(command.arg("whole"), 0);
    assert_same_results(&dir.path().join("whole"), &out);
}

#[test]
fn time_and_memory_limits_leave_the_rest_for_later() {
    let dir = tempdir().unwrap();
    let long = ["--models", "nap", "--x", "8", "--lr", "0.3^5", "--seeds", "2", "--out", "out"];
    let mut command = nap(dir.path());
    command.args(["sweep", "mode-dim", "--time", "500ms"]).args(long);
    let said = text(&run(&mut command, 0));
    assert!(said.contains("stopped; continue with: nap sweep mode-dim --time 500ms"), "{said}");
    assert!(ids(&dir.path().join("out")).is_empty());
    let options = [&EIGHT[..8], &["--out", "small", "--memory", "1.7MB"]].concat();
    let said = text(&run(&mut sweep(dir.path(), &options), 1));
    assert!(said.contains("more memory than the limit of 1.7 MB (--memory)"), "{said}");
    run(&mut sweep(dir.path(), &[&EIGHT[..8], &["--out", "small"]].concat()), 0);
    assert_eq!(ids(&dir.path().join("small")).len(), 8);
}

#[test]
fn failed_runs_are_computed_again_on_request_only() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("out");
    run(&mut sweep(dir.path(), &EIGHT), 0);
    run(&mut sweep(dir.path(), &[&EIGHT[..8], &["--out", "whole"]].concat()), 0);
    // Two runs failed, as a bug in an aggregator would let them.
    let mut lines = journal_lines(&out);
    for line in &mut lines[..2] {
        let mut record: Value = serde_json::from_str(line).unwrap();
        record["status"] = "failed".into();
        record["reason"] = "panic: index out of bounds".into();
        record["epochs"] = serde_json::json!({});
        *line = format!("{record}\n");
    }
    for entry in fs::read_dir(out.join("journal")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::write(out.join("journal/a.jsonl"), lines.concat()).unwrap();
    let said = text(&run(&mut sweep(dir.path(), &EIGHT), 1));
    assert!(said.contains("8 runs, 8 done, 0 to do"), "{said}");
    assert!(
        said.contains("2 runs failed; compute them again with: nap retry out --failed"),
        "{said}"
    );
    assert_eq!(status(dir.path(), "out")["sweeps"][0]["total"]["failed"], 2);
    let said = text(&run(nap(dir.path()).args(["retry", "out", "--failed"]), 0));
    assert!(said.contains("2 runs failed") && said.contains("2 runs finished"), "{said}");
    assert_eq!(status(dir.path(), "out")["sweeps"][0]["total"]["finished"], 8);
    assert_same_results(&dir.path().join("whole"), &out);
}

#[test]
fn checkpoints_are_kept_on_request() {
    let dir = tempdir().unwrap();
    let options = ["--models", "sum", "--x", "8", "--lr", "0.3^5", "--seeds", "1", "--out", "out"];
    run(&mut sweep(dir.path(), &[&options[..], &["--keep-checkpoints"]].concat()), 0);
    let out = dir.path().join("out");
    let id = &ids(&out)[0];
    for kind in ["best", "last"] {
        let file = format!("out/models/{id}.{kind}.safetensors");
        run(nap(dir.path()).args(["eval", &file, "--batches", "1"]), 0);
    }
    // A run that began without them starts again, for its best may be over.
    let best = fs::read(out.join(format!("models/{id}.best.safetensors"))).unwrap();
    for folder in ["models", "journal"] {
        fs::rename(out.join(folder), dir.path().join(folder)).unwrap();
    }
    let last = dir.path().join(format!("models/{id}.last.safetensors"));
    fs::copy(last, out.join(format!("checkpoints/{id}.safetensors"))).unwrap();
    let said =
        text(&run(&mut sweep(dir.path(), &[&options[..], &["--keep-checkpoints"]].concat()), 0));
    assert!(said.contains("its best weights were not kept: the run starts again"), "{said}");
    assert_eq!(fs::read(out.join(format!("models/{id}.best.safetensors"))).unwrap(), best);
}

#[test]
fn plans_say_what_is_left_and_what_it_takes() {
    let dir = tempdir().unwrap();
    run(&mut sweep(dir.path(), &EIGHT), 0);
    let plan = |options: &[&str]| {
        let mut command = nap(dir.path());
        command.args(["plan", "mode-dim", "--models", "nap,sum", "--x", "8,16", "--out", "out"]);
        run(command.args(options).args(SMALL), 0)
    };
    let wider = ["--lr", "0.3^5,0.3^6", "--seeds", "2"];
    let output = plan(&[&wider[..], &["--json"]].concat());
    let plan_json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&plan_json["runs"], &plan_json["done"]), (&Value::from(16), &Value::from(8)));
    for part in ["models", "columns"] {
        let parts = plan_json[part].as_array().unwrap();
        assert_eq!(parts.len(), 2);
        let sum = |key: &str| parts.iter().map(|part| part[key].as_f64().unwrap()).sum::<f64>();
        assert_eq!((sum("runs"), sum("done")), (16.0, 8.0));
        let flops = plan_json["flops_to_do"].as_f64().unwrap();
        assert!((sum("flops_to_do") / flops - 1.0).abs() < 1e-12);
    }
    let seconds = plan_json["core_seconds_to_do"].as_f64().unwrap();
    assert!(seconds > 0.0 && seconds < 60.0, "{seconds}");
    let said = text(&plan(&wider));
    assert!(said.contains("16 runs, 8 done, 8 to do") && said.contains("memory  about"), "{said}");
    let said = text(&plan(&["--lr", "0.3^5", "--seeds", "2"]));
    assert!(said.contains("8 runs, 8 done, 0 to do") && !said.contains("\ntime "), "{said}");
    assert!(text(&run(nap(dir.path()).args(["sweep", "list"]), 0)).contains("cases-first-bias"));
}

#[test]
fn exports_for_other_programs() {
    let dir = tempdir().unwrap();
    run(&mut sweep(dir.path(), &EIGHT), 0);
    let mut command = nap(dir.path());
    command.args(["export", "out", "-o", "o", "--csv", "--parquet", "--tensorboard"]);
    let output =
        run(command.args(["--select", "model=nap,dim=8", "--select", "lr=0.00243,seed=1"]), 0);
    assert!(text(&output).contains("5 runs that ended, in o"), "{}", text(&output));
    let rows = csv_without_wall(&dir.path().join("o/runs.csv"));
    assert_eq!(rows.len(), 1 + 5);
    for selection in ["model=nap,dim=8", "lr=0.00243,seed=1"] {
        let folder = dir.path().join("o/tensorboard").join(selection);
        for entry in fs::read_dir(&folder).unwrap() {
            let file = entry.unwrap().path().join("events.out.tfevents.nap");
            assert!(fs::read(file).unwrap().len() > 200);
        }
    }
    // The same figures in both tables.
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let file = fs::File::open(dir.path().join("o/epochs.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let csv = csv_without_wall(&dir.path().join("o/epochs.csv"));
    let column = csv[0].iter().position(|name| name == "val_loss").unwrap();
    let mut compared = 0;
    for (row, line) in reader.get_row_iter(None).unwrap().zip(&csv[1..]) {
        let row = row.unwrap();
        let field = row.get_column_iter().nth(column).unwrap();
        assert_eq!(field.0, "val_loss");
        assert_eq!(
            field.1.to_string(),
            parquet::record::Field::Double(line[column].parse().unwrap()).to_string()
        );
        compared += 1;
    }
    assert_eq!(compared, 10);
    let line =
        refused(nap(dir.path()).args(["export", "out", "-o", "p", "--csv", "--select", "dimm=8"]));
    assert!(line.contains("did you mean dim?"), "{line}");
    let line =
        refused(nap(dir.path()).args(["export", "out", "-o", "p", "--csv", "--select", "dim=64"]));
    assert!(line.contains("no run has that"), "{line}");
    let line = refused(nap(dir.path()).args(["export", "out", "-o", "p"]));
    assert!(line.contains("--csv, --parquet, --tensorboard or --records"), "{line}");
    assert!(!dir.path().join("p").exists());
}
