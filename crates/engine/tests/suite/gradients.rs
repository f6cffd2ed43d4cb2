//! Every backward agrees with central finite differences in f64.
//!
//! Kernels within 1e-6, whole models within 1e-5, scaled by the largest derivative; away from
//! ties of max and rows without deviation, where no derivative exists.

/// The rule of docs/adding-a-rule.md, compiled as it would be in the engine: what it takes from
/// `crate` and `super` there, it finds here.
#[path = "../support/relu.rs"]
mod relu;

use crate::support::panels::{OneHead, by_tiles, from_panels, to_gradient, to_panels};
use crate::support::setup::{Setup, stream};
use crate::support::{self, Report};
use nap_engine::config::Precision;
use nap_engine::kernels::aggregate::linear::Linear;
use nap_engine::kernels::aggregate::{
    AttentionRule, Defaults, Info, Pooling, Row, attention_rules, poolings,
};
use nap_engine::kernels::dense::{Dense, Scratch};
use nap_engine::kernels::dropout::{Dropout, Site};
use nap_engine::kernels::norm_gelu::Moments;
use nap_engine::kernels::{cross_entropy, embedding, norm_gelu};
use nap_engine::panel::{LANES, Lanes, Panels, PanelsMut};
use nap_engine::random::Stream;
use nap_engine::real::Real;
use nap_engine::reference;

/// The difference quotient's step.
const STEP: f64 = 1e-5;

fn draw(s: &mut Stream, n: usize, scale: f64) -> Vec<f64> {
    (0..n).map(|_| scale * (2.0 * s.uniform() - 1.0)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Compares `gradient` with the differences of `f` along every coordinate of `x`.
fn check(
    report: &mut Report,
    kind: &'static str,
    place: &str,
    x: &[f64],
    gradient: &[f64],
    f: impl Fn(&[f64]) -> f64,
) {
    let mut point = x.to_vec();
    let mut quotient = |i: usize| {
        let at = |v: f64, point: &mut Vec<f64>| {
            point[i] = v;
            f(point)
        };
        let difference = at(x[i] + STEP, &mut point) - at(x[i] - STEP, &mut point);
        point[i] = x[i];
        difference / (2.0 * STEP)
    };
    let expected: Vec<_> = (0..x.len()).map(&mut quotient).collect();
    // A gradient that vanishes throughout is compared at the rounding of f instead.
    let largest = expected.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
    report.note(kind, place, support::error_at_scale(gradient, &expected, largest), 1e-6);
}

/// Every rule of the registry, and the one that docs/adding-a-rule.md adds.
fn rules() -> Vec<&'static dyn AttentionRule<f64>> {
    let mut rules = attention_rules::<f64>();
    rules.push(&relu::Relu);
    rules
}

#[test]
fn the_page_on_adding_a_rule_shows_the_one_that_is_tested() {
    let page = include_str!("../../../../docs/adding-a-rule.md");
    let block = format!("```rust\n{}```\n", include_str!("../support/relu.rs"));
    assert!(page.contains(&block), "docs/adding-a-rule.md: expected tests/support/relu.rs in it");
}

/// Row forms of every rule: naive and by tile, over masks, gains, centring.
#[test]
fn attention_rules_row_by_row() {
    let mut report = Report::default();
    for seed in 0..40 {
        let s = &mut stream(seed);
        let n = 2 + s.below(20) as usize;
        let mask: Option<Vec<bool>> = s.coin().then(|| (0..n).map(|j| j < 2 || s.coin()).collect());
        let (z, upstream) = (draw(s, n, 2.0), draw(s, n, 1.0));
        let (gain, bias) = (0.5 + s.uniform(), s.uniform());
        let centre = s.coin();
        for rule in rules() {
            let name = rule.info().name;
            let loss = |z: &[f64], gain: f64, bias: f64| {
                let row = Row { mask: mask.as_deref(), gain, bias, epsilon: 0.01, centre };
                let mut w = vec![0.0; n];
                rule.weights(&row, z, &mut w);
                dot(&w, &upstream)
            };
            let row = Row { mask: mask.as_deref(), gain, bias, epsilon: 0.01, centre };
            let mut dz = vec![0.0; n];
            let (dgain, dbias) = rule.backward(&row, &z, &upstream, &mut dz);
            check(&mut report, "row", name, &z, &dz, |z| loss(z, gain, bias));
            let parameters = [dgain, dbias];
            check(&mut report, "gain and bias", name, &[gain, bias], &parameters, |p| {
                loss(&z, p[0], p[1])
            });
            let mut by_tile = [0.0; 2];
            let [_, tile] = by_tiles([&z, &upstream], n, |[z, dw], [w, dz], _| {
                rule.weights_tile(&row, z, w);
                dz.copy_from_slice(dw);
                by_tile = rule.backward_tile(&row, z, w, dz).map(|lanes| lanes[0]);
            });
            check(&mut report, "tile", name, &z, &tile, |z| loss(z, gain, bias));
            report.compare("tile, gain and bias", name, &by_tile, &parameters, 1e-9);
        }
    }
    report.finish("attention rules");
}

type Form<'a> = (&'a str, Option<Linear>, &'static dyn AttentionRule<f64>);

/// A whole head in both forms, with dropout in the quadratic one.
#[test]
fn attention_heads() {
    let mut report = Report::default();
    let rules = rules();
    let mut forms: Vec<Form> = rules.iter().map(|rule| (rule.info().name, None, *rule)).collect();
    forms.extend(rules.iter().filter_map(|rule| Some(("linear", Some(rule.linear()?), *rule))));
    for seed in 0..20 {
        let s = &mut stream(50 + seed);
        let (n, width) = (3 + s.below(20) as usize, 1 + s.below(6) as usize);
        let mask: Option<Vec<bool>> = s.coin().then(|| (0..n).map(|j| j < 3 || s.coin()).collect());
        let area = n * width;
        let (x, upstream) = (draw(s, 3 * area, 1.5), draw(s, area, 1.0));
        let row =
            Row { mask: mask.as_deref(), gain: 1.3, bias: 0.2, epsilon: 0.01, centre: s.coin() };
        let parts = |x: &[f64]| [0, 1, 2].map(|i| x[i * area..(i + 1) * area].to_vec());
        let dropout = Dropout { rate: 0.3, seed, step: 0 };
        for &(name, form, rule) in &forms {
            let drop = form.is_none() && seed % 2 == 0;
            let mask = || drop.then(|| dropout.mask(0, Site::Attention { layer: 0, head: 0 }));
            let head = OneHead { rule, form, n, width, scale: 0.8, row };
            let loss = |x: &[f64]| {
                let [q, k, v] = parts(x);
                dot(&head.forward([&q, &k, &v], mask()), &upstream)
            };
            let [q, k, v] = parts(&x);
            let (gradients, _) = head.backward([&q, &k, &v], &upstream, mask());
            let gradient = gradients.concat();
            check(&mut report, "queries, keys, values", name, &x, &gradient, loss);
        }
    }
    report.finish("attention heads");
}

#[test]
fn pooling() {
    let mut report = Report::default();
    for seed in 0..30 {
        let s = &mut stream(100 + seed);
        let (n, d) = (1 + s.below(9) as usize, 1 + s.below(9) as usize);
        let mask: Option<Vec<bool>> = s.coin().then(|| (0..n).map(|_| s.coin()).collect());
        let (x, upstream) = (draw(s, n * d, 1.0), draw(s, d, 1.0));
        for pooling in poolings::<f64>() {
            let name = pooling.info().name;
            let forward = |x: &[f64]| {
                let mut out = vec![0.0; d];
                pooling.forward(x, mask.as_deref(), &mut out);
                out
            };
            let (out, mut dx) = (forward(&x), vec![0.0; n * d]);
            pooling.backward(&x, mask.as_deref(), &out, &upstream, &mut dx);
            let loss = |x: &[f64]| dot(&forward(x), &upstream);
            check(&mut report, "tokens", name, &x, &dx, loss);
            // On panels, in both precisions.
            on_panels::<f64>(&mut report, pooling, &x, mask.as_deref(), [&out, &upstream, &dx]);
            let f32 = poolings::<f32>().into_iter().find(|p| p.info().name == name).expect("both");
            on_panels::<f32>(&mut report, f32, &x, mask.as_deref(), [&out, &upstream, &dx]);
        }
    }
    report.finish("pooling");
}

fn on_panels<T: Real>(
    report: &mut Report,
    pooling: &dyn Pooling<T>,
    x: &[f64],
    mask: Option<&[bool]>,
    [out, upstream, dx]: [&[f64]; 3],
) {
    let narrow = |x: &[f64]| x.iter().map(|&x| T::of(x)).collect::<Vec<_>>();
    let wide = |x: &[T]| x.iter().map(|x| x.f64()).collect::<Vec<_>>();
    let (d, n) = (out.len(), x.len() / out.len());
    let (panels, keep) = (to_panels(&narrow(x), d), support::panels::keep::<T>(mask, n));
    let mut pooled = vec![T::zero(); d];
    pooling.pool(&panels, &keep, &mut pooled);
    let tolerance = 1e2 * T::epsilon().f64();
    report.compare("panels", pooling.info().name, &wide(&pooled), out, tolerance);
    let mut gradient = vec![[T::one(); LANES]; panels.len()];
    pooling.pool_backward(&panels, &keep, &pooled, &narrow(upstream), &mut gradient);
    let gradient: Vec<_> = from_panels(&gradient, d, n).iter().map(|x| *x - T::one()).collect();
    report.compare("panels", pooling.info().name, &wide(&gradient), dx, tolerance);
}

#[test]
fn norms_and_gelu() {
    type Rows = [Lanes<f64>];
    type Forward = fn(&[f64], &Rows, &mut Rows, &mut [Moments<f64>]);
    type Backward = fn(&[f64], &Rows, &[Moments<f64>], &Rows, &mut Rows, &mut [f64]);
    let kernels: [(&str, Forward, Backward); 2] = [
        ("norm", norm_gelu::norm, norm_gelu::norm_backward),
        ("norm and GELU", norm_gelu::norm_gelu, norm_gelu::norm_gelu_backward),
    ];
    let mut report = Report::default();
    for seed in 0..30 {
        let s = &mut stream(200 + seed);
        let (rows, d) = (1 + s.below(20) as usize, 1 + s.below(40) as usize);
        let (x, upstream) = (draw(s, rows * d, 1.5), draw(s, rows * d, 1.0));
        let parameters = draw(s, 2 * d, 1.0);
        for (name, forward, backward) in kernels {
            let run = |parameters: &[f64], x: &[f64]| {
                let x = to_panels(x, d);
                let (mut y, mut moments) = (x.clone(), vec![[[0.0; LANES]; 2]; x.len() / d]);
                forward(parameters, &x, &mut y, &mut moments);
                (from_panels(&y, d, rows), moments)
            };
            let moments = run(&parameters, &x).1;
            let (panels, dy) = (to_panels(&x, d), to_gradient(&upstream, d));
            let (mut dx, mut gradient) = (panels.clone(), vec![0.0; 2 * d]);
            backward(&parameters, &panels, &moments, &dy, &mut dx, &mut gradient);
            let dx = from_panels(&dx, d, rows);
            check(&mut report, "input", name, &x, &dx, |x| dot(&run(&parameters, x).0, &upstream));
            check(&mut report, "gamma and beta", name, &parameters, &gradient, |p| {
                dot(&run(p, &x).0, &upstream)
            });
        }
        let gelu = |x: &[f64]| {
            let x = to_panels(x, d);
            let mut y = x.clone();
            norm_gelu::plain_gelu(&x, &mut y);
            dot(&from_panels(&y, d, rows), &upstream)
        };
        let panels = to_panels(&x, d);
        let mut dx = panels.clone();
        norm_gelu::plain_gelu_backward(&panels, &to_gradient(&upstream, d), &mut dx);
        let dx = from_panels(&dx, d, rows);
        check(&mut report, "input", "GELU", &x, &dx, gelu);
    }
    report.finish("norms and GELU");
}

#[test]
fn dense_embedding_and_loss() {
    let mut report = Report::default();
    for seed in 0..30 {
        let s = &mut stream(300 + seed);
        let [rows, input, output] = [30, 9, 20].map(|most| 1 + s.below(most) as usize);
        let (x, parameters) = (draw(s, rows * input, 1.0), draw(s, (input + 1) * output, 1.0));
        let columns = 1 + s.below(output as u32) as usize;
        let upstream = draw(s, rows * columns, 1.0);
        let dense = |p: &[f64]| {
            let mut dense = Dense::new(input, std::slice::from_ref(&(0..p.len())), Precision::F32);
            dense.pack(p);
            dense
        };
        let forward = |p: &[f64], x: &[f64]| {
            let x = to_panels(x, input);
            let mut y = vec![[0.0; LANES]; x.len() / input * columns];
            let scratch = &mut Scratch::new(input.max(output), rows, Precision::F32);
            dense(p).forward(Panels::new(&x, input), PanelsMut::new(&mut y, columns), scratch);
            dot(&from_panels(&y, columns, rows), &upstream)
        };
        let (panels, dy) = (to_panels(&x, input), to_gradient(&upstream, columns));
        let (mut dx, mut gradient) = (panels.clone(), vec![0.0; parameters.len()]);
        let dy = Panels::new(&dy, columns);
        let scratch = &mut Scratch::new(input.max(output), rows, Precision::F32);
        dense(&parameters).backward_input(dy, PanelsMut::new(&mut dx, input), false, scratch);
        dense(&parameters).backward_parameters(
            Panels::new(&panels, input),
            dy,
            &mut gradient,
            scratch,
        );
        let dx = from_panels(&dx, input, rows);
        check(&mut report, "dense", "input", &x, &dx, |x| forward(&parameters, x));
        check(&mut report, "dense", "parameters", &parameters, &gradient, |p| forward(p, &x));

        let (vocab, d, length) = (4, input, rows);
        let tokens: Vec<u32> = (0..length).map(|_| s.below(vocab as u32)).collect();
        let tables = draw(s, (vocab + length) * d, 1.0);
        let upstream = draw(s, tokens.len() * d, 1.0);
        let embed = |tables: &[f64]| {
            let (table, positions) = tables.split_at(vocab * d);
            let mut x = vec![[0.0; LANES]; length.div_ceil(LANES) * d];
            embedding::forward(table, Some(positions), &tokens, d, &mut x);
            dot(&from_panels(&x, d, length), &upstream)
        };
        let mut gradient = vec![0.0; tables.len()];
        let (dtable, dpositions) = gradient.split_at_mut(vocab * d);
        embedding::backward(&tokens, d, &to_gradient(&upstream, d), dtable, Some(dpositions));
        check(&mut report, "embedding", "tables", &tables, &gradient, embed);

        let classes = 1 + s.below(40) as usize;
        let logits = draw(s, rows * classes, 3.0);
        let targets: Vec<u32> = (0..rows).map(|_| s.below(classes as u32)).collect();
        let weights: Vec<f32> = (0..rows).map(|_| s.below(3) as f32).collect();
        let targets = targets.chunks(LANES).zip(weights.chunks(LANES));
        let score = |logits: &[f64], factor: f64| {
            let mut rows_out = to_panels(logits, classes);
            let mut loss = 0.0;
            for (z, (classes, weights)) in rows_out.chunks_exact_mut(classes).zip(targets.clone()) {
                let targets = cross_entropy::Targets { classes, weights: Some(weights) };
                loss += cross_entropy::loss_and_gradient(z, targets, factor).loss;
            }
            (loss, from_panels(&rows_out, classes, rows))
        };
        let gradient = score(&logits, 0.25).1;
        check(&mut report, "loss", "logits", &logits, &gradient, |z| 0.25 * score(z, 1.0).0);
    }
    report.finish("dense, embedding, loss");
}

/// Whole models in random directions, every switch drawn: masks, dropout, L2, read-outs.
#[test]
fn whole_models() {
    let mut report = Report::default();
    for seed in 0..150 {
        let setup = Setup::random(seed, false);
        let s = &mut stream(400 + seed);
        let keep = setup.keep();
        let keep = setup.dropout.is_some().then_some(&keep as reference::Keep);
        let l2 = if s.coin() { 0.01 } else { 0.0 };
        let evaluate = |parameters: &[f64]| {
            reference::evaluate(&setup.architecture, parameters, &setup.batch, l2, keep)
        };
        let loss = |parameters: &[f64]| {
            let evaluation = evaluate(parameters);
            evaluation.task_loss + evaluation.l2_loss
        };
        let gradient = evaluate(&setup.parameters).gradient;
        let norm = dot(&gradient, &gradient).sqrt();
        for _ in 0..6 {
            let direction = draw(s, gradient.len(), 1.0);
            let along = |t: f64| {
                let moved = setup.parameters.iter().zip(&direction).map(|(p, d)| p + t * d);
                loss(&moved.collect::<Vec<_>>())
            };
            // A smaller step than for kernels: a LayerNorm of two features is almost a sign.
            let step = 1e-7;
            let expected = (along(step) - along(-step)) / (2.0 * step);
            let scale = norm.max(1e-2);
            let error = support::error_at_scale(&[dot(&gradient, &direction)], &[expected], scale);
            report.note("directions", &setup.name(), error, 1e-5);
        }
    }
    report.finish("whole models");
}

/// What reaches the tokens' embeddings, without a read-out: along random directions in the
/// embedding table.
#[test]
fn tokens() {
    let mut report = Report::default();
    for seed in 0..100 {
        let mut setup = Setup::random(seed, false);
        setup.batch.mask = None;
        let s = &mut stream(700 + seed);
        let (architecture, batch) = (&setup.architecture, &setup.batch);
        let upstream = draw(s, batch.tokens.len() * architecture.dim, 1.0);
        let forward =
            |parameters: &[f64]| reference::forward(architecture, parameters, batch, None);
        let trace = forward(&setup.parameters);
        let gradient = reference::token_gradient(
            architecture,
            &setup.parameters,
            batch,
            &trace,
            upstream.clone(),
        );
        let table = architecture.parameter("embedding.weight").expect("an embedding").range();
        for _ in 0..3 {
            let direction = draw(s, table.len(), 1.0);
            let along = |t: f64| {
                let mut moved = setup.parameters.clone();
                let values = moved[table.clone()].iter_mut();
                values.zip(&direction).for_each(|(p, d)| *p += t * d);
                dot(&forward(&moved).layers.last().expect("a layer").out, &upstream)
            };
            let step = 1e-7;
            let expected = (along(step) - along(-step)) / (2.0 * step);
            let rows = batch.tokens.iter().map(|&token| token as usize * architecture.dim);
            let of_tokens: Vec<f64> =
                rows.flat_map(|at| direction[at..at + architecture.dim].to_vec()).collect();
            let actual = dot(&gradient, &of_tokens);
            let scale = dot(&gradient, &gradient).sqrt().max(1e-2);
            let error = support::error_at_scale(&[actual], &[expected], scale);
            report.note("tokens", &setup.name(), error, 1e-5);
        }
    }
    report.finish("tokens");
}
