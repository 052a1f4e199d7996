//! `POST /signals/{signal_id}`

use dormouse_harness::Transmission;
use dormouse_ports::Category;

use crate::encode::AnsweredCaller;
use crate::refusal::{BEARER, RequestRefusal};
use crate::reply::TurnReply;
use crate::{App, Request, body};

impl App {
    pub(super) async fn post_signal(&self, signal_id: &str, request: &Request) -> Result<TurnReply, RequestRefusal> {
        if !self.is_operator(request) {
            let message = "send the key as authorization: Bearer <key>";
            let refusal = RequestRefusal::new(Category::Unauthorized, message);
            return Err(refusal.header("www-authenticate", BEARER));
        }
        body::check_id("signal_id", signal_id)?;
        let payload = body::object(request, self.limits().signal_payload)?;
        let signal = Transmission::signal(signal_id, payload);
        let turn = self.harness().turn(Transmission { time_left: request.time_left, ..signal }).await;
        Ok(self.encode(&turn, &AnsweredCaller::Operator, true))
    }

    pub(super) fn is_operator(&self, request: &Request) -> bool {
        let presented = request.header("authorization").and_then(|value| value.split_once(' '));
        presented
            .is_some_and(|(scheme, key)| scheme.eq_ignore_ascii_case("bearer") && self.signal_key().matches(key.trim()))
    }
}
