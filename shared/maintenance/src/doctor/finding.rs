//! Findings of the doctor.

use std::time::Duration;

use dormouse_ports::{InvocationRecord, InvocationStatus};
use serde::Serialize;

use crate::parked::ParkedSignal;

/// Time by which a wake-up may be late before it counts as lost: a sweep comes every minute.
pub(super) const LATE: Duration = Duration::from_secs(120);
/// Number of signals that a sentence names.
const NAMED: usize = 5;

/// Condition of an invocation, as the doctor finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It completed.
    Completed,
    /// It ended with an error.
    Failed,
    /// Every worker that took it up died: it is put aside.
    PutAside,
    /// It was canceled.
    Canceled,
    /// It sleeps, and everything that would wake it is in place.
    Waiting,
    /// A worker continues it at this moment.
    ClaimHeld,
    /// The worker that continued it died, or none has taken it up.
    ClaimExpired,
    /// It is accepted and waits for its turn: another one works in its session.
    Queued,
    /// It is claimed for longer than any turn may take: a clock is wrong.
    ClaimStuck,
    /// It fell due and was not woken.
    Overdue,
    /// No sweep has seen to its wake-up, though there was time enough.
    Unregistered,
    /// The index of what sleeps does not know it: no sweep would find it.
    RowMissing,
    /// Nothing leads from the signal to it.
    SignalMissing,
    /// The signal is here, parked, and was not handed over.
    SignalParked,
    /// The signal id leads to another invocation.
    SignalTaken,
    /// The event bus has no enabled rule that would carry the event it waits for.
    RuleMissing,
    /// An event came for it, and what it carried did not fit.
    EventUnfit,
    /// There is such a rule, and it stands since later than the pause: an event that came before was not delivered.
    RuleLate,
    /// The rules cannot be seen, and so neither whether there is such a rule.
    RuleUnseen,
    /// After it was suspended, signals came for which no invocation waits: one of them may have been meant for it.
    SignalsAstray,
    /// The pause declares neither `accepts` nor `into`: its answer may set every field of the state.
    AcceptsEverything,
    /// A turn of its session runs, or died a moment ago.
    SessionLeased,
    /// Its session is leased for longer than any turn may take: a clock is wrong.
    LeaseStuck,
    /// No worker of this version knows the graph.
    GraphUnknown,
    /// The graph is not the one that went to sleep; it goes on all the same.
    GraphChanged,
    /// The graph is not the one that went to sleep, and leaves the pause to workers that still have that one.
    GraphPinned,
    /// The graph is not the one that went to sleep, and does not take the pause.
    GraphRefuses,
    /// The state has a schema version from which nothing leads to the present one.
    NoMigration,
}

impl Finding {
    /// True if an operator or a repair has to act; the others only explain.
    pub fn is_trouble(self) -> bool {
        match self {
            Self::Completed
            | Self::Failed
            | Self::Canceled
            | Self::Waiting
            | Self::ClaimHeld
            | Self::Queued
            | Self::RuleLate
            | Self::RuleUnseen
            | Self::SignalsAstray
            | Self::AcceptsEverything
            | Self::SessionLeased
            | Self::GraphChanged => false,
            Self::ClaimExpired
            | Self::PutAside
            | Self::ClaimStuck
            | Self::Overdue
            | Self::Unregistered
            | Self::RowMissing
            | Self::SignalMissing
            | Self::SignalParked
            | Self::SignalTaken
            | Self::RuleMissing
            | Self::EventUnfit
            | Self::LeaseStuck
            | Self::GraphUnknown
            | Self::GraphPinned
            | Self::GraphRefuses
            | Self::NoMigration => true,
        }
    }

    /// Action of [`repair`](super::repair) against it, where there is one.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::ClaimExpired | Self::ClaimStuck => Some("take the claim over and go on with the accepted payload"),
            Self::Overdue => Some("do now what was to be done when it fell due"),
            Self::Unregistered => Some("register the wake-up"),
            Self::RowMissing => Some("write the row of the index again"),
            Self::SignalMissing => Some("write the signal item again"),
            Self::SignalParked => Some("hand the parked signal over"),
            Self::RuleMissing => Some("make or enable the rule"),
            Self::Completed
            | Self::Failed
            | Self::PutAside
            | Self::Canceled
            | Self::Waiting
            | Self::ClaimHeld
            | Self::Queued
            | Self::SignalTaken
            | Self::RuleLate
            | Self::EventUnfit
            | Self::RuleUnseen
            | Self::SignalsAstray
            | Self::AcceptsEverything
            | Self::SessionLeased
            | Self::LeaseStuck
            | Self::GraphUnknown
            | Self::GraphChanged
            | Self::GraphPinned
            | Self::GraphRefuses
            | Self::NoMigration => None,
        }
    }
}

/// A remark of the doctor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Observation {
    /// Finding that it explains.
    pub finding: Finding,
    /// The same for people, in a sentence.
    pub sentence: String,
}

/// Diagnosis of an invocation; at least one remark.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The invocation, as it was looked at.
    pub record: InvocationRecord,
    /// The most important remark first.
    pub remarks: Vec<Observation>,
}

impl Diagnosis {
    /// True if something is wrong.
    pub fn is_trouble(&self) -> bool {
        self.remarks.iter().any(|remark| remark.finding.is_trouble())
    }

    /// Says of an invocation that no worker has taken up that this is as it should be: it waits in the queue of its
    /// session for the end of `ahead`, or until that sleeps.
    pub fn wait_behind(&mut self, ahead: &str) {
        if !matches!(self.record.status, InvocationStatus::Accepted { .. }) {
            return;
        }
        self.remarks.retain(|remark| remark.finding != Finding::ClaimExpired);
        let sentence = format!("it waits for its turn in the queue of its session, behind `{ahead}`");
        self.remarks.insert(0, remark(Finding::Queued, sentence));
    }

    /// Adds what may have been meant for the invocation, if it sleeps: those of the `parked` signals that came since.
    pub fn mind(&mut self, parked: &[ParkedSignal]) {
        let paused = &self.record.paused;
        let came_since = |signal: &&ParkedSignal| {
            signal.received_at >= paused.suspended_at && !paused.waits().any(|awaited| awaited == signal.stored_as())
        };
        let astray: Vec<_> = parked.iter().filter(came_since).map(|signal| format!("`{}`", signal.signal_id)).collect();
        if astray.is_empty() || !matches!(self.record.status, InvocationStatus::Suspended) {
            return;
        }
        let named = astray.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if astray.len() > NAMED { format!(" and {} more", astray.len() - NAMED) } else { String::new() };
        let sentence = format!(
            "since it went to sleep, signals came for which nobody waits: {named}{more}; was one of them meant for it?"
        );
        self.remarks.push(remark(Finding::SignalsAstray, sentence));
    }
}

pub(super) fn remark(finding: Finding, sentence: String) -> Observation {
    Observation { finding, sentence }
}
