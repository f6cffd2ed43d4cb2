//! Percentile bootstrap intervals.
//!
//! Seeds are drawn with replacement, as many as there are, [`DRAWS`] times; the interval is
//! bounded by the 2.5th and the 97.5th percentile of the figure's values. It says how far a figure
//! hangs on the seeds at hand. Of five seeds no interval can know more than the five: what never
//! happened in them is not in it, and a least value never gets smaller by drawing again.

use nap_engine::random::{Purpose, Stream};

/// Samples drawn.
pub const DRAWS: usize = 2000;

/// Share of the draws within an interval.
pub const COVERAGE: f64 = 0.95;

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Samples of seeds, drawn with replacement.
pub struct Draws {
    stream: Stream,
    seeds: u32,
    picks: Vec<usize>,
}

impl Draws {
    /// Samples of `count` of `seeds` (at least one) seeds. `site` tells streams apart that must
    /// not draw the same.
    pub fn new(seeds: usize, count: usize, site: u64) -> Self {
        let stream = Stream::new(0, Purpose::Resampling, seeds as u64, count as u64);
        Self {
            // The relabellings of permutation tests have site 0.
            stream: stream.with_site(site + 1),
            seeds: seeds as u32,
            picks: vec![0; count],
        }
    }

    /// The next sample: indices of seeds.
    pub fn draw(&mut self) -> &[usize] {
        let (stream, seeds) = (&mut self.stream, self.seeds);
        self.picks.fill_with(|| stream.below(seeds) as usize);
        &self.picks
    }
}

/// The interval of a figure of `n` seeds. The figure takes the seeds drawn, as indices. None for
/// fewer than two seeds, which have no spread.
pub fn interval(n: usize, site: u64, mut figure: impl FnMut(&[usize]) -> f64) -> Option<Interval> {
    if n < 2 {
        return None;
    }
    let mut draws = Draws::new(n, n, site);
    of((0..DRAWS).map(|_| figure(draws.draw())).collect())
}

/// The interval of a figure's values in the samples; those that are NaN (a cell without the seeds
/// drawn) are left out. None if no value is left.
pub fn of(mut values: Vec<f64>) -> Option<Interval> {
    values.retain(|x| !x.is_nan());
    if values.is_empty() {
        return None;
    }
    let beyond = (1.0 - COVERAGE) / 2.0;
    let [low, high] = [beyond, 1.0 - beyond].map(|q| quantile(&values, q));
    Some(Interval { low, high })
}

/// The q-quantile, interpolated linearly between the two nearest values; NaN of none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    let above = (below + 1).min(last);
    values[below] + part * (values[above] - values[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(site: u64) -> Vec<Vec<usize>> {
        let mut draws = Draws::new(5, 5, site);
        (0..DRAWS).map(|_| draws.draw().to_vec()).collect()
    }

    #[test]
    fn draws_are_pinned_and_uniform() {
        let first = sample(0);
        assert_eq!(first[..2], [[2, 0, 1, 2, 4], [2, 3, 3, 2, 3]]);
        assert_eq!(first, sample(0));
        assert_ne!(first, sample(1));
        // 10,000 picks of 5.
        for seed in 0..5 {
            let picked = first.iter().flatten().filter(|&&pick| pick == seed).count();
            assert!((picked as f64 - 2000.0).abs() < 5.0 * 40.0, "{seed} {picked}");
        }
    }

    #[test]
    fn one_seed_has_no_interval() {
        assert_eq!(interval(1, 0, |_| 1.0), None);
        assert_eq!(interval(2, 0, |_| f64::NAN), None);
        assert_eq!(interval(3, 0, |_| 0.5), Some(Interval { low: 0.5, high: 0.5 }));
    }
}
