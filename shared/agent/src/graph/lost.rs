//! Answers that cannot stand in a conversation, and models that cannot be asked: what the run does about them.

use std::time::Duration;

use dormouse_engine::{NodeError, Update};
use dormouse_ports::Category;
use dormouse_ports::model::{CompletionRequest, FinishReason, ModelError, ModelErrorCategory, Response, Usage};
use serde_json::Value;

use super::background::elapsed;
use super::digest::of_value;
use super::gates::at_end;
use super::model::{awake, conversational, spread};
use super::parts::AgentParts;
use super::plan::invocation;
use super::run::{AgentRun, ModelRest};
use crate::workspace::HookEvent;

/// Seconds of rest before each further attempt: as many as may be paid. Where the provider is away, which the call finds out by
/// attempts of its own, the last one holds from then on.
const RESTS: [u32; 6] = [5, 20, 60, 300, 900, 900];
/// The same where somebody has to mend what the provider refuses, a key for example; the last one holds from then on.
const MENDING_RESTS: [u32; 4] = [60, 300, 900, 3600];
/// Time from the first attempt that failed, behind which a run does not wait any more for what costs nothing.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The longest one through which a run sleeps.
const LONGEST_REST: Duration = Duration::from_secs(24 * 60 * 60);

/// The answer in which a provider refused nothing but the calls: the model is told what is wrong with them.
pub(crate) fn mendable(mut error: ModelError) -> Result<Response, ModelError> {
    match error.rejected.take() {
        Some(response) => Ok(*response),
        None => Err(error),
    }
}

/// No answer that can stand in a conversation.
pub(crate) struct Unusable {
    pub(crate) error: ModelError,
    /// Jobs of the provider that it takes: another one would be the same.
    pub(crate) jobs: u32,
    /// What the model is told before it is asked again; may be empty.
    pub(crate) advice: &'static str,
    /// Tokens of an answer that is thrown away: they are paid.
    pub(crate) usage: Option<Usage>,
}

impl Unusable {
    pub(crate) fn failed(mut error: ModelError) -> Box<Self> {
        let advice = error.raw.as_deref().map(advice_for).unwrap_or_default();
        let usage = error.usage.take().map(|usage| *usage);
        error.may_be_paid |= usage.is_some();
        Box::new(Self { error, jobs: 0, advice, usage })
    }
}

/// Reasons to stop of providers that could not read the call of a tool that the model wrote, and leave it out.
const MISCALLED: [&str; 4] =
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "malformed_tool_use", "malformed_model_output"];
/// What the model is told then.
const HOW_TO_CALL: &str = "Your last answer is lost: it was to call a tool, and the call could not be read. Call only the \
    tools that there are, by their exact names, with arguments that are one JSON object.";

/// What the model is told where its provider says `body`.
fn advice_for(body: &Value) -> &'static str {
    if ModelError::tells_of_miscall(body) { HOW_TO_CALL } else { "" }
}

/// Bytes of a provider's own words about an answer that failed.
const MOST_WORDS: usize = 500;

/// The words in which a provider tells, in `body`, why it failed.
fn words_of(body: &Value) -> Option<&str> {
    let places = ["/error/message", "/error/code", "/error/type", "/error"];
    let mut told = places.iter().filter_map(|place| body.pointer(place)?.as_str());
    told.find(|words| !words.trim().is_empty())
}

/// What is told of an answer in the middle of which its provider failed; `None` of any other.
fn broken_off(response: &Response) -> Option<String> {
    let mut message = response.has_failed().then(|| "the provider failed in the middle of its answer".to_owned())?;
    if let Some(words) = words_of(&response.raw) {
        message.push_str(&format!(": {}", conversational(words, MOST_WORDS)));
    }
    Some(message)
}

/// An answer, or the error of one in the middle of which its provider failed: it is paid all the same.
pub(crate) fn whole(response: Response) -> Result<Response, ModelError> {
    let Some(message) = broken_off(&response) else { return Ok(response) };
    let mut error = ModelError::new(ModelErrorCategory::Unavailable, message);
    error.usage = Some(Box::new(response.billed()));
    Err(error)
}

/// An answer that can stand in a conversation.
pub(crate) fn usable(mut response: Response) -> Result<Response, Box<Unusable>> {
    let usage = Some(response.billed());
    let broken = |message: &str, advice| {
        let error = ModelError::new(ModelErrorCategory::Unavailable, message);
        Err(Box::new(Unusable { error, jobs: 1, advice, usage }))
    };
    if let Some(message) = broken_off(&response) {
        return broken(&message, advice_for(&response.raw));
    }
    // A thought alone answers nothing.
    let is_empty = response.message.content.as_text().trim().is_empty() && response.message.tool_calls.is_empty();
    let is_miscalled = response.stop_word().is_some_and(|word| MISCALLED.contains(&word));
    // What it says besides leads to the call.
    if is_miscalled && response.message.tool_calls.is_empty() {
        return broken("the provider could not read the call of a tool that the model wrote", HOW_TO_CALL);
    }
    // The answer is there, whatever the provider calls its end: asking again is paid and gives no other name.
    if response.finish_reason == FinishReason::Error && !is_empty {
        response.finish_reason = match response.message.tool_calls.is_empty() {
            true => FinishReason::Stop,
            false => FinishReason::ToolCalls,
        };
    }
    // Models end with nothing more to say, behind calls of tools for example; asking again is paid and changes nothing.
    if is_empty && response.finish_reason == FinishReason::ToolCalls {
        return broken("the model stopped to call tools, and calls none", HOW_TO_CALL);
    }
    Ok(response)
}

/// True if `error` refused `request` because of its stream: the same answer may be had in one piece.
pub(crate) fn is_not_streamed(request: &CompletionRequest, error: &ModelError) -> bool {
    let refused = request.stream && error.refuses_stream();
    if refused {
        tracing::info!(%error, "a provider does not stream the answer of a model, which is asked for in one piece");
    }
    refused
}

/// What failed at this step before, by the numbers that its next rest begins with.
pub(crate) fn before(run: &AgentRun) -> ModelRest {
    let (attempts, away, mending, failing_since, jobs) = match (&run.rest, &run.thinking) {
        (Some(rest), _) => (rest.attempts, rest.away, rest.mending, rest.failing_since, rest.jobs),
        (None, Some(job)) => (job.attempts, job.away, job.mending, job.failing_since, job.jobs),
        (None, None) => return ModelRest::default(),
    };
    ModelRest { attempts, away, mending, failing_since, jobs, ..ModelRest::default() }
}

/// True if the attempt that ended with `error`, and with so many `jobs` of this step, may have been paid: a job was begun for it,
/// an answer was, or what came cannot be used.
fn may_be_paid(run: &AgentRun, error: &ModelError, jobs: u32) -> bool {
    let has_job = run.thinking.is_some() || jobs > run.rest.as_ref().map_or(0, |rest| rest.jobs);
    has_job || error.may_have_cost()
}

/// Seconds of the next of `rests`, of which there were so many.
fn next_of(rests: &[u32], before: u32) -> u32 {
    let at = usize::try_from(before).unwrap_or(usize::MAX).min(rests.len() - 1);
    rests.get(at).copied().unwrap_or_default()
}

/// True for what the provider refuses until somebody mends it elsewhere: the key, the model, or what is left of the money. The
/// same request is taken then.
pub(crate) fn is_mendable_elsewhere(error: &ModelError) -> bool {
    match error.category {
        ModelErrorCategory::Authentication | ModelErrorCategory::InvalidModel => !error.is_transient(),
        // Money that is used up is told as a rate, which passes otherwise.
        ModelErrorCategory::RateLimit => !error.is_transient() && !error.too_long,
        ModelErrorCategory::Unavailable
        | ModelErrorCategory::ModelNotLoaded
        | ModelErrorCategory::InvalidResponse
        | ModelErrorCategory::InvalidRequest
        | ModelErrorCategory::UnsupportedContentBlock
        | ModelErrorCategory::StructuredOutputInvalid => false,
    }
}

/// True if there is something to lose, and it was right before: the model of this agent has worked for `run`, or the run has slept
/// since. One that has only begun, or was handed over to an agent whose model was never right, fails at once, where whoever began
/// it sees why; so does one whose model worked in the background and can be heard of no more. A job that ended for want of money
/// is begun anew.
fn waits_for_mending(parts: &AgentParts, run: &AgentRun, error: &ModelError) -> bool {
    let has_worked = (run.steps > 0 && run.agent == parts.agent.name) || run.rest.is_some();
    let is_job_over = run.thinking.is_none() || error.category == ModelErrorCategory::RateLimit;
    has_worked && is_job_over && is_mendable_elsewhere(error)
}

/// True if the run may rest once more behind an attempt that may have been paid.
pub(crate) fn may_rest(run: &AgentRun) -> bool {
    usize::try_from(before(run).attempts).is_ok_and(|attempts| attempts < RESTS.len())
}

/// A moment of rest before the model is asked something else behind `error` and so many jobs.
pub(crate) fn again(parts: &AgentParts, run: &AgentRun, error: &ModelError, jobs: u32) -> ModelRest {
    let before = before(run);
    let failing_since = before.failing_since.or_else(|| Some(parts.clock.now()));
    let (attempts, message) = (before.attempts + 1, error.message.clone());
    ModelRest { attempts, failing_since, seconds: 1, message, jobs, ..before }
}

/// True where `error`, of an answer that is paid, may pass, and the run does not rest for it any more.
pub(crate) fn is_given_up(run: &AgentRun, error: &ModelError) -> bool {
    let is_too_long = error.retry_after.is_some_and(|asked| asked > LONGEST_REST);
    error.is_transient() && (is_too_long || !may_rest(run))
}

/// The `rest` before the next attempt, or the failure of the run where resting does not help.
pub(crate) async fn rest(
    parts: &AgentParts,
    run: &AgentRun,
    error: &ModelError,
    rest: ModelRest,
) -> Result<Update<AgentRun>, NodeError> {
    let now = parts.clock.now();
    let ModelRest { attempts, away, mending, failing_since, .. } = before(run);
    let since = failing_since.unwrap_or(now);
    let is_in_time = elapsed(since, now) < LONGEST_WAIT;
    let rest =
        ModelRest { attempts, away, mending, failing_since: Some(since), message: error.message.clone(), ..rest };
    let asked = error.retry_after.unwrap_or_default();
    if is_in_time && asked <= LONGEST_REST && waits_for_mending(parts, run, error) {
        let seconds = apart(run, next_of(&MENDING_RESTS, mending))?.max(whole_seconds(asked));
        tracing::error!(
            %error, mending, seconds,
            "the model refuses to be asked until somebody mends that; the run sleeps before it tries again"
        );
        return Ok(resting(run, ModelRest { mending: mending + 1, needs_mending: true, seconds, ..rest }));
    }
    let is_paid = may_be_paid(run, error, rest.jobs);
    let may_go_on = error.is_transient() && if is_paid { may_rest(run) } else { is_in_time };
    let next = may_go_on.then(|| next_of(&RESTS, attempts.saturating_add(away)));
    let Some(seconds) = next.filter(|_| asked <= LONGEST_REST) else {
        let category = end_of(run, error);
        at_end(parts, HookEvent::RunFailed, category.as_str(), run).await?;
        let late = match next.is_some() {
            true => format!("; it wants to be asked again in {} seconds, and no run sleeps as long", asked.as_secs()),
            false => String::new(),
        };
        let failed = NodeError::new(format!("{}{late}", error.message)).with_category(category);
        return Err(match parts.limits.shown_in_spans {
            Some(_) => failed,
            None => failed.observed_as(error.in_general()),
        });
    };
    let seconds = apart(run, seconds)?.max(whole_seconds(asked));
    tracing::warn!(%error, attempts, away, seconds, "the model could not be asked; the run sleeps before it tries again");
    let (attempts, away) = if is_paid { (attempts + 1, away) } else { (attempts, away + 1) };
    Ok(resting(run, ModelRest { attempts, away, may_be_paid: is_paid, seconds, ..rest }))
}

/// The category with which `run` ends behind `error`. Where it has slept or worked before, that its model is not to be had is a
/// limit: as something that passes it would be tried again, by each worker and for ever.
fn end_of(run: &AgentRun, error: &ModelError) -> Category {
    let has_begun = run.rest.is_some() || run.thinking.is_some() || run.steps > 0;
    if has_begun && error.category.is_transient() { Category::LimitExceeded } else { error.category.category() }
}

/// `seconds`, and up to an eighth more: runs that came to rest together, as all of a provider that is away do, are spread further
/// with each rest, and do not all ask at the instant at which it is back.
fn apart(run: &AgentRun, seconds: u32) -> Result<u32, NodeError> {
    let ModelRest { attempts, away, mending, .. } = before(run);
    let seed = of_value(&(invocation()?.as_str(), run.steps, attempts, away, mending));
    let more = Duration::from_secs((seconds / 8).into()).mul_f64(spread(&seed));
    Ok(seconds + whole_seconds(more))
}

fn resting(run: &AgentRun, rest: ModelRest) -> Update<AgentRun> {
    AgentRun::rest.set(Some(rest)).set(AgentRun::usage, run.usage).then(awake())
}

fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs() + u64::from(time.subsec_nanos() > 0)).unwrap_or(u32::MAX)
}
