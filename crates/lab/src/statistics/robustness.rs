//! Over how much of a grid a model works.

/// The accuracies of the robust area that are reported.
pub const THRESHOLDS: [f64; 3] = [0.5, 0.95, 0.99];

/// The robust area: the share of cells whose worst seed exceeds a threshold; NaN of no cells.
pub fn robust_area(worst: impl Iterator<Item = f64>, threshold: f64) -> f64 {
    let (cells, robust) = worst.fold((0usize, 0usize), |(cells, robust), worst| {
        (cells + 1, robust + usize::from(worst > threshold))
    });
    robust as f64 / cells as f64
}

/// The usable decades of learning rate at one value of the axis: the width on the logarithmic
/// scale of the rates whose worst seed exceeds the threshold. A rate stands for the interval
/// between the middles to its neighbours (at the ends, for as much outwards as inwards); a rate
/// that is alone has width 0.
pub fn usable_decades(cells: &[(f64, f64)], threshold: f64) -> f64 {
    let mut cells: Vec<(f64, f64)> =
        cells.iter().map(|&(rate, worst)| (rate.log10(), worst)).collect();
    cells.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut decades = 0.0;
    for (i, &(at, worst)) in cells.iter().enumerate() {
        let below = i.checked_sub(1).map(|i| at - cells[i].0);
        let above = cells.get(i + 1).map(|next| next.0 - at);
        let width = match (below, above) {
            (Some(below), Some(above)) => (below + above) / 2.0,
            (side, other) => side.or(other).unwrap_or(0.0),
        };
        if worst > threshold {
            decades += width;
        }
    }
    decades
}

/// The robustness curve: the cells' best mean accuracies, the largest first.
pub fn robustness_curve(means: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut means: Vec<f64> = means.filter(|mean| !mean.is_nan()).collect();
    means.sort_by(|a, b| b.total_cmp(a));
    means
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_shares_of_cells() {
        let worst = [0.2, 0.5, 0.951, 0.995];
        let area = |threshold| robust_area(worst.into_iter(), threshold);
        assert_eq!(THRESHOLDS.map(area), [0.5, 0.5, 0.25]);
        assert!(robust_area(std::iter::empty(), 0.5).is_nan());
    }

    #[test]
    fn decades_add_up_to_the_grid() {
        let rates: Vec<f64> = (1..=10).map(|k| 0.3f64.powi(k)).collect();
        let step = -(0.3f64.log10());
        let all: Vec<_> = rates.iter().map(|&rate| (rate, 1.0)).collect();
        assert!((usable_decades(&all, 0.5) - 10.0 * step).abs() < 1e-12);
        let some: Vec<_> =
            rates.iter().enumerate().map(|(k, &rate)| (rate, f64::from(k >= 7))).collect();
        assert!((usable_decades(&some, 0.5) - 3.0 * step).abs() < 1e-12);
        assert_eq!(usable_decades(&[(0.1, 1.0)], 0.5), 0.0);
        let uneven = [(1.0, 1.0), (0.1, 0.0), (0.001, 1.0)];
        assert!((usable_decades(&uneven, 0.5) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn curves_fall() {
        let means = [0.2, f64::NAN, 0.9, 0.5];
        assert_eq!(robustness_curve(means.into_iter()), [0.9, 0.5, 0.2]);
    }
}
