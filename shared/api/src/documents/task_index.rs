//! What the server alone knows of a task: with its document, and while it is open with its session.

use std::collections::BTreeSet;

use dormouse_protocol::id::QuotaId;
use dormouse_protocol::resource::{Outcome, Session, Task, TaskStatus};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Kept, Stored, TranscriptSegment};
use crate::receipts::ReceiptNotes;
use crate::replay::ReplayNote;

/// Bookkeeping of the server about a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskIndex {
    /// Number of events about the task.
    pub(crate) sequence: u64,
    /// The position of its first event in the stream of its session.
    pub(crate) first: u64,
    /// Where the last event is that names it, of a task that has ended. Of those that an earlier version ended nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<u64>,
    /// The graph that does the work.
    pub(crate) graph: String,
    /// Where the messages are in the stream of its session that its agent was given with it, its own among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given: Vec<u64>,
    /// True if those were all of the transcript, of which its agent had been given nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) given_all: bool,
    /// Where those are that its run was given besides when its turn came: no run before it had been given them, or had kept
    /// them.
    #[serde(rename = "late", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_late: Vec<u64>,
    /// True if its run was then given, too, what its session has of the transcript of another one: its agent had been given
    /// nothing of it.
    #[serde(rename = "past", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) given_past: bool,
    /// True if its run hears, in its midst, what is said to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hears: bool,
    /// True if images stay images in the conversation of its run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) shows: bool,
    /// True if its input is a message that joins the transcript when its turn comes, and has no id until then.
    #[serde(rename = "unsaid", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unsaid: bool,
    /// Number of messages of the graph's conversation that were published; unknown before the first turn has ended.
    #[serde(rename = "told")]
    pub(crate) published_messages: Option<u64>,
    /// True if it was given something that is not public: its final state may hold that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_confidential: bool,
    /// Material of its receipts, and where they are.
    #[serde(default, skip_serializing_if = "ReceiptNotes::is_empty")]
    pub(crate) receipts: ReceiptNotes,
    /// The quotas that it counts against.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) quotas: BTreeSet<QuotaId>,
    /// True if it is part of the work of another task, as what that counts for: it took no place of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_part: bool,
    /// Note of the run that it replays, if it is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replay: Option<Box<ReplayNote>>,
    /// Outcome of a task that has ended, unless it is a document of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Box<Outcome>>,
}

/// An open task, as far as its session knows it: every step of a task writes the session anyway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum OpenTask {
    /// Its document is written with each of its steps: the session has many open tasks, or an earlier version wrote it.
    Standing(TaskStanding),
    /// Its document is as it was when it was submitted, but for this.
    Progress(TaskProgress),
}

impl OpenTask {
    /// Its standing.
    pub(crate) fn standing(&self) -> TaskStanding {
        match self {
            Self::Standing(standing) => *standing,
            Self::Progress(progress) => TaskStanding::of(progress.status),
        }
    }
}

/// Standing of an open task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskStanding {
    /// It works.
    Works,
    /// It waits for an answer.
    Waits,
}

impl TaskStanding {
    /// Standing of an open task of this status.
    pub(crate) fn of(status: TaskStatus) -> Self {
        if status.is_suspended() { Self::Waits } else { Self::Works }
    }
}

/// Part of an open task that changes with its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskProgress {
    /// Status in its life.
    pub(crate) status: TaskStatus,
    /// Instant of its last step.
    pub(crate) updated_at: Timestamp,
    /// [`TaskIndex::sequence`].
    pub(crate) sequence: u64,
    /// [`TaskIndex::published_messages`].
    #[serde(rename = "told", default, skip_serializing_if = "Option::is_none")]
    pub(crate) published_messages: Option<u64>,
    /// [`TaskIndex::is_confidential`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_confidential: bool,
    /// [`TaskIndex::receipts`].
    #[serde(default, skip_serializing_if = "ReceiptNotes::is_empty")]
    pub(crate) receipts: ReceiptNotes,
    /// [`TaskIndex::given_late`].
    #[serde(rename = "late", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_late: Vec<u64>,
    /// [`TaskIndex::given_past`].
    #[serde(rename = "past", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) given_past: bool,
    /// Instant at which it began to work, where it had waited for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<Timestamp>,
}

impl TaskProgress {
    /// That of `task`.
    pub(crate) fn of(task: &Kept<Task>) -> Self {
        let created_at = task.resource.envelope.created_at;
        let started_at = task.resource.started_at.filter(|started_at| *started_at != created_at);
        let TaskIndex { sequence, published_messages, is_confidential, given_past, .. } = task.own;
        let status = task.resource.status;
        let updated_at = task.resource.envelope.updated_at;
        let receipts = task.own.receipts.clone();
        let given_late = task.own.given_late.clone();
        Self {
            status,
            updated_at,
            sequence,
            published_messages,
            is_confidential,
            receipts,
            given_late,
            given_past,
            started_at,
        }
    }
}

impl Stored<Task> {
    /// The stretch of a stream with all events that name it.
    pub(crate) fn events(&self) -> TranscriptSegment {
        let TaskIndex { first, last, .. } = self.kept.own;
        TranscriptSegment { stream: self.kept.resource.session_id.to_string(), first, last }
    }

    /// The task as `session`, which was read later, knows it; `None` if it has ended since.
    pub(crate) fn known_to(mut self, session: &Stored<Session>) -> Option<Self> {
        let Kept { resource, own, .. } = &mut self.kept;
        if let OpenTask::Progress(progress) = session.kept.own.open.get(&resource.envelope.id)? {
            let TaskProgress { status, updated_at, sequence, published_messages, is_confidential, given_past, .. } =
                *progress;
            (resource.status, resource.envelope.updated_at) = (status, updated_at);
            resource.started_at = resource.started_at.or(progress.started_at);
            let receipts = progress.receipts.clone();
            let given_late = progress.given_late.clone();
            let before = std::mem::take(own);
            *own =
                TaskIndex { sequence, published_messages, is_confidential, receipts, given_late, given_past, ..before };
        }
        Some(self)
    }
}
