//! JSON of servers on its way to the SDK, which reads what the protocol has, and nothing else.

use dormouse_json::{Bounds, Excess, STATE};
use dormouse_ports::Map;
use serde_json::Value;

/// Bounds of a message: a list of tools with their schemas, or what a tool returns.
const MESSAGE: Bounds = STATE;
/// Bytes of an escape of UTF-16.
const ESCAPE: usize = 6;
/// What some write before a text in UTF-8 (RFC 8259, section 8.1).
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// How a field of an answer is written that has no value.
const NOTHING: [&str; 4] = [r#""error":null"#, r#""error": null"#, r#""result":null"#, r#""result": null"#];

/// What some languages write for numbers that JSON has not (Python's `json.dumps`).
const NO_NUMBERS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
/// Fields of results of calls.
const OF_A_CALL: [&str; 5] = ["resultType", "content", "structuredContent", "isError", "_meta"];
/// Fields by which the SDK takes a result for that of another request. Some tools have one of their own.
const OF_OTHERS: [&str; 9] = [
    r#""action""#,
    r#""completion""#,
    r#""contents""#,
    r#""messages""#,
    r#""prompts""#,
    r#""resources""#,
    r#""resourceTemplates""#,
    r#""skills""#,
    r#""tools""#,
];

/// The messages in `json`: several where it is a batch (version 2025-03-26), of which answers come last, for nothing is read behind
/// one. What is no JSON is left as it is.
///
/// - A half of a character, as servers leave one where they cut a text, is U+FFFD.
/// - What is no number (`NaN`) is `null`.
/// - A result beside `"error": null`, or the other way round, is an answer with one of both.
/// - The result of a call has nothing but what such a result has.
///
/// # Errors
/// It is nested too deeply, or has too many values.
pub(super) fn messages(mut json: Vec<u8>) -> Result<Vec<Vec<u8>>, Excess> {
    if json.starts_with(BYTE_ORDER_MARK) {
        json.drain(..BYTE_ORDER_MARK.len());
    }
    let json = with_numbers(without_halves(json));
    dormouse_json::scan(&json, MESSAGE)?;
    let is_batch = json.trim_ascii_start().starts_with(b"[");
    if !is_batch && !may_have_nothing(&json) && !may_be_mistaken(&json) {
        return Ok(vec![json]);
    }
    let mut messages = match serde_json::from_slice(&json) {
        Ok(Value::Array(messages)) => messages,
        Ok(message @ Value::Object(_)) => vec![message],
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | Err(_) => return Ok(vec![json]),
    };
    messages.sort_by_key(|message| message.get("method").is_none());
    let read = |message| as_of_a_call(with_one_outcome(message)).to_string().into_bytes();
    Ok(messages.into_iter().map(read).collect())
}

fn may_have_nothing(json: &[u8]) -> bool {
    std::str::from_utf8(json).is_ok_and(|json| NOTHING.iter().any(|nothing| json.contains(nothing)))
}

fn may_be_mistaken(json: &[u8]) -> bool {
    let has_content = |json: &str| json.contains(r#""content""#) || json.contains(r#""structuredContent""#);
    std::str::from_utf8(json).is_ok_and(|json| has_content(json) && OF_OTHERS.iter().any(|name| json.contains(name)))
}

/// `message` with the result of a call alone, if it has one.
fn as_of_a_call(mut message: Value) -> Value {
    if let Some(result) = message.get_mut("result").and_then(Value::as_object_mut)
        && is_of_a_call(result)
    {
        result.retain(|name, _| OF_A_CALL.contains(&name.as_str()));
    }
    message
}

/// True for what is certainly the result of a call: an empty `content` alone may stand beside a list, too, and so may `isError`.
fn is_of_a_call(result: &Map) -> bool {
    let is_complete = result.get("resultType").is_none_or(|kind| kind == "complete");
    let is_told = |name: &str| result.contains_key(name);
    let has_content = result.get("content").and_then(Value::as_array).is_some_and(|blocks| !blocks.is_empty());
    is_complete && (has_content || is_told("structuredContent") || (is_told("isError") && is_told("content")))
}

/// `message` without the one of `error` and `result` that has no value, where it has both.
fn with_one_outcome(mut message: Value) -> Value {
    if let Some(fields) = message.as_object_mut()
        && fields.contains_key("result")
        && fields.contains_key("error")
        && let Some(nothing) = ["error", "result"].into_iter().find(|name| fields[*name].is_null())
    {
        fields.remove(nothing);
    }
    message
}

/// `json` with `\ufffd` in the place of escapes (`\ud83d`) that stand for half a character.
fn without_halves(mut json: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        at += found;
        at += match (unit(&json[at..]), json.get(at + ESCAPE..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * ESCAPE,
            (Some(0xd800..=0xdfff), _) => {
                json[at..at + ESCAPE].copy_from_slice(br"\ufffd");
                ESCAPE
            }
            (Some(_), _) => ESCAPE,
            (None, _) => 2,
        };
    }
    json
}

/// `json` with `null` in the place of numbers that are none.
fn with_numbers(json: Vec<u8>) -> Vec<u8> {
    let may_have_one = |text: &str| text.contains("NaN") || text.contains("Infinity");
    // What does not begin as JSON is shown as it stands.
    let is_json = json.trim_ascii_start().starts_with(b"{") || json.trim_ascii_start().starts_with(b"[");
    if !is_json || !std::str::from_utf8(&json).is_ok_and(may_have_one) {
        return json;
    }
    let mut mended = Vec::with_capacity(json.len());
    let (mut rest, mut is_in_text) = (json.as_slice(), false);
    while let Some(byte) = rest.first() {
        let found = NO_NUMBERS.into_iter().find(|number| !is_in_text && rest.starts_with(number));
        let length = match (found, byte) {
            (Some(number), _) => number.len(),
            (None, b'\\') if is_in_text => rest.len().min(2),
            (None, _) => 1,
        };
        is_in_text ^= *byte == b'"';
        let (read, behind) = rest.split_at(length);
        mended.extend_from_slice(if found.is_some() { b"null" } else { read });
        rest = behind;
    }
    mended
}

/// The unit of UTF-16 whose escape `text` begins with.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.get(..ESCAPE)?.strip_prefix(br"\u").filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Vec<String> {
        let messages = messages(json.as_bytes().to_vec()).expect("it is small");
        messages.into_iter().map(|message| String::from_utf8(message).expect("text")).collect()
    }

    #[test]
    fn halves_are_replaced_and_nothing_else_is() {
        for (given, mended) in [
            (r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
            (r#"{"a":"\uD83D\n\ude00 \ud83d\ud83d\ude00"}"#, r#"{"a":"\ufffd\n\ufffd \ufffd\ud83d\ude00"}"#),
            (r#"{"a":"\\ud83d \\\ud83d \u00e4 é"}"#, r#"{"a":"\\ud83d \\\ufffd \u00e4 é"}"#),
            (r#"{"a":"\ud83d\u00e4 \ud83d\\"}"#, r#"{"a":"\ufffd\u00e4 \ufffd\\"}"#),
            (r#"{"\ud83d":"\ud83d\\ude00"}"#, r#"{"\ufffd":"\ufffd\\ude00"}"#),
            (r"C:\users \u \ud8", r"C:\users \u \ud8"),
            (r"\ud83d\", r"\ufffd\"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
        ] {
            assert_eq!(read(given), [mended]);
        }
    }

    #[test]
    fn what_is_no_number_is_null() {
        for (given, mended) in [
            (r#"{"a":NaN,"b":[-Infinity, Infinity]}"#, r#"{"a":null,"b":[null, null]}"#),
            (r#"{"a":"NaN \" Infinity","NaN":"\\","b":NaN}"#, r#"{"a":"NaN \" Infinity","NaN":"\\","b":null}"#),
            ("NaN of 3 files read", "NaN of 3 files read"),
        ] {
            assert_eq!(read(given), [mended]);
        }
    }

    #[test]
    fn the_messages_of_a_batch_come_one_by_one_and_answers_last() {
        let (answer, notice) = (r#"{"id":1,"result":{}}"#, r#"{"method":"notifications/message"}"#);
        assert_eq!(read(&format!("\u{feff} [{answer}, {notice}]")), [notice, answer]);
        assert_eq!(read(&format!("\u{feff}{answer}")), [answer]);
        assert!(read("[]").is_empty());
        assert_eq!(read("[INFO] it starts"), ["[INFO] it starts"]);
    }

    #[test]
    fn an_answer_has_a_result_or_an_error() {
        for (given, mended) in [
            (r#"{"id":1,"result":{"error":null},"error":null}"#, r#"{"id":1,"result":{"error":null}}"#),
            (r#"[{"id":1,"result":null,"error":{"code":1}}]"#, r#"{"id":1,"error":{"code":1}}"#),
            (r#"{"id":1,"result":{"error": null}}"#, r#"{"id":1,"result":{"error":null}}"#),
            (r#"{"id":1,"result":{"a":1.50}}"#, r#"{"id":1,"result":{"a":1.50}}"#),
        ] {
            assert_eq!(read(given), [mended]);
        }
        let both = r#"{"id":1,"result":{},"error":{"data": {"error":null}}}"#;
        assert_eq!(read(both), [both.replace(": {", ":{")], "which of both counts is not known");
    }

    #[test]
    fn the_result_of_a_call_is_not_taken_for_another() {
        for (given, mended) in [
            (
                r#"{"id":1,"result":{"tools":[],"content":[],"isError":false}}"#,
                r#"{"id":1,"result":{"content":[],"isError":false}}"#,
            ),
            (
                r#"{"id":1,"result":{"action":"accept","structuredContent":{"tools":[]}}}"#,
                r#"{"id":1,"result":{"structuredContent":{"tools":[]}}}"#,
            ),
            (
                r#"{"id":1,"result":{"resultType":"complete","content":[{}],"messages":[]}}"#,
                r#"{"id":1,"result":{"resultType":"complete","content":[{}]}}"#,
            ),
            (
                r#"{"id":1,"result":{"tools":[{"name":"content"}]}}"#,
                r#"{"id":1,"result":{"tools":[{"name":"content"}]}}"#,
            ),
            (
                r#"{"id":1,"result":{"messages":[{"content":[]}]}}"#,
                r#"{"id":1,"result":{"messages":[{"content":[]}]}}"#,
            ),
            (
                r#"{"id":1,"result":{"resultType":"task","content":[{}],"tools":[]}}"#,
                r#"{"id":1,"result":{"resultType":"task","content":[{}],"tools":[]}}"#,
            ),
            (
                r#"{"id":1,"result":{"tools":[{"name":"a"}],"content":[]}}"#,
                r#"{"id":1,"result":{"tools":[{"name":"a"}],"content":[]}}"#,
            ),
            (
                r#"{"id":1,"result":{"tools":[{"name":"content"}],"isError":false}}"#,
                r#"{"id":1,"result":{"tools":[{"name":"content"}],"isError":false}}"#,
            ),
        ] {
            assert_eq!(read(given), [mended]);
        }
    }

    #[test]
    fn what_is_nested_too_deeply_is_refused() {
        let deep = format!(r#"{{"id":1,"result":{}{}}}"#, "[".repeat(100), "]".repeat(100));
        assert!(messages(deep.into_bytes()).is_err());
    }
}
