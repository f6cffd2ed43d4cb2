//! Statistics for few runs of great spread.
//!
//! A cell of a grid has a handful of runs, and in many cells some of them solve the task while
//! the others do not: the values are bimodal, far from normal, and their spread differs from cell
//! to cell. What is used here assumes none of that. The tests are exact: under "both sides come
//! from one distribution" every assignment of the values to the sides is equally likely, whatever
//! the distribution. Intervals are percentile bootstrap intervals. Random draws have pinned keys:
//! the same results give the same numbers on every machine.
//!
//! - [`aggregate`]: a cell in three figures, as the paper shows it
//! - [`permutation`]: do two groups of runs differ in a figure?
//! - [`outside`]: do runs lie outside the range of five others more often than they should?
//! - [`rank`]: do two grids order their cells alike?
//! - [`bootstrap`]: how far does a figure depend on the seeds at hand?
//! - [`multiple`]: of many tests, which count?
//! - [`robustness`]: over how much of a grid does a model work?

pub mod aggregate;
pub mod bootstrap;
pub mod multiple;
pub mod outside;
pub mod permutation;
pub mod rank;
pub mod robustness;

/// n over k, exact below 2^53; infinite where it is beyond f64.
fn combinations(n: usize, k: usize) -> f64 {
    (0..k.min(n - k)).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn reference() -> Value {
        serde_json::from_str(include_str!("../../tests/data/statistics.json")).unwrap()
    }

    fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    }

    #[track_caller]
    fn assert_near(ours: &[f64], theirs: &[f64]) {
        assert_eq!(ours.len(), theirs.len());
        for (a, b) in ours.iter().zip(theirs) {
            assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{ours:?} {theirs:?}");
        }
    }

    fn cases<'a>(reference: &'a Value, name: &str) -> &'a Vec<Value> {
        let cases = reference[name].as_array().unwrap();
        assert!(cases.len() >= 3);
        cases
    }

    #[test]
    fn ranks_and_their_correlation_are_scipys() {
        for case in cases(&reference(), "spearman") {
            let (a, b) = (numbers(&case["a"]), numbers(&case["b"]));
            assert_near(&rank::ranks(&a), &numbers(&case["ranks"]));
            assert_near(&[rank::spearman(&a, &b).unwrap()], &[case["rho"].as_f64().unwrap()]);
        }
    }

    #[test]
    fn permutation_tests_are_scipys() {
        for case in cases(&reference(), "permutation") {
            let (a, b) = (numbers(&case["a"]), numbers(&case["b"]));
            assert_near(&[permutation::of_means(&a, &b)], &[case["p"].as_f64().unwrap()]);
        }
    }

    #[test]
    fn numbers_outside_have_the_distributions_of_scipy() {
        for case in cases(&reference(), "outside") {
            let whole = |key: &str| case[key].as_u64().unwrap() as usize;
            let distribution = outside::distribution(whole("ours"), whole("theirs"));
            assert_near(&distribution, &numbers(&case["pmf"]));
        }
        for case in cases(&reference(), "binomial") {
            let (trials, least) = (case["n"].as_u64().unwrap(), case["k"].as_u64().unwrap());
            let one = outside::distribution(1, 5);
            let sum = outside::sum((0..trials).map(|_| one.as_slice()));
            assert_near(&[outside::tail(&sum, least as usize)], &[case["p"].as_f64().unwrap()]);
        }
    }

    #[test]
    fn corrections_are_scipys() {
        for case in cases(&reference(), "multiple") {
            let p = numbers(&case["p"]);
            assert_near(&multiple::holm(&p), &numbers(&case["holm"]));
            assert_near(&multiple::benjamini_hochberg(&p), &numbers(&case["bh"]));
        }
    }

    #[test]
    fn quantiles_are_numpys_and_intervals_those_of_every_resample() {
        let reference = reference();
        for case in cases(&reference, "quantile") {
            let q = case["q"].as_f64().unwrap();
            let ours = bootstrap::quantile(&numbers(&case["values"]), q);
            assert_near(&[ours], &[case["value"].as_f64().unwrap()]);
        }
        for case in cases(&reference, "bootstrap") {
            let values = numbers(&case["values"]);
            let mean = |picks: &[usize]| {
                picks.iter().map(|&i| values[i]).sum::<f64>() / values.len() as f64
            };
            let ours = bootstrap::interval(values.len(), 0, mean).unwrap();
            // The mean's distribution over all n^n samples; ours draws some of them.
            let (low, high) = (case["low"].as_f64().unwrap(), case["high"].as_f64().unwrap());
            let scale = case["step"].as_f64().unwrap();
            assert!(
                (ours.low - low).abs() <= scale && (ours.high - high).abs() <= scale,
                "{ours:?} {low} {high}"
            );
        }
    }
}
