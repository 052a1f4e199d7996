use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Message, ModelError, ModelErrorCategory, RuntimeConfig, Tool, ToolChoice};

/// Request to a model (§5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionRequest {
    /// The conversation: an optional system message first, a user's or a tool's last.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Sampling and budget.
    #[serde(default, skip_serializing_if = "is_default")]
    pub config: RuntimeConfig,
    /// JSON Schema, of type `object`, that the content of the answer must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// Constraint on the calls of tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// True if pieces of the answer are reported as they arrive. The response is the same either way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
}

impl CompletionRequest {
    /// A request with these messages and nothing else.
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        Self { messages: messages.into_iter().collect(), ..Self::default() }
    }

    /// Reads a request from its JSON form.
    ///
    /// # Errors
    /// [`ModelErrorCategory::InvalidRequest`] with the mistake: a role without a field that it needs or with one that
    /// it does not have, a block or a detail that does not exist.
    pub fn read(form: &Value) -> Result<Self, ModelError> {
        Self::deserialize(form).map_err(|error| {
            ModelError::new(ModelErrorCategory::InvalidRequest, format!("the request has no valid form: {error}"))
        })
    }
}

fn is_default(config: &RuntimeConfig) -> bool {
    *config == RuntimeConfig::default()
}
