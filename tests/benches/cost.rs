//! What a turn costs that is suspended and resumed, by the length of its session's history, and in dollars.
//!
//! Run with `make bench-cost`. Real turns go through the harness, the engine and the store on DynamoDB; the units are
//! those that the embedded store reports in its answers, and the test `metering` holds these against the documented
//! rules. It fails when a goal is missed. Each turn adds three messages of about 400 bytes: the user's, one before the pause and one behind it.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

#[path = "common/api.rs"]
mod api;
#[path = "cost/approval.rs"]
mod approval;
#[path = "cost/prices.rs"]
mod prices;
#[path = "cost/talk.rs"]
mod talk;

use std::process::ExitCode;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use dormouse_aws::{DynamoDbStateStore, Meter, StoreConfig, ensure_table};
use dormouse_engine::{
    CompiledGraph, END, Engine, Field, FieldType, GraphBuilder, Ports, Reducer, SessionConcurrency, SessionPolicy,
    StateSchema, Update, suspend,
};
use dormouse_harness::{
    DescriptorWakes, FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, TurnOutcome,
};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    Commit, Commits, GrowingLists, Journal, Map, SessionExpectation, SessionId, SessionWrite, SignalDescriptor,
};
use dormouse_system::{RandomIds, SystemClock};
use dormouse_testkit::{MemoryBus, MemorySubscriptions, TokioSpawner};
use jiff::Timestamp;
use serde_json::json;

use crate::api::Units;
use crate::approval::Caller;

/// How many turns the mean is taken of.
const TURNS: u64 = 20;
/// Messages with which the state has about 4 KB of JSON.
const FOUR_KB: u64 = 9;
const HISTORIES: [u64; 5] = [0, FOUR_KB, 100, 1_000, 10_000];
/// Dollars for a million turns, without the time that functions compute.
const GOAL: f64 = 20.0;
/// The same for tasks of `/v1`, and their write units.
const TASK_GOAL: f64 = 30.0;
const TASK_UNITS: f64 = 40.0;
/// HTTP API requests and Lambda requests of such a task, among these the two by which functions call a worker.
const CALLS_OF_A_TASK: [f64; 2] = [2.0, 4.0];
/// Read units with which the two requests look for their API key, of processes that have not seen it.
const KEY_READS: f64 = 2.0;
/// Write units of a commit that publishes a call of a tool.
const CALL_UNITS: f64 = 6.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    println!("mean (and most) of {TURNS} turns in a row, each of which is suspended and resumed");
    println!("messages  JSON bytes  path     requests       write units    read units");
    let mut at_4_kb = Units::default();
    for count in HISTORIES {
        let bytes = serde_json::to_vec(&talk::session(count)).map_or(0, |bytes| bytes.len());
        let bench = Bench::with_history(count).await;
        let mut rows = [("suspend", Vec::new()), ("resume", Vec::new()), ("both", Vec::new())];
        for turn in 0..TURNS {
            let (suspend, resume) = bench.turn(count + turn).await;
            for (row, cost) in rows.iter_mut().zip([suspend, resume, suspend + resume]) {
                row.1.push(cost);
            }
        }
        for (path, costs) in &rows {
            let [requests, writes, reads] =
                [column(costs, |c| c.requests as f64), column(costs, |c| c.writes), column(costs, |c| c.reads)];
            println!("{count:>8}  {bytes:>10}  {path:<7}  {requests:<13}  {writes:<13}  {reads}");
        }
        if count == FOUR_KB {
            at_4_kb = rows[2].1.iter().copied().fold(Units::default(), std::ops::Add::add);
        }
    }
    println!();
    let mut all_met = bill(at_4_kb);
    println!();
    println!("a turn without a session, suspended and resumed, whose state of 4 KB hardly compresses");
    let alone = Bench::with_history(0).await;
    let mut sessionless = Units::default();
    for turn in 0..TURNS {
        let (suspend, resume) = alone.turn_without_session(turn).await;
        sessionless = sessionless + suspend + resume;
    }
    let per_turn = |amount: f64| amount / TURNS as f64;
    println!("write units {:.1}, read units {:.1}", per_turn(sessionless.writes), per_turn(sessionless.reads));
    println!();
    let task = approval::plain(Caller::Careless).await;
    println!("a task of /v1 that sleeps until a person approves it, without keys for repetitions");
    let together = steps(&task);
    println!("at most {TASK_UNITS:.0} write units are the goal");
    all_met &= together.writes <= TASK_UNITS;
    println!();
    println!("a million such tasks, in dollars");
    all_met &= without_compute(together, CALLS_OF_A_TASK, task.egress, Some(TASK_GOAL));
    println!();
    besides(together);
    println!();
    println!("the same task of a client that sends keys for repetitions");
    let task = approval::plain(Caller::Careful).await;
    let keyed = steps(&task);
    let is_cheap = without_compute(keyed, CALLS_OF_A_TASK, task.egress, Some(TASK_GOAL));
    let is_met = is_cheap && keyed.writes <= TASK_UNITS;
    println!("  with those keys the goals are {}", if is_met { "met" } else { "missed" });
    all_met &= is_met;
    besides(keyed);
    println!();
    println!("the same with 4 KB of input that hardly compress");
    let task = approval::incompressible().await;
    without_compute(steps(&task), CALLS_OF_A_TASK, task.egress, None);
    println!();
    let call = approval::published_call().await;
    println!(
        "a call of a tool that is published while its turn runs, which is a part of a step of an agent (make bench-agent): {} \
         requests, {:.1} write units, {:.1} read units (at most {CALL_UNITS:.0} write units); a million of them cost {:.2} dollars",
        call.requests,
        call.writes,
        call.reads,
        call.writes * prices::WRITE_UNITS + call.reads * prices::READ_UNITS
    );
    all_met &= call.writes <= CALL_UNITS;
    if all_met { ExitCode::SUCCESS } else { missed() }
}

fn missed() -> ExitCode {
    println!("a goal is missed");
    ExitCode::FAILURE
}

/// Prints the units of each step, and returns their sum.
fn steps(task: &approval::Costs) -> Units {
    println!("step                requests  write units  read units");
    let row = |step: &str, Units { requests, writes, reads }: Units| {
        println!("{step:<18}  {requests:>8}  {writes:>11.1}  {reads:>10.1}");
    };
    for (step, units) in &task.steps {
        row(step, *units);
    }
    let together = task.together();
    row("together", together);
    together
}

fn column(costs: &[Units], of: impl Fn(&Units) -> f64) -> String {
    let most = costs.iter().map(&of).fold(0.0, f64::max);
    format!("{:.1} ({most:.0})", costs.iter().map(&of).sum::<f64>() / costs.len() as f64)
}

/// What a million turns cost when `all` is what [`TURNS`] of them took; true if that meets the goal.
fn bill(all: Units) -> bool {
    let per_turn = |amount: f64| amount / TURNS as f64;
    let milliseconds = per_turn(all.requests as f64) * prices::MS_PER_REQUEST + 2.0 * prices::MS_OF_OUR_OWN;
    println!("a million suspended and resumed turns at a state of 4 KB, in dollars; a person answers by HTTP");
    let units = Units { requests: 0, writes: per_turn(all.writes), reads: per_turn(all.reads) };
    let is_met = without_compute(units, [2.0, 2.0], 0.0, Some(GOAL));
    let gigabyte_seconds = milliseconds / 1000.0 * prices::LAMBDA_GB;
    println!(
        "  Lambda GB-seconds      {gigabyte_seconds:>6.4} at {:>7.4}  {:>6.2}   ({milliseconds:.0} ms, assuming {} a request and {} of our own)",
        prices::LAMBDA_GB_SECONDS,
        gigabyte_seconds * prices::LAMBDA_GB_SECONDS,
        prices::MS_PER_REQUEST,
        prices::MS_OF_OUR_OWN,
    );
    for (line, price) in [("woken by a timer", prices::SCHEDULES), ("woken by an event of ours", prices::CUSTOM_EVENTS)]
    {
        println!("  {line:<22} instead of the second HTTP request: {:+.2}", price - prices::HTTP_REQUESTS);
    }
    is_met
}

/// Prints what a million times `units` cost, with `calls` each: HTTP API requests, and Lambda requests, among them those
/// by which functions call workers; and with `egress` bytes for the client. True if that is at most `goal`.
fn without_compute(units: Units, calls: [f64; 2], egress: f64, goal: Option<f64>) -> bool {
    let [http, lambda] = calls;
    let fixed = [
        ("DynamoDB write units", units.writes, prices::WRITE_UNITS),
        ("DynamoDB read units", units.reads, prices::READ_UNITS),
        ("HTTP API requests", http, prices::HTTP_REQUESTS),
        ("Lambda requests", lambda, prices::LAMBDA_REQUESTS),
        ("KB for the client", egress / 1e3, prices::EGRESS_GB),
    ];
    let mut sum = 0.0;
    for (line, amount, price) in fixed.into_iter().filter(|(_, amount, _)| *amount > 0.0) {
        sum += amount * price;
        println!("  {line:<22} {amount:>6.2} at {price:>7.4}  {:>6.2}", amount * price);
    }
    println!("  without compute                          {sum:>6.2}");
    let Some(goal) = goal else { return true };
    println!("  at most {goal:.2} are the goal");
    sum <= goal
}

/// Prints what a million tasks of `units` cost besides, as the template deploys it.
fn besides(units: Units) {
    let [http, lambda] = CALLS_OF_A_TASK;
    let milliseconds = units.requests as f64 * prices::MS_PER_REQUEST + lambda * prices::MS_OF_OUR_OWN;
    let log = lambda * (prices::LOG_OF_A_FUNCTION + prices::LOG_OF_LAMBDA) + http * prices::LOG_OF_THE_API;
    let lines = [
        ("API key, read units", KEY_READS, prices::READ_UNITS),
        ("traces of X-Ray", lambda * prices::TRACED, prices::TRACES),
        ("KB of logs", log / 1e3, prices::LOGS_GB),
        ("Lambda GB-seconds", milliseconds / 1e3 * prices::LAMBDA_GB, prices::LAMBDA_GB_SECONDS),
    ];
    let mut sum = 0.0;
    for (line, amount, price) in lines {
        sum += amount * price;
        println!("  {line:<22} {amount:>6.3} at {price:>7.4}  {:>6.2}", amount * price);
    }
    println!("  besides                                  {sum:>6.2}");
}

struct Bench {
    _embedded: EmbeddedDynamoDb,
    harness: Harness,
    meter: Meter,
}

impl Bench {
    /// A worker and a session that has `count` messages.
    async fn with_history(count: u64) -> Self {
        let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
        ensure_table(&embedded.client(), "dormouse").await.expect("the table is made");
        let meter = Meter::with_units();
        let client = Client::from_conf(embedded.config().interceptor(meter.clone()).build());
        let store = Arc::new(DynamoDbStateStore::new(&client, "dormouse", StoreConfig::default()));
        store.commit(&history(count)).await.expect("it is saved");
        let engine = Engine::new(Ports {
            store: store.into(),
            clock: Arc::new(SystemClock::default()),
            ids: Arc::new(RandomIds),
            spawner: Arc::new(TokioSpawner),
            planner: Arc::new(DescriptorWakes),
        });
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let config = HarnessConfig::new(Mode::Sessioned);
        let harness = Harness::new(
            engine,
            GraphRegistry::new([Arc::new(graph()), Arc::new(alone())]),
            subscriptions,
            Arc::new(MemoryBus::default()),
            config,
        );
        Self { _embedded: embedded, harness, meter }
    }

    /// One turn that is suspended and resumed: the cost of both halves.
    async fn turn(&self, number: u64) -> (Units, Units) {
        let state = Map::from_iter([("messages".to_owned(), json!([talk::message("user", 3 * number)]))]);
        self.halves(FreshTurn { session_id: Some(session_id()), ..FreshTurn::new("support", state) }).await
    }

    /// The same without a session.
    async fn turn_without_session(&self, number: u64) -> (Units, Units) {
        self.halves(FreshTurn::new("alone", incompressible(number))).await
    }

    async fn halves(&self, start: FreshTurn) -> (Units, Units) {
        self.meter.reset();
        let outcome = self.harness.turn(start).await.outcome;
        let TurnOutcome::Suspended(suspended) = outcome else { panic!("not suspended: {outcome:?}") };
        let suspend = Units::of(&self.meter);
        self.meter.reset();
        let answer = Map::from_iter([("approved".to_owned(), true.into())]);
        let callback = Transmission::callback(suspended.invocation_id, None, answer);
        let outcome = self.harness.turn(callback).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
        (suspend, Units::of(&self.meter))
    }
}

/// A state without messages that hardly compresses.
fn incompressible(seed: u64) -> Map {
    Map::from_iter([("profile".to_owned(), json!(talk::noise(seed, 4096)))])
}

fn session_id() -> SessionId {
    "9b2d7c1e-4f60-4a9b-8d1a-6e2f0c5b7a31".into()
}

/// The save of a session that has `count` messages.
fn history(count: u64) -> Commit {
    let write = SessionWrite {
        session_id: session_id(),
        save: Some((talk::session(count).into(), "1".to_owned())),
        expect: SessionExpectation::Any,
        lease: None,
        release: false,
    };
    let growing = GrowingLists { fields: vec!["messages".into()], stored: Vec::new() };
    Commit {
        id: "history".to_owned(),
        now: Timestamp::now(),
        session: Some(write),
        invocation: None,
        journal: Journal::default(),
        growing,
    }
}

/// `announce -> wait -> answer`: a message before the pause and one behind it.
fn graph() -> CompiledGraph {
    let messages = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append);
    let schema = StateSchema::new()
        .with_version("1")
        .field("messages", messages)
        .field("profile", Field::new(FieldType::Any, json!(null)))
        .field("approved", Field::new(FieldType::Any, json!(null)));
    let policy = SessionPolicy::projected(["messages", "profile"]).concurrency(SessionConcurrency::Rebase);
    let says = |number| Update::none().with("messages", json!([talk::message("assistant", number)]));
    let graph = GraphBuilder::new("support", schema)
        .sessions(policy)
        .entry("announce")
        .function("announce", move |_| async move { Ok(says(70_001)) })
        .function("wait", |_| async {
            let signal = SignalDescriptor::new(format!("approval-{}", uuid()));
            Err(suspend(signal.with("prompt", "Send by courier?")).await)
        })
        .function("answer", move |_| async move { Ok(says(70_003)) })
        .edge("announce", "wait")
        .edge("wait", "answer")
        .edge("answer", END);
    graph.compile().expect("it compiles")
}

/// `wait`, in no session.
fn alone() -> CompiledGraph {
    let schema = StateSchema::new()
        .with_version("1")
        .field("profile", Field::new(FieldType::Any, json!(null)))
        .field("approved", Field::new(FieldType::Any, json!(null)));
    let graph = GraphBuilder::new("alone", schema)
        .entry("wait")
        .function("wait", |_| async {
            let signal = SignalDescriptor::new(format!("approval-{}", uuid()));
            Err(suspend(signal.with("prompt", "Send by courier?")).await)
        })
        .function("answer", |_| async { Ok(Update::none()) })
        .edge("wait", "answer")
        .edge("answer", END);
    graph.compile().expect("it compiles")
}

fn uuid() -> String {
    dormouse_ports::IdSource::fresh(&RandomIds)
}
