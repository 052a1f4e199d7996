use std::fmt;

use async_trait::async_trait;

/// Text files of one workspace that are stored by their paths, without folders of their own: a folder is there as long as a
/// file is in it.
#[async_trait]
pub trait TextFiles: fmt::Debug + Send + Sync {
    /// The file at `path`; `None` where there is none.
    ///
    /// # Errors
    /// [`TextFilesError`].
    async fn file(&self, path: &str) -> Result<Option<TextFile>, TextFilesError>;

    /// Some of the files with paths that begin with `prefix`, in the order of their paths, behind the path `after`; none
    /// only where there are no more.
    ///
    /// # Errors
    /// [`TextFilesError`].
    async fn behind(&self, prefix: &str, after: Option<&str>) -> Result<Vec<TextFile>, TextFilesError>;

    /// Writes `text` to `path`, where the file there has the version `expect` still; 0 stands for none.
    ///
    /// # Errors
    /// [`TextFilesError`]; nothing is written where the version is another one.
    async fn write(&self, path: &str, text: &str, expect: u64) -> Result<(), TextFilesError>;
}

/// A text file as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// Its path.
    pub path: String,
    /// Its content.
    pub text: String,
    /// Number of its writes.
    pub version: u64,
}

/// Error of reading or writing text files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextFilesError {
    /// The path is none, the text is too long, or a part of the path is a file.
    #[error("{0}")]
    Unfit(String),
    /// Another writer was faster.
    #[error("the file was written by somebody else")]
    Changed,
    /// A later attempt may succeed.
    #[error("the files of the workspace cannot be had now: {reason}")]
    Unavailable {
        /// Reason.
        reason: String,
        /// True if what was to be written may be written.
        uncertain: bool,
    },
}
