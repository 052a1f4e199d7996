//! What nodes record: told in the commit of what comes of them, once, or never.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::Stage;
use async_trait::async_trait;
use dormouse_engine::middleware::Retry;
use dormouse_engine::{
    AfterError, Amount, Branch, CompiledGraph, END, Engine, EngineError, FanOut, Field, FieldType, GraphBuilder,
    Invocation, LeaseTerms, Middleware, Next, NodeError, Outcome, ParallelBranches, Projection, Reducer, Resume,
    Sending, SessionPolicy, State, StateSchema, Update, record, save_session, suspend, suspend_and_rerun,
};
use dormouse_ports::{
    Category, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, EntryKind, InvocationWrite, Journal,
    JournalEntry, Map, SignalDescriptor, StateStore, StoreError, TurnStore, limits,
};
use serde_json::{Value, json};

/// A store that hears what commits tell, as one that tells of tasks does, and writes the rest.
struct Hears {
    store: Arc<dyn StateStore>,
    /// The words that were recorded, by what was committed.
    heard: Mutex<Vec<(&'static str, Vec<String>)>>,
    /// How the next saves in the midst of a run fail.
    failures: Mutex<Vec<CommitError>>,
}

impl Hears {
    fn on(stage: &Stage) -> Arc<Self> {
        let heard = Mutex::default();
        let failures = Mutex::default();
        Arc::new(Self { store: stage.store.clone(), heard, failures })
    }

    /// What was told, in order.
    fn heard(&self) -> Vec<(&'static str, Vec<String>)> {
        self.heard.lock().unwrap().clone()
    }
}

impl Hears {
    /// The store with this before it.
    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.store.clone();
        TurnStore { commits: self, ..store.into() }
    }
}

#[async_trait]
impl Commits for Hears {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let what = match &commit.invocation {
            Some(InvocationWrite::Suspend { .. }) => "pause",
            Some(InvocationWrite::Complete { .. } | InvocationWrite::Conclude { .. }) => "end",
            Some(InvocationWrite::Fail { .. }) => "failure",
            Some(InvocationWrite::AssertClaimed { .. }) => "held save",
            Some(InvocationWrite::Keep { .. } | InvocationWrite::Release { .. }) => "no end",
            Some(other) => panic!("{other:?}"),
            None => "save",
        };
        let failure = if what.ends_with("save") { self.failures.lock().unwrap().pop() } else { None };
        if let Some(failure) = failure {
            return Err(failure);
        }
        let journal = Journal { recorded: None, ..commit.journal.clone() };
        self.store.commit(&Commit { journal, ..commit.clone() }).await?;
        if let Some(recorded) = &commit.journal.recorded {
            let words = recorded.entries.iter().map(|entry| entry.payload["word"].as_str().unwrap().to_owned());
            self.heard.lock().unwrap().push((what, words.collect()));
        }
        Ok(())
    }
}

fn note(word: &str) -> Result<(), NodeError> {
    record(JournalEntry::new(EntryKind::vendor("test.noted").unwrap()).with("word", word))
}

fn schema() -> StateSchema {
    let list = |value: Value| Field::new(FieldType::List(Box::new(FieldType::Any)), value);
    StateSchema::new()
        .field("items", list(json!([1, 2, 3])))
        .field("outs", list(json!([])).reduced_by(Reducer::Append))
        .field("answer", Field::new(FieldType::Optional(Box::new(FieldType::Int)), Value::Null))
}

fn away() -> NodeError {
    NodeError::new("the provider is away").with_category(Category::ProviderUnavailable)
}

/// A node that only records `word`.
fn noting(word: &'static str) -> impl Fn(State) -> futures::future::Ready<Result<Update, NodeError>> {
    move |_| futures::future::ready(note(word).map(|()| Update::none()))
}

fn retry(stage: &Stage) -> Arc<Retry> {
    Arc::new(Retry::new(stage.clock.clone(), Arc::new(|| 0.0)).backoff(|_| Duration::ZERO))
}

fn compiled(graph: GraphBuilder) -> Arc<CompiledGraph> {
    Arc::new(graph.compile().unwrap())
}

/// One node, called `work`.
fn single<F: Future<Output = Result<Update, NodeError>> + Send + 'static>(
    work: impl Fn(State) -> F + Send + Sync + 'static,
) -> GraphBuilder {
    GraphBuilder::new("g", schema()).entry("work").function("work", work).edge("work", END)
}

/// Runs `graph` until it sleeps or ends; what was told.
async fn told(stage: &Stage, graph: GraphBuilder) -> Vec<(&'static str, Vec<String>)> {
    let store = Hears::on(stage);
    let ended = run(&stage.engine_on(store.clone().turns()), &compiled(graph)).await;
    ended.unwrap();
    store.heard()
}

async fn run(engine: &Engine, graph: &Arc<CompiledGraph>) -> Result<Outcome, EngineError> {
    let call = Invocation { session_id: Some("s".into()), ..Invocation::default() };
    engine.invoke(graph, call).await
}

fn resume(after_error: fn(&EngineError) -> AfterError) -> Resume {
    Resume {
        payload: Map::from_iter([("answer".to_owned(), 1.into())]),
        generation: None,
        claim: LeaseTerms { owner: "resumer".into(), duration: Duration::from_secs(5), yield_after: None },
        observers: Vec::new(),
        after_error,
    }
}

fn words(of: &[&str]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn what_nodes_record_is_told_with_the_pause_and_with_the_end() {
    let stage = Stage::default();
    let asked = SignalDescriptor::new("s");
    let graph = GraphBuilder::new("g", schema())
        .entry("before")
        .function("before", noting("before"))
        .function("ask", move |_| {
            let asked = asked.clone();
            async move {
                note("asked")?;
                Err(suspend(asked).await)
            }
        })
        .function("after", noting("after"))
        .edge("before", "ask")
        .edge("ask", "after")
        .edge("after", END);
    let store = Hears::on(&stage);
    let graph = compiled(graph);
    let engine = stage.engine_on(store.clone().turns());
    let Outcome::Suspended(paused) = run(&engine, &graph).await.unwrap() else { panic!("it did not sleep") };
    assert_eq!(store.heard(), [("pause", words(&["before", "asked"]))]);
    engine.resume(&graph, &paused.invocation_id, resume(|_| AfterError::End)).await.unwrap();
    assert_eq!(store.heard()[1..], [("end", words(&["after"]))]);
}

#[tokio::test]
async fn a_turn_that_ends_without_a_record_of_its_own_tells_what_it_recorded() {
    assert_eq!(told(&Stage::default(), single(noting("done"))).await, [("save", words(&["done"]))]);
}

#[tokio::test]
async fn what_a_failed_attempt_recorded_is_gone() {
    let stage = Stage::default();
    let tries = Arc::new(AtomicUsize::new(0));
    let graph = single(move |_| {
        let attempt = tries.fetch_add(1, Ordering::Relaxed);
        async move {
            note(&format!("attempt {attempt}"))?;
            if attempt < 2 { Err(away()) } else { Ok(Update::none()) }
        }
    });
    let told = told(&stage, graph.wrap("work", retry(&stage))).await;
    assert_eq!(told, [("save", words(&["attempt 2"]))]);
}

/// Runs what it wraps twice, and takes the second update.
struct Twice;

#[async_trait]
impl Middleware for Twice {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        next.run(state.clone()).await?;
        next.run(state).await
    }
}

/// Fails the first time behind what it wraps.
#[derive(Default)]
struct FailsBehind(AtomicUsize);

#[async_trait]
impl Middleware for FailsBehind {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let update = next.run(state).await?;
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 { Err(away()) } else { Ok(update) }
    }
}

#[tokio::test]
async fn what_was_recorded_goes_with_the_update_that_middleware_discards() {
    let stage = Stage::default();
    assert_eq!(told(&stage, single(noting("once")).wrap("work", Arc::new(Twice))).await, [("save", words(&["once"]))]);
    let graph = single(noting("once")).wrap("work", retry(&stage)).wrap("work", Arc::new(FailsBehind::default()));
    assert_eq!(told(&Stage::default(), graph).await, [("save", words(&["once"]))]);
}

#[tokio::test]
async fn of_a_subgraph_that_runs_again_only_the_last_attempt_counts() {
    let stage = Stage::default();
    let tries = Arc::new(AtomicUsize::new(0));
    let inner = GraphBuilder::new("inner", schema())
        .entry("first")
        .function("first", noting("first"))
        .function("second", move |_| {
            let attempt = tries.fetch_add(1, Ordering::Relaxed);
            async move {
                note(&format!("second {attempt}"))?;
                if attempt == 0 { Err(away()) } else { Ok(Update::none()) }
            }
        })
        .edge("first", "second")
        .edge("second", END);
    let outer = GraphBuilder::new("g", schema())
        .entry("in")
        .subgraph("in", compiled(inner), Projection::by_name())
        .wrap("in", Arc::new(Retry::new(stage.clock.clone(), Arc::new(|| 0.0)).classifier(|_, _| true)))
        .function("last", noting("last"))
        .edge("in", "last")
        .edge("last", END);
    assert_eq!(told(&stage, outer).await, [("save", words(&["first", "second 1", "last"]))]);
}

#[tokio::test]
async fn parts_that_ran_side_by_side_are_told_of_in_their_order() {
    // The first one ends last.
    let work = async |state: State| {
        let item = state.get("answer").and_then(Value::as_i64).unwrap();
        for _ in item..4 {
            tokio::task::yield_now().await;
        }
        note(&format!("item {item}"))?;
        Ok(Update::none())
    };
    let fan_out = FanOut::over(compiled(single(work))).items("items", "answer").collect("answer", "outs");
    let graph = GraphBuilder::new("g", schema()).entry("all").fan_out("all", fan_out).edge("all", END);
    assert_eq!(told(&Stage::default(), graph).await, [("save", words(&["item 1", "item 2", "item 3"]))]);
    let branch = |word| Branch::subgraph(compiled(single(noting(word))), Projection::by_name());
    let branches = ParallelBranches::new().branch("b", branch("b")).branch("a", branch("a"));
    let graph = GraphBuilder::new("g", schema()).entry("all").parallel_branches("all", branches).edge("all", END);
    assert_eq!(told(&Stage::default(), graph).await, [("save", words(&["b", "a"]))]);
}

/// A fan-out whose second instance pauses, as `pauses` does.
fn pausing_in_part(rerun: bool) -> GraphBuilder {
    let work = move |state: State| async move {
        let item = state.get("answer").and_then(Value::as_i64).unwrap();
        note(&format!("item {item}"))?;
        match (item, rerun) {
            (2, true) => Err(suspend_and_rerun(SignalDescriptor::new("s")).await),
            (2, false) => Err(suspend(SignalDescriptor::new("s")).await),
            _ => Ok(Update::none()),
        }
    };
    let part = GraphBuilder::new("part", schema())
        .entry("begin")
        .function("begin", noting("began"))
        .function("work", work)
        .edge("begin", "work")
        .edge("work", END);
    let fan_out = FanOut::over(compiled(part))
        .items("items", "answer")
        .collect("answer", "outs")
        .concurrency(Some(Amount::Fixed(1)));
    GraphBuilder::new("g", schema()).entry("all").fan_out("all", fan_out).edge("all", END)
}

#[tokio::test]
async fn of_a_fan_out_that_pauses_that_is_told_which_does_not_run_again() {
    let all = words(&["began", "item 1", "began", "item 2"]);
    assert_eq!(told(&Stage::default(), pausing_in_part(false)).await, [("pause", all)]);
    assert_eq!(told(&Stage::default(), pausing_in_part(true)).await, [("pause", words(&["item 2"]))]);
}

/// Sleeps, and works behind the pause by `work`.
fn behind_a_pause<F: Future<Output = Result<Update, NodeError>> + Send + 'static>(
    work: impl Fn(State) -> F + Send + Sync + 'static,
) -> Arc<CompiledGraph> {
    compiled(
        GraphBuilder::new("g", schema())
            .sessions(SessionPolicy::projected(["outs"]))
            .entry("ask")
            .function("ask", async |_| Err(suspend(SignalDescriptor::new("s")).await))
            .function("before", noting("before"))
            .function("work", work)
            .edge("ask", "before")
            .edge("before", "work")
            .edge("work", END),
    )
}

/// Lets `graph` sleep and wakes it; what came of that, and what was told.
async fn woken(
    store: &Arc<Hears>,
    stage: &Stage,
    graph: Arc<CompiledGraph>,
    after_error: fn(&EngineError) -> AfterError,
) -> Result<Outcome, EngineError> {
    let engine = stage.engine_on(store.clone().turns());
    let Outcome::Suspended(paused) = run(&engine, &graph).await.unwrap() else { panic!("it did not sleep") };
    engine.resume(&graph, &paused.invocation_id, resume(after_error)).await
}

#[tokio::test]
async fn of_a_turn_that_fails_for_good_what_was_done_is_told() {
    let stage = Stage::default();
    let store = Hears::on(&stage);
    let fails = behind_a_pause(async |_| {
        note("never")?;
        Err(away())
    });
    woken(&store, &stage, fails, |_| AfterError::End).await.unwrap_err();
    assert_eq!(store.heard(), [("failure", words(&["before"]))]);
}

#[tokio::test]
async fn what_a_turn_recorded_that_is_thrown_away_is_gone() {
    for after in [(|_| AfterError::GiveBack) as fn(&EngineError) -> AfterError, |_| AfterError::KeepClaim] {
        let stage = Stage::default();
        let store = Hears::on(&stage);
        woken(&store, &stage, behind_a_pause(async |_| Err(away())), after).await.unwrap_err();
        assert_eq!(store.heard(), []);
    }
}

#[tokio::test]
async fn a_save_tells_what_was_recorded_before_it_and_the_end_tells_the_rest() {
    let stage = Stage::default();
    let store = Hears::on(&stage);
    let saves = behind_a_pause(async |_| {
        note("first")?;
        save_session(&Update::none()).await?;
        note("second")?;
        Ok(Update::none())
    });
    woken(&store, &stage, saves, |_| AfterError::End).await.unwrap();
    assert_eq!(store.heard(), [("held save", words(&["before", "first"])), ("end", words(&["second"]))]);
}

#[tokio::test]
async fn what_a_save_could_not_tell_is_told_with_the_end() {
    let stage = Stage::default();
    let store = Hears::on(&stage);
    let saves = behind_a_pause(async |_| {
        note("first")?;
        save_session(&Update::none()).await.unwrap_err();
        note("second")?;
        Ok(Update::none())
    });
    store.failures.lock().unwrap().push(StoreError::Unavailable("busy".to_owned()).into());
    woken(&store, &stage, saves, |_| AfterError::End).await.unwrap();
    assert_eq!(store.heard(), [("end", words(&["before", "first", "second"]))]);
}

#[tokio::test]
async fn nothing_is_told_behind_a_save_of_which_nobody_knows_what_it_told() {
    let stage = Stage::default();
    let store = Hears::on(&stage);
    let saves = behind_a_pause(async |_| {
        note("first")?;
        save_session(&Update::none()).await.unwrap_err();
        Ok(Update::none())
    });
    store.failures.lock().unwrap().push(CommitError::Unknown("no answer".to_owned()));
    let error = woken(&store, &stage, saves, |_| AfterError::KeepClaim).await.unwrap_err();
    assert_eq!((error.category(), store.heard()), (&Category::OutcomeUnknown, Vec::new()));
}

#[tokio::test]
async fn a_lease_that_is_given_back_says_nothing_of_a_save_in_the_midst_of_a_turn() {
    let stage = Stage::default();
    let store = Hears::on(&stage);
    let saves = single(async |_| {
        note("first")?;
        save_session(&Update::none()).await.unwrap_err();
        Ok(Update::none())
    });
    let graph = compiled(saves.sessions(SessionPolicy::projected(["outs"])));
    store.failures.lock().unwrap().push(CommitError::Unknown("no answer".to_owned()));
    let lease = LeaseTerms { owner: "turn".into(), duration: Duration::from_secs(5), yield_after: None };
    let call = Invocation { session_id: Some("s".into()), lease: Some(lease), ..Invocation::default() };
    let sending = Sending::begin();
    let error = sending.over(stage.engine_on(store.turns()).invoke(&graph, call)).await.unwrap_err();
    assert_eq!((error.category(), sending.may_have_written()), (&Category::OutcomeUnknown, true));
}

#[tokio::test]
async fn a_node_that_records_too_much_hears_of_it() {
    let stage = Stage::default();
    let store = Hears::on(&stage);
    let many = |count: usize| {
        single(move |_| {
            let recorded = (0..count).try_for_each(|n| note(&n.to_string()));
            futures::future::ready(recorded.map(|()| Update::none()))
        })
    };
    run(&stage.engine_on(store.clone().turns()), &compiled(many(limits::ENTRIES))).await.unwrap();
    assert_eq!(store.heard()[0].1.len(), limits::ENTRIES);
    let error = run(&stage.engine_on(store.turns()), &compiled(many(limits::ENTRIES + 1))).await.unwrap_err();
    assert_eq!(error.derived_category(), &Category::LimitExceeded);
    assert!(error.message().contains(&format!("{} entries", limits::ENTRIES + 1)), "{error}");
}

#[tokio::test]
async fn nodes_of_subgraphs_that_record_too_much_together_are_refused() {
    let half = |name: &str| {
        let record = async |_: State| {
            (0..=limits::ENTRIES / 2).try_for_each(|n| note(&n.to_string()))?;
            Ok(Update::none())
        };
        compiled(GraphBuilder::new(name, schema()).entry("work").function("work", record).edge("work", END))
    };
    let both = GraphBuilder::new("both", schema())
        .entry("one")
        .subgraph("one", half("one"), Projection::by_name())
        .subgraph("two", half("two"), Projection::by_name())
        .edge("one", "two")
        .edge("two", END);
    let graph = GraphBuilder::new("g", schema())
        .entry("in")
        .subgraph("in", compiled(both), Projection::by_name())
        .edge("in", END);
    let stage = Stage::default();
    let store = Hears::on(&stage);
    let error = run(&stage.engine_on(store.turns()), &compiled(graph)).await.unwrap_err();
    assert_eq!(error.category(), &Category::LimitExceeded);
    assert!(error.message().contains(&format!("{} entries", limits::ENTRIES + 2)), "{error}");
}

/// Records by itself.
struct Records;

#[async_trait]
impl Middleware for Records {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        note("middleware")?;
        next.run(state).await
    }
}

#[tokio::test]
async fn only_a_nodes_own_body_records() {
    assert!(note("nobody").unwrap_err().to_string().contains("outside of a node"));
    let stage = Stage::default();
    let graph = compiled(single(noting("node")).wrap("work", Arc::new(Records)));
    let error = run(&stage.engine_on(Hears::on(&stage).turns()), &graph).await.unwrap_err();
    assert!(error.message().contains("outside of a node"), "{error}");
}

#[tokio::test]
async fn a_store_that_tells_nobody_refuses_what_was_recorded() {
    let error = run(&Stage::default().engine(), &compiled(single(noting("lost")))).await.unwrap_err();
    assert!(error.message().contains("no place in a stream"), "{error}");
}
