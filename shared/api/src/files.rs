//! Text files of workspaces. Each is a document, called by a hash of its workspace and path; a narrow list of each
//! workspace has them in the order of their paths. A folder is there as long as a file is in it.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::{Breadth, Document, DocumentKey, DocumentWrite, Journal, ListRequest, Listed, Map};
use dormouse_protocol::envelope::Object;
use dormouse_protocol::id::WorkspaceId;
use dormouse_protocol::resource::{
    FileEncoding, FileEntryKind, Workspace, WorkspaceFile, WorkspaceFileEntry, WorkspaceFileListing,
    WriteWorkspaceFileRequest,
};
use dormouse_protocol::{ErrorCode, ProtocolError};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{Api, Change, NO_CONTENT, found};
use crate::deletion::place_write;
use crate::reads::Reads;
use crate::refusal::{agents_away, conflict, internal, store};
use crate::{Call, CallAnswer, ids};

/// The kind of the documents.
pub(crate) const KIND: &str = "file";

/// The longest path, in bytes, and the most parts of one.
const LONGEST_PATH: usize = 512;
const DEEPEST: usize = 16;

/// The most entries of a folder that are listed; the contract has no pages for them.
const MOST_ENTRIES: usize = 1_000;

/// The most files that a workspace begins with: they are written in one commit.
const MOST_FIRST: usize = 32;

/// Separates the parts that a name of a document is made of.
const DOMAIN: &[u8] = b"dormouse workspace file 1\0";

/// A path inside of a workspace: parts with `/` between them, none of which leads elsewhere. Empty for the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePath(pub(crate) String);

impl FilePath {
    /// # Errors
    /// `invalid_request` for a path that is absolute, leads out of the workspace, or has parts without a name.
    pub(crate) fn read(text: &str) -> Result<Self, ProtocolError> {
        let refuse = |message: &str| Err(ProtocolError::invalid("path", message));
        let text = text.strip_suffix('/').filter(|folder| !folder.is_empty()).unwrap_or(text);
        let text = if text == "." { "" } else { text };
        if text.len() > LONGEST_PATH || text.split('/').count() > DEEPEST {
            return refuse("expected at most 512 bytes and 16 folders");
        }
        if text.starts_with('/') {
            return refuse("expected a path relative to the root of the workspace");
        }
        let is_wrong = |part: &str| matches!(part, "" | "." | "..") || part.contains(['\\', '\0']);
        if (!text.is_empty() && text.split('/').any(is_wrong)) || text.chars().any(char::is_control) {
            return refuse("expected names with / between them, none of which is . or ..");
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The folders that it is in, the innermost last.
    pub(crate) fn folders(&self) -> impl Iterator<Item = Self> + '_ {
        self.0.match_indices('/').filter_map(|(at, _)| self.0.get(..at).map(|folder| Self(folder.to_owned())))
    }

    /// Prefix of the paths of everything in this folder.
    fn within(&self) -> String {
        if self.is_root() { String::new() } else { format!("{}/", self.0) }
    }
}

/// Workspace of a tenant whose files are read or written.
pub(crate) struct FilesOfWorkspace<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) workspace: &'a WorkspaceId,
}

impl FilesOfWorkspace<'_> {
    pub(crate) fn key(&self, path: &FilePath) -> DocumentKey {
        ids::digested(KIND, DOMAIN, &[self.tenant, self.workspace.as_str(), path.0.as_str()])
    }

    pub(crate) fn list(&self) -> String {
        format!("{}/{KIND}/{}", self.tenant, self.workspace)
    }

    /// The write of a file that is not there yet, with its content and its metadata, by `author` at an instant.
    pub(crate) fn write(
        &self,
        (author, now): (&str, Timestamp),
        path: &FilePath,
        (content, metadata): (String, Map),
    ) -> Result<DocumentWrite, ProtocolError> {
        let body = json!({
            "tenant": self.tenant, "workspace": self.workspace, "path": path.0, "content": content,
            "metadata": metadata, "written_by": author, "written_at": now,
        });
        let Value::Object(body) = body else { return Err(internal(&"an object is an object")) };
        let (key, listed) = (self.key(path), vec![Listed::new(self.list(), path.0.as_str())]);
        Ok(DocumentWrite { key, expect: 0, body: Some(body), listed, expires_at: None })
    }
}

/// The writes of the files with which a new workspace begins.
///
/// # Errors
/// `invalid_request` where one has no path inside, or there are too many; `conflict` where a file would be a folder, too.
pub(crate) fn first_files(
    call: &Call,
    workspace: &WorkspaceId,
    contents: BTreeMap<String, String>,
) -> Result<Vec<DocumentWrite>, ProtocolError> {
    if contents.len() > MOST_FIRST {
        let message = format!("a workspace begins with at most {MOST_FIRST} files; write the others one by one");
        return Err(ProtocolError::invalid("files", message));
    }
    let files = FilesOfWorkspace { tenant: &call.actor.tenant, workspace };
    let mut paths = BTreeSet::new();
    let mut writes = Vec::new();
    for (path, content) in contents {
        let path = FilePath::read(&path).map_err(|_| {
            ProtocolError::invalid("files", format!("`{path}` is no path relative to the root of the workspace"))
        })?;
        if path.is_root() {
            return Err(ProtocolError::invalid("files", "the root of a workspace is a folder: name files"));
        }
        writes.push(files.write((&call.actor.name, call.now), &path, (content, Map::new()))?);
        if !paths.insert(path.0) {
            return Err(conflict("two of the files have the same path"));
        }
    }
    let is_folder = |path: &String| FilePath(path.clone()).folders().any(|folder| paths.contains(&folder.0));
    if paths.iter().any(is_folder) {
        return Err(conflict("a part of a path is a file"));
    }
    Ok(writes)
}

impl Reads {
    pub(crate) async fn read_file(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let workspace = self.named::<Workspace>(call, "workspace_id").await?.kept.resource.envelope.id;
        let path = FilePath::read(call.query.get("path").unwrap_or_default())?;
        let files = FilesOfWorkspace { tenant: &call.actor.tenant, workspace: &workspace };
        if !path.is_root()
            && let Some(file) = self.records().document(&files.key(&path), call.now).await.map_err(store)?
        {
            let content = content_of(&file);
            return found(&WorkspaceFile {
                object: Object::new(),
                workspace_id: workspace,
                path: path.0,
                encoding: FileEncoding::Utf8,
                bytes: Some(content.len() as u64),
                content: Some(content.to_owned()),
            });
        }
        let entries = self.entries_of(call, &files, &path).await?;
        if entries.is_empty() && !path.is_root() {
            return Err(ProtocolError::not_found("file"));
        }
        found(&WorkspaceFileListing { object: Object::new(), workspace_id: workspace, path: path.0, entries })
    }

    async fn check_no_folder(
        &self,
        call: &Call,
        files: &FilesOfWorkspace<'_>,
        path: &FilePath,
    ) -> Result<(), ProtocolError> {
        let first = self.files_behind(call, files, Some(path.within()), 1).await?;
        let is_within = first.first().is_some_and(|file| path_of(file).starts_with(&path.within()));
        if is_within { Err(conflict("the path is a folder")) } else { Ok(()) }
    }

    /// The entries of a folder, in the order of their names as they stand in paths.
    async fn entries_of(
        &self,
        call: &Call,
        files: &FilesOfWorkspace<'_>,
        folder: &FilePath,
    ) -> Result<Vec<WorkspaceFileEntry>, ProtocolError> {
        let within = folder.within();
        let (mut entries, mut after) = (Vec::new(), (!within.is_empty()).then(|| within.clone()));
        while entries.len() < MOST_ENTRIES {
            let page = self.files_behind(call, files, after.clone(), 50).await?;
            if page.is_empty() {
                return Ok(entries);
            }
            for file in &page {
                let path = path_of(file);
                let Some(rest) = path.strip_prefix(&within) else { return Ok(entries) };
                let Some((name, _)) = rest.split_once('/') else {
                    entries.push(entry(rest, path, FileEntryKind::File, content_of(file).len() as u64));
                    after = Some(path.to_owned());
                    continue;
                };
                let folder = format!("{within}{name}");
                // The next page begins behind everything in that folder; what this page has of it is passed over.
                after = Some(format!("{folder}/{}", char::MAX));
                // Two who write at the same instant may make a file and a folder of one name: both are shown.
                if entries.last().is_none_or(|last| last.kind == FileEntryKind::File || last.path != folder) {
                    entries.push(entry(name, &folder, FileEntryKind::Directory, 0));
                }
            }
            if entries.len() >= MOST_ENTRIES {
                let message = "the folder has too many entries to list; read its files by their paths";
                return Err(ProtocolError::new(ErrorCode::PayloadTooLarge, message));
            }
        }
        Ok(entries)
    }

    /// Files with paths behind `after`; one page may be empty only at the end.
    async fn files_behind(
        &self,
        call: &Call,
        files: &FilesOfWorkspace<'_>,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<Document>, ProtocolError> {
        let mut after = after;
        loop {
            let request = ListRequest {
                list: files.list(),
                breadth: Breadth::Narrow,
                after,
                limit,
                newest_first: false,
                now: call.now,
            };
            let page = self.records().documents(&request).await.map_err(store)?;
            if !page.items.is_empty() || page.next.is_none() {
                return Ok(page.items);
            }
            after = page.next;
        }
    }
}

impl Api {
    /// Checks that the files of `workspace` may be written.
    ///
    /// # Errors
    /// `permission_denied` where its agents only talk; that it is busy when that cannot be known.
    async fn check_writable(&self, call: &Call, workspace: &WorkspaceId) -> Result<(), ProtocolError> {
        let only_talk = self.parts().personas.only_talk_in(&call.actor.tenant, workspace).await;
        if !only_talk.map_err(|reason| agents_away(&reason))? {
            return Ok(());
        }
        let message = "workspace_read_only: a `chat` workspace only talks, and its files are not written";
        Err(ProtocolError::new(ErrorCode::PermissionDenied, message).with_detail("reason", "workspace_read_only"))
    }

    pub(crate) async fn write_file(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: WriteWorkspaceFileRequest = call.body.clone().decode()?;
        let workspace = self.reads.named::<Workspace>(call, "workspace_id").await?.kept.resource.envelope.id;
        self.check_writable(call, &workspace).await?;
        let path = request.path.as_deref().or_else(|| call.query.get("path")).unwrap_or_default();
        let path = FilePath::read(path)?;
        if path.is_root() {
            return Err(ProtocolError::invalid("path", "name the file to write"));
        }
        let files = FilesOfWorkspace { tenant: &call.actor.tenant, workspace: &workspace };
        let key = files.key(&path);
        let before = self.reads.records().document(&key, call.now).await.map_err(store)?;
        if before.is_none() {
            self.reads.check_no_folder(call, &files, &path).await?;
        }
        let bytes = request.content.len() as u64;
        let expect = before.map_or(0, |file| file.version);
        let write = files.write((&call.actor.name, call.now), &path, (request.content, request.metadata))?;
        let mut writes = vec![DocumentWrite { expect, ..write }];
        if expect == 0 {
            writes.push(place_write(&workspace));
            for folder in path.folders() {
                let key = files.key(&folder);
                if self.reads.records().document(&key, call.now).await.map_err(store)?.is_some() {
                    return Err(conflict("a part of the path is a file"));
                }
                // Nor may it become one before this is written.
                writes.push(DocumentWrite::remove(key, 0));
            }
        }
        let file = WorkspaceFile {
            object: Object::new(),
            workspace_id: workspace.clone(),
            path: path.0,
            encoding: FileEncoding::Utf8,
            content: None,
            bytes: Some(bytes),
        };
        Change::new(Journal::new(writes, Vec::new()), 200, &file)
    }

    /// Removes a file; the folders that it was alone in are not there any more either.
    pub(crate) async fn delete_file(&self, call: &Call) -> Result<Change, ProtocolError> {
        let workspace = self.reads.named::<Workspace>(call, "workspace_id").await?.kept.resource.envelope.id;
        self.check_writable(call, &workspace).await?;
        let path = FilePath::read(call.query.get("path").unwrap_or_default())?;
        if path.is_root() {
            return Err(ProtocolError::invalid("path", "name the file to remove"));
        }
        let files = FilesOfWorkspace { tenant: &call.actor.tenant, workspace: &workspace };
        let key = files.key(&path);
        match self.reads.records().document(&key, call.now).await.map_err(store)? {
            Some(file) => {
                let removal = DocumentWrite::remove(key, file.version);
                Change::new(Journal::new(vec![removal], Vec::new()), NO_CONTENT, &Value::Null)
            }
            None => {
                self.reads.check_no_folder(call, &files, &path).await?;
                Err(ProtocolError::not_found("file"))
            }
        }
    }
}

fn entry(name: &str, path: &str, kind: FileEntryKind, size: u64) -> WorkspaceFileEntry {
    WorkspaceFileEntry { name: name.to_owned(), path: path.to_owned(), kind, size }
}

fn text<'a>(body: &'a Map, field: &str) -> &'a str {
    body.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn path_of(file: &Document) -> &str {
    text(&file.body, "path")
}

pub(crate) fn content_of(file: &Document) -> &str {
    text(&file.body, "content")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        for (text, read) in
            [("", ""), (".", ""), ("a", "a"), ("a/b.md", "a/b.md"), ("a/", "a"), ("\u{e9}/x", "\u{e9}/x")]
        {
            assert_eq!(FilePath::read(text), Ok(FilePath(read.to_owned())), "{text}");
        }
        let (long, deep) = ("x".repeat(513), ["a"; 17].join("/"));
        for text in ["/", "/a", "..", "a/../b", "./a", "a//b", "a\\b", "a\0b", "a\nb", "a//", &long, &deep] {
            assert_eq!(FilePath::read(text).expect_err(text).param(), Some("path"), "{text}");
        }
    }

    #[test]
    fn folders_of_a_path_are_named_from_outside() {
        let path = FilePath("a/b/c".to_owned());
        assert_eq!(path.folders().collect::<Vec<_>>(), [FilePath("a".to_owned()), FilePath("a/b".to_owned())]);
    }
}
