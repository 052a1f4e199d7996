//! OpenAI-compatible chat completions (§8.1).

pub(crate) mod described;
mod errors;
mod probe;
pub(crate) mod request;
mod response;
mod stream;

use dormouse_ports::model::{CompletionRequest, ModelError};
use dormouse_ports::{FetchRequest, Method, Secret};
use serde_json::Value;

use crate::ids::IdRule;
use crate::setup::{Capabilities, ProviderSetup};
use crate::wire::{Assembler, Encoded, ErrorAnswer, Malformed, ReadAnswer, Refusal, Wire};
use crate::{Provider, responses};

/// A model that speaks OpenAI's chat completions: OpenAI itself, vLLM, LM Studio, llama.cpp, Ollama and many others.
///
/// The key goes into `authorization` as a bearer. A schema is sent as `response_format`, strict where it allows that;
/// where [`Capabilities::structured_output`] is unset it is put into the instructions instead (§8.1.5.1). Reasoning
/// that a server shows as `reasoning_content` or `reasoning` becomes thinking blocks, streamed or not; reasoning in
/// messages is not sent unless the setup is [returning](ProviderSetup::returning_reasoning) it. `max_tokens` goes to
/// OpenAI's own addresses, also those of its regions, and to Azure, from the version 2024-12-01 of its API on, as
/// `max_completion_tokens`, since its reasoning models take no other, and to all others under its own name (§8.1.1), which many
/// know alone.
/// Mistral's own address has ids of calls that it takes, an answer between results of tools and what a user says behind
/// them, `seed` under the name `random_seed`, and no `stream_options`, which it refuses: its streams have counters anyhow. A
/// description of a tool that is longer than OpenAI's own addresses, or deployments of Azure, take it stands whole in the
/// instructions.
pub fn openai(setup: ProviderSetup) -> Provider {
    let server = setup.base_url.as_deref().map_or(ChatServer::OpenAi, ChatServer::at);
    let returns_reasoning = setup.returns_reasoning;
    Provider::new(OpenAi::Chat { server, returns_reasoning }, setup)
}

/// Who is asked for a chat completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChatServer {
    /// OpenAI, or Azure with OpenAI's own models.
    OpenAi,
    /// A deployment of Azure with a version of the API in its address that knows `max_tokens` alone.
    Deployment,
    /// Mistral itself.
    Mistral,
    /// Anybody else.
    Other,
}

impl ChatServer {
    /// The first version of Azure's API in which models that reason, which take `max_completion_tokens` alone, can be asked.
    const WITH_REASONING: &str = "2024-12-01";

    /// The one at `url`.
    fn at(url: &str) -> Self {
        let Some(rest) = url.strip_prefix("https://") else { return Self::Other };
        let (host, path) = rest.split_at(rest.find([':', '/', '?']).unwrap_or(rest.len()));
        let host = host.to_ascii_lowercase();
        let is_azure = [".openai.azure.com", ".cognitiveservices.azure.com"].iter().any(|end| host.ends_with(end));
        if host == "api.openai.com" || host.ends_with(".api.openai.com") || (is_azure && path.contains("/openai/v1")) {
            Self::OpenAi
        } else if is_azure && path.contains("/openai/deployments/") {
            let (_, version) = path.split_once("api-version=").unwrap_or_default();
            if version >= Self::WITH_REASONING { Self::OpenAi } else { Self::Deployment }
        } else if host == "api.mistral.ai" {
            Self::Mistral
        } else {
            Self::Other
        }
    }
}

/// Name of the vendor, and origin of the reasoning of chat completions.
const SYSTEM: &str = "openai";

/// Origin of reasoning of Responses, which chat completions do not understand.
pub(crate) const OF_RESPONSES: &str = "openai.responses";

/// The APIs of OpenAI by which a model is asked: they share address, key, errors and list of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenAi {
    /// Chat completions.
    Chat {
        /// Who is asked.
        server: ChatServer,
        /// [`ProviderSetup::returning_reasoning`].
        returns_reasoning: bool,
    },
    /// Responses.
    Responses,
}

impl Wire for OpenAi {
    fn system(&self) -> &'static str {
        SYSTEM
    }

    fn origin(&self) -> &'static str {
        match self {
            Self::Chat { .. } => self.system(),
            Self::Responses => OF_RESPONSES,
        }
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

    fn ids(&self) -> IdRule {
        match self {
            Self::Chat { server: ChatServer::OpenAi | ChatServer::Deployment, .. } => {
                IdRule { longest: 40, ..IdRule::ANY }
            }
            Self::Chat { server: ChatServer::Mistral, .. } => IdRule::OF_MISTRAL,
            // Other servers may have put more into an id than a name.
            Self::Chat { server: ChatServer::Other, .. } => IdRule::ANY,
            Self::Responses => IdRule { longest: 64, ..IdRule::ANY },
        }
    }

    fn authenticate(&self, request: FetchRequest, key: Option<&Secret>) -> FetchRequest {
        bearer(request, key)
    }

    fn encode(&self, model: &str, request: &CompletionRequest) -> Result<Encoded, ModelError> {
        let (path, body) = match self {
            Self::Chat { server, returns_reasoning } => {
                ("/chat/completions", request::encode(model, request, (*server, *returns_reasoning))?)
            }
            Self::Responses => ("/responses", responses::request::encode(model, request, false)?),
        };
        Ok(Encoded { path: path.to_owned(), body })
    }

    fn decode(&self, body: &Value) -> Result<ReadAnswer, Malformed> {
        match self {
            Self::Chat { returns_reasoning, .. } => response::decode(body, *returns_reasoning),
            Self::Responses => responses::response::decode(body),
        }
    }

    fn refusal(&self, answer: ErrorAnswer<'_>) -> Refusal {
        errors::refusal(answer)
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        match self {
            Self::Chat { .. } => Box::<stream::Chunks>::default(),
            Self::Responses => Box::<responses::stream::Events>::default(),
        }
    }

    fn probe(&self, _: &str) -> (Method, String) {
        (Method::Get, "/models".to_owned())
    }

    fn judge_probe(&self, model: &str, body: &Value) -> Result<(), ModelError> {
        probe::listed(model, body)
    }
}

/// An address of a host alone means its version 1.
fn with_version(base: String) -> String {
    let path = base.split_once("://").map_or(base.as_str(), |(_, rest)| rest);
    if path.contains('/') { base } else { format!("{base}/v1") }
}

pub(crate) fn bearer(request: FetchRequest, key: Option<&Secret>) -> FetchRequest {
    match key {
        Some(key) => request.header("authorization", format!("Bearer {}", key.expose())),
        None => request,
    }
}
