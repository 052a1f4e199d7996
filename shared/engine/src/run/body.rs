//! Context that only a node's own body may use.

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

/// Route of `save_session()` out of a body.
#[derive(Clone)]
pub(crate) enum Saver {
    /// The session, and the state that the body received.
    Session(Arc<dyn SaveSession>, State),
    Unbound,
    Subgraph,
}

/// Marks the inside of a node's own body, and holds the context that only a body may use.
pub(crate) struct NodeBody {
    pub(crate) saver: Saver,
    /// Set when the body's graph may not suspend at all.
    pub(crate) unsupported: Option<&'static str>,
    /// Knows whether the invocation was canceled.
    pub(crate) watch: Arc<Watch>,
    /// Entries that nodes before it have recorded.
    pub(crate) journal: Arc<RunJournal>,
    /// Position of the body; absent without observers.
    pub(crate) position: Option<Arc<Position>>,
}
