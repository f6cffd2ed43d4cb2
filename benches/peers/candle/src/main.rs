//! The paper's models in candle on the CPU; trains one on a toy task and answers turns (see
//! `harness`).

use std::time::Instant;

use candle_core::{D, DType, Device, Module, Result, Tensor, Var};
use candle_nn::{AdamW, Embedding, Init, Linear, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use harness::{ADAM_EPSILON, Batch, Batches, INIT_DEVIATION, LAYER_EPSILON, NAP_EPSILON, Options};

const WEIGHTS: Init = Init::Randn { mean: 0.0, stdev: INIT_DEVIATION };

fn linear(inputs: usize, outputs: usize, at: VarBuilder) -> Result<Linear> {
    let weight = at.get_with_hints((outputs, inputs), "weight", WEIGHTS)?;
    Ok(Linear::new(weight, Some(at.get_with_hints(outputs, "bias", Init::Const(0.0))?)))
}

/// LayerNorm from differentiable operations: `candle_nn::LayerNorm` has no gradient where its
/// input is contiguous.
struct Norm {
    gain: Tensor,
    bias: Tensor,
}

impl Norm {
    fn new(width: usize, at: VarBuilder) -> Result<Self> {
        let gain = at.get_with_hints(width, "gain", Init::Const(1.0))?;
        Ok(Self { gain, bias: at.get_with_hints(width, "bias", Init::Const(0.0))? })
    }
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        candle_nn::ops::layer_norm_slow(x, &self.gain, &self.bias, LAYER_EPSILON as f32)
    }
}

/// Multi-head attention whose weights are normalised logits (NAP) or a softmax (MTE, BERT).
struct Attention {
    qkv: Linear,
    mix: Linear,
    norm: Option<Norm>,
    /// Gain and bias of each head.
    nap: Option<(Tensor, Tensor)>,
    heads: usize,
    linear: bool,
}

impl Attention {
    fn new(of: &Options, at: VarBuilder) -> Result<Self> {
        let nap = (of.model == "nap").then(|| {
            let of_heads =
                |name, value| at.get_with_hints((1, of.heads, 1, 1), name, Init::Const(value));
            Ok::<_, candle_core::Error>((of_heads("gain", 1.0)?, of_heads("shift", 0.0)?))
        });
        let norm = (of.model != "bert").then(|| Norm::new(of.dim, at.pp("norm")));
        Ok(Self {
            qkv: linear(of.dim, 3 * of.dim, at.pp("qkv"))?,
            mix: linear(of.dim, of.dim, at.pp("mix"))?,
            norm: norm.transpose()?,
            nap: nap.transpose()?,
            heads: of.heads,
            linear: of.linear,
        })
    }

    /// x: [batch, n, d] -> [batch, n, d]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, n, dim) = x.dims3()?;
        let width = dim / self.heads;
        let qkv = self.qkv.forward(x)?;
        let head = |part: usize| {
            let part = qkv.narrow(2, part * dim, dim)?.reshape((batch, n, self.heads, width))?;
            part.transpose(1, 2)?.contiguous()
        };
        let (q, k, v) = (head(0)?, head(1)?, head(2)?);
        let pooled = match &self.nap {
            Some((gain, bias)) if self.linear => nap_linear(&q, &k, &v, gain, bias)?,
            Some((gain, bias)) => nap_quadratic(&q, &k, &v, gain, bias)?,
            None => {
                let logits = (q.matmul(&k.t()?)? / (width as f64).sqrt())?;
                candle_nn::ops::softmax(&logits, D::Minus1)?.matmul(&v)?
            }
        };
        let pooled = pooled.transpose(1, 2)?.reshape((batch, n, dim))?;
        self.mix.forward(&match &self.norm {
            Some(norm) => norm.forward(&pooled)?.gelu()?,
            None => pooled,
        })
    }
}

fn nap_quadratic(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    gain: &Tensor,
    bias: &Tensor,
) -> Result<Tensor> {
    let logits = q.matmul(&k.t()?)?;
    let centred = logits.broadcast_sub(&logits.mean_keepdim(D::Minus1)?)?;
    let std = (centred.sqr()?.mean_keepdim(D::Minus1)?.sqrt()? + NAP_EPSILON)?;
    let weights = centred.broadcast_mul(&gain.broadcast_div(&std)?)?.broadcast_add(bias)?;
    weights.matmul(v)
}

/// Mean and variance of a row of q k^T follow from the mean and covariance of the keys.
fn nap_linear(q: &Tensor, k: &Tensor, v: &Tensor, gain: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let n = k.dim(2)? as f64;
    let k = k.broadcast_sub(&k.mean_keepdim(2)?)?;
    let kt = k.t()?;
    let variance = ((q.matmul(&kt.matmul(&k)?)? * q)?.sum_keepdim(D::Minus1)? / n)?;
    let std = ((variance.relu()? + 1e-12)?.sqrt()? + NAP_EPSILON)?;
    let scaled = q.matmul(&kt.matmul(v)?)?.broadcast_mul(&gain.broadcast_div(&std)?)?;
    scaled.broadcast_add(&bias.broadcast_mul(&v.sum_keepdim(2)?)?)
}

struct Block {
    attention: Option<Attention>,
    pool_norm: Norm,
    wide: Linear,
    wide_norm: Option<Norm>,
    narrow: Linear,
    narrow_norm: Norm,
}

impl Block {
    fn new(of: &Options, at: VarBuilder) -> Result<Self> {
        let wide = of.feed_forward();
        let attention = of.attention().then(|| Attention::new(of, at.pp("attention")));
        let wide_norm = (of.model != "bert").then(|| Norm::new(wide, at.pp("wide_norm")));
        Ok(Self {
            attention: attention.transpose()?,
            pool_norm: Norm::new(of.dim, at.pp("pool_norm"))?,
            wide: linear(of.dim, wide, at.pp("wide"))?,
            wide_norm: wide_norm.transpose()?,
            narrow: linear(wide, of.dim, at.pp("narrow"))?,
            narrow_norm: Norm::new(of.dim, at.pp("narrow_norm"))?,
        })
    }

    fn forward(&self, x: &Tensor, model: &str) -> Result<Tensor> {
        let pooled = match &self.attention {
            Some(attention) => attention.forward(x)?,
            None if model == "max" => x.max_keepdim(1)?,
            None => x.sum_keepdim(1)?,
        };
        // BERT normalises after the skip connection, the others before.
        let skip = |x: &Tensor, block: &Tensor, norm: &Norm| {
            if model == "bert" {
                norm.forward(&x.broadcast_add(block)?)
            } else {
                x.broadcast_add(&norm.forward(block)?)
            }
        };
        let x = skip(x, &pooled, &self.pool_norm)?;
        let hidden = self.wide.forward(&x)?;
        let hidden = match &self.wide_norm {
            Some(norm) => norm.forward(&hidden)?,
            None => hidden,
        };
        skip(&x, &self.narrow.forward(&hidden.gelu()?)?, &self.narrow_norm)
    }
}

struct Model {
    tokens: Embedding,
    positions: Option<Tensor>,
    blocks: Vec<Block>,
    last: Linear,
}

impl Model {
    fn new(of: &Options, at: VarBuilder) -> Result<Self> {
        let table = |rows: usize, name| at.get_with_hints((rows, of.dim), name, WEIGHTS);
        let positions = (of.task == "cases").then(|| table(of.seq, "positions"));
        let blocks = (0..of.layers).map(|layer| Block::new(of, at.pp(layer)));
        Ok(Self {
            tokens: Embedding::new(table(of.vocab, "tokens")?, of.dim),
            positions: positions.transpose()?,
            blocks: blocks.collect::<Result<_>>()?,
            last: linear(of.dim, of.outputs(), at.pp("last"))?,
        })
    }

    /// Mean cross-entropy of the batch.
    fn loss(&self, of: &Options, batch: Batch) -> Result<Tensor> {
        let unsigned = |values: Vec<i32>| values.into_iter().map(|x| x as u32).collect::<Vec<_>>();
        let device = &Device::Cpu;
        let tokens = Tensor::from_vec(unsigned(batch.tokens), (of.batch, of.seq), device)?;
        let targets = Tensor::from_vec(unsigned(batch.targets), of.batch, device)?;
        let mut x = self.tokens.forward(&tokens)?;
        if let Some(positions) = &self.positions {
            x = x.broadcast_add(positions)?;
        }
        for block in &self.blocks {
            x = block.forward(&x, &of.model)?;
        }
        let logits = if of.task == "mode" {
            self.last.forward(&x.narrow(1, 0, 1)?.contiguous()?)?
        } else {
            self.last.forward(&x)?
        };
        candle_nn::loss::cross_entropy(&logits.reshape((of.batch, ()))?, &targets)
    }
}

/// Scales each variable's gradient to norm 1 at most, as the paper's BERT is trained.
fn clip(gradients: &mut candle_core::backprop::GradStore, variables: &[Var]) -> Result<()> {
    for variable in variables {
        if let Some(gradient) = gradients.remove(variable) {
            let norm = f64::from(gradient.sqr()?.sum_all()?.sqrt()?.to_scalar::<f32>()?);
            let clipped = if norm > 1.0 { (gradient / norm)? } else { gradient };
            gradients.insert(variable, clipped);
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let started = Instant::now();
    let of = Options::from_arguments();
    let variables = VarMap::new();
    let model = Model::new(&of, VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu))?;
    let variables = variables.all_vars();
    let parameters = variables.iter().map(|variable| variable.elem_count()).sum();
    let eps = ADAM_EPSILON;
    let adam = ParamsAdamW { lr: of.rate, beta1: 0.9, beta2: 0.999, eps, weight_decay: 0.0 };
    let mut adam = AdamW::new(variables.clone(), adam)?;
    let mut batches = Batches::default();
    let mut one_step = |step| {
        adam.set_learning_rate(of.rate_at(step));
        let loss = model.loss(&of, batches.next(&of))?;
        let mut gradients = loss.backward()?;
        if of.model == "bert" {
            clip(&mut gradients, &variables)?;
        }
        adam.step(&gradients)?;
        loss.to_scalar::<f32>().map(f64::from)
    };
    // The first step's error ends the program with its message; the later steps are the same.
    harness::serve(started, parameters, |step| {
        one_step(step).unwrap_or_else(|error: candle_core::Error| {
            eprintln!("{error}");
            std::process::exit(1)
        })
    });
    Ok(())
}
