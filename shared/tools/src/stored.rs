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

use crate::matching::{Abandoned, Search, below, matcher, version_of};
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

    /// The files in `folder`, page by page.
    fn pages<'f>(&'f self, folder: &'f str) -> Pages<'f> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        Pages { files: &*self.files, folder, prefix, after: None, looked_at: 0, cut: false }
    }
}

/// Pages of the files in a folder, in the order of their paths.
struct Pages<'f> {
    files: &'f dyn TextFiles,
    folder: &'f str,
    prefix: String,
    after: Option<String>,
    looked_at: usize,
    /// True if there may be more files than were looked at.
    cut: bool,
}

impl Pages<'_> {
    /// The files of the next page that tools see; `None` where there is no more.
    async fn next(&mut self) -> Result<Option<Vec<TextFile>>, ExecutionError> {
        if self.looked_at >= MOST_LOOKED_AT {
            self.cut = true;
            return Ok(None);
        }
        let page = self.files.behind(&self.prefix, self.after.as_deref()).await;
        let page = page.map_err(|error| failed(error, self.folder))?;
        let Some(last) = page.last() else {
            return match self.looked_at == 0 && !self.folder.is_empty() {
                true => Err(ExecutionError::NotFound { path: self.folder.to_owned() }),
                false => Ok(None),
            };
        };
        self.after = Some(last.path.clone());
        self.looked_at += page.len();
        let is_seen = |file: &TextFile| !is_own(&file.path) && !file.path.split('/').any(|part| part == ".git");
        Ok(Some(page.into_iter().filter(is_seen).collect()))
    }
}

/// Adds the matching lines of `files`, on a thread that may be busy with it; false when there are as many as were asked
/// for. It ends soon after this future is dropped.
async fn looked_through(
    search: &Arc<Search>,
    files: Vec<TextFile>,
    found: &mut Matches,
) -> Result<bool, ExecutionError> {
    let abandoned = Abandoned::default();
    let _guard = abandoned.when_dropped();
    let (search, mut so_far) = (search.clone(), std::mem::take(found));
    let looked = tokio::task::spawn_blocking(move || {
        let goes_on = files.iter().all(|file| search.lines(&file.path, file.text.as_bytes(), &abandoned, &mut so_far));
        (so_far, goes_on)
    });
    let (so_far, goes_on) = looked.await.map_err(|error| ExecutionError::Unavailable {
        reason: format!("the search was broken off: {error}"),
        uncertain: false,
    })?;
    *found = so_far;
    Ok(goes_on)
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
        let mut pages = self.pages(&folder);
        while let Some(page) = pages.next().await? {
            let matching = page.into_iter().filter(|file| pattern.is_match(below(&file.path, &folder)));
            found.paths.extend(matching.map(|file| file.path));
            if found.paths.len() > request.most {
                found.paths.truncate(request.most);
                found.cut = true;
                return Ok(found);
            }
        }
        found.cut = pages.cut;
        Ok(found)
    }

    async fn grep(&self, request: &GrepRequest) -> Result<Matches, ExecutionError> {
        let path = inside(&request.path)?;
        let search = Arc::new(Search::of(request)?);
        let mut found = Matches::default();
        let file = if path.is_empty() { None } else { self.file(&path).await? };
        if let Some(file) = file {
            found.cut = !looked_through(&search, vec![file], &mut found).await?;
            return Ok(found);
        }
        let mut pages = self.pages(&path);
        while let Some(mut page) = pages.next().await? {
            page.retain(|file| search.looks_at(&file.path, &path));
            if !looked_through(&search, page, &mut found).await? {
                found.cut = true;
                return Ok(found);
            }
        }
        found.cut = pages.cut;
        Ok(found)
    }

    /// Never: no command runs here.
    async fn run(&self, _: &ShellCommand) -> Result<CommandOutcome, ExecutionError> {
        let reason = "no command runs in this workspace: its files are stored, and there is no machine with them";
        Err(ExecutionError::Denied { reason: reason.to_owned() })
    }
}
