//! Artifacts: content that is somewhere else, and the final states of tasks.
//!
//! Clients register artifacts whose bytes are elsewhere; those of a `data:` address are given from here. The final
//! state of a task that holds no conversation is an artifact too, and so is a text in a state that is too long to be told;
//! their bytes are made from the record of the invocation.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_ports::{
    Append, ArtifactPlace, Document, EndOfStream, InvocationId, InvocationRecord, Invocations, Journal, JournalEntry,
    StateArtifact, StreamEnd,
};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::event::{Draft, EventPlace, redact};
use dormouse_protocol::id::{ArtifactId, SessionId, TaskId};
use dormouse_protocol::request::Filters;
use dormouse_protocol::resource::{
    Artifact, ArtifactKind, PartVisibility, RegisterArtifactRequest, Session, Sha256Hex, Task, Workspace,
};
use dormouse_protocol::{Envelope, ErrorCode, ProtocolError};
use futures::future::try_join_all;
use futures::{FutureExt, TryFutureExt};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::{Api, Change, by, found};
use crate::change::{SessionChange, object};
use crate::deletion::place_write;
use crate::documents::{self, ContentLocation, Resource, Stored};
use crate::lists::Lists;
use crate::page::{Narrowed, PageSource};
use crate::reads::Reads;
use crate::refusal::store;
use crate::{Call, CallAnswer, feed, ids, images};

impl Lists {
    pub(crate) async fn list_artifacts(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let Filters { workspace_id, session_id, task_id } = Filters::read(&call.query)?;
        let parent = task_id.as_ref().map(TaskId::as_str).or(session_id.as_ref().map(SessionId::as_str));
        let narrowed = Narrowed::to(parent, workspace_id.as_ref());
        let wanted = |artifact: &Artifact| {
            (workspace_id.is_none() || artifact.workspace_id == workspace_id)
                && (session_id.is_none() || artifact.session_id == session_id)
                && (task_id.is_none() || artifact.task_id == task_id)
        };
        let tasks = match &task_id {
            Some(task) => PageSource::One(documents::key::<Task>(task.as_str())),
            None => PageSource::list::<Task>(&call.actor.tenant, narrowed),
        };
        let artifact = |document: Document| {
            async move {
                if document.key.kind == ArtifactId::OBJECT {
                    return Ok(Stored::<Artifact>::seen(document, &call.actor).map(|one| one.kept.resource));
                }
                match Stored::<Task>::seen(document, &call.actor) {
                    Some(task) => Ok(self.reads.final_state_of(&task, call).await?.map(|one| one.kept.resource)),
                    None => Ok(None),
                }
            }
            .map_ok(|artifact| artifact.filter(wanted).map(Artifact::shown))
        };
        let all = |documents: Vec<Document>| try_join_all(documents.into_iter().map(artifact)).boxed();
        self.page_of(call, &[PageSource::list::<Artifact>(&call.actor.tenant, narrowed), tasks], all).await
    }
}

impl Reads {
    pub(crate) async fn get_artifact(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        found(&self.artifact(call).await?.kept.resource.shown())
    }

    /// The artifact that the path names: one of its own, or the final state of a task.
    ///
    /// # Errors
    /// `resource_not_found`, also for what belongs to others.
    async fn artifact(&self, call: &Call) -> Result<Stored<Artifact>, ProtocolError> {
        let id = ArtifactId::from(call.params.get("artifact_id").to_owned());
        let found = match self.find::<Artifact>(&id, call.now).await? {
            Some(own) => Some(own),
            None => match self.find::<Task>(&ids::of(&id), call.now).await? {
                Some(task) => self.final_state_of(&task, call).await?,
                None => None,
            },
        };
        let found = found.filter(|found| found.is_seen_by(&call.actor));
        found.ok_or_else(|| ProtocolError::not_found(ArtifactId::OBJECT))
    }

    /// The final state of `task` as an artifact, which its outcome names. Those that earlier versions made are documents
    /// and stand in lists by themselves.
    async fn final_state_of(
        &self,
        task: &Stored<Task>,
        call: &Call,
    ) -> Result<Option<Stored<Artifact>>, ProtocolError> {
        let id: ArtifactId = ids::of(&task.kept.resource.envelope.id);
        let outcome = self.outcome_of(task, call).await?;
        let artifact = outcome.and_then(|outcome| outcome.artifacts.into_iter().find(|one| one.envelope.id == id));
        Ok(artifact.map(|artifact| {
            let content = ContentLocation {
                state_of: Some(task.kept.resource.envelope.id.clone()),
                ..ContentLocation::default()
            };
            Stored::new(&task.kept.tenant, task.kept.workspace.clone(), artifact, content)
        }))
    }
}

impl Api {
    /// Registers an artifact in what it belongs to: a task names its session, a session its workspace.
    pub(crate) async fn register_artifact(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: RegisterArtifactRequest = call.body.clone().decode()?;
        let mut session_id = request.session_id;
        let mut workspace_id = request.workspace_id;
        let task = match &request.task_id {
            Some(task) => Some(self.reads.see::<Task>(call, task).await?),
            None => None,
        };
        if let Some(task) = &task {
            session_id = Some(agreed("session_id", session_id, task.kept.resource.session_id.clone())?);
        }
        let session = match &session_id {
            Some(session) => Some(self.reads.see::<Session>(call, session).await?),
            None => None,
        };
        if let Some(session) = &session {
            workspace_id = Some(agreed("workspace_id", workspace_id, session.kept.resource.workspace_id.clone())?);
        } else if let Some(workspace) = &workspace_id {
            self.reads.see::<Workspace>(call, workspace).await?;
        } else if call.actor.workspaces.is_some() {
            return Err(ProtocolError::invalid("workspace_id", "the key is bound to workspaces; name one of them"));
        }
        let sha256 = hash_of(request.uri.as_deref(), request.sha256)?;
        let artifact = Artifact {
            envelope: Envelope::new(self.fresh(call.now), call.now).with_metadata(request.metadata),
            kind: request.kind,
            mime_type: request.mime_type,
            uri: request.uri,
            visibility: request.visibility,
            sha256,
            workspace_id: workspace_id.clone(),
            session_id,
            task_id: request.task_id,
            receipt_id: None,
        };
        let stored = Stored::new(&call.actor.tenant, workspace_id, artifact.clone(), ContentLocation::default());
        let draft = Draft::artifact_created(&artifact);
        let journal = match session {
            Some(session) => {
                let ended = match task {
                    Some(task) => self.reads.ended_in(&session, task, call).await?,
                    None => None,
                };
                let mut change = SessionChange::open(session, by(call), call.now);
                change.emit_new(draft);
                if let Some(task) = ended {
                    change.names_ended(task)?;
                }
                change.put(&stored)?;
                change.close()?.1
            }
            None => {
                let mut journal = alone(call, &stored, draft)?;
                journal.documents.extend(stored.kept.workspace.as_ref().map(place_write));
                journal
            }
        };
        Change::new(journal, 201, &artifact.shown())
    }
}

/// The bytes of artifacts.
#[derive(Clone)]
pub(crate) struct ArtifactContents {
    pub(crate) reads: Reads,
    pub(crate) invocations: Arc<dyn Invocations>,
}

impl ArtifactContents {
    /// The bytes, of public artifacts only. Of what is elsewhere the refusal names the address: its registrant may have
    /// named any, so that no client is redirected there.
    pub(crate) async fn download(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let Stored { kept, .. } = self.reads.artifact(call).await?;
        if kept.resource.visibility != PartVisibility::Public {
            return Err(ProtocolError::new(ErrorCode::PermissionDenied, "the content of the artifact is not public"));
        }
        let uri = kept.resource.uri.as_deref();
        let elsewhere = || {
            let refusal = ProtocolError::new(ErrorCode::ResourceNotFound, "the content of the artifact is not here");
            uri.into_iter().fold(refusal, |refusal, uri| refusal.with_detail("uri", uri))
        };
        if let Some(image) = &kept.own.image {
            let key = images::key_of(Some(&kept.tenant), image);
            let bytes = images::bytes_at(self.reads.records(), &key, call.now).await.map_err(store)?;
            let bytes = bytes.ok_or_else(elsewhere)?;
            return Ok(CallAnswer::Bytes { content_type: kept.resource.mime_type, bytes });
        }
        if let Some(task) = &kept.own.state_of {
            let bytes = match &kept.own.place {
                None => self.final_state(task).await?,
                Some(place) => self.text_at(task, place).await?,
            };
            let bytes = bytes.ok_or_else(elsewhere)?;
            return Ok(CallAnswer::Bytes { content_type: kept.resource.mime_type, bytes });
        }
        let bytes = uri.and_then(data).ok_or_else(elsewhere)?;
        Ok(CallAnswer::Bytes { content_type: kept.resource.mime_type, bytes })
    }

    /// The final state of a task as JSON, without what is private; `None` when the store has forgotten it.
    async fn final_state(&self, task: &TaskId) -> Result<Option<Vec<u8>>, ProtocolError> {
        let state = self.run_of(task).await?.and_then(|record| record.status.into_final_state());
        Ok(state.map(|state| Value::Object(redact::object(state)).to_string().into_bytes()))
    }

    /// The text at `place` of the newest state of a task, without what is private; `None` when the store has forgotten
    /// it, as it does with the states of runs that fail.
    async fn text_at(&self, task: &TaskId, place: &str) -> Result<Option<Vec<u8>>, ProtocolError> {
        let Some(InvocationRecord { status, mut paused, .. }) = self.run_of(task).await? else { return Ok(None) };
        let state = match status.into_final_state() {
            Some(state) => state,
            None => paused.parent_states.drain(..).next().unwrap_or_else(|| paused.state.into_map()),
        };
        let mut state = Value::Object(state);
        let text = state.pointer_mut(place).map(Value::take).map(redact::value);
        Ok(text.as_ref().and_then(Value::as_str).map(|text| text.as_bytes().to_vec()))
    }

    async fn run_of(&self, task: &TaskId) -> Result<Option<InvocationRecord>, ProtocolError> {
        let id = InvocationId::from(task.as_str());
        self.invocations.load_invocation(&id).await.map_err(store)
    }
}

/// Makes what `entry` of `task` leaves artifacts, each once.
///
/// # Errors
/// `internal_error` when it cannot be written.
pub(crate) fn left_by(
    entry: &JournalEntry,
    change: &mut SessionChange,
    task: &Stored<Task>,
) -> Result<(), ProtocolError> {
    entry.artifacts.iter().try_for_each(|left| leave(left, change, task))
}

fn leave(left: &StateArtifact, change: &mut SessionChange, task: &Stored<Task>) -> Result<(), ProtocolError> {
    let of = &task.kept.resource.envelope.id;
    let (name, kind, content, sha256) = match &left.place {
        ArtifactPlace::State(place) => {
            let (state_of, place) = (Some(of.clone()), Some(place.clone()));
            let content = ContentLocation { state_of, place: place.clone(), image: None };
            (format!("{of}{}", place.unwrap_or_default()), ArtifactKind::Log, content, None)
        }
        ArtifactPlace::Image(image) => {
            let content = ContentLocation { image: Some(image.clone()), ..ContentLocation::default() };
            let call = left.metadata.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
            // An image is named by the hash of its bytes.
            let hash = Sha256Hex::parse(image.rsplit('/').next().unwrap_or_default());
            (format!("{of}/{call}/{image}"), ArtifactKind::Image, content, hash)
        }
    };
    let id: ArtifactId = ids::derived(change.now(), &name);
    if change.puts(&documents::key::<Artifact>(id.as_str())) {
        return Ok(());
    }
    let envelope = Envelope::new(id, change.now()).with_metadata(left.metadata.clone());
    let artifact = publish(change, task, envelope, (kind, &left.mime_type), sha256);
    change.put(&Stored::new(change.tenant(), task.kept.workspace.clone(), artifact, content))
}

/// Publishes an artifact of `task`, of some kind and media type, whose bytes are made from its state; `sha256` is their hash,
/// where it is known. Of what is confidential it is not told: something short could be found from it.
pub(crate) fn publish(
    change: &mut SessionChange,
    task: &Stored<Task>,
    envelope: Envelope<ArtifactId>,
    (kind, mime_type): (ArtifactKind, &str),
    sha256: Option<Sha256Hex>,
) -> Artifact {
    let of = &task.kept.resource;
    let is_confidential = task.kept.own.is_confidential;
    let artifact = Artifact {
        envelope,
        kind,
        mime_type: mime_type.to_owned(),
        uri: None,
        visibility: if is_confidential { PartVisibility::Internal } else { PartVisibility::Public },
        sha256: sha256.filter(|_| !is_confidential),
        workspace_id: Some(of.workspace_id.clone()),
        session_id: Some(of.session_id.clone()),
        task_id: Some(of.envelope.id.clone()),
        receipt_id: None,
    };
    change.emit_new(Draft::artifact_created(&artifact));
    artifact
}

/// The hash of the content that `uri` holds; `given` where the content is elsewhere.
///
/// # Errors
/// If `given` is another one.
fn hash_of(uri: Option<&str>, given: Option<Sha256Hex>) -> Result<Option<Sha256Hex>, ProtocolError> {
    let Some(content) = uri.and_then(data) else { return Ok(given) };
    let own = Sha256Hex::parse(&hex::encode(Sha256::digest(&content)));
    if given.is_some() && given != own {
        return Err(ProtocolError::invalid("sha256", "it is not the hash of the content"));
    }
    Ok(own)
}

/// `given`, if it is the one that it must be.
fn agreed<I: PartialEq>(field: &str, given: Option<I>, of: I) -> Result<I, ProtocolError> {
    match given {
        Some(given) if given != of => Err(ProtocolError::invalid(field, "it is another one that the others belong to")),
        Some(_) | None => Ok(of),
    }
}

/// Writes an artifact that belongs to no session, and publishes it in a stream of its own.
fn alone(call: &Call, artifact: &Stored<Artifact>, draft: Draft) -> Result<Journal, ProtocolError> {
    let id: &ArtifactId = &artifact.kept.resource.envelope.id;
    let by = by(call);
    let event = draft.by(by.actor, by.key.as_deref()).at(EventPlace {
        stream: id.as_str(),
        position: 1,
        sequence: 1,
        at: call.now,
    });
    let fed = Some(feed::fed(&call.actor.tenant, artifact.kept.workspace.as_ref()));
    let append = Append {
        stream: id.to_string(),
        end: StreamEnd::Append(EndOfStream::default()),
        first: 1,
        entries: vec![object(&event)?],
        fed,
    };
    Ok(Journal::new(vec![artifact.write()?], vec![append]))
}

/// The content of a `data:` address (RFC 2397).
pub(crate) fn data(uri: &str) -> Option<Vec<u8>> {
    let (head, content) = uri.strip_prefix("data:")?.split_once(',')?;
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(content).collect();
    if head.ends_with(";base64") { STANDARD.decode(bytes).ok() } else { Some(bytes) }
}

#[cfg(test)]
mod tests {
    use super::data;

    #[test]
    fn a_data_address_holds_its_content() {
        assert_eq!(data("data:text/plain,a%20b").as_deref(), Some(&b"a b"[..]));
        assert_eq!(data("data:text/plain;base64,aGk=").as_deref(), Some(&b"hi"[..]));
        assert_eq!(data("data:;base64,%%%"), None);
        assert_eq!(data("https://example.org/a"), None);
    }
}
