//! A signal on its way to an invocation.

use dormouse_ports::{InvocationId, Map, SignalId};

use crate::budget::Budget;
use crate::transmission::Trigger;

/// A delivery that found its invocation.
pub(super) struct FoundDelivery<'w> {
    pub(super) invocation_id: InvocationId,
    pub(super) generation: Option<u64>,
    pub(super) part: SignalTarget,
    pub(super) payload: Map,
    pub(super) budget: Budget<'w>,
    /// Its trigger: a person waits for an answer, a timer comes again.
    pub(super) trigger: Trigger,
}

/// The signal that a delivery is, among several expected ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignalTarget {
    /// It names the invocation only.
    Pause,
    /// The one that the descriptor calls so.
    Part(String),
    /// The one with this correlation token.
    Signal(SignalId),
}
