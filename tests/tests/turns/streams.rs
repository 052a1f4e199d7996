//! What `functions/stream` serves, cut behind any byte: whoever comes back with the last event that it has is told of
//! everything else, once. The tests of local mode do the same over sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::time::Duration;

use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_http::{Content, Request, Server, StreamServer};
use dormouse_lambda::{Config, Function, StreamConfig, compose, compose_streams};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{Clock, Records};
use dormouse_system::SystemClock;
use dormouse_tests::sse::{Block, blocks, read_in_pieces};
use dormouse_tests::{STORE_SECRET, full_grant, make_key, open_door, protocol_request};
use fastrand::Rng;
use futures::StreamExt;
use futures::future::{join, join_all};
use futures::stream::BoxStream;
use serde_json::{Value, json};

const TABLE: &str = "dormouse";
/// What is said last.
const END: &str = "the end";

/// The functions that write and that stream, on one store.
struct Scene {
    inbound: Server,
    stream: StreamServer,
    store: Arc<DynamoDbStateStore>,
    key: String,
    _embedded: EmbeddedDynamoDb,
}

impl Scene {
    async fn new() -> Self {
        let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
        ensure_table(&embedded.client(), TABLE).await.unwrap();
        let store = Arc::new(DynamoDbStateStore::new(&embedded.client(), TABLE, StoreConfig::default()));
        let key = make_key(&*store, 7, full_grant("ada", "acme"), SystemClock::default().now()).await;
        let endpoint = open_door(&embedded).await;
        let set = variables(&endpoint);
        let given = |name: &str| set[name].as_str().map(str::to_owned);
        let config = Config::from_variables(Function::Inbound, given).unwrap();
        let inbound = compose(Function::Inbound, config, None, &dormouse_app::agents()).await.unwrap();
        let stream = compose_streams(StreamConfig::from_variables(given).unwrap());
        Self { inbound, stream, store, key, _embedded: embedded }
    }

    fn request(&self, method: &str, target: &str, body: &Value) -> Request {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let time_left = Some(Duration::from_secs(300));
        Request { time_left, ..protocol_request(&self.key, method, target, body) }
    }

    async fn post(&self, target: &str, body: Value) -> Value {
        let response = self.inbound.http(self.request("POST", target, &body)).await;
        let Content::Whole(bytes) = response.content else { panic!("{target} streams") };
        assert!(response.status < 300, "{target}: {}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).unwrap()
    }

    /// A session: its path.
    async fn session(&self) -> String {
        let workspace = self.post("/v1/workspaces", json!({ "name": "desk", "root": "/" })).await;
        let session = self.post("/v1/sessions", json!({ "workspace_id": workspace["id"] })).await;
        format!("/v1/sessions/{}", session["id"].as_str().unwrap())
    }

    async fn say(&self, session: &str, words: &str) {
        let parts = [json!({ "type": "text", "text": words })];
        self.post(&format!("{session}/messages"), json!({ "message": { "role": "user", "parts": parts } })).await;
    }

    /// The stream at `target` behind the event `after`, which is named in the header or in the query.
    async fn open(&self, target: &str, after: Option<&str>, by_header: bool) -> BoxStream<'static, Vec<u8>> {
        let joint = if target.contains('?') { '&' } else { '?' };
        let request = match after {
            Some(after) if by_header => {
                let mut request = self.request("GET", target, &Value::Null);
                request.headers.push(("last-event-id".to_owned(), after.to_owned()));
                request
            }
            Some(after) => self.request("GET", &format!("{target}{joint}after_event_id={after}"), &Value::Null),
            None => self.request("GET", target, &Value::Null),
        };
        let response = self.stream.http(request).await;
        assert_eq!(response.status, 200, "{target} behind {after:?}");
        let Content::Live(pieces) = response.content else { panic!("{target} is whole") };
        pieces
    }

    /// What is told at `target`, up to the block that `is_last`; half of all clients name the cursor in the header.
    async fn read(&self, seed: u64, target: &str, is_last: impl Fn(&Block) -> bool) -> Vec<String> {
        let mut rng = Rng::with_seed(seed);
        let by_header = seed.is_multiple_of(2);
        let open = async |after: Option<&str>| Some(self.open(target, after, by_header).await);
        let told = read_in_pieces(&mut rng, open, is_last).await;
        told.into_iter().map(|block| block.id).collect()
    }

    /// The ids of all events of the session, as they are stored; of those of one task only, if it is named.
    async fn stored(&self, session: &str, task: Option<&str>) -> Vec<String> {
        let entries = self.store.entries(session.rsplit('/').next().unwrap(), 0, usize::MAX).await.unwrap();
        let concerns = |entry: &Value| task.is_none_or(|task| entry["task_id"] == task);
        let entries = entries.into_iter().map(|entry| Value::Object(entry.entry)).filter(concerns);
        entries.map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
    }
}

fn variables(endpoint: &str) -> Value {
    json!({
        "DORMOUSE_TABLE": TABLE, "DORMOUSE_CALLBACK_SECRET": "x".repeat(32),
        "DORMOUSE_BUS": "bus", "DORMOUSE_SCHEDULER_GROUP": "group",
        "DORMOUSE_SCHEDULER_ROLE_ARN": "arn:aws:iam::1:role/scheduler",
        "DORMOUSE_WAKEUP_ARN": "arn:aws:lambda:eu-central-1:1:function:wakeup",
        "DORMOUSE_SIGNAL_ARN": "arn:aws:lambda:eu-central-1:1:function:signal",
        "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_SESSION_TOKEN": STORE_SECRET,
        "AWS_ENDPOINT_URL": endpoint, "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9001",
        "AWS_LAMBDA_FUNCTION_NAME": "stream", "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
    })
}

fn says_the_end(block: &Block) -> bool {
    block.data.contains(END)
}

#[tokio::test]
async fn wherever_streams_are_cut_each_event_is_told_once() {
    let scene = Scene::new().await;
    let session = scene.session().await;
    scene.say(&session, "before").await;
    let of_session = session.strip_prefix("/v1/sessions/").unwrap();
    let targets = [
        format!("{session}/events/stream"),
        format!("/v1/events/stream?session_id={of_session}"),
        "/v1/events/stream".to_owned(),
    ];
    let readers = (0..12_u64).zip(targets.iter().cycle()).map(async |(seed, target)| {
        let told = scene.read(seed, target, says_the_end).await;
        (seed, target, told)
    });
    // While they read, more happens.
    let writer = async {
        for number in 0..40 {
            scene.say(&session, &format!("{number} {}", "word ".repeat(number))).await;
        }
        scene.say(&session, END).await;
    };
    let (told, ()) = join(join_all(readers), writer).await;
    let stored = scene.stored(&session, None).await;
    assert_eq!(stored.len(), 43);
    for (seed, target, told) in told {
        assert_eq!(told, stored, "seed {seed} at {target}");
    }
}

#[tokio::test]
async fn the_stream_of_a_task_is_told_once_and_to_its_end() {
    let scene = Scene::new().await;
    let session = scene.session().await;
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "Hello" }] });
    let task = scene.post(&format!("{session}/tasks"), json!({ "input": message })).await;
    let id = task["id"].as_str().unwrap().to_owned();
    let target = format!("/v1/tasks/{id}/stream");
    let completes = |block: &Block| block.event == "task.completed";
    let readers = (0..12).map(|seed| scene.read(seed, &target, completes));
    let writer = async {
        scene.say(&session, "what belongs to no task").await;
        scene.inbound.app().harness().take_up(&id.as_str().into(), None).await;
    };
    let (told, _) = join(join_all(readers), writer).await;
    let stored = scene.stored(&session, Some(&id)).await;
    for (seed, told) in told.into_iter().enumerate() {
        assert_eq!(told, stored, "seed {seed}");
    }
}

#[tokio::test]
async fn a_cursor_from_elsewhere_gives_one_error_and_the_end() {
    let scene = Scene::new().await;
    let session = scene.session().await;
    let other = scene.session().await;
    let foreign = scene.stored(&other, None).await.pop().unwrap();
    for by_header in [true, false] {
        let pieces = scene.open(&format!("{session}/events/stream"), Some(&foreign), by_header).await;
        let told = blocks(&pieces.concat().await);
        let [Block { id, event, data }] = &told[..] else { panic!("{told:?}") };
        let error: Value = serde_json::from_str(data).unwrap();
        assert_eq!((id.as_str(), event.as_str(), &error["error"]["code"]), ("", "error", &json!("cursor_expired")));
    }
    let target = format!("{session}/events?after_event_id={foreign}");
    assert_eq!(scene.inbound.http(scene.request("GET", &target, &Value::Null)).await.status, 410);
}
