//! Documents and streams as items.
//!
//! | item | key | holds |
//! |---|---|---|
//! | document | its kind and id | body, or a reference to it and what tells whose it is (`brief`); version |
//! | place in a list | the list, a shard of it where it is wide, then the order | the name of a document, a label |
//! | head of a stream that the store keeps | the stream | the position of the last entry |
//! | batch of such a stream | the stream, then the position of its last entry | the entries of one append |
//! | batch that keeps the end of its stream | the stream, then the position of its first entry | the same, what is known at the end, the note of a step (`steps`) |
//! | row of a feed | a shard of the feed, then the order | which append, a label |
//!
//! An append is conditional on the head, or on no batch beginning where its own does: of two writers that have read the
//! same end one comes first. Places and rows are written ahead of the transaction and cost half there: until the document
//! or the batch that they name is written they are phantoms, which readers pass over (`rows`). Positions have no gaps, so
//! that batches of both kinds stand in one order.
//!
//! A batch that keeps the end of its stream may have no row, and count with those before it what is not reported. The row of
//! the next one that has one reports all of it.

use std::sync::Arc;

use aws_sdk_dynamodb::primitives::Blob as Bytes;
use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{
    Append, Breadth, Document, DocumentKey, DocumentWrite, EntryStretch, FeedRow, Map, StoreError, StreamEnd,
    StreamEntry, StreamTip, limits,
};
use jiff::{SignedDuration, Timestamp};

use super::StoreConfig;
use super::batch::KeyRange;
use super::blobs::{BlobOrigin, Bodies, CHUNK_BYTES};
use super::brief::brief;
use super::codec;
use super::encode::Encoder;
use super::item::{
    Item, number, number_value, optional_number, optional_text, optional_time, text, text_value, time_value, ttl_value,
};
use super::keys::{
    self, BODY, BRIEF, BY_FIRST, COMMIT_ID, ENTRIES, ENTRY_COUNT, EXPIRES_AT, FED_AT, FENCED_BY, FIRST_POSITION, KIND,
    KNOWN, Key, LABEL, LAST_POSITION, NOTED_FROM, OWN_FIRST, RECORD_ID, REPORTS_FROM, SK, STEP, STREAM, TTL,
    UNREPORTED, VERSION,
};
use super::requests::Table;
use super::steps;
use super::write::{ItemWrite, WriteOutcome};

/// Makes, changes or removes a document, or only demands that there is none.
pub(super) fn document_write(
    encoder: &mut Encoder<'_>,
    write: &DocumentWrite,
    now: Timestamp,
    commit_id: AttributeValue,
) -> Result<ItemWrite, StoreError> {
    let key = Key::document(&write.key);
    let change = match &write.body {
        Some(body) => {
            let content = encoder.document(&key, body)?;
            let brief = brief(body).filter(|_| matches!(content, AttributeValue::S(_)));
            let mut item = Item::from([
                (KIND.to_owned(), text_value(&write.key.kind)),
                (RECORD_ID.to_owned(), text_value(&write.key.id)),
                (VERSION.to_owned(), number_value(write.expect + 1)),
                (BODY.to_owned(), content),
                (COMMIT_ID.to_owned(), commit_id),
            ]);
            if let Some(brief) = brief {
                item.insert(BRIEF.to_owned(), AttributeValue::B(Bytes::new(codec::encode(&brief)?)));
            }
            if let Some(at) = write.expires_at {
                item.extend([(EXPIRES_AT.to_owned(), time_value(at)), (TTL.to_owned(), ttl_value(at))]);
            }
            ItemWrite::put(&key, item)
        }
        None if write.expect == 0 => ItemWrite::check(&key),
        None => ItemWrite::delete(&key),
    };
    let change = change.with(":now", time_value(now));
    Ok(match write.expect {
        0 => change.when("attribute_not_exists(pk) OR expires_at <= :now"),
        version => change
            .when("version = :version AND (attribute_not_exists(expires_at) OR expires_at > :now)")
            .with(":version", number_value(version)),
    })
}

/// Time for which a place in a wide list, which grows without end, is kept beyond the end that its document was made with: a
/// later write may move that a little.
const PLACE_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// The places in lists that the write of a document makes.
pub(super) fn place_writes(write: &DocumentWrite) -> impl Iterator<Item = ItemWrite> {
    write.places().iter().map(|place| {
        let mut item = Item::from([
            (KIND.to_owned(), text_value(&write.key.kind)),
            (RECORD_ID.to_owned(), text_value(&write.key.id)),
        ]);
        if let (Breadth::Wide { .. }, Some(at)) = (&place.breadth, write.expires_at) {
            let forget_at = at.saturating_add(PLACE_KEPT).unwrap_or(Timestamp::MAX);
            item.insert(TTL.to_owned(), ttl_value(forget_at));
        }
        if let Breadth::Wide { label: Some(label) } = &place.breadth {
            item.insert(LABEL.to_owned(), text_value(label));
        }
        ItemWrite::put(&Key::place(place), item)
    })
}

/// An append as far as it is the same whenever it is sent.
#[derive(Debug)]
pub(super) struct AppendWrites<'a> {
    append: &'a Append,
    batch: ItemWrite,
}

impl<'a> AppendWrites<'a> {
    pub(super) fn of(
        encoder: &mut Encoder<'_>,
        append: &'a Append,
        commit_id: AttributeValue,
    ) -> Result<Self, StoreError> {
        let key = key_of(append);
        let mut item = Item::from([
            (FIRST_POSITION.to_owned(), number_value(append.first)),
            (ENTRIES.to_owned(), encoder.entries(&key, &append.entries)?),
            (COMMIT_ID.to_owned(), commit_id),
        ]);
        if let Some(at) = steps::forget_at(&append.stream, encoder.origin.now) {
            item.insert(TTL.to_owned(), ttl_value(at));
        }
        if let StreamEnd::Append(end) = &append.end {
            item.insert(LAST_POSITION.to_owned(), number_value(last_of(append)));
            item.insert(KNOWN.to_owned(), encoder.document(&key, &end.known)?);
            let unreported = append.leaves_unreported();
            if unreported > 0 {
                item.insert(UNREPORTED.to_owned(), number_value(unreported));
            } else if end.unreported > 0 {
                item.insert(REPORTS_FROM.to_owned(), number_value(append.first.saturating_sub(end.unreported)));
            }
        }
        Ok(Self { append, batch: ItemWrite::put(&key, item) })
    }

    pub(super) fn stream(&self) -> &'a str {
        &self.append.stream
    }

    /// The item that holds the entries: no commit writes it again, so that it carries the id of its own for ever.
    pub(super) fn witness(&self) -> Key {
        key_of(self.append)
    }

    /// As one behind which steps may be noted.
    pub(super) fn before_notes(self) -> Self {
        Self { batch: self.batch.having(NOTED_FROM, number_value(self.append.first)), ..self }
    }

    /// The batch with `note`, where that is all that is written: no fence may stand in its place.
    pub(super) fn noted(&self, note: &[u8], at: Timestamp) -> ItemWrite {
        self.batch_at(at).having(STEP, steps::step_attribute(note)).when("attribute_not_exists(pk)")
    }

    /// Earliest instant at which it may be sent, as far as that is known.
    pub(super) fn earliest(&self) -> Option<Timestamp> {
        match &self.append.end {
            StreamEnd::Store => None,
            StreamEnd::Append(end) => later_than(end.behind?),
        }
    }

    /// The write that is refused where the append does not begin at the end of its stream. Where the store keeps it,
    /// also where the append before was sent at `at` or later.
    pub(super) fn guard(&self, at: Timestamp, commit_id: AttributeValue) -> ItemWrite {
        match self.append.end {
            StreamEnd::Store => self.head(at, commit_id),
            StreamEnd::Append(_) => steps::at_next_position(self.batch_at(at)),
        }
    }

    fn head(&self, at: Timestamp, commit_id: AttributeValue) -> ItemWrite {
        let change = "SET last_position = :last, commit_id = :commit, fed_at = :at";
        let update = ItemWrite::update(&Key::stream_head(&self.append.stream), change)
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
    /// too early.
    pub(super) fn too_early(&self, found: Option<&Item>) -> Option<Timestamp> {
        let head = found.filter(|_| self.append.end == StreamEnd::Store)?;
        let stands = number(head, LAST_POSITION).is_ok_and(|last| last + 1 == self.append.first);
        later_than(optional_time(head, FED_AT).ok().flatten().filter(|_| stands)?)
    }

    /// The entries, as one item, where the guard is another one.
    pub(super) fn batch(&self, at: Timestamp) -> Option<ItemWrite> {
        (self.append.end == StreamEnd::Store).then(|| self.batch_at(at))
    }

    fn batch_at(&self, at: Timestamp) -> ItemWrite {
        self.batch.clone().having(FED_AT, time_value(at))
    }

    /// The row of the feed that reports it, and those before it that none did, if there is one now.
    pub(super) fn row(&self, at: Timestamp) -> Option<ItemWrite> {
        let (fed, row) = self.append.row(at)?;
        let mut item = Item::from([
            (STREAM.to_owned(), text_value(&row.stream)),
            (FIRST_POSITION.to_owned(), number_value(row.first)),
            (ENTRY_COUNT.to_owned(), number_value(row.count)),
        ]);
        if self.append.end != StreamEnd::Store {
            item.insert(BY_FIRST.to_owned(), AttributeValue::Bool(true));
        }
        if row.first != self.append.first {
            item.insert(OWN_FIRST.to_owned(), number_value(self.append.first));
        }
        item.extend(fed.label.as_ref().map(|label| (LABEL.to_owned(), text_value(label))));
        Some(ItemWrite::put(&Key::feed_row(&fed.feed, &row), item))
    }
}

fn later_than(at: Timestamp) -> Option<Timestamp> {
    at.checked_add(SignedDuration::from_nanos(1)).ok()
}

fn key_of(append: &Append) -> Key {
    let position = match append.end {
        StreamEnd::Store => last_of(append),
        StreamEnd::Append(_) => append.first,
    };
    Key::batch(&append.stream, position)
}

/// The position of the last entry of `append`.
pub(super) fn last_of(append: &Append) -> u64 {
    append.first + append.entries.len() as u64 - 1
}

/// Documents, their lists, and counters.
#[derive(Clone, Debug)]
pub(super) struct DocumentItems {
    pub(super) table: Arc<Table>,
    pub(super) bodies: Arc<Bodies>,
}

impl DocumentItems {
    pub(super) async fn put(&self, write: &DocumentWrite, name: &str, now: Timestamp) -> Result<bool, StoreError> {
        let invalid = |reason: &str| Err(StoreError::Invalid(format!("{}: {reason}", write.key)));
        if write.body.is_none() || !write.listed.is_empty() {
            return invalid("expected a document with a body and without places in lists");
        }
        let whole = StoreConfig { inline_limit: CHUNK_BYTES, ..self.bodies.config.clone() };
        let mut encoder = Encoder::new(&whole, BlobOrigin { owners: Vec::new(), now });
        let put = document_write(&mut encoder, write, now, text_value(name))?;
        if !encoder.blobs.is_empty() {
            return invalid("it is too large for one item");
        }
        match self.table.put_alone(&put).await? {
            WriteOutcome::Done(_) => Ok(true),
            // Our own, whose answer was lost.
            WriteOutcome::Refused(found) => Ok(found.is_some_and(|item| optional_text(&item, COMMIT_ID) == Some(name))),
        }
    }

    pub(super) async fn read(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        let item = self.table.get_item(Key::document(key)).await?;
        match item.filter(|item| is_there(item, now)) {
            Some(item) => self.decode(&item).await.map(Some),
            None => Ok(None),
        }
    }

    pub(super) async fn decode(&self, item: &Item) -> Result<Document, StoreError> {
        let body = self.bodies.body(item, BODY).await?;
        with_body(item, body)
    }

    /// The same with as much of its body as tells whose it is: of a body that is apart nothing else is read, and it need
    /// not be there any more.
    pub(super) async fn decode_briefly(&self, item: &Item) -> Result<Document, StoreError> {
        if let Some(body) = self.bodies.optional_body(item, BRIEF).await? {
            return with_body(item, body);
        }
        let document = self.decode(item).await?;
        Ok(Document { body: brief(&document.body).unwrap_or(document.body), ..document })
    }
}

fn with_body(item: &Item, body: Map) -> Result<Document, StoreError> {
    Ok(Document {
        key: DocumentKey::new(text(item, KIND)?, text(item, RECORD_ID)?),
        version: number(item, VERSION)?,
        body,
        expires_at: optional_time(item, EXPIRES_AT)?,
    })
}

/// Number of batches that are read at once where those behind may not be wanted.
const FEW_BATCHES: usize = 8;

/// How far batches of a stream are read.
#[derive(Clone, Copy, Debug)]
enum Reach {
    /// As far as the limit goes.
    Limit,
    /// As far as one request goes.
    Request,
}

/// Streams of entries, and the feeds that tell of appends to them.
#[derive(Clone, Debug)]
pub(super) struct StreamItems {
    pub(super) table: Arc<Table>,
    pub(super) bodies: Arc<Bodies>,
}

impl StreamItems {
    pub(super) async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        let mut entries = Vec::new();
        for batch in self.batches(stream, after, limit, Reach::Limit).await?.0 {
            if entries.len() >= limit {
                break;
            }
            entries.extend(self.entries_of(stream, &batch).await?.into_iter().filter(|entry| entry.position > after));
        }
        entries.truncate(limit);
        Ok(entries)
    }

    /// The entries behind `after`, as far as a page of bytes goes.
    pub(super) async fn stretch(&self, stream: &str, after: u64, limit: usize) -> Result<EntryStretch, StoreError> {
        let mut stretch = EntryStretch::default();
        let mut bytes = 0;
        let (batches, goes_on) = self.batches(stream, after, limit, Reach::Request).await?;
        for batch in batches {
            stretch.more = stretch.entries.len() >= limit || bytes > limits::PAGE;
            if stretch.more {
                break;
            }
            for entry in self.entries_of(stream, &batch).await?.into_iter().filter(|entry| entry.position > after) {
                bytes += length_of(&entry.entry);
                stretch.entries.push(entry);
            }
        }
        stretch.more = stretch.more || goes_on || stretch.entries.len() >= limit;
        stretch.entries.truncate(limit);
        Ok(stretch)
    }

    /// The entry at `position`: with one request, where the batch is found by its first position.
    pub(super) async fn entry(&self, stream: &str, position: u64) -> Result<Option<StreamEntry>, StoreError> {
        let Some(before) = position.checked_sub(1) else { return Ok(None) };
        let batch = match position.checked_add(1) {
            Some(behind) => self.newest_batch(stream, Some(behind)).await?,
            None => None,
        };
        let found = match batch {
            Some(batch) if holds(&batch, position)? => self.entries_of(stream, &batch).await?,
            Some(_) | None => self.entries(stream, before, 1).await?,
        };
        Ok(found.into_iter().find(|entry| entry.position == position))
    }

    /// Batches of `stream` with all entries behind `after`, as far as `limit` of them and `reach` go; and whether there may be more.
    async fn batches(
        &self,
        stream: &str,
        after: u64,
        limit: usize,
        reach: Reach,
    ) -> Result<(Vec<Item>, bool), StoreError> {
        if after > 0 {
            // Who goes on is at the end, mostly.
            let Some(newest) = self.newest_batch(stream, None).await? else { return Ok(Default::default()) };
            let (first, last) = bounds(&newest)?;
            if last <= after {
                return Ok(Default::default());
            }
            if first <= after + 1 {
                return Ok((vec![newest], false));
            }
        }
        let behind = Some(keys::batch_order(after));
        let range = KeyRange { pk: keys::stream_partition(stream), after: behind, backwards: false };
        // Every batch has an entry behind `after`, so that as many batches are enough.
        let (mut batches, goes_on) = match reach {
            Reach::Limit => (self.table.query_range(&range, limit).await?, false),
            Reach::Request => self.table.query_once(&range, limit).await?,
        };
        let begins = batches.first().map(bounds).transpose()?.map(|(first, _)| first);
        if after > 0
            && begins != Some(after + 1)
            && let Some(before) = self.newest_batch(stream, Some(after + 1)).await?
            && bounds(&before)?.1 > after
        {
            // It begins before `after` and goes on behind it.
            batches.insert(0, before);
        }
        Ok((batches, goes_on))
    }

    /// The last batch of `stream`, or the last one that is found before the position `before`.
    async fn newest_batch(&self, stream: &str, before: Option<u64>) -> Result<Option<Item>, StoreError> {
        let after = before.map(keys::batch_order);
        let range = KeyRange { pk: keys::stream_partition(stream), after, backwards: true };
        let newest = self.table.query_range(&range, 1).await?.pop();
        // The head sorts before all batches.
        Ok(newest.filter(|item| item.contains_key(FIRST_POSITION)))
    }

    pub(super) async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        let Some(newest) = self.newest_batch(stream, None).await? else { return Ok(StreamTip::default()) };
        let position = bounds(&newest)?.1;
        let at = optional_time(&newest, FED_AT)?;
        let unreported = unreported(&newest)?;
        Ok(StreamTip { position, at, known: self.bodies.optional_body(&newest, KNOWN).await?, unreported })
    }

    /// The entries of `batch` of `stream`.
    pub(super) async fn entries_of(&self, stream: &str, batch: &Item) -> Result<Vec<StreamEntry>, StoreError> {
        if batch.contains_key(FENCED_BY) {
            return Ok(Vec::new());
        }
        let first = number(batch, FIRST_POSITION)?;
        let bodies = match self.bodies.body::<Vec<Map>>(batch, ENTRIES).await {
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

    pub(super) async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        if position == 0 {
            return Ok(None);
        }
        let holds = |batch: &Item| holds(batch, position);
        let mut found = match position.checked_add(1) {
            Some(behind) => self.newest_batch(stream, Some(behind)).await?,
            None => None,
        };
        if !found.as_ref().map(holds).transpose()?.unwrap_or_default() {
            let after = Some(keys::batch_order(position - 1));
            let range = KeyRange { pk: keys::stream_partition(stream), after, backwards: false };
            found = self.table.query_range(&range, 1).await?.pop();
        }
        let Some(batch) = found else { return Ok(None) };
        if !holds(&batch)? {
            return Ok(None);
        }
        let (own, last) = bounds(&batch)?;
        let (first, last) = match reported_from(&batch)? {
            Some(first) => (first, last),
            None => match self.reporter_behind(stream, own).await? {
                Some(row) => return Ok(Some(row)),
                None => (own, position),
            },
        };
        let at = match optional_time(&batch, FED_AT)? {
            Some(at) => Some(at),
            // Those of the first versions stand in the feed at the time of their entries.
            None => self.bodies.body::<Vec<Map>>(&batch, ENTRIES).await?.first().and_then(created_at),
        };
        Ok(at.map(|at| FeedRow { at, stream: stream.to_owned(), first, count: (last + 1).saturating_sub(first) }))
    }

    /// The row that reports the batch that begins at `first` and is reported later, if that has come.
    async fn reporter_behind(&self, stream: &str, first: u64) -> Result<Option<FeedRow>, StoreError> {
        let pk = keys::stream_partition(stream);
        let mut range = KeyRange { pk, after: Some(keys::batch_order(first)), backwards: false };
        loop {
            let batches = self.table.query_range(&range, FEW_BATCHES).await?;
            for batch in &batches {
                if let Some(first) = reported_from(batch)? {
                    let (at, count) = (optional_time(batch, FED_AT)?, (bounds(batch)?.1 + 1).saturating_sub(first));
                    return Ok(at.map(|at| FeedRow { at, stream: stream.to_owned(), first, count }));
                }
            }
            if batches.len() < FEW_BATCHES {
                return Ok(None);
            }
            range.after = batches.last().map(|batch| text(batch, SK)).transpose()?.map(str::to_owned);
        }
    }

    /// The entries of batches that keep the end of `stream`, from the position `first`, at which one of them begins, to the
    /// one before `end`, at which another one does.
    pub(super) async fn entries_between(
        &self,
        stream: &str,
        first: u64,
        end: u64,
    ) -> Result<Vec<StreamEntry>, StoreError> {
        let mut entries = Vec::new();
        let mut next = first;
        while next < end {
            let after = Some(keys::batch_order(next.saturating_sub(1)));
            let range = KeyRange { pk: keys::stream_partition(stream), after, backwards: false };
            let most = usize::try_from(end - next).unwrap_or(FEW_BATCHES).min(FEW_BATCHES);
            let batches = self.table.query_range(&range, most).await?;
            let before = next;
            for batch in &batches {
                let (begins, last) = bounds(batch)?;
                if begins >= end {
                    return Ok(entries);
                }
                entries.extend(self.entries_of(stream, batch).await?);
                next = next.max(last + 1);
            }
            if next == before {
                // What is left of a stream that is being erased.
                break;
            }
        }
        Ok(entries)
    }
}

/// Number of entries up to the end of `batch` that no row of a feed reports, where a later one reports it.
fn unreported(batch: &Item) -> Result<u64, StoreError> {
    Ok(optional_number(batch, UNREPORTED)?.unwrap_or_default())
}

/// The position of the first entry that the row of `batch` reports; `None` where that of a later one does.
pub(super) fn reported_from(batch: &Item) -> Result<Option<u64>, StoreError> {
    if unreported(batch)? > 0 {
        return Ok(None);
    }
    match optional_number(batch, REPORTS_FROM)? {
        Some(first) => Ok(Some(first)),
        None => number(batch, FIRST_POSITION).map(Some),
    }
}

/// The positions of the first and the last entry of `batch`.
fn bounds(batch: &Item) -> Result<(u64, u64), StoreError> {
    let first = number(batch, FIRST_POSITION)?;
    let last = match optional_number(batch, LAST_POSITION)? {
        Some(last) => Some(last),
        None => keys::position_of(text(batch, SK)?),
    };
    Ok((first, last.ok_or_else(|| StoreError::Corrupt("a batch without a place".to_owned()))?))
}

/// True if the entry at `position` is in `batch`.
fn holds(batch: &Item, position: u64) -> Result<bool, StoreError> {
    let (first, last) = bounds(batch)?;
    Ok((first..=last).contains(&position))
}

/// Placeholders for the entries of `batch`, the first of which has position `first`: positions have no gaps, even where
/// the entries are gone.
fn unreadable(batch: &Item, first: u64) -> Result<Vec<Map>, StoreError> {
    let (_, last) = bounds(batch)?;
    let count = usize::try_from((last + 1).saturating_sub(first)).unwrap_or_default();
    Ok(vec![Map::new(); count])
}

/// Number of bytes of `entry` as JSON.
pub(super) fn length_of(entry: &Map) -> usize {
    dormouse_json::length(entry).unwrap_or_default()
}

fn created_at(entry: &Map) -> Option<Timestamp> {
    entry.get("created_at")?.as_str()?.parse().ok()
}

/// True if the document of `item` has not expired.
pub(super) fn is_there(item: &Item, now: Timestamp) -> bool {
    optional_time(item, EXPIRES_AT).is_ok_and(|at| at.is_none_or(|at| at > now))
}
