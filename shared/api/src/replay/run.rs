//! Runs a graph on recorded material.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{
    AfterError, Begin, CompiledGraph, Engine, EngineError, LeaseTerms, Outcome, Ports, Resume, Suspended, Twin,
};
use dormouse_harness::chat::{MESSAGES, converses};
use dormouse_ports::{
    Category, Claim, Clock, EntryKind, FailureRecord, InvocationId, InvocationRecord, InvocationStatus, JournalEntry,
    Map, PastEnd, PausedInvocation, ReplayIds, ReplayMaterial, Unavailable,
};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::resource::Task;
use jiff::Timestamp;
use serde_json::Value;

use super::compare::{Difference, first_difference};
use super::material::Source;
use super::store::{OneRun, RunCommit, ports_of};
use super::{Replays, ends_with_the_record};
use crate::documents::Stored;
use crate::refusal::internal;

/// Field of entries about calls with the id of the call.
const CALL: &str = "tool_call_id";
/// Owner of the claims of a replay.
const OWNER: &str = "replay";
/// Duration of a claim; nothing counts it.
const HELD_FOR: Duration = Duration::from_secs(600);

/// A replay that has run.
pub(super) struct Ran {
    /// The graph.
    pub(super) graph: String,
    /// True if it leads a conversation.
    pub(super) converses: bool,
    /// Number of messages of the conversation when it began.
    pub(super) history: usize,
    pub(super) material: Arc<ReplayMaterial>,
    /// What its commits would have written.
    pub(super) written: Vec<RunCommit>,
    pub(super) end: RanEnd,
    /// The ids of all events of the recorded task.
    pub(super) events: Vec<String>,
    /// The places among them of the messages that it said.
    pub(super) said: Vec<usize>,
}

/// End of a replay.
pub(super) enum RanEnd {
    /// As the run of the graph ended.
    Completed(Map),
    Failed(FailureRecord),
    /// As the recorded run was.
    Canceled,
    /// Something was not recorded.
    Unavailable(Unavailable),
    /// It went another way than the recorded run, on the same material.
    Diverged(Difference),
}

impl Replays {
    /// Runs `task` again on `source`.
    pub(super) async fn run_again(&self, task: &Stored<Task>, mut source: Source) -> Result<Ran, ProtocolError> {
        let of = &task.kept.resource;
        let graph = match &source.record {
            Some(record) => self.harness.graphs().of(&record.paused).await,
            None => self.harness.graphs().current(&task.kept.own.graph).await.map(|found| found.graph),
        };
        let graph = match graph {
            Ok(graph) => graph,
            Err(error) => {
                let missing = format!("the definitions are not here any more: {}", error.message());
                source.material.lack("host_fact", format!("host:graph:{}", task.kept.own.graph), missing);
                return Ok(Ran::without(&task.kept.own.graph, source));
            }
        };
        let first = source.first_state(&graph, task);
        let (events, said) = (std::mem::take(&mut source.events), std::mem::take(&mut source.said));
        let is_stored = source.record.is_some();
        let material = Arc::new(source.material);
        let twin = graph.for_replay(&material).map_err(|error| internal(&error))?;
        let (twin, state) = match (twin, first) {
            _ if !is_stored => {
                let reason = "the store has forgotten the invocation, and its state with it";
                return Ok(Ran::lacking(&graph, material, ("artifact", of.envelope.id.to_string(), reason)));
            }
            (Some(Twin { graph, state: Some(state) }), _) | (Some(Twin { graph, state: None }), Some(state)) => {
                (graph, state)
            }
            (Some(_), None) => {
                let id = format!("session:{}", of.session_id);
                let reason = "the graph began with what it had kept in its session, which is not recorded";
                return Ok(Ran::lacking(&graph, material, ("memory", id, reason)));
            }
            (None, _) => {
                let node = graph.node_names().next().unwrap_or_default().to_owned();
                let reason = "what its nodes do is not recorded, and the graph is not declared to be pure";
                return Ok(Ran::lacking(&graph, material, ("host_fact", format!("host:node:{node}"), reason)));
            }
        };
        let ports = self.harness.engine().ports();
        let run = Arc::new(OneRun::on(material.clone()));
        let engine = Engine::new(Ports {
            store: ports_of(&run),
            clock: Arc::new(StandingClock::at(began(&material))),
            ids: Arc::new(ReplayIds::default()),
            spawner: ports.spawner.clone(),
            planner: ports.planner.clone(),
        });
        let engine = engine.limited(self.harness.engine().limits());
        let history = state.get(MESSAGES).and_then(Value::as_array).map_or(0, Vec::len);
        let stage = Stage { engine, graph: twin, run, material: material.clone() };
        let id = InvocationId::from(of.envelope.id.as_str());
        let end = stage.play(id, state).await;
        let written = without_broken_off(stage.run.written(), &material);
        let converses = converses(&graph);
        let end = judged(&material, &written, end, converses);
        Ok(Ran { graph: graph.name().to_owned(), converses, history, material, written, end, events, said })
    }
}

impl Ran {
    fn without(graph: &str, source: Source) -> Self {
        let Source { material, events, said, .. } = source;
        let material = Arc::new(material);
        let end = judged(&material, &[], Played::Stuck, false);
        Self { graph: graph.to_owned(), converses: false, history: 0, material, written: Vec::new(), end, events, said }
    }

    fn lacking(
        graph: &CompiledGraph,
        material: Arc<ReplayMaterial>,
        (kind, id, reason): (&'static str, String, &str),
    ) -> Self {
        material.lack(kind, id, reason);
        let end = judged(&material, &[], Played::Stuck, false);
        let graph = graph.name().to_owned();
        let (events, said) = (Vec::new(), Vec::new());
        Self { graph, converses: false, history: 0, material, written: Vec::new(), end, events, said }
    }

    /// The number of the recorded event `id`.
    pub(super) fn place(&self, id: &str) -> Option<usize> {
        self.events.iter().position(|event| event == id)
    }

    /// The key of the replacement that `entry` tells of, if it does.
    pub(super) fn override_of(&self, entry: &JournalEntry) -> Option<String> {
        let overrides = &self.material.overrides;
        let text = |name: &str| entry.payload.get(name).and_then(Value::as_str);
        let is_model = text("gen_ai.operation.name") == Some("chat");
        let step = entry.payload.get("step").and_then(Value::as_u64).filter(|_| is_model);
        let keys = [step.map(|step| format!("llm:main:{step}")), text("tool_call_id").map(|id| format!("tool:{id}"))];
        let is_result = is_model || matches!(entry.kind, EntryKind::ToolCompleted | EntryKind::ToolFailed);
        keys.into_iter().flatten().find(|key| is_result && overrides.contains_key(key))
    }
}

/// Point to which a run came.
enum Played {
    Completed(Map),
    Failed(FailureRecord),
    /// It waits for an answer that was not recorded.
    Stuck,
}

/// What a replay `written` has, without what it made of calls in whose midst the recorded run was canceled: each failed, for
/// there is no result to give it. They are of the last step.
fn without_broken_off(mut written: Vec<RunCommit>, material: &ReplayMaterial) -> Vec<RunCommit> {
    let made = material.broken_off.iter().filter(|past| !past.payload.contains_key("made"));
    for past in made {
        let is_it = |entry: &JournalEntry| {
            entry.kind == EntryKind::ToolFailed && entry.payload.get(CALL) == past.payload.get(CALL)
        };
        let last = written.iter_mut().rev().find_map(|commit| {
            let at = commit.entries.iter().rposition(is_it)?;
            Some((commit, at))
        });
        if let Some((commit, at)) = last {
            commit.entries.remove(at);
        }
    }
    written
}

/// What the end of a run means beside what was recorded.
fn judged(material: &ReplayMaterial, written: &[RunCommit], played: Played, converses: bool) -> RanEnd {
    let difference = first_difference(material, written, &played_state(&played), converses);
    let went_all_the_way = difference.as_ref().is_none_or(|difference| difference.is_missing_end);
    if let Some(unavailable) = material.unavailable() {
        return match &material.end {
            PastEnd::Failed(failure) if difference.is_none() => RanEnd::Failed(failure.clone()),
            PastEnd::Canceled if difference.is_none() => RanEnd::Canceled,
            PastEnd::Failed(_) | PastEnd::Canceled | PastEnd::Completed => RanEnd::Unavailable(unavailable),
        };
    }
    if let Some(difference) = difference.filter(|_| material.is_exact()) {
        return RanEnd::Diverged(difference);
    }
    match (played, &material.end) {
        (Played::Completed(state), PastEnd::Completed) => RanEnd::Completed(state),
        (Played::Completed(state), PastEnd::Failed(_) | PastEnd::Canceled) if !material.is_exact() => {
            RanEnd::Completed(state)
        }
        (Played::Failed(failure), PastEnd::Failed(past)) if failure == *past || !material.is_exact() => {
            RanEnd::Failed(failure)
        }
        (Played::Failed(failure), PastEnd::Completed | PastEnd::Canceled) if !material.is_exact() => {
            RanEnd::Failed(failure)
        }
        // It was canceled, or its workers died, when all that it did was done: the host ended it, and no node.
        (_, PastEnd::Canceled) if material.is_exact() => RanEnd::Canceled,
        (Played::Completed(_), PastEnd::Failed(past)) if material.is_exact() && is_of_the_host(past) => {
            RanEnd::Failed(past.clone())
        }
        (Played::Stuck, end) if ends_with_the_record(end) && went_all_the_way => match end {
            PastEnd::Failed(failure) => RanEnd::Failed(failure.clone()),
            PastEnd::Canceled | PastEnd::Completed => RanEnd::Canceled,
        },
        (Played::Completed(_), _) => RanEnd::Diverged(Difference::of_end("the run completed, and had not then")),
        (Played::Failed(failure), _) => {
            RanEnd::Diverged(Difference::of_end(&format!("the run failed now: {}", failure.message)))
        }
        (Played::Stuck, _) => RanEnd::Diverged(Difference::of_end("the run waits for an answer that it did not need")),
    }
}

/// True for a failure that no node of the run had a part in.
fn is_of_the_host(failure: &FailureRecord) -> bool {
    matches!(failure.category, Category::AttemptsExhausted | Category::TurnDeadlineExceeded | Category::OutcomeUnknown)
}

fn played_state(played: &Played) -> Option<Map> {
    match played {
        Played::Completed(state) => Some(state.clone()),
        Played::Failed(_) | Played::Stuck => None,
    }
}

/// Time at which the run began, or is to have begun.
fn began(material: &ReplayMaterial) -> Timestamp {
    let given = material.overrides.get("time:started_at").and_then(Value::as_str);
    given.and_then(|given| given.parse().ok()).unwrap_or(material.began)
}

/// Where a replay runs.
struct Stage {
    engine: Engine,
    graph: Arc<CompiledGraph>,
    run: Arc<OneRun>,
    material: Arc<ReplayMaterial>,
}

impl Stage {
    async fn play(&self, id: InvocationId, state: Map) -> Played {
        let now = self.engine.ports().clock.now();
        let paused = PausedInvocation {
            correlation_id: id.to_string(),
            graph_digest: self.graph.digest().to_owned(),
            state: state.into(),
            schema_version: self.graph.schema().version().to_owned(),
            ..PausedInvocation::before_first_pause(id, self.graph.name(), now)
        };
        let record = self.claimed(paused, Map::new());
        let begin = Begin { carry: None, claim: terms(), observers: Vec::new(), after_error: |_| AfterError::End };
        let mut outcome = self.engine.begin_claimed(&self.graph, record, begin).await;
        let mut answers = self.material.answers.iter();
        loop {
            let suspended = match outcome {
                Ok(Outcome::Completed(completed)) => return Played::Completed(completed.state.to_map()),
                Ok(Outcome::Suspended(suspended)) => suspended,
                Err(error) => return Played::Failed(failure_of(&error)),
            };
            let node = suspended.suspending_node();
            // A rest before another attempt is not repeated, so that its end is passed over.
            let left = answers.len();
            let Some(answer) = answers.by_ref().find(|answer| answer.node == node) else {
                return self.stuck(&suspended);
            };
            self.material.pass(left - answers.len());
            let replaced = self.material.overrides.get(&format!("event:{}", answer.event_id));
            let payload = replaced.and_then(Value::as_object).unwrap_or(&answer.payload).clone();
            let Some(paused) = self.run.paused() else { return self.stuck(&suspended) };
            let record = self.claimed(paused, payload.clone());
            let generation = Some(suspended.generation);
            let resume =
                Resume { payload, generation, claim: terms(), observers: Vec::new(), after_error: |_| AfterError::End };
            outcome = self.engine.resume_claimed(&self.graph, record, resume).await;
        }
    }

    fn stuck(&self, suspended: &Suspended) -> Played {
        if !ends_with_the_record(&self.material.end) {
            let id = format!("event:{}:{}", suspended.suspending_node(), suspended.generation);
            self.material.lack("event_payload", id, "the answer to this pause is not recorded");
        }
        Played::Stuck
    }

    fn claimed(&self, paused: PausedInvocation, payload: Map) -> Box<InvocationRecord> {
        let until = self.engine.ports().clock.now() + HELD_FOR;
        let claim = Claim { owner: OWNER.into(), until, payload, attempts: 1, taken_over: false };
        let status = InvocationStatus::Resuming(claim);
        Box::new(InvocationRecord { status, paused, stored: Vec::new(), saved: None })
    }
}

fn terms() -> LeaseTerms {
    LeaseTerms { owner: OWNER.into(), duration: HELD_FOR, yield_after: None }
}

fn failure_of(error: &EngineError) -> FailureRecord {
    FailureRecord { category: error.derived_category().clone(), message: error.message().to_owned() }
}

/// A clock that goes on only by what is slept.
#[derive(Debug)]
struct StandingClock {
    began: Timestamp,
    slept_ms: AtomicU64,
}

impl StandingClock {
    fn at(began: Timestamp) -> Self {
        Self { began, slept_ms: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        self.began + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.slept_ms.load(Ordering::Relaxed))
    }

    async fn sleep(&self, duration: Duration) {
        let slept = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 1_000_000);
        self.slept_ms.fetch_add(slept, Ordering::Relaxed);
    }
}
