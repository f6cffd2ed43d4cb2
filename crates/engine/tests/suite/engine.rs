//! The engine equals the reference over random configurations.

use crate::support::panels::OneHead;
use crate::support::setup::{Setup, stream};
use crate::support::{Report, error_at_scale, scaled_error};
use nap_engine::config::{Masking, Positions, Precision, RunConfig};
use nap_engine::kernels::aggregate::linear::Linear;
use nap_engine::kernels::aggregate::{Row, attention_rules};
use nap_engine::model::Model;
use nap_engine::model::architecture::Block;
use nap_engine::real::Real;
use nap_engine::reference;
use nap_engine::train::{Trained, Trainer};

/// Random configurations per test.
const SETUPS: u64 = 400;

fn narrow<T: Real>(x: &[f64]) -> Vec<T> {
    x.iter().map(|&x| T::of(x)).collect()
}

fn wide<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.f64()).collect()
}

/// Logits, with 0 for those that masked tokens do not have.
fn finite(logits: &[f64]) -> Vec<f64> {
    logits.iter().map(|&z| if z == f64::NEG_INFINITY { 0.0 } else { z }).collect()
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |m, x| m.max(x.abs()))
}

/// Logits, loss and gradient of the engine against the reference in f64.
fn compare<T: Real>(report: &mut Report, setup: &Setup, tolerances: [f64; 3]) {
    let Setup { architecture, parameters, batch, dropout } = setup;
    let keep = setup.keep();
    let keep = dropout.is_some().then_some(&keep as reference::Keep);
    let expected = reference::evaluate(architecture, parameters, batch, 0.0, keep);
    let parameters = narrow::<T>(parameters);
    let mut model = Model::<T>::new(architecture.clone(), batch.length, Precision::F32);
    let mut gradient = vec![T::zero(); parameters.len()];
    let pass = model.loss_and_gradient(&parameters, batch, *dropout, &mut gradient);
    let name = setup.name();
    let [values, loss, gradients] = tolerances;
    let mean = pass.score.loss / pass.score.rows as f64;
    report.compare("loss", &name, &[mean], &[expected.task_loss], loss);
    // Losses and parameters are of order 1. Where a LayerNorm of one or two features leaves
    // gradients of nothing but rounding, they are compared at this floor.
    let scale = largest(&expected.gradient).max(1e-3);
    let error = error_at_scale(&wide(&gradient), &expected.gradient, scale);
    report.note("gradient", &name, error, gradients);
    let norms = [pass.embedding_square.sqrt(), expected.embedding_norm2.sqrt()];
    let error = error_at_scale(&norms[..1], &norms[1..], norms[1].max(scale));
    report.note("embedding norm", &name, error, gradients);
    if dropout.is_none() {
        let mut logits = Vec::new();
        model.logits(&parameters, batch, &mut logits);
        let expected = finite(&expected.trace.logits);
        report.compare("logits", &name, &finite(&wide(&logits)), &expected, values);
        let mut answers = Vec::new();
        let score = model.answers(&parameters, batch, &mut answers);
        report.compare("score", &name, &[score.loss], &[pass.score.loss], 1e-6);
        assert_eq!(score.correct, pass.score.correct, "{name}");
    }
}

fn is_max(setup: &Setup) -> bool {
    setup.architecture.block == Block::Pooling("max".to_owned())
}

/// Whether max pooling subtracts 1e9 from masked tokens.
fn loses_digits(setup: &Setup) -> bool {
    let reference = setup.architecture.masking == Masking::Reference;
    is_max(setup) && reference && setup.batch.mask.is_some()
}

#[test]
fn the_engine_equals_the_reference_in_f64() {
    let mut report = Report::default();
    for seed in 0..SETUPS {
        let setup = Setup::random(seed, true);
        // The authors' masking takes 1e9 off masked tokens, which leaves seven of f64's digits.
        let tolerance = if loses_digits(&setup) { 1e-6 } else { 1e-9 };
        compare::<f64>(&mut report, &setup, [tolerance; 3]);
    }
    report.finish("engine and reference in f64");
}

#[test]
fn the_engine_is_within_rounding_of_the_reference_in_f32() {
    let mut report = Report::default();
    for seed in 0..SETUPS {
        let setup = Setup::random(seed, false);
        // The authors' masking leaves nothing of f32; and the slow sinusoids of equal tokens
        // differ by less than f32 can tell, which makes ties.
        let ties = is_max(&setup) && setup.architecture.positions == Positions::Sinusoidal;
        if !(loses_digits(&setup) || ties) {
            compare::<f32>(&mut report, &setup, [1e-4, 1e-5, 5e-4]);
        }
    }
    report.finish("engine in f32 and reference in f64");
}

/// bf16 rounds the operands of dense layers to 8 bits, an error of up to 2^-8 each. Norms behind
/// them divide by deviations, which amplifies it where these are small, as in random models of
/// few features; so there are bounds for half and for nine tenths of them.
#[test]
fn bf16_is_within_its_bounds_of_the_reference() {
    is_within(Precision::Bf16, [[0.01, 0.05], [0.02, 0.1]], 1e-5);
}

/// Three products of bf16 have errors of up to 2^-15 of each term, 128 times smaller, and mostly
/// smaller than that.
#[test]
fn bf16x3_is_within_its_bounds_of_the_reference() {
    is_within(Precision::Bf16x3, [[3e-5, 1e-4], [3e-5, 4e-4]], 1e-6);
}

/// Bounds of logits and gradients, for half and for nine tenths of the models; `least` is what
/// rounding does at least to half of them.
fn is_within(precision: Precision, bounds: [[f64; 2]; 2], least: f64) {
    let (mut values, mut gradients) = (Vec::new(), Vec::new());
    for seed in 0..SETUPS {
        let setup = Setup::random(seed, false);
        // Ties and near-ties of maxima make jumps of any size.
        if is_max(&setup) || setup.dropout.is_some() || setup.architecture.dim < 8 {
            continue;
        }
        let Setup { architecture, parameters, batch, .. } = &setup;
        let expected = reference::evaluate(architecture, parameters, batch, 0.0, None);
        let parameters = narrow::<f32>(parameters);
        let mut model = Model::<f32>::new(architecture.clone(), batch.length, precision);
        let mut gradient = vec![0.0; parameters.len()];
        model.loss_and_gradient(&parameters, batch, None, &mut gradient);
        let mut logits = Vec::new();
        model.logits(&parameters, batch, &mut logits);
        values.push(scaled_error(&finite(&wide(&logits)), &finite(&expected.trace.logits)));
        let scale = largest(&expected.gradient).max(1e-3);
        gradients.push(error_at_scale(&wide(&gradient), &expected.gradient, scale));
    }
    println!("{}, AMX tiles: {}", precision.name(), nap_engine::arch::has_tiles());
    for ((name, mut errors), [middle, most]) in
        [("logits", values), ("gradient", gradients)].into_iter().zip(bounds)
    {
        errors.sort_by(f64::total_cmp);
        let at = |share: usize| errors[errors.len() * share / 100];
        let (median, high) = (at(50), at(90));
        println!(
            "{name}: {} models, median {median:.1e}, 90 % below {high:.1e}, worst {:.1e}",
            errors.len(),
            at(99)
        );
        assert!(median > least, "{name}: nothing is rounded");
        assert!(median <= middle && high <= most, "{name}: {median:e}, {high:e}");
    }
}

#[test]
fn sequences_do_not_depend_on_their_neighbours() {
    for seed in 0..100 {
        let setup = Setup::random(seed, true);
        let parameters = narrow::<f32>(&setup.parameters);
        let mut model =
            Model::<f32>::new(setup.architecture.clone(), setup.batch.length, Precision::F32);
        let mut whole = Vec::new();
        model.logits(&parameters, &setup.batch, &mut whole);
        let n = setup.batch.length;
        let per_sequence = whole.len() / setup.batch.sequences();
        for s in 0..setup.batch.sequences() {
            let mut one = setup.batch.clone();
            one.tokens = one.tokens[s * n..(s + 1) * n].to_vec();
            one.mask = one.mask.map(|mask| mask[s * n..(s + 1) * n].to_vec());
            one.targets = vec![0; one.targets.len() / setup.batch.sequences()];
            one.weights = None;
            let mut alone = Vec::new();
            model.logits(&parameters, &one, &mut alone);
            let expected = wide(&whole[s * per_sequence..(s + 1) * per_sequence]);
            let error = scaled_error(&finite(&wide(&alone)), &finite(&expected));
            assert!(error <= 1e-5, "{}: {error:e}", setup.name());
        }
    }
}

/// What a model computed before leaves no trace: other lengths, other numbers of sequences, and
/// parameters that are NaN.
#[test]
fn a_model_that_was_used_before_is_as_good_as_new() {
    for seed in 0..100 {
        let (setup, other) = (Setup::random(seed, true), Setup::random(seed + 9, true));
        let Setup { architecture, batch, dropout, .. } = &setup;
        let parameters = narrow::<f32>(&setup.parameters);
        let new = || Model::<f32>::new(architecture.clone(), batch.length, Precision::F32);
        let gradient = |model: &mut Model<f32>| {
            let mut gradient = vec![0.0; parameters.len()];
            let pass = model.loss_and_gradient(&parameters, batch, *dropout, &mut gradient);
            (pass, gradient.iter().map(|x: &f32| x.to_bits()).collect::<Vec<_>>())
        };
        let mut used = new();
        // The same sequences many times, then the first tokens of each.
        let mut before = batch.clone();
        let copies = 1 + other.batch.sequences();
        before.tokens = batch.tokens.repeat(copies);
        before.targets = batch.targets.repeat(copies);
        before.weights = batch.weights.as_ref().map(|weights| weights.repeat(copies));
        before.mask = batch.mask.as_ref().map(|mask| mask.repeat(copies));
        let lost = vec![f32::NAN; parameters.len()];
        used.answers(&lost, &before, &mut Vec::new());
        used.loss_and_gradient(&lost, &before, *dropout, &mut vec![0.0; parameters.len()]);
        assert!(gradient(&mut used) == gradient(&mut new()), "{}", setup.name());
    }
}

#[test]
fn threads_change_no_bit() {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for seed in 0..60 {
        let mut setup = Setup::random(seed, true);
        // From one sequence to many micro-batches.
        let copies = 1 + 7 * (seed as usize % 12);
        let Setup { batch, .. } = &mut setup;
        batch.tokens = batch.tokens.repeat(copies);
        batch.targets = batch.targets.repeat(copies);
        batch.weights = batch.weights.as_ref().map(|weights| weights.repeat(copies));
        batch.mask = batch.mask.as_ref().map(|mask| mask.repeat(copies));
        let parameters = narrow::<f32>(&setup.parameters);
        let run = |threads: usize| {
            let model =
                Model::<f32>::new(setup.architecture.clone(), setup.batch.length, Precision::F32);
            let mut model = model.with_threads(threads);
            let (mut gradient, mut answers) = (vec![0.0; parameters.len()], Vec::new());
            let pass =
                model.loss_and_gradient(&parameters, &setup.batch, setup.dropout, &mut gradient);
            let score = model.answers(&parameters, &setup.batch, &mut answers);
            (bits(&gradient), pass.score.loss.to_bits(), answers, score.loss.to_bits())
        };
        let one = run(1);
        for threads in [2, 3, 4, 9] {
            assert!(run(threads) == one, "{} on {threads} threads", setup.name());
        }
    }
}

/// One head's aggregate and gradients in both forms.
struct Forms<T> {
    n: usize,
    width: usize,
    data: [Vec<T>; 4],
    mask: Option<Vec<bool>>,
    row: (T, T, T),
}

impl<T: Real> Forms<T> {
    /// `scale` is that of queries and keys; `constant` makes every key the same.
    fn random(seed: u64, scale: f64, constant: bool, n: usize, width: usize) -> Self {
        let s = &mut stream(seed);
        let mut draw = |scale: f64| -> Vec<T> {
            (0..n * width).map(|_| T::of(scale * (2.0 * s.uniform() - 1.0))).collect()
        };
        let mut data = [draw(scale), draw(scale), draw(1.0), draw(1.0)];
        if constant {
            let first = data[1][..width].to_vec();
            data[1].chunks_exact_mut(width).for_each(|row| row.copy_from_slice(&first));
        }
        let masked = s.coin();
        let mask = masked.then(|| (0..n).map(|j| j == 0 || s.coin()).collect());
        let row = (T::of(0.5 + s.uniform()), T::of(s.uniform() - 0.5), T::of(1e-3));
        Self { n, width, data, mask, row }
    }

    /// `[out, dq, dk, dv, dgain and dbias]`
    fn compute(&self, rule: &str, form: Option<Linear>) -> [Vec<f64>; 5] {
        let [q, k, v, dout] = &self.data;
        let (gain, bias, epsilon) = self.row;
        let rules = attention_rules::<T>();
        let head = OneHead {
            rule: rules.into_iter().find(|r| r.info().name == rule).expect("a rule"),
            form,
            n: self.n,
            width: self.width,
            scale: T::of(0.7),
            row: Row { mask: self.mask.as_deref(), gain, bias, epsilon, centre: false },
        };
        let out = head.forward([q, k, v], None);
        let ([dq, dk, dv], parameters) = head.backward([q, k, v], dout, None);
        [wide(&out), wide(&dq), wide(&dk), wide(&dv), wide(&parameters)]
    }

    fn compare(&self, report: &mut Report, rule: &str, form: Linear, place: &str, tolerance: f64) {
        let kinds = ["out", "dq", "dk", "dv", "dgain, dbias"];
        let results = self.compute(rule, Some(form)).into_iter().zip(self.compute(rule, None));
        for (kind, (linear, quadratic)) in kinds.into_iter().zip(results) {
            assert!(linear.iter().chain(&quadratic).all(|x| x.is_finite()), "{rule} {kind}");
            let at = format!("{rule} {place} n {} d_h {}", self.n, self.width);
            report.compare(kind, &at, &linear, &quadratic, tolerance);
        }
    }
}

const LINEAR_RULES: [(&str, Linear); 2] =
    [("normalized", Linear::Standardised), ("no-norm", Linear::Plain)];

/// Sizes around and beyond vector widths and tiles.
fn sizes(seed: u64) -> (usize, usize) {
    let s = &mut stream(1000 + seed);
    (1 + s.below(if seed.is_multiple_of(10) { 300 } else { 40 }) as usize, 1 + s.below(33) as usize)
}

#[test]
fn linear_and_quadratic_forms_agree_in_f64() {
    let mut report = Report::default();
    for seed in 0..200 {
        let (n, width) = sizes(seed);
        for (rule, form) in LINEAR_RULES {
            // 0.05 gives the deviation of logits at the paper's initial weights, about 1e-3.
            for scale in [1e-3, 0.05, 1.0, 5.0] {
                let forms = Forms::<f64>::random(seed, scale, false, n, width);
                forms.compare(&mut report, rule, form, &format!("scale {scale}"), 1e-9);
            }
        }
    }
    report.finish("linear and quadratic in f64");
}

#[test]
fn constant_rows_have_no_nan_and_agree() {
    let mut report = Report::default();
    for seed in 0..100 {
        let (n, width) = sizes(seed);
        for (rule, form) in LINEAR_RULES {
            let forms = Forms::<f64>::random(seed, 1.0, true, n, width);
            let linear = forms.compute(rule, Some(form));
            let quadratic = forms.compute(rule, None);
            assert!(linear.iter().chain(&quadratic).flatten().all(|x| x.is_finite()));
            // The weights are b, so the aggregate is b times the sum of the values; gradients of
            // queries are 0. Their deviation of 0 differs by rounding, divided by 1e-3.
            report.compare("out", rule, &linear[0], &quadratic[0], 1e-9);
            let scale = largest(&forms.data[3]) * 1e3 * n as f64;
            for at in 1..5 {
                let error = error_at_scale(&linear[at], &quadratic[at], scale);
                report.note("gradients", rule, error, 1e-9);
            }
        }
    }
    report.finish("constant rows in f64");
}

#[test]
fn linear_and_quadratic_forms_agree_in_f32() {
    let mut report = Report::default();
    for seed in 0..200 {
        let (n, width) = sizes(seed);
        // Fewer than three keys can all but coincide, which f32 cannot tell from a constant row.
        let n = n + 16;
        for (rule, form) in LINEAR_RULES {
            for scale in [0.05, 1.0, 3.0] {
                let mut forms = Forms::<f32>::random(seed, scale, false, n, width);
                forms.mask = None;
                forms.compare(&mut report, rule, form, &format!("scale {scale}"), 2e-4);
            }
        }
    }
    report.finish("linear and quadratic in f32");
}

#[test]
fn an_evaluation_that_is_given_up_leaves_no_trace() {
    let config = || {
        let mut config = RunConfig::paper();
        (config.model.dim, config.task.length) = (8, 8);
        (config.train.epochs, config.train.steps_per_epoch) = (2, 3);
        (config.train.validation_batches, config.train.case_sequences) = (2, 240);
        config
    };
    let run = |give_up: bool| {
        let mut trainer = Trainer::new(config()).unwrap();
        while !trainer.finished() {
            for _ in 0..3 {
                trainer.step();
            }
            if give_up {
                // After each number of batches, until the evaluation is through.
                let mut most = 0usize;
                loop {
                    let left = std::cell::Cell::new(most);
                    let stop = || left.replace(left.get().saturating_sub(1)) == 0;
                    let before = trainer.epochs_done();
                    if trainer.finish_epoch_unless(&stop).is_some() {
                        break;
                    }
                    assert_eq!(trainer.epochs_done(), before);
                    most += 1;
                }
                assert_eq!(most, 2 + 3 + 3);
            } else {
                trainer.finish_epoch();
            }
        }
        trainer.checkpoint()
    };
    assert!(run(true) == run(false));
}

#[test]
fn validating_leaves_no_trace_and_scores_as_the_weights_do() {
    let mut config = RunConfig::paper();
    (config.model.dim, config.task.length, config.train.seed) = (8, 8, 5);
    let [mut plain, mut validated] = [(); 2].map(|()| Trainer::new(config.clone()).unwrap());
    for _ in 0..3 {
        plain.step();
        let scores = Trained::read(&validated.weights()).unwrap().evaluate(4, 2, 5).unwrap();
        assert_eq!(validated.validate(2), (scores.loss, scores.accuracy));
        validated.step();
    }
    assert!(plain.checkpoint() == validated.checkpoint());
}
