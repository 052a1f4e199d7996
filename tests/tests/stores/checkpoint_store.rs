//! What the checkpointer on DynamoDB leaves in the table.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use dormouse_aws::{DynamoDbCheckpointer, DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{CheckpointRecord, Checkpointer, InvocationId, Invocations, SaveSource};
use dormouse_tests::map;
use jiff::Timestamp;
use serde_json::json;

const TABLE: &str = "dormouse";

fn record(second: i64, words: usize) -> CheckpointRecord {
    // Digits of a root do not compress to nothing.
    let text: String = (1..words).map(|number| format!("{:.15}", (number as f64).sqrt())).collect();
    CheckpointRecord {
        invocation_id: InvocationId::from("i1"),
        correlation_id: "c".to_owned(),
        graph: "g".to_owned(),
        state: map(json!({ "text": text })),
        parent_states: Vec::new(),
        at: None,
        completed_positions: Vec::new(),
        fan_out_progress: Vec::new(),
        last_saved_at: Timestamp::from_second(second).unwrap(),
        schema_version: String::new(),
        session_version: None,
    }
}

async fn items(client: &aws_sdk_dynamodb::Client) -> usize {
    client.scan().table_name(TABLE).send().await.unwrap().items().len()
}

#[tokio::test]
async fn the_blob_of_a_replaced_record_goes_with_it() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
    let client = embedded.client();
    ensure_table(&client, TABLE).await.unwrap();
    let checkpointer = DynamoDbCheckpointer::new(&client, TABLE, StoreConfig::default());
    let save = async |record: &CheckpointRecord| checkpointer.save(record, SaveSource::Node).await.unwrap();
    // (instant, size) and how many items are there then: the record, and a chunk when it is large.
    for (second, words, expected) in [(1, 2000, 2), (2, 2000, 2), (2, 2000, 2), (1, 3000, 2), (3, 2, 1), (4, 2000, 2)] {
        save(&record(second, words)).await;
        assert_eq!(items(&client).await, expected, "after saving {words} words at {second}");
    }
    assert!(checkpointer.load(&"i1".into()).await.unwrap() == Some(record(4, 2000)));
    let store = DynamoDbStateStore::new(&client, TABLE, StoreConfig::default());
    assert!(store.load_invocation(&"i1".into()).await.unwrap().is_none(), "a checkpoint is no pause");
    checkpointer.delete(&"i1".into()).await.unwrap();
    assert_eq!(items(&client).await, 0);
}
