//! What is found out about a request while it is served: who sent it, what they may still send, and its entry of the
//! audit log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_api::{Actor, BegunEntry, Deed, Keys, Principal, Proof, Standing};
use dormouse_ports::StoreError;
use jiff::Timestamp;

use crate::{Request, Response};

/// Length of the windows of rates, in seconds.
const WINDOW: u32 = 60;

/// The status of a caller who lacks a right.
const FORBIDDEN: u16 = 403;

/// Somebody who has proved who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedCaller {
    /// Their tenant, where they have one.
    pub tenant: Option<String>,
}

/// Facts that are found out about a request. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Findings(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
struct Found {
    request_id: String,
    action: &'static str,
    principal: Option<Principal>,
    standings: Vec<Standing>,
    has_a_rate_left: bool,
    is_answered: bool,
    begun: Option<BegunEntry>,
}

impl ProvedCaller {
    /// `principal`, if they have proved who they are by what they presented.
    pub(crate) fn of(principal: &Principal) -> Option<Self> {
        let proved = matches!(principal.proof, Proof::Key | Proof::Token | Proof::SignalKey);
        proved.then(|| Self { tenant: principal.tenant.clone() })
    }
}

impl Findings {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By which id the request goes in the logs.
    pub(crate) fn note_request_id(&self, id: &str) {
        id.clone_into(&mut self.found().request_id);
    }

    /// Operation that it asks for, by its name.
    pub(crate) fn note_action(&self, action: &'static str) {
        self.found().action = action;
    }

    /// Caller who sent it.
    pub(crate) fn note_principal(&self, principal: Principal) {
        self.found().principal = Some(principal);
    }

    /// Who sent it, where they have proved it by what they presented. Known when it is answered.
    pub fn caller(&self) -> Option<ProvedCaller> {
        self.found().principal.as_ref().and_then(ProvedCaller::of)
    }

    /// Its answer is known, and only has to be noted and sent.
    pub(crate) fn note_answer(&self) {
        self.found().is_answered = true;
    }

    /// True once its answer is known. What is noted of that is noted also where nobody waits for the answer any more.
    pub fn is_answered(&self) -> bool {
        self.found().is_answered
    }

    /// Remainders of what its sender may send.
    pub(crate) fn note_standings(&self, standings: Vec<Standing>) {
        self.found().standings = standings;
    }

    /// The sender had a rate left when its body was not read yet.
    pub(crate) fn note_rate_left(&self) {
        self.found().has_a_rate_left = true;
    }

    /// True if it was found out that the sender has a rate left.
    pub(crate) fn has_a_rate_left(&self) -> bool {
        self.found().has_a_rate_left
    }

    /// Writes to the audit log of `keys`, where one is kept, that `request` is begun. Everything that changes something
    /// comes through here after its sender is known and before it is served.
    ///
    /// # Errors
    /// [`StoreError`] when the entry may not be there: then the request must not be served.
    pub(crate) async fn begin(&self, keys: &Keys, request: &Request, now: Timestamp) -> Result<(), StoreError> {
        let Some(deed) = self.deed(request) else { return Ok(()) };
        let begun = keys.begin(deed, now).await?;
        self.found().begun = begun;
        Ok(())
    }

    /// Writes to the audit log what came of `request`: it was answered with `status`.
    pub(crate) async fn end(&self, keys: &Keys, request: &Request, status: u16, now: Timestamp) {
        let begun = self.found().begun.take();
        match begun {
            Some(begun) => keys.end(begun, status, now).await,
            None if status == FORBIDDEN => {
                if let Some(deed) = self.deed(request) {
                    keys.refused(deed, status, now).await;
                }
            }
            None => {}
        }
    }

    fn deed(&self, request: &Request) -> Option<Deed> {
        let found = self.found();
        let principal = found.principal.clone()?;
        let (action, request_id) = (found.action.to_owned(), found.request_id.clone());
        Some(Deed { principal, action, thing: request.path.clone(), request_id })
    }

    /// `response` with what its sender may still send, as draft-ietf-httpapi-ratelimit-headers spells it.
    pub(crate) fn tell(&self, response: Response) -> Response {
        let found = self.found();
        if found.standings.is_empty() {
            return response;
        }
        let each = |told: fn(&Standing) -> String| found.standings.iter().map(told).collect::<Vec<_>>().join(", ");
        let policy = each(|one| format!("\"{}\";q={};w={WINDOW}", one.policy, one.quota));
        let left = each(|one| format!("\"{}\";r={};t={}", one.policy, one.remaining, one.seconds));
        response.header("ratelimit-policy", policy).header("ratelimit", left)
    }
}

/// The holder of a key, or of a token of an issuer.
pub(crate) fn holder(actor: &Actor) -> Principal {
    Principal {
        name: Some(actor.name.clone()),
        tenant: Some(actor.tenant.clone()),
        proof: actor.proof,
        credential: Some(actor.credential.clone()),
    }
}

/// A caller without a name, or with that which the gateway gave it.
pub(crate) fn bearer(proof: Proof, name: Option<&str>) -> Principal {
    Principal { name: name.map(str::to_owned), tenant: None, proof, credential: None }
}

/// Sentence for a sender who has sent all that they may.
pub(crate) fn too_many(refused: &Standing) -> String {
    let Standing { policy, quota, seconds, .. } = refused;
    format!("the {policy} has sent its {quota} requests of this minute: go on in {seconds} seconds")
}
