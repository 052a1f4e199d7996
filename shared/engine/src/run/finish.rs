//! How a fresh invocation leaves `invoke()`.

use std::sync::Arc;

use dormouse_ports::{
    Category, Commit, CommitError, GrowingLists, InvocationWrite, Journal, Map, Resolution, SessionWrite, StoreError,
};

use super::engine::{Completed, Engine, Outcome};
use super::pause::{self, Before};
use super::record::Run;
use super::session::save_failed;
use super::walk::End;
use crate::size::json_size;
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

    /// Writes `commit`, unless a state in it is larger, or nested more deeply, than any may be, whatever the store would make of it.
    pub(super) async fn write(&self, commit: &Commit) -> Result<(), CommitError> {
        let limit = self.limits().state;
        for (what, state) in states(commit) {
            let size = json_size(state).map_err(|error| StoreError::Invalid(error.to_string()))?;
            if size > limit {
                return Err(StoreError::TooLarge { what, size, limit }.into());
            }
            dormouse_json::measure_object(state, dormouse_json::STATE)
                .map_err(|excess| StoreError::TooComplex { what, excess })?;
        }
        self.ports().store.commit(commit).await
    }
}

/// The states that `commit` writes.
fn states(commit: &Commit) -> impl Iterator<Item = (&'static str, &Map)> {
    let saved = commit.session.iter().filter_map(|session| session.save.as_ref());
    let (paused, ended) = match &commit.invocation {
        Some(InvocationWrite::Suspend { paused, .. }) => (Some(paused), None),
        Some(InvocationWrite::Complete { state, .. }) => (None, Some(state)),
        Some(_) | None => (None, None),
    };
    let paused = paused.into_iter().flat_map(|paused| paused.parent_states.iter().chain([&paused.state]));
    let saved = saved.map(|(state, _)| ("the session state", state));
    saved.chain(paused.map(|state| ("the paused state", state))).chain(ended.map(|state| ("the final state", state)))
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
    match (ended, &run.session) {
        (Err(error), Some(session)) => Err(settled(error, session.release().await)),
        (ended, _) => ended,
    }
}

/// `error`, without its doubt where the lease was given back behind it: what was to be written gives it back too, so that
/// it has not been written, and cannot be any more.
fn settled(error: EngineError, released: bool) -> EngineError {
    if *error.category() == Category::OutcomeUnknown && released {
        return EngineError::new(Category::SessionSaveFailed, "the store did not answer; nothing was written")
            .transient_if(true);
    }
    error
}

/// Saves the session at END (sessions §6.1); without auto-save only the lease is given back. Where the invocation may
/// have been canceled, on the condition that it was not.
async fn save_at_end(engine: &Engine, run: &Run, state: &State, cancelable: bool) -> Result<(), EngineError> {
    let unstored = || InvocationWrite::Unstored { invocation_id: run.identity.invocation_id.clone() };
    let unstored = || cancelable.then(unstored);
    let written = match &run.session {
        Some(session) if session.auto_saves() => session.commit(Some(state), true, |_| unstored()).await.map(|_| ()),
        Some(session) if session.holds_lease() => session.commit(None, true, |_| unstored()).await.map(|_| ()),
        Some(_) | None if cancelable => engine.write(&engine.commit(None, unstored(), GrowingLists::default())).await,
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
