//! Log records and the invocations that they belong to (observability §7).

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::Identity;
use opentelemetry::logs::{AnyValue, LogRecord as _};
use opentelemetry::trace::SpanContext;
use opentelemetry::{Array, InstrumentationScope, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord};

use crate::place::SpanPlace;
use crate::{Detached, attributes, trace};

/// Gives each record of an invocation its ids and its place in the trace. It must stand before the processor that keeps
/// records.
#[derive(Debug)]
pub(crate) struct Correlation {
    pub(crate) detached: Arc<Detached>,
}

impl LogProcessor for Correlation {
    fn emit(&self, record: &mut SdkLogRecord, _scope: &InstrumentationScope) {
        let identity = dormouse_engine::current();
        if let Some(span) = self.active_span(identity.as_deref()) {
            record.set_trace_context(span.trace_id(), span.span_id(), Some(span.trace_flags()));
        }
        let Some(identity) = identity else { return };
        let ids = [attributes::invocation_id(&identity.invocation_id)];
        for attribute in ids.into_iter().chain(attributes::cross_cutting(&identity)) {
            record.add_attribute(attribute.key, any(attribute.value));
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Correlation {
    /// The span of the node that runs here; between nodes the invocation span; outside of invocations the surrounding
    /// one.
    fn active_span(&self, identity: Option<&Identity>) -> Option<SpanContext> {
        let Some(identity) = identity else {
            return dormouse_engine::surrounding_trace().and_then(|context| trace::parse(&context));
        };
        let call = identity.trace_context.as_deref().and_then(trace::parse)?;
        let place = dormouse_engine::origin().map(|origin| SpanPlace::of_origin(&origin));
        let root = place.and_then(|place| self.detached.root_of(&call, &place)).unwrap_or_else(|| call.clone());
        Some(match dormouse_engine::position() {
            Some(at) => {
                let node = trace::of_node(&call, &at.namespace, at.step, at.attempt_index);
                trace::at(root.trace_id(), node.span_id(), root.trace_flags())
            }
            None => root,
        })
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is open, and has no more variants today")]
fn any(value: Value) -> AnyValue {
    match value {
        Value::Bool(value) => value.into(),
        Value::I64(value) => value.into(),
        Value::F64(value) => value.into(),
        Value::String(value) => AnyValue::String(value),
        Value::Array(Array::Bool(items)) => items.into_iter().collect(),
        Value::Array(Array::I64(items)) => items.into_iter().collect(),
        Value::Array(Array::F64(items)) => items.into_iter().collect(),
        Value::Array(Array::String(items)) => items.into_iter().collect(),
        other => other.to_string().into(),
    }
}
