//! Local mode as a person meets it: the real binary, over HTTP, killed at bad moments.
//!
//! `DORMOUSE_BIN` names the binary to test; without it, it is built first. No test asserts how long something takes.

mod access;
mod answers;
mod assistant;
mod bad_receipts;
mod doctor;
mod long;
mod machine;
mod operations;
mod overload;
mod process;
mod protocol;
mod receipts;
mod rotations;
mod sockets;
mod storm;
mod streams;
mod tour;
mod vault;
mod workspace;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::join_all;
use process::{Dormouse, PATIENCE, in_time, program, run_to_end, text};
use serde_json::{Value, json};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn expense() -> Value {
    json!({"state": {"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"}})
}

fn approval(by: &str) -> Value {
    json!({"decision": "approved", "decided_by": by})
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_kill() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let begun = dormouse.turn("expense-approval", &expense()).await;
    assert_eq!(begun["status"], "suspended");

    let dormouse = dormouse.kill_and_restart();
    assert_eq!(dormouse.get(text(&begun, "status_url")).await["status"], "suspended");
    let (status, done) = dormouse.answer(text(&begun, "callback_url"), &approval("Grace")).await;
    assert_eq!((status, &done["status"], done.get("state")), (200, &json!("completed"), None), "{done}");
    assert_eq!(dormouse.completed(&begun).await["state"]["decided_by"], "Grace");

    let dormouse = dormouse.kill_and_restart();
    let (status, again) = dormouse.answer(text(&begun, "callback_url"), &approval("Mallory")).await;
    assert_eq!((status, &again["error"]["decided"]["decided_by"]), (409, &json!("Grace")), "{again}");
    let (status, again) = dormouse.answer(text(&begun, "callback_url"), &approval("Grace")).await;
    assert_eq!((status, &again["repeated"]), (200, &json!(true)), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_names_the_correlation_of_each_turn() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let mut turn = expense();
    turn["correlation_id"] = json!("order-77");
    let begun = dormouse.turn("expense-approval", &turn).await;
    let (status, done) = dormouse.answer(text(&begun, "callback_url"), &approval("Grace")).await;
    assert_eq!(status, 200, "{done}");
    let said = json!({"role": "user", "content": "hello"});
    let (status, answer) = dormouse.answer(&dormouse.url("/chat/chat/sessions/s/messages"), &said).await;
    assert_eq!(status, 200, "{answer}");
    let log = std::fs::read_to_string(dormouse.data().with_extension("log")).expect("a log");
    let of_message = log.lines().find(|line| line.contains("the message was answered")).expect("a line");
    assert!(of_message.contains("invocation_id") && of_message.contains("correlation_id"), "{of_message}");
    let id = text(&begun, "invocation_id");
    let of_turns: Vec<_> = log.lines().filter(|line| line.contains("the turn ") && line.contains(id)).collect();
    assert!(of_turns.len() >= 2 && of_turns.iter().all(|line| line.contains("order-77")), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_asks_for_keys_lets_nobody_else_begin_anything() {
    let folder = folder();
    let dormouse = Dormouse::start_with(folder.path(), &["--authorization", "keys"]);
    let turns = "/graphs/expense-approval/turns";
    let messages = "/chat/chat/sessions/s/messages";
    let said = json!({"role": "user", "content": "hello"});
    for (path, body) in [(turns, &expense()), (messages, &said)] {
        let (status, refused) = dormouse.answer(&dormouse.url(path), body).await;
        assert_eq!((status, &refused["error"]["category"]), (401, &json!("unauthorized")), "{refused}");
    }
    let dormouse = dormouse.with_the_api_key();
    let begun = dormouse.turn("expense-approval", &expense()).await;
    assert_eq!(begun["status"], "suspended");
    let (status, answer) = dormouse.answer(&dormouse.url(messages), &said).await;
    assert_eq!((status, &answer["session_id"]), (200, &json!("s")), "{answer}");
    // The addresses of a pause need nothing but their tokens.
    let (status, done) = dormouse.answer(text(&begun, "callback_url"), &approval("Grace")).await;
    assert_eq!((status, &done["status"]), (200, &json!("completed")), "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_approvals_at_once_are_one_continuation() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let begun = dormouse.turn("expense-approval", &expense()).await;
    let approvals: Vec<_> = (0..50).map(|number| approval(&format!("person {number}"))).collect();
    let callback = text(&begun, "callback_url");
    let answers = join_all(approvals.iter().map(|approval| dormouse.answer(callback, approval))).await;
    let first: Vec<_> = answers.iter().filter(|(_, answer)| answer["repeated"] == false).collect();
    assert_eq!(first.len(), 1, "one of them continues the invocation");
    let decided = &dormouse.completed(&begun).await["state"]["decided_by"];
    for (status, answer) in answers.iter().filter(|(_, answer)| answer["repeated"] != false) {
        assert_eq!((*status, &answer["error"]["decided"]["decided_by"]), (409, decided), "{answer}");
    }
}

/// Approvals are in flight when the process is killed: some were not read, some are claimed, some are done. Each
/// invocation completes, with one decision that never changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_amid_approvals_loses_and_doubles_none() {
    let folder = folder();
    let mut dormouse = Dormouse::start(folder.path());
    for round in 0..4 {
        let mut begun = Vec::new();
        for _ in 0..8 {
            begun.push(dormouse.turn("expense-approval", &expense()).await);
        }
        let acknowledged = approve_and_kill(&mut dormouse, &begun, seconds(round) / 100).await;
        dormouse = dormouse.kill_and_restart();
        for (begun, acknowledged) in begun.iter().zip(acknowledged) {
            approve_until_done(&dormouse, text(begun, "callback_url")).await;
            let done = dormouse.completed(begun).await;
            if acknowledged.is_some() {
                assert_eq!(done["state"]["decided_by"], "the first", "what was answered stands");
            }
        }
    }
}

/// Sends all approvals and kills the process after `delay`. Gives the answers that arrived.
async fn approve_and_kill(dormouse: &mut Dormouse, begun: &[Value], delay: Duration) -> Vec<Option<Value>> {
    let first = approval("the first");
    let asking = join_all(begun.iter().map(|begun| {
        let sent = dormouse_tests::client().post(text(begun, "callback_url")).json(&first).send();
        tokio::spawn(async move { sent.await.ok()?.error_for_status().ok()?.json::<Value>().await.ok() })
    }));
    tokio::time::sleep(delay).await;
    dormouse.kill();
    asking.await.into_iter().map(|answer| answer.expect("no panic")).collect()
}

/// Approves until the answer is final: while a dead worker's claim lasts, the answer is to come again.
async fn approve_until_done(dormouse: &Dormouse, callback: &str) -> Value {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let (status, answer) = dormouse.answer(callback, &approval("the second")).await;
        if status == 200 && answer["status"] == "completed" {
            return answer;
        }
        if status == 409 {
            return json!({ "status": "completed", "repeated": true });
        }
        assert!(matches!(status, 200 | 202 | 503), "{status}: {answer}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{callback} is never done");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overdue_timer_fires_after_a_restart_and_once() {
    let folder = folder();
    let mut dormouse = Dormouse::start(folder.path());
    let reminder = |after: &str| json!({"state": {"text": "stretch", "after": after}});
    let began = Instant::now();
    let soon = dormouse.turn("reminder", &reminder("PT2S")).await;
    let late = dormouse.turn("reminder", &reminder("PT12S")).await;
    dormouse.kill();
    // On a busy machine it may have been sent before the kill: the next process does not know of that.
    let is_killed_in_time = began.elapsed() < seconds(2);
    tokio::time::sleep(seconds(3)).await;

    let dormouse = dormouse.kill_and_restart();
    for reminder in [&soon, &late] {
        assert_ne!(dormouse.completed(reminder).await["state"]["reminded_at"], "");
    }
    let sent = dormouse.published("Reminder Due").await.len();
    assert!(sent == 2 || (sent < 2 && !is_killed_in_time), "each is sent once: {sent}");
    assert!(!dormouse.data().join("timers").exists(), "the store knows what falls due");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_invocation_that_is_named_is_canceled_and_none_whose_address_its_id_looks_like() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let begin = async |id: &str| {
        let mut turn = expense();
        turn["invocation_id"] = json!(id);
        dormouse.turn("expense-approval", &turn).await
    };
    let other = begin("other").await;
    for strange in ["a/../other", "other/cancel?", "other#b", "%6Fther"] {
        let begun = begin(strange).await;
        let canceled = dormouse.command(&["cancel", strange, "--json"]).output().expect("it runs");
        let told: Value =
            serde_json::from_slice(&canceled.stdout).unwrap_or_else(|_| panic!("{strange}: {canceled:?}"));
        assert_eq!((&told["status"], &told["invocation_id"]), (&json!("canceled"), &json!(strange)), "{told}");
        let after = dormouse.get(text(&begun, "status_url")).await;
        assert_eq!(after["error"]["category"], "invocation_canceled", "{strange}: {after}");
    }
    assert_eq!(dormouse.get(text(&other, "status_url")).await["status"], "suspended", "nobody named it");
}

/// How many entries there are in a folder of the data folder, when it has settled.
async fn files(data: &Path, of: &str) -> usize {
    let count = || std::fs::read_dir(data.join(of)).expect("a folder").count();
    let began = Instant::now();
    while count() > 0 && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_event_survives_a_kill() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let export = json!({"state": {"dataset": "orders"}});
    let mut begun = BTreeMap::new();
    for _ in 0..5 {
        let answer = dormouse.turn("export-job", &export).await;
        begun.insert(text(&answer["state"], "job_id").to_owned(), answer);
    }
    assert_eq!(dormouse.published("Export Requested").await.len(), 5);
    for job in begun.keys() {
        let detail = json!({"job_id": job, "status": "succeeded", "url": "https://example.com/orders.csv"});
        let published = dormouse.publish("exporter", "Export Finished", &detail).await;
        assert_eq!(published["matched"][0]["signal_id"], json!(job));
    }
    let dormouse = dormouse.kill_and_restart();
    for begun in begun.values() {
        assert_eq!(dormouse.completed(begun).await["state"]["status"], "succeeded");
    }
    assert_eq!(files(dormouse.data(), "events").await, 0, "no event is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_may_come_as_an_event() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let begun = dormouse.turn("expense-approval", &expense()).await;
    let detail = json!({"signal_id": begun["waiting_for"]["signal_id"], "payload": approval("Grace")});
    for _ in 0..3 {
        let published = dormouse.publish("dormouse", "Dormouse Signal", &detail).await;
        assert_eq!(published["matched"][0]["rule"], "own-signals");
    }
    assert_eq!(dormouse.completed(&begun).await["state"]["decided_by"], "Grace");

    // Nobody can make sense of this one: it is put aside and holds up nothing.
    dormouse.publish("dormouse", "Dormouse Signal", &json!({"signal": 1})).await;
    let dead = || async { dormouse.published("Dormouse Signal").await[0]["delivery"] == "dead_letter" };
    in_time("it is put aside", async {
        while !dead().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(dormouse.interrupt_and_restart().published("Dormouse Signal").await.is_empty(), "it does not come back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_comes_early_is_kept() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let done = json!({"status": "succeeded", "url": "https://example.com/a"});
    let (status, kept) = dormouse.answer(&dormouse.url("/signals/export-early-1"), &done).await;
    assert_eq!((status, &kept["status"]), (202, &json!("buffered")));

    let dormouse = dormouse.kill_and_restart();
    let export = |id: &str| json!({"invocation_id": id, "state": {"dataset": "orders"}});
    let answer = dormouse.turn("export-job", &export("early-1")).await;
    assert_eq!((&answer["status"], &answer["state"]["status"]), (&json!("completed"), &json!("succeeded")));

    // The rule of an earlier wait carries an event to a wait that has not begun.
    dormouse.turn("export-job", &export("late")).await;
    let detail = json!({"job_id": "export-early-2", "status": "failed"});
    dormouse.publish("exporter", "Export Finished", &detail).await;
    let begun = dormouse.turn("export-job", &export("early-2")).await;
    let done = if begun["status"] == "completed" { begun } else { dormouse.completed(&begun).await };
    assert_eq!(done["state"]["status"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_needs_the_key() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    for path in ["/_local/events", "/signals/s"] {
        let asked = dormouse_tests::client().post(dormouse.url(path)).json(&json!({})).send().await;
        assert_eq!(asked.expect("an answer").status().as_u16(), 401, "{path}");
    }
    let asked = dormouse_tests::client().get(dormouse.url("/_local/events")).send().await.expect("an answer");
    assert_eq!(asked.status().as_u16(), 401);
    for (name, value) in [("x-content-type-options", "nosniff"), ("cache-control", "no-store")] {
        assert_eq!(asked.headers().get_all(name).iter().collect::<Vec<_>>(), [value], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_refused() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let large = json!({"state": {"purpose": "x".repeat(2 * 1024 * 1024)}});
    // The connection may be closed before everything is sent.
    match dormouse.post(&dormouse.url("/graphs/expense-approval/turns"), &large).await {
        Ok(response) => assert_eq!(response.status().as_u16(), 413),
        Err(error) => assert!(error.is_request(), "{error}"),
    }
    assert_eq!(dormouse.get(&dormouse.url("/health")).await["status"], "ok");
}

#[test]
fn one_folder_is_for_one_process_and_one_port_too() {
    let other = folder();
    let folder = folder();
    let mut dormouse = Dormouse::start(folder.path());
    let refused = run_to_end(dormouse.data(), 0);
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && complaint.contains(&format!("process {}", dormouse.id())), "{complaint}");

    let refused = run_to_end(&other.path().join("data"), dormouse.port());
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && complaint.contains("--port 0"), "{complaint}");

    assert!(dormouse.interrupt(), "it ends well when it is asked to");
    let again = Dormouse::start(folder.path());
    assert_ne!(again.id(), dormouse.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_for_one_user_also_in_a_folder_that_others_may_read() {
    let folder = folder();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    std::fs::set_permissions(&data, Permissions::from_mode(0o755)).expect("it is ours");
    let dormouse = Dormouse::start(folder.path());
    dormouse.turn("expense-approval", &expense()).await;
    for name in ["dynamodb.sqlite", "dynamodb.sqlite-wal", "events", "signal-key"] {
        let mode = std::fs::metadata(data.join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }
}

#[test]
fn a_first_start_that_is_killed_hinders_no_other() {
    for round in 0..20 {
        let folder = folder();
        let data = folder.path().join("data");
        let mut first = program();
        first.args(["dev", "--no-tour", "--port", "0", "--data"]).arg(&data);
        let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(10 * round));
        first.kill().expect("it can be killed");
        first.wait().expect("it ends");
        // What a kill leaves of the store that is being made is in its way no more than this.
        if round == 0 {
            std::fs::create_dir_all(data.join("store-unfinished")).expect("a folder");
            std::fs::write(data.join("store-unfinished/dynamodb.sqlite"), "half").expect("a file");
        }
        let mut dormouse = Dormouse::start(folder.path());
        assert!(!data.join("store-unfinished").exists(), "{round}");
        assert!(dormouse.interrupt(), "{round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_beside_it_tell_a_proxy_nothing() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    dormouse.turn("expense-approval", &expense()).await;
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    proxy.set_nonblocking(true).expect("it can be asked");
    let through = format!("http://{}", proxy.local_addr().expect("an address"));
    for arguments in [&["pending"][..], &["keys", "list"], &["signal", "early", "{}"]] {
        let mut command = dormouse.command(arguments);
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env(name, &through);
        }
        let done = command.env_remove("no_proxy").env_remove("NO_PROXY").output().expect("it runs");
        assert!(done.status.success(), "{done:?}");
    }
    assert!(proxy.accept().is_err(), "the secret of the store is for this machine");
}

#[test]
fn it_takes_nothing_more_where_its_folder_is_gone() {
    let folder = folder();
    let mut dormouse = Dormouse::start(folder.path());
    std::fs::rename(dormouse.data(), folder.path().join("away")).expect("a folder");
    assert!(!dormouse.ended(), "what it took from now on would be lost");
    assert!(dormouse.logged().contains("was removed while it was in use"), "{}", dormouse.logged());
    std::fs::rename(folder.path().join("away"), dormouse.data()).expect("a folder");
    let mut again = Dormouse::start(folder.path());
    assert!(again.interrupt(), "it goes on when the folder is back");
}

#[test]
fn it_ends_in_order_where_its_terminal_is_closed() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("1");
    // What is started by a test that was started with `nohup` goes on, and rightly.
    if !ignored.trim().ends_with(|digit: char| "02468ace".contains(digit)) {
        return;
    }
    let folder = folder();
    let mut dormouse = Dormouse::start(folder.path());
    let _ = dormouse.tour();
    assert!(dormouse.hang_up(), "it ends well");
    let log = dormouse.logged();
    assert!(log.contains("everything is in the data folder"), "{log}");
}
