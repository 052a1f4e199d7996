//! *Reminder*: sleeps until a time, then publishes an event on the bus.

use std::sync::Arc;

use dormouse::{
    Clock, CompiledGraph, END, EngineError, Event, EventBus, Graph, NodeError, Update, Wait, invocation_id, state,
};
use serde::{Deserialize, Serialize};

use crate::{delay, must_be, refuse};

/// Name of the graph.
pub const REMINDER: &str = "reminder";

state! {
    /// State of a reminder: `at` or `after` holds the time.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Reminder {
        /// Text of the reminder.
        pub text: String,
        /// Time, as an instant: `2027-01-31T09:00:00Z`.
        pub at: String,
        /// Delay, as an ISO-8601 duration: `PT20S`.
        pub after: String,
        /// Instant at which it was sent; empty before.
        pub reminded_at: String,
    }
}

/// `sleep -> remind`.
pub(crate) fn graph(bus: Arc<dyn EventBus>, clock: Arc<dyn Clock>) -> Result<CompiledGraph, EngineError> {
    Graph::<Reminder>::new(REMINDER)
        .version("1")
        .inputs((Reminder::text, Reminder::at, Reminder::after))
        .entry("sleep")
        .wait("sleep", wait)
        .node("remind", move |reminder: Reminder| {
            let bus = bus.clone();
            let clock = clock.clone();
            async move { remind(&*bus, &*clock, reminder).await }
        })
        .edge("sleep", "remind")
        .edge("remind", END)
        .compile()
}

fn wait(reminder: &Reminder) -> Result<Wait<Reminder>, NodeError> {
    let signal_id = format!("reminder-{}", invocation_id()?);
    let wait = match (reminder.at.as_str(), delay(Reminder::after, &reminder.after)?) {
        ("", Some(after)) => Wait::sleep(signal_id, after),
        (at, None) if !at.is_empty() => {
            let time = at.parse().map_err(|_| must_be(Reminder::at, "an instant such as 2027-01-31T09:00:00Z"))?;
            Wait::until(signal_id, time)
        }
        (_, _) => {
            return Err(refuse(format!("give either field `{}` or field `{}`", Reminder::at, Reminder::after)));
        }
    };
    Ok(wait.kind("reminder"))
}

/// Event that is published on the bus.
#[derive(Serialize)]
struct ReminderDue {
    text: String,
}

async fn remind(bus: &dyn EventBus, clock: &dyn Clock, reminder: Reminder) -> Result<Update<Reminder>, NodeError> {
    bus.publish(Event::telling("dormouse.reminder", "Reminder Due", &ReminderDue { text: reminder.text })?).await?;
    Ok(Reminder::reminded_at.set(clock.now().to_string()))
}
