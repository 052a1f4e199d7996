use std::fmt;

use serde::{Deserialize, Serialize};

/// Names the content of a file: equal for equal content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileVersion(pub String);

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFile {
    /// Its content.
    pub bytes: Vec<u8>,
    /// The version of the content.
    pub version: FileVersion,
}

/// Assumption of a write about the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileCondition {
    /// There is none.
    Absent,
    /// It has this content.
    Is(FileVersion),
}

/// A file to be written.
#[derive(Clone, PartialEq, Eq)]
pub struct FileWrite {
    /// Its path.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Assumption about the file.
    pub condition: FileCondition,
    /// Folders of definitions besides `.openharness`, in which nothing is written.
    pub definitions: Vec<String>,
}

impl fmt::Debug for FileWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWrite")
            .field("path", &self.path)
            .field("bytes", &self.bytes.len())
            .field("condition", &self.condition)
            .finish()
    }
}

/// A search for files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobRequest {
    /// The pattern: `*` within a part of a path, `**` across parts, `?`, `{a,b}`, `[ab]`.
    pub pattern: String,
    /// The folder to which the pattern is relative; empty for the root.
    pub folder: String,
    /// The most files that are returned.
    pub most: usize,
}

/// Files that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFiles {
    /// Their paths from the root.
    pub paths: Vec<String>,
    /// True if there may be more.
    pub cut: bool,
}

/// A search for lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepRequest {
    /// A regular expression, matched anywhere in a line.
    pub expression: String,
    /// True if upper and lower case are the same.
    pub ignore_case: bool,
    /// A file or a folder; empty for the root.
    pub path: String,
    /// Only files whose name, or path from `path` on, matches this pattern.
    pub files: Option<String>,
    /// The most lines that are returned.
    pub most: usize,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// The path of its file, from the root.
    pub path: String,
    /// Its number, from 1.
    pub line: u64,
    /// Its text; of a long one the beginning, or what stands around that which was looked for.
    pub text: String,
}

/// Lines that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matches {
    /// The lines.
    pub lines: Vec<Match>,
    /// True if there may be more.
    pub cut: bool,
    /// Files that were left out because they are too large to be searched.
    pub skipped: Vec<String>,
}
