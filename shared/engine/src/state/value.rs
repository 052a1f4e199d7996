use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Map, SharedField, SharedItems, SharedMap};
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
    /// Beginnings of lists that only grow, as what was made of this state shares them.
    kept: Vec<(Arc<str>, SharedItems)>,
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

    /// The same, of the fields whose names are `taken`, which it shares with this state.
    pub(crate) fn to_shared(&self, taken: impl Fn(&str) -> bool) -> SharedMap {
        let fields = self.fields.iter().filter(|(name, _)| taken(name));
        SharedMap::of_fields(fields.map(|(name, value)| (name.clone(), self.as_shared(name, value))))
    }

    fn as_shared(&self, name: &Arc<str>, value: &Arc<Value>) -> SharedField {
        let kept = self.kept.iter().find(|(kept, _)| kept == name);
        match (kept, &**value) {
            (Some((_, items)), Value::Array(list)) if items.len() == list.len() => SharedField::Items(items.clone()),
            (_, _) => SharedField::Value(value.clone()),
        }
    }

    /// Has what is made of this state share the items of its lists `growing`, which nothing but grow: a list that is shared as a
    /// whole is copied when it grows, and here no item is copied twice.
    pub(crate) fn keep_items(&mut self, growing: impl IntoIterator<Item = Arc<str>>) {
        for field in growing {
            let Some(Value::Array(list)) = self.fields.get(&*field).map(|value| &**value) else { continue };
            match self.kept.iter_mut().find(|(kept, _)| *kept == field) {
                Some((_, items)) => *items = items.grown(list),
                None => self.kept.push((field, SharedItems::default().grown(list))),
            }
        }
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
        self.kept.retain(|(kept, _)| kept != field);
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
        Self { fields: Arc::new(fields), memo: None, kept: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_json::Part;
    use serde_json::json;

    use super::super::reducer::CheckedMerge;
    use super::*;

    fn grow(state: &mut State, item: Value) {
        CheckedMerge::Extend { items: vec![item], keep_last: None }.apply(state.longer_slot("list".into()));
    }

    #[test]
    fn what_shares_the_fields_of_a_state_stays_as_it_is_when_the_state_grows() {
        for keeps in [false, true] {
            let fields = [("list", json!([1])), ("own", json!(true))];
            let mut state: State = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let mut shared = Vec::new();
            for number in 2..4 {
                if keeps {
                    state.keep_items(["list".into(), "own".into(), "other".into()]);
                }
                shared.push(state.to_shared(|name| name == "list"));
                grow(&mut state, json!(number));
            }
            let told: Vec<Value> = shared.iter().map(|shared| json!(shared)).collect();
            assert_eq!(told, [json!({ "list": [1] }), json!({ "list": [1, 2] })], "the other field is not taken");
            assert_eq!(Value::Object(state.to_map()), json!({ "list": [1, 2, 3], "own": true }));
            let items = shared.iter().map(|shared| shared.shared("list").map(SharedField::part));
            assert!(items.flatten().all(|part| matches!(part, Part::Items(_)) == keeps), "{shared:?}");
        }
    }

    #[test]
    fn a_list_that_changed_is_kept_anew() {
        let mut state: State = [("list".to_owned(), json!([1, 2]))].into_iter().collect();
        state.keep_items(["list".into()]);
        state.set(&"list".into(), Arc::new(json!([3, 4])));
        assert_eq!(json!(state.to_shared(|_| true)), json!({ "list": [3, 4] }));
        let other = state.clone();
        grow(&mut state, json!(5));
        state.keep_items(["list".into()]);
        let both = [&state, &other].map(|state| json!(state.to_shared(|_| true)));
        assert_eq!(both, [json!({ "list": [3, 4, 5] }), json!({ "list": [3, 4] })]);
        CheckedMerge::Extend { items: vec![json!(6)], keep_last: Some(3) }.apply(state.slot("list".into()));
        state.keep_items(["list".into()]);
        assert_eq!(json!(state.to_shared(|_| true)), json!({ "list": [4, 5, 6] }));
    }
}
