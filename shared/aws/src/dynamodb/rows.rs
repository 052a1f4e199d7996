//! Lists of documents and feeds of appends: rows that are written ahead of what they name.
//!
//! A row is no promise. It counts only once the document or the batch that it names is there; a batch carries the
//! instant at which it was sent, so that the row of another attempt at the same append is known for a phantom. Phantoms
//! are left by writers that died, or were refused, between the row and the transaction. They are passed over and never
//! removed: another writer may be about to write what they name. A row may report batches before its own, which are there
//! once that one is.
//!
//! Wide lists and feeds are spread over partitions, and a reader merges them.

use dormouse_ports::{
    Breadth, Document, DocumentKey, FedAppend, FeedPage, FeedRequest, FeedRow, ListRequest, Page, StoreError, limits,
};
use futures::future::try_join_all;
use jiff::Timestamp;

use super::batch::KeyRange;
use super::item::{Item, number, optional_number, optional_text, optional_time, text};
use super::journal::{DocumentItems, StreamItems, is_there, length_of, reported_from};
use super::keys::{
    self, BY_FIRST, ENTRY_COUNT, FED_AT, FIRST_POSITION, KIND, Key, LABEL, LAST_POSITION, OWN_FIRST, RECORD_ID, SK,
    STREAM,
};
use super::requests::Table;

/// Number of rows that are read at once of each partition where readers want only those with a label.
const LABELED_ROWS: usize = 100;
/// Number of rows of a partition that cost no more to read than one: less than 4 KB.
const FEW_ROWS: usize = 13;
/// Number of batches of entries that are read at once, each of which may fill an item.
const BATCHES_AT_ONCE: usize = 25;
/// Number of times that rows are read for one page, where most of them are not wanted.
const MOST_READS: usize = 10;

/// A row of a feed, and the batch with which it was written.
struct FoundRow {
    row: FeedRow,
    /// The position of the first entry of that batch.
    own_first: u64,
    /// True if the batch is found by that.
    by_first: bool,
}

impl FoundRow {
    fn batch(&self) -> Key {
        let last = (self.row.first + self.row.count).saturating_sub(1);
        Key::batch(&self.row.stream, if self.by_first { self.own_first } else { last })
    }
}

/// Rows of several partitions, in one order.
struct Rows {
    /// Each with its place.
    rows: Vec<(String, Item)>,
    /// True if more may follow.
    goes_on: bool,
}

impl DocumentItems {
    pub(super) async fn list(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        let partitions = keys::list_partitions(&request.list, &request.breadth);
        let mut items = Vec::new();
        let mut after = request.after.clone();
        for reads in 0..MOST_READS {
            // One more row than is wanted shows if another page follows.
            let wanted = request.limit.saturating_sub(items.len()).max(1);
            let each = match &request.breadth {
                Breadth::Wide { label: Some(_) } => LABELED_ROWS,
                // Who is given some of the labels is given most of the rows, mostly.
                Breadth::Among { .. } if reads > 0 => LABELED_ROWS.max(wanted.saturating_add(1)),
                Breadth::Narrow | Breadth::Wide { label: None } | Breadth::Among { .. } => wanted.saturating_add(1),
            };
            let found = self.table.read_rows(&partitions, after.as_deref(), request.newest_first, each).await?;
            let mut taken = Vec::new();
            let mut more = found.goes_on;
            for (place, row) in found.rows {
                if taken.len() == wanted {
                    more = true;
                    break;
                }
                after = Some(place);
                taken.extend(request.breadth.takes(&breadth_of(&row)).then_some(row));
            }
            items.extend(self.read_at(&taken, request.now).await?);
            if !more {
                return Ok(Page { items, next: None });
            }
            if items.len() >= request.limit {
                break;
            }
        }
        Ok(Page { items, next: after })
    }

    /// The documents that `rows` name, as far as they are there, in their order.
    async fn read_at(&self, rows: &[Item], now: Timestamp) -> Result<Vec<Document>, StoreError> {
        let key = |row: &Item| Ok(Key::document(&DocumentKey::new(text(row, KIND)?, text(row, RECORD_ID)?)));
        let keys: Vec<Key> = rows.iter().map(key).collect::<Result<_, StoreError>>()?;
        let found = self.table.get_items(&keys, None).await?;
        let mut documents = Vec::new();
        for item in keys.iter().filter_map(|key| found.get(key)).filter(|item| is_there(item, now)) {
            match self.decode(item).await {
                Ok(document) => documents.push(document),
                Err(StoreError::Corrupt(reason)) => {
                    let name = DocumentKey::new(text(item, KIND)?, text(item, RECORD_ID)?);
                    tracing::error!(
                        %name, reason,
                        "a list leaves out a document that cannot be read; this line has its key"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(documents)
    }
}

impl StreamItems {
    pub(super) async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError> {
        let partitions = keys::feed_partitions(&request.feed);
        // Of so many partitions a quarter of the rows is enough, mostly.
        let few = request.limit.min(FEW_ROWS);
        let each = if request.labels.is_some() { LABELED_ROWS } else { request.limit.div_ceil(4).max(few) };
        let found = self.table.read_rows(&partitions, request.after.as_deref(), false, each).await?;
        let mut page = FeedPage { more: found.goes_on, ..FeedPage::default() };
        let (mut taken, mut places) = (Vec::new(), Vec::new());
        for (place, item) in found.rows {
            let row = feed_row(&place, &item)?;
            if row.at > request.until {
                (page.more, page.is_fresh) = (false, true);
                break;
            }
            if taken.len() == request.limit {
                page.more = true;
                break;
            }
            let label = optional_text(&item, LABEL);
            let is_wanted = |labels: &Vec<String>| label.is_none_or(|label| labels.iter().any(|one| one == label));
            if request.labels.as_ref().is_none_or(is_wanted) {
                let own_first = optional_number(&item, OWN_FIRST)?.unwrap_or(row.first);
                taken.push(FoundRow { row, own_first, by_first: item.contains_key(BY_FIRST) });
                places.push(place.clone());
            }
            page.upto = Some(place);
        }
        let (appends, read) = self.appends_at(&taken).await?;
        page.appends = appends;
        if read < places.len() {
            page.upto = read.checked_sub(1).and_then(|last| places.get(last).cloned());
            (page.more, page.is_fresh) = (true, false);
        }
        Ok(page)
    }

    /// The appends that `rows` report, as far as they happened, in their order, until a page of bytes has been read; and the
    /// number of rows that were looked at.
    async fn appends_at(&self, rows: &[FoundRow]) -> Result<(Vec<FedAppend>, usize), StoreError> {
        let (mut appends, mut bytes) = (Vec::new(), 0);
        for (index, some) in rows.chunks(BATCHES_AT_ONCE).enumerate() {
            if bytes > limits::PAGE {
                return Ok((appends, index * BATCHES_AT_ONCE));
            }
            let found = self.table.get_items(&some.iter().map(FoundRow::batch).collect::<Vec<_>>(), None).await?;
            for (at, one) in some.iter().enumerate() {
                if bytes > limits::PAGE {
                    return Ok((appends, index * BATCHES_AT_ONCE + at));
                }
                let Some(batch) = found.get(&one.batch()) else { continue };
                let FoundRow { row, own_first, .. } = one;
                // Batches of the first versions do not know when they were sent; there were no phantoms then.
                let is_of_row = optional_time(batch, FED_AT)?.is_none_or(|at| at == row.at);
                // Another attempt may have been sent at the same instant: a batch that is found by its first position says
                // how far it goes.
                let ends_there =
                    !batch.contains_key(LAST_POSITION) || number(batch, LAST_POSITION)? + 1 == row.first + row.count;
                let begins_there =
                    number(batch, FIRST_POSITION)? == *own_first && reported_from(batch)? == Some(row.first);
                if is_of_row && ends_there && begins_there {
                    let mut entries = self.entries_between(&row.stream, row.first, *own_first).await?;
                    entries.extend(self.entries_of(&row.stream, batch).await?);
                    bytes += entries.iter().map(|one| length_of(&one.entry)).sum::<usize>();
                    appends.push(FedAppend { row: row.clone(), entries });
                }
            }
        }
        Ok((appends, rows.len()))
    }
}

impl Table {
    /// The next rows of `partitions` behind the place `after`, in one order; at least `each` of one that has so many.
    async fn read_rows(
        &self,
        partitions: &[String],
        after: Option<&str>,
        backwards: bool,
        each: usize,
    ) -> Result<Rows, StoreError> {
        let after = after.map(keys::row_order);
        let range = |pk: &String| KeyRange { pk: pk.clone(), after: after.clone(), backwards };
        let ranges: Vec<KeyRange> = partitions.iter().map(range).collect();
        let mut rows = Vec::new();
        let mut upto = None::<String>;
        for page in try_join_all(ranges.iter().map(|range| self.query_range(range, each))).await? {
            let is_full = page.len() == each;
            let page = page.into_iter().map(|row| Ok((place(&row)?, row))).collect::<Result<Vec<_>, StoreError>>()?;
            // Behind the end of a full page may come what stands before the rows of another one.
            if let Some((last, _)) = page.last().filter(|_| is_full) {
                let nearer = upto.as_ref().is_none_or(|upto| if backwards { last > upto } else { last < upto });
                upto = if nearer { Some(last.clone()) } else { upto };
            }
            rows.extend(page);
        }
        rows.retain(|(place, _)| {
            upto.as_ref().is_none_or(|upto| if backwards { place >= upto } else { place <= upto })
        });
        rows.sort_by(|(one, _), (other, _)| if backwards { other.cmp(one) } else { one.cmp(other) });
        Ok(Rows { rows, goes_on: upto.is_some() })
    }
}

/// Breadth of its place, as `row` says.
fn breadth_of(row: &Item) -> Breadth {
    Breadth::Wide { label: optional_text(row, LABEL).map(str::to_owned) }
}

fn feed_row(place: &str, item: &Item) -> Result<FeedRow, StoreError> {
    let at = FeedRow::time_of(place);
    Ok(FeedRow {
        at: at.ok_or_else(|| StoreError::Corrupt(format!("{place:?} is no place in a feed")))?,
        stream: text(item, STREAM)?.to_owned(),
        first: number(item, FIRST_POSITION)?,
        count: number(item, ENTRY_COUNT)?,
    })
}

/// The place of a row in its list or feed.
fn place(row: &Item) -> Result<String, StoreError> {
    let sk = text(row, SK)?;
    let order = keys::order_of(sk).ok_or_else(|| StoreError::Corrupt(format!("{sk:?} is no place in a list")))?;
    Ok(order.to_owned())
}
