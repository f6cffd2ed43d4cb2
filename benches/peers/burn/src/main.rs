//! The paper's models in burn, on its CPU backend `flex`; trains one on a toy task and answers
//! turns (see `harness`).

use std::time::Instant;

use burn::grad_clipping::GradientClippingConfig;
use burn::module::Param;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{
    Embedding, EmbeddingConfig, Gelu, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::TensorData;
use burn::tensor::activation::softmax;
use harness::{ADAM_EPSILON, Batch, Batches, INIT_DEVIATION, LAYER_EPSILON, NAP_EPSILON, Options};

fn weights() -> Initializer {
    Initializer::Normal { mean: 0.0, std: INIT_DEVIATION }
}

fn linear(inputs: usize, outputs: usize, device: &Device) -> Linear {
    let mut layer = LinearConfig::new(inputs, outputs).with_initializer(weights()).init(device);
    layer.bias = Some(Initializer::Zeros.init([outputs], device));
    layer
}

fn norm(width: usize, device: &Device) -> LayerNorm {
    LayerNormConfig::new(width).with_epsilon(LAYER_EPSILON).init(device)
}

/// Multi-head attention whose weights are normalised logits (NAP) or a softmax (MTE, BERT).
#[derive(Module, Debug)]
struct Attention {
    qkv: Linear,
    mix: Linear,
    norm: Option<LayerNorm>,
    gain: Option<Param<Tensor<4>>>,
    bias: Option<Param<Tensor<4>>>,
    heads: usize,
    linear: bool,
}

impl Attention {
    fn new(of: &Options, device: &Device) -> Self {
        let per_head = |initial: Initializer| {
            (of.model == "nap").then(|| initial.init([1, of.heads, 1, 1], device))
        };
        Self {
            qkv: linear(of.dim, 3 * of.dim, device),
            mix: linear(of.dim, of.dim, device),
            norm: (of.model != "bert").then(|| norm(of.dim, device)),
            gain: per_head(Initializer::Ones),
            bias: per_head(Initializer::Zeros),
            heads: of.heads,
            linear: of.linear,
        }
    }

    /// x: [batch, n, d] -> [batch, n, d]
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, n, dim] = x.dims();
        let width = dim / self.heads;
        let heads = |part: Tensor<3>| part.reshape([batch, n, self.heads, width]).swap_dims(1, 2);
        let qkv = self.qkv.forward(x);
        let [q, k, v] = [0, 1, 2].map(|part| heads(qkv.clone().narrow(2, part * dim, dim)));
        let pooled = match (&self.gain, &self.bias) {
            (Some(gain), Some(bias)) if self.linear => nap_linear(q, k, v, gain.val(), bias.val()),
            (Some(gain), Some(bias)) => nap_quadratic(q, k, v, gain.val(), bias.val()),
            _ => {
                let logits = q.matmul(k.swap_dims(2, 3)).div_scalar((width as f64).sqrt());
                softmax(logits, 3).matmul(v)
            }
        };
        let pooled = pooled.swap_dims(1, 2).reshape([batch, n, dim]);
        self.mix.forward(match &self.norm {
            Some(norm) => Gelu::new_approximate().forward(norm.forward(pooled)),
            None => pooled,
        })
    }
}

fn nap_quadratic(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    gain: Tensor<4>,
    bias: Tensor<4>,
) -> Tensor<4> {
    let logits = q.matmul(k.swap_dims(2, 3));
    let centred = logits.clone() - logits.mean_dim(3);
    let std = centred.clone().square().mean_dim(3).sqrt().add_scalar(NAP_EPSILON);
    (centred * (gain / std) + bias).matmul(v)
}

/// Mean and variance of a row of q k^T follow from the mean and covariance of the keys.
fn nap_linear(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    gain: Tensor<4>,
    bias: Tensor<4>,
) -> Tensor<4> {
    let n = k.dims()[2] as f64;
    let k = k.clone() - k.mean_dim(2);
    let kt = k.clone().swap_dims(2, 3);
    let variance = (q.clone().matmul(kt.clone().matmul(k)) * q.clone()).sum_dim(3).div_scalar(n);
    let std = variance.clamp_min(0.0).add_scalar(1e-12).sqrt().add_scalar(NAP_EPSILON);
    q.matmul(kt.matmul(v.clone())) * (gain / std) + bias * v.sum_dim(2)
}

#[derive(Module, Debug)]
struct Block {
    attention: Option<Attention>,
    pool_norm: LayerNorm,
    wide: Linear,
    wide_norm: Option<LayerNorm>,
    narrow: Linear,
    narrow_norm: LayerNorm,
}

impl Block {
    fn new(of: &Options, device: &Device) -> Self {
        let wide = of.feed_forward();
        Self {
            attention: of.attention().then(|| Attention::new(of, device)),
            pool_norm: norm(of.dim, device),
            wide: linear(of.dim, wide, device),
            wide_norm: (of.model != "bert").then(|| norm(wide, device)),
            narrow: linear(wide, of.dim, device),
            narrow_norm: norm(of.dim, device),
        }
    }

    fn forward(&self, x: Tensor<3>, model: &str) -> Tensor<3> {
        let pooled = match &self.attention {
            Some(attention) => attention.forward(x.clone()),
            None if model == "max" => x.clone().max_dim(1),
            None => x.clone().sum_dim(1),
        };
        // BERT normalises after the skip connection, the others before.
        let skip = |x: Tensor<3>, block: Tensor<3>, norm: &LayerNorm| {
            if model == "bert" { norm.forward(x + block) } else { x + norm.forward(block) }
        };
        let x = skip(x, pooled, &self.pool_norm);
        let hidden = self.wide.forward(x.clone());
        let hidden = match &self.wide_norm {
            Some(norm) => norm.forward(hidden),
            None => hidden,
        };
        let block = self.narrow.forward(Gelu::new_approximate().forward(hidden));
        skip(x, block, &self.narrow_norm)
    }
}

#[derive(Module, Debug)]
struct Model {
    tokens: Embedding,
    positions: Option<Param<Tensor<2>>>,
    blocks: Vec<Block>,
    last: Linear,
}

impl Model {
    fn new(of: &Options, device: &Device) -> Self {
        let table = |rows| EmbeddingConfig::new(rows, of.dim).with_initializer(weights());
        Self {
            tokens: table(of.vocab).init(device),
            positions: (of.task == "cases").then(|| weights().init([of.seq, of.dim], device)),
            blocks: (0..of.layers).map(|_| Block::new(of, device)).collect(),
            last: linear(of.dim, of.outputs(), device),
        }
    }

    /// Mean cross-entropy of the batch.
    fn loss(&self, of: &Options, batch: Batch, device: &Device) -> Tensor<1> {
        let tokens = TensorData::new(batch.tokens, [of.batch, of.seq]);
        let targets = TensorData::new(batch.targets, [of.batch]);
        let mut x = self.tokens.forward(Tensor::from_data(tokens, device));
        if let Some(positions) = &self.positions {
            x = x + positions.val().unsqueeze();
        }
        for block in &self.blocks {
            x = block.forward(x, &of.model);
        }
        let logits = if of.task == "mode" {
            self.last.forward(x.narrow(1, 0, 1)).reshape([of.batch, of.vocab])
        } else {
            self.last.forward(x).reshape([of.batch, of.seq])
        };
        let loss = CrossEntropyLossConfig::new().init(device);
        loss.forward(logits, Tensor::from_data(targets, device))
    }
}

fn main() {
    let started = Instant::now();
    let of = Options::from_arguments();
    let device = Device::flex().autodiff();
    device.seed(0);
    let mut model = Some(Model::new(&of, &device));
    let adam = AdamConfig::new().with_epsilon(ADAM_EPSILON as f32);
    // By variable, as the paper's BERT is trained.
    let clip = (of.model == "bert").then_some(GradientClippingConfig::Norm(1.0));
    let mut adam = adam.with_grad_clipping(clip).init();
    let mut batches = Batches::default();
    let parameters = model.as_ref().map_or(0, Model::num_params);
    harness::serve(started, parameters, |step| {
        // The optimiser takes the model and gives the next one.
        let current = model.take().expect("a model between steps");
        let loss = current.loss(&of, batches.next(&of), &device);
        let gradients = GradientsParams::from_grads(loss.backward(), &current);
        model = Some(adam.step(of.rate_at(step), current, gradients));
        f64::from(loss.into_scalar::<f32>())
    });
}
