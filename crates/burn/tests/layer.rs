//! The layer as its users meet it, in f32: decoding over thousands of tokens, dropout, what is
//! refused.

mod common;

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use common::{Naive, error, numbers, parameters, random, randomised, stream, with_parameters};
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
    let config = NormalizedAttentionConfig::new(d, 2);
    let layer = randomised(config.init(&device), s);
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
        assert!(between < 2e-5, "position {t}: steps and chunks differ by {between:.1e}");
        if t < 100 || t % 97 == 0 || t + 1 == n {
            let (_, pooled) = naive.attend(&q[row.clone()], &k, &v, |j| j <= t);
            let expected = naive.finish(&pooled);
            let steps = relative(&out, &expected);
            let chunks = relative(&at_once[row], &expected);
            assert!(steps.max(chunks) < 2e-5, "position {t}: {steps:.1e}, {chunks:.1e}");
        }
    }
    assert_eq!(state.tokens(), n);
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

/// A layer whose output is its values' aggregate, of ones, so that it shows the sum of weights.
fn showing_sums(dropout: f64, device: &Device) -> NormalizedAttention {
    let mut layer = NormalizedAttentionConfig::new(2, 1)
        .with_dropout(dropout)
        .with_value_bias(false)
        .with_output_bias(false)
        .init(device);
    let eye = || Param::from_tensor(Tensor::<2>::eye(2, device));
    (layer.value.weight, layer.output.weight) = (eye(), eye());
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
#[should_panic(expected = "a state of 2 sequences, got 1")]
fn a_state_of_another_batch_is_refused() {
    let device = Device::flex();
    let layer = NormalizedAttentionConfig::new(8, 2).init(&device);
    let mut state = NapState::default();
    layer.step(Tensor::zeros([2, 3, 8], &device), &mut state);
    layer.step(Tensor::zeros([1, 3, 8], &device), &mut state);
}
