//! What each head does: where its weight goes, over many sequences.
//!
//! ```text
//! on M        mean over sequences, queries i and positions j in M of  w_ij
//! own         mean of w_ii
//! negative    share of w_ij < 0
//! entropy     mean of -sum_j w_ij ln w_ij        where weights are a distribution
//! ```
//!
//! M is the place of the smallest, of the largest and of the first token, and where the task
//! looks for it: the places of tokens 64 and 50, or of the most frequent token. Sequences in
//! which M is empty do not count for it.

use nap_engine::config::TaskName;
use nap_engine::task::{DECIDING, FIRST, Task};

use super::{Kind, Map};

/// A set of positions with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Such as `argmin`.
    pub name: &'static str,
    /// Where it is; may be empty.
    pub positions: Vec<usize>,
}

/// The positions of a sequence that matter in a task.
pub fn marks(task: &Task, tokens: &[u32]) -> Vec<Mark> {
    let places = |token: u32| (0..tokens.len()).filter(|&i| tokens[i] == token).collect();
    let first = |token: Option<u32>| tokens.iter().position(|&t| Some(t) == token);
    if task.name().is_own() {
        // What else matters there, nobody has said.
        return vec![Mark { name: "first", positions: vec![0] }];
    }
    let mut marks = vec![
        ("argmin", Vec::from_iter(first(tokens.iter().min().copied()))),
        ("argmax", Vec::from_iter(first(tokens.iter().max().copied()))),
        ("first", vec![0]),
    ];
    match task.name() {
        TaskName::Cases => marks.extend([("64", places(DECIDING)), ("50", places(FIRST))]),
        TaskName::Lg => marks.push(("64", places(DECIDING))),
        TaskName::Mode => {
            let mut mode = [0];
            task.label(tokens, &mut mode);
            marks.push(("mode", places(mode[0])));
        }
        TaskName::Classify | TaskName::Point | TaskName::Tag => {}
    }
    marks.into_iter().map(|(name, positions)| Mark { name, positions }).collect()
}

/// What a head does.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// Counts from 0.
    pub layer: usize,
    /// Counts from 0.
    pub head: usize,
    /// Mean weight on each of [`marks`]; NaN if no sequence has it.
    pub on: Vec<(&'static str, f64)>,
    /// Mean weight on the query itself; NaN with one row for all.
    pub own: f64,
    /// Mean weight.
    pub mean: f64,
    /// Root of the mean square of the weights: how large they are.
    pub size: f64,
    /// Share of negative weights.
    pub negative: f64,
    /// In nats; NaN where weights are no distribution.
    pub entropy: f64,
}

/// Sums over sequences, head by head.
#[derive(Debug, Clone)]
pub struct Roles {
    kind: Kind,
    first_query_only: bool,
    sums: Vec<Sums>,
}

#[derive(Debug, Clone, Default)]
struct Sums {
    layer: usize,
    head: usize,
    /// Name, sum over sequences, sequences.
    on: Vec<(&'static str, f64, f64)>,
    rows: f64,
    own: f64,
    entropy: f64,
    weights: f64,
    sum: f64,
    squares: f64,
    negative: f64,
}

impl Roles {
    /// Of no sequence yet; `first_query_only` leaves all queries but the first token's out.
    pub fn new(kind: Kind, first_query_only: bool) -> Self {
        Self { kind, first_query_only, sums: Vec::new() }
    }

    /// Counts the maps of a sequence.
    ///
    /// # Panics
    /// If they are not of the same heads as those before.
    pub fn add(&mut self, marks: &[Mark], maps: &[Map]) {
        if self.sums.is_empty() {
            let empty = |map: &Map| Sums {
                layer: map.layer,
                head: map.head,
                on: marks.iter().map(|mark| (mark.name, 0.0, 0.0)).collect(),
                ..Sums::default()
            };
            self.sums = maps.iter().map(empty).collect();
        }
        assert_eq!(self.sums.len(), maps.len(), "the same heads");
        for (sums, map) in self.sums.iter_mut().zip(maps) {
            let rows = if self.first_query_only { 1 } else { map.rows };
            for ((_, total, count), mark) in sums.on.iter_mut().zip(marks) {
                if !mark.positions.is_empty() {
                    let weight = |i: usize| {
                        let of = |&j: &usize| f64::from(map.row(i)[j]);
                        mark.positions.iter().map(of).sum::<f64>()
                    };
                    let sum: f64 = (0..rows).map(weight).sum();
                    *total += sum / (rows * mark.positions.len()) as f64;
                    *count += 1.0;
                }
            }
            for i in 0..rows {
                let row = map.row(i);
                sums.rows += 1.0;
                sums.own +=
                    if map.rows > 1 || map.columns == 1 { f64::from(row[i]) } else { f64::NAN };
                for w in row.iter().map(|&w| f64::from(w)) {
                    sums.weights += 1.0;
                    sums.sum += w;
                    sums.squares += w * w;
                    sums.negative += f64::from(u8::from(w < 0.0));
                    // 0 ln 0 = 0
                    sums.entropy -= if w == 0.0 { 0.0 } else { w * w.ln() };
                }
            }
        }
    }

    /// What each head does.
    pub fn roles(&self) -> Vec<Role> {
        let distribution = self.kind == Kind::Attention { distribution: true };
        let role = |s: &Sums| Role {
            layer: s.layer,
            head: s.head,
            on: s.on.iter().map(|&(name, total, count)| (name, total / count)).collect(),
            own: s.own / s.rows,
            mean: s.sum / s.weights,
            size: (s.squares / s.weights).sqrt(),
            negative: if s.sum.is_nan() { f64::NAN } else { s.negative / s.weights },
            entropy: if distribution { s.entropy / s.rows } else { f64::NAN },
        };
        self.sums.iter().map(role).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nap_engine::config::RunConfig;

    fn map(rows: usize, weights: &[f32]) -> Map {
        let weights = weights.to_vec();
        Map { layer: 1, head: 2, rows, columns: weights.len() / rows, weights }
    }

    fn task(name: TaskName) -> Task {
        let mut config = RunConfig::paper().task;
        config.name = name;
        Task::new(&config)
    }

    #[test]
    fn marks_are_the_first_of_equals_and_every_deciding_token() {
        let names = |name, tokens: &[u32]| {
            let marks = marks(&task(name), tokens);
            marks.into_iter().map(|mark| (mark.name, mark.positions)).collect::<Vec<_>>()
        };
        assert_eq!(
            names(TaskName::Cases, &[7, 64, 3, 64, 3, 99, 99]),
            [
                ("argmin", vec![2]),
                ("argmax", vec![5]),
                ("first", vec![0]),
                ("64", vec![1, 3]),
                ("50", vec![])
            ]
        );
        assert_eq!(names(TaskName::Mode, &[5, 2, 5])[3], ("mode", vec![0, 2]));
        assert_eq!(names(TaskName::Lg, &[5])[..2], [("argmin", vec![0]), ("argmax", vec![0])]);
    }

    #[test]
    fn means_by_hand() {
        // Queries see tokens 7, 64, 3; argmin at 2, argmax and 64 at 1, first at 0.
        let tokens = [7, 64, 3];
        let marks = marks(&task(TaskName::Cases), &tokens);
        let weights = [1.0, 0.0, 0.0, 0.5, 0.25, 0.25, -1.0, 2.0, 0.0];
        let mut roles = Roles::new(Kind::Attention { distribution: false }, false);
        roles.add(&marks, &[map(3, &weights)]);
        let role = &roles.roles()[0];
        assert_eq!((role.layer, role.head), (1, 2));
        let on: Vec<_> = role.on.iter().map(|(_, w)| *w).collect();
        assert_eq!(on[..4], [0.25 / 3.0, 0.75, 0.5 / 3.0, 0.75]);
        assert!(on[4].is_nan(), "no 50 anywhere");
        assert_eq!(role.own, 1.25 / 3.0);
        assert_eq!((role.mean, role.negative), (3.0 / 9.0, 1.0 / 9.0));
        assert_eq!(role.size, (6.375f64 / 9.0).sqrt());
        assert!(role.entropy.is_nan());

        let mut first = Roles::new(Kind::Attention { distribution: true }, true);
        first.add(&marks, &[map(3, &weights)]);
        let role = &first.roles()[0];
        assert_eq!((role.on[2].1, role.own, role.entropy), (1.0, 1.0, 0.0));
    }

    #[test]
    fn entropy_of_uniform_weights_is_the_logarithm_of_their_number() {
        let tokens = [1, 2, 3, 4];
        let marks = marks(&task(TaskName::Mode), &tokens);
        let mut roles = Roles::new(Kind::Attention { distribution: true }, false);
        for weights in [[0.25; 16], [0.25; 16]] {
            roles.add(&marks, &[map(4, &weights)]);
        }
        let role = &roles.roles()[0];
        assert!((role.entropy - 4f64.ln()).abs() < 1e-12);
        assert_eq!((role.own, role.size, role.negative), (0.25, 0.25, 0.0));
    }

    #[test]
    fn a_pooling_has_one_row_and_a_diverged_model_no_figures() {
        let marks = marks(&task(TaskName::Lg), &[9, 8]);
        let mut roles = Roles::new(Kind::Pooling, false);
        roles.add(&marks, &[map(1, &[0.75, 0.25])]);
        let role = &roles.roles()[0];
        assert_eq!(role.on[..2], [("argmin", 0.25), ("argmax", 0.75)]);
        assert!(role.own.is_nan());
        let mut roles = Roles::new(Kind::Pooling, false);
        roles.add(&marks, &[map(1, &[f32::NAN, f32::NAN])]);
        let role = &roles.roles()[0];
        assert!(role.mean.is_nan() && role.negative.is_nan() && role.on[0].1.is_nan());
    }
}
