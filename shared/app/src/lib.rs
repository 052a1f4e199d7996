//! The graphs that ship, and the one registry that every function links: any function may resume any graph.
//!
//! To add a graph: write a module with a state struct and a function that compiles the graph, and name it in
//! [`registry`]. The crate imports the engine and the ports and must not know AWS or HTTP.
#![warn(missing_docs)]

mod chat;
mod expense_approval;
mod export_job;
mod purchase;
mod reminder;

use std::sync::Arc;

use dormouse_engine::{EngineError, NodeError};
use dormouse_harness::GraphRegistry;
use dormouse_ports::{Clock, EventBus, InvocationId};

pub use chat::{CHAT, ChatModel, Conversation, ScriptedModel};
pub use expense_approval::{Decision, EXPENSE_APPROVAL, Expense};
pub use export_job::{EXPORT_JOB, Export, ExportStatus};
pub use purchase::{Ballot, PURCHASE, Purchase, Vote, Votes};
pub use reminder::{REMINDER, Reminder};

/// All graphs that ship, on what they need from outside.
///
/// # Errors
/// A compile error of one of them: a mistake in this crate.
pub fn registry(bus: Arc<dyn EventBus>, clock: Arc<dyn Clock>) -> Result<GraphRegistry, EngineError> {
    Ok(GraphRegistry::new([
        Arc::new(expense_approval::graph()?),
        Arc::new(export_job::graph(bus.clone())?),
        Arc::new(purchase::graph()?),
        Arc::new(reminder::graph(bus, clock)?),
        Arc::new(chat::graph(Arc::new(ScriptedModel))?),
    ]))
}

/// The invocation in which the calling node runs.
fn invocation_id() -> Result<InvocationId, NodeError> {
    let identity = dormouse_engine::current().ok_or_else(|| NodeError::new("a node runs inside an invocation"))?;
    Ok(identity.invocation_id.clone())
}
