//! Deleting a workspace with everything in it.
//!
//! 1. One commit marks the workspace as deleted and makes its deletion document. From then on it is not there, and
//!    nothing new is made in it: each commit that makes something in a workspace demands, by [`place_write`], that there
//!    is no deletion document. So a session that is created in the same instant is either refused, or written before and
//!    found in the next step.
//! 2. Each session is marked as deleted, in a commit behind which nothing is submitted to it, and its open tasks are
//!    canceled.
//! 3. Everything else that is listed in the workspace is marked.
//!
//! Every step can be repeated. A process that dies in between leaves a workspace that is not there, and some of its
//! things that still are; the same request goes on from there. How far one came that left something to the next stands in the
//! deletion document, so that the next does not look at all of it again. What is marked is shown to nobody, and is removed from
//! the table by [`Erasure::Workspace`](crate::Erasure::Workspace). The events stay in the feed of all events until then.

use std::collections::BTreeMap;

use dormouse_ports::{Document, DocumentKey, DocumentWrite, Journal, ListRequest, Records, StoreError};
use dormouse_protocol::envelope::{Named, Object};
use dormouse_protocol::event::{Draft, EventKind};
use dormouse_protocol::id::{SessionId, WorkspaceId};
use dormouse_protocol::resource::{
    Artifact, Branch, Connector, Memory, PermissionRequest, Session, SessionState, Task, Vault, Workspace,
    WorkspaceDeletion,
};
use dormouse_protocol::{ErrorCode, Identifier, Map, ProtocolError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::{ATTEMPTS, Api, Change, by, found};
use crate::change::{By, SessionChange};
use crate::documents::{Resource, Stored};
use crate::page::{Narrowed, PageSource};
use crate::refusal::{busy, internal, store};
use crate::{Call, CallAnswer};

/// The kind of the documents of deletions; the id of each is that of its workspace.
pub(crate) const KIND: &str = "workspace_deletion";

/// The event of a session that was deleted with its workspace; the narrative has none.
pub(crate) const DELETED: &str = "vendor.dormouse.session_deleted";

/// Who deletes what is to be erased.
const OPERATOR: &str = "operator";

/// Reason that canceled tasks are given.
const REASON: &str = "the workspace was deleted";

/// The most resources that one request deletes. It answers what is left to the next one.
const MOST_AT_ONCE: u64 = 500;

/// The most resources that one request looks at, deleted already or not.
const MOST_LOOKED_AT: usize = 2_000;

/// Field of a deletion document with the [places](DeletionRun::places) up to which everything is deleted.
const PLACES: &str = "places";

/// Number of documents that one commit marks.
const MARKED_TOGETHER: usize = 20;

/// What is left of something that was deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tombstone {
    /// The actor that deleted it.
    pub(crate) by: String,
    /// Instant of the deletion.
    pub(crate) at: Timestamp,
}

impl Tombstone {
    /// That of what `call` deletes.
    pub(crate) fn of(call: &Call) -> Self {
        Self { by: call.actor.name.clone(), at: call.now }
    }
}

/// A write that changes nothing and fails where `workspace` is deleted. Joins every commit that makes something in it,
/// unless that fails anyway when the session which it belongs to is deleted.
pub(crate) fn place_write(workspace: &WorkspaceId) -> DocumentWrite {
    DocumentWrite::remove(deletion_of(workspace), 0)
}

/// The document that is there once `workspace` is deleted.
pub(crate) fn deletion_of(workspace: &WorkspaceId) -> DocumentKey {
    DocumentKey::new(KIND, workspace.as_str())
}

impl Api {
    /// Deletes the workspace with all that is in it, or as much of it as one request does. Deleting it again goes on,
    /// or changes nothing.
    pub(crate) async fn delete_workspace(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        if let Some(answer) = self.repetitions.repeated(call).await? {
            return Ok(answer);
        }
        if call.actor.workspaces.is_some() {
            let message = "the key is bound to workspaces and cannot delete any";
            return Err(ProtocolError::new(ErrorCode::PermissionDenied, message));
        }
        let workspace = self.mark_workspace(call).await?;
        let document = self.reads.records().document(&deletion_of(&workspace), call.now).await.map_err(store)?;
        let places = document.as_ref().and_then(|document| BTreeMap::deserialize(document.body.get(PLACES)?).ok());
        let told = WorkspaceDeletion {
            object: Object::new(),
            workspace_id: workspace.clone(),
            sessions: 0,
            canceled_tasks: 0,
            others: 0,
            complete: false,
        };
        let places = places.unwrap_or_default();
        let mut run = DeletionRun { api: self, call, one: unkeyed(call), workspace, told, places, looked_at: 0 };
        let complete = Box::pin(run.delete_sessions()).await?
            && Box::pin(run.mark_all::<Task>()).await?
            && Box::pin(run.mark_all::<PermissionRequest>()).await?
            && Box::pin(run.mark_all::<Artifact>()).await?
            && Box::pin(run.mark_all::<Branch>()).await?
            && Box::pin(run.mark_all::<Memory>()).await?
            && Box::pin(run.mark_all::<Connector>()).await?
            && Box::pin(run.mark_all::<Vault>()).await?;
        if !complete {
            Box::pin(run.keep_places(document)).await?;
            // Not kept under the key of the request: that comes again to go on.
            return found(&run.told);
        }
        let deletion = WorkspaceDeletion { complete, ..run.told };
        self.commit(call, Change::nothing(200, &deletion)?).await?.ok_or_else(busy)
    }

    /// Marks the workspace that the path names, unless it is marked.
    async fn mark_workspace(&self, call: &Call) -> Result<WorkspaceId, ProtocolError> {
        let id = WorkspaceId::from(call.params.get("workspace_id"));
        let one = unkeyed(call);
        for _ in 0..ATTEMPTS {
            let workspace = self.reads.find::<Workspace>(&id, call.now).await?;
            let workspace = workspace.filter(|workspace| workspace.kept.tenant == call.actor.tenant);
            let workspace = workspace.ok_or_else(|| ProtocolError::not_found("workspace"))?;
            if workspace.kept.deleted.is_some() {
                return Ok(id);
            }
            let journal = deleted_workspace(workspace, Tombstone::of(call))?;
            if self.commit(&one, Change::new(journal, 200, &())?).await?.is_some() {
                return Ok(id);
            }
        }
        Err(busy())
    }
}

/// One request's part of the deletion of a workspace.
struct DeletionRun<'a> {
    api: &'a Api,
    call: &'a Call,
    /// The same call without its key: what it writes on the way is no answer.
    one: Call,
    workspace: WorkspaceId,
    told: WorkspaceDeletion,
    /// The places in the lists of resources, by their names, up to which everything is deleted. Nothing new comes there.
    places: BTreeMap<String, String>,
    /// Number of resources that were looked at.
    looked_at: usize,
}

impl DeletionRun<'_> {
    /// Deletes the sessions of the workspace; whether all of them are.
    async fn delete_sessions(&mut self) -> Result<bool, ProtocolError> {
        let mut after = self.places.get(SessionId::OBJECT).cloned();
        loop {
            let (sessions, next) = self.listed_in::<Session>(after).await?;
            for session in sessions {
                if self.is_enough() {
                    return Ok(false);
                }
                self.looked_at += 1;
                Box::pin(self.delete_session(&session.kept.resource.envelope.id)).await?;
            }
            match self.passed::<Session>(next) {
                Some(next) => after = Some(next),
                None => return Ok(true),
            }
        }
    }

    /// True if one request has done as much as it may.
    fn is_enough(&self) -> bool {
        let WorkspaceDeletion { sessions, canceled_tasks, others, .. } = &self.told;
        sessions + canceled_tasks + others >= MOST_AT_ONCE || self.looked_at >= MOST_LOOKED_AT
    }

    /// Notes that every `R` up to `next` is deleted, which is `None` at the end of their list.
    fn passed<R: Resource>(&mut self, next: Option<String>) -> Option<String> {
        let place = next.iter().map(|next| (R::Id::OBJECT.to_owned(), next.clone()));
        self.places.extend(place);
        next
    }

    /// Keeps in the deletion document, as it was read, how far this request came. What another one has kept meanwhile stays.
    async fn keep_places(&self, document: Option<Document>) -> Result<(), ProtocolError> {
        let Some(Document { key, version, mut body, .. }) = document else { return Ok(()) };
        body.insert(PLACES.to_owned(), json!(self.places));
        let write = DocumentWrite { key, expect: version, body: Some(body), listed: Vec::new(), expires_at: None };
        let journal = Journal::new(vec![write], Vec::new());
        self.api.commit(&self.one, Change::new(journal, 200, &())?).await.map(drop)
    }

    /// Marks the session `id`, so that nothing is submitted to it any more, and cancels its open tasks. Of one that is
    /// marked the tasks that an earlier request left.
    async fn delete_session(&mut self, id: &SessionId) -> Result<(), ProtocolError> {
        let mut attempts = 0..ATTEMPTS;
        let open = loop {
            let Some(session) = self.api.reads.find::<Session>(id, self.call.now).await? else { return Ok(()) };
            if session.kept.deleted.is_some() {
                break session.kept.own.open;
            }
            attempts.next().ok_or_else(busy)?;
            let journal = deleted(session, (by(self.call), Tombstone::of(self.call)))?;
            if self.api.commit(&self.one, Change::new(journal, 200, &())?).await?.is_some() {
                self.told.sessions += 1;
            }
        };
        // The newest first: what is queued does not begin when another one ends.
        for task in open.keys().rev() {
            let is_open = |session: &Stored<Session>| session.kept.own.open.contains_key(task);
            self.told.canceled_tasks +=
                u64::from(Box::pin(self.api.cancel_while(&self.one, task, REASON, is_open)).await?.is_some());
        }
        Ok(())
    }

    /// Marks the `R`s of the workspace; whether all of them are.
    async fn mark_all<R: Resource>(&mut self) -> Result<bool, ProtocolError> {
        let (mut after, mut attempts) = (self.places.get(R::Id::OBJECT).cloned(), 0..ATTEMPTS);
        while !self.is_enough() {
            let (mut resources, next) = self.listed_in::<R>(after.clone()).await?;
            self.looked_at += resources.len();
            resources.retain(|resource| resource.kept.deleted.is_none());
            let count = resources.len() as u64;
            let mark = |mut resource: Stored<R>| {
                resource.kept.deleted = Some(Tombstone::of(self.call));
                resource.write()
            };
            let writes = resources.into_iter().map(mark).collect::<Result<Vec<_>, _>>()?;
            if self.api.commit(&self.one, Change::new(Journal::new(writes, Vec::new()), 200, &())?).await?.is_none() {
                attempts.next().ok_or_else(busy)?;
                continue;
            }
            self.told.others += count;
            match self.passed::<R>(next) {
                Some(next) => after = Some(next),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Some of the `R`s that are listed in the workspace, the oldest first, and where the list goes on.
    async fn listed_in<R: Resource>(
        &self,
        after: Option<String>,
    ) -> Result<(Vec<Stored<R>>, Option<String>), ProtocolError> {
        let source = PageSource::list::<R>(&self.call.actor.tenant, Narrowed::to(None, Some(&self.workspace)));
        let PageSource::List { list, breadth, .. } = source else { return Err(internal(&"a list is a list")) };
        let request =
            ListRequest { list, breadth, after, limit: MARKED_TOGETHER, newest_first: false, now: self.call.now };
        let page = self.api.reads.records().documents(&request).await.map_err(store)?;
        let readable = |document| {
            Stored::<R>::read(document)
                .inspect_err(|error| {
                    tracing::error!(%error, "a document that cannot be read stays when its workspace is deleted");
                })
                .ok()
        };
        // Earlier versions listed without labels: what they listed comes for every workspace.
        let is_in = |one: &Stored<R>| one.kept.workspace.as_ref() == Some(&self.workspace);
        Ok((page.items.into_iter().filter_map(readable).filter(is_in).collect(), page.next))
    }
}

/// The journal that marks `session` as deleted.
fn deleted(session: Stored<Session>, (by, tombstone): (By, Tombstone)) -> Result<Journal, ProtocolError> {
    let mut change = SessionChange::open(session, by, tombstone.at);
    change.delete(tombstone);
    change.session_mut().state = SessionState::Closed;
    let session = change.session();
    let draft = Draft::new(EventKind::from(DELETED), session.envelope.id.pointer(), Value::Object(Map::new()));
    let draft = draft.within(Some(&session.workspace_id), Some(&session.envelope.id), None);
    change.emit_for_session(draft);
    Ok(change.close()?.1)
}

/// The journal that marks `workspace` as deleted.
fn deleted_workspace(mut workspace: Stored<Workspace>, tombstone: Tombstone) -> Result<Journal, ProtocolError> {
    let Value::Object(mut body) = json!(tombstone) else { return Err(internal(&"a tombstone is an object")) };
    let id = workspace.kept.resource.envelope.id.clone();
    body.extend([("tenant".to_owned(), json!(workspace.kept.tenant)), ("workspace".to_owned(), json!(id))]);
    workspace.kept.deleted = Some(tombstone);
    let deletion = DocumentWrite { body: Some(body), ..place_write(&id) };
    Ok(Journal::new(vec![workspace.write()?, deletion], Vec::new()))
}

/// The journal that a store has to commit for nothing new to come to the session or workspace `key` any more; `None` where
/// that is so already, and for what is none.
///
/// # Errors
/// [`StoreError`] when the store did not answer, or what it has cannot be read.
pub async fn shutting(records: &dyn Records, key: &DocumentKey, now: Timestamp) -> Result<Option<Journal>, StoreError> {
    let tombstone = Tombstone { by: OPERATOR.to_owned(), at: now };
    let journal = if key.kind == SessionId::OBJECT {
        let found = Stored::<Session>::load(records, &key.id.as_str().into(), now).await?;
        let found = found.filter(|session| session.kept.deleted.is_none());
        let by = By { actor: OPERATOR.to_owned(), key: None };
        found.map(|session| deleted(session, (by, tombstone)))
    } else if key.kind == WorkspaceId::OBJECT {
        let found = Stored::<Workspace>::load(records, &key.id.as_str().into(), now).await?;
        let found = found.filter(|workspace| workspace.kept.deleted.is_none());
        found.map(|workspace| deleted_workspace(workspace, tombstone))
    } else {
        None
    };
    journal.transpose().map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// `call` without its key: its answer is kept once, and not with each of its commits.
fn unkeyed(call: &Call) -> Call {
    Call { idempotency_key: None, ..call.clone() }
}
