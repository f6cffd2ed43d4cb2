//! How many floating-point operations a model takes.

use super::architecture::{Architecture, Block};
use crate::config::{AttentionForm, Auto, Readout};
use crate::kernels::aggregate::linear::Linear;
use crate::kernels::aggregate::{self, Kind};

impl Architecture {
    /// Operations of the forward pass of one sequence of n tokens, a multiplication and an
    /// addition counted as two: the matrix products, and for poolings the aggregate. A training
    /// step takes three times as many, what it computes again not counted, and acts with
    /// `dropout`, which needs the quadratic form. Pointwise work (LayerNorm, GELU, softmax) is
    /// not counted.
    ///
    /// Attention: 8 n d^2 for the projections, and 4 n^2 d for the aggregate (quadratic form),
    /// 8 n d d_h (linear form with statistics) or 4 n d d_h (without). Feed-forward: 4 n d f.
    pub fn forward_flops(&self, length: usize, dropout: bool) -> f64 {
        let [n, d, f] = [length, self.dim, self.feed_forward].map(|size| size as f64);
        let aggregation = match &self.block {
            Block::Attention { heads, form, rule, .. } => {
                let width = self.dim / heads;
                let linear = match aggregate::find::<f32>(rule) {
                    Some(Kind::Attention(rule)) if !dropout => rule.linear(),
                    _ => None,
                };
                let wanted = match form {
                    Auto::Auto => length >= 2 * width,
                    Auto::Value(form) => *form == AttentionForm::Linear,
                };
                let aggregate = match linear.filter(|_| wanted) {
                    None => 4.0 * n * n * d,
                    Some(Linear::Standardised) => 8.0 * n * d * width as f64,
                    Some(Linear::Plain) => 4.0 * n * d * width as f64,
                };
                8.0 * n * d * d + aggregate
            }
            Block::Pooling(_) => n * d,
            Block::Weighted => 2.0 * n * n * d,
        };
        let readout = match self.readout {
            Readout::PerToken => 2.0 * n * d,
            // Cut to the sequence.
            Readout::FirstTokenPosition => 2.0 * d * n,
            Readout::EachTokenPosition => 2.0 * n * d * n,
            Readout::FirstTokenClass => 2.0 * d * self.classes as f64,
            Readout::EachTokenClass => 2.0 * n * d * self.classes as f64,
        };
        self.layers as f64 * (aggregation + 4.0 * n * d * f) + readout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::model::family;

    fn default_step(change: impl Fn(&mut RunConfig)) -> f64 {
        let mut config = RunConfig::paper();
        change(&mut config);
        let architecture = Architecture::new(&config.model, &config.task).unwrap();
        3.0 * 32.0 * architecture.forward_flops(128, config.model.dropout > 0.0)
    }

    #[test]
    fn the_default_step_is_about_ten_gflop() {
        // 2 layers: projections, linear aggregate, feed-forward; per-token read-out.
        let (n, d) = (128.0, 128.0);
        let layer = 8.0 * n * d * d + 8.0 * n * d * 32.0 + 16.0 * n * d * d;
        assert_eq!(default_step(|_| {}), 96.0 * (2.0 * layer + 2.0 * n * d));
        assert!((10e9..11e9).contains(&default_step(|_| {})));
    }

    #[test]
    fn forms_rules_and_poolings_differ_as_their_formulas_do() {
        let of = |name: &str| default_step(|config| family::find(name).unwrap().apply(config));
        let (n, d) = (128.0, 128.0);
        let unit = 96.0 * 2.0 * n * d; // 2 layers
        assert_eq!(of("mte") - of("nap"), unit * (4.0 * n - 8.0 * 32.0));
        assert_eq!(of("nap") - of("non"), unit * 4.0 * 32.0);
        assert_eq!(of("weighted") - of("sum"), unit * (2.0 * n - 1.0));
        let dropout = default_step(|config| config.model.dropout = 0.1);
        assert_eq!(dropout, of("mte"), "attention dropout needs the quadratic form");
    }
}
