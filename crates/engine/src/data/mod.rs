//! Data of one's own: examples, batches of similar lengths, and how they are scored.
//!
//! Sequences have any length. A batch is padded to its longest sequence and masked, so that
//! padding takes no part in any aggregate, count, loss, score or read-out; what a sequence gives
//! does not depend on what it is batched with, but for rounding.

mod batches;
mod config;
mod score;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use batches::{by_length, epoch};
pub use config::{ClassWeights, DataConfig, Place};
pub use score::ClassScore;

use crate::config::TaskName;
use crate::task::Batch;

/// The token that stands for all that training has not seen.
pub const UNKNOWN: u32 = 0;

/// Sequences with their answers, in any order.
///
/// Reading has no errors: whoever reads from a file must end the program if it goes away.
pub trait Examples: Send + Sync {
    /// Number of examples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of tokens of an example, at least 1.
    fn length(&self, index: usize) -> usize;

    /// Appends the token ids of an example, and its answer: a class, a position, or a class per
    /// token.
    fn read(&self, index: usize, tokens: &mut Vec<u32>, targets: &mut Vec<u32>);
}

/// Examples in memory: tokens and answers.
impl Examples for Vec<(Vec<u32>, Vec<u32>)> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn length(&self, index: usize) -> usize {
        self[index].0.len()
    }

    fn read(&self, index: usize, tokens: &mut Vec<u32>, targets: &mut Vec<u32>) {
        tokens.extend(&self[index].0);
        targets.extend(&self[index].1);
    }
}

/// A class's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Label {
    /// A whole number.
    Whole(i64),
    /// Anything else.
    Text(String),
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Label::Whole(number) => number.fmt(f),
            Label::Text(text) => text.fmt(f),
        }
    }
}

/// What token ids and classes stand for; checkpoints hold it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// By token id; number [`UNKNOWN`] is `<unk>`.
    pub tokens: Vec<String>,
    /// By class; none for positions.
    pub labels: Vec<Label>,
}

/// Everything a run takes from its data.
#[derive(Clone)]
pub struct Data {
    /// What is trained on.
    pub train: Arc<dyn Examples>,
    /// What is validated on.
    pub validation: Arc<dyn Examples>,
    /// Tokens and classes.
    pub names: Arc<Names>,
}

/// Makes a batch of these examples, padded to the longest of them; `weights` are those of the
/// classes.
///
/// # Panics
/// If there are none.
pub fn fill(
    task: TaskName,
    examples: &dyn Examples,
    indices: &[u32],
    weights: Option<&[f32]>,
    batch: &mut Batch,
) {
    let lengths = indices.iter().map(|&index| examples.length(index as usize));
    let length = lengths.clone().max().expect("a batch without examples");
    let padded = lengths.clone().any(|n| n < length);
    let each_token = task == TaskName::Tag;
    batch.length = length;
    batch.tokens.clear();
    batch.targets.clear();
    for (s, &index) in indices.iter().enumerate() {
        examples.read(index as usize, &mut batch.tokens, &mut batch.targets);
        batch.tokens.resize((s + 1) * length, UNKNOWN);
        batch.targets.resize((s + 1) * if each_token { length } else { 1 }, 0);
    }
    batch.mask = padded.then(|| {
        let mut mask = batch.mask.take().unwrap_or_default();
        mask.clear();
        mask.extend(lengths.clone().flat_map(|n| (0..length).map(move |t| t < n)));
        mask
    });
    let padded_answers = padded && each_token;
    batch.weights = (padded_answers || weights.is_some()).then(|| {
        let mut all = batch.weights.take().unwrap_or_default();
        all.clear();
        let weight = |&class: &u32| weights.map_or(1.0, |weights| weights[class as usize]);
        all.extend(batch.targets.iter().map(weight));
        if padded_answers {
            for (row, n) in all.chunks_exact_mut(length).zip(lengths) {
                row[n..].fill(0.0);
            }
        }
        all
    });
}

/// The weights of [`ClassWeights::Balanced`]; 0 for classes that do not occur.
pub fn balanced(examples: &dyn Examples, classes: usize) -> Vec<f32> {
    let mut counts = vec![0u64; classes];
    let (mut tokens, mut targets) = (Vec::new(), Vec::new());
    for index in 0..examples.len() {
        tokens.clear();
        targets.clear();
        examples.read(index, &mut tokens, &mut targets);
        targets.iter().for_each(|&target| counts[target as usize] += 1);
    }
    let total: u64 = counts.iter().sum();
    // Of the classes that occur, so that the mean weight of an answer is 1.
    let occurring = counts.iter().filter(|&&count| count > 0).count() as f64;
    let weight = |&count: &u64| match count {
        0 => 0.0,
        count => (total as f64 / (occurring * count as f64)) as f32,
    };
    counts.iter().map(weight).collect()
}
