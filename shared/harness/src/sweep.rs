//! The second line: what was lost between a pause and its wake-up is found and done (late, never lost).

use std::time::Duration;

use dormouse_ports::{InvocationRecord, InvocationStatus, PendingRow, Subscription};
use jiff::Timestamp;

use crate::signal::store_failed;
use crate::{Harness, Transmission, TurnError, TurnOutcome};

/// How much a sweep looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepScope {
    /// What has fallen due.
    Due,
    /// Everything that sleeps: also claims whose worker died, and wake-ups that may not be registered.
    Everything,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepSummary {
    /// Rows that it looked at.
    pub examined: usize,
    /// Invocations that it continued or ended.
    pub woken: usize,
    /// Wake-ups that it registered again.
    pub registered: usize,
    /// Rows that it could not deal with; the next sweep will see them again.
    pub failed: usize,
    /// How long ago the most overdue row fell due; zero when none was due.
    pub late_by: Duration,
    /// How long the invocation that sleeps longest has slept, among those that were loaded: a sweep of what fell due
    /// loads none.
    pub oldest_pause: Duration,
}

/// What a sweep did to one row.
enum Swept {
    Nothing,
    Woken,
    Registered,
}

/// From `instant` to `now`; nothing when it lies ahead.
fn since(instant: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(instant)).unwrap_or_default()
}

impl Harness {
    /// Looks through the index of what sleeps and does what should have happened.
    ///
    /// # Errors
    /// When the index cannot be read. A row that cannot be dealt with is counted, not raised.
    pub async fn sweep(&self, scope: SweepScope) -> Result<SweepSummary, TurnError> {
        let due_by = match scope {
            SweepScope::Due => Some(self.now()),
            SweepScope::Everything => None,
        };
        let mut summary = SweepSummary::default();
        let mut cursor = None;
        loop {
            let store = &self.engine().ports().store;
            let page = store.list_pending(due_by, cursor.as_deref()).await.map_err(store_failed)?;
            for row in page.items {
                summary.examined += 1;
                if let Some(due_at) = row.due_at {
                    summary.late_by = summary.late_by.max(since(due_at, self.now()));
                }
                match self.sweep_row(&row, &mut summary).await {
                    Ok(Swept::Nothing) => {}
                    Ok(Swept::Woken) => summary.woken += 1,
                    Ok(Swept::Registered) => summary.registered += 1,
                    Err(error) => {
                        summary.failed += 1;
                        tracing::warn!(category = %error.category, message = %error.message,
                            invocation_id = %row.invocation_id, "the sweep could not wake an invocation");
                    }
                }
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(summary),
            }
        }
    }

    async fn sweep_row(&self, row: &PendingRow, summary: &mut SweepSummary) -> Result<Swept, TurnError> {
        if row.due_at.is_some_and(|at| at <= self.now()) {
            return match self
                .turn(Transmission::due(row.invocation_id.clone(), row.generation, row.due_at))
                .await
                .outcome
            {
                TurnOutcome::Errored(error) if error.bucket == crate::Bucket::RetryableTransient => Err(*error),
                TurnOutcome::Completed(_)
                | TurnOutcome::Suspended(_)
                | TurnOutcome::Errored(_)
                | TurnOutcome::Buffered { .. }
                | TurnOutcome::Stale { .. } => Ok(Swept::Woken),
            };
        }
        match self.load_invocation(&row.invocation_id).await? {
            Some(record) => {
                if matches!(record.status, InvocationStatus::Suspended) {
                    let slept = since(record.paused.suspended_at, self.now());
                    summary.oldest_pause = summary.oldest_pause.max(slept);
                }
                self.sweep_record(*record).await
            }
            None => Ok(Swept::Nothing),
        }
    }

    async fn sweep_record(&self, record: InvocationRecord) -> Result<Swept, TurnError> {
        match &record.status {
            InvocationStatus::Resuming(claim) if claim.until <= self.now() => {
                Ok(self.take_over(&record).await?.map_or(Swept::Nothing, |_| Swept::Woken))
            }
            InvocationStatus::Suspended if record.paused.wake != dormouse_ports::WakePlan::default() => {
                let subscription = Subscription {
                    invocation_id: record.paused.invocation_id,
                    generation: record.paused.generation,
                    descriptor: record.paused.descriptor,
                    wake: record.paused.wake,
                };
                self.subscriptions().subscribe(&subscription).await.map_err(|error| {
                    let category = dormouse_ports::Category::HarnessSignalSubscriptionFailed;
                    TurnError::new(category, error.to_string())
                })?;
                Ok(Swept::Registered)
            }
            InvocationStatus::Suspended
            | InvocationStatus::Resuming(_)
            | InvocationStatus::Completed { .. }
            | InvocationStatus::Errored(_) => Ok(Swept::Nothing),
        }
    }
}
