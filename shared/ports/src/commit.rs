//! Claims, and commits that change a session, an invocation and its signals together.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    BufferedSignal, Cancellation, EarlySignal, FailureRecord, GrowingLists, InvocationId, InvocationRecord, Journal,
    JournalConflict, Lease, Map, Owner, PartAnswer, PausedInvocation, Said, SessionId, SharedMap, SignalId, StoreError,
    WakePlan,
};

/// The right to change an invocation, and the one way in which durable state changes.
#[async_trait]
pub trait Commits: Send + Sync {
    /// Claims a paused invocation for resuming it and loads it in the same step. A claim that is out of time, or that
    /// the caller [passes over](ClaimRequest::past), is taken over together with the payload that it stored.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer; the claim may or may not be ours then, and asking again with the
    /// same owner finds out.
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError>;

    /// Writes all of `commit` or nothing.
    ///
    /// # Errors
    /// [`CommitError`] names the precondition that did not hold. After an ambiguous failure of the transport the
    /// adapter finds out by `commit.id` whether the commit happened, before it answers; where it cannot, it returns
    /// [`Unknown`](CommitError::Unknown) and never reports that nothing was written.
    async fn commit(&self, commit: &Commit) -> Result<(), CommitError>;

    /// Writes `commit`, which is a [durable step](InvocationWrite::Progress), or nothing. The store may
    /// [note](StepWritten::Noted) it only, which costs less. It does so only under the claim of the step: once that was
    /// taken over, or the invocation ended or erased, it writes nothing any more.
    ///
    /// # Errors
    /// As of [`commit`](Self::commit).
    async fn step(&self, commit: &Commit) -> Result<StepWritten, CommitError> {
        self.commit(commit).await.map(|()| StepWritten::Whole)
    }
}

/// How a durable step was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepWritten {
    /// All of it.
    Whole,
    /// All but the session, whose record and version stay as they were saved last. Whoever loads the invocation or takes it
    /// over is given it behind the step, and what its session has as [`InvocationRecord::saved`]. A later commit of the worker
    /// that saves the session expects that version. What ends the invocation or its pause and saves no session, as a
    /// cancellation does, has the store save what the step has brought, unless another turn has saved meanwhile.
    Noted,
}

/// Request for the right to resume.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimRequest {
    /// Invocation to resume.
    pub invocation_id: InvocationId,
    /// The pause that the caller means; `None` means the current one.
    pub generation: Option<u64>,
    /// The claimant; unique to this delivery.
    pub owner: Owner,
    /// The present instant.
    pub now: Timestamp,
    /// Instant at which the claim ends by itself.
    pub until: Timestamp,
    /// The end of another delivery's claim that does not count, because it is [further away](crate::limits::LEASE) than
    /// any turn needs: a clock was wrong. As with [`LeaseRequest::past`](crate::LeaseRequest::past), only that very
    /// claim is passed over.
    pub past: Option<Timestamp>,
    /// Payload of the delivery; stored with the claim. `None` only takes over a claim that is out of time or passed
    /// over, with the payload that it stored.
    pub payload: Option<Map>,
    /// Number of answers of which the payload was made, for a pause that expects several; `None` for any other pause.
    /// While the pause sleeps, the claim is granted only to a caller that knows all of them.
    pub answered: Option<usize>,
}

/// The answer to a [`ClaimRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimOutcome {
    /// The caller resumes; the record's status is `Resuming` with the payload that counts.
    Granted(Box<InvocationRecord>),
    /// No invocation of that id was ever suspended.
    NotFound,
    /// Another delivery resumes at this moment.
    Held {
        /// Instant at which its claim ends by itself.
        until: Timestamp,
    },
    /// The pause sleeps and expects several signals, of which the caller does not know all that have come.
    AwaitingMoreSignals(Box<InvocationRecord>),
    /// The pause that the caller means is over: the invocation ended or was canceled, or sleeps in a later pause. For a
    /// request without a payload also: it sleeps, and there is no claim to take over.
    NotClaimable(Box<InvocationRecord>),
}

/// One atomic change of durable state.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Unique to this change: by it an adapter recognises its own success after a lost answer.
    pub id: String,
    /// The present instant.
    pub now: Timestamp,
    /// Change of the session.
    pub session: Option<SessionWrite>,
    /// Change of the invocation, its signal and its pending row.
    pub invocation: Option<InvocationWrite>,
    /// Writes to documents and streams.
    pub journal: Journal,
    /// The lists of the written states that only grow, and how much of them is stored already.
    pub growing: GrowingLists,
}

impl Commit {
    /// A commit that changes nothing yet.
    pub fn new(id: impl Into<String>, now: Timestamp) -> Self {
        let session = None;
        let invocation = None;
        let journal = Journal::default();
        let growing = GrowingLists::default();
        Self { id: id.into(), now, session, invocation, journal, growing }
    }
}

/// A change of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionWrite {
    /// Id of the session.
    pub session_id: SessionId,
    /// The new state with its schema version; `None` leaves the record as it is (only a lease is given back).
    pub save: Option<SessionSave>,
    /// Condition on the stored record for the write to happen.
    pub expect: SessionExpectation,
    /// The lease under which the turn ran. The write fails if it was lost.
    pub lease: Option<Lease>,
    /// True if this write gives the lease back.
    pub release: bool,
}

/// The content of a session save: the state, and its schema version.
pub type SessionSave = (SharedMap, String);

/// Assumption of a save about the stored record.
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
        /// Its status before.
        from: SuspendFrom,
        /// The claim under which the pause is born, if any.
        claim: Option<crate::Claim>,
        /// Buffered signals of its ids that are consumed in the same step. Any other buffered signal, and one with
        /// another payload, fails the commit ([`CommitError::SignalBuffered`]).
        early: Vec<EarlySignal>,
    },
    /// It is accepted and has not begun: `paused` is its generation 0, with the state that was given, no place in a
    /// graph and no signal. It is stored as [accepted](crate::InvocationStatus::Accepted), so that the first worker
    /// that takes the claim over begins it. The condition is that nothing is stored under its id.
    Accept {
        /// The input that it begins with.
        paused: Box<PausedInvocation>,
        /// Instant from which on it counts as accepted where it waits for other work: before it nobody who looks for lost work is
        /// told of it, and a worker that is called for it takes it up all the same. At once where there is none.
        again_at: Option<Timestamp>,
    },
    /// A payload is accepted for it, and it goes on as soon as a worker takes the claim over, which none has yet. The
    /// condition is that it sleeps in that pause, with as many answers as are known where it expects several.
    Deliver {
        /// The invocation.
        invocation_id: InvocationId,
        /// Generation of the pause.
        generation: u64,
        /// Number of answers of which the payload was made, as in [`ClaimRequest::answered`].
        answered: Option<usize>,
        /// The payload that it goes on with; stands from now on.
        payload: Map,
    },
    /// Its worker has come further in the midst of a turn: the worker that takes the claim over goes on from there. The
    /// pause that the claim is for, its signals and its pending row stay as they are.
    Progress {
        /// The pause of the claim, [under way](PausedInvocation::under_way): with the state and the place to which the
        /// worker has come. Before the first step it is as in [`Accept`](Self::Accept), and not under way: whoever takes
        /// the claim over begins it.
        paused: Box<PausedInvocation>,
        /// Its status before.
        from: ProgressFrom,
        /// The claim from now on, with an empty payload; with `None` it is accepted work for the first worker that
        /// takes it up.
        claim: Option<crate::Claim>,
    },
    /// It reached END. Its signals become `Delivered` and its pending row goes away.
    Complete {
        /// The pause that the claim was for.
        paused: Box<PausedInvocation>,
        /// Owner of the claim.
        owner: Owner,
        /// The final state.
        state: Map,
    },
    /// It ended with an error; the same clean-up.
    Fail {
        /// The pause that the claim was for.
        paused: Box<PausedInvocation>,
        /// Owner of the claim, or `None` to end an invocation that no worker has claimed and that still has the next
        /// deadline of `paused`.
        owner: Option<Owner>,
        /// The error.
        failure: FailureRecord,
    },
    /// It is canceled, whether it sleeps, a worker resumes it, or it was put aside; the same clean-up. The condition is
    /// that the pause is current and its next deadline still the same, so that the holder of a claim finds every write
    /// of its own refused from then on.
    Cancel {
        /// The pause that ends.
        paused: Box<PausedInvocation>,
        /// Reason and instant.
        cancellation: Cancellation,
    },
    /// It is canceled before anything of it is stored; the condition is that nothing is. Neither a pause nor an
    /// [`Conclude`](Self::Conclude) can be written from then on. The store may forget it with other ends.
    CancelBeforeStart {
        /// The invocation.
        invocation_id: InvocationId,
        /// Reason and instant.
        cancellation: Cancellation,
    },
    /// It reached END without ever having slept, and is kept for as long as other ends, so that a client that asks for
    /// it again is answered. The condition is that nothing is stored under its id, as it is after it was canceled or
    /// has ended.
    Conclude {
        /// Its generation 0: with the identity that it ran under, and no place in a graph.
        paused: Box<PausedInvocation>,
        /// The final state.
        state: Map,
    },
    /// A deadline that does not end the pause has passed: it sleeps on, no worker has claimed it, and its pending row
    /// moves.
    Advance {
        /// The pause as it was; the write fails unless its next deadline is still the same.
        paused: Box<PausedInvocation>,
        /// Instant and cause of its own wake-up from now on.
        wake: WakePlan,
    },
    /// One of several signals has come, and more are needed: it sleeps on. The condition is that no worker has claimed
    /// the pause, and that no other answer was accepted meanwhile.
    Answer {
        /// The pause with the answers that are known.
        paused: Box<PausedInvocation>,
        /// The new one, of a part that has not answered.
        answer: PartAnswer,
    },
    /// The claim is given back and its payload forgotten: it sleeps on as if nothing had arrived. An invocation that
    /// was [accepted](Self::Accept) and has not begun has no claim then.
    Release {
        /// The invocation.
        invocation_id: InvocationId,
        /// Generation of the pause.
        generation: u64,
        /// Owner of the claim.
        owner: Owner,
        /// The same as of [`Accept`](Self::Accept), for one that has not begun.
        again_at: Option<Timestamp>,
    },
    /// The claim stays as it is, with its payload, for the worker that takes it over when its time is over, or at once. Its
    /// worker lives: the attempt does not count.
    Keep {
        /// The invocation.
        invocation_id: InvocationId,
        /// Generation of the pause.
        generation: u64,
        /// Owner of the claim.
        owner: Owner,
        /// True if nobody has it any more: its payload is accepted, and waits for a worker.
        at_once: bool,
    },
    /// It ends with an error, and is put aside whole: its pause, its signals and the payload that counts stay. Its
    /// pending row goes away, and it is [listed](crate::Sleepers::put_aside).
    PutAside {
        /// The pause that the claim was for.
        paused: Box<PausedInvocation>,
        /// Owner of the claim.
        owner: Owner,
        /// The error.
        failure: FailureRecord,
    },
    /// It was put aside, and goes on as soon as a worker takes the claim over, with the payload that counted; attempts
    /// are counted from the beginning.
    Retry {
        /// The pause that was put aside.
        paused: Box<PausedInvocation>,
    },
    /// It stays as it is: only the condition that the claim is still the worker's. Everything else that the commit
    /// writes is true as long as it is. A session that is saved so has what steps that were only
    /// [noted](StepWritten::Noted) have brought, and lacks none of them from then on.
    AssertClaimed {
        /// The invocation.
        invocation_id: InvocationId,
        /// Generation of the pause.
        generation: u64,
        /// Owner of the claim.
        owner: Owner,
    },
}

impl InvocationWrite {
    /// The invocation as it is written, or as it was before it ends, where the write has it.
    pub fn paused(&self) -> Option<&PausedInvocation> {
        self.subject().ok()
    }

    /// Id of the invocation that it changes.
    pub fn invocation_id(&self) -> &InvocationId {
        self.subject().map_or_else(|id| id, |paused| &paused.invocation_id)
    }

    /// The invocation that it changes, or its id where that is all that the write has.
    fn subject(&self) -> Result<&PausedInvocation, &InvocationId> {
        match self {
            Self::Suspend { paused, .. }
            | Self::Progress { paused, .. }
            | Self::Accept { paused, .. }
            | Self::Complete { paused, .. }
            | Self::Conclude { paused, .. }
            | Self::Fail { paused, .. }
            | Self::Advance { paused, .. }
            | Self::Answer { paused, .. }
            | Self::PutAside { paused, .. }
            | Self::Retry { paused }
            | Self::Cancel { paused, .. } => Ok(paused),
            Self::Release { invocation_id, .. }
            | Self::Keep { invocation_id, .. }
            | Self::AssertClaimed { invocation_id, .. }
            | Self::Deliver { invocation_id, .. }
            | Self::CancelBeforeStart { invocation_id, .. } => Err(invocation_id),
        }
    }
}

/// Status of an invocation before a [durable step](InvocationWrite::Progress) of it.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgressFrom {
    /// It was never stored: its generation 0 is, and a pending row is added.
    Fresh,
    /// This worker has claimed the pause.
    Claimed(Owner),
}

/// Status of an invocation before it went to sleep.
#[derive(Clone, Debug, PartialEq)]
pub enum SuspendFrom {
    /// It was never stored.
    Fresh,
    /// It was being resumed from the pause before.
    Claimed {
        /// Owner of the claim.
        owner: Owner,
        /// The pause that ends: its signals become `Delivered` and its pending row goes away.
        previous: Box<PausedInvocation>,
    },
}

/// Reason for which a commit did not happen. Nothing of it was written, in every variant but
/// [`Unknown`](Self::Unknown).
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
    SignalBuffered(Box<BufferedSignal>),
    /// Another invocation waits for the same signal id.
    SignalTaken {
        /// The signal.
        signal_id: SignalId,
        /// The invocation that waits for it.
        holder: InvocationId,
    },
    /// A document or a stream is not in the state that the journal assumes.
    Journal(JournalConflict),
    /// Something was said to the run meanwhile: its state takes that in first. Only for a run that
    /// [hears](crate::Hearing).
    Said(Box<Said>),
    /// The store did not answer, and it could not be found out: all of it may have been written, or may be soon.
    Unknown(String),
    /// The store failed.
    Store(StoreError),
}

impl CommitError {
    /// True if all of it may have been written all the same, or may be soon.
    pub fn may_be_written(&self) -> bool {
        match self {
            Self::Unknown(_) => true,
            Self::SessionConflict
            | Self::LeaseLost
            | Self::InvocationConflict
            | Self::SignalBuffered(_)
            | Self::SignalTaken { .. }
            | Self::Journal(_)
            | Self::Said(_)
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
            // The caller that reads this may not know of the other invocation.
            Self::SignalTaken { signal_id, .. } => write!(
                f,
                "another invocation, of whichever tenant, already waits for signal `{signal_id}`: an id belongs to one wait, so it \
                 needs a part that is the turn's own, its invocation id for example"
            ),
            Self::Journal(conflict) => conflict.fmt(f),
            Self::Said(_) => f.write_str("something was said to the run meanwhile, which it has not heard"),
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
