//! What tools ask people, as pauses check the answers.

use dormouse_json::optional_defaults;
use dormouse_ports::Map;
use dormouse_ports::tool::InputRequest;
use serde_json::Value;

/// The types of JSON Schema.
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// The schema of the answers to `request`, as far as a pause knows its keywords: it takes every answer that fits, and those of
/// the others that are only wrong by another keyword.
pub(crate) fn checked(request: &InputRequest) -> Map {
    let mut schema = known(&optional_defaults(&request.schema));
    schema.insert("type".to_owned(), "object".into());
    schema
}

/// What of `schema` a pause checks, and as it writes it.
fn known(schema: &Map) -> Map {
    // What stands beside a reference does not count in every version.
    if schema.contains_key("$ref") {
        return Map::new();
    }
    let mut kept: Map = schema.iter().filter_map(|(keyword, value)| keyword_of(schema, keyword, value)).collect();
    let properties = kept.get("properties").and_then(Value::as_object);
    let is_known =
        |name: &&Value| name.as_str().is_some_and(|name| properties.is_some_and(|all| all.contains_key(name)));
    let required: Vec<Value> = match schema.get("required") {
        Some(Value::Array(names)) => names.iter().filter(is_known).cloned().collect(),
        Some(_) | None => Vec::new(),
    };
    if !required.is_empty() {
        kept.insert("required".to_owned(), required.into());
    }
    kept
}

/// The `keyword` of `schema` as a pause checks it.
fn keyword_of(schema: &Map, keyword: &str, value: &Value) -> Option<(String, Value)> {
    let field = |field: &Value| Value::Object(field.as_object().map(known).unwrap_or_default());
    let (keyword, value) = match (keyword, value) {
        ("type", value) if is_type(value) => (keyword, value.clone()),
        ("enum", Value::Array(values)) if values.iter().all(is_exact) => (keyword, value.clone()),
        ("const", value) if is_exact(value) => (keyword, value.clone()),
        ("minLength" | "maxLength" | "minItems" | "maxItems", count) if count.is_u64() => (keyword, value.clone()),
        ("minimum" | "maximum", Value::Number(_)) => (keyword, value.clone()),
        ("additionalProperties", Value::Bool(_)) if !schema.contains_key("patternProperties") => {
            (keyword, value.clone())
        }
        ("items", Value::Object(items)) if !schema.contains_key("prefixItems") => {
            (keyword, Value::Object(known(items)))
        }
        ("properties", Value::Object(fields)) => {
            let fields: Map = fields.iter().map(|(name, schema)| (name.clone(), field(schema))).collect();
            (keyword, Value::Object(fields))
        }
        // Choices with a title each.
        ("oneOf" | "anyOf", Value::Array(choices)) if !schema.contains_key("enum") => {
            ("enum", Value::Array(values(choices).filter(|values| values.iter().all(is_exact))?))
        }
        _ => return None,
    };
    Some((keyword.to_owned(), value))
}

/// The values of `choices`, where each is one value.
fn values(choices: &[Value]) -> Option<Vec<Value>> {
    choices.iter().map(|choice| choice.get("const").cloned()).collect()
}

/// True if a pause knows what is equal to `value`: a number can be written in several ways.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(_) => false,
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(fields) => fields.values().all(is_exact),
    }
}

fn is_type(value: &Value) -> bool {
    let is_one = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match value.as_array() {
        Some(several) => !several.is_empty() && several.iter().all(is_one),
        None => is_one(value),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_json::misfit;
    use dormouse_ports::{AnswerRule, SignalDescriptor};
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> Map {
        value.as_object().cloned().expect("an object")
    }

    /// Whether a pause takes `answer` to the form `schema`.
    fn takes(schema: &Value, answer: &Value) -> bool {
        let request = InputRequest { message: String::new(), schema: object(schema), state: Value::Null };
        let accepts = json!({ "type": "object", "properties": { "content": checked(&request) } });
        let rule = AnswerRule::of(&SignalDescriptor::new("s").with("accepts", accepts)).expect("a rule");
        rule.admit(object(&json!({ "content": answer }))).is_ok()
    }

    #[test]
    fn a_pause_refuses_what_is_wrong_by_the_keywords_that_it_knows() {
        for (field, fits, breaks) in [
            (json!({ "type": "string", "enum": ["red", "blue"] }), json!("red"), json!("green")),
            (json!({ "oneOf": [{ "const": "r", "title": "Red" }, { "const": "b" }] }), json!("b"), json!("g")),
            (json!({ "type": "array", "items": { "anyOf": [{ "const": "r" }] } }), json!(["r"]), json!(["g"])),
            (json!({ "type": "integer", "minimum": 1, "maximum": 9 }), json!(9), json!(10)),
            (json!({ "type": ["string", "null"], "maxLength": 2 }), json!(null), json!("abc")),
            (json!({ "type": "boolean", "title": "Sure?" }), json!(true), json!("yes")),
        ] {
            let form = json!({ "type": "object", "properties": { "a": field }, "required": ["a"] });
            assert!(takes(&form, &json!({ "a": fits })), "{form}");
            assert!(!takes(&form, &json!({ "a": breaks })) && !takes(&form, &json!({})), "{form}");
        }
        let closed = json!({ "properties": { "a": true }, "additionalProperties": false });
        assert!(takes(&closed, &json!({ "a": 1 })) && !takes(&closed, &json!({ "b": 1 })));
    }

    #[test]
    fn what_a_pause_does_not_know_is_left_to_the_check_behind_it() {
        for (form, answer) in [
            (json!({ "properties": { "a": { "pattern": "^x" } } }), json!({ "a": "x1" })),
            (json!({ "properties": { "a": { "format": "email", "not": { "const": 1 } } } }), json!({ "a": "b@c.de" })),
            (json!({ "required": ["a"] }), json!({ "a": 1 })),
            (json!({ "patternProperties": { "^x": {} }, "additionalProperties": false }), json!({ "x1": 1 })),
            (
                json!({ "properties": { "a": { "$ref": "#/$defs/b", "type": "string" } }, "$defs": { "b": {} } }),
                json!({ "a": "x" }),
            ),
            (json!({ "properties": { "a": { "minLength": 1.0 } } }), json!({ "a": "x" })),
            (json!({ "properties": { "a": { "enum": ["x", 1] } } }), json!({ "a": 1.0 })),
            (json!({ "properties": { "a": { "const": [1] } } }), json!({ "a": [1.0] })),
            (json!({ "properties": { "a": { "oneOf": [{ "const": 1 }, { "const": 2 }] } } }), json!({ "a": 1.0 })),
            (json!({ "properties": { "a": { "default": 1 } }, "required": ["a"] }), json!({})),
            (json!({}), json!({ "a": [1] })),
        ] {
            assert_eq!(misfit(&object(&form), &object(&answer)), None, "{form}");
            assert!(takes(&form, &answer), "{form}");
        }
    }
}
