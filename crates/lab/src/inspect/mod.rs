//! What a trained model looks at, computed by the engine's reference.
//!
//! | file | what |
//! |---|---|
//! | here | the maps of one sequence, and the model's answer |
//! | [`roles`] | what each head does, over many sequences |
//! | [`page`] | both as an HTML page |

pub mod page;
pub mod roles;

use std::path::Path;

use nap_engine::config::TaskName;
use nap_engine::data::Label;
use nap_engine::kernels::aggregate::{self, Pooling};
use nap_engine::model::architecture::Block;
use nap_engine::reference::{self, Parameters};
use nap_engine::task::{Batch, Task, argmax_first};
use nap_engine::train::Trained;

use roles::{Mark, Role};

/// What the numbers of a map are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Attention weights, a row per query.
    Attention {
        /// Whether they are positive and sum to 1.
        distribution: bool,
    },
    /// Each token's share of the pooled vector p, `x_j . (dp/dx_j)^T p / |p|^2`, one row. Shares
    /// sum to 1, because a pooling doubles when its tokens do (Euler's theorem).
    Pooling,
    /// The learned mixing matrix, a row per token that it mixes for.
    Mixing,
}

impl Kind {
    /// Of a model.
    pub fn of(block: &Block) -> Self {
        match block {
            Block::Attention { rule, gain, bias, .. } => {
                Self::Attention { distribution: rule == "softmax" && !gain && !bias }
            }
            Block::Pooling(_) => Self::Pooling,
            Block::Weighted => Self::Mixing,
        }
    }

    /// What is shown, in a line.
    pub fn label(self) -> &'static str {
        match self {
            Self::Attention { .. } => "attention weights: queries down, keys across",
            Self::Pooling => {
                "no attention in this model: each token's share of the pooled vector, which \
                 every token is given"
            }
            Self::Mixing => {
                "no attention in this model: the learned mixing matrix, the same for every \
                 input; tokens mixed for down, tokens mixed across"
            }
        }
    }
}

/// The weights of a head, `[rows, columns]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// Counts from 0, as parameters' names do.
    pub layer: usize,
    /// Counts from 0; 0 without heads.
    pub head: usize,
    /// Queries, or 1.
    pub rows: usize,
    /// Keys.
    pub columns: usize,
    /// Row by row.
    pub weights: Vec<f32>,
}

impl Map {
    /// The row of a query.
    pub fn row(&self, query: usize) -> &[f32] {
        &self.weights[query * self.columns..][..self.columns]
    }

    /// The largest magnitude; 0 if nothing is finite.
    pub fn largest(&self) -> f32 {
        let finite = self.weights.iter().filter(|w| w.is_finite());
        finite.fold(0.0, |largest, w| w.abs().max(largest))
    }
}

/// A sequence, with the right answers where they are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// One, or one per token where every token answers.
    pub targets: Option<Vec<u32>>,
}

impl Example {
    /// Of a task that knows the answers.
    pub fn of(task: &Task, tokens: &[u32]) -> Self {
        let mut targets = vec![0; task.targets_per_sequence(tokens.len())];
        task.label(tokens, &mut targets);
        Self { tokens: tokens.to_vec(), targets: Some(targets) }
    }
}

/// An answer: a position, or for mode a token, or a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// What the model answers.
    pub given: u32,
    /// What is right, where that is known.
    pub right: Option<u32>,
    /// The probability the model gives its answer; NaN for a diverged one.
    pub probability: f64,
}

/// What a model does with one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// One, or one per token where every token answers.
    pub answers: Vec<Answer>,
    /// Layer by layer, head by head.
    pub maps: Vec<Map>,
}

/// Everything that is shown.
pub struct Shown<'a> {
    /// The checkpoint's place.
    pub path: &'a Path,
    /// The model.
    pub trained: &'a Trained,
    /// The sequence.
    pub tokens: &'a [u32],
    /// Where it comes from.
    pub origin: String,
    /// Its positions that matter.
    pub marks: Vec<Mark>,
    /// The answer, and the maps that were asked for.
    pub seen: Seen,
    /// What maps show.
    pub kind: Kind,
    /// What each head does.
    pub roles: Vec<Role>,
    /// Over which sequences.
    pub sample: String,
}

impl Shown<'_> {
    /// What model it is, in a line.
    pub fn headline(&self) -> String {
        let config = &self.trained.config;
        format!(
            "{} on {}, d = {}, epoch {} of {}",
            config.model.name,
            config.task.name.as_str(),
            config.model.dim,
            self.trained.epoch,
            config.train.epochs
        )
    }

    /// A token, by its name if it has one.
    pub fn token(&self, id: u32) -> String {
        let name = self.trained.names.as_ref().and_then(|names| names.tokens.get(id as usize));
        name.map_or_else(|| id.to_string(), String::clone)
    }

    /// A class, by its name.
    pub fn label(&self, class: u32) -> Option<&Label> {
        self.trained.names.as_ref().and_then(|names| names.labels.get(class as usize))
    }

    /// The answer and the right one, in words.
    pub fn answer(&self) -> String {
        let task = self.trained.config.task.name;
        let answers = &self.seen.answers;
        let name = |answer: u32| match (task, self.label(answer)) {
            (_, Some(label)) => label.to_string(),
            (TaskName::Mode, _) => format!("token {answer}"),
            _ => {
                let token = self.token(self.tokens[answer as usize]);
                format!("position {answer} (token {token})")
            }
        };
        let sure = |answer: &Answer| match answer.probability {
            p if p.is_nan() => "without a probability: the model has diverged".to_owned(),
            p => format!("with probability {p:.4}"),
        };
        if let [answer] = answers[..] {
            let given = format!("The model answers {}, {}", name(answer.given), sure(&answer));
            return match answer.right {
                None => format!("{given}."),
                Some(right) if answer.given == right => format!("{given}: right."),
                Some(right) => format!("{given}: wrong, right is {}.", name(right)),
            };
        }
        if answers.iter().all(|answer| answer.right.is_none()) {
            let given = answers.iter().map(|answer| name(answer.given)).collect::<Vec<_>>();
            return format!("The tokens answer {}.", given.join(" "));
        }
        let wrong: Vec<_> =
            (0..answers.len()).filter(|&i| Some(answers[i].given) != answers[i].right).collect();
        let count = answers.len();
        let mut text = format!("{} of {count} tokens answer right", count - wrong.len());
        if let Some((&i, right)) = wrong.first().and_then(|i| Some((i, answers[*i].right?))) {
            text += &format!(
                "; token {i} answers {}, right is {}",
                name(answers[i].given),
                name(right)
            );
        }
        text + "."
    }
}

/// Looks at a sequence, whose length and tokens the model can read.
///
/// # Panics
/// If it cannot.
pub fn look(trained: &Trained, example: &Example) -> Seen {
    let Example { tokens, targets: right } = example;
    let each_token = trained.architecture.readout.is_each_token();
    let count = if each_token { tokens.len() } else { 1 };
    let (length, targets) = (tokens.len(), vec![0; count]);
    let batch = Batch { tokens: tokens.clone(), length, targets, ..Batch::default() };
    let trace = reference::forward(&trained.architecture, &trained.parameters, &batch, None);
    let rows = trace.logits.chunks_exact(trace.logits.len() / count);
    let answers = rows.enumerate().map(|(i, logits)| {
        let given = argmax_first(logits);
        let total: f64 = logits.iter().map(|&z| f64::from(z - logits[given]).exp()).sum();
        let right = right.as_ref().map(|right| right[i]);
        Answer { given: given as u32, right, probability: 1.0 / total }
    });
    Seen { answers: answers.collect(), maps: maps(trained, &trace, length) }
}

fn maps(trained: &Trained, trace: &reference::model::Trace<f32>, n: usize) -> Vec<Map> {
    let architecture = &trained.architecture;
    let parameters = Parameters { architecture, values: &trained.parameters };
    let mut maps = Vec::new();
    for (layer, seen) in trace.layers.iter().enumerate() {
        let mut add = |head, rows, weights| {
            maps.push(Map { layer, head, rows, columns: n, weights });
        };
        match &architecture.block {
            Block::Attention { .. } => {
                for (head, weights) in seen.block.weights.chunks_exact(n * n).enumerate() {
                    add(head, n, weights.to_vec());
                }
            }
            Block::Pooling(name) => match aggregate::find::<f32>(name) {
                Some(aggregate::Kind::Pooling(pooling)) => {
                    add(0, 1, shares(pooling, &seen.x, &seen.block.out));
                }
                _ => unreachable!("a pooling of the registry"),
            },
            Block::Weighted => {
                let mixing = parameters.get(&format!("layer.{layer}.pool.weight"));
                let transposed = (0..n * n).map(|i| mixing[i % n * n + i / n]);
                add(0, n, transposed.collect());
            }
        }
    }
    maps
}

/// Each token's share of the pooled vector; see [`Kind::Pooling`].
fn shares(pooling: &dyn Pooling<f32>, x: &[f32], pooled: &[f32]) -> Vec<f32> {
    let mut dx = vec![0.0; x.len()];
    pooling.backward(x, None, pooled, pooled, &mut dx);
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    let total = dot(pooled, pooled);
    let d = pooled.len();
    let tokens = x.chunks_exact(d).zip(dx.chunks_exact(d));
    tokens.map(|(x, dx)| (dot(x, dx) / total) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nap_engine::kernels::aggregate::poolings;
    use nap_engine::random::{Purpose, Stream};

    #[test]
    fn shares_of_every_pooling_sum_to_one_and_are_known_by_hand() {
        let mut stream = Stream::new(0, Purpose::Analysis, 0, 0);
        let x: Vec<f32> = (0..28).map(|_| stream.normal() as f32).collect();
        for pooling in poolings::<f32>() {
            let mut pooled = vec![0.0; 4];
            pooling.forward(&x, None, &mut pooled);
            let total: f32 = shares(pooling, &x, &pooled).iter().sum();
            assert!((total - 1.0).abs() < 1e-5, "{}: {total}", pooling.info().name);
        }
        let find = |name| match aggregate::find::<f32>(name) {
            Some(aggregate::Kind::Pooling(pooling)) => pooling,
            _ => panic!("{name}"),
        };
        // Tokens (1, 0) and (3, -4).
        let x = [1.0, 0.0, 3.0, -4.0];
        // The sum (4, -4): shares 4/32 and (12 + 16)/32; the mean points the same way.
        assert_eq!(shares(find("sum"), &x, &[4.0, -4.0]), [0.125, 0.875]);
        assert_eq!(shares(find("mean"), &x, &[2.0, -2.0]), [0.125, 0.875]);
        // The maximum (3, 0): all of it from the second token, and nothing from a zero.
        assert_eq!(shares(find("max"), &x, &[3.0, 0.0]), [0.0, 1.0]);
    }
}
