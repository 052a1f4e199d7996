//! One case of a fixture, read in full: nothing of it is left for later, so an unknown key fails before anything runs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dormouse_otel::Detached;
use dormouse_ports::{InvocationId, Map, SessionId};
use serde_json::Value;

use crate::Failure;
use crate::chat::{ArrivalSpec, ChatTurnSpec};
use crate::checkpoints::CheckpointSpec;
use crate::directives::Directives;
use crate::evidence::Evidence;
use crate::expect::{self, Expectations};
use crate::graph::GraphSpec;
use crate::models::NodeModelSpec;
use crate::observers::ObserverSpec;
use crate::sessions::SessionSpec;
use crate::turns::{HarnessSpec, TransmissionSpec};
use crate::typed::CollectorSpec;

/// What a case declares.
pub(crate) struct CaseSpec {
    pub(crate) graph: GraphSpec,
    pub(crate) sessions: SessionSpec,
    pub(crate) checkpoints: CheckpointSpec,
    /// By how much the clock goes on whenever it is asked.
    pub(crate) tick: Option<Duration>,
    /// How often the whole case runs, each time from nothing.
    pub(crate) runs: usize,
    /// Whether something is asserted about events although nobody is declared to observe them.
    wants_events: bool,
    /// As `wants_events`, of spans and log records.
    wants_spans: bool,
    observers: Vec<ObserverSpec>,
    pub(crate) collectors: Vec<CollectorSpec>,
    pub(crate) detached: Detached,
    /// Calls of models are measured (observability §11.1).
    pub(crate) measures: bool,
    pub(crate) model: NodeModelSpec,
    pub(crate) plan: Plan,
    /// What is expected of the case as a whole, beside what its invocations expect.
    pub(crate) expectations: Expectations<Evidence>,
    /// Every session that the case names.
    pub(crate) session_ids: Vec<String>,
    pub(crate) names: Arc<Names>,
}

/// What a case names, wherever in it.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Its nodes and branches.
    pub(crate) nodes: HashSet<String>,
    pub(crate) observers: HashSet<String>,
}

/// What a case does.
pub(crate) enum Plan {
    /// Calls of the engine, one after the other.
    Invocations(Vec<Call>),
    /// Transmissions to a harness.
    Transmissions(HarnessSpec, Vec<TransmissionSpec>),
    /// Messages to a chat, then signals.
    Chat(HarnessSpec, Vec<ChatTurnSpec>, Vec<ArrivalSpec>),
}

/// One `invoke()`.
#[derive(Default)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) state: Map,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) invocation_id: Option<InvocationId>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) metadata: Map,
    pub(crate) resume: Option<String>,
    pub(crate) payload: Map,
    /// Whether it goes on from a checkpoint, not from a pause.
    pub(crate) from_checkpoint: bool,
    /// Fields of the saved state that change before it goes on.
    pub(crate) modified: Map,
    /// How long `drain` waits; without end when absent.
    pub(crate) drain_timeout: Option<Duration>,
    pub(crate) expectations: Expectations<Evidence>,
}

impl CaseSpec {
    /// Reads the case `map`, whose file's shared keys are in it already.
    pub(crate) fn read(map: &Map) -> Result<Self, Failure> {
        let mut case = Directives::of("", map);
        for told in ["name", "description"] {
            case.text(told)?;
        }
        check_version(case.text("conformance_version")?)?;
        let graph = match case.nested("graph")? {
            None => GraphSpec::read(&mut case)?,
            Some(mut graph) => {
                let spec = GraphSpec::read(&mut graph)?;
                graph.done()?;
                spec.beside(&mut case)?
            }
        };
        let mut session_ids = Vec::new();
        collect_session_ids(&Value::Object(map.clone()), &mut session_ids);
        let session_id = case.text("session_id")?.map(SessionId::from);
        let default_id = session_id.as_ref().map(SessionId::as_str).or(session_ids.first().map(String::as_str));
        let mut sessions = SessionSpec::read(&mut case, default_id)?;
        let checkpoints = CheckpointSpec::read(&mut case)?;
        sessions.faults = sessions.faults.or(checkpoints.faults.clone());
        let tick = case.nested("clock_stub")?.map(clock_tick).transpose()?;
        let runs = runs(case.integer("run_count")?.unwrap_or(1))?;
        let observers = case.list("observers")?.into_iter();
        let observers = observers.map(|(at, observer)| ObserverSpec::read(Directives::new(at, observer)?));
        let observers = observers.collect::<Result<Vec<_>, _>>()?;
        let collectors = case.list("typed_observers")?.into_iter();
        let collectors = collectors.map(|(at, one)| CollectorSpec::read(Directives::new(at, one)?));
        let collectors = collectors.collect::<Result<Vec<_>, _>>()?;
        let mut names = |key| case.texts(key).map(|names| names.unwrap_or_default().into_iter().collect());
        let detached = Detached { subgraphs: names("detached_subgraphs")?, fan_outs: names("detached_fan_outs")? };
        let measures = case.flag("enable_metrics")?.unwrap_or_default();
        let model = NodeModelSpec::read(&mut case)?;
        let (plan, expectations) = plan(&mut case)?;
        case.done()?;
        let whole = Value::Object(map.clone());
        let wants_events = observers.iter().all(|o| o.span_maker().is_some()) && names_any(&whole, &needs_events);
        let wants_spans =
            observers.iter().all(|o| o.span_maker().is_none()) && names_any(&whole, &|key| SPAN_KEYS.contains(&key));
        let told = observers.iter().map(|observer| observer.name().to_owned());
        let told = told.chain(collectors.iter().map(|collector| collector.name.clone()));
        let names = Arc::new(Names { nodes: nodes_of(&whole), observers: told.collect() });
        Ok(Self {
            graph,
            sessions,
            checkpoints,
            tick,
            runs,
            wants_events,
            wants_spans,
            observers,
            collectors,
            detached,
            measures,
            model,
            plan,
            expectations,
            session_ids,
            names,
        })
    }

    /// The observers to attach: those that the case declares, and the runner's own where they do not see what is
    /// asserted.
    pub(crate) fn observers(&self) -> impl Iterator<Item = ObserverSpec> {
        let own = self.wants_events.then(ObserverSpec::own).into_iter();
        let spans = self.wants_spans.then(ObserverSpec::own_spans);
        own.chain(spans).chain(self.observers.iter().cloned())
    }

    /// The predicates that nobody checks.
    pub(crate) fn unchecked(&self) -> Vec<String> {
        let mut unchecked = self.expectations.unchecked.clone();
        match &self.plan {
            Plan::Invocations(calls) => {
                unchecked.extend(calls.iter().flat_map(|call| call.expectations.unchecked.clone()));
            }
            Plan::Transmissions(_, all) => unchecked.extend(all.iter().flat_map(|t| t.expectations.unchecked.clone())),
            Plan::Chat(_, turns, _) => unchecked.extend(turns.iter().flat_map(|t| t.expectations.unchecked.clone())),
        }
        unchecked
    }
}

/// A case that never ran would do whatever its fixture expects.
fn runs(count: i64) -> Result<usize, Failure> {
    let runs = usize::try_from(count).ok().filter(|runs| *runs > 0);
    runs.ok_or_else(|| Failure::invalid(format!("run_count must be 1 or more, not {count}")))
}

fn clock_tick(mut stub: Directives<'_>) -> Result<Duration, Failure> {
    match stub.required_text("type")? {
        "deterministic_monotonic" => {}
        other => return Err(Failure::missing(format!("clock `{other}`"))),
    }
    let millis = stub.integer("advance_ms_per_call")?.unwrap_or_default();
    stub.done()?;
    Ok(Duration::from_millis(millis.unsigned_abs()))
}

/// Assertions that need an observer.
const EVENT_KEYS: &[&str] = &[
    "observer_events",
    "observer_event_invariants",
    "expected_observer_event",
    "expected_attempt_events",
    "successful_attempt_index_during_resume",
    "expected_failure_isolation_event",
    "no_failure_isolation_event",
];

/// Assertions that need an observer that makes spans.
const SPAN_KEYS: &[&str] = &[
    "otel_spans",
    "span_tree",
    "log_records",
    "no_spans_emitted",
    "traces",
    "parent_trace",
    "no_llm_provider_span",
    "llm_span_attributes",
    "metrics",
];

fn needs_events(key: &str) -> bool {
    EVENT_KEYS.contains(&key) || expect::invariants::is_over_events(key)
}

/// Whether a key that `is_one` stands anywhere in `value`.
fn names_any(value: &Value, is_one: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| is_one(key) || names_any(value, is_one)),
        Value::Array(items) => items.iter().any(|item| names_any(item, is_one)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The names of the nodes and branches that stand anywhere in `value`.
fn nodes_of(value: &Value) -> HashSet<String> {
    let inside = match value {
        Value::Object(map) => map.values().flat_map(nodes_of).collect(),
        Value::Array(items) => items.iter().flat_map(nodes_of).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => HashSet::new(),
    };
    let declared = ["nodes", "branches"].iter().filter_map(|key| value.get(key)?.as_object());
    declared.flat_map(|map| map.keys().cloned()).chain(inside).collect()
}

/// The version of the vocabulary that the runner targets.
const VERSION: [u64; 3] = [0, 115, 0];

fn check_version(wanted: Option<&str>) -> Result<(), Failure> {
    let Some(wanted) = wanted else { return Ok(()) };
    let parts = wanted.trim_start_matches('v').split('.').map(str::parse).collect::<Result<Vec<u64>, _>>();
    match parts {
        Ok(parts) if parts.as_slice() <= VERSION.as_slice() => Ok(()),
        Ok(_) => Err(Failure::VersionUnsupported(format!("{wanted}; the runner targets {VERSION:?}"))),
        Err(_) => Err(Failure::invalid(format!("conformance_version `{wanted}`"))),
    }
}

fn plan(case: &mut Directives<'_>) -> Result<(Plan, Expectations<Evidence>), Failure> {
    if let Some(harness) = case.nested("harness")? {
        let plan = harness_plan(case, HarnessSpec::read(harness)?)?;
        return Ok((plan, Expectations::read(case, expect::invocation)?));
    }
    let listed = case.list("invocations")?;
    if let Some(resume) = case.nested("resume")? {
        let first = Call { name: "first_run".to_owned(), ..Call::read(case)? };
        return Ok((Plan::Invocations(resumed(first, resume)?), Expectations::default()));
    }
    if listed.is_empty() {
        return Ok((Plan::Invocations(vec![Call::read(case)?]), Expectations::default()));
    }
    let mut calls = Vec::new();
    let mut shared = Call::default();
    shared.arguments(case)?;
    for (index, (at, call)) in listed.into_iter().enumerate() {
        let mut given = Directives::new(at, call)?;
        let mut call = Call::read(&mut given)?;
        call.fill_in(&shared);
        if call.name.is_empty() {
            call.name = format!("invocation {}", index + 1);
        }
        given.done()?;
        calls.push(call);
    }
    Ok((Plan::Invocations(calls), Expectations::read(case, expect::invocation)?))
}

/// A first run, unless what it would leave behind is there already, and the run that goes on from it.
fn resumed(first: Call, mut resume: Directives<'_>) -> Result<Vec<Call>, Failure> {
    let is_seeded = resume.flag("from_seeded_record")?.unwrap_or_default();
    if resume.flag("from_first_run")?.is_some_and(|from_first| from_first == is_seeded) {
        return Err(Failure::invalid("a resume is either `from_first_run` or `from_seeded_record`"));
    }
    let mut modified = Map::new();
    for key in ["resume_with_modified_items", "resume_with_modified_state"] {
        modified.extend(resume.mapping(key)?.cloned().unwrap_or_default());
    }
    let mut again = Call::read(&mut resume)?;
    resume.done()?;
    again.name = "resumed_run".to_owned();
    again.resume = Some(if is_seeded { SEEDED_ID } else { "<from first_run outcome>" }.to_owned());
    (again.from_checkpoint, again.modified) = (true, modified);
    // What is said of both runs is checked when both are over.
    let mut first = first;
    again.expectations.take_invariants(&mut first.expectations);
    Ok(if is_seeded { vec![again] } else { vec![first, again] })
}

/// The invocation of a seeded checkpoint.
pub(crate) const SEEDED_ID: &str = "seeded-invocation";

fn harness_plan(case: &mut Directives<'_>, harness: HarnessSpec) -> Result<Plan, Failure> {
    let turns = case.list("chat_turns")?.into_iter();
    let turns: Vec<_> =
        turns.map(|(at, turn)| ChatTurnSpec::read(Directives::new(at, turn)?)).collect::<Result<_, _>>()?;
    let arrivals = case.list("signal_arrivals")?.into_iter();
    let arrivals: Vec<_> =
        arrivals.map(|(at, arrival)| ArrivalSpec::read(Directives::new(at, arrival)?)).collect::<Result<_, _>>()?;
    let transmissions = case.list("transmissions")?.into_iter();
    let transmissions: Vec<_> = transmissions
        .map(|(at, transmission)| TransmissionSpec::read(Directives::new(at, transmission)?))
        .collect::<Result<_, _>>()?;
    match (turns.is_empty(), transmissions.is_empty()) {
        (true, false) if arrivals.is_empty() => Ok(Plan::Transmissions(harness, transmissions)),
        (false, true) => Ok(Plan::Chat(harness, turns, arrivals)),
        _ => Err(Failure::invalid("a harness case needs either `transmissions` or `chat_turns`")),
    }
}

impl Call {
    /// Reads a call out of `given`, which is an entry of `invocations:` or the case itself.
    fn read(given: &mut Directives<'_>) -> Result<Self, Failure> {
        let mut call = Self { name: given.text("name")?.unwrap_or_default().to_owned(), ..Self::default() };
        given.text("description")?;
        call.arguments(given)?;
        for container in ["invoke", "invoke_with"] {
            if let Some(mut arguments) = given.nested(container)? {
                call.arguments(&mut arguments)?;
                arguments.done()?;
            }
        }
        call.expectations = Expectations::read(given, expect::invocation)?;
        Ok(call)
    }

    /// Takes what it does not say itself from what stands beside the list of calls.
    fn fill_in(&mut self, shared: &Self) {
        for (own, shared) in [(&mut self.state, &shared.state), (&mut self.metadata, &shared.metadata)] {
            if own.is_empty() {
                own.clone_from(shared);
            }
        }
        self.session_id = self.session_id.take().or_else(|| shared.session_id.clone());
        self.correlation_id = self.correlation_id.take().or_else(|| shared.correlation_id.clone());
        self.drain_timeout = self.drain_timeout.or(shared.drain_timeout);
    }

    fn arguments(&mut self, given: &mut Directives<'_>) -> Result<(), Failure> {
        let map = |map: Option<&Map>| map.cloned().unwrap_or_default();
        self.state.extend(map(given.mapping("initial_state")?));
        self.metadata.extend(map(given.mapping("caller_metadata")?));
        self.payload.extend(map(given.mapping("signal_payload")?));
        if let Some(session_id) = given.text("session_id")? {
            self.session_id = Some(session_id.into());
        }
        if let Some(id) = given.text("caller_invocation_id")? {
            self.invocation_id = Some(id.into());
        }
        for key in ["correlation_id", "caller_correlation_id"] {
            if let Some(id) = given.text(key)? {
                self.correlation_id = Some(id.to_owned());
            }
        }
        if let Some(id) = given.text("resume_invocation")? {
            self.resume = Some(id.to_owned());
            self.from_checkpoint = true;
        }
        self.from_checkpoint &= given.get("signal_payload").is_none();
        if let Some(mut drain) = given.nested("drain")? {
            self.drain_timeout = drain.seconds("timeout_seconds")?;
            drain.done()?;
        }
        Ok(())
    }
}

fn collect_session_ids(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str() {
                    Some(id) if key.ends_with("session_id") && !found.iter().any(|known| known == id) => {
                        found.push(id.to_owned());
                    }
                    _ => collect_session_ids(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_session_ids(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
