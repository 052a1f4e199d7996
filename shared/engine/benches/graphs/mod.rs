//! The graphs that the benchmarks run, on ports in memory. `reference/reference.py` builds the same in Python.

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{
    AfterError, Amount, CompiledGraph, END, Engine, FanOut, Field, FieldType, GraphBuilder, Invocation, LeaseTerms,
    NodeError, Outcome, Ports, Reducer, Resume, State, StateSchema, Target, Update, suspend,
};
use dormouse_ports::{Map, SignalDescriptor};
use dormouse_testkit::{CountingIds, ManualClock, MemoryStore, NoWakes, TokioSpawner};
use futures::executor::block_on;
use serde_json::{Value, json};

pub(crate) const STEPS: usize = 1_000;

pub(crate) fn engine() -> Engine {
    Engine::new(Ports {
        store: Arc::new(MemoryStore::default()).into(),
        clock: Arc::new(ManualClock::default()),
        ids: Arc::new(CountingIds::default()),
        spawner: Arc::new(TokioSpawner),
        planner: Arc::new(NoWakes),
    })
}

pub(crate) fn schema() -> StateSchema {
    StateSchema::new().field("n", Field::new(FieldType::Int, 0))
}

pub(crate) fn number(state: &State) -> i64 {
    state.get("n").and_then(Value::as_i64).unwrap_or_default()
}

fn counting(state: State) -> futures::future::Ready<Result<Update, NodeError>> {
    futures::future::ready(Ok(Update::none().with("n", number(&state) + 1)))
}

/// `nodes` nodes in a row, each of which counts.
pub(crate) fn linear(schema: StateSchema, nodes: usize) -> Arc<CompiledGraph> {
    let mut graph = GraphBuilder::new("linear", schema).entry("n0");
    for index in 0..nodes {
        let next = if index + 1 == nodes { END } else { Target::from(format!("n{}", index + 1)) };
        graph = graph.function(format!("n{index}"), counting).edge(format!("n{index}"), next);
    }
    Arc::new(graph.compile().unwrap())
}

/// One node that counts until `steps`.
pub(crate) fn looping(schema: StateSchema, steps: usize) -> Arc<CompiledGraph> {
    let most = i64::try_from(steps).unwrap_or(i64::MAX);
    let choose = move |state: &State| Ok(if number(state) < most { Target::from("n") } else { END });
    let graph = GraphBuilder::new("looping", schema).entry("n").function("n", counting).route("n", choose);
    Arc::new(graph.compile().unwrap())
}

pub(crate) fn fan_out(instances: usize) -> Arc<CompiledGraph> {
    let outs = Field::new(FieldType::List(Box::new(FieldType::Int)), json!([])).reduced_by(Reducer::Append);
    let count = Amount::Fixed(i64::try_from(instances).unwrap_or(i64::MAX));
    let all = FanOut::over(linear(schema(), 1)).count(count).collect("n", "outs");
    let graph = GraphBuilder::new("fan_out", StateSchema::new().field("outs", outs)).entry("all").fan_out("all", all);
    Arc::new(graph.edge("all", END).compile().unwrap())
}

pub(crate) fn sleeping() -> Arc<CompiledGraph> {
    let graph = GraphBuilder::new("sleeping", schema())
        .entry("wait")
        .function("wait", |_| async { Err(suspend(SignalDescriptor::new("s")).await) })
        .function("n", counting)
        .edge("wait", "n")
        .edge("n", END);
    Arc::new(graph.compile().unwrap())
}

pub(crate) fn run(engine: &Engine, graph: &Arc<CompiledGraph>) -> Outcome {
    block_on(engine.invoke(graph, Invocation::default())).unwrap()
}

pub(crate) fn suspend_and_resume(engine: &Engine, graph: &Arc<CompiledGraph>) {
    let Outcome::Suspended(pause) = run(engine, graph) else { return };
    let call = Resume {
        payload: Map::new(),
        generation: None,
        claim: LeaseTerms { owner: "w".into(), duration: Duration::from_secs(1), yield_after: None },
        observers: Vec::new(),
        after_error: |_| AfterError::End,
    };
    block_on(engine.resume(graph, &pause.invocation_id, call)).unwrap();
}
