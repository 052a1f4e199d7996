//! Attempts within one call (§7.1).

use std::borrow::Cow;

use dormouse_ports::model::{
    CallEvent, CallOptions, CompletionRequest, Message, ModelError, Response, RetryPolicy, RetryReason, RuntimeConfig,
};

use crate::Provider;
use crate::mask::masked_answer;

/// Asks until there is an answer, or no other attempt is worth it or left.
pub(crate) async fn complete(
    provider: &Provider,
    request: &CompletionRequest,
    options: &CallOptions,
) -> Result<Response, ModelError> {
    let mut sent = Cow::Borrowed(request);
    let mut reason = None;
    let mut attempt = 0;
    let mut may_be_paid = false;
    loop {
        let mut error = match observed(provider, &sent, options, attempt, reason).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        // Those behind an answer that was lost may find nobody: it may be paid all the same.
        error.may_be_paid |= may_be_paid;
        let Some(policy) = &options.retry else { return Err(error) };
        let Some(next) = next_reason(policy, &error, attempt) else { return Err(error) };
        may_be_paid = error.may_have_cost();
        if let Some(on_retry) = &policy.on_retry {
            on_retry(&error, attempt);
        }
        adapt(sent.to_mut(), &request.config, policy, &error, next, attempt);
        provider.setup.ports.clock.sleep((policy.backoff)(attempt, &error)).await;
        reason = Some(next);
        attempt += 1;
    }
}

async fn observed(
    provider: &Provider,
    request: &CompletionRequest,
    options: &CallOptions,
    attempt: u32,
    reason: Option<RetryReason>,
) -> Result<Response, ModelError> {
    options.observer.observe(CallEvent::AttemptStarted { attempt, reason, request });
    let result = masked_answer(provider, provider.attempt(request, options).await).await;
    options.observer.observe(match &result {
        Ok(response) => CallEvent::AttemptSucceeded { attempt, response },
        Err(error) => CallEvent::AttemptFailed { attempt, error },
    });
    result
}

/// Reason why another attempt is worth it, if it is, and one is left.
fn next_reason(policy: &RetryPolicy, error: &ModelError, attempt: u32) -> Option<RetryReason> {
    if attempt.saturating_add(1) >= policy.max_attempts {
        return None;
    }
    // An empty output cannot be repeated to the model: no message may be empty.
    let output = error.structured.as_ref().map(|failure| failure.output_content.as_str());
    if policy.reask.is_some() && output.is_some_and(|output| !output.is_empty()) {
        return Some(RetryReason::Reask);
    }
    (policy.classifier)(error).then_some(RetryReason::Transient)
}

/// Prepares `sent` for the attempt after `attempt`. What earlier attempts have added to the conversation stays.
fn adapt(
    sent: &mut CompletionRequest,
    base: &RuntimeConfig,
    policy: &RetryPolicy,
    error: &ModelError,
    reason: RetryReason,
    attempt: u32,
) {
    let index = usize::try_from(attempt).unwrap_or(usize::MAX);
    let scheduled = policy.per_attempt_override.get(index).or_else(|| policy.per_attempt_override.last());
    if let Some(scheduled) = scheduled {
        sent.config = base.overridden_by(scheduled);
    }
    if let (RetryReason::Reask, Some(reask), Some(failure)) = (reason, &policy.reask, &error.structured) {
        sent.messages.push(Message::assistant(failure.output_content.as_str()));
        sent.messages.push(Message::user(reask(failure)));
    }
}
