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
    /// [`StoreError::LeaseHeld`] when another turn holds the lease; nothing changed then.
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
    /// The session.
    pub session_id: SessionId,
    /// The session state: the projection of the invoke state (sessions §4).
    pub state: Map,
    /// Version of the schema under which `state` was written; empty when none was declared.
    pub schema_version: String,
    /// Grows by one with every save; optimistic concurrency compares it (sessions §8.2).
    pub version: u64,
    /// Instant at which the record was first written.
    pub created_at: Timestamp,
    /// Instant at which the record was last written.
    pub updated_at: Timestamp,
}

/// Entry of a session in a `list`: never with its state (sessions §5.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// The session.
    pub session_id: SessionId,
    /// Version of the schema under which it was written.
    pub schema_version: String,
    /// Instant at which it was last written.
    pub updated_at: Timestamp,
    /// Instant at which it was first written.
    pub created_at: Timestamp,
}

/// Selection of the sessions to list; every condition that is present must hold (sessions §5.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only sessions last written after this instant.
    pub updated_after: Option<Timestamp>,
    /// Only sessions first written after this instant.
    pub created_after: Option<Timestamp>,
    /// Only sessions of this schema version.
    pub schema_version: Option<String>,
}

/// Request for the exclusive right to run turns of a session until `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The future holder; asking again under the same owner renews.
    pub owner: Owner,
    /// The present instant: a lease that ended before it is free.
    pub now: Timestamp,
    /// Instant at which the lease ends by itself.
    pub until: Timestamp,
    /// The end of another turn's lease that does not count, because it is [further away](crate::limits::LEASE) than any
    /// turn needs: a clock was wrong. The turn that works under it finds it lost. Only that very lease is passed over:
    /// a request that arrives late takes no other turn's lease.
    pub past: Option<Timestamp>,
    /// The tenant in whose name the turn runs, where there is one: the session is marked as the tenant's.
    pub begun_for: Option<String>,
}

/// A lease that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its holder.
    pub owner: Owner,
    /// Fencing token: larger than that of every earlier lease of the session.
    pub fence: u64,
}

/// Outcome of [`Sessions::load_session`].
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedSession {
    /// The record, or `None` when the session was never saved.
    pub record: Option<SessionRecord>,
    /// The lease, when one was asked for.
    pub lease: Option<Lease>,
    /// Instant at which the lease ends by itself that a turn has, or died with; `None` when no turn has one.
    pub leased_until: Option<Timestamp>,
    /// The turn that has that lease, or died with it.
    pub leased_by: Option<Owner>,
    /// The lists of the record that the store keeps in pieces; goes into [`GrowingLists`](crate::GrowingLists).
    pub stored: Vec<StoredList>,
}
