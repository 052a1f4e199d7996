//! Google Gemini `generateContent` (§8.3).

mod errors;
mod request;
mod response;
mod stream;

use dormouse_ports::model::{CompletionRequest, ModelError};
use dormouse_ports::{FetchRequest, Method, Secret};
use serde_json::Value;

use crate::Provider;
use crate::failure::of_malformed;
use crate::setup::{Capabilities, ProviderSetup};
use crate::wire::{Assembler, Encoded, ErrorAnswer, Malformed, ReadAnswer, Refusal, Wire, segment};

/// A model that speaks Google's Gemini API.
///
/// The key goes into `x-goog-api-key`. A schema is sent as `responseJsonSchema`; where
/// [`Capabilities::structured_output`] is unset it is put into the instructions instead (§8.3.5.1). Tools whose
/// schema has words that Gemini's own kind of schema does not know (`$ref`, `const`, `oneOf`, `additionalProperties`) are
/// declared with `parametersJsonSchema`, since the API refuses them as `parameters`, which §8.3.1 demands for all; others are
/// declared as it says. The specification leaves streaming to a later version: a call that streams is refused unless [`Capabilities::streaming`] is set.
pub fn gemini(setup: ProviderSetup) -> Provider {
    Provider::new(Gemini, setup)
}

/// Name of the wire, and origin of its reasoning.
const SYSTEM: &str = "gcp.gemini";

struct Gemini;

impl Wire for Gemini {
    fn system(&self) -> &'static str {
        SYSTEM
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ATOMIC
    }

    fn base(&self) -> String {
        "https://generativelanguage.googleapis.com".to_owned()
    }

    fn adjust_base(&self, base: String) -> String {
        base.strip_suffix("/v1beta").map(str::to_owned).unwrap_or(base)
    }

    fn authenticate(&self, request: FetchRequest, key: Option<&Secret>) -> FetchRequest {
        match key {
            Some(key) => request.header("x-goog-api-key", key.clone()),
            None => request,
        }
    }

    fn encode(&self, model: &str, request: &CompletionRequest) -> Result<Encoded, ModelError> {
        let operation = if request.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        Ok(Encoded { path: format!("{}:{operation}", path(model)), body: request::encode(model, request)? })
    }

    fn decode(&self, body: &Value) -> Result<ReadAnswer, Malformed> {
        response::decode(body)
    }

    fn refusal(&self, answer: ErrorAnswer<'_>) -> Refusal {
        errors::refusal(answer)
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::<stream::GeminiChunks>::default()
    }

    fn probe(&self, model: &str) -> (Method, String) {
        (Method::Get, path(model))
    }

    fn judge_probe(&self, _: &str, body: &Value) -> Result<(), ModelError> {
        match body.get("name") {
            Some(Value::String(_)) => Ok(()),
            _ => Err(of_malformed(Malformed::new("the description of the model has no `name`"), Some(body.clone()))),
        }
    }
}

/// Names may bring their collection: `tunedModels/mine`.
fn path(model: &str) -> String {
    match model.split_once('/') {
        Some((collection, name)) => format!("/v1beta/{}/{}", segment(collection), segment(name)),
        None => format!("/v1beta/models/{}", segment(model)),
    }
}
