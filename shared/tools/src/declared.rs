//! Sources of tools, made of what a workspace declares.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "native")]
use dormouse_ports::execution::ExecutionBackend;
use dormouse_ports::tool::{
    CrateTools, Effect, HttpToolDefinition, ToolDefinition, ToolSource, ToolSourceDefinition, ToolSources,
    no_crate_tools,
};
use dormouse_ports::{Fetch, Method, Template};
use serde_json::Value;

use crate::mcp::{Asker, McpConfig, McpServers, McpTransport, NoticeListener, OAuth};
use crate::timed::Timed;
use crate::{HttpTool, HttpTools, Values};

/// Makes servers behind addresses, HTTP requests, the tools of a crate and, where there is a folder for them, processes.
pub struct DeclaredTools {
    fetch: Arc<dyn Fetch>,
    values: Values,
    servers: McpServers,
    of_crate: CrateTools,
    /// As of [`McpConfig::listen`].
    listens: bool,
    folder: Option<PathBuf>,
    #[cfg(feature = "native")]
    place: Option<WorkPlace>,
    /// The web for native tools where there is no place.
    #[cfg(feature = "native")]
    web: Option<Arc<dyn Fetch>>,
}

/// Where native tools and actions work.
#[cfg(feature = "native")]
#[derive(Clone)]
struct WorkPlace {
    backend: Arc<dyn ExecutionBackend>,
    web: Arc<dyn Fetch>,
    clock: Arc<dyn dormouse_ports::Clock>,
}

impl fmt::Debug for DeclaredTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeclaredTools").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl DeclaredTools {
    /// Tools that ask over `fetch`, with `values` in their addresses and headers.
    pub fn new(fetch: Arc<dyn Fetch>, values: Values) -> Self {
        let servers = McpServers::new(fetch.clone(), values.clone(), NoticeListener::default());
        Self {
            fetch,
            values,
            servers,
            of_crate: CrateTools::default(),
            listens: true,
            folder: None,
            #[cfg(feature = "native")]
            place: None,
            #[cfg(feature = "native")]
            web: None,
        }
    }

    /// Makes tools for workspaces whose definitions whoever may write their files has written: over these files alone, and
    /// what asks over `public`, which reaches no private address. Nothing is looked up, and no command or process is
    /// started. Where it does not `listen`, servers are as [without listening](Self::without_listening).
    #[cfg(feature = "native")]
    pub fn over_stored(
        public: Arc<dyn Fetch>,
        clock: Arc<dyn dormouse_ports::Clock>,
        listen: bool,
    ) -> impl Fn(Arc<dyn dormouse_ports::TextFiles>) -> Arc<dyn ToolSources> + Send + Sync {
        move |files| {
            let tools = Self { listens: listen, ..Self::new(public.clone(), Values::none()) };
            let place = Arc::new(crate::StoredBackend::new(files));
            Arc::new(tools.with_place(place, public.clone(), clock.clone()))
        }
    }

    /// The same for a person who is there: what servers of older versions ask in the midst of calls is put to `asker`, and
    /// their notices go to `listener`.
    #[must_use]
    pub fn attended(self, asker: Arc<dyn Asker>, listener: NoticeListener) -> Self {
        let servers = McpServers::new(self.fetch.clone(), self.values.clone(), listener).with_asker(asker);
        Self { servers, ..self }
    }

    /// The same for a process that is frozen between two requests: no connection is kept on which servers would tell of
    /// changes, and a list holds no longer than for its time.
    #[must_use]
    pub fn without_listening(self) -> Self {
        Self { listens: false, ..self }
    }

    /// Also processes, which work in `folder`: only on the author's own machine.
    #[must_use]
    pub fn with_processes(self, folder: PathBuf) -> Self {
        Self { folder: Some(folder), ..self }
    }

    /// Also the tools that the author's crate registers.
    #[must_use]
    pub fn with_crate(self, of_crate: CrateTools) -> Self {
        Self { of_crate, ..self }
    }

    /// Also native tools and actions, which work in `backend`. Addresses that a model chooses are asked through `web`.
    #[cfg(feature = "native")]
    #[must_use]
    pub fn with_place(
        self,
        backend: Arc<dyn ExecutionBackend>,
        web: Arc<dyn Fetch>,
        clock: Arc<dyn dormouse_ports::Clock>,
    ) -> Self {
        Self { place: Some(WorkPlace { backend, web, clock }), ..self }
    }

    /// Also the native tools that need no place. Addresses that a model chooses are asked through `web`.
    #[cfg(feature = "native")]
    #[must_use]
    pub fn without_place(self, web: Arc<dyn Fetch>) -> Self {
        Self { web: Some(web), ..self }
    }

    fn transport(&self, source: &ToolSourceDefinition) -> Result<McpTransport, String> {
        match source {
            ToolSourceDefinition::Stdio { .. } if self.folder.is_none() => {
                Err("no process is started here: serve it over HTTP, and set `url`".to_owned())
            }
            ToolSourceDefinition::Stdio { command, environment } => Ok(McpTransport::Stdio {
                command: command.clone(),
                environment: environment.clone(),
                folder: self.folder.clone(),
            }),
            ToolSourceDefinition::Server { url, headers: _, oauth } => {
                let oauth = oauth.as_ref().map(client).transpose()?.map(Box::new);
                Ok(McpTransport::Http { url: url.clone(), headers: Vec::new(), oauth })
            }
            ToolSourceDefinition::Http(_) | ToolSourceDefinition::Rust { .. } => {
                Err("it is no server of tools".to_owned())
            }
        }
    }

    fn server(
        &self,
        definition: &ToolDefinition,
        headers: &[(String, Template)],
    ) -> Result<Arc<dyn ToolSource>, String> {
        Ok(self.servers.server(&self.config(definition, headers)?))
    }

    fn config(&self, definition: &ToolDefinition, headers: &[(String, Template)]) -> Result<McpConfig, String> {
        let mut config = McpConfig::new(&definition.name, self.transport(&definition.source)?);
        config.listen = self.listens;
        for (name, value) in headers {
            config = config.header(name, value.clone()).map_err(|error| error.to_string())?;
        }
        if let Some(timeout) = definition.timeout_ms {
            config.timeout = Duration::from_millis(timeout);
            config.connect_timeout = config.connect_timeout.min(config.timeout);
        }
        Ok(config)
    }

    fn http(&self, definition: &ToolDefinition, http: &HttpToolDefinition) -> Result<HttpTools, crate::HttpToolError> {
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

impl ToolSources for DeclaredTools {
    fn source(&self, definition: &ToolDefinition) -> Result<Arc<dyn ToolSource>, String> {
        match &definition.source {
            ToolSourceDefinition::Stdio { .. } => self.server(definition, &[]),
            ToolSourceDefinition::Server { headers, .. } => self.server(definition, headers),
            ToolSourceDefinition::Http(http) => {
                let tools = self.http(definition, http).map_err(|error| error.to_string())?;
                Ok(Arc::new(tools))
            }
            ToolSourceDefinition::Rust { tools } => {
                let known = || self.of_crate.keys().map(String::as_str);
                let source = self.of_crate.get(tools).cloned().ok_or_else(|| no_crate_tools(tools, known()))?;
                match definition.timeout_ms {
                    Some(timeout) => Ok(Arc::new(Timed { source, timeout: Duration::from_millis(timeout) })),
                    None => Ok(source),
                }
            }
        }
    }

    #[cfg(feature = "native")]
    fn native(&self, definitions: &[String]) -> Option<Arc<dyn ToolSource>> {
        match self.place.clone() {
            Some(WorkPlace { backend, web, clock }) => {
                Some(Arc::new(crate::NativeTools::new(backend, web, clock).keeping(definitions)))
            }
            None => Some(Arc::new(crate::native::PlacelessTools::new(self.web.clone()?))),
        }
    }

    #[cfg(feature = "native")]
    fn place(&self) -> Option<Arc<dyn ExecutionBackend>> {
        self.place.as_ref().map(|place| place.backend.clone())
    }

    #[cfg(feature = "native")]
    fn hook(
        &self,
        handler: &dormouse_ports::hook::HookHandlerDefinition,
    ) -> Option<Arc<dyn dormouse_ports::hook::HookHandler>> {
        let hook = crate::DeclaredHook::new(handler.clone(), self.place(), self.fetch.clone(), self.values.clone())?;
        Some(Arc::new(hook))
    }

    #[cfg(feature = "native")]
    fn actions(&self, actions: Vec<dormouse_ports::tool::ActionDefinition>) -> Option<Arc<dyn ToolSource>> {
        let WorkPlace { backend, clock, .. } = self.place.clone().filter(|place| place.backend.runs_commands())?;
        Some(Arc::new(crate::ActionTools::new(backend, self.values.clone(), clock, actions)))
    }
}

/// The OAuth client that `settings` describe.
fn client(settings: &Value) -> Result<OAuth, String> {
    serde_path_to_error::deserialize(settings).map_err(|error| {
        format!(
            "`oauth.{}`: {}; it takes `token_url`, `client_id`, `client_secret`, `token_endpoint_auth_method`, \
             `refresh_token`, `scope` and `resource`",
            error.path(),
            error.inner()
        )
    })
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

#[cfg(test)]
mod tests {
    use dormouse_ports::tool::Exposure;
    use dormouse_testkit::ScriptedFetch;
    use serde_json::json;

    use super::*;

    fn tools() -> DeclaredTools {
        let fetch: Arc<dyn Fetch> = Arc::new(ScriptedFetch::default());
        DeclaredTools::new(fetch, Values::none())
    }

    fn definition(source: ToolSourceDefinition) -> ToolDefinition {
        let expose = Exposure::default();
        ToolDefinition { name: "docs".to_owned(), enabled: true, source, expose, timeout_ms: None }
    }

    fn server(oauth: Option<Value>) -> ToolDefinition {
        let url = Template::parse("https://docs.example.com/mcp").expect("an address");
        definition(ToolSourceDefinition::Server { url, headers: Vec::new(), oauth })
    }

    #[test]
    fn a_process_needs_a_folder() {
        let process = || definition(ToolSourceDefinition::Stdio { command: "server".into(), environment: Vec::new() });
        let refused = tools().source(&process()).expect_err("a reason");
        assert!(refused.contains("serve it over HTTP"), "{refused}");
        assert!(tools().with_processes("/tmp".into()).source(&process()).is_ok());
    }

    #[tokio::test]
    async fn tools_of_a_crate_are_those_of_the_name_with_the_time_of_the_definition() {
        use dormouse_ports::Map;

        let rust = |tools: &str| definition(ToolSourceDefinition::Rust { tools: tools.to_owned() });
        let refused = tools().source(&rust("stock")).expect_err("a reason");
        assert!(refused.contains("registers `stock` with `Agents::tools`"), "{refused}");
        let count = crate::RustTool::new("count").timeout(Duration::from_secs(9));
        let count = crate::RustTools::new([count.run(async |_: Map| Ok::<_, String>(7))]).expect("tools");
        let own = CrateTools::from([("stock".to_owned(), Arc::new(count) as Arc<dyn ToolSource>)]);
        let tools = tools().with_crate(own);
        let refused = tools.source(&rust("shop")).expect_err("a reason");
        assert!(refused.contains("`shop`; there are `stock`"), "{refused}");
        for (timeout_ms, time) in [(None, Duration::from_secs(9)), (Some(1_500), Duration::from_millis(1_500))] {
            let source = tools.source(&ToolDefinition { timeout_ms, ..rust("stock") }).expect("a source");
            let [spec] = &*source.list().await.expect("a list") else { panic!("one tool") };
            assert_eq!((spec.name.as_str(), spec.timeout), ("count", Some(time)));
            let reply = source.call(&dormouse_ports::tool::ToolCall::new("1", "count", Map::new())).await;
            let seven = dormouse_ports::tool::ToolOutput::value(json!(7));
            assert_eq!(reply, Ok(dormouse_ports::tool::ToolReply::Done(seven)));
        }
    }

    #[cfg(feature = "native")]
    #[tokio::test]
    async fn without_a_place_there_are_the_native_tools_that_need_none() {
        use dormouse_ports::tool::{PLACELESS_TOOLS, ToolCall, ToolReply};

        assert!(tools().native(&[]).is_none());
        let native = tools().without_place(Arc::new(ScriptedFetch::default())).native(&[]).expect("a source");
        let offered: Vec<String> = native.list().await.expect("a list").into_iter().map(|spec| spec.name).collect();
        assert_eq!(offered, PLACELESS_TOOLS);
        let todos = json!({ "todos": [{ "content": "sow", "status": "pending" }] });
        let call = |name: &str| ToolCall::new("c-1", name, todos.as_object().cloned().expect("fields"));
        let ToolReply::Done(noted) = native.call(&call("TodoWrite")).await.expect("a list of things to do") else {
            panic!("it is done at once");
        };
        assert!(!noted.notes.is_empty(), "the session keeps it");
        let refused = native.call(&call("Read")).await.expect_err("there is nothing to read");
        assert!(refused.message.contains("`Read`"), "{refused}");
    }

    #[cfg(feature = "native")]
    #[tokio::test]
    async fn a_hook_that_is_an_address_needs_no_place_and_a_command_does() {
        use dormouse_ports::hook::HookHandlerDefinition;

        let fetch = ScriptedFetch::default();
        fetch.answer(dormouse_testkit::ScriptedAnswer::json(200, &json!({ "decision": "block" })));
        let tools = DeclaredTools::new(Arc::new(fetch), Values::none());
        let url = Template::parse("https://guard.example.com/").expect("an address");
        let guard = HookHandlerDefinition::Http { url, headers: Vec::new() };
        let answer = tools.hook(&guard).expect("a handler").handle(&json!({ "cwd": "." })).await.expect("an answer");
        assert!(answer.text.contains("block"), "{answer:?}");
        let command = HookHandlerDefinition::Command { command: "./guard.sh".to_owned(), environment: Vec::new() };
        assert!(tools.hook(&command).is_none(), "there is nowhere to run it");
    }

    #[test]
    fn servers_are_listened_to_unless_the_process_is_frozen_between_requests() {
        let listens = |tools: DeclaredTools| tools.config(&server(None), &[]).expect("a configuration").listen;
        assert!(listens(tools()));
        assert!(!listens(tools().without_listening()));
        assert!(!listens(tools().without_listening().with_processes("/tmp".into())), "also with what is added");
    }

    #[test]
    fn an_oauth_client_is_read_or_what_is_wrong_is_said() {
        let client = json!({ "token_url": "https://id.example.com/token", "client_id": "dormouse" });
        assert!(tools().source(&server(Some(client))).is_ok());
        let refused = tools().source(&server(Some(json!({ "authorize": true })))).expect_err("a reason");
        assert!(refused.contains("authorize") && refused.contains("`client_id`"), "{refused}");
    }
}
