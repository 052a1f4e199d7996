//! The audit log: a page of it, as JSON or as JSON lines.

use dormouse_api::{AuditEntry, AuditQuery, Proof, audit_page};
use dormouse_ports::StoreError;
use dormouse_protocol::envelope::{List, Named, Object};
use dormouse_protocol::{ErrorCode, ProtocolError, Scope};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::{AdmittedRequest, Extensions};
use crate::{Content, Response};

/// Number of entries on a page where none is asked for, and the most.
const PAGE: usize = 200;
const MOST: usize = 1000;
/// Validity of a cursor.
const GOOD_FOR: SignedDuration = SignedDuration::from_hours(24);
/// Media type of lines.
const LINES: &str = "application/jsonl";

/// An entry of the audit log.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AuditLine {
    /// Always `x-audit-entry`.
    object: Object<AuditWord>,
    /// When the request was let in.
    at: String,
    /// Who asked: an actor, or what the gateway calls the caller. Null for who has only an address or the signal key.
    actor: Option<String>,
    /// Its tenant. Null where it has none.
    tenant: Option<String>,
    /// By what it proved that: `key`, `token`, `signature`, `address`, `signal_key` or `nothing`.
    proof: &'static str,
    /// The id of the key, or the subject of the token.
    credential: Option<String>,
    /// The operation.
    action: String,
    /// Path of the thing.
    thing: String,
    /// The request in the logs.
    request_id: String,
    /// `done`, `refused`, or `begun` while it is not known.
    outcome: String,
    /// Status of the answer.
    status: Option<u16>,
}

/// Word of an entry in `object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditWord;

impl Named for AuditWord {
    const OBJECT: &'static str = "x-audit-entry";
}

impl AuditLine {
    fn of(entry: AuditEntry) -> Self {
        let AuditEntry { at, principal, action, thing, request_id, outcome, status } = entry;
        let proof = match principal.proof {
            Proof::Key => "key",
            Proof::Token => "token",
            Proof::Signature => "signature",
            Proof::Address => "address",
            Proof::SignalKey => "signal_key",
            Proof::Nothing => "nothing",
        };
        Self {
            object: Object::new(),
            at: at.to_string(),
            actor: principal.name,
            tenant: principal.tenant,
            proof,
            credential: principal.credential,
            action,
            thing,
            request_id,
            outcome,
            status,
        }
    }
}

impl Extensions {
    /// A page of the log of the caller's tenant, oldest first; with `operations:read` of all.
    ///
    /// # Errors
    /// For a bad limit, instant or cursor, a key that is for some workspaces only, a tenant that the caller does not see,
    /// and when the store does not answer.
    pub(super) async fn audit(&self, admitted: &AdmittedRequest<'_>) -> Result<Response, ProtocolError> {
        let (query, actor) = (&admitted.query, &admitted.actor);
        if actor.workspaces.is_some() {
            let message = "the key is for some workspaces only, and the log is of all of the tenant";
            return Err(ProtocolError::new(ErrorCode::PermissionDenied, message));
        }
        let sees_all = actor.scopes.contains(&Scope::OperationsRead);
        let tenant = match query.get("tenant") {
            Some(other) if !sees_all && other != actor.tenant => return Err(ProtocolError::not_found("tenant")),
            Some(named) => Some(named.to_owned()),
            None => (!sees_all).then(|| actor.tenant.clone()),
        };
        let scope = format!("x-audit/{}/{}", actor.tenant, tenant.as_deref().unwrap_or_default());
        let after = match query.get("cursor") {
            Some(cursor) => self.cursors.open(&scope, cursor, admitted.now)?.into_iter().next(),
            None => None,
        };
        let limit = match query.get("limit").map(str::parse) {
            None => PAGE,
            Some(Ok(limit)) if (1..=MOST).contains(&limit) => limit,
            Some(_) => return Err(ProtocolError::invalid("limit", format!("a number from 1 to {MOST}"))),
        };
        let asked = AuditQuery {
            tenant,
            actor: query.get("actor").map(str::to_owned),
            since: instant(admitted, "since")?,
            until: instant(admitted, "until")?,
            after,
            limit,
        };
        let page = audit_page(&*self.records, &asked, admitted.now).await.map_err(|error| store(&error))?;
        let expires = admitted.now.checked_add(GOOD_FOR).unwrap_or(admitted.now);
        let next = page.next.map(|place| self.cursors.seal(&scope, &[place], expires));
        let lines: Vec<_> = page.items.into_iter().map(AuditLine::of).collect();
        if admitted.request.header("accept").is_some_and(|accepted| accepted.contains(LINES)) {
            let text: String = lines.iter().map(|line| format!("{}\n", json!(line))).collect();
            let response = Response::new(200, LINES, Content::Whole(text.into_bytes()));
            return Ok(next.into_iter().fold(response, |response, next| response.header("x-next-cursor", next)));
        }
        Ok(Response::json(200, &json!(List::page(lines, next))))
    }
}

fn instant(admitted: &AdmittedRequest<'_>, name: &str) -> Result<Option<Timestamp>, ProtocolError> {
    let Some(text) = admitted.query.get(name) else { return Ok(None) };
    let instant = text.parse().map_err(|_| ProtocolError::invalid(name, "an instant, 2027-01-31T09:00:00Z"))?;
    Ok(Some(instant))
}

fn store(error: &StoreError) -> ProtocolError {
    tracing::warn!(%error, "the audit log cannot be read");
    ProtocolError::new(ErrorCode::ServiceUnavailable, "the store does not answer").retry_after(1)
}
