//! The paper's layer and model.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Gelu, Initializer, LayerNorm,
    LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::{Bool, Device, Int, Tensor};
pub use nap_engine::config::Readout;

use crate::attention::LAYER_NORM_EPSILON;
use crate::{AttentionForm, NapInput, NapState, NormalizedAttention, NormalizedAttentionConfig};

/// Configuration of an [`EncoderLayer`].
#[derive(Config, Debug)]
pub struct EncoderLayerConfig {
    /// Width d.
    pub d_model: usize,
    /// Number of heads; divides `d_model`.
    pub n_heads: usize,
    /// Hidden width f of the feed-forward block. Default: 4 `d_model`.
    #[config(default = "None")]
    pub d_ff: Option<usize>,
    /// Dropout rate of the attention weights and of what each block adds. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// GELU between attention and its output layer. Default: true.
    #[config(default = true)]
    pub attention_gelu: bool,
    /// Learn a gain per head. Default: true.
    #[config(default = true)]
    pub gain: bool,
    /// Learn a bias of the weights per head. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// Added to the deviation of a row of logits. Default: 1e-3.
    #[config(default = 1e-3)]
    pub epsilon: f64,
    /// Factor of the logits. Default: 1.
    #[config(default = 1.0)]
    pub logit_scale: f64,
    /// Which form of the attention is computed. Default: the cheaper one.
    #[config(default = "AttentionForm::Auto")]
    pub form: AttentionForm,
    /// How weight matrices start; biases are 0. Default: normal with deviation 0.0176, that of the
    /// paper's initial weights, which are normal with 0.02 and cut at two deviations.
    #[config(default = "Initializer::Normal{mean:0.0, std:0.0176}")]
    pub initializer: Initializer,
}

/// One layer of the paper's models.
///
/// ```text
/// x <- x + LN(output(GELU(LN(attention(x)))))
/// x <- x + LN(W2 GELU(LN(W1 x + b1)) + b2)
/// ```
///
/// LayerNorm's epsilon is 1e-3, GELU is the tanh form, and dropout acts on what is added to x.
///
/// Created by [`EncoderLayerConfig::init`].
#[derive(Module, Debug)]
pub struct EncoderLayer {
    /// Attention with its inner LayerNorm, GELU and output layer.
    pub attention: NormalizedAttention,
    /// On the attention block's output.
    pub norm1: LayerNorm,
    /// d to f.
    pub ff_in: Linear,
    /// On the hidden f.
    pub ff_norm: LayerNorm,
    /// After it.
    pub gelu: Gelu,
    /// f to d.
    pub ff_out: Linear,
    /// On the feed-forward block's output.
    pub norm2: LayerNorm,
    /// On what each block adds.
    pub dropout: Dropout,
}

impl EncoderLayerConfig {
    /// A new layer.
    ///
    /// # Panics
    /// If `n_heads` does not divide `d_model`, or `epsilon` is not positive.
    pub fn init(&self, device: &Device) -> EncoderLayer {
        let (d, f) = (self.d_model, self.d_ff.unwrap_or(4 * self.d_model));
        let norm = |width| norm(width, device);
        let dense = |input, output| dense(input, output, &self.initializer, device);
        let mut attention = NormalizedAttentionConfig::new(d, self.n_heads)
            .with_dropout(self.dropout)
            .with_gain(self.gain)
            .with_bias(self.bias)
            .with_epsilon(self.epsilon)
            .with_logit_scale(self.logit_scale)
            .with_inner_norm(true)
            .with_inner_gelu(self.attention_gelu)
            .with_form(self.form)
            .with_initializer(self.initializer.clone())
            .init(device);
        for layer in
            [&mut attention.query, &mut attention.key, &mut attention.value, &mut attention.output]
        {
            layer.bias = Some(Initializer::Zeros.init([d], device));
        }
        EncoderLayer {
            attention,
            norm1: norm(d),
            ff_in: dense(d, f),
            ff_norm: norm(f),
            gelu: Gelu::new_approximate(),
            ff_out: dense(f, d),
            norm2: norm(d),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

impl EncoderLayer {
    /// Applies the layer; `mask_pad` (true: left out) is one of keys.
    ///
    /// # Shapes
    /// - x: `[batch, n, d_model]`
    /// - mask_pad: `[batch, n]`
    /// - result: `[batch, n, d_model]`
    ///
    /// # Panics
    /// If the shapes are not these.
    pub fn forward(&self, x: Tensor<3>, mask_pad: Option<Tensor<2, Bool>>) -> Tensor<3> {
        let mut input = NapInput::self_attn(x.clone());
        if let Some(mask_pad) = mask_pad {
            input = input.mask_pad(mask_pad);
        }
        let pooled = self.attention.forward(input).context;
        self.add_blocks(x, pooled)
    }

    /// Applies the layer with [causal attention](NormalizedAttention::forward_causal).
    ///
    /// # Shapes
    /// - x: `[batch, n, d_model]`
    /// - result: `[batch, n, d_model]`
    ///
    /// # Panics
    /// If the last axis is not `d_model`.
    pub fn forward_causal(&self, x: Tensor<3>) -> Tensor<3> {
        let pooled = self.attention.forward_causal(x.clone());
        self.add_blocks(x, pooled)
    }

    /// Applies the layer to tokens that follow [those in the state](NormalizedAttention::step).
    ///
    /// # Shapes
    /// - x: `[batch, n, d_model]`, n at least 1
    /// - result: `[batch, n, d_model]`
    ///
    /// # Panics
    /// As [`NormalizedAttention::step`].
    pub fn step(&self, x: Tensor<3>, state: &mut NapState) -> Tensor<3> {
        let pooled = self.attention.step(x.clone(), state);
        self.add_blocks(x, pooled)
    }

    fn add_blocks(&self, x: Tensor<3>, pooled: Tensor<3>) -> Tensor<3> {
        let x = x + self.dropout.forward(self.norm1.forward(pooled));
        let hidden = self.ff_norm.forward(self.ff_in.forward(x.clone()));
        let block = self.norm2.forward(self.ff_out.forward(self.gelu.forward(hidden)));
        x + self.dropout.forward(block)
    }
}

/// Configuration of an [`Encoder`].
#[derive(Config, Debug)]
pub struct EncoderConfig {
    /// Number of different tokens V.
    pub vocab: usize,
    /// The layers.
    pub layer: EncoderLayerConfig,
    /// Number of layers.
    pub n_layers: usize,
    /// Longest sequence N of learned positions and of read-outs of positions.
    pub max_length: usize,
    /// How logits are read from the last layer's tokens.
    pub readout: Readout,
    /// Number of classes C of a read-out of classes. Default: `vocab`.
    #[config(default = "None")]
    pub classes: Option<usize>,
    /// Learned positions. Default: false, which makes a sequence a set.
    #[config(default = false)]
    pub positions: bool,
}

/// The paper's model: token embedding, learned positions or none, layers, read-out.
///
/// In the order of the fields, the parameters are those of the program's checkpoints
/// (`docs/models.md`), which [`Encoder::from_checkpoint`] reads.
///
/// Created by [`EncoderConfig::init`].
#[derive(Module, Debug)]
pub struct Encoder {
    /// `[V, d]`
    pub embedding: Embedding,
    /// `[N, d]`
    pub position_embedding: Option<Param<Tensor<2>>>,
    /// On the embeddings.
    pub dropout: Dropout,
    /// The layers.
    pub layers: Vec<EncoderLayer>,
    /// d to 1, N or C, as the read-out needs.
    pub head: Linear,
    /// How logits are read from the last layer's tokens.
    #[module(skip)]
    pub readout: Readout,
}

impl EncoderConfig {
    /// A new model.
    ///
    /// # Panics
    /// As [`EncoderLayerConfig::init`].
    pub fn init(&self, device: &Device) -> Encoder {
        let (d, initializer) = (self.layer.d_model, &self.layer.initializer);
        let width = match self.readout {
            Readout::PerToken => 1,
            Readout::FirstTokenPosition | Readout::EachTokenPosition => self.max_length,
            Readout::FirstTokenClass | Readout::EachTokenClass => {
                self.classes.unwrap_or(self.vocab)
            }
        };
        let embedding = EmbeddingConfig::new(self.vocab, d).with_initializer(initializer.clone());
        Encoder {
            embedding: embedding.init(device),
            position_embedding: self
                .positions
                .then(|| initializer.init([self.max_length, d], device)),
            dropout: DropoutConfig::new(self.layer.dropout).init(),
            layers: (0..self.n_layers).map(|_| self.layer.init(device)).collect(),
            head: dense(d, width, initializer, device),
            readout: self.readout,
        }
    }
}

impl Encoder {
    /// Logits of each answer's choices; `mask_pad` (true: left out) is one of keys.
    ///
    /// | read-out | answers | choices |
    /// |---|---|---|
    /// | per token | 1 | n positions, a logit from each token |
    /// | first token, position | 1 | n positions |
    /// | each token, position | n | n positions |
    /// | first token, class | 1 | C classes |
    /// | each token, class | n | C classes |
    ///
    /// # Shapes
    /// - tokens, mask_pad: `[batch, n]`
    /// - result: `[batch, answers, choices]`
    ///
    /// # Panics
    /// If the shapes are not these, or n is above the longest sequence of learned positions or of
    /// a read-out of positions.
    pub fn forward(&self, tokens: Tensor<2, Int>, mask_pad: Option<Tensor<2, Bool>>) -> Tensor<3> {
        let x = self.embed(tokens);
        self.read_out(self.encode(x, mask_pad))
    }

    /// Embedded tokens, with positions where the model has some.
    ///
    /// # Shapes
    /// - tokens: `[batch, n]`
    /// - result: `[batch, n, d_model]`
    ///
    /// # Panics
    /// If there are fewer than n learned positions.
    pub fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let n = tokens.dims()[1];
        let x = self.embedding.forward(tokens);
        match &self.position_embedding {
            Some(positions) => x + positions.val().narrow(0, 0, n).unsqueeze(),
            None => x,
        }
    }

    /// The last layer's tokens, of embedded ones.
    ///
    /// # Shapes
    /// - x: `[batch, n, d_model]`
    /// - mask_pad: `[batch, n]`
    /// - result: `[batch, n, d_model]`
    ///
    /// # Panics
    /// If the shapes are not these.
    pub fn encode(&self, x: Tensor<3>, mask_pad: Option<Tensor<2, Bool>>) -> Tensor<3> {
        let x = self.dropout.forward(x);
        self.layers.iter().fold(x, |x, layer| layer.forward(x, mask_pad.clone()))
    }

    /// The logits of the last layer's tokens: `[batch, n, d_model]` to
    /// `[batch, answers, choices]`, as [`forward`](Self::forward).
    ///
    /// # Panics
    /// If n is above the read-out's positions.
    pub fn read_out(&self, x: Tensor<3>) -> Tensor<3> {
        let n = x.dims()[1];
        let first = |x: Tensor<3>| x.narrow(1, 0, 1);
        match self.readout {
            Readout::PerToken => self.head.forward(x).swap_dims(1, 2),
            Readout::FirstTokenPosition => self.head.forward(first(x)).narrow(2, 0, n),
            Readout::EachTokenPosition => self.head.forward(x).narrow(2, 0, n),
            Readout::FirstTokenClass => self.head.forward(first(x)),
            Readout::EachTokenClass => self.head.forward(x),
        }
    }
}

fn norm(width: usize, device: &Device) -> LayerNorm {
    LayerNormConfig::new(width).with_epsilon(LAYER_NORM_EPSILON).init(device)
}

fn dense(input: usize, output: usize, initializer: &Initializer, device: &Device) -> Linear {
    let mut layer =
        LinearConfig::new(input, output).with_initializer(initializer.clone()).init(device);
    layer.bias = Some(Initializer::Zeros.init([output], device));
    layer
}
