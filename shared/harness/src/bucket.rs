use dormouse_ports::Category;
use serde::{Deserialize, Serialize};

/// Remedy of a caller for an error (harness §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bucket {
    /// Nothing: the session or the graph has to be repaired by an operator (§7.1).
    SessionTerminating,
    /// Try the same again later (§7.2).
    RetryableTransient,
    /// Send another request (§7.3).
    UserCorrectable,
}

impl Bucket {
    /// The specification's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionTerminating => "session_terminating",
            Self::RetryableTransient => "retryable_transient",
            Self::UserCorrectable => "user_correctable",
        }
    }
}

/// The bucket of a category: one total table (harness §7).
///
/// A node that raised without a category counts as transient: nothing was saved, so the same turn may be tried again,
/// and a resumed invocation sleeps on until the cause is repaired.
pub fn bucket_of(category: &Category) -> Bucket {
    use Bucket::{RetryableTransient, SessionTerminating, UserCorrectable};
    use Category as C;
    match category {
        C::NoDeclaredEntry
        | C::UnreachableNode
        | C::DanglingEdge
        | C::MultipleOutgoingEdges
        | C::ConflictingReducers
        | C::MappingReferencesUndeclaredField
        | C::ConflictingProjectionForms
        | C::ReducerConfigurationInvalid
        | C::FanOutEmpty
        | C::FanOutInvalidCount
        | C::FanOutInvalidConcurrency
        | C::FanOutFieldNotList
        | C::FanOutCountModeAmbiguous
        | C::FanOutDegradedUpdateMissingCollectField
        | C::ParallelBranchesNoBranches
        | C::ParallelBranchesInvalidBranchSpec
        | C::EdgeException
        | C::ReducerError
        | C::RoutingError
        | C::StateValidationError
        | C::SessionLoadFailed
        | C::SessionStateMigrationMissing
        | C::SessionStateMigrationChainAmbiguous
        | C::SessionStateMigrationFailed
        | C::CheckpointRecordInvalid
        | C::CheckpointStateMigrationMissing
        | C::CheckpointStateMigrationFailed
        | C::CheckpointStateMigrationChainAmbiguous
        | C::SuspensionPersistenceFailed
        | C::SuspensionInUnsupportedContext
        | C::SuspensionTimedOut
        | C::AttemptsExhausted
        | C::LimitExceeded => SessionTerminating,
        C::NodeException
        | C::ParallelBranchesBranchFailed
        | C::SessionSaveFailed
        | C::SessionWriteConflict
        | C::CheckpointSaveFailed
        | C::HarnessSignalSubscriptionFailed
        | C::ProviderUnavailable
        | C::ProviderModelNotLoaded
        | C::ProviderRateLimit
        | C::SessionLeaseHeld
        | C::SessionBusy
        | C::Overloaded
        | C::ResumeInProgress
        | C::SuspensionPinned
        | C::TurnDeadlineExceeded
        | C::OutcomeUnknown => RetryableTransient,
        C::CheckpointNotFound
        | C::SuspensionRecordInvalid
        | C::SuspensionResumePayloadInvalid
        | C::HarnessSessionIdUnresolved
        | C::HarnessSignalCorrelationFailed
        | C::HarnessPathClassificationAmbiguous
        | C::ChatMessageShapeInvalid
        | C::ProviderAuthentication
        | C::ProviderInvalidModel
        | C::ProviderInvalidResponse
        | C::ProviderInvalidRequest
        | C::ProviderUnsupportedContentBlock
        | C::StructuredOutputInvalid
        | C::InvocationCanceled
        | C::GraphUnknown
        | C::RequestInvalid
        | C::InvocationIdInUse
        | C::SignalIdInUse
        | C::IdempotencyKeyReused
        | C::RequestTooLarge
        | C::NotFound
        | C::Unauthorized
        | C::Application(_) => UserCorrectable,
    }
}
