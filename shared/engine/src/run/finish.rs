//! How a fresh invocation leaves `invoke()`.

use std::sync::Arc;

use dormouse_ports::{Category, Commit, CommitError, InvocationWrite, Map, PausedInvocation, Resolution, StoreError};

use super::engine::{Completed, Engine, Outcome};
use super::pause::{self, Before};
use super::record::Run;
use super::session::save_failed;
use super::walk::End;
use crate::sending::Sending;
use crate::{CompiledGraph, EngineError, State};

impl Engine {
    /// A commit of now that changes nothing yet.
    pub(super) fn blank_commit(&self) -> Commit {
        Commit::new(self.ports().ids.fresh(), self.ports().clock.now())
    }

    /// Writes `commit`, unless a state in it is larger, or nested more deeply, than any may be, whatever the store would make of it.
    pub(super) async fn write(&self, commit: &Commit) -> Result<(), CommitError> {
        let limit = self.limits().state;
        for (what, state) in states(commit) {
            let size = dormouse_json::length(state).map_err(|error| StoreError::Invalid(error.to_string()))?;
            if size > limit {
                return Err(StoreError::TooLarge { what, size, limit }.into());
            }
            dormouse_json::measure_object(state, dormouse_json::STATE)
                .map_err(|excess| StoreError::TooComplex { what, excess })?;
        }
        self.ports().store.commits.commit(commit).await
    }
}

/// The states that `commit` writes.
fn states(commit: &Commit) -> impl Iterator<Item = (&'static str, &Map)> {
    let saved = commit.session.iter().filter_map(|session| session.save.as_ref());
    let (paused, ended) = match &commit.invocation {
        Some(InvocationWrite::Suspend { paused, .. }) => (Some(paused), None),
        Some(InvocationWrite::Complete { state, .. } | InvocationWrite::Conclude { state, .. }) => (None, Some(state)),
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
            let concluded = cancelable.then(|| concluded(engine, graph, run, &before));
            let saved = save_at_end(engine, run, &state, concluded).await;
            saved.map(|()| completed(run, state, before.carried, None))
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
        Sending::resolve_doubt();
        return EngineError::new(Category::SessionSaveFailed, "the store did not answer; nothing was written")
            .transient_if(true);
    }
    error
}

/// What is kept of an invocation that ends without ever having slept.
fn concluded(engine: &Engine, graph: &CompiledGraph, run: &Run, before: &Before) -> PausedInvocation {
    let identity = &run.identity;
    PausedInvocation {
        correlation_id: identity.correlation_id.clone(),
        session_id: identity.session_id.clone(),
        graph: graph.name().to_owned(),
        graph_digest: graph.digest().to_owned(),
        schema_version: graph.schema().version().to_owned(),
        carried: before.carried.clone(),
        request_digest: before.request_digest.clone(),
        ..PausedInvocation::never(identity.invocation_id.clone(), engine.ports().clock.now())
    }
}

/// Saves the session at END (sessions §6.1); without auto-save only the lease is given back. Where others know the id of
/// the invocation, what it ended as is kept together with that, on the condition that it was not canceled and has not
/// ended before.
async fn save_at_end(
    engine: &Engine,
    run: &Run,
    state: &State,
    concluded: Option<PausedInvocation>,
) -> Result<(), EngineError> {
    let conclude = || {
        let paused = Box::new(concluded.clone()?);
        Some(InvocationWrite::Conclude { paused, state: state.to_map() })
    };
    let journal = run.journal.at_end();
    let written = match &run.session {
        Some(session) if session.auto_saves() || session.holds_lease() => {
            let saved = session.auto_saves().then_some(state);
            session.commit(saved, true, &journal, |_| conclude()).await.map(|_| ())
        }
        Some(_) | None if concluded.is_some() || !journal.is_empty() => {
            let growing = run.growing();
            engine.write(&Commit { invocation: conclude(), journal, growing, ..engine.blank_commit() }).await
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
