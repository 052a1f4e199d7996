//! A megabyte that does not compress: larger than any one item of the durable store.

use dormouse_ports::{
    BufferOutcome, BufferedSignal, CommitError, InvocationStatus, Map, SessionExpectation, SignalState,
};
use serde_json::Value;

use super::scene::{
    Store, assert_same, at, claim_of, claimed, commit, complete, fresh, granted, invocation, pause, save, session,
    signal, sleep, write_session,
};

/// A megabyte of noise that is the same in every run.
pub(super) fn noise(seed: u64) -> Map {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::with_capacity(1 << 20);
    while text.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    Map::from_iter([("noise".to_owned(), Value::String(text)), ("one".to_owned(), Value::from(1.0))])
}

pub(super) async fn a_large_session_state_survives(store: Store) {
    let write = save("session-1", noise(1), SessionExpectation::Version(0));
    write_session(&store, "large", write).await.expect("it is saved");
    assert_same(&session(&store, "session-1").await.expect("it is there").state, &noise(1));
}

pub(super) async fn a_large_pause_survives(store: Store) {
    let mut paused = pause("i1", 1, "s1");
    paused.state = noise(2).into();
    paused.parent_states = vec![noise(3)];
    sleep(&store, &paused).await;
    assert!(invocation(&store, "i1").await.expect("it sleeps").paused == paused);
    assert!(claimed(&store, "i1", "worker").await.paused == paused);
}

pub(super) async fn a_large_final_state_survives(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    let finish = complete(&paused, "worker", noise(4));
    store.commit(&commit("finish", None, Some(finish))).await.expect("it completes");
    let record = invocation(&store, "i1").await.expect("the result is kept");
    assert!(record.status == InvocationStatus::Completed { state: noise(4) });
}

pub(super) async fn a_large_payload_survives(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let mut request = claim_of("i1", "worker", at(0));
    request.payload = Some(noise(5));
    granted(store.claim(&request).await.expect("the store answers"));
    let record = granted(store.claim(&claim_of("i1", "second", at(60))).await.expect("the store answers"));
    let InvocationStatus::Resuming(claim) = record.status else { panic!("not resuming") };
    assert_same(&claim.payload, &noise(5));
}

pub(super) async fn a_large_early_signal_survives(store: Store) {
    let early = BufferedSignal { payload: noise(6), sender: None, received_at: at(0), expires_at: at(60) };
    let outcome = store.buffer_signal(&"s1".into(), &early).await.expect("the store answers");
    assert_eq!(outcome, BufferOutcome::Buffered { expires_at: at(60) });
    assert!(signal(&store, "s1").await == Some(SignalState::Buffered(early.clone())));
    let refused = store.commit(&commit("sleep", None, Some(fresh(&pause("i1", 1, "s1"))))).await;
    let Err(CommitError::SignalBuffered(found)) = refused else { panic!("not refused as buffered") };
    assert!(*found == early);
}
