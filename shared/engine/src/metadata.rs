//! Caller-supplied metadata: which entries may be, and adding to it in the midst of an invocation (observability §3.4).

use std::sync::Arc;

use dormouse_ports::limits::METADATA;
use dormouse_ports::{Category, Map};
use serde_json::Value;

use crate::EngineError;
use crate::ambient::{self, Identity};

/// Prefixes that belong to the framework.
const RESERVED_PREFIXES: [&str; 2] = ["openarmature.", "gen_ai."];

/// Names that the framework itself writes next to the caller's.
const RESERVED_NAMES: [&str; 29] = [
    "attempt_index",
    "branch_name",
    "correlation_id",
    "detached",
    "detached_child_trace_ids",
    "detached_from_invocation_id",
    "entry_node",
    "fan_out_concurrency",
    "fan_out_error_policy",
    "fan_out_index",
    "fan_out_item_count",
    "fan_out_parent_node_name",
    "finish_reason",
    "implementation_name",
    "implementation_version",
    "invocation_id",
    "namespace",
    "parallel_branches_branch_count",
    "parallel_branches_error_policy",
    "parallel_branches_parent_node_name",
    "prompt",
    "prompt_group_name",
    "request_extras",
    "response_id",
    "response_model",
    "spec_version",
    "step",
    "subgraph_name",
    "system",
];

/// Reason for refusing an entry of metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The name belongs to the framework.
    #[error("the metadata key `{0}` is reserved")]
    Reserved(String),
    /// The value is no string, number or boolean, and no list of one of these.
    #[error("the metadata key `{0}` must hold a string, a number, a boolean or a list of one of these")]
    Unsuitable(String),
    /// All of the metadata, with what would be added, is more than there may be.
    #[error("the metadata has {0} bytes of JSON; the limit is {METADATA} bytes")]
    TooLarge(usize),
}

impl From<MetadataError> for EngineError {
    fn from(refused: MetadataError) -> Self {
        let category = match refused {
            MetadataError::Reserved(_) | MetadataError::Unsuitable(_) => Category::RequestInvalid,
            MetadataError::TooLarge(_) => Category::RequestTooLarge,
        };
        Self::new(category, refused.to_string())
    }
}

/// Adds `entries` to the metadata of the present invocation, over those of the same name.
///
/// Everything that runs later in the same line of execution sees them by [`current`](crate::current), observers of
/// later events too; what runs beside it does not. A retry takes back what a failed attempt added. Outside of an
/// invocation nothing happens.
///
/// # Errors
/// If an entry is not allowed; then none is added.
pub fn augment_metadata(entries: Map) -> Result<(), MetadataError> {
    check(&entries)?;
    if entries.is_empty() {
        return Ok(());
    }
    ambient::look(|scope| {
        let before = scope.view.identity();
        let metadata = before.metadata.iter().map(|(name, value)| (name.clone(), value.clone()));
        let metadata: Map = metadata.chain(entries.clone()).collect();
        check_size(&metadata)?;
        scope.view.show(Arc::new(Identity { metadata, ..(*before).clone() }));
        if let Some(attempts) = &scope.attempts {
            attempts.augmented(entries, scope.attempt_index);
        }
        Ok(())
    })
    .unwrap_or(Ok(()))
}

/// Refuses a call with metadata that is not allowed, before it begins.
pub(crate) fn accept(given: &Map) -> Result<(), EngineError> {
    check(given)?;
    Ok(check_size(given)?)
}

fn check_size(metadata: &Map) -> Result<(), MetadataError> {
    // Scalars and lists of them always have a JSON form.
    let size = dormouse_json::length(metadata).unwrap_or(usize::MAX);
    if size > METADATA { Err(MetadataError::TooLarge(size)) } else { Ok(()) }
}

fn check(entries: &Map) -> Result<(), MetadataError> {
    for (name, value) in entries {
        let prefixed = RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if prefixed || RESERVED_NAMES.contains(&name.as_str()) {
            return Err(MetadataError::Reserved(name.clone()));
        }
        if !is_suitable(value) {
            return Err(MetadataError::Unsuitable(name.clone()));
        }
    }
    Ok(())
}

fn is_suitable(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(|item| kind(item).is_some() && kind(item) == kind(&items[0])),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => kind(value).is_some(),
    }
}

/// Number of the kind of a scalar; lists hold one kind only.
fn kind(value: &Value) -> Option<u8> {
    match value {
        Value::Bool(_) => Some(0),
        Value::Number(number) if number.is_f64() => Some(1),
        Value::Number(_) => Some(2),
        Value::String(_) => Some(3),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
