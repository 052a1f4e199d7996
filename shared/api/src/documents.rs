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

mod session_index;
mod task_index;

use std::fmt::Debug;

use dormouse_ports::{Breadth, Document, DocumentKey, DocumentWrite, Listed, Map, Records, StoreError, StreamTip};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{
    ArtifactId, BranchId, ConnectorId, EventId, MemoryId, OutcomeId, PermissionRequestId, PersonaId, QuotaId,
    SessionId, TaskId, VaultId, WorkspaceId,
};
use dormouse_protocol::resource::{
    Artifact, Branch, Connector, Memory, MemoryScope, Outcome, PartVisibility, PermissionRequest, Persona, Quota,
    Session, Task, Vault, Workspace,
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
use crate::refusal::internal;

pub(crate) use session_index::{HEARD_AT_ONCE, SessionEnd, SessionIndex, TranscriptSegment};
pub(crate) use task_index::{OpenTask, TaskIndex, TaskProgress, TaskStanding};

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
    /// Number of entries at the end of its stream that the feed does not report yet.
    pub(crate) unreported: u64,
    /// Instant at which this process has last reported its stream to the feed, where it has gone on alone since.
    pub(crate) reported_at: Option<Timestamp>,
    /// The content.
    pub(crate) kept: Kept<R>,
}

impl<R: Resource> Stored<R> {
    /// A resource that is not stored yet.
    pub(crate) fn new(tenant: &str, workspace: Option<WorkspaceId>, resource: R, own: R::Own) -> Self {
        let kept = Kept { tenant: tenant.to_owned(), workspace, resource, own, deleted: None };
        Self { version: 0, is_split: false, told_at: None, unreported: 0, reported_at: None, kept }
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
        Ok(Self { version, is_split, told_at: None, unreported: 0, reported_at: None, kept })
    }

    /// The same, as the end of its stream has it; `None` if that was read before its first event.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the end is none of this kind.
    pub(crate) fn with_end(mut self, tip: StreamTip) -> Result<Option<Self>, StoreError> {
        (self.told_at, self.unreported) = (tip.at, tip.unreported);
        let Some(known) = tip.known else { return Ok((!self.is_split).then_some(self)) };
        R::take_end(&mut self.kept, known)?;
        Ok(Some(self))
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
        let reported_at = if self.unreported == 0 { Some(now) } else { self.reported_at };
        Self { told_at: Some(behind.map_or(now, |behind| behind.max(now))), reported_at, ..self }
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
