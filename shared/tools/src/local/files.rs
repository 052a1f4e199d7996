//! Reading and writing whole files.

use std::io::{self, Read, Write};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::fs::{File, Metadata, OpenOptions, OpenOptionsExt};
use dormouse_ports::execution::{ExecutionError, FileCondition, FileVersion, FileWrite, ReadFile};
use nix::libc::O_NONBLOCK;
use sha2::{Digest, Sha256};

use super::place::{Place, failed, kind_of};
use crate::matching::{version, version_of};
use crate::paths::may_change;

pub(super) fn read(place: &Place, path: &str, limit: u64) -> Result<ReadFile, ExecutionError> {
    let mut file = open(place, &place.resolved(path)?)?;
    let size = file.metadata().map_err(|error| failed(&error, path))?.len();
    let too_large = |size: u64| ExecutionError::TooLarge { path: path.to_owned(), size, limit };
    if size > limit {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    // It may have grown.
    let read = (&mut file).take(limit.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| failed(&error, path))?;
    match u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        read if read > limit => Err(too_large(read)),
        _ => Ok(ReadFile { version: version_of(&bytes), bytes }),
    }
}

/// Opens a file, and nothing else: a pipe is not waited for, and no device is read.
pub(super) fn open(place: &Place, path: &str) -> Result<File, ExecutionError> {
    let is_file = |metadata: Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(ExecutionError::NoFile { path: path.to_owned(), kind: kind_of(metadata.file_type()).to_owned() }),
    };
    let looked = if path.is_empty() { place.dir.dir_metadata() } else { place.dir.metadata(path) };
    is_file(looked.map_err(|error| failed(&error, path))?)?;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(O_NONBLOCK);
    let file = place.dir.open_with(path, &options).map_err(|error| failed(&error, path))?;
    is_file(file.metadata().map_err(|error| failed(&error, path))?)?;
    Ok(file)
}

pub(super) fn write(place: &Place, write: &FileWrite) -> Result<FileVersion, ExecutionError> {
    let asked = place.inside(&write.path)?;
    if asked.is_empty() {
        return Err(ExecutionError::NoFile { path: write.path.clone(), kind: "a folder".to_owned() });
    }
    may_change(&asked, &write.definitions)?;
    let _held = place.writing.lock().unwrap_or_else(PoisonError::into_inner);
    // A link is written through, and not replaced; where it leads nowhere there is nothing to write to.
    let (target, is_there) = match place.dir.symlink_metadata(&asked) {
        Ok(_) => (place.resolved(&asked)?, true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (place.to_be_made(&asked)?, false),
        Err(error) => return Err(failed(&error, &write.path)),
    };
    may_change(&target, &write.definitions)?;
    let holds = match (&write.condition, is_there) {
        (FileCondition::Absent, false) => true,
        // What it holds does not matter, and may be more than is ever read: others wait for their writes meanwhile.
        (FileCondition::Absent, true) => open(place, &target).map(|_| false)?,
        (FileCondition::Is(_), false) => false,
        (FileCondition::Is(version), true) => version_at(place, &target)? == *version,
    };
    match holds {
        true => replace(place, &target, &write.bytes).map_err(|error| failed(&error, &write.path)),
        false => Err(ExecutionError::Changed { path: write.path.clone() }),
    }
}

fn version_at(place: &Place, path: &str) -> Result<FileVersion, ExecutionError> {
    let mut file = open(place, path)?;
    let mut hash = Sha256::new();
    io::copy(&mut file, &mut hash).map_err(|error| failed(&error, path))?;
    Ok(version(hash))
}

/// Writes beside the file, and puts that in its place.
fn replace(place: &Place, path: &str, bytes: &[u8]) -> io::Result<FileVersion> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if !folder.is_empty() {
        place.dir.create_dir_all(folder)?;
    }
    let dir = if folder.is_empty() { place.dir.try_clone()? } else { place.dir.open_dir(folder)? };
    let beside = format!(".dormouse-{}-{}.part", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let written = (|| {
        let mut file = dir.open_with(&beside, &options)?;
        file.write_all(bytes)?;
        if let Ok(before) = dir.metadata(name) {
            file.set_permissions(before.permissions())?;
        }
        file.sync_all()?;
        dir.rename(&beside, &dir, name)
    })();
    if written.is_err() {
        // What is left of it is of no use; the error is the one of the write.
        let _ = dir.remove_file(&beside);
    }
    written.map(|()| version_of(bytes))
}
