//! What was put aside.

use dormouse_harness::{Harness, TurnError, store_failed};
use dormouse_ports::InvocationId;

/// What was [put aside](dormouse_harness::is_put_aside) and not tried again since, the oldest first; at most a page of the
/// store.
///
/// # Errors
/// When the store does not answer.
pub async fn put_aside(harness: &Harness) -> Result<Vec<InvocationId>, TurnError> {
    harness.engine().ports().store.put_aside().await.map_err(store_failed)
}
