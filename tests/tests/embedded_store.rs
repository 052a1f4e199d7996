//! The embedded store keeps what it is given, and forgets what has expired.

use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType};
use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    BufferedSignal, Commit, Commits, GrowingLists, Journal, Map, SessionExpectation, SessionWrite, Sessions, Signals,
    Sleepers,
};
use jiff::{SignedDuration, Timestamp};

const TABLE: &str = "dormouse";

async fn store(embedded: &EmbeddedDynamoDb) -> DynamoDbStateStore {
    ensure_table(&embedded.client(), TABLE).await.expect("the table is there, made before or now");
    DynamoDbStateStore::new(&embedded.client(), TABLE, StoreConfig::default())
}

#[tokio::test]
async fn data_in_a_folder_survive_a_restart_and_so_does_the_memory_of_a_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = StoreLocation::Folder(folder.path().join("state"));
    let write = |id: &str| SessionWrite {
        session_id: id.into(),
        save: Some((Map::new(), "1".to_owned())),
        expect: SessionExpectation::Any,
        lease: None,
        release: false,
    };
    let commit = Commit {
        id: "c1".to_owned(),
        now: Timestamp::UNIX_EPOCH,
        session: Some(write("s1")),
        invocation: None,
        journal: Journal::default(),
        growing: GrowingLists::default(),
    };
    for round in 0..3 {
        let embedded = EmbeddedDynamoDb::start(&place).await.expect("the store starts");
        let store = store(&embedded).await;
        // Request tokens are forgotten with the process, as DynamoDB forgets them after ten minutes.
        store.commit(&commit).await.expect("the same commit is a success in every round");
        let loaded = store.load_session(&"s1".into(), None).await.expect("an answer");
        assert_eq!(loaded.record.map(|record| record.version), Some(1), "round {round}");
        drop(store);
        embedded.stop().await.expect("it stops");
    }
}

#[tokio::test]
async fn a_table_of_the_first_versions_gets_what_it_lacks() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let client = embedded.client();
    let key = |name: &str, role| KeySchemaElement::builder().attribute_name(name).key_type(role).build();
    let text = |name: &str| AttributeDefinition::builder().attribute_name(name).attribute_type("S".into()).build();
    let table = client.create_table().table_name(TABLE).billing_mode(BillingMode::PayPerRequest);
    let table = table.key_schema(key("pk", KeyType::Hash).expect("a key"));
    let table = table.key_schema(key("sk", KeyType::Range).expect("a key"));
    let table = table.attribute_definitions(text("pk").expect("an attribute"));
    table.attribute_definitions(text("sk").expect("an attribute")).send().await.expect("an old table");
    let old = DynamoDbStateStore::new(&client, TABLE, StoreConfig::default());
    assert!(old.dead_claims(Timestamp::now()).await.is_err(), "the index of claims is missing");
    for _ in 0..2 {
        let store = store(&embedded).await;
        assert_eq!(store.dead_claims(Timestamp::now()).await.expect("an answer"), []);
    }
}

#[tokio::test]
async fn what_has_expired_is_swept() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let hour = SignedDuration::from_hours(1);
    for (id, expires_at) in [("old", Timestamp::now() - hour), ("young", Timestamp::now() + hour)] {
        let signal = BufferedSignal { payload: Map::new(), sender: None, received_at: expires_at - hour, expires_at };
        store.buffer_signal(&id.into(), &signal).await.expect("an answer");
    }
    assert_eq!(embedded.sweep().await.expect("it sweeps"), 2, "the signal, and the row that counts it");
    let early = Timestamp::UNIX_EPOCH;
    assert_eq!(store.load_signal(&"old".into(), early).await.expect("an answer"), None);
    assert!(store.load_signal(&"young".into(), early).await.expect("an answer").is_some());
}
