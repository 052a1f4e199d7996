//! A folder of small JSON files that survives a kill at any moment: one file for each entry, whole or not there.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

const ENTRY: &str = "json";
const UNFINISHED: &str = "unfinished";
const UNREADABLE: &str = "unreadable";
const DEAD_LETTER: &str = "dead-letter";

/// Entries by name. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Spool {
    folder: Arc<Path>,
    writes: Arc<AtomicU64>,
}

impl Spool {
    /// The spool in `folder`, which is made when it is missing.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        // What is published is for no other user to read.
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self { folder: folder.into(), writes: Arc::default() })
    }

    /// Everything that was kept, by name. Leftovers of interrupted writes are removed; a file that cannot be read is
    /// renamed and reported, because nothing else would notice.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> io::Result<Vec<(String, T)>> {
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.folder)? {
            let path = file?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(ENTRY) => entries.extend(read(&path)?),
                Some(UNFINISHED) => fs::remove_file(&path)?,
                _ => {}
            }
        }
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
        Ok(entries)
    }

    /// Keeps `entry` under `name`, in place of what was there. When it returns, the entry is on the disk.
    pub(crate) async fn put<T: Serialize>(&self, name: &str, entry: &T) -> io::Result<()> {
        let bytes = serde_json::to_vec(entry)?;
        let unfinished =
            self.folder.join(format!("{name}-{}.{UNFINISHED}", self.writes.fetch_add(1, Ordering::Relaxed)));
        let folder = self.folder.clone();
        let finished = self.file(name, ENTRY);
        blocking(move || {
            let kept = write(&unfinished, &bytes).and_then(|()| fs::rename(&unfinished, &finished));
            if kept.is_err() {
                // Whoever tries again would fill the disk with what it did not take.
                let _ = fs::remove_file(&unfinished);
            }
            kept?;
            File::open(&folder)?.sync_all()
        })
        .await
    }

    /// Forgets `name`, which may be gone already. A kill right after it may bring the entry back.
    pub(crate) async fn remove(&self, name: &str) -> io::Result<()> {
        let file = self.file(name, ENTRY);
        blocking(move || match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        })
        .await
    }

    /// Takes `name` out of what [`load`](Self::load) gives, and keeps its file for a person to look at.
    pub(crate) async fn set_aside(&self, name: &str) -> io::Result<()> {
        let from = self.file(name, ENTRY);
        let to = self.file(name, DEAD_LETTER);
        blocking(move || fs::rename(&from, &to)).await
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{name}.{extension}"))
    }
}

/// Kept entries of `folder`, by name, as far as they can be read; nothing is changed. Without the folder there are
/// none.
pub(crate) fn peek<T: DeserializeOwned>(folder: &Path) -> io::Result<Vec<(String, T)>> {
    let files = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files?,
    };
    let paths: Vec<_> = files.map(|file| file.map(|file| file.path())).collect::<io::Result<_>>()?;
    let kept = paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == ENTRY));
    Ok(kept.filter_map(|path| Some((stem(path), serde_json::from_slice(&fs::read(path).ok()?).ok()?))).collect())
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(file)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<(String, T)>> {
    match serde_json::from_slice(&fs::read(path)?) {
        Ok(entry) => Ok(Some((stem(path), entry))),
        Err(error) => {
            tracing::error!(file = %path.display(), %error, "a kept file cannot be read and is set aside");
            fs::rename(path, path.with_extension(UNREADABLE))?;
            Ok(None)
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(spool: &Spool) -> Vec<String> {
        spool.load::<u32>().expect("a folder").into_iter().map(|(name, _)| name).collect()
    }

    #[tokio::test]
    async fn what_is_kept_is_there_after_opening_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::open(folder.path().to_owned()).expect("a spool");
        for (name, entry) in [("b", 1), ("a", 2), ("b", 3)] {
            spool.put(name, &entry).await.expect("it is kept");
        }
        let again = Spool::open(folder.path().to_owned()).expect("a spool");
        assert_eq!(again.load::<u32>().expect("entries"), [("a".to_owned(), 2), ("b".to_owned(), 3)]);
        again.remove("a").await.expect("it goes");
        again.remove("a").await.expect("it may be gone");
        assert_eq!(names(&again), ["b"]);
    }

    #[tokio::test]
    async fn what_could_not_be_kept_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::open(folder.path().to_owned()).expect("a spool");
        fs::create_dir_all(folder.path().join("a.json/taken")).expect("a folder in its place");
        for _ in 0..2 {
            spool.put("a", &1).await.expect_err("it has no place");
        }
        assert_eq!(fs::read_dir(folder.path()).expect("files").count(), 1);
    }

    #[tokio::test]
    async fn interrupted_unreadable_and_dead_entries_do_not_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::open(folder.path().to_owned()).expect("a spool");
        spool.put("dead", &1).await.expect("it is kept");
        spool.set_aside("dead").await.expect("it is set aside");
        fs::write(folder.path().join("half-0.unfinished"), "1").expect("a file");
        fs::write(folder.path().join("bad.json"), "{").expect("a file");
        assert!(names(&spool).is_empty());
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).expect("files").map(|file| file.expect("a file").file_name()).collect();
        left.sort();
        assert_eq!(left, ["bad.unreadable", "dead.dead-letter"]);
    }
}
