//! Fresh turns: dispatch paths 3.0, 3.1 and 3.2.

use std::sync::Arc;

use dormouse_engine::{Carry, CompiledGraph, Invocation, Sending};
use dormouse_ports::{Category, InvocationId, InvocationStatus, SessionId};

use crate::harness::Budget;
use crate::signal::bounded;
use crate::{Harness, Mode, Transmission, TurnError, TurnOutcome, Wait};

impl Harness {
    pub(crate) async fn start(&self, transmission: Transmission) -> Result<TurnOutcome, TurnError> {
        self.start_carrying(transmission, None).await
    }

    /// A fresh turn that keeps what `carry` makes of its first state.
    pub(crate) async fn start_carrying(
        &self,
        transmission: Transmission,
        carry: Option<Carry>,
    ) -> Result<TurnOutcome, TurnError> {
        let graph = self.graphs().get(&transmission.graph)?.clone();
        graph.check_inputs(&transmission.state)?;
        bounded("the state", &transmission.state)?;
        let given = transmission.invocation_id.clone();
        let sending = Sending::begin();
        let turn = sending.over(self.start_once(graph, transmission, carry)).await;
        turn.map_err(|error| TurnError {
            // Who names the invocation is told what came of it, however often they ask.
            in_doubt: given.is_none() && (error.in_doubt || sending.may_have_written()),
            ..error
        })
    }

    async fn start_once(
        &self,
        graph: Arc<CompiledGraph>,
        transmission: Transmission,
        carry: Option<Carry>,
    ) -> Result<TurnOutcome, TurnError> {
        let given = transmission.invocation_id.clone();
        let budget = self.budget(&transmission);
        // Of those that name the same id one runs its nodes; the others are told what came of it.
        let _only = self.line_up_for(given.as_ref(), self.wait(budget)).await?;
        if let Some(id) = &given
            && let Some(earlier) = self.earlier_answer(id, graph.name(), transmission.request_digest.as_deref()).await?
        {
            return Ok(earlier);
        }
        self.stand_rules_of(&graph).await?;
        let session_id = self.session_of(&transmission);
        let invocation_id = given.clone().unwrap_or_else(|| self.engine().ports().ids.fresh().into());
        let call = Invocation {
            state: transmission.state,
            session_id: session_id.clone(),
            invocation_id: Some(invocation_id.clone()),
            correlation_id: transmission.correlation_id,
            metadata: transmission.metadata,
            carry,
            request_digest: transmission.request_digest.clone(),
            cancelable: given.is_some(),
            ..Invocation::default()
        };
        let outcome = match self.invoke_alone(&graph, call, budget).await {
            Err(error) if may_be_stored(&error, given.is_some()) => {
                let id = &invocation_id;
                return match self.earlier_answer(id, graph.name(), transmission.request_digest.as_deref()).await {
                    Ok(found) => found.ok_or_else(|| error.of(id)),
                    Err(_) if error.category == Category::OutcomeUnknown => Err(error.of(id)),
                    Err(failed) => Err(failed),
                };
            }
            outcome => outcome.map_err(|error| error.of(&invocation_id))?,
        };
        let turn = self.finish(&graph, outcome, budget).await.map_err(|error| error.of(&invocation_id))?;
        Ok(turn.in_session(session_id))
    }

    /// Runs the call alone in its session: while another turn of it runs, this one waits.
    async fn invoke_alone(
        &self,
        graph: &Arc<CompiledGraph>,
        call: Invocation,
        budget: Budget,
    ) -> Result<dormouse_engine::Outcome, TurnError> {
        let _first = self.line_up(call.session_id.as_ref(), self.wait(budget)).await?;
        let mut looks = 0;
        loop {
            let attempt = Invocation { lease: Some(self.lease(budget)), ..call.clone() };
            let result = self.within(budget, self.engine().invoke(graph, attempt)).await;
            match result {
                Err(error) if error.category == Category::SessionLeaseHeld && !self.time_left(budget).is_zero() => {
                    self.pause_before_retry(&mut looks).await;
                }
                result => return result,
            }
        }
    }

    /// How long a fresh turn waits for others of this process.
    fn wait(&self, budget: Budget) -> Wait {
        Wait { longest: self.time_left(budget) / 2, refusable: true }
    }

    pub(crate) fn session_of(&self, transmission: &Transmission) -> Option<SessionId> {
        match self.config().mode {
            Mode::Stateless => None,
            Mode::Sessioned => {
                let fresh = || self.engine().ports().ids.fresh().into();
                Some(transmission.session_id.clone().unwrap_or_else(fresh))
            }
        }
    }

    /// The answer that a turn of this id got before, as far as anything of it was written.
    async fn earlier_answer(
        &self,
        id: &InvocationId,
        graph: &str,
        request_digest: Option<&str>,
    ) -> Result<Option<TurnOutcome>, TurnError> {
        let Some(record) = self.load_invocation(id).await? else { return Ok(None) };
        let forestalled = record.paused.generation == 0 && record.paused.graph.is_empty();
        if request_digest.is_some() && record.paused.request_digest.as_deref() != request_digest && !forestalled {
            let message = "this id belongs to another request; choose another one";
            return Err(TurnError::new(Category::InvocationIdInUse, message));
        }
        if record.paused.graph != graph && !forestalled {
            let message = format!("invocation {id} belongs to another graph; choose another invocation_id");
            return Err(TurnError::new(Category::RequestInvalid, message));
        }
        if record.paused.generation == 0 && matches!(record.status, InvocationStatus::Resuming(_)) {
            let message = format!("invocation {id} was accepted before and has not slept yet; ask for it");
            return Err(TurnError::new(Category::ResumeInProgress, message));
        }
        Ok(Some(self.answer_of(*record)))
    }
}

/// Whether a record may tell what came of a turn that failed: the same request, delivered twice, may have ended or gone to
/// sleep on another worker meanwhile, or this one may have without anybody knowing.
fn may_be_stored(error: &TurnError, given: bool) -> bool {
    let refused = [Category::SuspensionPersistenceFailed, Category::SessionSaveFailed].contains(&error.category);
    error.category == Category::OutcomeUnknown || (given && refused)
}
