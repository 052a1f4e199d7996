//! Common parts of all resources: envelope, `object` word, pointers, lists.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A JSON object whose keys keep their order: metadata, payloads and everything else that has no shape of its own.
pub use dormouse_json::Map;

/// Type with a name on the wire.
pub trait Named {
    /// The word in the field `object`.
    const OBJECT: &'static str;
}

/// The field `object` of a `T`: always the one word [`Named::OBJECT`], and refused when another one is read.
pub struct Object<T>(PhantomData<fn() -> T>);

impl<T> Object<T> {
    /// The only value.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T> PartialEq for Object<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T: Named> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", T::OBJECT)
    }
}

impl<T: Named> Serialize for Object<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(T::OBJECT)
    }
}

impl<'de, T: Named> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = Cow::<'_, str>::deserialize(deserializer)?;
        if word == T::OBJECT { Ok(Self::new()) } else { Err(de::Error::unknown_variant(&word, &[T::OBJECT])) }
    }
}

impl<T: Named> JsonSchema for Object<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::OBJECT.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": [T::OBJECT] })
    }
}

/// The fields that every resource has; its id is an `I`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(bound = "I: Named + Serialize + de::DeserializeOwned")]
#[schemars(bound = "I: Named + JsonSchema")]
pub struct Envelope<I: Named> {
    /// Stable; never used again for another resource.
    pub id: I,
    /// Name of the resource's type.
    pub object: Object<I>,
    /// Instant at which the resource came to be.
    pub created_at: Timestamp,
    /// Instant of its last change.
    pub updated_at: Timestamp,
    /// Data that the client or an extension keeps with it.
    pub metadata: Map,
}

impl<I: Named> Envelope<I> {
    /// The envelope of a resource that is made at `at`.
    pub fn new(id: I, at: Timestamp) -> Self {
        Self { id, object: Object::new(), created_at: at, updated_at: at, metadata: Map::new() }
    }

    /// The same with `metadata`.
    pub fn with_metadata(self, metadata: Map) -> Self {
        Self { metadata, ..self }
    }
}

/// Points to a resource of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ResourcePointer {
    /// The word of its kind.
    pub object: String,
    /// Its id.
    pub id: String,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct List<T> {
    /// Always `list`.
    pub object: Object<Listing>,
    /// The elements, in the order of the list.
    pub data: Vec<T>,
    /// Continuation of the list.
    pub page: PageInfo,
}

/// The word of all lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing;

impl Named for Listing {
    const OBJECT: &'static str = "list";
}

impl<T> List<T> {
    /// A page that holds `data`; `next_cursor` leads to the next one, `None` means that this is the last.
    pub fn page(data: Vec<T>, next_cursor: Option<String>) -> Self {
        Self { object: Object::new(), data, page: PageInfo { has_more: next_cursor.is_some(), next_cursor } }
    }
}

/// Continuation of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageInfo {
    /// True if there was more when the page was read.
    pub has_more: bool,
    /// Value to send as `cursor` (of a list of events: as `after_event_id`) to go on.
    pub next_cursor: Option<String>,
}

/// Schema of a field that is always there and may be null; the field itself is an `Option`.
pub(crate) struct Nullable<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for Nullable<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Nullable{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

/// Reads a field that may be missing but not null (or, of an `Option<Option<_>>`, where null means something else than
/// missing). To be used with `default`.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::id::{SessionId, TaskId};

    #[test]
    fn an_envelope_says_what_it_is_and_refuses_another_word() {
        let envelope = Envelope::new(TaskId::new("task_1"), Timestamp::UNIX_EPOCH);
        let value = serde_json::to_value(&envelope).expect("JSON");
        let time = "1970-01-01T00:00:00Z";
        let expected =
            json!({"id": "task_1", "object": "task", "created_at": time, "updated_at": time, "metadata": {}});
        assert_eq!(value, expected);
        assert_eq!(serde_json::from_value::<Envelope<TaskId>>(value.clone()).expect("an envelope"), envelope);
        assert!(serde_json::from_value::<Envelope<SessionId>>(value).is_err());
    }

    #[test]
    fn a_page_without_a_cursor_is_the_last() {
        let page = List::page(vec![1], None);
        assert_eq!(
            serde_json::to_value(page).expect("JSON"),
            json!({"object": "list", "data": [1], "page": {"has_more": false, "next_cursor": null}})
        );
        assert!(List::<i32>::page(vec![], Some("next".to_owned())).page.has_more);
    }
}
