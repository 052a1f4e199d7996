use std::sync::Arc;

use dormouse_ports::Map;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;

use crate::NodeError;

/// The state of a running graph: an ordered record of fields.
///
/// Cloning is one reference count; a field that no update touches is never copied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State(Arc<Fields<Arc<Value>>>);

/// Something per field, in order.
pub(crate) type Fields<V> = IndexMap<Arc<str>, V, RandomState>;

impl State {
    /// The value of `field`, if there is one.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field).map(AsRef::as_ref)
    }

    /// The fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        self.0.iter().map(|(name, value)| (name, value.as_ref()))
    }

    /// The state as a JSON object.
    pub fn to_map(&self) -> Map {
        self.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    pub(crate) fn shared(&self, field: &str) -> Option<&Arc<Value>> {
        self.0.get(field)
    }

    pub(crate) fn set(&mut self, field: &Arc<str>, value: Arc<Value>) {
        Arc::make_mut(&mut self.0).insert(field.clone(), value);
    }

    /// The slot of `field`, made when it is missing.
    pub(crate) fn slot(&mut self, field: Arc<str>) -> &mut Arc<Value> {
        Arc::make_mut(&mut self.0).entry(field).or_default()
    }
}

impl From<Map> for State {
    fn from(map: Map) -> Self {
        map.into_iter().collect()
    }
}

impl FromIterator<(String, Value)> for State {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Self(Arc::new(fields.into_iter().map(|(name, value)| (name.into(), Arc::new(value))).collect()))
    }
}

/// A node's partial update: new values for some fields (graph-engine §2).
///
/// The contributions of a fan-out or of parallel branches are a sequence of updates that are merged one after the other
/// ([`then`](Self::then)); reading and adding fields concerns the first of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    fields: Vec<(Arc<str>, Value)>,
    then: Vec<Update>,
}

impl Update {
    /// An update that changes nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a new value for `field`.
    #[must_use]
    pub fn with(mut self, field: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        let (field, value) = (field.into(), value.into());
        match self.fields.iter_mut().find(|(name, _)| *name == field) {
            Some((_, earlier)) => *earlier = value,
            None => self.fields.push((field, value)),
        }
        self
    }

    /// Adds a new value for `field` from anything that serialises.
    ///
    /// # Errors
    /// When `value` has no JSON form, for example a map with keys that are not strings.
    pub fn try_with(self, field: impl Into<Arc<str>>, value: impl Serialize) -> Result<Self, NodeError> {
        Ok(self.with(field, serde_json::to_value(value)?))
    }

    /// Merges `update` after this one.
    #[must_use]
    pub fn then(mut self, update: Self) -> Self {
        if !update.is_empty() {
            self.then.push(update);
        }
        self
    }

    /// The value for `field`, if the update has one.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.iter().find(|(name, _)| **name == *field).map(|(_, value)| value)
    }

    /// The changed fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        self.fields.iter().map(|(name, value)| (name, value))
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.then.is_empty()
    }

    pub(crate) fn into_parts(self) -> (Vec<(Arc<str>, Value)>, Vec<Self>) {
        (self.fields, self.then)
    }
}

impl From<Map> for Update {
    fn from(map: Map) -> Self {
        Self { fields: map.into_iter().map(|(name, value)| (name.into(), value)).collect(), then: Vec::new() }
    }
}

impl FromIterator<(Arc<str>, Value)> for Update {
    /// Of several values for one field, the last counts.
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Value)>>(fields: I) -> Self {
        fields.into_iter().fold(Self::none(), |update, (name, value)| update.with(name, value))
    }
}
