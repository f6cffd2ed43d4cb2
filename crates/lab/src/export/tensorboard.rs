//! TensorBoard's event files: a directory per selection, in it one per run.
//!
//! An event file is a list of records: the length (u64, little-endian), its masked CRC-32C, the
//! bytes of an `Event` message, their masked CRC-32C. Source: TensorFlow's `TFRecord` format and
//! `event.proto`, `summary.proto`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use prost::Message;

use crate::files::write_atomically;
use crate::sweep::record::RunRecord;

/// TensorFlow's `Event`, as far as scalars need it.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

/// TensorFlow's `Summary`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

/// TensorFlow's `Summary.Value` with a `simple_value`.
#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, tag = "2")]
    simple_value: f32,
}

/// Writes the runs of a selection to `directory/SELECTION/RUN/events.out.tfevents.nap`, a scalar
/// per figure with the epoch as the step; `val_accuracy` becomes `val/accuracy`.
///
/// # Errors
/// If a file cannot be written.
pub fn write(directory: &Path, selection: &str, records: &[&RunRecord]) -> anyhow::Result<()> {
    for record in records {
        let folder = directory.join(plain(selection)).join(run_name(record));
        let path = folder.join("events.out.tfevents.nap");
        std::fs::create_dir_all(&folder)
            .and_then(|()| write_atomically(&path, &events(record)))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A name that says what the run is and is its own.
fn run_name(record: &RunRecord) -> PathBuf {
    let (model, train) = (&record.config.model, &record.config.train);
    PathBuf::from(format!(
        "{}-{}-d{}-lr{}-s{}-{}",
        record.config.task.name.as_str(),
        model.name,
        model.dim,
        train.learning_rate,
        train.seed,
        record.id
    ))
}

fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "=,.-_^+".contains(c) { c } else { '_' };
    text.chars().map(plain).collect()
}

fn events(record: &RunRecord) -> Vec<u8> {
    let finished = humantime::parse_rfc3339(&record.wall.finished).ok();
    let since = finished.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let wall_time = since.map_or(0.0, |time| time.as_secs_f64());
    let version = Some("brain.Event:2".to_owned());
    let mut bytes = Vec::new();
    append(&mut bytes, &Event { wall_time, step: 0, file_version: version, summary: None });
    for epoch in 0..record.epochs.len() {
        let scalar = |(name, values): (&String, &Vec<f64>)| {
            let value = values[epoch];
            let tag = name.replacen('_', "/", 1);
            value.is_finite().then_some(Scalar { tag, simple_value: value as f32 })
        };
        let value = record.epochs.0.iter().filter_map(scalar).collect();
        let summary = Some(Summary { value });
        append(
            &mut bytes,
            &Event { wall_time, step: epoch as i64 + 1, file_version: None, summary },
        );
    }
    bytes
}

fn append(bytes: &mut Vec<u8>, event: &Event) {
    let event = event.encode_to_vec();
    let length = (event.len() as u64).to_le_bytes();
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&masked_crc(&length).to_le_bytes());
    bytes.extend_from_slice(&event);
    bytes.extend_from_slice(&masked_crc(&event).to_le_bytes());
}

fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_framed_as_tensorboard_reads_them() {
        let event = Event {
            wall_time: 1.5,
            step: 3,
            file_version: None,
            summary: Some(Summary {
                value: vec![Scalar { tag: "val/accuracy".to_owned(), simple_value: 0.25 }],
            }),
        };
        let mut bytes = Vec::new();
        append(&mut bytes, &event);
        let length = usize::from(bytes[0]);
        assert_eq!(bytes.len(), 8 + 4 + length + 4);
        assert_eq!(Event::decode(&bytes[12..12 + length]).unwrap(), event);
        // By hand: wall_time (field 1, 64 bit), step (field 2, varint), summary (field 5).
        assert_eq!(bytes[12], 0x09);
        assert_eq!(bytes[21..23], [0x10, 3]);
        assert_eq!(bytes[23], 0x2a);
        // The mask of the checksum of no bytes.
        assert_eq!(masked_crc(&[]), 0xa282_ead8);
        // CRC-32C of "123456789" is e3069283.
        assert_eq!(
            masked_crc(b"123456789"),
            0xe306_9283u32.rotate_right(15).wrapping_add(0xa282_ead8)
        );
    }
}
