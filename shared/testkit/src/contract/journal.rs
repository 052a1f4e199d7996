//! Documents, lists, streams and feeds.

use std::sync::Arc;

use dormouse_ports::{
    Append, Breadth, Commit, CommitError, Document, DocumentKey, DocumentWrite, EndOfStream, Fed, FedAppend, FeedPage,
    FeedRequest, FeedRow, Journal, JournalConflict, ListRequest, Listed, Map, RecordedEntries, SessionExpectation,
    StoreError, StreamEnd, StreamEntry, StreamTip,
};
use jiff::Timestamp;
use serde_json::json;

use super::Journaled;
use super::scene::{assert_same, at, commit, delicate_state, fresh, map, pause, save};

type Store = Arc<dyn Journaled>;

fn key(id: &str) -> DocumentKey {
    DocumentKey::new("task", id)
}

fn place(list: &str, order: &str) -> Listed {
    Listed::new(list, order)
}

fn numbered(n: u64) -> Map {
    map(json!({ "n": n }))
}

/// A write of the document `id` with number `n`, in the list "all" at its own id.
fn write(id: &str, expect: u64, n: u64) -> DocumentWrite {
    DocumentWrite { key: key(id), expect, body: Some(numbered(n)), listed: vec![place("all", id)], expires_at: None }
}

fn removal(id: &str, expect: u64) -> DocumentWrite {
    DocumentWrite { body: None, ..write(id, expect, 0) }
}

fn append(stream: &str, first: u64, count: u64) -> Append {
    let entries = (first..first + count).map(numbered).collect();
    Append { stream: stream.to_owned(), end: StreamEnd::Store, first, entries, fed: None }
}

fn documents(writes: impl IntoIterator<Item = DocumentWrite>) -> Journal {
    Journal::new(writes.into_iter().collect(), Vec::new())
}

fn appends(appends: impl IntoIterator<Item = Append>) -> Journal {
    Journal::new(Vec::new(), appends.into_iter().collect())
}

fn alone(id: &str, journal: Journal) -> Commit {
    Commit { journal, ..commit(id, None, None) }
}

async fn done(store: &Store, id: &str, journal: Journal) {
    store.commit(&alone(id, journal)).await.expect("it is written");
}

async fn lost(store: &Store, id: &str, journal: Journal) -> JournalConflict {
    match store.commit(&alone(id, journal)).await {
        Err(CommitError::Journal(conflict)) => conflict,
        other => panic!("no conflict: {other:?}"),
    }
}

async fn read(store: &Store, id: &str) -> Option<Document> {
    read_at(store, id, at(0)).await
}

async fn read_at(store: &Store, id: &str, now: Timestamp) -> Option<Document> {
    store.document(&key(id), now).await.expect("the store answers")
}

/// An append of `count` entries behind `tip` of the stream "s", which is reported with those before it, or `later`.
fn kept(tip: &StreamTip, count: u64, later: bool) -> Append {
    let end = EndOfStream { known: numbered(tip.position), behind: tip.at, unreported: tip.unreported, later };
    Append {
        end: StreamEnd::Append(end),
        fed: Some(Fed { feed: "feed".to_owned(), label: Some("w1".to_owned()) }),
        ..append("s", tip.position + 1, count)
    }
}

async fn tip(store: &Store) -> StreamTip {
    store.tip("s").await.expect("an answer")
}

/// Checks that each of `positions` has its entry, and `absent` have none.
async fn has_entries(store: &Store, stream: &str, positions: std::ops::RangeInclusive<u64>, absent: &[u64]) {
    for position in positions {
        let found = store.entry(stream, position).await.expect("the store answers");
        assert_eq!(found, Some(StreamEntry { position, entry: numbered(position) }), "the entry at {position}");
    }
    for position in absent {
        assert_eq!(store.entry(stream, *position).await.expect("the store answers"), None, "nothing is at {position}");
    }
}

async fn positions(store: &Store, stream: &str, after: u64, limit: usize) -> Vec<u64> {
    let entries = store.entries(stream, after, limit).await.expect("the store answers");
    for StreamEntry { position, entry } in &entries {
        assert_eq!(*entry, numbered(*position), "an entry is where it was appended");
    }
    entries.iter().map(|entry| entry.position).collect()
}

async fn listed(store: &Store, newest_first: bool, limit: usize, now: Timestamp) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let list = "all".to_owned();
        let breadth = Breadth::Narrow;
        let request = ListRequest { list, breadth, after, limit, newest_first, now };
        let page = store.documents(&request).await.expect("the store answers");
        assert!(page.items.len() <= limit, "a page holds at most {limit}");
        pages.push(page.items.into_iter().map(|document| document.key.id).collect());
        let Some(next) = page.next else { return pages };
        after = Some(next);
    }
}

/// The whole of `feed`, at once.
fn whole(feed: &str) -> FeedRequest {
    FeedRequest { feed: feed.to_owned(), labels: None, after: None, until: Timestamp::MAX, limit: 100 }
}

fn rows_of(page: &FeedPage) -> Vec<FeedRow> {
    page.appends.iter().map(|append| append.row.clone()).collect()
}

async fn feed(store: &Store, feed: &str) -> Vec<FeedRow> {
    rows_of(&store.feed(&whole(feed)).await.expect("the store answers"))
}

/// All that `request` asks for, page by page.
async fn paged(store: &Store, mut request: FeedRequest) -> Vec<FeedRow> {
    let mut rows = Vec::new();
    loop {
        let page = store.feed(&request).await.expect("the store answers");
        assert!(page.appends.len() <= request.limit, "a page holds at most {}", request.limit);
        rows.extend(rows_of(&page));
        request.after = page.upto.or(request.after);
        if !page.more {
            return rows;
        }
    }
}

pub(super) async fn a_document_keeps_every_detail_and_counts_its_writes(store: Store) {
    assert_eq!(read(&store, "t1").await, None);
    let body = delicate_state();
    let made = DocumentWrite { body: Some(body.clone()), expires_at: Some(at(60)), ..write("t1", 0, 0) };
    done(&store, "make", documents([made])).await;
    let document = read(&store, "t1").await.expect("it is there");
    assert_same(&document.body, &body);
    assert_eq!((document.key, document.version, document.expires_at), (key("t1"), 1, Some(at(60))));
    done(&store, "change", documents([write("t1", 1, 7)])).await;
    let document = read(&store, "t1").await.expect("it is there");
    assert_eq!((document.body, document.version, document.expires_at), (numbered(7), 2, None));
}

pub(super) async fn kinds_do_not_share_ids(store: Store) {
    done(&store, "make", documents([write("t1", 0, 1)])).await;
    let other = DocumentKey::new("session", "t1");
    assert_eq!(store.document(&other, at(0)).await.expect("an answer"), None);
    let write = DocumentWrite { key: other.clone(), listed: Vec::new(), ..write("t1", 0, 2) };
    done(&store, "other", documents([write])).await;
    assert_eq!(store.document(&other, at(0)).await.expect("an answer").map(|it| it.body), Some(numbered(2)));
    assert_eq!(read(&store, "t1").await.map(|it| it.body), Some(numbered(1)));
}

pub(super) async fn a_document_of_another_version_conflicts(store: Store) {
    let conflict = JournalConflict::Document(key("t1"));
    assert_eq!(lost(&store, "too-early", documents([write("t1", 1, 1)])).await, conflict);
    done(&store, "make", documents([write("t1", 0, 1)])).await;
    for (id, expect) in [("again", 0), ("ahead", 2)] {
        assert_eq!(lost(&store, id, documents([write("t1", expect, 9)])).await, conflict);
        assert_eq!(lost(&store, &format!("{id}-removal"), documents([removal("t1", expect)])).await, conflict);
    }
    assert_eq!(read(&store, "t1").await.map(|it| (it.version, it.body)), Some((1, numbered(1))));
}

pub(super) async fn a_removed_document_begins_anew(store: Store) {
    done(&store, "absent", documents([removal("t1", 0)])).await;
    done(&store, "make", documents([write("t1", 0, 1)])).await;
    done(&store, "change", documents([write("t1", 1, 2)])).await;
    done(&store, "remove", documents([removal("t1", 2)])).await;
    assert_eq!(read(&store, "t1").await, None);
    assert_eq!(listed(&store, false, 10, at(0)).await, [Vec::<String>::new()]);
    done(&store, "anew", documents([write("t1", 0, 3)])).await;
    assert_eq!(read(&store, "t1").await.map(|it| it.version), Some(1));
}

pub(super) async fn an_expired_document_is_not_there(store: Store) {
    let made = DocumentWrite { expires_at: Some(at(60)), ..write("t1", 0, 1) };
    done(&store, "make", documents([made])).await;
    assert!(read_at(&store, "t1", at(59)).await.is_some());
    assert_eq!(read_at(&store, "t1", at(60)).await, None);
    assert_eq!(listed(&store, false, 10, at(60)).await, [Vec::<String>::new()]);
    let late = |id: &str, write| Commit { now: at(61), ..alone(id, documents([write])) };
    let outcome = store.commit(&late("change", write("t1", 1, 2))).await;
    assert!(matches!(outcome, Err(CommitError::Journal(JournalConflict::Document(_)))), "{outcome:?}");
    store.commit(&late("anew", write("t1", 0, 2))).await.expect("its place is free");
    assert_eq!(read_at(&store, "t1", at(61)).await.map(|it| it.version), Some(1));
}

pub(super) async fn documents_are_listed_page_by_page_both_ways(store: Store) {
    for id in ["a", "b", "c", "d", "e"] {
        done(&store, id, documents([write(id, 0, 1)])).await;
    }
    let other = DocumentWrite { listed: vec![place("all-others", "a")], ..write("z", 0, 1) };
    done(&store, "other", documents([other])).await;
    let pages = |pages: &[&[&str]]| -> Vec<Vec<String>> {
        pages.iter().map(|page| page.iter().map(ToString::to_string).collect()).collect()
    };
    assert_eq!(listed(&store, false, 2, at(0)).await, pages(&[&["a", "b"], &["c", "d"], &["e"]]));
    assert_eq!(listed(&store, true, 2, at(0)).await, pages(&[&["e", "d"], &["c", "b"], &["a"]]));
    assert_eq!(listed(&store, false, 5, at(0)).await, pages(&[&["a", "b", "c", "d", "e"]]));
}

pub(super) async fn what_is_written_between_pages_disturbs_no_listing(store: Store) {
    for id in ["b", "d", "f"] {
        done(&store, id, documents([write(id, 0, 1)])).await;
    }
    let page = async |after: Option<String>| {
        let list = "all".to_owned();
        let breadth = Breadth::Narrow;
        let request = ListRequest { list, breadth, after, limit: 2, newest_first: false, now: at(0) };
        store.documents(&request).await.expect("the store answers")
    };
    let ids = |items: &[Document]| items.iter().map(|document| document.key.id.clone()).collect::<Vec<_>>();
    let first = page(None).await;
    assert_eq!(ids(&first.items), ["b", "d"]);
    done(&store, "gone", documents([removal("d", 1)])).await;
    done(&store, "before", documents([write("a", 0, 1)])).await;
    done(&store, "behind", documents([write("e", 0, 1)])).await;
    done(&store, "change", documents([write("b", 1, 2)])).await;
    let second = page(first.next).await;
    assert_eq!((ids(&second.items), second.next), (vec!["e".to_owned(), "f".to_owned()], None));
}

pub(super) async fn a_stream_has_no_gap(store: Store) {
    assert_eq!(store.tip("s").await.expect("an answer").position, 0);
    let conflict = JournalConflict::Stream("s".to_owned());
    assert_eq!(lost(&store, "ahead", appends([append("s", 2, 1)])).await, conflict);
    done(&store, "one", appends([append("s", 1, 3)])).await;
    for (id, first) in [("again", 1), ("inside", 2), ("at-the-end", 3), ("behind-a-gap", 5)] {
        assert_eq!(lost(&store, id, appends([append("s", first, 1)])).await, conflict);
    }
    done(&store, "two", appends([append("s", 4, 1)])).await;
    done(&store, "three", appends([append("s", 5, 2)])).await;
    assert_eq!(store.tip("s").await.expect("an answer").position, 6);
    assert_eq!(positions(&store, "s", 0, 100).await, [1, 2, 3, 4, 5, 6]);
    assert_eq!(positions(&store, "other", 0, 100).await, [0_u64; 0]);
}

pub(super) async fn the_newest_append_keeps_the_end_of_a_stream(store: Store) {
    assert_eq!(store.tip("s").await.expect("an answer"), StreamTip::default());
    let kept = |first, count, tip: &StreamTip, known: u64| Append {
        end: StreamEnd::Append(EndOfStream { known: numbered(known), behind: tip.at, ..EndOfStream::default() }),
        fed: Some(Fed::to("feed")),
        ..append("s", first, count)
    };
    let mut tip = StreamTip::default();
    for (known, count) in [(1, 2), (2, 1), (3, 12), (4, 1)] {
        let next = kept(tip.position + 1, count, &tip, known);
        done(&store, &format!("append-{known}"), appends([next])).await;
        let stale = kept(tip.position + 1, count + 1, &tip, 9);
        let conflict = JournalConflict::Stream("s".to_owned());
        assert_eq!(lost(&store, &format!("late-{known}"), appends([stale])).await, conflict);
        let now = store.tip("s").await.expect("an answer");
        assert_eq!((now.position, &now.known), (tip.position + count, &Some(numbered(known))));
        assert!(now.at > tip.at, "each is sent behind the one before");
        tip = now;
    }
    assert_eq!(store.tip("s").await.expect("an answer").position, 16);
    for after in 0..=17 {
        for limit in [1, 2, 5, 100] {
            let wanted: Vec<u64> = (after + 1..=16).take(limit).collect();
            assert_eq!(positions(&store, "s", after, limit).await, wanted, "{limit} behind {after}");
        }
    }
    assert_eq!(positions(&store, "s", u64::MAX, 1).await, [0_u64; 0]);
    has_entries(&store, "s", 1..=16, &[0, 17, u64::MAX]).await;
    let rows = feed(&store, "feed").await;
    assert_eq!(rows.iter().map(|row| (row.first, row.count)).collect::<Vec<_>>(), [(1, 2), (3, 1), (4, 12), (16, 1)]);
    assert!(rows.windows(2).all(|pair| pair[0].at < pair[1].at), "{rows:?}");
    for (position, row) in [(1, 0), (2, 0), (3, 1), (4, 2), (9, 2), (15, 2), (16, 3)] {
        let found = store.append_of("s", position).await.expect("an answer");
        assert_eq!(found.as_ref(), Some(&rows[row]), "{position}");
    }
    for position in [0, 17, u64::MAX] {
        assert_eq!(store.append_of("s", position).await.expect("an answer"), None);
    }
}

pub(super) async fn an_append_is_reported_by_a_later_one_of_its_stream(store: Store) {
    let other = |first| Append { fed: Some(Fed::to("feed")), ..append("t", first, 1) };
    // Each with what is unreported behind it.
    let sent = [(2, false, 0), (1, true, 1), (12, true, 13), (2, false, 0), (1, true, 1), (1, false, 0), (1, false, 0)];
    for (index, (count, later, unreported)) in (1..).zip(sent) {
        let before = tip(&store).await;
        let next = kept(&before, count, later);
        done(&store, &format!("append-{index}"), appends([next])).await;
        let now = tip(&store).await;
        assert_eq!((now.position, now.unreported), (before.position + count, unreported), "behind append {index}");
        assert_eq!(now.known, Some(numbered(before.position)));
        let stale = kept(&before, count, !later);
        let conflict = JournalConflict::Stream("s".to_owned());
        assert_eq!(lost(&store, &format!("late-{index}"), appends([stale])).await, conflict);
        done(&store, &format!("other-{index}"), appends([other(index)])).await;
    }
    let all = feed(&store, "feed").await;
    assert!(all.windows(2).all(|pair| pair[0].at < pair[1].at && pair[0].order() < pair[1].order()), "{all:?}");
    let rows: Vec<FeedRow> = all.iter().filter(|row| row.stream == "s").cloned().collect();
    let stretches = [(1, 2), (3, 15), (18, 2), (20, 1)];
    assert_eq!(rows.iter().map(|row| (row.first, row.count)).collect::<Vec<_>>(), stretches);
    for (position, row) in [(1, 0), (2, 0), (3, 1), (4, 1), (15, 1), (16, 1), (17, 1), (18, 2), (19, 2), (20, 3)] {
        let found = store.append_of("s", position).await.expect("an answer");
        assert_eq!(found.as_ref(), Some(&rows[row]), "{position}");
        let behind = FeedRequest { after: Some(rows[row].order()), ..whole("feed") };
        let place = all.iter().position(|one| *one == rows[row]).expect("it is in the feed");
        assert_eq!(paged(&store, behind).await, all[place + 1..], "behind {position}");
    }
    for append in store.feed(&whole("feed")).await.expect("an answer").appends {
        let FedAppend { row, entries } = append;
        let positions: Vec<u64> = entries.iter().map(|entry| entry.position).collect();
        assert_eq!(positions, (row.first..row.first + row.count).collect::<Vec<_>>(), "it comes with its entries");
        assert!(entries.iter().all(|entry| entry.entry == numbered(entry.position)));
    }
    for limit in 1..5 {
        assert_eq!(paged(&store, FeedRequest { limit, ..whole("feed") }).await, all);
    }
    for (labels, count) in [(vec!["w1".to_owned()], all.len()), (vec!["w2".to_owned()], all.len() - rows.len())] {
        let labeled = FeedRequest { labels: Some(labels), ..whole("feed") };
        assert_eq!(paged(&store, labeled).await.len(), count, "the row has the label of its append");
    }
    assert_eq!(positions(&store, "s", 0, 100).await, (1..=20).collect::<Vec<_>>());
}

pub(super) async fn what_no_row_reports_yet_has_a_place_before_the_one_that_will(store: Store) {
    done(&store, "first", appends([kept(&StreamTip::default(), 3, true)])).await;
    done(&store, "second", appends([kept(&tip(&store).await, 2, true)])).await;
    assert!(feed(&store, "feed").await.is_empty());
    let mut places = Vec::new();
    for position in 1..=5 {
        let place = store.append_of("s", position).await.expect("an answer").expect("it is there");
        assert_eq!((place.stream.as_str(), place.first + place.count), ("s", position + 1), "it ends with it");
        places.push(place.order());
    }
    assert_eq!(store.append_of("s", 6).await.expect("an answer"), None);
    // Another writer, which has read the end.
    done(&store, "third", appends([kept(&tip(&store).await, 1, false)])).await;
    let rows = feed(&store, "feed").await;
    assert_eq!(rows.iter().map(|row| (row.first, row.count)).collect::<Vec<_>>(), [(1, 6)]);
    assert_eq!(store.append_of("s", 1).await.expect("an answer").as_ref(), rows.first());
    for place in places {
        assert_eq!(paged(&store, FeedRequest { after: Some(place), ..whole("feed") }).await, rows);
    }
}

pub(super) async fn an_append_without_a_feed_leaves_what_is_unreported_to_the_next_one(store: Store) {
    done(&store, "first", appends([kept(&StreamTip::default(), 2, true)])).await;
    done(&store, "second", appends([Append { fed: None, ..kept(&tip(&store).await, 1, false) }])).await;
    assert_eq!(tip(&store).await.unreported, 3);
    done(&store, "third", appends([kept(&tip(&store).await, 1, false)])).await;
    assert_eq!(feed(&store, "feed").await.iter().map(|row| (row.first, row.count)).collect::<Vec<_>>(), [(1, 4)]);
    done(&store, "fourth", appends([Append { fed: None, ..kept(&tip(&store).await, 1, true) }])).await;
    assert_eq!(tip(&store).await.unreported, 0);
}

pub(super) async fn appends_take_over_the_end_of_a_stream(store: Store) {
    done(&store, "before", appends([append("s", 1, 3)])).await;
    done(&store, "and", appends([append("s", 4, 2)])).await;
    let tip = store.tip("s").await.expect("an answer");
    assert_eq!((tip.position, &tip.known), (5, &None));
    let kept = |first, count, tip: &StreamTip| Append {
        end: StreamEnd::Append(EndOfStream { known: numbered(first), behind: tip.at, ..EndOfStream::default() }),
        fed: Some(Fed::to("feed")),
        ..append("s", first, count)
    };
    done(&store, "take-over", appends([kept(6, 3, &tip)])).await;
    assert_eq!(lost(&store, "late", appends([kept(6, 1, &tip)])).await, JournalConflict::Stream("s".to_owned()));
    let tip = store.tip("s").await.expect("an answer");
    done(&store, "go-on", appends([kept(9, 1, &tip)])).await;
    for after in 0..=10 {
        for limit in [1, 2, 4, 100] {
            let wanted: Vec<u64> = (after + 1..=9).take(limit).collect();
            assert_eq!(positions(&store, "s", after, limit).await, wanted, "{limit} behind {after}");
        }
    }
    has_entries(&store, "s", 1..=9, &[0, 10]).await;
    let mut firsts = Vec::new();
    for position in 1..=9 {
        firsts.push(store.append_of("s", position).await.expect("an answer").expect("an append").first);
    }
    assert_eq!(firsts, [1, 1, 1, 4, 4, 6, 6, 6, 9]);
}

pub(super) async fn a_stream_is_read_from_anywhere(store: Store) {
    let mut first = 1;
    for count in [3, 1, 12, 1, 1, 2] {
        done(&store, &format!("append-{first}"), appends([append("s", first, count)])).await;
        first += count;
    }
    for after in 0..=21 {
        for limit in [1, 2, 5, 100] {
            let wanted: Vec<u64> = (after + 1..=20).take(limit).collect();
            assert_eq!(positions(&store, "s", after, limit).await, wanted, "{limit} behind {after}");
        }
    }
    assert_eq!(positions(&store, "s", u64::MAX, 1).await, [0_u64; 0]);
}

pub(super) async fn a_feed_tells_of_appends_in_order(store: Store) {
    let fed = |append: Append| Append { fed: Some(Fed::to("feed")), ..append };
    done(&store, "a", appends([fed(append("s1", 1, 2))])).await;
    done(&store, "b", appends([fed(append("s2", 1, 1)), append("s3", 1, 1)])).await;
    done(&store, "c", appends([fed(append("s1", 3, 1))])).await;
    let all = feed(&store, "feed").await;
    let seen: Vec<_> = all.iter().map(|row| (row.stream.as_str(), row.first, row.count)).collect();
    assert_eq!(seen, [("s1", 1, 2), ("s2", 1, 1), ("s1", 3, 1)]);
    assert!(all.windows(2).all(|pair| pair[0].at < pair[1].at && pair[0].order() < pair[1].order()), "{all:?}");
    for limit in 1..5 {
        assert_eq!(paged(&store, FeedRequest { limit, ..whole("feed") }).await, all);
    }
    for (index, row) in all.iter().enumerate() {
        let behind = FeedRequest { after: Some(row.order()), ..whole("feed") };
        assert_eq!(paged(&store, behind).await, all[index + 1..]);
    }
    let upto = store.feed(&FeedRequest { until: all[1].at, ..whole("feed") }).await.expect("the store answers");
    assert_eq!((rows_of(&upto), upto.upto), (all[..2].to_vec(), Some(all[1].order())));
    assert!(upto.is_fresh && !upto.more, "there is more, and it was sent later");
    let until = all[2].at;
    let end = store.feed(&FeedRequest { after: Some(all[2].order()), until, ..whole("feed") }).await;
    assert_eq!(end.expect("the store answers"), FeedPage::default());
    for append in store.feed(&whole("feed")).await.expect("the store answers").appends {
        let row = append.row;
        let positions: Vec<u64> = append.entries.iter().map(|entry| entry.position).collect();
        assert_eq!(positions, (row.first..row.first + row.count).collect::<Vec<_>>(), "it comes with its entries");
        assert!(append.entries.iter().all(|entry| entry.entry == numbered(entry.position)));
    }
    for (stream, position, row) in
        [("s1", 1, Some(0)), ("s1", 2, Some(0)), ("s1", 3, Some(2)), ("s1", 4, None), ("s9", 1, None)]
    {
        let found = store.append_of(stream, position).await.expect("an answer");
        assert_eq!(found.as_ref(), row.map(|row: usize| &all[row]), "{stream} {position}");
    }
    assert!(feed(&store, "another").await.is_empty());
}

pub(super) async fn many_streams_share_a_feed_and_keep_its_order(store: Store) {
    for n in 0..40_u64 {
        let stream = format!("s{}", n % 23);
        let first = store.tip(&stream).await.expect("an answer").position + 1;
        let label = (n % 3 > 0).then(|| format!("w{}", n % 3));
        let fed = Some(Fed { feed: "feed".to_owned(), label });
        done(&store, &format!("{n}"), appends([Append { fed, ..append(&stream, first, 1) }])).await;
    }
    let all = paged(&store, FeedRequest { limit: 7, ..whole("feed") }).await;
    assert_eq!(all.len(), 40);
    assert!(all.windows(2).all(|pair| pair[0].at < pair[1].at), "{all:?}");
    for wanted in [vec!["w1".to_owned()], vec!["w2".to_owned(), "w9".to_owned()], vec![]] {
        let request = FeedRequest { limit: 4, labels: Some(wanted.clone()), ..whole("feed") };
        let seen = paged(&store, request).await;
        let is_wanted = |n: &usize| n.is_multiple_of(3) || wanted.contains(&format!("w{}", n % 3));
        let known: Vec<FeedRow> = (0..40).filter(is_wanted).map(|n| all[n].clone()).collect();
        assert_eq!(seen, known, "those of {wanted:?}, and those without a label");
    }
}

pub(super) async fn a_wide_list_is_in_order_and_narrowed_by_label(store: Store) {
    let id = |n: u64| format!("t{n:02}");
    for n in 0..40 {
        let label = (n % 3 > 0).then(|| format!("w{}", n % 3));
        let listed = vec![Listed { breadth: Breadth::Wide { label }, ..place("wide", &id(n)) }];
        done(&store, &id(n), documents([DocumentWrite { listed, ..write(&id(n), 0, n) }])).await;
    }
    done(&store, "gone", documents([removal(&id(5), 1), removal(&id(6), 1)])).await;
    let pages = async |breadth: &Breadth, newest_first: bool, limit: usize| {
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let list = "wide".to_owned();
            let request = ListRequest { list, breadth: breadth.clone(), after, limit, newest_first, now: at(0) };
            let page = store.documents(&request).await.expect("the store answers");
            assert!(page.items.len() <= limit);
            seen.extend(page.items.into_iter().map(|document| document.key.id));
            after = page.next;
            if after.is_none() {
                return seen;
            }
        }
    };
    let one = |label: &str| Breadth::Wide { label: Some(label.to_owned()) };
    let among = |labels: &[&str]| Breadth::Among { labels: labels.iter().map(|label| (*label).to_owned()).collect() };
    let narrowed = [
        (Breadth::Wide { label: None }, vec!["w1", "w2"]),
        (one("w1"), vec!["w1"]),
        (one("w2"), vec!["w2"]),
        (one("w9"), vec![]),
        (among(&["w1", "w2"]), vec!["w1", "w2"]),
        (among(&["w2", "w9"]), vec!["w2"]),
        (among(&[]), vec![]),
    ];
    for (breadth, labels) in narrowed {
        let is_wanted = |n: &u64| n.is_multiple_of(3) || labels.contains(&format!("w{}", n % 3).as_str());
        let mut known: Vec<String> = (0..40).filter(|n| *n != 5 && *n != 6).filter(is_wanted).map(id).collect();
        for limit in [1, 3, 100] {
            assert_eq!(pages(&breadth, false, limit).await, known, "{breadth:?}, {limit} at once");
        }
        known.reverse();
        assert_eq!(pages(&breadth, true, 3).await, known, "{breadth:?}, against the order");
    }
}

pub(super) async fn a_journal_and_the_rest_are_one(store: Store) {
    let journal = Journal::new(vec![write("t1", 0, 1)], vec![append("s", 1, 1)]);
    let session = || save("session-1", numbered(1), SessionExpectation::Version(0));
    let all = Commit { journal: journal.clone(), ..commit("all", Some(session()), Some(fresh(&pause("i1", 1, "w1")))) };
    store.commit(&all).await.expect("it is written");
    assert!(read(&store, "t1").await.is_some() && store.tip("s").await.expect("an answer").position == 1);

    // A refusal of any part prevents the writes of the others.
    let next = Journal::new(vec![write("t2", 0, 1)], vec![append("s", 2, 1)]);
    let stale_session = Commit { journal: next.clone(), ..commit("stale-session", Some(session()), None) };
    assert!(matches!(store.commit(&stale_session).await, Err(CommitError::SessionConflict)));
    let taken = Commit { journal: next.clone(), ..commit("taken", None, Some(fresh(&pause("i1", 1, "w2")))) };
    assert!(matches!(store.commit(&taken).await, Err(CommitError::InvocationConflict)));
    let stale = Journal { documents: vec![write("t1", 0, 9)], ..next.clone() };
    let stale = Commit { journal: stale, ..commit("stale", None, Some(fresh(&pause("i2", 1, "w2")))) };
    let outcome = store.commit(&stale).await;
    let Err(CommitError::Journal(JournalConflict::Document(_))) = outcome else { panic!("{outcome:?}") };
    let grown = Journal { appends: vec![append("s", 1, 1)], ..next };
    let grown = Commit { journal: grown, ..commit("grown", None, Some(fresh(&pause("i2", 1, "w2")))) };
    let outcome = store.commit(&grown).await;
    let Err(CommitError::Journal(JournalConflict::Stream(_))) = outcome else { panic!("{outcome:?}") };
    assert_eq!((read(&store, "t2").await, store.tip("s").await.expect("an answer").position), (None, 1));
    assert_eq!(store.load_invocation(&"i2".into()).await.expect("an answer"), None);
}

pub(super) async fn the_same_journal_again_succeeds_once(store: Store) {
    let journal = Journal::new(vec![write("t1", 0, 1)], vec![append("s", 1, 2)]);
    let commits = [
        alone("both", journal),
        alone("document", documents([write("t2", 0, 1)])),
        alone("gone", documents([removal("t2", 1)])),
    ];
    for commit in &commits {
        store.commit(commit).await.expect("it is written");
        store.commit(commit).await.expect("it was written");
    }
    assert_eq!(read(&store, "t1").await.map(|it| it.version), Some(1));
    assert_eq!(positions(&store, "s", 0, 10).await, [1, 2]);
    // Its answer may come so late that other commits went on meanwhile.
    done(&store, "others", Journal::new(vec![write("t1", 1, 2)], vec![append("s", 3, 1)])).await;
    store.commit(&commits[0]).await.expect("it was written");
    assert_eq!(positions(&store, "s", 0, 10).await, [1, 2, 3]);
}

pub(super) async fn of_many_at_once_one_appends(store: Store) {
    let tries = (0..8).map(|n| {
        let store = store.clone();
        async move { store.commit(&alone(&format!("try-{n}"), appends([append("s", 1, 1)]))).await }
    });
    let outcomes = futures::future::join_all(tries).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for outcome in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(matches!(outcome, CommitError::Journal(JournalConflict::Stream(_))), "{outcome:?}");
    }
    assert_eq!(store.tip("s").await.expect("an answer").position, 1);
}

pub(super) async fn a_journal_that_makes_no_sense_is_refused(store: Store) {
    let elsewhere = |id: &str| DocumentWrite { listed: vec![place("all", "a")], ..write(id, 0, 1) };
    for (index, journal) in [
        documents([write("t1", 0, 1), write("t1", 0, 2)]),
        documents([elsewhere("t1"), elsewhere("t2")]),
        appends([append("s", 1, 0)]),
        appends([append("s", 0, 1)]),
        appends([append("s", 1, 1), append("s", 2, 1)]),
        appends([kept(&StreamTip { unreported: 1, ..StreamTip::default() }, 1, false)]),
        Journal { recorded: Some(RecordedEntries { invocation_id: "i".into(), entries: Vec::new() }), ..appends([]) },
    ]
    .into_iter()
    .enumerate()
    {
        let outcome = store.commit(&alone(&index.to_string(), journal)).await;
        assert!(matches!(outcome, Err(CommitError::Store(StoreError::Invalid(_)))), "{index}: {outcome:?}");
    }
    assert_eq!((read(&store, "t1").await, store.tip("s").await.expect("an answer").position), (None, 0));
}

pub(super) async fn large_documents_and_entries_survive(store: Store) {
    let words = |seed: u64| (0..40_000_u64).map(|n| format!("{:x} ", (n + 1).wrapping_mul(seed))).collect::<String>();
    let body = map(json!({ "text": words(0x9E37_79B9_7F4A_7C15) }));
    let entry = map(json!({ "text": words(0xD1B5_4A32_D192_ED03) }));
    let journal = Journal::new(
        vec![DocumentWrite { body: Some(body.clone()), ..write("t1", 0, 0) }],
        vec![Append { entries: vec![numbered(1), entry.clone()], ..append("s", 1, 1) }],
    );
    done(&store, "large", journal).await;
    assert!(read(&store, "t1").await.is_some_and(|document| document.body == body));
    let entries = store.entries("s", 1, 10).await.expect("an answer");
    assert!(entries == [StreamEntry { position: 2, entry }]);
}

pub(super) async fn large_entries_are_read_a_few_at_once_and_all_of_them_in_the_end(store: Store) {
    let large = |n: u64| map(json!({ "n": n, "text": "x".repeat(300 * 1024) }));
    for n in 1..=8 {
        let fed = Append { entries: vec![large(n)], fed: Some(Fed::to("feed")), ..append("s", n, 1) };
        done(&store, &format!("large-{n}"), appends([fed])).await;
    }
    let mut seen = Vec::new();
    loop {
        let after = seen.last().copied().unwrap_or_default();
        let stretch = store.stretch("s", after, 100).await.expect("an answer");
        assert!((1..=4).contains(&stretch.entries.len()), "{}", stretch.entries.len());
        seen.extend(stretch.entries.iter().map(|one| one.position));
        if !stretch.more {
            break;
        }
    }
    assert_eq!(seen, (1..=8).collect::<Vec<u64>>());
    let page = store.feed(&whole("feed")).await.expect("an answer");
    assert!(page.more && (1..=4).contains(&page.appends.len()), "{}", page.appends.len());
    let rows = paged(&store, whole("feed")).await;
    assert_eq!(rows.iter().map(|row| row.first).collect::<Vec<_>>(), seen);
    let few = store.stretch("s", 2, 2).await.expect("an answer");
    assert_eq!(few.entries.iter().map(|one| one.position).collect::<Vec<_>>(), [3, 4]);
    assert!(few.more && !store.stretch("s", 7, 2).await.expect("an answer").more);
}
