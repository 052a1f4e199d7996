//! Streams over sockets that break behind any byte, through a crash of the process.

use std::time::Duration;

use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::request::VERSION_HEADER;
use dormouse_tests::sse::{Block, read_in_pieces};
use fastrand::Rng;
use futures::StreamExt;
use futures::future::{join, join_all};
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};

use crate::folder;
use crate::process::{Dormouse, text};

/// What is said last.
const END: &str = "the end";

/// Somebody with a key, who knows nothing of the process but its address.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    address: String,
    key: String,
}

impl Client {
    fn of(dormouse: &Dormouse) -> Self {
        Self { http: dormouse_tests::client(), address: dormouse.url(""), key: dormouse.api_key() }
    }

    fn ask(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        request.bearer_auth(&self.key).header(VERSION_HEADER, PROTOCOL_VERSION)
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.http.post(format!("{}{path}", self.address)).json(&body);
        let response = self.ask(request).send().await.expect("an answer");
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.expect("JSON")
    }

    async fn say(&self, session: &str, words: &str) {
        let parts = [json!({"type": "text", "text": words})];
        self.post(&format!("{session}/messages"), json!({"message": {"role": "user", "parts": parts}})).await;
    }

    /// The stream at `path` behind the event `after`; `None` while nobody answers.
    async fn open(&self, path: &str, after: Option<&str>) -> Option<BoxStream<'static, Vec<u8>>> {
        let request = self.ask(self.http.get(format!("{}{path}", self.address)));
        let request = after.into_iter().fold(request, |request, after| request.header("last-event-id", after));
        let Ok(response) = request.send().await else {
            // It is being started again, and nothing tells when it listens.
            tokio::time::sleep(Duration::from_millis(10)).await;
            return None;
        };
        assert_eq!(response.status().as_u16(), 200, "{path} behind {after:?}");
        let chunk = |mut response: reqwest::Response| async move {
            let bytes = response.chunk().await.ok()??;
            Some((bytes.to_vec(), response))
        };
        Some(stream::unfold(response, chunk).boxed())
    }

    async fn read(&self, seed: u64, path: &str) -> Vec<Block> {
        let open = async |after: Option<&str>| self.open(path, after).await;
        read_in_pieces(&mut Rng::with_seed(seed), open, |block| block.data.contains(END)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_streams_break_each_event_is_told_once() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let client = Client::of(&dormouse);
    let workspace = client.post("/v1/workspaces", json!({"name": "desk", "root": "/"})).await;
    let session = client.post("/v1/sessions", json!({"workspace_id": workspace["id"]})).await;
    let session = format!("/v1/sessions/{}", text(&session, "id"));
    let path = format!("{session}/events/stream");
    let readers = (0..8).map(|seed| client.read(seed, &path));
    let writer = async {
        for number in 0..20 {
            client.say(&session, &format!("message {number}")).await;
        }
        let dormouse = dormouse.kill_and_restart();
        for number in 20..40 {
            client.say(&session, &format!("message {number}")).await;
        }
        client.say(&session, END).await;
        dormouse
    };
    let (told, _dormouse) = join(join_all(readers), writer).await;
    let mut told = told.into_iter();
    let first = told.next().expect("a reader");
    assert_eq!(first.len(), 42, "the session and its messages");
    let events = first.iter().map(|block| serde_json::from_str::<Value>(&block.data).expect("JSON"));
    let positions: Vec<String> = events.map(|event| text(&event, "id").to_owned()).collect();
    assert!(positions.is_sorted_by(|one, next| one < next), "{positions:?}");
    for other in told {
        assert_eq!(other, first);
    }
}
