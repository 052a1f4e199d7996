use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use dormouse_ports::Map;
use serde::Serialize;
use serde_json::Value;

use super::typed::{FieldKey, IntoField, List, Record};
use crate::NodeError;

/// A node's partial update: new values for some fields (graph-engine §2).
///
/// An `Update<S>` is one of the state `S`, by the keys that [`state!`](crate::state) gives its fields; a field that `S`
/// does not have, or a value of another type, does not compile:
///
/// ```
/// dormouse_engine::state! {
///     #[derive(Clone, Debug, Default)]
///     struct Order {
///         paid: bool,
///         log: Vec<String>,
///     }
/// }
/// use dormouse_engine::Update;
///
/// let update = Update::none().set(Order::paid, true).append(Order::log, ["paid"]);
/// assert_eq!(update, Order::paid.set(true).append(Order::log, ["paid"]));
/// ```
///
/// ```compile_fail,E0599
/// dormouse_engine::state! {
///     #[derive(Clone, Debug, Default)]
///     struct Order {
///         paid: bool,
///     }
/// }
/// let update = dormouse_engine::Update::none().set(Order::payed, true);
/// ```
///
/// An `Update` without a type is one of a state that is only known at run time, by name.
///
/// The contributions of a fan-out or of parallel branches are a sequence of updates that are merged one after the other
/// ([`then`](Self::then)); reading and adding fields concerns the first of them.
pub struct Update<S = Untyped> {
    fields: Vec<FieldContribution>,
    then: Vec<Update>,
    /// Reason for which a value has no JSON form.
    unwritable: Option<Box<str>>,
    state: PhantomData<fn(S)>,
}

/// Stands where the type of a state is only known at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untyped {}

/// The contribution to one field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FieldContribution {
    pub(super) field: Arc<str>,
    pub(super) value: Value,
    pub(super) how: How,
}

/// Demand of a contribution on the reducer of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Reduces the value, as the reducer does.
    Reduce,
    /// Makes the value the field's own.
    Replace,
    /// Adds the items of the value to those that are there.
    Append,
}

impl Update {
    /// A field to which it appends.
    pub(crate) fn appended(&self) -> Option<&str> {
        self.fields.iter().find(|one| one.how == How::Append).map(|one| &*one.field)
    }
}

impl<S> Update<S> {
    /// An update that changes nothing.
    pub fn none() -> Self {
        Self { fields: Vec::new(), then: Vec::new(), unwritable: None, state: PhantomData }
    }

    /// Gives `field` the new value `value`. The field must have no reducer: see [`append`](Self::append) and
    /// [`reduce`](Self::reduce).
    #[must_use]
    pub fn set<V: Serialize>(self, field: FieldKey<S, V>, value: impl IntoField<V>) -> Self {
        self.put(field.name(), serde_json::to_value(value.into_field()), How::Replace)
    }

    /// Adds `items` to the list `field`, which must have a reducer that takes a list of items.
    #[must_use]
    pub fn append<L, I>(self, field: FieldKey<S, L>, items: I) -> Self
    where
        L: List<Item: Serialize>,
        I: IntoIterator,
        I::Item: IntoField<L::Item>,
    {
        let items = items.into_iter().map(|item| serde_json::to_value(item.into_field())).collect();
        self.put(field.name(), items, How::Append)
    }

    /// Hands `value` to the reducer of `field`, in the form that the reducer takes.
    #[must_use]
    pub fn reduce<V>(self, field: FieldKey<S, V>, value: impl Serialize) -> Self {
        self.put(field.name(), serde_json::to_value(value), How::Reduce)
    }

    /// The update that `change` makes of `before`: the fields with another JSON afterwards. It writes both, so that
    /// [`set`](Self::set) costs less where a record is large.
    ///
    /// ```
    /// # dormouse_engine::state! {
    /// #     #[derive(Clone, Debug, Default)]
    /// #     struct Order {
    /// #         paid: bool,
    /// #         note: String,
    /// #     }
    /// # }
    /// use dormouse_engine::Update;
    ///
    /// let order = Order { note: "by hand".to_owned(), ..Order::default() };
    /// assert_eq!(Update::change(&order, |order| order.paid = true), Order::paid.set(true));
    /// ```
    pub fn change<R: Record<State = S> + Clone>(before: &R, change: impl FnOnce(&mut R)) -> Self {
        let mut after = before.clone();
        change(&mut after);
        before.write().into_iter().zip(after.write()).fold(Self::none(), |update, (before, after)| {
            match (before, after) {
                ((_, Ok(before)), (_, Ok(after))) if before == after => update,
                (_, (field, after)) => update.put(field, after, How::Replace),
            }
        })
    }

    /// Merges `update` after this one.
    #[must_use]
    pub fn then(mut self, update: Self) -> Self {
        if let Some(reason) = &update.unwritable {
            self.unwritable.get_or_insert_with(|| reason.clone());
        }
        if !update.is_empty() {
            self.then.push(Update { fields: update.fields, then: update.then, unwritable: None, state: PhantomData });
        }
        self
    }

    /// The value for `field`, if the update has one.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.iter().find(|part| *part.field == *field).map(|part| &part.value)
    }

    /// The changed fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        self.fields.iter().map(|part| (&part.field, &part.value))
    }

    /// True if it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.then.is_empty() && self.unwritable.is_none()
    }

    /// The same for the engine, which knows fields by name.
    pub(crate) fn untyped(self) -> Result<Update, NodeError> {
        match self.unwritable {
            Some(reason) => Err(NodeError::new(reason)),
            None => Ok(Update { fields: self.fields, then: self.then, unwritable: None, state: PhantomData }),
        }
    }

    fn put(mut self, field: &str, value: serde_json::Result<Value>, how: How) -> Self {
        match value {
            Ok(value) => self.insert(field.into(), value, how),
            Err(reason) => {
                self.unwritable.get_or_insert_with(|| format!("field `{field}` has no JSON form: {reason}").into());
            }
        }
        self
    }

    fn insert(&mut self, field: Arc<str>, value: Value, how: How) {
        match self.fields.iter_mut().find(|part| part.field == field) {
            Some(earlier) => (earlier.value, earlier.how) = (value, how),
            None => self.fields.push(FieldContribution { field, value, how }),
        }
    }
}

impl Update {
    /// Adds a new value for `field`.
    #[must_use]
    pub fn with(mut self, field: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.insert(field.into(), value.into(), How::Reduce);
        self
    }

    /// Adds a new value for `field` from anything that serialises.
    ///
    /// # Errors
    /// If `value` has no JSON form, for example a map with keys that are not strings.
    pub fn try_with(self, field: impl Into<Arc<str>>, value: impl Serialize) -> Result<Self, NodeError> {
        Ok(self.with(field, serde_json::to_value(value)?))
    }

    /// The fields of each update of the sequence that it is, in the order in which they are merged.
    pub(super) fn into_sequence(self) -> Vec<Vec<FieldContribution>> {
        let mut sequence = vec![self.fields];
        sequence.extend(self.then.into_iter().flat_map(Self::into_sequence));
        sequence
    }
}

impl<S> Clone for Update<S> {
    fn clone(&self) -> Self {
        let fields = self.fields.clone();
        let then = self.then.clone();
        let unwritable = self.unwritable.clone();
        Self { fields, then, unwritable, state: PhantomData }
    }
}

impl<S> Default for Update<S> {
    fn default() -> Self {
        Self::none()
    }
}

impl<S> fmt::Debug for Update<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut update = f.debug_struct("Update");
        update.field("fields", &self.fields).field("then", &self.then);
        match &self.unwritable {
            Some(reason) => update.field("unwritable", reason).finish(),
            None => update.finish(),
        }
    }
}

impl<S> PartialEq for Update<S> {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields && self.then == other.then && self.unwritable == other.unwritable
    }
}

impl From<Map> for Update {
    fn from(map: Map) -> Self {
        map.into_iter().fold(Self::none(), |update, (name, value)| update.with(name, value))
    }
}

impl FromIterator<(Arc<str>, Value)> for Update {
    /// Of several values for one field, the last counts.
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Value)>>(fields: I) -> Self {
        fields.into_iter().fold(Self::none(), |update, (name, value)| update.with(name, value))
    }
}
