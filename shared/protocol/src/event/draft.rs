use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Event, EventKind, redact};
use crate::envelope::{Envelope, Map, ResourcePointer};
use crate::id::{EventId, Identifier, SessionId, TaskId, WorkspaceId};
use crate::replay::ReplayEventMetadata;
use crate::resource::{Artifact, Branch, Message, PartVisibility, Role, Session, Task, TaskMessageKind, TaskStatus};

/// An event before it has its place: everything but ids, numbers and time. Its payload is redacted.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    kind: EventKind,
    resource: ResourcePointer,
    payload: Map,
    session_id: Option<SessionId>,
    task_id: Option<TaskId>,
    workspace_id: Option<WorkspaceId>,
    actor: Option<String>,
    idempotency_key: Option<String>,
    replay: Option<ReplayEventMetadata>,
}

/// Place of an event in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPlace<'a> {
    /// The stream, mostly the id of a session.
    pub stream: &'a str,
    /// Its number in the stream, from 1.
    pub position: u64,
    /// Its number among the events of its resource, from 1.
    pub sequence: u64,
    /// Instant at which it happened.
    pub at: Timestamp,
}

impl Draft {
    /// A fact about `resource`. `payload` loses everything that an event must not hold; one that is no object is kept
    /// under `value`.
    pub fn new(kind: EventKind, resource: ResourcePointer, payload: Value) -> Self {
        let payload = match payload {
            Value::Object(fields) => fields,
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Map::from_iter([("value".to_owned(), other)])
            }
        };
        Self {
            kind,
            resource,
            payload: redact::object(payload),
            session_id: None,
            task_id: None,
            workspace_id: None,
            actor: None,
            idempotency_key: None,
            replay: None,
        }
    }

    /// A session came to be.
    pub fn session_created(session: &Session) -> Self {
        let payload = json!({"state": session.state, "persona_id": session.persona_id});
        Self::of_session(EventKind::SessionCreated, session, payload)
    }

    /// A session was closed.
    pub fn session_closed(session: &Session) -> Self {
        Self::of_session(EventKind::SessionClosed, session, json!({"state": session.state}))
    }

    /// A transcript was cut to its first `kept` turns; `removed` are gone.
    pub fn session_truncated(session: &Session, kept: u64, removed: u64, reason: Option<&str>) -> Self {
        let payload = json!({"kept_turn_count": kept, "removed_turn_count": removed, "reason": reason});
        Self::of_session(EventKind::SessionTruncated, session, payload)
    }

    /// What is queued in `session` begins in another order from now on.
    pub fn queue_changed(session: &Session, queue: &[TaskId]) -> Self {
        let kind = EventKind::from("vendor.dormouse.queue_changed");
        Self::of_session(kind, session, json!({"task_ids": queue}))
    }

    /// `fork` was made of `session`, and takes its history over up to `at`.
    pub fn session_forked(session: &Session, fork: &SessionId, at: Option<&EventId>) -> Self {
        let payload = json!({"forked_session_id": fork, "at_event_id": at});
        Self::of_session(EventKind::SessionThreadForked, session, payload)
    }

    /// A message was appended to a session.
    pub fn message_appended(message: &Message) -> Self {
        let kind = match message.role {
            Role::User => EventKind::UserMessage,
            Role::Assistant | Role::Agent => EventKind::AgentMessage,
            Role::System | Role::Tool => EventKind::SessionMessageAppended,
        };
        Self::of_message(kind, message)
    }

    /// A message was sent to a task.
    pub fn task_message(kind: TaskMessageKind, message: &Message) -> Self {
        let kind = match kind {
            TaskMessageKind::Input => EventKind::UserInputSubmitted,
            TaskMessageKind::ToolConfirmation => EventKind::UserToolConfirmation,
            TaskMessageKind::Interrupt => EventKind::UserMessage,
        };
        Self::of_message(kind, message)
    }

    /// A task was accepted.
    pub fn task_submitted(task: &Task) -> Self {
        let payload =
            json!({"status": task.status, "persona_id": task.persona_id, "parent_task_id": task.parent_task_id});
        Self::of_task(EventKind::TaskSubmitted, task, payload)
    }

    /// A task moved from `before` to the status that it has now, as [`Task::advance`] returns it. `more` joins the
    /// payload: what an input is required for, say.
    pub fn task_moved(kind: EventKind, task: &Task, before: TaskStatus, more: Map) -> Self {
        let mut payload = Map::new();
        payload.insert("status".to_owned(), task.status.as_str().into());
        payload.insert("previous_status".to_owned(), before.as_str().into());
        if let Some(outcome) = &task.outcome_id {
            payload.insert("outcome_id".to_owned(), outcome.as_str().into());
        }
        if let Some(failure) = &task.failure {
            payload.insert("failure".to_owned(), json!(failure));
        }
        payload.extend(more);
        Self::of_task(kind, task, Value::Object(payload))
    }

    /// The agent of a task did something, by its own account.
    pub fn task_recorded(kind: EventKind, task: &Task, payload: Map) -> Self {
        Self::of_task(kind, task, Value::Object(payload))
    }

    /// A client asked to cancel a task.
    pub fn cancel_requested(task: &Task, reason: Option<&str>) -> Self {
        Self::of_task(EventKind::UserCancelRequested, task, json!({"reason": reason}))
    }

    /// A branch came to be.
    pub fn branch_created(branch: &Branch) -> Self {
        let payload = json!({
            "kind": branch.kind, "base_ref": branch.base_ref, "parent_branch_id": branch.parent_branch_id,
        });
        let draft = Self::new(EventKind::BranchCreated, branch.envelope.id.pointer(), payload);
        draft.within(Some(&branch.workspace_id), branch.session_id.as_ref(), branch.task_id.as_ref())
    }

    /// An artifact came to be. Its location and hash are published for public ones only.
    pub fn artifact_created(artifact: &Artifact) -> Self {
        let mut payload = json!({
            "kind": artifact.kind, "mime_type": artifact.mime_type, "visibility": artifact.visibility,
        });
        if artifact.visibility == PartVisibility::Public {
            payload["uri"] = json!(artifact.uri);
            payload["sha256"] = json!(artifact.sha256);
        }
        let draft = Self::new(EventKind::ArtifactCreated, artifact.envelope.id.pointer(), payload);
        let workspace = &artifact.workspace_id;
        let session = &artifact.session_id;
        let task = &artifact.task_id;
        draft.within(workspace.as_ref(), session.as_ref(), task.as_ref())
    }

    /// Names what the fact happened in.
    pub fn within(self, workspace: Option<&WorkspaceId>, session: Option<&SessionId>, task: Option<&TaskId>) -> Self {
        Self { workspace_id: workspace.cloned(), session_id: session.cloned(), task_id: task.cloned(), ..self }
    }

    /// Names who did it, by which idempotent request.
    pub fn by(self, actor: impl Into<String>, idempotency_key: Option<&str>) -> Self {
        Self { actor: Some(actor.into()), idempotency_key: idempotency_key.map(str::to_owned), ..self }
    }

    /// Marks it as repeated by a replay.
    pub fn replayed(self, replay: ReplayEventMetadata) -> Self {
        Self { replay: Some(replay), ..self }
    }

    /// Event that happened.
    pub fn kind(&self) -> &EventKind {
        &self.kind
    }

    /// To what; `sequence` counts by this.
    pub fn resource(&self) -> &ResourcePointer {
        &self.resource
    }

    /// The event at `place`.
    pub fn at(self, place: EventPlace<'_>) -> Event {
        let before = (place.position > 1).then(|| EventId::at(place.stream, place.position - 1));
        Event {
            envelope: Envelope::new(EventId::at(place.stream, place.position), place.at),
            event: self.kind,
            resource: self.resource,
            sequence: place.sequence,
            payload: self.payload,
            trace_id: None,
            span_id: None,
            session_id: self.session_id,
            task_id: self.task_id,
            workspace_id: self.workspace_id,
            actor: self.actor,
            idempotency_key: self.idempotency_key,
            previous_event_id: before,
            receipt_id: None,
            replayed: self.replay.is_some(),
            replay: self.replay,
        }
    }

    fn of_session(kind: EventKind, session: &Session, payload: Value) -> Self {
        let id = &session.envelope.id;
        Self::new(kind, id.pointer(), payload).within(Some(&session.workspace_id), Some(id), None)
    }

    fn of_task(kind: EventKind, task: &Task, payload: Value) -> Self {
        let id = &task.envelope.id;
        Self::new(kind, id.pointer(), payload).within(Some(&task.workspace_id), Some(&task.session_id), Some(id))
    }

    fn of_message(kind: EventKind, message: &Message) -> Self {
        let id = &message.envelope.id;
        let payload = json!({"message_id": id, "role": message.role, "parts": redact::parts(&message.parts)});
        Self::new(kind, id.pointer(), payload).within(None, message.session_id.as_ref(), message.task_id.as_ref())
    }
}
