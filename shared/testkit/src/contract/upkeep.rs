use dormouse_ports::{
    BufferedSignal, Claim, IndexRepair, InvocationId, InvocationPhase, InvocationStatus, InvocationSummary,
    InvocationWrite, Map, ParkedRow, PendingRow, SignalState, StoreError, SuspendFrom, limits,
};

use super::scene::{Store, again, all_pending, at, claimed, commit, complete, due, pause, sleep};

async fn repair(store: &Store, repair: IndexRepair) {
    store.repair(&repair).await.expect("the store answers");
}

pub(super) async fn a_glance_tells_standing_and_generation(store: Store) {
    for id in ["asleep", "claimed", "ended"] {
        sleep(&store, &pause(id, 1, id)).await;
    }
    let InvocationStatus::Resuming(claim) = claimed(&store, "claimed", "worker").await.status else {
        panic!("it was claimed");
    };
    let until = claim.until;
    let record = claimed(&store, "ended", "worker").await;
    let end = commit("end", None, Some(complete(&record.paused, "worker", Map::new())));
    store.commit(&end).await.expect("it completes");
    let ids: Vec<InvocationId> = ["ended", "nobody", "claimed", "asleep", "ended"].map(InvocationId::from).to_vec();
    let glances = store.glance(&ids).await.expect("the store answers");
    let of = |standing| Some(InvocationSummary { generation: 1, standing });
    let ended = of(InvocationPhase::Ended);
    let held = of(InvocationPhase::Claimed { until });
    assert_eq!(glances, [ended.clone(), None, held, of(InvocationPhase::Asleep), ended]);
    assert_eq!(store.glance(&[]).await.expect("the store answers"), []);
}

pub(super) async fn only_claims_that_are_out_of_time_are_dead(store: Store) {
    let dead = async |now| {
        let mut ids = store.dead_claims(now).await.expect("the store answers");
        ids.sort();
        ids
    };
    for id in ["asleep", "first", "second", "given-back", "ended", "early"] {
        let paused = pause(id, 1, id);
        match id {
            "early" => {
                let (owner, until, payload) = ("worker".into(), at(60), Map::new());
                let claim = Some(Claim { owner, until, payload, attempts: 1, taken_over: false });
                let paused = Box::new(paused);
                let from = SuspendFrom::Fresh;
                let write = InvocationWrite::Suspend { paused, from, claim, early: Vec::new() };
                store.commit(&commit("early", None, Some(write))).await.expect("it sleeps, claimed");
            }
            _ => sleep(&store, &paused).await,
        }
    }
    for id in ["first", "second", "given-back", "ended"] {
        claimed(&store, id, "worker").await;
    }
    let release = InvocationWrite::Release {
        invocation_id: "given-back".into(),
        generation: 1,
        owner: "worker".into(),
        again_at: None,
    };
    store.commit(&commit("release", None, Some(release))).await.expect("it is given back");
    let end = complete(&pause("ended", 1, "ended"), "worker", Map::new());
    store.commit(&commit("end", None, Some(end))).await.expect("it completes");
    let longest = i64::try_from(limits::LEASE.as_secs()).expect("a short time");
    for held in [at(59), at(60 - longest)] {
        assert_eq!(dead(held).await, Vec::<InvocationId>::new());
    }
    let all = ["early", "first", "second"].map(InvocationId::from);
    assert_eq!(dead(at(59 - longest)).await, all, "no claim may last so long");
    assert_eq!(dead(at(60)).await, all);
}

pub(super) async fn a_registered_row_says_so(store: Store) {
    let paused = due(pause("i1", 1, "s1"), at(100));
    sleep(&store, &paused).await;
    let row = PendingRow::of(&paused);
    assert!(!row.registered);
    repair(&store, IndexRepair::Registered(PendingRow { generation: 2, ..row.clone() })).await;
    assert_eq!(all_pending(&store, None).await, std::slice::from_ref(&row), "another pause");
    repair(&store, IndexRepair::Registered(row.clone())).await;
    assert_eq!(all_pending(&store, None).await, [PendingRow { registered: true, ..row }]);
}

pub(super) async fn nothing_is_registered_that_is_gone(store: Store) {
    repair(&store, IndexRepair::Registered(PendingRow::of(&pause("i1", 1, "s1")))).await;
    assert_eq!(all_pending(&store, None).await, []);
}

pub(super) async fn only_the_row_of_that_pause_is_removed(store: Store) {
    let first = due(pause("i1", 1, "s1"), at(100));
    let second = due(pause("i1", 2, "s2"), at(100));
    sleep(&store, &first).await;
    claimed(&store, "i1", "worker").await;
    store.commit(&commit("second", None, Some(again(&second, "worker", &first)))).await.expect("the same due time");
    repair(&store, IndexRepair::Ended(PendingRow::of(&first))).await;
    assert_eq!(all_pending(&store, None).await, [PendingRow::of(&second)]);
    repair(&store, IndexRepair::Ended(PendingRow::of(&second))).await;
    assert_eq!(all_pending(&store, None).await, []);
}

pub(super) async fn a_lost_row_is_written_again_once(store: Store) {
    let paused = due(pause("i1", 1, "s1"), at(100));
    repair(&store, IndexRepair::Row(Box::new(paused.clone()))).await;
    repair(&store, IndexRepair::Registered(PendingRow::of(&paused))).await;
    repair(&store, IndexRepair::Row(Box::new(paused.clone()))).await;
    assert_eq!(all_pending(&store, None).await, [PendingRow { registered: true, ..PendingRow::of(&paused) }]);
}

pub(super) async fn a_lost_wait_is_written_again_where_its_place_is_free(store: Store) {
    let state =
        async |id: &str| store.load_signal(&id.into(), at(0)).await.expect("an answer").map(|known| known.state);
    repair(&store, IndexRepair::Wait(Box::new(pause("i1", 1, "s1")))).await;
    assert_eq!(state("s1").await, Some(SignalState::Waiting { invocation_id: "i1".into(), generation: 1 }));
    let signal = parked(5);
    store.buffer_signal(&"s2".into(), &signal).await.expect("an answer");
    repair(&store, IndexRepair::Wait(Box::new(pause("i2", 1, "s2")))).await;
    assert_eq!(state("s2").await, Some(SignalState::Buffered(signal)), "what was parked is not lost");
}

pub(super) async fn no_wait_is_written_again_of_a_pause_that_is_over(store: Store) {
    let state =
        async |id: &str| store.load_signal(&id.into(), at(0)).await.expect("an answer").map(|known| known.state);
    let over = |generation| Some(SignalState::Delivered { invocation_id: "i1".into(), generation });
    let (first, second) = (pause("i1", 1, "s1"), pause("i1", 2, "s2"));
    sleep(&store, &first).await;
    claimed(&store, "i1", "worker").await;
    store.commit(&commit("second", None, Some(again(&second, "worker", &first)))).await.expect("it sleeps again");
    repair(&store, IndexRepair::Wait(Box::new(first))).await;
    assert_eq!(state("s1").await, over(1), "it sleeps in the next one");
    claimed(&store, "i1", "worker").await;
    let end = complete(&second, "worker", Map::new());
    store.commit(&commit("end", None, Some(end))).await.expect("it completes");
    repair(&store, IndexRepair::Wait(Box::new(second))).await;
    assert_eq!(state("s2").await, over(2), "it has ended");
}

pub(super) async fn a_wait_of_nobody_is_collected(store: Store) {
    sleep(&store, &pause("asleep", 1, "awaited")).await;
    for id in ["nobody", "gone"] {
        repair(&store, IndexRepair::Wait(Box::new(pause(id, 1, id)))).await;
    }
    let mut removed = 0;
    let mut cursor = None;
    loop {
        let collected = store.collect_garbage(at(0), cursor.as_deref()).await.expect("the store answers");
        removed += collected.removed;
        cursor = collected.next;
        if collected.done {
            break;
        }
    }
    assert_eq!(removed, 4, "each has one for the keys of its tenant, too");
    let state = async |id: &str| store.load_signal(&id.into(), at(0)).await.expect("an answer");
    assert_eq!((state("nobody").await, state("gone").await), (None, None));
    assert!(state("awaited").await.is_some());
}

fn parked(second: i64) -> BufferedSignal {
    BufferedSignal { payload: Map::new(), sender: None, received_at: at(second), expires_at: at(second + 1000) }
}

async fn all_parked(store: &Store) -> Vec<ParkedRow> {
    let mut rows = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.list_parked(cursor.as_deref()).await.expect("the store answers");
        rows.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            rows.sort_by_key(|row: &ParkedRow| row.received_at);
            return rows;
        }
    }
}

pub(super) async fn what_was_parked_is_listed_until_it_is_removed(store: Store) {
    let row = |second: i64| ParkedRow { signal_id: format!("s{second}").into(), received_at: at(second) };
    for second in 1..=7 {
        store.buffer_signal(&row(second).signal_id, &parked(second)).await.expect("an answer");
    }
    assert_eq!(all_parked(&store).await, (1..=7).map(row).collect::<Vec<_>>());
    repair(&store, IndexRepair::Unparked(row(3))).await;
    repair(&store, IndexRepair::Unparked(row(3))).await;
    assert_eq!(all_parked(&store).await.len(), 6);
    assert!(matches!(store.list_parked(Some("no cursor")).await, Err(StoreError::Invalid(_))));
}

pub(super) async fn a_position_is_kept_for_each_lane(store: Store) {
    let keep = async |lane: &str, position: Option<&str>| {
        store.keep_note(lane, position, None).await.expect("the store answers");
    };
    let position = async |lane| store.note(lane).await.expect("an answer");
    assert_eq!(position("due").await, None);
    keep("due", Some("here")).await;
    keep("everything", Some("there")).await;
    assert_eq!((position("due").await, position("everything").await), (Some("here".into()), Some("there".into())));
    keep("due", None).await;
    assert_eq!((position("due").await, position("everything").await), (None, Some("there".into())));
}
