//! Races, each told step by step; the simulation found most of them.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test that cannot go on stops")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dormouse_engine::{
    Answer, CompiledGraph, Delay, END, Graph, NodeError, Reducer, SessionConcurrency, SessionPolicy, Target, Update,
    Wait, state,
};
use dormouse_harness::{Bucket, FreshTurn, Harness, Mode, Transmission, TurnError, TurnOutcome};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, Category, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, Map, Sessions,
    SignalId, SignalRecord, Signals, StoreError, TurnStore, limits,
};
use dormouse_testkit::{Fault, FaultyStore, MemoryStore};
use dormouse_tests::{Stage, map};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

state! {
    #[derive(Clone, Debug, Default)]
    struct Work {
        answer: String,
        entries: Vec<String>,
    }
}

fn name() -> String {
    dormouse_engine::current().unwrap().invocation_id.to_string()
}

/// Enters `{invocation}`, waits for `signal-{invocation}`, and enters the answer; in a session, whose entries both are.
fn journal() -> Arc<CompiledGraph> {
    let graph = Graph::<Work>::new("journal")
        .reducer(Work::entries, Reducer::Append)
        .sessions(SessionPolicy::keeping(Work::entries).concurrency(SessionConcurrency::Rebase))
        .entry("begin")
        .node("begin", async |()| {
            tokio::task::yield_now().await;
            Ok(Work::entries.append([name()]))
        })
        .wait("ask", |_| Ok(Wait::signal(format!("signal-{}", name()), Answer::anything())))
        .node("settle", async |work: Work| Ok(Work::entries.append([work.answer])))
        .edge("begin", "ask")
        .edge("ask", "settle")
        .edge("settle", END);
    Arc::new(graph.compile().unwrap())
}

/// Waits for `s`, and is refused then.
fn doomed() -> Arc<CompiledGraph> {
    let refusal = || NodeError::new("no").with_category(Category::Application("refused".into()));
    let graph = Graph::<Work>::new("doomed")
        .entry("ask")
        .wait("ask", |_| Ok(Wait::signal("s", Answer::anything())))
        .node("settle", move |()| std::future::ready(Err(refusal())))
        .edge("ask", "settle")
        .edge("settle", END);
    Arc::new(graph.compile().unwrap())
}

fn begin(graph: &str, id: &str, session: Option<&str>) -> FreshTurn {
    let invocation_id = Some(id.into());
    let session_id = session.map(Into::into);
    FreshTurn { invocation_id, session_id, ..FreshTurn::new(graph, Map::new()) }
}

fn answer(id: &str, answer: Value) -> Transmission {
    Transmission::callback(id, Some(1), Map::from_iter([("answer".to_owned(), answer)]))
}

async fn entries(stage: &Stage) -> Value {
    stage.store.load_session(&"s".into(), None).await.unwrap().record.unwrap().state["entries"].clone()
}

fn journal_on(stage: &Stage) -> Harness {
    stage.harness_on(stage.store.clone(), Mode::Sessioned, [journal()])
}

#[tokio::test]
async fn a_pause_that_was_carried_over_does_not_undo_what_it_was_carried_over() {
    let stage = Stage::default();
    let harness = journal_on(&stage);
    harness.turn(begin("journal", "first", Some("s"))).await;
    // The second turn has loaded the session when the first invocation goes on and saves.
    let (second, first) = futures::join!(
        harness.turn(begin("journal", "second", Some("s"))),
        harness.turn(answer("first", json!("yes"))),
    );
    assert!(matches!(first.outcome, TurnOutcome::Completed(_)) && matches!(second.outcome, TurnOutcome::Suspended(_)));
    assert_eq!(entries(&stage).await, json!(["first", "yes", "second"]));
    harness.turn(answer("second", json!("no"))).await;
    assert_eq!(entries(&stage).await, json!(["first", "yes", "second", "no"]));
}

#[tokio::test]
async fn a_signal_that_was_early_does_not_keep_the_session_from_being_saved() {
    let stage = Stage::default();
    let harness = journal_on(&stage);
    harness.turn(Transmission::signal("signal-i", map(json!({ "answer": "early" })))).await;
    let turn = harness.turn(begin("journal", "i", Some("s"))).await;
    assert!(matches!(turn.outcome, TurnOutcome::Completed(_)), "{turn:?}");
    assert_eq!(entries(&stage).await, json!(["i", "early"]));
}

#[tokio::test]
async fn a_turn_that_is_delivered_twice_at_once_is_answered_twice_alike() {
    let stage = Stage::default();
    let harness = stage.harness_on(stage.store.clone(), Mode::Stateless, [journal()]);
    let turn = || harness.turn(begin("journal", "i", None));
    let (one, other) = futures::join!(turn(), turn());
    let repeated = |outcome| match outcome {
        TurnOutcome::Suspended(turn) => turn.repeated,
        other => panic!("it does not sleep: {other:?}"),
    };
    assert_eq!([repeated(one.outcome), repeated(other.outcome)], [false, true]);
}

/// As a client does that is impatient: all of them name one id.
#[tokio::test]
async fn of_turns_that_name_one_id_one_runs_and_the_others_hear_what_came_of_it() {
    for (session, sleeps) in [(None, true), (None, false), (Some("s"), true), (Some("s"), false)] {
        let stage = Stage::default();
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let graph = Graph::<Work>::new("counted")
            .entry("count")
            .node("count", move |()| {
                counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    tokio::task::yield_now().await;
                    if sleeps {
                        Err(Wait::signal("s", Answer::<Work>::anything()).suspend().await)
                    } else {
                        Ok(Update::none())
                    }
                }
            })
            .edge("count", END);
        let mode = if session.is_some() { Mode::Sessioned } else { Mode::Stateless };
        let harness = stage.harness_on(stage.store.clone(), mode, [Arc::new(graph.compile().unwrap())]);
        let turns = futures::future::join_all((0..8).map(|_| harness.turn(begin("counted", "i", session)))).await;
        let repeated = |outcome| match outcome {
            TurnOutcome::Suspended(turn) if sleeps => turn.repeated,
            TurnOutcome::Completed(turn) if !sleeps => turn.repeated,
            other => panic!("it should sleep ({sleeps}): {other:?}"),
        };
        let repeated: Vec<bool> = turns.into_iter().map(|turn| repeated(turn.outcome)).collect();
        assert_eq!(repeated, [false, true, true, true, true, true, true, true], "{session:?} {sleeps}");
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{session:?} {sleeps}");
    }
}

/// Behind the end of a line a turn is refused at once and told when to come again, and those in line are served: they are
/// repetitions of one request, or others of its session.
#[tokio::test]
async fn behind_the_end_of_a_line_a_turn_is_refused_and_nothing_of_it_is_done() {
    for (repeats, category) in [(true, Category::ResumeInProgress), (false, Category::SessionBusy)] {
        let stage = Stage::default();
        let runs = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(Semaphore::new(0));
        let (counted, closed) = (runs.clone(), gate.clone());
        let graph = Graph::<Work>::new("counted")
            .entry("count")
            .node("count", move |()| {
                counted.fetch_add(1, Ordering::SeqCst);
                let closed = closed.clone();
                async move {
                    drop(closed.acquire().await);
                    Ok(Update::none())
                }
            })
            .edge("count", END);
        let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [Arc::new(graph.compile().unwrap())]);
        let turn = |number: usize| {
            let id = if repeats { "i".to_owned() } else { format!("i-{number}") };
            let turn = begin("counted", &id, Some("s"));
            harness.turn(turn)
        };
        let turns = futures::future::join_all((0..limits::SESSION_LINE + 3).map(turn));
        let opens = async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            gate.add_permits(1);
        };
        let (turns, ()) = futures::join!(turns, opens);
        let (served, refused) = turns.split_at(1 + limits::SESSION_LINE);
        assert!(served.iter().all(|turn| matches!(turn.outcome, TurnOutcome::Completed(_))), "{served:?}");
        assert_eq!(runs.load(Ordering::SeqCst), if repeats { 1 } else { served.len() }, "{category}");
        for turn in refused {
            let TurnOutcome::Errored(error) = &turn.outcome else { panic!("{category}: {turn:?}") };
            assert_eq!((&error.category, error.bucket), (&category, Bucket::RetryableTransient));
            assert!(error.retry_after.is_some_and(|seconds| seconds > 0), "{category}: {error:?}");
            assert_eq!(error.payload()["retry_safe"], true, "{category}");
        }
    }
}

/// Two processes are given the same turn, whose steps have effects: one makes them, and the other one says that it runs, or
/// what came of it.
#[tokio::test]
async fn of_two_processes_that_are_given_one_turn_one_makes_its_first_step() {
    for session in [None, Some("s")] {
        let stage = Stage::default();
        let made = Arc::new(AtomicUsize::new(0));
        let mode = if session.is_some() { Mode::Sessioned } else { Mode::Stateless };
        let process = || stage.harness_on(stage.store.clone(), mode, [acting(&made)]);
        let (one, other) = (process(), process());
        let turn = || begin("acting", "i", session);
        let (first, second) = futures::join!(one.turn(turn()), other.turn(turn()));
        assert_eq!(made.load(Ordering::SeqCst), 1, "{session:?}");
        let (done, others): (Vec<_>, Vec<_>) = [first.outcome, second.outcome]
            .into_iter()
            .partition(|outcome| matches!(outcome, TurnOutcome::Completed(turn) if !turn.repeated));
        assert_eq!(done.len(), 1, "{session:?}: {others:?}");
        match &others[0] {
            TurnOutcome::Completed(turn) => assert!(turn.repeated, "{session:?}"),
            TurnOutcome::Errored(error) => assert_eq!(error.category, Category::ResumeInProgress, "{session:?}"),
            outcome => panic!("{session:?}: {outcome:?}"),
        }
        let asked_again = other.turn(turn()).await.outcome;
        assert!(matches!(&asked_again, TurnOutcome::Completed(turn) if turn.repeated), "{asked_again:?}");
        assert_eq!(made.load(Ordering::SeqCst), 1, "{session:?}");
    }
}

/// A process that dies in the first step leaves a claim: the sweep has the turn begun again, with the input that it had.
#[tokio::test]
async fn a_turn_whose_worker_died_in_its_first_step_is_begun_again() {
    for session in [None, Some("s")] {
        let stage = Stage::default();
        let made = Arc::new(AtomicUsize::new(0));
        let mode = if session.is_some() { Mode::Sessioned } else { Mode::Stateless };
        let process = || stage.harness_on(stage.store.clone(), mode, [acting(&made)]);
        let state = map(json!({ "answer": "given" }));
        let turn = || FreshTurn { state: state.clone(), ..begin("acting", "i", session) };
        let dead = process();
        let mut dying = Box::pin(dead.turn(turn()));
        while made.load(Ordering::SeqCst) == 0 {
            assert!((&mut dying).now_or_never().is_none(), "it ends before its first step");
        }
        drop(dying);
        let living = process();
        let asked = living.turn(turn()).await.outcome;
        let TurnOutcome::Errored(busy) = asked else { panic!("{asked:?}") };
        assert_eq!(busy.category, Category::ResumeInProgress, "nobody knows that it is dead");
        stage.outlive_leases();
        stage.sweep(&living, SweepScope::Everything).await.unwrap();
        let outcome = living.turn(turn()).await.outcome;
        let TurnOutcome::Completed(done) = outcome else { panic!("{outcome:?}") };
        assert_eq!(done.state["entries"], json!(["given", "given"]), "{session:?}");
        assert_eq!(made.load(Ordering::SeqCst), 2, "the step was lost, and is made again");
    }
}

/// Makes a step, and another one; both take their time.
fn acting(made: &Arc<AtomicUsize>) -> Arc<CompiledGraph> {
    let made = made.clone();
    let enter = |work: Work| async move {
        tokio::task::yield_now().await;
        Ok(Work::entries.append([work.answer]))
    };
    let graph = Graph::<Work>::new("acting")
        .reducer(Work::entries, Reducer::Append)
        .sessions(SessionPolicy::keeping(Work::entries).concurrency(SessionConcurrency::Rebase))
        .entry("act")
        .node("act", move |work: Work| {
            made.fetch_add(1, Ordering::SeqCst);
            enter(work)
        })
        .node("end", enter)
        .durable("act")
        .durable("end")
        .edge("act", "end")
        .edge("end", END);
    Arc::new(graph.compile().unwrap())
}

#[tokio::test]
async fn a_payload_is_not_blamed_for_the_one_that_a_dead_worker_left() {
    let stage = Stage::default();
    let harness = journal_on(&stage);
    harness.turn(begin("journal", "i", Some("s"))).await;
    stage.die_holding("i", map(json!({ "answer": 1 }))).await;
    stage.outlive_leases();
    let turn = harness.turn(answer("i", json!("fits"))).await;
    assert!(matches!(turn.outcome, TurnOutcome::Completed(_)), "{turn:?}");
    assert_eq!(entries(&stage).await, json!(["i", "fits"]));
}

#[tokio::test]
async fn an_end_that_could_not_be_written_is_not_told() {
    let stage = Stage::default();
    let sound = stage.harness_on(stage.store.clone(), Mode::Stateless, [doomed()]);
    sound.turn(begin("doomed", "i", None)).await;
    // The claim works, the end does not.
    let store = Arc::new(FaultyStore::broken_at(stage.store.clone(), 1, Fault::FailBefore));
    let harness = stage.harness_on(store, Mode::Stateless, [doomed()]);
    assert_eq!(ending(&harness).await.bucket, Bucket::RetryableTransient);
    stage.outlive_leases();
    stage.sweep(&sound, SweepScope::Everything).await.unwrap();
    let error = ending(&sound).await;
    assert!(error.repeated && error.bucket == Bucket::UserCorrectable, "{error:?}");
}

/// The error with which the invocation `i` answers.
async fn ending(harness: &Harness) -> TurnError {
    match harness.turn(answer("i", json!("x"))).await.outcome {
        TurnOutcome::Errored(error) => *error,
        other => panic!("it did not fail: {other:?}"),
    }
}

/// A store in which something happens just before the first claim, or before the first commit or signal is written.
struct Meanwhile {
    store: Arc<MemoryStore>,
    happens: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Meanwhile {
    fn new(stage: &Stage, happens: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        Arc::new(Self { store: stage.store.clone(), happens: Mutex::new(Some(happens.boxed())) })
    }

    async fn happens(&self) {
        let happens = self.happens.lock().unwrap().take();
        if let Some(happens) = happens {
            happens.await;
        }
    }
}

impl Meanwhile {
    /// The store with this before it.
    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.store.clone();
        TurnStore { signals: self.clone(), commits: self, ..store.into() }
    }
}

#[async_trait]
impl Commits for Meanwhile {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.happens().await;
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.happens().await;
        self.store.commit(commit).await
    }
}

#[async_trait]
impl Signals for Meanwhile {
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        self.store.load_signal(id, now).await
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        self.happens().await;
        self.store.buffer_signal(id, signal).await
    }
}

/// Falls asleep as `i`.
fn falls_asleep(stage: &Stage) -> impl Future<Output = ()> + Send + 'static {
    let sleeper = journal_on(stage);
    async move {
        let turn = sleeper.turn(begin("journal", "i", Some("s"))).await;
        assert!(matches!(turn.outcome, TurnOutcome::Suspended(_)), "{turn:?}");
    }
}

#[tokio::test]
async fn a_cancellation_reaches_whom_it_finds_asleep_at_the_second_look() {
    let stage = Stage::default();
    let harness = stage.harness_on(Meanwhile::new(&stage, falls_asleep(&stage)).turns(), Mode::Sessioned, [journal()]);
    assert!(!harness.cancel(&"i".into(), None, None).await.unwrap().repeated);
    assert_eq!(ending(&harness).await.category, Category::InvocationCanceled);
}

#[tokio::test]
async fn a_signal_reaches_whom_it_finds_asleep_at_the_second_look() {
    let stage = Stage::default();
    let harness = stage.harness_on(Meanwhile::new(&stage, falls_asleep(&stage)).turns(), Mode::Sessioned, [journal()]);
    let turn = harness.turn(Transmission::signal("signal-i", map(json!({ "answer": "yes" })))).await;
    assert!(matches!(turn.outcome, TurnOutcome::Completed(_)), "{turn:?}");
    assert_eq!(entries(&stage).await, json!(["i", "yes"]));
}

/// Waits for `s`, and each minute for it anew, until it comes.
fn polling() -> Arc<CompiledGraph> {
    let graph = Graph::<Work>::new("polling")
        .entry("ask")
        .wait("ask", |_| Ok(Wait::signal("s", Answer::anything()).or_default(Delay::seconds(60), Update::none())))
        .node("look", async |()| Ok(Update::none()))
        .edge("ask", "look")
        .route("look", ["ask"], |work| if work.answer.is_empty() { Target::from("ask") } else { END });
    Arc::new(graph.compile().unwrap())
}

#[tokio::test]
async fn a_signal_that_came_just_when_its_time_was_over_is_for_the_next_pause_that_waits_for_it() {
    let stage = Stage::default();
    let harness = |store: TurnStore| stage.harness_on(store, Mode::Stateless, [polling()]);
    let plain = harness(stage.store.clone().into());
    plain.turn(begin("polling", "i", None)).await;
    stage.clock.advance(std::time::Duration::from_secs(60));
    let falls_due = async move {
        let turn = plain.turn(Transmission::due("i", 1, None)).await;
        assert!(matches!(turn.outcome, TurnOutcome::Suspended(_)), "{turn:?}");
    };
    let late = harness(Meanwhile::new(&stage, falls_due).turns());
    let turn = late.turn(Transmission::signal("s", map(json!({ "answer": "yes" })))).await;
    let TurnOutcome::Completed(done) = turn.outcome else { panic!("{turn:?}") };
    assert_eq!(done.state["answer"], "yes");
}

/// A store whose commits are written, but answered only when the turn's time is over, or never.
struct Slow {
    stage: Arc<Stage>,
    answers: bool,
}

impl Slow {
    /// The store with this before it.
    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.stage.store.clone();
        TurnStore { commits: self, ..store.into() }
    }
}

#[async_trait]
impl Commits for Slow {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.stage.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.stage.store.commit(commit).await?;
        loop {
            self.stage.clock.advance(std::time::Duration::from_secs(25));
            tokio::task::yield_now().await;
            if self.answers {
                return Ok(());
            }
        }
    }
}

/// What a turn of the journal comes to over a slow store, and the entries of its session afterwards.
async fn turn_over(answers: bool, graph: &str, turn: FreshTurn) -> (TurnOutcome, usize) {
    let stage = Arc::new(Stage::default());
    let store = Arc::new(Slow { stage: stage.clone(), answers }).turns();
    let harness = stage.harness_on(store, Mode::Sessioned, [journal(), noted()]);
    let session = Some("session".into());
    let turn = FreshTurn { session_id: session, graph: graph.to_owned(), ..turn };
    let outcome = harness.turn(turn).await.outcome;
    let record = stage.store.load_session(&"session".into(), None).await.unwrap().record.unwrap();
    (outcome, record.state["entries"].as_array().unwrap().len())
}

/// Enters something in its session, and never sleeps.
fn noted() -> Arc<CompiledGraph> {
    let graph = Graph::<Work>::new("noted")
        .reducer(Work::entries, Reducer::Append)
        .sessions(SessionPolicy::keeping(Work::entries))
        .entry("note")
        .node("note", async |()| Ok(Work::entries.append([name()])))
        .edge("note", END);
    Arc::new(graph.compile().unwrap())
}

#[tokio::test]
async fn a_turn_is_not_cut_while_its_commit_is_under_way() {
    let (outcome, entries) = turn_over(true, "noted", FreshTurn::default()).await;
    assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
    let (slept, _) = turn_over(true, "journal", FreshTurn::default()).await;
    assert!(matches!(slept, TurnOutcome::Suspended(_)), "{slept:?}");
    assert_eq!(entries, 1);
}

#[tokio::test]
async fn who_may_have_written_something_is_not_asked_to_send_it_again() {
    let (outcome, entries) = turn_over(false, "noted", FreshTurn::default()).await;
    let TurnOutcome::Errored(error) = outcome else { panic!("{outcome:?}") };
    assert_eq!((error.category.clone(), error.in_doubt, entries), (Category::OutcomeUnknown, true, 1));
    assert_eq!(error.payload()["retry_safe"], false);
    let (slept, _) = turn_over(false, "journal", FreshTurn::default()).await;
    assert!(matches!(slept, TurnOutcome::Suspended(_)), "what stands is found: {slept:?}");
}
