//! The command that runs a cell again.

use nap_engine::config::RunConfig;
use serde_json::Value;

use crate::escape::quoted;
use crate::resolve::{self, Layers, flatten};
use crate::sweep::axis::{LEARNING_RATE, SHORT_NAMES, rate_label};

/// The command that trains a cell, for all of these seeds.
pub fn command(config: &RunConfig, seeds: &[u64]) -> Option<String> {
    let names = |key: &str| ["task.name", "model.name"].contains(&key);
    let mut base = Layers::from_preset("paper").ok()?;
    let (task, model) = (config.task.name.as_str(), config.model.name.as_str());
    let layer = format!("task.name = {task:?}\nmodel.name = {model:?}");
    // A model of a newer version cannot be run by this one.
    base.add(toml::from_str(&layer).ok()?, "").ok()?;
    let defaults = flatten(base.config());
    let mut text = format!("nap train --preset paper --task {task} --model {model}");
    if let Some(data) = &config.task.data {
        text += &format!(" --data {}", quoted(&data.train.0));
        let valid = data.valid.iter().map(|valid| format!(" --valid {}", quoted(&valid.0)));
        let fraction = data.fraction.iter().map(|fraction| format!(" --valid-fraction {fraction}"));
        let tokenize = data.tokenize.iter().map(|tokenize| format!(" --tokenize {tokenize}"));
        text.extend(valid.chain(fraction).chain(tokenize));
    }
    for (key, value) in flatten(config) {
        let default = key != LEARNING_RATE && defaults.get(&key) == Some(&value);
        let follows = config.task.data.as_ref().is_some_and(|data| match &key[..] {
            resolve::LENGTH => config.task.length == data.longest,
            key => key == "task.data" || resolve::FOLLOWING.contains(&key),
        });
        if names(&key) || key == "train.seed" || default || follows {
            continue;
        }
        let value = match value {
            Value::String(text) => text,
            Value::Null => return None,
            other => other.to_string(),
        };
        let short = SHORT_NAMES.iter().find(|(_, known)| *known == key).map(|(short, _)| *short);
        text += &match (key.as_str(), short) {
            (LEARNING_RATE, _) => format!(" --lr {}", rate_label(config.train.learning_rate)),
            ("task.readout", _) => format!(" --readout {value}"),
            ("train.epochs", _) => format!(" --epochs {value}"),
            ("train.steps_per_epoch", _) => format!(" --steps-per-epoch {value}"),
            ("task.case_bias", _) => format!(" --case-bias {value}"),
            (_, Some(short)) if short != "init" => format!(" --{short} {value}"),
            _ => format!(" --set {key}={value}"),
        };
    }
    let seeds: Vec<_> = seeds.iter().map(u64::to_string).collect();
    Some(match seeds.as_slice() {
        [] => text,
        [seed] => format!("{text} --seed {seed}"),
        seeds => format!("for s in {}; do {text} --seed $s; done", seeds.join(" ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RunOptions;
    use clap::Parser;
    use nap_engine::config::{Auto, CasesReadout};

    #[derive(Parser)]
    struct Train {
        #[command(flatten)]
        options: RunOptions,
    }

    /// What the command's options come to.
    fn resolved(command: &str) -> RunConfig {
        let options = command.strip_prefix("nap ").unwrap_or_else(|| panic!("{command}"));
        Train::try_parse_from(options.split(' ')).unwrap().options.resolve().unwrap()
    }

    #[test]
    fn the_command_is_the_cell() {
        let mut layers = Layers::from_preset("paper").unwrap();
        layers.add(toml::from_str("model.name = 'bert'\ntask.name = 'mode'").unwrap(), "").unwrap();
        let mut config = layers.finish().unwrap();
        assert_eq!(resolved(&command(&config, &[0]).unwrap()), config);
        config.train.seed = 7;
        (config.model.dim, config.model.layers, config.model.heads) = (8, 3, 2);
        (config.task.length, config.task.vocab) = (16, 12);
        (config.train.epochs, config.train.steps_per_epoch, config.train.batch) = (3, 5, 4);
        (config.train.l2, config.model.dropout, config.model.init_factor) = (1e-7, 0.1, 0.25);
        config.model.attention_gelu = true;
        config.task.validation_length = Auto::Value(20);
        config.train.learning_rate = 0.000729;
        let text = command(&config, &[7]).unwrap();
        assert_eq!(resolved(&text), config, "{text}");
        assert!(text.contains("--lr 0.3^6"), "{text}");
    }

    #[test]
    fn every_published_cell_that_can_be_run_has_one() {
        for config in crate::published::cells().iter().filter_map(|cell| cell.config()) {
            assert_eq!(resolved(&command(&config, &[0]).unwrap()), config);
        }
    }

    #[test]
    fn several_seeds_are_a_loop_and_unknown_models_nothing() {
        let mut config = RunConfig::paper();
        config.task.readout = CasesReadout::FirstToken;
        config.task.case_bias = -2;
        assert_eq!(
            command(&config, &[0, 3]).unwrap(),
            "for s in 0 3; do nap train --preset paper --task cases --model nap --readout \
             first-token --case-bias -2 --lr 0.3^7 --seed $s; done"
        );
        config.model.name = "nap-3".to_owned();
        assert_eq!(command(&config, &[0]), None);
    }
}
