//! Secrets that are planted wherever somebody could say one, and looked for wherever somebody could find one.

use std::collections::BTreeMap;
use std::fs;

use dormouse_local::ScriptedTurn;
use dormouse_protocol::resource::TaskStatus;
use serde_json::{Value, json};

use super::world::{Assistant, Wire};
use super::{DONE, WAITING, rooms};
use crate::process::{Dormouse, text};

/// What only a secret looks like, and each place where it was said.
fn secret(place: &str) -> String {
    format!("sk-planted{place}0123456789abcdefghij")
}

fn ran(dormouse: &Dormouse, arguments: &[&str]) -> String {
    let output = dormouse.command(arguments).output().expect("it runs");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A model that says a secret with each call, and books the room that it is told.
fn leaks(request: &Value) -> ScriptedTurn {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().cloned().unwrap_or_default();
    let said = last["content"].as_str().unwrap_or_default();
    if said.contains("fail") {
        return ScriptedTurn::failing(400, format!("no such thing: {}", secret("error")));
    }
    match last["role"] == "tool" {
        true => ScriptedTurn::saying(format!("done with {}: {said}", secret("answer"))),
        false => ScriptedTurn::saying(format!("I use {}", secret("answer")))
            .and_calling("book", json!({ "room": secret("argument") }).to_string()),
    }
}

/// The status of an answer to what `task` asks, sent under a key of its own that says nothing.
async fn decides(wire: &Wire<'_>, task: &str, fields: Value) -> u16 {
    let parts = json!([{ "type": "json", "value": fields, "visibility": "public" }]);
    let body = json!({ "kind": "input", "message": { "role": "user", "parts": parts, "metadata": {} } });
    wire.post(&format!("/v1/tasks/{task}/messages"), &format!("decides-{task}"), &body).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_anybody_says_is_in_no_receipt_event_export_log_or_replay() {
    let assistant = Assistant::hired().await;
    assistant.answers(leaks);
    let dormouse = assistant.serve();
    let wire = Wire::of(&dormouse);

    let approved = assistant.send(&dormouse, &format!("book with {}", secret("input")));
    wire.task(&approved, &WAITING).await;
    let yes = json!({ "decision": "approve", "reason": format!("use {}", secret("reason")) });
    assert_eq!(decides(&wire, &approved, yes).await, 201);
    let done = wire.task(&approved, &DONE).await;
    assert_eq!(rooms(&assistant), [secret("argument")], "the tool gets what was said");
    let denied = assistant.send(&dormouse, &format!("book with {}", secret("input")));
    wire.task(&denied, &WAITING).await;
    let no = json!({ "decision": "deny", "reason": secret("reason") });
    assert_eq!(decides(&wire, &denied, no).await, 201);
    wire.task(&denied, &DONE).await;
    let failed = assistant.send(&dormouse, &format!("fail with {}", secret("input")));
    let ended = [TaskStatus::Failed];
    let failure = wire.task(&failed, &ended).await;

    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for task in [&approved, &denied, &failed] {
        let session = text(&wire.get(&format!("/v1/tasks/{task}")).await, "session_id").to_owned();
        let replay = wire.post(&format!("/v1/tasks/{task}/replay"), &format!("again-{task}"), &json!({})).await.1;
        let again = text(&replay, "id").to_owned();
        for path in [
            format!("/v1/tasks/{task}/receipts"),
            format!("/v1/tasks/{task}/events?limit=200"),
            format!("/v1/sessions/{session}/events?limit=200"),
            format!("/v1/tasks/{again}/events?limit=200"),
            format!("/v1/tasks/{again}/receipts"),
            format!("/v1/events?task_id={task}&limit=200"),
            format!("/v1/permission-requests?task_id={task}"),
        ] {
            found.insert(path.clone(), wire.get(&path).await.to_string());
        }
        found.insert(format!("the replay {again}"), replay.to_string());
        found.insert(format!("export of {session}"), ran(&dormouse, &["receipts", "export", "--session", &session]));
        found.insert(format!("receipts of {task}"), ran(&dormouse, &["receipts", "list", task]));
        found.insert(format!("difference of {task}"), ran(&dormouse, &["replay", task, "--diff"]));
    }
    found.insert("a failure".to_owned(), json!(failure.failure).to_string());
    found.insert("a report".to_owned(), ran(&dormouse, &["replay", "--since", "1h", "--report"]));
    found.insert("the log".to_owned(), fs::read_to_string(dormouse.data().with_extension("log")).expect("a log"));
    for view in ["/console", "/console/run/task_1", "/console/main.js"] {
        found.insert(
            view.to_owned(),
            dormouse_tests::client().get(dormouse.url(view)).send().await.expect("a page").text().await.expect("text"),
        );
    }
    assert!(done.receipt_id.is_some());
    let leaks: Vec<String> = found
        .iter()
        .filter_map(|(place, text)| {
            let at = text.find("planted")?;
            Some(format!("{place}: …{}", text.get(at.saturating_sub(120)..at + 40).unwrap_or_default()))
        })
        .collect();
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
}
