//! What a sweep is: models, axes, seeds and what is fixed; sweep files and restrictions.

use std::io::Read;
use std::path::Path;

use nap_engine::config::RunConfig;
use nap_engine::model::family;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::axis::{Axis, LEARNING_RATE, full_key};
use super::presets::presets;
use crate::error::{bad, did_you_mean};
use crate::resolve::{self, Layers};

/// The most seeds of a cell.
const MOST_SEEDS: u64 = 10_000;

/// No sweep file is longer, in bytes.
const LONGEST_FILE: u64 = 16 << 20;

/// A sweep: every model at every point of a grid, with several seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepSpec {
    /// What it is called.
    pub name: String,
    /// Where configurations start from.
    pub preset: String,
    /// Models, by name.
    pub models: Vec<String>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Sections `model`, `task` and `train` that hold for every run.
    pub fixed: Table,
    /// What varies.
    pub axes: Vec<Axis>,
}

impl SweepSpec {
    /// A sweep of the paper by its name, or a sweep file by its path.
    ///
    /// # Errors
    /// If there is none, or it cannot be used.
    pub fn find(name: &str) -> anyhow::Result<Self> {
        if let Some(preset) = presets().iter().find(|preset| preset.spec.name == name) {
            return Ok(preset.spec.clone());
        }
        let path = Path::new(name);
        let looks_like_a_file = name.contains(['/', '\\', '.']) || path.is_file();
        if !looks_like_a_file {
            let hint = did_you_mean(name, presets().iter().map(|p| p.spec.name.as_str()));
            return Err(bad(format!(
                "sweep {name}{hint}: expected a name of `nap sweep list` or a sweep file"
            )));
        }
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST_FILE).read_to_string(&mut text))
            .map_err(|error| bad(format!("cannot read {name}: {error}")))?;
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("sweep");
        let mut spec = Self::parse(&text, stem, name)?;
        spec.look_at_data()?;
        Ok(spec)
    }

    /// Reads data of one's own that the sweep names, if nobody has yet; from then on the sweep
    /// says what is in them, so that plans and reports do without.
    fn look_at_data(&mut self) -> anyhow::Result<()> {
        let Some(task) = self.fixed.get("task").and_then(Value::as_table) else { return Ok(()) };
        if !task.contains_key("data") {
            return Ok(());
        }
        for key in resolve::FOLLOWING.into_iter().filter(|&key| key != resolve::LENGTH) {
            let fixed = key
                .split_once('.')
                .and_then(|(section, key)| self.fixed.get(section)?.as_table()?.get(key));
            if fixed.is_some() || self.axes.iter().any(|axis| axis.key == key) {
                return Err(bad(format!("sweep {}: {key} follows from the data", self.name)));
            }
        }
        let layer = Table::from_iter([("task".to_owned(), Value::Table(task.clone()))]);
        let mut layers = Layers::from_preset(&self.preset)?;
        layers.add(layer, &format!("sweep {}", self.name))?;
        let config = layers.finish()?;
        let data = Value::try_from(config.task.data)?;
        resolve::insert(&mut self.fixed, "task.data", data).map_err(bad)
    }

    /// Reads a sweep file; `place` names it in errors, `name` is its name unless it has one.
    ///
    /// # Errors
    /// What is wrong, where, and what would be right.
    pub fn parse(text: &str, name: &str, place: &str) -> anyhow::Result<Self> {
        let table: Table = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            bad(format!("{place}, line {line}: {}", error.message()))
        })?;
        Self::read(table, name).map_err(|error| bad(format!("{place}: {error}")))
    }

    fn read(mut table: Table, name: &str) -> Result<Self, String> {
        let known = ["name", "preset", "models", "seeds", "axes", "model", "task", "train"];
        if let Some(wrong) = table.keys().find(|key| !known.contains(&key.as_str())) {
            let hint = did_you_mean(wrong, known);
            return Err(format!("unknown key {wrong}{hint}: expected {}", known.join(", ")));
        }
        let name = text(&mut table, "name")?.unwrap_or_else(|| name.to_owned());
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(format!("name = {name:?}: expected 1 to 64 letters, digits, - and _"));
        }
        let preset = text(&mut table, "preset")?;
        let preset = preset.unwrap_or_else(|| resolve::default_preset(&table).to_owned());
        let base = Layers::from_preset(&preset).map_err(|error| error.to_string())?;
        let base = Table::try_from(base.config()).map_err(|error| error.to_string())?;
        let models = match table.remove("models") {
            None => vec!["nap".to_owned()],
            Some(models) => read_models(&models)?,
        };
        let seeds = match table.remove("seeds") {
            None => (0..5).collect(),
            Some(seeds) => read_seeds(&seeds)?,
        };
        let axes = match table.remove("axes") {
            None => return Err("no axes: expected [axes] with one at least".to_owned()),
            Some(Value::Table(axes)) if axes.is_empty() => {
                return Err("[axes] is empty: expected one axis at least".to_owned());
            }
            Some(Value::Table(axes)) => axes,
            Some(other) => return Err(format!("axes = {other}: expected a table")),
        };
        // A key without quotes, model.gain = [...], is a table in a table.
        let mut all = Vec::new();
        for (name, described) in axes {
            match described {
                Value::Table(keys) if base.contains_key(&name) => {
                    all.extend(keys.into_iter().map(|(key, x)| (format!("{name}.{key}"), x)));
                }
                other => all.push((name, other)),
            }
        }
        let axes = all.iter().map(|(name, values)| Axis::read(name, values, &base));
        let axes = axes.collect::<Result<Vec<_>, _>>()?;
        let spec = Self { name, preset, models, seeds, fixed: table, axes };
        spec.check_keys()?;
        Ok(spec)
    }

    /// No key may be set in two places.
    fn check_keys(&self) -> Result<(), String> {
        let mut set: Vec<(&str, String)> = Vec::new();
        for axis in &self.axes {
            let with = axis.values.first().into_iter().flat_map(|value| &value.with);
            for key in std::iter::once(&axis.key).chain(with.map(|(key, _)| key)) {
                let place = format!("axis {}", axis.name());
                if let Some((_, other)) = set.iter().find(|(known, _)| known == key) {
                    return Err(match *other == place {
                        true => format!("two axes set {key}"),
                        false => format!("{key} is set by {other} and by {place}"),
                    });
                }
                set.push((key, place));
            }
        }
        for (section, keys) in &self.fixed {
            let Value::Table(keys) = keys else {
                return Err(format!("{section} = {keys}: expected a section [{section}]"));
            };
            for key in keys.keys().map(|key| format!("{section}.{key}")) {
                let instead = match key.as_str() {
                    "model.name" => "expected `models = [...]`",
                    "train.seed" => "expected `seeds = ...`",
                    _ => match set.iter().find(|(known, _)| *known == key) {
                        Some((_, place)) => {
                            return Err(format!("{key} is fixed, and set by {place}"));
                        }
                        None => continue,
                    },
                };
                return Err(format!("{key} is fixed: {instead}"));
            }
        }
        Ok(())
    }

    /// The first axis that is not the learning rate: what the paper's pictures draw across.
    pub fn x_index(&self) -> Option<usize> {
        self.axes.iter().position(|axis| axis.key != LEARNING_RATE)
    }

    /// The axis of learning rates: what they draw down.
    pub fn rate_index(&self) -> Option<usize> {
        self.axes.iter().position(|axis| axis.key == LEARNING_RATE)
    }

    /// As a sweep file, every value written out.
    pub fn to_toml(&self) -> String {
        let mut table = Table::new();
        table.insert("name".to_owned(), self.name.clone().into());
        table.insert("preset".to_owned(), self.preset.clone().into());
        table.insert("models".to_owned(), self.models.clone().into());
        let seeds = self.seeds.iter().map(|&seed| Value::Integer(seed as i64)).collect();
        table.insert("seeds".to_owned(), Value::Array(seeds));
        table.extend(self.fixed.clone());
        let axes = self.axes.iter().map(|axis| (axis.key.clone(), axis.to_value()));
        table.insert("axes".to_owned(), Value::Table(axes.collect()));
        // Plain tables serialise.
        toml::to_string(&table).unwrap_or_default()
    }

    /// The sweep's name and a digest of its content, for the names of files.
    pub fn file_stem(&self) -> String {
        let hash = Sha256::digest(self.to_toml());
        let digest: String = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{digest}", self.name)
    }
}

/// Which part of a sweep: the options of `nap sweep`, `nap plan` and `nap slurm submit`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Restrictions {
    /// Models, as nap,mte [default: the sweep's]
    #[arg(long, value_name = "NAMES")]
    models: Option<String>,
    /// Values of the axis beside the learning rate, as 8..64 or 8,16
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    x: Option<String>,
    /// Learning rates, as 0.3^3..0.3^7 or 0.3^3,0.3^5
    #[arg(long, value_name = "VALUES")]
    lr: Option<String>,
    /// Number of seeds, or seeds as 3,4 or 5..9
    #[arg(long, value_name = "N")]
    seeds: Option<String>,
    /// Any key of `nap config` for all runs, as in --set train.epochs=3; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Restrictions {
    /// The sweep of this name with the restrictions.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn resolve(&self, name: &str) -> anyhow::Result<SweepSpec> {
        let mut spec = SweepSpec::find(name)?;
        if let Some(names) = &self.models {
            let list = names.split(',').map(|name| Value::from(name.trim())).collect();
            spec.models = read_models(&Value::Array(list))
                .map_err(|error| bad(format!("--models {names}: {error}")))?;
        }
        let (x, rate) = (spec.x_index(), spec.rate_index());
        for (option, wanted, axis) in [("--x", &self.x, x), ("--lr", &self.lr, rate)] {
            let Some(wanted) = wanted else { continue };
            let none = || bad(format!("{option} {wanted}: {} has no such axis", spec.name));
            let axis = axis.ok_or_else(none)?;
            spec.axes[axis].restrict(wanted).map_err(|error| bad(format!("{option} {error}")))?;
        }
        if let Some(seeds) = &self.seeds {
            spec.seeds =
                parse_seeds(seeds).map_err(|error| bad(format!("--seeds {seeds}: {error}")))?;
        }
        for text in &self.set {
            let wrong = |error: String| bad(format!("--set {text}: {error}"));
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            let base = Table::try_from(RunConfig::paper())?;
            let key = match key.trim() {
                // Named in check_keys.
                key @ ("model.name" | "train.seed") => key.to_owned(),
                key if key.contains('.') => key.to_owned(),
                key => full_key(key, &base).map_err(wrong)?,
            };
            resolve::insert(&mut spec.fixed, &key, resolve::value(value.trim())).map_err(wrong)?;
            spec.check_keys().map_err(wrong)?;
        }
        spec.look_at_data()?;
        Ok(spec)
    }
}

/// Takes a text out of a table.
fn text(table: &mut Table, key: &str) -> Result<Option<String>, String> {
    match table.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{key} = {other}: expected a name in quotes")),
    }
}

fn read_models(models: &Value) -> Result<Vec<String>, String> {
    let known: Vec<_> = family::FAMILIES.iter().map(|family| family.name).collect();
    let list = models.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| format!("models = {models}: expected a list of names"))?;
    let mut names: Vec<String> = Vec::new();
    for name in list {
        let Some(name) = name.as_str() else {
            return Err(format!("models: {name}: expected a name in quotes"));
        };
        if family::find(name).is_none() {
            let hint = did_you_mean(name, known.iter().copied());
            return Err(format!("model {name}: expected one of {}{hint}", known.join(", ")));
        }
        if names.iter().any(|other| other == name) {
            return Err(format!("model {name} is named twice"));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn read_seeds(seeds: &Value) -> Result<Vec<u64>, String> {
    let expected = "expected a number of seeds up to 10000, or a list such as [0, 3]";
    let wrong = || format!("seeds = {seeds}: {expected}");
    match seeds {
        Value::Integer(count) if (1..=MOST_SEEDS as i64).contains(count) => {
            Ok((0..*count as u64).collect())
        }
        Value::Array(list) if !list.is_empty() && list.len() as u64 <= MOST_SEEDS => {
            let seeds: Option<Vec<u64>> =
                list.iter().map(|seed| u64::try_from(seed.as_integer()?).ok()).collect();
            distinct(seeds.ok_or_else(wrong)?)
        }
        _ => Err(wrong()),
    }
}

fn parse_seeds(text: &str) -> Result<Vec<u64>, String> {
    let expected = || "expected a number of seeds up to 10000, or seeds as 3,4 or 5..9".to_owned();
    let parse = |text: &str| {
        let seed = text.trim().parse::<u64>().ok();
        seed.filter(|&seed| i64::try_from(seed).is_ok()).ok_or_else(expected)
    };
    if let Some((from, to)) = text.split_once("..") {
        let (from, to) = (parse(from)?, parse(to.trim_start_matches('='))?);
        if from > to || to - from >= MOST_SEEDS {
            return Err(expected());
        }
        return Ok((from..=to).collect());
    }
    if text.contains(',') {
        return distinct(text.split(',').map(parse).collect::<Result<_, _>>()?);
    }
    match parse(text)? {
        count if (1..=MOST_SEEDS).contains(&count) => Ok((0..count).collect()),
        _ => Err(expected()),
    }
}

fn distinct(seeds: Vec<u64>) -> Result<Vec<u64>, String> {
    for (i, seed) in seeds.iter().enumerate() {
        if seeds[..i].contains(seed) {
            return Err(format!("seed {seed} is named twice"));
        }
    }
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        models = ['nap', 'mte']
        seeds = [0, 3]
        [task]
        name = 'mode'
        [train]
        epochs = 3
        [axes]
        dim = { base = 2, min = 3, range = 2 }
        lr = ['0.3^5', 0.001]
        'model.gain' = [true, false]
    ";

    #[test]
    fn a_file_reads_back_from_what_it_is_stored_as() {
        let spec = SweepSpec::parse(FILE, "mine", "mine.toml").unwrap();
        assert_eq!((spec.name.as_str(), spec.seeds.as_slice()), ("mine", &[0, 3][..]));
        assert_eq!(spec.axes[spec.x_index().unwrap()].key, "model.dim");
        assert_eq!(SweepSpec::parse(&spec.to_toml(), "other", "stored").unwrap(), spec);
        for preset in presets() {
            let again = SweepSpec::parse(&preset.spec.to_toml(), "other", "stored").unwrap();
            assert_eq!(again, preset.spec);
        }
    }

    #[test]
    fn keys_need_no_quotes() {
        let spec =
            SweepSpec::parse(&FILE.replace("'model.gain'", "model.gain"), "mine", "mine.toml");
        assert_eq!(spec.unwrap(), SweepSpec::parse(FILE, "mine", "mine.toml").unwrap());
    }

    #[test]
    fn restrictions() {
        let restrictions = Restrictions {
            models: Some("sum,nap".to_owned()),
            x: Some("8..16".to_owned()),
            lr: Some("0.3^5..0.3^6".to_owned()),
            seeds: Some("2".to_owned()),
            set: vec!["train.epochs=3".to_owned(), "layers=1".to_owned()],
        };
        let spec = restrictions.resolve("mode-dim").unwrap();
        assert_eq!(spec.models, ["sum", "nap"]);
        assert_eq!(spec.axes[0].values.len() * spec.axes[1].values.len(), 4);
        assert_eq!(spec.seeds, [0, 1]);
        assert_eq!(spec.fixed["model"]["layers"].as_integer(), Some(1));
        assert_eq!(parse_seeds("5..7").unwrap(), [5, 6, 7]);
        assert_eq!(parse_seeds("3,1").unwrap(), [3, 1]);
        let error = |change: fn(&mut Restrictions)| {
            let mut restrictions = Restrictions::default();
            change(&mut restrictions);
            restrictions.resolve("mode-dim").unwrap_err().to_string()
        };
        assert!(error(|r| r.models = Some("napp".to_owned())).contains("did you mean nap?"));
        assert!(error(|r| r.models = Some("nap,nap".to_owned())).contains("twice"));
        assert!(error(|r| r.x = Some("24".to_owned())).contains("--x 24"));
        assert!(error(|r| r.seeds = Some("0".to_owned())).contains("--seeds 0"));
        assert!(error(|r| r.set = vec!["model.dim=8".to_owned()]).contains("set by axis dim"));
        assert!(error(|r| r.set = vec!["train.seed=8".to_owned()]).contains("seeds"));
        assert!(error(|r| r.set = vec!["epoch=8".to_owned()]).contains("unknown key epoch"));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let error = |change: &[(&str, &str)]| {
            let mut text = FILE.to_owned();
            for (from, to) in change {
                assert!(text.contains(from));
                text = text.replace(from, to);
            }
            SweepSpec::parse(&text, "mine", "mine.toml").unwrap_err().to_string()
        };
        assert!(error(&[("models =", "modles =")]).contains("did you mean models?"));
        assert!(error(&[("epochs = 3", "epochs = 3\nepochs = 4")]).contains("line 8"));
        assert!(error(&[("lr =", "dim =")]).contains("mine.toml, line 10"));
        assert!(error(&[("lr =", "'model.dim' =")]).contains("two axes set model.dim"));
        assert!(error(&[("[0, 3]", "[0, 0]")]).contains("seed 0 is named twice"));
        assert!(error(&[("[0, 3]", "0")]).contains("seeds = 0"));
        assert!(error(&[("epochs = 3", "seed = 3")]).contains("seeds = ..."));
        assert!(
            error(&[("epochs = 3", "learning_rate = 1")]).contains("fixed, and set by axis lr")
        );
        assert!(error(&[("'mte'", "'nap'")]).contains("nap is named twice"));
        let empty = SweepSpec::parse("[axes]", "mine", "mine.toml").unwrap_err().to_string();
        assert!(empty.contains("one axis at least"));
    }
}
