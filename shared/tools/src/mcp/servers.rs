use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_ports::Fetch;

use super::asker::Asker;
use super::config::{McpConfig, McpTransport, OAuth};
use super::notice::NoticeListener;
use super::oauth::Tokens;
use super::server::McpServer;
use crate::Values;

/// Servers that no run uses are dropped when there are more than that many.
const MOST_KEPT: usize = 64;

/// The servers of this process, one for each configuration: runs that name the same one share its conversation and its
/// list of tools.
pub struct McpServers {
    fetch: Arc<dyn Fetch>,
    values: Values,
    listener: NoticeListener,
    asker: Option<Arc<dyn Asker>>,
    /// By [`McpConfig::digest`].
    servers: Mutex<BTreeMap<String, Arc<McpServer>>>,
    /// By what their clients are configured with: a server that is configured otherwise goes on with what its client was granted.
    tokens: Mutex<BTreeMap<String, Arc<Tokens>>>,
}

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServers").finish_non_exhaustive()
    }
}

impl McpServers {
    /// No servers yet.
    pub fn new(fetch: Arc<dyn Fetch>, values: Values, listener: NoticeListener) -> Self {
        Self { fetch, values, listener, asker: None, servers: Mutex::default(), tokens: Mutex::default() }
    }

    /// The same; questions of servers in the midst of calls are put to `asker`.
    #[must_use]
    pub fn with_asker(self, asker: Arc<dyn Asker>) -> Self {
        Self { asker: Some(asker), ..self }
    }

    /// The server of `config`.
    pub fn server(&self, config: &McpConfig) -> Arc<McpServer> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.len() > MOST_KEPT {
            servers.retain(|_, server| Arc::strong_count(server) > 1);
        }
        let server = servers.entry(config.digest()).or_insert_with(|| {
            let server = McpServer::new(config.clone(), self.fetch.clone(), self.values.clone(), self.listener.clone());
            let server = match &config.transport {
                McpTransport::Http { oauth: Some(oauth), .. } => server.with_tokens(self.tokens(oauth)),
                McpTransport::Http { oauth: None, .. } | McpTransport::Stdio { .. } => server,
            };
            Arc::new(match &self.asker {
                Some(asker) => server.with_asker(asker.clone()),
                None => server,
            })
        });
        server.clone()
    }

    /// The access tokens of the client `oauth`.
    fn tokens(&self, oauth: &OAuth) -> Arc<Tokens> {
        let mut known = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MOST_KEPT {
            known.retain(|_, tokens| Arc::strong_count(tokens) > 1 || tokens.is_renewed());
        }
        // Every part of it is text, which always has a JSON form.
        let written = serde_json::to_string(oauth).unwrap_or_else(|_| format!("{oauth:?}"));
        let made = || Arc::new(Tokens::new(oauth.clone(), self.fetch.clone()));
        known.entry(written).or_insert_with(made).clone()
    }

    /// Ends all conversations, and the processes among them.
    pub async fn close(&self) {
        let servers = std::mem::take(&mut *self.servers.lock().unwrap_or_else(PoisonError::into_inner));
        futures::future::join_all(servers.values().map(|server| server.close())).await;
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::Template;
    use dormouse_testkit::ScriptedFetch;

    use super::*;

    #[test]
    fn a_configuration_has_one_server() {
        let servers = McpServers::new(Arc::new(ScriptedFetch::default()), Values::none(), NoticeListener::default());
        let config = |url: &str| McpConfig::http("docs", Template::parse(url).expect("a template"));
        let first = servers.server(&config("http://h/mcp"));
        assert!(Arc::ptr_eq(&first, &servers.server(&config("http://h/mcp"))));
        assert!(!Arc::ptr_eq(&first, &servers.server(&config("http://h/other"))));
    }

    #[test]
    fn servers_of_one_client_share_what_it_was_granted() {
        let servers = McpServers::new(Arc::new(ScriptedFetch::default()), Values::none(), NoticeListener::default());
        let oauth = |id: &str| {
            let written = format!(r#"{{ "token_url": "https://a/token", "client_id": "{id}", "refresh_token": "r" }}"#);
            serde_json::from_str::<OAuth>(&written).expect("a client")
        };
        assert!(Arc::ptr_eq(&servers.tokens(&oauth("me")), &servers.tokens(&oauth("me"))));
        assert!(!Arc::ptr_eq(&servers.tokens(&oauth("me")), &servers.tokens(&oauth("you"))));
    }

    #[test]
    fn servers_that_nobody_uses_do_not_pile_up() {
        let servers = McpServers::new(Arc::new(ScriptedFetch::default()), Values::none(), NoticeListener::default());
        let config = |n: usize| McpConfig::stdio(format!("s{n}"), "server");
        let used = servers.server(&config(0));
        for n in 1..200 {
            servers.server(&config(n));
        }
        assert!(servers.servers.lock().expect("a lock").len() <= MOST_KEPT + 1);
        assert!(Arc::ptr_eq(&used, &servers.server(&config(0))));
    }
}
