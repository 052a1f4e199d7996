//! The lines in which turns of this process wait for each other.

use std::sync::Arc;

use dormouse_ports::{Category, Clock, InvocationId, SessionId};

use crate::admission::{Admission, AdmissionLimits, AdmissionWait, Admitted, Overloaded};
use crate::error::TurnError;

/// One line for each session, and one for each id that a caller chose.
#[derive(Debug)]
pub(crate) struct Lines {
    sessions: Admission<SessionId>,
    /// Fresh turns under ids that their callers chose.
    chosen: Admission<InvocationId>,
}

impl Lines {
    /// Lines in which at most `longest` turns wait.
    pub(crate) fn new(longest: usize, clock: &Arc<dyn Clock>) -> Self {
        let limits =
            AdmissionLimits { running: usize::MAX, running_per_key: 1, waiting: usize::MAX, waiting_per_key: longest };
        Self { sessions: Admission::new(limits, clock.clone()), chosen: Admission::new(limits, clock.clone()) }
    }

    /// Waits until the turn of this process that runs in the session is over, and those that came before this one.
    ///
    /// # Errors
    /// `session_busy` when too many wait already, or the wait took too long.
    pub(crate) async fn session(
        &self,
        session_id: Option<&SessionId>,
        wait: AdmissionWait,
    ) -> Result<Option<Admitted<SessionId>>, TurnError> {
        enter(&self.sessions, session_id, wait).await.map_err(|overloaded| {
            let message = "too many turns of this session are waiting; nothing was done, send it again later";
            TurnError::refused(Category::SessionBusy, overloaded, message)
        })
    }

    /// Waits until no other fresh turn of the id `chosen` runs in this process.
    ///
    /// # Errors
    /// `resume_in_progress` when too many wait already, or the wait took too long.
    pub(crate) async fn chosen(
        &self,
        chosen: Option<&InvocationId>,
        wait: AdmissionWait,
    ) -> Result<Option<Admitted<InvocationId>>, TurnError> {
        enter(&self.chosen, chosen, wait).await.map_err(|overloaded| {
            let message = "the turn of this id runs, and it was sent again; send it again later for its outcome";
            TurnError {
                invocation_id: chosen.cloned(),
                ..TurnError::refused(Category::ResumeInProgress, overloaded, message)
            }
        })
    }
}

/// Lines up for `key` in `line`; there is no line where there is no key.
async fn enter<K: Ord + Clone>(
    line: &Admission<K>,
    key: Option<&K>,
    wait: AdmissionWait,
) -> Result<Option<Admitted<K>>, Overloaded> {
    match key {
        Some(key) => line.enter(key.clone(), wait).await.map(Some),
        None => Ok(None),
    }
}
