//! The encoder equals the golden files: the paper's authors' program, forward and gradients, in
//! f64. How the files were made: `crates/engine/tests/golden/INDEX.md`.

mod common;
#[path = "../../engine/tests/support/mod.rs"]
mod support;

use std::path::Path;

use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Device, FloatDType, Int, Tensor, TensorData};
use common::{gradient, numbers};
use nap_burn::{AttentionForm, Encoder};
use nap_engine::config::{Auto, NormPlacement, Positions};
use nap_engine::model::architecture::Block;
use nap_engine::train::add_penalty;
use support::case::Case;
use support::{GoldenFile, Report, error_at_scale};

/// The files of models that an encoder can be.
fn cases() -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/cases");
    let mut paths: Vec<_> = std::fs::read_dir(&dir)
        .expect("the golden files")
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    paths.sort();
    let cases = paths.iter().map(|path| Case::new(GoldenFile::read(path), Auto::Auto));
    let normalized = |case: &Case| {
        matches!(&case.architecture.block, Block::Attention { rule, .. } if rule == "normalized")
            && case.architecture.norm_placement == NormPlacement::BeforeSkip
    };
    cases.filter(normalized).collect()
}

#[test]
fn golden_files_are_equalled_in_f64() {
    Device::flex().configure(FloatDType::F64).expect("a device that takes f64");
    let device = Device::flex().autodiff();
    let cases = cases();
    assert_eq!(cases.len(), 24, "case files with NAP in the paper's layout");
    let mut report = Report::default();
    for case in &cases {
        for form in [AttentionForm::Linear, AttentionForm::Quadratic] {
            compare(&mut report, case, form, &device);
        }
    }
    report.finish("encoder in f64");
}

fn compare(report: &mut Report, case: &Case, form: AttentionForm, device: &Device) {
    let name = case.file.name();
    let mut architecture = case.architecture.clone();
    // Sinusoids have no parameters; they are added below.
    if architecture.positions == Positions::Sinusoidal {
        architecture.positions = Positions::None;
    }
    let mut model = Encoder::from_parameters(&architecture, &case.weights::<f32>(), device)
        .expect("an encoder");
    model.layers.iter_mut().for_each(|layer| layer.attention.form = form);

    let n = case.batch.length;
    let batch = case.batch.tokens.len() / n;
    let ids = |values: &[u32]| values.iter().map(|&x| i64::from(x)).collect::<Vec<_>>();
    let tokens = TensorData::new(ids(&case.batch.tokens), [batch, n]);
    let mut x = model.embed(Tensor::<2, Int>::from_data(tokens, device));
    if case.architecture.positions == Positions::Sinusoidal {
        let table = case.file.tensor("const/position_embedding.table");
        let table =
            TensorData::new(table.data.clone(), [architecture.max_length, architecture.dim]);
        x = x + Tensor::<2>::from_data(table, device).narrow(0, 0, n).unsqueeze();
    }
    let masked = case.batch.mask.as_ref().map(|keep| {
        let masked: Vec<bool> = keep.iter().map(|keep| !keep).collect();
        Tensor::<2, Bool>::from_data(TensorData::new(masked, [batch, n]), device)
    });
    let logits = model.read_out(model.encode(x, masked));
    let expected = &case.file.tensor("f64/logits").data;
    report.compare("logits", name, &numbers(logits.clone()), expected, 1e-12);

    let [_, _, choices] = logits.dims();
    let rows = case.batch.targets.len();
    let targets = TensorData::new(ids(&case.batch.targets), [rows, 1]);
    let targets = Tensor::<2, Int>::from_data(targets, device);
    let loss = -log_softmax(logits.reshape([rows, choices]), 1).gather(1, targets).mean();
    let expected = &case.file.tensor("f64/loss/task").data;
    report.compare("loss", name, &numbers(loss.clone()), expected, 1e-12);

    // In the order of the fields, which is the engine's; of the loss with its L2 penalty.
    let mut gradient = gradient(&model, &loss.backward());
    let weights = case.weights::<f64>();
    add_penalty(&case.architecture, &weights, case.l2, Some(&mut gradient));
    let expected = &case.file.tensor("f64/grad").data;
    let largest = |x: &[f64]| x.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    for parameter in &case.architecture.parameters {
        let (a, e) = (&gradient[parameter.range()], &expected[parameter.range()]);
        let noise = case.zero_gradient.contains(&parameter.name);
        let scale = largest(if noise { expected } else { e });
        let place = format!("{name} {form:?} {}", parameter.name);
        report.note("gradient", &place, error_at_scale(a, e, scale), 1e-11);
    }
}
