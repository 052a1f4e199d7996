use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::Map;
use crate::id::ArtifactId;

/// Who may see a part or an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PartVisibility {
    /// Everybody who may see the message.
    #[default]
    Public,
    /// The agent and its harness. Never enters an event.
    Internal,
    /// Only proofs about it: hashes and descriptors in receipts. Never enters an event.
    ReceiptOnly,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ToolResultStatus {
    /// The output is the result.
    Ok,
    /// The output tells what went wrong.
    Error,
}

/// One block of a message. On input a missing `visibility` means `public`; on output it is always written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(transform = visibility_is_required)]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Who may see it.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// Structured content.
    Json {
        /// Any JSON.
        value: Value,
        /// Who may see it.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// A model asks for a tool.
    ToolCall {
        /// Pairs the call with its result.
        tool_call_id: String,
        /// The tool.
        name: String,
        /// Its arguments.
        input: Map,
        /// Who may see it.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// What the tool answered.
    ToolResult {
        /// The call that it answers.
        tool_call_id: String,
        /// Any JSON.
        output: Value,
        /// How the call ended.
        status: ToolResultStatus,
        /// Who may see it.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// An artifact.
    ArtifactRef {
        /// The artifact.
        artifact_id: ArtifactId,
        /// Who may see it.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// A file somewhere else.
    FileRef {
        /// Where it is.
        uri: String,
        /// Its media type.
        mime_type: String,
        /// Who may see it.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// An artifact that is a picture.
    ImageRef {
        /// The artifact.
        artifact_id: ArtifactId,
        /// Its media type.
        mime_type: String,
        /// Who may see it.
        #[serde(default)]
        visibility: PartVisibility,
    },
}

impl Part {
    /// Text for everybody.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), visibility: PartVisibility::Public }
    }

    /// Structured content for everybody.
    pub fn json(value: Value) -> Self {
        Self::Json { value, visibility: PartVisibility::Public }
    }

    /// Who may see the part.
    pub fn visibility(&self) -> PartVisibility {
        match self {
            Self::Text { visibility, .. }
            | Self::Json { visibility, .. }
            | Self::ToolCall { visibility, .. }
            | Self::ToolResult { visibility, .. }
            | Self::ArtifactRef { visibility, .. }
            | Self::FileRef { visibility, .. }
            | Self::ImageRef { visibility, .. } => *visibility,
        }
    }

    /// The word in the field `type`.
    pub fn type_word(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::Json { .. } => "json",
            Self::ToolCall { .. } => "tool_call",
            Self::ToolResult { .. } => "tool_result",
            Self::ArtifactRef { .. } => "artifact_ref",
            Self::FileRef { .. } => "file_ref",
            Self::ImageRef { .. } => "image_ref",
        }
    }
}

/// The contract requires `visibility` of every part; that we read parts without it is our leniency.
fn visibility_is_required(schema: &mut Schema) {
    let variants = schema.get_mut("oneOf").and_then(Value::as_array_mut);
    for variant in variants.into_iter().flatten() {
        if let Some(required) = variant.get_mut("required").and_then(Value::as_array_mut) {
            required.push("visibility".into());
        }
    }
}
