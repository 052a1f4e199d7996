use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_ports::tool::{ToolError, ToolErrorKind};
use dormouse_ports::{Fetch, Template};
use rmcp::ServiceError;
use rmcp::model::{ClientRequest, PingRequest, ProtocolVersion, ServerNotification, SubscriptionFilter};
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientCacheConfig, ClientLifecycleMode, serve_client_with_lifecycle};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::config::{McpConfig, McpTransport};
use super::failure::not_begun;
use super::handler::Handler;
use super::heard::Heard;
use super::http::{AnnotatedTools, FetchClient, HeardCall, Reach, StandingStream, TO_DISCOVER};
use super::late::WithoutLate;
use super::oauth::Tokens;
use crate::Values;
use crate::text::cut;

/// Time in which a process that is in doubt has to answer.
const TO_ANSWER: Duration = Duration::from_secs(1);

/// A conversation with a server. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    running: RunningService<RoleClient, Handler>,
    listening: Option<JoinHandle<()>>,
    heard: Heard,
    annotated: AnnotatedTools,
    offers_tools: bool,
    tells_changes: bool,
    /// Where a server of an older version behind an address tells of changes.
    standing: Option<StandingStream>,
    is_process: bool,
    doubted: AtomicBool,
}

impl Connection {
    /// Begins a conversation: as of 2026-07-28 where the server knows that version, else with the older handshake. A process
    /// that ends at the first question, as older ones do, is started again for that. What it says besides is `heard`.
    ///
    /// # Errors
    /// The server is not there, refuses, or speaks something else. No call was made.
    pub(super) async fn open(beginning: Beginning<'_>) -> Result<Self, ToolError> {
        let began = Instant::now();
        let begun = match beginning.begin(newest()).await {
            Err(NotBegun::Otherwise | NotBegun::Closed(_)) => beginning.begin(ClientLifecycleMode::Initialize).await,
            // It said nothing to the newest way for too long: it may know that alone, and have been asleep.
            Err(NotBegun::Refused(error)) if began.elapsed() >= beginning.to_discover() => {
                beginning.begin(newest_alone()).await.map_err(|_| NotBegun::Refused(error))
            }
            begun => begun,
        };
        match begun {
            Ok(running) => match unknown_version(&running) {
                None => Ok(Self::of(running, beginning).await),
                Some(version) => Err(ToolError::permanent(format!(
                    "it goes on in the version `{version}` of the protocol, which is not spoken here: have it speak one of {}",
                    ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect::<Vec<_>>().join(", ")
                ))),
            },
            Err(NotBegun::Otherwise) => Err(ToolError::permanent(
                "it speaks no version of the protocol that is spoken here, or is no MCP server; check its address",
            )),
            Err(NotBegun::Closed(error) | NotBegun::Refused(error) | NotBegun::Failed(error)) => {
                Err(beginning.explained(error).await)
            }
        }
    }

    async fn of(running: Running, beginning: Beginning<'_>) -> Self {
        let Beginning { config, handler, heard, standing, annotated, .. } = beginning;
        let peer = running.peer().clone();
        // There is one cache, and it is ours.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let info = peer.peer_info();
        let tools = info.as_ref().and_then(|info| info.capabilities.tools.as_ref());
        let tells_changes = config.listen && tools.is_some_and(|tools| tools.list_changed == Some(true));
        let is_modern = info.as_ref().is_some_and(|info| info.protocol_version >= ProtocolVersion::NO_INITIALIZE);
        let listening = (tells_changes && is_modern).then(|| tokio::spawn(listen_for_changes(peer, handler.clone())));
        let is_process = matches!(config.transport, McpTransport::Stdio { .. });
        let standing = (!is_process && !is_modern).then(|| standing.clone());
        let doubted = AtomicBool::new(false);
        let (offers_tools, heard, annotated) = (tools.is_some(), heard.clone(), annotated.clone());
        Self { listening, heard, annotated, offers_tools, tells_changes, standing, is_process, doubted, running }
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.running.peer()
    }

    /// What its process says besides its messages.
    pub(super) fn heard(&self) -> &Heard {
        &self.heard
    }

    /// Tools that the SDK may take out of a list.
    pub(super) fn annotated(&self) -> &AnnotatedTools {
        &self.annotated
    }

    /// True if the server says that it has tools.
    pub(super) fn offers_tools(&self) -> bool {
        self.offers_tools
    }

    /// A call begins. What a server of an older version says of itself is heard as long as what is returned is held, also
    /// where nobody listens between calls.
    pub(super) async fn call_begins(&self) -> Option<HeardCall> {
        match &self.standing {
            Some(standing) => Some(standing.call().await),
            None => None,
        }
    }

    /// A request was not answered while somebody waited for it: a process may hang.
    pub(super) fn doubt(&self) {
        self.doubted.store(self.is_process, Ordering::Relaxed);
    }

    /// True if it can be asked. A process that is in doubt has to answer something first, whatever it is; one that does
    /// not would answer nobody, and ends with the conversation when the requests that are under way have.
    pub(super) async fn answers(&self) -> bool {
        if self.is_closed() {
            return false;
        }
        if !self.doubted.swap(false, Ordering::Relaxed) {
            return true;
        }
        let ping = self.peer().send_request(ClientRequest::PingRequest(PingRequest::default()));
        match timeout(TO_ANSWER, ping).await {
            Ok(Ok(_) | Err(ServiceError::McpError(_))) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.running.is_closed() || self.peer().is_transport_closed()
    }

    /// The number of the stream on which changes of the list are told now; `None` where none stands. As long as it stays the
    /// same no change is missed.
    pub(super) fn told_by(&self) -> Option<u64> {
        let is_listening = self.listening.as_ref().is_none_or(|task| !task.is_finished());
        if !self.tells_changes || !is_listening || self.is_closed() {
            return None;
        }
        match &self.standing {
            Some(standing) => standing.number(),
            None => Some(0),
        }
    }

    /// Ends the conversation and waits for the server's side of it, a process among it.
    pub(super) async fn close(mut self) {
        if let Err(error) = self.running.close().await {
            tracing::debug!(%error, "the conversation with an MCP server did not end well");
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(task) = &self.listening {
            task.abort();
        }
    }
}

/// Reason why a conversation was not begun.
enum NotBegun {
    /// The server speaks only older versions, or answers the beginning of the newest one with something that means
    /// nothing: it is spoken to in the older way.
    Otherwise,
    /// The server closed the connection: some end at a first message that is not the older one.
    Closed(ToolError),
    /// The server answers with an error.
    Refused(ToolError),
    Failed(ToolError),
}

fn is_otherwise(error: &ClientInitializeError) -> bool {
    matches!(
        error,
        ClientInitializeError::NoCompatibleProtocolVersion { .. } | ClientInitializeError::ExpectedInitResult(_)
    )
}

fn is_refused(error: &ClientInitializeError) -> bool {
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return is_refused(fallback);
    }
    matches!(error, ClientInitializeError::JsonRpcError(_))
}

impl NotBegun {
    fn of(error: &ClientInitializeError) -> Self {
        if is_otherwise(error) {
            return Self::Otherwise;
        }
        if is_refused(error) {
            return Self::Refused(not_begun(error));
        }
        match matches!(error, ClientInitializeError::ConnectionClosed(_)) {
            true => Self::Closed(not_begun(error)),
            false => Self::Failed(not_begun(error)),
        }
    }
}

type Running = RunningService<RoleClient, Handler>;

/// The version that the server has chosen, where it is none that is known: what its messages mean then is not known either.
fn unknown_version(running: &Running) -> Option<String> {
    let info = running.peer().peer_info()?;
    let version = &info.protocol_version;
    (!ProtocolVersion::KNOWN_VERSIONS.contains(version)).then(|| cut(version.as_str(), 100))
}

/// What it takes to begin a conversation.
#[derive(Clone, Copy)]
pub(super) struct Beginning<'b> {
    pub(super) config: &'b McpConfig,
    pub(super) fetch: &'b Arc<dyn Fetch>,
    pub(super) values: &'b Values,
    /// Access tokens, where the server wants them.
    pub(super) tokens: Option<&'b Arc<Tokens>>,
    pub(super) handler: &'b Handler,
    pub(super) heard: &'b Heard,
    pub(super) standing: &'b StandingStream,
    pub(super) annotated: &'b AnnotatedTools,
}

impl Beginning<'_> {
    /// Time for an answer to the newest way to begin: the older one has at least as much.
    fn to_discover(self) -> Duration {
        TO_DISCOVER.min(self.config.connect_timeout / 2)
    }

    fn client(self, url: &Template, headers: &[(String, Template)]) -> FetchClient {
        let reach = Reach {
            url,
            headers,
            tokens: self.tokens,
            timeout: self.config.timeout.max(self.config.connect_timeout),
            to_discover: self.to_discover(),
            most_bytes: self.config.most_bytes,
            listen: self.config.listen,
            standing: self.standing,
            annotated: self.annotated,
        };
        FetchClient::new(&reach, self.fetch.clone(), self.values.clone())
    }

    /// `error`, or what is wrong where the server speaks the transport before streamable HTTP.
    async fn explained(self, error: ToolError) -> ToolError {
        let McpTransport::Http { url, headers, oauth: _ } = &self.config.transport else { return error };
        match error.kind == ToolErrorKind::Permanent && self.client(url, headers).is_of_older_transport().await {
            true => ToolError::permanent(
                "it speaks the transport HTTP+SSE of the protocol version 2024-11-05, which is not spoken here. Set its address \
                 for streamable HTTP as `url`, which often ends with `/mcp` in the place of `/sse`; or have it served so, or as \
                 a process (`command`), by a program that translates, such as `mcp-proxy`",
            ),
            false => error,
        }
    }

    async fn begin(self, lifecycle: ClientLifecycleMode) -> Result<Running, NotBegun> {
        match &self.config.transport {
            McpTransport::Http { url, headers, oauth: _ } => {
                let client = self.client(url, headers);
                // The client looks the address up itself; what stands here is only for logs.
                let settings = StreamableHttpClientTransportConfig::with_uri(url.written())
                    .reinit_on_expired_session(false)
                    .max_sse_event_size(self.config.most_bytes)
                    .max_json_response_size(self.config.most_bytes);
                let transport = WithoutLate::new(StreamableHttpClientTransport::with_client(client, settings));
                let begun = serve_client_with_lifecycle(self.handler.clone(), transport, lifecycle).await;
                begun.map_err(|error| NotBegun::of(&error))
            }
            McpTransport::Stdio { command, environment, folder } => {
                let most_bytes = self.config.most_bytes;
                let start = Start { command, environment, folder: folder.as_deref(), most_bytes };
                self.process(start, lifecycle).await
            }
        }
    }

    #[cfg(feature = "stdio")]
    async fn process(self, start: Start<'_>, lifecycle: ClientLifecycleMode) -> Result<Running, NotBegun> {
        let process = super::stdio::start(&start, self.values, self.heard).await.map_err(NotBegun::Failed)?;
        let process = WithoutLate::new(process);
        let begun = serve_client_with_lifecycle(self.handler.clone(), process, lifecycle).await;
        begun.map_err(|error| NotBegun::of(&error))
    }

    #[cfg(not(feature = "stdio"))]
    async fn process(self, _: Start<'_>, _: ClientLifecycleMode) -> Result<Running, NotBegun> {
        Err(NotBegun::Failed(ToolError::denied(
            "it is a process (`command`), and none can be started here: run the agent in local mode, or serve it over \
             HTTP and set `url`",
        )))
    }
}

fn newest() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    }
}

fn newest_alone() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

/// Holds a subscription (MCP 2026-07-28, "Subscriptions") as long as the server does.
async fn listen_for_changes(peer: Peer<RoleClient>, handler: Handler) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut subscription = match peer.listen(filter).await {
        Ok(subscription) => subscription,
        Err(error) => {
            tracing::debug!(%error, "an MCP server takes no subscription to its list of tools");
            return;
        }
    };
    while let Ok(Some(notification)) = subscription.next().await {
        if let ServerNotification::ToolListChangedNotification(_) = notification {
            handler.changed();
        }
    }
}

/// The process that is a server.
#[cfg_attr(not(feature = "stdio"), expect(dead_code, reason = "without the feature none is started"))]
pub(super) struct Start<'s> {
    pub(super) command: &'s str,
    pub(super) environment: &'s [(String, Template)],
    pub(super) folder: Option<&'s Path>,
    /// The most bytes of one message.
    pub(super) most_bytes: usize,
}
