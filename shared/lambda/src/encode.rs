//! From outcomes to answers.

use dormouse_harness::{CompletedTurn, SuspendedTurn, Turn, TurnOutcome};
use dormouse_ports::InvocationId;
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
}

/// The addresses of a pause.
#[derive(Debug)]
pub(crate) struct Links {
    /// Where to look.
    pub(crate) status: String,
    /// Where to wake it, for those who may.
    pub(crate) callback: Option<String>,
}

impl Links {
    pub(crate) fn add_to(&self, answer: &mut Value) {
        if let Some(callback) = &self.callback {
            answer["callback_url"] = callback.as_str().into();
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
        let links = self.links(&pause.invocation_id, pause.generation, holder);
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
        links.add_to(&mut answer);
        HttpResponse::new(202, answer).header("location", links.status)
    }

    /// The addresses of pause `generation`. A token opens one pause: whoever holds one is not given another.
    pub(crate) fn links(&self, id: &InvocationId, generation: u64, holder: &Holder) -> Links {
        let (token, may_wake) = match holder {
            Holder::Operator => (self.callbacks().token(id, generation), true),
            Holder::Token { token, generation: own } => (token.clone(), *own == generation),
        };
        let address = |what: &str| {
            let (base, id, token) = (self.base_url(), percent::encode(id.as_str()), percent::encode(&token));
            format!("{base}/{what}/{id}?token={token}")
        };
        Links { status: address("invocations"), callback: may_wake.then(|| address("callback")) }
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
