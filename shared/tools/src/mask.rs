//! Takes the secrets that were looked up for a call out of what comes of it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dormouse_ports::tool::{Callback, InputRequest, MASKED, Pending, ToolError, ToolOutput, ToolReply};
use dormouse_ports::{Map, Secret, SecretError, Secrets};
use serde_json::Value;

use crate::text::encode;

/// Characters of the shortest secret that is looked for: a shorter one stands in everything.
const SHORTEST: usize = 4;
/// Characters of the shortest token that is looked for. Whoever grants it has chosen it, and nobody here: `test` stands in much.
#[cfg(feature = "mcp")]
const SHORTEST_TOKEN: usize = 8;
/// The last tokens of a time that are looked for: those before them hold no more.
#[cfg(feature = "mcp")]
const MOST_TOKENS: usize = 8;
/// Keywords of JSON Schema whose values are no prose: names of fields and types, what validators read, and values that are
/// sent back as they are.
const STRUCTURE: &[&str] = &[
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$ref",
    "$schema",
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "dependentRequired",
    "enum",
    "format",
    "pattern",
    "required",
    "type",
];
/// Keywords of JSON Schema under which each name has a schema.
const NAMED: &[&str] = &["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];

/// Secrets that were looked up, and that nobody is to read in what comes of it.
#[derive(Clone, Default)]
pub(crate) struct Mask(Arc<Mutex<Known>>);

/// What a mask takes out.
#[derive(Clone, Default)]
struct Known {
    /// Secrets in each of their forms, the longest first.
    secrets: Vec<String>,
    /// Tokens that hold for some time, the oldest first.
    tokens: VecDeque<String>,
}

impl Known {
    fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.tokens.is_empty()
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask")
    }
}

impl Mask {
    /// What is known now, and the token in the address of `callback`.
    pub(crate) fn and_callback(&self, callback: Option<&Callback>) -> Self {
        let both = Self(Arc::new(Mutex::new(self.known().clone())));
        let query = callback.and_then(|callback| callback.url.split_once('?')).map(|(_, query)| query);
        for (_, value) in query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('=')) {
            both.add(value);
        }
        both
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, value: &str) {
        let value = value.trim();
        if value.chars().count() < SHORTEST {
            return;
        }
        let mut known = self.known();
        let kept = &mut known.secrets;
        // Of several lines it stands in JSON in one, and in an address encoded.
        let written = Value::from(value).to_string();
        for form in [value, written.trim_matches('"'), &encode(value)] {
            if !kept.iter().any(|one| one == form) {
                kept.push(form.to_owned());
            }
        }
        // What is a part of another one is looked for behind it.
        kept.sort_by_key(|one| std::cmp::Reverse(one.len()));
    }

    /// Takes out `token` as well, which was granted for some time and may be replaced.
    #[cfg(feature = "mcp")]
    pub(crate) fn learn(&self, token: &str) {
        let mut known = self.known();
        let tokens = &mut known.tokens;
        if token.chars().count() < SHORTEST_TOKEN || tokens.iter().any(|one| one == token) {
            return;
        }
        if tokens.len() >= MOST_TOKENS {
            tokens.pop_front();
        }
        tokens.push_back(token.to_owned());
    }

    /// `text` without the secrets.
    pub(crate) fn text(&self, text: String) -> String {
        let known = self.known();
        known.tokens.iter().chain(&known.secrets).fold(text, |text, secret| match text.contains(secret) {
            true => text.replace(secret, MASKED),
            false => text,
        })
    }

    /// `output` without the secrets.
    pub(crate) fn output(&self, output: ToolOutput) -> ToolOutput {
        output.with_texts(&|text| self.text(text))
    }

    /// `schema` without the secrets in what it says. Names of fields, the values that it allows, and all that gives it its
    /// structure stay as they are.
    pub(crate) fn schema(&self, schema: Map) -> Map {
        if self.known().is_empty() {
            return schema;
        }
        let said = |(keyword, value): (String, Value)| {
            let is_among = |keywords: &[&str]| keywords.contains(&keyword.as_str());
            let value = match (is_among(STRUCTURE), is_among(NAMED)) {
                (true, _) => value,
                (false, true) => self.named(value),
                (false, false) => self.said(value),
            };
            (keyword, value)
        };
        schema.into_iter().map(said).collect()
    }

    /// Schemas by names, which stay as they are.
    fn named(&self, value: Value) -> Value {
        match value {
            Value::Object(schemas) => schemas.into_iter().map(|(name, schema)| (name, self.said(schema))).collect(),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                self.said(other)
            }
        }
    }

    /// What a schema says at a keyword, or a schema.
    fn said(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(values) => values.into_iter().map(|value| self.said(value)).collect(),
            Value::Object(schema) => Value::Object(self.schema(schema)),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// `asked` without the secrets. What its source wants back stays as it is.
    pub(crate) fn question(&self, asked: InputRequest) -> InputRequest {
        InputRequest { message: self.text(asked.message), schema: self.schema(asked.schema), state: asked.state }
    }

    fn reply(&self, reply: ToolReply) -> ToolReply {
        match reply {
            ToolReply::Done(output) => ToolReply::Done(self.output(output)),
            // What its source wants back is no secret of ours, and has to come back as it was.
            ToolReply::Pending(pending) => ToolReply::Pending(Pending {
                reference: pending.reference.map(|reference| self.text(reference)),
                ..pending
            }),
            ToolReply::InputRequired(asked) => ToolReply::InputRequired(self.question(asked)),
        }
    }

    /// `outcome` of a call without the secrets.
    pub(crate) fn outcome(&self, outcome: Result<ToolReply, ToolError>) -> Result<ToolReply, ToolError> {
        outcome
            .map(|reply| self.reply(reply))
            .map_err(|error| ToolError { message: self.text(error.message.clone()), ..error })
    }
}

/// A store of secrets of which a mask learns what was looked up.
pub(crate) struct Watched {
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) mask: Mask,
}

#[async_trait]
impl Secrets for Watched {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        let secret = self.secrets.resolve(name).await?;
        self.mask.add(secret.expose());
        Ok(secret)
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::tool::ToolContent;

    use super::*;

    fn mask(secrets: &[&str]) -> Mask {
        let mask = Mask::default();
        secrets.iter().for_each(|secret| mask.add(secret));
        mask
    }

    #[test]
    fn a_secret_is_taken_out_wherever_it_stands() {
        let mask = mask(&["hush-hush", "hush", "two\nlines", "x"]);
        assert_eq!(mask.text("say hush-hush, hush and x".to_owned()), "say [secret], [secret] and x");
        assert_eq!(mask.text(r#"{"key":"two\nlines"}"#.to_owned()), r#"{"key":"[secret]"}"#);
        assert_eq!(mask.text("no page at /?key=two%0Alines".to_owned()), "no page at /?key=[secret]");
        let structured = serde_json::json!({ "a": ["hush", 1], "hush": null });
        let output = ToolOutput { structured: Some(structured), ..ToolOutput::text("two\nlines") };
        let ToolReply::Done(output) = mask.reply(ToolReply::Done(output)) else { panic!("it is done") };
        assert_eq!(output.structured, Some(serde_json::json!({ "a": ["[secret]", 1], "[secret]": null })));
        assert_eq!(output.content, [ToolContent::text("[secret]")]);
    }

    #[cfg(feature = "mcp")]
    #[test]
    fn of_tokens_the_last_ones_are_taken_out() {
        let mask = mask(&["hush"]);
        (0..=MOST_TOKENS).for_each(|number| mask.learn(&format!("hush-token-{number}")));
        mask.learn("hush-token-8");
        mask.learn("testing");
        let text = "hush-token-8 testing hush-token-1 hush-token-0".to_owned();
        assert_eq!(mask.text(text), "[secret] testing [secret] [secret]-token-0");
    }

    #[test]
    fn a_question_is_without_secrets_and_keeps_its_structure() {
        let mask = mask(&["hush", "object"]);
        let schema = |said: &str| {
            let named = serde_json::json!({ "title": said, "const": "hush" });
            let hush = serde_json::json!({ "type": "object", "required": ["hush"], "properties": { "hush": {
                "type": ["object", "null"], "title": said, "description": said, "default": { "hush": ["a hush"] },
                "enum": ["a hush", 1], "pattern": "^hush$", "anyOf": [named], "examples": [said],
            }, "enum": named, "properties": named }});
            hush.as_object().cloned().expect("an object")
        };
        let state = serde_json::json!("hush");
        let asked = InputRequest { message: "hush?".to_owned(), schema: schema("a hush"), state: state.clone() };
        let shown = InputRequest { message: "[secret]?".to_owned(), schema: schema("a [secret]"), state };
        assert_eq!(mask.reply(ToolReply::InputRequired(asked)), ToolReply::InputRequired(shown));
    }

    #[test]
    fn of_an_address_to_call_back_only_its_token_is_a_secret() {
        let url = "https://d.example/callback/7?token=abcdef.123&part=1".to_owned();
        let mask = Mask::default().and_callback(Some(&Callback { url: url.clone(), signal_id: "7".into() }));
        assert_eq!(mask.text(url), "https://d.example/callback/7?token=[secret]&part=1");
        let known = self::mask(&["hush"]);
        let callback = Callback { url: "https://d.example/8?token=abcdef.124".to_owned(), signal_id: "8".into() };
        assert_eq!(known.and_callback(Some(&callback)).text("hush abcdef.124".to_owned()), "[secret] [secret]");
        assert_eq!(known.text("hush abcdef.124".to_owned()), "[secret] abcdef.124", "of this call alone");
    }
}
