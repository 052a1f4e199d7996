//! The agents that ship. They are made with the same crate as those of other authors.
//!
//! To add one: write a module with a state struct and a function that compiles the graph, and name it in [`agents`].
//! The library must not know AWS or HTTP.
#![warn(missing_docs)]

mod chat;
mod expense_approval;
mod export_job;
mod purchase;
mod reminder;

use std::sync::Arc;

use dormouse::{Agent, Agents, AutonomyTier, Category, Delay, FieldKey, NodeError};

pub use chat::{CHAT, ChatModel, Conversation, ScriptedModel};
pub use expense_approval::{EXPENSE_APPROVAL, Expense, ExpenseDecision};
pub use export_job::{EXPORT_JOB, Export, ExportStatus};
pub use purchase::{Ballot, PURCHASE, Purchase, Vote};
pub use reminder::{REMINDER, Reminder};

/// A tour of them, which local mode prints. Its commands need `curl`, `grep` and `cut` only, and the same lines work
/// again after a restart.
const TOUR: &str = include_str!("tour.txt");

/// The agents that ship.
pub fn agents() -> Agents {
    let asks = AutonomyTier::ActWithApproval;
    Agents::new()
        .with_tour(TOUR)
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
            Agent::recorded(|outside| reminder::graph(outside.bus.clone(), outside.clock.clone()))
                .description("Says something at a later time."),
        )
        .agent(
            Agent::recorded(|outside| export_job::graph(outside.bus.clone()))
                .description("Starts an export and waits for the job to finish."),
        )
}

/// The refusal of a request with a state that makes no sense.
fn refuse(message: String) -> NodeError {
    NodeError::new(message).with_category(Category::RequestInvalid)
}

fn must_be<S, V>(field: FieldKey<S, V>, what: &str) -> NodeError {
    refuse(format!("field `{field}` must be {what}"))
}

/// An amount of cents, as people read it.
fn euros(cents: u64) -> String {
    format!("EUR {}.{:02}", cents / 100, cents % 100)
}

/// The delay in `text`, the value of `field`; none when it is empty.
fn delay<S>(field: FieldKey<S, String>, text: &str) -> Result<Option<Delay>, NodeError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|reason| refuse(format!("field `{field}`: {reason}")))
}
