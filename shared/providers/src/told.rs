//! Calls of models, told whole to the observers that read calls (graph-engine §6, observability §5.5.7).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dormouse_engine::{
    LlmCompletionEvent, LlmFailedEvent, LlmRequest, LlmResponse, LlmTokenEvent, ObservedCall, active_prompt,
};
use dormouse_ports::model::{
    BackgroundJob, CompletionRequest, DeltaKind, FinishReason, ModelError, ModelIdentity, Response, RuntimeConfig,
    Usage,
};
use dormouse_ports::{Clock, Map};
use serde_json::Value;

use crate::telemetry::{redacted, response_id, response_model};

/// A call that is told of. All attempts at it are one.
pub(crate) struct ToldCall {
    call: ObservedCall,
    request: Arc<LlmRequest>,
    clock: Arc<dyn Clock>,
    began: Duration,
    pieces: AtomicU64,
}

impl ToldCall {
    /// The call that begins here; `None` where nobody reads of it.
    pub(crate) fn begin(identity: &ModelIdentity, request: &CompletionRequest, clock: &Arc<dyn Clock>) -> Option<Self> {
        Some(Self::of(ObservedCall::begin()?, identity, request, clock))
    }

    /// The call that is `job` of its provider, and may have begun elsewhere.
    pub(crate) fn of_job(
        identity: &ModelIdentity,
        request: &CompletionRequest,
        clock: &Arc<dyn Clock>,
        job: &BackgroundJob,
    ) -> Option<Self> {
        let call = ObservedCall::known_as(|invocation| format!("{}/{}", invocation.invocation_id, job.id))?;
        Some(Self::of(call, identity, request, clock))
    }

    fn of(call: ObservedCall, identity: &ModelIdentity, request: &CompletionRequest, clock: &Arc<dyn Clock>) -> Self {
        let request = Arc::new(LlmRequest {
            provider: identity.system.clone(),
            model: identity.model.clone(),
            input_messages: request.messages.iter().map(redacted).collect(),
            request_params: parameters(&request.config),
            request_extras: request.config.extras.clone(),
            prompt: active_prompt(),
        });
        Self { call, request, clock: clock.clone(), began: clock.monotonic(), pieces: AtomicU64::new(0) }
    }

    /// A piece of the answer has arrived.
    pub(crate) fn token(&self, delta_kind: DeltaKind, delta: &str) {
        let chunk_index = self.pieces.fetch_add(1, Ordering::Relaxed);
        let LlmRequest { provider, model, .. } = &*self.request;
        self.call.tell(|call| LlmTokenEvent {
            call,
            provider: provider.clone(),
            model: model.clone(),
            chunk_index,
            delta_kind,
            delta: delta.to_owned(),
        });
    }

    /// The call is over.
    pub(crate) fn ended(&self, result: Result<&Response, &ModelError>) {
        self.took(Some(self.clock.monotonic().saturating_sub(self.began)), result);
    }

    /// The call is over and took so long, if that is known.
    pub(crate) fn took(&self, time: Option<Duration>, result: Result<&Response, &ModelError>) {
        let request = self.request.clone();
        let latency_ms = time.map(|time| time.as_secs_f64() * 1000.0);
        match result {
            Ok(response) => self.call.tell(|call| {
                let calls = &response.message.tool_calls;
                LlmCompletionEvent {
                    call,
                    request,
                    response: answered(response),
                    output_tool_calls: (!calls.is_empty()).then(|| calls.clone()),
                    latency_ms,
                }
            }),
            Err(error) => self.call.tell(|call| LlmFailedEvent {
                call,
                request,
                error_category: error.category.category(),
                error_type: error.vendor_type().map(str::to_owned),
                error_message: error.message.clone(),
                response: unfit(error),
                latency_ms,
            }),
        }
    }
}

fn answered(response: &Response) -> LlmResponse {
    let text = response.message.content.as_text();
    let output_content = (!text.is_empty()).then_some(text);
    named(&response.raw, response.usage, response.finish_reason, output_content)
}

/// The answer that did not fit its schema.
fn unfit(error: &ModelError) -> Option<LlmResponse> {
    let failure = error.structured.as_deref()?;
    let raw = error.raw.as_deref().unwrap_or(&Value::Null);
    Some(named(raw, failure.usage, failure.finish_reason, Some(failure.output_content.clone())))
}

/// The answer, with what the provider calls it in `raw`.
fn named(raw: &Value, usage: Usage, finish_reason: FinishReason, output_content: Option<String>) -> LlmResponse {
    LlmResponse {
        response_model: response_model(raw).map(str::to_owned),
        response_id: response_id(raw).map(str::to_owned),
        usage,
        finish_reason,
        output_content,
    }
}

/// What the caller set, and nothing else (observability §5.5.2).
fn parameters(config: &RuntimeConfig) -> Map {
    let declared = RuntimeConfig { extras: Map::new(), ..config.clone() };
    match serde_json::to_value(declared) {
        Ok(Value::Object(parameters)) => parameters,
        Ok(_) | Err(_) => Map::new(),
    }
}
