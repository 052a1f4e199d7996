//! From outcomes to answers.

use dormouse_harness::{CompletedTurn, SuspendedTurn, Tally, Turn, TurnOutcome};
use dormouse_ports::{InvocationId, Map};
use serde_json::{Value, json};

use crate::refusal::Refusal;
use crate::{App, HttpResponse, percent, telemetry};

/// Who is answered: it decides which addresses the answer may hold.
#[derive(Debug)]
pub(crate) enum Holder {
    /// Somebody who may begin turns or send signals at all.
    Operator,
    /// Somebody who was given the address of one pause and may wake that one only.
    Token {
        /// What they presented.
        token: String,
        /// The pause that it is for.
        generation: u64,
        /// The one of several signals that it is for.
        part: Option<String>,
    },
}

impl Holder {
    /// The one pause that they may wake.
    pub(crate) fn generation(&self) -> Option<u64> {
        match self {
            Self::Operator => None,
            Self::Token { generation, .. } => Some(*generation),
        }
    }

    /// The one part of it that they may answer for.
    pub(crate) fn part(&self) -> Option<String> {
        match self {
            Self::Operator => None,
            Self::Token { part, .. } => part.clone(),
        }
    }
}

/// The addresses of a pause.
#[derive(Debug)]
pub(crate) struct Links {
    /// Where to look.
    pub(crate) status: String,
    /// Where to wake it, for those who may.
    pub(crate) callback: Option<String>,
    /// Where to answer for each part, when it expects several signals.
    parts: Map,
}

impl Links {
    pub(crate) fn add_to(&self, answer: &mut Value) {
        if let Some(callback) = &self.callback {
            answer["callback_url"] = callback.as_str().into();
        }
        if !self.parts.is_empty() {
            answer["callback_urls"] = self.parts.clone().into();
        }
        answer["status_url"] = self.status.as_str().into();
    }
}

impl App {
    /// Answers for a turn and leaves a line about it in the log.
    pub(crate) fn answer(&self, turn: &Turn, holder: &Holder) -> HttpResponse {
        telemetry::turn(turn);
        match &turn.outcome {
            TurnOutcome::Completed(done) => HttpResponse::new(200, completed(done)),
            TurnOutcome::Suspended(pause) => self.acknowledge(pause, holder),
            TurnOutcome::Errored(error) => Refusal::from((**error).clone()).into(),
            TurnOutcome::Buffered { signal_id, expires_at } => HttpResponse::new(
                202,
                json!({ "status": "buffered", "signal_id": signal_id, "expires_at": expires_at.to_string() }),
            ),
            TurnOutcome::Stale { invocation_id } => {
                HttpResponse::new(200, json!({ "status": "stale", "invocation_id": invocation_id, "repeated": true }))
            }
        }
    }

    /// Shows what an invocation has come to. That it ended with an error is a fact about it, and no failure of the
    /// request.
    pub(crate) fn present(&self, outcome: &TurnOutcome, holder: &Holder) -> HttpResponse {
        match outcome {
            TurnOutcome::Completed(done) => HttpResponse::new(200, completed(done)),
            TurnOutcome::Suspended(pause) => HttpResponse::new(200, self.acknowledge(pause, holder).body),
            TurnOutcome::Errored(error) => HttpResponse::new(
                200,
                json!({
                    "status": "errored",
                    "invocation_id": error.invocation_id,
                    "error": Refusal::body(error),
                }),
            ),
            TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. } => Refusal::no_invocation().into(),
        }
    }

    fn acknowledge(&self, pause: &SuspendedTurn, holder: &Holder) -> HttpResponse {
        let links = self.links(&pause.invocation_id, pause.generation, pause.tally.as_ref(), holder);
        let mut answer = json!({
            "status": "suspended",
            "invocation_id": pause.invocation_id,
            "session_id": pause.session_id,
            "graph": pause.graph,
            "generation": pause.generation,
            "waiting_for": pause.descriptor,
            "wake": pause.wake,
            "suspending_node": pause.suspending_node,
            "state": pause.state,
            "repeated": pause.repeated,
        });
        if let Some(tally) = &pause.tally {
            answer["accepted"] = tally.accepted.clone().into();
            answer["answered"] = tally.answered.clone().into();
            answer["missing"] = tally.missing.clone().into();
        }
        if let Some(late) = &pause.late {
            answer["late"] = late.as_str().into();
        }
        links.add_to(&mut answer);
        HttpResponse::new(202, answer).header("location", links.status)
    }

    /// The addresses of pause `generation`, and of each of its parts when it expects several signals. A token opens one
    /// pause, or one part of it: whoever holds one is not given another.
    pub(crate) fn links(&self, id: &InvocationId, generation: u64, tally: Option<&Tally>, holder: &Holder) -> Links {
        let address = |what: &str, token: &str, part: Option<&str>| {
            let (base, id, token) = (self.base_url(), percent::encode(id.as_str()), percent::encode(token));
            let part = part.map(|part| format!("&part={}", percent::encode(part))).unwrap_or_default();
            format!("{base}/{what}/{id}?token={token}{part}")
        };
        let own = |token: &str, part: Option<&str>, may_wake: bool| Links {
            status: address("invocations", token, part),
            callback: may_wake.then(|| address("callback", token, part)),
            parts: Map::new(),
        };
        match holder {
            Holder::Token { token, generation: of, part } => {
                let may_wake = *of == generation && part.is_some() == tally.is_some();
                own(token, part.as_deref(), may_wake)
            }
            Holder::Operator => {
                let parts = tally.iter().flat_map(|tally| tally.answered.iter().chain(&tally.missing));
                let link =
                    |part: &str| address("callback", &self.callbacks().token(id, generation, Some(part)), Some(part));
                let parts = parts.map(|part| (part.clone(), link(part).into())).collect();
                let token = self.callbacks().token(id, generation, None);
                Links { parts, ..own(&token, None, tally.is_none()) }
            }
        }
    }
}

fn completed(done: &CompletedTurn) -> Value {
    json!({
        "status": "completed",
        "invocation_id": done.invocation_id,
        "session_id": done.session_id,
        "graph": done.graph,
        "state": done.state,
        "resolution": done.resolution,
        "repeated": done.repeated,
    })
}
