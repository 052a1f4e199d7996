use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_ports::tool::ToolError;
use dormouse_ports::{Fetch, Template};
use rmcp::ServiceError;
use rmcp::model::{ClientRequest, PingRequest, ProtocolVersion, ServerNotification, SubscriptionFilter};
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientCacheConfig, ClientLifecycleMode, serve_client_with_lifecycle};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::config::{McpConfig, McpTransport};
use super::failure::not_begun;
use super::handler::Handler;
use super::http::{FetchClient, Reach};
use crate::Values;

/// Time in which a process that is in doubt has to answer.
const TO_ANSWER: Duration = Duration::from_secs(1);

/// A conversation with a server. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    running: RunningService<RoleClient, Handler>,
    listening: Option<JoinHandle<()>>,
    offers_tools: bool,
    tells_changes: bool,
    is_process: bool,
    doubted: AtomicBool,
}

impl Connection {
    /// Begins a conversation: as of 2026-07-28 where the server knows that version, else with the older handshake.
    ///
    /// # Errors
    /// The server is not there, refuses, or speaks something else. No call was made.
    pub(super) async fn open(
        config: &McpConfig,
        fetch: &Arc<dyn Fetch>,
        values: &Values,
        handler: &Handler,
    ) -> Result<Self, ToolError> {
        let begun = match begin(config, fetch, values, handler, newest()).await {
            Err(NotBegun::Otherwise) => begin(config, fetch, values, handler, ClientLifecycleMode::Initialize).await,
            begun => begun,
        };
        match begun {
            Ok(running) => Ok(Self::of(running, handler, config).await),
            Err(NotBegun::Otherwise) => Err(ToolError::permanent(
                "it speaks no version of the protocol that is spoken here, or is no MCP server; check its address",
            )),
            Err(NotBegun::Failed(error)) => Err(error),
        }
    }

    async fn of(running: RunningService<RoleClient, Handler>, handler: &Handler, config: &McpConfig) -> Self {
        let peer = running.peer().clone();
        // There is one cache, and it is ours.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let info = peer.peer_info();
        let tools = info.as_ref().and_then(|info| info.capabilities.tools.as_ref());
        let tells_changes = config.listen && tools.is_some_and(|tools| tools.list_changed == Some(true));
        let is_modern = info.as_ref().is_some_and(|info| info.protocol_version >= ProtocolVersion::NO_INITIALIZE);
        let listening = (tells_changes && is_modern).then(|| tokio::spawn(listen_for_changes(peer, handler.clone())));
        let is_process = matches!(config.transport, McpTransport::Stdio { .. });
        let doubted = AtomicBool::new(false);
        Self { listening, offers_tools: tools.is_some(), tells_changes, is_process, doubted, running }
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.running.peer()
    }

    /// True if the server says that it has tools.
    pub(super) fn offers_tools(&self) -> bool {
        self.offers_tools
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

    /// True as long as a change of the list will be told here.
    pub(super) fn tells_changes(&self) -> bool {
        let is_listening = self.listening.as_ref().is_none_or(|task| !task.is_finished());
        self.tells_changes && is_listening && !self.is_closed()
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
    Failed(ToolError),
}

fn is_otherwise(error: &ClientInitializeError) -> bool {
    matches!(
        error,
        ClientInitializeError::NoCompatibleProtocolVersion { .. } | ClientInitializeError::ExpectedInitResult(_)
    )
}

impl NotBegun {
    fn of(error: &ClientInitializeError) -> Self {
        match is_otherwise(error) {
            true => Self::Otherwise,
            false => Self::Failed(not_begun(error)),
        }
    }
}

type Running = RunningService<RoleClient, Handler>;

async fn begin(
    config: &McpConfig,
    fetch: &Arc<dyn Fetch>,
    values: &Values,
    handler: &Handler,
    lifecycle: ClientLifecycleMode,
) -> Result<Running, NotBegun> {
    match &config.transport {
        McpTransport::Http { url, headers, oauth } => {
            let reach = Reach {
                url,
                headers,
                oauth: oauth.as_deref(),
                timeout: config.timeout.max(config.connect_timeout),
                most_bytes: config.most_bytes,
                listen: config.listen,
            };
            let client = FetchClient::new(&reach, fetch.clone(), values.clone());
            // The client looks the address up itself; what stands here is only for logs.
            let settings = StreamableHttpClientTransportConfig::with_uri(url.written())
                .reinit_on_expired_session(false)
                .max_sse_event_size(config.most_bytes)
                .max_json_response_size(config.most_bytes);
            let transport = StreamableHttpClientTransport::with_client(client, settings);
            let begun = serve_client_with_lifecycle(handler.clone(), transport, lifecycle).await;
            begun.map_err(|error| NotBegun::of(&error))
        }
        McpTransport::Stdio { command, environment, folder } => {
            let start = Start { command, environment, folder: folder.as_deref() };
            process(start, values, handler, lifecycle).await
        }
    }
}

fn newest() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    }
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
}

#[cfg(feature = "stdio")]
async fn process(
    start: Start<'_>,
    values: &Values,
    handler: &Handler,
    lifecycle: ClientLifecycleMode,
) -> Result<Running, NotBegun> {
    let (process, complaints) = super::stdio::start(&start, values).await.map_err(NotBegun::Failed)?;
    let error = match serve_client_with_lifecycle(handler.clone(), process, lifecycle).await {
        Ok(running) => return Ok(running),
        Err(error) => NotBegun::of(&error),
    };
    Err(match (error, complaints.last().await) {
        (NotBegun::Failed(failed), Some(last)) => {
            NotBegun::Failed(ToolError { message: format!("{}. It wrote last: {last}", failed.message), ..failed })
        }
        (not_begun, _) => not_begun,
    })
}

#[cfg(not(feature = "stdio"))]
async fn process(_: Start<'_>, _: &Values, _: &Handler, _: ClientLifecycleMode) -> Result<Running, NotBegun> {
    Err(NotBegun::Failed(ToolError::denied(
        "it is a process (`command`), and none can be started here: run the agent in local mode, or serve it over HTTP \
         and set `url`",
    )))
}
