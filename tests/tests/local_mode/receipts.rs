//! Receipts with the real binary: exported, verified without it, tampered with, signed by the next key, and whole after
//! kills.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use dormouse_receipts::{PublicKey, canonical};
use serde_json::{Value, json};

use crate::process::{Dormouse, program, text};

/// Nobody has said it to anybody but the agent.
const SECRET: &str = "sk-planted0123456789abcdefghij";

pub(crate) fn run(dormouse: &Dormouse, arguments: &[&str]) -> Output {
    dormouse.command(arguments).output().expect("it runs")
}

/// A task that has completed: what the command line tells of it.
pub(crate) fn done(dormouse: &Dormouse, input: &str) -> Value {
    let sent = run(dormouse, &["send", "--follow", "--json", input]);
    assert_eq!(sent.status.code(), Some(0), "{sent:?}");
    let printed = String::from_utf8(sent.stdout).expect("text");
    serde_json::from_str(printed.lines().last().expect("the task")).expect("a task")
}

/// The end of `dormouse receipts verify`, and the codes of what it found.
fn verified(file: &Path, more: &[&str]) -> (Option<i32>, BTreeSet<String>) {
    let place = file.to_str().expect("text");
    let ran = program().args(["receipts", "verify", place, "--json"]).args(more).output().expect("it runs");
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
    let findings = found["files"][0]["findings"].as_array().cloned().unwrap_or_default();
    (ran.status.code(), findings.iter().map(|one| text(one, "code").to_owned()).collect())
}

fn codes(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(ToString::to_string).collect()
}

async fn read(dormouse: &Dormouse, path: &str, accept: &str) -> (String, Vec<u8>) {
    let request = dormouse_tests::client().get(dormouse.url(path)).bearer_auth(dormouse.api_key());
    let version = dormouse_protocol::request::VERSION_HEADER;
    let request = request.header(version, dormouse_protocol::PROTOCOL_VERSION).header("accept", accept);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status().as_u16(), 200);
    let media_type = response.headers()["content-type"].to_str().expect("text").to_owned();
    (media_type, response.bytes().await.expect("bytes").to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_are_proved_without_the_server_and_through_kills_and_the_next_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let dormouse = Dormouse::start(folder.path());
    let ring = dormouse.data().join("receipt-keys");
    assert_eq!(fs::metadata(&ring).expect("a file").permissions().mode() & 0o777, 0o600);
    let discovery = dormouse.get(&dormouse.url("/v1")).await;
    assert_eq!(
        (&discovery["capabilities"]["receipts"], &discovery["capabilities"]["replay"]),
        (&json!(true), &json!(true))
    );
    let said = async |path: &str| {
        let (_, body) = read(&dormouse, path, "application/json").await;
        serde_json::from_slice::<Value>(&body).expect("JSON")["capabilities"].as_array().cloned().expect("a list")
    };
    let card = said("/v1/agent-card").await;
    for id in ["receipts", "replay", "websocket", "connectors", "webhooks", "a2a"] {
        assert!(card.contains(&json!(id)), "{id}: {card:?}");
    }
    for path in ["/v1/capabilities", "/v1/runtime"] {
        let ids: Vec<Value> = said(path).await.iter().map(|one| one["id"].clone()).collect();
        assert_eq!(ids, card, "{path}");
    }

    let first = done(&dormouse, &format!("Hello, my key is {SECRET}"));
    let session = text(&first, "session_id").to_owned();
    let dormouse = dormouse.kill_and_restart();
    let again = run(&dormouse, &["send", "--follow", "--session", &session, "And again"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    let rotated = run(&dormouse, &["receipts", "rotate"]);
    assert_eq!(rotated.status.code(), Some(0), "{rotated:?}");
    let dormouse = dormouse.kill_and_restart();
    assert_eq!(run(&dormouse, &["send", "--follow", "--session", &session, "The last"]).status.code(), Some(0));

    let file = folder.path().join("receipts.jsonl");
    let out = file.to_str().expect("text");
    let exported = run(&dormouse, &["receipts", "export", "--session", &session, "--out", out]);
    assert_eq!(exported.status.code(), Some(0), "{exported:?}");
    let whole = fs::read_to_string(&file).expect("a file");
    assert!(!whole.contains("planted"), "no secret leaves with a receipt");
    let lines: Vec<&str> = whole.lines().collect();
    assert_eq!(lines.len(), 4, "the keys and three receipts");

    let keys = folder.path().join("keys.json");
    let (_, published) = read(&dormouse, "/v1/keys", "application/json").await;
    fs::write(&keys, &published).expect("a file");
    let anchor = ["--anchor", keys.to_str().expect("text")];
    assert_eq!(verified(&file, &anchor), (Some(0), codes(&[])));
    let card = dormouse.get(&dormouse.url("/v1/agent-card")).await;
    check_card(card, &published);

    let write = |lines: &[&str]| {
        let place = folder.path().join("changed.jsonl");
        fs::write(&place, lines.join("\n")).expect("a file");
        place
    };
    let changed = lines[1].replace("SUCCEEDED", "FAILED");
    assert_eq!(
        verified(&write(&[lines[0], &changed, lines[2], lines[3]]), &anchor),
        (Some(3), codes(&["hash_mismatch"]))
    );
    assert_eq!(verified(&write(&[lines[0], lines[1], lines[3]]), &anchor), (Some(3), codes(&["previous_missing"])));
    assert_eq!(verified(&write(&[lines[0], lines[2], lines[1], lines[3]]), &anchor).0, Some(3));
    let one_by_one = folder.path().join("one by one");
    fs::create_dir(&one_by_one).expect("a folder");
    for (number, line) in lines[1..].iter().enumerate() {
        fs::write(one_by_one.join(format!("{number}.json")), line).expect("a file");
    }
    assert_eq!(verified(&one_by_one, &anchor), (Some(0), codes(&[])), "the chain goes from file to file");
    let foreign = dormouse_receipts::SigningKey::from_seed([8; 32]).public().text();
    assert_eq!(verified(&file, &["--anchor", &foreign]), (Some(3), codes(&["unknown_key"])));
    assert_eq!(verified(&file, &["--anchor", "nonsense"]).0, Some(1));
    assert_eq!(verified(&folder.path().join("nothing"), &anchor).0, Some(1));

    let id = text(&first, "receipt_id");
    let (media_type, bytes) = read(&dormouse, &format!("/v1/receipts/{id}"), "application/vnd.harn.receipt+json").await;
    assert_eq!(media_type, "application/vnd.harn.receipt+json; schema=receipt-2026-04-25");
    let receipt: Value = serde_json::from_str(lines[1]).expect("JSON");
    assert_eq!(bytes, canonical::bytes(&receipt).expect("a form"));
    let accept = "application/vnd.harn.receipt+cbor; schema=receipt-2026-04-25, application/json;q=0.5";
    let (media_type, bytes) = read(&dormouse, &format!("/v1/receipts/{id}"), accept).await;
    assert_eq!(media_type, "application/vnd.harn.receipt+cbor; schema=receipt-2026-04-25");
    let Value::Object(receipt) = receipt else { panic!("an object") };
    assert_eq!(bytes, dormouse_receipts::cbor::encode(&receipt).expect("CBOR"));
    replays(&dormouse, &session, text(&first, "id"), folder.path());
    let listed = run(&dormouse, &["receipts", "list", text(&first, "id")]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains(id), "{listed:?}");
    assert_eq!(run(&dormouse, &["receipts", "list", "task_nobody"]).status.code(), Some(4));
}

/// Rounds of kills: `KILLS` (`make soak` sets it).
fn kills() -> usize {
    std::env::var("KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(2)
}

/// Begins tasks in `session`, cancels some and has others approved, until the process is gone.
async fn work(dormouse: &Dormouse, session: &str, client: usize) {
    let client_of = dormouse_tests::client();
    let send = async |path: String, body: Value| {
        let request = client_of.post(dormouse.url(&path)).bearer_auth(dormouse.api_key());
        let version = dormouse_protocol::request::VERSION_HEADER;
        let sent = request.header(version, dormouse_protocol::PROTOCOL_VERSION).json(&body).send().await.ok()?;
        sent.json::<Value>().await.ok()
    };
    for number in client.. {
        let input = json!({ "employee": SECRET, "amount_cents": 12_000 + number, "purpose": "a keyboard" });
        let body = match number % 3 {
            0 => {
                json!({ "input": { "role": "user", "parts": [{ "type": "text", "text": SECRET, "visibility": "public" }] } })
            }
            _ => json!({ "persona_id": "persona_expense-approval", "input": input }),
        };
        let Some(task) = send(format!("/v1/sessions/{session}/tasks"), body).await else { return };
        let Some(id) = task["id"].as_str() else { continue };
        let parts = json!([{ "type": "json", "value": { "approved": true }, "visibility": "public" }]);
        let end = match number % 3 {
            1 => send(format!("/v1/tasks/{id}/cancel"), json!({ "reason": SECRET })).await,
            2 => {
                let message = json!({ "role": "user", "parts": parts });
                send(format!("/v1/tasks/{id}/messages"), json!({ "kind": "tool_confirmation", "message": message }))
                    .await
            }
            _ => Some(task),
        };
        if end.is_none() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_between_receipts_leave_whole_chains() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut dormouse = Dormouse::start(folder.path());
    let mut sessions = BTreeSet::new();
    for round in 0..kills() {
        let first = done(&dormouse, "Hello");
        let second = done(&dormouse, "Hello again");
        let both = [text(&first, "session_id").to_owned(), text(&second, "session_id").to_owned()];
        sessions.extend(both.iter().cloned());
        let clients = futures::future::join_all((0..4).map(|client| work(&dormouse, &both[client % 2], client)));
        let killer = async {
            tokio::time::sleep(std::time::Duration::from_millis(300 + 211 * (round as u64 % 7))).await;
            dormouse.strike();
        };
        futures::join!(clients, killer);
        dormouse = dormouse.kill_and_restart();
    }
    for session in &sessions {
        // What has ended by now: others go on, and end behind the export.
        let (_, tasks) = read(&dormouse, &format!("/v1/sessions/{session}/tasks?limit=200"), "application/json").await;
        let file = folder.path().join(format!("{session}.jsonl"));
        let out = file.to_str().expect("text");
        let exported = run(&dormouse, &["receipts", "export", "--session", session, "--out", out]);
        assert_eq!(exported.status.code(), Some(0), "{exported:?}");
        assert_eq!(verified(&file, &[]), (Some(0), codes(&[])), "{session}");
        let whole = fs::read_to_string(&file).expect("a file");
        assert!(!whole.contains("planted"), "no secret is in a receipt");
        let (_, events) =
            read(&dormouse, &format!("/v1/sessions/{session}/events?limit=200"), "application/json").await;
        assert!(!String::from_utf8_lossy(&events).contains("planted"), "no secret is in an event");
        let tasks: Value = serde_json::from_slice(&tasks).expect("JSON");
        let ended = tasks["data"]
            .as_array()
            .expect("tasks")
            .iter()
            .filter(|task| ["COMPLETED", "FAILED", "CANCELED"].contains(&text(task, "status")));
        for task in ended {
            assert!(whole.contains(text(task, "receipt_id")), "every task that has ended has its receipt: {task}");
        }
    }
    let log = fs::read_to_string(dormouse.data().with_extension("log")).expect("a log");
    assert!(!log.contains("planted"), "no secret is in the log");
}

/// Replays `task` and its session, and replaces something that was not recorded.
fn replays(dormouse: &Dormouse, session: &str, task: &str, folder: &Path) {
    let replayed = run(dormouse, &["replay", task, "--diff"]);
    let printed = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
    assert!(printed.contains("ends as it did") && printed.contains("do not part"), "{printed}");
    let whole = run(dormouse, &["replay", "--session", session]);
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    let report = run(dormouse, &["replay", "--since", "1h", "--report"]);
    assert!(
        String::from_utf8_lossy(&report.stdout).contains("3 replayed: 3 end as they did, 0 differently"),
        "{report:?}"
    );
    let file = folder.join("words.txt");
    fs::write(&file, "Something else.").expect("a file");
    let replaced = format!("llm:main:1={}", file.display());
    let refused = run(dormouse, &["replay", task, "--override", &replaced]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(run(dormouse, &["replay", "task_nobody"]).status.code(), Some(4));
}

/// The card is signed by one of the published keys, over all of it but the signature.
fn check_card(mut card: Value, published: &[u8]) {
    let keys: Value = serde_json::from_slice(published).expect("JSON");
    let keys: Vec<PublicKey> = serde_json::from_value(keys["data"].clone()).expect("keys");
    assert_eq!(keys.len(), 2, "the one that signs, and the one before");
    let signature = card["signature"].clone();
    card.as_object_mut().expect("an object").shift_remove("signature");
    let key = keys.iter().find(|key| signature["key_id"] == key.id.as_str()).expect("a published key");
    assert_eq!(key.retired_at, None, "the one in use");
    let form = canonical::bytes(&card).expect("a form");
    assert!(key.has_signed(&form, text(&signature, "value")), "{card}");
}
