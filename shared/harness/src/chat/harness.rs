use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::EngineError;
use dormouse_ports::{Category, InvocationId, Map, SessionId};
use serde_json::Value;

use super::history::{MESSAGES, carried_length, carry, unfit};
use super::listener::{Listener, ListenerHandle};
use super::message::ChatMessage;
use super::outcome::ChatTurnOutcome;
use crate::error::TurnError;
use crate::harness::Harness;
use crate::mode::Mode;
use crate::outcome::TurnOutcome;
use crate::transmission::{DispatchPath, FreshTurn, Transmission};
use crate::turn::start::start;
use crate::turn_span::in_span;

/// A chat-shaped harness over one graph (harness-chat §1). Cheap to clone.
#[derive(Clone, Debug)]
pub struct ChatHarness {
    harness: Harness,
    graph: String,
}

/// Options for sending a message.
#[derive(Clone, Debug, Default)]
pub struct SendOptions {
    /// The id that its turn shall have, which makes repeating it safe.
    pub invocation_id: Option<InvocationId>,
    /// A digest of the sender and the message ([`FreshTurn::request_digest`]).
    pub request_digest: Option<String>,
    /// The tenant of the sender, where one is known.
    pub tenant: Option<String>,
    /// Time that the worker has left.
    pub time_left: Option<Duration>,
}

impl ChatHarness {
    /// A chat over the graph called `graph`.
    ///
    /// # Errors
    /// `graph_unknown`; `harness_path_classification_ambiguous` when the harness is stateless;
    /// `state_validation_error` when the graph has no `messages` field that its sessions keep and its turns append to.
    pub fn new(harness: Harness, graph: &str) -> Result<Self, EngineError> {
        let compiled = harness.graphs().get(graph)?;
        if harness.config().mode == Mode::Stateless {
            let message = "a chat needs sessions; construct the harness in sessioned mode";
            return Err(EngineError::new(Category::HarnessPathClassificationAmbiguous, message));
        }
        if let Some(reason) = unfit(compiled) {
            let message = format!("graph `{graph}` is no chat: {reason}");
            return Err(EngineError::new(Category::StateValidationError, message));
        }
        Ok(Self { harness, graph: graph.to_owned() })
    }

    /// Sends a message into a conversation and waits for the outcome of the turn (§5). Sends to the same session run
    /// one after the other, on all machines together; sends to different sessions run side by side.
    pub async fn send(&self, session_id: &SessionId, message: ChatMessage) -> ChatTurnOutcome {
        self.send_as(session_id, message, SendOptions::default()).await.1
    }

    /// As [`send`](Self::send), with the options in `sending`; also returns the dispatch path of the turn (§6), where
    /// one began.
    pub async fn send_as(
        &self,
        session_id: &SessionId,
        message: ChatMessage,
        sending: SendOptions,
    ) -> (Option<DispatchPath>, ChatTurnOutcome) {
        if let Err(error) = check(session_id, &message) {
            return (None, ChatTurnOutcome::errored(&error));
        }
        let state = Map::from_iter([(MESSAGES.to_owned(), Value::Array(vec![message.into_value()]))]);
        let turn = FreshTurn {
            session_id: Some(session_id.clone()),
            invocation_id: sending.invocation_id,
            request_digest: sending.request_digest,
            tenant: sending.tenant,
            ..FreshTurn::new(self.graph.clone(), state)
        };
        let worker = self.harness.worker();
        let work = Box::pin(start(worker, turn.clone(), sending.time_left, Some(Arc::new(carry))));
        let transmission = Transmission { time_left: sending.time_left, ..turn.into() };
        let tracer = worker.config.turn_tracer.as_ref();
        match in_span(tracer, &transmission, DispatchPath::ExistingSession, work).await {
            TurnOutcome::Errored(error) => (None, ChatTurnOutcome::errored(&error)),
            outcome @ (TurnOutcome::Completed(_)
            | TurnOutcome::Suspended(_)
            | TurnOutcome::Buffered { .. }
            | TurnOutcome::Stale { .. }) => {
                let history = carried_length(&outcome);
                let path = if history <= 1 { DispatchPath::NewSession } else { DispatchPath::ExistingSession };
                (Some(path), ChatTurnOutcome::of(&outcome, history))
            }
        }
    }

    /// Calls `listener` once for every turn of the session that is resumed in this process and ends, with the replies
    /// behind the pause or the error (§8.2), until the handle is dropped.
    pub fn subscribe(&self, session_id: &SessionId, listener: Listener) -> ListenerHandle {
        self.harness.worker().listeners.subscribe(session_id.clone(), listener)
    }
}

fn check(session_id: &SessionId, message: &ChatMessage) -> Result<(), TurnError> {
    message.validate().map_err(|reason| TurnError::new(Category::ChatMessageShapeInvalid, reason))?;
    if session_id.as_str().is_empty() {
        return Err(TurnError::new(Category::HarnessSessionIdUnresolved, "the session_id is empty"));
    }
    Ok(())
}
