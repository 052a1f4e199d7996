//! Typed events of calls of models and tools, which observers tell apart by their type (graph-engine §6).
//!
//! They carry what was said, whole: an observer that writes it down somewhere decides what of it may be seen there. Only
//! the bytes of inline images are never in them (observability §5.5.5).

use std::sync::Arc;

use dormouse_ports::model::{DeltaKind, FinishReason, ToolCall, Usage};
use dormouse_ports::{Category, InvocationId, Map};
use serde_json::Value;

use super::{FrameworkEvent, Origin};
use crate::prompt::ActivePrompt;

/// Which call an event tells of, and the place that it was made at. Metadata of the caller is not in it: an observer that
/// wants it reads it from [`current`](crate::current), which shows it as it was when the call was told of.
#[derive(Clone, Debug, PartialEq)]
pub struct CallOrigin {
    /// The invocation.
    pub invocation_id: InvocationId,
    /// The correlation that it belongs to.
    pub correlation_id: String,
    /// The node, and the attempt at it, that made the call; also of a call the outcome of which comes much later.
    pub origin: Origin,
    /// Tells this call from all others, and is the same in all its events.
    pub call_id: Arc<str>,
}

impl CallOrigin {
    /// Name of the node that made the call.
    pub fn node_name(&self) -> &str {
        self.origin.namespace.last().map_or("", |name| name)
    }
}

/// Request of a call of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LlmRequest {
    /// Name of the provider, as in `gen_ai.system`.
    pub provider: String,
    /// Name of the model that was asked for.
    pub model: String,
    /// The messages, in the form of llm-provider §3, without the bytes of inline images.
    pub input_messages: Vec<Value>,
    /// Parameters that the caller set, and no others, by their names in the GenAI conventions without `gen_ai.request.`.
    pub request_params: Map,
    /// What the caller passes through to the vendor.
    pub request_extras: Map,
    /// The prompt that it was rendered of, where somebody [named it](crate::under_prompt).
    pub prompt: Option<Arc<ActivePrompt>>,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmResponse {
    /// The provider's own name of the model, if it gave one.
    pub response_model: Option<String>,
    /// The provider's id of the answer, if it gave one.
    pub response_id: Option<String>,
    /// Tokens, as far as they were reported.
    pub usage: Usage,
    /// Reason why the model stopped.
    pub finish_reason: FinishReason,
    /// The text; absent where there is none.
    pub output_content: Option<String>,
}

/// A call of a model that was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmCompletionEvent {
    /// The call.
    pub call: CallOrigin,
    /// Its request.
    pub request: Arc<LlmRequest>,
    /// Its answer.
    pub response: LlmResponse,
    /// The tools that the model calls; absent where it calls none.
    pub output_tool_calls: Option<Vec<ToolCall>>,
    /// Milliseconds from the first request of the call to its answer, as measured here; absent where that was not measured.
    pub latency_ms: Option<f64>,
}

/// A call of a model that failed, all attempts at it included.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmFailedEvent {
    /// The call.
    pub call: CallOrigin,
    /// Its request.
    pub request: Arc<LlmRequest>,
    /// The category of llm-provider §7.
    pub error_category: Category,
    /// The provider's own type of the error, if it gave one.
    pub error_type: Option<String>,
    /// For people.
    pub error_message: String,
    /// The answer, where there was one that did not fit its schema (`structured_output_invalid`).
    pub response: Option<LlmResponse>,
    /// As in [`LlmCompletionEvent`].
    pub latency_ms: Option<f64>,
}

/// A piece of an answer that streams. Calls that do not stream have none.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmTokenEvent {
    /// The call.
    pub call: CallOrigin,
    /// Name of the provider.
    pub provider: String,
    /// Name of the model that was asked for.
    pub model: String,
    /// From 0, in the order of the call.
    pub chunk_index: u64,
    /// Kind of the piece.
    pub delta_kind: DeltaKind,
    /// The text.
    pub delta: String,
}

/// Request of a call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRequest {
    /// Name of the tool.
    pub tool_name: String,
    /// The model's id of the call, where a model asked for it.
    pub tool_call_id: Option<String>,
    /// Its arguments.
    pub arguments: Map,
}

/// A call of a tool that gave a result.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallEvent {
    /// The call.
    pub call: CallOrigin,
    /// Its request.
    pub request: ToolRequest,
    /// What the tool gave.
    pub result: Value,
    /// Milliseconds that it took, as measured where it was made; absent where that was not measured.
    pub latency_ms: Option<f64>,
}

/// A call of a tool that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallFailedEvent {
    /// The call.
    pub call: CallOrigin,
    /// Its request.
    pub request: ToolRequest,
    /// Type of the error, if it has one.
    pub error_type: Option<String>,
    /// For people.
    pub error_message: String,
    /// As in [`ToolCallEvent`].
    pub latency_ms: Option<f64>,
}

macro_rules! framework_events {
    ($($event:ident => $variant:ident),+ $(,)?) => {$(
        impl From<$event> for FrameworkEvent {
            fn from(event: $event) -> Self {
                Self::$variant(Box::new(event))
            }
        }
    )+};
}

framework_events! {
    LlmCompletionEvent => LlmCompletion,
    LlmFailedEvent => LlmFailed,
    LlmTokenEvent => LlmToken,
    ToolCallEvent => ToolCall,
    ToolCallFailedEvent => ToolCallFailed,
}
