use std::sync::Arc;

use jiff::Timestamp;

use super::ObservedError;
use crate::Identity;

/// A call of `invoke()` begins, fresh or resumed. It precedes every event of the call.
#[derive(Clone, Debug)]
pub struct InvocationStart {
    /// Identity of the invocation.
    pub identity: Arc<Identity>,
    /// Name of the outermost graph.
    pub graph: String,
    /// Name of that graph's entry node.
    pub entry_node: Arc<str>,
    /// Instant at which the call began.
    pub at: Timestamp,
    /// The span around the call, as a W3C `traceparent`.
    pub surrounding_trace: Option<Arc<str>>,
    /// The pause out of which it comes; absent in a fresh call.
    pub resumed: Option<ResumedFrom>,
}

/// The pause that a call resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumedFrom {
    /// Number of the pause among those of the invocation, from 1.
    pub generation: u64,
    /// [`Identity::trace_context`] of the call that suspended.
    pub trace_context: Option<String>,
}

/// A call of `invoke()` is over. It follows every event of the call.
#[derive(Clone, Debug)]
pub struct InvocationEnd {
    /// Identity of the invocation.
    pub identity: Arc<Identity>,
    /// Instant at which it ended.
    pub at: Timestamp,
    /// Result of the call.
    pub result: InvocationResult,
}

/// Result of a call of `invoke()` (graph-engine §3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvocationResult {
    /// It reached END.
    Completed,
    /// It sleeps.
    Suspended,
    /// It failed.
    Errored(ObservedError),
    /// Its future was dropped, for example because its time was over.
    Abandoned,
}
