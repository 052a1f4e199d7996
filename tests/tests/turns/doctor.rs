//! The doctor: one test for each thing that it can say, and for what it does about it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{
    CompiledGraph, END, Field, FieldType, GraphBuilder, NodeError, State, StateSchema, Update, UpgradePolicy, suspend,
};
use dormouse_harness::{FreshTurn, Harness, Mode, Transmission, TurnError, TurnOutcome};
use dormouse_maintenance::SweepScope;
use dormouse_maintenance::doctor::{Diagnosis, Finding};
use dormouse_ports::{
    BufferedSignal, Category, Commit, Commits, GrowingLists, IndexRepair, InvocationId, InvocationWrite, Invocations,
    Journal, LeaseRequest, Map, PausedInvocation, PendingRow, SessionId, Sessions, SignalDescriptor, SignalState,
    Sleepers, SuspendFrom,
};
use dormouse_testkit::SubscriptionCall;
use dormouse_tests::{Stage, diagnose, map};
use serde_json::json;

/// Waits for signal `s` at `node`, for a day at most, and then for nothing any more.
fn waiting_in(node: &str, version: &str, nodes: &[&str]) -> GraphBuilder {
    let accepted = json!({ "type": "object", "properties": { "answer": { "type": "integer" } } });
    let wait = SignalDescriptor::new("s").with("timeout", json!({ "after": "P1D", "then": "fail" }));
    waiting_for(wait.with("accepts", accepted), node, version, nodes)
}

fn waiting_for(wait: SignalDescriptor, node: &str, version: &str, nodes: &[&str]) -> GraphBuilder {
    let schema = StateSchema::new().with_version(version).field("answer", Field::new(FieldType::Int, 0));
    let wait = Arc::new(wait);
    let mut graph = GraphBuilder::new("waiting", schema).entry(node).function(node, move |_: State| {
        let wait = (*wait).clone();
        async move { Err(suspend(wait).await) }
    });
    let mut last = node;
    for node in nodes {
        graph = graph.function(*node, |_: State| async { Ok::<_, NodeError>(Update::none()) }).edge(last, *node);
        last = node;
    }
    graph.edge(last, END)
}

fn built(graph: GraphBuilder) -> Arc<CompiledGraph> {
    Arc::new(graph.compile().unwrap())
}

fn waiting(version: &str, nodes: &[&str]) -> Arc<CompiledGraph> {
    built(waiting_in("wait", version, nodes))
}

struct Scene {
    stage: Stage,
    harness: Harness,
}

/// An invocation `i` that sleeps, and whose wake-up a sweep has seen to.
async fn asleep() -> Scene {
    asleep_in(waiting("1", &[])).await
}

async fn asleep_in(graph: Arc<CompiledGraph>) -> Scene {
    let stage = Stage::default();
    let harness = stage.harness_on(stage.store.clone(), Mode::Stateless, [graph]);
    let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("waiting", Map::new()) };
    assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Suspended(_)));
    dormouse_maintenance::sweep(&harness, &stage.maintenance(), SweepScope::Everything).await.unwrap();
    Scene { stage, harness }
}

impl Scene {
    async fn diagnosis(&self, id: &str) -> Result<Diagnosis, TurnError> {
        diagnose(&self.harness, &self.stage.maintenance(), id).await
    }

    async fn findings(&self) -> Vec<Finding> {
        let diagnosis = self.diagnosis("i").await.unwrap();
        diagnosis.remarks.iter().map(|remark| remark.finding).collect()
    }

    async fn sentence(&self) -> String {
        self.diagnosis("i").await.unwrap().remarks.remove(0).sentence
    }

    /// What comes of the remedy against the first finding.
    async fn repaired(&self) -> String {
        let diagnosis = self.diagnosis("i").await.unwrap();
        dormouse_maintenance::doctor::repair(
            &self.harness,
            &self.stage.maintenance(),
            &diagnosis.record,
            diagnosis.remarks[0].finding,
        )
        .await
        .unwrap()
        .unwrap()
    }

    /// The same store under another worker's graphs.
    fn under(self, graphs: impl IntoIterator<Item = Arc<CompiledGraph>>) -> Self {
        let harness = self.stage.harness_on(self.stage.store.clone(), Mode::Stateless, graphs);
        Self { harness, ..self }
    }

    async fn row(&self) -> PendingRow {
        let record = self.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap();
        PendingRow::of(&record.paused)
    }
}

#[tokio::test]
async fn a_healthy_pause_says_for_what_and_until_when_it_waits() {
    let scene = asleep().await;
    scene.stage.clock.advance(Duration::from_secs(3 * 3600 + 60));
    assert_eq!(scene.findings().await, [Finding::Waiting]);
    assert_eq!(
        scene.sentence().await,
        "it has slept for 3 h 1 min at node `wait` and waits for signal `s`; at 2026-01-02T00:00:00Z it ends as timed out"
    );
}

#[tokio::test]
async fn a_pause_whose_answer_may_set_everything_is_named_and_is_no_trouble() {
    let open = built(waiting_for(SignalDescriptor::new("s"), "wait", "1", &[]));
    let scene = asleep_in(open).await;
    assert_eq!(scene.findings().await, [Finding::Waiting, Finding::AcceptsEverything]);
    assert!(!scene.diagnosis("i").await.unwrap().is_trouble());
    let whole = built(waiting_for(SignalDescriptor::new("s").with("into", "answer"), "wait", "1", &[]));
    assert_eq!(asleep_in(whole).await.findings().await, [Finding::Waiting]);
}

#[tokio::test]
async fn whoever_never_slept_is_not_found() {
    let error = asleep().await.diagnosis("nobody").await.unwrap_err();
    assert_eq!(error.category, Category::NotFound);
}

#[tokio::test]
async fn an_end_is_told() {
    let scene = asleep().await;
    scene.harness.turn(Transmission::signal("s", map(json!({ "answer": 1 })))).await;
    assert_eq!(scene.findings().await, [Finding::Completed]);
    let failed = asleep().await;
    failed.stage.clock.advance(Duration::from_secs(86_400));
    failed.stage.sweep(&failed.harness, SweepScope::Due).await.unwrap();
    assert_eq!(failed.findings().await, [Finding::Failed]);
    assert!(failed.sentence().await.contains("suspension_timed_out"));
}

#[tokio::test]
async fn a_claim_is_held_until_it_expires_and_then_taken_over() {
    let scene = asleep().await;
    scene.stage.die_holding("i", map(json!({ "answer": 5 }))).await;
    assert_eq!(scene.findings().await, [Finding::ClaimHeld]);
    assert!(scene.sentence().await.contains("or could not write what it did"));
    scene.stage.outlive_leases();
    assert_eq!(scene.findings().await, [Finding::ClaimExpired]);
    assert_eq!(scene.repaired().await, "it went on and completed");
}

#[tokio::test]
async fn a_claim_that_a_wrong_clock_made_is_told_and_taken_over() {
    let scene = asleep().await;
    scene.stage.hold("i", map(json!({ "answer": 5 })), Duration::from_secs(7200)).await;
    assert_eq!(scene.findings().await, [Finding::ClaimStuck]);
    assert!(Finding::ClaimStuck.is_trouble() && scene.sentence().await.contains("clock is wrong"));
    assert_eq!(scene.repaired().await, "it went on and completed");
}

#[tokio::test]
async fn a_lost_timer_is_overdue_and_made_up_for() {
    let scene = asleep().await;
    scene.stage.clock.advance(Duration::from_secs(86_400 + 600));
    assert_eq!(scene.findings().await, [Finding::Overdue]);
    assert!(scene.sentence().await.contains("10 min 0 s ago"));
    assert!(scene.repaired().await.starts_with("it ended, as was asked for"));
    assert_eq!(scene.findings().await, [Finding::Failed]);
}

#[tokio::test]
async fn a_wake_up_that_no_sweep_has_seen_is_registered() {
    let stage = Stage::default();
    let harness = stage.harness_on(stage.store.clone(), Mode::Stateless, [waiting("1", &[])]);
    let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("waiting", Map::new()) };
    harness.turn(start).await;
    let scene = Scene { stage, harness };
    scene.stage.clock.advance(Duration::from_secs(600));
    assert_eq!(scene.findings().await, [Finding::Unregistered]);
    assert_eq!(scene.repaired().await, "the wake-up is registered");
    let calls = scene.stage.subscriptions.calls();
    assert_eq!(calls.iter().filter(|call| matches!(call, SubscriptionCall::Subscribed(_))).count(), 2);
    assert_eq!(scene.findings().await, [Finding::Waiting]);
}

#[tokio::test]
async fn a_missing_row_is_written_again() {
    let scene = asleep().await;
    scene.stage.store.repair(&IndexRepair::Ended(scene.row().await)).await.unwrap();
    assert_eq!(scene.findings().await, [Finding::RowMissing]);
    assert_eq!(scene.repaired().await, "the row was written again");
    assert_eq!(scene.findings().await, [Finding::Waiting]);
}

#[tokio::test]
async fn a_missing_signal_item_is_written_again() {
    let scene = asleep().await;
    scene.stage.store.plant_signal(&"s".into(), None);
    assert_eq!(scene.findings().await, [Finding::SignalMissing]);
    assert_eq!(scene.repaired().await, "the wait was written again");
    assert_eq!(scene.findings().await, [Finding::Waiting]);
}

#[tokio::test]
async fn a_signal_that_lies_beside_its_wait_is_handed_over() {
    let scene = asleep().await;
    let now = scene.harness.engine().ports().clock.now();
    let payload = map(json!({ "answer": 7 }));
    let signal =
        BufferedSignal { payload, sender: None, received_at: now, expires_at: now + Duration::from_secs(3600) };
    scene.stage.store.plant_signal(&"s".into(), Some(SignalState::Buffered(signal)));
    assert_eq!(scene.findings().await, [Finding::SignalParked]);
    assert_eq!(scene.repaired().await, "it went on and completed");
}

#[tokio::test]
async fn a_signal_that_leads_elsewhere_has_no_remedy() {
    let scene = asleep().await;
    let other = SignalState::Waiting { invocation_id: "other".into(), generation: 1 };
    scene.stage.store.plant_signal(&"s".into(), Some(other));
    assert_eq!(scene.findings().await, [Finding::SignalTaken]);
    assert!(scene.sentence().await.contains("other"));
    assert_eq!(Finding::SignalTaken.remedy(), None);
}

#[tokio::test]
async fn the_lease_of_its_session_is_told() {
    let scene = asleep().await;
    let record = scene.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap();
    let id = InvocationId::from("j");
    let session = SessionId::from("session");
    let descriptor = SignalDescriptor::new("t");
    let paused = PausedInvocation { invocation_id: id, session_id: Some(session.clone()), descriptor, ..record.paused };
    let write =
        InvocationWrite::Suspend { paused: Box::new(paused), from: SuspendFrom::Fresh, claim: None, early: Vec::new() };
    let now = scene.harness.engine().ports().clock.now();
    let growing = GrowingLists::default();
    let commit = Commit {
        id: "c".to_owned(),
        now,
        session: None,
        invocation: Some(write),
        journal: Journal::default(),
        growing,
    };
    scene.stage.store.commit(&commit).await.unwrap();
    let told = async || {
        let diagnosis = scene.diagnosis("j").await.unwrap();
        let lease = diagnosis.remarks.into_iter().find(|remark| remark.sentence.contains("its session"));
        lease.map(|remark| (remark.finding, remark.finding.is_trouble(), remark.sentence))
    };
    assert_eq!(told().await, None);
    let lease = async |owner: &str, seconds: u64| {
        let now = scene.harness.engine().ports().clock.now();
        let request = LeaseRequest {
            owner: owner.into(),
            now,
            until: now + Duration::from_secs(seconds),
            past: None,
            begun_for: None,
        };
        scene.stage.store.load_session(&session, Some(&request)).await.unwrap();
    };
    lease("worker", 30).await;
    assert!(matches!(told().await, Some((Finding::SessionLeased, false, sentence)) if sentence.contains("runs now")));
    scene.stage.outlive_leases();
    assert!(matches!(told().await, Some((Finding::SessionLeased, false, sentence)) if sentence.contains("died")));
    lease("worker whose clock is wrong", 7200).await;
    assert!(matches!(told().await, Some((Finding::LeaseStuck, true, _))));
}

#[tokio::test]
async fn a_graph_that_nobody_has_is_told() {
    let scene = asleep().await.under([]);
    assert_eq!(scene.findings().await, [Finding::GraphUnknown]);
}

#[tokio::test]
async fn a_graph_that_was_changed_is_told_and_no_trouble() {
    let scene = asleep().await.under([waiting("1", &["more"])]);
    assert_eq!(scene.findings().await, [Finding::Waiting, Finding::GraphChanged]);
}

#[tokio::test]
async fn a_graph_that_was_changed_and_does_not_take_its_pauses_is_told() {
    for (policy, finding, says) in [
        (UpgradePolicy::Pin, Finding::GraphPinned, "one of them must run"),
        (UpgradePolicy::Refuse, Finding::GraphRefuses, "or cancel it"),
    ] {
        let scene = asleep().await.under([built(waiting_in("wait", "1", &["more"]).upgrade(policy))]);
        assert_eq!(scene.findings().await, [finding]);
        assert!(finding.is_trouble() && scene.sentence().await.contains(says), "{}", scene.sentence().await);
    }
    let scene = asleep().await.under([built(waiting_in("elsewhere", "1", &[]))]);
    assert_eq!(scene.findings().await, [Finding::GraphRefuses]);
    assert!(scene.sentence().await.contains("`wait`"), "{}", scene.sentence().await);
}

#[tokio::test]
async fn accepted_work_whose_session_is_busy_says_so() {
    let scene = asleep().await;
    let start = FreshTurn { invocation_id: Some("task".into()), ..FreshTurn::new("waiting", Map::new()) };
    let mut paused = scene.harness.accept(start).await.unwrap();
    paused.session_id = Some("session".into());
    let write = InvocationWrite::Accept { paused: Box::new(paused), again_at: None };
    let now = scene.harness.engine().ports().clock.now();
    let growing = GrowingLists::default();
    let journal = Journal::default();
    let commit = Commit { id: "c".to_owned(), now, session: None, invocation: Some(write), journal, growing };
    scene.stage.store.commit(&commit).await.unwrap();
    let lease =
        LeaseRequest { owner: "worker".into(), now, until: now + Duration::from_secs(30), past: None, begun_for: None };
    scene.stage.store.load_session(&"session".into(), Some(&lease)).await.unwrap();
    let remarks = scene.diagnosis("task").await.unwrap().remarks;
    assert_eq!(
        remarks.iter().map(|it| it.finding).collect::<Vec<_>>(),
        [Finding::ClaimExpired, Finding::SessionLeased]
    );
    let mut queued = scene.diagnosis("task").await.unwrap();
    queued.wait_behind("task_before");
    assert_eq!(
        queued.remarks.iter().map(|it| it.finding).collect::<Vec<_>>(),
        [Finding::Queued, Finding::SessionLeased]
    );
    assert!(!queued.is_trouble() && queued.remarks[0].sentence.contains("behind `task_before`"));
    let mut asleep = scene.diagnosis("i").await.unwrap();
    asleep.wait_behind("task_before");
    assert_eq!(asleep, scene.diagnosis("i").await.unwrap(), "what sleeps is in no queue");
}

#[tokio::test]
async fn a_schema_without_a_migration_is_told() {
    let scene = asleep().await.under([waiting("2", &[])]);
    let findings = scene.findings().await;
    assert!(findings.contains(&Finding::NoMigration), "{findings:?}");
}
