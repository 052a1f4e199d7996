//! The files of a workspace for those who work in it: the same documents as clients read and write, and the definitions of
//! agents that were made of them.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{
    Breadth, Clock, Commit, CommitError, Commits, Document, DocumentKey, DocumentWrite, IdSource, Journal, ListRequest,
    Map, Object, ObjectCondition, ObjectError, ObjectVersion, Objects, Records, StoreError, TextFile, TextFiles,
    TextFilesError,
};
use dormouse_protocol::id::WorkspaceId;
use dormouse_protocol::request::MAX_FILE_BYTES;
use dormouse_protocol::resource::Workspace;
use serde_json::{Value, json};

use crate::deletion::place_write;
use crate::documents::Stored;
use crate::files::{FilePath, FilesOfWorkspace, content_of, path_of};
use crate::ids;

/// The kind of the documents that hold definitions.
const DEFINITIONS: &str = "definitions";
/// Separates the parts that a name of such a document is made of.
const DOMAIN: &[u8] = b"dormouse definitions 1\0";
/// Files that are read together.
const TOGETHER: usize = 50;
/// Who writes the files that tools write.
const AUTHOR: &str = "agent";

/// The files of all workspaces of a store.
#[derive(Clone)]
pub struct WorkspaceFiles {
    /// Reads the documents of the store.
    pub records: Arc<dyn Records>,
    /// Writes them.
    pub commits: Arc<dyn Commits>,
    /// Names commits.
    pub ids: Arc<dyn IdSource>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// The files of one workspace.
#[derive(Clone)]
pub struct FilesOf {
    all: WorkspaceFiles,
    tenant: String,
    workspace: WorkspaceId,
}

impl fmt::Debug for WorkspaceFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkspaceFiles")
    }
}

impl fmt::Debug for FilesOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesOf").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

impl WorkspaceFiles {
    /// Those of `workspace`, which is one of `tenant`.
    pub fn of(&self, tenant: &str, workspace: &WorkspaceId) -> FilesOf {
        FilesOf { all: self.clone(), tenant: tenant.to_owned(), workspace: workspace.clone() }
    }

    /// Those of `workspace`, whoever has it; `None` where there is none.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn find(&self, workspace: &WorkspaceId) -> Result<Option<FilesOf>, StoreError> {
        let found = Stored::<Workspace>::load(&*self.records, workspace, self.clock.now()).await?;
        Ok(found.map(|found| self.of(&found.kept.tenant, workspace)))
    }

    async fn commit(&self, writes: Vec<DocumentWrite>) -> Result<(), CommitError> {
        let journal = Journal::new(writes, Vec::new());
        let commit = Commit { journal, ..Commit::new(self.ids.fresh(), self.clock.now()) };
        self.commits.commit(&commit).await
    }

    async fn document(&self, key: &DocumentKey) -> Result<Option<Document>, StoreError> {
        self.records.document(key, self.clock.now()).await
    }
}

impl FilesOf {
    /// The workspace.
    pub fn workspace(&self) -> &WorkspaceId {
        &self.workspace
    }

    fn files(&self) -> FilesOfWorkspace<'_> {
        FilesOfWorkspace { tenant: &self.tenant, workspace: &self.workspace }
    }

    /// The document of the definitions that are kept under `name`.
    fn kept_at(&self, name: &str) -> DocumentKey {
        ids::digested(DEFINITIONS, DOMAIN, &[self.tenant.as_str(), self.workspace.as_str(), name])
    }
}

fn away(error: &StoreError) -> TextFilesError {
    TextFilesError::Unavailable { reason: error.to_string(), uncertain: false }
}

fn text_of(document: &Document) -> TextFile {
    TextFile { path: path_of(document).to_owned(), text: content_of(document).to_owned(), version: document.version }
}

#[async_trait]
impl TextFiles for FilesOf {
    async fn file(&self, path: &str) -> Result<Option<TextFile>, TextFilesError> {
        // What can be no path names no file.
        let Ok(path) = FilePath::read(path) else { return Ok(None) };
        let found = self.all.document(&self.files().key(&path)).await.map_err(|error| away(&error))?;
        Ok(found.as_ref().map(text_of))
    }

    async fn behind(&self, prefix: &str, after: Option<&str>) -> Result<Vec<TextFile>, TextFilesError> {
        let from = after.map_or_else(|| prefix.to_owned(), str::to_owned);
        let mut after = Some(from).filter(|from| !from.is_empty());
        loop {
            let request = ListRequest {
                list: self.files().list(),
                breadth: Breadth::Narrow,
                after,
                limit: TOGETHER,
                newest_first: false,
                now: self.all.clock.now(),
            };
            let page = self.all.records.documents(&request).await.map_err(|error| away(&error))?;
            let is_in = |file: &&Document| path_of(file).starts_with(prefix);
            let found: Vec<TextFile> = page.items.iter().take_while(is_in).map(text_of).collect();
            if !found.is_empty() || !page.items.is_empty() || page.next.is_none() {
                return Ok(found);
            }
            after = page.next;
        }
    }

    async fn write(&self, path: &str, text: &str, expect: u64) -> Result<(), TextFilesError> {
        if text.len() > MAX_FILE_BYTES {
            let message = format!("the text has {} bytes, and may have {MAX_FILE_BYTES}", text.len());
            return Err(TextFilesError::Unfit(message));
        }
        let unfit = |refused: &dyn fmt::Display| TextFilesError::Unfit(refused.to_string());
        let path = FilePath::read(path).map_err(|error| unfit(&error.message()))?;
        let files = self.files();
        let write = files
            .write((AUTHOR, self.all.clock.now()), &path, (text.to_owned(), Map::new()))
            .map_err(|error| unfit(&error.message()))?;
        let mut writes = vec![DocumentWrite { expect, ..write }, place_write(&self.workspace)];
        if expect == 0 {
            for folder in path.folders() {
                let key = files.key(&folder);
                if self.all.document(&key).await.map_err(|error| away(&error))?.is_some() {
                    return Err(TextFilesError::Unfit("a part of the path is a file".to_owned()));
                }
                // Nor may it become one at the same time.
                writes.push(DocumentWrite::remove(key, 0));
            }
        }
        match self.all.commit(writes).await {
            Ok(()) => Ok(()),
            Err(CommitError::Journal(_)) => Err(TextFilesError::Changed),
            Err(error) => {
                let uncertain = matches!(error, CommitError::Unknown(_));
                Err(TextFilesError::Unavailable { reason: error.to_string(), uncertain })
            }
        }
    }
}

/// Definitions of agents that were made of the files, as they were when runs began with them.
#[async_trait]
impl Objects for FilesOf {
    async fn get(&self, key: &str, limit: u64) -> Result<Option<Object>, ObjectError> {
        let found = self.all.document(&self.kept_at(key)).await;
        let found = found.map_err(|error| ObjectError::Transient(error.to_string()))?;
        let Some(document) = found else { return Ok(None) };
        let bytes = document.body.get("text").and_then(Value::as_str).unwrap_or_default().as_bytes().to_vec();
        match u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
            true => Err(ObjectError::TooLarge { key: key.to_owned(), limit }),
            false => Ok(Some(Object { bytes, version: ObjectVersion::new(document.version.to_string()) })),
        }
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: ObjectCondition) -> Result<(), ObjectError> {
        let text = String::from_utf8(bytes).map_err(|error| ObjectError::Rejected(error.to_string()))?;
        let expect = match &condition {
            ObjectCondition::Absent => 0,
            ObjectCondition::Unchanged(version) => version
                .as_str()
                .parse()
                .map_err(|_| ObjectError::Rejected(format!("{} is no version", version.as_str())))?,
        };
        let body = json!({ "tenant": self.tenant, "workspace": self.workspace, "key": key, "text": text });
        let Value::Object(body) = body else {
            return Err(ObjectError::Rejected("an object is an object".to_owned()));
        };
        let write =
            DocumentWrite { key: self.kept_at(key), expect, body: Some(body), listed: Vec::new(), expires_at: None };
        match self.all.commit(vec![write, place_write(&self.workspace)]).await {
            Ok(()) => Ok(()),
            Err(CommitError::Journal(_)) => Err(ObjectError::Conflict(key.to_owned())),
            Err(error) => Err(ObjectError::Transient(error.to_string())),
        }
    }
}
