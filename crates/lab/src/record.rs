//! An epoch's record as JSON: what `--json` prints and `metrics.jsonl` holds.

use nap_engine::task::Case;
use nap_engine::train::EpochRecord;
use serde_json::{Map, Value, json};

/// One record. Losses that are not finite, and accuracies of cases that do not occur, are null.
/// `steps_per_s` is the only figure that depends on the clock.
pub fn epoch(record: &EpochRecord, cases: &[Case], steps_per_s: f64) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("epoch".to_owned(), record.epoch.into());
    map.insert("train_loss".to_owned(), number(record.train_loss));
    map.insert("train_accuracy".to_owned(), number(record.train_accuracy));
    map.insert("val_loss".to_owned(), number(record.validation.loss));
    map.insert("val_accuracy".to_owned(), number(record.validation.accuracy));
    if let Some(macro_f1) = record.validation.macro_f1 {
        map.insert("val_macro_f1".to_owned(), number(macro_f1));
    }
    map.insert("diverged".to_owned(), record.diverged.into());
    for (prefix, values) in
        [("train_case_", &record.train_cases), ("val_case_", &record.validation.cases)]
    {
        for (case, &value) in cases.iter().zip(values) {
            map.insert(format!("{prefix}{}", case.name), number(value));
        }
    }
    map.insert("steps_per_s".to_owned(), number((steps_per_s * 100.0).round() / 100.0));
    map
}

/// JSON has no NaN.
pub fn number(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { Value::Null }
}
