//! One-shot entries in real time, out of the index of what sleeps.
//!
//! A pause and its row in the index are one write: there is nothing else to keep, and nothing that could be lost
//! between the two. What falls due soon is in memory, from the index or as a hint when a pause begins in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_ports::{BEFORE_FIRST_PAUSE, Clock, Due, InvocationId, PendingRow, Sleepers, StoreError};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Notify;

use crate::dispatcher::{DeliveryResult, Dispatcher, Job};
use crate::lane::Lane;
use crate::under_way::{Begun, UnderWay};

/// The longest sleep: a machine that was suspended, or a clock that was set, is noticed after that time.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// The longest span of time ahead with wake-ups in memory.
const AHEAD: Duration = Duration::from_secs(600);
/// How often the index is read before a wake-up falls due that it has: more than once, for reads that fail.
const READS: u32 = 6;
/// Interval at which the index is read: well before what is in memory is used up.
const READ_EVERY: Duration = Duration::from_secs(240);
/// Time after which it is read again where it could not be.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// Wakes paused invocations when they fall due. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LocalScheduler(Arc<SchedulerInner>);

struct SchedulerInner {
    agenda: Mutex<Agenda>,
    changed: Notify,
    clock: Arc<dyn Clock>,
    read_every: Duration,
    /// Span of time ahead with wake-ups in memory. What is often read is read for a short time ahead, since each read costs as
    /// much as it finds.
    ahead: Duration,
    /// Those that fell due and are being carried. The index has them until their invocations have moved on: one that fails for an
    /// hour would have a crowd of others beside it, each with attempts of its own.
    under_way: UnderWay<Wakeup>,
}

/// Wake-ups that come soon, in the order of time.
#[derive(Debug, Default)]
struct Agenda {
    order: BTreeSet<(Timestamp, PauseKey)>,
    /// Instant at which each of them falls due.
    entries: BTreeMap<PauseKey, Timestamp>,
}

/// An invocation, and which of its pauses. It has one deadline at a time.
type PauseKey = (InvocationId, u64);

/// A pause, and when it fell due.
type Wakeup = (PauseKey, Timestamp);

impl fmt::Debug for LocalScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalScheduler").finish_non_exhaustive()
    }
}

impl LocalScheduler {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self::reading_every(READ_EVERY, clock)
    }

    /// One that also sees, within `read_every`, what other processes write.
    pub(crate) fn reading_every(read_every: Duration, clock: Arc<dyn Clock>) -> Self {
        let ahead = (read_every * READS).min(AHEAD);
        Self(Arc::new(SchedulerInner {
            agenda: Mutex::default(),
            changed: Notify::new(),
            clock,
            read_every,
            ahead,
            under_way: UnderWay::default(),
        }))
    }

    /// Takes the hint that pause `generation` of `invocation_id` is to be woken when it falls due.
    pub(crate) fn schedule(&self, invocation_id: &InvocationId, generation: u64, due: &Due) {
        if self.is_soon(due.at) {
            self.agenda().insert((invocation_id.clone(), generation), due.at);
            self.0.changed.notify_one();
        }
    }

    /// Forgets that deadline; it may have fired.
    pub(crate) fn cancel(&self, invocation_id: &InvocationId, generation: u64, due: &Due) {
        self.agenda().remove(&(invocation_id.clone(), generation), due.at);
    }

    /// Fires entries until it is time to end. What has not been taken then is in the index still.
    pub(crate) async fn run(self, store: Arc<dyn Sleepers>, dispatcher: Arc<Dispatcher>) {
        let mut read_at = self.0.clock.monotonic();
        loop {
            if self.0.clock.monotonic() >= read_at {
                let again = match self.read(&*store).await {
                    Ok(()) => self.0.read_every,
                    Err(error) => {
                        tracing::warn!(%error, "the scheduler could not read what falls due; deadlines may be late");
                        READ_AGAIN
                    }
                };
                read_at = self.0.clock.monotonic() + again;
            }
            for wakeup in self.take_due() {
                let dispatcher = dispatcher.clone();
                tokio::spawn(async move { fire(&wakeup, &dispatcher).await });
            }
            let left = read_at.saturating_sub(self.0.clock.monotonic());
            let pause = self.until_next().min(left);
            tokio::select! {
                () = self.0.clock.sleep(pause) => {}
                () = self.0.changed.notified() => {}
                () = dispatcher.running().stopping() => return,
            }
        }
    }

    /// Takes from the index what falls due soon.
    async fn read(&self, store: &dyn Sleepers) -> Result<(), StoreError> {
        let until = self.0.clock.now() + self.0.ahead;
        let mut cursor = None;
        loop {
            let page = store.list_pending(Some(until), cursor.as_deref()).await?;
            for PendingRow { invocation_id, generation, due_at, .. } in page.items {
                // What has not begun falls due at once, and is the sweep's.
                if let Some(at) = due_at.filter(|_| generation != BEFORE_FIRST_PAUSE) {
                    self.agenda().insert((invocation_id, generation), at);
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// What is due now, without what is being carried.
    fn take_due(&self) -> Vec<Begun<Wakeup>> {
        let due = self.agenda().take_due(self.0.clock.now());
        due.into_iter().filter_map(|wakeup| self.0.under_way.begin(wakeup)).collect()
    }

    fn is_soon(&self, at: Timestamp) -> bool {
        at <= self.0.clock.now() + self.0.ahead
    }

    fn until_next(&self) -> Duration {
        let Some(next) = self.agenda().order.first().map(|(at, _)| *at) else { return LONGEST_SLEEP };
        let left = Duration::try_from(next.duration_since(self.0.clock.now())).unwrap_or_default();
        left.min(LONGEST_SLEEP)
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.0.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fires a wake-up. After each outcome the row stays until the invocation has moved on, and the sweep comes by.
async fn fire(due: &Begun<Wakeup>, dispatcher: &Dispatcher) {
    let ((invocation_id, generation), at) = &due.key;
    let wakeup = json!({ "invocation_id": invocation_id, "generation": generation, "due_at": at });
    match dispatcher.carry(&Lane::House, &Job::Wakeup(json!({ "dormouse_wakeup": wakeup }))).await {
        DeliveryResult::Delivered | DeliveryResult::Interrupted => {}
        DeliveryResult::Refused => {
            tracing::error!(
                %invocation_id,
                "the scheduler gave a wake-up up after its attempts; the next sweep takes it"
            );
        }
    }
}

impl Agenda {
    fn insert(&mut self, pause: PauseKey, at: Timestamp) {
        if let Some(before) = self.entries.insert(pause.clone(), at) {
            self.order.remove(&(before, pause.clone()));
        }
        self.order.insert((at, pause));
    }

    fn remove(&mut self, pause: &PauseKey, at: Timestamp) {
        if self.entries.get(pause) == Some(&at) {
            self.entries.remove(pause);
            self.order.remove(&(at, pause.clone()));
        }
    }

    fn take_due(&mut self, now: Timestamp) -> Vec<Wakeup> {
        let mut due = Vec::new();
        while let Some((at, pause)) = self.order.first().cloned().filter(|(at, _)| *at <= now) {
            self.remove(&pause, at);
            due.push((pause, at));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::DueAction;
    use dormouse_system::SystemClock;
    use dormouse_testkit::MemoryStore;
    use jiff::SignedDuration;

    use super::*;
    use crate::dispatcher::InvokeError;
    use crate::dispatcher::tests::{Flaky, dispatcher};
    use crate::shutdown::Shutdown;

    fn scheduler() -> LocalScheduler {
        LocalScheduler::new(Arc::new(SystemClock::default()))
    }

    fn due(at: Timestamp) -> Due {
        Due::first(at, DueAction::Fail)
    }

    async fn taken(functions: &Flaky) -> Vec<serde_json::Value> {
        let first = async {
            while functions.taken.lock().expect("a lock").is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), first).await.expect("the first is taken");
        tokio::time::sleep(Duration::from_millis(50)).await;
        functions.taken.lock().expect("a lock").clone()
    }

    #[tokio::test]
    async fn an_entry_made_while_it_runs_fires_until_it_is_taken_and_a_cancelled_one_does_not() {
        let scheduler = scheduler();
        let functions = Arc::new(Flaky::default());
        let shutdown = Shutdown::new();
        functions.failures.lock().expect("a lock").push(InvokeError::Transient("busy".to_owned()));
        let soon = Timestamp::now() + SignedDuration::from_millis(300);
        for name in ["cancelled", "kept"] {
            scheduler.schedule(&name.into(), 1, &due(soon));
        }
        scheduler.schedule(&"kept".into(), 1, &due(soon));
        scheduler.schedule(&"tomorrow".into(), 1, &due(soon + SignedDuration::from_hours(24)));
        scheduler.cancel(&"cancelled".into(), 1, &due(soon));
        scheduler.cancel(&"unknown".into(), 1, &due(soon));
        assert_eq!(scheduler.agenda().entries.len(), 1, "what is far away is in the index only");
        let store: Arc<dyn Sleepers> = Arc::new(MemoryStore::default());
        tokio::spawn(scheduler.run(store, dispatcher(&functions, &shutdown)));
        let wakeup = json!({"dormouse_wakeup": {"invocation_id": "kept", "generation": 1, "due_at": soon}});
        assert_eq!(taken(&functions).await, [wakeup]);
    }

    #[test]
    fn what_is_read_often_is_read_for_a_short_time_ahead() {
        let often = LocalScheduler::reading_every(Duration::from_secs(5), Arc::new(SystemClock::default()));
        let now = Timestamp::now();
        let is_soon = |scheduler: &LocalScheduler, seconds| scheduler.is_soon(now + SignedDuration::from_secs(seconds));
        assert_eq!([6, 29, 60, 599].map(|seconds| is_soon(&often, seconds)), [true, true, false, false]);
        assert_eq!([6, 29, 60, 599].map(|seconds| is_soon(&scheduler(), seconds)), [true; 4]);
    }

    #[test]
    fn what_is_being_carried_is_carried_once_however_often_the_index_is_read() {
        let scheduler = scheduler();
        let (pause, at) = ((InvocationId::from("a"), 1), Timestamp::UNIX_EPOCH);
        scheduler.agenda().insert(pause.clone(), at);
        let carried = scheduler.take_due();
        assert_eq!(carried.len(), 1);
        scheduler.agenda().insert(pause.clone(), at);
        assert!(scheduler.take_due().is_empty(), "the index has it still");
        scheduler.agenda().insert(pause.clone(), at + SignedDuration::from_secs(9));
        assert_eq!(scheduler.take_due().len(), 1, "its next deadline is another one");
        drop(carried);
        scheduler.agenda().insert(pause, at);
        assert_eq!(scheduler.take_due().len(), 1, "it was carried in vain, and is looked at again");
        assert!(scheduler.0.under_way.is_empty());
    }

    #[test]
    fn a_pause_has_one_deadline_at_a_time() {
        let mut agenda = Agenda::default();
        let pause = (InvocationId::from("a"), 1);
        let early = Timestamp::UNIX_EPOCH;
        let late = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(9);
        agenda.insert(pause.clone(), early);
        agenda.insert(pause.clone(), late);
        agenda.remove(&pause, early);
        assert_eq!(agenda.take_due(early), []);
        assert_eq!(agenda.take_due(late), [(pause, late)]);
        assert!(agenda.entries.is_empty() && agenda.order.is_empty());
    }
}
