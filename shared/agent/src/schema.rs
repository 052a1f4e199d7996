//! JSON Schemas of tools and actions, which authors, tenants and servers write.

use dormouse_ports::Map;
use jsonschema::Validator;
use serde_json::Value;

/// The validator of `schema`.
///
/// # Errors
/// Why it is no JSON Schema, or one whose references make more of it than can be worked with.
pub(crate) fn validator(schema: &Map) -> Result<Validator, String> {
    let schema = Value::Object(schema.clone());
    dormouse_json::check_references(&schema)?;
    jsonschema::validator_for(&schema).map_err(|error| error.to_string())
}
