//! The right to keep the history of a folder: one server has it at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::MirrorError;

/// Takes the database at `path` for the server that keeps its state in `data`, until what this gives is dropped. Of two servers
/// each would find a place in the feed there that it does not know, and read all of its own again, for ever. A file beside the
/// database, `history.db.lock`, stays there and says who had it last.
///
/// # Errors
/// [`MirrorError::Followed`] when another server has it; any other error of the disk.
pub(super) fn taken_for(data: &Path, path: &Path) -> Result<File, MirrorError> {
    let lock = lock_of(path);
    let failed = |error| MirrorError::Io { path: lock.clone(), error };
    if let Some(folder) = lock.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    // What comes with a folder may lead anywhere, and nothing is written there.
    if lock.is_symlink() {
        return Err(failed(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a link, and nothing is written through it",
        )));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&lock).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // It may be about to say who it is.
            let _ = file.read_to_string(&mut holder);
            return Err(MirrorError::Followed { path: path.to_owned(), holder });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    file.set_len(0).and_then(|()| write!(file, "{}", data.display())).map_err(failed)?;
    Ok(file)
}

/// True if `held` is what takes the database at `path`: with the folder of that its file may have gone.
pub(super) fn is_held(held: &File, path: &Path) -> bool {
    let (Ok(held), Ok(there)) = (held.metadata(), fs::symlink_metadata(lock_of(path))) else { return false };
    (held.dev(), held.ino()) == (there.dev(), there.ino())
}

fn lock_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::PLACE;

    #[test]
    fn one_server_has_it_at_a_time_and_the_other_is_told_which() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join(PLACE);
        let held = taken_for(Path::new("/state/of/a/long/name"), &path).expect("it is free");
        let refused = taken_for(Path::new("/b"), &path).expect_err("it is held").to_string();
        for told in ["/state/of/a/long/name", "dormouse mirror"] {
            assert!(refused.contains(told), "{refused}");
        }
        drop(held);
        let held = taken_for(Path::new("/b"), &path).expect("it is free again");
        let refused = taken_for(Path::new("/a"), &path).expect_err("it is held").to_string();
        assert!(refused.contains("`/b`"), "{refused}");
        drop(held);
    }

    #[test]
    fn it_is_held_until_its_file_is_gone() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join(PLACE);
        let held = taken_for(Path::new("/a"), &path).expect("it is free");
        assert!(is_held(&held, &path));
        fs::remove_dir_all(path.parent().expect("a folder")).expect("it is there");
        assert!(!is_held(&held, &path));
        let again = taken_for(Path::new("/a"), &path).expect("it is free");
        assert!(is_held(&again, &path) && !is_held(&held, &path));
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let place = tempfile::tempdir().expect("a folder");
        let (path, mine) = (place.path().join("history.db"), place.path().join("mine"));
        fs::write(&mine, "what I wrote").expect("a file");
        std::os::unix::fs::symlink(&mine, place.path().join("history.db.lock")).expect("a link");
        assert!(matches!(taken_for(Path::new("/a"), &path), Err(MirrorError::Io { .. })));
        assert_eq!(fs::read_to_string(&mine).expect("a file"), "what I wrote");
    }
}
