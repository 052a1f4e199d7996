//! A2A: what is no request of it, and what its clients are told; `tests/api/clients.py` has the rest.

use std::time::Duration;

use dormouse_api::keys::Grant;
use dormouse_api::{Keys, StreamLimits};
use dormouse_http::Content;
use dormouse_protocol::id::ArtifactId;
use dormouse_protocol::resource::CreateSessionRequest;
use dormouse_protocol::{EventKind, Identifier, Operation, Scope};
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};

use crate::world::{LISTENS, LOOKED_AT, OVER, SESSION, TASK, World, grant, header, json_of, to_end};

fn world() -> World {
    World::with(StreamLimits { whole: Some(usize::MAX), ..StreamLimits::default() })
}

async fn said(world: &World, body: &str) -> Value {
    let (status, body) = json_of(&world.server.http(world.request("POST", "/a2a", body)).await);
    assert_eq!((status, &body["jsonrpc"]), (200, &json!("2.0")), "{body}");
    body
}

async fn asked(world: &World, method: &str, params: Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let answer = said(world, &request.to_string()).await;
    assert_eq!(answer["id"], 7, "{answer}");
    answer
}

fn message(more: Value) -> Value {
    let mut message =
        json!({ "kind": "message", "messageId": "m1", "role": "user", "parts": [{ "kind": "text", "text": "Hello" }] });
    more.as_object().into_iter().flatten().for_each(|(name, value)| message[name.as_str()] = value.clone());
    json!({ "message": message })
}

#[tokio::test]
async fn what_is_no_request_is_told_so() {
    let world = world();
    for (body, code) in [
        ("", -32700),
        ("{", -32700),
        ("[]", -32600),
        ("7", -32600),
        (r#"{"jsonrpc": "1.0", "method": "tasks/get", "id": 1}"#, -32600),
        (r#"{"jsonrpc": "2.0", "id": 1}"#, -32600),
        (r#"{"jsonrpc": "2.0", "method": 7, "id": 1}"#, -32600),
        (r#"{"jsonrpc": "2.0", "method": "tasks/get", "id": {}}"#, -32600),
        (r#"{"jsonrpc": "2.0", "method": "tasks/sudo", "id": 1}"#, -32601),
        (r#"{"jsonrpc": "2.0", "method": "tasks/get", "id": 1}"#, -32602),
        (r#"{"jsonrpc": "2.0", "method": "tasks/get", "id": 1, "params": []}"#, -32602),
    ] {
        assert_eq!(said(&world, body).await["error"]["code"], code, "{body}");
    }
    let huge = format!(r#"{{"jsonrpc": "2.0", "method": "{}"}}"#, "x".repeat(300_000));
    assert_eq!(world.server.http(world.request("POST", "/a2a", &huge)).await.status, 413);
    let nested = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(said(&world, &nested).await["error"]["code"], -32700);
}

#[tokio::test]
async fn params_that_mean_nothing_are_refused_before_anything_is_made() {
    let world = World::with(StreamLimits::default());
    for (method, params, code) in [
        ("tasks/get", json!({ "id": "session_1" }), -32001),
        ("tasks/get", json!({ "id": "../sessions/x" }), -32001),
        ("tasks/get", json!({ "id": "other" }), -32001),
        ("tasks/cancel", json!({ "id": "" }), -32001),
        ("tasks/cancel", json!({ "id": OVER }), -32002),
        ("tasks/resubscribe", json!({ "id": "other" }), -32001),
        ("tasks/pushNotificationConfig/set", json!({}), -32602),
        ("tasks/pushNotificationConfig/get", json!({ "id": "other" }), -32001),
        ("message/send", json!({}), -32602),
        ("message/send", message(json!({ "parts": [] })), -32602),
        ("message/send", message(json!({ "role": "agent" })), -32602),
        ("message/send", message(json!({ "parts": [{ "kind": "text" }] })), -32602),
        ("message/send", message(json!({ "parts": [{ "kind": "file", "file": { "uri": "x:y" } }] })), -32005),
        ("message/send", message(json!({ "contextId": "../x" })), -32602),
        ("message/send", message(json!({ "contextId": "session_1", "messageId": "" })), -32602),
        ("message/stream", message(json!({ "taskId": "other" })), -32001),
        ("message/send", message(json!({ "taskId": TASK, "contextId": "session_9" })), -32602),
    ] {
        let answer = asked(&world, method, params.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    let writes = [Operation::CreateSession, Operation::SubmitSessionTask, Operation::CancelTask];
    let calls = world.desk.calls.lock().unwrap();
    assert!(calls.iter().all(|call| !writes.contains(&call.operation)), "{calls:?}");
    let is_said =
        calls.iter().any(|call| call.operation == Operation::AppendTaskMessage && call.params.get("task_id") == TASK);
    assert!(!is_said, "of another context: {calls:?}");
}

#[tokio::test]
async fn a_caller_needs_a_key_with_the_scopes_of_the_protocol() {
    let world = world();
    let mut request = world.request("POST", "/a2a", "{}");
    request.headers.retain(|(name, _)| name != "authorization");
    assert_eq!(world.server.http(request).await.status, 401);
    let options = world.server.http(world.request("OPTIONS", "/a2a", "")).await;
    assert_eq!(header(&options, "allow"), Some("POST, OPTIONS"));
    assert_eq!(world.server.http(world.request("GET", "/a2a", "")).await.status, 405);
    let (_, card) = json_of(&world.get("/.well-known/agent-card.json").await);
    assert_eq!(
        (&card["url"], &card["preferredTransport"]),
        (&json!("https://agents.example.com/a2a"), &json!("JSONRPC"))
    );
    assert_eq!(card["supportedInterfaces"][0]["protocolBinding"], "JSONRPC");
    assert_eq!(card["supportsAuthenticatedExtendedCard"], true);
    assert_eq!(card["capabilities"]["extendedAgentCard"], true);
    assert_eq!(asked(&world, "agent/getAuthenticatedExtendedCard", json!({})).await["result"], card);
}

#[tokio::test]
async fn a_task_is_shown_without_artifacts_to_who_may_not_read_them() {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": { "id": OVER } }).to_string();
    for (scopes, code) in [
        (vec![Scope::TasksRead, Scope::EventsRead], None),
        (vec![Scope::TasksRead, Scope::ArtifactsRead], Some("events:read")),
    ] {
        let world = world();
        let holder = Grant { scopes: scopes.into_iter().collect(), ..grant("ada") };
        let request = world.request_by(holder, ("POST", "/a2a", &body));
        let (_, answer) = json_of(&world.server.http(request).await);
        let asked = world.desk.calls.lock().unwrap().iter().any(|call| call.operation == Operation::ListArtifacts);
        assert!(!asked, "{answer}");
        match code {
            None => assert_eq!(answer["result"]["artifacts"], json!([]), "{answer}"),
            Some(scope) => {
                assert_eq!(answer["error"]["code"], -32010, "{answer}");
                assert_eq!(answer["error"]["data"]["details"]["scope"], scope, "{answer}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_task_said_behind_many_events_of_others_is_told() {
    let world = world();
    let said = |text: &str| json!({ "message_id": text, "role": "agent", "parts": [{ "type": "text", "text": text }] });
    world.append_with(OVER, EventKind::AgentMessage, said("before"));
    for _ in 0..2 * LOOKED_AT {
        world.append(TASK, EventKind::AgentMessage);
    }
    world.append_with(OVER, EventKind::AgentMessage, said("behind"));
    let answer = asked(&world, "tasks/get", json!({ "id": OVER })).await;
    assert_eq!(answer["result"]["status"]["message"]["messageId"], "behind", "{answer}");
    assert_eq!(answer["result"]["history"].as_array().map(Vec::len), Some(2), "{answer}");
}

#[tokio::test]
async fn another_version_is_told_which_one_is_spoken() {
    let world = world();
    let asked = async |version: &str, id: &str| {
        let body = format!(r#"{{"jsonrpc": "2.0", {id}"method": "tasks/get", "params": {{"id": "{OVER}"}}}}"#);
        let mut request = world.request("POST", "/a2a", &body);
        request.headers.push(("a2a-version".to_owned(), version.to_owned()));
        world.server.http(request).await
    };
    for version in ["1.0", "0.2.6", "0.30", "0.3.x", "0.3.", "0", "v0.3"] {
        let (status, answer) = json_of(&asked(version, r#""id": 1, "#).await);
        assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32009)), "{version}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("0.3"), "{answer}");
        assert_eq!(asked(version, "").await.status, 204, "nobody is told of it");
    }
    for version in ["", "0.3", "0.3.0", "0.3.17"] {
        assert_eq!(json_of(&asked(version, r#""id": 1, "#).await).1["result"]["id"], OVER, "{version}");
    }
}

#[tokio::test]
async fn who_wants_no_answer_gets_none_and_is_served() {
    let world = World::with(StreamLimits::default());
    for (method, params) in [
        ("tasks/cancel", json!({ "id": TASK })),
        ("tasks/cancel", json!({ "id": OVER })),
        ("tasks/get", json!([])),
        ("tasks/sudo", json!({})),
        ("tasks/resubscribe", json!({ "id": TASK })),
        ("message/send", message(json!({ "taskId": TASK }))),
        ("message/stream", message(json!({ "taskId": TASK }))),
    ] {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let response = world.server.http(world.request("POST", "/a2a", &body.to_string())).await;
        let Content::Whole(body) = &response.content else { panic!("{method} {params}: it streams") };
        assert_eq!((response.status, body.as_slice()), (204, [].as_slice()), "{method} {params}");
    }
    let calls = world.desk.calls.lock().unwrap();
    let count = |operation: Operation| calls.iter().filter(|call| call.operation == operation).count();
    assert_eq!((count(Operation::CancelTask), count(Operation::AppendTaskMessage)), (1, 2), "{calls:?}");
    assert_eq!(count(Operation::StreamTaskEvents), 0);
}

#[tokio::test]
async fn where_responses_are_sent_whole_there_are_no_streams_and_the_card_says_so() {
    let world = world();
    for method in ["message/stream", "tasks/resubscribe"] {
        let refused = asked(&world, method, json!({ "id": OVER })).await;
        assert_eq!(refused["error"]["code"], -32004, "{refused}");
    }
    let (_, card) = json_of(&world.get("/.well-known/agent-card.json").await);
    assert_eq!(card["capabilities"]["streaming"], false);
    assert!(world.desk.calls.lock().unwrap().is_empty(), "nothing was begun");
}

#[tokio::test]
async fn a_message_is_answered_with_the_end_of_its_task_where_streams_end_with_what_there_is() {
    let world = world();
    let answering = asked(&world, "message/send", message(json!({ "taskId": LISTENS })));
    let happening = async {
        let settle = async || {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        };
        let number_of_calls = || world.desk.calls.lock().unwrap().len();
        settle().await;
        world.append_with(LISTENS, EventKind::TaskStarted, json!({ "status": "WORKING" }));
        settle().await;
        let before = number_of_calls();
        settle().await;
        assert_eq!(number_of_calls(), before, "nobody asks on while no time passes");
        world.clock.advance(Duration::from_secs(1));
        settle().await;
        assert!(number_of_calls() > before, "it is followed on");
        *world.desk.has_ended.lock().unwrap() = true;
        world.append_with(LISTENS, EventKind::TaskCompleted, json!({ "status": "COMPLETED" }));
        settle().await;
        world.clock.advance(Duration::from_secs(30));
    };
    let (answer, ()) = futures::join!(answering, happening);
    assert_eq!(answer["result"]["status"]["state"], "completed", "{answer}");
}

#[tokio::test]
async fn a_message_whose_task_goes_on_is_answered_as_it_is_after_a_while() {
    let world = world();
    world.append_with(LISTENS, EventKind::TaskStarted, json!({ "status": "WORKING" }));
    let began = world.now();
    let answering = async {
        let answer = asked(&world, "message/send", message(json!({ "taskId": LISTENS }))).await;
        (answer, world.now().duration_since(began).as_secs())
    };
    let happening = async {
        for _ in 0..30 {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            world.append(LISTENS, EventKind::AgentMessage);
            world.clock.advance(Duration::from_secs(1));
        }
    };
    let ((answer, waited), ()) = futures::join!(answering, happening);
    assert_eq!((&answer["result"]["status"]["state"], waited), (&json!("working"), 25), "{answer}");
}

#[tokio::test]
async fn a_stream_tells_how_the_task_is_and_ends_with_it() {
    let world = World::with(StreamLimits::default());
    world.append(TASK, EventKind::AgentMessage);
    let request = json!({ "jsonrpc": "2.0", "id": "r", "method": "tasks/resubscribe", "params": { "id": OVER } });
    let stream = to_end(world.server.http(world.request("POST", "/a2a", &request.to_string())).await).await;
    let blocks: Vec<Value> = stream
        .split("\n\n")
        .filter_map(|block| block.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(blocks.len(), 1, "{stream}");
    assert_eq!((&blocks[0]["id"], &blocks[0]["result"]["kind"]), (&json!("r"), &json!("task")));
    assert_eq!(blocks[0]["result"]["status"]["state"], "completed");
}

#[tokio::test]
async fn a_stream_that_is_refused_says_why() {
    let world = World::with(StreamLimits { each: 0, ..StreamLimits::default() });
    world.append(TASK, EventKind::AgentMessage);
    let request = json!({ "jsonrpc": "2.0", "id": "r", "method": "tasks/resubscribe", "params": { "id": TASK } });
    let stream = to_end(world.server.http(world.request("POST", "/a2a", &request.to_string())).await).await;
    let last = stream.trim_end().rsplit("data: ").next().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!("r"), &json!(-32010)), "{stream}");
}

#[tokio::test]
async fn what_is_wrong_with_notifications_is_told_before_a_message_does_anything() {
    let world = world();
    let with = |config: Value, more: Value| {
        let mut params = message(more);
        params["configuration"] = json!({ "pushNotificationConfig": config });
        params
    };
    let context = || json!({ "contextId": SESSION });
    for config in [
        json!({ "url": "https://a.example.com", "authentication": { "schemes": ["Bearer"], "credentials": "x" } }),
        json!({ "token": "no address" }),
        json!(7),
        json!({ "url": "ftp://a.example.com" }),
    ] {
        let answer = asked(&world, "message/send", with(config.clone(), context())).await;
        assert_eq!(answer["error"]["code"], -32602, "{config}: {answer}");
    }
    let params = with(json!({ "url": "https://a.example.com" }), context());
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params }).to_string();
    for (has, lacks) in [(Scope::TasksRead, "sessions:write"), (Scope::SessionsWrite, "tasks:read")] {
        let holder = Grant { scopes: [has, Scope::TasksWrite, Scope::EventsRead].into(), ..grant("ada") };
        let (_, refused) = json_of(&world.server.http(world.request_by(holder, ("POST", "/a2a", &body))).await);
        assert_eq!(refused["error"]["code"], -32010, "{refused}");
        assert_eq!(refused["error"]["data"]["details"]["scope"], lacks);
    }
    let calls = world.desk.calls.lock().unwrap();
    assert!(calls.is_empty(), "{calls:?}");
}

#[tokio::test]
async fn a_key_for_few_of_many_workspaces_uses_one_of_them() {
    let world = world();
    let grant = Grant { workspaces: Some(["workspace_7".into(), "workspace_9".into()].into()), ..grant("ada") };
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": message(json!({})) });
    world.server.http(world.request_by(grant, ("POST", "/a2a", &body.to_string()))).await;
    let calls = world.desk.calls.lock().unwrap();
    let named: Vec<_> = calls.iter().filter(|call| call.operation == Operation::GetWorkspace).collect();
    assert_eq!(named.iter().map(|call| call.params.get("workspace_id")).collect::<Vec<_>>(), ["workspace_9"]);
    let made = calls.iter().find(|call| call.operation == Operation::CreateSession).expect("a session");
    assert_eq!(made.body.clone().decode::<CreateSessionRequest>().unwrap().workspace_id.as_str(), "workspace_9");
    assert!(made.is_placed_for_caller, "sent again, it is found in whichever was chosen");
}

#[tokio::test]
async fn a_stream_ends_with_its_last_block() {
    let world = World::with(StreamLimits::default());
    world.append(TASK, EventKind::AgentMessage);
    let request = json!({ "jsonrpc": "2.0", "id": "r", "method": "tasks/resubscribe", "params": { "id": TASK } });
    let response = world.server.http(world.request("POST", "/a2a", &request.to_string())).await;
    let Content::Live(mut pieces) = response.content else { panic!("it is whole") };
    assert!(pieces.next().await.is_some(), "how the task is");
    world.append_with(TASK, EventKind::TaskCompleted, json!({ "status": "COMPLETED" }));
    let last = String::from_utf8(pieces.next().await.expect("the end of the task")).unwrap();
    assert!(last.contains(r#""final":true"#), "{last}");
    assert_eq!(pieces.next().now_or_never(), Some(None), "nothing is waited for behind it");
}

/// An artifact that is an image, and how A2A shows it.
fn image() -> (Value, Value) {
    let file = json!({ "uri": "https://agents.example.com/v1/artifacts/artifact_1/content", "mimeType": "image/png" });
    let shown = json!({ "artifactId": "artifact_1", "name": "image", "parts": [{ "kind": "file", "file": file }] });
    (json!({ "id": "artifact_1", "kind": "image", "mime_type": "image/png", "uri": null }), shown)
}

#[tokio::test]
async fn an_artifact_that_is_no_json_is_a_file_with_its_address() {
    let world = world();
    let (image, shown) = image();
    world.desk.artifacts.lock().unwrap().push(image);
    let answer = asked(&world, "tasks/get", json!({ "id": OVER })).await;
    assert_eq!(answer["result"]["artifacts"], json!([shown]), "{answer}");
}

#[tokio::test]
async fn a_stream_tells_of_artifacts_as_they_are_made_to_who_may_read_them() {
    let world = World::with(StreamLimits::default());
    world.append(TASK, EventKind::AgentMessage);
    let body = json!({ "jsonrpc": "2.0", "id": "r", "method": "tasks/resubscribe", "params": { "id": TASK } });
    let body = body.to_string();
    let reader = Grant { scopes: [Scope::TasksRead, Scope::EventsRead].into(), ..grant("ada") };
    let (image, shown) = image();
    for (request, is_told) in
        [(world.request("POST", "/a2a", &body), true), (world.request_by(reader, ("POST", "/a2a", &body)), false)]
    {
        world.desk.artifacts.lock().unwrap().clear();
        let Content::Live(mut pieces) = world.server.http(request).await.content else { panic!("it is whole") };
        assert!(pieces.next().await.is_some(), "how the task is");
        world.desk.artifacts.lock().unwrap().push(image.clone());
        let about = ArtifactId::from("artifact_1").pointer();
        world.append_about(TASK, (EventKind::ArtifactCreated, about), json!({ "kind": "image" }));
        let told = String::from_utf8(pieces.next().await.expect("what was made")).unwrap();
        if is_told {
            let told: Value = serde_json::from_str(told.trim_end().strip_prefix("data: ").expect("a block")).unwrap();
            let update = &told["result"];
            assert_eq!((&update["kind"], &update["taskId"]), (&json!("artifact-update"), &json!(TASK)), "{told}");
            assert_eq!((&update["artifact"], &update["lastChunk"]), (&shown, &json!(true)), "{told}");
        } else {
            assert_eq!(told, "");
        }
    }
}

#[tokio::test]
async fn a_stream_ends_within_two_minutes_after_its_key_was_revoked() {
    let world = World::with(StreamLimits::default());
    world.append(TASK, EventKind::AgentMessage);
    let asked = json!({ "jsonrpc": "2.0", "id": "r", "method": "tasks/resubscribe", "params": { "id": TASK } });
    let request = world.request_by(grant("ada"), ("POST", "/a2a", &asked.to_string()));
    let id = request.header("authorization").and_then(|key| key.split('_').nth(1)).expect("its id").to_owned();
    let Content::Live(mut pieces) = world.server.http(request).await.content else { panic!("it is whole") };
    let mut is_over = || loop {
        match pieces.next().now_or_never() {
            Some(Some(_)) => {}
            Some(None) => return true,
            None => return false,
        }
    };
    for _ in 0..3 {
        assert!(!is_over(), "a good key is asked for, and it goes on");
        world.clock.advance(Duration::from_secs(61));
    }
    assert!(!is_over());
    let revoked = Keys::new(world.shelf.clone()).revocation(&id, world.now()).await.unwrap().expect("the key");
    world.shelf.apply(revoked);
    world.clock.advance(Duration::from_secs(60));
    let was_over = is_over();
    world.clock.advance(Duration::from_secs(60));
    assert!(was_over || is_over());
}
