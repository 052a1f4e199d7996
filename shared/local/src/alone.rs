//! Files that several commands may change at a time.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// The right to change `file`, which one process has at a time, until what this gives is dropped. Whoever changes the file
/// reads it after this. A file beside it, `FILE.lock`, stays there and is empty.
///
/// # Errors
/// If that cannot be made or locked.
pub(crate) fn alone_with(file: &Path) -> io::Result<File> {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let lock = options.open(name)?;
    lock.lock()?;
    Ok(lock)
}
