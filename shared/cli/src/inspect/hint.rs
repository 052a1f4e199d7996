//! The commands that are shown beside what sleeps: those that answer when they are pasted as they are, and those that are to
//! be filled in.

use dormouse_local::program;
use dormouse_ports::{Map, PausedInvocation, SignalDescriptor};
use serde_json::{Value, json};

use super::form::Template;
use crate::answer::is_task;
use crate::target::StoreTarget;
use crate::terminal::quoted;

/// Field in which an answer says what was decided.
const DECISION: &str = "decision";
/// Field in which an answer names the arguments that were shown: the number of the pause says as much.
const DIGEST: &str = "digest";

/// How something is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerCommands {
    /// Those that answer as they are: the one that goes on first.
    pub(crate) ready: Vec<String>,
    /// One that is to be filled in. As it is, it is refused and changes nothing.
    pub(crate) template: Option<String>,
}

impl AnswerCommands {
    /// `command`, whose payload is `template`.
    fn of(command: String, template: &Template) -> Self {
        match template.is_whole {
            true => Self { ready: vec![command], template: None },
            false => Self { ready: Vec::new(), template: Some(command) },
        }
    }

    /// The first of those that answer as they are, and the others.
    pub(crate) fn first(&self) -> (Option<&String>, &[String]) {
        match self.ready.split_first() {
            Some((first, others)) => (Some(first), others),
            None => (None, &[]),
        }
    }

    /// True if one of them says no, which may have a reason.
    pub(crate) fn may_deny(&self) -> bool {
        let no = format!("{} deny ", program());
        self.ready.iter().any(|command| command.starts_with(&no))
    }

    /// A line for each, behind a word that says what it is.
    pub(crate) fn lines(&self) -> Vec<String> {
        let words = std::iter::once("answer it with:").chain(std::iter::repeat("or:"));
        let ready = words.zip(&self.ready);
        ready
            .chain(self.template.iter().map(|template| ("fill in:", template)))
            .map(|(word, command)| format!("{word:>15} {command}"))
            .collect()
    }
}

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
    /// The commands that answer it, with these `options`.
    pub(crate) fn commands(&self, options: &str) -> AnswerCommands {
        let part = self.part.map(|part| format!(" --part {}", quoted(part))).unwrap_or_default();
        let rest = format!("{}{part}{options}", quoted(self.id));
        let answer = |said: &str| format!("{} answer {rest} {}", program(), quoted(said));
        let decisions = decisions(self.metadata);
        if !decisions.is_empty() {
            let ready = decisions.iter().map(|decision| answer(&json!({ DECISION: decision }).to_string()));
            return AnswerCommands { ready: ready.collect(), template: None };
        }
        if is_of(self.metadata, SignalDescriptor::TOOL_INPUT) {
            let Template { text, is_whole } = self.form();
            let given = Template { text: format!(r#"{{"{DECISION}":"answer","content":{text}}}"#), is_whole };
            let mut commands = AnswerCommands::of(answer(&given.text), &given);
            commands.ready.push(answer(&json!({ DECISION: "decline" }).to_string()));
            return commands;
        }
        if !self.takes_yes_or_no {
            let template = template(self.metadata);
            return AnswerCommands::of(answer(&template.text), &template);
        }
        let plain = ["approve", "deny"].map(|word| format!("{} {word} {rest}", program()));
        let more = beside_yes_and_no(self.metadata);
        let more = more.map(|more| format!("{} approve {rest} {}", program(), quoted(&more.text)));
        AnswerCommands { ready: plain.into(), template: more }
    }

    /// What the tool asks for: the fields of its question, or of that of the part that is asked.
    fn form(&self) -> Template {
        let questions = self.metadata.and_then(|metadata| metadata.get("questions")?.as_object());
        let question = questions.and_then(|all| match self.part {
            Some(part) => all.get(part),
            None => all.values().next(),
        });
        let schema = question.and_then(|question| question.get("schema")?.as_object());
        schema.map_or_else(Template::of_anything, Template::of)
    }
}

/// The commands that answer what `paused`, of the store `target`, waits for.
pub(crate) fn commands(paused: &PausedInvocation, target: &StoreTarget) -> AnswerCommands {
    let id = paused.invocation_id.as_str();
    let expects = paused.fan_in.as_ref();
    let missing = expects.and_then(|fan_in| fan_in.expected.iter().find(|one| !fan_in.has_answered(&one.part)));
    let metadata = paused.descriptor.metadata.as_ref();
    if target.is_table() && !is_task(id) {
        let options = target.options();
        let template = template(metadata);
        let payload = quoted(&template.text);
        let command = match missing {
            Some(part) => format!("{} signal {}{options} {payload}", program(), quoted(part.signal_id.as_str())),
            None => format!("{} signal --invocation {}{options} {payload}", program(), quoted(id)),
        };
        return AnswerCommands::of(command, &template);
    }
    let options = if target.is_table() { " --url URL".to_owned() } else { target.options() };
    let takes_yes_or_no = metadata.and_then(|metadata| metadata.get("answers")?.get("approved")).is_some();
    let part = missing.map(|one| one.part.as_str());
    let asked = AskedQuestion { id, part, metadata, takes_yes_or_no };
    asked.commands(&format!("{options}{}", of_pause(Some(paused.generation))))
}

/// True if the pause with `metadata` is of that `kind`.
fn is_of(metadata: Option<&Map>, kind: &str) -> bool {
    metadata.is_some_and(|metadata| metadata.get("kind").is_some_and(|given| given == kind))
}

/// The words that answer whether a call happened; none of another question.
fn decisions(metadata: Option<&Map>) -> Vec<Value> {
    let is_doubt = is_of(metadata, SignalDescriptor::UNCERTAIN_EFFECT);
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
fn beside_yes_and_no(metadata: Option<&Map>) -> Option<Template> {
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
    let more: Vec<_> = properties.iter().filter(|(name, schema)| !is_meant(name) && is_short(schema)).collect();
    (!more.is_empty()).then(|| Template::with(more))
}

/// The option of a command that answers the pause of that number, and no later one.
pub(crate) fn of_pause(number: Option<u64>) -> String {
    number.map(|number| format!(" --pause {number}")).unwrap_or_default()
}

/// An answer of the shape that the pause accepts by its `metadata`, to be filled in.
fn template(metadata: Option<&Map>) -> Template {
    accepted(metadata).and_then(Value::as_object).map_or_else(Template::of_anything, Template::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready<const N: usize>(commands: [String; N]) -> AnswerCommands {
        AnswerCommands { ready: commands.into(), template: None }
    }

    #[test]
    fn a_yes_may_say_more_where_the_answer_has_further_fields() {
        let asked = json!({ "answers": { "approved": { "ok": true }, "denied": { "ok": false }, "by": "who" },
            "accepts": { "properties": { "ok": { "type": "boolean" }, "who": { "type": "string" },
            "granted": { "type": "integer" } } } });
        let asked = AskedQuestion { id: "a", part: None, metadata: asked.as_object(), takes_yes_or_no: true };
        let program = program();
        let commands = asked.commands("");
        assert_eq!(commands.ready, [format!("{program} approve a"), format!("{program} deny a")]);
        assert!(commands.may_deny() && !AnswerCommands::default().may_deny());
        assert_eq!(
            commands.lines(),
            [
                format!("answer it with: {program} approve a"),
                format!("            or: {program} deny a"),
                format!("       fill in: {program} approve a '{{\"granted\":<whole number>}}'"),
            ]
        );
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
        assert_eq!(spelled(None, None, true), ready([of("approve"), of("deny")]));
        let seen = json!({ "accepts": { "properties": { DIGEST: { "enum": ["aa", "bb"] } } }, "answers": {} });
        assert_eq!(
            spelled(None, Some(&seen), true),
            ready([of("approve"), of("deny")]),
            "the number of the pause says it"
        );
        let asked = json!({ "accepts": { "properties": { "a": { "const": "$(b)" } } } });
        assert_eq!(
            spelled(Some("o'hara"), Some(&asked), false),
            ready([format!(r#"{program} answer 'a; rm -rf /' --part 'o'\''hara' --pause 1 '{{"a":"$(b)"}}'"#)])
        );
    }

    #[test]
    fn whether_a_call_happened_is_not_answered_by_a_yes() {
        let decision = json!({ "properties": { "decision": { "enum": ["happened", "repeat", "skip"] } } });
        let answers = json!({ "approved": { "decision": "happened" }, "denied": { "decision": "repeat" } });
        let said = |word: &str| format!(r#"{} answer task_1 '{{"decision":"{word}"}}'"#, program());
        for doubt in [
            json!({ "kind": SignalDescriptor::UNCERTAIN_EFFECT, "answers": answers, "accepts": decision }),
            json!({ "kind": SignalDescriptor::UNCERTAIN_EFFECT, "answers": answers, "expects": { "accepts": decision } }),
        ] {
            let asked = AskedQuestion { id: "task_1", part: None, metadata: doubt.as_object(), takes_yes_or_no: true };
            assert_eq!(asked.commands(""), ready(["happened", "repeat", "skip"].map(said)));
        }
    }

    #[test]
    fn what_a_tool_asks_is_declined_as_it_is_and_answered_when_it_is_filled_in() {
        let color = json!({ "properties": { "color": { "enum": ["red", "blue"] } }, "required": ["color"] });
        let sure = json!({ "type": "object", "properties": {} });
        let asked = json!({ "kind": SignalDescriptor::TOOL_INPUT, "accepts": { "properties": { "decision": { "enum": ["answer"] } } },
            "questions": { "call-1": { "schema": sure }, "call-2": { "schema": color } } });
        let of = |part| {
            AskedQuestion { id: "task_1", part, metadata: asked.as_object(), takes_yes_or_no: false }.commands("")
        };
        let said = |part: &str, given: &str| format!("{} answer task_1 --part {part} '{given}'", program());
        let filled = r#"{"decision":"answer","content":{"color":<"red" or "blue">}}"#;
        let declined = r#"{"decision":"decline"}"#;
        assert_eq!(
            of(Some("call-2")),
            AnswerCommands { ready: vec![said("call-2", declined)], template: Some(said("call-2", filled)) }
        );
        let nothing = r#"{"decision":"answer","content":{}}"#;
        assert_eq!(of(Some("call-1")), ready([said("call-1", nothing), said("call-1", declined)]));
        let unknown = of(Some("call-3")).template.expect("one to fill in");
        assert!(unknown.ends_with(r#"'{"decision":"answer","content":{...}}'"#), "{unknown}");
    }
}
