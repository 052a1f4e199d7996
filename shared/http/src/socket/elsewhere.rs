use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{Fetch, FetchError, FetchLimits, FetchRequest, Method};
use dormouse_protocol::{ErrorCode, ProtocolError};

use super::refusal;
use crate::{Content, Request, Response};

/// Time for a command: API Gateway gives up after 29 seconds.
const WITHIN: Duration = Duration::from_secs(25);
/// Bytes of an answer that are read: no answer of a server on Lambda has more.
const MOST: usize = 8 << 20;

/// The server that does what commands of sockets ask for, for one that holds sockets and may only read: each command goes
/// there as the request that it is, with the key of the socket. Cheap to clone.
#[derive(Clone)]
pub struct CommandsElsewhere {
    fetch: Arc<dyn Fetch>,
    base_url: String,
}

impl CommandsElsewhere {
    /// The server at `base_url`.
    pub fn new(fetch: Arc<dyn Fetch>, base_url: &str) -> Self {
        Self { fetch, base_url: base_url.trim_end_matches('/').to_owned() }
    }

    /// Sends `request`, once. Where no answer comes it may have been done all the same: the answer says so.
    pub(crate) async fn ask(&self, request: &Request) -> Response {
        // Ids need no escapes, but for those that clients of HTTP take for steps through folders.
        if request.path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return refusal(ProtocolError::no_such_route());
        }
        let mut sent = FetchRequest::new(Method::Post, format!("{}{}", self.base_url, request.path));
        for (name, value) in &request.headers {
            sent = sent.header(name, value.clone());
        }
        sent.body.clone_from(&request.body);
        sent.limits = FetchLimits { total: WITHIN, idle: WITHIN, most_bytes: MOST };
        match self.sent(sent).await {
            Ok((status, bytes)) => Response { status, headers: Vec::new(), content: Content::Whole(bytes) },
            Err(error) => {
                tracing::warn!(%error, "no answer came to a command of a socket");
                let message =
                    "no answer came, and the command may have been done: repeat it only by its idempotency key";
                refusal(ProtocolError::new(ErrorCode::ServiceUnavailable, message).retry_after(1))
            }
        }
    }

    async fn sent(&self, request: FetchRequest) -> Result<(u16, Vec<u8>), FetchError> {
        let answer = self.fetch.fetch(request).await?;
        Ok((answer.status, answer.whole(MOST).await?))
    }
}

impl fmt::Debug for CommandsElsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandsElsewhere").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}
