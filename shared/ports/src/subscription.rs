use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{EventRule, FanIn, InvocationId, ListedRule, Map, PausedInvocation, RuleName, SignalDescriptor};

/// Instant and cause of a pause's own wake-up, resolved to absolute terms at the moment of the pause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WakePlan {
    /// The action that is taken at an instant without a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Due>,
    /// The actions after `due`, in the order of time, when `due` only announces a step. The last one wakes or ends
    /// the pause. Only `due` is registered outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<Due>,
    /// The event that carries the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventWait>,
}

impl WakePlan {
    /// The position of the next due action in the ladder of deadlines; 0 also when there is none.
    pub fn rung(&self) -> u32 {
        self.due.as_ref().map_or(0, |due| due.rung)
    }

    /// The action that ends the pause where no signal comes; `None` where it waits for as long as that takes.
    pub fn end(&self) -> Option<&Due> {
        self.later.last().or(self.due.as_ref()).filter(|due| !matches!(due.action, DueAction::Announce(_)))
    }

    /// The plan once `due` has been announced; `None` where nothing comes after it.
    pub fn advanced(&self) -> Option<Self> {
        let (next, later) = self.later.split_first()?;
        Some(Self { due: Some(next.clone()), later: later.to_vec(), event: self.event.clone() })
    }
}

/// An action at an instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Due {
    /// Its instant; to the second, in UTC.
    pub at: Timestamp,
    /// The action.
    pub action: DueAction,
    /// Its position in the ladder of deadlines, from 0.
    #[serde(default, skip_serializing_if = "is_first")]
    pub rung: u32,
}

impl Due {
    /// The only action, or the first one, that is taken without a signal.
    pub fn first(at: Timestamp, action: DueAction) -> Self {
        Self { at, action, rung: 0 }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde takes")]
fn is_first(rung: &u32) -> bool {
    *rung == 0
}

/// Action that is taken when a pause falls due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DueAction {
    /// The invocation resumes with this payload.
    Resume(Map),
    /// The invocation ends with an error of category `suspension_timed_out`.
    Fail,
    /// It is published on the bus, and the invocation sleeps on.
    Announce(Announcement),
}

/// Message on the bus when a deadline passes that does not end the pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Announcement {
    /// The step that the listener is asked to take.
    #[serde(rename = "do")]
    pub step: Escalation,
    /// The person or role that it concerns: a name that means something to the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Step that a deadline asks for that does not end the pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Escalation {
    /// Remind the person who was asked.
    Remind,
    /// Ask another person.
    Reassign,
    /// Notify a superior.
    Escalate,
    /// Send a notification over the channel called `to`, as the operator has described it.
    Notify,
}

impl Escalation {
    /// The `snake_case` name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Remind => "remind",
            Self::Reassign => "reassign",
            Self::Escalate => "escalate",
            Self::Notify => "notify",
        }
    }
}

/// An event on the bus that carries the awaited signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventWait {
    /// An EventBridge event pattern.
    pub pattern: Map,
    /// Path into the event, in the form `$.detail.job_id`, to the value that must equal the descriptor's `signal_id`.
    pub correlation: String,
}

impl EventWait {
    /// Events of this source and detail-type, which carry the id of the signal at the path `correlation`, in the form
    /// `$.detail.job_id`.
    pub fn matching(source: &str, detail_type: &str, correlation: impl Into<String>) -> Self {
        let pattern = [("source", source), ("detail-type", detail_type)];
        let pattern = pattern.into_iter().map(|(field, choice)| (field.to_owned(), serde_json::json!([choice])));
        Self { pattern: pattern.collect(), correlation: correlation.into() }
    }
}

/// The wake-ups and the events that a pause asks of the outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// Invocation that is suspended.
    pub invocation_id: InvocationId,
    /// Generation of its pause.
    pub generation: u64,
    /// Signal that it waits for.
    pub descriptor: SignalDescriptor,
    /// The resolved wake-up.
    pub wake: WakePlan,
}

impl From<&PausedInvocation> for Subscription {
    /// The subscription of that pause.
    fn from(paused: &PausedInvocation) -> Self {
        Self {
            invocation_id: paused.invocation_id.clone(),
            generation: paused.generation,
            descriptor: paused.descriptor.clone(),
            wake: paused.wake.clone(),
        }
    }
}

/// Error of making or undoing a subscription.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionError {
    /// A later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// This deployment may not do it; a later attempt will not succeed.
    #[error("{0}")]
    Denied(String),
    /// It can never succeed as asked.
    #[error("{0}")]
    Rejected(String),
}

/// Outcome of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Everything was registered already.
    Known,
    /// A part of it was not, and is now.
    Made,
}

impl Registration {
    /// The outcome of two parts of one subscription together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == Self::Known { other } else { self }
    }
}

/// Alarms at the instants at which pauses fall due (harness §6).
#[async_trait]
pub trait Timers: Send + Sync {
    /// Makes sure that `subscription` wakes its invocation at its time, if it has one, and reports whether it would
    /// have without. Repeating the call is harmless. Awaited events are routed by [rules](EventRules::put_rule).
    ///
    /// # Errors
    /// [`SubscriptionError`] when the runtime did not take it.
    async fn schedule(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError>;

    /// Takes back the alarm that [`schedule`](Self::schedule) registered, because another cause woke the invocation. A
    /// wake-up that fires all the same finds nothing to do.
    ///
    /// # Errors
    /// [`SubscriptionError`] when the runtime did not answer; the caller may ignore it.
    async fn cancel(&self, subscription: &Subscription) -> Result<(), SubscriptionError>;
}

/// The rules on the bus that route awaited events (harness §6).
#[async_trait]
pub trait EventRules: Send + Sync {
    /// Makes sure that there is `rule`, that it is enabled, and that it carries the events that it takes to the
    /// invocations that wait for them. Repeating the call is harmless.
    ///
    /// # Errors
    /// [`SubscriptionError`] when the bus did not take it.
    async fn put_rule(&self, rule: &EventRule) -> Result<(), SubscriptionError>;

    /// The rules of ours that are on the bus, whether or not they are enabled.
    ///
    /// # Errors
    /// [`SubscriptionError`] when the bus did not answer.
    async fn list_rules(&self) -> Result<Vec<ListedRule>, SubscriptionError>;

    /// Removes a rule, which may be gone already.
    ///
    /// # Errors
    /// [`SubscriptionError`] when the bus did not answer.
    async fn remove_rule(&self, name: &RuleName) -> Result<(), SubscriptionError>;
}

/// All ports by which the outside wakes paused invocations, for the code that composes a process.
pub trait SignalSubscriptions: Timers + EventRules {}

impl<S: Timers + EventRules + ?Sized> SignalSubscriptions for S {}

/// Ensures, before a pause is written, that the signal it waits for would reach it.
#[async_trait]
pub trait PausePreparation: fmt::Debug + Send + Sync {
    /// Makes the part that must stand before `paused` is written: the rule for its events. Repeating the call is
    /// harmless.
    ///
    /// # Errors
    /// [`SubscriptionError`] when it could not be made; the pause is not written then.
    async fn prepare(&self, paused: &PausedInvocation) -> Result<(), SubscriptionError>;
}

/// Reads the wake-up that a descriptor asks for, before the pause is written.
pub trait WakePlanner: Send + Sync {
    /// The plan of `descriptor` at `now`.
    ///
    /// # Errors
    /// A sentence that names the wrong key of the metadata and its expected form.
    fn plan(&self, descriptor: &SignalDescriptor, now: Timestamp) -> Result<WakePlan, String>;

    /// The signals that `descriptor` asks for, when these are several.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    fn expects(&self, descriptor: &SignalDescriptor) -> Result<Option<FanIn>, String> {
        let _ = descriptor;
        Ok(None)
    }
}
