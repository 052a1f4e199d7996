//! What a pause asks about, as a terminal shows it.

use dormouse_ports::Map;
use serde_json::Value;

use super::form::fields_of;
use super::print::bounded;
use crate::terminal::{json, plain, tool_of};

/// Characters of what a tool asks, where several ask.
const LONGEST_MESSAGE: usize = 300;

/// What the `metadata` of a pause asks about, in lines: the calls of tools with their arguments, and what tools ask with the
/// fields of an answer. That of `part` alone where one is named; else each begins with its part where there are several.
pub(crate) fn asked_of(metadata: &Map, part: Option<&str>) -> Vec<String> {
    let (calls, questions) = (all(metadata, "calls", part), all(metadata, "questions", part));
    let several = calls.len() + questions.len() > 1;
    // The words of a question that stands alone are the description of its pause.
    let is_joint = metadata.get("questions").and_then(Value::as_object).is_some_and(|all| all.len() > 1);
    let named = |part: &str| if several { format!("{}: ", plain(part)) } else { String::new() };
    let calls = calls.into_iter().map(|(part, call)| format!("{}{}", named(part), call_of(call)));
    let questions = questions.into_iter().flat_map(|(part, question)| {
        let first = format!("{}{}", named(part), head_of(question, is_joint));
        let fields = question.get("schema").and_then(Value::as_object).map(fields_of).unwrap_or_default();
        std::iter::once(first).chain(fields.into_iter().map(|field| format!("  {field}"))).collect::<Vec<_>>()
    });
    calls.chain(questions).collect()
}

/// What stands under `name` in `metadata`, by its parts.
fn all<'m>(metadata: &'m Map, name: &str, part: Option<&str>) -> Vec<(&'m String, &'m Value)> {
    let all = metadata.get(name).and_then(Value::as_object).into_iter().flatten();
    all.filter(|(of, _)| part.is_none_or(|part| part == *of)).collect()
}

/// A call: the tool, its server where that has another name, and the arguments as far as they are known.
fn call_of(call: &Value) -> String {
    match call.get("arguments") {
        None => tool_of(call),
        Some(arguments) => format!("{} {}", tool_of(call), json(arguments, false)),
    }
}

/// Who asks, and with `says` what.
fn head_of(question: &Value, says: bool) -> String {
    let text = |name: &str| question[name].as_str().map(|text| bounded(&plain(text), LONGEST_MESSAGE));
    let fields = question.get("schema").and_then(|schema| schema.get("properties")?.as_object());
    let message = match text("message") {
        Some(message) if says => format!(": {message}"),
        Some(_) | None if fields.is_some_and(Map::is_empty) => ", and there is nothing to fill in".to_owned(),
        Some(_) | None => " for:".to_owned(),
    };
    let unfit = text("unfit").filter(|_| says).map(|unfit| format!(" (an answer was not taken: {unfit})"));
    format!("{} asks{message}{}", tool_of(question), unfit.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(metadata: &Value, part: Option<&str>) -> Vec<String> {
        asked_of(metadata.as_object().expect("an object"), part)
    }

    #[test]
    fn calls_stand_with_their_arguments_and_their_parts_where_there_are_several() {
        let call = |to: &str| json!({ "tool": "send_mail", "arguments": { "to": to }, "digest": "aa" });
        assert_eq!(asked(&json!({ "calls": { "call-1": call("ann") } }), None), [r#"send_mail {"to":"ann"}"#]);
        let several = json!({ "calls": { "call-1": call("ann"), "call-2": { "tool": "pay", "source": "bank" } } });
        assert_eq!(asked(&several, None), [r#"call-1: send_mail {"to":"ann"}"#, "call-2: pay of bank"]);
        assert_eq!(asked(&several, Some("call-2")), ["pay of bank"]);
    }

    #[test]
    fn what_a_tool_asks_stands_with_who_asks_and_the_fields_of_an_answer() {
        let question = |message: &str| {
            json!({ "tool": "paint", "source": "brush", "message": message,
                "schema": { "properties": { "color": { "enum": ["red", "blue"] } }, "required": ["color"] } })
        };
        let field = "  color: \"red\" or \"blue\", needed";
        let one = json!({ "questions": { "call-1": question("Which color?") } });
        assert_eq!(asked(&one, None), ["paint of brush asks for:", field]);
        let mut second = question("And\nthe door?");
        second["unfit"] = "it is not one of them".into();
        let both = json!({ "questions": { "call-1": question("Which color?"), "call-2": second } });
        let told = "paint of brush asks: And\\nthe door? (an answer was not taken: it is not one of them)";
        assert_eq!(
            asked(&both, None),
            ["call-1: paint of brush asks: Which color?", field, &format!("call-2: {told}"), field]
        );
        assert_eq!(asked(&both, Some("call-2")), [told, field]);
        let plain = json!({ "questions": { "call-1": { "tool": "wipe", "schema": { "properties": {} } } } });
        assert_eq!(asked(&plain, None), ["wipe asks, and there is nothing to fill in"]);
    }
}
