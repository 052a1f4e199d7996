//! `GET /invocations/{invocation_id}`, `POST /callback/{invocation_id}` and `POST /invocations/{invocation_id}/cancel`:
//! for the holder of the address of a pause; canceling also for the holder of the signal key.

use dormouse_api::Proof;
use dormouse_harness::{Callback, Overruled, Transmission, TurnError, TurnOutcome};
use dormouse_ports::{Category, InvocationId, owned};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::encode::{AnsweredCaller, CANCEL, STATUS, name, stale};
use crate::refusal::RequestRefusal;
use crate::repeat::is_of_a_key;
use crate::reply::TurnReply;
use crate::said::{Canceled, TurnCanceled};
use crate::{App, Authorization, Request, Token, body};

/// The body of a cancellation; may be missing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CancelTurnRequest")]
pub(super) struct CancelBody {
    /// Reason for the cancellation.
    #[serde(default)]
    reason: Option<String>,
    /// The tenant that calls its invocation so; with the signal key alone.
    #[serde(default)]
    tenant: Option<String>,
}

impl App {
    pub(super) async fn get_invocation(&self, id: &str, request: &Request) -> Result<TurnReply, RequestRefusal> {
        let (id, caller) = self.caller(id, request)?;
        match self.harness().look_up(&id).await {
            Ok(mut outcome) => {
                if let Some(fields) = request.query_value("fields") {
                    narrow(&mut outcome, &fields.split(',').collect::<Vec<_>>());
                }
                Ok(self.present(&outcome, &caller))
            }
            Err(error) => Err(hidden(error)),
        }
    }

    pub(super) async fn post_callback(&self, id: &str, request: &Request) -> Result<TurnReply, RequestRefusal> {
        let (id, caller) = self.caller(id, request)?;
        let Some(generation) = caller.generation() else { return Err(RequestRefusal::no_invocation()) };
        self.began(request, Proof::Address, None).await?;
        let payload = body::object(request, self.limits().signal_payload)?;
        let callback = Callback { part: caller.part(), ..Callback::new(id, caller.generation(), payload) };
        let turn = self.harness().turn(Transmission { time_left: request.time_left, ..callback.into() }).await;
        match &turn.outcome {
            TurnOutcome::Errored(error) if error.category == Category::HarnessSignalCorrelationFailed => {
                Err(RequestRefusal::no_invocation())
            }
            // It sleeps again, and this delivery did not bring it there. Its pauses of today are not for this caller.
            TurnOutcome::Suspended(pause) if pause.repeated && pause.generation > generation => match pause.overruled {
                None => Ok(stale(&pause.invocation_id)),
                Some(Overruled::Earlier) => Err(RequestRefusal::pause_over()),
                Some(Overruled::Answered(_) | Overruled::Others | Overruled::Time) => {
                    Ok(self.encode(&turn, &caller, true))
                }
            },
            TurnOutcome::Completed(_)
            | TurnOutcome::Suspended(_)
            | TurnOutcome::Errored(_)
            | TurnOutcome::Buffered { .. }
            | TurnOutcome::Stale { .. } => Ok(self.encode(&turn, &caller, true)),
        }
    }

    /// Ends an invocation. The caller of a token ends the pause that it is for; the caller of the signal key ends any
    /// invocation that the id names, also one that never slept or is not known. Where callers have keys, a name of which
    /// nothing is stored may be one of any tenant, and is refused without the tenant.
    pub(super) async fn post_cancel(&self, id: &str, request: &Request) -> Result<TurnReply, RequestRefusal> {
        let (id, generation) = if self.is_operator(request) {
            body::check_id("invocation_id", id)?;
            (InvocationId::from(id), None)
        } else {
            let id = InvocationId::from(id);
            let token = presented(request).ok_or_else(RequestRefusal::no_invocation)?;
            let (generation, _) = self.opened(&id, Some(CANCEL), &token)?;
            (id, Some(generation))
        };
        let proof = if generation.is_some() { Proof::Address } else { Proof::SignalKey };
        self.began(request, proof, None).await?;
        let cancel: CancelBody = body::typed(body::object(request, self.limits().signal_payload)?)?;
        let id = match (cancel.tenant, generation) {
            (None, Some(_)) => id,
            (None, None) => self.known_or_unmistakable(id).await?,
            (Some(tenant), None) => {
                let stored = owned::invocation(&tenant, id.as_str());
                body::check_id("invocation_id", stored.as_str())?;
                stored
            }
            (Some(_), Some(_)) => {
                return Err(RequestRefusal::invalid(
                    "`tenant` is for the signal key: this address names its invocation",
                ));
            }
        };
        let canceled = self.harness().cancel(&id, generation, cancel.reason).await?;
        let told = TurnCanceled {
            status: Canceled::Canceled,
            invocation_id: name(&canceled.invocation_id),
            canceled_at: canceled.cancellation.at.to_string(),
            reason: canceled.cancellation.reason.as_deref(),
            repeated: canceled.repeated,
        };
        Ok(TurnReply::new(200, json!(told)))
    }

    /// `id`, unless it may be what a tenant calls an invocation that is stored under another one.
    ///
    /// # Errors
    /// 404 for a name without an owner, where callers have keys, under which nothing is stored.
    async fn known_or_unmistakable(&self, id: InvocationId) -> Result<InvocationId, RequestRefusal> {
        let is_told = self.doorkeeper().authorization != Authorization::Keys
            || owned::name_within(id.as_str()).is_some()
            || is_of_a_key(id.as_str());
        if is_told {
            return Ok(id);
        }
        match self.harness().look_up(&id).await {
            Err(error) if error.category == Category::NotFound => {
                let message =
                    "nothing is stored under this id; if callers of a tenant chose it, name the `tenant` in the body";
                Err(RequestRefusal::new(Category::NotFound, message))
            }
            // What cannot be read can be canceled.
            Ok(_) | Err(_) => Ok(id),
        }
    }

    /// The caller. Nothing is loaded before the token is known to be right.
    fn caller(&self, id: &str, request: &Request) -> Result<(InvocationId, AnsweredCaller), RequestRefusal> {
        let token = presented(request).ok_or_else(RequestRefusal::no_invocation)?;
        let id = InvocationId::from(id);
        let part = request.query_value("part");
        if part.as_deref().is_some_and(|part| !body::is_id(part)) {
            return Err(RequestRefusal::no_invocation());
        }
        match self.opened(&id, part.as_deref(), &token)? {
            (STATUS, false) if part.is_none() => Ok((id, AnsweredCaller::Reader)),
            (generation, is_of_page) => Ok((id, AnsweredCaller::Token { token, generation, part, is_of_page })),
        }
    }

    /// The generation that `token` opens, and whether it does so from a page. The reason why another one does not is reported
    /// only to the holder of one that has ended.
    fn opened(&self, id: &InvocationId, part: Option<&str>, token: &str) -> Result<(u64, bool), RequestRefusal> {
        match self.callbacks().verify(id, part, token, self.engine().ports().clock.now()) {
            Some(Token::Good(generation)) => Ok((generation, false)),
            Some(Token::OfPage(generation)) => Ok((generation, true)),
            Some(Token::Ended) => Err(RequestRefusal::address_over()),
            None => Err(RequestRefusal::no_invocation()),
        }
    }
}

/// The token of an address: in its query, or as `authorization: Bearer`, where it stands in no log.
fn presented(request: &Request) -> Option<String> {
    let bearer = || {
        let (scheme, token) = request.header("authorization")?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    };
    request.query_value("token").or_else(bearer)
}

/// Leaves of the state only the `fields` that are asked for.
fn narrow(outcome: &mut TurnOutcome, fields: &[&str]) {
    match outcome {
        TurnOutcome::Completed(done) => done.state.retain(|name, _| fields.contains(&name.as_str())),
        TurnOutcome::Suspended(pause) => pause.state.retain(|name, _| fields.contains(&name.as_str())),
        TurnOutcome::Errored(_) | TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. } => {}
    }
}

/// An invocation that is gone looks like one that never was.
fn hidden(error: TurnError) -> RequestRefusal {
    if error.category == Category::NotFound { RequestRefusal::no_invocation() } else { error.into() }
}
