use std::collections::BTreeMap;

use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceFile, WorkspaceSource};

use super::load::{FILE_LIMIT, FileContent, Files, skill_dirs};

/// Files of one workspace that are looked at.
pub(crate) const MOST_FILES: usize = 2_000;

/// The folder of all definitions but one.
const ALL: &str = ".openharness";

/// Files that are looked at before all others: what they say must not be missed because of those.
const FIRST: [&str; 5] =
    ["AGENTS.md", "agents.md", "Agents.md", ".openharness/settings.yaml", ".openharness/prompts.yaml"];

/// The folders of definitions, those first that may forbid something. A folder with more files than there may still be is
/// left out, and so noted: it takes no other along.
pub(super) const FOLDERS: [&str; 9] =
    ["hooks", "agents", "models", "platform", "tools", "actions", "prompts", "memory", "skills"];

/// Folders that runs keep for themselves: what is in them grows and changes all the time.
const OWN: [&str; 2] = ["data", "state"];

/// What is noted of a folder that is left out.
const TOO_MANY: &str = "with the files of this folder there are more than 2000, and none of them is read";

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
        let mut files = BTreeMap::new();
        let first =
            ListLimits { under: FIRST.map(str::to_owned).to_vec(), except: Vec::new(), files: FIRST.len(), depth: 1 };
        self.add(source, first, &mut before, &mut files).await?;
        let folders = FOLDERS.iter().map(|folder| (format!("{ALL}/{folder}"), 4, Vec::new()));
        // The folder of a skill, and one in it.
        let dirs = skill_dirs(&files).into_iter().map(|folder| {
            let depth = folder.split('/').count() + 2;
            (folder, depth, Vec::new())
        });
        let known = FOLDERS.iter().chain(&OWN).map(|folder| format!("{ALL}/{folder}"));
        let others = (ALL.to_owned(), 4, known.chain(FIRST.map(str::to_owned)).collect());
        for (folder, depth, except) in folders.chain(dirs).chain([others]).collect::<Vec<_>>() {
            let room = MOST_FILES.saturating_sub(files.len());
            let limits = ListLimits { under: vec![folder.clone()], except, files: room, depth };
            match self.add(source, limits, &mut before, &mut files).await {
                Err(WorkspaceError::TooLarge { .. }) => {
                    files.insert(folder, FileContent::Unreadable(TOO_MANY.to_owned()));
                }
                added => added?,
            }
        }
        Ok(files)
    }

    /// Adds all of the files that `limits` let through, or none of them.
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
