//! A worker may die at every await: no model call is repeated once it was recorded, no effect that must not happen twice
//! does, none is lost, and a person is asked where nobody can know.

mod cast;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cast::{Breathing, ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use dormouse_agent::graph;
use dormouse_api::RecordingStore;
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{
    Callback, DescriptorWakes, FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, Turn, TurnOutcome,
};
use dormouse_ports::model::{CompletionRequest, Message};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use dormouse_ports::{Commit, CommitError, InvocationWrite, Map, TurnStore};
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
}

fn assistants(request: &CompletionRequest) -> usize {
    request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count()
}

impl World {
    /// The agent sends two mails, looks something up, and is done. `each` happens at every model call.
    fn new(matter: &str, config: HarnessConfig, each: impl Fn(&ManualClock) + Send + Sync + 'static) -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::default());
        let bus = Arc::new(MemoryBus::default());
        let recorded = Arc::new(AtomicUsize::new(0));
        let commits = Arc::new(AtomicUsize::new(0));
        let known = recorded.clone();
        let time = clock.clone();
        let model = ScriptedModel::new(move |request| {
            let answered = assistants(request);
            assert!(answered >= known.load(Ordering::Relaxed), "model call {answered} was recorded and is repeated");
            each(&time);
            Ok(match results(request).len() {
                0 => calls(&[("a", "send", json!({ "to": "ada" })), ("b", "look", json!({ "to": "x" }))]),
                2 => calls(&[("c", "send", json!({ "to": "grace" })), ("d", "send", json!({ "to": "alan" }))]),
                _ => says("done"),
            })
        });
        let tools = Toolbox::new(vec![tool("send", Effect::Manual), tool("look", Effect::Safe)], |call| {
            Ok(ToolReply::Done(ToolOutput::text(format!("{} to {}", call.name, call.arguments["to"]))))
        });
        let graph = graph::graph(parts(matter, model.clone(), tools.clone(), clock.clone())).expect("a graph");
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
        Self { harness, clock, bus, tools, model, commits }
    }

    /// The next thing that moves the run: its start, an answer, or the work that a dead worker left.
    async fn step(&self) -> Turn {
        match self.harness.look_up(&ID.into()).await {
            Err(_) => {
                let Value::Object(state) = message("go") else { panic!("an object") };
                let turn = FreshTurn { invocation_id: Some(ID.into()), ..FreshTurn::new("helper", state) };
                self.harness.turn(Transmission::from(turn)).await
            }
            Ok(TurnOutcome::Suspended(pause)) => {
                let taken = self.harness.take_up(&ID.into(), None).await;
                match (&taken.outcome, self.answer(&pause.descriptor)) {
                    (TurnOutcome::Stale { .. }, Some(answer)) => {
                        let part = pause.tally.as_ref().and_then(|tally| tally.missing.first().cloned());
                        let answer = Callback::new(ID, Some(pause.generation), answer);
                        self.harness.turn(Transmission::from(Callback { part, ..answer })).await
                    }
                    (_, _) => taken,
                }
            }
            Ok(outcome) => Turn { path: None, outcome },
        }
    }

    /// What a person says who looked.
    fn answer(&self, descriptor: &dormouse_ports::SignalDescriptor) -> Option<Map> {
        let metadata = descriptor.metadata.as_ref()?;
        let decision = match metadata["kind"].as_str()? {
            "approval" => "approve",
            "uncertain_effect" => {
                let call = &metadata["calls"].as_object()?.values().next()?["arguments"];
                let happened = self.tools.made().iter().any(|(name, made)| name == "send" && made == call);
                if happened { "happened" } else { "repeat" }
            }
            _ => return None,
        };
        let Value::Object(answer) = json!({ "decision": decision }) else { return None };
        Some(answer)
    }

    async fn completed(&self) -> Option<Map> {
        match self.harness.look_up(&ID.into()).await {
            Ok(TurnOutcome::Completed(turn)) => Some(turn.state),
            Ok(TurnOutcome::Errored(error)) => panic!("it failed: {error:?}"),
            Ok(_) | Err(_) => None,
        }
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
            if let Some(state) = self.completed().await {
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
async fn a_worker_may_die_at_every_await() {
    for matter in ["description: sends", "policy: {approval: {external: [send]}}"] {
        let mut breaths = 0;
        loop {
            let world = world(matter);
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
    let config = HarnessConfig { turn_budget: Duration::from_secs(25), ..HarnessConfig::new(Mode::Sessioned) };
    let world = World::new("description: sends", config, |clock| clock.advance(Duration::from_secs(14)));
    let mut turns = 0;
    let state = loop {
        turns += 1;
        assert!(turns < 10, "it does not end");
        let turn = world.step().await;
        assert!(!matches!(turn.outcome, TurnOutcome::Errored(_)), "{turn:?}");
        if let Some(state) = world.completed().await {
            break state;
        }
    };
    check(&world, &state, &[]);
    assert_eq!(world.model.calls(), 3, "no step was repeated");
    assert_eq!(turns, 3, "each worker made a step, and none waited for a claim to end");
    assert_eq!(world.bus.events().len(), 2, "each called for the next");
}
