use serde_json::Value;

use crate::{Map, Schema};

/// Mistakes that are told of one answer.
const MOST_TOLD: usize = 5;

/// The form that `schema` is, whose fields with a default may be left out, as whoever asks sets them itself.
pub fn optional_defaults(schema: &Map) -> Map {
    let mut schema = schema.clone();
    let mut optional = Vec::new();
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        for (name, field) in fields {
            let Value::Object(form) = field else { continue };
            if form.contains_key("default") {
                optional.push(name.clone());
            }
            *form = optional_defaults(form);
        }
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !name.as_str().is_some_and(|name| optional.iter().any(|one| one == name)));
        if required.is_empty() {
            schema.remove("required");
        }
    }
    schema
}

/// What is wrong with the `answer` that a person gives to the form that `schema` is, without a word of what they said: it may
/// be a secret. `None` where it fits, and where `schema` is no JSON Schema.
pub fn misfit(schema: &Map, answer: &Map) -> Option<String> {
    let schema = Schema::new(&Value::Object(optional_defaults(schema))).ok()?;
    let mistakes = schema.mistakes_unquoted(&Value::Object(answer.clone()), MOST_TOLD);
    (!mistakes.is_empty()).then(|| mistakes.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(schema: &Value, answer: &Value) -> Option<String> {
        let object = |value: &Value| value.as_object().cloned().expect("an object");
        misfit(&object(schema), &object(answer))
    }

    #[test]
    fn what_does_not_fit_is_told_without_what_was_said() {
        let form = json!({
            "type": "object",
            "properties": {
                "color": { "type": "string", "oneOf": [{ "const": "red" }, { "const": "blue", "title": "Blue" }] },
                "pin": { "type": "string", "maxLength": 4 },
            },
            "required": ["color"],
        });
        assert_eq!(found(&form, &json!({ "color": "blue", "pin": "1234" })), None);
        for (answer, told) in [
            (json!({ "pin": "1234" }), "\"color\" is a required property"),
            (json!({ "color": "green" }), "/color: value is not valid under any"),
            (json!({ "color": "red", "pin": "123456" }), "/pin: value is longer than 4 characters"),
        ] {
            let mistakes = found(&form, &answer).expect("mistakes");
            assert!(mistakes.contains(told), "{mistakes}");
            assert!(!mistakes.contains("green") && !mistakes.contains("123456"), "{mistakes}");
        }
        assert_eq!(found(&json!({ "type": "nothing" }), &json!({ "a": 1 })), None, "it is no schema");
    }

    #[test]
    fn a_field_with_a_default_may_be_left_out_wherever_it_is() {
        let who = json!({
            "type": "object",
            "properties": { "name": { "type": "string", "default": "Ada" }, "age": { "type": "integer" } },
            "required": ["name", "age"],
        });
        assert_eq!(found(&who, &json!({ "age": 36 })), None);
        assert_eq!(found(&who, &json!({ "name": "Ada" })).as_deref(), Some("\"age\" is a required property"));
        let several = json!({ "type": "object", "properties": { "who": who }, "required": ["who"] });
        assert_eq!(found(&several, &json!({ "who": { "age": 36 } })), None);
        assert!(found(&several, &json!({})).is_some());
    }
}
