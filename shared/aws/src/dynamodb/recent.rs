//! The lists that recent durable steps have stored, so that the next step of the same invocation writes only what came
//! behind them. A hint: another process, or a list that was dropped from here, costs a larger write and nothing else.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use dormouse_ports::{Commit, GrowingLists, InvocationId, InvocationWrite, SharedField, StoredList};

use super::encode::KnownMarks;

/// Number of invocations with known lists: as many as run in one process at a time, and more.
const MOST: usize = 64;

/// Lists by the running invocation that stored them. Its item refers to them, so that they are there as long as it runs.
#[derive(Debug, Default)]
pub(super) struct RecentLists(Mutex<VecDeque<RecentRun>>);

#[derive(Debug)]
struct RecentRun {
    id: InvocationId,
    lists: Vec<StoredList>,
    /// Of the lists as the run had them: the next step looks only at what came behind.
    marks: KnownMarks,
}

impl RecentLists {
    /// What `commit` knows of its lists, with what the last step of its invocation stored, and the marks of that.
    pub(super) fn knowing(&self, commit: &Commit) -> (GrowingLists, KnownMarks) {
        let mut growing = commit.growing.clone();
        let mut marks = KnownMarks::new();
        if let Some(write) = &commit.invocation {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for run in known.iter().filter(|run| run.id == *write.invocation_id()) {
                growing.stored.extend(run.lists.iter().cloned());
                marks.extend(run.marks.iter().cloned());
            }
        }
        (growing, marks)
    }

    /// `commit` happened and stored the lists `grown`, which have these `marks`.
    pub(super) fn note(&self, commit: &Commit, grown: Vec<StoredList>, mut marks: KnownMarks) {
        let Some(write) = &commit.invocation else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let runs_on = matches!(write, InvocationWrite::Progress { claim: Some(_), .. });
        if runs_on && grown.is_empty() {
            return;
        }
        known.retain(|run| run.id != *write.invocation_id());
        if runs_on {
            // A list that is held as a whole would be copied as a whole when it grows.
            marks.retain(|(list, _)| matches!(list, SharedField::Items(_)));
            known.truncate(MOST - 1);
            known.push_front(RecentRun { id: write.invocation_id().clone(), lists: grown, marks });
        }
    }
}
