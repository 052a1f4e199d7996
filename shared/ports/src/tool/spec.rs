use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Map;

/// A tool as a source offers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name, unique in its source; the dispatcher puts the prefix of the source before it.
    pub name: String,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Tells the model what it does and when to call it.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments; its type is `object`.
    pub input_schema: Map,
    /// JSON Schema of [`ToolOutput::structured`](crate::tool::ToolOutput::structured), if the tool promises one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Map>,
    /// Annotations: what the source says of its behaviour.
    #[serde(default)]
    pub annotations: ToolAnnotations,
    /// Effect of a call, which says if it may run again when it is not known if it ran.
    #[serde(default)]
    pub effect: Effect,
    /// The most time that one call may take, when the source knows; the dispatcher may give less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

impl ToolSpec {
    /// A tool of that name without a description, with any object as arguments; manual until it is said to be safe.
    pub fn new(name: impl Into<String>) -> Self {
        let input_schema = Map::from_iter([("type".to_owned(), serde_json::Value::from("object"))]);
        Self {
            name: name.into(),
            title: None,
            description: String::new(),
            input_schema,
            output_schema: None,
            annotations: ToolAnnotations::default(),
            effect: Effect::default(),
            timeout: None,
        }
    }
}

/// What a source says of a tool, in the words of the Model Context Protocol. `None` where it says nothing: only what
/// is said counts. Hints of a source that is not trusted are worth no more than the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAnnotations {
    /// It changes nothing (`readOnlyHint`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// A second call with the same arguments changes nothing more (`idempotentHint`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// It may delete or overwrite (`destructiveHint`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// It reaches beyond a closed set of things, for example the web (`openWorldHint`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

impl ToolAnnotations {
    /// The effect that these hints stand for: safe when the tool reads only or is idempotent, otherwise manual.
    pub fn effect(&self) -> Effect {
        match self.read_only == Some(true) || self.idempotent == Some(true) {
            true => Effect::Safe,
            false => Effect::Manual,
        }
    }

    /// True if these hints say that a call may change something, also where it is safe to make it again.
    pub fn may_change(&self) -> bool {
        self.read_only != Some(true) && (self.idempotent == Some(true) || self.destructive == Some(true))
    }
}

/// Whether a call may run again when its first run may have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It may run again.
    Safe,
    /// It must not: when its worker died, a person is asked whether it happened. What is unknown is manual.
    #[default]
    Manual,
}
