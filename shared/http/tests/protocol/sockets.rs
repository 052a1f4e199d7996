//! Sockets: the frames of a connection, and everything that a client must not send.

use dormouse_api::StreamLimits;
use dormouse_http::{Frames, LARGEST_FRAME, Socket, SocketReply};
use dormouse_protocol::id::EventId;
use dormouse_protocol::request::Body;
use dormouse_protocol::{EventKind, Operation, PROTOCOL_VERSION};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::world::{SESSION, TASK, World};

const TASK_STREAM: &str = "/v1/tasks/task_1/stream";

fn world() -> World {
    World::with(StreamLimits { whole: Some(usize::MAX), ..StreamLimits::default() })
}

async fn opened(world: &World, target: &str) -> (Socket, Frames) {
    world.server.socket(world.request("GET", target, "")).await.expect("it opens")
}

async fn said(socket: &mut Socket, frame: &str) -> Value {
    let SocketReply::Frame(said) = socket.take(frame).await else { panic!("{frame}: nothing is said") };
    serde_json::from_str(&said).expect("JSON")
}

async fn told(frames: Frames) -> Vec<Value> {
    frames.map(|frame| serde_json::from_str(&frame.text).expect("JSON")).collect().await
}

#[tokio::test]
async fn events_come_as_frames_and_go_on_behind_any_of_them() {
    let world = world();
    world.append(TASK, EventKind::AgentMessage);
    world.clock.advance(std::time::Duration::from_secs(1));
    let (mut socket, frames) = opened(&world, TASK_STREAM).await;
    world.append(TASK, EventKind::AgentMessage);
    let all = told(frames).await;
    let marks: Vec<(&Value, &Value)> = all.iter().map(|frame| (&frame["type"], &frame["replayed"])).collect();
    assert_eq!(marks, [(&json!("event"), &json!(true)), (&json!("event"), &json!(false))]);
    let first = EventId::at(SESSION, 1);
    let resume = json!({"type": "resume", "after_event_id": first}).to_string();
    let SocketReply::Resumed(again) = socket.take(&resume).await else { panic!("it resumes") };
    let again = told(again).await;
    assert_eq!((again.len(), &again[0]["event"]["id"]), (1, &json!(EventId::at(SESSION, 2))));
    for bad in ["", "evt&limit=1", "event_session_9_0000000000000001"] {
        let resume = json!({"type": "resume", "id": 7, "after_event_id": bad}).to_string();
        let refused = said(&mut socket, &resume).await;
        assert_eq!((&refused["type"], &refused["id"]), (&json!("error"), &json!(7)), "{bad}: {refused}");
        assert_eq!(refused["error"]["code"], "cursor_expired", "{bad}: {refused}");
    }
    assert_eq!(said(&mut socket, r#"{"type": "ping", "id": 8}"#).await["type"], "pong", "the socket goes on");
}

/// The stream of all sessions looks for the event only when it is read.
#[tokio::test]
async fn one_that_follows_all_sessions_goes_on_where_it_cannot_resume() {
    let world = world();
    world.append(TASK, EventKind::AgentMessage);
    let (mut socket, _frames) = opened(&world, "/v1/events/stream").await;
    let resume =
        |position| json!({"type": "resume", "id": 7, "after_event_id": EventId::at(SESSION, position)}).to_string();
    let refused = said(&mut socket, &resume(9)).await;
    let told = (&refused["type"], &refused["id"], &refused["status"], &refused["error"]["code"]);
    assert_eq!(told, (&json!("error"), &json!(7), &json!(410), &json!("cursor_expired")), "{refused}");
    let SocketReply::Resumed(_) = socket.take(&resume(1)).await else { panic!("it resumes behind one that is there") };
}

#[tokio::test]
async fn commands_are_requests_of_who_opened_the_socket() {
    let world = world();
    let (mut socket, _frames) = opened(&world, TASK_STREAM).await;
    world.desk.calls.lock().unwrap().clear();
    let message = json!({"role": "user", "parts": []});
    let session = json!(SESSION);
    for (frame, operation) in [
        (json!({"type": "input", "message": message}), Operation::AppendTaskMessage),
        (json!({"type": "interrupt", "message": message, "task_id": "task_2"}), Operation::AppendTaskMessage),
        (json!({"type": "cancel", "reason": "enough", "idempotency_key": "k"}), Operation::CancelTask),
        (
            json!({"type": "approval", "request_id": "permission_request_1.1", "approved": true}),
            Operation::RespondPermissionRequest,
        ),
        (json!({"type": "message", "session_id": session, "message": message}), Operation::AppendSessionMessage),
        (json!({"type": "task", "session_id": session, "input": {}}), Operation::SubmitSessionTask),
        (json!({"type": "truncate", "session_id": session, "keep_first": 1}), Operation::TruncateSession),
    ] {
        let mut frame = frame;
        frame["id"] = json!("c1");
        let answer = said(&mut socket, &frame.to_string()).await;
        assert_eq!((&answer["type"], &answer["id"], &answer["status"]), (&json!("error"), &json!("c1"), &json!(404)));
        let call = world.desk.calls.lock().unwrap().pop().expect("a call");
        assert_eq!((call.operation, call.actor.name.as_str()), (operation, "ada"));
        let key = call.idempotency_key.as_ref().map(|key| key.as_str().to_owned());
        assert_eq!(key, frame["idempotency_key"].as_str().map(str::to_owned));
    }
    // What is beside the message reaches the operation, which refuses what it does not know; what is missing is missing.
    for (frame, body) in [
        (
            json!({"type": "input", "message": message, "metadata": {"pause": 3}}),
            json!({"kind": "input", "message": message, "metadata": {"pause": 3}}),
        ),
        (json!({"type": "interrupt", "task_id": "task_2"}), json!({"kind": "interrupt"})),
    ] {
        said(&mut socket, &frame.to_string()).await;
        let call = world.desk.calls.lock().unwrap().pop().expect("a call");
        assert_eq!(call.body, Body::from(body.as_object().expect("an object").clone()), "{frame}");
    }
    assert_eq!(said(&mut socket, r#"{"type": "ping", "id": 1}"#).await, json!({"type": "pong", "id": 1}));
}

#[tokio::test]
async fn what_is_no_frame_is_refused_and_too_much_of_it_ends_the_socket() {
    let world = world();
    let (mut socket, _frames) = opened(&world, TASK_STREAM).await;
    world.desk.calls.lock().unwrap().clear();
    for bad in ["", "[]", "{", "7", r#"{"type": 7}"#, r#"{"type": "sudo"}"#, "{}"] {
        assert_eq!(said(&mut socket, bad).await["status"], 400, "{bad}");
    }
    for (bad, status) in [
        (json!({"type": "message", "message": {}}), 400),
        (json!({"type": "cancel", "task_id": "../sessions/x/close"}), 404),
        (json!({"type": "cancel", "task_id": 7}), 404),
        (json!({"type": "cancel", "idempotency_key": 7}), 400),
        (json!({"type": "cancel", "idempotency_key": ""}), 400),
        (json!({"type": "approval", "request_id": "a/b", "approved": true}), 404),
    ] {
        assert_eq!(said(&mut socket, &bad.to_string()).await["status"], status, "{bad}");
    }
    assert!(world.desk.calls.lock().unwrap().is_empty(), "none of them was served");
    let huge = format!(r#"{{"type": "ping", "id": "{}"}}"#, "x".repeat(LARGEST_FRAME));
    assert!(matches!(socket.take(&huge).await, SocketReply::Closed(_)));
    for _ in 0..2 {
        said(&mut socket, "nonsense").await;
    }
    assert!(matches!(socket.take("nonsense").await, SocketReply::Closed(_)), "the tenth");
}

#[tokio::test]
async fn a_socket_opens_for_who_may_follow_the_stream() {
    let world = world();
    let refused = async |request| world.server.socket(request).await.err().map(|response| response.status);
    assert_eq!(refused(world.request("GET", "/v1/tasks", "")).await, Some(404));
    assert_eq!(refused(world.request("GET", "/v1/tasks/other/stream", "")).await, Some(404));
    let mut bare = world.request("GET", TASK_STREAM, "");
    bare.headers.clear();
    assert_eq!(refused(bare.clone()).await, Some(426));
    let offers = format!("{PROTOCOL_VERSION}, bearer.{}", world.key.reveal());
    bare.headers.push(("sec-websocket-protocol".to_owned(), offers));
    assert_eq!(Socket::subprotocol(&bare), Some(PROTOCOL_VERSION));
    assert_eq!(refused(bare.clone()).await, None, "a page of a browser");
    bare.headers[0].1 = format!("{PROTOCOL_VERSION}, bearer.wrong");
    assert_eq!(refused(bare).await, Some(401));
}
