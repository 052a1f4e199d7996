use std::collections::BTreeMap;

use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceFile, WorkspaceSource};

use super::load::{FILE_LIMIT, FileContent, Files, skill_dirs};

/// Files of one workspace that are looked at.
pub(crate) const MOST_FILES: usize = 2_000;

/// Folders that runs keep for themselves: what is in them grows and changes all the time.
const OWN: [&str; 2] = [".openharness/data", ".openharness/state"];

/// Reads the files of definitions from `source`: a file that is too large or cannot be read is noted as such.
///
/// # Errors
/// [`WorkspaceError`] when the bundle as a whole cannot be read.
pub async fn read(source: &dyn WorkspaceSource) -> Result<Files, WorkspaceError> {
    KnownFiles::default().read(source).await
}

/// The files of a workspace as they were read last. Only those that have changed since are read again.
#[derive(Clone, Debug, Default)]
pub struct KnownFiles {
    /// Contents by paths, with the versions under which they were read.
    known: BTreeMap<String, (String, FileContent)>,
}

impl KnownFiles {
    /// Reads the files of definitions from `source`, always the same one, as [`read`] does.
    ///
    /// # Errors
    /// [`WorkspaceError`] when the bundle as a whole cannot be read.
    pub async fn read(&mut self, source: &dyn WorkspaceSource) -> Result<Files, WorkspaceError> {
        let mut before = std::mem::take(&mut self.known);
        let under =
            vec!["AGENTS.md".to_owned(), "agents.md".to_owned(), "Agents.md".to_owned(), ".openharness".to_owned()];
        let mut files = BTreeMap::new();
        let except = OWN.map(str::to_owned).to_vec();
        let limits = ListLimits { under, except, files: MOST_FILES, depth: 4 };
        self.add(source, limits, &mut before, &mut files).await?;
        for folder in skill_dirs(&files) {
            let room = MOST_FILES.saturating_sub(files.len());
            // The folder of a skill, and one in it.
            let depth = folder.split('/').count() + 2;
            let limits = ListLimits { under: vec![folder], except: Vec::new(), files: room, depth };
            self.add(source, limits, &mut before, &mut files).await?;
        }
        Ok(files)
    }

    async fn add(
        &mut self,
        source: &dyn WorkspaceSource,
        limits: ListLimits,
        before: &mut BTreeMap<String, (String, FileContent)>,
        files: &mut Files,
    ) -> Result<(), WorkspaceError> {
        for file in source.list(&limits).await? {
            let seen = before.remove(&file.path).filter(|(version, _)| Some(version) == file.version.as_ref());
            let content = match seen {
                Some((_, content)) => content,
                None => content_of(source, &file).await?,
            };
            if let Some(version) = file.version {
                self.known.insert(file.path.clone(), (version, content.clone()));
            }
            files.insert(file.path, content);
        }
        Ok(())
    }
}

async fn content_of(source: &dyn WorkspaceSource, file: &WorkspaceFile) -> Result<FileContent, WorkspaceError> {
    match source.read(&file.path, FILE_LIMIT).await {
        Ok(bytes) => Ok(FileContent::Bytes(bytes)),
        Err(WorkspaceError::TooLarge { .. }) => Ok(FileContent::TooLarge(file.size)),
        Err(error @ WorkspaceError::Transient(_)) => Err(error),
        Err(error @ (WorkspaceError::NotFound(_) | WorkspaceError::InvalidPath(_) | WorkspaceError::Denied(_))) => {
            Ok(FileContent::Unreadable(error.to_string()))
        }
    }
}
