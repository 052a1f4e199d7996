//! Steps that a store only notes, which leave the record of the session as it is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{
    AfterError, CompiledGraph, END, Field, FieldType, GraphBuilder, Invocation, LeaseTerms, NodeError, Outcome,
    Reducer, Resume, SessionConcurrency, SessionPolicy, State, StateSchema, Update, save_session,
};
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits, InvocationWrite, Map, Owner, ProgressFrom,
    Sessions, StateStore, StepWritten, StoreError, TurnStore,
};
use dormouse_testkit::map;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::stage::Stage;

/// A store that notes each step of a run but the first.
struct Notes {
    store: Arc<dyn StateStore>,
    /// Of each save in the midst of a step: whether it demands the claim.
    saves: Mutex<Vec<bool>>,
}

impl Notes {
    fn on(stage: &Stage) -> Arc<Self> {
        Arc::new(Self { store: stage.store.clone(), saves: Mutex::default() })
    }

    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.store.clone();
        TurnStore { commits: self, ..store.into() }
    }
}

#[async_trait]
impl Commits for Notes {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let saves = commit.session.as_ref().is_some_and(|session| session.save.is_some());
        let demands = matches!(commit.invocation, Some(InvocationWrite::AssertClaimed { .. }));
        if saves && (demands || commit.invocation.is_none()) {
            self.saves.lock().unwrap().push(demands);
        }
        self.store.commit(commit).await
    }

    async fn step(&self, commit: &Commit) -> Result<StepWritten, CommitError> {
        if matches!(&commit.invocation, Some(InvocationWrite::Progress { from: ProgressFrom::Fresh, .. })) {
            return self.store.commit(commit).await.map(|()| StepWritten::Whole);
        }
        self.store.commit(&Commit { session: None, ..commit.clone() }).await?;
        Ok(StepWritten::Noted)
    }
}

/// A graph of so many durable nodes and one behind them, each of which writes a word; the last one saves before that. Where it
/// `hangs` it tells so instead.
fn saving(steps: usize, hangs: Option<Arc<Notify>>) -> Arc<CompiledGraph> {
    let words = Field::new(FieldType::List(Box::new(FieldType::Str)), json!([])).reduced_by(Reducer::Append);
    let mut graph = GraphBuilder::new("g", StateSchema::new().field("words", words)).entry(name(0));
    for at in 0..steps {
        let step = move |_: State| async move { Ok::<_, NodeError>(Update::none().with("words", json!([name(at)]))) };
        let next = if at + 1 < steps { name(at + 1) } else { "last".to_owned() };
        graph = graph.function(name(at), step).durable(&name(at)).edge(name(at), next.as_str());
    }
    let last = move |_: State| {
        let hangs = hangs.clone();
        async move {
            if let Some(told) = hangs {
                told.notify_one();
                std::future::pending::<()>().await;
            }
            save_session(&Update::none().with("words", json!(["saved"]))).await?;
            Ok::<_, NodeError>(Update::none().with("words", json!(["last"])))
        }
    };
    let policy = SessionPolicy::projected(["words"]).concurrency(SessionConcurrency::Rebase);
    Arc::new(graph.function("last", last).edge("last", END).sessions(policy).compile().unwrap())
}

fn name(at: usize) -> String {
    format!("step-{at}")
}

fn call() -> Invocation {
    Invocation { session_id: Some("s".into()), invocation_id: Some("turn-1".into()), ..Invocation::default() }
}

async fn kept(stage: &Stage) -> Value {
    stage.store.load_session(&"s".into(), None).await.unwrap().record.unwrap().state["words"].clone()
}

#[tokio::test]
async fn a_save_in_the_midst_of_a_step_demands_the_claim_where_steps_were_noted() {
    for (steps, demands) in [(1, false), (2, true), (4, true)] {
        let stage = Stage::default();
        let store = Notes::on(&stage);
        let done = stage.engine_on(store.clone().turns()).invoke(&saving(steps, None), call()).await.unwrap();
        assert!(matches!(done, Outcome::Completed(_)), "{done:?}");
        assert_eq!(*store.saves.lock().unwrap(), [demands], "{steps} steps");
        let words: Vec<_> = (0..steps).map(name).chain(["last".to_owned()]).collect();
        assert_eq!(kept(&stage).await, json!(words));
    }
}

/// Its first save, before any step of its own.
#[tokio::test]
async fn who_takes_over_a_run_whose_steps_were_noted_demands_the_claim_as_well() {
    let stage = Stage::default();
    let store = Notes::on(&stage);
    let engine = stage.engine_on(store.clone().turns());
    let reached = Arc::new(Notify::new());
    let hanging = saving(3, Some(reached.clone()));
    tokio::select! {
        ended = engine.invoke(&hanging, call()) => panic!("it hangs: {ended:?}"),
        () = reached.notified() => {}
    }
    let owner = Owner::from("another");
    let now = stage.clock.now() + Duration::from_secs(3_600);
    let request = ClaimRequest {
        invocation_id: "turn-1".into(),
        generation: None,
        owner: owner.clone(),
        now,
        until: now + Duration::from_secs(60),
        past: None,
        payload: None,
        answered: None,
    };
    let ClaimOutcome::Granted(mut record) = stage.store.claim(&request).await.unwrap() else {
        panic!("it cannot be taken over")
    };
    // As the store has the session.
    record.saved = Some(map(json!({ "words": [name(0)] })).into());
    record.paused.session_version = Some(1);
    let resume = Resume {
        payload: Map::new(),
        generation: None,
        claim: LeaseTerms { owner, duration: Duration::from_secs(60), yield_after: None },
        observers: Vec::new(),
        after_error: |_| AfterError::KeepClaim,
    };
    let done = engine.resume_claimed(&saving(3, None), record, resume).await.unwrap();
    assert!(matches!(done, Outcome::Completed(_)), "{done:?}");
    assert_eq!(*store.saves.lock().unwrap(), [true]);
    assert_eq!(kept(&stage).await, json!([name(0), name(1), name(2), "last"]));
}
