//! The paper's names: each is a preset of layout, aggregator and options.

use crate::config::{Auto, NormPlacement, RunConfig};

/// A named model: the settings that `model.name` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Name, as `--model` takes it.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Aggregator in [`crate::kernels::aggregate`].
    pub aggregator: &'static str,
    /// Layout of the skip connections.
    pub norm_placement: NormPlacement,
    /// GELU in the attention block.
    pub attention_gelu: bool,
    /// Warm-up of the learning rate.
    pub warmup: bool,
    /// Gradient clipping.
    pub clip: bool,
}

impl Family {
    /// Gives the run this family's layout, aggregator and training switches; sizes stay.
    pub fn apply(&self, run: &mut RunConfig) {
        let model = &mut run.model;
        model.name = self.name.to_owned();
        model.aggregator = self.aggregator.to_owned();
        model.norm_placement = self.norm_placement;
        model.attention_gelu = self.attention_gelu;
        model.feed_forward = Auto::Auto;
        model.gain = Auto::Auto;
        model.bias = Auto::Auto;
        model.epsilon = Auto::Auto;
        model.logit_scale = Auto::Auto;
        model.form = Auto::Auto;
        model.centre = false;
        run.train.warmup = self.warmup;
        run.train.clip = self.clip;
    }
}

const fn inner(name: &'static str, aggregator: &'static str, summary: &'static str) -> Family {
    Family {
        name,
        summary,
        aggregator,
        norm_placement: NormPlacement::BeforeSkip,
        attention_gelu: true,
        warmup: false,
        clip: false,
    }
}

/// Every named model.
pub const FAMILIES: [Family; 9] = [
    inner("nap", "normalized", "normalized attention pooling, as the authors' program computes it"),
    inner("nap-l2", "normalized-l2", "normalized attention pooling, as the paper's text states it"),
    inner("non", "no-norm", "NAP without the normalisation of logits"),
    inner("mte", "softmax", "modified transformer encoder: NAP's architecture with softmax"),
    Family {
        name: "bert",
        summary: "softmax transformer encoder in BERT's arrangement, with warm-up and clipping",
        aggregator: "softmax",
        norm_placement: NormPlacement::AfterSkip,
        attention_gelu: false,
        warmup: true,
        clip: true,
    },
    inner("sum", "sum", "sum pooling, wider feed-forward blocks"),
    inner("max", "max", "max pooling, wider feed-forward blocks"),
    inner("mean", "mean", "mean pooling, wider feed-forward blocks"),
    inner("weighted", "weighted", "a learned mixing matrix over positions; one length only"),
];

/// The named model, if there is one.
pub fn find(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}
