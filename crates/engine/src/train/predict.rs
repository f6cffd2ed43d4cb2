//! Answers of a trained model to sequences of one's own, a few at a time.

use super::Trained;
use crate::config::{ConfigError, TaskName};
use crate::data::{self, Examples};
use crate::model::Model;
use crate::task::Batch;

/// A trained model that answers. Its memory grows with the longest sequence it has met, not with
/// their number.
pub struct Predictor<'a> {
    trained: &'a Trained,
    /// The model and the length it has room for.
    model: Option<(usize, Model<f32>)>,
    batch: Batch,
    logits: Vec<f32>,
}

/// Probabilities of an answer: one per class, or per position.
pub type Probabilities = Vec<f32>;

impl<'a> Predictor<'a> {
    /// For a model of one's own data.
    pub fn new(trained: &'a Trained) -> Self {
        Self { trained, model: None, batch: Batch::default(), logits: Vec::new() }
    }

    /// The answers to each sequence, in their order: one, or one per token for tag. A diverged
    /// model's probabilities are NaN.
    ///
    /// # Errors
    /// If a sequence is empty, or longer than the model can read.
    pub fn answer(
        &mut self,
        sequences: &[Vec<u32>],
    ) -> Result<Vec<Vec<Probabilities>>, ConfigError> {
        let task = self.trained.config.task.name;
        let each = |tokens: &Vec<u32>| if task == TaskName::Tag { tokens.len() } else { 1 };
        let examples: Vec<(Vec<u32>, Vec<u32>)> =
            (sequences.iter()).map(|tokens| (tokens.clone(), vec![0; each(tokens)])).collect();
        for sequence in sequences {
            self.trained.check_length(sequence.len())?;
        }
        let order = data::by_length(&examples);
        let mut answers = vec![Vec::new(); sequences.len()];
        for indices in order.chunks(self.trained.config.train.batch) {
            let longest = indices.last().map_or(1, |&last| examples.length(last as usize));
            if self.model.as_ref().is_none_or(|(room, _)| *room < longest) {
                // Doubled, so that slowly growing lengths do not make a model each.
                let room = longest.next_power_of_two();
                let room = if self.trained.check_length(room).is_ok() { room } else { longest };
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
                let rows = rows.chunks_exact(width).take(each(tokens));
                answers[index as usize] = rows
                    .map(|row| if task == TaskName::Point { &row[..tokens.len()] } else { row })
                    .map(softmax)
                    .collect();
            }
        }
        Ok(answers)
    }
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|&z| f64::from(z - most).exp()).collect();
    let total: f64 = powers.iter().sum();
    powers.into_iter().map(|power| (power / total) as f32).collect()
}
