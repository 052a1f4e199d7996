//! A folder as a store of objects: one file for each, whole or not there.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_ports::{Object, ObjectCondition, ObjectError, ObjectVersion, Objects};
use sha2::{Digest, Sha256};

/// The longest object with a version that is looked up.
const LONGEST: u64 = 64 * 1024 * 1024;

/// Objects in a folder that one process writes to. It is made with the first of them.
#[derive(Debug)]
pub struct FolderObjects {
    root: PathBuf,
    /// Held from the look at a version to the write.
    writing: Mutex<()>,
}

impl FolderObjects {
    /// The objects in `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), writing: Mutex::default() }
    }

    /// The file of `key`.
    fn file(&self, key: &str) -> Result<PathBuf, ObjectError> {
        let is_sound = |part: &str| {
            !["", ".", ".."].contains(&part) && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        match key.split('/').all(is_sound) {
            true => Ok(self.root.join(key)),
            false => Err(ObjectError::Rejected(format!("{key:?} is no key of an object"))),
        }
    }
}

fn read(file: &Path, key: &str, limit: u64) -> Result<Option<Object>, ObjectError> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error, key)),
    };
    let mut bytes = Vec::new();
    opened.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| failed(&error, key))?;
    if u64::try_from(bytes.len()).is_ok_and(|read| read > limit) {
        return Err(ObjectError::TooLarge { key: key.to_owned(), limit });
    }
    let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok(Some(Object { version: ObjectVersion::new(digest), bytes }))
}

/// Writes aside and renames: a kill leaves the old content or the new one.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder)?;
    let unfinished = file.with_extension("unfinished");
    let mut opened = File::create(&unfinished)?;
    opened.write_all(bytes)?;
    opened.sync_all()?;
    fs::rename(&unfinished, file)?;
    File::open(folder)?.sync_all()
}

fn failed(error: &io::Error, key: &str) -> ObjectError {
    match error.kind() == io::ErrorKind::PermissionDenied {
        true => ObjectError::Denied(format!("{key}: {error}")),
        false => ObjectError::Transient(format!("{key}: {error}")),
    }
}

#[async_trait]
impl Objects for FolderObjects {
    async fn get(&self, key: &str, limit: u64) -> Result<Option<Object>, ObjectError> {
        read(&self.file(key)?, key, limit)
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: ObjectCondition) -> Result<(), ObjectError> {
        let file = self.file(key)?;
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let found = read(&file, key, LONGEST)?.map(|object| object.version);
        let holds = match &condition {
            ObjectCondition::Absent => found.is_none(),
            ObjectCondition::Unchanged(version) => found.as_ref() == Some(version),
        };
        match holds {
            true => write(&file, &bytes).map_err(|error| failed(&error, key)),
            false => Err(ObjectError::Conflict(key.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_object_is_written_only_where_it_is_as_it_was_seen() {
        let place = tempfile::tempdir().expect("a folder");
        let objects = FolderObjects::new(place.path().join("objects"));
        assert_eq!(objects.get("a/b.json", 9).await, Ok(None));
        objects.put("a/b.json", b"one".to_vec(), ObjectCondition::Absent).await.expect("written");
        let again = objects.put("a/b.json", b"two".to_vec(), ObjectCondition::Absent).await;
        assert!(matches!(again, Err(ObjectError::Conflict(_))), "{again:?}");
        let seen = objects.get("a/b.json", 9).await.expect("read").expect("an object");
        assert_eq!(seen.bytes, b"one");
        let unchanged = || ObjectCondition::Unchanged(seen.version.clone());
        objects.put("a/b.json", b"two".to_vec(), unchanged()).await.expect("written");
        let late = objects.put("a/b.json", b"three".to_vec(), unchanged()).await;
        assert!(matches!(late, Err(ObjectError::Conflict(_))), "{late:?}");
        let reopened = FolderObjects::new(place.path().join("objects"));
        assert_eq!(reopened.get("a/b.json", 9).await.expect("read").expect("an object").bytes, b"two");
        assert!(matches!(objects.get("a/b.json", 2).await, Err(ObjectError::TooLarge { .. })));
        for outside in ["../b", "a//b", "/a", "a/./b", ""] {
            assert!(matches!(objects.get(outside, 9).await, Err(ObjectError::Rejected(_))), "{outside}");
        }
    }
}
