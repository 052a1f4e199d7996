use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::{Commits, Diagnostics, Garbage, Invocations, Notes, RuleEntries, Sessions, Signals, Sleepers};

/// A whole store of durable state: one adapter implements it, for the code that composes a process. Every call is
/// atomic, and every read strongly consistent.
pub trait StateStore:
    Sessions + Invocations + Signals + Commits + RuleEntries + Notes + Sleepers + Diagnostics + Garbage
{
}

impl<S> StateStore for S where
    S: Sessions + Invocations + Signals + Commits + RuleEntries + Notes + Sleepers + Diagnostics + Garbage + ?Sized
{
}

/// The ports of a store that a turn needs, each concern for itself: a wrapper of one of them replaces that one and
/// leaves the others as they are.
#[derive(Clone)]
pub struct TurnStore {
    /// Sessions and their leases.
    pub sessions: Arc<dyn Sessions>,
    /// Reads of invocations.
    pub invocations: Arc<dyn Invocations>,
    /// Signals.
    pub signals: Arc<dyn Signals>,
    /// Claims and commits.
    pub commits: Arc<dyn Commits>,
    /// The entries of rules on the bus.
    pub rules: Arc<dyn RuleEntries>,
    /// Texts that are left for another process.
    pub notes: Arc<dyn Notes>,
}

/// The ports of a store that sweeps and doctors need beside those of a turn.
#[derive(Clone)]
pub struct MaintenanceStore {
    /// The index of suspended invocations.
    pub sleepers: Arc<dyn Sleepers>,
    /// Reads around pauses.
    pub diagnostics: Arc<dyn Diagnostics>,
    /// The removal of records that nothing refers to.
    pub garbage: Arc<dyn Garbage>,
}

impl fmt::Debug for TurnStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TurnStore")
    }
}

impl fmt::Debug for MaintenanceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MaintenanceStore")
    }
}

impl<S: StateStore + 'static> From<Arc<S>> for TurnStore {
    fn from(store: Arc<S>) -> Self {
        Self::from(store as Arc<dyn StateStore>)
    }
}

impl From<Arc<dyn StateStore>> for TurnStore {
    fn from(store: Arc<dyn StateStore>) -> Self {
        Self {
            sessions: store.clone(),
            invocations: store.clone(),
            signals: store.clone(),
            commits: store.clone(),
            rules: store.clone(),
            notes: store,
        }
    }
}

impl<S: StateStore + 'static> From<Arc<S>> for MaintenanceStore {
    fn from(store: Arc<S>) -> Self {
        Self::from(store as Arc<dyn StateStore>)
    }
}

impl From<Arc<dyn StateStore>> for MaintenanceStore {
    fn from(store: Arc<dyn StateStore>) -> Self {
        Self { sleepers: store.clone(), diagnostics: store.clone(), garbage: store }
    }
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of the page; may be empty although more follows.
    pub items: Vec<T>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<String>,
}

/// Error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It did not answer in time, or is throttling; a later attempt may succeed.
    #[error("the state store is unavailable: {0}")]
    Unavailable(String),
    /// The caller may not do this; a later attempt will not succeed.
    #[error("the state store refused the request: {0}")]
    Denied(String),
    /// A stored record cannot be read.
    #[error("a stored record cannot be read: {0}")]
    Corrupt(String),
    /// The data exceed a limit.
    #[error("{what} has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// Description of the data.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The data are nested too deeply to be read again, or have too many values.
    #[error("{what}: {excess}")]
    TooComplex {
        /// Description of the data.
        what: &'static str,
        /// The exceeded limit.
        excess: dormouse_json::Excess,
    },
    /// Another turn holds the session's lease.
    #[error("another turn of the session is running until {until}")]
    LeaseHeld {
        /// Instant at which it ends by itself.
        until: Timestamp,
    },
    /// The request itself makes no sense, for example a foreign cursor.
    #[error("{0}")]
    Invalid(String),
}
