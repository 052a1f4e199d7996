use std::collections::BTreeMap;

use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceSource};

use super::load::{FILE_LIMIT, FileContent, Files};

/// Files of one workspace that are looked at.
pub(crate) const MOST_FILES: usize = 2_000;

/// Reads the files of definitions from `source`: a file that is too large or cannot be read is noted as such.
///
/// # Errors
/// [`WorkspaceError`] when the bundle as a whole cannot be read.
pub async fn read(source: &dyn WorkspaceSource) -> Result<Files, WorkspaceError> {
    let under = vec!["AGENTS.md".to_owned(), "agents.md".to_owned(), "Agents.md".to_owned(), ".openharness".to_owned()];
    let listed = source.list(&ListLimits { under, files: MOST_FILES, depth: 4 }).await?;
    let mut files = BTreeMap::new();
    for file in listed {
        let content = match source.read(&file.path, FILE_LIMIT).await {
            Ok(bytes) => FileContent::Bytes(bytes),
            Err(WorkspaceError::TooLarge { .. }) => FileContent::TooLarge(file.size),
            Err(WorkspaceError::Transient(reason)) => return Err(WorkspaceError::Transient(reason)),
            Err(error @ (WorkspaceError::NotFound(_) | WorkspaceError::InvalidPath(_) | WorkspaceError::Denied(_))) => {
                FileContent::Unreadable(error.to_string())
            }
        };
        files.insert(file.path, content);
    }
    Ok(files)
}
