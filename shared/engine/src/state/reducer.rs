use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dormouse_ports::Map;
use serde_json::Value;

/// Extracts the key of a list item.
pub type KeyFn = Arc<dyn Fn(&Value) -> Result<Value, String> + Send + Sync>;

/// A custom reducer: prior value and update in, merged value out.
pub type ReduceFn = Arc<dyn Fn(&Value, Value) -> Result<Value, String> + Send + Sync>;

/// Rule by which an update is merged into a field (graph-engine §2). No reducer guesses from the shape of a value: a
/// wrong shape is a `reducer_error`.
#[derive(Clone, Default)]
pub enum Reducer {
    /// The new value replaces the old one.
    #[default]
    LastWriteWins,
    /// The update's items follow the prior items.
    Append,
    /// The update's entries replace or join the prior entries.
    Merge,
    /// The update is a list of lists; their items follow the prior items.
    ConcatFlatten,
    /// The update is a list of mappings, merged one after the other.
    MergeAll,
    /// As `Append`, then the oldest items go until `max_len` are left. An empty update changes nothing.
    BoundedAppend {
        /// Most items that stay; at least 1.
        max_len: i64,
    },
    /// As `Append`, without items that have a key that is there already.
    DedupeAppend {
        /// Key of an item; the item itself when absent.
        key: Option<KeyFn>,
    },
    /// Items with a key that is there replace in place (of prior duplicates the last), the others are appended.
    MergeByKey {
        /// Key of an item; must be given.
        key: Option<KeyFn>,
    },
    /// The application's own.
    Custom {
        /// Its name in errors.
        name: Arc<str>,
        /// Its function.
        reduce: ReduceFn,
    },
}

impl fmt::Debug for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A merge that is known to succeed: shapes were checked, nothing was changed yet.
pub(crate) enum CheckedMerge {
    Nothing,
    Replace(Value),
    Extend { items: Vec<Value>, keep_last: Option<usize> },
    Entries(Vec<Map>),
    Records { replaced: Vec<(usize, Value)>, added: Vec<Value> },
}

impl Reducer {
    /// A key function that reads the member `field` of an item that is a mapping.
    pub fn key_field(field: impl Into<String>) -> KeyFn {
        let field = field.into();
        Arc::new(move |item| item.get(&field).cloned().ok_or_else(|| format!("an item has no member `{field}`")))
    }

    /// The specification's name.
    pub fn name(&self) -> &str {
        match self {
            Self::LastWriteWins => "last_write_wins",
            Self::Append => "append",
            Self::Merge => "merge",
            Self::ConcatFlatten => "concat_flatten",
            Self::MergeAll => "merge_all",
            Self::BoundedAppend { .. } => "bounded_append",
            Self::DedupeAppend { .. } => "dedupe_append",
            Self::MergeByKey { .. } => "merge_by_key",
            Self::Custom { name, .. } => name,
        }
    }

    /// True if the prior items always stay as they are and where they are.
    pub(crate) fn only_appends(&self) -> bool {
        match self {
            Self::Append | Self::ConcatFlatten | Self::DedupeAppend { .. } => true,
            Self::LastWriteWins
            | Self::Merge
            | Self::MergeAll
            | Self::BoundedAppend { .. }
            | Self::MergeByKey { .. }
            | Self::Custom { .. } => false,
        }
    }

    /// True if merging a value that is merged already changes nothing (graph-engine §2, round-trip warning).
    pub fn is_round_trip_idempotent(&self) -> bool {
        match self {
            Self::LastWriteWins | Self::Merge | Self::MergeByKey { .. } | Self::DedupeAppend { .. } => true,
            Self::Append | Self::ConcatFlatten | Self::MergeAll | Self::BoundedAppend { .. } => false,
            Self::Custom { .. } => true,
        }
    }

    /// True if an update that is a list of items joins those that are there; of the application's own nobody knows.
    pub(crate) fn extends_lists(&self) -> bool {
        match self {
            Self::Append | Self::BoundedAppend { .. } | Self::DedupeAppend { .. } | Self::MergeByKey { .. } => true,
            Self::LastWriteWins | Self::Merge | Self::ConcatFlatten | Self::MergeAll => false,
            Self::Custom { .. } => true,
        }
    }

    /// True if an update is of entries, each of which takes the place of one that is there or joins them.
    pub(crate) fn merges_entries(&self) -> bool {
        matches!(self, Self::Merge | Self::MergeAll)
    }

    /// Reason for which the parameters make no sense, if they do not (`reducer_configuration_invalid`).
    pub(crate) fn misconfiguration(&self) -> Option<String> {
        match self {
            Self::BoundedAppend { max_len } if *max_len < 1 => {
                Some(format!("bounded_append needs max_len of at least 1, not {max_len}"))
            }
            Self::MergeByKey { key: None } => Some("merge_by_key needs a key".to_owned()),
            Self::LastWriteWins
            | Self::Append
            | Self::Merge
            | Self::ConcatFlatten
            | Self::MergeAll
            | Self::BoundedAppend { .. }
            | Self::DedupeAppend { .. }
            | Self::MergeByKey { .. }
            | Self::Custom { .. } => None,
        }
    }

    /// What a value must be for it to be merged into, if `default` is that not. Null may become it.
    pub(crate) fn lacks(&self, default: &Value) -> Option<&'static str> {
        let (needed, is_that) = match self {
            Self::LastWriteWins | Self::Custom { .. } => return None,
            Self::Append
            | Self::ConcatFlatten
            | Self::BoundedAppend { .. }
            | Self::DedupeAppend { .. }
            | Self::MergeByKey { .. } => ("a list", default.is_array()),
            Self::Merge | Self::MergeAll => ("a mapping", default.is_object()),
        };
        (!is_that && !default.is_null()).then_some(needed)
    }

    /// Checks that `update` can be merged into `prior` and returns the change, without making it. Code of the
    /// application that panics has failed.
    pub(crate) fn prepare(&self, prior: &Value, update: Value) -> Result<CheckedMerge, String> {
        let prepared = catch_unwind(AssertUnwindSafe(|| self.prepared(prior, update)));
        prepared.unwrap_or_else(|_| Err("it panicked".to_owned()))
    }

    fn prepared(&self, prior: &Value, update: Value) -> Result<CheckedMerge, String> {
        match self {
            Self::LastWriteWins => Ok(CheckedMerge::Replace(update)),
            Self::Append => {
                list_of(prior, "the prior value")?;
                extend(into_list(update, "the update")?, None)
            }
            Self::Merge => {
                mapping_of(prior, "the prior value")?;
                Ok(CheckedMerge::Entries(vec![into_mapping(update, "the update")?]))
            }
            Self::ConcatFlatten => {
                list_of(prior, "the prior value")?;
                let lists = into_list(update, "the update")?;
                let lists: Vec<_> =
                    lists.into_iter().map(|l| into_list(l, "an element of the update")).collect::<Result<_, _>>()?;
                extend(lists.concat(), None)
            }
            Self::MergeAll => {
                mapping_of(prior, "the prior value")?;
                let maps = into_list(update, "the update")?;
                let maps = maps.into_iter().map(|m| into_mapping(m, "an element of the update"));
                Ok(CheckedMerge::Entries(maps.collect::<Result<_, _>>()?))
            }
            Self::BoundedAppend { max_len } => {
                list_of(prior, "the prior value")?;
                extend(into_list(update, "the update")?, usize::try_from(*max_len).ok())
            }
            Self::DedupeAppend { key } => dedupe(list_of(prior, "the prior value")?, update, key.as_ref()),
            Self::MergeByKey { key } => {
                let key = key.as_ref().ok_or("merge_by_key needs a key")?;
                by_key(list_of(prior, "the prior value")?, update, key)
            }
            Self::Custom { reduce, .. } => reduce(prior, update).map(CheckedMerge::Replace),
        }
    }
}

impl CheckedMerge {
    /// True if what was there stays as it is, at the beginning of what is there then.
    pub(crate) fn only_adds(&self) -> bool {
        match self {
            Self::Nothing | Self::Extend { keep_last: None, .. } => true,
            Self::Replace(_) | Self::Extend { keep_last: Some(_), .. } | Self::Entries(_) | Self::Records { .. } => {
                false
            }
        }
    }

    /// Carries the change out, in place where the value is held nowhere else.
    pub(crate) fn apply(self, slot: &mut Arc<Value>) {
        match self {
            Self::Nothing => {}
            Self::Replace(value) => match Arc::get_mut(slot) {
                Some(own) => *own = value,
                None => *slot = Arc::new(value),
            },
            Self::Extend { items, keep_last } => {
                if let Value::Array(list) = longer(slot, items.len()) {
                    list.extend(items);
                    let excess = keep_last.map_or(0, |most| list.len().saturating_sub(most));
                    list.drain(..excess);
                }
            }
            Self::Entries(maps) => {
                if let Value::Object(entries) = Arc::make_mut(slot) {
                    entries.extend(maps.into_iter().flatten());
                }
            }
            Self::Records { replaced, added } => {
                if let Value::Array(list) = Arc::make_mut(slot) {
                    for (index, item) in replaced {
                        list[index] = item;
                    }
                    list.extend(added);
                }
            }
        }
    }
}

/// The value of `slot` for a change; a list that others hold too is copied with room for `more` items.
fn longer(slot: &mut Arc<Value>, more: usize) -> &mut Value {
    if Arc::get_mut(slot).is_none()
        && let Value::Array(list) = &**slot
    {
        let mut copy = Vec::with_capacity(list.len() + more);
        copy.extend_from_slice(list);
        *slot = Arc::new(Value::Array(copy));
    }
    Arc::make_mut(slot)
}

fn extend(items: Vec<Value>, keep_last: Option<usize>) -> Result<CheckedMerge, String> {
    Ok(if items.is_empty() { CheckedMerge::Nothing } else { CheckedMerge::Extend { items, keep_last } })
}

fn dedupe(prior: &[Value], update: Value, key: Option<&KeyFn>) -> Result<CheckedMerge, String> {
    let key_of = |item: &Value| hashable(&key.map_or_else(|| Ok(item.clone()), |key| key(item))?);
    let items = into_list(update, "the update")?;
    if items.is_empty() {
        return Ok(CheckedMerge::Nothing);
    }
    let mut seen = prior.iter().map(key_of).collect::<Result<HashSet<_>, _>>()?;
    let mut fresh = Vec::new();
    for item in items {
        if seen.insert(key_of(&item)?) {
            fresh.push(item);
        }
    }
    extend(fresh, None)
}

fn by_key(prior: &[Value], update: Value, key: &KeyFn) -> Result<CheckedMerge, String> {
    let items = into_list(update, "the update")?;
    if items.is_empty() {
        return Ok(CheckedMerge::Nothing);
    }
    let mut index = HashMap::new();
    for (at, item) in prior.iter().enumerate() {
        index.insert(hashable(&key(item)?)?, at);
    }
    let mut replaced = Vec::new();
    let mut added = Vec::new();
    for item in items {
        match index.entry(hashable(&key(&item)?)?) {
            std::collections::hash_map::Entry::Occupied(at) if *at.get() < prior.len() => {
                replaced.push((*at.get(), item));
            }
            std::collections::hash_map::Entry::Occupied(at) => added[*at.get() - prior.len()] = item,
            std::collections::hash_map::Entry::Vacant(slot) => {
                slot.insert(prior.len() + added.len());
                added.push(item);
            }
        }
    }
    Ok(CheckedMerge::Records { replaced, added })
}

/// A key in comparable form: its JSON text. Lists and mappings are no keys.
fn hashable(key: &Value) -> Result<String, String> {
    match key {
        Value::Array(_) | Value::Object(_) => Err(format!("a key must be a scalar, not {}", shape(key))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(key.to_string()),
    }
}

fn list_of<'v>(value: &'v Value, what: &str) -> Result<&'v [Value], String> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{what} must be a list, not {}", shape(value)))
}

fn mapping_of<'v>(value: &'v Value, what: &str) -> Result<&'v Map, String> {
    value.as_object().ok_or_else(|| format!("{what} must be a mapping, not {}", shape(value)))
}

fn into_list(value: Value, what: &str) -> Result<Vec<Value>, String> {
    list_of(&value, what)?;
    match value {
        Value::Array(list) => Ok(list),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => Ok(Vec::new()),
    }
}

fn into_mapping(value: Value, what: &str) -> Result<Map, String> {
    mapping_of(&value, what)?;
    match value {
        Value::Object(map) => Ok(map),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Ok(Map::new()),
    }
}

/// Name of the shape of `value` for a person.
pub(crate) fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(n) if n.is_f64() => "a fraction",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
