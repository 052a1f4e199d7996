//! Documents and streams: the records that other layers keep beside sessions and invocations, in the same transactions.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{CounterWrite, Counters, Map, Page, PausedInvocation, RecordedEntries, StoreError};

/// Names a document: its kind and its id. Two kinds never share an id space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DocumentKey {
    /// Its kind: a short word of the layer that owns it.
    pub kind: String,
    /// Its id among those of its kind.
    pub id: String,
}

impl DocumentKey {
    /// The document `id` of `kind`.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }
}

/// A document as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its name.
    pub key: DocumentKey,
    /// Counts its writes, from 1.
    pub version: u64,
    /// Its content, verbatim.
    pub body: Map,
    /// Instant from which on it counts as not there.
    pub expires_at: Option<Timestamp>,
}

/// A change of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentWrite {
    /// Name of the document.
    pub key: DocumentKey,
    /// The version that it must have for the write to happen; 0 when it must not be there, or have expired.
    pub expect: u64,
    /// Its new content; `None` removes it.
    pub body: Option<Map>,
    /// The lists that it stands in from its making on. Its places stay when it changes, expires or is removed: a listing
    /// leaves out what is not there. Those in wide lists go a day behind the end that it was made with: no later write moves
    /// that further.
    pub listed: Vec<Listed>,
    /// Instant from which on it counts as not there. The store removes it some time after.
    pub expires_at: Option<Timestamp>,
}

impl DocumentWrite {
    /// Removes the document `key`, if it has the version `expect`; 0 changes nothing where there is none.
    pub fn remove(key: DocumentKey, expect: u64) -> Self {
        Self { key, expect, body: None, listed: Vec::new(), expires_at: None }
    }
}

/// A place in a list of documents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listed {
    /// Name of the list.
    pub list: String,
    /// Key that the list is ordered by; unique in the list.
    pub order: String,
    /// Breadth of the list, always the same of one list. A wide one may give the place a label.
    pub breadth: Breadth,
}

/// Number of writers of a list, and the label by which readers narrow a wide one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Breadth {
    /// Few write to it at the same time.
    #[default]
    Narrow,
    /// Many write to it at the same time: a store spreads it over its partitions.
    Wide {
        /// Of a place: its label. Of a request: only the places with this label, and those without any.
        label: Option<String>,
    },
    /// Of a request alone, for a wide list: only the places with one of these labels, and those without any.
    Among {
        /// The labels.
        labels: BTreeSet<String>,
    },
}

impl Breadth {
    /// True if a request of this breadth is given a place of breadth `place`.
    pub fn takes(&self, place: &Self) -> bool {
        match (self, place) {
            (Self::Wide { label: Some(wanted) }, Self::Wide { label: Some(label) }) => wanted == label,
            (Self::Among { labels }, Self::Wide { label: Some(label) }) => labels.contains(label),
            (Self::Narrow | Self::Wide { .. } | Self::Among { .. }, _) => true,
        }
    }
}

impl Listed {
    /// The place `order` of the narrow list `list`.
    pub fn new(list: impl Into<String>, order: impl Into<String>) -> Self {
        Self { list: list.into(), order: order.into(), breadth: Breadth::Narrow }
    }
}

/// Entries that go to the end of an append-only stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// Name of the stream.
    pub stream: String,
    /// Keeper of the stream's end.
    pub end: StreamEnd,
    /// The position of the first of `entries`. The append fails unless it is the one behind the last; the first entry
    /// of a stream has position 1.
    pub first: u64,
    /// One or more.
    pub entries: Vec<Map>,
    /// The feed that reports the append beside the stream itself. A feed is of many streams, in the order of the instants
    /// at which their appends were sent, each attempt anew.
    pub fed: Option<Fed>,
}

impl Append {
    /// Number of entries at the end of its stream, behind this append, that no row of its feed reports yet. One without a feed
    /// is reported by none itself, and leaves those before it to the next one.
    pub fn leaves_unreported(&self) -> u64 {
        let StreamEnd::Append(end) = &self.end else { return 0 };
        let leaves = if self.fed.is_some() { end.later } else { end.unreported > 0 };
        if leaves { end.unreported + self.entries.len() as u64 } else { 0 }
    }

    /// The row of its feed that reports it, and with it those before that none does, where it was sent at `at`; `None` where none
    /// does now.
    pub fn row(&self, at: Timestamp) -> Option<(&Fed, FeedRow)> {
        let fed = self.fed.as_ref().filter(|_| self.leaves_unreported() == 0)?;
        let before = match &self.end {
            StreamEnd::Store => 0,
            StreamEnd::Append(end) => end.unreported,
        };
        let (first, count) = (self.first.saturating_sub(before), self.entries.len() as u64 + before);
        Some((fed, FeedRow { at, stream: self.stream.clone(), first, count }))
    }
}

/// The feed that reports an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Name of the feed.
    pub feed: String,
    /// The label by which readers of a part of the feed know what they want.
    pub label: Option<String>,
}

impl Fed {
    /// The feed `feed`, without a label.
    pub fn to(feed: impl Into<String>) -> Self {
        Self { feed: feed.into(), label: None }
    }
}

/// Keeper of the end of a stream. A stream that its newest append has begun to keep stays so.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StreamEnd {
    /// The store itself.
    #[default]
    Store,
    /// The newest append, which holds what the writers of the stream know at its end. A writer has read it before: where
    /// that is another one by now, the append fails.
    Append(EndOfStream),
}

/// What an append that keeps the end of its stream holds beside its entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndOfStream {
    /// What the writers of the stream know at its end. Each append has its own for ever: it should be small.
    pub known: Map,
    /// Instant at which the append before was sent, as [`StreamTip::at`] told it; this one counts as sent later.
    pub behind: Option<Timestamp>,
    /// Number of the entries right before the first of this append that no row of a feed reports yet, as
    /// [`StreamTip::unreported`] told it: the [row](Append::row) of this append reports them, too, if it has one.
    pub unreported: u64,
    /// True if a later append of the same stream reports this one: its feed gets no row now, and the
    /// [tip](StreamTip::unreported) counts its entries. An append without a feed has no row either way.
    pub later: bool,
}

/// The end of a stream, as its newest append has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamTip {
    /// The position of the last entry; 0 when there is none.
    pub position: u64,
    /// Instant at which the newest append was sent, where that is known.
    pub at: Option<Timestamp>,
    /// [`EndOfStream::known`], where the append keeps the end.
    pub known: Option<Map>,
    /// Number of entries at the end of the stream that no row of a feed reports yet, as the newest append
    /// [left](Append::leaves_unreported) them.
    pub unreported: u64,
}

/// Writes of a commit to documents and streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    /// Each key at most once.
    pub documents: Vec<DocumentWrite>,
    /// Each stream at most once.
    pub appends: Vec<Append>,
    /// Counters that are taken from. Each key at most once.
    pub counters: Vec<CounterWrite>,
    /// Work that is accepted beside, as by [`InvocationWrite::Accept`](crate::InvocationWrite::Accept): under ids of which
    /// nothing is stored, and of which none is that of the commit's own invocation.
    pub accepts: Vec<PausedInvocation>,
    /// Entries that nodes have recorded, which have no place in a stream yet. Only a layer that publishes tasks takes
    /// them; a store by itself refuses them.
    pub recorded: Option<RecordedEntries>,
    /// What the run of the commit has heard, and may hear, of what is said to it while it works. Only a layer that
    /// publishes tasks looks at it.
    pub hearing: Hearing,
}

/// Whether a run may be told, in its midst, what was said to it meanwhile, and what of it its state has taken in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hearing {
    /// True if what was said may join the state before that is written: the commit is then refused with
    /// [`CommitError::Said`](crate::CommitError::Said).
    pub is_open: bool,
    /// What the state has taken in since the commit before, in order.
    pub heard: Vec<Said>,
}

/// What was said to a run while it worked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// Names of the messages.
    pub names: Vec<String>,
    /// The place of the newest of them.
    pub upto: u64,
    /// Update of the state of the run, field by field, through the reducers.
    pub update: Map,
}

impl Journal {
    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let writes_nothing = self.documents.is_empty() && self.appends.is_empty() && self.counters.is_empty();
        writes_nothing && self.accepts.is_empty() && self.recorded.is_none()
    }

    /// A journal of `documents` and `appends`.
    pub fn new(documents: Vec<DocumentWrite>, appends: Vec<Append>) -> Self {
        Self { documents, appends, ..Self::default() }
    }

    /// Everything that this one writes, and behind it everything that `other` does.
    #[must_use]
    pub fn merged_with(self, other: Self) -> Self {
        let Self { mut documents, mut appends, mut counters, mut accepts, recorded, hearing } = self;
        documents.extend(other.documents);
        appends.extend(other.appends);
        counters.extend(other.counters);
        accepts.extend(other.accepts);
        Self { documents, appends, counters, accepts, recorded: recorded.or(other.recorded), hearing }
    }

    /// True if `conflict` is about a document or stream that this journal writes.
    pub fn is_refused_by(&self, conflict: &JournalConflict) -> bool {
        match conflict {
            JournalConflict::Document(key) => self.documents.iter().any(|write| write.key == *key),
            JournalConflict::Stream(stream) => self.appends.iter().any(|append| append.stream == *stream),
            JournalConflict::Counters(key) => self.counters.iter().any(|write| write.key == *key),
        }
    }

    /// Checks that it can be written at all: no entry is without a place, no document, stream or place of a list stands
    /// in it twice, every append has entries and a first position, and reports none from before its stream.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] with the first violation.
    pub fn check(&self) -> Result<(), StoreError> {
        let invalid = |what: String| Err(StoreError::Invalid(what));
        if let Some(RecordedEntries { invocation_id, entries }) = &self.recorded {
            let count = entries.len();
            return invalid(format!(
                "{count} entries that nodes of {invocation_id} recorded have no place in a stream: the engine runs on a \
                 store that tells nobody of tasks"
            ));
        }
        let mut keys = HashSet::new();
        let mut streams = HashSet::new();
        let mut places = HashSet::new();
        for write in &self.documents {
            if !keys.insert(&write.key) {
                return invalid(format!("one commit writes {} twice", write.key));
            }
            if let Some(place) = write.places().iter().find(|place| !places.insert(*place)) {
                return invalid(format!("one commit writes place {:?} of list {:?} twice", place.order, place.list));
            }
        }
        for append in &self.appends {
            if append.entries.is_empty() || append.first == 0 {
                return invalid(format!("an append to stream {:?} needs entries and a position from 1", append.stream));
            }
            if matches!(&append.end, StreamEnd::Append(end) if end.unreported >= append.first) {
                return invalid(format!("an append to stream {:?} reports more than is before it", append.stream));
            }
            if !streams.insert(&append.stream) {
                return invalid(format!("one commit appends to stream {:?} twice", append.stream));
            }
        }
        for write in &self.counters {
            write.check()?;
            if !keys.insert(&write.key) {
                return invalid(format!("one commit writes {} twice", write.key));
            }
        }
        Ok(())
    }
}

impl DocumentWrite {
    /// The places in lists that the write makes.
    pub fn places(&self) -> &[Listed] {
        if self.expect == 0 && self.body.is_some() { &self.listed } else { &[] }
    }
}

impl fmt::Display for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind, self.id)
    }
}

/// The precondition of a [`Journal`] that did not hold: another caller wrote first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalConflict {
    /// The document is not of the expected version.
    Document(DocumentKey),
    /// The stream has grown meanwhile.
    Stream(String),
    /// Too little is left of the counters, or their period is another one.
    Counters(DocumentKey),
}

impl fmt::Display for JournalConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(key) => write!(f, "{key} was written by somebody else"),
            Self::Stream(stream) => write!(f, "stream {stream:?} has grown meanwhile"),
            Self::Counters(key) => write!(f, "too little is left of the counters of {key}"),
        }
    }
}

/// One entry of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEntry {
    /// Its position in the stream, from 1, without gaps.
    pub position: u64,
    /// The appended entry.
    pub entry: Map,
}

/// Entries of a stream that are read at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EntryStretch {
    /// The entries, in order.
    pub entries: Vec<StreamEntry>,
    /// True if the stream may go on behind them.
    pub more: bool,
}

/// An append that a feed reports, with those right before it in its stream that were [reported later](EndOfStream::later).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRow {
    /// Instant at which the append was sent; later than the one before it in the same stream.
    pub at: Timestamp,
    /// The stream that grew.
    pub stream: String,
    /// The position of the first entry that it reports.
    pub first: u64,
    /// Number of entries that it reports.
    pub count: u64,
}

impl FeedRow {
    /// Its place in a feed: rows are ordered by it as texts are. Two attempts at one place of a stream, sent at one instant by
    /// writers whose clocks are behind, have rows of their own where they differ.
    pub fn order(&self) -> String {
        format!("{}-{}-{:016x}-{:x}", Self::since(self.at), self.stream, self.first, self.count)
    }

    /// The text that sorts before the places of all that was sent at `at` or later, and behind all others.
    pub fn since(at: Timestamp) -> String {
        format!("{:020}", at.as_nanosecond().max(0))
    }

    /// Instant at which the append of this place was sent.
    pub fn time_of(order: &str) -> Option<Timestamp> {
        Timestamp::from_nanosecond(order.split('-').next()?.parse().ok()?).ok()
    }
}

/// Request for a stretch of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRequest {
    /// Name of the feed.
    pub feed: String,
    /// Only the appends with one of these labels, and those without any; all of them when absent.
    pub labels: Option<Vec<String>>,
    /// The place behind which the stretch begins; `None` at the beginning.
    pub after: Option<String>,
    /// Instant of the last append of which it may tell.
    pub until: Timestamp,
    /// The most appends that it holds; from 1.
    pub limit: usize,
}

/// A stretch of a feed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedPage {
    /// The appends, in order.
    pub appends: Vec<FedAppend>,
    /// The place to go on behind: beyond all that was looked at, which may be more than the appends. `None` if there was
    /// nothing to look at.
    pub upto: Option<String>,
    /// True if the feed may go on there with what was sent by the instant of the request.
    pub more: bool,
    /// True if it goes on with what was sent later.
    pub is_fresh: bool,
}

/// An append that a feed reports, with the entries.
#[derive(Clone, Debug, PartialEq)]
pub struct FedAppend {
    /// Its row in the feed.
    pub row: FeedRow,
    /// All entries that the row reports. One without fields stands for one that cannot be read.
    pub entries: Vec<StreamEntry>,
}

/// Reads the documents, streams and feeds that [`Journal`]s wrote. Every read is strongly consistent.
#[async_trait]
pub trait Records: Send + Sync {
    /// The document of this name, unless it has expired by `now`.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError>;

    /// The counters of this name, if they were ever made.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError>;

    /// A page of at most `limit` documents of `list`, in order or, with `newest_first`, against it; `after` is the
    /// `order` of the last one before. `next` is the `order` to go on behind; a page with one may be short, and no
    /// document may follow. Documents that have gone or expired by `now`, or cannot be read, are left out.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError>;

    /// The entries of `stream` behind position `after`, at most `limit`, in order; fewer only at its end. An entry
    /// without fields stands for one that cannot be read.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError>;

    /// The entries of `stream` behind position `after`, at most `limit`, in order, for who goes on behind them: fewer also
    /// where more than [`PAGE`](crate::limits::PAGE) bytes of JSON have been read, but one at least before its end.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn stretch(&self, stream: &str, after: u64, limit: usize) -> Result<EntryStretch, StoreError> {
        let entries = self.entries(stream, after, limit).await?;
        Ok(EntryStretch { more: entries.len() >= limit, entries })
    }

    /// The entry of `stream` at `position`, if there is one; one without fields stands for one that cannot be read.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn entry(&self, stream: &str, position: u64) -> Result<Option<StreamEntry>, StoreError> {
        let Some(before) = position.checked_sub(1) else { return Ok(None) };
        Ok(self.entries(stream, before, 1).await?.into_iter().find(|entry| entry.position == position))
    }

    /// The end of `stream`.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError>;

    /// The row that reports the entry of `stream` at `position`, if there is such an entry, as it stands in the feed. Where none
    /// reports it yet, a row that is not in the feed and ends with the entry: its place is before that of the row that will
    /// report it.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError>;

    /// A stretch of the appends that a feed reports. One that did not happen is never among them; a stretch may be empty
    /// although the feed goes on behind it, and ends where more than [`PAGE`](crate::limits::PAGE) bytes of JSON have been
    /// read.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError>;

    /// Instant up to which, at `now`, feeds are complete: every append that was sent by then is written, or never will
    /// be. A reader that goes on behind its last row reads no further than this, or misses appends that are still under
    /// way.
    fn settled(&self, now: Timestamp) -> Timestamp;
}

/// Writes single documents and nothing else: what a process keeps that may change nothing of what it reads.
#[async_trait]
pub trait DocumentWrites: Send + Sync {
    /// Writes the body of one document that stands in no list, in place of the version that `write` expects; `name` is
    /// that of no other write. False when another writer was faster.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a removal, a place in a list, or a body that is too large for one item; others when
    /// the store did not answer, and then it may be written.
    async fn write_document(&self, write: &DocumentWrite, name: &str, now: Timestamp) -> Result<bool, StoreError>;
}

/// Request for a page of a list of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Name of the list.
    pub list: String,
    /// Its breadth, and the label that is wanted.
    pub breadth: Breadth,
    /// The `order` behind which the page starts; `None` at the beginning.
    pub after: Option<String>,
    /// The most that a page holds; from 1.
    pub limit: usize,
    /// True if the last of the list come first.
    pub newest_first: bool,
    /// The present instant.
    pub now: Timestamp,
}
