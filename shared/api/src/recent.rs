use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use dormouse_ports::{Commit, Document, DocumentWrite, InvocationWrite};
use dormouse_protocol::id::TaskId;
use dormouse_protocol::resource::Session;

use crate::documents::Stored;

/// What the last durable steps of running tasks have left, so that the next step of the same worker reads nothing. It
/// is used on the condition that it is still so: no other writer may have appended to the session's stream since.
#[derive(Default)]
pub(crate) struct RecentTasks(Mutex<VecDeque<(TaskId, RecentTask)>>);

/// A task behind a durable step.
#[derive(Clone)]
pub(crate) struct RecentTask {
    /// Its document.
    pub(crate) document: Document,
    /// Its session.
    pub(crate) session: Stored<Session>,
}

/// Number of tasks that are known: as many as run in one process at a time, and more.
const MOST_RECENT: usize = 64;

impl RecentTasks {
    pub(crate) fn take(&self, task: &TaskId) -> Option<RecentTask> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().position(|(id, _)| id == task)?;
        known.remove(found).map(|(_, recent)| recent)
    }

    /// `commit` of `task` was written; the document of the task was `found`, and the commit has left `session`.
    pub(crate) fn note(&self, task: TaskId, commit: &Commit, found: DocumentWrite, session: Stored<Session>) {
        if !matches!(commit.invocation, Some(InvocationWrite::Progress { claim: Some(_), .. })) {
            return;
        }
        let written = commit.journal.documents.iter().find(|write| write.key == found.key);
        let (version, write) = match written {
            Some(write) => (write.expect + 1, write.clone()),
            None => (found.expect, found),
        };
        let DocumentWrite { key, body: Some(body), expires_at, .. } = write else { return };
        let document = Document { key, version, body, expires_at };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.truncate(MOST_RECENT - 1);
        known.push_front((task, RecentTask { document, session }));
    }
}
