use serde::Serialize;

use crate::{Map, Template};

/// An action as a workspace declares it: one command that a model, a person or a client may run with checked input.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ActionDefinition {
    /// Its name.
    pub name: String,
    /// Path of its file.
    pub file: String,
    /// Description of what it does and when to run it.
    pub description: String,
    /// Program that runs.
    pub entry: ActionEntry,
    /// Callers who may run it.
    pub expose: ActionExposure,
    /// JSON Schema of its input.
    pub input_schema: Map,
    /// True if it may run again when it is not known if it ran.
    pub safe: bool,
}

/// The command of an action.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ActionEntry {
    /// Command line. It reads the input as JSON from its standard input.
    pub command: String,
    /// Variables of its environment.
    pub environment: Vec<(String, Template)>,
    /// Folder in which it runs, from the root of the workspace.
    pub folder: String,
    /// Seconds that it may take.
    pub timeout_seconds: Option<u64>,
}

/// Callers who may run an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ActionExposure {
    /// Models.
    pub to_llm: bool,
    /// People.
    pub callable_by_user: bool,
    /// Clients of the protocol.
    pub callable_by_api: bool,
}

impl ActionExposure {
    /// All callers may.
    pub const ALL: Self = Self { to_llm: true, callable_by_user: true, callable_by_api: true };
}
