use crate::{InvocationId, SessionId};

/// A stored state, as far as it tells to whom it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedState {
    /// The state of a session.
    Session {
        /// The session.
        id: SessionId,
        /// The tenant in whose name turns of it ran, where it is known.
        tenant: Option<String>,
    },
    /// The record of an invocation.
    Invocation {
        /// The invocation.
        id: InvocationId,
        /// The tenant in whose name it began, where it is known.
        tenant: Option<String>,
        /// Its session, where its record was read for that.
        session: Option<SessionId>,
        /// True if it has not ended.
        is_open: bool,
    },
}
