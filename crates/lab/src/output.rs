//! Standard output that does not mind a reader who has left.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;

/// Standard output has no reader any more (`nap models | head -1`): no error to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

impl Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for Closed {}

/// Writes to standard output.
///
/// # Errors
/// [`Closed`] if nobody reads it, or what the system says.
pub fn print(text: impl AsRef<str>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref().as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        result => Ok(result.context("cannot write to standard output")?),
    }
}

/// [`print()`] with a line end.
///
/// # Errors
/// As [`print()`].
pub fn print_line(text: impl AsRef<str>) -> anyhow::Result<()> {
    print(format!("{}\n", text.as_ref()))
}

/// Writes to standard error, which may be closed or full: then there is nobody to tell.
pub fn note(text: impl AsRef<str>) {
    let _ = io::stderr().write_all(text.as_ref().as_bytes());
}

/// A figure in a few characters: four digits that count, `-` for no number.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size.is_nan() => "-".to_owned(),
        size if (1e-3..1e5).contains(&size) => {
            format!("{value:.*}", (3 - size.log10().floor() as i32).clamp(0, 5) as usize)
        }
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn figures_are_short() {
        let cases = [
            (0.0, "0"),
            (f64::NAN, "-"),
            (1.23456, "1.235"),
            (-31.45, "-31.45"),
            (64000.4, "64000"),
            (0.01234567, "0.01235"),
            (1.4e-5, "1.40e-5"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
