//! The data folder: who may use it, and the secrets in it.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use uuid::Uuid;

const ENDPOINT: &str = "store-endpoint";
const ADDRESS: &str = "address";
const API_KEY: &str = "api-key";

/// A data folder that belongs to this process until it ends, however it ends.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    _lock: File,
}

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process has it.
    #[error(
        "the data folder {} is in use by process {pid}; stop that process, or choose another folder with --data",
        path.display()
    )]
    Taken {
        /// The folder.
        path: PathBuf,
        /// The other process.
        pid: String,
    },
    /// The disk says no.
    #[error("the data folder {} cannot be used: {error}; choose another one with --data", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the disk says.
        error: io::Error,
    },
}

impl DataFolder {
    /// Takes the folder at `path`; makes it, for this user alone, when it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |error| FolderError::Io { path: path.to_owned(), error };
        let is_new = !path.exists();
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
        let mut lock = options.open(path.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(path, &mut lock)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id())).map_err(failed)?;
        if is_new {
            // Secrets and state have no place in a repository.
            fs::write(path.join(".gitignore"), "*\n").map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down where this process serves the store of the folder, for others who look into it.
    pub(crate) fn note_endpoint(&self, endpoint: &str) -> Result<(), FolderError> {
        let noted = fs::write(self.path.join(ENDPOINT), endpoint);
        noted.map_err(|error| FolderError::Io { path: self.path.clone(), error })
    }

    /// Writes down where this process listens, for commands that speak to it.
    pub(crate) fn note_address(&self, address: &str) -> Result<(), FolderError> {
        let noted = fs::write(self.path.join(ADDRESS), address);
        noted.map_err(|error| FolderError::Io { path: self.path.clone(), error })
    }

    /// Where the process listens, or listened, that has the folder at `path`.
    pub(crate) fn address(path: &Path) -> io::Result<String> {
        fs::read_to_string(path.join(ADDRESS))
    }

    /// The development key of the folder at `path`, if there is one.
    pub(crate) fn api_key(path: &Path) -> Option<String> {
        fs::read_to_string(path.join(API_KEY)).ok().map(|key| key.trim().to_owned())
    }

    /// Where the process that has the folder at `path` serves its store.
    pub(crate) fn endpoint(path: &Path) -> io::Result<String> {
        fs::read_to_string(path.join(ENDPOINT))
    }

    /// The secret called `name`: 64 hexadecimal digits, made once and kept for this user alone.
    pub(crate) fn secret(&self, name: &str) -> Result<String, FolderError> {
        self.kept(name, || format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()))
    }

    /// The development key; `made` is kept when there is none.
    pub(crate) fn development_key(&self, made: String) -> Result<String, FolderError> {
        self.kept(API_KEY, || made)
    }

    fn kept(&self, name: &str, make: impl FnOnce() -> String) -> Result<String, FolderError> {
        let file = self.path.join(name);
        let secret = match fs::read_to_string(&file) {
            Ok(secret) => Ok(secret.trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => keep_secret(&file, make()),
            Err(error) => Err(error),
        };
        let secret = secret.and_then(|secret| match secret.len() {
            0..32 => Err(io::Error::other(format!("{} is too short for a secret", file.display()))),
            _ => Ok(secret),
        });
        secret.map_err(|error| FolderError::Io { path: self.path.clone(), error })
    }
}

fn taken(path: &Path, lock: &mut File) -> FolderError {
    let mut pid = String::new();
    // Who has it is a courtesy: without it the message is still true.
    let _ = lock.read_to_string(&mut pid);
    let pid = if pid.is_empty() { "(unknown)".to_owned() } else { pid };
    FolderError::Taken { path: path.to_owned(), pid }
}

/// Written aside and renamed: a kill leaves a whole secret or none.
fn keep_secret(file: &Path, secret: String) -> io::Result<String> {
    let unfinished = file.with_extension("unfinished");
    let mut opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    opened.write_all(secret.as_bytes())?;
    opened.sync_all()?;
    fs::rename(&unfinished, file)?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn a_folder_belongs_to_one_at_a_time() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("data");
        let first = DataFolder::open(&path).expect("it is free");
        let refused = DataFolder::open(&path).expect_err("it is taken").to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        drop(first);
        DataFolder::open(&path).expect("it is free again");
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_folder_that_was_there_keeps_its_files() {
        let place = tempfile::tempdir().expect("a folder");
        fs::write(place.path().join(".gitignore"), "target\n").expect("a file");
        DataFolder::open(place.path()).expect("it is free");
        assert_eq!(fs::read_to_string(place.path().join(".gitignore")).expect("a file"), "target\n");
    }

    #[test]
    fn secrets_stay_and_are_for_one_user() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = DataFolder::open(&place.path().join("data")).expect("it is free");
        let key = folder.secret("key").expect("a secret");
        assert_eq!(key.len(), 64);
        assert_eq!(folder.secret("key").expect("a secret"), key);
        assert_ne!(folder.secret("other").expect("a secret"), key);
        assert_eq!(mode(&folder.path().join("key")), 0o600);
        fs::write(folder.path().join("empty"), "").expect("a file");
        assert!(folder.secret("empty").is_err());
    }
}
