//! A verdict in words and figures.

use super::Plan;
use super::verdict::{Rule, Verdict};
use crate::output::short;

/// A line per rule, the best first.
pub fn table(verdict: &Verdict) -> String {
    let f1 = verdict.rules.iter().any(|rule| rule.macro_f1.is_some());
    let f1_head = if f1 { "  macro-F1" } else { "" };
    let mut text = format!(
        "{:9} {:>6}  accuracy  {:18}{f1_head}  rates near best  epoch\n",
        "rule", "rate", "range"
    );
    for rule in &verdict.rules {
        let range = format!("{:.4} to {:.4}", rule.min, rule.max);
        let f1 = match rule.macro_f1 {
            Some(value) => format!("  {value:>8.4}"),
            None if f1 => format!("  {:>8}", "-"),
            None => String::new(),
        };
        let near = format!("{} of {}", rule.robust, rule.search.len());
        let epoch = rule.epoch_s.map_or("-".to_owned(), |s| format!("{} s", short(s)));
        text += &format!(
            "{:9} {:>6}  {:>8.4}  {range:18}{f1}  {near:>15}  {epoch}\n",
            rule.model, rule.learning_rate, rule.mean
        );
    }
    text
}

/// Which rule to take, and how sure that is.
pub fn sentence(verdict: &Verdict) -> String {
    let taken = &verdict.rules[verdict.take];
    let (worse, undecided) = verdict.worse_and_undecided();
    let p = |at: usize| verdict.p(verdict.take, at);
    let named = |list: &[usize], text: &dyn Fn(usize, &Rule) -> String| {
        join(list.iter().map(|&at| text(at, &verdict.rules[at])).collect())
    };
    let head = format!("Take {} with learning rate {}", taken.model, taken.learning_rate);
    let with_p =
        |at: usize, rule: &Rule| format!("{} ({:.4}, {})", rule.model, rule.mean, p_text(p(at)));
    if undecided.is_empty() {
        let others = named(&worse, &with_p);
        return format!("{head}: {:.4} on average, better than {others}.", taken.mean);
    }
    let unlike = named(&undecided, &with_p);
    let reason = if verdict.take == 0 {
        format!("the best average, {:.4}, but no difference to {unlike} could be shown", taken.mean)
    } else {
        let best = &verdict.rules[0];
        let seconds = |rule: &Rule| rule.epoch_s.map_or("-".to_owned(), short);
        format!(
            "{:.4} on average, no difference to {unlike} could be shown, and an epoch takes {} s \
             in place of the {} s of {}",
            taken.mean,
            seconds(taken),
            seconds(best),
            best.model
        )
    };
    let better = match worse.is_empty() {
        true => String::new(),
        false => format!("; it is better than {}", named(&worse, &with_p)),
    };
    format!("{head}: {reason}{better}.")
}

/// What a reader should know beside.
pub fn notes(verdict: &Verdict, plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    for rule in &verdict.rules {
        let model = &rule.model;
        if rule.diverged > 0 {
            let of = rule.accuracies.len();
            notes.push(format!("{model}: {} of {of} fresh seeds diverged", rule.diverged));
        }
        let at = plan.rates.iter().position(|rate| *rate == rule.learning_rate);
        let (end, wanted) = match at {
            _ if plan.rates.len() < 2 => continue,
            Some(0) => ("largest", "larger"),
            Some(at) if at + 1 == plan.rates.len() => ("smallest", "smaller"),
            _ => continue,
        };
        notes.push(format!(
            "{model}: its learning rate is the {end} of those tried, a {wanted} one may be better \
             (--lr)"
        ));
    }
    for model in &plan.models {
        if !verdict.rules.iter().any(|rule| rule.model == *model) {
            notes.push(format!("{model} could not be compared: its runs failed"));
        }
    }
    notes
}

fn p_text(p: f64) -> String {
    if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") }
}

/// As in `a, b and c`.
fn join(mut parts: Vec<String>) -> String {
    let last = parts.pop().unwrap_or_default();
    if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{self, tests};
    use super::*;

    #[test]
    fn sentences_say_what_was_shown_and_what_was_not() {
        let judge = |rules| sentence(&verdict::judge(rules).unwrap());
        let [nap, mte, max] = [("nap", 0.95), ("mte", 0.8), ("max", 0.949)]
            .map(|(model, middle)| tests::rule(model, &tests::near(middle), 1.0));
        assert_eq!(
            judge(vec![nap.clone(), mte.clone()]),
            "Take nap with learning rate 0.3^6: 0.9500 on average, better than mte (0.8000, p = \
             0.002)."
        );
        let undecided = judge(vec![nap.clone(), mte.clone(), max.clone()]);
        assert!(
            undecided.contains("the best average, 0.9500, but no difference to max (0.9490, p =")
        );
        assert!(undecided.ends_with("; it is better than mte (0.8000, p = 0.006)."), "{undecided}");
        let faster = judge(vec![nap, Rule { epoch_s: Some(0.5), ..max }]);
        assert!(faster.starts_with("Take max"), "{faster}");
        assert!(faster.ends_with("takes 0.5000 s in place of the 1.000 s of nap."), "{faster}");
    }
}
