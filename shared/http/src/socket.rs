//! A connection over which a client follows a stream of events and sends commands: the frames of WebSockets, without
//! their transport. Each frame is a JSON object with a `type`.
//!
//! | the server sends | means |
//! |---|---|
//! | `event` | `event`: what happened; `replayed: true` for what had happened before the socket was opened or resumed |
//! | `result` | answer to the command `id`: `status` and `body` as the same request over HTTP has them |
//! | `error` | refusal of the command `id`, or the end of the stream, with `error` as over HTTP |
//! | `pong`, `ping` | answer to a `ping`; a sign of life, to which no answer is needed |
//!
//! | the client sends | does | needs |
//! |---|---|---|
//! | `input`, `tool_confirmation`, `interrupt` | a message to a task | `message`; `task_id` |
//! | `approval` | answers a request for a permission | `request_id`, and the fields of the answer |
//! | `cancel` | cancels a task | `task_id`; may have `reason` |
//! | `message` | appends to a session | `message`; `session_id` |
//! | `task` | submits a task | `input`, and the other fields of a task; `session_id` |
//! | `truncate` | cuts a transcript | `keep_first`; `session_id` |
//! | `resume` | follows the stream anew behind an event | `after_event_id` |
//! | `ping` | asks for a `pong` | |
//!
//! The task or session of the socket's own path needs no naming. Every frame may have an `id`, which comes back with what
//! is said about it, and a command an `idempotency_key`. Commands are the requests of the protocol, with the key with
//! which the socket was opened: a key that is revoked works no longer.
//!
//! A page of a browser, which cannot send headers, offers `bearer.KEY` and the version of the protocol as subprotocols.
//!
//! Where connections are held by a gateway, and no process lives as long as one of them, [`HeldSockets`] does the same.

mod elsewhere;
mod held;
mod record;

use dormouse_api::{Actor, StreamItem};
use dormouse_json::ReadError;
use dormouse_protocol::id::{EventId, PermissionRequestId, SessionId, TaskId};
use dormouse_protocol::operation::Paging;
use dormouse_protocol::request::{
    IDEMPOTENCY_HEADER, IdempotencyKey, LAST_EVENT_ID_HEADER, MAX_BODY_BYTES, VERSION_HEADER, one_of,
};
use dormouse_protocol::{ErrorCode, Event, Identifier, Map, Operation, PROTOCOL_VERSION, ProtocolError};
use futures::stream::{BoxStream, iter};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::findings::holder;
use crate::passage::doubled;
use crate::protocol::DELTA;
use crate::{Content, Findings, ProvedCaller, Request, Response, Server};

pub use elsewhere::CommandsElsewhere;
pub use held::{FOLLOW, FollowCall, HeldParts, HeldSockets};

/// The largest frame that a client may send, in bytes.
pub const LARGEST_FRAME: usize = MAX_BODY_BYTES;

/// Number of frames that cannot be read after which a socket is closed.
const PATIENCE: u32 = 10;

/// Prefix of the subprotocol that holds a key.
const BEARER: &str = "bearer.";

/// The parameter that names the event behind which a stream is followed.
const AFTER: &str = "after_event_id";

/// Where the events of all sessions are listed.
const EVENTS: &str = "/v1/events";

/// An open connection: who opened it, where, and what follows.
pub struct Socket {
    server: Server,
    /// The request by which it was opened, without what concerns the opening alone.
    opened: Request,
    task_id: Option<String>,
    session_id: Option<String>,
    /// The query by which the stream is followed.
    query: String,
    /// Number of frames that could not be read.
    unreadable: u32,
    /// Who opened it; known once it is followed.
    caller: Option<ProvedCaller>,
}

/// A frame that the server sends by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The frame.
    pub text: String,
    /// The event that it tells of: behind it the stream is followed anew.
    pub event_id: Option<EventId>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("path", &self.opened.path).finish_non_exhaustive()
    }
}

/// Frames that a server sends by itself; the end of the stream is the end of the socket.
pub type Frames = BoxStream<'static, Frame>;

/// Outcome of a frame of a client.
pub enum SocketReply {
    /// This is said.
    Frame(String),
    /// The stream begins anew, and these are its frames from now on.
    Resumed(Frames),
    /// The socket is closed, because of this.
    Closed(&'static str),
}

impl std::fmt::Debug for SocketReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Frame(_) => f.write_str("Frame"),
            Self::Resumed(_) => f.write_str("Resumed"),
            Self::Closed(reason) => write!(f, "Closed({reason})"),
        }
    }
}

impl Server {
    /// Opens a socket at the path of a stream. `request` is the one by which the client asked for it.
    ///
    /// # Errors
    /// The response that refuses it, as a stream over HTTP would be.
    pub async fn socket(&self, request: Request) -> Result<(Socket, Frames), Response> {
        let mut socket = Socket::over(self, with_credentials(request))?;
        let (actor, items) = socket.follow(&socket.query).await?;
        socket.caller = ProvedCaller::of(&holder(&actor));
        let now = self.app().now();
        Ok((socket, frames(items, now, None).boxed()))
    }
}

impl Socket {
    /// The socket that `opened`, a request with its credentials, has opened.
    fn over(server: &Server, opened: Request) -> Result<Self, Response> {
        let found = Operation::find("GET", &opened.path).map_err(refusal)?;
        if found.operation.spec().paging != Paging::Stream {
            return Err(refusal(ProtocolError::no_such_route()));
        }
        if let Some((name, message)) = doubled(&opened) {
            return Err(refusal(ProtocolError::invalid(name, message)));
        }
        let place = |name: &str| Some(found.params.get(name)).filter(|id| !id.is_empty()).map(str::to_owned);
        let (task_id, session_id) = (place("task_id"), place("session_id"));
        let query = opened.query.clone();
        Ok(Self { server: server.clone(), opened, task_id, session_id, query, unreadable: 0, caller: None })
    }

    /// The subprotocol that the server chooses of those that the client offered.
    pub fn subprotocol(request: &Request) -> Option<&'static str> {
        let offered = request.header("sec-websocket-protocol")?;
        offered.split(',').any(|one| one.trim() == PROTOCOL_VERSION).then_some(PROTOCOL_VERSION)
    }

    /// What the sender of `request` presents to prove who they are, as the header `Authorization` would have it.
    pub fn authorization(request: &Request) -> Option<String> {
        with_credentials(request.clone()).header("authorization").map(str::to_owned)
    }

    /// Who opened it, where they have proved it by what they presented.
    pub fn caller(&self) -> Option<&ProvedCaller> {
        self.caller.as_ref()
    }

    /// The frame that refuses the frame `text` of a client, of which nothing was done, because of `error`.
    pub fn refusal_of(text: &str, error: ProtocolError) -> String {
        let frame = dormouse_json::read::<Map>(text.as_bytes(), dormouse_json::ENTRY).ok();
        refused(frame.and_then(|frame| frame.get("id").cloned()), error)
    }

    /// What the stream yields that `query` asks for, and who asks.
    async fn follow(&self, query: &str) -> Result<(Actor, BoxStream<'static, StreamItem>), Response> {
        let findings = Findings::default();
        let mut request = Request { query: query.to_owned(), findings, ..self.opened.clone() };
        if query != self.opened.query {
            // It would count before the event that the query names.
            request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(LAST_EVENT_ID_HEADER));
        }
        self.server.follow(&request).await
    }

    /// Takes a frame of the client.
    pub async fn take(&mut self, text: &str) -> SocketReply {
        if text.len() > LARGEST_FRAME {
            return SocketReply::Closed("the frame is too large");
        }
        let frame = match dormouse_json::read_distinct(text.as_bytes(), dormouse_json::ENTRY) {
            Ok(Value::Object(frame)) => frame,
            Err(ReadError::Json(error)) if error.is_data() => {
                return self.not_understood(None, ProtocolError::invalid("frame", error.to_string()));
            }
            Ok(_) | Err(_) => {
                return self.not_understood(None, ProtocolError::invalid("frame", "expected a JSON object"));
            }
        };
        let id = frame.get("id").cloned();
        match frame.get("type").and_then(Value::as_str) {
            Some("ping") => SocketReply::Frame(json!({ "type": "pong", "id": id }).to_string()),
            Some("resume") => self.resume(id, &frame).await,
            Some(kind) => match self.command(kind, &frame) {
                Ok(Some(request)) => SocketReply::Frame(self.ask(id, request).await),
                Ok(None) => self.not_understood(id, ProtocolError::invalid("type", one_of(TYPES, kind))),
                Err(error) => SocketReply::Frame(refused(id, error)),
            },
            None => self.not_understood(id, ProtocolError::invalid("type", "missing required field")),
        }
    }

    fn not_understood(&mut self, id: Option<Value>, error: ProtocolError) -> SocketReply {
        self.unreadable += 1;
        if self.unreadable >= PATIENCE {
            SocketReply::Closed("too many frames cannot be read")
        } else {
            SocketReply::Frame(refused(id, error))
        }
    }

    async fn resume(&mut self, id: Option<Value>, frame: &Map) -> SocketReply {
        let after = frame.get(AFTER).and_then(Value::as_str).unwrap_or_default();
        let is_plain = after.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte));
        if after.is_empty() || !is_plain {
            return SocketReply::Frame(refused(id, ProtocolError::cursor_expired(AFTER)));
        }
        if let Some(refusal) = self.not_in_all(after).await {
            return SocketReply::Frame(told(id, refusal));
        }
        let query = behind(&self.query, after);
        match self.follow(&query).await {
            Ok((_, items)) => {
                let mut items = items.fuse();
                // What refuses the event stands there at once: the stream before goes on then, and the socket with it.
                let first = items.next().now_or_never().flatten();
                if let Some(StreamItem::Failed { error, .. }) = first {
                    let (status, error) = (error.error.code.status(), error.error);
                    let refused = json!({ "type": "error", "id": id, "status": status, "error": error });
                    return SocketReply::Frame(refused.to_string());
                }
                self.query = query;
                let items = iter(first).chain(items).boxed();
                SocketReply::Resumed(frames(items, self.server.app().now(), None).boxed())
            }
            Err(response) => SocketReply::Frame(told(id, response)),
        }
    }

    /// The refusal of a stream of all sessions to go on behind the event `after`, which is none of theirs: it looks for that
    /// only when it is read, and the stream before has ended then.
    async fn not_in_all(&self, after: &str) -> Option<Response> {
        if self.task_id.is_some() || self.session_id.is_some() {
            return None;
        }
        let (path, query) = (EVENTS.to_owned(), behind("limit=1", after));
        let asked = Request { path, query, findings: Findings::default(), ..self.opened.clone() };
        let response = self.server.http(asked).await;
        (response.status == ErrorCode::CursorExpired.status()).then_some(response)
    }

    /// The request that a command makes; `None` for a type that is not known.
    fn command(&self, kind: &str, frame: &Map) -> Result<Option<Request>, ProtocolError> {
        let task = || named::<TaskId>(frame, "task_id", self.task_id.as_deref());
        let session = || named::<SessionId>(frame, "session_id", self.session_id.as_deref());
        let but = |names: &[&str]| {
            let kept =
                frame.iter().filter(|(name, _)| !names.contains(&name.as_str()) && !ENVELOPE.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        };
        let (path, body) = match kind {
            "input" | "tool_confirmation" | "interrupt" => {
                let mut body = but(&["task_id"]);
                body["kind"] = kind.into();
                (format!("/v1/tasks/{}/messages", task()?), body)
            }
            "approval" => {
                let request = named::<PermissionRequestId>(frame, "request_id", None)?;
                (format!("/v1/permission-requests/{request}/respond"), but(&["request_id"]))
            }
            "cancel" => (format!("/v1/tasks/{}/cancel", task()?), but(&["task_id"])),
            "message" => (format!("/v1/sessions/{}/messages", session()?), but(&["session_id"])),
            "task" => (format!("/v1/sessions/{}/tasks", session()?), but(&["session_id"])),
            "truncate" => (format!("/v1/sessions/{}/truncate", session()?), but(&["session_id"])),
            _ => return Ok(None),
        };
        let mut headers = self.opened.headers.clone();
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
        if let Some(key) = frame.get("idempotency_key") {
            let key = key.as_str().ok_or_else(|| ProtocolError::invalid("idempotency_key", "expected text"))?;
            // What no header can hold is not sent to another server, and its sender must not think that it may have been.
            IdempotencyKey::read(Some(key))?;
            headers.push((IDEMPOTENCY_HEADER.to_ascii_lowercase(), key.to_owned()));
        }
        let (method, query) = ("POST".to_owned(), String::new());
        let body = body.to_string().into_bytes();
        let findings = Findings::default();
        Ok(Some(Request { method, path, query, headers, body, findings, ..self.opened.clone() }))
    }

    async fn ask(&self, id: Option<Value>, request: Request) -> String {
        told(id, self.server.command(request).await)
    }
}

/// The types of frames that a client sends.
const TYPES: &[&str] =
    &["input", "tool_confirmation", "interrupt", "approval", "cancel", "message", "task", "truncate", "resume", "ping"];

/// Fields of a frame that are no part of its request.
const ENVELOPE: &[&str] = &["type", "id", "idempotency_key"];

/// The id that `frame` has under `name`, or else that of the socket's path.
fn named<I: Identifier>(frame: &Map, name: &str, own: Option<&str>) -> Result<I, ProtocolError> {
    let given = frame.get(name).map(|id| id.as_str().unwrap_or_default());
    let id = given.or(own).ok_or_else(|| ProtocolError::invalid(name, "missing required field"))?;
    Some(I::from(id.to_owned())).filter(I::is_well_formed).ok_or_else(|| ProtocolError::not_found(I::OBJECT))
}

/// `response` as a frame about `id`.
fn told(id: Option<Value>, response: Response) -> String {
    let status = response.status;
    let body = match response.content {
        Content::Whole(bytes) => serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        Content::Live(_) => Value::Null,
    };
    if status < 400 {
        return json!({ "type": "result", "id": id, "status": status, "body": body }).to_string();
    }
    let error = body.get("error").cloned().unwrap_or(body);
    json!({ "type": "error", "id": id, "status": status, "error": error }).to_string()
}

fn refused(id: Option<Value>, error: ProtocolError) -> String {
    told(id, refusal(error))
}

/// The answer to a request that `error` refuses.
fn refusal(error: ProtocolError) -> Response {
    Response::json(error.status(), &json!(error.into_response("socket")))
}

/// `query`, but for what is behind the event `after`.
fn behind(query: &str, after: &str) -> String {
    let others = query.split('&').filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(AFTER));
    others.map(str::to_owned).chain([format!("{AFTER}={after}")]).collect::<Vec<_>>().join("&")
}

/// What a stream yields, as frames. What had happened before `since` is replayed. Of an event with a frame of more than
/// `most` bytes all is told but its payload.
fn frames(
    items: BoxStream<'static, StreamItem>,
    since: Timestamp,
    most: Option<usize>,
) -> impl futures::Stream<Item = Frame> + Send {
    let shown = move |event: &Event| {
        let replayed = event.envelope.created_at < since;
        let mut text = json!({ "type": "event", "replayed": replayed, "event": event }).to_string();
        if most.is_some_and(|most| text.len() > most) {
            let event = Event { payload: Map::new(), ..event.clone() };
            text = json!({ "type": "event", "replayed": replayed, "too_large": true, "event": event }).to_string();
        }
        Frame { text, event_id: Some(event.envelope.id.clone()) }
    };
    let passing = |frame: Value| Frame { text: frame.to_string(), event_id: None };
    items.flat_map(move |item| {
        let frames: Vec<Frame> = match item {
            StreamItem::Events(events) => events.iter().map(shown).collect(),
            StreamItem::Text(pieces) => {
                pieces.iter().map(|piece| passing(json!({ "type": DELTA, "delta": piece }))).collect()
            }
            StreamItem::Heartbeat => vec![passing(json!({ "type": "ping" }))],
            StreamItem::Failed { cursor, error } => {
                vec![passing(json!({ "type": "error", "id": null, "cursor": cursor, "error": error.error }))]
            }
        };
        iter(frames)
    })
}

/// `request` with the headers that its subprotocols stand for, and without those of the opening.
fn with_credentials(mut request: Request) -> Request {
    let offered = request.header("sec-websocket-protocol").unwrap_or_default().to_owned();
    let mut offered = offered.split(',').map(str::trim);
    if request.header("authorization").is_none()
        && let Some(key) = offered.clone().find_map(|one| one.strip_prefix(BEARER))
    {
        request.headers.push(("authorization".to_owned(), format!("Bearer {key}")));
    }
    let version = VERSION_HEADER.to_ascii_lowercase();
    if request.header(&version).is_none() && offered.any(|one| one == PROTOCOL_VERSION) {
        request.headers.push((version, PROTOCOL_VERSION.to_owned()));
    }
    let is_kept = |name: &str| {
        matches!(name, "authorization" | "origin" | "traceparent" | "last-event-id") || name.starts_with("harn-")
    };
    request.headers.retain(|(name, _)| is_kept(name));
    request
}
