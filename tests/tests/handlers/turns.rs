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
    let done = world.get(&path_of(&wait.body["status_url"])).await;
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
    assert_eq!(header(&world.http(request).await, "x-request-id"), Some("JKJaXmPLvHcESHA="));
    assert!(header(&world.get("/").await, "x-request-id").is_some());
}

/// A request with an idempotency key.
fn keyed(path: &str, key: &str, body: &serde_json::Value) -> dormouse_http::Request {
    let mut request = crate::world::request("POST", path, body.to_string().as_bytes());
    request.headers.push(("idempotency-key".to_owned(), key.to_owned()));
    request
}

#[tokio::test]
async fn a_message_with_a_key_is_taken_in_once() {
    let world = World::new();
    let messages = "/chat/chat/sessions/s1/messages";
    let hi = json!({ "role": "user", "content": "hi" });
    let first = world.http(keyed(messages, "k1", &hi)).await;
    let again = world.http(keyed(messages, "k1", &hi)).await;
    assert_eq!((first.status, again.status), (200, 200), "{}", again.body);
    assert_eq!(
        (&again.body["replies"], &again.body["final_state"]),
        (&first.body["replies"], &first.body["final_state"])
    );
    let other = world.http(keyed(messages, "k1", &json!({ "role": "user", "content": "bye" }))).await;
    crate::world::refused(&other, 409, &dormouse_ports::Category::IdempotencyKeyReused);
    let next = world.http(keyed(messages, "k2", &hi)).await;
    assert_eq!(next.body["final_state"]["messages"].as_array().map(Vec::len), Some(4), "{}", next.body);
}

#[tokio::test]
async fn a_turn_that_never_slept_is_answered_again_by_its_id_or_its_key() {
    let world = World::new();
    let turns = "/graphs/expense-approval/turns";
    let small = json!({ "employee": "Ada", "amount_cents": 900, "purpose": "tea" });
    let named = json!({ "state": small, "invocation_id": "e1" });
    for request in [
        || crate::world::request("POST", "/graphs/expense-approval/turns", b""),
        || keyed("/graphs/expense-approval/turns", "k1", &json!({})),
    ]
    .map(|request| request())
    {
        let by_key = request.header("idempotency-key").is_some();
        let body = if by_key { json!({ "state": small }) } else { named.clone() };
        let request = dormouse_http::Request { body: body.to_string().into_bytes(), ..request };
        let first = world.http(request.clone()).await;
        assert_eq!((first.status, &first.body["repeated"]), (200, &json!(false)), "{}", first.body);
        let again = world.http(request).await;
        assert_eq!((again.status, &again.body["repeated"]), (200, &json!(true)), "{}", again.body);
        assert_eq!(again.body["state"], first.body["state"]);
    }
    let both = keyed(turns, "k2", &named);
    crate::world::refused(&world.http(both).await, 400, &dormouse_ports::Category::RequestInvalid);
}

#[tokio::test]
async fn an_id_is_told_of_only_to_who_began_it() {
    let world = World::new();
    world.asleep("o1").await;
    let before = world.written();
    for body in [json!({ "invocation_id": "o1" }), json!({ "state": { "order": "o1" }, "invocation_id": "o1" })] {
        let answer = world.post("/graphs/approval/turns", &body).await;
        crate::world::refused(&answer, 409, &dormouse_ports::Category::InvocationIdInUse);
        assert!(answer.body["error"].get("state").is_none() && answer.body.get("callback_url").is_none());
    }
    for graph in ["expense-approval", "chat"] {
        let answer = world.post(&format!("/graphs/{graph}/turns"), &json!({ "invocation_id": "o1" })).await;
        crate::world::refused(&answer, 409, &dormouse_ports::Category::InvocationIdInUse);
    }
    for (path, body) in [
        ("/graphs/approval/turns", json!({ "invocation_id": "task_01" })),
        ("/graphs/chat/turns", json!({ "session_id": "session_01" })),
        ("/chat/chat/sessions/session_01/messages", json!({ "role": "user", "content": "hi" })),
    ] {
        let answer = world.post(path, &body).await;
        crate::world::refused(&answer, 400, &dormouse_ports::Category::RequestInvalid);
    }
    assert_eq!(world.written(), before);
}
