use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_agent::workspace::{HttpTool as HttpDefinition, ToolDefinition, ToolSourceDefinition};
use dormouse_declared::ToolSources;
use dormouse_ports::tool::{Effect, ToolSource};
use dormouse_ports::{Fetch, Method};
use dormouse_tools::mcp::{Listener, McpConfig, McpServers};
use dormouse_tools::{HttpTool, HttpTools, Values};

/// Makes sources of tools in a function: servers behind addresses, and HTTP requests. No process is started.
pub(super) struct CloudTools {
    fetch: Arc<dyn Fetch>,
    values: Values,
    servers: McpServers,
}

impl fmt::Debug for CloudTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CloudTools")
    }
}

impl CloudTools {
    pub(super) fn new(fetch: Arc<dyn Fetch>, values: Values) -> Self {
        let servers = McpServers::new(fetch.clone(), values.clone(), Listener::default());
        Self { fetch, values, servers }
    }

    fn http(
        &self,
        definition: &ToolDefinition,
        http: &HttpDefinition,
    ) -> Result<HttpTools, dormouse_tools::HttpToolError> {
        let effect = if http.safe { Effect::Safe } else { Effect::Manual };
        let tool = HttpTool::new(&definition.name, method(&http.method), http.url.clone())?;
        let mut tool = tool.describe(&http.description).effect(effect).input_schema(http.input_schema.clone())?;
        for (name, value) in &http.headers {
            tool = tool.header(name, value.clone())?;
        }
        if let Some(timeout) = definition.timeout_ms {
            tool = tool.timeout(Duration::from_millis(timeout));
        }
        Ok(HttpTools::new([tool], self.fetch.clone(), self.values.clone()))
    }
}

/// The method of that name; the loader lets no others through.
fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        _ => Method::Post,
    }
}

impl ToolSources for CloudTools {
    fn source(&self, definition: &ToolDefinition) -> Result<Arc<dyn ToolSource>, String> {
        match &definition.source {
            ToolSourceDefinition::Stdio { .. } => Err("no function starts a process: serve it over HTTP".to_owned()),
            ToolSourceDefinition::Server { oauth: Some(_), .. } => {
                Err("its `oauth` is not read here: put an access token into `headers`".to_owned())
            }
            ToolSourceDefinition::Server { url, headers, oauth: None } => {
                let mut config = McpConfig::http(&definition.name, url.clone());
                for (name, value) in headers {
                    config = config.header(name, value.clone()).map_err(|error| error.to_string())?;
                }
                if let Some(timeout) = definition.timeout_ms {
                    config.timeout = Duration::from_millis(timeout);
                }
                let server: Arc<dyn ToolSource> = self.servers.server(&config);
                Ok(server)
            }
            ToolSourceDefinition::Http(http) => {
                Ok(Arc::new(self.http(definition, http).map_err(|error| error.to_string())?))
            }
        }
    }
}
