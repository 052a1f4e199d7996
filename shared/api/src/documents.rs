//! Stored documents of resources: the resource as clients see it, its tenant, and the bookkeeping that only the server
//! sees.
//!
//! | kind | id | the server's own part |
//! |---|---|---|
//! | `session` | the session's | nothing: it is at the end of the session's stream ([`SessionEnd`]) |
//! | `task` | the task's, which is that of its invocation | [`TaskIndex`], with the outcome of what has ended |
//! | `artifact` | the artifact's | [`ContentLocation`] |
//! | `workspace`, `branch`, `persona`, `vault`, `permission_request` | theirs | nothing |
//! | `quota`, `connector` | theirs | [`QuotaIndex`], [`ConnectorIndex`] |
//! | `delivery` | a hash of the connector and the id of the delivery | nothing else ([`crate::connectors`]) |
//! | `memory` | the memory's | [`MemoryIndex`]: a tombstone |
//! | `workspace_deletion` | the workspace's | all of it ([`crate::deletion`]) |
//! | `file` | a hash of workspace and path | all of it (`crate::files`) |
//! | `image` | a hash of the tenant and its id | all of it (`crate::images`) |
//! | `outcome` | the outcome's | nothing; only of an outcome that is large or was written by an earlier version |
//! | `idempotency` | a hash of the scope | all of it, of keys that are not noted in a stream ([`crate::idempotency`]) |
//!
//! Resources stand in the lists `<tenant>/<kind>`, which is wide and has their workspaces as labels, and
//! `<tenant>/<kind>/<parent>` of sessions and tasks, ordered by their ids, which are ordered by the time of their making. Outcomes and the final states of tasks stand in none: their lists are made from
//! those of tasks, whose order is theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use dormouse_ports::{Breadth, Document, DocumentKey, DocumentWrite, Listed, Map, Records, StoreError, StreamTip};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{
    ArtifactId, BranchId, ConnectorId, EventId, MemoryId, OutcomeId, PermissionRequestId, PersonaId, QuotaId,
    SessionId, TaskId, VaultId, WorkspaceId,
};
use dormouse_protocol::resource::{
    Artifact, Branch, Connector, Memory, MemoryScope, Outcome, PartVisibility, PermissionRequest, Persona, Quota,
    Session, SessionState, Task, TaskStatus, Vault, Workspace,
};
use dormouse_protocol::{Envelope, Identifier, ProtocolError};
use futures::future::try_join;
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Actor;
use crate::connectors::ConnectorIndex;
use crate::deletion::Tombstone;
use crate::memories::MemoryIndex;
use crate::quotas::QuotaIndex;
use crate::receipts::{ChainHead, ReceiptNotes};
use crate::refusal::internal;
use crate::replay::ReplayNote;
use crate::webhooks::Subscriptions;

/// Field of a document with the server's own part of it.
const OWN: &str = "own";

/// A resource that is a document.
pub(crate) trait Resource: Serialize + DeserializeOwned {
    /// Type of its id.
    type Id: Identifier;
    /// Bookkeeping that only the server sees.
    type Own: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned;

    /// Its envelope.
    fn envelope(&self) -> &Envelope<Self::Id>;

    /// True if it stands in lists.
    const IS_LISTED: bool = true;

    /// True if the stream that is called by its id holds at its end what changes of it with every event.
    const HAS_STREAM: bool = false;

    /// The ids of what it belongs to beside its workspace: it stands in a list of each.
    fn parents(&self) -> Vec<&str>;

    /// Takes what the end of its stream holds, where it [has one](Self::HAS_STREAM).
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it cannot be read.
    fn take_end(_kept: &mut Kept<Self>, _known: Map) -> Result<(), StoreError> {
        Ok(())
    }

    /// The resource as clients see it, everywhere that it is shown.
    #[must_use]
    fn shown(self) -> Self {
        self
    }
}

/// A resource with all that is stored of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Kept<R: Resource> {
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// The workspace that it is in, if any.
    pub(crate) workspace: Option<WorkspaceId>,
    /// Part that clients see.
    pub(crate) resource: R,
    /// Part that clients do not see.
    pub(crate) own: R::Own,
    /// Set where it was deleted with its workspace: then nobody sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deleted: Option<Tombstone>,
}

/// A resource as it was read, or before it is written for the first time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored<R: Resource> {
    /// The version that was read; 0 of one that is new.
    pub(crate) version: u64,
    /// True if its document leaves to the end of its stream what changes with every event. Those that an earlier version
    /// wrote do not.
    pub(crate) is_split: bool,
    /// Instant at which the newest append to its stream was sent.
    pub(crate) told_at: Option<Timestamp>,
    /// The content.
    pub(crate) kept: Kept<R>,
}

impl<R: Resource> Stored<R> {
    /// A resource that is not stored yet.
    pub(crate) fn new(tenant: &str, workspace: Option<WorkspaceId>, resource: R, own: R::Own) -> Self {
        let kept = Kept { tenant: tenant.to_owned(), workspace, resource, own, deleted: None };
        Self { version: 0, is_split: false, told_at: None, kept }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it is none of this kind.
    pub(crate) fn read(document: Document) -> Result<Self, StoreError> {
        let Document { key: name, version, mut body, .. } = document;
        let is_split = R::HAS_STREAM && body.get(OWN).is_some_and(Value::is_null);
        let corrupt = |error| StoreError::Corrupt(format!("{} {}: {error}", name.kind, name.id));
        if is_split {
            body.insert(OWN.to_owned(), serde_json::to_value(R::Own::default()).map_err(corrupt)?);
        }
        let kept = serde_json::from_value(Value::Object(body)).map_err(corrupt)?;
        Ok(Self { version, is_split, told_at: None, kept })
    }

    /// The same, as the end of its stream has it; `None` if that was read before its first event.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the end is none of this kind.
    pub(crate) fn with_end(mut self, tip: StreamTip) -> Result<Option<Self>, StoreError> {
        let Some(known) = tip.known else {
            let told_at = tip.at;
            return Ok((!self.is_split).then_some(Self { told_at, ..self }));
        };
        R::take_end(&mut self.kept, known)?;
        Ok(Some(Self { told_at: tip.at, ..self }))
    }

    /// The `R` called `id`, if there is one.
    ///
    /// # Errors
    /// If the store does not answer, or holds something else.
    pub(crate) async fn load(records: &dyn Records, id: &R::Id, now: Timestamp) -> Result<Option<Self>, StoreError> {
        if !id.is_well_formed() {
            return Ok(None);
        }
        let key = key::<R>(id.as_ref());
        let stream = id.as_ref();
        if !R::HAS_STREAM {
            return records.document(&key, now).await?.map(Self::read).transpose();
        }
        let (document, mut tip) = try_join(records.document(&key, now), records.tip(stream)).await?;
        let Some(one) = document.map(Self::read).transpose()? else { return Ok(None) };
        if one.is_split && tip.known.is_none() {
            // It was written in between.
            tip = records.tip(stream).await?;
        }
        one.with_end(tip)
    }

    /// The `R` of `document`, if it can be read, and `actor` may know that it is there.
    pub(crate) fn seen(document: Document, actor: &Actor) -> Option<Self> {
        match Self::read(document) {
            Ok(one) => Some(one).filter(|one| one.is_seen_by(actor)),
            Err(error) => {
                tracing::error!(%error, "a list leaves out a document that cannot be read; this line has its key");
                None
            }
        }
    }

    /// The name of its document.
    pub(crate) fn key(&self) -> DocumentKey {
        key::<R>(self.kept.resource.envelope().id.as_ref())
    }

    /// Writes it, on the condition that no other writer has since it was read.
    ///
    /// # Errors
    /// If it cannot be JSON: `internal_error`.
    pub(crate) fn write(&self) -> Result<DocumentWrite, ProtocolError> {
        let body = match serde_json::to_value(&self.kept) {
            Ok(Value::Object(mut body)) => {
                if R::HAS_STREAM {
                    body.insert(OWN.to_owned(), Value::Null);
                }
                body
            }
            Ok(_) => return Err(internal(&"a resource is an object")),
            Err(error) => return Err(internal(&error)),
        };
        let listed = if self.version == 0 && R::IS_LISTED { self.listed() } else { Vec::new() };
        Ok(DocumentWrite { key: self.key(), expect: self.version, body: Some(body), listed, expires_at: None })
    }

    /// The same, behind its write.
    pub(crate) fn written(self) -> Self {
        Self { version: self.version + 1, is_split: R::HAS_STREAM, ..self }
    }

    /// The same, to whose stream an append was sent at `now` at the latest.
    pub(crate) fn told_by(self, now: Timestamp) -> Self {
        // An append is sent behind the one before it, whatever the clock says.
        let behind = self.told_at.and_then(|at| at.checked_add(SignedDuration::from_nanos(1)).ok());
        Self { told_at: Some(behind.map_or(now, |behind| behind.max(now))), ..self }
    }

    fn listed(&self) -> Vec<Listed> {
        let tenant = &self.kept.tenant;
        let order = self.kept.resource.envelope().id.as_ref();
        let breadth = Breadth::Wide { label: self.kept.workspace.as_ref().map(ToString::to_string) };
        let whole = Listed { breadth, ..Listed::new(list::<R>(tenant, None), order) };
        let parents = self.kept.resource.parents().into_iter();
        let narrow = parents.map(|parent| Listed::new(list::<R>(tenant, Some(parent)), order));
        std::iter::once(whole).chain(narrow).collect()
    }

    /// True if `actor` may know that it is there.
    pub(crate) fn is_seen_by(&self, actor: &Actor) -> bool {
        self.is_deleted_to(actor) == Some(false)
    }

    /// Whether it is deleted; `None` where `actor` may not know that it is or was there.
    pub(crate) fn is_deleted_to(&self, actor: &Actor) -> Option<bool> {
        let is_theirs = actor.tenant == self.kept.tenant && actor.reaches(self.kept.workspace.as_ref());
        is_theirs.then_some(self.kept.deleted.is_some())
    }
}

/// The name of the document of the `R` called `id`.
pub(crate) fn key<R: Resource>(id: &str) -> DocumentKey {
    DocumentKey::new(R::Id::OBJECT, id)
}

/// The list of the `R`s of `tenant`; of those that belong to `parent`, where it is given.
pub(crate) fn list<R: Resource>(tenant: &str, parent: Option<&str>) -> String {
    let all = format!("{tenant}/{}", R::Id::OBJECT);
    parent.map_or_else(|| all.clone(), |parent| format!("{all}/{parent}"))
}

impl Actor {
    /// True if the actor may reach what is in `workspace`. A resource in none belongs to the whole tenant.
    pub(crate) fn reaches(&self, workspace: Option<&WorkspaceId>) -> bool {
        match (&self.workspaces, workspace) {
            (Some(mine), Some(workspace)) => mine.contains(workspace),
            (None, _) | (_, None) => true,
        }
    }
}

/// What changes of a session with every event. The end of its stream holds it, so that it is written with the events, and
/// its document only when the rest of it changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionEnd {
    /// Its state.
    pub(crate) state: SessionState,
    /// Instant of its last change.
    pub(crate) updated_at: Timestamp,
    /// Bookkeeping of the server.
    pub(crate) own: SessionIndex,
}

/// Bookkeeping of the server about a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionIndex {
    /// The position of the last event of its stream. Every commit that changes what belongs to the session appends to the
    /// stream, on the condition that no other writer has: that is the lock of all of it.
    pub(crate) position: u64,
    /// Number of events about the session itself.
    pub(crate) sequence: u64,
    /// Number of messages of the transcript.
    pub(crate) messages: u64,
    /// Stretches of streams that make up the transcript; the last one grows.
    pub(crate) transcript: Vec<TranscriptSegment>,
    /// 0 where its agent has been given nothing of the transcript; another position, from which on it has not been given
    /// the messages of its own stream, is of former versions.
    #[serde(rename = "unheard")]
    pub(crate) undelivered_from: Option<u64>,
    /// Otherwise the positions of the messages that its agent has not been given, the newest of them.
    #[serde(rename = "unheard_at", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) undelivered: Vec<u64>,
    /// Those of them that a run is to hear in its midst.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) interruptions: Vec<Interruption>,
    /// The tasks that have not ended.
    pub(crate) open: BTreeMap<TaskId, OpenTask>,
    /// Those of them that wait for their turn, in the order in which they will begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) queue: Vec<TaskId>,
    /// The last receipt of its chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipts: Option<ChainHead>,
    /// Its webhooks.
    #[serde(default, skip_serializing_if = "Subscriptions::is_empty")]
    pub(crate) webhooks: Subscriptions,
    /// Quotas of its workspace and its tenant when it was made.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) quotas: BTreeSet<QuotaId>,
    /// The position of the newest event that notes the key of its request; 0 where none does. A session of a version that
    /// noted none does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keyed: Option<u64>,
    /// Instant from which on no key that could be noted is kept in a document; absent where none is.
    #[serde(rename = "apart", default, skip_serializing_if = "Option::is_none")]
    pub(crate) apart_until: Option<Timestamp>,
}

/// A message to a task whose run hears, in its midst, what is said to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interruption {
    /// Where the message is in the stream of the session.
    pub(crate) position: u64,
    /// The task.
    pub(crate) task: TaskId,
}

impl SessionIndex {
    /// That of a session that is made now: no request with a key has written to it.
    pub(crate) fn new() -> Self {
        Self { keyed: Some(0), ..Self::default() }
    }

    /// Notes that the message at `position`, which its agent has not been given, is for the run of `task`.
    pub(crate) fn interrupted(&mut self, task: &TaskId, position: u64) {
        if self.undelivered.contains(&position) {
            self.interruptions.push(Interruption { position, task: task.clone() });
            self.forget_delivered();
        }
    }

    /// Where the messages are that a run of `task` is to hear next. Nobody else is given them while it is open, so that what
    /// it has taken in is still its own when that is written.
    pub(crate) fn unheard_by(&self, task: &TaskId) -> Vec<u64> {
        self.interruptions.iter().filter(|one| one.task == *task).map(|one| one.position).collect()
    }

    /// Notes that a run of `task` has heard those up to `upto`.
    pub(crate) fn heard(&mut self, task: &TaskId, upto: u64) {
        let heard = self.unheard_by(task);
        self.undelivered.retain(|position| *position > upto || !heard.contains(position));
        self.forget_delivered();
    }

    /// Where the messages are that only the run of a task that has not ended is to hear.
    pub(crate) fn awaited(&self) -> Vec<u64> {
        let is_open = |one: &&Interruption| self.open.contains_key(&one.task);
        self.interruptions.iter().filter(is_open).map(|one| one.position).collect()
    }

    /// True if nothing is under way in it, and its agent has been given all messages.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.open.is_empty() && self.undelivered_from.is_none() && self.undelivered.is_empty()
    }

    /// Notes that its agent has been given all messages, but those that a run is to hear.
    pub(crate) fn delivered_but_awaited(&mut self) {
        let awaited = self.awaited();
        self.undelivered_from = None;
        self.undelivered.retain(|position| awaited.contains(position));
        self.forget_delivered();
    }

    fn forget_delivered(&mut self) {
        let Self { interruptions, undelivered, .. } = self;
        interruptions.retain(|one| undelivered.contains(&one.position));
    }

    /// Notes that its agent has not been given the message at `position`.
    pub(crate) fn not_delivered(&mut self, position: u64) {
        if self.undelivered_from.is_none() {
            self.undelivered.push(position);
            let spare = self.undelivered.len().saturating_sub(HEARD_AT_ONCE);
            self.undelivered.drain(..spare);
        }
    }

    /// Notes that what its agent was given with `task`, which is called off or has failed, is in no conversation, unless a step
    /// of it has ended.
    pub(crate) fn not_kept(&mut self, task: &Kept<Task>) {
        let TaskIndex { given, given_all, given_past, given_late, published_messages: None, .. } = &task.own else {
            return;
        };
        // A queued one is given all of it when its turn comes.
        let has_begun = |id: &TaskId| *id != task.resource.envelope.id && !self.queue.contains(id);
        if (*given_all || *given_past) && !self.open.keys().any(has_begun) {
            return self.delivered_but(Some(0));
        }
        // One that waited for its turn was withdrawn before its agent was to hear of it; earlier versions noted its message.
        let own = usize::from(task.resource.status == TaskStatus::Submitted);
        let given = given.get(..given.len().saturating_sub(own)).unwrap_or_default();
        if self.undelivered_from.is_none() {
            self.undelivered.extend(given_late.iter().chain(given));
            self.undelivered.sort_unstable();
            self.undelivered.dedup();
            let spare = self.undelivered.len().saturating_sub(HEARD_AT_ONCE);
            self.undelivered.drain(..spare);
        }
    }

    /// Notes that a run that had waited for its turn is given the messages at `positions`.
    pub(crate) fn delivered_late(&mut self, positions: &[u64]) {
        self.undelivered.retain(|position| !positions.contains(position));
        self.forget_delivered();
    }

    /// Notes that of the transcript, of which its agent had been given nothing, it has been given all but the messages at `own`
    /// in its own stream.
    pub(crate) fn past_delivered(&mut self, mut own: Vec<u64>) {
        let spare = own.len().saturating_sub(HEARD_AT_ONCE);
        own.drain(..spare);
        (self.undelivered_from, self.undelivered) = (None, own);
    }

    /// Notes that its agent has been given the messages from `undelivered_from` on, or all of them.
    pub(crate) fn delivered_but(&mut self, undelivered_from: Option<u64>) {
        self.undelivered_from = undelivered_from;
        self.undelivered.clear();
        self.interruptions.clear();
    }
}

/// Number of messages, the newest, that an agent is given that has received none of them.
pub(crate) const HEARD_AT_ONCE: usize = 200;

/// An open task, as far as its session knows it: every step of a task writes the session anyway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum OpenTask {
    /// Its document is written with each of its steps: the session has many open tasks, or an earlier version wrote it.
    Standing(TaskStanding),
    /// Its document is as it was when it was submitted, but for this.
    Progress(TaskProgress),
}

impl OpenTask {
    /// Its standing.
    pub(crate) fn standing(&self) -> TaskStanding {
        match self {
            Self::Standing(standing) => *standing,
            Self::Progress(progress) => TaskStanding::of(progress.status),
        }
    }
}

/// Part of an open task that changes with its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskProgress {
    /// Status in its life.
    pub(crate) status: TaskStatus,
    /// Instant of its last step.
    pub(crate) updated_at: Timestamp,
    /// [`TaskIndex::sequence`].
    pub(crate) sequence: u64,
    /// [`TaskIndex::published_messages`].
    #[serde(rename = "told", default, skip_serializing_if = "Option::is_none")]
    pub(crate) published_messages: Option<u64>,
    /// [`TaskIndex::is_confidential`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_confidential: bool,
    /// [`TaskIndex::receipts`].
    #[serde(default, skip_serializing_if = "ReceiptNotes::is_empty")]
    pub(crate) receipts: ReceiptNotes,
    /// [`TaskIndex::given_late`].
    #[serde(rename = "late", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_late: Vec<u64>,
    /// [`TaskIndex::given_past`].
    #[serde(rename = "past", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) given_past: bool,
    /// Instant at which it began to work, where it had waited for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<Timestamp>,
}

impl TaskProgress {
    /// That of `task`.
    pub(crate) fn of(task: &Kept<Task>) -> Self {
        let created_at = task.resource.envelope.created_at;
        let started_at = task.resource.started_at.filter(|started_at| *started_at != created_at);
        let TaskIndex { sequence, published_messages, is_confidential, given_past, .. } = task.own;
        let status = task.resource.status;
        let updated_at = task.resource.envelope.updated_at;
        let receipts = task.own.receipts.clone();
        let given_late = task.own.given_late.clone();
        Self {
            status,
            updated_at,
            sequence,
            published_messages,
            is_confidential,
            receipts,
            given_late,
            given_past,
            started_at,
        }
    }
}

impl Stored<Task> {
    /// The task as `session`, which was read later, knows it; `None` if it has ended since.
    pub(crate) fn known_to(mut self, session: &Stored<Session>) -> Option<Self> {
        let Kept { resource, own, .. } = &mut self.kept;
        if let OpenTask::Progress(progress) = session.kept.own.open.get(&resource.envelope.id)? {
            let TaskProgress { status, updated_at, sequence, published_messages, is_confidential, given_past, .. } =
                *progress;
            (resource.status, resource.envelope.updated_at) = (status, updated_at);
            resource.started_at = resource.started_at.or(progress.started_at);
            let receipts = progress.receipts.clone();
            let given_late = progress.given_late.clone();
            let before = std::mem::take(own);
            *own =
                TaskIndex { sequence, published_messages, is_confidential, receipts, given_late, given_past, ..before };
        }
        Some(self)
    }
}

/// Standing of an open task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskStanding {
    /// It works.
    Works,
    /// It waits for an answer.
    Waits,
}

impl TaskStanding {
    /// Standing of an open task of this status.
    pub(crate) fn of(status: TaskStatus) -> Self {
        if status.is_suspended() { Self::Waits } else { Self::Works }
    }
}

/// A stretch of a stream with messages that are part of a transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TranscriptSegment {
    /// Stream that it is a stretch of.
    pub(crate) stream: String,
    /// The first position.
    pub(crate) first: u64,
    /// The last position; grows with the stream when absent.
    pub(crate) last: Option<u64>,
}

/// Bookkeeping of the server about a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskIndex {
    /// Number of events about the task.
    pub(crate) sequence: u64,
    /// The position of its first event in the stream of its session.
    pub(crate) first: u64,
    /// The graph that does the work.
    pub(crate) graph: String,
    /// Where the messages are in the stream of its session that its agent was given with it, its own among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given: Vec<u64>,
    /// True if those were all of the transcript, of which its agent had been given nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) given_all: bool,
    /// Where those are that its run was given besides when its turn came: no run before it had been given them, or had kept
    /// them.
    #[serde(rename = "late", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_late: Vec<u64>,
    /// True if its run was then given, too, what its session has of the transcript of another one: its agent had been given
    /// nothing of it.
    #[serde(rename = "past", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) given_past: bool,
    /// True if its run hears, in its midst, what is said to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hears: bool,
    /// True if images stay images in the conversation of its run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) shows: bool,
    /// True if its input is a message that joins the transcript when its turn comes, and has no id until then.
    #[serde(rename = "unsaid", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unsaid: bool,
    /// Number of messages of the graph's conversation that were published; unknown before the first turn has ended.
    #[serde(rename = "told")]
    pub(crate) published_messages: Option<u64>,
    /// True if it was given something that is not public: its final state may hold that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_confidential: bool,
    /// Material of its receipts, and where they are.
    #[serde(default, skip_serializing_if = "ReceiptNotes::is_empty")]
    pub(crate) receipts: ReceiptNotes,
    /// The quotas that it counts against.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) quotas: BTreeSet<QuotaId>,
    /// True if it is part of the work of another task, as what that counts for: it took no place of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_part: bool,
    /// Note of the run that it replays, if it is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replay: Option<Box<ReplayNote>>,
    /// Outcome of a task that has ended, unless it is a document of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Box<Outcome>>,
}

/// Location of the content of an artifact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContentLocation {
    /// It is the final state of this task, or a part of the state.
    pub(crate) state_of: Option<TaskId>,
    /// The part, as a JSON pointer to a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<String>,
    /// It is this image of a conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
}

macro_rules! resources {
    ($($resource:ident $id:ident $own:ty, $one:ident => [$($parent:expr),*];)*) => {$(
        impl Resource for $resource {
            type Id = $id;
            type Own = $own;

            fn envelope(&self) -> &Envelope<$id> {
                &self.envelope
            }

            fn parents(&self) -> Vec<&str> {
                let $one = self;
                let _ = $one;
                let parents: [Option<&str>; _] = [$($parent),*];
                parents.into_iter().flatten().collect()
            }
        }
    )*};
}

resources! {
    Workspace WorkspaceId (), workspace => [];
    Task TaskId TaskIndex, task => [Some(task.session_id.as_str())];
    Branch BranchId (), branch => [branch.session_id.as_ref().map(SessionId::as_str)];
    Vault VaultId (), vault => [];
    Persona PersonaId (), persona => [];
    Quota QuotaId QuotaIndex, quota => [];
    Connector ConnectorId ConnectorIndex, connector => [];
    Memory MemoryId MemoryIndex, memory => [(memory.scope == MemoryScope::Session).then_some(memory.owner_id.as_str())];
    PermissionRequest PermissionRequestId (), request => [
        request.session_id.as_ref().map(SessionId::as_str), request.task_id.as_ref().map(TaskId::as_str)
    ];
}

impl Resource for Session {
    type Id = SessionId;
    type Own = SessionIndex;

    const HAS_STREAM: bool = true;

    fn envelope(&self) -> &Envelope<SessionId> {
        &self.envelope
    }

    fn parents(&self) -> Vec<&str> {
        Vec::new()
    }

    fn take_end(kept: &mut Kept<Self>, known: Map) -> Result<(), StoreError> {
        let id = kept.resource.envelope.id.clone();
        let end: SessionEnd = serde_json::from_value(Value::Object(known))
            .map_err(|error| StoreError::Corrupt(format!("the end of the stream of {id}: {error}")))?;
        let resource = &mut kept.resource;
        let position = end.own.position;
        (resource.state, resource.envelope.updated_at) = (end.state, end.updated_at);
        resource.last_event_id = (position > 0).then(|| EventId::at(id.as_str(), position));
        kept.own = end.own;
        Ok(())
    }
}

impl Resource for Outcome {
    type Id = OutcomeId;
    type Own = ();

    const IS_LISTED: bool = false;

    fn envelope(&self) -> &Envelope<OutcomeId> {
        &self.envelope
    }

    fn parents(&self) -> Vec<&str> {
        vec![self.task_id.as_str()]
    }
}

impl Resource for Artifact {
    type Id = ArtifactId;
    type Own = ContentLocation;

    fn envelope(&self) -> &Envelope<ArtifactId> {
        &self.envelope
    }

    fn parents(&self) -> Vec<&str> {
        let session = self.session_id.as_ref().map(SessionId::as_str);
        [session, self.task_id.as_ref().map(TaskId::as_str)].into_iter().flatten().collect()
    }

    /// Shows the location of the content for what is public; that may be the content itself. Shows its hash, from which
    /// a short content can be found, also for what is only proved.
    fn shown(self) -> Self {
        let (uri, sha256) = match self.visibility {
            PartVisibility::Public => (self.uri, self.sha256),
            PartVisibility::ReceiptOnly => (None, self.sha256),
            PartVisibility::Internal => (None, None),
        };
        Self { uri, sha256, ..self }
    }
}
