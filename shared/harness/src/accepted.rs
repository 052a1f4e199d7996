//! Work that is accepted now and done later: what is checked before, who is called, and how it is taken up.
//!
//! Whoever accepts something writes it down, by [`InvocationWrite::Accept`] or [`InvocationWrite::Deliver`] in a commit of
//! its own, and [calls](crate::WorkCall) for a worker. The call may be lost: the sweep calls for what nobody has taken up.

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{AfterError, Carry, CompiledGraph, EngineError, Outcome, Resume};
use dormouse_ports::{
    Category, ClaimOutcome, Due, DueAction, FailureRecord, InvocationId, InvocationRecord, InvocationStatus,
    InvocationWrite, Map, PausedInvocation, RESOLUTION, SignalDescriptor, WakePlan,
};

use crate::chat::carry_of;
use crate::harness::Budget;
use crate::signal::{Accepted, store_failed};
use crate::{DispatchPath, Harness, Transmission, Turn, TurnError, TurnOutcome, Wait};

/// What a worker does while another turn of the session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It waits, as a fresh turn does.
    Waits,
    /// It goes on to other work, and comes again.
    ComesAgain,
}

impl Harness {
    /// Checks that the fresh turn of `transmission` could begin, and gives the record of generation 0 with which it is
    /// [accepted](InvocationWrite::Accept): under the ids that it names, or fresh ones. It falls due at once, so that a
    /// sweep that comes by calls for it. It changes nothing.
    ///
    /// # Errors
    /// `graph_unknown`, and what the turn would be refused with before any node runs.
    pub async fn accept(&self, transmission: Transmission) -> Result<PausedInvocation, TurnError> {
        let graph = self.graphs().get(&transmission.graph)?;
        graph.check_inputs(&transmission.state)?;
        let session_id = self.session_of(&transmission);
        let Transmission { state, metadata, invocation_id, correlation_id, request_digest, .. } = transmission;
        self.engine().admit(graph, session_id.as_ref(), &state, &metadata).await?;
        let (ids, now) = (&self.engine().ports().ids, self.now());
        let due = Due::first(now, DueAction::Resume(Map::new()));
        Ok(PausedInvocation {
            correlation_id: correlation_id.unwrap_or_else(|| ids.fresh()),
            session_id,
            graph: graph.name().to_owned(),
            graph_digest: graph.digest().to_owned(),
            descriptor: SignalDescriptor::new(""),
            wake: WakePlan { due: Some(due), ..WakePlan::default() },
            state,
            schema_version: graph.schema().version().to_owned(),
            metadata,
            request_digest,
            ..PausedInvocation::never(invocation_id.unwrap_or_else(|| ids.fresh().into()), now)
        })
    }

    /// Checks that `payload` could resume `paused`, and gives the payload to [deliver](InvocationWrite::Deliver): without
    /// the words that only the harness says. It changes nothing.
    ///
    /// # Errors
    /// `request_invalid` when the pause waits for several signals ([`part_input`](Self::part_input)); `graph_unknown`,
    /// `suspension_resume_payload_invalid`, or whatever else a resume would be refused with.
    pub fn input(&self, paused: &PausedInvocation, mut payload: Map) -> Result<Map, TurnError> {
        payload.shift_remove(RESOLUTION);
        if paused.fan_in.is_some() {
            let message = "it waits for several answers; send each of them to the address of its own part";
            return Err(TurnError::new(Category::RequestInvalid, message).of(&paused.invocation_id));
        }
        let graph = self.graphs().get(&paused.graph)?;
        graph.takes(paused, &payload).map_err(|error| TurnError::from(error).of(&paused.invocation_id))?;
        Ok(payload)
    }

    /// Does what was accepted for the invocation `id` and nobody does yet: begins it, or goes on with its input. Stale
    /// when there is nothing to do, or somebody is at it. While another turn of the session runs it waits, and gives the
    /// work back when its time is over.
    pub async fn take_up(&self, id: &InvocationId, time_left: Option<Duration>) -> Turn {
        let transmission = Transmission { time_left, ..Transmission::callback(id.clone(), None, Map::new()) };
        let budget = self.budget(&transmission);
        let request = self.takeover_of(id, None, budget);
        let record = match self.claim(&request).await {
            Ok(ClaimOutcome::Granted(record)) => record,
            Ok(
                ClaimOutcome::Missing
                | ClaimOutcome::Held { .. }
                | ClaimOutcome::Gathering(_)
                | ClaimOutcome::Settled(_),
            ) => {
                return Turn { path: None, outcome: TurnOutcome::Stale { invocation_id: id.clone() } };
            }
            Err(error) => return Turn { path: None, outcome: store_failed(error).of(id).into() },
        };
        let (begins, sessioned) = (record.paused.generation == 0, record.paused.session_id.is_some());
        let path = match (begins, sessioned) {
            (false, _) => DispatchPath::SignalResume,
            (true, true) => DispatchPath::ExistingSession,
            (true, false) => DispatchPath::Stateless,
        };
        let transmission = Transmission {
            graph: record.paused.graph.clone(),
            session_id: record.paused.session_id.clone(),
            correlation_id: Some(record.paused.correlation_id.clone()),
            ..transmission
        };
        let work = async {
            let turn = match begins {
                true => self.begin(record, budget, Patience::Waits).await,
                false => self.continue_claimed(record, budget, Accepted::Before).await,
            };
            turn.map_err(|error| error.of(id))
        };
        Turn { path: Some(path), outcome: self.in_span(&transmission, path, Box::pin(work)).await }
    }

    /// Begins an accepted invocation whose claim is ours.
    pub(crate) async fn begin(
        &self,
        record: Box<InvocationRecord>,
        budget: Budget,
        patience: Patience,
    ) -> Result<TurnOutcome, TurnError> {
        let graph = match self.graph_of(&record.paused) {
            Ok(graph) => graph.clone(),
            Err(error) => {
                self.give_back(&record).await;
                return Err(error);
            }
        };
        if let Err(error) = self.stand_rules_of(&graph).await {
            self.give_back(&record).await;
            return Err(error);
        }
        let outcome = self.begin_alone(&graph, &record, budget, patience).await?;
        Ok(self.finish(&graph, outcome, budget).await?.in_session(record.paused.session_id))
    }

    /// Runs it alone in its session. A run that takes longer than a turn may is over; one that had to wait for the
    /// session gets another turn.
    async fn begin_alone(
        &self,
        graph: &Arc<CompiledGraph>,
        record: &InvocationRecord,
        budget: Budget,
        patience: Patience,
    ) -> Result<Outcome, TurnError> {
        let carry = carry_of(graph);
        let began = self.time_left(budget);
        let longest = match patience {
            Patience::Waits => began / 2,
            Patience::ComesAgain => Duration::ZERO,
        };
        let wait = Wait { longest, refusable: false };
        let _first = match self.line_up(record.paused.session_id.as_ref(), wait).await {
            Ok(first) => first,
            Err(error) => {
                self.give_back(record).await;
                return Err(error);
            }
        };
        let mut waited = self.time_left(budget) + self.config().poll_interval < began;
        let mut looks = 0;
        loop {
            match self.begin_once(graph, record, budget, carry.clone()).await {
                Err(error) if error.category == Category::SessionLeaseHeld => {
                    if patience == Patience::ComesAgain || self.time_left(budget).is_zero() {
                        self.give_back(record).await;
                        return Err(error);
                    }
                    waited = true;
                    self.pause_before_retry(&mut looks).await;
                }
                Err(error) if error.category == Category::TurnDeadlineExceeded && waited => {
                    self.give_back(record).await;
                    return Err(error);
                }
                Err(error) if error.category == Category::TurnDeadlineExceeded => {
                    return Err(self.fail_claimed(record, error).await);
                }
                outcome => return outcome,
            }
        }
    }

    /// What the invocation ended with is told as such: nothing is left to try again.
    async fn begin_once(
        &self,
        graph: &Arc<CompiledGraph>,
        record: &InvocationRecord,
        budget: Budget,
        carry: Option<Carry>,
    ) -> Result<Outcome, TurnError> {
        let call = Resume {
            payload: Map::new(),
            generation: None,
            claim: self.lease(budget),
            observers: Vec::new(),
            after_error: |error| if is_port_busy(error) { AfterError::KeepClaim } else { AfterError::End },
        };
        let work = self.engine().begin_claimed(graph, Box::new(record.clone()), call, carry);
        let id = &record.paused.invocation_id;
        let outcome = self.within(budget, async {
            match work.await {
                Err(error) if !is_port_busy(&error) => Ok(Err(TurnError::ended(failure_of(&error), id))),
                Err(error) => Err(error),
                Ok(outcome) => Ok(Ok(outcome)),
            }
        });
        outcome.await?
    }

    async fn fail_claimed(&self, record: &InvocationRecord, error: TurnError) -> TurnError {
        let InvocationStatus::Resuming(claim) = &record.status else { return error };
        let failure = FailureRecord { category: error.category.clone(), message: error.message.clone() };
        let (paused, owner) = (Box::new(record.paused.clone()), Some(claim.owner.clone()));
        match self.commit(InvocationWrite::Fail { paused, owner, failure: failure.clone() }).await {
            Ok(()) => TurnError::ended(failure, &record.paused.invocation_id),
            Err(refused) => {
                tracing::warn!(%refused, "an invocation that took too long was not ended; its claim ends by itself");
                error
            }
        }
    }
}

/// Whether the run failed on something around it and not by itself: the next one may get further.
fn is_port_busy(error: &EngineError) -> bool {
    error.is_transient() || *error.category() == Category::SessionLeaseHeld
}

fn failure_of(error: &EngineError) -> FailureRecord {
    FailureRecord { category: error.derived_category().clone(), message: error.message().to_owned() }
}
