use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::{ActionDefinition, ToolSource};
use crate::execution::ExecutionBackend;
use crate::hook::{HookHandler, HookHandlerDefinition};
use crate::{Map, Template};

/// A source of tools as a workspace declares it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// False if its author switched it off.
    pub enabled: bool,
    /// Definition of the source.
    #[serde(flatten)]
    pub source: ToolSourceDefinition,
    /// Tools of it that are offered, and how they are called.
    pub expose: Exposure,
    /// Milliseconds that one call may take.
    pub timeout_ms: Option<u64>,
}

/// Definition of a source of tools.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolSourceDefinition {
    /// An MCP server that is started as a process (local mode only).
    Stdio {
        /// Command line.
        command: String,
        /// Variables of its environment.
        environment: Vec<(String, Template)>,
    },
    /// An MCP server behind an address.
    Server {
        /// Its address.
        url: Template,
        /// Headers of each request.
        headers: Vec<(String, Template)>,
        /// Settings of the OAuth client flow, as they stand.
        oauth: Option<Value>,
    },
    /// One tool behind an HTTP address.
    Http(Box<HttpToolDefinition>),
    /// Functions of the crate whose program serves.
    Rust {
        /// The name under which that crate registers them.
        tools: String,
    },
}

/// Tools of an author's crate, by the names under which it registers them.
pub type CrateTools = BTreeMap<String, Arc<dyn ToolSource>>;

/// Why a program that registers the tools `known` has none called `name`, and what to do.
pub fn no_crate_tools<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match known.is_empty() {
        true => format!(
            "this program has no tools in Rust of its own: run that of the crate which registers `{name}` with \
             `Agents::tools`"
        ),
        false => format!("no tools in Rust are registered as `{name}`; there are `{}`", known.join("`, `")),
    }
}

/// A tool that is one HTTP request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HttpToolDefinition {
    /// Method: `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// Address; `{name}` in it stands for an argument.
    pub url: Template,
    /// Headers.
    pub headers: Vec<(String, Template)>,
    /// Description of what it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Map,
    /// True if a call may run again when it is not known if it ran.
    pub safe: bool,
}

/// The part of a server's tools that is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exposure {
    /// Stands before the name of each tool, with a dot.
    pub tool_prefix: Option<String>,
    /// Names or patterns; all when empty.
    pub include: Vec<String>,
    /// Names or patterns that are left out.
    pub exclude: Vec<String>,
}

/// Makes the source of a definition of tools.
pub trait ToolSources: fmt::Debug + Send + Sync {
    /// The source of `definition`.
    ///
    /// # Errors
    /// A sentence that says why there is none here.
    fn source(&self, definition: &ToolDefinition) -> Result<Arc<dyn ToolSource>, String>;

    /// Factory of the sources of the published workspace `workspace`, for runs with the bundle `digest`; `None` where
    /// that is the same for all.
    fn of_bundle(&self, workspace: &str, digest: &str) -> Option<Arc<dyn ToolSources>> {
        let _ = (workspace, digest);
        None
    }

    /// The native tools over the files of the workspace, of which those in the folders `definitions` define agents; `None`
    /// where there is no place for them.
    fn native(&self, definitions: &[String]) -> Option<Arc<dyn ToolSource>> {
        let _ = definitions;
        None
    }

    /// The place where native tools and actions work; `None` where there is none.
    fn place(&self) -> Option<Arc<dyn ExecutionBackend>> {
        None
    }

    /// Handler of a hook; `None` where that cannot be had.
    fn hook(&self, handler: &HookHandlerDefinition) -> Option<Arc<dyn HookHandler>> {
        let _ = handler;
        None
    }

    /// `actions` as tools; `None` where they cannot be run.
    fn actions(&self, actions: Vec<ActionDefinition>) -> Option<Arc<dyn ToolSource>> {
        let _ = actions;
        None
    }
}
