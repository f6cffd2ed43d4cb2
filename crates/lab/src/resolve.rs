//! From a preset, a file and options to one configuration.
//!
//! Each layer is a TOML table that overrides the layers before it. A layer that names a model
//! first switches to that model's family (aggregator, layout, warm-up, clipping), and one that
//! names a task to that task's vocabulary; its other keys come on top. What follows from data of
//! one's own (vocabulary, longest sequence, steps per epoch) is set where no layer has set it.

use std::path::Path;

use nap_engine::config::{RunConfig, TaskName};
use nap_engine::model::family;
use toml::{Table, Value};

use crate::data;
use crate::error::{bad, did_you_mean};

/// A preset's name and what it stands for.
type Preset = (&'static str, fn() -> RunConfig);

/// The presets by name.
pub const PRESETS: [Preset; 3] = [
    ("quickstart", RunConfig::quickstart),
    ("paper", RunConfig::paper),
    (OWN, RunConfig::own_data),
];

/// The preset for data of one's own.
pub const OWN: &str = "own-data";

/// Keys that a configuration need not have.
pub const OPTIONAL: [&str; 3] = ["task.data", "train.patience", "train.class_weights"];

/// Keys that follow from data of one's own.
pub const FOLLOWING: [&str; 3] = ["task.vocab", LENGTH, "train.steps_per_epoch"];

/// The one of these that may be set: it can make room for longer sequences.
pub const LENGTH: &str = "task.length";

/// A configuration under construction.
#[derive(Debug, Clone)]
pub struct Layers {
    config: RunConfig,
    /// Which of the keys that follow from the data were set, rather than stored with them.
    set: [bool; 3],
}

impl Layers {
    /// Starts from a preset.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn from_preset(name: &str) -> anyhow::Result<Self> {
        let known = PRESETS.map(|(name, _)| name);
        let preset = PRESETS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let hint = did_you_mean(name, known);
            bad(format!("preset {name}: expected one of {}{hint}", known.join(", ")))
        })?;
        Ok(Self { config: preset.1(), set: [false; 3] })
    }

    /// Starts from a file, on top of `preset`, else of the preset the file names, else of
    /// `own-data` if the file names data or there are some (`with_data`), else of `paper`.
    ///
    /// # Errors
    /// If the file cannot be read, is not TOML or holds what cannot be used.
    pub fn from_file(path: &Path, preset: Option<&str>, with_data: bool) -> anyhow::Result<Self> {
        let place = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| bad(format!("cannot read {place}: {error}")))?;
        let mut table: Table = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            bad(format!("{place}, line {line}: {}", error.message()))
        })?;
        let named = match table.remove("preset") {
            None => None,
            Some(Value::String(name)) => Some(name),
            Some(other) => {
                return Err(bad(format!("{place}: preset = {other}: expected a name in quotes")));
            }
        };
        let mut layers = match (preset, named) {
            (None, Some(named)) => {
                Self::from_preset(&named).map_err(|error| bad(format!("{place}: {error}")))?
            }
            (Some(preset), _) => Self::from_preset(preset)?,
            (None, None) if with_data => Self::from_preset(OWN)?,
            (None, None) => Self::from_preset(default_preset(&table))?,
        };
        if table.contains_key("axes") {
            return Err(bad(format!("{place}: a sweep, not a run: expected `nap sweep {place}`")));
        }
        layers.add(table, &place.to_string())?;
        Ok(layers)
    }

    /// Puts a layer on top; `place` names it in errors.
    ///
    /// # Errors
    /// On a key that does not exist or a value of the wrong kind.
    pub fn add(&mut self, mut layer: Table, place: &str) -> anyhow::Result<()> {
        let named = |section: &str| -> Option<String> {
            Some(layer.get(section)?.as_table()?.get("name")?.as_str()?.to_owned())
        };
        if let Some(name) = named("model") {
            let known: Vec<_> = family::FAMILIES.iter().map(|family| family.name).collect();
            let family = family::find(&name).ok_or_else(|| {
                let hint = did_you_mean(&name, known.iter().copied());
                let known = known.join(", ");
                bad(format!("{place}: model {name}: expected one of {known}{hint}"))
            })?;
            family.apply(&mut self.config);
        }
        if let Some(name) = named("task") {
            let known = TaskName::ALL.map(TaskName::as_str);
            let task = TaskName::ALL.into_iter().find(|t| t.as_str() == name).ok_or_else(|| {
                let hint = did_you_mean(&name, known);
                bad(format!("{place}: task {name}: expected one of {}{hint}", known.join(", ")))
            })?;
            if task != self.config.task.name {
                self.config.task.name = task;
                self.config.task.vocab = task.default_vocab();
                match &mut self.config.task.data {
                    // To be read anew.
                    Some(data) if task.is_own() => data.digest.clear(),
                    data => *data = None,
                }
            }
        }
        self.note_following(&mut layer);
        if let Some(rate) = layer.get_mut("train").and_then(|t| t.get_mut("learning_rate")) {
            *rate = Value::Float(learning_rate(rate).map_err(|e| bad(format!("{place}: {e}")))?);
        }
        let mut table = self.table()?;
        for (section, keys) in layer {
            let known: Vec<String> = table.keys().cloned().collect();
            let (Some(Value::Table(target)), Value::Table(keys)) = (table.get_mut(&section), keys)
            else {
                let hint = did_you_mean(&section, known.iter().map(String::as_str));
                let known = known.join(", ");
                return Err(bad(format!(
                    "{place}: {section}: expected a section of {known}{hint}"
                )));
            };
            for (key, value) in keys {
                if !target.contains_key(&key)
                    && !OPTIONAL.contains(&format!("{section}.{key}").as_str())
                {
                    let optional = OPTIONAL.iter().filter_map(|key| key.split_once('.'));
                    let optional = optional.filter(|(of, _)| *of == section).map(|(_, key)| key);
                    let known = target.keys().map(String::as_str).chain(optional);
                    let hint = did_you_mean(&key, known);
                    return Err(bad(format!("{place}: unknown key {section}.{key}{hint}")));
                }
                // Tried one by one, so that the error names the key.
                let before = target.clone();
                let fitting = match before.get(&key) {
                    Some(old) => fit(old, value.clone()),
                    None => value.clone(),
                };
                target.insert(key.clone(), fitting);
                let mut trial = self.table()?;
                trial.insert(section.clone(), Value::Table(target.clone()));
                if let Err(error) = Value::Table(trial).try_into::<RunConfig>() {
                    let reason = error.message().to_owned();
                    return Err(bad(format!("{place}: {section}.{key} = {value}: {reason}")));
                }
            }
        }
        self.config = Value::Table(table).try_into()?;
        self.follow();
        Ok(())
    }

    /// Which keys that follow from the data a layer sets. A path stands for the data there.
    fn note_following(&mut self, layer: &mut Table) {
        if let Some(task) = layer.get_mut("task").and_then(Value::as_table_mut)
            && let Some(Value::String(path)) = task.get("data")
        {
            let data = Table::from_iter([("train".to_owned(), Value::String(path.clone()))]);
            task.insert("data".to_owned(), Value::Table(data));
        }
        let has = |section: &str, key: &str| layer.get(section).and_then(|s| s.get(key)).is_some();
        // With a digest, the layer was stored by this program, after they followed: only room for
        // longer sequences than the data has is somebody's wish.
        let stored = layer.get("task").and_then(|task| task.get("data")?.get("digest")).is_some();
        for (set, key) in self.set.iter_mut().zip(FOLLOWING) {
            let named = key.split_once('.').is_some_and(|(section, key)| has(section, key));
            *set = if stored { named && key == LENGTH } else { *set || named };
        }
    }

    /// Sets what follows from data that were read.
    fn follow(&mut self) {
        if self.config.task.data.as_ref().is_some_and(|data| !data.digest.is_empty()) {
            let before = self.config.clone();
            self.config.follow_data();
            let [vocab, length, steps] = self.set;
            let (task, train) = (&mut self.config.task, &mut self.config.train);
            if vocab {
                task.vocab = before.task.vocab;
            }
            if length {
                task.length = before.task.length;
            }
            if steps {
                train.steps_per_epoch = before.train.steps_per_epoch;
            }
        }
    }

    /// The configuration, checked; data of one's own are read, if nobody has yet.
    ///
    /// # Errors
    /// The first key that cannot be used, and what is wrong with the data.
    pub fn finish(mut self) -> anyhow::Result<RunConfig> {
        if let Some(data) = &self.config.task.data
            && data.digest.is_empty()
        {
            self.config.task.data = Some(data::look(self.config.task.name, data)?);
            self.follow();
        }
        self.config.validate().map_err(|error| bad(error.to_string()))?;
        Ok(self.config)
    }

    /// The configuration so far, not checked.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    fn table(&self) -> anyhow::Result<Table> {
        Ok(Table::try_from(&self.config)?)
    }
}

/// Where a file starts from that names no preset.
pub fn default_preset(file: &Table) -> &'static str {
    let data = file.get("task").and_then(|task| task.get("data"));
    if data.is_some() { OWN } else { "paper" }
}

/// A whole number where a fraction is expected is that fraction.
fn fit(old: &Value, new: Value) -> Value {
    match (old, new) {
        (Value::Float(_), Value::Integer(whole)) => Value::Float(whole as f64),
        (_, new) => new,
    }
}

/// A learning rate, as a number or as "base^exponent".
///
/// # Errors
/// What is wrong, and what would be right.
pub fn learning_rate(value: &Value) -> Result<f64, String> {
    let expected = "expected a number > 0 within the range of f32, such as 0.002 or \"0.3^6\"";
    let wrong = || match value {
        // Hundreds of digits otherwise.
        Value::Float(rate) if rate.abs() > 1e9 => format!("learning rate {rate:e}: {expected}"),
        other => format!("learning rate {other}: {expected}"),
    };
    let rate = match value {
        Value::Float(rate) => *rate,
        Value::Integer(rate) => *rate as f64,
        Value::String(text) => {
            let (base, exponent) = text.split_once('^').unwrap_or((text, "1"));
            let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
            number(base)?.powf(number(exponent)?)
        }
        _ => return Err(wrong()),
    };
    if !(rate > 0.0 && (rate as f32) > 0.0 && (rate as f32).is_finite()) {
        return Err(wrong());
    }
    Ok(canonical(rate))
}

/// The number whose shortest decimal is that of the rate as f32, the precision it is used in:
/// 0.3^6 and 0.000729 are the same run.
fn canonical(rate: f64) -> f64 {
    (rate as f32).to_string().parse().unwrap_or(rate)
}

/// An option's text as a TOML value; what is none is a string.
pub fn value(text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok();
    // A text of several lines may hold more than a value.
    parsed
        .filter(|table| table.len() == 1)
        .and_then(|mut t| t.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Sets `section.key` in a layer.
///
/// # Errors
/// If the key has no section.
pub fn insert(layer: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let (section, key) =
        key.split_once('.').ok_or_else(|| "expected section.key=value".to_owned())?;
    let table = layer.entry(section).or_insert_with(|| Value::Table(Table::new()));
    match table {
        Value::Table(table) => {
            table.insert(key.to_owned(), value);
            Ok(())
        }
        _ => Err(format!("{section} is not a section")),
    }
}

/// The configuration as TOML that resolves to it again.
///
/// # Errors
/// None in practice: plain values serialise.
pub fn to_toml(config: &RunConfig) -> anyhow::Result<String> {
    Ok(toml::to_string(config)?)
}

/// The keys of a configuration with their sections.
pub fn flatten(config: &RunConfig) -> serde_json::Map<String, serde_json::Value> {
    let mut map = serde_json::Map::new();
    if let Ok(serde_json::Value::Object(sections)) = serde_json::to_value(config) {
        for (section, keys) in sections {
            if let serde_json::Value::Object(keys) = keys {
                map.extend(keys.into_iter().map(|(key, x)| (format!("{section}.{key}"), x)));
            }
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use nap_engine::config::{Auto, NormPlacement};

    fn layer(preset: &str, layers: &[&str]) -> anyhow::Result<RunConfig> {
        let mut resolved = Layers::from_preset(preset)?;
        for text in layers {
            resolved.add(toml::from_str(text).expect("TOML"), "here")?;
        }
        resolved.finish()
    }

    #[test]
    fn a_family_comes_before_the_other_keys_of_its_layer() {
        let config = layer("paper", &["[model]\nattention_gelu = true\nname = \"bert\""]).unwrap();
        assert!(config.model.attention_gelu && config.train.warmup && config.train.clip);
        assert_eq!(config.model.norm_placement, NormPlacement::AfterSkip);
        let config = layer("paper", &["[model]\nattention_gelu = true", "model.name = 'bert'"]);
        assert!(!config.unwrap().model.attention_gelu);
    }

    #[test]
    fn a_task_brings_its_vocabulary() {
        let config = layer("quickstart", &["task.name = 'cases'"]).unwrap();
        assert_eq!(config.task.vocab, 100);
        let config = layer("quickstart", &["task.name = 'lg'\ntask.vocab = 70"]).unwrap();
        assert_eq!(config.task.vocab, 70);
        let config = layer("quickstart", &["task.vocab = 20", "task.name = 'mode'"]).unwrap();
        assert_eq!(config.task.vocab, 20, "already this task");
    }

    #[test]
    fn learning_rates_are_one_run_however_they_are_written() {
        for text in ["'0.3^6'", "0.000729", "7.29e-4"] {
            let config = layer("paper", &[&format!("train.learning_rate = {text}")]).unwrap();
            assert_eq!(config.train.learning_rate, 0.000729);
        }
    }

    #[test]
    fn the_paper_and_the_quickstart_round_trip() {
        for (name, preset) in PRESETS.into_iter().filter(|(name, _)| *name != OWN) {
            let text = to_toml(&preset()).unwrap();
            assert_eq!(layer("paper", &[&text]).unwrap(), preset(), "{name}");
        }
        let changed = layer(
            "paper",
            &["[model]\nname = 'nap-l2'\ncentre = true\nepsilon = 0\nform = 'quadratic'"],
        );
        let changed = changed.unwrap();
        assert_eq!(changed.model.epsilon, Auto::Value(0.0));
        let text = to_toml(&changed).unwrap();
        assert_eq!(layer("quickstart", &[&text]).unwrap(), changed);
    }

    #[test]
    fn errors_name_the_place_the_key_and_what_is_right() {
        let error = |text: &str| layer("paper", &[text]).unwrap_err().to_string();
        assert!(error("model.head = 3").contains("here: unknown key model.head (did you mean"));
        assert!(error("modle.dim = 3").contains("did you mean model"));
        assert!(error("model.dim = 'wide'").contains("model.dim = \"wide\": "));
        assert!(error("model.name = 'napp'").contains("did you mean nap?"));
        assert!(error("train.learning_rate = '0.3^x'").contains("learning rate"));
        assert!(error("model.heads = 3").contains("a divisor of model.dim = 128"));
    }
}
