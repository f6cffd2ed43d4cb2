//! Bad input of every kind gets one clear line and exit code 2, and leaves nothing behind.

mod support;

use std::fs;

use support::{TINY, nap, refused, run};
use tempfile::tempdir;

#[test]
fn options_that_cannot_be_used() {
    let dir = tempdir().unwrap();
    let cases: [(&[&str], &[&str]); 24] = [
        (&["--task", "modes"], &["task modes", "did you mean mode?"]),
        (&["--model", "napp"], &["model napp", "did you mean nap?"]),
        (&["--preset", "papr"], &["preset papr", "did you mean paper?"]),
        (&["--set", "model.head=2"], &["unknown key model.head", "did you mean heads?"]),
        (&["--set", "modle.heads=2"], &["modle", "did you mean model?"]),
        (&["--set", "heads=2"], &["--set heads=2", "section.key=value"]),
        (&["--heads", "3"], &["model.heads = 3", "a divisor of model.dim = 32"]),
        (&["--task", "cases", "--vocab", "64"], &["task.vocab = 64", "between 65"]),
        (&["--task", "lg", "--vocab", "10"], &["task.vocab = 10", "between 65"]),
        (&["--seq", "0"], &["task.length = 0", "between 1"]),
        (&["--seq=-1"], &["task.length = -1"]),
        (&["--lr", "0"], &["learning rate 0", "> 0"]),
        (&["--lr", "-0.1"], &["learning rate -0.1", "> 0"]),
        (&["--lr", "nan"], &["learning rate", "> 0"]),
        (&["--lr", "0.3^^2"], &["learning rate", "0.3^6"]),
        (&["--lr", "1e-60"], &["learning rate", "> 0"]),
        (&["--dim", "wide"], &["model.dim = \"wide\""]),
        (&["--dim", "3.5"], &["model.dim = 3.5"]),
        (&["--dropout", "1"], &["model.dropout = 1", "[0, 1)"]),
        (&["--set", "model.aggregator=meen"], &["model.aggregator = meen", "normalized"]),
        (&["--set", "model.form=linear", "--model", "mte"], &["model.form = linear", "softmax"]),
        (&["--task", "cases", "--set", "task.validation_length=256"], &["at most", "128"]),
        (&["--dim", "60000", "--layers", "500"], &["model.dim", "GiB"]),
        (&["--colour"], &["--colour"]),
    ];
    for (options, parts) in cases {
        for command in ["train", "config"] {
            // Memory is a question for a run, not for its configuration.
            if command == "config" && options.contains(&"60000") {
                continue;
            }
            let line = refused(nap(dir.path()).arg(command).args(options));
            for part in parts {
                assert!(line.contains(part), "{options:?}: {line}");
            }
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn unknown_instruction_sets() {
    let dir = tempdir().unwrap();
    let line = refused(nap(dir.path()).arg("models").env("NAP_ISA", "Portable"));
    assert!(line.contains("NAP_ISA=Portable: expected one of portable, avx2, avx512;"), "{line}");
}

#[test]
fn benches_that_cannot_be_run() {
    let dir = tempdir().unwrap();
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--precision", "f16"], &["train.precision", "f16"]),
        (&["--threads", "0"], &["'0'", "--threads", "1..=4"]),
        (&["--seconds", "-1"], &["'-1'", "--seconds", "expected 0 to 86400"]),
        (&["--seconds", "nan"], &["'nan'", "--seconds"]),
        (&["--seconds", "long"], &["'long'", "--seconds"]),
        (&["--model", "napp"], &["model napp", "did you mean nap?"]),
        (&["--heads", "3"], &["model.heads = 3", "a divisor of model.dim = 128"]),
        (&["--dim", "60000", "--layers", "500"], &["model.dim", "GiB"]),
        (&["none.toml"], &["cannot read none.toml"]),
    ];
    for (options, parts) in cases {
        let line = refused(nap(dir.path()).arg("bench").args(options));
        for part in parts {
            assert!(line.contains(part), "{options:?}: {line}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn files_that_cannot_be_used() {
    let dir = tempdir().unwrap();
    let cases = [
        ("[model]\ndim = 8\nheads 3", "line 3"),
        ("[model]\ndim = 8\ndim = 9", "line 3"),
        ("[model]\ndimm = 8", "unknown key model.dimm (did you mean dim?)"),
        ("[axes]\nlr = [0.1]", "expected `nap sweep bad.toml`"),
        ("dim = 8", "expected a section of model, task, train"),
        ("[model]\ndim = 'eight'", "model.dim = \"eight\""),
        ("preset = 3", "preset = 3"),
        ("preset = 'quick'", "preset quick"),
        ("[train]\nlearning_rate = nan", "learning rate"),
        ("[train]\nseed = -1", "train.seed = -1"),
        ("[task]\nname = 7", "task.name = 7"),
    ];
    for (text, expected) in cases {
        fs::write(dir.path().join("bad.toml"), text).unwrap();
        let line = refused(nap(dir.path()).args(["train", "bad.toml"]));
        assert!(line.contains("bad.toml") && line.contains(expected), "{text}: {line}");
    }
    let line = refused(nap(dir.path()).args(["train", "none.toml"]));
    assert!(line.contains("cannot read none.toml"), "{line}");
    fs::write(dir.path().join("binary.toml"), [0xff, 0xfe, 0]).unwrap();
    refused(nap(dir.path()).args(["train", "binary.toml"]));
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn output_directories_that_cannot_be_used() {
    let dir = tempdir().unwrap();
    let train = |options: &[&str]| {
        let mut command = nap(dir.path());
        command.arg("train").args(TINY).args(options);
        command
    };
    // Below a file there is no directory, not even for root.
    fs::write(dir.path().join("file"), "").unwrap();
    for out in ["file", "file/run", "/proc/run"] {
        let line = refused(&mut train(&["--out", out]));
        assert!(line.contains("output directory"), "{line}");
    }
    fs::create_dir(dir.path().join("papers")).unwrap();
    fs::write(dir.path().join("papers/thesis.tex"), "").unwrap();
    let line = refused(&mut train(&["--out", "papers"]));
    assert!(line.contains("no run"), "{line}");

    run(&mut train(&["--out", "run"]), 0);
    let before = support::contents(&dir.path().join("run"));
    let line = refused(&mut train(&["--out", "run", "--lr", "0.1"]));
    assert!(line.contains("another run") && line.contains("train.learning_rate"), "{line}");
    let line = refused(&mut train(&["--out", "run", "--resume", "--seed", "4"]));
    assert!(line.contains("another run") && line.contains("train.seed"), "{line}");
    let line = refused(&mut train(&["--out", "run"]));
    assert!(line.contains("finished"), "{line}");
    let line = refused(nap(dir.path()).args(["train", "--resume", "--out", "none"]));
    assert!(line.contains("nothing to resume"), "{line}");
    let line = refused(nap(dir.path()).args(["train", "--resume"]));
    assert!(line.contains("--out"), "{line}");
    assert_eq!(support::contents(&dir.path().join("run")), before);
}

#[test]
fn checkpoints_that_cannot_be_used() {
    let dir = tempdir().unwrap();
    let mut train = nap(dir.path());
    run(train.args(["train", "--task", "cases", "--out", "run"]).args(TINY), 0);
    let whole = fs::read(dir.path().join("run/last.safetensors")).unwrap();
    let foreign = {
        let data = [0u8; 8];
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2], &data).unwrap();
        safetensors::serialize([("x", view)], None).unwrap()
    };
    let mut files = vec![Vec::new(), b"not a checkpoint".to_vec(), vec![0xff; 4096], foreign];
    files.extend([1, 7, 8, 9, 100, whole.len() / 2, whole.len() - 1].map(|n| whole[..n].to_vec()));
    for bytes in files {
        let path = dir.path().join("bad.safetensors");
        fs::write(&path, &bytes).unwrap();
        for command in ["eval", "show"] {
            let line = refused(nap(dir.path()).args([command, "bad.safetensors"]));
            assert!(line.contains("bad.safetensors"), "{line}");
        }
        fs::write(dir.path().join("run/last.safetensors"), &bytes).unwrap();
        let line = refused(nap(dir.path()).args(["train", "--resume", "--out", "run"]));
        assert!(line.contains("last.safetensors") && line.contains("remove it to start"), "{line}");
    }
    // Weights alone cannot be resumed.
    fs::copy(dir.path().join("run/best.safetensors"), dir.path().join("run/last.safetensors"))
        .unwrap();
    let line = refused(nap(dir.path()).args(["train", "--resume", "--out", "run"]));
    assert!(line.contains("adam"), "{line}");

    let line = refused(nap(dir.path()).args(["eval", "run", "--seq", "9"]));
    assert!(line.contains("sequence length = 9") && line.contains("at most 8"), "{line}");
    refused(nap(dir.path()).args(["eval", "run", "--seq", "0"]));
    refused(nap(dir.path()).args(["eval", "run", "--batches", "0"]));
    refused(nap(dir.path()).args(["eval", "nowhere"]));
    fs::create_dir(dir.path().join("empty")).unwrap();
    let line = refused(nap(dir.path()).args(["show", "empty"]));
    assert!(line.contains("expected a run directory"), "{line}");
}
