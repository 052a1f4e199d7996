//! JSON Schemas of tools and actions, which authors, tenants and servers write.

use std::sync::Arc;

use dormouse_json::Made;
use dormouse_ports::Map;
use jsonschema::Validator;
use serde_json::Value;

/// The validators of schemas, each made once: the tools of an agent are the same at each of its steps. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Schemas(Made<Validator>);

impl Schemas {
    /// The validator of `schema`.
    ///
    /// # Errors
    /// As [`validator`].
    pub(crate) fn validator(&self, schema: &Map) -> Result<Arc<Validator>, String> {
        self.0.of(schema, || validator(schema))
    }
}

/// The validator of `schema`.
///
/// # Errors
/// Why it is no JSON Schema, or one whose references make more of it than can be worked with.
pub(crate) fn validator(schema: &Map) -> Result<Validator, String> {
    let schema = Value::Object(schema.clone());
    dormouse_json::check_references(&schema)?;
    jsonschema::validator_for(&schema).map_err(|error| error.to_string())
}
