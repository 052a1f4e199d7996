use async_trait::async_trait;
use jiff::Timestamp;

use crate::{InvocationId, Map, SignalDescriptor, SignalId, StoreError};

/// Signals by their ids, and those that arrived before any invocation waited for them.
#[async_trait]
pub trait Signals: Send + Sync {
    /// Loads the record of a signal; an expired buffered signal is not returned (`now` decides).
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError>;

    /// Parks a signal that no invocation waits for: only while there is no record of it, or an expired one. A late
    /// duplicate of a delivered signal must not lie in wait for the next invocation that uses its id.
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
    /// State of the signal.
    pub state: SignalState,
}

/// The life of a signal id.
#[derive(Clone, Debug, PartialEq)]
pub enum SignalState {
    /// An invocation sleeps on it.
    Waiting {
        /// Invocation that is suspended.
        invocation_id: InvocationId,
        /// Generation of its pause.
        generation: u64,
    },
    /// It arrived before any invocation waited.
    Buffered(BufferedSignal),
    /// Its wait is over; a duplicate is answered with the invocation that it moved.
    Delivered {
        /// Invocation that it woke.
        invocation_id: InvocationId,
        /// Generation of the pause that it ended.
        generation: u64,
    },
}

/// A signal that waits for its wait.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferedSignal {
    /// Its payload.
    pub payload: Map,
    /// Actor that sent it, where one proved who it is: the pause that takes it up [names](SignalDescriptor::signed) it.
    pub sender: Option<String>,
    /// Instant at which it arrived.
    pub received_at: Timestamp,
    /// Instant at which it stops counting; a reader ignores it from then on.
    pub expires_at: Timestamp,
}

impl BufferedSignal {
    /// The answer that it is to a pause for `descriptor`.
    pub fn answer_to(&self, descriptor: &SignalDescriptor) -> Map {
        match &self.sender {
            Some(sender) => descriptor.signed(self.payload.clone(), sender),
            None => self.payload.clone(),
        }
    }
}

/// A parked signal that a pause takes up at its beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlySignal {
    /// Its correlation token; one that the pause waits for.
    pub signal_id: SignalId,
    /// Its payload.
    pub payload: Map,
}

/// Outcome of parking a signal that no invocation waited for yet.
#[derive(Clone, Debug, PartialEq)]
pub enum BufferOutcome {
    /// It is parked now, or was parked before with the same payload.
    Buffered {
        /// Instant until which it counts.
        expires_at: Timestamp,
    },
    /// Another payload is parked under this id already; the first stands and this one was not stored.
    Occupied,
    /// An invocation waits for it by now, or its wait is over already: look at the record again.
    Changed,
}
