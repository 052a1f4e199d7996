use std::fmt;
use std::marker::PhantomData;

use dormouse_ports::{AnswerRule, Map, SignalDescriptor};
use serde::Serialize;
use serde_json::{Value, json};

use crate::FieldKey;

/// Fields of the record `A` that an answer may set, and their rules. Every other field is refused, and so is an answer
/// that lacks a required one.
#[must_use = "an answer does nothing until it is given to a wait"]
pub struct Answer<A> {
    is_open: bool,
    properties: Map,
    required: Vec<Value>,
    unwritable: Option<String>,
    record: PhantomData<fn(A)>,
}

impl<A> Answer<A> {
    /// An answer without fields: it only wakes.
    pub fn new() -> Self {
        let properties = Map::new();
        let required = Vec::new();
        Self { is_open: false, properties, required, unwritable: None, record: PhantomData }
    }

    /// An answer that may set every field, those among them that only nodes should write.
    pub fn anything() -> Self {
        Self { is_open: true, ..Self::new() }
    }

    /// It must set `field`, by `rule`.
    pub fn required<V>(mut self, field: FieldKey<A, V>, rule: impl Into<Rule<V>>) -> Self {
        self.required.push(field.name().into());
        self.optional(field, rule)
    }

    /// It may set `field`, by `rule`.
    pub fn optional<V>(mut self, field: FieldKey<A, V>, rule: impl Into<Rule<V>>) -> Self {
        let rule: Rule<V> = rule.into();
        match rule.schema {
            Ok(schema) => {
                self.properties.insert(field.name().to_owned(), Value::Object(schema));
            }
            Err(reason) => {
                self.unwritable.get_or_insert_with(|| format!("the rule of field `{field}` cannot be right: {reason}"));
            }
        }
        self
    }

    /// True if it may set `field`.
    pub(super) fn sets(&self, field: &str) -> bool {
        self.is_open || self.properties.contains_key(field)
    }

    /// Checks that `fields` fit the rules. Others may be missing, also those that are required.
    pub(super) fn admits(&self, fields: &Map) -> Result<(), String> {
        if self.is_open || fields.is_empty() {
            return Ok(());
        }
        let accepts = json!({ "type": "object", "properties": self.properties });
        let rule = AnswerRule::of(&SignalDescriptor::new("").with("accepts", accepts))?;
        rule.admit(fields.clone()).map(drop)
    }

    /// The JSON Schema; none for an answer that may set everything.
    pub(super) fn schema(self) -> Result<Option<Value>, String> {
        match self.unwritable {
            Some(reason) => Err(reason),
            None if self.is_open && self.properties.is_empty() => Ok(None),
            None if self.is_open => {
                Err("its answer may set everything, and yet names fields: begin with `Answer::new()`".to_owned())
            }
            None => {
                let mut schema = json!({ "type": "object", "properties": self.properties });
                if !self.required.is_empty() {
                    schema["required"] = self.required.into();
                }
                Ok(Some(schema))
            }
        }
    }
}

impl<A> Default for Answer<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A> fmt::Debug for Answer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("properties", &self.properties).field("required", &self.required).finish()
    }
}

/// Rule for a value of type `V` in an answer.
#[must_use = "a rule does nothing until it is given to an answer"]
pub struct Rule<V> {
    schema: Result<Map, String>,
    value: PhantomData<fn(V)>,
}

impl<V> Rule<V> {
    /// No restriction but that the state can hold it.
    pub fn anything() -> Self {
        Self::of([])
    }

    /// This JSON Schema, with the keywords that [`ValueSchema`](dormouse_ports::ValueSchema) knows.
    pub fn schema(schema: Map) -> Self {
        Self { schema: Ok(schema), value: PhantomData }
    }

    fn of<const N: usize>(keywords: [(&str, Value); N]) -> Self {
        Self::schema(keywords.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    fn and(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        if let Ok(schema) = &mut self.schema {
            schema.insert(keyword.to_owned(), value.into());
        }
        self
    }
}

impl<V: Serialize> Rule<V> {
    /// One of these values.
    pub fn one_of(values: impl IntoIterator<Item = V>) -> Self {
        let values: Result<Value, _> = values.into_iter().map(serde_json::to_value).collect();
        match values {
            Ok(values) => Self::of([("enum", values)]),
            Err(reason) => Self { schema: Err(reason.to_string()), value: PhantomData },
        }
    }
}

impl Rule<String> {
    /// A text.
    pub fn text() -> Self {
        Self::of([("type", "string".into())])
    }

    /// Of so many characters at most.
    pub fn at_most(self, characters: usize) -> Self {
        self.and("maxLength", characters)
    }

    /// Of so many characters at least.
    pub fn at_least(self, characters: usize) -> Self {
        self.and("minLength", characters)
    }
}

impl Rule<bool> {
    /// Yes or no.
    pub fn boolean() -> Self {
        Self::of([("type", "boolean".into())])
    }
}

/// The Rust types of whole numbers.
pub trait Integer: Into<Value> {}

impl Integer for u8 {}
impl Integer for u16 {}
impl Integer for u32 {}
impl Integer for u64 {}
impl Integer for i8 {}
impl Integer for i16 {}
impl Integer for i32 {}
impl Integer for i64 {}

impl<V: Integer + PartialOrd + fmt::Display> Rule<V> {
    /// A whole number.
    pub fn integer() -> Self {
        Self::of([("type", "integer".into())])
    }

    /// A whole number from `least` to `most`.
    ///
    /// The wait is refused when it begins if no number is between them.
    pub fn between(least: V, most: V) -> Self {
        if least > most {
            let reason = format!("no number is between {least} and {most}: name the smaller one first");
            return Self { schema: Err(reason), value: PhantomData };
        }
        Self::integer().and("minimum", least).and("maximum", most)
    }
}

impl Rule<f64> {
    /// A number.
    pub fn number() -> Self {
        Self::of([("type", "number".into())])
    }
}

impl<V> From<Rule<V>> for Rule<Option<V>> {
    fn from(rule: Rule<V>) -> Self {
        Self { schema: rule.schema, value: PhantomData }
    }
}

impl<V> fmt::Debug for Rule<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("schema", &self.schema).finish()
    }
}
