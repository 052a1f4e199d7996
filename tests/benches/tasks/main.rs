//! What a task costs in DynamoDB round trips and capacity units, by how many events its session has already.
//!
//! Run with `cargo bench -p dormouse-tests --bench tasks`. A task is submitted by the operations of the public wire, and
//! taken up as the wake-up function does it. The numbers of one task are the same whatever stands in the stream before,
//! and so are those of a stream that is watched: where its counts are not, the program fails.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

#[path = "../common/api.rs"]
mod api;
mod streams;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_api::{AppendNotifier, Keys, RecordingEngine, RecordingStore};
use dormouse_harness::{DescriptorWakes, TurnOutcome};
use dormouse_http::{App, Authorization, BearerKey, CallbackSecret, CallbackSigner, Limits, ProtocolConfig, Server};
use dormouse_ports::{Append, Clock, Commit, Commits, EndOfStream, IdSource, Journal, Records, StreamEnd};
use dormouse_protocol::cursor::Cursors;
use dormouse_system::{RandomIds, SystemClock, TokioSpawner};
use dormouse_testkit::{MemoryBus, MemorySubscriptions};
use serde_json::{Value, json};

use crate::api::{Deployment, Units};
use crate::streams::{Client as Watcher, Watched};

/// How often each path is taken: the units are those of the last one, the time is the mean.
const ROUNDS: u32 = 10;
/// How many events a session has before.
const EVENTS: [u64; 4] = [10, 1_000, 10_000, 100_000];
/// How many events are put before it at a time.
const BATCH: u64 = 1_000;

struct Bench(Deployment);

impl std::ops::Deref for Bench {
    type Target = Deployment;

    fn deref(&self) -> &Deployment {
        &self.0
    }
}

#[derive(Clone, Default)]
struct Cost {
    units: Units,
    spent: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let bench = Bench(Deployment::new().await);
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
    /// A server on the same store whose streams go by `clock` and hear `notifier`.
    fn server(&self, clock: Arc<dyn Clock>, notifier: AppendNotifier) -> Server {
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let recording = RecordingStore::new(self.store.clone(), self.store.clone(), clock);
        let ids = Arc::new(RandomIds);
        let spawner = Arc::new(TokioSpawner);
        let planner = Arc::new(DescriptorWakes);
        let app = App::new(dormouse_http::Parts {
            engine: RecordingEngine::new(recording, ids, spawner, planner),
            agents: self.harness.graphs().clone().into(),
            maintenance: self.store.clone().into(),
            subscriptions,
            bus: Arc::new(MemoryBus::default()),
            callbacks: CallbackSigner::new(CallbackSecret::new("secret")),
            signal_key: BearerKey::of_nobody(),
            authorization: Authorization::Keys,
            keys: Keys::new(self.store.clone()),
            base_url: None,
            limits: Limits::default(),
            telemetry: None,
        });
        let wire = ProtocolConfig { notifier, ..ProtocolConfig::new(self.store.clone(), Cursors::new(b"secret")) };
        Server::new(app, wire)
    }

    async fn measure(&self, graph: &str, input: &Value, events: u64) {
        let mut submitted = Cost::default();
        let mut done = Cost::default();
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
            let Cost { units: Units { requests, writes, reads }, spent } = cost;
            let mean = spent.as_secs_f64() * 1000.0 / f64::from(ROUNDS);
            println!("{graph:<16}  {path:<18}  {events:>13}  {requests:>11}  {writes:>11}  {reads:>10}  {mean:>12.2}");
        }
    }

    /// A session with so many events in its stream.
    async fn session(&self, events: u64) -> String {
        let id = self.new_session().await;
        let event = self.store.entries(&id, 0, 1).await.expect("an answer").pop().expect("an event").entry;
        let mut tip = self.store.tip(&id).await.expect("an answer");
        while tip.position < events {
            let count = usize::try_from((events - tip.position).min(BATCH)).expect("a small number");
            let mut known = tip.known.expect("a session");
            let first = tip.position + 1;
            known["own"]["position"] = (tip.position + count as u64).into();
            let end = StreamEnd::Append(EndOfStream { known, behind: tip.at, ..EndOfStream::default() });
            let append = Append { stream: id.clone(), end, first, entries: vec![event.clone(); count], fed: None };
            self.commit(Journal::new(Vec::new(), vec![append])).await;
            tip = self.store.tip(&id).await.expect("an answer");
        }
        id
    }

    async fn commit(&self, journal: Journal) {
        let commit = Commit { journal, ..Commit::new(RandomIds.fresh(), SystemClock::default().now()) };
        self.store.commit(&commit).await.expect("it is written");
    }

    fn begin(&self) -> Instant {
        self.meter.reset();
        Instant::now()
    }

    /// What was spent since `began`, with the time of those before.
    fn cost(&self, began: Instant, before: &Cost) -> Cost {
        let units = Units::of(&self.meter);
        Cost { units, spent: before.spent + began.elapsed() }
    }
}
