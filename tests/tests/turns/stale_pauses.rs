//! What is left of an earlier pause moves nothing of the present one, and what was accepted in time stands.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{CompiledGraph, END, Field, FieldType, GraphBuilder, State, StateSchema, Update, suspend};
use dormouse_harness::{FreshTurn, Harness, Mode, Transmission, TurnOutcome};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{IndexRepair, Invocations, Map, PausedInvocation, PendingRow, SignalDescriptor, Sleepers};
use dormouse_tests::{Stage, map};
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

struct Scene {
    stage: Stage,
    worker: Harness,
}

/// Two pauses, one behind the other; the first times out after an hour, the second after three.
fn twice(then: &Value) -> Arc<CompiledGraph> {
    let ask = |number: u8, after: &'static str| {
        let wait = SignalDescriptor::new(format!("s{number}"))
            .with("accepts", json!({ "type": "object", "properties": { "answer": { "type": "string" } } }))
            .with("timeout", json!({ "after": after, "then": then.clone() }));
        move |_: State| {
            let wait = wait.clone();
            async move { Err::<Update, _>(suspend(wait).await) }
        }
    };
    let schema = StateSchema::new().field("answer", Field::new(FieldType::Str, ""));
    let graph = GraphBuilder::new("twice", schema).entry("first");
    let graph = graph.function("first", ask(1, "PT1H")).function("second", ask(2, "PT3H"));
    Arc::new(graph.edge("first", "second").edge("second", END).compile().unwrap())
}

impl Scene {
    /// Asleep in the first pause.
    async fn asleep(then: Value) -> Self {
        let stage = Stage::default();
        let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [twice(&then)]);
        let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("twice", Map::new()) };
        assert!(matches!(worker.turn(start).await.outcome, TurnOutcome::Suspended(_)));
        Self { stage, worker }
    }

    async fn paused(&self) -> PausedInvocation {
        self.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap().paused
    }

    async fn answer(&self, text: &str) -> TurnOutcome {
        let payload = map(json!({ "answer": text }));
        self.worker.turn(Transmission::callback("i", None, payload)).await.outcome
    }

    async fn rows(&self) -> Vec<PendingRow> {
        self.stage.store.list_pending(None, None).await.unwrap().items
    }
}

#[tokio::test]
async fn the_timer_of_an_earlier_pause_moves_nothing() {
    for then in [json!("fail"), json!({ "resume": { "answer": "late" } })] {
        let scene = Scene::asleep(then).await;
        let first = scene.paused().await;
        assert!(matches!(scene.answer("first").await, TurnOutcome::Suspended(_)));
        let second = scene.paused().await;
        // The first timer comes late, when the second pause would be due as well.
        scene.stage.clock.advance(4 * HOUR);
        for due_at in [None, first.wake.due.as_ref().map(|due| due.at)] {
            let outcome = scene.worker.turn(Transmission::due("i", first.generation, due_at)).await.outcome;
            assert!(matches!(outcome, TurnOutcome::Stale { .. }), "{outcome:?}");
            assert_eq!(scene.paused().await, second, "it sleeps on in its second pause");
        }
    }
}

#[tokio::test]
async fn what_was_accepted_in_time_stands_though_its_worker_died_and_the_deadline_passed() {
    for then in [json!("fail"), json!({ "resume": { "answer": "late" } })] {
        let scene = Scene::asleep(then).await;
        assert!(matches!(scene.answer("first").await, TurnOutcome::Suspended(_)));
        scene.stage.die_holding("i", map(json!({ "answer": "in time" }))).await;
        scene.stage.clock.advance(4 * HOUR);
        let due_at = scene.paused().await.wake.due.map(|due| due.at);
        let outcome = scene.worker.turn(Transmission::due("i", 2, due_at)).await.outcome;
        let TurnOutcome::Completed(done) = outcome else { panic!("{outcome:?}") };
        assert_eq!(done.state["answer"], "in time");
    }
}

/// While its worker lives, nobody ends it either.
#[tokio::test]
async fn a_deadline_does_not_end_what_is_being_delivered() {
    let scene = Scene::asleep(json!("fail")).await;
    scene.stage.clock.advance(HOUR - Duration::from_secs(1));
    scene.stage.die_holding("i", map(json!({ "answer": "in time" }))).await;
    scene.stage.clock.advance(Duration::from_secs(2));
    let outcome = scene.worker.turn(Transmission::due("i", 1, None)).await.outcome;
    assert!(matches!(&outcome, TurnOutcome::Errored(error) if !error.repeated), "{outcome:?}");
    scene.stage.outlive_leases();
    let outcome = scene.worker.turn(Transmission::due("i", 1, None)).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
    assert_eq!(scene.paused().await.state["answer"], "in time");
}

#[tokio::test]
async fn a_row_of_an_earlier_pause_is_removed_by_either_sweep() {
    for (scope, later) in [(SweepScope::Everything, Duration::ZERO), (SweepScope::Due, 2 * HOUR)] {
        let scene = Scene::asleep(json!("fail")).await;
        let first = scene.paused().await;
        assert!(matches!(scene.answer("first").await, TurnOutcome::Suspended(_)));
        let present = scene.rows().await;
        scene.stage.store.repair(&IndexRepair::Row(Box::new(first))).await.unwrap();
        assert_eq!(scene.rows().await.len(), 2);
        scene.stage.clock.advance(later);
        let summary = scene.stage.sweep(&scene.worker, scope).await.unwrap();
        assert!(summary.orphan_timers >= 1, "{summary:?}");
        let left: Vec<_> = scene.rows().await.iter().map(|row| row.generation).collect();
        assert_eq!((left, present.len()), (vec![2], 1), "{scope:?}");
        assert_eq!(scene.paused().await.generation, 2);
    }
}
