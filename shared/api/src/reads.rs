//! Single things and events, read from the store: what a process can serve that writes nothing and knows no agents.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{Clock, Records};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::envelope::Named;
use dormouse_protocol::{Operation, ProtocolError};
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::documents::{Resource, Stored};
use crate::refusal::store;
use crate::{Call, CallAnswer, Operations};

/// Serves the operations that need the store alone: those that read one thing, and those that read events. Cheap to
/// clone.
#[derive(Clone)]
pub struct Reads {
    records: Arc<dyn Records>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Makes the cursors behind places at which nothing is that the caller may know of.
    pub(crate) cursors: Cursors,
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reads")
    }
}

impl Reads {
    /// Reads what `records` hold. Events are waited for by `clock`; `cursors` are those of lists, where callers are given
    /// some.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>, cursors: Cursors) -> Self {
        Self { records, clock, cursors }
    }

    pub(crate) fn records(&self) -> &dyn Records {
        &*self.records
    }

    /// The `R` called `id`, if there is one.
    pub(crate) async fn find<R: Resource>(
        &self,
        id: &R::Id,
        now: Timestamp,
    ) -> Result<Option<Stored<R>>, ProtocolError> {
        Stored::load(self.records(), id, now).await.map_err(store)
    }

    /// The `R` called `id`, as far as the caller may know.
    ///
    /// # Errors
    /// `resource_not_found`, also for what belongs to others.
    pub(crate) async fn see<R: Resource>(&self, call: &Call, id: &R::Id) -> Result<Stored<R>, ProtocolError> {
        let found = self.find::<R>(id, call.now).await?.filter(|found| found.is_seen_by(&call.actor));
        found.ok_or_else(|| ProtocolError::not_found(R::Id::OBJECT))
    }

    /// The `R` that the id at `place` in the path names.
    ///
    /// # Errors
    /// As [`see`](Self::see).
    pub(crate) async fn named<R: Resource>(&self, call: &Call, place: &str) -> Result<Stored<R>, ProtocolError> {
        self.see(call, &R::Id::from(call.params.get(place).to_owned())).await
    }

    /// What answers `call`; `None` where it asks for something else.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not listed is served by others")]
    pub(crate) fn answer<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Result<CallAnswer, ProtocolError>>> {
        let answer: BoxFuture<'a, _> = match call.operation {
            Operation::GetWorkspace => Box::pin(self.get_workspace(call)),
            Operation::ReadWorkspaceFile => Box::pin(self.read_file(call)),
            Operation::GetSession => Box::pin(self.get_session(call)),
            Operation::GetSessionQueue => Box::pin(self.get_queue(call)),
            Operation::ListSessionWebhooks => Box::pin(self.list_webhooks(call)),
            Operation::GetMessage => Box::pin(self.get_message(call)),
            Operation::GetTask => Box::pin(self.get_task(call)),
            Operation::GetBranch => Box::pin(self.get_branch(call)),
            Operation::ListSessionEvents => Box::pin(self.list_session_events(call)),
            Operation::ListTaskEvents => Box::pin(self.list_task_events(call)),
            Operation::ListEvents => Box::pin(self.list_events(call, true)),
            // A look of a stream, which comes again.
            Operation::StreamEvents => Box::pin(self.list_events(call, false)),
            Operation::GetEvent => Box::pin(self.get_event(call)),
            Operation::GetArtifact => Box::pin(self.get_artifact(call)),
            Operation::GetOutcome => Box::pin(self.get_outcome(call)),
            Operation::GetMemory => Box::pin(self.get_memory(call)),
            Operation::GetVault => Box::pin(self.get_vault(call)),
            Operation::GetConnector => Box::pin(self.get_connector(call)),
            Operation::GetQuota => Box::pin(self.get_quota(call)),
            _ => return None,
        };
        Some(answer)
    }
}

#[async_trait]
impl Operations for Reads {
    async fn serve(&self, call: Call) -> Result<CallAnswer, ProtocolError> {
        match self.answer(&call) {
            Some(answer) => answer.await,
            None => Err(ProtocolError::not_implemented(call.operation)),
        }
    }
}
