//! The program's checkpoints as an [`Encoder`].

use burn::module::Param;
use burn::nn::{LayerNorm, Linear};
use burn::tensor::{Device, Tensor, TensorData};
use nap_engine::config::{NormPlacement, Positions};
use nap_engine::model::architecture::{Architecture, Block};
use nap_engine::train::Trained;

use crate::{Encoder, EncoderConfig, EncoderLayerConfig};

/// Why a checkpoint cannot be used, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

impl Encoder {
    /// Reads a checkpoint of the program `nap` (`best.safetensors` or `last.safetensors` of a run
    /// directory), given as the file's bytes.
    ///
    /// # Errors
    /// If the bytes are no such checkpoint, or the model is another than NAP in the paper's
    /// layout: another aggregator, `norm_placement = "after-skip"` or sinusoidal positions.
    pub fn from_checkpoint(bytes: &[u8], device: &Device) -> Result<Self, LoadError> {
        let trained = Trained::read(bytes).map_err(|error| LoadError(error.to_string()))?;
        Self::from_parameters(&trained.architecture, &trained.parameters, device)
    }

    /// The model that the engine would compute with these parameters, in the engine's flat order.
    ///
    /// # Errors
    /// If the model is another than NAP in the paper's layout.
    ///
    /// # Panics
    /// If there are not as many values as the architecture has parameters.
    pub fn from_parameters(
        architecture: &Architecture,
        parameters: &[f32],
        device: &Device,
    ) -> Result<Self, LoadError> {
        assert_eq!(parameters.len(), architecture.parameter_count(), "number of parameters");
        let mut model = config(architecture)?.init(device);
        let values = Values { architecture, parameters, device };
        model.embedding.weight = values.get("embedding.weight");
        if let Some(positions) = &mut model.position_embedding {
            *positions = values.get("position_embedding.weight");
        }
        for (i, layer) in model.layers.iter_mut().enumerate() {
            let at = |name: &str| format!("layer.{i}.{name}");
            let attention = &mut layer.attention;
            values.dense(&at("attention.query"), &mut attention.query);
            values.dense(&at("attention.key"), &mut attention.key);
            values.dense(&at("attention.value"), &mut attention.value);
            values.dense(&at("attention.mix"), &mut attention.output);
            if let Some(gain) = &mut attention.gain {
                *gain = values.get(&at("attention.gain"));
            }
            if let Some(bias) = &mut attention.bias {
                *bias = values.get(&at("attention.bias"));
            }
            if let Some(norm) = &mut attention.norm {
                values.norm(&at("attention.hidden_norm"), norm);
            }
            values.norm(&at("norm1"), &mut layer.norm1);
            values.dense(&at("ff.in"), &mut layer.ff_in);
            values.norm(&at("ff.hidden_norm"), &mut layer.ff_norm);
            values.dense(&at("ff.out"), &mut layer.ff_out);
            values.norm(&at("norm2"), &mut layer.norm2);
        }
        values.dense("head", &mut model.head);
        Ok(model)
    }
}

/// The configuration of the same model, if an [`Encoder`] can be one.
fn config(architecture: &Architecture) -> Result<EncoderConfig, LoadError> {
    let Architecture { dim, vocab, max_length, readout, .. } = *architecture;
    let refuse = |found: &str, expected: &str| {
        Err(LoadError(format!("its model has {found}; an encoder is read with {expected}")))
    };
    let Block::Attention { rule, heads, gain, bias, epsilon, scale, gelu, .. } =
        &architecture.block
    else {
        return refuse("no attention", "the aggregator `normalized`");
    };
    if rule != "normalized" {
        return refuse(&format!("the aggregator `{rule}`"), "`normalized`");
    }
    if architecture.norm_placement != NormPlacement::BeforeSkip {
        return refuse("norm_placement `after-skip`", "`before-skip`");
    }
    if architecture.positions == Positions::Sinusoidal {
        return refuse("sinusoidal positions", "learned positions or none");
    }
    let layer = EncoderLayerConfig::new(dim, *heads)
        .with_d_ff(Some(architecture.feed_forward))
        .with_dropout(architecture.dropout)
        .with_attention_gelu(*gelu)
        .with_gain(*gain)
        .with_bias(*bias)
        .with_epsilon(*epsilon)
        .with_logit_scale(*scale);
    Ok(EncoderConfig::new(vocab, layer, architecture.layers, max_length, readout)
        .with_classes(Some(architecture.classes))
        .with_positions(architecture.positions == Positions::Learned))
}

/// Parameters by name.
struct Values<'a> {
    architecture: &'a Architecture,
    parameters: &'a [f32],
    device: &'a Device,
}

impl Values<'_> {
    fn get<const D: usize>(&self, name: &str) -> Param<Tensor<D>> {
        let parameter = self.architecture.parameter(name);
        let parameter = parameter.unwrap_or_else(|| unreachable!("no parameter {name}"));
        let values = self.parameters[parameter.range()].to_vec();
        let data = TensorData::new(values, parameter.shape.clone());
        Param::from_data(data, self.device)
    }

    fn dense(&self, name: &str, layer: &mut Linear) {
        layer.weight = self.get(&format!("{name}.weight"));
        layer.bias = Some(self.get(&format!("{name}.bias")));
    }

    fn norm(&self, name: &str, layer: &mut LayerNorm) {
        layer.gamma = self.get(&format!("{name}.gamma"));
        layer.beta = Some(self.get(&format!("{name}.beta")));
    }
}
