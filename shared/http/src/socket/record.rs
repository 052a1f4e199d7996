//! The record of a socket that a gateway holds.

use dormouse_ports::{Document, DocumentKey, DocumentWrite, Map, StoreError};
use dormouse_protocol::cursor::Cursors;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Findings, Request};

/// The kind of the documents.
const KIND: &str = "socket";

/// For how long a record is kept: a gateway closes what is open for two hours.
const KEPT: SignedDuration = SignedDuration::from_mins(130);

/// What is known of an open socket, from one process to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SocketRecord {
    /// The request by which it was opened, the key with it, sealed for this connection: who reads the table alone learns
    /// no key.
    pub(super) sealed: String,
    /// Who has opened it: tenant and name.
    pub(super) tenant: String,
    pub(super) actor: String,
    pub(super) opened_at: Timestamp,
    /// Counts how often its stream was followed anew.
    pub(super) generation: u64,
    /// The query by which the stream is followed now, behind the last event that is known to be sent.
    pub(super) query: String,
    /// What had happened before is replayed.
    pub(super) since: Timestamp,
    /// Instants at which its client was heard, at most some seconds before, and was sent an event.
    pub(super) heard_at: Timestamp,
    pub(super) told_at: Timestamp,
    /// Number of frames that could not be read.
    pub(super) unreadable: u32,
    /// The process that follows the stream.
    pub(super) follower: Option<Follower>,
}

/// A process that follows the stream of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Follower {
    /// Its name; `None` while one was called and has not begun.
    pub(super) owner: Option<String>,
    /// Until when it may be silent: it is dead then.
    pub(super) until: Timestamp,
}

impl Follower {
    pub(super) fn is(&self, owner: &str) -> bool {
        self.owner.as_deref() == Some(owner)
    }
}

impl SocketRecord {
    /// True if nobody follows the stream at `now`, nor is about to.
    pub(super) fn is_unfollowed(&self, now: Timestamp) -> bool {
        self.follower.as_ref().is_none_or(|follower| follower.until <= now)
    }

    /// True if its client resumed in the last `seconds` before `now`.
    pub(super) fn resumed_within(&self, seconds: u32, now: Timestamp) -> bool {
        self.generation > 1 && now.duration_since(self.since) < SignedDuration::from_secs(seconds.into())
    }

    /// Instant at which its client was heard or told something.
    pub(super) fn busy_at(&self) -> Timestamp {
        self.heard_at.max(self.told_at)
    }

    /// From when on it is not there any more.
    pub(super) fn expires_at(&self) -> Timestamp {
        self.opened_at + KEPT
    }

    /// The write of it as the record of the connection `id`, where that has the version `expect`.
    pub(super) fn write(&self, id: &str, expect: u64) -> Result<DocumentWrite, StoreError> {
        written(key(id), expect, self, self.expires_at())
    }
}

/// The name of the record of the connection `id`.
pub(super) fn key(id: &str) -> DocumentKey {
    DocumentKey::new(KIND, id)
}

/// The removal of `document`.
pub(super) fn removal(document: &Document) -> DocumentWrite {
    DocumentWrite::remove(document.key.clone(), document.version)
}

/// The write of `content`, kept until `expires_at`.
pub(super) fn written(
    key: DocumentKey,
    expect: u64,
    content: &impl Serialize,
    expires_at: Timestamp,
) -> Result<DocumentWrite, StoreError> {
    let body: Map = match serde_json::to_value(content) {
        Ok(Value::Object(body)) => body,
        Ok(_) => return Err(StoreError::Invalid(format!("{key} is no object"))),
        Err(error) => return Err(StoreError::Invalid(format!("{key}: {error}"))),
    };
    Ok(DocumentWrite { key, expect, body: Some(body), listed: Vec::new(), expires_at: Some(expires_at) })
}

/// The content of `document`.
pub(super) fn read<T: DeserializeOwned>(document: &Document) -> Result<T, StoreError> {
    let read = serde_json::from_value(Value::Object(document.body.clone()));
    read.map_err(|error| StoreError::Corrupt(format!("{}: {error}", document.key)))
}

/// As much of a request as a socket needs of it.
#[derive(Serialize, Deserialize)]
struct OpenedBy {
    path: String,
    query: String,
    headers: Vec<(String, String)>,
}

/// `request`, sealed for the connection `id` from `now` on.
pub(super) fn sealed(cursors: &Cursors, id: &str, request: &Request, now: Timestamp) -> String {
    let Request { path, query, headers, .. } = request.clone();
    let opened = serde_json::json!(OpenedBy { path, query, headers });
    cursors.seal(&scope(id), &[opened.to_string()], now + KEPT)
}

/// The request that was sealed for the connection `id`; `None` if no secret of today opens it.
pub(super) fn unsealed(cursors: &Cursors, id: &str, sealed: &str, now: Timestamp) -> Option<Request> {
    let opened = cursors.open(&scope(id), sealed, now).ok()?;
    let OpenedBy { path, query, headers } = serde_json::from_str(opened.first()?).ok()?;
    let method = "GET".to_owned();
    Some(Request { method, path, query, headers, findings: Findings::default(), ..Request::default() })
}

/// No list has a name like this: cursors of lists open nothing here.
fn scope(id: &str) -> String {
    format!("socket\0{id}")
}
