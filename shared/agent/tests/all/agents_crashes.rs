//! A worker may die at every await while agents ask agents, and signals may get lost: no child begins twice or never,
//! every parent hears of every child once, and nobody works for a run that was canceled.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cast::{Breathing, ScriptedModel, Toolbox, calls, completed, contents, message, parts, results, says, tool};
use dormouse::{Agents, Outside};
use dormouse_agent::graph::{self, AgentParts, Colleague};
use dormouse_agent::workspace::AgentMode;
use dormouse_api::RecordingStore;
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{DescriptorWakes, FreshTurn, Harness, HarnessConfig, Mode, Signal, Transmission, TurnOutcome};
use dormouse_ports::model::{CompletionRequest, Message};
use dormouse_ports::tool::Effect;
use dormouse_ports::{Commit, CommitError, InvocationId, InvocationWrite, Map, Sleepers, TurnStore};
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use futures::FutureExt;
use serde_json::{Value, json};

const ID: &str = "run-1";
/// Longer than any claim, and than the time after which a parent looks.
const LATER: Duration = Duration::from_secs(30 * 60);

/// Which signals arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Post {
    Arrives,
    GetsLost,
}

struct World {
    harness: Harness,
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    bus: Arc<MemoryBus>,
    accepted: Arc<Mutex<Vec<InvocationId>>>,
    scout: Arc<ScriptedModel>,
    post: Post,
    delivered: Mutex<usize>,
}

fn told(request: &CompletionRequest) -> usize {
    let of_user = |message: &&Message| {
        matches!(message, Message::User { .. })
            && serde_json::to_value(message).expect("JSON")["content"]
                .as_str()
                .expect("a text")
                .starts_with("<agent_result")
    };
    request.messages.iter().filter(of_user).count()
}

fn no_tools() -> Arc<Toolbox> {
    Toolbox::new(Vec::new(), |_| panic!("there is no tool"))
}

fn agent(
    name: &str,
    (matter, model, tools): (&str, &Arc<ScriptedModel>, &Arc<Toolbox>),
    outside: &Outside,
) -> AgentParts {
    let mut parts = parts(matter, model.clone(), tools.clone(), outside.clock.clone());
    parts.agent.name = name.to_owned();
    parts.name = name.to_owned();
    parts.colleagues.runs = Some(Arc::new(outside.children.clone()));
    parts
}

impl World {
    /// `lead` asks two scouts and waits for them, or with `background` goes on until nothing else is left to do.
    fn new(background: bool, post: Post) -> Self {
        let scout = ScriptedModel::new(|request| {
            let asked = serde_json::to_value(request.messages.last()).expect("JSON")["content"].clone();
            Ok(says(&format!("seen {}", asked.as_str().expect("a text"))))
        });
        Self::of(background, post, ("description: helps", &scout, &no_tools()))
    }

    /// The same with scouts of that front matter, model and tools.
    fn of(
        background: bool,
        post: Post,
        (matter, scout, tools): (&'static str, &Arc<ScriptedModel>, &Arc<Toolbox>),
    ) -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::default());
        let bus = Arc::new(MemoryBus::default());
        let accepted = Arc::new(Mutex::new(Vec::new()));
        let lead = ScriptedModel::new(move |request| {
            let ask = |prompt: &str| json!({ "prompt": prompt, "run_in_background": background });
            Ok(match results(request).len() {
                0 => calls(&[("a", "SubAgent", ask("north")), ("b", "SubAgent", ask("south"))]),
                _ => says(&format!("heard of {} and {}", results(request).join("|"), told(request))),
            })
        });
        let (models, scout) = ((lead, scout.clone(), tools.clone()), scout.clone());
        let agents = Agents::new()
            .graph(move |outside| {
                let mut parts = agent("lead", ("description: helps", &models.0, &no_tools()), outside);
                parts.colleagues.ask =
                    vec![Colleague { name: "scout".to_owned(), description: String::new(), background: false }];
                graph::graph(parts)
            })
            .graph(move |outside| {
                let mut parts = agent("scout", (matter, &models.1, &models.2), outside);
                parts.agent.mode = AgentMode::Subagent;
                graph::graph(parts)
            });
        let compiled = agents.compile(&Outside::new(bus.clone(), clock.clone())).expect("agents");
        let known = accepted.clone();
        let seen = move |commit: &Commit, outcome: &Result<(), CommitError>| {
            if let (Ok(()), Some(InvocationWrite::Accept { paused, .. })) = (outcome, &commit.invocation) {
                known.lock().expect("not poisoned").push(paused.invocation_id.clone());
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
        let config = HarnessConfig::new(Mode::Sessioned);
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let harness = Harness::new(Engine::new(ports), compiled.graphs, subscriptions, bus.clone(), config);
        Self { harness, store, clock, bus, accepted, scout, post, delivered: Mutex::default() }
    }

    /// What a worker, the bus and the sweep do next.
    async fn step(&self) {
        if self.harness.look_up(&ID.into()).await.is_err() {
            let Value::Object(state) = message("go") else { panic!("an object") };
            let turn = FreshTurn { invocation_id: Some(ID.into()), ..FreshTurn::new("lead", state) };
            self.harness.turn(Transmission::from(turn)).await;
        }
        for id in self.store.dead_claims(self.clock_now()).await.expect("the index") {
            self.harness.take_up(&id, None).await;
        }
        let mut rows = self.store.list_pending(Some(self.clock_now()), None).await.expect("the index").items;
        rows.sort_by(|one, other| one.invocation_id.cmp(&other.invocation_id));
        for row in rows {
            self.harness.turn(Transmission::due(row.invocation_id, row.generation, row.due_at)).await;
        }
        while let Some(event) = self.next_event() {
            if event.detail_type == "Dormouse Signal" && self.post == Post::Arrives {
                let payload = event.detail["payload"].as_object().cloned().expect("an object");
                let id = event.detail["signal_id"].as_str().expect("a text").to_owned();
                self.harness.turn(Transmission::from(Signal::new(id, payload))).await;
            }
        }
    }

    fn next_event(&self) -> Option<dormouse_ports::Event> {
        let mut delivered = self.delivered.lock().expect("not poisoned");
        let event = self.bus.events().get(*delivered).cloned()?;
        *delivered += 1;
        Some(event)
    }

    fn clock_now(&self) -> jiff::Timestamp {
        dormouse_ports::Clock::now(&*self.clock)
    }

    /// Lets workers work until the run has ended. Worker number n dies after `deaths[n]` breaths.
    async fn run(&self, deaths: &[usize]) -> (Map, bool) {
        let mut died = 0;
        for worker in 0..80 {
            let breaths = deaths.get(worker).copied().unwrap_or(usize::MAX);
            let lived = {
                let mut work = pin!(self.step());
                (0..=breaths.min(100_000)).any(|_| (&mut work).now_or_never().is_some())
            };
            died += usize::from(!lived);
            if let Some(state) = completed(&self.harness, ID).await {
                return (state, died >= deaths.len());
            }
            self.clock.advance(LATER);
        }
        panic!("the run does not end, with deaths at {deaths:?}");
    }

    fn check(&self, state: &Map, background: bool, deaths: &[usize]) {
        let mut begun = BTreeMap::new();
        self.accepted.lock().expect("not poisoned").iter().for_each(|id| *begun.entry(id.clone()).or_insert(0) += 1);
        assert_eq!(begun.values().copied().collect::<Vec<_>>(), [1, 1], "with deaths at {deaths:?}");
        let said = contents(state, "assistant").last().cloned().expect("an answer");
        let heard = if background {
            contents(state, "user").into_iter().filter(|text| text.starts_with("<agent_result")).collect()
        } else {
            contents(state, "tool")
        };
        assert_eq!(heard.len(), 2, "with deaths at {deaths:?}: {heard:?}");
        for way in ["seen north", "seen south"] {
            let times = heard.iter().filter(|text| text.contains(way)).count();
            assert_eq!(times, 1, "{way}, with deaths at {deaths:?}: {heard:?}");
        }
        if background {
            assert!(said.ends_with("and 2"), "{said}");
        }
        let children = state["dormouse_children"].as_array().expect("children");
        assert!(children.iter().all(|child| child["ended"] == true), "with deaths at {deaths:?}: {children:?}");
    }
}

#[tokio::test]
async fn a_worker_may_die_at_every_await() {
    for (background, post) in
        [(false, Post::Arrives), (true, Post::Arrives), (false, Post::GetsLost), (true, Post::GetsLost)]
    {
        let mut breaths = 0;
        loop {
            let world = World::new(background, post);
            let (state, all_died) = world.run(&[breaths]).await;
            world.check(&state, background, &[breaths]);
            if !all_died {
                break;
            }
            breaths += 1;
        }
        assert!(breaths > 20, "background {background}, {post:?}: only {breaths} awaits were tried");
    }
}

#[tokio::test]
async fn two_workers_in_a_row_may_die() {
    for first in (0..90).step_by(2) {
        for second in (0..30).step_by(5) {
            for background in [false, true] {
                let world = World::new(background, Post::Arrives);
                let deaths = [first, second];
                let (state, _) = world.run(&deaths).await;
                world.check(&state, background, &deaths);
            }
        }
    }
}

/// However far the canceler comes, in the end no child works any more.
#[tokio::test]
async fn a_cancellation_reaches_the_children() {
    let mut breaths = 0;
    loop {
        let world = World::new(false, Post::Arrives);
        let Value::Object(state) = message("go") else { panic!("an object") };
        let turn = FreshTurn { invocation_id: Some(ID.into()), ..FreshTurn::new("lead", state) };
        world.harness.turn(Transmission::from(turn)).await;
        let children = world.accepted.lock().expect("not poisoned").clone();
        assert_eq!((children.len(), world.scout.calls()), (2, 0));
        let lived = {
            let id = ID.into();
            let mut cancel = pin!(world.harness.cancel(&id, None, None));
            (0..=breaths).any(|_| (&mut cancel).now_or_never().is_some())
        };
        world.harness.cancel(&ID.into(), None, None).await.expect("it is canceled");
        for _ in 0..6 {
            world.clock.advance(LATER);
            world.step().await;
        }
        for child in children {
            let end = world.harness.look_up(&child).await.expect("a child");
            assert!(
                matches!(&end, TurnOutcome::Errored(error) if error.category == dormouse_ports::Category::InvocationCanceled),
                "{end:?}"
            );
        }
        assert_eq!(world.scout.calls(), 0, "no model was asked for a run that is over");
        if lived {
            break;
        }
        breaths += 1;
    }
    assert!(breaths > 3, "only {breaths} awaits were tried");
}

/// However far the canceler comes: a crash may keep the child from being told.
#[tokio::test]
async fn a_call_that_is_approved_after_the_asker_was_canceled_is_not_made() {
    let mut breaths = 0;
    let mut untold = 0;
    loop {
        let scout = ScriptedModel::new(|_| Ok(calls(&[("m", "send", json!({ "to": "ada" }))])));
        let tools = Toolbox::new(vec![tool("send", Effect::Manual)], |_| panic!("nobody wants it any more"));
        let matter = "description: helps\npolicy: {approval: {external: [send]}}";
        let world = World::of(false, Post::Arrives, (matter, &scout, &tools));
        world.step().await;
        let children = world.accepted.lock().expect("not poisoned").clone();
        for child in &children {
            world.harness.take_up(child, None).await;
        }
        let lived = {
            let id = ID.into();
            let mut cancel = pin!(world.harness.cancel(&id, None, None));
            (0..=breaths).any(|_| (&mut cancel).now_or_never().is_some())
        };
        world.harness.cancel(&ID.into(), None, None).await.expect("it is canceled");
        for child in &children {
            let before = world.harness.look_up(child).await.expect("a child");
            untold += usize::from(matches!(before, TurnOutcome::Suspended(_)));
            let approved = Map::from_iter([("decision".to_owned(), json!("approve"))]);
            world.harness.turn(Transmission::callback(child.clone(), None, approved)).await;
            let end = world.harness.look_up(child).await.expect("a child");
            assert!(
                matches!(&end, TurnOutcome::Errored(error) if error.category == dormouse_ports::Category::InvocationCanceled),
                "{end:?}"
            );
        }
        assert_eq!(tools.made(), [], "with a canceler that dies after {breaths} breaths");
        if lived {
            break;
        }
        breaths += 1;
    }
    assert!(untold > 0, "each child was told");
}
