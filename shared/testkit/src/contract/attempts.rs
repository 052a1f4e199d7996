//! Invocations that kill their workers: the count of claims without progress, and the putting aside.

use dormouse_ports::{
    BEFORE_FIRST_PAUSE, Cancellation, Category, ClaimOutcome, ClaimRequest, CommitError, FailureRecord,
    InvocationPhase, InvocationStatus, InvocationSummary, InvocationWrite, Map, PausedInvocation, SignalState,
};
use serde_json::json;

use super::scene::{
    Store, again, all_pending, assert_same, at, claim_of, commit, granted, invocation, map, pause, settled, sleep,
};

fn takeover(owner: &str, now: i64) -> ClaimRequest {
    ClaimRequest { payload: None, ..claim_of("i1", owner, at(now)) }
}

/// The number of attempts that the claim granted to `request` counts.
async fn attempts(store: &Store, request: &ClaimRequest) -> u32 {
    let status = granted(store.claim(request).await.expect("an answer")).status;
    let InvocationStatus::Resuming(claim) = status else { panic!("it is claimed, and not {status:?}") };
    claim.attempts
}

async fn done(store: &Store, id: &str, write: InvocationWrite) {
    store.commit(&commit(id, None, Some(write))).await.expect("it is written");
}

fn failure() -> FailureRecord {
    FailureRecord { category: Category::AttemptsExhausted, message: "it kills its workers".to_owned() }
}

fn put_aside(paused: &PausedInvocation, owner: &str) -> InvocationWrite {
    InvocationWrite::PutAside { paused: Box::new(paused.clone()), owner: owner.into(), failure: failure() }
}

pub(super) async fn claims_are_counted_until_it_gets_further(store: Store) {
    let first = pause("i1", 1, "s1");
    sleep(&store, &first).await;
    assert_eq!(attempts(&store, &claim_of("i1", "a", at(0))).await, 1);
    assert_eq!(attempts(&store, &takeover("b", 60)).await, 2);
    assert_eq!(attempts(&store, &takeover("b", 60)).await, 2, "the same claim, asked for again");
    assert_eq!(attempts(&store, &takeover("c", 120)).await, 3);
    let second = pause("i1", 2, "s2");
    done(&store, "further", again(&second, "c", &first)).await;
    assert_eq!(attempts(&store, &claim_of("i1", "d", at(120))).await, 1, "it got further");
}

pub(super) async fn an_attempt_that_is_given_back_or_left_does_not_count(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    assert_eq!(attempts(&store, &claim_of("i1", "a", at(0))).await, 1);
    assert_eq!(attempts(&store, &takeover("b", 60)).await, 2);
    let keep = InvocationWrite::Keep { invocation_id: "i1".into(), generation: 1, owner: "a".into(), at_once: false };
    let foreign = store.commit(&commit("foreign", None, Some(keep))).await;
    assert!(matches!(foreign, Err(CommitError::InvocationConflict)), "{foreign:?}");
    let keep = InvocationWrite::Keep { invocation_id: "i1".into(), generation: 1, owner: "b".into(), at_once: false };
    for _ in 0..2 {
        // The same again, as after an answer that was lost, is one.
        done(&store, "keep", keep.clone()).await;
    }
    let held = store.claim(&takeover("c", 60)).await.expect("an answer");
    assert_eq!(held, ClaimOutcome::Held { until: at(120) }, "it is still claimed");
    assert_eq!(attempts(&store, &takeover("c", 120)).await, 2, "the first one died");
    let release =
        InvocationWrite::Release { invocation_id: "i1".into(), generation: 1, owner: "c".into(), again_at: None };
    done(&store, "release", release).await;
    assert_eq!(attempts(&store, &claim_of("i1", "d", at(120))).await, 2);
}

pub(super) async fn a_claim_that_is_let_go_is_taken_over_at_once_with_its_payload(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let payload = map(json!({ "decision": "approved" }));
    let request = ClaimRequest { payload: Some(payload.clone()), ..claim_of("i1", "a", at(0)) };
    granted(store.claim(&request).await.expect("an answer"));
    let keep = InvocationWrite::Keep { invocation_id: "i1".into(), generation: 1, owner: "a".into(), at_once: true };
    done(&store, "let-go", keep.clone()).await;
    let record = invocation(&store, "i1").await.expect("it is there");
    assert_eq!(record.status, InvocationStatus::Accepted { payload: payload.clone() });
    let again = store.commit(&commit("again", None, Some(keep))).await;
    assert!(matches!(again, Err(CommitError::InvocationConflict)), "{again:?}");
    let taken = granted(store.claim(&takeover("b", 1)).await.expect("an answer"));
    let InvocationStatus::Resuming(claim) = &taken.status else { panic!("{taken:?}") };
    assert_eq!((&claim.payload, claim.attempts), (&payload, 1), "nobody died of it");
}

pub(super) async fn what_is_put_aside_stays_whole(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    let payload = map(json!({ "decision": "approved" }));
    let request = ClaimRequest { payload: Some(payload.clone()), ..claim_of("i1", "a", at(0)) };
    granted(store.claim(&request).await.expect("an answer"));
    let foreign = store.commit(&commit("foreign", None, Some(put_aside(&paused, "b")))).await;
    assert!(matches!(foreign, Err(CommitError::InvocationConflict)), "{foreign:?}");
    assert_eq!(store.put_aside().await.expect("an answer").ids, []);
    done(&store, "aside", put_aside(&paused, "a")).await;
    let record = invocation(&store, "i1").await.expect("it is there");
    assert_eq!(record.status, InvocationStatus::Errored(failure()));
    assert_same(&record.paused.state, &paused.state);
    assert_eq!(record.paused, paused, "the pause stays");
    assert_eq!(all_pending(&store, None).await, [], "no sweep comes by");
    assert_eq!(store.dead_claims(at(3600)).await.expect("an answer"), []);
    assert_eq!(store.put_aside().await.expect("an answer").ids, ["i1".into()]);
    let glances = store.glance(&["i1".into()]).await.expect("an answer");
    assert_eq!(glances, [Some(InvocationSummary { generation: 1, standing: InvocationPhase::Aside })]);
    let mut cursor = None;
    for _ in 0..4 {
        cursor = store.collect_garbage(at(10 * 24 * 3600), cursor.as_deref()).await.expect("an answer").next;
    }
    let wait = store.load_signal(&"s1".into(), at(3600)).await.expect("an answer").map(|record| record.state);
    let waiting = SignalState::Waiting { invocation_id: "i1".into(), generation: 1 };
    assert_eq!(wait, Some(waiting), "its wait stays, however long that takes");
    for request in [claim_of("i1", "c", at(3600)), takeover("c", 3600)] {
        settled(store.claim(&request).await.expect("an answer"));
    }
    let retry = || InvocationWrite::Retry { paused: Box::new(paused.clone()) };
    done(&store, "retry", retry()).await;
    let record = invocation(&store, "i1").await.expect("it is there");
    assert_eq!(record.status, InvocationStatus::Accepted { payload }, "with the payload that counted");
    assert_eq!(all_pending(&store, None).await.len(), 1);
    assert_eq!(store.dead_claims(at(3600)).await.expect("an answer"), ["i1".into()]);
    assert_eq!(store.put_aside().await.expect("an answer").ids, []);
    assert_eq!(attempts(&store, &takeover("c", 3600)).await, 1, "counted from the beginning");
    let twice = store.commit(&commit("retry-twice", None, Some(retry()))).await;
    assert!(matches!(twice, Err(CommitError::InvocationConflict)), "{twice:?}");
}

pub(super) async fn what_is_put_aside_can_be_canceled(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    granted(store.claim(&claim_of("i1", "a", at(0))).await.expect("an answer"));
    done(&store, "aside", put_aside(&paused, "a")).await;
    let cancellation = Cancellation { reason: None, at: at(1) };
    let cancel = || InvocationWrite::Cancel { paused: Box::new(paused.clone()), cancellation: cancellation.clone() };
    done(&store, "cancel", cancel()).await;
    let record = invocation(&store, "i1").await.expect("it is there");
    assert_eq!(record.status, InvocationStatus::Canceled(cancellation.clone()));
    assert_eq!(store.put_aside().await.expect("an answer").ids, []);
    assert_eq!(all_pending(&store, None).await, []);
    for write in [cancel(), InvocationWrite::Retry { paused: Box::new(paused.clone()) }] {
        let refused = store.commit(&commit("late", None, Some(write))).await;
        assert!(matches!(refused, Err(CommitError::InvocationConflict)), "{refused:?}");
    }
    sleep(&store, &pause("i2", 1, "s1")).await;
}

pub(super) async fn only_what_was_put_aside_is_tried_again(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    granted(store.claim(&claim_of("i1", "a", at(0))).await.expect("an answer"));
    let fail = InvocationWrite::Fail {
        paused: Box::new(paused.clone()),
        owner: Some("a".into()),
        failure: FailureRecord { category: Category::NodeException, message: "it broke".to_owned() },
    };
    done(&store, "fail", fail).await;
    let retry = InvocationWrite::Retry { paused: Box::new(paused) };
    let refused = store.commit(&commit("retry", None, Some(retry))).await;
    assert!(matches!(refused, Err(CommitError::InvocationConflict)), "{refused:?}");
    assert_eq!(store.put_aside().await.expect("an answer").ids, []);
}

pub(super) async fn what_had_not_begun_is_put_aside_as_well(store: Store) {
    let paused = PausedInvocation {
        state: map(json!({ "question": 1 })).into(),
        ..PausedInvocation::before_first_pause("i1".into(), "support", at(0))
    };
    done(&store, "accept", InvocationWrite::Accept { paused: Box::new(paused.clone()), again_at: None }).await;
    assert_eq!(attempts(&store, &takeover("a", 1)).await, 1);
    let release = InvocationWrite::Release {
        invocation_id: "i1".into(),
        generation: BEFORE_FIRST_PAUSE,
        owner: "a".into(),
        again_at: None,
    };
    done(&store, "release", release).await;
    assert_eq!(attempts(&store, &takeover("b", 2)).await, 1, "it was given back");
    done(&store, "aside", put_aside(&paused, "b")).await;
    assert_eq!(store.put_aside().await.expect("an answer").ids, ["i1".into()]);
    done(&store, "retry", InvocationWrite::Retry { paused: Box::new(paused.clone()) }).await;
    let record = invocation(&store, "i1").await.expect("it is there");
    assert_eq!(record.status, InvocationStatus::Accepted { payload: Map::new() });
    assert_eq!(record.paused, paused);
    assert_eq!(store.dead_claims(at(3)).await.expect("an answer"), ["i1".into()]);
    assert_eq!(attempts(&store, &takeover("c", 3)).await, 1);
}
