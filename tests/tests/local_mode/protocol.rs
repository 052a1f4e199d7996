//! The protocol through the command line: work is sent, watched, answered; keys come and go.

use std::process::{Child, Output, Stdio};

use dormouse_protocol::request::VERSION_HEADER;
use dormouse_protocol::resource::{Task, TaskStatus};
use dormouse_protocol::{Event, EventKind, PROTOCOL_VERSION};
use serde_json::Value;

use crate::process::{Dormouse, PrintedLines, text};

const EXPENSE: &str = r#"{"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}"#;

fn run(dormouse: &Dormouse, arguments: &[&str]) -> Output {
    dormouse.command(arguments).output().expect("it runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stdout.clone()).expect("text").lines().map(str::to_owned).collect()
}

/// Watches a task from another process, and gives it out once the watched task waits.
fn watch_until_it_waits(dormouse: &Dormouse, task: &str) -> (Child, PrintedLines, Vec<Event>) {
    let watching = dormouse.command(&["tail", "--task", task, "--json"]).stdout(Stdio::piped()).spawn();
    let mut watching = watching.expect("it starts");
    let mut told = PrintedLines::of(watching.stdout.take().expect("a pipe"));
    let mut events: Vec<Event> = Vec::new();
    while events.last().is_none_or(|event| event.event != EventKind::TaskAuthRequired) {
        let line = told.next().unwrap_or_else(|| panic!("it ended before the task waited: {events:?}"));
        events.push(serde_json::from_str(&line).expect("an event"));
    }
    (watching, told, events)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_sent_watched_through_a_crash_and_approved() {
    let folder = tempfile::tempdir().expect("a folder");
    let dormouse = Dormouse::start(folder.path());
    let sent = run(&dormouse, &["send", "--persona", "expense-approval", "--json", EXPENSE]);
    assert!(sent.status.success());
    let id = text(&json(&sent), "id").to_owned();
    let (mut watching, told, mut events) = watch_until_it_waits(&dormouse, &id);
    let dormouse = dormouse.kill_and_restart();
    let approved = run(&dormouse, &["approve", &id, "--follow", "--json"]);
    assert_eq!(approved.status.code(), Some(0), "{:?}", lines(&approved));
    let mut rest: Vec<String> = told.collect();
    assert_eq!(watching.wait().expect("it ends").code(), Some(0));
    let task: Task = serde_json::from_str(&rest.pop().expect("the task")).expect("a task");
    assert_eq!(task.status, TaskStatus::Completed);
    events.extend(rest.iter().map(|line| serde_json::from_str::<Event>(line).expect("an event")));
    let sequences = events.iter().filter(|event| event.resource.id == id).map(|event| event.sequence);
    let sequences: Vec<u64> = sequences.collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>(), "no gap and no repeat");
    assert_eq!(events.last().map(|event| event.event.clone()), Some(EventKind::TaskCompleted));
    let again = run(&dormouse, &["deny", &id]);
    assert_eq!(again.status.code(), Some(1), "it waits for nothing any more");
    assert_eq!(run(&dormouse, &["approve", "task_nobody"]).status.code(), Some(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_is_answered_and_what_fails_is_told_by_the_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let dormouse = Dormouse::start(folder.path());
    let said = run(&dormouse, &["send", "--follow", "Hello, who are you?"]);
    assert_eq!(said.status.code(), Some(0), "{:?}", lines(&said));
    assert!(lines(&said).iter().any(|line| line.contains("script")));
    let complaint = |arguments: &[&str]| {
        let refused = dormouse.command(arguments).stderr(Stdio::piped()).output().expect("it runs");
        (String::from_utf8_lossy(&refused.stderr).into_owned(), refused.status.code())
    };
    let (complained, code) = complaint(&["send", "--persona", "nobody", "{}"]);
    assert_eq!(code, Some(4), "{complained}");
    let names = complained.strip_prefix("error: there is no persona `nobody`; there are ").unwrap_or_default();
    assert!(names.contains("`chat`") && names.contains("`expense-approval`"), "{complained}");
    let (complained, code) = complaint(&["send", "--persona", "chat", "--session", "session_x", "Hello"]);
    assert!(code == Some(4) && complained.contains("there is no such session"), "{code:?} {complained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_what_it_is_for_until_it_is_revoked() {
    let folder = tempfile::tempdir().expect("a folder");
    let dormouse = Dormouse::start(folder.path());
    let create = ["keys", "create", "--actor", "ci", "--scope", "tasks:read", "--json"];
    let endless = run(&dormouse, &create);
    assert_eq!(endless.status.code(), Some(2), "nobody says until when, or for how long");
    let everything = run(&dormouse, &["keys", "create", "--actor", "ci", "--expires-in", "1d"]);
    assert_eq!(everything.status.code(), Some(2), "nobody says for what");
    let made = json(&run(&dormouse, &[&create[..], &["--expires-in", "1d"]].concat()));
    let key = text(&made, "key").to_owned();
    let id = text(&made, "id").to_owned();
    let client = dormouse_tests::client();
    let ask = async |path: &str, key: &str| {
        let request = client.get(dormouse.url(path)).header(VERSION_HEADER, PROTOCOL_VERSION).bearer_auth(key);
        request.send().await.expect("an answer").status().as_u16()
    };
    assert_eq!((ask("/v1/tasks", &key).await, ask("/v1/sessions", &key).await), (200, 403));
    assert_eq!(ask("/v1/sessions", &dormouse.api_key()).await, 200);
    let listed = run(&dormouse, &["keys", "list", "--json"]);
    assert_eq!(json(&listed)["keys"].as_array().map(Vec::len), Some(2));
    let secret = key.rsplit('_').next().expect("a secret");
    assert!(lines(&listed).iter().all(|line| !line.contains(secret)));
    assert_eq!(run(&dormouse, &["keys", "revoke", &key]).status.code(), Some(0), "who found it somewhere has it whole");
    assert_eq!(ask("/v1/tasks", &key).await, 401);
    for gone in [&id, &key] {
        let refused = run(&dormouse, &["keys", "revoke", gone]);
        assert_eq!(refused.status.code(), Some(4));
        assert!(!String::from_utf8_lossy(&refused.stderr).contains(secret), "it is told again");
    }
}
