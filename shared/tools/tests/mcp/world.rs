use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use dormouse_ports::tool::{ToolCall, ToolContent, ToolError, ToolOutput, ToolReply, ToolSource};
use dormouse_ports::{Map, Secret, Template};
use dormouse_tools::mcp::{McpNotice, NoticeListener};
use dormouse_tools::{McpConfig, McpServer, Values};
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::fetch::Loopback;
use crate::peer::Peer;

/// Rounds in which something must happen, and the length of one. Nothing is proved by them being few.
const ROUNDS: usize = 6000;
const ROUND: Duration = Duration::from_millis(20);

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) is_process: bool,
    pub(crate) is_older: bool,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [
        Self { is_process: false, is_older: false },
        Self { is_process: false, is_older: true },
        Self { is_process: true, is_older: false },
        Self { is_process: true, is_older: true },
    ];

    pub(crate) fn name(self) -> &'static str {
        match (self.is_process, self.is_older) {
            (false, false) => "http::newest",
            (false, true) => "http::older",
            (true, false) => "stdio::newest",
            (true, true) => "stdio::older",
        }
    }
}

/// A server, and what was noticed of it.
pub(crate) struct World {
    pub(crate) server: McpServer,
    pub(crate) notices: Arc<Mutex<Vec<McpNotice>>>,
    /// Where the server is in this process.
    host: Option<Host>,
}

/// The server in this process.
pub(crate) struct Host {
    pub(crate) peer: Peer,
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Host {
    /// Ends it: its port, on which nothing listens any more.
    pub(crate) async fn ended(mut self) -> u16 {
        self.task.abort();
        // It was told to end.
        let _ = (&mut self.task).await;
        let port = self.url.rsplit(':').next().and_then(|rest| rest.strip_suffix("/mcp"));
        port.and_then(|port| port.parse().ok()).expect("a port")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves a peer as a process, until its input ends.
pub(crate) async fn serve(is_older: bool) {
    let running = Peer::older(is_older).serve(rmcp::transport::stdio()).await.expect("a client");
    let _ = running.waiting().await;
}

/// Serves `peer` on `port`, or on a free one.
pub(crate) async fn host(peer: Peer, port: u16) -> Host {
    let served = peer.clone();
    let service = StreamableHttpService::new(
        move || Ok(served.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    host_router(peer, Router::new().fallback_service(service), port).await
}

pub(crate) async fn host_router(peer: Peer, router: Router, port: u16) -> Host {
    let listener = bound(port).await;
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    Host { peer, url, task }
}

/// Listens on `port`; who did so before may be about to end.
async fn bound(port: u16) -> TcpListener {
    for _ in 0..ROUNDS {
        match TcpListener::bind(("127.0.0.1", port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(ROUND).await,
            bound => return bound.expect("a port"),
        }
    }
    panic!("port {port} is never free");
}

pub(crate) fn template(text: &str) -> Template {
    Template::parse(text).expect("a template")
}

pub(crate) fn values() -> Values {
    Values::new(Arc::new(Secret::new("env-value")), Arc::new(Secret::new("s3cret")))
}

/// The server of `config`, and its notices.
pub(crate) fn server(config: McpConfig) -> (McpServer, Arc<Mutex<Vec<McpNotice>>>) {
    let notices: Arc<Mutex<Vec<McpNotice>>> = Arc::default();
    let kept = notices.clone();
    let listener = NoticeListener::new(move |_, notice| kept.lock().expect("a lock").push(notice));
    (McpServer::new(config, Arc::new(Loopback::new()), values(), listener), notices)
}

impl World {
    pub(crate) async fn new(way: Way) -> Self {
        Self::with(way, |config| config).await
    }

    /// A world whose configuration `change` changes.
    pub(crate) async fn with(way: Way, change: impl FnOnce(McpConfig) -> McpConfig) -> Self {
        let (config, host) = match way.is_process {
            true => {
                let program = std::env::current_exe().expect("this program").display().to_string();
                let version = if way.is_older { "older" } else { "newest" };
                (McpConfig::stdio("peer", format!("exec '{program}' --serve {version}")), None)
            }
            false => {
                let host = host(Peer::older(way.is_older), 0).await;
                (McpConfig::http("peer", template(&host.url)), Some(host))
            }
        };
        let (server, notices) = server(change(config));
        Self { server, notices, host }
    }

    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Result<ToolReply, ToolError> {
        self.server.call(&call(name, arguments)).await
    }

    /// The names that are listed.
    pub(crate) async fn names(&self) -> Vec<String> {
        self.server.list().await.expect("a list").into_iter().map(|spec| spec.name).collect()
    }

    /// What the server has seen.
    pub(crate) async fn seen(&self) -> String {
        match &self.host {
            Some(host) => host.peer.seen().join(","),
            None => text(self.call("seen", Value::Null).await),
        }
    }

    /// How often the server was asked for its list, where that can be known.
    pub(crate) fn lists(&self) -> Option<usize> {
        self.host.as_ref().map(|host| host.peer.lists())
    }

    pub(crate) fn noticed(&self, is_it: impl Fn(&McpNotice) -> bool) -> bool {
        self.notices.lock().expect("a lock").iter().any(is_it)
    }
}

pub(crate) fn call(name: &str, arguments: Value) -> ToolCall {
    let arguments = arguments.as_object().cloned().unwrap_or_else(Map::new);
    ToolCall { idempotency_key: "run/1/0".to_owned(), ..ToolCall::new("call-1", name, arguments) }
}

/// The output of a call that ended.
pub(crate) fn output(reply: Result<ToolReply, ToolError>) -> ToolOutput {
    match reply {
        Ok(ToolReply::Done(output)) => output,
        other => panic!("an output, not {other:?}"),
    }
}

/// The text of an output.
pub(crate) fn text(reply: Result<ToolReply, ToolError>) -> String {
    let texts = output(reply).content.into_iter().map(|block| match block {
        ToolContent::Text { ref text } => text.clone(),
        ToolContent::Image { .. } | ToolContent::ResourceLink { .. } => panic!("text, not {block:?}"),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Waits until `is_so`.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    for _ in 0..ROUNDS {
        if is_so().await {
            return;
        }
        tokio::time::sleep(ROUND).await;
    }
    panic!("it never came to this: {what}");
}
