//! Notifications: the step `notify` of a ladder of deadlines, sent by e-mail, to Slack or to a webhook, with the link on which
//! a person answers.
//!
//! The operator describes channels ([`Notifications::read`]); a pause names one of them. The announcement of its deadline
//! goes to the bus, as those of all steps, and then over the channel. So it has what an announcement has: it is sent at
//! least once, always under one id, and a worker that dies is followed by another.
//!
//! # Invariants
//! - What is sent is what the pause itself tells those who are asked: its description, its deadline, the link. No state, and
//!   nothing of what a tool answered or a person gave: that is a line of its own in the description, which is left out.
//! - A channel that does not work delays no deadline behind it: when the next one has come, or after fifteen minutes, the
//!   notification is given up and logged.

mod channels;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{
    BusError, Clock, Due, Escalation, Event, EventBus, Fetch, InvocationId, InvocationRecord, InvocationStatus,
    Invocations, Map, PausedInvocation, Sign,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::tokens::CallbackSigner;

use channels::{Channel, Sender};
pub use channels::{Notifications, NotificationsError};
use words::Notice;

/// Time for which a notification is tried again.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);

/// What notifications are made with.
pub struct NotifierParts {
    /// Channels that they go to.
    pub channels: Notifications,
    /// Reads what is asked.
    pub invocations: Arc<dyn Invocations>,
    /// Sends.
    pub fetch: Arc<dyn Fetch>,
    /// Signs requests to the service that sends e-mail, and its address; without it no e-mail goes out.
    pub email: Option<(Arc<dyn Sign>, String)>,
    /// Signs the links.
    pub callbacks: CallbackSigner,
    /// Address of this server.
    pub base_url: String,
    /// Time for which a link is good.
    pub valid: Duration,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for NotifierParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotifierParts").field("channels", &self.channels).finish_non_exhaustive()
    }
}

/// A bus that also sends the notifications that deadlines ask for.
pub struct NotifyingBus {
    bus: Arc<dyn EventBus>,
    parts: NotifierParts,
}

impl fmt::Debug for NotifyingBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotifyingBus").field("channels", &self.parts.channels).finish_non_exhaustive()
    }
}

impl NotifyingBus {
    /// `bus`, where what is described by `parts` is also sent.
    pub fn new(bus: Arc<dyn EventBus>, parts: NotifierParts) -> Self {
        Self { bus, parts }
    }

    /// Sends the notification that `detail` announces, which came to `published` on the bus. Where there is no bus, or it does
    /// not take the event, people are asked all the same. One that is away is tried again before: nobody is asked each time.
    async fn notify_beside(&self, published: Result<(), BusError>, detail: &Map) -> Result<(), BusError> {
        match published {
            Err(BusError::Unavailable(_)) => published,
            Ok(()) | Err(BusError::Rejected(_)) => self.notify(detail).await.and(published),
        }
    }

    /// Sends the notification that `detail` announces.
    async fn notify(&self, detail: &Map) -> Result<(), BusError> {
        let text = |name: &str| detail.get(name).and_then(Value::as_str).unwrap_or_default();
        let name = text("to");
        let channel = self.parts.channels.get(name).ok_or_else(|| {
            BusError::Rejected(format!("there is no channel `{name}` among DORMOUSE_NOTIFICATIONS: nobody is notified"))
        })?;
        let id = InvocationId::from(text("invocation_id"));
        let loaded = self.parts.invocations.load_invocation(&id).await;
        let record = loaded.map_err(|error| BusError::Unavailable(error.to_string()))?;
        let generation = detail.get("generation").and_then(Value::as_u64);
        // Who has answered meanwhile is asked no more; nor is anybody for what was canceled.
        let waits = |record: &InvocationRecord| {
            record.status == InvocationStatus::Suspended && Some(record.paused.generation) == generation
        };
        let Some(InvocationRecord { paused, .. }) = record.filter(waits) else { return Ok(()) };
        let notice = Notice {
            id: text("id").to_owned(),
            channel: name.to_owned(),
            due_at: text("due_at").to_owned(),
            links: self.links(&paused),
            paused: &paused,
        };
        match self.send(channel, &notice).await {
            Ok(()) => Ok(()),
            Err(reason) => {
                let given_up = self.is_given_up(&paused, text("due_at"));
                let reason = format!("the notification over `{name}` was not taken: {reason}");
                Err(if given_up { BusError::Rejected(reason) } else { BusError::Unavailable(reason) })
            }
        }
    }

    async fn send(&self, channel: &Channel, notice: &Notice<'_>) -> Result<(), String> {
        let now = self.parts.clock.now();
        let email = self.parts.email.as_ref().map(|(sign, address)| (sign, address.as_str()));
        Sender { fetch: &*self.parts.fetch, email, now }.send(channel, notice).await
    }

    /// True if it is time for what comes behind the deadline `due_at`.
    fn is_given_up(&self, paused: &PausedInvocation, due_at: &str) -> bool {
        let now = self.parts.clock.now();
        let since = due_at.parse::<Timestamp>().ok();
        let is_old = since.is_none_or(|since| now.duration_since(since) >= PATIENCE);
        is_old || paused.wake.later.first().is_some_and(|next: &Due| next.at <= now)
    }

    /// The pages on which the pause is answered: one, or one for each who has not answered yet.
    fn links(&self, paused: &PausedInvocation) -> Vec<(Option<String>, String)> {
        let missing = paused.fan_in.as_ref().map(|fan_in| fan_in.missing().map(str::to_owned).collect::<Vec<_>>());
        let parts = missing.map_or_else(|| vec![None], |parts| parts.into_iter().map(Some).collect());
        parts.into_iter().map(|part| (part.clone(), self.link(paused, part.as_deref()))).collect()
    }

    fn link(&self, paused: &PausedInvocation, part: Option<&str>) -> String {
        let ends = self.parts.clock.now().checked_add(self.parts.valid).unwrap_or(Timestamp::MAX);
        let token = self.parts.callbacks.page_token(&paused.invocation_id, paused.generation, part, ends);
        crate::encode::page_address(&self.parts.base_url, &paused.invocation_id, &token, part)
    }
}

/// Announcement of `event`, if it is a deadline with a notification.
fn announced(event: &Event) -> Option<&Map> {
    let is_deadline = event.source == "dormouse" && event.detail_type == "Dormouse Deadline";
    let notifies = event.detail.get("do").and_then(Value::as_str) == Some(Escalation::Notify.as_str());
    (is_deadline && notifies).then_some(&event.detail)
}

#[async_trait]
impl EventBus for NotifyingBus {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        let published = self.bus.publish(event.clone()).await;
        match announced(&event) {
            Some(detail) => self.notify_beside(published, detail).await,
            None => published,
        }
    }

    async fn publish_all(&self, events: Vec<Event>) -> Vec<Result<(), BusError>> {
        let published = self.bus.publish_all(events.clone()).await;
        let mut outcomes = Vec::with_capacity(events.len());
        for (outcome, event) in published.into_iter().zip(&events) {
            outcomes.push(match announced(event) {
                Some(detail) => self.notify_beside(outcome, detail).await,
                None => outcome,
            });
        }
        outcomes
    }
}
