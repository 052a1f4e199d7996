use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Map, SharedMap};
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use serde_json::Value;

use super::memo::Memo;
use super::typed::GraphState;

/// The state of a running graph: an ordered record of fields.
///
/// Cloning counts references; a field that no update touches is never copied.
#[derive(Clone, Default)]
pub struct State {
    fields: Arc<Fields<Arc<Value>>>,
    /// The same as the Rust type of its graph, where it has one.
    memo: Option<Arc<Memo>>,
}

/// One value per field, in order.
pub(crate) type Fields<V> = IndexMap<Arc<str>, V, RandomState>;

impl State {
    /// The value of `field`, if there is one.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).map(AsRef::as_ref)
    }

    /// The fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        self.fields.iter().map(|(name, value)| (name, value.as_ref()))
    }

    /// The state as a JSON object.
    pub fn to_map(&self) -> Map {
        self.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    /// The same, of the fields whose names are `kept`, which it shares with this state.
    pub(crate) fn to_shared(&self, kept: impl Fn(&str) -> bool) -> SharedMap {
        let kept = self.fields.iter().filter(|(name, _)| kept(name));
        SharedMap::of_fields(kept.map(|(name, value)| (name.clone(), value.clone())))
    }

    pub(crate) fn shared(&self, field: &str) -> Option<&Arc<Value>> {
        self.fields.get(field)
    }

    pub(crate) fn set(&mut self, field: &Arc<str>, value: Arc<Value>) {
        self.changes(field);
        Arc::make_mut(&mut self.fields).insert(field.clone(), value);
    }

    /// The slot of `field`, made when it is missing.
    pub(crate) fn slot(&mut self, field: Arc<str>) -> &mut Arc<Value> {
        self.changes(&field);
        Arc::make_mut(&mut self.fields).entry(field).or_default()
    }

    /// The same of a list that becomes longer and stays as it is otherwise.
    pub(crate) fn longer_slot(&mut self, field: Arc<str>) -> &mut Arc<Value> {
        if let Some(memo) = &mut self.memo {
            Memo::grown(memo, &field);
        }
        Arc::make_mut(&mut self.fields).entry(field).or_default()
    }

    /// This state, which from here on remembers what it is as a Rust type.
    pub(crate) fn memoised(mut self) -> Self {
        self.memo.get_or_insert_default();
        self
    }

    /// The state as a Rust type: read once, and after that only what has changed.
    pub(crate) fn typed<S: GraphState>(&self) -> Result<Arc<S>, String> {
        match &self.memo {
            Some(memo) => memo.read(self),
            None => S::read(self).map(Arc::new),
        }
    }

    fn changes(&mut self, field: &Arc<str>) {
        if let Some(memo) = &mut self.memo {
            Memo::outdate(memo, field);
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

impl From<Map> for State {
    fn from(map: Map) -> Self {
        map.into_iter().collect()
    }
}

impl FromIterator<(String, Value)> for State {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        let fields = fields.into_iter().map(|(name, value)| (name.into(), Arc::new(value))).collect();
        Self { fields: Arc::new(fields), memo: None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::reducer::CheckedMerge;
    use super::*;

    #[test]
    fn what_shares_the_fields_of_a_state_stays_as_it_is_when_the_state_grows() {
        let fields = [("list", json!([1])), ("own", json!(true))];
        let mut state: State = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let shared = state.to_shared(|name| name == "list");
        let (own, others) = (state.get("list"), shared.get("list"));
        assert!(own.zip(others).is_some_and(|(own, others)| std::ptr::eq(own, others)), "nothing is copied");
        let more = CheckedMerge::Extend { items: vec![json!(2)], keep_last: None };
        more.apply(state.longer_slot("list".into()));
        assert_eq!((state.get("list"), shared.get("list")), (Some(&json!([1, 2])), Some(&json!([1]))));
        assert_eq!(json!(shared), json!({ "list": [1] }), "the other field is not kept");
        assert_eq!(Value::Object(state.to_map()), json!({ "list": [1, 2], "own": true }));
    }
}
