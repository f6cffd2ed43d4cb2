//! `nap models` and `nap tasks`: what exists.

use std::process::ExitCode;

use nap_engine::config::{Auto, CasesReadout, NormPlacement, Readout, RunConfig, TaskName};
use nap_engine::kernels::aggregate::{self, Kind};
use nap_engine::model::family::{FAMILIES, Family};
use nap_engine::task::{self, Task};

use crate::output::print;

/// Columns of a line.
const WIDTH: usize = 100;

/// Where descriptions start.
const INDENT: usize = 15;

/// Examples of `nap models --help`.
pub const MODELS_EXAMPLES: &str = "\
Examples:
  nap models                                what `--model` takes
  nap train --model bert                    trains one of them
  nap train --set model.aggregator=softmax  an aggregator in another model's layout";

/// Examples of `nap tasks --help`.
pub const TASKS_EXAMPLES: &str = "\
Examples:
  nap tasks                                            what `--task` takes
  nap train --task cases --vocab 100 --readout first-token";

/// `nap models`.
///
/// # Errors
/// If standard output cannot be written.
pub fn models() -> anyhow::Result<ExitCode> {
    print(models_text())?;
    Ok(ExitCode::SUCCESS)
}

/// `nap tasks`.
///
/// # Errors
/// If standard output cannot be written.
pub fn tasks() -> anyhow::Result<ExitCode> {
    print(tasks_text())?;
    Ok(ExitCode::SUCCESS)
}

fn models_text() -> String {
    let mut text = String::from(
        "Models: layout x aggregator x switches. Train one with `nap train --model NAME`.\n",
    );
    for family in &FAMILIES {
        text += "\n";
        text += &entry(family.name, family.summary);
        text += &entry("  aggregator", &aggregator_line(family.aggregator));
        text += &entry("  layout", &layout(family));
        text += &entry("  training", training(family));
    }
    text += "\nAggregators: attention maps a query's logits z_j to weights w_j and gives \
             sum_j w_j v_j;\npooling gives one vector to every token. Set one with \
             `--set model.aggregator=NAME`.\n";
    for name in aggregate::names() {
        let (kind, equation, source) = describe(name);
        text += "\n";
        text += &entry(name, kind);
        text += &entry("  equation", equation);
        text += &entry("  source", source);
        if let Some(switches) = switches(name) {
            text += &entry("  switches", &switches);
        }
    }
    text
}

/// Kind, equation and source of an aggregator.
fn describe(name: &str) -> (&'static str, &'static str, &'static str) {
    match aggregate::find::<f32>(name) {
        Some(Kind::Attention(rule)) if rule.linear().is_some() => (
            "attention; quadratic and exact linear-time form",
            rule.info().equation,
            rule.info().source,
        ),
        Some(Kind::Attention(rule)) => ("attention", rule.info().equation, rule.info().source),
        Some(Kind::Pooling(pooling)) => ("pooling", pooling.info().equation, pooling.info().source),
        Some(Kind::Weighted) | None => (
            "a learned mixing matrix over positions; works at its training length only",
            "out_i = sum_j W_ji x_j + b_i",
            "Richter & Wattenhofer 2020 (arXiv 2005.09561), baseline w",
        ),
    }
}

fn aggregator_line(name: &str) -> String {
    format!("{name}: {}", describe(name).1)
}

fn layout(family: &Family) -> String {
    let attention = matches!(aggregate::find::<f32>(family.aggregator), Some(Kind::Attention(_)));
    let skip = match family.norm_placement {
        NormPlacement::BeforeSkip => "x + LN(block(x)), LayerNorms inside the blocks",
        NormPlacement::AfterSkip => "LN(x + block(x)), none inside the blocks",
    };
    let gelu = match (attention, family.attention_gelu) {
        (true, true) => "; GELU before the mixing projection",
        (true, false) => "; no GELU before the mixing projection",
        (false, _) => "",
    };
    let width = if attention { "4d" } else { "6d + 1" };
    format!("{skip}{gelu}; feed-forward width {width}")
}

fn training(family: &Family) -> &'static str {
    match (family.warmup, family.clip) {
        (true, true) => "warm-up, gradient clipping",
        (true, false) => "warm-up",
        (false, true) => "gradient clipping",
        (false, false) => "no warm-up, no clipping",
    }
}

/// What may be switched at an attention rule, with its defaults.
fn switches(name: &str) -> Option<String> {
    let Some(Kind::Attention(rule)) = aggregate::find::<f32>(name) else { return None };
    let defaults = rule.defaults();
    let learned = |on| if on { "learned" } else { "off" };
    let scale = if defaults.scaled { "sqrt" } else { "none" };
    let mut text = format!(
        "gain {}, bias {}, logit_scale {scale}",
        learned(defaults.gain),
        learned(defaults.bias)
    );
    if defaults.epsilon > 0.0 {
        text += &format!(", epsilon {:e}", defaults.epsilon);
    }
    if name == "normalized-l2" {
        text += ", centre false";
    }
    Some(text)
}

fn tasks_text() -> String {
    let mut text = String::from(
        "Tasks: a sequence x is N tokens, uniform in 0..V. Train on one with `nap train --task NAME`.\n",
    );
    for name in TaskName::PAPER {
        let info = task::info(name);
        let config = defaults(name);
        text += "\n";
        text += &entry(info.name, info.summary);
        text += &entry("  answer", info.rule);
        text += &entry("  read-out", readouts(name));
        text += &entry("  V", &vocabulary(&config));
        let lengths = format!(
            "{} in training, {} in validation",
            config.task.length,
            config.validation_length()
        );
        text += &entry("  N", &lengths);
        for (place, case) in Task::new(&config.task).cases().iter().enumerate() {
            let label = if place == 0 { "  cases" } else { "" };
            let indent = if case.main { "" } else { "  " };
            let line = format!("{:24} {}", format!("{indent}{}", case.name), case.meaning);
            text += &format!("{label:INDENT$}{line}\n");
        }
        text += &entry("  source", info.source);
    }
    text += "\nTasks on data of your own. Train on one with `nap train --task NAME --data FILE`.\n";
    for name in TaskName::OWN {
        let info = task::info(name);
        text += "\n";
        text += &entry(info.name, info.summary);
        text += &entry("  answer", info.rule);
        text += &entry("  read-out", readouts(name));
        text += &entry("  source", info.source);
    }
    text
}

/// The paper's defaults for a task.
fn defaults(name: TaskName) -> RunConfig {
    let mut config = RunConfig::paper();
    (config.task.name, config.task.vocab) = (name, name.default_vocab());
    config.task.validation_length = Auto::Auto;
    config
}

fn vocabulary(config: &RunConfig) -> String {
    let least = if config.task.name == TaskName::Mode { 2 } else { task::DECIDING + 1 };
    format!("{}; at least {least}", config.task.vocab)
}

fn readouts(name: TaskName) -> &'static str {
    let mut task = defaults(name).task;
    task.readout = CasesReadout::PerToken;
    match task.readout() {
        Readout::PerToken if name == TaskName::Point => "a logit per token, softmax over positions",
        Readout::PerToken => {
            "per-token: a logit per token, softmax over positions; \
             or first-token: a logit per position from the first token"
        }
        Readout::FirstTokenPosition => "a logit per position from the first token",
        Readout::EachTokenPosition => "each token gives a logit per position",
        Readout::FirstTokenClass if name == TaskName::Classify => {
            "a logit per class from the first token"
        }
        Readout::FirstTokenClass => "a logit per token id from the first token",
        Readout::EachTokenClass => "each token gives a logit per class",
    }
}

/// `label`, then `text` wrapped and indented.
fn entry(label: &str, text: &str) -> String {
    let mut out = format!("{label:INDENT$}");
    let mut column = INDENT;
    for (place, word) in text.split(' ').enumerate() {
        let needed = word.chars().count() + 1;
        if place > 0 && column + needed > WIDTH {
            out = out.trim_end().to_owned() + "\n" + &" ".repeat(INDENT);
            column = INDENT;
        } else if place > 0 {
            out.push(' ');
        }
        out.push_str(word);
        column += needed;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_fit_a_terminal_and_name_everything() {
        let (models, tasks) = (models_text(), tasks_text());
        for line in models.lines().chain(tasks.lines()) {
            assert!(line.chars().count() <= WIDTH, "too wide: {line}");
            assert_eq!(line.trim_end(), line, "trailing space");
        }
        let starts =
            |text: &str, name: &str| text.lines().any(|line| line.split(' ').next() == Some(name));
        assert!(FAMILIES.iter().all(|family| starts(&models, family.name)));
        assert!(aggregate::names().into_iter().all(|name| starts(&models, name)));
        assert!(TaskName::ALL.iter().all(|name| starts(&tasks, name.as_str())));
    }

    #[test]
    fn entries_wrap_between_words() {
        let text = entry("label", &"word ".repeat(40));
        assert!(text.lines().count() > 2);
        assert!(text.lines().skip(1).all(|line| line.starts_with(&" ".repeat(INDENT))));
    }
}
