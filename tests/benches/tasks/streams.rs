//! What it costs to watch a session, by how many events it has already: to open a stream behind the last of them, to
//! leave it open while nothing happens, and how soon a task that is submitted is seen in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_api::keys::{CHANCE, Grant, KeyToken};
use dormouse_api::{AppendNotifier, Keys};
use dormouse_http::{Content, Request, Server};
use dormouse_ports::{Clock, Records};
use dormouse_protocol::id::EventId;
use dormouse_protocol::{PROTOCOL_VERSION, Scope};
use dormouse_system::SystemClock;
use dormouse_testkit::ManualClock;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::{Value, json};

use crate::{Bench, Cost, ROUNDS};

const MINUTE: Duration = Duration::from_secs(60);
/// How far time goes at once while nothing happens: as long as the shortest pause between two looks.
const TICK: Duration = Duration::from_millis(100);

/// What was measured on one session: the times are those of the fastest round.
#[derive(Clone)]
pub(crate) struct Watched {
    opened: Cost,
    idle: Cost,
    first: Duration,
    completed: Duration,
}

impl Watched {
    pub(crate) const TITLE: &str =
        "events before  open: requests, units  idle minute: requests, units  ms to first event  ms to completed";

    /// As a line of the table, with how often longer it took than in `least`.
    pub(crate) fn line(&self, events: u64, least: &Self) -> String {
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        let first = millis(self.first);
        let completed = millis(self.completed);
        let times = |this: f64, least: Duration| this / millis(least);
        format!(
            "{events:>13}  {:>14}  {:>5}  {:>21}  {:>5}  {first:>9.2} ({:>4.2}x)  {completed:>8.2} ({:>4.2}x)",
            self.opened.units.requests,
            self.opened.units.reads,
            self.idle.units.requests,
            self.idle.units.reads,
            times(first, least.first),
            times(completed, least.completed),
        )
    }

    /// What is counted must not depend on how much has happened before.
    pub(crate) fn costs_as(&self, other: &Self) -> bool {
        let counted = |one: &Self| (one.opened.units, one.idle.units);
        counted(self) == counted(other)
    }
}

/// Asks the server as a client does.
pub(crate) struct Client<'b> {
    bench: &'b Bench,
    key: KeyToken,
}

impl<'b> Client<'b> {
    pub(crate) async fn of(bench: &'b Bench) -> Self {
        let key = KeyToken::generate([7; CHANCE]);
        let actor = "ada".to_owned();
        let tenant = "acme".to_owned();
        let scopes = Scope::ALL.iter().copied().collect();
        let grant = Grant { actor, tenant, workspaces: None, scopes, expires_at: None };
        bench.commit(Keys::creation(&key, grant, SystemClock::default().now())).await;
        Self { bench, key }
    }

    /// Watches `session` while nothing happens, and while tasks are done in it.
    pub(crate) async fn watch(&self, session: &str) -> Watched {
        let idle = self.idle(session).await;
        let began = self.bench.begin();
        let server = self.bench.server(Arc::new(SystemClock::default()), self.bench.notifier.clone());
        let mut pieces = self.open(&server, session).await;
        let opened = self.bench.cost(began, &Cost::default());
        let mut first = Duration::MAX;
        let mut completed = Duration::MAX;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let task = async {
                let body = json!({ "input": { "role": "user", "parts": [{ "type": "text", "text": "Hello" }] } });
                let task = self.bench.post(&format!("/v1/sessions/{session}/tasks"), &body).await;
                let id = task["id"].as_str().expect("an id").into();
                self.bench.harness.take_up(&id, None).await;
            };
            let told = async {
                let mut seen = None;
                loop {
                    let piece = pieces.next().await.expect("the stream goes on");
                    let told = String::from_utf8(piece).expect("text");
                    seen = seen.or_else(|| told.contains("event: task.submitted").then(|| began.elapsed()));
                    if told.contains("event: task.completed") {
                        return (seen.expect("it was submitted"), began.elapsed());
                    }
                }
            };
            let ((), (seen, done)) = futures::join!(task, told);
            (first, completed) = (first.min(seen), completed.min(done));
        }
        Watched { opened, idle, first, completed }
    }

    /// What a minute costs in which nothing happens: not the first one, in which the stream still looks more often.
    async fn idle(&self, session: &str) -> Cost {
        let clock = Arc::new(ManualClock::default());
        let mut pieces = self.open(&self.bench.server(clock.clone(), AppendNotifier::default()), session).await;
        let mut silence = pieces.next();
        let mut pass = async |time: Duration| {
            let ticks = time.as_millis() / TICK.as_millis();
            for _ in 0..ticks {
                // It asks, until it sleeps again.
                while clock.sleepers() == 0 {
                    tokio::select! {
                        biased;
                        piece = &mut silence => panic!("nothing happens, and it says {piece:?}"),
                        () = tokio::task::yield_now() => {}
                    }
                }
                clock.advance(TICK);
            }
        };
        pass(MINUTE).await;
        let began = self.bench.begin();
        pass(MINUTE).await;
        self.bench.cost(began, &Cost::default())
    }

    /// The stream of `session` behind its last event.
    async fn open(&self, server: &Server, session: &str) -> BoxStream<'static, Vec<u8>> {
        let last = self.bench.store.tip(session).await.expect("an answer").position;
        self.bench.meter.reset();
        let headers = [
            ("authorization", format!("Bearer {}", self.key.reveal())),
            ("harn-agents-protocol-version", PROTOCOL_VERSION.to_owned()),
            ("last-event-id", EventId::at(session, last).to_string()),
        ];
        let response = server
            .http(Request {
                method: "GET".to_owned(),
                path: format!("/v1/sessions/{session}/events/stream"),
                headers: headers.map(|(name, value)| (name.to_owned(), value)).to_vec(),
                ..Request::default()
            })
            .await;
        match response.content {
            Content::Live(pieces) => pieces,
            Content::Whole(bytes) => panic!("{:?}", serde_json::from_slice::<Value>(&bytes)),
        }
    }
}
