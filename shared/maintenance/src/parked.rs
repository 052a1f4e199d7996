//! Signals that came before their wait.

use std::time::Duration;

use dormouse_harness::{Harness, TurnError, store_failed};
use dormouse_ports::{
    BufferedSignal, IndexRepair, MaintenanceStore, ParkedRow, ShapeId, SignalBringer, SignalId, SignalState, StoreError,
};
use jiff::Timestamp;
use serde::Serialize;

use crate::summary::SweepSummary;
use crate::time::since;

/// Time for which a parked signal may wait before it counts as unclaimed.
const UNCLAIMED_AFTER: Duration = Duration::from_secs(60);
/// Number of rows of the index of parked signals that are looked at.
const ROWS: usize = 100;

/// A signal that is parked: no invocation waits for it so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParkedSignal {
    /// The correlation token.
    pub signal_id: SignalId,
    /// The shape of the events that alone bring it, when an event did: only who waits for such an event takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_shape: Option<ShapeId>,
    /// The tenant whose key brought it, when one did: only an invocation of the tenant takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Instant at which it arrived.
    pub received_at: Timestamp,
    /// Instant at which it is forgotten.
    pub expires_at: Timestamp,
}

impl ParkedSignal {
    /// The signal under which it is stored: one of its own where an event or a tenant's key brought it.
    pub fn stored_as(&self) -> SignalId {
        match (&self.event_shape, &self.tenant) {
            (Some(shape), _) => self.signal_id.of_event(shape),
            (None, Some(tenant)) => self.signal_id.of_tenant(tenant),
            (None, None) => self.signal_id.clone(),
        }
    }
}

/// The signals that are parked, the oldest first; at most 100.
///
/// # Errors
/// If the store does not answer.
pub async fn parked_signals(harness: &Harness, store: &MaintenanceStore) -> Result<Vec<ParkedSignal>, TurnError> {
    let parked = |(row, now): (ParkedRow, ParkedNow)| {
        let ParkedNow::Still(signal) = now else { return None };
        let (bringer, signal_id) = row.signal_id.origin();
        let (event_shape, tenant) = match bringer {
            Some(SignalBringer::Events(shape)) => (Some(shape), None),
            Some(SignalBringer::Tenant(tenant)) => (None, Some(tenant)),
            None => (None, None),
        };
        let (received_at, expires_at) = (row.received_at, signal.expires_at);
        Some(ParkedSignal { signal_id, event_shape, tenant, received_at, expires_at })
    };
    Ok(parked_rows(harness, store).await?.into_iter().filter_map(parked).collect())
}

/// Removes the rows of signals that are parked no more, and counts those that have been for long.
pub(crate) async fn sweep_parked(
    harness: &Harness,
    store: &MaintenanceStore,
    summary: &mut SweepSummary,
) -> Result<(), TurnError> {
    let ports = harness.engine().ports();
    for (row, now) in parked_rows(harness, store).await? {
        match now {
            ParkedNow::NoMore => {
                store.sleepers.repair(&IndexRepair::Unparked(row)).await.map_err(store_failed)?;
            }
            ParkedNow::Still(_) => {
                let is_unclaimed = since(row.received_at, ports.clock.now()) >= UNCLAIMED_AFTER;
                summary.unclaimed_signals += usize::from(is_unclaimed);
            }
            ParkedNow::Unreadable => summary.failed += 1,
        }
    }
    Ok(())
}

/// What became of the signal of a row.
enum ParkedNow {
    Still(BufferedSignal),
    NoMore,
    /// It is damaged, or was written by another version.
    Unreadable,
}

/// The first rows of the index, each with what became of its signal.
async fn parked_rows(harness: &Harness, store: &MaintenanceStore) -> Result<Vec<(ParkedRow, ParkedNow)>, TurnError> {
    let mut rows = Vec::new();
    let mut cursor = None;
    // A page may be empty: neither rows nor pages without end.
    for _ in 0..ROWS {
        let page = store.sleepers.list_parked(cursor.as_deref()).await.map_err(store_failed)?;
        for row in page.items.into_iter().take(ROWS - rows.len()) {
            let now = parked_now(harness, &row).await?;
            rows.push((row, now));
        }
        cursor = page.next;
        if cursor.is_none() || rows.len() >= ROWS {
            break;
        }
    }
    Ok(rows)
}

/// What became of the signal of `row`. One that cannot be read keeps nobody from the others.
async fn parked_now(harness: &Harness, row: &ParkedRow) -> Result<ParkedNow, TurnError> {
    let ports = harness.engine().ports();
    let record = match ports.store.signals.load_signal(&row.signal_id, ports.clock.now()).await {
        Err(error @ StoreError::Corrupt(_)) => {
            tracing::warn!(%error, signal_id = %row.signal_id, "a parked signal cannot be read");
            return Ok(ParkedNow::Unreadable);
        }
        loaded => loaded.map_err(store_failed)?,
    };
    Ok(match record.map(|record| record.state) {
        Some(SignalState::Buffered(signal)) if signal.received_at == row.received_at => ParkedNow::Still(signal),
        Some(SignalState::Buffered(_) | SignalState::Waiting { .. } | SignalState::Delivered { .. }) | None => {
            ParkedNow::NoMore
        }
    })
}
