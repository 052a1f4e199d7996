use std::time::Duration;

use dormouse_api::keys::Grant;
use dormouse_api::{Keys, StreamLimits};
use dormouse_http::{Content, Response};
use dormouse_protocol::EventKind;
use dormouse_protocol::id::EventId;
use dormouse_protocol::sse::{HEARTBEAT, Reader};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::world::{OVER, SESSION, TASK, World, grant, header, json_of, to_end};

const SESSION_STREAM: &str = "/v1/sessions/session_1/events/stream";
const TASK_STREAM: &str = "/v1/tasks/task_1/stream";

fn pieces(response: Response) -> BoxStream<'static, Vec<u8>> {
    match response.content {
        Content::Live(pieces) => pieces,
        Content::Whole(_) => panic!("it is whole"),
    }
}

/// The positions of the events that `bytes` tell of.
fn positions(bytes: &[u8]) -> Vec<u64> {
    let blocks = Reader::new().push(bytes);
    blocks.iter().map(|block| EventId::new(&*block.id).place().unwrap().1).collect()
}

async fn resumed(world: &World, target: &str, after: u64) -> Response {
    let mut request = world.request("GET", target, "");
    request.headers.push(("last-event-id".to_owned(), EventId::at(SESSION, after).to_string()));
    world.server.http(request).await
}

fn short() -> World {
    World::with(StreamLimits { whole: Some(usize::MAX), page: 2, ..StreamLimits::default() })
}

#[tokio::test]
async fn wherever_a_stream_is_cut_it_goes_on_without_gap_or_repeat() {
    let world = short();
    for _ in 0..7 {
        world.append(TASK, EventKind::AgentMessage);
    }
    let whole = to_end(world.get(SESSION_STREAM).await).await;
    assert!(!whole.contains('\r') && whole.starts_with("id: "), "{whole}");
    assert_eq!(positions(whole.as_bytes()), [1, 2, 3, 4, 5, 6, 7]);
    for cut in 0..whole.len() {
        let mut reader = Reader::new();
        let mut told: Vec<String> = reader.push(&whole.as_bytes()[..cut]).into_iter().map(|block| block.id).collect();
        let mut request = world.request("GET", SESSION_STREAM, "");
        request.headers.push(("last-event-id".to_owned(), reader.last_event_id().to_owned()));
        let rest = if told.len() < 7 { to_end(world.server.http(request).await).await } else { String::new() };
        told.extend(Reader::new().push(rest.as_bytes()).into_iter().map(|block| block.id));
        let expected: Vec<String> = (1..=7).map(|position| EventId::at(SESSION, position).to_string()).collect();
        assert_eq!(told, expected, "cut behind {cut} bytes");
    }
}

#[tokio::test]
async fn the_query_resumes_as_the_header_does() {
    let world = short();
    for _ in 0..3 {
        world.append(TASK, EventKind::AgentMessage);
    }
    for name in ["after_event_id", "cursor"] {
        let target = format!("{SESSION_STREAM}?{name}={}", EventId::at(SESSION, 2));
        assert_eq!(positions(to_end(world.get(&target).await).await.as_bytes()), [3], "{name}");
    }
    assert_eq!(positions(to_end(resumed(&world, SESSION_STREAM, 1).await).await.as_bytes()), [2, 3]);
}

#[tokio::test]
async fn a_task_is_told_of_without_its_neighbours() {
    let world = short();
    for task in ["task_0", TASK, "task_0", TASK, "task_0", "task_0", "task_0", TASK] {
        world.append(task, EventKind::AgentMessage);
    }
    assert_eq!(positions(to_end(world.get(TASK_STREAM).await).await.as_bytes()), [2, 4, 8]);
    assert_eq!(positions(to_end(resumed(&world, TASK_STREAM, 4).await).await.as_bytes()), [8]);
    let filtered = format!("/v1/events/stream?task_id={TASK}");
    assert_eq!(positions(to_end(world.get(&filtered).await).await.as_bytes()), [2, 4, 8]);
}

#[tokio::test]
async fn all_sessions_are_told_of() {
    let world = short();
    for _ in 0..3 {
        world.append(TASK, EventKind::AgentMessage);
    }
    assert_eq!(positions(to_end(world.get("/v1/events/stream").await).await.as_bytes()), [1, 2, 3]);
    assert_eq!(positions(to_end(resumed(&world, "/v1/events/stream", 2).await).await.as_bytes()), [3]);
}

#[tokio::test]
async fn a_cursor_that_is_none_gives_one_error_and_the_end() {
    let world = short();
    world.append(TASK, EventKind::AgentMessage);
    let unknown = [EventId::at(SESSION, 2), EventId::at(SESSION, 0), EventId::at("session_2", 1), EventId::new("x")];
    for cursor in unknown {
        let response = world.get(&format!("{TASK_STREAM}?after_event_id={cursor}")).await;
        let request_id = header(&response, "x-request-id").unwrap().to_owned();
        let blocks = Reader::new().push(to_end(response).await.as_bytes());
        assert_eq!((blocks.len(), blocks[0].event.as_str(), blocks[0].id.as_str()), (1, "error", ""), "{cursor}");
        let error: Value = serde_json::from_str(&blocks[0].data).unwrap();
        assert_eq!(error["error"]["code"], "cursor_expired");
        assert_eq!(error["error"]["request_id"], request_id);
    }
}

#[tokio::test]
async fn what_is_not_there_is_refused_before_the_stream() {
    let world = World::new();
    for target in ["/v1/sessions/session_2/events/stream", "/v1/sessions/a%20b/events/stream", "/v1/tasks/x/stream"] {
        assert_eq!(json_of(&world.get(target).await).0, 404, "{target}");
    }
}

#[tokio::test]
async fn an_event_is_told_as_soon_as_it_is_there() {
    let world = World::new();
    let mut pieces = pieces(world.get(SESSION_STREAM).await);
    let mut next = pieces.next();
    assert!(futures::poll!(&mut next).is_pending(), "nothing has happened");
    // No time passes: it is the notifier that wakes.
    world.append(TASK, EventKind::AgentMessage);
    assert_eq!(positions(&next.await.unwrap()), [1]);
}

#[tokio::test]
async fn without_a_bell_the_store_is_asked_less_and_less_often() {
    let world = World::new();
    let mut pieces = pieces(world.get(SESSION_STREAM).await);
    let mut next = pieces.next();
    assert!(futures::poll!(&mut next).is_pending());
    for pause in [100, 200, 400, 800, 1600, 2000, 2000] {
        assert_eq!(world.clock.sleepers(), 2, "it sleeps until it asks, and until it looks at its key");
        world.clock.advance(Duration::from_millis(pause - 1));
        assert!(futures::poll!(&mut next).is_pending());
        assert_eq!(world.clock.sleepers(), 2, "not before {pause} ms");
        world.clock.advance(Duration::from_millis(1));
        assert!(futures::poll!(&mut next).is_pending());
    }
}

#[tokio::test]
async fn heartbeats_come_after_the_first_event_and_not_before() {
    let world = World::new();
    let mut pieces = pieces(world.get(SESSION_STREAM).await);
    {
        let mut next = pieces.next();
        for _ in 0..100 {
            assert!(futures::poll!(&mut next).is_pending(), "nothing comes before the first event");
            world.clock.advance(Duration::from_secs(1));
        }
        world.append(TASK, EventKind::AgentMessage);
        assert_eq!(positions(&next.await.unwrap()), [1]);
    }
    for _ in 0..3 {
        let mut next = pieces.next();
        let mut waited = Duration::ZERO;
        let heartbeat = loop {
            match futures::poll!(&mut next) {
                std::task::Poll::Ready(piece) => break piece.unwrap(),
                std::task::Poll::Pending => {
                    world.clock.advance(Duration::from_secs(1));
                    waited += Duration::from_secs(1);
                }
            }
        };
        assert_eq!((heartbeat.as_slice(), waited), (HEARTBEAT.as_bytes(), Duration::from_secs(15)));
    }
}

#[tokio::test]
async fn a_stream_ends_before_its_worker_does_and_with_its_task() {
    let world = World::new();
    world.append(TASK, EventKind::TaskCompleted);
    for (target, time_left, lives) in
        [(SESSION_STREAM, Some(62), 60), (SESSION_STREAM, None, 3600), (TASK_STREAM, None, 30)]
    {
        let mut request = world.request("GET", target, "");
        request.time_left = time_left.map(Duration::from_secs);
        let mut pieces = pieces(world.server.http(request).await);
        assert_eq!(positions(&pieces.next().await.unwrap()), [1]);
        let mut lived = Duration::ZERO;
        let mut next = pieces.next();
        loop {
            match futures::poll!(&mut next) {
                std::task::Poll::Ready(None) => break,
                std::task::Poll::Ready(Some(piece)) => {
                    assert_eq!(piece, HEARTBEAT.as_bytes());
                    drop(next);
                    next = pieces.next();
                }
                std::task::Poll::Pending => {
                    world.clock.advance(Duration::from_secs(1));
                    lived += Duration::from_secs(1);
                }
            }
        }
        assert_eq!(lived, Duration::from_secs(lives), "{target}");
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_key_does() {
    let world = World::new();
    world.append(TASK, EventKind::AgentMessage);
    let ends = Grant { expires_at: Some(world.now() + Duration::from_secs(90)), ..grant("ada") };
    let request = world.request_by(ends, ("GET", SESSION_STREAM, ""));
    let mut pieces = pieces(world.server.http(request.clone()).await);
    assert_eq!(positions(&pieces.next().await.unwrap()), [1]);
    world.clock.advance(Duration::from_secs(89));
    world.append(TASK, EventKind::AgentMessage);
    assert_eq!(positions(&pieces.next().await.unwrap()), [2], "it is good until then");
    world.clock.advance(Duration::from_secs(1));
    world.append(TASK, EventKind::AgentMessage);
    assert_eq!(pieces.next().await, None);
    assert_eq!(world.server.http(request).await.status, 401);
}

#[tokio::test]
async fn a_stream_ends_within_two_minutes_after_its_key_was_revoked() {
    let world = World::new();
    world.append(TASK, EventKind::AgentMessage);
    let request = world.request_by(grant("ada"), ("GET", SESSION_STREAM, ""));
    let id = request.header("authorization").and_then(|key| key.split('_').nth(1)).expect("its id").to_owned();
    let mut pieces = pieces(world.server.http(request.clone()).await);
    assert_eq!(positions(&pieces.next().await.unwrap()), [1]);
    for position in 2..5 {
        world.clock.advance(Duration::from_secs(61));
        world.append(TASK, EventKind::AgentMessage);
        assert_eq!(positions(&pieces.next().await.unwrap()), [position], "a good key is asked for, and goes on");
    }
    let revoked = Keys::new(world.shelf.clone()).revocation(&id, world.now()).await.unwrap().expect("the key");
    world.shelf.apply(revoked);
    let mut told = 0;
    for _ in 0..2 {
        world.clock.advance(Duration::from_secs(60));
        world.append(TASK, EventKind::AgentMessage);
        match pieces.next().await {
            Some(_) => told += 1,
            None => break,
        }
    }
    assert!(told < 2 && pieces.next().await.is_none(), "{told}");
    assert_eq!(world.server.http(request).await.status, 401);
}

/// A client that lost its stream behind the last event asks once more, and must not wait for what cannot come.
#[tokio::test]
async fn a_stream_behind_the_end_of_its_task_ends_too() {
    let target = format!("/v1/tasks/{OVER}/stream");
    let world = World::new();
    world.append(OVER, EventKind::TaskCompleted);
    let mut pieces = pieces(resumed(&world, &target, 1).await);
    let mut lived = Duration::ZERO;
    let mut next = pieces.next();
    while futures::poll!(&mut next).is_pending() {
        world.clock.advance(Duration::from_secs(1));
        lived += Duration::from_secs(1);
    }
    assert_eq!(lived, Duration::from_secs(30), "it lingers, and tells nothing");
    let world = short();
    world.append(OVER, EventKind::TaskCompleted);
    assert_eq!(to_end(resumed(&world, &target, 1).await).await, "", "nothing to linger for where it is sent whole");
}

#[tokio::test]
async fn a_store_that_fails_ends_the_stream_with_the_cursor_of_the_client() {
    let world = World::new();
    for _ in 0..2 {
        world.append(TASK, EventKind::AgentMessage);
    }
    let mut pieces = pieces(resumed(&world, SESSION_STREAM, 2).await);
    *world.shelf.is_down.lock().unwrap() = true;
    let last = pieces.next().await.unwrap();
    assert_eq!(pieces.next().await, None);
    let blocks = Reader::new().push(&last);
    assert_eq!((blocks[0].event.as_str(), blocks[0].id.as_str()), ("error", EventId::at(SESSION, 2).as_str()));
    assert!(blocks[0].data.contains("service_unavailable"));
}

#[tokio::test]
async fn a_store_that_fails_later_ends_the_stream_with_the_cursor_of_what_was_told() {
    let world = World::new();
    for _ in 0..3 {
        world.append(TASK, EventKind::AgentMessage);
    }
    let mut pieces = pieces(resumed(&world, SESSION_STREAM, 1).await);
    assert_eq!(positions(&pieces.next().await.unwrap()), [2, 3]);
    *world.shelf.is_down.lock().unwrap() = true;
    world.notifier.notify(SESSION);
    let blocks = Reader::new().push(&pieces.next().await.unwrap());
    assert_eq!((blocks[0].event.as_str(), blocks[0].id.as_str()), ("error", EventId::at(SESSION, 3).as_str()));
    assert_eq!(pieces.next().await, None);
}

#[tokio::test]
async fn one_actor_has_so_many_streams_and_no_more() {
    let world = World::with(StreamLimits { each: 2, ..StreamLimits::default() });
    let first = world.get(SESSION_STREAM).await;
    let _second = world.get(SESSION_STREAM).await;
    let refused = world.get(SESSION_STREAM).await;
    assert_eq!((refused.status, header(&refused, "retry-after")), (429, Some("5")));
    drop(first);
    assert_eq!(world.get(SESSION_STREAM).await.status, 200);
}

/// However many events are read at once: what is sent whole ends behind the event with which it is long enough.
#[tokio::test]
async fn a_stream_that_is_sent_whole_ends_when_it_has_said_so_much() {
    let world = World::with(StreamLimits { whole: Some(1_000), page: 100, ..StreamLimits::default() });
    for _ in 0..7 {
        world.append(TASK, EventKind::AgentMessage);
    }
    let mut told = Vec::new();
    while told.len() < 7 {
        let piece = match told.last() {
            None => to_end(world.get(SESSION_STREAM).await).await,
            Some(last) => to_end(resumed(&world, SESSION_STREAM, *last).await).await,
        };
        let positions = positions(piece.as_bytes());
        let longest = piece.len() / positions.len() + 100;
        assert!(!positions.is_empty() && piece.len() < 1_000 + longest, "{} bytes", piece.len());
        told.extend(positions);
    }
    assert_eq!(told, [1, 2, 3, 4, 5, 6, 7]);
}
