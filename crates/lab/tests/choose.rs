//! `nap choose`: the verdict, interruptions, and what is refused.

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::sweep::{assert_no_run_twice, ids};
use support::{TINY, nap, refused, run};
use tempfile::tempdir;

/// Two models, three learning rates, a fraction of a second.
fn tiny(directory: &Path) -> Command {
    let mut command = nap(directory);
    command.args(["choose", "--task", "mode", "--model", "nap,sum", "--lr", "0.3^2..0.3^4"]);
    command.args(TINY).args(["--out", "out", "--time", "10m", "--jobs", "2"]);
    command
}

/// The JSON object without what depends on the clock.
fn verdict(command: &mut Command) -> Value {
    let output = run(command.arg("--json"), 0);
    let mut value: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    for rule in value["rules"].as_array_mut().expect("rules") {
        assert!(rule.as_object_mut().expect("a rule").remove("epoch_s").is_some());
    }
    for timed in ["take", "learning_rate", "sentence"] {
        assert!(value.as_object_mut().expect("an object").remove(timed).is_some());
    }
    value
}

#[test]
fn the_plan_is_computed_and_what_judges_is_fresh() {
    let dir = tempdir().unwrap();
    let found = verdict(&mut tiny(dir.path()));
    // Enough time for as many fresh seeds as there are.
    assert_eq!((found["epochs"].as_u64(), found["fresh_seeds"].as_u64()), (Some(3), Some(12)));
    // Three rates, two finalists with two seeds more, twelve fresh seeds; both models.
    let out = dir.path().join("out");
    assert_eq!(ids(&out).len(), 2 * (3 + 4 + 12));
    assert_no_run_twice(&out);
    let rules = found["rules"].as_array().unwrap();
    for rule in rules {
        let searched = rule["search"].as_array().unwrap();
        let best = searched.iter().map(|x| x[1].as_f64().unwrap()).fold(0.0, f64::max);
        assert_eq!(searched.len(), 3);
        assert_eq!(rule["accuracies"].as_array().unwrap().len(), 12);
        // Its rate is one of the two best of the search.
        let rate = rule["learning_rate"].as_str().unwrap();
        let own = searched.iter().find(|x| x[0] == rate).unwrap()[1].as_f64().unwrap();
        let better = searched.iter().filter(|x| x[1].as_f64().unwrap() > own).count();
        assert!(better <= 1 && own <= best);
    }
    let text = run(&mut tiny(dir.path()), 0);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("search: every learning rate: 6 runs, 6 done"), "{text}");
    assert!(text.contains("Take ") && text.contains("Train it: nap train out/chosen.toml"));
    // Other programs read the directory.
    run(nap(dir.path()).args(["export", "out", "--csv", "-o", "csv"]), 0);
    run(nap(dir.path()).args(["train", "out/chosen.toml", "--quiet", "--out", "run"]), 0);
}

#[test]
fn data_of_ones_own_are_the_first_argument() {
    let dir = tempdir().unwrap();
    let line =
        |i: usize| format!("{{\"tokens\":[{},{},{}],\"label\":{}}}\n", i % 5, i % 3, i % 7, i % 2);
    let data: String = (0..90).map(line).collect();
    std::fs::write(dir.path().join("my.jsonl"), data).unwrap();
    let choose = |file: &str| {
        let mut command = nap(dir.path());
        command.args(["choose", file, "--model", "nap,sum", "--lr", "0.3^2..0.3^3", "--dim", "8"]);
        command.args(["--epochs", "2", "--valid-fraction", "0.3", "--time", "10m"]);
        command
    };
    let found = verdict(&mut choose("my.jsonl"));
    assert_eq!(found["directory"], "sweeps/choose-classify-my");
    for rule in found["rules"].as_array().unwrap() {
        let f1 = rule["macro_f1"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&f1) && f1 > 0.0, "{rule}");
    }
    assert_eq!(verdict(&mut choose("my.jsonl")), found);
    let text = run(&mut choose("my.jsonl"), 0);
    assert!(String::from_utf8(text.stdout).unwrap().contains("macro-F1"));
    let chosen = "sweeps/choose-classify-my/chosen.toml";
    run(nap(dir.path()).args(["train", chosen, "--quiet", "--out", "run"]), 0);
    // Room for longer sequences; the data may move.
    let with_room = |file: &str| {
        let mut command = choose(file);
        command.args(["--seq", "9", "--out", "with room"]);
        command
    };
    let found = verdict(&mut with_room("my.jsonl"));
    assert_eq!(found["command"], "nap train 'with room/chosen.toml'");
    let chosen = || std::fs::read_to_string(dir.path().join("with room/chosen.toml")).unwrap();
    assert!(chosen().contains("\nlength = 9\n"), "{}", chosen());
    std::fs::create_dir(dir.path().join("else")).unwrap();
    std::fs::rename(dir.path().join("my.jsonl"), dir.path().join("else/my.jsonl")).unwrap();
    assert_eq!(verdict(&mut with_room("else/my.jsonl")), found);
    assert!(chosen().contains("else/my.jsonl"), "{}", chosen());
    let twice = refused(choose("my.jsonl").args(["--data", "other.jsonl"]));
    assert!(twice.contains("expected one of both"), "{twice}");
    assert!(refused(&mut choose("none.jsonl")).contains("none.jsonl"));
    let mut without = nap(dir.path());
    let without = refused(without.args(["choose", "--task", "mode", "--valid-fraction", "0.2"]));
    assert!(without.contains("--data FILE"), "{without}");
}

/// docs/digits.md
#[test]
fn the_digits_of_the_examples_are_a_sweep() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = tempdir().unwrap();
    let mut plan = nap(&root);
    plan.args(["plan", "examples/digits.toml", "--calibrate", "0s", "--out"]);
    let plan = run(plan.arg(dir.path().join("none")), 0);
    let text = String::from_utf8(plan.stdout).unwrap();
    assert!(text.contains("25 runs, 0 done"), "{text}");
    // Steps of such data are measured, not guessed; in no time, those of the cheapest model.
    assert!(text.contains("from 1 of 5 sizes measured"), "{text}");
}

#[cfg(unix)]
#[test]
fn interrupted_and_continued_is_as_good_as_uninterrupted() {
    let [whole, parts] = [tempdir().unwrap(), tempdir().unwrap()];
    let expected = verdict(&mut tiny(whole.path()));
    let mut interrupted = 0;
    for _ in 0..40 {
        let before = ids(&parts.path().join("out")).len();
        let mut child = tiny(parts.path());
        child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = child.spawn().expect("nap starts");
        while ids(&parts.path().join("out")).len() < before + 3
            && child.try_wait().expect("a child").is_none()
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        // It may have ended in the meantime.
        let _ = kill.expect("kill");
        match child.wait().expect("nap ends").code() {
            Some(0) => break,
            _ => interrupted += 1,
        }
    }
    assert!(interrupted > 2, "interrupted {interrupted} times");
    assert_eq!(verdict(&mut tiny(parts.path())), expected);
    assert_no_run_twice(&parts.path().join("out"));
}

#[test]
fn what_cannot_be_compared_gets_one_line() {
    let dir = tempdir().unwrap();
    let choose = |arguments: &[&str]| {
        let mut command = nap(dir.path());
        refused(command.args(["choose", "--task", "mode"]).args(arguments))
    };
    let short = choose(&["--time", "1s"]);
    assert!(short.contains("--time 1s: too short for 80 runs of one epoch"), "{short}");
    assert!(!dir.path().join("sweeps").exists());
    assert!(choose(&["--model", "nap"]).contains("two at least"));
    assert!(choose(&["--model", "nap,napp"]).contains("did you mean nap?"));
    assert!(choose(&["--lr", "0.25"]).contains("--lr 0.25"));
    assert!(choose(&["--set", "train.warmup=true"]).contains("models as they are"));
    assert!(choose(&["--heads", "3"]).contains("model.heads"));
    verdict(&mut tiny(dir.path()));
    let other = refused(tiny(dir.path()).args(["--seed", "7"]));
    assert!(other.contains("out holds a choice with other settings"), "{other}");
    std::fs::write(dir.path().join("out/choose.json"), "{").unwrap();
    assert!(refused(&mut tiny(dir.path())).contains("expected a plan of nap choose"));
}
