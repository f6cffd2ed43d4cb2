//! Files that are whole or absent, whenever the program is killed.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// How the names of files begin that are not in their place yet; their own name follows.
pub const TEMPORARY: &str = ".nap-";

/// Writes a file whole or not at all, and to disk.
///
/// # Errors
/// What the system says; an earlier file stays as it is.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    write_with(path, |file| file.write_all(bytes))
}

/// [`write_atomically`] for what is written piece by piece.
///
/// # Errors
/// As [`write_atomically`], and what `write` returns.
pub fn write_with<E: From<std::io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{TEMPORARY}{name}-");
    let mut file = tempfile::Builder::new().prefix(&prefix).tempfile_in(directory)?;
    #[cfg(unix)]
    {
        // Temporary files are private; results are for the user's colleagues too.
        use std::os::unix::fs::PermissionsExt;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The rename itself is durable only once the directory is.
    File::open(directory)?.sync_all()?;
    Ok(())
}

/// Removes the files of a directory whose names begin like this.
///
/// # Errors
/// What the system says.
pub fn remove_beginning_with(directory: &Path, prefix: &str) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) {
            match fs::remove_file(entry.path()) {
                // Another process had the same intention.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
    }
    Ok(())
}
