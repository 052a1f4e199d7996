use dormouse_ports::Map;
use serde_json::{Value, json};

use super::{Check, fits, is};
use crate::Failure;
use crate::directives::Directives;
use crate::matching::equal;
use crate::models::end::{Attempt, Seen};
use crate::models::wire::demand;

/// What is expected of the first request of a call, beside `expected`.
#[derive(Default)]
pub(in crate::models) struct ExpectedWire {
    /// The whole body.
    body: Option<Map>,
    absent: Vec<String>,
    checks: Map,
}

impl ExpectedWire {
    pub(in crate::models) fn read(beside: &mut Directives<'_>) -> Result<Self, Failure> {
        let read = Self {
            body: beside.mapping("expected_wire_request")?.cloned(),
            absent: beside.texts("expected_wire_request_absent_keys")?.unwrap_or_default(),
            checks: beside.mapping("expected_wire_request_checks")?.cloned().unwrap_or_default(),
        };
        let is_known = |name: &String| name == SCHEMA_IN_SYSTEM || name.ends_with(ABSENT);
        match read.checks.keys().find(|name| !is_known(name)) {
            Some(unknown) => Err(Failure::DirectiveUnknown(format!("`expected_wire_request_checks.{unknown}`"))),
            None => Ok(read),
        }
    }

    pub(in crate::models) fn check(&self, seen: &Seen<'_>) -> Result<(), Failure> {
        let sent = seen.bodies.first().cloned().unwrap_or_default();
        if let Some(body) = &self.body {
            let expected = Value::Object(body.clone());
            demand(fits(&expected, &sent), || format!("request: expected {expected}, got {sent}"))?;
        }
        let has = |name: &str| !seen.bodies.is_empty() && field(&sent, name).is_some();
        for name in &self.absent {
            demand(!has(name), || format!("request: `{name}` must be absent, but is there in {sent}"))?;
        }
        for (name, expected) in &self.checks {
            let actual = match name.strip_suffix(ABSENT) {
                Some(key) => !has(key),
                None => schema_in_system(&sent),
            };
            demand(*expected == actual, || format!("request: {name} is {actual} in {sent}"))?;
        }
        Ok(())
    }
}

const ABSENT: &str = "_absent";
const SCHEMA_IN_SYSTEM: &str = "system_message_content_references_schema";

/// Whether the instructions have a JSON Schema in them, wherever the wire has those.
fn schema_in_system(sent: &Value) -> bool {
    const PLACES: [&str; 5] =
        ["/messages/0/content", "/system", "/system/0/text", "/systemInstruction/parts/0/text", "/instructions"];
    let mut contents = PLACES.iter().filter_map(|place| sent.pointer(place)?.as_str());
    contents.any(|content| content.contains("\"properties\"") && content.contains("\"type\":\"object\""))
}

/// A field of a request, at its root or where the wire has what it is sampled with.
fn field<'b>(body: &'b Value, name: &str) -> Option<&'b Value> {
    let nested = || ["generationConfig", "inferenceConfig"].iter().find_map(|place| body.get(*place)?.get(name));
    body.get(name).or_else(nested)
}

/// Checks of all requests of a call, and of the attempts they belong to.
pub(super) fn read(block: &mut Directives<'_>) -> Result<Vec<Check>, Failure> {
    let mut checks: Vec<Check> = Vec::new();
    if let Some(calls) = block.get("provider_call_count").cloned() {
        checks.push(is("provider_call_count", calls, |seen| seen.requests.len().into()));
    }
    if let Some(flag) = block.flag("caller_messages_unmodified")? {
        checks.push(is("caller_messages_unmodified", flag.into(), |seen| seen.is_unmodified.into()));
    }
    if let Some(flag) = block.flag("no_token_events_emitted")? {
        checks.push(is("no_token_events_emitted", flag.into(), |seen| (seen.tokens == 0).into()));
    }
    if let Some(count) = block.get("token_events").cloned() {
        checks.push(is("token_events", count, |seen| seen.tokens.into()));
    }
    let requests = block.list("wire_requests")?;
    if !requests.is_empty() {
        checks.push(is("wire_requests", requests.len().into(), |seen| seen.bodies.len().into()));
    }
    for (index, (at, request)) in requests.into_iter().enumerate() {
        checks.extend(request_checks(index, Directives::new(at, request)?)?);
    }
    let spans = block.list("llm_spans")?;
    if !spans.is_empty() {
        checks.push(is("llm_spans", spans.len().into(), |seen| seen.attempts.len().into()));
    }
    for (index, (at, span)) in spans.into_iter().enumerate() {
        checks.extend(span_checks(index, Directives::new(at, span)?)?);
    }
    Ok(checks)
}

fn request_checks(index: usize, mut request: Directives<'_>) -> Result<Vec<Check>, Failure> {
    let mut checks: Vec<Check> = Vec::new();
    for (name, expected) in request.mapping("sampling")?.cloned().unwrap_or_default() {
        checks.push(is("sampling", expected, move |seen| {
            seen.bodies.get(index).and_then(|body| field(body, &name)).cloned().unwrap_or(json!("absent"))
        }));
    }
    let appended: Vec<Value> = request.list("appended_messages")?.into_iter().map(|(_, one)| one.clone()).collect();
    request.done()?;
    checks.push(Box::new(move |seen| {
        let sent = seen.said.get(index).and_then(|said| said.get(seen.messages..)).unwrap_or_default();
        let holds = sent.len() == appended.len() && appended.iter().zip(sent).all(|(e, a)| is_appended(e, a));
        demand(holds, || format!("appended_messages of request {index}: got {}", Value::from(sent.to_vec())))
    }));
    Ok(checks)
}

fn is_appended(expected: &Value, actual: &Value) -> bool {
    let Some(expected) = expected.as_object() else { return false };
    let content = actual.get("content").and_then(Value::as_str).unwrap_or_default();
    expected.iter().all(|(key, value)| match (key.as_str(), value) {
        ("content_contains", Value::Array(words)) => {
            words.iter().all(|word| word.as_str().is_some_and(|word| content.contains(word)))
        }
        (key, value) => actual.get(key).is_some_and(|actual| equal(value, actual)),
    })
}

fn span_checks(index: usize, mut span: Directives<'_>) -> Result<Vec<Check>, Failure> {
    let mut checks: Vec<Check> = Vec::new();
    let of = move |seen: &Seen<'_>, read: &dyn Fn(&Attempt) -> Option<Value>| {
        seen.attempts.get(index).and_then(read).unwrap_or_default()
    };
    if let Some(expected) = span.get("attempt_index").cloned() {
        let name = "openarmature.llm.attempt_index";
        checks.push(is("attempt_index", expected, move |seen| of(seen, &|a| a.attributes.get(name).cloned())));
    }
    for (name, expected) in span.mapping("attributes")?.cloned().unwrap_or_default() {
        checks.push(is("attribute", expected, move |seen| of(seen, &|a| a.attributes.get(&name).cloned())));
    }
    for name in span.texts("attributes_absent")?.unwrap_or_default() {
        checks.push(is("absent attribute", Value::Null, move |seen| of(seen, &|a| a.attributes.get(&name).cloned())));
    }
    if let Some(expected) = span.get("error_category").cloned() {
        checks
            .push(is("error_category", expected, move |seen| of(seen, &|a| a.error_category.clone().map(Value::from))));
    }
    span.done()?;
    Ok(checks)
}
