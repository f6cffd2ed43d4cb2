//! Answers and their accuracy per case.

use super::Task;
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
    task: Task,
    members: Vec<bool>,
}

impl CaseScore {
    /// Nothing counted yet.
    pub fn new(task: &Task) -> Self {
        let cases = task.cases().len();
        Self {
            correct: vec![0.0; cases],
            occurrences: vec![0.0; cases],
            task: *task,
            members: vec![false; cases],
        }
    }

    /// Forgets all counts.
    pub fn clear(&mut self) {
        self.correct.fill(0.0);
        self.occurrences.fill(0.0);
    }

    /// Counts one sequence, given the answers and the right ones (one each, or for lg one each
    /// per token).
    ///
    /// # Panics
    /// If there are not as many predictions as targets.
    pub fn add(&mut self, tokens: &[u32], predictions: &[u32], targets: &[u32]) {
        self.task.membership(tokens, &mut self.members);
        self.count(predictions, targets);
    }

    /// Counts one sequence whose cases are known, in the order of [`Task::cases`].
    ///
    /// # Panics
    /// If there are not as many predictions as targets, or not as many members as cases.
    pub fn add_members(&mut self, members: &[bool], predictions: &[u32], targets: &[u32]) {
        self.members.copy_from_slice(members);
        self.count(predictions, targets);
    }

    fn count(&mut self, predictions: &[u32], targets: &[u32]) {
        assert_eq!(predictions.len(), targets.len(), "one prediction per target");
        let right = predictions.iter().zip(targets).filter(|(p, t)| p == t).count();
        let share = right as f64 / targets.len() as f64;
        for (case, &member) in self.members.iter().enumerate() {
            if member {
                self.correct[case] += share;
                self.occurrences[case] += 1.0;
            }
        }
    }

    /// The accuracy per case; NaN where the case has not occurred.
    pub fn accuracy(&self) -> Vec<f64> {
        self.correct.iter().zip(&self.occurrences).map(|(c, n)| c / n).collect()
    }
}
