//! Several signals instead of one: the parts, how many are enough, and what is a veto.

use dormouse_ports::limits::{ID, PARTS};
use dormouse_ports::{AnswerTest, Expected, FanIn, Map, SignalDescriptor, SignalId, Until};
use serde_json::Value;

/// The state field that receives the answers where `into` names no other.
const INTO: &str = "fan_in";
/// Most bytes that the name of a part may have.
const LONGEST_NAME: usize = 64;

/// The signals under `expects`; `None` when there is no such key.
pub(super) fn read(descriptor: &SignalDescriptor) -> Result<Option<FanIn>, String> {
    let expects = match descriptor.metadata.as_ref().and_then(|metadata| metadata.get("expects")) {
        None => return Ok(None),
        Some(Value::Object(expects)) => expects,
        Some(_) => return Err("`expects` must be a mapping".to_owned()),
    };
    if let Some(unknown) =
        expects.keys().find(|key| !["parts", "until", "counts", "veto", "into"].contains(&key.as_str()))
    {
        return Err(format!("`expects.{unknown}` means nothing here"));
    }
    let expected = parts(expects.get("parts"), &descriptor.signal_id)?;
    let until = until(expects.get("until"), expected.len())?;
    let counts = expects.get("counts").map(|counts| test("counts", counts)).transpose()?;
    let veto = expects.get("veto").map(|veto| test("veto", veto)).transpose()?;
    let into = into(expects.get("into"))?;
    Ok(Some(FanIn { expected, until, counts, veto, into, answers: Vec::new() }))
}

fn parts(parts: Option<&Value>, outer: &SignalId) -> Result<Vec<Expected>, String> {
    let parts = match parts {
        Some(Value::Object(parts)) if (1..=PARTS).contains(&parts.len()) => parts,
        Some(Value::Object(parts)) => {
            let count = parts.len();
            return Err(format!("`expects.parts` names {count} signals, and must name 1 to {PARTS}"));
        }
        Some(_) | None => return Err("`expects.parts` must be a mapping from names to signals".to_owned()),
    };
    let mut expected: Vec<Expected> = Vec::with_capacity(parts.len());
    for (part, signal) in parts {
        let one = Expected { part: part.clone(), signal_id: signal_id(part, signal, outer)? };
        if let Some(other) = expected.iter().find(|other| other.signal_id == one.signal_id) {
            return Err(format!("`expects.parts.{part}` has the signal id of `{}`", other.part));
        }
        expected.push(one);
    }
    Ok(expected)
}

fn signal_id(part: &str, signal: &Value, outer: &SignalId) -> Result<SignalId, String> {
    if !is_visible(part) {
        return Err(format!("the name of a part must have 1 to {LONGEST_NAME} visible ASCII characters, not {part:?}"));
    }
    let id = match signal.as_object().map(|fields| fields.get("signal_id")) {
        Some(Some(Value::String(id))) => id.clone(),
        Some(None) => format!("{outer}/{part}"),
        Some(Some(_)) | None => {
            return Err(format!("`expects.parts.{part}` must be a mapping; its `signal_id` a text"));
        }
    };
    // As that of a wait for one signal, it may be made of what others write.
    if (1..=ID).contains(&id.len()) && SignalId::from(id.as_str()).origin().0.is_none() {
        return Ok(id.into());
    }
    Err(format!(
        "the signal id of `expects.parts.{part}` must have 1 to {ID} bytes, and be none that only an event or a tenant's key brings"
    ))
}

fn is_visible(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn until(until: Option<&Value>, parts: usize) -> Result<Until, String> {
    let wrong = || format!("`expects.until` must be \"all\", \"any\" or {{\"at_least\": 1 to {parts}}}");
    match until {
        None => Ok(Until::All),
        Some(Value::String(word)) if word == "all" => Ok(Until::All),
        Some(Value::String(word)) if word == "any" => Ok(Until::AtLeast(1)),
        Some(Value::Object(counted)) if counted.len() == 1 => {
            let count = counted.get("at_least").and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
            count.filter(|count| (1..=parts).contains(count)).map(Until::AtLeast).ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
    }
}

fn test(key: &str, test: &Value) -> Result<AnswerTest, String> {
    let wrong = || format!("`expects.{key}` must be {{\"field\": name, \"is\": value}}");
    let fields: &Map = test.as_object().filter(|fields| fields.len() == 2).ok_or_else(wrong)?;
    match (fields.get("field"), fields.get("is")) {
        (Some(Value::String(field)), Some(is)) => Ok(AnswerTest { field: field.clone(), is: is.clone() }),
        _ => Err(wrong()),
    }
}

fn into(into: Option<&Value>) -> Result<String, String> {
    match into {
        None => Ok(INTO.to_owned()),
        Some(Value::String(field)) if !field.is_empty() => Ok(field.clone()),
        Some(_) => Err("`expects.into` must name a field of the state".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn expects(expects: Value) -> Result<Option<FanIn>, String> {
        read(&SignalDescriptor::new("order-7").with("expects", expects))
    }

    #[test]
    fn parts_have_ids_of_their_own() {
        let parts = json!({ "ada": { "signal_id": "a", "mail": "ada@example.com" }, "grace": {} });
        let fan_in = expects(json!({ "parts": parts })).unwrap().unwrap();
        let one = |part: &str, id: &str| Expected { part: part.to_owned(), signal_id: id.into() };
        assert_eq!(fan_in.expected, [one("ada", "a"), one("grace", "order-7/grace")]);
        assert_eq!((fan_in.until, fan_in.veto, fan_in.into.as_str()), (Until::All, None, "fan_in"));
        let fan_in =
            expects(json!({ "parts": { "a": {} }, "counts": { "field": "vote", "is": "yes" } })).unwrap().unwrap();
        assert_eq!(fan_in.counts, Some(AnswerTest { field: "vote".to_owned(), is: json!("yes") }));
        let signal = SignalDescriptor::new("approval-Köln 7 / 2027").with("expects", json!({ "parts": { "a": {} } }));
        assert_eq!(read(&signal).unwrap().unwrap().expected, [one("a", "approval-Köln 7 / 2027/a")]);
        assert_eq!(read(&SignalDescriptor::new("s")).unwrap(), None);
    }

    #[test]
    fn any_is_at_least_one() {
        let until = |until: Value| {
            let fan_in = expects(json!({ "parts": { "a": {}, "b": {} }, "until": until, "into": "votes",
                "veto": { "field": "vote", "is": false } }));
            fan_in.map(|fan_in| fan_in.unwrap().until)
        };
        assert_eq!(until(json!("any")), Ok(Until::AtLeast(1)));
        assert_eq!(until(json!({ "at_least": 2 })), Ok(Until::AtLeast(2)));
        assert_eq!(until(json!("all")), Ok(Until::All));
    }

    #[test]
    fn every_mistake_names_its_key() {
        let parts = json!({ "a": {}, "b": {} });
        let many: Map = (0..=PARTS).map(|part| (format!("p{part}"), json!({}))).collect();
        for (given, key) in [
            (json!([]), "`expects`"),
            (json!({}), "`expects.parts`"),
            (json!({ "parts": {} }), "1 to 25"),
            (json!({ "parts": many }), "names 26 signals, and must name 1 to 25"),
            (json!({ "parts": ["a"] }), "`expects.parts`"),
            (json!({ "parts": { "a": "id" } }), "`expects.parts.a`"),
            (json!({ "parts": { "a": { "signal_id": 1 } } }), "`expects.parts.a`"),
            (json!({ "parts": { "a": { "signal_id": "x".repeat(ID + 1) } } }), "`expects.parts.a`"),
            (json!({ "parts": { "a": { "signal_id": "" } } }), "1 to 256 bytes"),
            (json!({ "parts": { "a b": {} } }), "name of a part"),
            (json!({ "parts": { "a": { "signal_id": "s" }, "b": { "signal_id": "s" } } }), "signal id of `a`"),
            (json!({ "parts": parts, "until": "most" }), "`expects.until`"),
            (json!({ "parts": parts, "until": { "at_least": 0 } }), "`expects.until`"),
            (json!({ "parts": parts, "until": { "at_least": 3 } }), "`expects.until`"),
            (json!({ "parts": parts, "veto": "no" }), "`expects.veto`"),
            (json!({ "parts": parts, "veto": { "field": "vote" } }), "`expects.veto`"),
            (json!({ "parts": parts, "counts": { "is": "yes" } }), "`expects.counts`"),
            (json!({ "parts": parts, "into": "" }), "`expects.into`"),
            (json!({ "parts": parts, "unless": 1 }), "`expects.unless`"),
        ] {
            let reason = expects(given.clone()).unwrap_err();
            assert!(reason.contains(key), "{given}: {reason}");
        }
    }
}
