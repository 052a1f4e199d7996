//! Cancellation: of a sleeper, of a running turn, of one that never slept; and whichever call of it breaks.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_app::REMINDER;
use dormouse_engine::{
    CompiledGraph, END, Field, FieldType, GraphBuilder, Middleware, Next, NodeError, SessionPolicy, State, StateSchema,
    Update, cancellation, suspend,
};
use dormouse_harness::{Bucket, FreshTurn, Harness, Mode, Transmission, Turn, TurnOutcome};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{Category, Clock, Map, Sessions, SignalDescriptor, Signals};
use dormouse_testkit::{Fault, FaultyStore, SubscriptionCall};
use dormouse_tests::{Stage, map};
use futures::FutureExt;
use futures::channel::oneshot;
use serde_json::json;

/// How the node `work` of [`gated`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Ends,
    Fails,
    Sleeps,
    /// It waits until it is told of the cancellation, and fails with a category that a middleware would try again.
    Asks,
}

/// Where the node `work` of [`gated`] stops the first time that it runs.
struct Gate {
    arrived: Mutex<Option<oneshot::Sender<()>>>,
    opened: Mutex<Option<oneshot::Receiver<()>>>,
    /// How often anything ran behind that: the node after it, or `work` again.
    behind: Arc<AtomicU32>,
}

/// Runs a node that failed once more.
struct Swallow;

#[async_trait]
impl Middleware for Swallow {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let again = state.clone();
        match next.run(state).await {
            Ok(update) => Ok(update),
            Err(_) => next.run(again).await,
        }
    }
}

fn gated(
    work: Work,
    sleeps_first: bool,
) -> (Arc<CompiledGraph>, Arc<Gate>, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let (arrived, arrives) = oneshot::channel();
    let (open, opened) = oneshot::channel();
    let gate =
        Arc::new(Gate { arrived: Mutex::new(Some(arrived)), opened: Mutex::new(Some(opened)), behind: Arc::default() });
    let inside = gate.clone();
    let behind = gate.behind.clone();
    let schema = StateSchema::new().field("n", Field::new(FieldType::Int, 0));
    let node = move |_: State| {
        let gate = inside.clone();
        async move {
            let arrived = gate.arrived.lock().unwrap().take();
            let opened = gate.opened.lock().unwrap().take();
            let (Some(arrived), Some(opened)) = (arrived, opened) else {
                gate.behind.fetch_add(1, Ordering::Relaxed);
                return Ok(Update::none());
            };
            let _ = arrived.send(());
            match work {
                Work::Asks => {
                    let canceled = cancellation().unwrap().canceled().await;
                    assert_eq!(canceled.reason.as_deref(), Some("not needed"));
                    Err(NodeError::new("cleaned up").with_category(Category::ProviderUnavailable))
                }
                Work::Ends => opened.await.map(|()| Update::none().with("n", 7)).map_err(NodeError::from),
                Work::Fails => {
                    opened.await?;
                    Err(NodeError::new("no").with_category(Category::ProviderInvalidRequest))
                }
                Work::Sleeps => {
                    opened.await?;
                    Err(suspend(SignalDescriptor::new("later")).await)
                }
            }
        }
    };
    let sleep = |_: State| async { Err(suspend(SignalDescriptor::new("first")).await) };
    let after = move |_: State| {
        behind.fetch_add(1, Ordering::Relaxed);
        async { Ok(Update::none()) }
    };
    let graph = GraphBuilder::new("gated", schema)
        .entry(if sleeps_first { "sleep" } else { "work" })
        .function("work", node)
        .function("after", after)
        .edge("work", "after")
        .edge("after", END)
        .sessions(SessionPolicy::projected(["n"]));
    let graph = if sleeps_first { graph.function("sleep", sleep).edge("sleep", "work") } else { graph };
    let graph = if work == Work::Asks { graph.wrap("work", Arc::new(Swallow)) } else { graph };
    (Arc::new(graph.compile().unwrap()), gate, arrives, open)
}

fn is_canceled(turn: &Turn) {
    let TurnOutcome::Errored(error) = &turn.outcome else { panic!("{:?}", turn.outcome) };
    assert_eq!((&error.category, error.bucket), (&Category::InvocationCanceled, Bucket::UserCorrectable));
    assert!(error.message.contains("not needed"), "{}", error.message);
}

fn reason() -> Option<String> {
    Some("not needed".to_owned())
}

fn start() -> FreshTurn {
    FreshTurn {
        invocation_id: Some("i-1".into()),
        session_id: Some("s-1".into()),
        ..FreshTurn::new("gated", Map::new())
    }
}

/// Cancels the invocation while its node `work` runs; returns what its turn answered.
async fn canceled_while_running(work: Work, sleeps_first: bool) -> Stage {
    let stage = Stage::default();
    let (graph, gate, arrives, open) = gated(work, sleeps_first);
    let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [graph]);
    let turn = if sleeps_first {
        let TurnOutcome::Suspended(_) = harness.turn(start()).await.outcome else { panic!("it sleeps") };
        Transmission::callback("i-1", Some(1), Map::new())
    } else {
        start().into()
    };
    let session_before = stage.store.load_session(&"s-1".into(), None).await.unwrap().record;
    let running = tokio::spawn({
        let harness = harness.clone();
        async move { harness.turn(turn).await }
    });
    arrives.await.unwrap();
    let canceled = harness.cancel(&"i-1".into(), None, reason()).await.unwrap();
    assert!(!canceled.repeated);
    if work == Work::Asks {
        stage.clock.advance(Duration::from_secs(1));
    } else {
        open.send(()).unwrap();
    }
    is_canceled(&running.await.unwrap());
    is_canceled(&harness.turn(Transmission::callback("i-1", None, Map::new())).await);
    is_canceled(&harness.turn(start()).await);
    assert!(harness.cancel(&"i-1".into(), None, None).await.unwrap().repeated);
    let session = stage.store.load_session(&"s-1".into(), None).await.unwrap().record;
    assert_eq!(session, session_before, "a canceled turn saves nothing");
    let swept = dormouse_maintenance::sweep(&harness, &stage.maintenance(), SweepScope::Everything).await.unwrap();
    assert_eq!((swept.examined, swept.failed), (0, 0));
    let ran_behind = gate.behind.load(Ordering::Relaxed);
    // Who does not ask goes on until the end is refused.
    assert_eq!(ran_behind, u32::from(work == Work::Ends), "{work:?}");
    stage
}

#[tokio::test]
async fn a_running_turn_that_is_canceled_leaves_nothing() {
    for work in [Work::Ends, Work::Fails, Work::Sleeps] {
        let stage = canceled_while_running(work, true).await;
        assert_eq!(stage.store.load_signal(&"later".into(), stage.clock.now()).await.unwrap(), None, "{work:?}");
    }
}

#[tokio::test]
async fn an_invocation_that_never_slept_can_be_forestalled() {
    for work in [Work::Ends, Work::Sleeps] {
        canceled_while_running(work, false).await;
    }
}

#[tokio::test]
async fn a_node_that_asks_is_told_and_nothing_catches_it() {
    for sleeps_first in [true, false] {
        canceled_while_running(Work::Asks, sleeps_first).await;
    }
}

#[tokio::test]
async fn whichever_call_of_a_cancellation_breaks_the_sleeper_ends_canceled() {
    for fault in Fault::ALL {
        for call in 0.. {
            let stage = Stage::default();
            let asleep = stage.shipped_on(stage.store.clone(), Mode::Stateless).unwrap();
            let state = map(json!({ "text": "wake up", "after": "PT10M" }));
            let begin = FreshTurn { invocation_id: Some("i-1".into()), ..FreshTurn::new(REMINDER, state) };
            let TurnOutcome::Suspended(pause) = asleep.turn(begin).await.outcome else { panic!("it sleeps") };
            let store = Arc::new(FaultyStore::broken_at(stage.store.clone(), call, fault));
            cancel_until_told(&stage, &store).await;
            if !store.has_struck() {
                assert!(call >= 2, "a cancellation has at least two calls, not {call}");
                break;
            }
            let due = asleep.turn(Transmission::due("i-1", 1, None)).await.outcome;
            assert!(matches!(due, TurnOutcome::Stale { .. }), "{due:?}");
            let signal = Transmission::signal(pause.descriptor.signal_id.clone(), Map::new());
            is_canceled(&asleep.turn(signal).await);
            stage.clock.advance(Duration::from_secs(3_600));
            let swept =
                dormouse_maintenance::sweep(&asleep, &stage.maintenance(), SweepScope::Everything).await.unwrap();
            assert_eq!((swept.examined, swept.failed), (0, 0), "nothing is left behind");
        }
    }
}

async fn cancel_until_told(stage: &Stage, store: &Arc<FaultyStore>) {
    for attempt in 0.. {
        assert!(attempt < 10, "it is never answered");
        let worker: Harness = stage.shipped_on(store.clone(), Mode::Stateless).unwrap();
        match worker.cancel(&"i-1".into(), Some(1), reason()).now_or_never() {
            Some(Ok(canceled)) => return assert_eq!(canceled.cancellation.reason, reason()),
            Some(Err(error)) => assert_eq!(error.bucket, Bucket::RetryableTransient, "{error:?}"),
            None => {}
        }
    }
}

#[tokio::test]
async fn a_cancellation_takes_back_what_was_registered() {
    let stage = Stage::default();
    let harness = stage.shipped_on(stage.store.clone(), Mode::Stateless).unwrap();
    let state = map(json!({ "text": "wake up", "after": "PT10M" }));
    let begin = FreshTurn { invocation_id: Some("i-1".into()), ..FreshTurn::new(REMINDER, state) };
    harness.turn(begin).await;
    harness.cancel(&"i-1".into(), None, None).await.unwrap();
    let calls = stage.subscriptions.calls();
    let [SubscriptionCall::Subscribed(made), SubscriptionCall::Cancelled(undone)] = &calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!(made, undone);
}

#[tokio::test]
async fn what_cannot_be_canceled_is_said() {
    let stage = Stage::default();
    let harness = stage.shipped_on(stage.store.clone(), Mode::Stateless).unwrap();
    let state = map(json!({ "text": "wake up", "after": "PT10M" }));
    let begin = FreshTurn { invocation_id: Some("i-1".into()), ..FreshTurn::new(REMINDER, state) };
    harness.turn(begin).await;
    let other_pause = harness.cancel(&"i-1".into(), Some(2), None).await.unwrap_err();
    let long = harness.cancel(&"i-1".into(), None, Some("x".repeat(1_025))).await.unwrap_err();
    harness.turn(Transmission::callback("i-1", Some(1), Map::new())).await;
    let over = harness.cancel(&"i-1".into(), None, None).await.unwrap_err();
    assert_eq!(other_pause.category, Category::SuspensionRecordInvalid);
    assert_eq!(long.category, Category::RequestTooLarge);
    assert_eq!((over.category, over.bucket), (Category::SuspensionRecordInvalid, Bucket::UserCorrectable));
}
