//! Anthropic Messages (§8.2).

mod errors;
mod request;
mod response;
mod stream;

use dormouse_ports::model::{CompletionRequest, ModelError};
use dormouse_ports::{FetchRequest, Method, Secret};
use serde_json::Value;

use crate::Provider;
use crate::failure::of_malformed;
use crate::ids::IdRule;
use crate::setup::{Capabilities, ProviderSetup};
use crate::wire::{Assembler, Encoded, ErrorAnswer, Malformed, ReadAnswer, Refusal, Wire};

/// A model that speaks Anthropic's Messages.
///
/// The key goes into `x-api-key`. Every call needs `max_tokens`; `seed` and the penalties are refused, since the API has
/// none. A schema is sent as `output_config.format`; where [`Capabilities::structured_output`] is unset it becomes the
/// one tool that must be called, or an instruction where the caller brings tools (§8.2.5.1). The specification leaves
/// streaming to a later version: a call that streams is refused unless [`Capabilities::streaming`] is set.
pub fn anthropic(setup: ProviderSetup) -> Provider {
    Provider::new(Anthropic, setup)
}

/// Name of the wire, and origin of its reasoning.
const SYSTEM: &str = "anthropic";

struct Anthropic;

impl Wire for Anthropic {
    fn system(&self) -> &'static str {
        SYSTEM
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ATOMIC
    }

    fn base(&self) -> String {
        "https://api.anthropic.com".to_owned()
    }

    fn adjust_base(&self, base: String) -> String {
        base.strip_suffix("/v1").map(str::to_owned).unwrap_or(base)
    }

    fn coerces(&self) -> bool {
        true
    }

    fn ids(&self) -> IdRule {
        IdRule { is_plain: true, ..IdRule::ANY }
    }

    fn authenticate(&self, request: FetchRequest, key: Option<&Secret>) -> FetchRequest {
        let request = request.header("anthropic-version", "2023-06-01");
        match key {
            Some(key) => request.header("x-api-key", key.clone()),
            None => request,
        }
    }

    fn encode(&self, model: &str, request: &CompletionRequest) -> Result<Encoded, ModelError> {
        Ok(Encoded { path: "/v1/messages".to_owned(), body: request::encode(model, request)? })
    }

    fn decode(&self, body: &Value) -> Result<ReadAnswer, Malformed> {
        response::decode(body)
    }

    fn refusal(&self, answer: ErrorAnswer<'_>) -> Refusal {
        errors::refusal(answer)
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::<stream::AnthropicEvents>::default()
    }

    fn probe(&self, model: &str) -> (Method, String) {
        (Method::Get, format!("/v1/models/{}", crate::wire::segment(model)))
    }

    fn judge_probe(&self, _: &str, body: &Value) -> Result<(), ModelError> {
        // The id may be another where the name is an alias.
        match body.get("id") {
            Some(Value::String(_)) => Ok(()),
            _ => Err(of_malformed(Malformed::new("the description of the model has no `id`"), Some(body.clone()))),
        }
    }
}
