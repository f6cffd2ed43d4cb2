//! Data of one's own: every command works on it, every format gives the same run, and what
//! cannot be used gets one clear line.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use support::{nap, refused, run};
use tempfile::{TempDir, tempdir};

/// Options of a run that takes a fraction of a second.
const SMALL: [&str; 10] =
    ["--dim", "8", "--layers", "1", "--epochs", "3", "--batch", "8", "--lr", "0.01"];

/// Small pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Sequences of 1 to 12 tokens from 10 to 18, where `yes` means that 18 occurs.
fn sequences(count: usize) -> Vec<(Vec<u64>, &'static str)> {
    let mut numbers = Numbers(7);
    let sequence = |_| {
        let n = 1 + numbers.below(12);
        let mut tokens: Vec<u64> = (0..n).map(|_| 10 + numbers.below(8)).collect();
        let yes = numbers.below(2) == 1;
        if yes {
            tokens[numbers.below(n) as usize] = 18;
        }
        (tokens, if yes { "yes" } else { "no" })
    };
    (0..count).map(sequence).collect()
}

fn words(tokens: &[u64]) -> String {
    tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn json_lines(sequences: &[(Vec<u64>, &str)]) -> String {
    let line = |(tokens, label): &(Vec<u64>, &str)| {
        format!("{{\"tokens\": {tokens:?}, \"label\": \"{label}\"}}\n")
    };
    sequences.iter().map(line).collect()
}

fn csv(sequences: &[(Vec<u64>, &str)]) -> String {
    let line = |(tokens, label): &(Vec<u64>, &str)| format!("{label},{}\n", words(tokens));
    "label,tokens\n".to_owned() + &sequences.iter().map(line).collect::<String>()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A directory with these files.
fn files(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn train(dir: &Path, options: &[&str]) -> Command {
    let mut command = nap(dir);
    command.arg("train").args(SMALL).args(options);
    command
}

/// What `nap` answers to an input.
fn answered(dir: &Path, args: &[&str], input: &[u8], code: i32) -> (Vec<Value>, String) {
    let mut child = nap(dir)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    // It answers while it reads, and may leave before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    (stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), stderr)
}

/// The metrics of a run, the clock aside.
fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let record = |line: &str| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        record.as_object_mut().unwrap().remove("steps_per_s");
        record
    };
    text.lines().map(record).collect()
}

#[test]
fn a_run_is_trained_scored_shown_and_asked() {
    let (all, test) = (sequences(300), sequences(330).split_off(300));
    let dir = files(&[
        ("my.train.jsonl", json_lines(&all).as_bytes()),
        ("test.csv", csv(&test).as_bytes()),
    ]);
    let dir = dir.path();
    let output = run(&mut train(dir, &["--data", "my.train.jsonl", "--epochs", "12"]), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    let told = ["270 sequences of 1 to 12 tokens, 9 different ones, 2 classes", "30 sequences for"];
    assert!(told.iter().all(|part| text.contains(part)), "{text}");
    assert!(text.contains("macro-F1"), "{text}");
    let place = "runs/classify-my-nap-d8-lr0.01-s0";
    let records = metrics(&dir.join(place));
    let best = records.iter().map(|record| record["val_accuracy"].as_f64().unwrap());
    let best = best.fold(0.0, f64::max);
    assert!(best > 0.9, "{best}");
    assert!(records.iter().all(|r| (0.0..=1.0).contains(&r["val_macro_f1"].as_f64().unwrap())));

    let output = run(nap(dir).args(["eval", place, "--data", "test.csv", "--json"]), 0);
    let scores: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(scores["sequences"], 30);
    // The same answers, one by one.
    let input = fs::read(dir.join("test.csv")).unwrap();
    let (answers, _) = answered(dir, &["predict", place, "--probabilities"], &input, 0);
    let right = answers.iter().zip(&test).filter(|(a, (_, label))| a["label"] == *label).count();
    assert_eq!(right as f64 / 30.0, scores["accuracy"].as_f64().unwrap());
    assert!(right > 25, "{right}");
    for answer in &answers {
        let [no, yes] = ["no", "yes"].map(|l| answer["probabilities"][l].as_f64().unwrap());
        assert!((no + yes - 1.0).abs() < 1e-5);
        assert_eq!(answer["label"] == "yes", yes > no);
    }
    let text = String::from_utf8(run(nap(dir).args(["show", place]), 0).stdout).unwrap();
    assert!(text.contains("macro-F1") && text.contains("digest"), "{text}");

    let args = ["inspect", place, "--data", "test.csv", "--sequences", "5", "--json"];
    let seen: Value = serde_json::from_slice(&run(nap(dir).args(args), 0).stdout).unwrap();
    assert_eq!(seen["tokens"][0], test[0].0[0].to_string());
    assert_eq!(seen["answers"][0]["right"], test[0].1);
    assert_eq!(seen["answers"][0]["given"], answers[0]["label"]);
    let args = ["inspect", place, "--input", "18 77 10", "-o", "page.html"];
    let text = String::from_utf8(run(nap(dir).args(args), 0).stdout).unwrap();
    assert!(text.contains("18 <unk> 10") && text.contains("The model answers "), "{text}");
    assert!(fs::read_to_string(dir.join("page.html")).unwrap().contains("&lt;unk&gt;"));
}

#[test]
fn every_format_of_the_same_content_is_the_same_run() {
    let all = sequences(60);
    let (json, csv) = (json_lines(&all), csv(&all));
    let windows = json.replace('\n', "\r\n") + "\r\n";
    let mut marked = b"\xef\xbb\xbf".to_vec();
    marked.extend(csv.replace('\n', "\r\n").as_bytes());
    let texts: String = (all.iter())
        .map(|(tokens, label)| {
            format!("{{\"label\":\"{label}\",\"id\":[1.5],\"text\":\"{}\"}}\n", words(tokens))
        })
        .collect();
    let halves = json.split_at(json[..500].rfind('\n').unwrap() + 1);
    // Two members, as `cat a.gz b.gz` makes.
    let members = [gzip(halves.0.as_bytes()), gzip(halves.1.as_bytes())].concat();
    let variants: [(&str, &[u8], &[&str]); 6] = [
        ("a.jsonl", json.as_bytes(), &[]),
        ("b.csv", csv.as_bytes(), &[]),
        ("c.txt", windows.as_bytes(), &[]),
        ("d.csv", &marked, &[]),
        ("e.gz", &members, &[]),
        ("f.jsonl", texts.as_bytes(), &["--tokenize", "whitespace"]),
    ];
    let dir = files(&variants.map(|(name, bytes, _)| (name, bytes)));
    let dir = dir.path();
    let digest = |name: &str| {
        let text = fs::read_to_string(dir.join(name).join("config.toml")).unwrap();
        text.lines().find(|line| line.starts_with("digest")).unwrap().to_owned()
    };
    for (name, _, options) in variants {
        let out = format!("run-{name}");
        run(train(dir, &["--data", name, "--out", &out]).args(options), 0);
        assert_eq!(metrics(&dir.join(&out)), metrics(&dir.join("run-a.jsonl")), "{name}");
        assert_eq!(digest(&out), digest("run-a.jsonl"), "{name}");
    }
    // Other content is another run, and a run whose data have changed does not go on.
    let [before, after] = ["[", "[19, "].map(|start| format!("{{\"tokens\": {start}"));
    let changed = json.replacen(&before, &after, 1);
    assert_ne!(changed, json);
    fs::write(dir.join("a.jsonl"), changed).unwrap();
    run(&mut train(dir, &["--data", "a.jsonl", "--out", "other"]), 0);
    assert_ne!(digest("other"), digest("run-a.jsonl"));
    // So are two labels that have changed places.
    let exchanged = json.replace("yes", "y").replace("no", "yes").replace("\"y\"", "\"no\"");
    fs::write(dir.join("g.jsonl"), exchanged).unwrap();
    run(&mut train(dir, &["--data", "g.jsonl", "--out", "exchanged"]), 0);
    assert_ne!(digest("exchanged"), digest("run-a.jsonl"));
    let line = refused(nap(dir).args(["train", "--resume", "--out", "run-a.jsonl"]));
    assert!(line.contains("not the data of this run any more"), "{line}");
    let line = refused(&mut train(dir, &["--data", "b.csv", "--out", "other"]));
    assert!(line.contains("another run (task.data.train is ") && line.contains("b.csv"), "{line}");
    // Tokens are taken as they are.
    let line = refused(train(dir, &["--data", "b.csv"]).args(["--tokenize", "char"]));
    assert!(line.contains("b.csv: tokens and no text: expected no --tokenize char"), "{line}");
}

/// What can be read only once.
#[cfg(unix)]
#[test]
fn a_pipe_is_trained_on() {
    let json = json_lines(&sequences(60));
    let dir = files(&[("my.jsonl", json.as_bytes())]);
    let dir = dir.path();
    run(&mut train(dir, &["--data", "my.jsonl", "--out", "file"]), 0);
    let mut command = train(dir, &["--data", "/dev/stdin", "--out", "pipe"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(json.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(metrics(&dir.join("pipe")), metrics(&dir.join("file")));
}

#[test]
fn a_stopped_run_goes_on_and_a_stored_configuration_runs_again() {
    let dir = files(&[("my.jsonl", json_lines(&sequences(60)).as_bytes())]);
    let dir = dir.path();
    run(&mut train(dir, &["--data", "my.jsonl", "--out", "whole", "--epochs", "4"]), 0);
    // From another place, without the options.
    fs::create_dir(dir.join("else")).unwrap();
    let again = ["train", "../whole/config.toml", "--out", "again"];
    run(nap(&dir.join("else")).args(again), 0);
    support::assert_same(&dir.join("whole"), &dir.join("else/again"));
    // Room for longer sequences stays when the run goes on.
    run(&mut train(dir, &["--data", "my.jsonl", "--out", "room", "--seq", "40"]), 0);
    run(nap(dir).args(["train", "--resume", "--out", "room"]), 0);
    let batch = ["train", "whole/config.toml", "--out", "batch", "--batch", "27"];
    let output = run(nap(dir).args(batch), 0);
    assert!(String::from_utf8(output.stdout).unwrap().contains("4 epochs of 2 steps"));
    let line = refused(nap(dir).args(["train", "--resume", "--out", "whole", "--seed", "1"]));
    assert!(
        line.contains("another run (task.data.train is ") && line.contains("not none"),
        "{line}"
    );
}

#[test]
fn points_and_tags() {
    let mut numbers = Numbers(3);
    let (mut points, mut tags) = (String::new(), String::new());
    for _ in 0..300 {
        let n = 2 + numbers.below(10);
        let mut text: Vec<u8> = (0..n).map(|_| b'a' + numbers.below(5) as u8).collect();
        let at = numbers.below(n) as usize;
        text[at] = b'X';
        let text = String::from_utf8(text).unwrap();
        writeln!(points, "{{\"text\": \"{text}\", \"label\": {at}}}").unwrap();
        let labels: Vec<_> = text.chars().map(|c| if c < 'c' { "low" } else { "high" }).collect();
        writeln!(tags, "{{\"text\": \"{text}\", \"label\": {labels:?}}}").unwrap();
    }
    let dir = files(&[("points.jsonl", points.as_bytes()), ("tags.jsonl", tags.as_bytes())]);
    let dir = dir.path();
    for (task, data) in [("point", "points.jsonl"), ("tag", "tags.jsonl")] {
        let options = ["--task", task, "--data", data, "--tokenize", "char", "--epochs", "15"];
        run(train(dir, &options).args(["--out", task]), 0);
        let records = metrics(&dir.join(task));
        let last = records.last().unwrap();
        assert!(last["val_accuracy"].as_f64().unwrap() > 0.9, "{task}: {last}");
        assert_eq!(last.get("val_macro_f1").is_some(), task == "tag");
        run(nap(dir).args(["eval", task, "--data", data]), 0);
    }
    let input = b"{\"text\": \"abXde\"}\n{\"text\": \"X\"}";
    let (answers, _) = answered(dir, &["predict", "point", "--probabilities"], input, 0);
    assert_eq!((&answers[0]["label"], &answers[1]["label"]), (&2.into(), &0.into()));
    assert_eq!(answers[0]["probabilities"].as_array().unwrap().len(), 5);
    assert_eq!(answers[1]["probabilities"].as_array().unwrap().len(), 1);
    let (answers, _) = answered(dir, &["predict", "tag", "--probabilities"], input, 0);
    assert_eq!(answers[0]["label"], serde_json::json!(["low", "low", "low", "high", "high"]));
    assert_eq!(answers[0]["probabilities"][4].as_object().unwrap().len(), 2);
    let (_, line) = answered(dir, &["predict", "tag"], b"{\"id\": 1}", 2);
    assert!(line.contains("line 1: no text"), "{line}");
}

#[test]
fn predictions_stream_and_know_unknown_tokens() {
    let dir = files(&[("my.jsonl", json_lines(&sequences(60)).as_bytes())]);
    let dir = dir.path();
    run(&mut train(dir, &["--data", "my.jsonl", "--out", "run"]), 0);
    let of = |tokens: &str| format!("{{\"tokens\": {tokens}, \"label\": \"whatever\"}}\n");
    let input = of("[99]") + &of("[100]") + &of("[11]") + &of("[\"<unk>\"]");
    let args = ["predict", "run", "--probabilities"];
    // Mixed types, as in training.
    let (answers, line) = answered(dir, &args, input.as_bytes(), 2);
    assert!(
        line.contains("line 4: token <unk> is a text, that of line 1 a whole number"),
        "{line}"
    );
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0], answers[1]);
    assert_ne!(answers[0], answers[2]);
    let (unknown, _) = answered(dir, &args, of("[\"<unk>\"]").as_bytes(), 0);
    assert_eq!(unknown[0], answers[0]);
    // Of what a model has no positions for, one line; the lines before are answered.
    let long = of("[10]") + &of("[10,10,10,10,10,10,10,10,10,10,10,10,10]");
    let (answers, line) = answered(dir, &args, long.as_bytes(), 2);
    assert_eq!(answers.len(), 1);
    assert!(line.contains("line 2: sequence length = 13: at most 12"), "{line}");
    // Thousands of lines, of several batches, in their order.
    let many = sequences(5000);
    let (answers, _) = answered(dir, &args, json_lines(&many).as_bytes(), 0);
    assert_eq!(answers.len(), many.len());
    for at in [0, 1023, 1024, 4999] {
        let (alone, _) = answered(dir, &args, json_lines(&many[at..=at]).as_bytes(), 0);
        let of = |answer: &Value| answer["probabilities"]["yes"].as_f64().unwrap();
        assert!((of(&alone[0]) - of(&answers[at])).abs() < 1e-5);
    }
    let line = refused(nap(dir).args(["eval", "run", "--data", "none.jsonl"]));
    assert!(line.contains("cannot read none.jsonl"), "{line}");
    fs::write(dir.join("labels.jsonl"), of("[10]")).unwrap();
    let line = refused(nap(dir).args(["eval", "run", "--data", "labels.jsonl"]));
    assert!(line.contains("line 1: label whatever does not occur in training: expected no, yes"));
    let line = refused(nap(dir).args(["eval", "run"]));
    assert!(line.contains("--data FILE"), "{line}");
    let line = refused(nap(dir).args(["inspect", "run"]));
    assert!(line.contains("--data FILE or --input"), "{line}");
    let line = refused(nap(dir).args(["bench", "run/config.toml"]));
    assert!(line.contains("task.name = classify"), "{line}");
}

/// Sends lines one by one, each after the answer to the one before.
fn converse(dir: &Path, header: &str, lines: &[&str]) {
    let mut child = nap(dir)
        .args(["predict", "run"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (sender, answers) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        BufReader::new(stdout).lines().for_each(|line| sender.send(line.unwrap()).unwrap());
    });
    stdin.write_all(header.as_bytes()).unwrap();
    for line in lines {
        stdin.write_all(line.as_bytes()).unwrap();
        let answer = answers.recv_timeout(Duration::from_secs(60)).expect("an answer");
        assert!(answer.starts_with("{\"label\":\""), "{answer}");
    }
    drop(stdin);
    reader.join().unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_line_is_answered_before_the_next_one_comes() {
    let dir = files(&[("my.jsonl", json_lines(&sequences(60)).as_bytes())]);
    let dir = dir.path();
    run(&mut train(dir, &["--data", "my.jsonl", "--out", "run"]), 0);
    // What is no question is ignored, whatever it is.
    let other = "{\"label\": 1.5, \"text\": 5, \"tokens\": [12]}\n";
    converse(dir, "", &["{\"tokens\": [11, 18]}\n", other, "\n{\"tokens\": [11]}\r\n\r\n", other]);
    converse(dir, "tokens,label\n", &["1 2,\n", "2,\"x\ny\"\n"]);
    converse(dir, "id,tokens\r\n", &["1,2\r\n", "2,3\r\n\r\n", "\"a\r\nb\",3\r\n"]);
}

#[test]
fn a_configuration_file_with_data_starts_from_the_preset_for_data() {
    let dir = files(&[
        ("my.jsonl", json_lines(&sequences(60)).as_bytes()),
        ("plain.toml", b"[train]\nepochs = 2"),
        ("paper.toml", b"preset = 'paper'\n[task]\nname = 'classify'"),
    ]);
    let width = |options: &[&str]| {
        let text = run(nap(dir.path()).args(["config", "--data", "my.jsonl"]).args(options), 0);
        let text = String::from_utf8(text.stdout).unwrap();
        let width = text.lines().find_map(|line| line.strip_prefix("dim = ")).unwrap();
        width.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(width(&["plain.toml"]), "64");
    assert_eq!(width(&["paper.toml"]), "128");
    assert_eq!(width(&["plain.toml", "--preset", "paper", "--task", "classify"]), "128");
}

#[test]
fn files_that_cannot_be_used_get_one_clear_line() {
    let good = json_lines(&sequences(20));
    let with = |line: &str| (good.clone() + line + "\n").into_bytes();
    let truncated = gzip(good.as_bytes());
    let truncated = truncated[..truncated.len() / 2].to_vec();
    let long = format!("{{\"tokens\": [{}1], \"label\": \"no\"}}", "1,".repeat(1 << 20));
    let endless = b"tokens,label\n1 2,a\n\"5 inch,b\n".iter().copied();
    let endless: Vec<u8> = endless.chain(b"1 2,a\n".repeat(12 << 20)).collect();
    let cases: [(Vec<u8>, &str, &str); 36] = [
        (b"".to_vec(), "classify", "no sequences in it"),
        (b" \n\r\n".to_vec(), "classify", "no sequences in it"),
        (b"tokens,label\n".to_vec(), "classify", "no sequences in it"),
        (with("{\"tokens\": [1, 2"), "classify", "line 21: column "),
        (with("[1, 2]"), "classify", "line 21: column "),
        (
            with("{\"tokens\": [\"a\"], \"label\": \"no\"}"),
            "classify",
            "line 21: token a is a text, that of line 1 a whole number",
        ),
        (
            with("{\"tokens\": [10], \"label\": 3}"),
            "classify",
            "line 21: label 3 is a whole number, that of line 1 a text",
        ),
        (
            with("{\"tokens\": [1.5], \"label\": \"no\"}"),
            "classify",
            "line 21: column 15: invalid type: floating point `1.5`, expected a whole number or a text",
        ),
        (
            with("{\"tokens\": [true], \"label\": \"no\"}"),
            "classify",
            "line 21: column 16: invalid type: boolean",
        ),
        (
            with("{\"tokens\": [100000000000000000000], \"label\": \"no\"}"),
            "classify",
            "line 21: column 33: a number beyond 64 bits",
        ),
        (with("{\"tokens\": [[1]], \"label\": \"no\"}"), "classify", "a list in a list"),
        (with("{\"tokens\": 1, \"label\": \"no\"}"), "classify", "tokens: expected a list"),
        (
            with("{\"tokens\": [], \"label\": \"no\"}"),
            "classify",
            "line 21: a sequence without tokens",
        ),
        (with("{\"tokens\": [1]}"), "classify", "line 21: no label"),
        (with("{\"label\": \"no\"}"), "classify", "line 21: no tokens and no text"),
        (
            with("{\"text\": \"a b\", \"label\": \"no\"}"),
            "classify",
            "line 21: a text: expected --tokenize",
        ),
        (with("{\"tokens\": [1], \"label\": [\"no\"]}"), "classify", "line 21: a list of labels"),
        (
            with("{\"tokens\": [1], \"tokens\": [2], \"label\": \"no\"}"),
            "classify",
            "duplicate field",
        ),
        (with(&long), "classify", "line 21: 1048577 tokens: expected 1048576 at most"),
        ([good.as_bytes(), b"{\"tokens\": [\"\xff\"]}"].concat(), "classify", "line 21: not UTF-8"),
        (b"tokens,label\n1 2,a\n1 \xff,b\n".to_vec(), "classify", "line 3: not UTF-8"),
        (b"\xff\xfe{\0".to_vec(), "classify", "line 1: "),
        (b"tokens,label\n1 2,a\n1,b,c\n".to_vec(), "classify", "line 3: 3 fields: expected 2"),
        (b"words,label\n1 2,a\n".to_vec(), "classify", "line 1: expected a JSON object such as"),
        (
            b"tokens,label\n1 2,a\n3,a\n".to_vec(),
            "classify",
            "every label is a: expected two different ones",
        ),
        (b"tokens,label\n1 2,a\n".to_vec(), "classify", "every label is a"),
        (b"tokens,label\n1 2,0\n".to_vec(), "point", "one sequence: expected two at least"),
        (
            b"tokens,label\n1 2,0\n1 2,2\n".to_vec(),
            "point",
            "line 3: label 2: expected a position from 0 to 1",
        ),
        (b"tokens,label\n1 2,a b\n1 2,a\n".to_vec(), "tag", "line 3: 1 labels for 2 tokens"),
        (b"{\"tokens\":[1,2],\"label\":1}\n".to_vec(), "tag", "line 1: label 1: expected a list"),
        (truncated, "classify", "cannot be read"),
        (
            b"tokens,label\n1 2,a\n\"5,b\n7,c\n8\",d\n".to_vec(),
            "classify",
            "line 3: tokens in quotes goes on in the next line",
        ),
        (
            b"tokens,label\n1 2,\"a\n1 2,b\n\"\n".to_vec(),
            "classify",
            "line 2: label in quotes goes on in the next line",
        ),
        (b"tokens,label\n1 2,a\n\"5,b\n".to_vec(), "classify", "line 3: 1 fields: expected 2"),
        (endless, "classify", "line 3: cannot be read: longer than 64 MiB"),
        (b"tokens, label,label\n1,a,b\n".to_vec(), "classify", "line 1: several columns label"),
    ];
    let dir = tempdir().unwrap();
    let dir = dir.path();
    for (bytes, task, expected) in cases {
        fs::write(dir.join("bad.data"), &bytes).unwrap();
        let line = refused(&mut train(dir, &["--data", "bad.data", "--task", task]));
        assert!(line.contains("bad.data") && line.contains(expected), "{expected}: {line}");
        assert!(line.len() < 400, "{line}");
    }
    fs::write(dir.join("good.jsonl"), &good).unwrap();
    fs::write(dir.join("valid.jsonl"), "{\"tokens\": [1], \"label\": \"maybe\"}\n").unwrap();
    let options: [(&[&str], &str); 11] = [
        (&["--data", "none.jsonl"], "cannot read none.jsonl"),
        (&["--data", "."], "it is a directory"),
        (&["--data", "good.jsonl", "--task", "mode"], "mode makes its own sequences"),
        (&["--data", "good.jsonl", "--valid", "valid.jsonl"], "valid.jsonl, line 1: label maybe"),
        (&["--data", "good.jsonl", "--valid-fraction", "1"], "validation fraction 1"),
        (
            &["--data", "good.jsonl", "--steps-per-epoch", "5"],
            "train.steps_per_epoch = 5: 3, one pass over 18 sequences in batches of 8",
        ),
        (&["--data", "good.jsonl", "--vocab", "5"], "task.vocab = 5"),
        (&["--data", "good.jsonl", "--seq", "2"], "task.length = 2: at least"),
        (&["--data", "good.jsonl", "--model", "weighted"], "weighted takes one length only"),
        (&["--data", "good.jsonl", "--class-weights", "even"], "train.class_weights"),
        (&["--task", "classify"], "--data FILE"),
    ];
    for (options, expected) in options {
        let line = refused(&mut train(dir, options));
        assert!(line.contains(expected), "{options:?}: {line}");
    }
    assert!(!dir.join("runs").exists(), "something was left behind");
}

#[test]
fn a_sequence_of_100_000_tokens() {
    let mut numbers = Numbers(1);
    let mut lines = String::new();
    for (n, label) in [(100_000, "long"), (3, "short"), (5, "short"), (2, "short")] {
        let tokens: Vec<u64> = (0..n).map(|_| numbers.below(50)).collect();
        writeln!(lines, "{{\"tokens\": {tokens:?}, \"label\": \"{label}\"}}").unwrap();
    }
    let dir = files(&[("long.jsonl", lines.as_bytes())]);
    let dir = dir.path();
    let options =
        ["--data", "long.jsonl", "--valid", "long.jsonl", "--epochs", "1", "--batch", "1"];
    let none = ["--set", "model.positions=none", "--out", "run"];
    run(train(dir, &options).args(none), 0);
    assert!(metrics(&dir.join("run"))[0]["val_loss"].as_f64().unwrap().is_finite());
    let (answers, _) = answered(dir, &["predict", "run"], lines.as_bytes(), 0);
    assert_eq!(answers.len(), 4);
    // What does not fit is told before anything is made.
    let line = refused(train(dir, &options).args(["--dim", "4096", "--layers", "100"]));
    assert!(line.contains("GiB"), "{line}");
}

#[test]
fn classes_can_be_balanced_and_patience_can_end() {
    let mut sequences = sequences(120);
    // One in about ten is `yes`.
    let mut count = 0;
    sequences.retain(|(_, label)| {
        *label == "no" || {
            count += 1;
            count % 10 == 0
        }
    });
    let dir = files(&[("my.jsonl", json_lines(&sequences).as_bytes())]);
    let dir = dir.path();
    let output =
        run(
            train(dir, &["--data", "my.jsonl", "--out", "run", "--class-weights", "balanced"])
                .args(["--patience", "2", "--epochs", "50", "--lr", "1e-20"]),
            0,
        );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("balanced classes") && text.contains("patience 2"), "{text}");
    assert!(text.contains("ended after 3 of 50 epochs"), "{text}");
    assert_eq!(metrics(&dir.join("run")).len(), 3);
    // It is over: nothing to go on with.
    let output = run(nap(dir).args(["train", "--resume", "--out", "run"]), 0);
    assert!(String::from_utf8(output.stdout).unwrap().contains("ended after 3"));
    let csv = ["export", "run", "-o", "out", "--csv"];
    run(nap(dir).args(csv), 0);
    let table = fs::read_to_string(dir.join("out/epochs.csv")).unwrap();
    assert!(table.lines().next().unwrap().contains("val_macro_f1"), "{table}");
    assert_eq!(table.lines().count(), 4);
}

#[test]
fn sweeps_and_what_reads_them() {
    let dir = files(&[
        ("my.jsonl", json_lines(&sequences(60)).as_bytes()),
        (
            "grid.toml",
            b"models = ['nap', 'sum']\nseeds = 2\n[task]\nname = 'classify'\ndata = 'my.jsonl'\n\
              length = 20\n[model]\nlayers = 1\nheads = 2\n[train]\nepochs = 2\nbatch = 16\n\
              [axes]\ndim = [4, 8]\nlr = ['0.3^4', '0.3^5']",
        ),
    ]);
    let dir = dir.path();
    run(nap(dir).args(["plan", "grid.toml", "--jobs", "1"]), 0);
    run(nap(dir).args(["sweep", "grid.toml", "--jobs", "2", "--out", "a"]), 0);
    run(nap(dir).args(["sweep", "grid.toml", "--jobs", "1", "--out", "b"]), 0);
    let export = |sweep: &str, out: &str| {
        run(nap(dir).args(["export", sweep, "-o", out, "--csv"]), 0);
        fs::read_to_string(dir.join(out).join("epochs.csv")).unwrap()
    };
    let table = export("a", "out-a");
    assert_eq!(table, export("b", "out-b"));
    assert_eq!(table.lines().count(), 1 + 16 * 2);
    // The same content elsewhere is the same sweep: nothing is left to do.
    fs::rename(dir.join("my.jsonl"), dir.join("moved.jsonl")).unwrap();
    let spec = fs::read_to_string(dir.join("grid.toml")).unwrap();
    fs::write(dir.join("moved.toml"), spec.replace("my.jsonl", "moved.jsonl")).unwrap();
    let output = run(nap(dir).args(["sweep", "moved.toml", "--out", "a"]), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("16 runs, 16 done, 0 to do"), "{text}");
    // Reading results needs no data.
    fs::remove_file(dir.join("moved.jsonl")).unwrap();
    run(nap(dir).args(["status", "a"]), 0);
    run(nap(dir).args(["report", "a", "-o", "page.html"]), 0);
    run(nap(dir).args(["plot", "a", "--what", "maps", "-o", "maps"]), 0);
    run(nap(dir).args(["compare", "a", "b"]), 0);
    let line = refused(nap(dir).args(["sweep", "moved.toml", "--out", "c"]));
    assert!(line.contains("cannot read moved.jsonl"), "{line}");
}
