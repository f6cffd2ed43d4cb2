//! Macro-F1 of classes.
//!
//! ```text
//! F1_c = 2 right_c / (answered_c + occurring_c),    macro-F1 = mean of F1_c over the classes
//! that occur or are answered
//! ```

use crate::task::Batch;

/// Counts of answers per class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassScore {
    /// Right answers, answers, and occurrences.
    counts: Vec<[u64; 3]>,
}

impl ClassScore {
    /// Nothing counted yet.
    pub fn new(classes: usize) -> Self {
        Self { counts: vec![[0; 3]; classes] }
    }

    /// Counts the answers to a batch that count.
    pub fn add(&mut self, answers: &[u32], batch: &Batch) {
        for (i, (&answer, &target)) in answers.iter().zip(&batch.targets).enumerate() {
            if batch.weights.as_ref().is_none_or(|weights| weights[i] > 0.0) {
                self.counts[target as usize][0] += u64::from(answer == target);
                self.counts[answer as usize][1] += 1;
                self.counts[target as usize][2] += 1;
            }
        }
    }

    /// Macro-F1; NaN if nothing was counted.
    pub fn macro_f1(&self) -> f64 {
        let seen = self.counts.iter().filter(|[_, answered, occurring]| answered + occurring > 0);
        let of = |[right, answered, occurring]: &[u64; 3]| {
            2.0 * *right as f64 / (answered + occurring) as f64
        };
        seen.clone().map(of).sum::<f64>() / seen.count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macro_f1_is_the_mean_over_classes_that_are_seen() {
        let mut score = ClassScore::new(5);
        assert!(score.macro_f1().is_nan());
        let targets = vec![0, 0, 1, 1, 2, 4];
        let weights = Some(vec![1.0, 1.0, 0.5, 1.0, 1.0, 0.0]);
        let batch = Batch { targets, weights, ..Batch::default() };
        score.add(&[0, 1, 1, 1, 0, 4], &batch);
        // Class 0: 1 right, 2 answered, 2 occurring; 1: 2, 3, 2; 2: 0, 0, 1; 3 and 4: not seen.
        let expected = (2.0 / 4.0 + 4.0 / 5.0 + 0.0) / 3.0;
        assert!((score.macro_f1() - expected).abs() < 1e-15);
    }
}
