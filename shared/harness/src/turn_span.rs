//! A span around each turn, without knowing who makes it (observability §4.6).

use std::fmt;

use dormouse_engine::in_trace;
use futures::future::BoxFuture;

use crate::{DispatchPath, Harness, Transmission, TurnError, TurnOutcome};

/// Opens spans around turns. The span that surrounds the turn itself is [`dormouse_engine::surrounding_trace`].
pub trait TurnTracer: fmt::Debug + Send + Sync {
    /// A turn begins.
    fn begin(&self, transmission: &Transmission, path: DispatchPath) -> Box<dyn TurnSpan>;
}

/// The span around a turn that runs. Dropped without [`end`](Self::end) the turn was dropped too.
pub trait TurnSpan: Send {
    /// Where it is, as a W3C `traceparent`: the invocations of the turn become its children.
    fn context(&self) -> String;

    /// The turn is over.
    fn end(self: Box<Self>, outcome: &TurnOutcome);
}

impl Harness {
    /// Runs `turn` inside a span, if somebody makes spans of turns.
    pub(crate) async fn in_span(
        &self,
        transmission: &Transmission,
        path: DispatchPath,
        turn: BoxFuture<'_, Result<TurnOutcome, TurnError>>,
    ) -> TurnOutcome {
        let Some(tracer) = &self.config().turn_tracer else {
            return turn.await.unwrap_or_else(TurnOutcome::from);
        };
        let span = tracer.begin(transmission, path);
        let outcome = in_trace(span.context().into(), turn).await.unwrap_or_else(TurnOutcome::from);
        span.end(&outcome);
        outcome
    }
}
