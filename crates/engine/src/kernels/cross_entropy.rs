//! Softmax cross-entropy on logits, and the answer they give.
//!
//! ```text
//! loss = log(sum_c exp(z_c)) - z_target,    dz_c = (softmax(z)_c - [c = target]) * factor
//! ```
//!
//! Logits are `[classes][16]`: up to 16 answers side by side.

use super::lanes::sum_rows;
use crate::arch::{Kernel, Vector, run};
use crate::panel::Lanes;
use crate::real::Real;

/// What some rows of logits came to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Sum of the losses.
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

/// Turns `logits: [classes]` of `targets.len() <= 16` answers into `factor` times their
/// gradient, in place, and scores them. The other lanes become 0.
pub fn loss_and_gradient<T: Real>(logits: &mut [Lanes<T>], targets: &[u32], factor: T) -> Score {
    let (score, max, total) = score(logits, targets, |_, _| {});
    let mut scale = total.map(|total| factor / total);
    scale[targets.len()..].fill(T::zero());
    run(Gradient { logits: &mut *logits, max: &max, scale: &scale });
    for (lane, &target) in targets.iter().enumerate() {
        logits[target as usize][lane] -= factor;
    }
    for z in logits.iter_mut() {
        // A NaN of an unused lane times 0 would be NaN.
        z[targets.len()..].fill(T::zero());
    }
    score
}

/// Scores `logits: [classes]` of `targets.len() <= 16` answers and writes each answer.
pub fn answers<T: Real>(logits: &[Lanes<T>], targets: &[u32], answers: &mut [u32]) -> Score {
    score(logits, targets, |lane, answer| answers[lane] = answer).0
}

/// The answers' score, the maximum of each lane's logits and `sum exp(z - max)`.
fn score<T: Real>(
    z: &[Lanes<T>],
    targets: &[u32],
    mut answer: impl FnMut(usize, u32),
) -> (Score, Lanes<T>, Lanes<T>) {
    let (max, index, total) = run(Sums { z });
    let mut score = Score { rows: targets.len() as u64, ..Score::default() };
    for (lane, &target) in targets.iter().enumerate() {
        score.loss += (max[lane] - z[target as usize][lane]).f64() + libm::log(total[lane].f64());
        let index = index[lane].f64() as u32;
        score.correct += u64::from(index == target);
        answer(lane, index);
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
