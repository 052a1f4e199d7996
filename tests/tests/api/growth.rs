//! What a request reads does not grow with what it is not about: reads are counted, time is not measured.

use std::time::Duration;

use serde_json::{Value, json};

use crate::shared_streams::Scene;
use crate::world::{actor, body, ids, says, text};

/// A key for one workspace of many: what is in the others is not read to be left out.
#[tokio::test]
async fn a_list_of_a_bound_key_reads_nothing_of_other_workspaces() {
    let scene = Scene::new();
    let (mine, theirs) = (scene.world.workspace().await, scene.world.workspace().await);
    let bob = actor("bob", "acme", Some(&[&mine]));
    let mut wanted = Vec::new();
    for n in 0..120 {
        let workspace = if n % 40 == 0 { &mine } else { &theirs };
        scene.world.clock.advance(Duration::from_millis(1));
        let made = scene.world.post("/v1/sessions", json!({ "workspace_id": workspace })).await;
        wanted.extend((workspace == &mine).then(|| text(&made["id"]).to_owned()));
    }
    wanted.reverse();
    scene.counting.listed_taken();
    let asked = scene.world.call(bob.clone(), "GET", "/v1/sessions?limit=10", &Value::Null, None).await;
    let page = body(asked.unwrap());
    assert_eq!((ids(&page), &page["page"]["has_more"]), (wanted, &json!(false)), "on the first page");
    assert_eq!(scene.counting.listed_taken(), 3, "of 120");
    let asked = scene.world.call(bob, "GET", "/v1/workspaces?limit=1", &Value::Null, None).await;
    assert_eq!((ids(&body(asked.unwrap())), scene.counting.listed_taken()), (vec![mine], 1));
}

/// Where most of a session is about other tasks, a small page is no reason to read it in small pieces.
#[tokio::test]
async fn a_small_page_of_events_of_a_task_takes_few_reads_behind_much_else() {
    let scene = Scene::new();
    let session = scene.world.session().await;
    let task = scene.world.post(&format!("{session}/tasks"), says("Hello")).await;
    scene.world.work().await.unwrap();
    let path = format!("/v1/tasks/{}/events", text(&task["id"]));
    let last = scene.listed(&path).await.pop().unwrap();
    for _ in 0..500 {
        scene.say(&session).await;
    }
    scene.counting.taken();
    let page = scene.world.get(&format!("{path}?limit=1&after_event_id={last}")).await;
    assert_eq!((ids(&page).len(), &page["page"]["has_more"]), (0, &json!(false)));
    let reads = scene.counting.taken();
    // The task, its cursor, as many as the page has room for, and the rest in pieces of 200.
    assert!(reads <= 7, "{reads} reads");
}
