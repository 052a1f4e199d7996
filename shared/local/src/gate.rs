//! Limit on the requests that this process works on at a time. On AWS each request has a sandbox of its own, and the
//! account's quota is the gate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse_harness::{Admission, AdmissionLimits, AdmissionWait, Admitted, Overloaded};
use dormouse_http::ProvedCaller;
use dormouse_ports::Clock;
use sha2::{Digest, Sha256};

use crate::lane::{Lane, Turns};

/// Number of requests that are worked on, and of those that wait. One lane has at most three quarters: one that asks
/// without end leaves room for the others.
const LIMITS: AdmissionLimits =
    AdmissionLimits { running: 128, running_per_key: 96, waiting: 1024, waiting_per_key: 768 };
/// The longest wait: behind it, most clients have stopped to listen.
const WAIT: AdmissionWait = AdmissionWait { longest: Duration::from_secs(5), refusable: true };
/// Number of credentials whose lanes are remembered.
const REMEMBERED: usize = 10_000;

/// Lets requests in, and work on them step by step. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    admission: Admission<Lane>,
    processor: Turns,
    lanes: Arc<Mutex<BTreeMap<Credentials, Lane>>>,
}

/// What a caller presents: a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Credentials([u8; 32]);

impl Credentials {
    pub(crate) fn new(authorization: &str) -> Self {
        Self(Sha256::digest(authorization).into())
    }
}

impl Gate {
    /// A gate to work that `processor` does.
    pub(crate) fn new(processor: Turns, clock: Arc<dyn Clock>) -> Self {
        Self { admission: Admission::new(LIMITS, clock), processor, lanes: Arc::default() }
    }

    /// The lane of a caller with these credentials. It is the tenant's as soon as one request has shown whose they are:
    /// strangers, who may have made up a thousand of them, have one lane together.
    pub(crate) fn lane(&self, credentials: Option<Credentials>) -> Lane {
        let Some(credentials) = credentials else { return Lane::Nobody };
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.get(&credentials).cloned().unwrap_or(Lane::Strangers)
    }

    /// Remembers that these credentials are those of `caller`.
    pub(crate) fn learn(&self, credentials: Credentials, caller: ProvedCaller) {
        let lane = caller.tenant.map_or(Lane::Deployment, |tenant| Lane::Tenant(tenant.into()));
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= REMEMBERED && !lanes.contains_key(&credentials) {
            // They are learned again with their next request.
            lanes.clear();
        }
        lanes.insert(credentials, lane);
    }

    /// Waits until a request in `lane` may be worked on.
    pub(crate) async fn enter(&self, lane: Lane) -> Result<Admitted<Lane>, Overloaded> {
        self.admission.enter(lane, WAIT).await
    }

    /// The work on a request in `lane`, in turn with that in others.
    pub(crate) fn work<F: Future>(&self, lane: Lane, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.processor.share(lane, work)
    }
}

#[cfg(test)]
mod tests {
    use dormouse_system::SystemClock;
    use futures::FutureExt;

    use super::*;

    fn gate() -> Gate {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Gate::new(Turns::of_processor(clock.clone()), clock)
    }

    fn of(tenant: Option<&str>) -> ProvedCaller {
        ProvedCaller { tenant: tenant.map(str::to_owned) }
    }

    #[test]
    fn a_lane_is_a_tenants_once_it_is_known_and_that_of_strangers_before() {
        let gate = gate();
        let [one, two, other, signals] = ["one", "two", "other", "signals"].map(Credentials::new);
        assert_eq!((gate.lane(None), gate.lane(Some(one))), (Lane::Nobody, Lane::Strangers));
        gate.learn(one, of(Some("acme")));
        gate.learn(two, of(Some("acme")));
        gate.learn(other, of(Some("globex")));
        gate.learn(signals, of(None));
        assert_eq!(gate.lane(Some(one)), gate.lane(Some(two)), "all keys of a tenant share one");
        assert_ne!(gate.lane(Some(one)), gate.lane(Some(other)));
        assert_eq!(gate.lane(Some(signals)), Lane::Deployment);
        assert_eq!(gate.lane(Some(Credentials::new("made up"))), Lane::Strangers);
    }

    #[test]
    fn no_more_credentials_are_remembered_than_there_is_room_for() {
        let gate = gate();
        for number in 0..=REMEMBERED {
            gate.learn(Credentials::new(&number.to_string()), of(Some("acme")));
        }
        assert_eq!(gate.lanes.lock().expect("no panic").len(), 1);
    }

    #[tokio::test]
    async fn one_tenant_leaves_room_for_another_and_is_told_that_it_asks_too_much_itself() {
        let gate = gate();
        let [noisy, quiet] = ["noisy", "quiet"].map(|name| Lane::Tenant(name.into()));
        let working: Vec<_> =
            (0..LIMITS.running_per_key).map(|_| gate.enter(noisy.clone()).now_or_never().expect("at once")).collect();
        assert!(working.iter().all(Result::is_ok));
        let mut waiting: Vec<_> = (0..LIMITS.waiting_per_key).map(|_| Box::pin(gate.enter(noisy.clone()))).collect();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        let refused = gate.enter(noisy.clone()).now_or_never().expect("at once").expect_err("its line is full");
        assert!(refused.by_its_own);
        assert!(gate.enter(quiet).now_or_never().expect("at once").is_ok());
    }
}
