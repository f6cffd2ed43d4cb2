//! The page in a real browser: `cargo test -p nap --features browser-tests --test browser`.
//! Needs chromium. Screenshots go to `target/browser`.

mod support;

use std::path::{Path, PathBuf};

use nap::sweep::grid::PlannedRun;
use nap::sweep::record::RunRecord;
use serde_json::Value;
use support::browser::Browser;
use support::{nap, results, run};
use tempfile::tempdir;

const SWEEP: &str = "
    name = 'part'
    models = ['nap', 'mte', 'sum']
    seeds = 3
    [task]
    name = 'mode'
    [train]
    epochs = 32
    [axes]
    dim = { base = 2, min = 3, range = 8 }
    lr = { base = 0.3, min = 1, range = 10 }
";

/// Accuracies that rise over the epochs, the more the smaller the learning rate; some runs
/// diverged, failed or have not run.
fn invented(planned: &PlannedRun) -> Option<RunRecord> {
    let (config, place) = (&planned.config, &planned.place);
    let seed = config.train.seed;
    if place == &[2, 4] {
        return (seed < 2).then(|| results::failed(config));
    }
    if place == &[3, 9] {
        return None;
    }
    let reached = place[1] as f64 / 9.0 - 0.1 * planned.model as f64 - 0.05 * seed as f64;
    let curve: Vec<f64> =
        (1..=32).map(|e| (reached * f64::from(e) / 32.0).clamp(0.1, 1.0)).collect();
    let mut record = results::record(config, &curve);
    if place[1] == 0 && seed <= place[0] as u64 {
        record.diverged_at = Some(1);
    }
    Some(record)
}

/// A report of invented results.
fn report(directory: &Path) -> PathBuf {
    results::sweep(&directory.join("part"), SWEEP, invented);
    run(nap(directory).args(["report", "part"]), 0);
    directory.join("report.html")
}

fn pictures() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("browser");
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The colour in the middle of a cell.
fn pixel(browser: &mut Browser, canvas: &str, (column, row): (usize, usize)) -> Vec<u64> {
    let script = format!(
        "(() => {{ const c = document.querySelector({canvas:?}); const s = here(); \
         const x = ({column} + 0.5) * c.width / s.x.labels.length; \
         const y = ({row} + 0.8) * c.height / s.y.labels.length; \
         return [...c.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3); }})()"
    );
    let value = browser.evaluate(&script);
    value.as_array().unwrap().iter().map(|x| x.as_u64().unwrap()).collect()
}

#[track_caller]
fn assert_quiet(browser: &Browser) {
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

/// Elements that are wider than the page or than the box that holds them; what scrolls by itself
/// is left out.
const OVERFLOWS: &str = "[...document.querySelectorAll('body *')].filter((e) => {
    if (!e.checkVisibility() || e.closest('.wide table, .plain table, .out-of-sight, .skip, svg')) return false;
    const box = e.getBoundingClientRect();
    const cut = e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0
        && !['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
    return box.right > innerWidth + 0.5 || box.left < -0.5 || cut;
}).map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`)
  .concat(document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])";

const NAP: &str = "canvas[data-model=nap][data-side=ours]";

#[test]
fn the_page_does_what_it_says() {
    let dir = tempdir().unwrap();
    let page = report(dir.path());
    assert!(std::fs::metadata(&page).unwrap().len() < 5_000_000);
    let mut browser = Browser::start();
    browser.resize(1280, 900);
    browser.open(&page);
    assert_quiet(&browser);

    // The slider, by keyboard, and playing.
    let before = pixel(&mut browser, NAP, (6, 9));
    assert_eq!(before, [230, 242, 255], "worst 0.9, mean 0.95, best 1.0");
    browser.evaluate("document.querySelector('#epoch').focus()");
    (0..3).for_each(|_| browser.press("ArrowRight"));
    assert_eq!(browser.text("#epoch-out"), "epoch 4 of 32");
    let early = pixel(&mut browser, NAP, (6, 9));
    assert_eq!(early, [29, 30, 32], "an eighth of that");
    browser.click("#play");
    browser.evaluate("new Promise((done) => setTimeout(() => done(1), 1000))");
    let now = browser.evaluate("state.epoch").as_u64().unwrap();
    assert!((6..=20).contains(&now), "{now}");
    browser.click("#play");
    browser.click("#best");
    assert_eq!(pixel(&mut browser, NAP, (6, 9)), before);

    // Hovering.
    let cell = browser.place(NAP, (6.5 / 8.0, 9.5 / 10.0));
    browser.point(cell);
    let tip = browser.text("#tip");
    assert!(browser.evaluate("!document.querySelector('#tip').hidden").as_bool().unwrap());
    for part in [
        "NAP: dim 512, rate 0.3¹⁰",
        "90.0",
        "95.0",
        "100.0",
        "ours: seeds 0–2",
        "published: 5 seeds",
        "2 layers",
    ] {
        assert!(tip.contains(part), "{part}: {tip}");
    }

    // Clicking.
    browser.click_at(cell);
    assert_eq!(
        browser.text("#curves-title"),
        "Learning curves at width d 512, learning rate 0.3¹⁰"
    );
    let command = browser.text("#rerun code");
    assert_eq!(
        command,
        "for s in 0 1 2; do nap train --preset paper --task mode --model nap --dim 512 --lr 0.3^10 --seed $s; done"
    );
    assert_eq!(browser.evaluate("document.querySelectorAll('#curve-panels svg').length"), 3);

    // What is missing, failed or diverged.
    let nothing = browser.place(NAP, (3.5 / 8.0, 9.5 / 10.0));
    browser.point(nothing);
    assert!(browser.text("#tip").contains("no finished run, 3 not run yet"));
    assert_ne!(pixel(&mut browser, NAP, (3, 9)), [0, 0, 0]);
    let failed = browser.place(NAP, (2.5 / 8.0, 4.5 / 10.0));
    browser.point(failed);
    assert!(browser.text("#tip").contains("no finished run, 2 failed, 1 not run yet"));
    let key = browser.text("#key");
    for part in ["no result", "every seed diverged", "some diverged", "runs failed"] {
        assert!(key.contains(part), "{key}");
    }

    // The keyboard.
    browser.evaluate("document.querySelector('.map').focus(); state.over = null; state.cell = 0");
    ["ArrowRight", "ArrowDown", "Enter"].iter().for_each(|key| browser.press(key));
    assert_eq!(browser.text("#curves-title"), "Learning curves at width d 16, learning rate 0.3²");
    assert!(browser.text("#live").starts_with("NAP: dim 16"));

    // One value in place of three; training in place of validation.
    browser.evaluate("document.querySelector('input[value=mean]').click()");
    assert_eq!(pixel(&mut browser, NAP, (0, 0)), [16, 51, 109], "cividis at 0.1");
    browser.evaluate("document.querySelector('input[value=seeds]').click()");
    browser.evaluate("document.querySelector('input[name=split][value=\"0\"]').click()");
    assert_eq!(pixel(&mut browser, NAP, (6, 9)), [115, 121, 128]);
    browser.evaluate("document.querySelector('input[name=split][value=\"1\"]').click()");

    // Sorting.
    let order = |browser: &mut Browser, column: usize| {
        browser.click(&format!(".wide:not([hidden]) th:nth-child({column}) button"));
        let rows = "[...document.querySelectorAll('.wide:not([hidden]) tbody tr.ours th')].map((e) => e.dataset.sort).join()";
        browser.evaluate(rows).as_str().unwrap().to_owned()
    };
    assert_eq!(order(&mut browser, 6), "NAP,MTE,sum");
    assert_eq!(order(&mut browser, 6), "sum,MTE,NAP");
    assert_eq!(order(&mut browser, 1), "MTE,NAP,sum");

    // The plain tables.
    browser.click("#cells summary");
    browser.evaluate("new Promise((done) => setTimeout(() => done(1), 50))");
    let table = browser.text("#cell-tables .plain");
    assert!(table.contains("90.0 / 95.0 / 100.0") && table.contains("no result"), "{table}");
    browser.click("#cells summary");

    // Light and dark.
    let background = "getComputedStyle(document.body).backgroundColor";
    let light = browser.evaluate(background);
    browser.click("#theme");
    assert_ne!(browser.evaluate(background), light);
    assert_quiet(&browser);
}

#[test]
fn nothing_overflows_in_light_or_dark() {
    let dir = tempdir().unwrap();
    let page = report(dir.path());
    let published = dir.path().join("published.html");
    run(nap(dir.path()).args(["report", "--published-only", "-o", "published.html"]), 0);
    let mut browser = Browser::start();
    for (name, page) in [("report", page), ("published", published)] {
        for width in [1280, 400] {
            browser.resize(width, 900);
            browser.open(&page);
            for theme in ["light", "dark"] {
                browser.evaluate(&format!("setTheme('{theme}'); refresh()"));
                let sweeps = browser.evaluate("report.sweeps.length").as_u64().unwrap();
                for sweep in (0..sweeps).rev() {
                    browser.evaluate(&format!("openSweep({sweep})"));
                    let wide = browser.evaluate(OVERFLOWS);
                    assert_eq!(wide, Value::Array(Vec::new()), "{name} {sweep} at {width}");
                }
                browser.screenshot(&pictures().join(format!("{name}-{width}-{theme}.png")));
            }
        }
    }
    assert_quiet(&browser);
}

/// Every cell of every published map, in the colours that the figures in the file make.
#[test]
fn published_maps_have_the_pixels_of_the_figures() {
    let dir = tempdir().unwrap();
    run(nap(dir.path()).args(["report", "--published-only"]), 0);
    let mut browser = Browser::start();
    browser.open(&dir.path().join("report.html"));
    let script = "report.sweeps.flatMap((sweep, i) => { openSweep(i); return maps.map((entry) => {
        const [columns, rows] = [sweep.x.labels.length, sweep.y.labels.length];
        const context = entry.canvas.getContext('2d');
        const data = context.getImageData(0, 0, entry.canvas.width, entry.canvas.height).data;
        const pixels = sweep.y.labels.map((_, row) => sweep.x.labels.map((_, column) => {
            const x = Math.floor((column + 0.5) * entry.canvas.width / columns);
            const y = Math.floor((row + 0.5) * entry.canvas.height / rows);
            const at = 4 * (y * entry.canvas.width + x);
            return [...data.subarray(at, at + 3)];
        }));
        return { name: sweep.name, model: sweep.models[entry.model].label, pixels };
    }); })";
    let maps = browser.evaluate(script);
    let mut compared = 0;
    for map in maps.as_array().unwrap() {
        let cells = nap::published::cells().iter().filter(|cell| {
            map["name"] == format!("{} by {}", cell.task, cell.sweep) && map["model"] == cell.model
        });
        let xs: Vec<_> = cells
            .clone()
            .map(|cell| cell.x)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        for cell in cells {
            let column = xs.iter().position(|&x| x == cell.x).unwrap();
            let pixel = &map["pixels"][(cell.lr_exponent - 1) as usize][column];
            let expected = [cell.val_min, cell.val_mean, cell.val_max].map(|x| (255.0 * x).round());
            assert_eq!(*pixel, serde_json::json!(expected.map(|x| x as u8)), "{cell:?}");
            compared += 1;
        }
    }
    assert_eq!(compared, nap::published::cells().len());
    assert_quiet(&browser);
}
