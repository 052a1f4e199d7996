use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    BufferOutcome, BufferedSignal, Cancellation, EarlySignal, Edition, FailureRecord, GrowingLists, InvocationId,
    InvocationRecord, InvocationStatus, Journal, JournalConflict, Lease, LeaseRequest, LoadedSession, Map, Owner,
    PartAnswer, PausedInvocation, RuleEntry, RuleNeed, SessionFilter, SessionId, SessionSummary, ShapeId, SignalId,
    SignalRecord, SignalState, WakePlan,
};

/// Durable state: sessions, invocations, signals and the index of what sleeps.
///
/// Every call is atomic and every read strongly consistent.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Loads the session `id` and, when `lease` is given, takes its lease in the same step.
    ///
    /// # Errors
    /// [`StoreError::LeaseHeld`] when somebody else holds the lease; nothing changed then.
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError>;

    /// Removes the session `id`; removing what is not there succeeds (sessions §5.3).
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError>;

    /// Lists sessions that pass `filter`, ordered by id where the store can, page by page; `cursor` comes from the
    /// page before.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the cursor is not one of its own.
    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError>;

    /// Loads the record of an invocation that was suspended at least once, or canceled.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError>;

    /// Whether the invocation `id` was canceled. The store may answer without loading the record's state.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn cancellation(&self, id: &InvocationId) -> Result<Option<Cancellation>, StoreError> {
        Ok(match self.load_invocation(id).await?.map(|record| record.status) {
            Some(InvocationStatus::Canceled(cancellation)) => Some(cancellation),
            Some(
                InvocationStatus::Suspended
                | InvocationStatus::Resuming(_)
                | InvocationStatus::Completed { .. }
                | InvocationStatus::Errored(_),
            )
            | None => None,
        })
    }

    /// Claims a paused invocation for resuming it and loads it in the same step. A claim whose time is over, or that the
    /// caller [passes over](ClaimRequest::past), is taken over together with the payload that it stored.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer; the claim may or may not be ours then, and asking again with the
    /// same owner tells.
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError>;

    /// Writes all of `commit` or nothing.
    ///
    /// # Errors
    /// [`CommitError`] tells which precondition did not hold. After an ambiguous failure of the transport the adapter
    /// finds out by `commit.id` whether the commit happened, before it answers; where it cannot, it says
    /// [`Unknown`](CommitError::Unknown) and never that nothing was written.
    async fn commit(&self, commit: &Commit) -> Result<(), CommitError>;

    /// Loads what is known of a signal; an expired buffered signal is not returned (`now` decides).
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError>;

    /// Parks a signal that nobody waits for: only while there is no record of it, or an expired one. Of a signal that
    /// was delivered a late duplicate must not lie in wait for whoever uses its id next.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the payload is too large.
    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError>;

    /// The rows of what sleeps, in the order in which they fall due within each shard; rows that never fall due come
    /// last. Only rows due at or before `due_by` when it is given.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the cursor is not one of its own.
    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError>;

    /// What is the matter with each of `ids`, in their order, without loading any state; at most 100 of them.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<Glance>>, StoreError>;

    /// Each of `ids` as [`load_invocation`](Self::load_invocation) gives it, in their order, with few requests; at most
    /// 100 of them. One that cannot be read does not keep the others from being.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn load_invocations(&self, ids: &[InvocationId]) -> Result<Vec<LoadedInvocation>, StoreError> {
        let mut loaded = Vec::new();
        for id in ids {
            loaded.push(match self.load_invocation(id).await {
                Err(error) if !matches!(error, StoreError::Corrupt(_)) => return Err(error),
                record => record,
            });
        }
        Ok(loaded)
    }

    /// What there is besides each of the `paused` at `now`, in their order, with few requests; at most 100 of them.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer, or something of it cannot be read.
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

    /// Invocations whose claim ended by itself at or before `now`, or ends later than any turn may take
    /// ([`out_of_time`](crate::limits::out_of_time)): a bounded number of both, the oldest claims among them. One that
    /// was settled a moment ago may still be named, and one that has only just ended may not be yet.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError>;

    /// The invocations that were [put aside](InvocationWrite::PutAside) and not tried again since, the oldest first; at
    /// most a page of each shard. One that was put aside a moment ago may be missing.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn put_aside(&self) -> Result<Vec<InvocationId>, StoreError>;

    /// The row of `paused` in the index of what sleeps, if it is there.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError>;

    /// Signals that were parked and are not known to have been claimed, the oldest first. A row may outlive its signal
    /// until [`Upkeep::Unparked`] removes it.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the cursor is not one of its own.
    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError>;

    /// Where the sweep called `lane` goes on; `None` at the beginning. Or what was [noted](Upkeep::Note) under that name.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn sweep_position(&self, lane: &str) -> Result<Option<String>, StoreError>;

    /// Looks at the next stretch of all that is stored, behind `cursor`, and removes what is kept apart from its record,
    /// has been for a day, and is not referred to any more: parts of states, and waits of invocations that are gone.
    /// How much it looks at is bounded.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the cursor is not one of its own.
    async fn collect(&self, now: Timestamp, cursor: Option<&str>) -> Result<Collected, StoreError>;

    /// Notes that the rule of `shape` is about to be relied on, and answers which one that is: that of the entry, or, where
    /// there is none, a new one of the edition `fresh`. The entry is idle no more.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer; the entry may or may not have been touched then.
    async fn touch_rule(&self, shape: &ShapeId, fresh: &Edition, now: Timestamp) -> Result<RuleEntry, StoreError>;

    /// All entries of rules, ordered by shape.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn rule_entries(&self) -> Result<Vec<RuleEntry>, StoreError>;

    /// Does what a sweep or a repair has found to be needed. What does not apply any more changes nothing.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn upkeep(&self, upkeep: &Upkeep) -> Result<(), StoreError>;
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What the page holds; may be empty although more follows.
    pub items: Vec<T>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<String>,
}

/// An invocation, if it ever slept; or why what is stored of it cannot be read.
pub type LoadedInvocation = Result<Option<InvocationRecord>, StoreError>;

/// What there is besides a pause: whatever leads to it, and who may be in its way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// Its row in the index of what sleeps.
    pub row: Option<PendingRow>,
    /// The signals that it awaits, and what is known of each.
    pub signals: Vec<(SignalId, Option<SignalState>)>,
    /// Until when its session is leased, or was.
    pub leased_until: Option<Timestamp>,
}

/// A sleeping invocation in the index of what sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// Who sleeps.
    pub invocation_id: InvocationId,
    /// In which of its pauses.
    pub generation: u64,
    /// When it falls due, if ever.
    pub due_at: Option<Timestamp>,
    /// Since when it sleeps; unknown for rows of the first versions.
    pub since: Option<Timestamp>,
    /// Whether a sweep has seen to it that its wake-up is registered, or there is nothing to register: it has none, or
    /// those who serve the store wake by the index itself.
    pub registered: bool,
    /// Which rule on the bus it needs.
    pub rule: RuleNeed,
}

impl PendingRow {
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

/// What can be said of an invocation without loading its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Its latest pause.
    pub generation: u64,
    /// What it is doing.
    pub standing: Standing,
}

/// What an invocation is doing, without what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It sleeps.
    Asleep,
    /// Somebody resumes it.
    Claimed {
        /// When the claim ends by itself.
        until: Timestamp,
    },
    /// It was put aside: nobody resumes it until somebody lets it be tried again. Its pause is whole, and its wait stays.
    Aside,
    /// It completed, failed or was canceled.
    Ended,
}

/// A signal in the index of what was parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedRow {
    /// Which one.
    pub signal_id: SignalId,
    /// When it arrived.
    pub received_at: Timestamp,
}

/// What came of a [`StateStore::collect`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many items were removed.
    pub removed: usize,
    /// Where the next stretch begins.
    pub next: Option<String>,
    /// Whether everything has been looked at, and the next stretch begins another round.
    pub done: bool,
}

/// A small change that keeps the indexes true to what they index.
#[derive(Clone, Debug, PartialEq)]
pub enum Upkeep {
    /// The wake-up of this row's pause is registered, and needs the rule that the row says.
    Registered(PendingRow),
    /// The pause of this row is over: the row goes away.
    Ended(PendingRow),
    /// The row of a pause that sleeps is missing, and is written again.
    Row(Box<PausedInvocation>),
    /// A signal item of a pause that sleeps is missing, and is written again, unless the id is taken meanwhile.
    Wait(Box<PausedInvocation>),
    /// The signal of this row is parked no more: the row goes away.
    Unparked(ParkedRow),
    /// A sweep found at `since` that nobody needs the rule of `entry`: noted unless the entry was touched meanwhile.
    RuleIdle {
        /// The entry as it was read.
        entry: RuleEntry,
        /// When.
        since: Timestamp,
    },
    /// The bus has taken the rule of `entry`: noted, unless that has made room for another edition.
    RuleStands {
        /// The entry as it was read.
        entry: RuleEntry,
        /// When.
        since: Timestamp,
    },
    /// Nobody relies on the rule of this entry any more: the entry goes away, unless it was touched since it was read.
    RuleUnneeded(RuleEntry),
    /// Something is noted under `name` for whoever [asks](StateStore::sweep_position) for it, until then at least.
    Note {
        /// Under which name; none that a sweep has.
        name: String,
        /// What.
        note: String,
        /// When it may be forgotten.
        until: Timestamp,
    },
    /// The sweep called `lane` goes on at `position`, or at the beginning.
    Position {
        /// Which sweep.
        lane: String,
        /// A cursor of the listing that it goes through.
        position: Option<String>,
    },
}

/// Asks for the right to resume.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimRequest {
    /// Whom to resume.
    pub invocation_id: InvocationId,
    /// The pause that the caller means; `None` means whichever is current.
    pub generation: Option<u64>,
    /// Who asks; unique to this delivery.
    pub owner: Owner,
    /// The present instant.
    pub now: Timestamp,
    /// When the claim ends by itself.
    pub until: Timestamp,
    /// The end of a claim of somebody else that does not count, because it is [further away](crate::limits::LEASE) than
    /// any turn needs: a clock was wrong. As with [`LeaseRequest::past`], only that very claim is passed over.
    pub past: Option<Timestamp>,
    /// What the delivery carries; stored with the claim. `None` only takes over a claim whose time is over or that is
    /// passed over, with the payload that it stored.
    pub payload: Option<Map>,
    /// Of how many answers the payload was made, for a pause that expects several; `None` for any other pause. While
    /// it sleeps it is granted only to who knows all of them.
    pub answered: Option<usize>,
}

/// The answer to a [`ClaimRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimOutcome {
    /// The caller resumes; the record's status is `Resuming` with the payload that counts.
    Granted(Box<InvocationRecord>),
    /// Nobody of that id was ever suspended.
    Missing,
    /// Another delivery resumes at this moment.
    Held {
        /// When its claim ends by itself.
        until: Timestamp,
    },
    /// The pause sleeps and expects several signals, of which the caller does not know all that have come.
    Gathering(Box<InvocationRecord>),
    /// The pause that the caller means is over: the invocation ended or was canceled, or sleeps in a later pause. For a request without
    /// a payload also: it sleeps, and there is no claim to take over.
    Settled(Box<InvocationRecord>),
}

/// One atomic change of durable state.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Unique to this change: how an adapter recognises its own success after a lost answer.
    pub id: String,
    /// The present instant.
    pub now: Timestamp,
    /// What happens to the session.
    pub session: Option<SessionWrite>,
    /// What happens to the invocation, its signal and its pending row.
    pub invocation: Option<InvocationWrite>,
    /// What is written of documents and streams.
    pub journal: Journal,
    /// Which lists of the written states only grow, and how much of them is stored already.
    pub growing: GrowingLists,
}

impl Commit {
    /// A commit that changes nothing yet.
    pub fn new(id: impl Into<String>, now: Timestamp) -> Self {
        let (session, invocation) = (None, None);
        let (journal, growing) = (Journal::default(), GrowingLists::default());
        Self { id: id.into(), now, session, invocation, journal, growing }
    }
}

/// A change of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionWrite {
    /// Whose record.
    pub session_id: SessionId,
    /// The new state with its schema version; `None` leaves the record as it is (only a lease is given back).
    pub save: Option<SessionSave>,
    /// What the record must be for the write to happen.
    pub expect: SessionExpectation,
    /// The lease under which the turn ran. The write fails if it was lost.
    pub lease: Option<Lease>,
    /// Whether the lease is given back by this write.
    pub release: bool,
}

/// The content of a session save.
pub type SessionSave = (Map, String);

/// What a save assumes of the stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionExpectation {
    /// Nothing: the last write wins (sessions §8.1).
    Any,
    /// This version; 0 means that there is no record yet (sessions §8.2).
    Version(u64),
}

/// A change of an invocation.
#[derive(Clone, Debug, PartialEq)]
pub enum InvocationWrite {
    /// It goes to sleep. Its signals become `Waiting` and a pending row is added.
    Suspend {
        /// The pause.
        paused: Box<PausedInvocation>,
        /// What it was before.
        from: SuspendFrom,
        /// When given, the pause is born claimed.
        claim: Option<crate::Claim>,
        /// Buffered signals of its ids that are consumed in the same step. Any other buffered signal, and one with
        /// another payload, fails the commit ([`CommitError::SignalBuffered`]).
        early: Vec<EarlySignal>,
    },
    /// It is accepted and has not begun: `paused` is its generation 0, with the state that was given, no place in a graph
    /// and no signal. It is stored claimed by nobody ([`Claim::unowned`](crate::Claim::unowned)), so that the first who
    /// takes the claim over begins it, and a pending row is added. The condition is that nothing is stored under its id.
    Accept {
        /// What it begins with.
        paused: Box<PausedInvocation>,
    },
    /// A payload is accepted for it, and it goes on as soon as somebody takes the claim over, which nobody has yet. The
    /// condition is that it sleeps in that pause, with as many answers as are known where it expects several.
    Deliver {
        /// Whom.
        invocation_id: InvocationId,
        /// In which of its pauses.
        generation: u64,
        /// Of how many answers the payload was made, as in [`ClaimRequest::answered`].
        answered: Option<usize>,
        /// What it goes on with; stands from now on.
        payload: Map,
    },
    /// It reached END. Its signals become `Delivered` and its pending row goes away.
    Complete {
        /// The pause that the claim was for.
        paused: Box<PausedInvocation>,
        /// Who claimed it.
        owner: Owner,
        /// The final state.
        state: Map,
    },
    /// It ended with an error; the same clean-up.
    Fail {
        /// The pause that the claim was for.
        paused: Box<PausedInvocation>,
        /// Who claimed it, or `None` to end an invocation that nobody has claimed and whose next deadline is still
        /// that of `paused`.
        owner: Option<Owner>,
        /// What happened.
        failure: FailureRecord,
    },
    /// It is canceled, whether it sleeps, somebody resumes it, or it was put aside; the same clean-up. The condition is
    /// that the pause is current and its next deadline still the same, so that whoever holds a claim finds every write of
    /// its own refused from then on.
    Cancel {
        /// The pause that ends.
        paused: Box<PausedInvocation>,
        /// Why and when.
        cancellation: Cancellation,
    },
    /// It is canceled before anything of it is stored; the condition is that nothing is. Neither a pause nor an
    /// [`Conclude`](Self::Conclude) can be written from then on. The store may forget it with other ends.
    Forestall {
        /// Whom.
        invocation_id: InvocationId,
        /// Why and when.
        cancellation: Cancellation,
    },
    /// It reached END without ever having slept, and is kept for as long as other ends, so that whoever asks for it again
    /// is answered. The condition is that nothing is stored under its id, as it is after it was canceled or has ended.
    Conclude {
        /// Its generation 0: with the identity that it ran under, and no place in a graph.
        paused: Box<PausedInvocation>,
        /// The final state.
        state: Map,
    },
    /// A deadline that does not end the pause has passed: it sleeps on, nobody has claimed it, and its pending row moves.
    Advance {
        /// The pause as it was; the write fails unless its next deadline is still the same.
        paused: Box<PausedInvocation>,
        /// When and by what it wakes by itself from now on.
        wake: WakePlan,
    },
    /// One of several signals has come, and more are needed: it sleeps on. The condition is that nobody has claimed the
    /// pause, and that no other answer was accepted meanwhile.
    Answer {
        /// The pause with the answers that are known.
        paused: Box<PausedInvocation>,
        /// The new one, of a part that has not answered.
        answer: PartAnswer,
    },
    /// The claim is given back and its payload forgotten: it sleeps on as if nothing had arrived. An invocation that was
    /// [accepted](Self::Accept) and has not begun is claimed by nobody then.
    Release {
        /// Whom.
        invocation_id: InvocationId,
        /// In which of its pauses.
        generation: u64,
        /// Who claimed it.
        owner: Owner,
    },
    /// The claim stays as it is, with its payload, for whoever takes it over when its time is over. Its worker lives: the
    /// attempt does not count.
    Keep {
        /// Whom.
        invocation_id: InvocationId,
        /// In which of its pauses.
        generation: u64,
        /// Who claimed it.
        owner: Owner,
    },
    /// It ends with an error, and is put aside whole: its pause, its signals and the payload that counts stay. Its pending
    /// row goes away, and it is [listed](StateStore::put_aside).
    PutAside {
        /// The pause that the claim was for.
        paused: Box<PausedInvocation>,
        /// Who claimed it.
        owner: Owner,
        /// What happened.
        failure: FailureRecord,
    },
    /// It was put aside, and goes on as soon as somebody takes the claim over, with the payload that counted; attempts
    /// are counted from the beginning.
    Retry {
        /// The pause that was put aside.
        paused: Box<PausedInvocation>,
    },
    /// It stays as it is: only the condition that the claim is still the worker's. What else the commit writes is true as
    /// long as it is.
    Hold {
        /// Whom.
        invocation_id: InvocationId,
        /// In which of its pauses.
        generation: u64,
        /// Who claimed it.
        owner: Owner,
    },
}

impl InvocationWrite {
    /// Which invocation it changes.
    pub fn invocation_id(&self) -> &InvocationId {
        match self {
            Self::Suspend { paused, .. }
            | Self::Accept { paused }
            | Self::Complete { paused, .. }
            | Self::Conclude { paused, .. }
            | Self::Fail { paused, .. }
            | Self::Advance { paused, .. }
            | Self::Answer { paused, .. }
            | Self::PutAside { paused, .. }
            | Self::Retry { paused }
            | Self::Cancel { paused, .. } => &paused.invocation_id,
            Self::Release { invocation_id, .. }
            | Self::Keep { invocation_id, .. }
            | Self::Hold { invocation_id, .. }
            | Self::Deliver { invocation_id, .. }
            | Self::Forestall { invocation_id, .. } => invocation_id,
        }
    }
}

/// What an invocation was before it went to sleep.
#[derive(Clone, Debug, PartialEq)]
pub enum SuspendFrom {
    /// It was never stored.
    Fresh,
    /// It was being resumed from the pause before.
    Claimed {
        /// Who claimed it.
        owner: Owner,
        /// The pause that ends: its signals become `Delivered` and its pending row goes away.
        previous: Box<PausedInvocation>,
    },
}

/// Why a store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It did not answer in time, or is throttling; a later attempt may succeed.
    #[error("the state store is unavailable: {0}")]
    Unavailable(String),
    /// The caller may not do this; a later attempt will not succeed.
    #[error("the state store refused the request: {0}")]
    Denied(String),
    /// What is stored cannot be read.
    #[error("a stored record cannot be read: {0}")]
    Corrupt(String),
    /// The data exceed a limit.
    #[error("{what} has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The data are nested too deeply to be read again, or have too many values.
    #[error("{what}: {excess}")]
    TooComplex {
        /// What is.
        what: &'static str,
        /// In which way.
        excess: dormouse_json::Excess,
    },
    /// Somebody else holds the session's lease.
    #[error("another turn of the session is running until {until}")]
    LeaseHeld {
        /// When it ends by itself.
        until: Timestamp,
    },
    /// The request itself makes no sense, for example a foreign cursor.
    #[error("{0}")]
    Invalid(String),
}

/// Why a commit did not happen. Nothing of it was written, whichever variant but [`Unknown`](Self::Unknown).
#[derive(Debug)]
pub enum CommitError {
    /// The session is not of the expected version any more.
    SessionConflict,
    /// The lease was lost to another turn.
    LeaseLost,
    /// The invocation is not in the expected status, generation or claim any more; for a fresh suspension: the id is
    /// taken, or was canceled.
    InvocationConflict,
    /// An awaited signal has already arrived: one of those that are expected.
    SignalBuffered(BufferedSignal),
    /// Another invocation waits for the same signal id.
    SignalTaken(InvocationId),
    /// A document or a stream is not what the journal assumes.
    Journal(JournalConflict),
    /// The store did not answer, and it could not be found out: all of it may have been written, or may be soon.
    Unknown(String),
    /// The store failed.
    Store(StoreError),
}

impl CommitError {
    /// Whether all of it may have been written all the same, or may be soon.
    pub fn may_be_written(&self) -> bool {
        match self {
            Self::Unknown(_) => true,
            Self::SessionConflict
            | Self::LeaseLost
            | Self::InvocationConflict
            | Self::SignalBuffered(_)
            | Self::SignalTaken(_)
            | Self::Journal(_)
            | Self::Store(_) => false,
        }
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionConflict => f.write_str("the session was changed by another turn"),
            Self::LeaseLost => f.write_str("the session's lease was lost to another turn"),
            Self::InvocationConflict => f.write_str("the invocation was changed by another worker"),
            Self::SignalBuffered(_) => f.write_str("the awaited signal has already arrived"),
            // Whoever is told may not know of the other one.
            Self::SignalTaken(_) => f.write_str("another invocation already waits for the same signal id"),
            Self::Journal(conflict) => conflict.fmt(f),
            Self::Unknown(reason) => write!(f, "nobody knows whether the change was written: {reason}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CommitError {}

impl From<StoreError> for CommitError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
