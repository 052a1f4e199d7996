//! Sockets of the real process, over a client that knows WebSockets and nothing of Dormouse.

use std::time::Instant;

use dormouse_http::LARGEST_FRAME;
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::request::VERSION_HEADER;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::access::{get, key, post};
use crate::folder;
use crate::process::{Dormouse, PATIENCE, in_time, text};

type Wire = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Opens a socket at `path`, by `key`; the status of a refusal.
async fn open(dormouse: &Dormouse, key: &str, path: &str) -> Result<Wire, u16> {
    let address = dormouse.url(path).replacen("http", "ws", 1);
    let mut request = address.into_client_request().expect("an address");
    let headers = request.headers_mut();
    headers.insert("authorization", format!("Bearer {key}").parse().expect("a header"));
    headers.insert(VERSION_HEADER, PROTOCOL_VERSION.parse().expect("a header"));
    match connect_async(request).await {
        Ok((wire, _)) => Ok(wire),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// What comes next over a socket: a frame, or `None` and the code with which it was closed, if there was one.
async fn next(wire: &mut Wire) -> Result<Value, Option<u16>> {
    loop {
        let came = tokio::time::timeout(PATIENCE, wire.next()).await.expect("something comes");
        match came {
            Some(Ok(Message::Text(frame))) => return Ok(serde_json::from_str(&frame).expect("JSON")),
            Some(Ok(Message::Close(close))) => return Err(close.map(|close| close.code.into())),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(other)) => panic!("{other:?}"),
            Some(Err(_)) | None => return Err(None),
        }
    }
}

/// The next frame that `is_it`; signs of life and others go by.
async fn next_that(wire: &mut Wire, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let found = async {
        loop {
            let frame = next(wire).await.expect("a frame");
            if is_it(&frame) {
                return frame;
            }
        }
    };
    in_time(what, found).await
}

/// The next frame that is about the command `id`.
async fn about(wire: &mut Wire, id: &str) -> Value {
    next_that(wire, id, |frame| frame["id"] == id).await
}

/// Waits until `event` is told.
async fn told_of(wire: &mut Wire, event: &str) {
    next_that(wire, event, |frame| frame["event"]["event"] == event).await;
}

async fn say(wire: &mut Wire, frame: &Value) {
    wire.send(Message::text(frame.to_string())).await.expect("it is sent");
}

async fn json_at(dormouse: &Dormouse, key: &str, path: &str) -> Value {
    get(dormouse, path, key).await.json().await.expect("JSON")
}

/// A session in a workspace of its own.
async fn session(dormouse: &Dormouse, key: &str) -> String {
    let (_, workspace) = post(dormouse, "/v1/workspaces", key, json!({"name": "w", "root": "/"})).await;
    let (_, session) = post(dormouse, "/v1/sessions", key, json!({"workspace_id": workspace["id"]})).await;
    text(&session, "id").to_owned()
}

fn expense() -> Value {
    json!({"persona_id": "persona_expense-approval",
        "input": {"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"}})
}

/// A task in `session` that waits for a person.
async fn asking(dormouse: &Dormouse, key: &str, session: &str) -> String {
    let (status, task) = post(dormouse, &format!("/v1/sessions/{session}/tasks"), key, expense()).await;
    assert_eq!(status, 202, "{task}");
    let task = text(&task, "id").to_owned();
    let mut wire = open(dormouse, key, &format!("/v1/tasks/{task}/stream")).await.expect("it opens");
    told_of(&mut wire, "task.auth_required").await;
    task
}

/// When the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    BeforeAnythingIsRead,
    AsTheTaskAsks,
    BeforeTheAnswerIsConfirmed,
    AfterThat,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_followed_and_answered_over_sockets_that_die_with_the_process() {
    let folder = folder();
    let mut dormouse = Dormouse::start(folder.path());
    let key = dormouse.api_key();
    let session = session(&dormouse, &key).await;
    for death in
        [Death::BeforeAnythingIsRead, Death::AsTheTaskAsks, Death::BeforeTheAnswerIsConfirmed, Death::AfterThat]
    {
        let (_, task) = post(&dormouse, &format!("/v1/sessions/{session}/tasks"), &key, expense()).await;
        let task = text(&task, "id").to_owned();
        let message = json!({"role": "user", "parts": [{"type": "json", "value": {"approved": true}}]});
        let yes = json!({"type": "tool_confirmation", "id": "yes", "idempotency_key": task, "message": message});
        let mut told: Vec<(String, String)> = Vec::new();
        let (mut has_died, mut is_confirmed, mut is_over) = (false, false, false);
        let began = Instant::now();
        while !is_over {
            let behind = told.last().map(|(id, _)| format!("?after_event_id={id}")).unwrap_or_default();
            let path = format!("/v1/tasks/{task}/stream{behind}");
            let mut wire = open(&dormouse, &key, &path).await.expect("it opens");
            let asked = |told: &[(String, String)]| told.iter().any(|(_, event)| event == "task.auth_required");
            if asked(&told) && !is_confirmed {
                // Nobody knows whether it was taken.
                say(&mut wire, &yes).await;
            }
            let mut dies = death == Death::BeforeAnythingIsRead && !has_died;
            while !dies {
                let frame = match next(&mut wire).await {
                    Ok(frame) => frame,
                    Err(code) => {
                        assert_eq!(
                            (code, told.last().map(|(_, event)| event.as_str())),
                            (Some(1000), Some("task.completed"))
                        );
                        is_over = true;
                        break;
                    }
                };
                match text(&frame, "type") {
                    "event" => {
                        let event = &frame["event"];
                        assert!(frame["replayed"].is_boolean(), "{frame}");
                        told.push((text(event, "id").to_owned(), text(event, "event").to_owned()));
                        if event["event"] == "task.auth_required" {
                            dies = death == Death::AsTheTaskAsks && !has_died;
                            if !dies {
                                say(&mut wire, &yes).await;
                                dies = death == Death::BeforeTheAnswerIsConfirmed && !has_died;
                            }
                        }
                    }
                    "result" => {
                        assert_eq!((&frame["id"], &frame["status"]), (&json!("yes"), &json!(201)), "{frame}");
                        is_confirmed = true;
                        dies = death == Death::AfterThat && !has_died;
                    }
                    "ping" => assert!(began.elapsed() < PATIENCE, "{death:?}: nothing more is told behind {told:?}"),
                    other => panic!("{death:?}: {other}: {frame}"),
                }
            }
            if dies {
                dormouse = dormouse.kill_and_restart();
                has_died = true;
            }
        }
        assert!(has_died && (is_confirmed || death == Death::BeforeTheAnswerIsConfirmed), "{death:?}");
        let events = json_at(&dormouse, &key, &format!("/v1/tasks/{task}/events?limit=200")).await;
        let events = events["data"].as_array().expect("a list").iter();
        let events: Vec<_> = events.map(|one| (text(one, "id").to_owned(), text(one, "event").to_owned())).collect();
        assert_eq!(told, events, "{death:?}: each event once, and none is missing");
        let answers = events.iter().filter(|(_, event)| event == "task.auth_required").count();
        assert_eq!(answers, 1, "{death:?}: it asked once and was answered once: {events:?}");
    }
}

/// A frame of a client, bit by bit: its first byte, and what is in it. Masked with nothing.
fn framed(first: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match content.len() {
        short @ ..126 => frame.push(0x80 | short as u8),
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(content);
    frame
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_client_should_send_ends_its_own_socket_and_does_nothing() {
    const TEXT: u8 = 0x81;
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let key = dormouse.api_key();
    let session = session(&dormouse, &key).await;
    let task = asking(&dormouse, &key, &session).await;
    let path = format!("/v1/tasks/{task}/stream");
    let mut witness = open(&dormouse, &key, &path).await.expect("it opens");
    let large = vec![b' '; LARGEST_FRAME + 1];
    let half = vec![b' '; LARGEST_FRAME / 2 + 1];
    let unreadable = framed(TEXT, b"nonsense").repeat(10);
    for (case, bytes, codes) in [
        ("a frame that is too large", framed(TEXT, &large), &[1009][..]),
        ("pieces that are too large together", [framed(0x01, &half), framed(0x80, &half)].concat(), &[1009]),
        ("a length that nothing has", vec![TEXT, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[1009]),
        ("no text", framed(0x82, b"{}"), &[1003]),
        ("text that is none", framed(TEXT, b"\xff\xfe"), &[1007]),
        ("a piece without a beginning", framed(0x80, b"{}"), &[1002]),
        ("a beginning within another", [framed(0x01, b"{"), framed(TEXT, b"{}")].concat(), &[1002]),
        ("a kind that there is none of", framed(0x83, b"{}"), &[1002]),
        ("a bit that means nothing", framed(0xc1, b"{}"), &[1002]),
        ("a frame without its mask", vec![TEXT, 0x02, b'{', b'}'], &[1002]),
        ("a ping that is too long", [vec![0x89, 0xfe, 0, 126, 0, 0, 0, 0], vec![b'x'; 126]].concat(), &[1002]),
        ("an end of one byte", framed(0x88, b"x"), &[1002]),
        ("ten frames that cannot be read", unreadable, &[1008]),
        ("the end", framed(0x88, &[0x03, 0xe8]), &[1000]),
    ] {
        let mut wire = open(&dormouse, &key, &path).await.expect(case);
        // A command comes behind it, when it is too late.
        let late = framed(TEXT, json!({"type": "cancel", "id": "late"}).to_string().as_bytes());
        let MaybeTlsStream::Plain(tcp) = wire.get_mut() else { panic!("it is plain") };
        // The server may have gone before all of it is sent.
        let _ = tcp.write_all(&[bytes, late].concat()).await;
        let closed = async {
            loop {
                match next(&mut wire).await {
                    Ok(frame) => assert_ne!(frame["id"], "late", "{case}: {frame}"),
                    Err(code) => return code,
                }
            }
        };
        let code = in_time(case, closed).await;
        // With what it did not read any more, its last words may be lost.
        assert!(code.is_none_or(|code| codes.contains(&code)), "{case}: {code:?}");
    }
    say(&mut witness, &json!({"type": "ping", "id": "still"})).await;
    assert_eq!(about(&mut witness, "still").await["type"], "pong", "others are served");
    let seen = json_at(&dormouse, &key, &format!("/v1/tasks/{task}")).await;
    assert_eq!(seen["status"], "AUTH_REQUIRED", "nothing that came behind it was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_closes_a_socket_is_answered() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let key = dormouse.api_key();
    let session = session(&dormouse, &key).await;
    let mut wire = open(&dormouse, &key, &format!("/v1/sessions/{session}/events/stream")).await.expect("it opens");
    wire.close(Some(CloseFrame { code: CloseCode::Normal, reason: "enough".into() })).await.expect("it is sent");
    let closed = async {
        loop {
            if let Err(code) = next(&mut wire).await {
                return code;
            }
        }
    };
    assert_eq!(in_time("it is closed", closed).await, Some(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_come_too_early_or_too_late_are_refused_and_the_socket_goes_on() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let key = dormouse.api_key();
    let (one, other) = (session(&dormouse, &key).await, session(&dormouse, &key).await);
    let task = asking(&dormouse, &key, &one).await;
    let requests = json_at(&dormouse, &key, &format!("/v1/tasks/{task}/permission-requests")).await;
    let request = text(&requests["data"][0], "id").to_owned();
    let next_one = request.strip_suffix(".1").expect("the first").to_owned() + ".2";
    let mut wire = open(&dormouse, &key, &format!("/v1/sessions/{one}/events/stream")).await.expect("it opens");
    let message = json!({"role": "user", "parts": [{"type": "json", "value": {"approved": true}}]});
    for (frame, status) in [
        // It has not asked that yet.
        (json!({"type": "approval", "request_id": next_one, "approved": true}), 404),
        (json!({"type": "approval", "request_id": request, "approved": false}), 200),
        // It was answered, and has ended.
        (json!({"type": "approval", "request_id": request, "approved": true}), 409),
        (json!({"type": "tool_confirmation", "task_id": task, "message": message}), 400),
        (json!({"type": "interrupt", "task_id": task, "message": message}), 400),
        (json!({"type": "cancel", "task_id": task}), 409),
        (json!({"type": "message", "message": message}), 201),
    ] {
        let mut frame = frame;
        frame["id"] = json!("c");
        say(&mut wire, &frame).await;
        let answer = about(&mut wire, "c").await;
        assert_eq!(answer["status"], status, "{frame}: {answer}");
        if status == 200 {
            // Its end is told before the next command is sent.
            told_of(&mut wire, "task.completed").await;
        }
    }
    let elsewhere = json_at(&dormouse, &key, &format!("/v1/sessions/{other}/events")).await;
    let resume = json!({"type": "resume", "id": "r", "after_event_id": elsewhere["data"][0]["id"]});
    say(&mut wire, &resume).await;
    let refused = next_that(&mut wire, "it is refused", |frame| frame["type"] == "error").await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("r"), &json!("cursor_expired")), "{refused}");
    say(&mut wire, &json!({"type": "ping", "id": "p"})).await;
    assert_eq!(about(&mut wire, "p").await["type"], "pong", "the socket goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_opens_sockets_without_end_keeps_nobody_else_out() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let of = |tenant: &str, actor: &str| {
        let made = key(&dormouse, &["--tenant", tenant, "--actor", actor, "--all-scopes"]);
        text(&made, "key").to_owned()
    };
    let path = session(&dormouse, &of("greedy", "a")).await;
    let path = format!("/v1/sessions/{path}/events/stream");
    let mut held = Vec::new();
    for actor in ["a", "b", "c", "d", "e"] {
        let greedy = of("greedy", actor);
        for number in 0..100 {
            let opened = open(&dormouse, &greedy, &path).await;
            held.push(opened.unwrap_or_else(|status| panic!("{actor} {number}: {status}")));
        }
        assert_eq!(open(&dormouse, &greedy, &path).await.err(), Some(429), "{actor} has a hundred");
        assert_eq!(get(&dormouse, &path, &greedy).await.status(), 429, "streams count with them");
        assert_eq!(get(&dormouse, "/v1/sessions", &greedy).await.status(), 200, "and nothing else does");
    }
    let sixth = of("greedy", "f");
    assert_eq!(open(&dormouse, &sixth, &path).await.err(), Some(429), "the tenant has five hundred");
    let quiet = of("quiet", "ada");
    let session = session(&dormouse, &quiet).await;
    let task = asking(&dormouse, &quiet, &session).await;
    assert!(open(&dormouse, &quiet, &format!("/v1/tasks/{task}/stream")).await.is_ok(), "others are served");
    drop(held.pop());
    in_time("there is room for another one", async {
        while open(&dormouse, &sixth, &path).await.is_err() {
            // The server hears of it a moment later.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_has_a_key_and_says_once_who_asks() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let key = dormouse.api_key();
    let session = session(&dormouse, &key).await;
    let good = "dGhlIHNhbXBsZSBub25jZQ==";
    let handshake = async |(version, nonce): (&str, &str), keys: &[&str]| {
        let request = dormouse_tests::client().get(dormouse.url(&format!("/v1/sessions/{session}/events/stream")));
        let request = request.header("upgrade", "websocket").header("connection", "upgrade");
        let request = request.header("sec-websocket-version", version).header("sec-websocket-key", nonce);
        let request = request.header(VERSION_HEADER, PROTOCOL_VERSION);
        let request =
            keys.iter().fold(request, |request, key| request.header("authorization", format!("Bearer {key}")));
        request.send().await.expect("an answer")
    };
    let opens = async |nonce: &str, keys: &[&str]| handshake(("13", nonce), keys).await.status().as_u16();
    for other in ["8", "14", ""] {
        let refused = handshake((other, good), &[&key]).await;
        let understood = refused.headers().get("sec-websocket-version").and_then(|version| version.to_str().ok());
        assert_eq!((refused.status().as_u16(), understood), (426, Some("13")), "{other:?}");
    }
    assert_eq!(opens(good, &[&key]).await, 101);
    for bad in ["", "short", "dGhlIHNhbXBsZSBub25jZQ", "not base64 at all!!!!!!!"] {
        assert_eq!(opens(bad, &[&key]).await, 400, "{bad:?}");
    }
    for keys in [&[key.as_str(), key.as_str()], &[key.as_str(), "dm_other"]] {
        assert_eq!(opens(good, keys).await, 400);
    }
}
