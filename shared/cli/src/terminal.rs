//! Text of strangers on a terminal: a name, a message or a reason may hold characters that move the cursor, change
//! colours and titles, end the line, or turn the direction of writing, and so make a screen show what was never sent.

use std::env::var_os;
use std::ffi::OsStr;
use std::fmt::Write;
use std::io::IsTerminal;

use dormouse_ports::Map;
use serde_json::Value;

/// True if `out` is a terminal that shows colours and bold letters.
pub(crate) fn has_styles(out: &impl IsTerminal) -> bool {
    out.is_terminal() && are_shown(var_os("NO_COLOR").as_deref(), var_os("TERM").as_deref())
}

/// True if a terminal shows styles where these variables are `NO_COLOR` and `TERM`.
fn are_shown(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

/// The JSON object that is typed as `text`.
///
/// # Errors
/// What is wrong with it; also a name that stands twice in an object, of which a person may have read the other one.
pub(crate) fn object_of(text: &str) -> Result<Map, String> {
    let read = dormouse_json::read_distinct(text.as_bytes(), dormouse_json::ENTRY);
    match read.map_err(|error| error.to_string())? {
        Value::Object(fields) => Ok(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err("it begins with `{` and ends with `}`".to_owned())
        }
    }
}

/// `text` in one line, with every character that a terminal would obey and not show written as an escape.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => plain.push_str("\\n"),
            '\t' => plain.push_str("\\t"),
            '\r' => plain.push_str("\\r"),
            c if is_obeyed(c) => {
                // Writing to a string does not fail.
                let _ = write!(plain, "\\u{{{:x}}}", u32::from(c));
            }
            c => plain.push(c),
        }
    }
    plain
}

/// `value` as JSON with the same characters escaped in the manner of JSON: it means the same to every reader.
pub(crate) fn json(value: &Value, pretty: bool) -> String {
    let text = if pretty { format!("{value:#}") } else { value.to_string() };
    let mut json = String::with_capacity(text.len());
    for c in text.chars() {
        // What JSON escapes is escaped already: a line feed that is left is between its fields.
        if c != '\n' && is_obeyed(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(json, "\\u{unit:04x}");
            }
        } else {
            json.push(c);
        }
    }
    json
}

/// The tool of a `call` that somebody is asked about, with its server where that has another name.
pub(crate) fn tool_of(call: &Value) -> String {
    let tool = call["tool"].as_str().unwrap_or_default();
    match call["source"].as_str().filter(|source| *source != tool) {
        Some(source) => format!("{} of {}", plain(tool), plain(source)),
        None => plain(tool),
    }
}

/// `word` as a shell takes it for one word and nothing else.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:@/+=".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Controls; what turns the direction of writing; what is not seen at all: fillers, and the tags and selectors in which text can
/// be hidden. Those that make up pictures are shown.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STRANGE: &str = "a\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\r\nb\u{202e}c\u{2066}\u{7f}\u{200b}\u{e0041}\u{2028}";

    #[test]
    fn a_terminal_that_shows_no_styles_is_sent_none() {
        let xterm = Some(OsStr::new("xterm-256color"));
        assert!(are_shown(None, xterm) && are_shown(None, None) && are_shown(Some(OsStr::new("")), xterm));
        assert!(!are_shown(Some(OsStr::new("1")), xterm) && !are_shown(None, Some(OsStr::new("dumb"))));
    }

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        let shown = plain(STRANGE);
        assert_eq!(shown, r"a\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\r\nb\u{202e}c\u{2066}\u{7f}\u{200b}\u{e0041}\u{2028}");
        assert_eq!(plain("Grüße, 東京, \u{1f44d}\u{1f3fd}"), "Grüße, 東京, \u{1f44d}\u{1f3fd}");
        let hidden = ["\u{3164}", "\u{ffa0}", "\u{115f}", "\u{34f}", "\u{e0100}", "\u{e01ef}"];
        assert!(hidden.iter().all(|one| plain(one).starts_with(r"\u{")), "nobody sees them, and they are sent");
        for shown in ["\u{2764}\u{fe0f}", "\u{1f469}\u{200d}\u{1f680}", "\u{939}\u{93f}\u{928}"] {
            assert_eq!(plain(shown), shown);
        }
    }

    #[test]
    fn a_word_stays_one() {
        assert_eq!(quoted("task_01J-x.y"), "task_01J-x.y");
        assert_eq!(quoted("a; b 'x"), r"'a; b '\''x'");
        assert_eq!((quoted("").as_str(), quoted("--data").as_str()), ("''", "'--data'"));
    }

    #[test]
    fn json_says_the_same_with_escapes() {
        let value = json!({ STRANGE: [STRANGE, 1] });
        for pretty in [false, true] {
            let shown = json(&value, pretty);
            assert!(!shown.chars().any(|c| c != '\n' && is_obeyed(c)), "{shown}");
            assert_eq!(serde_json::from_str::<Value>(&shown).expect("JSON"), value);
        }
    }

    #[test]
    fn an_object_has_no_name_twice() {
        assert_eq!(object_of(r#"{"a": {"b": 1}}"#).map(Value::Object), Ok(json!({ "a": { "b": 1 } })));
        for wrong in [r#"{"a": 1, "a": 2}"#, r#"{"a": {"b": 1, "b": 1}}"#, "[]", "{...}", "1", ""] {
            assert!(object_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_tool_is_named_with_its_server_where_that_has_another_name() {
        assert_eq!(tool_of(&json!({ "tool": "pay", "source": "aa" })), "pay of aa");
        assert_eq!(tool_of(&json!({ "tool": "pay", "source": "pay" })), "pay");
        assert_eq!(tool_of(&json!({ "tool": "pay" })), "pay");
    }
}
