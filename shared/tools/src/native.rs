//! The tools that Dormouse brings itself: files, commands, the web, a list of things to do.
//!
//! What was read is noted in the session, with its version: a file is changed only as it was read.

mod actions;
mod arguments;
mod bash;
mod edit;
mod files;
mod find;
mod hooks;
mod page;
mod todo;
mod web;
mod write;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::execution::{ExecutionBackend, ExecutionError};
use dormouse_ports::tool::{
    Effect, ToolAnnotations, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolReply, ToolSource, ToolSpec,
};
use dormouse_ports::{Clock, Fetch};
use serde_json::Value;

pub use actions::ActionTools;
pub use hooks::DeclaredHook;

/// The native tools over one workspace.
pub struct NativeTools {
    backend: Arc<dyn ExecutionBackend>,
    web: Arc<dyn Fetch>,
    clock: Arc<dyn Clock>,
    definitions: Vec<String>,
}

impl NativeTools {
    /// Tools that work in `backend`. Addresses that a model chooses are asked through `web`, which should reach the public
    /// internet only.
    pub fn new(backend: Arc<dyn ExecutionBackend>, web: Arc<dyn Fetch>, clock: Arc<dyn Clock>) -> Self {
        Self { backend, web, clock, definitions: Vec::new() }
    }

    /// The same, which write nothing in the folders `definitions` either: what is there defines agents, as what is in
    /// `.openharness`.
    #[must_use]
    pub fn keeping(self, definitions: &[String]) -> Self {
        Self { definitions: definitions.to_vec(), ..self }
    }
}

impl fmt::Debug for NativeTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeTools").field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// Those of the native tools that need no place to work in.
pub(crate) struct PlacelessTools {
    web: Arc<dyn Fetch>,
}

impl PlacelessTools {
    /// Addresses that a model chooses are asked through `web`.
    pub(crate) fn new(web: Arc<dyn Fetch>) -> Self {
        Self { web }
    }
}

impl fmt::Debug for PlacelessTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlacelessTools")
    }
}

#[async_trait]
impl ToolSource for PlacelessTools {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        Ok(placeless().into())
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        match call_placeless(&*self.web, call).await {
            Some(output) => output.map(ToolReply::Done),
            None => Err(unknown(&call.name)),
        }
    }
}

fn placeless() -> [ToolSpec; 2] {
    [web::spec(), todo::spec()]
}

/// Calls a tool that needs no place; `None` for any other.
async fn call_placeless(web: &dyn Fetch, call: &ToolCall) -> Option<Result<ToolOutput, ToolError>> {
    match call.name.as_str() {
        "WebFetch" => Some(web::call(web, call).await),
        "TodoWrite" => Some(todo::call(call)),
        _ => None,
    }
}

fn unknown(name: &str) -> ToolError {
    ToolError::new(ToolErrorKind::NotFound, format!("there is no native tool `{name}`"))
}

#[async_trait]
impl ToolSource for NativeTools {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        let commands = self.backend.runs_commands().then(bash::spec);
        let tools = [files::spec(), write::spec(), edit::spec(), find::glob(), find::grep()];
        Ok(commands.into_iter().chain(tools).chain(placeless()).collect())
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let backend = &*self.backend;
        let output = match call.name.as_str() {
            "Bash" if backend.runs_commands() => bash::call(backend, &*self.clock, call).await?,
            "Read" => files::call(backend, call).await?,
            "Write" => write::call(backend, &self.definitions, call).await?,
            "Edit" => edit::call(backend, &self.definitions, call).await?,
            "Glob" => find::call_glob(backend, call).await?,
            "Grep" => find::call_grep(backend, call).await?,
            other => call_placeless(&*self.web, call).await.ok_or_else(|| unknown(other))??,
        };
        Ok(ToolReply::Done(output))
    }
}

/// A tool of that name with the fields of `properties` as arguments.
fn tool(name: &str, description: &str, effect: Effect, properties: Value, required: &[&str]) -> ToolSpec {
    let schema = serde_json::json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let mut spec = ToolSpec::new(name);
    spec.description = description.to_owned();
    spec.input_schema = schema.as_object().cloned().unwrap_or_default();
    spec.effect = effect;
    let read_only = matches!(name, "Read" | "Glob" | "Grep" | "WebFetch");
    spec.annotations = ToolAnnotations {
        read_only: Some(read_only),
        destructive: Some(matches!(name, "Bash" | "Write" | "Edit")),
        open_world: Some(matches!(name, "Bash" | "WebFetch")),
        ..ToolAnnotations::default()
    };
    spec
}

/// Meaning of an error of the backend for a call.
fn refused(error: &ExecutionError) -> ToolError {
    let said = error.to_string();
    match error {
        ExecutionError::NotFound { .. }
        | ExecutionError::Confined { .. }
        | ExecutionError::NoFile { .. }
        | ExecutionError::TooLarge { .. }
        | ExecutionError::Changed { .. }
        | ExecutionError::InvalidRequest { .. } => ToolError::new(ToolErrorKind::InvalidArguments, said),
        ExecutionError::Denied { .. } => ToolError::permanent(said),
        ExecutionError::Unavailable { uncertain, .. } => {
            let error = ToolError::transient(said);
            if *uncertain { error.maybe_done() } else { error }
        }
    }
}

/// The call cannot be made like this; the model is told what to do.
fn wrong(message: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArguments, message)
}
