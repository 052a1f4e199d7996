//! `GET /invocations/{invocation_id}`, `POST /callback/{invocation_id}` and `POST /invocations/{invocation_id}/cancel`:
//! for whoever holds the address of a pause; canceling also for whoever has the signal key.

use dormouse_harness::{Transmission, TurnError, TurnOutcome};
use dormouse_ports::{Category, InvocationId};
use serde::Deserialize;
use serde_json::json;

use crate::encode::Holder;
use crate::http::query_value;
use crate::refusal::Refusal;
use crate::{App, HttpRequest, HttpResponse, body};

/// The body of a cancellation; may be missing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(default)]
    reason: Option<String>,
}

impl App {
    pub(super) async fn get_invocation(&self, id: &str, request: &HttpRequest) -> Result<HttpResponse, Refusal> {
        let (id, holder) = self.holder(id, request)?;
        match self.harness().look_up(&id).await {
            Ok(outcome) => Ok(self.present(&outcome, &holder)),
            Err(error) => Err(hidden(error)),
        }
    }

    pub(super) async fn post_callback(&self, id: &str, request: &HttpRequest) -> Result<HttpResponse, Refusal> {
        let (id, holder) = self.holder(id, request)?;
        let payload = body::object(request, self.limits().signal_payload)?;
        let (time_left, part) = (request.time_left, holder.part());
        let callback = Transmission::callback(id, holder.generation(), payload);
        let turn = self.harness().turn(Transmission { time_left, part, ..callback }).await;
        match turn.outcome {
            TurnOutcome::Errored(error) if error.category == Category::HarnessSignalCorrelationFailed => {
                Err(Refusal::no_invocation())
            }
            TurnOutcome::Completed(_)
            | TurnOutcome::Suspended(_)
            | TurnOutcome::Errored(_)
            | TurnOutcome::Buffered { .. }
            | TurnOutcome::Stale { .. } => Ok(self.answer(&turn, &holder)),
        }
    }

    /// Ends an invocation. The holder of a token ends the pause that it is for; the holder of the signal key ends
    /// whatever the id names, also one that never slept or is not known.
    pub(super) async fn post_cancel(&self, id: &str, request: &HttpRequest) -> Result<HttpResponse, Refusal> {
        let (id, generation) = if self.is_operator(request) {
            body::check_id("invocation_id", id)?;
            (InvocationId::from(id), None)
        } else {
            let (id, holder) = self.holder(id, request)?;
            // Who was asked for one of several answers has no say over the others.
            if holder.part().is_some() {
                return Err(Refusal::no_invocation());
            }
            (id, holder.generation())
        };
        let cancel: Cancel = body::typed(body::object(request, self.limits().signal_payload)?)?;
        let canceled = self.harness().cancel(&id, generation, cancel.reason).await?;
        Ok(HttpResponse::new(
            200,
            json!({
                "status": "canceled",
                "invocation_id": canceled.invocation_id,
                "canceled_at": canceled.cancellation.at.to_string(),
                "reason": canceled.cancellation.reason,
                "repeated": canceled.repeated,
            }),
        ))
    }

    /// Who asks. Nothing is loaded before the token is known to be right.
    fn holder(&self, id: &str, request: &HttpRequest) -> Result<(InvocationId, Holder), Refusal> {
        let token = query_value(request, "token").ok_or_else(Refusal::no_invocation)?;
        let id = InvocationId::from(id);
        let part = query_value(request, "part");
        let generation = self.callbacks().verify(&id, part.as_deref(), &token).ok_or_else(Refusal::no_invocation)?;
        Ok((id, Holder::Token { token, generation, part }))
    }
}

/// An invocation that is gone looks like one that never was.
fn hidden(error: TurnError) -> Refusal {
    if error.category == Category::NotFound { Refusal::no_invocation() } else { error.into() }
}
