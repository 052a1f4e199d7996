use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use dynoxide::DynoxideError;
use rusqlite::ErrorCode;

use super::EmbeddedError;

/// First bytes of every file of SQLite (its file format, section 1.3).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// True if there is a store in `file`, sound or not.
pub(super) fn is_kept(file: &Path) -> io::Result<bool> {
    length(file).map(|length| length.is_some())
}

/// The same as [`check`], for a store that was made before: an empty one is none.
pub(super) fn check_kept(file: &Path) -> Result<(), EmbeddedError> {
    match length(file)? {
        None => Err(EmbeddedError::Lost(file.to_owned())),
        Some(0) => Err(EmbeddedError::Damaged { file: file.to_owned(), reason: "it is empty".to_owned() }),
        Some(_) => check(file),
    }
}

/// Checks that the content of `file` can be a store, before anything opens and thereby changes it. A missing one can be
/// made.
///
/// # Errors
/// [`EmbeddedError::Damaged`] with the reason.
pub(super) fn check(file: &Path) -> Result<(), EmbeddedError> {
    let damaged = |reason: &str| EmbeddedError::Damaged { file: file.to_owned(), reason: reason.to_owned() };
    let logged = length(&log_of(file))?.unwrap_or_default();
    let Some(length) = length(file)?.filter(|length| *length > 0) else {
        // The log is of no use without it, and would be lost in making a new one.
        return if logged == 0 { Ok(()) } else { Err(damaged("it is gone or empty, and its log is still there")) };
    };
    let mut header = [0_u8; 100];
    if length < 100 || File::open(file)?.read_exact(&mut header).is_err() || !header.starts_with(MAGIC) {
        return Err(damaged("it is no database"));
    }
    let four = |at: usize| header[at..at + 4].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let page = match u64::from(header[16]) << 8 | u64::from(header[17]) {
        1 => 65_536,
        size => size,
    };
    // The count of pages is valid when these two agree; while there is a log, a part of the pages may be in it.
    if logged == 0 && four(24) == four(92) && four(28) * page > length {
        return Err(damaged("its end is missing"));
    }
    Ok(())
}

/// The meaning of `error`, with which the database did not open `file`: it is damaged, unless the disk, its owner or
/// another program is in the way. Whoever is told of damage puts an older copy in the place of what is whole.
pub(super) fn refused(file: &Path, error: &DynoxideError) -> EmbeddedError {
    let (file, reason) = (file.to_owned(), error.to_string());
    let code = if let DynoxideError::SqliteError(error) = error { error.sqlite_error_code() } else { None };
    let remedy = match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "close the program that has it open, an editor of SQLite for example"
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "let this user write it and its folder, which those who only look need as well"
        }
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => "see whether the disk is full",
        Some(_) | None => return EmbeddedError::Damaged { file, reason },
    };
    EmbeddedError::Unusable { file, reason, remedy }
}

fn length(file: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(file) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        metadata => Ok(Some(metadata?.len())),
    }
}

fn log_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use dynoxide::Database;
    use rusqlite::ffi;

    use super::*;

    fn reason(file: &Path) -> String {
        check_kept(file).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_is_no_store_is_told_and_left_as_it_is() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("dynamodb.sqlite");
        assert!(check(&file).is_ok() && reason(&file).contains("is gone"), "it can be made, and was not");
        drop(Database::new(&file.to_string_lossy()).expect("a database"));
        assert_eq!(reason(&file), "");
        let sound = fs::read(&file).expect("a file");
        for (spoilt, why) in [
            (&sound[..sound.len() / 2], "its end is missing"),
            (&sound[..50], "it is no database"),
            (&[b'x'; 9000][..], "it is no database"),
            (&[], "it is empty"),
        ] {
            fs::write(&file, spoilt).expect("a file");
            assert!(reason(&file).contains(why), "{}", reason(&file));
            assert_eq!(fs::read(&file).expect("a file"), spoilt);
        }
        fs::write(log_of(&file), "x").expect("a file");
        assert!(check(&file).is_err(), "what is in the log would be lost");
    }

    #[test]
    fn a_store_that_cannot_be_opened_as_things_are_is_not_called_damaged() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("dynamodb.sqlite");
        drop(Database::new(&file.to_string_lossy()).expect("a database"));
        fs::create_dir(log_of(&file)).expect("a folder");
        let error = Database::new(&file.to_string_lossy()).err().expect("its log cannot be opened");
        let said = refused(&file, &error).to_string();
        assert!(said.contains("cannot be opened") && said.contains("let this user write"), "{said}");
        fs::remove_dir(log_of(&file)).expect("a folder");
        assert!(Database::new(&file.to_string_lossy()).is_ok(), "nothing was wrong with it");
        for (code, told) in [
            (ffi::SQLITE_BUSY, "close the program"),
            (ffi::SQLITE_READONLY, "let this user write"),
            (ffi::SQLITE_FULL, "disk is full"),
            (ffi::SQLITE_IOERR, "disk is full"),
            (ffi::SQLITE_CORRUPT, "is damaged"),
            (ffi::SQLITE_ERROR, "is damaged"),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let said = refused(&file, &DynoxideError::SqliteError(error)).to_string();
            assert!(said.contains(told) && said.contains("dynamodb.sqlite"), "{said}");
        }
    }
}
