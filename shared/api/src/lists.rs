//! Lists of what is stored, page by page.

use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::{Operation, ProtocolError};
use futures::future::BoxFuture;

use crate::reads::Reads;
use crate::{Call, CallAnswer};

/// Serves the operations that list what is stored. How pages are made is in [`crate::page`].
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    pub(crate) reads: Reads,
    /// Makes the cursors of pages.
    pub(crate) cursors: Cursors,
}

impl Lists {
    /// What answers `call`; `None` where it asks for something else.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not listed is served by others")]
    pub(crate) fn answer<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Result<CallAnswer, ProtocolError>>> {
        let answer: BoxFuture<'a, _> = match call.operation {
            Operation::ListWorkspaces => Box::pin(self.list_workspaces(call)),
            Operation::ListSessions => Box::pin(self.list_sessions(call)),
            Operation::ListSessionMessages => Box::pin(self.list_messages(call)),
            Operation::ListSessionTasks | Operation::ListTasks => Box::pin(self.list_tasks(call)),
            Operation::ListSessionBranches => Box::pin(self.list_branches(call)),
            Operation::ListArtifacts => Box::pin(self.list_artifacts(call)),
            Operation::ListOutcomes => Box::pin(self.list_outcomes(call)),
            Operation::ListMemories => Box::pin(self.list_memories(call)),
            Operation::ListVaults => Box::pin(self.list_vaults(call)),
            Operation::ListConnectors => Box::pin(self.list_connectors(call)),
            Operation::ListQuotas => Box::pin(self.list_quotas(call)),
            _ => return None,
        };
        Some(answer)
    }
}
