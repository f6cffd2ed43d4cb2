//! How much of a comparison fits into a time.

use super::{FINALISTS, REFINE, SEARCH};
use crate::statistics::permutation::least_p;

/// A difference counts if its p-value, corrected for the number of pairs, is at most this.
pub const LEVEL: f64 = 0.05;

/// No comparison has more fresh seeds.
const MOST_FRESH: usize = 12;

/// Share of the time that is planned for: measured speeds are those of a moment.
const PLANNED: f64 = 0.85;

/// The size of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Epochs of every run.
    pub epochs: usize,
    /// Number of fresh seeds.
    pub fresh: usize,
    /// About how long it takes, in seconds.
    pub seconds: f64,
}

/// The fewest fresh seeds with which a difference between two of `models` can count: with fewer,
/// groups that are wholly apart would not have a p-value of [`LEVEL`].
pub fn least_fresh(models: usize) -> usize {
    let pairs = (models * (models - 1) / 2) as f64;
    (2..MOST_FRESH).find(|&n| least_p(n, n) * pairs <= LEVEL).unwrap_or(MOST_FRESH)
}

/// The largest comparison that fits: first as many of the `epochs` as can be, then as many fresh
/// seeds. `seconds` is what a run of each model takes with all epochs, of a core that works beside
/// `jobs - 1` others; `budget` is in seconds.
///
/// # Errors
/// If not even one epoch fits: the seconds that one would need.
pub fn size(
    seconds: &[f64],
    rates: usize,
    epochs: usize,
    jobs: usize,
    budget: f64,
) -> Result<Size, f64> {
    let least = least_fresh(seconds.len());
    let budget = budget * PLANNED;
    let all = |fresh: usize| wall(seconds, rates, fresh, jobs);
    let per_epoch = all(least) / epochs as f64;
    let fitting = ((budget / per_epoch) as usize).min(epochs);
    if fitting == 0 {
        return Err(per_epoch / PLANNED);
    }
    let mut size = Size { epochs: fitting, fresh: least, seconds: fitting as f64 * per_epoch };
    while fitting == epochs && size.fresh < MOST_FRESH && all(size.fresh + 1) <= budget {
        size.fresh += 1;
        size.seconds = all(size.fresh);
    }
    Ok(size)
}

/// Number of runs of each stage, per model.
pub fn runs(rates: usize, fresh: usize) -> [usize; 3] {
    let refined = if rates > 1 { rates.min(FINALISTS) * REFINE } else { 0 };
    [rates * SEARCH, refined, fresh]
}

/// How long it takes by the clock. A stage begins when the one before has ended, and ends when
/// the last worker does.
fn wall(seconds: &[f64], rates: usize, fresh: usize, jobs: usize) -> f64 {
    let longest = seconds.iter().copied().fold(0.0, f64::max);
    let (total, jobs) = (seconds.iter().sum::<f64>(), jobs as f64);
    let stage = |runs: usize| match runs {
        0 => 0.0,
        runs => total * runs as f64 / jobs + longest * (1.0 - 1.0 / jobs),
    };
    runs(rates, fresh).into_iter().map(stage).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_few_fresh_seeds_as_can_show_a_difference() {
        // 2 / C(2n, n) times the number of pairs.
        assert_eq!([2, 3, 4, 5, 6, 9].map(least_fresh), [4, 5, 5, 6, 6, 7]);
        for models in 2..10 {
            let (n, pairs) = (least_fresh(models), (models * (models - 1) / 2) as f64);
            assert!(least_p(n, n) * pairs <= LEVEL && least_p(n - 1, n - 1) * pairs > LEVEL);
        }
    }

    #[test]
    fn epochs_come_first_and_seeds_then_and_all_of_it_fits() {
        let seconds = [10.0, 20.0];
        // Six rates, two finalists with two seeds, four fresh ones: 14 runs of each.
        let all = 14.0 * 30.0 / PLANNED;
        assert_eq!(size(&seconds, 6, 10, 1, all * 1.0001).unwrap().epochs, 10);
        let half = size(&seconds, 6, 10, 1, all * 0.55).unwrap();
        assert_eq!((half.epochs, half.fresh), (5, 4));
        assert!((half.seconds - 210.0).abs() < 1e-9);
        let more = size(&seconds, 6, 10, 1, all * 1.2).unwrap();
        assert_eq!((more.epochs, more.fresh), (10, 6));
        assert_eq!(size(&seconds, 6, 10, 1, all * 100.0).unwrap().fresh, MOST_FRESH);
        let needed = size(&seconds, 6, 10, 1, all * 0.09).unwrap_err();
        assert!((needed - all / 10.0).abs() < 1e-9);
        assert_eq!(size(&seconds, 6, 10, 1, needed * 1.0001).unwrap().epochs, 1);
        let mut before = 0.0;
        for budget in 1..200 {
            let Ok(size) = size(&seconds, 6, 10, 4, f64::from(budget) * 5.0) else { continue };
            assert!(size.seconds <= f64::from(budget) * 5.0 && size.seconds >= before);
            before = size.seconds;
        }
        assert!(before > 0.0);
    }

    #[test]
    fn one_learning_rate_needs_no_refinement() {
        assert_eq!(runs(1, 4), [1, 0, 4]);
        assert_eq!(runs(6, 4), [6, 4, 4]);
    }
}
