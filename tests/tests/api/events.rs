//! Events: ranges, single ones, positions and sequences.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_ports::{Append, Clock, Commit, Commits, Fed, Journal, Map, StreamEnd, limits};
use futures::FutureExt;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::late::Meanwhile;
use crate::world::{World, actor, ada, body, ids, says, text};

/// Many at once in one session: every event is there, in a row, with its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_at_once_leave_no_gap() {
    let (world, session) = World::with_session().await;
    world.while_time_passes(writers_at_once(&world, &session)).await;
}

pub(crate) async fn writers_at_once(world: &Arc<World>, session: &str) {
    let writers = (0..12).map(|n| {
        let world = world.clone();
        let session = session.to_owned();
        tokio::spawn(async move {
            if n % 3 == 0 {
                world.post(&format!("{session}/tasks"), says("Hello")).await;
                world.work().await;
            } else if n % 3 == 1 {
                let body = json!({"message": {"role": "user", "parts": [{"type": "text", "text": "Hi"}]}});
                world.post(&format!("{session}/messages"), body).await;
            } else {
                world.post(&format!("{session}/branches"), json!({"kind": "session", "base_ref": "main"})).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    world.work().await;
    let events = world.entries(session.rsplit('/').next().unwrap()).await;
    let mut sequences = BTreeMap::<String, u64>::new();
    let mut before = Value::Null;
    for event in &events {
        assert_eq!(event["previous_event_id"], before);
        before = event["id"].clone();
        let count = sequences.entry(event["resource"].to_string()).or_default();
        *count += 1;
        assert_eq!(event["sequence"], *count, "{event:#}");
    }
    // One for the session, one for each message and branch; of each task five.
    assert_eq!(events.len(), 1 + 8 + 4 * 5);
    assert_eq!(world.get(session).await["last_event_id"], before);
}

#[tokio::test]
async fn ranges_go_on_behind_a_cursor() {
    let (world, session) = World::with_session().await;
    for _ in 0..2 {
        world.post(&format!("{session}/tasks"), says("Hello")).await;
        world.work().await.unwrap();
    }
    let all = world.get(&format!("{session}/events")).await;
    assert_eq!((ids(&all).len(), &all["page"]["has_more"]), (11, &json!(false)));
    for target in ["/v1/events".to_owned(), format!("{session}/events")] {
        let mut read = Vec::new();
        let mut after = String::new();
        loop {
            let page = world.get(&format!("{target}?limit=3{after}")).await;
            read.extend(ids(&page));
            let Some(cursor) = page["page"]["next_cursor"].as_str() else { break };
            after = format!("&after_event_id={cursor}");
        }
        assert_eq!(read, ids(&all), "{target}");
        for (index, event) in ids(&all).iter().enumerate() {
            let rest = world.get(&format!("{target}?after_event_id={event}")).await;
            assert_eq!(ids(&rest), ids(&all)[index + 1..], "{target}");
        }
    }
    for event in all["data"].as_array().unwrap() {
        assert_eq!(world.get(&format!("/v1/events/{}", text(&event["id"]))).await, *event);
    }
}

#[tokio::test]
async fn a_task_has_its_own_events() {
    let (world, session) = World::with_session().await;
    let first = world.post(&format!("{session}/tasks"), says("Hello")).await;
    let second = world.post(&format!("{session}/tasks"), says("Hello")).await;
    world.work().await.unwrap();
    for task in [&first, &second] {
        let list = world.get(&format!("/v1/tasks/{}/events?limit=2", text(&task["id"]))).await;
        let cursor = text(&list["page"]["next_cursor"]);
        let rest = world.get(&format!("/v1/tasks/{}/events?after_event_id={cursor}", text(&task["id"]))).await;
        let both: Vec<&Value> = [&list, &rest].into_iter().flat_map(|l| l["data"].as_array().unwrap()).collect();
        assert_eq!(both.len(), 5);
        assert!(both.iter().all(|event| event["task_id"] == task["id"]));
        let filtered = world.get(&format!("/v1/events?task_id={}", text(&task["id"]))).await;
        assert_eq!(ids(&filtered).len(), 5);
    }
}

#[tokio::test]
async fn a_cursor_that_leads_nowhere_has_expired() {
    let (world, session) = World::with_session().await;
    let other = World::with_session().await;
    let foreign = "event_session_x_0000000000000001";
    let next = text(&world.get(&format!("{session}/events")).await["data"][0]["id"]).replace("0001", "0002");
    drop(other);
    for target in ["/v1/events".to_owned(), format!("{session}/events")] {
        for after in [foreign, "event_x", next.as_str()] {
            for name in ["after_event_id", "cursor"] {
                let target = format!("{target}?{name}={after}");
                let refusal = world.refusal(ada(), "GET", &target, Value::Null).await;
                assert_eq!((refusal.status(), refusal.code().as_str()), (410, "cursor_expired"), "{target}");
                assert_eq!(refusal.param(), Some(name), "{target}");
            }
        }
    }
}

#[tokio::test]
async fn the_events_of_a_tenant_are_its_own() {
    let (world, _) = World::with_session().await;
    let eve = actor("eve", "evil", None);
    let theirs = world.call(eve.clone(), "GET", "/v1/events", &Value::Null, None).await.unwrap();
    assert_eq!(crate::world::body(theirs)["data"], json!([]));
    let mine = ids(&world.get("/v1/events").await);
    let target = format!("/v1/events/{}", mine[0]);
    assert_eq!(world.refusal(eve, "GET", &target, Value::Null).await.status(), 404);
}

/// What others do costs a key that is bound to a workspace nothing, and shows in no cursor of it.
#[tokio::test]
async fn a_bound_key_reads_the_feed_of_its_workspaces() {
    let world = World::new();
    let mine = world.workspace().await;
    let other = world.workspace().await;
    let theirs = world.workspace().await;
    let bob = actor("bob", "acme", Some(&[&mine, &other]));
    let mut wanted = Vec::new();
    for n in 0..60 {
        let workspace = [&mine, &theirs, &theirs, &other, &theirs][n % 5];
        world.clock.advance(std::time::Duration::from_millis(1));
        let made = world.post("/v1/sessions", json!({"workspace_id": workspace})).await;
        if *workspace != theirs {
            wanted.push(text(&made["last_event_id"]).to_owned());
        }
        if n % 20 == 0 {
            let artifact = json!({"kind": "file", "mime_type": "text/plain", "uri": "data:,a", "visibility": "public"});
            let made = world.post("/v1/artifacts", artifact).await;
            wanted.push(format!("event_{}_0000000000000001", text(&made["id"])));
        }
    }
    for limit in [1, 7, 100] {
        let mut read = Vec::new();
        let mut after = String::new();
        loop {
            let target = format!("/v1/events?limit={limit}{after}");
            let page = body(world.call(bob.clone(), "GET", &target, &Value::Null, None).await.unwrap());
            read.extend(ids(&page));
            let Some(cursor) = page["page"]["next_cursor"].as_str() else { break };
            assert!(read.iter().any(|id| id == cursor), "{cursor} is none of his events");
            after = format!("&after_event_id={cursor}");
        }
        assert_eq!(read, wanted, "in pages of {limit}");
    }
}

/// A read looks at so much and no more, also where nothing of it is for the reader, and the next goes on behind that.
#[tokio::test]
async fn a_bound_key_gets_past_what_others_do_a_stretch_at_a_time() {
    let world = World::new();
    let mine = world.workspace().await;
    let theirs = world.workspace().await;
    let bob = actor("bob", "acme", Some(&[&mine]));
    let memory = world.memory.clone().unwrap();
    for first in 1..=9_000_u64 {
        let (stream, entries) = ("session_theirs".to_owned(), vec![Map::new()]);
        let fed = Some(Fed { feed: "acme/event".to_owned(), label: Some(theirs.clone()) });
        let append = Append { stream, end: StreamEnd::Store, first, entries, fed };
        let journal = Journal::new(Vec::new(), vec![append]);
        let commit = Commit { journal, ..Commit::new(format!("theirs-{first}"), world.clock.now()) };
        memory.commit(&commit).await.unwrap();
        world.clock.advance(std::time::Duration::from_nanos(1));
    }
    let made = world.post("/v1/sessions", json!({"workspace_id": mine})).await;
    for path in ["/v1/events", "/v1/events/stream"] {
        let mut found = Vec::new();
        let mut cursors = Vec::<String>::new();
        loop {
            let after = cursors.last().map(|cursor| format!("&after_event_id={cursor}")).unwrap_or_default();
            let target = format!("{path}?limit=10{after}");
            let page = body(world.call(bob.clone(), "GET", &target, &Value::Null, None).await.unwrap());
            found.extend(ids(&page));
            let Some(cursor) = page["page"]["next_cursor"].as_str() else { break };
            assert!(ids(&page).is_empty() && page["page"]["has_more"] == true, "{page}");
            assert!(!cursor.contains("theirs") && cursor.len() <= 200, "{cursor}");
            cursors.push(cursor.to_owned());
        }
        assert_eq!(found, [text(&made["last_event_id"])], "{path}");
        assert!((2..20).contains(&cursors.len()), "{path}: {} pages", cursors.len());
        let eve = actor("eve", "acme", Some(&[&mine]));
        let session = text(&made["last_event_id"]).rsplit_once('_').unwrap().0.strip_prefix("event_").unwrap();
        for (who, target) in [(eve, path.to_owned()), (bob.clone(), format!("/v1/sessions/{session}/events"))] {
            let target = format!("{target}?after_event_id={}", cursors[0]);
            let refusal = world.refusal(who, "GET", &target, Value::Null).await;
            assert_eq!((refusal.status(), refusal.code().as_str()), (410, "cursor_expired"), "{target}");
        }
    }
}

/// A commit takes effect a while after it was sent: until then nobody is told of what came behind it.
#[tokio::test]
async fn nobody_is_told_of_what_may_be_overtaken() {
    let under_way = SignedDuration::from_secs(5);
    let store = Meanwhile { under_way: Some(under_way), ..Meanwhile::default() };
    let memory = store.store.clone();
    let world = World::on(memory.clone(), Arc::new(store), Some(memory));
    let session = world.session().await;
    let own = world.get(&format!("{session}/events")).await;
    assert_eq!(ids(&own).len(), 1, "its own stream is exact");
    let look = async || {
        let looked = world.call(ada(), "GET", "/v1/events/stream", &Value::Null, None).await;
        body(looked.unwrap())
    };
    assert_eq!((ids(&look().await).len(), &look().await["page"]["has_more"]), (0, &json!(false)));
    let asked_at = world.clock.now();
    let told = world.while_time_passes(world.get("/v1/events")).await;
    assert_eq!(ids(&told), ids(&own), "who asks once waits for what was there when he asked");
    assert!(world.clock.now().duration_since(asked_at) >= under_way);
    assert_eq!(ids(&look().await), ids(&own));
}

/// Pages end before they are too long to be answered, and nothing is missing or twice behind their cursors.
#[tokio::test]
async fn pages_of_large_elements_are_cut_by_their_bytes() {
    let (world, session) = World::with_session().await;
    let large = "\u{1}".repeat(limits::PAGE / 6 / 5);
    let sent = 12;
    for n in 0..sent {
        let parts = json!([{ "type": "text", "text": format!("{n}") }, { "type": "text", "text": large }]);
        let body = json!({ "message": { "role": "user", "parts": parts, "metadata": {} } });
        world.post(&format!("{session}/messages"), body).await;
        let artifact = json!({ "kind": "log", "mime_type": "text/plain", "visibility": "public",
            "session_id": session.rsplit('/').next(), "uri": format!("data:,{n}{}", "a".repeat(limits::PAGE / 5)) });
        world.post("/v1/artifacts", artifact).await;
    }
    for (path, word, count) in [
        (format!("{session}/messages"), "cursor", sent),
        (format!("{session}/events"), "after_event_id", 1 + 2 * sent),
        ("/v1/events".to_owned(), "after_event_id", 1 + 2 * sent),
        ("/v1/artifacts".to_owned(), "cursor", sent),
    ] {
        let mut found = Vec::new();
        let mut pages = 0;
        let mut more = String::new();
        loop {
            let page = world.while_time_passes(world.get(&format!("{path}?limit=200{more}"))).await;
            assert!(page.to_string().len() < limits::PAGE + 1000, "{path}");
            found.extend(ids(&page));
            pages += 1;
            let Some(next) = page["page"]["next_cursor"].as_str() else { break };
            more = format!("&{word}={next}");
        }
        let distinct: std::collections::BTreeSet<_> = found.iter().collect();
        assert_eq!((found.len(), distinct.len()), (count, count), "{path}");
        assert!(pages >= 3, "{path}: {pages}");
    }
}

/// Streams look when they are rung for: those of one session by its appends, those of all by the appends of their tenant.
#[tokio::test]
async fn what_a_tenant_does_rings_for_no_stream_of_another() {
    let (world, session) = World::with_session().await;
    let other = world.session().await;
    let listen = |path: &str| world.notifier.listen(path.rsplit('/').next().unwrap());
    let (mut mine, mut next_to_it) = (listen(&session), listen(&other));
    let (mut of_tenant, mut of_another) = (world.notifier.listen("acme/event"), world.notifier.listen("evil/event"));
    let message = json!({"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
    world.post(&format!("{session}/messages"), message).await;
    let rung =
        [&mut mine, &mut of_tenant, &mut next_to_it, &mut of_another].map(|signal| signal.now_or_never().is_some());
    assert_eq!(rung, [true, true, false, false]);
}
