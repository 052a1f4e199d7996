//! Probes by tables: of sockets, of A2A and of what sleeps.

use dormouse_http::{Socket, SocketReply as Taken};

use super::{OF_TENANT, Things, asked, leaves, owners};
use crate::*;

/// What `asked` names of `own`, each in its turn replaced by the same of `other`: the name of the thing, and the rest.
fn stolen(asked: &Value, own: &Things, other: &Things) -> Vec<(&'static str, Value)> {
    let thief = |(pointer, id): (String, String)| {
        let (thing, _) = own.iter().find(|(_, own)| **own == id)?;
        let mut stolen = asked.clone();
        *stolen.pointer_mut(&pointer)? = other[thing].clone().into();
        Some((*thing, stolen))
    };
    leaves(asked).into_iter().filter_map(thief).collect()
}

/// Frames that somebody sends about what is `own`, all of which are served.
fn frames(own: &Things) -> Vec<Value> {
    let it = |name: &str| own[name].as_str();
    let message = json!({ "role": "user", "parts": [{ "type": "json", "value": { "decision": "yes" }, "visibility": "public" }] });
    vec![
        json!({ "type": "message", "session_id": it("session_id"), "message": message }),
        json!({ "type": "task", "session_id": it("session_id"), "persona_id": it("persona_id"),
            "branch_id": it("branch_id"), "parent_task_id": it("task_id"), "input": { "note": "x" } }),
        json!({ "type": "approval", "request_id": it("request_id"), "approved": true }),
        json!({ "type": "interrupt", "task_id": it("task to cancel"), "message": message }),
        json!({ "type": "tool_confirmation", "task_id": it("task to cancel"), "message": message }),
        json!({ "type": "input", "task_id": it("task that sleeps"), "message": message }),
        json!({ "type": "cancel", "task_id": it("task in the queue") }),
        json!({ "type": "truncate", "session_id": it("session to cut"), "keep_first": 1 }),
        json!({ "type": "resume", "after_event_id": it("event_id") }),
    ]
}

/// Requests of A2A about what is `own`, all of which are served.
fn methods(own: &Things) -> Vec<Value> {
    let it = |name: &str| own[name].as_str();
    let said = |more: Value, metadata: Value| {
        let mut message = json!({ "kind": "message", "messageId": "m1", "role": "user",
            "parts": [{ "kind": "data", "data": { "decision": "yes", "note": "x" } }] });
        more.as_object().into_iter().flatten().for_each(|(name, value)| message[name.as_str()] = value.clone());
        json!({ "message": message, "configuration": { "blocking": false }, "metadata": metadata })
    };
    let push = json!({ "url": "https://hooks.example.com" });
    let quiet = json!({ "persona_id": it("persona_id") });
    let asked = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    vec![
        asked("tasks/get", json!({ "id": it("task_id") })),
        asked("tasks/resubscribe", json!({ "id": it("task_id") })),
        asked(
            "tasks/pushNotificationConfig/set",
            json!({ "taskId": it("task that asks"), "pushNotificationConfig": push }),
        ),
        asked("tasks/pushNotificationConfig/get", json!({ "id": it("task that asks") })),
        asked("tasks/pushNotificationConfig/list", json!({ "id": it("task that asks") })),
        asked("message/send", said(json!({ "contextId": it("session_id") }), quiet.clone())),
        asked("message/stream", said(json!({ "contextId": it("session_id"), "messageId": "m2" }), quiet.clone())),
        asked(
            "message/send",
            said(
                json!({ "messageId": "m3" }),
                json!({ "workspace_id": it("workspace_id"), "persona_id": it("persona_id") }),
            ),
        ),
        asked(
            "message/stream",
            said(
                json!({ "messageId": "m4" }),
                json!({ "workspace_id": it("workspace_id"), "persona_id": it("persona_id") }),
            ),
        ),
        asked("message/send", said(json!({ "messageId": "m5", "taskId": it("task that sleeps") }), json!({}))),
        asked("tasks/cancel", json!({ "id": it("task to cancel") })),
    ]
}

/// A frame as `socket` answers it; of a stream that goes on behind an event what it says first.
async fn answered(world: &World, socket: &mut Socket, frame: &Value) -> Value {
    let taken = while_time_passes(&world.clock, Duration::from_millis(50), async {
        match socket.take(&frame.to_string()).await {
            Taken::Frame(said) => said,
            Taken::Resumed(mut frames) => frames.next().await.unwrap().text,
            Taken::Closed(reason) => panic!("{frame}: {reason}"),
        }
    });
    serde_json::from_str(&taken.await).unwrap()
}

#[tokio::test]
async fn no_socket_takes_the_id_of_a_thing_of_somebody_else() {
    let world = World::new();
    let (whose, strangers) = owners(&world).await;
    for (who, stranger) in &strangers {
        let mut count = 0;
        let open =
            async |path: &str| world.server.socket(protocol_request(&stranger.key, "GET", path, Vec::new())).await;
        for things in [&whose.things, &stranger.things] {
            let is_own = std::ptr::eq(things, &stranger.things);
            for path in [
                format!("/v1/tasks/{}/stream", things["task_id"]),
                format!("/v1/sessions/{}/events/stream", things["session_id"]),
            ] {
                let refused = open(&path).await.err().map(|response| response.status);
                assert_eq!(refused, (!is_own).then_some(404), "{who}: {path}");
                count += 1;
            }
        }
        let path = format!("/v1/sessions/{}/events/stream", stranger.things["session_id"]);
        let (mut socket, _events) = open(&path).await.unwrap();
        let frames = frames(&stranger.things);
        for (thing, frame) in frames.iter().flat_map(|frame| stolen(frame, &stranger.things, &whose.things)) {
            if *who == "another workspace" && OF_TENANT.contains(&thing) {
                continue;
            }
            let before = format!("{:?}", world.store);
            let said = answered(&world, &mut socket, &frame).await;
            assert_eq!(before, format!("{:?}", world.store), "{who}: {frame}");
            let is_refused = match frame["type"].as_str() {
                Some("resume") => said["error"]["code"] == "cursor_expired",
                _ => said["status"] == 404,
            };
            assert!(said["type"] == "error" && is_refused, "{who}: {frame}: {said}");
            let id = &whose.things[thing];
            let of_nothing = frame.to_string().replace(id, &ghost(id));
            let of_nothing = answered(&world, &mut socket, &serde_json::from_str(&of_nothing).unwrap()).await;
            let in_words = |said: &Value| {
                let mut said = said.clone();
                said["error"]["request_id"] = Value::Null;
                said.to_string().replace(&ghost(id), id)
            };
            assert_eq!(in_words(&said), in_words(&of_nothing), "{who}: {frame}");
            count += 1;
        }
        assert!(count >= 14, "{who}: {count} probes");
        for frame in &frames {
            let said = answered(&world, &mut socket, frame).await;
            // It asks no yes or no.
            let is_served = match frame["type"].as_str() {
                Some("tool_confirmation") => said["status"] == 400,
                _ => said["type"] == "result" || said["type"] == "event",
            };
            assert!(is_served, "{who}: {frame}: {said}");
        }
    }
}

#[tokio::test]
async fn neither_a2a_nor_what_sleeps_takes_the_id_of_a_thing_of_somebody_else() {
    let world = World::with(streams());
    let (whose, strangers) = owners(&world).await;
    for (who, stranger) in &strangers {
        let mut count = 0;
        let methods = methods(&stranger.things);
        let rpc = methods.iter().flat_map(|asked| stolen(asked, &stranger.things, &whose.things));
        let rpc = rpc.map(|(thing, asked)| (thing, "POST", "/a2a".to_owned(), asked));
        let acts = [("GET", ""), ("POST", "/answer"), ("POST", "/cancel"), ("POST", "/repair")];
        let pauses = acts.iter().flat_map(|(method, act)| {
            ["task that sleeps", "task_id"].map(|thing| {
                let target = format!("/v1/x-pauses/{}{act}", whose.things[thing]);
                let body = if *method == "GET" { Value::Null } else { json!({ "generation": 1 }) };
                (thing, *method, target, body)
            })
        });
        for (thing, method, target, body) in rpc.chain(pauses) {
            if *who == "another workspace" && OF_TENANT.contains(&thing) {
                continue;
            }
            let bytes = if body.is_null() { String::new() } else { body.to_string() };
            let before = format!("{:?}", world.store);
            let said = world.ask(&stranger.key, method, &target, &bytes).await;
            assert_eq!(before, format!("{:?}", world.store), "{who}: {method} {target} {body}");
            let answer: Value = serde_json::from_str(&said.body).unwrap();
            let is_refused = match target.as_str() {
                "/a2a" => answer["error"]["code"] == -32001 || answer["error"]["data"]["code"] == "resource_not_found",
                _ => said.status == 404,
            };
            assert!(is_refused, "{who}: {method} {target} {body}: {answer}");
            let id = &whose.things[thing];
            let [target, bytes] = [&target, &bytes].map(|text| text.replace(id, &ghost(id)));
            let of_nothing = world.ask(&stranger.key, method, &target, &bytes).await;
            let body = of_nothing.body.replace(&ghost(id), id);
            assert_eq!(said, Said { body, ..of_nothing }, "{who}: {method} {target}");
            count += 1;
        }
        assert!(count >= 19, "{who}: {count} probes");
        let pause = format!("/v1/x-pauses/{}", stranger.things["task that sleeps"]);
        asked(&world, &stranger.key, "GET", &pause, &Value::Null).await;
        for method in &methods {
            let said = world.ask(&stranger.key, "POST", "/a2a", &method.to_string()).await;
            assert!(said.body.contains("\"result\"") && !said.body.contains("\"error\""), "{who}: {method}: {said:?}");
        }
    }
}
