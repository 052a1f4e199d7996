//! What clients of A2A ask, as calls of the protocol.

use dormouse_api::{Call, CallAnswer, StreamItem, StreamOptions};
use dormouse_protocol::id::{SessionId, TaskId, WorkspaceId};
use dormouse_protocol::operation::Operation;
use dormouse_protocol::request::{Body, IdempotencyKey, Query};
use dormouse_protocol::{ErrorCode, Event, Identifier, Map, ProtocolError};
use futures::stream::BoxStream;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shown::Snapshot;
use super::{CONTENT, Caller, INTERNAL, NOT_CANCELABLE, PARAMS, Protocol, REFUSED, REQUEST, RpcError, known_task};
use crate::protocol::admit::check_scope;

/// Number of events of a task that are read for its history, at once and in all: the first 2,000.
const PAGE: usize = 200;
const PAGES: usize = 10;

/// How often a task is read again that has gone on while it was read.
const RACES: u32 = 5;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SendParams {
    message: SentMessage,
    #[serde(default)]
    configuration: Configuration,
    #[serde(default)]
    metadata: Map,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    history_length: Option<usize>,
    push_notification_config: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentMessage {
    message_id: String,
    #[serde(default)]
    role: Option<String>,
    parts: Vec<Map>,
    context_id: Option<String>,
    task_id: Option<String>,
    metadata: Option<Map>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskParams {
    id: String,
    history_length: Option<usize>,
}

/// A request of the protocol that a caller of A2A makes.
pub(super) struct Ask<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    body: Value,
    key: Option<&'a str>,
    /// True if the workspace in the body was chosen for the caller.
    is_placed: bool,
}

impl<'a> Ask<'a> {
    pub(super) fn get(path: &'a str, query: &'a str) -> Self {
        Self { method: "GET", path, query, body: Value::Null, key: None, is_placed: false }
    }

    pub(super) fn post(path: &'a str, body: Value, key: Option<&'a str>) -> Self {
        Self { method: "POST", path, query: "", body, key, is_placed: false }
    }

    pub(super) fn delete(path: &'a str) -> Self {
        Self { method: "DELETE", path, query: "", body: Value::Null, key: None, is_placed: false }
    }
}

impl Protocol {
    /// The task that a message begins or answers.
    pub(super) async fn begun(&self, caller: &Caller, params: Value) -> Result<Snapshot, RpcError> {
        let SendParams { message, configuration, metadata } = read(params)?;
        let parts = message.parts.iter().map(part_of).collect::<Result<Vec<_>, _>>()?;
        if parts.is_empty() {
            return Err(RpcError::new(PARAMS, "expected a message with at least one part"));
        }
        if message.role.as_deref().is_some_and(|role| role != "user") {
            return Err(RpcError::new(PARAMS, "expected a message with the role `user`: the agent speaks for itself"));
        }
        let said = json!({ "role": "user", "parts": parts, "metadata": message.metadata.clone().unwrap_or_default() });
        let history = configuration.history_length;
        let push = self.push_of(caller, configuration.push_notification_config)?;
        let key = Some(message.message_id.as_str());
        if let Some(task) = &message.task_id {
            let task = known_task(task)?;
            if let Some(context) = &message.context_id {
                self.is_in(caller, &task, context).await?;
            }
            let path = format!("/v1/tasks/{task}/messages");
            let body = json!({ "kind": "input", "message": said });
            self.ask(caller, Ask::post(&path, body, key)).await.map_err(|error| task_error(&error))?;
            self.push_with(caller, &task, push).await?;
            return self.snapshot(caller, &task, history).await;
        }
        let named = |name: &str| {
            let of = |map: &Map| map.get(name).and_then(Value::as_str).map(str::to_owned);
            of(&metadata).or_else(|| message.metadata.as_ref().and_then(of))
        };
        let session = match &message.context_id {
            Some(context) => SessionId::from(context.as_str()),
            None => self.new_session(caller, (named("workspace_id"), named("persona_id")), key).await?,
        };
        if !session.is_well_formed() {
            return Err(RpcError::new(PARAMS, "there is no such context"));
        }
        let body = json!({ "input": said, "persona_id": named("persona_id") });
        let path = format!("/v1/sessions/{session}/tasks");
        let task = self.ask(caller, Ask::post(&path, body, key)).await.map_err(|error| refused(&error))?;
        let task = id_in(&task);
        self.push_with(caller, &task, push).await?;
        self.snapshot(caller, &task, history).await
    }

    /// # Errors
    /// There is no task `id`, or it belongs to another context than `context`.
    async fn is_in(&self, caller: &Caller, id: &TaskId, context: &str) -> Result<(), RpcError> {
        let task =
            self.ask(caller, Ask::get(&format!("/v1/tasks/{id}"), "")).await.map_err(|error| task_error(&error))?;
        match task["session_id"] == context {
            true => Ok(()),
            false => Err(RpcError::new(PARAMS, "the task belongs to another context: name its own, or none")),
        }
    }

    /// A session for a message that has no context, which names `workspace` and `persona`. The same message again finds the
    /// same. Of a persona that is not there no session is left.
    async fn new_session(
        &self,
        caller: &Caller,
        (workspace, persona): (Option<String>, Option<String>),
        key: Option<&str>,
    ) -> Result<SessionId, RpcError> {
        let is_placed = workspace.is_none();
        let workspace = match workspace {
            Some(workspace) => WorkspaceId::from(workspace),
            None => self.any_workspace(caller, key).await.map_err(|error| refused(&error))?,
        };
        let body = json!({ "workspace_id": workspace, "persona_id": persona });
        let ask = Ask { is_placed, ..Ask::post("/v1/sessions", body, key) };
        let made = self.ask(caller, ask).await.map_err(|error| refused(&error))?;
        Ok(id_in(&made))
    }

    /// The newest workspace that the caller reaches, or else a new one.
    async fn any_workspace(&self, caller: &Caller, key: Option<&str>) -> Result<WorkspaceId, ProtocolError> {
        // The list is the tenant's: where a key is for few of many workspaces, none of them may be on its first page.
        for id in caller.actor.workspaces.iter().flatten().rev() {
            match self.ask(caller, Ask::get(&format!("/v1/workspaces/{id}"), "")).await {
                Ok(_) => return Ok(id.clone()),
                Err(error) if error.code() == ErrorCode::ResourceNotFound => {}
                Err(error) => return Err(error),
            }
        }
        let list = self.ask(caller, Ask::get("/v1/workspaces", "limit=1")).await?;
        match list["data"][0]["id"].as_str() {
            Some(id) => Ok(WorkspaceId::from(id)),
            None => {
                let made = Ask::post("/v1/workspaces", json!({ "name": "A2A", "root": "/" }), key);
                self.ask(caller, made).await.map(|workspace| id_in(&workspace))
            }
        }
    }

    pub(super) async fn seen(&self, caller: &Caller, params: Value) -> Result<Snapshot, RpcError> {
        let TaskParams { id, history_length } = read(params)?;
        self.snapshot(caller, &known_task(&id)?, history_length).await
    }

    pub(super) async fn canceled(&self, caller: &Caller, params: Value) -> Result<Value, RpcError> {
        let TaskParams { id, history_length } = read(params)?;
        let task = known_task(&id)?;
        // Of the protocol a canceled task can be canceled again; of A2A no task that has ended can.
        if self.snapshot(caller, &task, Some(0)).await?.is_ended() {
            return Err(RpcError::new(NOT_CANCELABLE, "the task has ended already"));
        }
        match self.ask(caller, Ask::post(&format!("/v1/tasks/{task}/cancel"), json!({}), None)).await {
            Ok(_) => Ok(self.snapshot(caller, &task, history_length).await?.task),
            Err(error) if error.code() == ErrorCode::Conflict => {
                Err(RpcError::new(NOT_CANCELABLE, "the task has ended already"))
            }
            Err(error) => Err(task_error(&error)),
        }
    }

    /// The task `id` as A2A shows it. Who goes on behind its last event misses nothing: what happened between the read of the
    /// task and the read of its events is read once more.
    pub(super) async fn snapshot(
        &self,
        caller: &Caller,
        id: &TaskId,
        history: Option<usize>,
    ) -> Result<Snapshot, RpcError> {
        let mut snapshot = self.read_once(caller, id, history).await?;
        for _ in 0..RACES {
            if !snapshot.is_behind {
                break;
            }
            snapshot = self.read_once(caller, id, history).await?;
        }
        if snapshot.is_behind {
            // It goes on faster than it is read: who follows it begins at its beginning, and misses nothing.
            snapshot.last_event = None;
        }
        Ok(snapshot)
    }

    async fn read_once(&self, caller: &Caller, id: &TaskId, history: Option<usize>) -> Result<Snapshot, RpcError> {
        let task = self.ask(caller, Ask::get(&format!("/v1/tasks/{id}"), "")).await;
        let task = task.map_err(|error| task_error(&error))?;
        let mut events: Vec<Event> = Vec::new();
        let mut after = String::new();
        let mut is_whole = false;
        for _ in 0..PAGES {
            let (path, query) = (format!("/v1/tasks/{id}/events"), format!("limit={PAGE}{after}"));
            let page = self.ask(caller, Ask::get(&path, &query)).await.map_err(|error| task_error(&error))?;
            let unreadable = |_| RpcError::new(INTERNAL, "the events of the task cannot be read");
            events.extend(Vec::<Event>::deserialize(&page["data"]).map_err(unreadable)?);
            // Where many events of other tasks lie in between, a page has none of this one and goes on.
            let Some(next) = page["page"]["next_cursor"].as_str() else {
                is_whole = true;
                break;
            };
            after = format!("&after_event_id={next}");
        }
        let artifacts = self.artifacts_for(caller).of(id).await.map_err(|error| refused(&error))?;
        let mut snapshot = Snapshot::of(id, &task, &events, (artifacts, history));
        snapshot.is_behind &= is_whole;
        Ok(snapshot)
    }

    /// What happens to a task behind the event `after`.
    pub(super) async fn items(
        &self,
        caller: &Caller,
        id: &TaskId,
        after: Option<&str>,
    ) -> Result<BoxStream<'static, StreamItem>, ProtocolError> {
        let query = after.map(|id| format!("after_event_id={id}")).unwrap_or_default();
        let call = call_of(caller, &Ask::get(&format!("/v1/tasks/{id}/stream"), &query))?;
        let resume = StreamOptions { last_event_id: None, request_id: &caller.request_id, time_left: caller.time_left };
        self.streaming.begin(call, resume).await
    }

    pub(super) async fn ask(&self, caller: &Caller, ask: Ask<'_>) -> Result<Value, ProtocolError> {
        Ok(value_of(self.streaming.operations.serve(call_of(caller, &ask)?).await?))
    }
}

/// What `answer` says, as far as it is JSON.
pub(super) fn value_of(answer: CallAnswer) -> Value {
    match answer {
        CallAnswer::Json(_, value) | CallAnswer::Repeated(_, value) => value,
        CallAnswer::Bytes { .. } | CallAnswer::Empty => Value::Null,
    }
}

pub(super) fn call_of(caller: &Caller, ask: &Ask<'_>) -> Result<Call, ProtocolError> {
    let found = Operation::find(ask.method, ask.path)?;
    check_scope(&caller.actor, found.operation)?;
    let mut fields = ask.body.as_object().cloned().unwrap_or_default();
    fields.retain(|_, value| !value.is_null());
    Ok(Call {
        operation: found.operation,
        params: found.params,
        query: Query::parse(ask.query)?,
        body: Body::from(fields),
        actor: caller.actor.clone(),
        idempotency_key: IdempotencyKey::read(ask.key)?,
        is_placed_for_caller: ask.is_placed,
        target: found.target,
        now: caller.now,
    })
}

fn id_in<I: Identifier>(resource: &Value) -> I {
    I::from(resource["id"].as_str().unwrap_or_default().to_owned())
}

/// A refusal of the protocol as one of JSON-RPC, with its code, and with its details: which quota it was, say. All that is
/// asked here is offered everywhere, but webhooks.
pub(super) fn refused(error: &ProtocolError) -> RpcError {
    if error.status() == 501 {
        return RpcError::no_push();
    }
    let code = match error.status() {
        500.. => INTERNAL,
        400 | 404 | 409 | 422 => PARAMS,
        403 | 429 => REFUSED,
        _ => REQUEST,
    };
    RpcError::telling(code, error.clone().into_response(""))
}

pub(super) fn task_error(error: &ProtocolError) -> RpcError {
    if error.code() == ErrorCode::ResourceNotFound { RpcError::no_task() } else { refused(error) }
}

pub(super) fn read<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, RpcError> {
    serde_json::from_value(params).map_err(|_| RpcError::new(PARAMS, "the params have not the form of the method"))
}

/// A part of A2A as ours.
fn part_of(part: &Map) -> Result<Value, RpcError> {
    let text = part.get("text").and_then(Value::as_str);
    match (part.get("kind").and_then(Value::as_str), text, part.get("data")) {
        (Some("text"), Some(text), _) => Ok(json!({ "type": "text", "text": text, "visibility": "public" })),
        (Some("data"), _, Some(data)) => Ok(json!({ "type": "json", "value": data, "visibility": "public" })),
        (Some("file"), _, _) => Err(RpcError::new(CONTENT, "files are not taken; send text or data")),
        (_, _, _) => Err(RpcError::new(PARAMS, "expected parts of the kinds text and data")),
    }
}
