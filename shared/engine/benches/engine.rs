//! What the engine itself costs: per node, per step, per instance, per suspension.
//!
//! Run with `make bench`. The times are criterion's; behind them, allocations are counted, which no other program on
//! the machine disturbs.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and stops when it cannot go on")]

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use dormouse_engine::{
    AfterError, Amount, CompiledGraph, END, Engine, FanOut, Field, FieldType, GraphBuilder, Invocation, LeaseTerms,
    NodeError, Outcome, Ports, Reducer, Resume, State, StateSchema, Target, Update, suspend,
};
use dormouse_ports::{Map, SignalDescriptor, WakePlan, WakePlanner};
use dormouse_testkit::{CountingIds, ManualClock, MemoryStore, TokioSpawner};
use futures::executor::block_on;
use serde_json::{Value, json};

const STEPS: usize = 1_000;

struct NoWakes;

impl WakePlanner for NoWakes {
    fn plan(&self, _: &SignalDescriptor, _: jiff::Timestamp) -> Result<WakePlan, String> {
        Ok(WakePlan::default())
    }
}

fn engine() -> Engine {
    Engine::new(Ports {
        store: Arc::new(MemoryStore::default()),
        clock: Arc::new(ManualClock::default()),
        ids: Arc::new(CountingIds::default()),
        spawner: Arc::new(TokioSpawner),
        planner: Arc::new(NoWakes),
    })
}

fn schema() -> StateSchema {
    StateSchema::new().field("n", Field::new(FieldType::Int, 0))
}

fn number(state: &State) -> i64 {
    state.get("n").and_then(Value::as_i64).unwrap_or_default()
}

fn counting(state: State) -> futures::future::Ready<Result<Update, NodeError>> {
    futures::future::ready(Ok(Update::none().with("n", number(&state) + 1)))
}

/// `nodes` nodes in a row, each of which counts.
fn linear(schema: StateSchema, nodes: usize) -> Arc<CompiledGraph> {
    let mut graph = GraphBuilder::new("linear", schema).entry("n0");
    for index in 0..nodes {
        let next = if index + 1 == nodes { END } else { Target::from(format!("n{}", index + 1)) };
        graph = graph.function(format!("n{index}"), counting).edge(format!("n{index}"), next);
    }
    Arc::new(graph.compile().unwrap())
}

/// One node that counts until `steps`.
fn looping(schema: StateSchema, steps: usize) -> Arc<CompiledGraph> {
    let most = i64::try_from(steps).unwrap_or(i64::MAX);
    let choose = move |state: &State| Ok(if number(state) < most { Target::from("n") } else { END });
    let graph = GraphBuilder::new("looping", schema).entry("n").function("n", counting).route("n", choose);
    Arc::new(graph.compile().unwrap())
}

/// One node that appends to a history until it has `steps` entries.
fn growing(steps: usize) -> Arc<CompiledGraph> {
    let history = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append);
    let schema = schema().field("history", history);
    let note = |state: State| {
        let number = number(&state) + 1;
        futures::future::ready(Ok(Update::none().with("n", number).with("history", json!([number]))))
    };
    let most = i64::try_from(steps).unwrap_or(i64::MAX);
    let choose = move |state: &State| Ok(if number(state) < most { Target::from("n") } else { END });
    Arc::new(GraphBuilder::new("growing", schema).entry("n").function("n", note).route("n", choose).compile().unwrap())
}

fn wide(fields: usize) -> StateSchema {
    let field = |schema: StateSchema, index| schema.field(format!("f{index}"), Field::new(FieldType::Int, index));
    (0..fields).fold(schema(), field)
}

fn heavy(bytes: usize) -> StateSchema {
    schema().field("document", Field::new(FieldType::Str, "x".repeat(bytes)))
}

fn fan_out(instances: usize) -> Arc<CompiledGraph> {
    let outs = Field::new(FieldType::List(Box::new(FieldType::Int)), json!([])).reduced_by(Reducer::Append);
    let count = Amount::Fixed(i64::try_from(instances).unwrap_or(i64::MAX));
    let all = FanOut::over(linear(schema(), 1)).count(count).collect("n", "outs");
    let graph = GraphBuilder::new("fan_out", StateSchema::new().field("outs", outs)).entry("all").fan_out("all", all);
    Arc::new(graph.edge("all", END).compile().unwrap())
}

fn sleeping() -> Arc<CompiledGraph> {
    let graph = GraphBuilder::new("sleeping", schema())
        .entry("wait")
        .function("wait", |_| async { Err(suspend(SignalDescriptor::new("s")).await) })
        .function("n", counting)
        .edge("wait", "n")
        .edge("n", END);
    Arc::new(graph.compile().unwrap())
}

fn run(engine: &Engine, graph: &Arc<CompiledGraph>) -> Outcome {
    block_on(engine.invoke(graph, Invocation::default())).unwrap()
}

fn suspend_and_resume(engine: &Engine, graph: &Arc<CompiledGraph>) {
    let Outcome::Suspended(pause) = run(engine, graph) else { return };
    let call = Resume {
        payload: Map::new(),
        generation: None,
        claim: LeaseTerms { owner: "w".into(), duration: Duration::from_secs(1) },
        observers: Vec::new(),
        after_error: |_| AfterError::End,
    };
    block_on(engine.resume(graph, &pause.invocation_id, call)).unwrap();
}

fn main() {
    let mut criterion =
        Criterion::default().configure_from_args().sample_size(20).measurement_time(Duration::from_secs(2));
    let engine = engine();
    let per_step = [
        ("linear graph", linear(schema(), STEPS)),
        ("conditional loop", looping(schema(), STEPS)),
        ("loop that appends to a history", growing(STEPS)),
        ("loop over 100 fields", looping(wide(100), STEPS)),
        ("loop over 1 MB", looping(heavy(1 << 20), STEPS)),
        ("fan-out", fan_out(STEPS)),
    ];
    let mut group = criterion.benchmark_group("1,000 steps");
    group.throughput(Throughput::Elements(STEPS as u64));
    for (name, graph) in &per_step {
        group.bench_function(*name, |bencher| bencher.iter(|| run(&engine, graph)));
    }
    group.finish();
    criterion.bench_function("suspend and resume", |bencher| {
        let graph = sleeping();
        bencher.iter(|| suspend_and_resume(&engine, &graph));
    });
    criterion.final_summary();
    println!("allocations                      per step   bytes per step   growth from 1,000 to 4,000 steps");
    for (name, graph) in &per_step {
        let (count, bytes) = allocations(&engine, graph, STEPS);
        let longer = match *name {
            "linear graph" => allocations(&engine, &linear(schema(), 4 * STEPS), 4 * STEPS).0,
            "loop that appends to a history" => allocations(&engine, &growing(4 * STEPS), 4 * STEPS).0,
            "fan-out" => allocations(&engine, &fan_out(4 * STEPS), 4 * STEPS).0,
            _ => count,
        };
        println!("{name:<32} {count:>8.2} {bytes:>16.0} {:>20.2}", longer / count);
    }
}

/// Allocations and allocated bytes of each of `steps` steps.
fn allocations(engine: &Engine, graph: &Arc<CompiledGraph>, steps: usize) -> (f64, f64) {
    let info = allocation_counter::measure(|| drop(run(engine, graph)));
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let per_step = |total: u64| total as f64 / steps as f64;
    (per_step(info.count_total), per_step(info.bytes_total))
}
