//! `nap analyze`: tables, JSON, CSV and plots agree; bad input is one line.

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{nap, refused, run};
use tempfile::tempdir;

fn text(dir: &Path, arguments: &[&str]) -> String {
    String::from_utf8(run(nap(dir).args(arguments), 0).stdout).unwrap()
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(dir, arguments)).unwrap()
}

/// Everything about three models in a second.
const INIT: [&str; 16] = [
    "analyze",
    "init",
    "--model",
    "nap,mte,sum",
    "--seq",
    "1,4",
    "--dim",
    "8",
    "--layers",
    "3",
    "--lengths",
    "1,2,64",
    "--draws",
    "8",
    "--width",
    "4",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&INIT, more].concat()
}

#[test]
fn init_prints_the_same_numbers_in_every_form() {
    let dir = tempdir().unwrap();
    let record = json(dir.path(), &with(&["--json"]));
    let csv = text(dir.path(), &with(&["--csv"]));
    let value = |measure: &str, name: &str, layer: &str, length: &str| -> f64 {
        let start = format!("{measure},{name},{layer},{length},");
        let mut lines = csv.lines().filter_map(|line| line.strip_prefix(&start));
        let value = lines.next().unwrap_or_else(|| panic!("{start}: {csv}")).parse().unwrap();
        assert_eq!(lines.next(), None, "{start} twice");
        value
    };
    let aggregators = record["vectors"]["aggregators"].as_array().unwrap();
    assert_eq!(aggregators.len(), 7);
    for aggregator in aggregators {
        let name = aggregator["name"].as_str().unwrap();
        for measure in ["norm", "mean", "deviation"] {
            for (i, length) in ["1", "2", "64"].into_iter().enumerate() {
                assert_eq!(aggregator[measure][i], value(measure, name, "", length));
            }
        }
    }
    let models = record["models"]["models"].as_array().unwrap();
    let names: Vec<_> = models.iter().map(|model| model["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["nap", "mte", "sum"]);
    for model in models {
        let name = model["name"].as_str().unwrap();
        for (i, length) in ["1", "4"].into_iter().enumerate() {
            assert_eq!(model["others_share"][i], value("others_share", name, "", length));
            for layer in 0..3 {
                let ratio = value("branch_ratio", name, &layer.to_string(), length);
                assert_eq!(model["branch_ratio"][i][layer], ratio);
            }
        }
        assert_eq!(model["others_share"][0], 0.0, "one token is alone");
        assert!(model["others_share"][1].as_f64().unwrap() > 0.0);
    }
    assert_eq!(csv.lines().count(), 1 + 7 * 3 * 3 + 3 * 2 * (3 + 1));

    let table = text(dir.path(), &with(&["-o", "plots"]));
    for part in ["norm of the aggregated vector", "layer 0", "layer 2", "reaches other tokens"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let mut plots: Vec<_> = fs::read_dir(dir.path().join("plots"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    plots.sort();
    let expected = [
        "aggregate-deviation.svg",
        "aggregate-norm.svg",
        "branch-ratio-0.svg",
        "branch-ratio-2.svg",
        "others-share.svg",
    ];
    assert_eq!(plots, expected);
    for plot in plots {
        let svg = fs::read_to_string(dir.path().join("plots").join(plot)).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }
    // The seed alone decides.
    assert_eq!(json(dir.path(), &with(&["--json"])), record);
    assert_ne!(json(dir.path(), &with(&["--json", "--seed", "1"])), record);
}

#[test]
fn init_refuses_what_cannot_be() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (wrong, part) in [
        (["--model", "nap,napp"], "did you mean nap?"),
        (["--seq", "4,x"], "task.length"),
        (["--seq", "1000000"], "GiB"),
        (["--lengths", "0"], "--lengths 0: expected between 1"),
        (["--lengths", "4,"], "--lengths"),
        (["--draws", "0"], "--draws 0"),
        (["--width", "0"], "--width 0"),
        (["--heads", "3"], "a divisor"),
        (["-o", "file/plots"], "file/plots"),
    ] {
        let line = refused(nap(dir.path()).args(["analyze", "init", "--draws", "1"]).args(wrong));
        assert!(line.contains(part), "{wrong:?}: {line}");
    }
    refused(nap(dir.path()).args(["analyze", "init", "--json", "--csv"]));
}

#[test]
fn hull_reaches_with_nap_what_softmax_cannot() {
    let dir = tempdir().unwrap();
    let record = json(dir.path(), &["analyze", "hull", "--json"]);
    let point = |value: &Value| [value[0].as_f64().unwrap(), value[1].as_f64().unwrap()];
    assert_eq!(point(&record["target"]), [1.5, 1.0]);
    assert_eq!(record["values"].as_array().unwrap().len(), 6);
    let [softmax, nap_rule] = [&record["rules"][0], &record["rules"][1]];
    assert_eq!(
        (softmax["rule"].as_str(), nap_rule["rule"].as_str()),
        (Some("softmax"), Some("normalized"))
    );
    for rule in [softmax, nap_rule] {
        let points = rule["points"].as_array().unwrap();
        assert_eq!(points.len() as u64, record["steps"].as_u64().unwrap() + 1);
        assert_eq!(points.last(), rule.get("end"));
        // The end is what the weights make of the values.
        for c in 0..2 {
            let weights = rule["weights"].as_array().unwrap().iter();
            let sum: f64 = weights
                .zip(record["values"].as_array().unwrap())
                .map(|(w, v)| w.as_f64().unwrap() * v[c].as_f64().unwrap())
                .sum();
            assert!((sum - rule["end"][c].as_f64().unwrap()).abs() < 1e-12);
        }
    }
    assert!(nap_rule["distance_to_target"].as_f64().unwrap() < 1e-9);
    assert!(softmax["distance_to_nearest"].as_f64().unwrap() < 1e-4);
    assert!(softmax["distance_to_target"].as_f64().unwrap() > 1.0);

    let picture = text(dir.path(), &["analyze", "hull", "-o", "hull.svg"]);
    assert!(picture.contains("X target") && picture.contains("softmax"), "{picture}");
    let svg = fs::read_to_string(dir.path().join("hull.svg")).unwrap();
    assert_eq!((svg.matches("<polyline").count(), svg.matches("<polygon").count()), (2, 1));
    let inside = text(dir.path(), &["analyze", "hull", "--target", "0,-0.1", "--seed", "4"]);
    assert!(inside.contains("inside the hull"), "{inside}");
    for few in ["1", "2"] {
        text(dir.path(), &["analyze", "hull", "--values", few, "-o", "few.svg"]);
    }
}

#[test]
fn hull_refuses_what_cannot_be() {
    let dir = tempdir().unwrap();
    for (wrong, part) in [
        (["--target", "1"], "two numbers"),
        (["--target", "1,nan"], "two numbers"),
        (["--rules", "softmx"], "did you mean softmax?"),
        (["--rules", "sum"], "expected some of"),
        (["--values", "0"], "--values 0: expected between 1"),
        (["--steps", "0"], "--steps 0"),
        (["--lr", "-1"], "--lr -1"),
        (["--lr", "nan"], "--lr NaN"),
        (["-o", "no/such/directory.svg"], "no/such"),
    ] {
        let line = refused(nap(dir.path()).args(["analyze", "hull", "--steps", "1"]).args(wrong));
        assert!(line.contains(part), "{wrong:?}: {line}");
    }
}
