//! Softmax cross-entropy on logits, and the answer they give.
//!
//! ```text
//! loss = w (log(sum_c exp(z_c)) - z_target),    dz_c = w (softmax(z)_c - [c = target]) * factor
//! ```
//!
//! w is the answer's weight, 1 unless given; answers of weight 0 count nowhere. Logits are `[classes][16]`: up to 16 answers side by side.

use super::lanes::sum_rows;
use crate::arch::{Kernel, Vector, run};
use crate::panel::{LANES, Lanes};
use crate::real::Real;

/// What some rows of logits came to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Sum of the weighted losses.
    pub loss: f64,
    /// Number of right answers.
    pub correct: u64,
    /// Number of answers.
    pub rows: u64,
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.correct += other.correct;
        self.rows += other.rows;
    }
}

/// Turns `logits: [classes]` of some answers into `factor` times their
/// gradient, in place, and scores them. The other lanes become 0.
pub fn loss_and_gradient<T: Real>(logits: &mut [Lanes<T>], targets: Targets, factor: T) -> Score {
    let (score, max, total) = score(logits, targets, |_, _| {});
    let count = targets.classes.len();
    let mut scale = [T::zero(); LANES];
    for lane in 0..count {
        scale[lane] = factor * T::of(f64::from(targets.weight(lane))) / total[lane];
    }
    run(Gradient { logits: &mut *logits, max: &max, scale: &scale });
    for (lane, &target) in targets.classes.iter().enumerate() {
        logits[target as usize][lane] -= factor * T::of(f64::from(targets.weight(lane)));
    }
    for z in logits.iter_mut() {
        // A NaN of an unused lane times 0 would be NaN.
        z[count..].fill(T::zero());
    }
    if let Some(weights) = targets.weights {
        for (lane, _) in weights.iter().enumerate().filter(|(_, weight)| **weight == 0.0) {
            logits.iter_mut().for_each(|z| z[lane] = T::zero());
        }
    }
    score
}

/// Answers that share a panel: the right ones, and what each one's loss is multiplied by.
#[derive(Debug, Clone, Copy)]
pub struct Targets<'a> {
    /// At most 16 classes.
    pub classes: &'a [u32],
    /// As many weights, 1 each if there are none.
    pub weights: Option<&'a [f32]>,
}

impl<'a> From<&'a [u32]> for Targets<'a> {
    fn from(classes: &'a [u32]) -> Self {
        Self { classes, weights: None }
    }
}

impl Targets<'_> {
    fn weight(&self, lane: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[lane])
    }
}

/// Scores `logits: [classes]` of some answers and writes each answer.
pub fn answers<T: Real>(logits: &[Lanes<T>], targets: Targets, answers: &mut [u32]) -> Score {
    score(logits, targets, |lane, answer| answers[lane] = answer).0
}

/// The answers' score, the maximum of each lane's logits and `sum exp(z - max)`.
fn score<T: Real>(
    z: &[Lanes<T>],
    targets: Targets,
    mut answer: impl FnMut(usize, u32),
) -> (Score, Lanes<T>, Lanes<T>) {
    let (max, index, total) = run(Sums { z });
    let mut score = Score::default();
    for (lane, &target) in targets.classes.iter().enumerate() {
        let index = index[lane].f64() as u32;
        answer(lane, index);
        let weight = f64::from(targets.weight(lane));
        if weight > 0.0 {
            let rest = (max[lane] - z[target as usize][lane]).f64();
            score.loss += weight * (rest + libm::log(total[lane].f64()));
            score.correct += u64::from(index == target);
            score.rows += 1;
        }
    }
    (score, max, total)
}

/// Each lane's maximum, its class (exact: there are far fewer than 2^24), and the sum of
/// exp(z - max).
struct Sums<'a, T> {
    z: &'a [Lanes<T>],
}

impl<T: Real> Kernel<T> for Sums<'_, T> {
    type Output = (Lanes<T>, Lanes<T>, Lanes<T>);

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) -> Self::Output {
        let splat = |x| V::splat(token, x);
        // The first of equals; NaN never beats anything, so a diverged model answers 0.
        let (mut max, mut index) = (splat(T::neg_infinity()), splat(T::zero()));
        for (class, z) in self.z.iter().enumerate() {
            let z = V::load(token, z);
            index = z.if_greater(max, splat(T::of(class as f64)), index);
            max = z.if_greater(max, z, max);
        }
        let total = sum_rows(
            token,
            self.z.len(),
            #[inline(always)]
            |class| (V::load(token, &self.z[class]) - max).exp(),
        );
        (max.lanes(), index.lanes(), total.lanes())
    }
}

/// Turns z into exp(z - max) * scale.
struct Gradient<'a, T> {
    logits: &'a mut [Lanes<T>],
    max: &'a Lanes<T>,
    scale: &'a Lanes<T>,
}

impl<T: Real> Kernel<T> for Gradient<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let (max, scale) = (V::load(token, self.max), V::load(token, self.scale));
        for z in self.logits {
            ((V::load(token, z) - max).exp() * scale).store(z);
        }
    }
}
