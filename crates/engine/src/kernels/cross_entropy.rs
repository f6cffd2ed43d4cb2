//! Softmax cross-entropy on logits, and the answer they give.
//!
//! ```text
//! loss = log(sum_c exp(z_c)) - z_target,    dz_c = (softmax(z)_c - [c = target]) * factor
//! ```

use super::lanes;
use crate::arch::vectorize;
use crate::real::Real;

/// What the logits of some rows came to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Sum of the losses.
    pub loss: f64,
    /// Number of right answers.
    pub correct: u64,
    /// Number of rows.
    pub rows: u64,
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.correct += other.correct;
        self.rows += other.rows;
    }
}

/// Turns `logits: [rows, classes]` into `factor` times their gradient, in place, and scores them.
pub fn loss_and_gradient<T: Real>(
    logits: &mut [T],
    classes: usize,
    targets: &[u32],
    factor: T,
) -> Score {
    let mut score = Score::default();
    for (z, &target) in logits.chunks_exact_mut(classes).zip(targets) {
        let (row, max, total) = self::row(z, target as usize);
        score += row;
        vectorize(
            #[inline(always)]
            || {
                let scale = factor / total;
                for z in z.iter_mut() {
                    *z = (*z - max).exp_fast() * scale;
                }
            },
        );
        z[target as usize] -= factor;
    }
    score
}

/// Scores `logits: [rows, classes]` and writes each row's answer.
pub fn answers<T: Real>(
    logits: &[T],
    classes: usize,
    targets: &[u32],
    answers: &mut [u32],
) -> Score {
    let mut score = Score::default();
    for ((z, &target), answer) in logits.chunks_exact(classes).zip(targets).zip(answers) {
        *answer = crate::task::argmax_first(z) as u32;
        score += row(z, target as usize).0;
    }
    score
}

/// The row's score, the maximum of `z` and `sum exp(z - max)`.
fn row<T: Real>(z: &[T], target: usize) -> (Score, T, T) {
    let (max, total) = vectorize(
        #[inline(always)]
        || {
            let max = lanes::max(z);
            (max, lanes::sum(z, |z| (z - max).exp_fast()))
        },
    );
    let score = Score {
        loss: (max - z[target]).f64() + libm::log(total.f64()),
        correct: u64::from(crate::task::argmax_first(z) == target),
        rows: 1,
    };
    (score, max, total)
}
