//! Mistakes that Rust does not see, and that would show only where something fails or sleeps.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;

use crate::stage::Stage;
use dormouse_engine::middleware::FailureIsolation;
use dormouse_engine::{
    Answer, Branch, CompiledGraph, Delay, END, EngineError, ErrorPolicy, FanOut, Graph, Invocation, NodeError, Outcome,
    ParallelBranches, Projection, Reducer, Rule, SessionConcurrency, SessionPolicy, Update, Wait, state,
};
use dormouse_ports::Category;
use dormouse_testkit::map;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What is told of an instance that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Failed {
    fan_out_index: String,
    category: String,
}

state! {
    #[derive(Clone, Debug, Default)]
    struct Batch {
        ids: Vec<String>,
        failed: Vec<Failed>,
        names: Vec<String>,
    }
}
state! {
    #[derive(Clone, Debug, Default)]
    struct Visit {
        id: String,
        seen: bool,
    }
}

fn batch(graph: impl FnOnce(Graph<Batch>) -> Graph<Batch>) -> Result<CompiledGraph, EngineError> {
    let fields = Graph::<Batch>::new("batch").reducer(Batch::failed, Reducer::Append);
    let fields = fields.reducer(Batch::names, Reducer::Append).inputs(Batch::ids);
    graph(fields.entry("all")).edge("all", END).compile()
}

fn fan_out(fan_out: FanOut) -> Result<CompiledGraph, EngineError> {
    batch(|graph| graph.fan_out("all", fan_out))
}

fn branches(branches: ParallelBranches) -> Result<CompiledGraph, EngineError> {
    batch(|graph| graph.parallel_branches("all", branches))
}

fn sleeping() -> Arc<CompiledGraph> {
    let graph = Graph::<Visit>::new("visit").entry("ask");
    let graph = graph.wait("ask", |_| Ok(Wait::sleep("s", Delay::days(1))));
    Arc::new(graph.edge("ask", END).compile().unwrap())
}

/// Fails for the id `bad`.
fn going() -> FanOut {
    let graph = Graph::<Visit>::new("visit").entry("go").node("go", async |visit: Visit| match visit.id.as_str() {
        "bad" => Err(NodeError::new("nobody is there")),
        _ => Ok(Visit::seen.set(true)),
    });
    FanOut::over(Arc::new(graph.edge("go", END).compile().unwrap())).items(Batch::ids, Visit::id)
}

#[test]
fn where_errors_are_collected_a_node_that_waits_does_not_compile() {
    let said = "node `all` collects the errors of what it runs at once, and node `ask` of graph `visit`, in one of them, waits, \
                which it may not there: wait in a node of its own, or let it fail fast";
    let over = || FanOut::over(sleeping()).items(Batch::ids, Visit::id);
    let beside = || ParallelBranches::new().branch("b", Branch::subgraph(sleeping(), Projection::by_name()));
    for refused in
        [fan_out(over().error_policy(ErrorPolicy::Collect)), branches(beside().error_policy(ErrorPolicy::Collect))]
    {
        let refused = refused.unwrap_err();
        assert_eq!((refused.category(), refused.message()), (&Category::SuspensionInUnsupportedContext, said));
    }
    for compiled in [fan_out(over()), branches(beside())] {
        let compiled = compiled.unwrap();
        let [warning] = compiled.warnings() else { panic!("{:?}", compiled.warnings()) };
        assert!(warning.starts_with("suspension_beside_others: node `all` of graph `batch`"), "{warning}");
        assert!(warning.contains("node `ask` of graph `visit`"), "{warning}");
        let warning = warning.clone();
        let outer = batch(|graph| graph.subgraph("all", Arc::new(compiled), Projection::by_name())).unwrap();
        assert!(outer.warnings().contains(&warning), "who serves a graph is told of those inside of it");
    }
    assert!(fan_out(going()).unwrap().warnings().is_empty());
}

#[tokio::test]
async fn a_field_that_cannot_take_what_is_told_of_failed_parts_does_not_compile() {
    let collecting = || going().error_policy(ErrorPolicy::Collect);
    let texts = fan_out(collecting().errors_field(Batch::names)).unwrap_err();
    assert_eq!(texts.category(), &Category::StateValidationError);
    assert!(texts.message().contains("the errors field `names` must take items such as"), "{texts}");
    let collecting_branches = ParallelBranches::new().error_policy(ErrorPolicy::Collect).errors_field(Batch::failed);
    let quiet = Branch::subgraph(going_graph(), Projection::by_name());
    let of_instances = branches(collecting_branches.branch("b", quiet)).unwrap_err();
    assert!(of_instances.message().contains("fan_out_index"), "{of_instances}");
    let counted = fan_out(collecting().count_field(Batch::names)).unwrap_err();
    assert_eq!(counted.category(), &Category::MappingReferencesUndeclaredField);

    let graph = Arc::new(fan_out(collecting().errors_field(Batch::failed)).unwrap());
    let call = Invocation { state: map(json!({ "ids": ["a", "bad", "b"] })), ..Invocation::default() };
    let Outcome::Completed(done) = Stage::default().engine().invoke(&graph, call).await.unwrap() else {
        panic!("it suspended")
    };
    let failed = json!([{ "fan_out_index": "1", "category": "node_exception" }]);
    assert_eq!(done.state.get("failed"), Some(&failed));
}

fn going_graph() -> Arc<CompiledGraph> {
    let graph = Graph::<Visit>::new("visit").entry("go").node("go", async |()| Ok(Visit::seen.set(true)));
    Arc::new(graph.edge("go", END).compile().unwrap())
}

#[test]
fn a_failure_isolation_that_degrades_to_what_the_state_does_not_take_does_not_compile() {
    let degrading = |update: Update| {
        let graph = Graph::<Visit>::new("visit").entry("go").node("go", async |()| Ok(Visit::seen.set(true)));
        graph.wrap("go", Arc::new(FailureIsolation::with("left_out", update))).edge("go", END).compile()
    };
    let misspelled = degrading(Update::none().with("sene", true)).unwrap_err();
    assert_eq!(
        (misspelled.category(), misspelled.message()),
        (
            &Category::StateValidationError,
            "graph `visit`: where node `go` fails, its failure isolation gives field `sene` what the state does not take: field \
             `sene` is not declared"
        )
    );
    let other_type = degrading(Update::none().with(Visit::seen, "yes")).unwrap_err();
    assert!(other_type.message().contains("gives field `seen`"), "{other_type}");
    assert!(degrading(Update::none().with(Visit::seen, true)).is_ok());
}

#[tokio::test]
async fn a_node_that_asks_for_two_waits_at_once_ends_with_that() {
    let graph = Graph::<Visit>::new("visit").entry("ask").node("ask", async |()| {
        let wait = |id: &str| Wait::<Visit>::signal(id, Answer::new().required(Visit::seen, Rule::boolean()));
        let (error, _) = futures::future::join(wait("person").suspend(), wait("event").suspend()).await;
        Err(error)
    });
    let graph = Arc::new(graph.edge("ask", END).compile().unwrap());
    let error = Stage::default().engine().invoke(&graph, Invocation::default()).await.unwrap_err();
    assert_eq!((error.category(), error.node()), (&Category::SuspensionInUnsupportedContext, Some("ask")));
    assert!(error.message().contains("two waits at once"), "{error}");
}

#[test]
fn a_session_that_a_sleeper_would_overwrite_is_told_unless_that_was_chosen() {
    let keeping = |sessions: SessionPolicy| {
        let graph = Graph::<Visit>::new("visit").sessions(sessions).entry("ask");
        let graph = graph.wait("ask", |_| Ok(Wait::sleep("s", Delay::days(1))));
        graph.edge("ask", END).compile().unwrap()
    };
    let told = keeping(SessionPolicy::keeping(Visit::seen));
    let [warning] = told.warnings() else { panic!("{:?}", told.warnings()) };
    assert!(warning.starts_with("session_overwritten: node `ask` of graph `visit` waits"), "{warning}");
    for chosen in [SessionConcurrency::LastWriteWins, SessionConcurrency::Optimistic, SessionConcurrency::Rebase] {
        let quiet = keeping(SessionPolicy::keeping(Visit::seen).concurrency(chosen));
        assert!(quiet.warnings().is_empty(), "{:?}", quiet.warnings());
    }
}
