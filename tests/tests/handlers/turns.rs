//! Turns and chats: what is answered.

use serde_json::json;

use crate::world::{World, header, path_of};

#[tokio::test]
async fn a_turn_that_waits_is_acknowledged_with_its_addresses() {
    let world = World::new();
    let body = json!({ "state": { "order": "o1", "amount": 7, "timeout": "PT1H" }, "invocation_id": "o1" });
    let answer = world.post("/graphs/approval/turns", &body).await;
    assert_eq!((answer.status, answer.body["status"].as_str()), (202, Some("suspended")), "{}", answer.body);
    assert_eq!(answer.body["invocation_id"], "o1");
    assert_eq!(answer.body["graph"], "approval");
    assert_eq!(answer.body["suspending_node"], "ask");
    assert_eq!(answer.body["waiting_for"]["signal_id"], "approval-o1");
    assert_eq!(answer.body["wake"]["due"]["at"], "2027-01-15T09:00:00Z");
    assert_eq!(answer.body["state"]["amount"], 7);
    assert_eq!(header(&answer, "location"), answer.body["status_url"].as_str());
    assert_eq!(header(&answer, "content-type"), Some("application/json"));
    let status = world.get(&path_of(&answer.body["status_url"])).await;
    assert_eq!((status.status, status.body["status"].as_str()), (200, Some("suspended")));
    assert_eq!(status.body["callback_url"], answer.body["callback_url"]);
}

#[tokio::test]
async fn a_repeated_turn_gets_the_answer_again() {
    let world = World::new();
    let body = json!({ "state": { "order": "o1" }, "invocation_id": "o1" });
    let first = world.post("/graphs/approval/turns", &body).await;
    let again = world.post("/graphs/approval/turns", &body).await;
    assert_eq!((again.status, &again.body["repeated"]), (202, &json!(true)));
    assert_eq!(again.body["callback_url"], first.body["callback_url"]);
    assert_eq!(world.subscriptions.calls().len(), 1);
}

#[tokio::test]
async fn a_turn_that_ends_tells_its_state() {
    let world = World::new();
    let small = json!({ "state": { "employee": "Ada", "amount_cents": 900, "purpose": "tea" } });
    let answer = world.post("/graphs/expense-approval/turns", &small).await;
    assert_eq!((answer.status, answer.body["status"].as_str()), (200, Some("completed")), "{}", answer.body);
    assert_eq!(answer.body["state"]["employee"], "Ada");
    assert_eq!((&answer.body["repeated"], &answer.body["session_id"]), (&json!(false), &json!(null)));
}

#[tokio::test]
async fn a_sessioned_graph_is_given_a_session() {
    let world = World::new();
    let state = json!({ "state": { "messages": [{ "role": "user", "content": "hi" }] } });
    let first = world.post("/graphs/chat/turns", &state).await;
    let session_id = first.body["session_id"].as_str().expect("a session");
    let more = json!({ "state": state["state"], "session_id": session_id, "intent": "existing_session" });
    let second = world.post("/graphs/chat/turns", &more).await;
    assert_eq!(second.body["state"]["messages"].as_array().map(Vec::len), Some(4), "{}", second.body);
}

#[tokio::test]
async fn a_message_is_replied_to_or_waits() {
    let world = World::new();
    let messages = "/chat/chat/sessions/team/7/messages";
    let answer = world.post(messages, &json!({ "role": "user", "content": "hi" })).await;
    assert_eq!((answer.status, answer.body["replies"].as_array().map(Vec::len)), (200, Some(1)), "{}", answer.body);
    assert_eq!(answer.body["session_id"], "team/7");
    let wait = world.post(messages, &json!({ "role": "user", "content": "it needs approval" })).await;
    assert_eq!((wait.status, wait.body["status"].as_str()), (202, Some("suspended")), "{}", wait.body);
    assert_eq!(wait.body["pending_messages"].as_array().map(Vec::len), Some(1));
    let done = world.post(&path_of(&wait.body["callback_url"]), &json!({ "allowed": true })).await;
    assert_eq!((done.status, done.body["status"].as_str()), (200, Some("completed")), "{}", done.body);
    assert_eq!(done.body["session_id"], "team/7");
    assert_eq!(done.body["state"]["messages"].as_array().map(Vec::len), Some(5));
}

#[tokio::test]
async fn the_index_names_graphs_and_routes() {
    let world = World::new();
    let index = world.get("/").await;
    assert_eq!((index.status, index.body["name"].as_str()), (200, Some("dormouse")));
    let graphs = index.body["graphs"].as_array().expect("graphs");
    assert!(graphs.contains(&json!("approval")) && graphs.contains(&json!("chat")));
    assert_eq!(index.body["routes"].as_array().map(Vec::len), Some(7));
}

#[tokio::test]
async fn the_request_is_known_by_the_id_of_its_gateway() {
    let world = World::new();
    let mut request = crate::world::request("GET", "/", b"");
    request.headers.push(("x-request-id".to_owned(), "JKJaXmPLvHcESHA=".to_owned()));
    assert_eq!(header(&world.app.http(request).await, "x-request-id"), Some("JKJaXmPLvHcESHA="));
    assert!(header(&world.get("/").await, "x-request-id").is_some());
}
