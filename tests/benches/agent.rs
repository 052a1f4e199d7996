//! What a step of an agent costs: a call of its model, and the call of a tool that the model asks for.
//!
//! Run with `make bench-agent`. Runs go through the operations of `/v1`, the harness, the engine and the graph of an agent;
//! model and tool answer at once, so that what is left is our own. Requests and units are those of the store on DynamoDB.
//! What begins and ends a run does not count: a run of [`FEW`] steps is taken from one of [`MANY`]. Requests that grow with
//! the conversation are an error, and so are more than [`MOST_REQUESTS`] of a step, whether of a turn or of a task of `/v1`,
//! and more than [`MOST_UNITS`].

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

#[path = "common/api.rs"]
mod api;
#[path = "../../shared/agent/tests/all/cast/mod.rs"]
mod cast;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use dormouse_agent::graph::{AgentParts, AnswerUnderWay, DeltaSink, graph};
use dormouse_api::{LiveText, Operations, RecordingStore, StreamItem, StreamLimits, StreamOptions, Streams, TextDelta};
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{
    DescriptorWakes, FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, TurnOutcome,
};
use dormouse_ports::model::{
    CallEvent, CallObserver, CallOptions, CompletionRequest, DeltaKind, Message, ModelProvider,
};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use dormouse_ports::{
    Clock, Commit, Commits, Fetch, FetchError, FetchRequest, FetchResponse, GrowingLists, IdSource, Map,
    SessionExpectation, SessionWrite,
};
use dormouse_providers::{ProviderPorts, ProviderSetup, openai};
use dormouse_system::{RandomIds, SystemClock, TokioSpawner};
use dormouse_testkit::{MemoryBus, MemoryStore, MemorySubscriptions};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::{Deployment, Units};
use crate::cast::{ScriptedModel, Toolbox, calls, parts, says, tool};

/// Messages of the conversation before the run.
const HISTORIES: [usize; 2] = [10, 1_000];
/// Steps of the runs that are compared.
const FEW: usize = 4;
const MANY: usize = 24;
/// Requests that a step may make.
const MOST_REQUESTS: u64 = 2;
/// Write units that a step may cost.
const MOST_UNITS: f64 = 6.0;
/// Bytes of what the tool tells: a few words, and a page, of which half is left when it is compressed.
const WORDS: usize = 300;
const PAGE: usize = 4_000;
/// Steps behind which one is written whole, at most.
const NOTED: usize = 16;
/// Write units that a page may cost beside: it is an event, and a message, which a later step writes into the conversation.
const OF_A_PAGE: f64 = 8.0;
/// How often what is timed is done; the fastest counts.
const ROUNDS: usize = 5;
/// Pieces of a streamed answer.
const TOKENS: usize = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("a step: the model is asked, and calls a tool that may run again; {FEW} steps are taken from {MANY}");
    println!(
        "run of    messages before  bytes of the tool  requests  write units  read units  ms with the store, embedded"
    );
    for (way, told) in [(Way::Turn, WORDS), (Way::Task, WORDS), (Way::Task, PAGE)] {
        let mut flat = None;
        for history in HISTORIES {
            let (units, spent) = step(history, way, told).await;
            let each = |amount: f64| amount / (MANY - FEW) as f64;
            let [requests, writes, reads] = [units.requests as f64, units.writes, units.reads].map(each);
            let millis = spent.as_secs_f64() * 1e3;
            let name = way.name();
            println!(
                "{name:<8}  {history:>15}  {told:>17}  {requests:>8.2}  {writes:>11.2}  {reads:>10.1}  {millis:>10.2}"
            );
            // Pages travel ahead of the step that writes them into the conversation.
            let pages = told / PAGE;
            let most = MOST_REQUESTS * (MANY - FEW) as u64 + (pages * (MANY - FEW)).div_ceil(NOTED) as u64;
            assert!(
                writes <= MOST_UNITS + pages as f64 * OF_A_PAGE,
                "a step of {name} costs more than {MOST_UNITS} write units"
            );
            assert!(units.requests <= most, "{} steps make more than {most} requests: {units:?}", MANY - FEW);
            assert_eq!(*flat.get_or_insert(units.requests), units.requests, "requests grow with the conversation");
        }
    }
    println!("goal: at most {MOST_REQUESTS} requests, the same behind any conversation");
    println!("goal: at most {MOST_UNITS:.0} write units, of which what a page costs is not a part");
    println!();
    println!(
        "messages before  ms of our own, a step  allocations  KiB of them  first token  each token  first token on a stream of /v1"
    );
    for history in HISTORIES {
        let own = own_time(history).await.as_secs_f64() * 1e3;
        let (allocations, bytes) = own_allocations(history);
        let kib = bytes / 1024;
        let (first, each) = first_token(history).await;
        let streamed = text_on_a_stream(history).await;
        let [first, each, streamed] = [first, each, streamed].map(|time| time.as_secs_f64() * 1e6);
        println!(
            "{history:>15}  {own:>21.2}  {allocations:>11}  {kib:>11}  {first:>8.0} µs  {each:>7.1} µs  {streamed:>29.0} µs"
        );
    }
    println!("goal: less than 1000 µs from the first bytes of an answer to the client's first token");
}

/// How a run is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A turn of a graph.
    Turn,
    /// A task of `/v1`, whose steps are published.
    Task,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Turn => "a turn",
            Self::Task => "a task",
        }
    }

    /// Runs the agent in `session`.
    async fn run(self, deployment: &Deployment, session: &str) -> TurnOutcome {
        match self {
            Self::Turn => {
                let state = Map::from_iter([("messages".to_owned(), json!([{ "role": "user", "content": "go" }]))]);
                let turn = FreshTurn { session_id: Some(session.into()), ..FreshTurn::new("helper", state) };
                deployment.harness.turn(Transmission::from(turn)).await.outcome
            }
            Self::Task => {
                let input = json!({ "role": "user", "parts": [{ "type": "text", "text": "go" }] });
                let body = json!({ "input": input, "persona_id": "persona_helper" });
                let task = deployment.post(&format!("/v1/sessions/{session}/tasks"), &body).await;
                deployment.harness.take_up(&task["id"].as_str().expect("an id").into(), None).await.outcome
            }
        }
    }
}

/// An agent whose next run has as many steps as the counter says, and whose tool tells as many bytes.
fn agent(left: Arc<AtomicUsize>, told: usize) -> GraphRegistry {
    let model = ScriptedModel::new(move |_| {
        let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1)));
        Ok(match before.unwrap_or_default() {
            0 => says("done"),
            number => calls(&[(&format!("call-{number}"), "look", json!({ "to": "the weather of tomorrow" }))]),
        })
    });
    let asked = AtomicUsize::new(0);
    let tools = Toolbox::new(vec![tool("look", Effect::Safe)], move |_| {
        let text = match told {
            WORDS => "It rains in the morning, and clears up by noon.".repeat(6),
            bytes => hexadecimal(asked.fetch_add(1, Ordering::SeqCst), bytes),
        };
        Ok(ToolReply::Done(ToolOutput::text(text)))
    });
    let parts = parts("policy: {max_steps: 1000}", model, tools, Arc::new(SystemClock::default()));
    GraphRegistry::new([Arc::new(graph(parts).expect("a graph"))])
}

/// As many letters, another text for each `number`.
fn hexadecimal(number: usize, bytes: usize) -> String {
    let digests = (0..bytes.div_ceil(64)).map(|part| hex::encode(Sha256::digest(format!("{number}/{part}"))));
    digests.collect::<String>()[..bytes].to_owned()
}

/// A conversation of so many messages, of about 400 bytes each.
fn conversation(count: usize) -> Vec<Value> {
    let said = |number: usize| {
        let role = if number.is_multiple_of(2) { "user" } else { "assistant" };
        json!({ "role": role, "content": format!("{number}: {}", "what was said of it then ".repeat(16)) })
    };
    (0..count).map(said).collect()
}

/// Units of all steps by which the longer run is longer, and the time of one of them.
async fn step(history: usize, way: Way, told: usize) -> (Units, Duration) {
    let left = Arc::new(AtomicUsize::new(0));
    let deployment = Deployment::running(agent(left.clone(), told), &["helper"]).await;
    let mut costs = Vec::new();
    for steps in [FEW, MANY] {
        let session = deployment.new_session().await;
        remember(&deployment, &session, history).await;
        left.store(steps, Ordering::SeqCst);
        deployment.meter.reset();
        let began = Instant::now();
        let outcome = way.run(&deployment, &session).await;
        costs.push((Units::of(&deployment.meter), began.elapsed()));
        let TurnOutcome::Completed(turn) = outcome else { panic!("{outcome:?}") };
        assert_eq!(turn.state["steps"], steps + 1, "each step is one call of the model");
        assert!(turn.state["messages"].as_array().is_some_and(|all| all.len() > history), "it knows what was said");
    }
    let [(few, short), (many, long)] = costs[..] else { panic!("two runs") };
    let units = Units {
        requests: many.requests - few.requests,
        writes: many.writes - few.writes,
        reads: many.reads - few.reads,
    };
    (units, long.saturating_sub(short) / (MANY - FEW) as u32)
}

/// The session has said so much before.
async fn remember(deployment: &Deployment, session: &str, history: usize) {
    let state = Map::from_iter([("messages".to_owned(), Value::from(conversation(history)))]);
    let session = Some(SessionWrite {
        session_id: session.into(),
        save: Some((state.into(), "1".to_owned())),
        expect: SessionExpectation::Any,
        lease: None,
        release: false,
    });
    let growing = GrowingLists { fields: vec!["messages".into()], stored: Vec::new() };
    let commit = Commit { session, growing, ..Commit::new(RandomIds.fresh(), Timestamp::now()) };
    deployment.store.commit(&commit).await.expect("it is saved");
}

/// The time of a step whose store answers at once.
async fn own_time(history: usize) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut times = Vec::new();
        for steps in [FEW, MANY] {
            times.push(own_run(history, steps).await);
        }
        least = least.min(times[1].saturating_sub(times[0]) / (MANY - FEW) as u32);
    }
    least
}

/// Allocations of such a step, and their bytes: the same on any machine.
fn own_allocations(history: usize) -> (u64, u64) {
    let counting = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        [FEW, MANY].map(|steps| {
            allocation_counter::measure(|| {
                let _time = runtime.block_on(own_run(history, steps));
            })
        })
    };
    let [few, many] = std::thread::spawn(counting).join().expect("two runs");
    let steps = (MANY - FEW) as u64;
    ((many.count_total - few.count_total) / steps, (many.bytes_total - few.bytes_total) / steps)
}

/// The time of a run of so many steps, whose store answers at once.
async fn own_run(history: usize, steps: usize) -> Duration {
    let left = Arc::new(AtomicUsize::new(steps));
    let store = Arc::new(MemoryStore::default());
    let clock = Arc::new(SystemClock::default());
    let ports = Ports {
        store: RecordingStore::new(store.clone(), store.clone(), clock.clone()).into(),
        clock,
        ids: Arc::new(RandomIds),
        spawner: Arc::new(TokioSpawner),
        planner: Arc::new(DescriptorWakes),
    };
    let harness = Harness::new(
        Engine::new(ports),
        agent(left, WORDS),
        Arc::new(MemorySubscriptions::default()),
        Arc::new(MemoryBus::default()),
        HarnessConfig::new(Mode::Sessioned),
    );
    let mut said = conversation(history);
    said.push(json!({ "role": "user", "content": "go" }));
    let state = Map::from_iter([("messages".to_owned(), Value::from(said))]);
    let began = Instant::now();
    let turn = FreshTurn { invocation_id: Some("run".into()), ..FreshTurn::new("helper", state) };
    let outcome = harness.turn(Transmission::from(turn)).await.outcome;
    let time = began.elapsed();
    assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
    time
}

/// The network: each piece of the answer arrives when it is asked for, and the instant of the first is kept.
struct Wire {
    arrived: Arc<Mutex<Option<Instant>>>,
}

#[async_trait]
impl Fetch for Wire {
    async fn fetch(&self, _: FetchRequest) -> Result<FetchResponse, FetchError> {
        let arrived = self.arrived.clone();
        let piece = |number: usize| {
            let reason = if number == TOKENS { json!("stop") } else { Value::Null };
            let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "model": "m", "choices":
                [{ "index": 0, "delta": { "role": "assistant", "content": "word " }, "finish_reason": reason }] });
            format!("data: {chunk}\n\n").into_bytes()
        };
        let pieces = (0..=TOKENS).map(piece).map(Ok);
        let body = stream::iter(pieces).then(move |piece| {
            arrived.lock().expect("a lock").get_or_insert_with(Instant::now);
            // Others of the thread run between two pieces, as on a network.
            async {
                tokio::task::yield_now().await;
                piece
            }
        });
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        Ok(FetchResponse { status: 200, headers, body: body.boxed() })
    }
}

/// The client: the instants of the first and the last token.
#[derive(Default)]
struct Client(Mutex<Vec<Instant>>);

impl CallObserver for Client {
    fn observe(&self, event: CallEvent<'_>) {
        if matches!(event, CallEvent::Token { .. }) {
            self.0.lock().expect("a lock").push(Instant::now());
        }
    }
}

/// The time from the first bytes of an answer to the client's first token, and from token to token.
async fn first_token(history: usize) -> (Duration, Duration) {
    let read = |message: Value| serde_json::from_value::<Message>(message).expect("a message");
    let mut messages: Vec<Message> = conversation(history).into_iter().map(read).collect();
    messages.push(Message::user("go"));
    let request = CompletionRequest { stream: true, ..CompletionRequest::new(messages) };
    let mut least = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let arrived = Arc::new(Mutex::new(None));
        let ports = ProviderPorts {
            fetch: Arc::new(Wire { arrived: arrived.clone() }),
            clock: Arc::new(SystemClock::default()),
        };
        let provider = openai(ProviderSetup::new(ports, "m"));
        let client = Arc::new(Client::default());
        let options = CallOptions { observer: client.clone(), retry: None, timeout: None };
        provider.complete(&request, &options).await.expect("an answer");
        let tokens = client.0.lock().expect("a lock").clone();
        let arrived = arrived.lock().expect("a lock").expect("bytes");
        let all = tokens[tokens.len() - 1].duration_since(tokens[0]);
        least = (least.0.min(tokens[0].duration_since(arrived)), least.1.min(all / (tokens.len() - 1) as u32));
    }
    least
}

/// Shows the text of answers to streams.
struct Shown(LiveText);

impl DeltaSink for Shown {
    fn began(&self, _: &AnswerUnderWay) {}

    fn delta(&self, answer: &AnswerUnderWay, _: DeltaKind, from: u64, text: &str) {
        let session_id = answer.session.as_ref().expect("a session").as_str().into();
        let task_id = answer.invocation.as_str().into();
        self.0.show(&TextDelta { session_id, task_id, step: answer.step, from, text: text.to_owned() });
    }
}

/// The time from the first bytes of an answer to the first text on the stream of its task, in the same process.
async fn text_on_a_stream(history: usize) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
        let arrived = Arc::new(Mutex::new(None));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let ports = ProviderPorts { fetch: Arc::new(Wire { arrived: arrived.clone() }), clock: clock.clone() };
        let live = LiveText::default();
        let talking = AgentParts {
            deltas: Some(Arc::new(Shown(live.clone()))),
            ..parts(
                "description: talks",
                Arc::new(openai(ProviderSetup::new(ports, "m"))),
                Toolbox::new(Vec::new(), |_| Ok(ToolReply::Done(ToolOutput::text("")))),
                clock.clone(),
            )
        };
        let graphs = GraphRegistry::new([Arc::new(graph(talking).expect("a graph"))]);
        let deployment = Deployment::running(graphs, &["helper"]).await;
        let session = deployment.new_session().await;
        remember(&deployment, &session, history).await;
        let input = json!({ "role": "user", "parts": [{ "type": "text", "text": "go" }] });
        let body = json!({ "input": input, "persona_id": "persona_helper" });
        let task = deployment.post(&format!("/v1/sessions/{session}/tasks"), &body).await;
        let task = task["id"].as_str().expect("an id").to_owned();
        let notifier = (deployment.notifier.clone(), live);
        let streams = Streams::new(deployment.store.clone(), clock, notifier, StreamLimits::default(), None);
        let operations: Arc<dyn Operations> = Arc::new(deployment.api.clone());
        let call = deployment.call(("GET", &format!("/v1/tasks/{task}/stream")), "deltas=true", &Value::Null, None);
        let options = StreamOptions { last_event_id: None, request_id: "r", time_left: None };
        let mut items = streams.open(&operations, call, options).await.expect("a stream");
        let shown = async {
            while let Some(item) = items.next().await {
                if matches!(item, StreamItem::Text(_)) {
                    return Instant::now();
                }
            }
            panic!("the stream ends without text")
        };
        let id = task.as_str().into();
        let (turn, shown) = futures::join!(deployment.harness.take_up(&id, None), shown);
        assert!(matches!(turn.outcome, TurnOutcome::Completed(_)), "{turn:?}");
        let arrived = arrived.lock().expect("a lock").expect("bytes");
        least = least.min(shown.duration_since(arrived));
    }
    least
}
