//! Leases that a process which died has left: only one has the data folder at a time, so that the next one takes them at once.
//!
//! A turn that has claimed something is found by its claim ([`inherited`](crate::inherited)). One that has a lease alone, as each
//! has in its first step, is found by nothing but its session: who asks for that lease looks whose it is.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{
    IdSource, LeaseRequest, LoadedSession, Owner, Page, SessionFilter, SessionId, SessionSummary, Sessions, StoreError,
};

/// Beginning of the owners of leases of processes that serve a folder. Those of commands, which work beside such a process,
/// have none.
const SERVER: &str = "server-";
/// What stands between the name of the process and that of its turn.
const END: char = '/';

/// The sessions of a folder, for the process that serves it.
pub(crate) struct ServedSessions {
    sessions: Arc<dyn Sessions>,
    /// Beginning of the owners of this process's leases.
    mark: String,
}

impl ServedSessions {
    pub(crate) fn new(sessions: Arc<dyn Sessions>, ids: &dyn IdSource) -> Self {
        Self { sessions, mark: format!("{SERVER}{}{END}", ids.fresh()) }
    }

    /// True if `owner` is a turn of a process that served the folder before this one.
    fn is_dead(&self, owner: &Owner) -> bool {
        owner.as_str().starts_with(SERVER) && !owner.as_str().starts_with(&self.mark)
    }
}

#[async_trait]
impl Sessions for ServedSessions {
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        let Some(lease) = lease else { return self.sessions.load_session(id, None).await };
        let owner = Owner::from(format!("{}{}", self.mark, lease.owner));
        let request = LeaseRequest { owner, ..lease.clone() };
        let held = match self.sessions.load_session(id, Some(&request)).await {
            Err(held @ StoreError::LeaseHeld { .. }) => held,
            loaded => return loaded,
        };
        let found = self.sessions.load_session(id, None).await?;
        let is_dead = found.leased_by.is_some_and(|owner| self.is_dead(&owner));
        let Some(until) = found.leased_until.filter(|_| is_dead) else { return Err(held) };
        tracing::info!(session = %id, "a process that had begun a turn of the session has ended: the next turn begins");
        // Of several that see it so one has it: only that very lease is passed over.
        self.sessions.load_session(id, Some(&LeaseRequest { past: Some(until), ..request })).await
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError> {
        self.sessions.delete_session(id).await
    }

    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        self.sessions.list_sessions(filter, cursor).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dormouse_ports::{Commit, CommitError, Commits, Lease, SessionExpectation, SessionWrite};
    use dormouse_system::RandomIds;
    use dormouse_testkit::MemoryStore;
    use jiff::Timestamp;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const LONG: Duration = Duration::from_secs(15 * 60);

    async fn leased(sessions: &dyn Sessions, owner: &str, now: Timestamp) -> Result<Lease, StoreError> {
        let request = LeaseRequest { owner: owner.into(), now, until: now + LONG, past: None, begun_for: None };
        let loaded = sessions.load_session(&"s".into(), Some(&request)).await?;
        Ok(loaded.lease.expect("a lease was asked for"))
    }

    /// Gives `lease` back.
    async fn released(store: &MemoryStore, lease: &Lease) -> Result<(), CommitError> {
        let session = SessionWrite {
            session_id: "s".into(),
            save: None,
            expect: SessionExpectation::Any,
            lease: Some(lease.clone()),
            release: true,
        };
        let id = format!("gives {} back", lease.owner);
        store.commit(&Commit { session: Some(session), ..Commit::new(id, NOW) }).await
    }

    #[tokio::test]
    async fn the_lease_of_a_process_that_served_before_is_taken_at_once_and_no_other() {
        let store = Arc::new(MemoryStore::default());
        let serving = || ServedSessions::new(store.clone(), &RandomIds);
        let (killed, next) = (serving(), serving());
        let dead = leased(&killed, "turn", NOW).await.expect("it is free");

        let taken = leased(&next, "turn", NOW + Duration::from_secs(1)).await.expect("nobody works on it");
        assert!(taken.fence > dead.fence, "{taken:?} after {dead:?}");
        let late = released(&store, &dead).await;
        assert!(matches!(late, Err(CommitError::LeaseLost)), "what was on its way is refused: {late:?}");
        let again = leased(&next, "turn", NOW + Duration::from_secs(2)).await.expect("it is renewed");
        assert_eq!(again, taken);
        let other = leased(&next, "another turn", NOW + Duration::from_secs(2)).await;
        assert!(matches!(other, Err(StoreError::LeaseHeld { .. })), "a turn of this process works: {other:?}");
        released(&store, &taken).await.expect("it is its own");

        leased(&*store, "a command", NOW).await.expect("it is free");
        let beside = leased(&next, "turn", NOW + Duration::from_secs(1)).await;
        assert!(matches!(beside, Err(StoreError::LeaseHeld { .. })), "a command works beside it: {beside:?}");
    }
}
