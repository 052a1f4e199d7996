//! The stored text files of a workspace, in which tools work: no folder of any machine, and no command.
//!
//! Paths have the rules of a folder: none leads out, what runs keep for themselves is not seen, and definitions of agents
//! are not changed; `.openharness/memory` may be. A write is refused where somebody else wrote the file meanwhile.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::execution::{
    CommandOutcome, ExecutionBackend, ExecutionError, FileCondition, FileVersion, FileWrite, FoundFiles, GlobRequest,
    GrepRequest, Matches, ReadFile, ShellCommand,
};
use dormouse_ports::{TextFile, TextFiles, TextFilesError};

use crate::matching::{Search, below, matcher, version_of};
use crate::paths::{confined, is_own, may_change, within};

/// Files that one search looks at.
const MOST_LOOKED_AT: usize = 20_000;

/// The stored text files of a workspace.
#[derive(Clone, Debug)]
pub struct StoredBackend {
    files: Arc<dyn TextFiles>,
}

impl StoredBackend {
    /// Works in `files`.
    pub fn new(files: Arc<dyn TextFiles>) -> Self {
        Self { files }
    }

    /// The file at `path`, which is inside.
    async fn file(&self, path: &str) -> Result<Option<TextFile>, ExecutionError> {
        self.files.file(path).await.map_err(|error| failed(error, path))
    }

    async fn is_folder(&self, path: &str) -> Result<bool, ExecutionError> {
        if path.is_empty() {
            return Ok(true);
        }
        let inside = self.files.behind(&format!("{path}/"), None).await.map_err(|error| failed(error, path))?;
        Ok(!inside.is_empty())
    }

    /// Tells `visit` of every file in `folder`, in the order of their paths, until it returns false. True if there may be
    /// more.
    async fn walk(
        &self,
        folder: &str,
        visit: &mut (dyn FnMut(&TextFile) -> bool + Send),
    ) -> Result<bool, ExecutionError> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let (mut after, mut looked_at): (Option<String>, usize) = (None, 0);
        loop {
            let page = self.files.behind(&prefix, after.as_deref()).await.map_err(|error| failed(error, folder))?;
            let Some(last) = page.last() else { break };
            after = Some(last.path.clone());
            looked_at += page.len();
            let is_seen = |file: &&TextFile| !is_own(&file.path) && !file.path.split('/').any(|part| part == ".git");
            if !page.iter().filter(is_seen).all(&mut *visit) || looked_at >= MOST_LOOKED_AT {
                return Ok(true);
            }
        }
        match looked_at == 0 && !folder.is_empty() {
            true => Err(ExecutionError::NotFound { path: folder.to_owned() }),
            false => Ok(false),
        }
    }
}

/// `path` as one that is relative to the root; empty for the root itself.
fn inside(path: &str) -> Result<String, ExecutionError> {
    if path.contains('\0') {
        return Err(confined(path, "it is no path"));
    }
    if path.starts_with('/') {
        return Err(confined(path, "it is outside of the workspace; write the path from its root"));
    }
    within(path, path)
}

fn failed(error: TextFilesError, path: &str) -> ExecutionError {
    match error {
        TextFilesError::Unfit(reason) => ExecutionError::InvalidRequest { reason: format!("`{path}`: {reason}") },
        TextFilesError::Changed => ExecutionError::Changed { path: path.to_owned() },
        TextFilesError::Unavailable { reason, uncertain } => ExecutionError::Unavailable { reason, uncertain },
    }
}

fn folder_at(path: &str) -> ExecutionError {
    ExecutionError::NoFile { path: path.to_owned(), kind: "a folder".to_owned() }
}

#[async_trait]
impl ExecutionBackend for StoredBackend {
    fn runs_commands(&self) -> bool {
        false
    }

    async fn read(&self, path: &str, limit: u64) -> Result<ReadFile, ExecutionError> {
        let asked = inside(path)?;
        let file = if asked.is_empty() { None } else { self.file(&asked).await? };
        let Some(file) = file else {
            return match self.is_folder(&asked).await? {
                true => Err(folder_at(path)),
                false => Err(ExecutionError::NotFound { path: path.to_owned() }),
            };
        };
        let bytes = file.text.into_bytes();
        match u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
            size if size > limit => Err(ExecutionError::TooLarge { path: path.to_owned(), size, limit }),
            _ => Ok(ReadFile { version: version_of(&bytes), bytes }),
        }
    }

    async fn write(&self, write: &FileWrite) -> Result<FileVersion, ExecutionError> {
        let asked = inside(&write.path)?;
        if asked.is_empty() {
            return Err(folder_at(&write.path));
        }
        may_change(&asked, &write.definitions)?;
        let Ok(text) = std::str::from_utf8(&write.bytes) else {
            let reason = format!("`{}` would be no text, and the files of this workspace are texts", write.path);
            return Err(ExecutionError::InvalidRequest { reason });
        };
        let found = self.file(&asked).await?;
        if found.is_none() && self.is_folder(&asked).await? {
            return Err(folder_at(&write.path));
        }
        let holds = match (&write.condition, &found) {
            (FileCondition::Absent, found) => found.is_none(),
            (FileCondition::Is(version), found) => {
                found.as_ref().is_some_and(|found| version_of(found.text.as_bytes()) == *version)
            }
        };
        if !holds {
            return Err(ExecutionError::Changed { path: write.path.clone() });
        }
        let expect = found.map_or(0, |found| found.version);
        self.files.write(&asked, text, expect).await.map_err(|error| failed(error, &write.path))?;
        Ok(version_of(&write.bytes))
    }

    async fn glob(&self, request: &GlobRequest) -> Result<FoundFiles, ExecutionError> {
        let folder = inside(&request.folder)?;
        let pattern = matcher(inside(&request.pattern).as_deref().unwrap_or(&request.pattern))?;
        let mut found = FoundFiles::default();
        let most = request.most;
        let paths = &mut found.paths;
        let cut = self
            .walk(&folder, &mut |file| {
                if pattern.is_match(below(&file.path, &folder)) {
                    if paths.len() == most {
                        return false;
                    }
                    paths.push(file.path.clone());
                }
                true
            })
            .await?;
        found.cut = cut;
        Ok(found)
    }

    async fn grep(&self, request: &GrepRequest) -> Result<Matches, ExecutionError> {
        let path = inside(&request.path)?;
        let search = Search::of(request)?;
        let mut found = Matches::default();
        let file = if path.is_empty() { None } else { self.file(&path).await? };
        if let Some(file) = file {
            found.cut = !search.lines(&file.path, file.text.as_bytes(), &mut found);
            return Ok(found);
        }
        let lines = &mut found;
        let cut = self
            .walk(&path, &mut |file| {
                !search.looks_at(&file.path, &path) || search.lines(&file.path, file.text.as_bytes(), lines)
            })
            .await?;
        found.cut = cut;
        Ok(found)
    }

    /// Never: no command runs here.
    async fn run(&self, _: &ShellCommand) -> Result<CommandOutcome, ExecutionError> {
        let reason = "no command runs in this workspace: its files are stored, and there is no machine with them";
        Err(ExecutionError::Denied { reason: reason.to_owned() })
    }
}
