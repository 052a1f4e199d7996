//! What the graphs that ship wait for, as it is stored and shown: byte for byte what `fixtures/waits` holds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use dormouse_harness::{FreshTurn, Mode};
use dormouse_ports::Invocations;
use dormouse_tests::{Stage, map};
use serde_json::{Value, json};

/// The descriptor of the pause into which `graph` goes with `state`.
async fn wait_of(graph: &str, state: Value) -> String {
    let stage = Stage::default();
    let worker = stage.shipped_on(stage.store.clone(), Mode::Stateless).unwrap();
    let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new(graph, map(state)) };
    let turn = worker.turn(start).await;
    let record = stage.store.load_invocation(&"i".into()).await.unwrap();
    let record = record.unwrap_or_else(|| panic!("{graph} does not sleep: {turn:?}"));
    serde_json::to_string_pretty(&record.paused.descriptor).unwrap()
}

#[tokio::test]
async fn every_wait_of_a_graph_that_ships_is_stored_as_ever() {
    let expense = |more: Value| {
        let mut state = map(json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" }));
        state.extend(map(more));
        Value::Object(state)
    };
    let question = json!({ "messages": [{ "role": "user", "content": "Get me an approval." }] });
    let committee = json!(["joan", "mary"]);
    for (name, graph, state) in [
        ("expense-approval", "expense-approval", expense(json!({}))),
        ("expense-approval-with-an-end", "expense-approval", expense(json!({ "decide_within": "PT36H" }))),
        (
            "expense-approval-with-a-ladder",
            "expense-approval",
            expense(json!({ "decide_within": "P1W", "remind_after": "PT1H30M", "escalate_after": "P2DT12H" })),
        ),
        ("expense-approval-with-a-reminder", "expense-approval", expense(json!({ "remind_after": "PT1H" }))),
        ("export-job", "export-job", json!({ "dataset": "orders" })),
        ("purchase", "purchase", json!({ "item": "a lathe", "amount_cents": 120_000 })),
        (
            "purchase-with-an-end",
            "purchase",
            json!({ "item": "a lathe", "amount_cents": 5, "approvers": committee, "decide_within": "PT1H" }),
        ),
        ("reminder-at", "reminder", json!({ "text": "tea", "at": "2027-01-31T09:00:00Z" })),
        ("reminder-after", "reminder", json!({ "text": "tea", "after": "PT20S" })),
        ("chat", "chat", question),
    ] {
        let path = format!("{}/fixtures/waits/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(wait_of(graph, state).await, expected.trim_end(), "{name}");
    }
}
