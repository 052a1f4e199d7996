use std::collections::{BTreeMap, HashSet};

use dormouse_ports::{
    InvocationId, InvocationRecord, Map, ParkedRow, PendingRow, RuleEntry, ShapeId, SignalId, SignalState,
};

use jiff::Timestamp;

use super::journal::JournalTables;
use super::session::SessionRow;

/// Everything the store knows.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// By session id.
    pub(super) sessions: BTreeMap<String, SessionRow>,
    pub(super) invocations: BTreeMap<InvocationId, InvocationRecord>,
    /// How often those were claimed that have not got further since.
    pub(super) attempts: BTreeMap<InvocationId, u32>,
    /// When those were put aside that were, and which payload counted.
    pub(super) aside: BTreeMap<InvocationId, (Timestamp, Map)>,
    pub(super) signals: BTreeMap<SignalId, SignalState>,
    /// By [`pending_key`].
    pub(super) pending: BTreeMap<String, PendingRow>,
    /// Signals that were parked, by [`parked_key`](super::upkeep::parked_key).
    pub(super) parked: BTreeMap<String, ParkedRow>,
    /// Where sweeps go on.
    pub(super) notes: BTreeMap<String, String>,
    pub(super) rules: BTreeMap<ShapeId, RuleEntry>,
    pub(super) journal: JournalTables,
    pub(super) commits: HashSet<String>,
}

/// Orders the index of what sleeps by when it falls due; what never does comes last.
pub(super) fn pending_key(row: &PendingRow) -> String {
    let id = &row.invocation_id;
    match row.due_at {
        Some(at) => format!("{:021}#{id}", at.as_nanosecond().max(0)),
        None => format!("never#{id}"),
    }
}
