use std::fmt;

use async_trait::async_trait;

/// Folders in which version controls, and archives of other systems, keep what is theirs: remotes with tokens, among others. No
/// source has to look into them.
pub const KEPT_APART: [&str; 4] = [".git", ".hg", ".svn", "__MACOSX"];

/// Files of one bundle of definitions: a folder, or what was published of it.
///
/// Paths are relative, with `/` between their parts, in UTF-8, without `.` and `..`; a source resolves no link that
/// leads out of the bundle. What it returns is bounded by the limits of the request.
#[async_trait]
pub trait WorkspaceSource: fmt::Debug + Send + Sync {
    /// The files with paths that [`ListLimits`] lets through, in the order of their paths. A bundle without files is
    /// empty, not an error.
    ///
    /// # Errors
    /// [`WorkspaceError`], also when there are more files than the limit.
    async fn list(&self, limits: &ListLimits) -> Result<Vec<WorkspaceFile>, WorkspaceError>;

    /// Content of the file at `path`, of at most `limit` bytes.
    ///
    /// # Errors
    /// [`WorkspaceError`]; a larger file is [`WorkspaceError::TooLarge`] and is not read whole.
    async fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, WorkspaceError>;
}

/// Bounds of a list of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListLimits {
    /// Only files with a path that is one of these or stands in a folder of that name; all files when empty.
    pub under: Vec<String>,
    /// But none that stands in a folder of one of these names.
    pub except: Vec<String>,
    /// The most files that are returned.
    pub files: usize,
    /// The most folders between the root and a file.
    pub depth: usize,
}

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceFile {
    /// Its path.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Tells contents apart: a file that was read under this version need not be read again. `None` where that is not known.
    pub version: Option<String>,
}

/// Error of reading a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceError {
    /// There is no such bundle or file.
    #[error("{0} does not exist")]
    NotFound(String),
    /// A file, or the number of files, is above the limit.
    #[error("{what} is larger than the limit of {limit}")]
    TooLarge {
        /// Thing that is too large.
        what: String,
        /// The limit, in bytes or files.
        limit: u64,
    },
    /// The path leads out of the bundle, or is no path.
    #[error("{0:?} is no path in the workspace, or a link that leads out of it or nowhere")]
    InvalidPath(String),
    /// A later attempt may succeed.
    #[error("the workspace cannot be read now: {0}")]
    Transient(String),
    /// It may not be read, or is no file or folder as it should be: an operator has to mend that first.
    #[error("{0}")]
    Denied(String),
}
