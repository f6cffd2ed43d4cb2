//! `nap models` and `nap tasks`: what exists.

use std::process::ExitCode;

use nap_engine::config::{NormPlacement, RunConfig, TaskName};
use nap_engine::kernels::aggregate::{self, Defaults, Info};
use nap_engine::model::architecture::Architecture;
use nap_engine::model::family::FAMILIES;
use nap_engine::task::{self, Task};

use crate::output::print;

fn describe(text: &mut String, info: Info, defaults: Option<Defaults>) {
    *text += &format!("\n{}\n  {}\n  source: {}\n", info.name, info.equation, info.source);
    if let Some(defaults) = defaults {
        let yes = |on| if on { "learned" } else { "none" };
        *text += &format!(
            "  gain per head: {}, bias: {}, eps: {:e}, linear-time form: {}\n",
            yes(defaults.gain),
            yes(defaults.bias),
            defaults.epsilon,
            if aggregate::has_linear_form(info.name) { "yes" } else { "no" }
        );
    }
}

/// `nap models`.
///
/// # Errors
/// If standard output cannot be written.
pub fn models() -> anyhow::Result<ExitCode> {
    let mut text = String::from("Models (nap train --model NAME)\n");
    for family in &FAMILIES {
        let mut config = RunConfig::paper();
        family.apply(&mut config);
        let count = Architecture::new(&config.model, &config.task)
            .map_or_else(|error| error.to_string(), |a| a.parameter_count().to_string());
        let mut switches = Vec::new();
        switches.push(match family.norm_placement {
            NormPlacement::BeforeSkip => "x + LN(block(x))",
            NormPlacement::AfterSkip => "LN(x + block(x))",
        });
        for (on, name) in [
            (family.attention_gelu, "GELU in attention"),
            (family.warmup, "warm-up"),
            (family.clip, "clipping"),
        ] {
            if on {
                switches.push(name);
            }
        }
        text += &format!(
            "\n{}\n  {}\n  aggregator {}; {}\n  {count} parameters at the paper's defaults\n",
            family.name,
            family.summary,
            family.aggregator,
            switches.join(", ")
        );
    }
    text += "\nAggregators (--set model.aggregator=NAME)\n";
    for rule in aggregate::attention_rules::<f32>() {
        describe(&mut text, rule.info(), Some(rule.defaults()));
    }
    for pooling in aggregate::poolings::<f32>() {
        describe(&mut text, pooling.info(), None);
    }
    let weighted = Info {
        name: aggregate::WEIGHTED,
        equation: "out_i = sum_j x_j W_ji + b_i, W learned over positions; one length only",
        source: "Richter & Wattenhofer 2020 (arXiv 2005.09561), authors' program",
    };
    describe(&mut text, weighted, None);
    text += "\nEvery option of a model: nap config --model NAME\n";
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// `nap tasks`.
///
/// # Errors
/// If standard output cannot be written.
pub fn tasks() -> anyhow::Result<ExitCode> {
    let mut text = String::from("Tasks (nap train --task NAME)\n");
    for name in TaskName::ALL {
        let info = task::info(name);
        let mut config = RunConfig::paper();
        config.task.name = name;
        text += &format!("\n{}\n  {}\n  {}\n", info.name, info.summary, info.rule);
        let (readouts, vocab) = match name {
            TaskName::Cases => ("per-token or first-token (--readout)", 100),
            TaskName::Mode => ("a class per token value, from the first token", 10),
            TaskName::Lg => ("a position, from each token", 100),
        };
        text += &format!(
            "  read-out: {readouts}\n  paper's defaults: vocabulary {vocab}, length {}, validation at {}\n",
            config.task.length,
            config.validation_length()
        );
        for case in Task::new(&config.task).cases() {
            text += &format!("  case {:<24} {}\n", case.name, case.meaning);
        }
        text += &format!("  source: {}\n", info.source);
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}
