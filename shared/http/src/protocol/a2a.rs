//! The JSON-RPC binding of A2A 0.3.0 at `/a2a`, over the same tasks: an A2A context is a session, an A2A task a task.
//!
//! | A2A | here |
//! |---|---|
//! | `message/send` | submits a task, or answers the one that the message names; waits for its end or its next question, unless the client polls |
//! | `message/stream` | the same as server-sent events, artifacts as they are made, which end when the task ends or asks; -32004 where responses are sent whole |
//! | `tasks/resubscribe` | what happens from now on, until the task ends or asks, again if it does already |
//! | `tasks/get`, `tasks/cancel` | the task |
//! | `tasks/pushNotificationConfig/set`, `get`, `list`, `delete` | webhooks of the task's session; -32003 where none are sent |
//! | `agent/getAuthenticatedExtendedCard` | the card, with all agents that the caller finds |
//!
//! A request without an `id` is a notification (JSON-RPC 2.0 §4.1): what it asks for is done, and it is answered 204
//! whatever comes of it. The header `a2a-version` may be missing or name 0.3; another version is -32009. What a limit or a
//! scope refuses is -32010, a code of ours.
//!
//! A message that is sent again with the same `messageId` gets the task that it made. A message without a context begins
//! a session in the workspace that `metadata.workspace_id` names, or else in the newest that the caller reaches. Which
//! persona works is told by `metadata.persona_id`. Content is text and JSON; files are refused (-32005). Everything is
//! asked of the operations of the protocol, with the key and the scopes of the caller.

mod artifacts;
mod asked;
mod push;
mod shown;

use std::time::Duration;

use dormouse_api::{Actor, StreamItem};
use dormouse_json::ReadError;
use dormouse_protocol::id::TaskId;
use dormouse_protocol::request::MAX_BODY_BYTES;
use dormouse_protocol::{ErrorResponse, Identifier, ProtocolError};
use futures::future::{Either, ready, select};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Protocol, card};
use crate::body::is_encoded;
use crate::{Content, Request, Response};
use shown::{Snapshot, is_at_work, moved_to};

/// Path of the binding.
pub(super) const PATH: &str = "/a2a";

/// The methods of its path.
pub(super) const METHODS: [&str; 2] = ["POST", "OPTIONS"];

/// The longest that a client waits for its task in one request, and the time that is kept back of a worker's.
const PATIENCE: Duration = Duration::from_secs(25);
const TO_END: Duration = Duration::from_secs(3);
/// Time between the end of a stream and the next one, for who waits for a task.
const PAUSE: Duration = Duration::from_secs(1);

/// Errors of JSON-RPC 2.0 §5.1 and of A2A 0.3.0 §8.
const PARSE: i64 = -32700;
const REQUEST: i64 = -32600;
const METHOD: i64 = -32601;
const PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;
const NO_TASK: i64 = -32001;
const NOT_CANCELABLE: i64 = -32002;
const NO_PUSH: i64 = -32003;
const NO_STREAM: i64 = -32004;
const CONTENT: i64 = -32005;
const VERSION: i64 = -32009;
/// A limit is reached, or the key does not have the scope: one of the codes that JSON-RPC leaves to servers.
const REFUSED: i64 = -32010;

/// The version that is spoken, and the header in which a client names its own.
const SPOKEN: &str = "0.3";
const VERSION_HEADER: &str = "a2a-version";

/// The methods that answer with a stream.
const STREAMS: [&str; 2] = ["message/stream", "tasks/resubscribe"];

/// An error of JSON-RPC.
struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    fn no_task() -> Self {
        Self::new(NO_TASK, "there is no such task")
    }

    fn no_push() -> Self {
        Self::new(NO_PUSH, "push notifications are not offered; poll, or follow the stream")
    }

    fn no_stream() -> Self {
        let message =
            "streams are not offered at this address: send the message, then poll, or have changes sent to you";
        Self::new(NO_STREAM, message)
    }

    fn version() -> Self {
        Self::new(VERSION, format!("A2A {SPOKEN} is spoken here"))
    }

    /// What the protocol tells of an error, under `code`.
    fn telling(code: i64, told: ErrorResponse) -> Self {
        let told = told.error;
        let data = json!({ "code": told.code, "param": told.param, "details": told.details });
        Self { code, message: told.message, data: Some(data) }
    }

    /// The same, of what came behind the beginning of `task`: its client knows which one it has begun.
    fn about_task(mut self, task: &TaskId) -> Self {
        let mut data = self.data.take().filter(Value::is_object).unwrap_or_else(|| json!({}));
        data["taskId"] = json!(task);
        self.data = Some(data);
        self
    }

    fn object(&self) -> Value {
        let mut object = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            object["data"] = data.clone();
        }
        object
    }
}

/// The name of a method that changes something, as the audit log has it.
fn writes(method: &str) -> Option<&'static str> {
    const ALL: [&str; 5] = [
        "message/send",
        "message/stream",
        "tasks/cancel",
        "tasks/pushNotificationConfig/set",
        "tasks/pushNotificationConfig/delete",
    ];
    ALL.into_iter().find(|one| *one == method)
}

/// A caller, and when it asks.
#[derive(Clone)]
struct Caller {
    actor: Actor,
    now: Timestamp,
    time_left: Option<Duration>,
    request_id: String,
}

impl Caller {
    /// The same caller at `now`, with the time that its worker has left then.
    fn at(&self, now: Timestamp) -> Self {
        let passed = Duration::try_from(now.duration_since(self.now)).unwrap_or_default();
        Self { now, time_left: self.time_left.map(|left| left.saturating_sub(passed)), ..self.clone() }
    }
}

impl Protocol {
    /// Answers a request of A2A.
    ///
    /// # Errors
    /// `unauthenticated`, 405, 413, or that the store does not answer. Everything else is an error of JSON-RPC.
    pub(super) async fn a2a(&self, request: &Request, request_id: &str) -> Result<Response, ProtocolError> {
        if request.method != "POST" {
            return Err(ProtocolError::method_not_allowed(&METHODS));
        }
        let now = self.streaming.admission.clock.now();
        let actor = self.streaming.admission.authenticate(request, now).await?;
        if request.body.len() > MAX_BODY_BYTES {
            return Err(ProtocolError::too_large(MAX_BODY_BYTES));
        }
        if is_encoded(request) {
            return Err(ProtocolError::unsupported_coding());
        }
        let caller = Caller { actor, now, time_left: request.time_left, request_id: request_id.to_owned() };
        let body = match dormouse_json::read_distinct(&request.body, dormouse_json::ENTRY) {
            Ok(body) => body,
            Err(ReadError::Json(error)) if error.is_data() => {
                return Ok(answered(&Value::Null, Err(RpcError::new(REQUEST, error.to_string()))));
            }
            Err(ReadError::Json(_) | ReadError::Excess(_)) => {
                return Ok(answered(&Value::Null, Err(RpcError::new(PARSE, "the body is not JSON"))));
            }
        };
        let id = body.get("id").cloned().unwrap_or_default();
        let is_id = id.is_null() || id.is_string() || id.is_number();
        let method = body.get("method").and_then(Value::as_str);
        let (Some(method), true, true) = (method, is_id, body["jsonrpc"] == "2.0") else {
            return Ok(answered(&Value::Null, Err(RpcError::new(REQUEST, "expected a request of JSON-RPC 2.0"))));
        };
        let is_notification = body.get("id").is_none();
        let objection = if !is_spoken(request.header(VERSION_HEADER)) {
            Some(RpcError::version())
        } else if !self.about.a2a_streams && STREAMS.contains(&method) {
            Some(RpcError::no_stream())
        } else {
            None
        };
        if let Some(objection) = objection {
            return Ok(if is_notification { Response::empty() } else { answered(&id, Err(objection)) });
        }
        let params = body.get("params").cloned().unwrap_or_else(|| json!({}));
        if let Some(action) = writes(method) {
            request.findings.note_action(action);
            self.streaming.admission.begin(request, now).await?;
        }
        if is_notification {
            self.notified(&caller, method, params).await;
            return Ok(Response::empty());
        }
        match method {
            "message/stream" => {
                Ok(self.streamed(id, self.begun(&caller, params).await, Snapshot::is_over, &caller).await)
            }
            "tasks/resubscribe" => {
                Ok(self.streamed(id, self.seen(&caller, params).await, Snapshot::is_ended, &caller).await)
            }
            _ => Ok(answered(&id, self.rpc(&caller, method, params).await)),
        }
    }

    /// Does what a request asks for whose sender wants no answer.
    async fn notified(&self, caller: &Caller, method: &str, params: Value) {
        let done = match method {
            "message/send" | "message/stream" => self.begun(caller, params).await.map(|_| ()),
            "tasks/resubscribe" => Ok(()),
            _ => self.rpc(caller, method, params).await.map(|_| ()),
        };
        if let Err(error) = done {
            tracing::info!(method, code = error.code, "what a notification of A2A asked for was not done");
        }
    }

    async fn rpc(&self, caller: &Caller, method: &str, params: Value) -> Result<Value, RpcError> {
        match method {
            "message/send" => {
                let polls = params["configuration"]["blocking"] == false;
                let snapshot = self.begun(caller, params).await?;
                if polls || snapshot.is_over() { Ok(snapshot.task) } else { self.waited(caller, snapshot).await }
            }
            "tasks/get" => Ok(self.seen(caller, params).await?.task),
            "tasks/cancel" => self.canceled(caller, params).await,
            "agent/getAuthenticatedExtendedCard" => {
                let about = self.about_now(Some(&caller.actor)).await.map_err(|error| asked::refused(&error))?;
                Ok(json!(card::a2a(&about)))
            }
            "tasks/pushNotificationConfig/set" => self.set_push(caller, params).await,
            "tasks/pushNotificationConfig/get" => self.get_push(caller, params).await,
            "tasks/pushNotificationConfig/list" => self.list_push(caller, params).await,
            "tasks/pushNotificationConfig/delete" => self.delete_push(caller, params).await,
            _ => Err(RpcError::new(METHOD, "there is no such method")),
        }
    }

    /// The task of `before` when it has ended or asks, or after a while as it is.
    async fn waited(&self, caller: &Caller, before: Snapshot) -> Result<Value, RpcError> {
        let clock = &self.streaming.admission.clock;
        let caller = caller.at(clock.now());
        let left = caller.time_left.map_or(PATIENCE, |left| left.saturating_sub(TO_END).min(PATIENCE));
        match select(Box::pin(self.settled(&caller, &before)), clock.sleep(left)).await {
            Either::Left(_) | Either::Right(_) => {}
        }
        Ok(self.snapshot(&caller.at(clock.now()), &before.id, before.history).await?.task)
    }

    /// Waits until the task of `before` has ended or asks, or cannot be followed. A stream that ends before that, as each does
    /// with what there is where responses are sent whole, is opened again behind its last event.
    async fn settled(&self, caller: &Caller, before: &Snapshot) {
        let clock = &self.streaming.admission.clock;
        let mut last_event = before.last_event.clone();
        loop {
            let caller = caller.at(clock.now());
            let Ok(mut items) = self.items(&caller, &before.id, last_event.as_deref()).await else { return };
            while let Some(item) = items.next().await {
                match item {
                    StreamItem::Events(events) => {
                        if events.iter().any(|event| moved_to(event).is_some_and(|status| !is_at_work(status))) {
                            return;
                        }
                        last_event = events.last().map(|event| event.envelope.id.to_string()).or(last_event);
                    }
                    StreamItem::Failed { .. } => return,
                    StreamItem::Text(_) | StreamItem::Heartbeat => {}
                }
            }
            // It counts among the caller's until it is gone.
            drop(items);
            clock.sleep(PAUSE).await;
        }
    }

    /// The task as a stream: how it is, and then, if that `is_all` not, what happens to it until it ends or asks.
    async fn streamed(
        &self,
        id: Value,
        begun: Result<Snapshot, RpcError>,
        is_all: fn(&Snapshot) -> bool,
        caller: &Caller,
    ) -> Response {
        let snapshot = match begun {
            Ok(snapshot) => snapshot,
            Err(error) => return answered(&id, Err(error)),
        };
        let mut first = shown::block(&id, &snapshot.task);
        let updates = match is_all(&snapshot) {
            true => None,
            false => match self.items(caller, &snapshot.id, snapshot.last_event.as_deref()).await {
                Ok(updates) => Some(updates),
                Err(error) => {
                    first.push_str(&shown::objection(&id, &asked::task_error(&error)));
                    None
                }
            },
        };
        let is_over = updates.is_none();
        let (about, artifacts) = (snapshot.about(), self.artifacts_for(caller));
        let updates = updates.unwrap_or_else(|| stream::empty().boxed());
        // It ends with the block that is its last one, not with what would come behind that.
        let updates = stream::unfold((updates, is_over), move |(mut updates, is_over)| {
            let (id, about, artifacts) = (id.clone(), about.clone(), artifacts.clone());
            async move {
                let item = if is_over { None } else { updates.next().await }?;
                let made = artifacts.made_in(&item).await;
                let mut is_over = false;
                let block = shown::updates((&id, &about), &item, &made, &mut is_over);
                Some((block, (updates, is_over)))
            }
        });
        let whole = stream::once(ready(first)).chain(updates).map(String::into_bytes);
        Response::new(200, "text/event-stream", Content::Live(whole.boxed()))
    }
}

/// True if a client that names `version` is understood.
fn is_spoken(version: Option<&str>) -> bool {
    let named = version.map(str::trim).filter(|version| !version.is_empty());
    named.is_none_or(|version| {
        version.strip_prefix(SPOKEN).is_some_and(|patch| {
            patch.is_empty() || patch.strip_prefix('.').is_some_and(|digits| digits.parse::<u32>().is_ok())
        })
    })
}

fn known_task(id: &str) -> Result<TaskId, RpcError> {
    Some(TaskId::from(id)).filter(TaskId::is_well_formed).ok_or_else(RpcError::no_task)
}

fn answered(id: &Value, outcome: Result<Value, RpcError>) -> Response {
    let body = match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error.object() }),
    };
    Response::json(200, &body)
}
