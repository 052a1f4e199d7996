//! What stays in the item of a document whose body is apart from it: enough to tell whose it is.

use dormouse_ports::Map;
use serde_json::Value;

/// The most bytes of a text that stays: more than any id has.
const TEXT: usize = 512;
/// The most bytes of JSON that stay together: they are written with the item, which is paid for by the kilobyte.
const WHOLE: usize = 4 * 1024;

/// `body` with the short texts of itself and of the objects in it, and nothing else. `None` where even these are too much.
pub(super) fn brief(body: &Map) -> Option<Map> {
    let within = |(name, value): (&String, &Value)| {
        let brief = match value {
            Value::Object(object) => Some(Value::Object(object.iter().filter_map(short).collect())),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        };
        brief.map(|brief| (name.clone(), brief)).or_else(|| short((name, value)))
    };
    let brief: Map = body.iter().filter_map(within).collect();
    let bytes = dormouse_json::length(&brief).ok()?;
    (bytes <= WHOLE).then_some(brief)
}

fn short((name, value): (&String, &Value)) -> Option<(String, Value)> {
    let is_short = value.as_str().is_some_and(|text| text.len() <= TEXT);
    is_short.then(|| (name.clone(), value.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(body: Value) -> Option<Value> {
        let Value::Object(body) = body else { panic!("an object") };
        brief(&body).map(Value::Object)
    }

    #[test]
    fn what_tells_whose_it_is_stays_and_what_it_is_about_does_not() {
        let long = "x".repeat(TEXT + 1);
        let body = json!({
            "tenant": "acme", "number": 1, "data": long, "parts": ["a"], "empty": {},
            "resource": { "session_id": "s", "text": long, "parts": [{ "text": "a" }], "deep": { "a": 1 } },
        });
        let expected = json!({ "tenant": "acme", "empty": {}, "resource": { "session_id": "s" } });
        assert_eq!(of(body), Some(expected));
    }

    #[test]
    fn too_much_stays_nowhere() {
        let many: Map = (0..1_000).map(|number| (number.to_string(), "value".into())).collect();
        assert_eq!(of(Value::Object(many)), None);
    }
}
