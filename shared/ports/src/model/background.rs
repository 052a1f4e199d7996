use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{CompletionRequest, ModelError, Response};
use crate::SignalId;

/// A completion that the provider works on in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundJob {
    /// The provider's name for it.
    pub id: String,
}

impl BackgroundJob {
    /// The signal that tells that it has ended.
    pub fn signal_id(&self) -> SignalId {
        format!("model-job/{}", self.id).into()
    }
}

/// Status of such a completion.
#[derive(Clone, Debug, PartialEq)]
pub enum BackgroundStatus {
    /// Not yet begun, or under way.
    Running,
    /// Ended with an answer.
    Completed(Box<Response>),
    /// Ended without one.
    Failed(Box<ModelError>),
    /// It was canceled.
    Canceled,
}

/// A completion that was handed over.
#[derive(Clone, Debug, PartialEq)]
pub struct StartedJob {
    /// What the provider calls it.
    pub job: BackgroundJob,
    /// How it stands: some providers have the answer at once, and do not keep it.
    pub status: BackgroundStatus,
}

impl StartedJob {
    /// The job `id`, which is under way.
    pub fn running(id: impl Into<String>) -> Self {
        Self { job: BackgroundJob { id: id.into() }, status: BackgroundStatus::Running }
    }
}

/// Port to a model that can work in the background.
#[async_trait]
pub trait BackgroundProvider: Send + Sync {
    /// Hands `request` over. `key` names this handing over among all of all time and goes along as its idempotency key:
    /// a provider that knows such keys makes one job of two requests with one key.
    ///
    /// # Errors
    /// [`ModelError`] when the provider did not take it. After a lost connection it is unknown if it did.
    async fn start(&self, request: &CompletionRequest, key: &str) -> Result<StartedJob, ModelError>;

    /// Asks how `job`, which `request` began, stands. It may be asked as often as one likes.
    ///
    /// # Errors
    /// [`ModelError`] when the provider did not tell. A job that failed is a status.
    async fn poll(&self, job: &BackgroundJob, request: &CompletionRequest) -> Result<BackgroundStatus, ModelError>;

    /// Ends `job`. One that has ended already stays as it is.
    ///
    /// # Errors
    /// [`ModelError`] when the provider did not acknowledge.
    async fn cancel(&self, job: &BackgroundJob) -> Result<(), ModelError>;
}
