//! The audit log: who did what over HTTP, to which thing, and what came of it.
//!
//! Where it is kept, an entry is written before a request that changes something is served, with the outcome `begun`, and
//! once more with its status. One that stays `begun` was served by a process that died, or could not write: whether it
//! had an effect is told by the thing itself. A request that is refused for want of a right is an entry too, reads
//! included. A request whose entry cannot be written is not served.
//!
//! Entries are documents that expire. They name ids, never bodies, keys or tokens.

use std::sync::Arc;

use dormouse_ports::{
    Breadth, Commit, CommitError, Document, DocumentKey, DocumentWrite, Journal, ListRequest, Listed, Map, Page,
    Records, StoreError,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::keys::Writes;

/// Kind of the documents, and the list that all of them stand in, labelled by tenant.
pub(crate) const KIND: &str = "audit";
const LIST: &str = "audit";

/// The longest path that is kept, in bytes.
const LONGEST: usize = 512;

/// By what a caller proved to be who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// By an API key.
    Key,
    /// By a token of an issuer. Entries of earlier versions call that a key.
    Token,
    /// By a signature that the gateway checked.
    Signature,
    /// By an address that was given out.
    Address,
    /// By the signal key.
    SignalKey,
    /// Not at all, where none is asked for.
    Nothing,
}

/// Caller who did it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// The name that resources and events give it, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its tenant, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// By what it proved that.
    pub proof: Proof,
    /// The id of the key, or the subject of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// Operation that was asked for, and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// Caller who asked.
    pub principal: Principal,
    /// The operation by its name, or the method and route.
    pub action: String,
    /// The path of the thing.
    pub thing: String,
    /// By which id the request goes in the logs.
    pub request_id: String,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Instant at which the request was let in.
    pub at: Timestamp,
    /// Caller who asked.
    #[serde(flatten)]
    pub principal: Principal,
    /// The operation by its name, or the method and route.
    pub action: String,
    /// The path of the thing.
    pub thing: String,
    /// By which id the request goes in the logs.
    pub request_id: String,
    /// `begun`, `done` or `refused`.
    pub outcome: String,
    /// The status that it was answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// An entry that is written, and waits for its outcome.
#[derive(Clone, Debug)]
pub struct BegunEntry {
    id: String,
    entry: AuditEntry,
}

/// Request for a page of the log, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only entries of this tenant; without it those of all, and those without a tenant.
    pub tenant: Option<String>,
    /// Only entries of this actor.
    pub actor: Option<String>,
    /// Only what was let in at this instant or later.
    pub since: Option<Timestamp>,
    /// Only what was let in before this instant.
    pub until: Option<Timestamp>,
    /// Position at which the page before ended.
    pub after: Option<String>,
    /// Entries that are looked at, from 1.
    pub limit: usize,
}

/// Keeps the log.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    keep: SignedDuration,
    writes: Arc<Writes>,
}

impl AuditLog {
    /// A log that is kept for `keep`.
    pub(crate) fn new(writes: Arc<Writes>, keep: SignedDuration) -> Self {
        Self { keep, writes }
    }

    /// Writes that `deed` is begun.
    ///
    /// # Errors
    /// [`StoreError`] when it may not have been written: then the deed must not be done.
    pub(crate) async fn begin(&self, deed: Deed, now: Timestamp) -> Result<BegunEntry, StoreError> {
        let id = self.writes.ids.fresh();
        let entry = deed.entry(now, None);
        self.write(&id, 0, &entry, now).await?;
        Ok(BegunEntry { id, entry })
    }

    /// Writes what came of `begun`. Where it cannot, the entry stays as it is.
    pub(crate) async fn end(&self, begun: BegunEntry, status: u16, now: Timestamp) {
        let entry = AuditEntry { outcome: outcome(status).to_owned(), status: Some(status), ..begun.entry };
        if let Err(error) = self.write(&begun.id, 1, &entry, now).await {
            tracing::warn!(%error, request_id = entry.request_id, "an entry of the audit log keeps the outcome `begun`");
        }
    }

    /// Writes that `deed` was refused before anything was begun.
    pub(crate) async fn refused(&self, deed: Deed, status: u16, now: Timestamp) {
        let entry = deed.entry(now, Some(status));
        if let Err(error) = self.write(&self.writes.ids.fresh(), 0, &entry, now).await {
            tracing::warn!(%error, request_id = entry.request_id, "a refusal is missing in the audit log");
        }
    }

    async fn write(&self, id: &str, expect: u64, entry: &AuditEntry, now: Timestamp) -> Result<(), StoreError> {
        let body = match serde_json::to_value(entry) {
            Ok(Value::Object(body)) => body,
            // The type is an object, and all of its keys are text.
            Ok(_) | Err(_) => Map::new(),
        };
        let breadth = Breadth::Wide { label: entry.principal.tenant.clone() };
        let place = Listed { list: LIST.to_owned(), order: order(entry.at, id), breadth };
        let expires_at = now.checked_add(self.keep).ok();
        let key = DocumentKey::new(KIND, id);
        let write = DocumentWrite { key, expect, body: Some(body), listed: vec![place], expires_at };
        let journal = Journal::new(vec![write], Vec::new());
        let commit = Commit { journal, ..Commit::new(self.writes.ids.fresh(), now) };
        match self.writes.commits.commit(&commit).await {
            Ok(()) => Ok(()),
            Err(CommitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }
}

impl Deed {
    fn entry(self, at: Timestamp, status: Option<u16>) -> AuditEntry {
        let Self { principal, action, thing, request_id } = self;
        let thing = thing.chars().take(LONGEST).collect();
        let outcome = status.map_or("begun", outcome).to_owned();
        AuditEntry { at, principal, action, thing, request_id, outcome, status }
    }
}

fn outcome(status: u16) -> &'static str {
    if status < 400 { "done" } else { "refused" }
}

fn order(at: Timestamp, id: &str) -> String {
    format!("{}-{id}", since(at))
}

/// The text that sorts before the places of all entries of `at` and later.
fn since(at: Timestamp) -> String {
    format!("{:020}", at.as_nanosecond().max(0))
}

/// A page of the log, oldest first; an empty one may go on.
///
/// # Errors
/// [`StoreError`] when the store did not answer.
pub async fn audit_page(
    records: &dyn Records,
    query: &AuditQuery,
    now: Timestamp,
) -> Result<Page<AuditEntry>, StoreError> {
    let request = ListRequest {
        list: LIST.to_owned(),
        breadth: Breadth::Wide { label: query.tenant.clone() },
        after: query.after.clone().or_else(|| query.since.map(since)),
        limit: query.limit,
        newest_first: false,
        now,
    };
    let page = records.documents(&request).await?;
    let is_over = |entry: &AuditEntry| query.until.is_some_and(|until| entry.at >= until);
    let entries: Vec<AuditEntry> = page.items.iter().filter_map(read).collect();
    let ended = entries.last().is_some_and(is_over);
    let wanted = |entry: &AuditEntry| {
        let Principal { name, tenant, .. } = &entry.principal;
        let is = |wanted: &Option<String>, is: &Option<String>| wanted.is_none() || wanted == is;
        is(&query.tenant, tenant) && is(&query.actor, name) && !is_over(entry)
    };
    Ok(Page { items: entries.into_iter().filter(wanted).collect(), next: page.next.filter(|_| !ended) })
}

fn read(document: &Document) -> Option<AuditEntry> {
    serde_json::from_value(Value::Object(document.body.clone()))
        .inspect_err(
            |error| tracing::error!(%error, entry = document.key.id, "an entry of the audit log cannot be read"),
        )
        .ok()
}
