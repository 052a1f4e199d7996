use std::fmt;

use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Block, ToolCall};

/// An entry of a conversation (§3). In JSON its `role` says which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase", deny_unknown_fields)]
pub enum Message {
    /// Instructions; only the first message may be one.
    System {
        /// Not empty.
        content: String,
    },
    /// From the caller's side.
    User {
        /// Not empty: text, or blocks of text and images.
        content: Content,
    },
    /// From the model.
    Assistant(AssistantMessage),
    /// The result of a call of a tool.
    Tool {
        /// As text; a structure as JSON.
        content: String,
        /// The id of the call, in an earlier message of an assistant.
        tool_call_id: String,
        /// Images of the result: blocks of images alone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Block>,
    },
}

impl Message {
    /// Instructions.
    pub fn system(content: impl Into<String>) -> Self {
        Self::System { content: content.into() }
    }

    /// Text or blocks from the caller's side.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::User { content: content.into() }
    }

    /// Text or blocks from the model, without calls of tools.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::Assistant(AssistantMessage { content: content.into(), ..AssistantMessage::default() })
    }

    /// The result of the call `tool_call_id`.
    pub fn tool(tool_call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self::Tool { content: content.into(), tool_call_id: tool_call_id.into(), images: Vec::new() }
    }

    /// The name of its role in JSON.
    pub fn role(&self) -> &'static str {
        match self {
            Self::System { .. } => "system",
            Self::User { .. } => "user",
            Self::Assistant(_) => "assistant",
            Self::Tool { .. } => "tool",
        }
    }
}

/// A message of the model: text, reasoning, calls of tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssistantMessage {
    /// Text, or blocks of text and reasoning; may be empty where tools are called.
    #[serde(default)]
    pub content: Content,
    /// Calls of tools, in the order of the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_none")]
    pub tool_calls: Vec<ToolCall>,
    /// The wire that its reasoning and signatures belong to, where it has any: other wires leave them out (§3.1.7).
    /// Absent, each wire judges by their form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl AssistantMessage {
    /// True if it has reasoning or a signature, which only their provider understands.
    pub fn is_bound(&self) -> bool {
        let signed = |block: &Block| match block {
            Block::Text { signature, .. } => signature.is_some(),
            Block::Image { .. } => false,
            Block::Thinking { .. } | Block::RedactedThinking { .. } => true,
        };
        self.content.blocks().is_some_and(|blocks| blocks.iter().any(signed))
            || self.tool_calls.iter().any(|call| call.signature.is_some())
    }
}

fn null_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ToolCall>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Content of a message. In JSON a text, a list of blocks, or `null` for an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text alone.
    Text(String),
    /// Blocks in order.
    Blocks(Vec<Block>),
}

impl Content {
    /// True for an empty text and for no blocks.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Blocks(blocks) => blocks.is_empty(),
        }
    }

    /// The blocks, if it is written in blocks.
    pub fn blocks(&self) -> Option<&[Block]> {
        match self {
            Self::Text(_) => None,
            Self::Blocks(blocks) => Some(blocks),
        }
    }

    /// All its text together, without reasoning and images.
    pub fn as_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => blocks.iter().filter_map(text_of).collect(),
        }
    }
}

fn text_of(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text, .. } => Some(text),
        Block::Image { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    }
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<Block>> for Content {
    fn from(blocks: Vec<Block>) -> Self {
        Self::Blocks(blocks)
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) if text.is_empty() => serializer.serialize_none(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Blocks(blocks) => blocks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadContent)
    }
}

/// Reads by form, so that a mistake in a block is reported as what it is.
struct ReadContent;

impl<'de> Visitor<'de> for ReadContent {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of content blocks")
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Content, E> {
        Ok(Content::Text(text))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::default())
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, blocks: A) -> Result<Content, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(blocks)).map(Content::Blocks)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_has_the_form_of_the_specification_and_is_read_back() {
        for form in [
            json!({ "role": "system", "content": "Be brief." }),
            json!({ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "image",
                "source": { "type": "url", "url": "https://example.com/a.png" }, "detail": "high" }] }),
            json!({ "role": "assistant", "content": null,
                "tool_calls": [{ "id": "1", "name": "add", "arguments": { "a": 1 } }] }),
            json!({ "role": "assistant", "content": [{ "type": "thinking", "text": "hm", "signature": "s" },
                { "type": "redacted_thinking", "data": "d" }, { "type": "text", "text": "a" }], "origin": "anthropic" }),
            json!({ "role": "tool", "content": "3", "tool_call_id": "1" }),
            json!({ "role": "tool", "content": "a chart", "tool_call_id": "1", "images": [{ "type": "image",
                "source": { "type": "kept", "id": "a" }, "media_type": "image/png" }] }),
        ] {
            let message: Message = serde_json::from_value(form.clone()).expect("a message");
            assert_eq!(serde_json::to_value(&message).expect("JSON"), form);
        }
    }

    #[test]
    fn what_a_role_does_not_have_is_refused_by_name() {
        for (form, reason) in [
            (json!({ "role": "user", "content": "a", "tool_calls": [] }), "tool_calls"),
            (json!({ "role": "tool", "content": "a" }), "tool_call_id"),
            (json!({ "role": "user", "content": [{ "type": "image" }] }), "source"),
            (json!({ "role": "user", "content": [{ "type": "audio" }] }), "audio"),
            (
                json!({ "role": "user", "content": [{ "type": "image", "detail": "ultra",
                "source": { "type": "url", "url": "a" } }] }),
                "ultra",
            ),
            (json!({ "role": "narrator", "content": "a" }), "narrator"),
        ] {
            let refused = serde_json::from_value::<Message>(form.clone()).expect_err("refused").to_string();
            assert!(refused.contains(reason), "{form}: {refused}");
        }
    }
}
