//! What is over is forgotten in time, and what is not never is: the expiry that items of the table carry.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;

use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_engine::{
    CompiledGraph, END, Field, FieldType, GraphBuilder, NodeError, State, StateSchema, Update, suspend,
};
use dormouse_harness::{FreshTurn, Harness, Mode, Transmission, TurnOutcome};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{Category, Clock, SignalDescriptor};
use dormouse_tests::{Stage, map, raw};
use serde_json::{Value, json};

/// Waits, and then ends as its answer says.
fn asking() -> Arc<CompiledGraph> {
    let schema = StateSchema::new().field("fails", Field::new(FieldType::Bool, false));
    let graph = GraphBuilder::new("asking", schema)
        .entry("ask")
        .function("ask", |_| async { Err(suspend(SignalDescriptor::new("s")).await) })
        .function("settle", async |state: State| match state.get("fails") {
            Some(Value::Bool(true)) => Err(NodeError::new("as it was told").with_category(Category::LimitExceeded)),
            _ => Ok(Update::none()),
        })
        .edge("ask", "settle")
        .edge("settle", END);
    Arc::new(graph.compile().unwrap())
}

async fn asleep(harness: &Harness, id: &str) {
    let start = FreshTurn { invocation_id: Some(id.into()), ..FreshTurn::new("asking", map(json!({}))) };
    assert!(matches!(harness.turn(start).await.outcome, TurnOutcome::Suspended(_)));
}

#[tokio::test]
async fn an_invocation_expires_when_it_is_over_and_not_before() {
    let stage = Stage::default();
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
    let client = embedded.client();
    ensure_table(&client, "dormouse").await.unwrap();
    let config = StoreConfig::default();
    let kept = config.finished_kept;
    let store = Arc::new(DynamoDbStateStore::new(&client, "dormouse", config));
    let harness = stage.harness_on(store, Mode::Stateless, [asking()]);
    for (id, answer) in [("completes", Some(json!({}))), ("fails", Some(json!({ "fails": true }))), ("cancels", None)] {
        asleep(&harness, id).await;
        match answer {
            Some(answer) => drop(harness.turn(Transmission::callback(id, None, map(answer))).await),
            None => drop(harness.cancel(&id.into(), None, None).await.unwrap()),
        }
    }
    asleep(&harness, "sleeps").await;
    let expires = (stage.clock.now() + kept).as_second().to_string();
    let mut seen = Vec::new();
    for item in raw::items(&client, "dormouse").await.iter().filter(|item| item.get("phase").is_some()) {
        let phase = item["phase"]["S"].as_str().unwrap().to_owned();
        match phase.as_str() {
            "completed" | "errored" | "canceled" => assert_eq!(item["ttl"]["N"], expires.as_str(), "{phase}"),
            "suspended" => assert_eq!(item.get("ttl"), None),
            _ => continue,
        }
        seen.push(phase);
    }
    seen.sort();
    assert_eq!(seen, ["canceled", "completed", "errored", "suspended"]);
}
