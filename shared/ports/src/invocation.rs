use std::sync::Arc;

use async_trait::async_trait;
use dormouse_json::Items;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::PARTS_OF_TENANT;
use crate::{
    Answered, Category, EventShape, FanIn, InvocationId, Map, Owner, PauseEnd, SessionId, SharedMap, SignalId,
    StoreError, StoredList, WakePlan,
};

/// Reads of invocations. Their claims and their changes are [`Commits`](crate::Commits).
#[async_trait]
pub trait Invocations: Send + Sync {
    /// Loads the record of an invocation that was suspended at least once, or canceled.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError>;

    /// Each of `ids` as [`load_invocation`](Self::load_invocation) gives it, in their order, with few requests; at most
    /// 100 of them. One that cannot be read does not keep the others from being.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn load_invocations(&self, ids: &[InvocationId]) -> Result<Vec<LoadedInvocation>, StoreError> {
        let mut loaded = Vec::new();
        for id in ids {
            loaded.push(match self.load_invocation(id).await {
                Err(error) if !matches!(error, StoreError::Corrupt(_)) => return Err(error),
                record => record,
            });
        }
        Ok(loaded)
    }

    /// The same for who tells what each of them waits for, and goes on with none: the store may leave out what it keeps of
    /// their states beside them, as the lists of long conversations.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn load_pauses(&self, ids: &[InvocationId]) -> Result<Vec<LoadedInvocation>, StoreError> {
        self.load_invocations(ids).await
    }

    /// The cancellation of the invocation `id`, if it was canceled. The store may answer without loading the record's
    /// state.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn cancellation(&self, id: &InvocationId) -> Result<Option<Cancellation>, StoreError> {
        Ok(match self.load_invocation(id).await?.map(|record| record.status) {
            Some(InvocationStatus::Canceled(cancellation)) => Some(cancellation),
            Some(
                InvocationStatus::Suspended
                | InvocationStatus::Accepted { .. }
                | InvocationStatus::Resuming(_)
                | InvocationStatus::Completed { .. }
                | InvocationStatus::Errored(_),
            )
            | None => None,
        })
    }

    /// Generation and phase of each of `ids`, in their order, without loading any state; at most 100 of them.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError>;
}

/// An invocation, if it ever slept; or the error for which its stored record cannot be read.
pub type LoadedInvocation = Result<Option<InvocationRecord>, StoreError>;

/// Summary of an invocation, read without loading its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvocationSummary {
    /// Its latest pause.
    pub generation: u64,
    /// Its phase.
    pub standing: InvocationPhase,
}

/// Phase of an invocation, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvocationPhase {
    /// It sleeps.
    Asleep,
    /// A payload is accepted for it, and no worker has claimed it.
    Accepted {
        /// Instant of the acceptance, by the clock of its writer; long past where that is not known.
        since: Timestamp,
        /// True if a worker has looked at it, and it has to wait for other work
        /// ([`InvocationWrite::Release`](crate::InvocationWrite::Release) with an instant).
        postponed: bool,
    },
    /// A worker resumes it.
    Claimed {
        /// Instant at which the claim ends by itself.
        until: Timestamp,
    },
    /// It was put aside: no worker resumes it until an operator lets it be tried again. Its pause is whole, and its
    /// wait stays.
    Aside,
    /// It completed, failed or was canceled.
    Ended,
}

/// Signal that an invocation waits for (suspension §4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SignalDescriptor {
    /// The correlation token, chosen by the node.
    #[schemars(with = "String")]
    pub signal_id: SignalId,
    /// Application data that travels with the wait. The keys `wake_at`, `wake_after`, `timeout`, `deadlines` and
    /// `event` ask the harness for a wake-up, `expects` for several signals; `accepts` and `into` restrict the answer
    /// ([`AnswerRule`](crate::AnswerRule)); `keeps` names signals for which a later pause waits, and `progress` how far the work
    /// is. All others are opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map>,
}

impl SignalDescriptor {
    /// The `kind` of the question of an agent whether a call happened, whose answers are no plain yes and no.
    pub const UNCERTAIN_EFFECT: &str = "uncertain_effect";
    /// The `kind` of the questions that the tools of an agent ask.
    pub const TOOL_INPUT: &str = "tool_input";
    /// The keys of the metadata that are for the server alone: what it arranges, and what it makes of an answer.
    pub const FOR_THE_SERVER: [&str; 9] =
        ["answers", "deadlines", "event", "keeps", "progress", "timeout", "wake_after", "wake_at", "wake_payload"];

    /// A descriptor without metadata.
    pub fn new(signal_id: impl Into<SignalId>) -> Self {
        Self { signal_id: signal_id.into(), metadata: None }
    }

    /// `answer` with the name of the `actor` that gives it, where the descriptor has a field for that: `by` of its
    /// `answers`. No actor answers in the name of another, even if the answer names one.
    #[must_use]
    pub fn signed(&self, mut answer: Map, actor: &str) -> Map {
        if let Some(by) = self.answered_by() {
            answer.insert(by.to_owned(), actor.into());
        }
        answer
    }

    /// True if a later pause waits for the signal `id`, which is no one's outcome meanwhile.
    pub fn keeps(&self, id: &SignalId) -> bool {
        let kept = self.metadata.as_ref().and_then(|metadata| metadata.get("keeps")?.as_array());
        kept.is_some_and(|kept| {
            let (_, plain) = id.origin();
            kept.iter().any(|kept| kept.as_str() == Some(plain.as_str()))
        })
    }

    /// How far the work is, in a number of its author's.
    pub fn progress(&self) -> Option<u64> {
        self.metadata.as_ref()?.get("progress")?.as_u64()
    }

    /// The field of an answer that receives the name of who gives it.
    pub fn answered_by(&self) -> Option<&str> {
        self.metadata.as_ref()?.get("answers")?.get("by")?.as_str()
    }

    /// Sets the metadata key `name` to `value`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.metadata.get_or_insert_default().insert(name.to_owned(), value.into());
        self
    }
}

/// A node that finished (pipeline-utilities §10.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePosition {
    /// Path of the graph that contains the node; empty for the outermost graph.
    pub namespace: Vec<Arc<str>>,
    /// Name of the node in that graph.
    pub node_name: Arc<str>,
    /// Position in the order of executions of the invocation, from 0.
    pub step: u64,
    /// Attempt of the node, from 0.
    pub attempt_index: u32,
    /// Index of the fan-out instance it ran in, where it ran in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_out_index: Option<u32>,
}

/// The generation of an invocation that has not paused. Its pauses count from 1.
pub const BEFORE_FIRST_PAUSE: u64 = 0;

/// Stage that an invocation has come to, as its record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvocationStage {
    /// It was canceled under its id before any request brought it: nothing else is known of it.
    CanceledAhead,
    /// Its request is known, and it has not paused: it was accepted and waits for a worker, or ended without a pause.
    BeforeFirstPause,
    /// It has paused at least once.
    Paused,
}

/// The persisted pause: all that any worker needs to go on (suspension §2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PausedInvocation {
    /// Invocation that is suspended.
    pub invocation_id: InvocationId,
    /// Joins the invocation with its cause.
    pub correlation_id: String,
    /// The session it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Name under which the graph is registered; any worker finds it by that name. Empty where only the id is known
    /// ([`InvocationStage::CanceledAhead`]).
    pub graph: String,
    /// Digest of the graph's shape when it went to sleep.
    pub graph_digest: String,
    /// Number of the pause in the invocation, from 1; [`BEFORE_FIRST_PAUSE`] until then.
    pub generation: u64,
    /// Signal that it waits for.
    pub descriptor: SignalDescriptor,
    /// Instant and cause of its own wake-up.
    #[serde(default)]
    pub wake: WakePlan,
    /// The signals that it waits for instead of the descriptor's own, when these are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_in: Option<FanIn>,
    /// Number of pauses in a row, this one included, that wake by themselves almost at once.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub self_wakes: u32,
    /// State of the innermost active graph.
    pub state: SharedMap,
    /// States of the graphs around it, outermost first.
    #[serde(default)]
    pub parent_states: Vec<Map>,
    /// True if a worker has come further than the pause: state and place are those of its last durable step
    /// ([`InvocationWrite::Progress`](crate::InvocationWrite::Progress)). It goes on from there, and takes no payload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub under_way: bool,
    /// Path from the outermost graph to the node at which execution goes on, its own name last.
    pub namespace: Vec<Arc<str>>,
    /// Path to the node that called `suspend()`; longer than `namespace` when it ran inside a fan-out or a branch.
    pub suspended_at_node: Vec<Arc<str>>,
    /// Nodes that finished; holds the suspending node exactly when it is not to run again.
    #[serde(default)]
    pub completed_positions: Vec<NodePosition>,
    /// The next step number.
    pub step: u64,
    /// Step number of the suspending node.
    pub suspended_step: u64,
    /// Attempt index of the suspending node, kept when it runs again (suspension §3).
    pub attempt_index: u32,
    /// Attempt indices of the subgraph nodes around it, outermost first: their retries count for themselves. In a
    /// record that is older than this field all have `attempt_index`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outer_attempts: Vec<u32>,
    /// Schema version of the outermost state.
    pub schema_version: String,
    /// Version of the session record that holds the session state of this pause: the one that was written together with
    /// it, or an earlier one when that was merged with the save of another turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_version: Option<u64>,
    /// Caller-supplied metadata of the invocation (observability §3.4).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map,
    /// Opaque data of the layer that called `invoke()`, given back to it on resume.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub carried: Map,
    /// Digest of the starter and its request, where those were given: only a caller that sends the same request in the
    /// same name gets an answer about it when it names the id again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
    /// The tenant whose keys bring signals to it; `None` where only the key of the deployment does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The tenant in whose name it began, with whose erasure it goes; `None` where nobody named one, and in a record that is
    /// older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_for: Option<String>,
    /// W3C trace context of the suspended turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_context: Option<String>,
    /// Instant at which it went to sleep.
    pub suspended_at: Timestamp,
    /// The answer that ended the pause, where one caller gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Answered>,
    /// Cause that ended the pause; unknown while it sleeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
    /// The pause before this one, as it ended; unknown in the first, and in a record that is older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<PauseEnd>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde takes")]
fn is_none_yet(count: &u32) -> bool {
    *count == 0
}

/// The reserved key of a payload for the cause that ends the pause. Only the harness sets it; a state field of this
/// name receives it with every resumption, as a string.
pub const RESOLUTION: &str = "dormouse_resolution";

/// Field of a state in which a graph that reached END says that it did not come to what it was asked for, as a
/// [`Shortfall`]: its task has failed then.
pub const SHORTFALL: &str = "dormouse_shortfall";

/// Reason for which an invocation that reached END did not come to what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
}

/// Cause that ended a pause. A decision of time is never taken for a decision of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The awaited signal came.
    Signalled,
    /// The wake-up that the pause had asked for came.
    Woken,
    /// No signal came in time.
    TimedOut,
}

impl Resolution {
    /// The `snake_case` name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signalled => "signalled",
            Self::Woken => "woken",
            Self::TimedOut => "timed_out",
        }
    }

    /// The resolution that `payload` has under [`RESOLUTION`]. A payload without such a word is a signal.
    pub fn of(payload: &Map) -> Self {
        match payload.get(RESOLUTION).and_then(serde_json::Value::as_str) {
            Some("timed_out") => Self::TimedOut,
            Some("woken") => Self::Woken,
            Some(_) | None => Self::Signalled,
        }
    }

    /// Writes itself into `payload`.
    #[must_use]
    pub fn mark(self, mut payload: Map) -> Map {
        payload.insert(RESOLUTION.to_owned(), self.as_str().into());
        payload
    }
}

impl PausedInvocation {
    /// Shape of the events it waits for; `None` when it waits for none, or for one that no rule can carry.
    pub fn event_shape(&self) -> Option<EventShape> {
        self.wake.event.as_ref()?.shape(&self.descriptor.signal_id).ok()
    }

    /// The record of an invocation of the graph `graph` that has not paused: it was accepted, or ended without a pause.
    /// The caller says the rest of what it knows.
    pub fn before_first_pause(invocation_id: InvocationId, graph: impl Into<String>, now: Timestamp) -> Self {
        Self {
            invocation_id,
            correlation_id: String::new(),
            session_id: None,
            graph: graph.into(),
            graph_digest: String::new(),
            generation: BEFORE_FIRST_PAUSE,
            descriptor: SignalDescriptor::new(""),
            wake: WakePlan::default(),
            fan_in: None,
            self_wakes: 0,
            state: SharedMap::default(),
            parent_states: Vec::new(),
            under_way: false,
            namespace: Vec::new(),
            suspended_at_node: Vec::new(),
            completed_positions: Vec::new(),
            step: 0,
            suspended_step: 0,
            attempt_index: 0,
            outer_attempts: Vec::new(),
            schema_version: String::new(),
            session_version: None,
            metadata: Map::new(),
            carried: Map::new(),
            request_digest: None,
            tenant: None,
            begun_for: None,
            trace_context: None,
            suspended_at: now,
            answered: None,
            resolution: None,
            before: None,
        }
    }

    /// The record of an invocation that was canceled before anything but its id was known.
    pub fn canceled_ahead(invocation_id: InvocationId, now: Timestamp) -> Self {
        Self::before_first_pause(invocation_id, "", now)
    }

    /// As much of the invocation as is left when its record cannot be read: its id, and the number of its pause.
    pub fn unreadable(invocation_id: InvocationId, generation: u64, now: Timestamp) -> Self {
        Self { generation, ..Self::canceled_ahead(invocation_id, now) }
    }

    /// Stage that the invocation has come to.
    pub fn stage(&self) -> InvocationStage {
        match self.generation {
            BEFORE_FIRST_PAUSE if self.graph.is_empty() => InvocationStage::CanceledAhead,
            BEFORE_FIRST_PAUSE => InvocationStage::BeforeFirstPause,
            _ => InvocationStage::Paused,
        }
    }

    /// `true` once it has paused.
    pub fn has_paused(&self) -> bool {
        self.stage() == InvocationStage::Paused
    }

    /// `true` once it has come to a place in its graph at which it goes on: by a pause or by a durable step.
    pub fn has_begun(&self) -> bool {
        self.under_way || self.has_paused()
    }

    /// The state of the outermost graph.
    pub fn outermost_state(&self) -> &Map {
        self.parent_states.first().unwrap_or(&self.state)
    }

    /// The items of `field` in it, if that is a list; nothing is copied for them.
    pub fn outermost_items(&self, field: &str) -> Option<Items<'_>> {
        match self.parent_states.first() {
            Some(outermost) => outermost.get(field).and_then(Items::of),
            None => self.state.items(field),
        }
    }

    /// The signals that it waits for, by their plain names.
    pub fn awaited(&self) -> impl Iterator<Item = &SignalId> {
        let several = self.fan_in.iter().flat_map(|fan_in| fan_in.expected.iter().map(|one| &one.signal_id));
        let single = self.fan_in.is_none().then_some(&self.descriptor.signal_id);
        several.chain(single).filter(|_| self.has_paused())
    }

    /// The same signals as they are stored: each by its plain name, and once more by the name under which events of the
    /// awaited shape bring it, where it waits for such, and under that for the keys of its tenant, where it has one and
    /// does not wait for more than [`PARTS_OF_TENANT`](crate::limits::PARTS_OF_TENANT) signals.
    pub fn waits(&self) -> impl Iterator<Item = SignalId> {
        let shape = self.event_shape().map(|shape| shape.id());
        let of_events = shape.into_iter().flat_map(|shape| self.awaited().map(move |id| id.of_event(&shape)));
        let fits = self.awaited().take(PARTS_OF_TENANT + 1).count() <= PARTS_OF_TENANT;
        let tenant = self.tenant.as_deref().filter(|_| fits);
        let of_tenant = tenant.into_iter().flat_map(|tenant| self.awaited().map(move |id| id.of_tenant(tenant)));
        self.awaited().cloned().chain(of_events).chain(of_tenant)
    }

    /// `true` if execution goes on behind the suspending node, `false` if it runs the node again.
    pub fn node_completed(&self) -> bool {
        let Some((node, containing)) = self.namespace.split_last() else { return false };
        self.completed_positions
            .iter()
            .any(|p| p.node_name == *node && p.namespace == containing && p.step == self.suspended_step)
    }
}

/// The right to resume a paused invocation, until it is given back or ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The worker that resumes.
    pub owner: Owner,
    /// Instant at which the claim ends by itself and another delivery may take it.
    pub until: Timestamp,
    /// The payload of the first delivery: it stands, even if its worker dies.
    pub payload: Map,
    /// Number of workers that have claimed the invocation since it last got further, this one included, without those
    /// that gave the claim back or left it whole: all before this one died.
    #[serde(default)]
    pub attempts: u32,
    /// True if the payload was there before this claim: accepted for whoever comes, or left by a worker that died.
    #[serde(default)]
    pub taken_over: bool,
}

/// An error as it is kept and shown after the invocation ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// The specification's name of the error.
    pub category: Category,
    /// Message for a person.
    pub message: String,
}

/// Record that an invocation was canceled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancellation {
    /// Reason that the canceling caller gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Instant of the cancellation.
    pub at: Timestamp,
}

impl Cancellation {
    /// One sentence for a person.
    pub fn message(&self) -> String {
        match &self.reason {
            Some(reason) => format!("the invocation was canceled at {}: {reason}", self.at),
            None => format!("the invocation was canceled at {}", self.at),
        }
    }
}

/// Status of a stored invocation.
#[derive(Clone, Debug, PartialEq)]
pub enum InvocationStatus {
    /// It sleeps.
    Suspended,
    /// A payload is accepted for it, and no worker has claimed it: the first that takes the claim over goes on with it.
    Accepted {
        /// The payload that it goes on with; stands from now on.
        payload: Map,
    },
    /// A worker resumes it.
    Resuming(Claim),
    /// It reached END.
    Completed {
        /// The final state.
        state: Map,
    },
    /// It ended with an error.
    Errored(FailureRecord),
    /// A caller ended it. A worker that was resuming it at that moment writes nothing any more.
    Canceled(Cancellation),
}

impl InvocationStatus {
    /// The state with which it has completed; `None` if it has not.
    pub fn into_final_state(self) -> Option<Map> {
        match self {
            Self::Completed { state } => Some(state),
            Self::Suspended | Self::Accepted { .. } | Self::Resuming(_) | Self::Errored(_) | Self::Canceled(_) => None,
        }
    }
}

/// The stored record of an invocation that was accepted, suspended at least once, or canceled.
#[derive(Clone, Debug, PartialEq)]
pub struct InvocationRecord {
    /// Its status.
    pub status: InvocationStatus,
    /// Its latest pause. After the end only identity, graph, generation and descriptor are meaningful: the state of
    /// the pause is not kept.
    pub paused: PausedInvocation,
    /// The lists of its outermost state that the store keeps in pieces; goes into
    /// [`GrowingLists`](crate::GrowingLists).
    pub stored: Vec<StoredList>,
    /// The outermost state with which its session was saved last, where steps that were
    /// [noted](crate::StepWritten::Noted) since are ahead of it: from that to the state of [`paused`](Self::paused) is what the
    /// session lacks at [`session_version`](PausedInvocation::session_version). `None` where it lacks nothing, and where a node
    /// has [saved](crate::InvocationWrite::AssertClaimed) the session behind them.
    pub saved: Option<SharedMap>,
}
