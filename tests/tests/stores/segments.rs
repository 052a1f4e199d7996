//! Lists that only grow on DynamoDB: what a save writes, what a load reads, and what a crash leaves behind.

use std::collections::{BTreeMap, HashMap};

use crate::faults::{Fault, Faults};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_aws::{DynamoDbStateStore, Meter, RetryPolicy, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    Commit, CommitError, Commits, GrowingLists, InvocationId, InvocationWrite, Invocations, Journal, LoadedSession,
    Map, PausedInvocation, SessionExpectation, SessionWrite, Sessions, SignalDescriptor, StoreError, StoredList,
    SuspendFrom,
};
use jiff::Timestamp;
use serde_json::json;

const TABLE: &str = "dormouse";

struct Bench {
    embedded: EmbeddedDynamoDb,
    meter: Meter,
    faults: Faults,
    store: DynamoDbStateStore,
}

async fn bench(config: StoreConfig) -> Bench {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&embedded.client(), TABLE).await.expect("the table is made");
    let meter = Meter::with_units();
    let faults = Faults::default();
    let config_of_client = embedded.config().interceptor(meter.clone()).interceptor(faults.clone());
    let store = DynamoDbStateStore::new(&Client::from_conf(config_of_client.build()), TABLE, config);
    Bench { embedded, meter, faults, store }
}

/// `count` messages of about 400 bytes, a third of which no compression makes smaller than half.
fn talk(count: usize) -> Map {
    let noise =
        |n: usize, k: usize| format!("{:016x}", (8 * n + k).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let message = |n: usize| {
        let noise: String = (0..8).map(|k| noise(n, k)).collect();
        json!({"role": "user", "content": format!("{noise} {}", "of many words ".repeat(16))})
    };
    Map::from_iter([("messages".to_owned(), (0..count).map(message).collect::<Vec<_>>().into())])
}

fn save(id: &str, version: u64, state: Map, stored: &[StoredList]) -> Commit {
    let write = SessionWrite {
        session_id: "session-1".into(),
        save: Some((state.into(), "1".to_owned())),
        expect: SessionExpectation::Version(version),
        lease: None,
        release: false,
    };
    let growing = GrowingLists { fields: vec!["messages".into()], stored: stored.to_vec() };
    Commit {
        id: id.to_owned(),
        now: Timestamp::UNIX_EPOCH,
        session: Some(write),
        invocation: None,
        journal: Journal::default(),
        growing,
    }
}

impl Bench {
    async fn load(&self) -> Result<LoadedSession, StoreError> {
        self.store.load_session(&"session-1".into(), None).await
    }

    /// What the store tells of the lists of the session, which has `count` messages.
    async fn stored(&self, count: usize) -> Vec<StoredList> {
        let loaded = self.load().await.expect("an answer");
        assert!(loaded.record.expect("it is there").state == talk(count), "{count} messages");
        loaded.stored
    }

    /// Requests and units since the last time, by operation.
    fn spent(&self) -> BTreeMap<String, (u64, f64)> {
        let spent = self.meter.snapshot().into_iter().map(|(name, usage)| (name, (usage.requests, usage.units)));
        let spent = spent.collect();
        self.meter.reset();
        spent
    }

    /// The sort keys of all pieces.
    async fn pieces(&self) -> Vec<String> {
        let scan = self.embedded.client().scan().table_name(TABLE).into_paginator().items().send();
        let items = scan.collect::<Result<Vec<_>, _>>().await.expect("a listing");
        let keys = items.iter().filter_map(|item| item["sk"].as_s().ok());
        keys.filter(|sk| sk.starts_with("SEGMENT#")).cloned().collect()
    }

    async fn remove(&self, sk: &str) {
        let key = [("pk", "SESSION#session-1"), ("sk", sk)];
        let key: HashMap<_, _> = key.map(|(k, v)| (k.to_owned(), AttributeValue::S(v.to_owned()))).into();
        self.embedded.client().delete_item().table_name(TABLE).set_key(Some(key)).send().await.expect("it is gone");
    }
}

#[tokio::test]
async fn appending_costs_the_same_however_long_the_list_is() {
    for count in [20, 100, 1_000, 10_000] {
        let bench = bench(StoreConfig::default()).await;
        bench.store.commit(&save("first", 0, talk(count), &[])).await.expect("it is saved");
        let stored = bench.stored(count).await;
        bench.spent();
        bench.store.commit(&save("second", 1, talk(count + 2), &stored)).await.expect("it is saved");
        let expected = BTreeMap::from([("TransactWriteItems".to_owned(), (1, 4.0))]);
        assert_eq!(bench.spent(), expected, "{count} messages: a head and a piece, each under 1 KB, in a transaction");
        bench.stored(count + 2).await;
        assert_eq!(bench.spent()["Query"].0, 1, "{count} messages: one page");
    }
}

#[tokio::test]
async fn who_tells_what_is_waited_for_reads_no_list_of_it() {
    let bench = bench(StoreConfig::default()).await;
    let ids = [1, 2, 3, 4, 5].map(|number| InvocationId::from(format!("run-{number}")));
    for id in &ids {
        let paused = PausedInvocation {
            generation: 1,
            descriptor: SignalDescriptor::new(format!("{id}-approved").as_str()),
            state: talk(100).into(),
            ..PausedInvocation::before_first_pause(id.clone(), "g", Timestamp::UNIX_EPOCH)
        };
        let paused = Box::new(paused);
        let write = InvocationWrite::Suspend { paused, from: SuspendFrom::Fresh, claim: None, early: Vec::new() };
        let growing = GrowingLists { fields: vec!["messages".into()], stored: Vec::new() };
        let commit = Commit { invocation: Some(write), growing, ..Commit::new(id.as_str(), Timestamp::UNIX_EPOCH) };
        bench.store.commit(&commit).await.expect("it sleeps");
    }
    bench.spent();
    let whole = bench.store.load_invocations(&ids).await.expect("an answer");
    assert_eq!(bench.spent()["Query"].0, 5, "a list of each");
    let told = bench.store.load_pauses(&ids).await.expect("an answer");
    let spent = bench.spent();
    assert_eq!((spent.len(), spent["BatchGetItem"].0), (1, 1), "one request, and no other: {spent:?}");
    for (whole, told) in whole.into_iter().zip(told) {
        let [whole, told] = [whole, told].map(|record| record.expect("it can be read").expect("it is there"));
        let [all, none] = [&whole, &told].map(|record| record.paused.state.get("messages").cloned());
        assert_eq!((all, none), (talk(100).get("messages").cloned(), Some(json!([]))));
        assert_eq!((whole.status, whole.paused.descriptor), (told.status, told.paused.descriptor));
    }
}

#[tokio::test]
async fn tails_are_written_again_as_blocks_and_read_no_more() {
    let bench = bench(StoreConfig::default()).await;
    let mut stored = Vec::new();
    let mut tails_read = 0;
    for version in 0..100 {
        let count = 20 + 3 * usize::try_from(version).expect("a small number");
        bench.store.commit(&save(&version.to_string(), version, talk(count), &stored)).await.expect("it is saved");
        stored = bench.stored(count).await;
        tails_read = tails_read.max(stored[0].count - stored[0].merged);
    }
    let pieces = bench.pieces().await;
    let blocks = pieces.iter().filter(|sk| sk.starts_with("SEGMENT#messages#1#")).count();
    assert!((1..=2).contains(&blocks), "about 120 KB of JSON make a block or two: {pieces:?}");
    assert!(tails_read < 200, "{tails_read} messages were in tails: more than 64 KB");
}

#[tokio::test]
async fn an_item_that_is_larger_than_an_item_may_be_survives() {
    let bench = bench(StoreConfig::default()).await;
    let mut dice = 1_u64;
    let noise = std::iter::repeat_with(|| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{dice:016x}")
    });
    let state = Map::from_iter([("messages".to_owned(), json!(["small", noise.take(60_000).collect::<String>()]))]);
    bench.store.commit(&save("large", 0, state.clone(), &[])).await.expect("it is saved");
    let loaded = bench.load().await.expect("an answer");
    assert!(loaded.record.expect("it is there").state == state);
}

#[tokio::test]
async fn a_head_of_before_is_read_and_grows_into_pieces() {
    let bench = bench(StoreConfig { whole_limit: usize::MAX, ..StoreConfig::default() }).await;
    bench.store.commit(&save("old", 0, talk(50), &[])).await.expect("it is saved whole");
    assert_eq!(bench.stored(50).await, []);
    let present = DynamoDbStateStore::new(&bench.embedded.client(), TABLE, StoreConfig::default());
    present.commit(&save("new", 1, talk(52), &[])).await.expect("it is saved");
    assert_eq!(bench.stored(52).await.len(), 1, "a store of any configuration reads it");
}

#[tokio::test]
async fn what_a_crash_leaves_between_pieces_and_head_harms_nobody() {
    // Pieces of more than this go ahead of the transaction.
    let config = StoreConfig {
        inline_limit: 64,
        retry: RetryPolicy { attempts: 1, ..RetryPolicy::default() },
        ..StoreConfig::default()
    };
    let bench = bench(config).await;
    bench.store.commit(&save("first", 0, talk(50), &[])).await.expect("it is saved");
    let stored = bench.stored(50).await;
    let before = bench.pieces().await;
    bench.faults.script("UpdateItem", [Fault::throttled()]);
    let lost = bench.store.commit(&save("lost", 1, talk(60), &stored)).await;
    assert!(matches!(lost, Err(CommitError::Store(StoreError::Unavailable(_)))), "{lost:?}");
    assert!(bench.pieces().await.len() > before.len(), "an orphan");
    assert_eq!(bench.stored(50).await, stored, "nothing refers to it");
    bench.store.commit(&save("other", 1, talk(55), &stored)).await.expect("it is saved");
    let stored = bench.stored(55).await;
    bench.store.commit(&save("same", 2, talk(60), &stored)).await.expect("it is saved");
    bench.stored(60).await;
}

#[tokio::test]
async fn a_save_that_conflicted_and_whose_answer_was_lost_happened_once() {
    let bench = bench(StoreConfig::default()).await;
    bench.store.commit(&save("first", 0, talk(50), &[])).await.expect("it is saved");
    let stored = bench.stored(50).await;
    let conflict = Fault::canceled(&["None", "TransactionConflict"]);
    bench.faults.script("TransactWriteItems", [conflict, Fault::lost()]);
    bench.store.commit(&save("second", 1, talk(52), &stored)).await.expect("it happened");
    assert_eq!(bench.faults.left(), 0);
    bench.stored(52).await;
}

#[tokio::test]
async fn a_missing_piece_is_said_and_not_skipped() {
    let bench = bench(StoreConfig::default()).await;
    bench.store.commit(&save("first", 0, talk(50), &[])).await.expect("it is saved");
    let stored = bench.stored(50).await;
    bench.store.commit(&save("second", 1, talk(52), &stored)).await.expect("it is saved");
    for sk in bench.pieces().await.into_iter().filter(|sk| sk.contains("#0000000050#")).take(1) {
        bench.remove(&sk).await;
    }
    let loaded = bench.load().await;
    assert!(matches!(&loaded, Err(StoreError::Corrupt(reason)) if reason.contains("messages")), "{loaded:?}");
    bench.store.commit(&save("whole", 2, talk(53), &[])).await.expect("a save that knows nothing mends it");
    bench.stored(53).await;
}

/// Of another beginning only the digest tells: each edit must be seen, whichever bits of the digest it changes.
#[tokio::test]
async fn a_list_whose_beginning_was_changed_is_written_anew() {
    let bench = bench(StoreConfig::default()).await;
    bench.store.commit(&save("0", 0, talk(30), &[])).await.expect("it is saved");
    let mut stored = bench.stored(30).await;
    for edit in 1..=128 {
        // As long as before, and once in a while longer.
        let mut state = talk(30 + edit / 16);
        state["messages"][3]["content"] = format!("edited, {edit} times").into();
        let version = u64::try_from(edit).expect("a small number");
        bench.store.commit(&save(&edit.to_string(), version, state.clone(), &stored)).await.expect("it is saved");
        let loaded = bench.load().await.expect("an answer");
        assert!(loaded.record.expect("it is there").state == state, "edit {edit}");
        stored = loaded.stored;
    }
}
