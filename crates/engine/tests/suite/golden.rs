//! The golden case files, computed by the authors' program: the reference equals them in f64,
//! and so does the engine, in f64 and, within rounding, in f32.
//!
//! `NAP_GOLDEN_DIR` names another directory of such files. Operations, tasks and the graph layer
//! have tests of their own (`golden_ops.rs`, `golden_tasks.rs`).

use crate::support::case::{Case, Pass};
use crate::support::{GoldenFile, Report, error_at_scale, golden_dir, golden_paths, say};
use nap_engine::config::{AttentionForm, Auto, Precision};
use nap_engine::kernels::aggregate;
use nap_engine::model::Model;
use nap_engine::model::architecture::Block;
use nap_engine::model::positions::sinusoids;
use nap_engine::real::Real;
use nap_engine::reference;
use nap_engine::train::add_penalty;

/// Every case file; fails on a file that is no known kind and on a missing kind.
fn case_files() -> Vec<GoldenFile> {
    let mut cases = Vec::new();
    let mut others = Vec::new();
    for path in golden_paths() {
        let file = GoldenFile::read(&path);
        match file.name() {
            "ops" | "tasks" | "graph" => others.push(file.name().to_owned()),
            _ if file.info.get("case").is_some() => cases.push(file),
            name => panic!("{name}: neither a case nor ops, tasks or graph"),
        }
    }
    others.sort();
    assert_eq!(others, ["graph", "ops", "tasks"], "below {}", golden_dir().display());
    assert!(!cases.is_empty(), "no case files below {}", golden_dir().display());
    cases
}

/// Values far beyond any other's: the reference masking of max pooling (INDEX.md, section 3).
const HUGE: &str = "odd_mask_cases_max";

/// The tolerance of a tensor by the precision it was computed and stored in.
fn tolerance(case: &Case, stored: &str) -> f64 {
    match stored {
        "f64" if case.file.name() == HUGE => 1e-8,
        "f64" => 1e-9,
        // Stored as f32.
        "f64r" => 1e-7,
        _ => panic!("{stored}"),
    }
}

/// `f64/name` or `f64r/name`, whichever the file has.
fn stored<'a>(case: &'a Case, name: &str) -> Option<(&'static str, &'a [f64])> {
    ["f64", "f64r"]
        .into_iter()
        .find_map(|kind| Some((kind, case.file.get(&format!("{kind}/{name}"))?.data.as_slice())))
}

fn wide<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.f64()).collect()
}

/// Compares per parameter, scaled by its largest magnitude; by the largest of all where the
/// gradient is 0 in theory and the file holds rounding noise.
fn compare_parameters(
    report: &mut Report,
    kind: &'static str,
    case: &Case,
    actual: &[f64],
    expected: &[f64],
    tolerance: f64,
) {
    assert_eq!(actual.len(), expected.len());
    let largest = |x: &[f64]| x.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    for parameter in &case.architecture.parameters {
        let (a, e) = (&actual[parameter.range()], &expected[parameter.range()]);
        let noise = case.zero_gradient.contains(&parameter.name);
        let scale = largest(if noise { expected } else { e });
        let place = format!("{} {}", case.file.name(), parameter.name);
        report.note(kind, &place, error_at_scale(a, e, scale), tolerance);
    }
}

/// Everything a case file says of five updates and the passes before them, in f64.
fn compare_training(report: &mut Report, case: &Case, mut pass: impl FnMut(&[f64]) -> Pass<f64>) {
    let name = case.file.name();
    let (passes, after) = case.train::<f64>(&mut pass);
    let first = &passes[0];
    let exact = tolerance(case, "f64");
    report.compare("logits", name, &first.logits, &case.file.tensor("f64/logits").data, exact);
    let losses = [
        ("task", first.task_loss),
        ("l2", first.l2_loss),
        ("total", first.task_loss + first.l2_loss),
    ];
    for (kind, loss) in losses {
        let expected = &case.file.tensor(&format!("f64/loss/{kind}")).data;
        report.compare("loss", name, &[loss], expected, exact);
    }
    let gradient = &case.file.tensor("f64/grad").data;
    compare_parameters(report, "gradient", case, &first.gradient, gradient, exact);
    if let Some(expected) = case.file.get("f64/clipped_embedding_grad") {
        let clipped = case.clipped(first);
        let range = case.architecture.parameter("embedding.weight").expect("embedding").range();
        report.compare("clipped embedding gradient", name, &clipped[range], &expected.data, exact);
    }
    for step in [1, 2, 5] {
        let expected = stored(case, &format!("after{step}"));
        let initial = step == 1 && case.file.info["after1_equals_initial"] == true;
        assert!(
            expected.is_some() || initial || step == 2,
            "{name}: neither weights after {step} updates nor a word why"
        );
        if let Some((kind, expected)) = expected {
            let tolerance = tolerance(case, kind);
            let what = ["", "weights after 1", "weights after 2", "", "", "weights after 5"][step];
            compare_parameters(report, what, case, &after[step - 1], expected, tolerance);
        }
        if initial {
            assert_eq!(after[0], case.weights::<f64>(), "{name}: a learning rate of 0");
        }
    }
    let step_loss: Vec<_> = passes.iter().map(|p| p.task_loss + p.l2_loss).collect();
    let expected = &case.file.tensor("f64/step_loss").data;
    report.compare("step loss", name, &step_loss, expected, exact);
    let accuracy: Vec<_> = passes.iter().map(|p| p.accuracy).collect();
    let expected = &case.file.tensor("f64/step_metric").data;
    // Keras keeps accuracies in f32.
    report.compare("step accuracy", name, &accuracy, expected, 1e-7);
    let logits = pass(&after[4]).logits;
    let expected = &case.file.tensor("f64/logits_after5").data;
    report.compare("logits after 5", name, &logits, expected, exact);
}

fn reference_pass(case: &Case, weights: &[f64]) -> (Pass<f64>, reference::Evaluation<f64>) {
    let evaluation = reference::evaluate(&case.architecture, weights, &case.batch, case.l2, None);
    let pass = Pass {
        logits: evaluation.trace.logits.clone(),
        task_loss: evaluation.task_loss,
        l2_loss: evaluation.l2_loss,
        accuracy: evaluation.accuracy,
        gradient: evaluation.gradient.clone(),
        embedding_square: evaluation.embedding_norm2,
    };
    (pass, evaluation)
}

#[test]
fn golden_reference_equals_every_case() {
    let mut report = Report::default();
    let files = case_files();
    say(&format!("{} case files\n", files.len()));
    for file in files {
        let case = Case::new(file, Auto::Auto);
        compare_training(&mut report, &case, |weights| reference_pass(&case, weights).0);
        compare_intermediates(&mut report, &case);
    }
    report.finish("reference in f64");
}

fn compare_intermediates(report: &mut Report, case: &Case) {
    let trace = reference_pass(case, &case.weights()).1.trace;
    for (key, expected) in &case.file.tensors {
        if let Some(table) = key.strip_prefix("const/") {
            assert_eq!(table, "position_embedding.table");
            let table = sinusoids(case.architecture.max_length, case.architecture.dim);
            report.compare("sinusoids", case.file.name(), &wide(&table), &expected.data, 1e-7);
        }
        let Some(name) = key.strip_prefix("f64r/act/") else { continue };
        let layer = |index: &str| &trace.layers[index.parse::<usize>().expect("a layer")];
        let parts: Vec<_> = name.splitn(3, '.').collect();
        let actual = match parts[..] {
            ["embedded"] => &trace.embedded,
            ["layer", i, "attention.logits"] => &layer(i).block.logits,
            ["layer", i, "attention.weights"] => &layer(i).block.weights,
            ["layer", i, "pooled"] => &layer(i).block.out,
            ["layer", i, "mid"] => &layer(i).mid,
            ["layer", i, "ff_out"] => &layer(i).ff_out,
            ["layer", i, "out"] => &layer(i).out,
            _ => panic!("{}: unknown intermediate {name}", case.file.name()),
        };
        let place = format!("{} {name}", case.file.name());
        let tolerance = tolerance(case, "f64r");
        report.compare("intermediates", &place, actual, &expected.data, tolerance);
    }
}

/// The engine's pass, in any precision.
fn engine_pass<T: Real>(model: &mut Model<T>, case: &Case, weights: &[T]) -> Pass<T> {
    let mut gradient = vec![T::zero(); weights.len()];
    let pass = model.loss_and_gradient(weights, &case.batch, None, &mut gradient);
    let l2_loss = add_penalty(&case.architecture, weights, case.l2, Some(&mut gradient));
    let mut logits = Vec::new();
    model.logits(weights, &case.batch, &mut logits);
    Pass {
        logits,
        task_loss: pass.score.loss / pass.score.rows as f64,
        l2_loss,
        accuracy: pass.score.correct as f64 / pass.score.rows as f64,
        gradient,
        embedding_square: pass.embedding_square,
    }
}

/// The forms of attention a case can be computed in.
fn forms(file: &GoldenFile) -> Vec<Auto<AttentionForm>> {
    let case = Case::new(file.clone(), Auto::Auto);
    let linear = matches!(&case.architecture.block, Block::Attention { rule, .. }
        if aggregate::has_linear_form(rule));
    let quadratic = [Auto::Value(AttentionForm::Quadratic)];
    if linear { vec![quadratic[0], Auto::Value(AttentionForm::Linear)] } else { quadratic.into() }
}

#[test]
fn golden_engine_in_f64_equals_every_case() {
    let mut report = Report::default();
    for file in case_files() {
        // Values of 1e9 leave nine digits, of which other orders of summation take one
        // (INDEX.md, section 3); the reference, in the authors' order, keeps to their bound.
        if file.name() == HUGE {
            continue;
        }
        for form in forms(&file) {
            let case = Case::new(file.clone(), form);
            let mut model =
                Model::<f64>::new(case.architecture.clone(), case.batch.length, Precision::F32);
            compare_training(&mut report, &case, |w| engine_pass(&mut model, &case, w));
        }
    }
    report.finish("engine in f64");
}

#[test]
fn golden_engine_in_f32_is_within_rounding() {
    let mut report = Report::default();
    for file in case_files() {
        // Values of 1e9 leave nothing of f32 (INDEX.md, section 3).
        if file.name() == HUGE {
            continue;
        }
        for form in forms(&file) {
            compare_in_f32(&mut report, &Case::new(file.clone(), form));
        }
    }
    report.finish(&format!("engine in f32 ({})", nap_engine::arch::isa().name()));
}

/// The tolerances are those INDEX.md suggests for f32, from the authors' program run in both
/// precisions.
fn compare_in_f32(report: &mut Report, case: &Case) {
    let name = case.file.name();
    let mut model = Model::<f32>::new(case.architecture.clone(), case.batch.length, Precision::F32);
    let (passes, after) = case.train::<f32>(|w| engine_pass(&mut model, case, w));
    let first = &passes[0];
    let logits = &case.file.tensor("f64/logits").data;
    report.compare("logits", name, &wide(&first.logits), logits, 2e-5);
    let loss = case.file.tensor("f64/loss/total").scalar();
    report.compare("loss", name, &[first.task_loss + first.l2_loss], &[loss], 1e-5);

    let expected = &case.file.tensor("f64/grad").data;
    let gradient = wide(&first.gradient);
    // A constant row of logits divides one rounding error by 1e-3 (INDEX.md, section 3).
    let constant_rows = name == "odd_mode_constrow_nap";
    if !constant_rows {
        compare_parameters(report, "gradient", case, &gradient, expected, 2e-4);
    }
    // Adam turns the rounding noise of a tiny gradient into a whole step, so that weights are
    // compared where the gradient is not tiny.
    let largest = expected.iter().fold(0.0, |m: f64, g| m.max(g.abs()));
    for (step, tolerance) in [(1, 1e-6), (5, 1e-3)] {
        let Some((_, weights)) = stored(case, &format!("after{step}")) else { continue };
        if constant_rows {
            continue;
        }
        for parameter in &case.architecture.parameters {
            if case.zero_gradient.contains(&parameter.name) {
                continue;
            }
            let worst = parameter
                .range()
                .filter(|&i| expected[i].abs() > 1e-3 * largest)
                .map(|i| (f64::from(after[step - 1][i]) - weights[i]).abs())
                .fold(0.0, f64::max);
            let kind = if step == 1 { "weights after 1" } else { "weights after 5" };
            report.note(kind, &format!("{name} {}", parameter.name), worst, tolerance);
        }
    }
}
