//! Mapping from errors to statuses of HTTP.
//!
//! | status | when |
//! |---|---|
//! | 503, `retry-after` | everything retryable: the same request may succeed later |
//! | 504 | the same, but something may have been written: look first, the same request again could do it twice |
//! | 429, `retry-after` | too many turns of the session wait already |
//! | 400 | the request cannot be read, or is ambiguous |
//! | 401 | the key is missing or wrong |
//! | 404 | no such graph, invocation, checkpoint or signal; a wrong token |
//! | 409 | the invocation is not asleep; its id, or the idempotency key, belongs to another request; its signal id to another wait |
//! | 410 | the pause ended by its own deadline, or the invocation was canceled |
//! | 413 | the body, or the state that it makes, is too large |
//! | 422 | well-formed, but it breaks a schema or names no session; it leads to a wait that cannot be; anything else that the sender can correct |
//! | 502 | a model provider refused this deployment or answered nonsense |
//! | 500 | an operator has to repair a graph, its sessions or the deployment |

use dormouse_harness::{Bucket, TurnError};
use dormouse_ports::Category;

/// The status code of `error`: its bucket decides whether it is worth trying again, then its category.
pub(crate) fn status_of(error: &TurnError) -> u16 {
    match error.bucket {
        Bucket::RetryableTransient if error.in_doubt => 504,
        Bucket::RetryableTransient if error.category == Category::SessionBusy => 429,
        Bucket::RetryableTransient => 503,
        Bucket::UserCorrectable => lasting(&error.category, 422),
        Bucket::SessionTerminating => lasting(&error.category, 500),
    }
}

/// After how many seconds trying again makes sense; for what is retryable.
pub(crate) fn retry_after(error: &TurnError) -> Option<u32> {
    let soon = [Category::ResumeInProgress, Category::SessionLeaseHeld, Category::SessionWriteConflict];
    match error.bucket {
        Bucket::RetryableTransient if error.in_doubt => None,
        Bucket::RetryableTransient if error.retry_after.is_some() => error.retry_after,
        Bucket::RetryableTransient => Some(if soon.contains(&error.category) { 1 } else { 5 }),
        Bucket::UserCorrectable | Bucket::SessionTerminating => None,
    }
}

fn lasting(category: &Category, otherwise: u16) -> u16 {
    use Category as C;
    match category {
        C::RequestInvalid | C::HarnessPathClassificationAmbiguous => 400,
        C::Unauthorized => 401,
        C::NotFound | C::GraphUnknown | C::CheckpointNotFound | C::HarnessSignalCorrelationFailed => 404,
        C::SuspensionRecordInvalid | C::InvocationIdInUse | C::SignalIdInUse | C::IdempotencyKeyReused => 409,
        C::SuspensionTimedOut | C::InvocationCanceled => 410,
        C::RequestTooLarge => 413,
        C::SuspensionResumePayloadInvalid | C::HarnessSessionIdUnresolved | C::ChatMessageShapeInvalid => 422,
        C::ProviderAuthentication | C::ProviderInvalidResponse | C::StructuredOutputInvalid => 502,
        C::NoDeclaredEntry
        | C::UnreachableNode
        | C::DanglingEdge
        | C::MultipleOutgoingEdges
        | C::ConflictingReducers
        | C::MappingReferencesUndeclaredField
        | C::ConflictingProjectionForms
        | C::ReducerConfigurationInvalid
        | C::NodeException
        | C::EdgeException
        | C::FanOutEmpty
        | C::FanOutInvalidCount
        | C::FanOutInvalidConcurrency
        | C::FanOutFieldNotList
        | C::FanOutCountModeAmbiguous
        | C::FanOutDegradedUpdateMissingCollectField
        | C::ParallelBranchesNoBranches
        | C::ParallelBranchesInvalidBranchSpec
        | C::ParallelBranchesBranchFailed
        | C::ReducerError
        | C::RoutingError
        | C::StateValidationError
        | C::SessionLoadFailed
        | C::SessionSaveFailed
        | C::SessionStateMigrationMissing
        | C::SessionStateMigrationChainAmbiguous
        | C::SessionStateMigrationFailed
        | C::SessionWriteConflict
        | C::CheckpointSaveFailed
        | C::CheckpointRecordInvalid
        | C::CheckpointStateMigrationMissing
        | C::CheckpointStateMigrationFailed
        | C::CheckpointStateMigrationChainAmbiguous
        | C::SuspensionPersistenceFailed
        | C::SuspensionInUnsupportedContext
        | C::HarnessSignalSubscriptionFailed
        | C::ProviderUnavailable
        | C::ProviderInvalidModel
        | C::ProviderModelNotLoaded
        | C::ProviderRateLimit
        | C::ProviderInvalidRequest
        | C::ProviderUnsupportedContentBlock
        | C::SessionLeaseHeld
        | C::SessionBusy
        | C::Overloaded
        | C::ResumeInProgress
        | C::SuspensionPinned
        | C::TurnDeadlineExceeded
        | C::OutcomeUnknown
        | C::AttemptsExhausted
        | C::LimitExceeded
        | C::Application(_) => otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_has_a_status_that_fits_its_bucket() {
        for category in Category::SPECIFIED {
            let error = TurnError::new(category.clone(), "");
            let status = status_of(&error);
            match error.bucket {
                Bucket::RetryableTransient if error.in_doubt => {
                    assert_eq!((status, retry_after(&error)), (504, None), "{category}");
                }
                Bucket::RetryableTransient => {
                    let expected = if *category == Category::SessionBusy { 429 } else { 503 };
                    assert_eq!((status, retry_after(&error).is_some()), (expected, true));
                }
                Bucket::UserCorrectable => assert!((400..500).contains(&status) || status == 502, "{category}"),
                Bucket::SessionTerminating => assert!(status == 500 || status == 410, "{category}: {status}"),
            }
        }
    }

    #[test]
    fn what_only_a_busy_port_refused_may_be_tried_again() {
        let error = TurnError::new(Category::GraphUnknown, "");
        assert_eq!(status_of(&error), 404);
        assert_eq!(status_of(&TurnError { bucket: Bucket::RetryableTransient, ..error }), 503);
    }
}
