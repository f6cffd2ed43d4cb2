//! `eval`, `show`, `inspect`, `models`, `tasks` and `completions`, and checkpoints that someone
//! damaged.

mod support;

use std::fs;
use std::path::Path;

use nap_engine::config::{Precision, RunConfig, TaskName};
use nap_engine::model::Model;
use nap_engine::model::family::{self, FAMILIES};
use nap_engine::task::{Batch, Task};
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
    for task in TaskName::PAPER {
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

/// Attention weights of layer 0, by hand: logits of the embedded tokens, then the equation.
fn first_layer_by_hand(trained: &Trained, tokens: &[u32]) -> Vec<Vec<Vec<f64>>> {
    let (d, heads) = (trained.config.model.dim, trained.config.model.heads);
    let get = |name: &str| -> Vec<f64> {
        let range = trained.architecture.parameter(name).unwrap().range();
        trained.parameters[range].iter().map(|&x| f64::from(x)).collect()
    };
    let (table, positions) = (get("embedding.weight"), get("position_embedding.weight"));
    let place = |i: usize, c: usize| table[tokens[i] as usize * d + c] + positions[i * d + c];
    let project = |name: &str, i: usize| -> Vec<f64> {
        let weight = get(&format!("layer.0.attention.{name}.weight"));
        let bias = get(&format!("layer.0.attention.{name}.bias"));
        (0..d)
            .map(|o| bias[o] + (0..d).map(|c| place(i, c) * weight[c * d + o]).sum::<f64>())
            .collect()
    };
    let queries: Vec<_> = (0..tokens.len()).map(|i| project("query", i)).collect();
    let keys: Vec<_> = (0..tokens.len()).map(|i| project("key", i)).collect();
    let width = d / heads;
    let softmax = trained.config.model.aggregator == "softmax";
    let row = |head: usize, i: usize| -> Vec<f64> {
        let dot = |j: usize| {
            (head * width..(head + 1) * width).map(|c| queries[i][c] * keys[j][c]).sum::<f64>()
        };
        let z: Vec<f64> = (0..tokens.len()).map(dot).collect();
        if softmax {
            let e: Vec<f64> = z.iter().map(|z| (z / (width as f64).sqrt()).exp()).collect();
            return e.iter().map(|x| x / e.iter().sum::<f64>()).collect();
        }
        let n = z.len() as f64;
        let mean = z.iter().sum::<f64>() / n;
        let std = (z.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / n).sqrt();
        let (gain, bias) = (get("layer.0.attention.gain"), get("layer.0.attention.bias"));
        z.iter().map(|z| gain[head] * (z - mean) / (std + 1e-3) + bias[head]).collect()
    };
    (0..heads).map(|head| (0..tokens.len()).map(|i| row(head, i)).collect()).collect()
}

fn inspected(dir: &Path, more: &[&str]) -> Value {
    serde_json::from_str(&text(dir, &[&["inspect", "run", "--json"], more].concat())).unwrap()
}

#[test]
fn inspect_shows_the_weights_of_the_equation() {
    let tokens = [64, 3, 50, 69, 3, 7];
    for model in ["nap", "mte", "bert"] {
        let trainer = tiny(TaskName::Cases, model);
        let dir = run_dir(&trainer);
        let record = inspected(dir.path(), &["--input", "64,3 50, 69,3,7"]);
        assert_eq!(record["tokens"], json!(tokens));
        assert_eq!(record["marks"]["argmin"], json!([1]));
        assert_eq!(record["marks"]["64"], json!([0]));
        let maps = record["maps"].as_array().unwrap();
        assert_eq!(maps.len(), 2);
        let by_hand = first_layer_by_hand(&Trained::read(&trainer.weights()).unwrap(), &tokens);
        for (map, by_hand) in maps.iter().zip(by_hand) {
            let largest = by_hand.iter().flatten().fold(0.0f64, |most, w| most.max(w.abs()));
            for (row, by_hand) in map["weights"].as_array().unwrap().iter().zip(by_hand) {
                for (w, by_hand) in row.as_array().unwrap().iter().zip(by_hand) {
                    let error = (w.as_f64().unwrap() - by_hand).abs() / largest;
                    assert!(error < 1e-5, "{model}: {w} {by_hand}");
                }
            }
        }
    }
}

#[test]
fn inspect_answers_as_the_model_does_on_every_task() {
    for task in TaskName::PAPER {
        for model in FAMILIES.map(|family| family.name) {
            let trainer = tiny(task, model);
            let dir = run_dir(&trainer);
            let record = inspected(dir.path(), &["--sequences", "5", "--sample", "4"]);
            let trained = Trained::read(&trainer.weights()).unwrap();
            let tokens: Vec<u32> = serde_json::from_value(record["tokens"].clone()).unwrap();
            let mut targets = vec![0; if task == TaskName::Lg { 8 } else { 1 }];
            Task::new(&trained.config.task).label(&tokens, &mut targets);
            let batch = Batch { tokens, length: 8, targets, ..Batch::default() };
            let mut engine = Model::new(trained.architecture.clone(), 8, Precision::F32);
            let mut answers = Vec::new();
            engine.answers(&trained.parameters, &batch, &mut answers);
            let listed = record["answers"].as_array().unwrap();
            assert_eq!(listed.len(), answers.len());
            for ((listed, given), right) in listed.iter().zip(answers).zip(&batch.targets) {
                assert_eq!(listed["given"], given, "{model}");
                assert_eq!(listed["right"], *right);
                assert!((0.0..=1.0).contains(&listed["probability"].as_f64().unwrap()));
            }
            // What every map has in common, per kind.
            let rows = |map: &Value| -> Vec<f64> {
                let rows = map["weights"].as_array().unwrap().iter();
                rows.map(|r| r.as_array().unwrap().iter().map(|w| w.as_f64().unwrap()).sum())
                    .collect()
            };
            for map in record["maps"].as_array().unwrap() {
                let sums = rows(map);
                assert_eq!(sums.len(), if ["sum", "max", "mean"].contains(&model) { 1 } else { 8 });
                if ["mte", "bert", "sum", "max", "mean"].contains(&model) {
                    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-4), "{model}: {sums:?}");
                }
            }
            for head in record["heads"].as_array().unwrap() {
                assert_eq!(head["entropy"].is_number(), ["mte", "bert"].contains(&model));
            }
            let shown = text(dir.path(), &["inspect", "run", "--last", "--sequences", "3"]);
            let attention = !["sum", "max", "mean", "weighted"].contains(&model);
            assert_eq!(shown.contains("no attention in this model"), !attention, "{shown}");
            assert!(shown.contains("What each head does") && shown.contains("layer 0 head 0"));
        }
    }
}

#[test]
fn inspect_averages_over_the_sample_it_names() {
    let dir = run_dir(&tiny(TaskName::Cases, "mte"));
    // A sample of one sequence is that sequence.
    let one = inspected(dir.path(), &["--sequences", "1"]);
    let map = &one["maps"][1];
    let argmin = one["marks"]["argmin"][0].as_u64().unwrap() as usize;
    let rows = map["weights"].as_array().unwrap();
    let mean = rows.iter().map(|row| row[argmin].as_f64().unwrap()).sum::<f64>() / 8.0;
    let on = one["heads"][1]["mean_weight_on"]["argmin"].as_f64().unwrap();
    assert!((on - mean).abs() < 1e-12, "{on} {mean}");
    let first = inspected(dir.path(), &["--sequences", "1", "--queries", "first"]);
    let on = first["heads"][1]["mean_weight_on"]["argmin"].as_f64().unwrap();
    assert!((on - rows[0][argmin].as_f64().unwrap()).abs() < 1e-12);
    let chosen = inspected(dir.path(), &["--head", "1", "--layer", "0"]);
    assert_eq!(
        (chosen["maps"].as_array().unwrap().len(), &chosen["maps"][0]["head"]),
        (1, &json!(1))
    );
    assert_ne!(inspected(dir.path(), &["--seed", "1"])["tokens"], one["tokens"]);
}

#[test]
fn inspect_writes_a_page_that_stands_alone() {
    let dir = run_dir(&tiny(TaskName::Cases, "nap"));
    let file = dir.path().join("<i>&.html");
    text(dir.path(), &["inspect", "run/best.safetensors", "--sequences", "2", "--json"]);
    let output = run(nap(dir.path()).args(["inspect", "run", "-o"]).arg(&file), 0);
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("wrote "));
    let page = fs::read_to_string(&file).unwrap();
    for part in ["http:", "https:", "{{", "src=", "@import"] {
        assert!(!page.contains(part), "{part}");
    }
    let data = page.split_once("type=\"application/json\">").unwrap().1.split_once("</script>");
    let data: Value = serde_json::from_str(data.unwrap().0).unwrap();
    assert_eq!(data["maps"].as_array().unwrap().len(), 2);
    assert_eq!(data["tokens"].as_array().unwrap().len(), 8);
    assert!(page.contains("The model answers position") && page.contains("layer 0 head 1"));
}

#[test]
fn inspect_refuses_what_cannot_be() {
    let dir = run_dir(&tiny(TaskName::Cases, "nap"));
    fs::write(dir.path().join("junk"), "junk").unwrap();
    for (wrong, part) in [
        (vec!["junk"], "not a whole safetensors file"),
        (vec!["none"], "cannot read checkpoint none"),
        (vec!["run", "--input", "3,70"], "token 70: expected a whole number from 0 to 69"),
        (vec!["run", "--input", "3,-1"], "token -1"),
        (vec!["run", "--input", "3,x"], "token x"),
        (vec!["run", "--input", ","], "no tokens"),
        (vec!["run", "--input", "1,2,3,4,5,6,7,8,9"], "sequence length = 9: at most 8"),
        (vec!["run", "--seq", "9"], "sequence length = 9: at most 8"),
        (vec!["run", "--seq", "0"], "sequence length = 0"),
        (vec!["run", "--layer", "1"], "--layer 1: expected 0"),
        (vec!["run", "--head", "2"], "--head 2: expected between 0 and 1"),
        (vec!["run", "--sequences", "0"], "--sequences 0"),
        (vec!["run", "--sample", "30"], "--sample 30: expected between 0 and 29"),
        (vec!["run", "--sample", "1", "--input", "3"], "--input"),
        (vec!["run", "-o", "no/such/page.html"], "no/such"),
    ] {
        let line = refused(nap(dir.path()).arg("inspect").args(&wrong));
        assert!(line.contains(part), "{wrong:?}: {line}");
    }
    let dir = run_dir(&tiny(TaskName::Mode, "nap"));
    let line = refused(nap(dir.path()).args(["inspect", "run", "--seq", "1000000"]));
    assert!(line.contains("GiB"), "{line}");
    let line = refused(nap(dir.path()).args([
        "inspect",
        "run",
        "--seq",
        "4096",
        "-o",
        "x.html",
        "--sequences",
        "1",
    ]));
    assert!(line.contains("choose with --layer and --head"), "{line}");
}

#[test]
fn a_diverged_model_has_no_weights_to_show() {
    let mut trainer = tiny(TaskName::Cases, "mte");
    let whole = trainer.weights();
    trainer.step();
    // Every weight NaN, in the file alone.
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut bytes = whole.clone();
    bytes[header..].as_chunks_mut::<4>().0.iter_mut().for_each(|b| *b = f32::NAN.to_le_bytes());
    let dir = run_dir(&trainer);
    fs::write(dir.path().join("run/best.safetensors"), bytes).unwrap();
    let record = inspected(dir.path(), &["--sequences", "1"]);
    assert_eq!(record["answers"][0]["given"], 0);
    assert!(record["answers"][0]["probability"].is_null());
    assert!(record["maps"][0]["weights"][0][0].is_null() && record["heads"][0]["mean"].is_null());
    let shown = text(dir.path(), &["inspect", "run"]);
    assert!(shown.contains("diverged"), "{shown}");
}

#[test]
fn lists_and_completions() {
    let dir = tempdir().unwrap();
    let models = text(dir.path(), &["models"]);
    assert!(FAMILIES.iter().all(|family| models.contains(family.summary)));
    let tasks = text(dir.path(), &["tasks"]);
    assert!(TaskName::PAPER.iter().all(|task| tasks.contains(task.as_str())));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(text(dir.path(), &["completions", shell]).contains("case-bias"), "{shell}");
    }
    refused(nap(dir.path()).args(["completions", "tcsh"]));
}

#[test]
fn every_help_has_examples() {
    let dir = tempdir().unwrap();
    let commands = ["train", "eval", "models", "tasks", "show", "inspect", "config", "completions"];
    let commands = commands.map(|command| vec![command]);
    for command in commands.into_iter().chain([vec!["analyze", "init"], vec!["analyze", "hull"]]) {
        let help = text(dir.path(), &[&command[..], &["--help"]].concat());
        assert!(help.contains("Example"), "{command:?}: {help}");
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
