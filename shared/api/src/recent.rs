use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use dormouse_ports::{Commit, Document, DocumentWrite, InvocationWrite};
use dormouse_protocol::id::TaskId;

/// Documents of tasks that are under way, as their last durable steps have written them: the next step of the same
/// worker reads nothing. Each is used on the condition that it is still so.
#[derive(Default)]
pub(crate) struct RecentDocuments(Mutex<VecDeque<(TaskId, Vec<Document>)>>);

/// Number of tasks whose documents are known: as many as run in one process at a time, and more.
const MOST_RECENT: usize = 64;

impl RecentDocuments {
    pub(crate) fn take(&self, task: &TaskId) -> Vec<Document> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().position(|(id, _)| id == task);
        found.and_then(|at| known.remove(at)).map(|(_, documents)| documents).unwrap_or_default()
    }

    /// `commit` of `task` was written, whose document was `found`.
    pub(crate) fn note(&self, task: TaskId, commit: &Commit, found: &DocumentWrite) {
        if !matches!(commit.invocation, Some(InvocationWrite::Progress { claim: Some(_), .. })) {
            return;
        }
        let document = |write: &DocumentWrite, version: u64| {
            let key = write.key.clone();
            let expires_at = write.expires_at;
            Some(Document { key, version, body: write.body.clone()?, expires_at })
        };
        let written = commit.journal.documents.iter().filter_map(|write| document(write, write.expect + 1));
        // Behind those that were written: the first of a name counts.
        let documents = written.chain(document(found, found.expect)).collect();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.truncate(MOST_RECENT - 1);
        known.push_front((task, documents));
    }
}
