use std::path::PathBuf;
use std::time::Duration;

use dormouse_ports::Template;
use dormouse_ports::tool::is_header_of_server;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Configuration of a server: how it is reached, and how long and how large its answers may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct McpConfig {
    /// Its name, for messages.
    pub name: String,
    /// Address or command of the server.
    pub transport: McpTransport,
    /// The time that one call may take; a minute where nothing is said.
    pub timeout: Duration,
    /// The time that beginning a conversation and listing the tools may take, each.
    pub connect_timeout: Duration,
    /// The most bytes of one message from the server: 4 MiB where nothing is said.
    pub most_bytes: usize,
    /// Keeps a connection open on which the server says that its list has changed. Without it, and as long as no such
    /// connection is had, the list is asked for again when it is older than [`list_max_age`](Self::list_max_age): right
    /// where no process listens between two calls, as in a function that is frozen. A server of an older version is heard on
    /// one for the time of each call.
    pub listen: bool,
    /// The age at which a list is asked for again, where the server neither says how long it holds nor that it changes.
    pub list_max_age: Duration,
}

/// Address or command of a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum McpTransport {
    /// Behind an address, over streamable HTTP.
    Http {
        /// The address.
        url: Template,
        /// Headers of each request.
        headers: Vec<(String, Template)>,
        /// Way to an access token, where the server asks for one and no header has it.
        oauth: Option<Box<OAuth>>,
    },
    /// A process that is started for it, and ended with it; local mode only.
    Stdio {
        /// Command line, as a shell takes it.
        command: String,
        /// Variables of its environment, beside `PATH`, `HOME` and the like.
        environment: Vec<(String, Template)>,
        /// Its working directory.
        folder: Option<PathBuf>,
    },
}

/// An OAuth client that needs no person: RFC 6749, section 4.4 (client credentials) or section 6 (refresh token).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuth {
    /// The token endpoint of the authorization server. It is declared and never asked for: a secret goes nowhere that a
    /// server names.
    pub token_url: Template,
    /// Id of the client.
    pub client_id: Template,
    /// Its secret; none for a public client.
    pub client_secret: Option<Template>,
    /// How the secret is shown. Without it in the header, and in the body where the endpoint does not take it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint_auth_method: Option<ClientAuthentication>,
    /// A token that a person was granted once. It is used instead of the client's own rights; one with which the server
    /// replaces it is kept as long as the process.
    pub refresh_token: Option<Template>,
    /// The scopes that are asked for, separated by spaces.
    pub scope: Option<String>,
    /// The resource that the token is for (RFC 8707).
    pub resource: Option<String>,
}

/// How a client shows its secret to a token endpoint, by its name in metadata of authorization servers (RFC 8414,
/// `token_endpoint_auth_methods_supported`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthentication {
    /// In the header `authorization`.
    ClientSecretBasic,
    /// In the body of the request.
    ClientSecretPost,
}

/// Error of a configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server `{server}` cannot be used: {message}")]
pub struct McpConfigError {
    /// Name of the server.
    pub server: String,
    /// Problem, and what to do about it.
    pub message: String,
}

impl McpConfig {
    /// The server `name` behind `url`, with the default limits.
    pub fn http(name: impl Into<String>, url: Template) -> Self {
        Self::new(name, McpTransport::Http { url, headers: Vec::new(), oauth: None })
    }

    /// The server `name` that `command` starts, with the default limits.
    pub fn stdio(name: impl Into<String>, command: impl Into<String>) -> Self {
        Self::new(name, McpTransport::Stdio { command: command.into(), environment: Vec::new(), folder: None })
    }

    /// A server with the default limits.
    pub fn new(name: impl Into<String>, transport: McpTransport) -> Self {
        Self {
            name: name.into(),
            transport,
            timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(30),
            most_bytes: 4 << 20,
            listen: true,
            list_max_age: Duration::from_secs(300),
        }
    }

    /// Adds a header to each request.
    ///
    /// # Errors
    /// [`McpConfigError`] for a header that the protocol sets, for what is no header, and for a server that is no
    /// address.
    pub fn header(mut self, name: &str, value: Template) -> Result<Self, McpConfigError> {
        let name = name.to_ascii_lowercase();
        let McpTransport::Http { headers, .. } = &mut self.transport else {
            return Err(self.wrong("it is a process and takes no headers; set `environment`"));
        };
        if !is_header_of_server(&name) {
            return Err(self.wrong(format!("the header `{name}` cannot be set; remove it")));
        }
        headers.push((name, value));
        Ok(self)
    }

    /// Names this configuration: SHA-256 of everything in it, references as they are written, in hexadecimal digits.
    pub fn digest(&self) -> String {
        // Every part of it is text, a number or a list of them, which always has a JSON form.
        let written = serde_json::to_vec(self).unwrap_or_else(|_| format!("{self:?}").into_bytes());
        hex::encode(Sha256::digest(written))
    }

    fn wrong(&self, message: impl Into<String>) -> McpConfigError {
        McpConfigError { server: self.name.clone(), message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text).expect("a template")
    }

    #[test]
    fn a_digest_tells_configurations_apart() {
        let plain = McpConfig::http("docs", template("http://h/mcp"));
        let keyed = plain.clone().header("x-key", template("${secrets.key}")).expect("a header");
        assert_eq!(plain.digest(), McpConfig::http("docs", template("http://h/mcp")).digest());
        assert_ne!(plain.digest(), keyed.digest());
        assert_ne!(plain.digest(), McpConfig { most_bytes: 1, ..plain.clone() }.digest());
        assert_eq!(plain.digest().len(), 64);
    }

    #[test]
    fn an_oauth_client_is_read_from_json() {
        let read = |text: &str| serde_json::from_str::<OAuth>(text);
        let written = r#"{ "token_url": "https://a/token", "client_id": "me", "client_secret": "${secrets.s}" }"#;
        let oauth = read(written).expect("a client");
        assert_eq!(oauth.client_secret, Some(template("${secrets.s}")));
        assert!(oauth.refresh_token.is_none() && oauth.scope.is_none() && oauth.token_endpoint_auth_method.is_none());
        let method = |name: &str| {
            let client = format!(r#"{{ "token_url": "t", "client_id": "c", "token_endpoint_auth_method": "{name}" }}"#);
            read(&client).map(|oauth| oauth.token_endpoint_auth_method)
        };
        assert_eq!(method("client_secret_post").expect("a client"), Some(ClientAuthentication::ClientSecretPost));
        assert!(method("private_key_jwt").is_err());
        assert!(read(r#"{ "token_url": "https://a/token" }"#).is_err());
        assert!(read(r#"{ "token_url": "https://a/token", "client_id": "me", "secret": "s" }"#).is_err());
    }

    #[test]
    fn headers_of_the_protocol_are_refused() {
        for name in ["Mcp-Session-Id", "Content-Type", "host", "a b", ""] {
            let config = McpConfig::http("docs", template("http://h/mcp"));
            assert!(config.header(name, template("x")).is_err(), "{name:?}");
        }
        assert!(McpConfig::stdio("docs", "server").header("x-key", template("x")).is_err());
    }
}
