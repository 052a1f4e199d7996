//! A model that works in the background: the run sleeps, and looks now and then if there is an answer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{NodeError, cancellation};
use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, BackgroundStatus, CompletionRequest, ModelError, ModelErrorCategory, Response,
    StartedJob,
};
use futures::future::{Either, select};
use jiff::Timestamp;
use serde_json::Value;

use super::context;
use super::digest::of_value;
use super::images;
use super::lost::{again, before, is_mendable_elsewhere};
use super::model::millis;
use super::parts::AgentParts;
use super::plan::invocation;
use super::run::{AgentRun, CallStatus, ModelRest, PlannedCall, Thinking};
use super::time::CallTime;
use super::toolset::{OfferedTool, Toolset};
use super::watch::{self, unless_canceled};

/// Seconds from one look to the next; the last ones hold from then on.
const PAUSES: [u32; 9] = [2, 3, 5, 10, 20, 30, 60, 120, 300];
/// Times in a row that the provider may not tell how the job stands: it may be away, or behind a page of somebody else's, or
/// keys may be about to change.
const MOST_FAILURES: u32 = 12;
/// The longest that a model may think.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Time in which a provider still tells which job it has begun, once its run was canceled.
const TO_LEARN: Duration = Duration::from_secs(10);

/// Outcome of asking.
pub(crate) enum Asked {
    /// The model works, or has not been heard of.
    Thinking(Thinking),
    /// There is an answer, or there will be none.
    Answered {
        answer: Result<Box<Response>, ModelError>,
        request_digest: String,
        duration_ms: u64,
        /// Jobs that ended without an answer so far.
        jobs: u32,
    },
    /// The job ended since the provider refuses its images: the step is made once more behind this rest, with its hooks, which a
    /// look runs none of.
    InWords(ModelRest),
    /// The time of the run, or of the turn, was over before the answer came.
    Cut {
        /// The time that there was.
        time: CallTime,
        duration_ms: u64,
    },
}

/// Begins the model call of this step, or looks how it stands.
pub(crate) async fn ask(
    parts: &AgentParts,
    provider: &dyn BackgroundProvider,
    run: &mut AgentRun,
    request: &CompletionRequest,
) -> Result<Asked, NodeError> {
    match run.thinking.clone() {
        Some(thinking) => look(parts, provider, (run, &thinking), request).await,
        None => begin(parts, provider, run, request).await,
    }
}

/// Begins a job. Between the answer of the provider and the commit of this step a worker may die: the next worker begins again with
/// the same key, which is another one of the same request in words.
async fn begin(
    parts: &AgentParts,
    provider: &dyn BackgroundProvider,
    run: &mut AgentRun,
    request: &CompletionRequest,
) -> Result<Asked, NodeError> {
    let ModelRest { attempts, away, mending, failing_since, jobs, .. } = before(run);
    let key = format!("{}/{}/model-{}", invocation()?, run.steps + 1, jobs + 1);
    let in_words = format!("{key}-in-words");
    let request_digest = of_value(request);
    let sent = images::taken(parts, run, request);
    let own = if matches!(sent, Cow::Owned(_)) { &in_words } else { &key };
    let sent = context::advised(sent, run);
    let since = parts.clock.now();
    let mut handed = hand_over(parts, provider, &sent, own).await?;
    if let Err((error, _)) = &handed
        && images::are_refused(parts, &sent, error)
    {
        run.images_refused.clone_from(&parts.model.reference);
        handed = hand_over(parts, provider, &images::in_words(&sent), &in_words).await?;
    }
    let (answer, jobs) = match handed {
        Ok((job, None)) => {
            let (polls, failures, message) = (0, 0, String::new());
            return Ok(Asked::Thinking(Thinking {
                job,
                request_digest,
                since,
                polls,
                failures,
                message,
                attempts,
                away,
                mending,
                failing_since,
                jobs,
            }));
        }
        Ok((_, Some(response))) => (Ok(response), jobs),
        Err((error, ended)) => (Err(error), jobs + ended),
    };
    let duration_ms = if answer.is_ok() { millis(elapsed(since, parts.clock.now())) } else { 0 };
    Ok(Asked::Answered { answer, request_digest, duration_ms, jobs })
}

/// A job, with the answer where it came at once; or the error, and the number of jobs that ended with it: none where the
/// provider took none.
type HandedOver = Result<(BackgroundJob, Option<Box<Response>>), (ModelError, u32)>;

async fn hand_over(
    parts: &AgentParts,
    provider: &dyn BackgroundProvider,
    request: &CompletionRequest,
    key: &str,
) -> Result<HandedOver, NodeError> {
    let mut start = provider.start(request, key);
    let started = match unless_canceled(&*parts.clock, &mut start).await {
        Ok(started) => started,
        Err(ended) => {
            // Only the answer tells which job is to be canceled.
            if let Either::Left((Ok(StartedJob { job, status: BackgroundStatus::Running }), _)) =
                select(start, parts.clock.sleep(TO_LEARN)).await
            {
                end(provider, &job).await;
            }
            return Err(ended);
        }
    };
    // A run that was canceled meanwhile keeps no job, so that nobody else could end it.
    if let Ok(StartedJob { job, status: BackgroundStatus::Running }) = &started
        && let Some(known) = cancellation()
        && let Some(cancellation) = known.by_now().await
    {
        end(provider, job).await;
        return Err(watch::canceled(&cancellation));
    }
    Ok(match started {
        Ok(StartedJob { job, status: BackgroundStatus::Running }) => Ok((job, None)),
        Ok(StartedJob { job, status: BackgroundStatus::Completed(response) }) => Ok((job, Some(response))),
        Ok(StartedJob { status: BackgroundStatus::Failed(error), .. }) => Err((*error, 1)),
        Ok(StartedJob { status: BackgroundStatus::Canceled, .. }) => Err((canceled(), 1)),
        Err(error) => Err((error, 0)),
    })
}

fn canceled() -> ModelError {
    ModelError::new(ModelErrorCategory::Unavailable, "somebody canceled the model call at the provider")
}

/// The error of a job that its provider does not know. Whether it answered is not known; asking anew does nothing but cost as much
/// again, and is worth that once: a provider that keeps no jobs would be paid for each of them.
fn forgotten(thinking: &Thinking, error: ModelError) -> ModelError {
    let message = format!(
        "the provider does not know the model call `{}` any more: it keeps one for a limited time, and tells of it to the project \
         and at the address that began it. What it may have answered is lost, and may have been paid; asking again does no other \
         harm",
        thinking.job.id
    );
    ModelError { message, may_pass: Some(thinking.jobs == 0), ..error }
}

async fn look(
    parts: &AgentParts,
    provider: &dyn BackgroundProvider,
    (run, thinking): (&mut AgentRun, &Thinking),
    request: &CompletionRequest,
) -> Result<Asked, NodeError> {
    let told = unless_canceled(&*parts.clock, provider.poll(&thinking.job, request)).await?;
    let waited = elapsed(thinking.since, parts.clock.now());
    let still = |failures, message| {
        Asked::Thinking(Thinking { polls: thinking.polls + 1, failures, message, ..thinking.clone() })
    };
    let (answer, jobs) = match told {
        Ok(BackgroundStatus::Running) if waited < LONGEST => return Ok(still(0, String::new())),
        Ok(BackgroundStatus::Running) => {
            end(provider, &thinking.job).await;
            let message = format!("the model did not answer within {} hours", LONGEST.as_secs() / 3600);
            (Err(ModelError::new(ModelErrorCategory::InvalidResponse, message)), thinking.jobs + 1)
        }
        Ok(BackgroundStatus::Completed(response)) => (Ok(response), thinking.jobs),
        Ok(BackgroundStatus::Failed(error))
            if images::are_refused(parts, &images::taken(parts, run, request), &error) =>
        {
            run.images_refused.clone_from(&parts.model.reference);
            return Ok(Asked::InWords(again(parts, run, &error, thinking.jobs + 1)));
        }
        Ok(BackgroundStatus::Failed(error)) => (Err(*error), thinking.jobs + 1),
        Ok(BackgroundStatus::Canceled) => (Err(canceled()), thinking.jobs + 1),
        // It may be unknown for a moment where the provider has only just taken it.
        Err(error) if error.status == Some(404) && thinking.failures > 0 => {
            (Err(forgotten(thinking, error)), thinking.jobs + 1)
        }
        // What the model has thought is paid: it is kept till somebody has mended the key, as long as it may think at all.
        Err(error) if thinking.failures < MOST_FAILURES || (is_mendable_elsewhere(&error) && waited < LONGEST) => {
            tracing::warn!(%error, job = thinking.job.id, "the provider does not tell how a model call stands; it is asked again");
            return Ok(still(thinking.failures + 1, error.message));
        }
        Err(error) => {
            end(provider, &thinking.job).await;
            (Err(error), thinking.jobs + 1)
        }
    };
    let request_digest = thinking.request_digest.clone();
    Ok(Asked::Answered { answer, request_digest, duration_ms: millis(waited), jobs })
}

/// Seconds until the next look.
pub(crate) fn pause(thinking: &Thinking) -> u32 {
    let at = usize::try_from(thinking.polls).unwrap_or(usize::MAX).min(PAUSES.len() - 1);
    PAUSES.get(at).copied().unwrap_or(300)
}

pub(super) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// Ends `job`, since no run waits for it any more.
pub(crate) async fn end(provider: &dyn BackgroundProvider, job: &BackgroundJob) {
    if let Err(error) = provider.cancel(job).await {
        tracing::warn!(%error, job = job.id, "a model call could not be canceled at its provider; it goes on there");
    }
}

/// Tells those who work for a run that was canceled: the model's provider, and the sources of pending calls.
pub(crate) async fn withdraw(parts: Arc<AgentParts>, run: AgentRun) {
    if let (Some(thinking), Some(provider)) = (&run.thinking, &parts.model.background) {
        end(&**provider, &thinking.job).await;
    }
    let pending: Vec<(&PlannedCall, &Value)> = run.calls.iter().filter_map(work_of).collect();
    if pending.is_empty() {
        return;
    }
    let tools = Toolset::of(&parts).await;
    for (call, state) in pending {
        let pending = OfferedTool::of_pending(&parts, call);
        let Some(tool) = tools.made(call, pending.as_ref()) else { continue };
        if let Err(error) = tool.part.source.withdraw(&tool.spec.name, state).await {
            tracing::warn!(%error, tool = call.tool, "nobody could be told that a call was canceled; it goes on elsewhere");
        }
    }
}

/// A call that goes on elsewhere, and how its source knows it.
fn work_of(call: &PlannedCall) -> Option<(&PlannedCall, &Value)> {
    let state = match &call.status {
        CallStatus::Pending { pending, .. } => &pending.state,
        CallStatus::Ready { .. } | CallStatus::Begun { .. } | CallStatus::Asking { .. } => &call.polled,
        CallStatus::NeedsApproval | CallStatus::Uncertain { .. } | CallStatus::Answered { .. } => return None,
    };
    (!state.is_null()).then_some((call, state))
}
