use serde_json::Value;

/// `schema` with each `oneOf` read as `anyOf`: a message is also an object.
pub fn any_of(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (if name == "oneOf" { "anyOf".to_owned() } else { name }, any_of(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(any_of).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}
