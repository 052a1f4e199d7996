//! Counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_ports::{
    Commit, CommitError, CounterChange, CounterWrite, Counters, DocumentKey, DocumentWrite, Journal, JournalConflict,
};
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::json;

use super::Journaled;
use super::scene::{at, commit, map};

type Store = Arc<dyn Journaled>;

fn key() -> DocumentKey {
    DocumentKey::new("counters", "q1")
}

fn amounts(pairs: &[(&str, i64)]) -> BTreeMap<String, i64> {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
}

fn take(needs: &[(&str, i64)], taken: &[(&str, i64)]) -> CounterChange {
    CounterChange::Take { needs: amounts(needs), amounts: amounts(taken) }
}

fn begin(ending: Option<Timestamp>, left: &[(&str, i64)], ends_at: Option<Timestamp>) -> CounterChange {
    CounterChange::Begin { ending, left: amounts(left), ends_at, forget_at: None }
}

fn alone(id: &str, now: Timestamp, change: CounterChange) -> Commit {
    let journal = Journal { counters: vec![CounterWrite { key: key(), change }], ..Journal::default() };
    Commit { journal, now, ..commit(id, None, None) }
}

async fn done(store: &Store, id: &str, change: CounterChange) {
    store.commit(&alone(id, at(0), change)).await.expect("it is written");
}

async fn refused(store: &Store, commit: &Commit) {
    let refused = store.commit(commit).await;
    assert!(
        matches!(&refused, Err(CommitError::Journal(JournalConflict::Counters(one))) if *one == key()),
        "{}: {refused:?}",
        commit.id
    );
}

async fn left(store: &Store) -> Counters {
    store.counters(&key()).await.expect("the store answers").unwrap_or_default()
}

pub(super) async fn what_is_left_is_taken_until_there_is_too_little(store: Store) {
    assert_eq!(store.counters(&key()).await.expect("an answer"), None);
    refused(&store, &alone("unmade", at(0), take(&[("tasks", 1)], &[("tasks", 1)]))).await;
    done(&store, "make", begin(None, &[("tasks", 3), ("tokens", 100)], None)).await;
    done(&store, "one", take(&[("tasks", 2)], &[("tasks", 2), ("tokens", 150)])).await;
    assert_eq!(left(&store).await, Counters { left: amounts(&[("tasks", 1), ("tokens", -50)]), ends_at: None });
    refused(&store, &alone("more", at(0), take(&[("tasks", 2)], &[("tasks", 2)]))).await;
    refused(&store, &alone("tokens", at(0), take(&[("tasks", 1), ("tokens", 1)], &[("tasks", 1)]))).await;
    refused(&store, &alone("unknown", at(0), take(&[("others", 0)], &[]))).await;
    done(&store, "last", take(&[("tasks", 1)], &[("tasks", 1)])).await;
    assert_eq!(left(&store).await.left, amounts(&[("tasks", 0), ("tokens", -50)]));
}

pub(super) async fn a_refused_take_writes_nothing_else(store: Store) {
    done(&store, "make", begin(None, &[("tasks", 0)], None)).await;
    let document = DocumentWrite {
        key: DocumentKey::new("task", "t1"),
        expect: 0,
        body: Some(map(json!({ "n": 1 }))),
        listed: Vec::new(),
        expires_at: None,
    };
    let mut both = alone("both", at(0), take(&[("tasks", 1)], &[("tasks", 1)]));
    both.journal.documents.push(document.clone());
    refused(&store, &both).await;
    assert_eq!(store.document(&document.key, at(0)).await.expect("an answer"), None);
    let mut gives = alone("gives", at(0), CounterChange::Add { amounts: amounts(&[("tasks", 5)]) });
    gives.journal.documents.push(DocumentWrite { expect: 7, ..document });
    let conflict = store.commit(&gives).await;
    assert!(matches!(conflict, Err(CommitError::Journal(JournalConflict::Document(_)))), "{conflict:?}");
    assert_eq!(left(&store).await.left, amounts(&[("tasks", 0)]));
}

pub(super) async fn an_addition_never_fails(store: Store) {
    done(&store, "before", CounterChange::Add { amounts: amounts(&[("tasks", -2)]) }).await;
    done(&store, "make", begin(None, &[("tokens", 1)], Some(at(60)))).await;
    let late = alone("late", at(90), CounterChange::Add { amounts: amounts(&[("tasks", 1), ("tokens", -4)]) });
    store.commit(&late).await.expect("it is written");
    assert_eq!(left(&store).await, Counters { left: amounts(&[("tasks", -1), ("tokens", -3)]), ends_at: Some(at(60)) });
}

pub(super) async fn a_period_begins_once(store: Store) {
    done(&store, "make", begin(None, &[("tasks", 3), ("open", 9)], Some(at(60)))).await;
    refused(&store, &alone("again", at(0), begin(None, &[("tasks", 9)], Some(at(99))))).await;
    done(&store, "next", begin(Some(at(60)), &[("tasks", 4)], Some(at(120)))).await;
    refused(&store, &alone("behind", at(0), begin(Some(at(60)), &[("tasks", 9)], Some(at(120))))).await;
    assert_eq!(left(&store).await, Counters { left: amounts(&[("tasks", 4), ("open", 9)]), ends_at: Some(at(120)) });
    done(&store, "open", begin(Some(at(120)), &[], None)).await;
    assert_eq!(left(&store).await.ends_at, None);
}

pub(super) async fn nothing_is_taken_behind_the_end_of_a_period(store: Store) {
    done(&store, "make", begin(None, &[("tasks", 3)], Some(at(60)))).await;
    store.commit(&alone("in-time", at(59), take(&[("tasks", 1)], &[("tasks", 1)]))).await.expect("it is written");
    refused(&store, &alone("late", at(60), take(&[("tasks", 1)], &[("tasks", 1)]))).await;
    assert_eq!(left(&store).await.left, amounts(&[("tasks", 2)]));
}

pub(super) async fn the_same_take_again_counts_once(store: Store) {
    done(&store, "make", begin(None, &[("tasks", 3)], None)).await;
    for _ in 0..2 {
        done(&store, "one", take(&[("tasks", 1)], &[("tasks", 1)])).await;
    }
    assert_eq!(left(&store).await.left, amounts(&[("tasks", 2)]));
}

pub(super) async fn of_many_at_once_no_more_is_taken_than_there_is(store: Store) {
    done(&store, "make", begin(None, &[("tasks", 3)], None)).await;
    let one = async |number: usize| {
        let commit = alone(&format!("one-{number}"), at(0), take(&[("tasks", 1)], &[("tasks", 1)]));
        store.commit(&commit).await.is_ok()
    };
    let taken = join_all((0..8).map(one)).await;
    assert_eq!(taken.into_iter().filter(|happened| *happened).count(), 3);
    assert_eq!(left(&store).await.left, amounts(&[("tasks", 0)]));
}
