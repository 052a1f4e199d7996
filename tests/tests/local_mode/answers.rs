//! What sleeps is answered from a terminal, by the command that each line shows for it.

use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::access::post;
use crate::process::{Dormouse, PrintedLines, in_time, program, text};
use crate::{expense, folder};

/// What a command prints, its complaints, and how it ends.
fn said(command: &mut Command) -> (String, String, Option<i32>) {
    let output = command.output().expect("it runs");
    let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (read(&output.stdout), read(&output.stderr), output.status.code())
}

/// Pastes `line` into a shell that finds the binary.
fn pasted(line: &str) -> (String, String, Option<i32>) {
    let program = program();
    let folder = std::path::Path::new(program.get_program()).parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    said(Command::new("sh").args(["-c", line]).env("PATH", path).stdin(Stdio::null()))
}

impl Dormouse {
    fn says(&self, arguments: &[&str]) -> (String, String, Option<i32>) {
        said(program().args(arguments).arg("--data").arg(self.data()))
    }

    /// The command that is shown for `id`: the first one that answers as it is, or else the one that is to be filled in.
    fn shown(&self, id: &str) -> String {
        let (told, complaint, code) = self.says(&["pending", "--json"]);
        assert_eq!(code, Some(0), "{complaint}");
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let row = told["pending"].as_array().and_then(|rows| rows.iter().find(|row| row["invocation_id"] == id));
        let row = row.unwrap_or_else(|| panic!("{id} sleeps: {told}"));
        let command = row["answer_with"].as_str().or_else(|| row["fill_in"].as_str()).expect("a command");
        let (shown, ..) = self.says(&["show", id]);
        assert!(shown.contains(command), "{shown}");
        command.to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_shows_the_command_that_answers_it() {
    // The name of the folder is one that a shell would take apart.
    let outer = folder();
    let inner = outer.path().join("it's here; $HOME");
    std::fs::create_dir(&inner).expect("a folder");
    let dormouse = Dormouse::start(&inner);
    let begin = |id: &str, state: Value| json!({ "invocation_id": id, "state": state });
    for (graph, id, state) in [
        ("expense-approval", "expense-1", expense()["state"].clone()),
        ("reminder", "reminder-1", json!({ "text": "stretch", "after": "P1D" })),
        ("export-job", "export-1", json!({ "dataset": "orders" })),
        ("chat", "chat-1", json!({ "messages": [{ "role": "user", "content": "it needs approval" }] })),
    ] {
        let begun = dormouse.turn(graph, &begin(id, state)).await;
        assert_eq!(begun["status"], "suspended", "{begun}");
        let shown = dormouse.shown(id);
        let filled = shown.replace("<\"succeeded\" or \"failed\">", "\"succeeded\"");
        if filled != shown {
            let (_, complaint, code) = pasted(&shown);
            assert!(code == Some(1) && complaint.contains("must be a JSON object"), "as it is: {complaint}");
        }
        let (printed, complaint, code) = pasted(&filled);
        assert_eq!(code, Some(0), "{complaint}");
        assert!(printed.contains("completed"), "{printed}");
        assert_eq!(dormouse.completed(&begun).await["status"], "completed");
    }
    let begun = dormouse.turn("purchase", &begin("buy-1", json!({ "item": "lathe", "amount_cents": 120_000 }))).await;
    for part in ["ada", "grace"] {
        let command = dormouse.shown("buy-1");
        assert!(command.contains(&format!("--part {part}")), "{command}");
        assert_eq!(pasted(&command).2, Some(0));
    }
    assert_eq!(dormouse.completed(&begun).await["state"]["votes"]["outcome"], "enough");
    // A task is answered through the server, and whoever follows it is told how.
    let expense = r#"{"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}"#;
    let (sent, complaint, code) = dormouse.says(&["send", "--persona", "expense-approval", expense, "--json"]);
    assert_eq!(code, Some(0), "{complaint}");
    let task: Value = serde_json::from_str(&sent).expect("JSON");
    let id = text(&task, "id");
    let mut tail = dormouse.command(&["tail", "--task", id]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = PrintedLines::of(tail.stdout.take().expect("a pipe"));
    let asked = lines.find_map(|line| line.trim().strip_prefix("answer it with: ").map(str::to_owned));
    let (_, complaint, code) = pasted(&asked.expect("it is told"));
    assert_eq!(code, Some(0), "{complaint}");
    assert!(lines.any(|line| line.contains("status   COMPLETED")));
    assert!(tail.wait().expect("it ends").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_is_no_answer_where_nobody_is_asked() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let state = json!({ "invocation_id": "export-1", "state": { "dataset": "orders" } });
    dormouse.turn("export-job", &state).await;
    for word in ["approve", "deny"] {
        let (_, complaint, code) = dormouse.says(&[word, "export-1"]);
        assert_eq!(code, Some(1), "{complaint}");
        for told in ["no person is asked here", "an event", "dormouse answer export-1"] {
            assert!(complaint.contains(told), "{told}: {complaint}");
        }
    }
    let command = dormouse.shown("export-1");
    assert!(command.starts_with("dormouse answer export-1"), "it sleeps on: {command}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_answer_hears_what_was_decided() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let turn = |id: &str| json!({ "invocation_id": id, "state": expense()["state"] });
    for id in ["order-4711", "order-4712"] {
        dormouse.turn("expense-approval", &turn(id)).await;
    }
    let (_, complaint, code) = dormouse.says(&["approve", "order"]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("order-4711, order-4712"), "{complaint}");
    let (_, complaint, code) = dormouse.says(&["answer", "order-4711", r#"{"descision": "approved"}"#]);
    assert!(code == Some(1) && complaint.contains("`descision` is not accepted here"), "{complaint}");
    for pause in ["0", "9"] {
        let (_, complaint, code) = dormouse.says(&["approve", "order-4711", "--pause", pause]);
        assert!(code == Some(1) && complaint.contains(&format!("in no pause {pause}")), "{complaint}");
    }
    let (printed, complaint, code) = dormouse.says(&["approve", "order-4711", "--json"]);
    assert_eq!(code, Some(0), "{complaint}");
    let done: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!((&done["status"], &done["repeated"]), (&json!("completed"), &json!(false)));
    let (_, complaint, code) = dormouse.says(&["deny", "order-4711"]);
    assert_eq!(code, Some(1), "{complaint}");
    assert!(complaint.contains("that answer stands") && complaint.contains(r#""decision":"approved""#), "{complaint}");
    let (printed, _, code) = dormouse.says(&["approve", "order-4711"]);
    assert!(code == Some(0) && printed.contains("repeated       true"), "{printed}");
    // The beginning of an id will do where no other sleeps.
    assert_eq!(dormouse.says(&["deny", "order-47", "--reason", "not this month"]).2, Some(0));
    assert_eq!(dormouse.says(&["approve", "order-48"]).2, Some(4));
    let (_, complaint, code) = dormouse.says(&["approve", "task_01J0000000000000000000000A"]);
    assert_eq!(code, Some(4), "{complaint}");
}

/// Nobody is at the address: a delivery rests between its attempts, and its graph is one that only a server has.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_answered_through_its_server() {
    let outer = folder();
    let mut dormouse = Dormouse::start(outer.path());
    let key = dormouse.api_key();
    let made = async |path: &str, body: Value| {
        let (status, made) = post(&dormouse, path, &key, body).await;
        assert!(status < 300, "{path}: {status} {made}");
        made
    };
    let workspace = made("/v1/workspaces", json!({ "name": "desk", "root": "/" })).await["id"].clone();
    let session = made("/v1/sessions", json!({ "workspace_id": workspace })).await["id"].clone();
    let session = format!("/v1/sessions/{}", session.as_str().expect("an id"));
    // A port that no other test is given.
    made(&format!("{session}/webhooks"), json!({ "url": "http://127.0.0.1:9/hook" })).await;
    let task = json!({ "persona_id": "persona_expense-approval", "input": expense()["state"] });
    made(&format!("{session}/tasks"), task).await;
    // In its second rest, which is a long one: out of the first one it would wake beside the answer.
    let rests = |row: &Value| {
        let wakes = row["due_at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let is_long = wakes.is_some_and(|wakes| wakes > Timestamp::now() + Duration::from_secs(60));
        row["status"] == "asleep" && is_long && text(row, "invocation_id").starts_with("delivery_")
    };
    let resting = async {
        loop {
            let (told, ..) = dormouse.says(&["pending", "--json"]);
            let told: Value = serde_json::from_str(&told).expect("JSON");
            let rows = told["pending"].as_array().cloned().unwrap_or_default();
            if let Some(row) = rows.iter().find(|row| rests(row)) {
                return text(row, "invocation_id").to_owned();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let id = in_time("a delivery rests", resting).await;
    let (printed, complaint, code) = dormouse.says(&["answer", &id, "{}"]);
    assert_eq!(code, Some(0), "{printed} {complaint}");
    assert!(printed.contains("asleep"), "it was tried at once, in vain: {printed}");
    dormouse.kill();
    let (_, complaint, code) = dormouse.says(&["answer", &id, "{}"]);
    assert!(code != Some(0) && complaint.contains("start it"), "{complaint}");
}
