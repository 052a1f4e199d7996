//! Locks: files that are held by whoever changes what stands beside them, one process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two attempts at what another process has.
pub(crate) const NAP: Duration = Duration::from_millis(50);

/// Reason for which a lock is not held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it, and this is what it says of itself: nothing, where it is about to.
    #[error("another process has it: {0}")]
    Held(String),
    /// It cannot be made, locked or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The right to change `file`, which one process has at a time, until what this gives is dropped. Whoever changes the file
/// reads it after this. Its [lock](lock_of) stays there and is empty.
///
/// # Errors
/// If that cannot be made or locked.
pub(crate) fn alone_with(file: &Path) -> io::Result<File> {
    let lock = opened(&lock_of(file))?;
    lock.lock()?;
    Ok(lock)
}

/// Holds the lock at `path` for `holder`, as which whoever is refused knows it, until what this gives is dropped. One that
/// another process has is tried again so many `more` times, with 50 milliseconds before each.
///
/// # Errors
/// [`LockError::Held`] when another process has it still; any other error of the disk.
pub fn hold_lock(path: &Path, holder: &str, more: u32) -> Result<File, LockError> {
    let mut lock = opened(path)?;
    let mut left = more;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if left > 0 => std::thread::sleep(NAP),
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder_of(&mut lock))),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        left -= 1;
    }
    lock.set_len(0)?;
    lock.write_all(holder.as_bytes())?;
    Ok(lock)
}

/// The lock beside `file`: `FILE.lock`.
pub fn lock_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// What whoever has `lock` says of itself. It is a courtesy: without it what is said is still true.
pub(crate) fn holder_of(lock: &mut File) -> String {
    let mut holder = String::new();
    let _ = lock.read_to_string(&mut holder);
    holder
}

/// The lock at `path`, made for this user alone where it is missing.
fn opened(path: &Path) -> io::Result<File> {
    // What comes with a folder may lead anywhere, and nothing is made or written there.
    if path.is_symlink() {
        let name = path.file_name().unwrap_or_default().display();
        let message = format!("{name} is a link, and nothing is written through it: remove the link");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_process_holds_a_lock_and_the_others_are_told_which() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("lock");
        let held = hold_lock(&path, "one of a long name", 0).expect("it is free");
        assert!(matches!(hold_lock(&path, "two", 1), Err(LockError::Held(holder)) if holder == "one of a long name"));
        drop(held);
        let held = hold_lock(&path, "two", 0).expect("it is free again");
        assert!(matches!(hold_lock(&path, "three", 0), Err(LockError::Held(holder)) if holder == "two"));
        drop(held);
    }

    #[test]
    fn nothing_is_made_or_written_through_a_link() {
        let place = tempfile::tempdir().expect("a folder");
        let [file, mine, elsewhere] = ["secrets.json", "mine", "elsewhere"].map(|name| place.path().join(name));
        fs::write(&mine, "what I wrote").expect("a file");
        for to in [&mine, &elsewhere] {
            std::os::unix::fs::symlink(to, lock_of(&file)).expect("a link");
            let refused = alone_with(&file).expect_err("a link").to_string();
            assert!(refused.contains("secrets.json.lock is a link"), "{refused}");
            assert!(matches!(hold_lock(&lock_of(&file), "me", 0), Err(LockError::Io(_))));
            fs::remove_file(lock_of(&file)).expect("it is there");
        }
        assert_eq!(fs::read_to_string(&mine).expect("a file"), "what I wrote");
        assert!(!elsewhere.exists());
        drop(alone_with(&file).expect("it is free"));
        assert_eq!(fs::read(lock_of(&file)).expect("it stays"), b"");
    }
}
