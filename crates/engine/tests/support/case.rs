//! A golden case file as a model, a batch and what they should give.

use nap_engine::config::{
    AttentionForm, Auto, Masking, NormPlacement, Positions, Readout, RunConfig,
};
use nap_engine::model::architecture::Architecture;
use nap_engine::model::family;
use nap_engine::optim::{Adam, clip};
use nap_engine::real::Real;
use nap_engine::task::Batch;

use super::GoldenFile;

/// A case.
pub struct Case {
    pub file: GoldenFile,
    pub architecture: Architecture,
    pub batch: Batch,
    pub l2: f64,
    pub clip: bool,
    /// Parameters whose gradient is 0 in exact arithmetic.
    pub zero_gradient: Vec<String>,
}

/// What a forward and backward pass gave.
pub struct Pass<T> {
    pub logits: Vec<T>,
    pub task_loss: f64,
    pub l2_loss: f64,
    pub accuracy: f64,
    /// Of the total loss, before clipping.
    pub gradient: Vec<T>,
    pub embedding_square: f64,
}

impl Case {
    /// Reads a case file; panics on anything in it that is not understood.
    pub fn new(file: GoldenFile, form: Auto<AttentionForm>) -> Self {
        let case = &file.info["case"];
        let number = |key: &str| {
            case[key].as_u64().unwrap_or_else(|| panic!("{}: no {key}", file.name())) as usize
        };
        let flag = |key: &str| case[key].as_bool().unwrap_or_else(|| panic!("no {key}"));
        let text = |key: &str| case[key].as_str().unwrap_or_else(|| panic!("no {key}"));

        let mut run = RunConfig::paper();
        let name = match text("model") {
            "w" => "weighted".to_owned(),
            name => name.to_lowercase(),
        };
        family::find(&name).unwrap_or_else(|| panic!("unknown model {name}")).apply(&mut run);
        let mut model = run.model;
        model.dim = number("d");
        model.heads = number("h");
        model.layers = number("layers");
        model.masking = Masking::Reference;
        model.attention_gelu = !flag("no_gelu");
        model.norm_placement = match flag("bert_ln") {
            true => NormPlacement::AfterSkip,
            false => NormPlacement::BeforeSkip,
        };
        model.form = form;
        let readout = match text("head") {
            "cases" => Readout::PerToken,
            "cases_first" => Readout::FirstTokenPosition,
            "lg" => Readout::EachTokenPosition,
            "mode" => Readout::FirstTokenClass,
            head => panic!("unknown head {head}"),
        };
        let positions = match (text("head"), flag("mask")) {
            ("mode", _) => Positions::None,
            (_, true) => Positions::Sinusoidal,
            (_, false) => Positions::Learned,
        };
        let (vocab, longest) = (number("V"), number("Lmax"));
        let mut architecture =
            Architecture::from_parts(&model, positions, vocab, vocab, longest, readout)
                .expect("a model");
        // An input like any other: it was computed by another library's f32 sine.
        architecture.fixed_positions = file
            .get("const/position_embedding.table")
            .map(|table| table.data.iter().map(|&x| x as f32).collect());
        let batch = Batch {
            tokens: file.tensor("in/ids").indices(),
            length: number("L"),
            targets: file.tensor("in/label_index").indices(),
            weights: None,
            mask: file.get("in/mask").map(|mask| mask.data.iter().map(|&m| m == 1.0).collect()),
        };
        let zero_gradient = file.info["zero_gradient_in_theory"].as_array().expect("a list");
        let zero_gradient =
            zero_gradient.iter().map(|name| name.as_str().expect("a name").to_owned()).collect();
        let (l2, clip) = (case["l2"].as_f64().expect("l2"), flag("clip"));
        let case = Self { architecture, batch, l2, clip, zero_gradient, file };
        case.check_parameters();
        case
    }

    /// Our parameter list is that of the file: names, order and sizes.
    fn check_parameters(&self) {
        let listed = self.file.info["params"].as_array().expect("a list");
        let ours = &self.architecture.parameters;
        assert_eq!(listed.len(), ours.len(), "{}: number of parameters", self.file.name());
        for (theirs, ours) in listed.iter().zip(ours) {
            assert_eq!(theirs[0].as_str(), Some(ours.name.as_str()), "{}", self.file.name());
            let size: u64 =
                theirs[1].as_array().expect("a shape").iter().flat_map(|s| s.as_u64()).product();
            assert_eq!(size as usize, ours.len(), "{}: {}", self.file.name(), ours.name);
        }
    }

    /// The initial weights.
    pub fn weights<T: Real>(&self) -> Vec<T> {
        self.file.tensor("weight").data.iter().map(|&w| T::of(w)).collect()
    }

    /// The gradient that the optimiser is given.
    pub fn clipped<T: Real>(&self, pass: &Pass<T>) -> Vec<T> {
        let mut gradient = pass.gradient.clone();
        if self.clip {
            clip(&self.architecture, &mut gradient, pass.embedding_square);
        }
        gradient
    }

    /// Five updates on the batch, with the file's learning rates: the pass before each, and the
    /// weights after each.
    pub fn train<T: Real>(
        &self,
        mut pass: impl FnMut(&[T]) -> Pass<T>,
    ) -> (Vec<Pass<T>>, Vec<Vec<T>>) {
        let mut weights = self.weights::<T>();
        let mut adam = Adam::new(weights.len());
        let (mut passes, mut after) = (Vec::new(), Vec::new());
        for (step, &rate) in self.file.tensor("lr").data.iter().enumerate() {
            let measured = pass(&weights);
            adam.update(&mut weights, &self.clipped(&measured), rate as f32, step as u64);
            passes.push(measured);
            after.push(weights.clone());
        }
        (passes, after)
    }
}
