//! `nap analyze hull`: a target outside the hull of the values.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use nap_engine::kernels::aggregate::{AttentionRule, attention_rules};
use serde_json::{Value, json};

use super::within;
use crate::analyze::hull::{self, Path, Point, Problem, distance};
use crate::chart::{self, COLOURS};
use crate::error::{bad, did_you_mean, unwritable};
use crate::files::write_atomically;
use crate::output::{note, print, print_line, short};
use crate::record::number;

/// A target outside the hull of the values: NAP reaches it, softmax does not.
///
/// Fixed random values in the plane, one query; the query, all keys and whatever gain and bias
/// the rule has are trained so that the aggregated vector becomes the target. Every rule starts
/// from the same query and keys and gets the same optimiser and steps.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap analyze hull -o hull.svg                      softmax and NAP, drawn
  nap analyze hull --target 0,0                     a target that both can reach
  nap analyze hull --rules softmax,no-norm --values 20 --seed 3
  nap analyze hull --json                           every step")]
pub struct Args {
    /// Attention rules to compare, as `nap models` lists them
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "softmax,normalized"
    )]
    rules: Vec<String>,
    /// Number of values, drawn from the square [-1, 1]^2
    #[arg(long, value_name = "N", default_value_t = 6)]
    values: usize,
    /// What the aggregated vector is to be
    #[arg(long, value_name = "X,Y", default_value = "1.5,1", allow_hyphen_values = true)]
    target: String,
    /// Optimiser steps
    #[arg(long, value_name = "N", default_value_t = 4000)]
    steps: u64,
    /// Learning rate of the first step; falls linearly to 0
    #[arg(long, default_value_t = 0.1, allow_hyphen_values = true)]
    lr: f64,
    /// Names the values, the initial query and the initial keys
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw it into this SVG file
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// On input that cannot be used.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    within("--values", args.values, 1, 10_000)?;
    within("--steps", args.steps, 1, 1_000_000)?;
    if !(args.lr > 0.0 && args.lr <= 1e3) {
        return Err(bad(format!("--lr {}: expected a number > 0, at most 1000", args.lr)));
    }
    let problem = Problem {
        values: hull::random_values(args.values, args.seed),
        target: target(&args.target)?,
        steps: args.steps,
        learning_rate: args.lr,
        seed: args.seed,
    };
    let rules = args.rules.iter().map(|name| rule(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let paths: Vec<_> = rules.into_iter().map(|rule| hull::train(&problem, rule)).collect();
    let corners = hull::hull(&problem.values);
    let near = hull::nearest(&corners, problem.target);
    if args.json {
        print_line(json(&problem, &corners, near, &paths).to_string())?;
    } else {
        print(text(&problem, &corners, near, &paths))?;
    }
    if let Some(out) = &args.out {
        let svg = drawing(&problem, &corners, near, &paths);
        write_atomically(out, svg.as_bytes()).map_err(|error| unwritable(out, &error))?;
        note(format!("wrote {}\n", out.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn target(text: &str) -> anyhow::Result<Point> {
    let wrong = || bad(format!("--target {text}: expected two numbers such as 1.5,1"));
    let (x, y) = text.split_once(',').ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|x| x.abs() <= 1e6);
    Ok([number(x).ok_or_else(wrong)?, number(y).ok_or_else(wrong)?])
}

fn rule(name: &str) -> anyhow::Result<&'static dyn AttentionRule<f64>> {
    let rules = attention_rules::<f64>();
    let known: Vec<_> = rules.iter().map(|rule| rule.info().name).collect();
    rules.into_iter().find(|rule| rule.info().name == name).ok_or_else(|| {
        let hint = did_you_mean(name, known.iter().copied());
        bad(format!("--rules {name}: expected some of {}{hint}", known.join(", ")))
    })
}

fn text(problem: &Problem, corners: &[Point], near: Point, paths: &[Path]) -> String {
    let [x, y] = problem.target;
    let outside = distance(near, problem.target);
    let place = match outside {
        0.0 => "inside the hull".to_owned(),
        _ => format!(
            "{outside:.4} outside the hull, whose nearest point is ({:.4}, {:.4})",
            near[0], near[1]
        ),
    };
    let mut text = format!(
        "{} values, target ({x}, {y}): {place}\n{} steps of Adam from learning rate {}, seed {}\n\n",
        problem.values.len(),
        problem.steps,
        problem.learning_rate,
        problem.seed
    );
    text += &sketch(problem, corners, paths);
    let _ = writeln!(
        text,
        "\n{:14} {:>22} {:>12} {:>12} {:>12} {:>10}",
        "rule", "ends at", "to target", "to nearest", "sum of w", "least w"
    );
    for path in paths {
        let end = path.end();
        let _ = writeln!(
            text,
            "{:14} {:>22} {:>12} {:>12} {:>12} {:>10}",
            path.rule,
            format!("({:.4}, {:.4})", end[0], end[1]),
            short(distance(end, problem.target)),
            short(distance(end, near)),
            short(path.weights.iter().sum()),
            short(path.weights.iter().copied().fold(f64::INFINITY, f64::min)),
        );
    }
    text
}

/// The smallest box around points, those that are finite: its lower and its upper corner.
fn bounds<'a>(points: impl Iterator<Item = &'a Point>) -> (Point, Point) {
    let (mut low, mut high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
    for point in points.filter(|point| point.iter().all(|x| x.is_finite())) {
        for c in 0..2 {
            (low[c], high[c]) = (low[c].min(point[c]), high[c].max(point[c]));
        }
    }
    (low, high)
}

/// What is drawn: values, target, and the paths as far as they stay near those; corner and size.
fn frame(problem: &Problem, paths: &[Path]) -> (Point, Point) {
    let (low, high) = bounds(problem.values.iter().chain([&problem.target]));
    let size = (high[0] - low[0]).max(high[1] - low[1]).max(1e-9);
    let near = |c: usize, x: f64| x.clamp(low[c] - size, high[c] + size);
    let paths = paths.iter().flat_map(|path| &path.points);
    let paths: Vec<_> = paths.map(|point| [near(0, point[0]), near(1, point[1])]).collect();
    let (low, high) = bounds(paths.iter().chain([&low, &high]));
    let margin = 0.05 * size;
    (low.map(|x| x - margin), [0, 1].map(|c| high[c] - low[c] + 2.0 * margin))
}

/// The plane in letters: o values, x target, a digit per rule along its path, dots for the hull.
fn sketch(problem: &Problem, corners: &[Point], paths: &[Path]) -> String {
    const COLUMNS: usize = 64;
    let (low, size) = frame(problem, paths);
    // Letters are about twice as high as wide.
    let rows = ((COLUMNS as f64 * size[1] / size[0] / 2.0).round() as usize).clamp(8, 32);
    let mut cells = vec![vec![' '; COLUMNS]; rows];
    let mut put = |point: Point, mark: char| {
        let column = (point[0] - low[0]) / size[0] * COLUMNS as f64;
        let row = (1.0 - (point[1] - low[1]) / size[1]) * rows as f64;
        if (0.0..COLUMNS as f64).contains(&column) && (0.0..rows as f64).contains(&row) {
            cells[row as usize][column as usize] = mark;
        }
    };
    for (i, &a) in corners.iter().enumerate() {
        let b = corners[(i + 1) % corners.len()];
        for t in 0..=100 {
            let t = f64::from(t) / 100.0;
            put([a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])], '.');
        }
    }
    for (i, path) in paths.iter().enumerate() {
        let mark = char::from_digit(i as u32 + 1, 36).unwrap_or('#');
        path.points.iter().for_each(|&point| put(point, mark));
    }
    problem.values.iter().for_each(|&value| put(value, 'o'));
    put(problem.target, 'X');
    let mut text = String::new();
    for row in cells {
        text += row.into_iter().collect::<String>().trim_end();
        text.push('\n');
    }
    text += "o values   . their hull   X target";
    for (i, path) in paths.iter().enumerate() {
        let _ =
            write!(text, "   {} {}", char::from_digit(i as u32 + 1, 36).unwrap_or('#'), path.rule);
    }
    text + "\n"
}

fn json(problem: &Problem, corners: &[Point], near: Point, paths: &[Path]) -> Value {
    let point = |p: &Point| json!([number(p[0]), number(p[1])]);
    let path = |path: &Path| {
        json!({
            "rule": path.rule,
            "end": point(&path.end()),
            "distance_to_target": number(distance(path.end(), problem.target)),
            "distance_to_nearest": number(distance(path.end(), near)),
            "weights": path.weights.iter().map(|&w| number(w)).collect::<Vec<_>>(),
            "points": path.points.iter().map(point).collect::<Vec<_>>(),
        })
    };
    json!({
        "values": problem.values.iter().map(point).collect::<Vec<_>>(),
        "hull": corners.iter().map(point).collect::<Vec<_>>(),
        "target": point(&problem.target),
        "nearest": point(&near),
        "steps": problem.steps,
        "learning_rate": problem.learning_rate,
        "seed": problem.seed,
        "rules": paths.iter().map(path).collect::<Vec<_>>(),
    })
}

fn drawing(problem: &Problem, corners: &[Point], near: Point, paths: &[Path]) -> String {
    let (low, size) = frame(problem, paths);
    let scale = 720.0 / size[0].max(size[1]);
    let (width, height) = (scale * size[0], scale * size[1]);
    let place = |p: &Point| ((p[0] - low[0]) * scale, height - (p[1] - low[1]) * scale);
    let list = |points: &mut dyn Iterator<Item = &Point>| {
        let places = points.map(place).map(|(x, y)| format!("{x:.1},{y:.1}"));
        places.collect::<Vec<_>>().join(" ")
    };
    let colours = || COLOURS.iter().cycle().zip(paths);
    let row = 24.0;
    let title = "A target outside the hull of the values";
    let mut svg = chart::open(width.max(520.0), height + row * (paths.len() + 2) as f64, title);
    // An inner picture, because paths may leave it.
    let _ = writeln!(svg, r#"<svg width="{width:.1}" height="{height:.1}">"#);
    let _ = writeln!(
        svg,
        r##"<polygon points="{}" class="frame" style="fill: #8883" stroke-dasharray="4 3"/>"##,
        list(&mut corners.iter())
    );
    for (colour, path) in colours() {
        let line = list(&mut thinned(&path.points).iter());
        let ((x, y), (end_x, end_y)) = (place(&path.points[0]), place(&path.end()));
        let _ = writeln!(
            svg,
            r#"<g stroke="{colour}" stroke-width="2" fill="none"><polyline points="{line}"/><circle cx="{x:.1}" cy="{y:.1}" r="5"/></g><circle cx="{end_x:.1}" cy="{end_y:.1}" r="6" fill="{colour}"/>"#
        );
    }
    for (x, y) in problem.values.iter().map(place) {
        let _ = writeln!(svg, r#"<circle class="ink" cx="{x:.1}" cy="{y:.1}" r="4"/>"#);
    }
    let (x, y) = place(&problem.target);
    let (left, top) = (x - 8.0, y - 8.0);
    let cross = format!("M{left:.1} {top:.1}l16 16m0 -16l-16 16");
    let _ = writeln!(svg, r#"<path d="{cross}" class="frame" stroke-width="3"/></svg>"#);
    for (i, (colour, path)) in colours().enumerate() {
        let at = height + row * (i + 1) as f64;
        let _ = writeln!(
            svg,
            r#"<circle cx="18" cy="{:.1}" r="6" fill="{colour}"/><text class="ink" x="32" y="{at:.1}">{}: ends {} from the target, {} from the hull's nearest point</text>"#,
            at - 4.0,
            path.rule,
            short(distance(path.end(), problem.target)),
            short(distance(path.end(), near))
        );
    }
    let at = height + row * (paths.len() + 1) as f64;
    let _ = writeln!(
        svg,
        r#"<text class="muted" x="12" y="{at:.1}">dots: values; shaded: their hull; cross: target; rings: where each rule starts</text>"#
    );
    svg + "</svg>\n"
}

/// A path's points that are apart from each other in the drawing.
fn thinned(points: &[Point]) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    for (i, &point) in points.iter().enumerate() {
        let far = kept.last().is_none_or(|&last| distance(last, point) > 0.01);
        if (far || i + 1 == points.len()) && point.iter().all(|x| x.is_finite()) {
            kept.push(point);
        }
    }
    kept
}
