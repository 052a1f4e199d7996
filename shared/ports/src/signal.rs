use async_trait::async_trait;
use jiff::Timestamp;

use crate::{InvocationId, Map, SignalId, StoreError};

/// Signals by their ids, and those that arrived before any invocation waited for them.
#[async_trait]
pub trait Signals: Send + Sync {
    /// Loads what is known of a signal; an expired buffered signal is not returned (`now` decides).
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError>;

    /// Parks a signal that nobody waits for: only while there is no record of it, or an expired one. Of a signal that
    /// was delivered a late duplicate must not lie in wait for whoever uses its id next.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the payload is too large.
    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError>;
}

/// Everything known of one signal id: ONE item, changed by compare-and-set.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalRecord {
    /// The correlation token.
    pub signal_id: SignalId,
    /// What is the matter with it.
    pub state: SignalState,
}

/// The life of a signal id.
#[derive(Clone, Debug, PartialEq)]
pub enum SignalState {
    /// An invocation sleeps on it.
    Waiting {
        /// Who sleeps.
        invocation_id: InvocationId,
        /// In which of its pauses.
        generation: u64,
    },
    /// It arrived before anybody waited.
    Buffered(BufferedSignal),
    /// Its wait is over; a duplicate is told which invocation it moved.
    Delivered {
        /// Whom it woke.
        invocation_id: InvocationId,
        /// Out of which pause.
        generation: u64,
    },
}

/// A signal that waits for its wait.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferedSignal {
    /// What it carries.
    pub payload: Map,
    /// When it arrived.
    pub received_at: Timestamp,
    /// When it stops counting; a reader ignores it from then on.
    pub expires_at: Timestamp,
}

/// A parked signal that a pause takes up at its beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlySignal {
    /// Its correlation token; one that the pause waits for.
    pub signal_id: SignalId,
    /// What it carries.
    pub payload: Map,
}

/// What became of a signal that nobody waited for yet.
#[derive(Clone, Debug, PartialEq)]
pub enum BufferOutcome {
    /// It is parked now, or was parked before with the same payload.
    Buffered {
        /// Until when it counts.
        expires_at: Timestamp,
    },
    /// Another payload is parked under this id already; the first stands and this one was not stored.
    Occupied,
    /// Somebody waits for it by now, or its wait is over already: look at the record again.
    Changed,
}
