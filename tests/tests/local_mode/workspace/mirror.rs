//! The history mirror beside a workspace: it follows, it is made anew when it is missing or damaged, it leaves alone what is
//! not its own, and it is never in the way.

use std::fs;
use std::time::Duration;

use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::request::VERSION_HEADER;
use reqwest::Method;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use super::world::Project;
use super::{DONE, WORKER};
use crate::assistant::world::{Wire, eventually};
use crate::process::{Dormouse, PATIENCE, program, text};

const MIRROR: &str = ".openharness/data/history.db";

/// What `dormouse mirror --status` prints; nothing where it fails.
fn state(project: &Project) -> Option<Value> {
    let asked = program().args(["mirror", "--status", "--into"]).arg(project.path(MIRROR)).output().expect("it runs");
    asked.status.success().then(|| serde_json::from_slice(&asked.stdout).expect("one JSON document"))
}

/// The state, once the mirror has everything that the server tells of.
async fn whole(project: &Project, dormouse: &Dormouse, what: &str) -> Value {
    let seen = async {
        loop {
            let (last, count) = told(dormouse).await;
            let is_whole = |state: &Value| state["last_event_id"] == json!(last) && events(state) == count;
            if let Some(state) = state(project).filter(is_whole) {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("{what}: {:?}", state(project)))
}

fn events(state: &Value) -> u64 {
    state["events"].as_u64().unwrap_or_default()
}

/// The id of the last event, and the number of all, that the server tells of.
async fn told(dormouse: &Dormouse) -> (String, u64) {
    let listed: Value = Wire::of(dormouse).get("/v1/events?limit=200").await;
    let all = listed["data"].as_array().expect("events");
    let last = all.last().and_then(|event| event["id"].as_str()).unwrap_or_default();
    (last.to_owned(), all.len() as u64)
}

async fn work(project: &Project, dormouse: &Dormouse) {
    let task = project.say(dormouse, &[]);
    Wire::of(dormouse).task(&task, &DONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_workspace_is_kept_beside_it() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    let first = whole(&project, &dormouse, "it follows").await;
    assert!(first["status"] == "idle" && first["last_synced_at"].is_string(), "{first}");

    fs::remove_file(project.path(MIRROR)).expect("it is there");
    whole(&project, &dormouse, "a missing one is made anew").await;
    let asked = program().args(["mirror", "--rebuild", "--into"]).arg(project.path(MIRROR)).output().expect("it runs");
    assert!(asked.status.success(), "{asked:?}");
    whole(&project, &dormouse, "it is rebuilt while it is followed").await;

    drop(dormouse);
    fs::write(project.path(MIRROR), vec![b'x'; 20_000]).expect("a file");
    let dormouse = project.serve();
    whole(&project, &dormouse, "a damaged one is made anew").await;
    work(&project, &dormouse).await;
    let last = whole(&project, &dormouse, "and goes on").await;
    assert!(events(&last) > events(&first), "{last}");
}

/// Behind a run it waits for events that may still come, and the end does not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_does_not_wait_for_what_follows() {
    let project = Project::of(&[]).await;
    let cuts = |dormouse: &Dormouse| dormouse.logged().matches("did not end and are cut").count();
    // A busy machine may once need longer than an end has; one that waits for what follows is cut each time.
    for _ in 0..5 {
        let mut dormouse = project.serve();
        work(&project, &dormouse).await;
        whole(&project, &dormouse, "it follows").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = cuts(&dormouse);
        assert!(dormouse.interrupt());
        assert!(dormouse.logged().contains("everything is in the data folder"), "{}", dormouse.logged());
        if cuts(&dormouse) == before {
            return;
        }
    }
    panic!("the end waited for what follows, and was cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn its_tables_have_the_messages_the_tool_calls_and_the_runs_of_hooks() {
    let project = Project::of(&[WORKER]).await;
    let hook = "name: guard\nevents: [before_tool_dispatch]\nhandler:\n  type: command\n  command: 'cat > /dev/null'\n";
    project.write(".openharness/hooks/10-guard.yaml", hook);
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[("Bash", json!({ "command": "echo one" }))]);
    let session = wire.task(&task, &DONE).await.session_id;
    whole(&project, &dormouse, "it follows").await;
    let listed = wire.get(&format!("/v1/sessions/{session}/messages")).await;
    let said = listed["data"].as_array().expect("messages").iter();
    let said: Vec<String> = said
        .map(|one| format!("{} {session} {} {}", text(one, "id"), text(one, "role"), text(&one["parts"][0], "type")))
        .collect();
    assert!(said.len() > 1, "{said:?}");
    let messages = "SELECT id || ' ' || session_id || ' ' || role || ' ' || (content ->> '$[0].type') FROM messages \
                    ORDER BY rowid";
    assert_eq!(rows(&project, messages), said);
    let hooks = "SELECT run_id || ' ' || hook_name || ' ' || (detail ->> '$.event') FROM hook_runs WHERE status != ''";
    assert_eq!(rows(&project, hooks), [format!("{task} guard before_tool_dispatch")]);
    let tools = "SELECT DISTINCT run_id || ' ' || tool_name FROM tool_calls";
    assert_eq!(rows(&project, tools), [format!("{task} Bash")]);
    assert_eq!(rows(&project, "SELECT id FROM events WHERE resource_type IS NULL"), [""; 0]);
}

/// What `sql` finds in the mirror.
fn rows(project: &Project, sql: &str) -> Vec<String> {
    let mirror = Connection::open_with_flags(project.path(MIRROR), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let mirror = mirror.expect("a database");
    let mut asked = mirror.prepare(sql).expect("a question");
    asked.query_map([], |row| row.get(0)).expect("rows").collect::<Result<_, _>>().expect("texts")
}

#[tokio::test(flavor = "multi_thread")]
async fn where_its_last_event_is_of_what_was_deleted_it_goes_on() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    let before = whole(&project, &dormouse, "it follows").await;
    let wire = Wire::of(&dormouse);
    let made = async |key: &str, path: &str, body: Value| {
        let (status, made) = wire.post(path, key, &body).await;
        assert_eq!(status, 201, "{made}");
        text(&made, "id").to_owned()
    };
    let workspace = made("w1", "/v1/workspaces", json!({ "name": "desk", "root": "/desk" })).await;
    made("s1", "/v1/sessions", json!({ "workspace_id": workspace })).await;
    let gone = format!("/v1/workspaces/{workspace}");
    let (status, deleted) = wire.send((Method::DELETE, &gone), "d1", &json!({})).await;
    assert_eq!((status, &deleted["sessions"]), (200, &json!(1)), "{deleted}");
    let last = whole(&project, &dormouse, "it tells of the deletion").await;
    assert!(events(&last) > events(&before), "{last}");
    let workspace = made("w2", "/v1/workspaces", json!({ "name": "desk", "root": "/desk" })).await;
    made("s2", "/v1/sessions", json!({ "workspace_id": workspace })).await;
    let after = whole(&project, &dormouse, "it goes on").await;
    assert!(events(&after) > events(&last), "{after}");
    assert_eq!((&after["status"], &after["begun_again_at"]), (&json!("idle"), &json!(null)), "{after}");
}

/// A server whose data were lost has none of the events that the mirror knows.
#[tokio::test(flavor = "multi_thread")]
async fn where_its_last_event_is_gone_it_keeps_what_it_has_and_reads_what_is_left() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    let before = whole(&project, &dormouse, "it follows").await;
    assert_eq!(before["begun_again_at"], json!(null));
    let other = project.path("../elsewhere.db").display().to_string();
    let once = |dormouse: &Dormouse| {
        let done = dormouse.command(&["mirror", "--once", "--into", &other]).output().expect("it runs");
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).expect("text")
    };
    assert_eq!(once(&dormouse), "");
    let data = dormouse.data().to_owned();
    drop(dormouse);
    fs::remove_dir_all(data).expect("it is there");
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    let seen = async {
        loop {
            let (last, count) = told(&dormouse).await;
            let has_both =
                |state: &Value| state["last_event_id"] == json!(last) && events(state) == events(&before) + count;
            if let Some(state) = state(&project).filter(has_both) {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let after = tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("{:?}", state(&project)));
    assert!(after["status"] == "idle" && after["begun_again_at"].is_string(), "{after}");
    assert!(once(&dormouse).contains("is gone at the server"));
    assert_eq!(once(&dormouse), "");
}

/// Each of the two would find a place in the feed there that it does not know, and read all of its own again.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_servers_of_a_folder_one_keeps_its_history_and_the_other_says_so_until_that_has_ended() {
    let project = Project::of(&[]).await;
    let first = project.serve();
    work(&project, &first).await;
    whole(&project, &first, "it follows").await;
    let place = tempfile::tempdir().expect("a folder");
    let second = Dormouse::start_with(place.path(), &["--workspace", &project.folder(), "--no-tour"]);
    let holder = format!("the server with the data folder `{}`", first.data().display());
    eventually("the second one says who keeps it", || second.logged().contains(&holder)).await;
    work(&project, &second).await;
    work(&project, &first).await;
    let kept = whole(&project, &first, "the first one goes on").await;
    assert_eq!((&kept["status"], &kept["begun_again_at"]), (&json!("idle"), &json!(null)), "{kept}");
    drop(first);
    let (last, _) = told(&second).await;
    let is_at_its_end = || state(&project).is_some_and(|now| now["last_event_id"] == json!(last));
    eventually("the second one keeps it from then on", is_at_its_end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_refused_because_a_server_has_the_data_folder_takes_nothing_of_it_and_leaves_its_definitions() {
    let (project, other) = (Project::of(&[]).await, Project::of(&[("AGENTS.md", "Other rules.\n")]).await);
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    whole(&project, &dormouse, "it follows").await;
    let current = dormouse.data().join("definitions/workspace/current.json");
    let before = fs::read(&current).expect("a file");
    for folder in [project.folder(), other.folder()] {
        let mut second = program();
        second.args(["dev", "--port", "0", "--no-tour", "--workspace", &folder, "--data"]).arg(dormouse.data());
        let refused = second.output().expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("is in use by process") && !said.contains("the history mirror"), "{said}");
    }
    assert!(!other.exists(MIRROR), "it holds the history of another folder");
    assert_eq!(fs::read(&current).expect("a file"), before, "the definitions are those of the server");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_keeps_the_history_of_its_folder_while_it_cannot_go_on() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    whole(&project, &dormouse, "it follows").await;
    let shell = Connection::open(project.path(MIRROR)).expect("a database");
    shell.execute_batch("BEGIN EXCLUSIVE").expect("held");
    work(&project, &dormouse).await;
    let tried = || dormouse.logged().matches("is held by another program").count();
    eventually("it has tried twice", || tried() > 1).await;
    let lock = fs::File::open(project.path(&format!("{MIRROR}.lock"))).expect("a file");
    assert!(matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)), "no other server takes it meanwhile");
    shell.execute_batch("COMMIT").expect("let go");
    whole(&project, &dormouse, "it goes on").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_its_own_stays_and_work_goes_on() {
    let project = Project::of(&[]).await;
    // A database of SQLite with another application's mark: its header, and nothing else of interest.
    let mut foreign = vec![0_u8; 4096];
    foreign[..16].copy_from_slice(b"SQLite format 3\0");
    foreign[16..24].copy_from_slice(&[16, 0, 1, 1, 0, 64, 32, 32]);
    foreign[28..32].copy_from_slice(&1_u32.to_be_bytes());
    foreign[44..48].copy_from_slice(&4_u32.to_be_bytes());
    foreign[56..60].copy_from_slice(&1_u32.to_be_bytes());
    foreign[68..72].copy_from_slice(&77_u32.to_be_bytes());
    foreign[100..108].copy_from_slice(&[13, 0, 0, 0, 0, 16, 0, 0]);
    fs::create_dir_all(project.path(".openharness/data")).expect("a folder");
    fs::write(project.path(MIRROR), &foreign).expect("a file");
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    let asked = program().args(["mirror", "--status", "--into"]).arg(project.path(MIRROR)).output().expect("it runs");
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert_eq!(asked.status.code(), Some(1), "{said}");
    assert!(said.contains("holds something else and stays as it is"), "{said}");
    assert_eq!(fs::read(project.path(MIRROR)).expect("a file"), foreign);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_switched_off_and_for_talk_alone_there_is_none() {
    for settings in ["history_mirror_enabled: false\n", "kind: chat\n"] {
        let project = Project::of(&[(".openharness/settings.yaml", settings)]).await;
        let dormouse = project.serve();
        work(&project, &dormouse).await;
        work(&project, &dormouse).await;
        assert!(!project.exists(MIRROR), "{settings}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_switched_off_and_on_without_a_restart() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    let before = whole(&project, &dormouse, "it is followed").await;
    project.write(".openharness/settings.yaml", "history_mirror_enabled: false\n");
    work(&project, &dormouse).await;
    // Time in which it would have followed.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(state(&project).map(|now| events(&now)), Some(events(&before)), "nothing is added");
    project.write(".openharness/settings.yaml", "history_mirror_enabled: true\n");
    work(&project, &dormouse).await;
    whole(&project, &dormouse, "it has everything again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_stays_one_for_talk_alone_has_none_whatever_its_files_say() {
    let project = Project::of(&[(".openharness/settings.yaml", "kind: chat\n")]).await;
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    project.write(".openharness/settings.yaml", "kind: project\n");
    let dormouse = dormouse.kill_and_restart();
    work(&project, &dormouse).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!project.exists(MIRROR), "it is still for talk alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_followed_from_anywhere() {
    let project = Project::of(&[(".openharness/settings.yaml", "history_mirror_enabled: false\n")]).await;
    let dormouse = project.serve();
    work(&project, &dormouse).await;
    let other = project.path("../elsewhere.db");
    let follow = |workspace: &str| {
        let into = other.display().to_string();
        let arguments = ["mirror", "--once", "--workspace", workspace, "--into", &into];
        dormouse.command(&arguments).output().expect("it runs")
    };
    let listed: Value = Wire::of(&dormouse).get("/v1/workspaces").await;
    let workspace = listed["data"][0]["id"].as_str().expect("a workspace").to_owned();
    assert!(follow(&workspace).status.success());
    let asked = program().args(["mirror", "--status", "--into"]).arg(&other).output().expect("it runs");
    let state: Value = serde_json::from_slice(&asked.stdout).expect("one JSON document");
    assert!(events(&state) > 3 && state["workspace_id"] == json!(workspace), "{state}");
    let refused = follow("workspace_other");
    assert_eq!(refused.status.code(), Some(1), "a mirror is of one workspace: {refused:?}");
    let unmade = project.path("../unmade.db");
    let into = unmade.display().to_string();
    let slip = ["mirror", "--once", "--workspace", "workspace_other", "--into", &into];
    let refused = dormouse.command(&slip).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(4), "there is no such workspace: {refused:?}");
    assert!(!unmade.exists(), "nothing is made for a slip");
}

/// What is left of the requests that the developer's key may make in this minute.
async fn left(dormouse: &Dormouse) -> i64 {
    let request = dormouse_tests::client().get(dormouse.url("/v1/capabilities")).bearer_auth(dormouse.api_key());
    let response = request.header(VERSION_HEADER, PROTOCOL_VERSION).send().await.expect("an answer");
    let told = response.headers()["ratelimit"].to_str().expect("text").to_owned();
    let (_, left) = told.split_once("r=").unwrap_or_else(|| panic!("{told}"));
    left.split(';').next().and_then(|left| left.parse().ok()).unwrap_or_else(|| panic!("{told}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mirror_spends_nothing_of_what_its_user_may_ask() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve_in(&[("DORMOUSE_KEY_RATE", "50000")]);
    let wire = Wire::of(&dormouse);
    work(&project, &dormouse).await;
    let mut known = events(&whole(&project, &dormouse, "it follows").await);
    let workspace = wire.get("/v1/workspaces").await["data"][0]["id"].clone();
    for round in 0.. {
        let before = left(&dormouse).await;
        for number in 0..3 {
            let (status, made) =
                wire.post("/v1/sessions", &format!("{round}-{number}"), &json!({ "workspace_id": workspace })).await;
            assert_eq!(status, 201, "{made}");
        }
        let wanted = known + 3;
        let followed = async {
            while known < wanted {
                known = state(&project).as_ref().map_or(known, events);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, followed).await.expect("it follows");
        let after = left(&dormouse).await;
        // Another minute may have begun meanwhile.
        if after < before {
            assert_eq!(before - after, 4, "three sessions, and the look itself");
            return;
        }
    }
}
