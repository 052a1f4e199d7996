use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::{Commits, Diagnostics, Garbage, Invocations, Notes, RuleEntries, Sessions, Signals, Sleepers};

/// A whole store of durable state: what one adapter implements, for what composes a process. Every call is atomic, and
/// every read strongly consistent.
pub trait StateStore:
    Sessions + Invocations + Signals + Commits + RuleEntries + Notes + Sleepers + Diagnostics + Garbage
{
}

impl<S> StateStore for S where
    S: Sessions + Invocations + Signals + Commits + RuleEntries + Notes + Sleepers + Diagnostics + Garbage + ?Sized
{
}

/// What a turn needs of a store, each concern for itself: what stands before one of them replaces that one and leaves the
/// others as they are.
#[derive(Clone)]
pub struct TurnStore {
    /// Sessions and their leases.
    pub sessions: Arc<dyn Sessions>,
    /// What is read of invocations.
    pub invocations: Arc<dyn Invocations>,
    /// Signals.
    pub signals: Arc<dyn Signals>,
    /// Claims and commits.
    pub commits: Arc<dyn Commits>,
    /// The entries of rules on the bus.
    pub rules: Arc<dyn RuleEntries>,
    /// What is left for another process.
    pub notes: Arc<dyn Notes>,
}

/// What sweeps and doctors need of a store beside what a turn does.
#[derive(Clone)]
pub struct MaintenanceStore {
    /// The index of what sleeps.
    pub sleepers: Arc<dyn Sleepers>,
    /// What is read around pauses.
    pub diagnostics: Arc<dyn Diagnostics>,
    /// The removal of what nothing refers to.
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
    /// What the page holds; may be empty although more follows.
    pub items: Vec<T>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<String>,
}

/// Why a store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It did not answer in time, or is throttling; a later attempt may succeed.
    #[error("the state store is unavailable: {0}")]
    Unavailable(String),
    /// The caller may not do this; a later attempt will not succeed.
    #[error("the state store refused the request: {0}")]
    Denied(String),
    /// What is stored cannot be read.
    #[error("a stored record cannot be read: {0}")]
    Corrupt(String),
    /// The data exceed a limit.
    #[error("{what} has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The data are nested too deeply to be read again, or have too many values.
    #[error("{what}: {excess}")]
    TooComplex {
        /// What is.
        what: &'static str,
        /// In which way.
        excess: dormouse_json::Excess,
    },
    /// Somebody else holds the session's lease.
    #[error("another turn of the session is running until {until}")]
    LeaseHeld {
        /// When it ends by itself.
        until: Timestamp,
    },
    /// The request itself makes no sense, for example a foreign cursor.
    #[error("{0}")]
    Invalid(String),
}
