//! The records of invocations in the store: loaded, claimed, changed.
//!
//! An invocation that kills its workers is put aside, whole, so that it keeps no worker from its work; an operator may
//! let it be tried again, or cancel it. Until then it stays, however long that takes.
//!
//! Each claim counts as an attempt until the invocation gets further. A worker that gives its claim back, or leaves it
//! to another one, lives: its attempt is taken back. What remains are workers that died, or that never came to an end.

use dormouse_engine::Engine;
use dormouse_ports::{
    Category, Claim, ClaimOutcome, ClaimRequest, Commit, CommitError, FailureRecord, InvocationId, InvocationRecord,
    InvocationStatus, InvocationWrite, Owner, PausedInvocation, StoreError,
};

use crate::error::{TurnError, store_failed};

/// The records of invocations.
#[derive(Debug)]
pub(crate) struct InvocationRecords {
    engine: Engine,
    /// Number of workers that may die of an invocation before it is put aside.
    most_attempts: u32,
}

impl InvocationRecords {
    pub(crate) fn new(engine: Engine, most_attempts: u32) -> Self {
        Self { engine, most_attempts }
    }

    pub(crate) async fn load(&self, id: &InvocationId) -> Result<Option<Box<InvocationRecord>>, TurnError> {
        let record = self.engine.ports().store.invocations.load_invocation(id).await.map_err(store_failed)?;
        Ok(record.map(Box::new))
    }

    /// The records of both ids, in one request.
    pub(crate) async fn load_both(
        &self,
        one: &InvocationId,
        other: &InvocationId,
    ) -> Result<[Option<InvocationRecord>; 2], TurnError> {
        let invocations = &self.engine.ports().store.invocations;
        let mut loaded =
            invocations.load_invocations(&[one.clone(), other.clone()]).await.map_err(store_failed)?.into_iter();
        let mut next = || loaded.next().unwrap_or(Ok(None)).map_err(store_failed);
        Ok([next()?, next()?])
    }

    /// Commits a change of an invocation that concerns no session.
    pub(crate) async fn commit(&self, write: InvocationWrite) -> Result<(), CommitError> {
        let store = &self.engine.ports().store;
        store.commits.commit(&self.commit_of(write)).await
    }

    /// A commit of `write` alone.
    pub(crate) fn commit_of(&self, write: InvocationWrite) -> Commit {
        let ports = self.engine.ports();
        Commit { invocation: Some(write), ..Commit::new(ports.ids.fresh(), ports.clock.now()) }
    }

    /// As the engine's claim, but for an invocation of which as many workers died as may: that one is put aside, and
    /// answered as ended.
    pub(crate) async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let outcome = self.engine.claim(request).await?;
        match outcome {
            ClaimOutcome::Granted(record) => match &record.status {
                InvocationStatus::Resuming(claim) if claim.attempts > self.most_attempts => {
                    let claim = claim.clone();
                    self.put_aside(*record, claim).await
                }
                InvocationStatus::Accepted { .. }
                | InvocationStatus::Resuming(_)
                | InvocationStatus::Suspended
                | InvocationStatus::Completed { .. }
                | InvocationStatus::Errored(_)
                | InvocationStatus::Canceled(_) => Ok(ClaimOutcome::Granted(record)),
            },
            ClaimOutcome::NotFound
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::AwaitingMoreSignals(_)
            | ClaimOutcome::NotClaimable(_) => Ok(outcome),
        }
    }

    async fn put_aside(&self, record: InvocationRecord, claim: Claim) -> Result<ClaimOutcome, StoreError> {
        let id = &record.paused.invocation_id;
        let died = claim.attempts - 1;
        let message = format!(
            "{died} workers in a row died of it or never came to an end: it is put aside and is not tried again by itself; \
             when the cause is repaired, `dormouse retry {id}` lets it go on"
        );
        tracing::error!(invocation_id = %id, graph = record.paused.graph, attempts = died, "put aside: {message}");
        let failure = FailureRecord { category: Category::AttemptsExhausted, message };
        let paused = Box::new(record.paused.clone());
        let write = InvocationWrite::PutAside { paused, owner: claim.owner.clone(), failure: failure.clone() };
        match self.commit(write).await {
            Ok(()) => {
                let status = InvocationStatus::Errored(failure);
                Ok(ClaimOutcome::NotClaimable(Box::new(InvocationRecord { status, ..record })))
            }
            Err(CommitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    /// Gives a claim back: the pause is as it was before.
    pub(crate) async fn give_back(&self, record: &InvocationRecord) {
        let release = |invocation_id, generation, owner| InvocationWrite::Release {
            invocation_id,
            generation,
            owner,
            again_at: None,
        };
        self.end_attempt(record, release, "a claim was not given back; it ends by itself").await;
    }

    /// Leaves a claim to a worker that may do more: that no worker died of it is written down.
    pub(crate) async fn leave(&self, record: &InvocationRecord) {
        self.keep(record, false, "a claim that was left counts as an attempt").await;
    }

    /// Lets go of a claim, whose payload stays: the next worker that is called takes it over.
    pub(crate) async fn let_go(&self, record: &InvocationRecord) {
        self.keep(record, true, "a claim was not let go; it ends by itself").await;
    }

    async fn keep(&self, record: &InvocationRecord, at_once: bool, otherwise: &'static str) {
        let keep =
            |invocation_id, generation, owner| InvocationWrite::Keep { invocation_id, generation, owner, at_once };
        self.end_attempt(record, keep, otherwise).await;
    }

    /// Writes down that an attempt ended, and that its worker lives.
    async fn end_attempt(
        &self,
        record: &InvocationRecord,
        write: impl FnOnce(InvocationId, u64, Owner) -> InvocationWrite + Send,
        otherwise: &'static str,
    ) {
        let InvocationStatus::Resuming(claim) = &record.status else { return };
        let write = write(record.paused.invocation_id.clone(), record.paused.generation, claim.owner.clone());
        if let Err(error) = self.commit(write).await {
            tracing::warn!(%error, invocation_id = %record.paused.invocation_id, "{otherwise}");
        }
    }

    /// Ends a pause that no worker has claimed.
    pub(crate) async fn fail_unclaimed(&self, paused: PausedInvocation, error: &TurnError) -> Result<(), String> {
        let failure = FailureRecord { category: error.category.clone(), message: error.message.clone() };
        let write = InvocationWrite::Fail { paused: Box::new(paused), owner: None, failure };
        self.commit(write).await.map_err(|error| error.to_string())
    }
}

/// True if an invocation was put aside, because every worker that took it up died or never came to an end.
pub fn is_put_aside(record: &InvocationRecord) -> bool {
    matches!(&record.status, InvocationStatus::Errored(failure) if failure.category == Category::AttemptsExhausted)
}
