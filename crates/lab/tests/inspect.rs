//! `eval`, `show`, `models`, `tasks` and `completions`, and checkpoints that someone damaged.

mod support;

use std::fs;
use std::path::Path;

use nap_engine::config::{RunConfig, TaskName};
use nap_engine::model::family::{self, FAMILIES};
use nap_engine::train::{Trained, Trainer};
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{nap, refused, run};
use tempfile::{TempDir, tempdir};

/// A trained model of a few hundred parameters.
fn tiny(task: TaskName, model: &str) -> Trainer {
    let mut config = RunConfig::paper();
    family::find(model).unwrap().apply(&mut config);
    config.task.name = task;
    config.task.length = 8;
    config.task.vocab = if task == TaskName::Mode { 5 } else { 70 };
    (config.model.dim, config.model.layers, config.model.heads) = (4, 1, 2);
    (config.train.epochs, config.train.steps_per_epoch, config.train.batch) = (2, 3, 4);
    (config.train.validation_batches, config.train.case_sequences) = (2, 12);
    let mut trainer = Trainer::new(config).unwrap();
    for _ in 0..3 {
        trainer.step();
    }
    trainer.finish_epoch();
    trainer.step();
    trainer
}

/// A run directory with both checkpoints.
fn run_dir(trainer: &Trainer) -> TempDir {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("run")).unwrap();
    fs::write(dir.path().join("run/last.safetensors"), trainer.checkpoint()).unwrap();
    fs::write(dir.path().join("run/best.safetensors"), trainer.weights()).unwrap();
    dir
}

fn text(dir: &Path, arguments: &[&str]) -> String {
    let output = run(nap(dir).args(arguments), 0);
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn eval_scores_every_model_on_every_task_as_the_engine_does() {
    for task in TaskName::ALL {
        for model in FAMILIES.map(|family| family.name) {
            let trainer = tiny(task, model);
            let dir = run_dir(&trainer);
            let length = trainer.config().validation_length();
            let scores = Trained::read(&trainer.weights()).unwrap().evaluate(length, 32, 0);
            let scores = scores.unwrap();
            let record: Value =
                serde_json::from_str(&text(dir.path(), &["eval", "run", "--json"])).unwrap();
            let name = Path::new("run").join("best.safetensors");
            assert_eq!(record["checkpoint"], json!(name));
            assert_eq!((&record["epoch"], &record["length"]), (&json!(1), &json!(length)));
            assert_eq!(record["loss"], json!(scores.loss));
            assert_eq!(record["accuracy"], json!(scores.accuracy));
            let cases = record.as_object().unwrap().keys().filter(|key| key.starts_with("case_"));
            assert_eq!(cases.count(), scores.cases.len());
            let table = text(dir.path(), &["eval", "run", "--last"]);
            assert!(table.contains(&format!("accuracy  {:.4}", scores.accuracy)), "{table}");
        }
    }
}

#[test]
fn eval_takes_lengths_that_the_model_can_read() {
    let dir = run_dir(&tiny(TaskName::Mode, "nap"));
    assert!(text(dir.path(), &["eval", "run", "--seq", "100"]).contains("of length 100"));
    let dir = run_dir(&tiny(TaskName::Cases, "nap"));
    text(dir.path(), &["eval", "run", "--seq", "8", "--batches", "1", "--seed", "3"]);
    let line = refused(nap(dir.path()).args(["eval", "run", "--seq", "9"]));
    assert!(line.contains("sequence length = 9") && line.contains("at most 8"), "{line}");
    let dir = run_dir(&tiny(TaskName::Mode, "weighted"));
    let line = refused(nap(dir.path()).args(["eval", "run", "--seq", "9"]));
    assert!(line.contains("weighted"), "{line}");
    for bad in [["--seq", "0"], ["--batches", "0"], ["--seq", "99999999999"], ["--seed", "x"]] {
        refused(nap(dir.path()).args(["eval", "run"]).args(bad));
    }
}

#[test]
fn show_prints_a_configuration_that_can_be_read_back_and_every_parameter() {
    let trainer = tiny(TaskName::Cases, "bert");
    let dir = run_dir(&trainer);
    let shown = text(dir.path(), &["show", "run"]);
    let (config, rest) = shown.split_once("\nepoch ").unwrap();
    assert_eq!(&toml::from_str::<RunConfig>(config).unwrap(), trainer.config());
    for parameter in &trainer.architecture().parameters {
        assert!(rest.lines().any(|line| line.split(' ').next() == Some(&parameter.name)));
    }
    let total = trainer.parameters().len().to_string();
    assert!(rest.lines().last().unwrap().ends_with(&total));
    for part in ["validation", "loss", "accuracy", "argmax_at_first", trainer.isa()] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(text(dir.path(), &["show", "run/best.safetensors"]), shown);
}

#[test]
fn lists_and_completions() {
    let dir = tempdir().unwrap();
    let models = text(dir.path(), &["models"]);
    assert!(FAMILIES.iter().all(|family| models.contains(family.summary)));
    let tasks = text(dir.path(), &["tasks"]);
    assert!(TaskName::ALL.iter().all(|task| tasks.contains(task.as_str())));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(text(dir.path(), &["completions", shell]).contains("case-bias"), "{shell}");
    }
    refused(nap(dir.path()).args(["completions", "tcsh"]));
}

#[test]
fn every_help_has_examples() {
    let dir = tempdir().unwrap();
    for command in ["train", "eval", "models", "tasks", "show", "config", "completions"] {
        let help = text(dir.path(), &[command, "--help"]);
        assert!(help.contains("Example"), "{command}: {help}");
    }
}

/// The checkpoint with other metadata.
fn with_metadata(bytes: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (_, header) = safetensors::SafeTensors::read_metadata(bytes).unwrap();
    let mut metadata = header.metadata().clone().unwrap();
    let mut json: Value = serde_json::from_str(&metadata["nap"]).unwrap();
    change(&mut json);
    metadata.insert("nap".to_owned(), json.to_string());
    let tensors = safetensors::SafeTensors::deserialize(bytes).unwrap();
    safetensors::serialize(tensors.iter(), Some(metadata)).unwrap()
}

#[test]
fn a_configuration_that_the_file_cannot_hold_is_refused_before_anything_is_allocated() {
    let changes: [(&str, Value); 8] = [
        ("/config/model/dim", json!(65536)),
        ("/config/model/layers", json!(1024)),
        ("/config/model/feed_forward", json!(1 << 20)),
        ("/config/task/vocab", json!(1 << 20)),
        ("/config/task/length", json!(1 << 20)),
        ("/config/model/heads", json!(3)),
        ("/config/model/dim", json!(-1)),
        ("/config/train/learning_rate", json!(null)),
    ];
    let whole = tiny(TaskName::Cases, "nap").checkpoint();
    let dir = tempdir().unwrap();
    for (pointer, value) in changes {
        let changed = with_metadata(&whole, |json| *json.pointer_mut(pointer).unwrap() = value);
        assert!(Trained::read(&changed).is_err(), "{pointer}");
        assert!(Trainer::resume(&changed).is_err(), "{pointer}");
        fs::write(dir.path().join("bad.safetensors"), &changed).unwrap();
        let line = refused(nap(dir.path()).args(["show", "bad.safetensors"]));
        assert!(line.contains("bad.safetensors"), "{line}");
    }
}

#[test]
fn a_batch_that_no_memory_holds_is_refused() {
    let whole = tiny(TaskName::Mode, "nap").checkpoint();
    let changed = with_metadata(&whole, |json| json["config"]["train"]["batch"] = json!(1 << 20));
    let trained = Trained::read(&changed).unwrap();
    assert!(trained.evaluate(1 << 20, 1, 0).is_err());
    let changed = with_metadata(&changed, |json| json["config"]["task"]["length"] = json!(1 << 20));
    assert!(Trainer::resume(&changed).is_err());
}

#[test]
fn positions_that_cannot_be_are_refused() {
    let whole = tiny(TaskName::Mode, "nap").checkpoint();
    for (pointer, value) in [
        ("/steps", json!(2)),
        ("/steps", json!(7)),
        ("/steps", json!(u64::MAX)),
        ("/config/train/epochs", json!(0)),
        ("/numerics", json!(0)),
    ] {
        let changed = with_metadata(&whole, |json| *json.pointer_mut(pointer).unwrap() = value);
        assert!(Trainer::resume(&changed).is_err(), "{pointer}");
    }
}

/// Reads the bytes in every way; whatever they are, this returns, and what it returns works.
fn survives(bytes: &[u8]) {
    if let Ok(trained) = Trained::read(bytes) {
        let length = trained.config.validation_length().min(64);
        // A damaged number may make this slow, but never wrong: small ones only.
        if trained.config.train.batch <= 64 && trained.config.train.case_sequences <= 1000 {
            let _ = trained.evaluate(length, 1, 0);
        }
    }
    if let Ok(mut trainer) = Trainer::resume(bytes)
        && trainer.config().train.batch <= 64
        && trainer.config().task.length <= 1000
        && trainer.steps_done() < trainer.config().train.steps_per_epoch
    {
        trainer.step();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_checkpoints_never_panic(
        which in 0..3usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        // Digits and letters of the header are where damage is most interesting.
        in_header in any::<bool>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
        tail in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        thread_local! {
            static WHOLE: [Vec<u8>; 3] = [
                tiny(TaskName::Mode, "nap").checkpoint(),
                tiny(TaskName::Cases, "max").checkpoint(),
                tiny(TaskName::Lg, "bert").weights(),
            ];
        }
        let mut bytes = WHOLE.with(|whole| whole[which].clone());
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for (at, value) in edits {
            if in_header {
                bytes[at.index(header)] = b' ' + value % 95;
            } else {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend(tail);
        survives(&bytes);
    }

    #[test]
    fn random_bytes_are_no_checkpoint(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Trained::read(&bytes).is_err());
        prop_assert!(Trainer::resume(&bytes).is_err());
    }
}
