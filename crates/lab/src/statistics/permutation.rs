//! Exact permutation tests of two groups.
//!
//! If both groups come from one distribution, every way of calling a of the a + b runs "first" is
//! equally likely. The p-value is the share of these relabellings whose statistic is at least the
//! observed one:
//!
//! ```text
//! p = #{ g : T(g) >= T(observed) } / C(a + b, a)
//! ```
//!
//! This holds for any statistic T and any distribution, bimodal ones included, and needs no large
//! numbers. T is chosen to be the difference of the very figure that is reported. Fisher's exact
//! test of solved against unsolved runs is the same test after values were cut in two, and loses
//! what the cut hides; the Mann-Whitney test sees ranks alone, for which a difference of 0.001
//! weighs as much as one of 0.9; Welch's t test needs the means of five bimodal values to be
//! normal, which they are not.

use nap_engine::random::{Purpose, Stream};

use super::combinations;

/// The most relabellings that are enumerated; beyond, [`DRAWS`] of them are drawn.
const MOST: usize = 20_000;

/// Relabellings drawn where there are too many.
const DRAWS: usize = 1_999;

/// Calls with relabellings of `a + b` runs: for each run, whether it is called first. The
/// observed one, the first `a`, comes first; then all others if they are few, else a sample of
/// them.
pub fn relabellings(a: usize, b: usize, mut with: impl FnMut(&[bool])) {
    let n = a + b;
    let mut first: Vec<bool> = (0..n).map(|i| i < a).collect();
    with(&first);
    if enumerable(a, b).is_some() {
        while next(&mut first) {
            with(&first);
        }
        return;
    }
    let mut stream = Stream::new(0, Purpose::Resampling, a as u64, b as u64);
    for _ in 0..DRAWS {
        // Fisher and Yates: the first places of a shuffle.
        for i in 0..a {
            first.swap(i, i + stream.below((n - i) as u32) as usize);
        }
        with(&first);
    }
}

/// The p-value of statistics of [`relabellings`], in their order: the share that is at least the
/// observed one. Relabellings that have no statistic (NaN: a group without runs) do not count.
pub fn p_value(statistics: &[f64]) -> f64 {
    let least = at_least(statistics.first().copied().unwrap_or(f64::NAN));
    let counted = statistics.iter().filter(|x| !x.is_nan()).count();
    statistics.iter().filter(|&&x| x >= least).count() as f64 / counted as f64
}

/// The p-value of the absolute difference of two groups' means.
pub fn of_means(a: &[f64], b: &[f64]) -> f64 {
    let values = [a, b].concat();
    let total: f64 = values.iter().sum();
    let mut distances = Vec::new();
    relabellings(a.len(), b.len(), |first| {
        let one: f64 = values.iter().zip(first).filter(|(_, f)| **f).map(|(x, _)| x).sum();
        distances.push((one / a.len() as f64 - (total - one) / b.len() as f64).abs());
    });
    p_value(&distances)
}

/// The smallest p-value that groups of these sizes can have.
pub fn least_p(a: usize, b: usize) -> f64 {
    match enumerable(a, b) {
        // Exchanging the groups leaves the statistic as it is.
        Some(total) if a == b && a > 0 => 2.0 / total as f64,
        Some(total) => 1.0 / total as f64,
        None => 1.0 / (DRAWS + 1) as f64,
    }
}

/// Westfall and Young's adjusted p-values of several hypotheses, each with its statistics of the
/// same relabellings: the share of relabellings whose largest standardised statistic is at least
/// that of the hypothesis. The chance of any false rejection is at most the level, whatever the
/// dependence between the hypotheses; and unlike Holm's, the least p-value does not grow with
/// their number.
pub fn adjusted_p(hypotheses: &[Vec<f64>]) -> Vec<f64> {
    let standardised: Vec<Vec<f64>> = hypotheses.iter().map(|h| standardise(h)).collect();
    let relabellings = hypotheses.iter().map(Vec::len).min().unwrap_or(0);
    let largest: Vec<f64> = (0..relabellings)
        .map(|i| standardised.iter().map(|h| h[i]).fold(f64::NAN, f64::max))
        .collect();
    let adjusted = |h: &Vec<f64>| {
        let least = at_least(h.first().copied().unwrap_or(f64::NAN));
        let counted = h.iter().filter(|x| !x.is_nan()).count();
        let extreme = h.iter().zip(&largest).filter(|(x, most)| !x.is_nan() && **most >= least);
        extreme.count() as f64 / counted as f64
    };
    standardised.iter().map(adjusted).collect()
}

/// Mean 0 and deviation 1 over the relabellings; 0 where they are all the same.
fn standardise(values: &[f64]) -> Vec<f64> {
    let known: Vec<f64> = values.iter().copied().filter(|x| !x.is_nan()).collect();
    let n = known.len() as f64;
    let mean = known.iter().sum::<f64>() / n;
    let deviation = (known.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    let scale = if deviation > 1e-12 { deviation } else { f64::INFINITY };
    values.iter().map(|x| (x - mean) / scale).collect()
}

/// What counts as at least as large: equal in theory, statistics may differ by rounding.
fn at_least(observed: f64) -> f64 {
    observed - 1e-12 * observed.abs().max(1.0)
}

/// The number of relabellings, if they are few enough.
fn enumerable(a: usize, b: usize) -> Option<usize> {
    let total = combinations(a + b, a);
    // Whole numbers of this size are exact.
    (total <= MOST as f64).then_some(total as usize)
}

/// The next choice of the same number of places, in descending order; false after the last.
fn next(chosen: &mut [bool]) -> bool {
    // The last chosen place that can move on, and those behind it directly after.
    let trailing = chosen.iter().rev().take_while(|&&c| c).count();
    let end = chosen.len() - trailing;
    match chosen[..end].iter().rposition(|&c| c) {
        None => false,
        Some(place) => {
            chosen[place..].fill(false);
            chosen[place + 1..place + 2 + trailing].fill(true);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn statistics(a: usize, b: usize, statistic: impl Fn(&[bool]) -> f64) -> Vec<f64> {
        let mut all = Vec::new();
        relabellings(a, b, |first| all.push(statistic(first)));
        all
    }

    /// Of the values 0, 1, 2, ...: how far the sum of the first is from its mean.
    fn distance(first: &[bool]) -> f64 {
        let value = |(i, &f): (usize, &bool)| if f { i as f64 } else { 0.0 };
        let sum: f64 = first.iter().enumerate().map(value).sum();
        let count = first.iter().filter(|&&f| f).count();
        (sum - count as f64 * (first.len() - 1) as f64 / 2.0).abs()
    }

    #[test]
    fn every_relabelling_comes_once_and_the_observed_one_first() {
        for (a, b) in [(0, 0), (0, 2), (1, 0), (1, 3), (2, 3), (5, 5), (4, 1)] {
            let mut seen = Vec::new();
            relabellings(a, b, |first| seen.push(first.to_vec()));
            assert!(seen[0].iter().enumerate().all(|(i, &first)| first == (i < a)));
            assert!(seen.iter().all(|first| first.iter().filter(|&&f| f).count() == a));
            assert_eq!(seen.len(), combinations(a + b, a) as usize, "{a} {b}");
            assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len());
        }
    }

    #[test]
    fn the_least_p_is_that_of_groups_apart() {
        let apart = p_value(&statistics(5, 5, distance));
        assert_eq!((apart, least_p(5, 5)), (2.0 / 252.0, 2.0 / 252.0));
        assert_eq!(p_value(&statistics(3, 3, |_| 1.0)), 1.0);
        assert_eq!((least_p(2, 1), least_p(1, 1)), (1.0 / 3.0, 1.0));
    }

    #[test]
    fn many_relabellings_are_drawn_the_same_every_time() {
        let far = statistics(20, 20, distance);
        assert_eq!(far.len(), DRAWS + 1);
        assert_eq!((p_value(&far), least_p(20, 20)), (5e-4, 5e-4));
        assert_eq!(far, statistics(20, 20, distance));
        let half = p_value(&statistics(20, 20, |first| f64::from(u8::from(first[0]))));
        assert!((half - 0.5).abs() < 0.05, "{half}");
    }

    #[test]
    fn one_clear_difference_among_many_hypotheses_stays_clear() {
        let clear = statistics(5, 5, distance);
        // Noise: the values of another order, different for each hypothesis.
        let noise = |k: usize| {
            statistics(5, 5, |first| {
                let shuffled: Vec<bool> = (0..10).map(|i| first[(i * 3 + k) % 10]).collect();
                distance(&shuffled).sqrt()
            })
        };
        let hypotheses: Vec<_> = std::iter::once(clear).chain((0..10).map(noise)).collect();
        let adjusted = adjusted_p(&hypotheses);
        let single: Vec<_> = hypotheses.iter().map(|h| p_value(h)).collect();
        assert!(adjusted.iter().zip(&single).all(|(a, p)| a >= p), "{adjusted:?} {single:?}");
        assert!(adjusted[0] <= 0.05 && adjusted[1..].iter().all(|&p| p > 0.05), "{adjusted:?}");
        assert_eq!(adjusted_p(&hypotheses[..1]), single[..1]);
        assert_eq!(adjusted_p(&[vec![1.0; 4], vec![f64::NAN; 4]])[0], 1.0);
    }
}
