use std::collections::{BTreeMap, BTreeSet, HashSet};

use dormouse_ports::{
    InvocationId, InvocationRecord, Map, ParkedRow, PendingRow, RuleEntry, ShapeId, SignalId, SignalState,
};

use jiff::Timestamp;

use super::journal::JournalTables;
use super::session::SessionRow;

/// All records of the store.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// By session id.
    pub(super) sessions: BTreeMap<String, SessionRow>,
    pub(super) invocations: BTreeMap<InvocationId, InvocationRecord>,
    /// Number of claims of each invocation that has not got further since.
    pub(super) attempts: BTreeMap<InvocationId, u32>,
    /// Instant at which the payload of each invocation was accepted.
    pub(super) accepted: BTreeMap<InvocationId, Timestamp>,
    /// Those of them that a worker has looked at, and that wait for other work.
    pub(super) postponed: BTreeSet<InvocationId>,
    /// Instant at which each invocation was put aside, and the payload that counted.
    pub(super) aside: BTreeMap<InvocationId, (Timestamp, Map)>,
    pub(super) signals: BTreeMap<SignalId, SignalState>,
    /// By [`pending_key`].
    pub(super) pending: BTreeMap<String, PendingRow>,
    /// Signals that were parked, by [`parked_key`](super::upkeep::parked_key).
    pub(super) parked: BTreeMap<String, ParkedRow>,
    /// Texts under names, such as the positions of sweeps.
    pub(super) notes: BTreeMap<String, String>,
    pub(super) rules: BTreeMap<ShapeId, RuleEntry>,
    pub(super) journal: JournalTables,
    pub(super) commits: HashSet<String>,
}

/// Orders the index of suspended invocations by the instant at which they fall due; those that never do come last.
pub(super) fn pending_key(row: &PendingRow) -> String {
    let id = &row.invocation_id;
    match row.due_at {
        Some(at) => format!("{:021}#{id}", at.as_nanosecond().max(0)),
        None => format!("never#{id}"),
    }
}
