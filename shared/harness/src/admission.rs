//! Admission of work: a limit on the work at a time, a line for the rest, and a refusal beyond it.
//!
//! A process that takes in more than it can do does less than it could: all work is begun and none is finished. Here
//! the line has a length. A caller that would stand behind its end is refused before anything is done or written, and
//! receives the time when there will be room: each a little later than the one before, so that they do not come back
//! together.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_ports::Clock;
use futures::channel::oneshot;
use futures::future::{Either, select};

/// The least and the most that a caller is asked to wait.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Number of keys that are kept at least before those with nothing but a promise that is over are looked for.
const REMEMBERED: usize = 1024;
/// Assumed duration of a piece of work before the first one is over.
const FIRST_GUESS: Duration = Duration::from_millis(50);

/// Limits on the work at a time, and on the line that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Most pieces of work that run at a time.
    pub running: usize,
    /// Most pieces of work of one key that run at a time.
    pub running_per_key: usize,
    /// Most that wait.
    pub waiting: usize,
    /// Most of one key that wait.
    pub waiting_per_key: usize,
}

/// Admits work by keys: each key has a line of its own, first come, first served, and the lines take turns. Cheap to
/// clone.
pub struct Admission<K: Ord + Clone>(Arc<AdmissionParts<K>>);

struct AdmissionParts<K: Ord + Clone> {
    limits: AdmissionLimits,
    clock: Arc<dyn Clock>,
    lines: Mutex<AdmissionLines<K>>,
}

struct AdmissionLines<K: Ord + Clone> {
    running: usize,
    waiting: usize,
    tickets: u64,
    /// Number of keys at which those that hold nothing any more are forgotten.
    remembered: usize,
    /// Duration of work, a moving average.
    work: Duration,
    of: BTreeMap<K, Line>,
    /// The keys for which a caller waits, in the order in which they are served next.
    turns: VecDeque<K>,
}

#[derive(Default)]
struct Line {
    running: usize,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
    /// Instant until which the refused callers fill the time, on the monotonic clock.
    promised: Duration,
}

/// The line is full, or did not move in time. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overloaded {
    /// Time after which there should be room.
    pub retry_after: Duration,
    /// True if work of its own key alone is in the way: others are let in.
    pub by_its_own: bool,
}

/// Terms on which a caller waits for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionWait {
    /// The longest wait.
    pub longest: Duration,
    /// True if it is refused when the line is full. Work that is accepted already waits in a line of any length.
    pub refusable: bool,
}

/// The right to work; given back when it is dropped.
pub struct Admitted<K: Ord + Clone> {
    admission: Admission<K>,
    key: K,
    since: Duration,
}

impl<K: Ord + Clone> Clone for Admission<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Ord + Clone> fmt::Debug for Admission<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        f.debug_struct("Admission").field("running", &lines.running).field("waiting", &lines.waiting).finish()
    }
}

impl<K: Ord + Clone> fmt::Debug for Admitted<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").finish_non_exhaustive()
    }
}

impl<K: Ord + Clone> Admission<K> {
    /// Admits within `limits`.
    pub fn new(limits: AdmissionLimits, clock: Arc<dyn Clock>) -> Self {
        let lines = AdmissionLines {
            running: 0,
            waiting: 0,
            tickets: 0,
            remembered: REMEMBERED,
            work: FIRST_GUESS,
            of: BTreeMap::new(),
            turns: VecDeque::new(),
        };
        Self(Arc::new(AdmissionParts { limits, clock, lines: Mutex::new(lines) }))
    }

    /// Waits until work of `key` may begin.
    ///
    /// # Errors
    /// [`Overloaded`] when the line is full, at once, or when the wait took too long.
    pub async fn enter(&self, key: K, wait: AdmissionWait) -> Result<Admitted<K>, Overloaded> {
        let Some(place) = self.line_up(&key, wait)? else { return Ok(self.admitted(key)) };
        let late = self.0.clock.sleep(wait.longest);
        let (ticket, called) = place;
        let mut place = PlaceInLine { admission: self, key: &key, ticket, called, taken: false };
        let called = matches!(select(&mut place.called, late).await, Either::Left((Ok(()), _)));
        place.taken = called;
        drop(place);
        if called { Ok(self.admitted(key)) } else { Err(self.refuse(&mut self.lines(), &key)) }
    }

    /// `None` when work may begin at once.
    fn line_up(&self, key: &K, wait: AdmissionWait) -> Result<Option<(u64, oneshot::Receiver<()>)>, Overloaded> {
        let limits = &self.0.limits;
        let mut lines = self.lines();
        let line = lines.of.get(key);
        let (running, waiting) = line.map_or((0, 0), |line| (line.running, line.waiting.len()));
        if waiting == 0 && running < limits.running_per_key && lines.running < limits.running {
            lines.running += 1;
            lines.of.entry(key.clone()).or_default().running += 1;
            return Ok(None);
        }
        if wait.refusable && (lines.waiting >= limits.waiting || waiting >= limits.waiting_per_key) {
            return Err(self.refuse(&mut lines, key));
        }
        let (call, called) = oneshot::channel();
        lines.tickets += 1;
        lines.waiting += 1;
        let ticket = lines.tickets;
        let line = lines.of.entry(key.clone()).or_default();
        line.waiting.push_back((ticket, call));
        if line.waiting.len() == 1 {
            lines.turns.push_back(key.clone());
        }
        Ok(Some((ticket, called)))
    }

    fn admitted(&self, key: K) -> Admitted<K> {
        Admitted { admission: self.clone(), key, since: self.0.clock.monotonic() }
    }

    /// Promises a time at which those who are before it should be done, and those who were refused before it too.
    fn refuse(&self, lines: &mut AdmissionLines<K>, key: &K) -> Overloaded {
        let limits = &self.0.limits;
        let now = self.0.clock.monotonic();
        let work = lines.work;
        let own = limits.running_per_key.min(limits.running);
        let before_all = drained(lines.running.saturating_add(lines.waiting), limits.running, work);
        let (is_full, is_long) = (lines.running >= limits.running, lines.waiting >= limits.waiting);
        let line = lines.of.entry(key.clone()).or_default();
        let is_own = line.running >= limits.running_per_key || line.waiting.len() >= limits.waiting_per_key;
        let by_its_own = is_own && !is_full && !is_long;
        let before = drained(line.running + line.waiting.len(), own, work).max(before_all);
        line.promised = line.promised.max(now + before) + drained(1, own, work);
        let wait = line.promised.saturating_sub(now);
        if wait > WAITS.1 {
            // Beyond that a promise means nothing; the next ones are spread over the second half of it again.
            line.promised = now + WAITS.1 / 2;
        }
        if lines.of.len() > lines.remembered {
            lines.of.retain(|_, line| !line.says_nothing(now));
            lines.remembered = 2 * lines.of.len() + REMEMBERED;
        }
        Overloaded { retry_after: wait.clamp(WAITS.0, WAITS.1), by_its_own }
    }

    fn lines(&self) -> MutexGuard<'_, AdmissionLines<K>> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Duration of `count` pieces of `work`, `at_once` of them at a time.
fn drained(count: usize, at_once: usize, work: Duration) -> Duration {
    let ratio = u32::try_from(count).unwrap_or(u32::MAX);
    work.saturating_mul(ratio) / u32::try_from(at_once.max(1)).unwrap_or(u32::MAX)
}

impl<K: Ord + Clone> AdmissionLines<K> {
    /// Gives back the right of one of `key` to work.
    fn release(&mut self, key: &K, limits: &AdmissionLimits, now: Duration) {
        self.running -= 1;
        if let Some(line) = self.of.get_mut(key) {
            line.running -= 1;
        }
        self.call(limits);
        if self.of.get(key).is_some_and(|line| line.says_nothing(now)) {
            self.of.remove(key);
        }
    }

    /// Calls as many of those who wait as there is room for.
    fn call(&mut self, limits: &AdmissionLimits) {
        let mut passed_over = 0;
        while self.running < limits.running
            && passed_over < self.turns.len()
            && let Some(key) = self.turns.pop_front()
        {
            let Some(line) = self.of.get_mut(&key) else { continue };
            if line.running >= limits.running_per_key {
                self.turns.push_back(key);
                passed_over += 1;
                continue;
            }
            let Some((_, call)) = line.waiting.pop_front() else { continue };
            self.waiting -= 1;
            // A caller that has gone meanwhile has left the line: the call arrives, or is found by the caller that
            // goes.
            if call.send(()).is_ok() {
                line.running += 1;
                self.running += 1;
            }
            if !line.waiting.is_empty() {
                self.turns.push_back(key);
            }
            passed_over = 0;
        }
    }
}

impl Line {
    fn says_nothing(&self, now: Duration) -> bool {
        self.running == 0 && self.waiting.is_empty() && self.promised <= now
    }
}

impl<K: Ord + Clone> Drop for Admitted<K> {
    fn drop(&mut self) {
        let AdmissionParts { limits, clock, .. } = &*self.admission.0;
        let now = clock.monotonic();
        let mut lines = self.admission.lines();
        let took = now.saturating_sub(self.since);
        lines.work = (lines.work * 15 + took) / 16;
        lines.release(&self.key, limits, now);
    }
}

/// A place in a line. A caller that goes away leaves it.
struct PlaceInLine<'a, K: Ord + Clone> {
    admission: &'a Admission<K>,
    key: &'a K,
    ticket: u64,
    called: oneshot::Receiver<()>,
    taken: bool,
}

impl<K: Ord + Clone> Drop for PlaceInLine<'_, K> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let AdmissionParts { limits, clock, .. } = &*self.admission.0;
        let now = clock.monotonic();
        let mut lines = self.admission.lines();
        if matches!(self.called.try_recv(), Ok(Some(()))) {
            // Called in the moment in which it went.
            lines.release(self.key, limits, now);
            return;
        }
        let Some(line) = lines.of.get_mut(self.key) else { return };
        line.waiting.retain(|(ticket, _)| *ticket != self.ticket);
        let left = line.waiting.is_empty();
        lines.waiting -= 1;
        if left {
            lines.turns.retain(|key| key != self.key);
        }
    }
}
