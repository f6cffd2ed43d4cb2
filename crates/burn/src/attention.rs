//! The layer: projections, heads, masks, dropout, and the choice between the equal forms.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::{
    Dropout, DropoutConfig, Gelu, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::{Bool, Device, Tensor, assert_shape};

use crate::aggregate::{Rule, linear_is_cheaper};
use crate::causal::NapState;

/// LayerNorm's epsilon in the paper's models, inside the square root.
pub const LAYER_NORM_EPSILON: f64 = 1e-3;

/// Which of the two equal forms of the aggregate is computed.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum AttentionForm {
    /// The cheaper one by the lengths: linear where `n1 n2 > d_k (n1 + n2)`, which is `n > 2 d_k`
    /// in self-attention.
    Auto,
    /// Linear time, wherever it exists: without attention mask, without active dropout, and where
    /// the weights are not asked for. In f32 it loses digits where a query's logits deviate far
    /// less than |q| times the keys' largest deviation.
    Linear,
    /// All pairs of positions.
    Quadratic,
}

/// Configuration of a [`NormalizedAttention`] layer.
///
/// The fields of [`MultiHeadAttentionConfig`](burn::nn::attention::MultiHeadAttentionConfig) mean
/// the same here. `min_float` has no counterpart, because masked keys are left out of the
/// statistics and get weight 0, nor has `quiet_softmax`, because nothing forces weights to sum to 1.
/// Defaults are those of the paper's authors.
#[derive(Config, Debug)]
pub struct NormalizedAttentionConfig {
    /// Width of the layer's input and output.
    pub d_model: usize,
    /// Number of heads; divides `d_model`.
    pub n_heads: usize,
    /// Dropout rate of the weights. Default: 0, as in the paper. While it is active, training
    /// visits all pairs of positions.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Learn a gain g per head, from 1. Default: true.
    #[config(default = true)]
    pub gain: bool,
    /// Learn a bias b of the weights per head, from 0. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// Added to the deviation of a row of logits. Default: 1e-3.
    #[config(default = 1e-3)]
    pub epsilon: f64,
    /// Factor of the logits. Default: 1, not softmax's 1 / sqrt(d_k): normalisation takes the
    /// scale out, except as far as `epsilon` goes.
    #[config(default = 1.0)]
    pub logit_scale: f64,
    /// LayerNorm (epsilon 1e-3) on the concatenated heads, as in the paper's blocks. Default: false.
    #[config(default = false)]
    pub inner_norm: bool,
    /// GELU (tanh form) before the output layer, as in the paper's blocks. Default: false.
    #[config(default = false)]
    pub inner_gelu: bool,
    /// Which form is computed. Default: the cheaper one.
    #[config(default = "AttentionForm::Auto")]
    pub form: AttentionForm,
    /// How the four [`Linear`] layers start.
    #[config(default = "Initializer::KaimingUniform{gain:1.0/3f64.sqrt(), fan_out_only:false}")]
    pub initializer: Initializer,
    /// Bias in the key [`Linear`] layer. Default: true, though it has no effect: centring removes
    /// it, and its gradient is 0.
    #[config(default = true)]
    pub key_bias: bool,
    /// Bias in the value [`Linear`] layer. Default: true.
    #[config(default = true)]
    pub value_bias: bool,
    /// Bias in the query [`Linear`] layer. Default: true.
    #[config(default = true)]
    pub query_bias: bool,
    /// Bias in the output [`Linear`] layer. Default: true.
    #[config(default = true)]
    pub output_bias: bool,
}

/// Multi-head attention with normalised logits in place of a softmax.
///
/// With projected queries, keys and values of width `d_k = d_model / n_heads`, per head:
///
/// ```text
/// z_ij = logit_scale q_i . k_j
/// w_ij = g (z_ij - mean_j z_ij) / (std_j z_ij + epsilon) + b
/// out  = output([GELU] [LN] concat_heads(sum_j w_ij v_j))
/// ```
///
/// mean, std (division by n) and n run over unmasked keys, masked keys have weight 0, and the
/// derivative of std is 0 where std is 0.
///
/// # Params
///
/// - `query`, `key`, `value`, `output`: [`Linear`], `d_model` to `d_model`.
/// - `gain`, `bias`: g and b, `[n_heads]`.
/// - `norm`: [`LayerNorm`] of width `d_model`, with `inner_norm`.
///
/// # Differs from burn's `MultiHeadAttention`
///
/// - Weights may be negative and do not sum to 1, and `context` grows with the number n of keys:
///   like sqrt(n) where values are unrelated to keys, like n in self-attention of many tokens, where
///   both are linear in the same input, and wherever b is not 0. Set `inner_norm`, or follow the
///   layer by a LayerNorm.
/// - The output's `weights` are there where asked for; otherwise they may never have been computed.
///
/// Source: O. Richter and R. Wattenhofer, "Normalized Attention Without Probability Cage",
/// arXiv 2005.09561, in the form of its authors' program; the linear-time and causal forms are
/// this project's.
///
/// Created by [`NormalizedAttentionConfig::init`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct NormalizedAttention {
    /// Input to queries.
    pub query: Linear,
    /// Input to keys.
    pub key: Linear,
    /// Input to values.
    pub value: Linear,
    /// Concatenated heads to output.
    pub output: Linear,
    /// Gain per head; 1 without.
    pub gain: Option<Param<Tensor<1>>>,
    /// Bias of the weights per head; 0 without.
    pub bias: Option<Param<Tensor<1>>>,
    /// Before the output layer.
    pub norm: Option<LayerNorm>,
    /// Before the output layer, after the norm.
    pub gelu: Option<Gelu>,
    /// On the weights.
    pub dropout: Dropout,
    /// Width of input and output.
    pub d_model: usize,
    /// Number of heads.
    pub n_heads: usize,
    /// Width of a head.
    pub d_k: usize,
    /// Added to the deviation.
    pub epsilon: f64,
    /// Factor of the logits.
    pub logit_scale: f64,
    /// Which form is computed.
    #[module(skip)]
    pub form: AttentionForm,
}

impl ModuleDisplay for NormalizedAttention {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("d_model", &self.d_model)
            .add("n_heads", &self.n_heads)
            .add("d_k", &self.d_k)
            .add("dropout", &self.dropout.prob)
            .add("epsilon", &self.epsilon)
            .add("logit_scale", &self.logit_scale)
            .optional()
    }
}

impl NormalizedAttentionConfig {
    /// A new layer.
    ///
    /// # Panics
    /// If `n_heads` does not divide `d_model`, or `epsilon` is not positive.
    pub fn init(&self, device: &Device) -> NormalizedAttention {
        let Self { d_model, n_heads, epsilon, .. } = *self;
        assert!(
            n_heads > 0 && d_model.is_multiple_of(n_heads),
            "n_heads must divide d_model, got {n_heads} and {d_model}"
        );
        assert!(epsilon > 0.0, "epsilon must be above 0, got {epsilon}");
        let linear = |bias: bool| {
            LinearConfig::new(d_model, d_model)
                .with_initializer(self.initializer.clone())
                .with_bias(bias)
                .init(device)
        };
        let norm = LayerNormConfig::new(d_model).with_epsilon(LAYER_NORM_EPSILON);
        NormalizedAttention {
            query: linear(self.query_bias),
            key: linear(self.key_bias),
            value: linear(self.value_bias),
            output: linear(self.output_bias),
            gain: self.gain.then(|| Initializer::Ones.init([n_heads], device)),
            bias: self.bias.then(|| Initializer::Zeros.init([n_heads], device)),
            norm: self.inner_norm.then(|| norm.init(device)),
            gelu: self.inner_gelu.then(Gelu::new_approximate),
            dropout: DropoutConfig::new(self.dropout).init(),
            d_model,
            n_heads,
            d_k: d_model / n_heads,
            epsilon,
            logit_scale: self.logit_scale,
            form: self.form,
        }
    }
}

/// Input of [`NormalizedAttention::forward`], as burn's
/// [`MhaInput`](burn::nn::attention::MhaInput).
#[derive(Debug, Clone)]
pub struct NapInput {
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    mask_pad: Option<Tensor<2, Bool>>,
    mask_attn: Option<Tensor<3, Bool>>,
    weights: bool,
}

impl NapInput {
    /// Self-attention: query, key and value are the same.
    ///
    /// # Shapes
    /// - tensor: `[batch, n, d_model]`
    pub fn self_attn(tensor: Tensor<3>) -> Self {
        Self::new(tensor.clone(), tensor.clone(), tensor)
    }

    /// Attention of queries to other keys and values.
    ///
    /// # Shapes
    /// - query: `[batch, n1, d_model]`
    /// - key, value: `[batch, n2, d_model]`
    pub fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self { query, key, value, mask_pad: None, mask_attn: None, weights: false }
    }

    /// Leaves keys out, where true: `[batch, n2]`, or `[1, n2]` for all sequences. Nothing in them
    /// or their values, not even NaN, changes what others' queries find.
    pub fn mask_pad(mut self, mask_pad: Tensor<2, Bool>) -> Self {
        self.mask_pad = Some(mask_pad);
        self
    }

    /// Leaves keys out for single queries, where true: `[batch, n1, n2]`, or `[1, n1, n2]` for all
    /// sequences.
    pub fn mask_attn(mut self, mask_attn: Tensor<3, Bool>) -> Self {
        self.mask_attn = Some(mask_attn);
        self
    }

    /// Asks for the weights, which takes all pairs of positions.
    pub fn with_weights(mut self) -> Self {
        self.weights = true;
        self
    }
}

/// Output of [`NormalizedAttention::forward`].
#[derive(Debug, Clone)]
pub struct NapOutput {
    /// The weights `[batch, n_heads, n1, n2]`, after dropout, where
    /// [asked for](NapInput::with_weights).
    pub weights: Option<Tensor<4>>,
    /// The result `[batch, n1, d_model]`.
    pub context: Tensor<3>,
}

impl NormalizedAttention {
    /// Attends.
    ///
    /// # Shapes
    /// - query: `[batch, n1, d_model]`
    /// - key, value: `[batch, n2, d_model]`
    /// - context: `[batch, n1, d_model]`
    ///
    /// # Panics
    /// If the shapes of query, key, value and masks are not these.
    pub fn forward(&self, input: NapInput) -> NapOutput {
        let NapInput { query, key, value, mask_pad, mask_attn, weights: asked } = input;
        let ([batch, n1, _], [_, n2, _]) = (query.dims(), key.dims());
        assert_shape!(query, [_, _, self.d_model]);
        assert_shape!(key, [batch, _, self.d_model]);
        assert_shape!(value, [batch, n2, self.d_model]);
        if n2 == 0 {
            let zeros = |last| {
                let shape = [batch, self.n_heads, n1, last];
                Tensor::zeros(shape, (&query.device(), query.dtype()))
            };
            let context = self.finish(zeros(self.d_k));
            return NapOutput { weights: asked.then(|| zeros(0)), context };
        }
        let mask_pad = mask_pad.map(|mask| {
            let mask = for_all(mask, batch);
            assert_shape!(mask, [batch, n2]);
            mask.unsqueeze_dims::<4>(&[1, 3])
        });
        let mask_attn = mask_attn.map(|mask| {
            let mask = for_all(mask, batch);
            assert_shape!(mask, [batch, n1, n2]);
            mask.unsqueeze_dim::<4>(1)
        });
        let [query, key, mut value] = self.project(query, key, value);
        if let Some(mask_pad) = &mask_pad {
            // A weight of 0 does not silence a value that is no number.
            value = value.mask_fill(mask_pad.clone(), 0);
        }
        let linear = match self.form {
            AttentionForm::Auto => linear_is_cheaper(n1, n2, self.d_k),
            AttentionForm::Linear => true,
            AttentionForm::Quadratic => false,
        };
        if linear && !asked && mask_attn.is_none() && !self.drops(&query) {
            let pooled = self.rule().linear(query, key, value, mask_pad);
            return NapOutput { weights: None, context: self.finish(pooled) };
        }
        let mask_pad = mask_pad.map(Tensor::transpose);
        let mask = match (mask_attn, mask_pad) {
            (Some(mask_attn), Some(mask_pad)) => {
                Some(mask_attn.bool_or(mask_pad.expand([batch, 1, n1, n2])))
            }
            (mask_attn, mask_pad) => mask_attn.or(mask_pad),
        };
        let weights = self.rule().weights(query.matmul(key.transpose()), mask);
        let weights = self.dropout.forward(weights);
        let pooled = weights.clone().matmul(value);
        NapOutput { weights: asked.then_some(weights), context: self.finish(pooled) }
    }

    /// Causal self-attention: each position attends to itself and what lies before it, and
    /// normalises over those.
    ///
    /// Equal to [`forward`](Self::forward) with an
    /// [autoregressive mask](burn::nn::attention::generate_autoregressive_mask), which is what is
    /// computed with [`AttentionForm::Quadratic`] or active dropout; otherwise in time and memory
    /// linear in n. The first position sees one key, whose deviation is 0: its weight is b.
    ///
    /// # Shapes
    /// - x: `[batch, n, d_model]`
    /// - result: `[batch, n, d_model]`
    ///
    /// # Panics
    /// If the last axis is not `d_model`, or there are no tokens.
    pub fn forward_causal(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, n, _] = x.dims();
        if self.form == AttentionForm::Quadratic || self.drops(&x) {
            let mask = generate_autoregressive_mask(batch, n, &x.device());
            return self.forward(NapInput::self_attn(x).mask_attn(mask)).context;
        }
        self.step(x, &mut NapState::default())
    }

    /// Causal self-attention of tokens that follow those in the state: one when decoding, the
    /// whole prompt to begin with. Time and memory do not depend on how many came before.
    ///
    /// Takes the new tokens only. A loop around burn's `forward_cache`, which passes the whole
    /// sequence so far each time, has to be changed: here it would count old tokens again.
    ///
    /// Dropout is never applied.
    ///
    /// # Shapes
    /// - x: `[batch, n, d_model]`, n at least 1
    /// - result: `[batch, n, d_model]`
    ///
    /// # Panics
    /// If the last axis is not `d_model`, there are no tokens, or batch, heads or width of a head
    /// are not the state's.
    pub fn step(&self, x: Tensor<3>, state: &mut NapState) -> Tensor<3> {
        assert_shape!(x, [_, _, self.d_model]);
        let [query, key, value] = self.project(x.clone(), x.clone(), x);
        self.finish(state.advance(&self.rule(), query, key, value))
    }

    fn drops<const D: usize>(&self, on: &Tensor<D>) -> bool {
        let dropout = &self.dropout;
        dropout.prob > 0.0 && dropout.training.is_enabled() && on.device().is_autodiff()
    }

    fn rule(&self) -> Rule {
        let per_head = |x: &Param<Tensor<1>>| x.val().reshape([1, self.n_heads, 1, 1]);
        Rule {
            gain: self.gain.as_ref().map(per_head),
            bias: self.bias.as_ref().map(per_head),
            epsilon: self.epsilon,
        }
    }

    /// Scaled queries, keys and values per head: `[batch, n_heads, n, d_k]`.
    fn project(&self, query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> [Tensor<4>; 3] {
        let heads = |x: Tensor<3>, layer: &Linear| {
            let [batch, n, _] = x.dims();
            layer.forward(x).reshape([batch, n, self.n_heads, self.d_k]).swap_dims(1, 2)
        };
        let query = heads(query, &self.query);
        let scaled = if self.logit_scale == 1.0 { query } else { query * self.logit_scale };
        [scaled, heads(key, &self.key), heads(value, &self.value)]
    }

    /// Concatenates the heads and applies what follows them.
    fn finish(&self, pooled: Tensor<4>) -> Tensor<3> {
        let [batch, _, n, _] = pooled.dims();
        let mut x = pooled.swap_dims(1, 2).reshape([batch, n, self.d_model]);
        if let Some(norm) = &self.norm {
            x = norm.forward(x);
        }
        if let Some(gelu) = &self.gelu {
            x = gelu.forward(x);
        }
        self.output.forward(x)
    }
}

/// The mask of each sequence, of one for all.
fn for_all<const D: usize>(mask: Tensor<D, Bool>, batch: usize) -> Tensor<D, Bool> {
    if mask.dims()[0] == 1 { mask.repeat_dim(0, batch) } else { mask }
}
