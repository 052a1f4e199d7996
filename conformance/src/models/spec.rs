//! What a case declares, read in full.

use std::time::Duration;

use dormouse_ports::Map;
use dormouse_ports::model::RuntimeConfig;
use serde_json::Value;

use super::expect::{Expected, ExpectedWire};
use crate::Failure;
use crate::directives::Directives;

/// A case that calls a model.
pub(crate) struct ModelCase {
    pub(super) mapping: Mapping,
    pub(super) capabilities: CapabilitySpec,
    pub(super) answers: Vec<AnswerSpec>,
    pub(super) probe: Option<AnswerSpec>,
    pub(super) probe_path: Option<String>,
    pub(super) calls: Vec<CallSpec>,
    /// Calls whose requests must be the same, byte for byte.
    pub(super) identical: Vec<usize>,
}

/// The wire that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapping {
    OpenAi,
    /// The same, of a server that does not stream.
    Atomic,
    Anthropic,
    Gemini,
    Bedrock,
    Responses,
}

/// What the fixture says about the model; `None` leaves the wire's own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CapabilitySpec {
    pub(super) images: Option<bool>,
    pub(super) structured_output: Option<bool>,
    pub(super) streaming: Option<bool>,
}

#[derive(Debug)]
pub(super) enum AnswerSpec {
    /// No connection.
    Failure,
    Json {
        status: u16,
        headers: Map,
        body: Value,
    },
    /// A text that may be no JSON.
    Text {
        status: u16,
        headers: Map,
        text: String,
    },
    /// Events, and whether the connection breaks behind them.
    Stream {
        events: Vec<Value>,
        is_cut: bool,
    },
}

#[derive(Debug)]
pub(super) enum Operation {
    Complete,
    Ready,
}

/// One call.
pub(super) struct CallSpec {
    pub(super) operation: Operation,
    /// In the form of the port.
    pub(super) request: Map,
    pub(super) retry: Option<RetrySpec>,
    /// Attempts of the engine's retry around the call.
    pub(super) attempts_of_node: Option<u32>,
    pub(super) wire: ExpectedWire,
    pub(super) expected: Expected,
}

#[derive(Clone, Debug)]
pub(super) struct RetrySpec {
    pub(super) max_attempts: u32,
    pub(super) wait: Option<Duration>,
    pub(super) overrides: Vec<RuntimeConfig>,
    /// The correction, with places for what was wrong.
    pub(super) template: Option<String>,
}

impl ModelCase {
    /// True if `map` is such a case.
    pub(crate) fn is_one(map: &Map) -> bool {
        let calls = ["call", "calls"].iter().any(|key| map.contains_key(*key));
        calls && map.contains_key("mock_provider") && !map.contains_key("nodes") && !map.contains_key("graph")
    }

    pub(crate) fn read(map: &Map) -> Result<Self, Failure> {
        let mut case = Directives::of("", map);
        for told in ["name", "description"] {
            case.text(told)?;
        }
        let mapping = Mapping::read(case.text("mapping")?)?;
        let mut provider = case.nested("mock_provider")?.ok_or_else(|| Failure::invalid("mock_provider is missing"))?;
        let capabilities = CapabilitySpec::read(&mut provider)?;
        let answers = provider.list("responses")?.into_iter().map(|(at, answer)| AnswerSpec::read(at, answer));
        let answers = answers.collect::<Result<_, _>>()?;
        let (probe, probe_path) = probe(&mut provider)?;
        provider.done()?;
        let calls = calls(&mut case)?;
        let identical = identical(&mut case)?;
        case.done()?;
        Ok(Self { mapping, capabilities, answers, probe, probe_path, calls, identical })
    }

    /// What is told of the case and not checked.
    pub(crate) fn unchecked(&self) -> Vec<String> {
        self.calls.iter().flat_map(|call| call.expected.unchecked.clone()).collect()
    }
}

impl Mapping {
    fn read(name: Option<&str>) -> Result<Self, Failure> {
        match name {
            None | Some("openai") => Ok(Self::OpenAi),
            Some("streaming_unsupported_stub") => Ok(Self::Atomic),
            Some("anthropic") => Ok(Self::Anthropic),
            Some("gemini") => Ok(Self::Gemini),
            Some("bedrock") => Ok(Self::Bedrock),
            Some("openai_responses") => Ok(Self::Responses),
            Some(other) => Err(Failure::missing(format!("mapping `{other}`"))),
        }
    }
}

impl CapabilitySpec {
    fn read(provider: &mut Directives<'_>) -> Result<Self, Failure> {
        let Some(mut given) = provider.nested("capabilities")? else { return Ok(Self::default()) };
        let format = given.flag("supports_native_response_format")?;
        let output = given.flag("supports_native_structured_output")?;
        let read = Self {
            images: given.flag("supports_image_input")?,
            structured_output: format.or(output),
            streaming: given.flag("supports_streaming")?,
        };
        given.done()?;
        Ok(read)
    }
}

impl AnswerSpec {
    pub(super) fn read(at: String, answer: &Value) -> Result<Self, Failure> {
        Self::of(Directives::new(at, answer)?)
    }

    /// Reads the answers to one call that streams: chunks, or those of each attempt. Where there is an error among them, the
    /// connection breaks, or there was none.
    pub(super) fn read_streams(at: &str, call: &Value) -> Result<Vec<Self>, Failure> {
        let attempts = match call {
            Value::Object(_) => {
                let mut given = Directives::new(at, call)?;
                let attempts = given.list("wire_attempts")?.into_iter().map(|(_, chunks)| chunks).collect();
                given.done()?;
                attempts
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => vec![call],
        };
        attempts.into_iter().map(|chunks| Self::read_chunks(at, chunks)).collect()
    }

    fn read_chunks(at: &str, chunks: &Value) -> Result<Self, Failure> {
        let chunks = chunks.as_array().ok_or_else(|| Failure::invalid(format!("{at} must be a list of chunks")))?;
        let error = |chunk: &Value| chunk.pointer("/error/status").and_then(Value::as_u64);
        let events: Vec<Value> = chunks.iter().take_while(|chunk| error(chunk).is_none()).cloned().collect();
        let status = chunks.get(events.len()).and_then(error).and_then(|status| u16::try_from(status).ok());
        Ok(match status {
            Some(status) if events.is_empty() => Self::Json {
                status,
                headers: Map::new(),
                body: serde_json::json!({ "error": { "message": "the fixture has it fail" } }),
            },
            Some(_) => Self::Stream { events, is_cut: true },
            None => Self::Stream { events: events.into_iter().chain(["[DONE]".into()]).collect(), is_cut: false },
        })
    }

    /// The model that the answer names.
    pub(super) fn model(&self) -> Option<&str> {
        match self {
            Self::Json { body, .. } => body.get("model")?.as_str(),
            Self::Stream { events, .. } => events.first()?.get("model")?.as_str(),
            Self::Failure | Self::Text { .. } => None,
        }
    }

    fn of(mut answer: Directives<'_>) -> Result<Self, Failure> {
        let is_failure = answer.flag("connection_failure")?.unwrap_or_default();
        let status = answer.integer("status")?.unwrap_or(200);
        let status = u16::try_from(status).map_err(|_| Failure::invalid(format!("status {status}")))?;
        let headers = answer.mapping("headers")?.cloned().unwrap_or_default();
        let is_cut = answer.flag("stream_cut")?.unwrap_or_default();
        let events = answer.get("stream_body").map(|_| answer.list("stream_body")).transpose()?;
        let text = answer.text("body_text")?.map(str::to_owned);
        let body = answer.get("body").cloned().unwrap_or_default();
        answer.done()?;
        Ok(match (is_failure, events, text) {
            (true, _, _) => Self::Failure,
            (false, Some(events), _) => {
                Self::Stream { events: events.into_iter().map(|(_, event)| event.clone()).collect(), is_cut }
            }
            (false, None, Some(text)) => Self::Text { status, headers, text },
            (false, None, None) => Self::Json { status, headers, body },
        })
    }
}

fn probe(provider: &mut Directives<'_>) -> Result<(Option<AnswerSpec>, Option<String>), Failure> {
    let Some(mut endpoint) = provider.nested("health_endpoint")? else { return Ok((None, None)) };
    let path = endpoint.text("path")?.map(str::to_owned);
    Ok((Some(AnswerSpec::of(endpoint)?), path))
}

/// One call, whose expectations stand beside it, or several with their own.
fn calls(case: &mut Directives<'_>) -> Result<Vec<CallSpec>, Failure> {
    let mut calls = Vec::new();
    if let Some(mut call) = case.nested("call")? {
        calls.push(CallSpec::read(&mut call, Some(case))?);
        call.done()?;
    }
    for (at, call) in case.list("calls")? {
        let mut call = Directives::new(at, call)?;
        calls.push(CallSpec::read(&mut call, None)?);
        call.done()?;
    }
    if calls.is_empty() { Err(Failure::invalid("`calls` must list one call at least")) } else { Ok(calls) }
}

fn identical(case: &mut Directives<'_>) -> Result<Vec<usize>, Failure> {
    let Some(mut given) = case.nested("expected_wire_bytes_identical")? else { return Ok(Vec::new()) };
    let index = |(at, value): (String, &Value)| {
        let index = value.as_u64().and_then(|index| usize::try_from(index).ok());
        index.ok_or_else(|| Failure::invalid(format!("{at} must be the index of a call")))
    };
    let calls = given.list("calls")?.into_iter().map(index).collect::<Result<_, _>>()?;
    given.done()?;
    Ok(calls)
}

/// Fields of a request of the port.
const REQUEST: [&str; 6] = ["messages", "tools", "config", "response_schema", "tool_choice", "stream"];

impl CallSpec {
    fn read<'f>(call: &mut Directives<'f>, case: Option<&mut Directives<'f>>) -> Result<Self, Failure> {
        let operation = match call.required_text("operation")? {
            "complete" => Operation::Complete,
            "ready" => Operation::Ready,
            other => return Err(Failure::missing(format!("operation `{other}`"))),
        };
        let mut request = Map::new();
        for name in REQUEST {
            if let Some(value) = call.given(name) {
                request.insert(name.to_owned(), value.clone());
            }
        }
        let retry = call.nested("retry")?.map(RetrySpec::read).transpose()?;
        let attempts_of_node = call.nested("retry_middleware")?.map(attempts_of_node).transpose()?;
        let beside = case.unwrap_or(call);
        let wire = ExpectedWire::read(beside)?;
        let expected = Expected::read(beside)?;
        Ok(Self { operation, request, retry, attempts_of_node, wire, expected })
    }
}

fn attempts_of_node(mut given: Directives<'_>) -> Result<u32, Failure> {
    let attempts = attempts(&mut given)?;
    match given.text("classifier")? {
        None | Some("default") => {}
        Some(other) => return Err(Failure::missing(format!("classifier `{other}`"))),
    }
    given.done()?;
    Ok(attempts)
}

fn attempts(given: &mut Directives<'_>) -> Result<u32, Failure> {
    let attempts = given.integer("max_attempts")?.unwrap_or(3);
    u32::try_from(attempts).map_err(|_| Failure::invalid(format!("max_attempts {attempts}")))
}

impl RetrySpec {
    pub(super) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let max_attempts = attempts(&mut given)?;
        let wait = given.nested("backoff")?.map(wait).transpose()?;
        let overrides = given.list("per_attempt_override")?.into_iter().map(|(at, config)| {
            serde_json::from_value(config.clone()).map_err(|error| Failure::invalid(format!("{at}: {error}")))
        });
        let overrides = overrides.collect::<Result<_, _>>()?;
        let template = given.nested("reask")?.map(template).transpose()?;
        given.done()?;
        Ok(Self { max_attempts, wait, overrides, template })
    }
}

fn wait(mut backoff: Directives<'_>) -> Result<Duration, Failure> {
    match backoff.required_text("type")? {
        "deterministic" => {}
        other => return Err(Failure::missing(format!("backoff `{other}`"))),
    }
    let wait = backoff.seconds("seconds")?.unwrap_or_default();
    backoff.done()?;
    Ok(wait)
}

fn template(mut reask: Directives<'_>) -> Result<String, Failure> {
    let template = reask.required_text("template")?.to_owned();
    reask.done()?;
    Ok(template)
}
