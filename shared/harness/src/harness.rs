use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{DrainSummary, Engine};
use dormouse_ports::{
    BusError, Category, EventBus, InvocationId, InvocationWrite, Map, PausedInvocation, SignalId, SignalSubscriptions,
};

use crate::call::{WorkCall, call_for_work, send_signal};
use crate::chat::Listeners;
use crate::children::{EndsTold, WorkerChildren};
use crate::config::HarnessConfig;
use crate::error::TurnError;
use crate::lines::Lines;
use crate::outcome::{Turn, TurnOutcome};
use crate::records::InvocationRecords;
use crate::registry::GraphRegistry;
use crate::standing_rules::StandingRules;
use crate::transmission::{FreshTurn, Transmission};
use crate::turn::cancel::{CanceledTurn, cancel, remains, withdraw};
use crate::turn::dispatch::{dispatch, leave_signal};
use crate::turn::retry::retry;
use crate::turn::takeover::{take_over, take_up};
use crate::turn::{accepted, answers};
use crate::turn_span::in_span;
use crate::wake_registrar::WakeRegistrar;
use crate::worker::Worker;

/// Serves turns of the registered graphs. Cheap to clone.
#[derive(Clone)]
pub struct Harness(Arc<Worker>);

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("graphs", &self.0.graphs).field("config", &self.0.config).finish()
    }
}

impl Harness {
    /// A harness for `graphs` that registers wake-ups with `subscriptions` and announces passed deadlines on `bus`.
    pub fn new(
        engine: Engine,
        graphs: GraphRegistry,
        subscriptions: Arc<dyn SignalSubscriptions>,
        bus: Arc<dyn EventBus>,
        config: HarnessConfig,
    ) -> Self {
        let rules = Arc::new(StandingRules::new(engine.ports(), subscriptions.clone(), config.rules));
        let children = graphs.children().clone();
        let family = EndsTold { children: children.clone(), bus: bus.clone() };
        let engine = engine.prepared_by(rules.clone()).committing_through(|commits| family.over(commits));
        let worker = Arc::new(Worker {
            records: InvocationRecords::new(engine.clone(), config.most_attempts),
            wakes: WakeRegistrar::new(subscriptions, rules, engine.ports().clock.clone()),
            lines: Lines::new(config.session_line, &engine.ports().clock),
            listeners: Listeners::default(),
            engine,
            graphs,
            config,
            bus,
        });
        children.bind(Arc::new(WorkerChildren(Arc::downgrade(&worker))));
        Self(worker)
    }

    /// The graphs that it can run.
    pub fn graphs(&self) -> &GraphRegistry {
        &self.0.graphs
    }

    /// Returns its configuration.
    pub fn config(&self) -> &HarnessConfig {
        &self.0.config
    }

    /// The engine it runs on.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Registers what wakes pauses.
    pub fn wakes(&self) -> &WakeRegistrar {
        &self.0.wakes
    }

    /// The rules for events that are on the bus.
    pub fn rules(&self) -> &StandingRules {
        self.0.wakes.rules()
    }

    /// The worker on which its turns run.
    pub(crate) fn worker(&self) -> &Worker {
        &self.0
    }

    /// Serves one transmission from its classification to its outcome (harness §3 to §5). It never waits for a
    /// signal.
    pub async fn turn(&self, transmission: impl Into<Transmission> + Send) -> Turn {
        let transmission = transmission.into();
        let path = match transmission.classify(self.config().mode) {
            Ok(path) => path,
            Err(error) => return Turn { path: None, outcome: TurnError::from(error).into() },
        };
        let work = Box::pin(dispatch(&self.0, transmission.clone()));
        let tracer = self.config().turn_tracer.as_ref();
        Turn { path: Some(path), outcome: in_span(tracer, &transmission, path, work).await }
    }

    /// Checks that the fresh `turn` could begin, and gives the record of generation 0 with which it is
    /// [accepted](InvocationWrite::Accept): under the ids that it names, or fresh ones. It falls due at once, so that a
    /// sweep that comes by calls for it. It changes nothing.
    ///
    /// # Errors
    /// `graph_unknown`, and what the turn would be refused with before any node runs.
    pub async fn accept(&self, turn: FreshTurn) -> Result<PausedInvocation, TurnError> {
        accepted::accept(&self.0, turn).await
    }

    /// Checks that `payload` could resume `paused`, and returns the payload to [deliver](InvocationWrite::Deliver):
    /// without the fields that only the harness sets. It changes nothing.
    ///
    /// # Errors
    /// `request_invalid` when the pause waits for several signals ([`part_input`](Self::part_input)); `graph_unknown`,
    /// `suspension_resume_payload_invalid`, or any other error with which a resume would be refused.
    pub async fn input(&self, paused: &PausedInvocation, payload: Map) -> Result<Map, TurnError> {
        accepted::input(&self.0, paused, payload).await
    }

    /// The write by which `payload` becomes the answer of `part` to `paused`: it is
    /// [delivered](InvocationWrite::Deliver) together with all others where it decides, else
    /// [noted](InvocationWrite::Answer). It changes nothing.
    ///
    /// # Errors
    /// `request_invalid` when the pause does not expect an answer of `part`, or has one; `graph_unknown`,
    /// `suspension_resume_payload_invalid`, or any other error with which a resume would be refused.
    pub async fn part_input(
        &self,
        paused: &PausedInvocation,
        part: &str,
        payload: Map,
    ) -> Result<InvocationWrite, TurnError> {
        answers::part_input(&self.0, paused, part, payload).await
    }

    /// Does the work that was accepted for the invocation `id` and that no worker does yet: begins it, or goes on with
    /// its input. Stale when there is nothing to do, or another worker is at it. While another turn of the session runs
    /// it waits, and gives the work back when its time is over.
    pub async fn take_up(&self, id: &InvocationId, time_left: Option<Duration>) -> Turn {
        take_up(&self.0, id, time_left).await
    }

    /// Takes over the claim of a worker that died, or that had a wrong clock, in that pause or the current one, with
    /// the payload that it had accepted. `None` when there is no such claim any more, or not yet.
    ///
    /// # Errors
    /// The error with which the turn ends.
    pub async fn take_over(
        &self,
        id: &InvocationId,
        generation: Option<u64>,
    ) -> Result<Option<TurnOutcome>, TurnError> {
        take_over(&self.0, id, generation, self.0.budget(None)).await
    }

    /// Ends the invocation `id` for good. The one commit that cancels it also ends its wait, so that no signal, timer
    /// or sweep moves it any more; what it registered outside is taken back behind it, and finds nothing to do where a
    /// crash loses that.
    ///
    /// An invocation that is being resumed is canceled at once: its worker can write nothing of it any more, and learns
    /// so at its next commit, or before where a node asks ([`dormouse_engine::cancellation`]). The effects of its nodes
    /// outside, sessions that they save themselves among them, are theirs to undo. An invocation that was put aside can
    /// be canceled, too, and is not tried again from then on. Of an invocation of which nothing is stored, because it
    /// was never suspended, the cancellation is kept for as long as other ends: it can neither be suspended nor, when
    /// its id was given by its starter, complete.
    ///
    /// `generation` is the pause that is meant, for callers that may end no other; the current one when absent.
    ///
    /// # Errors
    /// `suspension_record_invalid` when it ended before, or is past the pause that is meant; a retryable
    /// `resume_in_progress` when it changed under every attempt; `request_too_large` for a reason above the limit.
    pub async fn cancel(
        &self,
        id: &InvocationId,
        generation: Option<u64>,
        reason: Option<String>,
    ) -> Result<CanceledTurn, TurnError> {
        cancel(&self.0, id, generation, reason).await
    }

    /// Tells those who work elsewhere for `paused`, which was canceled by another commit than that of [`Self::cancel`],
    /// as its graph [declares](dormouse_engine::GraphBuilder::on_cancel) it. What cannot be told in some seconds is left.
    pub async fn withdraw(&self, paused: &PausedInvocation) {
        withdraw(&self.0, paused).await;
    }

    /// As much of an invocation with an unreadable record as is needed to cancel it; `None` when it has ended.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn remains(&self, id: &InvocationId) -> Result<Option<PausedInvocation>, TurnError> {
        remains(&self.0, id).await
    }

    /// Lets an invocation that was put aside go on with what it was to go on with, and calls for a worker. Attempts are
    /// counted from the beginning.
    ///
    /// # Errors
    /// `not_found`; `suspension_record_invalid` when it is not put aside; `outcome_unknown` when the store did not
    /// report whether it was done.
    pub async fn retry(&self, id: &InvocationId) -> Result<(), TurnError> {
        retry(&self.0, id).await
    }

    /// Status of an invocation, without moving it.
    ///
    /// # Errors
    /// `not_found` when it was never suspended.
    pub async fn look_up(&self, id: &InvocationId) -> Result<TurnOutcome, TurnError> {
        match self.0.records.load(id).await? {
            Some(record) => Ok(TurnOutcome::stored(*record)),
            None => Err(TurnError::new(Category::NotFound, format!("there is no invocation {id}"))),
        }
    }

    /// Calls for a worker that [takes up](Self::take_up) the invocation `id`.
    ///
    /// # Errors
    /// If the bus did not take the call. Accepted work is not lost by that: the sweep calls again.
    pub async fn call_for_work(&self, id: &InvocationId) -> Result<(), BusError> {
        call_for_work(&*self.0.bus, id).await
    }

    /// Sends the signal `id` over the bus, so that a worker wakes the invocation that waits for it; at least once.
    ///
    /// # Errors
    /// If the bus did not take it.
    pub async fn send_signal(&self, id: &SignalId, payload: Map) -> Result<(), BusError> {
        send_signal(&*self.0.bus, id, payload).await
    }

    /// Gives the signal `id` to the invocation that waits for it, and runs no turn: that goes on as soon as a worker takes it
    /// up. For a process that ends. Where nobody waits yet the signal is kept.
    ///
    /// # Errors
    /// `suspension_resume_payload_invalid`, a payload that is too large, a store that does not answer, or a retryable
    /// `resume_in_progress` where another worker had the invocation all the time.
    pub async fn leave_signal(
        &self,
        id: &SignalId,
        payload: Map,
        time_left: Option<Duration>,
    ) -> Result<(), TurnError> {
        leave_signal(&self.0, id, payload, time_left).await
    }

    /// Makes all `calls`, and returns the outcome of each.
    pub async fn call_for_all(&self, calls: &[WorkCall]) -> Vec<Result<(), BusError>> {
        self.0.bus.publish_all(calls.iter().map(WorkCall::event).collect()).await
    }

    /// Does the work that `call` names, unless another worker has it or did it: [takes up](Self::take_up) the
    /// invocation, or handles its pause that fell due.
    pub async fn answer_call(&self, call: &WorkCall, time_left: Option<Duration>) -> Turn {
        match call.generation {
            Some(generation) => {
                let due = Transmission::due(call.invocation_id.clone(), generation, call.due_at);
                self.turn(Transmission { time_left, ..due }).await
            }
            None => self.take_up(&call.invocation_id, time_left).await,
        }
    }

    /// Waits until the observers of all graphs have received everything, at most for `timeout`. A function calls it
    /// before it answers: afterwards its sandbox is frozen.
    pub async fn drain(&self, timeout: Duration) -> DrainSummary {
        let clock = &*self.engine().ports().clock;
        let made = self.graphs().made();
        let drains = made.iter().map(|graph| graph.drain(clock, Some(timeout)));
        let summaries = futures::future::join_all(drains).await;
        summaries.into_iter().fold(DrainSummary::default(), |sum, one| DrainSummary {
            undelivered_count: sum.undelivered_count + one.undelivered_count,
            timeout_reached: sum.timeout_reached || one.timeout_reached,
        })
    }
}
