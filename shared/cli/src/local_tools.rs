//! The servers of tools that a workspace of this machine names.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dormouse_agent::workspace::{HttpTool as HttpDefinition, ToolDefinition, ToolSourceDefinition};
use dormouse_declared::ToolSources;
use dormouse_ports::tool::{Effect, ToolSource};
use dormouse_ports::{Fetch, Method};
use dormouse_tools::mcp::{Listener, McpConfig, McpServers, McpTransport};
use dormouse_tools::{HttpTool, HttpTools, Values};

/// Makes sources of tools on this machine: servers behind addresses, processes, HTTP requests.
pub(crate) struct LocalTools {
    fetch: Arc<dyn Fetch>,
    values: Values,
    servers: McpServers,
    /// Where processes work.
    folder: PathBuf,
}

impl fmt::Debug for LocalTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTools").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl LocalTools {
    /// Those of the workspace in `folder`.
    pub(crate) fn new(fetch: Arc<dyn Fetch>, values: Values, folder: PathBuf) -> Self {
        let servers = McpServers::new(fetch.clone(), values.clone(), Listener::default());
        Self { fetch, values, servers, folder }
    }

    fn server(&self, definition: &ToolDefinition, transport: McpTransport) -> Arc<dyn ToolSource> {
        let mut config = McpConfig::new(&definition.name, transport);
        if let Some(timeout) = definition.timeout_ms {
            config.timeout = Duration::from_millis(timeout);
        }
        self.servers.server(&config)
    }

    fn http(&self, definition: &ToolDefinition, http: &HttpDefinition) -> Result<Arc<dyn ToolSource>, String> {
        let method = match http.method.as_str() {
            "GET" => Method::Get,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            _ => Method::Post,
        };
        let effect = if http.safe { Effect::Safe } else { Effect::Manual };
        let said = |error: dormouse_tools::HttpToolError| error.to_string();
        let tool = HttpTool::new(&definition.name, method, http.url.clone()).map_err(said)?;
        let tool = tool.describe(&http.description).effect(effect);
        let mut tool = tool.input_schema(http.input_schema.clone()).map_err(said)?;
        for (name, value) in &http.headers {
            tool = tool.header(name, value.clone()).map_err(said)?;
        }
        if let Some(timeout) = definition.timeout_ms {
            tool = tool.timeout(Duration::from_millis(timeout));
        }
        Ok(Arc::new(HttpTools::new([tool], self.fetch.clone(), self.values.clone())))
    }
}

impl ToolSources for LocalTools {
    fn source(&self, definition: &ToolDefinition) -> Result<Arc<dyn ToolSource>, String> {
        match &definition.source {
            ToolSourceDefinition::Stdio { command, environment } => {
                let folder = Some(self.folder.clone());
                let command = command.clone();
                let environment = environment.clone();
                Ok(self.server(definition, McpTransport::Stdio { command, environment, folder }))
            }
            ToolSourceDefinition::Server { oauth: Some(_), .. } => {
                Err("its `oauth` is not read by this command: put an access token into `headers`".to_owned())
            }
            ToolSourceDefinition::Server { url, headers, oauth: None } => {
                let mut config = McpConfig::http(&definition.name, url.clone());
                for (name, value) in headers {
                    config = config.header(name, value.clone()).map_err(|error| error.to_string())?;
                }
                Ok(self.server(definition, config.transport))
            }
            ToolSourceDefinition::Http(http) => self.http(definition, http),
        }
    }
}
