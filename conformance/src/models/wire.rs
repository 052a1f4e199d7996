//! The provider under test, and the wire that it is put on.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::model::{CompletionRequest, ModelProvider};
use dormouse_ports::{FetchError, FetchRequest, Sign, SignError};
use dormouse_providers::{Capabilities, ProviderPorts, ProviderSetup, anthropic, bedrock, gemini, openai, responses};
use dormouse_testkit::{ScriptedAnswer, ScriptedFetch};
use serde_json::Value;

use super::clock::StillClock;
use super::spec::{AnswerSpec, Mapping, ModelCase};
use crate::Failure;

impl ModelCase {
    /// The wire: what it answers to completions, or to a probe.
    pub(super) fn fetch(&self) -> ScriptedFetch {
        let fetch = ScriptedFetch::default();
        self.answers.iter().chain(&self.probe).for_each(|answer| answer.put(&fetch));
        fetch
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
        let with = |answer: ScriptedAnswer, headers: &dormouse_ports::Map| {
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

/// The request of a call, in the form of the port.
pub(super) fn read_request(form: &dormouse_ports::Map) -> Result<CompletionRequest, dormouse_ports::model::ModelError> {
    CompletionRequest::read(&Value::Object(form.clone()))
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
