//! Invocations that are accepted now and done later.

use dormouse_ports::{
    BEFORE_FIRST_PAUSE, Cancellation, ClaimOutcome, ClaimRequest, Commit, CommitError, Due, DueAction, FailureRecord,
    InvocationPhase, InvocationStatus, InvocationSummary, InvocationWrite, Journal, Map, Owner, PausedInvocation,
    SignalState, WakePlan,
};
use serde_json::json;

use super::scene::{
    Store, again, all_pending, at, claim_of, commit, complete, granted, invocation, map, pause, settled, signal, sleep,
};

/// Generation 0 of invocation `id`.
fn beginning(id: &str) -> PausedInvocation {
    let due = Due::first(at(0), DueAction::Resume(Map::new()));
    PausedInvocation {
        state: map(json!({ "question": 1.0 })).into(),
        wake: WakePlan { due: Some(due), ..WakePlan::default() },
        ..PausedInvocation::before_first_pause(id.into(), "support", at(0))
    }
}

fn accept(id: &str) -> InvocationWrite {
    InvocationWrite::Accept { paused: Box::new(beginning(id)), again_at: None }
}

fn deliver(id: &str, generation: u64, payload: Map) -> InvocationWrite {
    InvocationWrite::Deliver { invocation_id: id.into(), generation, answered: None, payload }
}

fn takeover(id: &str, owner: &str) -> ClaimRequest {
    ClaimRequest { payload: None, ..claim_of(id, owner, at(1)) }
}

async fn done(store: &Store, id: &str, write: InvocationWrite) {
    store.commit(&commit(id, None, Some(write))).await.expect("it is written");
}

async fn refused(store: &Store, id: &str, write: InvocationWrite) {
    let outcome = store.commit(&commit(id, None, Some(write))).await;
    assert!(matches!(outcome, Err(CommitError::InvocationConflict)), "{id}: {outcome:?}");
}

/// The work that no worker has.
async fn free(store: &Store) -> Vec<String> {
    let ids = store.dead_claims(at(1)).await.expect("an answer");
    ids.into_iter().map(|id| id.to_string()).collect()
}

pub(super) async fn what_is_accepted_waits_for_whoever_comes_first(store: Store) {
    done(&store, "accept", accept("i1")).await;
    let record = invocation(&store, "i1").await.expect("it is stored");
    assert_eq!(record.status, InvocationStatus::Accepted { payload: Map::new() });
    assert_eq!(record.paused, beginning("i1"));
    assert_eq!(free(&store).await, ["i1"]);
    assert_eq!(all_pending(&store, None).await, [], "it does not sleep");
    let glances = store.glance(&["i1".into()]).await.expect("an answer");
    let standing = InvocationPhase::Accepted { since: at(0), postponed: false };
    assert_eq!(glances, [Some(InvocationSummary { generation: 0, standing })]);
    let taken = granted(store.claim(&takeover("i1", "first")).await.expect("an answer"));
    assert_eq!(taken.paused, beginning("i1"));
    let held = store.claim(&takeover("i1", "second")).await.expect("an answer");
    assert!(matches!(held, ClaimOutcome::Held { .. }), "{held:?}");
    assert_eq!(free(&store).await, [""; 0]);
}

pub(super) async fn what_waits_for_other_work_is_behind_what_does_not(store: Store) {
    let later = Some(at(100));
    let queued = InvocationWrite::Accept { paused: Box::new(beginning("queued")), again_at: later };
    done(&store, "queued", queued).await;
    let lost = PausedInvocation { suspended_at: at(9), ..beginning("lost") };
    done(&store, "lost", InvocationWrite::Accept { paused: Box::new(lost), again_at: None }).await;
    assert_eq!(free(&store).await, ["lost", "queued"]);
    let standing = async |id: &str| {
        let glances = store.glance(&[id.into()]).await.expect("an answer");
        glances.into_iter().flatten().next().expect("it is there").standing
    };
    let waits = |since| InvocationPhase::Accepted { since, postponed: true };
    assert_eq!(standing("queued").await, waits(at(100)));
    granted(store.claim(&takeover("queued", "looks")).await.expect("whoever is called for it has it"));
    let release = |again_at| InvocationWrite::Release {
        invocation_id: "queued".into(),
        generation: BEFORE_FIRST_PAUSE,
        owner: "looks".into(),
        again_at,
    };
    done(&store, "not-yet", release(Some(at(200)))).await;
    assert_eq!(standing("queued").await, waits(at(200)));
    granted(store.claim(&takeover("queued", "looks")).await.expect("and again"));
    done(&store, "given-back", release(None)).await;
    let InvocationPhase::Accepted { postponed: false, .. } = standing("queued").await else { panic!("it may begin") };
}

pub(super) async fn a_journal_accepts_work_together_with_all_else_or_not_at_all(store: Store) {
    let journal =
        |ids: &[&str]| Journal { accepts: ids.iter().map(|id| beginning(id)).collect(), ..Journal::default() };
    let both = Commit { journal: journal(&["b", "c"]), ..commit("both", None, Some(accept("a"))) };
    for _ in 0..2 {
        store.commit(&both).await.expect("it is written, and again is the same");
    }
    let all = async || free(&store).await.into_iter().collect::<std::collections::BTreeSet<_>>();
    let three = ["a", "b", "c"].map(str::to_owned).into();
    assert_eq!(all().await, three);
    let again = Commit { journal: journal(&["d", "b"]), ..commit("again", None, None) };
    let refused = store.commit(&again).await;
    assert!(matches!(refused, Err(CommitError::InvocationConflict)), "{refused:?}");
    assert_eq!(all().await, three);
    let begun = granted(store.claim(&takeover("b", "worker")).await.expect("an answer"));
    assert_eq!(begun.paused, beginning("b"));
}

pub(super) async fn work_is_found_in_the_order_of_its_acceptance(store: Store) {
    for (n, id) in ["c", "a", "b"].into_iter().enumerate() {
        let paused = PausedInvocation { suspended_at: at(i64::try_from(n).unwrap_or(0)), ..beginning(id) };
        done(&store, id, InvocationWrite::Accept { paused: Box::new(paused), again_at: None }).await;
    }
    granted(store.claim(&takeover("c", "dies")).await.expect("an answer"));
    granted(store.claim(&takeover("a", "lives")).await.expect("an answer"));
    let paused = Box::new(beginning("a"));
    let owner = Owner::from("lives");
    done(&store, "end", InvocationWrite::Complete { paused, owner, state: Map::new() }).await;
    assert_eq!(free(&store).await, ["b"], "one is done, one is over");
    let dead = store.dead_claims(at(3600)).await.expect("an answer");
    assert_eq!(dead, ["c".into(), "b".into()]);
}

pub(super) async fn work_is_found_behind_much_that_is_being_done(store: Store) {
    for n in 0..80 {
        let id = format!("alive-{n}");
        done(&store, &id, accept(&id)).await;
        granted(store.claim(&takeover(&id, "lives")).await.expect("an answer"));
    }
    for n in 0..8 {
        let id = format!("lost-{n}");
        let paused = PausedInvocation { suspended_at: at(10), ..beginning(&id) };
        done(&store, &id, InvocationWrite::Accept { paused: Box::new(paused), again_at: None }).await;
        assert_eq!(store.dead_claims(at(11)).await.expect("an answer"), [id.as_str().into()]);
        granted(store.claim(&takeover(&id, "lives")).await.expect("an answer"));
    }
}

pub(super) async fn what_is_accepted_is_accepted_once(store: Store) {
    done(&store, "accept", accept("i1")).await;
    refused(&store, "accept-again", accept("i1")).await;
    done(&store, "accept", accept("i1")).await;
    sleep(&store, &pause("i2", 1, "s2")).await;
    refused(&store, "asleep", accept("i2")).await;
    let cancellation = Cancellation { reason: None, at: at(0) };
    done(&store, "forestall", InvocationWrite::CancelBeforeStart { invocation_id: "i3".into(), cancellation }).await;
    refused(&store, "forestalled", accept("i3")).await;
}

pub(super) async fn what_began_ends_like_any_other(store: Store) {
    for id in ["i1", "i2", "i3"] {
        done(&store, &format!("accept-{id}"), accept(id)).await;
        granted(store.claim(&takeover(id, "worker")).await.expect("an answer"));
    }
    refused(&store, "foreign", complete(&beginning("i1"), "somebody", Map::new())).await;
    done(&store, "complete", complete(&beginning("i1"), "worker", map(json!({ "n": 1 })))).await;
    let failure = FailureRecord { category: dormouse_ports::Category::NodeException, message: "it broke".to_owned() };
    let paused = Box::new(beginning("i2"));
    let owner = Some(Owner::from("worker"));
    done(&store, "fail", InvocationWrite::Fail { paused, owner, failure: failure.clone() }).await;
    done(&store, "sleep", again(&pause("i3", 1, "s3"), "worker", &beginning("i3"))).await;

    let record = settled(store.claim(&takeover("i1", "late")).await.expect("an answer"));
    assert_eq!(record.status, InvocationStatus::Completed { state: map(json!({ "n": 1 })) });
    assert_eq!(invocation(&store, "i2").await.map(|it| it.status), Some(InvocationStatus::Errored(failure)));
    assert_eq!(invocation(&store, "i3").await.map(|it| it.status), Some(InvocationStatus::Suspended));
    assert_eq!(all_pending(&store, None).await.len(), 1, "only the pause is left in the index");
    assert!(matches!(signal(&store, "s3").await, Some(SignalState::Waiting { generation: 1, .. })));
}

pub(super) async fn what_is_given_back_before_it_began_waits_again(store: Store) {
    done(&store, "accept", accept("i1")).await;
    granted(store.claim(&takeover("i1", "worker")).await.expect("an answer"));
    let release = InvocationWrite::Release {
        invocation_id: "i1".into(),
        generation: BEFORE_FIRST_PAUSE,
        owner: "worker".into(),
        again_at: None,
    };
    assert_eq!(free(&store).await, [""; 0]);
    done(&store, "release", release).await;
    assert_eq!(free(&store).await, ["i1"]);
    granted(store.claim(&takeover("i1", "next")).await.expect("an answer"));
}

pub(super) async fn what_is_accepted_can_be_canceled(store: Store) {
    for (id, begun) in [("i1", false), ("i2", true)] {
        done(&store, &format!("accept-{id}"), accept(id)).await;
        if begun {
            granted(store.claim(&takeover(id, "worker")).await.expect("an answer"));
        }
        let cancellation = Cancellation { reason: None, at: at(2) };
        let cancel = InvocationWrite::Cancel { paused: Box::new(beginning(id)), cancellation: cancellation.clone() };
        done(&store, &format!("cancel-{id}"), cancel).await;
        refused(&store, &format!("late-{id}"), complete(&beginning(id), "worker", Map::new())).await;
        let record = settled(store.claim(&takeover(id, "late")).await.expect("an answer"));
        assert_eq!(record.status, InvocationStatus::Canceled(cancellation));
    }
    assert_eq!(all_pending(&store, None).await, []);
}

pub(super) async fn a_delivered_payload_waits_for_whoever_comes_first(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let payload = map(json!({ "answer": 1.0 }));
    refused(&store, "other-pause", deliver("i1", 2, payload.clone())).await;
    done(&store, "deliver", deliver("i1", 1, payload.clone())).await;
    assert_eq!(free(&store).await, ["i1"]);
    refused(&store, "deliver-again", deliver("i1", 1, Map::new())).await;
    let taken = granted(store.claim(&claim_of("i1", "worker", at(1))).await.expect("an answer"));
    let InvocationStatus::Resuming(claim) = taken.status else { panic!("{:?}", taken.status) };
    assert_eq!((claim.payload, claim.owner.as_str()), (payload, "worker"), "the first payload stands");
    refused(&store, "too-late", deliver("i1", 1, Map::new())).await;
    done(&store, "end", complete(&pause("i1", 1, "s1"), "worker", Map::new())).await;
    refused(&store, "over", deliver("i1", 1, Map::new())).await;
    refused(&store, "nobody", deliver("i9", 1, Map::new())).await;
}
