use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dormouse_engine::{FrameworkEvent, Identity, InvocationEnd, InvocationStart, NodeError, NodeEvent, Observer};
use opentelemetry_sdk::trace::SdkTracer;

use crate::metrics::{COMPLETION, Metrics};
use crate::trace;
use crate::tree::{Detached, Tree};

/// Turns the engine's events into spans, and into measurements where those are asked for. Attach it to outermost graphs, or
/// to a call: attached to an inner graph it receives no beginning and makes no spans. Cheap to clone.
#[derive(Clone)]
pub struct SpanObserver(Arc<ObserverShared>);

struct ObserverShared {
    tracer: SdkTracer,
    detached: Arc<Detached>,
    /// Where calls of models are measured.
    metrics: Option<Metrics>,
    /// Calls of models have spans.
    shows_models: bool,
    /// The calls that run, by the place of their root span: of all that identifies a call, nothing else is its own and
    /// stays the same.
    running: Mutex<BTreeMap<String, Tree>>,
}

impl fmt::Debug for SpanObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanObserver of {} running calls", self.running().len())
    }
}

impl SpanObserver {
    pub(crate) fn new(tracer: SdkTracer, detached: Arc<Detached>, metrics: Option<Metrics>) -> Self {
        Self(Arc::new(ObserverShared { tracer, detached, metrics, shows_models: true, running: Mutex::default() }))
    }

    /// The same observer, which makes no spans of calls of models, for whoever has another library make them (observability
    /// §5.5). They are measured all the same.
    #[must_use]
    pub fn without_model_spans(&self) -> Self {
        let ObserverShared { tracer, detached, metrics, .. } = &*self.0;
        Self(Arc::new(ObserverShared {
            tracer: tracer.clone(),
            detached: detached.clone(),
            metrics: metrics.clone(),
            shows_models: false,
            running: Mutex::default(),
        }))
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Tree>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(identity: &Identity) -> &str {
    identity.trace_context.as_deref().unwrap_or_default()
}

#[async_trait]
impl Observer for SpanObserver {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        let Some(identity) = dormouse_engine::current() else { return Ok(()) };
        if let Some(tree) = self.running().get_mut(key(&identity)) {
            tree.seen_by(&identity);
            tree.node(event);
        }
        Ok(())
    }

    async fn observe_framework(&self, event: &FrameworkEvent) -> Result<(), NodeError> {
        if let (Some(metrics), FrameworkEvent::OperationEnded(event)) = (&self.0.metrics, event) {
            metrics.record(&event.operation);
        }
        let Some(identity) = dormouse_engine::current() else { return Ok(()) };
        let mut running = self.running();
        let Some(tree) = running.get_mut(key(&identity)) else { return Ok(()) };
        match event {
            FrameworkEvent::MetadataAugmented(event) => tree.augmented(event),
            FrameworkEvent::OperationEnded(event) if self.0.shows_models || event.operation.name != COMPLETION => {
                tree.seen_by(&identity);
                tree.operated(event);
            }
            FrameworkEvent::FailureIsolated(event) => tree.isolated(event),
            FrameworkEvent::OperationEnded(_)
            | FrameworkEvent::CheckpointSaved(_)
            | FrameworkEvent::LlmCompletion(_)
            | FrameworkEvent::LlmFailed(_)
            | FrameworkEvent::LlmToken(_)
            | FrameworkEvent::ToolCall(_)
            | FrameworkEvent::ToolCallFailed(_) => {}
        }
        Ok(())
    }

    /// Spans are made of operations, which have what may be shown and no more.
    fn reads_calls(&self) -> bool {
        false
    }

    async fn invocation_started(&self, start: &InvocationStart) -> Result<(), NodeError> {
        let mut running = self.running();
        // A call has no other holder of its identity when its delivery was cut off.
        running.retain(|_, tree| Arc::strong_count(&tree.identity) > 1);
        running.insert(key(&start.identity).to_owned(), Tree::begin(&self.0.tracer, &self.0.detached, start));
        Ok(())
    }

    async fn invocation_ended(&self, end: &InvocationEnd) -> Result<(), NodeError> {
        let ended = self.running().remove(key(&end.identity));
        if let Some(tree) = ended {
            tree.end(end);
        }
        Ok(())
    }

    fn trace_context(&self, surrounding: Option<&str>) -> Option<String> {
        let surrounding = surrounding.and_then(trace::parse);
        Some(trace::format(&trace::fresh(surrounding.as_ref())))
    }
}
