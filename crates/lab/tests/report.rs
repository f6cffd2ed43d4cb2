//! `nap report` and `nap plot`: pictures equal the figures, and bad input gets a useful page or
//! one clear line.

mod support;

use std::fs;
use std::path::Path;

use nap::plot::maps::{self, Layout, Show};
use nap::plot::{Split, raster};
use nap::published;
use nap::report::panel;
use nap::sweep::identity::RunId;
use nap::sweep::record::RunRecord;
use support::{TINY, nap, refused, results, run};
use tempfile::tempdir;

const SWEEP: &str = "models = ['nap', 'mte']\nseeds = 2\n[task]\nname = 'mode'\n[train]\nepochs = 32\n\
                     [axes]\ndim = [8, 16]\nlr = ['0.3^5', '0.3^6']";

fn sweep(directory: &Path, record: impl Fn(RunRecord) -> Option<RunRecord>) {
    results::sweep(directory, SWEEP, |planned| {
        let seed = planned.config.train.seed as f64;
        let curve: Vec<f64> = (1..=32).map(|e| f64::from(e) * (0.03 - 0.01 * seed)).collect();
        record(results::record(&planned.config, &curve))
    });
}

fn page(directory: &Path, arguments: &[&str]) -> String {
    run(nap(directory).arg("report").args(arguments), 0);
    fs::read_to_string(directory.join("report.html")).unwrap()
}

/// Every cell of every published map has the colour that the figures in the file make, and text
/// is text.
#[test]
fn pictures_have_the_pixels_of_the_figures() {
    let mut compared = 0;
    for panel in panel::of_published() {
        let svg = maps::draw(&panel, Show::Seeds, Split::Validation, None).finish("maps");
        assert!(svg.contains(">NAP</text>") || svg.contains(">BERT</text>"));
        let pixels = raster::pixels(&svg, 1.0).unwrap();
        let layout = Layout::of(&panel);
        for cell in published::cells() {
            if panel.name != format!("{} by {}", cell.task, cell.sweep) {
                continue;
            }
            let model = panel.models.iter().position(|m| m.name == cell.model_name()).unwrap();
            let x = panel.xs.iter().position(|x| x.number == Some(cell.x as f64)).unwrap();
            let corner = layout.corner((model, 0), (x, cell.lr_exponent as usize - 1));
            let middle = |at: f64, size: f64| (at + size / 2.0) as u32;
            let block = layout.block();
            let pixel = pixels.pixel(middle(corner.0, block.0), middle(corner.1, block.1)).unwrap();
            let expected = [cell.val_min, cell.val_mean, cell.val_max];
            let expected = expected.map(|x| (255.0 * x).round() as u8);
            assert_eq!([pixel.red(), pixel.green(), pixel.blue()], expected, "{cell:?}");
            compared += 1;
        }
    }
    assert_eq!(compared, published::cells().len());
}

#[test]
fn pictures_of_every_kind_are_written_for_print() {
    let dir = tempdir().unwrap();
    sweep(&dir.path().join("sweep"), Some);
    run(nap(dir.path()).args(["plot", "sweep", "-o", "out", "--animate", "--scale", "1"]), 0);
    let mut names: Vec<_> = fs::read_dir(dir.path().join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let kinds = ["curves-mte", "curves-nap", "difference", "maps", "robustness"];
    let mut expected: Vec<String> =
        kinds.iter().flat_map(|k| ["png", "svg"].map(|e| format!("mode-dim-{k}.{e}"))).collect();
    expected.extend(["difference", "maps"].map(|k| format!("mode-dim-{k}.gif")));
    expected.sort();
    assert_eq!(names, expected);
    let file = |name: &str| fs::read(dir.path().join("out").join(name)).unwrap();
    assert!(file("mode-dim-maps.png").starts_with(b"\x89PNG"));
    // A frame per epoch.
    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::Indexed);
    let bytes = file("mode-dim-maps.gif");
    let mut frames = options.read_info(bytes.as_slice()).unwrap();
    let mut count = 0;
    while frames.read_next_frame().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 32);
    let svg = String::from_utf8(file("mode-dim-maps.svg")).unwrap();
    assert!(svg.contains("<text") && svg.contains("font/woff2") && !svg.contains("http://fonts"));
    assert!(svg.contains("published (Richter &amp; Wattenhofer 2020), 5 seeds"));
    assert!(svg.contains(">ours, 2 seeds<"));
    // One more seed of one of the models.
    let more = SWEEP.replace("'nap', 'mte'", "'nap'").replace("seeds = 2", "seeds = 3");
    results::sweep(&dir.path().join("more"), &more, |planned| {
        Some(results::record(&planned.config, &[0.5; 32]))
    });
    run(nap(dir.path()).args(["plot", "sweep", "more", "-o", "out", "--what", "maps"]), 0);
    let svg = String::from_utf8(file("mode-dim-maps.svg")).unwrap();
    assert!(svg.contains(">ours, 2 to 3 seeds<"));
}

#[test]
fn what_cannot_be_shown_is_said_in_one_line() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    sweep(&dir.path().join("none"), |_| None);
    sweep(&dir.path().join("sweep"), Some);
    let said = |arguments: &[&str]| refused(nap(dir.path()).args(arguments));
    for command in ["report", "plot"] {
        assert!(said(&[command, "empty"]).contains("empty holds no sweep"));
        assert!(said(&[command, "nowhere"]).contains("nowhere"));
        assert!(said(&[command, "none"]).contains("no run has ended in none"));
        assert!(said(&[command]).contains("<RESULTS>"));
        assert!(said(&[command, "sweep", "--published-only"]).contains("cannot be used with"));
    }
    assert!(
        said(&["report", "sweep", "-o", "no/where.html"]).contains("cannot write no/where.html")
    );
    assert!(said(&["report", "sweep", "-o", "empty"]).contains("cannot write empty"));
    assert!(said(&["plot", "sweep", "--what", "cases"]).contains("nothing to draw"));
    assert!(said(&["plot", "sweep", "--what", "pies"]).contains("pies"));
    assert!(said(&["plot", "sweep", "--scale", "0"]).contains("--scale 0"));
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(said(&["plot", "sweep", "-o", "file"]).contains("cannot write to file"));
    assert!(!dir.path().join("report.html").exists() && !dir.path().join("pictures").exists());
}

/// Six models, 80 cells each, five seeds, with the accuracies of cases.
#[test]
fn a_full_grid_is_a_small_page() {
    let dir = tempdir().unwrap();
    let preset = nap::sweep::presets::presets().iter().find(|p| p.spec.name == "cases-first-dim");
    results::sweep(&dir.path().join("full"), &preset.unwrap().spec.to_toml(), |planned| {
        let seed = planned.config.train.seed as f64;
        let curve: Vec<f64> = (1..=32).map(|e| f64::from(e) * (0.03 - 0.005 * seed)).collect();
        Some(results::record(&planned.config, &curve))
    });
    let page = page(dir.path(), &["full"]);
    assert!(page.contains("2400 runs in full") && page.contains("\"cases\":true"));
    assert!(page.len() < 5_000_000, "{}", page.len());
}

#[test]
fn one_run_is_a_page() {
    let dir = tempdir().unwrap();
    let mut train = nap(dir.path());
    run(train.args(["train", "--quiet", "--out", "one"]).args(TINY), 0);
    let page = page(dir.path(), &["one"]);
    assert!(page.contains("Mode: width d against learning rate"));
    assert!(page.contains("1 run in one"));
    assert!(page.contains("--set train.validation_batches=2"));
    run(nap(dir.path()).args(["plot", "one"]), 0);
    assert!(dir.path().join("pictures/mode-dim-maps.png").exists());
}

#[test]
fn only_diverged_runs_are_a_page() {
    let dir = tempdir().unwrap();
    sweep(&dir.path().join("sweep"), |mut record| {
        record.diverged_at = Some(1);
        Some(record)
    });
    let page = page(dir.path(), &["sweep"]);
    assert!(page.contains("16 runs, 16 diverged."));
    run(nap(dir.path()).args(["plot", "sweep", "--what", "maps"]), 0);
}

#[test]
fn numerics_versions_are_kept_apart() {
    let dir = tempdir().unwrap();
    sweep(&dir.path().join("sweep"), |mut record| {
        if record.config.train.seed == 0 {
            record.numerics = 0;
            record.id = RunId::of_version(&record.config, 0);
        }
        Some(record)
    });
    let page = page(dir.path(), &["sweep"]);
    assert!(page.contains("8 records of numerics version 0 are kept apart"));
    assert!(page.contains("\"name\":\"mode by dim, numerics 0\""));
}

#[test]
fn models_of_a_newer_version_are_shown_by_their_name() {
    let dir = tempdir().unwrap();
    let grid = results::grid(SWEEP);
    let records: Vec<_> = grid
        .runs
        .iter()
        .map(|planned| {
            let mut config = planned.config.clone();
            config.model.name = "nap-<3>".to_owned();
            results::record(&config, &[0.5, 0.75])
        })
        .collect();
    results::journal(&dir.path().join("runs.jsonl"), &records[..8]);
    let page = page(dir.path(), &["runs.jsonl"]);
    assert!(page.contains("NAP-&lt;3&gt;") && page.contains("NAP-\\u003c3>"));
    assert!(!page.contains("--model nap-"), "this program cannot run it again");
}
