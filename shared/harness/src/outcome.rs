use dormouse_engine::EngineError;
use dormouse_ports::{
    Category, FailureRecord, FanIn, InvocationId, Map, Resolution, SessionId, SignalDescriptor, SignalId, WakePlan,
};
use jiff::Timestamp;

use crate::{Bucket, DispatchPath, Overloaded, bucket_of};

/// What a turn was and what came out (harness §4).
#[derive(Debug)]
pub struct Turn {
    /// The dispatch path; `None` when the transmission could not be classified.
    pub path: Option<DispatchPath>,
    /// What came out.
    pub outcome: TurnOutcome,
}

/// What came out of a turn. The three outcomes of harness §5, and the two answers to a signal that moved nothing now.
#[derive(Debug)]
pub enum TurnOutcome {
    /// The graph reached END.
    Completed(Box<CompletedTurn>),
    /// The invocation sleeps, and its wake-up is registered or [late](SuspendedTurn::late); also after one of several signals was accepted.
    Suspended(Box<SuspendedTurn>),
    /// Something went wrong.
    Errored(Box<TurnError>),
    /// The signal came before its wait and is kept for it.
    Buffered {
        /// Its correlation token.
        signal_id: SignalId,
        /// Until when it is kept.
        expires_at: Timestamp,
    },
    /// The delivery has nothing to do any more: another one was first, and the invocation is past that pause.
    Stale {
        /// Which invocation was meant.
        invocation_id: InvocationId,
    },
}

/// An invocation that reached END.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletedTurn {
    /// This invocation.
    pub invocation_id: InvocationId,
    /// Its session, if it has one.
    pub session_id: Option<SessionId>,
    /// The graph that ran.
    pub graph: String,
    /// The final state.
    pub state: Map,
    /// What the caller of the first turn gave along.
    pub carried: Map,
    /// By what its last pause ended; `None` when it never slept, or ended before this was kept.
    pub resolution: Option<Resolution>,
    /// Why the delivery that is told this changed nothing, where something else than it had ended its pause.
    pub overruled: Option<Overruled>,
    /// Whether this answer was given before, to another delivery.
    pub repeated: bool,
}

/// What counts instead of an answer that came too late.
#[derive(Clone, Debug, PartialEq)]
pub enum Overruled {
    /// Another answer; it is told where it was small enough to be kept.
    Answered(Option<Map>),
    /// What time decided.
    Time,
    /// Whatever ended a pause before the last one.
    Earlier,
}

impl Overruled {
    /// In a sentence for whoever sent the answer.
    pub fn message(&self) -> &'static str {
        match self {
            Self::Answered(_) => "the pause was answered before, and otherwise; that answer stands",
            Self::Time => "the time for an answer was over; what was decided then stands",
            Self::Earlier => "that pause is over; the invocation slept again after it, and has ended",
        }
    }
}

/// An invocation that sleeps.
#[derive(Clone, Debug, PartialEq)]
pub struct SuspendedTurn {
    /// This invocation.
    pub invocation_id: InvocationId,
    /// Its session, if it has one.
    pub session_id: Option<SessionId>,
    /// The graph that ran.
    pub graph: String,
    /// Which of its pauses this is, from 1.
    pub generation: u64,
    /// What it waits for.
    pub descriptor: SignalDescriptor,
    /// When and by what it wakes by itself.
    pub wake: WakePlan,
    /// The node of the outermost graph in which it sleeps.
    pub suspending_node: String,
    /// The state of the outermost graph.
    pub state: Map,
    /// What the caller of the first turn gave along.
    pub carried: Map,
    /// How far it is, when it expects several signals.
    pub tally: Option<Tally>,
    /// What of its wake-up is not registered yet, and will be by a sweep.
    pub late: Option<String>,
    /// Whether this answer was given before, to another delivery.
    pub repeated: bool,
}

/// How far a pause is that expects several signals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The parts that have answered, in the order in which they did.
    pub answered: Vec<String>,
    /// The others, in the order of the descriptor.
    pub missing: Vec<String>,
    /// The part whose answer this delivery brought; it is accepted and does not decide yet.
    pub accepted: Option<String>,
}

impl From<&FanIn> for Tally {
    fn from(fan_in: &FanIn) -> Self {
        let answered = fan_in.answers.iter().map(|answer| answer.part.clone()).collect();
        Self { answered, missing: fan_in.missing().map(str::to_owned).collect(), accepted: None }
    }
}

/// A failure at the boundary of the turn (harness §7).
#[derive(Clone, Debug, PartialEq)]
pub struct TurnError {
    /// What went wrong.
    pub category: Category,
    /// What the caller can do about it.
    pub bucket: Bucket,
    /// What a person reads.
    pub message: String,
    /// The invocation that it concerns, if there is one to look at.
    pub invocation_id: Option<InvocationId>,
    /// Whether the invocation had ended with it before: this answer was given already, and nothing changes it.
    pub repeated: bool,
    /// After how many seconds there should be room, where somebody knows.
    pub retry_after: Option<u32>,
    /// Whether something may have been written all the same: the same request again could do it twice.
    pub in_doubt: bool,
}

impl TurnError {
    /// An error of `category` in its bucket.
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self {
            bucket: bucket_of(&category),
            in_doubt: category == Category::OutcomeUnknown,
            category,
            message: message.into(),
            invocation_id: None,
            repeated: false,
            retry_after: None,
        }
    }

    /// A refusal of `category` by a line that is full, or did not move in time.
    pub fn refused(category: Category, overloaded: Overloaded, message: impl Into<String>) -> Self {
        let seconds = overloaded.retry_after.as_secs() + u64::from(overloaded.retry_after.subsec_nanos() > 0);
        Self { retry_after: u32::try_from(seconds).ok(), ..Self::new(category, message) }
    }

    /// Whether what was sent was refused as it is, and changed nothing: whoever carried it for somebody else has to say so.
    pub fn is_unfit(&self) -> bool {
        let refused = [
            Category::SuspensionResumePayloadInvalid,
            Category::RequestInvalid,
            Category::RequestTooLarge,
            Category::HarnessSignalCorrelationFailed,
        ];
        !self.repeated && refused.contains(&self.category)
    }

    /// The failure with which an invocation ended, for those who ask again. Whatever the category, trying the same
    /// again is no use any more.
    pub(crate) fn ended(failure: FailureRecord, invocation_id: &InvocationId) -> Self {
        let error = Self::new(failure.category, failure.message).of(invocation_id);
        let bucket = match error.bucket {
            Bucket::RetryableTransient | Bucket::UserCorrectable => Bucket::UserCorrectable,
            Bucket::SessionTerminating => Bucket::SessionTerminating,
        };
        Self { bucket, repeated: true, ..error }
    }

    /// Names the invocation that it concerns.
    #[must_use]
    pub fn of(mut self, invocation_id: &InvocationId) -> Self {
        self.invocation_id.get_or_insert_with(|| invocation_id.clone());
        self
    }
}

impl From<EngineError> for TurnError {
    /// The category behind carriers. Transient, whatever the category, when only a port was busy. What the engine
    /// refused before any node ran, or as a wake-up, was asked for wrongly.
    fn from(error: EngineError) -> Self {
        let plain = Self::new(error.derived_category().clone(), error.message());
        let of_given_state = [Category::StateValidationError, Category::ReducerError].contains(&plain.category);
        let asked_wrongly =
            plain.category == Category::HarnessSignalSubscriptionFailed || (of_given_state && error.state().is_none());
        let bucket = if error.is_transient() {
            Bucket::RetryableTransient
        } else if asked_wrongly {
            Bucket::UserCorrectable
        } else {
            plain.bucket
        };
        Self { bucket, ..plain }
    }
}

impl TurnOutcome {
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
