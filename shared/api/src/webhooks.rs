//! Webhooks: events of sessions, out.
//!
//! A session knows its webhooks. An event that one of them wants is accepted work in the transaction that publishes the
//! event: an invocation of the graph [`WEBHOOK_GRAPH`] under an id that is made of the webhook and the event. It sends, sleeps
//! before it tries again, and in the end waits for an operator: that is the dead letter.
//!
//! # Invariants
//! - What is told is told at least once, under one id; a delivery is one transaction behind that of its event.
//! - A delivery knows ids only. Address, token and event are read when it is sent: a webhook that is gone gets nothing, and
//!   no caller can have something sent that did not happen.

mod delivery;
mod form;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dormouse_ports::PausedInvocation;
use dormouse_protocol::event::redact;
use dormouse_protocol::id::{EventId, SessionId, TaskId, WebhookId};
use dormouse_protocol::resource::{CreateWebhookRequest, Session, Task, Webhook, WebhookFormat};
use dormouse_protocol::{
    Draft, Envelope, ErrorCode, Event, EventKind, Identifier, List, Operation, ProtocolError, Scope,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use delivery::{DELIVERY_PREFIX, GRAPH as WEBHOOK_GRAPH, WebhookKeys, WebhookParts, webhook_graph};
pub use form::{a2a_state, a2a_status};

use crate::api::{Api, Change, NO_CONTENT, by, json};
use crate::change::SessionChange;
use crate::documents::Stored;
use crate::reads::Reads;
use crate::refusal::conflict;
use crate::{Call, CallAnswer};

/// The most webhooks of one session that are for all of its tasks, and the most that are for one each; the longest address
/// and the longest token, in bytes.
const MOST: usize = 10;
const LONGEST_URL: usize = 2048;
const LONGEST_TOKEN: usize = 512;

/// The most deliveries of one change: they share its transaction. No session has more webhooks.
const MOST_AT_ONCE: usize = 2 * MOST;

/// The events that a webhook gets that names none: a task asks, or has ended.
const USUAL: [EventKind; 5] = [
    EventKind::TaskInputRequired,
    EventKind::TaskAuthRequired,
    EventKind::TaskCompleted,
    EventKind::TaskFailed,
    EventKind::TaskCanceled,
];

/// The events that a client of A2A gets: all changes of the status of a task.
const OF_A2A: [EventKind; 7] = [
    EventKind::TaskStarted,
    EventKind::TaskStatusChanged,
    EventKind::TaskInputRequired,
    EventKind::TaskAuthRequired,
    EventKind::TaskCompleted,
    EventKind::TaskFailed,
    EventKind::TaskCanceled,
];

/// A webhook, as its session knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WebhookSubscription {
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    events: BTreeSet<String>,
    format: WebhookFormat,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<HookToken>,
    made_at: Timestamp,
}

/// What a client wants to be shown with each delivery. Not printed.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct HookToken(String);

impl fmt::Debug for HookToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookToken(..)")
    }
}

/// The webhooks of a session, by their ids.
pub(crate) type Subscriptions = BTreeMap<WebhookId, WebhookSubscription>;

impl WebhookSubscription {
    fn wants(&self, event: &Event) -> bool {
        let is_about = self.task_id.is_none() || self.task_id == event.task_id;
        // A replay has no effect outside.
        is_about && event.replay.is_none() && self.events.contains(event.event.as_str())
    }

    /// The webhook in `all` that this one takes the place of: a client of A2A that tells once more to where the status of its
    /// task is sent has it sent there once.
    fn same_in<'a>(&self, all: &'a Subscriptions) -> Option<&'a WebhookId> {
        if self.format != WebhookFormat::A2a || self.task_id.is_none() {
            return None;
        }
        let mut all = all.iter();
        let same = all.find(|(_, one)| (one.format, &one.task_id, &one.url) == (self.format, &self.task_id, &self.url));
        same.map(|(id, _)| id)
    }

    fn shown(&self, id: &WebhookId, session: &SessionId) -> Webhook {
        Webhook {
            envelope: Envelope::new(id.clone(), self.made_at),
            session_id: session.clone(),
            task_id: self.task_id.clone(),
            url: self.url.clone(),
            events: self.events.iter().cloned().collect(),
            format: self.format,
            secret: None,
        }
    }
}

/// The work that `events` of `session` make for its webhooks: a delivery for each that one of them wants, or, where these are too
/// many, one for each webhook, which sends them one after another.
pub(crate) fn deliveries(session: &Stored<Session>, events: &[Event], now: Timestamp) -> Vec<PausedInvocation> {
    let (stream, tenant) = (&session.kept.resource.envelope.id, &session.kept.tenant);
    let wanted = session.kept.own.webhooks.iter().map(|(id, webhook)| {
        let events = events.iter().filter(|event| webhook.wants(event)).map(|event| &event.envelope.id);
        (id, events.collect::<Vec<_>>())
    });
    let wanted: Vec<_> = wanted.collect();
    let count: usize = wanted.iter().map(|(_, events)| events.len()).sum();
    let at_once = if count > MOST_AT_ONCE { usize::MAX } else { 1 };
    let accepted = |(id, events): &(&WebhookId, Vec<&EventId>)| {
        let groups = events.chunks(at_once);
        groups.filter_map(|events| delivery::accepted((stream, id, tenant), events, now)).collect::<Vec<_>>()
    };
    wanted.iter().flat_map(accepted).collect()
}

impl Reads {
    pub(crate) async fn list_webhooks(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let session = self.named::<Session>(call, "session_id").await?;
        let id = &session.kept.resource.envelope.id;
        let all = session.kept.own.webhooks.iter().map(|(webhook, kept)| kept.shown(webhook, id));
        Ok(CallAnswer::Json(200, json(&List::page(all.collect::<Vec<_>>(), None))?))
    }
}

impl Api {
    /// The keys that sign what is sent.
    ///
    /// # Errors
    /// 501 where none is sent.
    fn webhook_keys(&self) -> Result<&WebhookKeys, ProtocolError> {
        let keys = self.parts().webhooks.as_ref();
        keys.ok_or_else(|| ProtocolError::not_implemented(Operation::CreateSessionWebhook))
    }

    /// The webhook that `request` asks for.
    ///
    /// # Errors
    /// None is sent here, or something is wrong with it.
    pub(crate) fn checked_webhook(
        &self,
        request: CreateWebhookRequest,
        now: Timestamp,
    ) -> Result<WebhookSubscription, ProtocolError> {
        self.webhook_keys()?.check_url(&request.url)?;
        subscription(request, now)
    }

    /// `answer`, which made a webhook, with the key of its signatures. That is kept nowhere, with no answer to a request that
    /// may come again either: it is made again.
    ///
    /// # Errors
    /// None is sent here.
    pub(crate) fn with_secret(&self, answer: CallAnswer) -> Result<CallAnswer, ProtocolError> {
        let keys = self.webhook_keys()?;
        let with_secret = |mut webhook: Value| {
            if let Some(id) = webhook["id"].as_str().map(WebhookId::from) {
                webhook["secret"] = keys.shown(&id).into();
            }
            webhook
        };
        Ok(match answer {
            CallAnswer::Json(status, webhook) => CallAnswer::Json(status, with_secret(webhook)),
            CallAnswer::Repeated(status, webhook) => CallAnswer::Repeated(status, with_secret(webhook)),
            other @ (CallAnswer::Bytes { .. } | CallAnswer::Empty) => other,
        })
    }

    pub(crate) async fn create_webhook(&self, call: &Call) -> Result<Change, ProtocolError> {
        // Where none is sent, that is the answer, whatever else is wrong.
        self.webhook_keys()?;
        let webhook = self.checked_webhook(call.body.clone().decode()?, call.now)?;
        check_may_read(call, webhook.format)?;
        let session = self.reads.named::<Session>(call, "session_id").await?;
        let session_id = session.kept.resource.envelope.id.clone();
        if let Some(task) = &webhook.task_id
            && self.reads.see::<Task>(call, task).await?.kept.resource.session_id != session_id
        {
            return Err(ProtocolError::not_found("task"));
        }
        let (id, dropped) = match webhook.same_in(&session.kept.own.webhooks) {
            Some(same) => (same.clone(), None),
            None => (self.fresh(call.now), self.in_place_of(call, &session.kept.own.webhooks, &webhook).await?),
        };
        let mut change = SessionChange::open(session, by(call), call.now);
        if let Some(dropped) = dropped {
            change.thread_mut().webhooks.remove(&dropped);
            told(&mut change, "vendor.dormouse.webhook_deleted", &dropped);
        }
        change.thread_mut().webhooks.insert(id.clone(), webhook.clone());
        told(&mut change, "vendor.dormouse.webhook_created", &id);
        Change::new(change.close()?.1, 201, &webhook.shown(&id, &session_id))
    }

    /// The webhook that has to go so that `webhook` may stand among `all`, if one has to: the oldest one whose task has ended.
    ///
    /// # Errors
    /// 409 where there are too many, and none is to be spared.
    async fn in_place_of(
        &self,
        call: &Call,
        all: &Subscriptions,
        webhook: &WebhookSubscription,
    ) -> Result<Option<WebhookId>, ProtocolError> {
        let is_alike = |one: &&(&WebhookId, &WebhookSubscription)| one.1.task_id.is_some() == webhook.task_id.is_some();
        let mut alike: Vec<_> = all.iter().filter(|one| is_alike(&one)).collect();
        if alike.len() < MOST {
            return Ok(None);
        }
        alike.sort_by_key(|(_, one)| one.made_at);
        for (id, one) in alike {
            let Some(task) = &one.task_id else { continue };
            let found = self.reads.find::<Task>(task, call.now).await?;
            if found.is_none_or(|found| found.kept.resource.status.is_terminal()) {
                return Ok(Some(id.clone()));
            }
        }
        Err(conflict("the session has all the webhooks that it may have; delete one"))
    }

    pub(crate) async fn delete_webhook(&self, call: &Call) -> Result<Change, ProtocolError> {
        let session = self.reads.named::<Session>(call, "session_id").await?;
        let id = WebhookId::from(call.params.get("webhook_id"));
        let mut change = SessionChange::open(session, by(call), call.now);
        if change.thread_mut().webhooks.remove(&id).is_none() {
            return Err(ProtocolError::not_found("webhook"));
        }
        told(&mut change, "vendor.dormouse.webhook_deleted", &id);
        Change::new(change.close()?.1, NO_CONTENT, &json!({}))
    }
}

/// Checks that the caller of `call` may read what a webhook of this format sends: its address is of the caller's choice.
///
/// # Errors
/// `permission_denied` with the scope that its key lacks.
fn check_may_read(call: &Call, format: WebhookFormat) -> Result<(), ProtocolError> {
    let needed = match format {
        WebhookFormat::Standard => Scope::EventsRead,
        WebhookFormat::A2a => Scope::TasksRead,
    };
    if call.actor.scopes.contains(&needed) {
        return Ok(());
    }
    let message = format!("a webhook of this format sends what the key may not read: it needs {}", needed.as_str());
    Err(ProtocolError::new(ErrorCode::PermissionDenied, message).with_detail("scope", needed.as_str()))
}

fn told(change: &mut SessionChange, kind: &str, id: &WebhookId) {
    let session = change.session();
    let draft = Draft::new(EventKind::from(kind), session.envelope.id.pointer(), json!({ "webhook_id": id }));
    let draft = draft.within(Some(&session.workspace_id), Some(&session.envelope.id), None);
    change.emit_for_session(draft);
}

fn subscription(request: CreateWebhookRequest, now: Timestamp) -> Result<WebhookSubscription, ProtocolError> {
    let known = |kind: &String| !matches!(EventKind::from(kind.as_str()), EventKind::Other(_));
    if let Some(unknown) = request.events.iter().find(|kind| !known(kind)) {
        let shown = redact::value(unknown.as_str().into());
        return Err(ProtocolError::invalid("events", format!("there is no event {shown}; task.completed is one")));
    }
    let is_plain =
        |token: &String| (1..=LONGEST_TOKEN).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    if request.token.as_ref().is_some_and(|token| !is_plain(token)) {
        let message = format!("expected 1 to {LONGEST_TOKEN} letters and digits without spaces");
        return Err(ProtocolError::invalid("token", message));
    }
    let usual = match request.format {
        WebhookFormat::Standard => USUAL.as_slice(),
        WebhookFormat::A2a => OF_A2A.as_slice(),
    };
    let usual = usual.iter().map(|kind| kind.as_str().to_owned());
    let events = if request.events.is_empty() { usual.collect() } else { request.events.into_iter().collect() };
    let token = request.token.map(HookToken);
    Ok(WebhookSubscription {
        url: request.url,
        task_id: request.task_id,
        events,
        format: request.format,
        token,
        made_at: now,
    })
}

/// Checks that an address can be sent to: `https`, or `http` on this machine where `loopback` allows that.
fn check_url(url: &str, loopback: bool) -> Result<(), ProtocolError> {
    let refuse = |message: &str| Err(ProtocolError::invalid("url", message));
    if url.len() > LONGEST_URL || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return refuse("expected an address of at most 2048 letters without spaces");
    }
    let authority = |rest: &str| rest.split(['/', '?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    let has_a_port = |authority: &String| match authority.rsplit_once(':') {
        // The colons of an address in brackets are none of a port.
        Some((host, port)) if !host.is_empty() && !port.ends_with(']') => {
            port.parse::<u16>().is_ok_and(|port| port > 0)
        }
        Some((_, port)) => port.ends_with(']'),
        None => true,
    };
    let given = url.split_once("://").map(|(_, rest)| authority(rest));
    // What stands behind the colon of a user is a password.
    if !given.as_ref().is_none_or(|given| given.contains('@') || has_a_port(given)) {
        return refuse("expected a port from 1 to 65535, or none");
    }
    match (url.strip_prefix("https://").map(authority), url.strip_prefix("http://").map(authority)) {
        (Some(authority), _) if !authority.is_empty() && !authority.contains('@') => Ok(()),
        (_, Some(authority)) if loopback && !authority.contains('@') && is_loopback(&authority) => Ok(()),
        (_, _) => refuse("expected an https address without a user; in local mode also http on this machine"),
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Error where a delivery is asked for by another way than an event.
fn foreign() -> ProtocolError {
    ProtocolError::new(ErrorCode::PermissionDenied, "deliveries are made by events, and cannot be begun")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_out_or_are_of_this_machine() {
        for good in ["https://example.com/hook?x=1", "https://example.com:8443", "https://[2001:db8::1]/x"] {
            assert!(check_url(good, false).is_ok(), "{good}");
        }
        for local in ["http://localhost:9/x", "http://127.0.0.1", "http://[::1]:8080/"] {
            assert!(check_url(local, true).is_ok() && check_url(local, false).is_err(), "{local}");
        }
        let long = format!("https://{}", "x".repeat(LONGEST_URL));
        for bad in [
            "",
            "https://",
            "http://example.com",
            "ftp://x",
            "https://user@x",
            "https://a b",
            "file:///etc",
            &long,
            "https://x:99999/y",
            "https://x:0",
            "https://x:",
            "https://:443",
            "https://x:1x",
            "https://[::1]:70000",
        ] {
            assert!(check_url(bad, true).is_err(), "{bad}");
        }
        for user in ["https://ada@example.com", "https://ada:word@example.com", "https://ada:word@example.com:443/x"] {
            let refusal = check_url(user, true).expect_err("a user");
            assert!(refusal.message().contains("without a user"), "{user}: {refusal}");
        }
        for sneaky in ["http://localhost@example.com", "http://127.0.0.1.example.com", "http://localhost:80@x/"] {
            assert!(check_url(sneaky, true).is_err(), "{sneaky}");
        }
    }

    #[test]
    fn a_token_is_not_printed() {
        assert!(!format!("{:?}", HookToken("hush".to_owned())).contains("hush"));
    }
}
