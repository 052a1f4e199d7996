use dormouse_ports::Method;
use dormouse_ports::model::{
    BackgroundJob, BackgroundStatus, CompletionRequest, ModelError, ModelErrorCategory, StartedJob,
};
use serde_json::Value;

use super::{has_lost_reasoning, request, response, without_reasoning};
use crate::Provider;
use crate::attempt::{refused, whole_body};
use crate::canonical::canonical;
use crate::check::{check_request, has_images, invalid};
use crate::failure::{TOO_LONG, USED_UP, of_malformed};
use crate::judge::Judge;
use crate::structured::Structured;
use crate::wire::{Malformed, segment};

/// Hands `request` over.
pub(super) async fn start(
    provider: &Provider,
    request: &CompletionRequest,
    key: &str,
) -> Result<StartedJob, ModelError> {
    check_request(request, provider.capabilities(), &provider.schemas)?;
    if request.stream {
        return Err(invalid("nobody listens to what is made in the background; leave `stream` out".to_owned()));
    }
    let sent = structured(provider, request).prepare(request, provider.wire.ids(), provider.wire.origin());
    let handed = hand_over(provider, &sent, key).await;
    let answer = match handed {
        Err(error) if has_lost_reasoning(&error) => {
            let sent = without_reasoning(sent.into_owned());
            hand_over(provider, &sent, &format!("{key}-without-reasoning")).await?
        }
        handed => handed?,
    };
    match answer.get("id").and_then(Value::as_str) {
        Some(id) => {
            let job = BackgroundJob { id: id.to_owned() };
            // One that says nothing of how it stands tells when it is asked.
            let status = status(provider, request, answer).unwrap_or(BackgroundStatus::Running);
            Ok(StartedJob { job, status })
        }
        None => Err(of_malformed(Malformed::new("the response has no `id`"), Some(answer))),
    }
}

async fn hand_over(provider: &Provider, sent: &CompletionRequest, key: &str) -> Result<Value, ModelError> {
    let body = canonical(request::encode(&provider.setup.model, sent, true)?);
    let outbound = provider.quick_request(Method::Post, "/responses").await?.header("idempotency-key", key);
    ask(provider, outbound.json(body.to_string().into_bytes()), has_images(sent)).await
}

/// Asks how `job` stands.
pub(super) async fn poll(
    provider: &Provider,
    job: &BackgroundJob,
    request: &CompletionRequest,
) -> Result<BackgroundStatus, ModelError> {
    let path = format!("/responses/{}", segment(&job.id));
    let raw = ask(provider, provider.quick_request(Method::Get, &path).await?, false).await?;
    let unknown = |raw| of_malformed(Malformed::new("the response has no known `status`"), Some(raw));
    status(provider, request, raw).map_err(unknown)
}

/// How the job stands whose response is `raw`.
///
/// # Errors
/// `raw` where its `status` is not known.
fn status(provider: &Provider, request: &CompletionRequest, raw: Value) -> Result<BackgroundStatus, Value> {
    match raw.get("status").and_then(Value::as_str) {
        Some("queued" | "in_progress") => Ok(BackgroundStatus::Running),
        Some("cancelled") => Ok(BackgroundStatus::Canceled),
        Some("completed" | "incomplete") => Ok(ended(provider, request, raw)),
        Some("failed") => Ok(BackgroundStatus::Failed(Box::new(failure(raw)))),
        Some(_) | None => Err(raw),
    }
}

/// Ends `job`.
pub(super) async fn cancel(provider: &Provider, job: &BackgroundJob) -> Result<(), ModelError> {
    let path = format!("/responses/{}/cancel", segment(&job.id));
    ask(provider, provider.quick_request(Method::Post, &path).await?, false).await.map(|_| ())
}

async fn ask(
    provider: &Provider,
    outbound: dormouse_ports::FetchRequest,
    has_images: bool,
) -> Result<Value, ModelError> {
    let answer = provider.send(outbound).await?;
    if !(200..300).contains(&answer.status) {
        return Err(refused(&*provider.wire, &*provider.setup.ports.clock, has_images, answer).await);
    }
    whole_body(answer, provider.setup.limits.most_bytes).await
}

fn structured(provider: &Provider, request: &CompletionRequest) -> Structured {
    Structured::of(request, provider.capabilities().structured_output, provider.wire.coerces())
}

fn ended(provider: &Provider, request: &CompletionRequest, raw: Value) -> BackgroundStatus {
    let structured = structured(provider, request);
    let judge = Judge { request, structured, origin: provider.wire.origin(), schemas: &provider.schemas };
    let judged = match response::decode(&raw) {
        Ok(answer) => judge.judge(answer, raw),
        Err(malformed) => Err(of_malformed(malformed, Some(raw))),
    };
    match judged {
        Ok(response) => BackgroundStatus::Completed(Box::new(response)),
        Err(error) => BackgroundStatus::Failed(Box::new(error)),
    }
}

/// The error of a job that failed.
fn failure(raw: Value) -> ModelError {
    let text = |name: &str| raw.get("error").and_then(|error| error.get(name)).and_then(Value::as_str);
    let category = match text("code") {
        Some("rate_limit_exceeded" | "insufficient_quota") => ModelErrorCategory::RateLimit,
        Some("invalid_prompt" | "context_length_exceeded") => ModelErrorCategory::InvalidRequest,
        Some(code) if code.contains("image") => ModelErrorCategory::UnsupportedContentBlock,
        Some(_) | None => ModelErrorCategory::Unavailable,
    };
    let words = text("message").unwrap_or("it gave no reason");
    let (advice, may_pass) = match text("code") {
        Some("insufficient_quota") => (USED_UP, Some(false)),
        Some("context_length_exceeded") => (TOO_LONG, None),
        Some(_) | None => ("", None),
    };
    let mut error = ModelError::new(category, format!("the provider gave up in the background: {words}{advice}"));
    error.may_pass = may_pass;
    error.too_long = raw.pointer("/error/code").and_then(Value::as_str) == Some("context_length_exceeded");
    error.usage =
        raw.get("usage").filter(|usage| usage.is_object()).map(|usage| Box::new(response::usage(Some(usage))));
    error.raw = Some(Box::new(raw));
    error
}
