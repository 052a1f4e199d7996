//! Memories: what outlives a task, kept apart from transcripts. A session that is created with memories gives them to
//! its agent with the first task.
//!
//! - A memory is as visible as its owner: that of a session or a workspace for who sees those, that of a persona or the
//!   tenant for the whole tenant. What is of the whole tenant is made and deleted by keys that are bound to no workspace.
//! - Its provenance says who wrote it, and when; claims of the client do not change it.
//! - What is deleted leaves a tombstone: who deleted it and when, nothing of its content. It is not there any more for
//!   clients, and its id is never used again.

use dormouse_ports::{Document, Journal};
use dormouse_protocol::event::redact;
use dormouse_protocol::id::{MemoryId, PersonaId, SessionId, WorkspaceId};
use dormouse_protocol::request::Filters;
use dormouse_protocol::resource::{
    CreateMemoryRequest, Memory, MemoryContent, MemoryScope, PartVisibility, Session, Workspace,
};
use dormouse_protocol::{Envelope, ErrorCode, Map, ProtocolError};
use futures::FutureExt;
use futures::future::ready;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::{Api, Change, found};
use crate::deletion::{Tombstone, place_write};
use crate::documents::Stored;
use crate::lists::Lists;
use crate::page::{Narrowed, PageSource};
use crate::reads::Reads;
use crate::{Call, CallAnswer};

/// Bookkeeping of the server about a memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemoryIndex {
    /// Set where it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tombstone: Option<Tombstone>,
}

impl Lists {
    pub(crate) async fn list_memories(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let Filters { workspace_id, session_id, .. } = Filters::read(&call.query)?;
        let is_in = |memory: &Stored<Memory>| match &workspace_id {
            Some(workspace) => memory.kept.workspace.as_ref() == Some(workspace),
            None => true,
        };
        let one = |document| {
            let memory = Stored::<Memory>::seen(document, &call.actor);
            let memory = memory.filter(|memory| memory.kept.own.tombstone.is_none() && is_in(memory));
            memory.map(|memory| memory.kept.resource)
        };
        let all = |documents: Vec<Document>| ready(Ok(documents.into_iter().map(one).collect())).boxed();
        let narrowed = Narrowed::to(session_id.as_ref().map(SessionId::as_str), workspace_id.as_ref());
        self.page_of(call, &[PageSource::list::<Memory>(&call.actor.tenant, narrowed)], all).await
    }
}

impl Reads {
    pub(crate) async fn get_memory(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let id = MemoryId::from(call.params.get("memory_id"));
        found(&self.remembered(call, &id).await?.kept.resource)
    }

    /// The memory `id`, unless it was deleted.
    ///
    /// # Errors
    /// `resource_not_found`, also for what belongs to others.
    pub(crate) async fn remembered(&self, call: &Call, id: &MemoryId) -> Result<Stored<Memory>, ProtocolError> {
        let memory = self.see::<Memory>(call, id).await?;
        match memory.kept.own.tombstone {
            None => Ok(memory),
            Some(_) => Err(ProtocolError::not_found("memory")),
        }
    }

    /// Checks that the caller may write to `workspace`, or to the whole tenant without one.
    ///
    /// # Errors
    /// `resource_not_found` for a workspace that the caller does not see; `permission_denied` for the tenant where the
    /// key is bound to workspaces.
    pub(crate) async fn check_place(&self, call: &Call, workspace: Option<&WorkspaceId>) -> Result<(), ProtocolError> {
        match workspace {
            Some(workspace) => self.see::<Workspace>(call, workspace).await.map(|_| ()),
            None if call.actor.workspaces.is_some() => {
                let message = "the key is bound to workspaces and cannot write for the whole tenant; name a workspace, or use \
                    a key that is not bound";
                Err(ProtocolError::new(ErrorCode::PermissionDenied, message))
            }
            None => Ok(()),
        }
    }
}

impl Api {
    pub(crate) async fn create_memory(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: CreateMemoryRequest = call.body.clone().decode()?;
        let workspace = self.owner_of(call, &request).await?;
        let mut provenance = redact::object(request.provenance);
        provenance.insert("recorded_by".to_owned(), call.actor.name.as_str().into());
        provenance.insert("recorded_at".to_owned(), json!(call.now));
        let id: MemoryId = self.fresh(call.now);
        let memory = Memory {
            envelope: Envelope::new(id, call.now).with_metadata(redact::object(request.metadata)),
            scope: request.scope,
            owner_id: request.owner_id,
            content: request.content,
            provenance,
            expires_at: None,
            embedding_ref: None,
            visibility: PartVisibility::Public,
            redaction_policy: Map::new(),
            confidence: None,
        };
        let place = workspace.as_ref().map(place_write);
        let stored = Stored::new(&call.actor.tenant, workspace, memory, MemoryIndex::default());
        let writes = place.into_iter().chain([stored.write()?]).collect();
        Change::new(Journal::new(writes, Vec::new()), 201, &stored.kept.resource)
    }

    pub(crate) async fn delete_memory(&self, call: &Call) -> Result<Change, ProtocolError> {
        let mut memory = self.reads.remembered(call, &MemoryId::from(call.params.get("memory_id"))).await?;
        if memory.kept.workspace.is_none() {
            self.reads.check_place(call, None).await?;
        }
        memory.kept.own.tombstone = Some(Tombstone::of(call));
        let resource = &mut memory.kept.resource;
        resource.content = MemoryContent::Text(String::new());
        (resource.provenance, resource.envelope.metadata) = (Map::new(), Map::new());
        resource.envelope.updated_at = call.now;
        Change::new(Journal::new(vec![memory.write()?], Vec::new()), 204, &Value::Null)
    }

    /// The workspace that the owner of a new memory is in, if it is in one.
    async fn owner_of(&self, call: &Call, request: &CreateMemoryRequest) -> Result<Option<WorkspaceId>, ProtocolError> {
        let owner = request.owner_id.as_str();
        match request.scope {
            MemoryScope::Session => {
                let session = self.reads.see::<Session>(call, &SessionId::from(owner)).await?;
                Ok(Some(session.kept.resource.workspace_id))
            }
            MemoryScope::Workspace => {
                let workspace = self.reads.see::<Workspace>(call, &WorkspaceId::from(owner)).await?;
                Ok(Some(workspace.kept.resource.envelope.id))
            }
            MemoryScope::Persona => {
                self.reads.check_place(call, None).await?;
                self.chosen_persona(call, None, Some(&PersonaId::from(owner))).await?;
                Ok(None)
            }
            MemoryScope::Tenant if owner == call.actor.tenant => {
                self.reads.check_place(call, None).await?;
                Ok(None)
            }
            MemoryScope::Tenant => Err(ProtocolError::not_found("tenant")),
        }
    }
}
