//! Time and memory per token of causal attention by the number of tokens so far: NAP with its
//! state, softmax with its cache of keys and values.
//!
//!     cargo run --release --example streaming
//!
//! Softmax is given its best case: a cache that is already there, so that no time is counted for
//! adding to it, and no query but the last token's. One layer, one sequence.

use std::time::Instant;

use burn::nn::Linear;
use burn::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Distribution, Tensor};
use nap_burn::{NapState, NormalizedAttentionConfig};

const WIDTH: usize = 256;
const HEADS: usize = 4;
const HEAD_WIDTH: usize = WIDTH / HEADS;

/// One token's softmax attention over cached keys and values, `[1, heads, t, d_k]`.
fn softmax_step(
    layer: &MultiHeadAttention,
    x: Tensor<3>,
    [keys, values]: [&Tensor<4>; 2],
) -> Tensor<3> {
    let project = |layer: &Linear| layer.forward(x.clone()).reshape([1, HEADS, 1, HEAD_WIDTH]);
    // The new key and value are projected, as they must be, but replace nothing in the cache.
    let [query, _key, _value] = [&layer.query, &layer.key, &layer.value].map(project);
    let logits = query.matmul(keys.clone().transpose()) / (HEAD_WIDTH as f64).sqrt();
    let pooled = softmax(logits, 3).matmul(values.clone());
    layer.output.forward(pooled.reshape([1, 1, WIDTH]))
}

/// Microseconds of one call: the best of five rounds of twenty.
fn microseconds(mut call: impl FnMut() -> Tensor<3>) -> f64 {
    let mut round = || {
        let start = Instant::now();
        for _ in 0..20 {
            std::hint::black_box(call().into_data());
        }
        start.elapsed().as_secs_f64() * 1e6 / 20.0
    };
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let device = Device::flex();
    let nap = NormalizedAttentionConfig::new(WIDTH, HEADS).init(&device);
    let mha = MultiHeadAttentionConfig::new(WIDTH, HEADS).init(&device);
    let random = |n| Tensor::<3>::random([1, n, WIDTH], Distribution::Default, &device);
    let kib = |numbers: usize| numbers as f64 * 4.0 / 1024.0;
    println!("| tokens so far | NAP, us per token | KiB | softmax, us per token | KiB |");
    println!("|---|---|---|---|---|");
    let mut state = NapState::default();
    for tokens in [1_000, 3_000, 10_000, 30_000, 100_000] {
        while state.tokens() < tokens {
            let x = random((tokens - state.tokens()).min(1000));
            nap.step(x, &mut state);
        }
        let x = random(1);
        let nap_time = microseconds(|| nap.step(x.clone(), &mut state.clone()));
        let cached = || {
            let shape = [1, HEADS, tokens, HEAD_WIDTH];
            Tensor::<4>::random(shape, Distribution::Default, &device)
        };
        let (keys, values) = (cached(), cached());
        let softmax_time = microseconds(|| softmax_step(&mha, x.clone(), [&keys, &values]));
        println!(
            "| {tokens} | {nap_time:.0} | {:.0} | {softmax_time:.0} | {:.0} |",
            kib(state.num_elements()),
            kib(2 * tokens * WIDTH),
        );
    }
}
