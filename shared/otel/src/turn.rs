use std::time::SystemTime;

use dormouse_harness::{DispatchPath, Transmission, TurnOutcome, TurnSpan, TurnTracer};
use dormouse_ports::{InvocationId, SessionId};
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

use crate::attributes::{self, OUTCOME};
use crate::trace;

/// Makes a span `dormouse.turn` around each turn (observability §4.6).
#[derive(Clone, Debug)]
pub struct TurnSpans {
    tracer: SdkTracer,
}

impl TurnSpans {
    pub(crate) fn new(tracer: SdkTracer) -> Self {
        Self { tracer }
    }
}

impl TurnTracer for TurnSpans {
    fn begin(&self, transmission: &Transmission, path: DispatchPath) -> Box<dyn TurnSpan> {
        let parent = dormouse_engine::surrounding_trace().and_then(|context| trace::parse(&context));
        let inside = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let mut own = vec![KeyValue::new("dormouse.dispatch_path", path.as_str())];
        if let Some(signal_id) = transmission.signal_id() {
            own.push(KeyValue::new(attributes::SIGNAL_ID, signal_id.as_str().to_owned()));
        }
        let builder = SpanBuilder::from_name("dormouse.turn")
            .with_kind(SpanKind::Server)
            .with_start_time(SystemTime::now())
            .with_attributes(own);
        Box::new(RecordedTurn { span: self.tracer.build_with_context(builder, &inside) })
    }
}

struct RecordedTurn {
    span: Span,
}

/// A turn that is dropped, since its time was over for example, is no good one. Behind [`end`](TurnSpan::end) the span is over
/// already, and nothing of this counts.
impl Drop for RecordedTurn {
    fn drop(&mut self) {
        self.span.set_attribute(KeyValue::new(OUTCOME, "abandoned"));
        self.span.set_status(Status::error("the turn was dropped"));
        self.span.end();
    }
}

impl TurnSpan for RecordedTurn {
    fn context(&self) -> String {
        trace::format(self.span.span_context())
    }

    fn end(mut self: Box<Self>, outcome: &TurnOutcome) {
        let (name, session, invocation): (_, Option<&SessionId>, Option<&InvocationId>) = match outcome {
            TurnOutcome::Completed(turn) => ("completed", turn.session_id.as_ref(), Some(&turn.invocation_id)),
            TurnOutcome::Suspended(turn) => ("suspended", turn.session_id.as_ref(), Some(&turn.invocation_id)),
            TurnOutcome::Errored(error) => ("errored", None, error.invocation_id.as_ref()),
            TurnOutcome::Buffered { .. } => ("buffered", None, None),
            TurnOutcome::Stale { invocation_id } => ("stale", None, Some(invocation_id)),
        };
        self.span.set_attribute(KeyValue::new(OUTCOME, name));
        self.span.set_attributes(session.map(attributes::session));
        self.span.set_attributes(invocation.map(attributes::invocation_id));
        if let TurnOutcome::Suspended(turn) = outcome {
            self.span.set_attributes(attributes::suspension(&turn.descriptor));
        }
        if let TurnOutcome::Errored(error) = outcome {
            let category = error.category.as_str().to_owned();
            self.span.set_attribute(KeyValue::new(attributes::ERROR_CATEGORY, category.clone()));
            self.span.set_status(Status::error(category));
        } else {
            self.span.set_status(Status::Ok);
        }
        self.span.end();
    }
}
