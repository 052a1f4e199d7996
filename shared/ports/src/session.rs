use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Map, Owner, Page, SessionId, StoreError, StoredList};

/// Sessions and their leases.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Loads the session `id` and, when `lease` is given, takes its lease in the same step.
    ///
    /// # Errors
    /// [`StoreError::LeaseHeld`] when somebody else holds the lease; nothing changed then.
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError>;

    /// Removes the session `id`; removing what is not there succeeds (sessions §5.3).
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError>;

    /// Lists sessions that pass `filter`, ordered by id where the store can, page by page; `cursor` comes from the
    /// page before.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the cursor is not one of its own.
    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError>;
}

/// The stored form of a session (sessions §2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Whose state it is.
    pub session_id: SessionId,
    /// The session state: the projection of the invoke state (sessions §4).
    pub state: Map,
    /// Version of the schema under which `state` was written; empty when none was declared.
    pub schema_version: String,
    /// Grows by one with every save; what optimistic concurrency compares (sessions §8.2).
    pub version: u64,
    /// When the record was first written.
    pub created_at: Timestamp,
    /// When the record was last written.
    pub updated_at: Timestamp,
}

/// What `list` tells of a session: never its state (sessions §5.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Whose record it is.
    pub session_id: SessionId,
    /// Version of the schema under which it was written.
    pub schema_version: String,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// When it was first written.
    pub created_at: Timestamp,
}

/// Which sessions to list; every condition that is present must hold (sessions §5.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only sessions last written after this instant.
    pub updated_after: Option<Timestamp>,
    /// Only sessions first written after this instant.
    pub created_after: Option<Timestamp>,
    /// Only sessions of this schema version.
    pub schema_version: Option<String>,
}

/// Asks for the exclusive right to run turns of a session until `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Who asks; asking again under the same owner renews.
    pub owner: Owner,
    /// The present instant: a lease that ended before it is free.
    pub now: Timestamp,
    /// When the lease ends by itself.
    pub until: Timestamp,
    /// The end of a lease of somebody else that does not count, because it is [further away](crate::limits::LEASE) than any turn
    /// needs: a clock was wrong. Whoever works under it finds it lost. Only that very lease is passed over: a request that
    /// arrives late takes nobody's.
    pub past: Option<Timestamp>,
}

/// A lease that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub owner: Owner,
    /// Fencing token: larger than that of every earlier lease of the session.
    pub fence: u64,
}

/// What [`Sessions::load_session`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedSession {
    /// The record, or `None` when the session was never saved.
    pub record: Option<SessionRecord>,
    /// The lease, when one was asked for.
    pub lease: Option<Lease>,
    /// When the lease ends by itself that a turn has, or died with; `None` when no turn has one.
    pub leased_until: Option<Timestamp>,
    /// The lists of the record that the store keeps in pieces; goes into [`GrowingLists`](crate::GrowingLists).
    pub stored: Vec<StoredList>,
}
