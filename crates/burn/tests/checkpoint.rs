//! What the engine trained, read as an encoder, gives the engine's logits; bad files are refused
//! in one line.

mod common;

use burn::tensor::{Device, Int, Tensor, TensorData};
use common::{error, numbers, parameters, stream};
use nap_burn::Encoder;
use nap_engine::config::{
    Auto, CasesReadout, LogitScale, NormPlacement, Positions, Precision, Readout, RunConfig,
    TaskName,
};
use nap_engine::model::architecture::Architecture;
use nap_engine::model::{Model, family};
use nap_engine::task::Batch;
use nap_engine::train::{Trained, Trainer};

fn config(task: TaskName) -> RunConfig {
    let mut config = RunConfig::quickstart();
    (config.task.name, config.task.length, config.task.vocab) = (task, 40, 70);
    (config.model.dim, config.model.layers, config.model.heads) = (12, 2, 3);
    // Far from the initial weights' near zero logits, after few steps.
    config.model.init_factor = 20.0;
    config.train.batch = 4;
    config
}

/// A checkpoint after a few steps.
fn checkpoint(config: RunConfig) -> Vec<u8> {
    trained(config).weights()
}

fn trained(config: RunConfig) -> Trainer {
    let mut trainer = Trainer::new(config).expect("a run");
    for _ in 0..3 {
        trainer.step();
    }
    trainer
}

/// The engine's logits and the encoder's.
fn both(bytes: &[u8], length: usize) -> [Vec<f64>; 2] {
    let Trained { architecture, parameters, .. } = Trained::read(bytes).expect("a checkpoint");
    let encoder = Encoder::from_checkpoint(bytes, &Device::flex()).expect("an encoder");
    logits(&encoder, &architecture, &parameters, length)
}

fn logits(
    encoder: &Encoder,
    architecture: &Architecture,
    parameters: &[f32],
    length: usize,
) -> [Vec<f64>; 2] {
    let (s, batch) = (&mut stream(length as u64), 3);
    let vocab = architecture.vocab as u32;
    let tokens: Vec<u32> = (0..batch * length).map(|_| s.below(vocab)).collect();
    let mut model = Model::<f32>::new(architecture.clone(), length, Precision::F32);
    let mut logits = Vec::new();
    let ids: Vec<i64> = tokens.iter().map(|&x| x.into()).collect();
    let input =
        Batch { tokens, length, targets: vec![0; batch * length], weights: None, mask: None };
    model.logits(parameters, &input, &mut logits);

    let device = Device::flex();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [batch, length]), &device);
    let ours = numbers(encoder.forward(ids, None));
    [logits.into_iter().map(f64::from).collect(), ours]
}

#[test]
fn checkpoints_give_the_engines_logits() {
    let mut first = config(TaskName::Cases);
    first.task.readout = CasesReadout::FirstToken;
    let mut odd = config(TaskName::Mode);
    odd.model.gain = Auto::Value(false);
    odd.model.bias = Auto::Value(false);
    odd.model.epsilon = Auto::Value(0.05);
    odd.model.logit_scale = Auto::Value(LogitScale::Sqrt);
    odd.model.feed_forward = Auto::Value(7);
    odd.model.attention_gelu = false;
    let configs =
        [config(TaskName::Cases), first, config(TaskName::Lg), config(TaskName::Mode), odd];
    for config in configs {
        let bytes = checkpoint(config.clone());
        for length in [5, 40] {
            let [engine, ours] = both(&bytes, length);
            let error = error(&ours, &engine);
            assert!(error < 2e-5, "{:?} at length {length}: {error:.1e}", config.task);
        }
    }
}

/// Fewer classes than tokens, for the sequence and for each token.
#[test]
fn classes_are_read_as_the_engine_does() {
    let RunConfig { model, .. } = config(TaskName::Mode);
    for readout in [Readout::FirstTokenClass, Readout::EachTokenClass] {
        let architecture = Architecture::from_parts(&model, Positions::Learned, 70, 5, 40, readout);
        let architecture = architecture.expect("a model");
        let s = &mut stream(1);
        let parameters: Vec<f32> =
            (0..architecture.parameter_count()).map(|_| 0.4 * s.normal() as f32).collect();
        let encoder = Encoder::from_parameters(&architecture, &parameters, &Device::flex());
        let encoder = encoder.expect("an encoder");
        let [engine, ours] = logits(&encoder, &architecture, &parameters, 30);
        let error = error(&ours, &engine);
        assert!(error < 2e-5, "{readout:?}: {error:.1e}");
    }
}

#[test]
fn a_resumable_checkpoint_is_read_as_well() {
    let trainer = trained(config(TaskName::Mode));
    let read = |bytes: &[u8]| Encoder::from_checkpoint(bytes, &Device::flex()).expect("an encoder");
    let [best, last] = [trainer.weights(), trainer.checkpoint()].map(|bytes| read(&bytes));
    assert_eq!(parameters(&best), parameters(&last));
    let widened: Vec<_> = trainer.parameters().iter().map(|&x| f64::from(x)).collect();
    assert_eq!(parameters(&best), widened);
}

#[test]
fn bad_files_are_refused_in_one_line() {
    let refuse = |bytes: &[u8]| {
        let error = Encoder::from_checkpoint(bytes, &Device::flex()).expect_err("a bad file");
        let text = error.to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    let good = checkpoint(config(TaskName::Mode));
    for cut in [0, 7, 100, good.len() - 1] {
        assert!(refuse(&good[..cut]).contains("not a whole safetensors file"));
    }
    let foreign =
        safetensors::serialize(Vec::<(String, safetensors::tensor::TensorView)>::new(), None);
    assert!(refuse(&foreign.expect("a file")).contains("not written by nap"));

    let changed = |change: &dyn Fn(&mut RunConfig)| {
        let mut config = config(TaskName::Mode);
        change(&mut config);
        refuse(&checkpoint(config))
    };
    let model =
        |name: &'static str| changed(&|config| family::find(name).expect("a model").apply(config));
    assert!(model("mte").contains("aggregator `softmax`"));
    assert!(model("nap-l2").contains("aggregator `normalized-l2`"));
    assert!(model("sum").contains("no attention"));
    let placement = changed(&|config| config.model.norm_placement = NormPlacement::AfterSkip);
    assert!(placement.contains("after-skip"), "{placement}");
    let positions = changed(&|config| config.model.positions = Auto::Value(Positions::Sinusoidal));
    assert!(positions.contains("sinusoidal positions"), "{positions}");
}
