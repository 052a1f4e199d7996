//! OpenAI Responses, in the foreground and in the background. The specification has no mapping of it; this one follows
//! its rules for the others.

mod background;
mod request;
mod response;
mod stream;

use async_trait::async_trait;
use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, BackgroundStatus, CallOptions, CompletionRequest, ModelError, ModelIdentity,
    ModelProvider, Response,
};
use dormouse_ports::{FetchRequest, Method, Secret};
use serde_json::Value;

use crate::Provider;
use crate::openai::{bearer, listed, refusal, with_version};
use crate::setup::{Capabilities, ProviderSetup};
use crate::wire::{Answer, Assembler, Encoded, ErrorAnswer, Malformed, Refusal, Wire};

/// A model that speaks OpenAI's Responses, and can work in the background.
///
/// `seed`, the penalties and `stop_sequences` are refused, since the API has none. Reasoning goes back to it with the
/// message that it came with. What is begun in the background is kept by the provider until it is asked for.
pub fn responses(setup: ProviderSetup) -> ResponsesProvider {
    ResponsesProvider { provider: Provider::new(Responses, setup) }
}

/// One model that speaks OpenAI's Responses.
#[derive(Clone, Debug)]
pub struct ResponsesProvider {
    provider: Provider,
}

#[async_trait]
impl ModelProvider for ResponsesProvider {
    fn identity(&self) -> ModelIdentity {
        self.provider.identity()
    }

    async fn ready(&self) -> Result<(), ModelError> {
        self.provider.ready().await
    }

    async fn complete(&self, request: &CompletionRequest, options: &CallOptions) -> Result<Response, ModelError> {
        self.provider.complete(request, options).await
    }
}

#[async_trait]
impl BackgroundProvider for ResponsesProvider {
    async fn start(&self, request: &CompletionRequest, key: &str) -> Result<BackgroundJob, ModelError> {
        background::start(&self.provider, request, key).await
    }

    async fn poll(&self, job: &BackgroundJob, request: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        background::poll(&self.provider, job, request).await
    }

    async fn cancel(&self, job: &BackgroundJob) -> Result<(), ModelError> {
        background::cancel(&self.provider, job).await
    }
}

/// Origin of its reasoning, which chat completions do not understand.
const ORIGIN: &str = "openai.responses";

struct Responses;

impl Wire for Responses {
    fn system(&self) -> &'static str {
        "openai"
    }

    fn origin(&self) -> &'static str {
        ORIGIN
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn base(&self) -> String {
        "https://api.openai.com/v1".to_owned()
    }

    fn adjust_base(&self, base: String) -> String {
        with_version(base)
    }

    fn authenticate(&self, request: FetchRequest, key: Option<&Secret>) -> FetchRequest {
        bearer(request, key)
    }

    fn encode(&self, model: &str, request: &CompletionRequest) -> Result<Encoded, ModelError> {
        Ok(Encoded { path: "/responses".to_owned(), body: request::encode(model, request, false)? })
    }

    fn decode(&self, _: &CompletionRequest, body: &Value) -> Result<Answer, Malformed> {
        response::decode(body)
    }

    fn refusal(&self, answer: ErrorAnswer<'_>) -> Refusal {
        refusal(answer)
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::<stream::Events>::default()
    }

    fn probe(&self, _: &str) -> (Method, String) {
        (Method::Get, "/models".to_owned())
    }

    fn judge_probe(&self, model: &str, body: &Value) -> Result<(), ModelError> {
        listed(model, body)
    }
}
