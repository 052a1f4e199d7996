use std::collections::{BTreeMap, HashSet};

use dormouse_ports::{InvocationId, InvocationRecord, PausedInvocation, PendingRow, SignalId, SignalState};

use super::session::SessionRow;

/// Everything the store knows.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// By session id.
    pub(super) sessions: BTreeMap<String, SessionRow>,
    pub(super) invocations: BTreeMap<InvocationId, InvocationRecord>,
    pub(super) signals: BTreeMap<SignalId, SignalState>,
    /// By [`pending_key`].
    pub(super) pending: BTreeMap<String, PendingRow>,
    pub(super) commits: HashSet<String>,
}

/// Orders the index of what sleeps by when it falls due; what never does comes last.
pub(super) fn pending_key(paused: &PausedInvocation) -> String {
    let id = &paused.invocation_id;
    match &paused.wake.due {
        Some(due) => format!("{:021}#{id}", due.at.as_nanosecond().max(0)),
        None => format!("never#{id}"),
    }
}
