use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{ModelError, RuntimeConfig, StructuredFailure};

type ModelErrorClassifier = Arc<dyn Fn(&ModelError) -> bool + Send + Sync>;
type ModelBackoff = Arc<dyn Fn(u32, &ModelError) -> Duration + Send + Sync>;
type OnRetry = Arc<dyn Fn(&ModelError, u32) + Send + Sync>;

/// Builds the message with which a model is told what is wrong with its output. The caller writes every word of it.
pub type Reask = Arc<dyn Fn(&StructuredFailure) -> String + Send + Sync>;

/// Policy by which a call tries again within itself (§7.1; pipeline-utilities §6.1).
#[derive(Clone)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; 1 or less never tries again.
    pub max_attempts: u32,
    /// Decides which errors are worth another attempt.
    pub classifier: ModelErrorClassifier,
    /// The wait after the attempt of that index, from 0, which failed with that error.
    pub backoff: ModelBackoff,
    /// Called before each wait with the error and the index of the attempt that failed. It only looks.
    pub on_retry: Option<OnRetry>,
    /// What each further attempt lays over the configuration; the last one holds for all that follow.
    pub per_attempt_override: Vec<RuntimeConfig>,
    /// Makes content that breaks the schema worth another attempt, with this message.
    pub reask: Option<Reask>,
}

impl RetryPolicy {
    /// Three attempts at what is transient, with waits of a random length: up to one second, doubled per attempt, to
    /// half a minute at most. `jitter` returns another number from 0 to 1 each time.
    pub fn new(jitter: Arc<dyn Fn() -> f64 + Send + Sync>) -> Self {
        Self {
            max_attempts: 3,
            classifier: Arc::new(ModelError::is_transient),
            backoff: Arc::new(move |attempt, _| full_jitter(attempt, jitter())),
            on_retry: None,
            per_attempt_override: Vec::new(),
            reask: None,
        }
    }

    /// Waits at least as long as the provider asks for. Where that is longer than `most`, there is no other attempt: the
    /// error comes back with the time in it.
    #[must_use]
    pub fn heeding_retry_after(mut self, most: Duration) -> Self {
        let (backoff, classifier) = (self.backoff, self.classifier);
        self.backoff =
            Arc::new(move |attempt, error| backoff(attempt, error).max(error.retry_after.unwrap_or_default()));
        self.classifier =
            Arc::new(move |error| classifier(error) && error.retry_after.is_none_or(|asked| asked <= most));
        self
    }

    /// Makes no other attempt behind one that may be paid: the error comes back, and who called says whether it is worth another one.
    #[must_use]
    pub fn sparing(mut self) -> Self {
        let classifier = self.classifier;
        self.classifier = Arc::new(move |error| classifier(error) && !error.may_have_cost());
        self
    }
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy").field("max_attempts", &self.max_attempts).finish_non_exhaustive()
    }
}

fn full_jitter(attempt: u32, chance: f64) -> Duration {
    const CAP: Duration = Duration::from_secs(30);
    let longest = Duration::from_secs(1).saturating_mul(2_u32.saturating_pow(attempt)).min(CAP);
    longest.mul_f64(chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelErrorCategory;

    #[test]
    fn waits_double_up_to_half_a_minute_and_heed_the_provider() {
        let policy = RetryPolicy::new(Arc::new(|| 1.0));
        let mut error = ModelError::new(ModelErrorCategory::RateLimit, "slow down");
        let waits: Vec<_> = [0, 1, 4, 5, 60].map(|attempt| (policy.backoff)(attempt, &error).as_secs()).into();
        assert_eq!(waits, [1, 2, 16, 30, 30]);
        error.retry_after = Some(Duration::from_secs(40));
        assert_eq!((policy.backoff)(0, &error).as_secs(), 1);
        let heeding = policy.heeding_retry_after(Duration::from_secs(40));
        assert_eq!(((heeding.backoff)(0, &error).as_secs(), (heeding.classifier)(&error)), (40, true));
        error.retry_after = Some(Duration::from_secs(41));
        assert!(!(heeding.classifier)(&error), "it is not asked before the time");
    }

    #[test]
    fn a_policy_that_spares_makes_no_other_attempt_behind_what_may_be_paid() {
        let policy = RetryPolicy::new(Arc::new(|| 1.0));
        let sparing = policy.clone().sparing();
        let free = ModelError::new(ModelErrorCategory::Unavailable, "busy");
        let lost = ModelError { may_be_paid: true, ..free.clone() };
        let counted = ModelError { usage: Some(Box::default()), ..free.clone() };
        let garbled = ModelError { may_pass: Some(true), ..ModelError::new(ModelErrorCategory::InvalidResponse, "{") };
        for (error, is_free) in [(free, true), (lost, false), (counted, false), (garbled, false)] {
            assert!((policy.classifier)(&error), "{error}");
            assert_eq!((sparing.classifier)(&error), is_free, "{error}");
        }
    }
}
