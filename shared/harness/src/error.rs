use dormouse_engine::EngineError;
use dormouse_ports::{
    Category, CommitError, FailureRecord, InvocationId, Map, PausedInvocation, StoreError, SubscriptionError,
};

use crate::admission::Overloaded;
use crate::bucket::{Bucket, bucket_of};

/// A failure at the boundary of the turn (harness §7).
#[derive(Clone, Debug, PartialEq)]
pub struct TurnError {
    /// Category of the error.
    pub category: Category,
    /// Remedy of the caller.
    pub bucket: Bucket,
    /// Message for a person.
    pub message: String,
    /// The invocation that it concerns, if there is one to look at.
    pub invocation_id: Option<InvocationId>,
    /// The correlation that this belongs to, where it is known.
    pub correlation_id: Option<String>,
    /// True if the invocation had ended with it before: this answer was given already, and nothing changes it.
    pub repeated: bool,
    /// Number of seconds after which there should be room, where that is known.
    pub retry_after: Option<u32>,
    /// True if a record may have been written all the same: the same request again could do it twice.
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
            correlation_id: None,
            repeated: false,
            retry_after: None,
        }
    }

    /// A refusal of `category` by a line that is full, or did not move in time.
    pub fn refused(category: Category, overloaded: Overloaded, message: impl Into<String>) -> Self {
        let seconds = overloaded.retry_after.as_secs() + u64::from(overloaded.retry_after.subsec_nanos() > 0);
        Self { retry_after: u32::try_from(seconds).ok(), ..Self::new(category, message) }
    }

    /// True if the input was refused as it is, or by a graph that does not take its pause up, and changed nothing: a carrier
    /// that delivered it for another sender has to report so, and keep it.
    pub fn is_unfit(&self) -> bool {
        let refused = [
            Category::SuspensionResumePayloadInvalid,
            Category::SuspensionRecordInvalid,
            Category::RequestInvalid,
            Category::RequestTooLarge,
            Category::HarnessSignalCorrelationFailed,
        ];
        !self.repeated && refused.contains(&self.category)
    }

    /// The failure with which the invocation of `paused` ended, for callers that ask again. In every category, trying the
    /// same again is no use any more.
    pub(crate) fn ended(failure: FailureRecord, paused: &PausedInvocation) -> Self {
        let error = Self::new(failure.category, failure.message).of_record(paused);
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

    /// Names the invocation of `paused`, and the correlation that it belongs to.
    #[must_use]
    pub(crate) fn of_record(self, paused: &PausedInvocation) -> Self {
        self.of(&paused.invocation_id).in_correlation(&paused.correlation_id)
    }

    /// Names the correlation that its invocation belongs to.
    #[must_use]
    pub(crate) fn in_correlation(mut self, correlation_id: &str) -> Self {
        self.correlation_id.get_or_insert_with(|| correlation_id.to_owned());
        self
    }
}

impl From<EngineError> for TurnError {
    /// The category behind carriers. Transient, in any category, when only a port was busy. Errors that the engine
    /// raised before any node ran, or on a wake-up, count as mistakes of the request, unless they carry a state: then it
    /// is what the session holds that does not fit.
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

/// Refuses data that is nested too deeply to be read again, or has too many values; `what` names it.
pub(crate) fn bounded(what: &str, given: &Map) -> Result<(), TurnError> {
    dormouse_json::measure_object(given, dormouse_json::ENTRY)
        .map_err(|excess| TurnError::new(Category::RequestTooLarge, format!("{what}: {excess}")))
}

/// Error of a change that can be requested again: its caller learns whether it was written.
pub(crate) fn unknown(error: &CommitError) -> TurnError {
    TurnError { in_doubt: false, ..TurnError::new(Category::OutcomeUnknown, error.to_string()) }
}

/// True if what was committed is written; false where another answer was first, or somebody has the invocation: it is to be
/// looked at again.
///
/// # Errors
/// If the store failed, or it is not known whether it is written.
pub(crate) fn is_written(committed: Result<(), CommitError>) -> Result<bool, TurnError> {
    match committed {
        Ok(()) => Ok(true),
        Err(CommitError::Store(error)) => Err(store_failed(error)),
        Err(error @ CommitError::Unknown(_)) => Err(unknown(&error)),
        Err(
            CommitError::InvocationConflict
            | CommitError::SessionConflict
            | CommitError::LeaseLost
            | CommitError::SignalBuffered(_)
            | CommitError::SignalTaken { .. }
            | CommitError::Journal(_)
            | CommitError::Said(_),
        ) => Ok(false),
    }
}

/// Error of a turn when the store failed with `error`.
pub fn store_failed(error: StoreError) -> TurnError {
    let (category, bucket) = match &error {
        StoreError::Unavailable(_) | StoreError::LeaseHeld { .. } => {
            (Category::SuspensionPersistenceFailed, Bucket::RetryableTransient)
        }
        StoreError::Denied(_) | StoreError::Corrupt(_) => {
            (Category::SuspensionPersistenceFailed, Bucket::SessionTerminating)
        }
        StoreError::TooLarge { .. } | StoreError::TooComplex { .. } => {
            (Category::RequestTooLarge, Bucket::UserCorrectable)
        }
        StoreError::Invalid(_) => (Category::RequestInvalid, Bucket::UserCorrectable),
    };
    TurnError { bucket, ..TurnError::new(category, error.to_string()) }
}

/// Error of a turn when a wake-up could not be registered.
pub fn subscription_failed(error: SubscriptionError) -> TurnError {
    let bucket = match &error {
        SubscriptionError::Unavailable(_) => Bucket::RetryableTransient,
        SubscriptionError::Denied(_) => Bucket::SessionTerminating,
        SubscriptionError::Rejected(_) => Bucket::UserCorrectable,
    };
    let message = format!("the wake-up could not be registered: {error}");
    TurnError { bucket, ..TurnError::new(Category::HarnessSignalSubscriptionFailed, message) }
}
