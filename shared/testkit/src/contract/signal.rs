use dormouse_ports::{
    BufferOutcome, BufferedSignal, Claim, CommitError, EarlySignal, InvocationStatus, InvocationWrite, Map, Owner,
    PausedInvocation, SignalState, SuspendFrom,
};
use serde_json::json;

use super::scene::{Store, again, at, claimed, commit, complete, fresh, invocation, map, parked, pause, signal, sleep};

fn waiting(id: &str, generation: u64) -> Option<SignalState> {
    Some(SignalState::Waiting { invocation_id: id.into(), generation })
}

async fn buffer(store: &Store, signal: &BufferedSignal) -> BufferOutcome {
    store.buffer_signal(&"s1".into(), signal).await.expect("the store answers")
}

async fn park(store: &Store, signal: &BufferedSignal) {
    let outcome = buffer(store, signal).await;
    assert_eq!(outcome, BufferOutcome::Buffered { expires_at: signal.expires_at });
}

fn born_claimed(paused: &PausedInvocation, payload: Map) -> InvocationWrite {
    let early = vec![EarlySignal { signal_id: paused.descriptor.signal_id.clone(), payload: payload.clone() }];
    let claim = Some(Claim { owner: Owner::from("worker"), until: at(60), payload, attempts: 1, taken_over: false });
    InvocationWrite::Suspend { paused: Box::new(paused.clone()), from: SuspendFrom::Fresh, claim, early }
}

async fn finish(store: &Store, paused: &PausedInvocation) {
    let id = paused.invocation_id.as_str();
    claimed(store, id, "worker").await;
    let end = commit(&format!("finish-{id}"), None, Some(complete(paused, "worker", Map::new())));
    store.commit(&end).await.expect("it completes");
}

pub(super) async fn a_wait_is_visible(store: Store) {
    assert_eq!(signal(&store, "s1").await, None);
    sleep(&store, &pause("i1", 1, "s1")).await;
    assert_eq!(signal(&store, "s1").await, waiting("i1", 1));
}

pub(super) async fn an_ended_wait_is_delivered(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    finish(&store, &paused).await;
    let delivered = SignalState::Delivered { invocation_id: "i1".into(), generation: 1 };
    assert_eq!(signal(&store, "s1").await, Some(delivered));
}

pub(super) async fn an_early_signal_fails_the_commit(store: Store) {
    let early = parked(json!({"approved": true, "n": 1.0}), 0);
    park(&store, &early).await;
    let outcome = store.commit(&commit("sleep", None, Some(fresh(&pause("i1", 1, "s1"))))).await;
    let Err(CommitError::SignalBuffered(found)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*found, early);
    assert_eq!(invocation(&store, "i1").await, None, "nothing of a refused commit is written");
}

pub(super) async fn an_early_signal_is_consumed_by_a_claimed_pause(store: Store) {
    let early = parked(json!({"approved": true, "by": "ann"}), 0);
    park(&store, &early).await;
    let paused = pause("i1", 1, "s1");
    let write = born_claimed(&paused, map(json!({"by": "ann", "approved": true})));
    store.commit(&commit("sleep", None, Some(write))).await.expect("the signal is consumed");
    assert_eq!(signal(&store, "s1").await, waiting("i1", 1));
    let record = invocation(&store, "i1").await.expect("it is born claimed");
    let InvocationStatus::Resuming(claim) = record.status else { panic!("{:?}", record.status) };
    assert_eq!((claim.owner.as_str(), claim.payload), ("worker", early.payload));
    let end = commit("end", None, Some(complete(&paused, "worker", Map::new())));
    store.commit(&end).await.expect("the claim is a real one");
}

pub(super) async fn a_claimed_pause_consumes_only_its_own_payload(store: Store) {
    let early = parked(json!({"approved": true}), 0);
    park(&store, &early).await;
    let write = born_claimed(&pause("i1", 1, "s1"), map(json!({"approved": false})));
    let outcome = store.commit(&commit("sleep", None, Some(write))).await;
    let Err(CommitError::SignalBuffered(found)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*found, early);
}

pub(super) async fn a_second_waiter_is_refused(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let outcome = store.commit(&commit("second", None, Some(fresh(&pause("i2", 1, "s1"))))).await;
    let Err(CommitError::SignalTaken { signal_id, holder }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((signal_id.as_str(), holder.as_str()), ("s1", "i1"));
    assert_eq!(invocation(&store, "i2").await, None, "nothing of a refused commit is written");
}

pub(super) async fn a_delivered_signal_can_be_waited_for_again(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    finish(&store, &paused).await;
    sleep(&store, &pause("i2", 1, "s1")).await;
    assert_eq!(signal(&store, "s1").await, waiting("i2", 1));
}

pub(super) async fn the_same_signal_can_be_awaited_twice_in_a_row(store: Store) {
    let first = pause("i1", 1, "s1");
    let second = pause("i1", 2, "s1");
    sleep(&store, &first).await;
    claimed(&store, "i1", "worker").await;
    store.commit(&commit("again", None, Some(again(&second, "worker", &first)))).await.expect("it sleeps again");
    assert_eq!(signal(&store, "s1").await, waiting("i1", 2));
}

pub(super) async fn an_expired_signal_is_ignored(store: Store) {
    park(&store, &parked(json!({"late": false}), -60)).await;
    assert_eq!(signal(&store, "s1").await, None, "it expired at this very instant");
    sleep(&store, &pause("i1", 1, "s1")).await;
    assert_eq!(signal(&store, "s1").await, waiting("i1", 1));
}

pub(super) async fn a_parked_signal_is_deduplicated(store: Store) {
    let first = parked(json!({"approved": true}), 0);
    park(&store, &first).await;
    let outcome = buffer(&store, &parked(json!({"approved": true}), 10)).await;
    assert_eq!(outcome, BufferOutcome::Buffered { expires_at: first.expires_at });
    assert_eq!(signal(&store, "s1").await, Some(SignalState::Buffered(first)));
}

pub(super) async fn another_payload_finds_the_place_occupied(store: Store) {
    let first = parked(json!({"n": 1}), 0);
    park(&store, &first).await;
    assert_eq!(buffer(&store, &parked(json!({"n": 1.0}), 10)).await, BufferOutcome::Occupied);
    assert_eq!(signal(&store, "s1").await, Some(SignalState::Buffered(first)));
}

pub(super) async fn an_expired_signal_makes_room(store: Store) {
    park(&store, &parked(json!({"n": 1}), -60)).await;
    let second = parked(json!({"n": 2}), 0);
    park(&store, &second).await;
    assert_eq!(signal(&store, "s1").await, Some(SignalState::Buffered(second)));
}

pub(super) async fn a_late_duplicate_is_not_parked(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    finish(&store, &paused).await;
    assert_eq!(buffer(&store, &parked(json!({"n": 2}), 0)).await, BufferOutcome::Changed);
    let delivered = SignalState::Delivered { invocation_id: "i1".into(), generation: 1 };
    assert_eq!(signal(&store, "s1").await, Some(delivered));
    sleep(&store, &pause("i2", 1, "s1")).await;
    let record = invocation(&store, "i2").await.expect("it sleeps");
    assert_eq!(record.status, InvocationStatus::Suspended, "what was meant for another wait does not end this one");
}

pub(super) async fn an_awaited_signal_is_not_parked(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    assert_eq!(buffer(&store, &parked(json!({}), 0)).await, BufferOutcome::Changed);
    assert_eq!(signal(&store, "s1").await, waiting("i1", 1));
}
