//! The tasks. The paper's make their sequences: what a sequence looks like, what its answer is, which cases are tracked.
//!
//! | task | answer | read from |
//! |---|---|---|
//! | [`cases`] | 64 occurs: position of the smallest token; else 50 occurs: position 0; else position of the largest | each token, or the first |
//! | [`mode`] | the most frequent token | the first token |
//! | [`lg`] | 64 occurs: each token's own position; else the position of the smallest token | each token |
//!
//! `classify`, `point` and `tag` are for [data](crate::data) of one's own, which brings its
//! answers: a class, a position, or a class per token.
//!
//! Tokens are uniform and every batch is fresh. `case_bias` b makes token 64 more or less frequent
//! in training batches: for b > 0, b times, each sequence without 64 gets a 64 at a random
//! position with probability 1/2; for b < 0, |b| times, each sequence with 64 has, with
//! probability 1/2, its 64s redrawn until none is left. So with p the probability of a 64 at
//! bias 0,
//!
//! ```text
//! P(64) = 1 - (1 - p) / 2^b   (b >= 0),     P(64) = p / 2^|b|   (b < 0),     p = 1 - (1 - 1/V)^N
//! ```
//!
//! Cases are tracked on [`equalised`] sets. `docs/tasks.md` has everything needed to re-generate
//! the data elsewhere.

pub mod cases;
pub mod equalised;
pub mod lg;
pub mod mode;
mod own;
mod score;
mod sequence;

pub use equalised::Equalised;
pub use score::{CaseScore, argmax_first};

use crate::config::{TaskConfig, TaskName};
use crate::random::{Purpose, Stream};

/// The token that decides: its presence makes the case `argmin` (cases) or `local` (lg).
pub const DECIDING: u32 = 64;

/// The token that makes the case `first`, where [`DECIDING`] is absent (cases).
pub const FIRST: u32 = 50;

/// Sequences with their answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Token ids, `[sequences, length]`.
    pub tokens: Vec<u32>,
    /// Length of each sequence.
    pub length: usize,
    /// Class index of the answer: `[sequences]`, or `[sequences, length]` for lg and tag.
    pub targets: Vec<u32>,
    /// What each answer's loss is multiplied by; answers of weight 0, those of padding, count
    /// nowhere. `None` if all have weight 1.
    pub weights: Option<Vec<f32>>,
    /// `true` for tokens that take part, `[sequences, length]`; `None` if all do.
    pub mask: Option<Vec<bool>>,
}

impl Batch {
    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.tokens.len() / self.length.max(1)
    }

    /// Number of answers that count.
    pub fn answers(&self) -> usize {
        match &self.weights {
            Some(weights) => weights.iter().filter(|&&weight| weight > 0.0).count(),
            None => self.targets.len(),
        }
    }

    /// What a diverged model, which answers 0, scores: the share of answers that are 0.
    pub(crate) fn accuracy_of_zero(&self) -> f64 {
        let counts = |i: usize| self.weights.as_ref().is_none_or(|weights| weights[i] > 0.0);
        let right = (0..self.targets.len()).filter(|&i| self.targets[i] == 0 && counts(i));
        right.count() as f64 / self.answers() as f64
    }

    /// Makes room for unmasked sequences; allocates only beyond the vectors' capacity.
    fn resize(&mut self, sequences: usize, length: usize, targets_per_sequence: usize) {
        self.length = length;
        self.tokens.resize(sequences * length, 0);
        self.targets.resize(sequences * targets_per_sequence, 0);
        (self.mask, self.weights) = (None, None);
    }
}

/// A tracked case: sequences that share a property, on which accuracy is recorded separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The name, as records spell it (`train_case_<name>`, `val_case_<name>`).
    pub name: &'static str,
    /// Which sequences belong to it.
    pub meaning: &'static str,
    /// Main cases divide all sequences among them and have equal shares of an equalised set;
    /// the others are parts of the main case before them.
    pub main: bool,
}

/// What a task is, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// The name, as configurations spell it.
    pub name: &'static str,
    /// The task in one line.
    pub summary: &'static str,
    /// The answer to a sequence x of N tokens, as a formula.
    pub rule: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

/// A task. The paper's make sequences, answer them and tell their cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    name: TaskName,
    vocab: u32,
    case_bias: i32,
}

impl Task {
    /// The task of this configuration.
    ///
    /// Vocabularies without token 64 or 50 (which [`TaskConfig::validate`] refuses) simply have
    /// fewer cases: tokens outside the vocabulary are never inserted.
    ///
    /// # Panics
    /// If the vocabulary is empty or its size does not fit 32 bits.
    pub fn new(config: &TaskConfig) -> Self {
        let vocab = u32::try_from(config.vocab).expect("vocabularies have at most 2^32 - 1 tokens");
        assert!(vocab > 0, "a vocabulary has at least one token");
        Self { name: config.name, vocab, case_bias: config.case_bias }
    }

    /// Which task it is.
    pub fn name(&self) -> TaskName {
        self.name
    }

    /// The task in words.
    pub fn info(&self) -> &'static Info {
        info(self.name)
    }

    /// The tracked cases; none for mode and data of one's own.
    pub fn cases(&self) -> &'static [Case] {
        match self.name {
            TaskName::Cases => &cases::CASES,
            TaskName::Lg => &lg::CASES,
            _ => &[],
        }
    }

    /// Answers per sequence: 1, or one per token for lg and tag.
    pub fn targets_per_sequence(&self, length: usize) -> usize {
        match self.name {
            TaskName::Lg | TaskName::Tag => length,
            _ => 1,
        }
    }

    /// The answer to one sequence: `tokens: [length]`, `targets: [1]` or, for lg, `[length]`.
    ///
    /// # Panics
    /// If the sequence is empty or `targets` has another length, or if the answers are the
    /// data's.
    pub fn label(&self, tokens: &[u32], targets: &mut [u32]) {
        assert!(!tokens.is_empty(), "an empty sequence has no answer");
        assert_eq!(targets.len(), self.targets_per_sequence(tokens.len()), "targets' length");
        match self.name {
            TaskName::Cases => targets[0] = cases::label(tokens),
            TaskName::Mode => targets[0] = mode::label(tokens),
            TaskName::Lg => lg::label(tokens, targets),
            name => panic!("{} has the answers of its data", name.as_str()),
        }
    }

    /// Which of the tracked [`Task::cases`] a sequence belongs to.
    ///
    /// # Panics
    /// If the sequence is empty or `out` does not have one place per case.
    pub fn membership(&self, tokens: &[u32], out: &mut [bool]) {
        assert_eq!(out.len(), self.cases().len(), "one place per case");
        match self.name {
            TaskName::Cases => out.copy_from_slice(&cases::membership(tokens)),
            TaskName::Lg => out.copy_from_slice(&lg::membership(tokens)),
            _ => {}
        }
    }

    /// Fills `batch` with fresh sequences: number i from the stream of `(seed, purpose, step, i)`,
    /// whatever their number.
    ///
    /// `case_bias` takes effect for [`Purpose::Training`] only. Nothing is allocated once
    /// `batch` has held as many tokens.
    ///
    /// # Panics
    /// If `length` is 0, or the task takes data of one's own.
    pub fn fill(
        &self,
        seed: u64,
        purpose: Purpose,
        step: u64,
        sequences: usize,
        length: usize,
        batch: &mut Batch,
    ) {
        let biased = purpose == Purpose::Training && self.has_bias();
        let per_sequence = self.targets_per_sequence(length);
        batch.resize(sequences, length, per_sequence);
        let rows = batch.tokens.chunks_exact_mut(length);
        for (i, (tokens, targets)) in
            rows.zip(batch.targets.chunks_exact_mut(per_sequence)).enumerate()
        {
            let mut stream = Stream::new(seed, purpose, step, i as u64);
            sequence::draw(tokens, self.vocab, &mut stream);
            if biased {
                sequence::bias(tokens, self.vocab, self.case_bias, &mut stream);
            }
            self.label(tokens, targets);
        }
    }

    /// An equalised set of `sequences` rows, to be read piece by piece.
    ///
    /// # Panics
    /// If `length` is 0.
    pub fn equalised(
        &self,
        seed: u64,
        purpose: Purpose,
        epoch: u64,
        sequences: usize,
        length: usize,
    ) -> Equalised {
        Equalised::new(*self, seed, purpose, epoch, sequences, length)
    }

    fn has_bias(&self) -> bool {
        matches!(self.name, TaskName::Cases | TaskName::Lg) && self.case_bias != 0
    }
}

/// A task in words.
pub fn info(name: TaskName) -> &'static Info {
    match name {
        TaskName::Cases => &cases::INFO,
        TaskName::Mode => &mode::INFO,
        TaskName::Lg => &lg::INFO,
        TaskName::Classify => &own::CLASSIFY,
        TaskName::Point => &own::POINT,
        TaskName::Tag => &own::TAG,
    }
}

/// Position of the first smallest token.
fn first_smallest(tokens: &[u32]) -> u32 {
    let smallest = tokens.iter().copied().min();
    tokens.iter().position(|&t| Some(t) == smallest).unwrap_or(0) as u32
}

/// Position of the first largest token.
fn first_largest(tokens: &[u32]) -> u32 {
    let largest = tokens.iter().copied().max();
    tokens.iter().position(|&t| Some(t) == largest).unwrap_or(0) as u32
}
