//! The commands that are shown beside what sleeps: each of them answers, and can be pasted as it is.

use dormouse_local::program;
use dormouse_ports::{Map, PausedInvocation};
use serde_json::{Value, json};

use crate::answer::is_task;
use crate::target::StoreTarget;
use crate::terminal::quoted;

/// Kind of the question whether a call happened, whose answers are no plain yes and no.
const DOUBT: &str = "uncertain_effect";
/// Field in which an answer says what was decided.
const DECISION: &str = "decision";
/// Field in which an answer names the arguments that were shown: the number of the pause says as much.
const DIGEST: &str = "digest";

/// What is asked, as far as a command says it.
#[derive(Debug)]
pub(crate) struct AskedQuestion<'q> {
    /// The invocation that asks.
    pub(crate) id: &'q str,
    /// The part that is asked, where several answers are waited for.
    pub(crate) part: Option<&'q str>,
    /// Metadata of its pause, or its request.
    pub(crate) metadata: Option<&'q Map>,
    /// True if a plain yes or no is an answer.
    pub(crate) takes_yes_or_no: bool,
}

impl AskedQuestion<'_> {
    /// The commands that answer it, with these `options`: the one that goes on first.
    pub(crate) fn commands(&self, options: &str) -> Vec<String> {
        let part = self.part.map(|part| format!(" --part {}", quoted(part))).unwrap_or_default();
        let rest = format!("{}{part}{options}", quoted(self.id));
        let answer = |said: &str| format!("{} answer {rest} {}", program(), quoted(said));
        let decisions = decisions(self.metadata);
        if !decisions.is_empty() {
            return decisions.iter().map(|decision| answer(&json!({ DECISION: decision }).to_string())).collect();
        }
        if !self.takes_yes_or_no {
            return vec![answer(&example(self.metadata))];
        }
        let plain = ["approve", "deny"].map(|word| format!("{} {word} {rest}", program()));
        let more = beside_yes_and_no(self.metadata);
        plain.into_iter().chain(more.map(|more| format!("{} approve {rest} {}", program(), quoted(&more)))).collect()
    }
}

/// The commands that answer what `paused`, of the store `target`, waits for.
pub(crate) fn commands(paused: &PausedInvocation, target: &StoreTarget) -> Vec<String> {
    let id = paused.invocation_id.as_str();
    let expects = paused.fan_in.as_ref();
    let missing = expects.and_then(|fan_in| fan_in.expected.iter().find(|one| !fan_in.has_answered(&one.part)));
    let metadata = paused.descriptor.metadata.as_ref();
    if target.is_table() && !is_task(id) {
        let options = target.options();
        let payload = quoted(&example(metadata));
        return vec![match missing {
            Some(part) => format!("{} signal {}{options} {payload}", program(), quoted(part.signal_id.as_str())),
            None => format!("{} signal --invocation {}{options} {payload}", program(), quoted(id)),
        }];
    }
    let options = if target.is_table() { " --url URL".to_owned() } else { target.options() };
    let takes_yes_or_no = metadata.and_then(|metadata| metadata.get("answers")?.get("approved")).is_some();
    let part = missing.map(|one| one.part.as_str());
    let asked = AskedQuestion { id, part, metadata, takes_yes_or_no };
    asked.commands(&format!("{options}{}", of_pause(Some(paused.generation))))
}

/// The words that answer whether a call happened; none of another question.
fn decisions(metadata: Option<&Map>) -> Vec<Value> {
    let is_doubt = metadata.is_some_and(|metadata| metadata.get("kind").is_some_and(|kind| kind == DOUBT));
    let words =
        accepted(metadata).and_then(|accepts| accepts.get("properties")?.get(DECISION)?.get("enum")?.as_array());
    words.filter(|_| is_doubt).cloned().unwrap_or_default()
}

/// The schema of an answer, or of that of each part.
fn accepted(metadata: Option<&Map>) -> Option<&Value> {
    let metadata = metadata?;
    metadata.get("accepts").or_else(|| metadata.get("expects")?.get("accepts"))
}

/// The fields that an answer may set beside those that yes and no stand for.
fn beside_yes_and_no(metadata: Option<&Map>) -> Option<String> {
    let metadata = metadata?;
    let answers = metadata.get("answers")?;
    let is_meant = |name: &str| {
        let is_set = |verdict: &str| answers.get(verdict).is_some_and(|fields| fields.get(name).is_some());
        name == DIGEST
            || is_set("approved")
            || is_set("denied")
            || answers.get("by").and_then(Value::as_str) == Some(name)
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

/// The option of a command that answers the pause of that number, and no later one.
pub(crate) fn of_pause(number: Option<u64>) -> String {
    number.map(|number| format!(" --pause {number}")).unwrap_or_default()
}

/// An answer of the shape that the pause accepts by its `metadata`, to be filled in.
pub(crate) fn example(metadata: Option<&Map>) -> String {
    let accepted = accepted(metadata);
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
    fn each_command_is_safe_to_copy_and_says_one_thing() {
        let spelled = |part, metadata: Option<&Value>, takes_yes_or_no| {
            let metadata = metadata.and_then(Value::as_object);
            AskedQuestion { id: "a; rm -rf /", part, metadata, takes_yes_or_no }.commands(" --pause 1")
        };
        let program = program();
        let of = |word: &str| format!("{program} {word} 'a; rm -rf /' --pause 1");
        assert_eq!(spelled(None, None, true), [of("approve"), of("deny")]);
        let seen = json!({ "accepts": { "properties": { DIGEST: { "enum": ["aa", "bb"] } } }, "answers": {} });
        assert_eq!(spelled(None, Some(&seen), true), [of("approve"), of("deny")], "the number of the pause says it");
        let asked = json!({ "accepts": { "properties": { "a": { "const": "$(b)" } } } });
        assert_eq!(
            spelled(Some("o'hara"), Some(&asked), false),
            [format!(r#"{program} answer 'a; rm -rf /' --part 'o'\''hara' --pause 1 '{{"a":"$(b)"}}'"#)]
        );
    }

    #[test]
    fn whether_a_call_happened_is_not_answered_by_a_yes() {
        let decision = json!({ "properties": { "decision": { "enum": ["happened", "repeat", "skip"] } } });
        let answers = json!({ "approved": { "decision": "happened" }, "denied": { "decision": "repeat" } });
        let said = |word: &str| format!(r#"{} answer task_1 '{{"decision":"{word}"}}'"#, program());
        for doubt in [
            json!({ "kind": DOUBT, "answers": answers, "accepts": decision }),
            json!({ "kind": DOUBT, "answers": answers, "expects": { "accepts": decision } }),
        ] {
            let asked = AskedQuestion { id: "task_1", part: None, metadata: doubt.as_object(), takes_yes_or_no: true };
            assert_eq!(asked.commands(""), ["happened", "repeat", "skip"].map(said));
        }
    }
}
