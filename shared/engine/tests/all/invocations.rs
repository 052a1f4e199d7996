//! The engine on ports in memory: what application authors rely on.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::stage::{PassesOn, Stage, Swallows};
use async_trait::async_trait;
use dormouse_engine::{
    AfterError, CompiledGraph, END, Engine, Field, FieldType, GraphBuilder, Invocation, LeaseTerms, Middleware, Next,
    Node, NodeError, NodeEvent, Observer, Outcome, Phases, Projection, Reducer, Resume, SessionConcurrency,
    SessionPolicy, State, StateSchema, Suspended, Update, save_session, suspend, suspend_and_rerun,
};
use dormouse_ports::{Category, InvocationLimits, InvocationStatus, Invocations, Sessions, SignalDescriptor, Signals};
use dormouse_testkit::map;
use serde_json::{Value, json};

fn schema() -> StateSchema {
    StateSchema::new()
        .field("log", Field::new(FieldType::List(Box::new(FieldType::Str)), json!([])).reduced_by(Reducer::Append))
        .field("answer", Field::new(FieldType::Optional(Box::new(FieldType::Int)), Value::Null))
}

fn says(word: &'static str) -> impl Fn(State) -> futures::future::Ready<Result<Update, NodeError>> {
    move |_| futures::future::ready(Ok(Update::none().with("log", json!([word]))))
}

fn asking(name: &str) -> GraphBuilder {
    GraphBuilder::new(name, schema())
        .entry("before")
        .function("before", says("before"))
        .function("ask", |_| async { Err(suspend(SignalDescriptor::new("s").with("kind", "question")).await) })
        .function("after", says("after"))
        .edge("before", "ask")
        .edge("ask", "after")
        .edge("after", END)
}

fn compiled(graph: GraphBuilder) -> Arc<CompiledGraph> {
    Arc::new(graph.compile().unwrap())
}

fn resume(payload: Value) -> Resume {
    Resume {
        payload: map(payload),
        generation: None,
        claim: LeaseTerms { owner: "resumer".into(), duration: Duration::from_secs(5), yield_after: None },
        observers: Vec::new(),
        after_error: |_| AfterError::End,
    }
}

async fn pause(engine: &Engine, graph: &Arc<CompiledGraph>, call: Invocation) -> Box<Suspended> {
    match engine.invoke(graph, call).await.unwrap() {
        Outcome::Suspended(pause) => pause,
        Outcome::Completed(done) => panic!("it did not suspend: {done:?}"),
    }
}

fn state(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Completed(done) => Value::Object(done.state.to_map()),
        Outcome::Suspended(pause) => panic!("it did not complete: {pause:?}"),
    }
}

#[tokio::test]
async fn a_pause_goes_on_behind_the_suspending_node() {
    let stage = Stage::default();
    let graph = compiled(asking("g"));
    let paused = pause(&stage.engine(), &graph, Invocation::default()).await;
    assert_eq!((&*paused.node_name, paused.generation), ("ask", 1));
    assert_ne!(paused.correlation_id, paused.invocation_id.as_str(), "each identity is one of its own");
    assert_eq!(paused.state.get("log"), Some(&json!(["before"])));
    let another_machine = stage.engine();
    let payload = json!({ "answer": 42, "unknown": true });
    let done = another_machine.resume(&graph, &paused.invocation_id, resume(payload)).await.unwrap();
    assert_eq!(state(done), json!({ "log": ["before", "after"], "answer": 42 }));
}

#[tokio::test]
async fn a_finished_invocation_is_not_resumed_again() {
    let stage = Stage::default();
    let graph = compiled(asking("g"));
    let id = pause(&stage.engine(), &graph, Invocation::default()).await.invocation_id;
    stage.engine().resume(&graph, &id, resume(json!({}))).await.unwrap();
    let error = stage.engine().resume(&graph, &id, resume(json!({}))).await.unwrap_err();
    assert_eq!(error.category(), &Category::SuspensionRecordInvalid);
}

#[tokio::test]
async fn a_payload_that_does_not_fit_leaves_it_asleep() {
    let stage = Stage::default();
    let graph = compiled(asking("g"));
    let id = pause(&stage.engine(), &graph, Invocation::default()).await.invocation_id;
    let error = stage.engine().resume(&graph, &id, resume(json!({ "answer": "no" }))).await.unwrap_err();
    assert_eq!(error.category(), &Category::SuspensionResumePayloadInvalid);
    assert!(error.message().contains("`answer`"), "{error}");
    let done = stage.engine().resume(&graph, &id, resume(json!({ "answer": 1 }))).await.unwrap();
    assert_eq!(state(done)["answer"], 1);
}

#[tokio::test]
async fn a_node_may_run_again_with_the_payload() {
    let graph = compiled(
        GraphBuilder::new("g", schema())
            .entry("ask")
            .function("ask", |state: State| async move {
                match state.get("answer").and_then(Value::as_i64) {
                    Some(answer) => Ok(Update::none().with("log", json!([format!("heard {answer}")]))),
                    None => Err(suspend_and_rerun(SignalDescriptor::new("s")).await),
                }
            })
            .edge("ask", END),
    );
    let stage = Stage::default();
    let id = pause(&stage.engine(), &graph, Invocation::default()).await.invocation_id;
    let events = Arc::new(Recorder::default());
    let call = Resume { observers: vec![(events.clone(), Phases::default())], ..resume(json!({ "answer": 7 })) };
    assert_eq!(state(stage.engine().resume(&graph, &id, call).await.unwrap())["log"], json!(["heard 7"]));
    graph.drain(&*stage.clock, None).await;
    assert_eq!(events.lines(), ["started ask step 0 attempt 0", "completed ask step 0 attempt 0"]);
}

#[tokio::test]
async fn a_pause_inside_subgraphs_is_re_entered_at_the_innermost_node() {
    let inner = compiled(asking("inner"));
    let nest = |name: &str, graph| {
        let projection =
            Projection::by_name().input("answer", "answer").output("log", "log").output("answer", "answer");
        compiled(GraphBuilder::new(name, schema()).entry("in").subgraph("in", graph, projection).edge("in", END))
    };
    let outer = nest("outer", nest("middle", inner));
    let stage = Stage::default();
    let paused = pause(&stage.engine(), &outer, Invocation::default()).await;
    assert_eq!(paused.suspending_node(), "in");
    assert_eq!(paused.namespace.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["in", "in", "ask"]);
    let done = stage.engine().resume(&outer, &paused.invocation_id, resume(json!({ "answer": 3 }))).await.unwrap();
    assert_eq!(state(done), json!({ "log": ["before", "after"], "answer": 3 }));
}

#[tokio::test]
async fn what_a_middleware_passes_on_to_a_subgraph_does_not_become_the_state_around_it() {
    let stage = Stage::default();
    let projection = Projection::by_name().output("answer", "answer");
    let graph = compiled(
        GraphBuilder::new("outer", schema())
            .entry("before")
            .function("before", says("before"))
            .subgraph("in", compiled(asking("inner")), projection)
            .wrap("in", Arc::new(PassesOn))
            .edge("before", "in")
            .edge("in", END),
    );
    let paused = pause(&stage.engine(), &graph, Invocation::default()).await;
    assert_eq!(paused.state.get("log"), Some(&json!(["before"])));
    let done = stage.engine().resume(&graph, &paused.invocation_id, resume(json!({ "answer": 3 }))).await.unwrap();
    assert_eq!(state(done), json!({ "log": ["before"], "answer": 3 }));
}

#[tokio::test]
async fn outside_of_an_invocation_suspend_is_an_error() {
    let error = suspend(SignalDescriptor::new("s")).await;
    assert_eq!(error.category(), Some(&Category::SuspensionInUnsupportedContext));
}

struct Logs(Arc<Mutex<Vec<&'static str>>>);

#[async_trait]
impl Middleware for Logs {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        self.0.lock().unwrap().push("before");
        let update = next.run(state).await;
        self.0.lock().unwrap().push("after");
        update
    }
}

struct Suspends;

#[async_trait]
impl Middleware for Suspends {
    async fn around(&self, _: State, _: Next<'_>) -> Result<Update, NodeError> {
        Err(suspend(SignalDescriptor::new("s")).await)
    }
}

#[tokio::test]
async fn no_middleware_sees_a_suspension() {
    let stage = Stage::default();
    let log = Arc::default();
    let graph = compiled(asking("g").wrap("ask", Arc::new(Swallows)).wrap("ask", Arc::new(Logs(Arc::clone(&log)))));
    pause(&stage.engine(), &graph, Invocation::default()).await;
    assert_eq!(*log.lock().unwrap(), ["before"]);
}

#[tokio::test]
async fn a_middleware_may_not_suspend_and_nobody_can_swallow_that() {
    let stage = Stage::default();
    let graph = compiled(asking("g").wrap("before", Arc::new(Swallows)).wrap("before", Arc::new(Suspends)));
    let error = stage.engine().invoke(&graph, Invocation::default()).await.unwrap_err();
    assert_eq!(error.category(), &Category::SuspensionInUnsupportedContext);
}

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl Observer for Recorder {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        let phase = event.phase.as_str();
        let name = &event.node_name;
        let line = format!("{phase} {name} step {} attempt {}", event.step, event.attempt_index);
        assert_eq!(event.parent_states.len(), event.namespace.len() - 1);
        self.0.lock().unwrap().push(line);
        Ok(())
    }
}

#[tokio::test]
async fn observers_see_started_and_suspended_in_order() {
    let stage = Stage::default();
    let graph = compiled(asking("g"));
    let events = Arc::new(Recorder::default());
    graph.attach_observer(events.clone(), Phases::default());
    let id = pause(&stage.engine(), &graph, Invocation::default()).await.invocation_id;
    stage.engine().resume(&graph, &id, resume(json!({}))).await.unwrap();
    assert_eq!(graph.drain(&*stage.clock, None).await.undelivered_count, 0);
    let expected = [
        "started before step 0 attempt 0",
        "completed before step 0 attempt 0",
        "started ask step 1 attempt 0",
        "suspended ask step 1 attempt 0",
        "started after step 2 attempt 0",
        "completed after step 2 attempt 0",
    ];
    assert_eq!(events.lines(), expected);
}

struct Stuck;

#[async_trait]
impl Observer for Stuck {
    async fn observe(&self, _: &NodeEvent) -> Result<(), NodeError> {
        futures::future::pending().await
    }
}

#[tokio::test]
async fn a_stuck_observer_delays_nobody_but_the_drain() {
    let stage = Stage::default();
    let graph = compiled(asking("g"));
    graph.attach_observer(Arc::new(Stuck), Phases::default());
    pause(&stage.engine(), &graph, Invocation::default()).await;
    let clock = stage.clock.clone();
    let draining = graph.clone();
    let drain = tokio::spawn(async move { draining.drain(&*clock, Some(Duration::from_secs(1))).await });
    while stage.clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    stage.clock.advance(Duration::from_secs(1));
    let summary = drain.await.unwrap();
    assert!(summary.timeout_reached && summary.undelivered_count == 4, "{summary:?}");
}

#[tokio::test]
async fn a_panic_is_a_node_exception_with_the_state_before_it() {
    let stage = Stage::default();
    let graph = compiled(
        GraphBuilder::new("g", schema())
            .entry("a")
            .function("a", says("a"))
            .function("b", |_| async { panic!("a bug") })
            .edge("a", "b")
            .edge("b", END),
    );
    let error = stage.engine().invoke(&graph, Invocation::default()).await.unwrap_err();
    assert_eq!((error.category(), error.node()), (&Category::NodeException, Some("b")));
    assert_eq!(error.state().unwrap().get("log"), Some(&json!(["a"])));
}

/// An observer with a bug.
struct Buggy;

#[async_trait]
impl Observer for Buggy {
    async fn observe(&self, _: &NodeEvent) -> Result<(), NodeError> {
        Ok(())
    }

    fn trace_context(&self, _: Option<&str>) -> Option<String> {
        panic!("a bug")
    }
}

#[tokio::test]
async fn an_observer_that_panics_takes_no_call_with_it() {
    let stage = Stage::default();
    let graph = compiled(GraphBuilder::new("g", schema()).entry("a").function("a", says("a")).edge("a", END));
    graph.attach_observer(Arc::new(Buggy), Phases::default());
    let done = stage.engine().invoke(&graph, Invocation::default()).await.unwrap();
    assert_eq!(state(done)["log"], json!(["a"]));
}

#[tokio::test]
async fn a_failed_merge_changes_no_field_at_all() {
    let stage = Stage::default();
    let graph = compiled(
        GraphBuilder::new("g", schema())
            .entry("a")
            .function("a", |_| async { Ok(Update::none().with("answer", 1).with("log", "not a list")) })
            .edge("a", END),
    );
    let error = stage.engine().invoke(&graph, Invocation::default()).await.unwrap_err();
    assert_eq!(error.category(), &Category::ReducerError);
    assert_eq!((&error.details()["field"], &error.details()["reducer"]), (&json!("log"), &json!("append")));
    assert_eq!(error.state().unwrap().get("answer"), Some(&Value::Null));
}

#[tokio::test]
async fn a_reducer_that_panics_is_a_reducer_error_with_the_state_before_it() {
    let stage = Stage::default();
    let reduce = |_: &Value, _: Value| -> Result<Value, String> { panic!("a bug") };
    let reducer = Reducer::Custom { name: "buggy".into(), reduce: Arc::new(reduce) };
    let graph = compiled(
        GraphBuilder::new("g", schema().reducer("answer", reducer))
            .entry("a")
            .function("a", |_| async { Ok(Update::none().with("answer", 1)) })
            .edge("a", END),
    );
    let error = stage.engine().invoke(&graph, Invocation::default()).await.unwrap_err();
    assert_eq!((error.category(), error.node()), (&Category::ReducerError, Some("a")));
    assert_eq!(error.details()["reducer"], "buggy");
    assert_eq!(error.state().unwrap().get("answer"), Some(&Value::Null));
}

fn chatting(concurrency: SessionConcurrency) -> GraphBuilder {
    asking("chat").sessions(SessionPolicy::projected(["log"]).concurrency(concurrency))
}

fn in_session(word: &str) -> Invocation {
    Invocation { session_id: Some("s".into()), state: map(json!({ "log": [word] })), ..Invocation::default() }
}

#[tokio::test]
async fn a_resumed_turn_does_not_overwrite_what_the_session_learned_meanwhile() {
    let stage = Stage::default();
    let graph = compiled(chatting(SessionConcurrency::Rebase));
    let plain = GraphBuilder::new("plain", schema()).entry("a").function("a", says("meanwhile")).edge("a", END);
    let policy = SessionPolicy::projected(["log"]).concurrency(SessionConcurrency::Rebase);
    let plain = compiled(plain.sessions(policy));
    let paused = pause(&stage.engine(), &graph, in_session("first")).await;
    stage.engine().invoke(&plain, in_session("second")).await.unwrap();
    let done = stage.engine().resume(&graph, &paused.invocation_id, resume(json!({}))).await.unwrap();
    assert_eq!(state(done)["log"], json!(["first", "before", "after"]));
    let saved = stage.store.load_session(&"s".into(), None).await.unwrap().record.unwrap().state;
    assert_eq!(saved["log"], json!(["first", "before", "second", "meanwhile", "after"]));
}

#[tokio::test]
async fn an_optimistic_save_reports_the_conflict() {
    let stage = Stage::default();
    let graph = compiled(chatting(SessionConcurrency::Optimistic));
    let first = pause(&stage.engine(), &graph, in_session("first")).await.invocation_id;
    let other = compiled(
        GraphBuilder::new("o", schema())
            .entry("a")
            .function("a", says("o"))
            .edge("a", END)
            .sessions(SessionPolicy::projected(["log"])),
    );
    stage.engine().invoke(&other, in_session("second")).await.unwrap();
    let error = stage.engine().resume(&graph, &first, resume(json!({}))).await.unwrap_err();
    assert_eq!(error.category(), &Category::SessionWriteConflict);
}

#[tokio::test]
async fn what_could_not_be_saved_behind_a_pause_does_not_run_and_is_over() {
    let stage = Stage::default();
    let graph = compiled(chatting(SessionConcurrency::Optimistic));
    let paused = pause(&stage.engine(), &graph, in_session("first")).await.invocation_id;
    let other = GraphBuilder::new("o", schema()).entry("a").function("a", says("o")).edge("a", END);
    let other = compiled(other.sessions(SessionPolicy::projected(["log"])));
    stage.engine().invoke(&other, in_session("second")).await.unwrap();
    let events = Arc::new(Recorder::default());
    let call = Resume {
        observers: vec![(events.clone(), Phases::default())],
        after_error: |_| AfterError::GiveBack,
        ..resume(json!({}))
    };
    let error = stage.engine().resume(&graph, &paused, call).await.unwrap_err();
    assert_eq!(error.category(), &Category::SessionWriteConflict);
    graph.drain(&*stage.clock, None).await;
    assert!(events.lines().is_empty(), "{:?}", events.lines());
    let stored = stage.store.load_invocation(&paused).await.unwrap().unwrap();
    let InvocationStatus::Errored(failure) = stored.status else { panic!("{:?}", stored.status) };
    assert_eq!(failure.category, Category::SessionWriteConflict);
    assert!(graph.is_overtaken(&failure.category) && !graph.is_overtaken(&Category::SessionSaveFailed));
    let rebased = compiled(chatting(SessionConcurrency::Rebase));
    assert!(!rebased.is_overtaken(&failure.category), "a later try carries its changes over");
}

#[tokio::test]
async fn a_pause_that_saves_nothing_at_its_end_goes_on_whoever_has_saved_since() {
    let stage = Stage::default();
    let policy = SessionPolicy::projected(["log"]).concurrency(SessionConcurrency::Optimistic);
    let graph = compiled(asking("chat").sessions(policy.auto_save(false)));
    let paused = pause(&stage.engine(), &graph, in_session("first")).await.invocation_id;
    let other = GraphBuilder::new("o", schema()).entry("a").function("a", says("o")).edge("a", END);
    let other = compiled(other.sessions(SessionPolicy::projected(["log"])));
    stage.engine().invoke(&other, in_session("second")).await.unwrap();
    let done = stage.engine().resume(&graph, &paused, resume(json!({}))).await.unwrap();
    assert_eq!(state(done)["log"], json!(["first", "before", "after"]));
    let saved = stage.store.load_session(&"s".into(), None).await.unwrap().record.unwrap().state;
    assert_eq!(saved["log"], json!(["first", "before", "second", "o"]), "nothing is lost of what the other has saved");
}

struct Saves(Arc<AtomicUsize>);

#[async_trait]
impl Node for Saves {
    async fn run(&self, _: State) -> Result<Update, NodeError> {
        let update = Update::none().with("log", json!(["saved"]));
        save_session(&update).await?;
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(update)
    }
}

#[tokio::test]
async fn a_save_in_the_midst_survives_a_later_failure() {
    let stage = Stage::default();
    let saved = Arc::new(AtomicUsize::new(0));
    let graph = compiled(
        GraphBuilder::new("g", schema())
            .entry("save")
            .node("save", Saves(saved.clone()))
            .function("fail", |_| async { Err(NodeError::new("no")) })
            .edge("save", "fail")
            .edge("fail", END)
            .sessions(SessionPolicy::full_state()),
    );
    let error = stage.engine().invoke(&graph, in_session("x")).await.unwrap_err();
    assert_eq!((error.category(), saved.load(Ordering::Relaxed)), (&Category::NodeException, 1));
    let record = stage.store.load_session(&"s".into(), None).await.unwrap().record.unwrap();
    assert_eq!(record.state["log"], json!(["x", "saved"]));
}

#[tokio::test]
async fn what_a_middleware_passes_on_is_no_part_of_a_save_in_the_midst() {
    let stage = Stage::default();
    let saved = Arc::new(AtomicUsize::new(0));
    let graph = GraphBuilder::new("g", schema()).entry("save").node("save", Saves(saved.clone()));
    let graph = graph.wrap("save", Arc::new(PassesOn)).edge("save", END);
    let graph = compiled(graph.sessions(SessionPolicy::full_state().auto_save(false)));
    let done = stage.engine().invoke(&graph, in_session("x")).await.unwrap();
    assert_eq!((&state(done)["log"], saved.load(Ordering::Relaxed)), (&json!(["x", "saved"]), 1));
    let record = stage.store.load_session(&"s".into(), None).await.unwrap().record.unwrap();
    assert_eq!(record.state["log"], json!(["x", "saved"]));
}

#[tokio::test]
async fn a_signal_that_was_there_first_is_claimed_with_the_pause() {
    let stage = Stage::default();
    let graph = compiled(asking("g"));
    let now = jiff::Timestamp::UNIX_EPOCH;
    let signal = dormouse_ports::BufferedSignal {
        payload: map(json!({ "answer": 9 })),
        sender: None,
        received_at: now,
        expires_at: "2030-01-01T00:00:00Z".parse().unwrap(),
    };
    stage.store.buffer_signal(&"s".into(), &signal).await.unwrap();
    let mut paused = pause(&stage.engine(), &graph, Invocation::default()).await;
    let record = paused.arrived.take().expect("the pause is born claimed");
    let done = stage.engine().resume_claimed(&graph, record, resume(json!({}))).await.unwrap();
    assert_eq!(state(done)["answer"], 9);
    let stored = stage.store.load_invocation(&paused.invocation_id).await.unwrap().unwrap();
    assert!(matches!(stored.status, InvocationStatus::Completed { .. }));
}

#[test]
fn a_graph_that_goes_round_in_a_circle_is_stopped_and_lets_others_run() {
    let stage = Stage::default();
    let limits = InvocationLimits { nodes: 1_000, ..InvocationLimits::default() };
    let graph = GraphBuilder::new("circle", schema()).entry("a");
    let graph = graph.function("a", |_| async { Ok(Update::none()) }).function("b", |_| async { Ok(Update::none()) });
    let graph = compiled(graph.edge("a", "b").edge("b", "a"));
    let engine = stage.engine().limited(limits);
    let mut turn = Box::pin(engine.invoke(&graph, Invocation::default()));
    let mut others_ran = 0;
    let waker = futures::task::noop_waker();
    let error = loop {
        match turn.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(ended) => break ended.unwrap_err(),
            Poll::Pending => others_ran += 1,
        }
    };
    assert_eq!(*error.category(), Category::LimitExceeded);
    assert!(error.message().contains("1000 nodes of graph `circle` ran without a pause"), "{}", error.message());
    assert!(error.message().contains("node `a` would be next"), "{}", error.message());
    assert_eq!(others_ran, 1_000 / 64);
}
