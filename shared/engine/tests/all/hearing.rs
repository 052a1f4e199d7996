//! What is said to a run in its midst: its durable step takes that in first, also one that was to be the last.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dormouse_engine::{
    END, EngineError, Field, FieldType, GraphBuilder, Invocation, NodeError, Outcome, Reducer, State, StateSchema,
    Target, Update, record,
};
use dormouse_ports::{
    Category, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, EntryKind, Hearing, InvocationWrite, Journal,
    JournalEntry, Map, Said, StateStore, StoreError, TurnStore,
};
use serde_json::{Value, json};

use crate::stage::Stage;

/// A commit that was written: what it is, what its state had heard, and the kinds of what its nodes recorded.
type Written = (&'static str, Vec<String>, Vec<String>);

/// A store that has something to say at some of the commits of a run.
struct Says {
    store: Arc<dyn StateStore>,
    /// By commit that may be told something: what is said then.
    words: Mutex<VecDeque<Vec<&'static str>>>,
    written: Mutex<Vec<Written>>,
}

impl Says {
    fn on(stage: &Stage, words: &[&[&'static str]]) -> Arc<Self> {
        let words = words.iter().map(|said| said.to_vec()).collect();
        Arc::new(Self { store: stage.store.clone(), words: Mutex::new(words), written: Mutex::default() })
    }

    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.store.clone();
        TurnStore { commits: self, ..store.into() }
    }
}

#[async_trait]
impl Commits for Says {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let what = match &commit.invocation {
            Some(InvocationWrite::Progress { .. }) => "step",
            Some(InvocationWrite::Complete { .. }) => "end",
            _ => "other",
        };
        let Hearing { is_open, heard } = &commit.journal.hearing;
        if *is_open {
            let mut words = self.words.lock().unwrap();
            let next = words.front_mut().and_then(|now| (!now.is_empty()).then(|| now.remove(0)));
            if let Some(said) = next {
                let update = Map::from_iter([("outs".to_owned(), json!([said]))]);
                return Err(CommitError::Said(Box::new(Said { names: vec![said.to_owned()], upto: 1, update })));
            }
            words.pop_front();
        }
        let recorded = commit.journal.recorded.iter().flat_map(|recorded| &recorded.entries);
        let kinds = recorded.map(|entry| entry.kind.to_string()).collect();
        let heard = heard.iter().flat_map(|said| said.names.clone()).collect();
        let journal = Journal { recorded: None, ..commit.journal.clone() };
        self.store.commit(&Commit { journal, ..commit.clone() }).await?;
        self.written.lock().unwrap().push((what, heard, kinds));
        Ok(())
    }
}

fn kind(name: &str) -> EntryKind {
    EntryKind::vendor(name).unwrap()
}

/// A graph of one durable node, which works until it has done so `most` times since it was told something.
fn working(most: u64) -> GraphBuilder {
    let schema = StateSchema::new()
        .field("outs", Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append))
        .field("left", Field::new(FieldType::Int, json!(most)));
    let work = |state: State| async move {
        let left = state.get("left").and_then(Value::as_u64).unwrap_or_default();
        record(JournalEntry::new(kind("test.worked")))?;
        if left == 1 {
            record(JournalEntry::new(kind("test.ended")))?;
        }
        Ok::<_, NodeError>(Update::none().with("outs", json!([left])).with("left", json!(left - 1)))
    };
    let next = |state: &State| {
        Ok(match state.get("left").and_then(Value::as_u64) {
            Some(0) => END,
            _ => Target::from("work"),
        })
    };
    GraphBuilder::new("g", schema).entry("work").function("work", work).durable("work").route_among(
        "work",
        ["work"],
        next,
    )
}

async fn run(stage: &Stage, store: &Arc<Says>, graph: GraphBuilder) -> Result<Value, EngineError> {
    let engine = stage.engine_on(store.clone().turns());
    match engine.invoke(&Arc::new(graph.compile().unwrap()), Invocation::default()).await? {
        Outcome::Completed(completed) => Ok(completed.state.to_map()["outs"].clone()),
        Outcome::Suspended(pause) => panic!("{pause:?}"),
    }
}

fn once_more(_: &State) -> Result<Option<Update>, NodeError> {
    Ok(Some(Update::none().with("left", json!(1))))
}

#[tokio::test]
async fn a_step_takes_in_what_was_said_and_its_edge_is_followed_anew() {
    let stage = Stage::default();
    let store = Says::on(&stage, &[&["one", "two"], &["three"]]);
    let graph = working(2).hears(kind("test.ended"), once_more);
    assert_eq!(run(&stage, &store, graph).await.unwrap(), json!([2, "one", "two", 1, "three", 1]));
    let worked = || vec!["vendor.test.worked".to_owned()];
    let words = |said: &[&str]| said.iter().map(|said| (*said).to_owned()).collect::<Vec<_>>();
    let ended = ["vendor.test.worked", "vendor.test.ended"].map(str::to_owned).to_vec();
    let expected = [
        ("step", words(&["one", "two"]), worked()),
        // It was to be the last one: that it ended is taken back.
        ("step", words(&["three"]), worked()),
        ("end", words(&[]), ended),
    ];
    assert_eq!(*store.written.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_graph_that_hears_nothing_is_told_nothing() {
    for graph in [working(2), working(2).hears(kind("test.ended"), |_| Ok(None))] {
        let stage = Stage::default();
        let store = Says::on(&stage, &[&["one"], &["two"]]);
        assert_eq!(run(&stage, &store, graph).await.unwrap(), json!([2, 1]));
    }
}

#[tokio::test]
async fn what_is_heard_has_to_lead_to_a_node_and_a_hearing_that_fails_ends_the_run() {
    let stage = Stage::default();
    let store = Says::on(&stage, &[&[], &["one"]]);
    let graph = working(2).hears(kind("test.ended"), |_| Ok(Some(Update::none())));
    let error = run(&stage, &store, graph).await.unwrap_err();
    assert_eq!(*error.category(), Category::RoutingError, "{error}");
    let graph = working(2).hears(kind("test.ended"), |_| Err(NodeError::new("deaf")));
    let error = run(&Stage::default(), &Says::on(&Stage::default(), &[]), graph).await.unwrap_err();
    assert!(error.message().contains("deaf"), "{error}");
}
