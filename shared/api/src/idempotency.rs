//! Writes that can be repeated: what a key was answered with is kept together with what it wrote, for 24 hours. Of requests
//! with the same key that come at once, one commit succeeds; the others find what it kept, and give its answer.
//!
//! The key of a request that submits a task at its session's address, or says something to a task, is noted in what it writes
//! ([`notes`]), of which its answer is made again.
//!
//! Any other key has a document (kind `idempotency`), which is called by the hash of its scope and holds the answer; so have
//! those of earlier versions, those of which a session has no more notes to make, and those whose answer is in nothing that
//! is written. A commit is refused where the document is there already.
//!
//! The scope's workspace is that of the body, or of the session that the body names; where the path names what is
//! written to, it decides the workspace already, and that part is empty. It is empty, too, where the workspace was chosen for the
//! caller: another one may be chosen when the request comes again, and its answer is the first one all the same.

mod notes;

pub(crate) use notes::{Keeping, notes_key, put_note};
use notes::{KeyNote, Noted, PlacedNote};

use dormouse_ports::{DocumentKey, DocumentWrite};
use dormouse_protocol::id::{PermissionRequestId, SessionId, TaskId, WorkspaceId};
use dormouse_protocol::request::IdempotencyScope;
use dormouse_protocol::resource::{
    CreateSessionRequest, PermissionRequest, RegisterArtifactRequest, Session, SubmitTaskRequest, Task, TaskStatus,
};
use dormouse_protocol::{Envelope, ErrorCode, Event, Operation, ProtocolError};
use futures::future::{BoxFuture, try_join};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::api::json as shown;
use crate::documents::Stored;
use crate::permissions::task_of;
use crate::reads::Reads;
use crate::refusal::{internal, store};
use crate::transcript::message_of;
use crate::{Call, CallAnswer};

/// The kind of the documents.
pub(crate) const KIND: &str = "idempotency";

/// Time for which an answer is kept.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Knows the requests that come again.
#[derive(Clone)]
pub(crate) struct Repetitions {
    pub(crate) reads: Reads,
}

/// What is known of the key of a request before it is written.
pub(crate) enum Sighting {
    /// It was used: the status and the body of the answer.
    Again(u16, Value),
    /// It was not, and is to be kept so.
    New(Keeping),
}

impl Repetitions {
    /// The document that remembers the answer to `call`; none without a key.
    pub(crate) async fn record(
        &self,
        call: &Call,
        status: u16,
        answer: &Value,
    ) -> Result<Option<DocumentWrite>, ProtocolError> {
        let Some(key) = self.key_of(call).await? else { return Ok(None) };
        let tenant = &call.actor.tenant;
        let body = json!({"hash": hash_of(call), "status": status, "answer": answer, "tenant": tenant});
        let Value::Object(body) = body else { return Err(internal(&"an object is an object")) };
        let expires_at = Some(call.now.checked_add(KEPT_FOR).map_err(|error| internal(&error))?);
        Ok(Some(DocumentWrite { key, expect: 0, body: Some(body), listed: Vec::new(), expires_at }))
    }

    /// The answer that the first request with the same key got, if there was one.
    ///
    /// # Errors
    /// `idempotency_key_reused` when that one had another body.
    pub(crate) async fn repeated(&self, call: &Call) -> Result<Option<CallAnswer>, ProtocolError> {
        let again = match self.session_of(call).await? {
            Some(session) => match self.sight(call, &session).await? {
                Sighting::Again(status, answer) => Some((status, answer)),
                Sighting::New(_) => None,
            },
            None => match self.key_of(call).await? {
                Some(key) => self.kept_apart(call, &key).await?,
                None => None,
            },
        };
        Ok(again.map(|(status, answer)| CallAnswer::Repeated(status, answer)))
    }

    /// What is known of the key of `call`, which writes to `session` on the condition that its stream has not grown since
    /// that was read: what is read here is read behind that, so that nothing can come in between.
    ///
    /// # Errors
    /// `idempotency_key_reused` when it was used with another body.
    pub(crate) fn sight<'a>(
        &'a self,
        call: &'a Call,
        session: &'a Stored<Session>,
    ) -> BoxFuture<'a, Result<Sighting, ProtocolError>> {
        // Most that is written has no key: what is read for one is on no stack.
        Box::pin(async move {
            let Some(noted) = Noted::of(call.operation) else { return Ok(Sighting::New(Keeping::Untold)) };
            let Some(key) = self.key_of(call).await? else { return Ok(Sighting::New(Keeping::Untold)) };
            let own = &session.kept.own;
            let stream = session.kept.resource.envelope.id.as_str();
            let may_be_apart = own.keyed.is_none() || own.apart_until.is_some_and(|until| until > call.now);
            let apart = async { if may_be_apart { self.kept_apart(call, &key).await } else { Ok(None) } };
            let (apart, newest) = try_join(apart, self.note_at(stream, own.keyed.unwrap_or_default())).await?;
            if let Some((status, answer)) = apart {
                return Ok(Sighting::Again(status, answer));
            }
            let note = KeyNote::of(call, &key);
            let Some(newest) = newest else { return Ok(Sighting::New(Keeping::Noted(note))) };
            let older;
            let first = if newest.note.scope == note.scope {
                Some(&newest)
            } else {
                older = self.older(stream, &newest, &note.scope).await?;
                older.as_ref()
            };
            if let Some(first) = first.filter(|first| first.age(call.now) < KEPT_FOR) {
                if first.note.body != note.body {
                    return Err(ProtocolError::idempotency_key_reused());
                }
                let answer = self.answer_of(call, noted, &first.event).await?;
                return Ok(Sighting::Again(call.operation.spec().output.status(), answer));
            }
            let note = note.behind(&newest, (own.position + 1, call.now));
            Ok(Sighting::New(note.map_or(Keeping::Apart, Keeping::Noted)))
        })
    }

    /// The answer in the document called `key`, if it is there.
    ///
    /// # Errors
    /// `idempotency_key_reused` when the request had another body, or its answer is of a workspace that the caller does not reach.
    async fn kept_apart(&self, call: &Call, key: &DocumentKey) -> Result<Option<(u16, Value)>, ProtocolError> {
        let Some(document) = self.reads.records().document(key, call.now).await.map_err(store)? else {
            return Ok(None);
        };
        let field = |name: &str| document.body.get(name).cloned().unwrap_or_default();
        if field("hash") != hash_of(call) {
            return Err(ProtocolError::idempotency_key_reused());
        }
        let answer = field("answer");
        let workspace = answer.get("workspace_id").and_then(Value::as_str).map(|id| WorkspaceId::from(id.to_owned()));
        if !call.actor.reaches(workspace.as_ref()) {
            let message = "the key was used with another API key of the same actor, in a workspace that this one does not reach: \
                use another key for repetitions";
            return Err(ProtocolError::new(ErrorCode::IdempotencyKeyReused, message));
        }
        let status = field("status").as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.ok_or_else(|| internal(&"an idempotency document without a status"))?;
        Ok(Some((status, answer)))
    }

    /// The note in the event of `stream` at `position`; none at 0, and where it cannot be read.
    async fn note_at(&self, stream: &str, position: u64) -> Result<Option<PlacedNote>, ProtocolError> {
        if position == 0 {
            return Ok(None);
        }
        let entry = self.reads.records().entry(stream, position).await.map_err(store)?;
        Ok(entry.and_then(|entry| PlacedNote::read(stream, position, entry.entry)))
    }

    /// The newest note of `scope` before `newest`.
    async fn older(&self, stream: &str, newest: &PlacedNote, scope: &str) -> Result<Option<PlacedNote>, ProtocolError> {
        for position in newest.places_before(scope) {
            if let Some(found) = self.note_at(stream, position).await?
                && found.note.scope == scope
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// What the request was answered with that wrote `event`, the first of its events.
    ///
    /// # Errors
    /// `resource_not_found` where what it is made of is not there any more: its session is being erased.
    async fn answer_of(&self, call: &Call, noted: Noted, event: &Event) -> Result<Value, ProtocolError> {
        match noted {
            Noted::Submission => {
                let not_found = || ProtocolError::not_found("task");
                let id = event.task_id.as_ref().ok_or_else(not_found)?;
                let task = self.reads.find::<Task>(id, call.now).await?.ok_or_else(not_found)?;
                shown(&as_accepted(task.kept.resource))
            }
            Noted::Message => {
                let message = message_of(event).ok_or_else(|| internal(&"the event of a message holds it"))?;
                shown(&message)
            }
            Noted::Decision => {
                let id = PermissionRequestId::from(call.params.get("request_id"));
                let request = self.reads.find::<PermissionRequest>(&id, call.now).await?;
                let request = request.ok_or_else(|| ProtocolError::not_found("permission_request"))?;
                shown(&request.kept.resource)
            }
        }
    }

    /// The session whose stream notes the key of `call`.
    async fn session_of(&self, call: &Call) -> Result<Option<Stored<Session>>, ProtocolError> {
        let noted = Noted::of(call.operation).filter(|_| call.idempotency_key.is_some());
        let task = match noted {
            Some(Noted::Submission) => {
                return self.noting(call, &SessionId::from(call.params.get("session_id"))).await;
            }
            Some(Noted::Message) => Some(TaskId::from(call.params.get("task_id"))),
            Some(Noted::Decision) => task_of(&PermissionRequestId::from(call.params.get("request_id"))),
            None => None,
        };
        let Some(task) = task else { return Ok(None) };
        match self.reads.find::<Task>(&task, call.now).await? {
            Some(task) => self.noting(call, &task.kept.resource.session_id).await,
            None => Ok(None),
        }
    }

    /// `session`, also where it was deleted since; none where the caller may not know of it.
    async fn noting(&self, call: &Call, session: &SessionId) -> Result<Option<Stored<Session>>, ProtocolError> {
        let session = self.reads.find::<Session>(session, call.now).await?;
        Ok(session.filter(|session| session.is_deleted_to(&call.actor).is_some()))
    }

    async fn key_of(&self, call: &Call) -> Result<Option<DocumentKey>, ProtocolError> {
        let Some(key) = &call.idempotency_key else { return Ok(None) };
        let workspace = self.workspace_of(call).await?;
        let scope = IdempotencyScope {
            actor: &format!("{}/{}", call.actor.tenant, call.actor.name),
            workspace_id: &workspace,
            method: call.operation.spec().method,
            target: &call.target,
            key,
        };
        Ok(Some(DocumentKey::new(KIND, scope.id())))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others name what they write to in their path")]
    async fn workspace_of(&self, call: &Call) -> Result<String, ProtocolError> {
        let body = call.body.clone();
        Ok(match call.operation {
            _ if call.is_placed_for_caller => String::new(),
            Operation::CreateSession => body.decode::<CreateSessionRequest>()?.workspace_id.to_string(),
            Operation::RegisterArtifact => {
                let workspace = body.decode::<RegisterArtifactRequest>()?.workspace_id;
                workspace.map(|workspace| workspace.to_string()).unwrap_or_default()
            }
            Operation::SubmitTask => match body.decode::<SubmitTaskRequest>()?.session_id {
                Some(session) => self.workspace_of_session(call, &session).await?,
                None => String::new(),
            },
            _ => String::new(),
        })
    }

    async fn workspace_of_session(&self, call: &Call, session: &SessionId) -> Result<String, ProtocolError> {
        let found = self.reads.find::<Session>(session, call.now).await?.filter(|found| found.is_seen_by(&call.actor));
        Ok(found.map(|found| found.kept.resource.workspace_id.to_string()).unwrap_or_default())
    }
}

/// `task`, which was not queued, as it was when it was submitted: its input, and all that the request said of it, stay.
fn as_accepted(task: Task) -> Task {
    let at = task.envelope.created_at;
    Task {
        envelope: Envelope { updated_at: at, ..task.envelope },
        status: TaskStatus::Working,
        started_at: Some(at),
        receipt_id: None,
        outcome_id: None,
        completed_at: None,
        canceled_at: None,
        failure: None,
        ..task
    }
}

fn hash_of(call: &Call) -> String {
    let hash = match call.is_placed_for_caller {
        true => call.body.clone().without("workspace_id").hash(),
        false => call.body.hash(),
    };
    hex::encode(hash)
}
