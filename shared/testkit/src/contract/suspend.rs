use dormouse_ports::{CommitError, InvocationStatus};

use super::scene::{Store, assert_same, claimed, commit, complete, delicate_state, fresh, invocation, pause, sleep};

pub(super) async fn a_fresh_pause_can_be_loaded(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    let record = invocation(&store, "i1").await.expect("it sleeps");
    assert_eq!(record.status, InvocationStatus::Suspended);
    assert_same(&record.paused.state, &paused.state);
    assert_eq!(record.paused, paused);
}

pub(super) async fn an_unknown_invocation_is_absent(store: Store) {
    assert_eq!(invocation(&store, "nobody").await, None);
}

pub(super) async fn a_taken_id_conflicts(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let second = store.commit(&commit("second", None, Some(fresh(&pause("i1", 1, "s2"))))).await;
    assert!(matches!(second, Err(CommitError::InvocationConflict)), "{second:?}");
    let record = invocation(&store, "i1").await.expect("it sleeps");
    assert_eq!(record.paused.descriptor.signal_id.as_str(), "s1");
}

pub(super) async fn the_same_commit_again_succeeds(store: Store) {
    let paused = pause("i1", 1, "s1");
    let suspend = commit("once", None, Some(fresh(&paused)));
    store.commit(&suspend).await.expect("the pause is written");
    store.commit(&suspend).await.expect("its repetition is a success");
}

pub(super) async fn a_repeated_commit_does_not_undo_what_followed(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    let finish = commit("finish", None, Some(complete(&paused, "worker", delicate_state())));
    store.commit(&finish).await.expect("it completes");
    store.commit(&finish).await.expect("its repetition is a success");
    let record = invocation(&store, "i1").await.expect("the result is kept");
    assert_eq!(record.status, InvocationStatus::Completed { state: delicate_state() });
}

pub(super) async fn an_empty_commit_succeeds(store: Store) {
    store.commit(&commit("empty", None, None)).await.expect("nothing can be wrong with nothing");
}
