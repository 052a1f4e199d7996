use std::sync::{Arc, Mutex};

use crate::stage::{PassesOn, Swallows};
use async_trait::async_trait;
use dormouse_engine::{
    AfterError, CheckpointSaved, END, FrameworkEvent, GraphBuilder, Invocation, LeaseTerms, NodeError, NodeEvent,
    Observer, Outcome, Phases, Projection, Resume, SessionConcurrency, SessionPolicy, Target, current, suspend,
};
use dormouse_ports::{Category, CheckpointFilter, Checkpointer, SaveSource, Sessions, SignalDescriptor};
use dormouse_testkit::map;
use dormouse_testkit::{CheckpointCall, Fault, FaultyCheckpointer};
use serde_json::{Value, json};

use super::world::{World, compiled, first, names, schema};

fn three(world: &World) -> GraphBuilder {
    GraphBuilder::new("three", schema())
        .entry("a")
        .function("a", world.says("a"))
        .function("b", world.fails_once("b"))
        .function("c", world.says("c"))
        .edge("a", "b")
        .edge("b", "c")
        .edge("c", END)
}

#[tokio::test]
async fn every_completed_node_is_saved_with_what_it_left_behind() {
    let world = World::default();
    let graph = world.graph(three(&world));
    world.run(&graph, json!({})).await.unwrap_err();
    world.resume(&graph).await.unwrap();
    let saves = world.memory.saves();
    let seen: Vec<_> = saves.iter().map(|(r, _)| (r.state["log"].clone(), names(&r.completed_positions))).collect();
    let positions = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        seen,
        [
            (json!(["a"]), positions(&["a"])),
            (json!(["a"]), positions(&["a"])), // b failed
            (json!(["a", "b"]), positions(&["a", "b"])),
            (json!(["a", "b", "c"]), positions(&["a", "b", "c"])),
        ]
    );
    assert!(saves.iter().all(|(_, source)| *source == SaveSource::Node));
    assert!(saves.windows(2).all(|pair| pair[0].0.last_saved_at < pair[1].0.last_saved_at || pair[1].0 != pair[0].0));
    let last = &saves[3].0;
    let steps: Vec<_> = last.completed_positions.iter().map(|p| (p.step, p.attempt_index)).collect();
    assert_eq!(steps, [(0, 0), (1, 0), (2, 0)]);
    assert_eq!((&*last.graph, &*last.schema_version, last.parent_states.len()), ("three", "7", 0));
    assert!(last.fan_out_progress.is_empty());
}

#[tokio::test]
async fn time_of_saving_grows_although_the_clock_stands_still() {
    let world = World::default();
    let graph = GraphBuilder::new("two", schema()).entry("a").function("a", world.says("a"));
    let graph = world.graph(graph.function("b", world.says("b")).edge("a", "b").edge("b", END));
    world.run(&graph, json!({})).await.unwrap();
    let times: Vec<_> = world.memory.saves().iter().map(|(record, _)| record.last_saved_at).collect();
    assert!(times[0] < times[1], "{times:?}");
}

#[tokio::test]
async fn what_a_middleware_passes_on_is_no_part_of_the_checkpoint_of_a_failure() {
    let world = World::default();
    let graph = GraphBuilder::new("g", schema()).entry("a").function("a", world.fails_once("a"));
    let graph = world.graph(graph.wrap("a", Arc::new(PassesOn)).edge("a", END));
    world.run(&graph, json!({ "log": ["given"] })).await.unwrap_err();
    assert_eq!(world.record().state["log"], json!(["given"]));
    assert_eq!(world.resume(&graph).await.unwrap(), json!({ "log": ["given", "a"] }));
}

#[derive(Default)]
struct Witness(Mutex<Vec<(String, String, String, u32)>>);

#[async_trait]
impl Observer for Witness {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        let identity = current().unwrap();
        let id = identity.invocation_id.to_string();
        let correlation = identity.correlation_id.clone();
        self.0.lock().unwrap().push((id, correlation, event.node_name.to_string(), event.attempt_index));
        Ok(())
    }
}

/// Notes node events and saves in the order in which it is told.
#[derive(Default)]
struct Clerk(Mutex<Vec<String>>, Mutex<Vec<CheckpointSaved>>);

#[async_trait]
impl Observer for Clerk {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        self.0.lock().unwrap().push(format!("{} {}", event.phase.as_str(), event.node_name));
        Ok(())
    }

    async fn observe_framework(&self, event: &FrameworkEvent) -> Result<(), NodeError> {
        if let FrameworkEvent::CheckpointSaved(saved) = event {
            self.0.lock().unwrap().push(format!("saved {}", saved.at.path.join("/")));
            self.1.lock().unwrap().push(saved.clone());
        }
        Ok(())
    }
}

#[tokio::test]
async fn observers_are_told_of_saves_and_not_of_those_that_failed() {
    let world = World::default();
    let clerk = Arc::new(Clerk::default());
    let faulty = Arc::new(FaultyCheckpointer::broken_at(world.memory.clone(), 2, Fault::FailBefore));
    let graph = compiled(
        GraphBuilder::new("three", schema())
            .entry("a")
            .function("a", world.says("a"))
            .function("b", world.says("b"))
            .function("c", world.says("c"))
            .edge("a", "b")
            .edge("b", "c")
            .edge("c", END)
            .checkpointer(faulty),
    );
    let call = Invocation { observers: vec![(clerk.clone(), Phases::default())], ..first(json!({})) };
    world.stage.engine().invoke(&graph, call).await.unwrap_err();
    graph.drain(&*world.stage.clock, None).await;
    let told = clerk.0.lock().unwrap().clone();
    let node = |name: &str| [format!("started {name}"), format!("completed {name}")];
    let saved = |name: &str| vec![format!("saved {name}")];
    assert_eq!(told, [&node("a")[..], &saved("a"), &node("b"), &saved("b"), &node("c")].concat());
    let events = clerk.1.lock().unwrap().clone();
    let saves = world.memory.saves();
    assert_eq!(events.len(), saves.len());
    for (event, (record, source)) in events.iter().zip(&saves) {
        let count = record.completed_positions.len();
        assert_eq!((event.last_saved_at, event.source), (record.last_saved_at, *source));
        assert_eq!((Some(&event.at), event.completed_node_count), (record.at.as_ref(), count));
    }
}

#[tokio::test]
async fn a_resumed_invocation_has_a_new_id_and_the_old_correlation() {
    let world = World::default();
    let witness = Arc::new(Witness::default());
    let graph = world.graph(three(&world));
    world.run(&graph, json!({})).await.unwrap_err();
    assert_eq!(world.ran(), ["a", "b"]);
    let call = Invocation {
        observers: vec![(witness.clone(), Phases::default())],
        invocation_id: Some("ignored".into()),
        correlation_id: Some("ignored".to_owned()),
        state: map(json!({ "log": ["ignored"] })),
        ..Invocation::default()
    };
    let outcome = world.stage.engine().resume_checkpoint(&graph, &"first".into(), call).await.unwrap();
    let Outcome::Completed(done) = outcome else { panic!("it did not complete") };
    assert_eq!(done.state.get("log"), Some(&json!(["a", "b", "c"])));
    assert_eq!(world.ran(), ["b", "c"]);
    graph.drain(&*world.stage.clock, None).await;
    let id = done.invocation_id.to_string();
    assert!(id != "first" && id != "ignored" && done.correlation_id == "the same work");
    let seen = witness.0.lock().unwrap().clone();
    assert!(
        seen.iter()
            .all(|(seen, correlation, _, attempt)| { (seen, &**correlation, *attempt) == (&id, "the same work", 0) })
    );
    let listed = world.memory.list(&CheckpointFilter::default(), None).await.unwrap().items;
    assert_eq!(listed.len(), 2, "each attempt has a record of its own: {listed:?}");
}

#[tokio::test]
async fn a_record_of_a_finished_invocation_gives_its_end_and_runs_nothing() {
    let world = World::default();
    let graph = world.graph(three(&world));
    world.run(&graph, json!({})).await.unwrap_err();
    let resumed = world.resume(&graph).await.unwrap();
    let (record, _) = world.memory.saves().pop().unwrap();
    world.ran();
    let engine = world.stage.engine();
    let again = engine.resume_checkpoint(&graph, &record.invocation_id, Invocation::default()).await.unwrap();
    assert_eq!((super::world::end(again), world.ran().is_empty()), (resumed, true));
}

#[tokio::test]
async fn nothing_is_saved_without_a_checkpointer_and_nothing_is_found() {
    let world = World::default();
    let graph = compiled(three(&world));
    world.run(&graph, json!({})).await.unwrap_err();
    let without = world.resume(&graph).await.unwrap_err();
    let unknown = world.resume(&world.graph(three(&world))).await.unwrap_err();
    assert_eq!(
        (without.category(), unknown.category()),
        (&Category::CheckpointNotFound, &Category::CheckpointNotFound)
    );
    assert_eq!(world.memory.calls(), [CheckpointCall::Load("first".into())]);
}

#[tokio::test]
async fn a_node_that_fails_first_leaves_a_record_without_positions() {
    let world = World::default();
    let graph = GraphBuilder::new("one", schema()).entry("b").function("b", world.fails_once("b")).edge("b", END);
    let graph = world.graph(graph);
    world.run(&graph, json!({ "log": ["given"] })).await.unwrap_err();
    assert!(world.record().completed_positions.is_empty());
    assert_eq!(world.resume(&graph).await.unwrap()["log"], json!(["given", "b"]));
}

#[tokio::test]
async fn a_failed_edge_runs_its_node_again_on_what_it_was_given() {
    let world = World::default();
    let broken = Mutex::new(true);
    let graph = GraphBuilder::new("one", schema()).entry("a").function("a", world.says("a")).route("a", move |_| {
        if std::mem::take(&mut *broken.lock().unwrap()) { Err(NodeError::new("no")) } else { Ok(Target::End) }
    });
    let graph = world.graph(graph);
    let error = world.run(&graph, json!({})).await.unwrap_err();
    assert_eq!(error.category(), &Category::EdgeException);
    assert_eq!(world.resume(&graph).await.unwrap()["log"], json!(["a"]), "its update counts once");
}

#[tokio::test]
async fn a_subgraph_is_re_entered_where_it_was() {
    let world = World::default();
    let inner = GraphBuilder::new("inner", schema())
        .entry("one")
        .function("one", world.says("one"))
        .function("two", world.fails_once("two"))
        .edge("one", "two")
        .edge("two", END);
    let outer = GraphBuilder::new("outer", schema())
        .entry("before")
        .function("before", world.says("before"))
        .subgraph("dispatch", compiled(inner), Projection::by_name())
        .edge("before", "dispatch")
        .edge("dispatch", END);
    let graph = world.graph(outer);
    world.run(&graph, json!({})).await.unwrap_err();
    let record = world.record();
    assert_eq!(names(&record.completed_positions), ["before", "dispatch/one"]);
    assert_eq!(record.parent_states, [map(json!({ "log": ["before"] }))]);
    assert_eq!((&record.state["log"], record.outermost_state()), (&json!(["one"]), &record.parent_states[0]));
    world.ran();
    let without_save_point = dormouse_ports::CheckpointRecord { at: None, ..record };
    assert_eq!(world.resume(&graph).await.unwrap()["log"], json!(["before", "one", "two"]));
    assert_eq!(world.ran(), ["two"]);
    world.memory.seed(without_save_point);
    assert_eq!(world.resume(&graph).await.unwrap()["log"], json!(["before", "one", "two"]));
    assert_eq!(world.ran(), ["two"], "positions and states alone say where");
}

#[tokio::test]
async fn a_record_that_does_not_fit_the_graph_is_invalid() {
    let world = World::default();
    let graph = world.graph(three(&world));
    world.run(&graph, json!({})).await.unwrap_err();
    let record = world.record();
    let other = GraphBuilder::new("three", schema()).entry("z").function("z", world.says("z")).edge("z", END);
    let renamed = GraphBuilder::new("four", schema()).entry("a").function("a", world.says("a")).edge("a", END);
    let mut broken = record.clone();
    broken.state = map(json!({ "log": "no list" }));
    let mut deep = record.clone();
    deep.parent_states.push(map(json!({})));
    for (graph, record) in
        [(world.graph(other), &record), (world.graph(renamed), &record), (graph.clone(), &broken), (graph, &deep)]
    {
        world.memory.seed(record.clone());
        let error = world.resume(&graph).await.unwrap_err();
        assert_eq!(error.category(), &Category::CheckpointRecordInvalid, "{error}");
    }
}

#[tokio::test]
async fn a_save_that_fails_ends_the_invocation_whoever_would_like_to_catch_it() {
    let world = World::default();
    let inner = GraphBuilder::new("inner", schema()).entry("a").function("a", world.says("a")).edge("a", END);
    let faulty = Arc::new(FaultyCheckpointer::broken_at(world.memory.clone(), 0, Fault::FailBefore));
    let graph = GraphBuilder::new("outer", schema())
        .entry("in")
        .subgraph("in", compiled(inner), Projection::by_name())
        .wrap("in", Arc::new(Swallows))
        .edge("in", END)
        .checkpointer(faulty);
    let error = world.run(&compiled(graph), json!({})).await.unwrap_err();
    assert_eq!((error.category(), error.is_transient()), (&Category::CheckpointSaveFailed, true));
    assert_eq!(error.node(), Some("a"));
}

#[tokio::test]
async fn a_failure_that_cannot_be_saved_is_still_the_nodes_own() {
    let world = World::default();
    let faulty = Arc::new(FaultyCheckpointer::broken_at(world.memory.clone(), 1, Fault::FailBefore));
    let error = world.run(&compiled(three(&world).checkpointer(faulty)), json!({})).await.unwrap_err();
    assert_eq!((error.category(), error.node()), (&Category::NodeException, Some("b")));
}

#[tokio::test]
async fn a_pause_is_no_checkpoint_and_saving_goes_on_behind_it() {
    let world = World::default();
    let graph = GraphBuilder::new("asks", schema())
        .entry("a")
        .function("a", world.says("a"))
        .function("ask", |_| async { Err(suspend(SignalDescriptor::new("s")).await) })
        .function("b", world.says("b"))
        .edge("a", "ask")
        .edge("ask", "b")
        .edge("b", END);
    let graph = world.graph(graph);
    let engine = world.stage.engine();
    assert!(matches!(engine.invoke(&graph, first(json!({}))).await, Ok(Outcome::Suspended(_))));
    assert_eq!(names(&world.record().completed_positions), ["a"], "the pause is kept elsewhere");
    let error = world.resume(&graph).await.unwrap_err();
    assert_eq!(error.category(), &Category::CheckpointRecordInvalid, "{error}");
    let call = Resume {
        payload: map(json!({})),
        generation: None,
        claim: LeaseTerms { owner: "w".into(), duration: std::time::Duration::from_secs(5), yield_after: None },
        observers: Vec::new(),
        after_error: |_| AfterError::End,
    };
    assert!(matches!(engine.resume(&graph, &"first".into(), call).await, Ok(Outcome::Completed(_))));
    assert_eq!(names(&world.record().completed_positions), ["a", "ask", "b"]);
}

#[tokio::test]
async fn a_session_is_saved_at_the_end_of_a_resumed_invocation() {
    let world = World::default();
    let graph = world.graph(three(&world).sessions(SessionPolicy::full_state()));
    let session_id = Some("s".into());
    let call = Invocation { session_id, ..first(json!({})) };
    world.stage.engine().invoke(&graph, call.clone()).await.unwrap_err();
    let call = Invocation { session_id: call.session_id, ..Invocation::default() };
    world.stage.engine().resume_checkpoint(&graph, &"first".into(), call).await.unwrap();
    let session = world.stage.store.load_session(&"s".into(), None).await.unwrap().record.unwrap();
    assert_eq!(session.state["log"], json!(["a", "b", "c"]));
}

#[tokio::test]
async fn a_session_that_was_saved_since_is_undone_only_where_the_last_write_wins() {
    for (concurrency, end) in [
        (SessionConcurrency::LastWriteWins, Ok(json!(["a", "b", "c"]))),
        (SessionConcurrency::Optimistic, Err(Category::SessionWriteConflict)),
        (SessionConcurrency::Rebase, Err(Category::SessionWriteConflict)),
    ] {
        let world = World::default();
        let policy = SessionPolicy::full_state().concurrency(concurrency);
        let graph = world.graph(three(&world).sessions(policy));
        let engine = world.stage.engine();
        let in_session = |call: Invocation| Invocation { session_id: Some("s".into()), ..call };
        engine.invoke(&graph, in_session(first(json!({})))).await.unwrap_err();
        let other = Invocation { invocation_id: Some("other".into()), ..first(json!({})) };
        engine.invoke(&graph, in_session(other)).await.unwrap();
        world.ran();
        let resumed = engine.resume_checkpoint(&graph, &"first".into(), in_session(Invocation::default())).await;
        let resumed = resumed.map(|done| super::world::end(done)["log"].clone());
        assert_eq!(resumed.map_err(|error| error.category().clone()), end, "{concurrency:?}");
        assert_eq!(world.ran().is_empty(), end.is_err(), "{concurrency:?}");
        let session = world.stage.store.load_session(&"s".into(), None).await.unwrap().record.unwrap();
        assert_eq!(session.state["log"], json!(["a", "b", "c"]), "one turn's words");
        if end.is_err() {
            assert_eq!(session.version, 1);
            engine.resume_checkpoint(&graph, &"first".into(), Invocation::default()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_version_is_that_of_the_declared_schema() {
    let world = World::default();
    let graph =
        world.graph(GraphBuilder::new("one", schema()).entry("a").function("a", world.says("a")).edge("a", END));
    world.run(&graph, json!({ "schema_version": "8" })).await.unwrap();
    assert_eq!(
        (world.record().schema_version, &world.record().state["schema_version"]),
        ("7".into(), &Value::from("8"))
    );
}
