//! The whole server: a request is matched (`routes.rs`; of `/v1` by `shared/protocol`), judged, served and answered, on the
//! one way through (`passage.rs`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use dormouse_api::identity::Issuers;
use dormouse_api::{
    Abilities, Actor, Api, AppendNotifier, Call, CallAnswer, LiveText, Operations, StreamItem, StreamLimits,
    StreamSeats, Streams, WebhookKeys, WorkspaceTemplates,
};
use dormouse_ports::{Records, Secrets};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::cursor::Cursors;
use futures::stream::BoxStream;

use crate::console::Console;
use crate::extensions::{ExtensionRoute, Extensions};
use crate::passage::{Answers, Passage};
use crate::protocol::{
    AcceptedIssuer, CardSignatures, Describe, DescribedServer, Protocol, ProtocolAdmission, ServerInfo, Streaming,
};
use crate::surface::{Surface, SurfaceRefusal};
use crate::{App, CommandsElsewhere, Origins, Request, Response};

/// Prefix of addresses where none is configured.
const SOMEWHERE: &str = "http://localhost";

/// Configuration that a [`Server`] needs beside its [`App`], to serve the protocol.
#[derive(Clone)]
pub struct ProtocolConfig {
    /// Reads what the app's store has written of documents and streams.
    pub records: Arc<dyn Records>,
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
    /// The protocol over `records`, at no configured address and for no pages of browsers, with cursors made by `cursors`.
    pub fn new(records: Arc<dyn Records>, cursors: Cursors) -> Self {
        Self {
            records,
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

impl ProtocolConfig {
    /// What a server of `app` over this can do.
    fn abilities(&self, app: &App) -> Abilities {
        Abilities {
            sockets: self.sockets || self.socket_url.is_some(),
            receipts: app.receipts().is_some(),
            webhooks: self.webhooks.is_some(),
            a2a: self.a2a,
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
    passage: Passage,
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
        let abilities = wire.abilities(&app);
        let api = Api::new(dormouse_api::ApiParts {
            harness: app.harness().clone(),
            records: wire.records.clone(),
            cursors: wire.cursors.clone(),
            personas: app.personas().clone(),
            receipts: app.receipts().cloned(),
            secrets: wire.secrets.clone(),
            webhooks: wire.webhooks.clone(),
            templates: wire.templates.clone(),
            abilities,
        });
        let operations: Arc<dyn Operations> = if wire.reads_only { Arc::new(ReadsOnly(api)) } else { Arc::new(api) };
        Self::over(app, wire, operations)
    }

    /// The same, but `operations` serve the protocol.
    pub fn over(app: App, wire: ProtocolConfig, operations: Arc<dyn Operations>) -> Self {
        let clock = app.engine().ports().clock.clone();
        let keys = app.doorkeeper().keys.clone();
        let abilities = wire.abilities(&app);
        let origins = wire.origins.and_those_at(wire.base_url.as_deref());
        let about = ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            base_url: wire.base_url.as_deref().unwrap_or(SOMEWHERE).trim_end_matches('/').to_owned(),
            stream_url: wire.stream_url.map(|url| url.trim_end_matches('/').to_owned()),
            personas: app.personas().linked().to_vec(),
            since: clock.now(),
            abilities,
            sockets: wire.sockets,
            socket_url: wire.socket_url,
            a2a_streams: wire.streams.whole.is_none(),
            issuers: keys.issuers().into_iter().flat_map(Issuers::published).map(AcceptedIssuer::from).collect(),
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
        let ids = app.engine().ports().ids.clone();
        let passage = Passage { clock: clock.clone(), ids, keys: keys.clone(), origins };
        let streams = Streams::new(wire.records, clock.clone(), (wire.notifier, wire.live), wire.streams, wire.seats);
        let admission = ProtocolAdmission { keys, clock, base_url: about.base_url.clone() };
        let protocol = Protocol {
            streaming: Streaming { admission, operations, streams },
            personas: app.personas().clone(),
            receipts: app.receipts().cloned(),
            card_signatures: CardSignatures::default(),
            about,
            described: LazyLock::new(describe),
        };
        Self(Arc::new(ServerShared {
            app,
            protocol,
            extensions,
            passage,
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
        let surface = self.surface(&request.path);
        self.0.passage.pass(surface, request, &*self.0).await
    }

    /// The refusal of `request` where it needs neither its body nor a look at anything else: its sender has used up a rate,
    /// was told so, and goes on asking. Otherwise the request, to be served with its body.
    ///
    /// # Errors
    /// The request.
    pub async fn refuse_unread(&self, request: Request) -> Result<Response, Box<Request>> {
        let surface = self.surface(&request.path);
        let refusal = match surface {
            Surface::Protocol => self.0.protocol.streaming.admission.spent(&request),
            Surface::Turns | Surface::Console => None,
        };
        match refusal {
            Some(refusal) => Ok(self.0.passage.pass(surface, request, &Refuses(refusal)).await),
            None => Err(Box::new(request)),
        }
    }

    /// Who asks by `request` for a stream, and the stream before it is encoded for a transport.
    ///
    /// # Errors
    /// The response that refuses it.
    pub(crate) async fn follow(&self, request: &Request) -> Result<(Actor, BoxStream<'static, StreamItem>), Response> {
        let request_id = self.0.passage.request_id();
        let followed = self.0.protocol.streaming.follow(request, &request_id).await;
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
}

/// A refusal that is known before anything is read.
struct Refuses(ProtocolError);

#[async_trait]
impl Answers for Refuses {
    async fn answer(&self, _: Surface, _: &Request, _: &str) -> Result<Response, SurfaceRefusal> {
        Err(SurfaceRefusal::Protocol(self.0.clone()))
    }
}

#[async_trait]
impl Answers for ServerShared {
    async fn answer(&self, surface: Surface, request: &Request, request_id: &str) -> Result<Response, SurfaceRefusal> {
        match surface {
            Surface::Turns => Ok(self.app.answer(request).await?.into()),
            Surface::Protocol => Ok(self.answer_protocol(request, request_id).await?),
            Surface::Console => {
                let protocol = &self.protocol;
                let issuers = protocol.streaming.admission.keys.issuers();
                Ok(Console { stream_url: protocol.about.stream_url.as_deref(), issuers }.answer(request)?)
            }
        }
    }
}

impl ServerShared {
    async fn answer_protocol(&self, request: &Request, request_id: &str) -> Result<Response, ProtocolError> {
        let Self { protocol, extensions, reads_only, .. } = self;
        match ExtensionRoute::at(&request.method, &request.path).filter(|_| !reads_only) {
            Some(route) => extensions.answer(&protocol.streaming.admission, route, request).await,
            None => protocol.answer(request, request_id).await,
        }
    }
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
