//! The entries of rules, and the rule that a row names for its pause.

use dormouse_ports::{
    EventShape, EventWait, IndexRepair, PausedInvocation, PendingRow, RuleEntry, RuleIncarnation, RuleNeed, RuleUpdate,
    ShapeId,
};
use serde_json::json;

use super::scene::{Store, all_pending, at, map, pause, sleep};

fn shape(source: &str) -> ShapeId {
    EventShape { pattern: map(json!({ "source": [source] })), correlation: "$.detail.id".to_owned() }.id()
}

async fn touch(store: &Store, source: &str, fresh: &str, now: i64) -> RuleEntry {
    store.touch_rule(&shape(source), &RuleIncarnation::of(fresh), at(now)).await.expect("the store answers")
}

async fn entries(store: &Store) -> Vec<RuleEntry> {
    store.rule_entries().await.expect("the store answers")
}

async fn update(store: &Store, update: RuleUpdate) {
    store.update_rule(&update).await.expect("the store answers");
}

pub(super) async fn the_first_touch_makes_an_entry_and_later_ones_keep_its_edition(store: Store) {
    assert_eq!(entries(&store).await, []);
    let first = touch(&store, "jobs", "one", 10).await;
    let made = RuleEntry {
        shape: shape("jobs"),
        edition: RuleIncarnation::of("one"),
        touches: 1,
        made_at: at(10),
        stands_since: None,
        idle_since: None,
    };
    assert_eq!(first, made);
    let second = touch(&store, "jobs", "two", 20).await;
    assert_eq!(second, RuleEntry { touches: 2, ..made });
    let other = touch(&store, "mail", "three", 30).await;
    let mut both = vec![second, other];
    both.sort_by(|left, right| left.shape.cmp(&right.shape));
    assert_eq!(entries(&store).await, both);
}

pub(super) async fn an_idle_entry_is_idle_until_it_is_touched(store: Store) {
    let entry = touch(&store, "jobs", "one", 10).await;
    update(&store, RuleUpdate::Idle { entry: entry.clone(), since: at(20) }).await;
    update(&store, RuleUpdate::Stands { entry: entry.clone(), since: at(15) }).await;
    let other = RuleEntry { edition: RuleIncarnation::of("other"), ..entry.clone() };
    update(&store, RuleUpdate::Stands { entry: other, since: at(16) }).await;
    let idle = RuleEntry { idle_since: Some(at(20)), stands_since: Some(at(15)), ..entry };
    assert_eq!(entries(&store).await, std::slice::from_ref(&idle));
    let touched = touch(&store, "jobs", "two", 30).await;
    assert_eq!(touched, RuleEntry { touches: 2, idle_since: None, ..idle.clone() });
    update(&store, RuleUpdate::Idle { entry: idle, since: at(40) }).await;
    assert_eq!(entries(&store).await, [touched], "who read it before the touch changes nothing");
}

pub(super) async fn only_an_entry_that_nobody_touched_goes(store: Store) {
    let read = touch(&store, "jobs", "one", 10).await;
    let touched = touch(&store, "jobs", "two", 20).await;
    update(&store, RuleUpdate::Unneeded(read)).await;
    assert_eq!(entries(&store).await, std::slice::from_ref(&touched));
    update(&store, RuleUpdate::Unneeded(touched.clone())).await;
    assert_eq!(entries(&store).await, []);
    let again = touch(&store, "jobs", "three", 30).await;
    assert_eq!((again.edition.clone(), again.touches, again.made_at), (RuleIncarnation::of("three"), 1, at(30)));
    let same_count = RuleEntry { touches: 1, ..touched };
    update(&store, RuleUpdate::Unneeded(same_count.clone())).await;
    update(&store, RuleUpdate::Idle { entry: same_count, since: at(40) }).await;
    assert_eq!(entries(&store).await, [again], "another edition is another rule");
}

fn awaiting(id: &str, source: &str) -> PausedInvocation {
    let pattern = map(json!({ "source": [source] }));
    let mut paused = pause(id, 1, id);
    paused.wake.event = Some(EventWait { pattern, correlation: "$.detail.id".to_owned() });
    paused
}

pub(super) async fn a_row_says_which_rule_its_pause_needs(store: Store) {
    let paused = awaiting("i1", "jobs");
    sleep(&store, &paused).await;
    let row = PendingRow::of(&paused);
    assert_eq!(row.rule, RuleNeed::Shape(shape("jobs")));
    assert_eq!(all_pending(&store, None).await, std::slice::from_ref(&row));
    store.repair(&IndexRepair::Registered(row.clone())).await.expect("the store answers");
    assert_eq!(all_pending(&store, None).await, [PendingRow { registered: true, ..row }]);
}
