//! Graphs: built by name, compiled once, immutable and shared afterwards (graph-engine §2).

mod branches;
mod builder;
mod compile;
mod compiled;
mod fan_out;
mod migrations;
mod outline;
mod session;
mod subgraph;
mod typed;

pub use branches::{Branch, ParallelBranches, When};
pub use builder::{GraphBuilder, UpgradePolicy};
pub use compiled::{CompiledGraph, MakeTwin, Twin};
pub(crate) use compiled::{CompiledNode, Edge, Work};
pub use fan_out::{Amount, Compute, ErrorPolicy, FanOut, OnEmpty};
pub(crate) use migrations::Migrated;
pub use migrations::{Migrate, Migrations};
pub use outline::{GraphOutline, NextNode, NodeKind, NodeOutline};
pub use session::{SessionConcurrency, SessionPolicy};
pub use subgraph::Projection;
pub use typed::Graph;

use std::sync::Arc;

use dormouse_ports::Category;
use serde_json::json;

use crate::{EngineError, StateSchema};

/// Checks that each schema declares its field.
fn check_declared<'f>(
    node: &str,
    fields: impl Iterator<Item = (&'f StateSchema, &'f Arc<str>)>,
) -> Result<(), EngineError> {
    for (schema, field) in fields {
        if !schema.declares(field) {
            let message = format!("node `{node}` refers to field `{field}`, which is not declared");
            return Err(EngineError::new(Category::MappingReferencesUndeclaredField, message));
        }
    }
    Ok(())
}

/// Checks that `field` can take the errors of failed parts, each of which is named by its `part`: before one fails, nobody
/// would see that it cannot.
fn check_takes_errors(node: &str, schema: &StateSchema, field: &str, part: &str) -> Result<(), EngineError> {
    let record = json!({ part: "0", "category": Category::NodeException.as_str() });
    match schema.refusal_of(field, json!([record])) {
        None => Ok(()),
        Some(reason) => {
            let message =
                format!("node `{node}`: the errors field `{field}` must take items such as {record}: {reason}");
            Err(EngineError::new(Category::StateValidationError, message))
        }
    }
}

/// Refuses parts whose errors are collected where one of them waits (suspension §9).
fn check_waits_nowhere(node: &str, waiting: Option<String>) -> Result<(), EngineError> {
    match waiting {
        None => Ok(()),
        Some(waiting) => {
            let message = format!(
                "node `{node}` collects the errors of what it runs at once, and {waiting}, in one of them, waits, which it may \
                 not there: wait in a node of its own, or let it fail fast"
            );
            Err(EngineError::new(Category::SuspensionInUnsupportedContext, message))
        }
    }
}

/// True if merging the value of `field` into itself would change it.
fn doubles(schema: &StateSchema, field: &str) -> bool {
    schema.get(field).is_some_and(|(_, field)| !field.reducer.is_round_trip_idempotent())
}
