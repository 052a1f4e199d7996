//! Places in traces: W3C trace contexts, and the ids of spans.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use crate::place::EnteredNode;

/// Writes `context` as a W3C `traceparent`.
pub(crate) fn format(context: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8())
}

/// Reads a W3C `traceparent`. Of a version that we do not know only the four fields that we know are read.
pub(crate) fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut fields = traceparent.trim().split('-');
    let version = fields.next().filter(|version| is_hex(version, 2) && *version != "ff")?;
    let trace_id = fields.next().filter(|id| is_hex(id, 32)).and_then(|id| TraceId::from_hex(id).ok())?;
    let span_id = fields.next().filter(|id| is_hex(id, 16)).and_then(|id| SpanId::from_hex(id).ok())?;
    let flags = fields.next().filter(|flags| is_hex(flags, 2))?;
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    if version == "00" && fields.next().is_some() {
        return None;
    }
    let context = SpanContext::new(trace_id, span_id, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

/// True if `field` is so many digits, as the header has them: numbers are read with signs and capitals, too.
fn is_hex(field: &str, digits: usize) -> bool {
    field.len() == digits && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A place for a new span: inside `parent`, or at the root of a trace of its own.
pub(crate) fn fresh(parent: Option<&SpanContext>) -> SpanContext {
    let random = RandomIdGenerator::default();
    let (trace_id, flags) = match parent {
        Some(parent) => (parent.trace_id(), parent.trace_flags()),
        None => (random.new_trace_id(), TraceFlags::SAMPLED),
    };
    at(trace_id, random.new_span_id(), flags)
}

/// The place of the span of the node that is at `namespace`, `step` and `attempt_index` of the invocation of `root`.
pub(crate) fn of_node(root: &SpanContext, namespace: &[Arc<str>], step: u64, attempt_index: u32) -> SpanContext {
    let mut hasher = DefaultHasher::new();
    (root.trace_id().to_bytes(), root.span_id().to_bytes(), namespace, step, attempt_index).hash(&mut hasher);
    // Zero is no span id.
    at(root.trace_id(), SpanId::from(hasher.finish().max(1)), root.trace_flags())
}

/// The root of the trace that the part which was entered last on the way `way` has for itself, in the invocation of
/// `root`.
pub(crate) fn of_part(root: &SpanContext, way: &[EnteredNode]) -> SpanContext {
    let part = |number: u8| {
        let mut hasher = DefaultHasher::new();
        (root.trace_id().to_bytes(), root.span_id().to_bytes(), number).hash(&mut hasher);
        for EnteredNode { node, fan_out_index, branch, entry } in way {
            (node, fan_out_index, branch, entry.step, entry.attempt_index).hash(&mut hasher);
        }
        hasher.finish().max(1)
    };
    let trace_id = u128::from(part(0)) << 64 | u128::from(part(1));
    at(TraceId::from(trace_id), SpanId::from(part(2)), TraceFlags::SAMPLED)
}

pub(crate) fn at(trace_id: TraceId, span_id: SpanId, flags: TraceFlags) -> SpanContext {
    SpanContext::new(trace_id, span_id, flags, false, TraceState::default())
}

thread_local! {
    static NEXT: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Gives a span the place that was chosen for it.
#[derive(Debug, Default)]
pub(crate) struct ChosenIds(RandomIdGenerator);

impl ChosenIds {
    /// Runs `start`, which starts one span, so that it gets the ids of `place`.
    pub(crate) fn choose<T>(place: &SpanContext, start: impl FnOnce() -> T) -> T {
        NEXT.set(Some((place.trace_id(), place.span_id())));
        let started = start();
        NEXT.set(None);
        started
    }
}

impl IdGenerator for ChosenIds {
    fn new_trace_id(&self) -> TraceId {
        NEXT.get().map_or_else(|| self.0.new_trace_id(), |(trace_id, _)| trace_id)
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.get().map_or_else(|| self.0.new_span_id(), |(_, span_id)| span_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        assert_eq!(parse(GIVEN).map(|context| format(&context)).as_deref(), Some(GIVEN));
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        for text in ["", "00", "zz", "00-0-0-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            assert!(parse(text).is_none(), "{text}");
        }
        assert!(parse(&format!("{GIVEN}-more")).is_none());
        for wrong in [
            GIVEN.replacen("00-", "zz-", 1),
            GIVEN.replacen("-0", "-+", 1),
            GIVEN.replacen("-b7", "-+7", 1),
            GIVEN.replacen("-01", "-+1", 1),
            GIVEN.to_uppercase(),
        ] {
            assert!(parse(&wrong).is_none(), "{wrong}");
        }
    }
}
