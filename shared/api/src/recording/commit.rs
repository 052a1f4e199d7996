//! What a commit says of its task.

use dormouse_ports::{
    Category, Commit, DocumentKey, FailureRecord, InvocationId, InvocationWrite, Journal, ProgressFrom,
};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{QuotaId, TaskId};

/// The id of the task that `invocation` is, by its form.
pub(crate) fn task_called(invocation: &InvocationId) -> Option<TaskId> {
    let rest = invocation.as_str().strip_prefix(TaskId::OBJECT)?;
    rest.starts_with('_').then(|| TaskId::from(invocation.as_str()))
}

/// The task that `commit` may move, or for which its nodes have recorded something, unless the author of the commit
/// publishes for that task.
pub(super) fn task_of(commit: &Commit) -> Option<TaskId> {
    let task = match commit.invocation.as_ref()? {
        InvocationWrite::Suspend { paused, .. }
        | InvocationWrite::Progress { paused, .. }
        | InvocationWrite::Complete { paused, .. }
        | InvocationWrite::Fail { paused, .. }
        | InvocationWrite::PutAside { paused, .. }
        | InvocationWrite::Cancel { paused, .. } => task_called(&paused.invocation_id),
        InvocationWrite::Release { invocation_id, .. } => task_called(invocation_id),
        InvocationWrite::AssertClaimed { invocation_id, .. } => {
            commit.journal.recorded.as_ref().and_then(|_| task_called(invocation_id))
        }
        InvocationWrite::Accept { .. }
        | InvocationWrite::Deliver { .. }
        | InvocationWrite::Advance { .. }
        | InvocationWrite::Answer { .. }
        | InvocationWrite::CancelBeforeStart { .. }
        | InvocationWrite::Keep { .. }
        | InvocationWrite::Retry { .. }
        | InvocationWrite::Conclude { .. } => None,
    }?;
    let document = DocumentKey::new(TaskId::OBJECT, task.as_str());
    let is_told = commit.journal.documents.iter().any(|write| write.key == document);
    (!is_told).then_some(task)
}

/// True if `commit` is of a turn that has gone on behind a pause.
pub(super) fn goes_on(commit: &Commit) -> bool {
    matches!(
        commit.invocation,
        Some(
            InvocationWrite::Suspend { .. }
                | InvocationWrite::Complete { .. }
                | InvocationWrite::Fail { .. }
                | InvocationWrite::Progress { .. }
        )
    )
}

/// True if `commit` ends its invocation.
pub(super) fn ends(commit: &Commit) -> bool {
    matches!(
        commit.invocation,
        Some(
            InvocationWrite::Complete { .. }
                | InvocationWrite::Fail { .. }
                | InvocationWrite::PutAside { .. }
                | InvocationWrite::Cancel { .. }
        )
    )
}

/// `commit` without what nodes recorded that is published to no client.
pub(super) fn untold(commit: &Commit) -> Commit {
    Commit { journal: Journal { recorded: None, ..commit.journal.clone() }, ..commit.clone() }
}

/// `commit`, a durable step, as the end of its task because nothing is left of `limit`; `None` for what is no step of a
/// claim.
pub(super) fn ended_by_quota(commit: &Commit, id: &QuotaId, limit: &str) -> Option<Commit> {
    let Some(InvocationWrite::Progress { paused, from: ProgressFrom::Claimed(owner), .. }) = &commit.invocation else {
        return None;
    };
    let message = format!("nothing is left of {limit} in the quota {id}; raise the quota, or wait for its next period");
    let failure = FailureRecord { category: Category::LimitExceeded, message };
    let (paused, owner) = (paused.clone(), Some(owner.clone()));
    let invocation = Some(InvocationWrite::Fail { paused, owner, failure });
    Some(Commit { id: format!("{}-quota", commit.id), invocation, ..commit.clone() })
}
