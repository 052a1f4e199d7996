//! *Reminder*: sleeps until a time, then says so on the bus.

use std::sync::Arc;

use dormouse_engine::{CompiledGraph, END, EngineError, NodeError, TypedGraph, Update, suspend};
use dormouse_ports::{Category, Clock, Event, EventBus, Map, SignalDescriptor};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::invocation_id;

/// Name of the graph.
pub const REMINDER: &str = "reminder";

/// State of a reminder: `at` or `after` says when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminder {
    /// What to be reminded of.
    pub text: String,
    /// When, as an instant: `2027-01-31T09:00:00Z`.
    pub at: String,
    /// How much later, as an ISO-8601 duration: `PT20S`.
    pub after: String,
    /// When it was sent; empty before.
    pub reminded_at: String,
}

/// `sleep -> remind`.
pub(crate) fn graph(bus: Arc<dyn EventBus>, clock: Arc<dyn Clock>) -> Result<CompiledGraph, EngineError> {
    TypedGraph::<Reminder>::new(REMINDER)
        .version("1")
        .inputs(["text", "at", "after"])
        .entry("sleep")
        .node("sleep", async |reminder: Reminder| Err(suspend(wait(&reminder)?).await))
        .node("remind", move |reminder: Reminder| {
            let (bus, clock) = (bus.clone(), clock.clone());
            async move { remind(&*bus, &*clock, reminder).await }
        })
        .edge("sleep", "remind")
        .edge("remind", END)
        .compile()
}

fn wait(reminder: &Reminder) -> Result<SignalDescriptor, NodeError> {
    // A signal wakes it early, and says nothing.
    let descriptor = SignalDescriptor::new(format!("reminder-{}", invocation_id()?))
        .with("kind", "reminder")
        .with("accepts", json!({ "type": "object", "properties": {} }));
    match (reminder.at.as_str(), reminder.after.as_str()) {
        (at, "") if !at.is_empty() => Ok(descriptor.with("wake_at", at)),
        ("", after) if !after.is_empty() => Ok(descriptor.with("wake_after", after)),
        _ => Err(NodeError::new("give either field `at` or field `after`").with_category(Category::RequestInvalid)),
    }
}

async fn remind(bus: &dyn EventBus, clock: &dyn Clock, reminder: Reminder) -> Result<Update, NodeError> {
    let mut detail = Map::new();
    detail.insert("text".to_owned(), reminder.text.into());
    let (source, detail_type) = ("dormouse.reminder".to_owned(), "Reminder Due".to_owned());
    bus.publish(Event { source, detail_type, detail }).await?;
    Ok(Update::none().with("reminded_at", clock.now().to_string()))
}
