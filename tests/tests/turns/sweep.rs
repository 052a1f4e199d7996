//! The sweep: bounded, resumable, and no dearer for whoever only sleeps.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_engine::{CompiledGraph, END, Field, FieldType, GraphBuilder, State, StateSchema, suspend};
use dormouse_harness::{FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, TurnOutcome, WorkCall};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_maintenance::{SweepOrder, SweepScope, SweepSummary};
use dormouse_ports::{
    BusError, Event, EventBus, Garbage, GcReport, IndexRepair, InvocationId, InvocationRecord, InvocationSummary,
    Invocations, MaintenanceStore, Map, Page, ParkedRow, PausedInvocation, PendingRow, PutAside, SignalDescriptor,
    SignalState, Signals, Sleepers, StoreError, TurnStore, limits,
};
use dormouse_testkit::{FaultyStore, MemoryStore};
use dormouse_tests::{Stage, called_for, map};
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::json;

/// Waits for the signal of the given name, for an hour at most.
fn waiting() -> Arc<CompiledGraph> {
    let schema = StateSchema::new().field("name", Field::new(FieldType::Str, ""));
    let graph = GraphBuilder::new("waiting", schema).entry("wait").function("wait", |state: State| async move {
        let name = state.get("name").and_then(|name| name.as_str()).unwrap_or_default().to_owned();
        let then = json!({ "resume": {} });
        Err(suspend(SignalDescriptor::new(name).with("timeout", json!({ "after": "PT1H", "then": then }))).await)
    });
    Arc::new(graph.edge("wait", END).compile().unwrap())
}

/// A stage whose store gives pages of two rows.
fn stage() -> Stage {
    Stage::with_pages_of(2)
}

async fn sleepers(stage: &Stage, count: usize) -> Harness {
    let harness = stage.harness_on(stage.store.clone(), Mode::Stateless, [waiting()]);
    for number in 0..count {
        let state = map(json!({ "name": format!("s{number}") }));
        let start = FreshTurn { invocation_id: Some(format!("i{number}").into()), ..FreshTurn::new("waiting", state) };
        assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Suspended(_)));
    }
    harness
}

async fn sweep(harness: &Harness, store: &MaintenanceStore, scope: SweepScope, rows: usize) -> SweepSummary {
    dormouse_maintenance::sweep(harness, store, SweepOrder { rows, due_rows: rows, ..scope.into() }).await.unwrap()
}

/// The same, and its calls are answered.
async fn sweep_and_work(stage: &Stage, harness: &Harness, scope: SweepScope, rows: usize) -> SweepSummary {
    stage.sweep(harness, SweepOrder { rows, due_rows: rows, ..scope.into() }).await.unwrap()
}

/// For what workers were called so far, in order.
fn calls_for(stage: &Stage) -> Vec<WorkCall> {
    stage.bus.events().into_iter().filter_map(called_for).collect()
}

#[tokio::test]
async fn a_sweep_stops_at_its_bound_and_the_next_one_goes_on() {
    let stage = stage();
    let harness = sleepers(&stage, 5).await;
    let first = sweep(&harness, &stage.maintenance(), SweepScope::Everything, 2).await;
    assert_eq!((first.examined, first.registered, first.unfinished), (2, 2, true));
    let another_worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [waiting()]);
    let second = sweep(&another_worker, &stage.maintenance(), SweepScope::Everything, 2).await;
    assert_eq!((second.examined, second.registered, second.unfinished), (2, 2, true));
    let third = sweep(&another_worker, &stage.maintenance(), SweepScope::Everything, 2).await;
    assert_eq!((third.examined, third.registered, third.unfinished), (1, 1, false));
}

#[tokio::test]
async fn what_fell_due_is_done_part_by_part() {
    let stage = stage();
    let harness = sleepers(&stage, 5).await;
    stage.clock.advance(Duration::from_secs(3600));
    let woken = [2, 2, 1, 0].map(|woken| (woken, woken));
    for expected in woken {
        let summary = sweep_and_work(&stage, &harness, SweepScope::Due, 2).await;
        assert_eq!((summary.examined, summary.called), expected);
    }
}

/// What would kill its process kills no sweep.
#[tokio::test]
async fn a_sweep_runs_nothing_and_calls_again_while_nobody_has_it() {
    let stage = stage();
    let harness = sleepers(&stage, 3).await;
    let due_at = stage.store.list_pending(None, None).await.unwrap().items[0].due_at;
    stage.clock.advance(Duration::from_secs(3600));
    // Somebody has the second one.
    stage.die_holding("i1", Map::new()).await;
    for (round, scope) in [SweepScope::Due, SweepScope::Everything].into_iter().enumerate() {
        let summary = sweep(&harness, &stage.maintenance(), scope, 100).await;
        assert_eq!((summary.called, summary.failed, summary.expired_claims), (2, 0, 0), "{scope:?}");
        for id in ["i0", "i1", "i2"] {
            let outcome = harness.look_up(&id.into()).await.unwrap();
            assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
        }
        let calls: Vec<_> = calls_for(&stage).split_off(2 * round);
        let told = calls.iter().map(|call| (call.invocation_id.as_str(), call.generation, call.due_at, call.swept));
        assert_eq!(told.collect::<Vec<_>>(), ["i0", "i2"].map(|id| (id, Some(1), due_at, true)));
    }
    // Its worker died, too: it is called for once, though it is due and its claim is dead.
    stage.outlive_leases();
    let summary = sweep_and_work(&stage, &harness, SweepScope::Everything, 100).await;
    assert_eq!((summary.called, summary.expired_claims, summary.orphan_timers), (3, 1, 2));
    assert_eq!(sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await.called, 0);
    assert_eq!(stage.store.list_pending(None, None).await.unwrap().items, []);
}

#[tokio::test]
async fn calls_that_the_bus_does_not_take_are_told_and_made_by_the_next_sweep() {
    let stage = stage();
    let harness = sleepers(&stage, 2).await;
    stage.clock.advance(Duration::from_secs(3600));
    stage.bus.fail_with(Some("no bus"));
    let summary = sweep(&harness, &stage.maintenance(), SweepScope::Due, 100).await;
    assert_eq!((summary.called, summary.failed), (0, 2));
    stage.bus.fail_with(None);
    let summary = sweep_and_work(&stage, &harness, SweepScope::Due, 100).await;
    assert_eq!((summary.called, summary.failed), (2, 0));
    assert_eq!(stage.store.list_pending(None, None).await.unwrap().items, []);
}

/// Notes with how many events at a time it is asked.
#[derive(Default)]
struct Asked(Mutex<Vec<usize>>);

#[async_trait]
impl EventBus for Asked {
    async fn publish(&self, _event: Event) -> Result<(), BusError> {
        self.0.lock().unwrap().push(1);
        Ok(())
    }

    async fn publish_all(&self, events: Vec<Event>) -> Vec<Result<(), BusError>> {
        self.0.lock().unwrap().push(events.len());
        events.iter().map(|_| Ok(())).collect()
    }
}

#[tokio::test]
async fn what_fell_due_costs_a_glance_and_a_publication_for_a_hundred() {
    let stage = Stage::default();
    sleepers(&stage, 150).await;
    stage.clock.advance(Duration::from_secs(3600));
    let store = Arc::new(FaultyStore::sound(stage.store.clone()));
    let bus = Arc::new(Asked::default());
    let graphs = GraphRegistry::new([waiting()]);
    let config = HarnessConfig::new(Mode::Stateless);
    let engine = stage.engine_on(store.clone());
    let harness = Harness::new(engine, graphs, stage.subscriptions.clone(), bus.clone(), config);
    let summary = sweep(&harness, &store.clone().into(), SweepScope::Due, 1000).await;
    assert_eq!((summary.examined, summary.called), (150, 150));
    let pages = bus.0.lock().unwrap().len();
    assert_eq!(bus.0.lock().unwrap().iter().sum::<usize>(), 150);
    // The position, pages of rows with a glance and a publication each, and dead claims.
    assert_eq!((pages, store.calls()), (2, 6));
}

/// A store whose reading of a whole record kills the process.
struct Deadly(Arc<MemoryStore>);

impl Deadly {
    /// The store with this before it.
    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.0.clone();
        TurnStore { invocations: self, ..store.into() }
    }
}

#[async_trait]
impl Invocations for Deadly {
    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        self.0.glance(ids).await
    }

    async fn load_invocation(&self, _id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        std::future::pending().await
    }
}

/// What a sweep still loads, to register it, may be too much for its process.
#[tokio::test]
async fn a_sweep_that_dies_of_a_record_is_followed_by_one_that_goes_on_behind_it() {
    let stage = stage();
    sleepers(&stage, 5).await;
    let order = || SweepOrder { rows: 2, due_rows: 2, ..SweepScope::Everything.into() };
    let deadly = stage.harness_on(Arc::new(Deadly(stage.store.clone())).turns(), Mode::Stateless, [waiting()]);
    assert!(dormouse_maintenance::sweep(&deadly, &stage.maintenance(), order()).now_or_never().is_none(), "it dies");
    let sound = stage.harness_on(stage.store.clone(), Mode::Stateless, [waiting()]);
    dormouse_maintenance::sweep(&sound, &stage.maintenance(), order()).await.unwrap();
    let rows = stage.store.list_pending(None, None).await.unwrap().items;
    let registered: Vec<_> = rows.iter().map(|row| (row.invocation_id.as_str(), row.registered)).collect();
    assert_eq!(registered, [("i0", false), ("i1", false)], "the first page of two");
    let behind = stage.store.list_pending(None, None).await.unwrap().next;
    let second = stage.store.list_pending(None, behind.as_deref()).await.unwrap();
    assert!(second.items.len() == 2 && second.items.iter().all(|row| row.registered), "{second:?}");
}

#[tokio::test]
async fn a_sweep_without_time_begins_nothing() {
    let stage = stage();
    let harness = sleepers(&stage, 3).await;
    stage.clock.advance(Duration::from_secs(3600));
    let order = SweepOrder { time_left: Some(Duration::from_secs(1)), ..SweepScope::Everything.into() };
    assert_eq!(dormouse_maintenance::sweep(&harness, &stage.maintenance(), order).await.unwrap().examined, 0);
}

#[tokio::test]
async fn a_wake_up_that_was_registered_at_another_place_is_registered_here() {
    let stage = stage();
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
    let client = embedded.client();
    ensure_table(&client, "dormouse").await.unwrap();
    let store_at = |place: Option<&str>| {
        let config = StoreConfig { registered_at: place.map(str::to_owned), ..StoreConfig::default() };
        Arc::new(DynamoDbStateStore::new(&client, "dormouse", config))
    };
    let here = store_at(Some("here"));
    let harness = stage.harness_on(here, Mode::Stateless, [waiting()]);
    let start = FreshTurn::new("waiting", map(json!({ "name": "s" })));
    assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Suspended(_)));
    for (place, registered, why) in [
        (Some("here"), 1, "for the first time"),
        (Some("here"), 0, "it is noted"),
        (Some("there"), 1, "the table was taken over"),
        (Some("there"), 0, "it is noted anew"),
        (None, 0, "whoever has no place takes each note"),
    ] {
        let store = store_at(place);
        let harness = stage.harness_on(store.clone(), Mode::Stateless, [waiting()]);
        let summary = sweep(&harness, &store.into(), SweepScope::Everything, 100).await;
        assert_eq!((summary.examined, summary.registered), (1, registered), "{place:?}: {why}");
    }
}

#[tokio::test]
async fn each_wake_up_is_registered_once_by_sweeps() {
    let stage = stage();
    let harness = sleepers(&stage, 5).await;
    assert_eq!(sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await.registered, 5);
    let before = stage.subscriptions.calls().len();
    let again = sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await;
    assert_eq!((again.examined, again.registered), (5, 0));
    assert_eq!(stage.subscriptions.calls().len(), before);
}

/// Calls of the store in a sweep of what is due, and in a bounded sweep of everything, over `count` healthy sleepers.
async fn calls(count: usize) -> (usize, usize) {
    let stage = Stage::default();
    let harness = sleepers(&stage, count).await;
    while sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await.unfinished {}
    let store = Arc::new(FaultyStore::sound(stage.store.clone()));
    let harness = stage.harness_on(store.clone(), Mode::Stateless, [waiting()]);
    sweep(&harness, &store.clone().into(), SweepScope::Due, 100).await;
    let due = store.calls();
    sweep(&harness, &store.clone().into(), SweepScope::Everything, 100).await;
    (due, store.calls() - due)
}

#[tokio::test]
async fn a_sweep_costs_the_same_however_many_sleep() {
    let hundred = calls(101).await;
    let many = calls(2000).await;
    assert_eq!(hundred, many);
    // Position and rows of what is due, and dead claims; the same again, position, rows and one glance, which
    // rules are needed so far, the new position, what is parked, and a stretch of the ground with its position.
    assert_eq!(many, (3, 11));
}

#[tokio::test]
async fn a_dead_claim_is_counted_and_taken_over() {
    let stage = stage();
    let harness = sleepers(&stage, 1).await;
    stage.die_holding("i0", Map::new()).await;
    let held = sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await;
    assert_eq!((held.expired_claims, held.called), (0, 0));
    stage.outlive_leases();
    let expired = sweep_and_work(&stage, &harness, SweepScope::Everything, 100).await;
    assert_eq!((expired.expired_claims, expired.called), (1, 1));
    assert_eq!(sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await.expired_claims, 0);
}

#[tokio::test]
async fn a_dead_claim_is_found_at_once_among_any_number_of_sleepers() {
    let stage = stage();
    let harness = sleepers(&stage, 200).await;
    for id in ["i57", "i191"] {
        stage.die_holding(id, Map::new()).await;
    }
    stage.outlive_leases();
    // Nothing has fallen due, and in the lane of everything only one row is looked at.
    let summary = sweep_and_work(&stage, &harness, SweepScope::Everything, 1).await;
    assert_eq!((summary.expired_claims, summary.called, summary.unfinished), (1, 1, true));
    let summary = sweep(&harness, &stage.maintenance(), SweepScope::Due, 100).await;
    assert_eq!((summary.expired_claims, summary.called, summary.examined), (1, 1, 0));
}

#[tokio::test]
async fn a_claim_that_a_wrong_clock_made_is_taken_over_by_the_next_sweep() {
    for scope in [SweepScope::Due, SweepScope::Everything] {
        let stage = stage();
        let harness = sleepers(&stage, 2).await;
        stage.hold("i0", Map::new(), limits::LEASE).await;
        stage.hold("i1", Map::new(), 1000 * limits::LEASE).await;
        let summary = sweep_and_work(&stage, &harness, scope, 100).await;
        assert_eq!((summary.expired_claims, summary.called, summary.failed), (1, 1, 0), "{scope:?}");
        let woken = harness.look_up(&"i1".into()).await.unwrap();
        assert!(matches!(woken, TurnOutcome::Completed(_)), "{woken:?}");
    }
}

#[tokio::test]
async fn a_row_whose_pause_is_over_is_removed() {
    let stage = stage();
    let harness = sleepers(&stage, 1).await;
    let paused = stage.store.load_invocation(&"i0".into()).await.unwrap().unwrap().paused;
    harness.turn(Transmission::signal("s0", Map::new())).await;
    for scope in [SweepScope::Everything, SweepScope::Due] {
        stage.store.repair(&IndexRepair::Row(Box::new(paused.clone()))).await.unwrap();
        if scope == SweepScope::Due {
            stage.clock.advance(Duration::from_secs(3600));
        }
        let summary = sweep(&harness, &stage.maintenance(), scope, 100).await;
        assert_eq!((summary.orphan_timers, summary.called, summary.failed), (1, 0, 0), "{scope:?}");
        assert_eq!(stage.store.pending_row(&paused).await.unwrap(), None::<PendingRow>);
    }
}

/// An index that lists the rows as they were a moment ago.
struct Outdated {
    listed: Vec<PendingRow>,
    now: Arc<MemoryStore>,
}

#[async_trait]
impl Sleepers for Outdated {
    async fn list_pending(&self, _: Option<Timestamp>, _: Option<&str>) -> Result<Page<PendingRow>, StoreError> {
        Ok(Page { items: self.listed.clone(), next: None })
    }

    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        self.now.pending_row(paused).await
    }

    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        self.now.dead_claims(now).await
    }

    async fn put_aside(&self) -> Result<PutAside, StoreError> {
        self.now.put_aside().await
    }

    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        self.now.list_parked(cursor).await
    }

    async fn repair(&self, repair: &IndexRepair) -> Result<(), StoreError> {
        self.now.repair(repair).await
    }
}

/// Its invocation has ended between the listing and the glance, and has taken it along.
#[tokio::test]
async fn a_row_that_went_with_its_pause_is_no_orphan() {
    let stage = stage();
    let harness = sleepers(&stage, 1).await;
    let listed = stage.store.list_pending(None, None).await.unwrap().items;
    harness.turn(Transmission::signal("s0", Map::new())).await;
    let outdated = Outdated { listed, now: stage.store.clone() };
    let store = MaintenanceStore { sleepers: Arc::new(outdated), ..stage.maintenance() };
    let summary = sweep(&harness, &store, SweepScope::Everything, 100).await;
    assert_eq!((summary.examined, summary.orphan_timers, summary.called, summary.failed), (2, 0, 0, 0));
}

#[tokio::test]
async fn a_wait_of_an_invocation_that_is_gone_is_removed() {
    let stage = stage();
    let harness = sleepers(&stage, 1).await;
    let nobody = SignalState::Waiting { invocation_id: "nobody".into(), generation: 1 };
    stage.store.plant_signal(&"lost".into(), Some(nobody));
    assert_eq!(sweep(&harness, &stage.maintenance(), SweepScope::Due, 100).await.collected, 0);
    assert_eq!(sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await.collected, 1);
    let kept = async |id: &str| {
        let record = stage.store.load_signal(&id.into(), harness.engine().ports().clock.now()).await;
        record.unwrap().is_some()
    };
    assert_eq!((kept("lost").await, kept("s0").await), (false, true));
}

#[tokio::test]
async fn a_parked_signal_is_unclaimed_until_somebody_waits() {
    let stage = stage();
    let harness = sleepers(&stage, 0).await;
    harness.turn(Transmission::signal("s0", Map::new())).await;
    assert_eq!(
        sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await.unclaimed_signals,
        0,
        "it has just come"
    );
    stage.clock.advance(Duration::from_secs(60));
    assert_eq!(sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await.unclaimed_signals, 1);
    let start = Transmission::start("waiting", map(json!({ "name": "s0" })));
    assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Completed(_)));
    assert_eq!(sweep(&harness, &stage.maintenance(), SweepScope::Everything, 100).await.unclaimed_signals, 0);
    assert_eq!(stage.store.list_parked(None).await.unwrap().items, []);
}

/// What is stored has three stretches, with something to remove in each; notes where they were asked for.
struct Ground {
    asked: Mutex<Vec<Option<String>>>,
}

#[async_trait]
impl Garbage for Ground {
    async fn collect_garbage(&self, _now: Timestamp, cursor: Option<&str>) -> Result<GcReport, StoreError> {
        self.asked.lock().unwrap().push(cursor.map(str::to_owned));
        let next = match cursor {
            None => Some("second"),
            Some("second") => Some("third"),
            Some(_) => None,
        };
        Ok(GcReport { removed: 1, next: next.map(str::to_owned), done: next.is_none() })
    }
}

#[tokio::test]
async fn each_sweep_goes_on_where_the_ground_was_left() {
    let stage = stage();
    let ground = Arc::new(Ground { asked: Mutex::default() });
    for _ in 0..4 {
        // Each on another machine.
        let harness = stage.harness_on(stage.store.clone(), Mode::Stateless, [waiting()]);
        let maintenance = MaintenanceStore { garbage: ground.clone(), ..stage.maintenance() };
        assert_eq!(sweep(&harness, &maintenance, SweepScope::Everything, 100).await.collected, 1);
    }
    let asked = ground.asked.lock().unwrap().clone();
    assert_eq!(asked.iter().map(Option::as_deref).collect::<Vec<_>>(), [None, Some("second"), Some("third"), None]);
}
