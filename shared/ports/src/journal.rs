//! Documents and streams: what other layers keep beside sessions and invocations, in the same transactions.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Map, Page, StoreError};

/// Names a document: its kind and its id. Two kinds never share an id space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DocumentKey {
    /// What it is: a short word of the layer that owns it.
    pub kind: String,
    /// Which one.
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
    /// From when on it counts as not there.
    pub expires_at: Option<Timestamp>,
}

/// A change of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentWrite {
    /// Which one.
    pub key: DocumentKey,
    /// The version that it must have for the write to happen; 0 when it must not be there, or have expired.
    pub expect: u64,
    /// What it becomes; `None` removes it.
    pub body: Option<Map>,
    /// The lists that it stands in, all told with every write that makes or removes it. A write that changes it leaves
    /// its lists as they are.
    pub listed: Vec<Listed>,
    /// From when on it counts as not there. The store removes it some time after.
    pub expires_at: Option<Timestamp>,
}

/// A place in a list of documents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listed {
    /// Which list.
    pub list: String,
    /// What the list is ordered by; unique in the list.
    pub order: String,
}

/// Entries that go to the end of an append-only stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// Which stream.
    pub stream: String,
    /// The position of the first of `entries`. The append fails unless it is the one behind the last; the first entry of
    /// a stream has position 1.
    pub first: u64,
    /// One or more.
    pub entries: Vec<Map>,
    /// Where the append is told of beside the stream itself: a feed of several streams, in the order of `order`.
    pub fed: Vec<Listed>,
}

/// What a commit writes of documents and streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    /// Each key at most once.
    pub documents: Vec<DocumentWrite>,
    /// Each stream at most once.
    pub appends: Vec<Append>,
}

impl Journal {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.appends.is_empty()
    }
}

/// What did not hold of a [`Journal`]: somebody else wrote first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalConflict {
    /// The document is not of the expected version.
    Document(DocumentKey),
    /// The stream has grown meanwhile.
    Stream(String),
}

/// One entry of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEntry {
    /// Its position in the stream, from 1, without gaps.
    pub position: u64,
    /// What was appended.
    pub entry: Map,
}

/// An append that a feed tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRow {
    /// Its place in the feed.
    pub order: String,
    /// The stream that grew.
    pub stream: String,
    /// The position of the first entry of the append.
    pub first: u64,
    /// How many entries it has.
    pub count: u64,
}

/// Reads what [`Journal`]s wrote. Every read is strongly consistent.
#[async_trait]
pub trait Records: Send + Sync {
    /// The document of this name, unless it has expired by `now`.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError>;

    /// A page of at most `limit` documents of `list`, in order or, with `newest_first`, against it; `after` is the
    /// `order` of the last one before. `next` is the `order` to go on behind. Documents that have gone or expired by
    /// `now` are left out.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError>;

    /// The entries of `stream` behind position `after`, at most `limit`, in order; fewer only at its end.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError>;

    /// The position of the last entry of `stream`; 0 when it has none.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn last_position(&self, stream: &str) -> Result<u64, StoreError>;

    /// The appends that the feed `list` tells of, behind `after`, at most `limit`, in order.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn feed(&self, list: &str, after: Option<&str>, limit: usize) -> Result<Vec<FeedRow>, StoreError>;
}

/// Asks for a page of a list of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Which list.
    pub list: String,
    /// The `order` behind which the page starts; `None` at the beginning.
    pub after: Option<String>,
    /// The most that a page holds; from 1.
    pub limit: usize,
    /// Whether the last of the list come first.
    pub newest_first: bool,
    /// The present instant.
    pub now: Timestamp,
}
