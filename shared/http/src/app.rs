use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse_api::{CompiledAgents, Keys, Personas, Receipts, RecordingEngine};
use dormouse_engine::{CompiledGraph, DrainSummary, Engine, Phases};
use dormouse_harness::{GraphRegistry, Harness, HarnessConfig, Mode, RulePolicy, TraceExporter, TurnError};
use dormouse_maintenance::{SweepOrder, SweepScope, SweepSummary, sweep};
use dormouse_ports::{EventBus, MaintenanceStore, SignalSubscriptions, limits};
use futures::TryFutureExt;
use futures::future::{Either, select};
use jiff::Timestamp;
use serde_json::Value;

use crate::deadline::in_time;
use crate::principal::Doorkeeper;
use crate::refusal::RequestRefusal;
use crate::reply::TurnReply;
use crate::routes::PathRoute;
use crate::surface::late;
use crate::{Authorization, BearerKey, CallbackSigner, Request, TriggerError, trigger};

/// Rows that are due at which a sweep looks that comes by schedule. Nothing is due while timers work; where they are lost, as
/// after a table is restored, what is due is caught up with sooner than it comes.
const DUE_ROWS: usize = 5000;

/// Interval at which it is told that spans are lost, while a collector is away.
const LOSS_TOLD_EVERY: Duration = Duration::from_secs(60);

/// Constituents of an [`App`].
#[derive(Clone)]
pub struct Parts {
    /// Runs the graphs, on the ports of this process, and publishes to the clients of tasks.
    pub engine: RecordingEngine,
    /// The agents that it serves.
    pub agents: CompiledAgents,
    /// Store that its sweeps go through: the same one as the engine's.
    pub maintenance: MaintenanceStore,
    /// Registers wake-ups.
    pub subscriptions: Arc<dyn SignalSubscriptions>,
    /// Hears of deadlines that have passed.
    pub bus: Arc<dyn EventBus>,
    /// Signs and checks the tokens in callback addresses.
    pub callbacks: CallbackSigner,
    /// Key that a sender of `POST /signals/{signal_id}` must present.
    pub signal_key: BearerKey,
    /// Proof of identity that callers who begin turns and send messages have to give.
    pub authorization: Authorization,
    /// The API keys, where callers prove their identity by them.
    pub keys: Keys,
    /// Prefix of callback addresses, for example `https://agents.example.com`; without it they begin with `/`.
    pub base_url: Option<String>,
    /// Limits on the input that is accepted.
    pub limits: Limits,
    /// Destination of the spans of turns and invocations; none are exported when absent.
    pub telemetry: Option<Arc<dyn TraceExporter>>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("agents", &self.agents).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Limits on the input of an [`App`], and on the time that it works on it. All limits, also those of other crates, are
/// listed in [`dormouse_ports::limits`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest body of a turn or a message, in bytes.
    pub body: usize,
    /// The largest payload of a signal, in bytes.
    pub signal_payload: usize,
    /// True if keys of tenants may send signals, which each wait of what a tenant began has another item for.
    pub signals_of_tenants: bool,
    /// The longest that one turn may compute.
    pub turn: Duration,
    /// Time for which a signal is kept that no invocation waits for yet; `None` refuses it.
    pub early_signals: Option<Duration>,
    /// Policy by which rules for events are kept.
    pub rules: RulePolicy,
    /// Number of workers that may die of an invocation before it is put aside.
    pub attempts: u32,
    /// Validity of the addresses that answers hold.
    pub address: Duration,
    /// The longest wait after a turn, for observers and for the collector of spans together.
    pub drain: Duration,
}

impl Default for Limits {
    /// Bodies of 1 MiB, payloads of 256 KiB, turns of 25 seconds, early signals for 7 days, observers for 2 seconds.
    fn default() -> Self {
        Self {
            body: limits::BODY,
            signal_payload: limits::SIGNAL_PAYLOAD,
            signals_of_tenants: false,
            turn: Duration::from_secs(25),
            early_signals: Some(limits::EARLY_SIGNALS),
            rules: RulePolicy::default(),
            attempts: limits::ATTEMPTS,
            address: limits::ADDRESS,
            drain: Duration::from_secs(2),
        }
    }
}

/// Everything that the functions share, made once per process. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<AppShared>);

struct AppShared {
    sessioned: Harness,
    stateless: Harness,
    maintenance: MaintenanceStore,
    personas: Personas,
    receipts: Option<Receipts>,
    callbacks: CallbackSigner,
    signal_key: BearerKey,
    doorkeeper: Doorkeeper,
    base_url: String,
    limits: Limits,
    telemetry: Option<Arc<dyn TraceExporter>>,
    /// When it was told last that spans are lost; monotonic.
    loss_told: Mutex<Option<Duration>>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("graphs", self.graphs()).field("base_url", &self.0.base_url).finish_non_exhaustive()
    }
}

impl App {
    /// Serves the graphs of `parts`: those that persist sessions in sessioned mode, the others in stateless mode.
    pub fn new(parts: Parts) -> Self {
        let Parts {
            engine,
            agents,
            maintenance,
            subscriptions,
            bus,
            callbacks,
            signal_key,
            authorization,
            keys,
            base_url,
            limits,
            telemetry,
        } = parts;
        let CompiledAgents { graphs, personas } = agents;
        if let Some(telemetry) = telemetry.clone() {
            let observe = move |graph: &CompiledGraph| {
                graph.attach_observer(telemetry.observer(), Phases::default());
            };
            graphs.iter().for_each(|graph| observe(graph));
            if let Some(source) = personas.source() {
                source.prepare(Box::new(observe.clone()));
            }
            if let Some(own) = personas.own() {
                own.prepare(Box::new(observe));
            }
        }
        let turn_tracer = || telemetry.as_ref().map(|telemetry| telemetry.turn_tracer());
        let harness = |mode| {
            let config = HarnessConfig {
                turn_budget: limits.turn,
                early_signals: limits.early_signals,
                signal_payload: limits.signal_payload,
                signals_of_tenants: limits.signals_of_tenants,
                rules: limits.rules,
                most_attempts: limits.attempts,
                turn_tracer: turn_tracer(),
                ..HarnessConfig::new(mode)
            };
            Harness::new(engine.engine().clone(), graphs.clone(), subscriptions.clone(), bus.clone(), config)
        };
        let base_url = base_url.unwrap_or_default().trim_end_matches('/').to_owned();
        let sessioned = harness(Mode::Sessioned);
        let stateless = harness(Mode::Stateless);
        let doorkeeper = Doorkeeper { authorization, keys };
        Self(Arc::new(AppShared {
            sessioned,
            stateless,
            maintenance,
            personas,
            receipts: engine.receipts().cloned(),
            callbacks,
            signal_key,
            doorkeeper,
            base_url,
            limits,
            telemetry,
            loss_told: Mutex::default(),
        }))
    }

    /// Answers one HTTP request of any route.
    ///
    /// # Errors
    /// Refusal that the caller receives.
    pub(crate) async fn answer(&self, request: &Request) -> Result<TurnReply, RequestRefusal> {
        if request.method == "OPTIONS" {
            let allowed = PathRoute::allowed(&request.path)?;
            return Ok(TurnReply::new(204, Value::Null).header("allow", allowed));
        }
        let route = PathRoute::of(request)?;
        tracing::Span::current().record("route", route.template());
        self.serve(route, request).await
    }

    /// Serves an event that carries a signal: what a rule made of a foreign event, or an event of our own.
    ///
    /// # Errors
    /// [`TriggerError`] when the service shall deliver it again or put it aside.
    pub async fn event(&self, event: Value, time_left: Option<Duration>) -> Result<Value, TriggerError> {
        self.signalled(trigger::signal(event)?, time_left).await
    }

    /// Serves an event of our own that carries a signal, and runs no turn: who waits for it goes on with another worker. For a
    /// process that ends.
    ///
    /// # Errors
    /// [`TriggerError`] where it is not given to anybody.
    pub async fn leave_event(&self, event: Value, time_left: Option<Duration>) -> Result<(), TriggerError> {
        self.leave_signal(trigger::signal(event)?, time_left).await
    }

    /// Serves a wake-up of the scheduler, or its order to sweep.
    ///
    /// # Errors
    /// [`TriggerError`] when the service shall deliver it again or put it aside.
    pub async fn wakeup(&self, event: Value, time_left: Option<Duration>) -> Result<Value, TriggerError> {
        self.woken(trigger::wakeup(event)?, time_left).await
    }

    /// Looks through what sleeps and does what should have happened, for at most `time_left`.
    ///
    /// # Errors
    /// If the index cannot be read, or the time is over: a later sweep goes on.
    pub async fn sweep(&self, scope: SweepScope, time_left: Option<Duration>) -> Result<SweepSummary, TurnError> {
        let order = match time_left {
            Some(_) => SweepOrder { time_left, due_rows: DUE_ROWS, ..scope.into() },
            None => scope.into(),
        };
        self.within(time_left, sweep(self.harness(), &self.0.maintenance, order)).await?
    }

    /// Runs `work` for at most `time_left`, and a moment.
    pub(crate) fn within<'a, T: Send + 'a>(
        &'a self,
        time_left: Option<Duration>,
        work: impl Future<Output = T> + Send + 'a,
    ) -> impl Future<Output = Result<T, TurnError>> + Send + 'a {
        in_time(&self.engine().ports().clock, time_left, work).map_err(late)
    }

    /// Waits until the observers of all turns have been notified of everything and the spans have been exported, within
    /// the limit and `time_left`. An observer that is notified late is cut off: only a process that is frozen between
    /// requests calls it after each of them.
    pub async fn drain(&self, time_left: Option<Duration>) -> DrainSummary {
        let limit = self.0.limits.drain;
        let clock = &self.engine().ports().clock;
        let limit = time_left.map_or(limit, |left| left.min(limit));
        let began = clock.monotonic();
        let summary = self.harness().drain(limit).await;
        self.flush(limit.saturating_sub(clock.monotonic().saturating_sub(began))).await;
        summary
    }

    /// Sends spans and log records that are finished, for at most `time_left`. What does not get through is lost; where there is
    /// no time, nothing is sent, and all of it waits for the next time.
    pub async fn flush(&self, time_left: Duration) {
        let Some(telemetry) = self.0.telemetry.as_ref().filter(|_| !time_left.is_zero()) else { return };
        let expired = self.engine().ports().clock.sleep(time_left);
        let lost = match select(Box::pin(telemetry.flush()), expired).await {
            Either::Left((Ok(()), _)) => return,
            Either::Left((Err(error), _)) => Some(error),
            Either::Right(((), _)) => None,
        };
        // A process that sends every two seconds would tell little else while its collector is away.
        match (self.is_loss_news(), lost) {
            (true, Some(error)) => tracing::warn!(%error, "the exporter lost spans and log records"),
            (true, None) => tracing::warn!("the OpenTelemetry collector did not answer in time"),
            (false, _) => {}
        }
    }

    /// True if it was not told lately that spans are lost: it is told now.
    fn is_loss_news(&self) -> bool {
        let now = self.engine().ports().clock.monotonic();
        let mut told = self.0.loss_told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = told.is_none_or(|at| now.saturating_sub(at) >= LOSS_TOLD_EVERY);
        if is_news {
            *told = Some(now);
        }
        is_news
    }

    /// The graphs that it serves.
    pub fn graphs(&self) -> &GraphRegistry {
        self.0.sessioned.graphs()
    }

    /// Issuer of the receipts of its tasks.
    pub(crate) fn receipts(&self) -> Option<&Receipts> {
        self.0.receipts.as_ref()
    }

    /// Store that its sweeps go through.
    pub(crate) fn maintenance(&self) -> &MaintenanceStore {
        &self.0.maintenance
    }

    /// Descriptions that clients are given of the agents that it serves.
    pub(crate) fn personas(&self) -> &Personas {
        &self.0.personas
    }

    /// The harness for everything that is no fresh turn, and for chats: its listeners hear of resumed turns.
    pub fn harness(&self) -> &Harness {
        &self.0.sessioned
    }

    /// The harness for fresh turns of `graph`.
    pub(crate) fn harness_of(&self, graph: &CompiledGraph) -> &Harness {
        if graph.sessions().is_some() { &self.0.sessioned } else { &self.0.stateless }
    }

    /// The present instant.
    pub(crate) fn now(&self) -> Timestamp {
        self.engine().ports().clock.now()
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.0.sessioned.engine()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn callbacks(&self) -> &CallbackSigner {
        &self.0.callbacks
    }

    pub(crate) fn signal_key(&self) -> &BearerKey {
        &self.0.signal_key
    }

    pub(crate) fn doorkeeper(&self) -> &Doorkeeper {
        &self.0.doorkeeper
    }

    /// Prefix of addresses; empty when it is not known.
    pub(crate) fn base_url(&self) -> &str {
        &self.0.base_url
    }
}
