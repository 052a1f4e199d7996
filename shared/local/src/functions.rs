//! The functions that are triggered by events and timers.

use std::time::Duration;

use async_trait::async_trait;
use dormouse_harness::Bucket;
use dormouse_http::{App, TriggerError};
use dormouse_maintenance::{SweepScope, SweepSummary};
use serde_json::Value;

use crate::dispatcher::{Functions, InvokeError};

/// Time in which a signal is left to another worker, while others have who waits for it.
const TIME_TO_LEAVE: Duration = Duration::from_secs(2);

/// The functions, served by the application.
#[derive(Debug)]
pub(crate) struct Served(pub(crate) App);

#[async_trait]
impl Functions for Served {
    async fn event(&self, input: Value) -> Result<(), InvokeError> {
        self.0.event(input, None).await.map(|_| ()).map_err(raised)
    }

    async fn leave(&self, signal: Value) -> Result<(), InvokeError> {
        self.0.leave_event(signal, Some(TIME_TO_LEAVE)).await.map_err(|error| match &error {
            TriggerError::Turn(turn) if turn.bucket == Bucket::UserCorrectable => {
                InvokeError::Permanent(error.to_string())
            }
            TriggerError::Turn(_) | TriggerError::Unreadable(_) => raised(error),
        })
    }

    async fn wakeup(&self, input: Value) -> Result<(), InvokeError> {
        self.0.wakeup(input, None).await.map(|_| ()).map_err(raised)
    }

    async fn sweep(&self, scope: SweepScope) -> Result<SweepSummary, String> {
        let swept = self.0.sweep(scope, None).await;
        swept.map_err(|error| format!("{}: {}", error.category, error.message))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn raised(error: TriggerError) -> InvokeError {
    match &error {
        TriggerError::Unreadable(_) => InvokeError::Permanent(error.to_string()),
        TriggerError::Turn(_) => InvokeError::Transient(error.to_string()),
    }
}
