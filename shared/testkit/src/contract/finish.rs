use dormouse_ports::{
    Category, CommitError, FailureRecord, InvocationStatus, InvocationWrite, Map, Owner, PausedInvocation, SignalState,
};

use super::scene::{
    Store, again, all_pending, assert_same, at, claim_of, claimed, commit, complete, delicate_state, invocation, pause,
    settled, signal, sleep,
};

fn failure() -> FailureRecord {
    FailureRecord { category: Category::SuspensionTimedOut, message: "nobody answered".to_owned() }
}

fn fail(paused: &PausedInvocation, owner: Option<&str>) -> InvocationWrite {
    InvocationWrite::Fail { paused: Box::new(paused.clone()), owner: owner.map(Owner::from), failure: failure() }
}

fn release(id: &str, owner: &str) -> InvocationWrite {
    InvocationWrite::Release { invocation_id: id.into(), generation: 1, owner: Owner::from(owner), again_at: None }
}

async fn refused(store: &Store, id: &str, write: InvocationWrite) {
    let outcome = store.commit(&commit(id, None, Some(write))).await;
    assert!(matches!(outcome, Err(CommitError::InvocationConflict)), "{outcome:?}");
}

pub(super) async fn a_completed_invocation_settles_with_its_state(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    let finish = complete(&paused, "worker", delicate_state());
    store.commit(&commit("finish", None, Some(finish))).await.expect("it completes");
    let record = settled(store.claim(&claim_of("i1", "late", at(1))).await.expect("the store answers"));
    let InvocationStatus::Completed { state } = &record.status else { panic!("{:?}", record.status) };
    assert_same(state, &delicate_state());
    assert_eq!(record.paused.descriptor, paused.descriptor);
    assert_eq!(record.paused.graph, paused.graph);
}

pub(super) async fn a_failed_invocation_settles_with_its_failure(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    store.commit(&commit("fail", None, Some(fail(&paused, Some("worker"))))).await.expect("it ends");
    let record = settled(store.claim(&claim_of("i1", "late", at(1))).await.expect("the store answers"));
    assert_eq!(record.status, InvocationStatus::Errored(failure()));
}

pub(super) async fn a_foreign_owner_cannot_finish(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    refused(&store, "unclaimed", complete(&paused, "worker", Map::new())).await;
    claimed(&store, "i1", "worker").await;
    refused(&store, "foreign", complete(&paused, "thief", Map::new())).await;
    refused(&store, "foreign-fail", fail(&paused, Some("thief"))).await;
    refused(&store, "other-pause", complete(&pause("i1", 2, "s1"), "worker", Map::new())).await;
    let next = pause("i1", 2, "s2");
    refused(&store, "foreign-again", again(&next, "thief", &paused)).await;
    assert_eq!(signal(&store, "s2").await, None, "nothing of a refused commit is written");
}

pub(super) async fn an_unclaimed_pause_can_fail(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    store.commit(&commit("fail", None, Some(fail(&paused, None)))).await.expect("it ends");
    let record = invocation(&store, "i1").await.expect("the failure is kept");
    assert_eq!(record.status, InvocationStatus::Errored(failure()));
    assert_eq!(all_pending(&store, None).await, []);
}

pub(super) async fn a_claimed_pause_cannot_fail_without_its_owner(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    refused(&store, "fail", fail(&paused, None)).await;
}

pub(super) async fn nothing_finishes_twice(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    let finish = complete(&paused, "worker", Map::new());
    store.commit(&commit("finish", None, Some(finish.clone()))).await.expect("it completes");
    refused(&store, "twice", finish).await;
    refused(&store, "fail", fail(&paused, None)).await;
}

pub(super) async fn a_finished_pause_keeps_no_state(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    let finish = complete(&paused, "worker", Map::new());
    store.commit(&commit("finish", None, Some(finish))).await.expect("it completes");
    let record = invocation(&store, "i1").await.expect("the result is kept");
    assert_eq!(record.paused.state, Map::new());
    assert!(record.paused.parent_states.is_empty());
    assert_eq!(record.paused.generation, 1);
}

pub(super) async fn a_foreign_owner_cannot_release(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    refused(&store, "unclaimed", release("i1", "worker")).await;
    claimed(&store, "i1", "worker").await;
    refused(&store, "foreign", release("i1", "thief")).await;
    refused(&store, "nobody", release("i2", "worker")).await;
}

pub(super) async fn a_claimed_invocation_sleeps_again(store: Store) {
    let first = pause("i1", 1, "s1");
    let second = pause("i1", 2, "s2");
    sleep(&store, &first).await;
    claimed(&store, "i1", "worker").await;
    store.commit(&commit("again", None, Some(again(&second, "worker", &first)))).await.expect("it sleeps again");
    let record = invocation(&store, "i1").await.expect("it sleeps");
    assert_eq!(record.status, InvocationStatus::Suspended);
    assert_eq!(record.paused, second);
    let delivered = SignalState::Delivered { invocation_id: "i1".into(), generation: 1 };
    assert_eq!(signal(&store, "s1").await, Some(delivered));
    refused(&store, "stale", complete(&first, "worker", Map::new())).await;
}
