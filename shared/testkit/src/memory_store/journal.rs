//! Documents, lists, streams and feeds in memory.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use dormouse_ports::{
    Append, Document, DocumentKey, DocumentWrite, FeedRow, Journal, JournalConflict, ListRequest, Listed, Map, Page,
    StreamEntry,
};
use jiff::{SignedDuration, Timestamp};

/// The records of journals.
#[derive(Debug, Default)]
pub(super) struct JournalTables {
    documents: BTreeMap<DocumentKey, Document>,
    /// By list and order.
    lists: BTreeMap<(String, String), DocumentKey>,
    streams: BTreeMap<String, Vec<Map>>,
    /// By feed and order.
    feeds: BTreeMap<(String, String), FeedRow>,
    /// The appends of each stream.
    appends: BTreeMap<String, Vec<FeedRow>>,
    /// Instant at which the last append was sent: one after the other, as nothing is under way here.
    sent: Option<Timestamp>,
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
        Ok(())
    }

    /// Performs the writes that [`check`](Self::check) allowed.
    pub(super) fn apply(&mut self, journal: &Journal, now: Timestamp) {
        journal.documents.iter().for_each(|write| self.write(write));
        journal.appends.iter().for_each(|append| self.append(append, now));
    }

    fn write(&mut self, write: &DocumentWrite) {
        for place in write.places() {
            match write.body {
                Some(_) => self.lists.insert(key_of(place), write.key.clone()),
                None => self.lists.remove(&key_of(place)),
            };
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
        let stream = append.stream.clone();
        let count = append.entries.len() as u64;
        let row = FeedRow { at, stream, first: append.first, count };
        self.feeds.extend(append.fed.iter().map(|feed| ((feed.clone(), row.order()), row.clone())));
        self.appends.entry(append.stream.clone()).or_default().push(row);
    }

    pub(super) fn append_of(&self, stream: &str, position: u64) -> Option<FeedRow> {
        let holds = |row: &&FeedRow| (row.first..row.first + row.count).contains(&position);
        self.appends.get(stream)?.iter().find(holds).cloned()
    }

    pub(super) fn document(&self, key: &DocumentKey, now: Timestamp) -> Option<&Document> {
        self.documents.get(key).filter(|document| document.expires_at.is_none_or(|at| at > now))
    }

    pub(super) fn documents(&self, request: &ListRequest) -> Page<Document> {
        let ListRequest { list, after, limit, newest_first, now } = request;
        let first = (list.clone(), String::new());
        let place = |order: &String| (list.clone(), order.clone());
        let rows = match (after, newest_first) {
            (Some(after), false) => self.lists.range((Excluded(place(after)), Unbounded)),
            (Some(after), true) => self.lists.range((Included(first), Excluded(place(after)))),
            (None, _) => self.lists.range((Included(first), Unbounded)),
        };
        let mut rows: Vec<_> = rows.take_while(|((of, _), _)| of == list).collect();
        if *newest_first {
            rows.reverse();
        }
        let mut items = Vec::new();
        let mut next = None;
        for (index, ((_, order), key)) in rows.iter().enumerate() {
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

    pub(super) fn last_position(&self, stream: &str) -> u64 {
        self.streams.get(stream).map_or(0, |entries| entries.len() as u64)
    }

    pub(super) fn feed(&self, list: &str, after: Option<&str>, limit: usize) -> Vec<FeedRow> {
        let start = match after {
            Some(after) => Excluded((list.to_owned(), after.to_owned())),
            None => Included((list.to_owned(), String::new())),
        };
        let rows = self.feeds.range((start, Unbounded)).take_while(|((of, _), _)| of == list);
        rows.map(|(_, row)| row.clone()).take(limit).collect()
    }
}

fn key_of(place: &Listed) -> (String, String) {
    (place.list.clone(), place.order.clone())
}
