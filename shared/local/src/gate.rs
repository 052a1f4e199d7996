//! Limit on the requests that this process works on at a time. On AWS each request has a sandbox of its own, and the
//! account's quota is the gate.

use std::sync::Arc;
use std::time::Duration;

use dormouse_harness::{Admission, AdmissionLimits, AdmissionWait, Admitted, Overloaded};
use dormouse_ports::Clock;
use sha2::{Digest, Sha256};

/// Number of requests that are worked on, and of those that wait. The callers with one key, or with none, have at most
/// three quarters: one that asks without end leaves room for the others.
const LIMITS: AdmissionLimits =
    AdmissionLimits { running: 128, running_per_key: 96, waiting: 1024, waiting_per_key: 768 };
/// The longest wait: behind it, most clients have stopped to listen.
const WAIT: AdmissionWait = AdmissionWait { longest: Duration::from_secs(5), refusable: true };

/// Lets requests in. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Admission<CredentialGroup>);

/// Callers that send the same credentials: a part of their digest.
pub(crate) type CredentialGroup = [u8; 8];

impl Gate {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Admission::new(LIMITS, clock))
    }

    /// Waits until a request with these credentials may be worked on.
    pub(crate) async fn enter(&self, authorization: Option<&[u8]>) -> Result<Admitted<CredentialGroup>, Overloaded> {
        let caller = authorization.map(|credentials| {
            let mut caller = CredentialGroup::default();
            caller.iter_mut().zip(Sha256::digest(credentials)).for_each(|(byte, digest)| *byte = digest);
            caller
        });
        self.0.enter(caller.unwrap_or_default(), WAIT).await
    }
}
