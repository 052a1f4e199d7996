use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{Category, Clock, IdSource};
use sha2::{Digest, Sha256};

use super::{OnError, Told};
use crate::cause::classify;
use crate::{Middleware, Next, NodeError, State, Update};

/// Source of chance: every call returns another number from 0 to 1.
pub type Jitter = Arc<dyn Fn() -> f64 + Send + Sync>;

type Classifier = Arc<dyn Fn(&NodeError, &State) -> bool + Send + Sync>;
type Backoff = Arc<dyn Fn(u32) -> Duration + Send + Sync>;

/// Runs what it wraps again when it fails in a way that may pass (pipeline-utilities §6.1).
///
/// Every attempt is reported to observers with its own `attempt_index`. An update is never a reason to try again, no
/// matter which fields it sets; a cancelled attempt is dropped, not failed. After a suspension the attempt that paused
/// goes on under its index, and so does the budget.
pub struct Retry {
    clock: Arc<dyn Clock>,
    max_attempts: u32,
    classifier: Classifier,
    backoff: Backoff,
    on_retry: Option<OnError<u32>>,
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("max_attempts", &self.max_attempts).finish_non_exhaustive()
    }
}

impl Retry {
    /// Three attempts at what [`is_transient`], with [`full_jitter`] between them.
    pub fn new(clock: Arc<dyn Clock>, jitter: Jitter) -> Self {
        Self {
            clock,
            max_attempts: 3,
            classifier: Arc::new(|error, _| is_transient(error)),
            backoff: Arc::new(move |attempt| full_jitter(attempt, &jitter)),
            on_retry: None,
        }
    }

    /// Sets the number of attempts in all, the first included; 1 or less never tries again.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Decides, given the state that the failed attempt received, whether another one is worth it.
    #[must_use]
    pub fn classifier(mut self, retryable: impl Fn(&NodeError, &State) -> bool + Send + Sync + 'static) -> Self {
        self.classifier = Arc::new(retryable);
        self
    }

    /// Sets the wait after the attempt of that index, from 0.
    #[must_use]
    pub fn backoff(mut self, wait: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        self.backoff = Arc::new(wait);
        self
    }

    /// Called before each wait with the error and the index of the attempt that failed.
    #[must_use]
    pub fn on_retry<F>(mut self, told: F) -> Self
    where
        F: for<'e> Fn(&'e NodeError, u32) -> Told<'e> + Send + Sync + 'static,
    {
        self.on_retry = Some(Arc::new(told));
        self
    }

    fn gives_up(&self, error: &NodeError, state: &State, attempt: u32) -> bool {
        attempt.saturating_add(1) >= self.max_attempts || !(self.classifier)(error, state)
    }
}

#[async_trait]
impl Middleware for Retry {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let mut attempt = next.first_attempt();
        loop {
            let error = match next.attempt(state.clone(), attempt).await {
                Err(error) if !self.gives_up(&error, &state, attempt) => error,
                ended => return ended,
            };
            if let Some(told) = &self.on_retry {
                told(&error, attempt).await?;
            }
            self.clock.sleep((self.backoff)(attempt)).await;
            attempt += 1;
        }
    }
}

/// True if a failure may pass by itself, judged by its category or, of a node that raised inside of the wrapped chain,
/// by the category one level deeper. A failed branch is judged by the error with which it failed. Not the whole chain
/// counts: what lies deeper is for a retry further in.
pub fn is_transient(error: &NodeError) -> bool {
    let chain = classify(error).chain;
    let branch = chain.first().is_some_and(|link| link.category == Some(Category::ParallelBranchesBranchFailed));
    let mut links = chain.into_iter().skip(usize::from(branch));
    let judged = match links.next() {
        Some(link) if link.carrier => links.next(),
        other => other,
    };
    judged.and_then(|link| link.category).is_some_and(|category| {
        matches!(
            category,
            Category::ProviderUnavailable | Category::ProviderRateLimit | Category::ProviderModelNotLoaded
        ) || category.as_str() == "prompt_store_unavailable"
    })
}

/// A random wait from nothing to one second, doubled per attempt, to half a minute at most: callers that failed
/// together do not come back together.
pub fn full_jitter(attempt: u32, jitter: &Jitter) -> Duration {
    const CAP: Duration = Duration::from_secs(30);
    let longest = Duration::from_secs(1).saturating_mul(2_u32.saturating_pow(attempt)).min(CAP);
    longest.mul_f64(jitter().clamp(0.0, 1.0))
}

/// Chance drawn from fresh identifiers.
pub fn jitter_from(ids: Arc<dyn IdSource>) -> Jitter {
    Arc::new(move || {
        let digest = Sha256::digest(ids.fresh());
        let drawn = digest.iter().take(4).fold(0_u32, |drawn, byte| drawn << 8 | u32::from(*byte));
        f64::from(drawn) / f64::from(u32::MAX)
    })
}
