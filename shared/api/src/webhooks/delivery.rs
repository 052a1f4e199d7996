//! The delivery of events to one webhook, as a graph: it sends, sleeps, and sends again. Most have one event. Where a change makes
//! more of them than its transaction has room for, one delivery sends several, one after another.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormouse_engine::{
    Answer, CompiledGraph, Delay, END, EngineError, Graph, NodeError, Rule, Target, TurnTime, Update, Wait, current,
    state, turn_time,
};
use dormouse_ports::{
    Clock, Due, DueAction, Fetch, FetchLimits, FetchRequest, InvocationId, Map, Method, PausedInvocation, Records,
    Secret, StoreError, WakePlan,
};
use dormouse_protocol::id::{EventId, SessionId, WebhookId};
use dormouse_protocol::resource::Session;
use dormouse_protocol::{Event, EventKind, ProtocolError};
use hmac::{Hmac, Mac};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
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

/// Time that an attempt leaves to its turn, which has to write what came of it: a turn that is cut off is the end of a
/// delivery that has not slept yet.
const TO_WRITE: Duration = Duration::from_secs(3);

/// The shortest attempt that is worth a request, where turns are not shorter.
const LEAST: Duration = Duration::from_secs(1);

/// The other side is gone for good (Standard Webhooks).
const GONE: u64 = 410;

/// Outcomes of a delivery.
const DELIVERED: &str = "delivered";
const DROPPED: &str = "dropped";

state! {
    /// A delivery.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    struct Delivery {
        /// Its session and webhook, and the event that is sent.
        session_id: String,
        webhook_id: String,
        event_id: String,
        /// The events that are sent behind that one.
        further: Vec<String>,
        /// The first of them all, which names the delivery; empty while that is the one that is sent.
        first_event_id: String,
        /// Attempts to send it that failed.
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
        .inputs((Delivery::session_id, Delivery::webhook_id, Delivery::event_id, Delivery::further))
        .entry("send")
        .node("send", send)
        .wait("rest", rest)
        .wait("stuck", stuck)
        .route("send", ["send", "rest", "stuck"], after_sending)
        .edge("rest", "send")
        .route("stuck", ["send"], |delivery: &Delivery| if delivery.again { Target::from("send") } else { END })
        .compile()
}

/// The id of the delivery that runs.
fn own_id() -> Result<InvocationId, NodeError> {
    let identity = current().ok_or_else(|| NodeError::new("a delivery runs as an invocation"))?;
    Ok(identity.invocation_id.clone())
}

/// Names the event that is sent among the pauses of the delivery.
fn place_of(delivery: &Delivery) -> Result<String, NodeError> {
    let own = own_id()?;
    Ok(if delivery.first_event_id.is_empty() { own.to_string() } else { format!("{own}-{}", delivery.event_id) })
}

fn after_sending(delivery: &Delivery) -> Target {
    match (delivery.outcome.is_empty(), delivery.attempts, rest_of(delivery)) {
        (false, _, _) => END,
        // The next event.
        (true, 0, _) => Target::from("send"),
        (true, _, Some(_)) => Target::from("rest"),
        (true, _, None) => Target::from("stuck"),
    }
}

fn rest_of(delivery: &Delivery) -> Option<u32> {
    let tried = usize::try_from(delivery.attempts).ok()?.checked_sub(1)?;
    RESTS.get(tried).copied()
}

fn rest(delivery: &Delivery) -> Result<Wait<Delivery>, NodeError> {
    let seconds = rest_of(delivery).unwrap_or(RESTS[0]);
    let id = format!("{}-{}", place_of(delivery)?, delivery.attempts);
    Ok(Wait::sleep(id, Delay::seconds(seconds)).kind("webhook").describe(delivery.problem.clone()))
}

/// The dead letter: an operator says whether it is sent once more.
fn stuck(delivery: &Delivery) -> Result<Wait<Delivery>, NodeError> {
    let id = format!("{}-stuck-{}", place_of(delivery)?, delivery.attempts);
    let answer = Answer::new().required(Delivery::again, Rule::boolean());
    let behind = match delivery.further.len() {
        0 => String::new(),
        count => format!(" (and {count} behind it)"),
    };
    let (event, webhook) = (&delivery.event_id, &delivery.webhook_id);
    let told = format!("{event}{behind} could not be delivered to {webhook}: {}", delivery.problem);
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

/// The delivery of `events`, as accepted work in the name of the tenant of their session; `None` where there are none.
pub(super) fn accepted(
    (session, webhook, tenant): (&SessionId, &WebhookId, &str),
    events: &[&EventId],
    now: Timestamp,
) -> Option<PausedInvocation> {
    let (graph_digest, schema_version) = ACCEPTED.clone().unwrap_or_default();
    let (event_id, further) = events.split_first()?;
    let further = (!further.is_empty()).then(|| (Delivery::further.name(), json!(further)));
    let state = [
        (Delivery::session_id.name(), json!(session)),
        (Delivery::webhook_id.name(), json!(webhook)),
        (Delivery::event_id.name(), json!(event_id)),
    ];
    Some(PausedInvocation {
        correlation_id: event_id.to_string(),
        graph_digest,
        schema_version,
        begun_for: Some(tenant.to_owned()),
        wake: WakePlan { due: Some(Due::first(now, DueAction::Resume(Map::new()))), ..WakePlan::default() },
        state: state.into_iter().chain(further).map(|(name, value)| (name.to_owned(), value)).collect(),
        ..PausedInvocation::before_first_pause(id_of(webhook, event_id), GRAPH, now)
    })
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
    let own = match delivery.first_event_id.as_str() {
        "" => id.clone(),
        first => id_of(&webhook, &EventId::from(first)),
    };
    if own_id()? != own {
        return Err(NodeError::new(foreign().to_string()));
    }
    let now = parts.clock.now();
    let found = match found(parts, &SessionId::from(delivery.session_id.as_str()), &webhook, &event_id, now).await {
        Ok(found) => found,
        // As an error of its node it would be the end of a delivery that has not slept yet.
        Err(error) => return Ok(failed(&delivery, &id, error.to_string())),
    };
    let Some((subscription, event)) = found else { return Ok(Delivery::outcome.set(DROPPED)) };
    let Some(body) = event.and_then(|event| body_of(subscription.format, &event)) else {
        return Ok(behind(delivery, DROPPED));
    };
    let bytes = body.to_string().into_bytes();
    let signature = parts.keys.signature(&webhook, id.as_str(), now.as_second(), &bytes);
    let mut request = FetchRequest::new(Method::Post, subscription.url.as_str())
        .header("webhook-id", id.as_str())
        .header("webhook-timestamp", now.as_second().to_string())
        .header("webhook-signature", signature);
    if let Some(token) = &subscription.token {
        request = request.header("x-a2a-notification-token", token.0.as_str());
    }
    let problem = match limits_in(turn_time(), parts.clock.monotonic()) {
        None => "others before it took the time of the turn".to_owned(),
        Some(limits) => {
            request.limits = limits;
            match parts.fetch.fetch(request.json(bytes)).await {
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(behind(delivery, DELIVERED)),
                Ok(answer) if u64::from(answer.status) == GONE => return Ok(Delivery::outcome.set(DROPPED)),
                Ok(answer) => format!("it answered {}", answer.status),
                Err(error) => error.to_string(),
            }
        }
    };
    Ok(failed(&delivery, &id, problem))
}

/// What follows where an attempt came to nothing because of a `problem`.
fn failed(delivery: &Delivery, id: &InvocationId, problem: String) -> Update<Delivery> {
    tracing::info!(delivery = %id, attempts = delivery.attempts + 1, problem, "a webhook was not delivered; it is tried again");
    Delivery::attempts.set(delivery.attempts + 1).set(Delivery::problem, problem)
}

/// Limits of an attempt that begins at `now`, on the clock of its turn; `None` where that has no time for one any more.
fn limits_in(turn: Option<TurnTime>, now: Duration) -> Option<FetchLimits> {
    let Some(turn) = turn else { return Some(LIMITS) };
    let total = turn.left(now).saturating_sub(TO_WRITE.min(turn.whole / 2)).min(LIMITS.total);
    (total >= LEAST.min(turn.whole / 4)).then_some(FetchLimits { total, idle: total, ..LIMITS })
}

/// What follows where the present event came to `outcome`: the next one, or the end.
fn behind(mut delivery: Delivery, outcome: &str) -> Update<Delivery> {
    if delivery.further.is_empty() {
        return Delivery::outcome.set(outcome);
    }
    if delivery.first_event_id.is_empty() {
        delivery.first_event_id.clone_from(&delivery.event_id);
    }
    Delivery::event_id
        .set(delivery.further.remove(0))
        .set(Delivery::further, delivery.further)
        .set(Delivery::first_event_id, delivery.first_event_id)
        .set(Delivery::attempts, 0_u64)
        .set(Delivery::problem, String::new())
}

/// The webhook, as long as its session has it, and the event, as far as it may be told.
async fn found(
    parts: &WebhookParts,
    session: &SessionId,
    webhook: &WebhookId,
    event: &EventId,
    now: Timestamp,
) -> Result<Option<(WebhookSubscription, Option<Event>)>, StoreError> {
    let Some(session) = Stored::<Session>::load(&*parts.records, session, now).await? else { return Ok(None) };
    let Some(subscription) = session.kept.own.webhooks.get(webhook).cloned() else { return Ok(None) };
    let stream = session.kept.resource.envelope.id.as_str();
    let place = event.place().filter(|(of, _)| *of == stream);
    let Some((_, position)) = place else { return Ok(Some((subscription, None))) };
    let entries = parts.records.entries(stream, position.saturating_sub(1), 1).await?;
    let event = entries.into_iter().next().and_then(|one| serde_json::from_value(Value::Object(one.entry)).ok());
    // Nobody is shown any more what was deleted with its workspace; who waits for a task is told that it was canceled.
    let is_deleted = session.kept.deleted.is_some();
    let event: Option<Event> = event.filter(|event: &Event| !is_deleted || event.event == EventKind::TaskCanceled);
    Ok(Some((subscription, event)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::{SignatureScheme, SignedBody};

    /// Milliseconds of an attempt that begins at `now` in a turn of so many seconds.
    fn attempt(seconds: u64, now: u64) -> Option<u128> {
        let whole = Duration::from_secs(seconds);
        let turn = TurnTime { whole, longest: whole, ends: whole };
        limits_in(Some(turn), Duration::from_millis(now)).map(|limits| limits.total.as_millis())
    }

    #[test]
    fn an_attempt_ends_before_its_turn_does() {
        assert_eq!(limits_in(None, Duration::ZERO).map(|limits| limits.total), Some(LIMITS.total));
        assert_eq!([attempt(900, 0), attempt(60, 40_000)], [Some(15_000); 2]);
        assert_eq!(attempt(15, 0), Some(12_000), "`dormouse dev`");
        assert_eq!([attempt(60, 50_000), attempt(60, 56_000)], [Some(7_000), Some(1_000)], "behind others");
        assert_eq!([attempt(60, 56_500), attempt(60, 61_000)], [None; 2]);
        assert_eq!([attempt(1, 0), attempt(1, 500)], [Some(500), None], "a turn that is short has an attempt, too");
    }

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
