use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FinishReason, Response, Usage};
use crate::Category;

/// Kind of failure of a provider (§7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ModelErrorCategory {
    /// Key or permission is missing, wrong or expired.
    #[serde(rename = "provider_authentication")]
    Authentication,
    /// The provider cannot be reached or failed inside.
    #[serde(rename = "provider_unavailable")]
    Unavailable,
    /// The provider has no such model.
    #[serde(rename = "provider_invalid_model")]
    InvalidModel,
    /// The model exists and is not ready yet.
    #[serde(rename = "provider_model_not_loaded")]
    ModelNotLoaded,
    /// Too many requests or tokens.
    #[serde(rename = "provider_rate_limit")]
    RateLimit,
    /// The provider's answer is malformed.
    #[serde(rename = "provider_invalid_response")]
    InvalidResponse,
    /// The request is malformed.
    #[serde(rename = "provider_invalid_request")]
    InvalidRequest,
    /// The model does not take a kind of content block.
    #[serde(rename = "provider_unsupported_content_block")]
    UnsupportedContentBlock,
    /// The content does not fit the schema of the request.
    #[serde(rename = "structured_output_invalid")]
    StructuredOutputInvalid,
}

impl ModelErrorCategory {
    /// The name of the specification.
    pub fn category(self) -> Category {
        match self {
            Self::Authentication => Category::ProviderAuthentication,
            Self::Unavailable => Category::ProviderUnavailable,
            Self::InvalidModel => Category::ProviderInvalidModel,
            Self::ModelNotLoaded => Category::ProviderModelNotLoaded,
            Self::RateLimit => Category::ProviderRateLimit,
            Self::InvalidResponse => Category::ProviderInvalidResponse,
            Self::InvalidRequest => Category::ProviderInvalidRequest,
            Self::UnsupportedContentBlock => Category::ProviderUnsupportedContentBlock,
            Self::StructuredOutputInvalid => Category::StructuredOutputInvalid,
        }
    }

    /// True if the same request may succeed later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Unavailable | Self::RateLimit | Self::ModelNotLoaded => true,
            Self::Authentication
            | Self::InvalidModel
            | Self::InvalidResponse
            | Self::InvalidRequest
            | Self::UnsupportedContentBlock
            | Self::StructuredOutputInvalid => false,
        }
    }
}

/// Failure of a call of a provider.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {message}", .category.category())]
pub struct ModelError {
    /// Kind of failure.
    pub category: ModelErrorCategory,
    /// Message that says what happened and what to do next, for people.
    pub message: String,
    /// Status of the provider's answer, if there was one.
    pub status: Option<u16>,
    /// Body of the provider's answer, if it was JSON.
    pub raw: Option<Box<Value>>,
    /// Time after which the provider wants to be asked again.
    pub retry_after: Option<Duration>,
    /// Whether the same request may succeed later, where the category does not tell: money that is used up comes back no sooner
    /// than somebody pays, and a stream that was garbled may be whole the next time. So may what a model wrote and its provider
    /// could not read.
    pub may_pass: Option<bool>,
    /// Failure to fit the schema, of [`ModelErrorCategory::StructuredOutputInvalid`].
    pub structured: Option<Box<StructuredFailure>>,
    /// True if the conversation is longer than the model takes.
    pub too_long: bool,
    /// Tokens that the provider counts although it gives no answer, as far as it tells.
    pub usage: Option<Box<Usage>>,
    /// True if the provider may have made an answer that did not arrive, or not whole: it may be paid.
    pub may_be_paid: bool,
    /// The answer as far as it could be read, where only its calls of tools are unusable: a name that no tool has,
    /// arguments that are no JSON object (`None`) or break the schema. A caller may return the complaint to the model.
    pub rejected: Option<Box<Response>>,
}

impl ModelError {
    /// A failure without details.
    pub fn new(category: ModelErrorCategory, message: impl Into<String>) -> Self {
        Self {
            category,
            message: message.into(),
            status: None,
            raw: None,
            retry_after: None,
            may_pass: None,
            structured: None,
            too_long: false,
            usage: None,
            may_be_paid: false,
            rejected: None,
        }
    }

    /// The provider's own type or code of the error, as `raw` has it; `None` where it gives none, and where its answer was no
    /// error.
    pub fn vendor_type(&self) -> Option<&str> {
        const PLACES: [&str; 6] = ["/error/type", "/error/code", "/error/status", "/__type", "/code", "/type"];
        let body = self.raw.as_deref().filter(|_| self.structured.is_none() && self.rejected.is_none())?;
        let found = PLACES.iter().filter_map(|place| body.pointer(place)).find_map(Value::as_str);
        found.filter(|name| !name.is_empty())
    }

    /// What is said of it where content is not shown. What is wrong with an answer is told with words of the answer, and a provider
    /// that refuses a request, or gives up on it later, may quote it.
    pub fn in_general(&self) -> String {
        if self.structured.is_some() || self.rejected.is_some() {
            return "the model's answer cannot be used as it is".to_owned();
        }
        let Some(status) = self.status else {
            let answered = self.raw.as_ref().map(|_| "the provider gave no answer that can be used".to_owned());
            return answered.unwrap_or_else(|| self.message.clone());
        };
        let is_name =
            |kind: &&str| kind.len() <= 64 && kind.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        let kind = self.vendor_type().filter(is_name).map(|kind| format!(": {kind}")).unwrap_or_default();
        format!("the provider answered with status {status}{kind}")
    }

    /// True if `body`, a provider's, tells that it could not read what its model wrote. Groq calls that a mistake of the request.
    pub fn tells_of_miscall(body: &Value) -> bool {
        let code = body.pointer("/error/code").and_then(Value::as_str);
        matches!(code, Some("tool_use_failed" | "output_parse_failed"))
    }

    /// True if the provider refuses to answer piece by piece, and may answer whole: OpenAI does so where it does not know who asks,
    /// and Bedrock where some models are offered tools.
    pub fn refuses_stream(&self) -> bool {
        let parameter = self.raw.as_deref().and_then(|body| body.pointer("/error/param")?.as_str());
        self.status == Some(400) && (parameter == Some("stream") || self.message.contains("in streaming mode"))
    }

    /// True if the attempt that ended so may cost something: an answer was begun, or what came cannot be used.
    pub fn may_have_cost(&self) -> bool {
        self.may_be_paid || self.usage.is_some() || !self.category.is_transient()
    }

    /// True if the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        self.may_pass.unwrap_or_else(|| self.category.is_transient())
    }
}

/// Content that did not fit the schema of its request.
#[derive(Clone, Debug, PartialEq)]
pub struct StructuredFailure {
    /// The schema.
    pub response_schema: Value,
    /// The content, as the model wrote it.
    pub output_content: String,
    /// Place where it breaks the schema and how, or why it is no JSON.
    pub error_message: String,
    /// Reason why the model stopped: at [`FinishReason::Length`] the content is cut off.
    pub finish_reason: FinishReason,
    /// Tokens that were used all the same.
    pub usage: Usage,
}
