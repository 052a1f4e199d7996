//! Work that kills its workers: it is put aside whole, told to its client, named by the doctor, and can be tried again.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{CompiledGraph, END, Field, FieldType, GraphBuilder, StateSchema, Update, suspend};
use dormouse_harness::{FreshTurn, Harness, Mode, Transmission, TurnOutcome};
use dormouse_maintenance::SweepScope;
use dormouse_maintenance::doctor::Finding;
use dormouse_ports::{
    Category, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, InvocationStatus, InvocationWrite, Invocations,
    SignalDescriptor, StateStore, StoreError, TurnStore, limits,
};
use dormouse_tests::{Stage, diagnose, map};
use serde_json::json;

fn asking() -> Arc<CompiledGraph> {
    asking_by(SignalDescriptor::new("s1"))
}

fn asking_by(wait: SignalDescriptor) -> Arc<CompiledGraph> {
    let schema = StateSchema::new()
        .field("answer", Field::new(FieldType::Str, ""))
        .field("done", Field::new(FieldType::Bool, false));
    let graph = GraphBuilder::new("asking", schema)
        .entry("ask")
        .function("ask", move |_| {
            let wait = wait.clone();
            async move { Err(suspend(wait).await) }
        })
        .function("settle", |_| async { Ok(Update::none().with("done", true)) })
        .edge("ask", "settle")
        .edge("settle", END);
    Arc::new(graph.compile().unwrap())
}

async fn asleep(stage: &Stage) -> Harness {
    let harness = stage.harness_on(stage.store.clone(), Mode::Stateless, [asking()]);
    let start = FreshTurn { invocation_id: Some("i1".into()), ..FreshTurn::new("asking", map(json!({}))) };
    assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Suspended(_)));
    harness
}

/// So many workers claim it, one after the other, and die.
async fn die(stage: &Stage, workers: u32) {
    for _ in 0..workers {
        stage.die_holding("i1", map(json!({ "answer": "yes" }))).await;
        stage.outlive_leases();
    }
}

async fn status(stage: &Stage) -> InvocationStatus {
    stage.store.load_invocation(&"i1".into()).await.unwrap().unwrap().status
}

#[tokio::test]
async fn it_is_put_aside_when_too_many_workers_died_and_goes_on_when_somebody_says_so() {
    let stage = Stage::default();
    let harness = asleep(&stage).await;
    die(&stage, limits::ATTEMPTS).await;
    let swept = stage.sweep(&harness, SweepScope::Everything).await.unwrap();
    assert_eq!(swept.called, 1);
    assert!(
        matches!(status(&stage).await, InvocationStatus::Errored(told) if told.category == Category::AttemptsExhausted)
    );
    let again = stage.sweep(&harness, SweepScope::Everything).await.unwrap();
    assert_eq!((again.called, again.expired_claims), (0, 0), "no sweep comes by any more");
    assert!(matches!(harness.look_up(&"i1".into()).await.unwrap(),
        TurnOutcome::Errored(error) if error.category == Category::AttemptsExhausted && error.message.contains("retry i1")));
    assert_eq!(dormouse_maintenance::put_aside(&stage.maintenance()).await.unwrap().ids, ["i1".into()]);
    let diagnosis = diagnose(&harness, &stage.maintenance(), "i1").await.unwrap();
    assert_eq!(diagnosis.remarks[0].finding, Finding::PutAside);
    assert!(diagnosis.is_trouble());

    harness.retry(&"i1".into()).await.unwrap();
    assert_eq!(dormouse_maintenance::put_aside(&stage.maintenance()).await.unwrap().ids, []);
    assert_eq!(stage.bus.events().last().unwrap().detail["invocation_id"], "i1", "a worker is called");
    let twice = harness.retry(&"i1".into()).await.unwrap_err();
    assert_eq!(twice.category, Category::SuspensionRecordInvalid);
    assert!(matches!(harness.take_up(&"i1".into(), None).await.outcome, TurnOutcome::Completed(_)));
    let InvocationStatus::Completed { state } = status(&stage).await else { panic!("it completed") };
    assert_eq!(state, map(json!({ "answer": "yes", "done": true })), "with the answer that counted");
}

#[tokio::test]
async fn it_can_be_canceled_for_good() {
    let stage = Stage::default();
    let harness = asleep(&stage).await;
    die(&stage, limits::ATTEMPTS).await;
    stage.sweep(&harness, SweepScope::Everything).await.unwrap();
    assert_eq!(dormouse_maintenance::put_aside(&stage.maintenance()).await.unwrap().ids, ["i1".into()]);
    assert!(!harness.cancel(&"i1".into(), None, Some("not worth it".to_owned())).await.unwrap().repeated);
    assert!(matches!(status(&stage).await, InvocationStatus::Canceled(_)));
    assert_eq!(dormouse_maintenance::put_aside(&stage.maintenance()).await.unwrap().ids, []);
    assert_eq!(harness.retry(&"i1".into()).await.unwrap_err().category, Category::SuspensionRecordInvalid);
    assert!(harness.cancel(&"i1".into(), None, None).await.unwrap().repeated);
}

#[tokio::test]
async fn one_worker_less_and_it_goes_on() {
    let stage = Stage::default();
    let harness = asleep(&stage).await;
    die(&stage, limits::ATTEMPTS - 1).await;
    assert_eq!(stage.sweep(&harness, SweepScope::Everything).await.unwrap().called, 1);
    assert!(matches!(status(&stage).await, InvocationStatus::Completed { .. }));
}

#[tokio::test]
async fn whoever_answers_it_is_told_too() {
    let stage = Stage::default();
    let harness = asleep(&stage).await;
    die(&stage, limits::ATTEMPTS).await;
    let answer = Transmission::signal("s1", map(json!({ "answer": "no" })));
    assert!(matches!(harness.turn(answer).await.outcome,
        TurnOutcome::Errored(error) if error.category == Category::AttemptsExhausted));
}

#[tokio::test]
async fn an_answer_that_it_refuses_stays_with_its_carrier_and_counts_when_it_waits_on() {
    let stage = Stage::default();
    let harness = asleep(&stage).await;
    let misfit = map(json!({ "answer": 7 }));
    for _ in 0..limits::ATTEMPTS {
        stage.die_holding("i1", misfit.clone()).await;
        stage.outlive_leases();
    }
    stage.sweep(&harness, SweepScope::Everything).await.unwrap();
    let answer = || Transmission::signal("s1", map(json!({ "answer": "no" })));
    let TurnOutcome::Errored(refused) = harness.turn(answer()).await.outcome else { panic!("it is put aside") };
    assert_eq!((refused.category, refused.repeated), (Category::AttemptsExhausted, false), "nobody has it yet");

    harness.retry(&"i1".into()).await.unwrap();
    assert!(matches!(harness.take_up(&"i1".into(), None).await.outcome,
        TurnOutcome::Errored(error) if error.category == Category::SuspensionResumePayloadInvalid));
    assert!(matches!(status(&stage).await, InvocationStatus::Suspended), "it waits on");
    assert!(matches!(harness.turn(answer()).await.outcome, TurnOutcome::Completed(_)));
}

#[tokio::test]
async fn what_is_not_put_aside_is_not_tried_again() {
    let stage = Stage::default();
    let harness = asleep(&stage).await;
    assert_eq!(harness.retry(&"i1".into()).await.unwrap_err().category, Category::SuspensionRecordInvalid);
    assert_eq!(harness.retry(&"i2".into()).await.unwrap_err().category, Category::NotFound);
}

/// Does not say whether it lets anything be tried again.
struct Silent(Arc<dyn StateStore>);

impl Silent {
    /// The store with this before it.
    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.0.clone();
        TurnStore { commits: self, ..store.into() }
    }
}

#[async_trait]
impl Commits for Silent {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.0.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        match commit.invocation {
            Some(InvocationWrite::Retry { .. }) => Err(CommitError::Unknown("no answer".to_owned())),
            _ => self.0.commit(commit).await,
        }
    }
}

#[tokio::test]
async fn whoever_is_not_told_whether_it_is_tried_again_may_ask_once_more() {
    let stage = Stage::default();
    let harness = asleep(&stage).await;
    die(&stage, limits::ATTEMPTS).await;
    stage.sweep(&harness, SweepScope::Everything).await.unwrap();
    let silent = stage.harness_on(Arc::new(Silent(stage.store.clone())).turns(), Mode::Stateless, [asking()]);
    let error = silent.retry(&"i1".into()).await.unwrap_err();
    assert_eq!((error.category, error.in_doubt), (Category::OutcomeUnknown, false));
    harness.retry(&"i1".into()).await.unwrap();
}

#[tokio::test]
async fn its_wait_stays_as_long_as_it_is_put_aside() {
    let stage = Stage::default();
    let harness = asleep(&stage).await;
    die(&stage, limits::ATTEMPTS).await;
    for _ in 0..3 {
        stage.sweep(&harness, SweepScope::Everything).await.unwrap();
    }
    harness.retry(&"i1".into()).await.unwrap();
    stage.die_holding("i1", map(json!({ "answer": "yes" }))).await;
    stage.outlive_leases();
    let late = Transmission::signal("s1", map(json!({ "answer": "late" })));
    assert!(matches!(harness.turn(late).await.outcome, TurnOutcome::Completed(_)), "whoever signals finds it");
}

/// Notes how long claims are asked for.
struct Asked(Arc<dyn StateStore>, Mutex<Vec<Duration>>);

impl Asked {
    /// The store with this before it.
    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.0.clone();
        TurnStore { commits: self, ..store.into() }
    }
}

#[async_trait]
impl Commits for Asked {
    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.0.commit(commit).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let asked = Duration::try_from(request.until.duration_since(request.now)).unwrap();
        self.1.lock().unwrap().push(asked);
        self.0.claim(request).await
    }
}

#[tokio::test]
async fn a_claim_outlives_its_turn_by_a_margin_for_clocks() {
    let stage = Stage::default();
    asleep(&stage).await;
    let asked = Arc::new(Asked(stage.store.clone(), Mutex::default()));
    let harness = stage.harness_on(asked.clone().turns(), Mode::Stateless, [asking()]);
    let config = harness.config();
    assert!(config.lease_margin >= Duration::from_secs(1), "two clocks agree that well, not better");
    let answer = Transmission::signal("s1", map(json!({ "answer": "yes" })));
    assert!(matches!(harness.turn(answer).await.outcome, TurnOutcome::Completed(_)));
    assert_eq!(*asked.1.lock().unwrap(), [config.turn_budget + config.lease_margin]);
}

#[tokio::test]
async fn a_worker_with_little_time_that_takes_over_at_a_deadline_claims_for_no_longer_than_it_has() {
    let stage = Stage::default();
    let hour = SignalDescriptor::new("s1").with("timeout", json!({ "after": "PT1H", "then": "fail" }));
    let asked = Arc::new(Asked(stage.store.clone(), Mutex::default()));
    let harness = stage.harness_on(asked.clone().turns(), Mode::Stateless, [asking_by(hour)]);
    let start = FreshTurn { invocation_id: Some("i1".into()), ..FreshTurn::new("asking", map(json!({}))) };
    assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Suspended(_)));
    stage.die_holding("i1", map(json!({ "answer": "yes" }))).await;
    stage.clock.advance(Duration::from_secs(3601));
    asked.1.lock().unwrap().clear();
    let left = Duration::from_secs(4);
    let due = Transmission { time_left: Some(left), ..Transmission::due("i1", 1, None) };
    assert!(matches!(harness.turn(due).await.outcome, TurnOutcome::Completed(_)));
    assert_eq!(*asked.1.lock().unwrap(), [left + harness.config().lease_margin]);
}
