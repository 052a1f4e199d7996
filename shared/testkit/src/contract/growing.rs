//! Lists that only grow: however a store uses the hint, it loads the state that was saved.

use dormouse_ports::{
    Commit, GrowingLists, InvocationStatus, InvocationWrite, Map, PausedInvocation, SessionExpectation, SessionId,
    StoredList,
};
use serde_json::{Value, json};

use super::scene::{Store, again, claimed, commit, complete, fresh, invocation, map, pause, save, session};

/// As many as a store must bear without writing them all again.
const LONG: usize = 10_000;

/// A conversation of `count` messages of about 400 bytes, in which those from `fork` on are others.
fn talk(count: usize, fork: usize) -> Map {
    let message = |n: usize| {
        let words = format!("{n} {} ", if n < fork { "the same in every branch" } else { "said in this branch" });
        json!({"role": if n.is_multiple_of(2) { "user" } else { "assistant" }, "content": words.repeat(12)})
    };
    let messages: Vec<Value> = (0..count).map(message).collect();
    map(json!({"before": 1.0, "messages": messages, "other": ["kept"], "empty": []}))
}

fn growing(stored: &[StoredList]) -> GrowingLists {
    GrowingLists { fields: vec!["messages".into(), "empty".into(), "missing".into()], stored: stored.to_vec() }
}

fn knowing(stored: &[StoredList], commit: Commit) -> Commit {
    Commit { growing: growing(stored), ..commit }
}

async fn store_session(store: &Store, id: &str, state: &Map, stored: &[StoredList]) {
    let write = save("session-1", state.clone(), SessionExpectation::Any);
    store.commit(&knowing(stored, commit(id, Some(write), None))).await.expect("it is saved");
}

/// The stored state of the session, and the lists that the store returned with it.
async fn loaded(store: &Store) -> (Map, Vec<StoredList>) {
    let loaded = store.load_session(&SessionId::from("session-1"), None).await.expect("the store answers");
    (loaded.record.expect("it is there").state, loaded.stored)
}

fn sleeping(id: &str, state: Map) -> PausedInvocation {
    PausedInvocation { state: state.into(), parent_states: Vec::new(), ..pause(id, 1, &format!("signal-{id}")) }
}

/// Puts `paused` to sleep together with a save of the same state.
async fn sleep_with_session(store: &Store, paused: &PausedInvocation, stored: &[StoredList]) {
    let write = save("session-1", paused.state.clone().into_map(), SessionExpectation::Any);
    let id = format!("sleep-{}-{}", paused.invocation_id, paused.generation);
    store.commit(&knowing(stored, commit(&id, Some(write), Some(fresh(paused))))).await.expect("it sleeps");
}

pub(super) async fn a_list_grows_save_by_save(store: Store) {
    let mut stored = Vec::new();
    for count in [0, 1, 2, 40, 40, 41, 43, 300, 302] {
        let state = talk(count, usize::MAX);
        store_session(&store, &format!("{count}-{}", stored.len()), &state, &stored).await;
        let (found, told) = loaded(&store).await;
        assert!(serde_json::to_string(&found).ok() == serde_json::to_string(&state).ok(), "{count} messages");
        stored.extend(told);
    }
}

pub(super) async fn a_list_that_did_not_only_grow_is_saved_as_it_is(store: Store) {
    store_session(&store, "first", &talk(60, usize::MAX), &[]).await;
    let (_, stored) = loaded(&store).await;
    let cases = [talk(61, 3), talk(61, 60), talk(59, usize::MAX), talk(1, usize::MAX), talk(0, 0), Map::new()];
    for (number, state) in cases.into_iter().enumerate() {
        store_session(&store, &number.to_string(), &state, &stored).await;
        assert!(loaded(&store).await.0 == state, "case {number}");
    }
    let state = map(json!({"messages": "not a list any more"}));
    store_session(&store, "text", &state, &stored).await;
    assert_eq!(loaded(&store).await.0, state);
}

pub(super) async fn what_was_told_of_another_list_misleads_nobody(store: Store) {
    let other = save("session-2", talk(80, usize::MAX), SessionExpectation::Any);
    store.commit(&knowing(&[], commit("other", Some(other), None))).await.expect("it is saved");
    let told = store.load_session(&SessionId::from("session-2"), None).await.expect("the store answers").stored;
    let misleading = |list: &StoredList| StoredList { home: "elsewhere".to_owned(), count: 70, ..list.clone() };
    let stored: Vec<StoredList> = told.iter().cloned().chain(told.iter().map(misleading)).collect();
    store_session(&store, "same", &talk(82, usize::MAX), &stored).await;
    assert!(loaded(&store).await.0 == talk(82, usize::MAX));
    store.delete_session(&SessionId::from("session-2")).await.expect("it is deleted");
    assert!(loaded(&store).await.0 == talk(82, usize::MAX), "each session has its own");
}

pub(super) async fn a_pause_keeps_its_list_while_the_session_goes_on(store: Store) {
    store_session(&store, "first", &talk(50, usize::MAX), &[]).await;
    let (_, stored) = loaded(&store).await;
    let paused = sleeping("i1", talk(52, usize::MAX));
    sleep_with_session(&store, &paused, &stored).await;
    for (count, fork) in [(54, usize::MAX), (400, usize::MAX), (54, 10)] {
        let (_, stored) = loaded(&store).await;
        store_session(&store, &format!("later-{count}-{fork}"), &talk(count, fork), &stored).await;
        assert!(invocation(&store, "i1").await.expect("it sleeps").paused == paused, "{count} messages");
    }
    store.delete_session(&SessionId::from("session-1")).await.expect("it is deleted");
    assert!(claimed(&store, "i1", "worker").await.paused == paused);
}

pub(super) async fn two_turns_append_to_the_same_list(store: Store) {
    store_session(&store, "first", &talk(50, usize::MAX), &[]).await;
    let (_, stored) = loaded(&store).await;
    let left = sleeping("i1", talk(52, usize::MAX));
    let right = sleeping("i2", talk(52, 50));
    sleep_with_session(&store, &left, &stored).await;
    sleep_with_session(&store, &right, &stored).await;
    assert!(invocation(&store, "i1").await.expect("it sleeps").paused == left);
    assert!(invocation(&store, "i2").await.expect("it sleeps").paused == right);
    assert!(loaded(&store).await.0 == *right.state, "the last write wins");
}

pub(super) async fn an_invocation_without_a_session_has_lists_of_its_own(store: Store) {
    let first = PausedInvocation { session_id: None, ..sleeping("i1", talk(50, usize::MAX)) };
    store.commit(&knowing(&[], commit("first", None, Some(fresh(&first))))).await.expect("it sleeps");
    let record = claimed(&store, "i1", "worker").await;
    assert!(record.paused == first);
    let second = PausedInvocation { generation: 2, state: talk(52, usize::MAX).into(), ..first.clone() };
    let next = knowing(&record.stored, commit("second", None, Some(again(&second, "worker", &first))));
    store.commit(&next).await.expect("it sleeps again");
    let record = claimed(&store, "i1", "worker").await;
    assert!(record.paused == second);
    let end = complete(&second, "worker", talk(54, usize::MAX));
    store.commit(&knowing(&record.stored, commit("end", None, Some(end)))).await.expect("it completes");
    let ended = invocation(&store, "i1").await.expect("the result is kept");
    assert!(ended.status == InvocationStatus::Completed { state: talk(54, usize::MAX) });
}

pub(super) async fn lists_of_inner_states_are_no_lists_of_the_outermost(store: Store) {
    let paused = PausedInvocation { parent_states: vec![talk(60, usize::MAX)], ..sleeping("i1", talk(70, 0)) };
    store.commit(&knowing(&[], commit("sleep", None, Some(fresh(&paused))))).await.expect("it sleeps");
    assert!(invocation(&store, "i1").await.expect("it sleeps").paused == paused);
}

pub(super) async fn a_long_history_survives_a_pause(store: Store) {
    store_session(&store, "first", &talk(LONG, usize::MAX), &[]).await;
    let (state, stored) = loaded(&store).await;
    assert!(state == talk(LONG, usize::MAX));
    let paused = sleeping("i1", talk(LONG + 2, usize::MAX));
    sleep_with_session(&store, &paused, &stored).await;
    let record = claimed(&store, "i1", "worker").await;
    assert!(record.paused == paused);
    let state = talk(LONG + 3, usize::MAX);
    let end = InvocationWrite::Complete { paused: Box::new(paused), owner: "worker".into(), state: state.clone() };
    let write = save("session-1", state.clone(), SessionExpectation::Version(2));
    store.commit(&knowing(&record.stored, commit("end", Some(write), Some(end)))).await.expect("it completes");
    assert!(session(&store, "session-1").await.expect("it is there").state == state);
    let ended = invocation(&store, "i1").await.expect("the result is kept");
    assert!(ended.status == InvocationStatus::Completed { state });
}
