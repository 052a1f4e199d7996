//! Cases that send transmissions to a harness.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_engine::DrainSummary;
use dormouse_harness::{
    Bucket, Declared, DispatchPath, Envelope, GraphRegistry, Harness, HarnessConfig, Intent, Mode, Outbound, Turn,
    TurnError, TurnOutcome, TurnTracer,
};
use dormouse_ports::{Category, ClaimRequest, Map, SignalSubscriptions};
use dormouse_testkit::{MemoryBus, MemorySubscriptions, SubscriptionCall};
use serde_json::Value;

use crate::Failure;
use crate::bench::{Bench, Compiled, Ids, Refusal};
use crate::directives::Directives;
use crate::evidence::{End, Evidence, SeenError, Stage};
use crate::expect::{self, Expectations};
use crate::telemetry::Capture;

/// The name under which a case's graph is registered.
pub(crate) const GRAPH: &str = "outer";

/// A `harness:` block.
#[derive(Clone, Debug)]
pub(crate) struct HarnessSpec {
    mode: Mode,
    keeps_early_signals: bool,
    subscriptions_fail: bool,
}

impl HarnessSpec {
    pub(crate) fn read(mut harness: Directives<'_>) -> Result<Self, Failure> {
        let mode = match harness.text("mode")? {
            None | Some("sessioned") => Mode::Sessioned,
            Some("stateless") => Mode::Stateless,
            Some(other) => return Err(Failure::missing(format!("harness mode `{other}`"))),
        };
        let keeps_early_signals = harness.flag("early_signals")?.unwrap_or_default();
        let subscriptions_fail = coordinator(&mut harness)?;
        harness.done()?;
        Ok(Self { mode, keeps_early_signals, subscriptions_fail })
    }

    /// A harness over the compiled case.
    pub(crate) fn build(&self, compiled: &Compiled, capture: &Capture) -> (Harness, Arc<MemorySubscriptions>) {
        let subscriptions = Arc::new(MemorySubscriptions::default());
        if self.subscriptions_fail {
            // What may pass is left to the sweep, and fails no turn.
            subscriptions.fail_denied("a fault injected by the fixture");
        }
        let defaults = HarnessConfig::new(self.mode);
        let early_signals = defaults.early_signals.filter(|_| self.keeps_early_signals);
        let turn_tracer = capture.first().map(|telemetry| Arc::new(telemetry.turns()) as Arc<dyn TurnTracer>);
        let config = HarnessConfig { early_signals, turn_tracer, ..defaults };
        let registry = GraphRegistry::new([compiled.built.graph.clone()]);
        let coordinator: Arc<dyn SignalSubscriptions> = subscriptions.clone();
        let bus = Arc::new(MemoryBus::default());
        (Harness::new(compiled.engine.clone(), registry, coordinator, bus, config), subscriptions)
    }
}

/// Reads `in_memory`, or a mapping that makes it fail.
fn coordinator(harness: &mut Directives<'_>) -> Result<bool, Failure> {
    let key = "signal_coordinator";
    match harness.given(key) {
        None => Ok(false),
        Some(Value::String(name)) if name == "in_memory" => Ok(false),
        Some(Value::String(name)) => Err(Failure::missing(format!("signal coordinator `{name}`"))),
        Some(_) => {
            let Some(mut given) = harness.nested(key)? else { return Ok(false) };
            given.text("type")?;
            let fails = match given.nested("behavior")? {
                None => false,
                Some(mut behavior) => {
                    let fails = behavior.text("subscribe_raises")?.is_some();
                    behavior.done()?;
                    fails
                }
            };
            given.done()?;
            Ok(fails)
        }
    }
}

/// One inbound transmission.
pub(crate) struct TransmissionSpec {
    name: String,
    declared: Option<Declared>,
    payload: Map,
    signal_payload: Option<Map>,
    state: Map,
    metadata: Map,
    correlation_id: Option<String>,
    pub(crate) expectations: Expectations<TurnEvidence>,
}

/// What one transmission came to.
pub(crate) struct TurnEvidence {
    pub(crate) base: Evidence,
    pub(crate) path: Option<DispatchPath>,
    pub(crate) outbound: Outbound,
    pub(crate) bucket: Option<Bucket>,
    /// Whether a wake-up for the paused invocation was registered during the turn.
    pub(crate) is_subscribed: bool,
    pub(crate) elapsed: Duration,
    /// The session that the payload names.
    pub(crate) given_session: Option<String>,
    /// The session that the engine was called with.
    pub(crate) used_session: Option<String>,
    /// The resume that the engine was called with.
    pub(crate) claim: Option<ClaimRequest>,
    /// The fields that the engine was called with.
    pub(crate) given_state: Map,
}

impl TransmissionSpec {
    pub(crate) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let name = given.text("name")?.unwrap_or("transmission").to_owned();
        given.text("description")?;
        let declared = match given.text("dispatch_intent")? {
            None => None,
            Some("new_session") => Some(Declared::Fresh(Intent::NewSession)),
            Some("existing_session") => Some(Declared::Fresh(Intent::ExistingSession)),
            Some("signal_resume") => Some(Declared::SignalResume),
            // A stateless harness has no sessions to tell apart.
            Some("stateless" | "stateless_invoke") => None,
            Some(other) => return Err(Failure::missing(format!("dispatch intent `{other}`"))),
        };
        let map = |map: Option<&Map>| map.cloned().unwrap_or_default();
        let mut payload = map(given.mapping("payload")?);
        for key in ["session_id", "invocation_id", "signal_id"] {
            payload.extend(given.given(key).map(|id| (key.to_owned(), id.clone())));
        }
        let spec = Self {
            name,
            declared,
            payload,
            signal_payload: given.mapping("signal_payload")?.cloned(),
            state: map(given.mapping("initial_state")?),
            metadata: map(given.mapping("caller_metadata")?),
            correlation_id: given.text("caller_correlation_id")?.map(str::to_owned),
            expectations: Expectations::read(&mut given, expect::turns::find)?,
        };
        given.done()?;
        Ok(spec)
    }

    /// The message as a transport would hand it over. Of the payload's other members those are the graph's that
    /// its state declares. A transport of a stateless harness resolves no session (harness §3.0).
    fn envelope(&self, bench: &Bench<'_>, mode: Mode) -> Result<Envelope, Failure> {
        let payload = bench.past.resolve_map(&self.payload)?;
        let text = |key: &str| payload.get(key).and_then(Value::as_str).map(str::to_owned);
        let inside = |key: &str| payload.get(key).and_then(Value::as_object).cloned();
        let mut state = inside("initial_state").unwrap_or_default();
        let declared = payload.iter().filter(|(key, _)| bench.case.graph.declares(key));
        state.extend(declared.map(|(key, value)| (key.clone(), value.clone())));
        state.extend(bench.past.resolve_map(&self.state)?);
        Ok(Envelope {
            graph: GRAPH.to_owned(),
            declared: self.declared,
            session_id: text("session_id").filter(|_| mode == Mode::Sessioned).map(Into::into),
            state,
            invocation_id: text("invocation_id").map(Into::into),
            signal_id: text("signal_id").map(Into::into),
            signal_payload: self.signal_payload.clone().or_else(|| inside("signal_payload")),
            correlation_id: self.correlation_id.clone(),
            metadata: self.metadata.clone(),
        })
    }
}

pub(crate) async fn run(
    mut bench: Bench<'_>,
    harness: &HarnessSpec,
    transmissions: &[TransmissionSpec],
) -> Result<(), Failure> {
    let compiled = compiled(&bench).await?;
    let (harness, subscriptions) = harness.build(&compiled, &bench.capture);
    let mut failures = Vec::new();
    for transmission in transmissions {
        let seen = send(&mut bench, &compiled, &harness, &subscriptions, transmission).await?;
        let checked = transmission.expectations.check_end(&seen.base.end, &seen);
        failures.extend(checked.map_err(|failure| failure.within(&transmission.name)).err());
        failures.extend(bench.case.expectations.check(&seen.base).err());
    }
    Failure::all(failures)
}

/// Compiles a case that a harness serves, and stores what is there before it begins.
pub(crate) async fn compiled(bench: &Bench<'_>) -> Result<Compiled, Failure> {
    let compiled = bench.compile().map_err(|refusal| match refusal {
        Refusal::Runner(failure) => failure,
        Refusal::Engine(stage, error) => Failure::mismatch(format!("refused at {stage:?}: {}", error.message)),
    })?;
    bench.case.sessions.seed(&bench.store, bench.case.graph.schema_version()).await?;
    Ok(compiled)
}

async fn send(
    bench: &mut Bench<'_>,
    compiled: &Compiled,
    harness: &Harness,
    subscriptions: &MemorySubscriptions,
    spec: &TransmissionSpec,
) -> Result<TurnEvidence, Failure> {
    bench.start_pages();
    let registered_before = subscriptions.calls().len();
    let envelope = spec.envelope(bench, harness.config().mode)?;
    let given_session = envelope.session_id.as_ref().map(ToString::to_string);
    let given_state = envelope.state.clone();
    let began = Instant::now();
    let turn = match envelope.open() {
        Ok(transmission) => bench.capture.around(harness.turn(transmission)).await,
        Err(error) => Turn { path: None, outcome: TurnError::from(error).into() },
    };
    let elapsed = began.elapsed();
    let drain = compiled.built.graph.drain(&*bench.ports.clock, None).await;
    let facts = facts(bench, compiled, turn.outcome.into(), drain, &spec.name).await?;
    let registered = subscriptions.calls().split_off(registered_before);
    let is_subscribed = registered.iter().any(|call| match call {
        SubscriptionCall::Subscribed(subscription) => {
            facts.base.invocation_id.as_deref() == Some(subscription.invocation_id.as_str())
        }
        SubscriptionCall::Cancelled(_) => false,
    });
    Ok(TurnEvidence { path: turn.path, is_subscribed, elapsed, given_session, given_state, ..facts })
}

/// The outcome with what a caller can tell of it.
pub(crate) struct Answer {
    end: End,
    outbound: Outbound,
    bucket: Option<Bucket>,
    invocation_id: Option<String>,
    session_id: Option<String>,
}

impl From<TurnOutcome> for Answer {
    fn from(outcome: TurnOutcome) -> Self {
        let outbound = Outbound::from(&outcome);
        let answer = Self { end: End::Idle("no turn"), outbound, bucket: None, invocation_id: None, session_id: None };
        match outcome {
            TurnOutcome::Completed(turn) => Self {
                invocation_id: Some(turn.invocation_id.to_string()),
                session_id: turn.session_id.map(|id| id.to_string()),
                end: End::Completed { state: turn.state },
                ..answer
            },
            TurnOutcome::Suspended(turn) => Self {
                invocation_id: Some(turn.invocation_id.to_string()),
                session_id: turn.session_id.map(|id| id.to_string()),
                end: End::Suspended { state: turn.state, descriptor: turn.descriptor, node: turn.suspending_node },
                ..answer
            },
            TurnOutcome::Errored(error) => Self {
                invocation_id: error.invocation_id.as_ref().map(ToString::to_string),
                bucket: Some(error.bucket),
                end: End::Errored(SeenError::bare(&error.category, &error.message)),
                ..answer
            },
            TurnOutcome::Buffered { .. } => Self { end: End::Idle("the signal is kept for later"), ..answer },
            TurnOutcome::Stale { .. } => Self { end: End::Idle("the delivery came too late"), ..answer },
        }
    }
}

async fn facts(
    bench: &mut Bench<'_>,
    compiled: &Compiled,
    answer: Answer,
    drain: DrainSummary,
    name: &str,
) -> Result<TurnEvidence, Failure> {
    if let Some(id) = &answer.invocation_id {
        bench.past.remember(name, answer.end.kind(), id);
    }
    let identity = bench.ledger.identity();
    let correlation_id = identity.as_ref().map(|identity| identity.correlation_id.clone());
    let used = identity.and_then(|identity| identity.session_id.clone()).map(|id| id.to_string());
    let ids = Ids { invocation_id: answer.invocation_id, correlation_id, session_id: used.or(answer.session_id) };
    let base = bench.evidence(Stage::Invocation, answer.end, ids, Some(compiled), drain).await?;
    let loaded = base.calls.loaded_id.as_ref().map(ToString::to_string);
    Ok(TurnEvidence {
        path: None,
        outbound: answer.outbound,
        bucket: answer.bucket,
        is_subscribed: false,
        elapsed: Duration::ZERO,
        given_session: None,
        used_session: base.session_id.clone().or(loaded),
        claim: base.calls.claim.clone(),
        given_state: Map::new(),
        base,
    })
}

impl SeenError {
    /// An error of which only the name and the sentence are known.
    pub(crate) fn bare(category: &Category, message: &str) -> Self {
        Self {
            category: category.clone(),
            derived: category.clone(),
            message: message.to_owned(),
            node: None,
            state: None,
            details: Map::new(),
            cause: None,
            causes: Vec::new(),
            transient: false,
        }
    }
}
