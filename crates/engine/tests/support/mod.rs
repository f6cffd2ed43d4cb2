//! What the integration tests share: the golden files, and the one way numbers are compared.
//!
//! Every number is widened to `f64`, which holds every type the files use exactly (integers
//! there are far below 2^53).

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod case;
pub mod panels;
pub mod setup;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// A tensor of a golden file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Row-major; a scalar has shape `[]` or `[1]`.
    pub shape: Vec<usize>,
    /// The values, widened.
    pub data: Vec<f64>,
}

impl Tensor {
    /// The value of a tensor with one element.
    pub fn scalar(&self) -> f64 {
        assert_eq!(self.data.len(), 1, "not a scalar: shape {:?}", self.shape);
        self.data[0]
    }

    /// Width of the last axis.
    pub fn width(&self) -> usize {
        *self.shape.last().expect("a tensor with axes")
    }

    /// The values as indices.
    pub fn indices(&self) -> Vec<u32> {
        let index = |&x: &f64| {
            assert!(x >= 0.0 && x.fract() == 0.0, "not an index: {x}");
            x as u32
        };
        self.data.iter().map(index).collect()
    }
}

/// A golden file: named tensors, and what its header says about them.
#[derive(Debug, Clone)]
pub struct GoldenFile {
    /// Where it lies.
    pub path: PathBuf,
    /// The parsed `info` of its header.
    pub info: Value,
    /// Its tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
}

impl GoldenFile {
    /// Reads a file; panics, naming it, if it cannot be used.
    pub fn read(path: &Path) -> Self {
        Self::parse(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn parse(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| e.to_string())?;
        let info = header.metadata().as_ref().and_then(|m| m.get("info")).ok_or("no info")?;
        let info = serde_json::from_str(info).map_err(|e| e.to_string())?;
        let file = SafeTensors::deserialize(&bytes).map_err(|e| e.to_string())?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.tensors() {
            let data = widen(view.dtype(), view.data())
                .ok_or_else(|| format!("{name}: unknown type {:?}", view.dtype()))?;
            tensors.insert(name, Tensor { shape: view.shape().to_vec(), data });
        }
        Ok(Self { path: path.to_owned(), info, tensors })
    }

    /// The file's name without its ending.
    pub fn name(&self) -> &str {
        self.path.file_stem().and_then(|s| s.to_str()).expect("a file name in UTF-8")
    }

    /// The tensor of this name; panics, naming the file, without one.
    pub fn tensor(&self, name: &str) -> &Tensor {
        self.get(name).unwrap_or_else(|| panic!("{}: no tensor {name}", self.path.display()))
    }

    /// The tensor of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// Splits names at their first `/` (after an `f32/` or `f64/`, which is dropped): the groups
    /// a file of many small checks is made of.
    pub fn groups(&self) -> std::collections::BTreeSet<&str> {
        let plain = |name: &'_ str| -> usize {
            if name.starts_with("f32/") || name.starts_with("f64/") { 4 } else { 0 }
        };
        self.tensors.keys().map(|k| k[plain(k)..].split('/').next().unwrap_or(k)).collect()
    }
}

fn widen(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f64>> {
    fn all<const N: usize>(bytes: &[u8], one: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        let (chunks, rest) = bytes.as_chunks::<N>();
        assert!(rest.is_empty());
        chunks.iter().map(|&chunk| one(chunk)).collect()
    }
    Some(match dtype {
        Dtype::F32 => all(bytes, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::F64 => all(bytes, f64::from_le_bytes),
        Dtype::I64 => all(bytes, |b| i64::from_le_bytes(b) as f64),
        Dtype::I16 => all(bytes, |b| f64::from(i16::from_le_bytes(b))),
        Dtype::I8 => all(bytes, |b| f64::from(i8::from_le_bytes(b))),
        Dtype::I32 => all(bytes, |b| f64::from(i32::from_le_bytes(b))),
        Dtype::U8 | Dtype::BOOL => all(bytes, |[b]: [u8; 1]| f64::from(b)),
        _ => return None,
    })
}

/// The golden directory: `NAP_GOLDEN_DIR` if it is set, else the copy beside the tests.
pub fn golden_dir() -> PathBuf {
    std::env::var_os("NAP_GOLDEN_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), PathBuf::from)
}

/// Every `*.safetensors` below the golden directory, sorted.
pub fn golden_paths() -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        for entry in entries {
            let path = entry.expect("a readable directory").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "safetensors") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&golden_dir(), &mut found);
    found.sort();
    found
}

/// The one golden file of this name; panics without it.
pub fn golden_file(name: &str) -> GoldenFile {
    let mut matching = golden_paths();
    matching.retain(|p| p.file_stem().is_some_and(|s| s == name));
    assert_eq!(matching.len(), 1, "{name}.safetensors below {}", golden_dir().display());
    GoldenFile::read(&matching[0])
}

/// The largest difference relative to the largest expected magnitude (absolute where everything
/// expected is 0). NaN equals NaN only; a NaN or infinity on one side is an infinite error.
pub fn scaled_error(actual: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(actual.len(), expected.len(), "number of values");
    let largest = expected.iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()));
    error_at_scale(actual, expected, largest)
}

/// As [`scaled_error`], relative to a magnitude of one's own (0: absolute).
pub fn error_at_scale(actual: &[f64], expected: &[f64], scale: f64) -> f64 {
    assert_eq!(actual.len(), expected.len(), "number of values");
    let scale = if scale > 0.0 { scale } else { 1.0 };
    let difference = |(&a, &e): (&f64, &f64)| {
        if a == e || (a.is_nan() && e.is_nan()) {
            0.0
        } else if a.is_finite() && e.is_finite() {
            (a - e).abs() / scale
        } else {
            f64::INFINITY
        }
    };
    actual.iter().zip(expected).map(difference).fold(0.0, f64::max)
}

/// Panics unless [`scaled_error`] is within the tolerance.
#[track_caller]
pub fn assert_close(what: &str, actual: &[f64], expected: &[f64], tolerance: f64) {
    let error = scaled_error(actual, expected);
    assert!(
        error <= tolerance,
        "{what}: scaled error {error:.1e} > {tolerance:.0e}\n actual {:?}\n expected {:?}",
        &actual[..actual.len().min(8)],
        &expected[..expected.len().min(8)],
    );
}

/// The largest error of each kind of comparison, and what broke its tolerance.
#[derive(Debug, Default)]
pub struct Report {
    /// Kind -> (comparisons, largest scaled error, where).
    kinds: BTreeMap<&'static str, (usize, f64, String)>,
    failures: Vec<String>,
}

impl Report {
    /// Notes an error of a kind, and a failure where it is above its tolerance.
    pub fn note(&mut self, kind: &'static str, place: &str, error: f64, tolerance: f64) {
        let entry = self.kinds.entry(kind).or_insert((0, -1.0, String::new()));
        entry.0 += 1;
        if error > entry.1 {
            (entry.1, entry.2) = (error, place.to_owned());
        }
        if error.is_nan() || error > tolerance {
            self.failures.push(format!("{kind} {place}: {error:.1e} > {tolerance:.0e}"));
        }
    }

    /// Compares, scaled by the largest expected magnitude.
    pub fn compare(
        &mut self,
        kind: &'static str,
        place: &str,
        actual: &[f64],
        expected: &[f64],
        tolerance: f64,
    ) {
        self.note(kind, place, scaled_error(actual, expected), tolerance);
    }

    /// How many comparisons were made.
    pub fn comparisons(&self) -> usize {
        self.kinds.values().map(|kind| kind.0).sum()
    }

    /// Prints a line per kind; panics with every failure, if there is one.
    pub fn finish(self, title: &str) {
        let mut text = format!("{title}: {} comparisons\n", self.comparisons());
        for (kind, (count, error, place)) in &self.kinds {
            text += &format!(
                "  {kind:<28} {count:>6}   largest scaled error {error:.1e}   ({place})\n"
            );
        }
        say(&text);
        let n = self.failures.len();
        let first: Vec<_> = self.failures.iter().take(40).cloned().collect();
        assert!(n == 0, "{title}: {n} comparisons failed\n{}", first.join("\n"));
    }
}

/// Prints even where the test runner would capture what a passing test prints.
pub fn say(text: &str) {
    use std::io::Write;
    std::io::stderr().write_all(text.as_bytes()).expect("standard error");
}
