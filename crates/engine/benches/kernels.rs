//! Each kernel by itself, on operands that fit a level-2 cache: `cargo bench -p nap-engine`.
//!
//! Products are measured in operations per second (criterion's "elements"), pointwise kernels in
//! values per second.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nap_engine::arch::{
    Matrix16, Out, Panels16, Start, Strips, Term, Transposed, matmul, matmul_nt, matmul_tn,
    matmul16,
};
use nap_engine::kernels::aggregate::linear::{self, Linear};
use nap_engine::kernels::aggregate::{
    Head, HeadGradient, Row, attention_rules, poolings, quadratic,
};
use nap_engine::kernels::{cross_entropy, norm_gelu};
use nap_engine::optim::Adam;
use nap_engine::panel::{LANES, Lanes, Panels, PanelsMut, panels};

const TOKENS: usize = 128;

/// Panels of `TOKENS` tokens with values between -1 and 1.
fn panel_values(rows: usize) -> Vec<Lanes<f32>> {
    let value = |i: usize| (i.wrapping_mul(2_654_435_761) >> 8) as u16 as f32 / 32_768.0 - 1.0;
    let row = |i: usize| std::array::from_fn(|lane| value(i * LANES + lane));
    (0..panels(TOKENS) * rows).map(row).collect()
}

fn values(n: usize) -> Vec<f32> {
    panel_values(n.div_ceil(TOKENS)).as_flattened()[..n].to_vec()
}

fn products(c: &mut Criterion) {
    for (rows, inner) in [(8, 8), (32, 8), (32, 32), (128, 32), (128, 128), (512, 128), (128, 512)]
    {
        let flops = 2 * rows * inner * TOKENS;
        let (x, dy) = (panel_values(inner), panel_values(rows));
        let mut y = panel_values(rows);
        let (w, bias) = (values(rows * inner), values(rows));
        let mut group = c.benchmark_group("products");
        group.throughput(Throughput::Elements(flops as u64));
        let shape = format!("{rows}x{inner}");

        let mut strips = Strips::new(rows, inner);
        strips.pack(0..rows, 0..inner, &w, inner, 1);
        group.bench_function(BenchmarkId::new("matmul", &shape), |b| {
            b.iter(|| {
                let y = PanelsMut::new(&mut y, rows);
                matmul(&strips, Panels::new(&x, inner), y, Start::Bias(&bias));
            });
        });
        let mut matrix = Matrix16::new(rows, inner);
        matrix.pack(Term::High, 0..rows, 0..inner, &w, inner, 1);
        let mut operand = Panels16::new(inner, panels(TOKENS));
        group.bench_function(BenchmarkId::new("matmul16, rounding included", &shape), |b| {
            b.iter(|| {
                let x = operand.set(Term::High, Panels::new(&x, inner));
                matmul16(&matrix, x, PanelsMut::new(&mut y, rows), Start::Bias(&bias));
            });
        });
        let mut gradient = values(rows * inner);
        let mut transposed = Transposed::new(rows, panels(TOKENS));
        group.bench_function(BenchmarkId::new("matmul_nt, transposition included", &shape), |b| {
            b.iter(|| {
                let dy = transposed.set(Panels::new(&dy, rows));
                let out = Out::matrix(&mut gradient, inner, rows, rows);
                matmul_nt(Panels::new(&x, inner), dy, out, true);
            });
        });
        group.finish();
    }
    let (k, q) = (panel_values(32), panel_values(32));
    let mut logits = vec![0.0; TOKENS * TOKENS];
    let mut group = c.benchmark_group("products");
    group.throughput(Throughput::Elements(2 * (TOKENS * TOKENS * 32) as u64));
    group.bench_function("matmul_tn/128x128x32", |b| {
        b.iter(|| {
            let out = Out::matrix(&mut logits, TOKENS, TOKENS, TOKENS);
            matmul_tn(Panels::new(&k, 32), Panels::new(&q, 32), out, false);
        });
    });
}

fn pointwise(c: &mut Criterion) {
    for d in [8, 128, 512] {
        let mut group = c.benchmark_group("pointwise");
        group.throughput(Throughput::Elements((TOKENS * d) as u64));
        let (x, dy, mut y) = (panel_values(d), panel_values(d), panel_values(d));
        let norm = values(2 * d);
        let (mut gradient, mut moments) =
            (vec![0.0; 2 * d], vec![[[0.0; LANES]; 2]; panels(TOKENS)]);
        group.bench_function(BenchmarkId::new("norm_gelu", d), |b| {
            b.iter(|| norm_gelu::norm_gelu(&norm, &x, &mut y, &mut moments));
        });
        group.bench_function(BenchmarkId::new("norm_gelu_backward", d), |b| {
            b.iter(|| {
                norm_gelu::norm_gelu_backward(&norm, &x, &moments, &dy, &mut y, &mut gradient);
            });
        });
        group.bench_function(BenchmarkId::new("plain_gelu", d), |b| {
            b.iter(|| norm_gelu::plain_gelu(&x, &mut y));
        });
        let keep = vec![[1.0; LANES]; panels(TOKENS)];
        let mut pooled = vec![0.0; d];
        for pooling in poolings::<f32>() {
            group.bench_function(BenchmarkId::new(pooling.info().name, d), |b| {
                b.iter(|| pooling.pool(&x, &keep, &mut pooled));
            });
        }
        group.finish();
    }
    let mut group = c.benchmark_group("pointwise");
    let (mut logits, targets) = (panel_values(LANES), [3; LANES]);
    group.throughput(Throughput::Elements(logits.as_flattened().len() as u64));
    group.bench_function("cross_entropy, 128 classes", |b| {
        b.iter(|| cross_entropy::loss_and_gradient(&mut logits, targets[..].into(), 1.0));
    });
    let n = 1 << 16;
    let (mut adam, mut weights, gradient) = (Adam::new(n), values(n), values(n));
    group.throughput(Throughput::Elements(n as u64));
    group.bench_function("adam", |b| b.iter(|| adam.update(&mut weights, &gradient, 1e-4, 9)));
    group.finish();
}

/// One head, both ways: the rules by their n x n weights, NAP and NON also in linear time.
fn attention(c: &mut Criterion) {
    for width in [2, 32] {
        let x = panel_values(3 * width);
        let (dout, mut out) = (panel_values(width), panel_values(width));
        let mut gradient = panel_values(3 * width);
        let x = Panels::new(&x, 3 * width);
        let keep = vec![[1.0; LANES]; panels(TOKENS)];
        let row = Row { mask: None, gain: 1.0, bias: 0.0, epsilon: 1e-3, centre: false };
        let [q, k, v] = [0, 1, 2].map(|i| x.rows(i * width..(i + 1) * width));
        let head = Head { q, k, v, keep: &keep, length: TOKENS, scale: 1.0, row };
        let mut group = c.benchmark_group(format!("head of width {width}, forward and back"));
        group.throughput(Throughput::Elements(TOKENS as u64));
        let rows = [0, 1, 2].map(|i| i * width..(i + 1) * width);
        let mut quadratic = quadratic::Scratch::new(TOKENS);
        for rule in attention_rules::<f32>() {
            group.bench_function(rule.info().name, |b| {
                b.iter(|| {
                    let out = PanelsMut::new(&mut out, width);
                    quadratic::forward(rule, &head, None, out, &mut quadratic);
                    let panels = PanelsMut::new(&mut gradient, 3 * width);
                    let gradient = HeadGradient { panels, rows: rows.clone() };
                    let dout = Panels::new(&dout, width);
                    quadratic::backward(rule, &head, None, dout, gradient, &mut quadratic)
                });
            });
        }
        let mut scratch = linear::Scratch::new(TOKENS, width);
        for form in [Linear::Standardised, Linear::Plain] {
            group.bench_function(format!("linear form, {form:?}"), |b| {
                b.iter(|| {
                    form.forward(&head, PanelsMut::new(&mut out, width), &mut scratch);
                    let panels = PanelsMut::new(&mut gradient, 3 * width);
                    let gradient = HeadGradient { panels, rows: rows.clone() };
                    form.backward(&head, Panels::new(&dout, width), gradient, &mut scratch)
                });
            });
        }
        group.finish();
    }
}

criterion_group!(kernels, products, pointwise, attention);
criterion_main!(kernels);
