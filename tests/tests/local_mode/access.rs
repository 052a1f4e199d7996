//! Who may ask how often, who did what, and how keys are replaced: with the real binary.

use std::process::Output;
use std::time::Instant;

use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::request::VERSION_HEADER;
use dormouse_protocol::resource::TaskStatus;
use reqwest::Response;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::assistant::world::Wire;
use crate::folder;
use crate::process::{Dormouse, in_time, text};

async fn ask(dormouse: &Dormouse, method: reqwest::Method, path: &str, key: &str, body: Option<Value>) -> Response {
    let request = dormouse_tests::client().request(method, dormouse.url(path)).bearer_auth(key);
    let request = request.header(VERSION_HEADER, PROTOCOL_VERSION);
    let request = body.into_iter().fold(request, |request, body| request.json(&body));
    request.send().await.expect("an answer")
}

pub(crate) async fn get(dormouse: &Dormouse, path: &str, key: &str) -> Response {
    ask(dormouse, reqwest::Method::GET, path, key, None).await
}

pub(crate) async fn post(dormouse: &Dormouse, path: &str, key: &str, body: Value) -> (u16, Value) {
    let response = ask(dormouse, reqwest::Method::POST, path, key, Some(body)).await;
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

/// What a command prints as one JSON document.
fn told(dormouse: &Dormouse, arguments: &[&str]) -> Value {
    let output = dormouse.command(&[arguments, &["--json"]].concat()).output().expect("it runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"))
}

pub(crate) fn key(dormouse: &Dormouse, arguments: &[&str]) -> Value {
    told(dormouse, &[&["keys", "create", "--never-expires"], arguments].concat())
}

fn header(response: &Response, name: &str) -> String {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_noisy_tenant_is_told_to_wait_and_a_quiet_one_is_not() {
    let folder = folder();
    let limits = [("DORMOUSE_KEY_RATE", "20"), ("DORMOUSE_TENANT_RATE", "30")];
    let dormouse = Dormouse::start_in(folder.path(), &["--authorization", "keys"], &limits);
    let of = |tenant, actor| key(&dormouse, &["--tenant", tenant, "--actor", actor, "--all-scopes"]);
    let noisy: Vec<Value> = ["a", "b", "c"].map(|actor| of("noisy", actor)).to_vec();
    let quiet = of("quiet", "ada");
    let (mut let_in, mut refused) = (0, 0);
    let began = Instant::now();
    for round in 0..40 {
        for key in &noisy {
            let response = get(&dormouse, "/v1/tasks", text(key, "key")).await;
            match response.status().as_u16() {
                200 => let_in += 1,
                429 => {
                    refused += 1;
                    let after: u64 = header(&response, "retry-after").parse().expect("seconds");
                    assert!((1..=60).contains(&after));
                    assert!(header(&response, "ratelimit").contains("r=0;"), "{:?}", response.headers());
                    let body: Value = response.json().await.expect("JSON");
                    assert_eq!(body["error"]["code"], "rate_limited", "{body}");
                }
                other => panic!("{other}"),
            }
        }
        if round % 4 == 0 {
            let response = get(&dormouse, "/v1/tasks", text(&quiet, "key")).await;
            assert_eq!(response.status(), 200, "the quiet tenant has all of its own");
            assert_eq!(header(&response, "ratelimit-policy"), "\"key\";q=20;w=60, \"tenant\";q=30;w=60");
        }
    }
    // On a busy machine a minute begins anew while it runs.
    let most = 30 * (1 + began.elapsed().as_secs() / 60);
    assert!((30..=most).contains(&let_in) && let_in + refused == 120, "{let_in} let in, {refused} refused");
    // The routes beside the protocol count with it, also where one begins before they are asked.
    let beside = async {
        loop {
            let (status, body) = post(&dormouse, "/graphs/reminder/turns", text(&noisy[0], "key"), json!({})).await;
            if status == 429 {
                return body;
            }
        }
    };
    let body = in_time("the routes beside the protocol are refused", beside).await;
    assert_eq!(body["error"]["category"], "rate_limited", "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_as_many_streams_open_as_are_granted() {
    let folder = folder();
    let dormouse = Dormouse::start_in(folder.path(), &[], &[("DORMOUSE_STREAMS_OF_TENANT", "2")]);
    for tenant in ["one", "another"] {
        let made = key(&dormouse, &["--tenant", tenant, "--actor", "ada", "--all-scopes"]);
        let key = text(&made, "key");
        let (_, workspace) = post(&dormouse, "/v1/workspaces", key, json!({"name": "desk", "root": "/"})).await;
        let (_, session) = post(&dormouse, "/v1/sessions", key, json!({"workspace_id": workspace["id"]})).await;
        let path = format!("/v1/sessions/{}/events/stream", text(&session, "id"));
        let held = [get(&dormouse, &path, key).await, get(&dormouse, &path, key).await];
        assert_eq!(held.each_ref().map(|stream| stream.status().as_u16()), [200, 200]);
        assert_eq!(get(&dormouse, &path, key).await.status(), 429, "the tenant has its two");
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_replaced_and_the_old_one_ends() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let old = key(&dormouse, &["--actor", "ci", "--scope", "tasks:read"]);
    assert_eq!(get(&dormouse, "/v1/tasks", text(&old, "key")).await.status(), 200);
    let new = told(&dormouse, &["keys", "rotate", text(&old, "id"), "--grace", "2s"]);
    assert_eq!((&new["actor"], &new["scopes"], &new["replaced"]), (&old["actor"], &old["scopes"], &old["id"]));
    assert_eq!(get(&dormouse, "/v1/tasks", text(&new, "key")).await.status(), 200);
    assert_eq!(get(&dormouse, "/v1/sessions", text(&new, "key")).await.status(), 403, "no right more");
    in_time("the old key ends", async {
        while get(&dormouse, "/v1/tasks", text(&old, "key")).await.status() != 401 {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    })
    .await;
    assert_eq!(get(&dormouse, "/v1/tasks", text(&new, "key")).await.status(), 200);
    let listed = told(&dormouse, &["keys", "list"]);
    let listed = listed["keys"].as_array().expect("keys");
    let used = listed.iter().find(|key| key["id"] == new["id"]).expect("the new key");
    assert!(used["last_used_at"].is_string(), "{used}");
    let gone = dormouse.command(&["keys", "rotate", "0000000000000000", "--grace", "1h"]).output().expect("it runs");
    assert_eq!(gone.status.code(), Some(4));
    let short = told(&dormouse, &["keys", "create", "--actor", "ci", "--scope", "tasks:read", "--expires-in", "1h"]);
    let new = told(&dormouse, &["keys", "rotate", text(&short, "id"), "--grace", "9h", "--expires-in", "12h"]);
    assert_eq!(new["replaced_until"], short["expires_at"], "no key is taken for longer than it was to be");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_bound_to_workspaces_that_are_there() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let create = ["keys", "create", "--never-expires", "--actor", "ci", "--all-scopes", "--workspace"];
    let refused = dormouse.command(&[&create[..], &["workspace_none"]].concat()).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let (_, workspace) =
        post(&dormouse, "/v1/workspaces", &dormouse.api_key(), json!({"name": "w", "root": "/"})).await;
    let workspace = text(&workspace, "id");
    let of_another = [&create[..], &[workspace, "--tenant", "evil"]].concat();
    assert_eq!(dormouse.command(&of_another).output().expect("it runs").status.code(), Some(4));
    let made = told(&dormouse, &[&create[..], &[workspace]].concat());
    assert_eq!(made["workspaces"], json!([workspace]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_names_a_quota_that_is_there() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let create = ["keys", "create", "--never-expires", "--actor", "ci", "--all-scopes", "--quota"];
    let refused = dormouse.command(&[&create[..], &["quota_none"]].concat()).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let quota = json!({"scope": "tenant", "limits": {"tasks": 1}});
    let (status, quota) = post(&dormouse, "/v1/quotas", &dormouse.api_key(), quota).await;
    assert_eq!(status, 201, "{quota}");
    let of_another = [&create[..], &[text(&quota, "id"), "--tenant", "evil"]].concat();
    assert_eq!(dormouse.command(&of_another).output().expect("it runs").status.code(), Some(4));
    let made = told(&dormouse, &[&create[..], &[text(&quota, "id")]].concat());
    assert_eq!(made["quota_id"], quota["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_kept_who_did_what() {
    let folder = folder();
    let kept = [("DORMOUSE_AUDIT_DAYS", "30")];
    let dormouse = Dormouse::start_in(folder.path(), &["--authorization", "keys"], &kept);
    let owner = dormouse.api_key();
    let eve = key(&dormouse, &["--tenant", "evil", "--actor", "eve", "--all-scopes"]);
    let (_, workspace) = post(&dormouse, "/v1/workspaces", &owner, json!({"name": "w", "root": "/"})).await;
    let (_, session) = post(&dormouse, "/v1/sessions", &owner, json!({"workspace_id": workspace["id"]})).await;
    let cancel = format!("/v1/sessions/{}/close", text(&session, "id"));
    assert_eq!(post(&dormouse, &cancel, text(&eve, "key"), json!({})).await.0, 404);
    let few = key(&dormouse, &["--actor", "few", "--scope", "tasks:read"]);
    assert_eq!(get(&dormouse, "/v1/vaults", text(&few, "key")).await.status(), 403);
    let expense = json!({"state": {"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"}});
    let (status, asleep) = post(&dormouse, "/graphs/expense-approval/turns", &owner, expense).await;
    assert_eq!(status, 202, "{asleep}");
    let answer = json!({"decision": "approved", "decided_by": "Grace"});
    assert_eq!(dormouse.answer(text(&asleep, "callback_url"), &answer).await.0, 200);
    assert_eq!(dormouse.answer(&dormouse.url("/signals/nobody"), &json!({})).await.0, 202);

    let output = dormouse.command(&["audit", "--json"]).output().expect("it runs");
    let lines = String::from_utf8(output.stdout).expect("text");
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let short = |entry: &Value| {
        let who = entry["name"].as_str().or(entry["proof"].as_str()).unwrap_or_default().to_owned();
        (who, text(entry, "action").to_owned(), text(entry, "outcome").to_owned(), entry["status"].as_u64())
    };
    let expected = [
        ("developer", "createWorkspace", "done", 201),
        ("developer", "createSession", "done", 201),
        ("eve", "closeSession", "refused", 404),
        ("few", "listVaults", "refused", 403),
        ("developer", "runGraph", "done", 202),
        ("address", "answerPause", "done", 200),
        ("signal_key", "sendSignal", "done", 202),
    ];
    let expected = expected
        .map(|(who, action, outcome, status)| (who.to_owned(), action.to_owned(), outcome.to_owned(), Some(status)));
    assert_eq!(entries.iter().map(short).collect::<Vec<_>>(), expected, "{lines}");
    for secret in [owner.as_str(), text(&eve, "key"), "token=", "Grace"] {
        assert!(!lines.contains(secret), "{secret}: {lines}");
    }
    let one = told_lines(&dormouse, &["audit", "--tenant", "evil"]);
    assert_eq!(one.len(), 1, "{one:?}");

    let page: Value = get(&dormouse, "/v1/x-audit", text(&eve, "key")).await.json().await.expect("JSON");
    let data = page["data"].as_array().expect("a list");
    assert!(data.len() == 1 && data[0]["actor"] == "eve", "of her own tenant alone: {page}");
    let own: Value = get(&dormouse, "/v1/x-audit?tenant=evil", text(&eve, "key")).await.json().await.expect("JSON");
    assert_eq!(own["data"], page["data"]);
    for other in ["default", "nobodys"] {
        let target = format!("/v1/x-audit?tenant={other}");
        assert_eq!(get(&dormouse, &target, text(&eve, "key")).await.status(), 404, "{other}");
    }
    assert_eq!(get(&dormouse, "/v1/x-audit", text(&few, "key")).await.status(), 403);
    let all: Value = get(&dormouse, "/v1/x-audit?limit=1000", &owner).await.json().await.expect("JSON");
    assert!(all["data"].as_array().is_some_and(|all| all.len() >= expected.len()), "{all}");
}

fn told_lines(dormouse: &Dormouse, arguments: &[&str]) -> Vec<String> {
    let output = dormouse.command(&[arguments, &["--json"]].concat()).output().expect("it runs");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_and_a_tenant_are_erased_with_all_that_is_theirs() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let of = |tenant| text(&key(&dormouse, &["--tenant", tenant, "--actor", "ada", "--all-scopes"]), "key").to_owned();
    let gone = of("gone");
    let kept = of("kept");
    let begin = async |key: &str, secret: &str| {
        let (_, workspace) = post(&dormouse, "/v1/workspaces", key, json!({"name": "w", "root": "/"})).await;
        let (_, session) = post(&dormouse, "/v1/sessions", key, json!({"workspace_id": workspace["id"]})).await;
        let id = text(&session, "id").to_owned();
        let expense = json!({"persona_id": "persona_expense-approval",
            "input": {"employee": secret, "amount_cents": 12_000, "purpose": "a keyboard"}});
        let (status, task) = post(&dormouse, &format!("/v1/sessions/{id}/tasks"), key, expense).await;
        assert_eq!(status, 202, "{task}");
        Wire::by(&dormouse, key).task(text(&task, "id"), &[TaskStatus::AuthRequired]).await;
        (id, text(&task, "id").to_owned())
    };
    let (session, task) = begin(&gone, "Zacharias").await;
    let (second, _) = begin(&gone, "Zacharias").await;
    let (other, others_task) = begin(&kept, "Ada").await;

    let mirror = folder.path().join("mirror.db");
    let mirror = mirror.to_str().expect("a path");
    let holds = |word: &str| {
        let bytes = std::fs::read(mirror).expect("a mirror");
        bytes.windows(word.len()).any(|bytes| bytes == word.as_bytes())
    };
    let mirrored = |word: &str| {
        let followed = dormouse.command(&["mirror", "--once", "--into", mirror]).env("DORMOUSE_KEY", &gone).output();
        assert!(followed.as_ref().is_ok_and(|output| output.status.success()), "{followed:?}");
        holds(word)
    };
    assert!(mirrored("Zacharias") && mirrored(&session) && mirrored(&second), "it was followed");

    let looked = told(&dormouse, &["erase", "session", &session, "--dry-run"]);
    assert_eq!((&looked["documents"]["session"], &looked["would_cancel"]), (&json!(1), &json!(1)), "{looked}");
    let erased = told(&dormouse, &["erase", "session", &session, "--yes", "--mirror", mirror]);
    assert!(erased["mirrored"].as_u64() > Some(3), "{erased}");
    assert!(
        !mirrored(&session) && !mirrored(&task) && mirrored(&second),
        "of the others nothing, and it is followed on"
    );
    assert_eq!(erased["canceled"], 1, "it was asleep, and is ended first: {erased}");
    assert!(erased["events"].as_u64() > Some(0) && erased["invocations"].as_u64() > Some(0), "{erased}");
    for path in [format!("/v1/sessions/{session}"), format!("/v1/tasks/{task}")] {
        assert_eq!(get(&dormouse, &path, &gone).await.status(), 404, "{path}");
    }
    let listed: Value = get(&dormouse, "/v1/sessions", &gone).await.json().await.expect("JSON");
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{listed}");
    let events: Value = get(&dormouse, "/v1/events", &gone).await.json().await.expect("JSON");
    assert!(!events.to_string().contains(&session) && events.to_string().contains(&second), "{events}");
    for mirrors in [&[][..], &["--mirror", mirror]] {
        let again = dormouse.command(&["erase", "session", &session, "--yes"]).args(mirrors).output().expect("it runs");
        assert_eq!(again.status.code(), Some(4));
    }
    let (third, _) = begin(&gone, "Zacharias").await;
    let (fourth, fourths_task) = begin(&gone, "Zacharias").await;
    assert!(mirrored(&third) && mirrored(&fourth));
    for session in [&third, &fourth] {
        told(&dormouse, &["erase", "session", session, "--yes"]);
        assert!(mirrored(session), "that mirror was not named");
    }
    let late = told(&dormouse, &["erase", "session", &third, "--yes", "--mirror", mirror]);
    assert!(late["mirrored"].as_u64() > Some(3) && late["canceled"] == 0 && !holds(&third), "{late}");

    for key in [&gone, &kept] {
        let (status, parked) = post(&dormouse, "/signals/nobody-yet", key, json!({"whose": "Zacharias"})).await;
        assert_eq!((status, &parked["status"]), (202, &json!("buffered")), "{parked}");
    }
    let erased = told(&dormouse, &["erase", "tenant", "gone", "--wait", "0", "--yes", "--mirror", mirror]);
    assert_eq!(erased["canceled"], 1, "{erased}");
    for word in [&second, &fourth, &fourths_task, "Zacharias"] {
        assert!(!holds(word), "{word}: also of what was erased before");
    }
    let (status, parked) = post(&dormouse, "/signals/nobody-yet", &kept, json!({"whose": "Ada"})).await;
    assert_eq!(status, 400, "the first of that tenant stands: {parked}");
    assert_eq!(get(&dormouse, "/v1/sessions", &gone).await.status(), 401, "its key is gone, too");
    let task: Value = get(&dormouse, &format!("/v1/tasks/{others_task}"), &kept).await.json().await.expect("JSON");
    assert_eq!((&task["status"], &task["session_id"]), (&json!("AUTH_REQUIRED"), &json!(other)), "of others nothing");
    let asleep = dormouse.command(&["pending", "--json"]).output().expect("it runs");
    assert!(!String::from_utf8_lossy(&asleep.stdout).contains("Zacharias"));
    assert!(erased["signals"].as_u64() >= Some(2), "of its pause, and the one that came early: {erased}");
}

/// Erases what `named` names, beside those who go on writing to it until it is: they are not waited for where it fails.
async fn erased(dormouse: &Dormouse, named: &[&str]) -> Output {
    let erase = dormouse.command(&[&["erase"][..], named, &["--yes", "--json"]].concat());
    let erased = tokio::process::Command::from(erase).output().await.expect("it runs");
    assert!(erased.status.success(), "{named:?}: {erased:?}");
    erased
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_erased_although_it_goes_on_writing() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let of = |tenant| text(&key(&dormouse, &["--tenant", tenant, "--actor", "ada", "--all-scopes"]), "key").to_owned();
    let (gone, kept) = (of("gone"), of("kept"));
    let (_, of_kept) = post(&dormouse, "/v1/workspaces", &kept, json!({"name": "w", "root": "/"})).await;
    let writing = async {
        let mut written = 0;
        loop {
            match post(&dormouse, "/v1/workspaces", &gone, json!({"name": "w", "root": "/"})).await.0 {
                201 => written += 1,
                401 => return written,
                other => panic!("{other}"),
            }
        }
    };
    let erasing = async {
        while get(&dormouse, "/v1/workspaces", &gone).await.json::<Value>().await.expect("JSON")["data"][4].is_null() {}
        erased(&dormouse, &["tenant", "gone", "--wait", "0"]).await
    };
    let (written, erased) = in_time("it is erased", async { tokio::join!(writing, erasing) }).await;
    let told: Value = serde_json::from_slice(&erased.stdout).unwrap_or_else(|_| panic!("{erased:?}"));
    assert!(written >= 5 && told["documents"].as_u64() > Some(written), "{written} were written: {told}");
    assert_eq!(
        dormouse.command(&["erase", "tenant", "gone", "--dry-run"]).output().expect("it runs").status.code(),
        Some(4)
    );
    let path = format!("/v1/workspaces/{}", text(&of_kept, "id"));
    assert_eq!(get(&dormouse, &path, &kept).await.status(), 200, "of others nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_and_a_workspace_are_erased_although_tasks_are_submitted_to_them() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let ada = text(&key(&dormouse, &["--tenant", "acme", "--actor", "ada", "--all-scopes"]), "key").to_owned();
    let (_, workspace) = post(&dormouse, "/v1/workspaces", &ada, json!({"name": "w", "root": "/"})).await;
    let workspace = text(&workspace, "id").to_owned();
    let expense = json!({"persona_id": "persona_expense-approval",
        "input": {"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"}});
    for kind in ["session", "workspace"] {
        let (_, session) = post(&dormouse, "/v1/sessions", &ada, json!({"workspace_id": workspace})).await;
        let session = text(&session, "id").to_owned();
        let tasks = format!("/v1/sessions/{session}/tasks");
        let mut submitted = Vec::new();
        for _ in 0..3 {
            submitted.push(text(&post(&dormouse, &tasks, &ada, expense.clone()).await.1, "id").to_owned());
        }
        let writing = async {
            loop {
                let (status, task) = post(&dormouse, &tasks, &ada, expense.clone()).await;
                match status {
                    202 => submitted.push(text(&task, "id").to_owned()),
                    404 => return submitted,
                    429 | 503 => {}
                    // It is closed before it goes.
                    409 => assert_eq!(task["error"]["message"], "the session is closed"),
                    other => panic!("{other}: {task}"),
                }
            }
        };
        let id = if kind == "session" { session.clone() } else { workspace.clone() };
        let erasing = async { erased(&dormouse, &[kind, &id]).await };
        let (submitted, _) = in_time("it is erased", async { tokio::join!(writing, erasing) }).await;
        for task in submitted {
            for path in [format!("/v1/tasks/{task}"), format!("/v1/tasks/{task}/events")] {
                assert_eq!(get(&dormouse, &path, &ada).await.status(), 404, "{kind}: {path}");
            }
            assert_eq!(post(&dormouse, &format!("/v1/tasks/{task}/cancel"), &ada, json!({})).await.0, 404, "{kind}");
        }
        let left = dormouse.command(&["erase", kind, &id, "--dry-run"]).output().expect("it runs");
        assert_eq!(left.status.code(), Some(4), "{kind}: {left:?}");
        let sleepers = dormouse.command(&["pending"]).output().expect("it runs");
        assert!(!String::from_utf8_lossy(&sleepers.stdout).contains("task_"), "{kind}: nobody sleeps on: {sleepers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_began_beside_the_protocol_is_erased_with_it() {
    let folder = folder();
    let dormouse = Dormouse::start_in(folder.path(), &["--authorization", "keys"], &[]);
    let of = |tenant| text(&key(&dormouse, &["--tenant", tenant, "--actor", "ada", "--all-scopes"]), "key").to_owned();
    let says = |words: &str| json!({"role": "user", "content": words});
    let expense = json!({"state": {"employee": "Zacharias", "amount_cents": 12_000, "purpose": "a keyboard"}});
    let chat = "/chat/chat/sessions/own/messages";
    let (gone, kept) = (of("gone"), of("kept"));
    let begin = async |key: &str| {
        assert_eq!(post(&dormouse, chat, key, says("Zacharias")).await.0, 200);
        let (status, asleep) = post(&dormouse, "/graphs/expense-approval/turns", key, expense.clone()).await;
        assert_eq!(status, 202, "{asleep}");
        asleep
    };
    let (asleep, others) = (begin(&gone).await, begin(&kept).await);

    // One session of that name, of that tenant alone.
    let looked = told(&dormouse, &["erase", "session", "own", "--tenant", "gone", "--dry-run"]);
    assert_eq!((&looked["sessions"], &looked["would_cancel"]), (&json!(1), &json!(0)), "{looked}");
    let erased = told(&dormouse, &["erase", "session", "own", "--tenant", "gone", "--yes"]);
    assert_eq!(erased["session states"], 1, "{erased}");
    let (_, again) = post(&dormouse, chat, &gone, says("two")).await;
    assert!(!again.to_string().contains("Zacharias"), "{again}");
    for nobodys in
        [&["erase", "session", "own", "--yes"][..], &["erase", "session", "own", "--tenant", "none", "--yes"]]
    {
        assert_eq!(dormouse.command(nobodys).output().expect("it runs").status.code(), Some(4), "{nobodys:?}");
    }

    assert_eq!(post(&dormouse, chat, &gone, says("Zacharias")).await.0, 200);
    let erased = told(&dormouse, &["erase", "tenant", "gone", "--wait", "0", "--yes"]);
    assert_eq!((&erased["canceled"], &erased["of_no_tenant"]), (&json!(1), &json!(0)), "{erased}");
    assert_eq!((&erased["session states"], &erased["invocations"]), (&json!(1), &json!(1)), "{erased}");
    let bare = dormouse_tests::client();
    let status = bare.get(text(&asleep, "status_url")).send().await.expect("an answer");
    assert_eq!(status.status(), 404);
    let answer = json!({"decision": "approved", "decided_by": "Grace"});
    assert_eq!(dormouse.answer(text(&asleep, "callback_url"), &answer).await.0, 404);
    let pending = dormouse.command(&["pending", "--json"]).output().expect("it runs");
    let pending = String::from_utf8_lossy(&pending.stdout).into_owned();
    assert_eq!(pending.matches("expense-approval").count().min(1), 1, "{pending}");
    assert!(!pending.contains(text(&asleep, "invocation_id")) && pending.contains(text(&others, "invocation_id")));
    let (_, new) = post(&dormouse, chat, &of("gone"), says("two")).await;
    assert_eq!(new["final_state"]["messages"].as_array().map(Vec::len), Some(2), "nothing is handed on: {new}");
    let again = dormouse.command(&["erase", "session", "own", "--tenant", "gone", "--yes"]).output().expect("it runs");
    assert_eq!(again.status.code(), Some(0), "what the new key began");

    let (_, theirs) = post(&dormouse, chat, &kept, says("two")).await;
    assert!(theirs.to_string().contains("Zacharias"), "of others nothing: {theirs}");
    assert_eq!(dormouse.answer(text(&others, "callback_url"), &answer).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_tenant_that_writes_while_it_is_erased_no_row_is_left() {
    let folder = folder();
    let dormouse = Dormouse::start_in(folder.path(), &["--authorization", "keys"], &[]);
    let acme = text(&key(&dormouse, &["--tenant", "acme", "--actor", "ada", "--all-scopes"]), "key").to_owned();
    let (_, workspace) = post(&dormouse, "/v1/workspaces", &acme, json!({"name": "w", "root": "/"})).await;
    let (_, session) = post(&dormouse, "/v1/sessions", &acme, json!({"workspace_id": workspace["id"]})).await;
    let session = text(&session, "id");
    assert_eq!(
        post(&dormouse, "/signals/acme.order", &acme, json!({"a": "b"})).await.0,
        202,
        "nobody waits for it yet"
    );
    let messages = format!("/v1/sessions/{session}/messages");
    let parts = [json!({"type": "text", "text": "word"})];
    let says = async || post(&dormouse, &messages, &acme, json!({"message": {"role": "user", "parts": parts}})).await.0;
    for _ in 0..20 {
        assert_eq!(says().await, 201);
    }
    // Until the key is refused.
    let writes = async { while says().await != 401 {} };
    let erasing = erased(&dormouse, &["tenant", "acme", "--wait", "0"]);
    in_time("it is erased", async { tokio::join!(erasing, writes) }).await;
    // What was under way when its key was looked at may have been written behind the eraser.
    let again = dormouse.command(&["erase", "tenant", "acme", "--wait", "0", "--yes"]).output().expect("it runs");
    assert!(matches!(again.status.code(), Some(0 | 4)), "{again:?}");
    assert_eq!(rows_about(&folder.path().join("data"), &["acme", session]), [] as [String; 0]);
}

/// The rows of the store in `folder` in which one of `words` stands.
fn rows_about(folder: &std::path::Path, words: &[&str]) -> Vec<String> {
    let store =
        Connection::open_with_flags(folder.join("dynamodb.sqlite"), OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a store");
    let mut tables = store.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").expect("a query");
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).expect("tables").map(|name| name.expect("a name"));
    let rows = tables.flat_map(|table| {
        let mut rows = store.prepare(&format!("SELECT * FROM \"{table}\"")).expect("a query");
        let columns = rows.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let value = |column| row.get_ref(column).expect("a value").as_bytes().unwrap_or_default().to_vec();
            Ok(String::from_utf8_lossy(&(0..columns).map(value).collect::<Vec<_>>().join(&b' ')).into_owned())
        };
        rows.query_map([], row).expect("rows").map(|row| row.expect("a row")).collect::<Vec<_>>()
    });
    rows.filter(|row| words.iter().any(|word| row.contains(word))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_names_the_key_by_which_a_signal_approved() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let owner = dormouse.api_key();
    let payments = key(&dormouse, &["--actor", "payments", "--scope", "signals:write"]);
    let (_, workspace) = post(&dormouse, "/v1/workspaces", &owner, json!({"name": "w", "root": "/"})).await;
    let (_, session) = post(&dormouse, "/v1/sessions", &owner, json!({"workspace_id": workspace["id"]})).await;
    let session = format!("/v1/sessions/{}", text(&session, "id"));
    let expense = json!({"persona_id": "persona_expense-approval",
        "input": {"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"}});
    let (_, task) = post(&dormouse, &format!("{session}/tasks"), &owner, expense).await;
    let path = format!("/v1/tasks/{}", text(&task, "id"));
    let wire = Wire::of(&dormouse);
    wire.task(text(&task, "id"), &[TaskStatus::AuthRequired]).await;
    let signal = format!("/signals/expense-{}", text(&task, "id"));
    let sent = post(&dormouse, &signal, text(&payments, "key"), json!({"decision": "approved"})).await;
    assert_eq!(sent.0, 200, "{}", sent.1);
    wire.task(text(&task, "id"), &[TaskStatus::Completed]).await;
    let receipts: Value = get(&dormouse, &format!("{path}/receipts"), &owner).await.json().await.expect("JSON");
    let receipts = receipts["data"].as_array().expect("receipts");
    let approvals =
        receipts.iter().flat_map(|one| one["wire"]["payload"]["approvals"].as_array().into_iter().flatten());
    let names: Vec<&str> = approvals.map(|approval| text(approval, "actor")).collect();
    let expected = format!("payments (key {})", text(&payments, "id"));
    assert!(!names.is_empty() && names.iter().all(|name| *name == expected), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_as_long_as_it_may_be_however_json_writes_it() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let owner = dormouse.api_key();
    let (_, workspace) = post(&dormouse, "/v1/workspaces", &owner, json!({"name": "w", "root": "/"})).await;
    let path = format!("/v1/workspaces/{}/files", text(&workspace, "id"));
    for (count, status) in [(262_144, 201), (262_145, 413)] {
        let file = json!({"path": format!("{count}"), "content": "\u{1}".repeat(count)});
        let answer = ask(&dormouse, reqwest::Method::PUT, &path, &owner, Some(file)).await;
        let seen = answer.status().as_u16();
        assert!(seen == status || (status == 201 && seen == 200), "{count}: {seen}");
    }
}

#[test]
fn a_name_for_others_is_warned_of_where_nobody_proves_who_they_are() {
    let told = |more: &[&str]| {
        let folder = folder();
        let dormouse = Dormouse::start_with(folder.path(), &[&["--host", "agents.example.com"], more].concat());
        dormouse.logged()
    };
    let open = told(&[]);
    assert!(open.contains("agents.example.com") && open.contains("`--authorization keys`"), "{open}");
    let shut = told(&["--authorization", "keys"]);
    assert!(!shut.contains("where that is not meant"), "{shut}");
}
