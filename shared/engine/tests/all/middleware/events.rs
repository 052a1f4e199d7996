use std::sync::{Arc, Mutex, OnceLock};

use crate::stage::Stage;
use async_trait::async_trait;
use dormouse_engine::{
    CompiledGraph, END, EmptyPhases, FrameworkEvent, GraphBuilder, Invocation, Middleware, Next, NodeError, NodeEvent,
    Observer, Phase, Phases, Projection, State, Target, Update,
};
use dormouse_ports::Category;
use serde_json::{Value, json};

use super::cast::{Flaky, Recorder, Swallows, compiled, log, says, schema, single, watched};

#[test]
fn nobody_registers_for_nothing() {
    assert_eq!(Phases::of([]), Err(EmptyPhases));
    assert!(Phases::of([Phase::Completed]).is_ok());
}

/// Attaches one observer and takes another off while the graph runs.
#[tokio::test]
async fn registrations_change_with_the_next_invocation() {
    let stage = Stage::default();
    let early = Arc::new(Recorder::default());
    let late = Arc::new(Recorder::default());
    let swap: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
    let during = swap.clone();
    let graph = GraphBuilder::new("g", schema())
        .entry("a")
        .function("a", move |_| {
            let during = during.clone();
            async move {
                if let Some(swap) = during.get() {
                    swap();
                }
                Ok(says("a"))
            }
        })
        .edge("a", END);
    let graph = compiled(graph);
    let handle = Mutex::new(Some(graph.attach_observer(early.clone(), Phases::default())));
    let inside = Arc::downgrade(&graph);
    let new = late.clone();
    let change = move || {
        let graph = inside.upgrade().unwrap();
        let old = handle.lock().unwrap().take();
        if let Some(old) = old {
            graph.detach_observer(old);
            graph.attach_observer(new.clone(), Phases::default());
        }
    };
    assert!(swap.set(Box::new(change)).is_ok());
    for _ in 0..2 {
        stage.engine().invoke(&graph, Invocation::default()).await.unwrap();
        graph.drain(&*stage.clock, None).await;
    }
    assert_eq!(early.lines(), ["started a 0", "completed a 0 ok"], "of the first run, to its end");
    assert_eq!(late.lines(), ["started a 0", "completed a 0 ok"], "of the second run only");
}

#[tokio::test]
async fn a_failing_edge_is_told_by_the_node_before_it() {
    let stage = Stage::default();
    let lost = GraphBuilder::new("g", schema())
        .entry("a")
        .function("a", |_| async { Ok(says("a")) })
        .route("a", |_| Ok(Target::Node("nowhere".into())));
    let (ended, told) = watched(&stage, &compiled(lost)).await;
    assert_eq!(ended.unwrap_err().category(), &Category::RoutingError);
    assert_eq!(told.lines(), ["started a 0", "completed a 0 routing_error"]);

    let raising = GraphBuilder::new("g", schema())
        .entry("a")
        .function("a", |_| async { Ok(says("a")) })
        .route("a", |_| Err(NodeError::new("no way")));
    let (ended, told) = watched(&stage, &compiled(raising)).await;
    assert_eq!(ended.unwrap_err().category(), &Category::EdgeException);
    assert_eq!(told.lines(), ["started a 0", "completed a 0 edge_exception"]);

    let panics = GraphBuilder::new("g", schema())
        .entry("a")
        .function("a", |_| async { Ok(says("a")) })
        .route("a", |_| panic!("no such row: {}", 7));
    let (ended, told) = watched(&stage, &compiled(panics)).await;
    let error = ended.unwrap_err();
    assert_eq!(error.category(), &Category::EdgeException);
    assert_eq!(error.message(), "the route of node `a` of graph `g` panicked: no such row: 7");
    assert_eq!(told.lines(), ["started a 0", "completed a 0 edge_exception"]);

    let astray = GraphBuilder::new("g", schema())
        .entry("a")
        .function("a", |_| async { Ok(says("a")) })
        .function("b", |_| async { Ok(says("b")) })
        .route_among("a", ["b"], |_| Ok(Target::Node("a".into())))
        .edge("b", END);
    let (ended, _) = watched(&stage, &compiled(astray)).await;
    let error = ended.unwrap_err();
    assert_eq!(error.category(), &Category::EdgeException);
    assert!(
        error.to_string().contains("the route of node `a` of graph `g` chose `a`, which is none of the nodes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_failing_merge_is_told_by_the_attempt_whose_update_it_was() {
    let stage = Stage::default();
    let graph = GraphBuilder::new("g", schema())
        .entry("a")
        .function("a", |_| async { Ok(Update::none().with("log", "no list")) })
        .edge("a", END);
    let (_, told) = watched(&stage, &compiled(graph)).await;
    assert_eq!(told.lines(), ["started a 0", "completed a 0 reducer_error"]);
}

struct Answers;

#[async_trait]
impl Middleware for Answers {
    async fn around(&self, _: State, _: Next<'_>) -> Result<Update, NodeError> {
        Ok(says("instead"))
    }
}

struct Transforms;

#[async_trait]
impl Middleware for Transforms {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let mut fields = state.to_map();
        fields.insert("answer".into(), json!(7));
        next.run(State::from(fields)).await
    }
}

#[tokio::test]
async fn events_tell_of_the_node_alone() {
    let stage = Stage::default();
    let (ended, told) = watched(&stage, &compiled(single(Flaky::default()).wrap("work", Arc::new(Answers)))).await;
    assert_eq!((log(ended), told.lines().len()), (json!(["instead"]), 0));

    let (ended, told) = watched(&stage, &compiled(single(Flaky::default()).wrap("work", Arc::new(Transforms)))).await;
    assert_eq!(log(ended), json!(["done"]));
    let events = told.events.lock().unwrap();
    assert!(events.iter().all(|event| event.pre_state.get("answer") == Some(&json!(7))));
    assert_eq!(events[1].post_state.as_ref().unwrap().get("answer"), Some(&Value::Null));
}

/// Notes into a list that it shares with others.
struct Named(&'static str, Arc<Recorder>, bool);

#[async_trait]
impl Observer for Named {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        self.1.note(format!("{} {} {}", self.0, event.phase.as_str(), event.node_name));
        assert!(!self.2, "this observer panics");
        Err(NodeError::new("every observer of this test fails"))
    }

    async fn observe_framework(&self, _: &FrameworkEvent) -> Result<(), NodeError> {
        panic!("nothing is isolated here")
    }
}

#[tokio::test]
async fn the_order_is_outermost_to_owning_graph_then_the_call_and_failures_change_nothing() {
    let stage = Stage::default();
    let told = Arc::new(Recorder::default());
    let named = |name, panics| -> Arc<dyn Observer> { Arc::new(Named(name, told.clone(), panics)) };
    let inner = compiled(single(Flaky::default()));
    let graph = GraphBuilder::new("outer", schema())
        .entry("in")
        .subgraph("in", inner.clone(), Projection::by_name())
        .wrap("in", Arc::new(Swallows))
        .edge("in", END);
    let graph = compiled(graph);
    inner.attach_observer(named("inner", false), Phases::default());
    graph.attach_observer(named("outer 1", true), Phases::default());
    graph.attach_observer(named("outer 2", false), Phases::default());
    let observers = vec![(named("call", false), Phases::default())];
    let ended = stage.engine().invoke(&graph, Invocation { observers, ..Invocation::default() }).await;
    graph.drain(&*stage.clock, None).await;
    assert_eq!(log(ended), json!(["done"]));
    let expected = ["started", "completed"]
        .into_iter()
        .flat_map(|phase| ["outer 1", "outer 2", "inner", "call"].map(|observer| format!("{observer} {phase} work")));
    assert_eq!(told.lines(), expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn who_registers_in_the_midst_is_told_from_the_next_invocation_on() {
    let stage = Stage::default();
    let late = Arc::new(Recorder::default());
    let inner = compiled(single(Flaky::default()));
    let attach: Arc<CompiledGraph> = inner.clone();
    let observer: Arc<dyn Observer> = late.clone();
    let attached = Mutex::new(Some(observer));
    let graph = GraphBuilder::new("outer", schema())
        .entry("attach")
        .function("attach", move |_| {
            let observer = attached.lock().unwrap().take();
            observer.map(|observer| attach.attach_observer(observer, Phases::default()));
            async { Ok(Update::none()) }
        })
        .subgraph("in", inner, Projection::by_name())
        .edge("attach", "in")
        .edge("in", END);
    let graph = compiled(graph);
    watched(&stage, &graph).await.0.unwrap();
    assert!(late.lines().is_empty());
    watched(&stage, &graph).await.0.unwrap();
    assert_eq!(late.lines(), ["started in/work 0", "completed in/work 0 ok"]);
}
