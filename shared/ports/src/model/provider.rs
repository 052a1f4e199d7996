use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use serde::{Deserialize, Serialize};

use super::{CallObserver, CompletionRequest, ModelError, Response, RetryPolicy};

/// The wire and the model that a provider is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelIdentity {
    /// Name of the wire, as GenAI conventions spell providers: `openai`, `anthropic`, `gcp.gemini`, `aws.bedrock`.
    pub system: String,
    /// The model.
    pub model: String,
    /// Host and port that are asked.
    pub server: String,
}

/// Options that belong to one call and not to its request.
#[derive(Clone)]
pub struct CallOptions {
    /// Receives attempts and pieces.
    pub observer: Arc<dyn CallObserver>,
    /// Whether and how the call tries again by itself.
    pub retry: Option<RetryPolicy>,
    /// Time for each attempt, from its start to its last byte; the provider's own without one.
    pub timeout: Option<Duration>,
}

impl Default for CallOptions {
    /// No observer, and nothing is tried again.
    fn default() -> Self {
        Self { observer: Arc::new(()), retry: None, timeout: None }
    }
}

impl std::fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallOptions")
            .field("retry", &self.retry)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Port to one model of one provider (§5). It keeps nothing between calls; calls may run side by side.
///
/// Dropping a future closes its connection: that is how a call is canceled.
#[async_trait]
pub trait ModelProvider: Send + Sync {
    /// The wire and the model.
    fn identity(&self) -> ModelIdentity;

    /// Checks that the model can be reached and serves, without asking it anything.
    ///
    /// # Errors
    /// The error that a completion would fail with now.
    async fn ready(&self) -> Result<(), ModelError>;

    /// Asks the model once; tools that it calls are the caller's to run. At most one request is under way at a time.
    ///
    /// # Errors
    /// [`ModelError`] when there is no usable answer. What is wrong with the request itself is found before anything is
    /// sent.
    async fn complete(&self, request: &CompletionRequest, options: &CallOptions) -> Result<Response, ModelError>;
}
