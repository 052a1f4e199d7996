//! OpenAI Responses, in the foreground and in the background. The specification has no mapping of it; this one follows
//! its rules for the others. What it shares with chat completions is in [`OpenAi`].

mod background;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stream;

use async_trait::async_trait;
use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, BackgroundStatus, CallOptions, CompletionRequest, Message, ModelError,
    ModelIdentity, ModelProvider, Response, StartedJob,
};
use serde_json::Value;

use crate::Provider;
use crate::mask::{masked, masked_status};
use crate::openai::OpenAi;
use crate::setup::ProviderSetup;

/// A model that speaks OpenAI's Responses, and can work in the background.
///
/// `seed`, the penalties and `stop_sequences` are refused, since the API has none. Reasoning goes back to it with the
/// message that it came with; where the API knows it no more, the request is sent once again without. What is begun in
/// the background is kept by the provider until it is asked for.
pub fn responses(setup: ProviderSetup) -> ResponsesProvider {
    ResponsesProvider { provider: Provider::new(OpenAi::Responses, setup) }
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
        match self.provider.complete(request, options).await {
            Err(error) if has_lost_reasoning(&error) => {
                self.provider.complete(&without_reasoning(request.clone()), options).await
            }
            asked => asked,
        }
    }
}

/// True if the provider refused a request since it does not know the reasoning in it any more: what it keeps it keeps for a month,
/// and that and what it has sealed it knows only with a key of the same project. With it the conversation would never go on.
fn has_lost_reasoning(error: &ModelError) -> bool {
    let told = |place: &str| error.raw.as_deref().and_then(|body| body.pointer(place)).and_then(Value::as_str);
    let names_one = |words: &str| words.split([' ', '\'', '"', '`']).any(|word| word.starts_with("rs_"));
    let is_about_it = told("/error/code") == Some("invalid_encrypted_content");
    matches!(error.status, Some(400 | 404)) && (is_about_it || told("/error/message").is_some_and(names_one))
}

fn without_reasoning(mut sent: CompletionRequest) -> CompletionRequest {
    for message in &mut sent.messages {
        if let Message::Assistant(message) = message {
            message.origin = None;
        }
    }
    sent
}

#[async_trait]
impl BackgroundProvider for ResponsesProvider {
    async fn start(&self, request: &CompletionRequest, key: &str) -> Result<StartedJob, ModelError> {
        let StartedJob { job, status } =
            masked(&self.provider, background::start(&self.provider, request, key).await).await?;
        Ok(StartedJob { job, status: masked_status(&self.provider, Ok(status)).await? })
    }

    async fn poll(&self, job: &BackgroundJob, request: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        masked_status(&self.provider, background::poll(&self.provider, job, request).await).await
    }

    async fn cancel(&self, job: &BackgroundJob) -> Result<(), ModelError> {
        masked(&self.provider, background::cancel(&self.provider, job).await).await
    }
}
