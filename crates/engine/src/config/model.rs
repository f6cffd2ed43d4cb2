//! The keys of `[model]`.

use serde::{Deserialize, Serialize};

use super::{Auto, ConfigError, TaskConfig, TaskName, range};
use crate::kernels::aggregate;
use crate::model::family;

/// Where a block's LayerNorm sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// `x + LN(block(x))`, with a LayerNorm inside each block before its GELU.
    BeforeSkip,
    /// `LN(x + block(x))`, no inner LayerNorms (BERT).
    AfterSkip,
}

/// What tells a model where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// No positions: the model treats a sequence as a set.
    None,
    /// A learned vector per position.
    Learned,
    /// Fixed sinusoids in the authors' form.
    Sinusoidal,
}

/// How masked tokens are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Masking {
    /// Masked tokens take no part in any aggregate or count, and nothing else changes.
    Clean,
    /// As the authors' program: pooling sets masked tokens' own stream to 0 (sum, mean) or takes
    /// 1e9 off it (max), and NON divides by the root of the full length.
    Reference,
}

/// What logits are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogitScale {
    /// z = q.k
    None,
    /// z = q.k / sqrt(d_h)
    Sqrt,
}

/// Which form of a rule computes the aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionForm {
    /// The n x n weights, row by row.
    Quadratic,
    /// The exact linear-time form, for the rules that have one (needs attention dropout 0).
    Linear,
}

/// A model: layout x aggregator x options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// What the model is called in tables; see [`crate::model::family`].
    pub name: String,
    /// An attention rule or pooling of [`crate::kernels::aggregate`].
    pub aggregator: String,
    /// Width d of a token's vector.
    pub dim: usize,
    /// Number of layers L.
    pub layers: usize,
    /// Attention heads; divides `dim`. Ignored by poolings.
    pub heads: usize,
    /// Hidden width of the feed-forward block: 4d for attention, 6d + 1 for poolings
    /// (which matches the parameter count).
    pub feed_forward: Auto<usize>,
    /// Where a block's LayerNorm sits.
    pub norm_placement: NormPlacement,
    /// GELU between the aggregated heads and the mixing projection.
    pub attention_gelu: bool,
    /// A learned gain per head.
    pub gain: Auto<bool>,
    /// A learned bias per head.
    pub bias: Auto<bool>,
    /// Added to the deviation (or norm) a row of logits is divided by.
    pub epsilon: Auto<f64>,
    /// What logits are multiplied by.
    pub logit_scale: Auto<LogitScale>,
    /// NAP-L2 only: subtract the row's mean before dividing by its norm.
    pub centre: bool,
    /// Quadratic or linear-time attention.
    pub form: Auto<AttentionForm>,
    /// Positions: learned, or none for mode.
    pub positions: Auto<Positions>,
    /// How masked tokens are left out, where a batch has a mask.
    pub masking: Masking,
    /// Dropout rate: on the embeddings, on attention weights, on each block's output.
    pub dropout: f64,
    /// The initial deviation of weights is 0.02 times this.
    pub init_factor: f64,
}

impl ModelConfig {
    /// Checks the model's own values.
    ///
    /// # Errors
    /// The first key that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if family::find(&self.name).is_none() {
            let known: Vec<_> = family::FAMILIES.iter().map(|f| f.name).collect();
            let known = format!("one of {}", known.join(", "));
            return Err(ConfigError::new("model.name", &self.name, known));
        }
        let kind = aggregate::find::<f32>(&self.aggregator).ok_or_else(|| {
            let known = format!("one of {}", aggregate::names().join(", "));
            ConfigError::new("model.aggregator", &self.aggregator, known)
        })?;
        range("model.dim", self.dim, 1, 65_536)?;
        range("model.layers", self.layers, 1, 1024)?;
        range("model.heads", self.heads, 1, 65_536)?;
        if let Auto::Value(width) = self.feed_forward {
            range("model.feed_forward", width, 1, 1 << 20)?;
        }
        let attention = matches!(kind, aggregate::Kind::Attention(_));
        if attention && !self.dim.is_multiple_of(self.heads) {
            let expected = format!("a divisor of model.dim = {}", self.dim);
            return Err(ConfigError::new("model.heads", self.heads, expected));
        }
        if let Auto::Value(epsilon) = self.epsilon
            && !(epsilon >= 0.0 && epsilon.is_finite())
        {
            return Err(ConfigError::new("model.epsilon", epsilon, "a number >= 0"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ConfigError::new("model.dropout", self.dropout, "a rate in [0, 1)"));
        }
        if !(self.init_factor > 0.0 && self.init_factor.is_finite()) {
            return Err(ConfigError::new("model.init_factor", self.init_factor, "a number > 0"));
        }
        if self.form == Auto::Value(AttentionForm::Linear) {
            if !attention || !aggregate::has_linear_form(&self.aggregator) {
                return Err(ConfigError::new(
                    "model.form",
                    "linear",
                    format!("quadratic or auto: {} has no linear-time form", self.aggregator),
                ));
            }
            if self.dropout > 0.0 {
                return Err(ConfigError::new(
                    "model.form",
                    "linear",
                    "quadratic or auto: attention dropout needs the weights",
                ));
            }
        }
        Ok(())
    }

    /// The positions this model uses on this task.
    pub fn positions(&self, task: &TaskConfig) -> Positions {
        self.positions.unwrap_or_else(|| match task.name {
            TaskName::Mode => Positions::None,
            _ => Positions::Learned,
        })
    }
}
