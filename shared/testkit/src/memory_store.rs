//! The state store in memory.

mod commit;
mod journal;
mod listing;
mod session;
mod signal;
mod tables;
mod upkeep;

use std::sync::Mutex;

use async_trait::async_trait;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, Claim, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, Counters,
    Diagnostics, Document, DocumentKey, DocumentWrite, DocumentWrites, EntryStretch, FeedPage, FeedRequest, FeedRow,
    Garbage, GcReport, IndexRepair, InvocationId, InvocationRecord, InvocationStatus, InvocationSummary, Invocations,
    Journal, LeaseRequest, ListRequest, LoadedSession, Notes, Page, ParkedRow, PausedInvocation, PendingRow, PutAside,
    Records, RuleEntries, RuleEntry, RuleIncarnation, RuleUpdate, SessionFilter, SessionId, SessionSummary, Sessions,
    ShapeId, SignalId, SignalRecord, SignalState, Signals, Sleepers, StoreError, StreamEntry, StreamTip,
};
use jiff::Timestamp;

use crate::lock;
use session::SessionRow;
use tables::Tables;

/// A [`StateStore`](dormouse_ports::StateStore), and the [`Records`] of its journals, that forgets everything when it
/// is dropped. One lock makes every call atomic.
#[derive(Debug)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
    page_size: usize,
}

impl MemoryStore {
    /// An empty store that lists in pages of at most `page_size` items.
    ///
    /// # Panics
    /// When `page_size` is zero: no listing would ever end.
    pub fn with_page_size(page_size: usize) -> Self {
        assert!(page_size > 0, "a page holds at least one item");
        Self { tables: Mutex::default(), page_size }
    }
}

impl MemoryStore {
    /// Leaves the signal `id` in a state in which no commit leaves it: a defect that a doctor has to find.
    pub fn plant_signal(&self, id: &SignalId, state: Option<SignalState>) {
        let mut tables = lock(&self.tables);
        match state {
            Some(state) => tables.signals.insert(id.clone(), state),
            None => tables.signals.remove(id),
        };
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_page_size(100)
    }
}

#[async_trait]
impl Sessions for MemoryStore {
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        let mut tables = lock(&self.tables);
        let lease =
            lease.map(|request| tables.sessions.entry(id.to_string()).or_default().lease(request)).transpose()?;
        let row = tables.sessions.get(id.as_str());
        let record = row.and_then(SessionRow::read);
        let leased_until = row.and_then(SessionRow::leased_until);
        let leased_by = row.and_then(SessionRow::leased_by);
        Ok(LoadedSession { record, lease, leased_until, leased_by, stored: Vec::new() })
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError> {
        lock(&self.tables).sessions.remove(id.as_str());
        Ok(())
    }

    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        listing::sessions(&lock(&self.tables), filter, cursor, self.page_size)
    }
}

#[async_trait]
impl Invocations for MemoryStore {
    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        Ok(lock(&self.tables).invocations.get(id).cloned())
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        let tables = lock(&self.tables);
        Ok(ids.iter().map(|id| tables.invocations.get(id).map(|record| upkeep::glance(&tables, record))).collect())
    }
}

#[async_trait]
impl Signals for MemoryStore {
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        let tables = lock(&self.tables);
        let state = tables.signals.get(id).filter(|state| !signal::expired(state, now));
        Ok(state.map(|state| SignalRecord { signal_id: id.clone(), state: state.clone() }))
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        let mut tables = lock(&self.tables);
        let before = tables.signals.get(id).cloned();
        let outcome = signal::buffer(&mut tables.signals, id, signal);
        if tables.signals.get(id) != before.as_ref() {
            let row = ParkedRow { signal_id: id.clone(), received_at: signal.received_at };
            tables.parked.insert(upkeep::parked_key(&row), row);
        }
        Ok(outcome)
    }
}

#[async_trait]
impl DocumentWrites for MemoryStore {
    async fn write_document(&self, write: &DocumentWrite, name: &str, now: Timestamp) -> Result<bool, StoreError> {
        if write.body.is_none() || !write.listed.is_empty() {
            return Err(StoreError::Invalid(format!("{}: expected a body and no places in lists", write.key)));
        }
        let journal = Journal::new(vec![write.clone()], Vec::new());
        match self.commit(&Commit { journal, ..Commit::new(name, now) }).await {
            Ok(()) => Ok(true),
            Err(CommitError::Journal(_)) => Ok(false),
            Err(CommitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }
}

#[async_trait]
impl Commits for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let mut tables = lock(&self.tables);
        let tables = &mut *tables;
        let Some(record) = tables.invocations.get_mut(&request.invocation_id) else {
            return Ok(ClaimOutcome::NotFound);
        };
        let slept = matches!(record.status, InvocationStatus::Suspended);
        let outcome = claim(record, tables.attempts.entry(request.invocation_id.clone()).or_default(), request);
        if slept && matches!(outcome, ClaimOutcome::Granted(_)) {
            tables.accepted.insert(request.invocation_id.clone(), request.now);
        }
        Ok(outcome)
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        lock(&self.tables).commit(commit)
    }
}

#[async_trait]
impl Sleepers for MemoryStore {
    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        listing::pending(&lock(&self.tables), due_by, cursor, self.page_size)
    }

    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        Ok(lock(&self.tables).pending_row(paused))
    }

    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        Ok(upkeep::dead_claims(&lock(&self.tables), now, self.page_size))
    }

    async fn put_aside(&self) -> Result<PutAside, StoreError> {
        let tables = lock(&self.tables);
        let mut aside: Vec<_> = tables.aside.iter().map(|(id, (at, _))| (*at, id.clone())).collect();
        aside.sort();
        let more = aside.len() > self.page_size;
        Ok(PutAside { ids: aside.into_iter().take(self.page_size).map(|(_, id)| id).collect(), more })
    }

    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        listing::parked(&lock(&self.tables), cursor, self.page_size)
    }

    async fn repair(&self, repair: &IndexRepair) -> Result<(), StoreError> {
        lock(&self.tables).repair(repair);
        Ok(())
    }
}

#[async_trait]
impl RuleEntries for MemoryStore {
    async fn touch_rule(
        &self,
        shape: &ShapeId,
        fresh: &RuleIncarnation,
        now: Timestamp,
    ) -> Result<RuleEntry, StoreError> {
        Ok(lock(&self.tables).touch_rule(shape, fresh, now))
    }

    async fn rule_entries(&self) -> Result<Vec<RuleEntry>, StoreError> {
        Ok(lock(&self.tables).rules.values().cloned().collect())
    }

    async fn update_rule(&self, update: &RuleUpdate) -> Result<(), StoreError> {
        lock(&self.tables).update_rule(update);
        Ok(())
    }
}

#[async_trait]
impl Notes for MemoryStore {
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(lock(&self.tables).notes.get(name).cloned())
    }

    /// A note is kept for good.
    async fn keep_note(&self, name: &str, text: Option<&str>, _until: Option<Timestamp>) -> Result<(), StoreError> {
        let notes = &mut lock(&self.tables).notes;
        match text {
            Some(text) => notes.insert(name.to_owned(), text.to_owned()),
            None => notes.remove(name),
        };
        Ok(())
    }
}

#[async_trait]
impl Garbage for MemoryStore {
    /// States are whole here, so that only waits can outlive their invocation.
    async fn collect_garbage(&self, _: Timestamp, _: Option<&str>) -> Result<GcReport, StoreError> {
        Ok(GcReport { removed: lock(&self.tables).collect_waits(), next: None, done: true })
    }
}

impl Diagnostics for MemoryStore {}

#[async_trait]
impl Records for MemoryStore {
    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        Ok(lock(&self.tables).journal.document(key, now).cloned())
    }

    async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        Ok(lock(&self.tables).journal.counters(key))
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        Ok(lock(&self.tables).journal.documents(request))
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        Ok(lock(&self.tables).journal.entries(stream, after, limit))
    }

    async fn stretch(&self, stream: &str, after: u64, limit: usize) -> Result<EntryStretch, StoreError> {
        Ok(lock(&self.tables).journal.stretch(stream, after, limit))
    }

    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        Ok(lock(&self.tables).journal.tip(stream))
    }

    async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        Ok(lock(&self.tables).journal.append_of(stream, position))
    }

    /// The end of time: a commit is never under way.
    fn settled(&self, _now: Timestamp) -> Timestamp {
        Timestamp::MAX
    }

    async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError> {
        Ok(lock(&self.tables).journal.feed(request))
    }
}

fn claim(record: &mut InvocationRecord, attempts: &mut u32, request: &ClaimRequest) -> ClaimOutcome {
    let other_pause = request.generation.is_some_and(|generation| generation != record.paused.generation);
    let payload = match (&record.status, &request.payload) {
        (InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_), _)
        | (InvocationStatus::Suspended, None) => {
            return ClaimOutcome::NotClaimable(Box::new(record.clone()));
        }
        _ if other_pause => return ClaimOutcome::NotClaimable(Box::new(record.clone())),
        (InvocationStatus::Suspended, Some(_)) if commit::answered(&record.paused) != request.answered => {
            return ClaimOutcome::AwaitingMoreSignals(Box::new(record.clone()));
        }
        (InvocationStatus::Suspended, Some(payload)) => payload.clone(),
        (InvocationStatus::Accepted { payload }, _) => payload.clone(),
        (InvocationStatus::Resuming(claim), _) if claim.until <= request.now || request.past == Some(claim.until) => {
            claim.payload.clone()
        }
        (InvocationStatus::Resuming(claim), _) if claim.owner == request.owner => {
            return ClaimOutcome::Granted(Box::new(record.clone()));
        }
        (InvocationStatus::Resuming(claim), _) => return ClaimOutcome::Held { until: claim.until },
    };
    *attempts += 1;
    let taken_over = !matches!(record.status, InvocationStatus::Suspended);
    let owner = request.owner.clone();
    let until = request.until;
    record.status = InvocationStatus::Resuming(Claim { owner, until, payload, attempts: *attempts, taken_over });
    ClaimOutcome::Granted(Box::new(record.clone()))
}
