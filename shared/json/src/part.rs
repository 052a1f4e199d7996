use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::Map;

/// A field to look at: a value, or a list whose items are shared one by one.
#[derive(Clone, Copy, Debug)]
pub enum Part<'v> {
    /// A value.
    Value(&'v Value),
    /// A list of these items.
    Items(&'v [Arc<Value>]),
}

impl<'v> Part<'v> {
    /// Its items, where it is a list.
    pub fn items(self) -> Option<Items<'v>> {
        match self {
            Self::Value(value) => Items::of(value),
            Self::Items(items) => Some(Items::Shared(items)),
        }
    }

    /// A copy of it.
    pub fn to_value(self) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Items(items) => Value::Array(Items::Shared(items).iter().cloned().collect()),
        }
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Value(value) => value.serialize(serializer),
            Self::Items(items) => Items::Shared(items).serialize(serializer),
        }
    }
}

/// The items of a list to look at.
#[derive(Clone, Copy, Debug)]
pub enum Items<'v> {
    /// Those of a value.
    Plain(&'v [Value]),
    /// Items that are shared one by one.
    Shared(&'v [Arc<Value>]),
}

impl<'v> Items<'v> {
    /// Those of `value`, where it is a list.
    pub fn of(value: &'v Value) -> Option<Self> {
        value.as_array().map(|items| Self::Plain(items))
    }

    /// Number of them.
    pub fn len(self) -> usize {
        match self {
            Self::Plain(items) => items.len(),
            Self::Shared(items) => items.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Those `from` and before `to`; none where there are not so many.
    #[must_use]
    pub fn within(self, from: usize, to: usize) -> Self {
        match self {
            Self::Plain(items) => Self::Plain(items.get(from..to).unwrap_or_default()),
            Self::Shared(items) => Self::Shared(items.get(from..to).unwrap_or_default()),
        }
    }

    /// All of them in order.
    pub fn iter(self) -> impl Iterator<Item = &'v Value> + Clone {
        let (plain, shared): (&[Value], &[Arc<Value>]) = match self {
            Self::Plain(items) => (items, &[]),
            Self::Shared(items) => (&[], items),
        };
        plain.iter().chain(shared.iter().map(|item| &**item))
    }
}

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// The fields of `object` in order.
pub fn fields_of(object: &Map) -> impl Iterator<Item = (&str, Part<'_>)> + Clone {
    object.iter().map(|(name, value)| (name.as_str(), Part::Value(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_the_same_however_its_items_are_shared() {
        let list = json!([1, { "a": null }, "b"]);
        let shared: Vec<Arc<Value>> = Items::of(&list).expect("a list").iter().cloned().map(Arc::new).collect();
        for part in [Part::Value(&list), Part::Items(&shared)] {
            assert_eq!((part.to_value(), json!(part)), (list.clone(), list.clone()));
            let items = part.items().expect("a list");
            assert_eq!((items.len(), json!(items.within(1, 3))), (3, json!([{ "a": null }, "b"])));
            assert!(items.within(2, 5).is_empty() && items.within(1, 1).is_empty());
        }
        assert!(Part::Value(&json!({})).items().is_none());
    }
}
