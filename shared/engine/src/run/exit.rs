//! The one way out of a run: it completed, pauses, or failed (suspension §6, §7).

use std::time::Duration;

use dormouse_ports::{
    Category, Claim, Commit, CommitError, FailureRecord, Hearing, InvocationWrite, Journal, Map, PausedInvocation,
    Resolution,
};

use super::call::{AfterError, Completed, Invocation, LeaseTerms, Outcome};
use super::durable::LastStep;
use super::engine::Engine;
use super::journal::HeldClaim;
use super::persist::{Before, persist};
use super::record::{Run, RunContext};
use super::session::{PendingSave, save_failed, uncommitted};
use super::walk::WalkEnd;
use crate::ambient::Identity;
use crate::sending::Sending;
use crate::{EngineError, State};

/// Terms on which a run ends.
pub(super) enum Tenure {
    /// Nothing is stored of the invocation yet.
    Own(Own),
    /// It runs under a claim, which ends with it.
    Claimed(Box<Claimed>),
}

/// An invocation of which nothing is stored yet.
pub(super) struct Own {
    pub(super) carried: Map,
    request_digest: Option<String>,
    tenant: Option<String>,
    pub(super) lease: Option<LeaseTerms>,
    /// True if others know its id already, so that its end is kept.
    cancelable: bool,
}

/// An invocation under a claim that others take over once it has ended.
#[derive(Clone)]
pub(super) struct Claimed {
    pub(super) paused: PausedInvocation,
    pub(super) claim: Claim,
    pub(super) held_for: Duration,
    pub(super) after_error: fn(&EngineError) -> AfterError,
}

/// An invocation after the end of its walk.
pub(super) struct Exit<'r> {
    pub(super) at: RunContext<'r>,
    pub(super) tenure: Tenure,
}

impl Exit<'_> {
    /// Writes the outcome of the walk: the end, the pause, or the failure.
    pub(super) async fn leave(mut self, ended: Result<WalkEnd, EngineError>) -> Result<Outcome, EngineError> {
        let left = match ended {
            Ok(WalkEnd::Completed(state)) => match self.try_complete(&state, Hearing::default()).await {
                Ok(()) => Ok(self.completed(state)),
                Err(error) => Err(self.not_completed(error).await),
            },
            Ok(WalkEnd::LastStep(LastStep { node, .. })) => {
                let message = format!("the last step, of node `{node}`, was not committed");
                Err(EngineError::new(Category::SuspensionPersistenceFailed, message))
            }
            Ok(WalkEnd::Paused(pause)) => {
                persist(self.at, &pause, self.before()).await.map(|s| Outcome::Suspended(Box::new(s)))
            }
            Ok(WalkEnd::Step(step)) => {
                let message = format!("the durable step of node `{}` was not committed", step.node);
                Err(EngineError::new(Category::SuspensionPersistenceFailed, message))
            }
            Err(error) => Err(error),
        };
        match left {
            Ok(outcome) => Ok(outcome),
            Err(error) => Err(self.fail(error).await),
        }
    }

    /// Writes the end at `state`.
    pub(super) async fn try_complete(&self, state: &State, hearing: Hearing) -> Result<(), CommitError> {
        match &self.tenure {
            Tenure::Own(own) => save_at_end(self.at, own, state).await,
            Tenure::Claimed(claimed) => claimed.complete(self.at, state, hearing).await,
        }
    }

    /// The outcome of the run, whose end at `state` is written.
    pub(super) fn completed(&mut self, state: State) -> Outcome {
        match &mut self.tenure {
            Tenure::Own(own) => completed(self.at.run, state, std::mem::take(&mut own.carried), None),
            Tenure::Claimed(claimed) => {
                let paused = &claimed.paused;
                completed(self.at.run, state, paused.carried.clone(), paused.resolution)
            }
        }
    }

    /// The error of an end that is not written.
    pub(super) async fn not_completed(&self, error: CommitError) -> EngineError {
        let run = self.at.run;
        let explained: fn(&Run, CommitError) -> EngineError = match self.tenure {
            Tenure::Own(_) => |_, error| save_failed(error),
            Tenure::Claimed(_) => not_finished,
        };
        run.watch.explain(error, |error| explained(run, error)).await
    }

    /// Facts about the invocation before it pauses now.
    fn before(&mut self) -> Before {
        match &mut self.tenure {
            Tenure::Own(own) => Before {
                carried: std::mem::take(&mut own.carried),
                request_digest: own.request_digest.take(),
                tenant: own.tenant.take(),
                claim: own.lease.take(),
                previous: None,
            },
            Tenure::Claimed(claimed) => Before {
                carried: claimed.paused.carried.clone(),
                request_digest: claimed.paused.request_digest.clone(),
                tenant: claimed.paused.tenant.clone(),
                claim: Some(claimed.lease()),
                previous: Some(Box::new(claimed.paused.clone())),
            },
        }
    }

    /// Ends the claim as the caller wishes, and gives a lease of the session back.
    async fn fail(&self, error: EngineError) -> EngineError {
        let session = self.at.run.session.as_deref();
        match &self.tenure {
            Tenure::Own(_) => match session {
                Some(session) => {
                    let released = session.release().await;
                    // A save in the midst of the run did not give the lease back.
                    settled(error, released && !self.at.run.watch.is_in_doubt())
                }
                None => error,
            },
            Tenure::Claimed(claimed) => {
                // The operator or client that canceled it has ended the claim.
                let is_canceled = *error.category() == Category::InvocationCanceled;
                let error = if is_canceled { error } else { claimed.fail(self.at, error).await };
                if let Some(session) = session {
                    session.release().await;
                }
                error
            }
        }
    }
}

impl Own {
    pub(super) fn new(call: &mut Invocation) -> Self {
        Self {
            carried: Map::new(),
            request_digest: call.request_digest.take(),
            tenant: call.tenant.take(),
            lease: call.lease.take(),
            cancelable: call.cancelable,
        }
    }

    /// True if others know its id.
    pub(super) fn is_known(&self) -> bool {
        self.cancelable
    }

    /// Record of an invocation that ends without ever having been suspended.
    pub(super) fn concluded(&self, at: RunContext<'_>) -> PausedInvocation {
        let identity = &at.run.identity;
        let graph = at.graph;
        let now = at.engine.ports().clock.now();
        PausedInvocation {
            correlation_id: identity.correlation_id.clone(),
            session_id: identity.session_id.clone(),
            graph_digest: graph.digest().to_owned(),
            schema_version: graph.schema().version().to_owned(),
            carried: self.carried.clone(),
            request_digest: self.request_digest.clone(),
            tenant: self.tenant.clone(),
            begun_for: identity.begun_for.clone(),
            ..PausedInvocation::before_first_pause(identity.invocation_id.clone(), graph.name(), now)
        }
    }
}

impl Claimed {
    /// Its identity, before its place in a trace is known.
    pub(super) fn identity(&self) -> Identity {
        let paused = &self.paused;
        Identity {
            invocation_id: paused.invocation_id.clone(),
            correlation_id: paused.correlation_id.clone(),
            session_id: paused.session_id.clone(),
            metadata: paused.metadata.clone(),
            begun_for: paused.begun_for.clone().or_else(|| paused.tenant.clone()),
            trace_context: None,
        }
    }

    /// Exclusive rights as long as those of the claim.
    pub(super) fn lease(&self) -> LeaseTerms {
        LeaseTerms { owner: self.claim.owner.clone(), duration: self.held_for, yield_after: None }
    }

    /// The claim, for commits in the midst of the run.
    pub(super) fn held(&self) -> HeldClaim {
        HeldClaim { generation: self.paused.generation, owner: self.claim.owner.clone() }
    }

    /// Ends a claim that was refused before anything ran, and why is in the log.
    pub(super) async fn refuse(&self, engine: &Engine, error: &EngineError) {
        let is_misfit = *error.category() == Category::SuspensionResumePayloadInvalid;
        // The payload that was accepted waits for a worker that may take the pause up.
        let keeps = (!is_misfit && (self.after_error)(error) == AfterError::KeepClaim) || self.paused.under_way;
        let write = match keeps {
            true => self.keep(false),
            false => self.release(),
        };
        let _ = self.end(engine, alone(engine, write)).await;
    }

    /// Ends the claim with the final state; a lease of the session is given back in the same step.
    async fn complete(&self, at: RunContext<'_>, state: &State, hearing: Hearing) -> Result<(), CommitError> {
        let write = || {
            Some(InvocationWrite::Complete {
                paused: Box::new(self.paused.clone()),
                owner: self.claim.owner.clone(),
                state: state.to_map(),
            })
        };
        write_at_end(at, state, hearing, write).await
    }

    /// Ends the claim after an error: the invocation stays suspended, or is over. When even that cannot be written, the
    /// claim ends by itself and the payload that it holds is delivered again: an end that is not recorded is none, so
    /// that the error counts as transient then.
    async fn fail(&self, at: RunContext<'_>, error: EngineError) -> EngineError {
        let RunContext { engine, graph, run } = at;
        // A later try would go on from the same version of the session, and could not be saved either.
        let effect = match graph.is_overtaken(error.derived_category()) {
            true => AfterError::End,
            false => (self.after_error)(&error),
        };
        // Others were faster, and nothing was written: the next try has not to wait until the claim ends by itself. What a
        // node raised may be so each time.
        let at_once = *error.category() == Category::SessionWriteConflict;
        let (commit, lasting) = match effect {
            AfterError::KeepClaim => (alone(engine, self.keep(at_once)), false),
            // What woke it was used up by a durable step.
            AfterError::GiveBack if self.paused.under_way => (alone(engine, self.keep(at_once)), false),
            AfterError::GiveBack => (alone(engine, self.release()), false),
            AfterError::End => {
                let category = error.derived_category().clone();
                let message = error.message().to_owned();
                let failure = FailureRecord { category, message };
                let paused = Box::new(self.paused.clone());
                let owner = Some(self.claim.owner.clone());
                let fail = alone(engine, InvocationWrite::Fail { paused, owner, failure });
                // The effects of nodes that completed before the one that failed have happened.
                (Commit { journal: run.journal.at_end(), ..fail }, true)
            }
        };
        match self.end(engine, commit).await {
            Ok(()) => error,
            Err(refused) => {
                run.watch.explain(refused, |_| if lasting { error.transient_if(true) } else { error }).await
            }
        }
    }

    /// The claim stays for the worker that takes it over, `at_once` or once it ends; that its worker lives is written down.
    fn keep(&self, at_once: bool) -> InvocationWrite {
        let HeldClaim { generation, owner } = self.held();
        InvocationWrite::Keep { invocation_id: self.paused.invocation_id.clone(), generation, owner, at_once }
    }

    fn release(&self) -> InvocationWrite {
        let HeldClaim { generation, owner } = self.held();
        InvocationWrite::Release { invocation_id: self.paused.invocation_id.clone(), generation, owner, again_at: None }
    }

    async fn end(&self, engine: &Engine, commit: Commit) -> Result<(), CommitError> {
        let written = engine.write(&commit).await;
        if let Err(error) = &written {
            let invocation_id = &self.paused.invocation_id;
            tracing::warn!(
                %error, %invocation_id, until = %self.claim.until,
                "the worker could not give its claim back; the invocation counts as under way until that expires, and the \
                 sweep takes it over"
            );
        }
        written
    }
}

/// A commit of `write` and nothing else.
fn alone(engine: &Engine, write: InvocationWrite) -> Commit {
    Commit { invocation: Some(write), ..engine.blank_commit() }
}

fn not_finished(run: &Run, error: CommitError) -> EngineError {
    match run.session {
        Some(_) => save_failed(error),
        None => uncommitted(error, Category::SuspensionPersistenceFailed),
    }
}

/// `error`, without its doubt where the lease was given back behind it: what was to be written gives it back too, so
/// that it has not been written, and cannot be any more.
fn settled(error: EngineError, released: bool) -> EngineError {
    if *error.category() == Category::OutcomeUnknown && released {
        Sending::resolve_doubt();
        return EngineError::new(Category::SessionSaveFailed, "the store did not answer; nothing was written")
            .transient_if(true);
    }
    error
}

/// Saves the session at END (sessions §6.1); without auto-save only the lease is given back. Where others know the id
/// of the invocation, what it ended as is kept together with that, on the condition that it was not canceled and has
/// not ended before.
async fn save_at_end(at: RunContext<'_>, own: &Own, state: &State) -> Result<(), CommitError> {
    let concluded = own.cancelable.then(|| own.concluded(at));
    let conclude = || {
        let paused = Box::new(concluded.clone()?);
        Some(InvocationWrite::Conclude { paused, state: state.to_map() })
    };
    write_at_end(at, state, Hearing::default(), conclude).await
}

/// Writes the end of the run at `state` together with the `write` of its invocation: with the session where that is saved
/// or its lease is held, else alone; nothing where there is nothing to write.
async fn write_at_end(
    at: RunContext<'_>,
    state: &State,
    hearing: Hearing,
    write: impl Fn() -> Option<InvocationWrite> + Send + Sync,
) -> Result<(), CommitError> {
    let RunContext { engine, run, .. } = at;
    let journal = Journal { hearing, ..run.journal.at_end() };
    match &run.session {
        Some(session) if session.auto_saves() || session.holds_lease() => {
            let saved = session.auto_saves().then_some(state);
            let save = PendingSave { state: saved, release: true, journal: &journal };
            session.commit(save, |_| write()).await.map(|_| ())
        }
        Some(_) | None => {
            let invocation = write();
            if invocation.is_none() && journal.is_empty() {
                return Ok(());
            }
            let growing = run.growing();
            engine.write(&Commit { invocation, journal, growing, ..engine.blank_commit() }).await
        }
    }
}

fn completed(run: &Run, state: State, carried: Map, resolution: Option<Resolution>) -> Outcome {
    Outcome::Completed(Completed {
        invocation_id: run.identity.invocation_id.clone(),
        correlation_id: run.identity.correlation_id.clone(),
        state,
        carried,
        resolution,
    })
}
