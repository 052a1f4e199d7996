//! What an answer and a payload may set, for clients of the protocol.

use dormouse_harness::TurnOutcome;
use serde_json::{Value, json};

use crate::world::{World, ada, text};

fn answer(value: &Value) -> Value {
    json!({"kind": "input", "message": {"role": "user", "parts": [{"type": "json", "value": value}]}})
}

/// A task that waits for a decision about an expense: its path.
async fn waiting(world: &World, session: &str) -> String {
    let state = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    let body = json!({"persona_id": "persona_expense-approval", "input": state});
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await.unwrap();
    format!("/v1/tasks/{}", text(&task["id"]))
}

#[tokio::test]
async fn an_answer_that_says_more_or_less_than_was_asked_is_refused_and_changes_nothing() {
    let (world, session) = World::with_session().await;
    let task = waiting(&world, &session).await;
    for (value, names) in [
        (json!({"decision": "approved", "amount_cents": 1}), "amount_cents"),
        (json!({"approved": true, "result": "paid"}), "result"),
        (json!({"descision": "approved"}), "descision"),
        (json!({"decision": "timed_out"}), "decision"),
        (json!({"decided_by": "Grace"}), "decision"),
    ] {
        let refusal = world.refusal(ada(), "POST", &format!("{task}/messages"), answer(&value)).await;
        assert_eq!((refusal.status(), refusal.param()), (400, Some("message.parts")), "{value}");
        assert!(refusal.to_string().contains(&format!("`{names}`")), "{value}: {refusal}");
    }
}

#[tokio::test]
async fn what_a_permission_says_beside_its_verdict_is_no_mistake() {
    let (world, session) = World::with_session().await;
    let task = waiting(&world, &session).await;
    let value = json!({"outcome": "approved", "reason": "it is needed", "reviewer": "board", "metadata": {"a": 1}});
    world.post(&format!("{task}/messages"), answer(&value)).await;
    world.work().await.unwrap();
    assert_eq!(world.get(&task).await["status"], "COMPLETED");
}

#[tokio::test]
async fn nobody_decides_in_the_name_of_another() {
    for value in
        [json!({"approved": true, "decided_by": "Mallory"}), json!({"decision": "rejected", "decided_by": "Mallory"})]
    {
        let (world, session) = World::with_session().await;
        let task = waiting(&world, &session).await;
        world.post(&format!("{task}/messages"), answer(&value)).await;
        let TurnOutcome::Completed(turn) = world.work().await.unwrap() else { panic!("it completes") };
        assert_eq!(turn.state["decided_by"], "ada", "{value}");
    }
}

#[tokio::test]
async fn a_waiting_task_tells_what_it_accepts() {
    let (world, session) = World::with_session().await;
    let task = waiting(&world, &session).await;
    let events = world.get(&format!("{task}/events")).await;
    assert_eq!(find(&events, "accepts").unwrap()["required"], json!(["decision"]));
}

/// The value of the first field called `name` anywhere in `value`.
fn find<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(name).or_else(|| fields.values().find_map(|value| find(value, name))),
        Value::Array(items) => items.iter().find_map(|value| find(value, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[tokio::test]
async fn a_payload_sets_only_what_the_graph_takes() {
    let (world, session) = World::with_session().await;
    let state = json!({"employee": "Ada", "amount_cents": 12_000, "decision": "approved"});
    let body = json!({"persona_id": "persona_expense-approval", "input": state});
    let refusal = world.refusal(ada(), "POST", &format!("{session}/tasks"), body).await;
    assert_eq!(refusal.status(), 400);
    assert!(refusal.to_string().contains("`decision` cannot be set by a request"), "{refusal}");
}
