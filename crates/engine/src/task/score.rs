//! Answers and their accuracy per case.

use crate::real::Real;

/// Index of the largest logit, the first of equals.
///
/// NaN never beats anything, so that a diverged model, with NaN everywhere, answers 0.
pub fn argmax_first<T: Real>(logits: &[T]) -> usize {
    let (mut index, mut largest) = (0, T::neg_infinity());
    for (i, &logit) in logits.iter().enumerate() {
        if logit > largest {
            (index, largest) = (i, logit);
        }
    }
    index
}

/// Accuracy per tracked case, counted sequence by sequence.
///
/// A sequence counts as one in each of its cases; where every token answers (lg) its share of
/// right answers counts.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseScore {
    /// Right answers per case, in sequences.
    pub correct: Vec<f64>,
    /// Sequences per case.
    pub occurrences: Vec<f64>,
}

impl CaseScore {
    /// Nothing counted yet of this many cases.
    pub fn new(cases: usize) -> Self {
        Self { correct: vec![0.0; cases], occurrences: vec![0.0; cases] }
    }

    /// Counts one sequence, given which cases it [belongs to](super::Task::membership), the
    /// answers and the right ones (one each, or for lg one each per token).
    ///
    /// # Panics
    /// If there are not as many predictions as targets.
    pub fn add(&mut self, members: &[bool], predictions: &[u32], targets: &[u32]) {
        assert_eq!(predictions.len(), targets.len(), "one prediction per target");
        let right = predictions.iter().zip(targets).filter(|(p, t)| p == t).count();
        let share = right as f64 / targets.len() as f64;
        for (case, _) in members.iter().enumerate().filter(|&(_, &member)| member) {
            self.correct[case] += share;
            self.occurrences[case] += 1.0;
        }
    }

    /// The accuracy per case; NaN where the case has not occurred.
    pub fn accuracy(&self) -> Vec<f64> {
        self.correct.iter().zip(&self.occurrences).map(|(c, n)| c / n).collect()
    }
}
