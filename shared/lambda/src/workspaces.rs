//! The agents of published workspaces, as a function serves them.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_agent::bundle::BundleStore;
use dormouse_agent::workspace::Platform;
use dormouse_api::{CompiledAgents, Outside, WorkspaceAgents, WorkspaceFiles};
use dormouse_aws::{AwsAccess, ParameterSecrets, Parameters, RequestSigner, S3Objects, ToolsFunction};
use dormouse_declared::{
    BedrockAccess, DeclaredPorts, LentModels, NoTools, OwnAgentsFrom, PublishedAgents, PublishedFrom, StoredAgents,
};
use dormouse_fetch::NetworkFetch;
use dormouse_ports::execution::ExecutionTier;
use dormouse_ports::hook::{HookHandler, HookHandlerDefinition};
use dormouse_ports::tool::{
    ActionDefinition, CrateTools, NATIVE_TOOLS, PLACELESS_TOOLS, ToolDefinition, ToolSource, ToolSources,
};
use dormouse_ports::{Clock, Fetch, Secret, SecretError, Secrets};
use dormouse_system::RandomIds;
use dormouse_tools::{DeclaredTools, Values};

use crate::config::WorkspaceConfig;

/// Adds the agents of workspaces to others: [`joined_by`]. Who holds none has no code of them.
pub(crate) type JoinsWorkspaces = fn(CompiledAgents, WorkspaceParts) -> CompiledAgents;

/// Parts that agents of workspaces are made with.
pub(crate) struct WorkspaceParts {
    /// The published workspaces that are served, if any are, and the role by which their bundles are read.
    pub(crate) published: Option<(WorkspaceConfig, AwsAccess)>,
    pub(crate) parameters: Parameters,
    /// The tools that the program registers, for the published workspaces.
    pub(crate) of_crate: CrateTools,
    /// The files of workspaces that are kept in the table.
    pub(crate) files: WorkspaceFiles,
    pub(crate) fetch: Arc<dyn Fetch>,
    pub(crate) outside: Outside,
}

/// `agents`, with those of published workspaces, and those that the files of workspaces declare.
pub(crate) fn joined_by(agents: CompiledAgents, parts: WorkspaceParts) -> CompiledAgents {
    let WorkspaceParts { published, parameters, of_crate, files, fetch, outside } = parts;
    let published = published.map(|(config, access)| {
        Arc::new(self::published(config, &access, (&parameters, of_crate), fetch.clone(), outside.clone()))
    });
    let agents = match &published {
        Some(published) => agents.with_source(published.clone()),
        None => agents,
    };
    agents.with_own(own(published.as_ref(), files, fetch, outside))
}

/// The agents of the workspaces of `config`. Nothing is asked before one of them is.
fn published(
    config: WorkspaceConfig,
    access: &AwsAccess,
    (parameters, of_crate): (&Parameters, CrateTools),
    fetch: Arc<dyn Fetch>,
    outside: Outside,
) -> PublishedAgents {
    let clock = outside.clock.clone();
    let objects = S3Objects::new(access, &config.bucket, fetch.clone(), clock.clone());
    let env: Arc<dyn Secrets> = Arc::new(NoVariables);
    let secrets: Arc<dyn Secrets> = match config.secrets {
        Some(path) => Arc::new(ParameterSecrets::new(parameters.clone(), path, clock.clone())),
        None => Arc::new(NoSecrets),
    };
    let values = Values::new(env.clone(), secrets.clone());
    // By the role of the function, which has to allow it.
    let sign = Arc::new(RequestSigner::new(access, "bedrock", clock.clone()));
    let function = config
        .tools
        .as_ref()
        .map(|name| ToolsFunction::new(access, name, (&config.bucket, &config.prefix), fetch.clone(), clock.clone()));
    let tier = function.as_ref().map(|_| ExecutionTier::Function);
    let native_tools = function.as_ref().map_or(&PLACELESS_TOOLS[..], |_| &NATIVE_TOOLS);
    let native_tools = native_tools.iter().map(|name| (*name).to_owned()).collect();
    let rust_tools = Some(of_crate.keys().cloned().collect());
    let tools = Tools { fetch: fetch.clone(), values, of_crate, clock: clock.clone(), function };
    let ports = DeclaredPorts {
        tools: Arc::new(tools),
        fetch,
        clock,
        ids: Arc::new(RandomIds),
        env,
        secrets,
        deltas: None,
        bedrock: Some(BedrockAccess { region: access.region.clone(), sign }),
        lender: None,
    };
    PublishedAgents::new(PublishedFrom {
        store: BundleStore::new(Arc::new(objects), config.prefix),
        workspaces: config.names,
        platform: Platform { models: Some(Vec::new()), native_tools, processes: false, rust_tools, tier },
        ports,
        outside,
        home: None,
        refresh: None,
    })
}

/// The agents that the files of workspaces declare; the models of the `published` workspaces are lent to them.
fn own(
    published: Option<&Arc<PublishedAgents>>,
    files: WorkspaceFiles,
    fetch: Arc<dyn Fetch>,
    outside: Outside,
) -> Arc<dyn WorkspaceAgents> {
    let clock = outside.clock.clone();
    let lender = published.map_or_else(
        || DeclaredPorts {
            tools: Arc::new(NoTools),
            fetch,
            clock: clock.clone(),
            ids: Arc::new(RandomIds),
            env: Arc::new(NoVariables),
            secrets: Arc::new(NoSecrets),
            deltas: None,
            bedrock: None,
            lender: None,
        },
        |published| published.ports().clone(),
    );
    let public: Arc<dyn Fetch> = Arc::new(NetworkFetch::public());
    let tools = Arc::new(DeclaredTools::over_stored(public.clone(), clock, false));
    let lent = published.map(|published| published.clone() as Arc<dyn LentModels>);
    Arc::new(StoredAgents::new(OwnAgentsFrom { files, lent, lender, public, tools, outside }))
}

/// Servers, HTTP requests and tools of the crate for every workspace, and native tools that need no place; the others and
/// actions for each in a place of its own.
struct Tools {
    fetch: Arc<dyn Fetch>,
    values: Values,
    of_crate: CrateTools,
    clock: Arc<dyn Clock>,
    function: Option<ToolsFunction>,
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").field("function", &self.function).finish_non_exhaustive()
    }
}

impl Tools {
    fn everywhere(&self) -> DeclaredTools {
        let tools = DeclaredTools::new(self.fetch.clone(), self.values.clone()).with_crate(self.of_crate.clone());
        tools.without_listening()
    }
}

impl ToolSources for Tools {
    fn source(&self, definition: &ToolDefinition) -> Result<Arc<dyn ToolSource>, String> {
        self.everywhere().source(definition)
    }

    fn hook(&self, handler: &HookHandlerDefinition) -> Option<Arc<dyn HookHandler>> {
        self.everywhere().hook(handler)
    }

    fn actions(&self, actions: Vec<ActionDefinition>) -> Option<Arc<dyn ToolSource>> {
        self.everywhere().actions(actions)
    }

    fn of_bundle(&self, workspace: &str, digest: &str) -> Option<Arc<dyn ToolSources>> {
        let (tools, web) = (self.everywhere(), Arc::new(NetworkFetch::public()));
        Some(Arc::new(match &self.function {
            Some(function) => tools.with_place(Arc::new(function.of(workspace, digest)), web, self.clock.clone()),
            None => tools.without_place(web),
        }))
    }
}

/// The environment of a function holds the credentials of its role: no workspace reads it.
struct NoVariables;

#[async_trait]
impl Secrets for NoVariables {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        Err(SecretError::Unset(name.to_owned()))
    }
}

/// Where the deployment names no path of parameters.
struct NoSecrets;

#[async_trait]
impl Secrets for NoSecrets {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        Err(SecretError::Missing(format!("{name} (DORMOUSE_AGENT_SECRETS names no path of parameters)")))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::tool::{Exposure, ToolSourceDefinition};
    use dormouse_system::SystemClock;
    use dormouse_tools::{RustTool, RustTools};
    use serde_json::Map;

    use super::*;

    #[tokio::test]
    async fn published_workspaces_have_the_tools_in_rust_that_the_program_registers() {
        let count = RustTool::new("count").run(async |_: Map<String, serde_json::Value>| Ok::<_, String>(7));
        let agents = dormouse_api::Agents::new().tools("stock", RustTools::new([count]).expect("tools"));
        let tools = Tools {
            fetch: Arc::new(NetworkFetch::new()),
            values: Values::none(),
            of_crate: agents.crate_tools().clone(),
            clock: Arc::new(SystemClock::default()),
            function: None,
        };
        let tools = tools.of_bundle("shop", "digest").expect("those of the bundle");
        let definition = |name: &str| ToolDefinition {
            name: "shop".to_owned(),
            enabled: true,
            source: ToolSourceDefinition::Rust { tools: name.to_owned() },
            expose: Exposure::default(),
            timeout_ms: None,
        };
        let source = tools.source(&definition("stock")).expect("a source");
        assert_eq!(source.list().await.expect("a list")[0].name, "count");
        let refused = tools.source(&definition("stok")).expect_err("a reason");
        assert!(refused.contains("there are `stock`"), "{refused}");
    }
}
