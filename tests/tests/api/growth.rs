//! What a request reads does not grow with what it is not about: reads are counted, time is not measured.

use std::time::Duration;

use dormouse_ports::limits;
use serde_json::{Value, json};

use crate::extended::asking;
use crate::shared_streams::Scene;
use crate::world::{World, actor, ada, body, ids, says, text};

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

/// Nothing that came behind a task is read for its events, and what is made of it later is among them.
#[tokio::test]
async fn events_of_a_task_that_has_ended_are_read_up_to_the_last_that_names_it() {
    let scene = Scene::new();
    let session = scene.world.session().await;
    let tasks = format!("{session}/tasks");
    // One before it: it does not begin with its session.
    scene.world.post(&tasks, says("Hello")).await;
    scene.world.work().await.unwrap();
    let task = text(&scene.world.post(&tasks, says("Hello")).await["id"]).to_owned();
    scene.world.work().await.unwrap();
    let of_task = [format!("/v1/tasks/{task}/events?limit=200"), format!("/v1/events?task_id={task}&limit=200")];
    let first = ids(&scene.world.get(&of_task[0]).await).len();
    for made in 0..3 {
        if made == 1 {
            let artifact = json!({
                "kind": "file", "mime_type": "text/plain", "uri": "data:,a", "visibility": "public", "task_id": task,
            });
            scene.world.post("/v1/artifacts", artifact).await;
        }
        if made == 2 {
            let branch = json!({"kind": "task", "base_ref": "main", "task_id": task});
            scene.world.post(&format!("{session}/branches"), branch).await;
        }
        for _ in 0..100 {
            scene.say(&session).await;
        }
        for path in &of_task {
            scene.counting.entries_taken();
            let page = scene.world.get(path).await;
            assert_eq!((ids(&page).len(), &page["page"]["has_more"]), (first + made, &json!(false)), "{path}");
            let read = scene.counting.entries_taken();
            assert_eq!(read, first + made * 101, "{path}: what lies between, and nothing behind");
            let last = ids(&page).pop().unwrap();
            let rest = scene.world.get(&format!("{path}&after_event_id={last}")).await;
            assert_eq!((ids(&rest).len(), &rest["page"]["has_more"]), (0, &json!(false)), "{path}");
            assert_eq!(scene.counting.entries_taken(), 1, "{path}: the event that it begins behind");
        }
    }
}

/// Those that were answered are stored, and those that wait are made from tasks.
#[tokio::test]
async fn requests_of_one_status_are_looked_for_where_they_are() {
    let scene = Scene::new();
    let mut asked = Vec::new();
    for _ in 0..5 {
        scene.world.clock.advance(Duration::from_millis(1));
        asked.push(text(&asking(&scene.world).await.2["id"]).to_owned());
    }
    let first = asked.remove(0);
    asked.reverse();
    scene.world.post(&format!("/v1/permission-requests/{first}/respond"), json!({"approved": true})).await;
    scene.world.work().await.unwrap();
    for (status, wanted, looked_at) in [("approved", vec![first], 1), ("denied", vec![], 1), ("pending", asked, 5)] {
        scene.counting.listed_taken();
        let page = scene.world.get(&format!("/v1/permission-requests?status={status}")).await;
        assert_eq!((ids(&page), scene.counting.listed_taken()), (wanted, looked_at), "{status}");
    }
}

/// Each event of a session is written with its queue, and who asks for that is given all of it.
#[tokio::test]
async fn a_queue_has_an_end_and_room_again_when_a_task_of_it_is_withdrawn() {
    let (world, session) = World::with_session().await;
    let tasks = format!("{session}/tasks");
    // The first one works.
    world.post(&tasks, says("Hello")).await;
    let first = world.post(&tasks, says("Hello")).await;
    for _ in 2..limits::QUEUED {
        world.post(&tasks, says("Hello")).await;
    }
    let last = world.keyed(&tasks, &says("Hello"), "the last").await.map(body);
    let refusal = world.refusal(ada(), "POST", &tasks, says("Hello")).await;
    assert_eq!((refusal.status(), refusal.code().as_str()), (429, "rate_limited"));
    let response = json!(refusal.into_response("r"));
    assert_eq!(response["error"]["details"]["limit"], "queued_tasks", "{response}");
    let again = world.keyed(&tasks, &says("Hello"), "the last").await.map(body);
    assert_eq!(again, last, "it was taken, and is none more");
    let queue = world.get(&format!("{session}/queue")).await;
    assert_eq!(queue["data"].as_array().unwrap().len(), limits::QUEUED);
    world.post(&format!("/v1/tasks/{}/cancel", text(&first["id"])), json!({})).await;
    assert_eq!(world.post(&tasks, says("Hello")).await["status"], "SUBMITTED");
}

/// Queued tasks may have much to do each: no answer is longer than can be sent.
#[tokio::test]
async fn a_queue_of_large_tasks_is_told_without_the_inputs_that_an_answer_has_no_room_for() {
    let (world, session) = World::with_session().await;
    let (tasks, queue) = (format!("{session}/tasks"), format!("{session}/queue"));
    // The first one works.
    world.post(&tasks, says("Hello")).await;
    let large = "word ".repeat(40_000);
    let mut all = Vec::new();
    for _ in 0..7 {
        all.push(text(&world.post(&tasks, says(&large)).await["id"]).to_owned());
    }
    let omitted = |answer: &Value| -> Vec<Value> {
        let inputs = answer["data"].as_array().unwrap().iter().map(|task| task["input"]["omitted"].clone());
        inputs.filter(|omitted| !omitted.is_null()).collect()
    };
    let told = world.get(&queue).await;
    assert_eq!((ids(&told), omitted(&told).len()), (all.clone(), 2), "five are a megabyte");
    let path = format!("/v1/tasks/{}", all[6]);
    assert!(text(&omitted(&told)[1]["help"]).ends_with(&path), "{:?}", omitted(&told));
    assert_eq!(world.get(&path).await["input"]["parts"][0]["text"], large.as_str());
    let emptied = world.delete(&queue).await;
    assert_eq!((ids(&emptied), omitted(&emptied).len()), (all, 2));
}

/// A workspace with much in it is deleted by many requests: none of them looks at all that the ones before have deleted.
#[tokio::test]
async fn a_deletion_goes_on_where_the_one_before_came() {
    let scene = Scene::new();
    let workspace = scene.world.workspace().await;
    for _ in 0..45 {
        scene.world.post("/v1/sessions", json!({ "workspace_id": workspace })).await;
    }
    let vaults = 1_100;
    for _ in 0..vaults {
        let vault = json!({ "workspace_id": workspace, "provider": "test", "capabilities": [] });
        scene.world.post("/v1/vaults", vault).await;
    }
    let path = format!("/v1/workspaces/{workspace}");
    let mut deleted = Vec::new();
    loop {
        scene.counting.listed_taken();
        let answer = scene.world.delete(&path).await;
        deleted.push((answer["sessions"].as_u64().unwrap(), answer["others"].as_u64().unwrap()));
        // What it deletes, and of each list the page at which the one before ended.
        assert!(scene.counting.listed_taken() <= 500 + 60, "{deleted:?}");
        if answer["complete"] == true {
            break;
        }
    }
    let others: u64 = deleted.iter().map(|(_, others)| others).sum();
    assert_eq!((deleted.len(), deleted[0].0, others), (3, 45, vaults), "{deleted:?}");
}
