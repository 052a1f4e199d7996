//! Work that is accepted now and done later: nothing is done twice, whoever is lost.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{
    CompiledGraph, END, Field, FieldType, GraphBuilder, NodeError, Reducer, SessionConcurrency, SessionPolicy, State,
    StateSchema, Update, suspend,
};
use dormouse_harness::chat::{ChatHarness, ChatMessage, HISTORY_LENGTH, MESSAGES};
use dormouse_harness::{DispatchPath, FreshTurn, Harness, Mode, Transmission, TurnError, TurnOutcome, WORK};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{
    Category, ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits, GrowingLists, InvocationId,
    InvocationRecord, InvocationStatus, InvocationWrite, Invocations, Journal, LeaseRequest, Map, PausedInvocation,
    Sessions, SignalDescriptor, Sleepers, StoreError, TurnStore, limits,
};
use dormouse_testkit::MemoryStore;
use dormouse_tests::{Stage, map};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// `work -> wait -> END`: counts how often it works, waits for an answer unless it was given one, and does in `work`
/// what `how` says.
fn job(runs: Arc<AtomicUsize>) -> Arc<CompiledGraph> {
    let schema = StateSchema::new()
        .field("how", Field::new(FieldType::Str, "well"))
        .field("answer", Field::new(FieldType::Int, 0));
    let graph = GraphBuilder::new("job", schema)
        .sessions(SessionPolicy::projected(["answer"]))
        .entry("work")
        .function("work", move |state: State| {
            let runs = runs.clone();
            async move {
                runs.fetch_add(1, Ordering::Relaxed);
                match state.get("how").and_then(Value::as_str) {
                    Some("badly") => Err(NodeError::new("it broke")),
                    Some("forever") => std::future::pending().await,
                    _ => Ok(Update::none()),
                }
            }
        })
        .function("wait", |state: State| async move {
            if state.get("answer") != Some(&json!(0)) {
                return Ok(Update::none());
            }
            Err(suspend(SignalDescriptor::new("s")).await)
        })
        .edge("work", "wait")
        .edge("wait", END);
    Arc::new(graph.compile().unwrap())
}

/// Answers every message.
fn talk() -> Arc<CompiledGraph> {
    let messages = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append);
    let graph = GraphBuilder::new("talk", StateSchema::new().field(MESSAGES, messages))
        .sessions(SessionPolicy::projected([MESSAGES]))
        .entry("answer")
        .function("answer", |_: State| async {
            Ok(Update::none().with(MESSAGES, json!([{ "role": "assistant", "content": "Yes." }])))
        })
        .edge("answer", END);
    Arc::new(graph.compile().unwrap())
}

struct Scene {
    stage: Stage,
    harness: Harness,
    runs: Arc<AtomicUsize>,
}

fn scene() -> Scene {
    let stage = Stage::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [job(runs.clone()), talk()]);
    Scene { stage, harness, runs }
}

fn id() -> InvocationId {
    "task-1".into()
}

impl Scene {
    fn start(state: Value) -> FreshTurn {
        FreshTurn {
            invocation_id: Some(id()),
            session_id: Some("session-1".into()),
            ..FreshTurn::new("job", map(state))
        }
    }

    /// Accepts a job with `state`, and tells nobody.
    async fn accepted(&self, state: Value) -> PausedInvocation {
        self.accept(Self::start(state)).await
    }

    async fn accept(&self, transmission: FreshTurn) -> PausedInvocation {
        let paused = self.harness.accept(transmission).await.unwrap();
        self.commit("accept", InvocationWrite::Accept { paused: Box::new(paused.clone()), again_at: None }).await;
        paused
    }

    async fn deliver(&self, payload: Value) {
        let paused = self.record().await.paused;
        let payload = self.harness.input(&paused, map(payload)).await.unwrap();
        let generation = paused.generation;
        self.commit("deliver", InvocationWrite::Deliver { invocation_id: id(), generation, answered: None, payload })
            .await;
    }

    async fn commit(&self, id: &str, write: InvocationWrite) {
        let now = self.stage.clock.now();
        let growing = GrowingLists::default();
        let invocation = Some(write);
        let journal = Journal::default();
        let commit = Commit { id: id.to_owned(), now, session: None, invocation, journal, growing };
        self.stage.store.commit(&commit).await.unwrap();
    }

    async fn take_up(&self) -> TurnOutcome {
        self.harness.take_up(&id(), None).await.outcome
    }

    async fn record(&self) -> InvocationRecord {
        self.stage.store.load_invocation(&id()).await.unwrap().unwrap()
    }

    /// A worker takes the work up and dies.
    async fn die_at_it(&self) {
        let now = self.stage.clock.now();
        let until = now + Duration::from_secs(30);
        let request = ClaimRequest {
            invocation_id: id(),
            generation: None,
            owner: "dead".into(),
            now,
            until,
            past: None,
            payload: None,
            answered: None,
        };
        assert!(matches!(self.stage.store.claim(&request).await.unwrap(), ClaimOutcome::Granted(_)));
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Takes up what never ends, and waits until it runs.
    async fn endless_run(&self) -> JoinHandle<TurnOutcome> {
        self.accepted(json!({ "how": "forever" })).await;
        let worker = self.harness.clone();
        let turn = tokio::spawn(async move { worker.take_up(&id(), None).await.outcome });
        while self.runs() == 0 {
            tokio::task::yield_now().await;
        }
        turn
    }

    /// Another turn gets the session for so long.
    async fn lease(&self, duration: Duration) {
        let now = self.stage.clock.now();
        let lease =
            LeaseRequest { owner: "another turn".into(), now, until: now + duration, past: None, begun_for: None };
        self.stage.store.load_session(&"session-1".into(), Some(&lease)).await.unwrap();
    }

    async fn nothing_is_pending(&self) {
        assert_eq!(self.stage.store.list_pending(None, None).await.unwrap().items, []);
    }
}

fn error(outcome: TurnOutcome) -> TurnError {
    match outcome {
        TurnOutcome::Errored(error) => *error,
        other => panic!("it did not fail: {other:?}"),
    }
}

fn is_stale(outcome: &TurnOutcome) -> bool {
    matches!(outcome, TurnOutcome::Stale { .. })
}

#[tokio::test]
async fn what_is_accepted_is_begun_and_goes_on_with_its_input() {
    let scene = scene();
    let given = scene.accepted(json!({})).await;
    let turn = scene.harness.take_up(&id(), None).await;
    assert_eq!(turn.path, Some(DispatchPath::ExistingSession));
    let TurnOutcome::Suspended(pause) = turn.outcome else { panic!("{:?}", turn.outcome) };
    assert_eq!((pause.generation, pause.session_id), (1, given.session_id));
    assert!(is_stale(&scene.take_up().await), "it sleeps, and nothing was accepted for it");

    scene.deliver(json!({ "answer": 42, "dormouse_resolution": "timed_out" })).await;
    let TurnOutcome::Completed(done) = scene.take_up().await else { panic!("it did not complete") };
    assert_eq!(done.state["answer"], 42);
    assert!(is_stale(&scene.take_up().await));
    let session = scene.stage.store.load_session(&"session-1".into(), None).await.unwrap().record.unwrap();
    assert_eq!((session.state["answer"].clone(), scene.runs()), (json!(42), 1));
    assert_eq!(scene.record().await.paused.correlation_id, given.correlation_id);
    scene.nothing_is_pending().await;
}

#[tokio::test]
async fn a_job_that_never_sleeps_ends_under_its_claim() {
    let scene = scene();
    scene.accepted(json!({ "answer": 1 })).await;
    assert!(matches!(scene.take_up().await, TurnOutcome::Completed(_)));
    let status = scene.record().await.status;
    assert!(matches!(status, InvocationStatus::Completed { state } if state["answer"] == 1));
    let lease = LeaseRequest {
        owner: "next".into(),
        now: scene.stage.clock.now(),
        until: scene.stage.clock.now(),
        past: None,
        begun_for: None,
    };
    assert!(scene.stage.store.load_session(&"session-1".into(), Some(&lease)).await.is_ok(), "the lease is free");
    scene.nothing_is_pending().await;
}

#[tokio::test]
async fn a_lost_call_is_made_up_for_by_the_sweep() {
    let scene = scene();
    scene.accepted(json!({})).await;
    let early = dormouse_maintenance::sweep(&scene.harness, &scene.stage.maintenance(), SweepScope::Due).await.unwrap();
    assert_eq!((early.called, early.not_begun), (0, 0), "the first call has its time");
    scene.stage.clock.advance(Duration::from_secs(10));
    let summary = scene.stage.sweep(&scene.harness, SweepScope::Due).await.unwrap();
    assert_eq!((summary.called, summary.not_begun, summary.orphan_timers), (1, 1, 0));
    assert_eq!(summary.late_by, Duration::ZERO);
    scene.deliver(json!({ "answer": 1 })).await;
    let summary = scene.stage.sweep(&scene.harness, SweepScope::Due).await.unwrap();
    assert_eq!((summary.called, summary.not_begun), (1, 0), "it is called for at once, and its own call has its time");
    assert!(matches!(scene.record().await.status, InvocationStatus::Completed { .. }));
}

#[tokio::test]
async fn a_worker_that_dies_is_followed_by_one_that_begins_anew() {
    let scene = scene();
    scene.accepted(json!({ "answer": 1 })).await;
    scene.die_at_it().await;
    assert!(is_stale(&scene.take_up().await), "somebody is at it");
    let summary = scene.stage.sweep(&scene.harness, SweepScope::Everything).await.unwrap();
    assert_eq!((summary.called, summary.orphan_timers), (0, 0), "its row stays");
    scene.stage.outlive_leases();
    assert!(matches!(scene.take_up().await, TurnOutcome::Completed(_)));
    assert_eq!(scene.runs(), 1);
}

#[tokio::test]
async fn whatever_call_of_the_store_is_lost_the_job_is_done_once() {
    use dormouse_testkit::{Fault, FaultyStore};
    for fault in Fault::ALL {
        for call in 0..10 {
            let scene = scene();
            scene.accepted(json!({ "answer": 1 })).await;
            let store = Arc::new(FaultyStore::broken_at(scene.stage.store.clone(), call, fault));
            let worker = scene.stage.harness_on(store.clone(), Mode::Sessioned, [job(scene.runs.clone())]);
            let turn = tokio::spawn(async move { worker.take_up(&id(), None).await });
            while !turn.is_finished() && !store.has_struck() {
                tokio::task::yield_now().await;
            }
            if matches!(fault, Fault::FailBefore | Fault::FailAfter) {
                turn.await.unwrap();
            } else {
                turn.abort();
                let _ = turn.await;
            }
            scene.stage.outlive_leases();
            scene.stage.sweep(&scene.harness, SweepScope::Due).await.unwrap();
            let record = scene.record().await;
            assert!(matches!(record.status, InvocationStatus::Completed { .. }), "{fault:?} {call}: {record:?}");
            scene.nothing_is_pending().await;
        }
    }
}

#[tokio::test]
async fn what_cannot_begin_is_refused_as_a_turn_is() {
    let scene = scene();
    for (graph, state) in [("job", json!({ "answer": "x" })), ("nothing", json!({}))] {
        let transmission = FreshTurn { graph: graph.to_owned(), ..Scene::start(state) };
        let refused = scene.harness.accept(transmission.clone()).await.unwrap_err();
        let turn = error(scene.harness.turn(transmission).await.outcome);
        assert_eq!((refused.category, refused.bucket, refused.message), (turn.category, turn.bucket, turn.message));
    }
}

#[tokio::test]
async fn input_that_does_not_fit_is_refused_before_it_is_accepted() {
    let scene = scene();
    scene.accepted(json!({})).await;
    scene.take_up().await;
    let paused = scene.record().await.paused;
    let refused = scene.harness.input(&paused, map(json!({ "answer": "x" }))).await.unwrap_err();
    assert_eq!(refused.category, Category::SuspensionResumePayloadInvalid);
    for given in [json!({ "answer": 2 }), json!({ "answer": 2, "dormouse_resolution": "timed_out" })] {
        let input = scene.harness.input(&paused, map(given)).await.unwrap();
        assert_eq!(input, map(json!({ "answer": 2 })), "by what a pause ended only the harness says");
    }
}

#[tokio::test]
async fn what_is_accepted_can_be_canceled_before_and_while_it_runs() {
    for begun in [false, true] {
        let scene = scene();
        scene.accepted(json!({ "answer": 1 })).await;
        if begun {
            scene.die_at_it().await;
        }
        let canceled = scene.harness.cancel(&id(), None, Some("enough".to_owned())).await.unwrap();
        assert!(!canceled.repeated);
        scene.stage.outlive_leases();
        assert!(is_stale(&scene.take_up().await));
        scene.stage.sweep(&scene.harness, SweepScope::Everything).await.unwrap();
        assert!(matches!(scene.record().await.status, InvocationStatus::Canceled(_)));
        assert_eq!(scene.runs(), 0);
        scene.nothing_is_pending().await;
    }
}

#[tokio::test]
async fn a_run_that_is_canceled_leaves_nothing() {
    let scene = scene();
    let turn = scene.endless_run().await;
    scene.harness.cancel(&id(), None, None).await.unwrap();
    scene.stage.outlive_leases();
    assert_eq!(error(turn.await.unwrap()).category, Category::TurnDeadlineExceeded);
    assert!(matches!(scene.record().await.status, InvocationStatus::Canceled(_)));
    assert_eq!(scene.stage.store.load_session(&"session-1".into(), None).await.unwrap().record, None);
}

#[tokio::test]
async fn what_fails_is_over_and_is_not_tried_again() {
    let scene = scene();
    scene.accepted(json!({ "how": "badly" })).await;
    let failed = error(scene.take_up().await);
    assert_eq!((failed.category, failed.repeated), (Category::NodeException, true));
    assert!(is_stale(&scene.take_up().await));
    assert!(matches!(scene.record().await.status, InvocationStatus::Errored(_)));
    assert_eq!(scene.runs(), 1);
    scene.nothing_is_pending().await;
}

#[tokio::test]
async fn what_takes_longer_than_a_turn_may_is_over() {
    let scene = scene();
    let turn = scene.endless_run().await;
    scene.stage.clock.advance(scene.harness.config().turn_budget);
    assert_eq!(error(turn.await.unwrap()).category, Category::TurnDeadlineExceeded);
    let status = scene.record().await.status;
    assert!(matches!(status, InvocationStatus::Errored(it) if it.category == Category::TurnDeadlineExceeded));
}

#[tokio::test]
async fn a_lease_that_no_turn_can_need_does_not_keep_it_from_its_session() {
    let scene = scene();
    scene.accepted(json!({ "answer": 1 })).await;
    scene.lease(limits::LEASE + Duration::from_secs(1)).await;
    let outcome = scene.harness.take_up(&id(), None).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
}

#[tokio::test]
async fn it_waits_for_its_session_and_gives_the_work_back_when_that_takes_too_long() {
    let scene = scene();
    scene.accepted(json!({ "answer": 1 })).await;
    scene.lease(Duration::from_secs(40)).await;
    let worker = scene.harness.clone();
    let turn = tokio::spawn(async move { worker.take_up(&id(), None).await.outcome });
    while !turn.is_finished() {
        scene.stage.clock.advance(Duration::from_millis(500));
        tokio::task::yield_now().await;
    }
    assert_eq!(error(turn.await.unwrap()).category, Category::SessionLeaseHeld);
    let status = scene.record().await.status;
    assert!(matches!(&status, InvocationStatus::Accepted { .. }), "{status:?}");
    scene.stage.clock.advance(Duration::from_secs(10));
    assert_eq!(
        (
            dormouse_maintenance::sweep(&scene.harness, &scene.stage.maintenance(), SweepScope::Due)
                .await
                .unwrap()
                .called,
            scene.runs()
        ),
        (1, 0)
    );
    scene.stage.outlive_leases();
    assert_eq!(scene.stage.sweep(&scene.harness, SweepScope::Due).await.unwrap().called, 1);
    assert_eq!(scene.runs(), 1);
}

#[tokio::test]
async fn a_signal_finds_what_had_not_begun() {
    let scene = scene();
    scene.accepted(json!({})).await;
    let signal = Transmission::callback(id(), None, map(json!({ "answer": 5 })));
    let TurnOutcome::Completed(done) = scene.harness.turn(signal).await.outcome else { panic!("it did not complete") };
    assert_eq!((done.state["answer"].clone(), scene.runs()), (json!(5), 1));
}

#[tokio::test]
async fn a_signal_that_is_left_to_other_workers_stands_and_is_gone_on_with_by_the_next_one() {
    let leave = async |scene: &Scene| scene.harness.leave_signal(&"s".into(), map(json!({ "answer": 7 })), None).await;
    let sleeping = scene();
    sleeping.accepted(json!({})).await;
    sleeping.take_up().await;
    let unfit = sleeping.harness.leave_signal(&"s".into(), map(json!({ "answer": "seven" })), None).await;
    assert_eq!(unfit.unwrap_err().category, Category::SuspensionResumePayloadInvalid);
    leave(&sleeping).await.unwrap();
    assert!(matches!(sleeping.record().await.status, InvocationStatus::Accepted { .. }), "no turn ran");
    let summary = sleeping.stage.sweep(&sleeping.harness, SweepScope::Due).await.unwrap();
    assert_eq!((summary.called, sleeping.runs()), (1, 1));
    let status = sleeping.record().await.status;
    assert!(matches!(status, InvocationStatus::Completed { state } if state["answer"] == 7));
    leave(&sleeping).await.expect("it has it");

    let early = scene();
    leave(&early).await.expect("it is kept until somebody waits");
    early.accepted(json!({})).await;
    let TurnOutcome::Completed(done) = early.take_up().await else { panic!("it did not complete") };
    assert_eq!(done.state["answer"], 7);
}

#[tokio::test]
async fn its_id_begins_no_turn() {
    let scene = scene();
    scene.accepted(json!({})).await;
    let refused = error(scene.harness.turn(Scene::start(json!({}))).await.outcome);
    assert_eq!((refused.category, scene.runs()), (Category::ResumeInProgress, 0));
}

#[tokio::test]
async fn a_chat_takes_a_message_as_its_turns_do() {
    let scene = scene();
    let chat = ChatHarness::new(scene.harness.clone(), "talk").unwrap();
    chat.send(&"session-1".into(), ChatMessage::text("user", "Hello?")).await;
    let state = json!({ MESSAGES: [{ "role": "user", "content": "Again?" }] });
    let transmission = FreshTurn { graph: "talk".to_owned(), ..Scene::start(state) };
    scene.accept(transmission).await;
    let TurnOutcome::Completed(done) = scene.take_up().await else { panic!("it did not complete") };
    assert_eq!(done.state[MESSAGES].as_array().map(Vec::len), Some(4));
    assert_eq!(done.carried, Map::from_iter([(HISTORY_LENGTH.to_owned(), 3.into())]));
    assert_eq!(scene.record().await.paused.carried, done.carried, "who reads it later knows what is new");
}

#[tokio::test]
async fn a_call_for_work_names_the_invocation_and_nothing_else() {
    let scene = scene();
    scene.harness.call_for_work(&id()).await.unwrap();
    let told: Vec<_> = scene.stage.bus.events().into_iter().map(|it| (it.source, it.detail_type, it.detail)).collect();
    assert_eq!(told, [("dormouse".to_owned(), WORK.to_owned(), map(json!({ "invocation_id": "task-1" })))]);
}

/// A store in which another turn of the session is faster at each save, until that is over.
struct Overtaken {
    store: Arc<MemoryStore>,
    is_over: AtomicBool,
}

#[async_trait]
impl Commits for Overtaken {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let saves = commit.session.as_ref().is_some_and(|session| session.save.is_some());
        if saves && !self.is_over.load(Ordering::Relaxed) {
            return Err(CommitError::SessionConflict);
        }
        self.store.commit(commit).await
    }
}

fn answering(concurrency: SessionConcurrency) -> Arc<CompiledGraph> {
    let schema = StateSchema::new().field("answer", Field::new(FieldType::Int, 0));
    let graph = GraphBuilder::new("job", schema)
        .sessions(SessionPolicy::projected(["answer"]).concurrency(concurrency))
        .entry("work")
        .function("work", |_: State| async { Ok(Update::none().with("answer", 1)) })
        .edge("work", END);
    Arc::new(graph.compile().unwrap())
}

#[tokio::test]
async fn work_in_whose_session_others_were_faster_goes_on_with_the_next_worker_at_once() {
    for (concurrency, goes_on) in [(SessionConcurrency::Rebase, true), (SessionConcurrency::Optimistic, false)] {
        let stage = Stage::default();
        let store = Arc::new(Overtaken { store: stage.store.clone(), is_over: AtomicBool::new(false) });
        let turns = TurnStore { commits: store.clone(), ..stage.store.clone().into() };
        let harness = stage.harness_on(turns, Mode::Sessioned, [answering(concurrency)]);
        let scene = Scene { stage, harness, runs: Arc::default() };
        scene.accepted(json!({})).await;
        let refused = error(scene.take_up().await);
        assert_eq!(refused.category, Category::SessionWriteConflict, "{concurrency:?}");
        store.is_over.store(true, Ordering::Relaxed);
        let next = scene.take_up().await;
        assert_eq!(matches!(next, TurnOutcome::Completed(_)), goes_on, "{concurrency:?}: {next:?}");
    }
}

#[tokio::test]
async fn what_a_node_raises_as_a_lost_race_is_over_and_is_not_tried_again() {
    let stage = Stage::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let ran = runs.clone();
    let schema = StateSchema::new().field("answer", Field::new(FieldType::Int, 0));
    let graph = GraphBuilder::new("job", schema)
        .entry("work")
        .function("work", move |_: State| {
            ran.fetch_add(1, Ordering::Relaxed);
            let older = NodeError::new("the checkpoint is older than its session");
            async move { Err(older.with_category(Category::SessionWriteConflict)) }
        })
        .edge("work", END);
    let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [Arc::new(graph.compile().unwrap())]);
    let scene = Scene { stage, harness, runs };
    scene.accepted(json!({})).await;
    let failed = error(scene.take_up().await);
    assert_eq!((failed.category, failed.repeated), (Category::SessionWriteConflict, true));
    assert!(is_stale(&scene.take_up().await));
    assert!(matches!(scene.record().await.status, InvocationStatus::Errored(_)));
    assert_eq!(scene.runs(), 1);
}
