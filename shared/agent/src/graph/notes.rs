//! What sources of tools note for later calls of a session.

use dormouse_ports::Map;
use serde_json::Value;

/// Bytes of JSON that one source may note.
const LARGEST: usize = 64 * 1024;

/// Lays `patch` over what `source` has noted. What becomes too large is not noted: a tool then knows less, and asks again.
pub(crate) fn note(notes: &mut Map, source: &str, patch: Map) {
    let mut noted = notes.get(source).cloned().unwrap_or_default();
    merge(&mut noted, Value::Object(patch));
    match dormouse_json::length(&noted) {
        Ok(size) if size <= LARGEST => {
            notes.insert(source.to_owned(), noted);
        }
        Ok(_) | Err(_) => {
            tracing::warn!(
                source,
                "a source of tools noted more than {LARGEST} bytes; the notes of the session stay as they were"
            );
        }
    }
}

/// RFC 7396, and what is changed moves behind what is not: sources drop the oldest first.
fn merge(value: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *value = patch;
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(fields) = value else { return };
    for (name, change) in patch {
        let mut field = fields.shift_remove(&name).unwrap_or_default();
        if change.is_null() {
            continue;
        }
        merge(&mut field, change);
        fields.insert(name, field);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn a_patch_changes_what_it_names() {
        let mut notes = Map::new();
        note(&mut notes, "native", map(json!({ "files": { "a": "1", "b": "1" }, "todos": [1] })));
        note(&mut notes, "native", map(json!({ "files": { "a": "2", "b": null }, "todos": [] })));
        note(&mut notes, "other", map(json!({ "x": 1 })));
        assert_eq!(
            Value::Object(notes.clone()),
            json!({ "native": { "files": { "a": "2" }, "todos": [] }, "other": { "x": 1 } })
        );
        let before = notes.clone();
        note(&mut notes, "native", map(json!({ "files": { "c": "x".repeat(LARGEST) } })));
        assert_eq!(notes, before, "what is too large is not noted");
    }
}
