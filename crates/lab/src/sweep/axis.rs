//! One parameter that a grid varies, and its values.

use toml::{Table, Value};

use crate::error::did_you_mean;
use crate::resolve::{self, OPTIONAL};

/// The learning rate's key: every grid of the paper varies it.
pub const LEARNING_RATE: &str = "train.learning_rate";

/// Short names of the keys that are varied most.
pub const SHORT_NAMES: [(&str, &str); 11] = [
    ("dim", "model.dim"),
    ("layers", "model.layers"),
    ("heads", "model.heads"),
    ("seq", "task.length"),
    ("batch", "train.batch"),
    ("vocab", "task.vocab"),
    ("init", "model.init_factor"),
    ("bias", "task.case_bias"),
    ("dropout", "model.dropout"),
    ("l2", "train.l2"),
    ("lr", LEARNING_RATE),
];

/// A learning rate as tables and commands show it: a power of 0.3 as such, another in digits.
pub fn rate_label(rate: f64) -> String {
    // Runs hold rates in f32.
    let power = (1..=20).find(|&k| 0.3f64.powi(k) as f32 == rate as f32);
    power.map_or(rate.to_string(), |k| format!("0.3^{k}"))
}

/// The most values of one axis.
const MOST_VALUES: i64 = 10_000;

/// A value of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisValue {
    /// What the key is set to.
    pub value: Value,
    /// As tables and pictures show it.
    pub label: String,
    /// For ordering and ranges, if it is a number.
    pub number: Option<f64>,
    /// Other keys that go with this value.
    pub with: Vec<(String, Value)>,
}

impl AxisValue {
    /// The value of `key`; powers such as `"0.3^6"` are kept as they are written.
    pub fn new(key: &str, value: Value) -> Self {
        let label = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let number = match &value {
            Value::Integer(whole) => Some(*whole as f64),
            Value::Float(x) => Some(*x),
            Value::String(text) => number(text),
            _ => None,
        };
        let number =
            if key == LEARNING_RATE { resolve::learning_rate(&value).ok() } else { number };
        Self { value, label, number, with: Vec::new() }
    }
}

/// A parameter that a grid varies.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The key it sets, as in `model.dim`.
    pub key: String,
    /// Its values, in the order of the grid.
    pub values: Vec<AxisValue>,
}

impl Axis {
    /// Reads an axis of a sweep file: a list of values, or a table with `values`, or with `min`,
    /// `range` and `base` (base^min and the following powers, `range` of them; without `base`,
    /// min, min + 1, ...), and `with`, lists of the values that other keys take along.
    /// `base` is a configuration that tells whole numbers from fractions.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn read(name: &str, described: &Value, base: &Table) -> Result<Self, String> {
        let key = full_key(name, base)?;
        let expected = "expected a list of values, or a table with `values`, or with `min`, \
                        `range` and `base`";
        let mut values = match described {
            Value::Array(list) => list.clone(),
            Value::Table(table) => {
                let known = ["values", "min", "range", "base", "with"];
                if let Some(wrong) = table.keys().find(|key| !known.contains(&key.as_str())) {
                    let hint = did_you_mean(wrong, known);
                    return Err(format!("axis {name}: unknown key {wrong}{hint}: {expected}"));
                }
                match table.get("values") {
                    Some(_) if ["min", "range", "base"].iter().any(|k| table.contains_key(*k)) => {
                        return Err(format!(
                            "axis {name}: either `values` or `min`, `range` and `base`, not both"
                        ));
                    }
                    Some(Value::Array(list)) => list.clone(),
                    Some(other) => {
                        return Err(format!("axis {name}: values = {other}: expected a list"));
                    }
                    None => progression(name, &key, table, base)?,
                }
            }
            other => return Err(format!("axis {name} = {other}: {expected}")),
        };
        if values.is_empty() {
            return Err(format!("axis {name} has no values: the grid would be empty"));
        }
        if values.len() as i64 > MOST_VALUES {
            return Err(format!("axis {name} has {} values: at most {MOST_VALUES}", values.len()));
        }
        let mut values: Vec<_> =
            values.drain(..).map(|value| AxisValue::new(&key, value)).collect();
        let with = described.as_table().and_then(|table| table.get("with"));
        if let Some(with) = with {
            add_companions(name, with, &mut values, base)?;
        }
        for (i, value) in values.iter().enumerate() {
            if values[..i].iter().any(|other| same(other, value)) {
                return Err(format!("axis {name} has the value {} twice", value.label));
            }
        }
        Ok(Self { key, values })
    }

    /// The short name, where the key has one, else the key.
    pub fn name(&self) -> &str {
        let known = SHORT_NAMES.iter().find(|(_, key)| *key == self.key);
        known.map_or(&self.key, |(short, _)| short)
    }

    /// Keeps the values that are asked for: `8..64` (both ends included) or `8,16`.
    ///
    /// # Errors
    /// If a value is none of the axis, or nothing is left.
    pub fn restrict(&mut self, wanted: &str) -> Result<(), String> {
        let labels: Vec<_> = self.values.iter().map(|value| value.label.as_str()).collect();
        let has = format!("{} has the values {}", self.name(), labels.join(", "));
        let ends = wanted.split_once("..");
        if let Some((from, to)) = ends {
            let parse = |text: &str| {
                let text = text.trim().trim_start_matches('=');
                let value = AxisValue::new(&self.key, resolve::value(text)).number;
                value.or_else(|| number(text)).filter(|_| !text.starts_with('.')).ok_or_else(|| {
                    format!("{wanted}: expected a range such as 8..64 or 0.3^3..0.3^7; {has}")
                })
            };
            let (a, b) = (parse(from)?, parse(to)?);
            let (low, high) = (a.min(b), a.max(b));
            let (low, high) = (low - 1e-6 * low.abs(), high + 1e-6 * high.abs());
            self.values.retain(|value| value.number.is_some_and(|x| x >= low && x <= high));
            return if self.values.is_empty() { Err(format!("{wanted}: {has}")) } else { Ok(()) };
        }
        let mut kept = vec![false; self.values.len()];
        for text in wanted.split(',').map(str::trim) {
            let value = AxisValue::new(&self.key, resolve::value(text));
            let place = self.values.iter().position(|known| same(known, &value));
            kept[place.ok_or_else(|| format!("{text}: {has}"))?] = true;
        }
        let mut kept = kept.into_iter();
        self.values.retain(|_| kept.next().unwrap_or(false));
        Ok(())
    }

    /// As a sweep file describes it, every value written out.
    pub fn to_value(&self) -> Value {
        let values = self.values.iter().map(|value| value.value.clone()).collect();
        let mut table = Table::from_iter([("values".to_owned(), Value::Array(values))]);
        let companions = self.values.first().map_or(&[][..], |value| &value.with);
        let mut with = Table::new();
        for (place, (key, _)) in companions.iter().enumerate() {
            let list = self.values.iter().map(|value| value.with[place].1.clone()).collect();
            with.insert(key.clone(), Value::Array(list));
        }
        if !with.is_empty() {
            table.insert("with".to_owned(), Value::Table(with));
        }
        Value::Table(table)
    }
}

/// The key that a name stands for.
///
/// # Errors
/// If there is none.
pub fn full_key(name: &str, base: &Table) -> Result<String, String> {
    if let Some((_, key)) = SHORT_NAMES.iter().find(|(short, _)| *short == name) {
        return Ok((*key).to_owned());
    }
    if name == "model.name" || name == "train.seed" {
        let list = if name == "model.name" { "models" } else { "seeds" };
        return Err(format!("axis {name}: expected `{list} = [...]` in place of an axis"));
    }
    if value_of(base, name).is_some() || OPTIONAL.contains(&name) {
        return Ok(name.to_owned());
    }
    let mut known: Vec<String> = SHORT_NAMES.iter().map(|(short, _)| (*short).to_owned()).collect();
    for (section, keys) in base {
        let keys = keys.as_table().into_iter().flat_map(Table::keys);
        known.extend(keys.map(|key| format!("{section}.{key}")));
    }
    let hint = did_you_mean(name, known.iter().map(String::as_str));
    let short: Vec<_> = SHORT_NAMES.iter().map(|(short, _)| *short).collect();
    Err(format!(
        "unknown key {name}{hint}: expected one of {} or a key of `nap config`",
        short.join(", ")
    ))
}

fn value_of<'a>(base: &'a Table, key: &str) -> Option<&'a Value> {
    let (section, key) = key.split_once('.')?;
    base.get(section)?.as_table()?.get(key)
}

/// base^min, base^(min + 1), ...
fn progression(name: &str, key: &str, table: &Table, config: &Table) -> Result<Vec<Value>, String> {
    let whole = |field: &str| match table.get(field) {
        Some(Value::Integer(x)) => Ok(*x),
        Some(other) => Err(format!("axis {name}: {field} = {other}: expected a whole number")),
        None => Err(format!("axis {name}: `{field}` is missing: expected min, range and base")),
    };
    let (min, count) = (whole("min")?, whole("range")?);
    if !(1..=MOST_VALUES).contains(&count) {
        let expected = format!("expected a number of values between 1 and {MOST_VALUES}");
        return Err(format!("axis {name}: range = {count}: {expected}"));
    }
    if !(-1_000_000..=1_000_000).contains(&min) {
        return Err(format!("axis {name}: min = {min}: expected at most a million"));
    }
    let Some(base) = table.get("base") else {
        return Ok((min..min + count).map(Value::Integer).collect());
    };
    let number = match base {
        Value::Integer(x) => *x as f64,
        Value::Float(x) => *x,
        other => return Err(format!("axis {name}: base = {other}: expected a number")),
    };
    if !(number > 0.0 && number.is_finite() && number != 1.0) {
        let expected = "expected a number > 0 other than 1 (leave it out for min, min + 1, ...)";
        return Err(format!("axis {name}: base = {base}: {expected}"));
    }
    let power = |exponent: i64| {
        if key == LEARNING_RATE {
            return Ok(Value::String(format!("{number}^{exponent}")));
        }
        let power = number.powi(exponent as i32);
        match value_of(config, key) {
            Some(Value::Float(_)) => Ok(Value::Float(power)),
            _ if power > 9e15 => Err(format!("axis {name}: {base}^{exponent} is too large")),
            _ if power.fract() == 0.0 => Ok(Value::Integer(power as i64)),
            Some(Value::Integer(_)) => {
                let expected = format!("{key} takes whole numbers");
                Err(format!("axis {name}: {base}^{exponent} = {power}: {expected}"))
            }
            _ => Ok(Value::Float(power)),
        }
    };
    (min..min + count).map(power).collect()
}

/// Reads `with`: keys whose values go along with the axis.
fn add_companions(
    name: &str,
    with: &Value,
    values: &mut [AxisValue],
    base: &Table,
) -> Result<(), String> {
    let Value::Table(with) = with else {
        return Err(format!("axis {name}: with = {with}: expected a table of lists"));
    };
    for (key, list) in with {
        let key = full_key(key, base)?;
        let list = list.as_array().filter(|list| list.len() == values.len()).ok_or_else(|| {
            let count = values.len();
            format!("axis {name}: with {key}: expected a list of {count} values, one for each")
        })?;
        for (value, companion) in values.iter_mut().zip(list) {
            value.with.push((key.clone(), companion.clone()));
        }
    }
    Ok(())
}

fn same(a: &AxisValue, b: &AxisValue) -> bool {
    match (a.number, b.number) {
        (Some(a), Some(b)) => a == b || (a / b - 1.0).abs() < 1e-6,
        _ => a.label == b.label,
    }
}

/// A number, or a power of two numbers.
fn number(text: &str) -> Option<f64> {
    match text.split_once('^') {
        Some((base, exponent)) => {
            Some(base.trim().parse::<f64>().ok()?.powf(exponent.trim().parse().ok()?))
        }
        None => text.trim().parse().ok(),
    }
    .filter(|x| x.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nap_engine::config::RunConfig;

    fn axis(name: &str, text: &str) -> Result<Axis, String> {
        let table: Table = toml::from_str(&format!("axis = {text}")).expect("TOML");
        let base = Table::try_from(RunConfig::paper()).expect("a table");
        Axis::read(name, &table["axis"], &base)
    }

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.values.iter().map(|value| value.label.as_str()).collect()
    }

    #[test]
    fn the_papers_progressions() {
        let dim = axis("dim", "{ min = 3, range = 8, base = 2 }").unwrap();
        assert_eq!(labels(&dim), ["8", "16", "32", "64", "128", "256", "512", "1024"]);
        let lr = axis("lr", "{ min = 1, range = 3, base = 0.3 }").unwrap();
        assert_eq!(labels(&lr), ["0.3^1", "0.3^2", "0.3^3"]);
        assert_eq!(lr.values[1].number, Some(0.09));
        let init = axis("init", "{ min = -3, range = 8, base = 4 }").unwrap();
        assert_eq!(init.values[0].value, Value::Float(1.0 / 64.0));
        let bias = axis("bias", "{ min = -3, range = 8 }").unwrap();
        assert_eq!(labels(&bias), ["-3", "-2", "-1", "0", "1", "2", "3", "4"]);
    }

    #[test]
    fn restrictions_by_list_and_by_range() {
        let restricted = |name: &str, text: &str, wanted: &str| {
            let mut axis = axis(name, text).unwrap();
            axis.restrict(wanted).map(|()| labels(&axis).join(" "))
        };
        let (dim, lr) = ("{ min = 3, range = 8, base = 2 }", "{ min = 1, range = 10, base = 0.3 }");
        assert_eq!(restricted("dim", dim, "8..64").unwrap(), "8 16 32 64");
        assert_eq!(restricted("dim", dim, "16,8").unwrap(), "8 16");
        assert_eq!(restricted("lr", lr, "0.3^3..0.3^5").unwrap(), "0.3^3 0.3^4 0.3^5");
        assert_eq!(restricted("lr", lr, "0.00243").unwrap(), "0.3^5");
        assert_eq!(restricted("bias", "{ min = -3, range = 8 }", "-2..=1").unwrap(), "-2 -1 0 1");
        assert!(restricted("dim", dim, "24").unwrap_err().contains("8, 16"));
        assert!(restricted("dim", dim, "20..30").unwrap_err().contains("dim has the values"));
        assert!(restricted("dim", dim, "8...64").unwrap_err().contains("8..64"));
        assert_eq!(restricted("lr", lr, "0.3^9..0.3^999").unwrap(), "0.3^9 0.3^10");
        assert!(restricted("dim", dim, "8..wide").unwrap_err().contains("8..64"));
        assert_eq!(restricted("model.gain", "[true, false]", "false").unwrap(), "false");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |name: &str, text: &str| axis(name, text).unwrap_err();
        assert!(error("dimm", "[8]").contains("did you mean dim?"));
        assert!(error("dim", "[]").contains("empty"));
        assert!(error("dim", "8").contains("expected a list"));
        assert!(error("dim", "[8, 8]").contains("8 twice"));
        assert!(error("lr", "['0.3^2', 0.09]").contains("0.09 twice"));
        assert!(error("dim", "{ min = -1, range = 3, base = 2 }").contains("whole numbers"));
        assert!(error("dim", "{ min = 1, range = 3, base = 0 }").contains("base = 0"));
        assert!(error("dim", "{ min = 1, range = 0, base = 2 }").contains("range = 0"));
        assert!(error("dim", "{ min = 1, base = 2 }").contains("`range` is missing"));
        let least = "{ min = -9223372036854775808, range = 3 }";
        assert!(error("dim", least).contains("at most a million"));
        assert!(error("dim", "{ min = 1, rang = 2 }").contains("did you mean range?"));
        assert!(error("dim", "{ min = 1, range = 2, values = [3] }").contains("not both"));
        assert!(error("train.seed", "[1]").contains("seeds"));
        let with = "{ values = [1, 2], with = { 'train.steps_per_epoch' = [3] } }";
        assert!(error("batch", with).contains("2 values, one for each"));
    }

    #[test]
    fn a_described_axis_reads_back_the_same() {
        for (name, text) in [
            ("lr", "{ min = 1, range = 3, base = 0.3 }"),
            ("batch", "{ values = [1, 2], with = { 'train.steps_per_epoch' = [3, 4] } }"),
            ("model.gain", "[true, false, 'auto']"),
        ] {
            let axis = axis(name, text).unwrap();
            let base = Table::try_from(RunConfig::paper()).unwrap();
            assert_eq!(Axis::read(&axis.key, &axis.to_value(), &base).unwrap(), axis);
        }
    }
}
