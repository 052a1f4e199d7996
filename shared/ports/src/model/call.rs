use serde::{Deserialize, Serialize};

use super::{CompletionRequest, ModelError, Response};

/// Kind of a piece of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaKind {
    /// Text of the answer.
    Content,
    /// Reasoning.
    Reasoning,
}

/// Reason why a call tries again: how the attempt before it failed (§7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryReason {
    /// In a way that may pass.
    Transient,
    /// Its content did not fit the schema, and the model is told so.
    Reask,
}

impl RetryReason {
    /// The name in attributes of spans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Reask => "reask",
        }
    }
}

/// Event of a call, told as it happens. Attempts follow one another.
#[derive(Clone, Copy, Debug)]
pub enum CallEvent<'a> {
    /// An attempt begins; pieces of an earlier one are void.
    AttemptStarted {
        /// From 0.
        attempt: u32,
        /// Reason why there is another one; absent of the first.
        reason: Option<RetryReason>,
        /// Request that is sent this time.
        request: &'a CompletionRequest,
    },
    /// A piece of the answer has arrived. Only of requests that stream.
    Token {
        /// Its kind.
        kind: DeltaKind,
        /// Not empty.
        text: &'a str,
    },
    /// The attempt succeeded.
    AttemptSucceeded {
        /// From 0.
        attempt: u32,
        /// Its result.
        response: &'a Response,
    },
    /// The attempt failed. Another may follow.
    AttemptFailed {
        /// From 0.
        attempt: u32,
        /// Its error.
        error: &'a ModelError,
    },
}

/// Receives what happens in a call. It is called in between, so it must return at once.
pub trait CallObserver: Send + Sync {
    /// `event` has happened.
    fn observe(&self, event: CallEvent<'_>);
}

/// Observes nothing.
impl CallObserver for () {
    fn observe(&self, _: CallEvent<'_>) {}
}
