use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::Stage;
use async_trait::async_trait;
use dormouse_engine::middleware::{Retry, full_jitter, is_transient, jitter_from};
use dormouse_engine::{
    AfterError, END, GraphBuilder, Invocation, LeaseTerms, Middleware, Next, Node, NodeError, Outcome, Phases,
    Projection, Resume, State, Update, suspend_and_rerun,
};
use dormouse_ports::{Category, SignalDescriptor};
use dormouse_testkit::CountingIds;
use dormouse_testkit::map;
use futures::FutureExt;
use serde_json::json;

use super::cast::{Flaky, Recorder, compiled, down, log, retry, says, schema, single, watched};

#[tokio::test]
async fn every_attempt_is_started_once_and_ends_once() {
    let stage = Stage::default();
    let node = Flaky::raising([down("1"), down("2")]);
    let graph = compiled(single(node).wrap("work", Arc::new(retry(&stage, 3))));
    let (ended, told) = watched(&stage, &graph).await;
    assert_eq!(log(ended), json!(["done"]));
    let expected = [
        "started work 0",
        "completed work 0 provider_unavailable",
        "started work 1",
        "completed work 1 provider_unavailable",
        "started work 2",
        "completed work 2 ok",
    ];
    assert_eq!(told.lines(), expected);
    assert!(told.events.lock().unwrap().iter().all(|event| event.step == 0));
    let categories: Vec<Category> =
        told.events.lock().unwrap().iter().filter_map(|event| Some(event.error.as_ref()?.category.clone())).collect();
    assert_eq!(categories, [Category::NodeException, Category::NodeException]);
}

#[tokio::test]
async fn what_lasts_is_not_tried_again_and_exhaustion_raises_the_last_error() {
    let stage = Stage::default();
    let node = Flaky::raising([NodeError::new("no").with_category(Category::ProviderAuthentication), down("x")]);
    let graph = compiled(single(node.clone()).wrap("work", Arc::new(retry(&stage, 5))));
    let (ended, told) = watched(&stage, &graph).await;
    assert_eq!(ended.unwrap_err().derived_category(), &Category::ProviderAuthentication);
    assert_eq!((node.left(), told.lines().len()), (1, 2));

    let graph = compiled(
        single(Flaky::raising((1..=4).map(|n| down(&n.to_string())))).wrap("work", Arc::new(retry(&stage, 3))),
    );
    let (ended, told) = watched(&stage, &graph).await;
    assert_eq!((ended.unwrap_err().message(), told.lines().len()), ("3", 6));
}

#[tokio::test]
async fn it_waits_after_telling_and_classifies_by_state() {
    let stage = Stage::default();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let middleware = Retry::new(stage.clock.clone(), Arc::new(|| 0.5))
        .classifier(|_, state| state.get("answer") == Some(&json!(1)))
        .on_retry(move |error, attempt| {
            tell.lock().unwrap().push(format!("{error} {attempt}"));
            async { Ok(()) }.boxed()
        });
    let graph = compiled(single(Flaky::raising([NodeError::new("odd")])).wrap("work", Arc::new(middleware)));
    let call = Invocation { state: map(json!({ "answer": 1 })), ..Invocation::default() };
    let engine = stage.engine();
    let running = graph.clone();
    let run = tokio::spawn(async move { engine.invoke(&running, call).await });
    while stage.clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*told.lock().unwrap(), ["odd 0"]);
    stage.clock.advance(Duration::from_millis(499));
    assert_eq!(stage.clock.sleepers(), 1);
    stage.clock.advance(Duration::from_millis(1));
    assert_eq!(log(run.await.unwrap()), json!(["done"]));
}

#[test]
fn the_default_wait_doubles_up_to_its_cap_and_is_random() {
    let all: Arc<dyn Fn() -> f64 + Send + Sync> = Arc::new(|| 1.0);
    let waits = [0, 1, 4, 5, 40, u32::MAX].map(|attempt| full_jitter(attempt, &all).as_secs());
    assert_eq!(waits, [1, 2, 16, 30, 30, 30]);
    let jitter = jitter_from(Arc::new(CountingIds::default()));
    let drawn: Vec<f64> = (0..100).map(|_| jitter()).collect();
    assert!(drawn.iter().all(|number| (0.0..=1.0).contains(number)));
    assert!(drawn.iter().any(|number| *number < 0.2) && drawn.iter().any(|number| *number > 0.8), "{drawn:?}");
}

#[test]
fn the_default_classifier_does_not_follow_causes() {
    assert!(is_transient(&down("x")));
    assert!(!is_transient(&NodeError::new("x")));
    assert!(!is_transient(&NodeError::new("x").caused_by(down("y"))));
    let recategorised = NodeError::new("x").with_category(Category::ProviderInvalidResponse).caused_by(down("y"));
    assert!(!is_transient(&recategorised));
}

#[tokio::test]
async fn a_retry_around_a_subgraph_reaches_every_event_inside() {
    let stage = Stage::default();
    let inner = GraphBuilder::new("inner", schema())
        .entry("first")
        .function("first", |_| async { Ok(says("first")) })
        .node("second", Flaky::raising([down("1")]))
        .edge("first", "second")
        .edge("second", END);
    let graph = GraphBuilder::new("outer", schema())
        .entry("in")
        .subgraph("in", compiled(inner), Projection::by_name())
        .function("after", |_| async { Ok(says("after")) })
        .wrap("in", Arc::new(retry(&stage, 2)))
        .edge("in", "after")
        .edge("after", END);
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    assert_eq!(log(ended), json!(["first", "done", "after"]));
    let expected = [
        "started in/first 0",
        "completed in/first 0 ok",
        "started in/second 0",
        "completed in/second 0 provider_unavailable",
        "started in/first 1",
        "completed in/first 1 ok",
        "started in/second 1",
        "completed in/second 1 ok",
        "started after 0",
        "completed after 0 ok",
    ];
    assert_eq!(told.lines(), expected);
}

#[tokio::test]
async fn the_innermost_retry_counts() {
    let stage = Stage::default();
    let node = Flaky::raising([down("1"), down("2"), down("3")]);
    let graph = single(node).wrap("work", Arc::new(retry(&stage, 2))).wrap("work", Arc::new(retry(&stage, 2)));
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    assert_eq!(log(ended), json!(["done"]));
    let started: Vec<String> = told.lines().into_iter().filter(|line| line.starts_with("started")).collect();
    assert_eq!(started, ["started work 0", "started work 1", "started work 0", "started work 1"]);
}

struct Asks(AtomicUsize);

#[async_trait]
impl Node for Asks {
    async fn run(&self, state: State) -> Result<Update, NodeError> {
        match (self.0.fetch_add(1, Ordering::Relaxed), state.get("answer")) {
            (0, _) => Err(down("first")),
            (1, _) => Err(suspend_and_rerun(SignalDescriptor::new("s")).await),
            (2, _) => Err(down("after the pause")),
            _ => Ok(says("done")),
        }
    }
}

#[tokio::test]
async fn a_pause_keeps_the_attempt_and_the_budget() {
    let stage = Stage::default();
    let graph = compiled(single(Asks(AtomicUsize::new(0))).wrap("work", Arc::new(retry(&stage, 3))));
    let (ended, told) = watched(&stage, &graph).await;
    let Outcome::Suspended(pause) = ended.unwrap() else { panic!("it did not suspend") };
    assert_eq!(told.lines()[2..], ["started work 1", "suspended work 1"]);
    let told = Arc::new(Recorder::default());
    let call = Resume {
        payload: map(json!({ "answer": 1 })),
        generation: None,
        claim: LeaseTerms { owner: "resumer".into(), duration: Duration::from_secs(5), yield_after: None },
        observers: vec![(told.clone(), Phases::default())],
        after_error: |_| AfterError::End,
    };
    let ended = stage.engine().resume(&graph, &pause.invocation_id, call).await;
    graph.drain(&*stage.clock, None).await;
    assert_eq!(log(ended), json!(["done"]));
    let expected = ["started work 1", "completed work 1 provider_unavailable", "started work 2", "completed work 2 ok"];
    assert_eq!(told.lines(), expected);
}

/// Raises an outage in the runs of that number, and suspends in one of them.
struct Script {
    runs: AtomicUsize,
    outages: &'static [usize],
    pause: usize,
}

#[async_trait]
impl Node for Script {
    async fn run(&self, _: State) -> Result<Update, NodeError> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        if run == self.pause {
            return Err(suspend_and_rerun(SignalDescriptor::new("s")).await);
        }
        if self.outages.contains(&run) { Err(down("again")) } else { Ok(says("done")) }
    }
}

/// Two attempts around the subgraph, two around its node: what `script` does before and after the pause.
async fn in_both_retries(script: Script) -> (Vec<String>, Vec<String>) {
    let stage = Stage::default();
    let inner = compiled(single(script).wrap("work", Arc::new(retry(&stage, 2))));
    let graph = GraphBuilder::new("outer", schema()).entry("in").subgraph("in", inner, Projection::by_name());
    let graph = compiled(graph.wrap("in", Arc::new(retry(&stage, 2))).edge("in", END));
    let (ended, before) = watched(&stage, &graph).await;
    let Outcome::Suspended(pause) = ended.expect("it suspends") else { panic!("it did not suspend") };
    let after = Arc::new(Recorder::default());
    let call = Resume {
        payload: map(json!({})),
        generation: None,
        claim: LeaseTerms { owner: "resumer".into(), duration: Duration::from_secs(5), yield_after: None },
        observers: vec![(after.clone(), Phases::default())],
        after_error: |_| AfterError::End,
    };
    // How it ends shows in the events.
    let _ = stage.engine().resume(&graph, &pause.invocation_id, call).await;
    graph.drain(&*stage.clock, None).await;
    (before.lines(), after.lines())
}

#[tokio::test]
async fn after_a_pause_every_retry_goes_on_with_its_own_count() {
    let failed =
        |index: u32| [format!("started in/work {index}"), format!("completed in/work {index} provider_unavailable")];
    let asked = |index: u32| [format!("started in/work {index}"), format!("suspended in/work {index}")];
    let done = |index: u32| [format!("started in/work {index}"), format!("completed in/work {index} ok")];

    // In the first outer and second inner attempt: the outer one has another left.
    let script = Script { runs: AtomicUsize::new(0), outages: &[0, 2], pause: 1 };
    let (before, after) = in_both_retries(script).await;
    assert_eq!(before, [failed(0), asked(1)].concat());
    assert_eq!(after, [failed(1), done(0)].concat());

    // In the second outer and first inner attempt: once more inside, and no more outside.
    let script = Script { runs: AtomicUsize::new(0), outages: &[0, 1, 3, 4, 5], pause: 2 };
    let (before, after) = in_both_retries(script).await;
    assert_eq!(before, [failed(0), failed(1), asked(0)].concat());
    assert_eq!(after, [failed(0), failed(1)].concat());
}

/// Runs the node twice whatever happens, without counting.
struct Twice;

#[async_trait]
impl Middleware for Twice {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let _ = next.run(state.clone()).await;
        next.run(state).await
    }
}

#[tokio::test]
async fn attempts_that_nobody_counts_end_all_the_same() {
    let stage = Stage::default();
    let (_, told) = watched(&stage, &compiled(single(Flaky::raising([down("1")])).wrap("work", Arc::new(Twice)))).await;
    let failed = "completed work 0 provider_unavailable";
    assert_eq!(told.lines(), ["started work 0", failed, "started work 0", "completed work 0 ok"]);
    let (_, told) = watched(&stage, &compiled(single(Flaky::default()).wrap("work", Arc::new(Twice)))).await;
    assert_eq!(told.lines()[1], "completed work 0 node_exception");
}
