use std::collections::BTreeSet;

use dormouse_protocol::Scope;
use dormouse_protocol::id::{QuotaId, WorkspaceId};
use dormouse_protocol::operation::{Operation, Params};
use dormouse_protocol::request::{Body, IdempotencyKey, Query};
use jiff::Timestamp;
use serde_json::Value;

use crate::audit::Proof;

/// Caller: the actor that an API key is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The name that resources and events give it.
    pub name: String,
    /// Tenant that owns all resources that it can see at all.
    pub tenant: String,
    /// Workspaces of the tenant that it is restricted to; `None` for all of them.
    pub workspaces: Option<BTreeSet<WorkspaceId>>,
    /// Scopes of its key there.
    pub scopes: BTreeSet<Scope>,
    /// Quota that its tasks count against.
    pub quota_id: Option<QuotaId>,
    /// By what it proved who it is.
    pub proof: Proof,
    /// The id of its key, or the name of its token's subject.
    pub credential: String,
    /// Instant from which on that is refused: its streams end then.
    pub until: Option<Timestamp>,
}

/// A request that is in order: its operation is known, its version spoken, its actor proved and allowed, its
/// body an object within the limits.
#[derive(Clone, Debug)]
pub struct Call {
    /// Operation that is called.
    pub operation: Operation,
    /// Parameters of the path.
    pub params: Params,
    /// The query.
    pub query: Query,
    /// The body; `{}` where there is none.
    pub body: Body,
    /// Caller.
    pub actor: Actor,
    /// By which key the request may be repeated.
    pub idempotency_key: Option<IdempotencyKey>,
    /// True if the caller named no workspace, and the one in the body was chosen for it: the key then finds the first answer,
    /// in whichever workspace that is.
    pub is_placed_for_caller: bool,
    /// Path without query, escapes resolved: what the idempotency key is good for.
    pub target: String,
    /// The present instant; everything that the call writes bears it.
    pub now: Timestamp,
}

/// Answer to a call that succeeds.
#[derive(Clone, Debug, PartialEq)]
pub enum CallAnswer {
    /// A resource, or a list of them, with its status.
    Json(u16, Value),
    /// Answer to the first request with the same idempotency key. Over HTTP it is marked with
    /// `idempotent-replayed: true`.
    Repeated(u16, Value),
    /// The content of an artifact.
    Bytes {
        /// Its media type.
        content_type: String,
        /// The content.
        bytes: Vec<u8>,
    },
    /// Nothing (204).
    Empty,
}
