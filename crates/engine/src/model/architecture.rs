//! What fixes a model's parameters and its function: the resolved model, the vocabulary, the
//! classes, the longest sequence and the read-out. Lists the parameters in one flat buffer.

use super::positions;
use crate::config::{
    AttentionForm, Auto, ConfigError, LogitScale, Masking, ModelConfig, NormPlacement, Positions,
    Readout, TaskConfig,
};
use crate::kernels::aggregate::{self, Kind};

/// How a parameter starts, before training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// Normal of this deviation before it is cut at two deviations.
    TruncatedNormal(f64),
    /// A constant.
    Constant(f64),
}

/// One parameter: a named piece of the flat buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Such as `layer.0.attention.query.weight`.
    pub name: String,
    /// Matrices are `[in, out]` and used as `x W + b`, row-major.
    pub shape: Vec<usize>,
    /// Where it starts in the flat buffer.
    pub offset: usize,
    /// How it starts.
    pub init: Init,
    /// Whether the L2 penalty counts it (weight matrices of attention and dense layers).
    pub regularised: bool,
}

impl Parameter {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no values (it always has).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its place in the flat buffer.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// The aggregation block of a model, resolved.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Attention with this rule.
    Attention {
        /// Name of the rule in the registry.
        rule: String,
        /// Heads.
        heads: usize,
        /// Learned gain per head.
        gain: bool,
        /// Learned bias per head.
        bias: bool,
        /// Added to the deviation or norm.
        epsilon: f64,
        /// z = scale * q.k
        scale: f64,
        /// NAP-L2: centre first.
        centre: bool,
        /// LayerNorm on the concatenated heads.
        hidden_norm: bool,
        /// Divide the aggregated vector by sqrt(n).
        rescale: bool,
        /// GELU before the mixing projection.
        gelu: bool,
        /// Forced form; `Auto` chooses the cheaper one.
        form: Auto<AttentionForm>,
    },
    /// Pooling with this name.
    Pooling(String),
    /// A learned mixing matrix over positions.
    Weighted,
}

/// A model's function and parameters, values aside.
#[derive(Debug, Clone, PartialEq)]
pub struct Architecture {
    /// Number of different tokens V.
    pub vocab: usize,
    /// Number of classes of a read-out of classes.
    pub classes: usize,
    /// The longest sequence the position table and read-out allow (N_max).
    pub max_length: usize,
    /// Width d.
    pub dim: usize,
    /// Hidden width f of the feed-forward block.
    pub feed_forward: usize,
    /// Number of layers.
    pub layers: usize,
    /// The aggregation block.
    pub block: Block,
    /// Where each block's LayerNorm sits.
    pub norm_placement: NormPlacement,
    /// Positions.
    pub positions: Positions,
    /// A table `[rows, d]` in place of the computed sinusoids.
    pub fixed_positions: Option<Vec<f32>>,
    /// How masked tokens are left out.
    pub masking: Masking,
    /// Dropout rate.
    pub dropout: f64,
    /// Read-out.
    pub readout: Readout,
    /// The parameters, in the order of the flat buffer.
    pub parameters: Vec<Parameter>,
}

/// LayerNorm's epsilon, inside the square root.
pub const LAYER_NORM_EPSILON: f64 = 1e-3;

/// Deviation of initial weights before truncation, times `init_factor`.
const INIT_DEVIATION: f64 = 0.02;

impl Architecture {
    /// Resolves a model on a task.
    ///
    /// # Errors
    /// If the model's or the task's own values cannot be used.
    pub fn new(model: &ModelConfig, task: &TaskConfig) -> Result<Self, ConfigError> {
        model.validate()?;
        let positions = model.positions(task);
        let (vocab, classes) = (task.vocab, task.classes());
        Self::from_parts(model, positions, vocab, classes, task.length, task.readout())
    }

    /// Resolves a model for a vocabulary, a number of classes, a longest sequence and a read-out
    /// of one's own.
    ///
    /// # Errors
    /// If the model's own values cannot be used.
    pub fn from_parts(
        model: &ModelConfig,
        positions: Positions,
        vocab: usize,
        classes: usize,
        max_length: usize,
        readout: Readout,
    ) -> Result<Self, ConfigError> {
        model.validate()?;
        let block = match aggregate::find::<f32>(&model.aggregator) {
            Some(Kind::Attention(rule)) => {
                let default = rule.defaults();
                let scaled = model.logit_scale.unwrap_or_else(|| {
                    if default.scaled { LogitScale::Sqrt } else { LogitScale::None }
                });
                let head_dim = model.dim / model.heads;
                Block::Attention {
                    rule: model.aggregator.clone(),
                    heads: model.heads,
                    gain: model.gain.unwrap_or_else(|| default.gain),
                    bias: model.bias.unwrap_or_else(|| default.bias),
                    epsilon: model.epsilon.unwrap_or_else(|| default.epsilon),
                    scale: match scaled {
                        LogitScale::None => 1.0,
                        LogitScale::Sqrt => 1.0 / (head_dim as f64).sqrt(),
                    },
                    centre: model.centre,
                    hidden_norm: default.hidden_norm
                        && model.norm_placement == NormPlacement::BeforeSkip,
                    rescale: default.rescale,
                    gelu: model.attention_gelu,
                    form: model.form,
                }
            }
            Some(Kind::Pooling(_)) => Block::Pooling(model.aggregator.clone()),
            // validate() has refused unknown names.
            Some(Kind::Weighted) | None => Block::Weighted,
        };
        let attention = matches!(block, Block::Attention { .. });
        let feed_forward = model
            .feed_forward
            .unwrap_or_else(|| if attention { 4 * model.dim } else { 6 * model.dim + 1 });
        let mut architecture = Self {
            vocab,
            classes,
            max_length,
            dim: model.dim,
            feed_forward,
            layers: model.layers,
            block,
            norm_placement: model.norm_placement,
            positions,
            fixed_positions: None,
            masking: model.masking,
            dropout: model.dropout,
            readout,
            parameters: Vec::new(),
        };
        architecture.list_parameters(model.init_factor * INIT_DEVIATION);
        Ok(architecture)
    }

    /// Width of the read-out: 1, the longest sequence, or the number of classes.
    pub fn readout_width(&self) -> usize {
        match self.readout {
            Readout::PerToken => 1,
            Readout::FirstTokenPosition | Readout::EachTokenPosition => self.max_length,
            Readout::FirstTokenClass | Readout::EachTokenClass => self.classes,
        }
    }

    /// The fixed positions of sequences up to `length`: `[length, d]`; empty without sinusoids.
    ///
    /// # Panics
    /// If [`Architecture::fixed_positions`] has fewer rows.
    pub fn sinusoids(&self, length: usize) -> Vec<f32> {
        match (self.positions, &self.fixed_positions) {
            (Positions::Sinusoidal, Some(table)) => table[..length * self.dim].to_vec(),
            (Positions::Sinusoidal, None) => positions::sinusoids(length, self.dim),
            (Positions::None | Positions::Learned, _) => Vec::new(),
        }
    }

    /// Number of values in the flat buffer.
    pub fn parameter_count(&self) -> usize {
        self.parameters.last().map_or(0, |p| p.range().end)
    }

    /// The parameter of this name.
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|p| p.name == name)
    }

    /// Where the parameters of a dense layer, a norm or a head scalar lie: everything called
    /// `name` or `name.…`, which is contiguous. `None` if the model has no such parameter.
    pub fn find_range(&self, name: &str) -> Option<std::ops::Range<usize>> {
        let belongs = |p: &&Parameter| {
            p.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let mut parts = self.parameters.iter().filter(belongs);
        let first = parts.next()?;
        Some(first.offset..parts.next_back().unwrap_or(first).range().end)
    }

    /// [`Architecture::find_range`] for parameters every model of this kind has.
    pub(crate) fn range(&self, name: &str) -> std::ops::Range<usize> {
        self.find_range(name).unwrap_or_else(|| unreachable!("no parameter {name}"))
    }

    fn list_parameters(&mut self, deviation: f64) {
        use Init::{Constant, TruncatedNormal};
        let (d, f, n) = (self.dim, self.feed_forward, self.max_length);
        let mut list = List::default();
        list.add("embedding.weight", &[self.vocab, d], TruncatedNormal(deviation), false);
        if self.positions == Positions::Learned {
            let init = TruncatedNormal(INIT_DEVIATION);
            list.add("position_embedding.weight", &[n, d], init, false);
        }
        for layer in 0..self.layers {
            let at = |name: &str| format!("layer.{layer}.{name}");
            match &self.block {
                Block::Attention { heads, gain, bias, hidden_norm, .. } => {
                    for name in ["query", "key", "value", "mix"] {
                        list.dense(&at(&format!("attention.{name}")), d, d, deviation);
                    }
                    if *gain {
                        list.add(&at("attention.gain"), &[*heads], Constant(1.0), false);
                    }
                    if *bias {
                        list.add(&at("attention.bias"), &[*heads], Constant(0.0), false);
                    }
                    if *hidden_norm {
                        list.norm(&at("attention.hidden_norm"), d);
                    }
                }
                Block::Pooling(_) => {}
                Block::Weighted => list.dense(&at("pool"), n, n, deviation),
            }
            list.norm(&at("norm1"), d);
            list.dense(&at("ff.in"), d, f, deviation);
            if self.norm_placement == NormPlacement::BeforeSkip {
                list.norm(&at("ff.hidden_norm"), f);
            }
            list.dense(&at("ff.out"), f, d, deviation);
            list.norm(&at("norm2"), d);
        }
        list.dense("head", d, self.readout_width(), deviation);
        self.parameters = list.parameters;
    }
}

#[derive(Default)]
struct List {
    parameters: Vec<Parameter>,
    end: usize,
}

impl List {
    fn add(&mut self, name: &str, shape: &[usize], init: Init, regularised: bool) {
        let parameter = Parameter {
            name: name.to_owned(),
            shape: shape.to_vec(),
            offset: self.end,
            init,
            regularised,
        };
        self.end = parameter.range().end;
        self.parameters.push(parameter);
    }

    fn dense(&mut self, name: &str, input: usize, output: usize, deviation: f64) {
        let init = Init::TruncatedNormal(deviation);
        self.add(&format!("{name}.weight"), &[input, output], init, true);
        self.add(&format!("{name}.bias"), &[output], Init::Constant(0.0), false);
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.add(&format!("{name}.gamma"), &[width], Init::Constant(1.0), false);
        self.add(&format!("{name}.beta"), &[width], Init::Constant(0.0), false);
    }
}
