//! Typed columns of runs and of epochs, the common ground of the table formats.

use serde_json::{Map, Value};

use crate::resolve::flatten;
use crate::sweep::record::{RunRecord, Status};

/// A table: columns of the same length.
#[derive(Debug, Default)]
pub struct Table {
    /// Its columns.
    pub columns: Vec<Column>,
}

/// A named column.
#[derive(Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Values,
}

/// Values of one kind.
#[derive(Debug)]
pub enum Values {
    /// Text; none where there is no value.
    Text(Vec<Option<String>>),
    /// Whole numbers.
    Whole(Vec<Option<i64>>),
    /// Numbers.
    Number(Vec<Option<f64>>),
    /// True or false.
    Flag(Vec<Option<bool>>),
}

impl Values {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Values::Text(values) => values.len(),
            Values::Whole(values) => values.len(),
            Values::Number(values) => values.len(),
            Values::Flag(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Table {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    fn push(&mut self, name: impl Into<String>, values: Values) {
        self.columns.push(Column { name: name.into(), values });
    }

    fn text<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        self.push(name, Values::Text(values.map(|text| Some(text.to_owned())).collect()));
    }

    fn whole(&mut self, name: &str, values: impl Iterator<Item = Option<usize>>) {
        let values = values.map(|value| value.and_then(|x| i64::try_from(x).ok()));
        self.push(name, Values::Whole(values.collect()));
    }

    fn number(&mut self, name: &str, values: impl Iterator<Item = f64>) {
        self.push(name, Values::Number(values.map(|x| x.is_finite().then_some(x)).collect()));
    }
}

/// The names of all figures that occur, in the order in which records have them.
pub fn figures(records: &[&RunRecord]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for record in records {
        for name in record.epochs.0.keys() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

/// One row per run: identity, configuration, best and last figures, wall-clock figures.
pub fn runs(records: &[&RunRecord]) -> Table {
    let mut table = Table::default();
    let all = || records.iter();
    let ids: Vec<_> = all().map(|r| r.id.to_string()).collect();
    table.text("id", ids.iter().map(String::as_str));
    let status = |r: &&RunRecord| match r.status {
        Status::Finished => "finished",
        Status::Failed => "failed",
    };
    table.text("status", all().map(status));
    table.push("reason", Values::Text(all().map(|r| r.reason.clone()).collect()));
    for column in configurations(records) {
        table.columns.push(column);
    }
    table.whole("numerics", all().map(|r| Some(r.numerics as usize)));
    table.text("precision", all().map(|r| r.precision.as_str()));
    table.text("isa", all().map(|r| r.isa.as_str()));
    table.text("version", all().map(|r| r.version.as_str()));
    table.text("commit", all().map(|r| r.commit.as_str()));
    table.whole("epochs", all().map(|r| Some(r.epochs.len())));
    table.whole("diverged_at", all().map(|r| r.diverged_at));
    let best_epoch = |r: &&RunRecord, figure| r.best(figure).map(|(_, epoch)| epoch);
    table.whole("best_val_epoch", all().map(|r| best_epoch(r, "val_accuracy")));
    table.whole("best_train_epoch", all().map(|r| best_epoch(r, "train_accuracy")));
    for figure in figures(records) {
        let values = all().map(|r| r.epochs.0.get(&figure).map_or(&[][..], Vec::as_slice));
        let best = |values: &[f64]| {
            let least = figure.ends_with("_loss");
            let values = values.iter().copied().filter(|x| !x.is_nan());
            values.reduce(if least { f64::min } else { f64::max }).unwrap_or(f64::NAN)
        };
        table.number(&format!("best_{figure}"), values.clone().map(best));
        let last = |values: &[f64]| values.last().copied().unwrap_or(f64::NAN);
        table.number(&format!("last_{figure}"), values.map(last));
    }
    table.text("wall_finished", all().map(|r| r.wall.finished.as_str()));
    table.text("wall_host", all().map(|r| r.wall.host.as_str()));
    table.number("wall_seconds", all().map(|r| r.wall.seconds));
    table.number("wall_steps_per_s", all().map(|r| r.wall.steps_per_s));
    table
}

/// One row per run and epoch, with these figures.
pub fn epochs(records: &[&RunRecord], figures: &[String]) -> Table {
    let mut table = Table::default();
    let rows = || records.iter().flat_map(|r| std::iter::repeat_n(*r, r.epochs.len()));
    let ids: Vec<_> = records.iter().map(|r| (r.id.to_string(), r.epochs.len())).collect();
    let repeated = ids.iter().flat_map(|(id, n)| std::iter::repeat_n(id.as_str(), *n));
    table.text("id", repeated);
    table.text("model", rows().map(|r| r.config.model.name.as_str()));
    table.text("task", rows().map(|r| r.config.task.name.as_str()));
    table.number("learning_rate", rows().map(|r| r.config.train.learning_rate));
    table.whole("seed", rows().map(|r| usize::try_from(r.config.train.seed).ok()));
    table.whole("epoch", records.iter().flat_map(|r| (1..=r.epochs.len()).map(Some)));
    for figure in figures {
        let values = records.iter().flat_map(|r| {
            let values = r.epochs.0.get(figure);
            (0..r.epochs.len()).map(move |epoch| values.map_or(f64::NAN, |v| v[epoch]))
        });
        table.number(figure, values);
    }
    table
}

/// A column per key of the configuration, as in `model.dim`.
fn configurations(records: &[&RunRecord]) -> Vec<Column> {
    let all: Vec<_> = records.iter().map(|record| flatten(&record.config)).collect();
    let mut keys: Vec<&String> = Vec::new();
    for key in all.iter().flat_map(Map::keys) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let column = |key: &String| {
        let cells: Vec<_> = all.iter().map(|map| map.get(key).unwrap_or(&Value::Null)).collect();
        let are = |kind: fn(&Value) -> bool| cells.iter().all(|cell| cell.is_null() || kind(cell));
        let values = if are(Value::is_boolean) {
            Values::Flag(cells.iter().map(|cell| cell.as_bool()).collect())
        } else if are(Value::is_i64) {
            Values::Whole(cells.iter().map(|cell| cell.as_i64()).collect())
        } else if are(Value::is_number) {
            Values::Number(cells.iter().map(|cell| cell.as_f64()).collect())
        } else {
            let text = |cell: &&Value| match cell {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            Values::Text(cells.iter().map(text).collect())
        };
        Column { name: key.clone(), values }
    };
    keys.into_iter().map(column).collect()
}
