//! Requests that may be repeated: by an id that they give their invocation, or by an idempotency key, which stands for
//! one. A repetition is answered from the record of the invocation.

use dormouse_ports::{Category, InvocationId, Map};
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

/// By what a request may be repeated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeatable {
    /// The id that the invocation shall have.
    pub(crate) invocation_id: Option<InvocationId>,
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
        let id = match (&key, invocation_id) {
            (None, None) => return Ok(Self::default()),
            (Some(_), Some(_)) => {
                let message = format!("send `invocation_id` or {IDEMPOTENCY_HEADER}, not both");
                return Err(RequestRefusal::invalid(message));
            }
            (None, Some(id)) => {
                check_own_id("invocation_id", id)?;
                if id.starts_with(OF_KEYS) {
                    return Err(RequestRefusal::invalid(format!("`invocation_id` must not begin with `{OF_KEYS}`")));
                }
                id.to_owned()
            }
            (Some(key), None) => {
                let method = Method::Post;
                let target = request.path.as_str();
                let scope = IdempotencyScope { actor: principal.as_str(), workspace_id: "", method, target, key };
                format!("{OF_KEYS}{}", scope.id())
            }
        };
        let asked = json!({ "principal": principal.as_str(), "path": request.path, "body": said });
        let digest = Body::from(asked.as_object().cloned().unwrap_or_default()).hash();
        Ok(Self { invocation_id: Some(id.into()), request_digest: Some(hex::encode(digest)), by_key: key.is_some() })
    }

    /// The category reported instead of `category`, to callers that may not know of the ids that keys stand for.
    pub(crate) fn refused(&self, category: Category) -> Category {
        let of_a_key = self.by_key && category == Category::InvocationIdInUse;
        if of_a_key { Category::IdempotencyKeyReused } else { category }
    }
}

/// Checks an id that a caller of turns chose: those of the protocol are none of theirs.
pub(crate) fn check_own_id(name: &str, id: &str) -> Result<(), RequestRefusal> {
    body::check_id(name, id)?;
    match OF_THE_PROTOCOL.iter().find(|start| id.starts_with(**start)) {
        Some(start) => {
            Err(RequestRefusal::invalid(format!("`{name}` must not begin with `{start}`: those ids belong to /v1")))
        }
        None => Ok(()),
    }
}
