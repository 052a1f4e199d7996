use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{InvocationId, Map, SessionId, SignalId};

/// Field of a state for the parent of the invocation, as a [`ParentLink`]. Only the harness sets it: what a caller gives
/// under this name is refused with every other field that is no input of its graph.
pub const PARENT: &str = "dormouse_parent";

/// Field of a state for the children of the invocation, as a list of [`ChildLink`]s.
pub const CHILDREN: &str = "dormouse_children";

/// Field of the metadata of an invocation with the id of the workspace that it works in. What it begins has the same.
pub const WORKSPACE: &str = "dormouse.workspace_id";

/// The invocation that began another one, and where it is told of its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentLink {
    /// The parent.
    pub invocation_id: InvocationId,
    /// The signal that becomes of the child's end.
    pub signal_id: SignalId,
    /// Number of invocations above the child, from 1.
    pub depth: u32,
}

impl ParentLink {
    /// The parent of the invocation with that `state`, if it has one.
    pub fn of(state: &Map) -> Option<Self> {
        state.get(PARENT).and_then(|link| Self::deserialize(link).ok())
    }
}

/// An invocation that another one began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildLink {
    /// The child.
    pub invocation_id: InvocationId,
    /// Its session, in which it may be asked again.
    pub session_id: SessionId,
    /// The graph that it runs.
    pub graph: String,
    /// The signal that becomes of its end.
    pub signal_id: SignalId,
    /// True if its parent goes on meanwhile.
    #[serde(default)]
    pub background: bool,
    /// True once its parent knows how it ended.
    #[serde(default)]
    pub ended: bool,
}

impl ChildLink {
    /// The children of the invocation with that `state`, without those that are known to have ended.
    pub fn open_of(state: &Map) -> Vec<Self> {
        let children = state.get(CHILDREN).and_then(Value::as_array).into_iter().flatten();
        children.filter_map(|child| Self::deserialize(child).ok()).filter(|child| !child.ended).collect()
    }
}

/// An invocation that is to begin.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildStart {
    /// Its id, the same in every attempt to begin it.
    pub invocation_id: InvocationId,
    /// Its session.
    pub session_id: SessionId,
    /// The graph that it runs, of the version that its parent began with.
    pub graph: String,
    /// Its input.
    pub state: Map,
    /// Its parent.
    pub parent: ParentLink,
    /// Metadata of its parent.
    pub metadata: Map,
    /// The tenant in whose name its parent began.
    pub begun_for: Option<String>,
}

/// State of an invocation, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildStanding {
    /// Nothing of it is stored, or not any more.
    Missing,
    /// It works or sleeps.
    Open,
    /// It was canceled; with the payload of its signal.
    Canceled(Map),
    /// It ended otherwise; with the payload of its signal.
    Ended(Map),
}

/// Invocations that begin others, and are told of their ends by signals.
///
/// The signal is sent behind the commit that ends the child. Where a crash loses it, the parent finds the end when it
/// [looks](Self::look). A child that ends, however it does, cancels the children that it has left.
#[async_trait]
pub trait ChildRuns: Send + Sync + fmt::Debug {
    /// Begins the child, unless something is stored under its id already.
    ///
    /// # Errors
    /// A [`ChildError`]; where it is transient, it may have begun.
    async fn begin(&self, start: ChildStart) -> Result<(), ChildError>;

    /// Looks an invocation up, without moving it.
    ///
    /// # Errors
    /// A transient [`ChildError`] when the store does not answer.
    async fn look(&self, id: &InvocationId) -> Result<ChildStanding, ChildError>;

    /// Cancels an invocation; one that has ended stays as it is.
    ///
    /// # Errors
    /// A transient [`ChildError`] when the store does not answer.
    async fn cancel(&self, id: &InvocationId, reason: &str) -> Result<(), ChildError>;
}

/// Reason for which a child did not begin, or could not be looked up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ChildError {
    /// Message that says what happened.
    pub message: String,
    /// True if it may work later.
    pub transient: bool,
}
