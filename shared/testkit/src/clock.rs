use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::Clock;
use futures::channel::oneshot;
use jiff::Timestamp;

use crate::lock;

/// Time that moves only when a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    face: Mutex<Face>,
}

#[derive(Debug)]
struct Face {
    start: Timestamp,
    elapsed: Duration,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
}

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { face: Mutex::new(Face { start, elapsed: Duration::ZERO, sleepers: Vec::new() }) }
    }

    /// Moves time forward and wakes every sleeper that is due, the earliest first.
    pub fn advance(&self, duration: Duration) {
        for (_, waker) in self.step(duration) {
            // A sleeper that was dropped meanwhile needs no waking.
            let _ = waker.send(());
        }
    }

    /// Number of sleepers that wait for time to move.
    pub fn sleepers(&self) -> usize {
        lock(&self.face).sleepers.len()
    }

    fn step(&self, duration: Duration) -> Vec<(Duration, oneshot::Sender<()>)> {
        let mut face = lock(&self.face);
        face.elapsed += duration;
        let now = face.elapsed;
        let (mut due, asleep): (Vec<_>, Vec<_>) = face.sleepers.drain(..).partition(|(deadline, _)| *deadline <= now);
        face.sleepers = asleep;
        due.sort_by_key(|(deadline, _)| *deadline);
        due
    }

    fn register(&self, duration: Duration) -> oneshot::Receiver<()> {
        let (waker, woken) = oneshot::channel();
        let mut face = lock(&self.face);
        let deadline = face.elapsed + duration;
        face.sleepers.push((deadline, waker));
        woken
    }
}

impl Default for ManualClock {
    /// Stands at 2027-01-15T08:00:00Z.
    fn default() -> Self {
        Self::starting_at(Timestamp::constant(1_800_000_000, 0))
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let face = lock(&self.face);
        face.start + face.elapsed
    }

    fn monotonic(&self) -> Duration {
        lock(&self.face).elapsed
    }

    async fn sleep(&self, duration: Duration) {
        if duration.is_zero() {
            return;
        }
        // The clock went away: no test can move time any more, so there is nothing to wait for.
        let _ = self.register(duration).await;
    }
}

/// The number of times that a sleep on a [`MovingClock`] lets others go first.
const YIELDS: usize = 32;

/// The time of a [`ManualClock`] for code that a test waits for, so that nobody can move it meanwhile: a sleep moves it, behind
/// what can go on at once. Of several sleeps side by side each moves it to its own end.
#[derive(Clone, Debug)]
pub struct MovingClock(Arc<ManualClock>);

impl MovingClock {
    /// The time of `clock`.
    pub fn new(clock: Arc<ManualClock>) -> Self {
        Self(clock)
    }
}

#[async_trait]
impl Clock for MovingClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        let end = self.0.monotonic() + duration;
        // A limit of time for work that does not stand still is not over.
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
        self.0.advance(end.saturating_sub(self.0.monotonic()));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::{self, Either};

    use super::*;

    #[tokio::test]
    async fn sleepers_wake_when_their_time_has_come_and_not_before() {
        let clock = Arc::new(ManualClock::default());
        let start = clock.now();
        let mut nap = clock.sleep(Duration::from_secs(10)).boxed();
        assert!(futures::poll!(&mut nap).is_pending());
        clock.advance(Duration::from_secs(9));
        assert!(futures::poll!(&mut nap).is_pending());
        clock.advance(Duration::from_secs(1));
        nap.await;
        assert_eq!(clock.now().duration_since(start).as_secs(), 10);
        assert_eq!(clock.monotonic(), Duration::from_secs(10));
        assert_eq!(clock.sleepers(), 0);
    }

    #[tokio::test]
    async fn who_sleeps_on_a_moving_clock_moves_that_of_all() {
        let clock = Arc::new(ManualClock::default());
        let mut nap = clock.sleep(Duration::from_secs(10)).boxed();
        assert!(futures::poll!(&mut nap).is_pending());
        let moving = MovingClock::new(clock.clone());
        moving.sleep(Duration::from_secs(10)).await;
        nap.await;
        assert_eq!((moving.now(), moving.monotonic()), (clock.now(), Duration::from_secs(10)));
    }

    #[tokio::test]
    async fn work_beside_a_sleep_on_a_moving_clock_goes_first_and_sleeps_side_by_side_are_no_longer_than_one() {
        let clock = Arc::new(ManualClock::default());
        let moving = MovingClock::new(clock.clone());
        let (done, work) = oneshot::channel();
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            let _ = done.send(());
        });
        let first = future::select(work, moving.sleep(Duration::from_secs(60))).await;
        assert!(matches!(first, Either::Left(_)), "the limit of time is not over");
        assert_eq!(clock.monotonic(), Duration::ZERO);
        future::join(moving.sleep(Duration::from_secs(5)), moving.sleep(Duration::from_secs(3))).await;
        assert_eq!(clock.monotonic(), Duration::from_secs(5));
    }
}
