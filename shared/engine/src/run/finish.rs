//! How a fresh invocation leaves `invoke()`.

use std::sync::Arc;

use dormouse_ports::{Commit, GrowingLists, InvocationWrite, Map, Resolution, SessionWrite};

use super::engine::{Completed, Engine, LeaseTerms, Outcome};
use super::pause::{self, Before};
use super::record::Run;
use super::session::save_failed;
use super::walk::End;
use crate::{CompiledGraph, EngineError, State};

impl Engine {
    pub(super) fn commit(
        &self,
        session: Option<SessionWrite>,
        invocation: Option<InvocationWrite>,
        growing: GrowingLists,
    ) -> Commit {
        let (id, now) = (self.ports().ids.fresh(), self.ports().clock.now());
        Commit { id, now, session, invocation, growing }
    }
}

pub(super) async fn fresh(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    run: &Run,
    ended: Result<End, EngineError>,
    carried: Map,
    lease: Option<LeaseTerms>,
) -> Result<Outcome, EngineError> {
    let ended = match ended {
        Ok(End::Completed(state)) => save_at_end(run, &state).await.map(|()| completed(run, state, carried, None)),
        Ok(End::Paused(pause)) => {
            let before = Before { carried, claim: lease, previous: None };
            pause::persist(engine, graph, run, &pause, before).await.map(|s| Outcome::Suspended(Box::new(s)))
        }
        Err(error) => Err(error),
    };
    if let (Err(_), Some(session)) = (&ended, &run.session) {
        session.release().await;
    }
    ended
}

/// Saves the session at END (sessions §6.1); without auto-save only the lease is given back.
async fn save_at_end(run: &Run, state: &State) -> Result<(), EngineError> {
    let Some(session) = &run.session else { return Ok(()) };
    let saved = session.auto_saves().then_some(state);
    if saved.is_none() && !session.holds_lease() {
        return Ok(());
    }
    session.commit(saved, true, |_| None).await.map(|_| ()).map_err(save_failed)
}

pub(super) fn completed(run: &Run, state: State, carried: Map, resolution: Option<Resolution>) -> Outcome {
    Outcome::Completed(Completed {
        invocation_id: run.identity.invocation_id.clone(),
        correlation_id: run.identity.correlation_id.clone(),
        state,
        carried,
        resolution,
    })
}
