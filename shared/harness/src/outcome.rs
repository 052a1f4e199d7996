use dormouse_engine::{CompiledGraph, Completed, Suspended};
use dormouse_ports::{
    Category, FailureRecord, FanIn, InvocationId, InvocationRecord, InvocationStatus, Map, PausedInvocation,
    Resolution, SessionId, SignalDescriptor, SignalId, WakePlan,
};
use jiff::Timestamp;

use crate::error::TurnError;
use crate::transmission::DispatchPath;

/// A turn and its outcome (harness §4).
#[derive(Debug)]
pub struct Turn {
    /// The dispatch path; `None` when the transmission could not be classified.
    pub path: Option<DispatchPath>,
    /// Outcome of the turn.
    pub outcome: TurnOutcome,
}

/// Outcome of a turn. The three outcomes of harness §5, and the two answers to a signal that moved nothing now.
#[derive(Debug)]
pub enum TurnOutcome {
    /// The graph reached END.
    Completed(Box<CompletedTurn>),
    /// The invocation sleeps, and its wake-up is registered or [late](SuspendedTurn::late); also after one of several
    /// signals was accepted.
    Suspended(Box<SuspendedTurn>),
    /// It ended with an error.
    Errored(Box<TurnError>),
    /// The signal came before its wait and is kept for it.
    Buffered {
        /// Its correlation token.
        signal_id: SignalId,
        /// Instant until which it is kept.
        expires_at: Timestamp,
    },
    /// The delivery has nothing to do any more: another one was first, and the invocation is past that pause.
    Stale {
        /// The invocation that was meant.
        invocation_id: InvocationId,
    },
}

/// An invocation that reached END.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletedTurn {
    /// This invocation.
    pub invocation_id: InvocationId,
    /// The correlation that it belongs to.
    pub correlation_id: String,
    /// Its session, if it has one.
    pub session_id: Option<SessionId>,
    /// The graph that ran.
    pub graph: String,
    /// The final state.
    pub state: Map,
    /// Data that the caller of the first turn gave for the ones after it.
    pub carried: Map,
    /// Resolution of its last pause; `None` when it was never suspended, or ended before this was kept.
    pub resolution: Option<Resolution>,
    /// Reason for which the delivery that gets this answer changed nothing, where its pause had ended by another cause.
    pub overruled: Option<Overruled>,
    /// True if this answer was given before, to another delivery.
    pub repeated: bool,
}

/// The resolution that counts instead of an answer that came too late.
#[derive(Clone, Debug, PartialEq)]
pub enum Overruled {
    /// Another answer; it is included where it was small enough to be kept.
    Answered(Option<Map>),
    /// Answers of other parts, which were enough before this one came.
    Others,
    /// The decision that time made.
    Time,
    /// The resolution of an earlier pause, of which it is not known any more what ended it.
    Earlier,
}

impl Overruled {
    /// A sentence for the sender of the answer.
    pub fn message(&self) -> &'static str {
        match self {
            Self::Answered(_) => "the pause was answered before with another payload; that answer stands",
            Self::Others => "it was decided before, by the answers of others; that stands",
            Self::Time => "the time for an answer was over; what was decided then stands",
            Self::Earlier => "that pause is over; the invocation slept again after it",
        }
    }
}

/// An invocation that sleeps.
#[derive(Clone, Debug, PartialEq)]
pub struct SuspendedTurn {
    /// This invocation.
    pub invocation_id: InvocationId,
    /// The correlation that it belongs to.
    pub correlation_id: String,
    /// Its session, if it has one.
    pub session_id: Option<SessionId>,
    /// The graph that ran.
    pub graph: String,
    /// Number of this pause among those of the invocation, from 1.
    pub generation: u64,
    /// Descriptor of the wait.
    pub descriptor: SignalDescriptor,
    /// Plan by which it wakes by itself.
    pub wake: WakePlan,
    /// The node of the outermost graph in which it sleeps.
    pub suspending_node: String,
    /// The state of the outermost graph.
    pub state: Map,
    /// Data that the caller of the first turn gave for the ones after it.
    pub carried: Map,
    /// Progress of the pause, when it expects several signals.
    pub tally: Option<Tally>,
    /// The part of its wake-up that is not registered yet, and will be by a sweep.
    pub late: Option<String>,
    /// Reason for which the delivery that gets this answer changed nothing: it was for a pause before this one, which
    /// had ended by another cause.
    pub overruled: Option<Overruled>,
    /// True if this answer was given before, to another delivery.
    pub repeated: bool,
}

/// Progress of a pause that expects several signals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The parts that have answered, in the order in which they did.
    pub answered: Vec<String>,
    /// The others, in the order of the descriptor.
    pub missing: Vec<String>,
    /// The part that this delivery answered for; its answer is accepted and does not decide yet.
    pub accepted: Option<String>,
}

impl From<&FanIn> for Tally {
    fn from(fan_in: &FanIn) -> Self {
        let answered = fan_in.answers.iter().map(|answer| answer.part.clone()).collect();
        Self { answered, missing: fan_in.missing().map(str::to_owned).collect(), accepted: None }
    }
}

impl CompletedTurn {
    /// The end of an invocation of `graph`.
    pub(crate) fn new(graph: &CompiledGraph, done: Completed) -> Self {
        Self {
            invocation_id: done.invocation_id,
            correlation_id: done.correlation_id,
            session_id: None,
            graph: graph.name().to_owned(),
            state: done.state.to_map(),
            carried: done.carried,
            resolution: done.resolution,
            overruled: None,
            repeated: false,
        }
    }
}

impl SuspendedTurn {
    /// A pause of `graph` that was just written.
    pub(crate) fn new(graph: &CompiledGraph, pause: Suspended) -> Self {
        Self {
            suspending_node: pause.suspending_node().to_owned(),
            invocation_id: pause.invocation_id,
            correlation_id: pause.correlation_id,
            session_id: pause.session_id,
            graph: graph.name().to_owned(),
            generation: pause.generation,
            descriptor: pause.descriptor,
            wake: pause.wake,
            tally: pause.fan_in.as_ref().map(Tally::from),
            state: pause.state.to_map(),
            carried: pause.carried,
            late: None,
            overruled: None,
            repeated: false,
        }
    }

    /// A pause as its record shows it. Work that goes on waits for nothing, whatever it waited for before.
    pub(crate) fn stored(mut paused: PausedInvocation) -> Self {
        if paused.under_way {
            paused.descriptor = SignalDescriptor::new("");
            paused.wake = WakePlan::default();
        }
        Self {
            suspending_node: paused.namespace.first().map(ToString::to_string).unwrap_or_default(),
            state: paused.outermost_state().clone(),
            tally: paused.fan_in.as_ref().map(Tally::from),
            invocation_id: paused.invocation_id,
            correlation_id: paused.correlation_id,
            session_id: paused.session_id,
            graph: paused.graph,
            generation: paused.generation,
            descriptor: paused.descriptor,
            wake: paused.wake,
            carried: paused.carried,
            late: None,
            overruled: None,
            repeated: true,
        }
    }
}

impl TurnOutcome {
    /// The answer that the stored record gives to a repeated delivery.
    pub(crate) fn stored(record: InvocationRecord) -> Self {
        let paused = record.paused;
        match record.status {
            InvocationStatus::Completed { state } => Self::Completed(Box::new(CompletedTurn {
                invocation_id: paused.invocation_id,
                correlation_id: paused.correlation_id,
                session_id: paused.session_id,
                graph: paused.graph,
                state,
                carried: paused.carried,
                resolution: paused.resolution,
                overruled: None,
                repeated: true,
            })),
            InvocationStatus::Errored(failure) => TurnError::ended(failure, &paused).into(),
            InvocationStatus::Canceled(cancellation) => {
                let failure = FailureRecord { category: Category::InvocationCanceled, message: cancellation.message() };
                TurnError::ended(failure, &paused).into()
            }
            InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => {
                Self::Suspended(Box::new(SuspendedTurn::stored(paused)))
            }
        }
    }

    /// True if the delivery that gets this answer came for a pause that time, or others, had ended without it.
    pub(crate) fn came_too_late(&self) -> bool {
        let overruled = match self {
            Self::Completed(done) => done.overruled.as_ref(),
            Self::Suspended(pause) => pause.overruled.as_ref(),
            Self::Errored(_) | Self::Buffered { .. } | Self::Stale { .. } => None,
        };
        overruled.is_some_and(|overruled| match overruled {
            Overruled::Time | Overruled::Others => true,
            Overruled::Answered(_) | Overruled::Earlier => false,
        })
    }

    /// Names the session of an invocation that reached END.
    pub(crate) fn in_session(mut self, session_id: Option<SessionId>) -> Self {
        if let Self::Completed(completed) = &mut self {
            completed.session_id = session_id;
        }
        self
    }
}

impl From<TurnError> for TurnOutcome {
    fn from(error: TurnError) -> Self {
        Self::Errored(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::Due;

    use super::*;

    #[test]
    fn work_that_goes_on_waits_for_nothing() {
        let now = Timestamp::UNIX_EPOCH;
        let due = Some(Due::first(now, dormouse_ports::DueAction::Fail));
        let asleep = PausedInvocation {
            descriptor: SignalDescriptor::new("order-7"),
            wake: WakePlan { due, ..WakePlan::default() },
            ..PausedInvocation::before_first_pause("i1".into(), "order", now)
        };
        let shown = SuspendedTurn::stored(asleep.clone());
        assert_eq!((shown.descriptor.signal_id.as_str(), shown.wake.due.is_some()), ("order-7", true));
        let shown = SuspendedTurn::stored(PausedInvocation { under_way: true, ..asleep });
        assert_eq!((shown.descriptor.signal_id.as_str(), shown.wake), ("", WakePlan::default()));
    }
}
