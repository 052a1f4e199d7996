use dormouse_ports::{
    CommitError, Lease, LeaseRequest, LoadedSession, Map, SessionExpectation, SessionFilter, SessionId, SessionWrite,
    StoreError,
};
use jiff::Timestamp;
use serde_json::json;

use super::scene::{
    Store, assert_same, at, commit, delicate_state, fresh, invocation, lease_for, map, pause, save, session, signal,
    sleep, write_session,
};

const ANY: SessionExpectation = SessionExpectation::Any;

async fn load(store: &Store, lease: &LeaseRequest) -> Result<LoadedSession, StoreError> {
    store.load_session(&SessionId::from("session-1"), Some(lease)).await
}

async fn leased(store: &Store, lease: &LeaseRequest) -> Lease {
    load(store, lease).await.expect("the lease is granted").lease.expect("a lease was asked for")
}

fn under(lease: &Lease, release: bool) -> SessionWrite {
    SessionWrite { lease: Some(lease.clone()), release, ..save("session-1", delicate_state(), ANY) }
}

pub(super) async fn an_unknown_session_has_no_record(store: Store) {
    let loaded = store.load_session(&SessionId::from("nobody"), None).await.expect("the store answers");
    let nothing = LoadedSession { record: None, lease: None, leased_until: None, leased_by: None, stored: Vec::new() };
    assert_eq!(loaded, nothing);
}

pub(super) async fn a_save_can_be_loaded_with_every_detail(store: Store) {
    let first = save("session-1", delicate_state(), SessionExpectation::Version(0));
    write_session(&store, "first", first).await.expect("it is saved");
    let record = session(&store, "session-1").await.expect("it is there");
    assert_same(&record.state, &delicate_state());
    assert_eq!((record.version, record.schema_version.as_str()), (1, "2"));
    assert_eq!((record.created_at, record.updated_at), (at(0), at(0)));
    assert_eq!(record.session_id.as_str(), "session-1");
}

pub(super) async fn versions_count_saves(store: Store) {
    for version in 0..3 {
        let write = save("session-1", map(json!({"n": version})), SessionExpectation::Version(version));
        let mut change = commit(&version.to_string(), Some(write), None);
        change.now = at(i64::try_from(version).expect("a small number"));
        store.commit(&change).await.expect("it is saved");
    }
    let record = session(&store, "session-1").await.expect("it is there");
    assert_eq!((record.version, record.created_at, record.updated_at), (3, at(0), at(2)));
    assert_eq!(record.state, map(json!({"n": 2})));
}

pub(super) async fn another_version_conflicts(store: Store) {
    for (id, expected) in [("first", None), ("second", Some(0)), ("third", Some(2))] {
        let expect = expected.map_or(ANY, SessionExpectation::Version);
        let outcome = write_session(&store, id, save("session-1", Map::new(), expect)).await;
        match expected {
            None => outcome.expect("it is saved"),
            Some(_) => assert!(matches!(outcome, Err(CommitError::SessionConflict)), "{outcome:?}"),
        }
    }
    let missing = write_session(&store, "missing", save("session-2", Map::new(), SessionExpectation::Version(1))).await;
    assert!(matches!(missing, Err(CommitError::SessionConflict)), "{missing:?}");
    assert_eq!(session(&store, "session-2").await, None);
}

pub(super) async fn no_expectation_lets_the_last_write_win(store: Store) {
    write_session(&store, "first", save("session-1", map(json!({"n": 1})), ANY)).await.expect("it is saved");
    write_session(&store, "second", save("session-1", map(json!({"n": 2})), ANY)).await.expect("it is saved");
    let record = session(&store, "session-1").await.expect("it is there");
    assert_eq!((record.version, record.state), (2, map(json!({"n": 2}))));
}

pub(super) async fn a_save_without_expectation_repeats_once(store: Store) {
    let write = commit("once", Some(save("session-1", Map::new(), ANY)), None);
    store.commit(&write).await.expect("it is saved");
    store.commit(&write).await.expect("its repetition is a success");
    assert_eq!(session(&store, "session-1").await.map(|record| record.version), Some(1));
}

pub(super) async fn a_lease_excludes_others(store: Store) {
    let lease = leased(&store, &lease_for("first", 0)).await;
    assert_eq!(lease.owner.as_str(), "first");
    let outcome = load(&store, &lease_for("second", 59)).await;
    assert!(matches!(&outcome, Err(StoreError::LeaseHeld { until }) if *until == at(60)), "{outcome:?}");
    let read = store.load_session(&SessionId::from("session-1"), None).await.expect("reading needs no lease");
    assert_eq!((read.leased_by, read.leased_until), (Some(lease.owner), Some(at(60))), "it tells who has it");
}

pub(super) async fn a_renewed_lease_keeps_its_fence(store: Store) {
    let first = leased(&store, &lease_for("first", 0)).await;
    let renewed = leased(&store, &lease_for("first", 30)).await;
    assert_eq!(first, renewed);
    let outcome = load(&store, &lease_for("second", 70)).await;
    assert!(matches!(&outcome, Err(StoreError::LeaseHeld { until }) if *until == at(90)), "{outcome:?}");
    write_session(&store, "save", under(&first, true)).await.expect("the lease is still good");
}

pub(super) async fn an_expired_lease_passes_on_with_a_larger_fence(store: Store) {
    let first = leased(&store, &lease_for("first", 0)).await;
    let second = leased(&store, &lease_for("second", 60)).await;
    assert!(second.fence > first.fence, "{second:?} after {first:?}");
    let third = leased(&store, &lease_for("first", 120)).await;
    assert!(third.fence > second.fence, "{third:?} after {second:?}");
}

pub(super) async fn a_lease_is_passed_over_only_by_who_names_it(store: Store) {
    let first = leased(&store, &lease_for("first", 0)).await;
    let past = |end| LeaseRequest { past: Some(at(end)), ..lease_for("second", 1) };
    assert!(matches!(load(&store, &past(59)).await, Err(StoreError::LeaseHeld { .. })));
    let second = leased(&store, &past(60)).await;
    assert!(second.fence > first.fence, "{second:?} after {first:?}");
    let outcome = write_session(&store, "save", under(&first, true)).await;
    assert!(matches!(outcome, Err(CommitError::LeaseLost)), "{outcome:?}");
}

pub(super) async fn a_released_lease_is_free(store: Store) {
    let first = leased(&store, &lease_for("first", 0)).await;
    write_session(&store, "save", under(&first, true)).await.expect("it is saved");
    let second = leased(&store, &lease_for("second", 1)).await;
    assert!(second.fence > first.fence);
    write_session(&store, "keep", under(&second, false)).await.expect("it is saved");
    let outcome = load(&store, &lease_for("third", 2)).await;
    assert!(matches!(outcome, Err(StoreError::LeaseHeld { .. })), "a save alone gives nothing back: {outcome:?}");
}

pub(super) async fn a_lost_lease_fails_the_commit(store: Store) {
    let first = leased(&store, &lease_for("first", 0)).await;
    leased(&store, &lease_for("second", 60)).await;
    let outcome = write_session(&store, "lost", under(&first, true)).await;
    assert!(matches!(outcome, Err(CommitError::LeaseLost)), "{outcome:?}");
    leased(&store, &lease_for("first", 120)).await;
    let outcome = write_session(&store, "older", under(&first, true)).await;
    assert!(matches!(outcome, Err(CommitError::LeaseLost)), "the owner has a newer lease: {outcome:?}");
    assert_eq!(session(&store, "session-1").await, None);
}

pub(super) async fn a_lease_alone_makes_no_record(store: Store) {
    let lease = lease_for("first", 0);
    let loaded = load(&store, &lease).await.expect("the lease is granted");
    assert_eq!(loaded.record, None);
    assert_eq!(session(&store, "session-1").await, None);
    let page = store.list_sessions(&SessionFilter::default(), None).await.expect("the store answers");
    assert_eq!(page.items, []);
    let lease = loaded.lease.expect("a lease was asked for");
    let first = SessionWrite { expect: SessionExpectation::Version(0), ..under(&lease, true) };
    write_session(&store, "first", first).await.expect("there is no record yet");
    assert_eq!(session(&store, "session-1").await.map(|record| record.version), Some(1));
}

pub(super) async fn a_lease_can_be_given_back_without_a_save(store: Store) {
    let lease = leased(&store, &lease_for("first", 0)).await;
    let write = SessionWrite { save: None, ..under(&lease, true) };
    write_session(&store, "release", write).await.expect("the lease is given back");
    assert_eq!(session(&store, "session-1").await, None);
    leased(&store, &lease_for("second", 1)).await;
}

pub(super) async fn deleting_is_idempotent(store: Store) {
    let id = SessionId::from("session-1");
    store.delete_session(&id).await.expect("nothing to delete");
    write_session(&store, "first", save("session-1", Map::new(), ANY)).await.expect("it is saved");
    store.delete_session(&id).await.expect("it is deleted");
    store.delete_session(&id).await.expect("it is gone already");
    assert_eq!(session(&store, "session-1").await, None);
}

pub(super) async fn a_failed_session_condition_writes_nothing_of_the_invocation(store: Store) {
    let stale = save("session-1", delicate_state(), SessionExpectation::Version(9));
    let outcome = store.commit(&commit("both", Some(stale), Some(fresh(&pause("i1", 1, "s1"))))).await;
    assert!(matches!(outcome, Err(CommitError::SessionConflict)), "{outcome:?}");
    assert_eq!(invocation(&store, "i1").await, None);
    assert_eq!(signal(&store, "s1").await, None);
}

pub(super) async fn a_failed_invocation_condition_writes_nothing_of_the_session(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let good = save("session-1", delicate_state(), SessionExpectation::Version(0));
    let outcome = store.commit(&commit("both", Some(good.clone()), Some(fresh(&pause("i1", 1, "s2"))))).await;
    assert!(matches!(outcome, Err(CommitError::InvocationConflict)), "{outcome:?}");
    assert_eq!(session(&store, "session-1").await, None);
    store.commit(&commit("good", Some(good), Some(fresh(&pause("i2", 1, "s2"))))).await.expect("both are written");
    assert_eq!(session(&store, "session-1").await.map(|record| record.version), Some(1));
    assert!(invocation(&store, "i2").await.is_some());
}

async fn write_five(store: &Store) {
    for number in 0..5 {
        let mut write = save(&format!("session-{number}"), delicate_state(), ANY);
        write.save = Some((Map::new().into(), format!("{}", number % 2)));
        let mut change = commit(&number.to_string(), Some(write), None);
        change.now = at(number);
        store.commit(&change).await.expect("it is saved");
    }
}

async fn listed(store: &Store, filter: &SessionFilter) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = store.list_sessions(filter, cursor.as_deref()).await.expect("the store answers");
        ids.extend(page.items.iter().map(|summary| summary.session_id.to_string()));
        let Some(next) = page.next else { break };
        cursor = Some(next);
    }
    ids.sort();
    ids
}

pub(super) async fn sessions_are_listed_page_by_page(store: Store) {
    write_five(&store).await;
    sleep(&store, &pause("i1", 1, "s1")).await;
    let all = listed(&store, &SessionFilter::default()).await;
    assert_eq!(all, ["session-0", "session-1", "session-2", "session-3", "session-4"]);
}

pub(super) async fn session_filters_must_all_hold(store: Store) {
    write_five(&store).await;
    let mut late = commit("late", Some(save("session-0", Map::new(), ANY)), None);
    late.now = at(10);
    store.commit(&late).await.expect("it is saved");
    let filter = |updated: Option<Timestamp>, created: Option<Timestamp>, version: Option<&str>| SessionFilter {
        updated_after: updated,
        created_after: created,
        schema_version: version.map(str::to_owned),
    };
    assert_eq!(listed(&store, &filter(Some(at(3)), None, None)).await, ["session-0", "session-4"]);
    assert_eq!(listed(&store, &filter(None, Some(at(2)), None)).await, ["session-3", "session-4"]);
    assert_eq!(listed(&store, &filter(None, None, Some("1"))).await, ["session-1", "session-3"]);
    assert_eq!(listed(&store, &filter(Some(at(1)), Some(at(1)), Some("1"))).await, ["session-3"]);
}

pub(super) async fn a_foreign_session_cursor_is_refused(store: Store) {
    let outcome = store.list_sessions(&SessionFilter::default(), Some("not a cursor")).await;
    assert!(matches!(outcome, Err(StoreError::Invalid(_))), "{outcome:?}");
}
