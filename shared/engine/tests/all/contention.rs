//! Turns of one session at once: a commit that others were faster than is carried over, and in the end left to the next try.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{
    AfterError, CompiledGraph, END, Field, FieldType, GraphBuilder, Invocation, LeaseTerms, Outcome, Reducer, Resume,
    SessionConcurrency, SessionPolicy, StateSchema, Update, suspend,
};
use dormouse_ports::{
    Category, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, InvocationId, InvocationStatus, Invocations,
    SignalDescriptor, StateStore, StoreError, TurnStore,
};
use dormouse_testkit::map;
use serde_json::json;

use crate::stage::Stage;

/// A store in which another turn of the session is faster so many times.
struct Overtaken {
    store: Arc<dyn StateStore>,
    times: AtomicUsize,
}

impl Overtaken {
    fn on(stage: &Stage, times: usize) -> TurnStore {
        let store: Arc<dyn StateStore> = stage.store.clone();
        let commits = Arc::new(Self { store: store.clone(), times: AtomicUsize::new(times) });
        TurnStore { commits, ..store.into() }
    }
}

#[async_trait]
impl Commits for Overtaken {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let saves = commit.session.as_ref().is_some_and(|session| session.save.is_some());
        let one_less = |left: usize| left.checked_sub(1);
        if saves && self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            return Err(CommitError::SessionConflict);
        }
        self.store.commit(commit).await
    }
}

fn chat() -> Arc<CompiledGraph> {
    let log = Field::new(FieldType::List(Box::new(FieldType::Str)), json!([])).reduced_by(Reducer::Append);
    let graph = GraphBuilder::new("chat", StateSchema::new().field("log", log))
        .entry("ask")
        .function("ask", |_| async { Err(suspend(SignalDescriptor::new("s")).await) })
        .function("after", |_| async { Ok(Update::none().with("log", json!(["after"]))) })
        .edge("ask", "after")
        .edge("after", END)
        .sessions(SessionPolicy::projected(["log"]).concurrency(SessionConcurrency::Rebase));
    Arc::new(graph.compile().unwrap())
}

async fn asleep(stage: &Stage, graph: &Arc<CompiledGraph>) -> InvocationId {
    let call = Invocation { session_id: Some("s".into()), ..Invocation::default() };
    match stage.engine().invoke(graph, call).await.unwrap() {
        Outcome::Suspended(paused) => paused.invocation_id,
        Outcome::Completed(done) => panic!("it did not suspend: {done:?}"),
    }
}

fn resume() -> Resume {
    Resume {
        payload: map(json!({})),
        generation: None,
        claim: LeaseTerms { owner: "resumer".into(), duration: Duration::from_secs(900), yield_after: None },
        observers: Vec::new(),
        after_error: |_| AfterError::KeepClaim,
    }
}

#[tokio::test]
async fn a_commit_is_carried_over_also_where_many_others_were_faster() {
    let stage = Stage::default();
    let graph = chat();
    let id = asleep(&stage, &graph).await;
    let done = stage.engine_on(Overtaken::on(&stage, 40)).resume(&graph, &id, resume()).await.unwrap();
    let Outcome::Completed(done) = done else { panic!("{done:?}") };
    assert_eq!(done.state.get("log"), Some(&json!(["after"])));
}

#[tokio::test]
async fn what_others_were_always_faster_than_is_free_for_the_next_worker_at_once() {
    let stage = Stage::default();
    let graph = chat();
    let id = asleep(&stage, &graph).await;
    let overtaken = stage.engine_on(Overtaken::on(&stage, usize::MAX));
    let error = overtaken.resume(&graph, &id, resume()).await.unwrap_err();
    assert_eq!(error.category(), &Category::SessionWriteConflict);
    let stored = stage.store.load_invocation(&id).await.unwrap().unwrap();
    assert!(matches!(stored.status, InvocationStatus::Accepted { .. }), "{:?}", stored.status);
}

#[tokio::test]
async fn a_fresh_turn_with_durable_steps_that_others_were_always_faster_than_is_left_to_the_next_worker() {
    for (concurrency, goes_on) in [(SessionConcurrency::Rebase, true), (SessionConcurrency::Optimistic, false)] {
        let stage = Stage::default();
        let schema = StateSchema::new().field("answer", Field::new(FieldType::Int, json!(0)));
        let graph = GraphBuilder::new("job", schema)
            .entry("work")
            .function("work", |_| async { Ok(Update::none().with("answer", json!(1))) })
            .durable("work")
            .edge("work", END)
            .sessions(SessionPolicy::projected(["answer"]).concurrency(concurrency));
        let graph = Arc::new(graph.compile().unwrap());
        let id = InvocationId::from("turn-1");
        let call = Invocation {
            invocation_id: Some(id.clone()),
            session_id: Some("s".into()),
            cancelable: true,
            ..Invocation::default()
        };
        let overtaken = stage.engine_on(Overtaken::on(&stage, usize::MAX));
        let error = overtaken.invoke(&graph, call).await.unwrap_err();
        assert_eq!(error.category(), &Category::SessionWriteConflict);
        let stored = stage.store.load_invocation(&id).await.unwrap().unwrap().status;
        assert_eq!(matches!(stored, InvocationStatus::Accepted { .. }), goes_on, "{concurrency:?}: {stored:?}");
    }
}
