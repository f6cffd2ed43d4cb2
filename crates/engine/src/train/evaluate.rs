//! Scores a model on fresh batches, on equalised sets, and on examples of one's own.

use super::{Evaluation, add_penalty};
use crate::data::{self, ClassScore, Examples};
use crate::model::Model;
use crate::random::Purpose;
use crate::task::{Batch, CaseScore, Task};

/// Sequences of the equalised set generated and scored at a time.
const CHUNK: usize = 100;

/// Which sequences to evaluate on.
#[derive(Debug, Clone, Copy)]
pub struct Sequences {
    pub purpose: Purpose,
    pub length: usize,
}

/// A model and what is needed to score it.
pub struct Evaluator<'a> {
    pub task: &'a Task,
    pub model: &'a mut Model<f32>,
    pub parameters: &'a [f32],
    /// A diverged model is not computed: it answers index 0.
    pub diverged: bool,
    pub l2: f64,
    pub seed: u64,
    pub batch: &'a mut Batch,
    /// Asked between batches: whether to give up.
    pub stop: &'a dyn Fn() -> bool,
}

impl Evaluator<'_> {
    /// Mean loss and accuracy over `batches` batches, keyed by `first` and the following steps;
    /// none if stopped.
    pub fn fresh(
        &mut self,
        on: Sequences,
        first: usize,
        batches: usize,
        size: usize,
    ) -> Option<(f64, f64)> {
        let (mut loss, mut accuracy) = (0.0, 0.0);
        let mut answers = Vec::new();
        for step in first..first + batches {
            self.task.fill(self.seed, on.purpose, step as u64, size, on.length, self.batch);
            if (self.stop)() {
                return None;
            }
            let (batch_loss, batch_accuracy) = self.answer(&mut answers);
            loss += batch_loss;
            accuracy += batch_accuracy;
        }
        let penalty = add_penalty(self.model.architecture(), self.parameters, self.l2, None);
        Some((loss / batches as f64 + penalty, accuracy / batches as f64))
    }

    /// Accuracy per tracked case on an equalised set keyed by `step`; empty for tasks without,
    /// none if stopped.
    pub fn cases(&mut self, on: Sequences, step: usize, sequences: usize) -> Option<Vec<f64>> {
        let cases = self.task.cases().len();
        if cases == 0 {
            return Some(Vec::new());
        }
        let (mut score, mut members) = (CaseScore::new(cases), vec![false; cases]);
        let mut answers = Vec::new();
        let mut set = self.task.equalised(self.seed, on.purpose, step as u64, sequences, on.length);
        while set.remaining() > 0 {
            if (self.stop)() {
                return None;
            }
            set.fill(set.remaining().min(CHUNK), self.batch);
            self.answer(&mut answers);
            let targets = self.task.targets_per_sequence(on.length);
            for (s, tokens) in self.batch.tokens.chunks_exact(on.length).enumerate() {
                let rows = s * targets..(s + 1) * targets;
                self.task.membership(tokens, &mut members);
                score.add(&members, &answers[rows.clone()], &self.batch.targets[rows]);
            }
        }
        Some(score.accuracy())
    }

    /// Scores every one of these examples, which go by length; none if stopped.
    pub fn examples(
        &mut self,
        examples: &dyn Examples,
        by_length: &[u32],
        size: usize,
    ) -> Option<Evaluation> {
        let architecture = self.model.architecture();
        let is_class = architecture.readout.is_class();
        let mut classes = is_class.then(|| ClassScore::new(architecture.classes));
        let mut answers = Vec::new();
        let (mut loss, mut correct, mut total) = (0.0, 0.0, 0.0);
        for indices in by_length.chunks(size) {
            if (self.stop)() {
                return None;
            }
            data::fill(self.task.name(), examples, indices, None, self.batch);
            let (batch_loss, batch_accuracy) = self.answer(&mut answers);
            let count = self.batch.answers() as f64;
            loss += batch_loss * count;
            correct += (batch_accuracy * count).round();
            total += count;
            classes.iter_mut().for_each(|classes| classes.add(&answers, self.batch));
        }
        let penalty = add_penalty(self.model.architecture(), self.parameters, self.l2, None);
        Some(Evaluation {
            loss: loss / total + penalty,
            accuracy: correct / total,
            cases: Vec::new(),
            macro_f1: classes.map(|classes| classes.macro_f1()),
        })
    }

    /// The answers to the current batch, its mean loss and accuracy.
    fn answer(&mut self, answers: &mut Vec<u32>) -> (f64, f64) {
        if self.diverged {
            answers.clear();
            answers.resize(self.batch.targets.len(), 0);
            return (f64::NAN, self.batch.accuracy_of_zero());
        }
        let score = self.model.answers(self.parameters, self.batch, answers);
        (score.loss / score.rows as f64, score.correct as f64 / score.rows as f64)
    }
}
