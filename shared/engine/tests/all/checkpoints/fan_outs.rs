use std::sync::Arc;

use crate::stage::{PassesOn, Swallows};
use async_trait::async_trait;
use dormouse_engine::{
    Amount, BatchedSaves, CompiledGraph, END, ErrorPolicy, FanOut, GraphBuilder, Middleware, Next, NodeError, State,
    StateSchema, Update,
};
use dormouse_ports::{
    Category, CheckpointRecord, FanOutInstance, FanOutProgress, InstanceProgress, InstanceState, SaveSource,
};
use dormouse_testkit::map;
use dormouse_testkit::{Fault, FaultyCheckpointer};
use serde_json::{Value, json};

use super::world::{World, compiled, int, list, names};

/// Two nodes, `a` and `b`; the second notes its run and fails on items that `fails` names.
fn worker(world: &World, fails: &'static [i64]) -> Arc<CompiledGraph> {
    let ran = world.ran.clone();
    let schema = StateSchema::new().field("item", int(0)).field("out", int(0)).field("twice", int(0));
    let graph = GraphBuilder::new("worker", schema)
        .entry("a")
        .function("a", |state: State| std::future::ready(Ok(Update::none().with("out", item(&state)))))
        .function("b", move |state: State| {
            let item = item(&state);
            ran.lock().unwrap().push(item.to_string());
            std::future::ready(match fails.contains(&item) {
                true => Err(NodeError::new("no")),
                false => Ok(Update::none().with("twice", item * 2)),
            })
        })
        .edge("a", "b")
        .edge("b", END);
    compiled(graph)
}

fn item(state: &State) -> i64 {
    state.get("item").and_then(Value::as_i64).unwrap_or_default()
}

fn over(graph: Arc<CompiledGraph>) -> FanOut {
    let fan_out = FanOut::over(graph).items("items", "item").collect("out", "outs").extra_output("doubled", "twice");
    fan_out.concurrency(Some(Amount::Fixed(1)))
}

fn outer(fan_out: FanOut) -> GraphBuilder {
    let schema = StateSchema::new()
        .field("items", list(json!([10, 20, 30, 40, 50])))
        .field("outs", list(json!([])))
        .field("doubled", int(0))
        .field("errors", list(json!([])))
        .with_version("7");
    GraphBuilder::new("outer", schema).entry("process").fan_out("process", fan_out).edge("process", END)
}

fn progress(world: &World) -> FanOutProgress {
    let record = world.record();
    assert_eq!(record.fan_out_progress.len(), 1, "{record:?}");
    record.fan_out_progress[0].clone()
}

fn states(progress: &FanOutProgress) -> Vec<InstanceState> {
    progress.instances.iter().map(|instance| instance.state).collect()
}

use InstanceState::{Completed, InFlight, NotStarted};

#[tokio::test]
async fn what_a_middleware_passes_on_to_a_fan_out_is_no_part_of_its_checkpoints() {
    let world = World::default();
    let graph = world.graph(outer(over(worker(&world, &[40]))).wrap("process", Arc::new(PassesOn)));
    world.run(&graph, json!({})).await.unwrap_err();
    let saves = world.memory.saves();
    assert!(!saves.is_empty());
    for (record, _) in saves {
        let outermost = record.parent_states.first().unwrap_or(&record.state);
        assert!(!outermost.contains_key("log"), "{record:?}");
    }
}

#[tokio::test]
async fn completed_instances_roll_forward_and_the_others_run() {
    let world = World::default();
    let error = world.run(&world.graph(outer(over(worker(&world, &[40])))), json!({})).await.unwrap_err();
    assert_eq!((error.category(), error.node()), (&Category::NodeException, Some("process")));
    let saved = progress(&world);
    assert_eq!(states(&saved), [Completed, Completed, Completed, InFlight, NotStarted]);
    let results: Vec<_> = saved.instances.iter().map(|instance| instance.result.clone()).collect();
    assert_eq!(results[..4], [json!(10), json!(20), json!(30), json!(null)]);
    assert_eq!(names(&saved.instances[3].completed_inner_positions), ["process/a"]);
    assert_eq!(saved.instances[0].extra_outputs, map(json!({ "twice": 20 })));
    assert!(!names(&world.record().completed_positions).contains(&"process".to_owned()));
    world.ran();
    let state = world.resume(&world.graph(outer(over(worker(&world, &[]))))).await.unwrap();
    assert_eq!((&state["outs"], &state["doubled"]), (&json!([10, 20, 30, 40, 50]), &json!(100)));
    assert_eq!(world.ran(), ["40", "50"]);
}

#[tokio::test]
async fn an_instance_in_flight_starts_over() {
    let world = World::default();
    world.run(&world.graph(outer(over(worker(&world, &[20])))), json!({ "items": [10, 20, 30] })).await.unwrap_err();
    let before = world.memory.saves().len();
    world.resume(&world.graph(outer(over(worker(&world, &[]))))).await.unwrap();
    let saves = &world.memory.saves()[before..];
    let first = &saves[0].0;
    assert_eq!(states(&first.fan_out_progress[0]), [Completed, InFlight, NotStarted]);
    assert_eq!(names(&first.completed_positions), ["process/a"], "it began with its first node again");
}

#[tokio::test]
async fn the_save_of_the_fan_out_itself_has_all_instances_and_later_ones_none() {
    let world = World::default();
    let graph = outer(over(worker(&world, &[])).concurrency(None));
    world.run(&world.graph(graph), json!({ "items": [1, 2] })).await.unwrap();
    let saves = world.memory.saves();
    let sources: Vec<_> = saves.iter().map(|(_, source)| *source).collect();
    let (whole, inner) = sources.split_last().unwrap();
    assert_eq!(*whole, SaveSource::FanOutNode);
    assert!(inner.len() == 4 && inner.iter().all(|source| *source == SaveSource::FanOutInternal), "{inner:?}");
    let record = world.record();
    assert_eq!(states(&record.fan_out_progress[0]), [Completed, Completed]);
    assert_eq!((&record.state["outs"], record.at.unwrap().merged), (&json!([1, 2]), true));
    assert!(saves.iter().all(|(record, _)| record.schema_version == "7"));
}

#[tokio::test]
async fn a_collected_error_counts_once() {
    let world = World::default();
    let collecting =
        |world: &World| outer(over(worker(world, &[30])).error_policy(ErrorPolicy::Collect).errors_field("errors"));
    // Two saves per instance that succeeds, three for the one that fails: a, the failure of b, its contribution.
    let faulty = Arc::new(FaultyCheckpointer::broken_at(world.memory.clone(), 6, Fault::FailAfter));
    let error = world.run(&compiled(collecting(&world).checkpointer(faulty)), json!({})).await.unwrap_err();
    assert_eq!(error.category(), &Category::CheckpointSaveFailed, "no policy collects it");
    let saved = progress(&world);
    assert_eq!(states(&saved), [Completed, Completed, Completed, NotStarted, NotStarted]);
    assert!(saved.instances[2].result_is_error && !saved.instances[1].result_is_error);
    world.ran();
    let state = world.resume(&world.graph(collecting(&world))).await.unwrap();
    assert_eq!(state["outs"], json!([10, 20, 40, 50]));
    assert_eq!(state["errors"], json!([{ "fan_out_index": "2", "category": "node_exception" }]));
    assert_eq!(world.ran(), ["40", "50"]);
}

#[tokio::test]
async fn another_number_of_instances_is_refused_before_any_of_them_runs() {
    for items in [json!([10, 20]), json!([1, 2, 3, 4, 5, 6])] {
        let world = World::default();
        world.run(&world.graph(outer(over(worker(&world, &[40])))), json!({})).await.unwrap_err();
        let mut record = world.record();
        record.parent_states[0].insert("items".to_owned(), items);
        world.memory.seed(record);
        world.ran();
        let graph = outer(over(worker(&world, &[]))).wrap("process", Arc::new(Swallows));
        let error = world.resume(&world.graph(graph)).await.unwrap_err();
        assert_eq!(error.category(), &Category::CheckpointRecordInvalid);
        assert!(world.ran().is_empty());
    }
}

struct Twice;

#[async_trait]
impl Middleware for Twice {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        match next.run(state.clone()).await {
            Ok(update) => Ok(update),
            Err(_) => next.run(state).await,
        }
    }
}

#[tokio::test]
async fn a_second_attempt_at_the_node_takes_nothing_from_the_first() {
    let world = World::default();
    let graph = outer(over(worker(&world, &[30])).error_policy(ErrorPolicy::FailFast)).wrap("process", Arc::new(Twice));
    world.run(&world.graph(graph), json!({})).await.unwrap_err();
    assert_eq!(world.ran(), ["10", "20", "30", "10", "20", "30"]);
    assert_eq!(states(&progress(&world)), [Completed, Completed, InFlight, NotStarted, NotStarted]);
    world.resume(&world.graph(outer(over(worker(&world, &[]))))).await.unwrap();
    assert_eq!(world.ran(), ["30", "40", "50"]);
}

#[tokio::test]
async fn held_back_saves_are_lost_and_their_instances_contribute_once() {
    let world = World::default();
    let items: Vec<i64> = (1..=10).map(|number| number * 10).collect();
    let batched = |world: &World| Arc::new(BatchedSaves::every(10, world.memory.clone()));
    let graph = outer(over(worker(&world, &[80]))).checkpointer(batched(&world));
    world.run(&compiled(graph), json!({ "items": items })).await.unwrap_err();
    assert_eq!(states(&progress(&world))[..6], [Completed, Completed, Completed, Completed, Completed, NotStarted]);
    world.ran();
    let graph = outer(over(worker(&world, &[]))).checkpointer(batched(&world));
    let state = world.resume(&compiled(graph)).await.unwrap();
    assert_eq!(state["outs"], json!(items));
    assert_eq!(world.ran(), ["60", "70", "80", "90", "100"]);
    let (last, source) = world.memory.saves().pop().unwrap();
    assert_eq!((source, last.state["outs"].clone()), (SaveSource::FanOutNode, json!(items)));
}

/// Every instance of the outer fan-out runs an inner one over its own items.
fn nested(world: &World) -> GraphBuilder {
    let runner = StateSchema::new().field("items", list(json!([]))).field("outs", list(json!([])));
    let inner = FanOut::over(worker(world, &[])).items("items", "item").collect("out", "outs");
    let runner = GraphBuilder::new("runner", runner).entry("inner").fan_out("inner", inner).edge("inner", END);
    let schema = StateSchema::new().field("batches", list(json!([[1, 2, 3], [4, 5, 6]]))).field("all", list(json!([])));
    let fan_out = FanOut::over(compiled(runner)).items("batches", "items").collect("outs", "all");
    GraphBuilder::new("nested", schema).entry("outer").fan_out("outer", fan_out).edge("outer", END)
}

fn completed(result: i64) -> InstanceProgress {
    InstanceProgress { state: Completed, result: result.into(), ..InstanceProgress::not_started() }
}

fn inner_progress(lineage: Option<u32>, done: &[i64]) -> FanOutProgress {
    let mut instances: Vec<_> = done.iter().copied().map(completed).collect();
    instances.resize(3, InstanceProgress::not_started());
    let around =
        |fan_out_index| FanOutInstance { namespace: Vec::new(), fan_out_node_name: "outer".into(), fan_out_index };
    FanOutProgress {
        namespace: vec!["outer".into()],
        fan_out_node_name: "inner".into(),
        enclosing_fan_out_lineage: lineage.map(around).into_iter().collect(),
        visit: 0,
        instance_count: 3,
        instances,
    }
}

fn in_flight(world: &World, inner: Vec<FanOutProgress>) -> CheckpointRecord {
    let instance = InstanceProgress { state: InFlight, ..InstanceProgress::not_started() };
    let outer = FanOutProgress {
        namespace: Vec::new(),
        fan_out_node_name: "outer".into(),
        enclosing_fan_out_lineage: Vec::new(),
        visit: 0,
        instance_count: 2,
        instances: vec![instance; 2],
    };
    CheckpointRecord {
        invocation_id: "first".into(),
        correlation_id: "c".to_owned(),
        graph: String::new(),
        state: map(json!({ "batches": [[1, 2, 3], [4, 5, 6]], "all": [] })),
        parent_states: Vec::new(),
        at: None,
        completed_positions: Vec::new(),
        fan_out_progress: [vec![outer], inner].concat(),
        last_saved_at: dormouse_ports::Clock::now(&*world.stage.clock),
        schema_version: String::new(),
        session_version: None,
    }
}

#[tokio::test]
async fn a_nested_fan_out_takes_up_only_what_its_own_enclosing_instance_did() {
    let world = World::default();
    world.memory.seed(in_flight(&world, vec![inner_progress(Some(0), &[1, 2]), inner_progress(Some(1), &[4])]));
    let state = world.resume(&world.graph(nested(&world))).await.unwrap();
    assert_eq!(state["all"], json!([[1, 2, 3], [4, 5, 6]]));
    let mut ran = world.ran();
    ran.sort();
    assert_eq!(ran, ["3", "5", "6"]);
}

#[tokio::test]
async fn an_entry_without_lineage_is_not_applied_to_a_nested_fan_out() {
    let world = World::default();
    world.memory.seed(in_flight(&world, vec![inner_progress(None, &[1, 2])]));
    let state = world.resume(&world.graph(nested(&world))).await.unwrap();
    assert_eq!((&state["all"], world.ran().len()), (&json!([[1, 2, 3], [4, 5, 6]]), 6));
}

#[tokio::test]
async fn only_a_matching_entry_can_drift() {
    let world = World::default();
    let other = |lineage| FanOutProgress { instance_count: 9, ..inner_progress(lineage, &[1]) };
    world.memory.seed(in_flight(&world, vec![other(None)]));
    world.resume(&world.graph(nested(&world))).await.unwrap();
    world.memory.seed(in_flight(&world, vec![other(Some(1))]));
    let error = world.resume(&world.graph(nested(&world))).await.unwrap_err();
    assert_eq!(error.category(), &Category::CheckpointRecordInvalid);
}
