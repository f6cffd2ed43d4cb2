//! The layer as its users meet it, in f32: decoding over thousands of tokens, dropout, what is
//! refused.

mod common;

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};
use common::{
    Naive, error, gradient, numbers, parameters, random, randomised, stream, with_parameters,
};
use nap_burn::{
    AttentionForm, EncoderLayerConfig, NapInput, NapState, NormalizedAttention,
    NormalizedAttentionConfig,
};

/// The largest error of a position, relative to its own length.
fn relative(actual: &[f64], expected: &[f64]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut actual.iter().zip(expected).map(|(a, e)| a - e));
    difference / norm(&mut expected.iter().copied())
}

#[test]
fn ten_thousand_tokens_one_by_one_equal_plain_loops_in_f64() {
    let (n, d, device) = (10_000, 16, Device::flex());
    let s = &mut stream(1);
    // Without b, whose part of the result would hide errors of deviations.
    let config = NormalizedAttentionConfig::new(d, 2).with_bias(false);
    let mut layer = randomised(config.init(&device), s);
    // Keys away from 0: sums of raw products would cancel.
    layer.key.bias = Some(Param::from_tensor(Tensor::full([d], 30.0, &device)));
    let x = random(s, [1, n, d], &device);
    let naive = Naive::of(&layer);
    let flat = numbers(x.clone());
    let [q, k, v] = [0, 1, 2].map(|layer| naive.dense(layer, &flat));

    let mut state = NapState::default();
    let at_once = numbers(layer.forward_causal(x.clone()));
    for t in 0..n {
        let out = numbers(layer.step(x.clone().narrow(1, t, 1), &mut state));
        let row = t * d..(t + 1) * d;
        let between = relative(&out, &at_once[row.clone()]);
        assert!(between < 4e-6, "position {t}: steps and chunks differ by {between:.1e}");
        if t < 100 || t % 97 == 0 || t + 1 == n {
            let (_, pooled) = naive.attend(&q[row.clone()], &k, &v, |j| j <= t);
            let expected = naive.finish(&pooled);
            let steps = relative(&out, &expected);
            let chunks = relative(&at_once[row], &expected);
            assert!(steps.max(chunks) < 3e-6, "position {t}: {steps:.1e}, {chunks:.1e}");
        }
        if t + 1 == 2_000 || t + 1 == n {
            let held = 2 * 2 * (2 * 8 * (8 + 1));
            assert_eq!(state.num_elements(), held, "2 heads of width 8 in memory at {t}");
        }
    }
    assert_eq!(state.tokens(), n);
}

/// Keys some 35 deviations from 0. The pairs' logits have that offset themselves.
#[test]
fn every_form_centres_its_keys() {
    let (n, d, device) = (300, 16, Device::flex());
    let s = &mut stream(4);
    let config = NormalizedAttentionConfig::new(d, 2).with_bias(false);
    let mut layer = randomised(config.init(&device), s);
    layer.key.bias = Some(Param::from_tensor(Tensor::full([d], 100.0, &device)));
    let x = random(s, [1, n, d], &device);
    let naive = Naive::of(&layer);
    let flat = numbers(x.clone());
    let (_, all) = naive.forward([&flat; 3], |_, _| true);
    let (_, causal) = naive.forward([&flat; 3], |i, j| j <= i);
    let mut state = NapState::default();
    let steps = (0..n).map(|t| layer.step(x.clone().narrow(1, t, 1), &mut state)).collect();
    let found = error(&numbers(Tensor::cat(steps, 1)), &causal);
    assert!(found < 5e-6, "steps {found:.1e}");
    let limits = [(AttentionForm::Linear, 2e-5, 2e-6), (AttentionForm::Quadratic, 6e-5, 6e-5)];
    for (form, limit, causal_limit) in limits {
        let layer = NormalizedAttention { form, ..layer.clone() };
        let out = numbers(layer.forward(NapInput::self_attn(x.clone())).context);
        let found = error(&out, &all);
        assert!(found < limit, "{form:?} {found:.1e}");
        let found = error(&numbers(layer.forward_causal(x.clone())), &causal);
        assert!(found < causal_limit, "causal {form:?} {found:.1e}");
    }
}

/// A layer of one head that projects nothing.
fn identity(width: usize, device: &Device) -> NormalizedAttention {
    let mut layer = NormalizedAttentionConfig::new(width, 1)
        .with_query_bias(false)
        .with_key_bias(false)
        .with_value_bias(false)
        .with_output_bias(false)
        .init(device);
    for linear in [&mut layer.query, &mut layer.key, &mut layer.value, &mut layer.output] {
        linear.weight = Param::from_tensor(Tensor::eye(width, device));
    }
    layer
}

/// Queries orthogonal to the one direction in which keys are spread out.
#[test]
fn queries_that_see_little_of_the_keys_need_the_quadratic_form() {
    let (n, width, device) = (256, 32, Device::flex());
    let s = &mut stream(6);
    let across = |x: Tensor<3>| x.clone() - x.mean_dim(2);
    let query = across(random(s, [1, n, width], &device));
    let along = random(s, [1, n, 1], &device) * (10.0 / (width as f64).sqrt());
    let key = across(random(s, [1, n, width], &device)) * 0.1 + along;
    let value = random(s, [1, n, width], &device);
    let mut layer = identity(width, &device);
    let inputs = [&query, &key, &value].map(|x| numbers(x.clone()));
    let (_, expected) = Naive::of(&layer).forward(inputs.each_ref().map(|x| &x[..]), |_, _| true);
    for (form, limit) in [(AttentionForm::Linear, 1e-3), (AttentionForm::Quadratic, 1e-5)] {
        layer.form = form;
        let input = NapInput::new(query.clone(), key.clone(), value.clone());
        let out = numbers(layer.forward(input).context);
        let rows = out.chunks_exact(width).zip(expected.chunks_exact(width));
        let worst = rows.map(|(out, expected)| relative(out, expected)).fold(0.0, f64::max);
        assert!(worst < limit, "{form:?} {worst:.1e}");
    }
}

#[test]
fn rows_without_deviation_have_finite_gradients() {
    let device = Device::flex().autodiff();
    let s = &mut stream(7);
    let layer = randomised(NormalizedAttentionConfig::new(8, 2).init(&device), s);
    for n in [1, 100] {
        let token = random::<3>(s, [1, 1, 8], &device);
        for masked in [false, true] {
            for form in [AttentionForm::Linear, AttentionForm::Quadratic] {
                let layer = NormalizedAttention { form, ..layer.clone() };
                let x = token.clone().repeat_dim(1, n).detach().require_grad();
                let pad = Tensor::<2>::zeros([1, n], &device).equal_scalar(i32::from(!masked));
                let out = layer.forward(NapInput::self_attn(x.clone()).mask_pad(pad)).context;
                let gradients = (out + layer.forward_causal(x.clone())).sum().backward();
                let mut all = gradient(&layer, &gradients);
                all.extend(numbers(x.grad(&gradients).expect("a gradient")));
                assert!(all.iter().all(|x| x.is_finite()), "{n} {masked} {form:?}");
            }
        }
    }
}

#[test]
fn a_state_can_be_moved_and_its_sequences_chosen() {
    let device = Device::flex().autodiff();
    let s = &mut stream(8);
    let layer = randomised(NormalizedAttentionConfig::new(8, 2).init(&device), s);
    let past = random(s, [3, 1_100, 8], &device);
    let next = random(s, [3, 1, 8], &device);
    let mut state = NapState::default();
    layer.step(past, &mut state);
    let chosen = Tensor::<1, Int>::from_ints([2, 0, 2], &device);
    let expected = layer.step(next.clone(), &mut state.clone()).select(0, chosen.clone());
    let mut state = state.select(chosen.clone()).inner().to_device(&Device::flex());
    let out = layer.valid().step(next.select(0, chosen).inner(), &mut state);
    assert!(!out.is_autodiff());
    assert_eq!(numbers(out), numbers(expected));
    assert_eq!(state.tokens(), 1_101);
}

#[test]
fn both_forms_are_as_accurate_at_the_scale_of_initial_weights() {
    let (n, d, device) = (200, 16, Device::flex());
    let s = &mut stream(3);
    let config = NormalizedAttentionConfig::new(d, 2)
        .with_query_bias(false)
        .with_key_bias(false)
        .with_value_bias(false)
        .with_output_bias(false)
        .with_gain(false)
        .with_bias(false);
    let x = random(s, [1, n, d], &device) * 0.02;
    let layer = config.init(&device);
    // Logits whose deviation is far below epsilon.
    let values: Vec<_> = parameters(&layer).iter().map(|_| 0.0176 * s.normal()).collect();
    let mut layer = with_parameters(layer, &values);
    let (_, expected) = Naive::of(&layer).forward([&numbers(x.clone()); 3], |_, _| true);
    for form in [AttentionForm::Linear, AttentionForm::Quadratic] {
        layer.form = form;
        let out = numbers(layer.forward(NapInput::self_attn(x.clone())).context);
        let error = error(&out, &expected);
        assert!(error < 2e-6, "{form:?} {error:.1e}");
    }
}

#[test]
fn a_layer_of_the_paper_steps_as_it_trains() {
    let (n, d, device) = (200, 24, Device::flex());
    let s = &mut stream(2);
    let layer = randomised(EncoderLayerConfig::new(d, 3).init(&device), s);
    let x = random(s, [2, n, d], &device);
    let whole = numbers(layer.forward_causal(x.clone()));
    let mut state = NapState::default();
    let mut parts = vec![layer.step(x.clone().narrow(1, 0, 90), &mut state)];
    for t in 90..n {
        parts.push(layer.step(x.clone().narrow(1, t, 1), &mut state));
    }
    assert!(error(&numbers(Tensor::cat(parts, 1)), &whole) < 2e-5);
}

/// A layer whose output, of ones, is the sum of weights, all of them 1.
fn showing_sums(dropout: f64, device: &Device) -> NormalizedAttention {
    let mut layer = identity(2, device);
    layer.dropout.prob = dropout;
    layer.gain = Some(Param::from_tensor(Tensor::zeros([1], device)));
    layer.bias = Some(Param::from_tensor(Tensor::ones([1], device)));
    layer
}

#[test]
fn dropout_is_on_the_weights_and_only_in_training() {
    let device = Device::flex().autodiff();
    device.seed(5);
    let layer = showing_sums(0.25, &device);
    let ones = Tensor::<3>::ones([4, 400, 2], &device);
    let training = layer.forward(NapInput::self_attn(ones.clone()).with_weights());
    // Weights are 1 before dropout: 0 or 4/3 after it.
    let weights = numbers(training.weights.expect("weights"));
    assert!(weights.iter().all(|&w| w == 0.0 || (w - 4.0 / 3.0).abs() < 1e-6));
    let dropped = weights.iter().filter(|&&w| w == 0.0).count() as f64 / weights.len() as f64;
    assert!((dropped - 0.25).abs() < 0.01, "{dropped}");
    // Not asked for weights, and causal, it drops them as well.
    for out in [
        layer.forward(NapInput::self_attn(ones.clone())).context,
        layer.forward_causal(ones.clone()),
    ] {
        assert!(numbers(out).iter().any(|x| x.fract().abs() > 1e-2 && x.fract().abs() < 0.99));
    }
    // Not in decoding, not in a model made for inference.
    let one_by_one = |x: f64| (x - x.round()).abs() < 1e-3;
    let step = layer.step(ones.clone(), &mut NapState::default());
    assert!(numbers(step).into_iter().all(one_by_one));
    let inference = layer.valid();
    let ones = ones.inner();
    assert!(numbers(inference.forward_causal(ones.clone())).into_iter().all(one_by_one));
    let out = inference.forward(NapInput::self_attn(ones)).context;
    assert!(numbers(out).iter().all(|x| (x - 400.0).abs() < 1e-3));
}

#[test]
fn a_configuration_survives_json_and_has_the_authors_defaults() {
    let config = NormalizedAttentionConfig::new(8, 2);
    assert_eq!((config.epsilon, config.logit_scale, config.dropout), (1e-3, 1.0, 0.0));
    assert!(config.gain && config.bias && !config.inner_norm && !config.inner_gelu);
    let config = config.with_form(AttentionForm::Linear).with_dropout(0.5).with_gain(false);
    let read = NormalizedAttentionConfig::load_binary(config.to_string().as_bytes());
    assert_eq!(read.expect("the same configuration").to_string(), config.to_string());
    let layer = config.init(&Device::flex());
    assert!(layer.gain.is_none() && layer.query.bias.is_some());
    let layer = config.with_query_bias(false).with_output_bias(false).init(&Device::flex());
    assert!(layer.query.bias.is_none() && layer.output.bias.is_none());
    assert_eq!(
        layer.to_string(),
        "NormalizedAttention {d_model: 8, n_heads: 2, d_k: 4, dropout: 0.5, epsilon: 0.001, \
         logit_scale: 1, params: 274}"
    );
}

#[test]
#[should_panic(expected = "n_heads must divide d_model, got 3 and 8")]
fn heads_that_do_not_divide_the_width_are_refused() {
    NormalizedAttentionConfig::new(8, 3).init(&Device::flex());
}

#[test]
#[should_panic(expected = "epsilon must be above 0")]
fn an_epsilon_of_zero_is_refused() {
    NormalizedAttentionConfig::new(8, 2).with_epsilon(0.0).init(&Device::flex());
}

#[test]
#[should_panic(expected = "axis 1 expected 3, got 4")]
fn a_mask_of_another_length_is_refused() {
    let device = Device::flex();
    let layer = NormalizedAttentionConfig::new(8, 2).init(&device);
    let mask = Tensor::<2>::zeros([2, 4], &device).equal_scalar(1);
    layer.forward(NapInput::self_attn(Tensor::zeros([2, 3, 8], &device)).mask_pad(mask));
}

#[test]
#[should_panic(expected = "the state's sequences, heads and width of a head")]
fn a_state_of_another_batch_is_refused() {
    let device = Device::flex();
    let layer = NormalizedAttentionConfig::new(8, 2).init(&device);
    let mut state = NapState::default();
    layer.step(Tensor::zeros([2, 3, 8], &device), &mut state);
    layer.step(Tensor::zeros([1, 3, 8], &device), &mut state);
}

#[test]
#[should_panic(expected = "the state's sequences, heads and width of a head")]
fn a_state_of_another_layer_is_refused() {
    let device = Device::flex();
    let layers = [1, 2].map(|heads| NormalizedAttentionConfig::new(8, heads).init(&device));
    let mut state = NapState::default();
    layers.iter().for_each(|layer| drop(layer.step(Tensor::zeros([2, 3, 8], &device), &mut state)));
}
