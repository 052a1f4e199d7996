use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::limits;

use crate::TurnTracer;

/// Whether turns belong to sessions; fixed when the harness is made (harness §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every turn has a session (dispatch paths 3.1 to 3.3).
    Sessioned,
    /// No turn has one (dispatch path 3.0).
    Stateless,
}

/// How a harness behaves.
#[derive(Clone, Debug)]
pub struct HarnessConfig {
    /// Whether turns belong to sessions.
    pub mode: Mode,
    /// The longest that one turn may compute; leases and claims outlive it by [`lease_margin`](Self::lease_margin).
    pub turn_budget: Duration,
    /// By how much a lease or claim outlives the turn that took it: room for clocks that disagree.
    pub lease_margin: Duration,
    /// How often to look again while another turn of the session, or another delivery of the same signal, runs.
    pub poll_interval: Duration,
    /// How long a signal that nobody waits for yet is kept. `None` refuses it with
    /// `harness_signal_correlation_failed`.
    pub early_signals: Option<Duration>,
    /// The largest payload of a signal, in bytes of JSON.
    pub signal_payload: usize,
    /// Opens a span around each turn; without it the invocation spans are roots.
    pub turn_tracer: Option<Arc<dyn TurnTracer>>,
}

impl HarnessConfig {
    /// Defaults for `mode`: turns of at most 25 seconds, early signals kept for 7 days.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            turn_budget: Duration::from_secs(25),
            lease_margin: Duration::from_secs(5),
            poll_interval: Duration::from_millis(50),
            early_signals: Some(limits::EARLY_SIGNALS),
            signal_payload: limits::SIGNAL_PAYLOAD,
            turn_tracer: None,
        }
    }
}
