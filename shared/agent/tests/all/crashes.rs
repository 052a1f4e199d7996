//! A worker may die at every await: no model call is repeated once it was recorded, no effect that must not happen twice
//! does, none is lost, and a person is asked where nobody can know.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cast::{
    Breathing, ScriptedModel, Toolbox, breathe, calls, completed, contents, message, parts, results, says, tool,
};
use crate::hooks::hook;
use async_trait::async_trait;
use dormouse_agent::graph::{self, AgentParts};
use dormouse_agent::workspace::{HookEvent, OnHookError, ToolOrigin};
use dormouse_api::RecordingStore;
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{
    Callback, DescriptorWakes, FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, Turn, TurnOutcome,
};
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler};
use dormouse_ports::model::{CompletionRequest, FinishReason, Message, Response};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use dormouse_ports::{Category, Commit, CommitError, InvocationWrite, Map, TurnStore};
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use futures::FutureExt;
use serde_json::{Value, json};

const ID: &str = "run-1";
/// Longer than any claim.
const LATER: Duration = Duration::from_secs(30 * 60);

struct World {
    harness: Harness,
    clock: Arc<ManualClock>,
    bus: Arc<MemoryBus>,
    tools: Arc<Toolbox>,
    model: Arc<ScriptedModel>,
    commits: Arc<AtomicUsize>,
    /// The time of a turn for which a request waits: that begins the run, or brings an answer.
    waits: Option<Duration>,
}

/// Two tools, of which one must not run twice. `each` happens at every call.
fn mailer(each: impl Fn(&str) + Send + Sync + 'static) -> Arc<Toolbox> {
    Toolbox::new(vec![tool("send", Effect::Manual), tool("look", Effect::Safe)], move |call| {
        each(&call.name);
        Ok(ToolReply::Done(ToolOutput::text(format!("{} to {}", call.name, call.arguments["to"]))))
    })
}

/// Turns of 25 seconds.
fn brief() -> HarnessConfig {
    HarnessConfig { turn_budget: Duration::from_secs(25), ..HarnessConfig::new(Mode::Sessioned) }
}

fn assistants(request: &CompletionRequest) -> usize {
    request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count()
}

impl World {
    /// The agent sends two mails, looks something up, and is done. `each` happens at every model call.
    fn new(matter: &str, config: HarnessConfig, each: impl Fn(&ManualClock) + Send + Sync + 'static) -> Self {
        Self::of(matter, config, |time, known| {
            let model = ScriptedModel::new(move |request| {
                let answered = assistants(request);
                let recorded = known.load(Ordering::Relaxed);
                assert!(answered >= recorded, "model call {answered} was recorded and is repeated");
                each(&time);
                Ok(match results(request).len() {
                    0 => calls(&[("a", "send", json!({ "to": "ada" })), ("b", "look", json!({ "to": "x" }))]),
                    2 => calls(&[("c", "send", json!({ "to": "grace" })), ("d", "send", json!({ "to": "alan" }))]),
                    _ => says("done"),
                })
            });
            (model, mailer(|_| {}))
        })
    }

    /// The agent and the tools that `cast` makes of the clock and the number of steps that are recorded.
    fn of(
        matter: &str,
        config: HarnessConfig,
        cast: impl FnOnce(Arc<ManualClock>, Arc<AtomicUsize>) -> (Arc<ScriptedModel>, Arc<Toolbox>),
    ) -> Self {
        Self::changed(matter, config, |_, _| {}, cast)
    }

    /// The same with parts that `change` has changed.
    fn changed(
        matter: &str,
        config: HarnessConfig,
        change: impl FnOnce(&mut AgentParts, &Arc<ManualClock>),
        cast: impl FnOnce(Arc<ManualClock>, Arc<AtomicUsize>) -> (Arc<ScriptedModel>, Arc<Toolbox>),
    ) -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::default());
        let bus = Arc::new(MemoryBus::default());
        let recorded = Arc::new(AtomicUsize::new(0));
        let commits = Arc::new(AtomicUsize::new(0));
        let (model, tools) = cast(clock.clone(), recorded.clone());
        let mut parts = parts(matter, model.clone(), tools.clone(), clock.clone());
        change(&mut parts, &clock);
        let graph = graph::graph(parts).expect("a graph");
        let counted = commits.clone();
        let seen = move |commit: &Commit, outcome: &Result<(), CommitError>| {
            counted.fetch_add(1, Ordering::Relaxed);
            if let (Ok(()), Some(InvocationWrite::Progress { paused, .. } | InvocationWrite::Suspend { paused, .. })) =
                (outcome, &commit.invocation)
            {
                let steps = paused.state.get("steps").and_then(Value::as_u64).unwrap_or_default();
                recorded.fetch_max(usize::try_from(steps).unwrap_or_default(), Ordering::Relaxed);
            }
        };
        let breathing = Breathing { inner: store.clone(), seen };
        let turn_store = TurnStore { commits: Arc::new(breathing), ..TurnStore::from(store.clone()) };
        let ports = Ports {
            store: RecordingStore::new(turn_store, store.clone(), clock.clone()).into(),
            clock: clock.clone(),
            ids: Arc::new(CountingIds::default()),
            spawner: Arc::new(TokioSpawner),
            planner: Arc::new(DescriptorWakes),
        };
        let registry = GraphRegistry::new([Arc::new(graph)]);
        let harness =
            Harness::new(Engine::new(ports), registry, Arc::new(MemorySubscriptions::default()), bus.clone(), config);
        Self { harness, clock, bus, tools, model, commits, waits: None }
    }

    /// The next thing that moves the run: its start, an answer, or the work that a dead worker left.
    async fn step(&self) -> Turn {
        match self.harness.look_up(&ID.into()).await {
            Err(_) => {
                let Value::Object(state) = message("go") else { panic!("an object") };
                let turn = FreshTurn { invocation_id: Some(ID.into()), ..FreshTurn::new("helper", state) };
                self.harness.turn(Transmission { time_left: self.waits, ..turn.into() }).await
            }
            Ok(TurnOutcome::Suspended(pause)) => {
                let taken = self.harness.take_up(&ID.into(), None).await;
                let part = pause.tally.as_ref().and_then(|tally| tally.missing.first().cloned());
                match (&taken.outcome, self.answer(&pause.descriptor, part.as_deref())) {
                    (TurnOutcome::Stale { .. }, Some(answer)) => {
                        let answer = Callback::new(ID, Some(pause.generation), answer);
                        let answer = Transmission::from(Callback { part, ..answer });
                        self.harness.turn(Transmission { time_left: self.waits, ..answer }).await
                    }
                    (TurnOutcome::Stale { .. }, None) => {
                        let due_at = pause.wake.due.as_ref().map(|due| due.at);
                        self.harness.turn(Transmission::due(ID, pause.generation, due_at)).await
                    }
                    (_, _) => taken,
                }
            }
            Ok(outcome) => Turn { path: None, outcome },
        }
    }

    /// What a person says who looked.
    fn answer(&self, descriptor: &dormouse_ports::SignalDescriptor, part: Option<&str>) -> Option<Map> {
        let metadata = descriptor.metadata.as_ref()?;
        let decision = match metadata["kind"].as_str()? {
            "approval" => "approve",
            "uncertain_effect" => {
                let shown = metadata["calls"].as_object()?;
                let call = &part.map_or_else(|| shown.values().next(), |part| shown.get(part))?["arguments"];
                let happened = self.tools.made().iter().any(|(name, made)| name == "send" && made == call);
                if happened { "happened" } else { "repeat" }
            }
            _ => return None,
        };
        let Value::Object(answer) = json!({ "decision": decision }) else { return None };
        Some(answer)
    }

    /// Lets workers work until the run has ended. Worker number n dies after `deaths[n]` breaths. Gives the state, and
    /// whether all of them died.
    async fn run(&self, deaths: &[usize]) -> (Map, bool) {
        let mut died = 0;
        for worker in 0..60 {
            let mut work = pin!(self.step());
            let breaths = deaths.get(worker).copied().unwrap_or(usize::MAX);
            let mut lived = false;
            for _ in 0..=breaths.min(10_000) {
                if (&mut work).now_or_never().is_some() {
                    lived = true;
                    break;
                }
            }
            died += usize::from(!lived);
            if let Some(state) = completed(&self.harness, ID).await {
                return (state, died >= deaths.len());
            }
            self.clock.advance(LATER);
        }
        panic!("the run does not end, with deaths at {deaths:?}");
    }
}

fn world(matter: &str) -> World {
    World::new(matter, HarnessConfig::new(Mode::Sessioned), |_| {})
}

/// How often each mail was sent.
fn check(world: &World, state: &Map, deaths: &[usize]) {
    for to in ["ada", "grace", "alan"] {
        let sent = world.tools.made().iter().filter(|(name, made)| name == "send" && made["to"] == to).count();
        assert_eq!(sent, 1, "the mail to {to}, with deaths at {deaths:?}");
    }
    assert_eq!(contents(state, "tool").len(), 4, "with deaths at {deaths:?}");
    assert_eq!(contents(state, "assistant").last().map(String::as_str), Some("done"));
    assert_eq!(state["reason"], "completed");
}

#[tokio::test]
async fn without_a_death_each_call_is_made_once() {
    let world = world("description: sends");
    let (state, _) = world.run(&[]).await;
    check(&world, &state, &[]);
    assert_eq!(world.model.calls(), 3);
    // The claim, model, tools, model, first mail, second mail; the last answer is in the commit of the end.
    assert_eq!(world.commits.load(Ordering::Relaxed), 7);
}

#[tokio::test]
async fn calls_that_must_not_run_twice_run_side_by_side_where_the_agent_says_so() {
    let world = world("policy: {parallel_tool_calls: true}");
    let (state, _) = world.run(&[]).await;
    check(&world, &state, &[]);
    // The claim, model, tools, model, both mails; the last answer is in the commit of the end.
    assert_eq!(world.commits.load(Ordering::Relaxed), 6);
}

#[tokio::test]
async fn a_worker_that_dies_in_the_midst_of_calls_side_by_side_leaves_each_of_them_in_doubt() {
    let mut asked = 0;
    for breaths in 0..60 {
        let world = world("policy: {parallel_tool_calls: true}");
        {
            let mut work = pin!(world.step());
            for _ in 0..breaths {
                if (&mut work).now_or_never().is_some() {
                    break;
                }
            }
        }
        world.clock.advance(LATER);
        world.harness.take_up(&ID.into(), None).await;
        let Ok(TurnOutcome::Suspended(pause)) = world.harness.look_up(&ID.into()).await else { continue };
        let metadata = pause.descriptor.metadata.expect("what it waits for");
        assert_eq!(metadata["kind"], "uncertain_effect");
        let shown = metadata["calls"].as_object().expect("the calls").len();
        assert_eq!(shown, usize::try_from(pause.state["steps"].as_u64().expect("a number")).expect("few"));
        asked += usize::from(shown == 2);
    }
    assert!(asked > 2, "both mails of the second step were in doubt {asked} times");
}

#[tokio::test]
async fn a_worker_may_die_at_every_await() {
    let matters =
        ["description: sends", "policy: {approval: {external: [send]}}", "policy: {parallel_tool_calls: true}"];
    // Where a request waits for a turn that is short, a worker goes on behind its first step.
    let short = Some(Duration::from_secs(10));
    for (matter, waits) in matters.iter().flat_map(|matter| [(*matter, None), (*matter, short)]) {
        let mut breaths = 0;
        loop {
            let world = World { waits, ..world(matter) };
            let (state, all_died) = world.run(&[breaths]).await;
            check(&world, &state, &[breaths]);
            if !all_died {
                break;
            }
            breaths += 1;
        }
        assert!(breaths > 5, "{matter}: only {breaths} awaits were tried");
    }
}

#[tokio::test]
async fn an_answer_that_is_thrown_away_is_counted_once_wherever_a_worker_dies() {
    let mut breaths = 0;
    loop {
        let world = World::of("description: looks", HarnessConfig::new(Mode::Sessioned), |_, _| {
            let model = ScriptedModel::new(|request| {
                let is_told = json!(request.messages.last()).to_string().contains("could not be read");
                Ok(match (is_told, results(request).is_empty()) {
                    (false, true) => Response { finish_reason: FinishReason::ToolCalls, ..says("") },
                    (true, true) => calls(&[("a", "look", json!({ "to": "x" }))]),
                    (_, false) => says("done"),
                })
            });
            (model, mailer(|_| {}))
        });
        let (state, all_died) = world.run(&[breaths]).await;
        assert_eq!((&state["reason"], &state["steps"]), (&json!("completed"), &json!(2)), "a death at {breaths}");
        assert_eq!(state["usage"]["prompt_tokens"], json!(300), "three answers, with a death at {breaths}");
        if !all_died {
            break;
        }
        breaths += 1;
    }
    assert!(breaths > 5, "only {breaths} awaits were tried");
}

#[tokio::test]
async fn two_workers_in_a_row_may_die() {
    for first in 0..40 {
        for second in (0..24).step_by(3) {
            let world = world("description: sends");
            let deaths = [first, second];
            let (state, _) = world.run(&deaths).await;
            check(&world, &state, &deaths);
        }
    }
}

#[tokio::test]
async fn a_turn_whose_time_is_over_hands_the_rest_to_another_worker() {
    let world = World::new("description: sends", brief(), |clock| clock.advance(Duration::from_secs(14)));
    let mut turns = 0;
    let state = loop {
        turns += 1;
        assert!(turns < 10, "it does not end");
        let turn = world.step().await;
        assert!(!matches!(turn.outcome, TurnOutcome::Errored(_)), "{turn:?}");
        if let Some(state) = completed(&world.harness, ID).await {
            break state;
        }
    };
    check(&world, &state, &[]);
    assert_eq!(world.model.calls(), 3, "no step was repeated");
    assert_eq!(turns, 3, "each worker made a step, and none waited for a claim to end");
    assert_eq!(world.bus.events().len(), 2, "each called for the next");
}

/// Has turns made until the run ends.
async fn ended(world: &World) -> TurnOutcome {
    for _ in 0..30 {
        world.step().await;
        if let Ok(ended @ (TurnOutcome::Completed(_) | TurnOutcome::Errored(_))) =
            world.harness.look_up(&ID.into()).await
        {
            return ended;
        }
        world.clock.advance(LATER);
    }
    panic!("it does not end");
}

#[tokio::test]
async fn a_model_that_takes_longer_than_a_turn_is_paid_at_most_twice_and_the_failure_says_why() {
    // The first step is quick, and the second begins late in the turn or early in it.
    for (times, paid) in [(vec![10_000, 14_500, 24_500], 3), (vec![1000, 23_500], 2)] {
        let world = World::of("description: sends", brief(), |clock, _| {
            let times = Mutex::new(times.into_iter());
            let model = ScriptedModel::new(move |request| {
                let time = times.lock().expect("not poisoned").next().expect("it is asked so often");
                clock.advance(Duration::from_millis(time));
                Ok(if results(request).is_empty() {
                    calls(&[("a", "look", json!({ "to": "x" }))])
                } else {
                    says("done")
                })
            });
            (model, mailer(|_| {}))
        });
        let TurnOutcome::Errored(failure) = ended(&world).await else { panic!("it has no answer") };
        assert_eq!(failure.category, Category::LimitExceeded);
        let said = &failure.message;
        assert!(said.contains("the 25 seconds that a turn has") && said.contains("background: true"), "{said}");
        assert_eq!(world.model.calls(), paid, "of which one was answered");
    }
}

#[tokio::test]
async fn a_tool_that_takes_longer_than_a_turn_is_an_error_for_the_model_and_one_that_must_not_run_twice_is_asked_about()
{
    for (name, told) in [("look", "the tool did not answer within 24 seconds"), ("send", "happened")] {
        let world = World::of("description: sends", brief(), |clock, _| {
            let model = ScriptedModel::new(move |request| {
                Ok(match results(request).last() {
                    None => calls(&[("a", name, json!({ "to": "x" }))]),
                    Some(result) => says(result),
                })
            });
            (model, mailer(move |_| clock.advance(Duration::from_secs(40))))
        });
        let TurnOutcome::Completed(turn) = ended(&world).await else { panic!("it completes") };
        let said = contents(&turn.state, "assistant").pop().expect("an answer");
        assert!(said.contains(told), "{said}");
        assert_eq!(world.tools.made().len(), 1, "it is not begun again by itself");
    }
}

/// A hook that takes its time.
#[derive(Debug)]
struct Slow {
    clock: Arc<ManualClock>,
    takes: Duration,
}

#[async_trait]
impl HookHandler for Slow {
    async fn handle(&self, _: &Value) -> Result<HookAnswer, HookFailure> {
        breathe().await;
        self.clock.advance(self.takes);
        breathe().await;
        Ok(HookAnswer::default())
    }
}

#[tokio::test]
async fn a_hook_that_takes_longer_than_a_turn_has_failed_and_nothing_is_done_again() {
    let withheld =
        "error: the output is withheld: hook `slow` failed: it did not answer within 24 seconds, which was left";
    for (on_error, told) in [(OnHookError::Closed, withheld), (OnHookError::Open, "look to \"x\"")] {
        let hooked = |parts: &mut AgentParts, clock: &Arc<ManualClock>| {
            let slow = Slow { clock: clock.clone(), takes: Duration::from_secs(40) };
            let mut slow = hook("slow", &[HookEvent::AfterToolDispatch], Arc::new(slow));
            slow.definition.timeout_seconds = 60;
            slow.definition.on_error = on_error;
            parts.hooks = vec![slow];
        };
        let world = World::changed("description: looks", brief(), hooked, |_, _| {
            let model = ScriptedModel::new(|request| {
                Ok(match results(request).last() {
                    None => calls(&[("a", "look", json!({ "to": "x" }))]),
                    Some(result) => says(result),
                })
            });
            (model, mailer(|_| {}))
        });
        let TurnOutcome::Completed(turn) = ended(&world).await else { panic!("it completes") };
        let said = contents(&turn.state, "assistant").pop().expect("an answer");
        assert!(said.starts_with(told), "{said}");
        assert_eq!((world.model.calls(), world.tools.made().len()), (2, 1), "{on_error:?}");
    }
}

#[tokio::test]
async fn a_quarter_of_a_turn_is_kept_for_the_hooks_behind_a_model_or_a_tool() {
    for (who, event) in [("model", HookEvent::AfterModelCall), ("tool", HookEvent::AfterToolDispatch)] {
        let hooked = |parts: &mut AgentParts, clock: &Arc<ManualClock>| {
            let takes = Slow { clock: clock.clone(), takes: Duration::from_secs(3) };
            parts.hooks = vec![hook("slow", &[event], Arc::new(takes))];
        };
        let world = World::changed("description: looks", brief(), hooked, |clock, _| {
            let time = clock.clone();
            let model = ScriptedModel::new(move |request| {
                if who == "model" {
                    time.advance(Duration::from_secs(18));
                }
                Ok(match results(request).last() {
                    None => calls(&[("a", "look", json!({ "to": "x" }))]),
                    Some(result) => says(result),
                })
            });
            (model, mailer(move |_| clock.advance(Duration::from_secs(18))))
        });
        let said = match ended(&world).await {
            TurnOutcome::Errored(failure) => failure.message,
            TurnOutcome::Completed(turn) => contents(&turn.state, "assistant").pop().expect("an answer"),
            other @ (TurnOutcome::Suspended(_) | TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. }) => {
                panic!("it ends, and is not {other:?}")
            }
        };
        assert!(said.contains(&format!("the {who} did not answer within 17.8 seconds")), "{said}");
        assert_eq!(world.tools.made().len(), usize::from(who == "tool"));
    }
}

#[tokio::test]
async fn a_call_that_must_not_run_twice_has_more_than_half_of_a_turn() {
    let world = World::of("description: sends", brief(), |clock, _| {
        let time = clock.clone();
        let model = ScriptedModel::new(move |request| {
            time.advance(Duration::from_secs(20));
            Ok(if results(request).is_empty() { calls(&[("a", "send", json!({ "to": "ada" }))]) } else { says("done") })
        });
        (model, mailer(move |_| clock.advance(Duration::from_secs(18))))
    });
    let TurnOutcome::Completed(turn) = ended(&world).await else { panic!("it completes") };
    assert_eq!(contents(&turn.state, "tool"), ["send to \"ada\""], "nobody had to be asked");
    assert_eq!(world.model.calls(), 2);
}

#[tokio::test]
async fn a_command_that_is_ended_because_the_time_of_its_run_is_over_is_the_last_thing_of_the_run() {
    // Of four seconds a command has two, and the rest to tell what came of it.
    for (took, reason, asked) in [(2, "time", 1), (1, "completed", 2)] {
        let as_command = |parts: &mut AgentParts, _: &Arc<ManualClock>| {
            parts.tools[0].origin = ToolOrigin::Native;
            parts.agent.tools.native = vec!["look".to_owned()];
        };
        let world = World::changed("policy: {run_timeout_seconds: 4}", brief(), as_command, |clock, _| {
            let model = ScriptedModel::new(|request| match results(request).len() {
                0 => Ok(calls(&[("a", "look", json!({ "to": "x" }))])),
                _ => Ok(says("done")),
            });
            let tools = Toolbox::new(vec![tool("look", Effect::Safe)], move |_| {
                clock.advance(Duration::from_secs(took));
                Ok(ToolReply::Done(ToolOutput::error("half of it")))
            });
            (model, tools)
        });
        let TurnOutcome::Completed(turn) = ended(&world).await else { panic!("it completes") };
        assert_eq!((turn.state["reason"].as_str(), world.model.calls()), (Some(reason), asked), "{took} s");
        let said = contents(&turn.state, "tool");
        assert!(said[0].starts_with("error: half of it"), "what it wrote is told: {said:?}");
    }
}

#[tokio::test]
async fn the_time_of_a_run_bounds_its_model_and_its_tools() {
    let matter = "policy: {run_timeout_seconds: 4}";
    for (slow, told) in [
        ("model", None),
        (
            "look",
            Some("error: the tool did not answer within 4 seconds, which was left of `policy.run_timeout_seconds`"),
        ),
        ("send", Some("it is not known whether the call happened: the tool did not answer within 4 seconds")),
    ] {
        let world = World::of(matter, brief(), |clock, _| {
            let time = clock.clone();
            let model = ScriptedModel::new(move |request| {
                if slow == "model" {
                    time.advance(Duration::from_secs(5));
                }
                let called = if slow == "model" { "look" } else { slow };
                Ok(match results(request).len() {
                    0 => calls(&[("a", called, json!({ "to": "x" }))]),
                    _ => says("done"),
                })
            });
            (model, mailer(move |_| clock.advance(Duration::from_secs(5))))
        });
        let TurnOutcome::Completed(turn) = ended(&world).await else { panic!("it completes") };
        assert_eq!(turn.state["reason"], "time", "{slow}");
        assert_eq!(world.model.calls(), 1, "{slow}");
        let said = contents(&turn.state, "tool");
        assert_eq!(said.len(), usize::from(told.is_some()), "{said:?}");
        assert!(told.is_none_or(|told| said[0].starts_with(told)), "{said:?}");
    }
}
