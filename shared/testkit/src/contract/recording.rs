//! Stores that publish tasks.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{
    Append, Category, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, DocumentKey, DocumentWrite, EntryKind,
    FailureRecord, InvocationId, InvocationWrite, Journal, JournalConflict, JournalEntry, Map, Owner, PausedInvocation,
    RecordedEntries, Records, StreamEnd,
};
use jiff::SignedDuration;
use serde_json::json;

use super::scene::map;

/// A store that publishes tasks, with tasks to try it on.
#[async_trait]
pub trait TellsOfTasks: Send + Sync {
    /// The store that publishes.
    fn commits(&self) -> &dyn Commits;

    /// Reads the records of that store.
    fn records(&self) -> &dyn Records;

    /// The first pause of a new task, which takes any answer.
    async fn sleeping_task(&self) -> PausedInvocation;

    /// All events that were published in the session of `task`, in order.
    async fn told(&self, task: &InvocationId) -> Vec<ToldOfTask>;
}

/// An event, as far as the contract knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldOfTask {
    /// Kind of the event.
    pub kind: String,
    /// Id of its resource.
    pub resource: String,
    /// Its number among the events of that resource.
    pub sequence: u64,
}

type Scene = Arc<dyn TellsOfTasks>;

/// A commit of `write` that brings a document and a stream of its own; `expect` is the version of the document.
fn own_journal(paused: &PausedInvocation, write: InvocationWrite, expect: u64, recorded: &[&str]) -> Commit {
    let key = own_document();
    let document = DocumentWrite { key, expect, body: Some(Map::new()), listed: Vec::new(), expires_at: None };
    let append = Append {
        stream: "own".to_owned(),
        end: StreamEnd::Store,
        first: 1,
        entries: vec![map(json!({ "n": 1 }))],
        fed: None,
    };
    let journal = Journal { recorded: entries(paused, recorded), ..Journal::new(vec![document], vec![append]) };
    Commit { invocation: Some(write), journal, ..Commit::new("own", paused.suspended_at) }
}

fn own_document() -> DocumentKey {
    DocumentKey::new("own", "document")
}

/// Entries of the author's kinds `recorded`.
fn entries(paused: &PausedInvocation, recorded: &[&str]) -> Option<RecordedEntries> {
    let entry = |name: &&str| JournalEntry::new(EntryKind::vendor(name).expect("a kind"));
    let entries: Vec<_> = recorded.iter().map(entry).collect();
    (!entries.is_empty()).then(|| RecordedEntries { invocation_id: paused.invocation_id.clone(), entries })
}

fn failed(paused: &PausedInvocation, owner: Option<Owner>) -> InvocationWrite {
    let failure = FailureRecord { category: Category::NodeException, message: "no".to_owned() };
    InvocationWrite::Fail { paused: Box::new(paused.clone()), owner, failure }
}

/// The kinds of the events that were published behind `before`. The numbers of all events of the task have no gap.
async fn news(scene: &Scene, paused: &PausedInvocation, before: usize) -> Vec<String> {
    let told = scene.told(&paused.invocation_id).await;
    let of_task = told.iter().filter(|one| one.resource == paused.invocation_id.as_str());
    let numbers: Vec<u64> = of_task.map(|one| one.sequence).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{told:?}");
    told.into_iter().skip(before).map(|one| one.kind).collect()
}

async fn count(scene: &Scene, paused: &PausedInvocation) -> usize {
    scene.told(&paused.invocation_id).await.len()
}

pub(super) async fn a_commit_with_a_journal_of_its_own_still_tells_its_task(scene: Scene) {
    for (index, recorded) in [&[][..], &["one", "two"][..]].into_iter().enumerate() {
        let paused = scene.sleeping_task().await;
        let before = count(&scene, &paused).await;
        let mut commit = own_journal(&paused, failed(&paused, None), index as u64, recorded);
        commit.id = format!("own-{index}");
        commit.journal.appends[0].first = index as u64 + 1;
        scene.commits().commit(&commit).await.expect("it is written");
        let told = recorded.iter().map(|name| format!("vendor.{name}"));
        // A task that slept works before its nodes record an entry.
        let woken = (!recorded.is_empty()).then(|| "task.status_changed".to_owned());
        let wanted: Vec<_> = woken.into_iter().chain(told).chain(["task.failed".to_owned()]).collect();
        assert_eq!(news(&scene, &paused, before).await, wanted);
        let document = scene.records().document(&own_document(), commit.now).await.expect("an answer");
        assert_eq!(document.map(|it| it.version), Some(index as u64 + 1));
        assert_eq!(scene.records().tip("own").await.expect("an answer").position, index as u64 + 1);
    }
}

pub(super) async fn a_commit_whose_own_journal_is_refused_tells_nothing(scene: Scene) {
    let paused = scene.sleeping_task().await;
    let before = count(&scene, &paused).await;
    let commit = own_journal(&paused, failed(&paused, None), 7, &["one"]);
    let refused = scene.commits().commit(&commit).await;
    let Err(CommitError::Journal(JournalConflict::Document(key))) = refused else { panic!("{refused:?}") };
    assert_eq!(key, own_document());
    assert_eq!(news(&scene, &paused, before).await, Vec::<String>::new());
    assert_eq!(scene.records().tip("own").await.expect("an answer").position, 0);
}

pub(super) async fn what_nodes_recorded_is_told_once_and_under_their_claim_only(scene: Scene) {
    let paused = scene.sleeping_task().await;
    let invocation_id = paused.invocation_id.clone();
    let generation = paused.generation;
    let now = paused.suspended_at;
    let owner = Owner::from("worker");
    let request = ClaimRequest {
        invocation_id: invocation_id.clone(),
        generation: Some(generation),
        owner: owner.clone(),
        now,
        until: now + SignedDuration::from_secs(30),
        past: None,
        payload: Some(Map::new()),
        answered: None,
    };
    let claimed = scene.commits().claim(&request).await;
    assert!(matches!(claimed, Ok(ClaimOutcome::Granted(_))), "{claimed:?}");
    let before = count(&scene, &paused).await;
    let saved = |id: &str, owner: &str, recorded: &[&str]| {
        let hold =
            InvocationWrite::AssertClaimed { invocation_id: invocation_id.clone(), generation, owner: owner.into() };
        let journal = Journal { recorded: entries(&paused, recorded), ..Journal::new(Vec::new(), Vec::new()) };
        Commit { invocation: Some(hold), journal, ..Commit::new(id, now) }
    };
    let refused = scene.commits().commit(&saved("stale", "another", &["stale"])).await;
    assert!(matches!(refused, Err(CommitError::InvocationConflict)), "{refused:?}");
    scene.commits().commit(&saved("save", "worker", &["saved"])).await.expect("it is written");
    let end = own_journal(&paused, failed(&paused, Some(owner)), 0, &["last"]);
    scene.commits().commit(&end).await.expect("it is written");
    // A caller that sends it again finds that it has ended.
    let again = scene.commits().commit(&end).await;
    assert!(again.is_err(), "{again:?}");
    assert_eq!(news(&scene, &paused, before).await, ["vendor.saved", "vendor.last", "task.failed"]);
}
