#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::stage::Stage;
use async_trait::async_trait;
use dormouse_engine::{
    CompiledGraph, DrainSummary, END, GraphBuilder, Invocation, NodeError, NodeEvent, Observer, Outcome, Phases,
    Projection, current, drain_current_events,
};
use dormouse_ports::{Clock, InvocationId};
use dormouse_testkit::ManualClock;

use super::cast::Flaky;
use super::cast::{Recorder, compiled, says, schema, single};

/// Takes a second per event.
struct Slow(Arc<Recorder>, Arc<ManualClock>);

#[async_trait]
impl Observer for Slow {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        self.1.sleep(Duration::from_secs(1)).await;
        self.0.observe(event).await
    }
}

/// A graph whose second node drains its own invocation and keeps what it then saw.
struct Drains {
    graph: Arc<CompiledGraph>,
    seen: Arc<OnceLock<(DrainSummary, Vec<String>)>>,
    told: Arc<Recorder>,
}

fn draining(stage: &Stage, timeout: Option<Duration>) -> Drains {
    let told = Arc::new(Recorder::default());
    let seen = Arc::new(OnceLock::new());
    let own = Arc::new(OnceLock::new());
    let clock = stage.clock.clone();
    let told2 = told.clone();
    let seen2 = seen.clone();
    let own2 = own.clone();
    let graph = GraphBuilder::new("g", schema())
        .entry("a")
        .function("a", |_| async { Ok(says("a")) })
        .function("b", move |_| {
            let clock = clock.clone();
            let told = told2.clone();
            let seen = seen2.clone();
            let own = own2.clone();
            async move {
                let graph: &std::sync::Weak<CompiledGraph> = own.get().unwrap();
                let id = current().unwrap().invocation_id.clone();
                let summary = graph.upgrade().unwrap().drain_events_for(&*clock, &id, timeout).await;
                let _ = seen.set((summary, told.lines()));
                Ok(says("b"))
            }
        })
        .edge("a", "b")
        .edge("b", END);
    let graph = compiled(graph);
    own.set(Arc::downgrade(&graph)).unwrap();
    graph.attach_observer(Arc::new(Slow(told.clone(), stage.clock.clone())), Phases::default());
    Drains { graph, seen, told }
}

/// Runs `graph` to its end while time passes in small steps.
async fn run(stage: &Stage, graph: &Arc<CompiledGraph>) -> Outcome {
    let engine = stage.engine();
    let graph = graph.clone();
    let running = tokio::spawn(async move { engine.invoke(&graph, Invocation::default()).await });
    while !running.is_finished() {
        pass(stage).await;
    }
    running.await.unwrap().unwrap()
}

async fn pass(stage: &Stage) {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    stage.clock.advance(Duration::from_millis(100));
}

#[tokio::test]
async fn a_node_waits_for_what_was_emitted_before_it_asked() {
    let stage = Stage::default();
    let drains = draining(&stage, None);
    run(&stage, &drains.graph).await;
    let (summary, seen) = drains.seen.get().unwrap();
    assert_eq!(*summary, DrainSummary::default());
    assert_eq!(*seen, ["started a 0", "completed a 0 ok", "started b 0"]);
    while drains.told.lines().len() < 4 {
        pass(&stage).await;
    }
}

#[tokio::test]
async fn a_timeout_leaves_the_workers_alone() {
    let stage = Stage::default();
    let drains = draining(&stage, Some(Duration::from_millis(500)));
    run(&stage, &drains.graph).await;
    let (summary, _) = drains.seen.get().unwrap();
    assert_eq!(*summary, DrainSummary { undelivered_count: 3, timeout_reached: true });
    while drains.told.lines().len() < 4 {
        pass(&stage).await;
    }
}

#[tokio::test]
async fn other_invocations_and_delivered_ones_are_not_waited_for() {
    let stage = Stage::default();
    let graph = compiled(single(Flaky::default()));
    let told = Arc::new(Recorder::default());
    graph.attach_observer(Arc::new(Slow(told, stage.clock.clone())), Phases::default());
    let call = Invocation { invocation_id: Some("mine".into()), ..Invocation::default() };
    stage.engine().invoke(&graph, call).await.unwrap();
    let of = async |id: &str, timeout| graph.drain_events_for(&*stage.clock, &InvocationId::from(id), timeout).await;
    assert_eq!(of("other", None).await, DrainSummary::default());
    let owed = DrainSummary { undelivered_count: 2, timeout_reached: true };
    assert_eq!(of("mine", Some(Duration::ZERO)).await, owed);
    while graph.drain_events_for(&*stage.clock, &"mine".into(), Some(Duration::ZERO)).await.timeout_reached {
        pass(&stage).await;
    }
    assert_eq!(of("mine", None).await, DrainSummary::default());
}

#[tokio::test]
async fn a_node_deep_inside_drains_without_knowing_its_graph() {
    let stage = Stage::default();
    let clock = stage.clock.clone();
    let summary = Arc::new(OnceLock::new());
    let told = Arc::new(Recorder::default());
    let kept = summary.clone();
    let seen = told.clone();
    let inner = GraphBuilder::new("inner", schema())
        .entry("drain")
        .function("drain", move |_| {
            let clock = clock.clone();
            let kept = kept.clone();
            let seen = seen.clone();
            async move {
                let _ = kept.set((drain_current_events(&*clock, None).await, seen.lines()));
                Ok(says("x"))
            }
        })
        .edge("drain", END);
    let graph = GraphBuilder::new("outer", schema())
        .entry("in")
        .subgraph("in", compiled(inner), Projection::by_name())
        .edge("in", END);
    let graph = compiled(graph);
    graph.attach_observer(Arc::new(Slow(told, stage.clock.clone())), Phases::default());
    run(&stage, &graph).await;
    let (summary, seen) = summary.get().unwrap();
    assert_eq!((*summary, &seen[..]), (DrainSummary::default(), &["started in/drain 0".to_owned()][..]));
    assert_eq!(drain_current_events(&*stage.clock, None).await, DrainSummary::default());
}
