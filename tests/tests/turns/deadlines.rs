//! Ladders of deadlines: what is announced, who decides in the end, and what happens when timers are lost or repeated.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{CompiledGraph, END, Field, FieldType, GraphBuilder, State, StateSchema, Update, suspend};
use dormouse_harness::{Bucket, FreshTurn, Harness, Mode, Transmission, TurnOutcome};
use dormouse_maintenance::{SweepScope, SweepSummary};
use dormouse_ports::{Category, Invocations, Map, Resolution, SignalDescriptor};
use dormouse_testkit::SubscriptionCall;
use dormouse_tests::{Stage, map};
use jiff::Timestamp;
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

/// Asks for a decision for three hours at most; `then` says what happens at the end.
fn asking(then: &Value) -> Arc<CompiledGraph> {
    let text = || Field::new(FieldType::Str, "");
    let schema = StateSchema::new().field("decision", text()).field("dormouse_resolution", text());
    let deadlines = json!([
        { "after": "PT1H", "do": "remind" },
        { "after": "PT2H", "do": "escalate", "to": "the board" },
        { "after": "PT3H", "then": then },
    ]);
    let graph = GraphBuilder::new("asking", schema)
        .entry("ask")
        .function("ask", move |_: State| {
            let wait = SignalDescriptor::new("s").with("deadlines", deadlines.clone()).with("secret", "sesame");
            async move { Err(suspend(wait).await) }
        })
        .function("settle", async |_: State| Ok(Update::none()))
        .edge("ask", "settle")
        .edge("settle", END);
    Arc::new(graph.compile().unwrap())
}

struct Scene {
    stage: Stage,
    worker: Harness,
}

impl Scene {
    /// Invocation `i` of `asking` sleeps, since midnight.
    async fn asleep(then: Value) -> Self {
        let stage = Stage::default();
        let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [asking(&then)]);
        let turn = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("asking", Map::new()) };
        let TurnOutcome::Suspended(_) = worker.turn(turn).await.outcome else { panic!("it does not sleep") };
        Self { stage, worker }
    }

    async fn sweep_after(&self, time: Duration) -> SweepSummary {
        self.stage.clock.advance(time);
        self.stage.sweep(&self.worker, SweepScope::Due).await.unwrap()
    }

    /// The timer that was set for `hour` o'clock fires.
    async fn timer(&self, hour: i64) -> TurnOutcome {
        self.worker.turn(Transmission::due("i", 1, Some(o_clock(hour)))).await.outcome
    }

    /// What was announced: the id, and what to do.
    fn announced(&self) -> Vec<(String, String)> {
        let text = |detail: &Map, name: &str| detail[name].as_str().unwrap().to_owned();
        let events = self.stage.bus.events().into_iter().filter(|event| event.detail_type == "Dormouse Deadline");
        events.map(|event| (text(&event.detail, "id"), text(&event.detail, "do"))).collect()
    }

    /// The deadlines that were registered, in order.
    fn registered(&self) -> Vec<u32> {
        let calls = self.stage.subscriptions.calls().into_iter();
        calls
            .filter_map(|call| match call {
                SubscriptionCall::Subscribed(subscription) => Some(subscription.wake.rung()),
                SubscriptionCall::Cancelled(_) => None,
            })
            .collect()
    }

    async fn ending(&self) -> TurnOutcome {
        self.worker.look_up(&"i".into()).await.unwrap()
    }
}

fn o_clock(hour: i64) -> Timestamp {
    let midnight: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    midnight + jiff::SignedDuration::from_hours(hour)
}

fn told(rung: u32, step: &str) -> (String, String) {
    (format!("i/1/{rung}"), step.to_owned())
}

#[tokio::test]
async fn with_every_timer_lost_each_deadline_passes_with_the_next_sweep() {
    let scene = Scene::asleep(json!({ "resume": { "decision": "denied" } })).await;
    assert_eq!(scene.sweep_after(HOUR - Duration::from_secs(1)).await.examined, 0);
    scene.sweep_after(Duration::from_secs(1)).await;
    assert_eq!(scene.announced(), [told(0, "remind")]);
    scene.sweep_after(HOUR).await;
    assert_eq!(scene.announced(), [told(0, "remind"), told(1, "escalate")]);
    assert_eq!(scene.registered(), [0, 1, 2], "one at a time");
    scene.sweep_after(HOUR).await;
    let TurnOutcome::Completed(done) = scene.ending().await else { panic!("it did not end") };
    assert_eq!((done.state["decision"].as_str(), done.resolution), (Some("denied"), Some(Resolution::TimedOut)));
    assert_eq!(scene.announced().len(), 2);
}

#[tokio::test]
async fn a_sweep_that_comes_very_late_passes_all_of_them() {
    let scene = Scene::asleep(json!("fail")).await;
    scene.sweep_after(10 * HOUR).await;
    assert_eq!(scene.announced(), [told(0, "remind"), told(1, "escalate")]);
    let TurnOutcome::Errored(error) = scene.ending().await else { panic!("it did not end") };
    assert_eq!(error.category, Category::SuspensionTimedOut);
    let record = scene.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap();
    assert_eq!(record.paused.resolution, Some(Resolution::TimedOut));
}

#[tokio::test]
async fn an_announcement_tells_whom_it_concerns_and_no_secret() {
    let scene = Scene::asleep(json!("fail")).await;
    scene.stage.clock.advance(HOUR);
    scene.timer(1).await;
    scene.stage.clock.advance(HOUR);
    scene.timer(2).await;
    let event = scene.stage.bus.events().pop().unwrap();
    assert_eq!((event.source.as_str(), event.detail_type.as_str()), ("dormouse", "Dormouse Deadline"));
    let expected = json!({
        "id": "i/1/1", "invocation_id": "i", "graph": "asking", "signal_id": "s", "generation": 1, "rung": 1,
        "do": "escalate", "to": "the board", "due_at": "2026-01-01T02:00:00Z",
    });
    assert_eq!(Value::Object(event.detail), expected);
}

#[tokio::test]
async fn a_timer_that_fires_twice_passes_its_deadline_once_and_registers_the_next_again() {
    let scene = Scene::asleep(json!("fail")).await;
    scene.stage.clock.advance(HOUR);
    for _ in 0..2 {
        assert!(matches!(scene.timer(1).await, TurnOutcome::Suspended(_)));
    }
    assert_eq!(scene.announced(), [told(0, "remind")]);
    assert_eq!(scene.registered(), [0, 1, 1], "the first worker may have died before it could");
}

#[tokio::test]
async fn what_a_worker_that_died_left_undone_is_done_by_the_timer_that_comes_again() {
    let scene = Scene::asleep(json!("fail")).await;
    scene.stage.clock.advance(HOUR);
    scene.stage.subscriptions.fail_unavailable("the scheduler is away");
    let TurnOutcome::Errored(error) = scene.timer(1).await else { panic!("the next one cannot be registered") };
    assert_eq!(error.bucket, Bucket::RetryableTransient);
    scene.stage.subscriptions.recover();
    assert!(matches!(scene.timer(1).await, TurnOutcome::Suspended(_)));
    assert_eq!((scene.announced(), scene.registered()), (vec![told(0, "remind")], vec![0, 1]));
}

#[tokio::test]
async fn while_the_bus_is_away_the_deadline_does_not_pass() {
    let scene = Scene::asleep(json!("fail")).await;
    scene.stage.clock.advance(HOUR);
    scene.stage.bus.fail_with(Some("away"));
    let TurnOutcome::Errored(error) = scene.timer(1).await else { panic!("nobody was told") };
    assert_eq!(error.bucket, Bucket::RetryableTransient);
    assert_eq!(scene.sweep_after(Duration::ZERO).await.failed, 1);
    scene.stage.bus.fail_with(None);
    assert!(matches!(scene.timer(1).await, TurnOutcome::Suspended(_)));
    assert_eq!((scene.announced(), scene.registered()), (vec![told(0, "remind")], vec![0, 1]));
}

#[tokio::test]
async fn an_answer_takes_back_the_deadline_that_is_next() {
    let scene = Scene::asleep(json!("fail")).await;
    scene.sweep_after(HOUR).await;
    scene.worker.turn(Transmission::signal("s", map(json!({ "decision": "approved" })))).await;
    let calls = scene.stage.subscriptions.calls();
    assert!(matches!(calls.last(), Some(SubscriptionCall::Cancelled(gone)) if gone.wake.rung() == 1), "{calls:?}");
    assert!(matches!(scene.timer(2).await, TurnOutcome::Stale { .. }));
    assert_eq!(scene.announced().len(), 1);
}

#[tokio::test]
async fn a_no_of_time_is_not_a_no_of_a_person() {
    let denied = json!({ "decision": "denied" });
    let by_time = Scene::asleep(json!({ "resume": denied })).await;
    by_time.sweep_after(3 * HOUR).await;
    let by_person = Scene::asleep(json!({ "resume": denied })).await;
    // Somebody who would like to look like the clock.
    let payload = json!({ "decision": "denied", "dormouse_resolution": "timed_out" });
    by_person.worker.turn(Transmission::signal("s", map(payload))).await;
    for (scene, resolution) in [(by_time, Resolution::TimedOut), (by_person, Resolution::Signalled)] {
        let TurnOutcome::Completed(done) = scene.ending().await else { panic!("it did not end") };
        assert_eq!(done.state["decision"], "denied");
        assert_eq!(done.state["dormouse_resolution"], resolution.as_str(), "the graph can tell");
        assert_eq!(done.resolution, Some(resolution), "whoever asks can tell");
    }
}

/// Nobody is told, and nothing ends: the timer is set once more, since it may be gone when it has fired.
#[tokio::test]
async fn a_timer_that_comes_long_before_its_deadline_passes_none() {
    let scene = Scene::asleep(json!("fail")).await;
    for _ in 0..2 {
        let outcome = scene.timer(1).await;
        assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
    }
    assert_eq!((scene.announced().len(), scene.registered()), (0, vec![0, 0, 0]));
    // No further than clocks may be apart.
    scene.stage.clock.advance(HOUR - Duration::from_secs(30));
    scene.timer(1).await;
    assert_eq!((scene.announced(), scene.registered()), (vec![told(0, "remind")], vec![0, 0, 0, 1]));
}
