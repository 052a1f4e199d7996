//! Bugs put in on purpose, to show that the simulation finds them. Ports that lie stand for code that forgot something:
//! the product itself has no switch for them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, Claim, ClaimOutcome, ClaimRequest, Collected, Commit, CommitError, Document,
    DocumentKey, FeedRow, Glance, GrowingLists, InvocationId, InvocationRecord, InvocationStatus, InvocationWrite,
    Journal, Lease, LeaseRequest, ListRequest, LoadedSession, Map, Owner, Page, ParkedRow, PausedInvocation,
    PendingRow, Records, SessionExpectation, SessionFilter, SessionId, SessionSummary, SignalId, SignalRecord,
    SignalState, StateStore, StoreError, StreamEntry, SuspendFrom, Upkeep,
};
use dormouse_testkit::MemoryStore;
use jiff::Timestamp;

/// A bug that can be put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A save does not check the session's version.
    DropVersion,
    /// A save does not check that its lease still stands.
    DropFence,
    /// A lease is granted although another turn holds it.
    IgnoreLease,
    /// A commit does not check who holds the claim.
    DropOwner,
    /// A claim is granted although another delivery holds it.
    SkipClaim,
    /// A claim does not check which pause is meant.
    DropGeneration,
    /// Who takes over a dead worker's claim delivers what it brings itself.
    ReplacePayload,
    /// Who wants to take over a dead worker's claim, and finds none, goes on with nothing.
    TakeOverNothing,
    /// A pause does not look whether its signal is there already.
    OverlookSignal,
    /// A signal that nobody waits for is acknowledged and not kept.
    LoseSignal,
    /// Session and pause are written one after the other.
    TearSuspend,
    /// As before, in the other order.
    SwapWrites,
    /// The second pause of an invocation gets no row in the index of what sleeps.
    ForgetRow,
    /// Rows stay when an invocation ends.
    KeepRow,
    /// The signal of a pause stays awaited when an invocation ends with an error.
    KeepWait,
    /// A cancellation is acknowledged and not kept.
    LoseCancellation,
    /// The end of an invocation that never slept does not check whether it was canceled.
    EndCanceled,
    /// An append does not check where its stream ends.
    AppendAnywhere,
    /// Accepting a task does not check whether its key was used.
    AcceptTwice,
    /// A deadline is passed without a look whether another worker passed it already.
    DropRung,
    /// That a deadline has passed is told to nobody.
    LoseAnnouncement,
    /// A listing ends with its first page.
    FirstPageOnly,
    /// A subscription for an event makes no rule.
    RuleNotMade,
    /// An event that failed counts as delivered.
    AcknowledgeFailure,
}

impl PlantedBug {
    /// Every bug.
    pub const ALL: [Self; 24] = [
        Self::DropVersion,
        Self::DropFence,
        Self::IgnoreLease,
        Self::DropOwner,
        Self::SkipClaim,
        Self::DropGeneration,
        Self::ReplacePayload,
        Self::TakeOverNothing,
        Self::OverlookSignal,
        Self::LoseSignal,
        Self::TearSuspend,
        Self::SwapWrites,
        Self::ForgetRow,
        Self::KeepRow,
        Self::KeepWait,
        Self::LoseCancellation,
        Self::EndCanceled,
        Self::AppendAnywhere,
        Self::AcceptTwice,
        Self::DropRung,
        Self::LoseAnnouncement,
        Self::FirstPageOnly,
        Self::RuleNotMade,
        Self::AcknowledgeFailure,
    ];
}

impl fmt::Display for PlantedBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The two halves in which `bug` writes `commit`, if it does.
pub(crate) fn torn(bug: Option<PlantedBug>, commit: &Commit) -> Option<(Commit, Commit)> {
    let is_pause = matches!(commit.invocation, Some(InvocationWrite::Suspend { .. }));
    let saves = commit.session.as_ref().is_some_and(|write| write.save.is_some());
    if !(is_pause && saves) {
        return None;
    }
    let session = Commit { id: format!("{}-1", commit.id), invocation: None, ..commit.clone() };
    let pause = Commit { id: format!("{}-2", commit.id), session: None, ..commit.clone() };
    match bug {
        Some(PlantedBug::TearSuspend) => Some((session, pause)),
        Some(PlantedBug::SwapWrites) => Some((pause, session)),
        _ => None,
    }
}

/// The store in memory, which lies as far as a planted bug makes it.
#[derive(Debug)]
pub(crate) struct LyingStore {
    inner: MemoryStore,
    bug: Option<PlantedBug>,
    /// Rows that were ever listed, for a bug that keeps them.
    rows: Mutex<BTreeMap<InvocationId, PendingRow>>,
}

impl LyingStore {
    pub(crate) fn new(bug: Option<PlantedBug>) -> Self {
        // Small pages, so that listings have several.
        Self { inner: MemoryStore::with_page_size(3), bug, rows: Mutex::default() }
    }

    fn has(&self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    async fn holder(&self, id: &InvocationId) -> Option<Claim> {
        match self.inner.load_invocation(id).await.ok()??.status {
            InvocationStatus::Resuming(claim) => Some(claim),
            InvocationStatus::Suspended
            | InvocationStatus::Completed { .. }
            | InvocationStatus::Errored(_)
            | InvocationStatus::Canceled(_) => None,
        }
    }

    /// `commit` without the condition that the bug forgot.
    async fn loosened(&self, commit: &Commit) -> Commit {
        let mut commit = commit.clone();
        if let Some(session) = &mut commit.session {
            if self.has(PlantedBug::DropVersion) {
                session.expect = SessionExpectation::Any;
            }
            if self.has(PlantedBug::DropFence) || session.lease.as_ref().is_some_and(|lease| lease.fence == 0) {
                session.lease = None;
            }
        }
        if self.has(PlantedBug::DropOwner)
            && let Some((id, owner)) = commit.invocation.as_mut().and_then(claimed_by)
            && let Some(claim) = self.holder(&id).await
        {
            *owner = claim.owner;
        }
        if self.has(PlantedBug::AppendAnywhere) {
            for append in &mut commit.journal.appends {
                append.first = self.inner.last_position(&append.stream).await.unwrap_or_default() + 1;
            }
        }
        if self.has(PlantedBug::AcceptTwice) {
            for write in commit.journal.documents.iter_mut().filter(|write| write.key.kind == "key") {
                let known = self.inner.document(&write.key, commit.now).await.ok().flatten();
                write.expect = known.map_or(0, |document| document.version);
            }
        }
        if self.has(PlantedBug::DropRung)
            && let Some(InvocationWrite::Advance { paused, wake }) = &mut commit.invocation
            && let Ok(Some(record)) = self.inner.load_invocation(&paused.invocation_id).await
            && let Some(next) = record.paused.wake.advanced()
        {
            (**paused, *wake) = (record.paused, next);
        }
        commit
    }

    /// Drops the payload that an expired claim holds.
    async fn forget_payload(&self, request: &ClaimRequest) {
        if let Some(claim) = self.holder(&request.invocation_id).await
            && claim.until <= request.now
            && let Some(generation) = request.generation
        {
            let (invocation_id, owner) = (request.invocation_id.clone(), claim.owner);
            let write = InvocationWrite::Release { invocation_id, generation, owner };
            let _ = self.inner.commit(&alone(format!("forget-{}", request.owner), request.now, write)).await;
        }
    }

    /// Writes a pause over the signal that was there, which is then lost.
    async fn overlook(&self, commit: &Commit, signal: BufferedSignal) -> Result<(), CommitError> {
        let mut blind = Commit { id: format!("{}-blind", commit.id), ..commit.clone() };
        let Some(InvocationWrite::Suspend { paused, claim, .. }) = &mut blind.invocation else { return Ok(()) };
        let (owner, until) = (Owner::from("nobody"), commit.now);
        *claim = Some(Claim { owner: owner.clone(), until, payload: signal.payload });
        let (invocation_id, generation) = (paused.invocation_id.clone(), paused.generation);
        self.inner.commit(&blind).await?;
        let write = InvocationWrite::Release { invocation_id, generation, owner };
        self.inner.commit(&alone(format!("{}-asleep", commit.id), commit.now, write)).await
    }
}

/// A change of an invocation that concerns no session.
fn alone(id: String, now: Timestamp, write: InvocationWrite) -> Commit {
    Commit {
        id,
        now,
        session: None,
        invocation: Some(write),
        journal: Journal::default(),
        growing: GrowingLists::default(),
    }
}

/// Whose claim `write` needs, and who says to hold it.
fn claimed_by(write: &mut InvocationWrite) -> Option<(InvocationId, &mut Owner)> {
    match write {
        InvocationWrite::Complete { paused, owner, .. } => Some((paused.invocation_id.clone(), owner)),
        InvocationWrite::Fail { paused, owner: Some(owner), .. } => Some((paused.invocation_id.clone(), owner)),
        InvocationWrite::Release { invocation_id, owner, .. } => Some((invocation_id.clone(), owner)),
        InvocationWrite::Suspend { paused, from: SuspendFrom::Claimed { owner, .. }, .. } => {
            Some((paused.invocation_id.clone(), owner))
        }
        InvocationWrite::Fail { owner: None, .. }
        | InvocationWrite::Suspend { from: SuspendFrom::Fresh, .. }
        | InvocationWrite::Cancel { .. }
        | InvocationWrite::Forestall { .. }
        | InvocationWrite::Unstored { .. }
        | InvocationWrite::Accept { .. }
        | InvocationWrite::Deliver { .. }
        | InvocationWrite::Advance { .. } => None,
    }
}

#[async_trait]
impl Records for LyingStore {
    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        self.inner.document(key, now).await
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        self.inner.documents(request).await
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        self.inner.entries(stream, after, limit).await
    }

    async fn last_position(&self, stream: &str) -> Result<u64, StoreError> {
        self.inner.last_position(stream).await
    }

    async fn feed(&self, list: &str, after: Option<&str>, limit: usize) -> Result<Vec<FeedRow>, StoreError> {
        self.inner.feed(list, after, limit).await
    }
}

#[async_trait]
impl StateStore for LyingStore {
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        match (self.inner.load_session(id, lease).await, lease) {
            (Err(StoreError::LeaseHeld { .. }), Some(request)) if self.has(PlantedBug::IgnoreLease) => {
                let lease = Some(Lease { owner: request.owner.clone(), fence: 0 });
                Ok(LoadedSession { lease, ..self.inner.load_session(id, None).await? })
            }
            (loaded, _) => loaded,
        }
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError> {
        self.inner.delete_session(id).await
    }

    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        self.inner.list_sessions(filter, cursor).await
    }

    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        self.inner.load_invocation(id).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        if self.has(PlantedBug::ReplacePayload) {
            self.forget_payload(request).await;
        }
        if self.has(PlantedBug::DropGeneration) {
            return self.inner.claim(&ClaimRequest { generation: None, ..request.clone() }).await;
        }
        if self.has(PlantedBug::TakeOverNothing) && request.payload.is_none() {
            let payload = Some(Map::new());
            return self.inner.claim(&ClaimRequest { payload, ..request.clone() }).await;
        }
        match self.inner.claim(request).await? {
            ClaimOutcome::Held { .. } if self.has(PlantedBug::SkipClaim) => {
                let record = self.inner.load_invocation(&request.invocation_id).await?;
                Ok(record.map_or(ClaimOutcome::Missing, |record| ClaimOutcome::Granted(Box::new(record))))
            }
            outcome @ (ClaimOutcome::Granted(_)
            | ClaimOutcome::Missing
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::Settled(_)) => Ok(outcome),
        }
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let commit = self.loosened(commit).await;
        match &commit.invocation {
            Some(InvocationWrite::Cancel { .. }) if self.has(PlantedBug::LoseCancellation) => return Ok(()),
            Some(InvocationWrite::Unstored { .. }) if self.has(PlantedBug::EndCanceled) => {
                return self.inner.commit(&Commit { invocation: None, ..commit }).await;
            }
            _ => {}
        }
        match self.inner.commit(&commit).await {
            Err(CommitError::SignalBuffered(signal)) if self.has(PlantedBug::OverlookSignal) => {
                self.overlook(&commit, signal).await
            }
            result => result,
        }
    }

    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        let record = self.inner.load_signal(id, now).await?;
        if self.has(PlantedBug::KeepWait)
            && let Some(SignalRecord { state: SignalState::Delivered { invocation_id, generation }, .. }) = &record
            && let Some(owner) = self.inner.load_invocation(invocation_id).await?
            && matches!(owner.status, InvocationStatus::Errored(_))
        {
            let (invocation_id, generation) = (invocation_id.clone(), *generation);
            let state = SignalState::Waiting { invocation_id, generation };
            return Ok(Some(SignalRecord { signal_id: id.clone(), state }));
        }
        Ok(record)
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        if self.has(PlantedBug::LoseSignal) {
            return Ok(BufferOutcome::Buffered { expires_at: signal.expires_at });
        }
        self.inner.buffer_signal(id, signal).await
    }

    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        let mut page = self.inner.list_pending(due_by, cursor).await?;
        match self.bug {
            Some(PlantedBug::FirstPageOnly) => page.next = None,
            Some(PlantedBug::ForgetRow) => page.items.retain(|row| row.generation != 2),
            Some(PlantedBug::KeepRow) => {
                let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
                rows.extend(page.items.iter().map(|row| (row.invocation_id.clone(), row.clone())));
                if page.next.is_none() && due_by.is_none() {
                    page.items = rows.values().cloned().collect();
                }
            }
            _ => {}
        }
        Ok(page)
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<Glance>>, StoreError> {
        self.inner.glance(ids).await
    }

    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        self.inner.dead_claims(now).await
    }

    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        self.inner.pending_row(paused).await
    }

    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        self.inner.list_parked(cursor).await
    }

    async fn sweep_position(&self, lane: &str) -> Result<Option<String>, StoreError> {
        self.inner.sweep_position(lane).await
    }

    async fn collect(&self, now: Timestamp, cursor: Option<&str>) -> Result<Collected, StoreError> {
        self.inner.collect(now, cursor).await
    }

    async fn upkeep(&self, upkeep: &Upkeep) -> Result<(), StoreError> {
        self.inner.upkeep(upkeep).await
    }
}
