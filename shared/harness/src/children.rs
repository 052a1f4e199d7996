//! Invocations that begin others.
//!
//! A child is accepted like any other work, under an id that its parent derives from its own step: beginning it again
//! finds it begun. Behind the commit that ends it, its parent is sent a signal over the bus, and the children that it
//! has left are canceled. What a crash loses of that is found by those who look: a parent that waits looks now and then,
//! a child looks at its parent before each step, and before it makes the calls of one.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use dormouse_ports::{
    ChildError, ChildLink, ChildRuns, ChildStanding, ChildStart, ClaimOutcome, ClaimRequest, Commit, CommitError,
    Commits, EventBus, FailureRecord, InvocationId, InvocationStatus, InvocationWrite, Map, PARENT, ParentLink,
    PausedInvocation, SHORTFALL, Shortfall, StepWritten, StoreError,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bucket::Bucket;
use crate::call::{call_for_work, send_signal};
use crate::error::TurnError;
use crate::late_children::HarnessChildren;
use crate::transmission::FreshTurn;
use crate::turn::accepted::accept_in;
use crate::turn::cancel::cancel;
use crate::worker::Worker;

/// Bytes of the answer of a child, at most: what is said behind it has a place in what a model is shown of one result (32 KiB).
const LONGEST_ANSWER: usize = 28 * 1024;
/// The same of the reason for which it fell short of one.
const LONGEST_REASON: usize = 2 * 1024;

/// Children that a worker runs, as long as it is there.
pub(crate) struct WorkerChildren(pub(crate) Weak<Worker>);

impl fmt::Debug for WorkerChildren {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerChildren")
    }
}

impl WorkerChildren {
    fn worker(&self) -> Result<Arc<Worker>, ChildError> {
        let gone = || ChildError { message: "nobody runs other agents here any more".to_owned(), transient: false };
        self.0.upgrade().ok_or_else(gone)
    }
}

#[async_trait]
impl ChildRuns for WorkerChildren {
    async fn begin(&self, start: ChildStart) -> Result<(), ChildError> {
        let worker = self.worker()?;
        let id = start.invocation_id.clone();
        let current = worker
            .graphs
            .beside(&start.metadata, &start.graph)
            .await
            .map_err(|error| ChildError { message: error.message().to_owned(), transient: error.is_transient() })?;
        let turn = FreshTurn {
            session_id: Some(start.session_id),
            invocation_id: Some(id.clone()),
            correlation_id: Some(start.parent.invocation_id.to_string()),
            metadata: start.metadata,
            ..FreshTurn::new(start.graph, start.state)
        };
        let mut paused = accept_in(&worker, turn, current).await.map_err(refused)?;
        // Behind the check of what a caller may set.
        paused.state.insert(PARENT.to_owned(), json!(start.parent));
        paused.begun_for = start.begun_for;
        match worker.records.commit(InvocationWrite::Accept { paused: Box::new(paused), again_at: None }).await {
            // It began in an earlier attempt.
            Ok(()) | Err(CommitError::InvocationConflict) => {}
            Err(error) => return Err(ChildError { message: error.to_string(), transient: true }),
        }
        if let Err(error) = call_for_work(&*worker.bus, &id).await {
            tracing::warn!(%error, %id, "no worker was called for an agent that was asked; the sweep calls for one");
        }
        Ok(())
    }

    async fn look(&self, id: &InvocationId) -> Result<ChildStanding, ChildError> {
        let worker = self.worker()?;
        let Some(record) = worker.records.load(id).await.map_err(refused)? else { return Ok(ChildStanding::Missing) };
        let paused = &record.paused;
        Ok(match &record.status {
            InvocationStatus::Completed { state, .. } => ChildStanding::Ended(completed(paused, state)),
            InvocationStatus::Errored(failure) => ChildStanding::Ended(failed(failure)),
            InvocationStatus::Canceled(cancellation) => {
                ChildStanding::Canceled(canceled(cancellation.reason.as_deref()))
            }
            InvocationStatus::Suspended | InvocationStatus::Resuming(_) | InvocationStatus::Accepted { .. } => {
                ChildStanding::Open
            }
        })
    }

    async fn cancel(&self, id: &InvocationId, reason: &str) -> Result<(), ChildError> {
        let worker = self.worker()?;
        match cancel(&worker, id, None, Some(reason.to_owned())).await {
            Ok(_) => Ok(()),
            // It ended by itself.
            Err(error) if error.bucket != Bucket::RetryableTransient => Ok(()),
            Err(error) => Err(refused(error)),
        }
    }
}

fn refused(error: TurnError) -> ChildError {
    ChildError { transient: error.bucket == Bucket::RetryableTransient, message: error.message }
}

/// Tells parents of the ends of their children, and ends the children of what has ended.
pub(crate) struct EndsTold {
    pub(crate) children: HarnessChildren,
    pub(crate) bus: Arc<dyn EventBus>,
}

impl EndsTold {
    /// The same commits, behind which parents and children are told.
    pub(crate) fn over(self, commits: Arc<dyn Commits>) -> Arc<dyn Commits> {
        Arc::new(TellingCommits { commits, told: self })
    }

    /// The end that was written in the place of the step `commit`, as that of a task whose quota is used up.
    async fn instead_of(&self, commit: &Commit) -> Option<EndNotice> {
        let Some(InvocationWrite::Progress { paused, .. }) = &commit.invocation else { return None };
        let state = paused.outermost_state();
        let (parent, children) = (ParentLink::of(state), ChildLink::open_of(state));
        if parent.is_none() && children.is_empty() {
            return None;
        }
        match self.children.look(&paused.invocation_id).await {
            Ok(ChildStanding::Ended(payload) | ChildStanding::Canceled(payload)) => {
                Some(EndNotice { parent: parent.map(|parent| (parent, payload)), children })
            }
            Ok(ChildStanding::Open | ChildStanding::Missing) => None,
            Err(error) => {
                tracing::warn!(%error, id = %paused.invocation_id, "it is not known whether a run has ended; those who wait for it find out when they look");
                None
            }
        }
    }

    async fn tell(&self, end: EndNotice) {
        if let Some((parent, payload)) = end.parent
            && let Err(error) = send_signal(&*self.bus, &parent.signal_id, payload).await
        {
            tracing::warn!(%error, parent = %parent.invocation_id, "an agent was not told that one that it asked has ended; it finds out when it looks");
        }
        for child in end.children {
            if let Err(error) = self.children.cancel(&child.invocation_id, "the agent that asked has ended").await {
                tracing::warn!(%error, child = %child.invocation_id, "an agent whose asker has ended was not canceled; it finds out before its next step");
            }
        }
    }
}

/// The end of an invocation.
struct EndNotice {
    /// Who is told, and what.
    parent: Option<(ParentLink, Map)>,
    /// Whom it leaves.
    children: Vec<ChildLink>,
}

impl EndNotice {
    /// The end that `commit` writes, where a parent or a child has to know of it.
    fn of(commit: &Commit) -> Option<Self> {
        let (paused, state, payload) = match commit.invocation.as_ref()? {
            InvocationWrite::Complete { paused, state, .. } => (paused, state, completed(paused, state)),
            InvocationWrite::Fail { paused, failure, .. } | InvocationWrite::PutAside { paused, failure, .. } => {
                (paused, paused.outermost_state(), failed(failure))
            }
            InvocationWrite::Cancel { paused, cancellation } => {
                (paused, paused.outermost_state(), canceled(cancellation.reason.as_deref()))
            }
            InvocationWrite::Suspend { .. }
            | InvocationWrite::Accept { .. }
            | InvocationWrite::Deliver { .. }
            | InvocationWrite::Progress { .. }
            | InvocationWrite::CancelBeforeStart { .. }
            | InvocationWrite::Conclude { .. }
            | InvocationWrite::Advance { .. }
            | InvocationWrite::Answer { .. }
            | InvocationWrite::Release { .. }
            | InvocationWrite::Keep { .. }
            | InvocationWrite::Retry { .. }
            | InvocationWrite::AssertClaimed { .. } => return None,
        };
        let parent = ParentLink::of(paused.outermost_state()).map(|parent| (parent, payload));
        let children = ChildLink::open_of(state);
        (parent.is_some() || !children.is_empty()).then_some(Self { parent, children })
    }
}

struct TellingCommits {
    commits: Arc<dyn Commits>,
    told: EndsTold,
}

#[async_trait]
impl Commits for TellingCommits {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.commits.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.told_of(commit, self.commits.commit(commit).await).await
    }

    async fn step(&self, commit: &Commit) -> Result<StepWritten, CommitError> {
        self.told_of(commit, self.commits.step(commit).await).await
    }
}

impl TellingCommits {
    /// `written`, of `commit`: whoever has to know of an end is told.
    async fn told_of<T>(&self, commit: &Commit, written: Result<T, CommitError>) -> Result<T, CommitError> {
        let end = match &written {
            Ok(_) => EndNotice::of(commit),
            Err(CommitError::InvocationConflict) => self.told.instead_of(commit).await,
            Err(_) => None,
        };
        if let Some(end) = end {
            Box::pin(self.told.tell(end)).await;
        }
        written
    }
}

/// The payload of the end of `paused` in `state`: the last words of its conversation, and the session in which it can
/// be asked again, as the output of a tool.
fn completed(paused: &PausedInvocation, state: &Map) -> Map {
    let mut texts = vec![cut(&last_words(state), LONGEST_ANSWER)];
    let shortfall = shortfall(state);
    texts.extend(shortfall.iter().map(|why| format!("[it ended before it was done: {why}]")));
    texts.extend(paused.session_id.iter().map(|session| format!("[task_id: {session}]")));
    output(&texts, shortfall.is_some())
}

/// Why what ended in `state` did not come to an answer, where it did not.
fn shortfall(state: &Map) -> Option<String> {
    let reason = state.get("reason").and_then(Value::as_str).filter(|reason| !["", "completed"].contains(reason));
    let told = state.get(SHORTFALL).and_then(|shortfall| Shortfall::deserialize(shortfall).ok());
    match (told, reason) {
        (Some(Shortfall { code, message }), _) => Some(format!("{code}: {}", cut(&message, LONGEST_REASON))),
        (None, reason) => reason.map(str::to_owned),
    }
}

fn failed(failure: &FailureRecord) -> Map {
    output(&[format!("the agent failed ({}): {}", failure.category, cut(&failure.message, LONGEST_REASON))], true)
}

fn canceled(reason: Option<&str>) -> Map {
    output(&[format!("the agent was canceled: {}", cut(reason.unwrap_or("no reason was given"), LONGEST_REASON))], true)
}

fn output(texts: &[String], is_error: bool) -> Map {
    let content = texts.iter().filter(|text| !text.is_empty()).map(|text| json!({ "type": "text", "text": text }));
    Map::from_iter([("content".to_owned(), content.collect()), ("is_error".to_owned(), is_error.into())])
}

/// The text of the last message of an assistant.
fn last_words(state: &Map) -> String {
    let messages = state.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let last = messages.iter().rev().find(|message| message["role"] == "assistant");
    match last.map(|message| &message["content"]) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        Some(_) | None => String::new(),
    }
}

/// `text`, of which `most` bytes are told; the whole is in the child's own conversation.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let told = &text[..text.floor_char_boundary(most)];
    format!("{told}\n[cut: {} of {} bytes are told; ask for less at a time]", told.len(), text.len())
}
