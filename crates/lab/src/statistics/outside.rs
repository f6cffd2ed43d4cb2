//! How many new runs lie outside the range of others.
//!
//! Of m runs only the least and the largest value are known. If n new runs come from the same
//! distribution, all orders of the n + m values are equally likely, and the number K of new ones
//! outside the m has the distribution
//!
//! ```text
//! P(K = k) = (k + 1) C(n - k + m - 2, m - 2) / C(n + m, m),    E[K] = 2 n / (m + 1)
//! ```
//!
//! (k of them are split between below and above in k + 1 ways; the others lie among the m - 2
//! values between). For n = 1 and m = 5 a run is outside with probability 2/6. The n runs of one
//! cell are not independent of each other, for they share the range; cells are, so that the total
//! over a grid has the convolution of the cells' distributions. With one run per cell that is the
//! binomial distribution. Values that are equal to an end count as inside: where ties occur, the
//! test errs on the side of agreement.

use super::combinations;

/// P(K = k) for k = 0, ..., `ours`, against the range of `theirs` (2 at least) values.
pub fn distribution(ours: usize, theirs: usize) -> Vec<f64> {
    let all = combinations(ours + theirs, theirs);
    let inner = theirs.saturating_sub(2);
    let share = |k: usize| (k + 1) as f64 * combinations(ours - k + inner, inner) / all;
    (0..=ours).map(share).collect()
}

/// The distribution of the sum of independent numbers.
pub fn sum<'a>(distributions: impl Iterator<Item = &'a [f64]>) -> Vec<f64> {
    distributions.fold(vec![1.0], |total, one| {
        let mut next = vec![0.0; total.len() + one.len() - 1];
        for (i, a) in total.iter().enumerate() {
            for (j, b) in one.iter().enumerate() {
                next[i + j] += a * b;
            }
        }
        next
    })
}

/// P(K >= k), added from the small end.
pub fn tail(distribution: &[f64], k: usize) -> f64 {
    distribution.iter().skip(k).rev().sum::<f64>().min(1.0)
}

/// The least number whose [`tail`] is at most `level`; none if even the largest is likelier.
pub fn critical(distribution: &[f64], level: f64) -> Option<usize> {
    (0..distribution.len()).find(|&k| tail(distribution, k) <= level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_single_runs_is_outside_five() {
        let one = distribution(1, 5);
        assert!((one[1] - 1.0 / 3.0).abs() < 1e-15);
        for (ours, theirs) in [(5, 5), (3, 5), (7, 2)] {
            let all = distribution(ours, theirs);
            let mean: f64 = all.iter().enumerate().map(|(k, p)| k as f64 * p).sum();
            assert!((mean - 2.0 * ours as f64 / (theirs + 1) as f64).abs() < 1e-12);
            assert!((tail(&all, 0) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn the_critical_number_is_the_least_unlikely_one() {
        let distribution = distribution(5, 5);
        // P(5) = 6/252, P(>= 4) = 6/252 + 20/252.
        assert_eq!(critical(&distribution, 0.05), Some(5));
        assert_eq!(critical(&distribution, 0.11), Some(4));
        assert_eq!(critical(&distribution, 0.01), None);
    }
}
