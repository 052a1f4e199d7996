//! The embedded store keeps what it is given, and forgets what has expired.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextMut;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use dormouse_aws::{Belongings, DynamoDbStateStore, EraseSearch, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    Append, Breadth, BufferedSignal, Commit, CommitError, Commits, CounterChange, CounterWrite, DocumentKey,
    DocumentWrite, EndOfStream, Fed, FeedRequest, GrowingLists, InvocationWrite, Journal, JournalConflict,
    LeaseRequest, ListRequest, Listed, Map, Notes, OwnedState, PausedInvocation, Records, SessionExpectation,
    SessionId, SessionWrite, Sessions, SignalDescriptor, SignalId, Signals, Sleepers, StreamEnd, SuspendFrom,
    unfit_note,
};
use jiff::{SignedDuration, Timestamp};

const TABLE: &str = "dormouse";

async fn store(embedded: &EmbeddedDynamoDb) -> DynamoDbStateStore {
    ensure_table(&embedded.client(), TABLE).await.expect("the table is there, made before or now");
    DynamoDbStateStore::new(&embedded.client(), TABLE, StoreConfig::default())
}

#[tokio::test]
async fn data_in_a_folder_survive_a_restart_and_so_does_the_memory_of_a_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = StoreLocation::Folder(folder.path().join("state"));
    let write = |id: &str| SessionWrite {
        session_id: id.into(),
        save: Some((Map::new().into(), "1".to_owned())),
        expect: SessionExpectation::Any,
        lease: None,
        release: false,
    };
    let commit = Commit {
        id: "c1".to_owned(),
        now: Timestamp::UNIX_EPOCH,
        session: Some(write("s1")),
        invocation: None,
        journal: Journal::default(),
        growing: GrowingLists::default(),
    };
    for round in 0..3 {
        let embedded = EmbeddedDynamoDb::start(&place).await.expect("the store starts");
        let store = store(&embedded).await;
        // Request tokens are forgotten with the process, as DynamoDB forgets them after ten minutes.
        store.commit(&commit).await.expect("the same commit is a success in every round");
        let loaded = store.load_session(&"s1".into(), None).await.expect("an answer");
        assert_eq!(loaded.record.map(|record| record.version), Some(1), "round {round}");
        drop(store);
        embedded.stop().await.expect("it stops");
    }
}

#[tokio::test]
async fn a_table_of_the_first_versions_gets_what_it_lacks() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let client = embedded.client();
    let key = |name: &str, role| KeySchemaElement::builder().attribute_name(name).key_type(role).build();
    let text = |name: &str| AttributeDefinition::builder().attribute_name(name).attribute_type("S".into()).build();
    let table = client.create_table().table_name(TABLE).billing_mode(BillingMode::PayPerRequest);
    let table = table.key_schema(key("pk", KeyType::Hash).expect("a key"));
    let table = table.key_schema(key("sk", KeyType::Range).expect("a key"));
    let table = table.attribute_definitions(text("pk").expect("an attribute"));
    table.attribute_definitions(text("sk").expect("an attribute")).send().await.expect("an old table");
    let old = DynamoDbStateStore::new(&client, TABLE, StoreConfig::default());
    assert!(old.dead_claims(Timestamp::now()).await.is_err(), "the index of claims is missing");
    for _ in 0..2 {
        let store = store(&embedded).await;
        assert_eq!(store.dead_claims(Timestamp::now()).await.expect("an answer"), []);
    }
}

/// Of two tenants, and of an earlier version that named none, what is stored beside documents is told apart by its items.
#[tokio::test]
async fn what_a_tenant_began_is_found_and_erased_and_nothing_else() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let now = Timestamp::UNIX_EPOCH;
    let state = |secret: &str| Map::from_iter([("secret".to_owned(), secret.into())]);
    let tenants = [Some("acme"), Some("evil"), None];
    for (place, tenant) in tenants.iter().enumerate() {
        let begun_for = tenant.map(str::to_owned);
        let session = SessionId::from(format!("s{place}"));
        let lease = LeaseRequest { owner: "turn".into(), now, until: now, past: None, begun_for: begun_for.clone() };
        let loaded = store.load_session(&session, Some(&lease)).await.expect("a lease");
        let save = Some((state("Zacharias").into(), "1".to_owned()));
        let expect = SessionExpectation::Any;
        let session = SessionWrite { session_id: session.clone(), save, expect, lease: loaded.lease, release: true };
        let id = format!("i{place}");
        let paused = PausedInvocation {
            session_id: Some(session.session_id.clone()),
            generation: 1,
            descriptor: SignalDescriptor::new(format!("signal{place}")),
            state: state("Zacharias").into(),
            begun_for,
            ..PausedInvocation::before_first_pause(id.as_str().into(), "graph", now)
        };
        let paused = Box::new(paused);
        let write = InvocationWrite::Suspend { paused, from: SuspendFrom::Fresh, claim: None, early: Vec::new() };
        let commit = Commit { session: Some(session), invocation: Some(write), ..Commit::new(id, now) };
        store.commit(&commit).await.expect("it is kept");
    }
    let found = async |by_session: bool, tenant: Option<&str>| {
        let is_theirs = |state: &OwnedState| match state {
            OwnedState::Session { tenant: of, .. } | OwnedState::Invocation { tenant: of, .. } => {
                of.as_deref() == tenant
            }
        };
        let search = EraseSearch { documents: &|_| true, states: &is_theirs, by_session };
        store.eraser().find(&search).await.expect("it answers").1
    };
    let expected = |place: usize, session: bool| {
        let (id, tenant) = (format!("s{place}").into(), tenants[place].map(str::to_owned));
        let session = session.then(|| format!("s{place}").into());
        let run = OwnedState::Invocation {
            id: format!("i{place}").as_str().into(),
            tenant: tenant.clone(),
            session,
            is_open: true,
        };
        [OwnedState::Session { id, tenant }, run]
    };
    for (place, tenant) in tenants.into_iter().enumerate() {
        let mut sorted = found(true, tenant).await;
        sorted.sort_by_key(|state| matches!(state, OwnedState::Invocation { .. }));
        assert_eq!(sorted, expected(place, true), "{tenant:?}");
    }
    assert!(
        found(false, Some("acme")).await.contains(&expected(0, false)[1]),
        "no record is read for what its item names"
    );

    let belongings =
        Belongings { sessions: ["s0".into()].into(), invocations: ["i0".into()].into(), ..Belongings::default() };
    let erased = store.eraser().erase(&belongings).await.expect("it erases");
    assert_eq!((erased.get("session states"), erased.get("invocations")), (Some(&1), Some(&1)), "{erased:?}");
    assert_eq!(found(false, Some("acme")).await, []);
    let (mut left, mut cursor) = (BTreeSet::new(), None);
    loop {
        let page = store.list_pending(None, cursor.as_deref()).await.expect("it answers");
        left.extend(page.items.iter().map(|row| row.invocation_id.to_string()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(left, ["i1".to_owned(), "i2".to_owned()].into());
    assert_eq!(store.load_signal(&"signal0".into(), now).await.expect("an answer"), None);
    assert!(store.load_signal(&"signal1".into(), now).await.expect("an answer").is_some());
    for place in [1, 2] {
        let session = SessionId::from(format!("s{place}"));
        assert!(store.load_session(&session, None).await.expect("an answer").record.is_some(), "{place}");
    }
}

/// A text that no compression makes smaller than half.
fn noise(words: u32) -> String {
    (0..words).map(|place| format!("{:08x}", place.wrapping_mul(2_654_435_761))).collect()
}

/// Lets so many removals through; those behind them the table does not know.
#[derive(Clone, Debug)]
struct SomeRemovals(Arc<AtomicUsize>);

impl Intercept for SomeRemovals {
    fn name(&self) -> &'static str {
        "SomeRemovals"
    }

    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let is_removal = cfg.load::<Metadata>().is_some_and(|metadata| metadata.name() == "DeleteItem");
        let one_less = |left: usize| left.checked_sub(1);
        if is_removal && self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            context.request_mut().headers_mut().insert("x-amz-target", "DynamoDB_20120810.Nothing");
        }
        Ok(())
    }
}

/// An erasure dies behind each of its removals in turn: by what is there still, the next one finds the rest.
#[tokio::test]
async fn while_something_is_left_of_a_session_and_its_invocation_they_are_found() {
    let now = Timestamp::UNIX_EPOCH;
    let messages: Vec<serde_json::Value> = (0..20).map(|_| noise(20).into()).collect();
    let state = [("messages".to_owned(), messages.into()), ("notes".to_owned(), noise(2_000).into())];
    let state = Map::from_iter(state);
    let session = SessionWrite {
        session_id: "s".into(),
        save: Some((state.clone().into(), "1".to_owned())),
        expect: SessionExpectation::Any,
        lease: None,
        release: false,
    };
    let paused = PausedInvocation {
        session_id: Some("s".into()),
        generation: 1,
        // With it the pause is too large for its item.
        descriptor: SignalDescriptor::new("signal").with("question", noise(2_000)),
        state: state.into(),
        ..PausedInvocation::before_first_pause("i".into(), "graph", now)
    };
    let paused = Box::new(paused);
    let write = InvocationWrite::Suspend { paused, from: SuspendFrom::Fresh, claim: None, early: Vec::new() };
    let growing = GrowingLists { fields: vec!["messages".into()], stored: Vec::new() };
    let commit = Commit { session: Some(session), invocation: Some(write), growing, ..Commit::new("c", now) };
    let belongings =
        Belongings { sessions: ["s".into()].into(), invocations: ["i".into()].into(), ..Belongings::default() };
    let search = EraseSearch { documents: &|_| true, states: &|_| true, by_session: true };
    for removals in 0.. {
        let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
        let whole = store(&embedded).await;
        whole.commit(&commit).await.expect("it is kept");
        let dying = SomeRemovals(Arc::new(AtomicUsize::new(removals)));
        let client = Client::from_conf(embedded.config().interceptor(dying).build());
        let config = StoreConfig { page_size: 1, ..StoreConfig::default() };
        let is_done = DynamoDbStateStore::new(&client, TABLE, config).eraser().erase(&belongings).await.is_ok();
        let scanned = embedded.client().scan().table_name(TABLE).send().await.expect("an answer");
        let left = scanned.items.unwrap_or_default().len();
        let found = whole.eraser().find(&search).await.expect("it answers").1;
        let told = format!("behind {removals} removals {left} items are left, and found: {found:?}");
        // Of the pause itself, which goes behind its head, a sweep takes what is left.
        assert!(!found.is_empty() || left <= 1, "{told}");
        let names_session = |state: &OwnedState| match state {
            OwnedState::Session { .. } => true,
            OwnedState::Invocation { session, .. } => session.is_some(),
        };
        assert!(found.iter().all(names_session), "{told}");
        if is_done {
            assert!(
                left == 0 && removals >= 7,
                "heads, a row, a signal, a piece of the list and two blobs: {removals}"
            );
            return;
        }
    }
}

/// What was sent is apart from its signal where it is large.
#[tokio::test]
async fn what_a_tenant_sent_goes_with_its_signal() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let payload = Map::from_iter([("secret".to_owned(), noise(2_000).into())]);
    for tenant in ["acme", "other"] {
        let id = SignalId::from(format!("tenant!{tenant}!early"));
        let received_at = Timestamp::now();
        let expires_at = received_at + SignedDuration::from_hours(1);
        let signal = BufferedSignal { payload: payload.clone(), sender: None, received_at, expires_at };
        store.buffer_signal(&id, &signal).await.expect("an answer");
    }
    let owners = async || {
        let scanned = embedded.client().scan().table_name(TABLE).send().await.expect("an answer");
        let owners = scanned.items.unwrap_or_default().into_iter().filter_map(|mut item| item.remove("owners"));
        owners.map(|owners| owners.as_s().expect("a text").clone()).collect::<Vec<_>>()
    };
    assert_eq!(owners().await.len(), 2, "a blob of each");
    let belongings = Belongings { tenant: Some("acme".to_owned()), ..Belongings::default() };
    let erased = store.eraser().erase(&belongings).await.expect("it erases");
    assert_eq!((erased.get("signals"), erased.get("blobs")), (Some(&1), Some(&1)), "{erased:?}");
    let left = owners().await;
    assert!(left.len() == 1 && left[0].contains("tenant!other!early"), "{left:?}");
}

/// An erasure that ends in the midst leaves documents whose bodies are gone, where these are apart from them.
#[tokio::test]
async fn a_document_is_found_by_what_stands_in_its_item_and_its_body_is_not_read() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let now = Timestamp::UNIX_EPOCH;
    let write = |id: &str, words: u32| {
        let resource = Map::from_iter([("session_id".to_owned(), "s".into())]);
        let body = [("tenant", "acme".into()), ("resource", resource.into()), ("data", noise(words).into())];
        let body = body.map(|(name, value)| (name.to_owned(), value));
        let (key, listed) = (DocumentKey::new("image", id), Vec::new());
        DocumentWrite { key, expect: 0, body: Some(Map::from_iter(body)), listed, expires_at: None }
    };
    let journal = Journal::new(vec![write("large", 200_000), write("small", 1)], Vec::new());
    store.commit(&Commit { journal, ..Commit::new("c", now) }).await.expect("they are kept");
    let client = embedded.client();
    let items = client.scan().table_name(TABLE).send().await.expect("an answer").items.unwrap_or_default();
    let keys = items.into_iter().map(|item| (item["pk"].clone(), item["sk"].clone()));
    let chunks: Vec<_> = keys.filter(|(pk, _)| pk.as_s().is_ok_and(|pk| pk.starts_with("BLOB#"))).collect();
    assert!(!chunks.is_empty(), "the large one is apart");
    for (pk, sk) in chunks {
        client.delete_item().table_name(TABLE).key("pk", pk).key("sk", sk).send().await.expect("it goes");
    }
    let large = DocumentKey::new("image", "large");
    assert!(store.document(&large, now).await.is_err(), "it cannot be read");
    let search = EraseSearch { documents: &|_| true, states: &|_| false, by_session: false };
    let mut found = store.eraser().find(&search).await.expect("it answers").0;
    found.sort_by(|one, other| one.key.cmp(&other.key));
    let told: Vec<_> = found.iter().map(|one| (one.key.id.as_str(), &one.body["resource"]["session_id"])).collect();
    assert_eq!(told, [("large", &"s".into()), ("small", &"s".into())]);
    assert!(found[0].body["tenant"] == "acme" && !found[0].body.contains_key("data"));
    let documents = found.into_iter().map(|one| one.key).collect();
    store.eraser().erase(&Belongings { documents, ..Belongings::default() }).await.expect("it erases");
    assert_eq!(store.eraser().find(&search).await.expect("it answers").0, []);
}

/// Rows of lists are written ahead of their commit. One that does not happen leaves rows that lead to no document and name a
/// session or workspace all the same.
#[tokio::test]
async fn rows_of_a_commit_that_did_not_happen_are_erased_with_what_they_name() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let now = Timestamp::UNIX_EPOCH;
    let document = |kind: &str, id: &str, listed| {
        let (key, body) = (DocumentKey::new(kind, id), Some(Map::new()));
        DocumentWrite { key, expect: 0, body, listed, expires_at: None }
    };
    let commit = |id: &str, documents| {
        let journal = Journal::new(documents, Vec::new());
        Commit { journal, ..Commit::new(id, now) }
    };
    let place = |list: &str, breadth| Listed { list: list.to_owned(), order: "task_lost".to_owned(), breadth };
    let session = document("session", "session_1", Vec::new());
    store.commit(&commit("first", vec![session.clone()])).await.expect("it is kept");
    let wide = Breadth::Wide { label: Some("workspace_1".to_owned()) };
    let listed = vec![
        place("acme/task", wide),
        place("acme/task/session_1", Breadth::Narrow),
        place("acme/task/session_2", Breadth::Narrow),
    ];
    let lost = commit("lost", vec![document("task", "task_lost", listed), session]);
    assert!(store.commit(&lost).await.is_err(), "the session is there already");
    for (owner, rows) in [("session_1", Some(1)), ("session_1", None), ("workspace_1", Some(1)), ("acme", None)] {
        let belongings = Belongings { owners: [owner.to_owned()].into(), ..Belongings::default() };
        let erased = store.eraser().erase(&belongings).await.expect("it erases");
        assert_eq!(erased.get("rows").copied(), rows, "{owner}");
    }
}

/// Somebody of a tenant writes while it is erased: its documents are gone, and rows come after them.
#[tokio::test]
async fn of_a_tenant_no_row_stays_that_leads_to_nothing() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let now = Timestamp::UNIX_EPOCH;
    for tenant in ["acme", "other"] {
        let lost = SignalId::from(format!("tenant!{tenant}!early"));
        let expires_at = Timestamp::now() + SignedDuration::from_hours(1);
        let signal = BufferedSignal { payload: Map::new(), sender: None, received_at: now, expires_at };
        store.buffer_signal(&lost, &signal).await.expect("an answer");
        let append = Append {
            stream: format!("session_{tenant}"),
            end: StreamEnd::Store,
            first: 1,
            entries: vec![Map::new()],
            fed: Some(Fed { feed: format!("{tenant}/event"), label: None }),
        };
        let journal = Journal::new(Vec::new(), vec![append]);
        store.commit(&Commit { journal, ..Commit::new(tenant, now) }).await.expect("it is kept");
    }
    let rows = async || {
        let items =
            embedded.client().scan().table_name(TABLE).send().await.expect("an answer").items.unwrap_or_default();
        let names =
            items.into_iter().map(|item| format!("{}|{}", item["pk"].as_s().unwrap(), item["sk"].as_s().unwrap()));
        names.filter(|name| name.starts_with("FEED#") || name.contains("tenant!")).collect::<Vec<_>>()
    };
    let of = |names: &[String], tenant: &str| names.iter().filter(|name| name.contains(tenant)).count();
    let before = rows().await;
    assert_eq!(
        [of(&before, "acme"), of(&before, "other")],
        [3, 3],
        "a signal, its row and one of the feed: {before:?}"
    );
    let belongings = Belongings { tenant: Some("acme".to_owned()), ..Belongings::default() };
    store.eraser().erase(&belongings).await.expect("it erases");
    let after = rows().await;
    assert_eq!([of(&after, "acme"), of(&after, "other")], [0, 3], "{after:?}");
}

/// A commit that begins the period behind `ending` of the counters `key`.
fn begins(id: &str, key: &DocumentKey, ending: Option<Timestamp>, forget_at: Option<Timestamp>) -> Commit {
    let left = BTreeMap::from([("requests".to_owned(), 1)]);
    let ends_at = Some(ending.unwrap_or(Timestamp::UNIX_EPOCH) + SignedDuration::from_mins(1));
    let change = CounterChange::Begin { ending, left, ends_at, forget_at };
    let journal = Journal { counters: vec![CounterWrite { key: key.clone(), change }], ..Journal::default() };
    Commit { journal, ..Commit::new(id, Timestamp::UNIX_EPOCH) }
}

/// Who is refused for want of what is counted comes again and again: what was written ahead of that would stay for ever.
#[tokio::test]
async fn what_counters_refuse_leaves_no_row() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let now = Timestamp::UNIX_EPOCH;
    let key = DocumentKey::new("counters", "quota_1");
    store.commit(&begins("begin", &key, None, None)).await.expect("they are counted");
    let wide = Breadth::Wide { label: None };
    let taking = |id: &str, amount: i64| {
        let place = |list: &str, breadth| Listed { list: list.to_owned(), order: id.to_owned(), breadth };
        let listed = vec![place("acme/task", wide.clone()), place("acme/task/session_1", Breadth::Narrow)];
        let (task, body) = (DocumentKey::new("task", id), Some(Map::new()));
        let task = DocumentWrite { key: task, expect: 0, body, listed, expires_at: None };
        let append = Append {
            stream: id.to_owned(),
            end: StreamEnd::Append(EndOfStream::default()),
            first: 1,
            entries: vec![Map::new()],
            fed: Some(Fed::to("acme/event")),
        };
        let amounts = BTreeMap::from([("requests".to_owned(), amount)]);
        let change = CounterChange::Take { needs: amounts.clone(), amounts };
        let counters = vec![CounterWrite { key: key.clone(), change }];
        let journal = Journal { counters, ..Journal::new(vec![task], vec![append]) };
        Commit { journal, ..Commit::new(id, now) }
    };
    let rows = async || {
        let scanned = embedded.client().scan().table_name(TABLE).send().await.expect("an answer");
        let partitions = scanned.items.unwrap_or_default().into_iter().filter_map(|mut item| item.remove("pk"));
        let is_row = |pk: &String| pk.starts_with("LIST#") || pk.starts_with("FEED#");
        partitions.filter(|pk| pk.as_s().is_ok_and(is_row)).count()
    };
    let refused = store.commit(&taking("task_1", 2)).await;
    assert!(matches!(refused, Err(CommitError::Journal(JournalConflict::Counters(_)))), "{refused:?}");
    assert_eq!(rows().await, 0);
    store.commit(&taking("task_2", 1)).await.expect("so much is left");
    assert_eq!(rows().await, 3, "two places and a row of the feed");
    let list = "acme/task".to_owned();
    let request = ListRequest { list, breadth: wide.clone(), after: None, limit: 9, newest_first: true, now };
    let listed = store.documents(&request).await.expect("a page").items;
    assert_eq!(listed.iter().map(|task| task.key.id.as_str()).collect::<Vec<_>>(), ["task_2"]);
    let until = Timestamp::now() + SignedDuration::from_hours(1);
    let request = FeedRequest { feed: "acme/event".to_owned(), labels: None, after: None, until, limit: 9 };
    let fed = store.feed(&request).await.expect("a page").appends;
    assert_eq!(fed.iter().map(|append| append.row.stream.as_str()).collect::<Vec<_>>(), ["task_2"]);
}

/// Neither has an owner in its item: they are known by their names.
#[tokio::test]
async fn counters_of_keys_and_notes_of_what_did_not_fit_are_erased() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let tenants = [("acme", false), ("acme2", true)];
    let counters = |tenant: &str| DocumentKey::new("rate", format!("key/{tenant}/0123"));
    let note = |tenant: &str| unfit_note(&format!("of-{tenant}").into(), 1);
    for (tenant, _) in tenants {
        store.commit(&begins(tenant, &counters(tenant), None, None)).await.expect("they are counted");
        store.keep_note(&note(tenant), Some("no number: Zacharias"), None).await.expect("it is noted");
    }
    let belongings = Belongings {
        invocations: ["of-acme".into()].into(),
        counters: Some(DocumentKey::new("rate", "key/acme/")),
        ..Belongings::default()
    };
    let erased = store.eraser().erase(&belongings).await.expect("it erases");
    assert_eq!((erased.get("counters"), erased.get("rows")), (Some(&1), Some(&1)), "{erased:?}");
    for (tenant, is_kept) in tenants {
        let counted = store.counters(&counters(tenant)).await.expect("an answer");
        let noted = store.note(&note(tenant)).await.expect("an answer");
        assert_eq!((counted.is_some(), noted.is_some()), (is_kept, is_kept), "{tenant}");
    }
}

/// Entries of the audit log come without end, and each has a place in its list.
#[tokio::test]
async fn the_place_of_a_document_that_has_expired_is_forgotten() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let now = Timestamp::now();
    let in_days = |days: i64| now + SignedDuration::from_hours(24 * days);
    let write = |id: &str, expires_at| {
        let place = Listed { breadth: Breadth::Wide { label: None }, ..Listed::new("audit", id) };
        let (key, body, listed) = (DocumentKey::new("audit", id), Some(Map::new()), vec![place]);
        DocumentWrite { key, expect: 0, body, listed, expires_at }
    };
    let documents = vec![
        write("old", Some(in_days(-2))),
        write("over", Some(now)),
        write("young", Some(in_days(2))),
        write("kept", None),
    ];
    let journal = Journal::new(documents, Vec::new());
    store.commit(&Commit { journal, ..Commit::new("c", in_days(-3)) }).await.expect("they are kept");
    embedded.sweep().await.expect("it sweeps");
    let scanned = embedded.client().scan().table_name(TABLE).send().await.expect("an answer");
    let items = scanned.items.unwrap_or_default().into_iter();
    let names =
        items.map(|item| (item["pk"].as_s().expect("a text").clone(), item["sk"].as_s().expect("a text").clone()));
    let places: BTreeSet<String> = names.filter(|(pk, _)| pk.starts_with("LIST#audit#")).map(|(_, sk)| sk).collect();
    assert_eq!(places, ["#kept", "#over", "#young"].map(str::to_owned).into(), "a day behind its end one goes");
}

#[tokio::test]
async fn counters_are_forgotten_where_their_last_period_says_so() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let key = |id: &str| DocumentKey::new("rate", id);
    let (past, future) =
        (Timestamp::now() - SignedDuration::from_hours(1), Timestamp::now() + SignedDuration::from_hours(1));
    let periods =
        [("old", [Some(future), Some(past)]), ("young", [Some(past), Some(future)]), ("kept", [Some(past), None])];
    for (id, [first, second]) in periods {
        store.commit(&begins(&format!("{id}-1"), &key(id), None, first)).await.expect("it begins");
        let ending = store.counters(&key(id)).await.expect("an answer").expect("they are there").ends_at;
        store.commit(&begins(&format!("{id}-2"), &key(id), ending, second)).await.expect("the next begins");
    }
    assert_eq!(embedded.sweep().await.expect("it sweeps"), 1);
    assert_eq!(store.counters(&key("old")).await.expect("an answer"), None);
    for id in ["young", "kept"] {
        assert!(store.counters(&key(id)).await.expect("an answer").is_some(), "{id}");
    }
}

#[tokio::test]
async fn what_has_expired_is_swept() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let store = store(&embedded).await;
    let hour = SignedDuration::from_hours(1);
    for (id, expires_at) in [("old", Timestamp::now() - hour), ("young", Timestamp::now() + hour)] {
        let signal = BufferedSignal { payload: Map::new(), sender: None, received_at: expires_at - hour, expires_at };
        store.buffer_signal(&id.into(), &signal).await.expect("an answer");
    }
    assert_eq!(embedded.sweep().await.expect("it sweeps"), 2, "the signal, and the row that counts it");
    let early = Timestamp::UNIX_EPOCH;
    assert_eq!(store.load_signal(&"old".into(), early).await.expect("an answer"), None);
    assert!(store.load_signal(&"young".into(), early).await.expect("an answer").is_some());
}
