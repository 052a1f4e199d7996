//! What is refused: each with its status and category, and nothing written.

use dormouse_ports::Category;
use serde_json::json;

use crate::world::{BODY, PAYLOAD, World, header, refused, request};

const TURNS: &str = "/graphs/approval/turns";

#[tokio::test]
async fn a_turn_that_cannot_be_read_is_refused_and_nothing_is_written() {
    let world = World::new();
    let before = world.written();
    let graph = world.post("/graphs/nothing/turns", &json!({})).await;
    assert!(refused(&graph, 404, &Category::GraphUnknown).contains("approval"));
    let bodies: [(&[u8], &str); 8] = [
        (b"{\"state\": }", "line 1 column 11"),
        (b"[]", "not an array"),
        (b"{\"state\": 1}", "field `state`"),
        (b"{\"session_id\": 5}", "field `session_id`"),
        (b"{\"intent\": \"signal_resume\"}", "field `intent`"),
        (b"{\"stat\": {}}", "unknown field `stat`"),
        (b"{\"invocation_id\": \"two words\"}", "`invocation_id`"),
        (b"\xff", "UTF-8"),
    ];
    for (body, expected) in bodies {
        let answer = world.http(request("POST", TURNS, body)).await;
        let message = refused(&answer, 400, &Category::RequestInvalid);
        assert!(message.contains(expected), "{message}");
    }
    let untyped = world.post(TURNS, &json!({ "state": { "amount": "a lot" } })).await;
    assert!(refused(&untyped, 422, &Category::StateValidationError).contains("amount"));
    assert_eq!(untyped.body["error"]["user_action_required"], true);
    let plain = world.http(dormouse_http::Request { headers: Vec::new(), ..request("POST", TURNS, b"{}") });
    refused(&plain.await, 415, &Category::RequestInvalid);
    assert_eq!(world.written(), before);
}

#[tokio::test]
async fn what_is_too_large_is_refused_with_the_limit() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let before = world.written();
    let turn = world.http(request("POST", TURNS, &[b' '; BODY + 1])).await;
    assert!(refused(&turn, 413, &Category::RequestTooLarge).contains("the limit is 4096 bytes"));
    let payload = world.http(request("POST", &callback, &[b' '; PAYLOAD + 1])).await;
    assert!(refused(&payload, 413, &Category::RequestTooLarge).contains("the limit is 256 bytes"));
    assert_eq!(world.written(), before);
}

/// What is nested more deeply than anybody reads is stored nowhere, by whichever way it comes.
#[tokio::test]
async fn what_is_nested_too_deeply_is_refused_at_every_entry() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let before = world.written();
    let nested = format!("{}{}", "[".repeat(64), "]".repeat(64));
    let bodies = [
        (TURNS, format!(r#"{{"state": {nested}}}"#)),
        ("/chat/chat/sessions/s/messages", format!(r#"{{"role": "user", "content": {nested}}}"#)),
        (&callback, format!(r#"{{"decision": {nested}}}"#)),
    ];
    for (path, body) in bodies {
        let answer = world.http(request("POST", path, body.as_bytes())).await;
        let message = refused(&answer, 400, &Category::RequestInvalid);
        assert!(message.contains("deeper than 64 levels"), "{path}: {message}");
    }
    let nested: serde_json::Value = serde_json::from_str(&nested).unwrap();
    let signal = world.signal("o1", &json!({ "decision": nested })).await;
    assert!(refused(&signal, 400, &Category::RequestInvalid).contains("deeper than 64 levels"));
    let event = json!({ "dormouse_signal": { "signal_id": "o1", "payload": { "decision": nested } } });
    let aside = world.app.event(event, None).await.expect_err("it is put aside");
    assert!(aside.to_string().contains("deeper than 64 levels"), "{aside}");
    assert_eq!(world.written(), before);
}

/// What could be kept and not be read again would end what waits for it for good.
#[tokio::test]
async fn names_that_could_not_be_read_again_are_refused_at_every_entry() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let before = world.written();
    let unreadable = r#"{"$serde_json::private::RawValue": "no JSON"}"#;
    let bodies = [
        (TURNS, format!(r#"{{"state": {unreadable}}}"#)),
        ("/chat/chat/sessions/s/messages", format!(r#"{{"role": "user", "content": {unreadable}}}"#)),
        (&callback, format!(r#"{{"decision": {unreadable}}}"#)),
    ];
    for (path, body) in bodies {
        let answer = world.http(request("POST", path, body.as_bytes())).await;
        let message = refused(&answer, 400, &Category::RequestInvalid);
        assert!(message.contains("names of JSON must not begin with"), "{path}: {message}");
    }
    let unreadable = json!({ "$serde_json::private::RawValue": "no JSON" });
    let event = json!({ "dormouse_signal": { "signal_id": "o1", "payload": { "decision": unreadable } } });
    let aside = world.app.event(event, None).await.expect_err("it is put aside");
    assert!(aside.to_string().contains("names of JSON must not begin with"), "{aside}");
    assert_eq!(world.written(), before);
}

#[tokio::test]
async fn paths_and_methods_are_checked() {
    let world = World::new();
    refused(&world.get("/graphs/nothing").await, 404, &Category::NotFound);
    let answer = world.get(TURNS).await;
    refused(&answer, 405, &Category::RequestInvalid);
    assert_eq!(header(&answer, "allow"), Some("POST, OPTIONS"));
}

#[tokio::test]
async fn sessions_are_named_where_there_are_some() {
    let world = World::new();
    let before = world.written();
    let missing = world.post("/graphs/chat/turns", &json!({ "intent": "existing_session" })).await;
    refused(&missing, 422, &Category::HarnessSessionIdUnresolved);
    let superfluous = world.post(TURNS, &json!({ "session_id": "s" })).await;
    refused(&superfluous, 400, &Category::RequestInvalid);
    assert_eq!(world.written(), before);
}

#[tokio::test]
async fn a_wrong_token_and_an_unknown_invocation_look_the_same() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let stranger = world.asleep("o2").await;
    let before = world.written();
    let token = callback.split_once("token=").expect("a token").1;
    let foreign = stranger.split_once("token=").expect("a token").1;
    let mut answers = Vec::new();
    for target in [
        "o1".to_owned(),
        "o1?token=".to_owned(),
        "o1?token=AAAA".to_owned(),
        format!("o1?token={foreign}"),
        format!("o1?token={token}&token={token}"),
        format!("unknown?token={token}"),
    ] {
        for (method, path) in [("POST", "callback"), ("GET", "invocations")] {
            let answer = world.http(request(method, &format!("/{path}/{target}"), b"")).await;
            refused(&answer, 404, &Category::NotFound);
            answers.push(answer.body);
        }
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    // The body of a stranger is not even looked at.
    let garbage = world.http(request("POST", "/callback/o1?token=AAAA", b"{")).await;
    assert_eq!(garbage.body, answers[0]);
    assert_eq!((world.written(), world.continuations()), (before, 0));
}

#[tokio::test]
async fn a_token_for_what_was_never_stored_finds_nothing() {
    let world = World::new();
    // Signed by us, but the store has forgotten it: another process with the same secret signed it.
    let other = World::new();
    let callback = other.asleep("gone").await;
    let before = world.written();
    refused(&world.post(&callback, &json!({})).await, 404, &Category::NotFound);
    let status = callback.replace("/callback/", "/invocations/");
    refused(&world.get(&status).await, 404, &Category::NotFound);
    assert_eq!(world.written(), before);
}

#[tokio::test]
async fn signals_need_the_key() {
    let world = World::new();
    world.asleep("o1").await;
    let before = world.written();
    for presented in [None, Some("Bearer wrong"), Some("Basic open-sesame-open-sesame"), Some("Bearer")] {
        let mut request = request("POST", "/signals/approval-o1", b"{}");
        request.headers.extend(presented.map(|value| ("authorization".to_owned(), value.to_owned())));
        let answer = world.http(request).await;
        refused(&answer, 401, &Category::Unauthorized);
        assert!(header(&answer, "www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
    }
    assert_eq!((world.written(), world.continuations()), (before, 0));
}

#[tokio::test]
async fn a_message_must_be_a_message_and_its_graph_a_chat() {
    let world = World::new();
    let before = world.written();
    let messages = "/chat/chat/sessions/s1/messages";
    let misshapen = world.post(messages, &json!({ "role": "robot", "content": "beep" })).await;
    refused(&misshapen, 422, &Category::ChatMessageShapeInvalid);
    assert_eq!(misshapen.body["reply"]["role"], "system");
    let message = json!({ "role": "user", "content": "hi" });
    let unknown = world.post("/chat/nothing/sessions/s1/messages", &message).await;
    let told = refused(&unknown, 404, &Category::GraphUnknown);
    assert!(told.contains("there are: ") && told.contains("over /v1"), "an agent of a folder may be meant: {told}");
    let no_chat = world.post("/chat/approval/sessions/s1/messages", &message).await;
    refused(&no_chat, 422, &Category::StateValidationError);
    assert_eq!(world.written(), before);
}
