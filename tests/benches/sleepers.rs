//! Whether a suspended and resumed turn, and a sweep, cost the same among many sleepers as among a thousand.
//!
//! Run with `make bench-sleepers`; `SLEEPERS` says how many. One real invocation is put to sleep and its items are
//! copied under other names, straight into the embedded store. Then real turns go through the harness beside them, and
//! sweeps go round. The program fails when requests or capacity units differ by more than a tenth.
//!
//! Times are only told: that of the clock, and the processor time of our side and of the embedded database, which runs
//! in threads of its own. On AWS only our side is there, beside a table whose answers do not depend on its size.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use aws_sdk_dynamodb::Client;
use dormouse_aws::{DynamoDbStateStore, Meter, StoreConfig, ensure_table};
use dormouse_engine::{CompiledGraph, END, Engine, Field, FieldType, GraphBuilder, Ports, State, StateSchema, suspend};
use dormouse_harness::{
    DescriptorWakes, FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, TurnOutcome,
};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{IdSource, MaintenanceStore, SignalDescriptor};
use dormouse_system::{RandomIds, SystemClock};
use dormouse_testkit::{MemoryBus, MemorySubscriptions, TokioSpawner};
use dormouse_tests::{map, raw};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const TABLE: &str = "dormouse";
const FEW: usize = 1_000;
/// How often each path is taken.
const ROUNDS: usize = 25;
/// How much dearer a path may be among many.
const GOAL: f64 = 1.1;
/// Over how many partitions the index of what sleeps is spread.
const SHARDS: usize = 16;
/// How many invocations are copied at once.
const BATCH: usize = 5_000;
const MODEL: &str = "the-model-sleeper";

/// What a path took, on the mean of its rounds; the times, in milliseconds, are medians.
struct Cost {
    requests: f64,
    units: f64,
    /// By the clock.
    passed: f64,
    /// Processor time of this thread.
    ours: f64,
    /// Processor time of all other threads.
    stores: f64,
}

const NAMES: [&str; 5] = ["requests", "units", "ms passed", "ms ours", "ms store's"];

impl Cost {
    fn columns(&self) -> [f64; 5] {
        [self.requests, self.units, self.passed, self.ours, self.stores]
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let many = std::env::var("SLEEPERS").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    println!("mean of {ROUNDS} rounds; milliseconds are medians: by the clock, and processor time of both sides");
    headed("sleepers");
    let few = measure(FEW).await;
    let many = measure(many).await;
    let mut failed = false;
    println!();
    println!("among many, for each that it takes among a thousand (goal: at most {GOAL})");
    headed("");
    for ((path, few), (_, many)) in few.iter().zip(&many) {
        let ratios: Vec<f64> = many.columns().iter().zip(few.columns()).map(|(many, few)| many / few).collect();
        row("", path, &ratios, 2);
        failed |= ratios[..2].iter().any(|ratio| *ratio > GOAL);
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn headed(first: &str) {
    let names: String = NAMES.iter().map(|name| format!("  {name:>10}")).collect();
    println!("{first:>8}  {:<18}{names}", "path");
}

fn row(first: &str, path: &str, columns: &[f64], digits: usize) {
    let columns: String = columns.iter().map(|column| format!("  {column:>10.digits$}")).collect();
    println!("{first:>8}  {path:<18}{columns}");
}

async fn measure(count: usize) -> Vec<(&'static str, Cost)> {
    let bench = Bench::among(count).await;
    // Sweeps have seen to everything once, as they have in a store that lives.
    bench.sweep(SweepScope::Everything).await;
    let names = ["suspend", "resume", "sweep what is due", "sweep everything"];
    let mut paths = names.map(|name| (name, Vec::new()));
    for _ in 0..ROUNDS {
        let id = RandomIds.fresh();
        paths[0].1.push(bench.count(bench.suspend(&id)).await);
        paths[1].1.push(bench.count(bench.resume(&id)).await);
        paths[2].1.push(bench.count(bench.sweep(SweepScope::Due)).await);
        paths[3].1.push(bench.count(bench.sweep(SweepScope::Everything)).await);
    }
    let costs: Vec<_> = paths.into_iter().map(|(path, rounds)| (path, mean(rounds))).collect();
    for (path, cost) in &costs {
        row(&count.to_string(), path, &cost.columns(), 1);
    }
    costs
}

fn mean(rounds: Vec<Cost>) -> Cost {
    let number = rounds.len() as f64;
    let mean = |of: fn(&Cost) -> f64| rounds.iter().map(of).sum::<f64>() / number;
    let median = |of: fn(&Cost) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let requests = mean(|one| one.requests);
    let units = mean(|one| one.units);
    Cost {
        requests,
        units,
        passed: median(|one| one.passed),
        ours: median(|one| one.ours),
        stores: median(|one| one.stores),
    }
}

/// Processor time, in milliseconds, of the thread whose folder in `/proc` this is; nothing where that is not told.
fn processor_time(thread: &Path) -> f64 {
    let told = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    told.split_whitespace().next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e6
}

/// Processor time of this thread, and of all others.
fn processor_times() -> (f64, f64) {
    let ours = processor_time(Path::new("/proc/thread-self"));
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    // A thread that ended meanwhile has no time to tell.
    let all: f64 = threads.map(|thread| processor_time(&thread.path())).filter(|time| !time.is_nan()).sum();
    (ours, all - ours)
}

/// Where the store runs. A runtime must not wait for its end inside of another one.
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

struct Bench {
    _threads: Threads,
    embedded: EmbeddedDynamoDb,
    harness: Harness,
    maintenance: MaintenanceStore,
    meter: Meter,
}

impl Bench {
    /// A worker beside `count` sleepers.
    async fn among(count: usize) -> Self {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let threads = threads.expect("threads of its own");
        let started = threads.spawn(EmbeddedDynamoDb::start(&StoreLocation::Memory));
        let embedded = started.await.expect("no panic").expect("the store starts");
        ensure_table(&embedded.client(), TABLE).await.expect("the table is made");
        let meter = Meter::with_units();
        let client = Client::from_conf(embedded.config().interceptor(meter.clone()).build());
        let store = Arc::new(DynamoDbStateStore::new(&client, TABLE, StoreConfig::default()));
        let engine = Engine::new(Ports {
            store: store.clone().into(),
            clock: Arc::new(SystemClock::default()),
            ids: Arc::new(RandomIds),
            spawner: Arc::new(TokioSpawner),
            planner: Arc::new(DescriptorWakes),
        });
        let graphs = GraphRegistry::new([Arc::new(graph())]);
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let bus = Arc::new(MemoryBus::default());
        let harness = Harness::new(engine, graphs, subscriptions, bus, HarnessConfig::new(Mode::Stateless));
        let bench = Self { _threads: Threads(Some(threads)), embedded, harness, maintenance: store.into(), meter };
        bench.suspend(MODEL).await;
        bench.sweep(SweepScope::Everything).await;
        bench.fill(count - 1).await;
        bench
    }

    /// Copies what is stored `count` times.
    async fn fill(&self, count: usize) {
        let model = raw::items(&self.embedded.client(), TABLE).await;
        let model: Vec<Value> = model.into_iter().filter(|item| item.to_string().contains(MODEL)).collect();
        assert_eq!(model.len(), 3, "the pause, its signal and its row: {model:#?}");
        for from in (0..count).step_by(BATCH) {
            let copies = (from..count.min(from + BATCH)).flat_map(|number| {
                let name = format!("sleeper-{number:09}");
                model.iter().map(move |item| copy(item, &name, number % SHARDS))
            });
            self.embedded.import(TABLE, copies.collect()).await.expect("the copies are taken");
        }
    }

    async fn count(&self, path: impl Future<Output = ()>) -> Cost {
        self.meter.reset();
        let began = Instant::now();
        let (ours, stores) = processor_times();
        path.await;
        let passed = began.elapsed().as_secs_f64() * 1000.0;
        let after = processor_times();
        let usage = self.meter.snapshot();
        let requests = usage.values().map(|usage| usage.requests as f64).sum();
        let units = usage.values().map(|usage| usage.units).sum();
        Cost { requests, units, passed, ours: after.0 - ours, stores: after.1 - stores }
    }

    async fn suspend(&self, id: &str) {
        let state = map(json!({ "name": id, "text": "what is to be remembered. ".repeat(40) }));
        let start = FreshTurn { invocation_id: Some(id.into()), ..FreshTurn::new("sleeper", state) };
        let outcome = self.harness.turn(start).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
    }

    async fn resume(&self, id: &str) {
        let callback = Transmission::callback(id, None, map(json!({ "text": "enough" })));
        let outcome = self.harness.turn(callback).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
    }

    async fn sweep(&self, scope: SweepScope) {
        let summary = dormouse_maintenance::sweep(&self.harness, &self.maintenance, scope).await.expect("it sweeps");
        assert_eq!((summary.failed, summary.orphan_timers), (0, 0));
    }
}

/// `item` under another name; a row of the index of what sleeps in the given shard.
fn copy(item: &Value, name: &str, shard: usize) -> Value {
    let mut item = item.clone();
    for (key, value) in item.as_object_mut().into_iter().flatten() {
        if let Some(text) = value["S"].as_str() {
            let text = text.replace(MODEL, name);
            let row = key == "pk" && text.starts_with("PENDING#");
            value["S"] = if row { format!("PENDING#{shard:02}").into() } else { text.into() };
        }
    }
    item
}

/// Sleeps until it is told to go on, for a month at most.
fn graph() -> CompiledGraph {
    let text = || Field::new(FieldType::Str, "");
    let schema = StateSchema::new().field("name", text()).field("text", text());
    let graph = GraphBuilder::new("sleeper", schema).entry("wait").function("wait", |state: State| async move {
        let name = state.get("name").and_then(|name| name.as_str()).unwrap_or_default().to_owned();
        let timeout = json!({ "after": "P30D", "then": "fail" });
        Err(suspend(SignalDescriptor::new(name).with("timeout", timeout)).await)
    });
    graph.edge("wait", END).compile().expect("it compiles")
}
