use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_api::{
    About, Answer, Api, Bell, Call, Front, FrontParts, Keys, Manners, Operations, Origins, Response, StreamLimits,
    Streams,
};
use dormouse_ports::{Records, SignalSubscriptions};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::cursor::Cursors;

use crate::{App, HttpRequest};

/// What paths of turns, callbacks and signals begin with.
const OF_TURNS: [&str; 5] = ["/graphs/", "/chat/", "/invocations/", "/callback/", "/signals/"];
/// Where addresses begin that nobody has configured.
const SOMEWHERE: &str = "http://localhost";

/// What a [`Server`] needs beside its [`App`], to serve the protocol.
#[derive(Clone)]
pub struct Wire {
    /// Reads what the app's store has written of documents and streams.
    pub records: Arc<dyn Records>,
    /// Forgets the wake-ups of what is canceled.
    pub subscriptions: Arc<dyn SignalSubscriptions>,
    /// Makes the cursors of lists.
    pub cursors: Cursors,
    /// What addresses begin with.
    pub base_url: Option<String>,
    /// What addresses of streams begin with, if they are served elsewhere.
    pub stream_url: Option<String>,
    /// Rung by commits of this process.
    pub bell: Bell,
    /// How streams behave.
    pub streams: StreamLimits,
    /// Which pages of browsers may ask.
    pub origins: Origins,
    /// Whether only reads are served, of the protocol alone.
    pub reads_only: bool,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// Everything that is served over HTTP: turns, callbacks and signals, and the Harn Agents Protocol. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Server {
    app: App,
    front: Front,
    reads_only: bool,
}

impl Server {
    /// Serves turns by `app`, and the protocol over `wire`. The store of the app's engine must be a
    /// [`Chronicle`](dormouse_api::Chronicle).
    pub fn new(app: App, wire: Wire) -> Self {
        let (clock, ids) = (app.engine().ports().clock.clone(), app.engine().ports().ids.clone());
        let base_url = wire.base_url.as_deref().unwrap_or(SOMEWHERE).trim_end_matches('/').to_owned();
        let about = About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            base_url,
            stream_url: wire.stream_url.map(|url| url.trim_end_matches('/').to_owned()),
            personas: app.personas().to_vec(),
            beside: (!wire.reads_only).then(|| app.described()),
            since: clock.now(),
        };
        let api = Api::new(dormouse_api::Parts {
            harness: app.harness().clone(),
            records: wire.records.clone(),
            subscriptions: wire.subscriptions,
            cursors: wire.cursors,
            personas: app.personas().to_vec(),
        });
        let operations: Arc<dyn Operations> = if wire.reads_only { Arc::new(ReadsOnly(api)) } else { Arc::new(api) };
        let front = Front::new(FrontParts {
            operations,
            keys: Keys::new(wire.records.clone()),
            streams: Streams::new(wire.records, clock.clone(), wire.bell, wire.streams),
            about,
            origins: wire.origins,
            clock,
            ids,
        });
        Self { app, front, reads_only: wire.reads_only }
    }

    /// What serves turns, events and wake-ups.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// Serves one HTTP request of any path. Those that nobody knows are refused as the protocol refuses.
    pub async fn http(&self, request: HttpRequest) -> Response {
        let mut request = request;
        let manners = Manners::of(&mut request);
        let of_turns = request.path == "/" || OF_TURNS.iter().any(|start| request.path.starts_with(start));
        let response = match of_turns && !self.reads_only {
            true => self.app.http(request).await.into(),
            false => self.front.serve(request).await,
        };
        manners.answer(response)
    }
}

/// Offers no operation that changes something: for a function whose role may only read.
struct ReadsOnly(Api);

#[async_trait]
impl Operations for ReadsOnly {
    async fn serve(&self, call: Call) -> Result<Answer, ProtocolError> {
        if call.operation.spec().method.is_write() {
            return Err(ProtocolError::not_implemented(call.operation));
        }
        self.0.serve(call).await
    }
}
