//! The agents that ship. They are made with the same crate as those of anybody else.
//!
//! To add one: write a module with a state struct and a function that compiles the graph, and name it in [`agents`]. The
//! library must not know AWS or HTTP.
#![warn(missing_docs)]

mod chat;
mod expense_approval;
mod export_job;
mod purchase;
mod reminder;

use std::sync::Arc;

use dormouse::{Agent, Agents, AutonomyTier};
use dormouse_engine::NodeError;
use dormouse_ports::InvocationId;

pub use chat::{CHAT, ChatModel, Conversation, ScriptedModel};
pub use expense_approval::{Decision, EXPENSE_APPROVAL, Expense};
pub use export_job::{EXPORT_JOB, Export, ExportStatus};
pub use purchase::{Ballot, PURCHASE, Purchase, Vote, Votes};
pub use reminder::{REMINDER, Reminder};

/// The agents that ship.
pub fn agents() -> Agents {
    let asks = AutonomyTier::ActWithApproval;
    Agents::new()
        .agent(
            Agent::new(|_| chat::graph(Arc::new(ScriptedModel)))
                .description("Answers what a user says in a session, and asks before it does something.")
                .autonomy(asks),
        )
        .agent(
            Agent::new(|_| expense_approval::graph())
                .description("Has an expense approved by a person, with reminders.")
                .autonomy(asks),
        )
        .agent(
            Agent::new(|_| purchase::graph())
                .description("Asks several people about a purchase, until enough agree or one says no.")
                .autonomy(asks),
        )
        .agent(
            Agent::new(|outside| reminder::graph(outside.bus.clone(), outside.clock.clone()))
                .description("Says something at a later time."),
        )
        .agent(
            Agent::new(|outside| export_job::graph(outside.bus.clone()))
                .description("Starts an export and waits for the job to finish."),
        )
}

/// The invocation in which the calling node runs.
fn invocation_id() -> Result<InvocationId, NodeError> {
    let identity = dormouse_engine::current().ok_or_else(|| NodeError::new("a node runs inside an invocation"))?;
    Ok(identity.invocation_id.clone())
}
