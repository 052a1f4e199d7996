//! The text of an answer is shown while it comes, to whoever asks for that.

use dormouse_protocol::request::VERSION_HEADER;
use dormouse_protocol::resource::TaskStatus;
use dormouse_protocol::{EventKind, PROTOCOL_VERSION};
use dormouse_tests::sse::{Block, blocks};
use serde_json::{Value, json};

use super::WAITING;
use super::world::{Assistant, Wire};
use crate::process::{Dormouse, in_time};

/// A stream of events that is open.
struct Follower {
    response: reqwest::Response,
    seen: Vec<u8>,
}

impl Follower {
    async fn of(dormouse: &Dormouse, path: &str) -> Self {
        let request = dormouse_tests::client().get(dormouse.url(path)).header(VERSION_HEADER, PROTOCOL_VERSION);
        let response = request.bearer_auth(dormouse.api_key()).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        Self { response, seen: Vec::new() }
    }

    /// Everything until an event of `kind` has come.
    async fn until(&mut self, kind: &EventKind) -> Vec<Block> {
        let told = async {
            loop {
                let whole = blocks(&self.seen);
                if whole.iter().any(|block| block.event == kind.as_str()) {
                    return whole;
                }
                let more = self.response.chunk().await.expect("bytes");
                self.seen.extend_from_slice(&more.unwrap_or_else(|| panic!("it ends before {kind:?}")));
            }
        };
        in_time(kind.as_str(), told).await
    }
}

fn deltas(blocks: &[Block]) -> Vec<Value> {
    let deltas = blocks.iter().filter(|block| block.event == "message.delta");
    deltas.map(|block| serde_json::from_str(&block.data).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_shown_while_it_comes_to_streams_that_ask_for_it() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve();
    let wire = Wire::of(&dormouse);
    let task = assistant.send(&dormouse, "book blue");
    let session = wire.task(&task, &WAITING).await.session_id;
    let mut of_task = Follower::of(&dormouse, &format!("/v1/tasks/{task}/stream?deltas=true")).await;
    let mut of_session = Follower::of(&dormouse, &format!("/v1/sessions/{session}/events/stream?deltas=true")).await;
    let mut plain = Follower::of(&dormouse, &format!("/v1/tasks/{task}/stream")).await;
    for follower in [&mut of_task, &mut of_session, &mut plain] {
        let before = follower.until(&EventKind::TaskAuthRequired).await;
        assert_eq!(deltas(&before), Vec::<Value>::new(), "what was said before they came is in its event");
    }
    assert_eq!(wire.answer(&task, None, json!({ "decision": "approve" })).await.0, 201);
    let done = EventKind::TaskCompleted;
    for follower in [&mut of_task, &mut of_session] {
        let told = follower.until(&done).await;
        let pieces = deltas(&told);
        let mut text = String::new();
        for piece in &pieces {
            assert_eq!(piece["from"], text.chars().count(), "nothing is missing: {pieces:?}");
            assert_eq!(
                (&piece["task_id"], &piece["session_id"], &piece["step"]),
                (&json!(task), &json!(session), &json!(2))
            );
            text.push_str(piece["text"].as_str().expect("text"));
        }
        assert_eq!(text, "The office says: {\"booked\":\"blue\"}");
        let at = |event: &str| told.iter().rposition(|block| block.event == event).expect("it is there");
        assert!(at("message.delta") < at(done.as_str()), "all of it comes before the end");
        assert!(
            told.iter().all(|block| (block.event == "message.delta") == block.id.is_empty()),
            "no cursor is for text"
        );
    }
    assert_eq!(deltas(&plain.until(&done).await), Vec::<Value>::new());
    assert_eq!(wire.task(&task, &[TaskStatus::Completed]).await.status, TaskStatus::Completed);
    let again = Follower::of(&dormouse, &format!("/v1/tasks/{task}/stream?deltas=true")).await.until(&done).await;
    assert_eq!(deltas(&again), Vec::<Value>::new(), "nothing of it is kept");
}
