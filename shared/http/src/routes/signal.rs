//! `POST /signals/{signal_id}`

use dormouse_api::Proof;
use dormouse_harness::{Transmission, Turn, TurnOutcome};
use dormouse_ports::{Category, SignalId};
use serde_json::json;

use crate::encode::AnsweredCaller;
use crate::refusal::{BEARER, RequestRefusal};
use crate::reply::TurnReply;
use crate::said::{Delivered, SignalDelivered};
use crate::{App, Request, body};

impl App {
    pub(super) async fn post_signal(&self, signal_id: &str, request: &Request) -> Result<TurnReply, RequestRefusal> {
        let is_operator = self.is_operator(request);
        if !is_operator {
            self.may_signal(signal_id, request)?;
        }
        let proof = if is_operator { Proof::SignalKey } else { Proof::Address };
        self.began(request, proof, None).await?;
        body::check_id("signal_id", signal_id)?;
        let payload = body::object(request, self.limits().signal_payload)?;
        let signal = Transmission::signal(signal_id, payload);
        let turn = self.harness().turn(Transmission { time_left: request.time_left, ..signal }).await;
        let reply = self.encode(&turn, &AnsweredCaller::Operator, true);
        Ok(if is_operator { reply } else { delivered(signal_id, &turn, reply) })
    }

    /// Whether the caller holds the address of the signal.
    fn may_signal(&self, signal_id: &str, request: &Request) -> Result<(), RequestRefusal> {
        let Some(token) = request.query_value("token") else {
            let message = "send the key as authorization: Bearer <key>, or use the whole address that you were given";
            return Err(RequestRefusal::new(Category::Unauthorized, message).header("www-authenticate", BEARER));
        };
        let now = self.engine().ports().clock.now();
        match self.callbacks().verify_signal(&SignalId::from(signal_id), &token, now) {
            Some(true) => Ok(()),
            Some(false) => Err(RequestRefusal::address_over()),
            None => Err(RequestRefusal::no_invocation()),
        }
    }

    pub(super) fn is_operator(&self, request: &Request) -> bool {
        let presented = request.header("authorization").and_then(|value| value.split_once(' '));
        presented
            .is_some_and(|(scheme, key)| scheme.eq_ignore_ascii_case("bearer") && self.signal_key().matches(key.trim()))
    }
}

/// What the holder of an address is told: that the signal came, and nothing of whom it woke.
fn delivered(signal_id: &str, turn: &Turn, reply: TurnReply) -> TurnReply {
    let repeated = match &turn.outcome {
        TurnOutcome::Completed(done) if done.overruled.is_none() => done.repeated,
        TurnOutcome::Suspended(pause) => pause.repeated,
        TurnOutcome::Completed(_)
        | TurnOutcome::Errored(_)
        | TurnOutcome::Buffered { .. }
        | TurnOutcome::Stale { .. } => return reply,
    };
    TurnReply::new(200, json!(SignalDelivered { status: Delivered::Delivered, signal_id, repeated }))
}
