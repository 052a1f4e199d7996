//! The indexes that sweeps and doctors go through.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    BEFORE_FIRST_PAUSE, InvocationId, Page, PausedInvocation, RuleNeed, Sessions, SignalId, SignalState, Signals,
    StoreError,
};

/// The index of suspended invocations, and of the rest that a sweep looks at: work that no worker does, invocations that
/// were put aside, and parked signals.
#[async_trait]
pub trait Sleepers: Send + Sync {
    /// The rows of suspended invocations, in the order in which they fall due within each shard; rows that never fall
    /// due come last. Only rows due at or before `due_by` when it is given.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the cursor is not one of its own.
    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError>;

    /// The row of `paused` in the index of suspended invocations, if it is there.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError>;

    /// Invocations with an accepted payload that no worker has claimed, and those with a claim that ended by itself at
    /// or before `now`, or ends later than any turn may take ([`out_of_time`](crate::limits::out_of_time)): a bounded
    /// number of them, in the order in which their payloads were accepted. One that was settled a moment ago may still
    /// be named, and one that was accepted or has ended only just may not be yet.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError>;

    /// The invocations that were [put aside](crate::InvocationWrite::PutAside) and not tried again since, the oldest
    /// first; at most a page of each shard. One that was put aside a moment ago may be missing.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn put_aside(&self) -> Result<PutAside, StoreError>;

    /// Signals that were parked and are not known to have been claimed, the oldest first. A row may outlive its signal
    /// until [`IndexRepair::Unparked`] removes it.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the cursor is not one of its own.
    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError>;

    /// Makes the index true to its records. A repair that does not apply any more changes nothing.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn repair(&self, repair: &IndexRepair) -> Result<(), StoreError>;
}

/// A sleeping invocation in the index of suspended invocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// Invocation that is suspended.
    pub invocation_id: InvocationId,
    /// Generation of its pause.
    pub generation: u64,
    /// Instant at which it falls due, if ever.
    pub due_at: Option<Timestamp>,
    /// Instant at which it went to sleep; unknown for rows of the first versions.
    pub since: Option<Timestamp>,
    /// True if a sweep has seen to it that its wake-up is registered, or there is nothing to register: it has none, or
    /// the processes that serve the store wake by the index itself.
    pub registered: bool,
    /// Rule on the bus that it needs.
    pub rule: RuleNeed,
}

impl PendingRow {
    /// `true` if the invocation has paused; `false` for accepted work that has not begun, of which only earlier versions
    /// wrote rows.
    pub fn has_paused(&self) -> bool {
        self.generation != BEFORE_FIRST_PAUSE
    }

    /// The row of `paused`, as it is written together with it.
    pub fn of(paused: &PausedInvocation) -> Self {
        Self {
            invocation_id: paused.invocation_id.clone(),
            generation: paused.generation,
            due_at: paused.wake.due.as_ref().map(|due| due.at),
            since: Some(paused.suspended_at),
            registered: paused.wake == crate::WakePlan::default(),
            rule: RuleNeed::of(paused),
        }
    }
}

/// A signal in the index of parked signals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedRow {
    /// Its id.
    pub signal_id: SignalId,
    /// Instant at which it arrived.
    pub received_at: Timestamp,
}

/// A small change that keeps the index true to its records.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexRepair {
    /// The wake-up of this row's pause is registered, and needs the rule that the row names.
    Registered(PendingRow),
    /// The pause of this row is over: the row goes away.
    Ended(PendingRow),
    /// The row of a pause that sleeps is missing, and is written again.
    Row(Box<PausedInvocation>),
    /// A signal item of a pause that sleeps is missing, and is written again, unless the id is taken or the pause over
    /// meanwhile.
    Wait(Box<PausedInvocation>),
    /// The signal of this row is parked no more: the row goes away.
    Unparked(ParkedRow),
}

/// Reads of a doctor around a pause.
#[async_trait]
pub trait Diagnostics: Sessions + Signals + Sleepers + Send + Sync {
    /// The records beside each of the `paused` at `now`, in their order, with few requests; at most 100 of them.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer, or a part of it cannot be read.
    async fn surroundings(
        &self,
        paused: &[&PausedInvocation],
        now: Timestamp,
    ) -> Result<Vec<Surroundings>, StoreError> {
        let mut all = Vec::new();
        for paused in paused {
            let mut found = Surroundings { row: self.pending_row(paused).await?, ..Surroundings::default() };
            for id in paused.waits() {
                let record = self.load_signal(&id, now).await?;
                found.signals.push((id, record.map(|record| record.state)));
            }
            if let Some(session) = &paused.session_id {
                found.leased_until = self.load_session(session, None).await?.leased_until;
            }
            all.push(found);
        }
        Ok(all)
    }
}

/// Records that the store holds around a pause: its pending row, its signals, and the session lease that may block it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// Its row in the index of suspended invocations.
    pub row: Option<PendingRow>,
    /// The signals that it awaits, with the state of each.
    pub signals: Vec<(SignalId, Option<SignalState>)>,
    /// Instant until which its session is leased, or was.
    pub leased_until: Option<Timestamp>,
}

/// The invocations that were put aside, as far as one look lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutAside {
    /// The invocations, the oldest first.
    pub ids: Vec<InvocationId>,
    /// True if there may be others.
    pub more: bool,
}
