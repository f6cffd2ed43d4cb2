//! The paper's tasks: what a sequence looks like, what its answer is, which cases are tracked.

use crate::real::Real;

/// Sequences with their answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Token ids, `[sequences, length]`.
    pub tokens: Vec<u32>,
    /// Length of each sequence.
    pub length: usize,
    /// Class index of the answer: `[sequences]`, or `[sequences, length]` for lg.
    pub targets: Vec<u32>,
    /// `true` for tokens that take part, `[sequences, length]`; `None` if all do.
    pub mask: Option<Vec<bool>>,
}

impl Batch {
    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.tokens.len() / self.length.max(1)
    }
}

/// argmax
pub fn argmax_first<T: Real>(logits: &[T]) -> usize {
    let mut best = 0;
    for (i, &z) in logits.iter().enumerate() {
        if z > logits[best] {
            best = i;
        }
    }
    best
}
