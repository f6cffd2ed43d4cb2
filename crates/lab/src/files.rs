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
    // Through links; a pipe or a device is written to, not replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return write(&mut File::options().write(true).open(path)?);
    }
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{TEMPORARY}{name}-");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    {
        // Temporary files are private; results are for whom the user's umask lets read them.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(directory)?;
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_and_what_is_no_file_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| dir.path().join(name));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_atomically(&link, b"after").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"after");

        // A pipe's other end gets the bytes; files to come are no links either.
        let (mut reader, writer) = std::io::pipe().unwrap();
        use std::os::fd::AsRawFd;
        let end = format!("/proc/self/fd/{}", writer.as_raw_fd());
        if Path::new(&end).exists() {
            write_atomically(Path::new(&end), b"piped").unwrap();
            drop(writer);
            let mut text = String::new();
            std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
            assert_eq!(text, "piped");
        }
    }
}
