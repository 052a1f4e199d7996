//! `POST /signals/{signal_id}`

use dormouse_api::{Actor, Proof};
use dormouse_harness::{Signal, SignalOrigin, Transmission, Turn, TurnOutcome};
use dormouse_ports::{Category, SignalId};
use dormouse_protocol::Scope;
use serde_json::json;

use crate::encode::AnsweredCaller;
use crate::refusal::{BEARER, RequestRefusal};
use crate::reply::TurnReply;
use crate::said::{Delivered, SignalDelivered};
use crate::{App, Request, body};

/// The scope that a key needs to send signals to invocations of its tenant.
const OF_SIGNALS: [Scope; 1] = [Scope::SignalsWrite];

/// Said to who has such a key where signals of tenants are not taken.
const NOT_OFFERED: &str =
    "this deployment takes no signals with keys of tenants: deploy it with SIGNALS_OF_TENANTS=enabled";

/// Sender of a signal.
enum SignalSender {
    /// Who has the key of the deployment.
    Operator,
    /// Who has the address of the signal.
    AddressHolder,
    /// Who has a key of a tenant.
    Tenant(Box<Actor>),
}

impl App {
    pub(super) async fn post_signal(&self, signal_id: &str, request: &Request) -> Result<TurnReply, RequestRefusal> {
        let origin = self.may_signal(signal_id, request).await?;
        body::check_signal_id(signal_id)?;
        let payload = body::object(request, self.limits().signal_payload)?;
        let (origin, is_operator) = match origin {
            SignalSender::Operator => (SignalOrigin::Sent, true),
            SignalSender::AddressHolder => (SignalOrigin::Sent, false),
            SignalSender::Tenant(holder) => {
                let Actor { tenant, name, credential, .. } = *holder;
                (SignalOrigin::Tenant { tenant, actor: name, credential }, false)
            }
        };
        let signal = Signal { origin, ..Signal::new(signal_id, payload) };
        let turn = self.harness().turn(Transmission { time_left: request.time_left, ..signal.into() }).await;
        let reply = self.encode(&turn, &AnsweredCaller::Operator, true);
        Ok(if is_operator { reply } else { delivered(signal_id, &turn, reply) })
    }

    /// The sender of a signal: who has the key of the deployment or the address of the signal, or a key of a tenant that may
    /// send signals.
    async fn may_signal(&self, signal_id: &str, request: &Request) -> Result<SignalSender, RequestRefusal> {
        if self.is_operator(request) {
            self.began(request, Proof::SignalKey, None).await?;
            return Ok(SignalSender::Operator);
        }
        let Some(token) = request.query_value("token") else {
            if request.header("authorization").is_none() {
                let message = "send a key as authorization: Bearer <key>, or use the whole address that you were given";
                return Err(RequestRefusal::new(Category::Unauthorized, message).header("www-authenticate", BEARER));
            }
            let holder = self.holder(request, &OF_SIGNALS).await?;
            if !self.limits().signals_of_tenants {
                return Err(RequestRefusal::new(Category::Unauthorized, NOT_OFFERED).status(403));
            }
            return Ok(SignalSender::Tenant(Box::new(holder)));
        };
        let now = self.engine().ports().clock.now();
        match self.callbacks().verify_signal(&SignalId::from(signal_id), &token, now) {
            Some(true) => {
                self.began(request, Proof::Address, None).await?;
                Ok(SignalSender::AddressHolder)
            }
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

/// What the holder of an address or of a tenant's key is told: that the signal came, and nothing of whom it woke.
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
