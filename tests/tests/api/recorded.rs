//! What nodes record, as clients are told of it.

use std::sync::Arc;

use dormouse_api::{Agent, CallAnswer, RecordingStore};
use dormouse_engine::{CompiledGraph, END, EngineError, Graph, NodeError, Update, record, state, suspend};
use dormouse_ports::{
    Append, ArtifactPlace, Category, Clock, Commit, CommitError, Commits, DocumentKey, DocumentWrite, EntryKind,
    InvocationId, InvocationWrite, Invocations, Journal, JournalConflict, JournalEntry, Map, RecordedEntries,
    SignalDescriptor, StateArtifact, StoreError, StreamEnd,
};
use dormouse_protocol::event::redact::MARK;
use dormouse_protocol::{ErrorCode, EventKind};
use dormouse_testkit::MemoryStore;
use serde_json::{Value, json};

use crate::world::{MakesAgent, World, actor, ada, text};

state! {
    #[derive(Clone, Debug, Default)]
    struct Search {
        answer: String,
    }
}

fn entry(kind: EntryKind, tool: &str) -> Result<(), NodeError> {
    record(JournalEntry::new(kind).with("tool", tool))
}

/// Searches, asks, and searches again.
pub(crate) fn searching() -> CompiledGraph {
    let graph = Graph::<Search>::new("search")
        .entry("search")
        .node("search", async |()| {
            entry(EntryKind::ToolRequested, "search")?;
            record(
                JournalEntry::new(EntryKind::ToolCompleted)
                    .with("tool", "search")
                    .with("api_key", "hush")
                    .with("answers", json!([{"type": "thinking", "thinking": "hm"}, "Bearer sk-0123456789012345678"])),
            )?;
            Err(suspend(SignalDescriptor::new(name())).await)
        })
        .node("again", async |()| {
            entry(EntryKind::vendor("acme.searched").map_err(|error| NodeError::new(error.to_string()))?, "again")?;
            Ok(Update::none())
        })
        .edge("search", "again")
        .edge("again", END);
    graph.compile().unwrap()
}

state! {
    #[derive(Clone, Debug, Default)]
    struct Finding {
        words: String,
        answer: String,
    }
}

/// Finds a text that is too long to be told, and asks.
pub(crate) fn finding() -> MakesAgent {
    ("find", Agent::new(|_| finds()))
}

fn finds() -> Result<CompiledGraph, EngineError> {
    let graph = Graph::<Finding>::new("find")
        .entry("find")
        .node("find", async |()| {
            let left = StateArtifact {
                place: ArtifactPlace::State("/words".to_owned()),
                mime_type: "text/plain".to_owned(),
                metadata: Map::from_iter([("bytes".to_owned(), found().len().into())]),
            };
            record(JournalEntry::new(EntryKind::ToolCompleted).with("tool", "find").leaving(Some(left)))?;
            Ok(Finding::words.set(found()))
        })
        .node("ask", async |()| Err::<Update<Finding>, _>(suspend(SignalDescriptor::new(name())).await))
        .edge("find", "ask")
        .edge("ask", END);
    graph.compile()
}

fn found() -> String {
    "words ".repeat(100_000)
}

fn name() -> String {
    dormouse_engine::current().map(|identity| identity.invocation_id.to_string()).unwrap()
}

/// A task that searches, before anybody worked on it: its id.
async fn submitted(world: &World) -> String {
    let session = world.session().await;
    let body = json!({"persona_id": "persona_search", "input": {"answer": ""}});
    text(&world.post(&format!("{session}/tasks"), body).await["id"]).to_owned()
}

async fn events(world: &World, task: &str) -> Vec<Value> {
    world.get(&format!("/v1/tasks/{task}/events")).await["data"].as_array().unwrap().clone()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| text(&event["event"])).collect()
}

#[test]
fn what_nodes_record_has_a_kind_of_the_protocol() {
    for kind in EntryKind::NAMED {
        assert!(!matches!(EventKind::from(kind.as_str()), EventKind::Other(_)), "{kind}");
    }
}

#[tokio::test]
async fn what_nodes_record_is_told_in_order_with_the_numbers_of_the_task() {
    let world = World::new();
    let task = submitted(&world).await;
    world.work().await.unwrap();
    world.callback(&task, json!({"answer": "yes"})).await;
    let events = events(&world, &task).await;
    let told = kinds(&events);
    let wanted = [
        "task.submitted",
        "task.started",
        "tool.requested",
        "tool.completed",
        "task.input_required",
        "task.status_changed",
        "vendor.acme.searched",
        "artifact.created",
        "task.completed",
    ];
    assert_eq!(told, wanted);
    let of_task = events.iter().filter(|event| event["resource"]["id"] == task.as_str());
    assert_eq!(of_task.map(|event| event["sequence"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(events[6]["payload"], json!({"tool": "again"}));
    assert_eq!(events[6]["actor"], "persona_search");
}

/// Also while the run sleeps, and to nobody else.
pub(crate) async fn long_text(world: &World, session: &str) {
    let body = json!({"persona_id": "persona_find", "input": {"answer": ""}});
    let task = text(&world.post(&format!("{session}/tasks"), body).await["id"]).to_owned();
    world.work().await.unwrap();
    let listed = world.get(&format!("/v1/artifacts?task_id={task}")).await;
    let artifact = &listed["data"][0];
    assert_eq!(
        (&artifact["metadata"]["bytes"], &artifact["task_id"], &artifact["visibility"]),
        (&json!(found().len()), &json!(task), &json!("public")),
        "{listed}"
    );
    let path = format!("/v1/artifacts/{}/content", text(&artifact["id"]));
    let whole = CallAnswer::Bytes { content_type: "text/plain".to_owned(), bytes: found().into_bytes() };
    let content = async || world.call(ada(), "GET", &path, &Value::Null, None).await;
    assert!(content().await.is_ok_and(|content| content == whole), "while it sleeps");
    world.callback(&task, json!({"answer": "yes"})).await;
    assert!(content().await.is_ok_and(|content| content == whole), "when it has ended");
    let refused = world.call(actor("eve", "elsewhere", None), "GET", &path, &Value::Null, None).await;
    assert!(refused.is_err_and(|refusal| refusal.code() == ErrorCode::ResourceNotFound));
}

#[tokio::test]
async fn a_text_that_is_too_long_to_be_told_is_an_artifact() {
    let store = Arc::new(MemoryStore::default());
    let world = World::serving((store.clone(), store.clone(), Some(store)), None, &[finding()]);
    long_text(&world, &world.session().await).await;
}

#[tokio::test]
async fn secrets_and_hidden_reasoning_are_taken_out_of_what_nodes_record() {
    let world = World::new();
    let task = submitted(&world).await;
    world.work().await.unwrap();
    let told = &events(&world, &task).await[3]["payload"];
    let answers = json!([{"type": "thinking", "redacted": true}, format!("Bearer {MARK}")]);
    assert_eq!(*told, json!({"tool": "search", "api_key": MARK, "answers": answers}));
}

/// A commit of `write` in the name of the invocation `id`, whose nodes recorded `words`.
fn commit(world: &World, id: &str, write: InvocationWrite, words: &[&str]) -> Commit {
    let entry = |word: &&str| JournalEntry::new(EntryKind::vendor("test").unwrap()).with("word", *word);
    let entries: Vec<_> = words.iter().map(entry).collect();
    let recorded = (!entries.is_empty()).then(|| RecordedEntries { invocation_id: id.into(), entries });
    let journal = Journal { recorded, ..Journal::default() };
    Commit { invocation: Some(write), journal, ..Commit::new(format!("test-{id}"), world.clock.now()) }
}

/// The store of a world with a task that sleeps, and the end of that task.
async fn ending(world: &Arc<World>, words: &[&str]) -> (RecordingStore, String, Commit) {
    let task = submitted(world).await;
    world.work().await.unwrap();
    let memory = world.memory.clone().unwrap();
    let store = RecordingStore::new(memory.clone(), memory.clone(), world.clock.clone());
    let record = memory.load_invocation(&InvocationId::from(task.as_str())).await.unwrap().unwrap();
    let failure = dormouse_ports::FailureRecord { category: Category::NodeException, message: "no".to_owned() };
    let write = InvocationWrite::Fail { paused: Box::new(record.paused), owner: None, failure };
    let commit = commit(world, &task, write, words);
    (store, task, commit)
}

#[tokio::test]
async fn a_commit_whose_journal_conflicts_with_what_others_wrote_is_not_tried_again() {
    let world = World::new();
    let (store, task, commit) = ending(&world, &["word"]).await;
    let key = DocumentKey::new("note", "n");
    let write = DocumentWrite { key: key.clone(), expect: 7, body: Some(Map::new()), listed: vec![], expires_at: None };
    let journal = Journal { documents: vec![write], ..commit.journal.clone() };
    let refused = store.commit(&Commit { journal, ..commit }).await;
    assert!(
        matches!(&refused, Err(CommitError::Journal(JournalConflict::Document(one))) if *one == key),
        "{refused:?}"
    );
    assert_eq!(kinds(&events(&world, &task).await).last(), Some(&"task.input_required"));
}

#[tokio::test]
async fn a_journal_that_writes_to_the_session_of_the_task_is_refused() {
    let world = World::new();
    let (store, task, commit) = ending(&world, &[]).await;
    let stream = text(&events(&world, &task).await[0]["session_id"]).to_owned();
    let first = world.entries(&stream).await.len() as u64 + 1;
    let append = Append { stream, end: StreamEnd::Store, first, entries: vec![Map::new()], fed: None };
    let journal = Journal::new(Vec::new(), vec![append]);
    let refused = store.commit(&Commit { journal, ..commit }).await;
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Invalid(_)))), "{refused:?}");
}

#[tokio::test]
async fn what_nodes_of_other_invocations_record_is_told_to_nobody() {
    let world = World::new();
    let (store, _, _) = ending(&world, &[]).await;
    let before = world.written();
    let entries = vec![JournalEntry::new(EntryKind::ToolUse)];
    for id in ["other", "task_unknown"] {
        let recorded = Some(RecordedEntries { invocation_id: id.into(), entries: entries.clone() });
        let journal = Journal { recorded, ..Journal::default() };
        store.commit(&Commit { journal, ..Commit::new(id, world.clock.now()) }).await.unwrap();
    }
    assert_eq!(before, world.written());
}
