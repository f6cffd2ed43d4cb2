//! `nap compare`: with the published grids and between results.

mod support;

use std::fs;
use std::path::Path;

use nap::published;
use nap::sweep::identity::RunId;
use nap::sweep::record::RunRecord;
use nap_engine::config::RunConfig;
use serde_json::Value;
use support::results::{failed, grid, journal, record, sweep};
use support::{nap, refused, run};
use tempfile::tempdir;

/// Two models over a quarter of the paper's grid.
const SWEEP: &str = "
    models = ['nap', 'mte']
    seeds = 5
    task = { name = 'mode' }
    [axes]
    dim = [8, 16, 32, 64]
    lr = { base = 0.3, min = 3, range = 6 }
";

/// A run as the paper's might have been: between the published least and largest run of its cell,
/// the nearer to the largest the larger its seed.
fn like_published(config: &RunConfig, shift: f64) -> RunRecord {
    let cell = published::cell(config).expect("a published cell");
    let band = cell.curves().unwrap().figure("val_accuracy").unwrap();
    let part = [0.1, 0.3, 0.5, 0.7, 0.9][config.train.seed as usize % 5];
    let ends = band.min.iter().zip(&band.max);
    let curve: Vec<f64> = ends.map(|(min, max)| min + part * (max - min) + shift).collect();
    record(config, &curve)
}

fn json(directory: &Path, arguments: &[&str], code: i32) -> Value {
    let output = run(nap(directory).arg("compare").args(arguments).arg("--json"), code);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The text, its lines joined.
fn text(directory: &Path, arguments: &[&str], code: i32) -> String {
    let output = run(nap(directory).arg("compare").args(arguments), code);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn runs_like_the_published_ones_agree_and_shifted_ones_do_not() {
    let dir = tempdir().unwrap();
    sweep(&dir.path().join("same"), SWEEP, |run| Some(like_published(&run.config, 0.0)));
    let said = text(dir.path(), &["same"], 0);
    assert!(said.contains("agree: 2 of 2 grids agree"), "{said}");
    let same = json(dir.path(), &["same"], 0);
    let of_nap = &same["grids"][0];
    assert_eq!((&of_nap["model"], &of_nap["setting"]), (&"nap".into(), &"mode by dim".into()));
    assert_eq!((&of_nap["compared"], &of_nap["cells_of_each"][1]), (&24.into(), &80.into()));
    assert_eq!(of_nap["outside"]["runs"], 120);
    assert_eq!(
        (&of_nap["outside"]["last_epoch"], &of_nap["verdict"]),
        (&0.into(), &"agree".into())
    );
    assert!((of_nap["outside"]["expected"].as_f64().unwrap() - 40.0).abs() < 1e-9);
    assert!(of_nap["rank_correlation"].as_f64().unwrap() > 0.95);
    assert!(of_nap["absolute_difference"].as_f64().unwrap() < 0.02);
    let area = &of_nap["robust_areas"][0];
    let interval = &area["ours_interval"];
    assert!(interval["low"].as_f64() <= area["ours"].as_f64());
    assert!(interval["high"].as_f64() >= area["ours"].as_f64());

    sweep(&dir.path().join("worse"), SWEEP, |run| Some(like_published(&run.config, -0.1)));
    let said = text(dir.path(), &["worse"], 1);
    assert!(said.contains("disagree: 0 of 2 grids agree, 0 undecided, 2 disagree"), "{said}");
    let worse = json(dir.path(), &["worse"], 1);
    let difference = worse["grids"][1]["difference"].as_f64().unwrap();
    assert!((difference + 0.1).abs() < 0.02, "{difference}");
    // Training accuracies are those of `record`: half of the others.
    run(nap(dir.path()).args(["compare", "same", "--training"]), 1);
    // Rows are cells.
    let output = run(nap(dir.path()).args(["compare", "same", "--csv"]), 0);
    let mut reader = csv::Reader::from_reader(output.stdout.as_slice());
    let rows: Vec<_> = reader.records().map(|row| row.unwrap()).collect();
    assert_eq!(rows.len(), 48);
    assert_eq!((&rows[0][1], &rows[0][3], &rows[0][4]), ("nap", "8", "0.3^3"));
}

#[test]
fn few_runs_are_undecided_and_missing_ones_never_fail() {
    let dir = tempdir().unwrap();
    let few = SWEEP.replace("[8, 16, 32, 64]", "[32]").replace("range = 6", "range = 2");
    sweep(&dir.path().join("few"), &few, |run| match run.config.train.seed {
        0 if run.config.model.name == "nap" => Some(like_published(&run.config, 0.0)),
        1 if run.config.model.name == "nap" => Some(failed(&run.config)),
        _ => None,
    });
    let said = text(dir.path(), &["few"], 0);
    for expected in [
        "nap: undecided:",
        "too few runs",
        "2 failed",
        "6 not yet run",
        "mte mode by dim: no run of it has finished",
        "undecided: 0 of 1 grids agree, 1 undecided",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    // One run.
    let config = grid(SWEEP).runs[0].config.clone();
    journal(&dir.path().join("one.jsonl"), &[like_published(&config, 0.0)]);
    let one = json(dir.path(), &["one.jsonl"], 0);
    assert_eq!((&one["verdict"], &one["grids"][0]["compared"]), (&"undecided".into(), &1.into()));
    assert_eq!(one["grids"][0]["interval"], Value::Null);
}

#[test]
fn headlines_follow_the_papers_rules() {
    let dir = tempdir().unwrap();
    let vocab = "
        models = ['nap', 'max']
        seeds = 5
        task = { name = 'mode' }
        [axes]
        vocab = { values = [128, 256], with = { 'train.steps_per_epoch' = [1600, 3200] } }
        lr = ['0.3^5', '0.3^8']
    ";
    sweep(dir.path(), vocab, |run| Some(like_published(&run.config, 0.0)));
    let compared = json(dir.path(), &["."], 0);
    let of = |figure: &str, model: &str| -> Value {
        let all = compared["headlines"].as_array().unwrap().iter();
        let mut fits =
            all.filter(|h| h["figure"].as_str().unwrap().contains(figure) && h["model"] == model);
        fits.next().expect("a headline").clone()
    };
    let validation = of("vocabulary 256, validation", "nap");
    assert_eq!(validation["stated"], 64.3);
    assert_eq!(validation["ours"]["learning_rate"], "0.3^8");
    assert_eq!(validation["coverage"], serde_json::json!([2, 10]));
    assert_eq!(of("case distinction", "nap")["ours"], Value::Null);
    let said = text(dir.path(), &["."], 0);
    assert!(said.contains("2 of 10 cells run"), "{said}");
}

/// A run that solves the task or does not, as its seed and a share say.
fn bimodal(config: &RunConfig, solved: bool) -> RunRecord {
    let noise = 0.001 * (config.train.seed * 3 % 10) as f64;
    record(config, &[0.1, if solved { 0.97 } else { 0.12 } + noise])
}

#[test]
fn results_with_each_other() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let seeds = |from: u64| SWEEP.replace("seeds = 5", &format!("seeds = {from}"));
    let make = |name: &str, text: &str, solved: &dyn Fn(&RunConfig) -> bool| {
        sweep(&at(name), text, |run| Some(bimodal(&run.config, solved(&run.config))));
    };
    make("a", SWEEP, &|config| config.model.dim > 16);
    let other = SWEEP.replace("seeds = 5", "seeds = [5, 6, 7, 8, 9]");
    make("b", &other, &|config| config.model.dim > 16);
    make("c", &other, &|config| config.model.dim > 16 && config.model.name == "nap");
    make("few", &seeds(2), &|config| config.model.dim > 16);
    // The same runs.
    let said = text(dir.path(), &["a", "a"], 0);
    assert!(said.contains("the same 120 runs, to the bit"), "{said}");
    // The same behaviour with other seeds.
    let same = json(dir.path(), &["a", "b"], 0);
    assert_eq!(same["verdict"], "agree");
    assert_eq!(same["grids"][0]["same_runs"], 0);
    assert!(same["grids"][0]["p"].as_f64().unwrap() > 0.2);
    // A difference that is certain and small, beyond a smaller margin only.
    sweep(&at("d"), &other, |run| Some(record(&run.config, &[0.5])));
    sweep(&at("e"), SWEEP, |run| Some(record(&run.config, &[0.51])));
    let said = text(dir.path(), &["d", "e"], 0);
    assert!(said.contains("more than chance, but less than matters"), "{said}");
    let apart = json(dir.path(), &["d", "e", "--margin", "0.005"], 1);
    assert_eq!(apart["grids"][0]["cells"][0]["p"].as_f64().unwrap(), 2.0 / 252.0);
    // One model behaves otherwise at some widths.
    let differs = json(dir.path(), &["a", "--with", "c"], 1);
    let verdict = |model: usize| differs["grids"][model]["verdict"].as_str().unwrap().to_owned();
    assert_eq!([verdict(0), verdict(1)], ["agree", "disagree"]);
    let cells = differs["grids"][1]["cells"].as_array().unwrap();
    let differ = cells.iter().filter(|cell| cell["verdict"] == "disagree" && cell["x"] != "8");
    assert!(differ.clone().all(|cell| cell["p"].as_f64().unwrap() < 0.01));
    assert!(differ.count() >= 12);
    assert_eq!(differs["grids"][1]["robust_areas"][0]["ours"], 0.5);
    assert_eq!(differs["grids"][1]["robust_areas"][0]["theirs"], 0.0);
    // Two seeds against two can show nothing.
    let two = SWEEP.replace("seeds = 5", "seeds = [5, 6]");
    make("two", &two, &|config| config.model.dim > 16 && config.model.name == "nap");
    let few = text(dir.path(), &["few", "two"], 0);
    assert!(few.contains("with so few seeds"), "{few}");
    text(dir.path(), &["a", "c"], 1);
    let output = run(nap(dir.path()).args(["compare", "a", "c", "--csv"]), 1);
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 49);
    // Both sides together, with the published grids: runs that are too short for the last epoch
    // of those decide nothing.
    let both = json(dir.path(), &["--published", "a", "b"], 0);
    assert_eq!(both["grids"][0]["seeds"], serde_json::json!([[10, 10], [5, 5]]));
    assert_eq!(both["grids"][0]["outside"]["runs"], 0);
    assert_eq!(both["verdict"], "undecided");
}

#[test]
fn bad_input_is_one_line() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("empty")).unwrap();
    sweep(&path("nothing"), SWEEP, |_| None);
    sweep(&path("failed"), SWEEP, |run| Some(failed(&run.config)));
    sweep(&path("a"), SWEEP, |run| Some(like_published(&run.config, 0.0)));
    let lg = SWEEP.replace("'mode'", "'lg'");
    sweep(&path("lg"), &lg, |run| Some(record(&run.config, &[0.5])));
    fs::write(path("text.jsonl"), "no journal\n").unwrap();
    let refuse = |arguments: &[&str], expected: &str| {
        let output = run(nap(dir.path()).arg("compare").args(arguments), 2);
        let said = String::from_utf8(output.stderr).unwrap();
        let errors: Vec<_> = said.lines().filter(|line| !line.starts_with("note: ")).collect();
        assert!(errors.len() == 1 && errors[0].starts_with("error: "), "{said}");
        assert!(errors[0].contains(expected), "{expected}: {said}");
    };
    refuse(&[], "required");
    refuse(&["empty"], "holds no sweep");
    refuse(&["none"], "none");
    refuse(&["nothing"], "no run has ended");
    refuse(&["failed"], "no run of it has finished");
    refuse(&["text.jsonl"], "no run has ended");
    refuse(&["lg"], "no grid of this task");
    refuse(&["a", "lg"], "nothing in common");
    refuse(&["a", "lg", "nothing"], "expected one or two");
    refuse(&["a", "--published", "--with", "lg"], "cannot be used with");
    refuse(&["a", "--level", "2"], "--level 2");
    refuse(&["a", "--margin", "0"], "--margin 0");
    refuse(&["a", "--json", "--csv"], "cannot be used with");
    let _ = refused(nap(dir.path()).args(["compare", "empty"]));
}

#[test]
fn versions_settings_and_unknown_models_are_kept_apart() {
    let dir = tempdir().unwrap();
    let runs = grid(SWEEP).runs;
    let mut mixed: Vec<_> = runs.iter().map(|run| like_published(&run.config, 0.0)).collect();
    mixed.extend(runs.iter().map(|run| {
        let mut record = like_published(&run.config, -0.2);
        (record.numerics, record.id) = (0, RunId::of_version(&run.config, 0));
        record
    }));
    let mut unknown = runs[0].config.clone();
    unknown.model.name = "nap-9".to_owned();
    mixed.push(record(&unknown, &[0.5]));
    let mut other = runs[0].config.clone();
    other.train.epochs = 3;
    mixed.push(record(&other, &[0.5]));
    journal(&dir.path().join("mixed.jsonl"), &mixed);
    let compared = json(dir.path(), &["mixed.jsonl"], 1);
    let grids: Vec<_> = compared["grids"].as_array().unwrap().iter().collect();
    let found =
        grids.iter().map(|g| (g["setting"].as_str().unwrap(), g["verdict"].as_str().unwrap()));
    let expected = [
        ("mode by dim", "agree"),
        ("mode by dim", "agree"),
        ("mode by dim, numerics 0", "disagree"),
        ("mode by dim, numerics 0", "disagree"),
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let left: Vec<_> = compared["not_compared"].as_array().unwrap().iter().collect();
    assert!(left[0]["reason"].as_str().unwrap().contains("nap-9 is not known"), "{left:?}");
    assert!(left[1]["reason"].as_str().unwrap().contains("train.epochs=3"), "{left:?}");
    assert!(compared["notes"][0].as_str().unwrap().contains("numerics version 0"));
    // An older version with a newer one.
    journal(&dir.path().join("old.jsonl"), &mixed[48 * 5..96 * 5]);
    journal(&dir.path().join("new.jsonl"), &mixed[..48 * 5]);
    let versions = json(dir.path(), &["new.jsonl", "old.jsonl"], 1);
    assert_eq!(versions["theirs"]["numerics"], serde_json::json!([0]));
    assert_eq!(versions["grids"][0]["compared"], 24);
    let notes = versions["notes"].to_string();
    assert!(notes.contains("theirs f32, numerics version 0"), "{notes}");
}

#[test]
fn only_diverged_runs_are_results() {
    let dir = tempdir().unwrap();
    sweep(dir.path(), SWEEP, |run| {
        let mut record = record(&run.config, &[0.1; 32]);
        record.diverged_at = Some(1);
        Some(record)
    });
    let said = text(dir.path(), &["."], 1);
    assert!(said.contains("120 diverged") && said.contains("nap: disagree"), "{said}");
}
