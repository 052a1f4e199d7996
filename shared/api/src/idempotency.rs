//! Writes that can be repeated: what a key was answered with is written together with what it wrote.
//!
//! The document of a key (kind `idempotency`) is called by the hash of its scope and counts for 24 hours. Of requests
//! with the same key that come at once, one commit succeeds; the others find its document and give its answer.
//! The scope's workspace is that of the body, or of the session that the body names; where the path names what is
//! written to, it decides the workspace already, and that part is empty. It is empty, too, where the workspace was chosen for the
//! caller: another one may be chosen when the request comes again, and its answer is the first one all the same.

use dormouse_ports::{DocumentKey, DocumentWrite};
use dormouse_protocol::id::SessionId;
use dormouse_protocol::request::IdempotencyScope;
use dormouse_protocol::resource::{CreateSessionRequest, RegisterArtifactRequest, Session, SubmitTaskRequest};
use dormouse_protocol::{Operation, ProtocolError};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::reads::Reads;
use crate::refusal::{internal, store};
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
        let Some(key) = self.key_of(call).await? else { return Ok(None) };
        let Some(document) = self.reads.records().document(&key, call.now).await.map_err(store)? else {
            return Ok(None);
        };
        let field = |name: &str| document.body.get(name).cloned().unwrap_or_default();
        if field("hash") != hash_of(call) {
            return Err(ProtocolError::idempotency_key_reused());
        }
        let status = field("status").as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.ok_or_else(|| internal(&"an idempotency document without a status"))?;
        Ok(Some(CallAnswer::Repeated(status, field("answer"))))
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

fn hash_of(call: &Call) -> String {
    let hash = match call.is_placed_for_caller {
        true => call.body.clone().without("workspace_id").hash(),
        false => call.body.hash(),
    };
    hex::encode(hash)
}
