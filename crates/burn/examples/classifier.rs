//! Swaps softmax for NAP in an encoder classifier: names the most frequent of ten tokens in
//! sequences of 64, and of 128, which it was not trained on.
//!
//!     cargo run --release --example classifier

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{
    Embedding, EmbeddingConfig, Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use nap_burn::{NapInput, NormalizedAttention, NormalizedAttentionConfig};
use nap_engine::random::{Purpose, Stream};

const VOCAB: usize = 10;
const WIDTH: usize = 32;
const HEADS: usize = 4;
const STEPS: u64 = 400;

/// The swap.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "a few of them, made once")]
enum Attention {
    Softmax(MultiHeadAttention),
    Normalized(NormalizedAttention),
}

impl Attention {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        match self {
            Attention::Softmax(attention) => attention.forward(MhaInput::self_attn(x)).context,
            Attention::Normalized(attention) => attention.forward(NapInput::self_attn(x)).context,
        }
    }
}

#[derive(Module, Debug)]
struct Layer {
    attention: Attention,
    norm1: LayerNorm,
    wide: Linear,
    narrow: Linear,
    norm2: LayerNorm,
}

#[derive(Module, Debug)]
struct Classifier {
    embedding: Embedding,
    layers: Vec<Layer>,
    head: Linear,
}

impl Classifier {
    fn new(normalized: bool, device: &Device) -> Self {
        let attention = || match normalized {
            true => Attention::Normalized(
                NormalizedAttentionConfig::new(WIDTH, HEADS).with_inner_norm(true).init(device),
            ),
            false => Attention::Softmax(
                MultiHeadAttentionConfig::new(WIDTH, HEADS).with_dropout(0.0).init(device),
            ),
        };
        let layer = || Layer {
            attention: attention(),
            norm1: LayerNormConfig::new(WIDTH).init(device),
            wide: LinearConfig::new(WIDTH, 4 * WIDTH).init(device),
            narrow: LinearConfig::new(4 * WIDTH, WIDTH).init(device),
            norm2: LayerNormConfig::new(WIDTH).init(device),
        };
        Self {
            embedding: EmbeddingConfig::new(VOCAB, WIDTH).init(device),
            layers: (0..2).map(|_| layer()).collect(),
            head: LinearConfig::new(WIDTH, VOCAB).init(device),
        }
    }

    /// `[batch, n]` to `[batch, VOCAB]`, read from the first token.
    fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let mut x = self.embedding.forward(tokens);
        for layer in &self.layers {
            x = x.clone() + layer.norm1.forward(layer.attention.forward(x));
            let hidden = Gelu::new().forward(layer.wide.forward(x.clone()));
            x = x + layer.norm2.forward(layer.narrow.forward(hidden));
        }
        self.head.forward(x.narrow(1, 0, 1)).squeeze_dim(1)
    }
}

/// Random sequences and the most frequent token of each, the smallest of several.
fn batch(
    seed: u64,
    size: usize,
    length: usize,
    device: &Device,
) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let mut stream = Stream::new(seed, Purpose::Training, 0, 0);
    let tokens: Vec<i64> =
        (0..size * length).map(|_| i64::from(stream.below(VOCAB as u32))).collect();
    let mode = |sequence: &[i64]| {
        let mut counts = [0; VOCAB];
        sequence.iter().for_each(|&token| counts[token as usize] += 1);
        let most = counts.iter().max().expect("tokens");
        counts.iter().position(|count| count == most).expect("one of them") as i64
    };
    let answers: Vec<i64> = tokens.chunks_exact(length).map(mode).collect();
    let tokens = Tensor::from_data(TensorData::new(tokens, [size, length]), device);
    (tokens, Tensor::from_data(TensorData::new(answers, [size]), device))
}

fn main() {
    let device = Device::flex().autodiff();
    for (name, normalized) in [("softmax", false), ("NAP", true)] {
        device.seed(1);
        let mut model = Classifier::new(normalized, &device);
        let mut adam = AdamConfig::new().init();
        let cross_entropy = CrossEntropyLossConfig::new().init(&device);
        for step in 0..STEPS {
            let (tokens, answers) = batch(step, 32, 64, &device);
            let loss = cross_entropy.forward(model.forward(tokens), answers);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            let rate = 2e-3 * (1.0 - step as f64 / STEPS as f64);
            model = adam.step(rate, model, gradients);
        }
        let (model, device) = (model.valid(), device.clone().inner());
        let accuracy = |length: usize| -> f64 {
            let (tokens, answers) = batch(1 << 40, 1000, length, &device);
            let right = model.forward(tokens).argmax(1).squeeze_dim::<1>(1).equal(answers);
            right.int().sum().into_scalar::<i64>() as f64 / 1000.0
        };
        println!("{name:<8} length 64: {:.3}   length 128: {:.3}", accuracy(64), accuracy(128));
    }
}
