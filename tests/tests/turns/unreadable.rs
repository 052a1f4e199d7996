//! What cannot be read any more, of a record that is damaged or was written by something else, stops nobody: lists and
//! feeds pass over it, and it can be ended.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_app::REMINDER;
use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_engine::{CompiledGraph, END, Field, FieldType, GraphBuilder, State, StateSchema, Update, suspend};
use dormouse_harness::{FreshTurn, Mode, Transmission, TurnOutcome};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_maintenance::{MigrationOutcome, SweepScope};
use dormouse_ports::{
    Append, Breadth, Category, Commit, Commits, DocumentKey, DocumentWrite, Fed, FeedRequest, GrowingLists,
    InvocationStatus, Invocations, Journal, ListRequest, Listed, Map, Notes, Records, RuleEntries, SignalDescriptor,
    Sleepers, StoreError, StreamEnd, limits,
};
use dormouse_tests::{Stage, map};
use jiff::Timestamp;
use serde_json::json;

const TABLE: &str = "dormouse";

async fn store() -> (EmbeddedDynamoDb, Arc<DynamoDbStateStore>) {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
    ensure_table(&embedded.client(), TABLE).await.unwrap();
    let store = Arc::new(DynamoDbStateStore::new(&embedded.client(), TABLE, StoreConfig::default()));
    (embedded, store)
}

/// Writes JSON of 200 levels over `attribute` of the item at `pk` and `sk`.
async fn damage(embedded: &EmbeddedDynamoDb, pk: &str, sk: &str, attribute: &str) {
    let deep = [b"\0".as_slice(), "[".repeat(200).as_bytes(), "]".repeat(200).as_bytes()].concat();
    let update = embedded.client().update_item().table_name(TABLE);
    let update = update.key("pk", AttributeValue::S(pk.to_owned())).key("sk", AttributeValue::S(sk.to_owned()));
    let update =
        update.update_expression(format!("SET {attribute} = :deep")).condition_expression("attribute_exists(pk)");
    update.expression_attribute_values(":deep", AttributeValue::B(Blob::new(deep))).send().await.unwrap();
}

fn tell(id: &str, journal: Journal) -> Commit {
    let now = Timestamp::UNIX_EPOCH;
    Commit { id: id.to_owned(), now, session: None, invocation: None, journal, growing: GrowingLists::default() }
}

#[tokio::test]
async fn an_invocation_that_cannot_be_read_is_canceled_and_swept_over() {
    let (embedded, store) = store().await;
    let stage = Stage::default();
    let worker = stage.shipped_on(store.clone(), Mode::Stateless).unwrap();
    for id in ["damaged", "sound"] {
        let start = FreshTurn::new(REMINDER, map(json!({ "text": "tea", "after": "PT1H" })));
        let turn = worker.turn(FreshTurn { invocation_id: Some(id.into()), ..start }).await;
        assert!(matches!(turn.outcome, TurnOutcome::Suspended(_)), "{turn:?}");
    }
    damage(&embedded, "INVOCATION#damaged", "PAUSED", "pause").await;
    let unreadable = store.load_invocation(&"damaged".into()).await;
    assert!(matches!(unreadable, Err(StoreError::Corrupt(_))), "{unreadable:?}");
    // The report names it beside the others.
    let mut named = Vec::new();
    let mut cursor = None;
    loop {
        let report =
            dormouse_maintenance::migration_report(&worker, &store.clone().into(), cursor.as_deref()).await.unwrap();
        named.extend(report.pauses.into_iter().map(|pause| pause.fate));
        cursor = report.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((named.len(), named.contains(&MigrationOutcome::Unreadable)), (2, true), "{named:?}");
    // Time passes; who sleeps beside it is woken, and whoever is called for the other says that it cannot be read.
    stage.clock.advance(std::time::Duration::from_secs(2 * 3600));
    let (swept, turns) = stage.sweep_on(&worker, &store.clone().into(), SweepScope::Due).await.unwrap();
    assert_eq!((swept.called, swept.failed), (2, 0), "{swept:?}");
    let unreadable = |turn: &&TurnOutcome| matches!(turn, TurnOutcome::Errored(error) if error.category == Category::SuspensionPersistenceFailed);
    assert_eq!(turns.iter().filter(unreadable).count(), 1, "{turns:?}");
    let wrong_pause = worker.cancel(&"damaged".into(), Some(7), None).await.unwrap_err();
    assert_eq!(wrong_pause.category, Category::SuspensionRecordInvalid);
    let canceled = worker.cancel(&"damaged".into(), None, Some("damaged".to_owned())).await.unwrap();
    assert!(!canceled.repeated);
    let record = store.load_invocation(&"damaged".into()).await.unwrap().unwrap();
    assert!(matches!(record.status, InvocationStatus::Canceled(_)), "{record:?}");
    assert!(worker.cancel(&"damaged".into(), None, None).await.unwrap().repeated);
    let (swept, _) = stage.sweep_on(&worker, &store.clone().into(), SweepScope::Everything).await.unwrap();
    assert_eq!(swept.failed, 0, "{swept:?}");
    assert_eq!(store.list_pending(None, None).await.unwrap().items, [], "its row is gone");
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn an_invocation_that_a_build_cannot_read_is_not_put_aside_and_goes_on_with_one_that_can() {
    let (embedded, store) = store().await;
    let stage = Stage::default();
    let worker = stage.shipped_on(store.clone(), Mode::Stateless).unwrap();
    let start = FreshTurn::new(REMINDER, map(json!({ "text": "tea", "after": "PT1H" })));
    let turn = worker.turn(FreshTurn { invocation_id: Some("later".into()), ..start }).await;
    assert!(matches!(turn.outcome, TurnOutcome::Suspended(_)), "{turn:?}");
    // It is under way when the build before comes back.
    stage.hold_in(&*store, "later", Map::new(), std::time::Duration::from_secs(30)).await;
    let key = |name: &str| AttributeValue::S(name.to_owned());
    let get = embedded.client().get_item().table_name(TABLE);
    let get = get.key("pk", key("INVOCATION#later")).key("sk", key("PAUSED"));
    let written = get.send().await.unwrap().item.unwrap()["pause"].clone();
    damage(&embedded, "INVOCATION#later", "PAUSED", "pause").await;
    for _ in 0..limits::ATTEMPTS + 2 {
        stage.clock.advance(std::time::Duration::from_secs(2 * 3600));
        let (swept, turns) = stage.sweep_on(&worker, &store.clone().into(), SweepScope::Everything).await.unwrap();
        assert_eq!(swept.called, 1, "{swept:?}");
        assert!(matches!(turns[..], [TurnOutcome::Errored(_)]), "{turns:?}");
    }
    let update = embedded.client().update_item().table_name(TABLE).update_expression("SET pause = :written");
    let update = update.key("pk", key("INVOCATION#later")).key("sk", key("PAUSED"));
    update.expression_attribute_values(":written", written).send().await.unwrap();
    stage.clock.advance(std::time::Duration::from_secs(2 * 3600));
    let (_, turns) = stage.sweep_on(&worker, &store.clone().into(), SweepScope::Everything).await.unwrap();
    assert!(matches!(turns[..], [TurnOutcome::Completed(_)]), "{turns:?}");
    assert_eq!(store.put_aside().await.unwrap().ids, []);
    embedded.stop().await.unwrap();
}

/// Writes `value` over `attribute` of the item at `pk` and `sk`.
async fn overwrite(
    embedded: &EmbeddedDynamoDb,
    (pk, sk): (AttributeValue, AttributeValue),
    attribute: &str,
    value: &str,
) {
    let update = embedded.client().update_item().table_name(TABLE).key("pk", pk).key("sk", sk);
    let update =
        update.update_expression(format!("SET {attribute} = :value")).condition_expression("attribute_exists(pk)");
    update.expression_attribute_values(":value", AttributeValue::S(value.to_owned())).send().await.unwrap();
}

#[tokio::test]
async fn a_row_and_a_phase_that_cannot_be_read_keep_no_sweep_from_the_others() {
    let (embedded, store) = store().await;
    let stage = Stage::default();
    let worker = stage.shipped_on(store.clone(), Mode::Stateless).unwrap();
    for id in ["row", "phase", "sound"] {
        let start = FreshTurn::new(REMINDER, map(json!({ "text": "tea", "after": "PT1H" })));
        let turn = worker.turn(FreshTurn { invocation_id: Some(id.into()), ..start }).await;
        assert!(matches!(turn.outcome, TurnOutcome::Suspended(_)), "{turn:?}");
    }
    let items = embedded.client().scan().table_name(TABLE).send().await.unwrap().items.unwrap_or_default();
    let is_row = |item: &&HashMap<String, AttributeValue>| {
        let is = |name: &str, value: &str| item.get(name).is_some_and(|of| of.as_s().is_ok_and(|of| of == value));
        is("invocation_id", "row") && item["pk"].as_s().is_ok_and(|pk| pk.starts_with("PENDING#"))
    };
    let row = items.iter().find(is_row).unwrap();
    overwrite(&embedded, (row["pk"].clone(), row["sk"].clone()), "generation", "many").await;
    let paused = [AttributeValue::S("INVOCATION#phase".to_owned()), AttributeValue::S("PAUSED".to_owned())];
    overwrite(&embedded, paused.into(), "phase", "dreaming").await;
    let (mut listed, mut cursor) = (0, None);
    loop {
        let page = store.list_pending(None, cursor.as_deref()).await.unwrap();
        listed += page.items.len();
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, 2);
    stage.clock.advance(std::time::Duration::from_secs(2 * 3600));
    for (scope, called) in [(SweepScope::Due, 1), (SweepScope::Everything, 0)] {
        let (swept, _) = stage.sweep_on(&worker, &store.clone().into(), scope).await.unwrap();
        assert_eq!(swept.called, called, "{scope:?}: {swept:?}");
        assert!(swept.failed >= 1, "it is counted: {swept:?}");
    }
    let sound = store.load_invocation(&"sound".into()).await.unwrap().unwrap();
    assert!(matches!(sound.status, InvocationStatus::Completed { .. }), "{sound:?}");
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_claim_whose_end_cannot_be_read_keeps_no_sweep_from_the_others() {
    let (embedded, store) = store().await;
    let stage = Stage::default();
    let worker = stage.shipped_on(store.clone(), Mode::Stateless).unwrap();
    for id in ["damaged", "sound"] {
        let start = FreshTurn::new(REMINDER, map(json!({ "text": "tea", "after": "PT1H" })));
        let turn = worker.turn(FreshTurn { invocation_id: Some(id.into()), ..start }).await;
        assert!(matches!(turn.outcome, TurnOutcome::Suspended(_)), "{turn:?}");
        stage.hold_in(&*store, id, Map::new(), std::time::Duration::from_secs(30)).await;
    }
    stage.outlive_leases();
    let damaged = [AttributeValue::S("INVOCATION#damaged".to_owned()), AttributeValue::S("PAUSED".to_owned())];
    overwrite(&embedded, damaged.into(), "held_until", "soon").await;
    let (swept, _) = stage.sweep_on(&worker, &store.clone().into(), SweepScope::Everything).await.unwrap();
    assert_eq!((swept.called, swept.expired_claims), (1, 1), "{swept:?}");
    assert!(swept.failed >= 1, "it is counted: {swept:?}");
    embedded.stop().await.unwrap();
}

/// Waits for an event.
fn awaiting() -> Arc<CompiledGraph> {
    let schema = StateSchema::new().field("answer", Field::new(FieldType::Str, ""));
    let graph = GraphBuilder::new("awaiting", schema).entry("ask").function("ask", |_: State| async {
        let event = json!({ "pattern": { "source": ["jobs"] }, "correlation": "$.detail.id" });
        Err::<Update, _>(suspend(SignalDescriptor::new("s1").with("event", event)).await)
    });
    Arc::new(graph.edge("ask", END).compile().unwrap())
}

#[tokio::test]
async fn an_invocation_that_was_put_aside_and_cannot_be_read_keeps_its_rule_and_ends_no_sweep() {
    let (embedded, store) = store().await;
    let stage = Stage::default();
    let worker = stage.harness_on(store.clone(), Mode::Stateless, [awaiting()]);
    let start = FreshTurn { invocation_id: Some("damaged".into()), ..FreshTurn::new("awaiting", map(json!({}))) };
    assert!(matches!(worker.turn(start).await.outcome, TurnOutcome::Suspended(_)));
    for _ in 0..limits::ATTEMPTS {
        let lasting = std::time::Duration::from_secs(30);
        stage.hold_in(&*store, "damaged", map(json!({ "answer": "yes" })), lasting).await;
        stage.outlive_leases();
    }
    stage.sweep_on(&worker, &store.clone().into(), SweepScope::Everything).await.unwrap();
    assert_eq!(store.put_aside().await.unwrap().ids, ["damaged".into()]);
    damage(&embedded, "INVOCATION#damaged", "PAUSED", "pause").await;
    worker.turn(Transmission::signal("early", Map::new())).await;
    let rules = stage.subscriptions.rules();
    assert_eq!(rules.len(), 1);
    for _ in 0..4 {
        // Longer than a rule stays that nobody needs.
        stage.clock.advance(std::time::Duration::from_secs(2 * 3600));
        let (swept, _) = stage.sweep_on(&worker, &store.clone().into(), SweepScope::Everything).await.unwrap();
        assert_eq!((swept.failed, swept.unclaimed_signals), (1, 1), "it is counted, and the sweep goes on: {swept:?}");
    }
    assert_eq!(stage.subscriptions.rules(), rules, "it may need it when it can be read again");
    assert!(store.rule_entries().await.unwrap().iter().all(|entry| entry.idle_since.is_none()));
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn an_invocation_that_sleeps_in_a_phase_of_another_build_keeps_its_rule() {
    let (embedded, store) = store().await;
    let stage = Stage::default();
    let worker = stage.harness_on(store.clone(), Mode::Stateless, [awaiting()]);
    let start = FreshTurn { invocation_id: Some("later".into()), ..FreshTurn::new("awaiting", map(json!({}))) };
    assert!(matches!(worker.turn(start).await.outcome, TurnOutcome::Suspended(_)));
    let paused = [AttributeValue::S("INVOCATION#later".to_owned()), AttributeValue::S("PAUSED".to_owned())];
    overwrite(&embedded, paused.into(), "phase", "dreaming").await;
    let rules = stage.subscriptions.rules();
    assert_eq!(rules.len(), 1);
    for _ in 0..4 {
        // Longer than a rule stays that nobody needs.
        stage.clock.advance(std::time::Duration::from_secs(2 * 3600));
        let (swept, _) = stage.sweep_on(&worker, &store.clone().into(), SweepScope::Everything).await.unwrap();
        assert!(swept.failed >= 1, "it is counted: {swept:?}");
    }
    assert_eq!(stage.subscriptions.rules(), rules, "its event may come when it can be read again");
    assert!(store.rule_entries().await.unwrap().iter().all(|entry| entry.idle_since.is_none()));
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_parked_signal_and_an_entry_of_a_rule_that_cannot_be_read_keep_no_sweep_from_the_rest() {
    let (embedded, store) = store().await;
    let stage = Stage::default();
    let worker = stage.harness_on(store.clone(), Mode::Stateless, [awaiting()]);
    assert!(matches!(worker.turn(FreshTurn::new("awaiting", map(json!({})))).await.outcome, TurnOutcome::Suspended(_)));
    stage.sweep_on(&worker, &store.clone().into(), SweepScope::Everything).await.unwrap();
    let before = store.note("ground").await.unwrap();
    for early in ["damaged", "sound"] {
        let parked = worker.turn(Transmission::signal(early, Map::new())).await.outcome;
        assert!(matches!(parked, TurnOutcome::Buffered { .. }), "{parked:?}");
    }
    let key = |name: &str| AttributeValue::S(name.to_owned());
    overwrite(&embedded, (key("SIGNAL#damaged"), key("SIGNAL")), "phase", "dreaming").await;
    let entry = store.rule_entries().await.unwrap().remove(0);
    overwrite(&embedded, (key("RULES"), key(entry.shape.as_str())), "touches", "many").await;
    let rules = stage.subscriptions.rules();
    assert_eq!(rules.len(), 1);
    stage.clock.advance(std::time::Duration::from_secs(2 * 3600));
    for _ in 0..2 {
        let (swept, _) = stage.sweep_on(&worker, &store.clone().into(), SweepScope::Everything).await.unwrap();
        assert_eq!((swept.failed, swept.unclaimed_signals), (2, 1), "both are counted: {swept:?}");
    }
    assert_ne!(store.note("ground").await.unwrap(), before, "the sweep came to its end");
    assert_eq!(stage.subscriptions.rules(), rules, "it may be the rule of the entry");
    let parked = dormouse_maintenance::parked_signals(&worker, &store.clone().into()).await.unwrap();
    assert_eq!(parked.iter().map(|one| one.signal_id.as_str()).collect::<Vec<_>>(), ["sound"]);
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn lists_and_streams_pass_over_what_cannot_be_read() {
    let (embedded, store) = store().await;
    for n in 1..=3_u64 {
        let listed = vec![Listed::new("all", n.to_string())];
        let key = DocumentKey::new("note", n.to_string());
        let write = DocumentWrite { key, expect: 0, body: Some(map(json!({ "n": n }))), listed, expires_at: None };
        let entries = vec![map(json!({ "n": n })); 2];
        let append = Append {
            stream: "s".to_owned(),
            end: StreamEnd::Store,
            first: 2 * n - 1,
            entries,
            fed: Some(Fed::to("feed")),
        };
        store.commit(&tell(&n.to_string(), Journal::new(vec![write], vec![append]))).await.unwrap();
    }
    damage(&embedded, "DOCUMENT#note#2", "DOCUMENT", "body").await;
    damage(&embedded, "STREAM#s", "00000000000000000004", "entries").await;
    let now = Timestamp::UNIX_EPOCH;
    let list = ListRequest {
        list: "all".to_owned(),
        after: None,
        limit: 10,
        newest_first: false,
        now,
        breadth: Breadth::Narrow,
    };
    let page = store.documents(&list).await.unwrap();
    assert_eq!(page.items.iter().map(|one| one.key.id.as_str()).collect::<Vec<_>>(), ["1", "3"]);
    let alone = store.document(&DocumentKey::new("note", "2"), now).await;
    assert!(matches!(alone, Err(StoreError::Corrupt(_))), "who asks for that one is told: {alone:?}");
    let entries = store.entries("s", 0, 10).await.unwrap();
    let told: Vec<_> = entries.iter().map(|one| (one.position, one.entry.is_empty())).collect();
    assert_eq!(told, [(1, false), (2, false), (3, true), (4, true), (5, false), (6, false)], "no gap looks like none");
    assert_eq!(entries[2].entry, Map::new());
    let feed = "feed".to_owned();
    let until = Timestamp::MAX;
    let request = FeedRequest { feed, labels: None, after: None, until, limit: 10 };
    assert_eq!(store.feed(&request).await.unwrap().appends.len(), 3);
    embedded.stop().await.unwrap();
}
