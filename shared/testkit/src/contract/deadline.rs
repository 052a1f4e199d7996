use dormouse_ports::{
    Announcement, Cancellation, CommitError, Due, DueAction, Escalation, FailureRecord, InvocationStatus,
    InvocationWrite, Map, PausedInvocation, PendingRow, WakePlan,
};

use super::scene::{Store, again, all_pending, at, claimed, commit, complete, invocation, pause, sleep};

/// A pause with three deadlines, at 100, 200 and 300 seconds.
fn ladder(id: &str, generation: u64, signal: &str) -> PausedInvocation {
    let announce = |step, to: Option<&str>| DueAction::Announce(Announcement { step, to: to.map(str::to_owned) });
    let due = |rung: u32, action| Due { at: at(100 * i64::from(rung + 1)), action, rung };
    let wake = WakePlan {
        due: Some(due(0, announce(Escalation::Remind, None))),
        later: vec![due(1, announce(Escalation::Escalate, Some("the board"))), due(2, DueAction::Fail)],
        event: None,
    };
    PausedInvocation { wake, ..pause(id, generation, signal) }
}

/// `paused` once its next deadline has passed.
fn advanced(paused: &PausedInvocation) -> PausedInvocation {
    PausedInvocation { wake: paused.wake.advanced().expect("a later deadline"), ..paused.clone() }
}

fn advance(paused: &PausedInvocation) -> InvocationWrite {
    InvocationWrite::Advance { paused: Box::new(paused.clone()), wake: advanced(paused).wake }
}

fn fail(paused: &PausedInvocation) -> InvocationWrite {
    let failure = FailureRecord { category: dormouse_ports::Category::SuspensionTimedOut, message: String::new() };
    InvocationWrite::Fail { paused: Box::new(paused.clone()), owner: None, failure }
}

fn row(generation: u64, seconds: i64) -> PendingRow {
    PendingRow { due_at: Some(at(seconds)), ..PendingRow::of(&ladder("i1", generation, "s1")) }
}

fn is_conflict(result: &Result<(), CommitError>) -> bool {
    matches!(result, Err(CommitError::InvocationConflict))
}

async fn pass(store: &Store, id: &str, paused: &PausedInvocation) -> Result<(), CommitError> {
    store.commit(&commit(id, None, Some(advance(paused)))).await
}

pub(super) async fn a_passed_deadline_moves_the_row(store: Store) {
    let mut paused = ladder("i1", 1, "s1");
    sleep(&store, &paused).await;
    assert_eq!(all_pending(&store, None).await, [row(1, 100)]);
    for (id, seconds) in [("first", 200), ("second", 300)] {
        pass(&store, id, &paused).await.expect("it is passed");
        paused = advanced(&paused);
        let record = invocation(&store, "i1").await.expect("a record");
        assert_eq!((record.status, &record.paused), (InvocationStatus::Suspended, &paused));
        assert_eq!(all_pending(&store, None).await, [row(1, seconds)]);
    }
    assert_eq!(all_pending(&store, Some(at(299))).await, []);
}

pub(super) async fn a_deadline_passes_once(store: Store) {
    let paused = ladder("i1", 1, "s1");
    sleep(&store, &paused).await;
    pass(&store, "first", &paused).await.expect("it is passed");
    let late = pass(&store, "late", &paused).await;
    assert!(is_conflict(&late), "{late:?}");
    pass(&store, "second", &advanced(&paused)).await.expect("the next one is passed");
    let late = pass(&store, "later", &advanced(&paused)).await;
    assert!(is_conflict(&late), "{late:?}");
    assert_eq!(all_pending(&store, None).await, [row(1, 300)]);
}

pub(super) async fn a_repeated_advance_succeeds(store: Store) {
    let paused = ladder("i1", 1, "s1");
    sleep(&store, &paused).await;
    for _ in 0..2 {
        pass(&store, "first", &paused).await.expect("the same commit");
    }
    assert_eq!(all_pending(&store, None).await, [row(1, 200)]);
}

pub(super) async fn a_claimed_pause_keeps_its_deadline(store: Store) {
    let paused = ladder("i1", 1, "s1");
    sleep(&store, &paused).await;
    claimed(&store, "i1", "worker").await;
    let refused = pass(&store, "first", &paused).await;
    assert!(is_conflict(&refused), "{refused:?}");
    assert_eq!(all_pending(&store, None).await, [row(1, 100)]);
}

pub(super) async fn an_end_that_missed_a_deadline_is_refused(store: Store) {
    let paused = ladder("i1", 1, "s1");
    sleep(&store, &paused).await;
    pass(&store, "first", &paused).await.expect("it is passed");
    let missed = store.commit(&commit("missed", None, Some(fail(&paused)))).await;
    assert!(is_conflict(&missed), "it would leave a row behind: {missed:?}");
    store.commit(&commit("end", None, Some(fail(&advanced(&paused))))).await.expect("it ends");
    assert_eq!(all_pending(&store, None).await, []);
}

pub(super) async fn what_is_left_of_the_deadlines_survives_a_claim(store: Store) {
    let paused = ladder("i1", 1, "s1");
    sleep(&store, &paused).await;
    pass(&store, "first", &paused).await.expect("it is passed");
    let record = claimed(&store, "i1", "worker").await;
    assert_eq!(record.paused, advanced(&paused));
    let owner = "worker".into();
    let release = InvocationWrite::Release { invocation_id: "i1".into(), generation: 1, owner, again_at: None };
    store.commit(&commit("release", None, Some(release))).await.expect("it sleeps again");
    pass(&store, "second", &record.paused).await.expect("the next one is passed");
    let record = claimed(&store, "i1", "another").await;
    store.commit(&commit("end", None, Some(complete(&record.paused, "another", Map::new())))).await.expect("it ends");
    assert_eq!(all_pending(&store, None).await, []);
    let record = invocation(&store, "i1").await.expect("a record");
    assert_eq!(record.paused.wake.rung(), 2, "how far it came is kept");
}

pub(super) async fn the_next_pause_begins_its_own_deadlines(store: Store) {
    let first = ladder("i1", 1, "s1");
    sleep(&store, &first).await;
    pass(&store, "first", &first).await.expect("it is passed");
    let record = claimed(&store, "i1", "worker").await;
    let second = ladder("i1", 2, "s2");
    store.commit(&commit("again", None, Some(again(&second, "worker", &record.paused)))).await.expect("it sleeps");
    assert_eq!(all_pending(&store, None).await, [row(2, 100)]);
    pass(&store, "second", &second).await.expect("its own first deadline");
    assert_eq!(all_pending(&store, None).await, [row(2, 200)]);
}

pub(super) async fn a_cancellation_means_one_deadline(store: Store) {
    let paused = ladder("i1", 1, "s1");
    sleep(&store, &paused).await;
    pass(&store, "first", &paused).await.expect("it is passed");
    let cancel = |paused: &PausedInvocation| {
        let cancellation = Cancellation { reason: None, at: at(0) };
        Some(InvocationWrite::Cancel { paused: Box::new(paused.clone()), cancellation })
    };
    let stale = store.commit(&commit("stale", None, cancel(&paused))).await;
    assert!(is_conflict(&stale), "its row would stay: {stale:?}");
    store.commit(&commit("cancel", None, cancel(&advanced(&paused)))).await.expect("it is canceled");
    assert_eq!(all_pending(&store, None).await, []);
}
