//! What the network and a busy table do to the store: faults that the embedded store never makes are put into the
//! answers on their way back.

use crate::faults::{Fault, Faults};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextMut;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::ConfigBag;
use dormouse_aws::{DynamoDbStateStore, RetryPolicy, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    Append, Breadth, BufferOutcome, BufferedSignal, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits,
    DocumentKey, DocumentWrite, EndOfStream, Fed, FedAppend, FeedRequest, GrowingLists, InvocationId, InvocationStatus,
    InvocationWrite, Invocations, Journal, Lease, LeaseRequest, ListRequest, Listed, Map, Owner, PausedInvocation,
    Records, SessionExpectation, SessionId, SessionWrite, Sessions, SignalDescriptor, Signals, StoreError, StreamEnd,
    StreamTip, SuspendFrom,
};
use jiff::Timestamp;
use serde_json::{Value, json};

const TABLE: &str = "dormouse";

/// A store whose answers can be spoilt.
struct Bench {
    embedded: EmbeddedDynamoDb,
    faults: Faults,
    store: DynamoDbStateStore,
}

async fn bench(attempts: u32) -> Bench {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&embedded.client(), TABLE).await.expect("the table is made");
    let faults = Faults::default();
    let client = aws_sdk_dynamodb::Client::from_conf(embedded.config().interceptor(faults.clone()).build());
    let retry = RetryPolicy { attempts, ..RetryPolicy::default() };
    let store = DynamoDbStateStore::new(&client, TABLE, StoreConfig { retry, ..StoreConfig::default() });
    Bench { embedded, faults, store }
}

/// A table that answers a request for many items with the first of them, and leaves the others unread.
#[derive(Clone, Debug)]
struct OneAtATime;

impl Intercept for OneAtATime {
    fn name(&self) -> &'static str {
        "OneAtATime"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if cfg.load::<Metadata>().is_none_or(|metadata| metadata.name() != "BatchGetItem") {
            return Ok(());
        }
        let response = context.response_mut();
        let mut answer: Value = serde_json::from_slice(response.body().bytes().ok_or("it streams")?)?;
        let items = answer["Responses"][TABLE].as_array_mut().ok_or("no items")?;
        let unread: Vec<Value> = items.drain(items.len().min(1)..).collect();
        let keys = unread.iter().map(|item| json!({"pk": item["pk"], "sk": item["sk"]})).collect::<Vec<_>>();
        if !keys.is_empty() {
            answer["UnprocessedKeys"] = json!({TABLE: {"Keys": keys}});
        }
        *response.body_mut() = SdkBody::from(answer.to_string());
        response.headers_mut().remove("content-length");
        response.headers_mut().remove("x-amz-crc32");
        Ok(())
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("an instant")
}

fn pause(id: &str) -> PausedInvocation {
    PausedInvocation {
        generation: 1,
        descriptor: SignalDescriptor::new("s1"),
        ..PausedInvocation::before_first_pause(id.into(), "g", at(0))
    }
}

fn suspend(id: &str) -> Commit {
    let write = InvocationWrite::Suspend {
        paused: Box::new(pause(id)),
        from: SuspendFrom::Fresh,
        claim: None,
        early: Vec::new(),
    };
    Commit {
        id: format!("suspend-{id}"),
        now: at(0),
        session: None,
        invocation: Some(write),
        journal: Journal::default(),
        growing: GrowingLists::default(),
    }
}

fn save(expect: SessionExpectation) -> Commit {
    let write = SessionWrite {
        session_id: "session-1".into(),
        save: Some((Map::new().into(), "1".to_owned())),
        expect,
        lease: None,
        release: false,
    };
    Commit {
        id: "save".to_owned(),
        now: at(0),
        session: Some(write),
        invocation: None,
        journal: Journal::default(),
        growing: GrowingLists::default(),
    }
}

fn claim() -> ClaimRequest {
    ClaimRequest {
        invocation_id: "i1".into(),
        generation: Some(1),
        owner: Owner::from("worker"),
        now: at(0),
        until: at(60),
        past: None,
        payload: Some(Map::new()),
        answered: None,
    }
}

async fn version(store: &DynamoDbStateStore) -> Option<u64> {
    let loaded = store.load_session(&SessionId::from("session-1"), None).await.expect("an answer");
    loaded.record.map(|record| record.version)
}

#[tokio::test]
async fn a_throttled_request_is_repeated() {
    let bench = bench(8).await;
    bench.store.commit(&suspend("i1")).await.expect("it sleeps");
    bench.faults.script("UpdateItem", [Fault::throttled(), Fault::throttled(), Fault::unavailable()]);
    let outcome = bench.store.claim(&claim()).await.expect("an answer");
    assert!(matches!(outcome, ClaimOutcome::Granted(_)), "{outcome:?}");
    assert_eq!(bench.faults.left(), 0);
}

#[tokio::test]
async fn a_conflicting_transaction_is_repeated_even_beside_a_failed_condition() {
    let bench = bench(8).await;
    let mixed = Fault::canceled(&["ConditionalCheckFailed", "TransactionConflict", "None"]);
    bench.faults.script("TransactWriteItems", [Fault::canceled(&["TransactionConflict", "None", "None"]), mixed]);
    bench.store.commit(&suspend("i1")).await.expect("it sleeps");
    assert_eq!(bench.faults.left(), 0);
}

#[tokio::test]
async fn a_conflict_with_a_transaction_is_repeated_by_a_plain_update() {
    let bench = bench(8).await;
    bench.faults.script("UpdateItem", [Fault::refused("TransactionConflictException")]);
    bench.store.commit(&save(SessionExpectation::Version(0))).await.expect("it is saved");
    assert_eq!((bench.faults.left(), version(&bench.store).await), (0, Some(1)));
}

#[tokio::test]
async fn a_table_that_stays_busy_is_unavailable() {
    let bench = bench(3).await;
    bench.faults.script("UpdateItem", [Fault::throttled(), Fault::throttled(), Fault::throttled()]);
    let outcome = bench.store.claim(&claim()).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    assert_eq!(bench.faults.left(), 0, "every attempt was used");
}

#[tokio::test]
async fn a_transaction_whose_answer_was_lost_succeeds() {
    let bench = bench(8).await;
    bench.faults.script("TransactWriteItems", [Fault::lost()]);
    bench.store.commit(&suspend("i1")).await.expect("it happened");
    assert_eq!(bench.faults.left(), 0);
    assert!(bench.store.load_invocation(&"i1".into()).await.expect("an answer").is_some());
}

#[tokio::test]
async fn a_plain_commit_whose_answer_was_lost_succeeds_once() {
    for expect in [SessionExpectation::Version(0), SessionExpectation::Any] {
        let bench = bench(8).await;
        bench.faults.script("UpdateItem", [Fault::lost(), Fault::lost()]);
        bench.store.commit(&save(expect)).await.expect("it happened");
        assert_eq!((bench.faults.left(), version(&bench.store).await), (0, Some(1)));
    }
}

/// What comes of `commit` where it was sent before, by an attempt that was not answered.
async fn sent_again(bench: &Bench, commit: &Commit) -> Result<(), CommitError> {
    bench.faults.script("UpdateItem", [Fault::unavailable()]);
    let outcome = bench.store.commit(commit).await;
    assert_eq!(bench.faults.left(), 0);
    outcome
}

#[tokio::test]
async fn a_plain_save_whose_answer_was_lost_is_in_doubt_where_another_saved_behind_it() {
    let bench = bench(8).await;
    let leased = async |owner: &str, now: i64| {
        let request =
            LeaseRequest { owner: Owner::from(owner), now: at(now), until: at(now + 60), past: None, begun_for: None };
        let loaded = bench.store.load_session(&"session-1".into(), Some(&request)).await.expect("it is free");
        loaded.lease
    };
    let by_turn = |id: &str, version: u64, lease: Option<Lease>| {
        let saved = save(SessionExpectation::Version(version));
        let session = saved.session.map(|write| SessionWrite { release: lease.is_some(), lease, ..write });
        Commit { id: id.to_owned(), session, ..saved }
    };

    let first = by_turn("first", 0, leased("first", 0).await);
    bench.store.commit(&first).await.expect("it is saved");
    bench.store.commit(&by_turn("second", 1, leased("second", 0).await)).await.expect("the lease was given back");
    let outcome = sent_again(&bench, &first).await;
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "it was saved, beneath the second: {outcome:?}");
    let outcome = bench.store.commit(&first).await;
    assert!(matches!(outcome, Err(CommitError::LeaseLost)), "no attempt is in doubt: {outcome:?}");

    let third = leased("third", 0).await;
    bench.store.commit(&by_turn("without a lease", 2, None)).await.expect("it is saved");
    let outcome = sent_again(&bench, &by_turn("third", 2, third.clone())).await;
    assert!(matches!(outcome, Err(CommitError::SessionConflict)), "it would have given the lease back: {outcome:?}");

    leased("fourth", 61).await;
    let outcome = sent_again(&bench, &by_turn("third", 3, third)).await;
    assert!(matches!(outcome, Err(CommitError::LeaseLost)), "nobody has saved: {outcome:?}");
    assert_eq!(version(&bench.store).await, Some(3));
}

#[tokio::test]
async fn the_last_lost_answer_is_looked_up() {
    let bench = bench(1).await;
    bench.faults.script("TransactWriteItems", [Fault::lost()]);
    bench.store.commit(&suspend("i1")).await.expect("it happened, although nothing may be repeated");
    bench.faults.script("TransactWriteItems", [Fault::throttled()]);
    let outcome = bench.store.commit(&suspend("i2")).await;
    assert!(matches!(outcome, Err(CommitError::Store(StoreError::Unavailable(_)))), "{outcome:?}");
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_granted() {
    let bench = bench(8).await;
    bench.store.commit(&suspend("i1")).await.expect("it sleeps");
    bench.faults.script("UpdateItem", [Fault::lost()]);
    let ClaimOutcome::Granted(record) = bench.store.claim(&claim()).await.expect("an answer") else {
        panic!("our own claim was taken for another's")
    };
    assert!(matches!(record.status, InvocationStatus::Resuming(claim) if claim.owner.as_str() == "worker"));
    assert_eq!(bench.faults.left(), 0);
}

#[tokio::test]
async fn a_lease_whose_answer_was_lost_is_granted() {
    let bench = bench(8).await;
    bench.faults.script("UpdateItem", [Fault::lost()]);
    let request = LeaseRequest { owner: Owner::from("worker"), now: at(0), until: at(60), past: None, begun_for: None };
    let loaded = bench.store.load_session(&"session-1".into(), Some(&request)).await.expect("our own lease");
    assert_eq!(loaded.lease.map(|lease| lease.fence), Some(1));
    assert_eq!(bench.faults.left(), 0);
}

#[tokio::test]
async fn a_signal_whose_answer_was_lost_is_buffered() {
    let bench = bench(8).await;
    bench.faults.script("PutItem", [Fault::lost()]);
    let signal = BufferedSignal { payload: Map::new(), sender: None, received_at: at(0), expires_at: at(60) };
    let outcome = bench.store.buffer_signal(&"s1".into(), &signal).await.expect("an answer");
    assert_eq!(outcome, BufferOutcome::Buffered { expires_at: at(60) });
    assert_eq!(bench.faults.left(), 0);
}

#[tokio::test]
async fn a_refusal_is_not_repeated_and_names_its_action() {
    let bench = bench(8).await;
    bench.faults.script("GetItem", [Fault::refused("AccessDeniedException"), Fault::throttled()]);
    let outcome = bench.store.load_invocation(&"i1".into()).await;
    let Err(StoreError::Denied(sentence)) = outcome else { panic!("{outcome:?}") };
    assert!(sentence.contains("GetItem") && sentence.contains(TABLE), "{sentence}");
    assert_eq!(bench.faults.left(), 1, "nothing was repeated");
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_anything_is_written() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&embedded.client(), TABLE).await.expect("the table is made");
    let config = StoreConfig { state_limit: 10, inline_limit: 5, ..StoreConfig::default() };
    let store = DynamoDbStateStore::new(&embedded.client(), TABLE, config);
    let outcome = store.commit(&suspend("i1")).await;
    assert!(matches!(outcome, Err(CommitError::Store(StoreError::TooLarge { limit: 10, .. }))), "{outcome:?}");
}

#[tokio::test]
async fn a_missing_table_is_said_clearly() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = DynamoDbStateStore::new(&embedded.client(), "nowhere", StoreConfig::default());
    let outcome = store.load_invocation(&"i1".into()).await;
    assert!(matches!(&outcome, Err(StoreError::Denied(sentence)) if sentence.contains("nowhere")), "{outcome:?}");
}

fn document(id: &str, expect: u64, body: Option<Map>) -> DocumentWrite {
    DocumentWrite { key: DocumentKey::new("task", id), expect, body, listed: Vec::new(), expires_at: None }
}

fn append(first: u64) -> Append {
    Append { stream: "s".to_owned(), end: StreamEnd::Store, first, entries: vec![Map::new()], fed: None }
}

fn journal(id: &str, documents: Vec<DocumentWrite>, appends: Vec<Append>) -> Commit {
    let journal = Journal::new(documents, appends);
    Commit { id: id.to_owned(), session: None, journal, ..save(SessionExpectation::Any) }
}

#[tokio::test]
async fn a_journal_whose_answer_was_lost_is_written_once() {
    for (attempts, lost) in [(8, 2), (1, 1)] {
        let bench = bench(attempts).await;
        let fault = |call: &str| bench.faults.script(call, (0..lost).map(|_| Fault::lost()));
        fault("TransactWriteItems");
        let both = journal("both", vec![document("t", 0, Some(Map::new()))], vec![append(1)]);
        bench.store.commit(&both).await.expect("it happened");
        fault("TransactWriteItems");
        bench.store.commit(&journal("append", Vec::new(), vec![append(2)])).await.expect("it happened");
        fault("PutItem");
        let change = journal("change", vec![document("t", 1, Some(Map::new()))], Vec::new());
        bench.store.commit(&change).await.expect("it happened");
        let found = bench.store.document(&DocumentKey::new("task", "t"), at(0)).await.expect("an answer");
        assert_eq!(found.map(|it| it.version), Some(2));
        assert_eq!((bench.store.tip("s").await.expect("an answer").position, bench.faults.left()), (2, 0));
    }
}

#[tokio::test]
async fn a_removal_whose_answer_was_lost_succeeds() {
    let bench = bench(8).await;
    bench.store.commit(&journal("make", vec![document("t", 0, Some(Map::new()))], Vec::new())).await.expect("made");
    bench.faults.script("TransactWriteItems", [Fault::lost()]);
    bench.store.commit(&journal("remove", vec![document("t", 1, None)], Vec::new())).await.expect("it happened");
    assert_eq!(bench.store.document(&DocumentKey::new("task", "t"), at(0)).await.expect("an answer"), None);
    assert_eq!(bench.faults.left(), 0);
}

#[tokio::test]
async fn what_no_transaction_holds_is_refused_before_anything_is_written() {
    let bench = bench(8).await;
    let many = (0..101).map(|n| document(&format!("t{n}"), 0, Some(Map::new()))).collect();
    let outcome = bench.store.commit(&journal("many", many, Vec::new())).await;
    assert!(matches!(outcome, Err(CommitError::Store(StoreError::Invalid(_)))), "{outcome:?}");
    let noise = |n: u64| {
        let mut dice = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let text: String = (0..20_000)
            .map(|_| {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                format!("{dice:016x}")
            })
            .collect();
        Map::from_iter([("text".to_owned(), text.into())])
    };
    let stream =
        |n| Append { stream: format!("s{n}"), end: StreamEnd::Store, first: 1, entries: vec![noise(n)], fed: None };
    let outcome = bench.store.commit(&journal("large", Vec::new(), (1..=30).map(stream).collect())).await;
    let Err(CommitError::Store(StoreError::TooLarge { what: "one commit", .. })) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(bench.store.tip("s1").await.expect("an answer").position, 0);
}

#[tokio::test]
async fn a_listing_asks_a_busy_table_again() {
    let bench = bench(8).await;
    let place = |n| Listed::new("all", format!("{n}"));
    let listed = |n| DocumentWrite { listed: vec![place(n)], ..document(&format!("t{n}"), 0, Some(Map::new())) };
    bench.store.commit(&journal("make", (0..3).map(listed).collect(), Vec::new())).await.expect("made");
    let request = ListRequest {
        list: "all".to_owned(),
        after: None,
        limit: 5,
        newest_first: false,
        now: at(0),
        breadth: Breadth::Narrow,
    };
    for call in ["Query", "BatchGetItem"] {
        bench.faults.script(call, [Fault::throttled()]);
        assert_eq!(bench.store.documents(&request).await.expect("an answer").items.len(), 3);
        assert_eq!(bench.faults.left(), 0);
    }
}

/// Feeds tell when a commit was sent, not when its making began: a turn may take long.
#[tokio::test]
async fn an_append_stands_in_its_feed_at_the_time_at_which_it_was_sent() {
    let bench = bench(3).await;
    let clock = std::sync::Arc::new(dormouse_testkit::ManualClock::default());
    let store = bench.store.clone().timed_by(clock.clone());
    let append = |first| Append {
        stream: "stream".to_owned(),
        end: StreamEnd::Store,
        first,
        entries: vec![Map::new()],
        fed: Some(Fed::to("feed")),
    };
    let tell = |first| {
        let journal = Journal::new(Vec::new(), vec![append(first)]);
        Commit { id: format!("tell-{first}"), invocation: None, journal, ..suspend("i") }
    };
    let sent = async || {
        let feed = "feed".to_owned();
        let until = Timestamp::MAX;
        let request = FeedRequest { feed, labels: None, after: None, until, limit: 10 };
        let page = store.feed(&request).await.expect("an answer");
        page.appends.into_iter().map(|append| append.row.at).collect::<Vec<_>>()
    };
    store.commit(&tell(1)).await.expect("it is written");
    let began = dormouse_ports::Clock::now(&*clock);
    assert_eq!(sent().await, [began]);
    clock.advance(std::time::Duration::from_secs(60));
    store.commit(&tell(2)).await.expect("it is written");
    let later = dormouse_ports::Clock::now(&*clock);
    assert_eq!(sent().await, [began, later], "whenever the commit was made");
    // By another clock, which is behind: what stands later in the stream stands later in the feed.
    let behind = bench.store.timed_by(std::sync::Arc::new(dormouse_testkit::ManualClock::default()));
    behind.commit(&tell(3)).await.expect("it is written");
    assert_eq!(sent().await[2], later + jiff::SignedDuration::from_nanos(1));
    assert_eq!(store.append_of("stream", 3).await.expect("an answer").map(|row| row.first), Some(3));
}

#[tokio::test]
async fn what_a_busy_table_left_unread_is_asked_for_again() {
    let bench = bench(8).await;
    let ids = ["i1", "i2", "i3"];
    for id in ids {
        let mut commit = suspend(id);
        if let Some(InvocationWrite::Suspend { paused, .. }) = &mut commit.invocation {
            paused.descriptor = SignalDescriptor::new(format!("signal of {id}"));
        }
        bench.store.commit(&commit).await.expect("it sleeps");
    }
    let client = aws_sdk_dynamodb::Client::from_conf(bench.embedded.config().interceptor(OneAtATime).build());
    let store = DynamoDbStateStore::new(&client, TABLE, StoreConfig::default());
    let glances = store.glance(&ids.map(InvocationId::from)).await.expect("an answer");
    assert_eq!(glances.iter().filter(|glance| glance.is_some()).count(), 3, "{glances:?}");
}

/// All appends of the feed and all documents of the wide list, a page of `limit` after the other.
async fn read_all(store: &DynamoDbStateStore, limit: usize) -> (Vec<u64>, Vec<String>) {
    let mut appends = Vec::new();
    let mut documents = Vec::new();
    let feed = "feed".to_owned();
    let until = Timestamp::MAX;
    let mut request = FeedRequest { feed, labels: None, after: None, until, limit };
    loop {
        let page = store.feed(&request).await.expect("an answer");
        appends.extend(page.appends.into_iter().map(|append| append.row.first));
        request.after = page.upto.or(request.after);
        if !page.more {
            break;
        }
    }
    let list = "all".to_owned();
    let breadth = Breadth::Wide { label: None };
    let mut request = ListRequest { list, breadth, after: None, limit, newest_first: true, now: at(0) };
    loop {
        let page = store.documents(&request).await.expect("an answer");
        documents.extend(page.items.into_iter().map(|document| document.key.id));
        request.after = page.next;
        if request.after.is_none() {
            return (appends, documents);
        }
    }
}

/// A document in the wide list, told of in a feed.
fn announced(n: u64, first: u64) -> Commit {
    let place = Listed { breadth: Breadth::Wide { label: None }, ..Listed::new("all", format!("t{n:03}")) };
    let document = DocumentWrite { listed: vec![place], ..document(&format!("t{n:03}"), 0, Some(Map::new())) };
    journal(&format!("c{n}"), vec![document], vec![Append { fed: Some(Fed::to("feed")), ..append(first) }])
}

/// Rows are written ahead of their transaction: of one that does not happen nobody hears.
#[tokio::test]
async fn rows_of_what_did_not_happen_are_passed_over() {
    let bench = bench(1).await;
    for n in 0..60 {
        bench.faults.script("TransactWriteItems", [Fault::throttled()]);
        assert!(bench.store.commit(&announced(n, 1)).await.is_err());
        assert_eq!(bench.faults.left(), 0);
    }
    assert_eq!(read_all(&bench.store, 5).await, (Vec::new(), Vec::new()));
    for (n, first) in [(100, 1), (101, 2)] {
        bench.store.commit(&announced(n, first)).await.expect("it is written");
        let outcome = bench.store.commit(&announced(n + 50, first)).await;
        assert!(matches!(outcome, Err(CommitError::Journal(_))), "{outcome:?}");
    }
    for limit in [1, 5, 100] {
        let documents = vec!["t101".to_owned(), "t100".to_owned()];
        assert_eq!(read_all(&bench.store, limit).await, (vec![1, 2], documents), "pages of {limit}");
    }
    // What is not written ahead is not written at all.
    bench.faults.script("PutItem", [Fault::throttled()]);
    let outcome = bench.store.commit(&announced(200, 3)).await;
    assert!(matches!(outcome, Err(CommitError::Store(StoreError::Unavailable(_)))), "{outcome:?}");
    assert_eq!((bench.store.tip("s").await.expect("an answer").position, bench.faults.left()), (2, 0));
}

/// A row that reports appends from before its own counts only if that one happened, and was to be reported with it.
#[tokio::test]
async fn a_row_for_several_appends_is_passed_over_where_the_last_one_did_not_happen() {
    let bench = bench(1).await;
    let clock = std::sync::Arc::new(dormouse_testkit::ManualClock::default());
    let store = bench.store.clone().timed_by(clock);
    let kept = |tip: &StreamTip, count: usize, later: bool| {
        let (behind, unreported) = (tip.at, tip.unreported);
        let end = StreamEnd::Append(EndOfStream { behind, unreported, later, ..EndOfStream::default() });
        Append { end, entries: vec![Map::new(); count], fed: Some(Fed::to("feed")), ..append(tip.position + 1) }
    };
    let rows = async || {
        let feed = "feed".to_owned();
        let until = Timestamp::MAX;
        let page = store.feed(&FeedRequest { feed, labels: None, after: None, until, limit: 10 }).await;
        let told = |append: FedAppend| (append.row.first, append.row.count, append.entries.len());
        page.expect("an answer").appends.into_iter().map(told).collect::<Vec<_>>()
    };
    let end = async || store.tip("s").await.expect("an answer");
    let send = async |id: &str, append: Append| store.commit(&journal(id, Vec::new(), vec![append])).await;
    send("one", kept(&end().await, 1, true)).await.expect("it is written");
    send("two", kept(&end().await, 2, true)).await.expect("it is written");
    let tip = end().await;
    bench.faults.script("TransactWriteItems", [Fault::throttled()]);
    assert!(send("three", kept(&tip, 1, false)).await.is_err());
    assert_eq!((bench.faults.left(), rows().await), (0, Vec::new()));
    // At the same instant, by another writer: as long, and to be reported later.
    send("four", kept(&tip, 1, true)).await.expect("it is written");
    assert!(rows().await.is_empty(), "the row that was left is of no append");
    let refused = send("five", kept(&tip, 2, false)).await;
    assert!(matches!(refused, Err(CommitError::Journal(_))), "{refused:?}");
    assert!(rows().await.is_empty());
    send("six", kept(&end().await, 1, false)).await.expect("it is written");
    assert_eq!(rows().await, [(1, 5, 5)]);
    send("seven", kept(&end().await, 1, false)).await.expect("it is written");
    assert_eq!(rows().await, [(1, 5, 5), (6, 1, 1)]);
}

/// A row whose transaction was sent again is known by the instant of the attempt that happened.
#[tokio::test]
async fn an_append_whose_answer_was_lost_stands_in_its_feed_once() {
    let bench = bench(8).await;
    bench.faults.script("TransactWriteItems", [Fault::unavailable(), Fault::lost()]);
    bench.store.commit(&announced(1, 1)).await.expect("it is written");
    assert_eq!(bench.faults.left(), 0);
    assert_eq!(read_all(&bench.store, 10).await, (vec![1], vec!["t001".to_owned()]));
}

/// The first versions wrote lists and feeds to one partition each.
#[tokio::test]
async fn what_was_listed_before_lists_were_spread_is_listed() {
    let bench = bench(8).await;
    let client = bench.embedded.client();
    let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
    let number = |n: u64| aws_sdk_dynamodb::types::AttributeValue::N(n.to_string());
    let old = Timestamp::constant(1_700_000_000, 0);
    bench
        .store
        .commit(&journal("old", vec![document("t000", 0, Some(Map::new()))], vec![append(1)]))
        .await
        .expect("made");
    // Batches of then did not know when they were sent.
    let forget =
        client.update_item().table_name(TABLE).key("pk", text("STREAM#s")).key("sk", text(&format!("{:020}", 1)));
    forget.update_expression("REMOVE fed_at").send().await.expect("an update");
    let place = client.put_item().table_name(TABLE).item("pk", text("LIST#all")).item("sk", text("#t000"));
    place.item("record_kind", text("task")).item("record_id", text("t000")).send().await.expect("a row");
    let order = format!("#{:020}-s-{:016x}", old.as_nanosecond(), 1);
    let row = client.put_item().table_name(TABLE).item("pk", text("FEED#feed")).item("sk", text(&order));
    let row = row.item("stream_id", text("s")).item("first_position", number(1)).item("entry_count", number(1));
    row.send().await.expect("a row");
    bench.store.commit(&announced(1, 2)).await.expect("it is written");
    for limit in [1, 10] {
        assert_eq!(read_all(&bench.store, limit).await, (vec![1, 2], vec!["t001".to_owned(), "t000".to_owned()]));
    }
}
