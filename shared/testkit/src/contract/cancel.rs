use dormouse_ports::{
    BEFORE_FIRST_PAUSE, Cancellation, ClaimOutcome, CommitError, InvocationId, InvocationStatus, InvocationWrite, Map,
    Owner, PausedInvocation, SessionExpectation, SignalState,
};

use super::scene::{
    Store, again, all_pending, at, claim_of, claimed, commit, complete, due, fresh, invocation, map, pause, save,
    session, settled, signal, sleep,
};

fn cancellation() -> Cancellation {
    Cancellation { reason: Some("nobody needs it any more".to_owned()), at: at(5) }
}

fn cancel(paused: &PausedInvocation) -> InvocationWrite {
    InvocationWrite::Cancel { paused: Box::new(paused.clone()), cancellation: cancellation() }
}

fn forestall(id: &str) -> InvocationWrite {
    InvocationWrite::CancelBeforeStart { invocation_id: id.into(), cancellation: cancellation() }
}

fn conclude(id: &str) -> InvocationWrite {
    let paused = PausedInvocation::before_first_pause(id.into(), "g", at(0));
    InvocationWrite::Conclude { paused: Box::new(paused), state: map(serde_json::json!({ "n": 1 })) }
}

async fn done(store: &Store, id: &str, write: InvocationWrite) {
    store.commit(&commit(id, None, Some(write))).await.expect("it is written");
}

async fn refused(store: &Store, id: &str, write: InvocationWrite) {
    let outcome = store.commit(&commit(id, None, Some(write))).await;
    assert!(matches!(outcome, Err(CommitError::InvocationConflict)), "{outcome:?}");
}

async fn is_canceled(store: &Store, id: &str) {
    let record = invocation(store, id).await.expect("a record");
    assert_eq!(record.status, InvocationStatus::Canceled(cancellation()));
    assert_eq!(record.paused.state, Map::new(), "its state is not kept");
    let told = store.cancellation(&InvocationId::from(id)).await.expect("the store answers");
    assert_eq!(told, Some(cancellation()));
}

pub(super) async fn a_sleeper_is_canceled_with_everything_that_would_wake_it(store: Store) {
    let paused = due(pause("i1", 1, "s1"), at(60));
    sleep(&store, &paused).await;
    assert_eq!(store.cancellation(&"i1".into()).await.expect("the store answers"), None);
    done(&store, "cancel", cancel(&paused)).await;
    is_canceled(&store, "i1").await;
    assert_eq!(all_pending(&store, None).await, []);
    let delivered = SignalState::Delivered { invocation_id: "i1".into(), generation: 1 };
    assert_eq!(signal(&store, "s1").await, Some(delivered));
    let record = settled(store.claim(&claim_of("i1", "late", at(9))).await.expect("the store answers"));
    assert_eq!(record.status, InvocationStatus::Canceled(cancellation()));
}

pub(super) async fn whoever_resumes_a_canceled_invocation_writes_nothing(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    done(&store, "cancel", cancel(&paused)).await;
    let ended = complete(&paused, "worker", Map::new());
    let write = save("session-1", map(serde_json::json!({ "n": 1 })), SessionExpectation::Any);
    let late = store.commit(&commit("late", Some(write), Some(ended))).await;
    assert!(matches!(late, Err(CommitError::InvocationConflict)), "{late:?}");
    assert_eq!(session(&store, "session-1").await, None, "nothing of a refused commit is written");
    refused(&store, "again", again(&pause("i1", 2, "s2"), "worker", &paused)).await;
    assert_eq!(signal(&store, "s2").await, None);
    let owner = Owner::from("worker");
    refused(
        &store,
        "release",
        InvocationWrite::Release { invocation_id: "i1".into(), generation: 1, owner, again_at: None },
    )
    .await;
    is_canceled(&store, "i1").await;
    let taken = store.claim(&claim_of("i1", "heir", at(1_000))).await.expect("the store answers");
    assert!(matches!(taken, ClaimOutcome::NotClaimable(_)), "a claim that ended is not taken over: {taken:?}");
}

pub(super) async fn only_the_pause_that_was_meant_is_canceled(store: Store) {
    let first = pause("i1", 1, "s1");
    let second = pause("i1", 2, "s2");
    refused(&store, "nobody", cancel(&first)).await;
    sleep(&store, &first).await;
    claimed(&store, "i1", "worker").await;
    done(&store, "again", again(&second, "worker", &first)).await;
    refused(&store, "stale", cancel(&first)).await;
    assert_eq!(invocation(&store, "i1").await.expect("it sleeps").status, InvocationStatus::Suspended);
    done(&store, "cancel", cancel(&second)).await;
    is_canceled(&store, "i1").await;
}

pub(super) async fn what_is_over_is_not_canceled(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    done(&store, "finish", complete(&paused, "worker", Map::new())).await;
    refused(&store, "late", cancel(&paused)).await;
    let other = pause("i2", 1, "s2");
    sleep(&store, &other).await;
    done(&store, "cancel", cancel(&other)).await;
    refused(&store, "twice", cancel(&other)).await;
    is_canceled(&store, "i2").await;
}

pub(super) async fn a_forestalled_invocation_can_neither_sleep_nor_end(store: Store) {
    done(&store, "forestall", forestall("i1")).await;
    is_canceled(&store, "i1").await;
    assert_eq!(invocation(&store, "i1").await.expect("a record").paused.generation, BEFORE_FIRST_PAUSE);
    refused(&store, "sleep", fresh(&pause("i1", 1, "s1"))).await;
    assert_eq!(signal(&store, "s1").await, None);
    let write = save("session-1", map(serde_json::json!({ "n": 1 })), SessionExpectation::Any);
    let ended = store.commit(&commit("end", Some(write), Some(conclude("i1")))).await;
    assert!(matches!(ended, Err(CommitError::InvocationConflict)), "{ended:?}");
    assert_eq!(session(&store, "session-1").await, None);
    refused(&store, "end-alone", conclude("i1")).await;
    refused(&store, "twice", forestall("i1")).await;
    done(&store, "forestall", forestall("i1")).await;
}

pub(super) async fn what_is_stored_is_not_forestalled(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    refused(&store, "forestall", forestall("i1")).await;
    assert_eq!(invocation(&store, "i1").await.expect("it sleeps").status, InvocationStatus::Suspended);
}

pub(super) async fn an_end_without_a_pause_is_kept_once(store: Store) {
    let state = map(serde_json::json!({ "n": 1 }));
    let write = save("session-1", state.clone(), SessionExpectation::Any);
    let end = commit("end", Some(write.clone()), Some(conclude("i1")));
    store.commit(&end).await.expect("it is written");
    store.commit(&end).await.expect("the same commit again is known");
    let kept = session(&store, "session-1").await.expect("a session");
    assert_eq!((kept.state, kept.version), (state.clone(), 1));
    let record = invocation(&store, "i1").await.expect("a record");
    assert_eq!((record.status, record.paused.generation), (InvocationStatus::Completed { state }, 0));
    let again = store.commit(&commit("again", Some(write), Some(conclude("i1")))).await;
    assert!(matches!(again, Err(CommitError::InvocationConflict)), "{again:?}");
    assert_eq!(session(&store, "session-1").await.map(|kept| kept.version), Some(1));
    refused(&store, "forestall", forestall("i1")).await;
    refused(&store, "sleep", fresh(&pause("i1", 1, "s1"))).await;
    done(&store, "alone", conclude("i2")).await;
    assert_eq!(all_pending(&store, None).await, []);
}
