//! The records that the checks write.

use std::sync::Arc;

use dormouse_ports::{
    BufferedSignal, ClaimOutcome, ClaimRequest, Commit, CommitError, Due, DueAction, GrowingLists, InvocationId,
    InvocationRecord, InvocationWrite, Journal, LeaseRequest, Map, NodePosition, Owner, PausedInvocation, PendingRow,
    SessionExpectation, SessionId, SessionRecord, SessionWrite, SignalDescriptor, SignalState, StateStore, SuspendFrom,
    WakePlan,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The store under test.
pub(super) type Store = Arc<dyn StateStore>;

/// `seconds` after the first instant of a check.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::constant(1_800_000_000, 123_456_789) + SignedDuration::from_secs(seconds)
}

pub(super) use crate::map;

/// A state with all values that a store could lose.
pub(super) fn delicate_state() -> Map {
    map(json!({
        "zulu": 1, "alpha": 1.0, "mike": 0.1, "sum": 0.30000000000000004, "tiny": 5e-324, "huge": 1e300,
        "whole": u64::MAX, "negative": i64::MIN, "empty": "", "nothing": null, "yes": true,
        "unicode": "schläft 睡鼠 🐭\u{0}\u{7f}", "": "empty key",
        "nested": {"b": [1, 1.0, [], {}, {"x": {"y": [null]}}], "a": "kept in order"},
        "messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}],
    }))
}

/// Equal, in the same order, number for number.
pub(super) fn assert_same(left: &Map, right: &Map) {
    assert_eq!(serde_json::to_string(left).ok(), serde_json::to_string(right).ok());
}

/// A pause of invocation `id` that waits for signal `signal`.
pub(super) fn pause(id: &str, generation: u64, signal: &str) -> PausedInvocation {
    PausedInvocation {
        invocation_id: InvocationId::from(id),
        correlation_id: "correlation-1".to_owned(),
        session_id: Some(SessionId::from("session-1")),
        graph: "support".to_owned(),
        graph_digest: "d1".to_owned(),
        generation,
        descriptor: SignalDescriptor::new(signal).with("prompt", "Approve?").with("amount", 1.0),
        wake: WakePlan::default(),
        fan_in: None,
        self_wakes: 0,
        state: delicate_state().into(),
        parent_states: vec![map(json!({"outer": 1.0})), map(json!({"middle": [1, 2]}))],
        under_way: false,
        namespace: vec!["outer".into(), "inner".into(), "ask".into()],
        suspended_at_node: vec!["outer".into(), "inner".into(), "ask".into()],
        completed_positions: vec![position()],
        step: 4,
        suspended_step: 3,
        attempt_index: 1,
        outer_attempts: vec![2],
        schema_version: "2".to_owned(),
        session_version: Some(7),
        metadata: map(json!({"tenant": "acme", "n": 2.0})),
        carried: map(json!({"baseline": 3})),
        request_digest: Some("5e1f".to_owned()),
        tenant: Some("acme".to_owned()),
        begun_for: Some("acme".to_owned()),
        trace_context: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        suspended_at: at(0),
        answered: None,
        resolution: None,
        before: None,
    }
}

/// A finished node.
pub(super) fn position() -> NodePosition {
    NodePosition {
        namespace: vec!["outer".into()],
        node_name: "classify".into(),
        step: 2,
        attempt_index: 0,
        fan_out_index: Some(5),
    }
}

/// `paused` with a due time.
pub(super) fn due(mut paused: PausedInvocation, instant: Timestamp) -> PausedInvocation {
    paused.wake = WakePlan { due: Some(Due::first(instant, DueAction::Fail)), ..WakePlan::default() };
    paused
}

/// A commit at the first instant; `id` is unique within its check.
pub(super) fn commit(id: &str, session: Option<SessionWrite>, invocation: Option<InvocationWrite>) -> Commit {
    let journal = Journal::default();
    let growing = GrowingLists::default();
    Commit { id: format!("commit-{id}"), now: at(0), session, invocation, journal, growing }
}

/// The first pause of an invocation.
pub(super) fn fresh(paused: &PausedInvocation) -> InvocationWrite {
    InvocationWrite::Suspend {
        paused: Box::new(paused.clone()),
        from: SuspendFrom::Fresh,
        claim: None,
        early: Vec::new(),
    }
}

/// A later pause of an invocation that `owner` resumes.
pub(super) fn again(paused: &PausedInvocation, owner: &str, previous: &PausedInvocation) -> InvocationWrite {
    let from = SuspendFrom::Claimed { owner: Owner::from(owner), previous: Box::new(previous.clone()) };
    InvocationWrite::Suspend { paused: Box::new(paused.clone()), from, claim: None, early: Vec::new() }
}

/// The end of an invocation that `owner` resumes.
pub(super) fn complete(paused: &PausedInvocation, owner: &str, state: Map) -> InvocationWrite {
    InvocationWrite::Complete { paused: Box::new(paused.clone()), owner: Owner::from(owner), state }
}

/// Puts `paused` to sleep.
pub(super) async fn sleep(store: &Store, paused: &PausedInvocation) {
    let id = format!("sleep-{}-{}", paused.invocation_id, paused.generation);
    store.commit(&commit(&id, None, Some(fresh(paused)))).await.expect("the pause is written");
}

/// A claim by `owner` at `now`, for a minute.
pub(super) fn claim_of(id: &str, owner: &str, now: Timestamp) -> ClaimRequest {
    ClaimRequest {
        invocation_id: InvocationId::from(id),
        generation: None,
        owner: Owner::from(owner),
        now,
        until: now + SignedDuration::from_secs(60),
        past: None,
        payload: Some(map(json!({"from": owner}))),
        answered: None,
    }
}

/// Claims `id` for `owner` and expects to get it.
pub(super) async fn claimed(store: &Store, id: &str, owner: &str) -> InvocationRecord {
    granted(store.claim(&claim_of(id, owner, at(0))).await.expect("the store answers"))
}

/// The record of a granted claim.
pub(super) fn granted(outcome: ClaimOutcome) -> InvocationRecord {
    let ClaimOutcome::Granted(record) = outcome else { panic!("not granted: {outcome:?}") };
    *record
}

/// The record of a settled claim.
pub(super) fn settled(outcome: ClaimOutcome) -> InvocationRecord {
    let ClaimOutcome::NotClaimable(record) = outcome else { panic!("not settled: {outcome:?}") };
    *record
}

/// The stored invocation `id`.
pub(super) async fn invocation(store: &Store, id: &str) -> Option<InvocationRecord> {
    store.load_invocation(&InvocationId::from(id)).await.expect("the store answers")
}

/// The state of signal `id` at the first instant.
pub(super) async fn signal(store: &Store, id: &str) -> Option<SignalState> {
    let record = store.load_signal(&id.into(), at(0)).await.expect("the store answers")?;
    assert_eq!(record.signal_id.as_str(), id);
    Some(record.state)
}

/// A signal that arrives at `received` seconds and counts for a minute.
pub(super) fn parked(payload: Value, received: i64) -> BufferedSignal {
    BufferedSignal {
        payload: map(payload),
        sender: Some("ada".to_owned()),
        received_at: at(received),
        expires_at: at(received + 60),
    }
}

/// A save of `state` as session `id`.
pub(super) fn save(id: &str, state: Map, expect: SessionExpectation) -> SessionWrite {
    let save = Some((state.into(), "2".to_owned()));
    SessionWrite { session_id: SessionId::from(id), save, expect, lease: None, release: false }
}

/// The stored session `id`.
pub(super) async fn session(store: &Store, id: &str) -> Option<SessionRecord> {
    store.load_session(&SessionId::from(id), None).await.expect("the store answers").record
}

/// A request for a lease at `now` seconds, for a minute.
pub(super) fn lease_for(owner: &str, now: i64) -> LeaseRequest {
    LeaseRequest { owner: Owner::from(owner), now: at(now), until: at(now + 60), past: None, begun_for: None }
}

/// Writes `write` alone.
pub(super) async fn write_session(store: &Store, id: &str, write: SessionWrite) -> Result<(), CommitError> {
    store.commit(&commit(id, Some(write), None)).await
}

/// Every row of suspended invocations, page by page.
pub(super) async fn all_pending(store: &Store, due_by: Option<Timestamp>) -> Vec<PendingRow> {
    let mut rows = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = store.list_pending(due_by, cursor.as_deref()).await.expect("the store answers");
        rows.extend(page.items);
        let Some(next) = page.next else { return rows };
        cursor = Some(next);
    }
}
