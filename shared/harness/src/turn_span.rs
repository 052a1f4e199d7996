//! A span around each turn, without knowledge of its tracer (observability §4.6).

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::{Observer, in_trace};
use futures::future::BoxFuture;

use crate::error::TurnError;
use crate::outcome::TurnOutcome;
use crate::transmission::{DispatchPath, Transmission};

/// Opens spans around turns. The span that surrounds the turn itself is [`dormouse_engine::surrounding_trace`].
pub trait TurnTracer: fmt::Debug + Send + Sync {
    /// A turn begins.
    fn begin(&self, transmission: &Transmission, path: DispatchPath) -> Box<dyn TurnSpan>;
}

/// Records spans of turns and invocations, and sends them away.
#[async_trait]
pub trait TraceExporter: Send + Sync {
    /// Makes the spans of invocations; attach it to graphs.
    fn observer(&self) -> Arc<dyn Observer>;

    /// Makes the spans of turns; give it to a harness.
    fn turn_tracer(&self) -> Arc<dyn TurnTracer>;

    /// Sends the spans that have ended. The caller bounds the time; spans on their way when the future is dropped are
    /// gone.
    ///
    /// # Errors
    /// If the spans are lost.
    async fn flush(&self) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// The span around a turn that runs. Dropped without [`end`](Self::end) the turn was dropped too.
pub trait TurnSpan: Send {
    /// Its position, as a W3C `traceparent`: the invocations of the turn become its children.
    fn context(&self) -> String;

    /// The turn is over.
    fn end(self: Box<Self>, outcome: &TurnOutcome);
}

/// Runs `turn` inside a span, if a tracer makes spans of turns.
pub(crate) async fn in_span(
    tracer: Option<&Arc<dyn TurnTracer>>,
    transmission: &Transmission,
    path: DispatchPath,
    turn: BoxFuture<'_, Result<TurnOutcome, TurnError>>,
) -> TurnOutcome {
    let Some(tracer) = tracer else {
        return turn.await.unwrap_or_else(TurnOutcome::from);
    };
    let span = tracer.begin(transmission, path);
    let outcome = in_trace(span.context().into(), turn).await.unwrap_or_else(TurnOutcome::from);
    span.end(&outcome);
    outcome
}
