//! The end of a tenant's feed, which all of its streams share: one of them reads it, and the others take what that one found.
//!
//! A stream reads by itself until it has everything, and joins then. One that falls behind what is kept here reads by itself
//! again, from its own cursor. So what a stream tells, and in which order, is what it would have told alone.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError, Weak};
use std::time::Duration;

use dormouse_ports::{Clock, Records, StoreError};
use dormouse_protocol::Event;
use dormouse_protocol::id::{EventId, WorkspaceId};
use futures::lock::Mutex;
use jiff::Timestamp;

use super::AppendNotifier;
use crate::Actor;
use crate::feed::{self, FeedReader};
use crate::transcript::readable;

/// The most events that are kept for streams whose clients read slowly.
const KEPT: usize = 500;
/// The most bytes of JSON that these have together.
const KEPT_BYTES: usize = 2 * 1024 * 1024;

/// What is seen of a feed: its tenant, and the workspaces that the actor is restricted to.
type FeedView = (String, Option<BTreeSet<WorkspaceId>>);

/// The ends of feeds that streams of this process read.
pub(super) struct Tails {
    clock: Arc<dyn Clock>,
    notifier: AppendNotifier,
    open: SyncMutex<HashMap<FeedView, Weak<FeedTail>>>,
}

/// The end of one feed, as far as it was read.
pub(super) struct FeedTail {
    feed: String,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    notifier: AppendNotifier,
    /// Number of reads that were begun, some of which were given up.
    begun: AtomicU64,
    read: Mutex<TailRead>,
}

impl fmt::Debug for FeedTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedTail").field("feed", &self.feed).finish_non_exhaustive()
    }
}

struct TailRead {
    reader: FeedReader,
    /// The last read that was made to its end, counted as those that were begun.
    last: u64,
    /// When that began; monotonic.
    began: Duration,
    /// True if the feed went on behind the last read.
    more: bool,
    /// True if a read has failed: nobody knows what it missed.
    is_broken: bool,
    kept: VecDeque<ReadEvent>,
    bytes: usize,
    /// Number of events that were read and are not kept any more.
    forgotten: u64,
}

/// An event that was read; none where it cannot be read.
#[derive(Clone)]
struct ReadEvent {
    id: EventId,
    event: Option<Event>,
    bytes: usize,
}

/// How new what a stream takes has to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Freshness {
    /// It was told of an append: the read has to begin after that.
    FromNow,
    /// A read within this time will do.
    Within(Duration),
}

/// Reason for which a stream is given nothing.
#[derive(Debug)]
pub(super) enum TailEnd {
    /// What it needs is not here: it has to read by itself.
    Elsewhere,
    /// It was the one that read, and the store did not answer.
    Store(StoreError),
}

impl Tails {
    pub(super) fn new(clock: Arc<dyn Clock>, notifier: AppendNotifier) -> Self {
        Self { clock, notifier, open: SyncMutex::default() }
    }

    /// The end of the feed that `actor` sees; kept for as long as a stream has it.
    pub(super) fn of(&self, records: &Arc<dyn Records>, actor: &Actor) -> Arc<FeedTail> {
        let view = (actor.tenant.clone(), actor.workspaces.clone());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tail) = open.get(&view).and_then(Weak::upgrade).filter(|tail| !tail.is_broken()) {
            return tail;
        }
        open.retain(|_, tail| tail.strong_count() > 0);
        let now = self.clock.now();
        let reader = FeedReader::since(actor, records.settled(now).min(now));
        let read = TailRead {
            reader,
            last: 0,
            began: Duration::ZERO,
            more: true,
            is_broken: false,
            kept: VecDeque::new(),
            bytes: 0,
            forgotten: 0,
        };
        let tail = Arc::new(FeedTail {
            feed: feed::name(&actor.tenant),
            records: records.clone(),
            clock: self.clock.clone(),
            notifier: self.notifier.clone(),
            begun: AtomicU64::new(0),
            read: Mutex::new(read),
        });
        open.insert(view, Arc::downgrade(&tail));
        tail
    }

    /// True if what was sent by `at` is complete, so that an end that is read from now on has it.
    pub(super) fn is_complete(&self, records: &dyn Records, at: Timestamp) -> bool {
        at <= records.settled(self.clock.now())
    }
}

impl FeedTail {
    fn is_broken(&self) -> bool {
        // Who holds the lock is reading, or about to.
        self.read.try_lock().is_some_and(|read| read.is_broken)
    }

    /// Its present end: whatever is complete by now stands before it.
    ///
    /// # Errors
    /// [`TailEnd`].
    pub(super) async fn end(&self) -> Result<u64, TailEnd> {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut read = self.read.lock().await;
        read.check()?;
        while read.more || read.last <= asked {
            self.go_on(&mut read).await?;
        }
        Ok(read.end())
    }

    /// At most `limit` events behind the place `seen`, with the place behind them, and whether there may be more already.
    ///
    /// # Errors
    /// [`TailEnd`].
    pub(super) async fn behind(
        &self,
        seen: u64,
        limit: usize,
        fresh: Freshness,
    ) -> Result<(Vec<(EventId, Option<Event>)>, u64, bool), TailEnd> {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut read = self.read.lock().await;
        read.check()?;
        if seen >= read.end() {
            let is_new = match fresh {
                Freshness::FromNow => read.last > asked,
                Freshness::Within(time) => self.clock.monotonic() < read.began + time,
            };
            if read.more || !is_new {
                self.go_on(&mut read).await?;
            }
        }
        let passed = seen.checked_sub(read.forgotten).and_then(|passed| usize::try_from(passed).ok());
        let passed = passed.ok_or(TailEnd::Elsewhere)?;
        let taken: Vec<_> =
            read.kept.iter().skip(passed).take(limit).map(|one| (one.id.clone(), one.event.clone())).collect();
        let upto = seen + taken.len() as u64;
        let more = read.more || upto < read.end();
        Ok((taken, upto, more))
    }

    /// Reads on, and wakes who waits for what was found. A read that is given up in the midst has not been made.
    async fn go_on(&self, read: &mut TailRead) -> Result<(), TailEnd> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let began = self.clock.monotonic();
        let until = self.records.settled(self.clock.now());
        // Behind what one read did not hold there may be much.
        let wanted = if read.more { KEPT } else { 1 };
        let stretch = read.reader.next(&*self.records, until, wanted).await.map_err(|error| {
            read.is_broken = true;
            TailEnd::Store(error)
        })?;
        (read.last, read.began, read.more) = (number, began, stretch.more);
        let found = !stretch.events.is_empty();
        stretch.events.into_iter().for_each(|(id, entry)| read.keep(id, entry));
        if found {
            self.notifier.notify(&self.feed);
        }
        Ok(())
    }
}

impl TailRead {
    fn check(&self) -> Result<(), TailEnd> {
        if self.is_broken { Err(TailEnd::Elsewhere) } else { Ok(()) }
    }

    fn end(&self) -> u64 {
        self.forgotten + self.kept.len() as u64
    }

    fn keep(&mut self, id: EventId, entry: dormouse_ports::Map) {
        let bytes = dormouse_json::length(&entry).unwrap_or_default();
        let event = readable(&id, entry);
        self.bytes += bytes;
        self.kept.push_back(ReadEvent { id, event, bytes });
        while self.kept.len() > KEPT || (self.bytes > KEPT_BYTES && self.kept.len() > 1) {
            let Some(first) = self.kept.pop_front() else { break };
            self.bytes -= first.bytes;
            self.forgotten += 1;
        }
    }
}
