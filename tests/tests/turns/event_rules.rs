//! A rule on the bus is there as long as somebody waits for its events, and no longer, whoever dies in between.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod interrupted;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse_engine::{CompiledGraph, END, Field, FieldType, GraphBuilder, State, StateSchema, Update, suspend};
use dormouse_harness::{FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, RulePolicy, Transmission, TurnOutcome};
use dormouse_maintenance::doctor::Finding;
use dormouse_maintenance::{SweepOrder, SweepScope, SweepSummary};
use dormouse_ports::{
    EventShape, EventWait, IndexRepair, Invocations, Notes, PausedInvocation, PendingRow, RuleEntries, RuleIncarnation,
    RuleName, RuleNeed, RuleUpdate, SignalDescriptor, Sleepers, TurnStore,
};
use dormouse_testkit::FaultyStore;
use dormouse_tests::{Stage, diagnose, map};
use jiff::Timestamp;
use serde_json::{Value, json};

/// How long a process relies on a rule without looking.
const TRUSTED: Duration = Duration::from_secs(5 * 60);
/// How long a rule stays that nobody needs.
const KEPT: Duration = Duration::from_secs(60 * 60);

struct Scene {
    stage: Stage,
    worker: Harness,
}

impl Scene {
    fn new() -> Self {
        Self::on(Stage::default())
    }

    fn on(stage: Stage) -> Self {
        let worker = worker(&stage, stage.store.clone());
        Self { stage, worker }
    }

    /// A process that has made and heard nothing yet.
    fn another_worker(&self) -> Harness {
        worker(&self.stage, self.stage.store.clone())
    }

    async fn sleeps(&self, id: &str) -> PausedInvocation {
        begin(&self.worker, "job", id).await;
        self.paused(id).await
    }

    async fn paused(&self, id: &str) -> PausedInvocation {
        self.stage.store.load_invocation(&id.into()).await.unwrap().unwrap().paused
    }

    async fn ends(&self, id: &str) {
        let done = map(json!({ "answer": "done" }));
        let outcome = self.worker.turn(Transmission::callback(id, None, done)).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
    }

    async fn sweep(&self) -> SweepSummary {
        dormouse_maintenance::sweep(&self.worker, &self.stage.maintenance(), SweepScope::Everything).await.unwrap()
    }

    /// What the doctor says of `i`.
    async fn findings(&self) -> Vec<Finding> {
        let diagnosis = diagnose(&self.worker, &self.stage.maintenance(), "i").await.unwrap();
        diagnosis.remarks.into_iter().map(|remark| remark.finding).collect()
    }

    /// The doctor makes or enables the rule that `i` needs.
    async fn repair_rule(&self) {
        let record = self.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap();
        let repaired = dormouse_maintenance::doctor::repair(
            &self.worker,
            &self.stage.maintenance(),
            &record,
            Finding::RuleMissing,
        )
        .await
        .unwrap();
        assert_eq!(repaired.as_deref(), Some("the rule is there and enabled"));
    }

    fn rules(&self) -> Vec<RuleName> {
        self.stage.subscriptions.rules().into_keys().collect()
    }

    /// A rule that nobody has needed for so long that the next round removes it.
    async fn with_a_ripe_rule(self) -> Self {
        self.sleeps("first").await;
        self.ends("first").await;
        self.sweep().await;
        self.stage.clock.advance(KEPT);
        self
    }
}

/// Waits for an event, or only for a signal.
fn graph(name: &str, event: Option<&Value>) -> Arc<CompiledGraph> {
    let event = event.cloned();
    let schema = StateSchema::new().field("answer", Field::new(FieldType::Str, ""));
    let graph = GraphBuilder::new(name, schema).entry("ask").function("ask", move |_: State| {
        let id = dormouse_engine::current().map(|identity| identity.invocation_id.to_string()).unwrap_or_default();
        let accepted = json!({ "type": "object", "properties": { "answer": { "type": "string" } } });
        let wait = SignalDescriptor::new(id).with("accepts", accepted);
        let wait = match &event {
            Some(event) => wait.with("event", event.clone()),
            None => wait,
        };
        async move { Err::<Update, _>(suspend(wait).await) }
    });
    Arc::new(graph.edge("ask", END).compile().unwrap())
}

fn worker(stage: &Stage, store: impl Into<TurnStore>) -> Harness {
    let event = json!({ "pattern": { "source": ["jobs"] }, "correlation": "$.detail.id" });
    stage.harness_on(store, Mode::Stateless, [graph("job", Some(&event)), graph("plain", None)])
}

async fn begin(worker: &Harness, graph: &str, id: &str) {
    let turn = FreshTurn::new(graph, map(json!({})));
    let outcome = worker.turn(FreshTurn { invocation_id: Some(id.into()), ..turn }).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_rule_that_nobody_needs_goes_after_a_while() {
    let scene = Scene::new();
    let paused = scene.sleeps("i").await;
    scene.ends("i").await;
    for _ in 0..2 {
        assert_eq!(scene.sweep().await.collected, 0);
        scene.stage.clock.advance(KEPT / 2 - Duration::from_secs(1));
    }
    assert_eq!(scene.sweep().await.collected, 0);
    assert_eq!(scene.rules().len(), 1, "somebody may rely on it still");
    scene.stage.clock.advance(Duration::from_secs(2));
    let summary = scene.sweep().await;
    assert_eq!((summary.collected, summary.orphan_timers, summary.failed), (1, 0, 0));
    assert_eq!(scene.rules(), []);
    assert_eq!(scene.stage.store.rule_entries().await.unwrap(), []);
    assert_eq!(PendingRow::of(&paused).rule, RuleNeed::Shape(paused.event_shape().unwrap().id()));
}

#[tokio::test]
async fn a_rule_that_somebody_needs_stays() {
    let scene = Scene::new();
    scene.sleeps("gone").await;
    scene.sleeps("asleep").await;
    scene.ends("gone").await;
    let rules = scene.rules();
    for _ in 0..5 {
        scene.stage.clock.advance(2 * KEPT);
        let summary = scene.sweep().await;
        assert_eq!((summary.collected, summary.orphan_timers), (0, 0));
    }
    assert_eq!(scene.rules(), rules);
}

#[tokio::test]
async fn a_rule_that_is_gone_comes_back_and_is_told() {
    let scene = Scene::new();
    scene.sleeps("i").await;
    scene.sweep().await;
    let rules = scene.rules();
    scene.stage.subscriptions.forget();
    let summary = scene.sweep().await;
    assert_eq!(
        (summary.orphan_timers, summary.failed),
        (1, 0),
        "the process relies on it, and it is missed all the same"
    );
    assert_eq!(scene.rules(), rules);
    assert_eq!(scene.sweep().await.orphan_timers, 0);
}

#[tokio::test]
async fn a_rule_that_is_gone_is_told_by_the_doctor_and_made_by_it() {
    let scene = Scene::new();
    scene.sleeps("i").await;
    scene.sweep().await;
    let rules = scene.rules();
    scene.stage.subscriptions.forget();
    assert_eq!(scene.findings().await, [Finding::Waiting], "it may be made just now");
    scene.stage.clock.advance(Duration::from_secs(120));
    assert_eq!(scene.findings().await, [Finding::RuleMissing]);
    scene.repair_rule().await;
    assert_eq!(scene.rules(), rules);
    assert_eq!(scene.findings().await, [Finding::Waiting, Finding::RuleLate], "an event may have come meanwhile");
    scene.stage.subscriptions.fail_unavailable("the bus is down");
    assert_eq!(scene.findings().await, [Finding::Waiting, Finding::RuleUnseen]);
}

#[tokio::test]
async fn a_rule_that_somebody_disabled_is_told_and_enabled_again() {
    let scene = Scene::new();
    scene.sleeps("i").await;
    scene.sweep().await;
    let rules = scene.rules();
    scene.stage.clock.advance(Duration::from_secs(120));
    for by_hand in [true, false] {
        scene.stage.subscriptions.disable_rules();
        assert_eq!(scene.findings().await, [Finding::RuleMissing], "it is there, and carries nothing");
        if by_hand {
            scene.repair_rule().await;
        } else {
            assert_eq!(scene.sweep().await.orphan_timers, 1, "its events were lost");
        }
        assert_eq!(scene.findings().await, [Finding::Waiting, Finding::RuleLate]);
        assert_eq!(scene.sweep().await.orphan_timers, 0);
    }
    assert_eq!(scene.rules(), rules);
}

#[tokio::test]
async fn a_disabled_rule_that_nobody_needs_goes_all_the_same() {
    let scene = Scene::new().with_a_ripe_rule().await;
    scene.stage.subscriptions.disable_rules();
    assert_eq!(scene.sweep().await.collected, 1);
    assert_eq!(scene.rules(), []);
}

/// Nobody has touched the entry; the rule is the one that the pause was told of.
#[tokio::test]
async fn an_entry_that_is_gone_is_made_again_with_its_rule() {
    let scene = Scene::new();
    scene.sleeps("i").await;
    for entry in scene.stage.store.rule_entries().await.unwrap() {
        scene.stage.store.update_rule(&RuleUpdate::Unneeded(entry)).await.unwrap();
    }
    let before = scene.rules();
    scene.sweep().await;
    let after = scene.rules();
    assert_eq!(after.len(), 1);
    assert_ne!(before, after, "what no entry names is relied on by nobody");
    assert_eq!(after, [scene.stage.store.rule_entries().await.unwrap()[0].name()]);
}

async fn has_a_rule(scene: &Scene, id: &str) {
    let shape = scene.paused(id).await.event_shape().unwrap();
    let rules = scene.stage.subscriptions.rules();
    assert!(rules.values().any(|rule| *rule == shape), "nothing wakes {id}: {rules:?}");
}

/// The process touched the entry shortly before the round, and relies on it without another look.
#[tokio::test]
async fn who_relies_on_a_rule_without_looking_keeps_it() {
    let scene = Scene::new().with_a_ripe_rule().await;
    // Another sleeper of the same process, who is gone before the round: only the touch is left of it.
    scene.sleeps("second").await;
    scene.ends("second").await;
    scene.sweep().await;
    scene.stage.clock.advance(TRUSTED - Duration::from_secs(1));
    let entries = scene.stage.store.rule_entries().await.unwrap();
    scene.sleeps("third").await;
    assert_eq!(scene.stage.store.rule_entries().await.unwrap(), entries, "it looked at nothing");
    scene.sweep().await;
    has_a_rule(&scene, "third").await;
    assert_eq!(scene.rules().len(), 1);
}

/// Rows that were looked at by another sweep count: the round remembers them.
#[tokio::test]
async fn a_round_of_several_sweeps_knows_what_the_first_one_saw() {
    let scene = Scene::on(Stage::with_pages_of(1));
    for id in ["a", "b", "c"] {
        scene.sleeps(id).await;
    }
    let order = SweepOrder { rows: 1, ..SweepScope::Everything.into() };
    for _ in 0..20 {
        dormouse_maintenance::sweep(&scene.worker, &scene.stage.maintenance(), order).await.unwrap();
        scene.stage.clock.advance(KEPT / 4);
    }
    assert_eq!(scene.rules().len(), 1);
    for id in ["a", "b", "c"] {
        scene.ends(id).await;
    }
    for _ in 0..20 {
        dormouse_maintenance::sweep(&scene.worker, &scene.stage.maintenance(), order).await.unwrap();
        scene.stage.clock.advance(KEPT / 4);
    }
    assert_eq!(scene.rules(), []);
}

/// What was kept of the round does not go with where the sweep stopped: the round removes nothing.
#[tokio::test]
async fn a_round_that_lost_its_memory_removes_nothing() {
    let scene = Scene::on(Stage::with_pages_of(1)).with_a_ripe_rule().await;
    begin(&scene.worker, "plain", "a").await;
    begin(&scene.worker, "plain", "b").await;
    let order = SweepOrder { rows: 1, ..SweepScope::Everything.into() };
    dormouse_maintenance::sweep(&scene.worker, &scene.stage.maintenance(), order).await.unwrap();
    scene.stage.store.keep_note("rules", None, None).await.unwrap();
    dormouse_maintenance::sweep(&scene.worker, &scene.stage.maintenance(), order).await.unwrap();
    assert_eq!(scene.rules().len(), 1, "the round is over, and nothing went");
    dormouse_maintenance::sweep(&scene.worker, &scene.stage.maintenance(), order).await.unwrap();
    dormouse_maintenance::sweep(&scene.worker, &scene.stage.maintenance(), order).await.unwrap();
    assert_eq!(scene.rules(), [], "the next one knows");
}

#[tokio::test]
async fn a_warm_process_asks_nothing_more_and_looks_again_after_a_while() {
    let stage = Stage::default();
    let store = Arc::new(FaultyStore::sound(stage.store.clone()));
    let worker = worker(&stage, store.clone());
    let mut costs = Vec::new();
    for (id, later) in [("cold", Duration::ZERO), ("warm", Duration::ZERO), ("later", TRUSTED), ("again", TRUSTED / 2)]
    {
        stage.clock.advance(later);
        let calls = store.calls();
        let rules = stage.subscriptions.rule_calls();
        begin(&worker, "job", id).await;
        let now = stage.subscriptions.rule_calls();
        costs.push((store.calls() - calls, now.0 - rules.0, now.1 - rules.1));
    }
    // Calls of the store, rules put, rules listed: two calls to pause, one to touch the entry of the rule; to make it one
    // touch more, and a note that it stands.
    assert_eq!(costs, [(5, 1, 1), (2, 0, 0), (3, 0, 0), (2, 0, 0)]);
}

/// EventBridge takes few such requests, and cold processes come by the hundred.
#[tokio::test]
async fn a_cold_process_asks_the_bus_for_no_rule_that_is_noted_to_stand() {
    let scene = Scene::new();
    scene.sleeps("first").await;
    let before = scene.stage.subscriptions.rule_calls();
    begin(&scene.another_worker(), "job", "second").await;
    assert_eq!(scene.stage.subscriptions.rule_calls(), before);
    scene.stage.subscriptions.forget();
    scene.sweep().await;
    has_a_rule(&scene, "second").await;
}

/// A rule of an earlier version, which nobody has noted, carries events in another form.
#[tokio::test]
async fn a_rule_that_is_not_noted_to_stand_is_made_anew_by_the_sweep() {
    let scene = Scene::new();
    let shape = scene.sleeps("i").await.event_shape().unwrap();
    let entry = scene.stage.store.rule_entries().await.unwrap().remove(0);
    scene.stage.store.update_rule(&RuleUpdate::Unneeded(entry)).await.unwrap();
    scene.stage.store.touch_rule(&shape.id(), &RuleIncarnation::of("old"), Timestamp::UNIX_EPOCH).await.unwrap();
    scene
        .stage
        .subscriptions
        .plant_rule(RuleName { shape: shape.id(), edition: Some(RuleIncarnation::of("old")) }, shape);
    let before = scene.stage.subscriptions.rule_calls().0;
    for _ in 0..2 {
        assert_eq!(scene.sweep().await.orphan_timers, 0, "nothing was lost");
    }
    assert_eq!(scene.stage.subscriptions.rule_calls().0, before + 1);
}

#[tokio::test]
async fn a_pause_is_not_written_before_its_rule_stands() {
    let scene = Scene::new();
    for is_denied in [false, true] {
        match is_denied {
            false => scene.stage.subscriptions.fail_unavailable("PutRule: ThrottlingException"),
            true => scene.stage.subscriptions.fail_denied("PutRule: AccessDeniedException"),
        }
        let turn = FreshTurn::new("job", map(json!({})));
        let outcome = scene.worker.turn(FreshTurn { invocation_id: Some("i".into()), ..turn }).await.outcome;
        let TurnOutcome::Errored(error) = outcome else { panic!("{outcome:?}") };
        assert_eq!(error.bucket == dormouse_harness::Bucket::RetryableTransient, !is_denied, "{error:?}");
        assert!(scene.stage.store.load_invocation(&"i".into()).await.unwrap().is_none(), "nothing is written");
    }
    scene.stage.subscriptions.recover();
    scene.sleeps("i").await;
}

/// Waits for one event as declared; its first node notes whether a rule stands.
fn declaring(stage: &Stage, seen: &Arc<AtomicUsize>) -> Arc<CompiledGraph> {
    let wait = EventWait { pattern: map(json!({ "source": ["jobs"] })), correlation: "$.detail.id".to_owned() };
    let seen = seen.clone();
    let subscriptions = stage.subscriptions.clone();
    let schema = StateSchema::new().field("answer", Field::new(FieldType::Str, ""));
    let graph = GraphBuilder::new("declaring", schema).events([wait]).entry("request");
    let graph = graph.function("request", move |_: State| {
        seen.store(subscriptions.rules().len(), Ordering::Relaxed);
        async move { Ok(Update::none()) }
    });
    Arc::new(graph.edge("request", END).compile().unwrap())
}

#[tokio::test]
async fn the_rules_that_a_graph_declares_stand_before_its_first_node_runs() {
    let stage = Stage::default();
    let seen = Arc::new(AtomicUsize::new(0));
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [declaring(&stage, &seen)]);
    stage.subscriptions.fail_unavailable("throttled");
    let outcome = worker.turn(Transmission::start("declaring", map(json!({})))).await.outcome;
    let TurnOutcome::Errored(error) = outcome else { panic!("{outcome:?}") };
    assert_eq!((error.bucket, seen.load(Ordering::Relaxed)), (dormouse_harness::Bucket::RetryableTransient, 0));
    stage.subscriptions.recover();
    let outcome = worker.turn(Transmission::start("declaring", map(json!({})))).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_first_sweep_makes_what_graphs_declare_and_later_ones_keep_it() {
    let stage = Stage::default();
    let seen = Arc::default();
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [declaring(&stage, &seen)]);
    for _ in 0..5 {
        let summary = dormouse_maintenance::sweep(&worker, &stage.maintenance(), SweepScope::Everything).await.unwrap();
        assert_eq!((summary.failed, summary.collected, summary.orphan_timers), (0, 0, 0));
        assert_eq!(stage.subscriptions.rules().len(), 1);
        stage.clock.advance(KEPT);
    }
    assert_eq!(stage.subscriptions.rule_calls().0, 1);
}

/// A rule that was taken may not take effect for a while.
#[tokio::test]
async fn a_node_runs_when_a_new_rule_has_had_time_to_take_effect() {
    let stage = Stage::default();
    let seen = Arc::new(AtomicUsize::new(0));
    let worker = || {
        let rules = RulePolicy { settling: Duration::from_secs(5), ..RulePolicy::default() };
        let config = HarnessConfig { rules, ..HarnessConfig::new(Mode::Stateless) };
        let graphs = GraphRegistry::new([declaring(&stage, &seen)]);
        Harness::new(stage.engine(), graphs, stage.subscriptions.clone(), stage.bus.clone(), config)
    };
    let first = worker();
    let second = worker();
    let start = || Transmission::start("declaring", map(json!({})));
    let mut turn = Box::pin(first.turn(start()));
    assert!(futures::poll!(&mut turn).is_pending());
    stage.clock.advance(Duration::from_secs(3));
    let mut other = Box::pin(second.turn(start()));
    assert!(futures::poll!(&mut other).is_pending(), "nor does another process run ahead");
    assert_eq!((stage.subscriptions.rules().len(), seen.load(Ordering::Relaxed)), (1, 0));
    stage.clock.advance(Duration::from_secs(2));
    assert!(matches!(turn.await.outcome, TurnOutcome::Completed(_)));
    assert!(matches!(other.await.outcome, TurnOutcome::Completed(_)));
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn one_shape_too_many_is_refused_and_leaves_nothing_behind() {
    let scene = Scene::new();
    for number in 0..dormouse_ports::limits::PATTERN_RULES {
        let shape = EventShape {
            pattern: map(json!({ "source": [number.to_string()] })),
            correlation: "$.detail.id".to_owned(),
        };
        let name = RuleName { shape: shape.id(), edition: Some(RuleIncarnation::of("planted")) };
        scene.stage.subscriptions.plant_rule(name, shape);
    }
    let turn = FreshTurn::new("job", map(json!({})));
    let outcome = scene.worker.turn(FreshTurn { invocation_id: Some("i".into()), ..turn }).await.outcome;
    let TurnOutcome::Errored(error) = outcome else { panic!("{outcome:?}") };
    assert!(error.message.contains("has 200 rules of ours, which is the limit"), "{}", error.message);
    assert_eq!(scene.stage.store.rule_entries().await.unwrap(), []);
    scene.sweep().await;
    scene.sleeps("j").await;
}

#[tokio::test]
async fn a_bus_that_does_not_answer_is_counted_and_asked_again() {
    let scene = Scene::new().with_a_ripe_rule().await;
    scene.stage.subscriptions.fail_unavailable("away");
    assert_eq!(scene.sweep().await.failed, 1);
    scene.stage.subscriptions.recover();
    let summary = scene.sweep().await;
    assert_eq!((summary.failed, summary.collected), (0, 1));
}

/// As the first versions left it: a rule without an edition, a row that does not say what its pause needs, no entry.
async fn of_the_first_versions(scene: &Scene) -> (RuleName, EventShape) {
    let paused = scene.sleeps("old").await;
    let shape = paused.event_shape().unwrap();
    for (name, _) in scene.stage.subscriptions.rules() {
        dormouse_ports::EventRules::remove_rule(&*scene.stage.subscriptions, &name).await.unwrap();
    }
    for entry in scene.stage.store.rule_entries().await.unwrap() {
        scene.stage.store.update_rule(&RuleUpdate::Unneeded(entry)).await.unwrap();
    }
    let row = PendingRow { rule: RuleNeed::Unknown, ..PendingRow::of(&paused) };
    scene.stage.store.repair(&IndexRepair::Registered(row)).await.unwrap();
    let name = RuleName { shape: shape.id(), edition: None };
    scene.stage.subscriptions.plant_rule(name.clone(), shape.clone());
    (name, shape)
}

#[tokio::test]
async fn a_rule_of_the_first_versions_stays_until_another_has_taken_its_place() {
    let scene = Scene::new();
    let (old, _) = of_the_first_versions(&scene).await;
    let scene = Scene::on(scene.stage);
    let summary = scene.sweep().await;
    assert_eq!((summary.orphan_timers, summary.collected), (0, 0), "nothing was lost");
    assert_eq!(scene.rules().len(), 2);
    assert!(scene.rules().contains(&old));
    scene.stage.clock.advance(KEPT);
    scene.sweep().await;
    assert_eq!(scene.rules().len(), 1);
    has_a_rule(&scene, "old").await;
    let rows = scene.stage.store.list_pending(None, None).await.unwrap().items;
    assert_eq!(rows[0].rule, RuleNeed::Shape(old.shape), "looked up once, and noted");
}

#[tokio::test]
async fn a_rule_of_the_first_versions_goes_when_nobody_needs_it() {
    let scene = Scene::new();
    of_the_first_versions(&scene).await;
    let scene = Scene::on(scene.stage);
    scene.ends("old").await;
    scene.sweep().await;
    assert_eq!(scene.rules().len(), 1, "those who rely on it for ever have time to end");
    for _ in 0..3 {
        scene.stage.clock.advance(KEPT);
        scene.sweep().await;
    }
    assert_eq!(scene.rules(), []);
    assert_eq!(scene.stage.store.rule_entries().await.unwrap(), []);
}

/// A row that cannot be looked into yet may need any rule.
#[tokio::test]
async fn who_cannot_be_looked_at_keeps_every_rule() {
    let scene = Scene::new();
    of_the_first_versions(&scene).await;
    let scene = Scene::on(scene.stage);
    for (number, is_held) in [true, false].into_iter().enumerate() {
        if is_held {
            scene.stage.die_holding("old", map(json!({ "answer": "late" }))).await;
        }
        let rules = scene.rules();
        // The first calls for a worker where nobody has it, the second looks at what that left.
        for _ in 0..2 {
            scene.stage.sweep(&scene.worker, SweepScope::Everything).await.unwrap();
        }
        assert_eq!(scene.stage.store.rule_entries().await.unwrap().is_empty(), is_held, "{number}");
        assert!(rules.iter().all(|rule| scene.rules().contains(rule)));
        scene.stage.outlive_leases();
    }
}
