use std::sync::Arc;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde::Serialize;
use serde_json::Value;

use crate::{Made, check_references};

/// Steps back that a `pattern` may take on one text: those that look ahead or repeat what they found can take more than any
/// reader waits for.
const MOST_STEPS_BACK: usize = 10_000;
/// The most bytes of a compiled `pattern`.
const MOST_PATTERN: usize = 1024 * 1024;
/// Characters that are shown of a value that does not fit.
const MOST_SHOWN: usize = 200;

/// A JSON Schema that authors, tenants, servers of tools or callers wrote, and that values are checked against. References lead
/// nowhere outside of it; one `pattern` and one text are little work.
#[derive(Debug)]
pub struct Schema(Validator);

impl Schema {
    /// The schema that `schema` is.
    ///
    /// # Errors
    /// Why it is no JSON Schema, or one whose references make more of it than can be worked with.
    pub fn new(schema: &Value) -> Result<Self, String> {
        check_references(schema)?;
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(MOST_STEPS_BACK)
            .size_limit(MOST_PATTERN)
            .dfa_size_limit(MOST_PATTERN);
        let validator = jsonschema::options().with_pattern_options(patterns).build(schema);
        validator.map(Self).map_err(|error| error.to_string())
    }

    /// The first mistakes of `value`, at most `most` of them, each with its place; none if it fits. Of what does not fit the
    /// beginning is shown: whoever gave it has it.
    pub fn mistakes(&self, value: &Value, most: usize) -> Vec<String> {
        self.0.iter_errors(value).take(most).map(|error| placed(&error, quoted(&error))).collect()
    }

    /// The same without what `value` holds beside the names of its fields.
    pub fn mistakes_unquoted(&self, value: &Value, most: usize) -> Vec<String> {
        self.0.iter_errors(value).take(most).map(|error| placed(&error, error.masked().to_string())).collect()
    }
}

/// What is said of `error`, with the beginning of the value that it is about.
fn quoted(error: &ValidationError<'_>) -> String {
    let value = error.instance().to_string();
    match value.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => error.masked_with(format!("{}…", &value[..end])).to_string(),
        None => error.to_string(),
    }
}

/// What is said of `error`, with its place.
fn placed(error: &ValidationError<'_>, words: String) -> String {
    match error.instance_path().to_string() {
        path if path.is_empty() => words,
        path => format!("{path}: {words}"),
    }
}

/// Schemas, each made once: the tools of an agent are the same at each of its steps. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Schemas(Made<Schema>);

impl Schemas {
    /// The schema that `schema` is.
    ///
    /// # Errors
    /// As [`Schema::new`].
    pub fn of(&self, schema: &(impl Serialize + Clone + Into<Value>)) -> Result<Arc<Schema>, String> {
        self.0.of(schema, || Schema::new(&schema.clone().into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(schema: &Value) -> Schema {
        Schema::new(schema).expect("a schema")
    }

    #[test]
    fn mistakes_have_their_places_and_are_no_more_than_wanted() {
        let schema = schema(&json!({ "properties": { "a": { "items": { "type": "integer" } } }, "required": ["b"] }));
        assert_eq!(schema.mistakes(&json!({ "a": [1], "b": 2 }), 5), Vec::<String>::new());
        let found = schema.mistakes(&json!({ "a": [1, "x", "y"], "b": 2 }), 5);
        assert_eq!(found, ["/a/1: \"x\" is not of type \"integer\"", "/a/2: \"y\" is not of type \"integer\""]);
        assert_eq!(schema.mistakes(&json!({ "a": ["x", "y"] }), 1).len(), 1);
    }

    #[test]
    fn of_a_long_value_the_beginning_is_shown() {
        let schema = schema(&json!({ "properties": { "a": { "maxLength": 3 }, "b": { "type": "string" } } }));
        let found = schema.mistakes(&json!({ "a": "ü".repeat(5_000), "b": { "c": "x".repeat(5_000) } }), 5);
        let told = [
            format!("/a: \"{}… is longer than 3 characters", "ü".repeat(199)),
            format!("/b: {{\"c\":\"{}… is not of type \"string\"", "x".repeat(194)),
        ];
        assert_eq!(found, told);
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for wrong in [
            json!({ "properties": 3 }),
            json!({ "$ref": "https://example.com/other" }),
            json!({ "pattern": "(" }),
            json!({ "pattern": "(?:a{1000}){1000}" }),
        ] {
            assert!(Schema::new(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn patterns_that_never_end_are_given_up() {
        let endless = r"^(a+)+\1\1\1b$";
        let text = "a".repeat(60);
        let one = schema(&json!({ "type": "string", "pattern": endless }));
        let many =
            schema(&json!({ "patternProperties": { endless: { "type": "integer" } }, "additionalProperties": false }));
        for (schema, value) in [(one, json!(text)), (many, json!({ text: 1 }))] {
            let found = schema.mistakes(&value, 1);
            assert!(!found.is_empty(), "{value} has not been seen to fit");
        }
        // What people write looks ahead, too.
        let usual = schema(&json!({ "pattern": "^(?=.*[a-z])(?!admin)[a-z0-9_]{3,40}$" }));
        assert_eq!(usual.mistakes(&json!("grace_hopper_1906"), 1), Vec::<String>::new());
        assert_eq!(usual.mistakes(&json!("administrator"), 1).len(), 1);
    }
}
