//! The agent on what a run of it recorded: the same graph with a model, tools, hooks and a clock that give what
//! they gave then, and ids that are numbers. Nothing of it reaches anything outside.

mod children;
mod hooks;
mod images;
mod model;
mod past;
mod tools;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{EngineError, Twin};
use dormouse_ports::model::DeltaKind;
use dormouse_ports::{Clock, Images, Map, PARENT, ReplayIds, ReplayMaterial};
use jiff::Timestamp;
use serde_json::json;

use self::hooks::RecordedHook;
use self::images::RecordedImages;
use self::model::RecordedModel;
use self::past::{Past, number};
use self::tools::RecordedTools;
use super::decide::HAPPENED;
use super::environment::EnvironmentPart;
use super::parts::{AgentParts, AnswerUnderWay, DeltaSink, ModelPart, ToolPart};
use super::weight::Measured;
use super::{HookPart, graph};
use crate::memory;
use crate::workspace::AgentMode;

/// Field of a state with what agents are told of the place where they work.
const ENVIRONMENT: &str = "environment";
/// Field of a state with what the user said to the run alone.
const CONFIDED: &str = "confided";
/// Field of a state with the agent that the session had before.
const AGENT_BEFORE: &str = "agent_before";
/// Fields of a state with what is told of the calls of other runs.
const OF_OTHERS: [&str; 2] = ["waiting", "unanswered"];
/// Field of a state that asks for an action, and for nothing else.
const ACTION: &str = "action";
/// Field of a state that asks for a shorter conversation, and for nothing else.
const COMPACT: &str = "compact";
/// Field of a state with what its model counted, which earlier versions did not look at.
const MEASURED: &str = "measured";
/// Field of a state with what the session remembered before.
const REMEMBERED: &str = "remembered";

/// Seconds that a call may take which was recorded.
const AT_ONCE: u64 = 1;
/// Seconds beyond all that was recorded: more than such a call may take, with what a command has to tell.
const SPARE: u64 = 60;

/// Where the clock of a replay stands still, centuries behind all runs: what an application has recorded may say that something
/// took any time, and there have to be instants behind it.
const LATEST: Timestamp = Timestamp::constant(16_725_225_600, 0);
/// Milliseconds of a century, of which more counts for no more.
const LONGEST_MS: u64 = 100 * 365 * 86_400_000;

/// The graph of `parts` on `material`, with the conversation as the run found it.
///
/// # Errors
/// As [`graph`].
pub(super) fn twin(parts: &AgentParts, material: &Arc<ReplayMaterial>) -> Result<Twin, EngineError> {
    let past = Arc::new(Past::of(material.clone()));
    let clock = Arc::new(RecordedClock::of(parts, &past));
    let messages = past.messages_before().to_vec();
    let twin = on_record(parts, &past, &clock);
    let mut state = Map::from_iter([("messages".to_owned(), messages.into())]);
    // Of a run that another one asked for.
    state.extend(material.state.get(PARENT).map(|parent| (PARENT.to_owned(), parent.clone())));
    state.extend(material.state.get(COMPACT).map(|asked| (COMPACT.to_owned(), asked.clone())));
    state.extend(past.action().map(|action| (ACTION.to_owned(), json!(action))));
    state.extend(material.state.get(CONFIDED).map(|confided| (CONFIDED.to_owned(), confided.clone())));
    state.extend(material.state.get(AGENT_BEFORE).map(|agent| (AGENT_BEFORE.to_owned(), agent.clone())));
    state.extend(OF_OTHERS.iter().filter_map(|name| Some(((*name).to_owned(), material.state.get(*name)?.clone()))));
    state.extend(material.state.get(ENVIRONMENT).map(|told| (ENVIRONMENT.to_owned(), told.clone())));
    state.extend(material.state.get(REMEMBERED).map(|noted| ("notes".to_owned(), json!({ memory::SOURCE: noted }))));
    if !material.state.contains_key(MEASURED) {
        state.insert(MEASURED.to_owned(), json!(Measured::NEVER));
    }
    state.extend(past.compaction_before().map(|compaction| ("compaction".to_owned(), compaction.clone())));
    Ok(Twin { graph: Arc::new(graph(twin)?), state: Some(state) })
}

/// The same parts, of which nothing reaches anything outside; also those of the agents to which a run may be handed over.
fn on_record(parts: &AgentParts, past: &Arc<Past>, clock: &Arc<RecordedClock>) -> AgentParts {
    let provider = Arc::new(RecordedModel::new(parts.model.provider.identity(), past.clone(), clock.clone()));
    let tools = parts.tools.iter().map(|part| ToolPart {
        source: Arc::new(RecordedTools {
            name: part.name.clone(),
            source: part.source.clone(),
            past: past.clone(),
            clock: clock.clone(),
        }),
        ..part.clone()
    });
    let hooks = parts.hooks.iter().map(|part| HookPart {
        handler: part.handler.as_ref().map(|_| RecordedHook::handler(&part.definition.name, past)),
        ..part.clone()
    });
    let mut agent = parts.agent.clone();
    // A replay runs by itself, also that of an agent that only others ask.
    agent.mode = AgentMode::All;
    // How long calls took together was not recorded, and did not matter. Where it did, it is over where the record ends.
    let bound = agent.policy.run_timeout_seconds.filter(|_| past.ended_by_time());
    agent.policy.run_timeout_seconds = bound.map(|_| clock.longest.as_secs());
    // What was recorded is there at once, and so it is cut by nothing, also where that is the last of the record.
    agent.policy.tool_timeout_seconds = Some(AT_ONCE);
    let streams = parts.deltas.is_some() && parts.model.background.is_none();
    AgentParts {
        agent,
        // Also what was answered in the background is there at once.
        model: ModelPart { provider, background: None, ..parts.model.clone() },
        tools: tools.collect(),
        hooks: hooks.collect(),
        // The agents that were asked answer as the tool of them did.
        colleagues: children::colleagues(past),
        successors: parts.successors.iter().map(|other| Arc::new(on_record(other, past, clock))).collect(),
        clock: clock.clone(),
        ids: Arc::new(ReplayIds::default()),
        // The request says whether the answer is to be streamed, which none is that comes in the background.
        deltas: streams.then(|| Arc::new(Nobody) as Arc<dyn DeltaSink>),
        // Earlier versions did not wait for what a tool may have told of a call that happened.
        callbacks: parts.callbacks.clone().filter(|_| !past.has_reported(HAPPENED)),
        images: parts.images.as_ref().map(|_| Arc::new(RecordedImages(past.clone())) as Arc<dyn Images>),
        environment: parts.environment.clone().map(|told| EnvironmentPart { place: None, ..told }),
        ..parts.clone()
    }
}

/// A clock that goes on by what calls took and with each pause that ends, and at last by the time that the run had, where it
/// ended since that was over.
#[derive(Debug)]
struct RecordedClock {
    past: Arc<Past>,
    /// Milliseconds in which models worked.
    elapsed_ms: AtomicU64,
    reached: Mutex<Reached>,
    /// More than all of the time that the run had, also where it was handed over, and than all that was recorded takes together.
    longest: Duration,
}

/// How far a replay has come in the time of the run. It is never ahead of that, so that whatever fell due then does now.
#[derive(Clone, Copy, Debug)]
struct Reached {
    /// Instant at which the last pause ended, or a model had answered behind that.
    at: Timestamp,
    /// The longest time that a tool took since: those of a step work side by side.
    tools: Duration,
}

impl Reached {
    fn now(self) -> Timestamp {
        later(self.at, self.tools)
    }
}

/// The instant `by` behind `at`, and no later than [`LATEST`].
fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(at).min(LATEST.max(at))
}

impl RecordedClock {
    fn of(parts: &AgentParts, past: &Arc<Past>) -> Self {
        let all = std::iter::once(parts).chain(parts.successors.iter().map(Arc::as_ref));
        let longest = all.filter_map(|parts| parts.agent.policy.run_timeout_seconds).max();
        let worked = past.material.entries.iter().map(|entry| number(&entry.payload, "duration_ms"));
        let worked = Duration::from_millis(worked.fold(0, u64::saturating_add).min(LONGEST_MS));
        let slept = past.material.answers.last().map(|last| last.at.duration_since(past.material.began));
        let slept = slept.and_then(|slept| Duration::try_from(slept).ok()).unwrap_or_default();
        let longest = Duration::from_secs(longest.unwrap_or_default().saturating_add(SPARE));
        Self::new(past, longest.saturating_add(worked).saturating_add(slept))
    }

    /// The clock of a run of which all time is over with `longest`.
    fn new(past: &Arc<Past>, longest: Duration) -> Self {
        let reached = Mutex::new(Reached { at: past.material.began, tools: Duration::ZERO });
        Self { past: past.clone(), elapsed_ms: AtomicU64::new(0), reached, longest }
    }

    /// Goes on by `millis` in which a model worked.
    fn pass(&self, millis: u64) {
        let mut reached = self.reached();
        let elapsed = self.elapsed_ms.load(Ordering::Relaxed).saturating_add(millis);
        self.elapsed_ms.store(elapsed.min(LONGEST_MS), Ordering::Relaxed);
        let at = later(reached.now(), Duration::from_millis(millis));
        *reached = Reached { at, tools: Duration::ZERO };
    }

    /// Goes on to where a tool has worked for `millis` beside the others of its step. No time of the run is counted by that.
    fn pass_beside(&self, millis: u64) {
        let mut reached = self.reached();
        reached.tools = reached.tools.max(Duration::from_millis(millis));
    }

    /// Where it stands: not before the end of the last pause.
    fn reached(&self) -> MutexGuard<'_, Reached> {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let now = reached.now();
        if let Some(ended) = self.past.material.last_passed().map(|answer| answer.at).filter(|at| *at > now) {
            *reached = Reached { at: ended, tools: Duration::ZERO };
        }
        reached
    }

    /// All of the time that the run had, once that is over.
    fn over(&self) -> Duration {
        if self.past.is_over() { self.longest } else { Duration::ZERO }
    }
}

#[async_trait]
impl Clock for RecordedClock {
    fn now(&self) -> Timestamp {
        later(self.reached().now(), self.over())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms.load(Ordering::Relaxed)).saturating_add(self.over())
    }

    /// Nothing that was recorded takes time; what comes behind it has none.
    async fn sleep(&self, _: Duration) {
        if !self.past.is_over() {
            futures::future::pending::<()>().await;
        }
    }
}

/// An observer for replays, which are not watched.
struct Nobody;

impl DeltaSink for Nobody {
    fn began(&self, _: &AnswerUnderWay) {}

    fn delta(&self, _: &AnswerUnderWay, _: DeltaKind, _: u64, _: &str) {}
}

#[cfg(test)]
mod tests {
    use dormouse_ports::PastEnd;

    use super::*;

    #[test]
    fn a_clock_goes_on_behind_any_time_that_was_recorded() {
        let material = ReplayMaterial::new(Timestamp::UNIX_EPOCH, Map::new(), PastEnd::Completed);
        let clock = RecordedClock::new(&Arc::new(Past::of(Arc::new(material))), Duration::MAX);
        clock.pass(1_500);
        clock.pass_beside(500);
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH + Duration::from_secs(2));
        assert_eq!(clock.monotonic(), Duration::from_millis(1_500));
        for _ in 0..2 {
            clock.pass_beside(u64::MAX);
            assert!(clock.now() + Duration::from_secs(60) > clock.now());
            clock.pass(u64::MAX);
            assert!(clock.now() + Duration::from_secs(60) > clock.now());
            assert!(clock.monotonic() + Duration::from_secs(60) > clock.monotonic());
        }
        assert_eq!(later(clock.now(), Duration::MAX), clock.now(), "it stands still");
    }
}
