//! Requests that may be repeated: by an id that they give their invocation, or by an idempotency key, which stands for
//! one. A repetition is answered from the record of the invocation.

use dormouse_api::DELIVERY_PREFIX;
use dormouse_ports::limits::ID;
use dormouse_ports::{Category, InvocationId, Map, owned};
use dormouse_protocol::operation::Method;
use dormouse_protocol::request::{Body, IDEMPOTENCY_HEADER, IdempotencyKey, IdempotencyScope};
use serde_json::json;

use crate::principal::CallerName;
use crate::refusal::RequestRefusal;
use crate::{Request, body};

/// Prefix of the ids of invocations that an idempotency key stands for.
const OF_KEYS: &str = "idempotent-";
/// Prefixes of ids that only the protocol gives.
const OF_THE_PROTOCOL: [&str; 2] = ["task_", "session_"];

/// Bytes of the longest id that a caller of a tenant may choose: what is stored begins with the digest of the tenant, and
/// names of signals are made of that.
const MOST_OF_TENANTS: usize = 180;
const _: () = assert!(MOST_OF_TENANTS + owned::PREFIX + 32 <= ID);

/// By what a request may be repeated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeatable {
    /// The id that the invocation shall have.
    pub(crate) invocation_id: Option<InvocationId>,
    /// The id that it had in earlier versions, which knew one namespace for all tenants.
    pub(crate) earlier_id: Option<InvocationId>,
    /// Digest of the caller and its request; only with an id.
    pub(crate) request_digest: Option<String>,
    by_key: bool,
}

impl Repeatable {
    /// The manner in which `request` of `principal`, with the body `said`, may be repeated: by the id that it names, or
    /// its key.
    ///
    /// # Errors
    /// For an id or a key that may not be, and for both of them.
    pub(crate) fn of(
        request: &Request,
        principal: &CallerName,
        said: &Map,
        invocation_id: Option<&str>,
    ) -> Result<Self, RequestRefusal> {
        let key = IdempotencyKey::read(request.header(&IDEMPOTENCY_HEADER.to_ascii_lowercase()));
        let key = key.map_err(|error| RequestRefusal::invalid(format!("{IDEMPOTENCY_HEADER}: {error}")))?;
        let mut earlier_id = None;
        let id: InvocationId = match (&key, invocation_id) {
            (None, None) => return Ok(Self::default()),
            (Some(_), Some(_)) => {
                let message = format!("send `invocation_id` or {IDEMPOTENCY_HEADER}, not both");
                return Err(RequestRefusal::invalid(message));
            }
            (None, Some(id)) => {
                check_own_id("invocation_id", id)?;
                if let Some(start) = [OF_KEYS, DELIVERY_PREFIX].iter().find(|start| id.starts_with(**start)) {
                    return Err(RequestRefusal::invalid(format!("`invocation_id` must not begin with `{start}`")));
                }
                match principal.tenant() {
                    Some(_) if id.len() > MOST_OF_TENANTS => {
                        let message = format!("`invocation_id` must have at most {MOST_OF_TENANTS} characters");
                        return Err(RequestRefusal::invalid(message));
                    }
                    Some(tenant) => {
                        earlier_id = Some(InvocationId::from(id));
                        owned::invocation(tenant, id)
                    }
                    None => id.into(),
                }
            }
            (Some(key), None) => {
                let method = Method::Post;
                let target = request.path.as_str();
                let scope = IdempotencyScope { actor: principal.as_str(), workspace_id: "", method, target, key };
                format!("{OF_KEYS}{}", scope.id()).into()
            }
        };
        let asked = json!({ "principal": principal.as_str(), "path": request.path, "body": said });
        let digest = Body::from(asked.as_object().cloned().unwrap_or_default()).hash();
        let request_digest = Some(hex::encode(digest));
        Ok(Self { invocation_id: Some(id), earlier_id, request_digest, by_key: key.is_some() })
    }

    /// The category reported instead of `category`, to callers that may not know of the ids that keys stand for.
    pub(crate) fn refused(&self, category: Category) -> Category {
        let of_a_key = self.by_key && category == Category::InvocationIdInUse;
        if of_a_key { Category::IdempotencyKeyReused } else { category }
    }
}

/// True if an idempotency key stands for the invocation `id`: no caller can have chosen it.
pub(crate) fn is_of_a_key(id: &str) -> bool {
    id.starts_with(OF_KEYS)
}

/// Checks an id that a caller of turns chose: those of the protocol are none of theirs, and those of somebody's own neither.
pub(crate) fn check_own_id(name: &str, id: &str) -> Result<(), RequestRefusal> {
    body::check_id(name, id)?;
    if owned::name_within(id).is_some() {
        return Err(RequestRefusal::invalid(format!("`{name}` must not begin with `owned_` and a digest")));
    }
    match OF_THE_PROTOCOL.iter().find(|start| id.starts_with(**start)) {
        Some(start) => {
            Err(RequestRefusal::invalid(format!("`{name}` must not begin with `{start}`: those ids belong to /v1")))
        }
        None => Ok(()),
    }
}
