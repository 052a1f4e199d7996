//! JSON Schemas of callers: of tools, and of structured output.

use std::borrow::Cow;
use std::sync::Arc;

use dormouse_json::{Schema, Schemas};
use dormouse_ports::Map;
use serde_json::Value;

/// `schema`, which is a JSON Schema of an object. References must be within it.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn of_object(schemas: &Schemas, schema: &Value) -> Result<Arc<Schema>, String> {
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its `type` must be \"object\"".to_owned());
    }
    schemas.of(schema).map_err(|error| format!("it is no valid JSON Schema: {error}"))
}

/// Checks `value` against `schema`.
///
/// # Errors
/// The first violation, and the place of it.
pub(crate) fn check(schema: &Schema, value: &Value) -> Result<(), String> {
    schema.mistakes(value, 1).pop().map_or(Ok(()), Err)
}

/// The schema of the arguments of a tool as OpenAI, Anthropic and Bedrock take it: they refuse choices at its top. What these say
/// of properties is shown there as well; all of it counts when the arguments of a call are checked.
pub(crate) fn without_choices(schema: &Value) -> Cow<'_, Value> {
    const CHOICES: [&str; 3] = ["anyOf", "oneOf", "allOf"];
    const REFUSED: [&str; 5] = ["anyOf", "oneOf", "allOf", "not", "enum"];
    let Some(fields) = schema.as_object().filter(|fields| REFUSED.iter().any(|word| fields.contains_key(*word))) else {
        return Cow::Borrowed(schema);
    };
    let mut sent = fields.clone();
    REFUSED.iter().for_each(|word| drop(sent.shift_remove(*word)));
    let mut properties = sent.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    for choice in CHOICES.iter().filter_map(|word| fields.get(*word)?.as_array()).flatten() {
        let of_choice = followed(schema, choice).get("properties").and_then(Value::as_object);
        for (name, value) in of_choice.into_iter().flatten() {
            properties.entry(name.as_str()).or_insert_with(|| value.clone());
        }
    }
    sent.insert("properties".to_owned(), Value::Object(properties));
    Cow::Owned(Value::Object(sent))
}

/// `choice`, or what of `schema` it refers to.
fn followed<'s>(schema: &'s Value, choice: &'s Value) -> &'s Value {
    let place = choice.get("$ref").and_then(Value::as_str).and_then(|place| place.strip_prefix('#'));
    place.and_then(|place| schema.pointer(place)).unwrap_or(choice)
}

/// The same as OpenAI takes it, which refuses objects without a word of their properties.
pub(crate) fn with_properties(schema: &Value) -> Cow<'_, Value> {
    let mut sent = without_choices(schema);
    if let Some(false) = sent.as_object().map(|fields| fields.contains_key("properties")) {
        sent.to_mut()["properties"] = Value::Object(Map::new());
    }
    sent
}

/// True if constrained decoding of OpenAI takes `schema` as strict: no object has other fields than it names, and
/// all of them are required (§8.1.5). It refuses a request whose schema says more than it can hold to.
pub(crate) fn is_strict(schema: &Value) -> bool {
    schema.get("anyOf").is_none() && is_closed(schema)
}

/// Words that it refuses in strict schemas.
const NOT_STRICT: [&str; 15] = [
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "unevaluatedProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "contains",
    "uniqueItems",
];

fn is_closed(schema: &Value) -> bool {
    match schema {
        Value::Object(keywords) if NOT_STRICT.iter().any(|word| keywords.contains_key(*word)) => false,
        Value::Object(keywords) => {
            let is_object = keywords.get("type").is_some_and(|kind| kind == "object" || contains(kind, "object"))
                || keywords.contains_key("properties");
            (!is_object || is_strict_object(schema)) && keywords.values().all(is_closed)
        }
        Value::Array(items) => items.iter().all(is_closed),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn contains(list: &Value, name: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|item| item == name))
}

fn is_strict_object(schema: &Value) -> bool {
    let required = schema.get("required").unwrap_or(&Value::Null);
    let mut named = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(|named| named.keys());
    schema.get("additionalProperties") == Some(&Value::Bool(false)) && named.all(|name| contains(required, name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_of_an_object_and_valid() {
        for (schema, reason) in [
            (json!({ "type": "array" }), "must be \"object\""),
            (json!({}), "must be \"object\""),
            (json!({ "type": "object", "properties": 3 }), "no valid JSON Schema"),
            (json!({ "type": "object", "$ref": "https://example.com/other" }), "no valid JSON Schema"),
        ] {
            let refused = of_object(&Schemas::default(), &schema).expect_err("refused");
            assert!(refused.contains(reason), "{schema}: {refused}");
        }
    }

    #[test]
    fn a_violation_names_its_place() {
        let schema = json!({ "type": "object", "properties": { "a": { "items": { "type": "integer" } } } });
        let schema = of_object(&Schemas::default(), &schema).expect("a schema");
        assert_eq!(check(&schema, &json!({ "a": [1] })), Ok(()));
        let broken = check(&schema, &json!({ "a": [1, "b"] })).expect_err("broken");
        assert!(broken.contains("/a/1"), "{broken}");
    }

    #[test]
    fn a_strict_schema_leaves_nothing_open_at_any_depth() {
        let closed = |inner: Value| json!({ "type": "object", "properties": { "a": inner }, "required": ["a"], "additionalProperties": false });
        assert!(is_strict(&closed(json!({ "type": "string" }))));
        assert!(is_strict(&closed(closed(json!({ "type": ["integer", "null"] })))));
        assert!(!is_strict(&closed(json!({ "type": "object", "properties": { "b": {} } }))));
        assert!(!is_strict(&json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": false })));
        assert!(!is_strict(&json!({ "type": "object" })));
        for open in ["oneOf", "allOf", "not", "patternProperties", "uniqueItems"] {
            assert!(!is_strict(&closed(json!({ open: [] }))), "{open} is refused at any depth");
        }
        assert!(is_strict(&closed(json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] }))));
        let mut choice = closed(json!({ "type": "string" }));
        choice["anyOf"] = json!([]);
        assert!(!is_strict(&choice), "a choice at the top is refused");
    }
}
