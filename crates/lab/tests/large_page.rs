//! The page of 25,000 runs: `cargo test -p nap --features large-tests --test large_page --
//! --nocapture`. Needs chromium; prints the size and the time until it is drawn.

mod support;

use std::time::Duration;

use support::browser::Browser;
use support::{nap, results, run};
use tempfile::tempdir;

#[test]
fn twenty_five_thousand_runs() {
    let dir = tempdir().unwrap();
    let presets = [
        "mode-dim",
        "mode-seq",
        "mode-init",
        "mode-batch",
        "mode-vocab",
        "lg-dim",
        "lg-seq",
        "lg-init",
        "lg-batch",
        "lg-bias",
        "cases-first-dim",
    ];
    let mut arguments = vec!["report".to_owned()];
    let mut runs = 0;
    for name in presets {
        let preset = nap::sweep::presets::presets().iter().find(|p| p.spec.name == name).unwrap();
        let path = dir.path().join(name);
        results::sweep(&path, &preset.spec.to_toml(), |planned| {
            let reached = 0.1 * planned.place[1] as f64 + 0.02 * planned.config.train.seed as f64;
            let wave = |epoch: i32| 0.05 * f64::from(epoch * 37 % 11) / 11.0;
            let curve: Vec<f64> = (1..=32)
                .map(|epoch| (reached * f64::from(epoch) / 32.0 + wave(epoch)).min(1.0))
                .collect();
            Some(results::record(&planned.config, &curve))
        });
        runs += nap::sweep::grid::Grid::new(&preset.spec).unwrap().runs.len();
        arguments.push(name.to_owned());
    }
    assert!(runs >= 25_000, "{runs}");
    run(nap(dir.path()).args(&arguments), 0);
    let page = dir.path().join("report.html");
    let size = std::fs::metadata(&page).unwrap().len();
    let mut browser = Browser::start();
    browser.resize(1280, 900);
    let took = browser.open(&page);
    println!("{runs} runs: {:.1} MB, drawn after {:.2} s", size as f64 / 1e6, took.as_secs_f64());
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
    assert_eq!(browser.evaluate("report.sweeps.length"), 11);
    assert!(size < 25_000_000, "{size} bytes");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
