//! A causal character model, trained on this project's own documentation, that writes more of it.
//! What it keeps of the text so far does not grow with the text.
//!
//!     cargo run --release --example characters -- [steps] [characters]

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use nap_burn::{EncoderLayer, EncoderLayerConfig, NapState};
use nap_engine::random::{Purpose, Stream};

const WIDTH: usize = 96;
const HEADS: usize = 4;
const LAYERS: usize = 2;
/// Each token knows this many characters: a table of embeddings for each. Attention without
/// positions adds what came before them.
const WINDOW: usize = 8;
const LENGTH: usize = 256;
const BATCH: usize = 8;

#[derive(Module, Debug)]
struct Characters {
    embedding: Embedding,
    layers: Vec<EncoderLayer>,
    head: Linear,
}

impl Characters {
    fn new(vocab: usize, device: &Device) -> Self {
        // Wider than the paper's initial weights, which suit longer training.
        let initializer = LinearConfig::new(WIDTH, WIDTH).initializer;
        let layer = EncoderLayerConfig::new(WIDTH, HEADS).with_initializer(initializer);
        let deviation = (WINDOW as f64).sqrt().recip();
        let initializer = Initializer::Normal { mean: 0.0, std: deviation };
        let embedding = EmbeddingConfig::new(WINDOW * vocab, WIDTH).with_initializer(initializer);
        Self {
            embedding: embedding.init(device),
            layers: (0..LAYERS).map(|_| layer.init(device)).collect(),
            head: LinearConfig::new(WIDTH, vocab).init(device),
        }
    }

    /// `[batch, n, WINDOW]`, windows of characters, to `[batch, n, WIDTH]`.
    fn embed(&self, windows: Tensor<3, Int>) -> Tensor<3> {
        let [batch, n, window] = windows.dims();
        let x = self.embedding.forward(windows.reshape([batch, n * window]));
        x.reshape([batch, n, window, WIDTH]).sum_dim(2).squeeze_dim(2)
    }

    fn forward(&self, windows: Tensor<3, Int>) -> Tensor<3> {
        let x = self.embed(windows);
        self.head.forward(self.layers.iter().fold(x, |x, layer| layer.forward_causal(x)))
    }

    fn step(&self, windows: Tensor<3, Int>, states: &mut [NapState]) -> Tensor<3> {
        let x = self.embed(windows);
        let layers = self.layers.iter().zip(states);
        self.head.forward(layers.fold(x, |x, (layer, state)| layer.step(x, state)))
    }
}

/// The rows of the embedding that each place's window looks up: character c at distance k is row
/// `k vocab + c`.
fn windows(text: &[usize], from: usize, n: usize, vocab: usize) -> Vec<i64> {
    let window = |t: usize| (0..WINDOW).map(move |k| (k * vocab + text[t - k]) as i64);
    (from..from + n).flat_map(window).collect()
}

/// README and `docs/`, in the order of their names.
fn documentation() -> std::io::Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for entry in std::fs::read_dir(root.join("docs"))? {
        pages.push(entry?.path());
    }
    pages.retain(|page| page.extension().is_some_and(|e| e == "md"));
    pages.sort();
    pages.iter().map(std::fs::read_to_string).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let steps = arguments.next().unwrap_or(Ok(1000))?;
    let characters = arguments.next().unwrap_or(Ok(600))?;

    let text = documentation()?;
    let mut alphabet = BTreeMap::new();
    text.chars().for_each(|c| *alphabet.entry(c).or_insert(0) += 1);
    // Rare characters are one.
    alphabet.retain(|_, count| *count > 20);
    let alphabet: Vec<char> = alphabet.into_keys().collect();
    let vocab = alphabet.len() + 1;
    let index = |c: char| alphabet.binary_search(&c).unwrap_or(alphabet.len());
    let text: Vec<usize> = text.chars().map(index).collect();
    println!("{} characters, {vocab} different", text.len());

    let device = Device::flex().autodiff();
    device.seed(1);
    let mut model = Characters::new(vocab, &device);
    let mut adam = AdamConfig::new().init();
    let cross_entropy = CrossEntropyLossConfig::new().init(&device);
    let mut stream = Stream::new(1, Purpose::Training, 0, 0);
    for step in 0..steps {
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..BATCH {
            let room = (text.len() - LENGTH - WINDOW) as u32;
            let from = WINDOW + stream.below(room) as usize;
            inputs.extend(windows(&text, from, LENGTH, vocab));
            targets.extend(text[from + 1..from + LENGTH + 1].iter().map(|&c| c as i64));
        }
        let inputs = TensorData::new(inputs, [BATCH, LENGTH, WINDOW]);
        let targets = TensorData::new(targets, [BATCH * LENGTH]);
        let logits = model.forward(Tensor::from_data(inputs, &device));
        let logits = logits.reshape([BATCH * LENGTH, vocab]);
        let loss = cross_entropy.forward(logits, Tensor::<1, Int>::from_data(targets, &device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let rate = 3e-3 * (1.0 - step as f64 / steps as f64);
        model = adam.step(rate, model, gradients);
        if step % 50 == 0 || step + 1 == steps {
            let bits = f64::from(loss.into_scalar::<f32>()) / 2f64.ln();
            println!("step {step}: {bits:.2} bits per character");
        }
    }

    // Without gradients, so that the states have no history.
    let (model, device) = (model.valid(), device.inner());
    let mut states = vec![NapState::default(); LAYERS];
    let mut written: Vec<usize> = text[..WINDOW].to_vec();
    let look = |written: &[usize]| {
        let window = windows(written, written.len() - 1, 1, vocab);
        Tensor::from_data(TensorData::new(window, [1, 1, WINDOW]), &device)
    };
    while written.len() < characters {
        let logits = model.step(look(&written), &mut states);
        // A little colder than it learnt, for fewer slips.
        let chances = softmax(logits.reshape([1, vocab]) / 0.7, 1);
        let chances = chances.try_into_vec_as::<f64>()?;
        let mut left = stream.uniform();
        let drawn = chances.iter().position(|chance| {
            left -= chance;
            left < 0.0
        });
        written.push(drawn.unwrap_or(vocab - 1));
    }
    let character = |&c: &usize| alphabet.get(c).unwrap_or(&'?');
    println!("{}", written.iter().map(character).collect::<String>());
    Ok(())
}
