//! Yes or no: what the words and fields of an answer mean.

use dormouse_ports::Map;
use dormouse_protocol::ProtocolError;
use dormouse_protocol::resource::{Part, PermissionAnswer, PermissionResponseRequest};
use serde::Deserialize;
use serde_json::Value;

/// Words that mean yes, and those that mean no.
const YES: &[&str] = &["approve", "approved", "allow", "allowed", "confirm", "confirmed", "ok", "y", "yes"];
const NO: &[&str] = &["cancel", "denied", "deny", "n", "no", "reject", "rejected"];

/// Field in which an answer says what was decided, and a word there that is a no beside the others: what was asked for is
/// not done, and the run ends.
pub(super) const DECISION: &str = "decision";
const STOP: &str = "stop";

/// Yes, no, or neither, of an answer with these fields and words, which were `parts`.
///
/// # Errors
/// `invalid_request` where one part of the message says yes and another no, also one that does not count beside others.
pub(super) fn verdict(given: &Map, said: &str, parts: &[Part]) -> Result<Option<bool>, ProtocolError> {
    let response = |fields: &Map| {
        serde_json::from_value::<PermissionResponseRequest>(Value::Object(fields.clone())).unwrap_or_default()
    };
    let values = parts.iter().filter_map(|part| match part {
        Part::Json { value, .. } => Some(value),
        Part::Text { .. }
        | Part::ToolCall { .. }
        | Part::ToolResult { .. }
        | Part::ArtifactRef { .. }
        | Part::FileRef { .. }
        | Part::ImageRef { .. } => None,
    });
    let word = yes_or_no(said);
    agreed("message.parts", values.flat_map(said_in).chain([word]))?;
    Ok(response(given).is_approval().or(word))
}

/// What the fields of `value` mean, each by itself, and `value` if it is a word: also of an object that is no
/// [`PermissionResponseRequest`], because another field of it has a wrong form.
pub(crate) fn said_in(value: &Value) -> Vec<Option<bool>> {
    let one = |value: &Value| {
        let answer = || PermissionAnswer::deserialize(value).ok().map(PermissionAnswer::is_yes);
        value.as_bool().or_else(|| value.as_str().and_then(decided)).or_else(answer)
    };
    let Some(fields) = value.as_object() else { return vec![one(value)] };
    let of = |fields: &Map, name: &str| fields.get(name).and_then(one);
    let inner = fields.get("answer").and_then(Value::as_object);
    let inner = inner.into_iter().flat_map(|inner| ["approved", "outcome", DECISION].map(|name| of(inner, name)));
    ["approved", "outcome", "answer", DECISION].map(|name| of(fields, name)).into_iter().chain(inner).collect()
}

/// What all that was `said` in `param` means: yes, no, or neither.
///
/// # Errors
/// `invalid_request` where one says yes and another no: whoever meant no must not be taken for the other.
pub(crate) fn agreed(param: &str, said: impl IntoIterator<Item = Option<bool>>) -> Result<Option<bool>, ProtocolError> {
    let mut said = said.into_iter().flatten();
    let first = said.next();
    match said.all(|other| Some(other) == first) {
        true => Ok(first),
        false => Err(ProtocolError::invalid(param, "one part of the answer says yes and another no: say one of them")),
    }
}

/// What a decision means, where its word is one for yes or for no.
fn decided(word: &str) -> Option<bool> {
    if word.eq_ignore_ascii_case(STOP) { Some(false) } else { yes_or_no(word) }
}

/// What `said` means, where it is a word for yes or for no.
fn yes_or_no(said: &str) -> Option<bool> {
    let word = plain(said);
    YES.contains(&word.as_str()).then_some(true).or_else(|| NO.contains(&word.as_str()).then_some(false))
}

/// A word as people write it, in small letters.
pub(super) fn plain(said: &str) -> String {
    said.trim().trim_end_matches(['.', '!']).to_lowercase()
}

pub(super) fn words(part: &Part) -> Option<&str> {
    match part {
        Part::Text { text, .. } => Some(text),
        Part::Json { .. }
        | Part::ToolCall { .. }
        | Part::ToolResult { .. }
        | Part::ArtifactRef { .. }
        | Part::FileRef { .. }
        | Part::ImageRef { .. } => None,
    }
}
