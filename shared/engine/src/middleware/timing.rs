use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{Category, Clock};

use super::Told;
use crate::{Middleware, Next, NodeError, State, Update};

/// Duration of a dispatch (pipeline-utilities §6.2).
#[derive(Clone, Debug, PartialEq)]
pub struct TimingRecord {
    /// The node that was timed.
    pub node_name: Arc<str>,
    /// Milliseconds from the entry into the middleware until the rest of the chain returned or raised.
    pub duration_ms: f64,
    /// Outcome of the rest of the chain.
    pub outcome: TimingOutcome,
    /// The surface category of what was raised, if it has one.
    pub exception_category: Option<Category>,
}

/// Outcome of a timed chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimingOutcome {
    /// It returned an update.
    Success,
    /// It raised.
    Exception,
}

impl TimingOutcome {
    /// The specification's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Exception => "exception",
        }
    }
}

type OnComplete = Arc<dyn Fn(TimingRecord) -> Told<'static> + Send + Sync>;

/// Times what it wraps: around a retry all attempts together, inside of one each by itself (pipeline-utilities §6.2).
///
/// The callback runs before the result goes on, so a slow one slows the node; what it raises counts as raised by the
/// node.
#[derive(Clone)]
pub struct Timing {
    node_name: Option<Arc<str>>,
    clock: Arc<dyn Clock>,
    on_complete: OnComplete,
}

impl fmt::Debug for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timing").field("node_name", &self.node_name).finish_non_exhaustive()
    }
}

impl Timing {
    /// For the one node of that name.
    pub fn new<F>(node_name: impl Into<Arc<str>>, clock: Arc<dyn Clock>, on_complete: F) -> Self
    where
        F: Fn(TimingRecord) -> Told<'static> + Send + Sync + 'static,
    {
        Self { node_name: Some(node_name.into()), clock, on_complete: Arc::new(on_complete) }
    }

    /// For every node of a graph: each is timed under its own name.
    pub fn for_graph<F>(clock: Arc<dyn Clock>, on_complete: F) -> Self
    where
        F: Fn(TimingRecord) -> Told<'static> + Send + Sync + 'static,
    {
        Self { node_name: None, clock, on_complete: Arc::new(on_complete) }
    }

    fn record(&self, began: Duration, result: &Result<Update, NodeError>) -> TimingRecord {
        let (outcome, exception_category) = match result {
            Ok(_) => (TimingOutcome::Success, None),
            Err(error) => (TimingOutcome::Exception, error.category().cloned()),
        };
        let duration_ms = self.clock.monotonic().saturating_sub(began).as_secs_f64() * 1000.0;
        let node_name = self.node_name.clone().unwrap_or_else(|| "".into());
        TimingRecord { node_name, duration_ms, outcome, exception_category }
    }
}

#[async_trait]
impl Middleware for Timing {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let began = self.clock.monotonic();
        let result = next.run(state).await;
        (self.on_complete)(self.record(began, &result)).await?;
        result
    }

    fn bound_to(&self, node: &str) -> Option<Arc<dyn Middleware>> {
        let named = || Arc::new(Self { node_name: Some(node.into()), ..self.clone() }) as Arc<dyn Middleware>;
        self.node_name.is_none().then(named)
    }
}
