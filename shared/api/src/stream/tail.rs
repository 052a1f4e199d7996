//! The ends of sessions and of feeds, which the streams of this process share: one of them reads, and the others take what
//! that one found.
//!
//! A stream reads by itself until it has everything, and joins then. One that falls behind what is kept here reads by itself
//! again, from its own cursor. So what a stream tells, and in which order, is what it would have told alone.
//!
//! All who wait for a read drive it: one whose client takes nothing for a while holds up no other.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dormouse_ports::{Clock, EntryStretch, Map, Records, StoreError};
use dormouse_protocol::Event;
use dormouse_protocol::id::{EventId, WorkspaceId};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;

use super::{AppendNotifier, AppendSignal};
use crate::Actor;
use crate::feed::{self, FeedReader, Stretch};
use crate::transcript::readable;

/// The most events that are kept for streams whose clients read slowly, and the most bytes of JSON that these have together:
/// of a feed, which takes many requests to read, and of a session, which takes one.
const KEPT_OF_FEED: (usize, usize) = (500, 2 * 1024 * 1024);
const KEPT_OF_SESSION: (usize, usize) = (100, 512 * 1024);
/// Time for which those of a session are kept where nothing follows.
const KEPT_FOR: Duration = Duration::from_secs(2);

/// What is seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum View {
    /// The feed of a tenant, and the workspaces that the actor is restricted to.
    Feed(String, Option<BTreeSet<WorkspaceId>>),
    Session(String),
}

/// The ends that streams of this process read.
pub(super) struct Tails {
    clock: Arc<dyn Clock>,
    notifier: AppendNotifier,
    open: Mutex<HashMap<View, Weak<Tail>>>,
}

/// The end of one session or feed, as far as it was read.
struct Tail {
    /// What those listen to who hear of its appends.
    name: String,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    notifier: AppendNotifier,
    read: Mutex<TailRead>,
}

/// The place of a stream in an end that it shares.
pub(super) struct TailPlace {
    tail: Arc<Tail>,
    seen: u64,
    /// The newest read that has shown the stream all up to its place.
    known: u64,
}

/// What a stream is given.
pub(super) struct TailBatch {
    /// The next events; none where it cannot be read.
    pub(super) events: Vec<(EventId, Option<Event>)>,
    /// True if there may be more already.
    pub(super) more: bool,
    /// When the read began that shows it; monotonic.
    pub(super) began: Duration,
}

/// Reason for which a stream is given nothing.
#[derive(Debug)]
pub(super) enum TailEnd {
    /// What it needs is not here: it has to read by itself.
    Elsewhere,
    /// The read that it waited for failed.
    Store(StoreError),
}

struct TailRead {
    state: TailState,
    /// Number of reads that were begun.
    begun: u64,
    /// The last one that found something, counted like that, and when that began.
    found_by: u64,
    found_at: Duration,
    /// When the last read began that was made to its end; monotonic.
    began: Duration,
    /// Tells of appends behind that which began last.
    appended: Option<AppendSignal>,
    /// True if it went on behind the last read.
    more: bool,
    kept: VecDeque<ReadEvent>,
    bytes: usize,
    /// Place of the last event that was read, and of the last one that is not kept any more.
    end: u64,
    forgotten: u64,
}

/// A read that goes on whenever one of those who wait for it is polled.
type SharedRead = Shared<BoxFuture<'static, ()>>;

enum TailState {
    Rests(TailReader),
    Reads(SharedRead),
    /// A read has failed, and nobody knows what it missed. One of those who waited is told why.
    Broken(Option<StoreError>),
}

enum TailReader {
    Feed(FeedReader),
    Session { id: String, position: u64 },
}

/// An event that was read; none where it cannot be read.
struct ReadEvent {
    place: u64,
    id: EventId,
    event: Option<Event>,
    bytes: usize,
}

impl Tails {
    pub(super) fn new(clock: Arc<dyn Clock>, notifier: AppendNotifier) -> Self {
        Self { clock, notifier, open: Mutex::default() }
    }

    /// The present end of the feed that `actor` sees: whatever is complete by now stands before it.
    ///
    /// # Errors
    /// [`TailEnd`].
    pub(super) async fn end_of_feed(&self, records: &Arc<dyn Records>, actor: &Actor) -> Result<TailPlace, TailEnd> {
        let view = View::Feed(actor.tenant.clone(), actor.workspaces.clone());
        let now = self.clock.now();
        let reader = || TailReader::Feed(FeedReader::since(actor, records.settled(now).min(now)));
        self.of(view, feed::name(&actor.tenant), records, reader).at_its_end().await
    }

    /// The place behind the position `seen` of the session `id`, for who has read by himself what is before it.
    pub(super) fn in_session(&self, records: &Arc<dyn Records>, id: &str, seen: u64) -> TailPlace {
        let reader = || TailReader::Session { id: id.to_owned(), position: seen };
        let tail = self.of(View::Session(id.to_owned()), id.to_owned(), records, reader);
        let known = tail.read().begun;
        TailPlace { tail, seen, known }
    }

    /// The end of `view`; kept for as long as a stream has it.
    fn of(
        &self,
        view: View,
        name: String,
        records: &Arc<dyn Records>,
        reader: impl FnOnce() -> TailReader,
    ) -> Arc<Tail> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tail) = open.get(&view).and_then(Weak::upgrade).filter(|tail| !tail.is_broken()) {
            return tail;
        }
        open.retain(|_, tail| tail.strong_count() > 0);
        let (records, clock, notifier) = (records.clone(), self.clock.clone(), self.notifier.clone());
        let tail = Arc::new(Tail { name, records, clock, notifier, read: Mutex::new(TailRead::new(reader())) });
        open.insert(view, Arc::downgrade(&tail));
        tail
    }

    /// True if what was sent by `at` is complete, so that an end that is read from now on has it.
    pub(super) fn is_complete(&self, records: &dyn Records, at: Timestamp) -> bool {
        at <= records.settled(self.clock.now())
    }
}

impl Tail {
    fn read(&self) -> MutexGuard<'_, TailRead> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_broken(&self) -> bool {
        matches!(self.read().state, TailState::Broken(_))
    }

    async fn at_its_end(self: Arc<Self>) -> Result<TailPlace, TailEnd> {
        let asked = self.read().begun;
        loop {
            let under_way = {
                let mut read = self.read();
                if read.rests() && !read.more && read.begun > asked {
                    return Ok(TailPlace { tail: self.clone(), seen: read.end, known: read.begun });
                }
                self.go_on(&mut read)?
            };
            under_way.await;
        }
    }

    /// The read that is under way, or that begins now.
    fn go_on(self: &Arc<Self>, read: &mut TailRead) -> Result<SharedRead, TailEnd> {
        let under_way = match std::mem::replace(&mut read.state, TailState::Broken(None)) {
            TailState::Rests(reader) => self.begin(reader, read),
            TailState::Reads(under_way) => under_way,
            TailState::Broken(error) => return Err(error.map_or(TailEnd::Elsewhere, TailEnd::Store)),
        };
        read.state = TailState::Reads(under_way.clone());
        Ok(under_way)
    }

    fn begin(self: &Arc<Self>, mut reader: TailReader, read: &mut TailRead) -> SharedRead {
        read.begun += 1;
        if read.is_told() {
            // Before it reads, so that what is appended meanwhile is told of.
            read.appended = Some(self.notifier.listen(&self.name));
        }
        let began = self.clock.monotonic();
        let until = self.records.settled(self.clock.now());
        let more = read.more;
        let (records, tail) = (self.records.clone(), Arc::downgrade(self));
        let reading = async move {
            let found = reader.next(&*records, until, more).await;
            if let Some(tail) = tail.upgrade() {
                tail.take(reader, began, found);
            }
        };
        reading.boxed().shared()
    }

    /// Takes what a read has found, and wakes who waits for it.
    fn take(&self, reader: TailReader, began: Duration, found: Result<Stretch, StoreError>) {
        let found = found.map(|stretch| (stretch.events.into_iter().map(read_event).collect::<Vec<_>>(), stretch.more));
        let mut read = self.read();
        let (events, more) = match found {
            Ok(found) => found,
            Err(error) => {
                read.state = TailState::Broken(Some(error));
                return;
            }
        };
        let has_found = !events.is_empty();
        (read.began, read.more) = (began, more);
        if has_found {
            (read.found_by, read.found_at) = (read.begun, began);
        }
        for event in events {
            read.keep(&reader, event);
        }
        if matches!(reader, TailReader::Session { .. }) && began >= read.found_at + KEPT_FOR {
            read.forget(0, 0);
        }
        read.state = TailState::Rests(reader);
        drop(read);
        if has_found {
            self.notifier.notify(&self.name);
        }
    }
}

impl TailPlace {
    /// At most `limit` events behind the place, which moves behind them. With `newer` it has to be shown by a read that it
    /// does not know yet; else what is known will do, unless something was appended since.
    ///
    /// # Errors
    /// [`TailEnd`].
    pub(super) async fn look(&mut self, limit: usize, newer: bool) -> Result<TailBatch, TailEnd> {
        let tail = self.tail.clone();
        let asked = tail.read().begun;
        loop {
            let under_way = {
                let mut read = tail.read();
                if read.end > self.seen || read.shows_nothing(asked, self.known, newer) {
                    return self.given(&read, limit);
                }
                tail.go_on(&mut read)?
            };
            under_way.await;
        }
    }

    /// Position of the last event that the stream was given, or began behind.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    fn given(&mut self, read: &TailRead, limit: usize) -> Result<TailBatch, TailEnd> {
        if self.seen < read.forgotten {
            return Err(TailEnd::Elsewhere);
        }
        let first = read.kept.partition_point(|one| one.place <= self.seen);
        let mut given = read.kept.iter().skip(first).take(limit);
        let events: Vec<_> = given.clone().map(|one| (one.id.clone(), one.event.clone())).collect();
        // What was found in one read is known since that one, also where another one was made before it was given.
        self.known = if events.is_empty() { read.begun } else { read.found_by };
        self.seen = given.next_back().map_or(self.seen, |last| last.place);
        Ok(TailBatch { events, more: read.more || self.seen < read.end, began: read.began })
    }
}

impl TailRead {
    fn new(reader: TailReader) -> Self {
        let start = match &reader {
            TailReader::Feed(_) => 0,
            TailReader::Session { position, .. } => *position,
        };
        Self {
            state: TailState::Rests(reader),
            begun: 0,
            found_by: 0,
            found_at: Duration::ZERO,
            began: Duration::ZERO,
            appended: None,
            more: true,
            kept: VecDeque::new(),
            bytes: 0,
            end: start,
            forgotten: start,
        }
    }

    fn rests(&self) -> bool {
        matches!(self.state, TailState::Rests(_))
    }

    /// True if something was appended behind the read that began last.
    fn is_told(&mut self) -> bool {
        self.appended.as_mut().is_none_or(|appended| !matches!(appended.try_recv(), Ok(None)))
    }

    /// True if who has everything that was read need not wait for another read: for one that was begun since he `asked`, or
    /// as [`TailPlace::look`] has it.
    fn shows_nothing(&mut self, asked: u64, known: u64, newer: bool) -> bool {
        let is_good = !self.more && (!newer || self.begun > known);
        self.rests() && (self.begun > asked || (is_good && !self.is_told()))
    }

    fn keep(&mut self, reader: &TailReader, event: ReadEvent) {
        let (events, bytes) = match reader {
            TailReader::Feed(_) => KEPT_OF_FEED,
            TailReader::Session { .. } => KEPT_OF_SESSION,
        };
        let place = match (reader, event.id.place()) {
            (TailReader::Session { .. }, Some((_, position))) => position,
            (TailReader::Session { .. }, None) | (TailReader::Feed(_), _) => self.end + 1,
        };
        self.end = place;
        self.bytes += event.bytes;
        self.kept.push_back(ReadEvent { place, ..event });
        // One alone is kept however large it is.
        self.forget(events, bytes.max(self.kept.back().map_or(0, |last| last.bytes)));
    }

    /// Forgets the first ones until there are no more than `events`, with no more than `bytes`.
    fn forget(&mut self, events: usize, bytes: usize) {
        while self.kept.len() > events || self.bytes > bytes {
            let Some(first) = self.kept.pop_front() else { break };
            self.bytes -= first.bytes;
            self.forgotten = first.place;
        }
    }
}

impl TailReader {
    /// The next entries. It must not be asked again after an error.
    async fn next(&mut self, records: &dyn Records, until: Timestamp, more: bool) -> Result<Stretch, StoreError> {
        match self {
            // Behind what one read did not hold there may be much.
            Self::Feed(reader) => reader.next(records, until, if more { KEPT_OF_FEED.0 } else { 1 }).await,
            Self::Session { id, position } => {
                let EntryStretch { entries, more } = records.stretch(id, *position, KEPT_OF_SESSION.0).await?;
                *position = entries.last().map_or(*position, |last| last.position);
                let events = entries.into_iter().map(|one| (EventId::at(id, one.position), one.entry)).collect();
                Ok(Stretch { events, more, fresh: false })
            }
        }
    }
}

fn read_event((id, entry): (EventId, Map)) -> ReadEvent {
    let bytes = dormouse_json::length(&entry).unwrap_or_default();
    let event = readable(&id, entry);
    ReadEvent { place: 0, id, event, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_streams_that_are_read_slowly_has_an_end() {
        let reader = || TailReader::Session { id: "s".to_owned(), position: 0 };
        let mut read = TailRead::new(reader());
        let keep = |read: &mut TailRead, position, bytes| {
            read.keep(&reader(), ReadEvent { place: 0, id: EventId::at("s", position), event: None, bytes });
        };
        (1..=1_000).for_each(|position| keep(&mut read, position, 10));
        assert_eq!((read.kept.len(), read.bytes, read.forgotten, read.end), (100, 1_000, 900, 1_000));
        keep(&mut read, 1_001, KEPT_OF_SESSION.1 + 1);
        assert_eq!((read.kept.len(), read.forgotten), (1, 1_000), "one alone, however large it is");
        keep(&mut read, 1_002, 10);
        assert_eq!((read.kept.len(), read.bytes, read.forgotten), (1, 10, 1_001));
        read.forget(0, 0);
        assert_eq!((read.kept.len(), read.bytes, read.forgotten, read.end), (0, 0, 1_002, 1_002));
    }
}
