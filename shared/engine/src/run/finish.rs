//! How a fresh invocation leaves `invoke()`.

use std::sync::Arc;

use dormouse_ports::{Commit, GrowingLists, InvocationWrite, Journal, Map, Resolution, SessionWrite};

use super::engine::{Completed, Engine, Outcome};
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
        Commit { id, now, session, invocation, journal: Journal::default(), growing }
    }
}

pub(super) async fn fresh(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    run: &Run,
    ended: Result<End, EngineError>,
    before: Before,
    cancelable: bool,
) -> Result<Outcome, EngineError> {
    let ended = match ended {
        Ok(End::Completed(state)) => {
            save_at_end(engine, run, &state, cancelable).await.map(|()| completed(run, state, before.carried, None))
        }
        Ok(End::Paused(pause)) => {
            pause::persist(engine, graph, run, &pause, before).await.map(|s| Outcome::Suspended(Box::new(s)))
        }
        Err(error) => Err(error),
    };
    if let (Err(_), Some(session)) = (&ended, &run.session) {
        session.release().await;
    }
    ended
}

/// Saves the session at END (sessions §6.1); without auto-save only the lease is given back. Where the invocation may
/// have been canceled, on the condition that it was not.
async fn save_at_end(engine: &Engine, run: &Run, state: &State, cancelable: bool) -> Result<(), EngineError> {
    let unstored = || InvocationWrite::Unstored { invocation_id: run.identity.invocation_id.clone() };
    let unstored = || cancelable.then(unstored);
    let written = match &run.session {
        Some(session) if session.auto_saves() => session.commit(Some(state), true, |_| unstored()).await.map(|_| ()),
        Some(session) if session.holds_lease() => session.commit(None, true, |_| unstored()).await.map(|_| ()),
        Some(_) | None if cancelable => {
            engine.ports().store.commit(&engine.commit(None, unstored(), GrowingLists::default())).await
        }
        Some(_) | None => Ok(()),
    };
    match written {
        Ok(()) => Ok(()),
        Err(error) => Err(run.watch.explain(error, save_failed).await),
    }
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
