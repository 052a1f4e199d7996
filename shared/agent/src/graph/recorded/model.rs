//! The model as it answered.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::model::{
    AssistantMessage, CallOptions, CompletionRequest, FinishReason, Message, ModelError, ModelErrorCategory,
    ModelIdentity, ModelProvider, Response, Usage,
};
use dormouse_ports::{FailureRecord, Map, PastEnd, PastEntry};
use serde::Deserialize;
use serde_json::Value;

use super::super::compact::{CUT, RESPONSE, SAID, asks_for_summary};
use super::super::digest;
use super::super::entries::{IS_LAST, TOO_LONG};
use super::super::run::read;
use super::RecordedClock;
use super::past::{Past, PastModelAnswer, failed_with, is_no_summary, number, text};

/// Kind of what is missing.
const KIND: &str = "llm_provider_response";
/// Why an answer is missing that stands in the record.
const ASKED_OTHERWISE: &str = "the model would be asked something else than it was asked then";

/// Answers as the model of the run did, call by call.
pub(super) struct RecordedModel {
    identity: ModelIdentity,
    past: Arc<Past>,
    clock: Arc<RecordedClock>,
}

impl RecordedModel {
    pub(super) fn new(identity: ModelIdentity, past: Arc<Past>, clock: Arc<RecordedClock>) -> Self {
        // Nobody is asked now: the host is that of then.
        let server = past.server_of(&identity.model);
        Self { identity: ModelIdentity { server, ..identity }, past, clock }
    }

    fn answer(&self, request: &CompletionRequest) -> Result<Response, ModelError> {
        if asks_for_summary(request) {
            return self.summary(request);
        }
        if let Some(lost) = self.past.take_lost() {
            return Err(self.lost(request, &lost));
        }
        let step = self.past.next_step();
        let key = format!("llm:main:{step}");
        let past = self.past.answer(step);
        if let Some(past) = past {
            self.clock.pass(number(&past.entry.payload, "duration_ms"));
        }
        if let Some(value) = self.past.material.overrides.get(&key) {
            return replaced(value, past)
                .ok_or_else(|| self.lacks(&key, "its replacement is neither a text nor a message of a model"));
        }
        let Some(past) = past else { return Err(self.beyond(&key)) };
        let asked = text(&past.entry.payload, "request_digest");
        if self.past.material.is_exact() && !asked.is_some_and(|asked| is_asked_by(request, asked)) {
            return Err(self.lacks(&key, ASKED_OTHERWISE));
        }
        let message = past.message.clone();
        let message = message.ok_or_else(|| self.lacks(&key, "the answer is not in the record of the run any more"))?;
        Ok(response(message, past))
    }

    /// What came of an answer that was thrown away: the run rests behind it as it did, and it is paid again.
    fn lost(&self, request: &CompletionRequest, past: &PastEntry) -> ModelError {
        self.clock.pass(number(&past.payload, "duration_ms"));
        let asked = text(&past.payload, "request_digest");
        if self.past.material.is_exact() && !asked.is_some_and(|asked| is_asked_by(request, asked)) {
            return self.lacks(&format!("llm:lost:{}", past.event_id), ASKED_OTHERWISE);
        }
        let message = text(&past.payload, "message").unwrap_or_default();
        let mut error = ModelError::new(ModelErrorCategory::Unavailable, message);
        error.usage = Some(Box::new(usage_of(&past.payload)));
        if past.payload.contains_key(TOO_LONG) {
            (error.category, error.too_long) = (ModelErrorCategory::InvalidRequest, true);
        }
        // A replay has not rested as often, which it does for what was thrown away alone.
        error.retry_after = past.payload.contains_key(IS_LAST).then_some(Duration::MAX);
        error
    }

    /// The summary as it was given, or what the model said or failed with where it gave none. Where nothing was recorded, the
    /// run went on with its whole conversation, and does again.
    fn summary(&self, request: &CompletionRequest) -> Result<Response, ModelError> {
        let asked = self.past.material.is_exact().then(|| digest::of_value(request));
        let Some(past) = self.past.take_summary(asked.as_deref()) else {
            let none = "no summary was recorded that was asked for so";
            // Where one was, it may have been asked for with less, since the model refused this much.
            let too_long = self.past.has_summary();
            return Err(ModelError { too_long, ..ModelError::new(ModelErrorCategory::InvalidRequest, none) });
        };
        self.clock.pass(number(&past.payload, "duration_ms"));
        if let Some(error) = failed_with(&past) {
            // Behind a conversation that was too long it stands in the record where the run has rested for it.
            let usage = past.payload.contains_key("usage").then(|| Box::new(usage_of(&past.payload)));
            return Err(ModelError { may_pass: Some(true), usage, ..read_error(error) });
        }
        let has_said = !is_no_summary(&past) || past.payload.contains_key(RESPONSE);
        let said = if has_said { text(&past.material, SAID) } else { Some("") };
        let Some(said) = said else {
            return Err(
                self.lacks(&format!("llm:summary:{}", past.event_id), "what the model said was too much to be kept")
            );
        };
        let message = AssistantMessage { content: said.into(), ..AssistantMessage::default() };
        let usage = usage_of(&past.payload);
        let is_cut = !has_said && text(&past.payload, "message") == Some(CUT);
        let finish_reason = if is_cut { FinishReason::Length } else { FinishReason::Stop };
        Ok(Response { finish_reason, message, usage, raw: Value::Null, parsed: None })
    }

    fn lacks(&self, key: &str, reason: &str) -> ModelError {
        self.past.material.lack(KIND, key, reason);
        ModelError::new(ModelErrorCategory::InvalidRequest, format!("`{key}` is not recorded: {reason}"))
    }

    /// The call behind the last one that was answered: it failed then, or was never made.
    fn beyond(&self, key: &str) -> ModelError {
        match &self.past.material.end {
            PastEnd::Failed(failure) if self.past.material.is_exact() => {
                failed(failure).unwrap_or_else(|| self.lacks(key, "the run failed for another reason than its model"))
            }
            PastEnd::Failed(_) | PastEnd::Completed | PastEnd::Canceled => {
                self.lacks(key, "the run did not ask its model so often")
            }
        }
    }
}

/// True if `digest` is that of `request`. Whether an answer comes in pieces is nothing that a model is asked: a run that
/// began in a terminal may be replayed by a server.
fn is_asked_by(request: &CompletionRequest, digest: &str) -> bool {
    digest::of_value(request) == digest
        || digest::of_value(&CompletionRequest { stream: !request.stream, ..request.clone() }) == digest
}

/// The error of a model that is shown as `error`.
fn read_error(error: &str) -> ModelError {
    let parts = error
        .split_once(": ")
        .and_then(|(category, message)| Some((ModelErrorCategory::deserialize(Value::from(category)).ok()?, message)));
    let (category, message) = parts.unwrap_or((ModelErrorCategory::InvalidRequest, error));
    ModelError::new(category, message)
}

/// The error with which the run failed, if that was its model's.
fn failed(failure: &FailureRecord) -> Option<ModelError> {
    let category = ModelErrorCategory::deserialize(Value::from(failure.category.as_str())).ok()?;
    let mut error = ModelError::new(category, failure.message.clone());
    // One that may pass, or that somebody may mend, made the run rest first, which a replay does not.
    (error.may_pass, error.retry_after) = (Some(false), Some(Duration::MAX));
    Some(error)
}

fn response(message: AssistantMessage, past: &PastModelAnswer) -> Response {
    let payload = &past.entry.payload;
    let finish = payload.get("finish_reason").and_then(|reason| FinishReason::deserialize(reason).ok());
    let finish_reason = finish.unwrap_or_else(|| finish_of(&message));
    Response { message, finish_reason, usage: usage_of(payload), raw: Value::Null, parsed: None }
}

/// The tokens that an entry counts.
fn usage_of(payload: &Map) -> Usage {
    payload.get("usage").and_then(|usage| Usage::deserialize(usage).ok()).unwrap_or_default()
}

fn finish_of(message: &AssistantMessage) -> FinishReason {
    if message.tool_calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls }
}

/// The answer that `value` gives in the place of `past`: a text, a message, or an answer in the form of an
/// OpenAI-compatible API.
fn replaced(value: &Value, past: Option<&PastModelAnswer>) -> Option<Response> {
    let message = match value {
        Value::String(words) => AssistantMessage { content: words.as_str().into(), ..AssistantMessage::default() },
        Value::Object(_) => {
            let message = value.pointer("/choices/0/message").or_else(|| value.get("message")).unwrap_or(value);
            match read(message) {
                Some(Message::Assistant(message)) => message,
                Some(Message::System { .. } | Message::User { .. } | Message::Tool { .. }) => return None,
                None => AssistantMessage::deserialize(message).ok()?,
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    let usage = past.and_then(|past| Usage::deserialize(past.entry.payload.get("usage")?).ok()).unwrap_or_default();
    Some(Response { finish_reason: finish_of(&message), message, usage, raw: Value::Null, parsed: None })
}

#[async_trait]
impl ModelProvider for RecordedModel {
    fn identity(&self) -> ModelIdentity {
        self.identity.clone()
    }

    async fn ready(&self) -> Result<(), ModelError> {
        Ok(())
    }

    async fn complete(&self, request: &CompletionRequest, _: &CallOptions) -> Result<Response, ModelError> {
        if self.past.is_over() {
            // It did not answer in the time of the run.
            futures::future::pending::<()>().await;
        }
        self.answer(request)
    }
}
