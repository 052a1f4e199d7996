//! Durable steps: what a worker has come to is written under its claim, and its pause stays.

use dormouse_ports::{
    BEFORE_FIRST_PAUSE, Claim, ClaimOutcome, ClaimRequest, CommitError, Due, DueAction, InvocationStatus,
    InvocationWrite, Map, PausedInvocation, ProgressFrom, SignalState, WakePlan,
};
use serde_json::json;

use super::scene::{
    Store, all_pending, assert_same, at, claim_of, commit, complete, granted, invocation, map, pause, sleep,
};

fn claim(owner: &str, until: i64) -> Claim {
    Claim { owner: owner.into(), until: at(until), payload: Map::new(), attempts: 1, taken_over: false }
}

fn further(paused: &PausedInvocation, step: u64) -> PausedInvocation {
    let state = map(json!({ "step": step, "messages": ["a"] }));
    PausedInvocation { under_way: true, state: state.into(), namespace: vec!["model".into()], ..paused.clone() }
}

fn progress(paused: &PausedInvocation, from: ProgressFrom, claim: Option<Claim>) -> InvocationWrite {
    InvocationWrite::Progress { paused: Box::new(paused.clone()), from, claim }
}

fn takeover(owner: &str, now: i64) -> ClaimRequest {
    ClaimRequest { payload: None, ..claim_of("i1", owner, at(now)) }
}

pub(super) async fn a_step_is_where_the_next_worker_goes_on(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    granted(store.claim(&claim_of("i1", "a", at(0))).await.expect("an answer"));
    let reached = further(&paused, 1);
    let step = |owner: &str| progress(&reached, ProgressFrom::Claimed(owner.into()), Some(claim("a", 60)));
    let foreign = store.commit(&commit("foreign", None, Some(step("b")))).await;
    assert!(matches!(foreign, Err(CommitError::InvocationConflict)), "{foreign:?}");
    let rows = all_pending(&store, None).await;
    for _ in 0..2 {
        store.commit(&commit("step", None, Some(step("a")))).await.expect("it is written, and the same again");
    }
    assert_eq!(all_pending(&store, None).await, rows, "its pending row stays");
    let wait = store.load_signal(&"s1".into(), at(1)).await.expect("an answer").map(|record| record.state);
    assert_eq!(wait, Some(SignalState::Waiting { invocation_id: "i1".into(), generation: 1 }), "and its wait");
    let record = invocation(&store, "i1").await.expect("it is there");
    assert_eq!(record.status, InvocationStatus::Resuming(claim("a", 60)), "the payload is used up");
    assert_same(&record.paused.state, &reached.state);
    assert_eq!(store.claim(&takeover("b", 1)).await.expect("an answer"), ClaimOutcome::Held { until: at(60) });
    let record = granted(store.claim(&takeover("b", 61)).await.expect("an answer"));
    assert_eq!(record.paused, reached, "a worker that takes the claim over goes on behind the step");
    let late = store.commit(&commit("late", None, Some(step("a")))).await;
    assert!(matches!(late, Err(CommitError::InvocationConflict)), "{late:?}");
    let end = complete(&reached, "b", map(json!({ "done": true })));
    store.commit(&commit("end", None, Some(end))).await.expect("it ends");
    assert_eq!(all_pending(&store, None).await, []);
}

pub(super) async fn a_step_that_arrives_behind_the_next_one_is_refused(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    granted(store.claim(&claim_of("i1", "a", at(0))).await.expect("an answer"));
    let reached = |step| PausedInvocation { step, ..further(&paused, step) };
    let step = |step| progress(&reached(step), ProgressFrom::Claimed("a".into()), Some(claim("a", 60)));
    for number in [11, 12] {
        store.commit(&commit(&format!("step-{number}"), None, Some(step(number)))).await.expect("it is written");
    }
    let late = store.commit(&commit("given-up", None, Some(step(11)))).await;
    assert!(matches!(late, Err(CommitError::InvocationConflict)), "{late:?}");
    assert_same(&invocation(&store, "i1").await.expect("it is there").paused.state, &reached(12).state);
    store.commit(&commit("step-13", None, Some(step(13)))).await.expect("and the next one is written");
}

pub(super) async fn a_step_may_leave_the_rest_to_another_worker(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    granted(store.claim(&claim_of("i1", "a", at(0))).await.expect("an answer"));
    let reached = further(&paused, 1);
    let left = progress(&reached, ProgressFrom::Claimed("a".into()), None);
    store.commit(&commit("left", None, Some(left))).await.expect("it is written");
    assert_eq!(store.dead_claims(at(1)).await.expect("an answer"), ["i1".into()], "the sweep finds it");
    let record = invocation(&store, "i1").await.expect("it is there");
    assert_eq!(record.status, InvocationStatus::Accepted { payload: Map::new() });
    let record = granted(store.claim(&takeover("b", 1)).await.expect("an answer"));
    assert_eq!(record.paused, reached);
    let InvocationStatus::Resuming(claim) = record.status else { panic!("it is claimed") };
    assert_eq!(claim.attempts, 1, "no worker died");
}

pub(super) async fn the_first_step_stores_an_invocation_of_which_nothing_was_stored(store: Store) {
    let due = Due::first(at(0), DueAction::Resume(Map::new()));
    let begun = PausedInvocation {
        generation: BEFORE_FIRST_PAUSE,
        wake: WakePlan { due: Some(due), ..WakePlan::default() },
        ..pause("i1", 1, "s1")
    };
    let reached = further(&begun, 1);
    let first = || progress(&reached, ProgressFrom::Fresh, Some(claim("a", 60)));
    store.commit(&commit("first", None, Some(first()))).await.expect("it is written");
    assert_eq!(all_pending(&store, None).await, [], "it does not sleep");
    let dead = store.dead_claims(at(61)).await.expect("an answer");
    assert_eq!(dead, ["i1".into()], "a sweep finds it when its worker dies");
    let again = store.commit(&commit("again", None, Some(first()))).await;
    assert!(matches!(again, Err(CommitError::InvocationConflict)), "{again:?}");
    let record = granted(store.claim(&takeover("b", 61)).await.expect("an answer"));
    assert!(record.paused.has_begun() && !record.paused.has_paused());
    let end = complete(&reached, "b", Map::new());
    store.commit(&commit("end", None, Some(end))).await.expect("it ends");
    assert_eq!(all_pending(&store, None).await, []);
}
