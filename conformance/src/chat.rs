//! Cases that send messages to a chat and signals to what it leaves asleep.

use std::sync::{Arc, Mutex, PoisonError};

use dormouse_engine::DrainSummary;
use dormouse_harness::chat::{ChatHarness, ChatMessage, ChatTurnOutcome, Listener, ListenerHandle, SendOptions};
use dormouse_harness::{DispatchPath, Harness, Transmission, TurnOutcome};
use dormouse_ports::{Map, SessionId};
use futures::FutureExt;
use serde_json::Value;

use crate::Failure;
use crate::bench::{Bench, Compiled, Ids};
use crate::directives::Directives;
use crate::evidence::{End, Evidence, SeenError, Stage};
use crate::expect::{self, Expectations};
use crate::turns::{GRAPH, HarnessSpec, compiled};

/// One message to the chat.
pub(crate) struct ChatTurnSpec {
    name: String,
    session_id: SessionId,
    user_message: Value,
    listener: Option<String>,
    pub(crate) expectations: Expectations<ChatEvidence>,
}

/// One signal.
pub(crate) struct ArrivalSpec {
    /// After which turn it comes; after the last one when absent.
    after_turn: Option<String>,
    ids: Map,
    payload: Map,
    /// The listener that must hear of the resumed turn, and what.
    callback: Option<(String, Expectations<ChatEvidence>)>,
}

/// What one message, or a signal behind it, came to.
pub(crate) struct ChatEvidence {
    pub(crate) base: Evidence,
    pub(crate) path: Option<DispatchPath>,
    pub(crate) outcome: ChatTurnOutcome,
}

impl ChatTurnSpec {
    pub(crate) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        given.text("description")?;
        let spec = Self {
            name: given.text("name")?.unwrap_or("turn").to_owned(),
            session_id: given.text("session_id")?.unwrap_or_default().into(),
            user_message: given.require("user_message")?.clone(),
            listener: given.text("subscribe_listener")?.map(str::to_owned),
            expectations: Expectations::read(&mut given, expect::chat::find)?,
        };
        given.done()?;
        Ok(spec)
    }
}

impl ArrivalSpec {
    pub(crate) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        given.text("name")?;
        let after_turn = given.text("after_turn")?.map(str::to_owned);
        let mut ids = Map::new();
        for key in ["signal_id", "invocation_id"] {
            ids.extend(given.given(key).map(|id| (key.to_owned(), id.clone())));
        }
        let payload = given.mapping("signal_payload")?.cloned().unwrap_or_default();
        let callback = given.nested("expected_listener_callback")?.map(callback).transpose()?;
        given.done()?;
        Ok(Self { after_turn, ids, payload, callback })
    }
}

fn callback(mut given: Directives<'_>) -> Result<(String, Expectations<ChatEvidence>), Failure> {
    let listener = given.required_text("listener")?.to_owned();
    let expectations = Expectations::read(&mut given, expect::chat::find)?;
    given.done()?;
    Ok((listener, expectations))
}

pub(crate) async fn run(
    bench: Bench<'_>,
    harness: &HarnessSpec,
    turns: &[ChatTurnSpec],
    arrivals: &[ArrivalSpec],
) -> Result<(), Failure> {
    let compiled = compiled(&bench).await?;
    let (harness, _) = harness.build(&compiled, &bench.capture);
    let chat = ChatHarness::new(harness.clone(), GRAPH)
        .map_err(|error| Failure::mismatch(format!("the chat was refused: {error}")))?;
    let mut case = ChatCase { bench, compiled, harness, chat, heard: Arc::default(), handles: Vec::new() };
    let mut failures = Vec::new();
    for (index, turn) in turns.iter().enumerate() {
        failures.extend(case.send(turn).await.map_err(|failure| failure.within(&turn.name)).err());
        let is_last = index + 1 == turns.len();
        let due = arrivals.iter().filter(|arrival| match &arrival.after_turn {
            Some(name) => *name == turn.name,
            None => is_last,
        });
        for arrival in due {
            failures.extend(case.arrive(arrival).await.map_err(|failure| failure.within("signal")).err());
        }
    }
    Failure::all(failures)
}

struct ChatCase<'c> {
    bench: Bench<'c>,
    compiled: Compiled,
    harness: Harness,
    chat: ChatHarness,
    /// What listeners were told, by their names.
    heard: Arc<Mutex<Vec<(String, ChatTurnOutcome)>>>,
    /// Listeners stay subscribed until the case ends.
    handles: Vec<ListenerHandle>,
}

impl ChatCase<'_> {
    async fn send(&mut self, turn: &ChatTurnSpec) -> Result<(), Failure> {
        self.bench.start_pages();
        if let Some(name) = &turn.listener {
            self.handles.push(self.chat.subscribe(&turn.session_id, self.listener(name)));
        }
        let message = ChatMessage::unchecked(turn.user_message.clone());
        let sending = self.chat.send_as(&turn.session_id, message, SendOptions::default());
        let (path, outcome) = self.bench.capture.around(sending).await;
        if let ChatTurnOutcome::Suspended { invocation_id, .. } = &outcome {
            self.bench.past.remember(&turn.name, crate::past::EndKind::Suspended, invocation_id.as_str());
        }
        let seen = self.evidence(Some(turn.session_id.to_string()), path, outcome).await?;
        turn.expectations.check_end(&seen.base.end, &seen)
    }

    fn listener(&self, name: &str) -> Listener {
        let heard = self.heard.clone();
        let name = name.to_owned();
        Arc::new(move |outcome| {
            heard.lock().unwrap_or_else(PoisonError::into_inner).push((name.clone(), outcome));
            futures::future::ready(()).boxed()
        })
    }

    async fn arrive(&mut self, arrival: &ArrivalSpec) -> Result<(), Failure> {
        self.bench.start_pages();
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let ids = self.bench.past.resolve_map(&arrival.ids)?;
        let id = |key: &str| ids.get(key).and_then(Value::as_str);
        let transmission = match (id("signal_id"), id("invocation_id")) {
            (Some(signal), _) => Transmission::signal(signal, arrival.payload.clone()),
            (None, Some(invocation)) => Transmission::callback(invocation, None, arrival.payload.clone()),
            (None, None) => return Err(Failure::invalid("a signal needs a signal_id or an invocation_id")),
        };
        let turn = self.bench.capture.around(self.harness.turn(transmission)).await;
        let heard = std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner));
        let Some((listener, expectations)) = &arrival.callback else {
            return match heard.len() {
                0 => Ok(()),
                told => Err(Failure::mismatch(format!("{told} listeners were called, but none is expected to be"))),
            };
        };
        let mut own: Vec<_> = heard.into_iter().filter(|(name, _)| name == listener).map(|(_, told)| told).collect();
        let (Some(outcome), true) = (own.pop(), own.is_empty()) else {
            let text = format!("listener `{listener}` was called {} times, not once", own.len());
            return Err(Failure::mismatch(format!("{text}; the turn: {}", tell(&turn.outcome))));
        };
        let seen = self.evidence(None, turn.path, outcome).await?;
        expectations.check_end(&seen.base.end, &seen)
    }

    async fn evidence(
        &self,
        session_id: Option<String>,
        path: Option<DispatchPath>,
        outcome: ChatTurnOutcome,
    ) -> Result<ChatEvidence, Failure> {
        let drain: DrainSummary = self.compiled.built.graph.drain(&*self.bench.ports.clock, None).await;
        let identity = self.bench.ledger.identity();
        let ids = Ids {
            invocation_id: identity.as_ref().map(|identity| identity.invocation_id.to_string()),
            correlation_id: identity.map(|identity| identity.correlation_id.clone()),
            session_id,
        };
        let end = end_of(&outcome);
        let base = self.bench.evidence(Stage::Invocation, end, ids, Some(&self.compiled), drain).await?;
        Ok(ChatEvidence { base, path, outcome })
    }
}

fn tell(outcome: &TurnOutcome) -> String {
    match outcome {
        TurnOutcome::Errored(error) => format!("errored: {}: {}", error.category, error.message),
        TurnOutcome::Completed(_) => "completed".to_owned(),
        TurnOutcome::Suspended(_) => "suspended".to_owned(),
        TurnOutcome::Buffered { .. } => "kept for later".to_owned(),
        TurnOutcome::Stale { .. } => "too late".to_owned(),
    }
}

fn end_of(outcome: &ChatTurnOutcome) -> End {
    match outcome {
        ChatTurnOutcome::Completed { final_state, .. } => End::Completed { state: final_state.clone() },
        ChatTurnOutcome::Errored { error_category, reply, .. } => {
            let text = reply.as_map().get("content").and_then(Value::as_str).unwrap_or_default();
            End::Errored(SeenError::bare(error_category, text))
        }
        ChatTurnOutcome::Suspended { signal_descriptor, .. } => {
            End::Suspended { state: Map::new(), descriptor: signal_descriptor.clone(), node: String::new() }
        }
    }
}
