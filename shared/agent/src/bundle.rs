//! A bundle: the definitions of a workspace as one archive that is named by its content, and the place where bundles are
//! published.
//!
//! The name of a bundle is the digest that [`load`](crate::workspace::load) gives to its files. The same files make the
//! same bytes on every machine; a bundle whose bytes were changed is refused when it is read.

mod archive;
mod store;

use async_trait::async_trait;
use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceFile, WorkspaceSource};

use crate::workspace::{FILE_LIMIT, FileContent, Files, INSTRUCTIONS, MOST_FILES, counted, digest, skill_folders};

pub use archive::ARCHIVE_LIMIT;
pub use store::{BundleStore, BundleStoreError, CurrentBundle, Publication, sound_workspace_name};

/// Bytes of all files of a bundle together.
pub const CONTENT_LIMIT: u64 = 4 * 1024 * 1024;

/// The definitions of a workspace, under the name of their content.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle {
    digest: String,
    /// All of them could be read, but for the instructions.
    files: Files,
}

/// Reason for which files make no bundle, or bytes are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// There is nothing in it.
    #[error("the folder has no `AGENTS.md` and no `.openharness`: name the folder of a workspace")]
    Empty,
    /// A file cannot be in it.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// Problem, and what to do about it.
        reason: String,
    },
    /// There are too many files.
    #[error("the workspace has {0} files, and may have {MOST_FILES}: remove what is no definition")]
    TooMany(usize),
    /// The files are too large together.
    #[error("the workspace has {0} bytes, and may have {CONTENT_LIMIT}: remove what is no definition")]
    TooLarge(u64),
    /// The bytes are no archive.
    #[error("it is no bundle: {0}; publish the workspace again")]
    Malformed(String),
    /// The content is not that of the name.
    #[error("the bundle {name} has the content of {found}: it was changed after it was published; publish it again")]
    Changed {
        /// Its name.
        name: String,
        /// The digest of its files.
        found: String,
    },
}

impl Bundle {
    /// The bundle of the definitions among `files`; what is no definition is left out, and so is a file beside a skill that
    /// is too large or could not be read.
    ///
    /// # Errors
    /// [`BundleError`] when there are none, too many, or one that could not be read.
    pub fn of(files: &Files) -> Result<Self, BundleError> {
        let skills = skill_folders(files);
        Self::without(files, |path| {
            !path.ends_with("/SKILL.md") && skills.iter().any(|folder| path.starts_with(folder.as_str()))
        })
    }

    /// The same without all that could not be read, as [`load`](crate::workspace::load) goes on without it; but not without
    /// settings and hooks, which may forbid something. `AGENTS.md` stays as one that could not be read, so that its loss is
    /// known to whoever runs the agents.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_readable(files: &Files) -> Result<Self, BundleError> {
        Self::without(files, |path| !path.starts_with(".openharness/hooks") && path != ".openharness/settings.yaml")
    }

    /// The bundle without what could not be read and is spared.
    fn without(files: &Files, is_spared: impl Fn(&str) -> bool) -> Result<Self, BundleError> {
        let mut kept = Files::new();
        let counts = counted(files);
        for (path, content) in files.iter().filter(|(path, content)| counts(path) && !content.is_left_out()) {
            match refused(path, content) {
                Some(_) if path != INSTRUCTIONS && is_spared(path) => {}
                Some(refused) if !is_spared(path) => return Err(refused),
                Some(_) | None => {
                    kept.insert(path.clone(), content.clone());
                }
            }
        }
        Self::checked(kept)
    }

    /// A bundle of `files`, within the limits.
    fn checked(files: Files) -> Result<Self, BundleError> {
        if files.is_empty() {
            return Err(BundleError::Empty);
        }
        if files.len() > MOST_FILES {
            return Err(BundleError::TooMany(files.len()));
        }
        let whole = files.values().map(FileContent::size).sum();
        if whole > CONTENT_LIMIT {
            return Err(BundleError::TooLarge(whole));
        }
        Ok(Self { digest: digest(&files), files })
    }

    /// Its name: SHA-256 of its files, in hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Its files, as [`load`](crate::workspace::load) takes them.
    pub fn files(&self) -> Files {
        self.files.clone()
    }

    /// Files that differ from `before`, in the order of the paths.
    pub fn changes_from(&self, before: Option<&Self>) -> Vec<FileChange> {
        let none = Files::new();
        let old = before.map_or(&none, |bundle| &bundle.files);
        let mut changes: Vec<FileChange> = Vec::new();
        for (path, content) in &self.files {
            match old.get(path) {
                None => changes.push(FileChange::Added(path.clone())),
                Some(known) if known != content => changes.push(FileChange::Changed(path.clone())),
                Some(_) => {}
            }
        }
        let removed = old.keys().filter(|path| !self.files.contains_key(*path));
        changes.extend(removed.cloned().map(FileChange::Removed));
        changes.sort_by(|one, other| one.path().cmp(other.path()));
        changes
    }
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bundle").field("digest", &self.digest).field("files", &self.files.len()).finish()
    }
}

/// A difference between two bundles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// A file that was not there.
    Added(String),
    /// A file with another content.
    Changed(String),
    /// A file that is not there any more.
    Removed(String),
}

impl FileChange {
    /// Path of the file.
    pub fn path(&self) -> &str {
        match self {
            Self::Added(path) | Self::Changed(path) | Self::Removed(path) => path,
        }
    }
}

impl std::fmt::Display for FileChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Added(path) => write!(f, "added {path}"),
            Self::Changed(path) => write!(f, "changed {path}"),
            Self::Removed(path) => write!(f, "removed {path}"),
        }
    }
}

/// Why `content` was not read, where it was not.
fn refused(path: &str, content: &FileContent) -> Option<BundleError> {
    let refused = |reason: String| Some(BundleError::File { path: path.to_owned(), reason });
    match content {
        FileContent::Bytes(_) => None,
        FileContent::TooLarge(size) => {
            refused(format!("the file has {size} bytes, and may have {FILE_LIMIT}: shorten it"))
        }
        FileContent::Unreadable(reason) | FileContent::LeftOut(reason) => {
            refused(format!("the file could not be read: {reason}"))
        }
    }
}

fn size_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[async_trait]
impl WorkspaceSource for Bundle {
    async fn list(&self, limits: &ListLimits) -> Result<Vec<WorkspaceFile>, WorkspaceError> {
        let is_under = |path: &str, folder: &String| {
            path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_wanted = |path: &str| {
            let asked = limits.under.is_empty() || limits.under.iter().any(|folder| is_under(path, folder));
            let spared = limits.except.iter().any(|folder| is_under(path, folder));
            asked && !spared && path.matches('/').count() <= limits.depth
        };
        let found = self.files.iter().filter(|(path, _)| is_wanted(path));
        let found: Vec<_> = found
            .map(|(path, content)| {
                let size = match content {
                    FileContent::TooLarge(size) => *size,
                    FileContent::Bytes(_) | FileContent::Unreadable(_) | FileContent::LeftOut(_) => content.size(),
                };
                WorkspaceFile { path: path.clone(), size, version: None }
            })
            .collect();
        match found.len() > limits.files {
            true => {
                let limit = u64::try_from(limits.files).unwrap_or(u64::MAX);
                Err(WorkspaceError::TooLarge { what: "the number of files".to_owned(), limit })
            }
            false => Ok(found),
        }
    }

    async fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, WorkspaceError> {
        match self.files.get(path) {
            None => Err(WorkspaceError::NotFound(path.to_owned())),
            Some(FileContent::Bytes(bytes)) if size_of(bytes) <= limit => Ok(bytes.clone()),
            Some(FileContent::Bytes(_) | FileContent::TooLarge(_)) => {
                Err(WorkspaceError::TooLarge { what: path.to_owned(), limit })
            }
            Some(FileContent::Unreadable(reason) | FileContent::LeftOut(reason)) => {
                Err(WorkspaceError::Denied(reason.clone()))
            }
        }
    }
}
