//! What a task costs in DynamoDB round trips and capacity units, by how many events its session has already.
//!
//! Run with `cargo bench -p dormouse-tests --bench tasks`. A task is submitted by the operations of the public wire, and
//! taken up as the wake-up function does it. The numbers of one task are the same whatever stands in the stream before,
//! and so are those of a stream that is watched: where its counts are not, the program fails.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod streams;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use dormouse_api::{
    Actor, Answer, Api, AppendNotifier, Call, Keys, Outside, Parts, PersonaSpec, RecordingEngine, RecordingStore,
};
use dormouse_aws::{DynamoDbStateStore, Meter, StoreConfig, ensure_table};
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{DescriptorWakes, Harness, HarnessConfig, Mode, TurnOutcome};
use dormouse_http::{App, Authorization, BearerKey, CallbackSecret, CallbackSigner, Limits, ProtocolConfig, Server};
use dormouse_local::{EmbeddedDynamoDb, Place};
use dormouse_ports::{Append, Clock, Commit, Commits, DocumentKey, DocumentWrite, IdSource, Journal, Records};
use dormouse_protocol::Operation;
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::request::{Body, IdempotencyKey, Query};
use dormouse_protocol::resource::AutonomyTier;
use dormouse_system::{RandomIds, SystemClock, TokioSpawner};
use dormouse_testkit::{MemoryBus, MemorySubscriptions};
use serde_json::{Value, json};

use crate::streams::{Client as Watcher, Watched};

/// How often each path is taken: the units are those of the last one, the time is the mean.
const ROUNDS: u32 = 10;
/// How many events a session has before.
const EVENTS: [u64; 4] = [10, 1_000, 10_000, 100_000];
/// How many events are put before it at a time.
const BATCH: u64 = 1_000;

struct Bench {
    api: Api,
    harness: Harness,
    store: Arc<DynamoDbStateStore>,
    notifier: AppendNotifier,
    meter: Meter,
}

#[derive(Clone, Default)]
struct Cost {
    requests: u64,
    writes: f64,
    reads: f64,
    spent: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let embedded = EmbeddedDynamoDb::start(&Place::Memory).await.expect("the store starts");
    ensure_table(&embedded.client(), "dormouse").await.expect("the table is made");
    let meter = Meter::with_units();
    let client = Client::from_conf(embedded.config().interceptor(meter.clone()).build());
    let bench = Bench::on(&client, meter);
    println!("graph             path                events before  round trips  write units  read units  ms, embedded");
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "How are you?" }] });
    let expense = json!({ "employee": "Ada", "amount_cents": 1200, "purpose": "a keyboard" });
    for (graph, input) in [("chat", message), ("expense-approval", expense)] {
        for events in EVENTS {
            bench.measure(graph, &input, events).await;
        }
    }
    println!("\n{}", Watched::TITLE);
    let watcher = Watcher::of(&bench).await;
    let mut least = None;
    for events in EVENTS {
        let watched = watcher.watch(&bench.session(events).await).await;
        let least = least.get_or_insert_with(|| watched.clone());
        println!("{}", watched.line(events, least));
        assert!(watched.costs_as(least), "a stream costs more behind {events} events");
    }
}

impl Bench {
    fn on(client: &Client, meter: Meter) -> Self {
        let store = Arc::new(DynamoDbStateStore::new(client, "dormouse", StoreConfig::default()));
        let (clock, notifier): (Arc<dyn Clock>, _) = (Arc::new(SystemClock::default()), AppendNotifier::default());
        let (bus, subscriptions) = (Arc::new(MemoryBus::default()), Arc::new(MemorySubscriptions::default()));
        let ports = Ports {
            store: RecordingStore::new(store.clone(), store.clone(), clock.clone())
                .with_notifier(notifier.clone())
                .into(),
            clock: clock.clone(),
            ids: Arc::new(RandomIds),
            spawner: Arc::new(TokioSpawner),
            planner: Arc::new(DescriptorWakes),
        };
        let graphs =
            dormouse_app::agents().compile(&Outside::new(bus.clone(), clock)).expect("graphs that compile").graphs;
        let config = HarnessConfig::new(Mode::Sessioned);
        let harness = Harness::new(Engine::new(ports), graphs, subscriptions.clone(), bus, config);
        let spec = |graph: &str| PersonaSpec::new(graph, format!("Runs {graph}."), AutonomyTier::ActWithApproval);
        let api = Api::new(Parts {
            harness: harness.clone(),
            records: store.clone(),
            timers: subscriptions,
            cursors: Cursors::new(b"secret"),
            personas: ["chat", "expense-approval"].map(spec).to_vec(),
        });
        Self { api, harness, store, notifier, meter }
    }

    /// A server on the same store whose streams go by `clock` and hear `notifier`.
    fn server(&self, clock: Arc<dyn Clock>, notifier: AppendNotifier) -> Server {
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let recording = RecordingStore::new(self.store.clone(), self.store.clone(), clock);
        let (ids, spawner, planner) = (Arc::new(RandomIds), Arc::new(TokioSpawner), Arc::new(DescriptorWakes));
        let app = App::new(dormouse_http::Parts {
            engine: RecordingEngine::new(recording, ids, spawner, planner),
            agents: self.harness.graphs().clone().into(),
            maintenance: self.store.clone().into(),
            subscriptions: subscriptions.clone(),
            bus: Arc::new(MemoryBus::default()),
            callbacks: CallbackSigner::new(CallbackSecret::new("secret")),
            signal_key: BearerKey::of_nobody(),
            authorization: Authorization::Keys,
            keys: Keys::new(self.store.clone()),
            base_url: None,
            limits: Limits::default(),
            telemetry: None,
        });
        let wire = ProtocolConfig {
            notifier,
            ..ProtocolConfig::new(self.store.clone(), subscriptions, Cursors::new(b"secret"))
        };
        Server::new(app, wire)
    }

    async fn measure(&self, graph: &str, input: &Value, events: u64) {
        let (mut submitted, mut done) = (Cost::default(), Cost::default());
        let session = self.session(events).await;
        for _ in 0..ROUNDS {
            let body = json!({ "input": input, "persona_id": format!("persona_{graph}") });
            let path = format!("/v1/sessions/{session}/tasks");
            let began = self.begin();
            let task = self.post(&path, &body).await;
            submitted = self.cost(began, &submitted);
            let id = task["id"].as_str().expect("an id").into();
            let began = self.begin();
            let outcome = self.harness.take_up(&id, None).await.outcome;
            done = self.cost(began, &done);
            assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
        }
        for (path, cost) in [("submit", submitted), ("take up, complete", done)] {
            let Cost { requests, writes, reads, spent } = cost;
            let mean = spent.as_secs_f64() * 1000.0 / f64::from(ROUNDS);
            println!("{graph:<16}  {path:<18}  {events:>13}  {requests:>11}  {writes:>11}  {reads:>10}  {mean:>12.2}");
        }
    }

    /// A session with so many events in its stream.
    async fn session(&self, events: u64) -> String {
        let workspace = self.post("/v1/workspaces", &json!({ "name": "desk", "root": "/" })).await;
        let session = self.post("/v1/sessions", &json!({ "workspace_id": workspace["id"] })).await;
        let id = session["id"].as_str().expect("an id").to_owned();
        let event = self.store.entries(&id, 0, 1).await.expect("an answer").pop().expect("an event").entry;
        let mut last = self.store.last_position(&id).await.expect("an answer");
        while last < events {
            let count = usize::try_from((events - last).min(BATCH)).expect("a small number");
            let append =
                Append { stream: id.clone(), first: last + 1, entries: vec![event.clone(); count], fed: Vec::new() };
            self.commit(Journal::new(Vec::new(), vec![append])).await;
            last += count as u64;
        }
        // The document of the session knows where its stream ends.
        let key = DocumentKey::new("session", &id);
        let now = SystemClock::default().now();
        let document = self.store.document(&key, now).await.expect("an answer").expect("a session");
        let mut body = document.body;
        body["own"]["position"] = last.into();
        let write =
            DocumentWrite { key, expect: document.version, body: Some(body), listed: Vec::new(), expires_at: None };
        self.commit(Journal::new(vec![write], Vec::new())).await;
        id
    }

    async fn commit(&self, journal: Journal) {
        let commit = Commit { journal, ..Commit::new(RandomIds.fresh(), SystemClock::default().now()) };
        self.store.commit(&commit).await.expect("it is written");
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let found = Operation::find("POST", path).expect("an operation");
        let body = Body::read(found.operation, Some("application/json"), body.to_string().as_bytes());
        let call = Call {
            operation: found.operation,
            params: found.params,
            query: Query::parse("").expect("no query"),
            body: body.expect("a body"),
            actor: Actor {
                name: "ada".to_owned(),
                tenant: "acme".to_owned(),
                workspaces: None,
                scopes: BTreeSet::new(),
            },
            idempotency_key: IdempotencyKey::read(Some(&RandomIds.fresh())).expect("a key"),
            target: found.target,
            now: SystemClock::default().now(),
        };
        match self.api.serve(call).await {
            Ok(Answer::Json(_, value)) => value,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn begin(&self) -> Instant {
        self.meter.reset();
        Instant::now()
    }

    /// What was spent since `began`, with the time of those before.
    fn cost(&self, began: Instant, before: &Cost) -> Cost {
        let mut cost = Cost { spent: before.spent + began.elapsed(), ..Cost::default() };
        for (operation, usage) in self.meter.snapshot() {
            cost.requests += usage.requests;
            let reads = ["GetItem", "BatchGetItem", "Query", "Scan"].contains(&operation.as_str());
            *(if reads { &mut cost.reads } else { &mut cost.writes }) += usage.units;
        }
        cost
    }
}
