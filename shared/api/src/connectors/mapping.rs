//! What a delivery becomes.

use std::collections::BTreeMap;

use dormouse_protocol::id::TaskId;
use dormouse_protocol::request::{Body, Query};
use dormouse_protocol::resource::Connector;
use dormouse_protocol::{Identifier, Map, Operation, ProtocolError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::documents::Stored;
use crate::refusal::internal;
use crate::{Actor, Call, Proof};

/// Expected mapping of a connector.
pub(super) const MAPPING_FORM: &str = "expected kind (task, message, answer or model), and JSON pointers into the body";

/// Bytes of the longest pointer into the body of a delivery.
const LONGEST_POINTER: usize = 512;

/// The kinds of events that tell of a model call, and where they have its id: as OpenAI's Responses has them.
pub(super) const OF_RESPONSES: &str = "response.";
const RESPONSE: &str = "/data/id";

/// Use of a delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Mapping {
    /// A task with these fields in its input: JSON pointers into the body; the whole body without any.
    Task {
        #[serde(default)]
        fields: BTreeMap<String, String>,
        /// The text that a conversation is given instead: a JSON pointer.
        #[serde(default)]
        text: Option<String>,
    },
    /// A message to the session: a JSON pointer to its text; the whole body without one.
    Message {
        #[serde(default)]
        text: Option<String>,
    },
    /// The answer of the task that this pointer leads to.
    Answer {
        task: String,
        #[serde(default)]
        fields: BTreeMap<String, String>,
    },
    /// The end of the model call with the id at this pointer.
    Model {
        #[serde(default = "usual_job")]
        job: String,
    },
}

fn usual_job() -> String {
    RESPONSE.to_owned()
}

impl Mapping {
    pub(super) fn check(&self) -> Result<(), ProtocolError> {
        let pointers: Vec<&String> = match self {
            Self::Task { fields, text } => fields.values().chain(text).collect(),
            Self::Message { text } => text.iter().collect(),
            Self::Answer { task, fields } => fields.values().chain(Some(task)).collect(),
            Self::Model { job } => vec![job],
        };
        if pointers.iter().all(|text| is_pointer(text)) {
            return Ok(());
        }
        let message =
            format!("expected JSON pointers into the body, like /issue/title, of at most {LONGEST_POINTER} bytes");
        Err(ProtocolError::invalid("mapping", message))
    }
}

/// True if `text` is a JSON pointer (RFC 6901): a tilde stands before a 0 or a 1 only.
fn is_pointer(text: &str) -> bool {
    let tildes = text.split('~').skip(1).all(|behind| behind.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && tildes && text.len() <= LONGEST_POINTER
}

/// The call that `body` becomes by `mapping`.
pub(super) fn delivered(
    connector: &Stored<Connector>,
    mapping: &Mapping,
    body: &Value,
    now: Timestamp,
) -> Result<Call, ProtocolError> {
    let resource = &connector.kept.resource;
    let session = resource.target_session_id.as_ref().ok_or_else(|| internal(&"a connector without a session"))?;
    let says =
        |text: String| json!({ "role": "user", "parts": [{ "type": "text", "text": text, "visibility": "public" }] });
    let (operation, path, request) = match mapping {
        Mapping::Task { fields, text } => {
            let input = match text {
                Some(pointer) => says(text_at(body, pointer)?),
                None => Value::Object(fields_of(body, fields)?),
            };
            let request = json!({ "input": input, "persona_id": resource.target_persona_id,
                "metadata": { "connector_id": resource.envelope.id } });
            (Operation::SubmitSessionTask, format!("/v1/sessions/{session}/tasks"), request)
        }
        Mapping::Message { text } => {
            let text = text.as_ref().map_or_else(|| Ok(body.to_string()), |pointer| text_at(body, pointer))?;
            (
                Operation::AppendSessionMessage,
                format!("/v1/sessions/{session}/messages"),
                json!({ "message": says(text) }),
            )
        }
        Mapping::Answer { task, fields } => {
            let task = TaskId::from(text_at(body, task)?);
            if !task.is_well_formed() {
                return Err(ProtocolError::not_found("task"));
            }
            let value = Value::Object(fields_of(body, fields)?);
            let message =
                json!({ "role": "user", "parts": [{ "type": "json", "value": value, "visibility": "public" }] });
            (
                Operation::AppendTaskMessage,
                format!("/v1/tasks/{task}/messages"),
                json!({ "kind": "input", "message": message }),
            )
        }
        Mapping::Model { .. } => return Err(internal(&"a model call is no call of the protocol")),
    };
    let Value::Object(request) = request else { return Err(internal(&"an object is an object")) };
    let found = Operation::find(operation.spec().method.as_str(), &path)?;
    // A task is begun in the session that the connector names, and in no other place.
    let is_bound = !(connector.kept.own.is_unbound && matches!(mapping, Mapping::Task { .. }));
    Ok(Call {
        operation,
        params: found.params,
        query: Query::default(),
        body: Body::from(request),
        actor: Actor {
            name: resource.envelope.id.to_string(),
            tenant: connector.kept.tenant.clone(),
            workspaces: is_bound.then(|| [resource.workspace_id.clone()].into()),
            scopes: [].into(),
            quota_id: None,
            proof: Proof::Signature,
            credential: resource.envelope.id.to_string(),
            until: None,
        },
        idempotency_key: None,
        is_placed_for_caller: false,
        target: found.target,
        now,
    })
}

pub(super) fn text_at(body: &Value, pointer: &str) -> Result<String, ProtocolError> {
    match body.pointer(pointer) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) if !other.is_null() => Ok(other.to_string()),
        Some(_) | None => {
            Err(ProtocolError::invalid(pointer, "the body has nothing there, and the connector needs it"))
        }
    }
}

fn fields_of(body: &Value, fields: &BTreeMap<String, String>) -> Result<Map, ProtocolError> {
    if fields.is_empty() {
        return body.as_object().cloned().ok_or_else(|| ProtocolError::invalid("", "the body must be a JSON object"));
    }
    let one = |(name, pointer): (&String, &String)| {
        let missing = || ProtocolError::invalid(pointer, "the body has nothing there, and the connector needs it");
        Ok((name.clone(), body.pointer(pointer).cloned().ok_or_else(missing)?))
    };
    fields.iter().map(one).collect()
}
