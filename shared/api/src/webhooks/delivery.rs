//! The delivery of one event to one webhook, as a graph: it sends, sleeps, and sends again.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormouse_engine::{
    Answer, CompiledGraph, Delay, END, EngineError, Graph, NodeError, Rule, Target, Update, Wait, current, state,
};
use dormouse_ports::{
    Clock, Due, DueAction, Fetch, FetchLimits, FetchRequest, InvocationId, Map, Method, PausedInvocation, Records,
    Secret, WakePlan,
};
use dormouse_protocol::id::{EventId, SessionId, WebhookId};
use dormouse_protocol::resource::Session;
use dormouse_protocol::{Event, EventKind, ProtocolError};
use hmac::{Hmac, Mac};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::form::body_of;
use super::{WebhookSubscription, check_url, foreign};
use crate::documents::Stored;

/// The name of the graph.
pub const GRAPH: &str = "dormouse-webhook";

/// Time before each further attempt; behind them an operator is asked.
const RESTS: [u32; 7] = [5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600];

/// Limits of one attempt. What the other side says beside its status is not read.
const LIMITS: FetchLimits =
    FetchLimits { total: Duration::from_secs(15), idle: Duration::from_secs(15), most_bytes: 64 * 1024 };

/// The other side is gone for good (Standard Webhooks).
const GONE: u64 = 410;

/// Outcomes of a delivery.
const DELIVERED: &str = "delivered";
const DROPPED: &str = "dropped";

state! {
    /// A delivery.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    struct Delivery {
        /// Its session, webhook and event.
        session_id: String,
        webhook_id: String,
        event_id: String,
        /// Attempts that failed.
        attempts: u64,
        /// Problem of the last one.
        problem: String,
        /// Set by an operator: whether it is tried again.
        again: bool,
        /// Outcome of the delivery.
        outcome: String,
    }
}

/// Keys by which deliveries are signed: one for each webhook, made of a secret of the server. While that is replaced
/// there are two, and each delivery has a signature by each.
#[derive(Clone)]
pub struct WebhookKeys {
    secrets: Vec<Secret>,
    loopback: bool,
}

impl fmt::Debug for WebhookKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookKeys").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl WebhookKeys {
    /// Keys made of `secrets`, the newest first. Deliveries go to this machine where `loopback` says so.
    pub fn new(secrets: Vec<Secret>, loopback: bool) -> Self {
        Self { secrets, loopback }
    }

    pub(super) fn check_url(&self, url: &str) -> Result<(), ProtocolError> {
        check_url(url, self.loopback)
    }

    /// The key of a webhook, as its owner needs it.
    pub(super) fn shown(&self, id: &WebhookId) -> String {
        let newest = self.keys(id).next().unwrap_or_default();
        format!("whsec_{}", STANDARD.encode(newest))
    }

    fn keys(&self, id: &WebhookId) -> impl Iterator<Item = Vec<u8>> {
        self.secrets
            .iter()
            .filter_map(move |secret| code(secret.expose().as_bytes(), &[b"webhook ", id.as_str().as_bytes()]))
    }

    /// The header `webhook-signature`.
    fn signature(&self, webhook: &WebhookId, id: &str, seconds: i64, body: &[u8]) -> String {
        let before = format!("{id}.{seconds}.");
        let signed = self.keys(webhook).filter_map(|key| code(&key, &[before.as_bytes(), body]));
        signed.map(|code| format!("v1,{}", STANDARD.encode(code))).collect::<Vec<_>>().join(" ")
    }
}

fn code(key: &[u8], parts: &[&[u8]]) -> Option<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac.finalize().into_bytes().to_vec())
}

/// What deliveries are made with.
#[derive(Clone)]
pub struct WebhookParts {
    /// Reads sessions and their events.
    pub records: Arc<dyn Records>,
    /// Sends.
    pub fetch: Arc<dyn Fetch>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Keys to sign with.
    pub keys: WebhookKeys,
}

impl fmt::Debug for WebhookParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookParts").finish_non_exhaustive()
    }
}

/// The graph of deliveries: `send`, then the end, a rest, or the wait for an operator.
///
/// # Errors
/// None but mistakes in the graph itself.
pub fn webhook_graph(parts: WebhookParts) -> Result<CompiledGraph, EngineError> {
    let parts = Arc::new(parts);
    outline(move |delivery: Delivery| {
        let parts = parts.clone();
        Box::pin(async move { send(&parts, delivery).await })
    })
}

type Sends = std::pin::Pin<Box<dyn Future<Output = Result<Update<Delivery>, NodeError>> + Send>>;

fn outline(send: impl Fn(Delivery) -> Sends + Send + Sync + 'static) -> Result<CompiledGraph, EngineError> {
    Graph::<Delivery>::new(GRAPH)
        .version("1")
        .inputs((Delivery::session_id, Delivery::webhook_id, Delivery::event_id))
        .entry("send")
        .node("send", send)
        .wait("rest", rest)
        .wait("stuck", stuck)
        .route("send", ["rest", "stuck"], after_sending)
        .edge("rest", "send")
        .route("stuck", ["send"], |delivery: &Delivery| if delivery.again { Target::from("send") } else { END })
        .compile()
}

/// The id of the delivery that runs.
fn own_id() -> Result<InvocationId, NodeError> {
    let identity = current().ok_or_else(|| NodeError::new("a delivery runs as an invocation"))?;
    Ok(identity.invocation_id.clone())
}

fn after_sending(delivery: &Delivery) -> Target {
    match (delivery.outcome.is_empty(), rest_of(delivery)) {
        (false, _) => END,
        (true, Some(_)) => Target::from("rest"),
        (true, None) => Target::from("stuck"),
    }
}

fn rest_of(delivery: &Delivery) -> Option<u32> {
    let tried = usize::try_from(delivery.attempts).ok()?.checked_sub(1)?;
    RESTS.get(tried).copied()
}

fn rest(delivery: &Delivery) -> Result<Wait<Delivery>, NodeError> {
    let seconds = rest_of(delivery).unwrap_or(RESTS[0]);
    let id = format!("{}-{}", own_id()?, delivery.attempts);
    Ok(Wait::sleep(id, Delay::seconds(seconds)).kind("webhook").describe(delivery.problem.clone()))
}

/// The dead letter: an operator says whether it is sent once more.
fn stuck(delivery: &Delivery) -> Result<Wait<Delivery>, NodeError> {
    let id = format!("{}-stuck-{}", own_id()?, delivery.attempts);
    let answer = Answer::new().required(Delivery::again, Rule::boolean());
    let told = format!("{} could not be delivered to {}: {}", delivery.event_id, delivery.webhook_id, delivery.problem);
    Ok(Wait::signal(id, answer)
        .kind("dead_letter")
        .describe(told)
        .answers(Delivery::again.set(true), Delivery::again.set(false)))
}

/// What a worker needs to know of the graph to accept work for it: its digest, and the version of its state.
static ACCEPTED: LazyLock<Option<(String, String)>> = LazyLock::new(|| {
    let graph = outline(|_| Box::pin(async { Ok(Update::none()) })).ok()?;
    Some((graph.digest().to_owned(), graph.schema().version().to_owned()))
});

/// The delivery of `event`, as accepted work in the name of the tenant of its session.
pub(super) fn accepted(
    (session, webhook, tenant): (&SessionId, &WebhookId, &str),
    event: &Event,
    now: Timestamp,
) -> PausedInvocation {
    let (graph_digest, schema_version) = ACCEPTED.clone().unwrap_or_default();
    let event_id = &event.envelope.id;
    let state = [
        (Delivery::session_id.name(), session.as_str()),
        (Delivery::webhook_id.name(), webhook.as_str()),
        (Delivery::event_id.name(), event_id.as_str()),
    ];
    PausedInvocation {
        correlation_id: event_id.to_string(),
        graph_digest,
        schema_version,
        begun_for: Some(tenant.to_owned()),
        wake: WakePlan { due: Some(Due::first(now, DueAction::Resume(Map::new()))), ..WakePlan::default() },
        state: state.map(|(name, value)| (name.to_owned(), Value::from(value))).into_iter().collect(),
        ..PausedInvocation::before_first_pause(id_of(webhook, event_id), GRAPH, now)
    }
}

/// Prefix of the ids of deliveries.
pub const DELIVERY_PREFIX: &str = "delivery_";

/// The id of the delivery of an event to a webhook.
fn id_of(webhook: &WebhookId, event: &EventId) -> InvocationId {
    let digest = Sha256::new().chain_update(webhook.as_str()).chain_update([0]).chain_update(event.as_str()).finalize();
    InvocationId::from(format!("{DELIVERY_PREFIX}{}", hex::encode(&digest[..16])))
}

async fn send(parts: &WebhookParts, delivery: Delivery) -> Result<Update<Delivery>, NodeError> {
    let webhook = WebhookId::from(delivery.webhook_id.as_str());
    let event_id = EventId::from(delivery.event_id.as_str());
    let id = id_of(&webhook, &event_id);
    if own_id()? != id {
        return Err(NodeError::new(foreign().to_string()));
    }
    let now = parts.clock.now();
    let found = found(parts, &SessionId::from(delivery.session_id.as_str()), &webhook, &event_id, now).await?;
    let Some((subscription, event)) = found else { return Ok(Delivery::outcome.set(DROPPED)) };
    let Some(body) = body_of(subscription.format, &event) else { return Ok(Delivery::outcome.set(DROPPED)) };
    let bytes = body.to_string().into_bytes();
    let signature = parts.keys.signature(&webhook, id.as_str(), now.as_second(), &bytes);
    let mut request = FetchRequest::new(Method::Post, subscription.url.as_str())
        .header("webhook-id", id.as_str())
        .header("webhook-timestamp", now.as_second().to_string())
        .header("webhook-signature", signature);
    if let Some(token) = &subscription.token {
        request = request.header("x-a2a-notification-token", token.0.as_str());
    }
    request.limits = LIMITS;
    let problem = match parts.fetch.fetch(request.json(bytes)).await {
        Ok(answer) if (200..300).contains(&answer.status) => return Ok(Delivery::outcome.set(DELIVERED)),
        Ok(answer) if u64::from(answer.status) == GONE => return Ok(Delivery::outcome.set(DROPPED)),
        Ok(answer) => format!("it answered {}", answer.status),
        Err(error) => error.to_string(),
    };
    tracing::info!(delivery = %id, attempts = delivery.attempts + 1, problem, "a webhook was not delivered; it is tried again");
    Ok(Delivery::attempts.set(delivery.attempts + 1).set(Delivery::problem, problem))
}

/// The webhook, as long as its session has it, and the event.
async fn found(
    parts: &WebhookParts,
    session: &SessionId,
    webhook: &WebhookId,
    event: &EventId,
    now: Timestamp,
) -> Result<Option<(WebhookSubscription, Event)>, NodeError> {
    let failed = |error: dormouse_ports::StoreError| NodeError::new(error.to_string());
    let Some(session) = Stored::<Session>::load(&*parts.records, session, now).await.map_err(failed)? else {
        return Ok(None);
    };
    let Some(subscription) = session.kept.own.webhooks.get(webhook).cloned() else { return Ok(None) };
    let stream = session.kept.resource.envelope.id.as_str();
    let place = event.place().filter(|(of, _)| *of == stream);
    let Some((_, position)) = place else { return Ok(None) };
    let entries = parts.records.entries(stream, position.saturating_sub(1), 1).await.map_err(failed)?;
    let event = entries.into_iter().next().and_then(|one| serde_json::from_value(Value::Object(one.entry)).ok());
    // Nobody is shown any more what was deleted with its workspace; who waits for a task is told that it was canceled.
    let is_deleted = session.kept.deleted.is_some();
    let event: Option<Event> = event.filter(|event: &Event| !is_deleted || event.event == EventKind::TaskCanceled);
    Ok(event.map(|event| (subscription, event)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::{SignatureScheme, SignedBody};

    /// What a receiver has to check, by each of two secrets of the server.
    #[test]
    fn deliveries_are_signed_as_standard_webhooks_are() {
        let [new, old] = [Secret::new("new"), Secret::new("old")];
        let id = WebhookId::from("webhook_1");
        let keys = |secrets: &[&Secret]| WebhookKeys::new(secrets.iter().map(|one| (*one).clone()).collect(), false);
        let now: Timestamp = "2027-01-31T09:00:00Z".parse().expect("an instant");
        let body = br#"{"type": "task.completed"}"#;
        let signature = keys(&[&new, &old]).signature(&id, "delivery_1", now.as_second(), body);
        let headers = [
            ("webhook-id", "delivery_1"),
            ("webhook-timestamp", &now.as_second().to_string()),
            ("webhook-signature", &signature),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let sent = SignedBody { headers, body: body.to_vec() };
        let is_good =
            |key: String| SignatureScheme::StandardWebhooks.verify(&sent, &[Secret::new(key)], "", now).is_ok();
        assert!(is_good(keys(&[&new]).shown(&id)) && is_good(keys(&[&old]).shown(&id)));
        assert!(!is_good(keys(&[&new]).shown(&WebhookId::from("webhook_2"))), "the key of another webhook");
    }
}
