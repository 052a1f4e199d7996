use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Map;
use crate::model::Block;

/// Stands where a secret stood in what a tool said.
pub const MASKED: &str = "[secret]";

/// Reply to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolReply {
    /// It has ended, well or badly.
    Done(ToolOutput),
    /// It goes on elsewhere and will answer at the callback: the run sleeps meanwhile.
    Pending(Pending),
    /// It needs something from a person first: the run sleeps, and the call is made again with the answer.
    InputRequired(InputRequest),
}

/// A call that goes on elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Name of the work at the other side, for people and logs: a task id, an address to look at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The time after which the outcome is not waited for any more, from the reply on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The time after which to ask, for work that does not call back: the call is then made again with the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_after: Option<Duration>,
    /// What the source wants back when it is asked again ([`ToolCall::pending`](crate::tool::ToolCall)); opaque to all
    /// other code. A source that gives one only looks how the work stands then, and may be asked as often as one likes.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub state: Value,
}

/// A question of a tool to a person (MCP elicitation).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRequest {
    /// The question.
    pub message: String,
    /// JSON Schema of the answer's fields.
    pub schema: Map,
    /// State that the source wants back with the answer; opaque to all other code.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub state: Value,
}

/// Outcome of a call that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// Content that the model is shown, in order.
    #[serde(default)]
    pub content: Vec<ToolContent>,
    /// The outcome as a value, if the tool gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// True if the tool itself says that it failed. The model is shown the content and may mend the call.
    #[serde(default)]
    pub is_error: bool,
    /// What later calls of the same source in this session are to know: a JSON merge patch (RFC 7396) over what was noted
    /// before. Only sources of this process are believed; a session keeps 64 KiB of each.
    #[serde(skip)]
    pub notes: Map,
    /// Images of it that are kept already, as a repetition of a call has them: the text tells of them.
    #[serde(skip)]
    pub images: Vec<Block>,
}

impl ToolOutput {
    /// Success with one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ToolContent::text(text)], ..Self::default() }
    }

    /// Success with a value, which the model is shown as JSON.
    pub fn value(value: Value) -> Self {
        Self { content: vec![ToolContent::text(value.to_string())], structured: Some(value), ..Self::default() }
    }

    /// Failure that the model is shown.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// The same, with each of its texts as `change` gives it. Images stay as they are, and so do notes.
    #[must_use]
    pub fn with_texts(self, change: &dyn Fn(String) -> String) -> Self {
        Self {
            content: self.content.into_iter().map(|content| content.with_texts(change)).collect(),
            structured: self.structured.map(|value| with_texts(value, change)),
            ..self
        }
    }

    /// The same with notes for later calls.
    #[must_use]
    pub fn noting(mut self, notes: Map) -> Self {
        self.notes = notes;
        self
    }
}

/// A block of a tool's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolContent {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Its bytes in Base64.
        data: String,
        /// For example `image/png`.
        media_type: String,
    },
    /// Something that can be fetched elsewhere.
    ResourceLink {
        /// Its address.
        uri: String,
        /// Name for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Media type, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
        /// Description, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
}

impl ToolContent {
    /// A block of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
    fn with_texts(self, change: &dyn Fn(String) -> String) -> Self {
        match self {
            Self::Text { text } => Self::Text { text: change(text) },
            Self::ResourceLink { uri, name, media_type, description } => Self::ResourceLink {
                uri: change(uri),
                name: name.map(change),
                media_type,
                description: description.map(change),
            },
            image @ Self::Image { .. } => image,
        }
    }
}

/// `value` with each text in it as `change` gives it, the names of fields among them.
pub fn with_texts(value: Value, change: &dyn Fn(String) -> String) -> Value {
    match value {
        Value::String(text) => change(text).into(),
        Value::Array(values) => values.into_iter().map(|value| with_texts(value, change)).collect(),
        Value::Object(fields) => {
            let changed = |(name, value)| (change(name), with_texts(value, change));
            Value::Object(fields.into_iter().map(changed).collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}
