//! Standard output that does not mind a reader who has left.

use std::io::{self, Write};

/// Writes to standard output; a closed pipe (`nap models | head -1`) ends the program quietly.
pub fn print(text: impl AsRef<str>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref().as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// [`print()`] with a line end.
pub fn print_line(text: impl AsRef<str>) -> anyhow::Result<()> {
    print(format!("{}\n", text.as_ref()))
}
