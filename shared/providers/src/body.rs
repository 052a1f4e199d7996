//! The body of a request: what the mapping produces, and what the caller adds (§6, managed-field collision).

use std::collections::BTreeSet;

use dormouse_ports::Map;
use dormouse_ports::model::{
    CompletionRequest, Message, ModelError, ModelErrorCategory, RuntimeConfig, Tool, ToolChoice,
};
use serde_json::{Value, json};

use crate::canonical::same;

/// Stands for the text of a user that is nothing but blanks, where a provider refuses those.
pub(crate) const NOTHING_SAID: &str = ".";

/// An object of a request into which the caller's extras go.
#[derive(Debug, Default)]
pub(crate) struct RequestBody {
    produced: Map,
    lists: Vec<&'static str>,
}

impl RequestBody {
    /// Sets a field that only the mapping may set. `None`: the mapping does not produce it, and the caller may.
    pub(crate) fn set(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.produced.insert(name.to_owned(), value.into());
        }
    }

    /// Sets a list of texts to which the caller may add.
    pub(crate) fn set_list(&mut self, name: &'static str, items: Option<&Vec<String>>) {
        if let Some(items) = items {
            self.lists.push(name);
            self.produced.insert(name.to_owned(), items.iter().map(|item| Value::String(item.clone())).collect());
        }
    }

    /// Sets the sampling fields that this wire calls by `names`.
    pub(crate) fn set_sampling(&mut self, config: &RuntimeConfig, names: &Sampling) {
        self.set(names.temperature, config.temperature);
        self.set(names.top_p, config.top_p);
        self.set(names.max_tokens, config.max_tokens);
    }

    /// Adds `extras`. Those that name a field of the mapping are merged into its list, or must say the same.
    pub(crate) fn with_extras(mut self, extras: &Map, scalar_is_list: bool) -> Result<Map, ModelError> {
        for (name, value) in extras {
            match self.produced.get_mut(name) {
                None => {
                    self.produced.insert(name.clone(), value.clone());
                }
                Some(Value::Array(items)) if self.lists.contains(&name.as_str()) => {
                    merge(items, value, scalar_is_list);
                }
                Some(managed) if same(managed, value) => {}
                Some(_) => return Err(conflict(name)),
            }
        }
        Ok(self.produced)
    }
}

/// What is wished of calls; nothing where there are no tools, beside which providers refuse the word.
pub(crate) fn tool_choice(request: &CompletionRequest) -> Option<&ToolChoice> {
    request.tool_choice.as_ref().filter(|_| !request.tools.is_empty())
}

/// The tools that `messages` call, of which nothing is known but their names. Providers that refuse calls in a conversation
/// without tools are told of these where there are no others.
pub(crate) fn past_tools(messages: &[Message]) -> Vec<Tool> {
    let calls = messages.iter().flat_map(|message| match message {
        Message::Assistant(message) => message.tool_calls.as_slice(),
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => &[],
    });
    let names: BTreeSet<&str> = calls.map(|call| call.name.as_str()).collect();
    let past = |name: &str| Tool {
        name: name.to_owned(),
        description: "It is not there any more; do not call it.".to_owned(),
        parameters: json!({ "type": "object" }),
    };
    names.into_iter().map(past).collect()
}

/// Names of the sampling fields that every wire has.
pub(crate) struct Sampling {
    pub(crate) temperature: &'static str,
    pub(crate) top_p: &'static str,
    pub(crate) max_tokens: &'static str,
}

/// Adds the texts of `more` that are new. What is no list of texts counts as nothing.
fn merge(items: &mut Vec<Value>, more: &Value, scalar_is_list: bool) {
    let more = match more.as_array() {
        None if more.is_string() && scalar_is_list => std::slice::from_ref(more),
        Some(more) if more.iter().all(Value::is_string) => more,
        Some(_) | None => return,
    };
    let mut merged = Vec::with_capacity(items.len() + more.len());
    for item in items.drain(..).chain(more.iter().cloned()) {
        if !merged.contains(&item) {
            merged.push(item);
        }
    }
    *items = merged;
}

pub(crate) fn conflict(name: &str) -> ModelError {
    ModelError::new(
        ModelErrorCategory::InvalidRequest,
        format!("the extra `{name}` contradicts what the call sets itself; set one of them, or both to the same value"),
    )
}

/// Removes the extra `stream`, if it says what the call says: the wire has no word for an answer in one piece.
pub(crate) fn without_stream(extras: &Map, stream: bool) -> Result<Map, ModelError> {
    match extras.get("stream") {
        None => Ok(extras.clone()),
        Some(value) if same(value, &Value::Bool(stream)) => {
            Ok(extras.iter().filter(|(name, _)| *name != "stream").map(|(n, v)| (n.clone(), v.clone())).collect())
        }
        Some(_) => Err(conflict("stream")),
    }
}

/// The type of an image whose address is its data (RFC 2397), and that in Base64: not every provider takes data for an address.
pub(crate) fn data_in(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let kind = head.strip_suffix(";base64")?.split(';').next()?;
    (kind.starts_with("image/") && !data.is_empty()).then_some((kind, data))
}

/// The text of all system messages, for wires on which these are no messages.
pub(crate) fn system_text(messages: &[Message]) -> Option<String> {
    let texts: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            Message::System { content } => Some(content.as_str()),
            Message::User { .. } | Message::Assistant(_) | Message::Tool { .. } => None,
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extras(value: Value) -> Map {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn lists_merge_scalars_agree_or_are_refused_and_others_pass() {
        let body = || {
            let mut body = RequestBody::default();
            body.set("temperature", Some(0.5));
            body.set("seed", None::<i64>);
            body.set_list("stop", Some(&vec!["A".to_owned(), "A".to_owned()]));
            body
        };
        let merged = body().with_extras(&extras(json!({ "stop": ["B", "A"], "temperature": 0.5, "seed": 1 })), true);
        assert_eq!(
            Value::Object(merged.expect("a body")),
            json!({ "temperature": 0.5, "stop": ["A", "B"], "seed": 1 })
        );
        for (stop, scalar_is_list, becomes) in [
            (json!("B"), true, json!(["A", "B"])),
            (json!("B"), false, json!(["A", "A"])),
            (json!(["B", 1]), true, json!(["A", "A"])),
            (json!(5), true, json!(["A", "A"])),
        ] {
            let merged = body().with_extras(&extras(json!({ "stop": stop })), scalar_is_list).expect("a body");
            assert_eq!(merged["stop"], becomes, "{stop}");
        }
        let refused = body().with_extras(&extras(json!({ "temperature": 0.6 })), true).expect_err("refused");
        assert_eq!(refused.category, ModelErrorCategory::InvalidRequest);
        assert!(refused.message.contains("`temperature`"), "{refused}");
    }
}
