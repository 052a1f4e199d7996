use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::Map;
use crate::id::ArtifactId;

/// Visibility of a part or an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PartVisibility {
    /// Visible to all readers of the message.
    #[default]
    Public,
    /// The agent and its harness. Never enters an event.
    Internal,
    /// Only proofs about it: hashes and descriptors in receipts. Never enters an event.
    ReceiptOnly,
}

/// Status of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ToolResultStatus {
    /// The output is the result.
    Ok,
    /// The output describes the error.
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
        /// Visibility.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// Structured content.
    Json {
        /// Any JSON.
        value: Value,
        /// Visibility.
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
        /// Visibility.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// Result of a tool.
    ToolResult {
        /// The call that it answers.
        tool_call_id: String,
        /// Any JSON.
        output: Value,
        /// Status of the call.
        status: ToolResultStatus,
        /// Visibility.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// An artifact.
    ArtifactRef {
        /// The artifact.
        artifact_id: ArtifactId,
        /// Visibility.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// A file somewhere else.
    FileRef {
        /// Location.
        uri: String,
        /// Its media type.
        mime_type: String,
        /// Visibility.
        #[serde(default)]
        visibility: PartVisibility,
    },
    /// An artifact that is a picture.
    ImageRef {
        /// The artifact.
        artifact_id: ArtifactId,
        /// Its media type.
        mime_type: String,
        /// Visibility.
        #[serde(default)]
        visibility: PartVisibility,
    },
}

impl PartVisibility {
    /// Its words.
    pub(crate) const WORDS: [&str; 3] = ["public", "internal", "receipt_only"];
}

impl ToolResultStatus {
    /// Its words.
    pub(crate) const WORDS: [&str; 2] = ["ok", "error"];
}

impl Part {
    /// Its types by their words, with the fields that each has beside `type` and `visibility`.
    pub(crate) const FIELDS: [(&str, &[&str]); 7] = [
        ("text", &["text"]),
        ("json", &["value"]),
        ("tool_call", &["tool_call_id", "name", "input"]),
        ("tool_result", &["tool_call_id", "output", "status"]),
        ("artifact_ref", &["artifact_id"]),
        ("file_ref", &["uri", "mime_type"]),
        ("image_ref", &["artifact_id", "mime_type"]),
    ];
    /// Those of the fields that are texts.
    pub(crate) const TEXTS: [&str; 6] = ["text", "tool_call_id", "name", "artifact_id", "uri", "mime_type"];

    /// Public text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), visibility: PartVisibility::Public }
    }

    /// Public structured content.
    pub fn json(value: Value) -> Self {
        Self::Json { value, visibility: PartVisibility::Public }
    }

    /// Visibility of the part.
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use schemars::schema_for;

    use super::*;

    #[test]
    fn the_fields_of_parts_are_those_of_their_schema() {
        let schema = schema_for!(Part).to_value();
        let mut described = BTreeMap::new();
        let mut words = BTreeSet::new();
        for variant in schema["oneOf"].as_array().expect("variants") {
            let fields = variant["properties"].as_object().expect("fields");
            let own = fields.keys().filter(|name| !["type", "visibility"].contains(&name.as_str()));
            let own: BTreeSet<&str> = own.map(String::as_str).collect();
            described.insert(fields["type"]["const"].as_str().expect("a word"), own);
            words.extend(texts_in(&fields["visibility"]));
        }
        let known: BTreeMap<&str, BTreeSet<&str>> =
            Part::FIELDS.iter().map(|(word, fields)| (*word, fields.iter().copied().collect())).collect();
        assert_eq!(known, described);
        assert!(PartVisibility::WORDS.iter().all(|word| words.contains(*word)), "{words:?}");
        let read = |word: &str| serde_json::from_value::<PartVisibility>(word.into());
        assert!(PartVisibility::WORDS.iter().all(|word| read(word).is_ok()));
        let read = |word: &str| serde_json::from_value::<ToolResultStatus>(word.into());
        assert!(ToolResultStatus::WORDS.iter().all(|word| read(word).is_ok()));
        let is_text = |kind: &Value| kind["type"] == "string" && kind.get("enum").is_none();
        for variant in schema["oneOf"].as_array().expect("variants") {
            for (name, kind) in variant["properties"].as_object().expect("fields") {
                let is_word = ["type", "visibility", "status"].contains(&name.as_str());
                assert!(is_word || Part::TEXTS.contains(&name.as_str()) == is_text(&resolved(kind, &schema)), "{name}");
            }
        }
    }

    /// `schema`, or the one that it refers to in `document`.
    fn resolved(schema: &Value, document: &Value) -> Value {
        let place = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        place.and_then(|place| document.pointer(place)).unwrap_or(schema).clone()
    }

    fn texts_in(value: &Value) -> Vec<String> {
        match value {
            Value::String(text) => vec![text.clone()],
            Value::Array(values) => values.iter().flat_map(texts_in).collect(),
            Value::Object(fields) => fields.values().flat_map(texts_in).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
        }
    }
}
