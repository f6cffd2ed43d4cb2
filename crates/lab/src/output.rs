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
