//! Limit on the requests that this process works on at a time. On AWS each request has a sandbox of its own, and the
//! account's quota is the gate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use dormouse_harness::{Admission, AdmissionLimits, AdmissionWait, Admitted, Overloaded};
use dormouse_http::{Findings, ProvedCaller};
use dormouse_ports::Clock;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use crate::lane::{Lane, Turns};
use crate::seat::{Seat, WaitingClient};

/// Number of requests that are worked on, and of those that wait. One lane has at most three quarters: one that asks
/// without end leaves room for the others.
const LIMITS: AdmissionLimits =
    AdmissionLimits { running: 128, running_per_key: 96, waiting: 1024, waiting_per_key: 768 };
/// The longest wait: behind it, most clients have stopped to listen.
const WAIT: AdmissionWait = AdmissionWait { longest: Duration::from_secs(5), refusable: true };
/// Number of long bodies that are held at a time, from their first bytes to the answer: as many as are worked on, so that no crowd
/// of clients fills the memory. Some may take a minute to come.
const BODIES: AdmissionLimits = LIMITS;
/// Number of requests that are worked on although their clients have left; more keep their seats.
const LEFT: AdmissionLimits = AdmissionLimits { running: 128, running_per_key: 96, waiting: 0, waiting_per_key: 0 };
/// Pieces of a stream that are made before its client takes them.
const AHEAD: usize = 1;
/// Number of credentials whose lanes are remembered.
const REMEMBERED: usize = 10_000;

/// Lets requests in, and work on them step by step. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    admission: Admission<Lane>,
    bodies: Admission<Lane>,
    left: Admission<Lane>,
    processor: Turns,
    lanes: Arc<Mutex<BTreeMap<Credentials, Lane>>>,
}

/// A stream that cannot go on, since what makes it has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream ended in a panic")]
pub(crate) struct PanickedStream;

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
        let (left, bodies) = (Admission::new(LEFT, clock.clone()), Admission::new(BODIES, clock.clone()));
        Self { admission: Admission::new(LIMITS, clock), bodies, left, processor, lanes: Arc::default() }
    }

    /// The lane of a caller with these credentials. It is the tenant's as soon as one request has shown whose they are:
    /// strangers, who may have made up a thousand of them, have one lane together.
    pub(crate) fn lane(&self, credentials: Option<Credentials>) -> Lane {
        let Some(credentials) = credentials else { return Lane::Nobody };
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.get(&credentials).cloned().unwrap_or(Lane::Strangers)
    }

    /// Remembers that these credentials are those of `caller`; their lane.
    pub(crate) fn learn(&self, credentials: Credentials, caller: ProvedCaller) -> Lane {
        let lane = caller.tenant.map_or(Lane::Deployment, |tenant| Lane::Tenant(tenant.into()));
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= REMEMBERED && !lanes.contains_key(&credentials) {
            // They are learned again with their next request.
            lanes.clear();
        }
        lanes.insert(credentials, lane.clone());
        lane
    }

    /// Waits until a request in `lane` may be worked on.
    pub(crate) async fn enter(&self, lane: Lane) -> Result<Admitted<Lane>, Overloaded> {
        self.admission.enter(lane, WAIT).await
    }

    /// Waits until a long body of a request in `lane` may be held. All callers of whom nobody knows who they are share one line:
    /// they cannot take all places.
    pub(crate) async fn hold(&self, lane: &Lane) -> Result<Admitted<Lane>, Overloaded> {
        let line = if *lane == Lane::Nobody { Lane::Strangers } else { lane.clone() };
        self.bodies.enter(line, WAIT).await
    }

    /// The seat that `admitted` is, of a request in `lane`.
    pub(crate) fn seat(&self, admitted: Admitted<Lane>, lane: Lane) -> Seat {
        Seat::new(admitted, lane, self.left.clone())
    }

    /// The client that waits for what `work` answers on `seat`; of a read with its findings.
    pub(crate) fn client<T>(seat: Seat, work: &JoinHandle<T>, read: Option<Findings>) -> WaitingClient {
        WaitingClient::new(seat, work.abort_handle(), read, WAIT)
    }

    /// The work on a request in `lane`, in turn with that in others.
    pub(crate) fn work<F: Future>(&self, lane: Lane, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.processor.share(lane, work)
    }

    /// Work in `lane` that waits for what may come, in turn with that in others.
    pub(crate) fn wait<F: Future>(&self, lane: Lane, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.processor.wait(lane, work)
    }

    /// Work that a caller in `lane` asks for in the midst of that.
    pub(crate) fn asked<F: Future>(&self, lane: &Lane, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.processor.asked(lane, work)
    }

    /// The pieces of a stream in `lane`, which are made in turn with what is done in others. They are made in a task of their
    /// own, since a client that does not read holds up its connection, and must not hold a turn. It ends with the stream.
    /// After a panic comes an error: a client that saw an end would take it for that of the stream.
    pub(crate) fn pieces<T: Send + 'static>(
        &self,
        lane: Lane,
        mut pieces: BoxStream<'static, T>,
    ) -> impl Stream<Item = Result<T, PanickedStream>> + Send + use<T> {
        let (sender, mut receiver) = mpsc::channel(AHEAD);
        let making = async move {
            while let Ok(room) = sender.reserve().await
                && let Some(piece) = pieces.next().await
            {
                room.send(piece);
            }
        };
        let mut task = JoinSet::new();
        task.spawn(self.wait(lane, making));
        stream::poll_fn(move |cx| match ready!(receiver.poll_recv(cx)) {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            // Told once: there is no task then.
            None => task.poll_join_next(cx).map(|made| {
                made.and_then(Result::err).map(|error| {
                    tracing::error!(%error, "a stream ended in a panic");
                    Err(PanickedStream)
                })
            }),
        })
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
        assert_eq!(gate.learn(one, of(Some("acme"))), Lane::Tenant("acme".into()));
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
    async fn a_stream_is_made_in_its_lane_as_it_is_taken_and_ends_with_its_client() {
        let gate = gate();
        let lane = Lane::Tenant("acme".into());
        let made = Arc::new(Mutex::new(Vec::new()));
        let (by, gone) = (made.clone(), tokio::sync::oneshot::channel::<()>());
        let (held, mut end) = gone;
        let pieces = stream::unfold((0, held), move |(number, held)| {
            by.lock().expect("no panic").push(Lane::current());
            async move { Some((number, (number + 1, held))) }
        });
        let mut pieces = Box::pin(gate.pieces(lane.clone(), pieces.boxed()));
        let taken: Vec<_> = pieces.by_ref().take(3).collect().await;
        assert_eq!(taken, [Ok(0), Ok(1), Ok(2)]);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*made.lock().expect("no panic"), vec![lane; 3 + AHEAD], "no more than is taken, and one");
        assert!(end.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty));
        drop(pieces);
        assert!(end.await.is_err(), "it is dropped");
    }

    #[tokio::test]
    async fn a_stream_that_panics_ends_with_an_error_and_one_that_ends_without() {
        let told =
            async |pieces: BoxStream<'static, i32>| -> Vec<_> { gate().pieces(Lane::Nobody, pieces).collect().await };
        let panics = stream::once(async { panic!("it breaks") });
        assert_eq!(told(stream::iter([1]).chain(panics).boxed()).await, [Ok(1), Err(PanickedStream)]);
        assert_eq!(told(stream::iter([1, 2]).boxed()).await, [Ok(1), Ok(2)]);
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

    #[tokio::test]
    async fn strangers_with_long_bodies_leave_places_to_those_who_are_known() {
        let gate = gate();
        let unknown = [Lane::Nobody, Lane::Strangers];
        let held: Vec<_> = (0..BODIES.running_per_key)
            .map(|number| gate.hold(&unknown[number % 2]).now_or_never().expect("at once"))
            .collect();
        assert!(held.iter().all(Result::is_ok));
        for lane in &unknown {
            assert!(gate.hold(lane).now_or_never().is_none(), "the next one waits: {lane:?}");
        }
        assert!(gate.hold(&Lane::Tenant("acme".into())).now_or_never().expect("at once").is_ok());
        drop(held);
        assert!(gate.hold(&Lane::Strangers).now_or_never().expect("at once").is_ok());
    }
}
