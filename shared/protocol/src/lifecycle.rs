//! The life of a task: one table that defines what may follow what, and what each step leaves behind.
//!
//! ```text
//! SUBMITTED --> WORKING <--> INPUT_REQUIRED, AUTH_REQUIRED
//!     |            |                  |
//!     +------------+------------------+--> FAILED, CANCELED        (COMPLETED from WORKING alone)
//! ```
//!
//! The two statuses in which a task waits for input or approval are a suspended invocation; the input that ends the
//! wait is its signal. A status that ends a life is never left: what comes after CANCELED is dropped, not an error.

use jiff::Timestamp;

use crate::event::EventKind;
use crate::resource::{Failure, OutcomeStatus, Task, TaskStatus};

/// Kind of a step from one status to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusStep {
    /// The task moves, and one event of this kind reports it.
    Moves(EventKind),
    /// The task is there already: nothing to write, the answer is the task as it is.
    Repeats,
    /// The task was canceled before: its work is dropped and leaves no outcome.
    Dropped,
    /// The narrative does not allow it (`invalid_state_transition`).
    Forbidden,
}

impl TaskStatus {
    /// All of them, in the order in which the contract lists them.
    pub const ALL: [Self; 7] = [
        Self::Submitted,
        Self::Working,
        Self::InputRequired,
        Self::AuthRequired,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
    ];

    /// Kind of the step from here to `to`.
    pub fn step(self, to: Self) -> StatusStep {
        use TaskStatus::{AuthRequired, Canceled, Completed, Failed, InputRequired, Submitted, Working};
        match (self, to) {
            (Canceled, Completed | Failed) => StatusStep::Dropped,
            (Canceled | Completed | Failed, _) => {
                if self == to {
                    StatusStep::Repeats
                } else {
                    StatusStep::Forbidden
                }
            }
            (Submitted, Submitted)
            | (Working, Working)
            | (InputRequired, InputRequired)
            | (AuthRequired, AuthRequired) => StatusStep::Repeats,
            (Submitted, Working) => StatusStep::Moves(EventKind::TaskStarted),
            // `task.started` reported the first time; each of these reports that the wait is over.
            (InputRequired | AuthRequired, Working) => StatusStep::Moves(EventKind::TaskStatusChanged),
            (Working, InputRequired) => StatusStep::Moves(EventKind::TaskInputRequired),
            (Working, AuthRequired) => StatusStep::Moves(EventKind::TaskAuthRequired),
            (Working, Completed) => StatusStep::Moves(EventKind::TaskCompleted),
            (Submitted | Working | InputRequired | AuthRequired, Failed) => StatusStep::Moves(EventKind::TaskFailed),
            (Submitted | Working | InputRequired | AuthRequired, Canceled) => {
                StatusStep::Moves(EventKind::TaskCanceled)
            }
            (Submitted, InputRequired | AuthRequired | Completed)
            | (InputRequired, AuthRequired | Completed)
            | (AuthRequired, InputRequired | Completed)
            | (Working | InputRequired | AuthRequired, Submitted) => StatusStep::Forbidden,
        }
    }

    /// True if the narrative's table has the step from here to `to`.
    pub fn may_become(self, to: Self) -> bool {
        matches!(self.step(to), StatusStep::Moves(_))
    }

    /// True if the life ends here.
    pub fn is_terminal(self) -> bool {
        self.outcome().is_some()
    }

    /// True if the task waits for input or approval.
    pub fn is_suspended(self) -> bool {
        match self {
            Self::InputRequired | Self::AuthRequired => true,
            Self::Submitted | Self::Working | Self::Completed | Self::Failed | Self::Canceled => false,
        }
    }

    /// The status of the outcome of a task that ended here; `None` while it has none.
    pub fn outcome(self) -> Option<OutcomeStatus> {
        match self {
            Self::Completed => Some(OutcomeStatus::Succeeded),
            Self::Failed => Some(OutcomeStatus::Failed),
            Self::Canceled => Some(OutcomeStatus::Canceled),
            Self::Submitted | Self::Working | Self::InputRequired | Self::AuthRequired => None,
        }
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "SUBMITTED",
            Self::Working => "WORKING",
            Self::InputRequired => "INPUT_REQUIRED",
            Self::AuthRequired => "AUTH_REQUIRED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }
}

impl Task {
    /// Goes to `to` at `at`, if that [`StatusStep::Moves`], and sets the times that belong to it; `failure` is kept only by a
    /// task that fails. Any other step changes nothing.
    pub fn advance(&mut self, to: TaskStatus, at: Timestamp, failure: Option<Failure>) -> StatusStep {
        let step = self.status.step(to);
        if let StatusStep::Moves(_) = step {
            self.status = to;
            self.envelope.updated_at = at;
            match to {
                TaskStatus::Working => self.started_at = self.started_at.or(Some(at)),
                TaskStatus::Completed => self.completed_at = Some(at),
                TaskStatus::Failed => (self.completed_at, self.failure) = (Some(at), failure),
                TaskStatus::Canceled => self.canceled_at = Some(at),
                TaskStatus::Submitted | TaskStatus::InputRequired | TaskStatus::AuthRequired => {}
            }
        }
        step
    }
}
