//! Google Gemini `generateContent` (§8.3).

mod errors;
mod request;
mod response;
mod stream;

use std::borrow::Cow;

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
/// declared as it says. Extras go into `generationConfig`, and `toolConfig` among them beside the tools. The specification leaves streaming to a later version: a call that streams is refused unless [`Capabilities::streaming`] is set.
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

/// The name under which a tool is declared: it begins with a letter or `_` here. One that does not has a `_` in front, and so has
/// one that would be mistaken for it.
fn sent_name(name: &str) -> Cow<'_, str> {
    if begins_otherwise(name.trim_start_matches('_')) { Cow::Owned(format!("_{name}")) } else { Cow::Borrowed(name) }
}

/// The tool that was declared as `name`.
fn own_name(name: &str) -> &str {
    match name.strip_prefix('_') {
        Some(own) if begins_otherwise(own.trim_start_matches('_')) => own,
        Some(_) | None => name,
    }
}

/// True if `name` begins with what only other wires take at the beginning.
fn begins_otherwise(name: &str) -> bool {
    name.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// Names may bring their collection: `tunedModels/mine`.
fn path(model: &str) -> String {
    match model.split_once('/') {
        Some((collection, name)) => format!("/v1beta/{}/{}", segment(collection), segment(name)),
        None => format!("/v1beta/models/{}", segment(model)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back_as_it_is_and_begins_as_it_must() {
        for name in ["look", "_look", "2fa", "_2fa", "__2fa", "-dash", "_-dash", "_", "", "a-2", "__"] {
            let sent = sent_name(name);
            assert_eq!(own_name(&sent), name, "{sent}");
            assert!(!begins_otherwise(&sent), "{sent}");
        }
        assert_eq!(sent_name("look"), "look");
    }
}
