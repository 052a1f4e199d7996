//! What only a node's own body may use.

use std::sync::Arc;

use async_trait::async_trait;

use super::cancellation::Watch;
use super::journal::RunJournal;
use crate::{NodeError, Position, State, Update};

/// Saves in the midst of an invocation.
#[async_trait]
pub(crate) trait SaveSession: Send + Sync {
    async fn save(&self, state: State, update: Update) -> Result<(), NodeError>;
}

/// What `save_session()` reaches from a body.
#[derive(Clone)]
pub(crate) enum Saver {
    /// The session, and the state that the body received.
    Session(Arc<dyn SaveSession>, State),
    Unbound,
    Subgraph,
}

/// Marks the inside of a node's own body, and holds what only a body may use.
pub(crate) struct Body {
    pub(crate) saver: Saver,
    /// Set when the body's graph may not suspend at all.
    pub(crate) unsupported: Option<&'static str>,
    /// Knows whether the invocation was canceled.
    pub(crate) watch: Arc<Watch>,
    /// What nodes before it have recorded.
    pub(crate) journal: Arc<RunJournal>,
    /// Where it is; absent when nobody observes.
    pub(crate) position: Option<Arc<Position>>,
}
