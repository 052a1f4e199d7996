//! The one way through the application: a request is matched (`routes.rs`; of `/v1` by `shared/protocol`), judged, served and
//! answered, and leaves one line in the log.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use dormouse_api::{
    Actor, Api, AppendNotifier, Call, CallAnswer, LiveText, Operations, StreamItem, StreamLimits, StreamSeats, Streams,
    WebhookKeys, WorkspaceTemplates,
};
use dormouse_engine::in_trace;
use dormouse_ports::{Records, Secrets, Timers};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::request::VERSION_HEADER;
use dormouse_protocol::{PROTOCOL_VERSION, ProtocolError};
use futures::FutureExt;
use futures::stream::BoxStream;
use tracing::{Instrument, field};

use crate::conditional::ConditionalRead;
use crate::console::Console;
use crate::deadline::in_time;
use crate::extensions::{ExtensionRoute, Extensions};
use crate::protocol::{CardSignatures, Describe, DescribedServer, Protocol, ServerInfo};
use crate::surface::{Surface, SurfaceRefusal};
use crate::{App, CommandsElsewhere, Origins, Request, Response, log};

/// The longest id of a request that is taken over from the gateway.
const LONGEST_REQUEST_ID: usize = 200;
/// Prefix of addresses where none is configured.
const SOMEWHERE: &str = "http://localhost";

/// Configuration that a [`Server`] needs beside its [`App`], to serve the protocol.
#[derive(Clone)]
pub struct ProtocolConfig {
    /// Reads what the app's store has written of documents and streams.
    pub records: Arc<dyn Records>,
    /// Forgets the wake-ups of what is canceled.
    pub timers: Arc<dyn Timers>,
    /// Makes the cursors of lists.
    pub cursors: Cursors,
    /// Prefix of addresses.
    pub base_url: Option<String>,
    /// Prefix of the addresses of streams, if they are served elsewhere.
    pub stream_url: Option<String>,
    /// Rung by commits of this process.
    pub notifier: AppendNotifier,
    /// Text of answers that come from models in this process.
    pub live: LiveText,
    /// Limits of streams.
    pub streams: StreamLimits,
    /// Counts the streams of a tenant over all processes, where somebody does.
    pub seats: Option<StreamSeats>,
    /// Origins of the pages of browsers that may ask.
    pub origins: Origins,
    /// True if only reads are served, of the protocol alone.
    pub reads_only: bool,
    /// True if this process may repair what the doctor finds: write to the index of what sleeps, register wake-ups.
    pub may_repair: bool,
    /// True if sockets can be opened at the paths of streams.
    pub sockets: bool,
    /// Where sockets can be opened instead: an address to which the path of the stream is added as a parameter.
    pub socket_url: Option<String>,
    /// The server that does what commands of sockets ask for, where this one only reads.
    pub commands: Option<CommandsElsewhere>,
    /// True if A2A is spoken at `/a2a`, and the cards say so; its streams only where responses are not sent whole.
    pub a2a: bool,
    /// Keys of webhooks, where the workers have the graph that delivers them.
    pub webhooks: Option<WebhookKeys>,
    /// Providers of the secrets of vaults, by the names that vaults call them.
    pub secrets: BTreeMap<String, Arc<dyn Secrets>>,
    /// What new workspaces may begin with.
    pub templates: Option<Arc<dyn WorkspaceTemplates>>,
}

impl ProtocolConfig {
    /// The protocol over `records`, at no configured address and for no pages of browsers. Wake-ups of what is canceled
    /// are forgotten by `timers`, cursors made by `cursors`.
    pub fn new(records: Arc<dyn Records>, timers: Arc<dyn Timers>, cursors: Cursors) -> Self {
        Self {
            records,
            timers,
            cursors,
            base_url: None,
            stream_url: None,
            notifier: AppendNotifier::default(),
            live: LiveText::default(),
            streams: StreamLimits::default(),
            seats: None,
            origins: Origins::default(),
            reads_only: false,
            may_repair: false,
            sockets: false,
            socket_url: None,
            commands: None,
            a2a: false,
            webhooks: None,
            secrets: BTreeMap::new(),
            templates: None,
        }
    }
}

impl fmt::Debug for ProtocolConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtocolConfig").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// Everything that is served over HTTP: turns, callbacks and signals, and the Harn Agents Protocol. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Server(Arc<ServerShared>);

struct ServerShared {
    app: App,
    protocol: Protocol,
    extensions: Extensions,
    origins: Origins,
    reads_only: bool,
    commands: Option<CommandsElsewhere>,
}

impl fmt::Debug for ServerShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerShared").field("app", &self.app).field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

impl Server {
    /// Serves turns by `app`, and the protocol over `wire`.
    pub fn new(app: App, wire: ProtocolConfig) -> Self {
        let api = Api::new(dormouse_api::ApiParts {
            harness: app.harness().clone(),
            records: wire.records.clone(),
            timers: wire.timers.clone(),
            cursors: wire.cursors.clone(),
            personas: app.personas().clone(),
            receipts: app.receipts().cloned(),
            secrets: wire.secrets.clone(),
            webhooks: wire.webhooks.clone(),
            templates: wire.templates.clone(),
        });
        let operations: Arc<dyn Operations> = if wire.reads_only { Arc::new(ReadsOnly(api)) } else { Arc::new(api) };
        Self::over(app, wire, operations)
    }

    /// The same, but `operations` serve the protocol.
    pub fn over(app: App, wire: ProtocolConfig, operations: Arc<dyn Operations>) -> Self {
        let clock = app.engine().ports().clock.clone();
        let origins = wire.origins.and_those_at(wire.base_url.as_deref());
        let about = ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            base_url: wire.base_url.as_deref().unwrap_or(SOMEWHERE).trim_end_matches('/').to_owned(),
            stream_url: wire.stream_url.map(|url| url.trim_end_matches('/').to_owned()),
            personas: app.personas().linked().to_vec(),
            since: clock.now(),
            issues: app.receipts().is_some(),
            sockets: wire.sockets,
            socket_url: wire.socket_url,
            a2a: wire.a2a,
            a2a_streams: wire.streams.whole.is_none(),
            webhooks: wire.webhooks.is_some(),
        };
        let describe: Describe = {
            let about = about.clone();
            let turns = (!wire.reads_only).then(|| app.clone());
            let beside = move || turns.map_or_else(Vec::new, |app| vec![Extensions::described(), app.described()]);
            Box::new(move || DescribedServer::of(&about, beside()))
        };
        let extensions = Extensions {
            app: app.clone(),
            operations: operations.clone(),
            records: wire.records.clone(),
            cursors: wire.cursors.clone(),
            may_repair: wire.may_repair,
        };
        let protocol = Protocol {
            operations,
            personas: app.personas().clone(),
            receipts: app.receipts().cloned(),
            keys: app.doorkeeper().keys.clone(),
            streams: Streams::new(wire.records, clock.clone(), (wire.notifier, wire.live), wire.streams, wire.seats),
            card_signatures: CardSignatures::default(),
            about,
            clock,
            described: LazyLock::new(describe),
        };
        Self(Arc::new(ServerShared {
            app,
            protocol,
            extensions,
            origins,
            reads_only: wire.reads_only,
            commands: wire.commands,
        }))
    }

    /// The application that serves turns, events and wake-ups.
    pub fn app(&self) -> &App {
        &self.0.app
    }

    /// Serves one HTTP request of any path. Unknown paths are refused as the protocol refuses. A panic is an answer
    /// too.
    pub async fn http(&self, request: Request) -> Response {
        self.told(request, None).await
    }

    /// The refusal of `request` where it needs neither its body nor a look at anything else: its sender has used up a rate,
    /// was told so, and goes on asking. Otherwise the request, to be served with its body.
    ///
    /// # Errors
    /// The request.
    pub async fn refuse_unread(&self, request: Request) -> Result<Response, Box<Request>> {
        let refusal = match self.surface(&request.path) {
            Surface::Protocol => self.0.protocol.spent(&request),
            Surface::Turns | Surface::Console => None,
        };
        match refusal {
            Some(refusal) => Ok(self.told(request, Some(refusal)).await),
            None => Err(Box::new(request)),
        }
    }

    /// The answer to `request`: a `refusal` that is known already, or what comes of it.
    async fn told(&self, request: Request, refusal: Option<ProtocolError>) -> Response {
        let mut request = request;
        let conditional = ConditionalRead::of(&mut request);
        let surface = self.surface(&request.path);
        let ports = self.0.app.engine().ports();
        let given = request.header("x-request-id").filter(|id| is_request_id(id)).map(str::to_owned);
        let request_id = given.unwrap_or_else(|| surface.request_id(ports.ids.fresh()));
        request.findings.note_request_id(&request_id);
        let method = request.method.clone();
        let began = ports.clock.monotonic();
        let span = tracing::info_span!("request", request_id, method, route = field::Empty, operation = field::Empty);
        let traceparent = match surface {
            Surface::Turns => request.header("traceparent").map(Arc::from),
            Surface::Protocol | Surface::Console => None,
        };
        let answering = async {
            let answered = match refusal {
                Some(refusal) => Err(SurfaceRefusal::Protocol(refusal)),
                None => self.guarded(surface, &request, &request_id).await,
            };
            let response = answered.unwrap_or_else(|refused| refused.into_response(&request_id));
            request.findings.end(&self.0.protocol.keys, &request, response.status, ports.clock.now()).await;
            let response = request.findings.tell(self.dressed(surface, &request, response));
            let response = conditional.answer(response.header("x-request-id", &request_id));
            log::answered(response.status, ports.clock.monotonic().saturating_sub(began));
            response
        };
        let answering = Box::pin(answering.instrument(span));
        match traceparent {
            Some(traceparent) => in_trace(traceparent, answering).await,
            None => answering.await,
        }
    }

    /// Who asks by `request` for a stream, and the stream before it is encoded for a transport.
    ///
    /// # Errors
    /// The response that refuses it.
    pub(crate) async fn follow(&self, request: &Request) -> Result<(Actor, BoxStream<'static, StreamItem>), Response> {
        let request_id = format!("req_{}", self.0.app.engine().ports().ids.fresh());
        let followed = self.0.protocol.follow(request, &request_id).await;
        followed.map_err(|error| SurfaceRefusal::Protocol(error).into_response(&request_id))
    }

    /// Serves what a command of a socket asks for.
    pub(crate) async fn command(&self, request: Request) -> Response {
        match &self.0.commands {
            Some(elsewhere) => elsewhere.ask(&request).await,
            None => self.http(request).await,
        }
    }

    /// The API that serves `path`.
    fn surface(&self, path: &str) -> Surface {
        if self.0.reads_only { Surface::Protocol } else { Surface::of(path) }
    }

    /// Answers `request` within its time. A waiting caller shall get an answer before the worker is stopped; to a
    /// write, its outcome.
    async fn guarded(&self, surface: Surface, request: &Request, request_id: &str) -> Result<Response, SurfaceRefusal> {
        let work = AssertUnwindSafe(self.answer(surface, request, request_id)).catch_unwind();
        match in_time(&self.0.app.engine().ports().clock, request.time_left, work).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_panic)) => {
                tracing::error!("serving a request ended in a panic");
                Err(surface.panicked())
            }
            Err(cut) => Err(surface.late(cut)),
        }
    }

    async fn answer(&self, surface: Surface, request: &Request, request_id: &str) -> Result<Response, SurfaceRefusal> {
        match surface {
            Surface::Turns => Ok(self.0.app.answer(request).await?.into()),
            Surface::Protocol => match self.0.origins.preflight(request) {
                Some(response) => Ok(response),
                None => Ok(self.answer_protocol(request, request_id).await?),
            },
            Surface::Console => {
                let protocol = &self.0.protocol;
                let served =
                    Console { stream_url: protocol.about.stream_url.as_deref(), issuers: protocol.keys.issuers() };
                Ok(served.answer(request)?)
            }
        }
    }

    async fn answer_protocol(&self, request: &Request, request_id: &str) -> Result<Response, ProtocolError> {
        let ServerShared { protocol, extensions, reads_only, .. } = &*self.0;
        match ExtensionRoute::at(&request.method, &request.path).filter(|_| !reads_only) {
            Some(route) => extensions.answer(protocol, route, request).await,
            None => protocol.answer(request, request_id).await,
        }
    }

    /// `response` with the headers that every response of the API has. Addresses hold tokens: no other site learns
    /// where a visitor came from. Pages of browsers may ask the protocol, and not for turns.
    fn dressed(&self, surface: Surface, request: &Request, response: Response) -> Response {
        let response = match surface {
            Surface::Turns | Surface::Console => response,
            Surface::Protocol => {
                self.0.origins.admit(request, response).header(&VERSION_HEADER.to_ascii_lowercase(), PROTOCOL_VERSION)
            }
        };
        // Files hold no data of users: a browser keeps them, and asks whether they are still good.
        let caching = if surface == Surface::Console { "no-cache" } else { "no-store" };
        response
            .header("cache-control", caching)
            .header("x-content-type-options", "nosniff")
            .header("referrer-policy", "no-referrer")
    }
}

fn is_request_id(id: &str) -> bool {
    (1..=LONGEST_REQUEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Offers no operation that changes something: for a function with a role that may only read.
struct ReadsOnly(Api);

#[async_trait]
impl Operations for ReadsOnly {
    async fn serve(&self, call: Call) -> Result<CallAnswer, ProtocolError> {
        if call.operation.spec().method.is_write() {
            return Err(ProtocolError::not_implemented(call.operation));
        }
        self.0.serve(call).await
    }
}
