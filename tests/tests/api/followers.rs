//! Streams of one session share what they read, and none of them is told later for it, or held up by another one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dormouse_api::{AppendNotifier, LiveText, StreamItem, StreamLimits, Streams};
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};

use crate::shared_streams::{Scene, Stream, settle, told};
use crate::world::{ada, says, text};

/// The query by which `session` alone is followed.
fn only(session: &str) -> String {
    format!("session_id={}", session.rsplit('/').next().unwrap())
}

/// What each of `streams` tells by itself, which is the same.
fn told_alike(streams: &mut [Stream]) -> Vec<String> {
    let mut all: Vec<Vec<String>> = streams.iter_mut().map(told).collect();
    let last = all.pop().unwrap();
    assert!(all.iter().all(|told| *told == last), "{all:?} {last:?}");
    last
}

#[tokio::test]
async fn what_streams_of_a_session_read_does_not_grow_with_their_number() {
    let mut costs = Vec::new();
    for number in [1, 50] {
        let scene = Scene::new();
        let session = scene.world.session().await;
        let mut streams = Vec::new();
        for _ in 0..number {
            streams.push(scene.open(ada(), &only(&session)).await);
        }
        let events = format!("{session}/events");
        let before = scene.listed(&events).await;
        assert_eq!(told_alike(&mut streams), before);
        settle(&scene, &mut streams);
        scene.counting.taken();
        for _ in 0..10 {
            scene.world.clock.advance(Duration::from_secs(2));
            assert_eq!(told_alike(&mut streams), Vec::<String>::new());
        }
        let idle = scene.counting.taken();
        scene.say(&session).await;
        scene.counting.taken();
        let found = told_alike(&mut streams);
        let busy = scene.counting.taken();
        assert!(!found.is_empty());
        assert_eq!(found, scene.listed(&events).await[before.len()..]);
        assert_eq!(told_alike(&mut streams), Vec::<String>::new(), "once");
        costs.push((idle, busy));
    }
    assert_eq!(costs[0], costs[1], "1 stream, and 50");
    assert!(costs[0].0 <= 10 && (1..=2).contains(&costs[0].1), "{costs:?}");
}

#[tokio::test]
async fn a_stream_of_a_session_that_is_deleted_tells_so_and_ends() {
    let scene = Scene::new();
    let workspace = scene.world.workspace().await;
    let session = scene.world.post("/v1/sessions", json!({"workspace_id": workspace})).await;
    let session = format!("/v1/sessions/{}", text(&session["id"]));
    scene.world.post(&format!("{session}/tasks"), says("hello")).await;
    let mut streams = [scene.open(ada(), &only(&session)).await];
    let before = told(&mut streams[0]);
    settle(&scene, &mut streams);
    scene.world.delete(&format!("/v1/workspaces/{workspace}")).await;
    let [stream] = &mut streams;
    let last = told(stream);
    let all = scene.world.get("/v1/events?limit=200").await;
    let is_told = |event: &&Value| last.iter().any(|id| event["id"] == **id);
    let kinds: Vec<_> = all["data"].as_array().unwrap().iter().filter(is_told).map(|one| text(&one["event"])).collect();
    assert!(!before.is_empty() && kinds[0] == "vendor.dormouse.session_deleted", "{kinds:?}");
    assert!(kinds.contains(&"task.canceled"), "what it had begun ends behind that: {kinds:?}");
    scene.world.clock.advance(StreamLimits::default().linger);
    let ended = loop {
        match stream.next().now_or_never() {
            Some(Some(StreamItem::Heartbeat)) => {}
            ended => break ended,
        }
    };
    assert_eq!(ended, Some(None));
}

#[tokio::test]
async fn each_stream_of_a_session_tells_all_that_it_asked_for_once_however_slowly_it_is_read() {
    let scene = Scene::new();
    let session = scene.world.session().await;
    let task = scene.world.post(&format!("{session}/tasks"), says("hello")).await;
    let task = text(&task["id"]);
    let mut streams = Vec::new();
    for query in [only(&session), only(&session), format!("task_id={task}")] {
        streams.push(scene.open(ada(), &query).await);
    }
    let mut have: Vec<Vec<String>> = streams.iter_mut().map(told).collect();
    settle(&scene, &mut streams);
    // More than is kept for who reads slowly.
    for round in 0..300 {
        scene.say(&session).await;
        scene.world.clock.advance(Duration::from_millis(1));
        if round % 7 == 0 {
            have[0].extend(told(&mut streams[0]));
            have[2].extend(told(&mut streams[2]));
        }
    }
    for (have, stream) in have.iter_mut().zip(&mut streams) {
        scene.world.clock.advance(Duration::from_secs(2));
        have.extend(told(stream));
    }
    let all = scene.listed(&format!("{session}/events")).await;
    let of_task = scene.listed(&format!("/v1/tasks/{task}/events")).await;
    assert!(all.len() > 300 && !of_task.is_empty());
    assert_eq!(have, [all.clone(), all, of_task]);
}

/// Each stream looks 100 ms after it was told something, and then after twice the time each, whoever else looks.
#[tokio::test]
async fn what_another_process_writes_is_told_with_the_next_look() {
    let scene = Scene::new();
    let session = scene.world.session().await;
    let nobody_rings = (AppendNotifier::default(), LiveText::default());
    let limits = StreamLimits::default();
    let elsewhere = Streams::new(scene.counting.clone(), scene.world.clock.clone(), nobody_rings, limits.clone(), None);
    for query in [String::new(), only(&session)] {
        for number in [1, 3] {
            let mut streams = Vec::new();
            for _ in 0..number {
                streams.push(scene.try_open(&elsewhere, ada(), &query).await.unwrap());
            }
            told_alike(&mut streams);
            settle(&scene, &mut streams);
            scene.say(&session).await;
            scene.world.clock.advance(limits.poll_latest);
            assert!(!told_alike(&mut streams).is_empty(), "{number} of {query:?}");
            for quiet in 0..5 {
                let mut pause = limits.poll_soonest;
                for _ in 0..quiet {
                    scene.world.clock.advance(pause);
                    assert_eq!(told_alike(&mut streams), Vec::<String>::new());
                    pause *= 2;
                }
                scene.say(&session).await;
                scene.world.clock.advance(pause);
                assert!(!told_alike(&mut streams).is_empty(), "{number} of {query:?}, {quiet} looks without anything");
            }
        }
    }
}

#[tokio::test]
async fn a_read_that_fails_ends_one_of_those_who_share_it_and_the_others_miss_nothing() {
    let scene = Scene::new();
    let session = scene.world.session().await;
    for (query, path) in [(String::new(), "/v1/events".to_owned()), (only(&session), format!("{session}/events"))] {
        let mut streams = Vec::new();
        for _ in 0..4 {
            streams.push(scene.open(ada(), &query).await);
        }
        let before = told_alike(&mut streams);
        settle(&scene, &mut streams);
        let mut first = streams.remove(0);
        scene.counting.fails.store(1, Ordering::SeqCst);
        scene.world.clock.advance(Duration::from_secs(2));
        let Some(Some(StreamItem::Failed { cursor, error })) = first.next().now_or_never() else {
            panic!("it goes on: {query:?}")
        };
        assert_eq!(json!(error)["error"]["code"], "service_unavailable", "{query:?}");
        assert_eq!(Some(&cursor), before.last(), "{query:?}");
        assert_eq!(told_alike(&mut streams), Vec::<String>::new(), "{query:?}");
        scene.say(&session).await;
        let found = told_alike(&mut streams);
        assert!(!found.is_empty(), "{query:?}");
        assert_eq!(found, scene.listed(&path).await[before.len()..], "{query:?}");
        settle(&scene, &mut streams);
        scene.counting.taken();
        scene.world.clock.advance(Duration::from_secs(2));
        assert_eq!(told_alike(&mut streams), Vec::<String>::new(), "{query:?}");
        assert_eq!(scene.counting.taken(), 1, "they share what they read again: {query:?}");
    }
}

#[tokio::test]
async fn a_stream_whose_client_takes_nothing_holds_up_no_other() {
    let scene = Scene::new();
    let session = scene.world.session().await;
    let mut streams = [scene.open(ada(), "").await, scene.open(ada(), "").await];
    let before = told_alike(&mut streams);
    settle(&scene, &mut streams);
    let [mut stuck, mut other] = streams;
    // It reads, and nobody asks it for more meanwhile: its client has to take first what was sent to it.
    scene.counting.gives.store(0, Ordering::SeqCst);
    scene.world.clock.advance(Duration::from_secs(2));
    assert_eq!(told(&mut stuck), Vec::<String>::new());
    scene.counting.gives.store(usize::MAX, Ordering::SeqCst);
    scene.say(&session).await;
    let found = told(&mut other);
    assert_eq!(found, scene.all().await[before.len()..]);
    assert!(!found.is_empty());
    assert_eq!(told(&mut stuck), found);
}
