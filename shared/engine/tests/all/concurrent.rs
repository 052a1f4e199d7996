//! Fan-out and parallel branches: several things at once inside one node (pipeline-utilities §9, §11).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::{Stage, Swallows};
use async_trait::async_trait;
use dormouse_engine::middleware::FailureIsolation;
use dormouse_engine::{
    AfterError, Amount, Branch, CompiledGraph, END, EngineError, ErrorPolicy, FanOut, Field, FieldType, GraphBuilder,
    Invocation, LeaseTerms, Middleware, Node, NodeError, NodeEvent, Observer, OnEmpty, Outcome, ParallelBranches,
    Phases, Projection, Reducer, Resume, State, StateSchema, Suspended, Update, suspend, suspend_and_rerun,
};
use dormouse_ports::{Category, SignalDescriptor};
use dormouse_testkit::map;
use serde_json::{Value, json};

fn list() -> Field {
    Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append)
}

fn int() -> Field {
    Field::new(FieldType::Int, 0)
}

/// What an instance does with its item.
type Act = fn(i64) -> Result<i64, Trouble>;

enum Trouble {
    Fail,
    Sleep,
    SleepAndRerun,
}

/// One node that yields a few times, fewer for later items, and then acts.
fn worker(act: Act) -> Arc<CompiledGraph> {
    let schema = StateSchema::new().field("item", int()).field("out", int());
    let work = move |state: State| async move {
        let item = state.get("item").and_then(Value::as_i64).unwrap_or_default();
        for _ in item..8 {
            tokio::task::yield_now().await;
        }
        match act(item) {
            Ok(out) => Ok(Update::none().with("out", out)),
            Err(Trouble::Fail) => Err(NodeError::new("no").with_category(Category::ProviderUnavailable)),
            Err(Trouble::Sleep) => Err(suspend(SignalDescriptor::new("s")).await),
            Err(Trouble::SleepAndRerun) => Err(suspend_and_rerun(SignalDescriptor::new("s")).await),
        }
    };
    let graph = GraphBuilder::new("worker", schema).entry("work").function("work", work).edge("work", END);
    Arc::new(graph.compile().unwrap())
}

fn outer(fan_out: FanOut) -> Result<CompiledGraph, EngineError> {
    let items = Field::new(FieldType::List(Box::new(FieldType::Int)), json!([1, 2, 3]));
    let schema = StateSchema::new()
        .field("items", items)
        .field("outs", list())
        .field("errors", list())
        .field("count", int())
        .field("after", Field::new(FieldType::Bool, false));
    GraphBuilder::new("outer", schema)
        .entry("all")
        .fan_out("all", fan_out)
        .function("after", |_| async { Ok(Update::none().with("after", true)) })
        .edge("all", "after")
        .edge("after", END)
        .compile()
}

fn over(act: Act) -> FanOut {
    FanOut::over(worker(act)).items("items", "item").collect("out", "outs")
}

async fn run(graph: CompiledGraph, state: Value) -> Result<Value, EngineError> {
    match Stage::default().engine().invoke(&Arc::new(graph), invocation(state)).await? {
        Outcome::Completed(done) => Ok(Value::Object(done.state.to_map())),
        Outcome::Suspended(pause) => panic!("it suspended: {pause:?}"),
    }
}

fn invocation(state: Value) -> Invocation {
    Invocation { state: map(state), ..Invocation::default() }
}

#[tokio::test]
async fn results_come_in_the_order_of_the_items_whoever_is_done_first() {
    for concurrency in [None, Some(Amount::Fixed(1)), Some(Amount::Fixed(2))] {
        let graph = outer(over(|item| Ok(item * 10)).concurrency(concurrency).count_field("count")).unwrap();
        let state = run(graph, json!({})).await.unwrap();
        assert_eq!((&state["outs"], &state["count"]), (&json!([10, 20, 30]), &json!(3)));
    }
}

#[tokio::test]
async fn the_first_error_is_raised_and_nothing_is_merged() {
    let graph = outer(over(|item| if item == 2 { Err(Trouble::Fail) } else { Ok(item) })).unwrap();
    let error = run(graph, json!({})).await.unwrap_err();
    assert_eq!(
        (error.category(), error.derived_category()),
        (&Category::NodeException, &Category::ProviderUnavailable)
    );
    assert_eq!((error.node(), error.state().unwrap().get("outs")), (Some("all"), Some(&json!([]))));
}

/// Counts when it is dropped.
struct CleansUp(Arc<AtomicUsize>);

impl Drop for CleansUp {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn instances_that_another_one_ends_can_clean_up() {
    let troubles: [fn() -> Trouble; 2] = [|| Trouble::Fail, || Trouble::Sleep];
    for trouble in troubles {
        let cleaned = Arc::new(AtomicUsize::new(0));
        let counted = cleaned.clone();
        let work = move |state: State| {
            let held = CleansUp(counted.clone());
            async move {
                match (state.get("item").and_then(Value::as_i64), trouble()) {
                    (Some(3), Trouble::Sleep) => Err(suspend(SignalDescriptor::new("s")).await),
                    (Some(3), Trouble::Fail | Trouble::SleepAndRerun) => Err(NodeError::new("no")),
                    (_, _) => {
                        let _held = held;
                        futures::future::pending::<Result<Update, NodeError>>().await
                    }
                }
            }
        };
        let schema = StateSchema::new().field("item", int()).field("out", int());
        let inner = GraphBuilder::new("inner", schema).entry("work").function("work", work).edge("work", END);
        let fan_out = FanOut::over(Arc::new(inner.compile().unwrap())).items("items", "item").collect("out", "outs");
        let graph = Arc::new(outer(fan_out).unwrap());
        let ended = Stage::default().engine().invoke(&graph, invocation(json!({}))).await;
        assert!(matches!(ended, Err(_) | Ok(Outcome::Suspended(_))), "{ended:?}");
        assert_eq!(cleaned.load(Ordering::Relaxed), 3, "of the others, and of the one that ended them");
    }
}

#[tokio::test]
async fn where_the_state_of_an_instance_does_not_fit_none_of_its_nodes_runs() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let schema = StateSchema::new().field("item", Field::new(FieldType::Str, "")).field("out", int());
    let work = move |_: State| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Update::none().with("item", "a text after all")))
    };
    let inner = GraphBuilder::new("inner", schema).entry("work").function("work", work).edge("work", END);
    let fan_out = FanOut::over(Arc::new(inner.compile().unwrap())).items("items", "item").collect("out", "outs");
    let error = run(outer(fan_out).unwrap(), json!({})).await.unwrap_err();
    assert_eq!(error.derived_category(), &Category::StateValidationError);
    assert!(error.message().contains("graph `inner` cannot begin: field `item`"), "{error}");
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn collected_errors_are_recorded_and_their_slots_left_out() {
    let fan_out = over(|item| if item == 2 { Err(Trouble::Fail) } else { Ok(item) });
    let graph = outer(fan_out.error_policy(ErrorPolicy::Collect).errors_field("errors")).unwrap();
    let state = run(graph, json!({})).await.unwrap();
    assert_eq!(state["outs"], json!([1, 3]));
    assert_eq!(state["errors"], json!([{ "fan_out_index": "1", "category": "node_exception" }]));
}

#[tokio::test]
async fn without_items_it_raises_unless_told_otherwise() {
    let error = run(outer(over(Ok)).unwrap(), json!({ "items": [] })).await.unwrap_err();
    assert_eq!(error.derived_category(), &Category::FanOutEmpty);
    let graph = outer(over(Ok).on_empty(OnEmpty::Noop).count_field("count")).unwrap();
    assert_eq!(run(graph, json!({ "items": [], "count": 9 })).await.unwrap()["count"], 0);
}

#[tokio::test]
async fn numbers_that_make_no_sense_are_errors() {
    let of_count = |count| FanOut::over(worker(Ok)).count(Amount::Fixed(count)).collect("out", "outs");
    for count in [-1, 100_001, 1_000_000_000_000] {
        let error = run(outer(of_count(count)).unwrap(), json!({})).await.unwrap_err();
        assert_eq!(error.derived_category(), &Category::FanOutInvalidCount);
        assert!(error.message().contains(&format!("from 0 to 100000, and is {count}")), "{error}");
    }
    let none_at_once = of_count(2).concurrency(Some(Amount::Fixed(0)));
    let error = run(outer(none_at_once).unwrap(), json!({})).await.unwrap_err();
    assert_eq!(error.derived_category(), &Category::FanOutInvalidConcurrency);
    assert_eq!(run(outer(of_count(2)).unwrap(), json!({})).await.unwrap()["outs"], json!([0, 0]));
}

#[test]
fn mistakes_are_found_when_the_graph_is_compiled() {
    let refused = |fan_out: FanOut| outer(fan_out).unwrap_err().category().clone();
    assert_eq!(refused(over(Ok).count(Amount::Fixed(1))), Category::FanOutCountModeAmbiguous);
    assert_eq!(refused(FanOut::over(worker(Ok)).items("count", "item")), Category::FanOutFieldNotList);
    assert_eq!(refused(over(Ok).errors_field("nowhere")), Category::MappingReferencesUndeclaredField);
    assert_eq!(refused(over(Ok).errors_field("count")), Category::FanOutFieldNotList);
    assert_eq!(
        refused(over(Ok).errors_field("items")),
        Category::ReducerConfigurationInvalid,
        "its items are replaced"
    );
    let degrading = |field: &'static str| -> Arc<dyn Middleware> {
        Arc::new(FailureIsolation::with(field, Update::none().with(field, 1)))
    };
    assert!(outer(over(Ok).wrap(degrading("out")).wrap(degrading("out"))).is_ok());
    for fields in [["out", "item"], ["item", "out"]] {
        let [outside, inside] = fields.map(degrading);
        assert_eq!(
            refused(over(Ok).wrap(outside).wrap(inside)),
            Category::FanOutDegradedUpdateMissingCollectField,
            "{fields:?}"
        );
    }
    let doubled = FanOut::over(worker(Ok)).items("outs", "out").collect("out", "outs");
    assert!(outer(doubled).unwrap().warnings()[0].starts_with("projection_reducer_round_trip"));
}

async fn asleep(stage: &Stage, graph: &Arc<CompiledGraph>) -> Box<Suspended> {
    match stage.engine().invoke(graph, invocation(json!({}))).await.unwrap() {
        Outcome::Suspended(pause) => pause,
        Outcome::Completed(done) => panic!("it completed: {done:?}"),
    }
}

async fn woken(stage: &Stage, graph: &Arc<CompiledGraph>, pause: &Suspended, payload: Value) -> Value {
    let call = Resume {
        payload: map(payload),
        generation: None,
        claim: LeaseTerms { owner: "w".into(), duration: Duration::from_secs(5), yield_after: None },
        observers: Vec::new(),
        after_error: |_| AfterError::End,
    };
    match stage.engine().resume(graph, &pause.invocation_id, call).await.unwrap() {
        Outcome::Completed(done) => Value::Object(done.state.to_map()),
        Outcome::Suspended(pause) => panic!("it suspended again: {pause:?}"),
    }
}

#[tokio::test]
async fn when_an_instance_suspends_the_whole_node_does_with_what_is_done_so_far() {
    let graph = over(|item| if item == 1 { Err(Trouble::Sleep) } else { Ok(item) });
    let stage = Stage::default();
    let graph = Arc::new(outer(graph).unwrap());
    let pause = asleep(&stage, &graph).await;
    assert_eq!((pause.suspending_node(), &*pause.node_name), ("all", "work"));
    assert_eq!(pause.descriptor.metadata, Some(map(json!({ "fan_out_index": 0 }))));
    let state = woken(&stage, &graph, &pause, json!({})).await;
    assert_eq!((&state["outs"], &state["after"]), (&json!([2, 3]), &json!(true)));
}

#[tokio::test]
async fn an_instance_may_ask_for_the_whole_node_to_run_again() {
    let graph = over(|item| if item == 3 { Err(Trouble::SleepAndRerun) } else { Ok(item) });
    let stage = Stage::default();
    let graph = Arc::new(outer(graph).unwrap());
    let pause = asleep(&stage, &graph).await;
    let state = woken(&stage, &graph, &pause, json!({ "items": [5, 6], "outs": [] })).await;
    assert_eq!((&state["outs"], &state["after"]), (&json!([5, 6]), &json!(true)));
}

#[tokio::test]
async fn under_collect_a_suspension_is_refused_and_nobody_can_swallow_that() {
    let sleepy = over(|_| Err(Trouble::Sleep)).error_policy(ErrorPolicy::Collect);
    let error = run(outer(sleepy.wrap(Arc::new(Swallows))).unwrap(), json!({})).await.unwrap_err();
    assert_eq!(error.category(), &Category::SuspensionInUnsupportedContext);
}

struct Call(Result<Update, &'static str>);

#[async_trait]
impl Node for Call {
    async fn run(&self, _: State) -> Result<Update, NodeError> {
        match &self.0 {
            Ok(update) => Ok(update.clone()),
            Err("sleep") => Err(suspend(SignalDescriptor::new("s")).await),
            Err(reason) => Err(NodeError::new(*reason)),
        }
    }
}

fn call(result: Result<Update, &'static str>) -> Branch {
    Branch::call(Arc::new(Call(result)))
}

#[tokio::test]
async fn under_collect_a_call_beside_others_inside_of_an_instance_may_not_suspend_either() {
    let schema = StateSchema::new().field("item", int()).field("out", int());
    let branches = ParallelBranches::new().branch("asks", call(Err("sleep")));
    let inner = GraphBuilder::new("inner", schema).entry("side").parallel_branches("side", branches).edge("side", END);
    let collecting = FanOut::over(Arc::new(inner.compile().unwrap())).items("items", "item").collect("out", "outs");
    let error = run(outer(collecting.error_policy(ErrorPolicy::Collect)).unwrap(), json!({})).await.unwrap_err();
    assert_eq!(error.category(), &Category::SuspensionInUnsupportedContext);
}

fn adds(value: i64) -> Result<Update, &'static str> {
    Ok(Update::none().with("outs", json!([value])))
}

fn beside(branches: ParallelBranches) -> Result<CompiledGraph, EngineError> {
    let schema = StateSchema::new().field("outs", list()).field("errors", list()).field("item", int());
    let graph = GraphBuilder::new("beside", schema).entry("all").parallel_branches("all", branches);
    graph.edge("all", END).compile()
}

#[tokio::test]
async fn branches_are_merged_in_the_order_of_their_declaration() {
    let projection = Projection::by_name().input("item", "item").output("item", "out");
    let branches = ParallelBranches::new()
        .branch("graph", Branch::subgraph(worker(|item| Ok(item + 1)), projection))
        .branch("first", call(adds(1)))
        .branch("never", call(adds(2)).when(Arc::new(|_| false)))
        .branch("last", call(adds(3)));
    let state = run(beside(branches).unwrap(), json!({ "item": 7 })).await.unwrap();
    assert_eq!((&state["outs"], &state["item"]), (&json!([1, 3]), &json!(8)));
}

#[tokio::test]
async fn a_failed_branch_is_named() {
    let branches = || ParallelBranches::new().branch("good", call(adds(1))).branch("bad", call(Err("no")));
    let error = run(beside(branches()).unwrap(), json!({})).await.unwrap_err();
    assert_eq!(error.category(), &Category::ParallelBranchesBranchFailed);
    assert_eq!(error.details()["branch_name"], "bad");
    let collecting = branches().error_policy(ErrorPolicy::Collect).errors_field("errors");
    let state = run(beside(collecting).unwrap(), json!({})).await.unwrap();
    assert_eq!(state["outs"], json!([1]));
    assert_eq!(state["errors"][0]["branch_name"], "bad");
}

#[tokio::test]
async fn a_branch_may_suspend_for_the_whole_node() {
    let branches = ParallelBranches::new().branch("done", call(adds(1))).branch("asks", call(Err("sleep")));
    let stage = Stage::default();
    let graph = Arc::new(beside(branches).unwrap());
    let pause = asleep(&stage, &graph).await;
    assert_eq!(pause.descriptor.metadata, Some(map(json!({ "branch_name": "asks" }))));
    assert_eq!(woken(&stage, &graph, &pause, json!({})).await["outs"], json!([1]));
}

#[test]
fn branches_must_be_one_thing_each() {
    let refused = |branches| beside(branches).unwrap_err().category().clone();
    assert_eq!(refused(ParallelBranches::new()), Category::ParallelBranchesNoBranches);
    let both = Branch::subgraph(worker(Ok), Projection::by_name()).and_call(Arc::new(Call(adds(1))));
    assert_eq!(refused(ParallelBranches::new().branch("b", both)), Category::ParallelBranchesInvalidBranchSpec);
    let twice = ParallelBranches::new().branch("b", call(adds(1))).branch("b", call(adds(2)));
    assert_eq!(refused(twice), Category::ParallelBranchesInvalidBranchSpec);
}

#[derive(Default)]
struct Chains(Mutex<Vec<Value>>);

#[async_trait]
impl Observer for Chains {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        assert_eq!(event.parent_states.len(), event.namespace.len() - 1);
        assert_eq!(event.fan_out_index_chain.len(), event.namespace.len() - 1);
        let phase = event.phase.as_str();
        self.0.lock().unwrap().push(json!([
            phase,
            event.node_name,
            event.fan_out_index_chain,
            event.branch_name_chain
        ]));
        Ok(())
    }
}

#[tokio::test]
async fn events_carry_the_whole_lineage() {
    let inner = outer(over(Ok).concurrency(Some(Amount::Fixed(1)))).unwrap();
    let branch = Branch::subgraph(Arc::new(inner), Projection::by_name());
    let graph = Arc::new(beside(ParallelBranches::new().branch("b", branch)).unwrap());
    let stage = Stage::default();
    let chains = Arc::new(Chains::default());
    let call = Invocation { observers: vec![(chains.clone(), Phases::default())], ..invocation(json!({})) };
    stage.engine().invoke(&graph, call).await.unwrap();
    graph.drain(&*stage.clock, None).await;
    let seen = chains.0.lock().unwrap();
    assert_eq!(seen[0], json!(["started", "all", [], []]));
    assert_eq!(seen[1], json!(["started", "all", [null], ["b"]]));
    assert_eq!(seen[2], json!(["started", "work", [null, 0], ["b", null]]));
}
