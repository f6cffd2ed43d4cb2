//! `nap bench`: what it prints, and that its figures fit together.

mod support;

use std::path::Path;
use std::time::Instant;

use nap_engine::config::RunConfig;
use nap_engine::train::Cost;
use serde_json::{Value, json};
use support::{nap, run};
use tempfile::tempdir;

const TINY: [&str; 8] = ["--dim", "8", "--seq", "8", "--batch", "4", "--seconds", "0.3"];

fn bench(options: &[&str]) -> Value {
    let dir = tempdir().unwrap();
    let output = run(nap(dir.path()).args(["bench", "--json"]).args(options), 0);
    assert!(output.stderr.is_empty());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn figure(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key}: {object}"))
}

/// Operations of a training step.
fn flops(change: impl Fn(&mut RunConfig)) -> f64 {
    let mut config = RunConfig::paper();
    (config.train.epochs, config.train.steps_per_epoch) = (1, 1);
    change(&mut config);
    Cost::of(&config).unwrap().training_flops
}

fn assert_close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} is not {b}");
}

#[test]
fn the_default_is_the_papers_step() {
    let started = Instant::now();
    let object = bench(&["--seconds", "0"]);
    let took = started.elapsed().as_secs_f64();
    for (key, value) in [
        ("task", json!("cases")),
        ("model", json!("nap")),
        ("form", json!("auto")),
        ("dim", json!(128)),
        ("layers", json!(2)),
        ("heads", json!(4)),
        ("seq", json!(128)),
        ("batch", json!(32)),
        ("precision", json!("f32")),
        ("threads", json!(1)),
        ("parameters", json!(428_433)),
        ("diverged", json!(false)),
        ("samples", json!(3)),
    ] {
        assert_eq!(object[key], value, "{key}");
    }
    assert!(object["profile"].is_object());
    let rate = figure(&object, "steps_per_s");
    assert_close(figure(&object, "gflops"), rate * flops(|_| {}) / 1e9);
    // Four steps were taken in this time, the first of them before the others.
    assert!(rate > 2.0 / took && figure(&object, "first_step_s") < took, "{object}");
}

#[test]
fn figures_fit_together() {
    let models: [&[&str]; 3] = [&[], &["--task", "mode", "--model", "bert"], &["--model", "max"]];
    for options in models {
        let object = bench(&[&TINY, options].concat());
        let [gflops, peak] = ["gflops", "peak_gflops"].map(|key| figure(&object, key));
        assert_close(figure(&object, "peak_share"), gflops / peak);
        assert!(figure(&object, "steps_per_s_best_quartile") >= figure(&object, "steps_per_s"));
        assert!(figure(&object, "validation_sequences_per_s") > 0.0);
        assert!(figure(&object, "samples") >= 3.0);
        if Path::new("/proc/self/status").exists() {
            let megabytes = figure(&object, "peak_rss_mb");
            assert!((1.0..200.0).contains(&megabytes), "{megabytes}");
        }
    }
}

#[test]
fn any_key_can_be_set_and_the_form_changes_the_operations() {
    let form = |form: &str| {
        let object = bench(&[&TINY, &["--set", &format!("model.form={form}")] as &[&str]].concat());
        assert_eq!(object["form"], form);
        figure(&object, "gflops") / figure(&object, "steps_per_s")
    };
    let expected = |form: &str| {
        1e-9 * flops(|config| {
            (config.model.dim, config.task.length, config.train.batch) = (8, 8, 4);
            config.model.form = serde_json::from_value(json!(form)).unwrap();
        })
    };
    assert_close(form("linear"), expected("linear"));
    assert_close(form("quadratic"), expected("quadratic"));
    assert!(expected("linear") < expected("quadratic"));
}

#[test]
fn a_run_that_diverges_says_so() {
    let object = bench(&[&TINY, &["--lr", "1e30"] as &[&str]].concat());
    assert_eq!(object["diverged"], true);
}

#[test]
fn a_person_reads_the_same_figures() {
    let dir = tempdir().unwrap();
    let output = run(nap(dir.path()).arg("bench").args(TINY), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "cases, nap: d = 8, 2 layers, 4 heads, 4 sequences of 8",
        "steps/s (median of",
        "% of the peak of",
        "sequences/s of length 4",
        "s after the start",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
