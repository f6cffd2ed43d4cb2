//! Random models with parameters and batches, for property tests.

use std::cell::RefCell;
use std::collections::HashMap;

use nap_engine::config::{
    AttentionForm, Auto, LogitScale, Masking, NormPlacement, Positions, Readout, RunConfig,
};
use nap_engine::kernels::aggregate;
use nap_engine::kernels::dropout::{Dropout, Site};
use nap_engine::model::architecture::{Architecture, Block};
use nap_engine::model::family::FAMILIES;
use nap_engine::panel::LANES;
use nap_engine::random::{Purpose, Stream};
use nap_engine::task::Batch;
use nap_engine::train::initial_parameters;

/// A random model on a random batch.
#[derive(Debug, Clone)]
pub struct Setup {
    pub architecture: Architecture,
    pub parameters: Vec<f64>,
    pub batch: Batch,
    pub dropout: Option<Dropout>,
}

/// A stream of test randomness.
pub fn stream(seed: u64) -> Stream {
    Stream::new(seed, Purpose::Evaluation, 0, 0)
}

fn pick<T: Copy>(s: &mut Stream, of: &[T]) -> T {
    of[s.below(of.len() as u32) as usize]
}

impl Setup {
    /// Setup number `seed`. Every switch of a model is drawn; `constant_rows` allows sequences
    /// of one token and repeated tokens, where a row of logits has no deviation.
    pub fn random(seed: u64, constant_rows: bool) -> Self {
        let s = &mut stream(seed);
        let mut run = RunConfig::paper();
        FAMILIES[s.below(FAMILIES.len() as u32) as usize].apply(&mut run);
        let mut model = run.model;
        let weighted = model.aggregator == aggregate::WEIGHTED;
        model.heads = 1 + s.below(3) as usize;
        model.dim = model.heads * (1 + s.below(6) as usize);
        model.layers = 1 + s.below(3) as usize;
        model.norm_placement = pick(s, &[NormPlacement::BeforeSkip, NormPlacement::AfterSkip]);
        model.attention_gelu = s.coin();
        model.gain = pick(s, &[Auto::Auto, Auto::Value(true), Auto::Value(false)]);
        model.bias = pick(s, &[Auto::Auto, Auto::Value(true), Auto::Value(false)]);
        model.epsilon = pick(s, &[Auto::Auto, Auto::Value(0.1)]);
        model.logit_scale =
            pick(s, &[Auto::Auto, Auto::Value(LogitScale::None), Auto::Value(LogitScale::Sqrt)]);
        model.centre = s.coin();
        model.masking = pick(s, &[Masking::Clean, Masking::Reference]);
        model.feed_forward = pick(s, &[Auto::Auto, Auto::Value(5)]);
        model.init_factor = pick(s, &[1.0, 10.0, 30.0]);
        model.dropout = pick(s, &[0.0, 0.0, 0.3]);
        if aggregate::has_linear_form(&model.aggregator) && model.dropout == 0.0 {
            let forms = [AttentionForm::Quadratic, AttentionForm::Linear];
            model.form = Auto::Value(pick(s, &forms));
        }
        let positions = pick(s, &[Positions::None, Positions::Learned, Positions::Sinusoidal]);
        let readouts = [
            Readout::PerToken,
            Readout::FirstTokenPosition,
            Readout::EachTokenPosition,
            Readout::FirstTokenClass,
        ];
        let mut readout = pick(s, &readouts);
        // Classes have a stream of their own.
        let own = &mut stream(1_000_000 + seed);
        if readout == Readout::FirstTokenClass && own.coin() {
            readout = Readout::EachTokenClass;
        }
        let vocab = 3 + s.below(9) as usize;
        // Some beyond two panels, and some batches beyond a micro-batch.
        let large = seed.is_multiple_of(9);
        let length =
            (if constant_rows { 1 } else { 3 }) + s.below(if large { 50 } else { 17 }) as usize;
        let longest = length + if weighted { 0 } else { s.below(3) as usize };
        let classes = 2 + own.below(19) as usize;
        let architecture =
            Architecture::from_parts(&model, positions, vocab, classes, longest, readout)
                .expect("a model");
        let parameters = parameters(&architecture, seed, s);
        let sequences = if large { 1 + s.below(140) } else { 1 + s.below(5) } as usize;
        let batch = batch(&architecture, sequences, length, constant_rows, seed, s);
        let dropout =
            (model.dropout > 0.0).then_some(Dropout { rate: model.dropout, seed, step: 3 });
        Self { architecture, parameters, batch, dropout }
    }

    /// What was drawn, for messages.
    pub fn name(&self) -> String {
        let a = &self.architecture;
        format!(
            "{:?} {:?} {:?} {:?} d {} n {} {:?}",
            a.block, a.norm_placement, a.positions, a.readout, a.dim, self.batch.length, a.masking
        )
    }

    /// The engine's dropout masks as the reference wants them.
    pub fn keep(&self) -> impl Fn(Site, usize) -> bool {
        let masks = RefCell::new(HashMap::new());
        let (d, n) = (self.architecture.dim, self.batch.length);
        let pooling = matches!(self.architecture.block, Block::Pooling(_));
        let dropout = self.dropout;
        move |site, index| {
            let size = match site {
                Site::Attention { .. } => n * n,
                Site::Aggregation { .. } if pooling => d,
                _ => n * d,
            };
            let sequence = index / size;
            let mut masks = masks.borrow_mut();
            let mask = masks.entry((site.number(), sequence)).or_insert_with(|| {
                let mut factors = vec![[1.0f64; LANES]; size];
                if let Some(dropout) = dropout {
                    dropout.mask(sequence as u64, site).draw(&mut factors, 1);
                }
                factors.iter().map(|row| row[0]).collect::<Vec<_>>()
            });
            mask[index % size] > 0.0
        }
    }
}

/// Initial weights, with biases, gains and norms moved away from 0 and 1.
fn parameters(architecture: &Architecture, seed: u64, s: &mut Stream) -> Vec<f64> {
    let mut values: Vec<f64> =
        initial_parameters(architecture, seed).into_iter().map(f64::from).collect();
    for parameter in architecture.parameters.iter().filter(|p| p.shape.len() == 1) {
        values[parameter.range()].iter_mut().for_each(|v| *v += 0.4 * (s.uniform() - 0.5));
    }
    values
}

fn batch(
    a: &Architecture,
    sequences: usize,
    length: usize,
    constant_rows: bool,
    seed: u64,
    s: &mut Stream,
) -> Batch {
    let mut tokens: Vec<u32> = (0..sequences * length).map(|_| s.below(a.vocab as u32)).collect();
    if !constant_rows {
        // Two different tokens that no mask covers.
        tokens.chunks_exact_mut(length).for_each(|t| (t[0], t[1]) = (0, 1));
    }
    let (rows, classes) = match a.readout {
        Readout::PerToken | Readout::FirstTokenPosition => (sequences, length),
        Readout::EachTokenPosition => (sequences * length, length),
        Readout::FirstTokenClass => (sequences, a.classes),
        Readout::EachTokenClass => (sequences * length, a.classes),
    };
    let mut targets: Vec<u32> = (0..rows).map(|_| s.below(classes as u32)).collect();
    let masked = s.coin() && !matches!(a.block, Block::Weighted);
    let mask = masked.then(|| {
        // Now and then a sequence without any token left (which has no position to answer).
        let may = !masked_positions(a);
        let empty = |s: &mut Stream| constant_rows && s.below(8) == 0 && may;
        let empty: Vec<bool> = (0..sequences).map(|_| empty(s)).collect();
        let kept = |i: usize, s: &mut Stream| !empty[i / length] && (i % length < 2 || s.coin());
        (0..tokens.len()).map(|i| kept(i, s)).collect::<Vec<bool>>()
    });
    if let Some(mask) = mask.as_ref().filter(|_| masked_positions(a)) {
        // The first token is never masked.
        let masked = |row: usize, target: u32| !mask[row * length + target as usize];
        let rows = targets.iter_mut().enumerate();
        rows.filter(|(row, target)| masked(*row, **target)).for_each(|(_, target)| *target = 0);
    }
    let own = &mut stream(2_000_000 + seed);
    let weights = own.coin().then(|| {
        let mut weights: Vec<f32> = (0..rows).map(|_| 0.5 * own.below(4) as f32).collect();
        weights[0] = 1.5;
        weights
    });
    Batch { tokens, length, targets, weights, mask }
}

/// Whether the logits of masked tokens are left out.
fn masked_positions(a: &Architecture) -> bool {
    a.readout == Readout::PerToken && a.masking == Masking::Clean
}
