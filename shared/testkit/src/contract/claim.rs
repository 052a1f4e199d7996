use dormouse_ports::{
    Claim, ClaimOutcome, ClaimRequest, CommitError, InvocationId, InvocationStatus, InvocationWrite, Owner,
};
use futures::future::join_all;

use super::scene::{
    Store, again, assert_same, at, claim_of, claimed, commit, granted, invocation, pause, settled, sleep,
};

pub(super) async fn a_claim_grants_and_loads_everything(store: Store) {
    let paused = pause("i1", 1, "s1");
    sleep(&store, &paused).await;
    let request = claim_of("i1", "worker", at(0));
    let record = granted(store.claim(&request).await.expect("the store answers"));
    let payload = request.payload.expect("a payload");
    let claim = Claim { owner: Owner::from("worker"), until: request.until, payload, attempts: 1, taken_over: false };
    assert_eq!(record.status, InvocationStatus::Resuming(claim));
    assert_same(&record.paused.state, &paused.state);
    assert_same(&record.paused.parent_states[0], &paused.parent_states[0]);
    assert_same(&record.paused.metadata, &paused.metadata);
    assert_eq!(record.paused, paused);
    assert_eq!(invocation(&store, "i1").await, Some(record), "what was granted is what is stored");
}

pub(super) async fn an_unknown_invocation_is_missing(store: Store) {
    let outcome = store.claim(&claim_of("nobody", "worker", at(0))).await.expect("the store answers");
    assert_eq!(outcome, ClaimOutcome::NotFound);
    assert_eq!(invocation(&store, "nobody").await, None, "asking leaves no trace");
}

pub(super) async fn a_second_claim_is_held(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    claimed(&store, "i1", "first").await;
    let outcome = store.claim(&claim_of("i1", "second", at(30))).await.expect("the store answers");
    assert_eq!(outcome, ClaimOutcome::Held { until: at(60) });
}

pub(super) async fn the_same_owner_is_granted_again(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let first = claimed(&store, "i1", "worker").await;
    let second = claimed(&store, "i1", "worker").await;
    assert_eq!(first, second);
}

pub(super) async fn an_expired_claim_is_taken_over_with_the_first_payload(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let first = claim_of("i1", "first", at(0));
    granted(store.claim(&first).await.expect("the store answers"));
    let second = claim_of("i1", "second", at(60));
    let record = granted(store.claim(&second).await.expect("the store answers"));
    let payload = first.payload.expect("a payload");
    let claim = Claim { owner: Owner::from("second"), until: second.until, payload, attempts: 2, taken_over: true };
    assert_eq!(record.status, InvocationStatus::Resuming(claim));
}

pub(super) async fn a_claim_tells_whether_its_payload_was_there_before(store: Store) {
    let taken_over = async |request: &ClaimRequest| {
        let status = granted(store.claim(request).await.expect("the store answers")).status;
        let InvocationStatus::Resuming(claim) = status else { panic!("it is claimed, and not {status:?}") };
        claim.taken_over
    };
    let done = async |id: &str, write| store.commit(&commit(id, None, Some(write))).await.expect("it is written");
    sleep(&store, &pause("i1", 1, "s1")).await;
    for _ in 0..2 {
        assert!(!taken_over(&claim_of("i1", "first", at(0))).await, "it slept, also where that is asked again");
    }
    assert!(taken_over(&claim_of("i1", "second", at(60))).await, "the first one died");
    let (invocation_id, owner) = (InvocationId::from("i1"), Owner::from("second"));
    done("release", InvocationWrite::Release { invocation_id, generation: 1, owner, again_at: None }).await;
    assert!(!taken_over(&claim_of("i1", "third", at(120))).await, "it slept again");
    let takeover = ClaimRequest { payload: None, ..claim_of("i1", "fourth", at(180)) };
    assert!(taken_over(&takeover).await, "the third one died");

    sleep(&store, &pause("i2", 1, "s2")).await;
    // The very payload that the next one brings.
    let payload = claim_of("i2", "first", at(0)).payload.expect("a payload");
    let invocation_id = InvocationId::from("i2");
    done("deliver", InvocationWrite::Deliver { invocation_id, generation: 1, answered: None, payload }).await;
    assert!(taken_over(&claim_of("i2", "first", at(0))).await, "it was accepted before");
}

pub(super) async fn without_a_payload_only_an_expired_claim_is_taken_over(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let take_over = |now| ClaimRequest { payload: None, ..claim_of("i1", "second", now) };
    let record = settled(store.claim(&take_over(at(0))).await.expect("the store answers"));
    assert_eq!(record.status, InvocationStatus::Suspended);
    assert_eq!(invocation(&store, "i1").await, Some(record), "it sleeps on");
    let first = claim_of("i1", "first", at(0));
    granted(store.claim(&first).await.expect("the store answers"));
    let held = store.claim(&take_over(at(30))).await.expect("the store answers");
    assert_eq!(held, ClaimOutcome::Held { until: at(60) });
    let record = granted(store.claim(&take_over(at(60))).await.expect("the store answers"));
    let InvocationStatus::Resuming(claim) = record.status else { panic!("not resuming") };
    assert_eq!((claim.owner, Some(claim.payload)), (Owner::from("second"), first.payload));
}

pub(super) async fn a_claim_is_passed_over_only_by_who_names_it(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let first = claim_of("i1", "first", at(0));
    granted(store.claim(&first).await.expect("the store answers"));
    let past = |end, payload| ClaimRequest { past: Some(at(end)), payload, ..claim_of("i1", "second", at(1)) };
    let of_second = claim_of("i1", "second", at(1)).payload;
    for payload in [None, of_second.clone()] {
        let held = store.claim(&past(59, payload)).await.expect("the store answers");
        assert_eq!(held, ClaimOutcome::Held { until: at(60) });
    }
    let second = granted(store.claim(&past(60, None)).await.expect("the store answers"));
    let InvocationStatus::Resuming(claim) = &second.status else { panic!("not resuming") };
    assert_eq!((&claim.owner, Some(&claim.payload)), (&Owner::from("second"), first.payload.as_ref()));
    let hold =
        InvocationWrite::AssertClaimed { invocation_id: "i1".into(), generation: 1, owner: Owner::from("first") };
    let lost = store.commit(&commit("hold", None, Some(hold))).await;
    assert!(matches!(lost, Err(CommitError::InvocationConflict)), "{lost:?}");
    let late = ClaimRequest { owner: Owner::from("third"), ..past(60, of_second) };
    let held = store.claim(&late).await.expect("the store answers");
    assert_eq!(held, ClaimOutcome::Held { until: at(61) }, "a request that comes late takes nobody's claim");
}

pub(super) async fn another_generation_is_settled(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let mut request = claim_of("i1", "worker", at(0));
    request.generation = Some(2);
    let record = settled(store.claim(&request).await.expect("the store answers"));
    assert_eq!(record.status, InvocationStatus::Suspended);
    request.generation = Some(1);
    granted(store.claim(&request).await.expect("the store answers"));
}

pub(super) async fn a_later_pause_settles_an_earlier_one(store: Store) {
    let first = pause("i1", 1, "s1");
    let second = pause("i1", 2, "s2");
    sleep(&store, &first).await;
    claimed(&store, "i1", "worker").await;
    store.commit(&commit("again", None, Some(again(&second, "worker", &first)))).await.expect("it sleeps again");
    let mut late = claim_of("i1", "late", at(0));
    late.generation = Some(1);
    let record = settled(store.claim(&late).await.expect("the store answers"));
    assert_eq!(record.paused.generation, 2);
    claimed(&store, "i1", "worker-2").await;
    settled(store.claim(&late).await.expect("settled also while the later pause is being resumed"));
}

pub(super) async fn a_released_claim_forgets_its_payload(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    claimed(&store, "i1", "first").await;
    let release = InvocationWrite::Release {
        invocation_id: "i1".into(),
        generation: 1,
        owner: Owner::from("first"),
        again_at: None,
    };
    store.commit(&commit("release", None, Some(release))).await.expect("the claim is given back");
    let record = invocation(&store, "i1").await.expect("it sleeps on");
    assert_eq!(record.status, InvocationStatus::Suspended);
    let request = claim_of("i1", "second", at(1));
    let record = granted(store.claim(&request).await.expect("the store answers"));
    let InvocationStatus::Resuming(claim) = record.status else { panic!("not resuming") };
    assert_eq!(Some(claim.payload), request.payload);
}

pub(super) async fn a_claim_is_held_by_its_owner_alone(store: Store) {
    let hold = |generation, owner: &str| InvocationWrite::AssertClaimed {
        invocation_id: "i1".into(),
        generation,
        owner: Owner::from(owner),
    };
    let write = async |id: &str, hold| store.commit(&commit(id, None, Some(hold))).await;
    assert!(matches!(write("nobody", hold(1, "first")).await, Err(CommitError::InvocationConflict)));
    sleep(&store, &pause("i1", 1, "s1")).await;
    assert!(matches!(write("asleep", hold(1, "first")).await, Err(CommitError::InvocationConflict)));
    claimed(&store, "i1", "first").await;
    let before = invocation(&store, "i1").await;
    write("held", hold(1, "first")).await.expect("the claim is its own");
    assert_eq!(invocation(&store, "i1").await, before, "nothing changes");
    assert!(matches!(write("another", hold(1, "second")).await, Err(CommitError::InvocationConflict)));
    assert!(matches!(write("later", hold(2, "first")).await, Err(CommitError::InvocationConflict)));
}

pub(super) async fn concurrent_claims_give_exactly_one(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let claims = (0..50).map(|worker| {
        let store = store.clone();
        async move { store.claim(&claim_of("i1", &format!("worker-{worker}"), at(0))).await.expect("an answer") }
    });
    let outcomes = join_all(claims).await;
    let winners = outcomes.iter().filter(|outcome| matches!(outcome, ClaimOutcome::Granted(_))).count();
    let losers = outcomes.iter().filter(|outcome| matches!(outcome, ClaimOutcome::Held { .. })).count();
    assert_eq!((winners, losers), (1, 49));
}
