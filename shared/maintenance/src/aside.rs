//! Invocations that were put aside.

use dormouse_harness::{TurnError, store_failed};
use dormouse_ports::{MaintenanceStore, PutAside};

/// Invocations that were [put aside](dormouse_harness::is_put_aside) and not tried again since, the oldest first, as far as
/// one look lists them.
///
/// # Errors
/// If the store does not answer.
pub async fn put_aside(store: &MaintenanceStore) -> Result<PutAside, TurnError> {
    store.sleepers.put_aside().await.map_err(store_failed)
}
