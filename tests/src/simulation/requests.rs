//! What clients of the protocol ask for. To add something: a variant, its request here, and what its answers mean in
//! `oracle/requests.rs`.

use std::fmt;
use std::sync::LazyLock;

use dormouse_api::Keys;
use dormouse_api::keys::{CHANCE, Grant, KeyToken};
use dormouse_http::Request;
use dormouse_ports::{Journal, Map};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{EventId, PermissionRequestId};
use dormouse_protocol::request::{IDEMPOTENCY_HEADER, LAST_EVENT_ID_HEADER, VERSION_HEADER};
use dormouse_protocol::{PROTOCOL_VERSION, Scope};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::workload::request;

/// How many tasks a quota allows, in all and at once: more than there ever are.
pub(crate) const QUOTA: i64 = 1_000;

/// What somebody asks. Where there is a key, the request may be repeated by it.
#[derive(Clone, Debug)]
pub(crate) enum ProtocolRequest {
    /// A workspace, to begin with.
    Workspace { key: String },
    /// A quota for all tasks in it.
    Quota { key: String, workspace: String },
    /// A session in it, for conversations or for other work.
    Session { key: String, workspace: String, chats: bool },
    /// Do this: what is said, or a payload that is empty.
    Submit { key: String, session: String, graph: &'static str, words: Option<String> },
    /// Say something in a session.
    Say { key: String, session: String, words: String },
    /// Say something to a task that it did not ask for.
    Interrupt { key: String, task: String, words: String },
    /// Go on with this; or where several are asked, this is what one of them says. What comes early was asked by nobody yet.
    Answer { key: String, task: String, part: Option<&'static str>, payload: Map, fits: bool, early: bool },
    /// Go on with this, as the answer to the request for a permission of the first pause.
    Respond { key: String, task: String, payload: Map },
    /// Do not.
    Cancel { key: String, task: String },
    /// What is queued in a session?
    Queue { session: String },
    /// Do what is queued there in this order.
    Reorder { key: String, session: String, tasks: Vec<String> },
    /// Do nothing of what is queued there.
    Empty { key: String, session: String },
    /// How is it going?
    Look { task: String },
    /// What is none of one's business.
    Trespass { task: String, deed: Deed },
    /// Take nothing more.
    Close { key: String, session: String },
    /// Begin another session with the same past.
    Fork { key: String, session: String, chats: bool },
    /// Forget all but so many messages.
    Truncate { key: String, session: String, keep: u64 },
    /// The events of a session behind a position, so many times, one after the other.
    Read { session: String, behind: u64, times: u8 },
    /// The same, as a stream.
    Follow { session: String, behind: u64, times: u8 },
    /// All events behind one, so many times, one after the other.
    ReadAll { behind: Option<EventId>, times: u8 },
}

/// What somebody of another tenant tries with a task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Look,
    Cancel,
    Answer,
}

impl Deed {
    pub(crate) const ALL: [Self; 3] = [Self::Look, Self::Cancel, Self::Answer];
}

impl fmt::Display for ProtocolRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace { key } => write!(f, "workspace {key}"),
            Self::Quota { key, workspace } => write!(f, "quota {key} of {workspace}"),
            Self::Session { key, workspace, .. } => write!(f, "session {key} in {workspace}"),
            Self::Submit { key, session, graph, .. } => write!(f, "task {key} of {graph} in {session}"),
            Self::Say { key, session, words } => write!(f, "message {key} in {session}: {words}"),
            Self::Interrupt { key, task, words } => write!(f, "interruption {key} of {task}: {words}"),
            Self::Answer { key, task, part, payload, .. } => {
                let of = part.map(|part| format!(" of {part}")).unwrap_or_default();
                write!(f, "answer {key} to {task}{of}: {}", Value::Object(payload.clone()))
            }
            Self::Respond { key, task, payload } => {
                write!(f, "response {key} to the request of {task}: {}", Value::Object(payload.clone()))
            }
            Self::Cancel { key, task } => write!(f, "cancellation {key} of {task}"),
            Self::Queue { session } => write!(f, "queue of {session}"),
            Self::Reorder { key, session, tasks } => write!(f, "order {key} of {session}: {}", tasks.join(", ")),
            Self::Empty { key, session } => write!(f, "cancellation {key} of all that is queued in {session}"),
            Self::Look { task } => write!(f, "look at {task}"),
            Self::Trespass { task, deed } => write!(f, "a stranger tries {deed:?} with {task}"),
            Self::Close { key, session } => write!(f, "end {key} of {session}"),
            Self::Fork { key, session, .. } => write!(f, "fork {key} of {session}"),
            Self::Truncate { key, session, keep } => write!(f, "cut {key} of {session} behind {keep} messages"),
            Self::Read { session, behind, .. } => write!(f, "events of {session} behind {behind}"),
            Self::Follow { session, behind, .. } => write!(f, "stream of {session} behind {behind}"),
            Self::ReadAll { behind, .. } => write!(f, "all events behind {behind:?}"),
        }
    }
}

impl ProtocolRequest {
    /// By what it may be repeated.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::Workspace { key }
            | Self::Quota { key, .. }
            | Self::Session { key, .. }
            | Self::Submit { key, .. }
            | Self::Say { key, .. }
            | Self::Interrupt { key, .. }
            | Self::Answer { key, .. }
            | Self::Respond { key, .. }
            | Self::Cancel { key, .. }
            | Self::Reorder { key, .. }
            | Self::Empty { key, .. }
            | Self::Close { key, .. }
            | Self::Fork { key, .. }
            | Self::Truncate { key, .. } => Some(key),
            Self::Look { .. }
            | Self::Queue { .. }
            | Self::Trespass { .. }
            | Self::Read { .. }
            | Self::Follow { .. }
            | Self::ReadAll { .. } => None,
        }
    }

    /// The request that asks for it.
    pub(crate) fn request(&self) -> Request {
        let (method, target, body) = self.parts();
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let mut request = request(method, &target, bytes);
        let token = token(!matches!(self, Self::Trespass { .. }));
        let mut header = |name: &str, value: String| request.headers.push((name.to_ascii_lowercase(), value));
        header("authorization", format!("Bearer {}", token.reveal()));
        header(VERSION_HEADER, PROTOCOL_VERSION.to_owned());
        if let Some(key) = self.key() {
            header(IDEMPOTENCY_HEADER, key.to_owned());
        }
        if let Self::Follow { session, behind: behind @ 1.., .. } = self {
            header(LAST_EVENT_ID_HEADER, EventId::at(session, *behind).to_string());
        }
        request
    }

    fn parts(&self) -> (&'static str, String, Value) {
        let message = |words: &str| json!({ "role": "user", "parts": [{ "type": "text", "text": words }] });
        let (method, target, body) = match self {
            Self::Workspace { key } => ("POST", "workspaces".to_owned(), json!({ "name": key, "root": "/" })),
            Self::Quota { workspace, .. } => {
                let limits = json!({ "tasks": QUOTA, "concurrent_tasks": QUOTA });
                let body = json!({ "scope": "workspace", "owner_id": workspace, "limits": limits });
                ("POST", "quotas".to_owned(), body)
            }
            Self::Session { workspace, chats, .. } => {
                let persona = if *chats { "persona_chat" } else { "persona_journal" };
                ("POST", "sessions".to_owned(), json!({ "workspace_id": workspace, "persona_id": persona }))
            }
            Self::Submit { session, graph, words, .. } => {
                let input = words.as_deref().map_or_else(|| json!({}), message);
                let body = json!({ "persona_id": format!("persona_{graph}"), "input": input });
                ("POST", format!("sessions/{session}/tasks"), body)
            }
            Self::Say { session, words, .. } => {
                ("POST", format!("sessions/{session}/messages"), json!({ "message": message(words) }))
            }
            Self::Interrupt { task, words, .. } => {
                let body = json!({ "kind": "interrupt", "message": message(words) });
                ("POST", format!("tasks/{task}/messages"), body)
            }
            Self::Answer { task, part, payload, .. } => {
                let parts = json!([{ "type": "json", "value": payload }]);
                let metadata = part.map_or_else(|| json!({}), |part| json!({ "in_reply_to": part }));
                let message = json!({ "role": "user", "parts": parts, "metadata": metadata });
                let body = json!({ "kind": "input", "message": message });
                ("POST", format!("tasks/{task}/messages"), body)
            }
            Self::Respond { task, payload, .. } => {
                let own = task.trim_start_matches("task_");
                let request = format!("{}_{own}.1", PermissionRequestId::OBJECT);
                ("POST", format!("permission-requests/{request}/respond"), json!({ "answer": payload }))
            }
            Self::Queue { session } => ("GET", format!("sessions/{session}/queue"), Value::Null),
            Self::Reorder { session, tasks, .. } => {
                ("PUT", format!("sessions/{session}/queue"), json!({ "task_ids": tasks }))
            }
            Self::Empty { session, .. } => ("DELETE", format!("sessions/{session}/queue"), Value::Null),
            Self::Cancel { task, .. } | Self::Trespass { task, deed: Deed::Cancel } => {
                ("POST", format!("tasks/{task}/cancel"), json!({ "reason": "not needed" }))
            }
            Self::Look { task } | Self::Trespass { task, deed: Deed::Look } => {
                ("GET", format!("tasks/{task}"), Value::Null)
            }
            Self::Trespass { task, deed: Deed::Answer } => {
                let body = json!({ "kind": "input", "message": message("yes") });
                ("POST", format!("tasks/{task}/messages"), body)
            }
            Self::Close { session, .. } => ("POST", format!("sessions/{session}/close"), Value::Null),
            Self::Fork { session, .. } => ("POST", format!("sessions/{session}/fork"), json!({})),
            Self::Truncate { session, keep, .. } => {
                ("POST", format!("sessions/{session}/truncate"), json!({ "keep_first": keep }))
            }
            Self::Read { session, behind, .. } => {
                let behind = (*behind > 0).then(|| EventId::at(session, *behind));
                ("GET", format!("sessions/{session}/events?limit=5{}", cursor(behind.as_ref())), Value::Null)
            }
            Self::Follow { session, .. } => ("GET", format!("sessions/{session}/events/stream"), Value::Null),
            Self::ReadAll { behind, .. } => ("GET", format!("events?limit=7{}", cursor(behind.as_ref())), Value::Null),
        };
        (method, format!("/v1/{target}"), body)
    }
}

fn cursor(behind: Option<&EventId>) -> String {
    behind.map(|id| format!("&after_event_id={id}")).unwrap_or_default()
}

/// What the clients present, and somebody of another tenant.
static CLIENT: LazyLock<KeyToken> = LazyLock::new(|| KeyToken::generate([7; CHANCE]));
static STRANGER: LazyLock<KeyToken> = LazyLock::new(|| KeyToken::generate([9; CHANCE]));

/// The tenants of both.
const TENANTS: [&str; 2] = ["acme", "elsewhere"];

/// The tenant whose tasks there are, or the other one.
pub(crate) fn tenant(own: bool) -> &'static str {
    TENANTS[usize::from(!own)]
}

/// The key of the one, or of the other.
pub(crate) fn token(own: bool) -> &'static KeyToken {
    if own { &CLIENT } else { &STRANGER }
}

/// What has to be written for both to be known.
pub(crate) fn keys(now: Timestamp) -> [Journal; 2] {
    [("ada", true), ("mallory", false)].map(|(actor, own)| {
        let actor = actor.to_owned();
        let (tenant, token) = (tenant(own).to_owned(), token(own));
        let scopes = Scope::ALL.iter().copied().collect();
        Keys::creation(token, Grant { actor, tenant, workspaces: None, scopes, expires_at: None }, now)
    })
}
