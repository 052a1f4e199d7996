//! The data folder: who may use it, and the secrets in it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_receipts::KeyRing;
use uuid::Uuid;

use crate::locks::{LockError, NAP, hold_lock, holder_of};
use crate::receipts::RECEIPT_RING;
use crate::store;

/// File with the address at which the process listens that has the folder; empty while it starts, after its end, and while a
/// command has the folder. It is there from when everything of a folder was made.
const ADDRESS: &str = "address";
const LOCK: &str = "lock";
const STORE_KEY: &str = "store-key";
/// File in which earlier versions kept the address of their store.
const FORMER_ENDPOINT: &str = "store-endpoint";
const API_KEY: &str = "api-key";
/// Key of the part of the process that follows its events.
const FOLLOWER_KEY: &str = "follower-key";
/// The secret of senders of signals and publishers of events.
pub(crate) const SIGNAL_KEY: &str = "signal-key";
/// File with the path of the workspace whose runs were kept in the folder last.
const WORKSPACE: &str = "workspace";
/// Folder in which earlier versions kept a file for each timer.
const FORMER_TIMERS: &str = "timers";
/// Number of attempts at a folder that another process has: a command that only looks is soon done.
const PATIENCE: u32 = 10;
/// Interval at which a process looks whether its folder is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Characters of a secret.
const SHORTEST: usize = 32;

/// A data folder that belongs to this process until it ends, however it ends.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    was_complete: bool,
    /// Held until it is dropped.
    lock: Option<File>,
}

/// Reason for which a data folder cannot be used.
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
    /// Commands look into it.
    #[error("other commands look into the data folder {}: try again when they are done", .0.display())]
    LookedInto(PathBuf),
    /// It is no data folder.
    #[error(
        "there is nothing of Dormouse in {}: name the folder that `dormouse dev` has with --data, or a table with --table",
        .0.display()
    )]
    NotOurs(PathBuf),
    /// It is not there any more.
    #[error(
        "the data folder {} was removed while it was in use, or another one was put in its place. This process ends, \
         because whatever it went on to write would be lost: put back what you have of the folder, or begin anew",
        .0.display()
    )]
    Removed(PathBuf),
    /// Something that was made once and cannot be made again.
    #[error(
        "{} is gone, although the folder was in use, and none was made in its place: {what}. Put a copy of it back; \
         to do without what was made with it, write a new one: openssl rand -hex 32 > {}",
        path.display(), path.display()
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// Component that depends on it.
        what: &'static str,
    },
    /// A file does not hold what it should.
    #[error("{} is damaged: {reason}. It was left as it is: put a copy of it back, or remove it to be told what that means", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Defect of it.
        reason: String,
    },
    /// The disk refuses.
    #[error("the data folder {} cannot be used: {error}; {}", path.display(), remedy_of(error))]
    Io {
        /// The folder.
        path: PathBuf,
        /// Error of the disk.
        error: io::Error,
    },
}

/// What helps where the disk says `error`.
fn remedy_of(error: &io::Error) -> &'static str {
    match error.kind() == io::ErrorKind::StorageFull {
        true => "make room there, and start again",
        false => "choose another one with --data",
    }
}

impl DataFolder {
    /// Takes the folder at `path`; makes it, for this user alone, when it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |error| FolderError::Io { path: path.to_owned(), error };
        // In one with files of somebody else these would be hidden as well. A start that was killed may have left its lock.
        let is_lock = |file: io::Result<fs::DirEntry>| file.is_ok_and(|file| file.file_name() == LOCK);
        let is_new = !path.exists() || fs::read_dir(path).is_ok_and(|mut all| all.all(is_lock));
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let lock = match hold_lock(&path.join(LOCK), &std::process::id().to_string(), PATIENCE) {
            Ok(lock) => lock,
            Err(LockError::Held(pid)) => return Err(taken(path, pid)),
            Err(LockError::Io(error)) => return Err(failed(error)),
        };
        if is_new {
            // Secrets and state have no place in a repository.
            fs::write(path.join(".gitignore"), "*\n").map_err(failed)?;
        }
        let was_complete = path.join(ADDRESS).exists();
        let folder = Self { path: path.to_owned(), was_complete, lock: Some(lock) };
        if was_complete {
            // Who listens there now is not this process.
            folder.note_address("")?;
        }
        match fs::remove_file(path.join(FORMER_ENDPOINT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            Ok(()) | Err(_) => Ok(folder),
        }
    }

    /// Completes when this process has lost the folder: what is removed is still there for whoever has it open, so that
    /// nothing fails that is written to it, and nobody reads that again.
    pub(crate) async fn lost(&self) -> FolderError {
        while !self.is_lost() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        FolderError::Removed(self.path.clone())
    }

    /// True if another folder is at its place, or none, or one without what this process has in it.
    fn is_lost(&self) -> bool {
        let is_missing =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        // Numbers of files would tell it as well, and are not the same from look to look on some shared folders.
        match fs::read_to_string(self.path.join(LOCK)) {
            Ok(holder) if holder != std::process::id().to_string() => true,
            Ok(_) => store::is_missing(&self.path).unwrap_or(false),
            Err(error) => is_missing(&error),
        }
    }

    /// Holds the folder at `path`, which others may look into at the same time. Nothing is made or written.
    pub(crate) fn look(path: &Path) -> Result<Self, FolderError> {
        Self::existing(path, File::try_lock_shared)
    }

    /// Takes the folder at `path`, which must be there, when those are done who look into it. From then on nobody is sent to the
    /// process that had it: another one may listen there, and would be given the keys.
    pub(crate) fn take(path: &Path) -> Result<Self, FolderError> {
        let mut patience = PATIENCE;
        let folder = loop {
            match Self::existing(path, File::try_lock) {
                Err(FolderError::Taken { .. }) if Self::look(path).is_ok() => {
                    patience = patience.checked_sub(1).ok_or_else(|| FolderError::LookedInto(path.to_owned()))?;
                    std::thread::sleep(NAP);
                }
                taken => break taken?,
            }
        };
        if folder.was_complete {
            folder.note_address("")?;
        }
        if folder.lock.is_some() {
            let noted = fs::write(path.join(LOCK), std::process::id().to_string());
            noted.map_err(|error| FolderError::Io { path: path.to_owned(), error })?;
        }
        Ok(folder)
    }

    fn existing(path: &Path, hold: impl FnOnce(&File) -> Result<(), TryLockError>) -> Result<Self, FolderError> {
        let failed = |error| FolderError::Io { path: path.to_owned(), error };
        let mut lock = match File::open(path.join(LOCK)) {
            Ok(lock) => Some(lock),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
            Err(error) => return Err(failed(error)),
        };
        let was_complete = path.join(ADDRESS).is_file();
        if !was_complete && store::is_missing(path).map_err(failed)? {
            return Err(FolderError::NotOurs(path.to_owned()));
        }
        match lock.as_mut().map_or(Ok(()), |lock| hold(lock)) {
            Ok(()) => Ok(Self { path: path.to_owned(), was_complete, lock }),
            Err(TryLockError::WouldBlock) => Err(match &mut lock {
                Some(lock) => taken(path, holder_of(lock)),
                None => FolderError::NotOurs(path.to_owned()),
            }),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// True if a process runs that has the folder at `path`.
    pub(crate) fn is_taken(path: &Path) -> bool {
        matches!(Self::look(path), Err(FolderError::Taken { .. }))
    }

    /// True if it is this process that has, or had last, the folder at `path`.
    pub(crate) fn is_own(path: &Path) -> bool {
        fs::read_to_string(path.join(LOCK)).is_ok_and(|holder| holder == std::process::id().to_string())
    }

    /// True if everything of the folder was made before.
    pub(crate) fn was_complete(&self) -> bool {
        self.was_complete
    }

    /// Notes that runs of `workspace` are kept here from now on; gives the one whose were before, where that is another and
    /// still there. A folder inside of its workspace goes where that goes.
    pub(crate) fn keep_workspace(&self, workspace: &Path) -> Result<Option<PathBuf>, FolderError> {
        let failed = |error| FolderError::Io { path: self.path.clone(), error };
        let workspace = std::path::absolute(workspace).map_err(failed)?;
        if std::path::absolute(&self.path).map_err(failed)?.starts_with(&workspace) {
            return Ok(None);
        }
        let note = self.path.join(WORKSPACE);
        let before = match fs::read(&note) {
            Ok(noted) => Some(PathBuf::from(OsString::from_vec(noted))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        fs::write(&note, workspace.as_os_str().as_bytes()).map_err(failed)?;
        // By other names, or behind a link that leads elsewhere by now, it is the same.
        let here = workspace.canonicalize().map_err(failed)?;
        Ok(before.filter(|before| before.canonicalize().is_ok_and(|there| there != here)))
    }

    /// Removes the timers that earlier versions kept in files: the store knows what falls due.
    pub(crate) fn forget_timers(&self) -> Result<(), FolderError> {
        match fs::remove_dir_all(self.path.join(FORMER_TIMERS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FolderError::Io { path: self.path.clone(), error })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down where this process listens, for commands that speak to it.
    pub(crate) fn note_address(&self, address: &str) -> Result<(), FolderError> {
        let noted = fs::write(self.path.join(ADDRESS), address);
        noted.map_err(|error| FolderError::Io { path: self.path.clone(), error })
    }

    /// Address at which the process listens, or listened, that has the folder at `path`.
    pub(crate) fn address(path: &Path) -> io::Result<String> {
        fs::read_to_string(path.join(ADDRESS))
    }

    /// The development key of the folder at `path`, if there is one.
    pub(crate) fn api_key(path: &Path) -> Option<String> {
        fs::read_to_string(path.join(API_KEY)).ok().map(|key| key.trim().to_owned())
    }

    /// Key by which the process that has the folder at `path` follows its own events, if there is one.
    pub(crate) fn follower_key(path: &Path) -> Option<String> {
        fs::read_to_string(path.join(FOLLOWER_KEY)).ok().map(|key| key.trim().to_owned())
    }

    /// Key that the process that has the folder at `path` asks of others that want to see its store.
    pub(crate) fn store_key(path: &Path) -> io::Result<String> {
        fs::read_to_string(path.join(STORE_KEY)).map(|key| key.trim().to_owned())
    }

    /// Key that opens the signals and events of the process that has the folder at `path`.
    pub(crate) fn signal_key(path: &Path) -> io::Result<String> {
        fs::read_to_string(path.join(SIGNAL_KEY)).map(|key| key.trim().to_owned())
    }

    /// The key of the store, made anew when it is missing: nothing else depends on it.
    pub(crate) fn keep_store_key(&self) -> Result<String, FolderError> {
        self.kept(STORE_KEY, fresh)
    }

    /// The secret called `name`, on which `what` depends: 64 hexadecimal digits, made once and kept for this user
    /// alone.
    ///
    /// # Errors
    /// [`FolderError::Lost`] when it was made before and is gone: another one would be no replacement.
    pub(crate) fn secret(&self, name: &str, what: &'static str) -> Result<String, FolderError> {
        let path = self.path.join(name);
        if self.was_complete && !path.exists() {
            return Err(FolderError::Lost { path, what });
        }
        self.kept(name, fresh)
    }

    /// The keys that receipts are signed with; `made` is kept when there are none.
    ///
    /// # Errors
    /// [`FolderError::Damaged`] when they cannot be read: others would sign in their place, and no reader could verify
    /// what these signed.
    pub(crate) fn receipt_ring(&self, made: &KeyRing) -> Result<KeyRing, FolderError> {
        let path = self.path.join(RECEIPT_RING);
        if self.was_complete && !path.exists() {
            tracing::warn!(
                file = %path.display(),
                "there was no key for receipts, and a new one is made; receipts that another one signed can be verified \
                 again with a copy of the former file"
            );
        }
        let text = self.kept(RECEIPT_RING, || made.text())?;
        KeyRing::parse(&text).map_err(|error| FolderError::Damaged { path, reason: error.to_string() })
    }

    /// The development key; `made` is kept when there is none.
    pub(crate) fn development_key(&self, made: String) -> Result<String, FolderError> {
        if self.was_complete && !self.path.join(API_KEY).exists() {
            tracing::warn!(
                "the development key was gone, and a new one is made; the old one is still a key: see `dormouse keys list`"
            );
        }
        self.kept(API_KEY, || made)
    }

    /// The key by which this process follows its own events; `made` is kept when there is none.
    pub(crate) fn keep_follower_key(&self, made: String) -> Result<String, FolderError> {
        self.kept(FOLLOWER_KEY, || made)
    }

    fn kept(&self, name: &str, make: impl FnOnce() -> String) -> Result<String, FolderError> {
        let file = self.path.join(name);
        let secret = match fs::read(&file) {
            Ok(bytes) => String::from_utf8(bytes).unwrap_or_default().trim().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return keep_secret(&file, make()).map_err(|error| FolderError::Io { path: self.path.clone(), error });
            }
            Err(error) => return Err(FolderError::Damaged { path: file, reason: error.to_string() }),
        };
        if secret.len() < SHORTEST || secret.chars().any(|c| !c.is_ascii_graphic()) {
            let reason =
                format!("a secret has {SHORTEST} characters or more, and no others than visible ones of ASCII");
            return Err(FolderError::Damaged { path: file, reason });
        }
        Ok(secret)
    }
}

fn fresh() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

fn taken(path: &Path, pid: String) -> FolderError {
    let pid = if pid.is_empty() { "(unknown)".to_owned() } else { pid };
    FolderError::Taken { path: path.to_owned(), pid }
}

/// Written aside and renamed: a kill leaves a whole secret or none.
pub(crate) fn keep_secret(file: &Path, secret: String) -> io::Result<String> {
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
    fn where_the_disk_is_full_nobody_is_sent_to_an_empty_folder() {
        for (kind, advice) in [
            (io::ErrorKind::StorageFull, "make room there"),
            (io::ErrorKind::PermissionDenied, "another one with --data"),
        ] {
            let told = FolderError::Io { path: "data".into(), error: kind.into() }.to_string();
            assert!(told.contains(advice), "{told}");
        }
    }

    #[test]
    fn a_folder_that_was_removed_or_replaced_is_lost() {
        let place = tempfile::tempdir().expect("a folder");
        let (path, away) = (place.path().join("data"), place.path().join("away"));
        let folder = DataFolder::open(&path).expect("it is free");
        let store = path.join(store::FILE);
        fs::write(&store, "x").expect("a file");
        assert!(!folder.is_lost());
        fs::rename(&path, &away).expect("a folder");
        assert!(folder.is_lost(), "it is moved away");
        fs::create_dir(&path).expect("a folder");
        fs::write(path.join(LOCK), "1").expect("a file");
        fs::write(&store, "y").expect("a file");
        assert!(folder.is_lost(), "it is another one");
        fs::remove_dir_all(&path).expect("a folder");
        fs::rename(&away, &path).expect("a folder");
        assert!(!folder.is_lost(), "it is back");
        fs::remove_file(&store).expect("a file");
        assert!(folder.is_lost(), "its store is gone");
    }

    #[test]
    fn a_folder_that_had_the_runs_of_another_workspace_names_it_as_long_as_that_is_there() {
        let place = tempfile::tempdir().expect("a folder");
        let (desk, till) = (place.path().join("desk"), place.path().join("till"));
        fs::create_dir(&desk).expect("a folder");
        fs::create_dir(&till).expect("a folder");
        let folder = DataFolder::open(&place.path().join("data")).expect("it is free");
        let before = |workspace: &Path| folder.keep_workspace(workspace).expect("it is noted");
        assert_eq!(before(&desk), None);
        assert_eq!(before(&place.path().join("./desk/")), None, "it is the same");
        assert_eq!(before(&till), Some(desk.clone()));
        assert_eq!(before(&desk), Some(till.clone()));
        fs::remove_dir(&desk).expect("a folder");
        assert_eq!(before(&till), None, "it was moved");
        let inside = DataFolder::open(&till.join(".openharness/data/dormouse")).expect("it is free");
        assert_eq!(inside.keep_workspace(&till).expect("it is noted"), None);
        assert!(!inside.path().join(WORKSPACE).exists(), "a copy of the workspace is one of its own");
    }

    #[test]
    fn a_folder_that_was_there_keeps_its_files() {
        let place = tempfile::tempdir().expect("a folder");
        fs::write(place.path().join(".gitignore"), "target\n").expect("a file");
        DataFolder::open(place.path()).expect("it is free");
        assert_eq!(fs::read_to_string(place.path().join(".gitignore")).expect("a file"), "target\n");
    }

    #[test]
    fn no_repository_takes_up_what_is_in_a_folder_that_was_empty_or_is_made() {
        let place = tempfile::tempdir().expect("a folder");
        let [empty, killed] = ["empty", "killed"].map(|name| place.path().join(name));
        for path in [&empty, &killed] {
            fs::create_dir(path).expect("a folder");
        }
        fs::write(killed.join(LOCK), "1").expect("a file");
        for path in [empty, killed, place.path().join("missing")] {
            DataFolder::open(&path).expect("it is free");
            assert_eq!(fs::read_to_string(path.join(".gitignore")).expect("a file"), "*\n");
        }
        let others = place.path().join("others");
        fs::create_dir(&others).expect("a folder");
        fs::write(others.join("main.rs"), "").expect("a file");
        DataFolder::open(&others).expect("it is free");
        assert!(!others.join(".gitignore").exists());
    }

    #[test]
    fn secrets_stay_and_are_for_one_user() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = DataFolder::open(&place.path().join("data")).expect("it is free");
        let secret = |name: &str| folder.secret(name, "much");
        let key = secret("key").expect("a secret");
        assert_eq!(key.len(), 64);
        assert_eq!(secret("key").expect("a secret"), key);
        assert_ne!(secret("other").expect("a secret"), key);
        assert_eq!(mode(&folder.path().join("key")), 0o600);
        for spoilt in [&b""[..], b"short", &[0; 64], &[0xff; 64]] {
            fs::write(folder.path().join("spoilt"), spoilt).expect("a file");
            assert!(matches!(secret("spoilt"), Err(FolderError::Damaged { .. })), "{spoilt:?}");
            assert_eq!(fs::read(folder.path().join("spoilt")).expect("a file"), spoilt);
        }
    }

    #[test]
    fn a_secret_that_was_lost_is_not_replaced() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("data");
        let folder = DataFolder::open(&path).expect("it is free");
        folder.secret("key", "much").expect("a secret");
        folder.note_address("http://127.0.0.1:1").expect("a file");
        drop(folder);
        fs::remove_file(path.join("key")).expect("a file");
        let folder = DataFolder::open(&path).expect("it is free");
        let refused = folder.secret("key", "much depends on it").expect_err("it is lost").to_string();
        assert!(refused.contains("is gone") && refused.contains("much depends on it"), "{refused}");
        assert!(!path.join("key").exists());
        assert_eq!(DataFolder::address(&path).expect("a file"), "", "nobody listens there any more");
        assert!(folder.keep_store_key().is_ok(), "nothing depends on it");
    }

    #[test]
    fn looking_makes_nothing_and_several_may_look() {
        let place = tempfile::tempdir().expect("a folder");
        let refused = DataFolder::look(place.path()).expect_err("there is nothing");
        assert!(matches!(refused, FolderError::NotOurs(_)), "{refused}");
        assert_eq!(fs::read_dir(place.path()).expect("a folder").count(), 0);
        let missing = DataFolder::look(&place.path().join("missing")).expect_err("there is nothing");
        assert!(matches!(missing, FolderError::NotOurs(_)), "{missing}");
        let path = place.path().join("data");
        let owner = DataFolder::open(&path).expect("it is free");
        fs::write(path.join(store::FILE), "x").expect("a file");
        assert!(DataFolder::is_taken(&path));
        drop(owner);
        let looks = (DataFolder::look(&path).expect("it is free"), DataFolder::look(&path).expect("both may"));
        assert!(matches!(DataFolder::take(&path), Err(FolderError::LookedInto(_))));
        drop(looks);
        assert!(!DataFolder::is_taken(&path));
    }

    #[test]
    fn where_a_command_has_the_folder_nobody_is_sent_to_the_process_that_had_it() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("data");
        let killed = DataFolder::open(&path).expect("it is free");
        killed.note_address("http://127.0.0.1:1").expect("a file");
        fs::write(path.join(LOCK), "1").expect("a file");
        drop(killed);
        let taken = DataFolder::take(&path).expect("it is free");
        assert_eq!(DataFolder::address(&path).expect("a file"), "");
        let refused = DataFolder::look(&path).expect_err("it is taken").to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        drop(taken);
        let again = DataFolder::open(&path).expect("it is free");
        assert!(again.was_complete(), "nothing is made anew");
    }
}
