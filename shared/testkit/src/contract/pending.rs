use dormouse_ports::{Map, PendingRow, RuleNeed, StoreError};
use jiff::Timestamp;

use super::scene::{Store, again, all_pending, at, claimed, commit, complete, due, pause, sleep};

fn row(id: &str, generation: u64, due_at: Option<Timestamp>) -> PendingRow {
    PendingRow {
        invocation_id: id.into(),
        generation,
        due_at,
        since: Some(pause(id, generation, "s").suspended_at),
        registered: due_at.is_none(),
        rule: RuleNeed::Nothing,
    }
}

fn sorted(mut rows: Vec<PendingRow>) -> Vec<PendingRow> {
    rows.sort_by(|a, b| a.invocation_id.cmp(&b.invocation_id));
    rows
}

pub(super) async fn a_pause_is_pending_until_it_ends(store: Store) {
    let paused = due(pause("i1", 1, "s1"), at(100));
    sleep(&store, &paused).await;
    let expected = [row("i1", 1, Some(at(100)))];
    assert_eq!(all_pending(&store, None).await, expected);
    claimed(&store, "i1", "worker").await;
    assert_eq!(all_pending(&store, None).await, expected, "a claim can die: the row stays");
    let end = commit("end", None, Some(complete(&paused, "worker", Map::new())));
    store.commit(&end).await.expect("it completes");
    assert_eq!(all_pending(&store, None).await, []);
}

pub(super) async fn a_new_pause_replaces_the_row_of_the_old(store: Store) {
    let first = due(pause("i1", 1, "s1"), at(100));
    let second = due(pause("i1", 2, "s2"), at(100));
    let third = pause("i1", 3, "s3");
    sleep(&store, &first).await;
    claimed(&store, "i1", "worker").await;
    store.commit(&commit("second", None, Some(again(&second, "worker", &first)))).await.expect("the same due time");
    assert_eq!(all_pending(&store, None).await, [row("i1", 2, Some(at(100)))]);
    claimed(&store, "i1", "worker").await;
    store.commit(&commit("third", None, Some(again(&third, "worker", &second)))).await.expect("no due time");
    assert_eq!(all_pending(&store, None).await, [row("i1", 3, None)]);
}

async fn sleep_ten(store: &Store) {
    for number in 0..10 {
        let paused = pause(&format!("i{number}"), 1, &format!("s{number}"));
        let paused = if number == 5 { paused } else { due(paused, at(100 - number)) };
        sleep(store, &paused).await;
    }
}

pub(super) async fn more_rows_than_the_shards_have_pages_for_are_all_listed(store: Store) {
    // With small pages the rows of some shard do not fit into one.
    for number in 0..60 {
        sleep(&store, &pause(&format!("i{number:02}"), 1, &format!("s{number}"))).await;
    }
    let rows = sorted(all_pending(&store, None).await);
    let ids: Vec<&str> = rows.iter().map(|row| row.invocation_id.as_str()).collect();
    let all: Vec<String> = (0..60).map(|number| format!("i{number:02}")).collect();
    assert_eq!(ids, all);
}

pub(super) async fn rows_are_listed_page_by_page(store: Store) {
    sleep_ten(&store).await;
    let rows = sorted(all_pending(&store, None).await);
    let ids: Vec<&str> = rows.iter().map(|row| row.invocation_id.as_str()).collect();
    assert_eq!(ids, ["i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7", "i8", "i9"]);
    assert_eq!(rows[3].due_at, Some(at(97)));
    assert_eq!(rows[5].due_at, None);
}

pub(super) async fn only_due_rows_are_listed(store: Store) {
    sleep_ten(&store).await;
    assert_eq!(all_pending(&store, Some(at(90))).await, []);
    let rows = sorted(all_pending(&store, Some(at(93))).await);
    let ids: Vec<&str> = rows.iter().map(|row| row.invocation_id.as_str()).collect();
    assert_eq!(ids, ["i7", "i8", "i9"], "due at the very instant counts");
    assert_eq!(all_pending(&store, Some(at(1000))).await.len(), 9, "what never falls due is never due");
}

pub(super) async fn rows_may_end_while_they_are_listed(store: Store) {
    sleep_ten(&store).await;
    let mut cursor: Option<String> = None;
    let mut seen = 0;
    loop {
        let page = store.list_pending(None, cursor.as_deref()).await.expect("the store answers");
        for row in page.items {
            let id = row.invocation_id.as_str();
            let record = claimed(&store, id, "sweeper").await;
            let end = commit(&format!("end-{id}"), None, Some(complete(&record.paused, "sweeper", Map::new())));
            store.commit(&end).await.expect("it completes");
            seen += 1;
        }
        let Some(next) = page.next else { break };
        cursor = Some(next);
    }
    assert_eq!(seen, 10);
    assert_eq!(all_pending(&store, None).await, []);
}

pub(super) async fn a_foreign_pending_cursor_is_refused(store: Store) {
    let outcome = store.list_pending(None, Some("not a cursor")).await;
    assert!(matches!(outcome, Err(StoreError::Invalid(_))), "{outcome:?}");
}

pub(super) async fn a_row_can_be_looked_up(store: Store) {
    let paused = due(pause("i1", 1, "s1"), at(100));
    assert_eq!(store.pending_row(&paused).await.expect("an answer"), None);
    sleep(&store, &paused).await;
    let found = store.pending_row(&paused).await.expect("an answer");
    assert_eq!(found, Some(row("i1", 1, Some(at(100)))));
    let later = due(pause("i1", 2, "s1"), at(100));
    assert_eq!(store.pending_row(&later).await.expect("an answer"), None, "the row of another pause");
}
