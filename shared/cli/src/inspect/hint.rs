//! The command that is shown beside what sleeps: it answers.

use dormouse_local::program;
use dormouse_ports::{Map, PausedInvocation};
use serde_json::{Value, json};

use crate::answer::is_task;
use crate::target::StoreTarget;
use crate::terminal::quoted;

/// The command that answers what `paused`, of the store `target`, waits for.
pub(crate) fn command(paused: &PausedInvocation, target: &StoreTarget) -> String {
    let id = paused.invocation_id.as_str();
    let expects = paused.fan_in.as_ref();
    let missing = expects.and_then(|fan_in| fan_in.expected.iter().find(|one| !fan_in.has_answered(&one.part)));
    let metadata = paused.descriptor.metadata.as_ref();
    if target.is_table() && !is_task(id) {
        let options = target.options();
        let payload = quoted(&example(metadata));
        return match missing {
            Some(part) => format!("{} signal {}{options} {payload}", program(), quoted(part.signal_id.as_str())),
            None => format!("{} signal --invocation {}{options} {payload}", program(), quoted(id)),
        };
    }
    let options = if target.is_table() { " --url URL".to_owned() } else { target.options() };
    let options = format!("{options}{}", of_pause(Some(paused.generation)));
    let takes_yes_or_no = metadata.and_then(|metadata| metadata.get("answers")?.get("approved")).is_some();
    let part = missing.map(|one| one.part.as_str());
    if takes_yes_or_no {
        let more = beside_yes_and_no(metadata).map(|more| format!(" [{}]", quoted(&more))).unwrap_or_default();
        return spelled(id, part, None, &format!("{options}{more}"));
    }
    spelled(id, part, Some(&example(metadata)), &options)
}

/// The fields that an answer may set beside those that yes and no stand for.
fn beside_yes_and_no(metadata: Option<&Map>) -> Option<String> {
    let metadata = metadata?;
    let answers = metadata.get("answers")?;
    let is_meant = |name: &str| {
        let is_set = |verdict: &str| answers.get(verdict).is_some_and(|fields| fields.get(name).is_some());
        is_set("approved") || is_set("denied") || answers.get("by").and_then(Value::as_str) == Some(name)
    };
    let properties = metadata.get("accepts")?.get("properties")?.as_object()?;
    // A text or an object may be said as well; a number is what a yes is often about.
    let is_short = |schema: &Value| {
        let kind = schema.get("type").and_then(Value::as_str);
        matches!(kind, Some("integer" | "number" | "boolean")) || schema.get("enum").is_some()
    };
    let more = properties.iter().filter(|(name, schema)| !is_meant(name) && is_short(schema));
    let more: Map = more.map(|(name, schema)| (name.clone(), any_of(schema))).collect();
    (!more.is_empty()).then(|| Value::Object(more).to_string())
}

/// The command that answers `id`, or its `part`: with `said`, or with yes or no where that is enough.
pub(crate) fn spelled(id: &str, part: Option<&str>, said: Option<&str>, options: &str) -> String {
    let part = part.map(|part| format!(" --part {}", quoted(part))).unwrap_or_default();
    let rest = format!("{}{part}{options}", quoted(id));
    match said {
        None => format!("{} approve {rest}, or deny", program()),
        Some(said) => format!("{} answer {rest} {}", program(), quoted(said)),
    }
}

/// The option of a command that answers the pause of that number, and no later one.
pub(crate) fn of_pause(number: Option<u64>) -> String {
    number.map(|number| format!(" --pause {number}")).unwrap_or_default()
}

/// An answer of the shape that the pause accepts by its `metadata`, to be filled in.
pub(crate) fn example(metadata: Option<&Map>) -> String {
    let accepted = metadata.and_then(|metadata| metadata.get("accepts"));
    let Some(properties) = accepted.and_then(|schema| schema.get("properties")?.as_object()) else {
        return "{...}".to_owned();
    };
    let required = accepted.and_then(|schema| schema.get("required")?.as_array());
    let is_needed = |name: &str| required.is_none_or(|required| required.iter().any(|one| one == name));
    let needed = properties.iter().filter(|(name, _)| is_needed(name));
    Value::Object(needed.map(|(name, schema)| (name.clone(), any_of(schema))).collect()).to_string()
}

/// A value that `schema` may take, and that shows its type.
fn any_of(schema: &Value) -> Value {
    let known = schema.get("const").or_else(|| schema.get("enum")?.get(0));
    match (known, schema.get("type").and_then(Value::as_str)) {
        (Some(known), _) => known.clone(),
        (None, Some("boolean")) => true.into(),
        (None, Some("integer" | "number")) => 0.into(),
        (None, Some("array")) => json!([]),
        (None, Some("object")) => json!({}),
        (None, _) => "...".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_has_what_is_required() {
        let schema = json!({ "accepts": { "type": "object", "required": ["vote", "count"], "properties": {
            "vote": { "enum": ["yes", "no"] }, "count": { "type": "integer" }, "note": { "type": "string" } } } });
        assert_eq!(example(schema.as_object()), r#"{"vote":"yes","count":0}"#);
        let nothing = json!({ "accepts": { "type": "object", "properties": {} } });
        assert_eq!(example(nothing.as_object()), "{}");
        assert_eq!(example(None), "{...}");
    }

    #[test]
    fn a_yes_may_say_more_where_the_answer_has_further_fields() {
        let asked = json!({ "answers": { "approved": { "ok": true }, "denied": { "ok": false }, "by": "who" },
            "accepts": { "properties": { "ok": { "type": "boolean" }, "who": { "type": "string" },
            "granted": { "type": "integer" } } } });
        assert_eq!(beside_yes_and_no(asked.as_object()).as_deref(), Some(r#"{"granted":0}"#));
        let plain = json!({ "answers": { "approved": { "ok": true }, "denied": {} },
            "accepts": { "properties": { "ok": {} } } });
        assert_eq!(beside_yes_and_no(plain.as_object()), None);
    }

    #[test]
    fn a_command_is_safe_to_copy() {
        let spelled = |part, said| spelled("a; rm -rf /", part, said, "");
        assert_eq!(spelled(None, None), format!("{} approve 'a; rm -rf /', or deny", program()));
        assert_eq!(
            spelled(Some("o'hara"), Some(r#"{"a":"$(b)"}"#)),
            format!(r#"{} answer 'a; rm -rf /' --part 'o'\''hara' '{{"a":"$(b)"}}'"#, program())
        );
    }
}
