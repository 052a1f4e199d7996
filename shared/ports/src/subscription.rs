use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{InvocationId, Map, SignalDescriptor};

/// When and by what a pause wakes by itself, resolved to absolute terms at the moment of the pause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakePlan {
    /// The instant at which something happens without a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Due>,
    /// The event that carries the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventWait>,
}

/// Something that happens at an instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Due {
    /// When; to the second, in UTC.
    pub at: Timestamp,
    /// What.
    pub action: DueAction,
}

/// What happens when a pause falls due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DueAction {
    /// The invocation resumes with this payload.
    Resume(Map),
    /// The invocation ends with an error of category `suspension_timed_out`.
    Fail,
}

/// An event on the bus that carries the awaited signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventWait {
    /// An EventBridge event pattern.
    pub pattern: Map,
    /// Path into the event, in the form `$.detail.job_id`, to the value that must equal the descriptor's `signal_id`.
    pub correlation: String,
}

/// What a pause asks of the outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// Who sleeps.
    pub invocation_id: InvocationId,
    /// In which of its pauses.
    pub generation: u64,
    /// What it waits for.
    pub descriptor: SignalDescriptor,
    /// The resolved wake-up.
    pub wake: WakePlan,
}

/// Why a subscription could not be made or undone.
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

/// Registers the wake-ups of paused invocations with the runtime (harness §6).
#[async_trait]
pub trait SignalSubscriptions: Send + Sync {
    /// Makes sure that `subscription` wakes its invocation. Repeating the call is harmless.
    ///
    /// # Errors
    /// [`SubscriptionError`] when the runtime did not take it.
    async fn subscribe(&self, subscription: &Subscription) -> Result<(), SubscriptionError>;

    /// Takes back what [`subscribe`](Self::subscribe) registered, because something else woke the invocation.
    /// A wake-up that fires all the same finds nothing to do.
    ///
    /// # Errors
    /// [`SubscriptionError`] when the runtime did not answer; the caller may ignore it.
    async fn cancel(&self, subscription: &Subscription) -> Result<(), SubscriptionError>;
}

/// Reads the wake-up that a descriptor asks for, before the pause is written.
pub trait WakePlanner: Send + Sync {
    /// The plan of `descriptor` at `now`.
    ///
    /// # Errors
    /// A sentence that says which key of the metadata is wrong and what it should be.
    fn plan(&self, descriptor: &SignalDescriptor, now: Timestamp) -> Result<WakePlan, String>;
}
