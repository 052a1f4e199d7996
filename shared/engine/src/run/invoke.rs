//! The ways into a run (graph-engine §3, suspension §7, pipeline-utilities §10.4).

use std::sync::Arc;

use dormouse_ports::{
    Category, ClaimOutcome, ClaimRequest, InvocationId, InvocationRecord, InvocationStatus, PausedInvocation,
};

use super::call::{Begin, Invocation, Outcome, Resume};
use super::checkpoint_start::{CheckpointStart, load};
use super::engine::{Engine, is_transient};
use super::entry::{Arrival, Entry, enter};
use super::exit::{Claimed, Own};
use super::restore;
use super::session::{self, SessionRun};
use crate::ambient::Identity;
use crate::observe::{Observer, Phases, RegisteredObserver};
use crate::{CompiledGraph, EngineError, metadata};

impl Engine {
    /// Runs `graph` from its entry until it ends or suspends.
    ///
    /// # Errors
    /// The runtime categories of graph-engine §4, sessions §10 and suspension §9; `request_invalid` for metadata that
    /// may not be. An errored invocation saves nothing.
    pub async fn invoke(&self, graph: &Arc<CompiledGraph>, mut call: Invocation) -> Result<Outcome, EngineError> {
        metadata::accept(&call.metadata)?;
        let yield_after = call.lease.as_ref().and_then(|terms| terms.yield_after);
        let own = Own::new(&mut call);
        let ids = &self.ports().ids;
        let identity = Identity {
            invocation_id: call.invocation_id.unwrap_or_else(|| ids.fresh().into()),
            correlation_id: call.correlation_id.unwrap_or_else(|| ids.fresh()),
            session_id: call.session_id,
            metadata: call.metadata,
            begun_for: call.begun_for,
            trace_context: None,
        };
        let entry = Entry::Fresh { own, given: call.state, carry: call.carry };
        let observers = registered(call.observers);
        enter(self, graph, Arrival { identity, observers, entry, yield_after }).await
    }

    /// Checks that an invocation of `graph` could begin with the state, session and metadata of `call`. The session is
    /// loaded only where the state does not suffice without it.
    ///
    /// # Errors
    /// Every error with which [`invoke`](Self::invoke) would refuse before any node runs.
    pub async fn admit(&self, graph: &Arc<CompiledGraph>, call: &Invocation) -> Result<(), EngineError> {
        metadata::accept(&call.metadata)?;
        let given = &call.state;
        let Err(alone) = session::initial_state(graph.schema(), None, given.clone()) else { return Ok(()) };
        match SessionRun::open(self, graph, call.session_id.as_ref(), None).await? {
            Some(session) => session.initial_state(given.clone()).map(|_| ()),
            None => Err(alone),
        }
    }

    /// Begins an invocation that was accepted before and that the caller has claimed: runs `graph` from its entry,
    /// alone in its session for the duration of `call.claim`, and ends the claim with the outcome.
    ///
    /// Where the claim is kept, because a worker died or `call` decides so, the next worker that takes it over begins
    /// anew.
    ///
    /// # Errors
    /// As [`invoke`](Self::invoke). After `session_lease_held` the claim is still the caller's.
    pub async fn begin_claimed(
        &self,
        graph: &Arc<CompiledGraph>,
        record: Box<InvocationRecord>,
        call: Begin,
    ) -> Result<Outcome, EngineError> {
        let (InvocationStatus::Resuming(claim), paused) = (record.status, record.paused) else {
            let message = "the invocation is not claimed";
            return Err(EngineError::new(Category::SuspensionRecordInvalid, message));
        };
        let claimed = Claimed { paused, claim, held_for: call.claim.duration, after_error: call.after_error };
        let identity = claimed.identity();
        let observers = registered(call.observers);
        let entry = Entry::Accepted { claimed: Box::new(claimed), carry: call.carry };
        let yield_after = call.claim.yield_after;
        enter(self, graph, Arrival { identity, observers, entry, yield_after }).await
    }

    /// Claims a paused invocation of `graph` and continues it (suspension §7).
    ///
    /// # Errors
    /// `suspension_record_invalid` when it is not asleep, `suspension_resume_payload_invalid` when the payload does
    /// not fit (it sleeps on then), and those of [`invoke`](Self::invoke).
    pub async fn resume(
        &self,
        graph: &Arc<CompiledGraph>,
        invocation_id: &InvocationId,
        call: Resume,
    ) -> Result<Outcome, EngineError> {
        let now = self.ports().clock.now();
        let request = ClaimRequest {
            invocation_id: invocation_id.clone(),
            generation: call.generation,
            owner: call.claim.owner.clone(),
            now,
            until: now + call.claim.duration,
            past: None,
            payload: Some(call.payload.clone()),
            answered: None,
        };
        let invalid = |message: String| EngineError::new(Category::SuspensionRecordInvalid, message);
        let claimed = self.claim(&request).await.map_err(|error| {
            invalid(format!("the paused invocation could not be claimed: {error}")).transient_if(is_transient(&error))
        })?;
        match claimed {
            ClaimOutcome::Granted(record) => self.resume_claimed(graph, record, call).await,
            ClaimOutcome::NotFound => Err(invalid(format!("invocation {invocation_id} was never suspended"))),
            ClaimOutcome::Held { until } => {
                Err(invalid(format!("invocation {invocation_id} is being resumed elsewhere until {until}")))
            }
            ClaimOutcome::AwaitingMoreSignals(_) => {
                Err(invalid(format!("invocation {invocation_id} expects several signals, and none for itself")))
            }
            ClaimOutcome::NotClaimable(record) => {
                Err(invalid(format!("invocation {invocation_id} is not asleep: {}", status_name(&record.status))))
            }
        }
    }

    /// Continues an invocation that the caller has claimed: what a claim returned, or
    /// [`Suspended::arrived`](crate::Suspended::arrived). The payload that counts is the one stored with the claim.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub async fn resume_claimed(
        &self,
        graph: &Arc<CompiledGraph>,
        record: Box<InvocationRecord>,
        call: Resume,
    ) -> Result<Outcome, EngineError> {
        let InvocationRecord { status, paused, stored, saved } = *record;
        let InvocationStatus::Resuming(claim) = status else {
            let message = format!("invocation {} is not claimed", paused.invocation_id);
            return Err(EngineError::new(Category::SuspensionRecordInvalid, message));
        };
        let mut claimed = Claimed { paused, claim, held_for: call.claim.duration, after_error: call.after_error };
        let saved = saved.map(|state| restore::restored(graph, &PausedInvocation { state, ..claimed.paused.clone() }));
        let resumed = restore::resumed(graph, &claimed.paused, claimed.claim.payload.clone());
        let (states, saved) = match resumed.and_then(|resumed| Ok((resumed, saved.transpose()?))) {
            Ok(((paused, states), saved)) => {
                claimed.paused = paused;
                (states, saved.map(|saved| saved.state))
            }
            Err(error) => {
                claimed.refuse(self, &error).await;
                return Err(error);
            }
        };
        let identity = claimed.identity();
        let observers = registered(call.observers);
        let entry = Entry::Paused { claimed: Box::new(claimed), states, stored, saved };
        let yield_after = call.claim.yield_after;
        enter(self, graph, Arrival { identity, observers, entry, yield_after }).await
    }

    /// Goes on where the checkpoint of `invocation_id` was saved: under a fresh invocation id and the correlation id
    /// of the record, with the attempts of every node counted from 0 (pipeline-utilities §10.4, §10.6). Of `call`, the
    /// state and both ids are ignored. A session that `call` names is opened as by [`invoke`](Self::invoke), but the
    /// state is that of the checkpoint (§10.14).
    ///
    /// Nothing calls this by itself: who starts invocations remembers their ids until they end, and resumes those that
    /// a crash left behind.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dormouse_engine::{CompiledGraph, Engine, EngineError, Invocation, Outcome};
    /// # use dormouse_ports::{Category, InvocationId};
    /// /// Runs `id`, or goes on with it where an earlier run of this job had come.
    /// async fn run_job(engine: &Engine, graph: &Arc<CompiledGraph>, id: InvocationId) -> Result<Outcome, EngineError> {
    ///     match engine.resume_checkpoint(graph, &id, Invocation::default()).await {
    ///         Err(error) if *error.category() == Category::CheckpointNotFound => {
    ///             engine.invoke(graph, Invocation { invocation_id: Some(id), ..Invocation::default() }).await
    ///         }
    ///         ended => ended,
    ///     }
    /// }
    /// ```
    ///
    /// At END the session is saved as by `invoke`. What another turn saved between the checkpoint and this call is
    /// replaced then where the last write wins. With any other [`SessionConcurrency`](crate::SessionConcurrency)
    /// nothing runs and the call fails with `session_write_conflict`: a checkpoint holds no session to rebase from. Nor
    /// does it show whether it was a node of its own that saved the session and crashed before its checkpoint. Without
    /// a session the call goes through.
    ///
    /// A pause is no checkpoint: an invocation that sleeps is continued by [`resume`](Self::resume) only (§10.15).
    ///
    /// # Errors
    /// `checkpoint_not_found`; `checkpoint_state_migration_missing`, `_failed` and `_chain_ambiguous`;
    /// `checkpoint_record_invalid` when the record does not fit the graph; and those of [`invoke`](Self::invoke).
    pub async fn resume_checkpoint(
        &self,
        graph: &Arc<CompiledGraph>,
        invocation_id: &InvocationId,
        mut call: Invocation,
    ) -> Result<Outcome, EngineError> {
        metadata::accept(&call.metadata)?;
        let yield_after = call.lease.as_ref().and_then(|terms| terms.yield_after);
        let own = Own::new(&mut call);
        let record = load(self, graph, invocation_id).await?;
        let identity = Identity {
            invocation_id: self.ports().ids.fresh().into(),
            correlation_id: record.correlation_id.clone(),
            session_id: call.session_id,
            metadata: call.metadata,
            begun_for: call.begun_for,
            trace_context: None,
        };
        let entry = Entry::Checkpoint { own, start: Box::new(CheckpointStart::of(graph, record)?), carry: call.carry };
        let observers = registered(call.observers);
        enter(self, graph, Arrival { identity, observers, entry, yield_after }).await
    }
}

fn registered(observers: Vec<(Arc<dyn Observer>, Phases)>) -> Vec<RegisteredObserver> {
    observers.into_iter().map(|(observer, phases)| RegisteredObserver::new(observer, phases)).collect()
}

fn status_name(status: &InvocationStatus) -> &'static str {
    match status {
        InvocationStatus::Suspended => "suspended in another pause",
        InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => "being resumed",
        InvocationStatus::Completed { .. } => "completed",
        InvocationStatus::Errored(_) => "errored",
        InvocationStatus::Canceled(_) => "canceled",
    }
}
