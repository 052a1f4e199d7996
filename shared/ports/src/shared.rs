use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};

use dormouse_json::{Items, Part};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::Map;

/// An object of JSON that several records hold: cloning it counts references. Whoever changes it copies it first, where others
/// hold it.
///
/// One that is [made of fields](Self::of_fields) shares them with the state that has them. It is copied for whoever takes it for
/// a [`Map`], once; [`part`](Self::part), [`items`](Self::items) and [`fields`](Self::fields) copy nothing.
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
    shared: Vec<(Arc<str>, SharedField)>,
    /// The object of them, once somebody has asked for it.
    made: OnceLock<Map>,
}

/// A field that several objects have.
#[derive(Clone, Debug)]
pub enum SharedField {
    /// With this value.
    Value(Arc<Value>),
    /// A list of these items.
    Items(SharedItems),
}

impl SharedField {
    /// The same to look at.
    pub fn part(&self) -> Part<'_> {
        match self {
            Self::Value(value) => Part::Value(value),
            Self::Items(items) => Part::Items(&items.0),
        }
    }

    /// True if both are the same, and not only equal.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(one), Self::Value(other)) => Arc::ptr_eq(one, other),
            (Self::Items(one), Self::Items(other)) => Arc::ptr_eq(&one.0, &other.0),
            (Self::Value(_), Self::Items(_)) | (Self::Items(_), Self::Value(_)) => false,
        }
    }
}

/// The items of a list that grows: what grew out of it shares them one by one.
#[derive(Clone, Debug, Default)]
pub struct SharedItems(Arc<Vec<Arc<Value>>>);

impl SharedItems {
    /// Number of them.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What they are known by, in all that grows out of them.
    pub fn beginning(&self) -> SharedBeginning {
        SharedBeginning { len: self.len(), last: self.0.last().map(Arc::downgrade).unwrap_or_default() }
    }

    /// True if they begin so: with the same items, and not only equal ones.
    pub fn begin_with(&self, beginning: &SharedBeginning) -> bool {
        // Two lists have an item together only where both grew out of that to which it was added: what is before it is the same.
        let last = beginning.len.checked_sub(1).and_then(|at| self.0.get(at));
        last.is_some_and(|last| ptr::eq(Arc::as_ptr(last), beginning.last.as_ptr()))
    }

    /// The items of `list`, which begins with these: only those behind them are copied.
    #[must_use]
    pub fn grown(&self, list: &[Value]) -> Self {
        let known = if self.len() <= list.len() { self.0.as_slice() } else { &[] };
        if known.len() == list.len() && !known.is_empty() {
            return self.clone();
        }
        let more = list[known.len()..].iter().cloned().map(Arc::new);
        Self(Arc::new(known.iter().cloned().chain(more).collect()))
    }
}

/// How a list began, to be told from all other lists. It keeps no item in memory.
#[derive(Clone, Debug)]
pub struct SharedBeginning {
    len: usize,
    /// The last of its items. While this is here, no other one has its place in memory.
    last: Weak<Value>,
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
        let copied = |(name, field): &(Arc<str>, SharedField)| (name.to_string(), field.part().to_value());
        self.made.get_or_init(|| self.shared.iter().map(copied).collect())
    }

    fn into_map(self) -> Map {
        let taken = |(name, field): (Arc<str>, SharedField)| match field {
            SharedField::Value(value) => (name.to_string(), Arc::unwrap_or_clone(value)),
            SharedField::Items(_) => (name.to_string(), field.part().to_value()),
        };
        self.made.into_inner().unwrap_or_else(|| self.shared.into_iter().map(taken).collect())
    }
}

impl SharedMap {
    /// The object of these `fields`, each of another name.
    pub fn of_fields(fields: impl IntoIterator<Item = (Arc<str>, SharedField)>) -> Self {
        let fields = Fields { shared: fields.into_iter().collect(), made: OnceLock::new() };
        Self(Arc::new(Form { whole: None, fields }))
    }

    /// The value of `field`, if there is one. Where that is a list of [shared items](SharedField::Items), the object is copied for
    /// it, once.
    pub fn get(&self, field: &str) -> Option<&Value> {
        match self.part(field)? {
            Part::Value(value) => Some(value),
            Part::Items(_) => self.0.map().get(field),
        }
    }

    /// The same to look at.
    pub fn part(&self, field: &str) -> Option<Part<'_>> {
        match &self.0.whole {
            Some(whole) => whole.get(field).map(Part::Value),
            None => self.shared(field).map(SharedField::part),
        }
    }

    /// The items of `field`, if that is a list.
    pub fn items(&self, field: &str) -> Option<Items<'_>> {
        self.part(field)?.items()
    }

    /// `field` as a state shares it; `None` where no state does.
    pub fn shared(&self, field: &str) -> Option<&SharedField> {
        self.0.fields.shared.iter().find(|(name, _)| **name == *field).map(|(_, shared)| shared)
    }

    /// The fields in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, Part<'_>)> + Clone {
        let whole = self.0.whole.iter().flat_map(dormouse_json::fields_of);
        whole.chain(self.0.fields.shared.iter().map(|(name, shared)| (&**name, shared.part())))
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
        f.debug_map().entries(self.fields().map(|(name, part)| (name, part.to_value()))).finish()
    }
}

impl PartialEq for SharedMap {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(name, part): (&str, Part<'_>)| other.part(name).is_some_and(|theirs| are_same(part, theirs));
        Arc::ptr_eq(&self.0, &other.0)
            || (self.fields().count() == other.fields().count() && self.fields().all(is_same))
    }
}

fn are_same(one: Part<'_>, other: Part<'_>) -> bool {
    let is_same = |one: &Value, other: &Value| ptr::eq(one, other) || *one == *other;
    match (one, other) {
        (Part::Value(one), Part::Value(other)) => is_same(one, other),
        (Part::Items(_), _) | (_, Part::Items(_)) => match (one.items(), other.items()) {
            (Some(one), Some(other)) => {
                one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| is_same(one, other))
            }
            (_, _) => false,
        },
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

    fn of_fields(fields: &[(&str, &SharedField)]) -> SharedMap {
        SharedMap::of_fields(fields.iter().map(|(name, field)| ((*name).into(), SharedField::clone(field))))
    }

    fn field(value: Value) -> SharedField {
        SharedField::Value(Arc::new(value))
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
        let (object, number) = (field(json!({ "c": "b" })), field(json!(7)));
        let made = of_fields(&[("z", &object), ("a", &number)]);
        assert!(made.shared("z").is_some_and(|shared| shared.is(&object) && !shared.is(&number)), "nothing is copied");
        assert_eq!((made.get("a"), made.get("b")), (Some(&json!(7)), None));
        assert_eq!(serde_json::to_string(&made).expect("JSON"), r#"{"z":{"c":"b"},"a":7}"#, "the order stays");
        let mut changed = made.clone();
        changed.insert("b".to_owned(), json!(null));
        assert_eq!((made.len(), changed.len(), changed.fields().count()), (2, 3, 3));
        assert_eq!((changed.get("b"), made.get("b")), (Some(&json!(null)), None));
        assert_eq!(object.part().to_value(), json!({ "c": "b" }));
        assert_eq!(Value::Object(made.into_map()), json!({ "z": { "c": "b" }, "a": 7 }));
    }

    #[test]
    fn a_list_that_grew_shares_the_items_that_it_had() {
        let short = SharedItems::default().grown(&[json!(1), json!("b")]);
        let long = short.grown(&[json!(1), json!("b"), json!(null)]);
        assert_eq!((short.len(), long.len()), (2, 3));
        let begin_alike = |one: &SharedItems, other: &SharedItems| one.begin_with(&other.beginning());
        assert!(
            begin_alike(&long, &short) && !begin_alike(&short, &long) && begin_alike(&long, &long),
            "nothing is copied"
        );
        assert!(!begin_alike(&long, &SharedItems::default().grown(&[json!(1)])), "one that is equal is another one");
        assert!(!begin_alike(&short.grown(&[json!(1), json!("b"), json!(null)]), &long), "each has added its own");
        assert!(!begin_alike(&long, &SharedItems::default()), "what is empty is the beginning of none");
        assert!(Arc::ptr_eq(&long.grown(&[json!(1), json!("b"), json!(null)]).0, &long.0));
        let [before, now] = [short, long].map(|items| of_fields(&[("list", &SharedField::Items(items))]));
        assert_eq!((json!(before), json!(now)), (json!({ "list": [1, "b"] }), json!({ "list": [1, "b", null] })));
        assert_eq!((before.items("list").map(Items::len), before.items("other").map(Items::len)), (Some(2), None));
        assert_eq!(now.get("list"), Some(&json!([1, "b", null])));
        assert_eq!(now, Map::from_iter([("list".to_owned(), json!([1, "b", null]))]));
        assert_eq!(Value::Object(before.into_map()), json!({ "list": [1, "b"] }));
        let (whole, shorter) = (SharedItems::default().grown(&[]), SharedItems::default().grown(&[json!(2)]));
        assert_eq!((whole.is_empty(), shorter.grown(&[]).len()), (true, 0));
    }

    #[test]
    fn the_beginning_of_a_list_keeps_no_item_and_is_no_other_one_when_they_are_gone() {
        let short = SharedItems::default().grown(&[json!("a"), json!("b")]);
        let beginning = short.beginning();
        let long = short.grown(&[json!("a"), json!("b"), json!("c")]);
        drop(short);
        assert!(long.begin_with(&beginning));
        drop(long);
        assert_eq!(beginning.last.strong_count(), 0, "nothing keeps it");
        let others: Vec<SharedItems> =
            (0..100).map(|_| SharedItems::default().grown(&[json!("a"), json!("b")])).collect();
        assert!(!others.iter().any(|others| others.begin_with(&beginning)));
    }

    #[test]
    fn it_equals_what_has_the_same_fields_however_it_was_made() {
        let (one, two) = (field(json!([1])), field(json!(2)));
        let made = of_fields(&[("a", &one), ("b", &two)]);
        let whole = Map::from_iter([("b".to_owned(), json!(2)), ("a".to_owned(), json!([1]))]);
        assert_eq!((&made, &of_fields(&[("b", &two), ("a", &one)])), (&SharedMap::from(whole.clone()), &made));
        assert_eq!(made, whole);
        let items = |list: &[Value]| SharedField::Items(SharedItems::default().grown(list));
        assert_eq!(of_fields(&[("a", &items(&[json!(1)])), ("b", &two)]), made);
        for other in [
            of_fields(&[("a", &one)]),
            of_fields(&[("a", &two), ("b", &two)]),
            of_fields(&[("a", &items(&[json!(2)])), ("b", &two)]),
            of_fields(&[("a", &items(&[])), ("b", &two)]),
            SharedMap::default(),
        ] {
            assert_ne!(made, other);
        }
        assert_eq!(SharedMap::default(), Map::new());
    }
}
