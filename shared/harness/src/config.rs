use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::limits;

use crate::mode::Mode;
use crate::turn_span::TurnTracer;

/// Policy for the rules for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulePolicy {
    /// Most rules of ours that the bus may have. Rules that are made at the same moment may be a few more.
    pub most: usize,
    /// Time for which a process relies on a rule without a look into the store.
    pub trusted: Duration,
    /// Time for which a new rule may not take effect yet: a wait that needs it is held up so long once it is made.
    pub settling: Duration,
    /// Time for which no wait must have needed a rule before it goes. It exceeds [`trusted`](Self::trusted) by the most
    /// that the clocks of the sweeping processes may disagree.
    pub kept: Duration,
}

impl Default for RulePolicy {
    /// At most [`limits::PATTERN_RULES`], relied on for five minutes, kept for an hour, and in effect at once.
    fn default() -> Self {
        let most = limits::PATTERN_RULES;
        let trusted = Duration::from_secs(5 * 60);
        let kept = Duration::from_secs(60 * 60);
        Self { most, trusted, settling: Duration::ZERO, kept }
    }
}

/// Configuration of a harness.
#[derive(Clone, Debug)]
pub struct HarnessConfig {
    /// Mode, which decides if turns belong to sessions.
    pub mode: Mode,
    /// The longest that one turn may compute; leases and claims outlive it by [`lease_margin`](Self::lease_margin).
    pub turn_budget: Duration,
    /// Time by which a lease or claim outlives the turn that took it: room for clocks that disagree.
    pub lease_margin: Duration,
    /// Time until the next look while another worker runs a turn of the session, or another delivery of the same signal
    /// runs; each time it takes up to twice as long as before, until it is [`POLL_LONGEST`](Self::POLL_LONGEST).
    pub poll_interval: Duration,
    /// Most turns of one session that wait in this process for the one that runs. More are refused with `session_busy`.
    pub session_line: usize,
    /// Time for which a signal is kept that no invocation waits for yet. `None` refuses it with
    /// `harness_signal_correlation_failed`.
    pub early_signals: Option<Duration>,
    /// True if keys of tenants send signals: each wait of an invocation that a tenant began has a name for them then.
    pub signals_of_tenants: bool,
    /// The largest payload of a signal, in bytes of JSON.
    pub signal_payload: usize,
    /// Number of workers that may die of an invocation, without it getting any further, before it is put aside.
    pub most_attempts: u32,
    /// Policy for the rules for events.
    pub rules: RulePolicy,
    /// Opens a span around each turn; without it the invocation spans are roots.
    pub turn_tracer: Option<Arc<dyn TurnTracer>>,
}

impl HarnessConfig {
    /// The longest time until the next look at the progress of another worker.
    pub const POLL_LONGEST: Duration = Duration::from_secs(1);

    /// Defaults for `mode`: turns of at most 25 seconds, early signals kept for 7 days.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            turn_budget: Duration::from_secs(25),
            lease_margin: Duration::from_secs(5),
            poll_interval: Duration::from_millis(50),
            session_line: limits::SESSION_LINE,
            early_signals: Some(limits::EARLY_SIGNALS),
            signals_of_tenants: false,
            signal_payload: limits::SIGNAL_PAYLOAD,
            most_attempts: limits::ATTEMPTS,
            rules: RulePolicy::default(),
            turn_tracer: None,
        }
    }
}
