//! Beginning what was accepted before: a fresh run whose end is the end of the claim of generation 0.

use std::sync::Arc;

use dormouse_ports::{Category, Claim, InvocationRecord, InvocationStatus, Map, PausedInvocation, SessionId};

use super::engine::{Carry, Engine, LeaseTerms, Outcome, Resume, initial_state, opened, registered};
use super::journal::HeldClaim;
use super::pause::{self, Before};
use super::record::Run;
use super::resume::{complete, end_badly};
use super::session::{self, SessionRun};
use super::walk::{End, From, Walk};
use crate::ambient::{self, Identity};
use crate::{CompiledGraph, EngineError, metadata};

impl Engine {
    /// Whether an invocation of `graph` could begin with `given`. The session is loaded only where `given` does not
    /// suffice without it.
    ///
    /// # Errors
    /// What [`invoke`](Self::invoke) would refuse before any node runs.
    pub async fn admit(
        &self,
        graph: &Arc<CompiledGraph>,
        session_id: Option<&SessionId>,
        given: &Map,
        metadata: &Map,
    ) -> Result<(), EngineError> {
        metadata::accept(metadata)?;
        let Err(alone) = session::initial_state(graph.schema(), None, given.clone()) else { return Ok(()) };
        match SessionRun::open(self, graph, session_id, None).await? {
            Some(session) => session.initial_state(given.clone()).map(|_| ()),
            None => Err(alone),
        }
    }

    /// Begins an invocation that was accepted before and whose claim the caller holds: runs `graph` from its entry, alone
    /// in its session for as long as `call.claim` says, and ends the claim with what comes of it. What `carry` makes of
    /// the state at entry is added to what the record carries.
    ///
    /// Where the claim is kept, because a worker died or `call` says so, the next one who takes it over begins anew.
    ///
    /// # Errors
    /// As [`invoke`](Self::invoke). After `session_lease_held` the claim is still the caller's.
    pub async fn begin_claimed(
        &self,
        graph: &Arc<CompiledGraph>,
        record: Box<InvocationRecord>,
        call: Resume,
        carry: Option<Carry>,
    ) -> Result<Outcome, EngineError> {
        let (InvocationStatus::Resuming(claim), mut paused) = (record.status, record.paused) else {
            let message = "the invocation is not claimed";
            return Err(EngineError::new(Category::SuspensionRecordInvalid, message));
        };
        let observers = registered(call.observers);
        let identity = Arc::new(Identity {
            trace_context: graph.trace_context(&observers),
            invocation_id: paused.invocation_id.clone(),
            correlation_id: paused.correlation_id.clone(),
            session_id: paused.session_id.clone(),
            metadata: paused.metadata.clone(),
        });
        let start = self.start_of(graph, &identity, None);
        let lease = LeaseTerms { owner: claim.owner.clone(), duration: call.claim.duration };
        let work = async {
            let (session, refused) = opened(self, graph, paused.session_id.as_ref(), Some(&lease)).await?;
            let held = HeldClaim { generation: paused.generation, owner: claim.owner.clone() };
            let run = Run::begin(self, graph, start, session, observers).under(held);
            let ended = match refused {
                Some(error) => Err(error),
                None => walk(self, graph, &run, &mut paused, (&claim, lease), carry).await,
            };
            let result = match ended {
                Ok(outcome) => Ok(outcome),
                Err(error) => {
                    // Whoever canceled it has ended the claim.
                    let error = if *error.category() == Category::InvocationCanceled {
                        error
                    } else {
                        let after = (call.after_error)(&error);
                        end_badly(self, &run, &paused, &claim, error, after).await
                    };
                    if let Some(session) = &run.session {
                        session.release().await;
                    }
                    Err(error)
                }
            };
            run.end(&result);
            result
        };
        ambient::within(&identity, Box::pin(work)).await
    }
}

/// Walks from the entry and ends the claim with what came of it.
async fn walk(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    run: &Run,
    paused: &mut PausedInvocation,
    (claim, lease): (&Claim, LeaseTerms),
    carry: Option<Carry>,
) -> Result<Outcome, EngineError> {
    let state = initial_state(graph, run, paused.state.clone())?;
    paused.carried.extend(carry.map_or_else(Map::new, |carry| carry(&state)));
    match Walk::outermost(run, graph).walk(state, From::Entry).await? {
        End::Completed(state) => complete(engine, run, paused, claim, state).await,
        End::Paused(next) => {
            let (carried, previous) = (paused.carried.clone(), Some(Box::new(paused.clone())));
            let request_digest = paused.request_digest.clone();
            let before = Before { carried, request_digest, claim: Some(lease), previous };
            pause::persist(engine, graph, run, &next, before).await.map(|s| Outcome::Suspended(Box::new(s)))
        }
    }
}
