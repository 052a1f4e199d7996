use std::time::Duration;

use dormouse_ports::StoreError;
use rand::Rng;

use super::fault::RequestFault;

/// Number and pauses of the repetitions of a request: full jitter under an exponentially growing ceiling.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// The most times that a request is sent. The default gives a busy table some 2 seconds; a turn whose time is over
    /// drops the request earlier.
    pub attempts: u32,
    /// The ceiling of the first pause; each next one is twice as high. With zero there are no pauses, and no runtime
    /// is needed.
    pub base: Duration,
    /// No pause is longer.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 10, base: Duration::from_millis(15), cap: Duration::from_secs(1) }
    }
}

impl RetryPolicy {
    /// The first answer of `attempt`, or the fault that lasts.
    pub(super) async fn run<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, RequestFault>>,
    {
        let mut sent = 0;
        loop {
            sent += 1;
            match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(RequestFault::Permanent(error)) => return Err(error),
                Err(RequestFault::Transient(error) | RequestFault::Busy(error)) if sent >= self.attempts => {
                    return Err(error);
                }
                Err(RequestFault::Transient(error) | RequestFault::Busy(error)) => {
                    tracing::debug!(%error, sent, "the request is repeated");
                    let pause = self.pause(sent);
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                }
            }
        }
    }

    fn pause(&self, sent: u32) -> Duration {
        let ceiling = self.base.saturating_mul(2_u32.saturating_pow(sent - 1)).min(self.cap);
        ceiling.mul_f64(rand::rng().random::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stay_under_their_ceiling() {
        let policy = RetryPolicy { attempts: 5, base: Duration::from_millis(10), cap: Duration::from_millis(25) };
        for _ in 0..100 {
            assert!(policy.pause(1) <= Duration::from_millis(10));
            assert!(policy.pause(2) <= Duration::from_millis(20));
            assert!(policy.pause(31) <= Duration::from_millis(25));
            assert!(policy.pause(u32::MAX) <= Duration::from_millis(25));
        }
    }
}
