//! Answers of a trained model to sequences of one's own, a few at a time.

use super::Trained;
use crate::config::{ConfigError, TaskName};
use crate::data::{self, Examples};
use crate::model::Model;
use crate::task::{Batch, argmax_first};

/// A trained model that answers. Its memory grows with the longest sequence it has met, not with
/// their number.
pub struct Predictor<'a> {
    trained: &'a Trained,
    /// The model and the length it has room for.
    model: Option<(usize, Model<f32>)>,
    batch: Batch,
    logits: Vec<f32>,
}

/// The most tokens times logits of each that are computed together, unless one sequence has
/// more.
const MOST_LOGITS: usize = 1 << 20;

/// The answers to a sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answers {
    /// The class or position with the largest logit: one, or one per token for tag.
    pub given: Vec<u32>,
    /// If they were asked for, the probabilities of each answer's classes or positions, answer by
    /// answer. A diverged model's are NaN.
    pub probabilities: Vec<f32>,
}

impl<'a> Predictor<'a> {
    /// For a model of one's own data.
    pub fn new(trained: &'a Trained) -> Self {
        Self { trained, model: None, batch: Batch::default(), logits: Vec::new() }
    }

    /// The answers to each sequence, in their order.
    ///
    /// # Errors
    /// If a sequence is empty, or longer than the model can read.
    pub fn answer(
        &mut self,
        sequences: &[Vec<u32>],
        probabilities: bool,
    ) -> Result<Vec<Answers>, ConfigError> {
        let config = &self.trained.config;
        let task = config.task.name;
        let each = |tokens: &Vec<u32>| if task == TaskName::Tag { tokens.len() } else { 1 };
        let examples: Vec<(Vec<u32>, Vec<u32>)> =
            (sequences.iter()).map(|tokens| (tokens.clone(), vec![0; each(tokens)])).collect();
        for sequence in sequences {
            self.trained.check_length(sequence.len())?;
        }
        let classes = match task {
            TaskName::Tag => config.task.data.as_ref().map_or(1, |data| data.classes),
            _ => 1,
        };
        let order = data::by_length(&examples);
        let mut answers = vec![Answers::default(); sequences.len()];
        let mut rest = &order[..];
        while !rest.is_empty() {
            // Of one length, so that an answer has the same bits whatever comes with it.
            let length = examples.length(rest[0] as usize);
            let alike = rest.iter().take_while(|&&i| examples.length(i as usize) == length).count();
            let most = (MOST_LOGITS / (length * classes)).clamp(1, config.train.batch);
            let (indices, others) = rest.split_at(alike.min(most));
            rest = others;
            if self.model.as_ref().is_none_or(|(room, _)| *room < length) {
                // Doubled, so that slowly growing lengths do not make a model each.
                let room = length.next_power_of_two();
                let room = if self.trained.check_length(room).is_ok() { room } else { length };
                self.model = Some((room, self.trained.model(room)?));
            }
            let Some((_, model)) = &mut self.model else { unreachable!("made above") };
            data::fill(task, &examples, indices, None, &mut self.batch);
            model.logits(&self.trained.parameters, &self.batch, &mut self.logits);
            let width = self.logits.len() / self.batch.targets.len();
            let per_sequence = self.batch.targets.len() / indices.len();
            let rows = self.logits.chunks_exact(width * per_sequence);
            for (&index, rows) in indices.iter().zip(rows) {
                let tokens = &sequences[index as usize];
                let answers = &mut answers[index as usize];
                for row in rows.chunks_exact(width).take(each(tokens)) {
                    let row = if task == TaskName::Point { &row[..tokens.len()] } else { row };
                    answers.given.push(argmax_first(row) as u32);
                    if probabilities {
                        softmax(row, &mut answers.probabilities);
                    }
                }
            }
        }
        Ok(answers)
    }
}

/// Adds the probabilities to a list.
fn softmax(logits: &[f32], probabilities: &mut Vec<f32>) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let power = |&z: &f32| f64::from(z - most).exp();
    let total: f64 = logits.iter().map(power).sum();
    probabilities.extend(logits.iter().map(|z| (power(z) / total) as f32));
}
