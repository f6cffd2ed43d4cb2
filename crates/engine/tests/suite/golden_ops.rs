//! The golden operations: the naive forms and the engine's kernels equal the authors' program.

use crate::support::panels::{by_tiles, from_panels, to_gradient, to_panels};
use crate::support::setup::stream;
use crate::support::{self, GoldenFile, Report, golden_file};
use nap_engine::config::{Auto, CasesReadout, Positions, RunConfig};
use nap_engine::kernels::aggregate::{AttentionRule, Row, attention_rules};
use nap_engine::kernels::{cross_entropy, norm_gelu};
use nap_engine::model::architecture::Architecture;
use nap_engine::model::family;
use nap_engine::model::positions::sinusoids;
use nap_engine::optim::{Adam, clip, learning_rate};
use nap_engine::panel::{LANES, Lanes, panels};
use nap_engine::real::Real;
use nap_engine::reference::ops;
use nap_engine::task::argmax_first;

const F64: f64 = 1e-9;
/// Pointwise values, in units of the largest; a few rounding errors.
const F32: f64 = 2e-6;
/// Gradients through a deviation: rounding divided by epsilon.
const F32_GRADIENT: f64 = 2e-4;

fn of<T: Real>(x: &[f64]) -> Vec<T> {
    x.iter().map(|&x| T::of(x)).collect()
}

fn wide<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.f64()).collect()
}

/// The values of `f64/key`, or of `key`.
fn values<'a>(file: &'a GoldenFile, key: &str) -> &'a [f64] {
    let wide = file.get(&format!("f64/{key}"));
    &wide.unwrap_or_else(|| file.tensor(key)).data
}

/// The names between a group and the last part of its keys.
fn cases(file: &GoldenFile, group: &str) -> Vec<String> {
    let mut names: Vec<_> = file
        .tensors
        .keys()
        .map(|key| key.strip_prefix("f32/").or(key.strip_prefix("f64/")).unwrap_or(key))
        .filter_map(|key| Some(key.strip_prefix(&format!("{group}/"))?.rsplit_once('/')?.0))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    assert!(!names.is_empty(), "no cases of {group}");
    names
}

#[test]
fn golden_ops() {
    let file = &golden_file("ops");
    let report = &mut Report::default();
    for group in file.groups() {
        match group {
            "gelu" => gelu(report, file),
            "layer_norm" => layer_norm(report, file),
            "normalize_masked" => normalize(report, file),
            "rescale" => rescale(report, file),
            "masked_softmax" => masked_softmax(report, file),
            "sinusoid" => sinusoid(report, file),
            "loss" => loss(report, file),
            "metric" => metric(report, file),
            "adam" => adam(report, file),
            "adam_sparse" => adam_sparse(report, file),
            "clip" => clipping(report, file),
            "ff_rule" => ff_rule(file),
            "schedule" => schedule(report, file),
            "truncated_normal" => truncated_normal(report, file),
            _ => panic!("unknown group {group}"),
        }
    }
    std::mem::take(report).finish("operations");
}

fn gelu(report: &mut Report, file: &GoldenFile) {
    let [x, y, slope] = ["x", "y", "dy_dx"].map(|key| values(file, &format!("gelu/{key}")));
    let naive: Vec<_> = x.iter().map(|&x| ops::gelu(x)).collect();
    report.compare("gelu", "naive", &naive, y, F64);
    let naive: Vec<_> = x.iter().map(|&x| ops::gelu_derivative(x)).collect();
    report.compare("gelu", "naive slope", &naive, slope, F64);
    fn fast<T: Real>(report: &mut Report, [x, y, slope]: [&[f64]; 3], tolerance: f64) {
        let (x, one) = (of::<T>(x), vec![T::one(); x.len()]);
        // One token whose features are the values.
        let (panels, d) = (to_panels(&x, x.len()), x.len());
        let (mut y_panels, mut dx_panels) = (panels.clone(), panels.clone());
        norm_gelu::plain_gelu(&panels, &mut y_panels);
        norm_gelu::plain_gelu_backward(&panels, &to_panels(&one, d), &mut dx_panels);
        let (out, dx) = (from_panels(&y_panels, d, 1), from_panels(&dx_panels, d, 1));
        report.compare("gelu", "kernel", &wide(&out), y, tolerance);
        report.compare("gelu", "kernel slope", &wide(&dx), slope, tolerance);
    }
    fast::<f64>(report, [x, y, slope], F64);
    fast::<f32>(report, [x, y, slope], F32);
}

fn layer_norm(report: &mut Report, file: &GoldenFile) {
    for case in cases(file, "layer_norm") {
        let keys = ["x", "gamma", "beta", "upstream", "y", "dx", "dgamma", "dbeta"];
        let tensors = keys.map(|key| values(file, &format!("layer_norm/{case}/{key}")));
        let [x, gamma, beta, upstream, y, dx, dgamma, dbeta] = tensors;
        let out = ops::layer_norm(x, gamma, beta, 1e-3);
        report.compare("layer norm", &case, &out, y, F64);
        let gradients = ops::layer_norm_backward(x, gamma, upstream, 1e-3);
        let pairs = [(&gradients.x, dx), (&gradients.weight, dgamma), (&gradients.bias, dbeta)];
        for (actual, expected) in pairs {
            report.compare("layer norm", &case, actual, expected, F64);
        }
        fast_norm::<f64>(report, &case, tensors, [F64, F64]);
        // A constant row's deviation is all epsilon, which f32 amplifies rounding by.
        fast_norm::<f32>(report, &case, tensors, [F32, F32_GRADIENT]);
    }
}

fn fast_norm<T: Real>(report: &mut Report, case: &str, t: [&[f64]; 8], [value, slope]: [f64; 2]) {
    let [x, gamma, beta, upstream, y, dx, dgamma, dbeta] = t;
    let (parameters, x) = (of::<T>(&[gamma, beta].concat()), of::<T>(x));
    let (d, n) = (gamma.len(), x.len() / gamma.len());
    let (x, upstream) = (to_panels(&x, d), to_gradient(&of::<T>(upstream), d));
    let mut out = x.clone();
    let mut moments = vec![[[T::zero(); LANES]; 2]; panels(n)];
    norm_gelu::norm(&parameters, &x, &mut out, &mut moments);
    report.compare("layer norm kernel", case, &wide(&from_panels(&out, d, n)), y, value);
    let (mut dx_out, mut gradient) = (out.clone(), vec![T::zero(); parameters.len()]);
    norm_gelu::norm_backward(&parameters, &x, &moments, &upstream, &mut dx_out, &mut gradient);
    let dx_out = from_panels(&dx_out, d, n);
    // Where everything that reaches x is 0 in theory (one feature), the scale is that of dy.
    let scale = |x: &[f64]| x.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
    let (dgamma_out, dbeta_out) = gradient.split_at(gamma.len());
    for (actual, expected) in [(&dx_out[..], dx), (dgamma_out, dgamma), (dbeta_out, dbeta)] {
        let error = support::error_at_scale(&wide(actual), expected, scale(expected));
        report.note("layer norm kernel", case, error, slope);
    }
}

fn normalize(report: &mut Report, file: &GoldenFile) {
    for case in cases(file, "normalize_masked") {
        let tensor = |key: &str| values(file, &format!("normalize_masked/{case}/{key}"));
        let has = |key: &str| file.get(&format!("normalize_masked/{case}/{key}")).is_some();
        let shape = &file.tensor(&format!("normalize_masked/{case}/x")).shape;
        let mask = has("mask").then(|| tensor("mask"));
        let case = NormalizeCase { name: &case, shape, mask };
        let (x, upstream) = (tensor("x"), tensor("upstream"));
        // The bare function: gain 1, bias 0. Its result for masked keys is multiplied by 0 in
        // the layer, so that only unmasked keys are compared; its gradient is that of a sum over
        // masked keys too, so that it is compared where there are none.
        let bare = [tensor("y"), tensor("dx")];
        case.check::<f64>(report, "normalise", [x, upstream], None, bare, None, F64);
        if has("gain") {
            // The files' `layer_y` was computed at the layer's initial gain 1 and bias 0, though
            // other values are stored beside it: it equals the bare function's `y`. Case files
            // cover gains and biases that were trained.
            let heads = tensor("gain").len();
            let (ones, zeros) = (vec![1.0; heads], vec![0.0; heads]);
            let parameters = Some(match tensor("layer_y") == tensor("y") {
                true => [&ones[..], &zeros[..]],
                false => [tensor("gain"), tensor("bias")],
            });
            let expected = [tensor("layer_y"), tensor("layer_dx")];
            let gradients = Some([tensor("dgain"), tensor("dbias")]);
            let layer = [x, upstream];
            case.check::<f64>(report, "NAP", layer, parameters, expected, gradients, F64);
            // Constant rows amplify f32 rounding a thousandfold (INDEX.md, section 3).
            if ["ones_mask", "partial_mask", "tiny_values"].contains(&case.name) {
                let f32 = F32_GRADIENT;
                case.check::<f32>(report, "NAP f32", layer, parameters, expected, gradients, f32);
            }
        }
    }
}

struct NormalizeCase<'a> {
    name: &'a str,
    shape: &'a [usize],
    mask: Option<&'a [f64]>,
}

impl NormalizeCase<'_> {
    /// `parameters`: gain and bias per head; without them the bare function is compared.
    fn check<T: Real>(
        &self,
        report: &mut Report,
        kind: &'static str,
        [x, upstream]: [&[f64]; 2],
        parameters: Option<[&[f64]; 2]>,
        [y, dx]: [&[f64]; 2],
        gradients: Option<[&[f64]; 2]>,
        tolerance: f64,
    ) {
        let rule = rule::<T>("normalized");
        let &[batch, heads, queries, n] = self.shape else { panic!("{}", self.name) };
        let (x, dw) = (of::<T>(x), of::<T>(upstream));
        let zeros = || vec![T::zero(); x.len()];
        let (mut w, mut dz, mut tile_w, mut tile_dz) = (zeros(), zeros(), zeros(), zeros());
        let mut parameter_gradients = vec![T::zero(); 2 * heads];
        let mut tile_gradients = parameter_gradients.clone();
        let mut kept = Vec::new();
        for b in 0..batch {
            let mask: Option<Vec<bool>> =
                self.mask.map(|mask| mask[b * n..(b + 1) * n].iter().map(|&m| m == 1.0).collect());
            for h in 0..heads {
                let of_head = |which: usize, otherwise: f64| {
                    T::of(parameters.map_or(otherwise, |p| p[which][h]))
                };
                let row = Row {
                    mask: mask.as_deref(),
                    gain: of_head(0, 1.0),
                    bias: of_head(1, 0.0),
                    epsilon: T::of(1e-3),
                    centre: false,
                };
                let tile = (b * heads + h) * queries * n..(b * heads + h + 1) * queries * n;
                for start in tile.clone().step_by(n) {
                    let at = start..start + n;
                    rule.weights(&row, &x[at.clone()], &mut w[at.clone()]);
                    let (dgain, dbias) =
                        rule.backward(&row, &x[at.clone()], &dw[at.clone()], &mut dz[at]);
                    parameter_gradients[h] += dgain;
                    parameter_gradients[heads + h] += dbias;
                    kept.extend((0..n).map(|j| row.keeps(j)));
                }
                let (z, dw) = (&x[tile.clone()], &dw[tile.clone()]);
                let [w, dz] = by_tiles([z, dw], n, |[z, dw], [w_out, dz_out], _| {
                    rule.weights_tile(&row, z, w_out);
                    dz_out.copy_from_slice(dw);
                    let sums = rule.backward_tile(&row, z, w_out, dz_out);
                    let sum = |lanes: Lanes<T>| lanes.into_iter().sum::<T>();
                    tile_gradients[h] += sum(sums[0]);
                    tile_gradients[heads + h] += sum(sums[1]);
                });
                tile_w[tile.clone()].copy_from_slice(&w);
                tile_dz[tile].copy_from_slice(&dz);
            }
        }
        // Of the same size as the naive ones, whatever these are compared with below.
        let largest = parameter_gradients.iter().fold(1e-3f64, |m, x| m.max(x.f64().abs()));
        let gradients_of_tiles = wide(&tile_gradients);
        let error =
            support::error_at_scale(&gradients_of_tiles, &wide(&parameter_gradients), largest);
        report.note(kind, self.name, error, tolerance);
        if self.name == "all_masked" {
            // 0/0 in the authors' program for the sequence that has no key left; here it gets
            // weights and gradients of 0.
            for (i, kept_here) in kept.chunks_exact(n).enumerate() {
                if kept_here.iter().all(|kept| !kept) {
                    let at = i * n..(i + 1) * n;
                    assert!(y[at.clone()].iter().all(|y| y.is_nan()));
                    assert!(w[at.clone()].iter().chain(&dz[at]).all(|x| *x == T::zero()));
                }
            }
            return;
        }
        let bare = parameters.is_none();
        let masked = kept.iter().any(|kept| !kept);
        let compared = |x: &[f64]| -> Vec<f64> {
            let pairs = x.iter().zip(&kept).filter(|(_, kept)| !bare || **kept);
            pairs.map(|(x, _)| *x).collect()
        };
        for weights in [&w, &tile_w] {
            report.compare(kind, self.name, &compared(&wide(weights)), &compared(y), tolerance);
        }
        if !(bare && masked) {
            for gradient in [&dz, &tile_dz] {
                report.compare(kind, self.name, &wide(gradient), dx, tolerance);
            }
        }
        if let Some([dgain, dbias]) = gradients {
            let (actual_gain, actual_bias) = parameter_gradients.split_at(heads);
            for (actual, expected) in [(actual_gain, dgain), (actual_bias, dbias)] {
                let largest = expected.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
                let error = support::error_at_scale(&wide(actual), expected, largest);
                report.note(kind, self.name, error, tolerance);
            }
        }
    }
}

fn rule<T: Real>(name: &str) -> &'static dyn AttentionRule<T> {
    attention_rules::<T>().into_iter().find(|rule| rule.info().name == name).expect("a rule")
}

fn rescale(report: &mut Report, file: &GoldenFile) {
    // NON's aggregate divided by the root of its length.
    let shape = &file.tensor("rescale/x").shape;
    let factor = 1.0 / (shape[1] as f64).sqrt();
    let out: Vec<_> = values(file, "rescale/x").iter().map(|x| x * factor).collect();
    report.compare("rescale", "", &out, values(file, "rescale/y"), F64);
}

fn masked_softmax(report: &mut Report, file: &GoldenFile) {
    let x = file.tensor("masked_softmax/x");
    let (mask, y) = (values(file, "masked_softmax/mask"), values(file, "masked_softmax/y"));
    let &[batch, heads, queries, n] = &x.shape[..] else { panic!("masked_softmax") };
    fn run<T: Real>(x: &[f64], mask: &[f64], n: usize, rows: usize) -> Vec<f64> {
        let (x, mut w) = (of::<T>(x), vec![T::zero(); x.len()]);
        for (b, mask) in mask.chunks_exact(n).enumerate() {
            let mask: Vec<_> = mask.iter().map(|&m| m == 1.0).collect();
            let row = Row {
                mask: Some(&mask),
                gain: T::one(),
                bias: T::zero(),
                epsilon: T::zero(),
                centre: false,
            };
            let at = b * rows * n..(b + 1) * rows * n;
            let [weights] = by_tiles([&x[at.clone()]], n, |[z], [w], _| {
                rule::<T>("softmax").weights_tile(&row, z, w);
            });
            w[at].copy_from_slice(&weights);
        }
        wide(&w)
    }
    assert_eq!(mask.len(), batch * n);
    let rows = heads * queries;
    report.compare("softmax", "f64", &run::<f64>(&x.data, mask, n, rows), y, F64);
    report.compare("softmax", "f32", &run::<f32>(&x.data, mask, n, rows), y, F32);
}

fn sinusoid(report: &mut Report, file: &GoldenFile) {
    for (name, table) in &file.tensors {
        if name.starts_with("sinusoid/") {
            let ours = wide(&sinusoids(table.shape[0], table.shape[1]));
            // Another library's f32 sine: the last place may differ.
            report.compare("sinusoids", name, &ours, &table.data, f64::from(f32::EPSILON));
        }
    }
}

/// Scores `logits: [rows, classes]`.
fn scored<T: Real>(logits: &[f64], classes: usize, targets: &[u32]) -> cross_entropy::Score {
    let panels = to_panels(&of::<T>(logits), classes);
    let mut total = cross_entropy::Score::default();
    for (logits, targets) in panels.chunks_exact(classes).zip(targets.chunks(LANES)) {
        total += cross_entropy::answers(logits, targets.into(), &mut vec![0; targets.len()]);
    }
    total
}

fn loss(report: &mut Report, file: &GoldenFile) {
    for case in cases(file, "loss") {
        let logits = file.tensor(&format!("loss/{case}/logits"));
        let labels = file.tensor(&format!("loss/{case}/labels"));
        let classes = logits.width();
        let targets: Vec<u32> = if labels.data.len() == logits.data.len() {
            let rows = labels.data.chunks_exact(classes);
            rows.map(|row| row.iter().position(|&x| x == 1.0).expect("one-hot") as u32).collect()
        } else {
            labels.indices()
        };
        let expected = values(file, &format!("loss/{case}/value"));
        let naive = ops::cross_entropy(&logits.data, &targets, None);
        report.compare("loss", &case, &[naive], expected, F64);
        let mean = |score: cross_entropy::Score| score.loss / score.rows as f64;
        let score = scored::<f64>(&logits.data, classes, &targets);
        report.compare("loss", &case, &[mean(score)], expected, F64);
        let score = scored::<f32>(&logits.data, classes, &targets);
        report.compare("loss f32", &case, &[mean(score)], expected, F32);
    }
}

fn metric(report: &mut Report, file: &GoldenFile) {
    let (logits, labels) = (file.tensor("metric/logits"), file.tensor("metric/labels"));
    let classes = logits.width();
    let rows = logits.data.chunks_exact(classes).zip(labels.data.chunks_exact(classes));
    let right: Vec<_> =
        rows.map(|(z, label)| f64::from(u8::from(label[argmax_first(z)] == 1.0))).collect();
    report.compare("metric", "", &right, values(file, "metric/categorical_accuracy"), 0.0);
}

fn adam(report: &mut Report, file: &GoldenFile) {
    fn run<T: Real>(report: &mut Report, file: &GoldenFile, kind: &'static str, tolerance: f64) {
        let mut weights = of::<T>(values(file, "adam/w0"));
        let n = weights.len();
        let mut adam = Adam::new(n);
        for (step, gradient) in values(file, "adam/gradients").chunks_exact(n).enumerate() {
            adam.update(&mut weights, &of::<T>(gradient), 0.01, step as u64);
            for (key, ours) in [("w", &weights), ("m", &adam.first), ("v", &adam.second)] {
                let expected = &values(file, &format!("adam/{key}"))[step * n..(step + 1) * n];
                report.compare(kind, key, &wide(ours), expected, tolerance);
            }
        }
    }
    run::<f64>(report, file, "adam", F64);
    run::<f32>(report, file, "adam f32", F32);
}

/// A model whose token table is `[6, 3]`, to clip by the embedding's rule.
fn small_model() -> Architecture {
    let mut run = RunConfig::paper();
    family::find("sum").expect("sum").apply(&mut run);
    run.model.dim = 3;
    run.model.feed_forward = Auto::Value(2);
    run.model.layers = 1;
    run.task.readout = CasesReadout::PerToken;
    let readout = run.task.readout();
    Architecture::from_parts(&run.model, Positions::None, 6, 6, 4, readout).expect("a model")
}

fn adam_sparse(report: &mut Report, file: &GoldenFile) {
    let model = small_model();
    let table = model.parameter("embedding.weight").expect("embedding").range();
    assert_eq!(table, 0..18);
    let ids = file.tensor("adam_sparse/ids").indices();
    let slices = values(file, "adam_sparse/slice_values");
    for (key, clipped, dense) in
        [("w_plain", false, false), ("w_clip", true, false), ("w_clip_if_dense", true, true)]
    {
        let expected = values(file, &format!("adam_sparse/{key}"));
        let mut weights = values(file, "adam_sparse/w0").to_vec();
        let mut adam = Adam::new(weights.len());
        for (step, (ids, rows)) in ids.chunks_exact(4).zip(slices.chunks_exact(12)).enumerate() {
            let mut gradient = vec![0.0; model.parameter_count()];
            for (&id, row) in ids.iter().zip(rows.chunks_exact(3)) {
                for c in 0..3 {
                    gradient[id as usize * 3 + c] += row[c];
                }
            }
            let square = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
            if clipped {
                let norm = if dense { square(&gradient) } else { square(rows) };
                clip(&model, &mut gradient, norm);
            }
            adam.update(&mut weights, &gradient[table.clone()], 0.01, step as u64);
            let expected = &expected[step * 18..(step + 1) * 18];
            report.compare("adam on token rows", key, &weights, expected, F64);
        }
    }
}

fn clipping(report: &mut Report, file: &GoldenFile) {
    let model = small_model();
    let weight = model.parameter("layer.0.ff.in.weight").expect("a weight").range();
    for case in cases(file, "clip") {
        let x = values(file, &format!("clip/{case}/x"));
        let mut gradient = vec![0.0; model.parameter_count()];
        // Any parameter but the embedding with room for the values.
        let at = model
            .parameters
            .iter()
            .skip(1)
            .find(|p| p.len() >= x.len())
            .map_or(weight.start, |p| p.offset);
        gradient[at..at + x.len()].copy_from_slice(x);
        clip(&model, &mut gradient, 0.0);
        let expected = values(file, &format!("clip/{case}/y"));
        report.compare("clip", &case, &gradient[at..at + x.len()], expected, F64);
    }
}

fn ff_rule(file: &GoldenFile) {
    let keys = ["d", "hidden_attention", "hidden_sum_max"];
    let [d, attention, pooling] = keys.map(|key| file.tensor(&format!("ff_rule/{key}")).indices());
    for i in 0..d.len() {
        for (name, expected) in [("nap", attention[i]), ("sum", pooling[i]), ("max", pooling[i])] {
            let mut run = RunConfig::paper();
            family::find(name).expect("a model").apply(&mut run);
            (run.model.dim, run.model.heads) = (d[i] as usize, 1);
            let model = Architecture::new(&run.model, &run.task).expect("a model");
            assert_eq!(model.feed_forward, expected as usize, "{name} d {}", d[i]);
        }
    }
}

fn schedule(report: &mut Report, file: &GoldenFile) {
    for case in cases(file, "schedule") {
        // As in lr0.0081_total25_warmup.
        let mut parts = case.split('_');
        let mut part = |prefix: &str| {
            let part = parts.next().and_then(|part| part.strip_prefix(prefix));
            part.unwrap_or_else(|| panic!("schedule {case}")).to_owned()
        };
        let base: f64 = part("lr").parse().expect("a rate");
        let total: u64 = part("total").parse().expect("a number");
        let warmup = match part("").as_str() {
            "plain" => false,
            "warmup" => true,
            kind => panic!("schedule {kind}"),
        };
        let steps = file.tensor(&format!("schedule/{case}/step")).indices();
        let ours: Vec<_> = steps
            .iter()
            .map(|&step| f64::from(learning_rate(base, u64::from(step), total, warmup)))
            .collect();
        // Computed in f32 there.
        let expected = values(file, &format!("schedule/{case}/lr"));
        report.compare("schedule", &case, &ours, expected, 2.0 * f64::from(f32::EPSILON));
    }
}

fn truncated_normal(report: &mut Report, file: &GoldenFile) {
    let s = &mut stream(0);
    let mut drawn: Vec<f64> = (0..200_000).map(|_| s.truncated_normal(1.0)).collect();
    drawn.sort_by(f64::total_cmp);
    let n = drawn.len() as f64;
    let deviation = (drawn.iter().map(|x| x * x).sum::<f64>() / n).sqrt();
    let expected = values(file, "truncated_normal/std_over_stddev");
    // Five deviations of the estimates from 200,000 draws.
    report.compare("truncated normal", "deviation", &[deviation], expected, 6e-3);
    let most = drawn.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    assert!(most <= 2.0 && values(file, "truncated_normal/max_abs_over_stddev")[0] <= 2.0);
    let levels = values(file, "truncated_normal/quantile_levels");
    let ours: Vec<_> = levels.iter().map(|level| drawn[(level * n) as usize]).collect();
    let expected = values(file, "truncated_normal/quantiles_over_stddev");
    report.compare("truncated normal", "quantiles", &ours, expected, 0.015);
}
