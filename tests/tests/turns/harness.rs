//! The harness on ports in memory: what happens when things go wrong around a pause.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{
    CompiledGraph, END, Field, FieldType, GraphBuilder, NodeError, SessionPolicy, State, StateSchema, Target, Update,
    suspend,
};
use dormouse_harness::{
    Bucket, FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, TurnError, TurnOutcome,
};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{
    Category, Clock, Commit, Commits, EventRule, EventRules, InvocationWrite, Invocations, ListedRule, Map,
    Registration, RuleName, Sessions, SignalDescriptor, Subscription, SubscriptionError, Timers,
};
use dormouse_testkit::{MemorySubscriptions, SubscriptionCall};
use dormouse_tests::{Stage, called_for, map};
use serde_json::{Value, json};

/// Waits for signal `s`, for an hour at most, then asks `allowed` whether it may go on.
fn waiting(allowed: Arc<AtomicBool>) -> Arc<CompiledGraph> {
    let schema = StateSchema::new().field("answer", Field::new(FieldType::Int, 0));
    let wait = || SignalDescriptor::new("s").with("timeout", json!({ "after": "PT1H", "then": "fail" }));
    let graph = GraphBuilder::new("waiting", schema)
        .entry("wait")
        .function("wait", move |_: State| async move { Err(suspend(wait()).await) })
        .function("work", move |_: State| {
            let allowed = allowed.clone();
            async move {
                if allowed.load(Ordering::Relaxed) {
                    return Ok(Update::none());
                }
                Err(NodeError::new("busy").with_category(Category::ProviderUnavailable))
            }
        })
        .edge("wait", "work")
        .edge("work", END);
    Arc::new(graph.compile().unwrap())
}

struct Scene {
    stage: Stage,
    harness: Harness,
    allowed: Arc<AtomicBool>,
}

fn scene() -> Scene {
    let stage = Stage::default();
    let allowed = Arc::new(AtomicBool::new(true));
    let harness = stage.harness_on(stage.store.clone(), Mode::Stateless, [waiting(allowed.clone())]);
    Scene { stage, harness, allowed }
}

impl Scene {
    async fn asleep(self) -> Self {
        let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("waiting", Map::new()) };
        assert!(matches!(self.send(start).await, TurnOutcome::Suspended(_)));
        self
    }

    async fn send(&self, transmission: impl Into<Transmission> + Send) -> TurnOutcome {
        self.harness.turn(transmission).await.outcome
    }

    async fn error(&self, transmission: impl Into<Transmission> + Send) -> TurnError {
        match self.send(transmission).await {
            TurnOutcome::Errored(error) => *error,
            other => panic!("it did not fail: {other:?}"),
        }
    }

    async fn answer(&self) -> Value {
        match self.harness.look_up(&"i".into()).await.unwrap() {
            TurnOutcome::Completed(turn) => turn.state["answer"].clone(),
            other => panic!("it did not complete: {other:?}"),
        }
    }
}

fn signal(answer: Value) -> Transmission {
    Transmission::signal("s", map(json!({ "answer": answer })))
}

#[tokio::test]
async fn a_pause_that_may_fail_fails_when_its_time_is_up() {
    let scene = scene().asleep().await;
    scene.stage.clock.advance(Duration::from_secs(3601));
    assert_eq!(scene.stage.sweep(&scene.harness, SweepScope::Due).await.unwrap().called, 1);
    let error = scene.error(signal(json!(1))).await;
    assert_eq!(error.category, Category::SuspensionTimedOut);
}

#[tokio::test]
async fn a_sweep_tells_how_long_the_oldest_slept_and_how_late_it_wakes() {
    let scene = scene().asleep().await;
    scene.stage.clock.advance(Duration::from_secs(600));
    let summary = scene.stage.sweep(&scene.harness, SweepScope::Everything).await.unwrap();
    assert_eq!((summary.oldest_pause, summary.late_by), (Duration::from_secs(600), Duration::ZERO));
    scene.stage.clock.advance(Duration::from_secs(3010));
    let summary = scene.stage.sweep(&scene.harness, SweepScope::Due).await.unwrap();
    assert_eq!((summary.oldest_pause, summary.late_by), (Duration::ZERO, Duration::from_secs(10)));
}

#[tokio::test]
async fn a_signal_that_came_in_time_stands_even_if_its_worker_died_and_the_time_is_up() {
    let scene = scene().asleep().await;
    scene.stage.clock.advance(Duration::from_secs(3590));
    scene.stage.die_holding("i", map(json!({ "answer": 5 }))).await;
    scene.stage.clock.advance(Duration::from_secs(20));
    let early = scene.stage.sweep(&scene.harness, SweepScope::Due).await.unwrap();
    assert_eq!((early.called, early.failed), (0, 0), "the claim still stands");
    scene.stage.clock.advance(Duration::from_secs(20));
    assert_eq!(scene.stage.sweep(&scene.harness, SweepScope::Due).await.unwrap().called, 1);
    assert_eq!(scene.answer().await, 5);
}

#[tokio::test]
async fn after_a_transient_failure_the_same_signal_can_be_sent_again() {
    let scene = scene().asleep().await;
    scene.allowed.store(false, Ordering::Relaxed);
    let error = scene.error(signal(json!(1))).await;
    assert_eq!((error.category, error.bucket), (Category::ProviderUnavailable, Bucket::RetryableTransient));
    scene.allowed.store(true, Ordering::Relaxed);
    assert!(matches!(scene.send(signal(json!(2))).await, TurnOutcome::Completed(_)));
    assert_eq!(scene.answer().await, 2);
}

#[tokio::test]
async fn an_acknowledged_early_signal_survives_a_transient_failure() {
    let scene = scene();
    assert!(matches!(scene.send(signal(json!(3))).await, TurnOutcome::Buffered { .. }));
    scene.allowed.store(false, Ordering::Relaxed);
    let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("waiting", Map::new()) };
    assert_eq!(scene.error(start).await.category, Category::ProviderUnavailable);
    scene.allowed.store(true, Ordering::Relaxed);
    scene.stage.outlive_leases();
    assert_eq!(scene.stage.sweep(&scene.harness, SweepScope::Everything).await.unwrap().called, 1);
    assert_eq!(scene.answer().await, 3);
}

/// The same answer comes once more, by the way on which its sender waits for the turn.
#[tokio::test]
async fn an_answer_that_stands_already_survives_a_transient_failure_of_who_brings_it_again() {
    for its_worker_died in [false, true] {
        let scene = scene().asleep().await;
        let payload = map(json!({ "answer": 3 }));
        if its_worker_died {
            scene.stage.die_holding("i", payload).await;
            scene.stage.outlive_leases();
        } else {
            let invocation_id = "i".into();
            let write = InvocationWrite::Deliver { invocation_id, generation: 1, answered: None, payload };
            let commit = Commit { invocation: Some(write), ..Commit::new("deliver", scene.stage.clock.now()) };
            scene.stage.store.commit(&commit).await.unwrap();
        }
        scene.allowed.store(false, Ordering::Relaxed);
        assert_eq!(scene.error(signal(json!(3))).await.category, Category::ProviderUnavailable);
        scene.allowed.store(true, Ordering::Relaxed);
        scene.stage.outlive_leases();
        assert_eq!(scene.stage.sweep(&scene.harness, SweepScope::Everything).await.unwrap().called, 1);
        assert_eq!(scene.answer().await, 3, "its worker died: {its_worker_died}");
    }
}

#[tokio::test]
async fn who_brings_an_answer_that_stands_already_gets_what_comes_of_it() {
    let scene = scene().asleep().await;
    scene.stage.die_holding("i", map(json!({ "answer": 3 }))).await;
    scene.stage.outlive_leases();
    assert!(matches!(scene.send(signal(json!(3))).await, TurnOutcome::Completed(_)));
    assert_eq!(scene.answer().await, 3);
}

#[tokio::test]
async fn an_early_signal_that_does_not_fit_is_dropped_and_the_wait_goes_on() {
    let scene = scene();
    scene.send(signal(json!("no number"))).await;
    let scene = scene.asleep().await;
    assert!(matches!(scene.stage.subscriptions.calls()[..], [SubscriptionCall::Subscribed(_)]));
    scene.send(signal(json!(4))).await;
    assert_eq!(scene.answer().await, 4);
}

#[tokio::test]
async fn a_pause_whose_wake_up_is_refused_stays_and_the_sweep_registers_it() {
    for is_denied in [false, true] {
        let scene = scene();
        let worker = &scene.harness;
        match is_denied {
            false => scene.stage.subscriptions.fail_unavailable("the scheduler is busy"),
            true => scene.stage.subscriptions.fail_denied("no role for the scheduler"),
        }
        let start = || FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("waiting", Map::new()) };
        match worker.turn(start()).await.outcome {
            TurnOutcome::Suspended(turn) if !is_denied => assert!(turn.late.unwrap().contains("the scheduler is busy")),
            TurnOutcome::Errored(error) if is_denied => {
                assert_eq!(error.category, Category::HarnessSignalSubscriptionFailed);
                assert!(error.message.contains("once that is repaired"), "{}", error.message);
            }
            other => panic!("{other:?}"),
        }
        assert!(
            dormouse_maintenance::sweep(worker, &scene.stage.maintenance(), SweepScope::Everything)
                .await
                .unwrap()
                .failed
                > 0,
            "it is told of until it is done"
        );
        scene.stage.subscriptions.recover();
        assert!(matches!(worker.turn(start()).await.outcome, TurnOutcome::Suspended(_)), "the same id is no dead end");
        assert_eq!(
            dormouse_maintenance::sweep(worker, &scene.stage.maintenance(), SweepScope::Everything)
                .await
                .unwrap()
                .registered,
            1
        );
        assert!(matches!(scene.stage.subscriptions.calls()[..], [SubscriptionCall::Subscribed(_)]));
        assert_eq!(
            dormouse_maintenance::sweep(worker, &scene.stage.maintenance(), SweepScope::Everything)
                .await
                .unwrap()
                .registered,
            0
        );
    }
}

#[tokio::test]
async fn a_worker_that_lacks_the_graph_leaves_the_invocation_to_others() {
    let scene = scene().asleep().await;
    let poor = scene.stage.harness_on(scene.stage.store.clone(), Mode::Stateless, []);
    let TurnOutcome::Errored(error) = poor.turn(signal(json!(6))).await.outcome else { panic!("it had the graph") };
    assert_eq!((error.category, error.bucket), (Category::GraphUnknown, Bucket::RetryableTransient));
    scene.send(signal(json!(6))).await;
    assert_eq!(scene.answer().await, 6);
}

#[tokio::test]
async fn a_wake_up_that_is_not_needed_any_more_is_taken_back() {
    let scene = scene().asleep().await;
    scene.send(signal(json!(7))).await;
    let calls = scene.stage.subscriptions.calls();
    assert!(matches!(calls[..], [SubscriptionCall::Subscribed(_), SubscriptionCall::Cancelled(_)]), "{calls:?}");
}

#[tokio::test]
async fn a_session_that_is_not_saved_is_given_back_all_the_same() {
    let stage = Stage::default();
    let graph = GraphBuilder::new("reader", StateSchema::new().field("answer", Field::new(FieldType::Int, 0)))
        .entry("read")
        .function("read", |_: State| async { Ok(Update::none().with("answer", 1)) })
        .edge("read", END)
        .sessions(SessionPolicy::full_state().auto_save(false));
    let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [Arc::new(graph.compile().unwrap())]);
    let start = FreshTurn { session_id: Some("s".into()), ..FreshTurn::new("reader", Map::new()) };
    assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Completed(_)));
    let session = stage.store.load_session(&"s".into(), None).await.unwrap();
    assert!(session.record.is_none() && session.leased_until.is_none(), "{session:?}");
}

#[tokio::test]
async fn a_session_whose_turn_failed_is_free_at_once() {
    let stage = Stage::default();
    let graph = GraphBuilder::new("failing", StateSchema::new().field("answer", Field::new(FieldType::Int, 0)))
        .entry("fail")
        .function("fail", |_: State| async { Err::<Update, _>(NodeError::new("it broke")) })
        .edge("fail", END)
        .sessions(SessionPolicy::full_state());
    let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [Arc::new(graph.compile().unwrap())]);
    let start = FreshTurn { session_id: Some("s".into()), ..FreshTurn::new("failing", Map::new()) };
    assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Errored(_)));
    let session = stage.store.load_session(&"s".into(), None).await.unwrap();
    assert!(session.record.is_none() && session.leased_until.is_none(), "{session:?}");
}

/// A harness of a graph that keeps its field `answer` in sessions.
fn keeper(stage: &Stage, answer: Field) -> Harness {
    let graph = GraphBuilder::new("keeper", StateSchema::new().field("answer", answer))
        .entry("end")
        .function("end", |_: State| async { Ok(Update::none()) })
        .edge("end", END)
        .sessions(SessionPolicy::full_state());
    stage.harness_on(stage.store.clone(), Mode::Sessioned, [Arc::new(graph.compile().unwrap())])
}

#[tokio::test]
async fn a_session_that_fits_the_graph_no_more_is_not_the_mistake_of_who_calls() {
    let stage = Stage::default();
    let turn = |session: &str, state: Value| FreshTurn {
        session_id: Some(session.into()),
        ..FreshTurn::new("keeper", map(state))
    };
    let before = keeper(&stage, Field::new(FieldType::Str, "yes"));
    assert!(matches!(before.turn(turn("s", json!({}))).await.outcome, TurnOutcome::Completed(_)));
    let now = keeper(&stage, Field::new(FieldType::Int, 0));
    for (session, state, bucket) in [
        ("s", json!({}), Bucket::SessionTerminating),
        ("s", json!({ "answer": "no" }), Bucket::SessionTerminating),
        ("fresh", json!({ "answer": "no" }), Bucket::UserCorrectable),
    ] {
        match now.turn(turn(session, state)).await.outcome {
            TurnOutcome::Errored(error) => {
                assert_eq!((error.category, error.bucket), (Category::StateValidationError, bucket), "{session}");
            }
            other => panic!("it did not fail: {other:?}"),
        }
    }
    assert!(matches!(now.turn(turn("s", json!({ "answer": 5 }))).await.outcome, TurnOutcome::Completed(_)));
}

#[tokio::test]
async fn an_id_of_another_graph_is_refused_and_tells_nothing() {
    let stage = Stage::default();
    let other = GraphBuilder::new("other", StateSchema::new().field("answer", Field::new(FieldType::Int, 0)))
        .entry("end")
        .function("end", |_: State| async { Ok(Update::none()) })
        .edge("end", END);
    let graphs = [waiting(Arc::default()), Arc::new(other.compile().unwrap())];
    let harness = stage.harness_on(stage.store.clone(), Mode::Stateless, graphs);
    let begin = |graph: &str, answer: i64| FreshTurn {
        invocation_id: Some("i".into()),
        ..FreshTurn::new(graph, map(json!({ "answer": answer })))
    };
    let asleep = harness.turn(begin("waiting", 42)).await.outcome;
    assert!(matches!(asleep, TurnOutcome::Suspended(_)), "{asleep:?}");
    match harness.turn(begin("other", 1)).await.outcome {
        TurnOutcome::Errored(error) => {
            assert_eq!(error.category, Category::RequestInvalid);
            assert!(!error.message.contains("42"), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.store.load_invocation(&"i".into()).await.unwrap().unwrap().paused.graph, "waiting");
}

/// Waits for the signals `s0`, `s1` and so on, as many as `most`; each answer says how many there were.
fn counting(most: i64) -> Arc<CompiledGraph> {
    let schema = StateSchema::new().field("answer", Field::new(FieldType::Int, 0));
    let count = |state: &State| state.get("answer").and_then(Value::as_i64).unwrap_or_default();
    let graph = GraphBuilder::new("counting", schema)
        .entry("wait")
        .function("wait", move |state: State| async move {
            Err(suspend(SignalDescriptor::new(format!("s{}", count(&state)))).await)
        })
        .function("look", |_: State| async { Ok(Update::none()) })
        .edge("wait", "look")
        .route("look", move |state: &State| Ok(if count(state) < most { Target::from("wait") } else { END }));
    Arc::new(graph.compile().unwrap())
}

/// A scheduler that answers nothing.
struct Silent(Arc<MemorySubscriptions>);

#[async_trait]
impl Timers for Silent {
    async fn schedule(&self, _: &Subscription) -> Result<Registration, SubscriptionError> {
        std::future::pending().await
    }

    async fn cancel(&self, _: &Subscription) -> Result<(), SubscriptionError> {
        std::future::pending().await
    }
}

#[async_trait]
impl EventRules for Silent {
    async fn put_rule(&self, rule: &EventRule) -> Result<(), SubscriptionError> {
        self.0.put_rule(rule).await
    }

    async fn list_rules(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        self.0.list_rules().await
    }

    async fn remove_rule(&self, name: &RuleName) -> Result<(), SubscriptionError> {
        self.0.remove_rule(name).await
    }
}

/// The outcome of `transmission`, and the seconds that it takes.
async fn timed(stage: &Stage, worker: &Harness, transmission: impl Into<Transmission> + Send) -> (TurnOutcome, u64) {
    let mut turn = std::pin::pin!(worker.turn(transmission));
    for seconds in 0..60 {
        if let Poll::Ready(turn) = futures::poll!(&mut turn) {
            return (turn.outcome, seconds);
        }
        tokio::task::yield_now().await;
        stage.clock.advance(Duration::from_secs(1));
    }
    panic!("it does not end")
}

#[tokio::test]
async fn a_scheduler_that_does_not_answer_keeps_nobody_waiting_until_the_time_of_the_turn_is_over() {
    let stage = Stage::default();
    let graphs = GraphRegistry::new([waiting(Arc::new(AtomicBool::new(true)))]);
    let silent = Arc::new(Silent(stage.subscriptions.clone()));
    let config = HarnessConfig::new(Mode::Stateless);
    let worker = Harness::new(stage.engine(), graphs, silent, stage.bus.clone(), config);
    let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("waiting", Map::new()) };
    let (asleep, seconds) = timed(&stage, &worker, start).await;
    let TurnOutcome::Suspended(asleep) = asleep else { panic!("it does not sleep: {asleep:?}") };
    assert!(asleep.late.unwrap().contains("the sweep registers it"));
    assert!(seconds < 12, "{seconds} s");
    let (awake, seconds) = timed(&stage, &worker, signal(json!(7))).await;
    assert!(matches!(awake, TurnOutcome::Completed(_)), "{awake:?}");
    assert!(seconds < 7, "{seconds} s");
}

#[tokio::test]
async fn what_pauses_and_goes_on_very_often_is_handed_over_at_once() {
    const MOST: i64 = 600;
    let stage = Stage::default();
    let harness = stage.harness_on(stage.store.clone(), Mode::Stateless, [counting(MOST)]);
    for n in 0..MOST {
        let early = Transmission::signal(format!("s{n}"), map(json!({ "answer": n + 1 })));
        assert!(matches!(harness.turn(early).await.outcome, TurnOutcome::Buffered { .. }));
    }
    let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("counting", Map::new()) };
    assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Suspended(_)), "the rest is another worker's");
    let mut calls = 0;
    while let Some(call) = stage.bus.events().into_iter().filter_map(called_for).nth(calls) {
        calls += 1;
        harness.answer_call(&call, None).await;
    }
    assert_eq!(calls, 2, "each worker goes on where the one before it was, and no time passes");
    match harness.look_up(&"i".into()).await.unwrap() {
        TurnOutcome::Completed(turn) => assert_eq!(turn.state["answer"], MOST),
        other => panic!("it did not complete: {other:?}"),
    }
}
