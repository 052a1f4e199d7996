mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, Category, Claim, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits,
    CounterChange, Counters, Document, DocumentKey, EarlySignal, FeedPage, FeedRequest, FeedRow, GrowingLists,
    InvocationId, InvocationRecord, InvocationStatus, InvocationSummary, InvocationWrite, Invocations, Journal, Lease,
    LeaseRequest, ListRequest, LoadedSession, Map, Owner, Page, PausedInvocation, PendingRow, ProgressFrom, Records,
    SessionExpectation, SessionFilter, SessionId, SessionSummary, Sessions, SignalBringer, SignalId, SignalRecord,
    SignalState, Signals, StoreError, StreamEnd, StreamEntry, StreamTip, SuspendFrom,
};
use dormouse_testkit::MemoryStore;
use jiff::Timestamp;
use serde_json::Value;

use super::{KEYS, PlantedBug};
use crate::simulation::PAGE_SIZE;
use crate::simulation::requests::tenant;

/// The store in memory, which lies as far as a planted bug makes it.
#[derive(Debug)]
pub(crate) struct LyingStore {
    inner: MemoryStore,
    bug: Option<PlantedBug>,
    /// Rows that were ever listed, for a bug that keeps them.
    rows: Mutex<BTreeMap<InvocationId, PendingRow>>,
    /// Attempts that should have been forgotten, for bugs that remember them.
    carried: Mutex<BTreeMap<InvocationId, u32>>,
    /// What was tried again, for a bug that forgets it.
    retried: Mutex<BTreeSet<InvocationId>>,
}

impl LyingStore {
    pub(crate) fn new(bug: Option<PlantedBug>) -> Self {
        // Small pages, so that listings have several.
        Self {
            inner: MemoryStore::with_page_size(usize::from(PAGE_SIZE)),
            bug,
            rows: Mutex::default(),
            carried: Mutex::default(),
            retried: Mutex::default(),
        }
    }

    fn has(&self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    /// The name under which the signal `id` is looked for.
    fn mixed(&self, id: &SignalId) -> SignalId {
        match id.origin() {
            (_, plain) if self.has(PlantedBug::MixOrigins) => plain,
            (Some(SignalBringer::Tenant(_)), plain) if self.has(PlantedBug::MixSignals) => {
                plain.of_tenant(tenant(true))
            }
            (_, _) => id.clone(),
        }
    }

    async fn holder(&self, id: &InvocationId) -> Option<Claim> {
        match self.inner.load_invocation(id).await.ok()??.status {
            InvocationStatus::Resuming(claim) => Some(claim),
            InvocationStatus::Accepted { .. }
            | InvocationStatus::Suspended
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
        let mut journal = std::mem::take(&mut commit.journal);
        let version = async |key: &DocumentKey| {
            let known = self.inner.document(key, commit.now).await.ok().flatten();
            known.map_or(0, |document| document.version)
        };
        if self.has(PlantedBug::AppendAnywhere) {
            for append in &mut journal.appends {
                append.first = self.inner.tip(&append.stream).await.unwrap_or_default().position + 1;
            }
        }
        for write in &mut journal.documents {
            let bug = if write.key.kind == KEYS { PlantedBug::AcceptTwice } else { PlantedBug::AppendAnywhere };
            if self.has(bug) {
                write.expect = version(&write.key).await;
            }
        }
        let forgotten = match self.bug {
            Some(PlantedBug::ForgetChain) => Some("receipts"),
            Some(PlantedBug::ForgetUnheard) => Some("unheard_at"),
            // As of a session of an earlier version: where the notes of keys are is not known.
            Some(PlantedBug::AcceptTwice) => Some("keyed"),
            _ => None,
        };
        if let Some(forgotten) = forgotten {
            for append in &mut journal.appends {
                if let StreamEnd::Append(end) = &mut append.end
                    && let Some(own) = end.known.get_mut("own").and_then(Value::as_object_mut)
                {
                    own.shift_remove(forgotten);
                }
            }
        }
        if self.has(PlantedBug::DropMaterial) {
            for entry in journal.appends.iter_mut().flat_map(|append| &mut append.entries) {
                entry.shift_remove("material");
            }
        }
        if self.has(PlantedBug::ForgetFeed) {
            journal.appends.iter_mut().for_each(|append| append.fed = None);
        }
        if self.has(PlantedBug::KeepTaken) {
            journal.counters.retain(|write| !matches!(write.change, CounterChange::Add { .. }));
        }
        commit.journal = journal;
        if self.has(PlantedBug::ForgetRule)
            && let Some(InvocationWrite::Suspend { paused, .. }) = &mut commit.invocation
            && let Some(metadata) = &mut paused.descriptor.metadata
        {
            metadata.shift_remove("accepts");
        }
        if self.has(PlantedBug::ForgetMark)
            && let Some(InvocationWrite::Progress { paused, .. }) = &mut commit.invocation
        {
            unmark(&mut paused.state);
        }
        if self.has(PlantedBug::NoteBlindly)
            && let Some(InvocationWrite::Answer { paused, .. }) = &mut commit.invocation
            && let Ok(Some(record)) = self.inner.load_invocation(&paused.invocation_id).await
        {
            **paused = record.paused;
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

    /// `document` as whoever asks for it sees it.
    pub(crate) fn misread(&self, mut document: Document) -> Document {
        let is_task = document.key.kind == "task";
        if self.has(PlantedBug::OverlookEnd)
            && is_task
            && let Some(Value::Object(task)) = document.body.get_mut("resource")
            && task.get("outcome_id").is_some_and(Value::is_string)
        {
            task.insert("status".to_owned(), "WORKING".into());
            task.insert("outcome_id".to_owned(), Value::Null);
        }
        if self.has(PlantedBug::MixTenants) && document.key.kind == "key" {
            document.body.insert("tenant".to_owned(), "acme".into());
        }
        document
    }

    /// Drops the payload that an expired claim holds.
    async fn forget_payload(&self, request: &ClaimRequest) {
        if let Some(claim) = self.holder(&request.invocation_id).await
            && claim.until <= request.now
            && let Some(generation) = request.generation
        {
            let invocation_id = request.invocation_id.clone();
            let owner = claim.owner;
            let write = InvocationWrite::Release { invocation_id, generation, owner, again_at: None };
            let _ = self.inner.commit(&alone(format!("forget-{}", request.owner), request.now, write)).await;
        }
    }

    /// Leaves the signals awaited of those who had not answered.
    fn keep_losers(&self, paused: &PausedInvocation) {
        let fan_in = paused.fan_in.iter();
        let losers = fan_in.flat_map(|all| all.expected.iter().filter(|one| !all.has_answered(&one.part)));
        for loser in losers {
            let invocation_id = paused.invocation_id.clone();
            let generation = paused.generation;
            self.inner.plant_signal(&loser.signal_id, Some(SignalState::Waiting { invocation_id, generation }));
        }
    }

    /// What a bug makes of attempts, in the answer to a claim.
    fn counted(&self, mut record: Box<InvocationRecord>) -> Box<InvocationRecord> {
        if let InvocationStatus::Resuming(claim) = &mut record.status {
            let carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
            claim.attempts += carried.get(&record.paused.invocation_id).copied().unwrap_or_default();
            if self.has(PlantedBug::ForgetAttempt) {
                claim.attempts = 1;
            }
        }
        record
    }

    /// Remembers the attempts of `id`, which is about to be put aside or to get further.
    async fn carry(&self, id: &InvocationId) {
        if let Some(claim) = self.holder(id).await {
            let mut carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
            *carried.entry(id.clone()).or_default() += claim.attempts;
        }
    }

    /// Lets what was put aside go on, although nobody wants it to be tried again.
    async fn bring_back(&self, request: &ClaimRequest) {
        if let Ok(Some(record)) = self.inner.load_invocation(&request.invocation_id).await
            && matches!(&record.status, InvocationStatus::Errored(told) if told.category == Category::AttemptsExhausted)
        {
            let write = InvocationWrite::Retry { paused: Box::new(record.paused) };
            let _ = self.inner.commit(&alone(format!("back-{}", request.owner), request.now, write)).await;
        }
    }

    /// Empties what `paused`, which is tried again, is to go on with.
    async fn lose_payload(&self, paused: &PausedInvocation, now: Timestamp) {
        let id = &paused.invocation_id;
        let request = |owner: &str, payload| ClaimRequest {
            invocation_id: id.clone(),
            generation: None,
            answered: paused.fan_in.as_ref().map(|fan_in| fan_in.answers.len()),
            owner: Owner::from(owner),
            payload,
            now,
            until: now,
            past: None,
        };
        let _ = self.inner.claim(&request("nobody", None)).await;
        let invocation_id = id.clone();
        let generation = paused.generation;
        let write =
            InvocationWrite::Release { invocation_id, generation, owner: Owner::from("nobody"), again_at: None };
        let _ = self.inner.commit(&alone(format!("lost-{id}"), now, write)).await;
        let _ = self.inner.claim(&request("nobody", Some(Map::new()))).await;
    }

    /// Ends the wait of `paused`, which is put aside.
    fn end_wait(&self, paused: &PausedInvocation) {
        for id in paused.waits() {
            let invocation_id = paused.invocation_id.clone();
            let generation = paused.generation;
            self.inner.plant_signal(&id, Some(SignalState::Delivered { invocation_id, generation }));
        }
    }

    /// Writes a pause over the signal that was there, which is then lost.
    async fn overlook(&self, commit: &Commit, signal: BufferedSignal) -> Result<(), CommitError> {
        let mut blind = Commit { id: format!("{}-blind", commit.id), ..commit.clone() };
        let Some(InvocationWrite::Suspend { paused, claim, early, .. }) = &mut blind.invocation else { return Ok(()) };
        let owner = Owner::from("nobody");
        let until = commit.now;
        *early = vec![EarlySignal { signal_id: paused.descriptor.signal_id.clone(), payload: signal.payload }];
        *claim = Some(Claim { owner: owner.clone(), until, payload: Map::new(), attempts: 1, taken_over: false });
        let invocation_id = paused.invocation_id.clone();
        let generation = paused.generation;
        self.inner.commit(&blind).await?;
        let write = InvocationWrite::Release { invocation_id, generation, owner, again_at: None };
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
        InvocationWrite::Release { invocation_id, owner, .. }
        | InvocationWrite::Keep { invocation_id, owner, .. }
        | InvocationWrite::AssertClaimed { invocation_id, owner, .. } => Some((invocation_id.clone(), owner)),
        InvocationWrite::PutAside { paused, owner, .. } => Some((paused.invocation_id.clone(), owner)),
        InvocationWrite::Suspend { paused, from: SuspendFrom::Claimed { owner, .. }, .. } => {
            Some((paused.invocation_id.clone(), owner))
        }
        InvocationWrite::Progress { paused, from: ProgressFrom::Claimed(owner), .. } => {
            Some((paused.invocation_id.clone(), owner))
        }
        InvocationWrite::Fail { owner: None, .. }
        | InvocationWrite::Progress { from: ProgressFrom::Fresh, .. }
        | InvocationWrite::Retry { .. }
        | InvocationWrite::Suspend { from: SuspendFrom::Fresh, .. }
        | InvocationWrite::Cancel { .. }
        | InvocationWrite::CancelBeforeStart { .. }
        | InvocationWrite::Conclude { .. }
        | InvocationWrite::Accept { .. }
        | InvocationWrite::Deliver { .. }
        | InvocationWrite::Answer { .. }
        | InvocationWrite::Advance { .. } => None,
    }
}

/// Takes the marks of calls that have begun out of the state of an agent.
fn unmark(state: &mut Map) {
    let calls = state.get_mut("calls").and_then(Value::as_array_mut).into_iter().flatten();
    for status in calls.filter_map(|call| call.get_mut("status")) {
        if status["is"] == "begun" {
            status["is"] = "ready".into();
        }
    }
}

#[async_trait]
impl Records for LyingStore {
    async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        self.inner.counters(key).await
    }

    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        self.inner.document(key, now).await
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        self.inner.documents(request).await
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        self.inner.entries(stream, after, limit).await
    }

    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        self.inner.tip(stream).await
    }

    async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        self.inner.append_of(stream, position).await
    }

    fn settled(&self, now: Timestamp) -> Timestamp {
        self.inner.settled(now)
    }

    async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError> {
        self.inner.feed(request).await
    }
}

#[async_trait]
impl Sessions for LyingStore {
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        let believed = lease.filter(|_| self.has(PlantedBug::BelieveLease));
        let believed = believed.map(|request| LeaseRequest { past: None, ..request.clone() });
        let lease = believed.as_ref().or(lease);
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
}

#[async_trait]
impl Invocations for LyingStore {
    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        self.inner.load_invocation(id).await
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        self.inner.glance(ids).await
    }
}

#[async_trait]
impl Signals for LyingStore {
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        let id = &self.mixed(id);
        let record = self.inner.load_signal(id, now).await?;
        if self.has(PlantedBug::KeepWait)
            && let Some(SignalRecord { state: SignalState::Delivered { invocation_id, generation }, .. }) = &record
            && let Some(owner) = self.inner.load_invocation(invocation_id).await?
            && matches!(owner.status, InvocationStatus::Errored(_))
        {
            let invocation_id = invocation_id.clone();
            let generation = *generation;
            let state = SignalState::Waiting { invocation_id, generation };
            return Ok(Some(SignalRecord { signal_id: id.clone(), state }));
        }
        Ok(record)
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        if self.has(PlantedBug::LoseSignal) {
            return Ok(BufferOutcome::Buffered { expires_at: signal.expires_at });
        }
        let id = &self.mixed(id);
        let known = self.inner.load_signal(id, signal.received_at).await?;
        if self.has(PlantedBug::ParkDelivered)
            && matches!(known.map(|record| record.state), Some(SignalState::Delivered { .. }))
        {
            self.inner.plant_signal(id, Some(SignalState::Buffered(signal.clone())));
            return Ok(BufferOutcome::Buffered { expires_at: signal.expires_at });
        }
        self.inner.buffer_signal(id, signal).await
    }
}

#[async_trait]
impl Commits for LyingStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        if self.has(PlantedBug::ReplacePayload) {
            self.forget_payload(request).await;
        }
        if self.has(PlantedBug::DecideBlindly)
            && request.answered.is_some()
            && let Ok(Some(record)) = self.inner.load_invocation(&request.invocation_id).await
        {
            let answered = record.paused.fan_in.map(|fan_in| fan_in.answers.len());
            return self.inner.claim(&ClaimRequest { answered, ..request.clone() }).await;
        }
        if self.has(PlantedBug::BelieveClaim) {
            return self.inner.claim(&ClaimRequest { past: None, ..request.clone() }).await;
        }
        if self.has(PlantedBug::PassOverAny)
            && request.past.is_some()
            && let Some(claim) = self.holder(&request.invocation_id).await
        {
            return self.inner.claim(&ClaimRequest { past: Some(claim.until), ..request.clone() }).await;
        }
        if self.has(PlantedBug::DropGeneration) {
            return self.inner.claim(&ClaimRequest { generation: None, ..request.clone() }).await;
        }
        if self.has(PlantedBug::TakeOverNothing) && request.payload.is_none() {
            let payload = Some(Map::new());
            return self.inner.claim(&ClaimRequest { payload, ..request.clone() }).await;
        }
        if self.has(PlantedBug::ClaimAside) {
            self.bring_back(request).await;
        }
        match self.inner.claim(request).await? {
            ClaimOutcome::Granted(record) => Ok(ClaimOutcome::Granted(self.counted(record))),
            ClaimOutcome::Held { .. } if self.has(PlantedBug::SkipClaim) => {
                let record = self.inner.load_invocation(&request.invocation_id).await?;
                Ok(record.map_or(ClaimOutcome::NotFound, |record| ClaimOutcome::Granted(Box::new(record))))
            }
            outcome @ (ClaimOutcome::NotFound
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::AwaitingMoreSignals(_)
            | ClaimOutcome::NotClaimable(_)) => Ok(outcome),
        }
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let commit = self.loosened(commit).await;
        match &commit.invocation {
            Some(InvocationWrite::Cancel { .. }) if self.has(PlantedBug::LoseCancellation) => return Ok(()),
            Some(InvocationWrite::Progress { from: ProgressFrom::Claimed(_), .. })
                if self.has(PlantedBug::ForgetStep) =>
            {
                return Ok(());
            }
            Some(InvocationWrite::Conclude { .. }) if self.has(PlantedBug::EndCanceled) => {
                return self.inner.commit(&Commit { invocation: None, ..commit }).await;
            }
            Some(InvocationWrite::Suspend { paused, from: SuspendFrom::Claimed { .. }, .. })
                if self.has(PlantedBug::CarryAttempts) =>
            {
                self.carry(&paused.invocation_id).await;
            }
            Some(InvocationWrite::PutAside { paused, .. }) if self.has(PlantedBug::RetryAtTheEnd) => {
                self.carry(&paused.invocation_id).await;
            }
            Some(InvocationWrite::Retry { paused }) if self.has(PlantedBug::RetryWithoutRow) => {
                let mut retried = self.retried.lock().unwrap_or_else(PoisonError::into_inner);
                retried.insert(paused.invocation_id.clone());
            }
            _ => {}
        }
        match self.inner.commit(&commit).await {
            Ok(()) if self.has(PlantedBug::KeepLosers) => {
                if let Some(InvocationWrite::Complete { paused, .. }) = &commit.invocation {
                    self.keep_losers(paused);
                }
                Ok(())
            }
            Ok(()) if self.has(PlantedBug::RetryWithNothing) => {
                if let Some(InvocationWrite::Retry { paused }) = &commit.invocation {
                    self.lose_payload(paused, commit.now).await;
                }
                Ok(())
            }
            Ok(()) if self.has(PlantedBug::EndAside) => {
                if let Some(InvocationWrite::PutAside { paused, .. }) = &commit.invocation {
                    self.end_wait(paused);
                }
                Ok(())
            }
            Err(CommitError::SignalBuffered(signal)) if self.has(PlantedBug::OverlookSignal) => {
                self.overlook(&commit, *signal).await
            }
            result => result,
        }
    }
}
