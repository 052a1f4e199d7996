//! What a request reads does not grow with what it is not about: reads are counted, time is not measured.

use std::time::Duration;

use serde_json::{Value, json};

use crate::shared_streams::Scene;
use crate::world::{actor, body, ids, text};

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
