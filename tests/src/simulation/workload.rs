//! What people and systems outside ask for. To add an operation: an [`Operation`], its request here, and what its answers
//! mean in `judge`.

use std::time::Duration;

use dormouse_app::{EXPENSE_APPROVAL, EXPORT_JOB, REMINDER};
use dormouse_http::Request;
use dormouse_ports::{Event, Map};
use serde_json::{Value, json};

use super::agents::{AGENTS, is_agent};
use super::graphs::{JURORS, JURY, POISON, signal_of, signal_of_part};
use super::process::Message;
use super::requests::{ProtocolRequest, token};

/// What a sender of signals presents.
pub(crate) const KEY: &str = "open-sesame-open-sesame";

/// Something that somebody wants done and asks for until they are told what came of it.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Begin an invocation.
    Turn { graph: &'static str, invocation: String, session: Option<String>, state: Value },
    /// Say something in a chat; `text` is said by nobody else. With a key it may be said again until it is heard.
    Message { session: String, text: String, keyed: bool },
    /// Answer one pause, by its address.
    Callback { invocation: String, generation: u64, address: String, payload: Map, fits: bool },
    /// Answer for one part of a pause, by its own address.
    Answer { invocation: String, generation: u64, part: String, address: String, payload: Map },
    /// Send a signal over HTTP.
    Signal { signal_id: String, payload: Map },
    /// Send a signal with a key of a tenant: of that whose tasks there are, or of another.
    TenantSignal { own: bool, signal_id: String, payload: Map },
    /// Put a signal on the bus.
    Event { signal_id: String, payload: Map },
    /// Publish an event that names a signal, which somebody waits for by that event, by another, or by none.
    Hear { event: Event },
    /// End an invocation: by the address of a pause, or with the key.
    Cancel { invocation: String, pause: Option<(u64, String)> },
    /// ProtocolRequest something by the protocol.
    ProtocolRequest(ProtocolRequest),
    /// Let an invocation be tried again that was put aside.
    Retry { invocation: String },
    /// Look what became of an invocation.
    Status { invocation: String, address: String },
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Turn { graph, invocation, session, .. } => match session {
                Some(session) => write!(f, "turn {invocation} of {graph} in {session}"),
                None => write!(f, "turn {invocation} of {graph}"),
            },
            Self::Message { session, text, keyed } => {
                write!(f, "message {text:?} in {session}{}", if *keyed { ", by its key" } else { "" })
            }
            Self::Callback { invocation, generation, payload, .. } => {
                write!(f, "callback {invocation}#{generation} {}", Value::Object(payload.clone()))
            }
            Self::Answer { invocation, generation, part, payload, .. } => {
                write!(f, "answer {invocation}#{generation} of {part} {}", Value::Object(payload.clone()))
            }
            Self::Signal { signal_id, payload } => write!(f, "signal {signal_id} {}", Value::Object(payload.clone())),
            Self::TenantSignal { own, signal_id, payload } => {
                let key = if *own { "the tenant's" } else { "another tenant's" };
                write!(f, "signal {signal_id} with {key} key {}", Value::Object(payload.clone()))
            }
            Self::Event { signal_id, payload } => write!(f, "event {signal_id} {}", Value::Object(payload.clone())),
            Self::Hear { event } => write!(f, "event of {} {}", event.source, Value::Object(event.detail.clone())),
            Self::Cancel { invocation, pause: Some((generation, _)) } => write!(f, "cancel {invocation}#{generation}"),
            Self::Cancel { invocation, pause: None } => write!(f, "cancel {invocation}"),
            Self::ProtocolRequest(ask) => ask.fmt(f),
            Self::Retry { invocation } => write!(f, "retry {invocation}"),
            Self::Status { invocation, .. } => write!(f, "status {invocation}"),
        }
    }
}

impl Operation {
    /// The message that asks for it; `None` for what goes over the bus.
    pub(crate) fn message(&self) -> Option<Message> {
        if let Self::Retry { invocation } = self {
            return Some(Message::Retry(invocation.as_str().into()));
        }
        self.request().map(|request| Message::Http(Box::new(request)))
    }

    /// Whether asking twice is as good as asking once. Who asks for anything else asks again only where they are told
    /// that nothing can have been written.
    pub(crate) fn may_be_repeated(&self) -> bool {
        !matches!(self, Self::Message { keyed: false, .. })
    }

    /// The request that asks for it; `None` for what does not go over HTTP.
    fn request(&self) -> Option<Request> {
        let post = |path: String, body: Value| request("POST", &path, body.to_string().into_bytes());
        let payload = |payload: &Map| Value::Object(payload.clone());
        Some(match self {
            Self::Turn { graph, invocation, session, state } => {
                let mut body = json!({ "invocation_id": invocation, "state": state });
                if let Some(session) = session {
                    body["session_id"] = session.as_str().into();
                }
                post(format!("/graphs/{graph}/turns"), body)
            }
            Self::Message { session, text, keyed } => {
                let said = json!({ "role": "user", "content": text });
                let mut request = post(format!("/chat/chat/sessions/{session}/messages"), said);
                if *keyed {
                    request.headers.push(("idempotency-key".to_owned(), text.clone()));
                }
                request
            }
            Self::Callback { address, payload: given, .. } | Self::Answer { address, payload: given, .. } => {
                post(address.clone(), payload(given))
            }
            Self::Signal { signal_id, payload: given } => {
                let mut request = post(format!("/signals/{signal_id}"), payload(given));
                request.headers.push(("authorization".to_owned(), format!("Bearer {KEY}")));
                request
            }
            Self::TenantSignal { own, signal_id, payload: given } => {
                let mut request = post(format!("/signals/{signal_id}"), payload(given));
                request.headers.push(("authorization".to_owned(), format!("Bearer {}", token(*own).reveal())));
                request
            }
            Self::Cancel { pause: Some((_, address)), .. } => post(address.clone(), json!({ "reason": "not needed" })),
            Self::Cancel { invocation, pause: None } => {
                let mut request = post(format!("/invocations/{invocation}/cancel"), json!({}));
                request.headers.push(("authorization".to_owned(), format!("Bearer {KEY}")));
                request
            }
            Self::Status { address, .. } => request("GET", address, Vec::new()),
            Self::ProtocolRequest(ask) => ask.request(),
            Self::Event { .. } | Self::Hear { .. } | Self::Retry { .. } => return None,
        })
    }
}

/// A request of `target`, with a body of JSON.
pub(crate) fn request(method: &str, target: &str, body: Vec<u8>) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body,
        time_left: Some(super::TURN + Duration::from_secs(1)),
        ..Request::default()
    }
}

/// Graphs that always sleep; those in which most can meet more often.
const SLEEPERS: [&str; 25] = [
    "ask",
    "nap",
    "lenient",
    "strict",
    "ladder",
    "ladder",
    JURY,
    JURY,
    JURY,
    JURY,
    JURY,
    JURY,
    JURY,
    "twice",
    "twice",
    "again",
    "again",
    "shaky",
    "doomed",
    "spread",
    "journal",
    EXPENSE_APPROVAL,
    EXPORT_JOB,
    EXPORT_JOB,
    REMINDER,
];

/// Graphs that never sleep.
const INSTANT: [&str; 2] = ["diary", "ledger"];

/// What is asked for from the start of a run, and when.
pub(crate) struct Plan {
    pub(crate) operations: Vec<(Duration, Operation)>,
    /// How many workers may die of one invocation, where some kill their workers.
    pub(crate) attempts: Option<u32>,
    /// Whether the services refuse every other registration, as long as anything may fail.
    pub(crate) refuses: bool,
}

/// A plan for a run.
pub(crate) fn plan(chance: &mut fastrand::Rng) -> Plan {
    match chance.u8(..8) {
        0 => Plan { operations: listeners(chance), attempts: None, refuses: false },
        1 if chance.u8(..3) == 0 => Plan { operations: strangers(chance), attempts: None, refuses: true },
        2 => Plan { operations: errands(chance), attempts: None, refuses: false },
        1 => Plan { attempts: Some(chance.u32(1..=3)), operations: poisoners(chance), refuses: false },
        _ => Plan { operations: stories(chance), attempts: None, refuses: false },
    }
}

/// Some who sleep long, and events for them that do not fit.
fn strangers(chance: &mut fastrand::Rng) -> Vec<(Duration, Operation)> {
    let mut plan = Vec::new();
    for number in 1..=chance.u8(4..=8) {
        let due = Duration::from_millis(chance.u64(0..2_000));
        let invocation = format!("i-{number}");
        let graph = ["ask", "ask", EXPENSE_APPROVAL, REMINDER][chance.usize(..4)];
        if graph == "ask" {
            let mut detail = misfit(graph, chance);
            detail.insert("id".to_owned(), signal_of(&invocation).into());
            let event = Event { source: "answers".to_owned(), detail_type: "Told".to_owned(), detail };
            plan.push((due + Duration::from_millis(chance.u64(0..20_000)), Operation::Hear { event }));
        }
        plan.push((due, turn(chance, graph, invocation)));
    }
    plan
}

/// What kills its workers, beside others.
fn poisoners(chance: &mut fastrand::Rng) -> Vec<(Duration, Operation)> {
    let mut plan = Vec::new();
    for story in 1..=chance.u8(2..=5) {
        let due = Duration::from_millis(chance.u64(0..2_000));
        let graph = if chance.bool() { POISON } else { SLEEPERS[chance.usize(..SLEEPERS.len())] };
        let invocation = format!("i-{story}");
        plan.extend(early_signals(chance, due, graph, &invocation));
        plan.push((due, turn(chance, graph, invocation)));
    }
    if chance.bool() {
        let key = "a desk".to_owned();
        plan.push((
            Duration::from_millis(chance.u64(0..1_000)),
            Operation::ProtocolRequest(ProtocolRequest::Workspace { key }),
        ));
    }
    plan
}

/// Agents that pay, side by side, of whom somebody may think better.
fn errands(chance: &mut fastrand::Rng) -> Vec<(Duration, Operation)> {
    let mut plan = Vec::new();
    for number in 1..=chance.u8(1..=3) {
        let due = Duration::from_millis(chance.u64(0..2_000));
        let invocation = format!("i-{number}");
        plan.extend(cancellation(chance, due, &invocation));
        let (graph, _) = AGENTS[chance.usize(..AGENTS.len())];
        plan.push((due, turn(chance, graph, invocation)));
    }
    plan
}

fn stories(chance: &mut fastrand::Rng) -> Vec<(Duration, Operation)> {
    let mut plan = Vec::new();
    for story in 1..=chance.usize(2..=6) {
        let due = Duration::from_millis(chance.u64(0..2_000));
        match chance.u8(..10) {
            0..=5 => {
                let graph = SLEEPERS[chance.usize(..SLEEPERS.len())];
                let invocation = format!("i-{story}");
                plan.extend(early_signals(chance, due, graph, &invocation));
                plan.extend(cancellation(chance, due, &invocation));
                plan.extend(foreign_event(chance, due, graph, &invocation));
                plan.push((due, turn(chance, graph, invocation)));
            }
            6 | 7 => {
                // Several in a row, so that they meet in their session.
                let graph = if chance.bool() { INSTANT[chance.usize(..INSTANT.len())] } else { "journal" };
                for part in 0..chance.u8(2..=4) {
                    let invocation = format!("i-{story}-{part}");
                    plan.extend(cancellation(chance, due, &invocation));
                    plan.push((due, turn(chance, graph, invocation)));
                }
            }
            _ => {
                for part in 0..chance.u8(1..=3) {
                    let asks = if chance.u8(..3) == 0 { " needs approval" } else { "" };
                    let session = format!("chat-{}", chance.u8(1..=2));
                    let text = format!("m-{story}-{part}{asks}");
                    let keyed = chance.bool();
                    plan.push((
                        due + Duration::from_millis(chance.u64(0..3_000)),
                        Operation::Message { session, text, keyed },
                    ));
                }
            }
        }
    }
    if chance.u8(..3) == 0 {
        let key = "a desk".to_owned();
        plan.push((
            Duration::from_millis(chance.u64(0..1_000)),
            Operation::ProtocolRequest(ProtocolRequest::Workspace { key }),
        ));
    }
    plan
}

/// Some who wait for the same event, one after the other: its rule may go between them, or be relied on still.
fn listeners(chance: &mut fastrand::Rng) -> Vec<(Duration, Operation)> {
    let mut at = Duration::from_millis(chance.u64(0..2_000));
    let mut plan = Vec::new();
    for number in 1..=chance.u8(6..=12) {
        let invocation = format!("i-{number}");
        plan.push((at, turn(chance, "ask", invocation.clone())));
        at += Duration::from_millis(chance.u64(1_000..3_000));
        plan.push((at, Operation::Cancel { invocation, pause: None }));
        at += Duration::from_millis(chance.u64(0..30_000));
    }
    plan
}

fn turn(chance: &mut fastrand::Rng, graph: &'static str, invocation: String) -> Operation {
    let keeps_session = graph == "journal" || INSTANT.contains(&graph);
    let session = keeps_session.then(|| format!("{graph}-{}", chance.u8(1..=2)));
    let state = match graph {
        EXPENSE_APPROVAL => json!({ "employee": "Ada", "amount_cents": 120_000, "purpose": "a lathe" }),
        EXPORT_JOB => json!({ "dataset": "orders" }),
        REMINDER => json!({ "text": "wake up", "after": "PT10M" }),
        _ if is_agent(graph) => json!({ "messages": [{ "role": "user", "content": "go" }] }),
        _ => json!({}),
    };
    Operation::Turn { graph, invocation, session, state }
}

/// One of those whom the jury asks.
pub(crate) fn juror(chance: &mut fastrand::Rng) -> &'static str {
    JURORS[chance.usize(..JURORS.len())]
}

/// When something comes that may come before a turn, which begins at `due`, or behind it: half of the time just then.
fn around(chance: &mut fastrand::Rng, due: Duration) -> Duration {
    let latest = if chance.bool() { 100 } else { 2_000 };
    due.saturating_sub(Duration::from_millis(50)) + Duration::from_millis(chance.u64(0..latest))
}

/// Somebody may change their mind about an invocation that begins at `due`, or before it does.
fn cancellation(chance: &mut fastrand::Rng, due: Duration, invocation: &str) -> Option<(Duration, Operation)> {
    let at = around(chance, due);
    (chance.u8(..8) == 0).then(|| (at, Operation::Cancel { invocation: invocation.to_owned(), pause: None }))
}

/// A signal that may come before its wait, and again by another way while the first is looked at.
fn early_signals(
    chance: &mut fastrand::Rng,
    due: Duration,
    graph: &str,
    invocation: &str,
) -> Vec<(Duration, Operation)> {
    let signal_id = match graph {
        EXPENSE_APPROVAL => format!("expense-{invocation}"),
        EXPORT_JOB => format!("export-{invocation}"),
        "twice" => signal_of(&format!("{invocation}-{}", chance.u8(1..=2))),
        JURY => signal_of_part(invocation, juror(chance)),
        "again" | REMINDER => return Vec::new(),
        _ => signal_of(invocation),
    };
    let times = [0, 0, 1, 3][chance.usize(..4)];
    let at = around(chance, due);
    let payload = answer(graph, &format!("early-{invocation}"));
    let signal = |over_http: bool| {
        let signal_id = signal_id.clone();
        let payload = payload.clone();
        if over_http { Operation::Signal { signal_id, payload } } else { Operation::Event { signal_id, payload } }
    };
    (0..times).map(|_| (at, signal(chance.bool()))).collect()
}

/// An event that names the signal of an invocation, whether or not that waits for an event of this kind.
fn foreign_event(
    chance: &mut fastrand::Rng,
    due: Duration,
    graph: &str,
    invocation: &str,
) -> Option<(Duration, Operation)> {
    let (kind, field, id) = match graph {
        EXPENSE_APPROVAL => ("Export Finished", "job_id", format!("expense-{invocation}")),
        "twice" => ("Told", "id", signal_of(&format!("{invocation}-1"))),
        JURY => ("Told", "id", signal_of_part(invocation, juror(chance))),
        "again" | EXPORT_JOB | REMINDER => return None,
        _ => ("Told", "id", signal_of(invocation)),
    };
    let source = if graph == EXPENSE_APPROVAL { "exporter" } else { ["answers", "rumours"][chance.usize(..2)] };
    let mut detail = match chance.u8(..4) {
        0 => misfit(graph, chance),
        _ => answer(graph, &format!("heard-{invocation}")),
    };
    detail.insert(field.to_owned(), id.into());
    let event = Event { source: source.to_owned(), detail_type: kind.to_owned(), detail };
    let at = due + Duration::from_millis(chance.u64(0..20_000));
    (chance.u8(..3) == 0).then_some((at, Operation::Hear { event }))
}

/// What answers a pause of `graph` so that `token` can be seen in the outcome.
pub(crate) fn answer(graph: &str, token: &str) -> Map {
    let answer = match graph {
        EXPENSE_APPROVAL => json!({ "decision": "approved", "decided_by": token }),
        EXPORT_JOB => json!({ "status": "succeeded", "url": token }),
        REMINDER => json!({}),
        "chat" => json!({ "allowed": true }),
        _ => json!({ "answer": token }),
    };
    crate::map(answer)
}

/// An answer that no pause of `graph` accepts: it breaks a type, or sets more than was asked for.
pub(crate) fn misfit(graph: &str, chance: &mut fastrand::Rng) -> Map {
    let wrong_type = match graph {
        EXPENSE_APPROVAL => json!({ "decided_by": 1 }),
        EXPORT_JOB => json!({ "url": 1 }),
        REMINDER => json!({ "text": 1 }),
        "chat" => json!({ "allowed": "perhaps" }),
        _ => json!({ "answer": 1 }),
    };
    let overreach = match graph {
        EXPENSE_APPROVAL => json!({ "decision": "approved", "decided_by": "Mallory", "amount_cents": 1 }),
        // What an event carries beside is dropped.
        EXPORT_JOB | "ask" | "lenient" => return crate::map(wrong_type),
        REMINDER => json!({ "reminded_at": "never" }),
        "chat" => json!({ "allowed": true, "messages": [] }),
        _ => json!({ "answer": "forged", "answers": ["forged"] }),
    };
    crate::map(if chance.bool() { wrong_type } else { overreach })
}
