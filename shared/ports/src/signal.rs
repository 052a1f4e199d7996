use jiff::Timestamp;

use crate::{InvocationId, Map, SignalId};

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
