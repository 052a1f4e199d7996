//! States as Rust types: the keys of their fields, how they are read and written, and views that name only some fields.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{State, Update};

/// A field of the record `S`, with values of type `V`. [`state!`](crate::state) gives every field one, under the
/// field's name.
pub struct FieldKey<S, V> {
    name: &'static str,
    types: PhantomData<fn(S) -> V>,
}

impl<S, V> FieldKey<S, V> {
    /// The key of the field that Rust calls `name`.
    #[doc(hidden)]
    pub const fn new(name: &'static str) -> Self {
        let name = match name.as_bytes() {
            [b'r', b'#', ..] => name.split_at(2).1,
            _ => name,
        };
        Self { name, types: PhantomData }
    }

    /// The name of the field.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl<S, V: Serialize> FieldKey<S, V> {
    /// The update that gives this field the value `value`, and changes nothing else.
    #[must_use]
    pub fn set(self, value: impl IntoField<V>) -> Update<S> {
        Update::none().set(self, value)
    }
}

impl<S, L> FieldKey<S, L>
where
    L: List<Item: Serialize>,
{
    /// The update that adds `items` to this list, and changes nothing else.
    #[must_use]
    pub fn append<I>(self, items: I) -> Update<S>
    where
        I: IntoIterator,
        I::Item: IntoField<L::Item>,
    {
        Update::none().append(self, items)
    }
}

/// A field that is a list: a `Vec`, or one that is shared in an `Arc`, of which a node that takes the state copies nothing.
pub trait List {
    /// An item of it.
    type Item;
}

impl<V> List for Vec<V> {
    type Item = V;
}

impl<V> List for Arc<Vec<V>> {
    type Item = V;
}

impl<S, V> Clone for FieldKey<S, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, V> Copy for FieldKey<S, V> {}

impl<S, V> fmt::Debug for FieldKey<S, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FieldKey({})", self.name)
    }
}

impl<S, V> fmt::Display for FieldKey<S, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The name of the field, where a graph is told by names which fields go in and out of another one.
impl<S, V> From<FieldKey<S, V>> for Arc<str> {
    fn from(key: FieldKey<S, V>) -> Self {
        key.name.into()
    }
}

/// Several fields of the record `S`: a key, a list of keys, or a tuple of keys for fields of different types.
pub trait FieldKeys<S> {
    /// Their names in order.
    fn names(self) -> Vec<Arc<str>>;
}

impl<S, V> FieldKeys<S> for FieldKey<S, V> {
    fn names(self) -> Vec<Arc<str>> {
        vec![self.name.into()]
    }
}

impl<S, K: FieldKeys<S>, const N: usize> FieldKeys<S> for [K; N] {
    fn names(self) -> Vec<Arc<str>> {
        self.into_iter().flat_map(FieldKeys::names).collect()
    }
}

macro_rules! tuples_of_keys {
    ($($key:ident)*) => {
        impl<S, $($key: FieldKeys<S>),*> FieldKeys<S> for ($($key,)*) {
            #[expect(non_snake_case, reason = "a variable per type")]
            fn names(self) -> Vec<Arc<str>> {
                let ($($key,)*) = self;
                [$($key.names()),*].concat()
            }
        }
    };
}

tuples_of_keys!(A);
tuples_of_keys!(A B);
tuples_of_keys!(A B C);
tuples_of_keys!(A B C D);
tuples_of_keys!(A B C D E);
tuples_of_keys!(A B C D E F);
tuples_of_keys!(A B C D E F G);
tuples_of_keys!(A B C D E F G H);
tuples_of_keys!(A B C D E F G H I);
tuples_of_keys!(A B C D E F G H I J);
tuples_of_keys!(A B C D E F G H I J K);
tuples_of_keys!(A B C D E F G H I J K L);

/// A value that can be given for a field of type `V`: a `V`, and for text a literal.
pub trait IntoField<V> {
    /// The value.
    fn into_field(self) -> V;
}

impl<V> IntoField<V> for V {
    fn into_field(self) -> V {
        self
    }
}

impl IntoField<String> for &str {
    fn into_field(self) -> String {
        self.to_owned()
    }
}

/// A struct with a key for each field: a state, or a part of one. [`state!`](crate::state), [`view!`](crate::view) and
/// [`record!`](macro@crate::record) implement it.
pub trait Record {
    /// The record that the keys belong to: itself, or the state of which it is a view.
    type State;

    /// Its fields as JSON, in order.
    fn write(&self) -> Vec<(&'static str, serde_json::Result<Value>)>;
}

/// The Rust type of the state of a graph. [`state!`](crate::state) implements it.
pub trait GraphState: Record<State = Self> + Default + Clone + Send + Sync + 'static {
    /// `state` as this type.
    ///
    /// # Errors
    /// A sentence that names the field that does not fit.
    fn read(state: &State) -> Result<Self, String>;

    /// Reads `field` of `state` again; fields that this type does not have are left alone.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_again(&mut self, field: &str, state: &State) -> Result<(), String>;

    /// Reads what is new at the end of the list `field`, which is otherwise as it was.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_more(&mut self, field: &str, state: &State) -> Result<(), String> {
        self.read_again(field, state)
    }
}

/// Part of the state `S` that a node wants to see: all of it, as an `S` of its own or as a shared `Arc<S>`, which
/// copies nothing; some fields, as a type that [`view!`](crate::view) makes; or nothing, as `()`.
#[diagnostic::on_unimplemented(
    message = "a node takes the state, an `Arc` of it, or a `view!` of some of its fields, and not `{Self}`",
    note = "a function that returns a `Wait` belongs into `.wait(name, function)`, not into `.node`"
)]
pub trait View<S>: Sized {
    /// Reads this view from `state`.
    ///
    /// # Errors
    /// A sentence that names the field that does not fit.
    fn view(state: &State) -> Result<Self, String>;
}

impl<S> View<S> for () {
    fn view(_: &State) -> Result<Self, String> {
        Ok(())
    }
}

impl<S: GraphState> View<S> for Arc<S> {
    fn view(state: &State) -> Result<Self, String> {
        state.typed()
    }
}

impl<S: GraphState> View<S> for S {
    fn view(state: &State) -> Result<Self, String> {
        state.typed::<S>().map(|state| (*state).clone())
    }
}

/// The field `key` of `state`. What [`state!`](crate::state) reads with.
#[doc(hidden)]
pub fn read_field<S, V: DeserializeOwned>(state: &State, key: FieldKey<S, V>) -> Result<V, String> {
    let value = state.get(key.name).ok_or_else(|| format!("field `{key}` is missing"))?;
    V::deserialize(value).map_err(|_| misfit::<V>(key.name, value))
}

/// How a field is read that has become longer: all of it, but where it is a list.
#[doc(hidden)]
pub trait ReadMore<V> {
    /// Makes `known`, read before, what `state` holds.
    fn read_more(self, known: &mut V, state: &State) -> Result<(), String>;
}

impl<S, V: DeserializeOwned> ReadMore<V> for FieldKey<S, V> {
    fn read_more(self, known: &mut V, state: &State) -> Result<(), String> {
        *known = read_field(state, self)?;
        Ok(())
    }
}

/// The compiler takes these before those of [`ReadMore`].
impl<S, V: DeserializeOwned> FieldKey<S, Vec<V>> {
    /// Reads the items behind those that are `known`.
    #[doc(hidden)]
    pub fn read_more(self, known: &mut Vec<V>, state: &State) -> Result<(), String> {
        let Some(Value::Array(items)) = state.get(self.name) else { return ReadMore::read_more(self, known, state) };
        let more =
            items.get(known.len()..).unwrap_or_default().iter().map(V::deserialize).collect::<Result<Vec<_>, _>>();
        match more {
            Ok(more) => {
                known.extend(more);
                Ok(())
            }
            // It names the item.
            Err(_) => ReadMore::read_more(self, known, state),
        }
    }
}

impl<S, V: DeserializeOwned + Clone> FieldKey<S, Arc<Vec<V>>> {
    /// The same of a list that nodes share.
    #[doc(hidden)]
    pub fn read_more(self, known: &mut Arc<Vec<V>>, state: &State) -> Result<(), String> {
        FieldKey::<S, Vec<V>>::new(self.name).read_more(Arc::make_mut(known), state)
    }
}

/// Message for a `value` that is no `V`, with the path to the part that does not fit.
fn misfit<V: DeserializeOwned>(field: &str, value: &Value) -> String {
    match serde_path_to_error::deserialize::<_, V>(value) {
        Ok(_) => format!("field `{field}` does not fit"),
        Err(error) => match error.path().to_string() {
            path if path == "." => format!("field `{field}`: {}", in_words(error.inner())),
            path if path.starts_with('[') => format!("field `{field}{path}`: {}", in_words(error.inner())),
            path => format!("field `{field}.{path}`: {}", in_words(error.inner())),
        },
    }
}

/// `error` without the types of the language: a caller of a graph sends JSON.
fn in_words(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number from 0",
        "i8" => "a whole number from -128 to 127",
        "i16" => "a whole number from -32768 to 32767",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use dormouse_ports::Map;
    use serde::{Deserialize, Deserializer};
    use serde_json::json;

    use super::*;
    use crate::{Field, FieldType, Reducer, StateSchema};

    thread_local! {
        static READ: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }

    /// A number that notes when it is read.
    #[derive(Clone, Debug, Default, PartialEq, Serialize)]
    struct Noted(u32);

    impl<'de> Deserialize<'de> for Noted {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let number = u32::deserialize(deserializer)?;
            READ.with_borrow_mut(|read| read.push(number));
            Ok(Self(number))
        }
    }

    crate::state! {
        #[derive(Clone, Debug, Default, PartialEq)]
        struct Pair {
            left: Noted,
            right: Noted,
            r#type: String,
            list: Vec<BTreeMap<String, u8>>,
        }
    }

    crate::view! {
        #[derive(Clone, Debug, PartialEq)]
        struct Right of Pair {
            right: Noted,
        }
    }

    fn noted() -> Vec<u32> {
        READ.with_borrow_mut(std::mem::take)
    }

    fn merged(schema: &StateSchema, state: &mut State, update: Update<Pair>) -> Result<(), String> {
        match schema.merge(state, update.untyped().unwrap()) {
            Ok(()) => Ok(()),
            Err(crate::state::MergeFailure::Undeclared(reason)) => Err(reason),
            Err(crate::state::MergeFailure::Reducer { field, reducer, reason }) => {
                Err(format!("field `{field}`, reducer {reducer}: {reason}"))
            }
        }
    }

    #[test]
    fn a_state_is_read_once_and_then_only_what_has_changed() {
        let schema = StateSchema::of::<Pair>().unwrap();
        let mut state = schema.defaults();
        merged(&schema, &mut state, Pair::left.set(Noted(1)).set(Pair::right, Noted(2))).unwrap();
        let first = <Arc<Pair>>::view(&state).unwrap();
        assert_eq!((&first.left, &first.right, noted()), (&Noted(1), &Noted(2), vec![1, 2]));
        assert_eq!((Pair::view(&state).unwrap(), schema.validate(&state)), ((*first).clone(), Ok(())));
        assert_eq!(noted(), [0; 0], "nothing has changed");
        drop(first);
        merged(&schema, &mut state, Pair::right.set(Noted(3))).unwrap();
        assert_eq!((Pair::view(&state).unwrap().right, noted()), (Noted(3), vec![3]));
    }

    crate::state! {
        #[derive(Clone, Debug, Default, PartialEq)]
        struct Lists {
            own: Vec<Noted>,
            shared: Arc<Vec<Noted>>,
        }
    }

    #[test]
    fn of_a_list_that_grows_what_is_new_is_read_and_nothing_is_copied() {
        let schema = StateSchema::of::<Lists>().unwrap();
        let schema = schema.reducer("own", Reducer::Append).reducer("shared", Reducer::Append);
        let mut state = schema.defaults();
        let merge = |state: &mut State, update: Update<Lists>| {
            assert!(schema.merge(state, update.untyped().unwrap()).is_ok());
        };
        let place = |state: &State| ["own", "shared"].map(|field| state.shared(field).map(Arc::as_ptr));
        merge(&mut state, Lists::own.append([Noted(1)]).then(Lists::shared.append([Noted(2), Noted(3)])));
        let (one, other) = (Lists::view(&state).unwrap(), Lists::view(&state).unwrap());
        assert!(Arc::ptr_eq(&one.shared, &other.shared), "nodes share it");
        assert_eq!(noted(), [1, 2, 3]);
        drop((one, other));
        let before = place(&state);
        merge(&mut state, Lists::own.append([Noted(4)]).then(Lists::shared.append([Noted(5)])));
        assert_eq!((Lists::view(&state).unwrap().own.len(), noted()), (2, vec![4, 5]), "only what is new");
        assert_eq!(place(&state), before, "in its place");
        merge(&mut state, Lists::own.append([Noted(6)]).then(Lists::own.append([Noted(7)])));
        assert_eq!(Lists::view(&state).unwrap().own[1..], [Noted(4), Noted(6), Noted(7)]);
    }

    #[test]
    fn what_a_node_still_holds_is_not_changed_behind_its_back() {
        let schema = StateSchema::of::<Pair>().unwrap();
        let mut state = schema.defaults();
        let held = <Arc<Pair>>::view(&state).unwrap();
        let before = state.clone();
        merged(&schema, &mut state, Pair::right.set(Noted(3))).unwrap();
        assert_eq!(<Arc<Pair>>::view(&state).unwrap().right, Noted(3));
        assert_eq!((&held.right, Pair::view(&before).unwrap().right), (&Noted(0), Noted(0)));
    }

    #[test]
    fn a_value_that_does_not_fit_is_named_and_forgotten_when_it_is_replaced() {
        let schema = StateSchema::of::<Pair>().unwrap();
        let mut state = schema.defaults();
        schema.validate(&state).unwrap();
        for (field, value, reason) in [
            (
                "left",
                json!("one"),
                "field `left`: invalid type: string \"one\", expected a whole number from 0 to 4294967295",
            ),
            (
                "list",
                json!([{ "a": 1 }, { "b": 300 }]),
                "field `list[1].b`: invalid value: integer `300`, expected a whole number from 0 to 255",
            ),
            ("list", json!({}), "field `list`: invalid type: map, expected a list"),
        ] {
            state.set(&field.into(), Arc::new(value));
            assert_eq!(schema.validate(&state), Err(reason.to_owned()));
            state.set(&field.into(), Arc::new(schema.defaults().get(field).unwrap().clone()));
            assert_eq!(schema.validate(&state), Ok(()));
        }
    }

    #[test]
    fn a_view_reads_only_its_own_fields_and_writes_only_what_changed() {
        let mut state = StateSchema::of::<Pair>().unwrap().defaults();
        state.set(&"left".into(), Arc::new(json!("no number")));
        noted();
        let right = Right::view(&state).unwrap();
        assert_eq!((&right, noted()), (&Right { right: Noted(0) }, vec![0]));
        assert_eq!(Update::change(&right, |right| right.right = Noted(7)), Pair::right.set(Noted(7)));
        assert_eq!(Update::change(&right, |right| right.right = Noted(0)), Update::none());
        assert!(Pair::view(&state).is_err());
    }

    #[test]
    fn raw_identifiers_are_named_without_their_mark() {
        let schema = StateSchema::of::<Pair>().unwrap();
        let names: Vec<_> = schema.fields().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["left", "right", "type", "list"]);
        assert_eq!((Pair::left, Pair::r#type).names(), ["left".into(), "type".into()]);
    }

    #[test]
    fn setting_and_appending_say_when_the_reducer_does_another_thing() {
        let plain = StateSchema::of::<Pair>().unwrap();
        let growing = StateSchema::of::<Pair>().unwrap().reducer("list", Reducer::Append);
        let one = || BTreeMap::from([("a".to_owned(), 1)]);
        let mut state = growing.defaults();
        merged(&growing, &mut state, Pair::list.append([one()])).unwrap();
        merged(&growing, &mut state, Update::none().reduce(Pair::list, [one()])).unwrap();
        assert_eq!(Pair::view(&state).unwrap().list, [one(), one()]);
        let refused = merged(&growing, &mut state, Pair::list.set(vec![one()])).unwrap_err();
        assert!(refused.contains("reducer append: it would not replace the value"), "{refused}");
        let refused = merged(&plain, &mut plain.defaults(), Pair::list.append([one()])).unwrap_err();
        assert!(refused.contains("reducer last_write_wins: the items would replace the list"), "{refused}");
    }

    #[test]
    fn a_value_without_a_json_form_is_an_error_of_the_node() {
        let keys = BTreeMap::from([(Some((1, 2)), 3)]);
        let update: Update<Pair> = Update::none().reduce(Pair::list, &keys);
        assert!(!update.is_empty());
        let refused = Pair::left.set(Noted(1)).then(update).untyped().unwrap_err();
        assert!(refused.message().starts_with("field `list` has no JSON form"), "{refused}");
    }

    #[test]
    fn a_state_without_a_type_remembers_none() {
        let schema = StateSchema::new().field("left", Field::new(FieldType::Int, 0));
        let state = State::from(Map::from_iter([("left".to_owned(), json!(1))]));
        assert_eq!(schema.owned(state.clone()), state);
        assert_eq!(format!("{state:?}"), r#"{"left": Number(1)}"#);
    }
}
