//! Calls of models, told whole to the observers that read calls (graph-engine §6, observability §5.5.7).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dormouse_engine::{
    Identity, LlmCompletionEvent, LlmFailedEvent, LlmRequest, LlmResponse, LlmTokenEvent, ObservedCall, active_prompt,
};
use dormouse_ports::model::{
    BackgroundJob, CompletionRequest, DeltaKind, ModelError, ModelIdentity, Response, RuntimeConfig,
};
use dormouse_ports::{Clock, Map};
use serde_json::Value;

use crate::telemetry::{redacted, response_id, response_model};

/// Tells the calls of this process apart.
static CALLS: AtomicU64 = AtomicU64::new(0);

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
        Self::named(identity, request, clock, |invocation| {
            let number = CALLS.fetch_add(1, Ordering::Relaxed);
            format!("{}/{}-{number}", invocation.invocation_id, clock.now().as_nanosecond())
        })
    }

    /// The call that is `job` of its provider, and may have begun elsewhere.
    pub(crate) fn of_job(
        identity: &ModelIdentity,
        request: &CompletionRequest,
        clock: &Arc<dyn Clock>,
        job: &BackgroundJob,
    ) -> Option<Self> {
        Self::named(identity, request, clock, |invocation| format!("{}/{}", invocation.invocation_id, job.id))
    }

    fn named(
        identity: &ModelIdentity,
        request: &CompletionRequest,
        clock: &Arc<dyn Clock>,
        call_id: impl FnOnce(&Identity) -> String,
    ) -> Option<Self> {
        let call = ObservedCall::begin(call_id)?;
        let request = Arc::new(LlmRequest {
            provider: identity.system.clone(),
            model: identity.model.clone(),
            input_messages: request.messages.iter().map(redacted).collect(),
            request_params: parameters(&request.config),
            request_extras: request.config.extras.clone(),
            prompt: active_prompt(),
        });
        Some(Self { call, request, clock: clock.clone(), began: clock.monotonic(), pieces: AtomicU64::new(0) })
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
    LlmResponse {
        response_model: response_model(&response.raw).map(str::to_owned),
        response_id: response_id(&response.raw).map(str::to_owned),
        usage: response.usage,
        finish_reason: response.finish_reason,
        output_content: (!text.is_empty()).then_some(text),
    }
}

/// The answer that did not fit its schema.
fn unfit(error: &ModelError) -> Option<LlmResponse> {
    let failure = error.structured.as_deref()?;
    let raw = error.raw.as_deref().unwrap_or(&Value::Null);
    Some(LlmResponse {
        response_model: response_model(raw).map(str::to_owned),
        response_id: response_id(raw).map(str::to_owned),
        usage: failure.usage,
        finish_reason: failure.finish_reason,
        output_content: Some(failure.output_content.clone()),
    })
}

/// What the caller set, and nothing else (observability §5.5.2).
fn parameters(config: &RuntimeConfig) -> Map {
    let declared = RuntimeConfig { extras: Map::new(), ..config.clone() };
    match serde_json::to_value(declared) {
        Ok(Value::Object(parameters)) => parameters,
        Ok(_) | Err(_) => Map::new(),
    }
}
