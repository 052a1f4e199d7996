use jiff::Timestamp;

use crate::{Commits, Diagnostics, Invocations, Maintenance, RuleEntries, Sessions, Signals, Sleepers};

/// A whole store of durable state: what one adapter implements, for what composes a process. Every call is atomic, and
/// every read strongly consistent.
pub trait StateStore:
    Sessions + Invocations + Signals + Commits + Sleepers + RuleEntries + Maintenance + Diagnostics
{
}

impl<S> StateStore for S where
    S: Sessions + Invocations + Signals + Commits + Sleepers + RuleEntries + Maintenance + Diagnostics + ?Sized
{
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
