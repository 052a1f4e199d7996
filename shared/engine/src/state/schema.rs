use std::fmt;
use std::sync::Arc;

use dormouse_ports::Map;
use serde_json::Value;

use super::reducer::{CheckedMerge, shape};
use super::typed::GraphState;
use super::update::{FieldContribution, How};
use super::value::Fields;
use super::{Reducer, State, Update};

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// Anything.
    Any,
    /// `true` or `false`.
    Bool,
    /// A number without a fraction.
    Int,
    /// A number.
    Float,
    /// A string.
    Str,
    /// A list with items of this type.
    List(Box<FieldType>),
    /// A mapping with values of this type.
    Mapping(Box<FieldType>),
    /// This type, or null.
    Optional(Box<FieldType>),
}

impl FieldType {
    /// True if `value` is of this type.
    pub fn admits(&self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Bool => value.is_boolean(),
            Self::Int => value.is_i64() || value.is_u64(),
            Self::Float => value.is_number(),
            Self::Str => value.is_string(),
            Self::List(item) => value.as_array().is_some_and(|list| list.iter().all(|v| item.admits(v))),
            Self::Mapping(item) => value.as_object().is_some_and(|map| map.values().all(|v| item.admits(v))),
            Self::Optional(inner) => value.is_null() || inner.admits(value),
        }
    }
}

impl FieldType {
    /// True if its values are lists, or null.
    pub(crate) fn is_list(&self) -> bool {
        match self {
            Self::List(_) => true,
            Self::Optional(inner) => inner.is_list(),
            Self::Any | Self::Bool | Self::Int | Self::Float | Self::Str | Self::Mapping(_) => false,
        }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("anything"),
            Self::Bool => f.write_str("a boolean"),
            Self::Int => f.write_str("an integer"),
            Self::Float => f.write_str("a number"),
            Self::Str => f.write_str("a string"),
            Self::List(item) => write!(f, "a list of {item}"),
            Self::Mapping(item) => write!(f, "a mapping of {item}"),
            Self::Optional(inner) => write!(f, "{inner} or null"),
        }
    }
}

/// A declared field.
#[derive(Clone, Debug)]
pub struct Field {
    /// Type of its values.
    pub field_type: FieldType,
    /// Its value before anything was written.
    pub default: Value,
    /// Rule by which updates are merged into it.
    pub reducer: Reducer,
}

impl Field {
    /// A field of `field_type` that starts as `default` and keeps the last value written.
    pub fn new(field_type: FieldType, default: impl Into<Value>) -> Self {
        Self { field_type, default: default.into(), reducer: Reducer::LastWriteWins }
    }

    /// Sets the reducer.
    #[must_use]
    pub fn reduced_by(mut self, reducer: Reducer) -> Self {
        self.reducer = reducer;
        self
    }
}

/// Treatment of fields that the schema does not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Openness {
    /// They are kept, with the last value written.
    #[default]
    Open,
    /// They are a `state_validation_error`.
    Closed,
}

type StateCheck = Arc<dyn Fn(&State) -> Result<(), String> + Send + Sync>;

/// The declared shape of a graph's state: name, type, default and exactly one reducer per field (graph-engine §2).
#[derive(Clone, Default)]
pub struct StateSchema {
    fields: Fields<Field>,
    version: Arc<str>,
    openness: Openness,
    check: Option<StateCheck>,
    conflicting: Vec<Arc<str>>,
    /// Names that were given a reducer and are no fields.
    unknown: Vec<Arc<str>>,
    defaults: State,
}

impl fmt::Debug for StateSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateSchema").field("version", &self.version).field("fields", &self.fields).finish()
    }
}

impl StateSchema {
    /// A schema without fields, open, without a version.
    pub fn new() -> Self {
        Self::default()
    }

    /// The schema of a Rust type: its fields and defaults are those of `S::default()`, its types are checked by
    /// deserialising, fields that `S` does not have are refused.
    ///
    /// # Errors
    /// If a field of `S::default()` has no JSON form.
    pub fn of<S: GraphState>() -> Result<Self, String> {
        let mut schema = Self { openness: Openness::Closed, ..Self::default() };
        for (name, default) in S::default().write() {
            let default =
                default.map_err(|reason| format!("the default of field `{name}` has no JSON form: {reason}"))?;
            schema = schema.field(name, Field::new(FieldType::Any, default));
        }
        schema.check = Some(Arc::new(|state| state.typed::<S>().map(drop)));
        Ok(schema)
    }

    /// Declares `field`. Declaring a name twice is a `conflicting_reducers` compile error.
    #[must_use]
    pub fn field(mut self, name: impl Into<Arc<str>>, field: Field) -> Self {
        let name = name.into();
        self.defaults.set(&name, Arc::new(field.default.clone()));
        if self.fields.insert(name.clone(), field).is_some() {
            self.conflicting.push(name);
        }
        self
    }

    /// Sets the reducer of the field `name`, which was declared before.
    #[must_use]
    pub fn reducer(mut self, name: &str, reducer: Reducer) -> Self {
        match self.fields.get_mut(name) {
            Some(field) => field.reducer = reducer,
            None => self.unknown.push(name.into()),
        }
        self
    }

    /// Marks `name` as declared with more than one reducer.
    #[must_use]
    pub fn conflicting(mut self, name: impl Into<Arc<str>>) -> Self {
        self.conflicting.push(name.into());
        self
    }

    /// Sets the schema version, which stored state carries (pipeline-utilities §10.2).
    #[must_use]
    pub fn with_version(mut self, version: impl Into<Arc<str>>) -> Self {
        self.version = version.into();
        self
    }

    /// The schema version; empty when none was declared.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The declared fields in order.
    pub fn fields(&self) -> impl Iterator<Item = (&Arc<str>, &Field)> {
        self.fields.iter()
    }

    /// True if `name` is declared.
    pub fn declares(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// The fields that only grow at their end.
    pub(crate) fn growing(&self) -> Vec<Arc<str>> {
        let growing = self.fields.iter().filter(|(_, field)| field.reducer.only_appends());
        growing.map(|(name, _)| name.clone()).collect()
    }

    /// The state in which every field has its default.
    pub fn defaults(&self) -> State {
        self.owned(self.defaults.clone())
    }

    /// `state`, which remembers from here on what it is as the Rust type of this schema, if there is one.
    pub(crate) fn owned(&self, state: State) -> State {
        if self.check.is_some() { state.memoised() } else { state }
    }

    pub(crate) fn conflicts(&self) -> &[Arc<str>] {
        &self.conflicting
    }

    pub(crate) fn unknown(&self) -> &[Arc<str>] {
        &self.unknown
    }

    pub(crate) fn get(&self, name: &str) -> Option<(&Arc<str>, &Field)> {
        self.fields.get_full(name).map(|(_, name, field)| (name, field))
    }

    /// Checks every field of `state` (graph-engine §2).
    ///
    /// # Errors
    /// A sentence that names each field that does not fit and the type that it should have.
    pub fn validate(&self, state: &State) -> Result<(), String> {
        let mut wrong = Vec::new();
        for (name, field) in &self.fields {
            match state.get(name) {
                None => wrong.push(format!("field `{name}` is missing")),
                Some(value) if !field.field_type.admits(value) => {
                    wrong.push(format!("field `{name}` must be {}, not {}", field.field_type, shape(value)));
                }
                Some(_) => {}
            }
        }
        if self.openness == Openness::Closed {
            wrong.extend(state.iter().filter(|(name, _)| !self.declares(name)).map(|(name, _)| undeclared(name)));
        }
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        self.check.as_ref().map_or(Ok(()), |check| check(state))
    }

    /// Merges `update` into `state` through the reducers; on an error `state` is as it was.
    pub(crate) fn merge(&self, state: &mut State, update: Update) -> Result<(), MergeFailure> {
        let updates = update.into_sequence();
        if self.builds_on_itself(&updates) {
            let mut merged = state.clone();
            updates.into_iter().try_for_each(|fields| self.merge_fields(&mut merged, fields))?;
            *state = merged;
            return Ok(());
        }
        // Nobody else holds the values then, so that lists grow in place.
        self.merge_fields(state, updates.into_iter().flatten().collect())
    }

    /// True if one of `updates` is reduced with what an earlier one made of its field.
    fn builds_on_itself(&self, updates: &[Vec<FieldContribution>]) -> bool {
        let is_reduced =
            |name: &str| self.get(name).is_some_and(|(_, field)| !matches!(field.reducer, Reducer::LastWriteWins));
        let mut reduced = Vec::new();
        updates.iter().flatten().filter(|part| is_reduced(&part.field)).any(|part| {
            let is_known = reduced.contains(&&part.field);
            reduced.push(&part.field);
            is_known
        })
    }

    /// Changes nothing before all of `fields` are known to fit.
    fn merge_fields(&self, state: &mut State, mut fields: Vec<FieldContribution>) -> Result<(), MergeFailure> {
        let last = fields.pop();
        let mut changes = Vec::with_capacity(fields.len());
        for part in fields {
            changes.push(self.prepare(state, part)?);
        }
        let last = last.map(|part| self.prepare(state, part)).transpose()?;
        for (name, change) in changes.into_iter().chain(last) {
            let slot = if change.only_adds() { state.longer_slot(name) } else { state.slot(name) };
            change.apply(slot);
        }
        Ok(())
    }

    fn prepare(&self, state: &State, part: FieldContribution) -> Result<(Arc<str>, CheckedMerge), MergeFailure> {
        let FieldContribution { field: name, value, how } = part;
        let Some((declared, field)) = self.get(&name) else {
            return match self.openness {
                Openness::Open => Ok((name, CheckedMerge::Replace(value))),
                Openness::Closed => Err(MergeFailure::Undeclared(undeclared(&name))),
            };
        };
        let prior = state.get(declared).unwrap_or(&field.default);
        match fits(how, &field.reducer).and_then(|()| field.reducer.prepare(prior, value)) {
            Ok(change) => Ok((declared.clone(), change)),
            Err(reason) => {
                Err(MergeFailure::Reducer { field: declared.clone(), reducer: field.reducer.name().into(), reason })
            }
        }
    }

    /// Reason for which the state in which every field has its default cannot be given `value` for `field`. Where these
    /// defaults do not fit themselves, and where what there is decides whether a value joins it, nobody knows.
    pub(crate) fn refusal_of(&self, field: &str, value: impl Into<Value>) -> Option<String> {
        let depends = |declared: &Field| match declared.reducer {
            Reducer::LastWriteWins => false,
            Reducer::Custom { .. } => true,
            Reducer::Append
            | Reducer::Merge
            | Reducer::ConcatFlatten
            | Reducer::MergeAll
            | Reducer::BoundedAppend { .. }
            | Reducer::DedupeAppend { .. }
            | Reducer::MergeByKey { .. } => declared.default.is_null(),
        };
        let mut state = self.defaults();
        if self.validate(&state).is_err() || self.get(field).is_some_and(|(_, declared)| depends(declared)) {
            return None;
        }
        match self.merge(&mut state, Update::none().with(field, value)) {
            Err(MergeFailure::Undeclared(reason) | MergeFailure::Reducer { reason, .. }) => Some(reason),
            Ok(()) => self.validate(&state).err(),
        }
    }

    /// True if fields that it does not declare are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.openness == Openness::Closed
    }

    /// The declared fields among `fields`; the others are dropped (suspension §6).
    pub(crate) fn only_declared(&self, fields: Map) -> Map {
        fields.into_iter().filter(|(name, _)| self.declares(name)).collect()
    }
}

/// Reason for which an update could not be merged.
pub(crate) enum MergeFailure {
    Undeclared(String),
    Reducer { field: Arc<str>, reducer: Arc<str>, reason: String },
}

fn undeclared(name: &str) -> String {
    format!("field `{name}` is not declared")
}

/// Checks that `reducer` does what a contribution relies on.
fn fits(how: How, reducer: &Reducer) -> Result<(), String> {
    let replaces = matches!(reducer, Reducer::LastWriteWins);
    match how {
        How::Replace if !replaces => {
            Err("it would not replace the value: contribute with `append` or `reduce` instead of `set` or `change`"
                .into())
        }
        How::Append if replaces => {
            Err("the items would replace the list: give the field a reducer that appends, or `set` the whole list"
                .into())
        }
        How::Reduce | How::Replace | How::Append => Ok(()),
    }
}
