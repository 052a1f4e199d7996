//! Upgrades while invocations sleep: what a graph of another shape makes of a pause, and the report of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{
    CompiledGraph, END, Field, FieldType, GraphBuilder, StateSchema, Update, Upgrade, UpgradePolicy, suspend,
};
use dormouse_harness::{Bucket, FreshTurn, Mode, Transmission, TurnOutcome};
use dormouse_maintenance::MigrationOutcome;
use dormouse_ports::{Category, InvocationStatus, Invocations, Map, SignalDescriptor};
use dormouse_tests::{Stage, map};
use serde_json::json;

fn schema(version: &str) -> StateSchema {
    StateSchema::new().with_version(version).field("x", Field::new(FieldType::Int, 0))
}

/// Sleeps at the node `ask` and goes on at `then`.
fn graph(ask: &str, then: &str, version: &str) -> GraphBuilder {
    GraphBuilder::new("g", schema(version))
        .entry(ask)
        .function(ask, |_| async { Err(suspend(SignalDescriptor::new("s")).await) })
        .function(then, |_| async { Ok(Update::none()) })
        .edge(ask, then)
        .edge(then, END)
}

fn compiled(graph: GraphBuilder) -> Arc<CompiledGraph> {
    Arc::new(graph.compile().unwrap())
}

async fn asleep() -> Stage {
    let stage = Stage::default();
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [compiled(graph("ask", "old", "1"))]);
    let start = FreshTurn { invocation_id: Some("i-1".into()), ..FreshTurn::new("g", Map::new()) };
    assert!(matches!(worker.turn(start).await.outcome, TurnOutcome::Suspended(_)));
    stage
}

/// What the report says of the one pause; a resume must agree.
async fn told(stage: &Stage, graph: GraphBuilder) -> Result<Upgrade, (Category, Bucket, String)> {
    fate(stage, graph).await.1
}

async fn fate(stage: &Stage, graph: GraphBuilder) -> (MigrationOutcome, Result<Upgrade, (Category, Bucket, String)>) {
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [compiled(graph)]);
    let report = dormouse_maintenance::migration_report(&worker, &stage.maintenance(), None).await.unwrap();
    let [pause] = &report.pauses[..] else { panic!("{report:?}") };
    assert_eq!((pause.invocation_id.as_str(), pause.generation, pause.graph.as_str()), ("i-1", 1, "g"));
    let outcome = pause.outcome.clone().map_err(|error| (error.category, error.bucket, error.message));
    if let Err((category, bucket, message)) = &outcome {
        let turn = worker.turn(Transmission::callback("i-1", None, map(json!({ "x": 9 })))).await.outcome;
        let TurnOutcome::Errored(error) = turn else { panic!("{turn:?}") };
        assert_eq!((&error.category, &error.bucket, &error.message), (category, bucket, message));
        let record = stage.store.load_invocation(&"i-1".into()).await.unwrap().unwrap();
        assert_eq!(record.status, InvocationStatus::Suspended, "it sleeps on");
    }
    assert_eq!(pause.fate.goes_on(), outcome.is_ok());
    (pause.fate, outcome)
}

#[tokio::test]
async fn each_outcome_has_a_word() {
    let stage = asleep().await;
    for (graph, expected) in [
        (graph("ask", "old", "1"), MigrationOutcome::Same),
        (graph("ask", "new", "1"), MigrationOutcome::Reshaped),
        (graph("ask", "new", "2").migration("1", "2", Arc::new(Ok)), MigrationOutcome::Migrated),
        (graph("ask", "new", "2"), MigrationOutcome::NeedsMigration),
        (graph("question", "new", "1"), MigrationOutcome::Refused),
        (graph("ask", "new", "1").upgrade(UpgradePolicy::Refuse), MigrationOutcome::Refused),
        (graph("ask", "new", "1").upgrade(UpgradePolicy::Pin), MigrationOutcome::Pinned),
    ] {
        assert_eq!(fate(&stage, graph).await.0, expected);
    }
}

#[tokio::test]
async fn by_default_a_pause_goes_on_in_another_shape_where_its_place_is_still_there() {
    let stage = asleep().await;
    assert_eq!(told(&stage, graph("ask", "old", "1")).await, Ok(Upgrade::Same));
    assert_eq!(told(&stage, graph("ask", "new", "1")).await, Ok(Upgrade::Reshaped));
    let to_two = graph("ask", "new", "2").migration("1", "2", Arc::new(Ok));
    assert_eq!(told(&stage, to_two).await, Ok(Upgrade::Migrated { from: "1".to_owned() }));
    let (category, _, message) = told(&stage, graph("question", "new", "1")).await.unwrap_err();
    assert_eq!(category, Category::SuspensionRecordInvalid);
    assert!(message.contains("`ask`"), "{message}");
    let (category, _, message) = told(&stage, graph("ask", "new", "2")).await.unwrap_err();
    assert_eq!(category, Category::SuspensionRecordInvalid, "{message}");
}

#[tokio::test]
async fn a_pinned_pause_waits_for_the_shape_that_wrote_it() {
    let stage = asleep().await;
    let newer = graph("ask", "new", "1").upgrade(UpgradePolicy::Pin);
    let (category, bucket, _) = told(&stage, newer).await.unwrap_err();
    assert_eq!((category, bucket), (Category::SuspensionPinned, Bucket::RetryableTransient));
    let older = graph("ask", "old", "1").upgrade(UpgradePolicy::Pin);
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [compiled(older)]);
    let turn = worker.turn(Transmission::callback("i-1", None, map(json!({ "x": 9 })))).await.outcome;
    assert!(matches!(&turn, TurnOutcome::Completed(done) if done.state["x"] == 9), "{turn:?}");
    assert_eq!(dormouse_maintenance::migration_report(&worker, &stage.maintenance(), None).await.unwrap().pauses, []);
}

#[tokio::test]
async fn an_answer_that_was_accepted_waits_for_a_version_that_takes_its_pause_up() {
    let stage = asleep().await;
    stage.die_holding("i-1", map(json!({ "x": 9 }))).await;
    let later = || stage.clock.advance(Duration::from_secs(3_600));
    for graph in [
        graph("question", "new", "1"),
        graph("ask", "new", "2"),
        graph("ask", "new", "1").upgrade(UpgradePolicy::Refuse),
        graph("ask", "new", "1").upgrade(UpgradePolicy::Pin),
    ] {
        later();
        let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [compiled(graph)]);
        let turn = worker.take_up(&"i-1".into(), None).await.outcome;
        assert!(matches!(turn, TurnOutcome::Errored(_)), "{turn:?}");
        let status = stage.store.load_invocation(&"i-1".into()).await.unwrap().unwrap().status;
        let InvocationStatus::Resuming(claim) = status else { panic!("the answer is forgotten: {status:?}") };
        assert_eq!((claim.payload, claim.attempts), (map(json!({ "x": 9 })), 1), "only the worker that died counts");
    }
    later();
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [compiled(graph("ask", "old", "1"))]);
    let turn = worker.take_up(&"i-1".into(), None).await.outcome;
    assert!(matches!(&turn, TurnOutcome::Completed(done) if done.state["x"] == 9), "{turn:?}");
}

#[tokio::test]
async fn a_signal_for_a_pause_that_no_version_takes_up_stays_with_its_carrier() {
    let stage = asleep().await;
    let signal = || Transmission::signal("s", map(json!({ "x": 9 })));
    for graph in [
        graph("question", "new", "1"),
        graph("ask", "new", "2"),
        graph("ask", "new", "1").upgrade(UpgradePolicy::Refuse),
    ] {
        let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [compiled(graph)]);
        let turn = worker.turn(signal()).await.outcome;
        let TurnOutcome::Errored(error) = turn else { panic!("{turn:?}") };
        assert!(error.is_unfit(), "whoever sent it does not know: {error:?}");
    }
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [compiled(graph("ask", "old", "1"))]);
    let turn = worker.turn(signal()).await.outcome;
    assert!(matches!(&turn, TurnOutcome::Completed(done) if done.state["x"] == 9), "{turn:?}");
}

#[tokio::test]
async fn a_graph_may_refuse_pauses_of_another_shape() {
    let stage = asleep().await;
    let newer = graph("ask", "new", "1").upgrade(UpgradePolicy::Refuse);
    let (category, bucket, _) = told(&stage, newer).await.unwrap_err();
    assert_eq!((category, bucket), (Category::SuspensionRecordInvalid, Bucket::UserCorrectable));
    assert_eq!(told(&stage, graph("ask", "old", "1").upgrade(UpgradePolicy::Refuse)).await, Ok(Upgrade::Same));
}

#[tokio::test]
async fn a_pause_whose_graph_is_gone_is_reported() {
    let stage = asleep().await;
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, []);
    let report = dormouse_maintenance::migration_report(&worker, &stage.maintenance(), None).await.unwrap();
    let outcome = report.pauses[0].outcome.as_ref().unwrap_err();
    assert_eq!((&outcome.category, report.pauses[0].fate), (&Category::GraphUnknown, MigrationOutcome::GraphUnknown));
}
