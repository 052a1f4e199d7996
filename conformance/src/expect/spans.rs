//! Assertions over spans (conformance-adapter §5.8, observability §4).

use dormouse_ports::Map;
use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;
use serde_json::{Value, json};

use super::{Plain, attributes, differs, payload, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

/// `otel_spans`: by the observer's name one tree, or a list of all its trees.
pub(super) fn by_observer(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut expected = Directives::new("otel_spans", expected)?;
    for name in expected.unread() {
        let spans = seen.captured.spans.get(name);
        let spans = spans.ok_or_else(|| Failure::invalid(format!("observer `{name}` makes no spans")))?;
        trees(expected.require(name)?, spans, seen).map_err(|failure| failure.within(name))?;
    }
    expected.done()
}

/// `span_tree`: every tree of the first observer that makes spans.
pub(super) fn all(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    trees(expected, first(seen)?, seen)
}

/// `no_spans_emitted`.
pub(super) fn none(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let is_so = first(seen)?.is_empty();
    if expected.as_bool() == Some(is_so) { Ok(()) } else { Err(differs("no spans", tell(first(seen)?))) }
}

/// `no_edge_spans`: every span is that of an invocation, or has a node's name.
pub(super) fn no_edges(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let is_node = |span: &&SpanData| map(span).contains_key("openarmature.node.name");
    let others = first(seen)?.iter().filter(|span| span.name != INVOCATION && !is_node(span)).count();
    if expected.as_bool() == Some(others == 0) { Ok(()) } else { Err(differs("no span of an edge", others)) }
}

fn of_models(seen: &Evidence) -> Result<Vec<Map>, Failure> {
    let calls = first(seen)?.iter().filter(|span| span.name == dormouse_providers::telemetry::SPAN_NAME);
    Ok(calls.map(map).collect())
}

/// `no_llm_provider_span`.
pub(super) fn no_model(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let is_so = of_models(seen)?.is_empty();
    if expected.as_bool() == Some(is_so) { Ok(()) } else { Err(differs("no span of a model", tell(first(seen)?))) }
}

/// `llm_span_attributes`: attributes of the only call of a model.
pub(super) fn of_model(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let calls = of_models(seen)?;
    let [attributes] = calls.as_slice() else { return Err(differs("one call of a model", calls.len())) };
    let expected = expected.as_object().ok_or_else(|| Failure::invalid("llm_span_attributes must be a mapping"))?;
    let wrong =
        expected.iter().find(|(name, value)| attributes.get(*name).is_none_or(|a| same(value, a, seen).is_err()));
    wrong.map_or(Ok(()), |(name, value)| Err(differs(format!("`{name}` = {value}"), json!(attributes))))
}

/// `llm_span_attributes_absent`.
pub(super) fn not_of_model(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let calls = of_models(seen)?;
    let names = expected.as_array().ok_or_else(|| Failure::invalid("llm_span_attributes_absent must be a list"))?;
    let names = names.iter().map(|name| name.as_str().ok_or_else(|| Failure::invalid("an attribute is a text")));
    for name in names.collect::<Result<Vec<_>, _>>()? {
        if calls.iter().any(|attributes| attributes.contains_key(name)) {
            return Err(differs(format!("no attribute `{name}`"), json!(calls)));
        }
    }
    Ok(())
}

/// The predicate over the spans of calls of tools of that name (observability §5.5.11).
pub(super) fn invariant(name: &str) -> Option<Plain<Evidence>> {
    const CALL: &str = "openarmature.tool.call";

    fn holds(wanted: &Value, seen: &Evidence, is_so: impl Fn(&[&SpanData]) -> bool) -> Result<(), Failure> {
        let calls: Vec<_> = first(seen)?.iter().filter(|span| span.name == CALL).collect();
        same(wanted, &(!calls.is_empty() && is_so(&calls)).into(), seen)
    }
    Some(match name {
        "tool_span_name_is_openarmature_tool_call" => |wanted, seen| holds(wanted, seen, |_| true),
        "oa_namespace_tool_attributes_emitted" => |wanted, seen| {
            let names = ["name", "call.id", "call.arguments", "call.result"].map(|n| format!("openarmature.tool.{n}"));
            holds(wanted, seen, |calls| calls.iter().all(|call| names.iter().all(|name| map(call).contains_key(name))))
        },
        "gen_ai_tool_attributes_not_emitted_in_v1" => |wanted, seen| {
            holds(wanted, seen, |calls| {
                !calls.iter().any(|call| map(call).keys().any(|name| name.starts_with("gen_ai.")))
            })
        },
        "execute_tool_span_name_not_used" => |wanted, seen| {
            let is_used = first(seen)?.iter().any(|span| span.name.starts_with("execute_tool"));
            same(wanted, &(!is_used).into(), seen)
        },
        _ => return None,
    })
}

pub(super) fn first(seen: &Evidence) -> Result<&Vec<SpanData>, Failure> {
    let first = seen.captured.spans.first().map(|(_, spans)| spans);
    first.ok_or_else(|| Failure::invalid("no observer makes spans"))
}

pub(super) const INVOCATION: &str = "openarmature.invocation";

fn trees(expected: &Value, spans: &[SpanData], seen: &Evidence) -> Result<(), Failure> {
    let expected = expected.as_array().map_or(std::slice::from_ref(expected), Vec::as_slice);
    let known = |id: SpanId| spans.iter().any(|span| span.span_context.span_id() == id);
    let mut roots: Vec<&SpanData> = spans.iter().filter(|span| !known(span.parent_span_id)).collect();
    // The span of a turn is optional (observability §4.6): who does not name it means what is inside.
    let named = |name: &str| expected.iter().any(|tree| tree.get("name").and_then(Value::as_str) == Some(name));
    let turns: Vec<_> = roots.extract_if(.., |root| root.name != INVOCATION && !named(&root.name)).collect();
    roots.extend(turns.into_iter().flat_map(|turn| children(spans, turn)));
    assign(expected, &roots, &Tracer { spans, seen, in_full: true })
}

/// Each of `expected` is one of `roots`. Children that are not named may be there too, unless none shall be.
pub(super) fn some_of(expected: &[Value], roots: &[&SpanData], seen: &Evidence) -> Result<(), Failure> {
    assign(expected, roots, &Tracer { spans: first(seen)?, seen, in_full: false })
}

/// Whether the assertion `key` wants an invocation span that says that the invocation failed.
pub(super) fn tell_of_failure(key: &str, expected: &Value) -> bool {
    let text = |tree: &Value, key: &str| tree.get(key).and_then(Value::as_str).map(str::to_ascii_uppercase);
    let failed = |tree: &Value| text(tree, "status").as_deref() == Some("ERROR");
    match (key, expected) {
        ("otel_spans", Value::Object(observers)) => observers.values().any(|trees| tell_of_failure("span_tree", trees)),
        ("span_tree", Value::Array(trees)) => trees.iter().any(failed),
        ("span_tree", tree) => failed(tree),
        ("traces", Value::Array(traces)) => traces.iter().any(|trace| tell_of_failure("parent_trace", trace)),
        ("parent_trace", trace) => trace.get("span_tree").is_some_and(|tree| tell_of_failure("span_tree", tree)),
        _ => false,
    }
}

/// The spans of one provider, and what else happened.
struct Tracer<'s> {
    spans: &'s [SpanData],
    seen: &'s Evidence,
    /// Whether all children are named.
    in_full: bool,
}

fn children<'s>(spans: &'s [SpanData], of: &SpanData) -> Vec<&'s SpanData> {
    spans.iter().filter(|span| span.parent_span_id == of.span_context.span_id()).collect()
}

/// Finds for each of `expected` a span of its own among `actual`. Siblings have no order; whether one may be left is
/// for the tracer to say.
fn assign(expected: &[Value], actual: &[&SpanData], tracer: &Tracer<'_>) -> Result<(), Failure> {
    let fits = if tracer.in_full { expected.len() == actual.len() } else { expected.len() <= actual.len() };
    if !fits {
        return Err(differs(format!("{} spans", expected.len()), shapes(actual, tracer.spans)));
    }
    let Some((wanted, rest)) = expected.split_first() else { return Ok(()) };
    let mut closest = None;
    for (index, span) in actual.iter().enumerate() {
        let mut others = actual.to_vec();
        others.remove(index);
        let tried = tracer.seen.bindings.attempt(|| {
            tree(wanted, span, tracer)?;
            assign(rest, &others, tracer)
        });
        match tried {
            Ok(()) => return Ok(()),
            Err(Failure::Mismatch(text)) => {
                let same_name = wanted.get("name").and_then(Value::as_str) == Some(&span.name);
                if same_name || closest.is_none() {
                    closest = Some(Failure::Mismatch(text));
                }
            }
            Err(broken) => return Err(broken),
        }
    }
    closest.map_or(Ok(()), Err)
}

fn tree(expected: &Value, span: &SpanData, tracer: &Tracer<'_>) -> Result<(), Failure> {
    let mut wanted = Directives::new("span", expected)?;
    let told = |failure: Failure| failure.within(&span.name);
    let seen = tracer.seen;
    if let Some(name) = wanted.given("name") {
        same(name, &Value::from(&*span.name), seen)?;
    }
    status(&mut wanted, span, seen).map_err(told)?;
    attributes::check(&mut wanted, &map(span), seen).map_err(told)?;
    payload::check(&mut wanted, &map(span)).map_err(told)?;
    events(&mut wanted, span, seen).map_err(told)?;
    links(&mut wanted, span, seen).map_err(told)?;
    for (key, id) in
        [("trace_id", span.span_context.trace_id().to_string()), ("span_id", span.span_context.span_id().to_string())]
    {
        if let Some(token) = wanted.given(key) {
            same(token, &id.into(), seen).map_err(|failure| told(failure.within(key)))?;
        }
    }
    if wanted.given("children").is_some() {
        let expected: Vec<Value> = wanted.list("children")?.into_iter().map(|(_, child)| child.clone()).collect();
        let tracer = Tracer { in_full: tracer.in_full || expected.is_empty(), ..*tracer };
        assign(&expected, &children(tracer.spans, span), &tracer).map_err(told)?;
    }
    wanted.done()
}

fn map(span: &SpanData) -> Map {
    attributes::map(&span.attributes)
}

fn status(wanted: &mut Directives<'_>, span: &SpanData, seen: &Evidence) -> Result<(), Failure> {
    let (name, description) = match &span.status {
        Status::Unset => ("UNSET", ""),
        Status::Ok => ("OK", ""),
        Status::Error { description } => ("ERROR", description.as_ref()),
    };
    if let Some(status) = wanted.text("status")? {
        same(&status.to_ascii_uppercase().into(), &name.into(), seen).map_err(|failure| failure.within("status"))?;
    }
    if let Some(wanted) = wanted.given("status_description") {
        same(wanted, &description.into(), seen).map_err(|failure| failure.within("status_description"))?;
    }
    let Some(kind) = wanted.text("kind")? else { return Ok(()) };
    let actual = match &span.span_kind {
        SpanKind::Client => "CLIENT",
        SpanKind::Server => "SERVER",
        SpanKind::Producer => "PRODUCER",
        SpanKind::Consumer => "CONSUMER",
        SpanKind::Internal => "INTERNAL",
    };
    same(&kind.to_ascii_uppercase().into(), &actual.into(), seen).map_err(|failure| failure.within("kind"))
}

/// `exception_recorded`, and `events` that are among those of the span.
fn events(wanted: &mut Directives<'_>, span: &SpanData, seen: &Evidence) -> Result<(), Failure> {
    let has_exception = span.events.iter().any(|event| event.name == "exception");
    if let Some(recorded) = wanted.flag("exception_recorded")?
        && recorded != has_exception
    {
        return Err(differs(format!("exception_recorded: {recorded}"), has_exception));
    }
    for (at, event) in wanted.list("events")? {
        let mut event = Directives::new(&at, event)?;
        let name = event.required_text("name")?;
        let found = span.events.iter().find(|event| event.name == name);
        let found = found.ok_or_else(|| differs(format!("{at}: `{name}`"), format!("{:?}", span.events.events)))?;
        attributes::check(&mut event, &attributes::map(&found.attributes), seen)?;
        event.done()?;
    }
    Ok(())
}

/// `links`, each of which must be there, and `link_count`.
fn links(wanted: &mut Directives<'_>, span: &SpanData, seen: &Evidence) -> Result<(), Failure> {
    if let Some(count) = wanted.given("link_count") {
        same(count, &span.links.len().into(), seen).map_err(|failure| failure.within("link_count"))?;
    }
    for (at, link) in wanted.list("links")? {
        let mut link = Directives::new(&at, link)?;
        let targets = [link.given("target_trace_id").cloned(), link.given("target_span_id").cloned()];
        link.done()?;
        let fits = |actual: &&opentelemetry::trace::Link| {
            let ids = [actual.span_context.trace_id().to_string(), actual.span_context.span_id().to_string()];
            let same = |(token, id): (&Option<Value>, String)| {
                token.as_ref().map_or(Ok(()), |token| same(token, &id.into(), seen))
            };
            seen.bindings.attempt(|| targets.iter().zip(ids).try_for_each(same)).is_ok()
        };
        if span.links.iter().find(fits).is_none() {
            return Err(differs(format!("{at}: {targets:?}"), format!("{} other links", span.links.len())));
        }
    }
    Ok(())
}

/// Names, with what is inside in brackets.
fn shapes(of: &[&SpanData], spans: &[SpanData]) -> String {
    let shape = |span: &&SpanData| match &children(spans, span)[..] {
        [] => span.name.to_string(),
        inside => format!("{}{}", span.name, shapes(inside, spans)),
    };
    format!("[{}]", of.iter().map(shape).collect::<Vec<_>>().join(" "))
}

fn tell(spans: &[SpanData]) -> Value {
    json!(spans.iter().map(|span| span.name.as_ref()).collect::<Vec<_>>())
}
