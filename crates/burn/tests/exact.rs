//! In f64: the layer equals plain loops, its gradients equal finite differences, and its causal
//! forms equal each other.

mod common;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Bool, Device, FloatDType, Tensor, TensorData};
use common::{
    Naive, assert_close, error, gradient, numbers, parameters, pick, random, randomised, stream,
    with_parameters,
};
use nap_burn::{AttentionForm, NapInput, NapState, NormalizedAttention, NormalizedAttentionConfig};
use nap_engine::random::Stream;

const FORMS: [AttentionForm; 2] = [AttentionForm::Linear, AttentionForm::Quadratic];

/// A device whose floats are f64, with gradients.
fn device() -> Device {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| Device::flex().configure(FloatDType::F64).expect("a device that takes f64"));
    Device::flex().autodiff()
}

/// A random layer, every parameter and switch drawn.
fn layer(s: &mut Stream, heads: usize, width: usize) -> NormalizedAttention {
    let config = NormalizedAttentionConfig::new(heads * width, heads)
        .with_gain(s.below(4) > 0)
        .with_bias(s.below(4) > 0)
        .with_epsilon(pick(s, &[1e-3, 0.1]))
        .with_logit_scale(pick(s, &[1.0, 0.37]))
        .with_inner_norm(s.coin())
        .with_inner_gelu(s.coin())
        .with_key_bias(s.coin())
        .with_value_bias(s.coin())
        .with_query_bias(s.coin())
        .with_output_bias(s.coin());
    randomised(config.init(&device()), s)
}

fn with_form(mut layer: NormalizedAttention, form: AttentionForm) -> NormalizedAttention {
    layer.form = form;
    layer
}

fn mask<const D: usize>(masked: &[bool], shape: [usize; D]) -> Tensor<D, Bool> {
    Tensor::from_data(TensorData::new(masked.to_vec(), shape), &device())
}

#[test]
fn the_layer_equals_plain_loops() {
    for seed in 0..80 {
        let s = &mut stream(seed);
        let (heads, width) = (1 + s.below(3) as usize, 1 + s.below(5) as usize);
        let (batch, n1) = (1 + s.below(3) as usize, 1 + s.below(9) as usize);
        let n2 = 1 + s.below(20) as usize;
        let layer = layer(s, heads, width);
        let d = heads * width;
        let own = s.coin();
        let n1 = if own { n2 } else { n1 };
        let [query, key, value] = [n1, n2, n2].map(|n| random(s, [batch, n, d], &device()));
        let (key, value) = if own { (query.clone(), query.clone()) } else { (key, value) };

        // Now and then everything is masked.
        let (padded, hidden) = (s.coin(), s.coin());
        let share = pick(s, &[0.1, 0.3, 0.8]);
        // Of each sequence, or of all.
        let (pads, attns) = (pick(s, &[1, batch]), pick(s, &[1, batch]));
        let mut draw = |n: usize, on: bool| -> Vec<bool> {
            (0..n).map(|_| on && s.uniform() < share).collect()
        };
        let (pad, attn) = (draw(pads * n2, padded), draw(attns * n1 * n2, hidden));
        let mut input = match own {
            true => NapInput::self_attn(query.clone()),
            false => NapInput::new(query.clone(), key.clone(), value.clone()),
        };
        if padded {
            input = input.mask_pad(mask(&pad, [pads, n2]));
        }
        if hidden {
            input = input.mask_attn(mask(&attn, [attns, n1, n2]));
        }

        let naive = Naive::of(&layer);
        let (mut weights, mut context) = (Vec::new(), Vec::new());
        let [query, key, value] = [query, key, value].map(numbers);
        for b in 0..batch {
            let (one, all) = (b * n1 * d..(b + 1) * n1 * d, b * n2 * d..(b + 1) * n2 * d);
            let inputs = [&query[one], &key[all.clone()], &value[all]];
            let kept = |i: usize, j: usize| {
                !pad[b % pads * n2 + j] && !attn[(b % attns * n1 + i) * n2 + j]
            };
            let (w, x) = naive.forward(inputs, kept);
            weights.extend(w);
            context.extend(x);
        }
        for form in [FORMS[0], FORMS[1], AttentionForm::Auto] {
            let layer = with_form(layer.clone(), form);
            let plain = layer.forward(input.clone());
            assert!(plain.weights.is_none());
            let what = format!("seed {seed} {form:?}");
            assert_close(&what, &numbers(plain.context), &context, 1e-11);
            let asked = layer.forward(input.clone().with_weights());
            assert_close(&what, &numbers(asked.weights.expect("weights")), &weights, 1e-11);
            assert_close(&what, &numbers(asked.context), &context, 1e-11);
        }
    }
}

/// A way to run a layer.
type Run<'a> = &'a dyn Fn(&NormalizedAttention, Tensor<3>) -> Tensor<3>;

/// An input, and the result's product with fixed random factors.
fn loss(
    layer: &NormalizedAttention,
    x: &[f64],
    shape: [usize; 3],
    run: Run,
) -> (Tensor<3>, Tensor<1>) {
    let x = Tensor::<3>::from_data(TensorData::new(x.to_vec(), shape), &device()).require_grad();
    let out = run(layer, x.clone());
    let factors = random(&mut stream(99), out.dims(), &device());
    (x, (out * factors).sum())
}

/// Its gradients in the parameters and the input.
fn slopes(layer: &NormalizedAttention, x: &[f64], shape: [usize; 3], run: Run) -> Vec<f64> {
    let (x, loss) = loss(layer, x, shape, run);
    let gradients = loss.backward();
    let mut all = gradient(layer, &gradients);
    all.extend(numbers(x.grad(&gradients).expect("a gradient of the input")));
    all
}

/// The same, which must equal finite differences.
fn checked_slopes(
    what: &str,
    layer: &NormalizedAttention,
    x: &[f64],
    shape: [usize; 3],
    run: Run,
) -> Vec<f64> {
    let slopes = slopes(layer, x, shape, run);
    let mut values = parameters(layer);
    let count = values.len();
    values.extend(x);
    let mut at = |i: usize, by: f64| {
        let old = values[i];
        values[i] += by;
        let layer = with_parameters(layer.clone(), &values[..count]);
        let (_, loss) = loss(&layer, &values[count..], shape, run);
        values[i] = old;
        loss.into_scalar::<f64>()
    };
    let h = 1e-5;
    let expected: Vec<_> = (0..slopes.len()).map(|i| (at(i, h) - at(i, -h)) / (2.0 * h)).collect();
    assert_close(what, &slopes, &expected, 2e-7);
    slopes
}

#[test]
fn gradients_equal_finite_differences() {
    for (seed, masked) in [(0, false), (1, true), (2, false), (3, true), (4, true)] {
        let s = &mut stream(seed);
        let width = 1 + s.below(2) as usize;
        let layer = layer(s, 2, width);
        let shape = [2, 5, layer.d_model];
        let x = numbers(random(s, shape, &device()));
        let pad: Vec<bool> = (0..10).map(|i| masked && (i % 5 == 2 || i == 9)).collect();
        let run = |layer: &NormalizedAttention, x: Tensor<3>| {
            let input = NapInput::self_attn(x);
            let input = if masked { input.mask_pad(mask(&pad, [2, 5])) } else { input };
            layer.forward(input).context
        };
        let [linear, quadratic] = FORMS.map(|form| {
            let layer = with_form(layer.clone(), form);
            checked_slopes(&format!("seed {seed} {form:?}"), &layer, &x, shape, &run)
        });
        assert_close(&format!("seed {seed}"), &linear, &quadratic, 1e-11);
    }
}

#[test]
fn gradients_of_cross_attention_equal_finite_differences() {
    let s = &mut stream(6);
    let layer = layer(s, 2, 2);
    // 3 queries, 5 keys and 5 values, one after the other.
    let shape = [2, 13, 4];
    let x = numbers(random(s, shape, &device()));
    let pad: Vec<bool> = (0..10).map(|i| i == 3 || i == 5).collect();
    let attn: Vec<bool> = (0..30).map(|i| i % 4 == 1).collect();
    let input = |x: Tensor<3>| {
        let [query, key, value] =
            [(0, 3), (3, 5), (8, 5)].map(|(at, n)| x.clone().narrow(1, at, n));
        NapInput::new(query, key, value).mask_pad(mask(&pad, [2, 5]))
    };
    let run = |layer: &NormalizedAttention, x: Tensor<3>| layer.forward(input(x)).context;
    let [linear, quadratic] = FORMS.map(|form| {
        checked_slopes(&format!("{form:?}"), &with_form(layer.clone(), form), &x, shape, &run)
    });
    assert_close("forms", &linear, &quadratic, 1e-11);
    let run = |layer: &NormalizedAttention, x: Tensor<3>| {
        layer.forward(input(x).mask_attn(mask(&attn, [2, 3, 5]))).context
    };
    checked_slopes("both masks", &layer, &x, shape, &run);
}

#[test]
fn causal_gradients_equal_finite_differences() {
    let s = &mut stream(5);
    let (layer, shape) = (layer(s, 2, 2), [1, 7, 4]);
    let x = numbers(random(s, shape, &device()));
    for form in FORMS {
        let layer = with_form(layer.clone(), form);
        let run = |layer: &NormalizedAttention, x: Tensor<3>| layer.forward_causal(x);
        checked_slopes(&format!("causal {form:?}"), &layer, &x, shape, &run);
    }
    // Through the state.
    let run = |layer: &NormalizedAttention, x: Tensor<3>| in_steps(layer, x, &[3, 1, 1, 2]);
    checked_slopes("steps", &layer, &x, shape, &run);
    // From one chunk of 64 to the next.
    let (layer, shape) = (self::layer(s, 1, 2), [1, 67, 2]);
    let x = numbers(random(s, shape, &device()));
    let run = |layer: &NormalizedAttention, x: Tensor<3>| layer.forward_causal(x);
    checked_slopes("chunks", &layer, &x, shape, &run);
}

/// Causal attention of so many tokens at a time.
fn in_steps(layer: &NormalizedAttention, x: Tensor<3>, lengths: &[usize]) -> Tensor<3> {
    let (mut state, mut parts) = (NapState::default(), Vec::new());
    for &length in lengths {
        parts.push(layer.step(x.clone().narrow(1, state.tokens(), length), &mut state));
    }
    assert_eq!(state.tokens(), x.dims()[1]);
    Tensor::cat(parts, 1)
}

#[test]
fn causal_forms_equal_plain_loops_and_each_other() {
    for (seed, n) in [(0, 1), (1, 2), (2, 63), (3, 64), (4, 65), (5, 150), (6, 300)] {
        let s = &mut stream(seed);
        let (heads, width) = (1 + s.below(3) as usize, 1 + s.below(5) as usize);
        let layer = layer(s, heads, width);
        let (batch, d) = (2, layer.d_model);
        // Keys far from 0 would cancel in sums of raw products.
        let x = random(s, [batch, n, d], &device()) + 30.0;
        let naive = Naive::of(&layer);
        let flat = numbers(x.clone());
        let sequences = flat.chunks_exact(n * d);
        let expected: Vec<f64> =
            sequences.flat_map(|x| naive.forward([x; 3], |i, j| j <= i).1).collect();
        let what = format!("causal n {n}");
        for form in FORMS {
            let layer = with_form(layer.clone(), form);
            assert_close(&what, &numbers(layer.forward_causal(x.clone())), &expected, 1e-11);
        }
        let mut lengths = Vec::new();
        while lengths.iter().sum::<usize>() < n {
            let rest = n - lengths.iter().sum::<usize>();
            lengths.push(pick(s, &[1, 1, 2, 7, 100]).min(rest));
        }
        assert_close(&what, &numbers(in_steps(&layer, x.clone(), &lengths)), &expected, 1e-11);

        let run = |layer: &NormalizedAttention, x: Tensor<3>| layer.forward_causal(x);
        let shape = [batch, n, d];
        let [linear, quadratic] =
            FORMS.map(|form| slopes(&with_form(layer.clone(), form), &flat, shape, &run));
        assert_close(&what, &linear, &quadratic, 1e-11);
    }
}

#[test]
fn no_position_sees_what_follows_it() {
    let s = &mut stream(7);
    let (layer, n) = (layer(s, 2, 3), 150);
    let x = random(s, [1, n, 6], &device());
    let other = random(s, [1, n, 6], &device());
    let out = layer.forward_causal(x.clone());
    for kept in [1, 30, 64, 100] {
        let changed = Tensor::cat(
            vec![x.clone().narrow(1, 0, kept), other.clone().narrow(1, kept, n - kept)],
            1,
        );
        let changed = layer.forward_causal(changed);
        let first = |x: Tensor<3>| numbers(x.narrow(1, 0, kept));
        // To the bit: not even rounding tells of what follows.
        assert_eq!(first(changed.clone()), first(out.clone()));
        assert!(error(&numbers(changed), &numbers(out.clone())) > 1e-3);
    }
}

#[test]
fn the_key_bias_has_no_effect_and_no_gradient() {
    let s = &mut stream(8);
    let config = NormalizedAttentionConfig::new(6, 2);
    let layer = randomised(config.init(&device()), s);
    let x = random(s, [2, 80, 6], &device());
    let mut moved = layer.clone();
    moved.key.bias = Some(Param::from_tensor(random(s, [6], &device()) * 3.0));
    let full = |layer: &NormalizedAttention| layer.forward(NapInput::self_attn(x.clone())).context;
    let causal = |layer: &NormalizedAttention| layer.forward_causal(x.clone());
    let runs: [&dyn Fn(&NormalizedAttention) -> Tensor<3>; 2] = [&full, &causal];
    for run in runs {
        for form in FORMS {
            let [layer, moved] = [&layer, &moved].map(|layer| with_form(layer.clone(), form));
            let out = run(&layer);
            assert_close("a key bias", &numbers(run(&moved)), &numbers(out.clone()), 1e-11);
            let factors = random(s, out.dims(), &device());
            let gradients = (out * factors).sum().backward();
            let of = |param: &Option<Param<Tensor<1>>>| {
                let gradient = param.as_ref().expect("a bias").val().grad(&gradients);
                let gradient = numbers(gradient.expect("a gradient"));
                gradient.iter().fold(0.0f64, |m, x| m.max(x.abs()))
            };
            assert!(of(&layer.key.bias) < 1e-10 * of(&layer.query.bias), "{form:?}");
        }
    }
}

/// Rows of logits without deviation: one key, one token repeated, nothing left.
#[test]
fn rows_without_deviation_are_defined_and_so_are_their_gradients() {
    let s = &mut stream(9);
    let layer = randomised(NormalizedAttentionConfig::new(6, 2).init(&device()), s);
    let one = numbers(random(s, [1, 1, 6], &device()));
    let repeated = one.repeat(5);
    let naive = Naive::of(&layer);
    let all = vec![true; 5];
    let only_one = [true, true, false, true, true];
    let none = vec![false; 5];
    let cases: [(&str, &[f64], &[bool]); 4] = [
        ("one key", &one, &none[..1]),
        ("one key kept", &repeated, &only_one),
        ("one token repeated", &repeated, &none),
        ("all masked", &repeated, &all),
    ];
    for (what, x, pad) in cases {
        let n = pad.len();
        let run = |layer: &NormalizedAttention, x: Tensor<3>| {
            layer.forward(NapInput::self_attn(x).mask_pad(mask(pad, [1, n]))).context
        };
        let gradients = FORMS.map(|form| {
            let layer = with_form(layer.clone(), form);
            let gradient = slopes(&layer, x, [1, n, 6], &run);
            assert!(gradient.iter().all(|x| x.is_finite()), "{what} {form:?}");
            let tensor = Tensor::from_data(TensorData::new(x.to_vec(), [1, n, 6]), &device());
            let out = numbers(run(&layer, tensor));
            let (_, expected) = naive.forward([x; 3], |_, j| !pad[j]);
            assert_close(&format!("{what} {form:?}"), &out, &expected, 1e-11);
            gradient
        });
        // Where one token is repeated, rounding decides what deviation is left.
        if what != "one token repeated" {
            assert_close(what, &gradients[0], &gradients[1], 1e-11);
        }
    }
    // The first position of a causal layer, and a token repeated.
    for form in FORMS {
        let layer = with_form(layer.clone(), form);
        for x in [&one, &repeated] {
            let run = |layer: &NormalizedAttention, x: Tensor<3>| layer.forward_causal(x);
            let n = x.len() / 6;
            let gradient = slopes(&layer, x, [1, n, 6], &run);
            assert!(gradient.iter().all(|x| x.is_finite()), "causal n {n} {form:?}");
        }
    }
}

/// With b instead of the weights: values learn, queries and keys do not; without a key nothing
/// does but the output's bias.
#[test]
fn rows_without_deviation_teach_queries_and_keys_nothing() {
    let s = &mut stream(10);
    let layer = randomised(NormalizedAttentionConfig::new(6, 2).init(&device()), s);
    let [query, key, value] = [3, 2, 2].map(|n| random(s, [1, n, 6], &device()).require_grad());
    let factors = random(s, [1, 3, 6], &device());
    let largest = |x: &[f64]| x.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    for form in FORMS {
        let layer = with_form(layer.clone(), form);
        let gradients = |pad: [bool; 2]| {
            let input = NapInput::new(query.clone(), key.clone(), value.clone());
            let out = layer.forward(input.mask_pad(mask(&pad, [1, 2]))).context;
            (out * factors.clone()).sum().backward()
        };

        let one = gradients([false, true]);
        for linear in [&layer.query, &layer.key] {
            assert_eq!(largest(&gradient(linear, &one)), 0.0, "{form:?}");
        }
        let bias = layer.bias.as_ref().expect("a bias").val();
        let per_column = bias.reshape([2, 1]).repeat_dim(1, 3).reshape([1, 1, 6]);
        let back = |linear: &Linear| linear.weight.val().transpose().unsqueeze::<3>();
        let expected = (factors.clone().sum_dim(1).matmul(back(&layer.output)) * per_column)
            .matmul(back(&layer.value));
        let found = numbers(value.grad(&one).expect("a gradient"));
        assert_close(&format!("{form:?}"), &found[..6], &numbers(expected), 1e-11);
        assert_eq!(largest(&found[6..]), 0.0, "{form:?}");

        let none = gradients([true, true]);
        let mut rest = layer.clone();
        rest.output.bias = None;
        assert_eq!(largest(&gradient(&rest, &none)), 0.0, "{form:?}");
        let expected = numbers(factors.clone().sum_dim(1));
        let found = layer.output.bias.as_ref().expect("a bias").val().grad(&none);
        assert_close("output bias", &numbers(found.expect("a gradient")), &expected, 1e-11);
    }
}

#[test]
fn padded_keys_may_hold_anything_and_there_may_be_none() {
    let s = &mut stream(11);
    let layer = layer(s, 2, 3);
    let [query, key, value] = [4, 9, 9].map(|n| random(s, [2, n, 6], &device()));
    let pad: Vec<bool> = (0..18).map(|i| i % 5 == 1).collect();
    let pad = mask(&pad, [2, 9]);
    let bad = |x: Tensor<3>| x.mask_fill(pad.clone().reshape([2, 9, 1]), f64::NAN);
    for form in FORMS {
        let layer = with_form(layer.clone(), form);
        let context =
            |query: &Tensor<3>, key: Tensor<3>, value: Tensor<3>, pad: Tensor<2, Bool>| {
                let input = NapInput::new(query.clone(), key, value).mask_pad(pad);
                numbers(layer.forward(input).context)
            };
        let expected = context(&query, key.clone(), value.clone(), pad.clone());
        let found = context(&query, bad(key.clone()), bad(value.clone()), pad.clone());
        assert_close(&format!("{form:?}"), &found, &expected, 0.0);

        let nothing = || Tensor::<3>::zeros([2, 0, 6], &device());
        let out = context(&query, nothing(), nothing(), mask(&[], [2, 0]));
        let naive = Naive::of(&layer);
        assert_close("no keys", &out, &naive.finish(&[0.0; 6]).repeat(8), 1e-11);
    }
}
