use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::Map;

/// An object of JSON that several records hold: cloning it counts references. Whoever changes it copies it first, where others
/// hold it.
///
/// One that is [made of fields](Self::of_fields) shares them with the state that has them. It is copied for whoever takes it for
/// a [`Map`], once; [`get`](Self::get) and [`fields`](Self::fields) copy nothing.
#[derive(Clone, Default)]
pub struct SharedMap(Arc<Form>);

/// The object, or else the fields that it is made of.
#[derive(Clone, Default)]
struct Form {
    whole: Option<Map>,
    fields: Fields,
}

#[derive(Clone, Default)]
struct Fields {
    shared: Vec<(Arc<str>, Arc<Value>)>,
    /// The object of them, once somebody has asked for it.
    made: OnceLock<Map>,
}

impl Form {
    fn map(&self) -> &Map {
        match &self.whole {
            Some(whole) => whole,
            None => self.fields.map(),
        }
    }
}

impl Fields {
    fn map(&self) -> &Map {
        let copied = |(name, value): &(Arc<str>, Arc<Value>)| (name.to_string(), Value::clone(value));
        self.made.get_or_init(|| self.shared.iter().map(copied).collect())
    }

    fn into_map(self) -> Map {
        let taken = |(name, value): (Arc<str>, Arc<Value>)| (name.to_string(), Arc::unwrap_or_clone(value));
        self.made.into_inner().unwrap_or_else(|| self.shared.into_iter().map(taken).collect())
    }
}

impl SharedMap {
    /// The object of these `fields`, each of another name.
    pub fn of_fields(fields: impl IntoIterator<Item = (Arc<str>, Arc<Value>)>) -> Self {
        let fields = Fields { shared: fields.into_iter().collect(), made: OnceLock::new() };
        Self(Arc::new(Form { whole: None, fields }))
    }

    /// The value of `field`, if there is one.
    pub fn get(&self, field: &str) -> Option<&Value> {
        match &self.0.whole {
            Some(whole) => whole.get(field),
            None => self.shared(field).map(|value| &**value),
        }
    }

    /// The value of `field` as a state shares it; `None` where no state does.
    pub fn shared(&self, field: &str) -> Option<&Arc<Value>> {
        self.0.fields.shared.iter().find(|(name, _)| **name == *field).map(|(_, value)| value)
    }

    /// The fields in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Value)> + Clone {
        let whole = self.0.whole.iter().flat_map(dormouse_json::fields_of);
        whole.chain(self.0.fields.shared.iter().map(|(name, value)| (&**name, &**value)))
    }

    /// The object, copied where others hold it.
    pub fn into_map(self) -> Map {
        let Form { whole, fields } = Arc::unwrap_or_clone(self.0);
        whole.unwrap_or_else(|| fields.into_map())
    }
}

impl Deref for SharedMap {
    type Target = Map;

    fn deref(&self) -> &Map {
        self.0.map()
    }
}

impl DerefMut for SharedMap {
    fn deref_mut(&mut self) -> &mut Map {
        let Form { whole, fields } = Arc::make_mut(&mut self.0);
        let fields = std::mem::take(fields);
        whole.get_or_insert_with(|| fields.into_map())
    }
}

impl From<Map> for SharedMap {
    fn from(map: Map) -> Self {
        Self(Arc::new(Form { whole: Some(map), fields: Fields::default() }))
    }
}

impl FromIterator<(String, Value)> for SharedMap {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Map::from_iter(fields).into()
    }
}

impl fmt::Debug for SharedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.fields()).finish()
    }
}

impl PartialEq for SharedMap {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(name, value): (&str, &Value)| {
            other.get(name).is_some_and(|theirs| ptr::eq(value, theirs) || *value == *theirs)
        };
        Arc::ptr_eq(&self.0, &other.0)
            || (self.fields().count() == other.fields().count() && self.fields().all(is_same))
    }
}

impl Eq for SharedMap {}

impl PartialEq<Map> for SharedMap {
    fn eq(&self, other: &Map) -> bool {
        *self.0.map() == *other
    }
}

impl Serialize for SharedMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.fields())
    }
}

impl<'de> Deserialize<'de> for SharedMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_fields(fields: &[(&str, &Arc<Value>)]) -> SharedMap {
        SharedMap::of_fields(fields.iter().map(|(name, value)| ((*name).into(), Arc::clone(value))))
    }

    #[test]
    fn who_changes_it_changes_it_for_nobody_else() {
        let one = SharedMap::from(Map::from_iter([("a".to_owned(), json!(1))]));
        let mut other = one.clone();
        assert!(Arc::ptr_eq(&one.0, &other.0), "nothing is copied");
        other.insert("b".to_owned(), json!(2));
        assert_eq!((one.len(), other.len()), (1, 2));
        assert_eq!(json!(other), json!({ "a": 1, "b": 2 }));
    }

    #[test]
    fn one_made_of_fields_shares_them_until_somebody_changes_it() {
        let (list, number) = (Arc::new(json!([1, "b"])), Arc::new(json!(7)));
        let made = of_fields(&[("z", &list), ("a", &number)]);
        assert!(made.get("z").is_some_and(|found| ptr::eq(found, &*list)), "nothing is copied");
        assert!(made.shared("z").is_some_and(|found| Arc::ptr_eq(found, &list)));
        assert_eq!((made.get("a"), made.get("b")), (Some(&json!(7)), None));
        assert_eq!(serde_json::to_string(&made).expect("JSON"), r#"{"z":[1,"b"],"a":7}"#, "the order stays");
        let mut changed = made.clone();
        changed.insert("b".to_owned(), json!(null));
        assert_eq!((made.len(), changed.len(), changed.fields().count()), (2, 3, 3));
        assert_eq!((changed.get("b"), made.get("b"), &*list), (Some(&json!(null)), None, &json!([1, "b"])));
        assert_eq!(Value::Object(made.into_map()), json!({ "z": [1, "b"], "a": 7 }));
    }

    #[test]
    fn it_equals_what_has_the_same_fields_however_it_was_made() {
        let (one, two) = (Arc::new(json!({ "x": 1 })), Arc::new(json!(2)));
        let made = of_fields(&[("a", &one), ("b", &two)]);
        let whole = Map::from_iter([("b".to_owned(), json!(2)), ("a".to_owned(), json!({ "x": 1 }))]);
        assert_eq!((&made, &of_fields(&[("b", &two), ("a", &one)])), (&SharedMap::from(whole.clone()), &made));
        assert_eq!(made, whole);
        for other in [of_fields(&[("a", &one)]), of_fields(&[("a", &two), ("b", &two)]), SharedMap::default()] {
            assert_ne!(made, other);
        }
        assert_eq!(SharedMap::default(), Map::new());
    }
}
