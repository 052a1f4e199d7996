use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Map;

/// A function that the model may ask the caller to run (§4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Unique in a request.
    pub name: String,
    /// Description of what it does, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments, of type `object`.
    pub parameters: Value,
}

/// A model's request to run a tool (§3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// As the provider gave it; the message with the result bears it.
    pub id: String,
    /// Name of the tool. Of a response that ended in an error it may be unknown, and even empty.
    pub name: String,
    /// Arguments by name. `None` where the provider's text is no JSON object, which only a response that ended in an
    /// error has: the text is in its `raw`.
    pub arguments: Option<Map>,
    /// Token of the provider that came with it; given back unchanged, and only to that provider (§3.1.7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

impl ToolCall {
    /// A call without a signature.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Map) -> Self {
        Self { id: id.into(), name: name.into(), arguments: Some(arguments), signature: None }
    }
}

/// Constraint on the calls of tools (§5). In JSON a word, or `{"type": "tool", "name": …}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Spelled", into = "Spelled")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// At least one call.
    Required,
    /// No call.
    None,
    /// A call of this tool, and of no other.
    Tool(String),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Spelled {
    Mode(ChoiceMode),
    One(OneTool),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChoiceMode {
    Auto,
    Required,
    None,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum OneTool {
    Tool { name: String },
}

impl From<Spelled> for ToolChoice {
    fn from(spelled: Spelled) -> Self {
        match spelled {
            Spelled::Mode(ChoiceMode::Auto) => Self::Auto,
            Spelled::Mode(ChoiceMode::Required) => Self::Required,
            Spelled::Mode(ChoiceMode::None) => Self::None,
            Spelled::One(OneTool::Tool { name }) => Self::Tool(name),
        }
    }
}

impl From<ToolChoice> for Spelled {
    fn from(choice: ToolChoice) -> Self {
        match choice {
            ToolChoice::Auto => Self::Mode(ChoiceMode::Auto),
            ToolChoice::Required => Self::Mode(ChoiceMode::Required),
            ToolChoice::None => Self::Mode(ChoiceMode::None),
            ToolChoice::Tool(name) => Self::One(OneTool::Tool { name }),
        }
    }
}

/// The longest name of a tool that all providers take, in bytes.
const LONGEST_NAME: usize = 64;

/// The name under which a model calls the tool `name`: providers take up to 64 letters and digits of ASCII, `_` and `-`.
pub fn wire_name(name: &str) -> String {
    let sound = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().take(LONGEST_NAME).map(sound).collect()
}

/// True if providers take `name` as it is.
pub fn is_wire_name(name: &str) -> bool {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_sound)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_is_a_word_or_names_a_tool() {
        for (choice, form) in [
            (ToolChoice::Auto, json!("auto")),
            (ToolChoice::Required, json!("required")),
            (ToolChoice::None, json!("none")),
            (ToolChoice::Tool("add".to_owned()), json!({ "type": "tool", "name": "add" })),
        ] {
            assert_eq!(serde_json::to_value(&choice).expect("JSON"), form);
            assert_eq!(serde_json::from_value::<ToolChoice>(form).expect("a choice"), choice);
        }
        assert!(serde_json::from_value::<ToolChoice>(json!("any")).is_err());
        assert!(serde_json::from_value::<ToolChoice>(json!({ "type": "function", "name": "add" })).is_err());
    }
}
