//! Assertions over several traces of one invocation (observability §4.4, §7).

use std::collections::BTreeSet;

use dormouse_ports::Map;
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::trace::SpanData;
use serde_json::Value;

use super::spans::{self, INVOCATION};
use super::{Plain, attributes, differs, logs, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

/// `traces`: all of them, each with its id and its tree. A tree may leave out children, unless it says that there are
/// none: a fixture names those that it is about.
pub(super) fn all(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let traces = Traces::of(seen)?;
    let Some(expected) = expected.as_array() else {
        return Err(Failure::invalid(format!("traces must be a list, not {expected}")));
    };
    let mut wanted = Vec::new();
    for (index, trace) in expected.iter().enumerate() {
        let mut trace = Directives::new(format!("traces[{index}]"), trace)?;
        let id = trace.given("trace_id");
        for mut tree in roots_of(&mut trace)? {
            if let (Some(tree), Some(id)) = (tree.as_object_mut(), id) {
                tree.insert("trace_id".to_owned(), id.clone());
            }
            wanted.push(tree);
        }
        trace.done()?;
    }
    let actual: Vec<_> = traces.detached.iter().copied().chain([traces.parent]).collect();
    if wanted.len() != actual.len() {
        return Err(differs(format!("{} traces", wanted.len()), actual.len()));
    }
    spans::some_of(&wanted, &actual, seen)
}

/// `parent_trace`: the tree of the call itself.
pub(super) fn parent(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut trace = Directives::new("parent_trace", expected)?;
    let wanted = roots_of(&mut trace)?;
    trace.done()?;
    spans::some_of(&wanted, &[Traces::of(seen)?.parent], seen)
}

pub(super) fn detached_count(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    same(expected, &Traces::of(seen)?.detached.len().into(), seen)
}

fn roots_of(trace: &mut Directives<'_>) -> Result<Vec<Value>, Failure> {
    let tree = trace.require("span_tree")?.clone();
    Ok(match tree {
        Value::Array(trees) => trees,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => vec![tree],
    })
}

/// The traces of one call, by their roots.
struct Traces<'s> {
    spans: &'s [SpanData],
    parent: &'s SpanData,
    /// Those to which a span of the call is linked.
    detached: Vec<&'s SpanData>,
    /// The spans with these links.
    dispatching: Vec<&'s SpanData>,
}

impl<'s> Traces<'s> {
    fn of(seen: &'s Evidence) -> Result<Self, Failure> {
        let spans = spans::first(seen)?;
        let leads_to = |span: &SpanData, id: SpanId| span.links.iter().any(|link| link.span_context.span_id() == id);
        let is_linked = |root: &&SpanData| spans.iter().any(|span| leads_to(span, root.span_context.span_id()));
        let roots = spans.iter().filter(|span| span.name == INVOCATION);
        let (detached, others): (Vec<_>, Vec<_>) = roots.partition(is_linked);
        let [parent] = others[..] else { return Err(differs("one trace of the call", others.len())) };
        let dispatches = |span: &&SpanData| detached.iter().any(|root| leads_to(span, root.span_context.span_id()));
        let dispatching = spans.iter().filter(dispatches).collect();
        Ok(Self { spans, parent, detached, dispatching })
    }

    fn attribute(&self, key: &str) -> BTreeSet<String> {
        let all = |span: &SpanData| attributes::map(&span.attributes).get(key).map(Value::to_string);
        self.spans.iter().map(|span| all(span).unwrap_or_default()).collect()
    }

    fn roots(&self) -> impl Iterator<Item = &'s SpanData> {
        self.detached.iter().copied().chain([self.parent])
    }
}

/// Predicates of fixtures about traces.
pub(super) fn invariant(name: &str) -> Option<Plain<Evidence>> {
    Some(match name {
        "distinct_trace_ids" | "all_instance_trace_ids_distinct" => |expected, seen| {
            holds(expected, seen, |traces| {
                let ids: BTreeSet<_> = traces.roots().map(|root| root.span_context.trace_id().to_bytes()).collect();
                ids.len() == traces.detached.len() + 1
            })
        },
        "dispatch_span_link_count" | "fan_out_node_span_link_count" => |expected, seen| {
            let counts: Vec<Value> = Traces::of(seen)?.dispatching.iter().map(|span| span.links.len().into()).collect();
            same(&Value::Array(vec![expected.clone()]), &counts.into(), seen)
        },
        "correlation_id_consistent_across_traces" => |expected, seen| {
            holds(expected, seen, |traces| {
                let ids = traces.attribute("openarmature.correlation_id");
                ids.len() == 1 && !ids.contains("")
            })
        },
        "detached_invocation_id_equals_parent"
        | "each_instance_trace_roots_in_invocation_span_sharing_parent_invocation_id" => |expected, seen| {
            holds(expected, seen, |traces| {
                let id = |root: &SpanData| map(root).get("openarmature.invocation_id").cloned();
                !traces.detached.is_empty() && traces.detached.iter().all(|root| id(root) == id(traces.parent))
            })
        },
        "no_instance_spans_in_parent_trace" => |expected, seen| {
            holds(expected, seen, |traces| {
                let inside = |span: &&SpanData| map(span).contains_key("openarmature.node.fan_out_index");
                let trace_id = traces.parent.span_context.trace_id();
                traces.spans.iter().filter(inside).all(|span| span.span_context.trace_id() != trace_id)
            })
        },
        "error_status_on_parent_dispatch_span" | "error_status_on_parent_fan_out_node_span" => {
            |expected, seen| holds(expected, seen, |traces| all_failed(&traces.dispatching))
        }
        "error_status_on_detached_invocation_span" | "error_status_on_detached_instance_invocation_span" => {
            |expected, seen| holds(expected, seen, |traces| all_failed(&traces.detached))
        }
        "exception_event_on_both_error_spans" => |expected, seen| {
            holds(expected, seen, |traces| {
                let tells = |span: &&SpanData| {
                    map(span).contains_key("openarmature.error.category")
                        && span.events.iter().any(|event| event.name == "exception")
                };
                traces.detached.iter().chain(&traces.dispatching).all(tells)
            })
        },
        "all_logs_same_trace_id" => |expected, seen| is(expected, distinct(seen, "trace_id") == 1),
        "log_trace_ids_differ_when_detached" => {
            |expected, seen| is(expected, distinct(seen, "trace_id") == seen.captured.logs.len())
        }
        "all_logs_carry_correlation_id" => |expected, seen| {
            let ids = logged(seen, "openarmature.correlation_id");
            ids.iter().try_for_each(|id| same(expected, id, seen))
        },
        _ => return None,
    })
}

fn holds(expected: &Value, seen: &Evidence, what: fn(&Traces<'_>) -> bool) -> Result<(), Failure> {
    is(expected, what(&Traces::of(seen)?))
}

fn is(expected: &Value, actual: bool) -> Result<(), Failure> {
    if expected.as_bool() == Some(actual) { Ok(()) } else { Err(differs(expected, actual)) }
}

fn map(span: &SpanData) -> Map {
    attributes::map(&span.attributes)
}

fn all_failed(spans: &[&SpanData]) -> bool {
    !spans.is_empty() && spans.iter().all(|span| matches!(span.status, Status::Error { .. }))
}

/// What the log records carry as `key`, in order.
fn logged(seen: &Evidence, key: &str) -> Vec<Value> {
    seen.captured.logs.iter().map(|record| logs::map(record).get(key).cloned().unwrap_or_default()).collect()
}

fn distinct(seen: &Evidence, key: &str) -> usize {
    logged(seen, key).iter().map(Value::to_string).collect::<BTreeSet<_>>().len()
}
