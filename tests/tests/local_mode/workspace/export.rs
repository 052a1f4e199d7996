//! A session that is written whole.

use std::fs;

use serde_json::{Value, json};

use super::world::Project;
use super::{DONE, WORKER};
use crate::assistant::world::Wire;

#[tokio::test(flavor = "multi_thread")]
async fn an_export_holds_everything_that_the_protocol_tells_of_a_session() {
    let large = "all of it\n".repeat(8000);
    let project = Project::of(&[WORKER, ("large.txt", &large)]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let first = project.say(&dormouse, &[("Bash", json!({ "command": "head -c 60000 large.txt" }))]);
    let session = wire.task(&first, &DONE).await.session_id.to_string();
    let second = project.say_in(&dormouse, &session, &[]);
    wire.task(&second, &DONE).await;
    let out = project.path("session.jsonl");
    let export = |more: &[&str]| {
        let written = dormouse.command(&["export", &session]).args(more).output().expect("it runs");
        assert!(written.status.success(), "{written:?}");
        written.stdout
    };
    let told = export(&["--out", &out.display().to_string()]);
    let lines: Vec<Value> = fs::read_to_string(&out)
        .expect("a file")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(String::from_utf8_lossy(&told).contains(&format!("{} lines", lines.len())), "{told:?}");
    assert_eq!((&lines[0]["object"], &lines[0]["id"]), (&json!("session"), &json!(session)));
    let of = |object: &str| lines.iter().filter(|line| line["object"] == object).collect::<Vec<_>>();
    let tasks: Vec<&str> = of("task").into_iter().filter_map(|task| task["id"].as_str()).collect();
    assert!(tasks.len() == 2 && tasks.contains(&&*first) && tasks.contains(&&*second), "{tasks:?}");
    let roles: Vec<&str> = of("message").into_iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user", "assistant"]);
    let artifacts = of("artifact");
    let content = artifacts[0]["content"].as_str().unwrap_or_default();
    assert!(artifacts.len() == 1 && content.contains(&large[..59_990]), "{} bytes", content.len());
    let events = wire.get(&format!("/v1/sessions/{session}/events?limit=200")).await;
    assert_eq!(of("event").len(), events["data"].as_array().map_or(0, Vec::len));
    let bare = String::from_utf8(export(&["--no-content"])).expect("text");
    assert!(bare.lines().count() == lines.len() && !bare.contains(&large[..50_000]));
    let missing = dormouse.command(&["export", "session_01ARZ3NDEKTSV4RRFFQ69G5FAV"]).output().expect("it runs");
    assert_eq!(missing.status.code(), Some(4));
}
