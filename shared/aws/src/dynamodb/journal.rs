//! Documents and streams as items.
//!
//! | item | key | holds |
//! |---|---|---|
//! | document | its kind and id | body, version |
//! | place in a list | the list, a shard of it where it is wide, then the order | the name of a document, a label |
//! | head of a stream that no document keeps | the stream | the position of the last entry |
//! | batch of a stream | the stream, then the position of its last entry | the entries of one append |
//! | row of a feed | a shard of the feed, then the order | which append, a label |
//!
//! An append is conditional on the head alone, or on the document that keeps the stream: a batch comes with either, in
//! one transaction. Places and rows are written ahead of it and cost half there: until the document or the batch that
//! they name is written they are phantoms, which readers pass over (`rows`). Because a batch is found by its last position, one query begins inside of the batch that a reader
//! stopped in, and another finds the last one.

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{
    Append, Breadth, Document, DocumentKey, DocumentWrite, FeedRow, Map, StoreError, StreamEnd, StreamEntry,
};
use jiff::{SignedDuration, Timestamp};

use super::DynamoDbStateStore;
use super::batch::KeyRange;
use super::encode::Encoder;
use super::item::{Item, number, number_value, optional_time, text, text_value, time_value, ttl_value};
use super::keys::{
    self, BODY, COMMIT_ID, ENTRIES, ENTRY_COUNT, EXPIRES_AT, FED_AT, FIRST_POSITION, KIND, Key, LABEL, LAST_POSITION,
    RECORD_ID, SK, STREAM, TTL, VERSION,
};
use super::write::Write;

/// Makes, changes or removes a document, or only demands that there is none.
pub(super) fn document_write(
    encoder: &mut Encoder<'_>,
    write: &DocumentWrite,
    now: Timestamp,
    commit_id: AttributeValue,
) -> Result<Write, StoreError> {
    let key = Key::document(&write.key);
    let change = match &write.body {
        Some(body) => {
            let mut item = Item::from([
                (KIND.to_owned(), text_value(&write.key.kind)),
                (RECORD_ID.to_owned(), text_value(&write.key.id)),
                (VERSION.to_owned(), number_value(write.expect + 1)),
                (BODY.to_owned(), encoder.document(&key, body)?),
                (COMMIT_ID.to_owned(), commit_id),
            ]);
            if let Some(at) = write.expires_at {
                item.extend([(EXPIRES_AT.to_owned(), time_value(at)), (TTL.to_owned(), ttl_value(at))]);
            }
            Write::put(&key, item)
        }
        None if write.expect == 0 => Write::check(&key),
        None => Write::delete(&key),
    };
    let change = change.with(":now", time_value(now));
    Ok(match write.expect {
        0 => change.when("attribute_not_exists(pk) OR expires_at <= :now"),
        version => change
            .when("version = :version AND (attribute_not_exists(expires_at) OR expires_at > :now)")
            .with(":version", number_value(version)),
    })
}

/// The places in lists that the write of a document makes.
pub(super) fn place_writes(write: &DocumentWrite) -> impl Iterator<Item = Write> {
    write.places().iter().map(|place| {
        let mut item = Item::from([
            (KIND.to_owned(), text_value(&write.key.kind)),
            (RECORD_ID.to_owned(), text_value(&write.key.id)),
        ]);
        if let Breadth::Wide { label: Some(label) } = &place.breadth {
            item.insert(LABEL.to_owned(), text_value(label));
        }
        Write::put(&Key::place(place), item)
    })
}

/// An append as far as it is the same whenever it is sent.
#[derive(Debug)]
pub(super) struct AppendWrites<'a> {
    append: &'a Append,
    batch: Write,
}

impl<'a> AppendWrites<'a> {
    pub(super) fn of(
        encoder: &mut Encoder<'_>,
        append: &'a Append,
        commit_id: AttributeValue,
    ) -> Result<Self, StoreError> {
        let key = Key::batch(&append.stream, last_of(append));
        let item = Item::from([
            (FIRST_POSITION.to_owned(), number_value(append.first)),
            (ENTRIES.to_owned(), encoder.entries(&key, &append.entries)?),
            (COMMIT_ID.to_owned(), commit_id),
        ]);
        Ok(Self { append, batch: Write::put(&key, item) })
    }

    pub(super) fn stream(&self) -> &'a str {
        &self.append.stream
    }

    /// The item that holds the entries: no commit writes it again, so that it carries the id of its own for ever.
    pub(super) fn witness(&self) -> Key {
        Key::batch(&self.append.stream, last_of(self.append))
    }

    /// True if `key` is the document that keeps the stream.
    pub(super) fn is_kept_by(&self, key: &DocumentKey) -> bool {
        matches!(&self.append.end, StreamEnd::Document(keeper) if keeper == key)
    }

    /// `write` of the document that keeps the stream, on the condition as well that the append before this one was sent
    /// before `at`.
    pub(super) fn keeping(write: Write, at: Timestamp) -> Write {
        let write = write.having(FED_AT, time_value(at)).with(":at", time_value(at));
        write.when("attribute_not_exists(fed_at) OR fed_at < :at")
    }

    /// True if no document keeps the stream.
    pub(super) fn has_head(&self) -> bool {
        self.append.end == StreamEnd::Store
    }

    /// Moves the head of a stream that no document keeps, on the conditions that it is where the append begins, and
    /// that the append before it was sent before `at`.
    pub(super) fn head(&self, at: Timestamp, commit_id: AttributeValue) -> Option<Write> {
        self.has_head().then(|| self.own_head(at, commit_id))
    }

    fn own_head(&self, at: Timestamp, commit_id: AttributeValue) -> Write {
        let change = "SET last_position = :last, commit_id = :commit, fed_at = :at";
        let update = Write::update(&Key::stream_head(&self.append.stream), change)
            .with(":last", number_value(last_of(self.append)))
            .with(":commit", commit_id)
            .with(":at", time_value(at));
        match self.append.first {
            1 => update.when("attribute_not_exists(pk)"),
            first => update
                .when("last_position = :before AND (attribute_not_exists(fed_at) OR fed_at < :at)")
                .with(":before", number_value(first - 1)),
        }
    }

    /// Earliest instant at which it may be sent, if `found` is the head that refused it for nothing but that it came
    /// too early; or the document that keeps the stream, which has to be of version `expect`.
    pub(super) fn too_early(&self, found: Option<&Item>, expect: Option<u64>) -> Option<Timestamp> {
        let head = found?;
        let stands = match expect {
            Some(version) => number(head, VERSION).is_ok_and(|found| found == version),
            None => number(head, LAST_POSITION).is_ok_and(|last| last + 1 == self.append.first),
        };
        let before = optional_time(head, FED_AT).ok().flatten().filter(|_| stands)?;
        before.checked_add(SignedDuration::from_nanos(1)).ok()
    }

    /// The entries, as one item.
    pub(super) fn batch(&self, at: Timestamp) -> Write {
        self.batch.clone().having(FED_AT, time_value(at))
    }

    /// The row of the feed that reports it, if any.
    pub(super) fn row(&self, at: Timestamp) -> Option<Write> {
        let Append { stream, first, entries, fed, .. } = self.append;
        let fed = fed.as_ref()?;
        let mut item = Item::from([
            (STREAM.to_owned(), text_value(stream)),
            (FIRST_POSITION.to_owned(), number_value(*first)),
            (ENTRY_COUNT.to_owned(), number_value(entries.len() as u64)),
        ]);
        item.extend(fed.label.as_ref().map(|label| (LABEL.to_owned(), text_value(label))));
        let row = FeedRow { at, stream: stream.clone(), first: *first, count: entries.len() as u64 };
        Some(Write::put(&Key::feed_row(&fed.feed, &row), item))
    }
}

fn last_of(append: &Append) -> u64 {
    append.first + append.entries.len() as u64 - 1
}

impl DynamoDbStateStore {
    pub(super) async fn read_document(
        &self,
        key: &DocumentKey,
        now: Timestamp,
    ) -> Result<Option<Document>, StoreError> {
        let item = self.get_item(Key::document(key)).await?;
        match item.filter(|item| is_there(item, now)) {
            Some(item) => self.document_of(&item).await.map(Some),
            None => Ok(None),
        }
    }

    /// The documents called `keys`, with one request for a hundred of them.
    pub(super) async fn read_documents(
        &self,
        keys: &[DocumentKey],
        now: Timestamp,
    ) -> Result<Vec<Option<Document>>, StoreError> {
        let keys: Vec<Key> = keys.iter().map(Key::document).collect();
        let found = self.get_items(&keys, None).await?;
        let mut documents = Vec::new();
        for key in &keys {
            documents.push(match found.get(key).filter(|item| is_there(item, now)) {
                Some(item) => Some(self.document_of(item).await?),
                None => None,
            });
        }
        Ok(documents)
    }

    pub(super) async fn document_of(&self, item: &Item) -> Result<Document, StoreError> {
        Ok(Document {
            key: DocumentKey::new(text(item, KIND)?, text(item, RECORD_ID)?),
            version: number(item, VERSION)?,
            body: self.body(item, BODY).await?,
            expires_at: optional_time(item, EXPIRES_AT)?,
        })
    }

    pub(super) async fn read_entries(
        &self,
        stream: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StreamEntry>, StoreError> {
        let after_key = Some(keys::batch_order(after));
        let range = KeyRange { pk: keys::stream_partition(stream), after: after_key, backwards: false };
        let mut entries = Vec::new();
        // Every batch has an entry behind `after`, so that as many batches are enough.
        for batch in self.query_range(&range, limit).await? {
            if entries.len() >= limit {
                break;
            }
            entries.extend(self.entries_of(stream, &batch).await?.into_iter().filter(|entry| entry.position > after));
        }
        entries.truncate(limit);
        Ok(entries)
    }

    /// The entries of `batch` of `stream`.
    pub(super) async fn entries_of(&self, stream: &str, batch: &Item) -> Result<Vec<StreamEntry>, StoreError> {
        let first = number(batch, FIRST_POSITION)?;
        let bodies = match self.body::<Vec<Map>>(batch, ENTRIES).await {
            Ok(bodies) => bodies,
            Err(StoreError::Corrupt(reason)) => {
                tracing::error!(
                    stream,
                    first,
                    reason,
                    "the journal has entries that cannot be read; readers get the rest"
                );
                unreadable(batch, first)?
            }
            Err(error) => return Err(error),
        };
        Ok((first..).zip(bodies).map(|(position, entry)| StreamEntry { position, entry }).collect())
    }

    pub(super) async fn read_last_position(&self, stream: &str) -> Result<u64, StoreError> {
        // The head sorts before all batches.
        let range = KeyRange { pk: keys::stream_partition(stream), after: None, backwards: true };
        let last = self.query_range(&range, 1).await?;
        let position = last.first().map(|item| text(item, SK)).transpose()?.and_then(keys::last_of);
        Ok(position.unwrap_or_default())
    }

    pub(super) async fn read_append(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        let Some(before) = position.checked_sub(1) else { return Ok(None) };
        let after = Some(keys::batch_order(before));
        let range = KeyRange { pk: keys::stream_partition(stream), after, backwards: false };
        let found = self.query_range(&range, 1).await?;
        let Some(batch) = found.first() else { return Ok(None) };
        let (first, last) = (number(batch, FIRST_POSITION)?, keys::last_of(text(batch, SK)?).unwrap_or_default());
        let at = match optional_time(batch, FED_AT)? {
            Some(at) => Some(at),
            // Those of the first versions stand in the feed at the time of their entries.
            None => self.body::<Vec<Map>>(batch, ENTRIES).await?.first().and_then(created_at),
        };
        Ok(at.map(|at| FeedRow { at, stream: stream.to_owned(), first, count: (last + 1).saturating_sub(first) }))
    }
}

/// Placeholders for the entries of `batch`, the first of which has position `first`: positions have no gaps, even where
/// the entries are gone.
fn unreadable(batch: &Item, first: u64) -> Result<Vec<Map>, StoreError> {
    let last =
        keys::last_of(text(batch, SK)?).ok_or_else(|| StoreError::Corrupt("a batch without a place".to_owned()))?;
    let count = usize::try_from((last + 1).saturating_sub(first)).unwrap_or_default();
    Ok(vec![Map::new(); count])
}

fn created_at(entry: &Map) -> Option<Timestamp> {
    entry.get("created_at")?.as_str()?.parse().ok()
}

/// True if the document of `item` has not expired.
pub(super) fn is_there(item: &Item, now: Timestamp) -> bool {
    optional_time(item, EXPIRES_AT).is_ok_and(|at| at.is_none_or(|at| at > now))
}
