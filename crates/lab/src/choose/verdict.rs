//! Which rule to take, and how sure that is.
//!
//! Every two rules are compared on the fresh seeds by an exact permutation test of their mean
//! accuracies ([`permutation`]); the p-values of all pairs are corrected by Holm's method, so that
//! the pairs with the rule that came out best, which nobody chose beforehand, are covered too.

use serde::Serialize;

use super::budget::LEVEL;
use super::{Board, Stage, last};
use crate::statistics::bootstrap::{self, DRAWS, Draws, Interval};
use crate::statistics::multiple::holm;
use crate::statistics::permutation;

/// A learning rate is near the best if its accuracy is within this of that of the rule's best.
pub const MARGIN: f64 = 0.05;

/// Means that are nearer than this are equally good.
const EQUAL: f64 = 0.01;

/// A rule is faster than another if its epoch takes at most this share.
const FASTER: f64 = 0.9;

/// A rule's results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rule {
    /// The model's name.
    pub model: String,
    /// Its learning rate, as it was written.
    pub learning_rate: String,
    /// Accuracies of the fresh seeds, in their order.
    pub accuracies: Vec<f64>,
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The mean's bootstrap interval.
    pub interval: Option<Interval>,
    /// Mean macro-F1 of the fresh seeds, where the task has one.
    pub macro_f1: Option<f64>,
    /// Fresh seeds whose parameters became NaN.
    pub diverged: usize,
    /// Accuracy of the search by learning rate, largest rate first; none where the run failed.
    pub search: Vec<(String, Option<f64>)>,
    /// How many of them are within [`MARGIN`] of the best.
    pub robust: usize,
    /// Seconds of training per epoch, on one core: the median of the fresh seeds.
    pub epoch_s: Option<f64>,
}

/// Two rules compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// The rule with the larger mean.
    pub better: String,
    /// The other.
    pub worse: String,
    /// By how much.
    pub difference: f64,
    /// Its bootstrap interval.
    pub interval: Option<Interval>,
    /// Chance of a difference as large if both were alike.
    pub p: f64,
    /// Corrected for the number of pairs.
    pub p_corrected: f64,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The rules, largest mean first.
    pub rules: Vec<Rule>,
    /// Every two of them.
    pub pairs: Vec<Pair>,
    /// Index of the rule to take.
    pub take: usize,
}

/// Of finished stages; none if no two rules have two fresh seeds each.
pub fn verdict(board: &Board) -> Option<Verdict> {
    let rules = (0..board.plan.models.len()).filter_map(|model| rule(board, model));
    judge(rules.filter(|rule| rule.accuracies.len() > 1).collect())
}

/// Compares the rules.
pub(super) fn judge(mut rules: Vec<Rule>) -> Option<Verdict> {
    if rules.len() < 2 {
        return None;
    }
    // Stable: of equals the one that was named first.
    rules.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    let mut pairs = Vec::new();
    for (i, a) in rules.iter().enumerate() {
        pairs.extend(rules[i + 1..].iter().map(|b| pair(a, b)));
    }
    let corrected = holm(&pairs.iter().map(|pair| pair.p).collect::<Vec<_>>());
    pairs.iter_mut().zip(corrected).for_each(|(pair, p)| pair.p_corrected = p);
    let mut verdict = Verdict { rules, pairs, take: 0 };
    verdict.take = verdict.choice();
    Some(verdict)
}

impl Verdict {
    /// The best, or a faster one that is as good.
    fn choice(&self) -> usize {
        let seconds = |at: usize| self.rules[at].epoch_s.unwrap_or(f64::INFINITY);
        let as_good = (1..self.rules.len()).filter(|&at| {
            let none_is_better = (0..at).all(|better| self.p(better, at) > LEVEL);
            none_is_better && self.rules[0].mean - self.rules[at].mean <= EQUAL
        });
        let fastest = as_good.min_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
        // Of speeds that are not known nothing follows.
        fastest
            .filter(|&at| seconds(at).is_finite() && seconds(at) <= FASTER * seconds(0))
            .unwrap_or(0)
    }

    /// The corrected p-value of two rules.
    pub fn p(&self, a: usize, b: usize) -> f64 {
        let [a, b] = [a, b].map(|at| &self.rules[at].model);
        let these = |pair: &&Pair| [(a, b), (b, a)].contains(&(&pair.better, &pair.worse));
        self.pairs.iter().find(these).map_or(1.0, |pair| pair.p_corrected)
    }

    /// The other rules: those that are worse than the one to take, and those of which that cannot
    /// be said.
    pub fn worse_and_undecided(&self) -> (Vec<usize>, Vec<usize>) {
        let others = (0..self.rules.len()).filter(|&at| at != self.take);
        others.partition(|&at| {
            self.p(self.take, at) <= LEVEL && self.rules[at].mean < self.rules[self.take].mean
        })
    }
}

fn rule(board: &Board, model: usize) -> Option<Rule> {
    let rate = board.rate(model)?;
    let records = board.records(model, rate, Stage::Judge);
    let accuracies = board.accuracies(model, rate, Stage::Judge);
    let mean = mean(&accuracies);
    let f1: Vec<f64> = records.iter().filter_map(|record| last(record, "val_macro_f1")).collect();
    let searched = |(rate, label): (usize, &String)| {
        (label.clone(), board.accuracies(model, rate, Stage::Search).first().copied())
    };
    let search: Vec<_> = board.plan.rates.iter().enumerate().map(searched).collect();
    let best = search.iter().filter_map(|(_, x)| *x).fold(f64::NEG_INFINITY, f64::max);
    // Steps of a diverged model compute nothing.
    let healthy = records.iter().filter(|r| r.diverged_at.is_none() && r.wall.steps_per_s > 0.0);
    let seconds: Vec<f64> =
        healthy.map(|r| r.config.train.steps_per_epoch as f64 / r.wall.steps_per_s).collect();
    let median = bootstrap::quantile(&seconds, 0.5);
    Some(Rule {
        model: board.plan.models[model].clone(),
        learning_rate: board.plan.rates[rate].clone(),
        mean,
        min: accuracies.iter().copied().fold(f64::INFINITY, f64::min),
        max: accuracies.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        interval: interval(&accuracies),
        macro_f1: (!f1.is_empty()).then(|| self::mean(&f1)),
        diverged: records.iter().filter(|record| record.diverged_at.is_some()).count(),
        robust: search.iter().filter(|(_, x)| x.is_some_and(|x| x >= best - MARGIN)).count(),
        search,
        epoch_s: (!median.is_nan()).then_some(median),
        accuracies,
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn interval(values: &[f64]) -> Option<Interval> {
    bootstrap::interval(values.len(), 0, |picks| mean_of(values, picks))
}

fn mean_of(values: &[f64], picks: &[usize]) -> f64 {
    picks.iter().map(|&at| values[at]).sum::<f64>() / picks.len() as f64
}

fn pair(better: &Rule, worse: &Rule) -> Pair {
    let (a, b) = (&better.accuracies, &worse.accuracies);
    // The sides have seeds of their own, drawn apart.
    let mut draws = [Draws::new(a.len(), a.len(), 1), Draws::new(b.len(), b.len(), 2)];
    let mut difference = || {
        let [of_a, of_b] = &mut draws;
        mean_of(a, of_a.draw()) - mean_of(b, of_b.draw())
    };
    let p = permutation::of_means(a, b);
    Pair {
        better: better.model.clone(),
        worse: worse.model.clone(),
        difference: better.mean - worse.mean,
        interval: bootstrap::of((0..DRAWS).map(|_| difference()).collect()),
        p,
        p_corrected: p,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A rule with these accuracies.
    pub fn rule(model: &str, accuracies: &[f64], epoch_s: f64) -> Rule {
        Rule {
            model: model.to_owned(),
            learning_rate: "0.3^6".to_owned(),
            mean: mean(accuracies),
            min: accuracies.iter().copied().fold(f64::INFINITY, f64::min),
            max: accuracies.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            interval: interval(accuracies),
            macro_f1: None,
            diverged: 0,
            search: vec![("0.3^5".to_owned(), Some(0.2)), ("0.3^6".to_owned(), Some(0.9))],
            robust: 1,
            epoch_s: Some(epoch_s),
            accuracies: accuracies.to_vec(),
        }
    }

    #[test]
    fn of_unknown_speeds_nothing_follows() {
        let rules =
            ["nap", "max"].map(|model| Rule { epoch_s: None, ..rule(model, &[0.25; 6], 1.0) });
        assert_eq!(judge(rules.to_vec()).unwrap().take, 0);
    }

    /// Six values near another.
    pub fn near(middle: f64) -> [f64; 6] {
        [-2.0, -1.5, 0.5, 0.0, 1.0, 2.0].map(|d| middle + 0.002 * d)
    }

    #[test]
    fn rules_that_are_apart_are_told_apart_and_alike_ones_are_not() {
        let rules = vec![
            rule("mte", &near(0.8), 1.0),
            rule("nap", &near(0.95), 1.0),
            rule("max", &near(0.949), 1.0),
        ];
        let verdict = judge(rules).unwrap();
        let names: Vec<_> = verdict.rules.iter().map(|rule| rule.model.as_str()).collect();
        assert_eq!(names, ["nap", "max", "mte"]);
        // 2 / C(12, 6), the least there is; the smallest of three is tripled.
        assert!((verdict.p(0, 2) - 3.0 * 2.0 / 924.0).abs() < 1e-12, "{}", verdict.p(0, 2));
        assert!(verdict.p(1, 0) > 0.05);
        assert_eq!((verdict.take, verdict.worse_and_undecided()), (0, (vec![2], vec![1])));
        let pair = &verdict.pairs[1];
        assert_eq!((pair.better.as_str(), pair.worse.as_str()), ("nap", "mte"));
        let interval = pair.interval.unwrap();
        assert!(interval.low > 0.14 && interval.high < 0.16, "{interval:?}");
    }

    #[test]
    fn of_equally_good_rules_a_faster_one_is_taken() {
        let judged = |seconds: f64, middle: f64| {
            let slow = rule("nap", &near(0.95), 1.0);
            judge(vec![slow, rule("sum", &near(middle), seconds)]).unwrap()
        };
        assert_eq!(judged(0.5, 0.949).take, 1);
        // Not faster; or much worse, if that cannot be shown.
        assert_eq!(judged(0.95, 0.949).take, 0);
        let wide = rule("sum", &[0.99, 0.99, 0.99, 0.99, 0.99, 0.2], 0.1);
        let undecided = judge(vec![rule("nap", &near(0.95), 1.0), wide]).unwrap();
        assert_eq!((undecided.take, undecided.worse_and_undecided().1.len()), (0, 1));
    }

    #[test]
    fn nothing_to_compare_has_no_verdict() {
        assert_eq!(judge(vec![rule("nap", &near(0.9), 1.0)]), None);
        let same = judge(vec![rule("nap", &[0.5; 4], 1.0), rule("sum", &[0.5; 4], 1.0)]).unwrap();
        assert_eq!((same.p(0, 1), same.take), (1.0, 0));
    }
}
