use dormouse_ports::{
    BufferOutcome, BufferedSignal, Cancellation, Claim, ClaimOutcome, ClaimRequest, CommitError, EarlySignal, Expected,
    FanIn, IndexRepair, InvocationStatus, InvocationWrite, Map, Owner, PartAnswer, PausedInvocation, SignalId,
    SignalState, SuspendFrom, Until,
};
use futures::future::join_all;
use serde_json::json;

use super::scene::{
    Store, again, at, claim_of, commit, complete, fresh, granted, invocation, map, parked, pause, signal, sleep,
};

/// A pause that expects a signal of each of `parts`.
fn several(id: &str, generation: u64, parts: &[&str]) -> PausedInvocation {
    let one = |part: &&str| Expected { part: (*part).to_owned(), signal_id: format!("{id}-{part}").into() };
    let expected = parts.iter().map(one).collect();
    let fan_in =
        FanIn { expected, until: Until::All, counts: None, veto: None, into: "votes".to_owned(), answers: Vec::new() };
    PausedInvocation { fan_in: Some(fan_in), ..pause(id, generation, "nobody's") }
}

fn answer(part: &str) -> PartAnswer {
    PartAnswer { part: part.to_owned(), payload: map(json!({"from": part, "n": 1.0})), at: at(7) }
}

/// `paused` with the answers of `parts`.
fn answered(paused: &PausedInvocation, parts: &[&str]) -> PausedInvocation {
    let fan_in = paused.fan_in.clone().map(|fan_in| parts.iter().fold(fan_in, |all, part| all.with(answer(part))));
    PausedInvocation { fan_in, ..paused.clone() }
}

/// Notes the answer of `part` on the pause as it is known.
async fn note(store: &Store, id: &str, known: &PausedInvocation, part: &str) -> Result<(), CommitError> {
    let write = InvocationWrite::Answer { paused: Box::new(known.clone()), answer: answer(part) };
    store.commit(&commit(id, None, Some(write))).await
}

fn is_conflict(result: &Result<(), CommitError>) -> bool {
    matches!(result, Err(CommitError::InvocationConflict))
}

fn waiting(id: &str, generation: u64) -> Option<SignalState> {
    Some(SignalState::Waiting { invocation_id: id.into(), generation })
}

fn delivered(id: &str, generation: u64) -> Option<SignalState> {
    Some(SignalState::Delivered { invocation_id: id.into(), generation })
}

/// A claim that knows of `answered` answers.
fn claim_knowing(owner: &str, answered: Option<usize>) -> ClaimRequest {
    ClaimRequest { answered, ..claim_of("i1", owner, at(0)) }
}

pub(super) async fn a_wait_of_every_part_is_visible(store: Store) {
    let paused = several("i1", 1, &["a", "b", "c"]);
    sleep(&store, &paused).await;
    for part in ["i1-a", "i1-b", "i1-c"] {
        assert_eq!(signal(&store, part).await, waiting("i1", 1));
    }
    assert_eq!(signal(&store, "nobody's").await, None, "the pause's own id is no signal");
    assert_eq!(invocation(&store, "i1").await.expect("it sleeps").paused, paused);
}

pub(super) async fn answers_are_kept_beside_the_pause(store: Store) {
    let paused = several("i1", 1, &["a", "b", "c"]);
    sleep(&store, &paused).await;
    note(&store, "first", &paused, "c").await.expect("it is noted");
    note(&store, "second", &answered(&paused, &["c"]), "a").await.expect("it is noted");
    let record = invocation(&store, "i1").await.expect("it sleeps on");
    assert_eq!(record.status, InvocationStatus::Suspended);
    assert_eq!(record.paused, answered(&paused, &["c", "a"]), "in the order in which they came");
    assert_eq!(signal(&store, "i1-c").await, waiting("i1", 1), "a duplicate finds its way");
}

pub(super) async fn an_answer_that_did_not_see_another_is_refused(store: Store) {
    let paused = several("i1", 1, &["a", "b", "c"]);
    sleep(&store, &paused).await;
    note(&store, "first", &paused, "a").await.expect("it is noted");
    for part in ["a", "b"] {
        let refused = note(&store, &format!("blind-{part}"), &paused, part).await;
        assert!(is_conflict(&refused), "{refused:?}");
    }
    let record = invocation(&store, "i1").await.expect("it sleeps on");
    assert_eq!(record.paused, answered(&paused, &["a"]));
}

pub(super) async fn a_repeated_answer_is_noted_once(store: Store) {
    let paused = several("i1", 1, &["a", "b"]);
    sleep(&store, &paused).await;
    for _ in 0..2 {
        note(&store, "same", &paused, "a").await.expect("the same commit");
    }
    assert_eq!(invocation(&store, "i1").await.expect("it sleeps on").paused, answered(&paused, &["a"]));
}

pub(super) async fn of_answers_at_once_one_is_noted(store: Store) {
    let paused = several("i1", 1, &["a", "b", "c", "d"]);
    sleep(&store, &paused).await;
    let notes = ["a", "b", "c", "d"].map(|part| {
        let store = store.clone();
        let paused = paused.clone();
        async move { note(&store, part, &paused, part).await }
    });
    let noted = join_all(notes).await;
    assert_eq!(noted.iter().filter(|result| result.is_ok()).count(), 1, "{noted:?}");
    assert_eq!(noted.iter().filter(|result| is_conflict(result)).count(), 3, "{noted:?}");
}

pub(super) async fn only_who_knows_all_answers_claims(store: Store) {
    let paused = several("i1", 1, &["a", "b", "c"]);
    sleep(&store, &paused).await;
    note(&store, "first", &paused, "a").await.expect("it is noted");
    for known in [None, Some(0), Some(2)] {
        let outcome = store.claim(&claim_knowing("blind", known)).await.expect("the store answers");
        let ClaimOutcome::AwaitingMoreSignals(record) = outcome else { panic!("{known:?}: {outcome:?}") };
        assert_eq!(record.paused, answered(&paused, &["a"]), "and is told of them");
        assert_eq!(record.status, InvocationStatus::Suspended);
    }
    let record = granted(store.claim(&claim_knowing("worker", Some(1))).await.expect("the store answers"));
    assert_eq!(record.paused, answered(&paused, &["a"]));
}

pub(super) async fn only_who_knows_all_answers_delivers(store: Store) {
    let deliver = async |id: &str, answered: Option<usize>| {
        let payload = map(json!({ "votes": 2.0 }));
        let write = InvocationWrite::Deliver { invocation_id: "i1".into(), generation: 1, answered, payload };
        store.commit(&commit(id, None, Some(write))).await
    };
    sleep(&store, &several("i1", 1, &["a", "b", "c"])).await;
    note(&store, "first", &several("i1", 1, &["a", "b", "c"]), "a").await.expect("it is noted");
    for known in [None, Some(0), Some(2)] {
        let refused = deliver(&format!("blind-{known:?}"), known).await;
        assert!(is_conflict(&refused), "{known:?}: {refused:?}");
    }
    deliver("knowing", Some(1)).await.expect("it is delivered");
    let record = invocation(&store, "i1").await.expect("it goes on");
    assert_eq!(record.status, InvocationStatus::Accepted { payload: map(json!({ "votes": 2.0 })) });
    sleep(&store, &pause("i2", 1, "s2")).await;
    let invocation_id = "i2".into();
    let payload = Map::new();
    let write = InvocationWrite::Deliver { invocation_id, generation: 1, answered: Some(0), payload };
    let refused = store.commit(&commit("confused", None, Some(write))).await;
    assert!(is_conflict(&refused), "it expects one signal only: {refused:?}");
}

pub(super) async fn a_pause_that_expects_one_signal_knows_no_answers(store: Store) {
    sleep(&store, &pause("i1", 1, "s1")).await;
    let outcome = store.claim(&claim_knowing("confused", Some(0))).await.expect("the store answers");
    assert!(matches!(outcome, ClaimOutcome::AwaitingMoreSignals(_)), "{outcome:?}");
    granted(store.claim(&claim_knowing("worker", None)).await.expect("the store answers"));
}

pub(super) async fn while_it_is_claimed_no_answer_is_noted(store: Store) {
    let paused = several("i1", 1, &["a", "b"]);
    sleep(&store, &paused).await;
    granted(store.claim(&claim_knowing("worker", Some(0))).await.expect("the store answers"));
    let refused = note(&store, "late", &paused, "a").await;
    assert!(is_conflict(&refused), "{refused:?}");
    let held = store.claim(&claim_knowing("other", None)).await.expect("the store answers");
    assert_eq!(held, ClaimOutcome::Held { until: at(60) });
    let take_over = ClaimRequest { now: at(60), until: at(120), ..claim_knowing("heir", None) };
    let record = granted(store.claim(&take_over).await.expect("the store answers"));
    let InvocationStatus::Resuming(claim) = record.status else { panic!("not resuming") };
    assert_eq!(claim.payload, map(json!({"from": "worker"})), "the first payload stands");
}

pub(super) async fn a_released_claim_keeps_the_answers(store: Store) {
    let paused = several("i1", 1, &["a", "b", "c"]);
    sleep(&store, &paused).await;
    note(&store, "first", &paused, "a").await.expect("it is noted");
    granted(store.claim(&claim_knowing("worker", Some(1))).await.expect("the store answers"));
    let owner = Owner::from("worker");
    let release = InvocationWrite::Release { invocation_id: "i1".into(), generation: 1, owner, again_at: None };
    store.commit(&commit("release", None, Some(release))).await.expect("it sleeps on");
    note(&store, "second", &answered(&paused, &["a"]), "b").await.expect("it is noted");
    let record = invocation(&store, "i1").await.expect("it sleeps on");
    assert_eq!(record.paused, answered(&paused, &["a", "b"]));
}

pub(super) async fn every_part_is_freed_by_the_end(store: Store) {
    let paused = several("i1", 1, &["a", "b", "c"]);
    sleep(&store, &paused).await;
    let record = granted(store.claim(&claim_knowing("worker", Some(0))).await.expect("the store answers"));
    let end = complete(&record.paused, "worker", Map::new());
    store.commit(&commit("end", None, Some(end))).await.expect("it completes");
    for part in ["i1-a", "i1-b", "i1-c"] {
        assert_eq!(signal(&store, part).await, delivered("i1", 1));
    }
}

pub(super) async fn every_part_is_freed_by_a_cancellation(store: Store) {
    let paused = several("i1", 1, &["a", "b"]);
    sleep(&store, &paused).await;
    note(&store, "first", &paused, "a").await.expect("it is noted");
    let cancellation = Cancellation { reason: None, at: at(5) };
    let cancel = InvocationWrite::Cancel { paused: Box::new(paused.clone()), cancellation };
    store.commit(&commit("cancel", None, Some(cancel))).await.expect("whoever has answered meanwhile");
    assert_eq!((signal(&store, "i1-a").await, signal(&store, "i1-b").await), (delivered("i1", 1), delivered("i1", 1)));
    let refused = note(&store, "late", &answered(&paused, &["a"]), "b").await;
    assert!(is_conflict(&refused), "{refused:?}");
}

pub(super) async fn the_next_pause_may_expect_some_of_the_same(store: Store) {
    let first = several("i1", 1, &["a", "b"]);
    let second = several("i1", 2, &["b", "c"]);
    sleep(&store, &first).await;
    note(&store, "first", &first, "b").await.expect("it is noted");
    granted(store.claim(&claim_knowing("worker", Some(1))).await.expect("the store answers"));
    let next = again(&second, "worker", &answered(&first, &["b"]));
    store.commit(&commit("again", None, Some(next))).await.expect("it sleeps again");
    assert_eq!(signal(&store, "i1-a").await, delivered("i1", 1));
    assert_eq!((signal(&store, "i1-b").await, signal(&store, "i1-c").await), (waiting("i1", 2), waiting("i1", 2)));
    let record = invocation(&store, "i1").await.expect("it sleeps");
    assert_eq!(record.paused, second, "with no answer from before");
    let third = pause("i1", 3, "i1-c");
    granted(store.claim(&claim_knowing("worker", Some(0))).await.expect("the store answers"));
    let next = again(&third, "worker", &second);
    store.commit(&commit("alone", None, Some(next))).await.expect("it sleeps again");
    assert_eq!((signal(&store, "i1-b").await, signal(&store, "i1-c").await), (delivered("i1", 2), waiting("i1", 3)));
    granted(store.claim(&claim_knowing("worker", None)).await.expect("it expects one signal now"));
}

pub(super) async fn what_a_later_pause_waits_for_is_parked_meanwhile(store: Store) {
    let first = PausedInvocation { tenant: Some("acme".to_owned()), ..several("i1", 1, &["a", "b"]) };
    let between = pause("i1", 2, "i1-c");
    let descriptor = between.descriptor.clone().with("keeps", json!(["i1-b"]));
    let between = PausedInvocation { descriptor, tenant: first.tenant.clone(), ..between };
    sleep(&store, &first).await;
    granted(store.claim(&claim_knowing("worker", Some(0))).await.expect("the store answers"));
    store.commit(&commit("again", None, Some(again(&between, "worker", &first)))).await.expect("it sleeps again");
    let of_tenant = SignalId::from("i1-b").of_tenant("acme");
    assert_eq!(signal(&store, "i1-a").await, delivered("i1", 1));
    assert_eq!((signal(&store, "i1-b").await, signal(&store, of_tenant.as_str()).await), (None, None));
    let early = parked(json!({ "late": "for the first" }), 1);
    let kept = store.buffer_signal(&"i1-b".into(), &early).await.expect("the store answers");
    assert!(matches!(kept, BufferOutcome::Buffered { .. }), "{kept:?}");
    let last = PausedInvocation { tenant: first.tenant.clone(), ..several("i1", 3, &["b"]) };
    granted(store.claim(&claim_knowing("worker", None)).await.expect("the store answers"));
    let refused = store.commit(&commit("last", None, Some(again(&last, "worker", &between)))).await;
    let Err(CommitError::SignalBuffered(found)) = refused else { panic!("{refused:?}") };
    assert_eq!(*found, early, "it is there for the pause that waits for it");
}

pub(super) async fn a_taken_part_takes_all(store: Store) {
    sleep(&store, &pause("i2", 1, "i1-b")).await;
    let refused = store.commit(&commit("sleep", None, Some(fresh(&several("i1", 1, &["a", "b"]))))).await;
    let Err(CommitError::SignalTaken { signal_id, holder }) = refused else { panic!("{refused:?}") };
    assert_eq!((signal_id.as_str(), holder.as_str()), ("i1-b", "i2"));
    assert_eq!((invocation(&store, "i1").await, signal(&store, "i1-a").await), (None, None), "all of it or nothing");
}

pub(super) async fn what_was_parked_for_parts_is_consumed_together(store: Store) {
    let paused = several("i1", 1, &["a", "b", "c"]);
    let early = |part: &str| EarlySignal { signal_id: format!("i1-{part}").into(), payload: answer(part).payload };
    for part in ["a", "c"] {
        let signal =
            BufferedSignal { payload: answer(part).payload, sender: None, received_at: at(7), expires_at: at(99) };
        store.buffer_signal(&format!("i1-{part}").into(), &signal).await.expect("the store answers");
    }
    let known = answered(&paused, &["a", "c"]);
    let from = SuspendFrom::Fresh;
    let sleeps = |early: Vec<EarlySignal>, claim: Option<Claim>| InvocationWrite::Suspend {
        paused: Box::new(known.clone()),
        from: from.clone(),
        claim,
        early,
    };
    let refused = store.commit(&commit("one", None, Some(sleeps(vec![early("a")], None)))).await;
    let Err(CommitError::SignalBuffered(found)) = refused else { panic!("{refused:?}") };
    assert_eq!(found.payload, answer("c").payload);
    assert_eq!(invocation(&store, "i1").await, None, "all of it or nothing");
    let both = sleeps(vec![early("a"), early("c")], None);
    store.commit(&commit("both", None, Some(both))).await.expect("it sleeps on");
    assert_eq!(invocation(&store, "i1").await.expect("it sleeps").paused, known);
    for part in ["i1-a", "i1-b", "i1-c"] {
        assert_eq!(signal(&store, part).await, waiting("i1", 1));
    }
    note(&store, "third", &known, "b").await.expect("those that came early are counted");
}

pub(super) async fn twenty_five_parts_fit_into_one_commit(store: Store) {
    let names = |from: usize| (from..from + 25).map(|part| format!("p{part}")).collect::<Vec<_>>();
    let of =
        |generation, names: &[String]| several("i1", generation, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let first = of(1, &names(0));
    let second = of(2, &names(25));
    sleep(&store, &first).await;
    granted(store.claim(&claim_knowing("worker", Some(0))).await.expect("the store answers"));
    let next = again(&second, "worker", &first);
    store.commit(&commit("again", None, Some(next))).await.expect("fifty signals in one commit");
    assert_eq!((signal(&store, "i1-p0").await, signal(&store, "i1-p49").await), (delivered("i1", 1), waiting("i1", 2)));
}

pub(super) async fn lost_waits_of_parts_are_written_again(store: Store) {
    store.repair(&IndexRepair::Wait(Box::new(several("i1", 1, &["a", "b"])))).await.expect("the store answers");
    assert_eq!((signal(&store, "i1-a").await, signal(&store, "i1-b").await), (waiting("i1", 1), waiting("i1", 1)));
}
