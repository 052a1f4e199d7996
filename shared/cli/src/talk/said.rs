//! Words that a person types in answer to a question, and what they say.

use dormouse_protocol::Map;
use serde_json::Value;

use crate::terminal::{object_of, plain};

/// Said to what is no answer, before the reason.
const NO_ANSWER: &str = "  that is no answer to it";
/// Quotes that keyboards and word processors put where JSON has straight ones.
const CURLY: [char; 7] = ['“', '”', '„', '‟', '‘', '’', '«'];

/// Reason for which a line is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// It asks what there is to say.
    Asks,
    /// What is wrong with it.
    Wrong(String),
}

impl NoAnswer {
    fn wrong(reason: impl Into<String>) -> Self {
        Self::Wrong(reason.into())
    }

    /// What the person is told. The `forms` of an answer are told with it where they were not, or were asked for.
    pub(super) fn told(&self, forms: &str, are_told: &mut bool) -> String {
        let complaint = match self {
            Self::Asks => None,
            Self::Wrong(reason) => Some(format!("{NO_ANSWER}: {reason}")),
        };
        let were_told = std::mem::replace(are_told, true);
        let with_forms = *self == Self::Asks || !were_told;
        let parts = complaint.into_iter().chain(with_forms.then(|| forms.to_owned()));
        parts.collect::<Vec<_>>().join("\n")
    }
}

/// What a question of `kind` is asked with.
pub(super) fn prompt_of(kind: &str) -> &'static str {
    match kind {
        "approval" => "  [y]es, [n]o or n REASON, [s]top the run, or {\"arguments\": …} > ",
        "uncertain_effect" => "  [h]appened, [r]epeat it, [s]kip it > ",
        "rest" => "  Enter tries again at once, Ctrl-D leaves it asleep, Ctrl-C ends it > ",
        _ => "  a JSON object, or nothing to decline > ",
    }
}

/// The answers that there are to a question of `kind`, in lines.
pub(super) fn forms_of(kind: &str) -> &'static str {
    match kind {
        "approval" => {
            "  y                   the call is made as it is shown\n  \
             n, or n REASON      it is not made, and the model is told why\n  \
             s, or s REASON      it is not made, and the run ends\n  \
             {\"arguments\": {…}}  it is made with these arguments, which are all that it has\n  \
             Ctrl-D              it sleeps, and asks again when this conversation is taken up"
        }
        "uncertain_effect" => {
            "  h, or h REASON  it happened: the run goes on with it as done\n  \
             r               it did not happen: the call is made now\n  \
             s, or s REASON  it is left as it is\n  \
             Ctrl-D          it sleeps, and asks again when this conversation is taken up"
        }
        "rest" => {
            "  (nothing)  the model is asked again at once\n  \
             Ctrl-D     it sleeps, and goes on when this conversation is taken up\n  \
             Ctrl-C     the run ends"
        }
        _ => {
            "  {\"name\": …}  a JSON object with the fields that are asked for\n  \
             (nothing)    no answer is given"
        }
    }
}

/// The answer to a question of `kind` that `line` stands for.
///
/// # Errors
/// The reason for which it is none.
pub(super) fn fields_of(kind: &str, line: &str) -> Result<Map, NoAnswer> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (word, rest) = (word.trim_end_matches(['.', ',', ';', ':', '!']).to_lowercase(), rest.trim());
    let is_asked = matches!(word.as_str(), "?" | "/?" | "/help" | "help") && rest.is_empty();
    match (kind, word.as_str()) {
        (_, _) if is_asked => Err(NoAnswer::Asks),
        ("approval", "y" | "yes") => as_it_is("approve", rest).ok_or_else(|| {
            NoAnswer::wrong(
                "a yes makes the call as it is shown, and what stands behind it would be lost; to change the call write \
                 {\"arguments\": {…}}, to have the model do otherwise `n` and what it is to do",
            )
        }),
        ("approval", "n" | "no") => Ok(decided("deny", rest)),
        ("approval", "s" | "stop") => Ok(decided("stop", rest)),
        ("approval", _) => edited(line),
        ("uncertain_effect", "h" | "happened") => Ok(decided("happened", rest)),
        ("uncertain_effect", "r" | "repeat") => as_it_is("repeat", if rest == "it" { "" } else { rest }).ok_or_else(|| {
            NoAnswer::wrong("the call is repeated as it was, and what stands behind the word would be lost: say `r` alone")
        }),
        ("uncertain_effect", "s" | "skip") => Ok(decided("skip", if rest == "it" { "" } else { rest })),
        ("uncertain_effect", _) => Err(no_word(line)),
        ("rest", _) if line.is_empty() => Ok(Map::new()),
        ("rest", _) => Err(NoAnswer::wrong("its model cannot be told anything now: the line stays empty")),
        // Nothing at all: marks alone are a slip.
        (_, _) if line.is_empty() => Ok(decided("decline", "")),
        (_, _) => {
            let mut fields = decided("answer", "");
            fields.insert("content".to_owned(), Value::Object(typed_object(line)?));
            Ok(fields)
        }
    }
}

/// The JSON object in `line`.
///
/// # Errors
/// The reason for which there is none.
pub(super) fn typed_object(line: &str) -> Result<Map, NoAnswer> {
    let line = line.trim();
    if line.contains(char::REPLACEMENT_CHARACTER) {
        return Err(NoAnswer::wrong("a letter of it came as half of one: type it again"));
    }
    match object_of(line) {
        Ok(fields) => Ok(fields),
        Err(_) if line.starts_with('{') && line.contains(CURLY) => {
            Err(NoAnswer::wrong("its quotes are curly: JSON has straight ones (\")"))
        }
        Err(error) if line.starts_with('{') => Err(NoAnswer::wrong(format!("it is no JSON: {error}"))),
        Err(_) if matches!(line, "?" | "/?" | "/help" | "help") => Err(NoAnswer::Asks),
        Err(_) => Err(NoAnswer::wrong("it is no JSON object, which begins with `{`")),
    }
}

/// A call with other arguments.
fn edited(line: &str) -> Result<Map, NoAnswer> {
    if !line.starts_with(['{', '[', '"']) {
        return Err(no_word(line));
    }
    let said = typed_object(line)?;
    if !said.contains_key("arguments") {
        let names: Vec<&str> = said.keys().map(String::as_str).collect();
        let reason = match names.as_slice() {
            [] => "it has no `arguments`".to_owned(),
            names => format!("it has `{}` and no `arguments`", plain(&names.join("`, `"))),
        };
        return Err(NoAnswer::wrong(format!("{reason}: those of the call stand in {{\"arguments\": {{…}}}}")));
    }
    let mut fields = decided("approve", "");
    fields.extend(said);
    Ok(fields)
}

/// The decision `word` where nothing is said behind it.
fn as_it_is(word: &str, rest: &str) -> Option<Map> {
    let is_nothing = rest.chars().all(|c| ".,;:!".contains(c));
    is_nothing.then(|| decided(word, ""))
}

fn decided(word: &str, reason: &str) -> Map {
    let mut fields = Map::from_iter([("decision".to_owned(), Value::from(word))]);
    if !reason.is_empty() {
        fields.insert("reason".to_owned(), reason.into());
    }
    fields
}

fn no_word(line: &str) -> NoAnswer {
    let word = line.split_whitespace().next().unwrap_or_default();
    match word {
        "" => NoAnswer::wrong("nothing was said"),
        word if word.starts_with('/') => NoAnswer::wrong("commands are taken when it is answered"),
        word => {
            let word: String = word.chars().take(40).collect();
            NoAnswer::wrong(format!("`{}` is none of its words", plain(&word)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reason(kind: &str, line: &str) -> String {
        match fields_of(kind, line).expect_err(line) {
            NoAnswer::Wrong(reason) => reason,
            NoAnswer::Asks => panic!("{line} asks for help"),
        }
    }

    #[test]
    fn words_at_the_terminal_become_answers() {
        let answer = |kind: &str, line: &str| fields_of(kind, line).map(Value::Object).ok();
        for yes in ["y", "yes", "Yes.", "y !", "YES!"] {
            assert_eq!(answer("approval", yes), Some(json!({ "decision": "approve" })), "{yes}");
        }
        for no in ["no not today", "n not today", "no, not today", "n: not today"] {
            assert_eq!(answer("approval", no), Some(json!({ "decision": "deny", "reason": "not today" })), "{no}");
        }
        let edited = answer("approval", r#"{"arguments": {"to": "ada"}}"#);
        assert_eq!(edited, Some(json!({ "decision": "approve", "arguments": { "to": "ada" } })));
        assert_eq!(answer("uncertain_effect", "h"), Some(json!({ "decision": "happened" })));
        assert_eq!(answer("uncertain_effect", "repeat it"), Some(json!({ "decision": "repeat" })));
        assert_eq!(answer("tool_input", r#"{"a": 1}"#), Some(json!({ "decision": "answer", "content": { "a": 1 } })));
        assert_eq!(answer("tool_input", ""), Some(json!({ "decision": "decline" })));
        assert_eq!((answer("rest", ""), answer("rest", "and now?")), (Some(json!({})), None));
        for slip in [".", "!", ", {\"a\": 1}", r#"{"a": 1, "a": 2}"#, "{\"a\": \"caf\u{fffd}\"}"] {
            assert_eq!(answer("tool_input", slip), None, "{slip}");
        }
    }

    #[test]
    fn a_yes_with_words_behind_it_makes_no_call() {
        for line in
            ["y to ann instead", "yes, but to ann", "Yes! to ann", "y n", "y ?", r#"y {"arguments": {}}"#, "y 2"]
        {
            let told = reason("approval", line);
            assert!(told.contains("would be lost") && told.contains("{\"arguments\": {…}}"), "{line}: {told}");
        }
        assert!(reason("uncertain_effect", "r to ann").contains("say `r` alone"));
    }

    #[test]
    fn what_is_no_answer_is_told_with_the_reason() {
        for (line, told) in [
            ("perhaps", "`perhaps` is none of its words"),
            ("Yesterday", "`Yesterday` is none of its words"),
            ("", "nothing was said"),
            ("/quit", "commands are taken when it is answered"),
            (r#"{"to": "ann"}"#, "it has `to` and no `arguments`"),
            (r#"{"argumnets": {"to": "ann"}}"#, "it has `argumnets` and no `arguments`"),
            (r#"{"arguments": {"to": "ann""#, "it is no JSON: EOF"),
            ("{“arguments”: {“to”: “ann”}}", "its quotes are curly"),
            ("[1]", "it is no JSON object"),
        ] {
            let found = reason("approval", line);
            assert!(found.contains(told), "{line}: {found}");
        }
        assert!(reason("tool_input", "blue").contains("it is no JSON object"));
        for help in ["?", "/help", "help"] {
            for kind in ["approval", "uncertain_effect", "tool_input"] {
                assert_eq!(fields_of(kind, help), Err(NoAnswer::Asks), "{kind} {help}");
            }
        }
    }

    #[test]
    fn the_forms_of_an_answer_are_told_once_and_when_they_are_asked_for() {
        let mut are_told = false;
        let wrong = NoAnswer::wrong("it is none");
        assert_eq!(wrong.told("forms", &mut are_told), "  that is no answer to it: it is none\nforms");
        assert_eq!(wrong.told("forms", &mut are_told), "  that is no answer to it: it is none");
        assert_eq!(NoAnswer::Asks.told("forms", &mut are_told), "forms");
        assert_eq!(NoAnswer::Asks.told("forms", &mut false), "forms");
    }
}
