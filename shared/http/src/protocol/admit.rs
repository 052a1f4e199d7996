use std::sync::Arc;

use dormouse_api::{Actor, Call, Keys, ReceivedDelivery, SignedBody, Taken};
use dormouse_ports::Clock;
use dormouse_protocol::id::ConnectorId;
use dormouse_protocol::operation::{Access, Input, Operation};
use dormouse_protocol::request::{Body, IDEMPOTENCY_HEADER, IdempotencyKey, Query, VERSION_HEADER, check_version};
use dormouse_protocol::{ErrorCode, ProtocolError, Scope};
use jiff::Timestamp;

use super::public::RESOURCE;

use crate::Request;
use crate::body::is_encoded;
use crate::findings::{holder, too_many};

/// Headers by which a client has a write done only if nothing else was written since it read (RFC 9110 §13.1). An answer to a
/// read has an `ETag`: passed over, they would let a client write over what it wanted to keep.
const CONDITIONS: [&str; 3] = ["if-match", "if-none-match", "if-unmodified-since"];

/// Knows who may ask for what.
pub(crate) struct ProtocolAdmission {
    pub(crate) keys: Keys,
    /// Clock of the server.
    pub(crate) clock: Arc<dyn Clock>,
    /// Prefix of the addresses of the whole API, without a slash at the end.
    pub(crate) base_url: String,
}

impl ProtocolAdmission {
    /// The call that `request` makes, once nothing speaks against it any more.
    ///
    /// # Errors
    /// The first objection, in the order that the module names.
    pub(crate) async fn admit(&self, request: &Request) -> Result<Call, ProtocolError> {
        let found = Operation::find(&request.method, &request.path)?;
        let operation = found.operation;
        let now = self.clock.now();
        tracing::Span::current().record("operation", operation.spec().id);
        request.findings.note_action(operation.spec().id);
        check_version(header(request, VERSION_HEADER))?;
        let actor = self.authenticate(request, now).await?;
        check_scope(&actor, operation)?;
        let query = Query::parse(&request.query)?;
        query.check(operation)?;
        if operation.spec().method.is_write()
            && let Some(condition) = CONDITIONS.into_iter().find(|name| request.header(name).is_some())
        {
            return Err(ProtocolError::unchecked_condition(condition));
        }
        if is_encoded(request) && !matches!(operation.spec().input, Input::None) {
            return Err(ProtocolError::unsupported_coding());
        }
        let body = Body::read(operation, request.header("content-type"), &request.body)?;
        let idempotency_key = match operation.spec().method.is_write() {
            true => IdempotencyKey::read(header(request, IDEMPOTENCY_HEADER))?,
            false => None,
        };
        if operation.spec().method.is_write() {
            self.begin(request, now).await?;
        }
        let (params, target) = (found.params, found.target);
        let is_placed_for_caller = false;
        Ok(Call { operation, params, query, body, actor, idempotency_key, is_placed_for_caller, target, now })
    }

    /// The caller of `request`, if that speaks this version of the protocol.
    ///
    /// # Errors
    /// The first objection: version (426), key (401).
    pub(crate) async fn admit_actor(&self, request: &Request, now: Timestamp) -> Result<Actor, ProtocolError> {
        check_version(header(request, VERSION_HEADER))?;
        self.authenticate(request, now).await
    }

    /// The webhook that `request` is, if it is one: its sender has no key, and signs it.
    ///
    /// # Errors
    /// If no operation has its path and method.
    pub(super) fn delivery(&self, request: &Request) -> Result<Option<ReceivedDelivery>, ProtocolError> {
        let found = Operation::find(&request.method, &request.path)?;
        if found.operation.spec().access != Access::Signed {
            return Ok(None);
        }
        tracing::Span::current().record("operation", found.operation.spec().id);
        let connector_id = ConnectorId::from(found.params.get("connector_id"));
        let sent = SignedBody { headers: request.headers.clone(), body: request.body.clone() };
        Ok(Some(ReceivedDelivery { connector_id, sent, now: self.clock.now() }))
    }

    /// Writes to the audit log, where one is kept, that `request` is begun.
    ///
    /// # Errors
    /// `service_unavailable` when the store did not answer.
    pub(crate) async fn begin(&self, request: &Request, now: Timestamp) -> Result<(), ProtocolError> {
        request.findings.begin(&self.keys, request, now).await.map_err(|error| {
            tracing::warn!(%error, "an entry of the audit log cannot be written");
            ProtocolError::new(ErrorCode::ServiceUnavailable, "the audit log cannot be written").retry_after(1)
        })
    }

    /// The refusal of `request` where nothing else speaks against it and its sender is known to have nothing left of a
    /// rate. It asks nobody.
    pub(crate) fn spent(&self, request: &Request) -> Option<ProtocolError> {
        let found = Operation::find(&request.method, &request.path).ok()?;
        let is_open = matches!(found.operation.spec().access, Access::Public | Access::Signed);
        if is_open || check_version(header(request, VERSION_HEADER)).is_err() {
            return None;
        }
        match self.keys.spent(request.header("authorization"), self.clock.now()) {
            Some(spent) => within_rates(request, spent).err(),
            None => {
                request.findings.note_rate_left();
                None
            }
        }
    }

    /// The caller of `request`, if it may still send one.
    ///
    /// # Errors
    /// `unauthenticated`; `rate_limited`.
    pub(super) async fn authenticate(&self, request: &Request, now: Timestamp) -> Result<Actor, ProtocolError> {
        let header = request.header("authorization");
        if !request.findings.has_a_rate_left()
            && let Some(spent) = self.keys.spent(header, now)
        {
            within_rates(request, spent)?;
        }
        let actor = self.identify(request, now).await?;
        within_rates(request, self.keys.take(header, &actor, now).await)?;
        request.findings.note_principal(holder(&actor));
        Ok(actor)
    }

    async fn identify(&self, request: &Request, now: Timestamp) -> Result<Actor, ProtocolError> {
        let header = request.header("authorization");
        let holder = self.keys.holder(header, now).await.map_err(|error| {
            tracing::warn!(%error, "it is not known who a caller is");
            ProtocolError::new(ErrorCode::ServiceUnavailable, error.told()).retry_after(error.retry_after())
        })?;
        holder.ok_or_else(|| {
            let metadata = self.keys.issuers().map(|_| format!("{}{RESOURCE}", self.base_url));
            ProtocolError::unauthenticated(header.is_some(), metadata.as_deref())
        })
    }
}

/// Notes what is left of the rates, and refuses a request beyond them.
fn within_rates(request: &Request, taken: Taken) -> Result<(), ProtocolError> {
    request.findings.note_standings(taken.standings);
    let Some(refused) = taken.refused else { return Ok(()) };
    let refusal = ProtocolError::new(ErrorCode::RateLimited, too_many(&refused)).retry_after(refused.seconds);
    Err(refusal.with_detail("limit", format!("requests_per_{}", refused.policy)))
}

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.header(&name.to_ascii_lowercase())
}

pub(super) fn check_scope(actor: &Actor, operation: Operation) -> Result<(), ProtocolError> {
    let needed = match operation.spec().access {
        Access::Public | Access::Signed | Access::AnyKey => None,
        Access::Needs(scope) => Some(scope),
    };
    let missing = needed.filter(|scope| !actor.scopes.contains(scope));
    missing.map_or(Ok(()), |scope: Scope| {
        let refusal = ProtocolError::new(ErrorCode::PermissionDenied, "the key does not have the scope for this");
        Err(refusal.with_detail("scope", scope.as_str()))
    })
}
