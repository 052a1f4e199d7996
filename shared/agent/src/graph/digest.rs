use dormouse_ports::Map;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of `arguments`, in hexadecimal: of their JSON with the fields of every object in the order of their names.
pub(crate) fn of_arguments(arguments: &Map) -> String {
    let mut value = Value::Object(arguments.clone());
    value.sort_all_objects();
    of_value(&value)
}

/// SHA-256 of `bytes`, in hexadecimal.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// SHA-256 of the JSON of `value` as it stands.
pub(crate) fn of_value(value: &impl Serialize) -> String {
    let mut digest = Sha256::new();
    // What was made of values can be written.
    let _ = serde_json::to_writer(&mut digest, value);
    hex::encode(digest.finalize())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_has_the_digest_of_its_text() {
        let value = json!({ "b": ["ü\n", 1.5, null], "a": { "x": "\u{1}" } });
        assert_eq!(of_value(&value), of_bytes(value.to_string().as_bytes()));
    }

    #[test]
    fn the_order_of_fields_does_not_matter_and_everything_else_does() {
        let digest = |value: Value| of_arguments(value.as_object().expect("an object"));
        let one = digest(json!({ "a": { "x": 1, "y": [1, 2] }, "b": 2 }));
        assert_eq!(digest(json!({ "b": 2, "a": { "y": [1, 2], "x": 1 } })), one);
        assert_ne!(digest(json!({ "b": 2, "a": { "y": [2, 1], "x": 1 } })), one);
    }
}
