//! The sign test: is one side larger more often than chance has it?

/// Two-sided p-value of `more` against `fewer` differences of either sign, if both signs are
/// equally likely: exact, from the binomial distribution. 1 of none.
pub fn p(more: usize, fewer: usize) -> f64 {
    let n = more + fewer;
    let least = more.max(fewer);
    // ln C(n, k) - n ln 2, from the top down.
    let mut ln = -(n as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for k in (least..=n).rev() {
        tail += ln.exp();
        // C(n, k - 1) = C(n, k) k / (n - k + 1)
        ln += (k as f64 / (n - k + 1) as f64).ln();
    }
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::p;

    /// scipy.stats.binomtest(more, more + fewer).pvalue
    #[test]
    fn values_are_scipys() {
        let cases = [
            (0, 0, 1.0),
            (1, 0, 1.0),
            (3, 0, 0.25),
            (5, 5, 1.0),
            (8, 1, 0.039_062_5),
            (1, 8, 0.039_062_5),
            (25, 3, 2.744_048_833_847_046e-5),
            (60, 40, 0.056_887_933_640_980_89),
            (1000, 900, 0.023_108_845_108_901_193),
        ];
        for (more, fewer, expected) in cases {
            let value = p(more, fewer);
            assert!((value / expected - 1.0).abs() < 1e-6, "{more} {fewer}: {value}");
        }
    }
}
