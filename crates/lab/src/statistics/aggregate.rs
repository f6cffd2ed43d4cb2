//! A cell's seeds in three figures, as the paper's maps show them.

/// A cell's accuracy over its seeds: the largest over the epochs of that epoch's minimum, mean
/// and maximum. Runs of different lengths are compared as far as the shortest; an epoch in which
/// a run has no value (a case that did not occur) counts for the other runs.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Aggregate {
    /// Worst seed.
    pub min: f64,
    /// Mean over the seeds.
    pub mean: f64,
    /// Best seed.
    pub max: f64,
    /// Number of seeds.
    pub runs: usize,
}

impl Aggregate {
    /// Of the values of a figure by epoch, one list per seed; none if there are none.
    pub fn of(curves: &[&[f64]]) -> Option<Self> {
        let epochs = curves.iter().map(|curve| curve.len()).min()?;
        let runs = curves.len();
        let mut best: Option<Self> = None;
        for epoch in 0..epochs {
            let values = || curves.iter().map(|curve| curve[epoch]).filter(|x| !x.is_nan());
            let count = values().count();
            if count == 0 {
                continue;
            }
            let min = values().fold(f64::INFINITY, f64::min);
            let max = values().fold(f64::NEG_INFINITY, f64::max);
            let mean = values().sum::<f64>() / count as f64;
            let known = best.get_or_insert(Self { min, mean, max, runs });
            known.min = known.min.max(min);
            known.mean = known.mean.max(mean);
            known.max = known.max.max(max);
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregates_take_the_best_epoch_of_each_statistic() {
        let curves: [&[f64]; 2] = [&[0.1, 0.8, 0.4], &[0.3, 0.2, 0.9]];
        let aggregate = Aggregate::of(&curves).unwrap();
        assert_eq!((aggregate.min, aggregate.max, aggregate.runs), (0.4, 0.9, 2));
        assert!((aggregate.mean - 0.65).abs() < 1e-12);
        assert_eq!(Aggregate::of(&[]), None);
        assert_eq!(Aggregate::of(&[&[], &[0.5]]), None);
        let gaps: [&[f64]; 2] = [&[f64::NAN, 0.2, f64::NAN], &[f64::NAN, 0.4, 0.1]];
        let aggregate = Aggregate::of(&gaps).unwrap();
        assert_eq!((aggregate.min, aggregate.max, aggregate.runs), (0.2, 0.4, 2));
        assert_eq!(Aggregate::of(&[&[f64::NAN]]), None);
    }
}
