//! The provider under test, and the wire that it is put on.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::model::{CompletionRequest, ModelError, ModelProvider};
use dormouse_ports::{FetchError, FetchRequest, Map, Sign, SignError};
use dormouse_providers::{Capabilities, ProviderPorts, ProviderSetup, anthropic, bedrock, gemini, openai, responses};
use dormouse_testkit::{ScriptedAnswer, ScriptedFetch};
use serde_json::{Value, json};

use super::clock::StillClock;
use super::spec::{AnswerSpec, CallSpec, Mapping, ModelCase, Operation};
use crate::Failure;

impl ModelCase {
    /// The wire: what it answers to completions, and to the probes before and behind them.
    pub(super) fn fetch(&self) -> ScriptedFetch {
        let fetch = ScriptedFetch::default();
        let is_probe = |call: &&CallSpec| matches!(call.operation, Operation::Ready);
        let before = self.calls.iter().take_while(is_probe).count();
        let behind = self.calls.iter().filter(is_probe).count() - before;
        let probed = |count: usize| (0..count).for_each(|_| self.probe.iter().for_each(|answer| answer.put(&fetch)));
        probed(before);
        self.answers.iter().for_each(|answer| answer.put(&fetch));
        probed(behind);
        fetch
    }

    /// How many messages of `request` stand in front of what each request to the wire says.
    pub(super) fn messages_of(&self, request: &Map, said: &[Vec<Value>]) -> usize {
        match self.mapping {
            Mapping::OpenAi | Mapping::Atomic => {
                let messages = request.get("messages").and_then(Value::as_array).into_iter().flatten();
                messages.filter(|message| message["role"] != "system").count()
            }
            // These have several of them in one; the first request is the caller's alone.
            Mapping::Anthropic | Mapping::Gemini | Mapping::Bedrock | Mapping::Responses => {
                said.first().map_or(0, Vec::len)
            }
        }
    }

    /// The provider for `model`.
    pub(super) fn provider(
        &self,
        model: &str,
        fetch: &ScriptedFetch,
        clock: Arc<StillClock>,
    ) -> Arc<dyn ModelProvider> {
        let ports = ProviderPorts { fetch: Arc::new(fetch.clone()), clock };
        let setup = ProviderSetup::new(ports, model).base_url("http://model.test");
        match self.mapping {
            Mapping::OpenAi => Arc::new(openai(setup.capabilities(self.capable(Capabilities::ALL)))),
            Mapping::Atomic => Arc::new(openai(setup.capabilities(self.capable(Capabilities::ATOMIC)))),
            Mapping::Anthropic => Arc::new(anthropic(setup.capabilities(self.capable(Capabilities::ATOMIC)))),
            Mapping::Gemini => Arc::new(gemini(setup.capabilities(self.capable(Capabilities::ATOMIC)))),
            Mapping::Bedrock => {
                let own = Capabilities { structured_output: false, ..Capabilities::ALL };
                Arc::new(bedrock(setup.capabilities(self.capable(own)), "eu-central-1", Arc::new(Unsigned)))
            }
            Mapping::Responses => Arc::new(responses(setup.capabilities(self.capable(Capabilities::ALL)))),
        }
    }

    fn capable(&self, own: Capabilities) -> Capabilities {
        Capabilities {
            images: self.capabilities.images.unwrap_or(own.images),
            structured_output: self.capabilities.structured_output.unwrap_or(own.structured_output),
            streaming: self.capabilities.streaming.unwrap_or(own.streaming),
        }
    }

    /// The model that the fixture has in mind: the one that its answers name, or the one that fixtures of its wire expect.
    pub(super) fn model(&self) -> &str {
        let answered = self.answers.iter().find_map(AnswerSpec::model);
        answered.unwrap_or(match self.mapping {
            Mapping::OpenAi | Mapping::Atomic | Mapping::Bedrock | Mapping::Responses => "test-model",
            Mapping::Anthropic => "claude-test",
            Mapping::Gemini => "gemini-test",
        })
    }

    /// A request as the fixture describes it: where the wire has the model in its address, it is described in the body.
    pub(super) fn described(&self, request: &FetchRequest) -> Value {
        let mut body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let path = request.url.split('?').next().unwrap_or_default();
        let model = match self.mapping {
            Mapping::Gemini => path.split("/models/").nth(1).and_then(|rest| rest.split(':').next()),
            Mapping::Bedrock => path.split("/model/").nth(1).and_then(|rest| rest.split('/').next()),
            Mapping::OpenAi | Mapping::Atomic | Mapping::Anthropic | Mapping::Responses => None,
        };
        if let Some(model) = model {
            body["model"] = Value::from(model);
        }
        body
    }
}

impl AnswerSpec {
    pub(super) fn put(&self, fetch: &ScriptedFetch) {
        let with = |answer: ScriptedAnswer, headers: &Map| {
            headers.iter().fold(answer, |answer, (name, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                answer.header(&name.to_lowercase(), &text)
            })
        };
        match self {
            Self::Failure => fetch.fail(FetchError::Connect("the fixture has it refused".to_owned())),
            Self::Json { status, headers, body } => fetch.answer(with(ScriptedAnswer::json(*status, body), headers)),
            Self::Text { status, headers, text } => {
                fetch.answer(with(ScriptedAnswer::pieces(*status, [text.as_str()]), headers))
            }
            Self::Stream { events, is_cut } => {
                let data = events.iter().map(|event| event.as_str().map_or_else(|| event.to_string(), str::to_owned));
                let answer = ScriptedAnswer::events(data);
                let cut = FetchError::Closed("the fixture has it cut".to_owned());
                fetch.answer(if *is_cut { answer.broken(cut) } else { answer })
            }
        };
    }

    /// The body that `raw` must be the same as.
    pub(super) fn body(&self) -> Option<&Value> {
        match self {
            Self::Json { status: 200, body, .. } => Some(body),
            Self::Json { .. } | Self::Failure | Self::Text { .. } | Self::Stream { .. } => None,
        }
    }
}

/// The request of a call, in the form of the port. What is null in a message is absent.
pub(super) fn read_request(form: &Map) -> Result<CompletionRequest, ModelError> {
    let mut form = Value::Object(form.clone());
    let messages = form.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten();
    for message in messages.filter_map(Value::as_object_mut) {
        message.retain(|name, value| !value.is_null() || !matches!(name.as_str(), "tool_calls" | "tool_call_id"));
    }
    CompletionRequest::read(&form)
}

/// What a described request says: roles and texts, without instructions, whatever its wire calls them.
pub(super) fn conversation(body: &Value) -> Vec<Value> {
    let entries = ["messages", "contents", "input"].iter().find_map(|name| body.get(*name)?.as_array());
    let said = |entry: &Value| {
        let role = match entry.get("role")?.as_str()? {
            "system" => return None,
            "model" => "assistant",
            role => role,
        };
        let content = match entry.get("content").or_else(|| entry.get("parts")) {
            Some(Value::Array(parts)) => {
                Value::String(parts.iter().filter_map(|part| part.get("text")?.as_str()).collect())
            }
            Some(content) => content.clone(),
            None => Value::Null,
        };
        Some(json!({ "role": role, "content": content }))
    };
    entries.into_iter().flatten().filter_map(said).collect()
}

/// Nobody checks signatures here.
struct Unsigned;

#[async_trait]
impl Sign for Unsigned {
    async fn sign(&self, _: &mut FetchRequest) -> Result<(), SignError> {
        Ok(())
    }
}

/// How often a call was made of the wire, and with what.
pub(super) fn since(fetch: &ScriptedFetch, before: usize) -> Vec<FetchRequest> {
    fetch.requests().split_off(before)
}

/// A failure unless `holds`.
pub(super) fn demand(holds: bool, sentence: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::mismatch(sentence())) }
}
