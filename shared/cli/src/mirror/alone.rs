//! The right to keep the history of a folder: one server has it at a time.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dormouse_local::{LockError, hold_lock, lock_of};

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
    let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    hold_lock(&lock, &data.display().to_string(), 0).map_err(|error| match error {
        LockError::Held(holder) => MirrorError::Followed { path: path.to_owned(), holder },
        LockError::Io(error) => failed(error),
    })
}

/// True if `held` is what takes the database at `path`: with the folder of that its file may have gone.
pub(super) fn is_held(held: &File, path: &Path) -> bool {
    let (Ok(held), Ok(there)) = (held.metadata(), fs::symlink_metadata(lock_of(path))) else { return false };
    (held.dev(), held.ino()) == (there.dev(), there.ino())
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
