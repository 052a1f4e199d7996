//! What the server alone knows of a session, and the end of its stream, which holds that.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_protocol::id::{QuotaId, TaskId};
use dormouse_protocol::resource::{SessionState, Task, TaskStatus};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Kept, OpenTask, TaskIndex};
use crate::receipts::ChainHead;
use crate::webhooks::Subscriptions;

/// What changes of a session with every event. The end of its stream holds it, so that it is written with the events, and
/// its document only when the rest of it changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionEnd {
    /// Its state.
    pub(crate) state: SessionState,
    /// Instant of its last change.
    pub(crate) updated_at: Timestamp,
    /// Bookkeeping of the server.
    pub(crate) own: SessionIndex,
}

/// Bookkeeping of the server about a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionIndex {
    /// The position of the last event of its stream. Every commit that changes what belongs to the session appends to the
    /// stream, on the condition that no other writer has: that is the lock of all of it.
    pub(crate) position: u64,
    /// Number of events about the session itself.
    pub(crate) sequence: u64,
    /// Number of messages of the transcript.
    pub(crate) messages: u64,
    /// Stretches of streams that make up the transcript; the last one grows.
    pub(crate) transcript: Vec<TranscriptSegment>,
    /// 0 where its agent has been given nothing of the transcript; another position, from which on it has not been given
    /// the messages of its own stream, is of former versions.
    #[serde(rename = "unheard")]
    pub(crate) undelivered_from: Option<u64>,
    /// Otherwise the positions of the messages that its agent has not been given, the newest of them.
    #[serde(rename = "unheard_at", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) undelivered: Vec<u64>,
    /// Those of them that a run is to hear in its midst.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) interruptions: Vec<Interruption>,
    /// The tasks that have not ended.
    pub(crate) open: BTreeMap<TaskId, OpenTask>,
    /// Those of them that wait for their turn, in the order in which they will begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) queue: Vec<TaskId>,
    /// The last receipt of its chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipts: Option<ChainHead>,
    /// Its webhooks.
    #[serde(default, skip_serializing_if = "Subscriptions::is_empty")]
    pub(crate) webhooks: Subscriptions,
    /// Quotas of its workspace and its tenant when it was made.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) quotas: BTreeSet<QuotaId>,
    /// The position of the newest event that notes the key of its request; 0 where none does. A session of a version that
    /// noted none does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keyed: Option<u64>,
    /// Instant from which on no key that could be noted is kept in a document; absent where none is.
    #[serde(rename = "apart", default, skip_serializing_if = "Option::is_none")]
    pub(crate) apart_until: Option<Timestamp>,
}

/// A message to a task whose run hears, in its midst, what is said to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interruption {
    /// Where the message is in the stream of the session.
    pub(crate) position: u64,
    /// The task.
    pub(crate) task: TaskId,
}

/// A stretch of a stream: what of it is part of a transcript, or what a range is read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TranscriptSegment {
    /// Stream that it is a stretch of.
    pub(crate) stream: String,
    /// The first position.
    pub(crate) first: u64,
    /// The last position; grows with the stream when absent.
    pub(crate) last: Option<u64>,
}

/// Number of messages, the newest, that an agent is given that has received none of them.
pub(crate) const HEARD_AT_ONCE: usize = 200;

impl SessionIndex {
    /// That of a session that is made now: no request with a key has written to it.
    pub(crate) fn new() -> Self {
        Self { keyed: Some(0), ..Self::default() }
    }

    /// Notes that the message at `position`, which its agent has not been given, is for the run of `task`.
    pub(crate) fn interrupted(&mut self, task: &TaskId, position: u64) {
        if self.undelivered.contains(&position) {
            self.interruptions.push(Interruption { position, task: task.clone() });
            self.forget_delivered();
        }
    }

    /// Where the messages are that a run of `task` is to hear next. Nobody else is given them while it is open, so that what
    /// it has taken in is still its own when that is written.
    pub(crate) fn unheard_by(&self, task: &TaskId) -> Vec<u64> {
        self.interruptions.iter().filter(|one| one.task == *task).map(|one| one.position).collect()
    }

    /// Notes that a run of `task` has heard those up to `upto`.
    pub(crate) fn heard(&mut self, task: &TaskId, upto: u64) {
        let heard = self.unheard_by(task);
        self.undelivered.retain(|position| *position > upto || !heard.contains(position));
        self.forget_delivered();
    }

    /// Where the messages are that only the run of a task that has not ended is to hear.
    pub(crate) fn awaited(&self) -> Vec<u64> {
        let is_open = |one: &&Interruption| self.open.contains_key(&one.task);
        self.interruptions.iter().filter(is_open).map(|one| one.position).collect()
    }

    /// True if nothing is under way in it, and its agent has been given all messages.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.open.is_empty() && self.undelivered_from.is_none() && self.undelivered.is_empty()
    }

    /// Notes that its agent has been given all messages, but those that a run is to hear.
    pub(crate) fn delivered_but_awaited(&mut self) {
        let awaited = self.awaited();
        self.undelivered_from = None;
        self.undelivered.retain(|position| awaited.contains(position));
        self.forget_delivered();
    }

    fn forget_delivered(&mut self) {
        let Self { interruptions, undelivered, .. } = self;
        interruptions.retain(|one| undelivered.contains(&one.position));
    }

    /// Notes that its agent has not been given the message at `position`.
    pub(crate) fn not_delivered(&mut self, position: u64) {
        if self.undelivered_from.is_none() {
            self.undelivered.push(position);
            let spare = self.undelivered.len().saturating_sub(HEARD_AT_ONCE);
            self.undelivered.drain(..spare);
        }
    }

    /// Notes that what its agent was given with `task`, which is called off or has failed, is in no conversation, unless a step
    /// of it has ended.
    pub(crate) fn not_kept(&mut self, task: &Kept<Task>) {
        let TaskIndex { given, given_all, given_past, given_late, published_messages: None, .. } = &task.own else {
            return;
        };
        // A queued one is given all of it when its turn comes.
        let has_begun = |id: &TaskId| *id != task.resource.envelope.id && !self.queue.contains(id);
        if (*given_all || *given_past) && !self.open.keys().any(has_begun) {
            return self.delivered_but(Some(0));
        }
        // One that waited for its turn was withdrawn before its agent was to hear of it; earlier versions noted its message.
        let own = usize::from(task.resource.status == TaskStatus::Submitted);
        let given = given.get(..given.len().saturating_sub(own)).unwrap_or_default();
        if self.undelivered_from.is_none() {
            self.undelivered.extend(given_late.iter().chain(given));
            self.undelivered.sort_unstable();
            self.undelivered.dedup();
            let spare = self.undelivered.len().saturating_sub(HEARD_AT_ONCE);
            self.undelivered.drain(..spare);
        }
    }

    /// Notes that a run that had waited for its turn is given the messages at `positions`.
    pub(crate) fn delivered_late(&mut self, positions: &[u64]) {
        self.undelivered.retain(|position| !positions.contains(position));
        self.forget_delivered();
    }

    /// Notes that of the transcript, of which its agent had been given nothing, it has been given all but the messages at `own`
    /// in its own stream.
    pub(crate) fn past_delivered(&mut self, mut own: Vec<u64>) {
        let spare = own.len().saturating_sub(HEARD_AT_ONCE);
        own.drain(..spare);
        (self.undelivered_from, self.undelivered) = (None, own);
    }

    /// Notes that its agent has been given the messages from `undelivered_from` on, or all of them.
    pub(crate) fn delivered_but(&mut self, undelivered_from: Option<u64>) {
        self.undelivered_from = undelivered_from;
        self.undelivered.clear();
        self.interruptions.clear();
    }
}
