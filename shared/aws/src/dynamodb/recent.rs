//! The lists that recent durable steps have stored, so that the next step of the same invocation writes only what came
//! behind them. A hint: another process, or a list that was dropped from here, costs a larger write and nothing else.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use dormouse_ports::{Commit, GrowingLists, InvocationId, InvocationWrite, StoredList};

/// Number of invocations with known lists: as many as run in one process at a time, and more.
const MOST: usize = 64;

/// Lists by the running invocation that stored them. Its item refers to them, so that they are there as long as it runs.
#[derive(Debug, Default)]
pub(super) struct RecentLists(Mutex<VecDeque<(InvocationId, Vec<StoredList>)>>);

impl RecentLists {
    /// What `commit` knows of its lists, with what the last step of its invocation stored.
    pub(super) fn knowing(&self, commit: &Commit) -> GrowingLists {
        let mut growing = commit.growing.clone();
        if let Some(write) = &commit.invocation {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let own = known.iter().filter(|(id, _)| id == write.invocation_id());
            growing.stored.extend(own.flat_map(|(_, lists)| lists.iter().cloned()));
        }
        growing
    }

    /// `commit` happened and stored the lists `grown`.
    pub(super) fn note(&self, commit: &Commit, grown: Vec<StoredList>) {
        let Some(write) = &commit.invocation else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let runs_on = matches!(write, InvocationWrite::Progress { claim: Some(_), .. });
        if runs_on && grown.is_empty() {
            return;
        }
        known.retain(|(id, _)| id != write.invocation_id());
        if runs_on {
            known.truncate(MOST - 1);
            known.push_front((write.invocation_id().clone(), grown));
        }
    }
}
