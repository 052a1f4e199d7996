//! Documents, lists, streams and feeds in memory.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use dormouse_ports::{
    Append, Breadth, CounterWrite, Counters, Document, DocumentKey, DocumentWrite, EntryStretch, FedAppend, FeedPage,
    FeedRequest, FeedRow, Journal, JournalConflict, ListRequest, Listed, Map, Page, StreamEnd, StreamEntry, StreamTip,
    limits,
};
use jiff::{SignedDuration, Timestamp};

/// The most rows of a feed that are looked at for one page: a store that is asked for those with a label reads so many.
const FED_ROWS: usize = 500;

/// The records of journals.
#[derive(Debug, Default)]
pub(super) struct JournalTables {
    documents: BTreeMap<DocumentKey, Document>,
    counters: BTreeMap<DocumentKey, Counters>,
    /// By list and order.
    lists: BTreeMap<(String, String), (Breadth, DocumentKey)>,
    streams: BTreeMap<String, Vec<Map>>,
    /// By feed and order; with the label.
    feeds: BTreeMap<(String, String), (Option<String>, FeedRow)>,
    /// The appends of each stream.
    appends: BTreeMap<String, Vec<Sent>>,
    /// What the newest append of each stream knows at its end.
    known: BTreeMap<String, Map>,
    /// Instant at which the last append was sent: one after the other, as nothing is under way here.
    sent: Option<Timestamp>,
}

/// An append as it was sent.
#[derive(Debug)]
struct Sent {
    /// Its own entries.
    own: FeedRow,
    /// The position of the first entry that is reported with it.
    reports_from: u64,
    /// Number of entries that no row reports behind it.
    unreported: u64,
}

impl JournalTables {
    /// Checks that `journal` may happen.
    pub(super) fn check(&self, journal: &Journal, now: Timestamp) -> Result<(), JournalConflict> {
        for write in &journal.documents {
            if self.document(&write.key, now).map_or(0, |document| document.version) != write.expect {
                return Err(JournalConflict::Document(write.key.clone()));
            }
        }
        for append in &journal.appends {
            if self.last_position(&append.stream) + 1 != append.first {
                return Err(JournalConflict::Stream(append.stream.clone()));
            }
        }
        for write in &journal.counters {
            if self.after(write, now).is_none() {
                return Err(JournalConflict::Counters(write.key.clone()));
            }
        }
        Ok(())
    }

    /// Performs the writes that [`check`](Self::check) allowed.
    pub(super) fn apply(&mut self, journal: &Journal, now: Timestamp) {
        journal.documents.iter().for_each(|write| self.write(write));
        journal.appends.iter().for_each(|append| self.append(append, now));
        for write in &journal.counters {
            if let Some(after) = self.after(write, now) {
                self.counters.insert(write.key.clone(), after);
            }
        }
    }

    /// The counters of `write` after it, if it may happen.
    fn after(&self, write: &CounterWrite, now: Timestamp) -> Option<Counters> {
        self.counters.get(&write.key).cloned().unwrap_or_default().after(&write.change, now)
    }

    pub(super) fn counters(&self, key: &DocumentKey) -> Option<Counters> {
        self.counters.get(key).cloned()
    }

    fn write(&mut self, write: &DocumentWrite) {
        for place in write.places() {
            self.lists.insert(key_of(place), (place.breadth.clone(), write.key.clone()));
        }
        let Some(body) = &write.body else {
            self.documents.remove(&write.key);
            return;
        };
        let key = write.key.clone();
        let version = write.expect + 1;
        let document = Document { key: key.clone(), version, body: body.clone(), expires_at: write.expires_at };
        self.documents.insert(key, document);
    }

    fn append(&mut self, append: &Append, now: Timestamp) {
        self.streams.entry(append.stream.clone()).or_default().extend(append.entries.iter().cloned());
        let at = self.sent.map_or(now, |sent| now.max(sent + SignedDuration::from_nanos(1)));
        self.sent = Some(at);
        let (stream, count) = (append.stream.clone(), append.entries.len() as u64);
        let own = FeedRow { at, stream: stream.clone(), first: append.first, count };
        if let StreamEnd::Append(end) = &append.end {
            self.known.insert(stream.clone(), end.known.clone());
        }
        let mut reports_from = append.first;
        if let Some((fed, row)) = append.row(at) {
            reports_from = row.first;
            self.feeds.insert((fed.feed.clone(), row.order()), (fed.label.clone(), row));
        }
        let sent = Sent { own, reports_from, unreported: append.leaves_unreported() };
        self.appends.entry(stream).or_default().push(sent);
    }

    pub(super) fn tip(&self, stream: &str) -> StreamTip {
        let newest = self.appends.get(stream).and_then(|appends| appends.last());
        StreamTip {
            position: self.last_position(stream),
            at: newest.map(|newest| newest.own.at),
            known: self.known.get(stream).cloned(),
            unreported: newest.map_or(0, |newest| newest.unreported),
        }
    }

    pub(super) fn append_of(&self, stream: &str, position: u64) -> Option<FeedRow> {
        let holds = |sent: &Sent| (sent.own.first..sent.own.first + sent.own.count).contains(&position);
        let appends = self.appends.get(stream)?;
        let behind = appends.get(appends.iter().position(holds)?..)?;
        let own = &behind.first()?.own;
        Some(match behind.iter().find(|sent| sent.unreported == 0) {
            Some(Sent { own: FeedRow { at, stream, first, count }, reports_from, .. }) => {
                FeedRow { at: *at, stream: stream.clone(), first: *reports_from, count: first + count - reports_from }
            }
            None => FeedRow { count: position + 1 - own.first, ..own.clone() },
        })
    }

    pub(super) fn document(&self, key: &DocumentKey, now: Timestamp) -> Option<&Document> {
        self.documents.get(key).filter(|document| document.expires_at.is_none_or(|at| at > now))
    }

    pub(super) fn documents(&self, request: &ListRequest) -> Page<Document> {
        let ListRequest { list, breadth, after, limit, newest_first, now } = request;
        let first = (list.clone(), String::new());
        let place = |order: &String| (list.clone(), order.clone());
        let rows = match (after, newest_first) {
            (Some(after), false) => self.lists.range((Excluded(place(after)), Unbounded)),
            (Some(after), true) => self.lists.range((Included(first), Excluded(place(after)))),
            (None, _) => self.lists.range((Included(first), Unbounded)),
        };
        let rows = rows.take_while(|((of, _), _)| of == list);
        let mut rows: Vec<_> = rows.filter(|(_, (place, _))| breadth.takes(place)).collect();
        if *newest_first {
            rows.reverse();
        }
        let mut items = Vec::new();
        let mut next = None;
        for (index, ((_, order), (_, key))) in rows.iter().enumerate() {
            items.extend(self.document(key, *now).cloned());
            if items.len() >= *limit {
                next = (index + 1 < rows.len()).then(|| order.clone());
                break;
            }
        }
        Page { items, next }
    }

    pub(super) fn entries(&self, stream: &str, after: u64, limit: usize) -> Vec<StreamEntry> {
        let entries = self.streams.get(stream).into_iter().flatten();
        let numbered = (1..).zip(entries).map(|(position, entry)| StreamEntry { position, entry: entry.clone() });
        numbered.filter(|entry| entry.position > after).take(limit).collect()
    }

    /// As few as any store gives at once: who goes on behind them has to find the others.
    pub(super) fn stretch(&self, stream: &str, after: u64, limit: usize) -> EntryStretch {
        let mut entries = self.entries(stream, after, limit);
        let mut bytes = 0;
        let fits = |one: &&StreamEntry| {
            bytes += length_of(&one.entry);
            bytes <= limits::PAGE
        };
        let count = entries.iter().take_while(fits).count().max(1);
        let more = entries.len() >= limit || entries.len() > count;
        entries.truncate(count);
        EntryStretch { entries, more }
    }

    pub(super) fn last_position(&self, stream: &str) -> u64 {
        self.streams.get(stream).map_or(0, |entries| entries.len() as u64)
    }

    pub(super) fn feed(&self, request: &FeedRequest) -> FeedPage {
        let FeedRequest { feed, labels, after, until, limit } = request;
        let start = match after {
            Some(after) => Excluded((feed.clone(), after.clone())),
            None => Included((feed.clone(), String::new())),
        };
        let rows = self.feeds.range((start, Unbounded)).take_while(|((of, _), _)| of == feed);
        let mut page = FeedPage::default();
        let mut bytes = 0;
        for (looked_at, ((_, order), (label, row))) in rows.enumerate() {
            page.is_fresh = row.at > *until;
            let is_full = page.appends.len() == *limit || bytes > limits::PAGE;
            page.more = !page.is_fresh && (is_full || looked_at == FED_ROWS.max(*limit));
            if page.is_fresh || page.more {
                break;
            }
            page.upto = Some(order.clone());
            let is_wanted = |labels: &Vec<String>| label.as_ref().is_none_or(|label| labels.contains(label));
            if labels.as_ref().is_none_or(is_wanted) {
                let count = usize::try_from(row.count).unwrap_or(usize::MAX);
                let entries = self.entries(&row.stream, row.first - 1, count);
                bytes += entries.iter().map(|one| length_of(&one.entry)).sum::<usize>();
                page.appends.push(FedAppend { row: row.clone(), entries });
            }
        }
        page
    }
}

/// Number of bytes of `entry` as JSON.
fn length_of(entry: &Map) -> usize {
    serde_json::to_string(entry).map_or(0, |text| text.len())
}

fn key_of(place: &Listed) -> (String, String) {
    (place.list.clone(), place.order.clone())
}
