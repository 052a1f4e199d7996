//! The part of JSON Schema in which pauses declare their answers.

use serde_json::{Map, Number, Value};

/// Keywords that describe a value to people and restrict nothing.
const ANNOTATIONS: [&str; 9] =
    ["$schema", "title", "description", "default", "examples", "deprecated", "format", "enumNames", "$comment"];

/// A JSON Schema with these keywords: `type`, `enum`, `const`, `properties`, `required`, `additionalProperties` (a
/// boolean), `items`, `minItems`, `maxItems`, `minLength`, `maxLength` (in characters), `minimum` and `maximum`.
/// Annotations such as `title`, `description`, `default` and `format` are read over. Every other keyword is refused
/// when the schema is read: a restriction that is not checked would be none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueSchema {
    types: Vec<Type>,
    allowed: Option<Vec<Value>>,
    properties: Vec<(String, ValueSchema)>,
    required: Vec<String>,
    is_closed: bool,
    items: Option<Box<ValueSchema>>,
    length: LeastAndMost<u64>,
    count: LeastAndMost<u64>,
    range: LeastAndMost<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

/// A least and a most, each where it was given.
#[derive(Clone, Debug, Default, PartialEq)]
struct LeastAndMost<T> {
    least: Option<T>,
    most: Option<T>,
}

impl ValueSchema {
    /// Reads the schema of an object without further fields; `path` names it in errors.
    ///
    /// # Errors
    /// A sentence that names the keyword and its expected form.
    pub(super) fn of_answer(path: &str, schema: &Value) -> Result<Self, String> {
        let read = Self::read(path, schema)?;
        if read.types.iter().any(|one| *one != Type::Object) {
            return Err(format!("`{path}.type` must be \"object\""));
        }
        if schema.get("properties").is_none() {
            return Err(format!("`{path}.properties` must name the fields of an answer"));
        }
        Ok(read)
    }

    /// The names under `properties`, in order.
    pub fn property_names(&self) -> impl Iterator<Item = &str> {
        self.properties.iter().map(|(name, _)| name.as_str())
    }

    fn read(path: &str, schema: &Value) -> Result<Self, String> {
        let keywords = schema.as_object().ok_or_else(|| format!("`{path}` must be a JSON Schema: a mapping"))?;
        let mut read = Self::default();
        for (keyword, value) in keywords {
            let path = format!("{path}.{keyword}");
            match keyword.as_str() {
                "type" => read.types = types(&path, value)?,
                "enum" => read.allowed = Some(list(&path, value)?.clone()),
                "const" => read.allowed = Some(vec![value.clone()]),
                "properties" => read.properties = properties(&path, value)?,
                "required" => read.required = names(&path, value)?,
                "additionalProperties" => {
                    let is_open = value.as_bool().ok_or_else(|| format!("`{path}` must be true or false"))?;
                    read.is_closed = !is_open;
                }
                "items" => read.items = Some(Box::new(Self::read(&path, value)?)),
                "minLength" => read.length.least = Some(count(&path, value)?),
                "maxLength" => read.length.most = Some(count(&path, value)?),
                "minItems" => read.count.least = Some(count(&path, value)?),
                "maxItems" => read.count.most = Some(count(&path, value)?),
                "minimum" => read.range.least = Some(number(&path, value)?),
                "maximum" => read.range.most = Some(number(&path, value)?),
                annotation if ANNOTATIONS.contains(&annotation) => {}
                _ => return Err(format!("`{path}` is a keyword that is not supported here")),
            }
        }
        match read.required.iter().find(|name| !read.property_names().any(|known| known == *name)) {
            Some(name) => Err(format!("`{path}.required` names `{name}`, which `{path}.properties` does not have")),
            None => Ok(read),
        }
    }

    /// Checks the required and the named fields of `object`.
    pub(super) fn check_fields(&self, object: &Map<String, Value>) -> Result<(), String> {
        self.fields_at("", object)
    }

    fn fields_at(&self, path: &str, object: &Map<String, Value>) -> Result<(), String> {
        if let Some(missing) = self.required.iter().find(|name| !object.contains_key(*name)) {
            return Err(format!("field `{path}{missing}` is missing"));
        }
        let is_known = |name: &String| self.property_names().any(|known| known == name);
        if let Some(unknown) = object.keys().find(|name| self.is_closed && !is_known(name)) {
            return Err(format!("field `{path}{unknown}` is not accepted here"));
        }
        for (name, schema) in &self.properties {
            if let Some(value) = object.get(name) {
                schema.check_at(&format!("{path}{name}"), value)?;
            }
        }
        Ok(())
    }

    fn check_at(&self, path: &str, value: &Value) -> Result<(), String> {
        let fits = (self.types.is_empty() || self.types.iter().any(|one| one.admits(value)))
            && self.allowed.as_ref().is_none_or(|allowed| allowed.contains(value));
        if !fits {
            return Err(format!("field `{path}` must be {}, not {}", self.value_in_words(), shown(value)));
        }
        match value {
            Value::String(text) => self.length.check(path, text.chars().count() as u64, "characters"),
            Value::Number(number) => self.range.check(path, number.as_f64().unwrap_or(f64::NAN), ""),
            Value::Array(items) => {
                self.count.check(path, items.len() as u64, "items")?;
                let Some(schema) = &self.items else { return Ok(()) };
                items
                    .iter()
                    .enumerate()
                    .try_for_each(|(index, item)| schema.check_at(&format!("{path}[{index}]"), item))
            }
            Value::Object(fields) => self.fields_at(&format!("{path}."), fields),
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }

    /// The fields of an answer, in a sentence: "accepted are `decision` (\"yes\" or \"no\"; required), `note` (a
    /// string)".
    pub(super) fn in_words(&self) -> String {
        let fields: Vec<_> = self
            .properties
            .iter()
            .map(|(name, schema)| {
                let required = if self.required.contains(name) { "; required" } else { "" };
                format!("`{name}` ({}{required})", schema.value_in_words())
            })
            .collect();
        match fields.as_slice() {
            [] => "an empty answer is accepted".to_owned(),
            fields => format!("accepted are {}", fields.join(", ")),
        }
    }

    fn value_in_words(&self) -> String {
        if let Some(allowed) = &self.allowed {
            return either(allowed.iter().map(Value::to_string).collect());
        }
        match self.types.as_slice() {
            [] => "anything".to_owned(),
            types => either(types.iter().map(|one| one.in_words().to_owned()).collect()),
        }
    }
}

impl Type {
    const ALL: [(&'static str, Self); 7] = [
        ("null", Self::Null),
        ("boolean", Self::Boolean),
        ("integer", Self::Integer),
        ("number", Self::Number),
        ("string", Self::String),
        ("array", Self::Array),
        ("object", Self::Object),
    ];

    fn admits(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Integer => value.as_number().is_some_and(is_whole),
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "a list",
            Self::Object => "a mapping",
        }
    }
}

/// True if `number` has no fraction: for JSON Schema `1.0` is an integer.
fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

impl<T: PartialOrd + Copy + std::fmt::Display> LeastAndMost<T> {
    fn check(&self, path: &str, actual: T, unit: &str) -> Result<(), String> {
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        match (self.least, self.most) {
            (Some(least), _) if actual < least => {
                Err(format!("field `{path}` must be at least {least}{unit}, not {actual}"))
            }
            (_, Some(most)) if actual > most => {
                Err(format!("field `{path}` must be at most {most}{unit}, not {actual}"))
            }
            (_, _) => Ok(()),
        }
    }
}

fn types(path: &str, value: &Value) -> Result<Vec<Type>, String> {
    let one = |value: &Value| {
        let known = Type::ALL.iter().find(|(name, _)| value.as_str() == Some(name));
        known.map(|(_, one)| *one).ok_or_else(|| format!("`{path}` must name a type of JSON, not {value}"))
    };
    match value.as_array() {
        Some(several) if !several.is_empty() => several.iter().map(one).collect(),
        Some(_) | None => one(value).map(|one| vec![one]),
    }
}

fn properties(path: &str, value: &Value) -> Result<Vec<(String, ValueSchema)>, String> {
    let properties = value.as_object().ok_or_else(|| format!("`{path}` must be a mapping from names to schemas"))?;
    let read = |(name, schema): (&String, &Value)| {
        ValueSchema::read(&format!("{path}.{name}"), schema).map(|schema| (name.clone(), schema))
    };
    properties.iter().map(read).collect()
}

fn names(path: &str, value: &Value) -> Result<Vec<String>, String> {
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let names = list(path, value)?.iter().map(name).collect::<Option<_>>();
    names.ok_or_else(|| format!("`{path}` must be a list of names"))
}

fn list<'v>(path: &str, value: &'v Value) -> Result<&'v Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("`{path}` must be a list"))
}

fn count(path: &str, value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("`{path}` must be a number from 0"))
}

fn number(path: &str, value: &Value) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| format!("`{path}` must be a number"))
}

fn either(mut words: Vec<String>) -> String {
    match words.pop() {
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} or {last}", words.join(", ")),
        None => "nothing".to_owned(),
    }
}

/// `value` as an error shows it: a long one is cut off.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= MOST { text } else { text.chars().take(MOST).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(schema: Value, value: Value) -> Result<(), String> {
        ValueSchema::read("schema", &schema).expect("a schema").check_at("v", &value)
    }

    #[test]
    fn every_keyword_restricts() {
        for (schema, fits, breaks) in [
            (json!({ "type": "integer" }), json!(1.0), json!(1.5)),
            (json!({ "type": ["string", "null"] }), json!(null), json!(1)),
            (json!({ "const": "a" }), json!("a"), json!("b")),
            (json!({ "enum": [1, "a"] }), json!("a"), json!("b")),
            (json!({ "minLength": 2 }), json!("äö"), json!("ä")),
            (json!({ "maxLength": 2 }), json!("äö"), json!("äöü")),
            (json!({ "minimum": 0 }), json!(0), json!(-1)),
            (json!({ "maximum": 1.5 }), json!(1.5), json!(2)),
            (json!({ "items": { "type": "string" }, "maxItems": 1 }), json!(["a"]), json!([1])),
            (json!({ "items": { "type": "string" }, "maxItems": 1 }), json!([]), json!(["a", "b"])),
            (json!({ "minItems": 1 }), json!([1]), json!([])),
            (json!({ "properties": { "a": { "type": "string" } } }), json!({ "b": 1 }), json!({ "a": 1 })),
            (json!({ "properties": { "a": {} }, "required": ["a"] }), json!({ "a": 1 }), json!({})),
            (json!({ "properties": { "a": {} }, "additionalProperties": false }), json!({ "a": 1 }), json!({ "b": 1 })),
        ] {
            assert_eq!(checked(schema.clone(), fits.clone()), Ok(()), "{schema} {fits}");
            assert!(checked(schema.clone(), breaks.clone()).is_err(), "{schema} {breaks}");
        }
    }

    #[test]
    fn every_mistake_of_a_schema_names_its_keyword() {
        for (schema, keyword) in [
            (json!({ "type": "text" }), "schema.type"),
            (json!({ "type": [] }), "schema.type"),
            (json!({ "enum": "a" }), "schema.enum"),
            (json!({ "properties": [] }), "schema.properties"),
            (json!({ "properties": { "a": 1 } }), "schema.properties.a"),
            (json!({ "required": "a" }), "schema.required"),
            (json!({ "required": [1] }), "schema.required"),
            (json!({ "additionalProperties": {} }), "schema.additionalProperties"),
            (json!({ "items": 1 }), "schema.items"),
            (json!({ "maxLength": -1 }), "schema.maxLength"),
            (json!({ "minimum": "1" }), "schema.minimum"),
            (json!({ "pattern": "a+" }), "schema.pattern"),
        ] {
            let reason = ValueSchema::read("schema", &schema).expect_err("refused");
            assert!(reason.contains(&format!("`{keyword}`")), "{schema}: {reason}");
        }
    }
}
