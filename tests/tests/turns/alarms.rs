//! Whatever is lost, a metric of the sweep tells within a minute. Dead letters are told by what comes into two queues, which the
//! alarms of the template watch.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_app::{EXPENSE_APPROVAL, EXPORT_JOB};
use dormouse_harness::{FreshTurn, Harness, Mode, Transmission, TurnOutcome};
use dormouse_maintenance::{SweepOrder, SweepScope, SweepSummary};
use dormouse_ports::{
    Clock, Commit, Commits, GrowingLists, IndexRepair, InvocationWrite, Invocations, Journal, Map, PausedInvocation,
    Sleepers,
};
use dormouse_tests::{Stage, map};
use serde_json::json;

struct Scene {
    stage: Stage,
    worker: Harness,
}

fn expense() -> FreshTurn {
    let state = map(json!({ "employee": "Ada", "amount_cents": 120_000, "purpose": "a lathe" }));
    FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new(EXPENSE_APPROVAL, state) }
}

fn approval() -> Map {
    map(json!({ "decision": "approved", "decided_by": "Grace" }))
}

fn scene() -> Scene {
    let stage = Stage::default();
    let worker = stage.shipped_on(stage.store.clone(), Mode::Stateless).unwrap();
    Scene { stage, worker }
}

impl Scene {
    /// An invocation that sleeps; nothing is lost yet.
    async fn asleep(&self, transmission: FreshTurn) -> PausedInvocation {
        let outcome = self.worker.turn(transmission).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
        self.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap().paused
    }

    async fn commit(&self, id: &str, write: InvocationWrite) {
        let commit = Commit {
            id: id.to_owned(),
            now: self.stage.clock.now(),
            session: None,
            invocation: Some(write),
            journal: Journal::default(),
            growing: GrowingLists::default(),
        };
        self.stage.store.commit(&commit).await.unwrap();
    }

    async fn sweep(&self) -> SweepSummary {
        let order = SweepOrder::from(SweepScope::Everything);
        self.stage.sweep(&self.worker, order).await.unwrap()
    }

    /// What sweeps tell within a minute from now on.
    async fn told(&self) -> BTreeMap<&'static str, usize> {
        let mut told = BTreeMap::new();
        for _ in 0..2 {
            self.stage.clock.advance(Duration::from_secs(30));
            let summary = self.sweep().await;
            for (metric, count) in [
                ("expired_claims", summary.expired_claims),
                ("not_begun", summary.not_begun),
                ("orphan_timers", summary.orphan_timers),
                ("unclaimed_signals", summary.unclaimed_signals),
            ] {
                if count > 0 {
                    *told.entry(metric).or_default() += count;
                }
            }
        }
        told
    }
}

#[tokio::test]
async fn where_nothing_is_lost_nothing_is_told() {
    let scene = scene();
    scene.asleep(expense()).await;
    assert_eq!(scene.told().await, BTreeMap::new());
    let callback = Transmission::callback("i", Some(1), approval());
    assert!(matches!(scene.worker.turn(callback).await.outcome, TurnOutcome::Completed(_)));
    assert_eq!(scene.told().await, BTreeMap::new());
}

/// The process dies between the pause and its registration, or the scheduler loses what it was told.
#[tokio::test]
async fn a_timer_or_a_rule_that_was_never_made_is_told() {
    let export = FreshTurn {
        invocation_id: Some("i".into()),
        ..FreshTurn::new(EXPORT_JOB, map(json!({ "dataset": "orders" })))
    };
    // The export has a timer and a rule.
    for (begun, lost) in [(expense(), 1), (export, 2)] {
        let scene = scene();
        scene.asleep(begun).await;
        scene.stage.subscriptions.forget();
        assert_eq!(scene.told().await, BTreeMap::from([("orphan_timers", lost)]));
    }
}

/// The timer was registered and never fires, and sweeps did not come either.
#[tokio::test]
async fn a_timer_that_does_not_fire_is_told() {
    let scene = scene();
    let paused = scene.asleep(expense()).await;
    scene.sweep().await;
    let due = paused.wake.due.unwrap().at;
    scene.stage.clock.advance(Duration::try_from(due.duration_since(scene.stage.clock.now())).unwrap());
    scene.stage.clock.advance(Duration::from_secs(30));
    assert_eq!(scene.told().await.get("orphan_timers"), Some(&1));
}

/// Nobody can know of an event that was never published: the pause grows old.
#[tokio::test]
async fn a_pause_whose_event_is_lost_grows_old() {
    let scene = scene();
    scene.asleep(expense()).await;
    scene.stage.clock.advance(Duration::from_secs(3600));
    assert_eq!(scene.sweep().await.oldest_pause, Duration::from_secs(3600));
}

#[tokio::test]
async fn a_worker_that_died_over_a_claim_is_told() {
    let scene = scene();
    scene.asleep(expense()).await;
    scene.stage.die_holding("i", approval()).await;
    assert_eq!(scene.told().await, BTreeMap::from([("expired_claims", 1)]));
}

#[tokio::test]
async fn accepted_work_whose_call_is_lost_is_told() {
    let scene = scene();
    let paused = scene.worker.accept(expense()).await.unwrap();
    scene.commit("accept", InvocationWrite::Accept { paused: Box::new(paused), again_at: None }).await;
    assert_eq!(scene.told().await, BTreeMap::from([("not_begun", 1)]));
}

#[tokio::test]
async fn accepted_input_whose_call_is_lost_is_told() {
    let scene = scene();
    let paused = scene.asleep(expense()).await;
    let payload = scene.worker.input(&paused, approval()).await.unwrap();
    let invocation_id = "i".into();
    let generation = 1;
    scene.commit("input", InvocationWrite::Deliver { invocation_id, generation, answered: None, payload }).await;
    assert_eq!(scene.told().await, BTreeMap::from([("not_begun", 1)]));
}

/// A sweep may come between the pause and its registration, and between the input and the worker that is called for it.
#[tokio::test]
async fn what_a_worker_is_about_to_do_is_done_and_not_told() {
    let scene = scene();
    let paused = scene.asleep(expense()).await;
    scene.stage.subscriptions.forget();
    let early = scene.sweep().await;
    assert_eq!((early.registered, early.orphan_timers), (1, 0));
    let payload = scene.worker.input(&paused, approval()).await.unwrap();
    let invocation_id = "i".into();
    scene.commit("input", InvocationWrite::Deliver { invocation_id, generation: 1, answered: None, payload }).await;
    let early = scene.sweep().await;
    assert_eq!((early.called, early.not_begun, early.orphan_timers), (1, 0, 0));
}

#[tokio::test]
async fn a_signal_that_nobody_claims_is_told() {
    let scene = scene();
    let parked = scene.worker.turn(Transmission::signal("nobody", Map::new())).await.outcome;
    assert!(matches!(parked, TurnOutcome::Buffered { .. }), "{parked:?}");
    assert_eq!(scene.told().await, BTreeMap::from([("unclaimed_signals", 1)]));
}

#[tokio::test]
async fn a_row_without_its_pause_is_told() {
    let scene = scene();
    let paused = scene.asleep(expense()).await;
    let callback = Transmission::callback("i", Some(1), approval());
    assert!(matches!(scene.worker.turn(callback).await.outcome, TurnOutcome::Completed(_)));
    scene.stage.store.repair(&IndexRepair::Row(Box::new(paused))).await.unwrap();
    assert_eq!(scene.told().await, BTreeMap::from([("orphan_timers", 1)]));
}
