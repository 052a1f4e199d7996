use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::middleware::jitter_from;
use dormouse_engine::{CompiledGraph, Cut, DrainSummary, Engine, EngineError, LeaseTerms, Outcome, Suspended, cut_off};
use dormouse_ports::{
    Category, Commit, CommitError, EventBus, InvocationId, InvocationWrite, PausedInvocation, SessionId,
    SignalSubscriptions, Subscription, SubscriptionError,
};
use jiff::Timestamp;

use crate::chat::Listeners;
use crate::registry::events_of;
use crate::{
    Admission, AdmissionLimits, Admitted, Bucket, CompletedTurn, DispatchPath, GraphRegistry, HarnessConfig,
    Overloaded, StandingRules, SuspendedTurn, Tally, Transmission, Turn, TurnError, TurnOutcome, Wait, WakeRegistrar,
};

/// How much longer than its time a turn may wait for what has been sent to the store. Less than
/// [`lease_margin`](HarnessConfig::lease_margin).
const GRACE: Duration = Duration::from_secs(2);

/// Serves turns of the registered graphs. Cheap to clone.
#[derive(Clone)]
pub struct Harness(Arc<Parts>);

struct Parts {
    engine: Engine,
    graphs: GraphRegistry,
    bus: Arc<dyn EventBus>,
    config: HarnessConfig,
    listeners: Listeners,
    wakes: WakeRegistrar,
    sessions: Admission<SessionId>,
    /// Fresh turns whose id their callers chose.
    chosen: Admission<InvocationId>,
}

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
        let listeners = Listeners::default();
        let rules = Arc::new(StandingRules::new(engine.ports(), subscriptions.clone(), config.rules));
        let engine = engine.prepared_by(rules.clone());
        let wakes = WakeRegistrar::new(subscriptions, rules);
        let limits = AdmissionLimits {
            running: usize::MAX,
            running_per_key: 1,
            waiting: usize::MAX,
            waiting_per_key: config.session_line,
        };
        let sessions = Admission::new(limits, engine.ports().clock.clone());
        let chosen = Admission::new(limits, engine.ports().clock.clone());
        Self(Arc::new(Parts { engine, graphs, bus, config, listeners, wakes, sessions, chosen }))
    }

    /// The graphs that it can run.
    pub fn graphs(&self) -> &GraphRegistry {
        &self.0.graphs
    }

    /// How it behaves.
    pub fn config(&self) -> &HarnessConfig {
        &self.0.config
    }

    /// The engine it runs on.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// The graph of a pause. A worker that does not know it leaves it to one that does.
    pub(crate) fn graph_of(&self, paused: &PausedInvocation) -> Result<&Arc<CompiledGraph>, TurnError> {
        let known = self.graphs().get(&paused.graph);
        known.map_err(|error| TurnError { bucket: Bucket::RetryableTransient, ..TurnError::from(error) })
    }

    pub(crate) fn listeners(&self) -> &Listeners {
        &self.0.listeners
    }

    /// Registers what wakes pauses.
    pub fn wakes(&self) -> &WakeRegistrar {
        &self.0.wakes
    }

    /// The rules for events that are on the bus.
    pub fn rules(&self) -> &StandingRules {
        self.0.wakes.rules()
    }

    /// Makes sure that the rules stand for the events that `graph` declares, before any node of it runs.
    pub(crate) async fn stand_rules_of(&self, graph: &CompiledGraph) -> Result<(), TurnError> {
        for shape in events_of(graph) {
            self.rules().rely_on(shape).await.map_err(subscription_failed)?;
        }
        Ok(())
    }

    pub(crate) fn bus(&self) -> &dyn EventBus {
        &*self.0.bus
    }

    /// Serves one transmission from its classification to its outcome (harness §3 to §5). It never waits for a
    /// signal.
    pub async fn turn(&self, transmission: Transmission) -> Turn {
        let path = match transmission.classify(self.config().mode) {
            Ok(path) => path,
            Err(error) => return Turn { path: None, outcome: TurnError::from(error).into() },
        };
        let work = async {
            let transmission = transmission.clone();
            match path {
                DispatchPath::SignalResume => self.resume(transmission).await,
                DispatchPath::Stateless if transmission.is_signal() => self.resume(transmission).await,
                DispatchPath::Stateless | DispatchPath::NewSession | DispatchPath::ExistingSession => {
                    self.start(transmission).await
                }
            }
        };
        Turn { path: Some(path), outcome: self.in_span(&transmission, path, Box::pin(work)).await }
    }

    /// Waits until the observers of all graphs have been told everything, at most for `timeout`. A function calls it
    /// before it answers: afterwards its sandbox is frozen.
    pub async fn drain(&self, timeout: Duration) -> DrainSummary {
        let clock = &*self.engine().ports().clock;
        let drains = self.graphs().iter().map(|graph| graph.drain(clock, Some(timeout)));
        let summaries = futures::future::join_all(drains).await;
        summaries.into_iter().fold(DrainSummary::default(), |sum, one| DrainSummary {
            undelivered_count: sum.undelivered_count + one.undelivered_count,
            timeout_reached: sum.timeout_reached || one.timeout_reached,
        })
    }

    /// A stretch of time for one turn.
    pub(crate) fn budget(&self, transmission: &Transmission) -> Budget {
        let budget = self.config().turn_budget;
        let budget = transmission.time_left.map_or(budget, |left| left.min(budget));
        Budget { ends: self.engine().ports().clock.monotonic() + budget }
    }

    pub(crate) fn time_left(&self, budget: Budget) -> Duration {
        budget.ends.saturating_sub(self.engine().ports().clock.monotonic())
    }

    /// Waits before the next look at what another worker is doing, the longer the more `looks` there were: those who
    /// wait for the same thing shall not keep the store from it.
    pub(crate) async fn pause_before_retry(&self, looks: &mut u32) {
        let HarnessConfig { poll_interval, .. } = self.config();
        let longest = poll_interval.saturating_mul(1 << (*looks).min(10)).min(HarnessConfig::POLL_LONGEST);
        *looks += 1;
        let ports = self.engine().ports();
        let jitter = jitter_from(ports.ids.clone())();
        ports.clock.sleep(longest.mul_f64(0.5 + jitter / 2.0)).await;
    }

    /// Waits until the turn of this process that runs in the session is over, and those that came before this one.
    ///
    /// # Errors
    /// `session_busy` when too many wait already, or the wait took too long.
    pub(crate) async fn line_up(
        &self,
        session_id: Option<&SessionId>,
        wait: Wait,
    ) -> Result<Option<Admitted<SessionId>>, TurnError> {
        enter(&self.0.sessions, session_id, wait).await.map_err(|overloaded| {
            let message = "too many turns of this session are waiting; nothing was done, send it again later";
            TurnError::refused(Category::SessionBusy, overloaded, message)
        })
    }

    /// Waits until no other fresh turn of the id `chosen` runs in this process.
    ///
    /// # Errors
    /// `resume_in_progress` when too many wait already, or the wait took too long.
    pub(crate) async fn line_up_for(
        &self,
        chosen: Option<&InvocationId>,
        wait: Wait,
    ) -> Result<Option<Admitted<InvocationId>>, TurnError> {
        enter(&self.0.chosen, chosen, wait).await.map_err(|overloaded| {
            let message = "the turn of this id runs, and it was sent again; send it again later for its outcome";
            TurnError {
                invocation_id: chosen.cloned(),
                ..TurnError::refused(Category::ResumeInProgress, overloaded, message)
            }
        })
    }

    /// Exclusive rights that outlive what is left of the turn.
    pub(crate) fn lease(&self, budget: Budget) -> LeaseTerms {
        let owner = self.engine().ports().ids.fresh().into();
        LeaseTerms { owner, duration: self.time_left(budget) + self.config().lease_margin }
    }

    /// Runs `work` for at most what is left of the turn, and a moment longer where a commit of it is under way. What it
    /// holds ends by itself soon after.
    pub(crate) async fn within<T>(
        &self,
        budget: Budget,
        work: impl Future<Output = Result<T, EngineError>> + Send,
    ) -> Result<T, TurnError> {
        let (clock, left) = (&self.engine().ports().clock, self.time_left(budget));
        match cut_off(Box::pin(work), clock.sleep(left), || clock.sleep(GRACE)).await {
            Ok(result) => result.map_err(TurnError::from),
            Err(cut) => Err(cut_short(cut)),
        }
    }

    /// Answers for an outcome of the engine, arranging the wake-up of a pause.
    pub(crate) async fn settle(&self, graph: &CompiledGraph, outcome: Outcome) -> Result<Settled, TurnError> {
        match outcome {
            Outcome::Completed(done) => Ok(Settled::Done(TurnOutcome::Completed(Box::new(CompletedTurn {
                invocation_id: done.invocation_id,
                session_id: None,
                graph: graph.name().to_owned(),
                state: done.state.to_map(),
                carried: done.carried,
                resolution: done.resolution,
                overruled: None,
                repeated: false,
            })))),
            Outcome::Suspended(mut pause) => match pause.arrived.take() {
                Some(record) => Ok(Settled::GoOn(record)),
                None => self.arrange(suspended_turn(graph, *pause)).await.map(Settled::Done),
            },
        }
    }

    /// Registers the wake-up of a pause. Whatever is refused, the pause stays, and the sweep registers it as soon as it is
    /// taken: what may pass is told as late, what somebody has to repair as an error.
    pub(crate) async fn arrange(&self, turn: SuspendedTurn) -> Result<TurnOutcome, TurnError> {
        let subscription = Subscription {
            invocation_id: turn.invocation_id.clone(),
            generation: turn.generation,
            descriptor: turn.descriptor.clone(),
            wake: turn.wake.clone(),
        };
        let late = match self.wakes().register(&subscription).await {
            Ok(_) => None,
            Err(SubscriptionError::Unavailable(reason)) => {
                tracing::warn!(%reason, invocation_id = %turn.invocation_id, "a wake-up is registered late");
                Some(format!("the wake-up is not registered yet, which a sweep does: {reason}"))
            }
            Err(error @ (SubscriptionError::Denied(_) | SubscriptionError::Rejected(_))) => {
                let error = subscription_failed(error).of(&turn.invocation_id);
                let message =
                    format!("{}; it sleeps, and is registered by a sweep once that is repaired", error.message);
                return Err(TurnError { message, ..error });
            }
        };
        Ok(TurnOutcome::Suspended(Box::new(SuspendedTurn { late, ..turn })))
    }

    /// Ends a pause that nobody has claimed.
    pub(crate) async fn fail_unclaimed(&self, paused: PausedInvocation, error: &TurnError) -> Result<(), String> {
        let failure =
            dormouse_ports::FailureRecord { category: error.category.clone(), message: error.message.clone() };
        let write = InvocationWrite::Fail { paused: Box::new(paused), owner: None, failure };
        self.commit(write).await.map_err(|error| error.to_string())
    }

    /// Commits a change of an invocation that concerns no session.
    pub(crate) async fn commit(&self, write: InvocationWrite) -> Result<(), CommitError> {
        let store = &self.engine().ports().store;
        store.commit(&self.write_of(write)).await
    }

    /// A commit of `write` alone.
    pub(crate) fn write_of(&self, write: InvocationWrite) -> Commit {
        let ports = self.engine().ports();
        Commit { invocation: Some(write), ..Commit::new(ports.ids.fresh(), ports.clock.now()) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.engine().ports().clock.now()
    }
}

/// What is said of a turn that did not end within its time.
fn cut_short(cut: Cut) -> TurnError {
    match cut {
        Cut::Clean => {
            let message = "the turn did not end within its time; what it had claimed is free again soon";
            TurnError::new(Category::TurnDeadlineExceeded, message)
        }
        Cut::InDoubt => {
            let message =
                "the turn did not end within its time, and what it wrote may stand: look before sending it again";
            TurnError::new(Category::OutcomeUnknown, message)
        }
    }
}

/// The end of the time that a turn has, on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    ends: Duration,
}

/// What is left to do after an outcome of the engine.
pub(crate) enum Settled {
    Done(TurnOutcome),
    /// The awaited signal was there already: go on with this claimed record.
    GoOn(Box<dormouse_ports::InvocationRecord>),
}

fn suspended_turn(graph: &CompiledGraph, pause: Suspended) -> SuspendedTurn {
    SuspendedTurn {
        suspending_node: pause.suspending_node().to_owned(),
        invocation_id: pause.invocation_id,
        session_id: pause.session_id,
        graph: graph.name().to_owned(),
        generation: pause.generation,
        descriptor: pause.descriptor,
        wake: pause.wake,
        tally: pause.fan_in.as_ref().map(Tally::from),
        state: pause.state.to_map(),
        carried: pause.carried,
        late: None,
        repeated: false,
    }
}

/// What a turn is told when a wake-up could not be registered.
pub fn subscription_failed(error: SubscriptionError) -> TurnError {
    let bucket = match &error {
        SubscriptionError::Unavailable(_) => Bucket::RetryableTransient,
        SubscriptionError::Denied(_) => Bucket::SessionTerminating,
        SubscriptionError::Rejected(_) => Bucket::UserCorrectable,
    };
    let message = format!("the wake-up could not be registered: {error}");
    TurnError { bucket, ..TurnError::new(Category::HarnessSignalSubscriptionFailed, message) }
}

/// Lines up for `key` in `line`; there is no line where there is no key.
async fn enter<K: Ord + Clone>(
    line: &Admission<K>,
    key: Option<&K>,
    wait: Wait,
) -> Result<Option<Admitted<K>>, Overloaded> {
    match key {
        Some(key) => line.enter(key.clone(), wait).await.map(Some),
        None => Ok(None),
    }
}
