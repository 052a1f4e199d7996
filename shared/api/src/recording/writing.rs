//! Writes commits, and with them what there is to publish.

use dormouse_ports::{Commit, CommitError, JournalConflict, StepWritten, StoreError};
use dormouse_protocol::id::{QuotaId, TaskId};

use super::commit::{ended_by_quota, task_of, untold};
use super::{ATTEMPTS, RecordingStore};
use crate::delegated::delegated;
use crate::quotas::{self, Verdict};

/// How the store may write a commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum WrittenAs {
    /// Whole.
    Commit,
    /// As a durable step, which may be noted.
    Step,
}

/// Outcome of a commit with its publication.
enum PublishOutcome {
    Written(StepWritten),
    /// Nothing was written: its task may not go on.
    UsedUp {
        id: QuotaId,
        limit: &'static str,
    },
}

impl RecordingStore {
    /// Writes `commit`, and with it what there is to publish of it.
    pub(super) async fn publishing(&self, commit: &Commit, written_as: WrittenAs) -> Result<StepWritten, CommitError> {
        if let Some(delegated) = delegated(commit) {
            return self.delegate(commit, delegated).await.map(|()| StepWritten::Whole);
        }
        let Some(task) = task_of(commit) else { return self.pass(commit, written_as).await };
        match self.publish(&task, commit, written_as).await? {
            PublishOutcome::Written(written) => Ok(written),
            PublishOutcome::UsedUp { id, limit } => match ended_by_quota(commit, &id, limit) {
                // Its worker finds its claim gone, as after a cancellation.
                Some(end) => match self.publish(&task, &end, WrittenAs::Commit).await? {
                    PublishOutcome::Written(_) | PublishOutcome::UsedUp { .. } => Err(CommitError::InvocationConflict),
                },
                None => Err(CommitError::InvocationConflict),
            },
        }
    }

    /// Writes `commit` of `task` together with its publication.
    async fn publish(
        &self,
        task: &TaskId,
        commit: &Commit,
        written_as: WrittenAs,
    ) -> Result<PublishOutcome, CommitError> {
        let mut told = untold(commit);
        let own = told.journal.clone();
        for attempt in 0..ATTEMPTS {
            self.rest_before(attempt).await;
            // Taken once: what another writer changed meanwhile is read.
            let known = self.recent.take(task);
            let Some(emitted) = self.emit(task, known, commit).await? else {
                return self.pass(commit, written_as).await.map(PublishOutcome::Written);
            };
            told.journal = own.clone().merged_with(emitted.journal);
            // Another content is another commit: a store may answer a known id with its earlier answer.
            told.id = format!("{}-{attempt}", commit.id);
            match self.write_as(&told, written_as).await {
                Err(CommitError::Journal(JournalConflict::Counters(key))) => {
                    let commit_id = format!("{}-period-{attempt}", commit.id);
                    let commits = &*self.store.commits;
                    let (taken, needs) = ((&key, commit.now), &quotas::WHILE_RUNNING);
                    match quotas::judged(&*self.records, commits, taken, needs, commit_id).await? {
                        Verdict::TryAgain => {}
                        Verdict::UsedUp { id, limit, .. } => return Ok(PublishOutcome::UsedUp { id, limit }),
                        Verdict::Unknown { id } => {
                            let gone = format!("{id} is counted, and is not there");
                            return Err(CommitError::Store(StoreError::Corrupt(gone)));
                        }
                    }
                }
                Err(CommitError::Journal(conflict)) if !own.is_refused_by(&conflict) => {}
                Ok(written) => {
                    match emitted.tally.filter(|_| emitted.recorded > 0) {
                        Some(tally) => self.tallies.note(task, emitted.recorded, tally),
                        None => self.tallies.forget(task),
                    }
                    let session = emitted.session.told_by(self.clock.now());
                    self.recent.note(task.clone(), &told, emitted.as_stored, session);
                    if let Some(next) = emitted.freed {
                        self.call_for(next.as_str().into()).await;
                    }
                    return Ok(PublishOutcome::Written(written));
                }
                Err(error) => return Err(error),
            }
        }
        Err(CommitError::Store(StoreError::Unavailable(format!(
            "{ATTEMPTS} attempts to record task {task}: each time, another writer had changed its session"
        ))))
    }

    /// Writes `commit`, without publishing anything.
    async fn pass(&self, commit: &Commit, written_as: WrittenAs) -> Result<StepWritten, CommitError> {
        if commit.journal.recorded.is_none() {
            return self.write_as(commit, written_as).await;
        }
        let commit = untold(commit);
        let changes_nothing = commit.session.is_none() && commit.invocation.is_none() && commit.journal.is_empty();
        if changes_nothing { Ok(StepWritten::Whole) } else { self.write_as(&commit, written_as).await }
    }

    /// Writes `commit`, and tells those who wait for what it appends or accepts.
    pub(super) async fn write_as(&self, commit: &Commit, written_as: WrittenAs) -> Result<StepWritten, CommitError> {
        let commits = &self.store.commits;
        let written = match written_as {
            WrittenAs::Commit => commits.commit(commit).await.map(|()| StepWritten::Whole),
            WrittenAs::Step => commits.step(commit).await,
        }?;
        for append in &commit.journal.appends {
            self.notifier.notify(&append.stream);
            // What is reported later is not in the feed yet.
            if let Some(fed) = append.fed.as_ref().filter(|_| append.leaves_unreported() == 0) {
                self.notifier.notify(&fed.feed);
            }
        }
        for accepted in &commit.journal.accepts {
            self.call_for(accepted.invocation_id.clone()).await;
        }
        Ok(written)
    }
}
